"""Attention as repositories that no other file here had looked at write it: x-transformers, timm, fairseq, ESPnet,
ChatGLM, DeepSeek, LLaMA-Adapter, DANet, Flamingo, Mask2Former ...; in words of our own."""
from spell import *

E, H, D = 32, 4, 8
FAR = -torch.finfo(torch.float32).max
X = dict(x=add("bnc"))
lin = lambda a=E, b=E, bias=True: (lambda: nn.Linear(a, b, bias))
QKVO = dict(q=lin(), k=lin(), v=lin(), out=lin())
HEADS = dict(q=add("bnhd", 1.2), k=add("bmhd", 1.2), v=add("bmhd"))
SELF = dict(k=add("bhnd", 1.2), v=add("bhne"))
einsum = torch.einsum


def split(t):
    return t.unflatten(-1, (H, D)).transpose(1, 2)


def merge(t):
    return t.transpose(1, 2).flatten(2)


# ------------------------------------------------------------------ x-transformers
def attend(q, k, v, mask=None, bias=None, causal=False, clamp=None):
    """Attend's forward: grouped heads tiled, scale, bias, clamp, mask, causality, softmax in float32, rows without a
    key zeroed."""
    if k.shape[1] < q.shape[1]:
        k, v = (t.repeat(1, q.shape[1] // t.shape[1], 1, 1) for t in (k, v))
    s = einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    if bias is not None:
        s = s + bias
    if clamp:
        s = (s / clamp).tanh() * clamp
    i, j = s.shape[-2:]
    if mask is not None:
        s = s.masked_fill(~mask, FAR)
    if causal:
        r = torch.arange(i)
        s = s.masked_fill(F.pad(r[:, None] < r[None], (j - i, 0), value=False), FAR)
    o = einsum("bhij,bhjd->bhid", F.softmax(s, dim=-1, dtype=torch.float32).type(s.dtype), v)
    return o if mask is None else o.masked_fill(~mask.any(-1)[..., None], 0.0)


S("x_tiled_heads", lambda q, k, v: attend(q, k, v), k=add("bgmd", 1.2), v=add("bgme"),
  note="head i reads head i % g of the keys")
S("x_masked_rows", lambda q, k, v, keep: attend(q, k, v, mask=keep), keep=dead_keep("b1nm"),
  dead=lambda q, k, v, keep: ~keep.any(-1, keepdim=True))
S("x_causal_for_onnx", lambda q, k, v: attend(q, k, v, causal=True), **SELF)
S("x_zero_key", lambda q, k, v, keep: attend(q, F.pad(k, (0, 0, 1, 0)), F.pad(v, (0, 0, 1, 0)),
                                             F.pad(keep, (1, 0), value=True)))
S("x_clamped", lambda q, k, v, keep: attend(q, k, v, mask=keep, clamp=5.0))
trap("x_clamped_bias", lambda q, k, v, mask: attend(q, k, v, bias=mask, clamp=5.0), note="the bias is inside the tanh")
trap("x_selective", lambda q, k, v: (lambda s: (lambda g: soft(s - F.pad((1 - torch.eye(q.shape[2])) * g,
    (0, 0, 1, -1)).cumsum(-2)[:, None]) @ v)(s[:, 0].relu()))(q @ k.mT * 0.3), **SELF,
     note="selective attention: what earlier queries saw is taken off")
trap("x_sigsoftmax", lambda q, k, v: (lambda s: soft(s + s.sigmoid().log()) @ v)(q @ k.mT * 0.3))
trap("x_distance", lambda q, k, v: soft(-torch.cdist(q, k) ** 2 * 0.3) @ v, ranges=dict(n=(2, 25), m=(2, 25)),
     sizes=SIZES)
trap("x_sparse_top", lambda q, k, v: (lambda s: soft(s.masked_fill(~(s >= s.topk(2, -1)[0][..., -1:]), FAR))
                                      @ v)(q @ k.mT * 0.4), ranges=dict(m=(2, 63)), sizes=SIZES)


# ------------------------------------------------------------------ timm
class Levit(nn.Module):
    """LeViT's by convolution: keys of another width than values, both channels first, values from the left."""
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Conv2d(E, H * (8 + 8 + 16), 1), nn.Conv2d(H * 16, E, 1)
        p = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")).flatten(1)
        r = (p[:, :, None] - p[:, None]).abs()
        self.bias = nn.Parameter(torch.empty(H, 12))
        self.register_buffer("at", r[0] * 4 + r[1])

    def forward(self, x):
        b, _, hh, ww = x.shape
        q, k, v = self.qkv(x).view(b, H, -1, hh * ww).split([8, 8, 16], dim=2)
        a = ((q.transpose(-2, -1) @ k) * 8 ** -0.5 + self.bias[:, self.at]).softmax(dim=-1)
        return self.proj(F.silu((v @ a.transpose(-2, -1)).view(b, -1, hh, ww)))


class Xcit(nn.Module):
    """Cross-covariance: channels attend to channels, a temperature a head."""
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(E, 3 * E, False), nn.Linear(E, E)
        self.temperature = nn.Parameter(torch.empty(H, 1, 1))

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, H, D).permute(2, 0, 3, 4, 1).unbind(0)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        a = ((q @ k.transpose(-2, -1)) * self.temperature).softmax(dim=-1)
        return self.proj((a @ v).permute(0, 3, 1, 2).reshape(x.shape))


class ClassAttention(nn.Module):
    """CaiT's: the class token alone asks."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.proj = (nn.Linear(E, E) for _ in range(4))

    def forward(self, x):
        b, n, c = x.shape
        q = self.q(x[:, 0]).unsqueeze(1).reshape(b, 1, H, D).permute(0, 2, 1, 3) * D ** -0.5
        k, v = (p(x).reshape(b, n, H, D).permute(0, 2, 1, 3) for p in (self.k, self.v))
        return self.proj(((q @ k.transpose(-2, -1)).softmax(dim=-1) @ v).transpose(1, 2).reshape(b, 1, c))


class TalkingHeads(nn.Module):
    """CaiT's patches: heads are mixed before and after the softmax."""
    def __init__(self):
        super().__init__()
        self.qkv, self.l, self.w, self.proj = nn.Linear(E, 3 * E), nn.Linear(H, H), nn.Linear(H, H), nn.Linear(E, E)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, H, D).permute(2, 0, 3, 1, 4)
        a = self.l(((q * D ** -0.5) @ k.mT).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
        return self.proj(merge(self.w(a.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) @ v))


class Gpsa(nn.Module):
    """ConViT's: a gate a head between content and position, normalised again."""
    def __init__(self):
        super().__init__()
        self.qk, self.v, self.proj, self.pos = nn.Linear(E, 2 * E), nn.Linear(E, E), nn.Linear(E, E), nn.Linear(3, H)
        self.gate = nn.Parameter(rows(H))

    def forward(self, x):
        b, n, c = x.shape
        q, k = self.qk(x).reshape(b, n, 2, H, D).permute(2, 0, 3, 1, 4)
        d = (torch.arange(n)[None] - torch.arange(n)[:, None]).float()
        r = torch.stack([d, d.abs(), d * d], -1)[None].expand(b, -1, -1, -1) * 0.1
        p, q = self.pos(r).permute(0, 3, 1, 2).softmax(-1), ((q @ k.mT) * D ** -0.5).softmax(-1)
        g = torch.sigmoid(self.gate.view(1, -1, 1, 1))
        a = (1 - g) * q + g * p
        return self.proj(merge((a / a.sum(-1).unsqueeze(-1)) @ split(self.v(x))))


class Coat(nn.Module):
    """CoaT's factorised: softmax of the keys over tokens, keys times values first."""
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, H, D).permute(2, 0, 3, 1, 4)
        return self.proj(merge(D ** -0.5 * (q @ (k.softmax(2).transpose(-1, -2) @ v))))


class Pvt(nn.Module):
    """PVT's: keys and values of a picture that a strided convolution made smaller."""
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.proj = nn.Linear(E, E), nn.Linear(E, 2 * E), nn.Linear(E, E)
        self.sr, self.norm = nn.Conv2d(E, E, 2, 2), nn.LayerNorm(E)

    def forward(self, x):                                           # (B, 4 * 6, C)
        b, n, c = x.shape
        q = self.q(x).reshape(b, n, H, D).permute(0, 2, 1, 3)
        y = self.norm(self.sr(x.permute(0, 2, 1).reshape(b, c, 4, 6)).reshape(b, c, -1).permute(0, 2, 1))
        k, v = self.kv(y).reshape(b, -1, 2, H, D).permute(2, 0, 3, 1, 4).unbind(0)
        a = ((q @ k.transpose(-2, -1)) * D ** -0.5).softmax(dim=-1)
        return self.proj((a @ v).transpose(1, 2).reshape(b, n, c))


class MaxVit(nn.Module):
    """MaxViT's grid attention: tokens a stride apart, a bias of relative positions."""
    def __init__(self):
        super().__init__()
        self.qkv, self.proj, self.table = nn.Linear(E, 3 * E), nn.Linear(E, E), nn.Parameter(torch.empty(H, 3, 3))
        i = torch.arange(4)
        self.register_buffer("dy", (i // 2)[:, None] - (i // 2)[None] + 1)
        self.register_buffer("dx", (i % 2)[:, None] - (i % 2)[None] + 1)

    def forward(self, x):                                           # (B, 4, 6, C)
        b, hh, ww, c = x.shape
        g = x.view(b, 2, hh // 2, 2, ww // 2, c).permute(0, 2, 4, 1, 3, 5).contiguous().view(-1, 2, 2, c)
        q, k, v = self.qkv(g).view(g.shape[0], -1, H, 3 * D).transpose(1, 2).chunk(3, dim=3)
        a = (q * D ** -0.5) @ k.transpose(-2, -1) + self.table[:, self.dy, self.dx].unsqueeze(0)
        o = self.proj((a.softmax(dim=-1) @ v).transpose(1, 2).reshape(g.shape))
        return o.view(b, hh // 2, ww // 2, 2, 2, c).permute(0, 3, 1, 4, 2, 5).contiguous().view(b, hh, ww, c)


class DavitChannels(nn.Module):
    """DaViT's channel groups: keys times values, softmax, times queries."""
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
        a = ((k * D ** -0.5).transpose(-1, -2) @ v).softmax(dim=-1)
        return self.proj((a @ q.transpose(-1, -2)).transpose(-1, -2).transpose(1, 2).reshape(b, n, c))


class Outlook(nn.Module):
    """VOLO's: weights of a window come from its centre; no product of queries and keys."""
    def __init__(self):
        super().__init__()
        self.v, self.a, self.proj = nn.Linear(E, E), nn.Linear(E, H * 81), nn.Linear(E, E)

    def forward(self, x):                                           # (B, 4, 6, C)
        b, hh, ww, c = x.shape
        v = F.unfold(self.v(x).permute(0, 3, 1, 2), 3, padding=1).reshape(b, H, D, 9, hh * ww).permute(0, 1, 4, 3, 2)
        a = self.a(x).reshape(b, hh * ww, H, 9, 9).permute(0, 2, 1, 3, 4).softmax(-1)
        o = (a @ v).permute(0, 1, 4, 3, 2).reshape(b, c * 9, hh * ww)
        return self.proj(F.fold(o, (4, 6), 3, padding=1).permute(0, 2, 3, 1))


class MobileVit(nn.Module):
    """MobileViT's: a picture as pixels of patches, which attend to the same pixel of the others."""
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(E, H, batch_first=True)

    def forward(self, x):                                           # (B, C, 4, 6)
        b, c, hh, ww = x.shape
        t = x.reshape(b * c * hh // 2, 2, ww // 2, 2).transpose(1, 2).reshape(b, c, -1, 4).transpose(1, 3)
        t = t.reshape(b * 4, -1, c)
        t = t + self.mha(t, t, t, need_weights=False)[0]
        t = t.view(b, 4, -1, c).transpose(1, 3).reshape(b * c * hh // 2, ww // 2, 2, 2)
        return t.transpose(1, 2).reshape(b, c, hh, ww)


S("timm_levit_conv", Levit, x=add("bc34"), dynamic="b")
S("timm_xcit", Xcit, **X, ranges=dict(n=(2, 63)), sizes=SIZES)
S("timm_class_attention", ClassAttention, **X, ranges=dict(n=(2, 63)), sizes=SIZES)
other("timm_cait_talking", TalkingHeads, **X)
trap("timm_convit_gated", Gpsa, **X)
other("timm_coat_factorised", Coat, **X)
S("timm_pvt_reduced", Pvt, x=add("buc"), dynamic="b")
S("timm_maxvit_grid", MaxVit, x=add("b46c"), dynamic="b")
S("timm_davit_channels", DavitChannels, **X, ranges=dict(n=(2, 63)), sizes=SIZES)
other("timm_volo_outlook", Outlook, x=add("b46c"), dynamic="b")
S("timm_mobilevit", MobileVit, x=add("bc46"), dynamic="b")
other("timm_mobilevit_separable", lambda self, x: (lambda q, k, v: self.out(F.relu(v) * (k * soft(q.mT).mT).sum(1,
    keepdim=True)))(*self.qkv(x).split([1, E, E], -1)), **X, parts=dict(qkv=lin(E, 2 * E + 1), out=lin()))


# ------------------------------------------------------------------ fairseq, ESPnet, WeNet
class Fairseq(nn.Module):
    """Time first; (B * H, N, M) scores, the mask of positions added, padding filled in 4-D, weights returned."""
    def __init__(self, bias_kv=False):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(E, E) for _ in range(4))
        if bias_kv:
            self.bias_k, self.bias_v = nn.Parameter(torch.empty(1, 1, E)), nn.Parameter(torch.empty(1, 1, E))
        self.bias_kv = bias_kv

    def forward(self, x, y, mask, pad):
        n, b, _ = x.shape
        q, k, v = self.q(x) * D ** -0.5, self.k(y), self.v(y)
        pad = ~pad
        if self.bias_kv:
            k, v = torch.cat([k, self.bias_k.repeat(1, b, 1)]), torch.cat([v, self.bias_v.repeat(1, b, 1)])
            mask = torch.cat([mask, mask.new_zeros(mask.size(0), 1)], dim=1)
            pad = torch.cat([pad, pad.new_zeros(pad.size(0), 1)], dim=1)
        q, k, v = (t.contiguous().view(-1, b * H, D).transpose(0, 1) for t in (q, k, v))
        m = k.size(1)
        s = torch.bmm(q, k.transpose(1, 2)) + mask.unsqueeze(0)
        s = s.view(b, H, n, m).masked_fill(pad.unsqueeze(1).unsqueeze(2).to(torch.bool), -INF).view(b * H, n, m)
        p = F.softmax(s, dim=-1, dtype=torch.float32)
        o = torch.bmm(p.type_as(s), v).transpose(0, 1).contiguous().view(n, b, E)
        return self.out(o), p.view(b, H, n, m).transpose(1, 0).mean(dim=0)


class FairseqBias(Fairseq):
    def __init__(self):
        super().__init__(True)


TIMED = dict(x=add("nbc"), y=add("mbc"), mask=add("nm"))
S("fairseq_encoder", Fairseq, **TIMED)
S("fairseq_bias_kv", FairseqBias, **TIMED)


class Espnet(nn.Module):
    """A mask of 0 and 1 compared with 0; filled with the least number, and with 0 again after the softmax."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(E, E) for _ in range(4))

    def attend(self, v, s, mask):
        mask = mask.unsqueeze(1).eq(0)
        p = torch.softmax(s.masked_fill(mask, MIN), dim=-1).masked_fill(mask, 0.0)
        return self.out(torch.matmul(p, v).transpose(1, 2).contiguous().view(v.size(0), -1, H * D))

    def project(self, x, y):
        return (p(t).view(t.size(0), -1, H, D).transpose(1, 2) for p, t in ((self.q, x), (self.k, y), (self.v, y)))

    def forward(self, x, y, keep):
        q, k, v = self.project(x, y)
        return self.attend(v, torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D), keep)


class EspnetRelative(Espnet):
    """The newer relative positions: 2N - 1 of them (here of 9 tokens), shifted by a column of zeros and a view."""
    def __init__(self):
        super().__init__()
        self.pos = nn.Linear(E, E, bias=False)
        self.u, self.w = nn.Parameter(rows(H, D)), nn.Parameter(rows(H, D, seed=1))
        self.register_buffer("table", rows(1, 17, E, seed=2))

    def forward(self, x, keep):
        q, k, v = self.project(x, x)
        n, q = x.shape[1], q.transpose(1, 2)
        p = self.pos(self.table).view(1, -1, H, D).transpose(1, 2)
        ac = torch.matmul((q + self.u).transpose(1, 2), k.transpose(-2, -1))
        bd = torch.matmul((q + self.w).transpose(1, 2), p.transpose(-2, -1))
        zeros = torch.zeros((*bd.size()[:3], 1), dtype=bd.dtype)
        bd = torch.cat([zeros, bd], dim=-1).view(*bd.size()[:2], 2 * n, n)[:, :, 1:].view_as(bd)[..., :n]
        return self.attend(v, (ac + bd) / math.sqrt(D), keep)


class Wenet(Espnet):
    """Streaming: keys and values come side by side from a cache, and go back into it."""
    def forward(self, x, cache, pad):
        q, k, v = self.project(x, x)
        past = torch.split(cache, cache.size(-1) // 2, dim=-1)
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        mask = torch.cat([pad.unsqueeze(1), torch.ones(x.size(0), 1, x.size(1), dtype=torch.bool)], dim=-1)
        return self.attend(v, torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D), mask), torch.cat((k, v), dim=-1)


class WenetChunks(Espnet):
    """The mask of a chunk beside that of the cache: that it is as long as the chunk, a guard says."""
    def forward(self, x, cache, chunk):
        q, k, v = self.project(x, x)
        past = torch.split(cache, cache.size(-1) // 2, dim=-1)
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        mask = torch.cat([torch.ones(x.size(0), 1, cache.size(2), dtype=torch.bool), chunk.unsqueeze(1)], dim=-1)
        return self.attend(v, torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D), mask), torch.cat((k, v), dim=-1)


S("espnet_masked_twice", Espnet, keep=keep("bnm"))
S("espnet_one_row_of_mask", Espnet, keep=keep("b1m"))
S("espnet_dead_rows", Espnet, keep=dead_keep("bnm"))
S("espnet_relative", EspnetRelative, x=add("b9c"), keep=keep("b99"), dynamic="b")
S("wenet_cache", Wenet, cache=add("bhmB"), **X)
S("wenet_chunks_auto", WenetChunks, cache=add("bhmB"), chunk=keep("bn"), **X, auto=True)
S("checked_length", lambda q, k, v, length: (lambda n: (torch._check(n == k.shape[2]), soft(
    (q @ k.mT * 0.3).masked_fill(torch.arange(n) >= n - 1, -1e9)) @ v)[1])(length.item()),
  length=In("m", lambda g, s: torch.tensor(s[0])), auto=True, note="a number that is checked to be the keys' size")
FIXED.update(B=16)

# ------------------------------------------------------------------ language models
S("chatglm_layer_coefficient", lambda q, k, v, drop: (lambda s: torch.bmm((lambda a: F.softmax(
    a.view(q.shape[1], H, q.shape[0], k.shape[0]).masked_fill(drop, -10000.0).float() * 3.0, dim=-1))(s).flatten(0, 1),
    v.view(v.shape[0], -1, D).transpose(0, 1)).view(q.shape[1], H, -1, D).permute(2, 0, 1, 3).flatten(2))(
    torch.baddbmm(torch.zeros(1, 1, 1), (q / (math.sqrt(D) * 3.0)).flatten(1, 2).transpose(0, 1),
                  k.flatten(1, 2).transpose(0, 1).transpose(1, 2), beta=0.0, alpha=1.0)),
  q=add("nbhd", 1.2), k=add("mbhd", 1.2), v=add("mbhd"),
  note="queries divided by the layer's number, float scores multiplied by it after the mask")
S("deepseek_heads_inside", lambda q, k, v: (lambda s: einsum("bsht,bthd->bshd", (s + torch.full((q.shape[1],
    k.shape[1]), -INF).triu_(1).unsqueeze(1)).softmax(dim=-1, dtype=torch.float32).type_as(q), v))(
    einsum("bshd,bthd->bsht", q, k) * 0.3), q=add("bnhd", 1.2), k=add("bnhd", 1.2), v=add("bnhd"))
S("deepseek_absorbed", lambda self, q, r, y, z: (lambda a: einsum("bshc,hdc->bshd", einsum("bsht,btc->bshc", a, y),
    self.up[:, 8:]))(((einsum("bshc,btc->bsht", einsum("bshd,hdc->bshc", q, self.up[:, :8]), y)
                       + einsum("bshr,btr->bsht", r, z)) * 0.2).softmax(-1)),
  q=add("bnhd"), r=add("bnh4"), y=add("bm6"), z=add("bm4"), parts=dict(up=lambda: nn.Parameter(rows(4, 16, 6))),
  note="latent keys are the values, too; a second product of rotated parts")
S("adapter_two_softmaxes", lambda self, q, k, v, a, w: torch.matmul(torch.cat([self.gate.tanh() * F.softmax(
    q @ a.mT * 0.35, dim=-1), F.softmax(q @ k.mT * 0.35, dim=-1)], dim=-1), torch.cat([w, v], dim=2)),
  a=add("1h6d"), w=add("bh6e"), count=2, parts=dict(gate=lambda: nn.Parameter(torch.full((1, 4, 1, 1), 0.7))),
  note="LLaMA-Adapter: probabilities of a prompt, gated, side by side with those of the text")
S("chunked_causal", lambda q, k, v: (lambda i: soft((q @ k.mT * 0.4).masked_fill((i[:, None] // 4 != i[None] // 4)
    | (i[:, None] < i[None]), FAR)) @ v)(torch.arange(q.shape[2])), **SELF, note="Llama 4: chunks of positions")
S("grouped_interleaved_seq_first", lambda q, k, v: merge(soft(q.transpose(1, 2) @ k.repeat_interleave(2, 2).permute(0,
    2, 3, 1) / math.sqrt(D)) @ v.repeat_interleave(2, dim=2).transpose(1, 2)), q=add("bnhd", 1.2), k=add("bmgd", 1.2),
  v=add("bmgd"), note="Mistral's reference: heads repeated before they are transposed")
S("beit_biases", lambda self, x: (lambda q, k, v: self.out(merge(((q * D ** -0.5) @ k.transpose(-2, -1)).softmax(-1)
    @ v)))(*F.linear(x, self.w, torch.cat((self.a, torch.zeros_like(self.b), self.b))).reshape(*x.shape[:2], 3, H,
                                                                                               -1).permute(2, 0, 3, 1,
                                                                                                           4)), **X,
  parts=dict(w=lambda: nn.Parameter(rows(96, 32) * 0.2), a=lambda: nn.Parameter(rows(32)),
             b=lambda: nn.Parameter(rows(32, seed=1)), out=lin()), note="no bias of the keys")


class OpenClip(nn.Module):
    """open_clip's custom attention: cosines, a clamped scale a head, heads scaled afterwards; tokens first."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.logit_scale, self.head_scale = nn.Parameter(torch.empty(H, 1, 1)), nn.Parameter(torch.empty(H, 1, 1))

    def forward(self, x, drop):
        n, b, c = x.shape
        q, k, v = (t.reshape(n, b * H, -1).transpose(0, 1) for t in self.qkv(x).chunk(3, dim=-1))
        s = torch.bmm(F.normalize(q, dim=-1), F.normalize(k, dim=-1).transpose(-1, -2))
        s = (s.view(b, H, n, n) * torch.clamp(self.logit_scale + 2, max=math.log(100.0)).exp()).view(-1, n, n)
        s = s + torch.zeros_like(drop, dtype=s.dtype).masked_fill_(drop, -INF)
        o = (torch.bmm(s.softmax(dim=-1), v).view(b, H, n, D) * self.head_scale).view(-1, n, D)
        return self.out(o.transpose(0, 1).reshape(n, b, c))


S("open_clip_cosine", OpenClip, x=add("nbc"), drop=drop("nn"))


# ------------------------------------------------------------------ pictures
class Danet(nn.Module):
    """DANet: positions attend to positions; channels to channels, by how far a score is below the largest."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Conv2d(E, 8, 1), nn.Conv2d(E, 8, 1), nn.Conv2d(E, E, 1)
        self.gamma, self.beta = nn.Parameter(torch.ones(1) * 0.7), nn.Parameter(torch.ones(1) * 1.3)

    def forward(self, x):
        b, c, hh, ww = x.shape
        q, k, v = self.q(x).view(b, -1, hh * ww).permute(0, 2, 1), self.k(x).flatten(2), self.v(x).flatten(2)
        o = torch.bmm(v, torch.bmm(q, k).softmax(-1).permute(0, 2, 1)).view(b, c, hh, ww)
        y = x.view(b, c, -1)
        e = torch.bmm(y, y.permute(0, 2, 1))
        e = torch.max(e, -1, keepdim=True)[0].expand_as(e) - e
        return self.gamma * o + x, self.beta * torch.bmm(torch.softmax(e, -1), y).view(b, c, hh, ww) + x


class CrissCross(nn.Module):
    """CCNet: each pixel attends to its column and row; one softmax over both, two products."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Conv2d(E, 8, 1), nn.Conv2d(E, 8, 1), nn.Conv2d(E, E, 1)

    def forward(self, x):                                           # (B, C, 4, 6)
        b, c, hh, ww = x.shape
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.einsum("bchw,bcgw->bhwg", q, k) + torch.diag(torch.full((hh,), -INF))[None, :, None]
        t = torch.einsum("bchw,bchg->bhwg", q, k)
        p = torch.cat([s, t], 3).softmax(3)
        return torch.einsum("bhwg,bcgw->bchw", p[..., :hh], v) + torch.einsum("bhwg,bchg->bchw", p[..., hh:], v)


class Mask2Former(nn.Module):
    """Queries see what the last layer's masks cover; where that is nothing, everything."""
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(E, H)

    def forward(self, x, y, z):                                     # (N, B, C), (M, B, C), (B, N, M)
        drop = (z.sigmoid().unsqueeze(1).repeat(1, H, 1, 1).flatten(0, 1) < 0.5).bool().detach()
        drop = drop & (drop.sum(-1, keepdim=True) != y.shape[0])
        return self.mha(x, y, y, attn_mask=drop)[0]


class Flamingo(nn.Module):
    """Text sees the last picture before it; before the first one it sees none, and gets zeros."""
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(E, E, False), nn.Linear(E, 2 * E, False), nn.Linear(E, E, False)

    def forward(self, x, y, z):                                     # z: is there a picture at this token?
        b, m = x.shape[0], y.shape[1]
        q = split(self.q(x)) * D ** -0.5
        k, v = (split(t) for t in self.kv(y.flatten(1, 2)).chunk(2, dim=-1))
        s = einsum("...id,...jd->...ij", q, k)
        time = z.cumsum(dim=-1)
        media = torch.arange(1, m + 1).repeat_interleave(3)
        s = s.masked_fill(~(time[:, None, :, None] == media), FAR)
        s = s - s.amax(dim=-1, keepdim=True).detach()
        p = s.softmax(dim=-1).masked_fill((time == 0)[:, None, :, None], 0.0)
        return self.out(merge(einsum("...ij,...jd->...id", p, v)))


S("danet_positions_channels", Danet, x=add("bc46", 0.4), dynamic="b", count=2)
trap("ccnet_criss_cross", CrissCross, x=add("bc46"), dynamic="b")
S("mask2former", Mask2Former, x=add("nbc"), y=add("mbc"), z=add("bnm"))
S("flamingo", Flamingo, x=add("bnc"), y=add("bm3c"), z=integer("bn", 2), sizes=[dict(b=3, n=5, m=3), dict(b=2, n=9,
                                                                                                            m=6)])


# ------------------------------------------------------------------ few of the keys, or others
class LocalAttention(nn.Module):
    """lucidrains' local-attention: buckets of four look at themselves and the one before."""
    def forward(self, q, k, v):
        n, w = q.shape[2], 4
        rest = -n % w
        q, k, v = (F.pad(t, (0, 0, 0, rest)).flatten(0, 1).unflatten(1, (-1, w)) for t in (q, k, v))
        at = torch.arange(q.shape[1] * w).view(1, -1, w)
        around = lambda t, c: torch.cat([F.pad(t, (0,) * (2 * t.ndim - 4) + (1, 0), value=c)[:, :-1], t], dim=2)
        k, v, seen = around(k, 0.0), around(v, 0.0), around(at, -1)
        s = einsum("bhid,bhjd->bhij", q, k) * D ** -0.5
        far = at[..., :, None] < seen[..., None, :]
        s = s.masked_fill(far, FAR).masked_fill(seen[..., None, :] == -1, FAR)
        return einsum("bhij,bhje->bhie", s.softmax(-1), v).flatten(1, 2)[:, :n].unflatten(0, (-1, H))


class LocalBuckets(nn.Module):
    """The same where the number of buckets is worked out first, as lucidrains' code does: n must be whole buckets."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):
        n, w = x.shape[1], 4
        assert n % w == 0
        buckets = n // w
        q, k, v = (split(t).flatten(0, 1).reshape(x.shape[0] * H, buckets, n // buckets, D)
                   for t in self.qkv(x).chunk(3, -1))
        at = torch.arange(n).view(1, buckets, w)
        around = lambda t, c: torch.cat([F.pad(t, (0,) * (2 * t.ndim - 4) + (1, 0), value=c)[:, :-1], t], dim=2)
        k, v, seen = around(k, 0.0), around(v, 0.0), around(at, -1)
        s = einsum("bhid,bhjd->bhij", q, k) * D ** -0.5
        far = at[..., :, None] < seen[..., None, :]
        s = s.masked_fill(far, FAR).masked_fill(seen[..., None, :] == -1, FAR)
        o = einsum("bhij,bhje->bhie", s.softmax(-1), v)
        return self.out(merge(o.reshape(x.shape[0], H, n, D)))


class GlobalLocal(nn.Module):
    """PEGASUS-X: blocks attend to themselves and to a few global tokens; one softmax over both, two products."""
    def forward(self, q, k, v, gk, gv, mask):
        b, h, n, d = q.shape
        q, k, v = q.view(b, h, -1, 4, d), k.view(b, h, -1, 4, d), v.view(b, h, -1, 4, d)
        s = torch.cat([einsum("BHNKF,BHGF->BHNKG", q, gk), einsum("BHNKF,BHNXF->BHNKX", q, k)], dim=-1)
        m = F.pad(mask.view(b, -1, 4), (3, 0))
        p = F.softmax(s + m[:, None, :, None, :], dim=-1)
        return einsum("BHNKG,BHGF->BHNKF", p[..., :3], gv) + einsum("BHNKX,BHNXF->BHNKF", p[..., 3:], v)


class Memory(nn.Module):
    """Persistent memory (Sukhbaatar et al.): weights are more keys and values, in products of their own."""
    def __init__(self):
        super().__init__()
        self.mk, self.mv = nn.Parameter(rows(4, 5, 8)), nn.Parameter(rows(4, 5, 6, seed=1))

    def forward(self, q, k, v):
        p = F.softmax(torch.cat([q @ k.mT, q @ self.mk.mT], dim=-1) * 0.3, dim=-1)
        m = k.shape[2]
        return p[..., :m] @ v + p[..., m:] @ self.mv


FOURS = dict(q=add("bh8d", 1.2), k=add("bh8d", 1.2), v=add("bh8d"), gk=add("bh3d", 1.2), gv=add("bh3d"),
             mask=add("b8"), dynamic="b")
S("lucidrains_local", LocalAttention, q=add("bh9d", 1.2), k=add("bh9d", 1.2), v=add("bh9e"), dynamic="b")
S("lucidrains_local_any", LocalBuckets, x=add("bnc"), dynamic="bn", auto=True,
  sizes=[dict(b=3, n=12), dict(b=2, n=8), dict(b=5, n=20)])
S("pegasus_x_blocks", GlobalLocal, **FOURS)
S("persistent_memory", Memory)
S("joint_of_two_kinds", lambda q, k, v, a, w: (lambda p: p[..., :5] @ w + p[..., 5:] @ v)(soft(torch.cat([q @ a.mT
    * 0.4, q @ k.mT * 0.4], -1))), a=add("bh5d", 1.2), w=add("bh5e"),
  note="T5Gemma 2 and others: own and cross keys under one softmax")
S("joint_of_two_kinds_cat", lambda q, k, v, a, w: soft(torch.cat([q @ a.mT, q @ k.mT], -1) * 0.4)
  @ torch.cat([w, v], 2), a=add("bh5d", 1.2), w=add("bh5e"))
S("joint_masked", lambda q, k, v, a, w, keep, mask: (lambda p: p[..., :5] @ w + p[..., 5:] @ v)(soft(torch.cat([q
    @ a.mT * 0.4 + mask, (q @ k.mT * 0.4).masked_fill(~keep, -INF)], -1))), a=add("bh5d", 1.2), w=add("bh5e"),
  mask=add("bhn5"))
trap("joint_values_swapped", lambda q, k, v, a, w: (lambda p: p[..., -5:] @ w + p[..., :-5] @ v)(soft(torch.cat([q
    @ a.mT * 0.4, q @ k.mT * 0.4], -1))), a=add("bh5d", 1.2), w=add("bh5e"),
     note="the last five weights meet the values of the first five keys")
trap("joint_part_weighed", lambda q, k, v, a, w: (lambda p: p[..., :5] @ w + 2.0 * (p[..., 5:] @ v))(soft(torch.cat([q
    @ a.mT * 0.4, q @ k.mT * 0.4], -1))), a=add("bh5d", 1.2), w=add("bh5e"))
trap("joint_other_queries", lambda q, k, v, a, w: (lambda p: p[..., :5] @ w + p[..., 5:] @ v)(soft(torch.cat([q.flip(2)
    @ a.mT * 0.4, q @ k.mT * 0.4], -1))), a=add("bh5d", 1.2), w=add("bh5e"), note="two different queries a row")
trap("joint_parts_overlap", lambda q, k, v, a, w: (lambda p: p[..., :5] @ w + p[..., 2:] @ torch.cat([w[:, :, 2:], v],
    2))(soft(torch.cat([q @ a.mT * 0.4, q @ k.mT * 0.4], -1))), a=add("bh5d", 1.2), w=add("bh5e"))
trap("joint_two_masks", lambda q, k, v, keep, drop: soft((q @ k.mT * 0.4).masked_fill(~keep, -INF)) @ v
     + soft((q @ k.mT * 0.4).masked_fill(drop, -INF)) @ v, note="two softmaxes, not one")
trap("memorizing_neighbours", lambda q, k, v, a, w: (lambda p: einsum("bhij,bhijd->bhid", p[..., :3], w) + p[..., 3:]
     @ v)(soft(torch.cat([einsum("bhid,bhijd->bhij", q, a), q @ k.mT], -1) * 0.4)), a=add("bhn3d"), w=add("bhn3e"),
     note="neighbours of each query's own, beside keys for all")
trap("nystrom_landmarks", lambda q, k, v: (lambda a, c: soft(q @ c.mT * 0.4) @ (soft(a @ c.mT * 0.4) @ (soft(a
    @ k.mT * 0.4) @ v)))(q.unflatten(2, (2, 4)).mean(3), k.unflatten(2, (2, 4)).mean(3)), q=add("bh8d", 1.2),
     k=add("bh8d", 1.2), v=add("bh8e"), dynamic="b")
S("linformer", lambda self, q, k, v: soft(q @ einsum("bhnd,nk->bhkd", k, self.a).mT * 0.4) @ einsum("bhnd,nk->bhkd", v,
    self.c), q=add("bh8d", 1.2), k=add("bh8d", 1.2), v=add("bh8e"), dynamic="b",
  parts=dict(a=lambda: nn.Parameter(rows(8, 3)), c=lambda: nn.Parameter(rows(8, 3, seed=1))))
other("cosformer", lambda q, k, v: (lambda a, c, i: (lambda x, y: (x @ (y.mT @ v)) / (x @ y.sum(2)[..., None] + 1e-6))(
    torch.cat([a * i.sin(), a * i.cos()], -1), torch.cat([c * i.sin(), c * i.cos()], -1)))(q.relu(), k.relu(),
        (torch.arange(q.shape[2]) * 0.1)[:, None]), **SELF)
other("focused_linear", lambda q, k, v: (lambda f: (lambda a, c: a @ (c.mT @ v) / (a @ c.mean(2, keepdim=True).mT
    + 1e-6))(f(q), f(k)))(lambda t: (lambda r: r ** 3 / (r ** 3).norm(dim=-1, keepdim=True) * r.norm(dim=-1,
        keepdim=True))(t.relu() + 1e-6)), **SELF)
S("temperature_of_the_token", lambda self, q, k, v: soft((q @ k.mT) * F.softplus(self.t(q))) @ v,
  parts=dict(t=lin(8, 1)), note="each query says how sharp it looks")
S("gmlp_tiny_attention", lambda self, x: (lambda q, k, v: self.out(soft(einsum("bnd,bmd->bnm", q, k) * 16 ** -0.5)
    @ v))(*self.qkv(x).chunk(3, -1)), **X, parts=dict(qkv=lin(E, 48), out=lin(16, E)))
S("rope_but_for_memory", lambda q, k, v: (lambda turn: (lambda kk: soft(turn(q, 0) @ kk.mT * 0.4) @ v)(torch.cat([k[:,
    :, :2], turn(k[:, :, 2:], 0)], 2)))(lambda t, s: (lambda a: t * a.cos() + torch.cat([-t[..., 4:], t[..., :4]], -1)
        * a.sin())(torch.outer(torch.arange(t.shape[2]).float(), 0.3 ** torch.arange(8).remainder(4)))),
  ranges=dict(m=(4, 63)), sizes=[dict(b=3, n=5, m=7), dict(b=2, n=9, m=13)],
  note="SAM 2: object pointers are not turned")
