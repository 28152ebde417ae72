"""Golden cases of the view family: reshapes, permutations, slices and what is nothing at run time."""
from golden import *


def reshapes(F):
    for n in ("view", "reshape", "view_copy", "_unsafe_view", "_reshape_copy"):
        c = F.op(f"aten.{n}.default")
        for dt in (f32, i64, b8, bf16):
            c(t(2, 6, dt=dt), [3, 4], static=True)
        c(t(2, 3, 4), [6, -1], static=True)
        c(t(2, 3, 4), [2, -1, 2, 2], static=True)
        c(t(()), [1, 1])
        c(t(1), [])
        c(t(2, 3, 4), [24], static=True)
        c(t(0, 3), [3, 0], static=True)
        c(t(4, 6), [-1])
        c(t(4, 6), [-1, 6], static=True)
    F.op("aten._reshape_alias.default")(t(2, 6), [3, 4], [4, 1], static=True)
    F.op("aten.view.dtype")(t(3, 4), i32)
    F.op("aten.view.dtype")(t(3, dt=i32), f32)
    F.op("aten.view.dtype")(t(3, dt=bf16), i16)
    z = torch.complex(t(2, 3), t(2, 3))
    for x, dt in ((z, f32), (z, i32), (z, f64), (z[:, :0], f32), (torch.view_as_complex(t(3, 1, 2)), f32),
                  (t(2, 6), torch.complex64), (t(2), torch.complex64), (t(2, 8, dt=bf16), torch.complex64),
                  (t(2, 3, dt=i64), torch.complex64)):
        F.op("aten.view.dtype")(x.contiguous(), dt)
    for n in ("view_as", "reshape_as"):
        F.op(f"aten.{n}.default")(t(2, 6), t(3, 4), static=True)
        F.op(f"aten.{n}.default")(t(2, 6), t(12), static=True)
    c = F.op("aten.flatten.using_ints")
    for a in [(), (1,), (1, 2), (-2, -1), (0, 1), (2, 2)]:
        c(t(2, 3, 4, 2), *a)
    c(t(()))
    c(t(0, 3, 2), 1)
    c(t(2, 3, dt=i64))
    F.op("aten.ravel.default")(t(2, 3))
    F.op("aten.ravel.default")(t(()))
    c = F.op("aten.unflatten.int")
    c(t(2, 12), 1, [3, 4], static=True)
    c(t(2, 12), -1, [3, -1], static=True)
    c(t(12, 2), 0, [2, 2, 3], static=True)
    for n in ("squeeze", "squeeze_copy"):
        c = F.op(f"aten.{n}.default")
        c(t(1, 3, 1, 2), static=True)
        c(t(()))
        c(t(1, 1), static=True)
        c = F.op(f"aten.{n}.dim")
        for d in (0, 1, -2, -1):
            c(t(1, 3, 1, 2), d, static=True)
        c(t(()), 0)
        c(t(()), -1)
        c = F.op(f"aten.{n}.dims")
        c(t(1, 3, 1, 2), [0, 2], static=True)
        c(t(1, 3, 1, 2), [-2, 1], static=True)
        c(t(1, 3, 1, 2), [])
    for n in ("unsqueeze", "unsqueeze_copy"):
        c = F.op(f"aten.{n}.default")
        for d in (0, 1, 2, -1, -3):
            c(t(2, 3), d)
        c(t(()), 0)
        c(t(()), -1)
        c(t(2, dt=b8), 1)
    for n in ("atleast_1d", "atleast_2d", "atleast_3d"):
        c = F.op(f"aten.{n}.default")
        for s in ((), (3,), (2, 3), (2, 3, 4)):
            c(t(s))
        F.op(f"aten.{n}.Sequence")([t(s) for s in ((), (3,), (2, 3), (2, 3, 4))])


def permutes(F):
    F.op("aten.linalg_diagonal.default")(t(2, 3, 4))
    F.op("aten.linalg_diagonal.default")(t(2, 3, 4), offset=1, dim1=0, dim2=-1)
    for n in ("transpose.int", "transpose_copy.int", "swapaxes.default", "swapdims.default"):
        c = F.op(f"aten.{n}")
        for dt in (f32, i64, b8, f16):
            c(t(2, 3, 5, dt=dt), 0, 2)
        c(t(2, 3, 5), -1, -2)
        c(t(2, 3, 5), 1, 1)
        c(t(()), 0, -1)
        c(t(0, 3), 0, 1)
    for n in ("permute", "permute_copy"):
        c = F.op(f"aten.{n}.default")
        c(t(2, 3, 5), [2, 0, 1])
        c(t(2, 3, 5), [-1, 0, -2])
        c(t(2, 3, 5, 4, dt=f64), [0, 2, 3, 1])
        c(t(2, 3, dt=u8), [1, 0])
        c(t(()), [])
    for n in ("t.default", "t_copy.default"):
        for s in ((), (3,), (2, 5)):
            F.op(f"aten.{n}")(t(s))
    F.op("aten.numpy_T.default")(t(2, 3, 4))
    F.op("aten.matrix_H.default")(t(2, 3))
    for n in ("mT", "mH", "adjoint"):
        F.op(f"aten.{n}.default")(t(2, 3, 4))
    for n in ("movedim", "moveaxis"):
        F.op(f"aten.{n}.int")(t(2, 3, 4), 0, 2)
        F.op(f"aten.{n}.int")(t(2, 3, 4), -1, 0)
        F.op(f"aten.{n}.intlist")(t(2, 3, 4, 5), [0, 1], [-1, 0])
        F.op(f"aten.{n}.intlist")(t(2, 3, 4, 5), [2], [0])


def slices(F):
    for n in ("expand", "expand_copy", "broadcast_to"):
        c = F.op(f"aten.{n}.default")
        c(t(1, 3), [4, 3], static=True)
        c(t(3, 1), [2, -1, 5] if n != "broadcast_to" else [2, 3, 5], static=True)
        c(t(()), [2, 3])
        c(t(1, dt=b8), [5], static=True)
        c(t(2, 3), [2, 3], static=True)
        c(t(1), [0], static=True)
    F.op("aten.expand_as.default")(t(1, 3), t(4, 3), static=True)
    F.op("aten.expand_as.default")(t(3, 1), t(2, 3, 4), static=True)
    for n in ("select", "select_copy"):
        c = F.op(f"aten.{n}.int")
        for dim, k in ((0, 1), (1, -1), (-1, 0), (2, 4), (-3, -2)):
            c(t(2, 3, 5), dim, k)
        c(t(4, dt=i64), 0, 2)
        c(t(4, 2, dt=b8), 1, 1)
    for n in ("slice", "slice_copy"):
        c = F.op(f"aten.{n}.Tensor")
        x = lambda: t(5, 7)
        c(x())
        for a in ((0, 1, 3), (1, 2), (1, -3), (1, 0, -2), (-1, 1, 9223372036854775807), (0, -100, 100), (1, 5, 2),
                  (0, 4, 4), (1, 1, 6, 2), (1, 0, 7, 3), (0, None, 2),
                  (0, 1, 9223372036854775807, 2)):
            c(x(), *a)
        c(t(4, dt=i32), 0, 1, 3)
        c(t(0, 3), 0, 0, 2)
    for n in ("narrow", "narrow_copy"):
        c = F.op(f"aten.{n}.default")
        c(t(5, 7), 1, 2, 3)
        c(t(5, 7), -2, -3, 2)
        c(t(5, 7), 0, 5, 0)
    for n in ("as_strided", "as_strided_copy"):
        c = F.op(f"aten.{n}.default")
        c(t(4, 6), [2, 3], [6, 2], 1, static=True)
        c(t(12), [3, 4], [1, 2], static=True)
        c(t(12), [2, 2], [0, 3], 2, static=True)
    for n in ("diagonal", "diagonal_copy"):
        c = F.op(f"aten.{n}.default")
        for kw in ({}, dict(offset=1), dict(offset=-2), dict(dim1=1, dim2=2), dict(offset=1, dim1=-1, dim2=0),
                   dict(offset=9)):
            c(t(3, 4, 5), **kw)
        c(t(4, 4, dt=i64))
    c = F.op("aten.unfold.default")
    c(t(9), 0, 3, 2)
    c(t(2, 8), 1, 4, 4)
    c(t(2, 8, 3), -2, 3, 1)
    c(t(8, dt=i64), 0, 8, 1)
    for n in ("split", "split_copy", "unsafe_split"):
        c = F.op(f"aten.{n}.Tensor")
        c(t(7, 4), 3, static=True)
        c(t(7, 4), 2, 1, static=True)
        c(t(6, dt=i64), 6, -1, static=True)
        c(t(2, 3), 5, static=True)
    F.op("aten.split.sizes")(t(7, 4), [2, 5], static=True)
    for n in ("split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes"):
        c = F.op(f"aten.{n}.default")
        c(t(7, 4), [2, 5], static=True)
        c(t(3, 6), [1, 2, 3], -1, static=True)
        c(t(3, 6, dt=b8), [6, 0], 1, static=True)
    for n in ("chunk", "unsafe_chunk"):
        c = F.op(f"aten.{n}.default")
        c(t(7, 4), 3, static=True)
        c(t(2, 8), 2, -1, static=True)
        c(t(2, 8), 8, 1, static=True)
        c(t(3, 2), 5, static=True)
        c(t(0, 2), 3, static=True)
    for n in ("unbind", "unbind_copy"):
        c = F.op(f"aten.{n}.int")
        c(t(3, 4), static=True)
        c(t(3, 4), -1, static=True)
        c(t(2, dt=i64), static=True)
    c = F.op("aten.tensor_split.sections")
    c(t(7, 2), 3, static=True)
    c(t(2, 7), 3, 1, static=True)
    F.op("aten.tensor_split.indices")(t(7, 2), [2, 5], static=True)
    c = F.op("aten.tensor_split.tensor_indices_or_sections")
    c(t(7, 2), torch.tensor([2, 5]), static=True)
    c(t(2, 7), torch.tensor([4, -2, 9]), -1, static=True)
    c(t(3), torch.tensor([], dtype=i64), static=True)
    F.op("aten.tensor_split.indices")(t(2, 7), [1, 1, 6], -1, static=True)
    F.op("aten.hsplit.int")(t(2, 6), 3, static=True)
    F.op("aten.hsplit.int")(t(6), 2, static=True)
    F.op("aten.vsplit.int")(t(6, 2), 3, static=True)
    F.op("aten.dsplit.int")(t(2, 3, 6), 3, static=True)
    F.op("aten.hsplit.array")(t(2, 6), [1, 4], static=True)
    F.op("aten.vsplit.array")(t(6, 2), [1, 4], static=True)
    F.op("aten.dsplit.array")(t(2, 3, 6), [2], static=True)


def sized(F):
    """Again, and as small as to have no undefined elements."""
    for dt in (f32, i64):
        F.op("aten.resize.default")(t(4, 5, dt=dt), [10, 2], static=True)
        F.op("aten.resize.default")(t(4, 5, dt=dt), [3], static=True)
        F.op("aten.resize_as.default")(t(4, 5, dt=dt), t(2, 3))


def nothing(F):
    for n in """contiguous.default clone.default detach.default detach_copy.default alias.default alias_copy.default lift.default lift_fresh.default
                lift_fresh_copy.default resolve_conj.default resolve_neg.default positive.default view_as_real_copy.default
                real.default conj.default _conj.default conj_physical.default""".split():
        c = F.op(f"aten.{n}")
        for dt in (f32, i64, bf16):
            c.maybe(t(2, 3, dt=dt))
        c.maybe(t(()))
    F.own("aten.pin_memory.default", lambda x: x)(t(2, 3))
    F.op("aten.imag.default").maybe(t(3))
    for n in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
        F.op(f"aten.{n}.default")(t(2, 3), 0.1, False)
        F.op(f"aten.{n}.default")(t(2, 3, dt=bf16), 0.5, False)
    F.op("aten.native_dropout.default")(t(2, 3), 0.1, False)


def add(F):
    reshapes(F)
    permutes(F)
    slices(F)
    sized(F)
    nothing(F)
