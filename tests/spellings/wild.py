"""Attention as repositories write it, part by part: modules copied in shape from the wild, masks in each of their
forms, and what looks like them."""
import math

from spell import *

E, H, G, D = 32, 4, 2, 8
X = dict(x=add("bnc"))
SELF = dict(k=add("bhnd", 1.2), v=add("bhne"))
KV = dict(k=add("bgmd", 1.2), v=add("bgme"))
lin = lambda a=E, b=E, bias=True: (lambda: nn.Linear(a, b, bias))
einsum, sdpa = torch.einsum, F.scaled_dot_product_attention
FAR = -1e9


def scores(q, k):
    return q @ k.mT * 0.35


def part(name, f, **o):
    S("wild_" + name, f, **o)


group("wild")


# ------------------------------------------------------------------ proteins
class Gated(nn.Module):
    """AlphaFold's: biases of two kinds, a gate."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Parameter(rows(E, H, D, seed=i) * 0.3) for i in range(3))
        self.gw, self.gb = nn.Parameter(rows(E, H, D, seed=5) * 0.2), nn.Parameter(torch.ones(H, D))
        self.ow, self.ob = nn.Parameter(rows(H, D, E, seed=6) * 0.2), nn.Parameter(torch.zeros(E))

    def forward(self, x, y, bias, pair):
        q = einsum("bqa,ahc->bqhc", x, self.q) * D ** (-0.5)
        k, v = einsum("bka,ahc->bkhc", y, self.k), einsum("bka,ahc->bkhc", y, self.v)
        w = torch.softmax(einsum("bqhc,bkhc->bhqk", q, k) + bias + pair[None], -1)
        o = einsum("bhqk,bkhc->bqhc", w, v) * torch.sigmoid(einsum("bqc,chv->bqhv", x, self.gw) + self.gb)
        return einsum("bqhc,hco->bqo", o, self.ow) + self.ob


class Pairs(nn.Module):
    """Evoformer's rows with a bias of pairs, OpenFold's way: a list of biases, f32 softmax."""
    def __init__(self):
        super().__init__()
        self.z, self.norm = nn.Linear(E, H, bias=False), nn.LayerNorm(E)
        self.q, self.k, self.v, self.g = (nn.Linear(E, E, bias=i == 3) for i in range(4))
        self.out = nn.Linear(E, E)

    def forward(self, x, z, pad):
        mask_bias = (1e9 * (pad.float() - 1))[:, None, None, :]
        z = self.z(self.norm(z)).permute(0, 3, 1, 2)
        q, k, v = (f(x).view(x.shape[:-1] + (H, -1)).transpose(-2, -3) for f in (self.q, self.k, self.v))
        q = q / math.sqrt(D)
        a = torch.matmul(q, k.transpose(-1, -2))
        for b in [mask_bias, z]:
            a = a + b
        a = F.softmax(a.to(torch.float32), -1).to(a.dtype)
        o = torch.matmul(a, v).transpose(-2, -3)
        o = o * self.g(x).sigmoid().view(o.shape)
        return self.out(o.reshape(o.shape[:-2] + (-1,)))


class EsmRotary(nn.Module):
    """ESM-2's: bmm over B*H, sequence first, scaled queries, rotary by a table made on the fly."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(E, E) for _ in range(4))
        self.register_buffer("inv", 1.0 / (10000 ** (torch.arange(0, D, 2).float() / D)))

    def turn(self, x):
        a = torch.einsum("i,j->ij", torch.arange(x.shape[1]).type_as(self.inv), self.inv)
        a = torch.cat((a, a), dim=-1)
        x1, x2 = x.chunk(2, dim=-1)
        return x * a.cos()[None] + torch.cat((-x2, x1), -1) * a.sin()[None]

    def forward(self, x, pad):
        n, b, c = x.shape
        q = self.q(x) * D ** -0.5
        q, k, v = (t.contiguous().view(n, b * H, D).transpose(0, 1) for t in (q, self.k(x), self.v(x)))
        q, k = self.turn(q), self.turn(k)
        w = torch.bmm(q, k.transpose(1, 2)).view(b, H, n, n)
        w = w.masked_fill(pad.unsqueeze(1).unsqueeze(2).to(torch.bool), float("-inf")).view(b * H, n, n)
        p = F.softmax(w, dim=-1, dtype=torch.float32)
        o = torch.bmm(p.type_as(w), v).transpose(0, 1).contiguous().view(n, b, c)
        return self.out(o), p.view(b, H, n, n).transpose(1, 0).mean(dim=0)


NEVER = In("bn", lambda g, s: (torch.arange(s[1])[None] >= torch.randint(1, s[1] + 1, (s[0], 1), generator=g)))
part("alphafold_weights", Gated, **X, y=add("bmc"), bias=add("b11m"), pair=add("hnm"))
part("openfold_pairs", Pairs, **X, z=add("bnnc"), pad=In("bn", lambda g, s: ~NEVER.draw(g, s)))
part("esm_rotary", EsmRotary, x=add("nbc"), pad=NEVER)


# ------------------------------------------------------------------ language models
class Oss(nn.Module):
    """GPT-OSS's: sinks, a window, grouped heads, cos and sin given."""
    def __init__(self, window):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(E, n) for n in (E, G * D, G * D, E))
        self.sinks, self.window = nn.Parameter(rows(H)), window

    def forward(self, x, cos, sin):
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, -1, D).transpose(1, 2) for f in (self.q, self.k, self.v))
        def rope(t):
            f, s = torch.chunk(t, 2, -1)
            return torch.cat((f * cos[:, None] - s * sin[:, None], s * cos[:, None] + f * sin[:, None]), -1)
        q, k = rope(q), rope(k)
        k, v = (t[:, :, None].expand(b, G, H // G, n, D).reshape(b, H, n, D) for t in (k, v))
        w = torch.matmul(q, k.transpose(2, 3)) * D ** -0.5
        i = torch.arange(n)
        m = (i[None] <= i[:, None])
        if self.window:
            m = m & (i[None] > i[:, None] - self.window)
        w = w + torch.where(m, 0.0, torch.finfo(w.dtype).min)[None, None]
        c = torch.cat([w, self.sinks.reshape(1, -1, 1, 1).expand(b, -1, n, -1)], dim=-1)
        c = c - c.max(dim=-1, keepdim=True).values
        p = F.softmax(c, dim=-1, dtype=c.dtype)[..., :-1]
        return self.o(torch.matmul(p, v).transpose(1, 2).contiguous().reshape(b, n, -1))


class Gemma2(nn.Module):
    """Gemma 2's eager attention: a soft cap, then a mask that is cut to the keys, an f32 softmax."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(E, n, bias=False) for n in (E, G * D, G * D, E))

    def forward(self, x, mask):
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, -1, D).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        w = torch.matmul(q, k.transpose(2, 3)) * 0.25
        w = w / 5.0
        w = torch.tanh(w)
        w = w * 5.0
        w = w + mask[:, :, :, : k.shape[-2]]
        w = F.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)
        w = F.dropout(w, p=0.0, training=self.training)
        return self.o(torch.matmul(w, v).transpose(1, 2).contiguous().view(b, n, -1)), w


class Mla(nn.Module):
    """DeepSeek's latent attention: keys of two parts, the rotated one shared by all heads; interleaved rotary."""
    def __init__(self, parts):
        super().__init__()
        self.parts = parts
        self.qa, self.qn, self.qb = nn.Linear(E, 12, bias=False), nn.RMSNorm(12), nn.Linear(12, H * 12, bias=False)
        self.kva, self.kvn = nn.Linear(E, 16 + 4), nn.RMSNorm(16)
        self.kvb, self.o = nn.Linear(16, H * (8 + 6), bias=False), nn.Linear(H * 6, E, bias=False)

    def turn(self, x, cos, sin):
        b, h, n, d = x.shape
        x = x.view(b, h, n, d // 2, 2).transpose(4, 3).reshape(b, h, n, d)
        return x * cos[:, None] + torch.cat((-x[..., d // 2:], x[..., : d // 2]), -1) * sin[:, None]

    def forward(self, x, cos, sin):
        b, n, _ = x.shape
        q = self.qb(self.qn(self.qa(x))).view(b, n, H, 12).transpose(1, 2)
        qn, qp = torch.split(q, [8, 4], -1)
        c, kp = torch.split(self.kva(x), [16, 4], -1)
        kp = kp.view(b, n, 1, 4).transpose(1, 2)
        kn, v = torch.split(self.kvb(self.kvn(c)).view(b, n, H, 14).transpose(1, 2), [8, 6], -1)
        qp, kp = self.turn(qp, cos, sin), self.turn(kp, cos, sin)
        mask = torch.full((n, n), float("-inf")).triu_(1)
        if self.parts:
            w = (qn @ kn.mT + qp @ kp.mT) * 12 ** -0.5
        else:
            q, k = q.new_empty(b, H, n, 12), kp.new_empty(b, H, n, 12)
            q[..., :8], q[..., 8:] = qn, qp
            k[..., :8], k[..., 8:] = kn, kp
            w = torch.matmul(q, k.transpose(2, 3)) * 12 ** -0.5
        w = (w + mask).softmax(-1, dtype=torch.float32).to(x.dtype)
        return self.o((w @ v).transpose(1, 2).reshape(b, n, -1))


class Neox(nn.Module):
    """GPT-NeoX's: packed by head, rotary on a part, baddbmm with beta 1 onto zeros, a buffer of the causal mask."""
    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.register_buffer("bias", torch.tril(torch.ones(64, 64, dtype=torch.bool)).view(1, 1, 64, 64))
        self.register_buffer("masked_bias", torch.tensor(-1e9))

    def forward(self, x, cos, sin):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, H, 3 * D).permute(0, 2, 1, 3).chunk(3, -1)
        def rope(t):
            a, z = t[..., :4], t[..., 4:]
            a1, a2 = a[..., :2], a[..., 2:]
            return torch.cat((a * cos[:, None] + torch.cat((-a2, a1), -1) * sin[:, None], z), -1)
        q, k = rope(q), rope(k)
        m = self.bias[:, :, k.size(-2) - q.size(-2): k.size(-2), : k.size(-2)]
        z = torch.zeros(b * H, n, n, dtype=q.dtype)
        s = torch.baddbmm(z, q.reshape(b * H, n, D), k.reshape(b * H, n, D).transpose(1, 2), beta=1.0, alpha=D ** -0.5)
        s = s.view(b, H, n, n)
        s = torch.where(m, s, torch.tensor(torch.finfo(s.dtype).min, dtype=s.dtype))
        return self.o((s.softmax(-1).to(v.dtype) @ v).permute(0, 2, 1, 3).contiguous().view(b, n, -1))


class Bloom(nn.Module):
    """BLOOM's: alibi by baddbmm, a mask that is filled, a cast and a reshape between."""
    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.register_buffer("slopes", torch.tensor([0.5, 0.25, 0.125, 0.0625]))

    def forward(self, x, pad):
        b, n, _ = x.shape
        f = self.qkv(x).view(b, n, H, 3, D)
        q, k, v = f[..., 0, :], f[..., 1, :], f[..., 2, :]
        at = ((pad.long().cumsum(-1) - 1) * pad.long())[:, None, :]
        alibi = (self.slopes[..., None] * at).reshape(b * H, 1, n)
        q = q.transpose(1, 2).reshape(b * H, n, D)
        k = k.permute(0, 2, 3, 1).reshape(b * H, D, n)
        v = v.transpose(1, 2).reshape(b * H, n, D)
        s = alibi.baddbmm(batch1=q, batch2=k, beta=1.0, alpha=D ** -0.5).view(b, H, n, n)
        m = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)[None, None] | ~pad[:, None, None, :]
        s = torch.masked_fill(s.to(torch.float32), m, torch.finfo(torch.float32).min)
        p = F.softmax(s, dim=-1, dtype=torch.float32).to(q.dtype).view(b * H, n, n)
        o = torch.bmm(p, v).view(b, H, n, D).permute(0, 2, 1, 3).reshape(b, n, H * D)
        return self.o(o)


class Olmo(nn.Module):
    """Norms of all heads at once before they are split, a clip, causal by sdpa with grouped keys."""
    def __init__(self, clip=None, gqa=True):
        super().__init__()
        self.qkv, self.o, self.clip, self.gqa = nn.Linear(E, E + 2 * G * D, bias=False), nn.Linear(E, E), clip, gqa
        self.qn, self.kn = nn.RMSNorm(E), nn.RMSNorm(G * D)

    def forward(self, x):
        b, n, _ = x.shape
        t = self.qkv(x)
        if self.clip:
            t = t.clamp(min=-self.clip, max=self.clip)
        q, k, v = t.split((E, G * D, G * D), dim=-1)
        q, k = self.qn(q), self.kn(k)
        q, k, v = (t.view(b, n, -1, D).transpose(1, 2) for t in (q, k, v))
        if self.gqa:
            o = sdpa(q, k, v, is_causal=True, enable_gqa=True)
        else:
            k, v = (torch.repeat_interleave(t, dim=1, repeats=H // G) for t in (k, v))
            o = (torch.matmul(q, k.transpose(-2, -1)) * D ** -0.5
                 + torch.triu(torch.full((n, n), torch.finfo(torch.float).min), 1)).softmax(-1) @ v
        return self.o(o.transpose(1, 2).contiguous().view(b, n, -1))


class Falcon(nn.Module):
    """One key for all heads, a fused matrix, alibi added to scores and divided together."""
    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(E, E + 2 * D), nn.Linear(E, E)
        self.inv = 1.0 / math.sqrt(D)

    def forward(self, x, alibi, pad):
        b, n, _ = x.shape
        f = self.qkv(x).view(b, n, H + 2, D)
        q, k, v = f[..., :-2, :], f[..., [-2], :], f[..., [-1], :]
        q, k, v = (t.transpose(1, 2).reshape(b, -1, n, D) for t in (q, k, v))
        m = (~pad)[:, None, None, :].float().masked_fill((~pad)[:, None, None, :], float("-1e9"))
        s = (q @ k.transpose(-1, -2)).view(b, H, n, n).to(torch.float32)
        s = s + alibi.view(b, H, 1, -1)
        s = s * self.inv
        p = F.softmax(s + m, dim=-1, dtype=x.dtype).view(b, H, n, n)
        o = (p @ v).flatten(0, 1)
        return self.o(o.view(b, H, n, D).permute(0, 2, 1, 3).reshape(b, n, H * D))


class Phi2(nn.Module):
    """einsum of phi-1.5's remote code: 'bthd,bshd->bhts', an upper triangle added, padding in a buffer of -10000."""
    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x, pad):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, H, D).unbind(dim=2)
        s = einsum("bthd,bshd->bhts", q, k * (1.0 / math.sqrt(q.shape[-1])))
        m = torch.full((b, n), -10000.0, dtype=s.dtype)
        m.masked_fill_(pad, 0.0)
        s = s + m[:, None, None]
        s = s + torch.triu(torch.full((n, n), -10000.0), 1).to(dtype=s.dtype)
        a = torch.softmax(s, dim=-1, dtype=v.dtype)
        return self.o(einsum("bhts,bshd->bthd", a, v).flatten(2))


part("oss_full", lambda self, x, cos, sin: self.m(x, cos, sin), **X, cos=add("bn4"), sin=add("bn4"),
     parts=dict(m=lambda: Oss(0)))
part("oss_window", lambda self, x, cos, sin: self.m(x, cos, sin), **X, cos=add("bn4"), sin=add("bn4"),
     parts=dict(m=lambda: Oss(3)))
part("gemma2", Gemma2, **X, mask=add("b1nn"))
part("mla_two_products", lambda self, x, cos, sin: self.m(x, cos, sin), **X, cos=add("bn4"), sin=add("bn4"),
     parts=dict(m=lambda: Mla(True)))
part("mla_written_halves", lambda self, x, cos, sin: self.m(x, cos, sin), **X, cos=add("bn4"), sin=add("bn4"),
     parts=dict(m=lambda: Mla(False)))
part("neox", Neox, **X, cos=add("bn4"), sin=add("bn4"))
part("bloom", Bloom, **X, pad=In("bn", lambda g, s: ~NEVER.draw(g, s)))
part("olmo_clip", lambda self, x: self.m(x), **X, parts=dict(m=lambda: Olmo(0.8)))
part("olmo_eager", lambda self, x: self.m(x), **X, parts=dict(m=lambda: Olmo(gqa=False)))
part("falcon", Falcon, **X, alibi=add("81n"), pad=In("bn", lambda g, s: ~NEVER.draw(g, s)), dynamic="n",
     sizes=[dict(b=2, n=5, m=7), dict(b=2, n=9, m=13), dict(b=2, n=11, m=3)])

part("phi2", Phi2, **X, pad=In("bn", lambda g, s: ~NEVER.draw(g, s)))


# ------------------------------------------------------------------ pictures
class Cosine(nn.Module):
    """Swin v2's with its clamp and its continuous bias, windows of one size, a mask of shifted windows."""
    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(E, 3 * E, bias=False), nn.Linear(E, E)
        self.qb, self.vb = nn.Parameter(rows(E) * 0.1), nn.Parameter(rows(E, seed=2) * 0.1)
        self.ls = nn.Parameter(torch.log(10 * torch.ones(H, 1, 1)))
        self.mlp = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, H, bias=False))
        c = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij")).flatten(1)
        r = (c[:, :, None] - c[:, None]).permute(1, 2, 0).contiguous() + 2
        self.register_buffer("index", (r[..., 0] * 5 + r[..., 1]))
        t = torch.stack(torch.meshgrid(torch.arange(-2.0, 3), torch.arange(-2.0, 3), indexing="ij"), -1)
        self.register_buffer("table", (torch.sign(t) * torch.log2(t.abs() + 1.0) / 3)[None])

    def forward(self, x, mask):
        b, n, c = x.shape
        bias = torch.cat((self.qb, torch.zeros_like(self.vb, requires_grad=False), self.vb))
        q, k, v = F.linear(x, self.qkv.weight, bias).reshape(b, n, 3, H, -1).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        a = a * torch.clamp(self.ls, max=math.log(1.0 / 0.01)).exp()
        t = self.mlp(self.table).view(-1, H)[self.index.view(-1)].view(9, 9, -1).permute(2, 0, 1).contiguous()
        a = a + (16 * torch.sigmoid(t)).unsqueeze(0)
        a = a.view(-1, 4, H, n, n) + mask.unsqueeze(1).unsqueeze(0)
        a = a.view(-1, H, n, n).softmax(-1)
        return self.o((a @ v).transpose(1, 2).reshape(b, n, c))


class Xca(nn.Module):
    """XCiT's: channels, a temperature, transposed at the end."""
    def __init__(self):
        super().__init__()
        self.t, self.qkv, self.o = nn.Parameter(torch.ones(H, 1, 1) * 2), nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, H, c // H).permute(2, 0, 3, 1, 4).transpose(-2, -1).unbind(0)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        a = (q @ k.transpose(-2, -1)) * self.t
        return self.o((a.softmax(-1) @ v).permute(0, 3, 1, 2).reshape(b, n, c))


class Vit2d(nn.Module):
    """MobileNetV4's multi-query attention over pictures, with convolutions and b(hw) in einsums."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Conv2d(E, H * D, 1), nn.Conv2d(E, D, 1), nn.Conv2d(E, 6, 1), nn.Conv2d(24,
            E, 1)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        b, _, h, w = x.shape
        q = self.q(x).reshape(b, H, D, -1).transpose(-1, -2).contiguous()
        y = self.pool(x)
        k = self.k(y).reshape(b, D, -1)
        v = self.v(y).reshape(b, 6, -1).transpose(1, 2)
        a = einsum("blhk,bkp->blhp", q.transpose(1, 2), k) * D ** -0.5
        a = a.softmax(-1)
        o = einsum("blhp,bpv->blhv", a, v)
        return self.o(o.reshape(b, h, w, -1).permute(0, 3, 1, 2))


part("swin_v2", Cosine, x=add("b9c"), mask=In("499", lambda g, s: torch.where(torch.rand(s, generator=g) < 0.3, -100.0,
     0.0)),
     dynamic="b", ranges=dict(b=(4, 64)), auto=True, sizes=[dict(b=8), dict(b=4), dict(b=12)])
part("xcit", Xca, **X)
part("multi_query_2d", Vit2d, x=add("bc66"), dynamic="b")
part("channels_group", lambda self, x: (lambda q, k, v: self.o((((q * x.shape[1] ** -0.5).mT @ k).softmax(-1)
     @ v.mT).mT.transpose(1, 2).flatten(2)))(
     *self.qkv(x).reshape(*x.shape[:2], 3, H, D).permute(2, 0, 3, 1, 4)), **X, parts=dict(qkv=lin(E, 3 * E), o=lin()),
     note="DaViT's channels with a scale by the number of tokens")


# ------------------------------------------------------------------ Longformer, BigBird, blocks
def longformer(q, k, v):
    """Overlapping chunks by as_strided, the diagonal band kept."""
    b, h, n, d = q.shape
    w = 4
    q, k, v = (t.reshape(b * h, n // w, w, d) for t in (q, k, v))
    kp, vp = (F.pad(t, (0, 0, 0, 0, 1, 1)) for t in (k, v))
    kk = torch.cat([kp[:, :-2], kp[:, 1:-1], kp[:, 2:]], 2)
    vv = torch.cat([vp[:, :-2], vp[:, 1:-1], vp[:, 2:]], 2)
    s = einsum("bcxd,bcyd->bcxy", q, kk) * 0.35
    i = torch.arange(w)[:, None]
    j = torch.arange(3 * w)[None] - w
    at = torch.arange(n // w)[:, None, None] * w + j
    ok = ((i - j).abs() <= w) & (at >= 0) & (at < n)
    p = s.masked_fill(~ok, -INF).softmax(-1)
    return einsum("bcxy,bcyd->bcxd", p, vv).reshape(b, h, n, d)


def local_unfold(q, k, v):
    """Keys unfolded over each query: a neighbourhood of five."""
    k, v = (F.pad(t, (0, 0, 2, 2)).unfold(2, 5, 1) for t in (k, v))
    s = einsum("bhnd,bhndw->bhnw", q, k) * 0.35
    i = torch.arange(q.shape[2])[:, None] + torch.arange(-2, 3)[None]
    s = s.masked_fill((i < 0) | (i >= q.shape[2]), -INF)
    return einsum("bhnw,bhndw->bhnd", s.softmax(-1), v)


def bigbird_first(q, k, v):
    """The first block sees everything, the others their own and the first one."""
    a = soft(scores(q[:, :, :4], k)) @ v
    kb, vb, qb = (t[:, :, 4:].unflatten(2, (3, 4)) for t in (k, v, q))
    kb = torch.cat([k[:, :, None, :4].expand(-1, -1, 3, -1, -1), kb], 3)
    vb = torch.cat([v[:, :, None, :4].expand(-1, -1, 3, -1, -1), vb], 3)
    return torch.cat([a, (soft(scores(qb, kb)) @ vb).flatten(2, 3)], 2)


B16 = dict(q=add("bhBd", 1.2), k=add("bhBd", 1.2), v=add("bhBd"), dynamic="b")
part("longformer_chunks", longformer, **B16)
part("unfolded_neighbourhood", local_unfold, q=add("bhnd", 1.2), k=add("bhnd", 1.2), v=add("bhnd"))
part("bigbird_blocks", bigbird_first, **B16, count=2)


# ------------------------------------------------------------------ position biases
part("kerple_log", lambda self, q, k, v: (lambda i: soft(scores(q, k) + (-self.p.clamp(min=1e-2) * torch.log(1
     + self.a.clamp(min=1e-2) * (i[:, None] - i[None]).abs())) + torch.where(i[None] > i[:, None], -INF, 0.0)) @ v)(
     torch.arange(q.shape[2])), **SELF, parts=dict(p=lambda: nn.Parameter(torch.rand(H, 1, 1)),
                                                   a=lambda: nn.Parameter(torch.rand(H, 1, 1))))
part("kerple_power", lambda self, q, k, v: (lambda i: soft(scores(q, k) - self.a.clamp(min=1e-2)
     * (i[:, None] - i[None]).abs().float().pow(self.p.clamp(min=0.01, max=2))) @ v)(torch.arange(q.shape[2])), **SELF,
     parts=dict(p=lambda: nn.Parameter(torch.rand(H, 1, 1)), a=lambda: nn.Parameter(torch.rand(H, 1, 1))))
part("t5_buckets", lambda self, q, k, v: (lambda r: (lambda n, big: soft(q @ k.mT + self.e((r > 0).to(torch.long) * 16
     + torch.where(n < 8, n, big)).permute([2, 0, 1]).unsqueeze(0)) @ v)(r.abs(), torch.min(8 + (torch.log(r.abs()
         .float().clamp(min=1) / 8) / math.log(128 / 8) * 8).to(torch.long), torch.full_like(r,
         15))))(torch.arange(k.shape[2])[None]
             - torch.arange(q.shape[2])[:, None]), parts=dict(e=lambda: nn.Embedding(32, H)))
part("relative_by_einsum_table", lambda self, q, k, v: soft(scores(q, k) + einsum("bhid,ijd->bhij", q,
     self.t[(torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None]).clamp(-4, 4) + 4])) @ v,
     parts=dict(t=lambda: nn.Parameter(rows(9, 8) * 0.3)))
part("deberta_c2p_p2c", lambda self, q, k, v: (lambda r: soft((q @ k.mT + torch.gather(q @ self.kr.mT, -1,
     r.expand(q.shape[0], H, -1, -1)) + torch.gather(k @ self.qr.mT, -1, r.mT.expand(q.shape[0], H, -1, -1)).mT)
     / math.sqrt(3 * D)) @ v)((torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])[None]).clamp(-3, 3) + 3),
     **SELF, parts=dict(kr=lambda: nn.Parameter(rows(H, 7, D) * 0.4), qr=lambda: nn.Parameter(rows(H, 7, D, seed=1)
     * 0.4)))
part("cable_cumulative", lambda q, k, v, g: (lambda c: soft(scores(q, k) + (c[..., :, None] - c[..., None, :])
     + torch.full((q.shape[2],) * 2, -INF).triu(1)) @ v)(F.logsigmoid(g).cumsum(-1)), **SELF, g=add("bhn"))
part("stair_bias", lambda q, k, v: (lambda i: soft(scores(q, k) - 0.1 * ((i[:, None] - i[None]).abs() // 4)) @ v)(
     torch.arange(q.shape[2])), **SELF)


# ------------------------------------------------------------------ rotary before attention
def rope_complex(t, f):
    return torch.view_as_real(torch.view_as_complex(t.float().reshape(*t.shape[:-1], -1, 2)) * f).flatten(-2).type_as(t)


def rope_cat_neg(t, cos, sin):
    return t * cos + torch.cat([t[..., t.shape[-1] // 2:].neg(), t[..., : t.shape[-1] // 2]], -1) * sin


def table(n):
    a = torch.outer(torch.arange(n).float(), 10000.0 ** (-torch.arange(0, D, 2).float() / D))
    return a


part("rope_complex_table", lambda q, k, v: (lambda f: soft(scores(rope_complex(q, f), rope_complex(k, f))) @ v)(
     torch.polar(torch.ones_like(table(q.shape[2])), table(q.shape[2]))), **SELF)
part("rope_positions_left_padded", lambda q, k, v, pad: (lambda p: (lambda a: soft(scores(rope_cat_neg(q, a.cos(),
     a.sin()),
     rope_cat_neg(k, a.cos(), a.sin())).masked_fill(~pad[:, None, None], MIN)) @ v)(torch.cat([p[:, None, :, None]
         * (10000.0 ** (-torch.arange(0, D, 2).float() / D))] * 2, -1)))((pad.long().cumsum(-1) - 1).masked_fill(~pad,
         1)
             .float()), **SELF, pad=In("bn", lambda g, s: ~NEVER.draw(g, s).flip(-1)))


# ------------------------------------------------------------------ grouped heads
part("gqa_matmul_broadcast", lambda q, k, v: (soft(q.unflatten(1, (G, 2)) @ k[:, :, None].mT * 0.35) @ v[:, :,
     None]).flatten(1, 2),
     **KV)
part("gqa_kron", lambda self, q, k, v: (lambda f: soft(scores(q, f(k))) @ f(v))(lambda t: t[:, self.i]), **KV,
     parts=dict(i=lambda: torch.arange(H) // 2))
part("gqa_cat_of_copies", lambda q, k, v: (lambda f: soft(scores(q, f(k))) @ f(v))(lambda t: torch.cat([t[:, :1], t[:,
     :1],
     t[:, 1:], t[:, 1:]], 1)), **KV)
part("gqa_unbind_loop", lambda q, k, v: torch.cat([soft(scores(a, c[:, None])) @ w[:, None] for a, c,
     w in zip(q.chunk(G, 1),
     k.unbind(1), v.unbind(1))], 1), **KV, count=2)
part("gqa_mask_per_group", lambda q, k, v, mask: (soft(q.unflatten(1, (G, 2)) @ k[:, :, None].mT * 0.35
     + mask[:, :, None]) @ v[:, :, None]).flatten(1, 2), **KV, mask=add("bgnm"))


# ------------------------------------------------------------------ masks in each of their forms
part("pad_view_expand_reshape", lambda q, k, v, pad: (lambda b, n, m: torch.bmm(soft(torch.bmm(q.flatten(0, 1),
     k.flatten(0, 1).mT) * 0.35 + torch.zeros_like(pad, dtype=q.dtype).masked_fill(~pad, -INF).view(b, 1, 1,
     m).expand(-1, H,
         -1, -1).reshape(b * H, 1, m)), v.flatten(0, 1)).view(b, H, n, -1))(q.shape[0], q.shape[2], k.shape[2]))
part("mask_multiply_then_add", lambda q, k, v, keep: (lambda m: soft(scores(q, k) * m + (m - 1.0) * 1e9)
     @ v)(keep.float()))
part("mask_lt_half", lambda q, k, v, keep: soft(scores(q, k).masked_fill(keep.float() < 0.5, -INF)) @ v)
part("mask_chunk_prefix", lambda q, k, v, p: (lambda i: soft(scores(q, k).masked_fill((i[None] > i[:, None])[None]
     .logical_and(i[None, None] >= p[:, None, None])[:, None], -INF)) @ v)(torch.arange(q.shape[2])), **SELF,
     p=In("b", lambda g, s: torch.randint(0, 5, s, generator=g)), note="a prefix that sees itself both ways")
part("mask_segments_causal", lambda q, k, v, seg: soft(torch.where((seg[:, :, None] == seg[:, None]).tril()[:, None],
     scores(q, k),
     MIN)) @ v, **SELF, seg=integer("bn", 3))
part("mask_cu_seqlens", lambda q, k, v, cu: (lambda i: (lambda s: soft(scores(q, k).masked_fill((s[:, None] != s[None]),
     -INF))
     @ v)((i[:, None] >= cu[None]).sum(-1)))(torch.arange(q.shape[2])), **SELF, cu=In("3", lambda g, s: torch.tensor([0,
     2, 4])),
     note="packed samples: which one by counting the borders before")
part("mask_window_centre", lambda q, k, v: (lambda i: soft(scores(q, k) + torch.zeros(q.shape[2],
     q.shape[2]).masked_fill(
     ((i[:, None] - i[None]) > 2) | ((i[None] - i[:, None]) > 1), -INF)) @ v)(torch.arange(q.shape[2])), **SELF)
part("mask_window_from_tril_minus_tril", lambda q, k, v: (lambda o: soft(scores(q, k) + (1 - (o.tril() - o.tril(-4)))
     * -1e9) @ v)(
     torch.ones(q.shape[2], q.shape[2])), **SELF)
part("mask_causal_fill_diagonal_roll", lambda q, k, v: soft(scores(q, k) + torch.ones(q.shape[2],
     q.shape[2]).triu(1).masked_fill(
     torch.ones(q.shape[2], q.shape[2]).triu(1) == 1, -INF)) @ v, **SELF)
part("mask_min_of_two", lambda q, k, v, drop, pad: soft(scores(q, k) + torch.minimum(torch.where(drop, FAR, 0.0),
     torch.where(pad[:, None, None], 0.0, FAR))) @ v, drop=drop("b1nm", 0.2), pad=In("bm", lambda g,
     s: torch.ones(s) > 0))
part("mask_of_four_axes_bool_mul", lambda q, k, v, keep, pad: soft(scores(q, k).masked_fill(~(keep * pad[:, None,
     None]), -INF)) @ v,
     keep=keep("b1nm", 0.7), pad=In("bm", lambda g, s: torch.ones(s) > 0))
part("mask_float_ge_zero", lambda q, k, v, mask: soft(scores(q, k).masked_fill(mask < -3, -INF)) @ v)


# ------------------------------------------------------------------ softmax written out
part("stable_e_to_the", lambda q, k, v: (lambda s: (lambda e: e / e.sum(-1, keepdim=True))(math.e ** (s - s.amax(-1,
     True))) @ v)(
     scores(q, k)))
part("stable_exp2_log2e", lambda q, k, v: (lambda s: (lambda e: e / e.sum(-1, keepdim=True))(torch.exp2((s - s.amax(-1,
     True))
     * 1.44269504)) @ v)(scores(q, k)))
part("late_flash_masked", lambda q, k, v, drop: (lambda s: (lambda m: (lambda p: (p @ v) / p.sum(-1,
     keepdim=True).clamp(min=1e-12))(
     (s - m).exp()))(s.amax(-1, keepdim=True)))(scores(q, k).masked_fill(drop, FAR)))
part("softmax_over_first_axis", lambda q, k, v: einsum("mnbh,mbhe->nbhe", F.softmax(einsum("nbhd,mbhd->mnbh", q, k)
     * 0.35, dim=0),
     v), q=add("nbhd", 1.2), k=add("mbhd", 1.2), v=add("mbhe"))
part("softmax_2d_module", lambda self, q, k, v: self.s(scores(q, k).permute(0, 3, 1, 2)).permute(0, 2, 3, 1) @ v,
     parts=dict(s=lambda: nn.Softmax2d()))


part("scale_learned_softplus_log", lambda self, q, k, v: soft(q @ k.mT * F.softplus(self.t).log1p()) @ v,
     parts=dict(t=lambda: nn.Parameter(torch.tensor(0.3))))
part("scale_log_length", lambda q, k, v: soft(q @ k.mT * (0.1 * torch.log(torch.tensor(k.shape[2]).float() + 2))) @ v)


# ------------------------------------------------------------------ gates, sums, two branches
class Differential(nn.Module):
    """Differential attention as its authors have it: packed heads, lambdas, a norm of each head."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(E, E), nn.Linear(E, E), nn.Linear(E, E), nn.Linear(E, E)
        self.a, self.b, self.c, self.d = (nn.Parameter(rows(4, seed=i) * 0.1) for i in range(4))
        self.norm = nn.RMSNorm(2 * 4, elementwise_affine=False)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, 2 * H, 4).transpose(1, 2) * 0.5
        k = self.k(x).view(b, n, 2 * H, 4).transpose(1, 2)
        v = self.v(x).view(b, n, H, 8).transpose(1, 2)
        w = torch.matmul(q, k.transpose(-1, -2))
        w = torch.nan_to_num(w)
        w = w + torch.triu(torch.zeros([n, n]).float().fill_(float("-inf")).type_as(w), 1)
        w = F.softmax(w, dim=-1, dtype=torch.float32).type_as(w)
        l = torch.exp(torch.sum(self.a * self.b, dim=-1).float()) - torch.exp(torch.sum(self.c * self.d,
        dim=-1).float()) + 0.3
        w = w.view(b, H, 2, n, n)
        w = w[:, :, 0] - l * w[:, :, 1]
        o = self.norm(torch.matmul(w, v)) * 0.7
        return self.o(o.transpose(1, 2).reshape(b, n, H * 8))


class QwenGate(nn.Module):
    """Qwen3-Next's: the gate comes out of the queries' matrix."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(E, n, bias=False) for n in (2 * E, G * D, G * D, E))
        self.qn, self.kn = nn.RMSNorm(D), nn.RMSNorm(D)

    def forward(self, x, drop):
        b, n, _ = x.shape
        q, g = torch.chunk(self.q(x).view(b, n, -1, 2 * D), 2, dim=-1)
        q, k = self.qn(q).transpose(1, 2), self.kn(self.k(x).view(b, n, -1, D)).transpose(1, 2)
        v = self.v(x).view(b, n, -1, D).transpose(1, 2)
        k, v = (t[:, :, None].expand(b, G, 2, n, D).reshape(b, H, n, D) for t in (k, v))
        w = torch.matmul(q, k.mT) * D ** -0.5 + torch.zeros(n, n).masked_fill(drop, torch.finfo(x.dtype).min)
        o = (F.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype) @ v).transpose(1, 2).reshape(b, n, -1)
        return self.o(o * torch.sigmoid(g.reshape(b, n, -1)))


part("differential_authors", Differential, **X, count=2)
part("qwen_gate", QwenGate, **X, drop=drop("b1nn"))
part("value_residual", lambda self, q, k, v, w: soft(scores(q, k)) @ (self.l * v + (1 - self.l) * w), w=add("bhme"),
     parts=dict(l=lambda: nn.Parameter(torch.tensor(0.4))))
part("head_mask_on_weights", lambda q, k, v, hm: (soft(scores(q, k)) * hm[None, :, None, None]) @ v, hm=add("h"),
     note="BERT's head_mask")


# ------------------------------------------------------------------ caches
def cached(q, k, v, pk, pv):
    k, v = torch.cat((pk, k), dim=-2), torch.cat((pv, v), dim=-2)
    s = q @ k.mT * 0.35
    i = torch.arange(q.shape[2])[:, None] + pk.shape[2]
    return soft(s.masked_fill(torch.arange(k.shape[2])[None] > i, -INF)) @ v, k, v


def cached_slots(q, k, v, ck, cv, at):
    ck, cv = ck.index_copy(2, at, k), cv.index_copy(2, at, v)
    m = torch.arange(ck.shape[2])[None] <= at[:, None]
    return soft(torch.where(m[None, None], q @ ck.mT * 0.35, MIN)) @ cv, ck, cv


part("cache_past_causal", cached, **SELF, pk=add("bhmd"), pv=add("bhme"))
part("cache_slots", cached_slots, q=add("bh3d"), k=add("bh3d"), v=add("bh3e"), ck=add("bhmd"), cv=add("bhme"),
     at=In("3", lambda g, s: torch.tensor([0, 1, 2])), dynamic="bm", ranges=dict(m=(3, 63)), auto=True,
     sizes=SIZES)
part("cache_last_query_tril", lambda self, q, k, v: (lambda t, s: soft(scores(q, k).masked_fill(self.tril[:, :, s
     - t: s, :s] == 0,
     -INF)) @ v)(q.shape[2], k.shape[2]), sizes=WIDE, parts=dict(tril=lambda: torch.tril(torch.ones(64, 64))[None,
     None]))


# ------------------------------------------------------------------ modules of torch
class Mha(nn.Module):
    def __init__(self, call, **o):
        super().__init__()
        self.m, self.call = nn.MultiheadAttention(E, H, **o), call

    def forward(self, *a):
        return self.call(self.m, *a)


def mha(name, call, inputs, own=None, **o):
    names = list(inputs)
    scope = {}
    exec(f"def f(self, {', '.join(names)}):\n    return self.m({', '.join(names)})\n", scope)
    part("mha_" + name, scope["f"], **inputs, parts=dict(m=lambda: Mha(call, **(own or {}))), **o)


BF = dict(batch_first=True)
mha("bias_kv", lambda m, x, y: m(x, y, y, need_weights=False)[0], dict(x=add("bnc"), y=add("bmc")), dict(BF,
     add_bias_kv=True))
mha("zero_attn", lambda m, x, y: m(x, y, y, need_weights=False)[0], dict(x=add("bnc"), y=add("bmc")), dict(BF,
     add_zero_attn=True))
mha("both_weights_per_head", lambda m, x, y: m(x, y, y, average_attn_weights=False), dict(x=add("bnc"), y=add("bmc")),
    dict(BF, add_zero_attn=True, add_bias_kv=True))
mha("kdim_vdim", lambda m, x, y, z: m(x, y, z, need_weights=True), dict(x=add("bnc"), y=add("bmd"), z=add("bm6")),
    dict(BF, kdim=8, vdim=6))
mha("key_padding_float", lambda m, x, y, p: m(x, y, y, key_padding_mask=torch.zeros_like(p,
     dtype=x.dtype).masked_fill(~p, -INF),
    need_weights=False)[0], dict(x=add("bnc"), y=add("bmc"), p=padding()), BF)
mha("attn_mask_3d", lambda m, x, y, a: m(x, y, y, attn_mask=a, need_weights=False)[0], dict(x=add("2nc"), y=add("2mc"),
    a=add("8nm")), BF, dynamic="nm", sizes=[dict(n=5, m=7), dict(n=9, m=13), dict(n=11, m=3)])
mha("causal_padding_bias_kv", lambda m, x, p: m(x, x, x, key_padding_mask=~p, attn_mask=torch.ones(x.shape[1],
     x.shape[1])
    .triu(1).bool(), need_weights=False)[0], dict(x=add("bnc"), p=In("bn", lambda g, s: ~NEVER.draw(g, s))),
    dict(BF, add_bias_kv=True), auto=True, sizes=SIZES)
mha("seq_first_weights", lambda m, x, y: m(x, y, y), dict(x=add("nbc"), y=add("mbc")))


# ------------------------------------------------------------------ what looks like it
def no(name, f, **o):
    trap("wild_" + name, f, **o)


HH = dict(q=add("b44d", 1.2), k=add("b44d", 1.2), v=add("b44e"), dynamic="b")     # h == n == m
DD = dict(q=add("bh8d", 1.2), k=add("bh8d", 1.2), v=add("bh8d"), dynamic="b")     # n == m == d
no("heads_as_queries", lambda q, k, v: soft(scores(q.transpose(1, 2), k.transpose(1, 2))).transpose(1, 2) @ v, **HH)
no("softmax_over_heads_of_equal_size", lambda q, k, v: scores(q, k).softmax(1) @ v, **HH)
no("keys_not_transposed", lambda q, k, v: soft(q @ k * 0.35) @ v, **DD)
no("values_transposed", lambda q, k, v: soft(scores(q, k)) @ v.mT, **DD)
no("einsum_summed_keys", lambda q, k, v: einsum("bhij,bhjd->bhid", soft(einsum("bhid,bhjd->bhji", q, k) * 0.35), v),
     **DD)
no("einsum_wrong_values_axis", lambda q, k, v: einsum("bhij,bhdj->bhid", soft(scores(q, k)), v), **DD)
no("softmax_twice_masked", lambda q, k, v, keep: soft(soft(scores(q, k)).masked_fill(~keep, -INF)) @ v)
no("mask_by_own_scores", lambda q, k, v: (lambda s: soft(s.masked_fill(s < s.mean(-1, keepdim=True), -INF))
     @ v)(scores(q, k)),
   note="legitimate with a mask that scores make: fused or not, the values stay")
no("mask_from_other_weights", lambda q, k, v: (lambda p: soft(scores(q, k).masked_fill(p < 0.02, -1e9))
     @ v)(soft(scores(q, k))))
no("top_k_scattered", lambda q, k, v: (lambda s: (lambda t: soft(torch.full_like(s, -INF).scatter(-1, t.indices,
     t.values)) @ v)(
   s.topk(2, -1)))(scores(q, k)), k=add("bh7d", 1.2), v=add("bh7e"), dynamic="bn")
no("scale_between_mask", lambda q, k, v, mask: soft((q @ k.mT * 0.35 + mask) * 0.5) @ v)
no("mask_of_heads_as_batch", lambda q, k, v, mask: soft(scores(q, k) + mask[:, None]) @ v, mask=add("4nm"),
     dynamic="nm",
   q=add("44nd"), k=add("44md"), v=add("44me"))
no("mask_per_head_square", lambda q, k, v, mask: soft(scores(q, k) + mask[None]) @ v, mask=add("444"), **HH)
no("eps_in_denominator", lambda q, k, v: (lambda e: (e / (e.sum(-1, keepdim=True) + 1e-2)) @ v)(
   (lambda s: (s - s.amax(-1, keepdim=True)).exp())(scores(q, k))))
no("clamped_denominator_high", lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True).clamp(min=1.5)) @ v)(
   (lambda s: (s - s.amax(-1, keepdim=True)).exp())(scores(q, k))))
no("clamped_denominator_no_max", lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True).clamp(min=0.5)) @ v)(scores(q,
     k).exp()))
no("clamped_denominator_above", lambda q, k, v: (lambda e: (e / e.sum(-1, keepdim=True).clamp(max=2.0)) @ v)(
   (lambda s: (s - s.amax(-1, keepdim=True)).exp())(scores(q, k))))
no("clamped_other_maximum", lambda q, k, v: (lambda s: (lambda e: (e / e.sum(-1, keepdim=True).clamp(min=1.0)) @ v)(
   (s - s.amax((-2, -1), keepdim=True)).exp()))(scores(q, k)))
no("softmax_one_with_max", lambda q, k, v: (lambda s: (lambda e: (e / (1 + e.sum(-1, keepdim=True))) @ v)((s
     - s.amax(-1,
   keepdim=True)).exp()))(scores(q, k)), note="one after the maximum was taken off: depends on the maximum")
no("softmax_one_max_zero", lambda q, k, v: (lambda s: (lambda m: (lambda e: (e / ((-m).exp() + e.sum(-1,
     keepdim=True))) @ v)(
   (s - m).exp()))(s.amax(-1, keepdim=True).clamp(min=0)))(scores(q, k)), note="off by one: a sink of 0")
no("denominator_of_other_keys", lambda q, k, v: (lambda e, f: (e / f.sum(-1, keepdim=True)) @ v)(scores(q, k).exp(),
   scores(q, k.flip(-1)).exp()))
no("denominator_without_last", lambda q, k, v: (lambda e: (e / e[..., :-1].sum(-1, keepdim=True)) @ v)(scores(q,
     k).exp()),
   k=add("bh7d", 1.2), v=add("bh7e"), dynamic="bn")
no("causal_bottom_right_unequal", lambda q, k, v: soft(scores(q, k).masked_fill(torch.ones(q.shape[2], k.shape[2],
   dtype=torch.bool).triu(k.shape[2] - q.shape[2] + 1), -INF)) @ v, sizes=WIDE)
no("gqa_repeat_not_interleave", lambda q, k, v: soft(scores(q, k.repeat(1, 2, 1, 1))) @ v.repeat(1, 2, 1, 1), **KV)
no("gqa_view_other_order", lambda q, k, v: (soft(q.unflatten(1, (2, G)) @ k[:, None].mT * 0.35) @ v[:, None]).flatten(1,
     2), **KV)
no("rotary_on_queries_only", lambda q, k, v: (lambda a: soft(scores(rope_cat_neg(q, a.cos(), a.sin()), k)) @ v)(
   torch.cat([table(q.shape[2])] * 2, -1)), **SELF)
no("rotary_after_scores", lambda q, k, v: (lambda s: soft(s * s.cos()) @ v)(scores(q, k)))
no("values_of_queries", lambda q, k, v: soft(scores(q, k)) @ v * soft(scores(q, k)).sum(-1, keepdim=True),
     note="times one")
no("dropout_training", lambda q, k, v: F.dropout(soft(scores(q, k)), 0.0, training=True) @ v)
no("cap_other_number", lambda q, k, v: soft(5 * torch.tanh(scores(q, k) / 4)) @ v)
no("weights_renormalised_by_n", lambda q, k, v: (lambda p: (p / p.sum(-2, keepdim=True)) @ v)(soft(scores(q, k))),
     **SELF)
no("qk_norm_over_tokens", lambda q, k, v: soft(F.normalize(q, dim=2) @ F.normalize(k, dim=2).mT) @ v)
no("segments_by_product", lambda q, k, v, seg: soft(scores(q, k) * (seg[:, None, :, None] == seg[:, None, None])) @ v,
     **SELF,
   seg=integer("bn", 3))
no("fill_row_minimum", lambda q, k, v, drop: (lambda s: soft(torch.where(drop, s.amin(-1, keepdim=True), s))
     @ v)(scores(q, k)))
no("lowered_by_1000_of_scaled", lambda q, k, v, drop: soft((q @ k.mT + drop * -50.0) / 8) @ v)
no("multiply_then_add_other_mask", lambda q, k, v, keep, drop: soft(scores(q, k) * keep + (drop.float() - 1.0) * 1e9)
     @ v)
no("multiply_then_add_positive", lambda q, k, v, keep: (lambda m: soft(scores(q, k) * m + (1.0 - m) * 1e2)
     @ v)(keep.float()))
no("multiply_fraction_then_add", lambda q, k, v, keep: (lambda m: soft(scores(q, k) * m + (m - 1.0) * 1e9)
     @ v)(keep.float() * 0.5 + 0.5))
