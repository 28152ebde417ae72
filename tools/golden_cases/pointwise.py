"""Golden cases of the pointwise family: one element in, one out, with broadcasting and type promotion."""
from golden import *
from golden_cases import backward

# name -> range of inputs where the function is defined
UNARY = {n: (-3, 3)
         for n in """abs absolute atan arctan ceil cos cosh deg2rad erf erfc exp exp2 expm1 fix floor frac isfinite isinf isnan isneginf
isposinf logical_not neg negative positive rad2deg reciprocal relu relu6 round sgn sigmoid sign signbit silu sin sinc sinh square tan tanh trunc
asinh arcsinh hardswish hardsigmoid hardtanh leaky_relu elu selu celu gelu softplus mish log_sigmoid hardshrink softshrink nan_to_num
special_expit special_ndtr special_exp2 special_erf special_erfc special_expm1 special_sinc i0 special_i0 special_i1""".split()}
UNARY |= {n: (0.05, 4)
          for n in "log log10 log1p log2 rsqrt sqrt special_log1p lgamma digamma special_gammaln special_digamma "
                   "special_psi".split()}
UNARY |= {n: (-0.95, 0.95) for n in "acos arccos asin arcsin atanh arctanh erfinv special_erfinv".split()}
UNARY |= {n: (1, 4) for n in "acosh arccosh".split()}
UNARY |= {n: (0.05, 0.95) for n in "logit special_logit special_entr".split()}
SHAPES = [(), (37,), (2, 3, 5), (0, 4)]
# other names of an op above: two or three cases each are enough
ALIASES = set("""absolute arctan fix negative arcsinh arccos arcsin arctanh arccosh clip subtract multiply divide true_divide not_equal less less_equal
greater greater_equal arctan2 __and__ __or__ __xor__ __lshift__ __rshift__ float_power""".split())


def alias(name):
    op = name.removeprefix("aten.").split(".")[0]
    return op in ALIASES or op.startswith("special_")

BINARY = """add.Tensor sub.Tensor subtract.Tensor mul.Tensor multiply.Tensor div.Tensor divide.Tensor true_divide.Tensor floor_divide.default
remainder.Tensor fmod.Tensor pow.Tensor_Tensor float_power.Tensor_Tensor atan2.default arctan2.default maximum.default minimum.default fmax.default fmin.default
max.other min.other eq.Tensor ne.Tensor not_equal.Tensor lt.Tensor less.Tensor le.Tensor less_equal.Tensor gt.Tensor greater.Tensor ge.Tensor
greater_equal.Tensor logical_and.default logical_or.default logical_xor.default bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor
__and__.Tensor __or__.Tensor __xor__.Tensor __lshift__.Tensor __rshift__.Tensor bitwise_left_shift.Tensor bitwise_right_shift.Tensor hypot.default
copysign.Tensor xlogy.Tensor special_xlogy.default special_xlog1py.default logaddexp.default logaddexp2.default heaviside.default nextafter.default
ldexp.Tensor gcd.default lcm.default rsub.Tensor special_zeta.default""".split()

SCALAR = """add.Scalar sub.Scalar subtract.Scalar mul.Scalar multiply.Scalar div.Scalar divide.Scalar true_divide.Scalar floor_divide.Scalar remainder.Scalar
fmod.Scalar pow.Tensor_Scalar float_power.Tensor_Scalar eq.Scalar ne.Scalar not_equal.Scalar lt.Scalar less.Scalar le.Scalar less_equal.Scalar
gt.Scalar greater.Scalar ge.Scalar greater_equal.Scalar bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar __and__.Scalar __or__.Scalar
__xor__.Scalar __lshift__.Scalar __rshift__.Scalar bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor_Scalar copysign.Scalar
xlogy.Scalar_Other rsub.Scalar special_xlogy.other_scalar special_xlog1py.other_scalar""".split()


def exists(name):
    _, op, overload = name.split(".")
    return hasattr(torch.ops.aten, op) and overload in getattr(torch.ops.aten, op).overloads()


def unary(F):
    for n, (lo, hi) in UNARY.items():
        name = f"aten.{n}.default"
        if not exists(name):
            continue
        c = F.op(name)
        if alias(n):
            c(t(2, 7, lo=lo, hi=hi))
            c.maybe(t(5, dt=i64, lo=lo, hi=hi))
            continue
        for s in SHAPES:
            c.maybe(t(s, lo=lo, hi=hi))
        # PyTorch's gelu(inf) is NaN or inf by the CPU
        odd = lambda dt=f32: special(dt) if n != "gelu" else special(dt)[:9]
        c.maybe(odd())
        for dt in ALL[1:]:
            c.maybe(t(11, dt=dt, lo=lo, hi=hi))
        c.maybe(odd(f64))
        c.maybe(odd(f16))
        c.maybe(odd(bf16))
    c = F.op("aten.bitwise_not.default")
    for dt in INTS + [b8]:
        c(t(3, 5, dt=dt))
    c = F.op("aten.round.decimals")
    for d in (0, 1, 2, -1):
        c(t(19, lo=-30, hi=30), decimals=d)
    F.op("aten.special_round.default")(t(19, lo=-30, hi=30))
    F.op("aten.special_round.default")(t(19, lo=-30, hi=30), decimals=1)
    F.op("aten.lgamma.default")(torch.tensor([1e300, 2.5e305, 2.6e305, 1.7e308], dtype=f64))
    for n in ("lgamma", "digamma", "i0", "special_i1"):
        F.op(f"aten.{n}.default")(t(64, dt=f64, lo=-20, hi=20))
        F.op(f"aten.{n}.default")(torch.tensor([-1.0, -2, 1, 2, 10, 1e-30, -1e-30, 1e10, 80, -80]))
    for name, argss in {
        "gelu.default": [dict(approximate="tanh"), dict(approximate="none")],
        "nan_to_num.default": [dict(nan=1.5), dict(nan=0.0, posinf=5.0, neginf=-6.0)],
        "leaky_relu.default": [dict(negative_slope=0.2)],
        "elu.default": [dict(alpha=0.5), dict(alpha=1.2, scale=1.1, input_scale=0.9)],
        "celu.default": [dict(alpha=0.5)], "hardtanh.default": [dict(min_val=-0.5, max_val=1.25)],
        "softplus.default": [dict(beta=2.0, threshold=3.0)], "logit.default": [dict(eps=0.1), dict(eps=0.6)],
        "special_logit.default": [dict(eps=0.1)], "hardshrink.default": [dict(lambd=1.0)],
        "softshrink.default": [dict(lambd=0.25)],
    }.items():
        c = F.op(f"aten.{name}")
        for kw in argss:
            x = special() if "nan" in name else t(17, lo=0 if "logit" in name else -3, hi=1 if "logit" in name else 3)
            c(x, **kw)
            c.maybe(x.to(bf16), **kw)
            c.maybe(x.to(f16), **kw)
            c.maybe(x.double(), **kw)
    for dt in (i64, u8):
        F.op("aten.hardtanh.default")(t(17, dt=dt), 1.9, 3.2)
    F.op("aten.hardtanh.default")(t(17, dt=i64), -1.5, 2.7)
    c = F.op("aten.threshold.default")
    for dt in ALL[:-1]:
        c.maybe(t(13, dt=dt), 1, -2 if dt is not u8 else 2)
    c = F.op("aten.prelu.default")
    for dt in FLOATS:
        c(t(2, 3, 5, dt=dt), t(3, dt=dt))
    c(t(2, 3), t(1))
    c = F.op("aten._prelu_kernel.default")
    c(t(2, 3, 5), t(1, 3, 1))
    c = F.op("aten.log_sigmoid_forward.default")
    for dt in FLOATS:
        c.maybe(t(9, dt=dt))
    c = F.op("aten.glu.default")
    for dt in FLOATS:
        c(t(4, 6, dt=dt))
    c(t(4, 6), 0)
    c(t(2, 4, 3), -2)
    for dt in FLOATS:
        F.op("aten.rrelu.default")(t(7, dt=dt), 0.125, 1 / 3, False)
    F.op("aten.rrelu_with_noise_functional.default").maybe(t(7), torch.zeros(7), 0.125, 1 / 3, False)
    F.op("aten.rrelu_with_noise.default").maybe(t(7), torch.zeros(7), 0.125, 1 / 3, False)
    for dt in FLOATS:
        noise = torch.zeros(5, 7, dtype=dt)
        F.op("aten.rrelu_with_noise_functional.default").maybe(t(5, 7, dt=dt), noise, 0.1, 0.5, True)
        F.op("aten.rrelu.default").maybe(t(5, 7, dt=dt), 0.1, 0.5, True)
    for dt in (f32, f64):
        F.op("aten.frexp.Tensor")(t(3, 4, dt=dt))
        F.op("aten.frexp.Tensor")(special(dt))
        F.op("aten.frexp.Tensor")(2.0 ** torch.arange(-120, 120, dtype=dt))
        F.op("aten.log_normal.default")(t(3, dt=dt), 0.5, 0.25)
        F.op("aten.log_normal.default")(t(5, 9, dt=dt), 0.5, 0.25)
    c = F.op("aten.polygamma.default")
    c(1, t(7, lo=0.5, hi=3))


def dtypes_of_pairs():
    """Promotions worth a case: every dtype with itself, and mixed pairs."""
    return [(d, d) for d in ALL] + [(f32, i64), (i64, f32), (f16, f32), (bf16, f32), (f16, bf16), (f64, f32),
                                    (i32, i64), (u8, i8), (u8, i64), (b8, f32), (i64, b8), (b8, u8), (i32, f16)]


def binary(F):
    for n in BINARY:
        c = F.op("aten." + n)
        shift = "shift" in n
        positive = any(w in n for w in ("pow", "xlog"))
        lo, hi = (0, 3) if positive or shift else (-4, 4)
        if "zeta" in n:
            lo, hi = 1.5, 4
        first = i32 if any(w in n for w in ("bitwise", "__", "gcd", "lcm", "shift")) else f32
        nonzero = any(w in n for w in ("divide", "remainder", "fmod", "div"))

        def pair(sa, sb, da, db):
            a, b = t(sa, dt=da, lo=lo, hi=hi), t(sb, dt=db, lo=lo, hi=hi)
            if nonzero and not db.is_floating_point:
                b = torch.where(b == 0, torch.ones_like(b), b)
            return a, b
        if alias(n):
            c.maybe(*pair((2, 3, 5), (3, 1), first, first))
            c.maybe(*pair((2, 5), (5,), i64, i64))
            c.maybe(*pair((3,), (), b8, i32))
            continue
        for sa, sb in [((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (3, 1)), ((4, 1), (1, 9)), ((), (7,)), ((7,), ()),
                       ((), ()), ((1, 33), (5, 1)), ((0, 3), (3,))]:
            c.maybe(*pair(sa, sb, first, first))
        for da, db in dtypes_of_pairs():
            c.maybe(*pair((2, 5), (5,), da, db))
        c.maybe(*pair((3,), (), f32, f64))      # 0-d tensors do not promote within a category
        c.maybe(*pair((3,), (), f16, f32))
        c.maybe(*pair((3,), (), i32, f32))
        c.maybe(*pair((), (3,), i64, i32))
        if first is f32:
            s = special()
            c.maybe(s[:, None].expand(16, 16).contiguous(), s[None, :].expand(16, 16).contiguous())
            if "max" in n or "min" in n or "pow" in n:
                c.maybe(s.half()[:, None].expand(16, 16).contiguous(), s.half()[None, :].expand(16, 16).contiguous())
        if "nextafter" in n:
            for dt in FLOATS[2:]:
                c(special(dt)[:, None].expand(16, 16).contiguous(), special(dt)[None].expand(16, 16).contiguous())
        if first is i32 or n in ("add.Tensor", "mul.Tensor", "sub.Tensor", "maximum.default", "remainder.Tensor",
                                 "floor_divide.default", "eq.Tensor"):
            big = torch.tensor([2**62, -2**62 + 1, 2**53 + 1, 7, -7])       # exact in i64, not in double
            c.maybe(big, torch.tensor([3, 2, 1, -2, 2]))
    for n in ("add.Tensor", "sub.Tensor", "subtract.Tensor", "rsub.Tensor"):
        c = F.op("aten." + n)
        for _ in range(3):
            t(1)
        c(t(3, 4), t(4), alpha=2)
        c(t(3, 4), t(3, 4), alpha=-0.5)
        c(t(3, dt=i64), t(3, dt=i64), alpha=3)
        c(t(3, dt=bf16), t(3, dt=bf16), alpha=0.3)
        c(t(3, dt=f64), t(3, dt=i64), alpha=0.3)
        c(t(3), t(3, dt=bf16), alpha=0.3)
        c(t(3, dt=i64), t(3, dt=u8), alpha=300)
    for alpha in (0, 1, 2, True):
        F.op("aten.add.Tensor")(t(5, dt=b8), t(5, dt=b8), alpha=alpha)
        F.op("aten.add.Scalar")(t(5, dt=b8), True, alpha)
    for op in ("div", "divide"):
        for mode in ("floor", "trunc"):
            c = F.op(f"aten.{op}.Tensor_mode")
            cs = F.op(f"aten.{op}.Scalar_mode")
            for dt in FLOATS + INTS:
                a, b = t(2, 9, dt=dt, lo=-9, hi=9), t(9, dt=dt, lo=-4, hi=4)
                b = torch.where(b == 0, torch.ones_like(b), b)
                c.maybe(a, b, rounding_mode=mode)
                cs.maybe(a, 3, rounding_mode=mode)
            c(t(4, dt=i64), t(4, lo=1, hi=3), rounding_mode=mode)
            c(special()[:, None].expand(16, 16).contiguous(), special()[None].expand(16, 16).contiguous(),
              rounding_mode=mode)
            cs(t(4, dt=i64), -2.5, rounding_mode=mode)
            cs(t(4), 0.7, rounding_mode=mode)
        F.op(f"aten.{op}.Tensor_mode")(t(4), t(4), rounding_mode=None)
        F.op(f"aten.{op}.Scalar_mode")(t(4, dt=i64), 2, rounding_mode=None)


def scalar(F):
    for n in SCALAR:
        c = F.op("aten." + n)
        ints = any(w in n for w in ("bitwise", "__", "shift"))
        lo, hi = (0, 4) if "pow" in n or "xlog" in n else (-5, 5)
        if alias(n):
            c.maybe(t(2, 5, lo=lo, hi=hi, dt=i64 if ints else f32), 2)
            c.maybe(t(3, dt=i32, lo=lo, hi=hi), 3 if ints else 1.5)
            continue
        c.maybe(t((), lo=lo, hi=hi, dt=i64 if ints else f32), 2)
        c.maybe(t(0, 2, dt=i64 if ints else f32), 2)
        for dt in ALL:
            c.maybe(t(2, 5, dt=dt, lo=lo, hi=hi), 2)
            c.maybe(t(2, 5, dt=dt, lo=lo, hi=hi), -1.5)
        c.maybe(t(3, dt=b8), True)
        for e in (0.5, -0.5, 3, -1, 0, -2, 1, 0.25) if "pow" in n else (inf, -inf, nan):
            c.maybe(special(), e)
            if "pow" in n:
                c.maybe(special(f16), e)
        c.maybe(torch.tensor([2**53 + 1, -2**60, 5, 0]), 3)
        if n.split(".")[0] in ("add", "sub", "rsub", "subtract"):
            c(t(5), 3, 0.5)
            c(t(5, dt=i32), 3, 2)
    for n in ("pow.Scalar", "float_power.Scalar", "remainder.Scalar_Tensor", "xlogy.Scalar_Self",
              "special_xlogy.self_scalar",
              "special_xlog1py.self_scalar", "bitwise_and.Scalar_Tensor", "bitwise_or.Scalar_Tensor",
              "bitwise_xor.Scalar_Tensor",
              "bitwise_left_shift.Scalar_Tensor", "bitwise_right_shift.Scalar_Tensor"):
        c = F.op("aten." + n)
        for dt in ALL:
            for s in (2, 10000.0):
                x = t(2, 5, dt=dt, lo=0 if "xlog" in n or "pow" in n or "shift" in n else 1, hi=3)
                c.maybe(s, x)
        c.maybe(2, t(()))
        c.maybe(0.5, special())


def ternary(F):
    c = F.op("aten.where.self")
    for sc, sa, sb in [((2, 3), (2, 3), (2, 3)), ((3,), (2, 1), ()), ((), (4,), (4,)), ((5, 1), (1, 6), (6,)),
                       ((0, 2), (2,), (1,))]:
        c(t(sc, dt=b8), t(sa), t(sb))
    for da, db in dtypes_of_pairs():
        c(t(2, 5, dt=b8), t(2, 5, dt=da), t(5, dt=db))
    c(t(4, dt=b8), t(4, dt=f32), t((), dt=f64))
    c(t(16, dt=b8), special(), t(()))
    for n, args in (("where.ScalarOther", lambda x, s: (x, s)), ("where.ScalarSelf", lambda x, s: (s, x))):
        c = F.op("aten." + n)
        for dt in ALL:
            c(t(3, 5, dt=b8), *args(t(5, dt=dt), 2))
            c(t(3, 5, dt=b8), *args(t(5, dt=dt), -0.5))
        c(t(3, 5, dt=b8), *args(t(5), -inf))
    c = F.op("aten.where.Scalar")
    c(t(3, 5, dt=b8), 1, 0)
    c(t(3, 5, dt=b8), 1.5, 0)
    c(t((), dt=b8), 1.5, -inf)
    c(t(4, dt=b8), True, False)
    for n in ("clamp", "clip"):
        c = F.op(f"aten.{n}.default")
        for dt in ALL:
            c.maybe(t(2, 9, dt=dt), -1, 2)
            c.maybe(t(9, dt=dt), 0.5)
            c.maybe(t(9, dt=dt), None, 1)
        c(special(), -2.0, 2.0)
        c(special(), 2.0, -2.0)
        c(t(()), -0.25, 0.25)
        c(t(5), max=0.5)
        c = F.op(f"aten.{n}.Tensor")
        for dt in ALL:
            c.maybe(t(2, 9, dt=dt), t(9, dt=dt, lo=-2, hi=0), t(2, 1, dt=dt, lo=0, hi=2))
        c(t(2, 9), t(9))
        c(t(2, 9), None, t(2, 1))
        c(t(2, 9, dt=i32), t(9), t((), dt=i64))
    for n in ("clamp_min", "clamp_max"):
        for dt in ALL:
            F.op(f"aten.{n}.default").maybe(t(2, 9, dt=dt), 1)
        F.op(f"aten.{n}.default")(special(), -0.5)
        F.op(f"aten.{n}.default")(t(4, dt=i64), 0.5)
        F.op(f"aten.{n}.Tensor")(t(2, 9), t(9))
        F.op(f"aten.{n}.Tensor")(t(2, 9, dt=i64), t(9, dt=i32))
        F.op(f"aten.{n}.Tensor")(special(), t(()))
    for dt in FLOATS:
        F.op("aten.lerp.Scalar")(t(2, 9, dt=dt), t(9, dt=dt), 0.3)
        F.op("aten.lerp.Scalar")(t(2, 9, dt=dt), t(9, dt=dt), 0.8)
        F.op("aten.lerp.Tensor")(t(2, 9, dt=dt), t(9, dt=dt), t(2, 1, dt=dt, lo=0, hi=1))
    for dt in (f16, bf16):  # a product that is rounded before the sum would be far off
        x, y = t(9, dt=dt, lo=2, hi=3), t(9, dt=dt, lo=2, hi=3)
        F.op("aten.addcmul.default")((x.double() * y.double()).to(dt), x, y, value=-1)
        F.op("aten.addcdiv.default")((x.double() / y.double()).to(dt), x, y, value=-1)
        F.op("aten.lerp.Scalar")(x, -x, 0.49)
        F.op("aten.lerp.Tensor")(x, -x, t(9, dt=dt, lo=0.48, hi=0.52))
    fma = F.own("prims.fma.default", lambda a, b, c: a * b + c)  # torch registers it with its compiler
    for dt in FLOATS:
        fma(t(2, 5, dt=dt), t(5, dt=dt), t(2, 1, dt=dt))
    for n in ("addcmul", "addcdiv"):
        c = F.op(f"aten.{n}.default")
        for dt in ALL:
            c.maybe(t(2, 5, dt=dt), t(5, dt=dt), t(2, 1, dt=dt, lo=1, hi=3))
            if dt.is_floating_point:
                c(t(5, dt=dt), t(5, dt=dt), t(5, dt=dt, lo=1, hi=3), value=0.5)
        c(t(5), t(5), t(5, lo=1, hi=3), value=2)
    for n in ("masked_fill.Scalar", "masked_fill.Tensor"):
        c = F.op("aten." + n)
        wrap = (lambda s, dt: s) if n.endswith("Scalar") else (lambda s, dt: torch.tensor(s,
            dtype=dt if dt.is_floating_point else dt))
        for dt in ALL:
            c.maybe(t(2, 3, 5, dt=dt), t(3, 1, dt=b8), wrap(1, dt))
        c(t(2, 3), t(2, 3, dt=b8), wrap(-inf, f32))
        c(t(3), t(2, 3, dt=b8), wrap(-1e9, f32))
        c(t(()), t(4, dt=b8), wrap(0.0, f32))
    for dt in FLOATS:
        F.op("aten.masked_fill.Scalar")(t(4, dt=dt), t(4, dt=b8), torch.finfo(dt).min)
    c = F.op("aten.dist.default")
    c(t(3, 4), t(4))
    c(t(3, 4), t(4), 1)
    for n in ("isclose", "allclose"):
        if n == "isclose":
            c = F.op("aten.isclose.default")
            a = t(9)
            c(a, a + torch.tensor([0, 1e-6, 1e-3, 0, -1e-7, .1, 0, 0, 1e-5]))
            c(special(), special(), equal_nan=True)
            c(t(5, dt=i64), t(5, dt=i64))


def far_integers(F):
    """Beyond 2^62, where a bound that is missing must not cut."""
    far = torch.tensor([2**62 + 5, -(2**62) - 5, 2**63 - 1, -(2**63), 0, 7])
    F.op("aten.clamp.default")(far, min=0)
    F.op("aten.clamp.default")(far, max=3)


def casts(F):
    for a in ALL:
        for b in ALL:
            F.op("aten._to_copy.default")(t(7, dt=a, lo=-2.9, hi=2.9), dtype=b)
    for n, args in (("to.dtype", lambda b: (b,)), ("to.dtype_layout", lambda b: ()),
                    ("to.other", lambda b: (t(2, dt=b),)), ("type_as.default", lambda b: (t(2, dt=b),))):
        c = F.op("aten." + n)
        for a, b in [(f32, f16), (f32, bf16), (f32, i64), (i64, f32), (b8, f32), (f32, b8), (f32, f32), (f64, f32),
                     (i64, i32), (f16, f32), (u8, f32), (f32, f64)]:
            x = t(2, 5, dt=a, lo=0 if b is u8 else -3)
            if n == "to.dtype_layout":
                c(x, dtype=b)
            else:
                c(x, *args(b))
    c = F.op("aten._to_copy.default")
    for dt in (torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64):
        x = t(4, 5, lo=0, hi=200)
        c(x, dtype=dt)
        c(x.to(dt), dtype=f32)
        c(x.to(dt), dtype=i64)
    for dt in (torch.float8_e4m3fn, torch.float8_e5m2):
        c(torch.tensor([448.0, 464, 465, 500, -500, 57344, 61440, 1e9, inf, -inf, nan]), dtype=dt)
    c = F.op("aten.to.dtype")
    c(special(), f16)
    c(special(), bf16)
    c(special(), b8)
    c(torch.tensor([70000.0, -70000.0, 65519.0, 65520.0, 1e-8, 6e-8]), f16)
    c(t(()), f64)
    c(t(0, 3), f16)
    for a, dt in ((2, f32), (2.5, f64), (True, b8), (3, i64)):
        F.op("prims.scalar_tensor.default")(a, dtype=dt, device=torch.device("cpu"))
    for dt in (f32, f64, bf16):
        F.op("aten.to.device")(t(3, 2), torch.device("cpu"), dt)


def complexes(F):
    z = lambda *s, dt=f32: torch.complex(t(*s, dt=dt), t(*s, dt=dt))
    c = F.op("aten.view_as_complex.default")
    c(t(3, 4, 2), fixed="0.2")
    c(t(2), static=True)
    F.op("aten.view_as_real.default")(z(3, 4))
    c = F.op("aten.polar.default")
    c(t(3, 4, lo=0), t(3, 4))
    c = F.op("aten.complex.default")
    c(t(3, 4), t(3, 4))
    c(t(3, 1), t(4))
    for dt in ALL:
        F.op("aten.angle.default").maybe(special(dt) if dt.is_floating_point else t(5, dt=dt))
    F.op("aten.subtract.Tensor")(t(2, 3), 1)
    F.op("aten.subtract.Tensor")(t(2, 3, dt=i64), 1.5, alpha=2)
    for n in ("real", "imag", "angle", "conj", "_conj", "conj_physical", "abs", "neg", "exp"):
        F.op(f"aten.{n}.default")(z(3, 5))
    for n in ("add", "sub", "mul", "div"):
        c = F.op(f"aten.{n}.Tensor")
        c(z(2, 3, 4), z(3, 4))
        c(z(3, 4), t(2, 3, 4))
        c(t(3, 4), z(3, 4))
    F.op("aten.add.Tensor")(z(3, 4), z(4), alpha=2)
    F.op("aten.sub.Tensor")(z(3, 4), t(4), alpha=0.5)
    F.op("aten.mul.Scalar")(z(3, 4), 2.5)
    F.op("aten.mul.Tensor")(z(3, 4), -2)
    F.op("aten.cat.default")([z(2, 3), z(4, 3)], 0)
    F.op("aten.stack.default")([z(2, 3), z(2, 3)], -1)
    F.op("aten.index_select.default")(z(4, 3), 0, torch.tensor([2, 0, 3]))
    F.op("aten.permute.default")(z(2, 3, 4), [2, 0, 1])
    F.op("aten.view.default")(z(2, 6), [3, 4], static=True)
    F.op("aten.sum.dim_IntList")(z(3, 4), [1])
    F.op("aten.mean.dim")(z(3, 4), [0], True)
    for n in ("sum", "mean", "prod", "sgn", "log", "sqrt", "sin", "cos", "reciprocal", "square", "isnan", "isfinite",
              "isinf", "mH", "adjoint", "_neg_view", "_conj_physical", "t", "linalg_vector_norm", "var"):
        F.op(f"aten.{n}.default")(z(3, 4))
    F.op("aten.rsub.Tensor")(z(3), z(3), alpha=2)
    F.op("aten.rsub.Tensor")(t(3), z(3))
    F.op("aten.rsub.Scalar")(z(2, 3), 2, 0.5)
    F.op("aten.abs.default")(torch.zeros(2, dtype=torch.complex64))
    F.op("aten.sgn.default")(torch.zeros(2, dtype=torch.complex64))
    for e in (2, 3, -2, 0.5, 1):
        F.op("aten.pow.Tensor_Scalar")(z(3, 4), e)
    far = torch.tensor([complex(-1e16, 1), complex(-1e16, -1), complex(-4, -0.0), 0, 2j])  # beside the negative axis
    F.op("aten.pow.Tensor_Scalar")(far, 0.5)
    F.op("aten.pow.Tensor_Scalar")(torch.tensor([complex(-4, 1e-7), complex(-4, -1e-7), 2j, 3]), -0.5)
    F.op("aten.pow.Tensor_Tensor")(z(3, 4), z(4))
    F.op("aten.pow.Tensor_Tensor")(t(3, 4, lo=0.5), z(4))
    for n in ("eq", "ne"):
        F.op(f"aten.{n}.Tensor")(z(3, 4), z(3, 1))
        F.op(f"aten.{n}.Tensor")(torch.ones(3, dtype=torch.complex64), torch.tensor([1.0, 2, 1]))
    for n in ("mm", "matmul"):
        F.op(f"aten.{n}.default")(z(3, 4), z(4, 2))
    F.op("aten.matmul.default")(z(2, 3, 4), t(4, 2).to(torch.complex64))
    F.op("aten.bmm.default")(z(2, 3, 4), z(2, 4, 2))
    F.op("aten.linear.default")(z(3, 4), z(2, 4), z(2))
    F.op("aten.addmm.default")(z(2), z(3, 4), z(4, 2), alpha=2)
    F.op("aten.einsum.default")("bixy,ioxy->boxy", [z(2, 3, 2, 2), z(3, 4, 2, 2)])
    for n in ("dot", "vdot", "linalg_vecdot"):
        F.op(f"aten.{n}.default")(z(5), z(5))
    F.op("aten.cumsum.default")(z(3, 4), 1)
    F.op("aten.cumprod.default")(z(3, 4), 1)
    F.op("aten.prod.dim_int")(z(3, 4), 1)
    F.op("aten.where.self")(t(3, 4) > 0, z(3, 4), t(3, 4))
    F.op("aten.masked_fill.Scalar")(z(3, 4), t(3, 4) > 0, 2)
    F.op("aten.flip.default")(z(3, 4), [0])
    F.op("aten.roll.default")(z(3, 4), [1], [1])
    F.op("aten.tril.default")(z(4, 4))
    F.op("aten.unfold.default")(z(2, 7), 1, 3, 2)
    F.op("aten.diagonal.default")(z(2, 3, 4), 1, -2, 0)
    F.op("aten.as_strided.default")(z(3, 4), [2, 3], [5, 1], 1, static=True)
    F.op("aten.constant_pad_nd.default")(z(2, 3), [1, 2], 1.5)
    F.op("aten.gather.default")(z(3, 4), 1, idx(4, 3, 2))
    F.op("aten.index.Tensor")(z(4, 3), [torch.tensor([2, 0])])
    F.op("aten.slice_scatter.default")(z(4, 3), z(2, 3), 0, 1, 3, 1)
    F.op("aten.select_scatter.default")(z(4, 3), z(4), 1, 2)
    F.op("aten.full.default")([2, 3], 1.5, dtype=torch.complex64)
    cuts = torch.tensor([complex(a, b) for a in (-2.0, -0.5, 0.0, 0.5, 2.0) for b in (-1.0, -0.0, 0.0, 1.0)])
    for n in ("exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tan", "sinh", "cosh", "tanh", "asin",
              "acos", "atan", "asinh", "acosh", "atanh", "sigmoid", "silu", "sinc"):
        F.op(f"aten.{n}.default")(z(3, 5))
        F.op(f"aten.{n}.default")(cuts)
    ends = [complex(a, b) for a in (-inf, -1.0, inf) for b in (-inf, -1.0, 0.0, inf)]
    ends = torch.tensor([*ends, complex(0, inf), 0])
    for n in ("sqrt", "rsqrt", "atan", "reciprocal"):
        F.op(f"aten.{n}.default")(ends)
    for n in ("atan", "atanh", "sigmoid", "nan_to_num"):
        F.op(f"aten.{n}.default")(torch.cat([ends, torch.tensor([-400, 1e30 + 1j])]))
    F.op("aten.nan_to_num.default")(torch.tensor([complex(nan, inf), complex(-inf, nan), 1j]), 2, 3, 4)
    F.op("aten.exp.default")(torch.tensor([400, -400, complex(-inf, inf), complex(-inf, 1), 1 + 1j]))
    F.op("aten.to.dtype")(torch.tensor([1j, 0, 2, complex(0, nan)]), b8)
    F.op("aten.tanh.default")(torch.tensor([50 + 1j, -200 + 2j, 0.5 + 0.1j]))
    far = torch.tensor([3e20 + 1e20j, 2e-25 - 1e-25j])
    F.op("aten.div.Tensor")(torch.tensor([1 + 1j, 1e-20 - 3e-20j]), far)
    F.op("aten.reciprocal.default")(far[:1])
    F.op("aten.logaddexp.default")(z(3, 4) * 3, z(4))
    F.op("aten.logsumexp.default")(z(3, 4) * 100, [1])
    F.op("aten.logsumexp.default")(z(3, 4), [0, 1], True)
    F.op("aten.addcmul.default")(z(3, 4), z(4), t(3, 1), value=2)
    F.op("aten.addcdiv.default")(z(3, 4), z(4), z(3, 1))
    holes = torch.tensor([[0, 1j, 1], [0, 0, 0], [2 + 1j, 0, 0]])
    for n in ("logical_not", "nonzero", "any", "all", "count_nonzero"):
        F.op(f"aten.{n}.default")(holes)
    for n in ("and", "or", "xor"):
        F.op(f"aten.logical_{n}.default")(holes, holes.T.clone())
    for n, p in (("reflection", 1), ("replication", 3)):
        F.op(f"aten.{n}_pad1d.default")(z(2, 5), [2, p])
        F.op(f"aten.{n}_pad2d.default")(z(2, 3, 4), [1, 2, 2, 1])
        F.op(f"aten.{n}_pad3d.default")(z(1, 2, 3, 2), [1, 0, 2, 1, 0, 1])
    F.op("aten.eye.default")(3, dtype=torch.complex64, static=True)
    F.op("aten.randn.default")([3, 5], dtype=torch.complex64, static=True)
    F.op("aten.rand.default")([7], dtype=torch.complex64, static=True)
    F.op("aten.uniform.default")(z(3, 4), -1, 2)
    F.op("aten.linalg_vander.default")(z(2, 3), N=4)
    F.op("aten.dist.default")(z(3, 4), z(4))
    F.op("aten.linalg_norm.default")(z(3, 4), 1)
    F.op("aten.renorm.default")(z(3, 4), 2, 0, 1.5)
    F.op("aten.rms_norm.default")(z(3, 4), [4], z(4), 1e-5)
    F.op("aten.zeros_like.default")(z(2, 3))
    F.op("aten._to_copy.default")(t(3), dtype=torch.complex64)
    a = z(3, 4)
    F.op("aten.isclose.default")(a, a + 1e-6j)
    F.op("aten.isclose.default")(a, torch.where(a.real > 0, a, complex(nan, 1)), equal_nan=True)
    c = F.op("aten.view.dtype")
    c(t(3, 4), torch.int16)
    c(t(3, 4, dt=i16), f32)
    c(t(3, 4), i32)


def random(F):
    """After torch.manual_seed(0), which the recorder sets before each case."""
    for n in ("rand", "randn"):
        c, like = F.op(f"aten.{n}.default"), F.op(f"aten.{n}_like.default")
        for s in ([], [1], [7], [15], [16], [37], [3, 11], [0, 4]):
            c(s, static=True)
        for dt in FLOATS:
            c([5, 7], dtype=dt, static=True)
            like(t(3, 7, dt=dt))
            c([900], dtype=dt, static=True)
    for a in ((5, [40]), (1000, [3, 7])):
        F.op("aten.randint.default")(*a, static=True)
    c = F.op("aten.randint.low")
    c(-3, 9, [50], static=True)
    c(0, 2**40, [9], static=True)
    c(-5, 5, [30], dtype=f32, static=True)
    F.op("aten.randint_like.default")(t(4, 5, dt=i64), 7)
    F.op("aten.randint_like.low_dtype")(t(4, 5, dt=i64), -3, 7)
    for n, a in (("uniform", (-1.0, 2.0)), ("uniform", (0.3, 0.7)), ("exponential", (1.5,)), ("geometric", (0.3,)),
                 ("cauchy", (1.0, 2.0)), ("normal_functional", (1.0, 0.5))):
        for dt in FLOATS:
            for s in ((3,), (5, 9), (900,)):
                F.op(f"aten.{n}.default")(t(s, dt=dt), *a)
    for n, a in (("rand.generator", ([3, 11],)), ("randn.generator", ([37],)), ("randperm.generator", (9,)),
                 ("randint.generator", (5, [40])), ("randint.low_generator", (-3, 9, [50])),
                 ("rand_like.generator", (t(3, 5),)), ("randn_like.generator", (t(3, 7),)),
                 ("randint_like.generator", (t(4, 5, dt=i64), 7)),
                 ("randint_like.low_generator_dtype", (t(4, 5, dt=i64), -3, 7))):
        F.op("aten." + n)(*a, generator=None, static=True)
    for dt in ALL:
        F.op("aten.random.to").maybe(t(5, 9, dt=dt), 2)
        F.op("aten.random.from").maybe(t(5, 9, dt=dt), 1, 2)
        if dt not in (i64, i32):
            F.op("aten.random.default").maybe(t(5, 9, dt=dt))
    for dt in (f32, i64):
        F.op("aten.random.from")(t(900, dt=dt), -7, 2**20)
    F.op("aten.normal.Tensor_float")(t(5, 9), 0.5)
    F.op("aten.normal.float_Tensor")(2.0, t(5, 9, lo=0))
    F.op("aten.normal.Tensor_Tensor")(t(5, 9), t(9, lo=0))
    F.op("aten.normal.float_float")(2.0, 0.5, [5, 9], static=True)
    for dt in (f32, f64):
        F.op("aten.bernoulli.default")(t(5, 9, dt=dt, lo=0, hi=1))
        F.op("aten.bernoulli.Tensor")(t(5, 9), t(5, 9, dt=dt, lo=0, hi=1))
    for n in (0, 1, 7, 300):
        F.op("aten.randperm.default")(n, static=True)
    c = F.op("aten.multinomial.default")
    for n in (1, 3):
        c(t(5, lo=0), n)
        c(t(2, 5, lo=0), n)
    c(t(2, 5, lo=0), 1, True)
    for dt in FLOATS:
        c(t(2, 5, dt=dt, lo=0), 40, True)
    c(t(7, lo=0), 9, True)
    c(torch.tensor([0.0, 2, 0, 1, 0]), 30, True)
    rates = torch.tensor([0.0, 1e-3, 0.3, 1, 4, 9.75, 10, 11, 40, 300, 6e4])
    for dt in FLOATS:
        F.op("aten.poisson.default")(rates.to(dt).repeat(30, 1))
        F.op("aten.poisson.default")(t(0, 3, dt=dt))
    F.op("aten.poisson.default")(torch.tensor([inf, 1e19, 1e12, 0.0]))
    F.op("aten.poisson.default")(torch.tensor(7.5))
    c = F.op("aten.binomial.default")
    shares = torch.tensor([0.0, 1e-3, 0.02, 0.1, 0.3, 0.5, 0.6, 0.95, 0.999, 1, -0.5, 1.5, nan])
    for dt in (f32, f64):
        for n in ([0.0, 1, 5, 19, 20], [100.0, 1000], [2.5, 33.25, -3], [16777217.0, 3e9, 1e30]):
            c(torch.tensor(n).to(dt).view(-1, 1).expand(-1, 13).repeat(9, 1), shares.to(dt).expand(9 * len(n), 13))
            c(torch.tensor(n).to(dt).view(-1, 1), shares.to(dt))
        c(torch.tensor(50.0, dtype=dt), t(3, 1, 4, dt=dt, lo=0, hi=1))
        c(t(0, 3, dt=dt), t(3, dt=dt))
    c(torch.tensor([inf] * 9), torch.tensor(0.25))
    c = F.op("aten.bernoulli.p")
    for dt in (f32, f64, bf16, i64, b8):
        c(t(5, 9, dt=dt), 0.3)
    for p in (0.0, 1.0, 0.5):
        c(t(40), p)
    for n in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
        c = F.op(f"aten.{n}.default")
        for dt in FLOATS[:1] + FLOATS[3:]:
            for p in (0.1, 0.75, 1.0):
                c(t(4, 5, 6, dt=dt), p, True)
    c = F.op("aten.native_dropout.default")
    for p in (0.1, 0.75, 1.0):
        c(t(4, 5, 6), p, True)
    c = F.op("aten.scaled_dot_product_attention.default")
    q, k, v = t(2, 2, 5, 8), t(2, 2, 7, 8), t(2, 2, 7, 8)
    c(q, k, v, None, 0.3, False, fixed="0.3")
    c(q, k, v, t(2, 1, 5, 7), 0.3, False, scale=0.5)
    c(q, k, v, t(5, 7, dt=b8), 0.3, False, fixed="0.3")
    c(q, k, v, None, 0.3, True, fixed="0.3")


def beside(v, x, axis, block):
    """A scale or zero point in double, so that it broadcasts with x."""
    if v is None or v.numel() == 1:
        return 0.0 if v is None else v.to(f64).reshape(())
    if not block:
        return v.to(f64).reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])
    return v.to(f64).repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])


def quantize(x, scale, zero, dtype, axis=1, block_size=0, saturate=True):
    """ONNX's QuantizeLinear: the quotient in x's dtype, halves to even."""
    y = (x / beside(scale, x, axis, block_size).to(x.dtype)).to(f64)
    if dtype.is_floating_point:
        most = torch.finfo(dtype).max
        if not saturate and dtype is torch.float8_e4m3fn:
            y[y.abs() > 464] = nan
        return (y.clamp(-most, most) if saturate else y).to(dtype)
    info = torch.iinfo(dtype)
    return (y.round() + beside(zero, x, axis, block_size)).clamp(info.min, info.max).to(dtype)


def dequantize(x, scale, zero, axis=1, block_size=0, dtype=None):
    y = (x.to(f32) - beside(zero, x, axis, block_size)).to(f32) * beside(scale, x, axis, block_size).to(f32)
    return y.to(dtype or scale.dtype)


def slopes(F):
    """Gradients of activations, as PyTorch's joint graphs have them."""
    for dt in FLOATS:
        F.op("aten.silu_backward.default")(t(3, 37, dt=dt), t(3, 37, dt=dt, lo=-6, hi=6))
        F.op("aten.tanh_backward.default")(t(3, 37, dt=dt), t(3, 37, dt=dt, lo=-1, hi=1))
        for how in ("none", "tanh"):
            F.op("aten.gelu_backward.default")(t(3, 37, dt=dt), t(3, 37, dt=dt, lo=-6, hi=6), approximate=how)
    for x in (torch.tensor([0.0, -0.0, 20.0, -20.0, nan]),):
        F.op("aten.silu_backward.default")(torch.ones(5), x)
        F.op("aten.tanh_backward.default")(torch.ones(5), x.tanh())
        F.op("aten.gelu_backward.default")(torch.ones(5), x)
        F.op("aten.gelu_backward.default")(torch.ones(5), x, approximate="tanh")


def few_bits(F):
    c, d = F.own("qkv.quantize_linear.default", quantize), F.own("qkv.dequantize_linear.default", dequantize)
    one = torch.tensor(0.05)
    for dt in (u8, i8, i16, torch.uint16):
        zero = torch.tensor(7).to(dt)
        c(t(3, 5), one, zero, dt)
        c(torch.tensor([-1e30, 1e30, 0.0, -0.0, 0.025, 0.075, -0.025, inf, -inf]), one, zero, dt)
        d(idx(100, 3, 5).to(dt), one, zero)
    c(t(3, 5), one, None, u8)
    c(t(3, 5, dt=f16), one.half(), None, i8)
    c(t(2, 4, 3), t(4, lo=0.01, hi=0.2), idx(9, 4, dt=i8), i8, 1)
    c(t(2, 4, 3), t(3, lo=0.01, hi=0.2), idx(9, 3, dt=u8), u8, -1)
    c(t(2, 7), t(2, 3, lo=0.01, hi=0.2), idx(9, 2, 3, dt=i8), i8, 1, 3, static=True)
    c(t(7, 2), t(4, 2, lo=0.01, hi=0.2), None, u8, 0, 2, static=True)
    for dt in (torch.float8_e4m3fn, torch.float8_e5m2):
        c(t(3, 5, lo=-40, hi=40), one, None, dt)
        c(t(3, 5, lo=-4000, hi=4000), one, None, dt)
        c(t(3, 5, lo=-40, hi=40), one, None, dt, 1, 0, False)
        d(t(3, 5).to(dt), one, None)
    c(t(0, 3), one, None, u8)
    d(idx(100, 3, 5, dt=i32), one, None)
    d(idx(100, 2, 4, 3, dt=u8), t(4, lo=0.01, hi=0.2), idx(200, 4, dt=u8), 1)
    d(idx(100, 7, 2, dt=i8), t(4, 2, lo=0.01, hi=0.2), idx(9, 4, 2, dt=i8), 0, 2, static=True)
    d(idx(100, 3, 5, dt=u8), one.half(), None)
    d(idx(100, 3, 5, dt=u8), one, None, 1, 0, f16)


def quantizers(F):
    """PyTorch's own: x * (1 / scale), and a range that may be narrower than the dtype."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  (defines the ops)

    ties = torch.tensor([-1e9, 1e9, 0.0, -0.0, 0.025, 0.075, -0.025, 0.35, -0.35, inf, -inf])
    q, d, fake = (F.op(n) for n in ("quantized_decomposed.quantize_per_tensor.default",
                                    "quantized_decomposed.dequantize_per_tensor.default",
                                    "aten.fake_quantize_per_tensor_affine.default"))
    q_of, d_of, fake_of = (F.op(n) for n in ("quantized_decomposed.quantize_per_tensor.tensor",
                                             "quantized_decomposed.dequantize_per_tensor.tensor",
                                             "aten.fake_quantize_per_tensor_affine.tensor_qparams"))
    one = torch.tensor(0.05)
    for dt, low, high in ((u8, 0, 255), (i8, -128, 127), (i8, -127, 127), (u8, 0, 127), (i16, -32768, 32767)):
        scale = 0.0500000007450580596923828125  # float32's 0.05
        for x in (t(3, 5), ties, t(()), t(0, 3), t(2000, lo=-7, hi=7)):
            q(x, scale, 7, low, high, dt)
            if dt is not i16:
                fake(x, scale, 7, low, high)
        q_of(t(3, 5), one, torch.tensor(7), low, high, dt)
        d(idx(100, 3, 5).to(dt), scale, 7, low, high, dt)
        d_of(idx(100, 3, 5).to(dt), one, torch.tensor(7), low, high, dt)
    for dt in (bf16, f16):
        q(t(3, 5, dt=dt), 0.125, 0, -128, 127, i8)
        d(idx(100, 3, 5, dt=i8), 0.125, 3, -128, 127, i8, out_dtype=dt)
    fake_of(t(3, 5), one, torch.tensor(7, dtype=i32), 0, 255)
    q, d, fake = (F.op(n) for n in ("quantized_decomposed.quantize_per_channel.default",
                                    "quantized_decomposed.dequantize_per_channel.default",
                                    "aten.fake_quantize_per_channel_affine.default"))
    for axis, n in ((0, 2), (1, 4), (2, 3)):
        scales, zeros = t(n, lo=0.01, hi=0.2), idx(9, n)
        q(t(2, 4, 3), scales, zeros, axis, -127, 127, i8)
        d(idx(100, 2, 4, 3, dt=i8), scales, zeros, axis, -127, 127, i8)
        fake(t(2, 4, 3), scales, zeros.to(i32), axis, 0, 255)
    d(idx(100, 2, 4, 3, dt=i8), t(4, lo=0.01, hi=0.2), None, 1, -128, 127, i8)
    for kind in ("choose_qparams", "choose_qparams_symmetric"):
        c = F.op(f"quantized_decomposed.{kind}.tensor")
        for x in (t(3, 5), t(4, lo=0.5, hi=3), t(2, 2, lo=-3, hi=-1), torch.zeros(3)):
            c(x, -128, 127, 1.1920928955078125e-07, i8, outs=2)
            c(x, 0, 255, 0.001, u8, outs=2)
    c = F.op("quantized_decomposed.choose_qparams_per_token.default")
    for x in (t(3, 5), t(2, 3, 4), torch.zeros(2, 3)):
        c(x, i8, outs=2)
    for name in ("choose_qparams_per_token_asymmetric", "_choose_qparams_per_token_asymmetric_impl"):
        c = F.op(f"quantized_decomposed.{name}.default")
        for x in (t(3, 5), t(2, 3, 4, lo=1, hi=2), torch.zeros(2, 3)):
            c(x, i8, outs=2)
    q, d = (F.op(f"quantized_decomposed.{n}.default") for n in ("quantize_per_token", "dequantize_per_token"))
    q_of, d_of = (F.op(f"quantized_decomposed.{n}.default")
                  for n in ("quantize_per_channel_group", "dequantize_per_channel_group"))
    for shape in ((3, 5), (2, 3, 4)):
        scales = t(*shape[:-1], 1, lo=0.01, hi=0.2)
        for zeros in (torch.zeros_like(scales), idx(9, *shape[:-1], 1).to(f32)):
            q(t(*shape), scales, zeros, -127, 127, i8, static=True)
            d(idx(100, *shape, dt=i8), scales, zeros, -128, 127, i8, f32, static=True)
    scales, zeros = t(4, 3, lo=0.01, hi=0.2), idx(9, 4, 3)
    q_of(t(4, 6), scales, zeros, -128, 127, i8, 2, static=True)
    d_of(idx(100, 4, 6, dt=i8), scales, zeros, -128, 127, i8, 2, f32, static=True)
    d_of(idx(100, 4, 6, dt=i8), scales, None, -128, 127, i8, 2, f32, static=True)


POLYNOMIALS = [f"{s}chebyshev_polynomial_{k}" for s in ("", "shifted_") for k in "tuvw"] + [
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]


def special_functions(F):
    """Inside of their domains and at its ends, small and large, dtypes that PyTorch takes."""
    wide = torch.cat([torch.linspace(-12, 12, 49), torch.tensor([1e-3, 30.0, 50.0, 75.0, 1e-20, -1e-3, 0.0])])
    for n in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0", "modified_bessel_i0",
              "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
              "scaled_modified_bessel_k1", "i0e", "i1e", "airy_ai", "erfcx", "log_ndtr", "ndtri"):
        c = F.op(f"aten.special_{n}.default")
        rough = "bessel_j" in n or "bessel_y" in n or n == "airy_ai"  # PyTorch's own are off by 1e-8 in double
        for dt in (f32,) if rough else (f32, f64):
            x = torch.linspace(-0.1, 1.1, 61) if n == "ndtri" else wide.clamp(min=-4) if n == "erfcx" else wide
            c(x.to(dt) if "_y" not in n and "_k" not in n else x.abs().to(dt))
        if rough:
            c(torch.tensor([inf, -inf, nan]))
        if n[-2:] in ("0e", "1e") or "_k" in n:
            c(torch.tensor([1e13, 1e300, 1.7e308, inf], dtype=f64))
        for s in SHAPES:
            c(t(s, lo=0.05, hi=0.95))
        for dt in INTS if n in ("i0e", "i1e") else ALL[2:]:  # in halves, PyTorch's i0e rounds each step
            c.maybe(t(11, dt=dt, lo=0.05, hi=0.95))
    c = F.op("aten.special_zeta.default")
    c(torch.tensor([2.0, 3, 1, 0.5, 2, 4, 3, 2.5]), torch.tensor([1e-3, 7, 2, 2, -1.5, -2, 0, -1.5]))
    c(t(7, dt=f64, lo=1.1, hi=9), t(7, dt=f64, lo=0.1, hi=40))
    c(torch.tensor([7.0, 89, 89, 88, 1e300], dtype=f64), torch.tensor([-2.5, -0.5, -2.5, -0.5, -0.5], dtype=f64))
    F.op("aten.special_zeta.other_scalar")(t(5, lo=1.5, hi=4), 2.5)
    F.op("aten.special_zeta.self_scalar")(3, t(5, lo=1.5, hi=4))
    for n in ("polygamma", "special_polygamma"):
        c = F.op(f"aten.{n}.default")
        for k in range(5):
            c(k, t(9, lo=0.1, hi=20))
            if k != 1:  # PyTorch's trigamma is off by 1e-9
                c(k, t(9, dt=f64, lo=0.1, hi=20))
            c(k, t(9, lo=-3.9, hi=-3.1))
        c(1, t(9, dt=bf16, lo=0.5, hi=5))
        c(1, t(9, dt=f16, lo=0.5, hi=5))
    for n in ("igamma", "igammac", "special_gammainc", "special_gammaincc"):
        c = F.op(f"aten.{n}.default")
        for dt in (f32, f64):
            c(t(5, 7, dt=dt, lo=0.05, hi=12), t(7, dt=dt, lo=0, hi=20))
        c(t(9, lo=50, hi=400), t(9, lo=50, hi=400))
        for dt in FLOATS[2:]:
            c.maybe(t(7, dt=dt, lo=0.1, hi=3), t(7, dt=dt, lo=0.1, hi=3))
        c(torch.tensor([0.0, 0, 1, inf, 2, -1, 2, nan]), torch.tensor([0.0, 1, 0, 2, inf, 1, -1, 1]))
        c(torch.tensor([nan, nan, nan, inf, 0, 2]), torch.tensor([inf, 0, nan, nan, nan, nan]))
    for n in POLYNOMIALS:
        c = F.op(f"aten.special_{n}.default")
        for dt in (f32, f64):
            c(torch.linspace(-1, 2, 25, dtype=dt)[:, None], torch.tensor([-1, 0, 1, 2, 3, 5, 6.5], dtype=dt))
            c(torch.linspace(-0.9, 0.9, 13, dtype=dt)[:, None], torch.tensor([9, 12, 20], dtype=dt))
        c(t(4, dt=i64), t(4, dt=i64, lo=0, hi=5))
        F.op(f"aten.special_{n}.n_scalar")(t(3, 4), 3)
        F.op(f"aten.special_{n}.x_scalar")(0.5, torch.tensor([0.0, 1, 2, 3]))


def tails(F):
    for dt in FLOATS:
        F.op("aten.erfinv.default")(torch.tensor([1.0, -1.0, 1.5, 0.999, -0.99999, 0.0, -0.0, 1e-4, nan]).to(dt))


def powers_of_two(F):
    """Exact, where 2^n alone is out of range as well."""
    c = F.op("aten.ldexp.Tensor")
    for dt, lo, hi in ((f16, -30, 30), (bf16, -200, 200), (f32, -200, 200), (f64, -1500, 1500)):
        for n in (i64, i32):
            far = torch.tensor([2.0 ** (lo // 2), 1.5, -0.0, inf, nan, 2.0 ** (hi // 2) * 1.25], dtype=f64).to(dt)
            c(far, torch.tensor([hi, lo, 3000, -3000, 5, lo], dtype=n))
        c(far, torch.tensor(7))
        c(far[1], torch.tensor([-2, 3]))


def add(F):
    tails(F)
    powers_of_two(F)
    special_functions(F)
    quantizers(F)
    unary(F)
    binary(F)
    scalar(F)
    ternary(F)
    casts(F)
    random(F)
    complexes(F)
    far_integers(F)
    few_bits(F)
    slopes(F)
    backward.elements(F)
