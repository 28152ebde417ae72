"""Attention as still other repositories write it, in words of our own: OpenKiwi, former, OpenNMT, gpt-oss's reference,
Grok, KERPLE, FIRE, iRPE, Transformer-XL, xPos, Qwen2-VL, Informer, Non-stationary Transformers, TFT, SAINT, GAU, CSWin,
ToMe, EViT, IP-Adapter ...; and what only looks like it."""
from spell import *

E, H, D = 32, 4, 8
FAR = -torch.finfo(torch.float32).max
X = dict(x=add("bnc"))
SELF = dict(k=add("bhnd", 1.2), v=add("bhne"))
KV = dict(k=add("bgmd", 1.2), v=add("bgme"))
HEADS = dict(q=add("bnhd", 1.2), k=add("bmhd", 1.2), v=add("bmhd"))
lin = lambda a=E, b=E, bias=True: (lambda: nn.Linear(a, b, bias))
QKVO = dict(q=lin(), k=lin(), v=lin(), out=lin())
einsum = torch.einsum


def split(t):
    return t.unflatten(-1, (H, D)).transpose(1, 2)


def merge(t):
    return t.transpose(1, 2).flatten(2)


def scores(q, k):
    return q @ k.mT * 0.35


def steps(q, k):
    """Positions of queries and keys, as columns and rows."""
    return torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]


# ------------------------------------------------------------------ the softmax in its parts
def adjacent(q, k, v, keep):
    """Graph transformers: less the first sample's mean, times the edges, a sum of nothing made 1."""
    s = scores(q, k)
    e = torch.exp(s - torch.mean(s, -1, keepdim=True)[0]) * keep
    total = torch.sum(e, -1, keepdim=True)
    total[total == 0] = 1.0
    return (e / total) @ v


def off_by_one_stable(q, k, v):
    """Softmax with one more zero, the maximum taken off: never below that zero."""
    s = scores(q, k)
    top = s.amax(-1, keepdim=True).clamp(min=0)
    e = torch.exp(s - top)
    return (e / (torch.exp(-top) + e.sum(-1, keepdim=True))) @ v


S("exp_less_mean_one_query", lambda q, k, v, pad: (lambda e: torch.bmm((e / e.sum(1, keepdim=True)).unsqueeze(1),
    v).squeeze(1))((lambda s: torch.exp(s - s.mean(1, keepdim=True)))(torch.bmm(k, q.unsqueeze(2)).squeeze(2) * 0.35)
                   * pad), q=add("bd", 1.2), k=add("bmd", 1.2), v=add("bme"), dynamic="bm", note="OpenKiwi's")
S("adjacent_nodes", adjacent, keep=dead_keep("b1nm"))
trap("exp_normalize_p1", lambda q, k, v: F.normalize(scores(q, k).exp(), p=1.0, dim=-1) @ v,
     note="a sum below 1e-12 would count as that")
S("softmax_seen_in_2d", lambda q, k, v: soft(scores(q, k).view(-1, k.shape[2])).view(q.shape[0], 4, -1, k.shape[2]) @ v,
  note="OpenNMT's")
S("log_of_mask_and_tiny", lambda q, k, v, keep: F.log_softmax(scores(q, k) + (keep.float() + 1e-45).log(),
    -1).exp() @ v,
  note="AllenNLP's masked_log_softmax")
S("lse_returned", lambda q, k, v: (lambda s: (soft(s) @ v, s.logsumexp(-1)))(scores(q, k)))
S("log_softmax_module", lambda self, q, k, v: self.l(scores(q, k)).exp() @ v, parts=dict(l=lambda: nn.LogSoftmax(-1)))
S("softmax_of_log_softmax", lambda q, k, v: soft(F.log_softmax(scores(q, k), -1)) @ v)
S("off_by_one_stable", off_by_one_stable)
S("softmax_plus_n", lambda q, k, v: (lambda e: (e / (2.5 + e.sum(-1, keepdim=True))) @ v)(scores(q, k).exp()))
S("exp_tril", lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(scores(q, k).exp().tril()), **SELF)
S("softmax_tril_again", lambda q, k, v: (lambda p: (p / p.sum(-1, keepdim=True)) @ v)(soft(scores(q, k)).tril()),
    **SELF)
trap("softmax_window_normalize", lambda q, k, v: (lambda i, j: F.normalize(soft(scores(q, k)) * ((i - j).abs() < 3),
    p=1,
    dim=-1) @ v)(*steps(q, k)), **SELF)
trap("softmax_sum_and_tiny", lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1e-2)) @ v)((lambda s: (s
    - s.amax(-1, keepdim=True)).exp())(scores(q, k))), note="something is added to the sum, less the maximum")
trap("policy_softmax", lambda q, k, v, keep: (lambda a: (lambda e: ((e + 1e-3 / k.shape[2]) / (e.sum(-1, keepdim=True)
    + 1e-3)) @ v)((lambda s: (s - s.amax(-1, keepdim=True)).exp())(scores(q, k)) * a))(keep + ~keep * torch.eye(
        q.shape[2])), keep=keep("b1nn"), **SELF, note="DynamicViT's: each weight gets a little")
trap("sigmoid_normalised", lambda q, k, v: (lambda p: (p / p.sum(-1, keepdim=True)) @ v)(scores(q, k).sigmoid()))
trap("softplus_normalised", lambda q, k, v: (lambda p: (p / p.sum(-1, keepdim=True)) @ v)(F.softplus(scores(q, k))))
trap("taylor_exponential", lambda q, k, v: (lambda s: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(1 + s + s * s / 2))(
    scores(q, k)), note="Based: the exponential by three terms")
trap("sharpened", lambda q, k, v: (lambda p: (p / p.sum(-1, keepdim=True)) @ v)(soft(scores(q, k)) ** 1.7))
trap("sinkhorn", lambda q, k, v: (lambda s: (s - s.logsumexp(-1,
    keepdim=True)).exp() @ v)((lambda s: s - s.logsumexp(-2,
    keepdim=True))(scores(q, k))), note="over queries, then over keys")
trap("softmax_mean_of_other_axis", lambda q, k, v: (lambda s: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(torch.exp(s
    - s.mean(-2, keepdim=True))))(scores(q, k)))
trap("softmax_2d_wrong_rows", lambda q, k, v: soft(scores(q, k).transpose(1, 2).reshape(-1,
    k.shape[2])).view(q.shape[0],
    4, -1, k.shape[2]) @ v, note="heads and queries change places on the way")
trap("softmax_two_dims", lambda q, k, v: (lambda s: (s - torch.logsumexp(s, (-2, -1),
    keepdim=True)).exp() @ v)(scores(q,
    k)))
trap("dropout_of_all", lambda q, k, v: F.dropout(soft(scores(q, k)), 1.0, True) @ v, note="nothing is left")
trap("plus_n_per_query", lambda q, k, v, t: (lambda e: (e / (t.abs() + e.sum(-1, keepdim=True))) @ v)(scores(q,
    k).exp()), t=add("b1n1"))
trap("row_of_sums", lambda q, k, v: (lambda e: (e / e.sum(-1)[:, :, None]) @ v)(scores(q, k).exp()), **SELF,
     note="sums lie along the keys")

# ------------------------------------------------------------------ the products
S("einsum_sublists", lambda q, k, v: einsum(soft(einsum(q, [0, 1, 2, 3], k, [0, 1, 4, 3], [0, 1, 2, 4]) * 0.35),
                                            [0, 1, 2, 4], v, [0, 1, 4, 5], [0, 2, 1, 5]))
S("einsum_ellipsis_inside", lambda q, k, v: einsum("b...ij,b...je->b...ie", soft(einsum("b...id,b...jd->b...ij", q, k)
    * 0.35), v))
S("einsum_ellipsis_heads_last", lambda q, k, v: einsum("...nmh,...mhd->...nhd", (einsum("...nhd,...mhd->...nmh", q, k)
    * 0.35).softmax(-2), v), **HEADS)
S("vecdot", lambda q, k, v: soft(torch.linalg.vecdot(q[..., :, None, :], k[..., None, :, :]) * 0.35) @ v)
S("multi_dot", lambda self, q, k, v: torch.linalg.multi_dot([soft(torch.linalg.multi_dot([q, self.w, k.T]) * 0.3), v,
    self.o]), q=add("5d", 1.2), k=add("7d", 1.2), v=add("7e"), dynamic="",
  parts=dict(w=lambda: nn.Parameter(rows(8, 8) * 0.4), o=lambda: nn.Parameter(rows(6, 6))))
S("baddbmm_in_place", lambda q, k, v: torch.bmm(soft(q.new_zeros(q.shape[0], q.shape[1], k.shape[1]).baddbmm_(q,
    k.transpose(1, 2), beta=0, alpha=0.35)), v), q=add("bnd", 1.2), k=add("bmd", 1.2), v=add("bme"))
S("row_by_row", lambda q, k, v: (soft(q.unsqueeze(-2) @ k.unsqueeze(-3).mT * 0.35) @ v.unsqueeze(-3)).squeeze(-2),
  note="each query is a matrix of one row")
S("vmapped", lambda q, k, v: torch.vmap(torch.vmap(lambda a, b, c: torch.softmax(a @ b.T * 0.35, -1) @ c))(q, k, v))
S("checkpointed", lambda q, k, v: torch.utils.checkpoint.checkpoint(lambda a, b, c: soft(scores(a, b)) @ c, q, k, v,
                                                                    use_reentrant=False))


def autocast(q, k, v):
    with torch.autocast("cpu", torch.bfloat16):
        return soft(q @ k.mT * 0.35) @ v


S("autocast_region", autocast)
S("rows_in_two_blocks", lambda q, k, v: torch.cat([soft(q[:, :, i:i + 4] @ k[:, :, :i + 4].mT * 0.35 + torch.full((4,
    i + 4), -INF).triu(i + 1)) @ v[:, :, :i + 4] for i in (0, 4)], 2), q=add("bh8d", 1.2), k=add("bh8d", 1.2),
  v=add("bh8e"), dynamic="b", count=2, note="causal: each block reads no further than it may")
trap("einsum_summed_apart", lambda q, k, v: soft(einsum("bhqd,bhke->bhqk", q, k) * 0.1) @ v,
     note="d and e are summed each on its own")
trap("einsum_diagonal", lambda q, k, v: soft(einsum("bhnd,bhnd->bhn", q, k)[..., None] * torch.ones(1, 1, 1,
    k.shape[2])) @ v, **SELF)
trap("einsum_heads_summed", lambda q, k, v: soft(einsum("bhnd,bgmd->bhnm", q, k) * 0.2) @ v,
     note="each head sees the sum of all heads' keys")
trap("einsum_values_summed", lambda q, k, v: einsum("bhnm,bgme->bhne", soft(scores(q, k)), v))
trap("aliased_in_place", lambda x, v: (lambda q, k: (q.mul_(0.5), soft(q @ k.mT) @ v)[1])(*(lambda y: (y,
    y))(x.clone())),
     x=add("bhnd"), v=add("bhne"), note="queries are the keys' own memory")
trap("weights_row_written", lambda q, k, v: (lambda p: (p[:, :, 0].zero_(), p @ v)[1])(soft(scores(q, k))))

# ------------------------------------------------------------------ heads that share keys
S("gqa_gather", lambda q, k, v: (lambda f: soft(q @ f(k).mT * 0.35) @ f(v))(lambda t: t.gather(1, (torch.arange(4)
    // 2).view(1, -1, 1, 1).expand(t.shape[0], -1, t.shape[2], t.shape[3]))), **KV)
S("gqa_tile", lambda q, k, v: soft(q @ torch.tile(k, (2, 1, 1)).mT * 0.35) @ torch.tile(v, (1, 2, 1, 1)), **KV)
S("gqa_broadcast_to", lambda q, k, v: (lambda f: soft(scores(q, f(k))) @ f(v))(lambda t: torch.broadcast_to(t.unsqueeze(
    2), (t.shape[0], 2, 2, t.shape[2], t.shape[3])).reshape(t.shape[0], 4, t.shape[2], -1)), **KV)
S("gqa_unequal_groups", lambda q, k, v: soft(scores(q, k[:, [0, 1, 1, 1]])) @ v[:, [0, 1, 1, 1]], **KV)
S("gqa_repeats_tensor", lambda q, k, v: (lambda f: soft(scores(q, f(k))) @ f(v))(lambda t: torch.repeat_interleave(t,
    torch.tensor([3, 1]), dim=1, output_size=4)), **KV)


def grok(q, k, v, keep):
    """Grok-1: groups in capitals, scores in float32, capped, filled, softmax, groups flattened at the end."""
    q = q.unflatten(2, (2, 2))
    s = einsum("...thHd,...Thd->...hHtT", q, k).float() * 0.35
    s = torch.where(keep[:, :, None], 5.0 * torch.tanh(s / 5.0), torch.tensor(-1e30))
    return einsum("...hHtT,...Thd->...thHd", soft(s).to(v.dtype), v).flatten(2)


S("grok", grok, q=add("bnhd", 1.2), k=add("bmgd", 1.2), v=add("bmgd"))
trap("gqa_gather_other_values", lambda q, k, v: soft(scores(q, k.repeat_interleave(2, 1))) @ v.gather(1,
    (torch.arange(4)
    % 2).view(1, -1, 1, 1).expand(v.shape[0], -1, v.shape[2], v.shape[3])), **KV)

# ------------------------------------------------------------------ sinks, caps
SINK = dict(sink=lambda: nn.Parameter(torch.tensor([0.5, 1.0, 2.0, 3.0])))


def gpt_oss(self, q, k, v):
    """gpt-oss's reference: no batch, groups by einsum, a sink a head as the last column."""
    n = q.shape[0]
    q, k, v = q.view(n, 2, 2, D), k[:, :, None].expand(-1, -1, 2, -1), v[:, :, None].expand(-1, -1, 2, -1)
    s = einsum("qhmd,khmd->hmqk", q, k)
    s *= 0.35
    s += torch.triu(q.new_full((n, n), -INF), diagonal=1)[None, None]
    p = torch.softmax(torch.cat([s, self.sink.reshape(2, 2, 1, 1).expand(-1, -1, n, -1)], dim=-1), dim=-1)[..., :-1]
    return einsum("hmqk,khmd->qhmd", p, v).reshape(n, -1)


S("gpt_oss_reference", gpt_oss, q=add("nhd", 1.2), k=add("ngd", 1.2), v=add("ngd"), dynamic="n", parts=SINK)
S("sink_logaddexp", lambda self, q, k, v: (lambda s: torch.exp(s - torch.logaddexp(s.logsumexp(-1, keepdim=True),
    self.sink.view(4, 1, 1))) @ v)(scores(q, k)), parts=SINK)
S("sink_by_sigmoid", lambda self, q, k, v: (lambda s: (soft(s) @ v) * torch.sigmoid(s.logsumexp(-1, keepdim=True)
    - self.sink.view(4, 1, 1)))(scores(q, k)), parts=SINK)
S("sink_padded_column", lambda q, k, v, mask: soft(F.pad(scores(q, k) + mask, (0, 1), value=1.5))[..., :-1] @ v)
S("sink_of_the_query", lambda self, q, k, v: soft(torch.cat([scores(q, k), (q * self.w.view(1, 4, 1, 8)).sum(-1,
    keepdim=True)], -1))[..., :-1] @ v, parts=dict(w=lambda: nn.Parameter(rows(4, 8))), kind="trap",
  note="the sink depends on the query")
trap("sink_dropped_at_the_other_end", lambda self, q, k, v: soft(torch.cat([scores(q, k), self.sink.view(1, 4, 1,
    1).expand(q.shape[0], -1, q.shape[2], -1)], -1))[..., 1:] @ v, parts=SINK)
trap("cap_by_sigmoid", lambda q, k, v: soft(3.0 * (2 * torch.sigmoid(scores(q, k) * (2 / 3.0)) - 1)) @ v,
     note="a tanh, by sigmoid")
trap("cap_by_arctan", lambda q, k, v: soft(3.0 * torch.atan(scores(q, k) / 3.0)) @ v)
trap("cap_by_softsign", lambda q, k, v: soft(3.0 * F.softsign(scores(q, k) / 3.0)) @ v)
trap("clamped_far", lambda q, k, v: (lambda s: soft((s - s.max()).clamp(min=-5.0, max=5.0)) @ v)(q @ k.mT),
     note="GLIP clamps, further out")

# ------------------------------------------------------------------ positions added to the scores
S("alibi_in_the_causal_mask", lambda self, q, k, v: soft(scores(q, k) + (torch.full((64, 64), -INF).triu(1)[None]
    + self.slopes.unsqueeze(1).unsqueeze(1) * torch.arange(64).unsqueeze(0).unsqueeze(0).expand(4, -1, -1))[:,
        :q.shape[2], :q.shape[2]]) @ v, **SELF, parts=dict(slopes=lambda: torch.tensor([0.5, 0.25, 0.125, 0.0625])),
  note="fairseq's")
S("kerple", lambda self, q, k, v: (lambda i, j: soft((scores(q, k) - self.a.abs() * torch.log1p(self.b.abs() * (i
    - j).abs())).masked_fill(j > i, FAR)) @ v)(*steps(q, k)), **SELF,
  parts=dict(a=lambda: nn.Parameter(rows(4, 1, 1)), b=lambda: nn.Parameter(rows(4, 1, 1, seed=1))))
S("fire", lambda self, q, k, v: (lambda i, j: soft((scores(q, k) + self.m((torch.log((i - j).abs() * self.c.abs() + 1)
    / torch.log(self.c.abs() * torch.clamp(i, min=4.0) + 1))[..., None]).permute(2, 0, 1)).masked_fill(j > i,
        -INF)) @ v)(
    *steps(q, k)), **SELF, parts=dict(m=lambda: nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 4)),
                                      c=lambda: nn.Parameter(torch.tensor(0.7))))


def buckets(far):
    """T5's, of distances back in time."""
    d = (-far).clamp(min=0)
    log = 4 + (torch.log(d.float().clamp(min=1) / 4) / math.log(5) * 4).long()
    return torch.where(d < 4, d, log.clamp(max=7))


class Relative(nn.Embedding):
    def __init__(self, n=8, width=H):
        super().__init__(n, width)


S("t5_decoder_cached", lambda self, q, k, v: (lambda m: soft(q @ k.mT + self.bias(buckets(torch.arange(m)[None]
    - torch.arange(m)[:, None])).permute(2, 0, 1).unsqueeze(0)[:, :, -q.size(2):, :] + torch.full((m, m), FAR).triu(
        1)[-q.size(2):]) @ v)(k.shape[2]), q=add("bhnd", 0.5), parts=dict(bias=Relative), sizes=WIDE, auto=True,
  note="the bias of all positions, of which the last rows stay")


class Irpe(nn.Module):
    """iRPE, contextual, product method: queries times a table, whose buckets are picked by a flat index."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.table = nn.Parameter(torch.empty(H, D, 9))
        c = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij")).flatten(1)
        d = (c[:, :, None] - c[:, None]).clamp(-1, 1) + 1
        self.register_buffer("at", d[0] * 3 + d[1])

    def forward(self, x):                                           # (B, 9, C)
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
        q = q * D ** -0.5
        look = torch.matmul(q.transpose(0, 1).reshape(H, -1, D), self.table).view(H, b, n, 9).transpose(0, 1)
        flat = (self.at + torch.arange(0, n * 9, 9).view(-1, 1)).flatten()
        bias = look.flatten(2)[:, :, flat].view(b, H, n, n)
        return self.out(((q @ k.transpose(-2, -1) + bias).softmax(-1) @ v).transpose(1, 2).reshape(b, n, E))


S("irpe_contextual", Irpe, x=add("b9c"), dynamic="b")


def shaw_t2t(self, q, k, v):
    """tensor2tensor's: queries first in time, so that one product does all positions of keys, and of values."""
    b, h, n, d = q.shape
    i, j = steps(q, k)
    rk, rv = (t((j - i).clamp(-3, 3) + 3) for t in (self.rk, self.rv))
    back = lambda t: t.reshape(n, b, h, -1).permute(1, 2, 0, 3)
    s = q @ k.mT + back(torch.bmm(q.permute(2, 0, 1, 3).reshape(n, b * h, d), rk.transpose(1, 2)))
    p = soft(s * 0.35)
    return p @ v + back(torch.bmm(p.permute(2, 0, 1, 3).reshape(n, b * h, n), rv))


S("shaw_tensor2tensor", shaw_t2t, **SELF, auto=True, sizes=SIZES,
  parts=dict(rk=lambda: Relative(7, 8), rv=lambda: Relative(7, 6)))


class TransformerXL(nn.Module):
    """Transformer-XL's own: time first, memory, scores (queries, keys, batch, heads), shifted by a column of zeros,
    softmax over axis 1."""
    def __init__(self):
        super().__init__()
        self.qkv, self.r, self.out = nn.Linear(E, 3 * E, False), nn.Linear(E, E, False), nn.Linear(E, E, False)
        self.u, self.w = nn.Parameter(rows(H, D)), nn.Parameter(rows(H, D, seed=1))

    def forward(self, x, mem):                                      # (N, B, C), (M, B, C)
        n, b, _ = x.shape
        q, k, v = self.qkv(torch.cat([mem, x], 0)).chunk(3, dim=-1)
        q, m = q[-n:], k.size(0)
        at = torch.arange(m - 1, -1, -1.0)[:, None] * torch.exp(torch.arange(0, E, 2) * -0.3)
        r = self.r(torch.cat([at.sin(), at.cos()], -1)).view(m, H, D)
        q, k, v = q.view(n, b, H, D), k.view(m, b, H, D), v.view(m, b, H, D)
        ac = einsum("ibnd,jbnd->ijbn", q + self.u, k)
        bd = einsum("ibnd,jnd->ijbn", q + self.w, r)
        bd = torch.cat([torch.zeros((n, 1, b, H)), bd], dim=1).view(m + 1, n, b, H)[1:].view(n, m, b, H)
        s = (ac + bd).mul_(D ** -0.5)
        seen = torch.triu(s.new_ones(n, m), diagonal=1 + m - n).bool()[:, :, None, None]
        p = F.softmax(s.float().masked_fill(seen, -INF).type_as(s), dim=1)
        return self.out(einsum("ijbn,jbnd->ibnd", p, v).contiguous().view(n, b, E))


S("transformer_xl_own", TransformerXL, x=add("nbc"), mem=add("mbc"), auto=True, sizes=SIZES)
S("tome_proportional", lambda q, k, v, size: soft(scores(q, k) + size.exp().log()[:, None, None, :, 0]) @ v,
  size=add("bm1"), note="ToMe: a merged key counts as many")


class NonStationary(nn.Module):
    """Non-stationary Transformers: a factor and an offset of each sample, before causal mask and scale."""
    def forward(self, q, k, v, tau, delta):
        s = einsum("blhe,bshe->bhls", q, k) * tau.unsqueeze(1).unsqueeze(1) + delta.unsqueeze(1).unsqueeze(1)
        n = q.shape[1]
        s.masked_fill_(torch.triu(torch.ones([q.shape[0], 1, n, n], dtype=torch.bool), diagonal=1), -INF)
        return einsum("bhls,bshd->blhd", soft((1.0 / math.sqrt(D)) * s), v).contiguous()


S("non_stationary", NonStationary, q=add("bnhd", 1.2), k=add("bnhd", 1.2), v=add("bnhd"), tau=In("b1", lambda g,
    s: torch.rand(s, generator=g) + 0.5), delta=add("bn"))
trap("tau_of_the_key", lambda q, k, v, tau: soft(scores(q, k) * tau[:, None, None] + 1.0) @ v, tau=add("bm"))

# ------------------------------------------------------------------ rotary
ANGLE = torch.tensor([1.0, 0.5, 0.2, 0.07])


def turns(n):
    return torch.arange(n).float()[:, None] * ANGLE


def written_pairs(t):
    """Pairs written into an empty tensor, one stride at a time."""
    a, out = turns(t.shape[2]), torch.empty_like(t)
    out[..., 0::2] = t[..., 0::2] * a.cos() - t[..., 1::2] * a.sin()
    out[..., 1::2] = t[..., 0::2] * a.sin() + t[..., 1::2] * a.cos()
    return out


def half(t, a):
    x, y = t.chunk(2, -1)
    return torch.cat([x * a.cos() - y * a.sin(), y * a.cos() + x * a.sin()], -1)


def xpos(q, k, v):
    n = q.shape[2]
    a, zeta = turns(n), ((torch.arange(0, 8, 2) + 3.2) / 11.2)[None] ** (torch.arange(n)[:, None] / 16)
    q, k = half(q, a) * torch.cat([zeta, zeta], -1), half(k, a) / torch.cat([zeta, zeta], -1)
    return soft(scores(q, k).masked_fill(torch.ones(n, n).triu(1).bool(), -INF)) @ v


def mrope(q, k, v, at):
    """Qwen2-VL: angles of time, row and column, of which each part of the channels takes its own."""
    a = at[..., None].float() * torch.cat([ANGLE, ANGLE])
    cos, sin = ((torch.cat([m[i % 3] for i, m in enumerate(t.split([2, 1, 1] * 2, dim=-1))], -1)).unsqueeze(1)
                for t in (a.cos(), a.sin()))
    turn = lambda t: t * cos + torch.cat((-t[..., 4:], t[..., :4]), -1) * sin
    return soft(scores(turn(q), turn(k))) @ v


def by_matrix(q, k, v):
    """A rotation as a matrix for each place."""
    a = turns(q.shape[2])
    r = torch.diag_embed(a.cos()).repeat(1, 2, 2)
    s = torch.diag_embed(a.sin())
    z = torch.zeros_like(s)
    r = r * torch.eye(8) + torch.cat([torch.cat([z, s], -1), torch.cat([-s, z], -1)], -2)
    turn = lambda t: einsum("bhnd,nde->bhne", t, r)
    return soft(scores(turn(q), turn(k))) @ v


S("rotary_written_pairs", lambda q, k, v: soft(scores(written_pairs(q), written_pairs(k))) @ v, **SELF)
S("rotary_xpos", xpos, **SELF)
S("rotary_sections", mrope, at=integer("3bn", 9), **SELF)
S("rotary_by_matrix", by_matrix, **SELF)
S("rotary_of_values_back", lambda q, k, v: (lambda a: half(soft(scores(half(q, a), half(k, a))) @ half(v, a), -a))(
    turns(q.shape[2])), k=add("bhnd", 1.2), v=add("bhnd"), note="values are turned, and the result is turned back")
S("rotary_of_values_kept", lambda q, k, v: (lambda a: half(soft(scores(q, k)) @ half(v, a), -a))(turns(q.shape[2])),
  k=add("bhnd", 1.2), v=add("bhnd"))

# ------------------------------------------------------------------ masks
EDGE = dict(q=add("bh6d", 1.2), k=add("bh6d", 1.2), v=add("bh6e"), dynamic="b")


def former(q, k, v):
    """former's mask_: the places above the diagonal are written one by one."""
    s = scores(q, k)
    at = torch.triu_indices(6, 6, offset=1)
    s[..., at[0], at[1]] = -INF
    return soft(s) @ v


def diagonal(q, k, v):
    s = scores(q, k)
    s.diagonal(dim1=-2, dim2=-1).fill_(-1e9)
    return soft(s) @ v


S("former_indices", former, **EDGE)
S("diagonal_filled", diagonal, **SELF, ranges=dict(n=(2, 63)), sizes=SIZES)
S("locality_self", lambda self, q, k, v: soft((q @ k.mT * self.t.exp()).masked_fill(torch.eye(q.shape[-2], k.shape[-2],
    dtype=torch.bool), FAR)) @ v, **SELF, parts=dict(t=lambda: nn.Parameter(torch.tensor(-1.0))),
  ranges=dict(n=(2, 63)), sizes=SIZES, note="nobody sees itself, and the temperature is learned")
S("blocks_by_kron", lambda q, k, v: soft(scores(q, k).masked_fill(torch.kron(torch.eye(2), torch.ones(3, 3)) == 0,
                                                                   -INF)) @ v, **EDGE)
S("prefix_of_each_sample", lambda q, k, v, lengths: (lambda i, j: soft(scores(q, k).masked_fill(~((j <= i)
    | (j < lengths[:, None, None, None])), -INF)) @ v)(*steps(q, k)), lengths=integer("b", 4), **SELF)
S("images_see_both_ways", lambda q, k, v, image, pad: (lambda i, j: soft(torch.where(((j <= i) | ((image[:, :, None]
    == image[:, None]) & (image[:, :, None] > 0)))[:, None] & pad[:, None, None], scores(q, k), FAR)) @ v)(*steps(q,
        k)),
  image=integer("bn", 3), pad=In("bn", padding().draw), **SELF)
S("static_cache", lambda q, k, v, at: soft(scores(q, k) + torch.where(torch.arange(k.shape[2])[None] <= at[:, None],
    0.0,
                                                                      FAR)[None, None]) @ v,
  at=integer("n", 9), note="a cache longer than what is in it")
S("filled_with_zero_less_far", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, 0) - 1e9 * drop.float()) @ v)
S("clamped_at_the_least", lambda q, k, v, keep: soft((scores(q, k) + (1 - keep.float()) * MIN).clamp(min=MIN)) @ v)
S("values_masked_too", lambda q, k, v, pad: soft(scores(q, k).masked_fill(~pad[:, None, None], -1e9)) @ v.masked_fill(
    ~pad[:, None, :, None], 0.0))
S("queries_masked_after", lambda q, k, v, pad, own: (soft(scores(q, k) - (~pad).float()[:, None, None] * 1e9) @ v)
  * own[:, None, :, None], own=In("bn", padding(torch.float32).draw))
S("dead_rows_see_all", lambda q, k, v, keep: (lambda m: soft(scores(q, k).masked_fill(~m, -INF)) @ v)(keep | ~keep.any(
    -1, keepdim=True)), keep=dead_keep("b1nm"))
S("mask_of_three_kinds", lambda q, k, v, mask, pad: (lambda i, j: soft(torch.stack([scores(q, k), mask.expand(-1, 4, -1,
    -1), torch.where(j > i, FAR / 4, 0.0).expand(q.shape[0], 4, -1, -1), torch.where(pad, 0.0, FAR / 4)[:, None,
        None].expand(-1, 4, q.shape[2], -1)]).sum(0)) @ v)(*steps(q, k)), mask=add("b1nn"),
  pad=In("bn", padding().draw), **SELF, kind="trap", note="the sum over an axis that was stacked")
S("columns_filled", lambda q, k, v, at: (lambda s: (s.__setitem__((..., at), -1e9), soft(s) @ v)[1])(scores(q,
    k)), at=In("2", lambda g, s: torch.randperm(3, generator=g)[:2]), k=add("bhmd", 1.2),
  ranges=dict(m=(3, 63)), sizes=SIZES, note="some keys are hidden by their numbers")
S("second_diagonal_filled", lambda q, k, v: (lambda s: (s.diagonal(1, -2, -1).fill_(-INF), soft(s) @ v)[1])(scores(q,
    k)), **SELF, ranges=dict(n=(3, 63)), sizes=SIZES)
S("filled_with_zero_plus_far", lambda q, k, v, drop: soft(-1e4 * drop.float() + scores(q, k).masked_fill(drop, 0)) @ v)
trap("indices_accumulate", lambda q, k, v: soft(torch.ops.aten.index_put(scores(q, k), [None, None, torch.tensor([0,
    1]), torch.tensor([1, 2])], torch.tensor(-1e9), True)) @ v, **EDGE, tol=2e-3)
trap("indices_of_batches", lambda q, k, v: (lambda s: (s.__setitem__((torch.tensor([0, 1]), torch.tensor([3, 2]), slice(
    None), torch.tensor([1, 4])), -INF), soft(s) @ v)[1])(scores(q, k)), **{**EDGE, "dynamic": ""}, sizes=SIZES[:1])
trap("indices_filled_with_zero", lambda q, k, v: (lambda s: (s.__setitem__((..., torch.tensor([0, 1]), torch.tensor([1,
    2])), 0.0), soft(s) @ v)[1])(scores(q, k)), **EDGE)
trap("diagonal_of_heads", lambda q, k, v: (lambda s: (s.diagonal(dim1=1, dim2=-1).fill_(-1e9),
    soft(s) @ v)[1])(scores(q,
    k)), **EDGE)
trap("diagonal_filled_with_zero", lambda q, k, v: (lambda s: (s.diagonal(dim1=-2, dim2=-1).fill_(0.0), soft(s) @ v)[1])(
    scores(q, k)), **SELF)
trap("diagonal_transposed", lambda q, k, v: (lambda s: (s.diagonal(2, -1, -2).fill_(-1e9), soft(s) @ v)[1])(scores(q,
    k)), **EDGE, note="below the diagonal: its axes are swapped")
trap("zero_less_far_elsewhere", lambda q, k, v, drop, keep: soft(scores(q, k).masked_fill(drop, 0) - 1e9 * keep.float())
     @ v)
trap("zero_less_little", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, 0) - 3.0 * drop.float()) @ v)
trap("one_less_far", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, 1e9) - 1e9 * drop.float()) @ v)
trap("exp_tril_other_sum", lambda q, k, v: (lambda e: (e.tril() / e.sum(-1, keepdim=True)) @ v)(scores(q, k).exp()),
     **SELF)
trap("exp_tril_columns", lambda q, k, v: (lambda e: (e / e.sum(-2, keepdim=True)) @ v)(scores(q, k).exp().tril()),
    **SELF)
trap("exp_triu", lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(scores(q, k).exp().triu()), **SELF)
trap("exp_tril_ahead", lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(scores(q, k).exp().tril(1)),
    **SELF)
trap("logaddexp_of_other_sums", lambda q, k, v: (lambda s: torch.exp(s - torch.logaddexp((2 * s).logsumexp(-1,
    keepdim=True), torch.tensor(1.0))) @ v)(scores(q, k)))
trap("logaddexp_over_queries", lambda q, k, v: (lambda s: torch.exp(s - torch.logaddexp(s.logsumexp(-2, keepdim=True),
    torch.tensor(1.0))) @ v)(scores(q, k)))
trap("sum_of_little_made_one", lambda q, k, v, keep: (lambda e: (lambda t: (e / torch.where(t < 3.0, 1.0,
    t)) @ v)(e.sum(
    -1, keepdim=True)))(scores(q, k).exp() * keep))
trap("sum_of_nothing_made_two", lambda q, k, v, keep: (lambda e: (lambda t: (e / torch.where(t == 0, 2.0,
    t)) @ v)(e.sum(
    -1, keepdim=True)))(scores(q, k).exp() * keep), keep=dead_keep("b1nm"))
trap("shift_of_more_axes", lambda q, k, v, t: (lambda e: (e / e.sum(3, keepdim=True)) @ v)(torch.exp(q @ k.mT * 0.3
    - t)), q=add("nd", 1.2), k=add("md", 1.2), t=add("bhn1"))
trap("mask_of_more_axes", lambda q, k, v, keep: (lambda e: (e / e.sum(3, keepdim=True)) @ v)(torch.exp(q @ k.mT * 0.3)
                                                                                             * keep), q=add("nd", 1.2),
     k=add("md", 1.2), keep=keep("bhnm"))
trap("log_softmax_other_axis", lambda q, k, v: soft(F.log_softmax(scores(q, k), -2)) @ v)
trap("keys_zeroed", lambda q, k, v, pad: soft(q @ k.masked_fill(~pad[:, None, :, None], 0.0).mT * 0.35) @ v,
     note="a padded key scores 0")
trap("scattered_best", lambda q, k, v: (lambda s: (lambda t: soft(torch.full_like(s, -INF).scatter(-1, t.indices,
    t.values)) @ v)(s.topk(2, -1)))(scores(q, k)), ranges=dict(m=(2, 63)), sizes=SIZES)
trap("diagonal_added", lambda q, k, v: (lambda s: (s.diagonal(dim1=-2, dim2=-1).add_(2.0), soft(s) @ v)[1])(scores(q,
    k)), **SELF)
trap("mask_last_wins", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, -INF).masked_fill(drop, 0.0)) @ v)
trap("mask_one_sample_for_all", lambda q, k, v, keep: soft(scores(q, k).masked_fill(~keep[:1], -INF)) @ v)
trap("mask_of_positions_divided", lambda q, k, v: (lambda i, j: soft(scores(q, k).masked_fill(j // 3 > i // 2, -INF))
                                                   @ v)(*steps(q, k)), **SELF)
trap("prefix_both_ways", lambda q, k, v, lengths: (lambda i, j: soft(scores(q, k).masked_fill((j > i) & (i
    >= lengths[:, None, None, None]), -INF)) @ v)(*steps(q, k)), lengths=integer("b", 4), **SELF)

# ------------------------------------------------------------------ scales
S("norms_in_place", lambda q, k, v: (lambda a, b: (a.div_(a.norm(dim=-1, keepdim=True)), b.div_(b.norm(dim=-1,
    keepdim=True)), soft(4.0 * a @ b.mT) @ v)[2])(q.clone(), k.clone()))
S("scale_per_head_einsum", lambda self, q, k, v: soft(einsum("bhnd,h->bhnd", q, self.t) @ k.mT) @ v,
  parts=dict(t=lambda: nn.Parameter(torch.tensor([0.2, 0.3, 0.4, 0.5]))))
S("softmax_scale_of_log_length", lambda self, q, k, v: soft((q * self.t * torch.log(torch.full((), k.shape[2]).float()
    + 1.0)) @ k.mT) @ v, parts=dict(t=lambda: nn.Parameter(torch.tensor(0.2))), kind="trap",
  note="scalable softmax: the scale grows with the number of keys")

# ------------------------------------------------------------------ whole blocks
class Tft(nn.Module):
    """TFT's interpretable attention: a loop over heads, values shared, results averaged, weights stacked."""
    def __init__(self):
        super().__init__()
        self.v, self.out = nn.Linear(E, D), nn.Linear(D, E)
        self.q, self.k = (nn.ModuleList([nn.Linear(E, D) for _ in range(H)]) for _ in range(2))

    def forward(self, x, drop):
        v, outs, maps = self.v(x), [], []
        for q, k in zip(self.q, self.k):
            s = torch.bmm(q(x), k(x).permute(0, 2, 1)) / D ** 0.5
            p = F.softmax(s.masked_fill(drop, -1e9), dim=2)
            outs.append(torch.bmm(p, v))
            maps.append(p)
        return self.out(torch.stack(outs, dim=2).mean(dim=2)), torch.stack(maps, dim=2)


class Saint(nn.Module):
    """SAINT: samples of a batch attend to each other."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(5 * E, 3 * E, False), nn.Linear(E, 5 * E)

    def forward(self, x):                                           # (B, 5, C)
        q, k, v = (split(t) for t in self.qkv(x.flatten(1)[None]).chunk(3, -1))
        return self.out(merge(soft(scores(q, k)) @ v)).view(-1, 5, E)


class Gau(nn.Module):
    """A gated attention unit: one head, queries and keys are one projection scaled and shifted twice."""
    def __init__(self, square=False):
        super().__init__()
        self.u, self.v, self.z, self.out = (nn.Linear(E, 2 * E), nn.Linear(E, 2 * E), nn.Linear(E, 16),
                                            nn.Linear(2 * E, E))
        self.gamma, self.beta, self.square = nn.Parameter(rows(2, 16)), nn.Parameter(rows(2, 16, seed=1)), square

    def forward(self, x):
        u, v, z = F.silu(self.u(x)), F.silu(self.v(x)), F.silu(self.z(x))
        q, k = (einsum("...r,hr->...hr", z, self.gamma) + self.beta).unbind(dim=-2)
        s = einsum("bnd,bmd->bnm", q, k)
        p = F.relu(s / 16) ** 2 if self.square else soft(s / 4)
        return self.out(u * einsum("bnm,bme->bne", p, v))


class GauSquare(Gau):
    def __init__(self):
        super().__init__(True)


class CSwin(nn.Module):
    """CSWin: stripes over the whole height, and values through a depthwise convolution beside the attention."""
    def __init__(self):
        super().__init__()
        self.qkv, self.lepe, self.out = nn.Linear(E, 3 * E), nn.Conv2d(E, E, 3, 1, 1, groups=E), nn.Linear(E, E)

    def cut(self, t):                                               # (B, 4 * 6, C): stripes of 4 x 2
        b = t.shape[0]
        t = t.transpose(-2, -1).contiguous().view(b, E, 4, 6).view(b, E, 1, 4, 3, 2)
        return t.permute(0, 2, 4, 3, 5, 1).contiguous().reshape(-1, 8, E)

    def forward(self, x):
        b = x.shape[0]
        q, k, v = self.qkv(x).reshape(b, -1, 3, E).permute(2, 0, 1, 3)
        heads = lambda t: t.reshape(-1, 8, H, D).permute(0, 2, 1, 3).contiguous()
        q, k, w = heads(self.cut(q)), heads(self.cut(k)), self.cut(v)
        near = self.lepe(w.reshape(-1, 4, 2, E).permute(0, 3, 1, 2)).reshape(-1, H, D, 8).permute(0, 1, 3, 2)
        o = ((q * D ** -0.5) @ k.transpose(-2, -1)).softmax(-1) @ heads(w) + near
        o = o.transpose(1, 2).reshape(-1, 8, E).view(b, 1, 3, 4, 2, E).permute(0, 1, 3, 2, 4, 5).reshape(b, -1, E)
        return self.out(o)


class Evit(nn.Module):
    """EViT: the tokens that the class token sees best go on, the others melt into one."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):                                           # (B, 9, C)
        q, k, v = self.qkv(x).reshape(x.shape[0], 9, 3, H, D).permute(2, 0, 3, 1, 4)
        p = (q @ k.transpose(-2, -1) * D ** -0.5).softmax(dim=-1)
        y = self.out((p @ v).transpose(1, 2).reshape(x.shape[0], 9, E))
        first = p[:, :, 0, 1:].mean(1)
        best = first.topk(4, dim=1).indices
        kept = y[:, 1:].gather(1, best[..., None].expand(-1, -1, E))
        rest = first.scatter(1, best, 0.0)
        return torch.cat([y[:, :1], kept, torch.sum(y[:, 1:] * rest[..., None], dim=1, keepdim=True)], dim=1)


class Adapter(nn.Module):
    """IP-Adapter: the same queries ask the text and the picture."""
    def __init__(self):
        super().__init__()
        self.q, self.kt, self.vt, self.ki, self.vi, self.out = (nn.Linear(E, E, False) for _ in range(6))

    def forward(self, x, y, picture):
        b = x.shape[0]
        fold = lambda t: t.reshape(b, -1, H, D).permute(0, 2, 1, 3).reshape(b * H, -1, D)
        q = fold(self.q(x))
        def one(k, v):
            s = torch.baddbmm(torch.empty(q.shape[0], q.shape[1], k.shape[1]), q, k.transpose(-1, -2), beta=0,
                              alpha=D ** -0.5)
            o = torch.bmm(s.softmax(dim=-1).to(q.dtype), v)
            return o.reshape(b, H, -1, D).permute(0, 2, 1, 3).reshape(b, -1, E)
        return self.out(one(fold(self.kt(y)), fold(self.vt(y))) + 0.6 * one(fold(self.ki(picture)),
                                                                              fold(self.vi(picture))))


class Informer(nn.Module):
    """Informer's sparse queries: those that differ most ask, all others get the mean of the values."""
    def forward(self, q, k, v):
        b, h, m, e = v.shape
        sample = k[:, :, ::2]
        s = (q.unsqueeze(-2) @ sample.unsqueeze(2).transpose(-2, -1)).squeeze(-2)
        top = (s.max(-1)[0] - s.sum(-1) / m).topk(3, sorted=False)[1]
        at = (torch.arange(b)[:, None, None], torch.arange(h)[None, :, None], top)
        p = soft(torch.matmul(q[at[0], at[1], at[2], :], k.transpose(-2, -1)) * D ** -0.5)
        o = v.mean(dim=-2).unsqueeze(-2).expand(b, h, q.shape[2], e).clone()
        o[at[0], at[1], at[2], :] = torch.matmul(p, v)
        return o


class Gated(nn.Module):
    """Qwen3-Next's: half of the queries' projection is a gate of the result."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = nn.Linear(E, 2 * E, False), nn.Linear(E, 16, False), nn.Linear(E, 16,
            False), nn.Linear(E, E, False)
        self.a, self.b = nn.RMSNorm(D), nn.RMSNorm(D)

    def forward(self, x, mask):
        b, n, _ = x.shape
        q, gate = torch.chunk(self.q(x).view(b, n, -1, D * 2), 2, dim=-1)
        q, k, v = self.a(q).transpose(1, 2), self.b(self.k(x).view(b, n, -1, D)).transpose(1, 2), self.v(x).view(b, n,
            -1, D).transpose(1, 2)
        k, v = (t[:, :, None].expand(b, 2, 2, n, D).reshape(b, H, n, D) for t in (k, v))
        p = F.softmax(q @ k.transpose(2, 3) * D ** -0.5 + mask, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.out((p @ v).transpose(1, 2).reshape(b, n, -1).contiguous() * torch.sigmoid(gate.reshape(b, n, -1)))


def gathered(q, k, v):
    """Neighbours by an index (N, 3), those outside hidden."""
    n = q.shape[2]
    at = torch.arange(n)[:, None] + torch.arange(-1, 2)
    ok = (at >= 0) & (at < n)
    at = at.clamp(0, n - 1)
    s = (q.unsqueeze(3) @ k[:, :, at].transpose(-1, -2)) * 0.35
    return (soft(s.masked_fill(~ok[:, None], -INF)) @ v[:, :, at]).squeeze(3)


def unfolded(q, k, v):
    """A sliding window by padding and unfold."""
    k, v = (F.pad(t, (0, 0, 2, 0)).unfold(-2, 3, 1).transpose(-2, -1) for t in (k, v))
    i = torch.arange(q.shape[2])[:, None] + torch.arange(-2, 1)
    s = (q[..., None, :] @ k.transpose(-2, -1)).squeeze(-2) * 0.35 + torch.where(i < 0, -INF, 0.0)
    return (soft(s)[..., None, :] @ v).squeeze(-2)


S("tft_interpretable", Tft, **X, drop=drop("bnn"), count=4)
S("saint_between_samples", Saint, x=add("b5c"), dynamic="b", ranges=dict(b=(2, 63)), sizes=SIZES)
S("gau", Gau, **X)
other("gau_square", GauSquare, **X)
S("cswin_stripes", CSwin, x=add("buc"), dynamic="b")
S("evit", Evit, x=add("b9c"), dynamic="b")
S("ip_adapter", Adapter, **X, picture=add("b3c"), count=2)
S("informer_sparse", Informer, q=add("bh8d", 1.2), dynamic="bm", ranges=dict(m=(3, 63)), sizes=SIZES)
S("qwen3_next_gated", Gated, **X, mask=add("b1nn"))
S("neighbours_gathered", gathered, **SELF, auto=True, sizes=SIZES)
S("window_by_unfold", unfolded, **SELF, auto=True, sizes=SIZES)
FIXED.update(u=24)
S("sdpa_math", lambda q, k, v: torch.ops.aten._scaled_dot_product_attention_math(q, k, v)[0])
other("gcnet", lambda self, x: x + self.o(torch.matmul(x.flatten(2).unsqueeze(1), self.m(x).flatten(2).softmax(
    2).unsqueeze(-1)).view(x.shape[0], 32, 1, 1)), x=add("bcnm"), ranges=dict(n=(2, 40), m=(2, 40)),
      sizes=[dict(b=3, n=5, m=7), dict(b=2, n=9, m=6)], parts=dict(m=lambda: nn.Conv2d(32, 1, 1),
                                                                   o=lambda: nn.Conv2d(32, 32, 1)))
other("double_attention", lambda self, x: self.o((lambda a, b, c: torch.bmm(torch.bmm(a, b.softmax(-1).mT),
    c.softmax(1)))(*(f(x.mT) for f in (self.a, self.b, self.c)))), **X, parts=dict(a=lambda: nn.Conv1d(32, 32, 1),
        b=lambda: nn.Conv1d(32, 16, 1), c=lambda: nn.Conv1d(32, 16, 1), o=lambda: nn.Conv1d(32, 32, 1)),
      note="A2-Nets gather and distribute")
other("hydra", lambda q, k, v: F.normalize(q, dim=-1) * (F.normalize(k, dim=-1) * v).sum(2, keepdim=True),
    v=add("bhmd"))
trap("expectation_maximisation", lambda self,
    x: (lambda z: (lambda mu: mu @ z.mT)(F.normalize(x.mT @ (z / (1e-6 + z.sum(
    1, keepdim=True))), dim=1)))(soft(x @ self.mu)), **X, parts=dict(mu=lambda: nn.Parameter(rows(32, 8) * 0.3)))
trap("talking_heads_conv_scores", lambda self, q, k, v: soft(self.l(scores(q, k))) @ v, parts=dict(l=lambda: nn.Conv2d(
    4, 4, 1)), note="EfficientFormer's")
