"""Fewer key and value heads than query heads: repeated, expanded, grouped in five dimensions, broadcast, indexed;
multi-query."""
from spell import *

KV = dict(k=add("bgmd", 1.2), v=add("bgme"))
A = 0.4


def attend(q, k, v):
    return soft(q @ k.mT * A) @ v


def repeat_kv(t, r):
    b, g, m, d = t.shape
    return t[:, :, None, :, :].expand(b, g, r, m, d).reshape(b, g * r, m, d)


S("gqa_repeat_interleave", lambda q, k, v: attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)), **KV)
S("gqa_repeat_interleave_dim", lambda q, k, v: attend(q, torch.repeat_interleave(k, repeats=2, dim=-3),
                                                      torch.repeat_interleave(v, repeats=2, dim=-3)), **KV)
S("gqa_expand_reshape", lambda q, k, v: attend(q, repeat_kv(k, 2), repeat_kv(v, 2)), **KV,
  note="transformers' repeat_kv")
S("gqa_expand_reshape_mask", lambda q, k, v, mask: soft(q @ repeat_kv(k, 2).transpose(2, 3) * A + mask[:, :, :,
    : k.shape[2]]) @ repeat_kv(v, 2), **KV)
S("gqa_expand_reshape_f32", lambda q, k, v: F.softmax(q @ repeat_kv(k, 2).transpose(2, 3) * A, dim=-1,
                                                      dtype=torch.float32).to(q.dtype) @ repeat_kv(v, 2), **KV,
  dtype=torch.bfloat16)
S("gqa_expand_reshape_causal", lambda q, k, v: soft((q @ repeat_kv(k, 2).mT * A).masked_fill(torch.ones(q.shape[2],
    q.shape[2], dtype=torch.bool).triu(1), -INF)) @ repeat_kv(v, 2), k=add("bgnd", 1.2), v=add("bgne"))
S("gqa_expand_flatten", lambda q, k, v: attend(q, k.unsqueeze(2).expand(-1, -1, 2, -1, -1).flatten(1, 2),
                                               v.unsqueeze(2).expand(-1, -1, 2, -1, -1).flatten(1, 2)), **KV)
S("gqa_repeat_5d_view", lambda q, k, v: (lambda f: attend(q, f(k), f(v)))(lambda t: t.unsqueeze(2).repeat(1, 1, 2, 1,
    1).view(t.shape[0], 4, -1, t.shape[-1])), **KV)
S("gqa_stack_flatten", lambda q, k, v: attend(q, torch.stack([k, k], 2).flatten(1, 2),
                                              torch.stack([v, v], 2).flatten(1, 2)), **KV)
S("gqa_index_select", lambda q, k, v: attend(q, k[:, [0, 0, 1, 1]], v[:, [0, 0, 1, 1]]), **KV)
S("gqa_index_arange", lambda q, k, v: (lambda i: attend(q, k[:, i], v.index_select(1, i)))(torch.arange(4) // 2), **KV)
S("gqa_grouped", lambda q, k, v: attend(q.unflatten(1, (2, 2)), k[:, :, None], v[:, :, None]).flatten(1, 2), **KV)
S("gqa_grouped_view", lambda q, k, v: (soft(q.view(q.shape[0], 2, 2, -1, 8) @ k.unsqueeze(2).transpose(-2, -1) * A)
                                       @ v.unsqueeze(2)).view(q.shape[0], 4, -1, 6), **KV)
S("gqa_grouped_mask", lambda q, k, v, mask: (soft(q.unflatten(1, (2, 2)) @ k[:, :, None].mT * A + mask[:, :, None])
                                             @ v[:, :, None]).flatten(1, 2), **KV)
S("gqa_grouped_causal",
  lambda q, k, v: (soft((q.unflatten(1, (2, 2)) @ k[:, :, None].mT * A).masked_fill(torch.ones(q.shape[2], q.shape[2],
      dtype=torch.bool).triu(1), -INF)) @ v[:, :, None]).flatten(1, 2),
  k=add("bgnd", 1.2), v=add("bgne"))
S("gqa_grouped_five_inputs", lambda q, k, v: attend(q, k, v), q=add("bgrnd", 1.2), k=add("bg1md", 1.2), v=add("bg1me"))
S("gqa_grouped_einsum", lambda q, k, v: torch.einsum("bgrnm,bgme->bgrne",
                                                     soft(torch.einsum("bgrnd,bgmd->bgrnm", q.unflatten(1, (2, 2)),
                                                                       k) * A), v).flatten(1, 2), **KV)
S("gqa_grouped_einsum_bn", lambda q, k, v: torch.einsum("bgrnm,bmge->bngre",
                                                        soft(torch.einsum("bngrd,bmgd->bgrnm",
                                                                          q.view(q.shape[0], -1, 2, 2, 8), k) * A),
                                                        v).flatten(2, 3), q=add("bnhd", 1.2), k=add("bmgd", 1.2),
  v=add("bmge"))
S("gqa_grouped_rows", lambda q, k, v: attend(q.unflatten(1, (2, 2)).flatten(2, 3), k, v).unflatten(2,
    (2, -1)).flatten(1, 2), **KV, note="the group's queries one after another: (B, G, r*N, D)")
S("gqa_grouped_scores_in_4d", lambda q, k, v: (soft((q.unflatten(1, (2, 2)) @ k[:, :, None].mT * A).flatten(1,
    2)).unflatten(1, (2, 2)) @ v[:, :, None]).flatten(1, 2), **KV)
S("gqa_tiled", lambda q, k, v: attend(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)), **KV,
  note="head h reads h mod G, not h div r")
S("gqa_tiled_cat", lambda q, k, v: attend(q, torch.cat([k, k], 1), torch.cat([v, v], 1)), **KV, note="the same")
S("gqa_tiled_expand", lambda q, k, v: (lambda f: attend(q, f(k), f(v)))(lambda t: t[:, None].expand(-1, 2, -1, -1,
    -1).flatten(1, 2)), **KV, note="the same")
S("gqa_grouped_tiled", lambda q, k, v: attend(q.unflatten(1, (2, 2)), k[:, None], v[:, None]).flatten(1, 2), **KV,
  note="the same")
S("gqa_keys_only", lambda q, k, v: attend(q, repeat_kv(k, 2), v), k=add("bgmd", 1.2), note="values have all heads")
S("gqa_values_only", lambda q, k, v: attend(q, k, repeat_kv(v, 2)), v=add("bgme"))
S("gqa_bnhd", lambda q, k, v: attend(q.transpose(1, 2), repeat_kv(k.transpose(1, 2), 2), repeat_kv(v.transpose(1, 2),
    2)).transpose(1, 2), q=add("bnhd", 1.2), k=add("bmgd", 1.2), v=add("bmge"))
S("gqa_bnhd_repeat_before", lambda q, k, v: (lambda f: attend(q.transpose(1, 2), f(k).transpose(1, 2),
                                                              f(v).transpose(1, 2)).transpose(1,
                                                                  2))(lambda t: t.repeat_interleave(2, 2)),
  q=add("bnhd", 1.2), k=add("bmgd", 1.2), v=add("bmge"))
S("gqa_sdpa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), **KV)
S("gqa_sdpa_repeated", lambda q, k, v: F.scaled_dot_product_attention(q, repeat_kv(k, 2), repeat_kv(v, 2), scale=A),
  **KV)
S("gqa_sdpa_mask", lambda q, k, v, keep: F.scaled_dot_product_attention(q, repeat_kv(k, 2), repeat_kv(v, 2),
                                                                        attn_mask=keep), **KV)
S("gqa_softcap", lambda q, k, v: soft(torch.tanh(q @ repeat_kv(k, 2).mT * A / 4) * 4) @ repeat_kv(v, 2), **KV)
S("gqa_weights_returned", lambda q, k, v: (lambda p: (p @ repeat_kv(v, 2), p))(soft(q @ repeat_kv(k, 2).mT * A)), **KV)
S("mqa_broadcast", lambda q, k, v: attend(q, k, v), k=add("b1md", 1.2), v=add("b1me"))
S("mqa_unsqueezed", lambda q, k, v: attend(q, k[:, None], v[:, None]), k=add("bmd", 1.2), v=add("bme"))
S("mqa_expanded", lambda q, k, v: attend(q, k[:, None].expand(-1, 4, -1, -1), v[:, None].expand(-1, 4, -1, -1)),
  k=add("bmd", 1.2), v=add("bme"))
S("mqa_repeated", lambda q, k, v: attend(q, k[:, None].repeat(1, 4, 1, 1), v[:, None].repeat(1, 4, 1, 1)),
  k=add("bmd", 1.2), v=add("bme"))
S("mqa_flat_rows", lambda q, k, v: torch.bmm(soft(torch.bmm(q.reshape(q.shape[0], -1, 8), k.mT) * A),
                                             v).view(q.shape[0], 4, -1, 6), k=add("bmd", 1.2), v=add("bme"),
  note="(B, H*N, D)")
S("mqa_flat_rows_mask", lambda q, k, v, mask: (soft((q.reshape(q.shape[0], -1, 8) @ k.mT).view(q.shape[0], 4, -1,
    k.shape[1]) * A + mask) @ v[:, None]), k=add("bmd", 1.2), v=add("bme"))
S("mqa_bnhd_rows", lambda q, k, v: torch.bmm(soft(torch.bmm(q.flatten(1, 2), k.mT) * A), v).unflatten(1, (-1, 4)),
  q=add("bnhd", 1.2), k=add("bmd", 1.2), v=add("bme"), note="(B, N*H, D): GPT-BigCode's")
S("mqa_shared_values", lambda q, k: attend(q, k[:, None], k[:, None, :, :6]), k=add("bmd", 1.2),
  note="values are a slice of the keys: latent attention")
S("mla_absorbed", lambda self, q, qr, c, cr, v=None: soft((q @ c[:, None].mT + qr @ cr[:, None].mT) * A) @ c[:, None],
  q=add("bhn9", 1.0), qr=add("bhnd", 1.0), c=add("bm9", 1.0), cr=add("bmd", 1.0),
  note="two products make the scores: content and position")
S("mla_concatenated",
  lambda q, qr, k, kr, v: soft(torch.cat([q, qr], -1) @ torch.cat([k, kr[:, None].expand(-1, 4, -1, -1)],
                                                                  -1).mT * 0.3) @ v, q=add("bhn6", 1.0),
  qr=add("bhn2", 1.0), k=add("bhm6", 1.0), kr=add("bm2", 1.0))
