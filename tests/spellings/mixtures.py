"""Attentions put together by chance: one way of each kind (layout, heads, scale, product, mask, softmax, values,
result), always the same two hundred.

Some are exported after run_decompositions(), some in bfloat16. A hundred more are broken in one place: traps.
"""
import random

from spell import *

H, G, D, E = 4, 2, 8, 6
A = 0.4

# how q, k, v come in (letters; g heads for k and v where they are grouped) and become (B, H, N, D)
LAYOUTS = {
    "bhnd": (("bhnd", "bgmd", "bgme"), lambda t, h: t),
    "bnhd": (("bnhd", "bmgd", "bmge"), lambda t, h: t.transpose(1, 2)),
    "nbhd": (("nbhd", "mbgd", "mbge"), lambda t, h: t.permute(1, 2, 0, 3)),
    "bhdn": (("bhdn", "bgdm", "bgem"), lambda t, h: t.mT),
    "split": (("bnC", "bmK", "bmV"), lambda t, h: t.view(t.shape[0], -1, h, t.shape[-1] // h).transpose(1, 2)),
    "unflatten": (("bnC", "bmK", "bmV"), lambda t, h: t.unflatten(-1, (h, -1)).permute(0, 2, 1, 3).contiguous()),
}
HEADS = {
    "same": lambda t: t,
    "interleave": lambda t: t.repeat_interleave(2, 1),
    "expand": lambda t: t[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2),
    "index": lambda t: t[:, [0, 0, 1, 1]],
}
# (before the product: q, k), (after it: scores)
SCALES = {
    "q_mul": (lambda q, k: (q * A, k), lambda s: s),
    "k_div": (lambda q, k: (q, k / 2.5), lambda s: s),
    "both": (lambda q, k: (q * D ** -0.25, k * D ** -0.25), lambda s: s),
    "mul": (lambda q, k: (q, k), lambda s: s * A),
    "div": (lambda q, k: (q, k), lambda s: s / math.sqrt(D)),
    "tensor": (lambda q, k: (q, k), lambda s: s / torch.sqrt(torch.tensor(float(D))).to(s.dtype)),
    "full": (lambda q, k: (q, k), lambda s: s.div(torch.full([], 2.5, dtype=s.dtype))),
    "q_and_mul": (lambda q, k: (q * 0.8, k), lambda s: 0.5 * s),
}
PRODUCTS = {
    "matmul": lambda q, k: q @ k.transpose(-2, -1),
    "permute": lambda q, k: torch.matmul(q, k.permute(0, 1, 3, 2)),
    "einsum": lambda q, k: torch.einsum("bhid,bhjd->bhij", q, k),
    "bmm": lambda q, k: torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).view(q.shape[0], H, q.shape[2], k.shape[2]),
    "swapped": lambda q, k: (k @ q.mT).mT,
    "baddbmm": lambda q, k: torch.baddbmm(torch.zeros(1, dtype=q.dtype), q.reshape(-1, q.shape[2], D),
                                          k.reshape(-1, k.shape[2], D).mT).unflatten(0, (-1, H)),
}
# scores, mask inputs -> scores; what the inputs are; whether queries and keys are of one length
MASKS = {
    "none": (lambda s: s, {}, False),
    "add": (lambda s, mask: s + mask, dict(mask=add("b1nm")), False),
    "add_first": (lambda s, mask: mask + s, dict(mask=add("1hnm")), False),
    "fill": (lambda s, drop: s.masked_fill(drop, -INF), dict(drop=drop("b1nm")), False),
    "fill_min": (lambda s, keep: s.masked_fill(keep == 0, torch.finfo(s.dtype).min), dict(keep=keep("bhnm")), False),
    "where": (lambda s, keep: torch.where(keep, s, torch.finfo(s.dtype).min), dict(keep=keep("11nm")), False),
    "one_minus": (lambda s, pad: s + (1.0 - pad[:, None, None].to(s.dtype)) * -1e4, dict(pad=padding(torch.int64)),
                  False),
    "padding": (lambda s, pad: s.masked_fill(~pad[:, None, None], -INF), dict(pad=padding()), False),
    "causal": (lambda s: s.masked_fill(torch.ones(s.shape[2], s.shape[3], dtype=torch.bool).triu(1), -INF), {}, True),
    "causal_tril": (lambda s: torch.where(torch.tril(torch.ones(s.shape[2], s.shape[3])) > 0, s,
                                          torch.finfo(s.dtype).min), {}, True),
    "causal_add": (lambda s: s + torch.full((s.shape[2], s.shape[3]), -INF, dtype=s.dtype).triu(1), {}, True),
    "causal_arange": (lambda s: s.masked_fill(torch.arange(s.shape[3])[None] > torch.arange(s.shape[2])[:, None],
                                              -1e4), {}, True),
    "window": (lambda s: (lambda i: s.masked_fill((i[:, None] - i[None]).abs() > 2, -INF))(torch.arange(s.shape[2])),
               {}, True),
    "causal_padding": (lambda s, pad: s.masked_fill(torch.ones(s.shape[2], s.shape[3], dtype=torch.bool).triu(1)
                                                    | ~pad[:, None, None], torch.finfo(s.dtype).min),
                       dict(pad=In("bm", lambda g, s: torch.ones(s, dtype=torch.bool).index_fill(1,
                           torch.tensor([s[1] - 1]), s[1] == 1))), True),
    "two": (lambda s, mask, drop: (s + mask).masked_fill(drop, -INF), dict(mask=add("1hnm"), drop=drop("b1nm")), False),
    "softcap": (lambda s: 4.0 * torch.tanh(s / 4.0), {}, False),
    "softcap_causal": (lambda s: (4.0 * torch.tanh(s / 4.0)).masked_fill(torch.ones(s.shape[2], s.shape[3],
        dtype=torch.bool).triu(1), -INF), {}, True),
    "alibi": (lambda s: s - (torch.arange(s.shape[3])[None] - torch.arange(s.shape[2])[:, None]).abs()
              * torch.tensor([0.5, 0.25, 0.125, 0.06], dtype=s.dtype)[:, None, None], {}, True),
}
# scores -> weights
SOFTMAXES = {
    "softmax": lambda s: s.softmax(-1),
    "functional": lambda s: F.softmax(s, dim=3),
    "f32": lambda s: F.softmax(s, dim=-1, dtype=torch.float32).to(s.dtype),
    "float": lambda s: s.float().softmax(-1).type_as(s),
    "dropout": lambda s: F.dropout(torch.softmax(s, -1), 0.1, training=False),
    "amax": lambda s: (lambda e: e / e.sum(-1, keepdim=True))((s - s.amax(-1, keepdim=True)).exp()),
    "max": lambda s: (lambda e: e / torch.sum(e, -1, True))(torch.exp(s - torch.max(s, -1, True)[0])),
    "exp": lambda s: (lambda e: e / e.sum(-1, keepdim=True))(s.exp()),
    "logsumexp": lambda s: torch.exp(s - s.logsumexp(-1, keepdim=True)),
}
VALUES = {
    "matmul": lambda p, v: p @ v,
    "einsum": lambda p, v: torch.einsum("bhij,bhjd->bhid", p, v),
    "einsum_bn": lambda p, v: torch.einsum("bhqk,bhke->bqhe", p, v).transpose(1, 2),
    "bmm": lambda p, v: torch.bmm(p.flatten(0, 1), v.flatten(0, 1)).unflatten(0, (-1, H)),
    "transposed": lambda p, v: (v.mT @ p.mT).mT,
}
RESULTS = {
    "plain": lambda o, p: o,
    "flat": lambda o, p: o.transpose(1, 2).reshape(o.shape[0], o.shape[2], -1),
    "contiguous": lambda o, p: o.permute(0, 2, 1, 3).contiguous().flatten(2),
    "weights": lambda o, p: (o, p),
    "mean_weights": lambda o, p: (o.transpose(1, 2), p.mean(1)),
}
# what breaks an attention: (scores -> scores, weights -> weights)
same = lambda t: t
BREAKS = {
    "scale per head": (lambda s: s * torch.tensor([0.2, 0.5, 1.0, 1.5], dtype=s.dtype)[:, None, None], same),
    "multiplied by its size": (lambda s: s * s.abs(), same),
    "future multiplied by 0": (lambda s: s.tril(), same),
    "positive scores only": (lambda s: s.relu(), same),
    "filled with 0": (lambda s: s.masked_fill(torch.arange(s.shape[-1]) % 3 == 1, 0.0), same),
    "filled with -2": (lambda s: s.masked_fill(torch.arange(s.shape[-1]) % 3 == 1, -2.0), same),
    "added after tanh": (lambda s: torch.tanh(s) + 0.3 * s, same),
    "shift of a column": (lambda s: s.roll(1, -1), same),
    "heads swapped": (same, lambda p: p[:, [1, 0, 3, 2]]),
    "heads averaged": (same, lambda p: p.mean(1, keepdim=True).expand(-1, H, -1, -1)),
    "masked after": (same, lambda p: p * (torch.arange(p.shape[-1]) % 3 != 1)),
    "squared after": (same, lambda p: p * p),
    "less the mean": (same, lambda p: p - p.mean(-1, keepdim=True)),
    "divided by the largest": (same, lambda p: p / p.amax(-1, keepdim=True)),
    "softmax again": (same, lambda p: p.softmax(-1)),
    "logarithm": (same, lambda p: (p + 0.01).log()),
    "other keys": (same, lambda p: p.flip(-1)),
    "over queries too": (same, lambda p: p / p.sum(-2, keepdim=True)),
    "less than half dropped": (same, lambda p: p.masked_fill(p < 0.2, 0.0)),
    "a tenth of the identity": (same, lambda p: p + 0.1 * torch.eye(p.shape[-2], p.shape[-1], dtype=p.dtype)),
}
FIXED.update(C=H * D, K=H * D, V=H * E)


def mixture(i, dice, broken=None):
    layout, heads, scale, product, mask, softmax, values, result = (dice.choice(list(t)) for t in (LAYOUTS, HEADS,
        SCALES, PRODUCTS, MASKS, SOFTMAXES, VALUES, RESULTS))
    letters, bring = LAYOUTS[layout]
    masking, more, square = MASKS[mask]
    before, after = SCALES[scale]
    late = dice.random() < 0.2     # the mask comes before the scale of the scores
    kv = H if heads == "same" else G
    spoil, taint = BREAKS[broken] if broken else (same, same)

    def attend(q, k, v, *masks):
        q, k, v = bring(q, H), HEADS[heads](bring(k, kv)), HEADS[heads](bring(v, kv))
        s = PRODUCTS[product](*before(q, k))
        s = after(masking(spoil(s), *masks)) if late else masking(after(spoil(s)), *masks)
        p = taint(SOFTMAXES[softmax](s))
        return RESULTS[result](VALUES[values](p, v), p)

    scope = dict(attend=attend)
    args = ", ".join(["q", "k", "v", *more])
    exec(f"def f({args}):\n    return attend({args})\n", scope)
    sizes = {"K": kv * D, "V": kv * E}

    def letters_of(word, std):
        word = word.replace("g", "h" if kv == H else "g")
        return In("".join("n" if l == "m" and square else l for l in word),
                  lambda g, s, w=word: torch.randn([sizes.get(l, n) for l, n in zip(w, s)], generator=g) * std)

    inputs = dict(zip("qkv", (letters_of(w, std) for w, std in zip(letters, (1.2, 1.2, 1.0)))))
    inputs.update({n: In(m.letters.replace("m", "n") if square else m.letters, m.draw) for n, m in more.items()})
    core, half = dice.random() < 0.2, dice.random() < 0.1
    core &= not half       # decomposed, PyTorch rounds where eager does not
    S(f"{'trap_' if broken else ''}mix_{i:03d}{'_core' if core else ''}", scope["f"],
      kind="trap" if broken else "legit", decompose=core, dtype=torch.bfloat16 if half else torch.float32, **inputs,
      note=" ".join(([broken + ":"] if broken else []) + [layout, heads, scale, product,
                                                          mask + " before the scale" * late, softmax, values, result]))


_dice = random.Random(7)
for _i in range(200):
    mixture(_i, _dice)
for _i in range(100):
    mixture(_i, _dice, list(BREAKS)[_i % len(BREAKS)])
