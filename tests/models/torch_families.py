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
