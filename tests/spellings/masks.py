"""What is added to, filled into or cut out of the scores before the softmax:
additive and bool masks, padding, causality, windows, two at once."""
from spell import *

SELF = dict(k=add("bhnd", 1.2), v=add("bhne"))      # queries and keys of one length


def scores(q, k):
    return q @ k.transpose(-2, -1) * 0.4


def masked(name, make, **options):
    """make(s, ...): the masked scores from the scaled ones and the inputs after q, k, v."""
    names = [n for n, p in inspect.signature(make).parameters.items() if p.default is p.empty][1:]
    scope = dict(make=make, scores=scores, soft=soft)
    args = ", ".join(["q", "k", "v"] + names)
    exec(f"def f({args}):\n    return soft(make({', '.join(['scores(q, k)'] + names)})) @ v\n", scope)
    S(name, scope["f"], **options)


# ------------------------------------------------------------------ additive
for _l in ("b1nm", "bhnm", "11nm", "1hnm", "b11m", "nm", "hnm", "1nm", "m", "1m", "111m", "bh1m", "b1n1"):
    masked("add_" + _l, lambda s, mask: s + mask, mask=add(_l))
masked("add_after_nan_to_num", lambda s, mask: s.nan_to_num() + mask)  # unilm's differential attention
masked("add_commuted", lambda s, mask: mask + s)
masked("add_torch", lambda s, mask: torch.add(s, mask))
masked("add_in_place", lambda s, mask: s.add_(mask))
masked("add_augmented", lambda s, mask: s.__iadd__(mask))
masked("add_alpha", lambda s, mask: torch.add(s, mask, alpha=0.5))
masked("add_negated", lambda s, mask: s - mask)
masked("add_scaled", lambda s, mask: s + 0.7 * mask)
masked("add_unsqueezed", lambda s, mask: s + mask[:, None], mask=add("bnm"))
masked("add_unsqueezed_2d", lambda s, mask: s + mask.unsqueeze(0).unsqueeze(0), mask=add("nm"))
masked("add_expanded", lambda s, mask: s + mask[:, None].expand(s.shape), mask=add("bnm"))
masked("add_f16_into_f32", lambda s, mask: s + mask.half(), tol=1e-5)
masked("add_cast", lambda s, mask: s + mask.to(s.dtype),
       mask=In("b1nm", lambda g, s: torch.randn(s, generator=g, dtype=torch.float64)))
masked("add_transposed", lambda s, mask: s + mask.transpose(-1, -2), mask=add("b1mn"))
masked("add_sliced", lambda s, mask: s + mask[:, :, :, : s.shape[-1]], mask=add("b1nm"))
masked("add_parameter_free_bias", lambda s, mask: s + mask, mask=add("1hnm", 3.0))
masked("add_dropped_zeros", lambda s: s + torch.zeros(s.shape[-2], s.shape[-1]), note="a mask of zeros masks nothing")
masked("add_number", lambda s: s + 1.25, note="adding one number to every score changes nothing")
masked("add_row_constant", lambda s, mask: s + mask, mask=add("bhn1"),
       note="constant along the keys: changes nothing, and may stay a mask")

# ------------------------------------------------------------------ bool: filled in
for _n, _fill in (("inf", -INF), ("min", MIN), ("1e9", -1e9), ("1e30", -1e30), ("1e4", -1e4)):
    masked(f"fill_{_n}", lambda s, drop, c=_fill: s.masked_fill(drop, c))
    masked(f"fill_not_{_n}", lambda s, keep, c=_fill: s.masked_fill(~keep, c))
masked("fill_finfo", lambda s, drop: s.masked_fill(drop, torch.finfo(s.dtype).min))
masked("fill_finfo_max", lambda s, drop: s.masked_fill(drop, -torch.finfo(s.dtype).max))
masked("fill_finfo_half", lambda s, drop: s.masked_fill(drop, torch.finfo(torch.float16).min))
masked("fill_finfo_over_2", lambda s, drop: s.masked_fill(drop, torch.finfo(s.dtype).min / 2))
masked("fill_in_place", lambda s, drop: s.masked_fill_(drop, -INF))
masked("fill_torch", lambda s, drop: torch.masked_fill(s, drop, -INF))
masked("fill_tensor", lambda s, drop: s.masked_fill(drop, torch.tensor(-INF)))
masked("fill_tensor_full", lambda s, drop: s.masked_fill(drop, torch.full((), -INF, dtype=s.dtype)))
masked("fill_logical_not", lambda s, keep: s.masked_fill(keep.logical_not(), -INF))
masked("fill_bitwise_not", lambda s, keep: s.masked_fill(torch.bitwise_not(keep), -1e9))
masked("fill_eq_false", lambda s, keep: s.masked_fill(keep == False, -INF))  # noqa: E712  as people write it
masked("fill_eq_zero", lambda s, keep: s.masked_fill(keep == 0, -1e9), keep=keep("bhnm"))
masked("fill_int_eq_zero", lambda s, keep: s.masked_fill(keep.long() == 0, -1e9))
masked("fill_int_eq_one", lambda s, drop: s.masked_fill(drop.int() == 1, -1e9))
masked("fill_int_ne_one", lambda s, keep: s.masked_fill(keep.int() != 1, -INF))
masked("fill_to_bool", lambda s, drop: s.masked_fill(drop.float().to(torch.bool), -INF))
masked("fill_float_lt", lambda s, keep: s.masked_fill(keep.float() < 0.5, -INF))
masked("fill_inverted_int", lambda s, keep: s.masked_fill((1 - keep.long()).bool(), -INF))
masked("fill_index", lambda s, drop: (lambda t: (t.__setitem__(drop.expand_as(t), -INF), t)[1])(s.clone()),
       note="s[drop] = -inf")
for _l in ("bhnm", "11nm", "1hnm", "b11m", "nm", "hnm", "m", "bh1m"):
    masked(f"fill_shape_{_l}", lambda s, drop: s.masked_fill(drop, -INF), drop=drop(_l))
masked("fill_unsqueeze", lambda s, drop: s.masked_fill(drop.unsqueeze(1), -INF), drop=drop("bnm"))
masked("fill_repeat_heads", lambda s, drop: s.masked_fill(drop.unsqueeze(1).repeat(1, 4, 1, 1), -1e9), drop=drop("bnm"))
masked("fill_expand_as", lambda s, drop: s.masked_fill(drop[:, None].expand_as(s), -INF), drop=drop("bnm"))

# ------------------------------------------------------------------ bool: chosen by where
masked("where_inf", lambda s, keep: torch.where(keep, s, -INF))
masked("where_min", lambda s, keep: torch.where(keep, s, MIN))
masked("where_1e9", lambda s, keep: torch.where(keep, s, -1e9))
masked("where_other_order", lambda s, drop: torch.where(drop, -INF, s))
masked("where_other_order_min", lambda s, drop: torch.where(drop, MIN, s))
masked("where_not", lambda s, drop: torch.where(~drop, s, -1e9))
masked("where_not_other_order", lambda s, keep: torch.where(~keep, -1e9, s))
masked("where_tensor", lambda s, keep: torch.where(keep, s, torch.tensor(-INF)))
masked("where_tensor_typed", lambda s, keep: torch.where(keep, s.to(s.dtype),
                                                         torch.full([], torch.finfo(s.dtype).min, dtype=s.dtype)))
masked("where_full_like", lambda s, keep: torch.where(keep, s, torch.full_like(s, -INF)))
masked("where_ones_like", lambda s, keep: torch.where(keep, s, -1e9 * torch.ones_like(s)))
masked("where_zeros_like", lambda s, keep: torch.where(keep.expand_as(s) == 0, torch.full_like(s, -1e30), s))
masked("where_method", lambda s, keep: s.where(keep, torch.tensor(-INF)))
masked("where_int", lambda s, keep: torch.where(keep.long() > 0, s, -INF))
masked("where_buffer_fill", lambda s, keep: torch.where(keep, s, s.new_tensor(-1e4)))

# ------------------------------------------------------------------ additive made from bool
masked("one_minus_1e4", lambda s, keep: s + (1.0 - keep.float()) * -1e4)
masked("one_minus_1e9", lambda s, keep: s + (1.0 - keep.float()) * -1e9)
masked("one_minus_min", lambda s, keep: s + (1.0 - keep.to(s.dtype)) * torch.finfo(s.dtype).min)
masked("one_minus_int", lambda s, keep: s + (1 - keep.long()) * -10000)
masked("one_minus_int_float", lambda s, keep: s + (1 - keep.long()) * -10000.0)
masked("minus_1e9", lambda s, keep: s - 1e9 * (1.0 - keep.float()))
masked("minus_1e12_drop", lambda s, drop: s - drop.float() * 1e12)
masked("keep_minus_one", lambda s, keep: s + (keep.float() - 1) * 1e9)
masked("drop_times_min", lambda s, drop: s + drop * MIN)
masked("drop_times_1e4", lambda s, drop: s + drop.to(s.dtype) * -1e4)
masked("additive_zeros_fill", lambda s, drop: s + torch.zeros_like(drop, dtype=s.dtype).masked_fill_(drop, -INF),
       note="nn.MultiheadAttention's")
masked("additive_float_fill", lambda s, drop: s + drop.float().masked_fill(drop, -INF))
masked("additive_fill_twice", lambda s, keep: s + keep.float().masked_fill(keep == 0, -INF).masked_fill(keep == 1,
    0.0), note="generate_square_subsequent_mask's")
masked("additive_where", lambda s, keep: s + torch.where(keep, 0.0, -INF))
masked("additive_where_min", lambda s, keep: s + torch.where(keep, torch.tensor(0.0), torch.tensor(MIN)))
masked("additive_where_other_order", lambda s, drop: s + torch.where(drop, -1e9, 0.0))
masked("additive_log", lambda s, keep: s + keep.float().log(), note="log 0 is -inf")
masked("additive_inverted_fill", lambda s, keep: (lambda i: s + i.masked_fill(i.bool(), MIN))(1.0 - keep.float()),
       note="transformers' _expand_mask")
masked("additive_clamped", lambda s, keep: s + ((1 - keep.float()) * -INF).nan_to_num(0.0, neginf=-1e30))
masked("mul_and_minus", lambda s, keep: s * keep.float() - 1e10 * (1 - keep.float()),
       note="GPT-2's first: w * b - 1e10 * (1 - b)")
masked("mul_and_minus_1e4", lambda s, keep: s * keep.float() + -1e4 * (1 - keep.float()))

# ------------------------------------------------------------------ before the scale, and two at once
S("add_then_mul", lambda q, k, v, mask: soft((q @ k.mT + mask) * 0.4) @ v)
S("add_then_div", lambda q, k, v, mask: soft((q @ k.mT + mask) / 2.5) @ v)
S("add_then_div_commuted", lambda q, k, v, mask: soft((mask + q @ k.mT).div(2.5)) @ v)
S("add_between_scales", lambda q, k, v, mask: soft((q @ k.mT * 0.8 + mask) * 0.5) @ v)
S("fill_then_mul", lambda q, k, v, drop: soft((q @ k.mT).masked_fill(drop, -INF) * 0.4) @ v)
S("fill_then_div", lambda q, k, v, drop: soft((q @ k.mT).masked_fill(drop, -1e9) / 2.5) @ v)
S("fill_min_then_div", lambda q, k, v, drop: soft((q @ k.mT).masked_fill(drop, MIN) / 2.5) @ v)
S("where_then_mul", lambda q, k, v, keep: soft(torch.where(keep, q @ k.mT, -1e9) * 0.4) @ v)
S("add_and_scale_q", lambda q, k, v, mask: soft((q * 0.4) @ k.mT + mask) @ v)
S("fill_and_scale_q", lambda q, k, v, drop: soft(((q / 2.5) @ k.mT).masked_fill(drop, -INF)) @ v)
S("fill_unscaled", lambda q, k, v, drop: soft((q @ k.mT).masked_fill(drop, -INF)) @ v, q=add("bhnd", 0.5))
S("add_unscaled", lambda q, k, v, mask: soft(q @ k.mT + mask) @ v, q=add("bhnd", 0.5))
masked("two_adds", lambda s, mask, bias: s + mask + bias, bias=add("1hnm"))
masked("two_adds_first", lambda s, mask, bias: s + (mask + bias), bias=add("1hnm"))
masked("two_adds_around", lambda s, mask, bias: mask + (s + bias), bias=add("hnm"))
masked("three_adds", lambda s, mask, bias, third: s + mask + bias + third, bias=add("1hnm"), third=add("b11m"))
masked("fill_and_add", lambda s, drop, bias: s.masked_fill(drop, -INF) + bias, bias=add("1hnm"))
masked("add_and_fill", lambda s, drop, bias: (s + bias).masked_fill(drop, -INF), bias=add("1hnm"))
masked("add_and_fill_1e9", lambda s, drop, bias: (s + bias).masked_fill(drop, -1e9), bias=add("1hnm"))
masked("where_and_add", lambda s, keep, bias: torch.where(keep, s, MIN) + bias, bias=add("b1nm"),
       note="GPT-2's two masks")
masked("add_and_where", lambda s, keep, bias: torch.where(keep, s + bias, -INF), bias=add("b1nm"))
masked("fill_twice", lambda s, drop, pad: s.masked_fill(drop, -INF).masked_fill(~pad[:, None, None], -INF),
       drop=In("1hnm", lambda g, s: (torch.rand(s, generator=g) < 0.4).index_fill(-1, torch.tensor([0]), False)))
masked("fill_twice_kinds", lambda s, drop, more: s.masked_fill(drop, -INF).masked_fill(more, -1e9),
       drop=In("1hnm", lambda g, s: (torch.rand(s, generator=g) < 0.3).index_fill(-1, torch.tensor([0]), False)),
       more=In("b11m", lambda g, s: (torch.rand(s, generator=g) < 0.3).index_fill(-1, torch.tensor([0]), False)))
_first = dict(keep=In("b1nm", lambda g, s: (torch.rand(s, generator=g) < 0.6).index_fill(-1, torch.tensor([0]), True)))
masked("bool_and", lambda s, keep, pad: s.masked_fill(~(keep & pad[:, None, None]), -INF), **_first)
masked("bool_or_drops", lambda s, keep, pad: s.masked_fill(~keep | ~pad[:, None, None], -INF), **_first)
masked("bool_logical_and", lambda s, keep, pad: torch.where(torch.logical_and(keep, pad[:, None, None]), s, -1e9),
       **_first)
masked("bool_product", lambda s, keep, pad: s.masked_fill(keep * pad[:, None, None] == 0, -1e9), **_first)
masked("float_product", lambda s, keep, pad: s + (1 - keep.float() * pad[:, None, None].float()) * -1e9, **_first)
masked("bool_sum", lambda s, drop, pad: s.masked_fill((drop.long() + (~pad[:, None, None]).long()) > 0, -INF),
       drop=In("b1nm", lambda g, s: (torch.rand(s, generator=g) < 0.4).index_fill(-1, torch.tensor([0]), False)))
masked("additive_minimum", lambda s, keep, mask: s + torch.minimum(mask, torch.where(keep, 1e4, -INF)),
       note="a mask made of two")

# ------------------------------------------------------------------ two-dimensional key padding
masked("padding_bool", lambda s, pad: s.masked_fill(~pad[:, None, None, :], -INF))
masked("padding_unsqueezed", lambda s, pad: s.masked_fill(pad.unsqueeze(1).unsqueeze(2) == 0, -INF))
masked("padding_view", lambda s, pad: s.masked_fill((pad == 0).view(s.shape[0], 1, 1, s.shape[-1]), -INF))
masked("padding_view_expand", lambda s, pad: s.masked_fill((pad == 0).view(s.shape[0], 1, 1, -1).expand_as(s), MIN),
       note="DistilBERT's")
masked("padding_int", lambda s, pad: s.masked_fill(pad[:, None, None] == 0, -1e9), pad=padding(torch.int64))
masked("padding_int_bool", lambda s, pad: s.masked_fill(~pad.bool()[:, None, None], -INF), pad=padding(torch.int32))
masked("padding_float", lambda s, pad: s + (1.0 - pad[:, None, None, :]) * -1e9, pad=padding(torch.float32))
masked("padding_int_min", lambda s, pad: s + (1.0 - pad[:, None, None, :].to(torch.float32))
       * torch.finfo(torch.float32).min, pad=padding(torch.int64), note="transformers' extended mask")
masked("padding_int_1e4", lambda s, pad: s + (1.0 - pad.unsqueeze(1).unsqueeze(2)) * -10000.0,
       pad=padding(torch.int64), note="BERT's first")
masked("padding_where", lambda s, pad: torch.where(pad[:, None, None], s, -INF))
masked("padding_where_expanded", lambda s, pad: torch.where(pad[:, None, None].expand(-1, -1, s.shape[2], -1), s, MIN))
masked("padding_additive", lambda s, pad: s + torch.zeros(pad.shape).masked_fill(~pad, -INF)[:, None, None])
masked("padding_expanded_4d", lambda s, pad: (lambda e: s + (1.0 - e).masked_fill((1.0 - e).bool(), MIN))(pad[:, None,
    None, :].expand(-1, 1, s.shape[2], -1).float()), note="_expand_mask")
masked("padding_left", lambda s, pad: s.masked_fill(~pad[:, None, None], MIN), pad=padding(left=True))
masked("padding_heads_repeated", lambda s, pad: s.masked_fill(~pad[:, None, None].repeat(1, 4, s.shape[2], 1), -INF))
masked("padding_lengths", lambda s, lengths: s.masked_fill(torch.arange(s.shape[-1])[None, None, None] >= lengths[:,
    None, None, None], -INF), lengths=integer("b", 4, 1),
       sizes=[dict(b=3, n=5, m=7), dict(b=2, n=9, m=13), dict(b=5, n=11, m=4)])
masked("padding_lengths_lt", lambda s, lengths: s + torch.where(torch.arange(s.shape[-1]) < lengths.view(-1, 1, 1, 1),
                                                                0.0, -1e9), lengths=integer("b", 4, 1),
       sizes=[dict(b=3, n=5, m=7), dict(b=2, n=9, m=13), dict(b=5, n=11, m=4)])
masked("padding_from_ids", lambda s, ids: s.masked_fill((ids == 0)[:, None, None], -INF),
       ids=In("bm", lambda g, s: torch.randint(0, 3, s, generator=g).index_fill(1, torch.tensor([0]), 2)))
masked("padding_pairs", lambda s, keep: s.masked_fill((keep[:, None, :, None] != keep[:, None, None, :]), -INF),
       note="documents in one row: ids that differ", keep=integer("bn", 3), **SELF)
masked("padding_reshaped_mha", lambda s, pad: (s.flatten(0, 1) + torch.zeros(pad.shape).masked_fill(~pad,
    -INF).view(s.shape[0], 1, 1, -1).expand(-1, 4, -1, -1).reshape(s.shape[0] * 4, 1, -1)).view(s.shape))

# ------------------------------------------------------------------ causal
T = torch


def causal(name, make, **options):
    """make(s, n): the scores with the future cut away."""
    S("causal_" + name, lambda q, k, v: soft(make(scores(q, k), q.shape[2])) @ v, **{**SELF, **options})


causal("tril_ones", lambda s, n: s.masked_fill(T.tril(T.ones(n, n)) == 0, -INF))
causal("tril_ones_view", lambda s, n: s.masked_fill(T.tril(T.ones(n, n)).view(1, 1, n, n) == 0, -INF))
causal("tril_ones_1e9", lambda s, n: s.masked_fill(T.ones(n, n).tril().logical_not(), -1e9))
causal("tril_bool", lambda s, n: s.masked_fill(~T.ones(n, n, dtype=torch.bool).tril(), -INF))
causal("tril_bool_where", lambda s, n: T.where(T.tril(T.ones(n, n, dtype=torch.bool)), s, MIN))
causal("tril_uint8", lambda s, n: T.where(T.tril(T.ones((n, n), dtype=torch.uint8)).view(1, 1, n, n).bool(), s, -1e4),
       note="GPT-2's first buffer")
causal("triu_bool", lambda s, n: s.masked_fill(T.ones(n, n, dtype=torch.bool).triu(1), -INF))
causal("triu_ones_bool", lambda s, n: s.masked_fill(T.triu(T.ones(n, n), diagonal=1).bool(), -INF))
causal("triu_ones_eq_1", lambda s, n: s.masked_fill(T.triu(T.ones(n, n), diagonal=1) == 1, -1e9))
causal("triu_in_place", lambda s, n: s.masked_fill_(T.ones(n, n, dtype=torch.bool).triu_(1), -INF))
causal("triu_inf", lambda s, n: s + T.triu(T.full((n, n), -INF), diagonal=1))
causal("triu_min", lambda s, n: s + T.triu(T.full((n, n), MIN), diagonal=1))
causal("triu_inf_ones", lambda s, n: s + T.triu(T.ones(n, n) * -INF, 1), note="inf * 1 above, 0 below")
causal("triu_transposed", lambda s, n: (lambda m: s + m.float().masked_fill(m == 0, -INF).masked_fill(m == 1,
    0.0))((T.triu(T.ones(n, n)) == 1).transpose(0, 1)), note="nn.Transformer's first")
causal("square_subsequent", lambda s, n: s + nn.Transformer.generate_square_subsequent_mask(n))
causal("additive_1e9", lambda s, n: s + (1 - T.tril(T.ones(n, n))) * -1e9)
causal("additive_commuted", lambda s, n: T.full((n, n), -1e9).triu(1) + s)
causal("mul_and_minus", lambda s, n: (lambda b: s * b - 1e10 * (1 - b))(T.ones(n, n).tril()))
causal("arange_gt", lambda s, n: s.masked_fill(T.arange(n)[None, :] > T.arange(n)[:, None], -INF))
causal("arange_lt", lambda s, n: s.masked_fill(T.arange(n)[:, None] < T.arange(n)[None, :], -INF))
causal("arange_ge_where", lambda s, n: T.where(T.arange(n)[:, None] >= T.arange(n), s, -INF))
causal("arange_le_where", lambda s, n: T.where(T.arange(n)[None] <= T.arange(n).unsqueeze(1), s, MIN))
causal("arange_view", lambda s, n: s.masked_fill(~(T.arange(n).view(1, -1) <= T.arange(n).view(-1, 1)), -INF))
causal("arange_plus_one", lambda s, n: (lambda c: s + T.full((n, n), MIN).masked_fill_(c < (c + 1).view(n, 1),
    0))(T.arange(n)), note="transformers' _make_causal_mask")
causal("arange_difference", lambda s, n: s.masked_fill(T.arange(n)[:, None] - T.arange(n)[None] < 0, -INF))
causal("arange_difference_gt", lambda s, n: T.where((T.arange(n)[None] - T.arange(n)[:, None]) > 0, -INF, s))
causal("arange_reshape", lambda s, n: s.masked_fill(T.arange(n) > T.arange(n).reshape(-1, 1), MIN))
causal("arange_additive", lambda s, n: s + T.where(T.arange(n)[:, None] >= T.arange(n)[None], 0.0, -INF))
causal("arange_4d", lambda s, n: s.masked_fill(T.arange(n).view(1, 1, 1, n) > T.arange(n).view(1, 1, n, 1), -INF))
causal("arange_float", lambda s, n: s.masked_fill(T.arange(n, dtype=torch.float32)[None] > T.arange(n,
    dtype=torch.float32)[:, None], -INF))
causal("full_times_gt", lambda s, n: s + T.triu(T.full((n, n), MIN), 1) * (T.arange(n)[None] > T.arange(n)[:, None]),
       note="transformers' prepare_4d")
causal("ones_like", lambda s, n: s.masked_fill(T.ones_like(s, dtype=torch.bool).triu(1), -INF))
causal("ones_like_tril", lambda s, n: s.masked_fill(T.ones_like(s).tril() == 0, -1e9))
causal("ones_like_first", lambda s, n: s.masked_fill(T.triu(T.ones_like(s[0, 0]), 1).bool(), -INF))
causal("zeros_fill", lambda s, n: s + T.zeros(n, n).masked_fill(T.ones(n, n, dtype=torch.bool).triu(1), -INF))
causal("cumsum",
       lambda s, n: (lambda i: s.masked_fill(i[None] > i[:, None], -INF))(T.ones(n, dtype=torch.long).cumsum(0) - 1))
causal("eye_cumsum", lambda s, n: s.masked_fill(T.eye(n).cumsum(0) == 0, -INF), note="running sum of the identity")
causal("expand_batch", lambda s, n: s.masked_fill(T.ones(n, n, dtype=torch.bool).triu(1)[None,
    None].expand(s.shape[0], 1, n, n), -INF))
causal("repeat_batch", lambda s, n: s.masked_fill(T.ones(n, n).triu(1).bool().unsqueeze(0).repeat(s.shape[0], 1,
    1).unsqueeze(1), -INF))
causal("set_item",
       lambda s, n: (lambda t: (t.__setitem__((slice(None), slice(None), T.ones(n, n, dtype=torch.bool).triu(1)),
                                              -INF), t)[1])(s.clone()))
S("causal_then_scale", lambda q, k, v: soft((q @ k.mT).masked_fill(T.ones(q.shape[2], q.shape[2],
                                                                          dtype=torch.bool).triu(1), -INF) / 2.5) @ v,
  **SELF)
S("causal_add_then_div", lambda q, k, v: soft((q @ k.mT + T.full((q.shape[2], q.shape[2]), -INF).triu(1)) / 2.5) @ v,
  **SELF)


def buffered(name, make, buffer, **options):
    S("causal_buffer_" + name, lambda self, q, k, v: soft(make(scores(q, k), self.bias, q.shape[2], k.shape[2])) @ v,
      parts=dict(bias=buffer), **{**SELF, **options})


buffered("bool", lambda s, b, n, m: T.where(b[:, :, :n, :n], s, MIN),
         lambda: torch.ones(64, 64, dtype=torch.bool).tril().view(1, 1, 64, 64))
buffered("bool_offset", lambda s, b, n, m: T.where(b[:, :, m - n : m, :m], s, MIN),
         lambda: torch.ones(64, 64, dtype=torch.bool).tril().view(1, 1, 64, 64),
         k=add("bhmd", 1.2), v=add("bhme"), sizes=WIDE, note="GPT-2's, with a past")
buffered("float", lambda s, b, n, m: s.masked_fill(b[:, :, :n, :n] == 0, -INF),
         lambda: torch.ones(64, 64).tril().view(1, 1, 64, 64), note="nanoGPT's")
buffered("float_2d", lambda s, b, n, m: s.masked_fill(b[:n, :n] == 0, -INF), lambda: torch.ones(64, 64).tril(),
         note="the lecture's")
buffered("additive", lambda s, b, n, m: s + b[:n, :n], lambda: torch.full((64, 64), -INF).triu(1),
         note="Whisper's and CLIP's")
buffered("additive_min", lambda s, b, n, m: s + b[:n, :n], lambda: torch.full((64, 64), MIN).triu(1))
buffered("uint8", lambda s, b, n, m: T.where(b[:, :, :n, :n].bool(), s, torch.tensor(-1e4)),
         lambda: torch.ones(64, 64, dtype=torch.uint8).tril().view(1, 1, 64, 64))
buffered("triu", lambda s, b, n, m: s.masked_fill_(b.bool()[:n, :n], -INF), lambda: torch.ones(64, 64).triu(1),
         note="the textbook's")
S("causal_constant_static", lambda q, k, v: soft(scores(q, k).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1),
                                                                          -INF)) @ v, q=add("bh6d", 1.2),
  k=add("bh6d", 1.2), v=add("bh6e"), dynamic="b",
  note="lengths of a constant")
S("causal_buffer_static", lambda self, q, k, v: soft(scores(q, k) + self.bias) @ v, q=add("bh6d", 1.2),
  k=add("bh6d", 1.2), v=add("bh6e"), dynamic="b",
  parts=dict(bias=lambda: torch.full((6, 6), -INF).triu(1)))

# more keys than queries, or fewer
S("causal_top_left", lambda q, k, v: soft(scores(q, k).masked_fill(T.ones(q.shape[2], k.shape[2],
                                                                          dtype=torch.bool).triu(1), -INF)) @ v,
  note="PyTorch's is_causal")
S("causal_top_left_arange",
  lambda q, k, v: soft(T.where(T.arange(q.shape[2])[:, None] >= T.arange(k.shape[2])[None], scores(q, k), -INF)) @ v)
S("causal_top_left_sdpa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
S("causal_bottom_right", lambda q, k, v: soft(scores(q, k).masked_fill(T.ones(q.shape[2], k.shape[2],
                                                                              dtype=torch.bool).triu(k.shape[2]
                                                                                  - q.shape[2] + 1), -INF)) @ v,
  sizes=WIDE)
S("causal_bottom_right_tril",
  lambda q, k, v: soft(T.where(T.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2]),
                               scores(q, k), MIN)) @ v, sizes=WIDE)
S("causal_bottom_right_arange",
  lambda q, k, v: soft(scores(q, k).masked_fill(T.arange(k.shape[2])[None] > T.arange(q.shape[2])[:,
      None] + (k.shape[2] - q.shape[2]), -INF)) @ v, sizes=WIDE)
S("causal_past_positions", lambda q, k, v, at: soft(scores(q, k).masked_fill(T.arange(k.shape[2]) > at[:, None],
                                                                             -INF)) @ v, at=integer("n", 6),
  note="positions are an input")
S("causal_positions_batch", lambda q, k, v, at: soft(scores(q, k).masked_fill(T.arange(k.shape[2])[None, None,
    None] > at[:, None, :, None], -INF)) @ v, at=integer("bn", 6))

# causal together with others
causal_pad = dict(pad=In("bn", padding().draw), **SELF)
S("causal_and_padding", lambda q, k, v, pad: soft(scores(q, k).masked_fill(T.ones(q.shape[2], q.shape[2],
    dtype=torch.bool).triu(1) | ~pad[:, None, None], -INF)) @ v, **causal_pad)
S("causal_and_padding_where", lambda q, k, v, pad: soft(T.where(T.ones(q.shape[2], q.shape[2],
                                                                       dtype=torch.bool).tril() & pad[:, None, None],
                                                                scores(q, k), MIN)) @ v, **causal_pad)
S("causal_and_padding_two_fills", lambda q, k, v, pad: soft(scores(q, k).masked_fill(T.ones(q.shape[2], q.shape[2],
    dtype=torch.bool).triu(1), -INF).masked_fill(~pad[:, None, None], -INF)) @ v, **causal_pad)
S("causal_and_padding_additive", lambda q, k, v, pad: soft(scores(q, k) + T.full((q.shape[2], q.shape[2]),
    -INF).triu(1) + T.zeros(pad.shape).masked_fill(~pad, -INF)[:, None, None]) @ v, **causal_pad)
S("causal_and_padding_sum", lambda q, k, v, pad: soft(scores(q, k) + (T.full((q.shape[2], q.shape[2]),
                                                                             -1e9).triu(1)
                                                                      + (1.0 - pad[:, None, None].float()) * -1e9))
  @ v, **causal_pad)
S("causal_and_padding_product", lambda q, k, v, pad: soft(scores(q, k) + (1.0 - pad[:, None,
    None].float() * T.ones(q.shape[2], q.shape[2]).tril()) * -1e4) @ v, **causal_pad, note="BERT as a decoder")
S("causal_and_padding_minimum", lambda q, k, v, pad: soft(scores(q, k) + T.minimum(T.full((q.shape[2], q.shape[2]),
    MIN).triu(1), T.where(pad[:, None, None], 0.0, MIN))) @ v, **causal_pad)
S("causal_and_padding_hf",
  lambda q, k, v, pad: (lambda c: soft(scores(q, k) + c.masked_fill((c[:, :, :, :] == 0) & ~pad[:, None, None], MIN))
                        @ v)(
    T.full((q.shape[2], q.shape[2]), MIN).triu(1)[None, None].expand(q.shape[0], 1, -1, -1)), **causal_pad,
  note="transformers' _update_causal_mask")
S("causal_and_padding_index",
  lambda q, k, v, pad: (lambda i: soft(scores(q, k) + T.where((i[None] <= i[:, None]) & pad[T.arange(q.shape[0])[:,
      None, None], i[None, None]], 0.0, MIN)[:, None]) @ v)(T.arange(q.shape[2])),
  **causal_pad, note="transformers' mask functions read padding by index")
S("causal_and_bias", lambda q, k, v, bias: soft((scores(q, k) + bias).masked_fill(T.ones(q.shape[2], q.shape[2],
    dtype=torch.bool).triu(1), -INF)) @ v, bias=add("1hnn"), **SELF)
S("causal_fill_then_add", lambda q, k, v, mask: soft(T.where(T.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril(),
                                                             scores(q, k), MIN) + mask) @ v, mask=add("b11n"), **SELF)

# ------------------------------------------------------------------ windows and other patterns
W = 3


def window(name, make, **options):
    """make(i, j, n): true where attended, from row and column positions."""
    S("window_" + name, lambda q, k, v: soft(scores(q, k).masked_fill(~make(T.arange(q.shape[2])[:, None],
                                                                            T.arange(k.shape[2])[None], q.shape[2]),
                                                                      -INF)) @ v, **{**SELF, **options})


window("causal", lambda i, j, n: (j <= i) & (j > i - W))
window("causal_difference", lambda i, j, n: (i - j >= 0) & (i - j < W))
window("causal_le", lambda i, j, n: (i >= j) & (i - j <= W))
window("symmetric", lambda i, j, n: (i - j).abs() <= W)
window("symmetric_lt", lambda i, j, n: (i - j).abs() < W)
window("symmetric_two_sided", lambda i, j, n: (j >= i - W) & (j <= i + W))
window("lopsided", lambda i, j, n: (j >= i - 2) & (j <= i + 1))
window("causal_bands", lambda i, j, n: T.ones(n, n, dtype=torch.bool).tril() & T.ones(n, n,
    dtype=torch.bool).triu(-W + 1))
window("causal_bands_chained", lambda i, j, n: T.ones(n, n, dtype=torch.bool).tril().triu(-W))
window("symmetric_bands", lambda i, j, n: T.ones(n, n).triu(-W).tril(W).bool())
window("causal_difference_of_trils", lambda i, j, n: (T.ones(n, n).tril() - T.ones(n, n).tril(-W)) > 0)
window("chunks", lambda i, j, n: (i // W == j // W))
window("chunks_causal", lambda i, j, n: (i // W == j // W) & (j <= i), note="Llama 4's")
window("dilated", lambda i, j, n: (i - j) % 2 == 0)
window("prefix", lambda i, j, n: (j <= i) | (j < 2), note="prefix language model")
window("global", lambda i, j, n: ((i - j).abs() <= 1) | (i == 0) | (j == 0), note="Longformer's, spelled densely")
window("rectangle", lambda i, j, n: (i - j).abs() <= W, k=add("bhmd", 1.2), v=add("bhme"),
       sizes=[dict(b=3, n=5, m=7), dict(b=2, n=9, m=8), dict(b=5, n=6, m=11)])
window("strict_future", lambda i, j, n: (j > i) | (j == 0))
window("diagonal_out", lambda i, j, n: i != j, sizes=[dict(b=3, n=5), dict(b=2, n=9)], note="no query sees itself")
S("window_additive", lambda q, k, v: (lambda i: soft(scores(q, k) + T.where((i[:, None] - i[None]).abs() <= W, 0.0,
                                                                            -INF)) @ v)(T.arange(q.shape[2])), **SELF)
S("window_two_masks", lambda q, k, v: (lambda i: soft(scores(q, k).masked_fill(i[None] > i[:, None],
                                                                               -INF).masked_fill(i[None] <= i[:,
                                                                                   None] - W, -INF))
                                       @ v)(T.arange(q.shape[2])), **SELF)
S("window_and_padding",
  lambda q, k, v, pad: (lambda i: soft(scores(q, k).masked_fill(~(((i[:, None] - i[None]).abs() <= W) & pad[:, None,
      None] | (i[:, None] == i[None])), -INF)) @ v)(T.arange(q.shape[2])), **causal_pad)
S("window_buffer", lambda self, q, k, v: soft(scores(q, k) + self.bias[: q.shape[2], : q.shape[2]]) @ v,
  parts=dict(bias=lambda: torch.where((torch.arange(64)[:, None] - torch.arange(64)).abs() <= W, 0.0, -INF)), **SELF)

# ------------------------------------------------------------------ rows that may attend nowhere
DEAD = dict(keep=dead_keep("b1nm"), dead=lambda q, k, v, keep: ~keep.any(-1, keepdim=True).expand(-1, 4, -1, -1))
masked("dead_fill_inf", lambda s, keep: s.masked_fill(~keep, -INF), **DEAD, note="NaN in eager")
masked("dead_fill_min", lambda s, keep: s.masked_fill(~keep, MIN), **DEAD, note="uniform in eager")
masked("dead_fill_1e9", lambda s, keep: s.masked_fill(~keep, -1e9), **DEAD)
masked("dead_fill_1e4", lambda s, keep: s.masked_fill(~keep, -1e4), **DEAD)
masked("dead_where_min", lambda s, keep: torch.where(keep, s, MIN), **DEAD)
masked("dead_add_inf", lambda s, keep: s + torch.where(keep, 0.0, -INF), **DEAD)
masked("dead_add_min", lambda s, keep: s + torch.where(keep, 0.0, MIN), **DEAD,
       note="-3.4e38 swallows the score: uniform")
masked("dead_add_1e4", lambda s, keep: s + (1 - keep.float()) * -1e4, **DEAD,
       note="-1e4 does not: as if there were no mask")
masked("dead_add_1e9", lambda s, keep: s + (1 - keep.float()) * -1e9, **DEAD)
masked("dead_mask_input", lambda s, mask: s + mask,
       mask=In("b1nm", lambda g, s: torch.where(dead_keep("b1nm").draw(g, s), 0.0, -INF)),
       dead=lambda q, k, v, mask: (mask == -INF).all(-1, keepdim=True).expand(-1, 4, -1, -1))
masked("dead_sum_of_mins", lambda s, keep, pad: s + torch.where(keep, 0.0, MIN) + torch.where(pad[:, None, None], 0.0,
    MIN), keep=dead_keep("b1nm"), note="MIN + MIN is -inf",
       dead=lambda q, k, v, keep, pad: ~(keep & pad[:, None, None]).any(-1, keepdim=True).expand(-1, 4, -1, -1))
S("dead_padding_pairs",
  lambda q, k, v, pad: soft(scores(q, k).masked_fill(~(pad[:, None, :, None] & pad[:, None, None, :]), -1e9)) @ v,
  pad=In("bn", padding().draw), **SELF,
  dead=lambda q, k, v, pad: (~pad)[:, None, :, None].expand(-1, 4, -1, -1))
S("dead_causal_bottom_right", lambda q, k, v: soft(scores(q, k).masked_fill(T.ones(q.shape[2], k.shape[2],
    dtype=torch.bool).triu(k.shape[2] - q.shape[2] + 1), -INF)) @ v,
  dead=lambda q, k, v: (torch.arange(q.shape[2]) < q.shape[2] - k.shape[2])[:, None].expand(q.shape[0], 4, -1, -1))
S("dead_filled_after", lambda q, k, v, keep: soft(scores(q, k).masked_fill(~keep, MIN)).masked_fill(~keep, 0.0) @ v,
  keep=dead_keep("b1nm"), note="0 in eager, as in sdpa: XLM's and DeBERTa's")
S("dead_times_mask", lambda q, k, v, keep: (soft(scores(q, k).masked_fill(~keep, -1e9)) * keep) @ v,
  keep=dead_keep("b1nm"))
S("dead_nan_to_num", lambda q, k, v, keep: soft(scores(q, k).masked_fill(~keep, -INF)).nan_to_num(0.0) @ v,
  keep=dead_keep("b1nm"))
S("dead_nan_to_num_cast", lambda q, k, v, keep: soft(scores(q, k).masked_fill(~keep, -INF)).double().nan_to_num(0.0)
  .float() @ v, keep=dead_keep("b1nm"))
S("dead_scores_nan_to_num", lambda q, k, v, keep: soft(scores(q, k).masked_fill(~keep, -INF).nan_to_num()) @ v,
  keep=dead_keep("b1nm"), note="masked scores become the least number: an average of all values")
S("dead_where_isnan", lambda q, k, v, keep: (lambda p: torch.where(p.isnan(), 0.0, p) @ v)(soft(scores(q,
    k).masked_fill(~keep, -INF))), keep=dead_keep("b1nm"), note="ONNX's guard")
S("dead_fill_isnan", lambda q, k, v, keep: (lambda p: p.masked_fill(torch.isnan(p), 0.0) @ v)(soft(scores(q,
    k).masked_fill(~keep, -INF))), keep=dead_keep("b1nm"))
S("dead_output_nan_to_num", lambda q, k, v, keep: torch.nan_to_num(soft(scores(q, k).masked_fill(~keep, -INF)) @ v,
                                                                   0.0), keep=dead_keep("b1nm"))
S("dead_safe_softmax", lambda q, k, v, keep: torch.ops.aten._safe_softmax(scores(q, k).masked_fill(~keep, -INF),
                                                                          -1) @ v, keep=dead_keep("b1nm"))
S("dead_sdpa_bool", lambda q, k, v, keep: F.scaled_dot_product_attention(q, k, v, attn_mask=keep),
  keep=dead_keep("b1nm"))
S("dead_query_masked_after",
  lambda q, k, v, pad: (soft(scores(q, k).masked_fill(~(pad[:, None, :, None] & pad[:, None, None, :]), -1e9)) @ v)
  * pad[:, None, :, None], pad=In("bn", padding().draw), **SELF,
  dead=lambda q, k, v, pad: (~pad)[:, None, :, None].expand(-1, 4, -1, -1))
