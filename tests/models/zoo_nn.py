"""Attention as torch.nn and torch.nn.functional give it, in every spelling that a person might write by hand."""
import math

from zoo import *


def mha(name, forward, mk, shapes, dyn, E=16, H=2, decompose=True, **kw):
    def build():
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.mha = nn.MultiheadAttention(E, H, **kw)
        Module.forward = forward
        return seeded(Module, 0.3), [mk(*s) for s in shapes], dyn() if dyn else None
    model(name)(build)
    if decompose:
        model(name + "_core", decompose=True)(build)


def far(*shape, seed=0):
    """A bool mask with every row keeping its first key."""
    m = B(*shape, seed=seed)
    m[..., 0] = False
    return m


mha("mha_self", lambda self, x: self.mha(x, x, x, need_weights=False)[0], lambda b, s: dict(x=R(b, s, 16)),
    [(2, 5), (1, 2), (3, 11)],
    lambda: dict(x={0: batch(), 1: seq()}), batch_first=True)
mha("mha_seq_first", lambda self, x: self.mha(x, x, x)[0], lambda b, s: dict(x=R(s, b, 16)), [(2, 5), (3, 9)],
    lambda: dict(x={0: seq(), 1: batch()}))


def _turned_rows(dt):
    """Products of rows whose batch axes are in another order: ONNX Runtime has to be kept from merging the two."""
    def f(self, x):
        t = x.transpose(0, 1)
        return self.m0(t), t @ self.m0.weight.mT, F.linear(t.float(), self.m0.weight.float())
    return fn(f, lambda: nn.Linear(8, 6).to(dt)), [dict(x=R(2, 5, 8, dt=dt)), dict(x=R(3, 8, 8, dt=dt))], \
        dict(x={0: batch(), 1: seq()})


model("turned_rows_f16")(lambda: _turned_rows(torch.float16))
model("turned_rows_bf16")(lambda: _turned_rows(torch.bfloat16))


def _forward(self, q, kv, mask): return self.mha(q, kv, kv, key_padding_mask=mask, need_weights=False)[0]
def _dims():
    b, t = batch(), seq("src")
    return dict(q={0: b, 1: seq()}, kv={0: b, 1: t}, mask={0: b, 1: t})


mha("mha_cross_padding", _forward, lambda b, s, t: dict(q=R(b, s, 16), kv=R(b, t, 16, seed=1),
                                                        mask=keep_mask(b, t) == 0), [(2, 5, 7), (3, 4, 9), (1, 3, 3)],
    _dims, batch_first=True)


def _forward(self, q, kv, mask): return self.mha(q, kv, kv, key_padding_mask=mask)


mha("mha_padding_float_weights", _forward, lambda b, s, t: dict(q=R(b, s, 16), kv=R(b, t, 16, seed=1),
                                                                mask=torch.where(keep_mask(b, t) == 0, -torch.inf,
                                                                    0.0)),
    [(2, 5, 7), (3, 4, 9)], _dims, batch_first=True, decompose=False)


def _forward(self, x, mask): return self.mha(x, x, x, attn_mask=mask, need_weights=False)[0]


mha("mha_mask_per_head", _forward, lambda b, s: dict(x=R(b, s, 16), mask=far(2 * b, s, s)), [(2, 5)], None,
    batch_first=True, decompose=False)


def _dims():
    s = seq()
    return dict(x={0: batch(), 1: s}, mask={0: s, 1: s})


mha("mha_mask_bool", _forward, lambda b, s: dict(x=R(b, s, 16), mask=far(s, s)), [(2, 5), (3, 8)], _dims,
    batch_first=True)


def _forward(self, x, mask): return self.mha(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]


mha("mha_causal_seq_first", _forward,
    lambda b, s: dict(x=R(s, b, 16), mask=torch.triu(torch.ones(s, s, dtype=torch.bool), 1)), [(2, 5), (3, 9)],
    lambda: (lambda s: dict(x={0: s, 1: batch()}, mask={0: s, 1: s}))(seq()), decompose=False)
mha("mha_bias_kv_zero_attn", lambda self, x: self.mha(x, x, x, need_weights=False)[0],
    lambda b, s: dict(x=R(b, s, 16)), [(2, 5), (3, 9)],
    lambda: dict(x={0: batch(), 1: seq()}), batch_first=True, add_bias_kv=True, add_zero_attn=True)
mha("mha_weights_per_head", lambda self, x: self.mha(x, x, x, average_attn_weights=False),
    lambda b, s: dict(x=R(b, s, 16)), [(2, 5), (3, 9)],
    lambda: dict(x={0: batch(), 1: seq()}), batch_first=True, decompose=False)
mha("mha_kdim_vdim_no_bias", lambda self, q, k, v: self.mha(q, k, v, need_weights=False)[0],
    lambda: dict(q=R(2, 5, 16), k=R(2, 7, 12, seed=1), v=R(2, 7, 10, seed=2)),
    [()], None, batch_first=True, kdim=12, vdim=10, bias=False, decompose=False)
mha("mha_unbatched", lambda self, x: self.mha(x, x, x), lambda s: dict(x=R(s, 16)), [(5,), (9,)],
    lambda: dict(x={0: seq()}), decompose=False)


# ------------------------------------------------------------------ nn.Transformer
@model("encoder_padding")
def _():
    m = lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2,
                                      enable_nested_tensor=False)
    def f(self, src, mask): return self.m0(src, src_key_padding_mask=mask)
    b, s = batch(), seq()
    mk = lambda b, s: dict(src=R(b, s, 16), mask=keep_mask(b, s) == 0)
    return fn(f, m), [mk(2, 5), mk(3, 9), mk(1, 2)], dict(src={0: b, 1: s}, mask={0: b, 1: s})


@model("encoder_prenorm_gelu_core", decompose=True)
@model("encoder_prenorm_gelu")
def _():
    m = lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", norm_first=True), 2,
                                      norm=nn.LayerNorm(16), enable_nested_tensor=False)
    def f(self, src): return self.m0(src)
    mk = lambda b, s: dict(src=R(s, b, 16))
    return fn(f, m), [mk(2, 5), mk(3, 9)], dict(src={0: seq(), 1: batch()})


@model("decoder_causal_memory")
def _():
    m = lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 2)
    def f(self, tgt, memory, mask):
        return self.m0(tgt, memory, tgt_mask=mask, tgt_is_causal=True, memory_is_causal=False)
    mk = lambda b, s, t: dict(tgt=R(b, t, 16), memory=R(b, s, 16, seed=1),
                              mask=nn.Transformer.generate_square_subsequent_mask(t))
    b, t = batch(), seq("tgt")
    return fn(f, m), [mk(2, 5, 4), mk(3, 9, 6)], dict(tgt={0: b, 1: t}, memory={0: b, 1: seq()}, mask={0: t, 1: t})


@model("transformer_full")
def _():
    m = lambda: nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
    def f(self, src, tgt, mask, pad):
        return self.m0(src, tgt, tgt_mask=mask, memory_key_padding_mask=pad, tgt_is_causal=False)
    mk = lambda b, s, t: dict(src=R(b, s, 16), tgt=R(b, t, 16, seed=1),
                              mask=torch.triu(torch.ones(t, t, dtype=torch.bool), 1), pad=keep_mask(b, s) == 0)
    b, s, t = batch(), seq(), seq("tgt")
    return fn(f, m), [mk(2, 5, 4), mk(3, 9, 6)], dict(src={0: b, 1: s}, tgt={0: b, 1: t}, mask={0: t, 1: t},
                                                      pad={0: b, 1: s})


# ------------------------------------------------------------------ F.scaled_dot_product_attention
def sdpa(name, f, mk, shapes, dims, tol=None):
    model("sdpa_" + name, tol=tol)(lambda: (fn(f), [mk(*s) for s in shapes], dims()))
    model("sdpa_" + name + "_core", decompose=True, tol=tol)(lambda: (fn(f), [mk(*s) for s in shapes], dims()))


def qkv(b, s, t, h=2, hk=2, d=8, e=8, dt=torch.float32):
    return dict(q=R(b, h, s, d, dt=dt), k=R(b, hk, t, d, seed=1, dt=dt), v=R(b, hk, t, e, seed=2, dt=dt))


def qkv_dims(self_attention=False):
    b, s = batch(), seq()
    t = s if self_attention else seq("src")
    return dict(q={0: b, 2: s}, k={0: b, 2: t}, v={0: b, 2: t})


def _f(self, q, k, v): return F.scaled_dot_product_attention(q, k, v)
for _dt, _n in ((torch.float32, "f32"), (torch.float64, "f64"), (torch.float16, "f16"), (torch.bfloat16, "bf16")):
    sdpa(_n, _f, lambda b, s, t, dt=_dt: qkv(b, s, t, e=6, dt=dt), [(2, 5, 7), (3, 4, 9), (1, 2, 2)], qkv_dims)


def _f(self, q, k, v): return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
sdpa("causal_scale", _f, lambda b, s: qkv(b, s, s), [(2, 5), (3, 9)], lambda: qkv_dims(True))
def _f(self, q, k, v): return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
sdpa("gqa", _f, lambda b, s: qkv(b, s, s, h=4, hk=2), [(2, 5), (3, 9), (1, 2)], lambda: qkv_dims(True))
def _f(self, q, k, v): return F.scaled_dot_product_attention(q, k, v, is_causal=True)
sdpa("causal_rectangle", _f, lambda b, s, t: qkv(b, s, t), [(2, 7, 3), (3, 4, 9)], qkv_dims)


def _dead(b, s, t):
    m = B(b, 1, s, t, seed=5, p=0.6)
    m[:, :, 1] = False
    return dict(qkv(b, s, t), mask=m)


def _mask_dims():
    d = qkv_dims()
    return dict(d, mask={0: d["q"][0], 2: d["q"][2], 3: d["k"][2]})


def _f(self, q, k, v, mask): return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
sdpa("dead_rows", _f, _dead, [(2, 5, 7), (3, 4, 3)], _mask_dims)
sdpa("float_mask", _f, lambda b, s, t: dict(qkv(b, s, t), mask=R(b, 1, s, t, seed=3)), [(2, 5, 7), (3, 4, 3)],
     _mask_dims)
def _f(self, q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.where(mask, 0.0, torch.finfo(q.dtype).min))
sdpa("finfo_mask", _f, _dead, [(2, 5, 7), (3, 4, 3)], _mask_dims)


# ------------------------------------------------------------------ decomposed attention
def by_hand(name, core, parts=0, shapes=((2, 6), (3, 9)), H=2, D=8, **options):
    """core(self, q, k, v) with q, k, v (B, H, N, D) projected from x (B, N, H*D)."""
    def build():
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv, self.out = nn.Linear(H * D, 3 * H * D), nn.Linear(H * D, H * D)
                self.extra = nn.Parameter(torch.randn(parts or 1))
            def forward(self, x):
                b, n, c = x.shape
                q, k, v = self.qkv(x).reshape(b, n, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
                return self.out(core(self, q, k, v).transpose(1, 2).reshape(b, n, c))
        return seeded(Module, 0.4), [dict(x=R(b, s, H * D)) for b, s in shapes], dict(x={0: batch(), 1: seq(mn=3)})
    model("hand_" + name, **options)(build)


by_hand("matmul", lambda m, q, k, v: torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(8), -1) @ v)
by_hand("einsum", lambda m, q, k, v: torch.einsum("bhqk,bhkd->bhqd",
                                                  torch.einsum("bhqd,bhkd->bhqk", q * 8 ** -0.5, k).softmax(-1), v))
by_hand("exp_sum", lambda m, q, k, v: (lambda e: (e / e.sum(-1, keepdim=True))
                                       @ v)(torch.exp((lambda s: s - s.amax(-1, keepdim=True))(q @ k.mT * 0.35))))
by_hand("softcap_window",
        lambda m, q, k, v: (lambda n: (20 * torch.tanh(q @ k.mT / 20)).masked_fill((torch.arange(n)[:,
            None] - torch.arange(n)[None]).abs() > 2, -1e9)
                            .softmax(-1) @ v)(q.shape[2]))
by_hand("alibi", lambda m, q, k, v: (q @ k.mT * 0.35 - (torch.arange(q.shape[2])[None] - torch.arange(q.shape[2])[:,
    None]).abs() * torch.tensor([0.5, 0.25])[:, None, None])
        .softmax(-1) @ v)
by_hand("cosine", lambda m, q, k, v: (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
                                      * m.extra.exp().clamp(max=9.0)).softmax(-1) @ v)
by_hand("linear_elu", lambda m, q, k, v: (lambda a, c: (a @ (c.mT @ v)) / (a @ c.sum(2)[..., None] + 1e-6))(F.elu(q)
    + 1, F.elu(k) + 1))
by_hand("baddbmm", lambda m, q, k, v: (lambda f: torch.bmm(torch.baddbmm(torch.zeros(1), f(q), f(k).mT,
                                                                         alpha=0.35).softmax(-1), f(v)).unflatten(0,
                                                                             (-1, 2)))(lambda t: t.flatten(0, 1)))
by_hand("talking_relu", lambda m, q, k, v: F.relu(q @ k.mT * 0.35).square() / q.shape[2] @ v)
by_hand("topk_sparse", lambda m, q, k, v: (lambda s: s.masked_fill(s < s.topk(3, -1)[0][..., -1:],
                                                                   -torch.inf).softmax(-1) @ v)(q @ k.mT * 0.35))
by_hand("logsumexp", lambda m, q, k, v: (lambda s: (s - s.logsumexp(-1, keepdim=True)).exp() @ v)(q @ k.mT * 0.35))
by_hand("sink",
        lambda m, q, k, v: (lambda s: torch.cat([s, m.extra.reshape(1, 2, 1, 1).expand(s.shape[0], -1, s.shape[2],
            -1)], -1).softmax(-1)[..., :-1] @ v)(q @ k.mT * 0.35), parts=2)


def _rope(m, q, k, v):
    n = q.shape[2]
    ang = torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    cos, sin = torch.cat([ang, ang], -1).cos(), torch.cat([ang, ang], -1).sin()
    rot = lambda t: t * cos + torch.cat([-t[..., 4:], t[..., :4]], -1) * sin
    return F.scaled_dot_product_attention(rot(q), rot(k), v, is_causal=True)


by_hand("rope", _rope)


def _rope_pairs(m, q, k, v):
    ang = torch.arange(q.shape[2])[:, None] * 100.0 ** (-torch.arange(4) / 4)
    def rot(t):
        a, b = t.unflatten(-1, (4, 2)).unbind(-1)
        return torch.stack([a * ang.cos() - b * ang.sin(), a * ang.sin() + b * ang.cos()], -1).flatten(-2)
    return (rot(q) @ rot(k).mT * 0.35).softmax(-1) @ v


by_hand("rope_pairs", _rope_pairs)
