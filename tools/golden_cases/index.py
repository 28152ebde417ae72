"""Golden cases of the index family: gathering, scattering, joining, padding, making tensors."""
from golden import *


def gathers(F):
    c = F.op("aten.embedding.default")
    for dt in FLOATS:
        c(t(7, 5, dt=dt), idx(7, 2, 3))
    c(t(7, 5), idx(7, 4, dt=i32))
    c(t(7, 5), idx(7))
    c(t(7, 5), idx(7, 2, 3), 1)
    c(t(7, 5), idx(7, 0, 3))
    c(t(7, 16, dt=i64), idx(7, 3))
    F.op("aten.embedding_bag.padding_idx").maybe(t(7, 5), idx(7, 6), torch.tensor([0, 2, 4]), False, 0, False, None,
                                                 False, None, static=True, outs=1)
    c = F.op("aten.index_select.default")
    for dt in (f32, bf16, i64, b8):
        c(t(4, 5, dt=dt), 0, idx(4, 6))
    c(t(4, 5, 2), -2, idx(5, 3, dt=i32))
    c(t(4, 5), 1, torch.tensor([0]))
    c(t(4), 0, idx(4, 0))
    F.op("aten.index_select.default")(t(()), 0, torch.tensor([0]))
    c = F.op("aten.gather.default")
    for dt in (f32, f16, i64, b8):
        c(t(4, 5, dt=dt), 1, idx(5, 4, 3))
    c(t(4, 5, 2), 0, idx(4, 2, 5, 1))
    c(t(4, 5), -1, idx(5, 2, 2))
    c(t(()), 0, torch.tensor(0))
    c(t(4, 5), 0, torch.zeros(0, dtype=u8), static=True)
    F.op("aten.take.default")(t(4, 5), idx(20, 3, 2))
    F.op("aten.take.default")(t(4, 5), torch.tensor([-1, 0, 19]))
    c = F.op("aten.take_along_dim.default")
    c(t(4, 5), idx(5, 4, 2), 1)
    c(t(4, 5), idx(20, 3))
    c(t(4, 5), idx(5, 1, 2), 1)
    c(t(4, 5), torch.tensor([[-1, 0, -5]]), 1)
    c = F.op("aten.index.Tensor")
    x = lambda: t(4, 5, 6)
    for dt in (f32, bf16, i64, b8):
        c(t(4, 5, dt=dt), [idx(4, 3)])
    c(x(), [idx(4, 2, 3)])
    c(x(), [idx(4, 3), idx(5, 3)])
    c(x(), [None, idx(5, 3)])
    c(x(), [None, None, idx(6, 2)])
    c(x(), [idx(4, 3), None, idx(6, 3)])
    c(x(), [None, idx(5, 2, 1), idx(6, 3)])
    c(x(), [idx(4, 2, 1), idx(5, 1, 3), idx(6)])
    c(x(), [torch.tensor([-1, 0, -4])])
    c(x(), [idx(4, dt=i64)])
    c(x(), [idx(4, 3, dt=i32)])
    c(x(), [idx(4, 0)])
    c(x(), [torch.tensor([True, False, True, True])], static=True)
    c(x(), [t(4, 5, dt=b8)], static=True)
    c(x(), [None, torch.tensor([True, False, True, False, False])], static=True)
    F.op("aten._unsafe_index.Tensor")(x(), [None, idx(5, 3), idx(6, 3)])
    F.op("aten.masked_select.default")(t(4, 5), t(4, 5, dt=b8))
    F.op("aten.masked_select.default")(t(4, 5), t(5, dt=b8))
    F.op("aten.masked_select.default")(t(4, dt=i64), torch.zeros(4, dtype=b8))
    F.op("aten.masked_select.default")(t(()), torch.tensor(True))
    F.op("aten.masked_select.default")(t(()), torch.tensor(False))
    for n in ("argwhere", "nonzero_numpy", "where"):
        for dt in (b8, f32, i64):
            F.op(f"aten.{n}.default")(t(3, 4, dt=dt, lo=-1, hi=1))
            F.op(f"aten.{n}.default")(t(5, dt=dt, lo=-1, hi=1))
    F.op("aten.nonzero_numpy.default")(torch.tensor(1.0))
    c = F.op("aten.nonzero.default")
    for dt in (b8, f32, i64):
        c(t(4, 5, dt=dt, lo=-1, hi=1))
    c(t(3, dt=b8))
    c(torch.tensor(True))
    c(torch.tensor(0))
    c(torch.zeros(3))
    F.op("aten.nonzero_numpy.default")(t(4, 5, dt=b8))
    F.op("aten.where.default")(t(4, 5, dt=b8))
    F.op("aten.argwhere.default")(t(4, 5, dt=b8))


def scatters(F):
    for dt in (f32, f64, bf16, i64, b8):
        F.op("aten.scatter.src")(t(4, 5, dt=dt), 1, torch.tensor([[0, 2], [1, 4], [3, 0], [2, 1]]), t(4, 5, dt=dt))
        F.op("aten.scatter.value")(t(4, 5, dt=dt), 0, torch.tensor([[0, 2, 1], [1, 0, 3]]), 1)
    F.op("aten.scatter.value")(t(4, 5), -1, idx(5, 4, 2), -inf)
    F.op("aten.scatter.reduce")(t(4, 5), 1, idx(5, 4, 3), t(4, 3), reduce="add")
    F.op("aten.scatter.reduce")(t(4, 5), 1, idx(5, 4, 3), t(4, 3), reduce="multiply")
    F.op("aten.scatter.value_reduce")(t(4, 5), 1, idx(5, 4, 3), 2.0, reduce="multiply")
    c = F.op("aten.scatter_add.default")
    for dt in (f32, f64, i64, f16):
        c(t(4, 5, dt=dt), 0, idx(4, 6, 5), t(6, 5, dt=dt))
    c(t(4, 5), 1, idx(5, 3, 9), t(4, 9))
    for r in ("sum", "prod", "mean", "amax", "amin"):
        for inc in (True, False):
            F.op("aten.scatter_reduce.two")(t(4, 5), 1, idx(5, 4, 7), t(4, 7), r, include_self=inc)
        F.op("aten.index_reduce.default").maybe(t(4, 5), 0, idx(4, 6), t(6, 5), r.replace("sum", "prod"), static=True)
    F.op("aten.scatter_reduce.two")(t(4, 5, dt=i64), 0, idx(4, 3, 5), t(3, 5, dt=i64), "sum")
    for how in ("amax", "amin"):
        F.op("aten.scatter_reduce.two")(t(4, 5, dt=b8), 0, idx(4, 3, 5), t(3, 5, dt=b8), how)
    for x, i, src in (((5,), (), ()), ((), (1,), (1,)), ((5,), (1,), ()), ((5,), (), (3,)), ((), (), (1,))):
        at = torch.zeros(i, dtype=i64) + len(x)     # a number beside a list is a list of one
        for op in ("scatter.src", "scatter_add.default"):
            F.op(f"aten.{op}")(t(x), 0, at, t(src), static=True)
        F.op("aten.scatter_reduce.two")(t(x), -1, at, t(src), "amax", static=True)
        F.op("aten.scatter.value")(t(x), 0, at, 2.5, static=True)
        F.op("aten.scatter.value_reduce")(t(x), 0, at, 2.5, reduce="multiply", static=True)
        F.op("aten.gather.default")(t(x), 0, at, static=True)
    F.op("aten.index_copy.default")(t(5), 0, torch.tensor(3), t(()), static=True)
    c = F.op("aten.index_put.default")
    for dt in (f32, bf16, i64, b8):
        c(t(4, 5, dt=dt), [torch.tensor([2, 0])], t(2, 5, dt=dt))
        c(t(4, 5, dt=dt), [torch.tensor([2, 0])], t((), dt=dt))
    c(t(4, 5), [idx(4, 7)], t(7, 5), True)
    c(t(4, 5), [torch.tensor([1, 3]), torch.tensor([0, -1])], t(2))
    c(t(4, 5, 6), [None, torch.tensor([1, 3])], t(4, 2, 6))
    c(t(4, 5, 6), [torch.tensor([[1], [3]]), torch.tensor([0, 2])], t(6))
    c(t(4, 5, 6), [torch.tensor([0, 2]), None, torch.tensor([1, 5])], t(2, 5))
    c(t(4, 5), [t(4, 5, dt=b8)], t(()), static=True)
    c(t(4, 5), [torch.tensor([True, False, True, False])], t(2, 5), static=True)
    c(t(4, 5), [torch.tensor([1, 1, 2])], t(3, 5), True)
    F.op("aten._unsafe_index_put.default")(t(4, 5), [torch.tensor([2, 0])], t(2, 5))
    F.op("aten.put.default")(t(4, 5), torch.tensor([0, 7, -1]), t(3))
    F.op("aten.put.default")(t(4, 5), torch.tensor([0, 7, 7]), t(3), True)
    for dt in (f32, i64):
        F.op("aten.index_add.default")(t(4, 5, dt=dt), 0, idx(4, 6), t(6, 5, dt=dt))
        F.op("aten.index_add.default")(t(4, 5, dt=dt), 1, idx(5, 2), t(4, 2, dt=dt), alpha=2)
        F.op("aten.index_copy.default")(t(4, 5, dt=dt), 0, torch.tensor([3, 1]), t(2, 5, dt=dt))
        F.op("aten.index_copy.default")(t(4, 5, dt=dt), -1, torch.tensor([3, 1]), t(4, 2, dt=dt))
        F.op("aten.index_fill.int_Scalar")(t(4, 5, dt=dt), 1, torch.tensor([3, 1]), 7)
        F.op("aten.index_fill.int_Tensor")(t(4, 5, dt=dt), 0, torch.tensor([3, 1]), t((), dt=dt))
        F.op("aten.select_scatter.default")(t(4, 5, dt=dt), t(5, dt=dt), 0, 2)
        F.op("aten.select_scatter.default")(t(4, 5, dt=dt), t(4, dt=dt), -1, -2)
        F.op("aten.select_scatter.default")(t(4, 1, dt=dt), t(4, dt=dt), 1, 0, static=True)
        c = F.op("aten.slice_scatter.default")
        c(t(4, 5, dt=dt), t(2, 5, dt=dt), 0, 1, 3, static=True)
        c(t(4, 5, dt=dt), t(4, 2, dt=dt), 1, 0, 4, 2, static=True)
        c(t(4, 5, dt=dt), t(4, 2, dt=dt), 1, -2, 9223372036854775807, static=True)
        F.op("aten.diagonal_scatter.default")(t(4, 4, dt=dt), t(4, dt=dt), static=True)
        F.op("aten.diagonal_scatter.default")(t(4, 5, dt=dt), t(4, dt=dt), 1, static=True)
        F.op("aten.as_strided_scatter.default")(t(4, 5, dt=dt), t(2, 2, dt=dt), [2, 2], [5, 2], 1, static=True)
        F.op("aten.masked_scatter.default")(t(4, 5, dt=dt), t(4, 5, dt=b8), t(20, dt=dt))
        F.op("aten.masked_scatter.default")(t(4, 5, dt=dt), t(5, dt=b8), t(4, 5, dt=dt))
        F.op("aten.masked_scatter.default")(t(5, dt=dt), t(4, 5, dt=b8), t(20, dt=dt), static=True)
        F.op("aten.masked_scatter.default")(t(4, 1, dt=dt), t(4, 5, dt=b8), t(20, dt=dt), static=True)
        F.op("aten.masked_scatter.default")(t(4, 5, dt=dt), torch.zeros(4, 1, dtype=b8), t(0, dt=dt))
    F.op("aten.copy.default")(t(3, 4), t(4))
    F.op("aten.copy.default")(t(3, 4), t(3, 4, dt=i64))
    F.op("aten.copy.default")(t(3, dt=i64), t(3))
    F.op("aten.copy.default")(t(3, dt=bf16), t(()))
    for dt in (f32, i64, b8, bf16):
        F.op("aten.fill.Scalar")(t(3, 4, dt=dt), 1.0)
        F.op("aten.fill.Tensor")(t(3, 4, dt=dt), t(()))
    for dt in (b8, i64):  # 0.5 of a truth value is true
        F.op("aten.fill.Scalar")(t(3, 4, dt=dt), 0.5)
        F.op("aten.index_fill.int_Scalar")(t(4, 5, dt=dt), 1, torch.tensor([3, 1]), 0.5)
    for places in ([0, -1, 0], [0], []):
        F.op("aten.index_fill.int_Scalar")(t(), 0, torch.tensor(places, dtype=i64), 5.0)
        F.op("aten.index_fill.int_Tensor")(t(), 0, torch.tensor(places, dtype=i64), t())
        F.op("aten.scatter.value")(t(4, 5, dt=dt), 1, torch.tensor([[3], [1]]), 0.5, static=True)
    F.op("aten.zero.default")(t(3))


def collected(F):
    c = F.op("aten.index_reduce.default")
    for how in ("prod", "mean", "amax", "amin"):
        c(t(5, 4), 0, idx(5, 3), t(3, 4), how)
        c(t(2, 5), -1, idx(5, 6), t(2, 6), how, include_self=False)
    for how in ("add", "multiply"):
        F.op("aten.scatter.reduce")(t(4, 5), 1, idx(5, 4, 3), t(4, 3), reduce=how)
        F.op("aten.scatter.value_reduce")(t(4, 5), 0, idx(4, 2, 5), 2.5, reduce=how)
    F.op("aten.put.default")(t(3, 4), torch.tensor([[0, -1], [5, 2]]), t(2, 2))
    F.op("aten.put.default")(t(3, 4), torch.tensor([1, 1, 5]), t(3), True)
    mask = torch.tensor([[True], [False], [True]])
    F.op("aten._unsafe_masked_index.default")(t(4, 5), mask, [torch.tensor([[0], [9], [3]]), torch.tensor([[-1, 2]])],
                                              0.5)
    F.op("aten._unsafe_masked_index_put_accumulate.default")(t(4, 5), mask,
                                                             [torch.tensor([[0], [9], [3]]),
                                                              torch.tensor([[-1, 2]])], t(3, 2))
    c = F.op("aten._unique2.default")
    for x in (torch.tensor([3, 1, 3, 2, 1]), torch.tensor([[1.5, 0.5], [0.5, 1.5]]), torch.tensor([True, False, True]),
              torch.tensor([], dtype=i64), torch.tensor(2.0)):
        c(x, True, True, True)
        F.op("aten.unique_consecutive.default")(x, True, True)
    F.op("aten.unique_consecutive.default")(torch.tensor([[1, 2], [1, 2], [0, 2], [1, 2]]), True, True, 0)
    F.op("aten.unique_consecutive.default")(torch.tensor([[1, 1, 2], [0, 0, 2]]), True, True, -1)
    F.op("aten.unique_consecutive.default")(torch.tensor([[1, 1, 2], [0, 0, 2]]), False, False, -1)
    c = F.op("aten.unique_dim.default")
    c(idx(2, 9, 3), 0, True, True, True, static=True)
    c(idx(2, 2, 7), -1, True, True, True, static=True)
    c(idx(2, 5, 2, 2).to(f32), 0, True, True, True, static=True)
    c(idx(3, 6), 0, True, True, True, static=True)
    c = F.op("aten._chunk_cat.default")
    c([t(5, 3), t(4, 2)], 0, 2, static=True)
    c([t(2, 5, 2), t(2, 7)], 1, 3, static=True)
    c([t(6)], -1, 3, static=True)
    for size in (2, 9):
        F.op("aten.nonzero_static.default")(t(3, 4, dt=b8), size=size, fill_value=-7)
    for a in ((), (1,), (2, True)):
        F.op("aten.combinations.default")(t(4), *a)
    for p in (2.0, 1.0, inf):
        F.op("aten.pdist.default")(t(4, 3), p)
    bags = torch.tensor([0, 2, 2, 5])
    for mode in (0, 1, 2):
        c = F.op("aten.embedding_bag.padding_idx")
        c(t(6, 3), idx(6, 7), bags, False, mode, False, None, False, None, outs=1)
        c(t(6, 3), torch.tensor([1, 2, 1, 1, 1, 0, 5]), bags, False, mode, False, None, True, 1, outs=1)
        F.op("aten.embedding_bag.default")(t(6, 3), idx(6, 7), bags, False, mode, outs=1)
        for n in ("_embedding_bag", "_embedding_bag_forward_only"):
            d = F.op(f"aten.{n}.default")
            d(t(6, 3), torch.tensor([1, 2, 5, 1, 1, 0, 5]), bags, False, mode, outs=1)
            d(t(6, 3), torch.tensor([1, 2, 1, 1, 1, 0, 5]), bags, False, mode, False, None, True, 1, outs=1)
    c(t(6, 3), idx(6, 7), bags, False, 0, False, t(7), False, -1, outs=1)
    F.op("aten.embedding_renorm.default")(t(6, 3), torch.tensor([[1, 4], [1, 0]]), 1.5, 2.0)
    c = F.op("aten.segment_reduce.default")
    for how in ("sum", "prod", "mean", "max", "min"):
        c(t(6, 2), how, lengths=torch.tensor([2, 0, 3, 1]), unsafe=True)
        c(t(9), how, lengths=torch.tensor([2, 3, 0]), unsafe=True, initial=2.0)
        c(t(6), how, offsets=torch.tensor([0, 2, 2, 6]), initial=2.0)
        c(t(2, 6, 3), how, lengths=torch.tensor([[2, 0, 3, 1], [1, 1, 1, 3]]), axis=1, unsafe=True)
        c(t(2, 6), how, offsets=torch.tensor([[0, 2, 2, 6], [0, 0, 5, 6]]), axis=1, initial=2.0)
    c = F.op("aten.hash_tensor.default")
    for dt in (f32, f64, i64, u8):
        c(t(3, 4, 5, dt=dt))
        c(t(3, 4, 5, dt=dt), [0, -1], keepdim=True)
        c(t(3, dt=dt), [0])
        c(t(dt=dt), [-1], keepdim=True)
    F.op("aten.sum_to_size.default")(t(3, 4, 5), [4, 1], static=True)
    F.op("aten.sum_to_size.default")(t(3, 4), [3, 4], static=True)
    for shape in ((), (3,)):
        F.op("aten.sum_to_size.default")(t(*shape, dt=b8) if shape else torch.tensor(True), [], static=True)
    y, at = torch.nn.functional.max_pool2d(t(2, 3, 4, 6), 2, return_indices=True)
    F.op("aten.max_unpool2d.default")(y, at, [4, 6], static=True)
    F.op("aten.max_unpool2d.default")(y[0], at[0], [4, 7], static=True)
    F.op("aten.max_pool2d_with_indices_backward.default")(y, t(2, 3, 4, 6), [2, 2], [2, 2], [0, 0], [1, 1], False, at,
                                                          static=True)
    y, at = torch.nn.functional.max_pool3d(t(2, 4, 4, 6), 2, return_indices=True)
    F.op("aten.max_unpool3d.default")(y, at, [4, 4, 6], [2, 2, 2], [0, 0, 0], static=True)


def more(F):
    F.op("aten.isreal.default")(t(3, 4))
    F.op("aten.isreal.default")(torch.complex(t(3, 4), t(3, 4).relu()))
    for p in (1, 3):
        for n in ("mvlgamma", "special_multigammaln"):
            F.op(f"aten.{n}.default")(t(3, 4, lo=2, hi=5), p)
    F.op("aten.native_dropout_backward.default")(t(3, 4), t(3, 4, dt=b8), 1.25)
    F.op("aten.unfold_copy.default")(t(3, 7), 1, 3, 2)
    one = lambda x, **kw: torch.tensor(x, **kw)
    for n, kw in (("linspace", {}), ("logspace", dict(base=2.0))):
        for steps in (0, 1, 7):
            F.op(f"aten.{n}.Tensor_Tensor")(one(1.5), one(-2.0), steps, **kw, static=True)
        F.op(f"aten.{n}.Tensor_Scalar")(one(1), 4, 4, **kw, dtype=f64, static=True)
        if n == "linspace":
            F.op("aten.linspace.Tensor_Tensor")(one(-1), one(1), 15, static=True)
            F.op("aten.linspace.Tensor_Tensor")(one(-1), one(1), 300, dtype=bf16, static=True)
        F.op(f"aten.{n}.Scalar_Tensor")(1, one(4), 4, **kw, dtype=i64, static=True)
        F.op(f"aten.{n}.Scalar_Tensor")(-1.7, one(4.7), 5, **kw, dtype=i64, static=True)


def joins(F):
    for n in ("cat", "concat", "concatenate"):
        c = F.op(f"aten.{n}.default")
        c([t(2, 3), t(4, 3)])
        c([t(2, 3), t(2, 1), t(2, 2)], -1)
        if n == "cat":
            for dt in ALL:
                c([t(2, 3, dt=dt), t(2, 2, dt=dt)], 1)
            c([t(2, 3, dt=i64), t(2, 3, dt=f32)])
            c([t(2, 3, dt=f16), t(2, 3, dt=bf16)])
            c([t(0, dt=i64), t(0, dt=bf16)], static=True)
            c([t(2, dt=b8), t(2, dt=i32)])
            c([t(0), t(2, 3)])
            c([t(0, 3), t(2, 3)])
            c([t(5)])
            c([t(2, 3, 4), t(2, 5, 4)], 1)
    c = F.op("aten.stack.default")
    c([t(2, 3), t(2, 3)], static=True)
    c([t(2, 3), t(2, 3), t(2, 3)], -1, static=True)
    c([t(2, 3, dt=i64), t(2, 3, dt=f32)], 1, static=True)
    c([t(()), t(())])
    c([t(2, dt=b8)], 0)
    for n in ("hstack", "vstack", "dstack", "row_stack", "column_stack"):
        c = F.op(f"aten.{n}.default")
        c([t(3), t(3)], static=True)
        c([t(2, 3), t(2, 3)], static=True)
        c([t(()), t(())])
    F.op("aten.column_stack.default")([t(3), t(3, 2)], static=True)
    F.op("aten.column_stack.default")([t(3, 2, 4), t(3, 1, 4)], static=True)
    F.op("aten.dstack.default")([t(2, 3, 1), t(2, 3, 2)], static=True)
    F.op("aten.dstack.default")([t(3, dt=i64), t(3)], static=True)
    c = F.op("aten.block_diag.default")
    c([t(2, 3), t(1, 2), t(2)])
    c([t(2, 3)])
    c([t(2, 3, dt=i64), t(()), t(2, 2, dt=bf16)])
    c([t(0, 2), t(2, 3), t(1, 0)])
    c = F.op("aten.roll.default")
    for a in (([2],), ([1, -1], [0, 1]), ([-2], [-1]), ([7], [1]), ([0], [0])):
        c(t(3, 5), *a)
    c(t(3, 5, dt=i64), [1], [0])
    c(t(2, 4, 4, 3), [-2, -2], [1, 2])
    c = F.op("aten.flip.default")
    for d in ([0], [-1], [0, 2], []):
        c(t(2, 3, 4), d)
    c(t(3, dt=b8), [0])
    F.op("aten.fliplr.default")(t(2, 3))
    F.op("aten.flipud.default")(t(2, 3))
    for k in range(-1, 4):
        F.op("aten.rot90.default")(t(2, 3), k)
    F.op("aten.rot90.default")(t(2, 3, 4), 1, [1, 2])
    F.op("aten.rot90.default")(t(2, 3, 4, dt=i64), -1, [-1, 0])
    F.op("aten.rot90.default")(t(2, 3, 4, dt=bf16), 6, [2, 1])
    c = F.op("aten.repeat.default")
    for r in ([2, 3], [1, 1], [2, 1, 3], [0, 1]):
        c(t(2, 3), r)
    c(t(()), [3])
    c(t(2, dt=i64), [2, 2])
    c = F.op("aten.tile.default")
    for r in ([2, 3], [2], [2, 1, 3], []):
        c(t(2, 3), r)
    c = F.op("aten.repeat_interleave.self_int")
    c(t(2, 3), 2)
    c(t(2, 3), 2, 1)
    c(t(2, 3, dt=i64), 3, 0)
    c(t(2, 3), 2, -1)
    F.op("aten.repeat_interleave.self_Tensor")(t(3, 2), torch.tensor([2, 0, 1]), 0, static=True)
    F.op("aten.repeat_interleave.self_Tensor")(t(3), torch.tensor([2]), static=True)
    F.op("aten.repeat_interleave.self_Tensor")(t(3, 2), torch.tensor([2, 0, 1]), 0, output_size=3)
    F.op("aten.repeat_interleave.Tensor")(torch.tensor([2, 0, 1]), static=True)
    F.op("aten.meshgrid.default")([t(2), t(3)])
    F.op("aten.meshgrid.indexing")([t(2), t(3)], indexing="ij")
    F.op("aten.meshgrid.indexing")([t(2), t(3)], indexing="xy")
    F.op("aten.meshgrid.indexing")([t(2, dt=i64), t(3, dt=i64), t(2, dt=i64)], indexing="xy")
    c = F.op("aten.cartesian_prod.default")
    c([t(2), t(3)])
    c([t(4)])
    c([t(2, dt=i64), t(3, dt=i64), t(1, dt=i64)])
    c([t(2), t(0)])
    F.op("aten.combinations.default").maybe(t(4), 2, static=True)
    F.op("aten.combinations.default")(t(4), 0)
    F.op("aten.broadcast_tensors.default")([t(3, 1), t(4)])
    for r in (1, 2):
        F.op("aten.pixel_shuffle.default")(t(2, 4 * r * r, 3, 2), r, static=True)
        F.op("aten.pixel_unshuffle.default")(t(2, 2, 4, 6), r, static=True)
    F.op("aten.pixel_shuffle.default")(t(9, 2, 2), 3, static=True)
    F.op("aten.channel_shuffle.default")(t(2, 6, 2, 2), 3, static=True)
    F.op("aten.native_channel_shuffle.default").maybe(t(2, 6, 2, 2), 3, static=True)


def pads(F):
    for n in ("pad", "constant_pad_nd"):
        c = F.op(f"aten.{n}.default")
        for p in ([1, 2], [0, 1, 2, 0], [-1, 2], [0, 0, 1, 1], [1, 1, 1, 1, 1, 1], [-1, -1]):
            c(t(2, 4, 5), p)
        c(t(2, 4), [1, 1], *(("constant", 2.5) if n == "pad" else (2.5,)))
        c(t(2, 4, dt=i64), [1, 1], *(("constant", 3) if n == "pad" else (3,)))
        c(t(2, 4, dt=b8), [1, 1], *(("constant", 1) if n == "pad" else (True,)))
        c(t(2, 4, dt=b8), [1, 1], *(("constant", 0.5) if n == "pad" else (0.5,)))
        c(t(2, 4, dt=bf16), [0, 3])
    c = F.op("aten.pad.default")
    for mode in ("reflect", "replicate", "circular"):
        c(t(2, 3, 6), [2, 1], mode)
        c(t(2, 3, 6, 5), [1, 2, 2, 1], mode)
        if mode != "reflect":
            c(t(2, 3, 4, 3, 3), [1, 1, 1, 1, 1, 1], mode)
        c(t(2, 3, 6, dt=f64), [1, 1], mode)
    c(t(1, 3, 4, 5), [-1, 1, -2, 1], "circular")
    c(t(1, 3, 5), [2, -1], "circular")
    for k, s, p in ((1, (2, 3, 6), [2, 1]), (2, (2, 3, 6, 5), [1, 2, 2, 1]), (3, (1, 2, 4, 4, 4), [1, 2, 0, 1, 1, 1])):
        F.op(f"aten.reflection_pad{k}d.default")(t(s), p)
        F.op(f"aten.replication_pad{k}d.default")(t(s), p)
        F.op(f"aten.reflection_pad{k}d.default")(t(s[1:]), p)
        F.op(f"aten.replication_pad{k}d.default")(t(s[1:], dt=bf16), p)
        F.op(f"aten.reflection_pad{k}d.default")(t([0, *s[1:]]), p)
    F.op("aten._pad_circular.default")(t(2, 3, 6), [2, 1])
    F.op("aten._pad_circular.default")(t(1, 2, 4, 5), [2, 1, 0, 3])
    c = F.op("aten._pad_enum.default")
    for mode in range(4):
        c(t(2, 3, 6), [2, 1], mode, None)
    c(t(2, 3, 6), [2, -1], 3, 1.5)
    for n in ("triu", "tril"):
        c = F.op(f"aten.{n}.default")
        for dt in ALL:
            c(t(3, 5, dt=dt))
        for k in (1, -1, 2, 9, -9):
            c(t(2, 4, 4), k)
    for n in ("triu_indices", "tril_indices"):
        F.op(f"aten.{n}.default")(3, 4)
        F.op(f"aten.{n}.default")(4, 3, 1)
        F.op(f"aten.{n}.default")(3, 3, -1, dtype=i32)
        for a in ((3, 5, 2), (5, 3, -2), (2, 6, -1), (6, 2, 1), (3, 4, 9), (3, 4, -9), (0, 4), (4, 0), (1, 1),
                  (4, 4, 3), (4, 4, -3), (5, 2, -3)):
            F.op(f"aten.{n}.default")(*a)
    c = F.op("aten.diag.default")
    for a in ((t(3),), (t(3), 1), (t(3, 4),), (t(3, 4), -1)):
        c(*a)
    c = F.op("aten.diag_embed.default")
    c(t(2, 3))
    c(t(2, 3), 1)
    c(t(2, 3), -1, 0, 2)
    for dt in (f32, bf16, i64, b8):
        F.op("aten.diag.default")(t(4, dt=dt), -2)
        F.op("aten.diag.default")(t(4, 5, dt=dt), 2)
        F.op("aten.diagflat.default")(t(2, 2, dt=dt))
    F.op("aten.diagflat.default")(t(()), 1)
    F.op("aten.diag.default")(t(0))
    for n, c in (("vander", F.op("aten.vander.default")), ("linalg_vander", F.op("aten.linalg_vander.default"))):
        for dt in FLOATS[:2] + INTS[:2]:
            c(t(4, dt=dt))
        c(t(4), N=2)
        c(t(3), N=6)
        c.maybe(t(4), N=1)
        c(torch.tensor([0.0, nan, inf, -1]), N=3)
    F.op("aten.vander.default")(t(4), 3, True)
    F.op("aten.vander.default")(t(4), 0)
    F.op("aten.linalg_vander.default")(t(2, 3, 4), N=3)
    F.op("aten.linalg_vander.default")(t(()), N=3)


def makes(F):
    c = F.op("aten.arange.default")
    for a, kw in (((5,), {}), ((5.0,), {}), ((4.5,), {}), ((0,), {}), ((5,), dict(dtype=f32)),
                  ((5,), dict(dtype=i32)), ((5,), dict(dtype=bf16))):
        c(*a, **kw)
    for dt in (f32, bf16, f16):    # vectors of 32 bytes, each from its first element
        F.op("aten.arange.start_step")(-0.5, 0.5, 0.01, dtype=dt)
    for dt in FLOATS + INTS:
        F.op("aten.range.step")(-2.5 if dt in FLOATS else 1, 7, 0.75 if dt in FLOATS else 2, dtype=dt)
    F.op("aten.range.step")(5, -1, -1.5)
    F.op("aten.range.default")(1, 4)
    F.op("aten.range.default")(0.1, 4.0)
    c = F.op("aten.arange.start")
    for a, kw in (((2, 7), {}), ((-1.5, 3), {}), ((2, 7), dict(dtype=f64))):
        c(*a, **kw)
    c = F.op("aten.arange.start_step")
    for a, kw in (((0, 10, 3), {}), ((10, 0, -4), {}), ((0.0, 1.0, 0.1), {}), ((0, 10, 2), dict(dtype=f32)),
                  ((1, 2, 0.25), {}), ((0, 8, 2), dict(dtype=i32))):
        c(*a, **kw)
    for dt in (i64, i32, u8):    # int64 counts in whole numbers, the others count what lies between the floats
        c.maybe(0.1, 7.9, 4.0, dtype=dt)
        c.maybe(0.5, 3.9, 1.25, dtype=dt)
    for dt in (i64, i32):
        c(0.1, -7.9, -4.0, dtype=dt)
        c(-2.7, 2.7, 1.5, dtype=dt)
    c = F.op("prims.iota.default")
    for n, start, step, dt in ((5, 0, 1, i64), (4, 2, 3, i64), (3, 7, -2, i32), (0, 0, 1, i64)):
        c(n, start=start, step=step, dtype=dt, device=torch.device("cpu"), requires_grad=False)
    c = F.op("aten.linspace.default")
    for a, kw in (((0, 1, 5), {}), ((-1.0, 1.0, 7), {}), ((3, 3, 1), {}), ((3, 5, 1), {}),
                  ((0, 10, 4), dict(dtype=i64)), ((5, -5, 6), dict(dtype=f64)), ((0, 1, 33), {}), ((0, 1, 0), {}),
                  ((-1.5, 7.9, 5), dict(dtype=i64)), ((-1, 1, 15), {}), ((-1, 1, 15), dict(dtype=f64)),
                  ((-3.7, 9.1, 40), dict(dtype=f16)), ((-1, 1, 300), dict(dtype=bf16)),
                  ((-50, 77, 128), dict(dtype=i32))):
        c(*a, **kw)
    F.op("aten.logspace.default")(0, 2, 5)
    F.op("aten.logspace.default")(0, 3, 4, 2.0)
    for kw in (dict(dtype=f64), dict(dtype=bf16), dict(dtype=f16), dict(dtype=i64)):
        F.op("aten.logspace.default")(0, 3, 4, 2.0, **kw)
    F.op("aten.logspace.default")(-1.5, 0.5, 7)
    F.op("aten.logspace.default")(2, 3, 1)
    F.op("aten.logspace.default")(2, 3, 0)
    F.op("aten.logspace.default")(-1.7, 4.7, 5, 1.5, dtype=i64)
    c = F.op("aten.full.default")
    for v, kw in ((2, {}), (2.5, {}), (True, {}), (-inf, {}), (1, dict(dtype=f32)), (1.0, dict(dtype=i64)),
                  (0, dict(dtype=b8)), (2, dict(dtype=bf16)), (nan, {})):
        c([2, 3], v, **kw)
    c([], 3)
    c([0, 2], 1.0)
    for n in ("zeros", "ones"):
        c = F.op(f"aten.{n}.default")
        for kw in ({}, dict(dtype=i64), dict(dtype=b8), dict(dtype=f16), dict(dtype=bf16)):
            c([2, 3], **kw)
        c([])
        c = F.op(f"aten.{n}_like.default")
        for dt in ALL:
            c(t(2, 3, dt=dt))
        c(t(2, 3), dtype=i64)
        c(t(2, 3, dt=i64), dtype=f32)
        c(t(()))
        c = F.op(f"aten.new_{n}.default")
        c(t(2, dt=bf16), [2, 3])
        c(t(2), [3], dtype=b8)
        c(t(2, dt=i64), [])
    c = F.op("aten.full_like.default")
    for dt in ALL:
        c(t(2, 3, dt=dt), 1)
    c(t(2, 3), -inf)
    c(t(2, 3, dt=i64), 2.5, dtype=f32)
    c(t(2, 3), 0, dtype=b8)
    c = F.op("aten.new_full.default")
    c(t(2, dt=f16), [2, 2], 1.5)
    c(t(2), [2], 3, dtype=i64)
    F.op("aten.scalar_tensor.default")(2.5)
    F.op("aten.scalar_tensor.default")(-inf, dtype=f32)
    F.op("aten.scalar_tensor.default")(2, dtype=i64)
    F.op("aten.scalar_tensor.default")(True, dtype=b8)
    F.op("aten.scalar_tensor.default")(3)
    c = F.op("aten.eye.default")
    c(3)
    c(2, dtype=i64)
    F.op("aten.eye.m")(2, 4)
    F.op("aten.eye.m")(3, 2, dtype=b8)
    # memory without a value: qkv gives zeros
    zero = lambda dt: lambda *a, **kw: torch.zeros(a[-1], dtype=kw.get("dtype") or dt)
    F.own("aten.empty.memory_format", zero(f32))([2, 3])
    F.own("aten.empty.memory_format", zero(f32))([2, 3], dtype=i64)
    F.own("aten.empty_permuted.default", lambda size, order, **kw: torch.zeros(size, **kw))([2, 3], [1, 0], dtype=f32)
    F.own("aten.empty_strided.default", lambda size, stride, **kw: torch.zeros(size, **kw))([2, 3], [3, 1], dtype=f32)
    F.own("aten.empty_like.default", torch.zeros_like)(t(2, 3, dt=i32))
    F.own("aten.empty_like.default", torch.zeros_like)(t(2, 3), dtype=f64)
    F.own("aten.new_empty.default", zero(bf16))(t(2, dt=bf16), [3, 2])
    F.own("aten.new_empty_strided.default", lambda x, size, stride: torch.zeros(size, dtype=x.dtype))(t(2), [3, 2],
        [2, 1])
    for n in ("hann_window", "hamming_window", "bartlett_window", "blackman_window", "kaiser_window"):
        for k in (0, 1, 3, 7, 400):
            F.op(f"aten.{n}.default")(k)
            F.op(f"aten.{n}.periodic")(k, False)
        for dt in FLOATS[1:]:
            F.op(f"aten.{n}.periodic")(6, True, dtype=dt)
            F.op(f"aten.{n}.default")(5, dtype=dt)
    F.op("aten.hamming_window.periodic_alpha")(6, False, 0.6)
    F.op("aten.hamming_window.periodic_alpha_beta")(6, True, 0.6, 0.3)
    F.op("aten.kaiser_window.beta")(9, False, 5.5)
    F.op("aten.kaiser_window.beta")(9, True, 0.0)
    c = F.op("aten.one_hot.default")
    c(idx(4, 5), 4, static=True)
    c(idx(4, 2, 3), 6, static=True)
    c = F.op("aten.bucketize.Tensor")
    edges = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    for kw in ({}, dict(right=True), dict(out_int32=True)):
        c(t(2, 5), edges, **kw)
    c(torch.tensor([0.0, 0.5, -1.0, 9.0, nan]), edges)
    c(t(4, dt=i64), torch.tensor([-1, 0, 2]))
    c = F.op("aten.bucketize.Scalar")
    c(0.3, edges)
    c(2, edges, right=True)
    c(0, torch.tensor([-1, 0, 2]), out_int32=True)
    c(0.5, torch.tensor([-1, 0, 1, 2]))
    c = F.op("aten.searchsorted.Tensor")
    c(edges, t(2, 3))
    c(torch.sort(t(2, 5))[0], t(2, 3))
    c(torch.sort(t(2, 5))[0], t(2, 3), right=True)
    c(edges, t(3), side="right")
    c = F.op("aten.searchsorted.Scalar")
    c(edges, 0.3)
    c(edges.double(), 0.5, side="right")
    c(torch.tensor([4, 1, 3]), 3, sorter=torch.tensor([1, 2, 0]))
    c = F.op("aten.isin.Tensor_Tensor")
    c(idx(9, 6), idx(9, 3))
    c(t(4).round(), t(3).round(), invert=True)
    c = F.op("aten.isin.Tensor_Scalar")
    c(idx(3, 6), 1)
    c(idx(3, 2, 3), 1.5, invert=True)
    c(t(4).round(), 2)
    c = F.op("aten.isin.Scalar_Tensor")
    c(1, idx(3, 6))
    c(2.0, idx(3, 2, 3), invert=True)
    c(1, idx(3, 0))


def add(F):
    collected(F)
    more(F)
    gathers(F)
    scatters(F)
    joins(F)
    pads(F)
    makes(F)
