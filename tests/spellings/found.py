"""What people who did not know the rules came up with: attentions that were left, and traps that were not, until
then. Some of each group are exported through run_decompositions(), which writes einsum and broadcasts out."""
from spell import *

E = torch.einsum
A = 0.3
SELF = dict(k=add("bhnd", 1.2), v=add("bhne"))


def scores(q, k): return q @ k.mT * A


def both(name, f, **options):
    S("found_" + name, f, **options)
    S("found_core_" + name, f, decompose=True, **options)


group("found")
both("negated", lambda q, k, v: soft(-(q @ k.mT) / 3) @ v)
both("softmin", lambda q, k, v: F.softmin(scores(q, k), -1) @ v)
both("divided_after", lambda q, k, v: soft(scores(q, k)) / 2.5 @ v)
both("bias_more_heads", lambda q, k, v, bias: soft(scores(q, k) + bias) @ v, q=add("b1nd", 1.2), k=add("b1md", 1.2),
     v=add("b1me"), bias=add("hnm"))
both("bias_more_axes", lambda q, k, v, bias: soft(scores(q, k) + bias) @ v, q=add("bnd", 1.2), k=add("bmd", 1.2),
     v=add("bme"), bias=add("21nm"))
both("one_query_many_rows", lambda q, k, v, bias: soft(scores(q, k) + bias) @ v, q=add("bh1d", 1.2), bias=add("b1nm"))
both("bias_then_head_temperature", lambda self, q, k, v, mask: soft((q @ k.mT + mask) / self.t) @ v, mask=add("b1nm"),
     parts=dict(t=lambda: torch.tensor([1.5, 2.0, 2.5, 4.0]).view(4, 1, 1)))
both("rows_zeroed_like", lambda q, k, v, keep: (lambda p: torch.where(keep.any(-1, keepdim=True), p,
                                                                      torch.zeros_like(p))
                                                @ v)(soft(scores(q, k).masked_fill(~keep, MIN))))
both("transfo_xl", lambda q, k, v: E("ijbn,jbnd->ibnd", (E("ibnd,jbnd->ijbn", q, k) * A).softmax(1), v),
     q=add("nbhd", 1.2), k=add("mbhd", 1.2), v=add("mbhe"))
both("heads_last_dim_2", lambda q, k, v: E("blsh,bshe->blhe", (E("blhe,bshe->blsh", q, k) * A).softmax(2), v),
     q=add("bnhd", 1.2), k=add("bmhd", 1.2), v=add("bmhe"))
both("multi_query_einsum", lambda q, k, v: E("bhnm,bme->bnhe", soft(E("bnhd,bmd->bhnm", q, k) * A), v),
     q=add("bnhd", 1.2), k=add("bmd", 1.2), v=add("bme"))
both("decode_einsum", lambda q, k, v: E("bhm,bhme->bhe", soft(E("bhd,bhmd->bhm", q, k) * A), v), q=add("bhd", 1.2),
     dynamic="bm")
both("values_more_heads", lambda q, k, v: soft(scores(q, k)) @ v, q=add("b1nd", 1.2), k=add("b1md", 1.2))
both("sink_column",
     lambda self, q, k, v: soft(torch.cat([scores(q, k), self.sink.view(1, 4, 1, 1).expand(q.shape[0], 4, q.shape[2],
         1)], -1))[..., :-1] @ v, parts=dict(sink=lambda: nn.Parameter(rows(4))))
both("plus_one", lambda q, k, v: (lambda e: (e / (1 + e.sum(-1, keepdim=True))) @ v)(scores(q, k).exp()))
both("late_by_hand", lambda q, k, v: (lambda e: (e @ v) / e.sum(-1).unsqueeze(-1))(scores(q, k).exp()))
both("rows_scaled_after", lambda q, k, v: (soft(scores(q, k)) * q.mean(-1, keepdim=True)) @ v)
S("found_linear", lambda q, k, v: F.linear(soft(F.linear(q, k) / 4), v.t()), q=add("nd", 1.2), k=add("md", 1.2),
  v=add("me"), dynamic="nm")
S("found_softcap_negative", lambda q, k, v: soft(torch.tanh(scores(q, k) / -3) * -3) @ v)
S("found_causal_buffer_of_the_last_queries",
  lambda self, q, k, v: soft(scores(q, k).masked_fill(~self.seen[k.shape[2] - q.shape[2]:k.shape[2], :k.shape[2]],
                                                      -INF)) @ v,
  parts=dict(seen=lambda: torch.ones(64, 64, dtype=torch.bool).tril()), sizes=WIDE)

trap("found_fill_lifted",
     lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, -1e9) + torch.where(drop, 1e9, 0.0)) @ v)
trap("found_fill_lifted_by_sub",
     lambda q, k, v, drop: soft(torch.where(drop, -1e9, scores(q, k)) - drop.float() * -1e9) @ v)
trap("found_fill_below_a_large_bias",
     lambda q, k, v, drop, mask: soft(scores(q, k).masked_fill(drop, -1e4) + mask * 5000) @ v, mask=add("bhnm"))
trap("found_fill_below_a_large_key_bias",
     lambda q, k, v, drop, mask: soft(scores(q, k).masked_fill(drop, -1e4) + mask * 1e5) @ v, mask=add("bh1m"))
trap("found_weights_rounded_bf16", lambda q, k, v: soft(scores(q, k)).bfloat16().float() @ v)
trap("found_weights_rounded_f16", lambda q, k, v: soft(scores(q, k)).half().float() @ v)
trap("found_sink_as_high_as_the_fill",
     lambda q, k, v, keep: (lambda s: soft(torch.cat([s, torch.full_like(s[..., :1], -1e4)], -1))
                            @ torch.cat([v, v[:, :, :1]], 2))(scores(q, k).masked_fill(~keep, -1e4)))
trap("found_positions_in_bf16", lambda q, k, v: (lambda p: F.scaled_dot_product_attention(q, k, v,
    attn_mask=p[None] <= p[:, None]))(torch.arange(q.shape[2]).to(torch.bfloat16)), **SELF,
     sizes=[dict(b=2, n=5, m=5), dict(b=3, n=300, m=300)], ranges=dict(n=(1, 512)))
trap("found_positions_in_int8", lambda q, k, v: (lambda p: F.scaled_dot_product_attention(q, k, v,
    attn_mask=p[None] <= p[:, None]))(torch.arange(q.shape[2]).to(torch.int8)), **SELF,
     sizes=[dict(b=2, n=5, m=5), dict(b=3, n=300, m=300)], ranges=dict(n=(1, 512)))
trap("found_scale_cut_by_a_cast", lambda q, k, v: soft(q @ k.mT / torch.tensor(math.sqrt(8)).to(torch.int64)) @ v)
trap("found_renormalised_over_queries",
     lambda q, k, v, keep: (lambda p: (p / p.sum(2, keepdim=True)) @ v)(soft(scores(q, k)) * keep))
