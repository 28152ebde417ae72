"""Gradients by name, as PyTorch's joint graphs and programs with autograd inside hold them: src/op/backward.def."""
from golden import *

HOW = (0, 1, 2)  # none, mean, sum


def elements(F):
    for dt in FLOATS:
        g = lambda: t(3, 37, dt=dt)
        x = t(3, 37, dt=dt, lo=-6, hi=6)
        for name, *numbers in (("threshold", 0.5), ("leaky_relu", 0.2, False), ("leaky_relu", 0.2, True),
                               ("hardtanh", -1.5, 2.0), ("hardsigmoid",), ("hardswish",), ("softplus", 1.0, 20.0),
                               ("softplus", 2.5, 4.0), ("mish",), ("softshrink", 0.5), ("hardshrink", 0.5)):
            F.op(f"aten.{name}_backward.default")(g(), x, *numbers)
        F.op("aten.sigmoid_backward.default")(g(), x.sigmoid())
        F.op("aten.log_sigmoid_backward.default")(g(), x, (-x.abs()).exp())
        for result in (False, True):
            F.op("aten.elu_backward.default")(g(), 1.5, 1.1, 0.7, result, t(3, 37, dt=dt, lo=-1, hi=3))
        F.op("aten.glu_backward.default")(t(3, 4, dt=dt), t(3, 8, dt=dt), -1)
        F.op("aten.glu_backward.default")(t(3, 4, dt=dt), t(6, 4, dt=dt), 0)
        F.op("aten._prelu_kernel_backward.default")(g(), x, t(1, 37, dt=dt))
    edges = torch.tensor([0.0, -0.0, 0.5, -0.5, 3, -3, 30, -30])
    for name, *numbers in (("threshold", 0.5), ("leaky_relu", 0.2, False), ("hardtanh", -0.5, 0.5), ("hardsigmoid",),
                           ("hardswish",), ("softplus", 1.0, 20.0), ("mish",), ("softshrink", 0.5),
                           ("hardshrink", 0.5)):
        F.op(f"aten.{name}_backward.default")(torch.ones(8), edges, *numbers)


def parts(F):
    for dt in (f32, f64, i64):
        F.op("aten.select_backward.default")(t(4, 5, dt=dt), [4, 3, 5], 1, -2, static=True)
        F.op("aten.slice_backward.default")(t(4, 3, dt=dt), [4, 7], 1, 1, 7, 2, static=True)
        F.op("aten.slice_backward.default")(t(2, 7, dt=dt), [4, 7], -2, -2, 9223372036854775807, 1, static=True)
        F.op("aten.diagonal_backward.default")(t(5, 2, dt=dt), [4, 5, 3], 1, 0, 2, static=True)
        for keep in (False, True):
            at = idx(5, *((4, 1, 3) if keep else (4, 3)))
            F.op("aten.value_selecting_reduction_backward.default").maybe(t(*at.shape, dt=dt), 1, at, [4, 5, 3], keep,
                                                                          static=True)
        F.op("aten.gather_backward.default").maybe(t(2, 3, dt=dt), t(4, 3, dt=dt), -2, idx(4, 2, 3), False)
        F.op("aten.cummaxmin_backward.default").maybe(t(4, 3, dt=dt), t(4, 3, dt=dt), idx(3, 4, 3), 1)
        F.op("aten.trace_backward.default").maybe(t((), dt=dt), [3, 5], static=True)
        mask = torch.arange(12).reshape(3, 4) % 5 < 2
        F.op("aten.masked_scatter_backward.default").maybe(t(2, 3, 4, dt=dt), mask, [5, 3], static=True)
        F.op("aten.embedding_backward.default").maybe(t(2, 3, 4, dt=dt), idx(7, 2, 3), 7, 2, False, False, static=True)
        for eps in (None, 0.125):
            F.op("aten.logit_backward.default").maybe(t(12, dt=dt), torch.linspace(-0.5, 1.5, 12).to(dt), eps)
        F.op("aten.index_select_backward.default")(t(4, 3, dt=dt), [4, 2], 1, torch.tensor([0, 1, 0]), static=True)
    F.op("aten.select_backward.default")(t(), [3], 0, 1, static=True)
    for step in (1, 2, 3):
        F.op("aten.unfold_backward.default")(t(2, (8 - 3) // step + 1, 4, 3), [2, 8, 4], 1, 3, step, static=True)
    F.op("aten.unfold_backward.default")(t(3, 2), [7], 0, 2, 2, static=True)
    for kind in ("reflection", "replication"):
        F.op(f"aten.{kind}_pad1d_backward.default")(t(2, 3, 8), t(2, 3, 5), [2, 1], static=True)
        F.op(f"aten.{kind}_pad2d_backward.default")(t(2, 3, 7, 8), t(2, 3, 4, 5), [2, 1, 0, 3], static=True)
        F.op(f"aten.{kind}_pad3d_backward.default")(t(3, 5, 4, 8), t(3, 3, 4, 5), [2, 1, 0, 0, 1, 1], static=True)
    for padding in (-1, 2):
        for by_count in (False, True):
            F.op("aten.embedding_dense_backward.default")(t(2, 5, 3), idx(7, 2, 5), 7, padding, by_count, static=True)


def losses(F):
    for how in HOW:
        g = lambda *shape: t(*shape) if how == 0 else t()
        F.op("aten.mse_loss_backward.default")(g(3, 5), t(3, 5), t(3, 5), how)
        for edge in (0.5, 2.0):
            F.op("aten.smooth_l1_loss_backward.default")(g(3, 5), t(3, 5), t(3, 5), how, edge)
            F.op("aten.huber_loss_backward.default")(g(3, 5), t(3, 5), t(3, 5), how, edge)
        F.op("aten.soft_margin_loss_backward.default")(g(3, 5), t(3, 5), t(3, 5).sign(), how)
        for weight in (None, t(3, 5, lo=0)):
            F.op("aten.binary_cross_entropy_backward.default")(g(3, 5), t(3, 5, lo=0.1, hi=0.9), t(3, 5, lo=0, hi=1),
                                                               weight, how)
        for weight in (None, t(6, lo=0.1)):
            target = torch.tensor([1, 5, -100, 0])
            total = torch.tensor(3.0) if weight is None else weight[target.clamp(0)][target >= 0].sum()
            F.op("aten.nll_loss_backward.default")(g(4), t(4, 6), target, weight, how, -100, total)
            target = idx(6, 2, 3, 4)
            total = torch.tensor(24.0) if weight is None else weight[target].sum()
            F.op("aten.nll_loss2d_backward.default")(g(2, 3, 4), t(2, 6, 3, 4), target, weight, how, -100, total)


def rms_norm_backward(g, x, shape, rstd, weight, mask):
    """It has no kernel for the CPU: autograd of what it is the gradient of."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        w = (torch.ones(shape) if weight is None else weight).detach().requires_grad_()
        return torch.autograd.grad(torch.nn.functional.rms_norm(x, shape, w, 1e-5), (x, w), g)


def layers(F):
    mask = [True, True, True]
    c = F.op("aten.convolution_backward.default")
    for groups in (1, 2):
        for x, w, stride, padding, dilation in (((2, 4, 9), (6, 4, 3), [2], [1], [1]),
                                                ((2, 4, 8, 9), (6, 4, 3, 2), [2, 3], [1, 0], [1, 2]),
                                                ((1, 4, 5, 6, 7), (2, 4, 2, 3, 1), [1, 2, 1], [0, 1, 0], [2, 1, 1])):
            n = len(w) - 2
            for transposed in (False, True):
                weight = t(w[0], w[1] // groups, *w[2:]) if not transposed else t(w[1], w[0] // groups, *w[2:])
                picture = t(x)
                extra = [1 if transposed and s > 1 else 0 for s in stride]
                y = torch.ops.aten.convolution(picture, weight, None, stride, padding, dilation, transposed, extra,
                                               groups)
                c(t(*y.shape), picture, weight, [w[0]], stride, padding, dilation, transposed, extra, groups, mask,
                  static=True)
    for x, groups in (((3, 6, 4, 5), 2), ((2, 4), 2)):
        y, mean, rstd = torch.ops.aten.native_group_norm(t(*x), t(x[1]), t(x[1]), x[0], x[1], 20 if len(x) > 2 else 1,
                                                         groups, 1e-5)
        F.op("aten.native_group_norm_backward.default")(t(*x), t(*x), mean, rstd, t(x[1]), x[0], x[1],
                                                        20 if len(x) > 2 else 1, groups, mask, static=True)
    for x in ((4, 3), (2, 3, 5), (2, 3, 4, 5)):
        for train in (True, False):
            weight, mean, var = t(3), t(3), t(3, lo=0.5)
            F.op("aten.native_batch_norm_backward.default")(t(*x), t(*x), weight, mean, var, t(3), t(3, lo=0.5), train,
                                                            1e-5, mask)
    for shape in ([5], [4, 5]):
        x = t(3, 4, 5)
        rstd = (x.square().mean(tuple(range(-len(shape), 0)), keepdim=True) + 1e-5).rsqrt()
        for weight in (None, t(*shape)):
            F.own("aten._fused_rms_norm_backward.default", rms_norm_backward)(t(3, 4, 5), x, shape, rstd, weight,
                                                                              [True, True], static=True)
    v, g = t(4, 3, 2), t(4, 1, 1)
    norm = v.norm(dim=(1, 2), keepdim=True)
    F.op("aten._weight_norm_interface_backward.default")(t(4, 3, 2), v, g, norm, 0)
    for padded in (True, False):
        for divisor in (None, 3):
            F.op("aten.avg_pool2d_backward.default")(t(2, 3, 4, 3), t(2, 3, 8, 7), [3, 2], [2, 2], [1, 0], False,
                                                     padded, divisor, static=True)
        F.op("aten.avg_pool3d_backward.default")(t(3, 2, 2, 3), t(3, 4, 4, 6), [2, 2, 2], [], [0, 0, 0], False, padded,
                                                 None, static=True)
        F.op("aten.avg_pool2d_backward.default")(t(2, 3, 4, 3), t(2, 3, 6, 7), [3, 2], [2, 3], [1, 0], True, padded,
                                                 None, static=True)
        F.op("aten.avg_pool2d_backward.default")(t(3, 4, 4), t(3, 9, 6), [3, 3], [3, 2], [1, 1], True, padded, None,
                                                 static=True)
        F.op("aten.avg_pool3d_backward.default")(t(3, 3, 2, 3), t(3, 5, 4, 6), [2, 2, 3], [], [1, 0, 1], True, padded,
                                                 None, static=True)
    for out in ((1, 1), (2, 3), (5, 4)):
        F.op("aten.affine_grid_generator_backward.default")(t(2, *out, 2), [2, 3, *out], out[0] > 1, static=True)
        F.op("aten._adaptive_avg_pool2d_backward.default")(t(2, 3, *out), t(2, 3, 5, 7))
    for size, scale in ((9, None), (3, None), (8, 2.0)):
        n = 4 if scale else 5
        F.op("aten.upsample_nearest1d_backward.default")(t(2, 3, size), [size], [2, 3, n], scale, static=True)
        F.op("aten.upsample_nearest2d_backward.default")(t(2, 3, size, 7), [size, 7], [2, 3, n, 4], scale, None,
                                                         static=True)
        for corners in (False, True):
            F.op("aten.upsample_linear1d_backward.default")(t(2, 3, size), [size], [2, 3, n], corners, scale,
                                                            static=True)
            F.op("aten.upsample_bilinear2d_backward.default")(t(2, 3, size, 7), [size, 7], [2, 3, n, 4], corners, scale,
                                                              None, static=True)
    resized(F)
    pools(F)
    distances(F)
    grids(F)


def resized(F):
    for size, scale in ((7, None), (3, None), (8, 2.0)):
        n = 4 if scale else 5
        F.op("aten._upsample_nearest_exact1d_backward.default")(t(2, 3, size), [size], [2, 3, n], scale, static=True)
        F.op("aten._upsample_nearest_exact2d_backward.default")(t(2, 3, size, 7), [size, 7], [2, 3, n, 4], scale, None,
                                                                static=True)
        for kind in ("upsample_nearest", "_upsample_nearest_exact"):
            F.op(f"aten.{kind}3d_backward.default")(t(1, 2, size, 3, 7), [size, 3, 7], [1, 2, n, 2, 4], scale, None,
                                                    None, static=True)
        for corners in (False, True):
            F.op("aten.upsample_trilinear3d_backward.default")(t(1, 2, size, 3, 7), [size, 3, 7], [1, 2, n, 2, 4],
                                                               corners, scale, None, None, static=True)
            F.op("aten.upsample_bicubic2d_backward.default")(t(2, 3, size, 7), [size, 7], [2, 3, n, 4], corners, scale,
                                                             None, static=True)
            for kind in ("bilinear", "bicubic"):
                F.op(f"aten._upsample_{kind}2d_aa_backward.default")(t(2, 3, size, 7), [size, 7], [2, 3, n, 4], corners,
                                                                     scale, None, static=True)


def pools(F):
    for out in ((1, 1, 1), (2, 3, 2), (5, 4, 3)):
        F.op("aten._adaptive_avg_pool3d_backward.default")(t(2, 3, *out), t(2, 3, 5, 4, 3))
        x = t(2, 3, 5, 6, 4)
        y, at = torch.ops.aten.adaptive_max_pool3d(x, out)
        F.op("aten.adaptive_max_pool3d_backward.default")(t(*y.shape), x, at)
        y, at = torch.ops.aten.adaptive_max_pool2d(x[0], out[:2])
        F.op("aten.adaptive_max_pool2d_backward.default")(t(*y.shape), x[0], at)
    x = t(2, 3, 5, 6, 7)
    y, at = torch.ops.aten.max_pool3d_with_indices(x, [2, 3, 2], [2, 2, 1], [1, 1, 0], [1, 1, 2], True)
    F.op("aten.max_pool3d_with_indices_backward.default")(t(*y.shape), x, [2, 3, 2], [2, 2, 1], [1, 1, 0], [1, 1, 2],
                                                          True, at)
    y, at = torch.ops.aten.fractional_max_pool3d(x, [2, 2, 2], [3, 3, 4], t(2, 3, 3, lo=0, hi=1))
    F.op("aten.fractional_max_pool3d_backward.default")(t(*y.shape), x, [2, 2, 2], [3, 3, 4], at)
    y, at = torch.ops.aten.fractional_max_pool2d(x[0], [2, 2], [3, 4], t(3, 5, 2, lo=0, hi=1))
    F.op("aten.fractional_max_pool2d_backward.default")(t(*y.shape), x[0], [2, 2], [3, 4], at)


def distances(F):
    for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, inf):
        a, b = t(2, 4, 3), t(2, 5, 3)
        a[0, 1] = b[0, 2]
        F.op("aten._cdist_backward.default")(t(2, 4, 5), a, b, p, torch.cdist(a, b, p))
        x = t(5, 3)
        x[1] = x[3]
        F.op("aten._pdist_backward.default")(t(10), x, p, torch.pdist(x, p), static=True)


def grids(F):
    for padding in (0, 1, 2):
        for corners in (False, True):
            for mode in (0, 1, 2):
                F.op("aten.grid_sampler_2d_backward.default")(t(2, 3, 4, 2), t(2, 3, 5, 6),
                                                              t(2, 4, 2, 2, lo=-1.4, hi=1.4), mode, padding, corners,
                                                              [True, True])
            for mode in (0, 1):
                F.op("aten.grid_sampler_3d_backward.default")(t(1, 2, 3, 2, 2), t(1, 2, 4, 3, 5),
                                                              t(1, 3, 2, 2, 3, lo=-1.4, hi=1.4), mode, padding, corners,
                                                              [True, True])


def add(F):
    parts(F)
    losses(F)
    layers(F)
