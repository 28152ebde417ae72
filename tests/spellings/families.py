"""Attention as the code of well-known libraries and papers writes it: diffusers, timm, torchvision, lucidrains' ViTs,
AlphaFold, Whisper, graph networks ..."""
from spell import *

E, H, D = 32, 4, 8
X = dict(x=add("bnc"))
lin = lambda a=E, b=E, bias=True: (lambda: nn.Linear(a, b, bias))
QKVO = dict(q=lin(), k=lin(), v=lin(), out=lin())


class Diffusers(nn.Module):
    """head_to_batch_dim, baddbmm into an empty tensor with beta 0 or into the mask, batch_to_head_dim."""
    def __init__(self, upcast=False):
        super().__init__()
        self.to_q, self.to_k, self.to_v, self.to_out = nn.Linear(E, E, False), nn.Linear(E, E, False), nn.Linear(E, E,
            False), nn.Linear(E, E)
        self.upcast = upcast

    def heads(self, t):
        b, n, c = t.shape
        return t.reshape(b, n, H, c // H).permute(0, 2, 1, 3).reshape(b * H, n, c // H)

    def scores(self, q, k, mask):
        if self.upcast:
            q, k = q.float(), k.float()
        base = torch.empty(q.shape[0], q.shape[1], k.shape[1], dtype=q.dtype, device=q.device) if mask is None else mask
        s = torch.baddbmm(base, q, k.transpose(-1, -2), beta=0 if mask is None else 1, alpha=D ** -0.5)
        return s.softmax(dim=-1).to(self.to_q.weight.dtype)

    def attend(self, x, y, mask=None):
        q, k, v = self.heads(self.to_q(x)), self.heads(self.to_k(y)), self.heads(self.to_v(y))
        o = torch.bmm(self.scores(q, k, mask), v)
        o = o.reshape(o.shape[0] // H, H, o.shape[1], D).permute(0, 2, 1, 3).reshape(o.shape[0] // H, o.shape[1], E)
        return self.to_out(o)


class DiffusersSelf(Diffusers):
    def forward(self, x):
        return self.attend(x, x) + x


class DiffusersCross(Diffusers):
    def forward(self, x, y, pad):
        mask = ((1 - pad.to(x.dtype)) * -10000.0).unsqueeze(1).repeat_interleave(H, dim=0)
        return self.attend(x, y, mask)


class DiffusersUpcast(Diffusers):
    def __init__(self):
        super().__init__(upcast=True)

    def forward(self, x, y):
        return self.attend(x, y)


class DiffusersSliced(Diffusers):
    """Sliced attention: one head at a time into a preallocated result."""
    def forward(self, x):
        q, k, v = self.heads(self.to_q(x)).unflatten(0, (-1, H)), self.heads(self.to_k(x)).unflatten(0,
            (-1, H)), self.heads(self.to_v(x)).unflatten(0, (-1, H))
        o = torch.zeros_like(q)
        for i in range(H):
            o[:, i] = torch.bmm((torch.bmm(q[:, i], k[:, i].mT) * D ** -0.5).softmax(-1), v[:, i])
        return self.to_out(o.transpose(1, 2).flatten(2))


S("diffusers_self", DiffusersSelf, **X)
S("diffusers_cross", DiffusersCross, **X, pad=padding(torch.int64))
S("diffusers_upcast", DiffusersUpcast, **X, dtype=torch.bfloat16)
S("diffusers_sliced", DiffusersSliced, **X, count=4)


class LatentDiffusion(nn.Module):
    """CompVis' CrossAttention: einops' rearrange and einsum over (b h)."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(E, E, False), nn.Linear(E, E, False), nn.Linear(E, E,
            False), nn.Linear(E, E)

    def forward(self, x, y, keep):
        f = lambda t: t.unflatten(-1, (H, D)).permute(0, 2, 1, 3).flatten(0, 1)
        q, k, v = f(self.q(x)), f(self.k(y)), f(self.v(y))
        s = torch.einsum("b i d, b j d -> b i j", q, k) * D ** -0.5
        s.masked_fill_(~keep[:, None].expand(-1, H, -1).reshape(-1, 1, keep.shape[1]), -torch.finfo(s.dtype).max)
        o = torch.einsum("b i j, b j d -> b i d", s.softmax(dim=-1), v)
        return self.o(o.unflatten(0, (-1, H)).permute(0, 2, 1, 3).flatten(2))


S("latent_diffusion_cross", LatentDiffusion, **X, keep=padding())


class QkvLegacy(nn.Module):
    """Guided diffusion's QKVAttentionLegacy: channels first, both sides scaled by the fourth root,
    softmax in float32."""
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.proj = nn.GroupNorm(4, E), nn.Conv1d(E, 3 * E, 1), nn.Conv1d(E, E, 1)

    def forward(self, x):                                           # (B, C, N)
        b, c, n = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b * H, D * 3, n).split(D, dim=1)
        scale = 1 / math.sqrt(math.sqrt(D))
        w = torch.einsum("bct,bcs->bts", q * scale, k * scale)
        w = torch.softmax(w.float(), dim=-1).type(w.dtype)
        return x + self.proj(torch.einsum("bts,bcs->bct", w, v).reshape(b, c, n))


class QkvNew(QkvLegacy):
    def forward(self, x):
        b, c, n = x.shape
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=1)
        scale = 1 / math.sqrt(math.sqrt(D))
        w = torch.einsum("bct,bcs->bts", (q * scale).view(b * H, D, n), (k * scale).view(b * H, D, n))
        w = torch.softmax(w, dim=-1)
        return x + self.proj(torch.einsum("bts,bcs->bct", w, v.reshape(b * H, D, n)).reshape(b, c, n))


S("guided_diffusion_legacy", QkvLegacy, x=add("bcn"), ranges=dict(n=(2, 63)), sizes=SIZES)
S("guided_diffusion_new", QkvNew, x=add("bcn"), ranges=dict(n=(2, 63)), sizes=SIZES)


class Joint(nn.Module):
    """Stable Diffusion 3's and Flux's: text and image tokens with projections of their own, one attention over both,
    split again."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(E, 3 * E), nn.Linear(E, 3 * E)
        self.na, self.nb = nn.RMSNorm(D), nn.RMSNorm(D)

    def forward(self, x, y):
        f = lambda t: t.view(t.shape[0], -1, H, D).transpose(1, 2)
        (q, k, v), (r, l, w) = (map(f, p(t).chunk(3, -1)) for p, t in ((self.a, x), (self.b, y)))
        q, k, v = torch.cat([self.na(q), self.nb(r)], 2), torch.cat([self.na(k), self.nb(l)], 2), torch.cat([v, w], 2)
        o = (soft(q @ k.mT * D ** -0.5) @ v).transpose(1, 2).flatten(2)
        return o[:, : x.shape[1]], o[:, x.shape[1] :]


S("joint_text_image", Joint, x=add("bnc"), y=add("bmc"))
S("dit_modulated",
  lambda self, x, t: (lambda s, b, g: x + g[:, None] * self.out((lambda q, k, v: soft((q * D ** -0.5) @ k.mT)
                                                                 @ v)(*self.qkv(self.norm(x) * (1 + s[:, None]) + b[:,
                                                                     None]).unflatten(-1, (3, H, D)).permute(2, 0, 3,
                                                                         1, 4)).transpose(1, 2).flatten(2)))(
    *self.ada(F.silu(t)).chunk(3, -1)), **X, t=add("bc"), parts=dict(ada=lin(E, 3 * E), qkv=lin(E, 3 * E), out=lin(),
                                                                     norm=lambda: nn.LayerNorm(E,
                                                                         elementwise_affine=False)))


class Timm(nn.Module):
    """timm's Attention without the fused path: q, k norms, q scaled, attention dropout."""
    def __init__(self):
        super().__init__()
        self.qkv, self.q_norm, self.k_norm, self.attn_drop, self.proj = nn.Linear(E,
            3 * E), nn.LayerNorm(D), nn.LayerNorm(D), nn.Dropout(0.1), nn.Linear(E, E)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        q = q * D ** -0.5
        attn = self.attn_drop((q @ k.transpose(-2, -1)).softmax(dim=-1))
        return self.proj((attn @ v).transpose(1, 2).reshape(b, n, c))


S("timm_attention", Timm, **X)
S("lucidrains_vit",
  lambda self, x: (lambda q, k, v: self.out((self.drop((q @ k.transpose(-1, -2) * D ** -0.5).softmax(-1))
                                             @ v).transpose(1, 2).reshape(x.shape[0], -1, E)))(
    *(t.reshape(t.shape[0], t.shape[1], H, D).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, dim=-1))), **X,
  parts=dict(norm=lambda: nn.LayerNorm(E), qkv=lin(E, 3 * E, False), out=lin(), drop=lambda: nn.Dropout(0.1)))
S("lucidrains_null_key",
  lambda self, x: (lambda q, k, v: self.out((soft(torch.einsum("bhid,bjd->bhij", q * D ** -0.5, k)) @ v[:,
      None]).transpose(1, 2).flatten(2)))(
    self.q(x).unflatten(-1, (H, D)).transpose(1, 2),
    *(torch.cat([n.expand(x.shape[0], 1, D), t], 1) for n, t in zip(self.null, self.kv(x).chunk(2, -1)))), **X,
  parts=dict(q=lin(E, E, False), kv=lin(E, 2 * D, False), out=lin(), null=lambda: nn.Parameter(rows(2, D))),
  note="Imagen's: one key and value for nothing, multi-query")
S("lucidrains_cosine",
  lambda self, x: (lambda q, k, v: self.out((soft(torch.einsum("bhid,bhjd->bhij", F.normalize(q, dim=-1) * self.qs,
                                                               F.normalize(k, dim=-1) * self.ks) * 8)
                                             @ v).transpose(1, 2).flatten(2)))(
    *(t.unflatten(-1, (H, D)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))), **X,
  parts=dict(qkv=lin(E, 3 * E, False), out=lin(), qs=lambda: nn.Parameter(rows(D).abs() + 0.5),
             ks=lambda: nn.Parameter(rows(D, seed=1).abs() + 0.5)))


class TorchvisionSwin(nn.Module):
    """torchvision's shifted_window_attention on 8x12 images of windows of 4: the mask is filled in slice by slice."""
    W, SHIFT = 4, 2

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.table = nn.Parameter(torch.empty((2 * self.W - 1) ** 2, H))
        c = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        r = (c[:, :, None] - c[:, None, :]).permute(1, 2, 0) + 3
        self.register_buffer("index", (r[..., 0] * 7 + r[..., 1]).flatten())

    def forward(self, x):
        b, hh, ww, c = x.shape
        w, s = self.W, self.SHIFT
        y = torch.roll(F.pad(x, (0, 0, 0, 0, 0, 0)), shifts=(-s, -s), dims=(1, 2))
        windows = (hh // w) * (ww // w)
        y = y.view(b, hh // w, w, ww // w, w, c).permute(0, 1, 3, 2, 4, 5).reshape(b * windows, w * w, c)
        qkv = F.linear(y, self.qkv.weight, self.qkv.bias).reshape(y.size(0), y.size(1), 3, H, c // H).permute(2, 0, 3,
            1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q * (c // H) ** -0.5).matmul(k.transpose(-2, -1))
        attn = attn + self.table[self.index].view(w * w, w * w, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        mask = y.new_zeros((hh, ww))
        count = 0
        for i in ((0, -w), (-w, -s), (-s, None)):
            for j in ((0, -w), (-w, -s), (-s, None)):
                mask[i[0] : i[1], j[0] : j[1]] = count
                count += 1
        mask = mask.view(hh // w, w, ww // w, w).permute(0, 2, 1, 3).reshape(windows, w * w)
        mask = mask.unsqueeze(1) - mask.unsqueeze(2)
        mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
        attn = attn.view(b, windows, H, w * w, w * w) + mask.unsqueeze(1).unsqueeze(0)
        attn = F.softmax(attn.view(-1, H, w * w, w * w), dim=-1)
        y = attn.matmul(v).transpose(1, 2).reshape(y.size(0), y.size(1), c)
        y = self.proj(y).view(b, hh // w, ww // w, w, w, c).permute(0, 1, 3, 2, 4, 5).reshape(b, hh, ww, c)
        return torch.roll(y, shifts=(s, s), dims=(1, 2))


S("torchvision_swin", TorchvisionSwin, x=In("bkyc", add("").draw), dynamic="b")


class Grid(nn.Module):
    """MaxViT: attention within blocks, then over a grid, with a relative bias of each."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(E, 3 * E), nn.Linear(E, 3 * E)
        self.bias = nn.Parameter(torch.empty(H, 16, 16))

    def one(self, p, t):                                            # (B, windows, P, C)
        q, k, v = p(t).unflatten(-1, (3, H, D)).permute(3, 0, 1, 4, 2, 5).unbind(0)
        return (F.softmax(torch.einsum("BGHID,BGHJD->BGHIJ", q, k * D ** -0.5) + self.bias.unsqueeze(0),
                          dim=-1) @ v).permute(0, 1, 3, 2, 4).flatten(3)

    def forward(self, x):                                           # (B, 8, 12, C)
        b, hh, ww, c = x.shape
        y = x.reshape(b, hh // 4, 4, ww // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, -1, 16, c)
        x = x + self.one(self.a, y).reshape(b, hh // 4, ww // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        y = x.reshape(b, 4, hh // 4, 4, ww // 4, c).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, 16, c)
        return x + self.one(self.b, y).reshape(b, hh // 4, ww // 4, 4, 4, c).permute(0, 3, 1, 4, 2, 5).reshape(x.shape)


S("maxvit_block_and_grid", Grid, x=In("bkyc", add("").draw), dynamic="b", count=2)


class BotNet(nn.Module):
    """Two-dimensional relative logits, by padding and slicing (Bello et al.)."""
    def __init__(self, h=4, w=6):
        super().__init__()
        self.qkv = nn.Conv2d(E, 3 * E, 1, bias=False)
        self.rh, self.rw = nn.Parameter(torch.empty(2 * h - 1, D)), nn.Parameter(torch.empty(2 * w - 1, D))

    @staticmethod
    def one_axis(q, rel):
        b, h, x, y, d = q.shape
        s = torch.einsum("bhxyd,rd->bhxyr", q, rel).flatten(1, 2)       # (b, h*x, y, 2y-1)
        s = F.pad(s, (0, 1)).flatten(2)
        s = F.pad(s, (0, y - 1)).reshape(b, h * x, y + 1, 2 * y - 1)[:, :, :y, y - 1 :]
        return s.reshape(b, h, x, 1, y, y).expand(-1, -1, -1, x, -1, -1)

    def forward(self, x):                                           # (B, C, 4, 6)
        b, c, hh, ww = x.shape
        q, k, v = self.qkv(x).unflatten(1, (3 * H, D)).flatten(3).mT.chunk(3, 1)
        q = q * D ** -0.5
        s = q @ k.mT
        g = q.unflatten(2, (hh, ww))
        bw = self.one_axis(g, self.rw).permute(0, 1, 2, 4, 3, 5)
        bh = self.one_axis(g.transpose(2, 3), self.rh).permute(0, 1, 4, 2, 5, 3)
        s = s + bw.reshape(s.shape) + bh.reshape(s.shape)
        return (soft(s) @ v).mT.reshape(b, c, hh, ww)


S("botnet_relative", BotNet, x=add("bc46"), dynamic="b")


class Mvit(nn.Module):
    """Pooled q, k, v; the pooled queries are added to the result."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.pool = nn.ModuleList([nn.Conv2d(D, D, 3, s, 1, groups=D, bias=False) for s in (1, 2, 2)])

    def forward(self, x):                                           # (B, 24, C): 4 x 6
        b, n, c = x.shape
        ts = self.qkv(x).reshape(b, n, 3, H, D).permute(2, 0, 3, 1, 4)
        q, k, v = (p(t.reshape(b * H, 4, 6, D).permute(0, 3, 1, 2)).flatten(2).mT.reshape(b, H, -1, D)
                   for p, t in zip(self.pool, ts))
        return self.out((((q * D ** -0.5) @ k.mT).softmax(-1) @ v + q).transpose(1, 2).flatten(2))


FIXED["u"] = 24
S("mvit_pooled", Mvit, x=add("buc"), dynamic="b")


class AlphaFold(nn.Module):
    """Gated attention over rows with a pair bias and a mask bias; (B, S, N, C)."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.g, self.o = nn.Linear(E, E, False), nn.Linear(E, E, False), nn.Linear(E, E,
            False), nn.Linear(E, E), nn.Linear(E, E)
        self.norm, self.z = nn.LayerNorm(6), nn.Linear(6, H, False)

    def forward(self, x, z, keep):                                  # (B, 3, N, C), (B, N, N, 6), (B, 3, N)
        bias = (1e9 * (keep.to(x.dtype) - 1))[..., :, None, None, :]
        pair = self.z(self.norm(z)).permute(0, 3, 1, 2).unsqueeze(-4)
        f = lambda t: t.view(*t.shape[:-1], H, D).transpose(-2, -3)
        q, k, v = f(self.q(x)) / math.sqrt(D), f(self.k(x)), f(self.v(x))
        a = torch.matmul(q, k.transpose(-1, -2))
        for t in (bias, pair):
            a = a + t
        o = torch.matmul(F.softmax(a, dim=-1), v).transpose(-2, -3)
        o = o * torch.sigmoid(self.g(x)).view(*x.shape[:-1], H, D)
        return self.o(o.reshape(*x.shape[:-1], E))


S("alphafold_row", AlphaFold, x=add("b3nc"), z=add("bnn6"),
  keep=In("b3n", lambda g, s: (torch.rand(s, generator=g) < 0.7).index_fill(-1, torch.tensor([0]), True)))


class Whisper(nn.Module):
    """OpenAI's own: both sides times d^-1/4, an additive buffer sliced to the length, softmax in float32,
    scores returned."""
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = nn.Linear(E, E), nn.Linear(E, E, False), nn.Linear(E,
            E), nn.Linear(E, E)
        self.register_buffer("mask", torch.full((64, 64), -INF).triu_(1), persistent=False)

    def forward(self, x):
        n, d = x.shape[1], x.shape[2]
        scale = (d // H) ** -0.25
        q = self.query(x).view(*x.shape[:2], H, -1).permute(0, 2, 1, 3) * scale
        k = self.key(x).view(*x.shape[:2], H, -1).permute(0, 2, 3, 1) * scale
        v = self.value(x).view(*x.shape[:2], H, -1).permute(0, 2, 1, 3)
        qk = (q @ k + self.mask[:n, :n]).float()
        w = F.softmax(qk, dim=-1).to(q.dtype)
        return self.out((w @ v).permute(0, 2, 1, 3).flatten(start_dim=2)), qk.detach()


S("whisper_openai", Whisper, **X)
S("nanogpt_slow",
  lambda self, x: (lambda q, k, v: self.out((lambda a: self.drop(F.softmax(a.masked_fill(self.bias[:, :, : x.size(1),
      : x.size(1)] == 0, -INF), dim=-1)) @ v)((q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))).transpose(1,
          2).contiguous().view(x.size(0), x.size(1), E)))(
    *(t.view(x.size(0), x.size(1), H, E // H).transpose(1, 2) for t in self.qkv(x).split(E, dim=2))), **X,
  parts=dict(qkv=lin(E, 3 * E), out=lin(), drop=lambda: nn.Dropout(0.1),
             bias=lambda: torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64)))
S("annotated_transformer",
  lambda self, x, pad: (lambda q, k, v: self.out((lambda s: F.softmax(s.masked_fill(pad[:, None, None, :].int() == 0,
      -1e9), dim=-1) @ v)(torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))).transpose(1,
          2).contiguous().view(x.size(0), -1, H * D)))(
    *(l(t).view(x.size(0), -1, H, D).transpose(1, 2) for l, t in zip((self.q, self.k, self.v), (x, x, x)))), **X,
  pad=In("bn", padding().draw), parts=QKVO)
S("llama_original",
  lambda self, x: (lambda a: (lambda turn, n: (lambda q, k, v: self.out((F.softmax((torch.matmul(q,
      k.transpose(2, 3)) / math.sqrt(D) + torch.triu(torch.full((n, n), -INF), diagonal=1)).float(),
      dim=-1).type_as(q) @ v).transpose(1, 2).contiguous().view(x.shape[0], n, -1)))(
    turn(self.q(x).view(x.shape[0], n, H, D)).transpose(1, 2),
    turn(self.k(x).view(x.shape[0], n, H, D)).transpose(1, 2), self.v(x).view(x.shape[0], n, H, D).transpose(1, 2)))(
    lambda t: torch.view_as_real(torch.view_as_complex(t.float().reshape(*t.shape[:-1], -1, 2))
                                 * torch.polar(torch.ones_like(a), a)[None, :, None]).flatten(3).type_as(t),
        x.shape[1]))(
    torch.outer(torch.arange(x.shape[1]).float(), 1.0 / (100.0 ** (torch.arange(0, D, 2).float() / D)))), **X,
  parts=QKVO)


class SetTransformer(nn.Module):
    """MAB over inducing points, ISAB and PMA: heads by splitting and stacking on the batch,
    scaled by the full width."""
    def __init__(self):
        super().__init__()
        mk = lambda: nn.ModuleDict({n: nn.Linear(E, E) for n in "qkvo"})
        self.a, self.b, self.c = mk(), mk(), mk()
        self.points, self.seed = nn.Parameter(torch.empty(1, 6, E)), nn.Parameter(torch.empty(1, 2, E))

    @staticmethod
    def mab(p, q, k):
        q, k, v = p["q"](q), p["k"](k), p["v"](k)
        q_, k_, v_ = (torch.stack(t.split(D, 2)).flatten(0, 1) for t in (q, k, v))
        a = torch.softmax(q_.bmm(k_.transpose(1, 2)) / math.sqrt(E), 2)
        o = torch.cat((q_ + a.bmm(v_)).unflatten(0, (H, -1)).unbind(0), 2)
        return o + F.relu(p["o"](o))

    def forward(self, x):
        h = self.mab(self.a, self.points.repeat(x.size(0), 1, 1), x)
        return self.mab(self.c, self.seed.repeat(x.size(0), 1, 1), self.mab(self.b, x, h))


S("set_transformer", SetTransformer, **X, count=3)
S("graphormer_bias",
  lambda self, x, hops, keep: (lambda q, k, v: self.out((soft((q @ k.mT * D ** -0.5 + self.table(hops).permute(0, 3,
      1, 2)).masked_fill(~keep[:, None, None], -INF)) @ v).transpose(1, 2).flatten(2)))(
    *(l(x).unflatten(-1, (H, D)).transpose(1, 2) for l in (self.q, self.k, self.v))), **X, hops=integer("bnn", 6),
  keep=In("bn", padding().draw), parts=dict(table=lambda: nn.Embedding(6, H), **QKVO))
S("reformer_shared_qk",
  lambda self, x: (lambda q, v: (lambda k: self.out((soft((q @ k.mT * D ** -0.5).masked_fill(torch.eye(x.shape[1],
      dtype=torch.bool), -1e5)) @ v).transpose(1, 2).flatten(2)))(F.normalize(q, dim=-1)))(
    *(l(x).unflatten(-1, (H, D)).transpose(1, 2) for l in (self.q, self.v))), **X, sizes=[dict(b=3, n=5),
        dict(b=2, n=9)], parts={n: QKVO[n] for n in ("q", "v", "out")},
  note="keys are the normalised queries; none attends to itself")


class Differential(nn.Module):
    """microsoft/unilm's multihead_diffattn.py: twice as many heads of queries and keys, taken apart after the softmax;
    `apart` says how."""
    def __init__(self, apart, causal=True):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(E, E, False) for _ in range(4))
        self.norm, self.apart, self.causal = nn.RMSNorm(2 * D, eps=1e-5), apart, causal
        self.l = nn.ParameterList(nn.Parameter(rows(D, seed=s) * 0.3) for s in range(4))

    def forward(self, x):
        b, n, _ = x.shape
        q, k = (p(x).view(b, n, H, D).transpose(1, 2) for p in (self.q, self.k))
        v = self.v(x).view(b, n, H // 2, 2 * D).transpose(1, 2)
        s = (q * D ** -0.5) @ k.transpose(-1, -2)
        if self.causal:
            s = s + torch.triu(torch.zeros(n, n).float().fill_(float("-inf")).type_as(s), 1)
        p = F.softmax(s, dim=-1, dtype=torch.float32).type_as(s)
        first, second = (torch.exp(torch.sum(self.l[i] * self.l[i + 1], dim=-1).float()).type_as(q) for i in (0, 2))
        o = self.norm(self.apart(p, first - second + 0.2, b, n) @ v) * 0.8
        return self.out(o.transpose(1, 2).reshape(b, n, E))


def viewed(p, c, b, n):
    p = p.view(b, H // 2, 2, n, n)
    return p[:, :, 0] - c * p[:, :, 1]


def bound(p, c, b, n):
    first, second = p.unflatten(1, (-1, 2)).unbind(2)
    return first - c * second


def chunked(p, c, b, n):
    first, second = p.chunk(2, dim=1)
    return first - c * second


APARTS = dict(views=viewed, unbind=bound, chunk=chunked, steps=lambda p, c, b, n: p[:, 0::2] - p[:, 1::2] * c,
              alpha=lambda p, c, b, n: torch.sub(*p.split(H // 2, 1), alpha=0.3))
for way, apart in APARTS.items():
    S(f"differential_{way}", type(f"Differential{way}", (Differential,), dict(
        __init__=lambda self, apart=apart: Differential.__init__(self, apart))), **X, count=2)
HALVES = lambda q, k: (soft(q[..., :4] @ k[..., :4].mT * 0.5), soft(q[..., 4:] @ k[..., 4:].mT * 0.5))
WEIGHTS = dict(each=lambda: nn.Parameter(rows(4, 1, 1)), one=lambda: nn.Parameter(torch.tensor(0.3)))
S("differential", lambda q, k, v: (lambda a, b: (a - 0.3 * b) @ v)(*HALVES(q, k)), count=2)
S("differential_tensor", lambda self, q, k, v: (lambda a, b: (a - self.one * b) @ v)(*HALVES(q, k)), count=2,
  parts=WEIGHTS)
S("differential_each_head", lambda self, q, k, v: (lambda a, b: (a - self.each * b) @ v)(*HALVES(q, k)), count=2,
  parts=WEIGHTS)
S("differential_added", lambda self, q, k, v: (lambda a, b: (1.5 * a + -self.one * b / 2) @ v)(*HALVES(q, k)), count=2,
  parts=WEIGHTS)
S("differential_einsum", lambda q, k, v: (lambda a, b: torch.einsum("bhnm,bhme->bhne", a - 0.3 * b, v))(*HALVES(q, k)),
  count=2)
S("differential_stacked", lambda q, k, v: (lambda p: (p[0] - 0.3 * p[1]) @ v)(soft(
    torch.stack((q[..., :4], q[..., 4:])) @ torch.stack((k[..., :4], k[..., 4:])).mT * 0.5)), count=2)
S("differential_bf16", lambda q, k, v: (lambda a, b: (a - 0.3 * b) @ v)(*HALVES(q, k)), count=2, dtype=torch.bfloat16)
S("differential_masked", lambda q, k, v, drop: (lambda a, b: (a - 0.3 * b) @ v)(*(soft((q[..., i:i + 4] @ k[...,
    i:i + 4].mT * 0.5).masked_fill(drop, -INF)) for i in (0, 4))), count=2, drop=drop("b1nm"))
S("differential_three", lambda q, k, v: (lambda a, b: (a - (0.3 * b - soft(q @ k.mT * 0.2)) * 0.5) @ v)(*HALVES(q, k)),
  count=3)
S("differential_times_keys", lambda q, k, v, w: (lambda a, b: (a - w * b) @ v)(*HALVES(q, k)), kind="trap", w=add("m"),
  note="a factor for each key")
S("differential_multiplied", lambda q, k, v: (lambda a, b: (a * b) @ v)(*HALVES(q, k)), kind="trap")
S("differential_clamped", lambda q, k, v: (lambda a, b: (a - 0.3 * b).relu() @ v)(*HALVES(q, k)), kind="trap")
S("differential_less_number", lambda q, k, v: (lambda a, b: (a - 0.3 * b - 0.01) @ v)(*HALVES(q, k)), kind="trap")
S("differential_other_keys", lambda q, k, v: (lambda a, b: (a - 0.3 * b.flip(-1)) @ v)(*HALVES(q, k)), kind="trap")
S("differential_one_dead", lambda q, k, v, keep: (lambda a: (a - 0.3 * soft(q @ k.mT)) @ v)(soft((q @ k.mT
    * 0.5).masked_fill(~keep, -INF))), kind="trap", keep=dead_keep("b1nm"),
  note="a row that one of both hides throughout is NaN")
S("differential_split", lambda q, k, v: soft(q[..., :4] @ k[..., :4].mT * 0.5) @ v - 0.3
  * (soft(q[..., 4:] @ k[..., 4:].mT * 0.5) @ v), count=2)
S("gat_additive", lambda self, x, keep: (lambda h: soft(F.leaky_relu(self.a(h) + self.b(h).mT, 0.2).masked_fill(~keep,
    -INF)) @ h)(self.w(x)), kind="trap", x=add("bnc"), keep=keep("bnn"),
  parts=dict(w=lin(), a=lin(E, 1), b=lin(E, 1)), note="a graph attention: sums, not products")
other("retention",
      lambda q, k, v: (q @ k.mT * torch.where(torch.arange(q.shape[2])[:, None] >= torch.arange(k.shape[2]),
                                              0.9 ** (torch.arange(q.shape[2])[:,
                                                                               None] - torch.arange(k.shape[2])).float(), 0.0)) @ v, k=add("bhnd"), v=add("bhne"))
other("attention_free", lambda q, k, v: torch.sigmoid(q)
      * ((k.exp() * v).sum(2, keepdim=True) / k.exp().sum(2, keepdim=True)), v=add("bhmd"))
other("performer", lambda self, q, k, v: (lambda a, c: (a @ (c.mT @ v)) / (a @ c.sum(2)[...,
    None]))(*((t @ self.w - (t * t).sum(-1, keepdim=True) / 2).exp() for t in (q * 0.5, k * 0.5))),
      parts=dict(w=lambda: rows(8, 16)))
S("memory_network", lambda self, x: (lambda p: p @ self.values)(soft(self.q(x) @ self.keys.T * 0.3)), x=add("bnc"),
  parts=dict(q=lin(), keys=lambda: nn.Parameter(rows(11, 32)), values=lambda: nn.Parameter(rows(11, 6, seed=1))),
  note="keys and values are weights")
S("prototype_softmax", lambda self, x: soft(F.linear(x, self.keys) * 0.3) @ self.keys, x=add("bnc"),
  parts=dict(keys=lambda: nn.Parameter(rows(11, 32))))
S("pointer_decoder", lambda q, k, v, drop: (lambda s: (soft(s) @ v, F.log_softmax(s,
    -1)))((q @ k.mT * 0.4).masked_fill(drop, -1e9)), drop=drop("b1nm"), note="the scores are a pointer, too")
S("two_towers_shared_keys", lambda q, k, v, w: (soft(q @ k.mT * 0.4) @ v, soft(w @ k.mT * 0.4) @ v), w=add("bhnd"),
  count=2)
S("chain_of_two", lambda q, k, v: (lambda o: soft(o @ v.mT * 0.4) @ v)(soft(q @ k.mT * 0.4) @ v), v=add("bhmd"),
  count=2, note="the result asks again")
S("residual_scores", lambda q, k, v, w: (lambda s: (lambda t: (soft(s) @ v, soft(t) @ v))(s + w @ k.mT * 0.4))(q
    @ k.mT * 0.4), w=add("bhnd"), count=2, note="RealFormer: the second layer's scores are added to the first's")
S("chunked_queries", lambda q, k, v: torch.cat([soft(c @ k.mT * 0.4) @ v for c in q.split(3, 2)], 2),
  q=add("bh9d", 1.2), dynamic="bm", count=3, note="queries in three pieces")
S("unfolded_neighbours",
  lambda q, k, v: (lambda f: (soft((q.unsqueeze(3) @ f(k).transpose(-1, -2).mT.transpose(-1, -2)) * 0.4)
                              @ f(v)).squeeze(3))(lambda t: F.pad(t, (0, 0, 1, 1)).unfold(2, 3, 1).mT),
  k=add("bhnd", 1.2), v=add("bhne"),
  note="each query sees its three neighbours, cut out by unfold")
