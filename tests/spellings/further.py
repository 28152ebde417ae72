"""Attention through torch's less used doors (out=, as_strided, vmap with in_dims, cond, map, attention.bias, static
keys, parametrizations), further masks, windows and positions, and what looks like them; each tried here first."""
from torch._higher_order_ops.map import map as map_over
from torch.nn.attention import SDPBackend, sdpa_kernel

from spell import *

E, H, D = 32, 4, 8
X = dict(x=add("bnc"))
SELF = dict(k=add("bhnd", 1.2), v=add("bhne"))
KV = dict(k=add("bgmd", 1.2), v=add("bgme"))
THREE = dict(q=add("bnd", 1.2), k=add("bmd", 1.2), v=add("bme"))
lin = lambda a=E, b=E, bias=True: (lambda: nn.Linear(a, b, bias))
QKVO = dict(q=lin(), k=lin(), v=lin(), out=lin())
einsum, sdpa = torch.einsum, F.scaled_dot_product_attention


def scores(q, k):
    return q @ k.mT * 0.35


def split(t):
    return t.unflatten(-1, (H, D)).transpose(1, 2)


def merge(t):
    return t.transpose(1, 2).flatten(2)


def steps(q, k):
    return torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]


def masked(q, k, v, keep, fill=-INF):
    return soft(scores(q, k).masked_fill(~keep, fill)) @ v


# ------------------------------------------------------------------ results written where the caller says
def written_out(q, k, v):
    s = torch.empty(q.shape[0], 4, q.shape[2], k.shape[2])
    torch.matmul(q, k.mT, out=s)
    torch.mul(s, 0.35, out=s)
    torch.softmax(s, -1, out=s)
    return torch.matmul(s, v)


def bmm_out(q, k, v):
    s = q.new_empty(q.shape[0], q.shape[1], k.shape[1])
    torch.baddbmm(s, q, k.mT, beta=0, alpha=0.35, out=s)
    return torch.bmm(s.softmax(-1), v)


def rows_out(q, k, v):
    """Each head's result is written into its place."""
    o = torch.empty(q.shape[0], 4, q.shape[2], 6)
    for i in range(4):
        o.select(1, i).copy_(soft(scores(q[:, i], k[:, i])) @ v[:, i])
    return o


S("out_of_each_step", written_out)
S("baddbmm_out", bmm_out, **THREE)
S("heads_copied", rows_out, count=4)
S("scores_less_the_greatest_of_all", lambda q, k, v: (lambda s: soft(s.sub_(s.max())) @ v)(scores(q, k)))
S("addcmul_mask", lambda q, k, v, keep: soft(torch.addcmul(scores(q, k), 1 - keep.float(), torch.tensor(-1e9))) @ v)
S("lerp_mask", lambda q, k, v, drop: soft(torch.lerp(scores(q, k), torch.full((), -1e9), drop.float())) @ v,
  kind="trap", note="a lerp all the way")
trap("lerp_part", lambda q, k, v, drop: soft(torch.lerp(scores(q, k), torch.full((), -9.0), drop.float() * 0.5)) @ v)
trap("out_over_keys", lambda q, k, v: (lambda s: (torch.softmax(s, -2, out=s), s @ v)[1])(scores(q, k)))
trap("last_column_raised", lambda q, k, v: (lambda s: (s[..., -1:].add_(1.5), soft(s) @ v)[1])(scores(q, k)))
trap("column_halved", lambda q, k, v: (lambda s: (s[..., 0].mul_(0.5), soft(s) @ v)[1])(scores(q, k)))

# ------------------------------------------------------------------ the softmax's axis, implied
trap("softmax_implicit_three", lambda q, k, v: F.softmax(scores(q, k)) @ v, **THREE, note="no dim: axis 0 of three")
trap("softmax_implicit_four", lambda q, k, v: F.softmax(scores(q, k)) @ v, note="without dim: axis 1 of four")
S("softmax_implicit_two", lambda q, k, v: F.softmax(scores(q, k)) @ v, q=add("nd", 1.2), k=add("md", 1.2), v=add("me"))
trap("softmax_of_channels", lambda self, q, k, v: self.s(scores(q, k)) @ v, parts=dict(s=lambda: nn.Softmax2d()))
trap("softmax_of_pairs", lambda q, k, v: scores(q, k).flatten(-2).softmax(-1).view(q.shape[0], 4, -1, k.shape[2]) @ v)
S("keys_of_a_picture", lambda q, k, v: einsum("bhnxy,bhxye->bhne", (einsum("bhnd,bhxyd->bhnxy", q, k)
    * 0.35).flatten(-2).softmax(-1).view(q.shape[0], 4, -1, 3, 5), v), k=add("bh35d", 1.2), v=add("bh35e"),
  dynamic="bn", note="one softmax over rows and columns")
trap("keys_of_a_picture_by_rows", lambda q, k, v: einsum("bhnxy,bhxye->bhne", (einsum("bhnd,bhxyd->bhnxy", q, k)
    * 0.35).softmax(-1), v), k=add("bh35d", 1.2), v=add("bh35e"), dynamic="bn", note="a softmax a row of pixels")
S("layers_asked", lambda q, k, v: einsum("bnl,lbne->bne", (einsum("bnd,lbnd->bnl", q, k) * 0.35).softmax(-1), v),
  q=add("bnd", 1.2), k=add("5bnd", 1.2), v=add("5bne"), dynamic="bn", note="each token asks its own earlier layers")

# ------------------------------------------------------------------ vmap, functional, control flow
one = lambda a, b, c: torch.softmax(a @ b.mT * 0.35, -1) @ c
S("vmap_masked_samples", lambda q, k, v, pad: torch.vmap(lambda a, b, c, p: torch.softmax((a @ b.mT * 0.35).masked_fill(
    ~p, -INF), -1) @ c)(q, k, v, pad))
S("vmap_of_sdpa", lambda q, k, v: torch.vmap(lambda a, b, c: sdpa(a, b, c))(q, k, v))
trap("vmap_softmax_first", lambda q, k, v: torch.vmap(lambda a, b, c: torch.softmax(a @ b.mT * 0.35, 0) @ c)(q, k, v),
     note="axis 0 of a sample: the heads")
trap("vmap_crossed", lambda q, k, v: torch.vmap(one, in_dims=(0, 0, 1), out_dims=0)(q, k, v), q=add("4hnd", 1.2),
     k=add("4hmd", 1.2), v=add("4hme"), dynamic="nm", note="values of the head whose number the sample has")


class Heads(nn.Module):
    """An ensemble of heads, one module called on stacked weights."""
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(E, 3 * D) for _ in range(H)])
        self.out = nn.Linear(E, E)

    def forward(self, x):
        w, b = (torch.stack([getattr(h, n) for h in self.heads]) for n in ("weight", "bias"))
        q, k, v = torch.vmap(lambda a, c: torch.func.functional_call(self.heads[0], dict(weight=a, bias=c), (x,)))(w,
            b).chunk(3, -1)
        return self.out((soft(scores(q, k)) @ v).permute(1, 2, 0, 3).flatten(2))


S("functional_heads", Heads, **X, dynamic="", sizes=SIZES[:1])
S("mapped_over_samples", lambda q, k, v: map_over(lambda t: torch.softmax(t[0] @ t[1].mT * 0.35, -1) @ t[2], (q, k,
    v)), kind="trap", note="a body for each sample")
S("cond_of_masks", lambda q, k, v, at: torch.cond(at.sum() > 3, lambda a, b, c: (soft(scores(a, b)) @ c).clone(),
    lambda a, b, c: (soft(a @ b.mT * 0.1) @ c).clone(), (q, k, v)), at=integer("4", 3), kind="trap",
  note="an attention in each branch")
S("kernel_chosen", lambda q, k, v: chosen(q, k, v))


def chosen(q, k, v):
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(q, k, v)


def unscaled_inside(q, k, v):
    with torch.autocast("cpu", torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            s = scores(q.float(), k.float())
        return soft(s.float()) @ v.float()


class Exact(torch.autograd.Function):
    """A softmax of its own, as ESPnet and fairseq have them."""
    @staticmethod
    def forward(ctx, s):
        p = torch.softmax(s, -1)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, g):
        p, = ctx.saved_tensors
        return p * (g - (p * g).sum(-1, keepdim=True))


S("autocast_off_inside", unscaled_inside, kind="trap", note="only the second product is in bf16")
S("softmax_of_its_own", lambda q, k, v: Exact.apply(scores(q, k)) @ v)
S("sdpa_scaled_twice", lambda q, k, v: sdpa(q * 0.6, k * 0.7, v))
S("sdpa_causal_more_queries", lambda q, k, v: sdpa(q, k, v, is_causal=True), sizes=[dict(b=3, n=9, m=5), dict(b=2, n=13,
    m=6)])
S("sdpa_five_causal_gqa", lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True), q=add("b3hnd", 1.2),
  k=add("b3gnd", 1.2), v=add("b3gne"))
S("sdpa_mask_per_head_gqa", lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask, enable_gqa=True, scale=0.5), **KV,
  mask=add("1hnm"))
S("sdpa_mask_of_one_row", lambda q, k, v, keep: sdpa(q, k, v, attn_mask=keep), keep=keep("1m"))
trap("sdpa_mask_of_one_column", lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask), mask=add("n1"))


# ------------------------------------------------------------------ torch.nn's function with all it takes
class Static(nn.Module):
    """Separate weights, keys of another width, one more key and value given, and a zero key."""
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Parameter(torch.empty(E, w)) for w in (E, 16, E, E))
        self.b, self.o = nn.Parameter(torch.zeros(3 * E)), nn.Parameter(torch.zeros(E))

    def call(self, q, k, v, **more):
        return F.multi_head_attention_forward(q, k, v, E, H, None, self.b, None, None, False, 0.0, self.wo, self.o,
                                              training=False, use_separate_proj_weight=True, q_proj_weight=self.wq,
                                              k_proj_weight=self.wk, v_proj_weight=self.wv, **more)

    def forward(self, q, k, v):
        return self.call(q, k, v, need_weights=True, average_attn_weights=False)


class StaticKeys(Static):
    def forward(self, q, k, v, kept):
        return self.call(q, k, v, static_k=kept, need_weights=False)[0]


class ClipPool(nn.Module):
    """CLIP's AttentionPool2d: the mean of the picture asks all pixels and itself."""
    def __init__(self):
        super().__init__()
        self.at = nn.Parameter(torch.empty(21, E))
        self.q, self.k, self.v, self.c = (nn.Linear(E, E) for _ in range(4))

    def forward(self, x):                                           # (B, C, 4, 5)
        x = x.flatten(start_dim=2).permute(2, 0, 1)
        x = torch.cat([x.mean(dim=0, keepdim=True), x], dim=0) + self.at[:, None]
        return F.multi_head_attention_forward(
            query=x[:1], key=x, value=x, embed_dim_to_check=E, num_heads=H, q_proj_weight=self.q.weight,
            k_proj_weight=self.k.weight, v_proj_weight=self.v.weight, in_proj_weight=None,
            in_proj_bias=torch.cat([self.q.bias, self.k.bias, self.v.bias]), bias_k=None, bias_v=None,
            add_zero_attn=False, dropout_p=0, out_proj_weight=self.c.weight, out_proj_bias=self.c.bias,
            use_separate_proj_weight=True, training=self.training, need_weights=False)[0].squeeze(0)


class Rollout(nn.Module):
    """Two layers that show their weights, and the product of them with the identity added."""
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.MultiheadAttention(E, H, batch_first=True) for _ in range(2))

    def forward(self, x):
        r = torch.eye(x.shape[1])
        for m in (self.a, self.b):
            y, p = m(x, x, x, average_attn_weights=False)
            x, r = x + y, ((p.mean(1) + torch.eye(x.shape[1])) / 2) @ r
        return x, r[:, 0]


class Decoder(nn.Module):
    """nn.TransformerDecoder of two layers, every mask given, norm at the end."""
    def __init__(self):
        super().__init__()
        self.m = nn.TransformerDecoder(nn.TransformerDecoderLayer(E, H, 48, batch_first=True, norm_first=True,
                                                                  activation=F.silu, bias=False), 2, nn.LayerNorm(E))

    def forward(self, x, y, mask, seen, pad, own):
        return self.m(x, y, tgt_mask=mask, memory_mask=seen, memory_key_padding_mask=torch.where(pad, 0.0, -1e9),
                      tgt_key_padding_mask=torch.where(own, 0.0, -1e9), tgt_is_causal=False)


S("mha_separate_weights", Static, q=add("nbc"), k=add("mbf"), v=add("mbc"))
S("mha_static_keys", StaticKeys, q=add("nbc"), k=add("mbf"), v=add("mbc"), kept=add("am8"), **dict(dynamic="nm"),
  sizes=[dict(b=3, n=5, m=7), dict(b=3, n=9, m=13)])
FIXED.update(a=12, l=11)
S("clip_attention_pool", ClipPool, x=add("bc45"), dynamic="b")
S("attention_rollout", Rollout, **X, count=2)
S("decoder_all_masks", Decoder, **X, y=add("bmc"), mask=add("nn"), seen=add("nm"), own=In("bn", padding().draw),
  count=4)


# ------------------------------------------------------------------ projections
class Parametrized(nn.Module):
    def __init__(self):
        super().__init__()
        p = nn.utils.parametrizations
        self.q, self.k, self.v = (nn.Linear(E, E) for _ in range(3))
        p.weight_norm(self.q)
        p.orthogonal(self.k)
        p.spectral_norm(self.v)

    def forward(self, x):
        q, k, v = (split(f(x)) for f in (self.q, self.k, self.v))
        return merge(soft(scores(q, k)) @ v)


class Lora(nn.Module):
    """Low-rank additions to queries and values, and factors of keys and values (IA3)."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.a, self.b = (nn.ModuleList(nn.Linear(*s, bias=False) for _ in range(2)) for s in ((E, 4), (4, E)))
        self.lk, self.lv = (nn.Parameter(torch.ones(E)) for _ in range(2))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        q, v = (t + self.b[i](self.a[i](x)) * 0.5 for i, t in enumerate((q, v)))
        return self.out(merge(soft(scores(split(q), split(k * self.lk))) @ split(v * self.lv)))


class Quantized(nn.Module):
    """Weights of 8 bits, multiplied by a scale a row."""
    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(3)
        self.register_buffer("w", torch.randint(-127, 128, (3 * E, E), generator=g, dtype=torch.int8))
        self.register_buffer("s", torch.rand(3 * E, 1, generator=g) * 0.004)

    def forward(self, x):
        q, k, v = (split(t) for t in F.linear(x, self.w.to(x.dtype) * self.s).tensor_split(3, -1))
        return merge(sdpa(q, k, v, scale=0.3))


class TensorProduct(nn.Module):
    """Tensor product attention: queries, keys and values are sums of outer products of heads and channels."""
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.ModuleList(nn.Linear(E, 2 * w) for _ in range(3)) for w in (H, D))

    def forward(self, x):
        q, k, v = (einsum("bnrh,bnrd->bhnd", a(x).unflatten(-1, (2, H)), b(x).unflatten(-1, (2, D))) / 2
                   for a, b in zip(self.a, self.b))
        return merge(soft(scores(q, k).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1) > 0, -INF)) @ v)


class Hopfield(nn.Module):
    """Modern Hopfield: three steps of asking the patterns, which are keys and values."""
    def __init__(self):
        super().__init__()
        self.register_buffer("patterns", rows(11, D))

    def forward(self, x):
        for _ in range(3):
            x = F.softmax(1.7 * x @ self.patterns.t(), dim=-1) @ self.patterns
        return x


S("parametrized_weights", Parametrized, **X)
S("lora_and_ia3", Lora, **X)
S("weights_of_8_bits", Quantized, **X)
S("tensor_product_attention", TensorProduct, **X)
S("hopfield_steps", Hopfield, x=add("bnd"), count=3)
S("projected_by_einsum", lambda self, x: (lambda q, k, v: einsum("bhne,hec->bnc", soft(scores(q, k)) @ v, self.o))(
    *einsum("bnc,tchd->tbhnd", x, self.w)), **X, parts=dict(w=lambda: nn.Parameter(rows(3, E, H, D) * 0.2),
                                                           o=lambda: nn.Parameter(rows(H, D, E) * 0.2)))
S("projected_in_groups", lambda self, x: (lambda q, k, v: merge(soft(scores(split(q), split(k))) @ split(v)))(*self.p(
    x.mT).mT.chunk(3, -1)), **X, parts=dict(p=lambda: nn.Conv1d(E, 3 * E, 1, groups=4)))
S("weight_in_parts", lambda self, x, y: (lambda q, k, v: merge(soft(scores(split(q), split(k))) @ split(v)))(F.linear(x,
    self.w[:E], self.b.narrow(0, 0, E)), *F.linear(y, self.w[E:], self.b.narrow(0, E, 2 * E)).hsplit(1)[0].chunk(2,
    -1)), **X, parts=dict(w=lambda: nn.Parameter(rows(3 * E, E) * 0.2), b=lambda: nn.Parameter(rows(3 * E))))
S("bilinear_scores", lambda self, q, k, v: soft(self.m(q.unsqueeze(2).expand(-1, -1, k.shape[1], -1), k.unsqueeze(
    1).expand(-1, q.shape[1], -1, -1)).squeeze(-1)) @ v, **THREE, kind="trap", note="nn.Bilinear's matrix between",
  parts=dict(m=lambda: nn.Bilinear(8, 8, 1)))
S("normed_before_split", lambda self, x: (lambda q, k, v: self.out(merge(soft(scores(split(self.a(q)),
    split(self.b(k)))) @ split(v))))(self.q(x), self.k(x), self.v(x)), **X, parts=dict(QKVO, a=lambda: nn.RMSNorm(E),
        b=lambda: nn.RMSNorm(E)), note="OLMo 2's: over all heads at once")


# ------------------------------------------------------------------ masks
def ends(tokens):
    """Documents end at token 0."""
    at = (tokens == 0).long()
    doc = at.cumsum(-1) - at
    return (doc[:, None, :, None] == doc[:, None, None, :])


S("log_of_tril", lambda q, k, v: soft(scores(q, k) + torch.ones(q.shape[2], q.shape[2]).tril().log()) @ v, **SELF)
S("causal_by_cumsum", lambda q, k, v: (lambda c: masked(q, k, v, c[None] <= c[:, None]))(torch.ones(q.shape[2],
    dtype=torch.long).cumsum(0)), **SELF)
S("padding_by_cumsum", lambda q, k, v, pad: masked(q, k, v, (pad.flip(-1).cumsum(-1) > 0).flip(-1)[:, None, None]))
S("documents_by_their_end", lambda q, k, v, tokens: (lambda i, j: masked(q, k, v, ends(tokens) & (j <= i)))(*steps(q,
    k)), tokens=integer("bn", 3), **SELF)
S("padding_by_isin", lambda q, k, v, tokens: masked(q, k, v, ~torch.isin(tokens, torch.tensor([0, 2]))[:, None, None],
    -1e9), tokens=In("bm", lambda g, s: torch.randint(0, 5, s, generator=g).index_fill(1, torch.tensor([0]), 1)))
S("segments_by_bucketize", lambda q, k, v, edges: (lambda i, j: masked(q, k, v, torch.bucketize(i, edges, right=True)
    == torch.bucketize(j, edges, right=True)))(*steps(q, k)), **SELF, edges=In("2", lambda g, s: torch.tensor([2, 4])))
S("blocks_by_block_diag", lambda q, k, v: masked(q, k, v, torch.block_diag(torch.ones(2, 2), torch.ones(3, 3),
    torch.ones(1, 1)).bool()), q=add("bh6d", 1.2), k=add("bh6d", 1.2), v=add("bh6e"), dynamic="b")
S("strided_sparse", lambda q, k, v: (lambda i, j: masked(q, k, v, (j <= i) & (((i - j) % 3 == 0) | (i - j < 2))))(
    *steps(q, k)), **SELF, note="Sparse Transformer's")
S("global_and_window", lambda q, k, v, top: (lambda i, j: masked(q, k, v, ((i - j).abs() <= 1) | top[:, None, None]
    | top[:, None, :, None]))(*steps(q, k)), top=In("bn", lambda g, s: torch.rand(s, generator=g) < 0.2), **SELF,
  note="Longformer's, in full")
S("mask_padded_by_one", lambda q, k, v, keep: masked(q, k, v, F.pad(keep, (1, 0), value=True)), k=add("bh8d", 1.2),
  v=add("bh8e"), keep=keep("b1n7"), dynamic="bn", note="a first key that all may see")
S("mask_by_scatter", lambda q, k, v, at: soft(scores(q, k) + torch.full((q.shape[0], 1, q.shape[2], k.shape[2]),
    -INF).scatter(-1, at, 0.0)) @ v, at=integer("b1n2", 3), ranges=dict(m=(3, 63)), sizes=SIZES,
  note="sparse keys by their numbers")
S("mask_repeated_in_2d", lambda q, k, v, keep: soft(scores(q, k).flatten(0, 1).masked_fill(~keep.repeat(1, 4, 1,
    1).view(-1, q.shape[2], k.shape[2]), -INF)) @ v.flatten(0, 1))
trap("mask_repeated_other_order", lambda q, k, v, keep: soft(scores(q, k).flatten(0, 1).masked_fill(~keep[:, 0].repeat(
    4, 1, 1), -INF)) @ v.flatten(0, 1), note="samples first, heads first")
trap("tril_less_one_times_infinity", lambda q, k, v: soft(scores(q, k) + (torch.ones(q.shape[2], q.shape[2]).tril() - 1)
                                                          * INF) @ v, **SELF, note="0 * inf: all NaN")
trap("maximum_with_mask", lambda q, k, v, mask: soft(torch.maximum(scores(q, k), mask)) @ v)
trap("minimum_with_mask", lambda q, k, v, mask: soft(torch.minimum(scores(q, k), mask)) @ v)
trap("documents_by_their_start", lambda q, k, v, tokens: (lambda c: (lambda i, j: masked(q, k, v, (c[:, None, :, None]
    >= c[:, None, None, :]) & (j <= i)))(*steps(q, k)))((tokens == 0).long().cumsum(-1)), tokens=integer("bn", 3),
     **SELF)
trap("expire_span", lambda q, k, v, t: (lambda p: (p / (p.sum(-1, keepdim=True) + 1e-8)) @ v)(soft(scores(q, k))
    * ((t[:, None, None] - torch.arange(k.shape[2])) / 3 + 1).clamp(0, 1)), t=In("bm", lambda g, s: torch.rand(s,
        generator=g) * 9), note="weights fade, and are normalised again")
trap("edges_between_channels", lambda q, k, v, e: soft(einsum("bhnd,bhmd,bnmd->bhnm", q, k, e) * 0.35) @ v,
     e=add("bnmd"), note="Dwivedi's graph transformer: edges multiply before the sum over channels")
trap("monotonic", lambda q, k, v: (lambda p: (p * torch.cumprod(torch.cat([torch.ones_like(p[..., :1]), 1 - p], -1),
    -1)[..., :-1]) @ v)(scores(q, k).sigmoid()))
trap("sigmoid_of_two_keys", lambda q, k, v: (lambda s: (lambda p: torch.cat([1 - p, p], -1) @ v)(torch.sigmoid(s[...,
    1:] - s[..., :1])))(scores(q, k)), k=add("bh2d", 1.2), v=add("bh2e"), dynamic="bn")
trap("cap_unknown", lambda self, q, k, v: soft(torch.tanh(scores(q, k) / self.c) * self.c) @ v,
     parts=dict(c=lambda: nn.Parameter(torch.tensor(2.5))))


def indexer(q, k, v, w):
    """DeepSeek V3.2's: a small product chooses the keys (through ReLU there, which ties), -inf with zeros scattered in
    is added."""
    n = q.shape[2]
    look = einsum("bhnm,bhn->bnm", F.softplus(q[..., :4] @ k[..., :4].mT), w)
    causal = torch.full((n, n), -INF).triu(1)
    best = (look + causal).topk(3, -1).indices
    hidden = torch.full_like(look, -INF).scatter(-1, best, 0.0)
    return soft(scores(q, k) + (hidden + causal).unsqueeze(1)) @ v


S("indexed_sparse", indexer, **SELF, w=add("bhn"), ranges=dict(n=(3, 63)), sizes=SIZES)
S("keys_picked_by_bool", lambda q, k, v, pad: soft(q @ k[pad].T * 0.35) @ v[pad], q=add("nd", 1.2), k=add("7d", 1.2),
  v=add("7e"), pad=In("7", lambda g, s: torch.tensor([1, 0, 1, 1, 0, 1, 1]).bool()), dynamic="n",
  note="as many keys as the data say")


# ------------------------------------------------------------------ windows
def rolled(q, k, v):
    """A window by rolling keys and values; what came round is hidden."""
    n = q.shape[2]
    ks, vs = (torch.stack([t.roll(s, 2) for s in range(3)], 3) for t in (k, v))
    ok = torch.arange(n)[:, None] >= torch.arange(3)
    s = (q.unsqueeze(3) * ks).sum(-1) * 0.35
    return (soft(s.masked_fill(~ok, -INF)).unsqueeze(-1) * vs).sum(3)


def rolled_around(q, k, v):
    ks, vs = (torch.stack([t.roll(s, 2) for s in (-1, 0, 1)], 3) for t in (k, v))
    return einsum("bhnw,bhnwe->bhne", soft(einsum("bhnd,bhnwd->bhnw", q, ks) * 0.35), vs)


def strided(q, k, v):
    """Windows that overlap, by as_strided."""
    k, v = (F.pad(t, (0, 0, 1, 1)).contiguous() for t in (k, v))
    at = lambda t: t.as_strided((t.shape[0], 4, 6, 3, t.shape[3]), (4 * 8 * t.shape[3], 8 * t.shape[3], t.shape[3],
                                                                   t.shape[3], 1))
    s = (q.unsqueeze(3) @ at(k).transpose(-1, -2)).squeeze(3) * 0.35
    return (soft(s).unsqueeze(3) @ at(v)).squeeze(3)


def skewed(q, k, v, r):
    """Relative scores, skewed by as_strided: row i starts n - 1 - i places on."""
    b, h, n, _ = q.shape
    s = torch.matmul(q, r.transpose(0, 1)).contiguous()             # (B, H, N, 2N - 1)
    s = s.as_strided((b, h, n, n), (h * n * (2 * n - 1), n * (2 * n - 1), 2 * n - 2, 1), n - 1)
    return soft(scores(q, k) + s) @ v


S("window_rolled", rolled, **SELF, auto=True, sizes=SIZES)
S("window_rolled_around", rolled_around, **SELF, auto=True, sizes=SIZES)
S("window_as_strided", strided, q=add("bh6d", 1.2), k=add("bh6d", 1.2), v=add("bh6e"), dynamic="b")
S("relative_as_strided", skewed, q=add("bh6d", 1.2), k=add("bh6d", 1.2), v=add("bh6e"), r=add("ld"), dynamic="b")
S("relative_gathered", lambda q, k, v, r: (lambda i, j: soft((scores(q, k) + (q @ r.mT).gather(-1, (j - i
    + 5).expand(q.shape[0], 4, -1, -1)))) @ v)(*steps(q, k)), q=add("bh6d", 1.2), k=add("bh6d", 1.2), v=add("bh6e"),
  r=add("ld"), dynamic="b")


# ------------------------------------------------------------------ positions
def ntk(q, k, v):
    """Rotary whose base grows with the length."""
    n = q.shape[2]
    base = 100.0 * (1.0 + n / 8) ** (8 / 6)
    a = torch.arange(n)[:, None] * base ** (-torch.arange(4) / 4)
    cos, sin = torch.cat([a, a], -1).cos(), torch.cat([a, a], -1).sin()
    turn = lambda t: t * cos + torch.cat([-t[..., 4:], t[..., :4]], -1) * sin
    return soft(scores(turn(q), turn(k))) @ v


def polar(self, q, k, v):
    """PoPE: magnitudes by softplus, and phases; real parts of the products."""
    n = q.shape[2]
    a = torch.arange(n)[:, None] * (0.3 ** torch.arange(8))
    q, k, b = F.softplus(q), F.softplus(k), a + self.b
    q, k = torch.cat([q * a.cos(), q * a.sin()], -1), torch.cat([k * b.cos(), k * b.sin()], -1)
    return soft(scores(q, k).masked_fill(torch.ones(n, n).triu(1).bool(), -INF)) @ v


def alibi(q, k, v):
    """Slopes of any number of heads, distances of both ways, from sizes alone."""
    h = q.shape[1]
    slopes = 2.0 ** (-8.0 / h * torch.arange(1, h + 1))
    i, j = steps(q, k)
    return soft(scores(q, k).add_(-(i - j).abs() * slopes[:, None, None])) @ v


S("rotary_ntk", ntk, **SELF, kind="trap", note="a float of sizes")
S("rotary_polar", polar, **SELF, parts=dict(b=lambda: nn.Parameter(rows(8))))
S("alibi_both_ways", alibi, **SELF)
S("alibi_squared_learned", lambda self, q, k, v: (lambda i, j: soft(scores(q, k) - F.softplus(self.s) * (i - j).pow(2))
                                                  @ v)(*steps(q, k)), **SELF,
  parts=dict(s=lambda: nn.Parameter(rows(4, 1, 1))))
S("sandwich_bias", lambda q, k, v: (lambda i, j: soft(scores(q, k) + torch.cos((i - j).unsqueeze(-1)
    / 10.0 ** (torch.arange(4) / 4)).sum(-1) * 0.2) @ v)(*steps(q, k)), **SELF)


# ------------------------------------------------------------------ the softmax in blocks, gates, branches
def online(q, k, v):
    """FlashAttention's loop over three blocks of keys: a running maximum, sum and result."""
    m = q.new_full((*q.shape[:-1], 1), -INF)
    total, o = torch.zeros_like(m), torch.zeros(*q.shape[:-1], v.shape[-1])
    for kb, vb in zip(k.split(3, 2), v.split(3, 2)):
        s = scores(q, kb)
        top = torch.maximum(m, s.amax(-1, keepdim=True))
        e, c = torch.exp(s - top), torch.exp(m - top)
        total, o, m = total * c + e.sum(-1, keepdim=True), o * c + e @ vb, top
    return o / total


def rabe(q, k, v):
    """Rabe and Staats: each block's sums and maximum, joined at the end."""
    parts = []
    for kb, vb in zip(k.chunk(3, 2), v.chunk(3, 2)):
        s = scores(q, kb)
        top = s.amax(-1, keepdim=True).detach()
        e = (s - top).exp()
        parts.append((e @ vb, e.sum(-1, keepdim=True), top))
    o, w, m = (torch.stack(t) for t in zip(*parts))
    c = torch.exp(m - m.amax(0, keepdim=True))
    return (o * c).sum(0) / (w * c).sum(0)


def three_branches(self, x):
    """NSA: keys pooled in pairs, all keys, and a window; a gate for each."""
    q, k, v = (split(t) for t in self.qkv(x).chunk(3, -1))
    g = self.g(x).sigmoid().unflatten(-1, (H, 3)).transpose(1, 2)
    i, j = steps(q, k)
    pool = lambda t: t.unflatten(2, (3, 2)).mean(3)
    a, b = soft(scores(q, pool(k))) @ pool(v), masked(q, k, v, j <= i)
    c = masked(q, k, v, (j <= i) & (i - j < 2))
    return merge(g[..., :1] * a + g[..., 1:2] * b + g[..., 2:] * c)


S("online_softmax", online, k=add("bh9d", 1.2), v=add("bh9e"), dynamic="bn", kind="trap", note="in blocks")
S("blocks_joined_at_the_end", rabe, k=add("bh9d", 1.2), v=add("bh9e"), dynamic="bn", kind="trap", note="in blocks")
S("three_gated_branches", three_branches, x=add("b6c"), dynamic="b", count=3, parts=dict(qkv=lin(E, 3 * E),
                                                                                        g=lin(E, 12)))
S("softmax_base_2_of_log2e", lambda q, k, v: (lambda s: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(torch.exp2(s
    - s.amax(-1, keepdim=True))))(q @ k.mT * (0.35 * 1.4426950408889634)), kind="trap", note="Triton kernels'")
S("gate_a_head", lambda self, x: (lambda q, k, v: merge(soft(scores(q, k)) @ v * self.g(x).sigmoid().mT.unsqueeze(-1)))(
    *(split(t) for t in self.qkv(x).chunk(3, -1))), **X, parts=dict(qkv=lin(E, 3 * E), g=lin(E, 4)))
S("gate_of_values", lambda self, x: (lambda q, k, v: merge(soft(scores(q, k)) @ (v * self.g(x).sigmoid().mT.unsqueeze(
    -1))))(*(split(t) for t in self.qkv(x).chunk(3, -1))), **X, parts=dict(qkv=lin(E, 3 * E), g=lin(E, 4)))
trap("gate_of_scores", lambda self, q, k, v, g: soft(scores(q, k) * g.sigmoid()) @ v, g=add("bhn1"))
trap("gate_of_weights", lambda q, k, v, g: (soft(scores(q, k)) * g.sigmoid()) @ v, g=add("b1nm"))
S("mixture_of_softmaxes", lambda q, k, v, g: (soft(g)[..., None, None] * soft(einsum("bhnd,bhmd->bhnm", q, k)
    * 0.35)).sum(1) @ v, g=add("bh"), v=add("bme"), kind="trap", note="weights of heads are mixed, then values")
S("in_half_with_bf16_scores", lambda q, k, v, keep: (F.softmax((q @ k.mT * 0.35).float().masked_fill(~keep, -INF), -1,
    dtype=torch.float32).to(q.dtype) @ v), dtype=torch.bfloat16)
S("values_in_float_only", lambda q, k, v: (soft((q @ k.mT).float() * 0.35) @ v.float()).to(q.dtype),
  dtype=torch.bfloat16, kind="trap", note="scores are rounded, weights are not")
