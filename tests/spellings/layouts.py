"""Where the dimensions stand: BHND, BNHD, 3-D, 2-D, 5-D, products over B*H, transposed forms,
and dot products spelled as sums."""
from spell import *

BN = dict(q=add("bnhd", 1.2), k=add("bmhd", 1.2), v=add("bmhe"))
THREE = dict(q=add("bnd", 1.2), k=add("bmd", 1.2), v=add("bme"))
TWO = dict(q=add("nd", 1.2), k=add("md", 1.2), v=add("me"))
FLAT = dict(q=add("bnc", 1.2), k=add("bmc", 1.2), v=add("bmc"))
A = 0.4

# ------------------------------------------------------------------ four dimensions
S("bnhd_transpose", lambda q, k, v: (soft(q.transpose(1, 2) @ k.transpose(1, 2).transpose(-2, -1) * A)
                                     @ v.transpose(1, 2)).transpose(1, 2), **BN)
S("bnhd_permute", lambda q, k, v: (soft(q.permute(0, 2, 1, 3) @ k.permute(0, 2, 3, 1) * A) @ v.permute(0, 2, 1,
    3)).permute(0, 2, 1, 3), **BN)
S("bnhd_contiguous", lambda q, k, v: (soft(q.transpose(1, 2).contiguous() @ k.transpose(1, 2).contiguous().mT * A)
                                      @ v.transpose(1, 2).contiguous()).transpose(1, 2).contiguous(), **BN)
S("bnhd_flattened", lambda q, k, v: (soft(q.transpose(1, 2) @ k.transpose(1, 2).mT * A) @ v.transpose(1,
    2)).transpose(1, 2).reshape(q.shape[0], q.shape[1], -1), **BN)
S("bnhd_flatten_2", lambda q, k, v: (soft(q.transpose(1, 2) @ k.transpose(1, 2).mT * A) @ v.transpose(1,
    2)).transpose(1, 2).flatten(2), **BN)
S("bnhd_movedim", lambda q, k, v: (soft(q.movedim(1, 2) @ k.movedim(2, 1).mT * A) @ v.swapaxes(1, 2)).swapaxes(1, 2),
  **BN)
S("nbhd_permute", lambda q, k, v: (soft(q.permute(1, 2, 0, 3) @ k.permute(1, 2, 3, 0) * A) @ v.permute(1, 2, 0,
    3)).permute(2, 0, 1, 3), q=add("nbhd", 1.2), k=add("mbhd", 1.2), v=add("mbhe"))
S("hbnd_permute", lambda q, k, v: soft(q @ k.mT * A) @ v, q=add("hbnd", 1.2), k=add("hbmd", 1.2), v=add("hbme"))
S("bhdn_channels_first", lambda q, k, v: soft(q.mT @ k * A) @ v.mT, q=add("bhdn", 1.2), k=add("bhdm", 1.2),
  v=add("bhem"), note="convolution's layout: q^T k")
S("bhdn_channels_first_out", lambda q, k, v: v @ soft(q.mT @ k * A).mT, q=add("bhdn", 1.2), k=add("bhdm", 1.2),
  v=add("bhem"), note="V P^T, as in SAGAN")
S("bnc_split_heads", lambda q, k, v: (lambda f: (soft(f(q) @ f(k).mT * A) @ f(v)).transpose(1, 2).reshape(q.shape[0],
    -1, 32))(lambda t: t.view(t.shape[0], -1, 4, 8).transpose(1, 2)), **FLAT)
S("bnc_unflatten", lambda q, k, v: (lambda f: (soft(f(q) @ f(k).mT * A) @ f(v)).transpose(1,
    2).flatten(-2))(lambda t: t.unflatten(-1, (4, 8)).transpose(1, 2)), **FLAT)
S("bnc_heads_last", lambda q, k, v: (lambda f: (soft(f(q) @ f(k).mT * A) @ f(v)).permute(0, 2, 3,
    1).flatten(-2))(lambda t: t.unflatten(-1, (8, 4)).permute(0, 3, 1, 2)), **FLAT, note="head is the fastest index")
S("bnc_chunked_heads", lambda q, k, v: (lambda f: torch.cat((soft(f(q) @ f(k).mT * A) @ f(v)).unflatten(0,
    (4, -1)).unbind(0), -1))(lambda t: torch.cat(t.chunk(4, -1), 0)), **FLAT, note="heads stacked on the batch")
S("bnc_stacked_heads", lambda q, k, v: (lambda f: torch.cat((soft(f(q) @ f(k).mT * A) @ f(v)).unbind(0),
                                                            -1))(lambda t: torch.stack(t.split(8, -1))), **FLAT)
S("heads_one_by_one", lambda q, k, v: torch.cat([soft(a @ b.mT * A) @ c for a, b, c in zip(q.split(8, -1),
    k.split(8, -1), v.split(8, -1))], -1), **FLAT, count=4, note="a loop over the heads")
S("heads_selected", lambda q, k, v: torch.stack([soft(q[:, i] @ k[:, i].mT * A) @ v[:, i] for i in range(4)], 1),
  count=4)

# ------------------------------------------------------------------ fewer and more dimensions
S("three_matmul", lambda q, k, v: soft(q @ k.transpose(1, 2) * A) @ v, **THREE)
S("three_bmm", lambda q, k, v: torch.bmm(soft(torch.bmm(q, k.transpose(1, 2)) * A), v), **THREE)
S("three_bmm_unscaled", lambda q, k, v: torch.bmm(soft(torch.bmm(q, k.transpose(-2, -1))), v),
  **{**THREE, "q": add("bnd", 0.5)})
S("three_bmm_mask", lambda q, k, v, mask: torch.bmm(soft(torch.bmm(q, k.transpose(1, 2)) / 2.5 + mask), v),
  mask=add("bnm"), **THREE)
S("three_bmm_fill", lambda q, k, v, drop: torch.bmm(soft(torch.bmm(q, k.mT).div(2.5).masked_fill(drop, -INF)), v),
  drop=drop("bnm"), **THREE)
S("three_padding", lambda q, k, v, pad: torch.bmm(soft((q @ k.mT * A).masked_fill(~pad[:, None], -1e9)), v), **THREE)
S("three_unsqueezed", lambda q, k, v: (soft(q[:, None] @ k[:, None].mT * A) @ v[:, None])[:, 0], **THREE)
S("three_sdpa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), **THREE)
S("two_matmul", lambda q, k, v: soft(q @ k.T * A) @ v, **TWO, dynamic="nm")
S("two_mm", lambda q, k, v: torch.mm(soft(torch.mm(q, k.t()) * A), v), **TWO, dynamic="nm")
S("two_mask", lambda q, k, v, mask: soft(q @ k.T * A + mask) @ v, mask=add("nm"), **TWO, dynamic="nm")
S("two_inner", lambda q, k, v: soft(torch.inner(q, k) * A) @ v, **TWO, dynamic="nm")
S("two_linear", lambda q, k, v: soft(F.linear(q, k) * A) @ v, **TWO, dynamic="nm",
  note="Linear with the keys as weight")
S("two_addmm", lambda q, k, v, mask: soft(torch.addmm(mask, q, k.T, alpha=A)) @ v, mask=add("nm"), **TWO, dynamic="nm")
S("two_addmm_beta", lambda q, k, v, mask: soft(torch.addmm(mask, q, k.T, beta=0.5, alpha=A)) @ v, mask=add("nm"),
  **TWO, dynamic="nm")
S("two_tensordot", lambda q, k, v: soft(torch.tensordot(q, k, dims=([1], [1])) * A) @ v, **TWO, dynamic="nm")
S("two_sdpa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), **TWO, dynamic="nm")
S("two_batch_of_values", lambda q, k, v: soft(q @ k.T * A) @ v, q=add("nd", 1.2), k=add("md", 1.2), v=add("bme"),
  note="one pattern for all of the batch")
S("two_keys_shared", lambda q, k, v: soft(q @ k.T * A) @ v, q=add("bnd", 1.2), k=add("md", 1.2), v=add("me"),
  note="memory shared by the batch")
S("one_query_vector", lambda q, k, v: soft(k @ q * A) @ v, q=add("d", 1.2), k=add("md", 1.2), v=add("me"),
  dynamic="m", note="a vector: scores (M)")
S("one_query_batch", lambda q, k, v: (soft((k @ q) * A)[:, None] @ v)[:, 0], q=add("d", 1.2), k=add("bmd", 1.2),
  v=add("bme"), dynamic="bm", note="pooling by a learned vector")
S("one_query_squeezed", lambda q, k, v: torch.bmm(soft(torch.bmm(k, q.unsqueeze(2)).squeeze(2)).unsqueeze(1),
                                                  v).squeeze(1), q=add("bd", 0.6), k=add("bmd", 1.2), v=add("bme"),
  dynamic="bm",
  note="the recurrent decoder's attention")
S("one_query_weighted_sum", lambda q, k, v: (soft((k * q[:, None]).sum(-1) * A)[..., None] * v).sum(1),
  q=add("bd", 1.2), k=add("bmd", 1.2), v=add("bme"), dynamic="bm")
S("one_query_axis_1", lambda q, k, v: ((k @ q[..., None] * A).softmax(1) * v).sum(1), q=add("bd", 1.2),
  k=add("bmd", 1.2), v=add("bme"), dynamic="bm", note="softmax over the keys, which are dimension 1")
S("five_matmul", lambda q, k, v: soft(q @ k.mT * A) @ v, q=add("b3hnd", 1.2), k=add("b3hmd", 1.2), v=add("b3hme"))
S("six_matmul", lambda q, k, v: soft(q @ k.mT * A) @ v, q=add("b23hnd", 1.2), k=add("b23hmd", 1.2), v=add("b23hme"))
S("five_mask", lambda q, k, v, mask: soft(q @ k.mT * A + mask) @ v, q=add("b3hnd", 1.2), k=add("b3hmd", 1.2),
  v=add("b3hme"), mask=add("b31nm"))
S("batch_broadcast_k", lambda q, k, v: soft(q @ k.mT * A) @ v, k=add("1hmd", 1.2), v=add("1hme"),
  note="keys shared by the batch")
S("batch_broadcast_q", lambda q, k, v: soft(q @ k.mT * A) @ v, q=add("1hnd", 1.2),
  note="queries shared by the batch: learned")
S("batch_broadcast_3d_q", lambda q, k, v: soft(q @ k.mT * A) @ v, q=add("hnd", 1.2))
S("value_width_1", lambda q, k, v: soft(q @ k.mT * A) @ v, v=add("bhm1"))
S("value_wider", lambda q, k, v: soft(q @ k.mT * A) @ v, v=add("bhm9"))
S("value_is_key", lambda q, k: soft(q @ k.mT * A) @ k)
S("all_one_tensor", lambda x: soft(x @ x.mT * A) @ x, x=add("bhnd", 1.0))
S("all_one_tensor_3d", lambda x: torch.bmm(soft(torch.bmm(x, x.transpose(1, 2)) * A), x), x=add("bnd", 1.0))

# ------------------------------------------------------------------ products over B*H
S("bmm_view",
  lambda q, k, v: (lambda b, h: torch.bmm(soft(torch.bmm(q.reshape(b * h, -1, 8), k.reshape(b * h, -1, 8).transpose(1,
      2)) * A), v.reshape(b * h, -1, 6)).view(b, h, -1, 6))(q.shape[0], 4))
S("bmm_view_exact",
  lambda q, k, v: (lambda b, h, n, m: torch.bmm(soft(torch.bmm(q.view(b * h, n, 8), k.view(b * h, m, 8).transpose(1,
      2)) * A), v.view(b * h, m, 6)).view(b, h, n, 6))(q.shape[0], 4, q.shape[2], k.shape[2]))
S("bmm_flatten", lambda q, k, v: torch.bmm(soft(torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT) * A),
                                           v.flatten(0, 1)).unflatten(0, (-1, 4)))
S("bmm_scores_viewed",
  lambda q, k, v, mask: (lambda b, n, m: torch.bmm(soft((torch.bmm(q.reshape(b * 4, n, 8),
                                                                   k.reshape(b * 4, m, 8).mT) * A).view(b, 4, n,
                                                                       m) + mask).view(b * 4, n, m),
                                                   v.reshape(b * 4, m, 6)).view(b, 4, n, 6))(
    q.shape[0], q.shape[2], k.shape[2]))
S("bmm_softmax_in_4d",
  lambda q, k, v: (lambda b, n, m: soft((torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT) * A).view(b, 4, n, m))
                   @ v)(q.shape[0], q.shape[2], k.shape[2]))
S("bmm_mask_reshaped", lambda q, k, v, mask: torch.bmm(soft(torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT) * A
                                                            + mask.expand(-1, 4, -1, -1).reshape(-1, q.shape[2],
                                                                k.shape[2])), v.flatten(0, 1)).unflatten(0, (-1, 4)))
S("bmm_mask_repeat_interleave", lambda q, k, v, mask: torch.bmm(soft(torch.bmm(q.flatten(0, 1),
                                                                               k.flatten(0, 1).mT) * A
                                                                     + mask.repeat_interleave(4, 0)),
                                                                v.flatten(0, 1)).unflatten(0, (-1, 4)), mask=add("bnm"))
S("bmm_mask_causal",
  lambda q, k, v: torch.bmm(soft(torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT) * A + torch.full((q.shape[2],
      q.shape[2]), -INF).triu(1)), v.flatten(0, 1)).unflatten(0, (-1, 4)),
  k=add("bhnd", 1.2), v=add("bhne"))
S("bmm_seq_first", lambda q, k, v: (lambda f, b: torch.bmm(soft(torch.bmm(f(q) * A, f(k).transpose(1, 2))),
                                                           f(v)).transpose(0, 1).reshape(-1, b,
                                                               32))(lambda t: t.reshape(-1, t.shape[1] * 4,
                                                                   8).transpose(0, 1), q.shape[1]),
  q=add("nbc", 1.2), k=add("mbc", 1.2), v=add("mbc"), note="fairseq's")
S("bmm_batch_first", lambda q, k, v: (lambda f, b, n: torch.bmm(soft(torch.bmm(f(q) * A, f(k).transpose(1, 2))),
                                                                f(v)).view(b, 4, n, 8).transpose(1, 2).reshape(b, n,
                                                                    32))(
    lambda t: t.view(t.shape[0], -1, 4, 8).transpose(1, 2).reshape(t.shape[0] * 4, -1, 8), q.shape[0], q.shape[1]),
  **FLAT, note="BART's")
S("bmm_heads_outermost", lambda q, k, v: (lambda f, b, n: torch.bmm(soft(torch.bmm(f(q), f(k).mT) * A), f(v)).view(4,
    b, n, 8).permute(1, 2, 0, 3).reshape(b, n, 32))(
    lambda t: t.view(t.shape[0], -1, 4, 8).permute(2, 0, 1, 3).reshape(4 * t.shape[0], -1, 8), q.shape[0],
    q.shape[1]), **FLAT, note="H*B, not B*H")
S("bmm_heads_outermost_mask",
  lambda q, k, v, mask: (lambda f, b, n: torch.bmm(soft(torch.bmm(f(q), f(k).mT) * A + mask.repeat(4, 1, 1)),
                                                   f(v)).view(4, b, n, 8).permute(1, 2, 0, 3).reshape(b, n, 32))(
    lambda t: t.view(t.shape[0], -1, 4, 8).permute(2, 0, 1, 3).reshape(4 * t.shape[0], -1, 8), q.shape[0],
    q.shape[1]), **FLAT, mask=add("bnm"), note="an Annotated Transformer's repeat")
S("baddbmm_mask", lambda q, k, v, mask: torch.bmm(soft(torch.baddbmm(mask, q, k.mT)), v), mask=add("bnm"),
  **{**THREE, "q": add("bnd", 0.5)})
S("baddbmm_alpha", lambda q, k, v, mask: torch.bmm(soft(torch.baddbmm(mask, q, k.mT, alpha=A)), v), mask=add("bnm"),
  **THREE)
S("baddbmm_beta_alpha", lambda q, k, v, mask: torch.bmm(soft(torch.baddbmm(mask, q, k.mT, beta=0.5, alpha=A)), v),
  mask=add("bnm"), **THREE)
S("baddbmm_beta_0", lambda q, k, v: torch.bmm(soft(torch.baddbmm(torch.empty(q.shape[0], q.shape[1], k.shape[1]), q,
                                                                 k.mT, beta=0, alpha=A)), v), **THREE,
  note="CompVis: an empty one, beta 0")
S("baddbmm_zeros", lambda q, k, v: torch.bmm(soft(torch.baddbmm(torch.zeros(1), q, k.mT, alpha=A)), v), **THREE)
S("baddbmm_broadcast", lambda q, k, v, mask: torch.bmm(soft(torch.baddbmm(mask, q, k.mT, alpha=A)), v),
  mask=add("b1m"), **THREE)
S("baddbmm_2d_mask", lambda q, k, v, mask: torch.bmm(soft(torch.baddbmm(mask, q, k.mT, alpha=A)), v), mask=add("nm"),
  **THREE)
S("baddbmm_then_mask", lambda q, k, v, mask, drop: torch.bmm(soft(torch.baddbmm(mask, q, k.mT, beta=1.0,
                                                                                alpha=A).masked_fill(drop, MIN)), v),
  mask=add("b1m"), drop=drop("bnm"), **THREE, note="BLOOM's")
S("baddbmm_method", lambda q, k, v, mask: torch.bmm(soft(mask.baddbmm(q, k.mT, beta=0.7, alpha=A)), v),
  mask=add("bnm"), **THREE)

# ------------------------------------------------------------------ transposed
S("transposed_output", lambda q, k, v: (v.mT @ soft(q @ k.mT * A).mT).mT, note="(V^T P^T)^T")
S("transposed_output_kept", lambda q, k, v: v.mT @ soft(q @ k.mT * A).mT, note="the output stays transposed")
S("transposed_scores", lambda q, k, v: soft((k @ q.mT * A).mT) @ v, note="(K Q^T)^T")
S("transposed_scores_mask", lambda q, k, v, mask: soft((k @ q.mT * A).transpose(-2, -1) + mask) @ v)
S("transposed_scores_mask_inside", lambda q, k, v, mask: soft((k @ q.mT * A + mask).mT) @ v, mask=add("b1mn"))
S("transposed_softmax", lambda q, k, v: (k @ q.mT * A).softmax(-2).mT @ v, note="K Q^T, softmax over its rows")
S("transposed_softmax_dim_2", lambda q, k, v: (k @ q.mT * A).softmax(2).transpose(2, 3) @ v)
S("transposed_softmax_v", lambda q, k, v: v.mT @ (k @ q.mT * A).softmax(-2), note="V^T softmax_rows(K Q^T)")
S("transposed_softmax_v_back", lambda q, k, v: (v.mT @ (k @ q.mT * A).softmax(-2)).mT)
S("transposed_softmax_mask", lambda q, k, v, mask: (k @ q.mT * A + mask).softmax(-2).mT @ v, mask=add("b1mn"))
S("transposed_softmax_padding", lambda q, k, v, pad: (k @ q.mT * A).masked_fill(~pad[:, None, :, None],
                                                                                -INF).softmax(-2).mT @ v)
S("transposed_softmax_weights", lambda q, k, v: (lambda p: (p.mT @ v, p))((k @ q.mT * A).softmax(-2)))
S("transposed_everything", lambda q, k, v: (v @ (k.mT @ q * A).softmax(-2)), q=add("bhdn", 1.2), k=add("bhdm", 1.2),
  v=add("bhem"), note="channels first throughout")
S("transposed_twice", lambda q, k, v: soft((q @ k.mT).mT.mT * A).mT.mT @ v)
S("transposed_three_bmm", lambda q, k, v: torch.bmm(v.mT, soft(torch.bmm(q, k.mT) * A).mT).mT, **THREE)
S("transposed_axis_1", lambda q, k, v: torch.bmm((torch.bmm(k, q.mT) * A).softmax(1).mT, v), **THREE,
  note="(B, M, N): softmax over dimension 1 is over the keys")
S("transposed_axis_0", lambda q, k, v: (k @ q.T * A).softmax(0).T @ v, **TWO, dynamic="nm",
  note="(M, N): softmax over dimension 0 is over the keys")
S("softmax_after_permute", lambda q, k, v: (q @ k.mT * A).permute(0, 2, 3, 1).softmax(2).permute(0, 3, 1, 2) @ v,
  note="(B, N, M, H): dimension 2 is the keys")

# ------------------------------------------------------------------ dot products spelled as sums
S("sum_scores", lambda q, k, v: soft((q[..., :, None, :] * k[..., None, :, :]).sum(-1) * A) @ v)
S("sum_values", lambda q, k, v: (soft(q @ k.mT * A)[..., None] * v[..., None, :, :]).sum(-2))
S("sum_both",
  lambda q, k, v: (soft((q.unsqueeze(3) * k.unsqueeze(2)).sum(-1) * A).unsqueeze(-1) * v.unsqueeze(2)).sum(3))
S("sum_keepdim", lambda q, k, v: soft((q.unsqueeze(3) * k.unsqueeze(2)).sum(-1, keepdim=True).squeeze(-1) * A) @ v)
S("sum_scaled_inside", lambda q, k, v: soft((q[..., :, None, :] * A * k[..., None, :, :]).sum(-1)) @ v)
S("sum_bnhd", lambda q, k, v: soft((q[:, :, None] * k[:, None]).sum(-1).permute(0, 3, 1, 2) * A) @ v.transpose(1, 2),
  **BN)
S("sum_softmax_keepdim", lambda q, k, v: ((q.unsqueeze(3) * k.unsqueeze(2)).sum(-1, True).mul(A).softmax(3)
                                          * v.unsqueeze(2)).sum(3), note="scores (B, H, N, M, 1)")
S("matmul_vector", lambda q, k, v: soft((k[:, :, None] @ q[..., None])[..., 0] * A) @ v,
  note="one matrix-vector product a query")
