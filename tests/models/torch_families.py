"""Families of calls that random functions of PyTorch (torch_programs.py) are made of, beside its pointwise ones, views
and writes: complex numbers, layouts in memory, recurrent layers, volumes, control flow, integers, losses. One of them:

    losses(g)   ->   "F.smooth_l1_loss(v3, v1, reduction='none', beta=0.5)"
"""
import re

EINSUMS = ("ij,jk->ik", "ij,kj->ik", "ij->ji", "ij->j", "ij->", "ii->i", "ii", "i,j->ij", "ij,ij->i", "ij,ij->ij",
"ij,j",
           "bij,bjk->bik", "bij,bkj->bki", "bij,bij->bi", "bij->bji", "bij,jk->bik", "bij,ik->bjk", "bii->bi", "bij->b",
           "bhij,bhjk->bhik", "bihd,bjhd->bhij", "bhij,bjhd->bihd", "...ij,...jk->...ik", "...i,...i", "...ij->...ji",
           "b...,b...->b", "ij,jk,kl->il", "bi,ij,bj->b", "bij,bik,bjk->b", "i...->...i", "bijk,bljk->bil",
           "ij,ij,ij->ij")
PADS = ("reflect", "replicate", "circular", "constant")


def complexes(g):
    """Complex numbers, out of floats and back; those of half are left alone."""
    try:
        z = g.z()
    except LookupError:
        z = None
    f = g.calm(1)    # PyTorch spreads a NaN or infinity of one part to the other
    if z is None or g.r.random() < 0.15:
        o = g.calm()
        return g.of(f"torch.complex({f}, {o})", f"torch.polar({f}.abs(), {o})",
                    f"torch.fft.fft({f}, dim={g.dim(f)})",
                    f"torch.fft.rfft({f}, dim={g.dim(f)})", f"torch.view_as_complex(torch.stack([{f}, {o}], -1))",
                    f"{f} * {g.of('1j', '(0.5-2j)')}", f"{f}.to(torch.complex{g.of(64, 128)})",
                    f"torch.fft.fft2({f})", f"torch.fft.ifft({f})")
    d, p, c = g.dim(z), g.like(z), g.of("1j", "(1-2j)", "2", "0.5")
    fft = f"torch.fft.{g.of('fft', 'ifft', 'irfft', 'hfft')}({z}, dim={d}, norm={g.word('ortho forward backward')})"
    return g.of(f"{z} * {p}", f"{z} + {p}", f"{z} - {f}", f"{z} / {p}", f"{f} * {z}", f"{z} @ {p}.mT", f"{z} @ {p}.mH",
                f"{z}.abs()", f"{z}.angle()", f"{z}.real", f"{z}.imag", f"{z}.conj()", f"torch.{complex_math(g)}({z})",
                f"{z}.sum({d})", f"{z}.mean({d})", f"{z}.prod({d})", f"{z}.cumsum({d})",
                f"torch.where({g.b()}, {z}, {p})", f"torch.where({g.b()}, {z}, {c})", f"{c} - {z}",
                f"torch.rsub({z}, {p}, alpha=2)", f"{z} ** {c}",
                f"{z} ** {p}", f"torch.pow({c}, {z})", fft, fft, f"torch.view_as_real({z}.resolve_conj())",
                f"torch.view_as_real({z}.resolve_conj())", f"{z} == {p}", f"torch.sgn({z})",
                f"{z}.masked_fill({g.b()}, {c})", f"{z} * {c}", f"{z} / {f}", f"torch.isfinite({z})",
                f"torch.einsum('...i,...i->...', {z}, {p})", f"torch.cat([{z}, {f}], {d})", f"{z}.var({d})",
                f"torch.stack([{z}, {p}])", f"torch.linalg.vector_norm({z})", f"{z}.flip({d}).roll(1, {d})")


def complex_math(g):
    return g.of("exp", "sin", "cos", "tanh", "sqrt", "log", "reciprocal", "square", "sigmoid", "neg", "tan", "sinh",
                "cosh", "rsqrt", "log1p", "expm1", "angle")


def formats(g):
    """Results whose strides are not those of their shape, which writes and views meet."""
    v = g.x(2)
    order = g.r.sample(range(g.t(v).dim()), g.t(v).dim())
    turned = f"{v}.permute({', '.join(map(str, order))})"
    t = g.t(v).permute(order)
    c = t.shape[1]
    turned = g.of(turned, turned, f"{v}.to(memory_format=torch.channels_last)" if len(order) == 4 else turned)
    if not turned.startswith(f"{v}.permute"):
        c = g.t(v).shape[1]
    n = {3: "1d", 4: "2d"}.get(len(order), "2d")
    own = "memory_format=torch.channels_last"
    return g.r.choice([
        lambda: turned, lambda: f"{turned} + 1", lambda: f"{turned}.clone()", lambda: f"{turned}.relu()",
        lambda: f"torch.zeros_like({turned})", lambda: f"{turned}.to(torch.float64)",
        lambda: f"F.batch_norm({turned}, {g.w(c, buffer=True)}, {g.w(c, buffer=True)}.abs(), {g.w(c)})",
        lambda: f"F.batch_norm({turned}, None, None, training=True)",
        lambda: f"F.max_pool{n}({turned}, {g.of(2, 3)}, 1)", lambda: f"F.avg_pool{n}({turned}, 2)",
        lambda: f"F.conv{n}({turned}, {g.w(4, c, *[1] * (len(order) - 2))})",
        lambda: f"F.conv{n}({turned}, {g.w(3, c, *[2] * (len(order) - 2))}, padding=1)",
        lambda: f"F.group_norm({turned}, 1)", lambda: f"F.group_norm({turned}, {c}, {g.w(c)})",
        lambda: f"F.adaptive_avg_pool{n}({turned}, 2)", lambda: f"F.interpolate({turned}, scale_factor=2)",
        lambda: f"{v}.contiguous({own})", lambda: f"{turned}.clone({own})",
        lambda: f"{turned}.clone(memory_format=torch.contiguous_format)", lambda: f"{turned} * {turned}.mean()",
        lambda: f"{turned} + {g.like(v)}", lambda: f"{turned}.softmax(-1)", lambda: f"{turned}.cumsum(0)",
        lambda: f"torch.where({turned} > 0, {turned}, 0)", lambda: f"F.layer_norm({turned}, {turned}.shape[-1:])",
        lambda: f"{v}.expand_as({g.like(v)}).clone()", lambda: f"F.pad({turned}, (1, 1))",
        lambda: f"torch.cat([{turned}, {turned}])", lambda: f"{v}.unfold({g.dim(v)}, 2, 1).clone()",
        lambda: f"torch.empty_like({turned}).copy_({turned})", lambda: f"{turned}.flatten()",
        lambda: f"{turned}.index_select(0, torch.tensor([0, 0]))", lambda: f"{turned}.sum(0, keepdim=True)",
        lambda: f"{turned}.masked_fill({g.b()}, 1)", lambda: f"{turned}.flip(0)", lambda: f"{turned}.tril()",
        lambda: f"F.pixel_shuffle({turned}, 2)", lambda: f"{turned}.squeeze()", lambda: f"{turned}.sort(-1).values",
        lambda: f"torch.full_like({turned}, 2)", lambda: f"{turned}.new_ones({turned}.shape)",
        lambda: f"F.instance_norm({turned})", lambda: f"{turned}.reshape(-1)", lambda: f"{turned}.diagonal(0, 0, -1)",
    ])()


def controlled(g):
    """Of what a condition chooses, one in another; loops; scans."""
    a, m = g.f(), g.f(1)
    o, c = g.like(a), g.of("0.5", "2", "-1")
    step = g.of(f"(c * {c} + x, c + x)", "(c + x.sum(), c * x)", "((c + x).tanh(), x - c)")
    join = g.of("x + y", "x * y", "torch.maximum(x, y)", "x + y * 0.5")
    return g.r.choice([
        lambda: f"cond({a}.sum() > {c}, lambda a: cond(a.mean() > 0, lambda a: a + 1, lambda a: a.sin(), (a,)), "
                f"lambda a: a * {c}, ({a},))",
        lambda: f"cond({g.b()}.any(), lambda a, b: (a * b, a + 1), lambda a, b: (a - b, b.exp()), ({a}, {o}))"
                f"[{g.of(0, 1)}]",
        lambda: f"cond({m}.shape[0] > 3, lambda a: a.sum(0), lambda a: a.amax(0), ({m},))",
        lambda: f"while_loop(lambda k, a: (k < 4) & (a.sum() < 50), lambda k, a: (k + 1, a * {c} + k), "
                f"(torch.tensor(0), {a}))[{g.of(0, 1)}]",
        lambda: f"while_loop(lambda a, b: b.abs().sum() > 1, lambda a, b: (a + b, b * 0.5), "
                f"({a}, {a}.nan_to_num(0, 1, 1)))[0]",
        lambda: f"scan(lambda c, x: {step}, {m}[0].clone(), {m})[{g.of('0', '1')}]",
        lambda: f"map_over(lambda x: {g.of('x.softmax(-1)', 'x.cumsum(0)', 'x * x.mean()', 'x.flip(0)')}, {m})",
        lambda: f"map_over(lambda x, y: x {g.of('+', '*', '-')} y, {m}, {a})",
        lambda: f"associative_scan(lambda x, y: {join}, {m}, {g.dim(m)})",
        lambda: f"associative_scan(lambda x, y: {join}, {m}, 0)",
    ])()


def recurrent(g):
    """Layers of torch.nn as their functions."""
    x = g.finite(3, 3)  # ONNX Runtime's layers stop a NaN
    i, h = g.t(x).shape[-1], g.of(2, 3, 4)
    kind, sides, layers = g.of("gru", "lstm", "lstm", "rnn_tanh", "rnn_relu"), g.of(1, 2), g.of(1, 1, 2)
    gates = {"gru": 3, "lstm": 4}.get(kind, 1)
    proj = g.of(0, 0, h - 1) if kind == "lstm" else 0
    out, bias, first = proj or h, g.r.random() < 0.7, g.either()
    weights = []
    for layer in range(layers):
        for _ in range(sides):
            weights += [g.w(gates * h, i if not layer else out * sides), g.w(gates * h, out)]
            weights += [g.w(gates * h), g.w(gates * h)] if bias else []
            weights += [g.w(proj, h)] if proj else []
    n = f"{x}.shape[{0 if first == 'True' else 1}]"
    zeros = f"{x}.new_zeros({layers * sides}, {n}, {out})"
    state = f"({zeros}, {x}.new_ones({layers * sides}, {n}, {h}))" if kind == "lstm" else zeros
    said = f"{x}, {state}, [{', '.join(weights)}], {bias}, {layers}, 0.0, False, {sides == 2}, {first}"
    if g.r.random() < 0.15:
        v = g.f(2, 2)
        k = g.t(v).shape[-1]
        return (f"torch.gru_cell({v}, {v}.new_ones({v}.shape[0], {h}), {g.w(3 * h, k)}, {g.w(3 * h, h)}, {g.w(3 * h)}, "
                f"{g.w(3 * h)})")
    return f"torch.{kind}({said})[{g.of('0', '0', '1')}]"


def volumes(g):
    """Windows over lines, pictures and volumes, and what is put around them."""
    v = g.finite(3, 5)
    t = g.t(v)
    n = t.dim() - 2
    c, d = t.shape[1], f"{n}d"
    k, mode = [g.of(1, 2, 3) for _ in range(n)], {1: "linear", 2: g.of("bilinear", "bicubic"), 3: "trilinear"}[n]
    size = g.of(f"scale_factor={g.of(2, 0.5, 1.5, 0.7)}", f"size={tuple(g.of(2, 3, 5) for _ in range(n))}",
                f"size=[{', '.join(f'{v}.shape[{2 + k}] + {g.of(0, 1)}' for k in range(n))}]")
    pads = ", ".join(g.of("0", "1", "2", "1") for _ in range(2 * g.of(n, n, 1)))
    stride, groups = g.of(1, 2), g.of(1, 1, c)
    return g.r.choice([
        lambda: f"F.conv{d}({v}, {g.w(2 * groups, c // groups, *k)}, {g.w(2 * groups)}, {stride}, {g.of(0, 1)}, "
                f"{g.of(1, 1, 2)}, {groups})",
        lambda: f"F.conv_transpose{d}({v}, {g.w(c, 2, *k)}, {g.w(2 * groups)}, {stride}, {g.of(0, 0, 1)}, "
                f"{stride - 1}, {groups}, {g.of(1, 1, 2)})",
        lambda: f"F.conv{d}({v}, {g.w(2, c, *k)}, padding={g.word('same valid')}, dilation={g.of(1, 2)})",
        lambda: f"F.interpolate({v}, {size}, mode='{mode}', align_corners={g.either()})",
        lambda: f"F.interpolate({v}, {size}, mode={g.word('nearest nearest-exact area')})",
        # two columns and more: of one, PyTorch's kernel is wrong (docs/OPINFO.md)
        lambda: f"F.interpolate(F.pad({v}, (2, 2)), {size}, mode='{mode}', antialias=True)" if n == 2
        else f"F.interpolate({v}, {size})",
        lambda: f"F.pad({v}, ({pads}), mode='{g.of(*PADS)}')", lambda: f"F.pad({v}, ({pads}), mode='{g.of(*PADS)}')",
        lambda: f"F.max_pool{d}({v}, 2, {g.of(1, 2)}, {g.of(0, 1)}, {g.of(1, 2)}, ceil_mode={g.either()})",
        lambda: f"F.max_pool{d}({v}, 2, return_indices=True)[{g.of(0, 1)}]",
        lambda: f"F.avg_pool{d}({v}, {g.of(2, 3)}, {g.of(1, 2)}, 1, {g.either()}, {g.either()})",
        lambda: f"F.adaptive_{g.of('avg', 'max')}_pool{d}({v}, {tuple(g.of(1, 2, 3, 4) for _ in range(n))})",
        lambda: f"F.max_unpool{d}(*F.max_pool{d}({v}, 2, return_indices=True), 2)",
        lambda: f"F.lp_pool{d}({v}, {g.of(1, 2, 3)}, 2)",
        lambda: f"F.instance_norm({v}, weight={g.w(c)}, bias={g.w(c)})",
        lambda: f"F.fold(F.unfold({v}, 2, padding=1), {v}.shape[-2:], 2, padding=1)" if n == 2
        else f"F.local_response_norm({v}, 2)",
        lambda: f"F.affine_grid({v}.new_ones(2, 2, 3), (2, {c}, 3, 4))",
    ])()


def scattered(g):
    """Writes by index, of which several may go to one place where their order does not matter."""
    v = g.n(0)
    s, d = g.like(v), g.dim(v)
    i = g.places()
    n = f"max({v}.shape[{d}], 1)" if g.t(v).dim() else "1"
    at = g.of(f"({v}.argsort(dim={d}, stable=True) // {g.of(1, 2, 3)})", f"({i} % {n})")
    kind = g.word("sum prod mean amax amin")
    rows = f"({g.i(1)}.flatten() % {v}.shape[0])"
    return g.r.choice([
        lambda: f"{v}.scatter_add({d}, {at}, {s})", lambda: f"{v}.scatter_add({d}, {at}, {v})",
        lambda: f"{v}.scatter_reduce({d}, {at}, {s}, {kind}, include_self={g.either()})",
        lambda: f"{v}.scatter({d}, {at}, {g.c()})", lambda: f"{v}.scatter({d}, {at}, {g.of(2, 3)}, reduce='multiply')",
        lambda: f"{v}.index_put(({rows},), {s}.flatten()[0], accumulate=True)",
        lambda: f"{v}.index_put(({rows}, {rows} % {v}.shape[-1]), torch.tensor(2).to({v}.dtype), accumulate=True)",
        lambda: f"{v}.index_add({d}, {at}.flatten()[:1], {v}.narrow({d}, 0, 1), alpha={g.of(2, -1)})",
        lambda: f"{v}.index_reduce(0, {rows}[:1], {v}[:1], {g.word('prod mean amax amin')}, include_self={g.either()})",
        lambda: f"{v}.index_fill({d}, {at}.flatten(), {g.c()})",
        lambda: f"{v}.masked_scatter({g.b()}, {s})", lambda: f"torch.select_scatter({v}, {s}.sum(), {d}, 0)",
        lambda: f"torch.select_scatter({v}, {v}.select({d}, 0) * 2, {d}, -1)",
        lambda: f"torch.slice_scatter({v}, {v}.narrow({d}, 0, 1) + 1, {d}, {g.of(0, 1)}, {g.of(1, 2)})",
        lambda: f"torch.diagonal_scatter({v}, {v}.diagonal() + 1)",
        lambda: f"torch.take_along_dim({v}, {i} % {n}, {d})",
        lambda: f"{v}.put({i} % {v}.numel(), {v}.flatten()[0].expand({i}.shape), accumulate=True)",
        lambda: f"torch.bincount({i}.flatten().abs(), minlength={g.of(0, 4)})[:2]",
        lambda: f"torch.histc({g.finite()}.float(), 4, -2, 2)", lambda: f"{v}.gather({d}, {at})",
        lambda: f"torch.unique({i}, return_counts=True)[1].sum()", lambda: f"torch.unique({i}).sum()",
        lambda: f"torch.unique_consecutive({i}.flatten(), return_inverse=True)[1]",
        lambda: f"F.embedding_bag({g.places(2)} % 5, {g.w(5, 3)}, mode={g.word('sum mean max')})",
        lambda: f"F.embedding_bag({g.places(1)} % 5, {g.w(5, 3)}, torch.tensor([0, 1, 1]), "
                f"mode={g.word('sum mean max')})",
        lambda: f"torch.isin({i}, {g.places()})", lambda: f"{v}[{i} % {v}.shape[0]]",
    ])()


def sorted_out(g):
    """Orders, their values alone where there are ties."""
    v, f = g.n(1), g.f(1)
    d = g.dim(v)
    return g.of(f"{v}.sort({d}, descending={g.either()}).values", f"torch.msort({v})", f"{v}.cummin({d}).values",
                f"{v}.cummax({d}).values", f"{v}.topk(1, {d}, largest={g.either()}).values", f"{v}.mode({d}).values",
                f"{v}.kthvalue({g.of(1, 2)}, {d}).values", f"{f}.nanmedian(-1).values", f"{f}.median(0).values",
                f"torch.quantile({g.wide(1)}, {g.of(0.5, 0.25, 1.0)}, dim=-1, "
                f"interpolation={g.word('linear lower higher')})",
                f"torch.nanquantile({g.wide(1)}, 0.3, -1)", f"{v}.unique().sort().values.sum()",
                f"torch.cumprod({v}, {d})", f"{v}.cumsum({d}, dtype=torch.{g.of('float64', 'float32', 'int64')})",
                f"torch.diff({v}, n=2, dim={d})", f"torch.diff({v}, dim={d}, prepend={v}.narrow({d}, 0, 1))",
                f"torch.cumulative_trapezoid({f})", f"torch.logcumsumexp({f}, {g.dim(f)})",
                f"{v}.argsort(dim={d}, descending=True, stable=True)",
                f"{v}.cumprod({d}).cumsum({d})", f"{v}.sum({d}, dtype=torch.float64)", f"torch.renorm({f}, 2, 0, 1.0)",
                f"{v}.prod({d}, keepdim=True)", f"torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), {f}, right=True)",
                f"torch.std_mean({f}, {g.dim(f)})[{g.of(0, 1)}]",
                f"torch.var({f}, {g.dim(f)}, correction={g.of(0, 1, 2)})",
                f"{v}.argmax({d})" if g.t(v).is_floating_point() else f"{v}.amax({d})")


def integers(g):
    """Arithmetic of whole numbers, which wraps, and of truth values."""
    i = g.whole()
    b = f"({i} {g.of('>', '<', '==')} {g.of(0, 1, 2)})"
    o, c = g.like(i), g.of("2", "3", "-3", "-2", "7", "100")
    odd = f"({o} | 1)"
    kind = f"torch.{g.of('int8', 'uint8', 'int16', 'int32', 'int64')}"
    return g.of(f"{i} // {c}", f"{i} % {c}", f"torch.div({i}, {c}, rounding_mode={g.word('trunc floor')})",
                f"torch.div({i}, {odd}, rounding_mode={g.word('trunc floor')})", f"torch.remainder({i}, {odd})",
                f"torch.fmod({i}, {odd})", f"{i} % {odd}", f"{i} // {odd}", f"{i}.to({kind}) * {c}",
                f"{i}.to({kind}) * 100 + {c}", f"{i}.to(torch.uint8) - 3", f"-{i}.to({kind})", f"{i} << {g.of(1, 2)}",
                f"{i} >> {g.of(1, 2)}", f"{i}.to({kind}).sum({g.dim(i)})", f"{i}.to({kind}).prod({g.dim(i)})",
                f"{i}.to({kind}).cumsum({g.dim(i)})", f"{i} ** {g.of(2, 3)}", f"torch.gcd({i}, {o})",
                f"torch.lcm({i}, {o})", f"{i}.abs()", f"{i}.sign()", f"~{i}", f"{i} & {o}", f"{i} | {c}", f"{i} ^ {o}",
                f"{i} / {c}", f"{i} / {odd}", f"{i} > {g.of('0.5', '2', '-1')}", f"{b} + {b}", f"{b} * {i}",
                f"{b} & ({i} > 0)", f"{b}.sum()", f"{b} ^ True",
                f"{b}.cumsum(0)", f"{b} * 2.5", f"1 - {b}.int()", f"{b}.logical_not()", f"{b}.to({kind}) - 1",
                f"{i}.clamp({g.of('-1', '0')}, {g.of('1', '2')})", f"{i}.clamp(0.5, 1.5)", f"torch.maximum({i}, {o})",
                f"{b}.any({g.dim(b)})", f"{b}.prod(0)", f"{i}.float().mean()", f"torch.bitwise_not({i})",
                f"torch.floor_divide({i}, {c})", f"torch.mul({i}, 0.5)", f"{i}.square()", f"{i}.neg()", f"{i} @ {o}.mT",
                f"torch.bitwise_right_shift({i}, 1)", f"{b} == {b}", f"{b} < {i}", f"{i}.amin()",
                f"{i}.bool()", f"torch.pow({c}, {i}.abs() % 4)", f"{i}.to({kind}) // {c}", f"{i}.to({kind}) % {c}",
                f"torch.where({b}, {i}, {o})", f"{i}.to({kind}).bitwise_xor({b})", f"torch.add({i}, {o}, alpha={c})")


def promoted(g):
    """Of two dtypes, of which one is a number's or of no dimensions."""
    v, w = g.x(), g.x()
    kind = f"torch.{g.of('float64', 'float16', 'int8', 'uint8', 'int64', 'bool', 'bfloat16', 'int16', 'float32')}"
    zero = f"torch.tensor({g.of('2', '1', '0', '3')}, dtype={kind})"
    n = g.of("0.5", "2", "True", "30", "-1", "1.5")
    return g.of(f"{v} + {zero}", f"{v} * {zero}", f"{zero} - {v}", f"{v} * {n}", f"{v} + {n}", f"{v} / {n}",
                f"{v} + {w}.sum()", f"torch.where({v} > 0, {v}, {n})", f"torch.where({v} > 0, {n}, {zero})",
                f"torch.maximum({v}, {zero})", f"torch.cat([{v}.flatten(), {w}.flatten()])", f"{v} == {n}",
                f"{v} < {zero}", f"{v} * {g.size()}", f"torch.full_like({v}, {n})", f"{v}.new_full((2,), {n})",
                f"torch.add({v}, {w}, alpha=2)", f"{v} ** {zero}",
                f"torch.clamp({v}, {zero}, {zero} + 1)", f"torch.clamp({v}, min={n})",
                f"torch.lerp({g.f()}, {g.f()}, {n})", f"torch.stack([{v}, {w}])",
                f"{v}.to({kind}) + {v}" if not g.t(v).is_floating_point() else f"{v}.double()",
                f"torch.addcmul({v}, {w}, {v}, value=2)", f"torch.addcdiv({g.f()}, {g.f()}, {zero} + 1.5)",
                f"{v} // {n}", f"torch.arange({g.of('0.5', '1')}, 3, {g.of('0.5', '1')}, dtype={kind}) * {n}",
                f"{v} % {zero}", f"torch.fmin({v}, {zero})", f"torch.hypot({g.f()}, {g.f()})",
                f"torch.copysign({v}, {n})", f"torch.float_power({v}, {n})", f"torch.ldexp({g.f()}, {zero})",
                f"torch.true_divide({v}, {w})", f"{v}.mul({zero}).add({n})", f"torch.atan2({v}, {w})",
                f"torch.xlogy({v}, {w})", f"torch.scalar_tensor({n})")


def losses(g):
    a = g.f()
    b, how = g.like(a), f"reduction={g.word('none mean sum')}"
    two = g.f(2, 2)
    at = f"torch.arange({two}.shape[0]) % {two}.shape[1]"
    return g.of(f"F.mse_loss({a}, {b}, {how})", f"F.l1_loss({a}, {b}, {how})",
                f"F.huber_loss({a}, {b}, {how}, delta=0.7)",
                f"F.smooth_l1_loss({a}, {b}, {how}, beta={g.of(0.5, 1, 0)})", f"F.kl_div({a}, {b}, {how})",
                f"F.kl_div({a}, {b}, {how}, log_target=True)", f"F.soft_margin_loss({a}, {b}.sign(), {how})",
                f"F.binary_cross_entropy({a}.sigmoid(), {b}.sigmoid(), {how})", f"F.poisson_nll_loss({a}, {b}, {how})",
                f"F.binary_cross_entropy_with_logits({a}, {b}, pos_weight={b}.abs(), {how})",
                f"F.cross_entropy({two}, {at}, {how}, label_smoothing={g.of(0.0, 0.1)})",
                f"F.cross_entropy({two}, {at}, ignore_index=1, {how})",
                f"F.cross_entropy({two}, {two}.softmax(-1), {how})",
                f"F.nll_loss({two}.log_softmax(-1), {at}, {how})",
                f"F.gaussian_nll_loss({a}, {b}, {b}.abs() + 0.1, {how})",
                f"F.hinge_embedding_loss({a}, {b}.sign(), {how})",
                f"F.margin_ranking_loss({a}, {b}, {b}.sign(), {how})",
                f"F.multi_margin_loss({two}, {at}, {how})", f"F.pairwise_distance({a}, {b})",
                f"F.cosine_embedding_loss({two}, {two} * 0.5, {two}[:, 0].sign(), {how})", f"F.logsigmoid({a})",
                f"F.triplet_margin_loss({a}, {b}, {a} * 2, {how})",
                f"F.multilabel_soft_margin_loss({a}, {b}.sigmoid(), {how})")


def einsums(g):
    one = g.f(1, 4)
    rank = g.t(one).dim()
    fits = [e for e in EINSUMS if "..." in e or len(re.match("[a-z]+", e)[0]) == rank]
    said = g.of(*fits)
    parts = said.split("->")[0].split(",")
    of = lambda p: (f"{one}[{', '.join(['0'] * (rank - len(p)))}]" if "." not in p and len(p) < rank else
                    g.of(one, one, f"{one}.mT" if rank > 1 else one, g.like(one)))
    return f"torch.einsum('{said}', {', '.join([one] + [of(p) for p in parts[1:]])})"


def special(g):
    f, o = g.f(), g.f()
    return g.of(f"torch.special.{special_name(g)}({f})", f"torch.special.{special_name(g)}({f})",
                f"torch.logit({f}, eps={g.of('None', '0.1')})", f"torch.nan_to_num({f}, {g.c()})",
                f"torch.frexp({f})[0]", f"F.threshold({f}, 0.1, {g.c()})", f"F.hardshrink({f})",
                f"F.softshrink({f}, 0.3)", f"F.tanhshrink({f})",
                f"F.prelu({f}, torch.tensor([0.2], dtype={f}.dtype))", f"F.rrelu({f})",
                f"F.gelu({f}, approximate='tanh')", f"torch.logaddexp2({f}, {g.like(f)})", f"torch.signbit({f})",
                f"torch.copysign({f}, {o})", f"torch.nextafter({f}, {g.like(f)})", f"torch.sinc({f})",
                f"torch.deg2rad({f})", f"torch.clamp({f}, {o}, {o} + 1)",
                f"torch.acos({f}.clamp(-1, 1))", f"torch.asin({f})", f"torch.acosh({f})", f"torch.atanh({f})",
                f"torch.lerp({f}, {g.like(f)}, {g.like(f)})", f"torch.polygamma(1, {f})",
                f"torch.isclose({f}, {g.like(f)})", f"F.softplus({f}, 2, 1)", f"F.hardtanh({f}, -0.5, 0.7)",
                f"F.elu({f}, 0.5)", f"F.leaky_relu({f}, -0.3)",
                f"torch.erfinv({f})", f"torch.lgamma({f})", f"torch.digamma({f})", f"torch.frac({f})",
                f"torch.sinh({f})", f"torch.cosh({f})", f"torch.logical_and({f}, {o})", f"F.softmax({f}, 0).cumsum(0)")


def special_name(g):
    return g.of("expit", "entr", "erfcx", "i0", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri", "exp2", "bessel_j0")


def algebra(g):
    """Of matrices: products of vectors, what solves, what is known of a square one whose eigenvalues are apart."""
    a, m = g.calm(1), g.calm(2)
    o, n = g.like(a), g.t(m).shape[-1]
    square = f"({m}.mT @ {m} * 0.1 + torch.arange(1, {n} + 1, dtype={m}.dtype).diag())"
    ones, norm = g.calm(1), g.of("'fro'", "1", "-1", "torch.inf", "-torch.inf")
    two, flat = g.calm(2), f"{a}.flatten()"
    keep = g.of("", ", keepdim=True")
    return g.r.choice([
        lambda: f"torch.linalg.det({square})", lambda: f"torch.linalg.slogdet({square})[{g.of(0, 1)}]",
        lambda: f"torch.logdet({square})", lambda: f"torch.linalg.inv({square})", lambda: f"torch.inverse({square})",
        lambda: f"torch.linalg.solve({square}, {m}.mT)", lambda: f"torch.linalg.solve({square}, {m}.mT, left=True)",
        lambda: f"torch.linalg.cholesky({square})", lambda: f"torch.cholesky_inverse({square})",
        lambda: f"torch.linalg.cholesky({square}, upper=True)", lambda: f"torch.linalg.matrix_exp({square} * 0.1)",
        lambda: f"torch.cholesky_solve({m}.mT, torch.linalg.cholesky({square}))",
        lambda: f"torch.linalg.solve_triangular({square}.{g.of('triu', 'tril')}(), {m}.mT, upper={g.either()})",
        lambda: f"torch.linalg.solve_triangular({square}.triu(), {m}, upper=True, left=False)",
        lambda: f"torch.linalg.qr({square}).R.abs()", lambda: f"torch.linalg.svdvals({m})",
        lambda: f"torch.linalg.eigvalsh({square})", lambda: f"torch.linalg.eigh({square}).eigenvalues",
        lambda: f"torch.linalg.pinv({square})", lambda: f"torch.linalg.matrix_power({square}, {g.of(0, 2, 3, -1)})",
        lambda: f"torch.matrix_power({square}, {g.of(1, 2)})", lambda: f"torch.linalg.multi_dot([{m}, {m}.mT, {m}])",
        lambda: f"torch.linalg.matrix_norm({m}, {norm}{keep})", lambda: f"torch.linalg.norm({m}, {norm})",
        lambda: f"torch.linalg.norm({a}, {g.of(2, 1, 0, 3, 'torch.inf')}, dim={g.dim(a)}{keep})",
        lambda: f"torch.linalg.vector_norm({a}, {g.of(2, 0, 1.5, '-torch.inf')}, dim={g.dims(a)}{keep}, "
                f"dtype=torch.float64)",
        lambda: f"torch.linalg.matrix_norm({m}, 'nuc')",
        lambda: f"{m}.norm({g.of(1, 2, repr('fro'))}, dim={g.dim(m)})",
        lambda: f"torch.linalg.cross({a}, {o}, dim={g.dim(a)})",
        lambda: f"torch.linalg.vecdot({a}, {o}, dim={g.dim(a)})",
        lambda: f"torch.cross({a}[..., :3], {o}[..., :3], dim=-1)", lambda: f"torch.trace({m})",
        lambda: f"torch.kron({m}, {two})", lambda: f"torch.kron({a}, {ones})", lambda: f"torch.dot({flat}, {flat})",
        lambda: f"torch.vdot({flat}, {flat})", lambda: f"torch.inner({a}, {o})",
        lambda: f"torch.chain_matmul({m}, {m}.mT)",
        lambda: f"torch.addr({m}, {m}[:, 0], {m}[0], beta={g.of(1, 0.5, 0)}, alpha={g.of(1, 2)})",
        lambda: f"torch.addmv({m}[:, 0], {m}, {m}[0], beta={g.of(1, 0.5, 0)}, alpha={g.of(1, 2)})",
        lambda: f"torch.addbmm({g.calm()}, {g.calm(3)}, {g.calm(3)}.mT, beta={g.of(1, 0.5, 0)}, alpha={g.of(1, -1)})",
        lambda: f"torch.baddbmm({g.calm()}, {g.calm(3)}, {g.calm(3)}.mT, beta={g.of(0, 0.5)}, alpha={g.of(1, -1)})",
        lambda: f"torch.addmm({g.calm()}, {m}, {m}.mT, beta={g.of(0, 2)})", lambda: f"torch.mm({m}, {m}.mT)",
        lambda: f"torch.dist({a}, {o}, {g.of(2, 1, 0, 'torch.inf')})", lambda: f"torch.pdist({m}, {g.of(2.0, 1.0)})",
        lambda: f"torch.vander({a}, {g.of('', 'N=3', 'increasing=True')})", lambda: f"torch.cov({m})",
        lambda: f"torch.cov({m}, correction=0)", lambda: f"torch.corrcoef({m})",
        lambda: f"torch.linalg.vander({a}, N={g.of(2, 3)})",
        lambda: f"torch.cdist({m}, {two}, p={g.of(1.0, 2.0, 'torch.inf')})",
        lambda: f"torch.linalg.diagonal({m}, offset={g.of(0, 1, -1)})",
        lambda: f"torch.nn.functional.multi_margin_loss({m}, torch.arange({m}.shape[0]) % {n})",
        lambda: f"torch.tensordot({m}, {two}, dims=([{g.of(0, 1, -1)}], [{g.of(0, 1, -1)}]))",
        lambda: f"torch.linalg.lu_solve(*torch.linalg.lu_factor({square}), {m}.mT)",
        lambda: f"torch.linalg.tensorinv({square}, ind=1)", lambda: f"torch.linalg.matrix_rank({square})",
    ])()


def arranged(g):
    """Shapes by the functions that NumPy has names for, and what is cut along or filled around an axis."""
    v, one = g.x(), g.x(1)
    o, d, rank = g.like(v), g.dim(one), g.t(one).dim()
    s, kind = g.size(), g.of("vstack", "dstack", "column_stack", "hstack", "row_stack")
    order = g.r.sample(range(rank), rank)
    return g.r.choice([
        lambda: f"torch.{kind}([{v}, {o}])", lambda: f"torch.{kind}(({v},))",
        lambda: f"torch.concat([{one}, {one}], dim={d})",
        lambda: f"torch.concatenate([{one}, {g.like(one)}, {one}], axis={d})",
        lambda: f"{one}.moveaxis({d}, {g.dim(one)})",
        lambda: f"torch.moveaxis({one}, {tuple(order)}, {tuple(range(rank))})", lambda: f"{one}.swapdims({d}, 0)",
        lambda: f"torch.fliplr({one})", lambda: f"torch.flipud({one})", lambda: f"{v}.ravel()",
        lambda: f"torch.atleast_{g.of(1, 2, 3)}d({v})", lambda: f"torch.atleast_{g.of(1, 2, 3)}d({v}, {o})[1]",
        lambda: f"torch.cartesian_prod({g.x(1, 1)}, {g.x(1, 1)})",
        lambda: f"torch.combinations({g.x(1, 1)}, {g.of(1, 2, 3)}, {g.either()})",
        lambda: f"torch.diag({one}, {g.of(0, 1, -1)})", lambda: f"torch.diagflat({v}, {g.of(0, 1, -2)})",
        lambda: f"torch.tril_indices({s}, {g.size()}, {g.of(0, 1, -1)})",
        lambda: f"torch.triu_indices({s}, {g.size()}, offset={g.of(0, 1, -1)})",
        lambda: f"torch.{g.of('hsplit', 'vsplit', 'dsplit')}({one}, "
                f"{g.of(2, '[1]', '[1, 2]', '[0, 1]')})[{g.of(0, -1)}]",
        lambda: f"{one}.tensor_split([{g.of('1', '0, 1', '-1', '1, 2')}], {d})[{g.of(0, -1)}]",
        lambda: f"{one}.split([1, {one}.shape[{d}] - 1], dim={d})[{g.of(0, 1)}]",
        lambda: f"torch.unsafe_chunk({one}, 2, {d})[0]",
        lambda: f"torch.unsafe_split({one}, 2, dim={d})[{g.of(0, -1)}]", lambda: f"{v}.reshape_as({o})",
        lambda: f"{v}.view_as({o})", lambda: f"{v}.sum_to_size({o}.shape)",
        lambda: f"{v}.sum_to_size({', '.join(['1'] * max(g.t(v).dim() - 1, 1))})",
        lambda: f"torch.narrow_copy({one}, {d}, 0, 1)", lambda: f"torch.narrow_copy({one}, {d}, -1, 1)",
        lambda: f"torch.as_strided_scatter({one}.contiguous(), {one}.flatten()[:2], (2,), (1,), 0)",
        lambda: f"torch.diag_embed({one}, {g.of(0, 1, -1)}, {g.of(0, -1)}, {g.of(1, -2)})",
        lambda: f"{one}.diagonal({g.of(1, -1)}, {g.dim(one)}, {d})", lambda: f"{one}.flip({g.dims(one)})",
        lambda: f"{one}.roll({tuple(g.of(1, -1, 2) for _ in range(rank))}, {tuple(order)})", lambda: f"{one}.roll(1)",
        lambda: f"{one}.repeat(2, {', '.join(g.of('1', '2', '0') for _ in range(rank))})",
        lambda: f"{one}.rot90({g.of(2, 3, -1)})",
        lambda: f"{one}.repeat_interleave(torch.arange({one}.shape[{d}]), {d})[..., :1]",
        lambda: f"{one}.repeat_interleave(2)", lambda: f"torch.repeat_interleave({one}, {g.of(1, 3)}, dim={d})",
        lambda: f"{one}.unflatten({d}, (-1, 1, 1))", lambda: f"{one}.squeeze({tuple(g.dims(one))})",
        lambda: f"torch.stack([{v}, {o}, {v}], dim={g.of(-1, 0, -2)})",
        lambda: f"{one}.permute({', '.join(str(k - rank) for k in order)})",
        lambda: f"torch.gradient({g.f(1)}.float(), dim={g.of(-1, 0)})[0]",
        lambda: f"torch.gradient({g.f(1)}.float(), spacing=2.0)[0]",
        lambda: f"torch.meshgrid({g.x(1, 1)}, {g.x(0, 1)}, {g.x(1, 1)}, indexing={g.word('ij xy')})[{g.of(0, 1, 2)}]",
        lambda: f"torch.argwhere({one}).sum(0)",
        lambda: f"torch.nonzero_static({one}, size={g.of(2, 3)}, fill_value={g.of(-1, 0)})",
        lambda: f"{one}.select({d}, {g.of(0, -1)}).unsqueeze({g.of(0, -1)})", lambda: f"{v}[None, ..., None]",
        lambda: f"{v}.adjoint()", lambda: f"{v}.T" if g.t(v).dim() == 2 else f"{v}.mH", lambda: f"{v}.to({o})",
        lambda: f"{one}.take_along_dim({g.places()} % {one}.numel())",
        lambda: f"torch.trapz({g.f(1)}, dx={g.of(0.5, 2)})", lambda: f"torch.trapezoid({g.f(1)}, {g.f(1)})",
        lambda: f"{v}[:0]", lambda: f"torch.cat([{one}[:0], {one}])", lambda: f"{one}.narrow({d}, 0, 0)",
        lambda: f"F.pad({one}, ({g.of('-1, 0', '0, -1', '-1, 2')}))",
        lambda: f"F.pad({one}, (0, 0, 1, 1), value={g.c()})",
        lambda: f"torch.logspace({g.of(-1, 0, 0.5)}, {g.of(1, 2)}, {g.of(1, 4, s)}, base={g.of('2', '10', '0.5')})",
        lambda: f"torch.linspace({g.of(-1, 0, 3)}, {g.of(1, 2)}, {g.of(1, 2, 5, s)}, "
                f"dtype=torch.{g.of('float64', 'float16', 'int64')})",
        lambda: f"torch.arange({g.of(5, 0, -1)}, {g.of(-3, 0)}, {g.of(-1, -2)})",
        lambda: f"torch.eye({g.of(2, s)}, {g.size()})",
        lambda: f"torch.full(({g.of(2, 0, s)}, 2), {g.of('True', '2', 'float(-2)')}, "
                f"dtype=torch.{g.of('int32', 'float16', 'bool')})",
    ])()


def reduced(g):
    """Reductions in all the ways that their arguments are given: several axes, none, negative ones, dtypes."""
    v, f = g.x(), g.f()
    wide = g.of("float64", "float32", "int64", "float16")
    d, ds = g.dim(v), [g.of(k, k - g.t(f).dim()) for k in g.dims(f)]
    fd = g.dim(f)
    keep = g.of("", ", keepdim=True", ", keepdim=False")
    real = "" if g.t(v).is_complex() else f", dtype=torch.{wide}"
    float_kind = f"torch.{g.of('float64', 'float32', 'bfloat16')}"
    return g.r.choice([
        lambda: f"{v}.sum(dim={d}{keep}{real})", lambda: f"{v}.sum({real[2:]})", lambda: f"{v}.prod({d}{keep}{real})",
        lambda: f"{v}.cumsum(dim={d}{real})", lambda: f"{v}.cumprod({d}{real})",
        lambda: f"{v}.mean(dtype={float_kind})", lambda: f"{v}.mean({d}{keep}, dtype={float_kind})",
        lambda: f"{f}.sum(dim={ds}{keep})", lambda: f"{f}.sum(dim=[]{keep})", lambda: f"{f}.mean(dim={ds}{keep})",
        lambda: f"{f}.amax(dim={ds}{keep})", lambda: f"{f}.amin({ds}{keep})", lambda: f"{f}.amax(dim=())",
        lambda: f"torch.logsumexp({f}, {ds}{keep})", lambda: f"{f}.nansum({ds}{keep})",
        lambda: f"torch.nanmean({f}, {ds}{keep})", lambda: f"torch.nanmean({f})",
        lambda: f"{f}.std({ds}, correction={g.of(0, 1, 2)}{keep})",
        lambda: f"{f}.var({fd}, unbiased={g.either()}{keep})", lambda: f"{f}.var(unbiased={g.either()})",
        lambda: f"{f}.std()", lambda: f"torch.var_mean({f}, {ds}{keep})[{g.of(0, 1)}]",
        lambda: f"torch.var_mean({f}, {fd}, correction={g.of(0, 1)}{keep})[0]",
        lambda: f"{v}.any({tuple(g.dims(v))}{keep})", lambda: f"{v}.all({tuple(g.dims(v))}{keep})",
        lambda: f"{v}.all({d}{keep})", lambda: f"{v}.count_nonzero({tuple(g.dims(v))})",
        lambda: f"{f}.argmax({fd}{keep})", lambda: f"{f}.argmin(keepdim={g.either()})",
        lambda: f"{v}.max({d}{keep}).values", lambda: f"{v}.min({d}{keep}).values",
        lambda: f"torch.max({v}, {g.like(v)})", lambda: f"{v}.max()", lambda: f"{v}.min()",
        lambda: f"torch.aminmax({v}).min", lambda: f"torch.aminmax({v}, dim={d}{keep}).max",
        lambda: f"torch.softmax({v}, {d}, dtype={float_kind})", lambda: f"F.log_softmax({v}, {d}, dtype={float_kind})",
        lambda: f"{f}.norm()", lambda: f"{f}.norm({g.of(1, 2, 0, 'torch.inf')}, {fd}{keep})",
        lambda: f"{f}.norm(p=2, dim={ds}{keep})",
        lambda: f"{f}.norm(2, {fd}, dtype=torch.float64)" if g.t(f).dtype.itemsize < 8 else f"{f}.norm(3)",
        lambda: f"torch.linalg.vector_norm({f}, {g.of(2, 1, 0.5, 0)}, {ds}{keep})",
        lambda: f"F.normalize({f}, p={g.of(1, 2, 3)}, dim={fd})", lambda: f"{f}.median({fd}{keep}).values",
        lambda: f"{f}.nanmedian()", lambda: f"{f}.sort().values", lambda: f"{f}.cummin({fd}).values",
        lambda: f"torch.quantile({g.wide(1)}, torch.tensor([0.2, 0.7]).to({g.wide(1)}.dtype), "
                f"dim={g.of(0, -1)}{keep})",
        lambda: f"torch.quantile({g.wide()}, 0.5)",
        lambda: f"{v}.sum().item() * {f}" if not g.t(v).is_floating_point() else f"{f}.sum()",
        lambda: f"torch.segment_reduce({g.wide(1)}, {g.word('sum mean max min')}, lengths=torch.tensor([1, 1]), "
                f"unsafe=True)",
        lambda: f"torch.hypot({f}, {g.like(f)}).sum({fd})", lambda: f"{v}.logcumsumexp({d})",
        lambda: f"torch.std_mean({g.finite()}, {g.of(0, -1)})[1]",
    ])()


def in_place(g):
    """Writes whose pure forms are other ops, and views that a tensor is turned into."""
    v, f = g.x(), g.f()
    o, p, d, i = g.like(v), g.like(f), g.dim(v), g.x()
    part = f"{v}[{g.of('...', '1:', '::2', '0', '..., 0', '..., 1:')}]"
    turned = g.choose(lambda t: not any(t is x for x in g.given()))
    one = g.word("sin_ cos_ sqrt_ rsqrt_ reciprocal_ log1p_ expm1_ erf_ ceil_ trunc_ frac_ sign_ round_ sinh_ atan_ "
                 "exp2_ logit_ erfc_ deg2rad_ nan_to_num_ sinc_ log_ tan_ digamma_")[1:-1]
    compare = g.word("eq_ ne_ lt_ le_ gt_ ge_ less_ greater_equal_ logical_and_ logical_or_ logical_xor_")[1:-1]
    act = g.word("hardtanh elu celu leaky_relu selu silu hardswish relu6 mish hardsigmoid")[1:-1]
    return g.r.choice([
        lambda: f"{f}.{one}()",
        lambda: f"{part}.{g.of('neg_', 'abs_', 'sign_', 'square_', 'logical_not_', 'absolute_')}()",
        lambda: f"{v}.{compare}({o})",
        lambda: f"{part}.{g.of('eq_', 'lt_', 'ge_', 'ne_')}({g.c()})", lambda: f"{v}.pow_({g.of('2', '3', '0.5')})",
        lambda: f"{f}.pow_({p})", lambda: f"{v}.div_({o}, rounding_mode={g.word('floor trunc')})",
        lambda: f"{f}.div_({g.of('2', '0.5')})", lambda: f"{f}.div_({i})", lambda: f"{v}.fmod_({g.of('2', '-3')})",
        lambda: f"{v}.remainder_({g.of('2', '-3')})", lambda: f"{v}.floor_divide_({g.of('2', '-3')})",
        lambda: f"{v} //= 2", lambda: f"{v} %= 3", lambda: f"{f} /= {p}", lambda: f"{f} **= 2",
        lambda: f"{v}.tril_({g.of(0, 1, -1)})", lambda: f"{v}.triu_({g.of(0, 1, -1)})",
        lambda: f"{v}.fill_diagonal_({g.c()}, {g.either()})", lambda: f"{v}.cumsum_({d})",
        lambda: f"{v}.cumprod_({d})", lambda: f"{v}.clip_({g.of('-1', '0')}, {g.of('1', '0.5')})",
        lambda: f"{v}.clamp_min_({g.of('0', '-0.5')})", lambda: f"{v}.clamp_max_({g.of('0', '1.5')})",
        lambda: f"{f}.clamp_({p}, {p} + 1)", lambda: f"{f}.atan2_({p})", lambda: f"{f}.copysign_({g.of(p, '-1')})",
        lambda: f"{f}.hypot_({p})", lambda: f"{f}.xlogy_({p})", lambda: f"{f}.round_(decimals={g.of(1, 2, -1)})",
        lambda: f"{f}.addcdiv_({p}, {p}.abs() + 1, value=2)", lambda: f"{f}.addcmul_({i}, {p}, value=-1)",
        lambda: f"{v}.sub_({o}, alpha=2)", lambda: f"{v}.add_({i}, alpha=-1)", lambda: f"{v}.mul_({i})",
        lambda: f"{turned}.squeeze_()", lambda: f"{turned}.unsqueeze_({g.dim(turned)})",
        lambda: f"{turned}.transpose_({g.dim(turned)}, {g.dim(turned)})", lambda: f"{turned}.t_()",
        lambda: f"{turned}.swapaxes_(0, -1)", lambda: f"{turned}.squeeze_({g.dim(turned)})",
        lambda: f"{turned}.unsqueeze_(-1).mul_(2)", lambda: f"{turned}.transpose_(0, -1).add_({g.c()})",
        lambda: f"{v}.lerp_({o}, {o})",
        lambda: f"{v}.index_reduce_(0, torch.arange({v}.shape[0]), {o}, {g.word('prod mean amax amin')})",
        lambda: f"{v}.scatter_reduce_({d}, {v}.argsort(dim={d}, stable=True) // 2, {o}, "
                f"{g.word('sum prod mean amax amin')}, include_self={g.either()})",
        lambda: f"{v}.scatter_({d}, {v}.argsort(dim={d}, stable=True) // 2, {g.c()})",
        lambda: f"{v}.put_(torch.tensor([0, -1]), {o}.flatten()[:2], accumulate={g.either()})",
        lambda: f"{f}.renorm_(2, {g.of(0, -1)}, 1.0)",
        lambda: f"F.{act}({f}, inplace=True).mul_(2)",
        lambda: f"F.threshold({f}, 0.1, {g.c()}, inplace=True)", lambda: f"{turned}.resize_as_({o})",
        lambda: f"{part}.add_({o}.sum()).mul_(2)", lambda: f"{g.whole()} &= 3", lambda: f"{g.whole()} |= 4",
        lambda: f"{g.whole()} ^= 5", lambda: f"{g.whole()} <<= 1", lambda: f"{g.whole()} >>= 1",
        lambda: f"{g.b()} &= {g.b()}", lambda: f"{g.b()} |= {g.b()}", lambda: f"{g.b()} ^= {g.b()}",
        lambda: f"{g.whole()}.bitwise_not_()", lambda: f"{v}.real.zero_()",
        lambda: f"{f}.addmm_({g.f(2, 2)}, {g.f(2, 2)}.mT, beta={g.of(0, 1, 0.5)})",
        lambda: f"{f}.baddbmm_({g.f(3, 3)}, {g.f(3, 3)}.mT, alpha=2)", lambda: f"{v}.T.mul_({g.of('2', '0')})",
        lambda: f"{v}.flatten()[::2].zero_()",
        lambda: f"{v}.diagonal({g.of(0, 1, -1)}, -2, -1).copy_({g.c()} * {v}.diagonal({g.of(0, 1)}, -2, -1))",
        lambda: f"{v}.permute({', '.join(map(str, range(g.t(v).dim() - 1, -1, -1)))})[0] = {g.c()}",
        lambda: f"{v}[..., torch.tensor([0, -1])] *= 2", lambda: f"{v}[torch.tensor([0]), ...] += {g.c()}",
        lambda: f"{v}[[0], ..., [0]] = {g.c()}", lambda: f"{v}[{v} > 0] *= 2",
    ])()


def transforms(g):
    """Fourier transforms of several axes and of sizes of their own, windows, and short-time ones."""
    f, t = g.calm(1), g.calm(1)
    d, norm = g.dim(f), g.word("ortho forward backward")
    n = g.of("None", "None", 3, 5, f"{f}.shape[{d}] + 1")
    s, window = g.size(), g.of("hann", "hamming", "blackman", "bartlett", "kaiser")
    try:
        z = g.z()
    except LookupError:
        return f"torch.fft.{g.of('fft', 'rfft', 'ifft', 'ihfft')}({f}, n={n}, dim={d}, norm={norm})"
    zn = g.of("None", 3, 4, f"{z}.shape[-1]")
    return g.of(f"torch.fft.{g.of('fft', 'rfft', 'ifft', 'ihfft')}({f}, n={n}, dim={d}, norm={norm})",
                f"torch.fft.{g.of('fftn', 'ifftn', 'rfftn', 'rfft2', 'ifft2', 'ihfft2')}({f}, norm={norm})",
                f"torch.fft.{g.of('irfft', 'hfft', 'fft', 'ifft')}({z}, n={zn}, norm={norm})",
                f"torch.fft.{g.of('irfftn', 'irfft2', 'hfft2', 'hfftn', 'fftn')}({z}, norm={norm})",
                f"torch.fft.fftshift({f}, dim={d})", f"torch.fft.ifftshift({f})",
                f"torch.fft.fftfreq({s}, {g.of(1.0, 0.5)})", f"torch.fft.rfftfreq({s})",
                f"torch.{window}_window({s}, periodic={g.either()})",
                f"torch.stft({t}.flatten(), 4, hop_length={g.of(1, 2)}, window=torch.hann_window(4, dtype={t}.dtype), "
                f"center={g.either()}, normalized={g.either()}, onesided={g.either()}, return_complex=True)",
                f"torch.istft(torch.stft({t}.flatten(), 4, 2, window=torch.ones(4, dtype={t}.dtype), "
                f"return_complex=True), 4, 2, window=torch.ones(4, dtype={t}.dtype))",
                f"{z}.angle()", f"{z}.abs()", f"torch.view_as_real({z}.resolve_conj())",
                f"torch.polar({z}.abs(), {z}.angle())", f"{z}.mH.real",
                f"{z}.T.imag" if g.t(z).dim() == 2 else f"{z}.imag", f"torch.linalg.vecdot({z}, {z})",
                f"torch.vdot({z}.flatten(), {z}.flatten())", f"torch.conj_physical({z})", f"{z}.isreal()",
                f"torch.addmm({z}, {z}, {z}.mT)", f"{z}.cumprod({g.dim(z)})", f"{z}.std({g.dim(z)})",
                f"{z}[..., ::2].conj() * {z}[..., ::2]", f"torch.diff({z})",
                f"{z}.to(torch.complex{g.of(64, 128)}) / 3", f"{z}.tril()", f"F.pad({z}, (1, 1))",
                f"{z}.gather(0, {g.places()} * 0)", f"{z}.index_select(0, torch.tensor([0, 0]))",
                f"{z}.unfold({g.dim(z)}, 2, 1)", f"torch.outer({z}.flatten(), {z}.flatten()[:2])", f"{z}.isnan()",
                f"{z} != {g.like(z)}", f"torch.linalg.norm({z}, dim=-1)", f"{z}.nan_to_num()", f"{z}.logical_not()",
                f"{z}.all()", f"{z}.count_nonzero()")


def rarer(g):
    """Functions of one element or two that a model has now and then."""
    f, v = g.f(), g.x()
    o, c = g.like(f), g.of("0.5", "2", "-1.5")
    named = g.word("chebyshev_polynomial_t chebyshev_polynomial_u hermite_polynomial_h hermite_polynomial_he "
                   "laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t")[1:-1]
    bessel = g.word("bessel_j1 bessel_y0 modified_bessel_i0 modified_bessel_k1 airy_ai spherical_bessel_j0 "
                    "scaled_modified_bessel_k0")[1:-1]
    return g.of(f"torch.round({f}, decimals={g.of(1, 2, -1)})",
                f"torch.{g.of('isposinf', 'isneginf', 'isreal', 'isfinite')}({v})",
                f"torch.special.xlog1py({f}, {g.of(o, c)})", f"torch.special.xlogy({c}, {f})",
                f"torch.special.zeta({f}.abs() + 1.5, {g.of(o + '.abs() + 1', '2')})",
                f"torch.igamma({f}.abs() + 0.1, {o}.abs())", f"torch.igammac({f}.abs() + 0.1, {o}.abs())",
                f"torch.mvlgamma({f}.abs() + 2, {g.of(1, 2)})",
                f"torch.special.{named}({f}.clamp(-1, 1), {g.of(2, 3)})", f"torch.special.{bessel}({f})",
                f"torch.special.multigammaln({f}.abs() + 2, 2)", f"torch.log10({f})", f"torch.erfc({f})",
                f"torch.rad2deg({f})", f"torch.fix({f})", f"torch.clip({v}, {g.of('-1', '0')}, {g.of('1', '0.5')})",
                f"torch.clip({f}, {o}, None)", f"torch.clamp({f}, None, {o})",
                f"torch.clamp_min({v}, {g.of('0', '0.5')})", f"torch.clamp_max({f}, {o})", f"torch.clamp({f}, 1, -1)",
                f"torch.clamp({f}, float('nan'), 1)",
                f"torch.divide({v}, {g.x()}, rounding_mode={g.word('floor trunc')})",
                f"torch.div({f}, {g.of(o, '0.3')}, rounding_mode={g.word('floor trunc')})",
                f"torch.remainder({f}, {g.of(o, '-0.7')})", f"torch.remainder({c}, {f})",
                f"torch.fmod({f}, {g.of(o, '-0.7')})", f"{c} // {f}", f"torch.greater({v}, {g.x()})",
                f"torch.less_equal({v}, {c})", f"torch.not_equal({v}, {g.c()})",
                f"torch.bitwise_and({g.whole()}, {g.whole()})", f"torch.bitwise_left_shift({g.whole()}, 1)",
                f"torch.bitwise_or(3, {g.whole()})", f"torch.where({g.b()}, {f}, {g.n()})",
                f"torch.where({g.b()})[0].sum()", f"torch.where({g.b()}, {g.c()}, {g.c()})",
                f"torch.subtract({v}, {g.x()}, alpha=2)", f"torch.rsub({v}, {g.x()}, alpha=2)",
                f"torch.pow({v}, {g.x()}.abs())", f"torch.pow({g.of('2', '-1', '0')}, {g.n()}.abs())",
                f"torch.float_power({f}, {o})", f"F.glu({g.f(1)}, -1)", f"F.elu({f}, {g.of(0.5, -1.0)})",
                f"F.celu({f}, {g.of(0.5, 2.0)})", f"F.selu({f})", f"F.hardtanh({f}, {g.of(-2, 0)}, {g.of(0.5, 6)})",
                f"F.rrelu({f}, 0.1, 0.3)", f"F.softplus({f}, beta={g.of(0.5, 3)}, threshold={g.of(1, 20)})",
                f"F.hardshrink({f}, {g.of(0.3, 0.0)})", f"F.threshold({f}, {g.c()}, {g.c()})",
                f"F.prelu({g.f(2)}, {g.w(1)})", f"F.leaky_relu({f}, {g.of(0, 1.5)})",
                f"torch.fake_quantize_per_tensor_affine({g.calm()}.float(), {g.of(0.1, 0.5)}, {g.of(0, 3)}, 0, 15)",
                f"torch.nan_to_num({f}, nan={c}, posinf=3, neginf=-3)", f"torch.logit({f})",
                f"torch.ldexp({f}, {g.i()})", f"torch.frexp({f})[1]", f"torch.gcd({g.i()}, {g.i()})",
                f"torch.heaviside({f}, {o})", f"torch.sgn({v})", f"torch.square({v})", f"torch.positive({v})",
                f"torch.addcdiv({f}, {o}, {f}.abs() + 1, value={g.of(2, -0.5)})",
                f"torch.addcmul({f}, {o}, {o}, value={g.of(2, -0.5)})",
                f"torch.lerp({f}, {o}, {g.of(0.3, 0.5, 1, 2)})",
                f"torch.isclose({f}, {o}, rtol={g.of(0.1, 1)}, atol=0.2, equal_nan={g.either()})",
                f"torch.equal({f}, {o}) * {f}", f"torch.allclose({f}, {f}) * {f}",
                f"torch.isin({g.n()}, torch.tensor([0, 1]))", f"torch.isin({g.n()}, 2, invert=True)",
                f"torch.bucketize({g.n()}, torch.arange(3), right={g.either()})",
                f"torch.tensor([1.5, 2.5, -0.5], dtype={f}.dtype).round()",
                f"torch.nn.functional.gelu({f}, approximate={g.word('none tanh')})",
                f"torch.logaddexp({f}, {g.like(f)})")
