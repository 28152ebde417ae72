"""Golden cases of the reduce family: sums, extremes, softmax, norms, scans, sorting."""
from golden import *


def sums(F):
    for n in ("sum", "mean", "prod", "nansum", "nanmean", "amax", "amin", "all", "any", "max", "min", "argmax",
              "argmin", "count_nonzero", "median",
              "nanmedian", "aminmax", "norm", "std", "var", "std_mean", "var_mean"):
        c = F.op(f"aten.{n}.default") if n not in ("norm",) else F.op("aten.norm.Scalar")
        for s in ((), (37,), (2, 3, 5)):
            c.maybe(t(s))
        for dt in ALL:
            c.maybe(t(3, 5, dt=dt))
        c.maybe(special())
        c.maybe(torch.tensor([1.0, nan, 3.0, -1.0]))
        c.maybe(torch.tensor([2.0, 5.0, 5.0, -7.0, -7.0]))
        c.maybe(t(0))
        c.maybe(t(0, 3, dt=i64))
    for n in ("sum", "prod", "mean", "nansum", "nanmean"):
        c = F.op(f"aten.{n}.default")
        for dt in (f64, f32, bf16, i64, f16):
            c.maybe(t(3, 4, lo=0, hi=2), dtype=dt)
            c.maybe(t(3, 4, dt=b8), dtype=dt)
    for n in ("sum.dim_IntList", "mean.dim", "nansum.default", "nanmean.default", "amax.default", "amin.default",
              "logsumexp.default", "std.dim", "var.dim",
              "any.dims", "all.dims", "std_mean.dim", "var_mean.dim", "count_nonzero.dim_IntList"):
        c = F.op("aten." + n)
        for dims in ([1], [-1], [0], [0, 2], [-1, -2], [0, 1, 2], [2]):
            c.maybe(t(2, 3, 5), dims)
            if not n.startswith(("std", "var", "count")):
                c.maybe(t(2, 3, 5), dims, True)
        c.maybe(t(2, 3, 5), [])
        if "sum." in n or "mean." in n or "nan" in n or n.startswith(("any", "all", "std.", "var.")):
            c.maybe(t(2, 3, 5), None)
        for dt in ALL:
            c.maybe(t(3, 9, dt=dt), [1])
            c.maybe(t(3, 9, dt=dt), [0])
        c.maybe(t(40, 33), [0])
        c.maybe(t(33, 70), [1])
        c.maybe(t(()), [0])
        c.maybe(t(()), [-1])
        if n.startswith(("any", "all")):
            for dims in ([], [0], None):
                c.maybe(torch.tensor(5, dtype=u8), dims)
            c.maybe(torch.tensor([5, 0, 7], dtype=u8), [])
        c.maybe(t(3, 0), [1])
        c.maybe(t(0, 3), [1])
        x = t(3, 6)
        x[0, 2], x[1, 3], x[2, 0] = nan, inf, -inf
        # PyTorch's one-pass mean of infinities is NaN; said to be a flaw
        c.maybe(x if "_mean" not in n else x[:1], [1])
        c.maybe(x, [0], True) if not n.startswith(("std", "var", "count")) else None
    for n in ("sum.dim_IntList", "mean.dim", "nansum.default", "nanmean.default"):
        c = F.op("aten." + n)
        for dt in (f64, f32, bf16, i64):
            c.maybe(t(3, 4), [1], dtype=dt)
            c.maybe(t(3, 4, dt=i32), [1], True, dtype=dt)
    F.op("aten.special_logsumexp.default")(t(3, 5), [1])
    c = F.op("aten.logsumexp.default")
    c(torch.tensor([[-inf, -inf], [inf, 1], [1000.0, 1000.0]]), [1])
    for n in ("prod.dim_int", "any.dim", "all.dim", "argmax.default", "argmin.default", "max.dim", "min.dim",
              "median.dim", "nanmedian.dim",
              "cummax.default", "cummin.default", "mode.default", "count_nonzero.default"):
        c = F.op("aten." + n)
        keep = n not in ("cummax.default", "cummin.default", "count_nonzero.default")
        for d in (0, 1, 2, -1):
            c.maybe(t(2, 3, 5), d)
            c.maybe(t(2, 3, 5), d, True) if keep else None
        for dt in ALL:
            c.maybe(t(4, 7, dt=dt), 1)
        c.maybe(t(()), 0)
        c.maybe(t(4, 0, 3), 0)
        x = t(3, 5)
        x[0, 2], x[1, 3], x[2, 0] = nan, inf, -inf
        c.maybe(x, 1)
        c.maybe(t(3, 5, dt=f32).round(), 0)     # ties
        c.maybe(t(9, 70), 1)
    c = F.op("aten.prod.dim_int")
    c(t(3, 4), 1, dtype=f64)
    for n in ("argmax", "argmin"):
        F.op(f"aten.{n}.default")(t(3, 4), None)
        F.op(f"aten.{n}.default")(t(3, 4), None, True)
    c = F.op("aten.aminmax.default")
    c(t(3, 5), dim=1)
    c(t(3, 5), dim=-2, keepdim=True)
    for n in ("std", "var", "std_mean", "var_mean"):
        F.op(f"aten.{n}.default")(t(3, 5), False)
        c = F.op(f"aten.{n}.dim")
        c(t(3, 5), [1], False)
        c(t(3, 5), [1], False, True)
        c(t(3, 5), [0, 1], True, True)
        c(t(3, 5, dt=bf16), [-1], False)
        c = F.op(f"aten.{n}.correction")
        for kw in (dict(correction=0), dict(correction=1, keepdim=True), dict(correction=2), dict(correction=0.5), {}):
            c(t(3, 5), [1], **kw)
            c(t(3, 5, 2), [0, -1], **kw)
        c(t(3, 5), None, correction=0)
        for dt in FLOATS:
            c(t(4, 6, dt=dt), [-1], correction=0, keepdim=True)
        c(t(3, 1), [1])
    for n, more in (("norm.Scalar", False), ("norm.ScalarOpt_dim", True), ("linalg_vector_norm.default", True),
                    ("linalg_norm.default", True),
                    ("norm.ScalarOpt_dtype", None), ("norm.ScalarOpt_dim_dtype", None), ("frobenius_norm.dim", None),
                    ("nuclear_norm.dim", None)):
        c = F.op("aten." + n)
        if more is None:
            if "frobenius" in n:
                c(t(3, 4, 5), [1, 2])
                c(t(3, 4, 5), [-1], True)
            elif n.endswith("dtype") and "dim" in n:
                c(t(3, 4), 2, [1], False, dtype=f64)
                c(t(3, 4), None, [1], True, dtype=f32)
            elif n.endswith("dtype"):
                c(t(3, 4), 2, dtype=f64)
            continue
        for p in (2, 1, inf, -inf, 0, 3, 0.5):
            c.maybe(t(3, 5), p)
            if more:
                for d in ([1], [0], [-1]):
                    c.maybe(t(3, 5), p, d)
                c.maybe(t(3, 5), p, [1], True)
                c.maybe(t(2, 3, 5), p, [0, 2]) if "vector" in n else None
        for dt in FLOATS:
            c.maybe(t(3, 5, dt=dt), 2, [1], True) if more else c.maybe(t(3, 5, dt=dt))
        c.maybe(t(()), 2)
        c.maybe(t(3, 0), 2, [1]) if more else None
    F.op("aten.linalg_vector_norm.default")(t(3, 4), 2, [1], False, dtype=f64)
    for n in ("sum", "count_nonzero", "nansum"):
        F.op(f"aten.{n}.default")(t(70, 70, dt=b8))


def softmaxes(F):
    for n in ("softmax.int", "log_softmax.int", "_softmax.default", "_log_softmax.default",
              "special_log_softmax.default", "special_softmax.default",
              "_safe_softmax.default"):
        c = F.op("aten." + n)
        tail = (False,) if n.startswith("_") and "safe" not in n else ()
        for s, d in (((5,), 0), ((2, 3, 5), -1), ((2, 3, 5), 1), ((2, 3, 5), 0), ((4, 33), 1), ((3, 70), -1), ((), 0),
                     ((1, 1), 1), ((0, 4), 1)):
            c.maybe(t(s, lo=-8, hi=8), d, *tail)
        for dt in ALL:
            c.maybe(t(3, 9, dt=dt), -1, *tail)
            c.maybe(t(3, 9, dt=dt), 0, *tail)
        c(torch.tensor([[1e4, -1e4, 0], [88.0, 89.0, 90.0], [-inf, 0, 1], [-inf, -inf, -inf], [inf, 0, 1],
                        [nan, 0, 1]]), 1, *tail)
        if not tail:
            c.maybe(t(3, 5), 1, f64)
            c.maybe(t(3, 5, dt=bf16), 1, f32)
            c.maybe(t(3, 5, dt=f16), -1, dtype=f32)
            c.maybe(t(3, 5, dt=i64), -1, dtype=f32)
    for n in ("softmax", "log_softmax"):
        c = F.op(f"aten._{n}_backward_data.default")
        forward = getattr(torch, n)
        for s, d in (((5,), 0), ((2, 3, 5), -1), ((2, 3, 5), 1), ((3, 70), -1), ((), 0), ((0, 4), 1)):
            c(t(s), forward(t(s, lo=-8, hi=8), d), d, f32)
        for dt in FLOATS:
            c(t(3, 9, dt=dt), forward(t(3, 9, dt=dt), -1), -1, dt)


def norm_backward(dy, x, shape, w, eps, rms):
    """Autograd's answer in float64, rounded once."""
    with torch.enable_grad():
        x, w = (v.detach().to(f64).requires_grad_() for v in (x, w))
        b = torch.zeros_like(w, requires_grad=True)
        y = torch.nn.functional.rms_norm(x, shape, w, eps) + b if rms else torch.nn.functional.layer_norm(x, shape, w,
            b, eps)
        return tuple(g.to(dy.dtype) for g in torch.autograd.grad(y, (x, w, b), dy.to(f64)))


def norms(F):
    for dt in FLOATS:
        w = lambda n: t(n, dt=dt)
        c = F.op("aten.layer_norm.default")
        c(t(2, 3, 17, dt=dt), [17], w(17), w(17), static=True)
        c(t(2, 3, 5, dt=dt), [3, 5], t(3, 5, dt=dt), t(3, 5, dt=dt), 1e-6, static=True)
        c(t(4, 8, dt=dt), [8], static=True)
        c(t(4, 8, dt=dt), [8], w(8), None, 1e-3, static=True)
        c = F.op("aten.native_layer_norm.default")
        c(t(2, 3, 17, dt=dt), [17], w(17), w(17), 1e-5, static=True)
        c(t(2, 3, 5, dt=dt), [3, 5], None, None, 1e-5, static=True)
        c = F.op("aten.native_layer_norm_backward.default")
        c(t(2, 3, 17, dt=dt), t(2, 3, 17, dt=dt), [17], t(2, 3, 1, dt=dt), t(2, 3, 1, dt=dt, lo=0.5, hi=2), w(17),
          w(17), [True, True, True], static=True)
        c(t(2, 3, 5, dt=dt), t(2, 3, 5, dt=dt), [3, 5], t(2, 1, 1, dt=dt), t(2, 1, 1, dt=dt, lo=0.5, hi=2),
          t(3, 5, dt=dt), t(3, 5, dt=dt), [True, True, True], static=True)
        c = F.own("qkv.norm_backward.default", norm_backward)
        for rms in (False, True):
            c(t(2, 3, 17, dt=dt), t(2, 3, 17, dt=dt), [17], w(17), 1e-5, rms, static=True)
            c(t(2, 3, 5, dt=dt), t(2, 3, 5, dt=dt), [3, 5], t(3, 5, dt=dt), 1e-3, rms, static=True)
            c(t(200, 9, dt=dt), t(200, 9, dt=dt), [9], w(9), 1e-5, rms, static=True)
            c(t(7, dt=dt), t(7, dt=dt), [7], w(7), 1e-5, rms, static=True)
        c = F.op("aten.rms_norm.default")
        c(t(2, 3, 17, dt=dt), [17], w(17), static=True)
        c(t(2, 3, 17, dt=dt), [17], None, 1e-6, static=True)
        c(t(2, 3, 5, dt=dt), [3, 5], t(3, 5, dt=dt), 1e-5, static=True)
        F.op("aten._fused_rms_norm.default").maybe(t(2, 17, dt=dt), [17], w(17), 1e-6, static=True)
        c = F.op("aten.group_norm.default")
        c(t(2, 6, 5, dt=dt), 3, w(6), w(6), static=True)
        c(t(2, 6, 3, 4, dt=dt), 2, None, None, 1e-3, static=True)
        c(t(2, 8, dt=dt), 4, w(8), w(8), static=True)
        c(t(0, 6, 5, dt=dt), 3, w(6), w(6), static=True)
        c = F.op("aten.native_group_norm.default")
        c(t(2, 6, 5, dt=dt), w(6), w(6), 2, 6, 5, 3, 1e-5, static=True)
        for shape in ((3, 5), (2, 5, 7), (2, 5, 3, 4), (1, 5, 2, 2, 3)):
            stats = w(5), w(5), t(5, dt=dt), t(5, dt=dt, lo=0.2, hi=2)
            F.op("aten.batch_norm.default").maybe(t(shape, dt=dt), *stats, False, 0.1, 1e-5, False, static=True)
            F.op("aten._native_batch_norm_legit_no_training.default").maybe(t(shape, dt=dt), *stats, 0.1, 1e-5,
                                                                            static=True, outs=1)
        F.op("aten.batch_norm.default")(t(2, 5, 7, dt=dt), None, None, t(5, dt=dt), t(5, dt=dt, lo=0.2, hi=2), False,
                                        0.1, 1e-3, True, static=True)
        F.op("aten.native_batch_norm.default").maybe(t(2, 5, 7, dt=dt), *stats, False, 0.1, 1e-5, static=True, outs=1)
        F.own("aten.cudnn_batch_norm.default", torch.ops.aten.native_batch_norm.default)(t(2, 5, 7, dt=dt), *stats,
            False, 0.1, 1e-5, static=True, outs=1)
        F.op("aten._native_batch_norm_legit.default").maybe(t(2, 5, 7, dt=dt), *stats, False, 0.1, 1e-5, static=True,
                                                            outs=1)
        for shape in ((3, 5), (2, 5, 7), (2, 5, 3, 4)):
            F.op("aten._native_batch_norm_legit.no_stats").maybe(t(shape, dt=dt), *stats[:2], True, 0.1, 1e-5,
                                                                 fixed="0.1")
            F.op("aten._native_batch_norm_legit.no_stats").maybe(t(shape, dt=dt), None, None, True, 0.1, 1e-3)
            F.op("aten.batch_norm.default").maybe(t(shape, dt=dt), *stats[:2], None, None, True, 0.1, 1e-5, False,
                                                  fixed="0.1")
        if dt in (f32, f64):
            for training in (False, True):
                F.op("aten._native_batch_norm_legit_functional.default")(t(2, 5, 7, dt=dt), *stats, training, 0.3,
                                                                         1e-5, static=True)
        F.op("aten._batch_norm_with_update_functional.default").maybe(t(2, 5, 7, dt=dt), *stats, 0.1, 1e-5,
                                                                      static=True)
        F.op("aten._batch_norm_with_update.default").maybe(t(2, 5, 7, dt=dt), *stats, 0.1, 1e-5, static=True, outs=3)
        F.op("aten._batch_norm_no_update.default").maybe(t(2, 5, 7, dt=dt), *stats, 0.1, 1e-5, static=True, outs=1)
        c = F.op("aten.instance_norm.default")
        c(t(2, 3, 4, 5, dt=dt), w(3), w(3), None, None, True, 0.1, 1e-5, False, static=True)
        c(t(2, 3, 9, dt=dt), None, None, None, None, True, 0.1, 1e-3, False, static=True)
        c(t(2, 3, 9, dt=dt), w(3), w(3), t(3, dt=dt), t(3, dt=dt, lo=0.5, hi=2), False, 0.1, 1e-3, False, static=True)
    for a, b in ((bf16, f32), (f16, f32)):      # mixed: half input, float weights
        F.op("aten.layer_norm.default").maybe(t(2, 9, dt=a), [9], t(9, dt=b), t(9, dt=b), static=True)
        F.op("aten.group_norm.default").maybe(t(2, 6, 5, dt=a), 3, t(6, dt=b), t(6, dt=b), static=True)
        F.op("aten.batch_norm.default").maybe(t(2, 5, 7, dt=a), t(5), t(5), t(5), t(5, lo=0.2, hi=2), False, 0.1,
                                              1e-5, False, static=True)
    # a large mean must not cost digits
    F.op("aten.layer_norm.default")(t(3, 768, lo=90, hi=110), [768], static=True)
    c = F.op("aten.cosine_similarity.default")
    c(t(3, 5), t(3, 5))
    c(t(3, 5, 2), t(5, 2), 2, 1e-6)
    c(torch.zeros(2, 4), t(2, 4))
    c(t(1, 2, 3), t(2, 1, 3), -2)  # norms of what is as long as the other one
    c(t(5), t(3, 5), 0)
    c(t(3, 5, dt=f16, lo=200, hi=400), t(3, 5, dt=f16, lo=200, hi=400))  # products are beyond float16
    c(t(3, 5, lo=1e18, hi=3e18), t(3, 5, lo=1e18, hi=3e18))
    c = F.op("aten.pairwise_distance.default")
    c(t(3, 5), t(3, 5))
    c(t(3, 5), t(5), 1.0, 1e-6, True)
    for n in ("cdist.default", "_euclidean_dist.default", "_cdist_forward.default"):
        c = F.op("aten." + n)
        if "cdist" in n and "_cd" not in n:
            for p in (2.0, 1.0, inf, 3.0, 0.0, 0.5):
                c(t(2, 4, 3), t(2, 5, 3), p)
            c(t(2, 1, 4, 3), t(3, 5, 3))
            c(t(4, 3, dt=f64), t(5, 3, dt=f64), 1.5)
            c(t(4, 0), t(5, 0))
            c(t(0, 3), t(5, 3))
            c(t(40, 30), t(50, 30))
            c(t(4, 3), t(5, 3))
            c(t(30, 3), t(30, 3))
        elif "forward" in n:
            c(t(4, 3), t(5, 3), 2.0, 2)
            c(t(4, 3), t(5, 3), 1.0, None)
        else:
            c(t(4, 3), t(5, 3))
    c = F.op("aten._pdist_forward.default")
    c(t(5, 3))
    for p in (0.0, 1.0, 3.0, inf):
        c(t(4, 3), p)


def scans(F):
    for n in ("cumsum", "cumprod", "logcumsumexp"):
        c = F.op(f"aten.{n}.default")
        for s, d in (((7,), 0), ((2, 3, 5), 1), ((2, 3, 5), -1), ((2, 3, 5), 0), ((), 0), ((0, 3), 0), ((3, 40), 1)):
            c(t(s), d)
        for dt in ALL:
            c.maybe(t(3, 5, dt=dt), 1)
        for dt in (f64, f32, i32, bf16):
            c.maybe(t(3, 5, dt=i64), 1, dtype=dt)
            c.maybe(t(3, 5), 1, dtype=dt)
    x = t(3, 5)
    x[0, 1], x[1, 2] = nan, -inf
    F.op("aten.cumsum.default")(x, 1)
    F.op("aten.logcumsumexp.default")(torch.tensor([[-inf, -inf, 0.0], [1.0, inf, 2.0]]), 1)
    c = F.op("aten.logcumsumexp.default")
    for s, d in (((7,), 0), ((2, 3, 5), 1), ((2, 3), -2), ((), 0), ((0, 3), 0), ((2, 60), 1)):
        c(torch.complex(t(s, hi=90), t(s) * 2), d)  # phases of PyTorch are not brought back into a turn
    c(torch.tensor([-inf, -inf, 1 + 2j, -inf, 3j, inf, complex(inf, 2), 1, complex(1, nan)]), 0)
    c = F.op("aten.diff.default")
    for kw in ({}, dict(n=2), dict(dim=0), dict(n=1, dim=-2)):
        c(t(4, 6), **kw)
        c(t(4, 6, dt=i64), **kw)
    c(t(4, 6, dt=b8))
    c(t(2, 4), 1, -1, t(2, 1), t(2, 2))
    c(t(2, 4), 0, -1, t(2, 1), t(2, 2))
    c(t(2, 4), 9, -1, t(2, 1), t(2, 2), static=True)
    c(t(2, 4), 4, static=True)


def ties(F):
    """Equal elements: the position of the one that is chosen."""
    few = lambda *s: t(s, lo=0, hi=4, dt=i64)
    for n in (5, 16, 17, 40, 200, 1000):
        for name in ("median", "nanmedian", "mode"):
            F.op(f"aten.{name}.{'default' if name == 'mode' else 'dim'}")(few(3, n), 1)
        for k in (1, n // 3, n):
            F.op("aten.kthvalue.default")(few(2, n), k)
            F.op("aten.kthvalue.default")(t(2, n), k)
    c = F.op("aten.kthvalue.default")
    for dt in FLOATS + INTS:
        c(t(4, 7, dt=dt), 4, 1)
    c(torch.tensor([nan, 1.0, nan, -inf, inf]), 3)
    c(torch.tensor([nan, 1.0, nan, -inf, inf]), 4)
    c(t(()), 1)
    for name in ("median.dim", "nanmedian.dim", "mode.default"):
        c = F.op("aten." + name)
        c(torch.tensor([[nan, 1.0, nan, nan, 1.0], [2.0, nan, 1.0, nan, 2.0]]), -1)
        c(t(3, 1, 2), 1, True)
    for n in (1, 4, 5, 16, 17, 40):
        F.op("aten.nanmedian.dim")(torch.full((2, n), nan), 1)
    for name in ("cummax", "cummin"):
        F.op(f"aten.{name}.default")(few(3, 20), 1)
        F.op(f"aten.{name}.default")(torch.tensor([1.0, nan, inf, nan, -inf]), 0)
    c = F.op("aten.linalg_norm.ord_str")
    c(t(3, 4), "fro")
    c(t(2, 3, 4), "fro", [0, 2], True)
    c(t(3, 5), "nuc")
    c(t(2, 4, 3), "nuc", [2, 1])
    c = F.op("aten.linalg_norm.default")
    c(t(2, 3))
    c(t(7), 3)
    c(t(2, 3, 4), None, [1, 2])
    c(t(2, 5, 3), -2, [1, 2])
    c(t(2, 5, 3), 1, [2, 0], True)
    c(t(4, 3), inf, dtype=f64)
    F.op("aten.frobenius_norm.dim")(t(3, 4), [])


def sorting(F):
    for dt in ALL:
        x = t(3, 9, dt=dt, lo=-50, hi=50)
        F.op("aten.sort.stable").maybe(x, stable=True, dim=1, descending=False)
        F.op("aten.sort.stable").maybe(x, stable=True, dim=0, descending=True)
        F.op("aten.argsort.stable").maybe(x, stable=True, dim=1)
    distinct = lambda *s: torch.randperm(int(torch.tensor(s).prod()), generator=G).reshape(s).float() * 0.5 - 3
    c = F.op("aten.sort.default")
    for a in ((), (0,), (1, True), (-1, False)):
        c(distinct(4, 6), *a)
    c(distinct(7))
    c(t(()))
    c(torch.tensor([3.0, nan, -inf, 1.0, inf]))
    c(torch.tensor([3.0, nan, -inf, 1.0, inf]), 0, True)
    c(torch.tensor([2, 1, 3]))
    long = torch.cat([t(300), torch.tensor([nan, inf, -inf, 0.0, 1e-40, -1e-40])])  # no two alike, NaN last
    for x in (long, long.double(), long.bfloat16()[:60].unique(), torch.randperm(300, generator=G) - 150):
        c(x[torch.randperm(len(x), generator=G)])
    F.op("aten.sort.stable").maybe(t(300, dt=i64), stable=True, dim=0, descending=False)
    F.op("aten.sort.stable").maybe(t(3, 100).round(), stable=True, dim=1, descending=True)
    F.op("aten.sort.stable").maybe(torch.tensor([0.0, -0.0, nan, 1.0] * 20), stable=True, dim=0, descending=False)
    F.op("aten.sort.stable").maybe(torch.tensor([0.0, -0.0, nan, 1.0] * 20), stable=True, dim=0, descending=True)
    c = F.op("aten.argsort.default")
    for a in ((), (0,), (1, True)):
        c(distinct(4, 6), *a)
    F.op("aten.msort.default")(distinct(4, 3))
    c = F.op("aten.topk.default")
    for k, a in ((1, ()), (3, ()), (2, (0,)), (4, (1, False)), (6, (1, True, True)), (0, ())):
        c(distinct(4, 6), k, *a)
    c((distinct(5, 4) * 2).long(), 2)
    c(distinct(4, 8).half(), 3)
    c(torch.tensor([3.0, nan, -inf, 1.0, inf]), 2)
    c(distinct(4, 200), 5)
    c = F.op("aten.kthvalue.default")
    c(distinct(4, 6), 2)
    c(distinct(4, 6), 3, 0, True)
    ties(F)
    c = F.op("aten.unique_consecutive.default")
    x = torch.tensor([1, 1, 2, 2, 2, 3, 1, 1])
    c.maybe(x)
    c.maybe(x, True, True)
    c = F.op("aten._unique2.default")
    c(x, True, True, True)
    c(x.float(), True, False, False)
    c(t(3, 4).round(), True, True, True)
    c = F.op("aten._unique.default")
    c(x, True, True)
    c(x.float())
    c(t(3, 4).round(), False, True)
    F.op("aten.histc.default")(t(30), 5)
    F.op("aten.histc.default")(t(30), 4, -1, 1)
    F.op("aten.bincount.default")(idx(6, 20), static=True)
    c = F.op("aten.bincount.default")
    c(idx(6, 20), t(20), 9, static=True)
    for dt in (i32, u8, i8):
        c(idx(6, 20, dt=dt), t(20, dt=dt), static=True)
    c(idx(6, 20), t(20, dt=f64), 3, static=True)
    c(idx(6, 0), None, 4, static=True)
    c(idx(6, 0), static=True)
    c = F.op("aten.cov.default")
    c(t(3, 8))
    c(t(8))
    c(t(1, 8), static=True)
    c(t(3, 8, dt=i64))
    c(t(3, 8, dt=f64), correction=0)
    c(t(3, 8), fweights=idx(4, 8, lo=1))
    c(t(3, 8), aweights=t(8, lo=0.5, hi=2), correction=2)
    c(t(3, 8), fweights=idx(4, 8, lo=1), aweights=t(8, lo=0.5, hi=2))
    c(t(3, 1))
    c(t(3, 4), correction=9)
    c(torch.tensor(2.0))
    c = F.op("aten.corrcoef.default")
    c(t(3, 8))
    c(t(3, 8, dt=f64))
    c(t(8))
    c(t(2, 5, dt=i64))
    c(torch.ones(2, 5))
    F.op("aten.trace.default")(t(4, 5))
    F.op("aten.trace.default")(t(3, 3, dt=i64))
    F.op("aten.trace.default")(t(5, 2, dt=i32))
    F.op("aten.trace.default")(t(0, 3))


def statistics(F):
    c = F.op("aten.renorm.default")
    for dt in FLOATS:
        c(t(4, 5, dt=dt), 2, 0, 1.5)
    c(t(4, 5), 1, 1, 2.0)
    c(t(4, 5, 2), 3.0, -2, 2)
    c(t(4, 5), inf, 0, 1.0)
    c(torch.zeros(2, 3), 2, 0, 1.0)
    for n in ("trapezoid", "trapz", "cumulative_trapezoid"):
        c = F.op(f"aten.{n}.dx")
        for dt in FLOATS[:2] + [bf16]:
            c(t(3, 5, dt=dt), dx=0.5)
        c(t(3, 5))
        c(t(3, 5), dim=0)
        c(t(3, 5, dt=i64))
        c(t(1))
        c(t(2, 1))
        c(torch.tensor([[inf], [nan], [1]]))
        c(torch.tensor([[inf, 1, 2], [1, inf, 2], [1, nan, 2], [1, 2, -inf]]), dx=2)
        c = F.op(f"aten.{n}.x")
        c(t(3, 5), t(5))
        c(t(3, 5, dt=f64), t(3, dt=f64), dim=0)
        c(t(3, 5), t(3, 5))
        c(t(3, 5), t(1, 5))
        c(t(3, 5, dt=i64), t(5, dt=i64))
        c(t(2, 3, 5), t(3), dim=-2)
    spoiled = t(3, 6)
    spoiled[0, 1], spoiled[2, 3], spoiled[2, 5], spoiled[1, 0] = nan, nan, nan, inf
    for n in ("quantile", "nanquantile"):
        c, q = F.op(f"aten.{n}.scalar"), F.op(f"aten.{n}.default")
        for kw in ({}, dict(dim=1), dict(dim=0, keepdim=True), dict(keepdim=True)):
            c(t(3, 6), 0.4, **kw)
            c(spoiled, 0.75, **kw)
            q(t(3, 6), torch.tensor([0.1, 0.5, 0.9]), **kw)
            q(spoiled, torch.tensor([0.0, 0.3, 1.0]), **kw)
        for how in ("nearest", "lower", "higher", "midpoint", "linear"):
            c(t(3, 6), 0.5, 1, interpolation=how)
            c(spoiled, 0.4, 1, interpolation=how)
            q(t(3, 6, 2, dt=f64), torch.tensor([0.25, 0.8], dtype=f64), 1, True, interpolation=how)
        q(t(7), torch.tensor(0.25))
        q(t(2, 7), torch.tensor(0.25), 1, True)
        c(t(()), 0.3)
        c(t(()), 0.3, 0, True)
        q(t(()), torch.tensor([0.3, 0.6]))
        c(torch.full((2, 3), nan), 0.5, 1)
        c(t(1, 4), 1.0, 0)


def losses(F):
    p = lambda *s, dt=f32: t(*s, dt=dt, lo=0.02, hi=0.98)
    for n, kw in (("mse_loss", {}), ("l1_loss", {}), ("smooth_l1_loss", dict(beta=0.5)),
                  ("huber_loss", dict(delta=0.7))):
        c = F.op(f"aten.{n}.default")
        for dt in FLOATS:
            c(t(3, 4, dt=dt), t(3, 4, dt=dt), **kw)
        for how in (0, 1, 2):
            c(t(3, 4), t(3, 4), how)
            c(t(2, 3, 4), t(4), how, **kw)
        c(t(()), t(()))
        c(t(0, 3), t(0, 3))
        c(torch.tensor([nan, inf, 1.0]), torch.tensor([1.0, 2.0, -inf]), 0)
        c.maybe(t(3), t(3, dt=f64))
    F.op("aten.smooth_l1_loss.default")(t(3, 4), t(3, 4), 1, 0.0)
    for n, x in (("binary_cross_entropy", p), ("binary_cross_entropy_with_logits", t)):
        c = F.op(f"aten.{n}.default")
        for dt in FLOATS:
            c(x(3, 4, dt=dt), p(3, 4, dt=dt))
        for how in (0, 1, 2):
            c(x(3, 4), p(3, 4), reduction=how)
            c(x(3, 4), p(3, 4), p(4), reduction=how)
        c(x(0, 4), p(0, 4))
    F.op("aten.binary_cross_entropy.default")(torch.tensor([0.0, 1, 0, 1, 1e-30]), torch.tensor([0.0, 1, 1, 0, 0.5]),
                                              None, 0)
    c = F.op("aten.binary_cross_entropy_with_logits.default")
    c(torch.tensor([100.0, -100, 0, 1e30, -1e30]), torch.tensor([0.0, 1, 1, 0, 0.5]), None, None, 0)
    c(t(3, 4), p(3, 4), None, p(4))
    c(t(3, 4), p(3, 4), p(3, 4), p(4), 2)
    c = F.op("aten.kl_div.default")
    for dt in FLOATS:
        c(t(3, 4, dt=dt), p(3, 4, dt=dt))
    for how in (0, 1, 2):
        c(t(3, 4), t(3, 4), how, log_target=True)
        c(t(3), torch.tensor([0.0, 1.0, 0.5]), how)
    c = F.op("aten.poisson_nll_loss.default")
    for dt in FLOATS:
        c(t(3, 4, dt=dt), p(3, 4, dt=dt), True, False, 1e-8, 1)
    for how in (0, 1, 2):
        c(p(3, 4), t(3, 4, lo=0, hi=6).round(), False, True, 1e-8, how)
    sign = lambda *s: t(*s, dt=b8).float() * 2 - 1
    for how in (0, 1, 2):
        F.op("aten.cosine_embedding_loss.default")(t(3, 5), t(3, 5), sign(3), 0.25, how, fixed="2")
        F.op("aten.hinge_embedding_loss.default")(t(3, 5), sign(3, 5), 1.5, how)
        F.op("aten.margin_ranking_loss.default")(t(7), t(7), sign(7), 0.5, how)
        F.op("aten.soft_margin_loss.default")(t(3, 5), sign(3, 5), how)
        F.op("aten.triplet_margin_loss.default")(t(3, 5), t(3, 5), t(3, 5), 1.0, 2.0, 1e-6, how == 1, how)
        F.op("aten.multi_margin_loss.default")(t(3, 5), idx(5, 3), 1, 1, None, how)
        F.op("aten.multi_margin_loss.default")(t(3, 5), idx(5, 3), 2, 0.5, p(5), how)
        for power in (1, 2):
            F.op("aten.multi_margin_loss.default")(torch.tensor([[1.0, 2.0, 1.0], [3.0, 1.0, nan]]), idx(2, 2), power,
                                                   reduction=how)
    F.op("aten.cosine_embedding_loss.default")(t(5), t(5), torch.tensor(-1.0))
    F.op("aten.hinge_embedding_loss.default")(t(3), torch.tensor([1.0, -1.0, 0.0]))
    F.op("aten.triplet_margin_loss.default")(t(3, 5), t(3, 5), t(3, 5), p=1.0)
    F.op("aten.multi_margin_loss.default")(t(5), torch.tensor(2))
    F.op("aten.multi_margin_loss.default")(t(5), torch.tensor([2]), 2, 1, p(5), 0)
    F.op("aten.multi_margin_loss.default")(t(()), torch.tensor(0), 1, 2.0)
    for dt in FLOATS[1:]:
        for n in ("hinge_embedding_loss", "soft_margin_loss"):
            F.op(f"aten.{n}.default")(t(3, 5, dt=dt), sign(3, 5).to(dt))
    skip = torch.tensor([1, -100, 3])
    for n in ("nll_loss.default", "nll_loss_nd.default", "nll_loss_forward.default", "cross_entropy_loss.default"):
        c = F.op("aten." + n)
        for how in (0, 1, 2):
            c(t(3, 4), idx(4, 3), None, how, -100)
            c(t(3, 4), skip, p(4), how, -100)
            c(t(3, 4), torch.tensor([1, 2, 1]), None, how, 1)
        for dt in FLOATS:
            c.maybe(t(3, 4, dt=dt), idx(4, 3), None, 1, -100)
        c(t(4), torch.tensor(2), None, 1, -100)
        c(t(3, 4), torch.tensor([5, 5, 5]), None, 1, 5)
    for n in ("nll_loss2d.default", "nll_loss2d_forward.default", "nll_loss_nd.default", "cross_entropy_loss.default"):
        for how in (0, 1, 2):
            F.op("aten." + n)(t(2, 4, 3, 2), idx(4, 2, 3, 2), p(4), how, 0)
    c = F.op("aten.cross_entropy_loss.default")
    for how in (0, 1, 2):
        c(t(3, 4), skip, None, how, -100, 0.2)
        c(t(3, 4, 2), idx(4, 3, 2), p(4), how, 2, 0.1)
        c(t(3, 4), p(3, 4), None, how)
        c(t(3, 4, 2), p(3, 4, 2), p(4), how, -100, 0.3)
    c(t(4), p(4))


def truths(F):
    for n in ("_is_all_true", "_is_any_true"):
        c = F.op(f"aten.{n}.default")
        c(t(3, 4, dt=b8))
        c(torch.ones(3, 4, dtype=b8))
        c(torch.zeros(0, dtype=b8))


def histograms(F):
    c = F.op("aten.histc.default")
    for dt in FLOATS:
        c.maybe(t(50, dt=dt), 7, -2, 2, static=True)
        c.maybe(idx(5, 30).to(dt), 5, 0, 4, static=True)
        c.maybe(t(5, 4, dt=dt), static=True)
    for x in ((1.0, nan, inf, -1.0), (), (2.0, 2.0)):
        c(torch.tensor(x), 3, 0, 2, static=True)
    c(torch.tensor([2.0, 2.0]), 4, static=True)
    c(t(3, 0, 2), 3, static=True)


def more_histograms(F):
    c, d = F.op("aten.histogram.bin_ct"), F.op("aten.histogram.bins_tensor")
    for kw in (dict(), dict(density=True), dict(weight=t(4, 5, lo=0.5, hi=2))):
        for dt in (f32, f64):
            kw = {k: x.to(dt) if k == "weight" else x for k, x in kw.items()}
            c(t(4, 5, dt=dt), 6, **kw, static=True)
            c(t(4, 5, dt=dt), 3, range=[-1.0, 2.0], **kw, static=True)
            d(t(4, 5, dt=dt), torch.tensor([-2.0, -1, 0.5, 3], dtype=dt), **kw, static=True)
    c(torch.tensor([2.0, 2.0]), 4, static=True)
    c(t(3, 0, 2), 3, static=True)
    c(torch.tensor([0.0, 1.0, 2.0, 2.0, 3.0]), 2, range=[0.0, 2.0], static=True)


def histograms_of_points(F):
    c, d, e = (F.op(f"aten.histogramdd.{n}") for n in ("default", "int_bins", "TensorList_bins"))
    for kw in (dict(), dict(density=True), dict(weight=t(20, lo=0.5, hi=2))):
        c(t(20, 2), [3, 5], **kw, static=True)
        c(t(20, 3), [2, 1, 3], range=[-1.0, 2.0, 0.0, 3.0, -3.0, 1.0], **kw, static=True)
        d(t(4, 5, 2), 3, **{k: x.reshape(4, 5) if k == "weight" else x for k, x in kw.items()}, static=True)
        e(t(20, 2), [torch.tensor([-2.0, -1, 0.5, 3]), torch.tensor([0.0, 2])], **kw, static=True)
    d(t(9, 1, dt=f64), 4, static=True)
    for n in ("bin_edges", "from_bin_cts"):
        F.op(f"aten._histogramdd_{n}.default")(t(20, 2), [3, 5], range=[-1.0, 2.0, 0.0, 3.0], static=True)
    F.op("aten._histogramdd_from_bin_tensors.default")(t(20, 2), [torch.tensor([-2.0, 0, 3]), torch.tensor([0.0, 2])],
                                                       weight=t(20, lo=0.5, hi=2), density=True, static=True)
    c(t(4, 0, 2), [2, 3], static=True)
    d(torch.tensor([[2.0, nan, 1.0], [2.0, inf, 1.0]]), 2, range=[0.0, 4.0, 0.0, 1.0, 1.0, 2.0], static=True)


def derivatives(F):
    """At inner points by both neighbours, at the ends by one or two."""
    x, y = torch.tensor([0.0, 1, 1.5, 4]), torch.tensor([-1.0, 0.5, 2, 3, 7])
    for edge in (1, 2):
        for dt in (f32, f64):
            F.op("aten.gradient.scalarint")(t(4, 5, dt=dt), edge_order=edge)
        F.op("aten.gradient.scalarint")(t(4, 5), spacing=0.5, dim=-1, edge_order=edge)
        F.op("aten.gradient.scalararray")(t(4, 5, 3), spacing=2.0, dim=[2, 0], edge_order=edge)
        F.op("aten.gradient.array")(t(4, 5), dim=[1], edge_order=edge)
        F.op("aten.gradient.scalarrayint")(t(4, 5), spacing=[2.0, 0.5], edge_order=edge)
        F.op("aten.gradient.scalarrayarray")(t(4, 5, 3), spacing=[2.0, 0.5], dim=[0, -1], edge_order=edge)
        F.op("aten.gradient.tensorarrayint")(t(4, 5), spacing=[x, y], edge_order=edge, static=True)
        F.op("aten.gradient.tensorarray")(t(5, 4, 3), spacing=[y, x], dim=[0, 1], edge_order=edge, static=True)


def products_and_losses(F):
    """Of torch.nn.functional.linear_cross_entropy."""
    from torch.nn.modules import linear_cross_entropy  # noqa: F401  registers the ops
    rest = (2, "compact", f32)
    labels, weight = torch.tensor([1, 3, -100, 0, 2]), t(4, lo=0.5)
    for how in ("mean", "sum"):
        c = F.op("torch_nn._linear_cross_entropy_batch_chunked.default")
        c(t(5, 3), t(4, 3), labels, t(4), weight, how, -100, 0.0, *rest, False, False, False, False, outs=1)
        c(t(5, 3), t(4, 3), labels, None, None, how, -100, 0.0, *rest, False, False, False, False, outs=1)
        for dt in (bf16, f16):
            c(t(5, 3, dt=dt), t(4, 3, dt=dt), labels, None, None, how, -100, 0.0, *rest, *4 * [False], outs=1)
    c = F.op("torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default")
    c(t(5, 3), t(4, 3), labels, t(4), weight, -100, *rest)
    c(t(5, 3), t(4, 3), labels, None, None, -100, *rest)
    for dt, policy in ((bf16, "compact"), (f16, "compact"), (f16, "accurate")):
        c(t(5, 3, dt=dt), t(4, 3, dt=dt), labels, t(4, dt=dt), t(4, lo=0.5, dt=dt), -100, 2, policy, f32)


def label_margins(F):
    c = F.op("aten.multilabel_margin_loss.default")
    labels = torch.tensor([[3, 0, -1, 1], [-1, 0, 1, 2], [0, 1, 2, 3]])
    for how in (0, 1, 2):
        c(t(3, 4), labels, how)
        c(t(4), labels[0], how)
        c(torch.tensor([[1.0, 2.0, nan, 0.0]]), labels[:1], how)
    c(t(()), torch.tensor(0))
    c(t(3, 4, dt=f64), labels)


def add(F):
    derivatives(F)
    products_and_losses(F)
    more_histograms(F)
    histograms_of_points(F)
    label_margins(F)
    histograms(F)
    losses(F)
    statistics(F)
    sums(F)
    softmaxes(F)
    norms(F)
    scans(F)
    sorting(F)
    truths(F)
