"""The softmax itself: who calls it, in which precision, and decomposed; dropout; normalisation after the product;
results used twice."""
from spell import *


def scores(q, k):
    return q @ k.mT * 0.4


# ------------------------------------------------------------------ the call
S("softmax_functional", lambda q, k, v: F.softmax(scores(q, k), dim=-1) @ v)
S("softmax_torch", lambda q, k, v: torch.softmax(scores(q, k), dim=-1) @ v)
S("softmax_method", lambda q, k, v: scores(q, k).softmax(-1) @ v)
S("softmax_module", lambda self, q, k, v: self.softmax(scores(q, k)) @ v,
  parts=dict(softmax=lambda: nn.Softmax(dim=-1)))
S("softmax_dim_3", lambda q, k, v: scores(q, k).softmax(3) @ v)
S("softmax_special", lambda q, k, v: torch.special.softmax(scores(q, k), -1) @ v)
S("softmax_core", lambda q, k, v: torch.ops.aten._softmax(scores(q, k), -1, False) @ v)
S("softmax_safe", lambda q, k, v: torch.ops.aten._safe_softmax(scores(q, k), -1) @ v)
S("softmin_of_negated", lambda q, k, v: F.softmin(-scores(q, k), -1) @ v)
S("softmax_exp_log_softmax", lambda q, k, v: F.log_softmax(scores(q, k), -1).exp() @ v)

# ------------------------------------------------------------------ precision
for _dt, _n in ((torch.float16, "f16"), (torch.bfloat16, "bf16")):
    S(f"f32_dtype_{_n}", lambda q, k, v: F.softmax(scores(q, k), dim=-1, dtype=torch.float32).to(q.dtype) @ v,
      dtype=_dt)
    S(f"f32_float_{_n}", lambda q, k, v: scores(q, k).float().softmax(-1).to(v.dtype) @ v, dtype=_dt)
    S(f"f32_type_as_{_n}", lambda q, k, v: (lambda s: F.softmax(s.float(), dim=-1).type_as(s) @ v)(scores(q, k)),
      dtype=_dt)
    S(f"f32_before_scale_{_n}", lambda q, k, v: soft((q @ k.mT).float() * 0.4).to(q.dtype) @ v, dtype=_dt)
    S(f"f32_mask_{_n}", lambda q, k, v, mask: soft((scores(q, k) + mask).float()).to(q.dtype) @ v, dtype=_dt)
    S(f"f32_mask_in_f32_{_n}", lambda q, k, v, drop: soft(scores(q, k).float().masked_fill(drop, MIN)).to(q.dtype)
      @ v, dtype=_dt)
    S(f"f32_clamped_{_n}",
      lambda q, k, v, mask: (lambda s: soft(torch.max(s, torch.tensor(torch.finfo(s.dtype).min)).float()).to(q.dtype)
                             @ v)(scores(q, k) + mask), dtype=_dt, note="OPT's maximum with finfo.min")
    S(f"f32_operands_{_n}", lambda q, k, v: soft(scores(q.float(), k.float())).to(v.dtype) @ v, dtype=_dt)
    S(f"f32_whole_{_n}", lambda q, k, v: (soft(scores(q.float(), k.float())) @ v.float()).to(q.dtype), dtype=_dt)
    S(f"f32_weights_by_f32_v_{_n}", lambda q, k, v: (soft(scores(q, k).float()) @ v.float()).to(q.dtype), dtype=_dt)
S("f32_no_op", lambda q, k, v: F.softmax(scores(q, k), dim=-1, dtype=torch.float32).to(q.dtype) @ v)
S("f32_no_op_float", lambda q, k, v: scores(q, k).float().softmax(-1).type_as(v) @ v)
S("f64_upcast", lambda q, k, v: scores(q, k).double().softmax(-1).float() @ v)
S("f64_dtype", lambda q, k, v: F.softmax(scores(q, k), -1, dtype=torch.float64).to(v.dtype) @ v)

# ------------------------------------------------------------------ decomposed


def by_hand(name, weights, **options):
    """weights(s): probabilities out of scores."""
    S("hand_" + name, lambda q, k, v: weights(scores(q, k)) @ v, **options)


by_hand("amax", lambda s: (lambda e: e / e.sum(-1, keepdim=True))((s - s.amax(-1, keepdim=True)).exp()))
by_hand("max_values",
        lambda s: (lambda e: e / e.sum(dim=-1, keepdim=True))(torch.exp(s - s.max(dim=-1, keepdim=True).values)))
by_hand("max_tuple",
        lambda s: (lambda e: torch.div(e, torch.sum(e, -1, True)))(torch.exp(s - torch.max(s, -1, keepdim=True)[0])))
by_hand("max_unsqueezed", lambda s: (lambda e: e / e.sum(-1).unsqueeze(-1))(torch.exp(s - s.amax(-1)[..., None])))
by_hand("max_detached",
        lambda s: (lambda e: e / e.sum(-1, keepdim=True))((s - s.detach().amax(-1, keepdim=True)).exp()))
by_hand("max_global", lambda s: (lambda e: e / e.sum(-1, keepdim=True))((s - s.max()).exp()),
        note="one number for all: softmax does not see it")
by_hand("no_max", lambda s: s.exp() / s.exp().sum(-1, keepdim=True))
by_hand("no_max_once", lambda s: (lambda e: e / e.sum(-1, keepdim=True))(torch.exp(s)))
by_hand("no_max_sum_dim_3", lambda s: (lambda e: e / e.sum(3, True))(s.exp()))
by_hand("reciprocal",
        lambda s: (lambda e: e * e.sum(-1, keepdim=True).reciprocal())((s - s.amax(-1, keepdim=True)).exp()))
by_hand("pow_minus_one", lambda s: (lambda e: e * e.sum(-1, keepdim=True) ** -1)(s.exp()))
by_hand("one_over", lambda s: (lambda e: e * (1 / e.sum(-1, keepdim=True)))(s.exp()))
by_hand("sum_ones", lambda s: (lambda e: e / (e @ torch.ones(s.shape[-1], 1)))(s.exp()),
        note="the sum as a product with ones")
by_hand("sum_einsum", lambda s: (lambda e: e / torch.einsum("bhnm->bhn", e)[..., None])(s.exp()))
by_hand("logsumexp", lambda s: (s - torch.logsumexp(s, -1, keepdim=True)).exp())
by_hand("logsumexp_unsqueezed", lambda s: torch.exp(s - s.logsumexp(-1).unsqueeze(-1)))
by_hand("log_sum_exp", lambda s: (s - s.exp().sum(-1, keepdim=True).log()).exp())
by_hand("exp2", lambda s: (lambda e: e / e.sum(-1, keepdim=True))(torch.exp2(s * math.log2(math.e))),
        note="flash attention's base")
by_hand("exp2_max", lambda s: (lambda e: e / e.sum(-1, keepdim=True))(torch.exp2((s - s.amax(-1, keepdim=True))
    * 1.4426950408889634)))
by_hand("pow_e", lambda s: (lambda e: e / e.sum(-1, keepdim=True))(math.e ** s))
by_hand("shifted", lambda s: soft(s - s.amax(-1, keepdim=True)), note="max taken off, and softmax anyway")
by_hand("shifted_mean", lambda s: soft(s - s.mean(-1, keepdim=True)))
by_hand("in_place", lambda s: (lambda e: e.div_(e.sum(-1, keepdim=True)))(s.sub_(s.amax(-1, keepdim=True)).exp_()))
by_hand("masked", lambda s: (lambda i: (lambda e: e / e.sum(-1, keepdim=True))(s.masked_fill(i[None] > i[:, None],
    -INF).exp()))(torch.arange(s.shape[2])), k=add("bhnd", 1.2), v=add("bhne"))
by_hand("masked_after_exp",
        lambda s: (lambda i: (lambda e: e / e.sum(-1, keepdim=True))(s.exp() * (i[None] <= i[:,
            None])))(torch.arange(s.shape[2])), k=add("bhnd", 1.2), v=add("bhne"),
        note="exp(s) * mask, renormalised: a mask")
S("hand_masked_input", lambda q, k, v, keep: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(scores(q, k).exp() * keep))
S("hand_masked_fill_exp",
  lambda q, k, v, drop: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(scores(q, k).exp().masked_fill(drop, 0.0)))
S("hand_max_of_masked",
  lambda q, k, v, mask: (lambda s: (lambda e: (e / e.sum(-1, keepdim=True))
                                    @ v)((s - s.amax(-1, keepdim=True)).exp()))(scores(q, k) + mask))
S("hand_renormalised", lambda q, k, v, keep: (lambda p: (p / p.sum(-1, keepdim=True)) @ v)(soft(scores(q, k)) * keep),
  note="softmax, masked, renormalised: a masked softmax")
S("hand_f32",
  lambda q, k, v: (lambda s: (lambda e: (e / e.sum(-1, keepdim=True)).to(q.dtype) @ v)((s - s.amax(-1,
      keepdim=True)).exp()))(scores(q, k).float()), dtype=torch.bfloat16)

# normalisation after the product
S("late_division", lambda q, k, v: (lambda e: (e @ v) / e.sum(-1, keepdim=True))(scores(q, k).exp()))
S("late_division_max",
  lambda q, k, v: (lambda s: (lambda e: (e @ v) / e.sum(-1, keepdim=True))((s - s.amax(-1,
      keepdim=True)).exp()))(scores(q, k)))
S("late_reciprocal", lambda q, k, v: (lambda e: (e @ v) * e.sum(-1, keepdim=True).reciprocal())(scores(q, k).exp()))
S("late_sum_by_product", lambda q, k, v: (lambda e: (e @ v) / (e @ torch.ones(v.shape[2], 1)))(scores(q, k).exp()))
S("late_ones_column", lambda q, k, v: (lambda o: o[..., :-1] / o[..., -1:])(scores(q,
    k).exp() @ torch.cat([v, torch.ones_like(v[..., :1])], -1)), note="numerator and denominator in one product")
S("late_einsum",
  lambda q, k, v: (lambda e: torch.einsum("bhnm,bhme->bhne", e, v) / e.sum(-1)[..., None])(scores(q, k).exp()))
S("late_masked",
  lambda q, k, v, keep: (lambda e: (e @ v) / e.sum(-1, keepdim=True))(scores(q, k).masked_fill(~keep, -INF).exp()))

# ------------------------------------------------------------------ dropout that does nothing
S("dropout_zero", lambda q, k, v: F.dropout(soft(scores(q, k)), 0.0) @ v)
S("dropout_eval", lambda q, k, v: F.dropout(soft(scores(q, k)), 0.1, training=False) @ v)
S("dropout_module", lambda self, q, k, v: self.drop(soft(scores(q, k))) @ v, parts=dict(drop=lambda: nn.Dropout(0.1)))
S("dropout_self_training", lambda self, q, k, v: F.dropout(soft(scores(q, k)), p=0.3, training=self.training) @ v)
S("dropout_torch", lambda q, k, v: torch.dropout(soft(scores(q, k)), 0.2, False) @ v)
S("dropout_scores", lambda self, q, k, v: soft(self.drop(scores(q, k))) @ v, parts=dict(drop=lambda: nn.Dropout(0.1)))
S("dropout_twice", lambda self, q, k, v: self.drop(self.drop(soft(scores(q, k))) @ v),
  parts=dict(drop=lambda: nn.Dropout(0.1)))
S("dropout_alpha", lambda self, q, k, v: self.drop(soft(scores(q, k))) @ v,
  parts=dict(drop=lambda: nn.AlphaDropout(0.1)))
S("noise_identity", lambda self, q, k, v: self.drop(soft(scores(q, k))) @ v, parts=dict(drop=nn.Identity))
S("clone_contiguous", lambda q, k, v: soft(scores(q, k).contiguous()).clone().contiguous() @ v.contiguous())
S("detached", lambda q, k, v: soft(scores(q, k)).detach() @ v)

# ------------------------------------------------------------------ results that others use, too
S("weights_returned", lambda q, k, v: (lambda p: (p @ v, p))(soft(scores(q, k))))
S("weights_returned_mean", lambda q, k, v: (lambda p: (p @ v, p.mean(1)))(soft(scores(q, k))))
S("weights_returned_sum", lambda q, k, v: (lambda p: (p @ v, p.sum(1) / 4))(soft(scores(q, k))))
S("weights_returned_masked", lambda q, k, v, mask: (lambda p: (p @ v, p))(soft(scores(q, k) + mask)))
S("weights_returned_first_row", lambda q, k, v: (lambda p: (p @ v, p[:, :, 0]))(soft(scores(q, k))),
  note="DINO's attention of the class token")
S("weights_returned_argmax", lambda q, k, v: (lambda p: (p @ v, p.argmax(-1)))(soft(scores(q, k))))
S("weights_returned_column_sums", lambda q, k, v: (lambda p: (p @ v, p.sum(-2)))(soft(scores(q, k))),
  note="key importance")
S("weights_returned_before_dropout", lambda self, q, k, v: (lambda p: (self.drop(p) @ v, p))(soft(scores(q, k))),
  parts=dict(drop=lambda: nn.Dropout(0.1)))
S("weights_returned_after_dropout", lambda self, q, k, v: (lambda p: (p @ v, p))(self.drop(soft(scores(q, k)))),
  parts=dict(drop=lambda: nn.Dropout(0.1)))
S("weights_for_two_values", lambda q, k, v, w: (lambda p: (p @ v, p @ w))(soft(scores(q, k))), w=add("bhmd"), count=2,
  note="one softmax, two attentions")
S("scores_returned", lambda q, k, v: (lambda s: (soft(s) @ v, s))(scores(q, k)))
S("scores_returned_raw", lambda q, k, v: (lambda s: (soft(s * 0.4) @ v, s))(q @ k.mT))
S("scores_and_weights_returned", lambda q, k, v: (lambda s: (lambda p: (p @ v, s, p))(soft(s)))(scores(q, k)))
S("scores_for_next_layer", lambda q, k, v, mask: (lambda s: (soft(s) @ v, s))(scores(q, k) + mask), mask=add("bhnm"),
  note="RealFormer's residual scores")
S("keys_values_returned", lambda x, k, v: (lambda k, v: (soft(scores(x, k)) @ v, k, v))(k.transpose(1, 2),
    v.transpose(1, 2)), x=add("bhnd", 1.2), k=add("bmhd", 1.2), v=add("bmhe"))
S("output_used_twice", lambda q, k, v: (lambda o: (o, o.relu(), o.sum(-1)))(soft(scores(q, k)) @ v))
