"""Pairs that differ somewhere: no certificate holds of any, in either order. Each is what a checker would take for one
that leaves out a condition; the traps of test_certify.py are such pairs, too (tools/checker_mutants.py)."""
import copy
import json
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
import qkv  # noqa: E402
from torch import nn  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_certify import certificate_of, checked, less as less_by, read_as_onnx  # noqa: E402

F, INF, AUTO = nn.functional, float("inf"), torch.export.Dim.AUTO


def rand(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def number(n, least, most):
    k = n.item()
    torch._check(k >= least)
    torch._check(k <= most)
    return k


T, U = torch.tensor([[[1, 0, 0, 1, 1]]]) > 0, torch.tensor([[[0, 1, 0, 1, 0]]]) > 0
SCORES, INTS = (rand(1, 5, 5), T, U), torch.tensor([1, 2, -1, -2, 0])
BYTES, HIDDEN = (torch.tensor([1, 200, 255, 0], dtype=torch.uint8),), torch.tensor([0.0, -INF, 0.0, -INF])


def hides(s, t, by):
    return (s + (1 - t.float()) * by).softmax(-1)


def less(s):
    return less_by(s, -1)


def halves(n):
    return torch.arange(3)[:, None].expand(3, 2).reshape(6)


def signed_parts(x, y, part):
    return y, torch.copysign(x[0][:, None], y[part].view(3, 1))


class Holds(nn.Module):
    """What it adds or multiplies is a buffer."""

    def __init__(self, name, value, f=torch.add):
        super().__init__()
        self.register_buffer(name, value)
        self.name, self.f = name, f

    def forward(self, x):
        return self.f(x, getattr(self, self.name))


class Learns(nn.Module):
    """The same of a parameter."""

    def __init__(self, value, f):
        super().__init__()
        self.p, self.f = nn.Parameter(value), f

    def forward(self, x):
        return self.f(x, self.p)


class Writes(nn.Module):
    """Two buffers of zeros that are written."""

    def __init__(self, f):
        super().__init__()
        self.register_buffer("a", torch.zeros(3))
        self.register_buffer("b", torch.zeros(3))
        self.f = f

    def forward(self, x):
        self.f(self.a, self.b, x)
        return self.a - 3 * self.b


def swapped(x):
    y = x * 1.0
    y[0], y[1] = y[1].clone(), y[0].clone()
    return y


def copied(x):
    y = x * 1.0
    y[0] = y[1]
    y[1] = y[0]
    return y


# name: (a function, one that differs, arguments of both)
PAIRS = {
    # fills that something lifts again: a key is hidden only where both t and u are 0
    "two masks hide": (lambda s, t, u: hides(s, t, -1e4 * (1 - u.float())), lambda s, t, u: hides(s, t, -1e4), SCORES),
    "two masks hide, by the other": (lambda s, t, u: hides(s, t, -1e4 * (1 - u.float())),
                                     lambda s, t, u: s.masked_fill(~u, -INF).softmax(-1), SCORES),
    "a fill that a number lifts": (lambda s, t, u: (s.masked_fill(~t, -1e4) + 1e4).exp(),
                                   lambda s, t, u: (s.masked_fill(~t, -INF) + 1e4).exp(), SCORES),
    "a fill that a root lifts": (lambda s, t, u: (s * t + (1.0 - t.float()) * (200000000 ** 0.5 - 1e4)).exp(),
                                 lambda s, t, u: s.masked_fill(~t, -INF).exp(), SCORES),
    "a fill that is scaled": (lambda s, t, u: (s.masked_fill(t, -1e4) * 1e-4).softmax(-1),
                              lambda s, t, u: (s * 1e-4).masked_fill(t, -INF).softmax(-1), SCORES),
    "a fill that is turned": (lambda s, t, u: (-s.masked_fill(t, -1e9)).softmax(-1),
                              lambda s, t, u: (-s).masked_fill(t, -1e9).softmax(-1), SCORES),
    "a fill that is filled": (lambda s, t, u: s.masked_fill(t, -1e9).masked_fill(u, 1.0).softmax(-1),
                              lambda s, t, u: s.masked_fill(u, 1.0).masked_fill(t, -1e9).softmax(-1), SCORES),
    "either mask": (lambda s, t, u: s.masked_fill(t & u, -1e9).softmax(-1),
                    lambda s, t, u: s.masked_fill(t | u, -1e9).softmax(-1), SCORES),
    # what NaN is
    "infinities that are subtracted": (lambda s, t, u: (s.masked_fill(t, -INF) - s.masked_fill(t, -INF)).isnan(),
                                       lambda s, t, u: (s - s).isnan(), SCORES),
    "an infinity that is turned over": (lambda s, t, u: s.where(t, -torch.full((5,), -INF)).exp().clamp(max=3.0),
                                        lambda s, t, u: s.masked_fill(~t, -INF).exp().clamp(max=3.0), SCORES),
    "which infinity": (lambda x: torch.where(x == -torch.full((4,), -INF), 5.0, x),
                       lambda x: torch.where(x == torch.full((4,), -INF), 5.0, x),
                       (torch.tensor([1.0, INF, -INF, 0]),)),
    "a fill that an infinity lifts": (
        lambda s, t, u: (s * t + (1.0 - t.float()) * -1e4 + torch.where(t, 0.0, INF)).exp().clamp(max=3.0),
        lambda s, t, u: s.masked_fill(~t, -INF).exp().clamp(max=3.0), SCORES),
    "a floor that is infinite": (lambda x: x.clamp(min=INF).exp().clamp(max=3.0), lambda x: x.exp().clamp(max=3.0),
                                 (rand(4),)),
    "a number that is infinite": (lambda x: torch.where(x.abs() < INF, x, 5.0), lambda x: x * 1.0,
                                  (torch.tensor([1.0, INF]),)),
    "an infinity that is added": (lambda x: (x + INF - INF).nan_to_num(5.0), lambda x: x * 1.0, (rand(4),)),
    "which numbers are large": (lambda x: x.nan_to_num(), lambda x: x.nan_to_num(posinf=1.0),
                                (torch.tensor([1.0, INF]),)),
    "which norm": (lambda x: torch.linalg.vector_norm(x, 2, -1), lambda x: torch.linalg.vector_norm(x, 1, -1),
                   (rand(4, 5),)),
    "a norm of infinite order": (lambda x: torch.linalg.vector_norm(x, INF, -1),
                                 lambda x: torch.linalg.vector_norm(x, 2, -1), (rand(4, 5),)),
    "a norm of no order": (lambda x: torch.linalg.vector_norm(x, 0, -1), lambda x: torch.linalg.vector_norm(x, 1, -1),
                           (rand(4, 5),)),
    "an infinity times zero": (lambda s, t, u: (s.masked_fill(t, -INF) * 0.0).nan_to_num(5.0),
                               lambda s, t, u: s * 0.0, SCORES),
    "an infinity times a truth value": (lambda s, t, u: (t * s.masked_fill(u, -INF)).nan_to_num(5.0),
                                        lambda s, t, u: s.masked_fill(u, -INF).where(t, 0.0).nan_to_num(5.0), SCORES),
    "infinities of two signs": (lambda x, t: ((x - x.tanh()) * torch.where(t, 0.0, -INF)).isnan(),
                                lambda x, t: (x * torch.where(t, 0.0, -INF)
                                              - x.tanh() * torch.where(t, 0.0, -INF)).isnan(),
                                (torch.tensor([1.0, 2.0]), torch.tensor([True, False]))),
    "rows that nothing masks": (lambda x: torch.where((x > 0).any(1, True), x, 5.0), lambda x: x * 1.0,
                                (torch.tensor([[1.0, -1.0], [-1.0, -2.0]]),)),
    "rows of another mask": (lambda s, t, u: torch.where(u.any(-1, True), s.masked_fill(t, -INF).softmax(-1), 0.0),
                             lambda s, t, u: s.masked_fill(t, -INF).softmax(-1), (*SCORES[:2], U & ~U)),
    "the largest number of a dtype": (lambda x: x.half().nan_to_num(), lambda x: x.nan_to_num().half(), (-HIDDEN,)),
    "the bytes of a dtype": (lambda x: x.half().view(torch.int16), lambda x: x.bfloat16().view(torch.int16),
                             (rand(4),)),
    "infinities of a buffer": (Holds("m", HIDDEN, lambda x, m: x + m - m), Holds("m", HIDDEN, lambda x, m: x * 1.0),
                               (rand(4),)),
    "infinities of a parameter": (Learns(HIDDEN, lambda x, m: x + m - m), Learns(HIDDEN, lambda x, m: x * 1.0),
                                  (rand(4),)),
    "infinities that are chosen": (Holds("m", HIDDEN, lambda x, m: (m - torch.where(x > 0, m, 0.0)).exp()),
                                   Holds("m", HIDDEN, lambda x, m: torch.where(x > 0, 0.0, m).exp()), (rand(4).abs(),)),
    "infinities that are chosen first": (
        Holds("m", HIDDEN, lambda x, m: (-torch.where(x > 0, m, 0.0) + m).exp()),
        Holds("m", HIDDEN, lambda x, m: torch.where(x > 0, 0.0, m).exp()), (rand(4).abs(),)),
    "a number that is not itself": (lambda x: torch.where(x != x, 0.0, x), lambda x: x * 1.0,
                                    (torch.tensor([1.0, float("nan")]),)),
    "a tenth of float32 in double": (lambda x: (x.double() * 0.1 - x.double() / 10) * 1e9,
                                     lambda x: (x.double() * torch.tensor(0.1).double() - x.double() / 10) * 1e9,
                                     (rand(4),)),
    "the order of infinities": (Holds("m", HIDDEN, lambda x, m: (m + x <= m + 1.0) * 1.0),
                                Holds("m", HIDDEN, lambda x, m: (m + x - (m + 1.0) <= 0) * 1.0), (rand(4),)),
    "a sum of infinities": (Holds("m", HIDDEN, lambda x, m: torch.where(m.sum(-1) == -INF, 5.0, x)),
                            Holds("m", HIDDEN, lambda x, m: x * 1.0), (rand(4),)),
    "the largest of infinities": (lambda s, t: less(s.masked_fill(t, -INF)) + s.masked_fill(t, -INF).amax(-1, True),
                                  lambda s, t: s.masked_fill(t, -INF) * 1.0, (rand(1, 5, 5), T | True)),
    "a convolution of infinities": (
        Holds("w", torch.zeros(1, 1, 1), lambda x, w: F.conv1d(x.masked_fill(x > 0, -INF), w)),
        Holds("w", torch.zeros(1, 1, 1), lambda x, w: x * 0.0), (rand(1, 1, 5),)),
    "a product of infinities": (
        Holds("w", torch.ones(3, 5), lambda x, w: F.linear(x.masked_fill(x > 0, -INF), w) * 0.0 + x[:, :3]),
        Holds("w", torch.ones(3, 5), lambda x, w: x[:, :3] * 1.0), (rand(4, 5),)),
    "the largest of few that are not hidden": (lambda s, t: (few := s.masked_fill(t, -INF).topk(3).values, few - few),
                                               lambda s, t: (s.masked_fill(t, -INF).topk(3).values, s[..., :3] * 0.0),
                                               SCORES[:2]),
    "a floor that a number lifts": (lambda s, t: (s.masked_fill(t, -INF).clamp(min=-1e4) + 1e4).exp().clamp(max=3.0),
                                    lambda s, t: (s.masked_fill(t, -INF) + 1e4).exp().clamp(max=3.0), SCORES[:2]),
    "a sum that is less than a floor": (lambda x: F.normalize((x - 40).exp(), 1, -1), lambda x: x.softmax(-1),
                                        (rand(4),)),
    "a sum that is less than a clamp": (lambda x: less(x).exp() / less(x).exp().sum(-1, True).clamp(min=1.5),
                                        lambda x: x.softmax(-1), (torch.tensor([9.0, 1.0]),)),
    "a sum less the largest of another": (
        lambda x: (x - 2 * x.amax(-1, True)).exp() / (x - 2 * x.amax(-1, True)).exp().sum(-1, True).clamp(min=1.0),
        lambda x: x.softmax(-1), (rand(4).abs(),)),
    "a sum less the least": (lambda x: (x - x.amin(-1, True)).exp() / (x - x.amin(-1, True)).exp().sum(-1, True).clamp(
        max=1.0), lambda x: x.softmax(-1), (rand(4),)),
    "rows that show all": (lambda s, t: torch.where(t.any(-1, True), s.masked_fill(t, -INF).softmax(-1), 5.0),
                           lambda s, t: s.masked_fill(t, -INF).softmax(-1), (rand(1, 5, 5), T & False)),
    "rows that hide none": (lambda s, t: torch.where(t.all(-1, True), 5.0, s.masked_fill(~t, -INF).softmax(-1)),
                            lambda s, t: s.masked_fill(~t, -INF).softmax(-1), (rand(1, 5, 5), T | True)),
    "rows that are summed alone": (
        lambda s, t: torch.where(t.any(-1), s.masked_fill(~t, -INF).exp().sum(-1), 5.0),
        lambda s, t: s.masked_fill(~t, -INF).exp().sum(-1), (rand(1, 5, 5), T & False)),
    "the sign of zero": (lambda x: torch.copysign(x, 0.0), lambda x: torch.copysign(x, -0.0), (rand(4),)),
    "the sign of a buffer's zero": (Holds("y", torch.tensor([0.0]), torch.copysign),
                                    Holds("z", torch.tensor([-0.0]), torch.copysign), (rand(4),)),
    "the sign of a product's zero": (lambda x: torch.copysign(x, x.abs() * -0.0),
                                     lambda x: torch.copysign(x, x.abs() * 0), (rand(4),)),
    "the sign of what is equal": (lambda x: torch.copysign(x, -x.relu()),
                                  lambda x: torch.copysign(x, torch.where(x >= 0, -x, 0.0)), (rand(4),)),
    "the angle of a zero that is moved": (lambda x: torch.atan2((-x.relu())[:, None].transpose(0, 1), x),
                                          lambda x: torch.atan2(torch.where(x >= 0, -x, 0.0)[None], x), (rand(4),)),
    "the sign of a bias of zeros": (Holds("b", torch.zeros(3), lambda x, b: torch.copysign(x, b[None].mT.mT[0])),
                                    Holds("b", -torch.zeros(3), lambda x, b: torch.copysign(x, b)), (rand(2, 3),)),
    "the sign of a buffer's zero that is moved": (
        Holds("y", torch.tensor([-0.0]), lambda x, y: torch.copysign(x.view(2, 2), y.view(1, 1))),
        Holds("z", torch.tensor([0.0]), lambda x, z: torch.copysign(x.view(2, 2), z.view(1, 1))), (rand(4),)),
    "the sign of what is equal and moved": (lambda x: signed_parts(x, -x.relu(), 0),
                                            lambda x: signed_parts(x, torch.where(x >= 0, -x, 0.0), slice(1)),
                                            (rand(2, 3),)),
    "the sign of the largest of what is equal": (
        lambda x: torch.copysign(x, (-x.relu())[:, None].amax(1)),
        lambda x: torch.copysign(x, torch.where(x >= 0, -x, 0.0)[:, None].amax(1, True)[:, 0]), (rand(4),)),
    "the angle of zero": (lambda x: torch.atan2(-x.relu(), x),
                          lambda x: torch.atan2(torch.where(x >= 0, -x, 0.0), x), (rand(4),)),
    # integers
    "a byte and a larger number": (lambda x: (x < 300) * 1.0, lambda x: (x.int() < 300) * 1.0, BYTES),
    "a signed byte and a larger number": (lambda x: (x < 200) * 1.0, lambda x: (x.int() < 200) * 1.0,
                                          (torch.tensor([1, -44], dtype=torch.int8),)),
    "bytes over a larger number": (lambda x: x // 300, lambda x: (x.int() // 300).to(torch.uint8), BYTES),
    "the rest of bytes": (lambda x: x % 300, lambda x: (x.int() % 300).to(torch.uint8), BYTES),
    "bytes that are added": (lambda x: (x + 200) * 1.0, lambda x: x * 1.0 + 200, BYTES),
    "bytes that are negated": (lambda x: -x * 1.0, lambda x: -(x * 1.0), BYTES),
    "bytes that are shifted": (lambda x: (x << 4) * 1.0, lambda x: (x.int() << 4) * 1.0, BYTES),
    "products of bytes": (lambda x: x[None] @ x[:, None] * 1.0, lambda x: (x * 1.0)[None] @ (x * 1.0)[:, None], BYTES),
    "powers of integers": (lambda i: i.pow(torch.tensor(-1)) * 1.0, lambda i: 1.0 / i, (INTS[:4],)),
    "powers of two that wrap": (lambda x: x + 2 ** torch.arange(60, 64), lambda x: x + 2.0 ** torch.arange(60, 64),
                                (rand(4),)),
    "a power that is nearly another": (lambda x: (x * 1.4427).exp2(), lambda x: x.exp(), (rand(4) * 9,)),
    "unknown powers of integers": (lambda i: i.pow(i) * 1.0, lambda i: i.double().pow(i.double()).float(), (INTS[:4],)),
    "integers that wrap": (lambda i: i.to(torch.uint8) * 1.0, lambda i: i * 1.0, (INTS,)),
    "bytes that wrap": (lambda i: (i * 100).to(torch.int8) * 1.0, lambda i: (i * 100) * 1.0, (INTS,)),
    "integers that no double is": (lambda i: i + torch.full((5,), 2 ** 53 + 1),
                                   Holds("full", torch.full((5,), 2 ** 53)), (INTS,)),
    "a triangle of integers that no double is": (Holds("w", torch.ones(5, 5).tril().long() * 2 ** 53 + 1),
                                                 Holds("w", torch.ones(5, 5).tril().long() * 2 ** 53), (INTS,)),
    "a negative divisor": (lambda x, n: x * torch.div(torch.arange(6), 2 * number(n, -9, -1), rounding_mode="floor"),
                           lambda x, n: x * torch.div(halves(n), number(n, -9, -1), rounding_mode="floor"),
                           (rand(6), torch.tensor(-2))),
    "a quotient of negative numbers": (lambda x: x + -torch.arange(2) // 2, lambda x: x * 1.0, (rand(2),)),
    "the sign of a difference of quotients": (lambda x: x * (1 - torch.arange(6) // 2 >= 0), lambda x: x * 1.0,
                                              (rand(6),)),
    "the sign of a quotient": (
        lambda x, n: x * (torch.div(torch.arange(6), number(n, -9, -1), rounding_mode="floor") >= 0),
        lambda x, n: x * (number(n, -9, -1) * torch.arange(6) <= 0), (rand(6), torch.tensor(-2))),
    "the sign of a product": (lambda x, n: x * (number(n, -9, 9) * (torch.arange(6) - 5) >= 0),
                              lambda x, n: x * (number(n, -9, 9) * 0 * torch.arange(6) >= 0),
                              (rand(6), torch.tensor(2))),
    "a remainder by a negative number": (
        lambda x, n: x * torch.arange(6).remainder(2 * number(n, -9, -1)),
        lambda x, n: x * (2 * halves(n).remainder(number(n, -9, -1)) + torch.arange(6) - 2 * halves(n)),
        (rand(6), torch.tensor(-2))),
    "rounded to zero": (lambda i: torch.div(i, 2, rounding_mode="trunc"), lambda i: torch.div(
        i, 2, rounding_mode="floor"), (INTS,)),
    "rounded twice": (lambda x: (3 * x).trunc().floor(), lambda x: (3 * x).floor(), (-rand(4).abs(),)),
    "remainders": (lambda i: (torch.arange(5) - 2).fmod(3) * i, lambda i: (torch.arange(5) - 2).remainder(3) * i,
                   (INTS,)),
    "truth values that are added": (lambda s, t, u: (t + u) * 1.0, lambda s, t, u: t * 1.0 + u * 1.0, SCORES),
    "the dtype of a sum": (lambda x: x.sum(-1, dtype=torch.int64) * 1.0, lambda x: x.sum(-1), (rand(3, 4),)),
    # roots and logarithms of what may be negative
    "the root of a square": (lambda x: (x * x).sqrt(), lambda x: x * 1.0, (rand(4),)),
    "half of a logarithm": (lambda x: (0.5 * (x * x).log()).exp(), lambda x: x * 1.0, (rand(4),)),
    "a correction that is too large": (lambda x: x.var(-1, correction=7),
                                       lambda x: -(x - x.mean(-1, True)).square().sum(-1) / 3, (rand(3, 4),)),
    # no element at all
    "nothing is anything": (lambda x: x[x > 9].sum() + torch.ones(x[x > 9].shape[0], dtype=torch.bool).any(0),
                            lambda x: x[x > 9].sum() + 1, (rand(4),)),
    # places
    "padding that cuts": (lambda x: F.pad(x, (-1, 1)), lambda x: torch.cat([x[:, 1:], x[:, :1]], 1), (rand(3, 4),)),
    "rows that are swapped": (copied, swapped, (rand(3, 4),)),
    "rows that are written twice": (lambda x: x.index_put((torch.tensor([0, 0]),), x[1:3]),
                                    lambda x: x.index_put((torch.tensor([0, 0]),), x[1:3].flip(0)), (rand(3, 4),)),
    "a row that is added": (lambda x: x.index_put((torch.tensor([0]),), x[0], accumulate=True),
                            lambda x: x.index_put((torch.tensor([0]),), x[0]), (rand(3, 4),)),
    "rows from the end": (lambda w, i: w[i], lambda w, i: w[i.abs()], (rand(6, 3), INTS)),
    "rows by numbers from the end": (lambda w: w[torch.arange(3) - 3], lambda w: w[:3] * 1.0, (rand(6, 3),)),
    "a row by a number from the end": (
        lambda x, y, n: x.select(1, number(n, -4, -1)) * 2,
        lambda x, y, n: 2 * torch.cat([x, y], 1).select(1, number(n, -4, -1)),
        (rand(3, 4), rand(4, 3).T.contiguous(), torch.tensor(-2))),
    "a part by a number from the end": (
        lambda x, y, n: x.narrow(1, number(n, -4, -1), 1) * 2,
        lambda x, y, n: 2 * torch.cat([x, y], 1).narrow(1, number(n, -4, -1), 1),
        (rand(3, 4), rand(4, 3).T.contiguous(), torch.tensor(-2))),
    "axes of lookups": (lambda w, i: w.gather(0, i), lambda w, i: w.gather(1, i), (rand(3, 3), torch.eye(3).long())),
    "the last of a broadcast": (lambda x, y: x + y, lambda x, y: x + y[:, None], (rand(4, 4), rand(4))),
    "causal from another corner": (
        lambda x, y: F.scaled_dot_product_attention(x[:, :, :3], y, y, is_causal=True),
        lambda x, y: F.scaled_dot_product_attention(x[:, :, :3], y, y, torch.ones(3, 5).bool().tril(2)),
        (rand(1, 2, 5, 4), rand(2, 1, 5, 4).transpose(0, 1))),
    "groups of heads": (
        lambda x, y: F.scaled_dot_product_attention(x, y, y, enable_gqa=True),
        lambda x, y: F.scaled_dot_product_attention(x, y.repeat(1, 2, 1, 1), y.repeat(1, 2, 1, 1)),
        (rand(1, 4, 5, 4), rand(1, 2, 5, 4))),
    # ops without lemmas: the axis, a number, a word and the operands count
    "an axis of what has no lemma": (lambda x: x.sort(0)[0], lambda x: x.sort(1)[0], (rand(4, 4),)),
    "a number of what has no lemma": (lambda x: F.group_norm(x, 2), lambda x: F.group_norm(x, 1), (rand(2, 4, 3),)),
    "a word of what has no lemma": (
        lambda x: F.grid_sample(x, x.tanh().reshape(1, 4, 2, 2), "bilinear", "zeros", False),
        lambda x: F.grid_sample(x, x.tanh().reshape(1, 4, 2, 2), "nearest", "zeros", False), (rand(1, 1, 4, 4),)),
    "a result of what has no lemma": (lambda x: x.topk(2)[1].float(), lambda x: x.topk(2)[0].floor(), (rand(3, 4),)),
    "largest and least": (lambda x, y: torch.minimum(x, y), lambda x, y: torch.maximum(x, y), (rand(4), rand(2, 4))),
    "from the other side": (lambda x: F.hardtanh(x) + x.atan2(x.exp()), lambda x: F.hardtanh(x) + x.exp().atan2(x),
                            (rand(4),)),
    # files, not functions
    "numbers that are given": (lambda x: (x.relu(), 3), lambda x: (x.relu(), 4), (rand(3),)),
    "the order of results": (lambda x: (x.exp(), x * 2), lambda x: (x * 2, x.exp()), (rand(3),)),
    "what is written": (Writes(lambda a, b, x: (a.add_(x), b.add_(2 * x))),
                        Writes(lambda a, b, x: (b.add_(x), a.add_(2 * x))), (rand(3),)),
    "zeros that are written": (Holds("b", torch.zeros(3), lambda x, b: (x + b, b.add_(1.0))[0]),
                               Holds("b", torch.zeros(3), lambda x, b: (x * 1.0, b.add_(1.0))[0]), (rand(3),)),
    "numbers of another weight": (Holds("a", torch.zeros(1), lambda x, a: x * 1.0),
                                  Holds("b", torch.tensor([1.0, 2.0, 1.0]), lambda x, b: x * b), (rand(3),)),
    "integers of another weight": (
        Holds("a", torch.zeros(1), lambda x, a: x + 2 ** 53),
        Holds("b", torch.tensor([2 ** 53, 2 ** 53 + 1]), lambda x, b: x + b), (torch.tensor([1, 2]),)),
    "a triangle that is written": (
        Holds("b", torch.ones(4, 4).tril(), lambda x, b: (x.masked_fill(b == 0, -INF).softmax(-1), b.fill_(1.0))[0]),
        Holds("b", torch.ones(4, 4).tril(), lambda x, b: (
            x.masked_fill(torch.ones(4, 4).tril() == 0, -INF).softmax(-1), b.fill_(1.0))[0]), (rand(4, 4),)),
    "the order of writing": (Writes(lambda a, b, x: (a.add_(x), b.add_(2 * x))),
                             Writes(lambda a, b, x: (b.add_(2 * a), a.add_(x))), (rand(3),)),
}
SIDES = ({0: AUTO, 1: AUTO, 2: AUTO},)
VARIED = {"two numbers": (lambda x, a, b: x * a + b, lambda x, a, b: x * b + a, (rand(3), 2, 3), (None, AUTO, AUTO)),
          "a size in a fill": (
              lambda s, t: (s * t + (1.0 - t.float()) * (1e4 * s.shape[0] - 1e4)).softmax(-1),
              lambda s, t: s.masked_fill(~t, -INF).softmax(-1), (rand(3, 5, 5), T), ({0: AUTO}, None)),
          "a mean over another size": (lambda x: x.sum(1) / x.shape[0], lambda x: x.mean(1), (rand(5, 6),),
                                       ({0: AUTO, 1: AUTO},)),
          "half of an odd size": (lambda x: x[:, :x.shape[1] // 2].sum(1),
                                  lambda x: x[:, :(x.shape[1] + 1) // 2].sum(1), (rand(5, 7),), ({0: AUTO, 1: AUTO},)),
          "which size": (lambda x: x * x.shape[0], lambda x: x * x.shape[1], (rand(5, 7),), ({0: AUTO, 1: AUTO},)),
          "the root of which size": (lambda x: x * x.shape[0] ** -0.5, lambda x: x * x.shape[1] ** -0.5,
                                     (rand(5, 7),), ({0: AUTO, 1: AUTO},)),
          "a root of a size": (lambda x: x * x.shape[0] ** -0.5, lambda x: x * x.shape[0] ** 0.5, (rand(5, 7),),
                               ({0: AUTO, 1: AUTO},)),
          "a root and a quotient": (lambda x: x / x.shape[0] ** 0.5, lambda x: x / x.shape[0], (rand(5, 7),),
                                    ({0: AUTO, 1: AUTO},)),
          # what a condition says of a product or quotient of sizes, and not of each
          "a side of a table": (lambda x: (x.flatten(1) + torch.arange(16)) * x.shape[1],
                                lambda x: (x.flatten(1) + torch.arange(16)) * 4, (rand(2, 2, 8),), SIDES),
          "which side of a table": (lambda x: (x.flatten(1) + torch.arange(16)) * x.shape[1],
                                    lambda x: (x.flatten(1) + torch.arange(16)) * x.shape[2], (rand(2, 2, 8),), SIDES),
          "the order of a table": (lambda x: x.flatten(1) + torch.arange(16),
                                   lambda x: x.transpose(1, 2).flatten(1) + torch.arange(16), (rand(2, 4, 4),), SIDES),
          "what a quarter of is 4": (lambda x: (F.avg_pool1d(x, 4) + torch.arange(4)) * x.shape[2],
                                     lambda x: (F.avg_pool1d(x, 4) + torch.arange(4)) * 16, (rand(1, 1, 18),),
                                     ({2: AUTO},)),
          "half of what a quarter of is 4": (lambda x: (F.avg_pool1d(x, 4) + torch.arange(4)) * (x.shape[2] // 2),
                                             lambda x: (F.avg_pool1d(x, 4) + torch.arange(4)) * 8, (rand(1, 1, 18),),
                                             ({2: AUTO},)),
          "windows of 4 and 4 windows": (lambda x: x.view(x.shape[0] // 4, 4, 3).flip(1).reshape(-1, 3),
                                         lambda x: x.view(4, x.shape[0] // 4, 3).flip(0).reshape(-1, 3), (rand(8, 3),),
                                         ({0: AUTO},))}


class Any(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def exported(f, args, path, sizes=None):
    module = f if isinstance(f, nn.Module) else Any(f)
    torch.export.save(torch.export.export(module.eval(), args, dynamic_shapes=sizes and (sizes,)), path)
    return path


def leaves(f, args):
    """Of two runs, as the first one may write what the second reads."""
    f = copy.deepcopy(f)
    given = [f(*(a.clone() if torch.is_tensor(a) else a for a in args)) for _ in range(2)]
    return [torch.as_tensor(v) for v in torch.utils._pytree.tree_leaves(given)]


def pairs(folder):
    """(name, file, file): exported when they are asked for."""
    for name, (f, g, args, *sizes) in (PAIRS | VARIED).items():
        a, b = (leaves(h, args) for h in (f, g))
        assert any(x.shape != y.shape or not (torch.allclose if x.is_floating_point() else torch.equal)(x, y)
                   for x, y in zip(a, b)), name
        yield name, *(exported(h, args, folder / f"{i}.pt2", *sizes) for i, h in enumerate((f, g)))


def test_no_certificate_holds(tmp_path):
    held = [(name, i) for name, *paths in pairs(tmp_path) for i in range(2)
            if certificate_of(paths[i], paths[1 - i], tmp_path / "o.pt2")["whole"]]
    assert not held


# name: (a function, the same where it has no error, an argument with which only the first has none, does it hold of the
# second as source?)
LESS = {
    "a row from the end": (lambda w, i: w[i], lambda w, i: F.embedding(i, w), torch.tensor([-1, 0]), True),
    "a selected row from the end": (lambda w, i: w[i], lambda w, i: w.index_select(0, i), torch.tensor([-1, 0]), True),
    "a gathered row from the end": (lambda w, i: w[i], lambda w, i: w.gather(0, i[:, None].expand(-1, 3)),
                                    torch.tensor([-1, 0]), True),
    "a row from the end, decomposed": (lambda w, i: F.embedding(torch.where(i < 0, i + 6, i), w),
                                   lambda w, i: F.embedding(i, w), torch.tensor([-1, 0]), True),
    "a row from the end twice": (lambda w, i: w[torch.where(i < 0, i + 6, i)],
                                 lambda w, i: F.embedding(torch.where(i < 0, i + 6, i), w), torch.tensor([-7, 0]),
                                 True),
    "the only row": (lambda w, i: w[:1].expand(2, 3) + i[:, None] * 0,
                     lambda w, i: F.embedding(i, w[:1]) + i[:, None] * 0, torch.tensor([-1, 1]), True),
    "a row that nothing reads": (lambda w, i: w[:2] + i[:, None] * 0, lambda w, i: w[:2] + w[i] * 0,
                                 torch.tensor([-7, 9]), True),
    "rows that are cut off": (lambda w, i: w[i[:1]] * 2.0, lambda w, i: w[i][:1] * 2.0, torch.tensor([0, 9]), False),
    "rows that are cut off beside others": (lambda w, i: w[:2] * 2.0, lambda w, i: torch.cat([w[:2], w[i]])[:2] * 2.0,
                                            torch.tensor([-7, 9]), True),
    "a row that is written and cut off": (
        lambda w, i: w[:2] * 2.0,
        lambda w, i: torch.cat([w[:2], w.index_put((i[0],), torch.tensor(5.0))])[:2] * 2.0, torch.tensor([9, 0]), True),
    "a row that is written": (lambda w, i: torch.where((torch.arange(6) == i[0])[:, None], 5.0, w),
                              lambda w, i: w.index_put((i[0],), torch.tensor(5.0)), torch.tensor([9, 0]), False),
}


@pytest.mark.parametrize("name", LESS)
def test_a_result_has_no_error_of_its_own(name, tmp_path):
    f, g, at, holds = LESS[name]
    w, fine = rand(6, 3), torch.tensor([0, 0])
    assert torch.equal(f(w, fine), g(w, fine)) and f(w, at).shape == f(w, fine).shape
    with pytest.raises((IndexError, RuntimeError)):
        g(w, at)
    paths = [exported(h, (w, fine), tmp_path / f"{i}.pt2") for i, h in enumerate((f, g))]
    assert not certificate_of(*paths, tmp_path / "o.pt2")["whole"]
    assert certificate_of(*paths[::-1], tmp_path / "o.pt2")["whole"] == holds


# indices that are numbers of a buffer, looked up in n rows of at least 3 where nothing reads what is found
INSIDE = {
    "of three rows": (torch.arange(3), lambda w, at: w[at], True),
    "of three rows from the front": (torch.arange(3), lambda w, at: F.embedding(at, w), True),
    "of four rows": (torch.arange(4), lambda w, at: w[at], False),
    "of four rows from the front": (torch.arange(4), lambda w, at: F.embedding(at, w), False),
    "twice the number": (torch.arange(3), lambda w, at: w[2 * at], False),
    "the number and one": (torch.arange(3), lambda w, at: w[at + 1], False),
    "the square of a number": (torch.arange(3), lambda w, at: w[at * at], False),
    "the sum of two numbers": (torch.tensor([2, 0, 2]), lambda w, at: w[at + at.flip(0)], False),
    "the product of two numbers": (torch.tensor([2, 0, 2]), lambda w, at: w[at * at.flip(0)], False),
    "from the end": (torch.arange(3) - 1, lambda w, at: F.embedding(at, w), False),
    "beyond the end": (torch.arange(5) - 4, lambda w, at: w[at], False),
    "a row that is selected": (torch.arange(4), lambda w, at: w.index_select(0, at), False),
    "a row that is gathered": (torch.arange(4), lambda w, at: w.gather(0, at[:, None].expand(-1, 3)), False),
    "a row that is written": (torch.tensor([3]), lambda w, at: w.index_put((at,), torch.tensor(5.0)), False),
    "a row that is added": (torch.tensor([3]), lambda w, at: w.index_add(0, at, w[:1]), False),
    "of three rows in the first run": (torch.arange(3), lambda w, at: w[at], False, lambda at: at.add_(1)),
}


def looked_up(name, folder):
    at, f, _, *writes = INSIDE[name]
    sizes = {0: torch.export.Dim("n", min=3)}
    return [exported(Holds("at", at, lambda w, at, h=h: (h(w, at) * 2.0 + at[0], [g(at) for g in writes])[0]),
                     (rand(6, 3),), folder / f"{i}.pt2", sizes)
            for i, h in enumerate((lambda w, at: w, lambda w, at: torch.cat([w, f(w, at)])[:w.shape[0]]))]


@pytest.mark.parametrize("name", INSIDE)
def test_places_are_inside_at_all_sizes(name, tmp_path):
    assert certificate_of(*looked_up(name, tmp_path), tmp_path / "o.pt2")["whole"] == INSIDE[name][2]


# what is asked of three numbers from 0 to 9: (by both, by the second alone, numbers that only the first takes)
ASKED = {
    "of no others": (None, lambda a, b, c: a + b <= 9, (9, 9, 0)),
    "that they differ": (lambda a, b, c: a + b == c, lambda a, b, c: a != c, (3, 0, 3)),
    "an order, of others that differ": (lambda a, b, c: a + b != c, lambda a, b, c: a <= c, (5, 1, 2)),
    "an order that follows of some": (lambda a, b, c: a + b == c, lambda a, b, c: c <= a + 3, (1, 5, 6)),
    "an order that follows": (lambda a, b, c: a + b == c, lambda a, b, c: a <= c, None),
}


class Asks(nn.Module):
    def __init__(self, *conditions):
        super().__init__()
        self.conditions = [c for c in conditions if c]

    def forward(self, x, n):
        abc = [number(k, 0, 9) for k in n]
        for c in self.conditions:
            torch._check(c(*abc))
        return x * abc[0] + abc[1] - abc[2]


def asked(name, folder):
    f, g, _ = ASKED[name]
    return [exported(Asks(*h), (rand(3), torch.tensor([2, 3, 5])), folder / f"{i}.pt2") for i, h in enumerate(
        ((f,), (f, g)))]


@pytest.mark.parametrize("name", ASKED)
def test_a_result_asks_nothing_else_of_numbers(name, tmp_path):
    f, g, at = ASKED[name]
    if at:
        Asks(f)(rand(3), torch.tensor(at))
        with pytest.raises(RuntimeError):
            Asks(g)(rand(3), torch.tensor(at))
    paths = asked(name, tmp_path)
    assert certificate_of(*paths, tmp_path / "o.pt2")["whole"] == (at is None)
    assert certificate_of(*paths[::-1], tmp_path / "o.pt2")["whole"]


def errors(folder):
    """(name, file, file): the second has an error where the first has none."""
    for name in (n for n in ASKED if ASKED[n][2]):
        yield name, *asked(name, folder)
    for name, (f, g, _, _) in LESS.items():
        yield name, *(exported(h, (rand(6, 3), torch.tensor([0, 0])), folder / f"{i}.pt2")
                      for i, h in enumerate((f, g)))
    for name in (n for n in INSIDE if not INSIDE[n][2]):
        yield name, *looked_up(name, folder)


# of an ONNX file more is taken for granted, but no more than docs/PROOF.md says: (source, result, inputs)
HEAD = ("<float low = {-inf}, float five = {5.0}, float one = {1.0}, int64 two = {2}, int64 zero = {0}, "
        "int64[1] last = {-1}> ")
ONNX = {
    "an input that is minus infinity": (
        f"(float[2] x, float[2] m) => (float[2] y) {HEAD} {{ c = Equal(m, low) y = Where(c, five, x) }}",
        f"(float[2] x, float[2] m) => (float[2] y) {HEAD} {{ y = Mul(x, one) }}",
        (np.float32([1, 2]), np.float32([0, -INF]))),
    "an input that is infinite": (
        f"(float[2] x) => (float[2] y) {HEAD} {{ a = Abs(x) h = Neg(low) c = Less(a, h) y = Where(c, x, five) }}",
        f"(float[2] x) => (float[2] y) {HEAD} {{ y = Mul(x, one) }}", (np.float32([1, INF]),)),
    "the logarithm of a sum": (
        f"(float[2, 2] x) => (float[2, 1] y) {HEAD} {{ m = ReduceMax(x, last) d = Sub(x, m) e = Exp(d) "
        "s = ReduceSum(e, last) l = Log(s) y = Add(l, m) }",
        f"(float[2, 2] x) => (float[2, 1] y) {HEAD} {{ m = ReduceMax(x, last) d = Sub(x, m) e = Exp(d) "
        "s = ReduceSum(e, last) l = Log(s) y = Sub(l, m) }", (np.float32([[1, 2], [3, 4]]),)),
    "numbers of doubles": ("(double[1] x) => (double[1] y) <double a = {0.7}> { y = Mul(x, a) }",
                           "(double[1] x) => (double[1] y) <double a = {0.699999988079071}> { y = Mul(x, a) }",
                           (np.array([1.0]),)),
    "which remainder": ("(int64[2] x) => (int64[2] y) <int64 t = {3}> { y = Mod(x, t) }",
                        "(int64[2] x) => (int64[2] y) <int64 t = {3}> { y = Mod<fmod: int = 1>(x, t) }",
                        (np.array([-4, 4]),)),
    "quotients of integers": ("(int64[2] x) => (int64[2] y) <int64 t = {3}> { y = Div(x, t) }",
                              "(int64[2] x) => (int64[2] y) <float t = {3.0}> { f = Cast<to: int = 1>(x) q = Div(f, t) "
                              "r = Floor(q) y = Cast<to: int = 7>(r) }", (np.array([-4, 4]),)),
    "half of a size": (f"(float[n] x) => (float[n] y) {HEAD} {{ s = Shape(x) a = Gather(s, zero) b = Div(a, two) "
                       "f = Cast<to: int = 1>(b) y = Mul(x, f) }",
                       f"(float[n] x) => (float[n] y) {HEAD} {{ s = Shape(x) a = Gather(s, zero) "
                       "g = Cast<to: int = 1>(a) h = Cast<to: int = 1>(two) f = Div(g, h) y = Mul(x, f) }",
                       (np.float32([1, 2, 3]),)),
    "where a number is rounded": (
        '(float[1, 1, 2, 2] x) => (float[1, 1, k, l] y) <float[4] s = {1.0, 1.0, 2.0, 2.0}> '
        '{ y = Resize<mode = "nearest", nearest_mode = "floor">(x, , s) }',
        '(float[1, 1, 2, 2] x) => (float[1, 1, k, l] y) <float[4] s = {1.0, 1.0, 2.0, 2.0}> '
        '{ y = Resize<mode = "nearest", nearest_mode = "ceil">(x, , s) }', (np.float32([[[[1, 2], [3, 4]]]]),)),
    "a row of another input": (
        f"(float[2, 2] x, float[2, 2] m) => (float[2, 2] y) {HEAD} {{ a = ReduceMax(m, last) c = Equal(a, low) "
        "s = Softmax(x) y = Where(c, five, s) }", f"(float[2, 2] x, float[2, 2] m) => (float[2, 2] y) {HEAD} "
        "{ y = Softmax(x) }", (np.float32([[1, 2], [3, 4]]), np.float32([[-INF, -INF], [0, -INF]]))),
    "a row that is summed alone": (
        f"(float[2, 2] x, float[2, 2] m) => (float[2, 1] y) {HEAD} {{ z = Add(x, m) a = ReduceMax(z, last) "
        "c = Equal(a, low) e = Exp(z) s = ReduceSum(e, last) y = Where(c, five, s) }",
        f"(float[2, 2] x, float[2, 2] m) => (float[2, 1] y) {HEAD} {{ z = Add(x, m) e = Exp(z) "
        "y = ReduceSum(e, last) }",
        (np.float32([[1, 2], [3, 4]]), np.float32([[-INF, -INF], [0, -INF]]))),
    "a row that is taken away": (
        f"(float[2, 2] x, float[2, 2] m) => (float[2, 2] y) {HEAD} {{ a = ReduceMax(m, last) c = Equal(a, low) "
        "z = Sub(x, m) e = Exp(z) s = ReduceSum(e, last) q = Div(x, s) y = Where(c, five, q) }",
        f"(float[2, 2] x, float[2, 2] m) => (float[2, 2] y) {HEAD} {{ z = Sub(x, m) e = Exp(z) "
        "s = ReduceSum(e, last) y = Div(x, s) }",
        (np.float32([[1, 2], [3, 4]]), np.float32([[-INF, -INF], [0, -INF]]))),
    "the last of the largest": ("(float[1, 2] x) => (int64[1, 1] y) { y = ArgMax<axis: int = 1>(x) }",
                                "(float[1, 2] x) => (int64[1, 1] y) "
                                "{ y = ArgMax<axis: int = 1, select_last_index: int = 1>(x) }",
                                (np.float32([[3, 3]]),)),
}


def onnx_pairs(folder, onnx):
    for name, (a, b, args) in ONNX.items():
        paths = [folder / "a.onnx", folder / "b.onnx"]
        for text, path in zip((a, b), paths):
            read_as_onnx(onnx, text, path)
        x, y = (qkv.Model(p)(*args)[0] for p in paths)
        assert x.shape != y.shape or not np.array_equal(x, y), name
        yield name, *paths


def test_no_certificate_of_an_onnx_file_holds(tmp_path):
    held = [(name, i) for name, *paths in onnx_pairs(tmp_path, pytest.importorskip("onnx")) for i in range(2)
            if certificate_of(paths[i], paths[1 - i], tmp_path / "o.onnx")["whole"]]
    assert not held


FORGED = {  # what the certificate says and the files do not
    "single": ((lambda x: x.tanh() * 0.7, lambda x: x.tanh() * 0.699999988079071, (rand(3).double(),)),
               {"single": True, "claims": [{"source": "mul", "result": "mul", "from": ["tanh"], "laws": [
                   "fraction", "single"], "left": [["mul", "mul"]], "right": [["mul", "mul"]]}]}),
    "integers": (PAIRS["integers that no double is"],
                 {"weights": [{"weight": "b_full", "from": 0, "count": 0, "of": "full"}], "claims": []}),
}


@pytest.mark.parametrize("name", FORGED)
def test_the_word_of_a_certificate_is_taken_for_nothing(name, tmp_path):
    (f, g, args), parts = FORGED[name]
    paths = [exported(h, args, tmp_path / f"{i}.pt2") for i, h in enumerate((f, g))]
    (tmp_path / "c.json").write_text(json.dumps({"format": "qkv certificate 2", "weights": [], **parts}))
    assert checked(*paths, tmp_path / "c.json")[0] == 1


def test_a_number_that_is_fixed(tmp_path):
    paths = [tmp_path / f"{i}.pt2" for i in range(2)]
    for f, n, path in zip((lambda x, n: x * n, lambda x, n: x * (n - 1)), (3, 4), paths):
        torch.export.save(torch.export.export(Any(f), (rand(3), n)), path)
    (tmp_path / "c.json").write_text(json.dumps({"format": "qkv certificate 2", "weights": [], "claims": []}))
    assert "is fixed" in checked(*paths, tmp_path / "c.json")[1]


def test_what_is_taken_for_granted_is_said(tmp_path):
    """A fill hides scores, an ONNX file is said in float32: qkv.prove says so wherever a claim rests on it."""
    paths = [exported(f, SCORES, tmp_path / f"{i}.pt2") for i, f in enumerate(
        (lambda s, t, u: s.masked_fill(~t, -1e4).softmax(-1), lambda s, t, u: s.masked_fill(~t, -INF).softmax(-1)))]
    report = qkv.prove(*paths)
    assert report["sense"].startswith("equal over the reals") and any("hides scores" in a for a in report["assuming"])
