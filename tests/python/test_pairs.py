"""Pairs of spellings that differ in one constant, axis, order or mask, as exporters and ports get them wrong: qkv.prove
tells each from what it looks like, and certifies none of them. Each has a correct spelling beside it, which is equal.
All are outputs of three modules, which are exported once."""
import math

import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from test_certify import certificate_of  # noqa: E402
from torch import nn  # noqa: E402

F = nn.functional
B, H, N, D = 2, 4, 6, 8
BORDERS = torch.tensor([-1.0, 0.1, 0.9, 2.0])
I = torch.arange(N)
TABLE, BIAS, SLOPES = torch.randn(N + 2, D), torch.randn(2 * N - 1), 2.0 ** -torch.arange(1.0, H + 1)[:, None, None]


def sdpa(q, k, v, **options):
    return F.scaled_dot_product_attention(q, k, v, **options)


def attend(s, v):
    return s.softmax(-1) @ v


def scores(q, k, scale=D ** -0.5):
    return q @ k.mT * scale


def hidden(keep, fill=-torch.inf):
    return torch.zeros(keep.shape).masked_fill(~keep, fill)


def packed(x, w, order):
    parts = (x @ w.repeat(1, 3) * torch.arange(1, 4).repeat_interleave(D)).chunk(3, -1)
    return sdpa(*(parts[i] for i in order))


def halves(x, angle):
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def turned(x, angle, last=False):
    """Half of the channels are rotated."""
    a, b = x.chunk(2, -1)
    return torch.cat([a, halves(b, angle)] if last else [halves(a, angle), b], -1)


def rms(x, dim=-1):
    return x * torch.rsqrt(x.square().mean(dim, keepdim=True) + 1e-6)


def windows(x, shift):
    """Softmax over windows of three tokens, shifted."""
    return x.roll(-shift, 2).unflatten(2, (2, 3)).softmax(3).flatten(2, 3).roll(shift, 2)


ANGLE = I[:, None] * 10.0 ** -torch.arange(4.0)
BAND = (I[:, None] - I).abs() < 2
# name: (a function, another spelling of it, what looks like it); x, y, v (B, H, N, D), w (D, D), keep (B, N)
PAIRS = {
    "rotary, halves for pairs": (
        lambda x, y, v, w, keep: halves(x, ANGLE),
        lambda x, y, v, w, keep: x * ANGLE.cos().repeat(1, 2) + torch.cat([-x[..., 4:], x[..., :4]], -1) *
        ANGLE.sin().repeat(1, 2),
        lambda x, y, v, w, keep: halves(x.unflatten(-1, (4, 2)).mT.flatten(-2), ANGLE)),
    "rotary, the last half": (
        lambda x, y, v, w, keep: turned(x, ANGLE[:, :2]),
        lambda x, y, v, w, keep: torch.cat([halves(x[..., :4], ANGLE[:, :2]), x[..., 4:]], -1),
        lambda x, y, v, w, keep: turned(x, ANGLE[:, :2], last=True)),
    "rotary, positions from 1": (
        lambda x, y, v, w, keep: halves(x, I[:, None] * v[0, 0, 0, :4]),
        lambda x, y, v, w, keep: halves(x, torch.arange(0, N)[:, None] * v[0, 0, 0, :4]),
        lambda x, y, v, w, keep: halves(x, (I[:, None] + 1) * v[0, 0, 0, :4])),
    "rotary, the other way": (
        lambda x, y, v, w, keep: sdpa(halves(x, ANGLE), halves(y, ANGLE), v),
        lambda x, y, v, w, keep: attend(scores(halves(x, ANGLE), halves(y, ANGLE)), v),
        lambda x, y, v, w, keep: sdpa(halves(x, ANGLE), halves(y, -ANGLE), v)),
    "packed in another order": (
        lambda x, y, v, w, keep: packed(x, w, (0, 1, 2)),
        lambda x, y, v, w, keep: sdpa(x @ w, 2 * x @ w, x @ (w * 3)),
        lambda x, y, v, w, keep: packed(x, w, (0, 2, 1))),
    "causal, from the other corner": (
        lambda x, y, v, w, keep: sdpa(x[:, :, :3], y, v, is_causal=True),
        lambda x, y, v, w, keep: attend(scores(x[:, :, :3], y) + hidden(I[:3, None] >= I), v),
        lambda x, y, v, w, keep: attend(scores(x[:, :, :3], y) + hidden(I[:3, None] + 3 >= I), v)),
    "causal, without the diagonal": (
        lambda x, y, v, w, keep: attend(scores(x, y) + hidden(I[:, None] >= I, -1e9), v),
        lambda x, y, v, w, keep: sdpa(x, y, v, is_causal=True),
        lambda x, y, v, w, keep: attend(scores(x, y) + hidden((I[:, None] > I) | (I == 0), -1e9), v)),
    "grouped heads, tiled": (
        lambda x, y, v, w, keep: sdpa(x, y[:, :2].repeat_interleave(2, 1), v[:, :2].repeat_interleave(2, 1)),
        lambda x, y, v, w, keep: sdpa(x, y[:, :2], v[:, :2], enable_gqa=True),
        lambda x, y, v, w, keep: sdpa(x, y[:, :2].repeat(1, 2, 1, 1), v[:, :2].repeat(1, 2, 1, 1))),
    "eps outside of the root": (
        lambda x, y, v, w, keep: F.layer_norm(x, (D,), eps=1e-3),
        lambda x, y, v, w, keep: (x - x.mean(-1, keepdim=True)) * (x.var(-1, False, keepdim=True) + 1e-3).rsqrt(),
        lambda x, y, v, w, keep: (x - x.mean(-1, keepdim=True)) / (x.var(-1, False, keepdim=True).sqrt() + 1e-3)),
    "gelu by tanh": (
        lambda x, y, v, w, keep: F.gelu(x),
        lambda x, y, v, w, keep: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
        lambda x, y, v, w, keep: F.gelu(x, approximate="tanh")),
    "scale of all heads": (
        lambda x, y, v, w, keep: sdpa(x, y, v),
        lambda x, y, v, w, keep: attend((x / math.sqrt(D)) @ y.mT, v),
        lambda x, y, v, w, keep: sdpa(x, y, v, scale=(H * D) ** -0.5)),
    "mask of padding, turned over": (
        lambda x, y, v, w, keep: sdpa(x, y, v, attn_mask=keep[:, None, None]),
        lambda x, y, v, w, keep: attend(scores(x, y).masked_fill(~keep[:, None, None], -torch.inf), v),
        lambda x, y, v, w, keep: attend(scores(x, y).masked_fill(keep[:, None, None], -torch.inf), v)),
    "mask of queries": (
        lambda x, y, v, w, keep: attend(scores(x, y) + (1 - keep.float())[:, None, None] * -9.0, v),
        lambda x, y, v, w, keep: sdpa(x, y, v, attn_mask=(keep.float()[:, None, None] - 1) * 9),
        lambda x, y, v, w, keep: attend(scores(x, y) + (1 - keep.float())[:, None, :, None] * -9.0, v)),
    "mask before the scale": (
        lambda x, y, v, w, keep: attend(scores(x, y, 0.3) + keep[:, None, None].float(), v),
        lambda x, y, v, w, keep: sdpa(x, y, v, attn_mask=keep[:, None, None].float(), scale=0.3),
        lambda x, y, v, w, keep: attend((scores(x, y, 1.0) + keep[:, None, None].float()) * 0.3, v)),
    "windows, shifted the other way": (
        lambda x, y, v, w, keep: windows(x, 1),
        lambda x, y, v, w, keep: torch.cat([x[:, :, 1:], x[:, :, :1]], 2).view(B, 2 * H, 3, D).softmax(2).view(
            B, H, N, D)[:, :, (I - 1) % N],
        lambda x, y, v, w, keep: windows(x, -1)),
    "windows, by columns": (
        lambda x, y, v, w, keep: x.view(B, H, 2, 3, D).softmax(3).flatten(2, 3),
        lambda x, y, v, w, keep: x.reshape(B, H * 2, 3, D).softmax(2).view(B, H, N, D),
        lambda x, y, v, w, keep: x.view(B, H, 3, 2, D).softmax(2).flatten(2, 3)),
    "band, one wider": (
        lambda x, y, v, w, keep: sdpa(x, y, v, attn_mask=BAND),
        lambda x, y, v, w, keep: attend(scores(x, y) + hidden(BAND), v),
        lambda x, y, v, w, keep: sdpa(x, y, v, attn_mask=(I[:, None] - I).abs() <= 2)),
    "class token at the end": (
        lambda x, y, v, w, keep: (torch.cat([v[:, :, :1], x], 2) + TABLE[:N + 1]).tanh()[:, :, 0],
        lambda x, y, v, w, keep: (v[:, :, 0] + TABLE[0]).tanh() + 0 * x[:, :, 0],
        lambda x, y, v, w, keep: (torch.cat([x, v[:, :, :1]], 2) + TABLE[:N + 1]).tanh()[:, :, -1]),
    "a square weight, transposed": (
        lambda x, y, v, w, keep: F.linear(x, w),
        lambda x, y, v, w, keep: x @ w.t(),
        lambda x, y, v, w, keep: x @ w),
    "a table of positions, two further": (
        lambda x, y, v, w, keep: x + F.embedding(I, TABLE),
        lambda x, y, v, w, keep: TABLE[:N] + x,
        lambda x, y, v, w, keep: x + F.embedding(I + 2, TABLE)),
    "relative positions, mirrored": (
        lambda x, y, v, w, keep: attend(scores(x, y) + BIAS[I[:, None] - I + N - 1], v),
        lambda x, y, v, w, keep: sdpa(x, y, v, attn_mask=BIAS[(I - I[:, None] - N + 1).neg()]),
        lambda x, y, v, w, keep: attend(scores(x, y) + BIAS[I - I[:, None] + N - 1], v)),
    "slopes of the heads, reversed": (
        lambda x, y, v, w, keep: attend(scores(x, y) + SLOPES * (I - I[:, None]), v),
        lambda x, y, v, w, keep: sdpa(x, y, v, attn_mask=(I - I[:, None]) * SLOPES),
        lambda x, y, v, w, keep: attend(scores(x, y) + SLOPES.flip(0) * (I - I[:, None]), v)),
    "a gate, swapped": (
        lambda x, y, v, w, keep: F.silu(x @ w) * (x @ w.t()),
        lambda x, y, v, w, keep: (x @ w) * torch.sigmoid(x @ w) * F.linear(x, w),
        lambda x, y, v, w, keep: F.silu(x @ w.t()) * (x @ w)),
    "a norm's weight, and one": (
        lambda x, y, v, w, keep: F.rms_norm(x, (D,), w[0], 1e-6),
        lambda x, y, v, w, keep: w[0] * rms(x),
        lambda x, y, v, w, keep: (1 + w[0]) * rms(x)),
    "norm of heads": (
        lambda x, y, v, w, keep: rms(x) @ rms(y).mT,
        lambda x, y, v, w, keep: F.rms_norm(x, (D,), eps=1e-6) @ rms(y).mT,
        lambda x, y, v, w, keep: rms(x, 1) @ rms(y, 1).mT),
    "the residual, in the norm": (
        lambda x, y, v, w, keep: x + F.layer_norm(x * y, (D,)),
        lambda x, y, v, w, keep: F.layer_norm(y * x, (D,)) + x,
        lambda x, y, v, w, keep: F.layer_norm(x + x * y, (D,))),
    "a soft cap after the mask": (
        lambda x, y, v, w, keep: attend(5 * torch.tanh(scores(x, y) / 5) + (keep.float() * 3)[:, None, None], v),
        lambda x, y, v, w, keep: attend((keep.float() * 3)[:, None, None] + torch.tanh(scores(x, y) * 0.2) * 5, v),
        lambda x, y, v, w, keep: attend(5 * torch.tanh((scores(x, y) + (keep.float() * 3)[:, None, None]) / 5), v)),
    "a mean over padding": (
        lambda x, y, v, w, keep: (x * keep[:, None, :, None]).sum(2) / keep.sum(1)[:, None, None],
        lambda x, y, v, w, keep: (x * keep[:, None, :, None].float()).sum(2) * (1 / keep.sum(1, True)[:, None]),
        lambda x, y, v, w, keep: (x * keep[:, None, :, None]).mean(2)),
    "the last token but one": (
        lambda x, y, v, w, keep: x[:, :, -1] @ w,
        lambda x, y, v, w, keep: (x @ w)[:, :, N - 1],
        lambda x, y, v, w, keep: x[:, :, -2] @ w),
    "a causal convolution, padded on the right": (
        lambda x, y, v, w, keep: F.conv1d(F.pad(x[:, 0].mT, (1, 0)), w[:, :, None].expand(D, D, 2)),
        lambda x, y, v, w, keep: F.conv1d(x[:, 0].mT, w[:, :, None].expand(D, D, 2), padding=1)[..., :N],
        lambda x, y, v, w, keep: F.conv1d(F.pad(x[:, 0].mT, (0, 1)), w[:, :, None].expand(D, D, 2))),
    "pixels shuffled by channels": (
        lambda x, y, v, w, keep: x.view(B, 1, 2, 2, N, D).permute(0, 1, 4, 2, 5, 3).reshape(B, 1, 2 * N, 2 * D),
        lambda x, y, v, w, keep: F.pixel_shuffle(x, 2),
        lambda x, y, v, w, keep: x.view(B, 1, 2, 2, N, D).permute(0, 1, 4, 3, 5, 2).reshape(B, 1, 2 * N, 2 * D)),
    "patches by columns": (
        lambda x, y, v, w, keep: x.flatten(2).mT,
        lambda x, y, v, w, keep: x.permute(0, 2, 3, 1).reshape(B, N * D, H),
        lambda x, y, v, w, keep: x.permute(0, 3, 2, 1).reshape(B, N * D, H)),
    "doubled by tiles": (
        lambda x, y, v, w, keep: x.repeat_interleave(2, 2),
        lambda x, y, v, w, keep: x[:, :, :, None].expand(B, H, N, 2, D).reshape(B, H, 2 * N, D),
        lambda x, y, v, w, keep: x.repeat(1, 1, 2, 1)),
    "positions of real tokens, from 0": (
        lambda x, y, v, w, keep: x * keep.long().cumsum(1)[:, None, :, None],
        lambda x, y, v, w, keep: x * (torch.ones(N, N).tril() @ keep[:, :, None].float())[:, None],
        lambda x, y, v, w, keep: x * (keep.long().cumsum(1) - 1)[:, None, :, None]),
    "keys of the cache, at the end": (
        lambda x, y, v, w, keep: sdpa(x, torch.cat([y, x], 2), torch.cat([v, x], 2)),
        lambda x, y, v, w, keep: attend(scores(x, torch.cat([y, x], 2)), torch.cat([v, x], 2)),
        lambda x, y, v, w, keep: sdpa(x, torch.cat([y, x], 2), torch.cat([x, v], 2))),
    "heads mixed by the transpose": (
        lambda x, y, v, w, keep: torch.einsum("gh,bhnd->bgnd", w[:H, :H], x),
        lambda x, y, v, w, keep: (w[:H, :H] @ x.flatten(2)).view(B, H, N, D),
        lambda x, y, v, w, keep: torch.einsum("hg,bhnd->bgnd", w[:H, :H], x)),
    "a difference, the other way": (
        lambda x, y, v, w, keep: (scores(x, y).softmax(-1) - 0.2 * scores(y, x).softmax(-1)) @ v,
        lambda x, y, v, w, keep: sdpa(x, y, v) - 0.2 * sdpa(y, x, v),
        lambda x, y, v, w, keep: (scores(y, x).softmax(-1) - 0.2 * scores(x, y).softmax(-1)) @ v),
    "a bound that few values reach": (
        lambda x, y, v, w, keep: F.relu6(x),
        lambda x, y, v, w, keep: torch.minimum(F.relu(x), torch.tensor(6.0)),
        lambda x, y, v, w, keep: x.clamp(0, 7)),
    "relu of the square": (
        lambda x, y, v, w, keep: F.relu(x) ** 2,
        lambda x, y, v, w, keep: F.relu(x) * F.relu(x),
        lambda x, y, v, w, keep: F.relu(x ** 2)),
}


# of integers i, tokens (of the table e) and a mask m, (B, N) each, and x (B, N, D)
INTEGERS = {
    "remainder, its sign": (
        lambda i, tokens, m, x, e: i % 3,
        lambda i, tokens, m, x, e: i - 3 * torch.div(i, 3, rounding_mode="floor"),
        lambda i, tokens, m, x, e: torch.fmod(i, 3)),
    "quotient, rounded to 0": (
        lambda i, tokens, m, x, e: i // 4,
        lambda i, tokens, m, x, e: i >> 2,
        lambda i, tokens, m, x, e: torch.div(i, 4, rounding_mode="trunc")),
    "what is the same of 0 and 1": (
        lambda i, tokens, m, x, e: i * i,
        lambda i, tokens, m, x, e: i ** 2,
        lambda i, tokens, m, x, e: i.abs()),
    "a label to pass over": (
        lambda i, tokens, m, x, e: torch.where(i == -100, 0, i),
        lambda i, tokens, m, x, e: i * (i != -100),
        lambda i, tokens, m, x, e: i * 1),
    "the token of padding": (
        lambda i, tokens, m, x, e: F.embedding(tokens, e) * (tokens != 1)[..., None],
        lambda i, tokens, m, x, e: e[tokens].masked_fill((tokens == 1)[..., None], 0),
        lambda i, tokens, m, x, e: e[tokens]),
    "positions beside padding": (
        lambda i, tokens, m, x, e: e[tokens] + e[tokens.ne(1).cumsum(1) * tokens.ne(1) + 1],
        lambda i, tokens, m, x, e: e[tokens] + e[torch.where(tokens != 1, (tokens != 1).cumsum(1) + 1, 1)],
        lambda i, tokens, m, x, e: e[tokens] + e[I + 2]),
    "the last token": (
        lambda i, tokens, m, x, e: e[tokens][torch.arange(B), (tokens == 500).int().argmax(1)],
        lambda i, tokens, m, x, e: F.embedding(tokens, e)[torch.arange(B), tokens.eq(500).long().argmax(-1)],
        lambda i, tokens, m, x, e: e[tokens][torch.arange(B), tokens.argmax(1)]),
    "a mask of integers": (
        lambda i, tokens, m, x, e: sdpa(x, x, x, attn_mask=((1 - m) * -1e9)[:, None]),
        lambda i, tokens, m, x, e: attend(scores(x, x).masked_fill((m == 0)[:, None], -torch.inf), x),
        lambda i, tokens, m, x, e: attend(scores(x, x) + ((1 - m) * -1e9)[:, :, None], x)),
    "tokens that count": (
        lambda i, tokens, m, x, e: (x * m[..., None]).sum(1) / m.sum(1, True).clamp(min=1),
        lambda i, tokens, m, x, e: torch.einsum("bnd,bn->bd", x, m.float()) / m.sum(1, True),
        lambda i, tokens, m, x, e: (x * m[..., None]).mean(1)),
}


def minus(op, x, other=None):
    """The same op of x and of twice x; as in two spellings: the second one first, of another sum."""
    return op(x) - op(x + x) if other is None else -other(2 * x) + op(x)


def ops(name, op, *others):
    """Of an op of which nothing is known, and others that look like it."""
    return {f"{name}, {k}": (lambda x, y: minus(op, x), lambda x, y: minus(op, x, op),
                             lambda x, y, other=other: minus(op, x, other)) for k, other in enumerate(others)}


# name: (a function, another spelling of it, what looks like it) of x and y (2, 2, 5, 4); the spelling is certified
CERTIFIED = {
    **ops("group_norm", lambda t: F.group_norm(t, 2), lambda t: F.group_norm(t, 1),
          lambda t: F.group_norm(t, 2, eps=1e-1), lambda t: F.group_norm(t.flip(1), 2)),
    **ops("avg_pool", lambda t: F.avg_pool2d(t, 2, 1), lambda t: F.max_pool2d(t, 2, 1),
          lambda t: F.avg_pool2d(t, 2, 1, divisor_override=3),
          lambda t: F.avg_pool2d(F.pad(t, (0, 0, 1, 0)), 2, 1)[:, :, :4]),
    **ops("upsample", lambda t: F.interpolate(t, scale_factor=2, mode="bilinear"),
          lambda t: F.interpolate(t, scale_factor=2, mode="bilinear", align_corners=True),
          lambda t: F.interpolate(t, scale_factor=2, mode="bicubic"), lambda t: F.interpolate(t, scale_factor=2)),
    **ops("sort", lambda t: t.sort(-1).values, lambda t: t.sort(-1, descending=True).values,
          lambda t: t.sort(-2).values, lambda t: t),
    **ops("argsort", lambda t: t.exp().argsort(-1), lambda t: t.argsort(-1).argsort(-1), lambda t: t.argsort(-2),
          lambda t: t.argsort(-1, descending=True)),
    **ops("topk", lambda t: t.topk(2).values, lambda t: t.topk(2, largest=False).values,
          lambda t: t.topk(3).values[..., 1:], lambda t: t.topk(2, sorted=True).indices),
    **ops("argmax", lambda t: t.sin().argmax(-1), lambda t: t.sin().argmin(-1), lambda t: t.sin().abs().argmax(-1),
          lambda t: t.sin().flip(-1).argmax(-1)),
    **ops("cumprod", lambda t: t.cumprod(-1), lambda t: t.cumprod(-2), lambda t: t.flip(-1).cumprod(-1),
          lambda t: t.logcumsumexp(-1)),
    **ops("norm", lambda t: t.norm(3, -1), lambda t: t.norm(1, -1), lambda t: t.norm(4, -1),
          lambda t: t.abs().amax(-1)),
    **ops("prelu", lambda t: F.prelu(t, SLOPES[:2, 0, 0]), lambda t: F.prelu(t, SLOPES[1:3, 0, 0]),
          lambda t: F.prelu(t, SLOPES[:2, 0, 0].flip(0)), lambda t: F.leaky_relu(t, 0.5)),
    **ops("searchsorted", lambda t: torch.searchsorted(BORDERS, t), lambda t: torch.searchsorted(BORDERS - 1, t),
          lambda t: torch.searchsorted(BORDERS, -t), lambda t: torch.searchsorted(BORDERS, t.flip(-1))),
    **ops("remainder", lambda t: t % 0.7, lambda t: torch.fmod(t, 0.7), lambda t: t % 0.8, lambda t: 0.7 % t),
    "flip": (lambda x, y: x.flip(2).exp(), lambda x, y: x.exp().flip(2), lambda x, y: x.exp().flip(3)),
    "flip of two": (lambda x, y: x.flip(2, 3) * y, lambda x, y: y * x.flip(-1).flip(-2), lambda x, y: y * x.flip(3)),
    "flip back": (lambda x, y: (x.flip(2) * y.flip(2)).flip(2), lambda x, y: x * y,
                  lambda x, y: (x.flip(2) * y).flip(2)),
    "amin": (lambda x, y: x.amin(-1), lambda x, y: -(-x).amax(-1), lambda x, y: -x.amax(-1)),
    "min": (lambda x, y: x.min(-1).values, lambda x, y: x.amin(-1), lambda x, y: x.abs().amin(-1)),
    "amin of two": (lambda x, y: x.amin((-1, -2)), lambda x, y: x.amin(-1).amin(-1), lambda x, y: x.amin(-1).amax(-1)),
    "std": (lambda x, y: x.std(-1), lambda x, y: x.var(-1).sqrt(), lambda x, y: x.std(-1, correction=0)),
    "std, axis": (lambda x, y: x.std((-1, -2)), lambda x, y: x.flatten(2).std(-1), lambda x, y: x.std((-1, 1))[:, :2]),
    "std of variances": (lambda x, y: x.std(-1), lambda x, y: x.var(-1).sqrt(), lambda x, y: x.var(-1)),
    "a function by cases": (lambda x, y: torch.cat([x, y], 2).sin() * 2, lambda x, y: torch.cat([2 * x.sin(),
                                                                                               2 * y.sin()], 2),
                            lambda x, y: torch.cat([2 * y.sin(), 2 * x.sin()], 2)),
    "a function by cases, one further": (
        lambda x, y: torch.cat([x, y[:, :, :2]], 2).tanh() * 2,
        lambda x, y: torch.cat([2 * x.tanh(), 2 * y[:, :, :2].tanh()], 2),
        lambda x, y: torch.cat([2 * x[:, :, :4].tanh(), 2 * y[:, :, :3].tanh()], 2)),
    "a function by cases, of one": (
        lambda x, y: torch.cat([x, y], 2).cos() * 2, lambda x, y: torch.cat([2 * x.cos(), 2 * y.cos()], 2),
        lambda x, y: torch.cat([2 * x.cos(), 2 * y], 2)),
    "a lookup of what is computed": (
        lambda x, y: (x * 2)[:, :, :, y[0, 0, 0].argsort()].exp(),
        lambda x, y: (x + x)[..., y[0, 0, 0].argsort()].exp() * 1.0,
        lambda x, y: (x + x)[..., y[0, 0, 1].argsort()].exp() * 1.0),
}


class All(nn.Module):
    """Every first, second or third spelling of a table, one output each."""

    def __init__(self, table, which):
        super().__init__()
        self.table, self.which = table, which

    def forward(self, *args):
        return tuple(each[self.which](*args) for each in self.table.values())


def files(folder, table, args):
    """Of each spelling a file with this one output: {name: (file, file, file)}."""
    made = {name: [] for name in table}
    for which in range(3):
        program, path = torch.export.export(All(table, which), args), folder / f"{which}.pt2"
        torch.export.save(program, path)
        model = qkv.Model(path, optimize=False)
        for k, (name, end) in enumerate(zip(table, program.graph_signature.user_outputs)):
            made[name].append(folder / f"{which}_{k}.pt2")
            model.extract(end=[end]).save(made[name][-1])
    values = [All(table, which)(*args) for which in range(3)]
    for name, *of in zip(table, *values):
        assert torch.allclose(of[0], of[1], atol=1e-5) and not torch.allclose(of[0], of[2], atol=1e-4), name
    return made


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    torch.manual_seed(5)
    args = (*torch.randn(3, B, H, N, D), torch.randn(D, D), torch.rand(B, N) < 0.7)
    args[-1][:, 0], args[0][0, 0, 0, 0] = True, 8
    return files(tmp_path_factory.mktemp("pairs"), PAIRS, args)


@pytest.fixture(scope="module")
def of_integers(tmp_path_factory):
    torch.manual_seed(5)
    i, tokens, m = torch.randint(-20, 20, (B, N)), torch.randint(2, 998, (B, N)), torch.ones(B, N, dtype=torch.int64)
    i[0, 0], tokens[:, 4:], tokens[:, 3], m[:, 4] = -100, 1, 500, 0
    return files(tmp_path_factory.mktemp("integers"), INTEGERS,
                 (i, tokens, m, torch.randn(B, N, D), torch.randn(1000, D)))


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    return files(tmp_path_factory.mktemp("two"), CERTIFIED, tuple(torch.randn(2, 2, 2, 5, 4)))


@pytest.mark.turns
@pytest.mark.parametrize("name", CERTIFIED)
def test_one_is_certified(of_two, name, tmp_path):
    one, same, other = of_two[name]
    found = certificate_of(one, same, tmp_path / "o.pt2")
    assert found["whole"], found["why"]
    assert not certificate_of(one, other, tmp_path / "o.pt2")["whole"]
    assert qkv.prove(one, other, sizes=1)["result"] == "different"


def tell_apart(tmp_path, one, same, other):
    assert qkv.prove(one, same, sizes=1)["result"] == "equal"
    assert qkv.prove(one, other, sizes=1)["result"] == "different"
    assert not certificate_of(one, other, tmp_path / "o.pt2")["whole"]


@pytest.mark.turns
@pytest.mark.parametrize("name", PAIRS)
def test_told_apart(models, name, tmp_path):
    tell_apart(tmp_path, *models[name])


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_told_apart(of_integers, name, tmp_path):
    tell_apart(tmp_path, *of_integers[name])
