"""Attention as more repositories write it, in words of our own: OpenFold and AlphaFold 3, MPT, NeMo, Restormer, Twins,
BiFormer, DAT, TimeSformer, MSA Transformer, MoBA, FoX, QANet ...; pictures have any height (n) and width (m)."""
from spell import *

E, H, D = 32, 4, 8
FAR = -torch.finfo(torch.float32).max
X = dict(x=add("bnc"))
PICTURE = dict(x=add("bcnm"), sizes=[dict(b=3, n=5, m=7), dict(b=2, n=9, m=6), dict(b=1, n=8, m=8)],
               ranges=dict(n=(4, 40), m=(4, 40)))
SELF = dict(k=add("bhnd", 1.2), v=add("bhne"))
lin = lambda a=E, b=E, bias=True: (lambda: nn.Linear(a, b, bias))
einsum = torch.einsum


def split(t):
    return t.unflatten(-1, (H, D)).transpose(1, 2)


def merge(t):
    return t.transpose(1, 2).flatten(2)


class Projected(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(E, E, bias) for _ in range(4))


# ------------------------------------------------------------------ proteins
class Triangle(Projected):
    """OpenFold: each row of pairs attends to itself, biased by the pairs; `ending` does so by columns."""
    ending = False

    def __init__(self):
        super().__init__(False)
        self.norm, self.z, self.g = nn.LayerNorm(E), nn.Linear(E, H, False), nn.Linear(E, E)

    def forward(self, z, keep):                                     # (B, N, N, C), (B, N, N)
        if self.ending:
            z, keep = z.transpose(-2, -3), keep.transpose(-1, -2)
        z = self.norm(z)
        mask_bias = (1e9 * (keep.to(z.dtype) - 1))[..., :, None, None, :]
        triangle = self.z(z).permute(0, 3, 1, 2).unsqueeze(-4)
        q, k, v = (p(z).view(z.shape[:-1] + (H, -1)).transpose(-2, -3) for p in (self.q, self.k, self.v))
        a = torch.matmul(q / math.sqrt(D), k.transpose(-1, -2))
        for bias in (mask_bias, triangle):
            a = a + bias
        o = torch.matmul(F.softmax(a, dim=-1), v).transpose(-2, -3)
        o = o * self.g(z).sigmoid().view(z.shape[:-1] + (H, -1))
        o = self.out(o.reshape(o.shape[:-2] + (-1,)))
        return o.transpose(-2, -3) if self.ending else o


class TriangleEnding(Triangle):
    ending = True


class GlobalColumns(nn.Module):
    """OpenFold's global attention of extra sequences: the mean of a column asks, all heads share keys and values."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.g, self.out = (nn.Linear(E, E, False), nn.Linear(E, D, False),
                                                    nn.Linear(E, D, False), nn.Linear(E, E), nn.Linear(E, E))

    def forward(self, x, keep):                                     # (B, N, M, C), (B, N, M)
        x, keep = x.transpose(-2, -3), keep.transpose(-1, -2).to(x.dtype)
        q = torch.sum(x * keep.unsqueeze(-1), dim=-2) / (torch.sum(keep, dim=-1)[..., None] + 1e-5)
        q = (self.q(q) * D ** -0.5).view(q.shape[:-1] + (H, -1))
        k, v = self.k(x), self.v(x)
        a = torch.matmul(q, k.transpose(-1, -2)) + (1e9 * (keep - 1))[..., :, None, :]
        o = torch.matmul(F.softmax(a, dim=-1), v)
        g = self.g(x).sigmoid().view(x.shape[:-1] + (H, -1))
        o = (o.unsqueeze(-3) * g).reshape(x.shape[:-1] + (-1,))
        return self.out(o).transpose(-2, -3)


class InvariantPoints(nn.Module):
    """AlphaFold's invariant point attention, without frames: scores less distances; weights for values, points and
    pairs."""
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.qp, self.kp, self.vp = (nn.Linear(E, E), nn.Linear(E, 2 * E), nn.Linear(E, H * 12),
                                                      nn.Linear(E, H * 12), nn.Linear(E, H * 12))
        self.z, self.weights = nn.Linear(6, H), nn.Parameter(rows(H))

    def forward(self, x, z):                                        # (B, N, C), (B, N, N, 6)
        b, n, _ = x.shape
        q, (k, v) = self.q(x).view(b, n, H, D), self.kv(x).view(b, n, H, 2 * D).split(D, -1)
        a = torch.matmul(q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1)) * math.sqrt(1.0 / (3 * D))
        a = a + math.sqrt(1.0 / 3) * self.z(z).permute(0, 3, 1, 2)
        p, r, w = (f(x).view(b, n, H, 4, 3) * 0.2 for f in (self.qp, self.kp, self.vp))
        far = ((p.unsqueeze(2) - r.unsqueeze(1)) ** 2).sum(-1)
        far = (far * F.softplus(self.weights).view(1, 1, 1, H, 1) * math.sqrt(1.0 / 54)).sum(-1) * -0.5
        a = (a + far.permute(0, 3, 1, 2)).softmax(-1)
        o = torch.matmul(a, v.transpose(1, 2)).transpose(1, 2).flatten(2)
        points = (a[..., None, :, :, None] * w.permute(0, 2, 4, 1, 3)[..., None, :, :]).sum(-2)
        pairs = torch.matmul(a.transpose(1, 2), z)
        return o, points, pairs


class PairBias(Projected):
    """AlphaFold 3's (Boltz'): heads stay after the tokens, scores in float32, pairs and padding added."""
    def __init__(self):
        super().__init__(False)
        self.norm, self.z, self.g = nn.LayerNorm(6), nn.Linear(6, H, False), nn.Linear(E, E, False)

    def forward(self, x, z, keep):
        b = x.shape[0]
        q, k, v = (p(x).view(b, -1, H, D) for p in (self.q, self.k, self.v))
        a = einsum("bihd,bjhd->bhij", q.float(), k.float()) / (D ** 0.5) + self.z(self.norm(z)).permute(0, 3, 1,
            2).float()
        a = (a + (1 - keep.float()[:, None, None]) * -1e6).softmax(dim=-1)
        o = einsum("bhij,bjhd->bihd", a, v.float()).to(v.dtype).reshape(b, -1, E)
        return self.out(self.g(x).sigmoid() * o)


class TiedRows(Projected):
    """MSA Transformer: rows of an alignment share one map of weights."""
    def forward(self, x):                                           # (R, N, B, C)
        r, n, b, _ = x.shape
        q, k, v = (p(x).view(r, n, b, H, D) for p in (self.q, self.k, self.v))
        a = einsum("rinhd,rjnhd->hnij", q * (D ** -0.5 / math.sqrt(r)), k).softmax(-1)
        return self.out(einsum("hnij,rjnhd->rinhd", a, v).contiguous().view(r, n, b, E)), a


class Columns(Projected):
    def forward(self, x):                                           # (R, N, B, C)
        q, k, v = (p(x).view(*x.shape[:3], H, D) for p in (self.q, self.k, self.v))
        a = einsum("icnhd,jcnhd->hcnij", q * D ** -0.5, k).softmax(-1)
        return self.out(einsum("hcnij,jcnhd->icnhd", a, v).contiguous().view(*x.shape[:3], E))


PAD = lambda letters: In(letters, lambda g, s: (torch.rand(s, generator=g) < 0.7).index_fill(-1, torch.tensor([0]),
                                                                                            True))
S("openfold_triangle_starting", Triangle, z=add("bnnc"), keep=PAD("bnn"))
S("openfold_triangle_ending", TriangleEnding, z=add("bnnc"), keep=In("bnn", lambda g, s: PAD("bnn").draw(g,
    s).mT.contiguous()))
S("openfold_global_columns", GlobalColumns, x=add("bnmc"), keep=In("bnm", lambda g, s: (torch.rand(s, generator=g)
    < 0.7).index_fill(1, torch.tensor([0]), True)))
S("alphafold_invariant_points", InvariantPoints, **X, z=add("bnn6"), kind="trap",
  note="three products share the weights, of which one has values for each query")
S("alphafold3_pair_bias", PairBias, **X, z=add("bnn6"), keep=PAD("bn"))
S("msa_tied_rows", TiedRows, x=add("4nbc"))
S("msa_columns", Columns, x=add("mnbc"))
S("proteinbert_global", lambda self, x, g: (lambda q, k, v: einsum("bhn,bhne->bhe", soft(einsum("bhd,bhnd->bhn", q, k)
    / math.sqrt(8)), v).flatten(1))(self.q(g).unflatten(-1, (H, D)).tanh(), split(self.k(x)).tanh(),
                                    F.gelu(split(self.v(x)))), **X, g=add("bc"),
  parts=dict(q=lin(), k=lin(), v=lin()), note="one query a head")


# ------------------------------------------------------------------ language
class Mpt(nn.Module):
    """MPT: ALiBi as a bias that is sliced from its end, padding filled, causal rows from the end of a square."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E, False), nn.Linear(E, E, False)
        slopes = 1.0 / torch.pow(2, torch.arange(1, H + 1).float() * 8 / H)
        self.register_buffer("bias", (torch.arange(1 - 64, 1).view(1, 1, 1, 64) * slopes.view(1, H, 1, 1)))

    def forward(self, x, past, keep):                               # past: keys and values of M tokens, (B, M, 2C)
        q, k, v = self.qkv(x).chunk(3, dim=2)
        k, v = torch.cat([past[..., :E], k], dim=1), torch.cat([past[..., E:], v], dim=1)
        b, n, m = q.shape[0], q.shape[1], k.shape[1]
        q, k, v = q.view(b, n, H, D).transpose(1, 2), k.view(b, m, H, D).permute(0, 2, 3, 1), split(v)
        s = q.matmul(k) * (1 / math.sqrt(D)) + self.bias[:, :, :, -m:]
        full = torch.cat([keep, keep.new_ones(b, n)], dim=1)
        s = s.masked_fill(~full.view(b, 1, 1, m), FAR)
        size = max(n, m)
        causal = s.new_ones(size, size, dtype=torch.float32).tril().to(torch.bool).logical_not()[-n:, -m:]
        s = s.masked_fill(causal.view(1, 1, n, m), FAR)
        return self.out(merge(torch.softmax(s, dim=-1).to(v.dtype).matmul(v)))


class NeMoRelative(Projected):
    """NeMo's, Transformer-XL's in speech: 2N - 1 positions of any N, shifted by padding and views."""
    def __init__(self):
        super().__init__()
        self.pos = nn.Linear(E, E, bias=False)
        self.u, self.w = nn.Parameter(rows(H, D)), nn.Parameter(rows(H, D, seed=1))

    def forward(self, x, drop):
        b, n, _ = x.shape
        at = torch.arange(n - 1, -n, -1).float()[:, None] * torch.exp(torch.arange(0, E, 2) * -(math.log(1e4) / E))
        pos = torch.stack([at.sin(), at.cos()], -1).flatten(1)[None]
        q, k, v = (p(x).view(b, -1, H, D) for p in (self.q, self.k, self.v))
        k, v, p = k.transpose(1, 2), v.transpose(1, 2), self.pos(pos).view(1, -1, H, D).transpose(1, 2)
        bd = torch.matmul((q + self.w).transpose(1, 2), p.transpose(-2, -1))
        r = bd.shape[-1]
        bd = F.pad(bd, pad=(1, 0)).view(b, H, -1, n)[:, :, 1:].view(b, H, n, r)
        ac = torch.matmul((q + self.u).transpose(1, 2), k.transpose(-2, -1))
        s = (ac + bd[:, :, :, :ac.size(-1)]) / math.sqrt(D)
        s = s.masked_fill(drop.unsqueeze(1), -10000.0)
        a = torch.softmax(s, dim=-1).masked_fill(drop.unsqueeze(1), 0.0)
        return self.out(torch.matmul(a, v).transpose(1, 2).reshape(b, -1, E))


class MusicSkew(Projected):
    """Music Transformer: queries times distances, skewed; causal."""
    def __init__(self):
        super().__init__()
        self.er = nn.Parameter(rows(64, D))

    def forward(self, x):
        n = x.shape[1]
        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        r = F.pad(q @ self.er[64 - n:].T, (1, 0))
        r = r.reshape(r.size(0), r.size(1), r.size(3), r.size(2))[:, :, 1:, :]
        s = (q @ k.transpose(-2, -1) + r) / math.sqrt(D)
        s = s.masked_fill(torch.tril(torch.ones(n, n)) == 0, float("-inf"))
        return self.out(merge(F.softmax(s, dim=-1) @ v))


class Enformer(Projected):
    """Enformer: features of distances, shifted by a zero column."""
    def __init__(self):
        super().__init__()
        self.rel, self.c, self.p = nn.Linear(6, E, False), nn.Parameter(rows(1, H, 1, D)), nn.Parameter(rows(1, H, 1,
            D, seed=1))

    def forward(self, x):
        n = x.shape[1]
        q, k, v = split(self.q(x)) * D ** -0.5, split(self.k(x)), split(self.v(x))
        d = torch.arange(-n + 1, n).float()
        f = torch.exp(-d.abs()[:, None] / torch.tensor([2.0, 5.0, 9.0]))
        r = self.rel(torch.cat([f, d.sign()[:, None] * f], -1)).unflatten(-1, (H, D)).transpose(0, 1)
        s = einsum("bhid,hjd->bhij", q + self.p, r)
        s = torch.cat((torch.zeros_like(s[..., :1]), s), dim=-1)
        t1, t2 = s.shape[-2:]
        s = s.reshape(-1, H, t2, t1)[:, :, 1:, :].reshape(-1, H, t1, t2 - 1)[..., :((t2 + 1) // 2)]
        return self.out(merge((einsum("bhid,bhjd->bhij", q + self.c, k) + s).softmax(-1) @ v))


class Emformer(Projected):
    """torchaudio's Emformer: right context, utterance and memory under one mask; 3-D scores seen in 4-D."""
    def forward(self, x, r, mems, pad):                             # (N, B, C), (5, B, C), (M, B, C), (B, M)
        n, b, _ = x.shape
        q, kv = self.q(torch.cat([r, x])), torch.cat([mems, r, x])
        k, v = self.k(kv), self.v(kv)
        q, k, v = (t.contiguous().view(-1, b * H, D).transpose(0, 1) for t in (q, k, v))
        s = torch.bmm(q * D ** -0.5, k.transpose(1, 2))
        m = mems.size(0)
        see = torch.cat([torch.zeros(5 + n, m, dtype=torch.bool), torch.ones(5 + n, 5 + n).triu(1).bool()], 1)
        s = s.masked_fill(see.unsqueeze(0), -1e8)
        drop = F.pad(~pad, (0, 5 + n), value=False)
        s = s.view(b, H, s.size(1), -1).masked_fill(drop[:, None, None].to(torch.bool), -1e8).flatten(0, 1)
        o = torch.bmm(F.softmax(s, dim=-1), v).transpose(0, 1).contiguous().view(5 + n, b, E)
        o = self.out(o)
        return o[:5], torch.clamp(o[5:], min=-10, max=10)


class Qanet(nn.Module):
    """QANet and BiDAF: similarities of context and question in three terms; weights over both axes."""
    def __init__(self):
        super().__init__()
        self.c, self.q, self.cq = (nn.Parameter(rows(32, seed=s) * 0.2) for s in range(3))

    def forward(self, x, y, pad, keys):                             # context (B, N, C), question (B, M, C)
        s = (x @ self.c)[..., None] + (y @ self.q)[:, None] + torch.bmm(x * self.cq, y.transpose(1, 2))
        a = F.softmax(s + (1 - keys.float()[:, None]) * -1e30, dim=2)
        c = F.softmax(s + (1 - pad.float()[..., None]) * -1e30, dim=1)
        return torch.bmm(a, y), torch.bmm(torch.bmm(a, c.transpose(1, 2)), x)


class BlocksOfKeys(nn.Module):
    """MoBA: each query sees the two blocks of four keys whose means it likes most."""
    def forward(self, q, k, v):
        n = k.shape[2] // 4
        gate = q @ k.unflatten(2, (n, 4)).mean(3).transpose(-1, -2)
        top = gate.topk(2, dim=-1).indices
        seen = torch.zeros_like(gate, dtype=torch.bool).scatter_(-1, top, True).repeat_interleave(4, dim=-1)
        s = (q @ k.transpose(-1, -2) * 0.35).masked_fill(~seen, -INF)
        return torch.softmax(s, dim=-1) @ v


class Forgetting(Projected):
    """FoX: what a gate forgets between two tokens is added to their score."""
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(E, H)

    def forward(self, x):
        n = x.shape[1]
        gone = F.logsigmoid(self.f(x)).transpose(1, 2).cumsum(-1)
        s = split(self.q(x)) @ split(self.k(x)).mT / math.sqrt(D) + (gone[..., :, None] - gone[..., None, :])
        s = s.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -INF)
        return self.out(merge(torch.softmax(s, -1) @ split(self.v(x))))


class Packed(Projected):
    """Documents side by side in one row: a token sees those of its own, before it."""
    def forward(self, x, starts):                                   # (B, N, C), (B, N): 1 where a document begins
        doc, n = starts.cumsum(-1), x.shape[1]
        same = (doc[:, :, None] == doc[:, None, :]) & torch.ones(n, n, dtype=torch.bool).tril()
        s = split(self.q(x)) @ split(self.k(x)).mT / math.sqrt(D)
        s = torch.where(same[:, None], s, torch.finfo(s.dtype).min)
        return self.out(merge(torch.softmax(s, -1) @ split(self.v(x))))


def group_first(q, k, v, keep):
    """grouped-query-attention by einsum with the group before the heads."""
    q = q.unflatten(1, (2, 2)).transpose(1, 2) * D ** -0.5
    s = einsum("bghnd,bhsd->bghns", q, k).masked_fill(~keep[:, None], FAR)
    return einsum("bghns,bhsd->bghnd", F.softmax(s, dim=-1), v).transpose(1, 2).flatten(1, 2)


def in_pieces(q, k, v):
    """lucidrains' memory-efficient-attention: keys in two pieces, sums carried along."""
    q = q * D ** -0.5
    parts = []
    for c, w in zip(k.chunk(2, dim=2), v.chunk(2, dim=2)):
        s = einsum("bhid,bhjd->bhij", q, c)
        top = s.amax(-1, keepdim=True)
        e = (s - top).exp()
        parts.append((e.sum(-1), e @ w, top[..., 0]))
    sums, outs, tops = (torch.stack(t, -1) for t in zip(*parts))
    scale = (tops - tops.amax(-1, keepdim=True)).exp()
    return (outs * scale[..., None, :]).sum(-1) / (sums * scale).sum(-1)[..., None]


def by_logsumexp(q, k, v):
    """Ring attention: two partial results and their logsumexps make one."""
    def part(c, w):
        s = q @ c.mT * 0.35
        return torch.softmax(s, -1) @ w, s.logsumexp(-1, keepdim=True)
    (o, l), (p, m) = part(k[:, :, :5], v[:, :, :5]), part(k[:, :, 5:], v[:, :, 5:])
    return o - torch.sigmoid(m - l) * (o - p)


FIXED.update(B=16, P=64, T=25, Q=32)
S("mpt_alibi_past", Mpt, **X, past=add("bmP", 0.5), keep=padding(),
  auto=True, sizes=SIZES)
S("nemo_relative", NeMoRelative, **X, drop=drop("bnn"), auto=True, sizes=SIZES)
S("music_skewed", MusicSkew, **X)
S("enformer_relative", Enformer, **X, auto=True, sizes=SIZES)
S("emformer_memory", Emformer, x=add("nbc"), r=add("5bc"), mems=add("mbc"))
S("qanet_both_axes", Qanet, x=add("bnc", 0.6), y=add("bmc", 0.6), pad=PAD("bn"), keys=PAD("bm"), count=2)
S("moba_blocks", BlocksOfKeys, k=add("bh8d", 1.2), v=add("bh8e"), dynamic="bn")
S("forgetting_transformer", Forgetting, **X)
S("documents_packed", Packed, **X, starts=integer("bn", 2))
S("gqa_group_first", group_first, k=add("bgmd", 1.2), v=add("bgmd"), keep=keep("b1nm"))
trap("keys_in_two_pieces", in_pieces, k=add("bh8d", 1.2), v=add("bh8e"), dynamic="bn",
     note="an online softmax: its pieces are divided at the end, together")
S("ring_two_parts", by_logsumexp, ranges=dict(m=(7, 63)), sizes=[dict(b=3, n=5, m=7), dict(b=2, n=9, m=13)], count=2)
S("llama4_tuned_queries", lambda q, k, v: (lambda i: soft(((q * (torch.log(torch.floor((i + 1.0) / 4) + 1) * 0.1
    + 1.0)[:, None]) @ k.mT * 0.35).masked_fill(i[:, None] < i[None], FAR)) @ v)(torch.arange(q.shape[2])), **SELF)
S("persimmon_interleaved_qkv", lambda self, x, pad: (lambda t: (lambda q, k, v: self.out(merge(soft((q * 0.35) @ k.mT
    + torch.where(pad[:, None, None], 0.0, FAR)) @ v)))(t[..., 0, :].transpose(1, 2), t[..., 1, :].transpose(1, 2),
                                                         t[..., 2, :].transpose(1, 2)))(
    self.qkv(x).view(*x.shape[:2], H, 3, D)), **X, pad=PAD("bn"), parts=dict(qkv=lin(E, 3 * E), out=lin()))
S("perceiver_heads_in_parts", lambda self, x, pad: (lambda q, k, v: self.out(torch.cat([einsum("bhij,bhjc->bhic",
    (einsum("bhic,bhjc->bhij", a, b).masked_fill(~pad[:, None, None], FAR)).softmax(dim=-1), c)
    for a, b, c in zip(q.split(2, 1), k.split(2, 1), v.split(2, 1))], 1).transpose(1, 2).flatten(2)))(
    split(self.q(self.latent.expand(x.shape[0], -1, -1))) * 0.35, split(self.k(x)), split(self.v(x))), **X,
  pad=PAD("bn"), count=2, parts=dict(q=lin(), k=lin(), v=lin(), out=lin(),
                                     latent=lambda: nn.Parameter(rows(1, 6, 32))),
  note="krasserm's Perceiver: some heads at a time")
S("conditional_detr", lambda q, s, k, t, v, drop: (lambda a: torch.bmm(F.softmax(a - a.max(dim=-1, keepdim=True)[0],
    dim=-1), v.transpose(0, 1)))(torch.bmm(torch.cat([q, s], -1).transpose(0, 1) * 0.25, torch.cat([k, t],
        -1).permute(1, 2, 0)).masked_fill(drop.repeat_interleave(4, 0).unsqueeze(1), -INF)),
  q=add("nB8"), s=add("nB8"), k=add("mB8"), t=add("mB8"), v=add("mB8"), drop=In("4m", lambda g, s: ~PAD("").draw(g,
    s)), dynamic="nm", note="content and place of each head side by side")
S("mlp_mixed_scores", lambda self, q, k, v: soft((q @ k.mT * 0.35) + self.m((q @ k.mT).unsqueeze(-1)).squeeze(-1)) @ v,
  kind="trap", parts=dict(m=lambda: nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))))
S("cosine_similarity_memory", lambda q, k, v, s: einsum("bnm,bmc->bnc", soft(s * F.cosine_similarity(k[:, None], q[:,
    :, None], dim=-1)), v), q=add("bnd"), k=add("bmd"), v=add("bmc"), s=add("bn1"),
  note="a neural Turing machine reads by cosines")


# ------------------------------------------------------------------ pictures of any size
class Mdta(nn.Module):
    """Restormer's: channels attend to channels, through a depthwise convolution."""
    def __init__(self):
        super().__init__()
        self.t, self.qkv = nn.Parameter(torch.ones(H, 1, 1)), nn.Conv2d(E, 3 * E, 1)
        self.dw, self.out = nn.Conv2d(3 * E, 3 * E, 3, 1, 1, groups=3 * E), nn.Conv2d(E, E, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (t.view(b, H, c // H, h * w) for t in self.dw(self.qkv(x)).chunk(3, dim=1))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        a = ((q @ k.transpose(-2, -1)) * self.t).softmax(dim=-1)
        return self.out((a @ v).view(b, -1, h, w))


class VaeBlock(nn.Module):
    """The attention of VQ-GANs and VAEs."""
    def __init__(self):
        super().__init__()
        self.norm, (self.q, self.k, self.v, self.out) = nn.GroupNorm(8, E), (nn.Conv2d(E, E, 1) for _ in range(4))

    def forward(self, x):
        y = self.norm(x)
        q, k, v = self.q(y), self.k(y), self.v(y)
        b, c, h, w = q.shape
        a = torch.bmm(q.reshape(b, c, h * w).permute(0, 2, 1), k.reshape(b, c, h * w)) * (int(c) ** (-0.5))
        a = F.softmax(a, dim=2).permute(0, 2, 1)
        return x + self.out(torch.bmm(v.reshape(b, c, h * w), a).reshape(b, c, h, w))


class NonLocal(nn.Module):
    """Non-local networks with keys of a pooled picture."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = nn.Conv2d(E, 16, 1), nn.Conv2d(E, 16, 1), nn.Conv2d(E, 16, 1), nn.Conv2d(16,
            E, 1)

    def forward(self, x):
        b = x.size(0)
        q = self.q(x).view(b, 16, -1).permute(0, 2, 1)
        k, v = F.max_pool2d(self.k(x), 2).view(b, 16, -1), F.max_pool2d(self.v(x), 2).view(b, 16, -1).permute(0, 2, 1)
        y = torch.matmul(F.softmax(torch.matmul(q, k), dim=-1), v).permute(0, 2, 1).contiguous()
        return self.out(y.view(b, 16, *x.size()[2:])) + x


class Axial(nn.Module):
    """MetNet, MEDIC: rows, then columns."""
    def __init__(self):
        super().__init__()
        self.a, self.b = Projected(), Projected()

    def one(self, p, t):
        q, k, v = (l(t).unflatten(-1, (H, D)) for l in (p.q, p.k, p.v))
        s = einsum("bxihd,bxjhd->bxhij", q, k) * D ** -0.5
        return t + p.out(einsum("bxhij,bxjhd->bxihd", s.softmax(-1), v).flatten(-2))

    def forward(self, x):
        t = x.permute(0, 2, 3, 1)
        t = self.one(self.a, t)
        return self.one(self.b, t.transpose(1, 2)).permute(0, 3, 2, 1)


class Windows(nn.Module):
    """Swin for detection and restoration: a picture padded to windows, rolled, with a mask made on the way."""
    W, SHIFT = 4, 2

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.table = nn.Parameter(rows(49, H))
        c = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        r = (c[:, :, None] - c[:, None]).permute(1, 2, 0) + 3
        self.register_buffer("at", r[..., 0] * 7 + r[..., 1])

    def cut(self, t):
        b, h, w, c = t.shape
        t = t.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5)
        return t.contiguous().view(-1, 16, c)

    def forward(self, x):                                           # (B, C, H, W)
        b, c, h, w = x.shape
        x = F.pad(x.permute(0, 2, 3, 1), (0, 0, 0, (4 - w % 4) % 4, 0, (4 - h % 4) % 4))
        _, hp, wp, _ = x.shape
        ids = torch.zeros((1, hp, wp, 1))
        count = 0
        for y in (slice(0, -4), slice(-4, -2), slice(-2, None)):
            for z in (slice(0, -4), slice(-4, -2), slice(-2, None)):
                ids[:, y, z, :] = count
                count += 1
        ids = self.cut(ids).view(-1, 16)
        mask = ids.unsqueeze(1) - ids.unsqueeze(2)
        mask = mask.masked_fill(mask != 0, float(-100.0)).masked_fill(mask == 0, float(0.0))
        t = self.cut(torch.roll(x, shifts=(-2, -2), dims=(1, 2)))
        q, k, v = self.qkv(t).reshape(t.shape[0], 16, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
        a = (q * D ** -0.5) @ k.transpose(-2, -1)
        a = a + self.table[self.at.view(-1)].view(16, 16, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        nw = mask.shape[0]
        a = (a.view(t.shape[0] // nw, nw, H, 16, 16) + mask.unsqueeze(1).unsqueeze(0)).view(-1, H, 16, 16)
        o = self.out((a.softmax(-1) @ v).transpose(1, 2).reshape(t.shape[0], 16, c))
        o = o.view(-1, 4, 4, c).view(b, hp // 4, wp // 4, 4, 4, -1).permute(0, 1, 3, 2, 4, 5)
        o = torch.roll(o.contiguous().view(b, hp, wp, -1), shifts=(2, 2), dims=(1, 2))
        return o[:, :h, :w, :].contiguous()


class Twins(nn.Module):
    """Twins-SVT's two: windows where padding is masked, then keys of a picture that a convolution made smaller."""
    def __init__(self):
        super().__init__()
        self.qkv, self.o1, self.q, self.kv, self.o2 = (nn.Linear(E, 3 * E), nn.Linear(E, E), nn.Linear(E, E),
                                                       nn.Linear(E, 2 * E), nn.Linear(E, E))
        self.sr, self.norm = nn.Conv2d(E, E, 2, 2), nn.LayerNorm(E)

    def forward(self, x):
        b, c, h, w = x.shape
        t, s = x.permute(0, 2, 3, 1), 2
        t = F.pad(t, (0, 0, 0, w % s, 0, h % s))
        _, hp, wp, _ = t.shape
        hh, ww = hp // s, wp // s
        out = torch.ones((1, hp, wp))
        out[:, :h, :w] = 0
        mask = out.reshape(1, hh, s, ww, s).transpose(2, 3).reshape(1, hh * ww, s * s)
        mask = mask.unsqueeze(2) - mask.unsqueeze(3)
        mask = mask.masked_fill(mask != 0, float(-1000.0)).masked_fill(mask == 0, float(0.0))
        t = t.reshape(b, hh, s, ww, s, c).transpose(2, 3)
        q, k, v = self.qkv(t).reshape(b, hh * ww, s * s, 3, H, D).permute(3, 0, 1, 4, 2, 5).unbind(0)
        a = (q @ k.transpose(-2, -1)) * D ** -0.5 + mask.unsqueeze(2)
        o = (a.softmax(-1) @ v).transpose(2, 3).reshape(b, hh, ww, s, s, c)
        t = self.o1(o.transpose(2, 3).reshape(b, hp, wp, c)[:, :h, :w, :].reshape(b, h * w, c))
        q = split(self.q(t))
        y = self.norm(self.sr(t.permute(0, 2, 1).reshape(b, c, h, w)).reshape(b, c, -1).permute(0, 2, 1))
        k, v = self.kv(y).reshape(b, -1, 2, H, D).permute(2, 0, 3, 1, 4).unbind(0)
        return self.o2(merge(((q @ k.transpose(-2, -1)) * D ** -0.5).softmax(-1) @ v))


class Neighborhood(nn.Module):
    """Neighborhood attention as it is written without a kernel: nine places around each pixel, by unfold."""
    def __init__(self):
        super().__init__()
        self.qkv, self.bias = nn.Conv2d(E, 3 * E, 1), nn.Parameter(rows(H, 9))

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).chunk(3, 1)
        around = lambda t: F.unfold(t, 3, padding=1).view(b, H, D, 9, h * w)
        q, k, v = q.view(b, H, D, 1, h * w) * D ** -0.5, around(k), around(v)
        a = ((q * k).sum(2, keepdim=True) + self.bias.view(1, H, 1, 9, 1)).softmax(3)
        return (a * v).sum(3).view(b, c, h, w)


class Halo(nn.Module):
    """HaloNet: blocks look around by a ring of pixels, of which those outside are hidden."""
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(E, E, False), nn.Linear(E, 2 * E, False), nn.Linear(E, E)

    def forward(self, x):
        b, c, h, w = x.shape
        x = F.pad(x, (0, w % 2, 0, h % 2))
        hp, wp = x.shape[2:]
        blocks = x.view(b, c, hp // 2, 2, wp // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, c)
        around = F.unfold(x, kernel_size=4, stride=2, padding=1).view(b, c, 16, -1).permute(0, 3, 2, 1).flatten(0, 1)
        q, (k, v) = self.q(blocks), self.kv(around).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (H, D)).transpose(1, 2).flatten(0, 1) for t in (q, k, v))
        s = einsum("bid,bjd->bij", q * D ** -0.5, k)
        mask = F.unfold(torch.ones(1, 1, hp, wp), kernel_size=4, stride=2, padding=1).transpose(1, 2)
        mask = mask.repeat(b, 1, 1).view(-1, 1, 16).repeat_interleave(H, dim=0)
        s = s.masked_fill(mask == 0, -torch.finfo(s.dtype).max)
        o = self.out(einsum("bij,bjd->bid", s.softmax(-1), v).unflatten(0, (-1, H)).transpose(1, 2).flatten(2))
        o = o.view(b, hp // 2, wp // 2, 2, 2, c).permute(0, 5, 1, 3, 2, 4).reshape(b, c, hp, wp)
        return o[:, :, :h, :w]


class Regions(nn.Module):
    """BiFormer: regions choose two others by their means, pixels attend to those."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):                                           # (B, 4, C, 6): 4 regions of 6 pixels
        b = x.shape[0]
        q, k, v = self.qkv(x.transpose(2, 3)).chunk(3, -1)
        near = (q.mean(2) * E ** -0.5 @ k.mean(2).transpose(-2, -1)).topk(2, dim=-1).indices
        at = near.view(b, 4, 2, 1, 1).expand(-1, -1, -1, 6, 2 * E)
        kv = torch.cat([k, v], -1).view(b, 1, 4, 6, 2 * E).expand(-1, 4, -1, -1, -1)
        k, v = torch.gather(kv, 2, at).reshape(b * 4, 12, 2 * E).split(E, -1)
        q, k, v = split(q.reshape(b * 4, 6, E)), k.unflatten(-1, (H, D)).permute(0, 2, 3, 1), split(v)
        return self.out(merge((q * E ** -0.5 @ k).softmax(-1) @ v)).view(b, 4, 6, E)


class Deformable(nn.Module):
    """DAT: keys and values where offsets point, read between pixels."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out, self.offset = (*(nn.Conv2d(E, E, 1) for _ in range(4)), nn.Conv2d(E, 2, 3,
            2, 1))

    def forward(self, x):
        b, c, h, w = x.shape
        q = self.q(x)
        o = self.offset(q).tanh() * 0.3
        hk, wk = o.shape[2:]
        ry, rx = torch.meshgrid((torch.arange(hk) + 0.5) / hk * 2 - 1, (torch.arange(wk) + 0.5) / wk * 2 - 1,
                                indexing="ij")
        at = (o.permute(0, 2, 3, 1) + torch.stack((rx, ry), -1)).clamp(-1, 1)
        y = F.grid_sample(x, at, mode="bilinear", align_corners=True).reshape(b, c, 1, hk * wk)
        q, k, v = q.reshape(b * H, D, h * w), self.k(y).reshape(b * H, D, -1), self.v(y).reshape(b * H, D, -1)
        a = einsum("bcm,bcn->bmn", q, k).mul(D ** -0.5)
        return self.out(einsum("bmn,bcn->bcm", F.softmax(a, dim=2), v).reshape(b, c, h, w))


class TimeSpace(nn.Module):
    """TimeSformer (lucidrains): the class token sees all; others see it and their own place in all frames."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E, False), nn.Linear(E, E)

    def forward(self, x):                                           # (B, 1 + N * 6, C)
        b = x.shape[0]
        q, k, v = (t.unflatten(-1, (H, D)).transpose(1, 2).flatten(0, 1) for t in self.qkv(x).chunk(3, dim=-1))
        q = q * D ** -0.5
        attend = lambda q, k, v: einsum("bij,bjd->bid", einsum("bid,bjd->bij", q, k).softmax(dim=-1), v)
        (cq, q), (ck, k_), (cv, v_) = (map(lambda t: (t[:, 0:1], t[:, 1:]), (q, k, v)))
        first = attend(cq, k, v)
        q, k_, v_ = (t.unflatten(1, (-1, 6)).transpose(1, 2).flatten(0, 1) for t in (q, k_, v_))
        r = q.shape[0] // ck.shape[0]
        ck, cv = (t.unsqueeze(1).expand(-1, r, -1, -1).flatten(0, 1) for t in (ck, cv))
        o = attend(q, torch.cat((ck, k_), dim=1), torch.cat((cv, v_), dim=1))
        o = o.unflatten(0, (-1, 6)).transpose(1, 2).flatten(1, 2)
        return self.out(torch.cat((first, o), dim=1).unflatten(0, (b, H)).transpose(1, 2).flatten(2))


class Hiera(nn.Module):
    """Hiera's mask units: windows strided apart, queries pooled by a maximum."""
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):                                           # (B, 8 * N, C): N tokens a window, 4 a place
        b, n, _ = x.shape
        windows = n // 8
        q, k, v = self.qkv(x).reshape(b, -1, windows, 3, H, D).permute(3, 0, 4, 2, 1, 5)
        q = q.view(b, H, windows, 4, -1, D).max(dim=3).values
        a = (q * D ** -0.5) @ k.transpose(-1, -2)
        return self.out((a.softmax(dim=-1) @ v).transpose(1, 3).reshape(b, -1, E))


class Rope2d(Projected):
    """k-diffusion's picture transformer: cosines, rotated by row and column of each pixel."""
    def forward(self, x):
        b, c, h, w = x.shape
        t = x.flatten(2).transpose(1, 2)
        q, k, v = split(self.q(t)), split(self.k(t)), split(self.v(t))
        f = torch.tensor([1.0, 0.3]) * math.pi
        y, z = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        angle = torch.cat([y.reshape(-1, 1) * f, z.reshape(-1, 1) * f], -1)
        def turn(t):
            t = t * torch.rsqrt((t * t).sum(-1, keepdim=True) + 1e-6) * 3.0 ** 0.5
            a, b = t.chunk(2, -1)
            return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)
        o = merge(soft(turn(q) @ turn(k).mT) @ v)
        return self.out(o).transpose(1, 2).reshape(b, c, h, w)


S("restormer_channels", Mdta, **PICTURE)
S("vae_any_picture", VaeBlock, **PICTURE)
S("non_local_pooled", NonLocal, **PICTURE)
S("axial_rows_columns", Axial, **PICTURE, count=2)
S("swin_any_picture", Windows, **PICTURE, auto=True)
S("twins_any_picture", Twins, **PICTURE, count=2, auto=True)
S("neighborhood_unfolded", Neighborhood, **PICTURE, kind="trap", note="pixels are the last axis: products by element")
S("halo_any_picture", Halo, **PICTURE, auto=True)
S("biformer_regions", Regions, x=add("b4c6"), dynamic="b")
S("dat_deformable", Deformable, **PICTURE)
S("timesformer_time", TimeSpace, x=add("bTc"), dynamic="b", count=2)
S("hiera_mask_units", Hiera, x=add("bQc"), dynamic="b")
S("rope_of_a_picture", Rope2d, **PICTURE, auto=True)

# ------------------------------------------------------------------ what is not
trap("point_cloud_offset", lambda self, x: (lambda a: torch.bmm(self.v(x), a / (1e-9 + a.sum(dim=1, keepdim=True))))(
    torch.bmm(self.q(x).permute(0, 2, 1), self.q(x)).softmax(-1)), x=add("bcn", 0.6),
     parts=dict(q=lambda: nn.Conv1d(32, 8, 1, bias=False), v=lambda: nn.Conv1d(32, 32, 1)),
     note="normalised over keys and then over queries")
other("point_transformer", lambda self, q, k, v: (soft_vectors := F.softmax(self.m(q[:, :, None] - k[:, None]), dim=2),
    (soft_vectors * v[:, None]).sum(2))[1], q=add("bnd"), k=add("bmd"), v=add("bmd"),
      parts=dict(m=lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))),
      note="a weight for each channel")
trap("slots", lambda q, k, v: (lambda a: einsum("bjd,bij->bid", v, a / a.sum(dim=-1, keepdim=True)))(
    (einsum("bid,bjd->bij", q, k) * 0.35).softmax(dim=1) + 1e-8), q=add("bnd"), k=add("bmd"), v=add("bmd"),
     note="slots compete for tokens")
other("external_double_norm", lambda self, x: self.v((lambda a: a / (1e-9 + a.sum(dim=1, keepdim=True)))(soft(
    self.k(x)))), **X, parts=dict(k=lin(E, 16, False), v=lin(16, E, False)))
trap("sigmoid_less_log", lambda q, k, v: torch.sigmoid(q @ k.mT * 0.35 - math.log(7)) @ v)
trap("softpick", lambda q, k, v: (lambda e: (e.relu() / (e.abs().sum(-1, keepdim=True) + 1e-6)) @ v)(
    torch.expm1(q @ k.mT * 0.35)))
trap("stick_breaking", lambda q, k, v: (lambda z: (F.logsigmoid(z) + (-F.softplus(z)).flip(-1).cumsum(-1).flip(-1)
    + F.softplus(z)).exp() @ v)((q @ k.mT * 0.35).masked_fill(torch.ones(q.shape[2], q.shape[2],
                                                                          dtype=torch.bool).triu(), -1e5)), **SELF)
trap("softmax_then_mask", lambda q, k, v, keep: (lambda p: (p / (p.sum(-1, keepdim=True) + 1e-13)) @ v)(soft(
    q @ k.mT * 0.35 * keep) * keep), keep=In("b1nm", lambda g, s: keep("b1nm").draw(g, s).float()),
     note="AllenNLP's masked softmax: scores are multiplied by the mask, too")
trap("contextual_positions", lambda self, q, k, v: (lambda s: (lambda p: soft(s * 0.35 + torch.gather(q @ self.e, -1,
    p.floor().long()) * (1 - p.frac())) @ v)(s.sigmoid().flip(-1).cumsum(-1).flip(-1).clamp(max=9.0)))(q @ k.mT),
     parts=dict(e=lambda: nn.Parameter(rows(8, 10))), note="CoPE: how far a key is depends on the scores")
other("lambda_layer", lambda q, k, v: einsum("bhnd,bhde->bhne", q, einsum("bhmd,bhme->bhde", k.softmax(2), v)))
trap("sum_of_two_softmaxes", lambda q, k, v, w: (0.5 * soft(q @ k.mT) + 0.5 * soft(w @ k.mT).mT.contiguous().mT) @ v,
     w=add("bhnd"), note="two attentions of one value")
other("synthesizer_dense", lambda self, x: (lambda s: soft(s[..., :x.shape[1]]) @ self.v(x))(self.w2(F.relu(self.w1(
    x)))), **X, parts=dict(w1=lin(), w2=lin(E, 64), v=lin()), note="no product of queries and keys")
trap("gaussian_windows", lambda q, k, v: (lambda i: soft(-(q.mean(-1, keepdim=True) * 3 - i[None]) ** 2) @ v)(
    torch.arange(k.shape[2]).float()), note="scores are squares of distances from a place")
trap("softmax_in_log_space", lambda q, k, v: torch.logsumexp((q @ k.mT * 0.35).log_softmax(-1)[..., None] + v[:, :,
    None], dim=-2), note="log of the weighed mean of exponentials")
trap("values_of_last_axis", lambda q, k, v: soft(q @ k.mT * 0.35) @ v.transpose(1, 2).reshape(v.shape), k=add("bhnd"),
     v=add("bhnd"), auto=True, sizes=SIZES, note="heads and tokens confused in the values")
trap("mask_of_other_layout", lambda q, k, v, mask: soft(q @ k.mT * 0.35 + mask.reshape(mask.shape[0], 4, mask.shape[1],
    -1)) @ v, mask=add("bnhm"), auto=True, sizes=SIZES,
     note="a mask with heads last but one, read as if they were first")
