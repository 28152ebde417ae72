"""What looks like attention and is not quite: whatever the rewriter does, the values stay.
`other` is not attention at all."""
from spell import *

A = 0.4
SELF = dict(k=add("bhnd", 1.2), v=add("bhne"))
SQ = dict(k=add("bhnd", 1.2), v=add("bhnd"))


def scores(q, k):
    return q @ k.mT * A


def ones(n, m=None):
    return torch.ones(n, m or n, dtype=torch.bool)


# ------------------------------------------------------------------ another axis, swapped operands
trap("softmax_dim_1", lambda q, k, v: scores(q, k).softmax(1) @ v)
trap("softmax_dim_0", lambda q, k, v: scores(q, k).softmax(0) @ v)
trap("softmax_dim_2", lambda q, k, v: scores(q, k).softmax(2) @ v)
trap("softmax_dim_minus_2", lambda q, k, v: scores(q, k).softmax(-2) @ v, **SELF)
trap("softmax_dim_minus_3", lambda q, k, v: scores(q, k).softmax(-3) @ v)
trap("softmax_rows_after_transpose", lambda q, k, v: (k @ q.mT * A).softmax(-1).mT @ v)
trap("softmax_flattened", lambda q, k, v: scores(q, k).flatten(-2).softmax(-1).unflatten(-1,
    (q.shape[2], k.shape[2])) @ v, note="over queries and keys together")
trap("softmax_heads_together", lambda q, k, v: scores(q, k).transpose(1, 2).flatten(2).softmax(-1).unflatten(-1,
    (4, k.shape[2])).transpose(1, 2) @ v)
trap("nan_to_num_keeps_masked", lambda q, k, v: soft(
    scores(q, k).masked_fill(ones(q.shape[2], k.shape[2]).triu(1), -INF).nan_to_num(neginf=-1.0)) @ v, **SELF)
trap("nan_to_num_of_quotients", lambda q, k, v: soft(scores(q / q.relu().sum(-1, keepdim=True).floor(), k)
                                                     .nan_to_num()) @ v)
trap("three_axis_1", lambda q, k, v: torch.bmm(torch.bmm(q, k.mT).softmax(1), v), q=add("bnd"), k=add("bnd"),
     v=add("bne"))
trap("three_axis_0", lambda q, k, v: torch.bmm(torch.bmm(q, k.mT).softmax(0), v), q=add("bnd"), k=add("bmd"),
     v=add("bme"))
trap("einsum_axis", lambda q, k, v: torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhqd,bhkd->bhkq", q, k).softmax(-1),
                                                 v), **SELF, note="letters that say (M, N), read as (N, M)")
trap("einsum_values_over_queries", lambda q, k, v: torch.einsum("bhqk,bhqd->bhkd",
                                                                soft(torch.einsum("bhqd,bhkd->bhqk", q, k)), v),
     **SELF, note="P^T V")
trap("operands_swapped", lambda q, k, v: v.mT @ soft(scores(q, k)), **SELF, note="V^T P")
trap("operands_swapped_square", lambda q, k, v: v @ soft(scores(q, k)), q=add("bh8d", 1.2), k=add("bh8d", 1.2),
     v=add("bh8d"), dynamic="b", note="V P, all eight by eight")
trap("no_transpose_square", lambda q, k, v: soft(q @ k * A) @ v, q=add("bh8d", 1.2), k=add("bh8d", 1.2),
     v=add("bh8d"), dynamic="b", note="Q K in place of Q K^T")
trap("no_transpose_legit", lambda q, k, v: soft(q @ k * A) @ v, k=add("bhdm", 1.2),
     note="the keys come transposed: an attention")
trap("queries_transposed", lambda q, k, v: soft(q.mT @ k * A) @ v, q=add("bh8d", 1.2), k=add("bh8d", 1.2),
     v=add("bh8d"), dynamic="b")
trap("weights_transposed", lambda q, k, v: soft(scores(q, k)).mT @ v, **SELF)
trap("scores_transposed", lambda q, k, v: soft(scores(q, k).mT) @ v, **SELF,
     note="keys attend to queries, with the keys' values")
trap("values_of_another_batch", lambda q, k, v: soft(scores(q, k)) @ v.flip(0),
     note="an attention, with values from the other end")
trap("values_rolled", lambda q, k, v: soft(scores(q, k)) @ v.roll(1, 2))
trap("heads_permuted", lambda q, k, v: soft(scores(q, k))[:, [1, 0, 3, 2]] @ v)
trap("heads_reshaped_wrongly", lambda q, k, v: (soft(scores(q, k)) @ v).reshape(q.shape[0], q.shape[2], -1),
     q=add("bh5d", 1.2), dynamic="bm", note="B, H, N, D read as B, N, H*D without the transpose")
trap("view_not_transpose", lambda q, k, v: (lambda f: soft(f(q) @ f(k).mT * A) @ f(v))(lambda t: t.view(t.shape[0], 4,
    -1, 8)), q=add("b6c"), k=add("b7c"), v=add("b7c"), dynamic="b", note="B, N, C viewed as B, H, N, D")

# ------------------------------------------------------------------ scales that are not numbers
trap("scale_per_head", lambda self, q, k, v: soft(q @ k.mT * self.t) @ v,
     parts=dict(t=lambda: torch.tensor([0.1, 0.3, 0.6, 1.0]).view(4, 1, 1)))
trap("scale_per_head_divided", lambda self, q, k, v: soft(q @ k.mT / self.t) @ v,
     parts=dict(t=lambda: torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 4, 1, 1)))
trap("scale_per_query", lambda q, k, v, t: soft(q @ k.mT * t) @ v, t=add("b1n1", 0.5))
trap("scale_per_key", lambda q, k, v, t: soft(q @ k.mT * t) @ v, t=add("b11m", 0.5))
trap("scale_per_batch", lambda q, k, v, t: soft(q @ k.mT * t) @ v, t=add("b111", 0.5))
trap("scale_per_channel", lambda self, q, k, v: soft((q * self.t) @ k.mT) @ v,
     parts=dict(t=lambda: torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])),
     note="an attention; the factors are not a scale")
trap("scale_matrix", lambda q, k, v, t: soft(q @ k.mT * t) @ v, t=add("nm", 0.5))
trap("scale_per_key_static", lambda self, q, k, v: soft(q @ k.mT * self.t) @ v, k=add("bh7d", 1.2), v=add("bh7e"),
     parts=dict(t=lambda: torch.linspace(0.1, 1.0, 7)), dynamic="bn")
trap("scale_input", lambda q, k, v, t: soft(q @ k.mT * t) @ v,
     t=In("", lambda g, s: torch.rand(s, generator=g) + 0.2), note="a 0-d input: one number, unknown until it runs")
trap("scale_input_divided", lambda q, k, v, t: soft(q @ k.mT / t) @ v,
     t=In("1", lambda g, s: torch.rand(s, generator=g) + 0.7))
trap("scale_from_data", lambda q, k, v: soft(q @ k.mT / (q.std() + 1)) @ v,
     note="a temperature computed from the queries")
trap("scale_from_scores", lambda q, k, v: (lambda s: soft(s / s.abs().amax(-1, keepdim=True)) @ v)(q @ k.mT))
trap("scale_from_log", lambda q, k, v: soft(q @ k.mT * torch.log(torch.tensor(4.0)) * 0.2) @ v, note="a constant")
trap("scale_from_size", lambda q, k, v: soft(q @ k.mT / k.shape[2]) @ v, note="divided by the number of keys: a symbol")
trap("scale_from_size_sqrt",
     lambda q, k, v: soft(q @ k.mT * (torch.full((), k.shape[2], dtype=torch.float32)).sqrt() * 0.1) @ v)
trap("scale_negative", lambda q, k, v: soft(q @ k.mT * -0.4) @ v)
trap("scale_zero", lambda q, k, v: soft(q @ k.mT * 0.0) @ v, note="uniform")
trap("scale_after_softmax", lambda q, k, v: (soft(q @ k.mT) * 0.4) @ v, q=add("bhnd", 0.5))
trap("scale_after_softmax_per_head", lambda self, q, k, v: (soft(scores(q, k)) * self.t) @ v,
     parts=dict(t=lambda: torch.tensor([0.1, 0.3, 0.6, 1.0]).view(4, 1, 1)), note="a gate a head")
trap("scale_added", lambda q, k, v, t: soft(q @ k.mT * A + t * (q @ k.mT)) @ v, t=add("b111", 0.3))
trap("scale_mask_only", lambda q, k, v, mask: soft(scores(q, k) + mask * 3.0) @ v)
trap("scale_between_masks", lambda q, k, v, mask, bias: soft((q @ k.mT + mask) * 0.4 + bias) @ v, bias=add("1hnm"))
trap("scale_power", lambda q, k, v: soft((q @ k.mT * A) ** 2) @ v)
trap("scale_on_k_twice", lambda q, k, v: soft(q @ (k * 0.5).mT) @ v + (k * 0.5).sum(-1, keepdim=True).mean(2, True))
trap("scale_differs_by_layer", lambda q, k, v: soft(q @ k.mT * 0.2) @ v + soft(q @ k.mT * 0.7) @ v,
     note="one product, two scales")

# ------------------------------------------------------------------ masks that are not masks
trap("bool_added", lambda q, k, v, keep: soft(scores(q, k) + keep) @ v, note="+1 where true")
trap("bool_added_float", lambda q, k, v, keep: soft(scores(q, k) + keep.float()) @ v)
trap("bool_subtracted", lambda q, k, v, keep: soft(scores(q, k) - keep.float()) @ v)
trap("int_added", lambda q, k, v, keep: soft(scores(q, k) + keep.long()) @ v)
trap("bool_multiplied", lambda q, k, v, keep: soft(scores(q, k) * keep) @ v, note="0, not -inf")
trap("int_multiplied", lambda q, k, v, keep: soft(scores(q, k) * keep.long()) @ v)
trap("float_multiplied", lambda q, k, v, mask: soft(scores(q, k) * mask) @ v)
trap("filled_with_zero", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, 0.0)) @ v)
trap("filled_with_minus_one", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, -1.0)) @ v)
trap("filled_with_minus_10", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, -10.0)) @ v)
trap("filled_with_plus", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, 1e9)) @ v,
     note="only the masked keys count")
trap("filled_with_tiny", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, torch.finfo(torch.float32).tiny))
     @ v, note="finfo.tiny is not finfo.min")
trap("filled_with_eps", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, -torch.finfo(torch.float32).eps)) @ v)
trap("filled_with_score", lambda q, k, v, keep: (lambda s: soft(torch.where(keep, s, s.amin(-1, keepdim=True)))
                                                 @ v)(scores(q, k)), note="the least score in place of -inf")
trap("filled_large_scores_1e4", lambda q, k, v, drop: soft((q @ k.mT * 4000.0).masked_fill(drop, -1e4)) @ v,
     note="scores beyond -1e4: the fill may win")
trap("filled_large_scores_100", lambda q, k, v, drop: soft((q @ k.mT * 40.0).masked_fill(drop, -100.0)) @ v)
trap("filled_with_minus_100", lambda q, k, v, drop: soft(scores(q, k).masked_fill(drop, -100.0)) @ v,
     note="as good as masked: an attention within the tolerance")
trap("filled_below_an_offset", lambda q, k, v, drop: soft((scores(q, k) - 1.2e4).masked_fill(drop, -1e4)) @ v,
     note="the scores lie below the fill")
trap("filled_before_scale", lambda q, k, v, drop: soft((q @ k.mT).masked_fill(drop, -1e4) * 1e-3) @ v,
     note="-1e4 becomes -10")
trap("one_minus_before_scale", lambda q, k, v, keep: soft((q @ k.mT + (1.0 - keep.float()) * -1e4) * 1e-3) @ v)
trap("one_minus_small", lambda q, k, v, keep: soft(scores(q, k) + (1.0 - keep.float()) * -2.0) @ v)
trap("one_minus_positive", lambda q, k, v, keep: soft(scores(q, k) + (1.0 - keep.float()) * 3.0) @ v)
trap("one_minus_fractional", lambda q, k, v, mask: soft(scores(q, k) + (1.0 - mask) * -1.5) @ v,
     note="not made of a bool: any float")
trap("mask_not_inverted", lambda q, k, v, keep: soft(scores(q, k) + keep.float() * -1e4) @ v,
     note="drops what `keep` names", dead=lambda q, k, v, keep: keep.all(-1, keepdim=True).expand(-1, 4, -1, -1))
trap("fill_not_inverted", lambda q, k, v, keep: soft(scores(q, k).masked_fill(keep, -INF)) @ v,
     keep=In("b1nm", lambda g, s: drop("b1nm").draw(g, s)), note="masked_fill(keep): true is dropped")
trap("where_inverted", lambda q, k, v, drop: soft(torch.where(drop, scores(q, k), -INF)) @ v, drop=keep("b1nm"),
     note="`drop` keeps here")
trap("where_other_scores", lambda q, k, v, keep: soft(torch.where(keep, scores(q, k), (q * 0.5) @ k.flip(2).mT)) @ v)
trap("where_number_kept", lambda q, k, v, keep: soft(torch.where(keep, 0.0, scores(q, k))) @ v)
trap("masked_after_softmax", lambda q, k, v, drop: soft(scores(q, k)).masked_fill(drop, 0.0) @ v,
     note="not renormalised")
trap("multiplied_after_softmax", lambda q, k, v, keep: (soft(scores(q, k)) * keep) @ v)
trap("masked_after_with_number", lambda q, k, v, keep: soft(scores(q, k).masked_fill(~keep, -INF)).masked_fill(~keep,
    0.1) @ v)
trap("masked_after_with_other",
     lambda q, k, v, keep, drop: soft(scores(q, k).masked_fill(~keep, -INF)).masked_fill(drop, 0.0) @ v)
trap("added_after_softmax", lambda q, k, v, mask: (soft(scores(q, k)) + mask) @ v)
trap("mask_over_heads", lambda q, k, v, mask: soft(scores(q, k) + mask) @ v, q=add("b7nd", 1.2), k=add("b7md", 1.2),
     v=add("b7me"), mask=add("7nm"), note="(7, N, M) is a mask a head, not a batch")
trap("mask_batch_as_heads", lambda q, k, v, mask: soft(scores(q, k) + mask) @ v, q=add("4hnd", 1.2),
     k=add("4hmd", 1.2), v=add("4hme"), mask=add("4nm"), dynamic="nm",
     note="B = H = 4: (4, N, M) broadcasts over the heads")
trap("mask_row_as_column", lambda q, k, v, mask: soft(scores(q, k) + mask) @ v, mask=add("b1n1"), **SELF,
     note="constant along the keys: changes nothing")
trap("mask_transposed_square", lambda q, k, v, mask: soft(scores(q, k) + mask.mT) @ v, mask=add("b1nn"), **SELF)
trap("mask_2d_padding_over_queries", lambda q, k, v, pad: soft(scores(q, k).masked_fill(~pad[:, None, :, None], -1e4))
     @ v, pad=In("bn", padding().draw), **SELF, note="rows of a padded query: uniform",
     dead=lambda q, k, v, pad: (~pad)[:, None, :, None].expand(-1, 4, -1, -1))
trap("mask_of_scores", lambda q, k, v: (lambda s: soft(s.masked_fill(s < 0, -1e4)) @ v)(scores(q, k)),
     note="negative scores dropped", dead=lambda q, k, v: (scores(q, k) < 0).all(-1, keepdim=True))
trap("top_k", lambda q, k, v: (lambda s: soft(s.masked_fill(s < s.topk(2, -1)[0][..., -1:], -INF)) @ v)(scores(q, k)),
     note="only the two best keys")
trap("top_k_after",
     lambda q, k, v: (lambda p: (lambda t: (t / t.sum(-1, keepdim=True))
                                 @ v)(p * (p >= p.topk(2, -1)[0][..., -1:])))(soft(scores(q, k))))
trap("threshold_after", lambda q, k, v: F.threshold(soft(scores(q, k)), 0.05, 0.0) @ v)
trap("relu_scores", lambda q, k, v: soft(scores(q, k).relu()) @ v)
trap("abs_scores", lambda q, k, v: soft(scores(q, k).abs()) @ v)
trap("clamped_scores", lambda q, k, v: soft(scores(q, k).clamp(-1, 1)) @ v)
trap("clamped_below", lambda q, k, v: soft(scores(q, k).clamp(min=-1.0)) @ v)
trap("tanh_no_rescale", lambda q, k, v: soft(torch.tanh(q @ k.mT * A / 3.0)) @ v,
     note="a cap of 1 on a third of the scores")
trap("tanh_other_rescale", lambda q, k, v: soft(torch.tanh(q @ k.mT / 3.0) * 5.0) @ v,
     note="in by 3, out by 5: a cap of 5 and a scale")
trap("tanh_after_mask", lambda q, k, v, mask: soft(torch.tanh((scores(q, k) + mask) / 3.0) * 3.0) @ v,
     note="the mask is capped, too")
trap("tanh_after_fill", lambda q, k, v, drop: soft(torch.tanh(scores(q, k).masked_fill(drop, -INF) / 3.0) * 3.0) @ v,
     note="-inf becomes -3")
trap("sigmoid_capped", lambda q, k, v: soft(torch.sigmoid(scores(q, k)) * 3.0) @ v)
trap("softcap_per_head", lambda self, q, k, v: soft(torch.tanh(scores(q, k) / self.c) * self.c) @ v,
     parts=dict(c=lambda: torch.tensor([1.0, 2.0, 3.0, 4.0]).view(4, 1, 1)))

# ------------------------------------------------------------------ causality off by something
def first_row(q, k, v):
    return (torch.arange(q.shape[2]) == 0)[:, None].expand(q.shape[0], 4, -1, -1)


def all_dropped(make):
    """The rows of a mask (true = dropped) over positions i, j that drop everything."""
    return lambda q, k, v: make(torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]).all(-1,
        keepdim=True).expand(q.shape[0], 4, -1, -1)


trap("causal_strict", lambda q, k, v: soft(scores(q, k).masked_fill(ones(q.shape[2]).triu(0), -1e4)) @ v, **SELF,
     note="diagonal 0: no query sees itself; the first row is uniform", dead=first_row)
trap("causal_one_ahead", lambda q, k, v: soft(scores(q, k).masked_fill(ones(q.shape[2]).triu(2), -INF)) @ v, **SELF)
trap("causal_tril_minus_1", lambda q, k, v: soft(torch.where(ones(q.shape[2]).tril(-1), scores(q, k), -1e4)) @ v,
     **SELF, dead=first_row)
trap("causal_tril_plus_1", lambda q, k, v: soft(torch.where(ones(q.shape[2]).tril(1), scores(q, k), -INF)) @ v, **SELF)
trap("anticausal_triu", lambda q, k, v: soft(torch.where(ones(q.shape[2]).triu(), scores(q, k), -INF)) @ v, **SELF,
     note="the past is cut away")
trap("anticausal_tril_dropped", lambda q, k, v: soft(scores(q, k).masked_fill(ones(q.shape[2]).tril(-1), -INF)) @ v,
     **SELF)
trap("anticausal_arange", lambda q, k, v: (lambda i: soft(scores(q, k).masked_fill(i[None] < i[:, None], -INF))
                                           @ v)(torch.arange(q.shape[2])), **SELF)
trap("causal_ge_dropped", lambda q, k, v: (lambda i: soft(scores(q, k).masked_fill(i[None] >= i[:, None], -1e4))
                                           @ v)(torch.arange(q.shape[2])), **SELF,
     dead=all_dropped(lambda i, j: j >= i))
trap("causal_bottom_right", lambda q, k, v: soft(scores(q, k).masked_fill(ones(q.shape[2],
                                                                               k.shape[2]).triu(k.shape[2]
                                                                                   - q.shape[2] + 1), -INF)) @ v,
     sizes=WIDE, note="aligned at the end: not is_causal")
trap("causal_top_left_fewer_keys", lambda q, k, v: soft(scores(q, k).masked_fill(ones(q.shape[2], k.shape[2]).triu(1),
    -INF)) @ v, sizes=[dict(b=3, n=7, m=5), dict(b=2, n=13, m=9)])
trap("causal_multiplied", lambda q, k, v: soft(scores(q, k) * ones(q.shape[2]).tril()) @ v, **SELF,
     note="the future scores 0")
trap("causal_tril_of_scores", lambda q, k, v: soft(scores(q, k).tril()) @ v, **SELF,
     note="tril of the scores: the future scores 0")
trap("causal_added_tril", lambda q, k, v: soft(scores(q, k) + torch.ones(q.shape[2], q.shape[2]).tril()) @ v, **SELF)
trap("causal_after_softmax", lambda q, k, v: soft(scores(q, k)).tril() @ v, **SELF)
trap("causal_reversed_rows", lambda q, k, v: soft(scores(q, k).masked_fill(ones(q.shape[2]).triu(1).flip(0), -INF))
     @ v, **SELF)
trap("causal_transposed", lambda q, k, v: soft(scores(q, k).masked_fill(ones(q.shape[2]).triu(1).mT, -INF)) @ v,
     **SELF, note="the mask of the future, transposed")
trap("causal_steps_of_two", lambda q, k, v: (lambda i: soft(scores(q, k).masked_fill(i[None] // 2 > i[:, None] // 2,
    -INF)) @ v)(torch.arange(q.shape[2])), **SELF)
trap("causal_other_positions",
     lambda q, k, v: (lambda i: soft(scores(q, k).masked_fill(2 * i[None] > 3 * i[:, None] + 1, -INF))
                      @ v)(torch.arange(q.shape[2])), **SELF)
trap("causal_buffer_not_causal",
     lambda self, q, k, v: soft(scores(q, k).masked_fill(~self.m[: q.shape[2], : q.shape[2]], -INF)) @ v, **SELF,
     parts=dict(m=lambda: torch.ones(64, 64, dtype=torch.bool).tril().index_put((torch.tensor([40]),
         torch.tensor([3])), torch.tensor(False))), note="one bit off, beyond the example's sizes")
trap("causal_buffer_offset", lambda self, q, k, v: soft(scores(q, k).masked_fill(~self.m[1 : q.shape[2] + 1,
    : q.shape[2]], -INF)) @ v, **SELF, parts=dict(m=lambda: torch.ones(70, 70, dtype=torch.bool).tril()),
     note="sliced one row down")
trap("causal_buffer_small_fill", lambda self, q, k, v: soft(scores(q, k) + self.m[: q.shape[2], : q.shape[2]]) @ v,
     **SELF, parts=dict(m=lambda: torch.full((64, 64), -2.0).triu(1)))
trap("causal_buffer_mixed_fill", lambda self, q, k, v: soft(scores(q, k) + self.m[: q.shape[2], : q.shape[2]]) @ v,
     **SELF, parts=dict(m=lambda: torch.full((64, 64), -INF).triu(1) + torch.full((64, 64), 0.5).tril(-2)),
     note="causal, and a bias below")
trap("window_off_by_one",
     lambda q, k, v: (lambda i: soft(scores(q, k).masked_fill((i[None] > i[:, None]) | (i[:, None] - i[None] > 3),
                                                              -INF)) @ v)(torch.arange(q.shape[2])), **SELF,
     note="four keys wide, not three")
trap("window_inverted", lambda q, k, v: (lambda i: soft(scores(q, k).masked_fill((i[:, None] - i[None]).abs() <= 1,
    -1e4)) @ v)(torch.arange(q.shape[2])), **SELF, note="everything but the neighbours",
     dead=all_dropped(lambda i, j: (i - j).abs() <= 1))
trap("window_other_stride",
     lambda q, k, v: (lambda i: soft(scores(q, k).masked_fill((i[:, None] - 2 * i[None]).abs() > 3, -1e4))
                      @ v)(torch.arange(q.shape[2])), **SELF, dead=all_dropped(lambda i, j: (i - 2 * j).abs() > 3))
trap("window_multiplied", lambda q, k, v: (lambda i: soft(scores(q, k) * ((i[:, None] - i[None]).abs() <= 2))
                                           @ v)(torch.arange(q.shape[2])), **SELF)
trap("two_masks_or", lambda q, k, v, pad: soft(scores(q, k).masked_fill(ones(q.shape[2]).triu(1) & ~pad[:, None,
    None], -INF)) @ v, pad=In("bn", padding().draw), **SELF, note="dropped only where both say so")
trap("two_masks_xor", lambda q, k, v, keep: soft(scores(q, k).masked_fill(ones(q.shape[2]).triu(1) ^ keep, -1e4)) @ v,
     keep=keep("b1nn"), **SELF, dead=lambda q, k, v, keep: (ones(q.shape[2]).triu(1) ^ keep).all(-1,
         keepdim=True).expand(-1, 4, -1, -1))
trap("two_masks_cancel", lambda q, k, v, keep: soft(scores(q, k) + (1 - keep.float()) * -1e4 + (1 - keep.float())
                                                    * 1e4) @ v, tol=2e-3,
     note="one undoes the other, but for the rounding")
trap("sdpa_mask_inverted", lambda q, k, v, drop: F.scaled_dot_product_attention(q, k, v, attn_mask=drop),
     drop=keep("b1nm"))

# ------------------------------------------------------------------ not the softmax
trap("log_softmax", lambda q, k, v: F.log_softmax(scores(q, k), -1) @ v)
trap("softmin", lambda q, k, v: F.softmin(scores(q, k), -1) @ v, note="softmax of the negated scores")
trap("double_softmax", lambda q, k, v: soft(soft(scores(q, k))) @ v)
trap("softmax_squared", lambda q, k, v: soft(scores(q, k)) ** 2 @ v)
trap("softmax_of_square", lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(scores(q, k) ** 2))
trap("exp_not_normalised", lambda q, k, v: scores(q, k).exp() @ v)
trap("exp_other_sum", lambda q, k, v: (lambda e: (e / e.sum(-2, keepdim=True)) @ v)(scores(q, k).exp()))
trap("exp_sum_all", lambda q, k, v: (lambda e: (e / e.sum()) @ v)(scores(q, k).exp()))
trap("exp_mean", lambda q, k, v: (lambda e: (e / e.mean(-1, keepdim=True)) @ v)(scores(q, k).exp()),
     note="M times too large")
trap("exp_sum_plus_eps", lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 0.5)) @ v)(scores(q, k).exp()))
trap("exp_sum_of_other_scores", lambda q, k, v: (scores(q, k).exp() / (q @ k.mT * 0.5).exp().sum(-1, keepdim=True)) @ v)
trap("exp_max_in_numerator_only", lambda q, k, v: (lambda s: ((s - s.amax(-1, keepdim=True)).exp() / s.exp().sum(-1,
    keepdim=True)) @ v)(scores(q, k)))
trap("exp_max_of_other_axis", lambda q, k, v: (lambda s: (s - s.amax(-2, keepdim=True)).softmax(-1) @ v)(scores(q,
    k)), note="a different shift a key")
trap("exp_base_2", lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(torch.exp2(scores(q, k))),
     note="softmax with base 2: an attention of another scale")
trap("expm1", lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(torch.expm1(scores(q, k).abs())))
trap("logsumexp_other_axis", lambda q, k, v: (lambda s: (s - s.logsumexp(-2, keepdim=True)).exp() @ v)(scores(q, k)))
trap("late_division_other_sum", lambda q, k, v: (lambda e: (e @ v) / e.sum(-2, keepdim=True).mT)(scores(q, k).exp()),
     **SELF)
trap("late_division_masked_sum", lambda q, k, v, keep: (lambda e: (e @ v) / (e * keep).sum(-1,
    keepdim=True))(scores(q, k).exp()), note="the mask is in the sum alone")
trap("dropout_active_scale", lambda q, k, v: (soft(scores(q, k)) / 0.9) @ v, note="what dropout's rescaling leaves")
trap("normalised_p2", lambda q, k, v: F.normalize(soft(scores(q, k)), dim=-1) @ v)
trap("weights_minus_mean", lambda q, k, v: (lambda p: (p - p.mean(-1, keepdim=True)) @ v)(soft(scores(q, k))))
trap("weights_plus_identity", lambda q, k, v: (soft(scores(q, k)) + torch.eye(q.shape[2])) @ v, **SELF)
trap("weights_of_two_mixed", lambda q, k, v: (0.5 * soft(scores(q, k)) + 0.5 * soft(scores(k, q))) @ v, **SELF,
     note="one product for two softmaxes")
trap("weights_difference", lambda q, k, v, w: (soft(scores(q, k)) - 0.3 * soft(scores(w, k))) @ v, w=add("bhnd", 1.2),
     note="differential attention before it is split")
trap("weights_powered", lambda q, k, v: soft(scores(q, k)) @ soft(scores(q, k)) @ v, **SELF, note="P P V")
trap("weights_sliced", lambda q, k, v: soft(scores(q, k))[..., :-1] @ v[:, :, :-1], ranges=dict(m=(3, 63)),
     note="not renormalised after the cut")
trap("weights_shifted", lambda q, k, v: soft(scores(q, k)).roll(1, -1) @ v)
trap("scores_shifted", lambda q, k, v: soft(scores(q, k).roll(1, -1)) @ v)
trap("scores_of_another", lambda q, k, v: (lambda s: soft(s + s.mT) @ v)(scores(q, k)), **SELF, note="symmetrised")
trap("scores_cumulative", lambda q, k, v: soft(scores(q, k).cumsum(-1)) @ v)
trap("scores_convolved", lambda self, q, k, v: soft(self.mix(scores(q, k))) @ v,
     parts=dict(mix=lambda: nn.Conv2d(4, 4, (1, 3), padding=(0, 1), groups=4)), note="a convolution over the scores")
trap("cat_wrong_axis", lambda q, k, v, w: soft(torch.cat([scores(q, k), scores(w, k)], 2))[:, :, : q.shape[2]] @ v,
     w=add("bhnd", 1.2), note="more queries: rows are on their own")
trap("cat_keys_dropped_values", lambda q, k, v, w: soft(torch.cat([scores(q, k), scores(q, w)], -1))[...,
    : k.shape[2]] @ v, w=add("bhnd", 1.2), note="more keys in the softmax than values")
trap("cat_scores_two_values", lambda q, k, v, w: soft(torch.cat([scores(q, k), scores(q, w)], -1))
     @ torch.cat([v, v[:, :, : w.shape[2]]], 2), k=add("bhnd", 1.2), v=add("bhne"), w=add("bhnd", 1.2),
     note="an attention over both")
trap("sink_in_values",
     lambda self, q, k, v: soft(torch.cat([scores(q, k), self.s.expand(q.shape[0], -1, q.shape[2], -1)], -1))
     @ torch.cat([v, torch.ones_like(v[:, :, :1])], 2), parts=dict(s=lambda: nn.Parameter(torch.ones(1, 4, 1, 1))),
     note="the extra column counts")
trap("sum_not_product", lambda q, k, v: soft((q[..., :, None, :] + k[..., None, :, :]).sum(-1) * 0.2) @ v)
trap("sum_other_axis", lambda q, k, v: soft((q[..., :, None] * k.mT[..., None, :, :].mT.mT).sum(-2)) @ v,
     q=add("bh8d", 1.0), k=add("bh8d", 1.0), v=add("bh8e"), dynamic="b")
trap("product_of_distances", lambda q, k, v: soft(-torch.cdist(q, k)) @ v, ranges=dict(n=(2, 25), m=(2, 25)),
     sizes=SIZES, note="distances, not products")
trap("product_of_squares", lambda q, k, v: soft(2 * A * q @ k.mT - A * (q * q).sum(-1, keepdim=True) - A
                                                * (k * k).sum(-1)[:, :, None]) @ v,
     note="minus the squared distance: an attention with a bias a key")
trap("additive_attention",
     lambda self, q, k, v: soft(self.w(torch.tanh(q[..., :, None, :] + k[..., None, :, :])).squeeze(-1)) @ v,
     parts=dict(w=lambda: nn.Linear(8, 1)), note="Bahdanau's")
trap("bilinear", lambda self, q, k, v: soft(q @ self.w @ k.mT * 0.3) @ v,
     parts=dict(w=lambda: nn.Parameter(rows(8, 8) * 0.4)), note="an attention with a matrix between")
trap("gqa_wrong_groups", lambda q, k, v: soft(scores(q, k.repeat(1, 2, 1, 1))) @ v.repeat_interleave(2, 1),
     k=add("bgmd", 1.2), v=add("bgme"), note="keys tiled, values interleaved")
trap("gqa_values_shifted", lambda q, k, v: soft(scores(q, k.repeat_interleave(2, 1))) @ v.repeat_interleave(2,
    1).roll(1, 1), k=add("bgmd", 1.2), v=add("bgme"))
trap("gqa_index_odd", lambda q, k, v: soft(scores(q, k[:, [0, 1, 1, 0]])) @ v[:, [0, 1, 1, 0]], k=add("bgmd", 1.2),
     v=add("bgme"))
trap("shared_exp", lambda q, k, v: (lambda e: ((e / e.sum(-1, keepdim=True)) @ v, e))((q @ k.mT * A).exp()),
     note="the numerators are returned")
trap("shared_masked_in_place", lambda q, k, v, drop: (lambda s: (soft(s.masked_fill_(drop, -1e9)) @ v, s))(scores(q,
    k)), note="written in place, and returned")
trap("shared_scores_two_masks",
     lambda q, k, v, drop, mask: (lambda s: soft(s.masked_fill(drop, -INF)) @ v + soft(s + mask) @ v)(scores(q, k)))
trap("shared_scores_written", lambda q, k, v: (lambda s: (lambda p: (s.zero_(), p @ v, s)[1:])(soft(s)))(scores(q,
    k)), note="zeroed after the softmax has read them")
trap("shared_weights_written", lambda q, k, v: (lambda p: (p.mul_(0.5), p @ v)[1])(soft(scores(q, k))),
     note="halved in place")
trap("values_written_between", lambda q, k, v: (lambda w, p: (w.mul_(2), p @ w)[1])(v.clone(), soft(scores(q, k))))
trap("f16_softmax_in_f32_model", lambda q, k, v: soft(scores(q, k).half()).float() @ v, tol=2e-3,
     note="rounded to float16 on the way")
trap("f16_scores_in_f32_model", lambda q, k, v: soft((q.half() @ k.half().mT).float() * 0.4) @ v, tol=2e-3,
     note="scores rounded to float16: refusing is right, too")
trap("bf16_scores_in_f32_model", lambda q, k, v: soft((q.bfloat16() @ k.bfloat16().mT).float() * A) @ v, tol=3e-2)
trap("rounded_weights", lambda q, k, v: (soft(scores(q, k)) * 255).round() / 255 @ v, note="quantised weights")
trap("argmax_one_hot", lambda q, k, v: F.one_hot(scores(q, k).argmax(-1), 7).float() @ v, k=add("bh7d", 1.2),
     v=add("bh7e"), dynamic="bn", note="hard attention")
trap("straight_through", lambda q, k, v: (lambda p: (F.one_hot(p.argmax(-1), 7).float() - p.detach() + p)
                                          @ v)(soft(scores(q, k))), k=add("bh7d", 1.2), v=add("bh7e"), dynamic="bn")
trap("weights_times_other", lambda q, k, v, mask: (soft(scores(q, k)) * mask.sigmoid()) @ v)
trap("entmax_like", lambda q, k, v: (lambda r: (r / r.sum(-1, keepdim=True).clamp(min=1e-3))
                                     @ v)((scores(q, k) - scores(q, k).mean(-1, keepdim=True)).relu()))

# ------------------------------------------------------------------ no attention of this kind
other("talking_heads", lambda self, q, k, v: torch.einsum("gh,bhnm->bgnm", self.b,
                                                          soft(torch.einsum("gh,bhnm->bgnm", self.a, scores(q, k))))
      @ v, parts=dict(a=lambda: nn.Parameter(rows(4, 4) * 0.5), b=lambda: nn.Parameter(rows(4, 4, seed=1) * 0.5)))
other("talking_heads_after", lambda self, q, k, v: self.mix(soft(scores(q, k)).permute(0, 2, 3, 1)).permute(0, 3, 1,
    2) @ v, parts=dict(mix=lambda: nn.Linear(4, 4)), note="heads mixed between softmax and values")
other("talking_heads_conv", lambda self, q, k, v: self.mix(soft(scores(q, k))) @ v,
      parts=dict(mix=lambda: nn.Conv2d(4, 4, 1)))
other("linear_elu", lambda q, k, v: (lambda a, c: (a @ (c.mT @ v)) / (a @ c.sum(2)[..., None] + 1e-6))(F.elu(q) + 1,
    F.elu(k) + 1))
other("linear_softmax", lambda q, k, v: q.softmax(-1) @ (k.softmax(-2).mT @ v),
      note="efficient attention: two softmaxes, none over products")
other("linear_relu", lambda q, k, v: (lambda p: (p / p.sum(-1, keepdim=True).clamp(min=1e-3)) @ v)(scores(q, k).relu()))
other("sigmoid", lambda q, k, v: torch.sigmoid(scores(q, k)) @ v)
other("sigmoid_bias", lambda q, k, v: torch.sigmoid(scores(q, k) - 2.0) @ v)
other("relu_squared", lambda q, k, v: (scores(q, k).relu() ** 2 / q.shape[2]) @ v)
other("no_softmax", lambda q, k, v: scores(q, k) @ v)
other("classifier", lambda self, x: soft(self.head(x)), x=add("bnc"), parts=dict(head=lambda: nn.Linear(32, 10)),
      note="a softmax at the end")
other("mixture_of_experts", lambda self, x: (lambda g: torch.einsum("bne,benc->bnc", g,
                                                                    torch.stack([f(x) for f in self.e],
                                                                                1)))(soft(self.gate(x))), x=add("bnc"),
      parts=dict(gate=lambda: nn.Linear(32, 3), e=lambda: nn.ModuleList([nn.Linear(32, 32) for _ in range(3)])),
      note="a gate over three experts")
other("soft_argmax", lambda x: soft(x.flatten(1)) @ torch.arange(40.0)[:, None], x=add("b58"), dynamic="b",
      note="expected position of a heat map")
other("softmax_pool", lambda x: (x.softmax(1) * x).sum(1), x=add("bnc"))
other("mlp_mixer", lambda self, x: x + self.b(F.gelu(self.a(x.mT))).mT, x=add("b7c"), dynamic="b",
      parts=dict(a=lambda: nn.Linear(7, 16), b=lambda: nn.Linear(16, 7)))
other("dynamic_convolution", lambda self, x: (soft(self.w(x)).unsqueeze(2) @ F.pad(x, (0, 0, 1, 1)).unfold(1, 3,
    1).mT).squeeze(2), x=add("bnc"), parts=dict(w=lambda: nn.Linear(32, 3)), note="softmaxed kernels")
other("squeeze_excite", lambda self, x: x * soft(self.b(F.relu(self.a(x.mean(1)))))[:, None], x=add("bnc"),
      parts=dict(a=lambda: nn.Linear(32, 8), b=lambda: nn.Linear(8, 32)))
