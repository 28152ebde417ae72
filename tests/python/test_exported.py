"""What torch.export writes for valid programs runs here with eager's results, and again once qkv has saved it."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402


def module(f):
    class Holder(nn.Module):
        def forward(self, *x):
            return f(*x)
    return f if isinstance(f, nn.Module) else Holder()


class Exported:
    """A function or module as torch.export writes it, as qkv saves that, and as both run it."""

    def __init__(self, folder, f, inputs, dynamic=None):
        self.module, given, saved = module(f), folder / "given.pt2", folder / "saved.pt2"
        torch.export.save(torch.export.export(self.module, inputs,
                                              dynamic_shapes=dynamic and (dynamic if isinstance(f, nn.Module)
                                                                          else (tuple(dynamic),))), given)
        self.models = [qkv.Model(given), qkv.Model(given, optimize=False)]
        self.models[0].save(saved)
        self.models.append(qkv.Model(saved))
        self.reloaded = torch.export.load(saved).module()

    def agrees(self, *variants):
        for inputs in variants:
            with torch.no_grad():
                want = tree_leaves(self.module(*inputs))
                again = tree_leaves(self.reloaded(*inputs))
            runs = [[torch.from_numpy(np.array(y)) for y in m.run([x.numpy() for x in inputs]).values()]
                    for m in self.models]
            for got in (*runs, again):
                for a, b in zip(got, want, strict=True):
                    torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)

    def refuses(self, *inputs):
        for m in self.models:
            with pytest.raises(qkv.Error, match="allowed|expected"):
                m.run([x.numpy() for x in inputs])
        with pytest.raises(RuntimeError):
            self.reloaded(*inputs)


def test_checked_truth_of_a_tensor(tmp_path):
    def f(x):
        torch._check((x > 0).all().item())
        return x * 2

    Exported(tmp_path, f, (torch.ones(3),)).refuses(torch.tensor([1.0, -1.0, 1.0]))

    def g(x):
        torch._check(torch.sym_not((x > 0).any().item()))
        return x * 2

    e = Exported(tmp_path, g, (-torch.ones(3),))
    e.agrees((torch.tensor([-1.0, -2.0, 0.0]),))
    e.refuses(torch.tensor([1.0, -1.0, 1.0]))


def test_number_checked_to_be_a_constant(tmp_path):
    def f(x):
        torch._check((x > 0).sum().item() == 3)
        return x * 2

    e = Exported(tmp_path, f, (torch.ones(3),))
    e.agrees((torch.tensor([1.0, 2.0, 3.0]),))
    e.refuses(torch.tensor([1.0, -1.0, 1.0]))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.float16))
def test_float_read_out_of_a_tensor(tmp_path, dtype):
    def f(x, y):
        s = x.sum().item()
        torch._check(s > -100.0)
        return (y * s, torch.full((2, 3), s * 2 + 1), y.clamp(-s, s), y.int() + s, torch.add(y, y, alpha=s), y > s,
                y - (s - y.max().item()))

    inputs = [(torch.tensor(x, dtype=dtype), torch.randn(2, 3)) for x in ([0.5, 1.5], [3.0, -7.25])]
    e = Exported(tmp_path, f, inputs[0])
    e.agrees(*inputs)
    e.refuses(torch.tensor([-200.0, 0.0], dtype=dtype), inputs[0][1])
    ort = pytest.importorskip("onnxruntime")
    e.models[0].save_onnx(tmp_path / "m.onnx", opset=18)
    session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    got = session.run(None, {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs[1])})
    for a, b in zip(got, tree_leaves(f(*inputs[1])), strict=True):
        torch.testing.assert_close(torch.from_numpy(a), torch.as_tensor(b, dtype=torch.from_numpy(a).dtype))


@pytest.mark.parametrize("numbers_only", (False, True))
def test_size_that_a_region_without_gradients_hands_out(tmp_path, numbers_only):
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))

        def forward(self, x):
            with torch.no_grad():
                n = 2 * x.shape[1] - 1
                p = torch.arange(n).float()
            with torch.no_grad():
                m = n + 1 if numbers_only else n
                q = torch.ones(m - n + 1)
            return (x * self.w).sum(-1, keepdim=True) * p.view(1, 1, n) * q.sum(), torch.zeros(m)

    Exported(tmp_path, Positions(), (torch.randn(2, 5, 4),), ({0: Dim("b"), 1: Dim("n", min=2)},
                                                              )).agrees(*[(torch.randn(b, n, 4),)
                                                                          for b, n in ((2, 5), (3, 2), (1, 9))])


def test_mask_whose_query_axis_the_file_knows_to_be_one(tmp_path):
    """diffusers' prepare_attention_mask; the batches of queries and mask are symbols of their own."""
    def f(q, k, mask):
        b = q.shape[0]
        bias = ((1 - mask) * -1e4).unsqueeze(1).repeat_interleave(2, dim=0).view(b, 2, -1, mask.shape[-1])
        return nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=bias)

    def inputs(b, n, m):
        return torch.randn(b, 2, n, 8), torch.randn(b, 2, m, 8), (torch.arange(m) < m - 1).float().expand(b,
            m).contiguous()

    free = {0: Dim.AUTO, 2: Dim.AUTO}
    Exported(tmp_path, f, inputs(2, 16, 5), ({0: Dim.AUTO}, free, {0: Dim.AUTO, 1: Dim.AUTO})).agrees(inputs(2, 16,
        5), inputs(3, 16, 2), inputs(5, 16, 16))


def test_places_of_what_is_not_zero(tmp_path):
    def f(x):
        (i,) = torch.where(x > 0)
        return torch.zeros(i.shape[0]), x[(x < 0).nonzero(as_tuple=True)], torch.argwhere(x > 1)

    Exported(tmp_path, f, (torch.randn(9),)).agrees((torch.randn(9),), (torch.zeros(9),), (torch.full((9,), 2.0),))


def test_views_and_logic_in_place(tmp_path):
    def f(x):
        y, m = x + 1, x > 0
        y.unsqueeze_(0)
        y.add_(1)
        m |= x < -1
        m &= x < 1
        m ^= x < 0.5
        z = (x * 2).t_()
        z.mul_(3)
        return y, m, z, y.clone().transpose_(0, 1), y.clone().squeeze_(0), y.clone().swapaxes_(1, 2)

    Exported(tmp_path, f, (torch.randn(4, 5),), ({0: Dim("n", min=2)},)).agrees((torch.randn(4, 5),),
                                                                                (torch.randn(7, 5),))


WRITES = [
    lambda y: y.abs_()[1].pow_(0.5),
    lambda y: y.abs_().pow_(y.clone()),
    lambda y: y.fill_diagonal_(2.0),
    lambda y: y[:, :2].fill_diagonal_(2.0, wrap=True),
    lambda y: y.view(-1, 2)[3].mul_(3),
    lambda y: y.permute(1, 0).add_(torch.arange(4.0)),
    lambda y: y.unsqueeze(0).permute(-1, 0, -2).mul_(2),
    lambda y: y[1].fill_(7),
    lambda y: y[:, 1:6:2].zero_(),
    lambda y: y.diagonal(1).copy_(torch.arange(4.0)),
    lambda y: y.as_strided((2, 3), (6, 2), 1).mul_(5),
    lambda y: y.detach().neg_(),
    lambda y: (y.t()[2:].add_(1), y.view(24)[::5].mul_(2), y[:2].t().diagonal().add_(3)),
    lambda y: y.t().as_strided((2, 3), (3, 1)).mul_(5),
    lambda y: y.unfold(-1, 2, 3).mul_(torch.tensor([2.0, 3.0])),
    lambda y: y.unfold(0, 1, 2)[0].add_(1),
    lambda y: y[1].ldexp_(torch.tensor([2])),
    lambda y: y.abs_()[2:].igamma_(torch.tensor(1.5)),
    lambda y: y.abs_()[2:].igammac_(torch.tensor(1.5)),
    lambda y: y.abs_().add_(1).t().polygamma_(1),
    lambda y: y.abs_().divide_(0.3, rounding_mode="floor"),
    lambda y: y.conj_physical_().addr_(torch.arange(4.0), torch.arange(6.0), beta=0.5, alpha=2),
    lambda y: y.t().scatter_(0, torch.tensor([[0, 3, 1, 0]]), torch.full((1, 4), 3.0), reduce="multiply"),
    lambda y: y.scatter_(1, torch.tensor([[1, 1]]), 3.0, reduce="add"),
    lambda y: y.put_(torch.tensor([3, -1, 7]), torch.arange(3.0)),
    lambda y: y.index_reduce_(1, torch.tensor([2, 2, 0]), torch.ones(4, 3), "amax", include_self=False),
]


def test_truth_values_to_the_power_of_one(tmp_path):
    """torch.export declares integers for what PyTorch gives as truth values."""
    Exported(tmp_path, lambda x: (x ** True, x.pow(False)), (torch.tensor([True, False]),)).agrees(
        (torch.tensor([False, True]),))


def test_writes_through_views(tmp_path):
    def f(x):
        results = []
        for write in WRITES:
            y = x * 2
            row, turned = y[2], y.t()
            write(y)
            row.add_(1)
            results += [y, row * 2, turned + 1]
        return results

    Exported(tmp_path, f, (torch.randn(4, 6),)).agrees((torch.randn(4, 6),))


def test_writes_through_pieces_of_a_variable_size(tmp_path):
    def f(x):
        y = x * 2
        first, second = y.chunk(2)
        first += second
        second.sub_(first)
        return y

    Exported(tmp_path, f, (torch.randn(8),), ({0: Dim.AUTO},)).agrees((torch.randn(8),), (torch.randn(6),))


def test_as_strided_reads_the_memory_below_views(tmp_path):
    def f(x):
        turned = x.t() + 1
        return (x.t().as_strided((4,), (2,)), x[1:].as_strided((3,), (1,), 1), torch.as_strided(x[1:], (2,), (1,)),
                (x * 1)[:, 1].as_strided((2,), (1,)), turned.as_strided((4,), (2,)),
                x.permute(1, 0).contiguous().as_strided((3,), (2,)), x[None].expand(2, -1, -1).as_strided((3,), (2,)))

    Exported(tmp_path, f, (torch.randn(5, 4),), ({0: Dim("n", min=3)},)).agrees((torch.randn(5, 4),),
                                                                                (torch.randn(3, 4),))


SHARED = [
    lambda x: x[..., 0].flatten(), lambda x: x[..., 0].ravel(), lambda x: x.unbind(2)[-1].reshape(-1)[0],
    lambda x: x[:, :2].flatten(1), lambda x: x[:, :2].flatten(), lambda x: x.transpose(0, 1).reshape(4, 3, 2, 3),
    lambda x: x.permute(2, 0, 1).reshape_as(x.reshape(6, 12)), lambda x: x.permute(2, 0, 1).reshape(18, 4),
    lambda x: x.permute(0, 2, 1).unflatten(1, (2, 3)).flatten(1, 2), lambda x: x.mT.flatten(0, 0),
    lambda x: x.mT.contiguous(), lambda x: x[1:2].contiguous(), lambda x: x[:, 1:2].contiguous(),
    lambda x: x[None].contiguous(memory_format=torch.channels_last), lambda x: x.mT.to(torch.float32),
    lambda x: x.to(torch.float32, copy=True), lambda x: x[None].to(memory_format=torch.channels_last),
    lambda x: x.type_as(x[0]), lambda x: nn.functional.dropout(x.mT, training=False),
    lambda x: nn.functional.dropout1d(x, training=False), lambda x: nn.functional.alpha_dropout(x, training=False),
    lambda x: nn.functional.feature_alpha_dropout(x, training=False),
    lambda x: torch.einsum("ijk->kij", x), lambda x: torch.einsum("iij->ij", x[:, :3]),
    lambda x: torch.einsum("ijk,ijk->ijk", x, x), lambda x: x.sum_to_size(3, 4, 6), lambda x: x.sum_to_size(1, 4, 6),
    lambda x: torch.broadcast_tensors(x[0], x[1])[1], lambda x: torch.atleast_3d(x[0]),
    lambda x: torch.atleast_2d(x[0, 0], x[1])[0], lambda x: torch.cartesian_prod(x[0, 0]),
    lambda x: torch.meshgrid(x[0, 0])[0], lambda x: x.conj_physical(), lambda x: torch.unsafe_chunk(x, 2, 1)[1],
    lambda x: (x.mT + 1).mT.flatten(), lambda x: x.as_strided((2, 3), (1, 4), 2), lambda x: x.mT.clone().mT,
    lambda x: x.as_strided((x.shape[1], x.shape[2]), (x.shape[2], 1)),
]


@pytest.mark.parametrize("sizes", [None, ({2: Dim.AUTO},)])
def test_results_that_share_memory(tmp_path, sizes):
    """A reshape, contiguous, to or dropout gives a view, its operand or a copy, as strides and arguments say."""
    def f(x):
        results = []
        for shared in SHARED:
            y = x * 2
            memory = y.view(-1)
            z = shared(y)
            z.add_(1)
            y.mul_(3)
            results += [memory + 0, z + 0]
        return results

    Exported(tmp_path, f, (torch.randn(3, 4, 6),), sizes).agrees((torch.randn(3, 4, 6),))


@pytest.mark.parametrize("view", [lambda x: x.as_strided((2, 3), (2, 0), 1)[:, 1::3],
                                  lambda x: x.as_strided((3, 3), (2, 1)),
                                  lambda x: x.as_strided((2, 2, 2), (1, 6, 1))])
def test_writes_to_shared_places_are_refused(tmp_path, view):
    with pytest.raises(qkv.Error, match="a write through as_strided, whose elements share places in memory"):
        Exported(tmp_path, lambda x: (view(x).fill_(2), x * 1), (torch.randn(4, 6),))


def test_types_that_operands_have_together(tmp_path):
    def f(x, n):
        both = torch.result_type(n, x)
        return n.to(both) * 2, x.to(torch.result_type(x, 1.5)), n.to(torch.result_type(2.5, n))

    Exported(tmp_path, f, (torch.randn(4), torch.arange(4))).agrees((torch.randn(4), torch.arange(4)))


def test_writes_through_views_of_complex_numbers(tmp_path):
    def f(x):
        z = torch.complex(x, x + 1)
        z.t()[1].mul_(2)
        torch.view_as_real(z)[0].add_(1)
        z.as_strided((2, 3), (5, 1), 1).mul_(1j)
        z.unfold(1, 2, 2)[..., 0].add_(3)
        z.diagonal(1)[1:].zero_()
        z.view(-1)[::3].neg_()
        return torch.view_as_real(z)

    Exported(tmp_path, f, (torch.randn(3, 4),)).agrees((torch.randn(3, 4),))


def test_complex_numbers_beside_reals(tmp_path):
    def f(x, half, wide, z):
        return (z.to(torch.bool), torch.where(x > 0, z, wide[0]), torch.view_as_real(torch.where(x > 0, half, z[0])),
                x.to(torch.bfloat16) + z[0], torch.view_as_real(torch.nan_to_num(z)),
                torch.view_as_real(z.to(torch.complex128).atan()), torch.view_as_real(z.to(torch.complex128).atanh()))

    def given():
        x, inf = torch.randn(4), float("inf")
        z = torch.tensor([1j / 2, 0, complex(inf, 2), complex(1, -inf)])
        return x, torch.randn(4).half(), torch.randn(4).double(), z

    Exported(tmp_path, f, given()).agrees(given())


def test_complex_numbers_in_a_program(tmp_path):
    def f(x):
        z = torch.complex(x, x - 1)
        powers = torch.pow(1j, z), torch.pow(1 - 2j, x), torch.pow(2, z)
        chosen = torch.where(x > 0, z, 1j), torch.where(x > 0, 2 - 1j, z), torch.where(x > 0, x, 1j)
        return [torch.view_as_real(y) for y in (*powers, *chosen)]

    given = (torch.randn(3, 4),)
    Exported(tmp_path, f, given).agrees(given)


def test_negative_numbers_beside_bytes(tmp_path):
    def f(x):
        return (x < -2, x == -2, x >= -1, x // -2, x % -2, torch.fmod(x, -3), torch.clamp(x, -2, 200),
                torch.where(x > 3, x, -2), x + -2, x / -2)

    given = (torch.tensor([0, 1, 7, 200, 253, 254, 255], dtype=torch.uint8),)
    Exported(tmp_path, f, given).agrees(given)


def test_rows_named_by_numbers_of_32_bits(tmp_path):
    def f(x, i):
        return [x.index_reduce(0, i, x[:3], how) for how in ("mean", "amax", "prod")]

    given = torch.randn(4, 5), torch.tensor([2, 0, 2], dtype=torch.int32)
    Exported(tmp_path, f, given).agrees(given)


def test_whether_a_type_fits_another_is_known(tmp_path):
    def f(x):
        return x * 2 if torch.can_cast(x.dtype, torch.int64) else x + 1

    given = (torch.randn(4),)
    Exported(tmp_path, f, given).agrees(given)


def test_which_of_equal_elements_are_on_top(tmp_path):
    def tops(x):
        return [x.topk(k, -1, most, ordered)[1] for k in (1, 4, 20) for most in (True, False)
                for ordered in (True, False)]

    rows = [torch.randint(0, few, (3, n), generator=torch.Generator().manual_seed(n)).float()
            for n in (20, 70, 257, 1400) for few in (2, 9)]
    nan = rows[-1].where(rows[-1] != 3, float("nan"))
    fall = torch.cat((torch.arange(700), torch.arange(700).flip(0))).float().expand(3, -1).contiguous()
    Exported(tmp_path, tops, (rows[3],), ({1: Dim("n", min=20, max=2000)},)).agrees(*((x,) for x in (*rows, nan, fall)))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x, mask, padding):
        y = self.layers(x, mask, padding)
        return y.square().mean(), y


def test_fast_path_of_encoder_layers(tmp_path):
    """A strict export without gradients holds one op for each layer: it gets attention, runs, goes to ONNX, and has
    gradients."""
    model = Encoder().eval().requires_grad_(False)

    def inputs(b, n):
        return torch.randn(b, n, 8), torch.ones(n, n).triu(1).bool(), torch.arange(n).expand(b, n) > n - 2

    batch, length = Dim("batch", min=2), Dim("length", min=3)
    program = torch.export.export(model, inputs(2, 5), strict=True, dynamic_shapes=(
        {0: batch, 1: length}, {0: length, 1: length}, {0: batch, 1: length}))
    fused = torch.ops.aten._transformer_encoder_layer_fwd.default
    assert sum(n.target is fused for n in program.graph.nodes) == 2
    path, onnx = tmp_path / "fused.pt2", tmp_path / "fused.onnx"
    torch.export.save(program, path)
    loaded = qkv.Model(path)
    loaded.save_onnx(onnx)
    joint = qkv.joint(path, loss="output_0", inputs=["x"])
    for given in (inputs(2, 5), inputs(3, 9)):
        fed = [np.array(x) for x in given]
        want = model(*given)
        for m in (loaded, qkv.Model(onnx)):
            for a, b in zip(m.run(fed).values(), want, strict=True):
                torch.testing.assert_close(torch.tensor(np.array(a)), b, rtol=2e-5, atol=2e-5)
        model(given[0].requires_grad_(), *given[1:])[0].backward()
        torch.testing.assert_close(torch.tensor(joint.run(fed)["grad.x"]), given[0].grad, rtol=2e-5, atol=2e-5)
    assert loaded.rewrite()["attentions_fused"] == 2


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_uniform_numbers_to_the_last_bit(tmp_path, dtype):
    x = torch.zeros(3000, dtype=dtype)
    program = torch.export.export(module(lambda x: torch.empty_like(x).uniform_(0.3, 0.7) + x), (x,))
    torch.export.save(program, tmp_path / "m.pt2")
    torch.manual_seed(0)
    assert torch.equal(torch.from_dlpack(qkv.Model(tmp_path / "m.pt2").run_dlpack([x])["output_0"]),
                       program.module()(x))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_uniform_numbers_of_core_ops(tmp_path, dtype):
    """A core file draws what the op draws: the sum is rounded once, in double for both types of 64 bits alone."""
    x, w = torch.zeros(3000, dtype=dtype), torch.nn.Parameter(torch.ones(3000, dtype=dtype))
    m = module(lambda x: (torch.empty_like(x).uniform_(0.3, 0.7) * m.w).float().sum())
    m.w = w
    torch.export.save(torch.export.export(m, (x,)), tmp_path / "m.pt2")
    joint = qkv.Model(tmp_path / "m.pt2").joint(decompose="core")
    joint.save(tmp_path / "core.pt2")
    torch.manual_seed(0)
    want = torch.empty_like(x).uniform_(0.3, 0.7)
    torch.manual_seed(0)
    with torch.no_grad():
        grad = torch.export.load(tmp_path / "core.pt2").module()(x)[-1]
    same = (grad == want).float().mean()
    assert same == 1 if dtype != torch.float64 else torch.allclose(grad, want, rtol=1e-15)


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 5, 7), (2, 1, 40), (4, 9, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_draws_like_a_transposed_tensor(shape, dtype, tmp_path):
    """In the order of its memory; normal ones one pair after the other, unless it is contiguous all the same."""
    x = torch.zeros(shape, dtype=dtype)
    draw = module(lambda x: (torch.randn_like(x.transpose(1, 2)), torch.rand_like(x.permute(2, 0, 1)),
                             torch.randn_like(x.permute(0, 1, 2)), torch.randn_like(x)))
    torch.export.save(torch.export.export(draw, (x,)), tmp_path / "m.pt2")
    torch.manual_seed(0)
    for i, (got, want) in enumerate(zip(qkv.Model(tmp_path / "m.pt2").run_dlpack({"x_0": x}).values(), draw(x))):
        got = torch.from_dlpack(got)
        assert torch.allclose(got.double(), want.double(), rtol=0, atol=1e-6 if dtype != torch.bfloat16 else 0.02), i


def test_uniform_numbers_in_onnx_stay_below_the_end(tmp_path):
    """What a half type would round up to the end is the beginning, as in PyTorch."""
    ort = pytest.importorskip("onnxruntime")
    x = torch.zeros(200000, dtype=torch.float16)
    program = torch.export.export(module(lambda x: (torch.rand_like(x), torch.empty_like(x).uniform_(1, 2))), (x,))
    torch.export.save(program, tmp_path / "m.pt2")
    qkv.Model(tmp_path / "m.pt2").save_onnx(tmp_path / "m.onnx", opset=18)
    session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    unit, between = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert 0 <= unit.min() and unit.max() < 1 and 1 <= between.min() and between.max() < 2


def seen_again(a, b):
    o = torch.empty(3, 4)
    torch.add(a, b, alpha=2, out=o)
    return o * 3, o


def through_a_view(a, b):
    o = torch.zeros(4, 4)
    torch.add(a, b, out=o[:3])
    return o


def overwritten(a, b):
    c = a.clone()
    torch.sub(c, b, out=c)
    return c + 1


OUT = {"seen_again": seen_again, "through_a_view": through_a_view, "overwritten": overwritten,
       "resized": lambda a, b: torch.mul(a, b, out=torch.empty(0)),
       "matmul": lambda a, b: torch.matmul(a, b.t(), out=torch.empty(3, 3)),
       "in_another_dtype": lambda a, b: torch.sum(a, 0, out=torch.empty(4, dtype=torch.float64)),
       "two": lambda a, b: tuple(torch.max(a, 1, out=(torch.empty(3), torch.empty(3, dtype=torch.int64)))),
       "topk": lambda a, b: tuple(torch.topk(a, 2, out=(torch.empty(3, 2), torch.empty(3, 2, dtype=torch.int64)))),
       "scalar": lambda a, b: torch.pow(a.abs() + 1, 2.5, out=torch.empty(3, 4)),
       "mode": lambda a, b: torch.div(a, b, rounding_mode="floor", out=torch.empty(3, 4)),
       "list": lambda a, b: torch.cat([a, b], out=torch.empty(6, 4)),
       "made": lambda a, b: a + torch.arange(4, out=torch.empty(4)),
       "truth": lambda a, b: torch.gt(a, b, out=torch.empty(3, 4, dtype=torch.bool)),
       "composite": lambda a, b: torch.tensordot(a, b, dims=([1], [1]), out=torch.empty(3, 3))}


@pytest.mark.parametrize("f", OUT.values(), ids=OUT)
def test_results_that_are_written_out(f, tmp_path):
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    Exported(tmp_path, f, (a, b)).agrees((a, b), (b, a))


def each(n, most):
    return torch.randint(0, most, (n,) if isinstance(n, int) else n)


sdpa = nn.functional.scaled_dot_product_attention
# a map over a batch: what it does, its inputs, and whether it becomes the same ops with one more axis. Indices are
# those of the ATen op: x[i] of a slice i is `flat_apply` in the graph, which torch.export itself does not write.
MAPS = {
    "index": (lambda x, i: torch.vmap(lambda k: torch.ops.aten.index(x, [k]))(i),
              lambda n: (torch.randn(7, 3), each((n, 2), 7)), True),
    "two_indices": (lambda x, i, j: torch.vmap(lambda a, b: torch.ops.aten.index(x, [a, b]))(i, j),
                    lambda n: (torch.randn(7, 3), each((n, 2), 7), each(n, 3)), True),
    "captured_index": (lambda x, i, j: torch.vmap(lambda a: torch.ops.aten.index(x, [a, j]))(i),
                       lambda n: (torch.randn(7, 3), each(n, 7), each((4, 2), 3)), True),
    "index_and_none": (lambda x, i: torch.vmap(lambda k: torch.ops.aten.index(x, [k, None]))(i),
                       lambda n: (torch.randn(7, 3), each((n, 2), 7)), True),
    "index_of_slices": (lambda x, i: torch.vmap(lambda r: r[i])(x), lambda n: (torch.randn(n, 7, 3), each(4, 7)),
                        True),
    "both": (lambda x, i: torch.vmap(lambda r, k: r[k])(x, i), lambda n: (torch.randn(n, 7, 3), each((n, 4), 7)),
             True),
    "take": (lambda x, i: torch.vmap(lambda k: torch.ops.aten.take(x, k))(i),
             lambda n: (torch.randn(7, 6), each((n, 4), 40)), True),
    "select": (lambda x: torch.vmap(lambda r: r[1:, ::2].sum() + r[..., -1])(x), lambda n: (torch.randn(n, 7, 3),),
               True),
    "softmax": (lambda x: torch.vmap(lambda r: r.softmax(0) + r.log_softmax(-1) * r.cumsum(1))(x),
                lambda n: (torch.randn(n, 4, 6),), True),
    "reductions": (lambda x: torch.vmap(lambda r: r.mean((0, -1), keepdim=True) + r.amax(1) + r.sum(-2) * r.sum())(x),
                   lambda n: (torch.randn(n, 4, 4, 6),), True),
    "products": (lambda x, y, z: torch.vmap(lambda r, s: (r @ y).mT @ (s @ r[0]))(x, z),
                 lambda n: (torch.randn(n, 2, 4, 6), torch.randn(2, 6, 5), torch.randn(n, 4, 4)), True),
    "product_of_vectors": (lambda x, y: torch.vmap(lambda r: r @ y)(x),
                           lambda n: (torch.randn(n, 6), torch.randn(6, 2)), True),
    "linear": (lambda x, w, b: torch.vmap(lambda r: nn.functional.linear(r, w, b).permute(1, 0))(x),
               lambda n: (torch.randn(n, 4, 6), torch.randn(3, 6), torch.randn(3)), True),
    "linear_of_each": (lambda x, w: torch.vmap(lambda r, w: nn.functional.linear(r, w))(x, w),
                       lambda n: (torch.randn(n, 4, 6), torch.randn(n, 3, 6)), False),
    "attention": (lambda x, m: torch.vmap(lambda r, k: sdpa(r, r, r, attn_mask=k))(x, m),
                  lambda n: (torch.randn(n, 2, 5, 4), torch.rand(n, 5, 5) + torch.eye(5) > 0.5), True),
    "attention_mask_for_all": (lambda x, m: torch.vmap(lambda r: sdpa(r, r, r, attn_mask=m, scale=0.7))(x),
                               lambda n: (torch.randn(n, 2, 5, 4), torch.randn(2, 5, 5)), True),
    "attention_of_batches": (lambda x, m: torch.vmap(lambda r, k: sdpa(r, r, r, attn_mask=k))(x, m),
                             lambda n: (torch.randn(n, 3, 2, 5, 4), torch.randn(n, 3, 1, 5, 5)), True),
    "attention_causal": (lambda x: torch.vmap(lambda r: sdpa(r, r, r, is_causal=True))(x),
                         lambda n: (torch.randn(n, 3, 2, 5, 4),), True),
    "attention_one_mask_a_batch": (lambda x, m: torch.vmap(lambda r: sdpa(r, r, r, attn_mask=m))(x),
                                   lambda n: (torch.randn(n, 3, 2, 5, 4), torch.randn(3, 1, 5, 5)), False),
    "attention_of_other_keys": (lambda x, y: torch.vmap(lambda r: sdpa(r, y, y))(x),
                                lambda n: (torch.randn(n, 2, 5, 4), torch.randn(2, 7, 4)), False),
    "gather": (lambda x, i: torch.vmap(lambda r, k: r.gather(0, k))(x, i),
               lambda n: (torch.randn(n, 7), each((n, 4), 7)), False),
    "put": (lambda x, i: torch.vmap(lambda r, k: torch.index_put(r, (k,), torch.ones(4)))(x, i),
            lambda n: (torch.randn(n, 7), each((n, 4), 7)), False),
    "number_of_another_dtype": (lambda x, i: torch.vmap(lambda k: x + k)(i),
                                lambda n: (torch.ones(3, dtype=torch.int8), each(n, 7)), True),
    "ranks": (lambda x, y, z: torch.vmap(lambda r, s: r.reshape(-1, 1) * y + s)(x, z),
              lambda n: (torch.randn(n, 6), torch.randn(2), torch.randn(n)), True),
    "expand": (lambda x, y: torch.vmap(lambda r: r.expand(2, 4, 6) + y[:, None])(x),
               lambda n: (torch.randn(n, 1, 6), torch.randn(4)), True),
    "sizes": (lambda x, y: torch.vmap(lambda r: r.expand(y.shape[0], 6) + y[:, None])(x),
              lambda n: (torch.randn(n, 6), torch.randn(n + 1)), True),
    "rank_16": (lambda x, y: torch.vmap(lambda r: (r + y).reshape(2))(x),
                lambda n: (torch.randn(n), torch.randn(*[1] * 15, 2)), False),
    "words": (lambda x: torch.vmap(lambda r: torch.div(r, 0.3, rounding_mode="floor"))(x),
              lambda n: (torch.randn(n, 6),), True),
    "same_for_all": (lambda x, y: torch.vmap(lambda r: (r + 1, y * 2))(x),
                     lambda n: (torch.randn(n, 3), torch.randn(2)), True),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps_over_a_batch(name, tmp_path):
    f, inputs, batched = MAPS[name]
    first, dims = inputs(5), []
    for a, b in zip(first, inputs(6)):
        dims.append({d: Dim.AUTO for d in range(a.ndim) if a.shape[d] != b.shape[d]})
    e = Exported(tmp_path, f, first, tuple(dims))
    assert ("qkv.loop" not in e.models[1].graph_text()) == batched
    fixed = "take", "gather", "attention_of_batches", "attention_causal", "attention_one_mask_a_batch"   # by torch
    e.agrees(*[inputs(n) for n in ((5,) if name in fixed else (5, 3, 2))])


class Modulated(nn.Module):
    """StyleGAN's layer: each sample has weights of its own, and all samples are the groups of one convolution."""

    def __init__(self, axes, transposed, steps):
        super().__init__()
        self.f = getattr(nn.functional, f"conv{'_transpose' * transposed}{axes}d")
        self.w = nn.Parameter(torch.randn(*((3, 4) if transposed else (4, 3)), *(3, 2)[:axes]))
        self.b, self.axes, self.steps = nn.Parameter(torch.randn(4)), axes, steps

    def forward(self, x, style):
        b, c = x.shape[:2]
        w = self.w * style.view(b, *([1] * (self.axes + 2)))
        y = self.f(x.reshape(1, b * c, *x.shape[2:]), w.flatten(0, 1), self.b.repeat(b), groups=b, **self.steps)
        return y.view(b, 4, *y.shape[2:])


@pytest.mark.parametrize("axes, transposed, steps", [
    (2, False, dict(padding=(1, 0))), (2, False, dict(stride=(2, 1), dilation=(1, 2))), (1, False, dict(padding=1)),
    (2, True, dict(stride=2, output_padding=1)), (2, True, dict(padding=(1, 0), dilation=(2, 1))),
    (1, True, dict(stride=3))])
def test_groups_are_the_batch(axes, transposed, steps, tmp_path):
    def inputs(b, *size):
        return torch.randn(b, 3, *size[:axes]), torch.rand(b) + 0.5

    b, sizes = Dim("b", max=8), {2 + k: Dim("hw"[k], min=5, max=32) for k in range(axes)}
    m = Exported(tmp_path, Modulated(axes, transposed, steps), inputs(2, 6, 7), [{0: b, **sizes}, {0: b}])
    m.agrees(inputs(2, 6, 7), inputs(3, 5, 9), inputs(1, 8, 6))


def test_as_many_channels_to_normalize_as_a_size_says(tmp_path):
    def f(x, w):
        return nn.functional.instance_norm(x), nn.functional.instance_norm(x[:, :, None], weight=w, bias=w + 1)

    b, c, n = Dim("b", max=8), Dim("c", min=2, max=8), Dim("n", min=3, max=32)
    m = Exported(tmp_path, f, (torch.randn(2, 3, 7), torch.rand(3)), [{0: b, 1: c, 2: n}, {0: c}])
    m.agrees((torch.randn(2, 3, 7), torch.rand(3)), (torch.randn(3, 5, 4), torch.rand(5)))


class Codec(nn.Module):
    """Padding that a codec works out in tensors, of a number of samples that is fixed: sizes are known, not data."""

    def __init__(self, counts=False):
        super().__init__()
        self.conv, self.counts = nn.ModuleList(nn.Conv1d(4, 4, k, s) for k, s in ((7, 1), (8, 3), (5, 2))), counts
        for i, c in enumerate(self.conv):
            self.register_buffer(f"step{i}", torch.tensor(c.stride[0]), persistent=False)
            self.register_buffer(f"kernel{i}", torch.tensor(c.kernel_size[0]), persistent=False)

    def forward(self, x):
        for i, c in enumerate(self.conv):
            step, kernel = getattr(self, f"step{i}"), getattr(self, f"kernel{i}")
            frames = torch.ceil((x.shape[-1] - step) / step + 1).to(torch.int64) - 1
            more = frames * step + step - x.shape[-1]
            x = c(nn.functional.pad(x, (c.kernel_size[0] - c.stride[0], more))).exp()
        if self.counts:
            self.step0.add_(1)
        return x


@pytest.mark.parametrize("counts", (False, True))
def test_sizes_that_constants_decide(tmp_path, counts):
    e = Exported(tmp_path, Codec(counts), (torch.randn(2, 4, 31),), ({0: Dim.AUTO},))
    text = e.models[1].graph_text()
    assert ("4, 6] = aten.exp" in text) != counts, text
    if not counts:
        e.agrees((torch.randn(3, 4, 31),))


class Shared(nn.Module):
    """One weight, whose products are shifted by different numbers."""

    def __init__(self):
        super().__init__()
        self.linear, self.t = nn.Linear(4, 6, bias=False), nn.Parameter(torch.randn(6))

    def forward(self, x, y):
        return ((self.linear(x) + 1).sin(), (self.linear(y) + 2).sin(), (self.linear(x) - 1).cos(),
                (self.linear(y) - self.t).sin(), (self.linear(x * 2) + self.t * 1.5).sin())


def test_shifts_of_products_that_share_a_weight(tmp_path):
    inputs = torch.randn(3, 4), torch.randn(5, 4)
    Exported(tmp_path, Shared(), inputs).agrees(inputs)


def test_transposed_tensors_are_converted(tmp_path):
    """Tile by tile: sizes around a tile's edges, axes in front, one row, and types of every width."""
    def f(x, y, i):
        return (x.transpose(1, 2).double().contiguous(), x.permute(0, 3, 1, 2).float().contiguous() * 1,
                x.permute(1, 3, 2, 0).to(torch.float16).contiguous(), y.t().to(torch.int32).contiguous(),
                i.t().float().contiguous(), i.t().bool().contiguous(), y[:, :1].t().double())
    exported = Exported(tmp_path, f, (torch.randn(2, 65, 70, 3, dtype=torch.float64), torch.randn(64, 129) * 50,
                                      torch.randint(-3, 4, (130, 63))))
    exported.agrees((torch.randn(2, 65, 70, 3, dtype=torch.float64), torch.randn(64, 129) * 50,
                     torch.randint(-3, 4, (130, 63))))


def test_pieces_that_are_joined(tmp_path):
    """Of one element and more, of every size, contiguous or not, more than a thread takes at once."""
    def f(x, y):
        return (torch.cat([x[..., None], x[..., None] * 2], -1), torch.cat([x, y[:, :3], x], -1),
                torch.cat([y.t(), y.t()], 1), torch.stack([x.bool(), y[:, :2] > 0], 2),
                torch.cat([x.half()[..., None], y[:, :2].half()[..., None]], -1),
                torch.cat([x.double()[:, :1], y.double()[:, 1:2]], -1))
    exported = Exported(tmp_path, f, (torch.randn(9000, 2), torch.randn(9000, 5)))
    exported.agrees((torch.randn(9000, 2), torch.randn(9000, 5)))


class Inverse(nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x)


def test_decomposed_checks(tmp_path):
    """run_decompositions() checks in a node of its own, which is the factorization's here."""
    a = torch.ones(2, 2)
    program = torch.export.export(Inverse(), (a,)).run_decompositions()
    assert any("with_effects" in str(n.target) for n in program.graph.nodes)
    torch.export.save(program, tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    assert torch.equal(torch.from_dlpack(model.run_dlpack([torch.diag(2 * a[0])])["output_0"]), torch.diag(a[0] / 2))
    with pytest.raises(qkv.Error, match="singular"):
        model.run_dlpack([a])


class Writes(nn.Module):
    """Within a vmap, to what all of its batch share: before or after a slice meets it, or to what is made there."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def forward(self, x, w):
        w = w.clone()
        if self.where == "before":
            return torch.vmap(lambda r: (w.add_(1), r * w)[1])(x), w
        if self.where == "after":
            return torch.vmap(lambda r: (r[1:] * w[1:], w.view(-1)[2:].add_(1))[0])(x), w
        return torch.vmap(lambda r: r * w + torch.zeros(4).index_fill_(0, torch.tensor([1]), 3))(x), w


@pytest.mark.parametrize("where", ["before", "after", "own"])
def test_writes_in_a_map(where, tmp_path):
    x, w = torch.randn(3, 4), torch.randn(4)
    torch.export.save(torch.export.export(Writes(where), (x, w)), tmp_path / "m.pt2")
    if where == "after":
        with pytest.raises(qkv.Error, match="is written to after it was read"):
            qkv.Model(tmp_path / "m.pt2")
        return
    for got, want in zip(qkv.Model(tmp_path / "m.pt2").run_dlpack([x, w]).values(), Writes(where)(x, w)):
        torch.testing.assert_close(torch.from_dlpack(got), want)


def test_a_decomposed_map_divides_by_a_number(tmp_path):
    """torch writes _to_copy(30, dtype=float32)."""
    class Capped(nn.Module):
        def forward(self, x):
            return torch.vmap(torch.vmap(lambda r: 30 * torch.tanh(r / 30)))(x)

    x = torch.randn(3, 4)
    program = torch.export.export(Capped(), (x,)).run_decompositions()
    assert any(n.target == torch.ops.aten._to_copy.default and n.args[0] == 30 for n in program.graph.nodes)
    torch.export.save(program, tmp_path / "m.pt2")
    got = torch.from_dlpack(qkv.Model(tmp_path / "m.pt2").run_dlpack([x])["output_0"])
    torch.testing.assert_close(got, Capped()(x))


REFUSED = {  # torch.export takes them, and eager does not
    "complex of two dtypes": (torch.complex, (torch.ones(3), torch.ones(3, dtype=torch.float64))),
    "mask of bytes": (torch.masked_scatter, (torch.ones(3), torch.ones(3, dtype=torch.uint8), torch.ones(3))),
    "no class": (torch.nn.functional.multi_margin_loss, (torch.ones(2, 3), torch.tensor([0, -1]))),
    "draws of integers": (lambda p: torch.multinomial(p, 2), (torch.ones(3, dtype=torch.int64),)),
    "no draws": (lambda p: torch.multinomial(p, 0), (torch.ones(3),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_eager_does(name, tmp_path):
    f, inputs = REFUSED[name]
    program = torch.export.export(module(f), inputs)
    torch.export.save(program, tmp_path / "m.pt2")
    with pytest.raises(RuntimeError):
        program.module()(*inputs)
    with pytest.raises(qkv.Error):
        qkv.Model(tmp_path / "m.pt2").run([x.numpy() for x in inputs])


def test_draft_export(tmp_path):
    """What torch.export refuses, here a choice by a size that data gives, draft_export writes with its assumptions as
    assertions: the file runs like its program, and refuses what the assumption excludes."""
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(4, 12)

        def forward(self, x, n):
            kept = x[:, :n.item()]
            if kept.shape[1] > 2:
                kept = kept + 1
            q, k, v = self.q(kept).chunk(3, -1)
            return torch.softmax(q @ k.mT / 2, -1) @ v

    torch.manual_seed(0)
    inputs = lambda n: (torch.randn(2, 7, 4), torch.tensor(n))
    program = torch.export.draft_export(Chosen(), inputs(4))
    assert program._report.failures
    torch.export.save(program, tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    model.rewrite(prove=True)
    model.save(tmp_path / "r.pt2")
    for n in (4, 3, 6):
        args = inputs(n)
        want = program.module()(*args).detach()
        for m in (model, qkv.Model(tmp_path / "r.pt2")):
            torch.testing.assert_close(torch.from_numpy(m.run([x.numpy() for x in args])["output_0"]), want)
    with pytest.raises(RuntimeError):
        program.module()(*inputs(2))
    with pytest.raises(qkv.Error, match="assert|expected|allowed"):
        model.run([x.numpy() for x in inputs(2)])


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
                                   torch.float8_e5m2fnuz, torch.float8_e8m0fnu])
def test_tensors_of_eight_bit_floats(dtype, tmp_path):
    """torch's own, given and taken by DLPack."""
    x = (2.0 ** torch.randint(-3, 4, (3, 5))).to(dtype)
    torch.export.save(torch.export.export(module(lambda x: (x, x.float() * 2)), (x,)), tmp_path / "m.pt2")
    same, twice = (torch.from_dlpack(y) for y in qkv.Model(tmp_path / "m.pt2").run_dlpack([x]).values())
    assert same.dtype == dtype and torch.equal(same.view(torch.uint8), x.view(torch.uint8))
    assert torch.equal(twice, x.float() * 2)
