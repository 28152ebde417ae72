"""Golden cases of the image family: pooling, resampling, sampling grids, RoI align, patches."""
import math

from golden import *


def pools(F):
    for dt in FLOATS:
        F.op("aten.avg_pool1d.default").maybe(t(2, 3, 9, dt=dt), [3], [2], [1])
        F.op("aten.avg_pool2d.default")(t(2, 3, 8, 7, dt=dt), [2, 3], [2, 2], [1, 1])
        F.op("aten.max_pool1d.default").maybe(t(2, 3, 9, dt=dt), [3], [2], [1])
        F.op("aten.max_pool2d.default")(t(2, 3, 8, 7, dt=dt), [3, 3], [2, 2], [1, 1])
        F.op("aten.max_pool2d_with_indices.default")(t(2, 3, 8, 7, dt=dt), [3, 2], [2, 1], [1, 0])
        F.op("aten.adaptive_avg_pool2d.default")(t(2, 3, 7, 6, dt=dt), [3, 4])
        F.op("aten.adaptive_max_pool2d.default")(t(2, 3, 7, 6, dt=dt), [3, 4])
        c, d = F.op("aten.fractional_max_pool2d.default"), F.op("aten.fractional_max_pool3d.default")
        for out in ([3, 4], [1, 5]):
            c(t(2, 3, 7, 8, dt=dt), [2, 3], out, t(2, 3, 2, dt=dt, lo=0, hi=1))
            c(t(3, 7, 8, dt=dt), [2, 2], out, t(1, 3, 2, dt=dt, lo=0, hi=1))
            d(t(2, 3, 6, 7, 8, dt=dt), [1, 2, 3], [4, *out], t(2, 3, 3, dt=dt, lo=0, hi=1))
        d(t(3, 6, 7, 8, dt=dt), [2, 2, 2], [3, 3, 4], t(2, 3, 3, dt=dt, lo=0, hi=1), static=True)
    c = F.op("aten.avg_pool2d.default")
    x = lambda: t(1, 2, 7, 9)
    c(x(), [2, 2])
    c(x(), [3], [1], [1], False, False)
    c(x(), [3, 3], [2, 2], [1, 1], True)
    c(x(), [3, 3], [2, 2], [1, 1], True, False)
    c(x(), [2, 2], [2, 2], [0, 0], False, True, 3)
    c(t(2, 7, 9), [2, 3])
    c = F.op("aten.avg_pool3d.default")
    c(t(1, 2, 4, 5, 6), [2, 2, 2])
    c(t(1, 2, 4, 5, 6), [3], [2], [1], True, False)
    c = F.op("aten.avg_pool1d.default")
    c(t(2, 3, 9), [2])
    c(t(3, 9), [4], [3], [2], True, False)
    c = F.op("aten.max_pool2d.default")
    c(x(), [2, 2])
    c(x(), [3], [2], [1], [1], True)
    c(x(), [2, 2], [1, 1], [0, 0], [2, 2])
    c(t(2, 7, 9), [2, 2])
    n = x()
    n[0, 0, 3, 3], n[0, 1, 0, 0] = nan, -inf
    c(n, [3, 3], [2, 2], [1, 1])
    c(t(1, 2, 6, 6, dt=i64), [2, 2])
    c = F.op("aten.max_pool2d_with_indices.default")
    c(n, [3, 3], [2, 2], [1, 1])
    c(x(), [2, 2], [2, 2], [0, 0], [1, 1], True)
    F.op("aten.max_pool1d.default")(t(2, 3, 9), [2])
    F.op("aten.max_pool1d.default")(t(3, 9), [2], [1], [0], [2], True)
    F.op("aten.max_pool1d_with_indices.default")(t(2, 3, 9), [3], [2], [1])
    c = F.op("aten.max_pool3d.default")
    c(t(1, 2, 4, 5, 6), [2, 2, 2])
    c(t(2, 4, 5, 6), [3], [2], [1], [1], True)
    c(t(1, 1, 5, 5, 5, dt=i64), [2], [1], [0], [2])
    for dt in FLOATS[1:]:
        c(t(1, 2, 4, 5, 6, dt=dt), [3], [2], [1])
        F.op("aten.avg_pool3d.default").maybe(t(1, 2, 4, 5, 6, dt=dt), [3], [2], [1])
        F.op("aten.adaptive_avg_pool3d.default").maybe(t(1, 2, 4, 5, 6, dt=dt), [3, 1, 4])
        F.op("aten.adaptive_max_pool3d.default").maybe(t(1, 2, 4, 5, 6, dt=dt), [3, 1, 4])
    F.op("aten.avg_pool3d.default")(t(2, 4, 5, 6), [2, 3, 1], [1, 2, 2], [0, 1, 0], False, True, 5)
    F.op("aten.max_pool1d_with_indices.default")(t(3, 9), [2], [1], [0], [2], True)
    F.op("aten.max_pool3d_with_indices.default")(t(1, 2, 4, 5, 6), [2, 2, 2], [1, 2, 1], [1, 0, 0])
    for n, s, o in (("1d", (2, 3, 7), [[3], [1], [7], [10]]),
                    ("2d", (2, 3, 7, 6), [[1, 1], [3, 4], [7, 6], [9, 5], [2, 1]]),
                    ("3d", (1, 2, 4, 5, 6), [[1, 1, 1], [2, 3, 4]])):
        for out in o:
            F.op(f"aten.adaptive_avg_pool{n}.default")(t(s), out)
            F.op(f"aten._adaptive_avg_pool{n}.default").maybe(t(s), out) if n != "1d" else None
            F.op(f"aten.adaptive_max_pool{n}.default")(t(s), out)
        F.op(f"aten.adaptive_avg_pool{n}.default")(t(s[1:]), o[0])
    for x, out in ((t(2, 3, 7), [3]), (t(2, 3, 7, 6), [3, 4])):     # a NaN stays in its windows
        x.view(-1)[5], x.view(-1)[11] = nan, inf
        F.op(f"aten.adaptive_avg_pool{len(out)}d.default")(x, out)
    F.op("aten.max_unpool2d.default")(t(1, 1, 2, 2), torch.tensor([[[[0, 3], [8, 10]]]]), [4, 4], static=True)


def resamples(F):
    sizes = ((5, 9), (3, 2), (8, 4), (4, 7))
    for mode, extra in (("nearest", ()), ("bilinear", (False,)), ("bilinear", (True,)), ("bicubic", (False,)),
                        ("bicubic", (True,)), ("_nearest_exact", ())):
        name = f"aten.{'_upsample_nearest_exact' if mode[0] == '_' else 'upsample_' + mode}2d"
        v, d = F.op(name + ".vec"), F.op(name + ".default")
        for h, w in sizes:
            v(t(2, 2, 4, 7), [h, w], *extra, None)
            d(t(1, 2, 4, 7), [h, w], *extra)
        v(t(1, 2, 4, 5), None, *extra, [2.0, 2.0])
        v(t(1, 2, 4, 5), None, *extra, [1.5, 0.6])
        d(t(1, 2, 4, 5), [8, 10], *extra, 2.0, 2.0)
        d(t(1, 2, 4, 5), [6, 3], *extra, 1.5, 0.6)
        for h, w in sizes + ((4, 5), (4, 9), (9, 5)):  # bytes: weights of 16 bits
            v(t(1, 3, 4, 5, dt=u8, lo=0, hi=255), [h, w], *extra, None)
        v(t(1, 6, 3, 4, dt=u8, lo=0, hi=255), None, *extra, [1.7, 0.6])
        for dt in FLOATS[1:]:
            v.maybe(t(1, 2, 4, 5, dt=dt, lo=0, hi=9), [6, 3], *extra, None)
        v(t(1, 1, 1, 1), [3, 3], *extra, None)
        v(t(1, 1, 3, 3), [1, 1], *extra, None)
    for mode, extra in (("nearest", ()), ("linear", (False,)), ("linear", (True,)), ("_nearest_exact", ())):
        name = f"aten.{'_upsample_nearest_exact' if mode[0] == '_' else 'upsample_' + mode}1d"
        for o in (9, 3, 5):
            F.op(name + ".vec")(t(2, 3, 5), [o], *extra, None)
            F.op(name + ".default")(t(2, 3, 5), [o], *extra)
        F.op(name + ".vec")(t(2, 3, 5), None, *extra, [1.7])
        F.op(name + ".vec")(t(2, 3, 5, dt=bf16), [8], *extra, None)
        F.op(name + ".vec")(torch.tensor([[[1, inf, 3, nan, inf]]]), [5], *extra, None)
    for mode, extra in (("nearest", ()), ("trilinear", (False,)), ("trilinear", (True,)), ("_nearest_exact", ())):
        name = f"aten.{'_upsample_nearest_exact' if mode[0] == '_' else 'upsample_' + mode}3d"
        F.op(name + ".vec")(t(1, 2, 3, 4, 5), [4, 3, 7], *extra, None)
        F.op(name + ".vec")(t(1, 2, 3, 4, 5), None, *extra, [2.0, 1.5, 1.0])
        F.op(name + ".default")(t(1, 2, 3, 4, 5), [4, 3, 7], *extra)
    for mode in ("upsample_nearest", "_upsample_nearest_exact"):  # scales beside sizes kept, doubled, and in ties
        ramp = lambda *shape, dt=f32: torch.arange(math.prod(shape)).reshape(shape).to(dt)
        for dt in (f32, f64, u8):
            F.op(f"aten.{mode}1d.vec")(ramp(1, 1, 21, dt=dt), None, [1.3])
            F.op(f"aten.{mode}2d.vec")(ramp(1, 1, 9, 4, dt=dt), None, [1.1, 1.1])
            F.op(f"aten.{mode}2d.vec")(ramp(1, 1, 3, 7, dt=dt), None, [0.7, 2.1])
            F.op(f"aten.{mode}3d.vec")(ramp(1, 1, 2, 3, 4, dt=dt), None, [1.1, 2.1, 1.3])
    for mode in ("bilinear", "bicubic"):
        for al in (False, True):
            c = F.op(f"aten._upsample_{mode}2d_aa.vec")
            c(t(1, 2, 8, 9), [3, 4], al, None)
            c(t(1, 2, 5, 4), [7, 9], al, None)
            c(t(1, 2, 8, 9), None, al, [0.5, 0.4])
            F.op(f"aten._upsample_{mode}2d_aa.default")(t(1, 2, 8, 9), [3, 11], al)
            for size in ([3, 4], [8, 5], [11, 9], [13, 20]):
                c(t(1, 2, 8, 9, dt=u8, lo=0, hi=255), size, al, None)
    c = F.own("aten._upsample_lanczos2d_aa.vec", lanczos)
    c(t(1, 2, 8, 9), [3, 4], False, None)
    c(t(1, 2, 5, 4, dt=f64), [7, 9], False, None)
    c(t(1, 2, 8, 9), None, False, [0.5, 0.4])
    F.own("aten._upsample_lanczos2d_aa.default", lanczos)(t(1, 2, 8, 9), [3, 11], True)


def lanczos(x, size, align, scales=None, *one):
    """Of PyTorch 2.15, by its definition: sinc(x) sinc(x / 3), made wider where the picture gets smaller."""
    scales = scales or one
    size = size or [int(n * f) for n, f in zip(x.shape[2:], scales)]

    def weights(n, out, given):
        step = (n - 1) / max(out - 1, 1) if align else 1 / given if given else n / out
        middle = step * (torch.arange(out, dtype=f64) + 0.5)[:, None]
        reach = 3 * max(step, 1.0)
        pixel = torch.arange(n, dtype=f64)
        inside = (pixel >= torch.floor(middle - reach + 0.5)) & (pixel < torch.floor(middle + reach + 0.5))
        far = (pixel - middle + 0.5) / max(step, 1.0)
        w = torch.where(inside & (far.abs() < 3), torch.sinc(far) * torch.sinc(far / 3), 0.0)
        return w / w.sum(1, keepdim=True)
    y, z = (weights(x.shape[2 + i], size[i], scales[i] if scales else None) for i in (0, 1))
    return (y @ x.double() @ z.T).to(x.dtype)


def tricubic(x, grid, mode, padding, align):
    """grid_sampler of a volume, of PyTorch 2.15: bicubic on its last two axes, then along the first."""
    depth, p = x.shape[2], grid.double()
    z = (p[..., 2] + 1) / 2 * (depth - 1) if align else ((p[..., 2] + 1) * depth - 1) / 2
    planes = x.double().permute(0, 2, 1, 3, 4).flatten(0, 1)
    flat = p[..., :2].reshape(p.shape[0], 1, -1, 2).expand(-1, depth, -1, -1).flatten(0, 1)[:, :, None]
    y = torch.ops.aten.grid_sampler_2d(planes, flat, mode, padding, align).unflatten(0, (-1, depth))[..., 0]
    out, far = 0, z.flatten(1) - z.flatten(1).floor()
    for k in range(-1, 3):
        d, at = (far - k).abs(), z.flatten(1).floor() + k
        w = torch.where(d <= 1, (1.25 * d - 2.25) * d * d + 1, ((-0.75 * d + 3.75) * d - 6) * d + 3)
        if padding == 2:
            low, span = (0, depth - 1) if align else (-0.5, depth)
            turn = torch.remainder((at - low).abs(), 2 * span)
            at = torch.minimum(turn, 2 * span - turn) + low
        w = torch.where((at >= 0) & (at < depth), w, 0) if padding == 0 else w
        at = at.clamp(0, depth - 1).long()[:, None, None].expand(-1, 1, y.shape[2], -1)
        out = out + w[:, None] * y.gather(1, at)[:, 0]
    return out.reshape(*x.shape[:2], *grid.shape[1:4]).to(x.dtype)


def grids(F):
    for dt in (f32, f64):
        for n in ("grid_sampler", "grid_sampler_2d"):
            for interp in (0, 1, 2):
                for pad in (0, 1, 2):
                    F.op(f"aten.{n}.default")(t(2, 2, 4, 5, dt=dt), t(2, 3, 4, 2, dt=dt, lo=-1.4, hi=1.4), interp,
                                              pad, interp % 2 == 0)
    c = F.op("aten.grid_sampler_2d.default")
    c(t(1, 1, 3, 3), torch.tensor([[[[-1.0, -1.0], [1, 1], [0, 0], [5, -5]]]]), 0, 0, False)
    c(t(1, 1, 3, 3), torch.tensor([[[[-1.0, -1.0], [1, 1], [0, 0], [5, -5]]]]), 0, 0, True)
    for h, w, n in ((7, 14, 27), (8, 33, 65)):   # many points halfway between two pixels
        c(t(1, 2, h, w), torch.linspace(-1, 1, n)[None, None, :, None].expand(1, 1, n, 2), 1, 1, True)
    for dt in (f16, bf16):
        for interp in (0, 1, 2):
            for pad in (0, 1, 2):
                for align in (False, True):
                    c(t(1, 2, 9, 33, dt=dt), t(1, 3, 20, 2, dt=dt, lo=-1.4, hi=1.4), interp, pad, align)
    for interp in (0, 1):
        for pad in (0, 1):
            F.op("aten.grid_sampler_3d.default")(t(1, 2, 3, 9, 33, dt=bf16),
                                                 t(1, 2, 5, 3, 3, dt=bf16, lo=-1.2, hi=1.2), interp, pad, True)
            F.op("aten.grid_sampler_3d.default")(t(1, 2, 3, 4, 5), t(1, 2, 2, 3, 3, lo=-1.2, hi=1.2), interp, pad,
                                                 False)
    for dt in (f32, f64, bf16):
        for pad in (0, 1, 2):
            F.own("aten.grid_sampler_3d.default", tricubic)(t(1, 2, 3, 4, 5, dt=dt),
                                                            t(1, 2, 2, 3, 3, dt=dt, lo=-1.4, hi=1.4), 2, pad, pad == 1)
    F.op("aten.affine_grid_generator.default")(t(2, 2, 3), [2, 1, 3, 4], False, static=True)
    F.op("aten.affine_grid_generator.default")(t(2, 2, 3), [2, 1, 3, 4], True, static=True)
    for dt in (f32, f64):
        for align in (False, True):
            F.op("aten.affine_grid_generator.default")(t(2, 3, 4, dt=dt), [2, 5, 3, 1, 4], align, static=True)
            for interp in (0, 1):
                for pad in (0, 1, 2):
                    F.op("aten.grid_sampler.default")(t(2, 2, 3, 4, 5, dt=dt),
                                                      t(2, 2, 3, 2, 3, dt=dt, lo=-1.4, hi=1.4), interp, pad, align)
    c = F.op("aten.im2col.default")
    c(t(2, 3, 6, 7), [2, 3], [1, 1], [0, 0], [1, 1])
    c(t(2, 3, 6, 7), [3, 3], [2, 1], [1, 1], [2, 2])
    c = F.op("aten.col2im.default")
    c(t(2, 12, 20), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1], static=True)
    c(t(2, 12, 9), [6, 6], [2, 2], [1, 1], [0, 0], [2, 2], static=True)
    c(t(18, 20), [5, 4], [3, 3], [1, 1], [1, 1], [1, 1], static=True)
    for dt in FLOATS:
        c.maybe(t(1, 12, 6, dt=dt), [7, 8], [2, 3], [2, 1], [1, 0], [3, 3], static=True)
    F.op("aten.native_channel_shuffle.default").maybe(t(1, 4, 2, 2), 2, static=True)
    F.op("aten.pixel_shuffle.default")(t(2, 8, 3, 2), 2, static=True)
    F.op("aten.pixel_unshuffle.default")(t(2, 2, 4, 6), 2, static=True)


def roi_align(x, boxes, scale, ph, pw, sampling, aligned):
    """torchvision.ops.roi_align in plain double arithmetic (torchvision itself is not needed to make the cases)."""
    import math
    n, c, h, w = x.shape
    xd, out = x.double(), torch.zeros(boxes.shape[0], c, ph, pw, dtype=f64)

    def at(img, y, xx):
        if y < -1 or y > h or xx < -1 or xx > w:
            return torch.zeros(c, dtype=f64)
        y, xx = max(y, 0.0), max(xx, 0.0)
        y0, x0 = int(y), int(xx)
        if y0 >= h - 1:
            y0 = y1 = h - 1
            y = float(y0)
        else:
            y1 = y0 + 1
        if x0 >= w - 1:
            x0 = x1 = w - 1
            xx = float(x0)
        else:
            x1 = x0 + 1
        ly, lx = y - y0, xx - x0
        return (1 - ly) * (1 - lx) * img[:, y0, x0] + (1 - ly) * lx * img[:, y0, x1] + ly * (1 - lx) * img[:, y1,
            x0] + ly * lx * img[:, y1, x1]
    off = 0.5 if aligned else 0.0
    for r, b in enumerate(boxes.double().tolist()):
        x1, y1, x2, y2 = (v * scale - off for v in b[1:])
        rw, rh = x2 - x1, y2 - y1
        if not aligned:
            rw, rh = max(rw, 1.0), max(rh, 1.0)
        bw, bh = rw / pw, rh / ph
        gh = sampling if sampling > 0 else math.ceil(rh / ph)
        gw = sampling if sampling > 0 else math.ceil(rw / pw)
        count = max(gh * gw, 1)
        for i in range(ph):
            for j in range(pw):
                s = torch.zeros(c, dtype=f64)
                for iy in range(gh):
                    for ix in range(gw):
                        s += at(xd[int(b[0])], y1 + i * bh + (iy + 0.5) * bh / gh, x1 + j * bw + (ix + 0.5) * bw / gw)
                out[r, :, i, j] = s / count
    return out.to(x.dtype)


def rois(F):
    c = F.own("torchvision.roi_align.default", roi_align)
    boxes = lambda k: torch.cat([idx(2, k, 1).float(), t(k, 2, lo=0, hi=6), t(k, 2, lo=6, hi=14)], 1)
    for scale, ph, pw, sampling, aligned in ((1.0, 2, 3, 2, False), (0.5, 2, 2, 2, True), (0.5, 3, 3, -1, False),
                                             (1.0, 2, 2, 0, True), (0.25, 7, 7, 1, False)):
        c(t(2, 3, 8, 9), boxes(4), scale, ph, pw, sampling, aligned)
    c(t(2, 3, 8, 9, dt=f64), boxes(3).double(), 1.0, 2, 2, 2, True)
    c(t(2, 1, 4, 4), torch.tensor([[0, -3.0, -3, 2, 2], [1, 2, 2, 9, 9], [0, 3, 3, 1, 1]]), 1.0, 2, 2, 2, False)
    c(t(2, 3, 8, 9), boxes(4)[:0], 1.0, 2, 2, 2, True)


def roi_pool(x, boxes, scale, ph, pw):
    """torchvision.ops.roi_pool in plain arithmetic: the largest of each bin and its place in the plane."""
    import math
    n, c, h, w = x.shape
    one = torch.ones((), dtype=x.dtype)
    away = lambda v: math.floor(abs(v) + 0.5) * (1 if v > 0 else -1)  # C's round
    out, place = x.new_zeros(boxes.shape[0], c, ph, pw), torch.full((boxes.shape[0], c, ph, pw), -1, dtype=torch.int32)
    for k, box in enumerate(boxes):
        x1, y1, x2, y2 = (away(float(v * (scale * one))) for v in box[1:])
        for p in range(ph):
            for q in range(pw):
                edges = []
                for i, start, end, count, size in ((p, y1, y2, ph, h), (q, x1, x2, pw, w)):
                    each = max(end - start + 1, 1) * one / count
                    edges += [min(max(math.floor(float(i * each)) + start, 0), size),
                              min(max(math.ceil(float((i + 1) * each)) + start, 0), size)]
                top, bottom, left, right = edges
                if bottom <= top or right <= left:
                    continue
                bin_ = x[int(box[0]), :, top:bottom, left:right].reshape(c, -1)
                out[k, :, p, q], at = bin_.max(1)
                place[k, :, p, q] = ((at // (right - left) + top) * w + at % (right - left) + left).int()
    return out, place


def pooled_rois(F):
    c = F.own("torchvision.roi_pool.default", roi_pool)
    boxes = lambda k: torch.cat([idx(2, k, 1).float(), t(k, 2, lo=0, hi=6), t(k, 2, lo=6, hi=14)], 1)
    for scale, ph, pw in ((1.0, 2, 3), (0.5, 2, 2), (0.25, 7, 7)):
        c(t(2, 3, 8, 9), boxes(4), scale, ph, pw)
    c(t(2, 3, 8, 9, dt=f64), boxes(3).double(), 0.5, 2, 2)
    c(t(2, 1, 4, 4), torch.tensor([[0, -3.0, -3, 2, 2], [1, 2, 2, 9, 9], [0, 3, 3, 1, 1], [1, 9, 9, 12, 12]]), 1.0, 2,
      2)
    c(t(2, 3, 8, 9), boxes(4)[:0], 1.0, 2, 2)


def deform_conv(x, w, offset, mask, bias, sh, sw, ph, pw, dh, dw, groups, parts, masked):
    """torchvision.ops.deform_conv2d in plain double arithmetic."""
    n, c, h, wide = x.shape
    outs, _, kh, kw = w.shape
    oh, ow = offset.shape[2:]
    xd, move = x.double(), offset.double().reshape(n, parts, kh * kw, 2, oh, ow)
    m = mask.double().reshape(n, parts, kh * kw, oh, ow) if masked else torch.ones(n, parts, kh * kw, oh, ow, dtype=f64)
    k, i, j = torch.arange(kh * kw)[:, None, None], torch.arange(oh)[:, None], torch.arange(ow)
    y = move[:, :, :, 0] + i * sh - ph + k // kw * dh
    xx = move[:, :, :, 1] + j * sw - pw + k % kw * dw
    taps = torch.zeros(n, c, kh * kw, oh, ow, dtype=f64)
    image, channel = torch.arange(n).view(n, 1, 1, 1, 1), torch.arange(c).view(1, c, 1, 1, 1)
    y, xx, m = (v.repeat_interleave(c // parts, 1) for v in (y, xx, m))
    for dy in (0, 1):
        for dx in (0, 1):
            a, b = y.floor() + dy, xx.floor() + dx
            there = (a >= 0) & (a < h) & (b >= 0) & (b < wide)
            v = xd[image, channel, a.clamp(0, h - 1).long(), b.clamp(0, wide - 1).long()]
            taps += torch.where(there, v * (1 - (y - a).abs()) * (1 - (xx - b).abs()), 0)
    columns = (taps * m).reshape(n, groups, -1, oh * ow)
    out = (w.double().reshape(groups, outs // groups, -1) @ columns).reshape(n, outs, oh, ow)
    return (out + bias.double().view(-1, 1, 1)).to(x.dtype)


def deformed(F):
    c = F.own("torchvision.deform_conv2d.default", deform_conv)
    for dt, groups, parts, masked in ((torch.float32, 1, 1, False), (torch.float32, 2, 1, True),
                                      (torch.float32, 1, 2, True), (f64, 2, 2, True)):
        shift, weight = t(2, 2 * parts * 6, 5, 4, lo=-3, hi=3, dt=dt), t(2, parts * 6, 5, 4, dt=dt)
        c(t(2, 4, 6, 7, dt=dt), t(6, 4 // groups, 3, 2, dt=dt), shift, weight, t(6, dt=dt), 1, 2, 1, 1, 1, 2, groups,
          parts, masked)


def nms(boxes, scores, threshold):
    """torchvision.ops.nms: indices kept, in order of falling score."""
    order, keep = torch.sort(scores, stable=True, descending=True)[1].tolist(), []
    b = boxes.double()
    area = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    for i in order:
        ok = True
        for j in keep:
            w = max(0.0, float(min(b[i, 2], b[j, 2]) - max(b[i, 0], b[j, 0])))
            h = max(0.0, float(min(b[i, 3], b[j, 3]) - max(b[i, 1], b[j, 1])))
            ok &= w * h / float(area[i] + area[j] - w * h) <= threshold
        if ok:
            keep.append(i)
    return torch.tensor(keep, dtype=i64)


def detections(F):
    c = F.own("torchvision.nms.default", nms)
    for k, thr in ((6, 0.3), (1, 0.5), (12, 0.1)):
        b = torch.cat([t(k, 2, lo=0, hi=6), t(k, 2, lo=6, hi=12)], 1)
        c(b, t(k, lo=0, hi=1), thr)
    c(t(9, 4, lo=0, hi=12), t(9, lo=0, hi=1), 0.1)  # some end before they begin


def roi_align_backward(g, boxes, scale, ph, pw, batch, channels, h, w, sampling, aligned):
    """The gradient of roi_align above, by autograd."""
    with torch.enable_grad():
        x = torch.zeros(batch, channels, h, w, dtype=f64, requires_grad=True)
        y = roi_align(x, boxes, scale, ph, pw, sampling, aligned) + 0 * x.sum()  # also where no sample lies inside
        return torch.autograd.grad(y, x, g.double())[0].to(g.dtype)


def rois_backward(F):
    c = F.own("torchvision._roi_align_backward.default", roi_align_backward)
    boxes = lambda k: torch.cat([idx(2, k, 1).float(), t(k, 2, lo=0, hi=6), t(k, 2, lo=6, hi=14)], 1)
    for scale, ph, pw, sampling, aligned in ((1.0, 2, 3, 2, False), (0.5, 2, 2, 2, True), (0.5, 3, 3, -1, False),
                                             (1.0, 2, 2, 0, True), (0.25, 7, 7, 1, False)):
        c(t(4, 3, ph, pw), boxes(4), scale, ph, pw, 2, 3, 8, 9, sampling, aligned)
    c(t(3, 3, 2, 2, dt=f64), boxes(3).double(), 1.0, 2, 2, 3, 3, 8, 9, 2, True)
    c(t(3, 40, 2, 2), torch.tensor([[0, -3.0, -3, 2, 2], [1, 2, 2, 9, 9], [0, 3, 3, 1, 1]]), 1.0, 2, 2, 2, 40, 4, 4,
      2, False)
    c(t(0, 3, 2, 2), boxes(4)[:0], 1.0, 2, 2, 2, 3, 8, 9, 2, True)


def add(F):
    pools(F)
    resamples(F)
    grids(F)
    rois(F)
    pooled_rois(F)
    deformed(F)
    detections(F)
    rois_backward(F)
