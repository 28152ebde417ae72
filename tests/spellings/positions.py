"""Positions and memory around attention: rotary embedding, caches, T5's, Swin's, SAM's, ALiBi's and others' biases;
norms of q and k; sinks."""
from spell import *

A = 0.4
SELF = dict(k=add("bhnd", 1.2), v=add("bhne"))


def attend(q, k, v):
    return soft(q @ k.mT * A) @ v


# ------------------------------------------------------------------ rotary
def half(t):
    a, b = t.chunk(2, -1)
    return torch.cat([-b, a], -1)


def half_sliced(t):
    return torch.cat((-t[..., t.shape[-1] // 2 :], t[..., : t.shape[-1] // 2]), dim=-1)


def angles(n, width=4, base=100.0):
    return torch.arange(n)[:, None] * base ** (-torch.arange(width) / width)


def pairs(t, a):
    x, y = t.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([x * a.cos() - y * a.sin(), x * a.sin() + y * a.cos()], -1).flatten(-2)


def strided(t, a):
    x, y = t[..., ::2], t[..., 1::2]
    return torch.stack([x * a.cos() - y * a.sin(), y * a.cos() + x * a.sin()], -1).flatten(-2)


TABLE = dict(cos=add("nd", 0.7), sin=add("nd", 0.7), **SELF)
S("rotary_half_inputs", lambda q, k, v, cos, sin: attend(q * cos + half(q) * sin, k * cos + half(k) * sin, v), **TABLE)
S("rotary_half_batched", lambda q, k, v, cos, sin: (lambda c, s: attend(q * c + half_sliced(q) * s,
                                                                        k * c + half_sliced(k) * s,
                                                                        v))(cos.unsqueeze(1), sin.unsqueeze(1)),
  cos=add("bnd", 0.7), sin=add("bnd", 0.7), **SELF)
S("rotary_half_computed", lambda q, k, v: (lambda e: attend(q * e.cos() + half(q) * e.sin(),
                                                            k * e.cos() + half(k) * e.sin(),
                                                            v))(torch.cat([angles(q.shape[2])] * 2, -1)), **SELF)
S("rotary_half_causal",
  lambda q, k, v: (lambda e, n: soft((lambda r: r(q) @ r(k).mT * A)(lambda t: t * e.cos() + half(t)
                                                                    * e.sin()).masked_fill(torch.ones(n, n,
                                                                        dtype=torch.bool).triu(1), -INF)) @ v)(
    torch.cat([angles(q.shape[2])] * 2, -1), q.shape[2]), **SELF)
S("rotary_half_scale_after",
  lambda q, k, v, cos, sin: soft(((q * cos + half(q) * sin) * A) @ (k * cos + half(k) * sin).mT) @ v, **TABLE)
S("rotary_half_sdpa", lambda q, k, v, cos, sin: F.scaled_dot_product_attention(q * cos + half(q) * sin,
                                                                               k * cos + half(k) * sin, v,
                                                                               is_causal=True), **TABLE)
S("rotary_pairs", lambda q, k, v: (lambda a: attend(pairs(q, a), pairs(k, a), v))(angles(q.shape[2])), **SELF)
S("rotary_pairs_strided", lambda q, k, v: (lambda a: attend(strided(q, a), strided(k, a), v))(angles(q.shape[2])),
  **SELF)
S("rotary_complex",
  lambda q, k, v: (lambda a: (lambda r: attend(r(q), r(k),
                                               v))(lambda t: torch.view_as_real(torch.view_as_complex(t.unflatten(-1,
                                                   (-1, 2)).contiguous()) * torch.polar(torch.ones_like(a),
                                                       a)).flatten(-2)))(
    angles(q.shape[2])), **SELF, note="Llama's own")
S("rotary_partial",
  lambda q, k, v: (lambda e: (lambda r: attend(r(q), r(k),
                                               v))(lambda t: torch.cat([t[..., :4] * e.cos() + half(t[..., :4])
                                                                        * e.sin(), t[..., 4:]],
                                                                       -1)))(torch.cat([angles(q.shape[2], 2)] * 2,
                                                                           -1)), **SELF,
  note="half of each head turns")
S("rotary_bnhd", lambda q, k, v, cos, sin: (lambda r: attend(r(q).transpose(1, 2), r(k).transpose(1, 2),
                                                             v.transpose(1, 2)).transpose(1, 2))(lambda t: t * cos[:,
                                                                 None] + half(t) * sin[:, None]), q=add("bnhd", 1.2),
  k=add("bnhd", 1.2), v=add("bnhe"), cos=add("nd", 0.7), sin=add("nd", 0.7))
S("rotary_gqa", lambda q, k, v, cos, sin: (lambda r, x: attend(r(q), x(r(k)), x(v)))(lambda t: t * cos + half(t)
    * sin, lambda t: t[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2)), k=add("bgnd", 1.2), v=add("bgne"),
  cos=add("nd", 0.7), sin=add("nd", 0.7))
S("rotary_gathered", lambda q, k, v, at: (lambda c, s: attend(q * c + half(q) * s, k * c + half(k) * s,
                                                              v))(torch.cat([angles(16)] * 2, -1).cos()[at][:, None],
                                                                  torch.cat([angles(16)] * 2, -1).sin()[at][:, None]),
  at=integer("bn", 16), **SELF, note="position ids")
S("rotary_two_axes",
  lambda q, k, v: (lambda e: (lambda r: attend(r(q), r(k), v))(lambda t: t * e.cos() + torch.cat([half(t[..., :4]),
      half(t[..., 4:])], -1) * e.sin()))(
    (lambda i: torch.cat([(i // 3)[:, None] * torch.tensor([1.0, 0.1, 1.0, 0.1]), (i % 3)[:,
        None] * torch.tensor([1.0, 0.1, 1.0, 0.1])], -1))(torch.arange(q.shape[2]))), **SELF,
  note="rows and columns of an image")
S("rotary_qk_norm", lambda self, q, k, v, cos, sin: (lambda r: attend(r(self.a(q)), r(self.b(k)),
                                                                      v))(lambda t: t * cos + half(t) * sin),
  parts=dict(a=lambda: nn.RMSNorm(8), b=lambda: nn.RMSNorm(8)), **TABLE)

# ------------------------------------------------------------------ caches
PAST = dict(k=add("bhnd", 1.2), v=add("bhne"), pk=add("bhmd", 1.2), pv=add("bhme"))
S("cache_cat", lambda q, k, v, pk, pv: attend(q, torch.cat([pk, k], 2), torch.cat([pv, v], 2)), **PAST)
S("cache_cat_returned", lambda q, k, v, pk, pv: (lambda k, v: (attend(q, k, v), k, v))(torch.cat([pk, k], 2),
    torch.cat([pv, v], dim=-2)), **PAST)
S("cache_cat_causal",
  lambda q, k, v, pk, pv: (lambda k, v: soft((q @ k.mT * A).masked_fill(torch.ones(q.shape[2], k.shape[2],
      dtype=torch.bool).triu(k.shape[2] - q.shape[2] + 1), -INF)) @ v)(torch.cat([pk, k], 2), torch.cat([pv, v], 2)),
  **PAST)
S("cache_cat_mask",
  lambda q, k, v, pk, pv, keep: soft((q @ torch.cat([pk, k], 2).mT * A)
                                     + torch.where(torch.cat([keep, torch.ones(q.shape[0], 1, q.shape[2], q.shape[2],
                                                                               dtype=torch.bool)], -1), 0.0, MIN))
  @ torch.cat([pv, v], 2),
  keep=keep("b1nm"), **PAST)
S("cache_cat_bnhd", lambda q, k, v, pk, pv: (lambda k, v: attend(q.transpose(1, 2), k.transpose(1, 2),
                                                                 v.transpose(1, 2)).transpose(1,
                                                                     2))(torch.cat([pk, k], 1),
                                                                         torch.cat([pv, v], 1)), q=add("bnhd", 1.2),
  k=add("bnhd", 1.2),
  v=add("bnhe"), pk=add("bmhd", 1.2), pv=add("bmhe"))
S("cache_stacked", lambda q, k, v, past: (lambda k, v: attend(q, k, v))(torch.cat([past[0], k], 2),
                                                                        torch.cat([past[1], v], 2)),
  past=add("2bhmd", 1.2), k=add("bhnd", 1.2), v=add("bhnd"))
S("cache_one_token", lambda q, k, v, pk, pv: attend(q, torch.cat([pk, k], 2), torch.cat([pv, v], 2)),
  q=add("bh1d", 1.2), k=add("bh1d", 1.2), v=add("bh1e"), pk=add("bhmd", 1.2), pv=add("bhme"), dynamic="bm")


def _cache_written(self, q, k, v):
    n = q.shape[2]
    kc, vc = self.kc.expand(q.shape[0], -1, -1, -1).clone(), self.vc.expand(q.shape[0], -1, -1, -1).clone()
    kc[:, :, 2 : 2 + n] = k
    vc[:, :, 2 : 2 + n] = v
    i = torch.arange(70)
    return soft((q @ kc.mT * A).masked_fill(i[None] > i[2 : 2 + n, None], -INF)) @ vc


S("cache_written", _cache_written, parts=dict(kc=lambda: rows(1, 4, 70, 8), vc=lambda: rows(1, 4, 70, 6, seed=1)),
  **SELF, note="a preallocated cache, masked beyond the last token")
S("cache_index_copy",
  lambda self, q, k, v, at: (lambda kc, vc: soft((q @ kc.mT * A).masked_fill(torch.arange(16) > at[-1], -INF)) @ vc)(
    self.kc.expand(q.shape[0], -1, -1, -1).index_copy(2, at, k), self.vc.expand(q.shape[0], -1, -1, -1).index_copy(2,
        at, v)), parts=dict(kc=lambda: rows(1, 4, 16, 8), vc=lambda: rows(1, 4, 16, 6, seed=1)),
  at=In("n", lambda g, s: torch.arange(s[0]) + 1), **SELF)
S("memory_tokens", lambda self, q, k, v: attend(q, torch.cat([self.mk.expand(q.shape[0], -1, -1, -1), k], 2),
                                                torch.cat([self.mv.expand(q.shape[0], -1, -1, -1), v], 2)),
  parts=dict(mk=lambda: nn.Parameter(rows(1, 4, 3, 8)), mv=lambda: nn.Parameter(rows(1, 4, 3, 6, seed=1))),
  note="learned keys and values first")
S("memory_zero_key", lambda q, k, v: (lambda z: attend(q, torch.cat([k, z(k)], 2), torch.cat([v, z(v)],
    2)))(lambda t: t.new_zeros(t.shape[0], 4, 1, t.shape[-1])), note="add_zero_attn")
S("memory_prefix_mask", lambda self, q, k, v, mask: soft(q @ torch.cat([self.mk.expand(q.shape[0], -1, -1, -1), k],
                                                                       2).mT * A + F.pad(mask, (3, 0)))
  @ torch.cat([self.mv.expand(q.shape[0], -1, -1, -1), v], 2),
  parts=dict(mk=lambda: nn.Parameter(rows(1, 4, 3, 8)), mv=lambda: nn.Parameter(rows(1, 4, 3, 6, seed=1))),
  note="prefix tuning")

# ------------------------------------------------------------------ biases from positions


def t5_bucket(d, buckets=8, far=20, both=True):
    """d = key position - query position."""
    out = torch.zeros_like(d)
    if both:
        buckets //= 2
        out = (d > 0).long() * buckets
        d = d.abs()
    else:
        d = -torch.minimum(d, torch.zeros_like(d))
    near = buckets // 2
    log = near + (torch.log(d.float() / near) / math.log(far / near) * (buckets - near)).long()
    return out + torch.where(d < near, d, torch.minimum(log, torch.full_like(log, buckets - 1)))


def t5(self, n, m, both=True):
    return self.bias(t5_bucket(torch.arange(m)[None] - torch.arange(n)[:, None], both=both)).permute(2, 0,
        1).unsqueeze(0)


class Table(nn.Module):
    """An embedding with numbers that matter."""
    def __init__(self, rows_, columns):
        super().__init__()
        self.t = nn.Embedding(rows_, columns)

    def forward(self, i):
        return self.t(i) * 2


BIAS = dict(bias=lambda: Table(8, 4))
S("t5_bias", lambda self, q, k, v: soft(q @ k.transpose(3, 2) + t5(self, q.shape[2], k.shape[2])) @ v,
  q=add("bhnd", 0.5), parts=BIAS)
S("t5_bias_mask", lambda self, q, k, v, pad: soft(q @ k.mT + (t5(self, q.shape[2], k.shape[2]) + torch.where(pad, 0.0,
    MIN)[:, None, None])) @ v, q=add("bhnd", 0.5), parts=BIAS)
S("t5_bias_decoder",
  lambda self, q, k, v: (lambda n: soft((q @ k.mT + t5(self, n, n, False) + torch.full((n, n),
      MIN).triu(1)).float()).type_as(q) @ v)(q.shape[2]), q=add("bhnd", 0.5), k=add("bhnd", 1.2), v=add("bhne"),
  parts=BIAS)
S("t5_bias_in_place", lambda self, q, k, v: (lambda s: soft(s.add_(t5(self, q.shape[2], k.shape[2]))) @ v)(q @ k.mT),
  q=add("bhnd", 0.5), parts=BIAS)
S("relative_clipped_bias",
  lambda self, q, k, v: (lambda i: soft(q @ k.mT * A + self.bias((i[None] - i[:, None]).clamp(-3, 3) + 3).permute(2,
      0, 1)) @ v)(torch.arange(q.shape[2])), parts=dict(bias=lambda: Table(8, 4)), **SELF)


def _window_index(w):
    c = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(1)
    r = (c[:, :, None] - c[:, None, :]).permute(1, 2, 0) + w - 1
    return r[..., 0] * (2 * w - 1) + r[..., 1]


NINE = dict(q=add("bh9d", 1.2), k=add("bh9d", 1.2), v=add("bh9e"), dynamic="b")
SWIN = dict(table=lambda: nn.Parameter(rows(25, 4) * 2), index=lambda: _window_index(3))
S("swin_bias", lambda self, q, k, v: soft(q * A @ k.mT + self.table[self.index.view(-1)].view(9, 9, -1).permute(2, 0,
    1).contiguous().unsqueeze(0)) @ v, parts=SWIN, **NINE)


class SwinMasked(nn.Module):
    """Windows of one image side by side in the batch, each with its own mask."""
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.empty(25, 4))
        self.register_buffer("index", _window_index(3))
        self.register_buffer("shift", torch.where(rows(2, 9, 9) > 0.5, -100.0,
                                                  0.0).diagonal_scatter(torch.zeros(2, 9), 0, 1, 2))

    def forward(self, q, k, v):                                   # (images, windows, H, 9, D)
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        s = (q * A) @ k.transpose(-2, -1)
        s = s + self.table[self.index.view(-1)].view(9, 9, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        s = s.view(s.shape[0] // 2, 2, 4, 9, 9) + self.shift.unsqueeze(1).unsqueeze(0)
        return soft(s.view(-1, 4, 9, 9)) @ v


S("swin_mask", SwinMasked, q=add("b2h9d", 1.2), k=add("b2h9d", 1.2), v=add("b2h9e"), dynamic="b")


class SwinV2(nn.Module):
    """Cosine attention: a scale per head, clamped, and a bias from a small network through a sigmoid."""
    def __init__(self, mask=False):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(4, 1, 1))
        self.net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 4, bias=False))
        self.register_buffer("coords", rows(25, 2))
        self.register_buffer("index", _window_index(3))

    def forward(self, q, k, v):
        s = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        s = s * torch.clamp(self.scale + 1.5, max=math.log(1.0 / 0.01)).exp()
        bias = 16 * torch.sigmoid(self.net(self.coords)[self.index.view(-1)].view(9, 9, -1).permute(2, 0, 1))
        return soft(s + bias.unsqueeze(0)) @ v


S("swin_v2_cosine", SwinV2, **NINE, note="the scale varies per head: it belongs on q")
S("cosine_per_head", lambda self, q, k, v: soft(F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.t) @ v,
  parts=dict(t=lambda: nn.Parameter(torch.tensor([2.0, 3.0, 4.0, 5.0]).view(4, 1, 1))))
S("cosine_one_scale", lambda q, k, v: soft(F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * 5) @ v)
S("cosine_divided", lambda self, q, k, v: soft((q @ k.mT) / (q.norm(dim=-1, keepdim=True) * k.norm(dim=-1)[:, :,
    None]) * 5) @ v, note="divided by both norms after the product")
S("scale_per_head_on_q", lambda self, q, k, v: soft((q * self.t) @ k.mT) @ v,
  parts=dict(t=lambda: nn.Parameter(torch.tensor([0.2, 0.3, 0.4, 0.5]).view(4, 1, 1))))


class SamBias(nn.Module):
    """SAM's decomposed relative positions: q times a table for rows, q times one for columns."""
    def __init__(self, h=3, w=4):
        super().__init__()
        self.h, self.w = h, w
        self.rh, self.rw = nn.Parameter(torch.empty(2 * h - 1, 8)), nn.Parameter(torch.empty(2 * w - 1, 8))

    def forward(self, q, k, v):                                    # (B*H, h*w, D)
        h, w = self.h, self.w
        s = (q * A) @ k.transpose(-2, -1)
        rh = self.rh[torch.arange(h)[:, None] - torch.arange(h)[None] + h - 1]
        rw = self.rw[torch.arange(w)[:, None] - torch.arange(w)[None] + w - 1]
        r = q.reshape(-1, h, w, 8)
        a = torch.einsum("bhwc,hkc->bhwk", r, rh)
        b = torch.einsum("bhwc,wkc->bhwk", r, rw)
        s = (s.view(-1, h, w, h, w) + a[:, :, :, :, None] + b[:, :, :, None, :]).view(-1, h * w, h * w)
        return soft(s) @ v


class SamSdpa(SamBias):
    def forward(self, q, k, v):
        h, w = self.h, self.w
        rh = self.rh[torch.arange(h)[:, None] - torch.arange(h)[None] + h - 1]
        rw = self.rw[torch.arange(w)[:, None] - torch.arange(w)[None] + w - 1]
        r = q.reshape(-1, h, w, 8)
        a = torch.einsum("bhwc,hkc->bhwk", r, rh)
        b = torch.einsum("bhwc,wkc->bhwk", r, rw)
        bias = (a[..., :, None] + b[..., None, :]).reshape(-1, 4, h * w, h * w)
        f = lambda t: t.reshape(-1, 4, h * w, t.shape[-1])
        return F.scaled_dot_product_attention(f(q), f(k), f(v), attn_mask=bias).reshape(q.shape[0] // 4 * 4, h * w, -1)


class SamMatmul(SamBias):
    def forward(self, q, k, v):                                    # products in place of einsum, softmax in float32
        h, w = self.h, self.w
        r = q.reshape(-1, h, w, 8)
        a = r @ self.rh[torch.arange(h)[:, None] - torch.arange(h)[None] + h - 1].transpose(1, 2)
        b = (r.transpose(1, 2) @ self.rw[torch.arange(w)[:, None] - torch.arange(w)[None] + w - 1].transpose(1,
            2)).transpose(1, 2)
        s = (q * A) @ k.transpose(-2, -1) + (a[..., None] + b[..., None, :]).reshape(-1, h * w, h * w)
        return F.softmax(s, dim=-1, dtype=torch.float32).to(q.dtype) @ v


def _grid(f):
    class Grid(f):
        def forward(self, q, k, v):
            return super().forward(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)).unflatten(0, (-1, 4))
    return Grid


def twelve(letter):
    return In("bht" + letter, lambda g, s: torch.randn(s, generator=g) * (1.2 if letter == "d" else 1.0))


FIXED["t"] = 12
for _n, _f in (("einsum", SamBias), ("sdpa", SamSdpa), ("matmul", SamMatmul)):
    S("sam_relative_" + _n, _grid(_f), q=twelve("d"), k=twelve("d"), v=twelve("e"), dynamic="b")

SLOPES = dict(slopes=lambda: torch.tensor([0.5, 0.25, 0.125, 0.0625]).view(4, 1, 1))
S("alibi_distance", lambda self, q, k, v: (lambda i: soft(q @ k.mT * A - (i[None] - i[:, None]).abs() * self.slopes)
                                           @ v)(torch.arange(q.shape[2])), parts=SLOPES, **SELF)
S("alibi_causal",
  lambda self, q, k, v: (lambda i: soft((q @ k.mT * A + self.slopes * (i[None] - i[:,
      None])).masked_fill(i[None] > i[:, None], -INF)) @ v)(torch.arange(q.shape[2])), parts=SLOPES, **SELF)
S("alibi_key_positions",
  lambda self, q, k, v: (lambda i: soft((q @ k.mT * A + self.slopes * i).masked_fill(i[None] > i[:, None], -INF))
                         @ v)(torch.arange(q.shape[2])), parts=SLOPES, **SELF,
  note="slopes times the key's position: the same under causality")
S("alibi_baddbmm",
  lambda self, q, k, v, pad: (lambda f, a: (lambda s: torch.bmm(soft(s.view(q.shape[0], 4, -1,
                                                                            k.shape[2]).masked_fill(~pad[:, None,
                                                                                None], MIN)).view(-1, q.shape[2],
                                                                                    k.shape[2]), f(v)).unflatten(0,
                                                                                        (-1, 4)))(
    torch.baddbmm(a, f(q), f(k).mT, beta=1.0, alpha=A)))(lambda t: t.flatten(0, 1),
                                                         (((pad.cumsum(-1) - 1) * pad)[:, None] * self.slopes.view(1,
                                                             4, 1)).reshape(-1, 1, k.shape[2])), parts=SLOPES,
  note="BLOOM's: alibi from the padding")
S("alibi_expanded", lambda self, q, k, v: soft(q @ k.mT * A + (self.slopes * torch.arange(1 - k.shape[2], 1)).view(1,
    4, 1, -1)) @ v, parts=SLOPES, note="MPT's")

# ------------------------------------------------------------------ biases that read q
S("shaw_keys", lambda self, q, k, v: (lambda r: soft((q @ k.mT + torch.einsum("bhnd,nmd->bhnm", q, r)) * A)
                                      @ v)(self.bias((torch.arange(q.shape[2])[None] - torch.arange(q.shape[2])[:,
                                          None]).clamp(-3, 3) + 3)),
  parts=dict(bias=lambda: Table(8, 8)), **SELF)
S("shaw_keys_values", lambda self, q, k, v: (lambda r, s: (lambda p: p @ v + torch.einsum("bhnm,nme->bhne", p,
    s))(soft((q @ k.mT + torch.einsum("bhnd,nmd->bhnm", q, r)) * A)))(
    *(t((torch.arange(q.shape[2])[None] - torch.arange(q.shape[2])[:, None]).clamp(-3, 3) + 3)
      for t in (self.a, self.c))), parts=dict(a=lambda: Table(8, 8), c=lambda: Table(8, 6)), **SELF)


def _shift(s):
    """Transformer-XL: relative positions to absolute ones by padding and viewing."""
    b, h, n, m = s.shape
    return F.pad(s, (1, 0)).view(b, h, m + 1, n)[:, :, 1:].reshape(b, h, n, m)


S("transformer_xl", lambda self, q, k, v, r: soft(((q + self.u) @ k.mT + _shift((q + self.w) @ r.mT)) * A) @ v,
  r=add("1hnd"), **SELF, parts=dict(u=lambda: nn.Parameter(rows(4, 1, 8)),
                                    w=lambda: nn.Parameter(rows(4, 1, 8, seed=1))))
S("conformer_relative", lambda self, q, k, v, r: (lambda ac, bd: soft((ac + bd) / 2.5) @ v)((q + self.u) @ k.mT,
    ((q + self.w) @ r.transpose(-2, -1))[..., : k.shape[2]]), r=add("1hmd"),
  parts=dict(u=lambda: nn.Parameter(rows(4, 1, 8)), w=lambda: nn.Parameter(rows(4, 1, 8, seed=1))))
S("deberta_disentangled",
  lambda self, q, k, v: (lambda n: (lambda i: soft((q @ k.mT + torch.gather(q @ self.r.mT, -1,
                                                                            i.expand(q.shape[0], 4, n, n))
                                                    + torch.gather(k @ self.r.mT, -1,
                                                                   i.expand(q.shape[0], 4, n, n)).mT) / 4) @ v)(
    (torch.arange(n)[:, None] - torch.arange(n)[None]).clamp(-3, 3) + 3))(q.shape[2]),
  parts=dict(r=lambda: nn.Parameter(rows(1, 4, 8, 8))), **SELF)
S("gated_bias", lambda self, q, k, v, mask: soft(q @ k.mT * A + torch.sigmoid(self.gate(q)) * mask) @ v,
  parts=dict(gate=lambda: nn.Linear(8, 1)), mask=add("1hnm"), note="WavLM's bias, gated by the query")
S("conv_bias", lambda self, q, k, v: soft(q @ k.mT * A + (q[..., None, :4] - k[..., None, :, :4]).abs().sum(-1).neg())
  @ v, note="a distance as the bias")
S("pair_bias", lambda self, q, k, v, z: soft(q @ k.mT * A + self.pair(z).permute(0, 3, 1, 2)) @ v,
  parts=dict(pair=lambda: nn.Linear(6, 4)), z=add("bnm6"), note="AlphaFold's pair representation")
S("pair_bias_gated", lambda self, q, k, v, z: (soft(q @ k.mT * A + self.pair(z).permute(0, 3, 1, 2)) @ v)
  * torch.sigmoid(self.gate(q)), parts=dict(pair=lambda: nn.Linear(6, 4), gate=lambda: nn.Linear(8, 6)), z=add("bnm6"))

# ------------------------------------------------------------------ norms of q and k, sinks
S("qk_layer_norm", lambda self, q, k, v: attend(self.a(q), self.b(k), v),
  parts=dict(a=lambda: nn.LayerNorm(8), b=lambda: nn.LayerNorm(8)))
S("qk_rms_norm", lambda self, q, k, v: attend(self.a(q), self.b(k), v),
  parts=dict(a=lambda: nn.RMSNorm(8), b=lambda: nn.RMSNorm(8)))
S("qk_normalize", lambda q, k, v: soft(10 * (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT)) @ v)
SINK = dict(sink=lambda: nn.Parameter(torch.tensor([0.5, 1.0, 2.0, 3.0])))
S("sink_column",
  lambda self, q, k, v: soft(torch.cat([q @ k.mT * A, self.sink.view(1, 4, 1, 1).expand(q.shape[0], -1, q.shape[2],
      -1)], -1))[..., :-1] @ v, parts=SINK, note="gpt-oss's: one more column a head, dropped again")
S("sink_column_max", lambda self, q, k, v: (lambda c: F.softmax(c - c.max(dim=-1, keepdim=True).values, dim=-1,
                                                                dtype=c.dtype)[..., :-1] @ v)(
    torch.cat([q @ k.mT * A, self.sink.reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[2], -1)], -1)), parts=SINK)
S("sink_column_first",
  lambda self, q, k, v, mask: soft(torch.cat([self.sink.view(1, 4, 1, 1).expand(q.shape[0], -1, q.shape[2], -1),
                                              q @ k.mT * A + mask], -1))[..., 1:] @ v, parts=SINK)
S("sink_denominator", lambda self, q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + self.sink.exp().view(4, 1, 1)))
                                             @ v)((q @ k.mT * A).exp()), parts=SINK)
S("sink_zero", lambda q, k, v: soft(F.pad(q @ k.mT * A, (1, 0)))[..., 1:] @ v,
  note="softmax with one more zero: attention off by one")
S("sink_off_by_one", lambda q, k, v: (lambda e: (e / (1 + e.sum(-1, keepdim=True))) @ v)((q @ k.mT * A).exp()))
