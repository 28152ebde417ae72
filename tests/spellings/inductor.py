"""The thirty forms that torch._inductor's own matcher knows (its fuse_attention.py numbers them),
each at several lengths, dropout at rest."""
from spell import *

BN = dict(q=add("bnhd", 1.2), k=add("bmhd", 1.2), v=add("bmhd"))
MASK = dict(mask=add("b1nm"))
KEEP = dict(pad=padding(torch.int64))
STEP = 2.5      # what the scores are divided by


def heads(*ts):
    return [t.permute(0, 2, 1, 3) for t in ts]


def p(n, f, **options):
    S(f"sfdp_{n:02d}", f, **options)


rest = lambda t: F.dropout(t, 0.1, training=False)

p(1, lambda q, k, v: torch.matmul(q, k.transpose(-2, -1)).div(STEP).softmax(dim=-1).matmul(v))
p(2, lambda q, k, v: torch.matmul(q, k.transpose(-2, -1)).mul(0.4).softmax(dim=-1).matmul(v))
p(3, lambda q, k, v: rest(torch.matmul(q, k.transpose(-2, -1)).div(STEP).softmax(dim=-1)).matmul(v))
p(4, lambda q, k, v: rest(torch.matmul(q, k.transpose(-2, -1)).mul(0.4).softmax(dim=-1)).matmul(v))
p(5, lambda q, k, v, mask: torch.softmax(q @ k.transpose(-2, -1) / STEP + mask, dim=-1) @ v, **MASK)
p(6, lambda q, k, v, mask: torch.dropout(torch.softmax(q @ k.transpose(-2, -1) / STEP + mask, dim=-1), 0.0, True) @ v,
  **MASK)


def _half(q, k, v, before, drop):
    q, k, v = heads(q, k, v)
    s = (q / STEP) @ k.transpose(-2, -1) if before else q @ k.transpose(-2, -1) / STEP
    w = torch.softmax(s.to(torch.float32), dim=-1)
    w = (torch.dropout(w, 0.0, True) if drop else w).to(torch.float16)
    return w @ v.to(w.dtype)


for _n, _before, _drop in ((7, False, True), (8, False, False), (9, True, True), (10, True, False)):
    p(_n, lambda q, k, v, before=_before, drop=_drop: _half(q, k, v, before, drop), **BN, dtype=torch.float16)


def _plain(q, k, v, f=lambda t: t):
    q, k, v = heads(q, k, v)
    return f(torch.matmul(q, k.transpose(-2, -1)).div(STEP).softmax(dim=-1)).matmul(v)


p(11, lambda q, k, v: _plain(q, k, v), **BN)
p(12, lambda q, k, v: _plain(q, k, v, rest), **BN)
p(13, lambda q, k, v: torch.bmm(rest(torch.bmm(q, k.transpose(1, 2)).softmax(dim=-1)), v), q=add("bnd", 0.5),
  k=add("bmd", 1.2), v=add("bmd"))


def _bert(q, k, v, mask, f=lambda t: t):
    q, k, v = heads(q, k, v)
    return f((torch.matmul(q, k.transpose(-2, -1)).div(STEP) + mask).softmax(dim=-1)).to(dtype=q.dtype).matmul(v)


p(14, lambda q, k, v, mask: _bert(q, k, v, mask), **BN, **MASK)
p(16, lambda q, k, v, mask: _bert(q, k, v, mask, rest), **BN, **MASK)


def _distil(q, k, v, pad, before, f=lambda t: t):
    q, k, v = heads(q, k, v)
    s = (q.div(STEP) @ k.transpose(-2, -1)) if before else (q @ k.transpose(-2, -1)).div(STEP)
    fill = torch.full((), -float("inf"), dtype=q.dtype, device=q.device)
    return f(torch.softmax(s.masked_fill((pad == 0).view((q.size(0), 1, 1, k.size(-2))).expand_as(s), fill),
                           dim=-1)) @ v


p(15, lambda q, k, v, pad: _distil(q, k, v, pad, False), **BN, **KEEP)
p(17, lambda q, k, v, pad: _distil(q, k, v, pad, False, rest), **BN, **KEEP)
p(20, lambda q, k, v, pad: _distil(q, k, v, pad, True, rest), **BN, **KEEP)


def _gpt2(q, k, v, keep, mask=None):
    s = torch.matmul(q, k.permute(0, 1, 3, 2))
    s = s.div(torch.full([], STEP, dtype=s.dtype, device=s.device))
    s = torch.where(keep, s, torch.full((), torch.finfo(q.dtype).min, dtype=q.dtype, device=q.device))
    if mask is not None:
        return rest((s + mask).softmax(dim=-1).type(v.dtype)).matmul(v)
    return rest(s.softmax(dim=-1)).matmul(v), k, v


p(18, lambda q, k, v, keep: _gpt2(*heads(q, k, v), keep), **BN)
p(19, lambda q, k, v, keep, mask: _gpt2(q, k, v, keep, mask), mask=add("b11m"))


def _t5(q, k, v, mask, f, more):
    q, k, v = heads(q, k, v)
    s = torch.matmul(q, k.permute(0, 1, 3, 2))
    s = (s if mask is None else s + mask).type_as(q)
    o = f(s.float().softmax(dim=-1).type_as(q)).matmul(v)
    return (o, k, v) if more else o


_small = {**BN, "q": add("bnhd", 0.5)}
for _n, _masked, _f, _more in ((21, True, lambda t: t, False), (22, True, lambda t: t, True), (25, True, rest, False),
                               (26, True, rest, True)):
    p(_n, lambda q, k, v, mask, f=_f, more=_more: _t5(q, k, v, mask, f, more), **_small, **MASK)
    S(f"sfdp_{_n}_bf16", lambda q, k, v, mask, f=_f, more=_more: _t5(q, k, v, mask, f, more), **_small, **MASK,
      dtype=torch.bfloat16)
p(23, lambda q, k, v: _t5(q, k, v, None, lambda t: t, True), **_small)
p(27, lambda q, k, v: _t5(q, k, v, None, rest, True), **_small)


def _mbart(q, k, v, mask):
    b, h, n, d = q.size()
    q, k, v = q.view(b * h, -1, d), k.reshape(b * h, -1, d), v.reshape(b * h, -1, d)
    s = torch.bmm(q, k.transpose(1, 2)).view(b, h, n, -1) + mask
    return torch.bmm(F.softmax(s.view(b * h, n, -1), dim=-1), v).view(b, h, n, d)


p(24, _mbart, q=add("bhnd", 0.5), v=add("bhmd"), **MASK)
p(28, lambda q, k, v: rest(torch.matmul(q.mT, k).mul(0.4).softmax(dim=-1)).matmul(v.mT), q=add("bhdn", 1.2),
  k=add("bhdm", 1.2), v=add("bhdm"), note="q, k, v are not contiguous")


def _math(q, k, v, mask=None):
    q, k, v = heads(q, k, v)
    s = torch.ops.aten.mul.Scalar(q, 0.63) @ torch.ops.aten.mul.Scalar(k.transpose(-2, -1), 0.63)
    return torch.ops.aten._safe_softmax(s if mask is None else s + mask, -1) @ v


p(29, lambda q, k, v, mask: _math(q, k, v, mask), **BN, **MASK)
p(30, lambda q, k, v: _math(q, k, v), **BN)
