"""Control flow as torch.export writes it: cond, while_loop, scan, map, associative_scan, vmap, jvp; by data and by
sizes, with attention inside, one in the other, and with captured values and numbers."""
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from torch.autograd import forward_ad

from zoo import *

cond = torch.cond


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return (torch.softmax(q @ k.mT * 8 ** -0.5, -1) @ v).transpose(1, 2).flatten(2)


def both(*inputs):
    """The inputs, and with the opposite sign: both ways of a condition."""
    return [x for one in inputs for x in (one, {k: -v if v.is_floating_point() else v for k, v in one.items()})]


@model("cond_by_data")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.register_buffer("t", torch.randn(4))
        def forward(self, x, y):
            z = y + self.t
            return cond(x.sum() > 0, lambda x: self.a(x).relu() + z, lambda x: self.b(x) - z, (x,))
    return seeded(M), both(dict(x=R(3, 4), y=R(4)), dict(x=R(5, 4), y=R(4))), dict(x={0: batch()}, y=None)


@model("cond_by_size")
def _():
    def f(self, x, y):
        k = y.shape[0]
        return cond(x.shape[0] > 4, lambda x: x.cos() * x.shape[0] + k, lambda x: x.sin() - 3 * k, (x,))
    return fn(f), [dict(x=R(n, 4), y=R(m)) for n, m in ((3, 5), (5, 2), (4, 7))], dict(x={0: batch()}, y={0: seq()})


@model("cond_attention")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.q, self.kv = Attention(), nn.Linear(16, 16), nn.Linear(16, 32)
        def forward(self, x):
            def other(x):
                q = self.q(x).unflatten(-1, (2, 8)).transpose(1, 2)
                k, v = self.kv(x).unflatten(-1, (2, 2, 8)).permute(2, 0, 3, 1, 4)
                return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            return cond(x.mean() > 0, lambda x: self.one(x), other, (x,))
    return (seeded(M), both(dict(x=R(2, 5, 16)), dict(x=R(3, 9, 16))),
            dict(x={0: Dim("b", min=2, max=16), 1: Dim("n", min=2, max=32)}))


@model("cond_gives_sizes_and_numbers")
def _():
    def f(self, x):
        n, y = cond(x.sum() > 0, lambda x: (5, x * 2), lambda x: (3, x * 3), (x,))
        part = cond(x.sum() > 0, lambda x: x[: x.shape[0] // 2].clone(), lambda x: x.clone(), (x,))
        return y.sum() + torch.arange(n), part * 2
    return fn(f), both(dict(x=R(6, 4)), dict(x=R(9, 4))), dict(x={0: Dim.AUTO})


@model("cond_writes_its_own")
def _():
    def f(self, x):
        y = x + 1
        y.add_(1)
        return cond(y.sum() > 0, lambda y: (y * 2).relu_(), lambda y: y.clone().mul_(3), (y,))
    return fn(f), both(dict(x=R(3, 4) * 3), dict(x=R(5, 4) * 9)), dict(x={0: batch()})


@model("while_counter")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)
        def forward(self, x, limit):
            return while_loop(lambda i, x: i < limit, lambda i, x: (i + 1, self.l(x).tanh()),
                (limit.new_zeros(()), x))
    return (seeded(M), [dict(x=R(b, 4), limit=torch.tensor(n)) for b, n in ((3, 3), (5, 0), (2, 9))],
            dict(x={0: batch()}, limit=None))


@model("scan_rnn")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.ih, self.hh = nn.Linear(4, 8), nn.Linear(8, 8)
        def forward(self, x, h):
            def step(h, x):
                h = (self.ih(x) + self.hh(h)).tanh()
                return h, h * 2
            back = scan(lambda h, x: (h * 0.5 + x, h - x), x.sum(0), x, reverse=True)
            return scan(step, h, x), back
    return (seeded(M), [dict(x=R(n, b, 4), h=R(b, 8)) for n, b in ((5, 3), (2, 4), (7, 2))],
            dict(x={0: seq(), 1: batch()}, h={0: batch()}))


@model("scan_attention")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = Attention()
        def forward(self, xs, h):
            def step(h, x):
                h = self.a(x + h)
                return h, h.mean(1)
            return scan(step, h, xs)
    dims = dict(xs={0: Dim("t", min=2), 1: Dim.AUTO, 2: Dim.AUTO}, h={0: Dim.AUTO, 1: Dim.AUTO})
    return seeded(M), [dict(xs=R(t, b, n, 16), h=R(b, n, 16)) for t, b, n in ((4, 3, 5), (2, 3, 5))], dims


@model("map_over_batch")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)
        def forward(self, x, y, z):
            one = map_over(lambda x, z: (self.l(x) * z).relu(), x, z)
            return one, map_over(lambda xy, z: {"a": xy[0] + z, "b": xy[1].sum() * z}, (x, y), z)
    return (seeded(M), [dict(x=R(n, b, 4), y=R(n, 2), z=R(4)) for n, b in ((5, 3), (2, 4))],
            dict(x={0: seq(), 1: batch()}, y={0: seq()}, z=None))


@model("associative_scan")
def _():
    class M(nn.Module):
        def forward(self, a, x):
            def both(a, x, b, y): return [a * b, b * x + y]
            return associative_scan_op(lambda a, b: [a * b], [a], ())[0], associative_scan_op(both, [a, x], ())
    return (M().eval(), [dict(a=R(n, 3), x=R(n, 3, seed=1)) for n in (5, 2, 8)], dict(a={0: seq()}, x={0: seq()}))


@model("control_nested")
def _():
    def f(self, x, t):
        def inner(x): return cond(x.max() > 1, lambda x: x * 2, lambda x: x * 3, (x,))
        def no(x, t):
            return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, inner(x) * 0.5), (t.clone(), x.clone()))[1]
        return cond(x.sum() > 0, lambda x, t: inner(x) + 1, no, (x, t))
    return (fn(f), both(dict(x=R(3, 4), t=torch.tensor(0)), dict(x=R(5, 4) * 0.1, t=torch.tensor(1))),
            dict(x={0: batch()}, t=None))


@model("scan_in_while")
def _():
    def f(self, x, n):
        def turn(i, y): return i + 1, scan(lambda c, v: (c * 0.5 + v, c + v), torch.zeros(3), y)[1]
        return while_loop(lambda i, y: i < n, turn, (n.new_zeros(()), x))[1]
    return fn(f), [dict(x=R(t, 3), n=torch.tensor(n)) for t, n in ((4, 2), (6, 3), (2, 0))], dict(x={0: seq()}, n=None)


@model("vmap_mask_and_products")
def _():
    def f(self, x, w):
        n, f = x.shape[1], lambda b, h, q, k: (k <= q) & (k > q - 4)
        for axes in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
            f = torch.vmap(f, in_dims=axes)
        mask = f(torch.arange(x.shape[0]), torch.arange(2), torch.arange(n), torch.arange(n))
        q = x.unflatten(-1, (2, 8)).transpose(1, 2)
        product = torch.vmap(lambda a: torch.vmap(lambda r: r @ w)(a).cumsum(0))(x)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask), product
    return (fn(f), [dict(x=R(b, n, 16), w=R(16, 3)) for b, n in ((2, 6), (3, 4))],
            dict(x={0: batch(), 1: seq()}, w=None))


@model("vmap_lookups")
def _():
    """Indices with and without the batch; sizes and values of an inner vmap that are used after it."""
    def f(self, x, i):
        kept, v = [], torch.vmap

        def inner(row):
            kept.append(self.m0.weight * 3)
            n = row.shape[0] + 1
            return row * n + row.new_zeros(n).sum() + kept[-1].sum()

        at = lambda row, k: torch.ops.aten.index(row, [k])
        twice = v(v(inner))
        pairs = v(lambda a: v(lambda k: v(lambda n: at(at(a, k), n))(i % 2))(i))(x)
        own = v(lambda a, k: torch.ops.aten.index(a, [k - 4, i % 3]))(x, torch.arange(x.shape[0]) % 4)
        n = x.shape[2] + 1
        return twice(x) + twice(x * 2), pairs, own, kept[0].sum(), x.new_ones(n)
    i = torch.tensor([0, 3, 1, 1, 2])
    return (fn(f, lambda: nn.Linear(5, 1)), [dict(x=R(b, 4, n), i=i) for b, n in ((2, 6), (3, 4))],
            dict(x={0: batch(), 2: seq()}, i=None))


@model("forward_derivatives")
def _():
    """torch.func.jvp over ops and over a vmap, one that reads another's; dual tensors, through a layer.
    torch.export takes the sizes for constants."""
    jvp, vmap = torch.func.jvp, torch.vmap

    def f(self, x, t):
        y, dy = jvp(lambda x: F.softmax(x @ x.mT, -1) @ F.silu(x), (x,), (t,))
        z, dz, kept = jvp(lambda a, b: (vmap(lambda r: torch.logsumexp(r, 0) * r.max())(a * y.cos()) * b.cumsum(0),
                                        a.sum(-1)), (dy[0], x[0, 0]), (t[0], x[0, 1]), has_aux=True)
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, t)
            one = forward_ad.unpack_dual(F.gelu(self.m0(d)))
            two = forward_ad.unpack_dual((d * one.tangent).sort(-1)[0][:, 1:])
        steps = jvp(torch.ceil, (x,), (t,))  # nothing reads what the tangent was to go through
        scale = jvp(torch.linalg.det, (x[:, :, :3],), (t[:, :, :3],))
        return y, dy, z, dz, kept, *one, *two, *steps, *scale
    inputs = [dict(x=R(2, 3, 4, seed=s), t=R(2, 3, 4, seed=s + 1)) for s in (0, 2)]
    return fn(f, lambda: nn.Linear(4, 4)), inputs, dict(x=None, t=None)
