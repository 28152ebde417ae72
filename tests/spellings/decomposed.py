"""F.scaled_dot_product_attention as it is, and what ep.run_decompositions() leaves of it and of decomposed forms:
core ATen."""
from spell import *

sdpa = F.scaled_dot_product_attention


def both(name, f, core=True, **options):
    S("sdpa_" + name, f, **options)
    if core:
        S("core_sdpa_" + name, f, decompose=True, **options)


KV = dict(k=add("bgmd", 1.2), v=add("bgme"))
SELF = dict(k=add("bhnd", 1.2), v=add("bhne"))
both("plain", lambda q, k, v: sdpa(q, k, v))
both("square", lambda q, k, v: sdpa(q, k, v), v=add("bhmd"))
both("scale", lambda q, k, v: sdpa(q, k, v, scale=0.6))
both("scale_one", lambda q, k, v: sdpa(q, k, v, scale=1.0), q=add("bhnd", 0.5))
both("bool", lambda q, k, v, keep: sdpa(q, k, v, attn_mask=keep))
both("bool_scale", lambda q, k, v, keep: sdpa(q, k, v, attn_mask=keep, scale=0.5))
both("bool_broadcast", lambda q, k, v, keep: sdpa(q, k, v, attn_mask=keep), keep=keep("b11m"))
both("bool_2d", lambda q, k, v, keep: sdpa(q, k, v, attn_mask=keep), keep=keep("nm"))
both("bool_dead", lambda q, k, v, keep: sdpa(q, k, v, attn_mask=keep), keep=dead_keep("b1nm"),
     note="0 in rows that attend nowhere, on both sides")
both("float", lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask))
both("float_heads", lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask), mask=add("bhnm"))
both("float_inf", lambda q, k, v, keep: sdpa(q, k, v, attn_mask=torch.where(keep, 0.0, -INF)), keep=dead_keep("b1nm"))
both("float_min", lambda q, k, v, keep: sdpa(q, k, v, attn_mask=torch.where(keep, 0.0, MIN)))
both("causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), **SELF)
both("causal_rectangle", lambda q, k, v: sdpa(q, k, v, is_causal=True))
both("causal_scale", lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=0.6), **SELF)
both("gqa", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), **KV)
both("gqa_causal", lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True), k=add("bgnd", 1.2), v=add("bgne"))
both("gqa_bool", lambda q, k, v, keep: sdpa(q, k, v, attn_mask=keep, enable_gqa=True), **KV)
both("bnhd", lambda q, k, v: sdpa(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2),
     q=add("bnhd", 1.2), k=add("bmhd", 1.2), v=add("bmhe"))
both("three", lambda q, k, v: sdpa(q, k, v), q=add("bnd", 1.2), k=add("bmd", 1.2), v=add("bme"))
both("three_float", lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask), q=add("bnd", 1.2), k=add("bmd", 1.2),
     v=add("bme"), mask=add("bnm"))
both("five", lambda q, k, v: sdpa(q, k, v), q=add("b3hnd", 1.2), k=add("b3hmd", 1.2), v=add("b3hme"))
both("broadcast_batch", lambda q, k, v: sdpa(q, k.expand(q.shape[0], -1, -1, -1), v.expand(q.shape[0], -1, -1, -1)),
     k=add("1hmd", 1.2), v=add("1hme"))
for _dt, _n in ((torch.float16, "f16"), (torch.bfloat16, "bf16"), (torch.float64, "f64")):
    both(_n, lambda q, k, v: sdpa(q, k, v), dtype=_dt)
    both(_n + "_bool", lambda q, k, v, keep: sdpa(q, k, v, attn_mask=keep), dtype=_dt)


def core(name, f, **options):
    S("core_" + name, f, decompose=True, **options)


core("matmul", lambda q, k, v: soft(q @ k.mT / 2.5) @ v)
core("matmul_mask", lambda q, k, v, mask: soft(q @ k.mT / 2.5 + mask) @ v)
core("matmul_fill", lambda q, k, v, drop: soft((q @ k.mT / 2.5).masked_fill(drop, -INF)) @ v)
core("matmul_where", lambda q, k, v, keep: soft(torch.where(keep, q @ k.mT / 2.5, MIN)) @ v)
core("matmul_causal", lambda q, k, v: soft((q @ k.mT * 0.4).masked_fill(torch.ones(q.shape[2], q.shape[2],
    dtype=torch.bool).triu(1), -INF)) @ v, **SELF)
core("matmul_causal_tril", lambda q, k, v: soft((q @ k.mT * 0.4).masked_fill(torch.ones(q.shape[2],
    q.shape[2]).tril() == 0, -INF)) @ v, **SELF)
core("matmul_window", lambda q, k, v: (lambda i: soft((q @ k.mT * 0.4).masked_fill((i[:, None] - i[None]).abs() > 2,
    -INF)) @ v)(torch.arange(q.shape[2])), **SELF)
core("matmul_padding", lambda q, k, v, pad: soft((q @ k.mT * 0.4) + (1.0 - pad[:, None, None].float()) * -1e4) @ v)
core("matmul_f32", lambda q, k, v: F.softmax(q @ k.mT * 0.4, -1, dtype=torch.float32).to(q.dtype) @ v,
     dtype=torch.bfloat16)
core("einsum", lambda q, k, v: torch.einsum("bhqk,bkhd->bqhd", soft(torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.4), v),
     q=add("bnhd", 1.2), k=add("bmhd", 1.2), v=add("bmhe"))
core("einsum_grouped", lambda q, k, v: torch.einsum("bgrnm,bgme->bgrne",
                                                    soft(torch.einsum("bgrnd,bgmd->bgrnm", q, k) * 0.4), v),
     q=add("bgrnd", 1.2), k=add("bgmd", 1.2), v=add("bgme"))
core("bnhd", lambda q, k, v: (soft(q.transpose(1, 2) @ k.permute(0, 2, 3, 1) * 0.4) @ v.transpose(1, 2)).transpose(1,
    2).reshape(q.shape[0], q.shape[1], -1), q=add("bnhd", 1.2), k=add("bmhd", 1.2), v=add("bmhe"))
core("gqa", lambda q, k, v: (lambda f: soft(q @ f(k).mT * 0.4) @ f(v))(lambda t: t[:, :, None].expand(-1, -1, 2, -1,
    -1).flatten(1, 2)), **KV)
core("gqa_repeat_interleave", lambda q, k, v: soft(q @ k.repeat_interleave(2, 1).mT * 0.4) @ v.repeat_interleave(2,
    1), **KV)
core("softcap", lambda q, k, v: soft(torch.tanh(q @ k.mT * 0.4 / 4) * 4) @ v)
core("hand_softmax", lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True))
                                      @ v)((lambda s: (s - s.amax(-1, keepdim=True)).exp())(q @ k.mT * 0.4)))
core("logsumexp", lambda q, k, v: (lambda s: (s - s.logsumexp(-1, keepdim=True)).exp() @ v)(q @ k.mT * 0.4))
core("baddbmm", lambda q, k, v, mask: torch.bmm(soft(torch.baddbmm(mask, q, k.mT, beta=0.5, alpha=0.4)), v),
     q=add("bnd", 1.2), k=add("bmd", 1.2), v=add("bme"), mask=add("bnm"))
core("transposed", lambda q, k, v: (v.mT @ soft(q @ k.mT * 0.4).mT).mT)
core("keys_first", lambda q, k, v: (k @ q.mT * 0.4).softmax(-2).mT @ v)
core("weights_returned", lambda q, k, v: (lambda p: (p @ v, p))(soft(q @ k.mT * 0.4)))
core("rotary", lambda q, k, v, cos, sin: (lambda r: soft(r(q) @ r(k).mT * 0.4) @ v)(lambda t: t * cos
    + torch.cat([-t[..., 4:], t[..., :4]], -1) * sin), cos=add("nd", 0.7), sin=add("nd", 0.7), **SELF)
core("two", lambda q, k, v: soft(q @ k.T * 0.4) @ v, q=add("nd", 1.2), k=add("md", 1.2), v=add("me"), dynamic="nm")
core("sum_scores", lambda q, k, v: soft((q[..., :, None, :] * k[..., None, :, :]).sum(-1) * 0.4) @ v)
