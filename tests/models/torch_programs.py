"""Random functions of PyTorch, made from a seed: what run_torch.py exports and compares. One of them:

    p = make(17)
    print(p.source())
    def forward(self, x0, x1):
        v0 = torch.softmax(x0 @ x1.mT * 0.5, -1)
        v1 = v0[..., ::2]
        v1.add_(x1.sum())
        return v0, v1

A call is proposed by one of the functions below, which draw names, sizes and numbers, and is kept where PyTorch takes
it at the sizes of the export and at the others (a call that the last of them, of size 1, cannot do ends that size at
times). Calls that PyTorch leaves open (ties of topk, two writes to one place, integers of NaN) are not proposed.
"""
import random
import re

import torch
import torch.nn.functional as F
import torch_families as families

FLOATS = ["float32"] * 12 + ["float64", "float64", "float16", "bfloat16"]
INTEGERS = ["int64"] * 6 + ["int32", "int32", "uint8", "int8", "int16"]
LARGEST = 6000      # elements of a value
CONSTANTS = ["0.5", "2", "-1", "3", "0.125", "-0.75", "1", "0", "1.5"]
UNARY = ("relu gelu silu tanh sigmoid exp log1p sqrt rsqrt abs neg sin cos erf floor ceil round trunc frac square "
         "reciprocal log sign isnan isfinite expm1 softplus mish hardtanh hardswish hardsigmoid elu celu selu "
         "leaky_relu logsigmoid softsign atan asinh log2 exp2 nan_to_num logical_not positive relu6 isinf "
         "tan").split()
BINARY = ("add sub mul div maximum minimum atan2 fmod remainder hypot eq ne lt le gt ge logical_and logical_or "
          "logical_xor floor_divide true_divide fmax fmin logaddexp xlogy heaviside").split()
REDUCE = "sum mean amax amin prod all any logsumexp std var norm argmax argmin count_nonzero nansum".split()


def function(name):
    return f"torch.{name}" if hasattr(torch, name) else f"F.{name}"


# ------------------------------------------------------------------ control flow that eager runs as Python
def cond(chosen, yes, no, operands):
    return (yes if chosen else no)(*operands)


def while_loop(condition, body, carried):
    while condition(*carried):
        carried = body(*carried)
    return carried


def scan(step, first, xs):
    carried, out = first, []
    for x in xs:
        carried, y = step(carried, x)
        out.append(y)
    return carried, torch.stack(out)


def map_over(f, xs, *rest):
    return torch.stack([f(x, *rest) for x in xs])


def associative_scan(join, xs, dim):
    out = [xs.select(dim, 0)]
    for k in range(1, xs.shape[dim]):
        out.append(join(out[-1], xs.select(dim, k)))
    return torch.stack(out, dim)


EAGER = dict(torch=torch, F=F, cond=cond, while_loop=while_loop, scan=scan, map_over=map_over,
             associative_scan=associative_scan)


def of_export():
    from torch._higher_order_ops.associative_scan import associative_scan as torch_associative
    from torch._higher_order_ops.map import map as torch_map
    from torch._higher_order_ops.scan import scan as torch_scan
    from torch._higher_order_ops.while_loop import while_loop as torch_while

    def associative(join, xs, dim):
        return torch_associative(join, xs, dim, combine_mode="generic")
    return EAGER | dict(cond=torch.cond, while_loop=torch_while, scan=torch_scan, map_over=torch_map,
                        associative_scan=associative)


# ------------------------------------------------------------------ programs
class Program:
    """inputs: {name: (dtype, sizes: numbers, or names of the variable ones, how to fill it)}; weights: {name: tensor};
    lines: [(name or None, text, names that it reads)]; outputs: names; sizes: a dict for each run,
    the export's first."""

    def __init__(self, seed):
        self.seed, self.inputs, self.weights, self.buffers = seed, {}, {}, {}
        self.lines, self.outputs, self.sizes, self.loss, self.complex = [], [], [], False, set()

    def source(self):
        body = [f"    {name} = {text}" if name else f"    {text}" for name, text, _ in self.lines]
        out = [f"torch.view_as_real({n}.resolve_conj())" if n in self.complex else n for n in self.outputs]
        return "\n".join([f"def forward({', '.join(['self', *self.inputs])}):", *body,
                          f"    return {', '.join(out)}{',' if len(out) == 1 else ''}"])

    def tensors(self, k):
        """Its inputs at sizes k."""
        return {name: filled(spec, self.sizes[k], f"{self.seed} {name} {k}") for name, spec in self.inputs.items()}

    def module(self, scope):
        scope = dict(scope)
        exec(self.source(), scope)

        class M(torch.nn.Module):
            def __init__(m):
                super().__init__()
                for name, w in self.weights.items():
                    setattr(m, name, torch.nn.Parameter(w.clone()))
                for name, b in self.buffers.items():
                    m.register_buffer(name, b.clone())
        inner, loss = scope["forward"], self.loss

        def forward(m, *inputs):
            out = inner(m, *inputs)
            return (*out, scalar(out)) if loss else out
        head = ", ".join(["self", *self.inputs])
        exec(f"def whole({head}):\n    return call({head})", made := dict(call=forward))
        M.forward = made["whole"]
        return M().eval()


def scalar(out):
    """What gradients are taken of: of one sign, and bounded."""
    seen = [torch.where(x.abs() < 1e3, x, 0.0) for x in out if x.is_floating_point()]
    seen = [x.float() if x.dtype == torch.float16 else x for x in seen]  # whose squares would be infinite
    return sum((x * x / (1 + x * x)).mean().float() for x in seen if x.numel())


def filled(spec, sizes, key):
    dtype, dims, how = spec
    g = torch.Generator().manual_seed(random.Random(key).getrandbits(40))
    shape = [sizes.get(d, d) for d in dims]
    kind = getattr(torch, dtype)
    if kind == torch.bool:
        return torch.rand(shape, generator=g) < 0.6
    if not kind.is_floating_point:
        return torch.randint(0 if how == "index" or dtype == "uint8" else -4, 3 if how == "index" else 5, shape,
                             generator=g).to(kind)
    x = torch.randn(shape, generator=g, dtype=torch.float64)
    if how == "odd" and x.numel():
        for v in (float("nan"), float("inf"), -float("inf"), -0.0, 0.0):
            x.view(-1)[int(torch.randint(0, x.numel(), (1,), generator=g))] = v
    return x.to(kind)


# ------------------------------------------------------------------ drawing
class Drawing:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.p = Program(seed)
        self.envs, self.new = [], {}

    def choose(self, test):
        """A name whose tensor passes, late ones rather."""
        names = [n for n, t in self.envs[0].items() if isinstance(t, torch.Tensor) and test(t)]
        if not names:
            raise LookupError
        return names[int(len(names) * self.r.random() ** 0.6)]

    def x(self, rank=0, most=9):
        return self.choose(lambda t: rank <= t.dim() <= most)

    def f(self, rank=0, most=9):
        return self.choose(lambda t: t.is_floating_point() and rank <= t.dim() <= most)

    def i(self, rank=0):
        return self.choose(lambda t: t.dtype in (torch.int64, torch.int32) and t.dim() >= rank)

    def given(self):
        """The tensors that the program is called with."""
        return [self.t(n) for n in self.p.inputs]

    def places(self, rank=None):
        return self.choose(lambda t: t.dtype == torch.int64 and rank in (None, t.dim()))

    def wide(self, rank=0):
        """Of more than half precision."""
        return self.choose(lambda t: t.dtype in (torch.float32, torch.float64) and t.dim() >= rank)

    def finite(self, rank=0, most=9):
        return self.choose(lambda t: t.is_floating_point() and rank <= t.dim() <= most and bool(t.isfinite().all()))

    def calm(self, rank=0):
        """Of more than half precision, and finite."""
        return self.choose(lambda t: t.dtype in (torch.float32, torch.float64) and t.dim() >= rank
                           and bool(t.isfinite().all()))

    def z(self):
        return self.choose(lambda t: t.is_complex() and bool(t.isfinite().all()))

    def whole(self):
        return self.choose(lambda t: not t.is_floating_point() and not t.is_complex() and t.dtype != torch.bool)

    def n(self, rank=0):
        return self.choose(lambda t: t.dtype != torch.bool and t.dim() >= rank and not t.is_complex())

    def b(self):
        return self.choose(lambda t: t.dtype == torch.bool)

    def t(self, name):
        return self.envs[0][name]

    def like(self, name):
        """Another of its dtype, of its rank rather."""
        mine = self.t(name)
        if self.r.random() < 0.5:
            try:
                return self.choose(lambda t: t.dtype == mine.dtype and t.shape == mine.shape)
            except LookupError:
                pass
        return self.choose(lambda t: t.dtype == mine.dtype)

    def of(self, *options):
        return self.r.choice(options)

    def either(self):
        return self.of("True", "False")

    def word(self, words):
        """One of them, in quotes."""
        return repr(self.of(*words.split()))

    def dim(self, name):
        rank = self.t(name).dim()
        if not rank:
            return self.of(0, -1)
        d = self.r.randrange(rank)
        return d - rank if self.r.random() < 0.5 else d

    def dims(self, name):
        rank = self.t(name).dim()
        if not rank:
            raise LookupError
        return sorted(self.r.sample(range(rank), self.r.randint(1, rank)))

    def c(self):
        return self.r.choice(CONSTANTS)

    def size(self):
        """A size in arithmetic."""
        v = self.x(1)
        s = f"{v}.shape[{self.dim(v)}]"
        return self.of(s, s, f"{s} * 2 - 1", f"({s} + 1) // 2", f"{v}.numel() // 3", f"{s} + 1", "2",
                       f"max({s} - 1, 1)", f"min({s}, 3)", f"{s} % 3 + 1")

    def w(self, *shape, scale=None, buffer=False):
        """A weight of its own."""
        name = f"w{len(self.p.weights) + len(self.p.buffers) + len(self.new)}"
        g = torch.Generator().manual_seed(self.r.getrandbits(40))
        self.new[name] = (torch.randn(shape, generator=g) * (scale or max(1, torch.Size(shape[1:]).numel()) ** -0.5),
                          buffer)
        return f"self.{name}"


def index(g, v):
    """An index of slices, numbers, None and ... into v."""
    rank, parts = g.t(v).dim(), []
    for _ in range(g.r.randint(1, max(1, rank))):
        parts.append(g.of(":", "::2", "1:", ":-1", "0", "-1", "None", ":3", "1::3", f":{g.size()}", "-2:", "..."))
    if parts.count("...") > 1:
        parts = [q for q in parts if q != "..."] + ["..."]
    return ", ".join(parts)


def unary(g):
    name = g.r.choice(UNARY)
    v = g.x() if name in ("neg", "abs", "sign", "logical_not", "square", "exp", "sqrt") else g.f()
    return f"{function(name)}({v})"


def binary(g):
    a = g.x()
    b = g.like(a) if g.r.random() < 0.7 else g.x()
    return f"torch.{g.r.choice(BINARY)}({a}, {b})"


def scalars(g):
    a = g.n()
    return g.of(f"{a} * {g.c()}", f"{a} + {g.c()}", f"{g.c()} - {a}", f"{a} / {g.of('2', '3', '0.5')}", f"{a} ** 2",
                f"{a} * {g.size()}", f"{a} / {g.size()}", f"torch.add({a}, {g.like(a)}, alpha={g.of('2', '-1', '3')})",
                f"{a}.clamp({g.of('-1', '0', '-0.5')}, {g.of('1', '2', '0.5')})", f"{a}.clamp(min={g.c()})",
                f"{a} % {g.of('2', '3', '-2')}", f"{a} // {g.of('2', '3', '-2')}", f"{a} > {g.c()}", f"{a} == {g.c()}",
                f"{g.of('2', '1', '0.5')} / {a}", f"torch.pow({g.of('2', '0.5')}, {a})", f"{a} <= {a}.mean()"
                if g.t(a).is_floating_point() else f"{a} != 0", f"torch.rsub({a}, 1)",
                f"{a} ** {g.of('3', '0.5', '-1', '-2')}")


def bits(g):
    a = g.i()
    return g.of(f"{a} & {g.like(a)}", f"{a} | 5", f"{a} ^ {g.like(a)}", f"~{a}", f"{a} << ({g.like(a)} & 3)",
                f"{a} >> 1",
                f"{g.b()} & {g.b()}", f"~{g.b()}", f"{g.b()} ^ {g.b()}", f"{g.b()} | {g.b()}")


def cast(g):
    v = g.x()
    t = g.t(v)
    to = g.r.choice(FLOATS if g.r.random() < 0.7 else INTEGERS + ["bool"])
    if t.is_floating_point() and to not in FLOATS and to != "bool":
        return f"{v}.nan_to_num(0.0, 3.0, -3.0).clamp({0 if to == 'uint8' else -9}, 9).to(torch.{to})"
    return g.of(f"{v}.to(torch.{to})", f"{v}.type_as({g.x()})" if to in FLOATS and not t.is_floating_point()
                else f"{v}.to(torch.{to})")


def reduction(g):
    name, v = g.r.choice(REDUCE), g.x()
    if name in ("argmax", "argmin"):
        return f"{g.f(1)}.{name}({g.of('', '0', '-1', '-1, keepdim=True')})"
    dims = g.of(str(g.dim(v)), str(tuple(g.dims(v))) if g.t(v).dim() else "0", "")
    keep = g.of("", ", keepdim=True") if dims else ""
    if name == "norm":
        return f"torch.linalg.vector_norm({g.f()}, {g.of('2', '1', 'torch.inf', '3')})"
    if name in ("prod", "all", "any") and "(" in dims:
        dims = str(g.dim(v))
    if name == "logsumexp":
        return f"torch.logsumexp({g.f()}, {dims or 0}{keep})"
    if name in ("std", "var"):
        return f"torch.{name}({g.f(1)}, {g.of(-1, 0)}, correction={g.of(0, 1)}, keepdim={g.either()})"
    return f"{v}.{name}({dims}{'' if name == 'count_nonzero' else keep})"


def shape_of(g, v):
    """Arguments of a reshape that keeps the elements."""
    rank = g.t(v).dim()
    s = [f"{v}.shape[{k}]" for k in range(rank)]
    if rank < 2:
        return g.of("-1", "-1, 1", "1, -1", "2, -1", "-1, 2", "1, -1, 1")
    k = g.r.randrange(rank - 1)
    merged = [*s[:k], g.of("-1", f"{s[k]} * {s[k + 1]}"), *s[k + 2:]]
    split = [*s[:k], g.of("2", "4"), "-1", *s[k + 1:]]
    return ", ".join(g.of(merged, merged, split, ["-1"], [*s[:-1], "1", s[-1]], ["-1", s[-1]], [s[0], "-1"]))


def view(g):
    v = g.x(1)
    d, rank = g.dim(v), g.t(v).dim()
    order = g.r.sample(range(rank), rank)
    s = g.size()
    return g.r.choice([
        lambda: f"{v}.{g.of('view', 'reshape', 'reshape')}({shape_of(g, v)})",
        lambda: f"{v}.{g.of('view', 'reshape')}({shape_of(g, v)})",
        lambda: f"{v}.transpose({d}, {g.dim(v)})", lambda: f"{v}.permute({', '.join(map(str, order))})",
        lambda: f"{v}[{index(g, v)}]", lambda: f"{v}[{index(g, v)}]", lambda: f"{v}.select({d}, {g.of('0', '-1')})",
        lambda: f"{v}.unsqueeze({d}).expand({', '.join(['-1'] * rank)}, -1)" if d < 0 else f"{v}.unsqueeze({d})",
        lambda: f"{v}.unsqueeze(0).expand({s}, {', '.join(['-1'] * rank)})",
        lambda: f"{v}.narrow({d}, 0, {s})", lambda: f"{v}.unfold({d}, {g.of('1', '2', '3')}, {g.of('1', '2')})",
        lambda: f"{v}.chunk({g.of('2', '3')}, {d})[{g.of('0', '-1')}]",
        lambda: f"{v}.split({g.of('2', '1', s)}, {d})[{g.of('0', '-1')}]",
        lambda: f"{v}.flip({d})", lambda: f"{v}.flatten({g.of('0', '-2', '1') if rank > 1 else 0})",
        lambda: f"{v}.squeeze({g.of('', str(d))})",
        lambda: f"{v}.mT" if rank > 1 else f"{v}.unsqueeze(-1)",
        lambda: f"{v}.diagonal(0, 0, 1)" if rank > 1 else f"{v}[:1]",
        lambda: f"{v}.movedim({d}, {g.dim(v)})", lambda: f"{v}.unbind({d})[{g.of('0', '-1')}]",
        lambda: f"{v}.tensor_split({g.of('2', '3')}, {d})[{g.of('0', '1')}]",
        lambda: f"{v}.contiguous().as_strided((2, {g.of(1, 2, 3)}), ({g.of(1, 2)}, {g.of(0, 1, 2)}), {g.of(0, 1)})",
        lambda: f"{v}.unflatten({d}, ({g.of('2, -1', '-1, 2', '1, -1')}))", lambda: f"{v}.expand_as({g.like(v)})",
        lambda: f"{v}.contiguous()", lambda: f"{v}.broadcast_to({g.like(v)}.shape)", lambda: f"{v}.detach()",
        lambda: f"{v}.clone()",
        lambda: f"{v}.swapaxes(0, -1)",
    ])()


def moved(g):
    v = g.x(1)
    d, o = g.dim(v), g.like(v)
    return g.r.choice([
        lambda: f"torch.cat([{v}, {o}], {d})", lambda: f"torch.stack([{v}, {o}], {d})",
        lambda: f"torch.cat([{v}, {v}[..., :1]], -1)",
        lambda: f"{v}.roll({g.of('1', '-1', '2', g.size())}, {d})",
        lambda: f"{v}.repeat({', '.join(g.of('1', '2') for _ in range(g.t(v).dim()))})",
        lambda: f"{v}.repeat_interleave({g.of('2', '3')}, {d})",
        lambda: f"F.pad({v}, ({g.of('1', '0', '-1')}, {g.of('2', '0', '1')}), value={g.c()})",
        lambda: f"F.pad({v}, (1, 1), mode={g.word('reflect replicate circular')})",
        lambda: f"F.pad({v}, (0, 1, {g.of('1', '-1')}, 0))", lambda: f"{v}.tril({g.of('0', '1', '-1')})",
        lambda: f"{v}.triu({g.of('0', '1', '-1')})",
        lambda: f"torch.meshgrid({g.x(1, 1)}, {g.x(1, 1)}, indexing={g.word('ij xy')})[{g.of('0', '1')}]",
        lambda: f"{v}.rot90(1, (0, -1))", lambda: f"torch.tile({v}, (2,))", lambda: f"torch.hstack([{v}, {o}])",
        lambda: f"torch.diag_embed({v})",
        lambda: f"torch.broadcast_tensors({v}, {o})[0]",
        lambda: f"torch.block_diag({v}, {o})" if g.t(v).dim() < 3 else f"{v}.T" if g.t(v).dim() == 2 else f"{v}.mT",
    ])()


def picked(g):
    v = g.x(1)
    d = g.dim(v)
    at = f"({g.i()} % {v}.shape[{d}])"
    flat = f"({g.places()}.flatten() % {v}.shape[{d}])"
    return g.r.choice([
        lambda: f"{v}.index_select({d}, {flat})", lambda: f"{v}[{g.i()} % {v}.shape[0]]",
        lambda: f"{v}[..., {g.i()} % {v}.shape[-1]]",
        lambda: f"{v}[:, {g.i()} % {v}.shape[1]]", lambda: f"{v}[{g.i()} % {v}.shape[0], {g.i()} % {v}.shape[-1]]",
        lambda: f"{v}[{g.i()} % {v}.shape[0], ..., {g.i()} % {v}.shape[-1]]",
        lambda: f"{v}[{g.i()} % {v}.shape[0], :, 0]",
        lambda: f"{v}.gather({d}, {g.places(g.t(v).dim())} % {v}.shape[{d}])",
        lambda: f"torch.take_along_dim({v}, {v}.argsort(dim={d}, stable=True), {d})",
        lambda: f"torch.where({g.b()}, {v}, {g.like(v)})",
        lambda: f"torch.where({v} > {g.c()}, {v}, {g.c()})", lambda: f"torch.where({g.b()}, {g.c()}, {v})",
        lambda: f"{v}.masked_fill({g.b()}, {g.c()})",
        lambda: f"F.embedding({g.i()} % 5, {g.w(5, g.of(2, 3, 4), scale=1.0)})",
        lambda: f"torch.take({v}, {g.i()} % {v}.numel())",
        lambda: f"F.one_hot({g.places()} % 4, 4)",
        lambda: f"{v}.index_add(0, torch.arange({v}.shape[0]), {v})",
        lambda: f"{v}.scatter_add({d}, {at}.expand_as({v}), {v})",
        lambda: f"torch.bucketize({g.f()}, torch.tensor([-1.0, 0.0, 0.5]))",
        lambda: f"{v}[{g.b()}].sum()",
        lambda: f"{v}.scatter_reduce({d}, {at}, {v}, {g.word('amax sum mean amin')})",
        lambda: f"{v}.masked_select({g.b()})[:1]", lambda: f"torch.nonzero({v}).sum(0)",
        lambda: f"torch.searchsorted({g.finite(1)}.sort(-1).values, {g.f(1)})",
    ])()


def ordered(g):
    v = g.n(1)
    d, f = g.dim(v), g.f(1)
    return g.r.choice([
        lambda: f"{v}.cumsum({d})", lambda: f"{v}.cumprod({d})",
        lambda: f"{v}.sort({d}, descending={g.either()}, stable=True)[{g.of('0', '1')}]",
        lambda: f"{v}.argsort(dim={d}, stable=True)",
        lambda: f"{v}.topk({g.of('1', '2')}, {d}, largest={g.either()}).values",
        lambda: f"{v}.cummax({d}).values", lambda: f"{f}.median({g.of('', '-1')})",
        lambda: f"torch.logcumsumexp({f}, -1)", lambda: f"{v}.diff(dim={d})",
        lambda: f"{v}.kthvalue(1, {d}).values", lambda: f"{v}.max({d}).values", lambda: f"{v}.aminmax(dim={d}).max",
        lambda: f"torch.trapezoid({f}, dim=-1)",
    ])()


def created(g):
    s, v = g.size(), g.x()
    return g.r.choice([
        lambda: f"torch.arange({s})", lambda: f"torch.arange({s}, dtype=torch.{g.r.choice(FLOATS)})",
        lambda: f"torch.arange({g.of('1', '0', '-2')}, {s}, {g.of('2', '1')})",
        lambda: f"torch.zeros({s}, {g.size()})",
        lambda: f"torch.ones({s}, dtype=torch.{g.r.choice(FLOATS + INTEGERS)})",
        lambda: f"torch.full(({s},), {g.c()})",
        lambda: f"torch.ones_like({v})", lambda: f"torch.zeros_like({v})", lambda: f"torch.linspace(-1, 1, {s})",
        lambda: f"torch.eye({s})",
        lambda: f"torch.full_like({g.f()}, -0.0)", lambda: f"torch.ones({s}, {g.size()}, dtype=torch.bool).tril()",
        lambda: f"{v}.new_zeros(({s},))",
        lambda: f"torch.tensor({g.of('0.5', '2', '[1.0, -2.0]', 'True', '[1, 0]', '-0.0')})",
        lambda: f"torch.tensor({s})", lambda: f"torch.empty(0, dtype=torch.{g.r.choice(FLOATS)})",
    ])()


def product(g):
    a = g.f(1)
    d = g.t(a).shape[-1]
    if not d:   # ONNX Runtime makes a wrong Reshape of it
        raise LookupError
    return g.r.choice([
        lambda: f"{a} @ {g.like(a)}", lambda: f"{a} @ {g.like(a)}.mT", lambda: f"torch.matmul({a}, {a}.mT)",
        lambda: f"F.linear({a}, {g.w(g.of(3, 4), d)}, {g.w(g.of(3, 4))})",
        lambda: f"F.linear({a}, {g.w(4, d)})", lambda: f"F.linear({a}, {g.w(6, d)}, {g.w(6)})",
        lambda: f"torch.einsum('...i,...j->...ij', {a}, {g.like(a)})",
        lambda: f"torch.einsum('...ij,...kj->...ik', {a}, {g.like(a)})",
        lambda: f"torch.einsum('ij,kj->ki', {g.f(2, 2)}, {g.f(2, 2)})",
        lambda: f"torch.einsum('bij,bjk->bk', {g.f(3, 3)}, {g.f(3, 3)}.mT)",
        lambda: f"torch.bmm({g.f(3, 3)}, {g.f(3, 3)}.mT)", lambda: f"torch.outer({g.f(1, 1)}, {g.f(1, 1)})",
        lambda: f"torch.addmm({g.f()}, {g.f(2, 2)}, {g.f(2, 2)}.T, beta={g.of(1, 0.5, 0)}, alpha={g.of(1, 2)})",
        lambda: f"torch.mv({g.f(2, 2)}, {g.f(1, 1)})",
        lambda: f"torch.einsum('ii->i', {g.f(2, 2)})", lambda: f"torch.tensordot({a}, {g.like(a)}, dims=1)",
        lambda: f"torch.baddbmm({g.f()}, {g.f(3, 3)}, {g.f(3, 3)}.mT)",
        lambda: f"F.bilinear({a}, {a}, {g.w(2, d, d)})", lambda: f"torch.einsum('...d,hd->...h', {a}, {g.w(3, d)})",
        lambda: f"torch.cdist({g.f(2)}, {g.f(2)})", lambda: f"F.cosine_similarity({a}, {g.like(a)}, -1)",
    ])()


def norm(g):
    v = g.f(1)
    s = g.t(v).shape
    c = s[1] if len(s) > 1 else 1
    return g.r.choice([
        lambda: f"F.layer_norm({v}, ({s[-1]},), {g.w(s[-1])}, {g.w(s[-1])})",
        lambda: f"F.layer_norm({v}, ({v}.shape[-1],))", lambda: f"F.rms_norm({v}, ({s[-1]},), {g.w(s[-1])})",
        lambda: f"{v} * torch.rsqrt({v}.pow(2).mean(-1, keepdim=True) + 1e-5)",
        lambda: f"torch.softmax({v}, {g.dim(v)})", lambda: f"torch.log_softmax({v}, {g.dim(v)})",
        lambda: f"F.group_norm({g.f(3)}, {g.of('1', '2')})", lambda: f"F.instance_norm({g.f(3)})",
        lambda: f"F.batch_norm({g.f(2)}, None, None, training=True)",
        lambda: f"({v} - {v}.mean(-1, keepdim=True)) / ({v}.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()",
        lambda: f"F.normalize({v}, dim=-1)", lambda: f"F.softmin({v}, -1)",
        lambda: f"F.local_response_norm({g.f(3)}, 2)", lambda: f"F.glu({v}, {g.dim(v)})",
        lambda: f"F.batch_norm({v if len(s) > 1 else g.f(2)}, {g.w(c, buffer=True)}, {g.w(c, buffer=True)}.abs())",
        lambda: f"F.group_norm({v}, {g.of(1, 2)}, {g.w(c)}, {g.w(c)})" if len(s) > 2 else f"F.softmin({v}, 0)",
    ])()


def image(g):
    v = g.finite(3, 4)
    two = g.t(v).dim() == 4 or g.r.random() < 0.3
    c = g.t(v).shape[-3 if two else -2] if g.t(v).dim() > 2 else 1
    n, linear, size = ("2d", "bilinear", "(5, 3)") if two else ("1d", "linear", "5")
    k, more = [g.of(1, 2, 3)] * (2 if two else 1), f"stride={g.of('1', '2')}, padding={g.of('0', '1')}"
    return g.r.choice([
        lambda: f"F.conv{n}({v}, {g.w(4, c, *k)}, {g.w(4)}, {more})",
        lambda: f"F.conv{n}({v}, {g.w(c * 2, 1, *k)}, None, {more}, groups={c})",
        lambda: f"F.conv{n}({v}, {g.w(2, c, *k)}, None, dilation=2, padding={g.of(1, 2, repr('same'))})",
        lambda: f"F.conv_transpose{n}({v}, {g.w(c, 3, *k)}, None, stride={g.of('1', '2')}, padding={g.of('0', '1')})",
        lambda: f"F.max_pool{n}({v}, {g.of(2, 3)}, {more}, ceil_mode={g.either()})",
        lambda: f"F.avg_pool{n}({v}, {g.of(2, 3)}, {more}, {g.word('ceil_mode count_include_pad')[1:-1]}={g.either()})",
        lambda: f"F.adaptive_{g.of('avg', 'max')}_pool{n}({v}, {g.of('1', '2', '3')})",
        lambda: f"F.interpolate({v}, scale_factor={g.of(2, 0.5, 1.5)})",
        lambda: f"F.interpolate({v}, scale_factor={g.of(2, 0.5, 1.5)}, mode='{linear}', align_corners={g.either()})",
        lambda: f"F.interpolate({v}, size={size}, mode={g.word('bicubic bilinear' if two else 'linear')})",
        lambda: f"F.interpolate({v}, size={size}, mode={g.word('area nearest-exact nearest')})",
        lambda: f"F.unfold({v}, 2, padding=1)", lambda: f"F.pixel_shuffle({v}, 2)",
        lambda: f"F.pixel_unshuffle({v}, 2)", lambda: f"F.lp_pool2d({v}, 2, 2)",
        lambda: f"F.interpolate({v}, size=({v}.shape[-2] * 2, {v}.shape[-1] + 1), mode='bilinear')",
        lambda: f"F.channel_shuffle({v}, 2)",
        lambda: f"F.grid_sample({v}, {g.f(4, 4)}[..., :2], padding_mode={g.word('zeros border reflection')})",
        lambda: f"F.grid_sample({v}, {g.f(4, 4)}[..., :2], align_corners=True)",
    ])()


def attention(g):
    q = g.f(3, 4)
    k = g.like(q) if g.r.random() < 0.7 else q
    v = g.like(q) if g.r.random() < 0.7 else k
    if g.t(k).shape[:-1] != g.t(v).shape[:-1]:  # PyTorch's kernels do not look
        raise LookupError
    mask, s = g.x(), g.of("0.5", f"{q}.shape[-1] ** -0.5", f"{q}.size(-1) ** -0.5", "1.0", "0.25", "-0.5", "2")
    lowest = g.of("float('-inf')", "-1e9", f"torch.finfo({q}.dtype).min", "-10000.0")
    l, m = f"{q}.shape[-2]", f"{k}.shape[-2]"
    causal = g.of(f"torch.ones({l}, {m}, dtype=torch.bool).tril()",
                  f"torch.arange({m})[None, :] <= torch.arange({l})[:, None]",
                  f"~torch.ones({l}, {m}, dtype=torch.bool).triu(1)",
                  f"torch.arange({l})[:, None] - torch.arange({m}) < 3")
    scores = g.of(f"{q} @ {k}.mT * {s}", f"({q} * {s}) @ {k}.mT",
                  f"torch.matmul({q}, {k}.transpose(-2, -1)) / {q}.shape[-1] ** 0.5", f"({q} * {s}) @ ({k} * {s}).mT",
                  f"torch.einsum('...id,...jd->...ij', {q}, {k}) * {s}", f"{q} @ ({k}.mT * {s})",
                  f"torch.baddbmm({mask}, {q}, {k}.mT, alpha={s})", f"({q} @ {k}.mT).div(2).mul({s})")
    scores = g.of(scores, scores, f"{scores} + {mask}", f"({scores}).masked_fill(~({causal}), {lowest})",
                  f"torch.where({causal}, {scores}, {lowest})", f"({scores}).masked_fill({mask} == 0, {lowest})",
                  f"{scores} + torch.where({causal}, 0.0, {lowest})",
                  f"({scores}) + (1.0 - ({causal}).float()) * -1e9",
                  f"{scores} + torch.full(({l}, {m}), {lowest}).triu(1)")
    weights = g.of(f"torch.softmax({scores}, -1)", f"torch.softmax({scores}, -1)",
                   f"F.softmax({scores}, dim=-1, dtype=torch.float32).to({q}.dtype)",
                   f"torch.softmax({scores}, -1).nan_to_num()",
                   f"torch.log_softmax({scores}, -1).exp()", f"torch.softmax({scores}, -2)")
    more = g.of("", ", is_causal=True", f", attn_mask={mask}", f", attn_mask={causal}",
                f", scale={g.of('0.3', '1.0', s)}", ", enable_gqa=True", f", attn_mask={g.b()}",
                f", attn_mask={mask}, scale=0.5",
                f", attn_mask=({causal}) & {g.b()}", ", is_causal=True, enable_gqa=True",
                f", attn_mask=torch.zeros({l}, {m}, dtype={q}.dtype).masked_fill(~({causal}), {lowest})")
    return g.of(f"{weights} @ {v}", f"{weights} @ {v}", f"torch.einsum('...ij,...jd->...id', {weights}, {v})",
                f"({v}.mT @ {weights}.mT).mT", f"F.scaled_dot_product_attention({q}, {k}, {v}{more})",
                f"F.scaled_dot_product_attention({q}, {k}, {v}{more})",
                f"F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in ({q}, {k}, {v})){more}).transpose(1, 2)",
                f"({weights}).contiguous().matmul({v})")


def branch(g):
    """Of what a condition chooses; a loop; a scan."""
    a, m = g.f(), g.f(1)
    return g.r.choice([
        lambda: f"cond({a}.sum() > {g.c()}, lambda a: a * 2, lambda a: a - 1, ({a},))",
        lambda: f"cond({m}.shape[0] > 3, lambda a: a.relu(), lambda a: a.sin() + 1, ({m},))",
        lambda: f"cond({a}.mean() < 0, lambda a, b: a + b, lambda a, b: b.exp() * a, ({a}, {g.like(a)}))",
        lambda: f"while_loop(lambda k, a: k < 3, lambda k, a: (k + 1, a * 0.5 + k), (torch.tensor(0), {a}))[1]",
        lambda: f"scan(lambda c, x: (c * 0.5 + x, c + x), {m}[0].clone(), {m})[{g.of('0', '1')}]",
        lambda: f"map_over(lambda x: x.relu() + x.sum(), {m})",
        lambda: f"map_over(lambda x, y: x * y, {m}, {g.f()})",
    ])()


def write(g):
    """In place, out of a view as well."""
    v = g.x()
    o, d = g.like(v), g.dim(v)
    f = g.f()
    part = f"{v}[{index(g, v)}]" if g.t(v).dim() else f"{v}[...]"
    at = f"torch.arange({v}.shape[0])" + g.of("", ".flip(0)", "[::2]", "[1:]")
    return g.r.choice([
        lambda: f"{part} {g.of('+=', '*=', '-=')} {g.of(o, g.c(), f + '.mean()')}",
        lambda: f"{part} = {g.of(o, g.c())}", lambda: f"{part} = {g.x()}",
        lambda: f"{v}.{g.of('add_', 'mul_', 'sub_')}({g.of(o, g.c(), '2')})",
        lambda: f"{f}.{g.of('relu_', 'tanh_', 'sigmoid_', 'abs_', 'neg_', 'exp_', 'floor_', 'zero_', 'square_')}()",
        lambda: f"{v}.copy_({g.x()})", lambda: f"{part}.copy_({o})", lambda: f"{v}.masked_fill_({g.b()}, {g.c()})",
        lambda: f"{part}.masked_fill_({g.b()}, {g.c()})", lambda: f"{part}.fill_({g.c()})",
        lambda: f"{v}.index_put_(({at},), {o}, accumulate={g.either()})",
        lambda: f"{v}[{g.i()} % {v}.shape[0]] = {g.c()}", lambda: f"{v}[{g.b()}] = {g.c()}",
        lambda: f"{part}.zero_()",
        lambda: f"{v}.scatter_({d}, {v}.argsort(dim={d}, stable=True), {o})",
        lambda: f"{v}.index_fill_({d}, torch.tensor([0]), {g.c()})", lambda: f"{v}.index_copy_(0, {at}, {o})",
        lambda: f"{v}.clamp_({g.of('-1', '0')}, 1)",
        lambda: f"{v}.transpose(0, -1).add_({g.c()})",
        lambda: f"{v}.view(-1)[{g.of('::2', '1:', '0', '-1', ':3')}].mul_({g.of('2', '3')})",
        lambda: f"{v}.diagonal().fill_({g.c()})", lambda: f"{v}.unbind({d})[0].add_(1)",
        lambda: f"{v}.chunk(2, {d})[{g.of('0', '-1')}].mul_({g.of('2', '-1')})",
        lambda: f"{v}.select({d}, -1).copy_({g.x()})", lambda: f"{v}.lerp_({o}, 0.25)",
        lambda: f"{f}.addcmul_({g.like(f)}, {g.like(f)}, value=0.5)",
        lambda: f"{v}.flatten().add_(1)", lambda: f"{v}.reshape(-1)[0].add_(1)", lambda: f"{v}.squeeze().sub_(1)",
        lambda: f"{v}.as_strided((2,), (1,), {g.of('0', '1')}).add_({g.c()})",
        lambda: f"self.{g.r.choice(sorted(g.p.buffers))}.add_({g.of('1', '0.5')})",
        lambda: f"{v}.index_add_(0, {at}, {o})", lambda: f"{v}.unfold({d}, 2, 2).mul_({g.of('2', '0')})",
        lambda: f"{v}.masked_scatter_({g.b()}, {o}.clone())",
        lambda: f"{v}.scatter_add_({d}, {o}.argsort(dim={d}, stable=True), {o})",
        lambda: f"{v}.narrow({d}, 0, 1).sub_({o}.sum())", lambda: f"{v}.real.add_(1)",
    ])()


MAKERS = [(unary, 9), (binary, 10), (scalars, 9), (bits, 2), (cast, 4), (reduction, 7), (view, 16), (moved, 6),
          (picked, 8), (ordered, 4), (created, 4), (product, 6),
          (norm, 6), (image, 4), (attention, 5), (branch, 0.4), (write, 12), (families.complexes, 1),
          (families.formats, 2), (families.controlled, 0.4), (families.recurrent, 0.5), (families.volumes, 2),
          (families.scattered, 4), (families.sorted_out, 4), (families.integers, 5), (families.promoted, 5),
          (families.losses, 2), (families.einsums, 2), (families.special, 3)]
THEMES = {"any": {}, "attention": {attention: 40, norm: 12, view: 24}, "image": {image: 40},
          "writes": {write: 60, view: 40}, "index": {picked: 40, ordered: 15}, "branch": {branch: 20},
          "complex": {families.complexes: 60}, "formats": {families.formats: 50, write: 40},
          "control": {families.controlled: 25}, "recurrent": {families.recurrent: 25},
          "volumes": {families.volumes: 60}, "scattered": {families.scattered: 40, families.sorted_out: 20},
          "integers": {families.integers: 40, bits: 10, cast: 10}, "promoted": {families.promoted: 60, cast: 10},
          "losses": {families.losses: 20, families.einsums: 15, families.special: 30}}
# Seeds from WIDE on draw of these, too. They have been run less: some of what differs is PyTorch's own (what a
# transform makes of an infinity, the sign of an angle of -0), so that CI has none of them.
WIDE = 1_000_000
WIDE_MAKERS = [(families.algebra, 2), (families.arranged, 6), (families.reduced, 5), (families.in_place, 5),
               (families.transforms, 1), (families.rarer, 4)]
WIDE_THEMES = {"algebra": {families.algebra: 60}, "arranged": {families.arranged: 60},
               "reduced": {families.reduced: 60}, "in place": {families.in_place: 60},
               "transforms": {families.transforms: 60}, "rarer": {families.rarer: 60}}


# ------------------------------------------------------------------ making
def inputs_of(g, theme):
    """Inputs and the sizes of each run: the export's, odd ones, and ones."""
    r, p = g.r, g.p
    dtype = r.choice(FLOATS)
    how = lambda: r.choice(["plain"] * 5 + ["odd"])
    n, m = "n", "m"
    p.sizes = [dict(n=r.choice((2, 4, 5)), m=r.choice((3, 6, 8))), dict(n=3, m=7),
               dict(n=r.choice((1, 2)), m=r.choice((1, 5)))]
    if theme == "attention":
        heads = r.choice([2, 2, 4, "n"])
        shape = r.choice([[n, heads, m, 4], [n, m, 4], [n, heads, m, 8]])
        dims = [shape, shape if r.random() < 0.6 else [*shape[:-2], r.choice((n, 3, m)), shape[-1]]]
        dims += [dims[1]] if r.random() < 0.7 else []
        p.inputs.update({f"x{k}": (dtype, d, "plain") for k, d in enumerate(dims)})
        mask = r.choice([[m, m], [n, 1, 1, m], [n, 1, m, m], [m], [1, 1, m, m], [n, m]])
        p.inputs["mask"] = r.choice([dtype, "bool", "bool", "float32", "int64"]), mask, "plain"
        return
    shapes = {"image": [[n, 4, m, 6], [n, 2, m, m], [2, 4, m, n], [n, 4, m], [n, 4, 8, 8]],
              "volumes": [[n, 4, m, 6], [n, 2, m], [n, 3, 3, m, 4], [n, 4, 8, 8], [2, 4, 4, m, n]],
              "formats": [[n, 4, m, 6], [n, m, 4], [n, 2, m, m], [n, m]], "recurrent": [[n, m, 4], [n, m, 3]],
              "integers": [[n, m], [m]]}
    if theme in shapes:
        p.inputs["x0"] = r.choice(INTEGERS) if theme == "integers" else dtype, r.choice(shapes[theme]), "plain"
    for k in range(len(p.inputs), r.randint(2, 4)):
        kind = r.choice([dtype] * 4 + [r.choice(FLOATS), r.choice(INTEGERS), "bool"])
        rank = r.choice((0, 1, 2, 2, 2, 3, 3, 4))
        dims = [r.choice((n, m, n, m, 2, 3, 4, 1)) for _ in range(rank)]
        if dims and r.random() < 0.04:
            dims[0] = 0
        p.inputs[f"x{k}"] = kind, dims, how()
    places = [r.choice((n, m, 3)) for _ in range(r.randint(1, 2))]
    p.inputs["i0"] = r.choice(["int64", "int64", "int32"]), places, "index"
    if r.random() < 0.5:
        p.inputs["b0"] = "bool", r.choice([[n], [m], [n, m], [m, n]]), "plain"
    if r.random() < 0.15:
        p.buffers["b"] = torch.ones(r.choice([(), (1,), (2,), (3,)]))


class Self:
    """What a forward function's self is while the program is made."""


def scope_of(p, k):
    scope = dict(EAGER)
    scope["self"] = Self()
    for name, t in {**p.weights, **p.buffers}.items():
        setattr(scope["self"], name, t.clone())
    scope.update(p.tensors(k))
    for name, text, _ in p.lines:
        exec(f"{name} = {text}" if name else text, scope)
    return scope


def tensors_of(scope):
    return {k: t for k, t in scope.items() if isinstance(t, torch.Tensor)}


def acceptable(t):
    return isinstance(t, torch.Tensor) and t.numel() <= LARGEST and t.dim() < 7 and t.layout == torch.strided


def tame(x):
    """Finite values stay small, and not everything becomes NaN."""
    x = x.abs() if x.is_complex() else x
    if not x.is_floating_point() or not x.numel():
        return True
    finite = x.isfinite()
    return bool(finite.any()) and x[finite].abs().max().item() < 1e4


def reads(text, names):
    return [n for n in dict.fromkeys(re.findall(r"\b[a-z]+\d*\b", text)) if n in names]


def propose(g, maker, scopes):
    """A line that PyTorch takes: it is run in every scope, and those that it failed in are made again."""
    g.new = {}
    text = maker(g)
    weights = {n: w for n, w in g.new.items() if re.search(rf"self\.{n}\b", text)}
    name = None if maker in (write, families.in_place) else f"v{sum(1 for line in g.p.lines if line[0])}"
    code = compile(f"{name} = {text}" if name else text, "<line>", "exec")
    for scope in scopes:
        for n, (w, _) in weights.items():
            setattr(scope["self"], n, w.clone())
    done = []
    for k, scope in enumerate(scopes):
        try:
            exec(code, scope)
            values = [scope[name]] if name else list(tensors_of(scope).values())
            fine = all(acceptable(t) and tame(t) for t in values)
        except Exception:
            fine = False
        done.append(fine)
        if not fine and (k == 0 or g.r.random() < 0.7):
            break
    if done[0] and len(done) == len(scopes) and sum(done) >= min(2, len(scopes)):
        g.p.lines.append((name, text, reads(text, g.envs[0])))
        for n, (w, buffer) in weights.items():
            (g.p.buffers if buffer else g.p.weights)[n] = w
        for k in reversed(range(len(scopes))):
            if not done[k]:
                del scopes[k], g.p.sizes[k]
        return True
    for k in range(len(done)):  # a write may have happened
        if name:
            scopes[k].pop(name, None)
        else:
            scopes[k] = scope_of(g.p, k)
    return False


def make(seed):
    """The program of a seed, or None where nothing came of it."""
    torch.set_grad_enabled(False)
    g = Drawing(seed)
    themes = THEMES | WIDE_THEMES if seed >= WIDE else THEMES
    theme = g.r.choice(list(themes))
    inputs_of(g, theme)
    weights = dict(MAKERS + WIDE_MAKERS if seed >= WIDE else MAKERS)
    for maker, w in themes[theme].items():
        weights[maker] = w
    scopes = [scope_of(g.p, k) for k in range(len(g.p.sizes))]
    wanted = g.r.randint(5, 25)
    for _ in range(wanted * 6):
        g.envs = [tensors_of(s) for s in scopes]
        try:
            propose(g, g.r.choices(list(weights), list(weights.values()))[0], scopes)
        except (LookupError, SyntaxError):
            pass
        if len(g.p.lines) >= wanted:
            break
    p = g.p
    made = [name for name, _, _ in p.lines if name]
    if not made:
        return None
    read = {n for _, _, names in p.lines for n in names}
    p.outputs = [n for n in made if n not in read or g.r.random() < 0.15]
    written = {names[0] for name, _, names in p.lines if name is None and names}
    p.outputs += [n for n in p.inputs if n in written]
    p.outputs = p.outputs[-12:] or made[-1:]
    p.complex = {n for n, t in tensors_of(scopes[0]).items() if t.is_complex()}
    p.loss = any(tensors_of(scopes[0])[n].is_floating_point() and tensors_of(scopes[0])[n].numel() for n in p.outputs)
    return p
