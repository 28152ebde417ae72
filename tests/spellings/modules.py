"""torch.nn's attention modules with their options, as exported and decomposed; Swin's and SAM's blocks;
layers of transformers."""
import itertools

from spell import *

E, H = 32, 4


class Mha(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.mha = nn.MultiheadAttention(E, H, **options)


def mha(name, forward, core=False, options=None, **more):
    """forward(self, ...) calls self.mha, made with the options."""
    def build():
        return type("Module", (Mha,),
                    dict(forward=forward, __init__=lambda self: Mha.__init__(self, **(options or {}))))
    S("mha_" + name, build(), **more)
    if core:
        S("core_mha_" + name, build(), decompose=True, **more)


F_ = dict(batch_first=True)
Q = dict(q=add("bnc"), kv=add("bmc"))
Q_SEQ = dict(q=add("nbc"), kv=add("mbc"))
masks = {
    "none": {},
    "attn_bool": dict(attn_mask=drop("nm")),
    "attn_float": dict(attn_mask=add("nm")),
    "padding_bool": dict(key_padding_mask=In("bm", lambda g, s: ~padding().draw(g, s))),
    "padding_float": dict(key_padding_mask=In("bm", lambda g, s: torch.where(padding().draw(g, s), 0.0, -INF))),
    "both_bool": dict(attn_mask=In("nm", lambda g, s: drop("nm").draw(g, s).index_fill(-1, torch.tensor([0]), False)),
                      key_padding_mask=In("bm", lambda g, s: ~padding().draw(g, s))),
}


def crossing(weights, mask):
    args = ", ".join(["q", "kv"] + list(mask))
    scope = {}
    exec(f"def forward(self, {args}):\n    o = self.mha(q, kv, kv, "
         f"{''.join(f'{m}={m}, ' for m in mask)}need_weights={weights != 'no'}, "
         f"average_attn_weights={weights != 'each'})\n"
         f"    return {'o[0]' if weights == 'no' else 'o'}\n", scope)
    return scope["forward"]


def selfish(weights, mask):
    args = ", ".join(["x"] + list(mask))
    scope = {}
    exec(f"def forward(self, {args}):\n    o = self.mha(x, x, x, "
         f"{''.join(f'{m}={m}, ' for m in mask)}need_weights={weights != 'no'}, "
         f"average_attn_weights={weights != 'each'})\n"
         f"    return {'o[0]' if weights == 'no' else 'o'}\n", scope)
    return scope["forward"]


def square(i):
    return In(i.letters.replace("m", "n"), i.draw)


for (_m, _mask), _w in itertools.product(masks.items(), ("no", "mean", "each")):
    _core = _w != "each" and _m in ("none", "attn_bool", "padding_bool")
    mha(f"cross_{_m}_weights_{_w}", crossing(_w, _mask), core=_core, options=F_, **Q, **_mask)
    mha(f"self_{_m}_weights_{_w}", selfish(_w, _mask), core=_core, options=F_, x=add("bnc"),
        **{k: square(i) for k, i in _mask.items()})
for _w in ("no", "mean"):
    mha(f"seq_first_cross_weights_{_w}", crossing(_w, {}), core=True, **Q_SEQ)
    mha(f"seq_first_self_weights_{_w}", selfish(_w, {}), core=True, x=add("nbc"))
    mha(f"seq_first_padding_weights_{_w}", crossing(_w, masks["padding_bool"]), **Q_SEQ, **masks["padding_bool"])
    mha(f"no_bias_weights_{_w}", selfish(_w, {}), options=dict(bias=False, **F_), x=add("bnc"))
    mha(f"bias_kv_weights_{_w}", crossing(_w, {}), options=dict(add_bias_kv=True, **F_), **Q)
    mha(f"zero_attn_weights_{_w}", crossing(_w, {}), options=dict(add_zero_attn=True, **F_), **Q)
    mha(f"bias_kv_zero_attn_weights_{_w}", crossing(_w, {}), core=True,
        options=dict(add_bias_kv=True, add_zero_attn=True, **F_), **Q)
    mha(f"bias_kv_padding_weights_{_w}", crossing(_w, masks["padding_bool"]), options=dict(add_bias_kv=True, **F_),
        q=add("bnc"), kv=add("b7c"), key_padding_mask=In("b7", masks["padding_bool"]["key_padding_mask"].draw),
        dynamic="bn")
    mha(f"zero_attn_mask_weights_{_w}", crossing(_w, masks["attn_float"]), options=dict(add_zero_attn=True, **F_),
        **Q, **masks["attn_float"])
    mha(f"kdim_vdim_weights_{_w}", {"no": lambda self, q, k, v: self.mha(q, k, v, need_weights=False)[0],
                                    "mean": lambda self, q, k, v: self.mha(q, k, v)}[_w], core=True,
        options=dict(kdim=16, vdim=24, **F_),
        q=add("bnc"), k=add("bmf"), v=add("bmw"))
    mha(f"three_tensors_weights_{_w}", {"no": lambda self, q, k, v: self.mha(q, k, v, need_weights=False)[0],
                                        "mean": lambda self, q, k, v: self.mha(q, k, v)}[_w], options=F_,
        q=add("bnc"), k=add("bmc"), v=add("bmc"))
    mha(f"mask_per_head_weights_{_w}", selfish(_w, dict(attn_mask=0)), options=F_, x=add("3nc"),
        attn_mask=add("xnn", 1.5), dynamic="n")
    mha(f"unbatched_weights_{_w}", selfish(_w, {}), x=add("nc"), dynamic="n")
    mha(f"dropout_eval_weights_{_w}", selfish(_w, {}), options=dict(dropout=0.2, **F_), x=add("bnc"))
FIXED.update(w=24, x=12)
mha("causal_hint",
    lambda self, x: self.mha(x, x, x, attn_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]),
                             is_causal=True, need_weights=False)[0], core=True, options=F_, x=add("bnc"))
mha("causal_no_hint", lambda self, x: self.mha(x, x, x,
                                               attn_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]),
                                               need_weights=False)[0], options=F_, x=add("bnc"))
mha("causal_weights", lambda self, x: self.mha(x, x, x, attn_mask=torch.ones(x.shape[1], x.shape[1],
                                                                             dtype=torch.bool).triu(1)), core=True,
    options=F_, x=add("bnc"))
mha("learned_query", lambda self, y: self.mha(y.mean(1, keepdim=True), y, y, need_weights=False)[0], options=F_,
    dynamic="bm", note="attention pool")
mha("image_tokens", lambda self, x: self.mha(*[x.flatten(2).transpose(1, 2)] * 3, need_weights=False)[0], options=F_,
    x=add("bc45"), dynamic="b")
mha("bf16", selfish("no", {}), options=F_, x=add("bnc"), dtype=torch.bfloat16)
mha("f16_weights", selfish("mean", {}), options=F_, x=add("bnc"), dtype=torch.float16)


# ------------------------------------------------------------------ layers
def layer(name, make, forward, core=True, **more):
    def build():
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.m = make()
        Layer.forward = forward
        return Layer
    S("layer_" + name, build(), **more)
    if core:
        S("core_layer_" + name, build(), decompose=True, **more)


encoder = lambda **o: (lambda: nn.TransformerEncoderLayer(E, H, 48, batch_first=True, **o))
decoder = lambda **o: (lambda: nn.TransformerDecoderLayer(E, H, 48, batch_first=True, **o))
layer("encoder", encoder(), lambda self, x: self.m(x), x=add("bnc"))
layer("encoder_prenorm", encoder(norm_first=True, activation="gelu"), lambda self, x: self.m(x), x=add("bnc"))
layer("encoder_padding", encoder(), lambda self, x, pad: self.m(x, src_key_padding_mask=~pad), x=add("bnc"),
      pad=In("bn", padding().draw))
layer("encoder_mask", encoder(), lambda self, x, mask: self.m(x, src_mask=mask), x=add("bnc"), mask=add("nn"))
layer("encoder_causal", encoder(), lambda self, x: self.m(x,
                                                          src_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]), is_causal=True), x=add("bnc"))
layer("encoder_seq_first", lambda: nn.TransformerEncoderLayer(E, H, 48), lambda self, x: self.m(x), x=add("nbc"))
layer("encoder_bf16", encoder(), lambda self, x: self.m(x), core=False, x=add("bnc"), dtype=torch.bfloat16, tol=4e-2)
layer("encoder_three", lambda: nn.TransformerEncoder(encoder()(), 3, enable_nested_tensor=False),
      lambda self, x, pad: self.m(x, src_key_padding_mask=~pad), core=False, x=add("bnc"),
      pad=In("bn", padding().draw), count=3)
layer("decoder", decoder(), lambda self, x, y: self.m(x, y), x=add("bnc"), count=2)
layer("decoder_causal", decoder(), lambda self, x, y: self.m(x, y,
                                                             tgt_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]), tgt_is_causal=True), x=add("bnc"), count=2)
layer("decoder_masks", decoder(norm_first=True), lambda self, x, y, mask, pad: self.m(x, y, tgt_mask=mask,
    memory_key_padding_mask=~pad), x=add("bnc"), mask=add("nn"), count=2)


# ------------------------------------------------------------------ Swin's block, windows and shift
def _bias_index(w):
    c = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(1)
    r = (c[:, :, None] - c[:, None, :]).permute(1, 2, 0) + w - 1
    return (r[..., 0] * (2 * w - 1) + r[..., 1]).flatten()


def _partition(x, w):
    b, hh, ww, c = x.shape
    return x.view(b, hh // w, w, ww // w, w, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, c)


def _reverse(t, w, hh, ww):
    return t.view(-1, hh // w, ww // w, w, w, t.shape[-1]).permute(0, 1, 3, 2, 4, 5).reshape(-1, hh, ww, t.shape[-1])


def _shift_mask(size, w, s, fill):
    hh, ww = size
    img = torch.zeros(1, hh, ww, 1)
    for i, a in enumerate((slice(0, -w), slice(-w, -s), slice(-s, None))):
        for j, b in enumerate((slice(0, -w), slice(-w, -s), slice(-s, None))):
            img[:, a, b, :] = i * 3 + j
    m = _partition(img, w).squeeze(-1)
    m = m[:, None, :] - m[:, :, None]
    return m.masked_fill(m != 0, fill).masked_fill(m == 0, 0.0)


class SwinBlock(nn.Module):
    """Swin V1: partition, projection, softmax(q k^T * c + bias + mask) v, reverse; on an 8x12 image."""
    W, SHIFT, FILL = 4, 2, -100.0

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(E), nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.bias_table = nn.Parameter(torch.empty((2 * self.W - 1) ** 2, H))
        self.register_buffer("index", _bias_index(self.W))
        self.register_buffer("mask", _shift_mask((8, 12), self.W, self.SHIFT, self.FILL))

    def bias(self):
        return self.bias_table[self.index].view(self.W ** 2, self.W ** 2, H).permute(2, 0, 1).contiguous()

    def attend(self, q, k, v, windows):
        s = (q * 8 ** -0.5) @ k.transpose(-2, -1) + self.bias().unsqueeze(0)
        if self.SHIFT:
            n = s.shape[-1]
            s = s.view(-1, windows, H, n, n) + self.mask.unsqueeze(1).unsqueeze(0)
            s = s.view(-1, H, n, n)
        return soft(s) @ v

    def forward(self, x):
        b, hh, ww, c = x.shape
        y = self.norm(x)
        if self.SHIFT:
            y = torch.roll(y, (-self.SHIFT, -self.SHIFT), (1, 2))
        y = _partition(y, self.W)
        q, k, v = self.qkv(y).reshape(y.shape[0], self.W ** 2, 3, H, 8).permute(2, 0, 3, 1, 4).unbind(0)
        o = self.attend(q, k, v, (hh // self.W) * (ww // self.W))
        o = _reverse(self.proj(o.transpose(1, 2).reshape(y.shape)), self.W, hh, ww)
        return x + (torch.roll(o, (self.SHIFT, self.SHIFT), (1, 2)) if self.SHIFT else o)


class SwinBlockStill(SwinBlock):
    SHIFT = 0

    def __init__(self):
        nn.Module.__init__(self)
        self.norm, self.qkv, self.proj = nn.LayerNorm(E), nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.bias_table = nn.Parameter(torch.empty((2 * self.W - 1) ** 2, H))
        self.register_buffer("index", _bias_index(self.W))


class SwinBlockInf(SwinBlock):
    FILL = -INF


class SwinBlockSdpa(SwinBlock):
    def attend(self, q, k, v, windows):
        m = (self.bias()[None, None] + self.mask[None, :, None]).expand(q.shape[0] // windows, -1, -1, -1,
                                                                        -1).reshape(-1, H, 16, 16)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)


class SwinV2Block(SwinBlock):
    """Swin V2: cosine attention, a clamped logit scale per head, a bias from a network."""
    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.empty(H, 1, 1))
        self.net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(inplace=True), nn.Linear(16, H, bias=False))
        self.register_buffer("coords", rows((2 * self.W - 1) ** 2, 2))

    def bias(self):
        return 16 * torch.sigmoid(self.net(self.coords)[self.index].view(self.W ** 2, self.W ** 2, H).permute(2, 0,
            1).contiguous())

    def attend(self, q, k, v, windows):
        s = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        s = s * torch.clamp(self.logit_scale + 1.5, max=math.log(1.0 / 0.01)).exp() + self.bias().unsqueeze(0)
        n = s.shape[-1]
        s = s.view(-1, windows, H, n, n) + self.mask.unsqueeze(1).unsqueeze(0)
        return soft(s.view(-1, H, n, n)) @ v


GRID = dict(x=In("bkyc", add("bkyc").draw), dynamic="b")
FIXED.update(k=8, y=12)
for _n, _c in (("swin_block", SwinBlock), ("swin_block_still", SwinBlockStill), ("swin_block_inf", SwinBlockInf),
               ("swin_block_sdpa", SwinBlockSdpa), ("swin_v2_block", SwinV2Block)):
    S(_n, _c, **GRID)
    S("core_" + _n, _c, decompose=True, **GRID)


# ------------------------------------------------------------------ SAM's image attention
class SamAttention(nn.Module):
    """SAM: packed projection, decomposed relative positions, over a 6x10 grid of tokens."""
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.rel_h, self.rel_w = nn.Parameter(torch.empty(11, 8)), nn.Parameter(torch.empty(19, 8))

    def tables(self, hh, ww):
        i, j = torch.arange(hh), torch.arange(ww)
        return self.rel_h[i[:, None] - i[None] + 5], self.rel_w[j[:, None] - j[None] + 9]

    def forward(self, x):
        b, hh, ww, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, hh * ww, 3, H, -1).permute(2, 0, 3, 1, 4).reshape(3, b * H, hh * ww,
            -1).unbind(0)
        s = (q * 8 ** -0.5) @ k.transpose(-2, -1)
        rh, rw = self.tables(hh, ww)
        r = q.reshape(b * H, hh, ww, 8)
        s = (s.view(-1, hh, ww, hh, ww) + torch.einsum("bhwc,hkc->bhwk", r, rh)[:, :, :, :,
                                                                                None] + torch.einsum("bhwc,wkc->bhwk",
                                                                                    r, rw)[:, :, :, None, :]).view(-1,
                                                                                        hh * ww, hh * ww)
        o = (F.softmax(s, dtype=torch.float32, dim=-1).to(q.dtype) @ v).view(b, H, hh, ww, -1).permute(0, 2, 3, 1,
            4).reshape(b, hh, ww, -1)
        return self.proj(o)


class SamTwoWay(nn.Module):
    """SAM's mask decoder: attention with projections to fewer channels, self, token to image, image to token."""
    def __init__(self):
        super().__init__()
        mk = lambda d: nn.ModuleDict(dict(q=nn.Linear(E, d), k=nn.Linear(E, d), v=nn.Linear(E, d), o=nn.Linear(d, E)))
        self.own, self.there, self.back = mk(32), mk(16), mk(16)

    @staticmethod
    def one(p, q, k, v):
        f = lambda t: t.reshape(t.shape[0], t.shape[1], H, -1).transpose(1, 2)
        q, k, v = f(p["q"](q)), f(p["k"](k)), f(p["v"](v))
        o = soft(q @ k.permute(0, 1, 3, 2) / math.sqrt(q.shape[-1])) @ v
        return p["o"](o.transpose(1, 2).flatten(2))

    def forward(self, x, y, place):
        x = x + self.one(self.own, x, x, x)
        x = x + self.one(self.there, x, y + place, y)
        return x, y + self.one(self.back, y + place, x, x)


S("sam_attention", SamAttention, x=In("bizc", add("").draw), dynamic="b")
S("core_sam_attention", SamAttention, x=In("bizc", add("").draw), dynamic="b", decompose=True)
FIXED.update(i=6, z=10)
S("sam_two_way", SamTwoWay, x=add("bnc"), place=add("bmc"), count=3)
S("core_sam_two_way", SamTwoWay, x=add("bnc"), place=add("bmc"), count=3, decompose=True)


# ------------------------------------------------------------------ layers of well-known models, written out
class Llama(nn.Module):
    """RMSNorm, rotary grouped-query attention, SwiGLU; causal and padded."""
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(E), nn.RMSNorm(E)
        self.q_proj, self.k_proj, self.v_proj, self.o = nn.Linear(E, E, False), nn.Linear(E, 16, False), nn.Linear(E,
            16, False), nn.Linear(E, E, False)
        self.gate, self.up, self.down = nn.Linear(E, 48, False), nn.Linear(E, 48, False), nn.Linear(48, E, False)

    def scores(self, q, k):
        return q @ k.transpose(2, 3) / math.sqrt(8)

    def forward(self, x, pad):
        b, n, _ = x.shape
        y = self.n1(x)
        f = lambda t: t.view(b, n, -1, 8).transpose(1, 2)
        a = torch.arange(n)[:, None] * 100.0 ** (-torch.arange(4) / 4)
        cos, sin = torch.cat([a, a], -1).cos(), torch.cat([a, a], -1).sin()
        turn = lambda t: t * cos + torch.cat([-t[..., 4:], t[..., :4]], -1) * sin
        more = lambda t: t[:, :, None].expand(b, 2, 2, n, 8).reshape(b, 4, n, 8)
        q, k, v = turn(f(self.q_proj(y))), more(turn(f(self.k_proj(y)))), more(f(self.v_proj(y)))
        i = torch.arange(n)
        mask = torch.where((i[None] <= i[:, None]) & pad[:, None, None], 0.0, torch.finfo(x.dtype).min)
        p = F.softmax(self.scores(q, k) + mask, dim=-1, dtype=torch.float32).to(q.dtype)
        x = x + self.o((p @ v).transpose(1, 2).reshape(b, n, -1))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Gemma(Llama):
    def scores(self, q, k):
        return torch.tanh(q @ k.transpose(2, 3) * 0.3 / 5.0) * 5.0


for _n, _c in (("llama", Llama), ("gemma", Gemma)):
    S("layer_" + _n, _c, x=add("bnc"), pad=In("bn", padding().draw))
    S("core_layer_" + _n, _c, x=add("bnc"), pad=In("bn", padding().draw), decompose=True)
