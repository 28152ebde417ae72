"""Gradients where a function has a kink, and of NaN: PyTorch's choice of a side is ours."""
import itertools

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
import qkv  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

NAN = float("nan")
KINKS = {
    "hardtanh": F.hardtanh, "hardtanh of other bounds": lambda x: F.hardtanh(x, -2.0, 0.5), "relu6": F.relu6,
    "in place": lambda x: F.hardtanh(x * 1, inplace=True), "clamp": lambda x: x.clamp(-1, 1), "relu": F.relu,
    "threshold": lambda x: F.threshold(x, 1.0, 5.0), "hardshrink": lambda x: F.hardshrink(x, 1.0),
    "softshrink": lambda x: F.softshrink(x, 1.0), "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu, "elu": F.elu, "maximum": lambda x: torch.maximum(x, torch.ones_like(x)),
    "minimum": lambda x: torch.minimum(x, torch.ones_like(x)),
    "nextafter": lambda x: torch.nextafter(x, torch.ones_like(x)),
    "nextafter to": lambda x: torch.nextafter(torch.ones_like(x), x)}
X = [-3.0, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0, 7.0]


class Call(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


class Sum(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        y = self.f(x)
        y = y if y.dtype == torch.float64 else y.float()
        return (y * torch.arange(1.0, 1 + y.numel()).reshape(y.shape)).sum()


def gradients(f, x, folder):
    """PyTorch's and ours."""
    torch.export.save(torch.export.export(Sum(f), (x.detach(),)), folder / "m.pt2")
    want, = torch.autograd.grad(Sum(f)(x), x)
    joint = qkv.joint(folder / "m.pt2", inputs="*")
    return want, torch.from_dlpack(list(joint.run_dlpack({joint.inputs[0]: x.detach()}).values())[-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", KINKS)
def test_kinks(name, dtype, tmp_path):
    x = torch.tensor(X + [NAN], dtype=dtype, requires_grad=True)
    want, given = gradients(KINKS[name], x, tmp_path)
    assert given.dtype == dtype
    torch.testing.assert_close(given, want, equal_nan=True)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (-1.0, None), (None, 1.0)])
def test_bounds_that_are_tensors(bounds, tmp_path):
    x = torch.tensor(X, requires_grad=True)
    want, given = gradients(lambda x: x.clamp(*(b if b is None else torch.tensor(b) for b in bounds)), x, tmp_path)
    assert np.array_equal(given, want)


@pytest.mark.parametrize("x", [[NAN, 2.0, 2.0], [NAN, NAN, 1.0], [1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
@pytest.mark.parametrize("f", [torch.max, torch.min, torch.median, torch.nanmedian, lambda x: x.amax(0),
                               lambda x: x.amin(0, True), lambda x: x.max(0)[0], lambda x: x.median(0)[0],
                               torch.amax, lambda x: torch.add(*torch.aminmax(x))])
def test_extremes_of_ties_and_nan(f, x, tmp_path):
    want, given = gradients(f, torch.tensor(x, requires_grad=True), tmp_path)
    torch.testing.assert_close(given, want, equal_nan=True)


@pytest.mark.parametrize("grad", [NAN, float("inf")])
@pytest.mark.parametrize("f", [torch.max, torch.min, torch.median, torch.nanmedian, lambda x: x.amax(0)])
def test_extremes_whose_gradient_is_not_finite(f, grad, tmp_path):
    """Of max() the other elements have 0, of amax NaN."""
    want, given = gradients(lambda x: f(x) * grad, torch.tensor([1.0, 3.0, 3.0], requires_grad=True), tmp_path)
    torch.testing.assert_close(given, want, equal_nan=True)


@pytest.mark.parametrize("x", [[0.0, 3.0, -4.0], [-0.0, 0.0, 0.0], [NAN, 0.0, 1.0], [float("inf"), 0.0, 1.0]])
@pytest.mark.parametrize("p", [0.5, 0.9, 1, 1.5, 2, 3, float("inf"), -1])
def test_norms_of_zeros(p, x, tmp_path):
    """Of p < 1 the slope at 0 has no bound; PyTorch takes 0."""
    want, given = gradients(lambda x: torch.linalg.vector_norm(x, p), torch.tensor(x, requires_grad=True), tmp_path)
    torch.testing.assert_close(given, want, equal_nan=True)


def test_hypot_of_zeros(tmp_path):
    x = torch.tensor([0.0, -0.0, 3.0, NAN, float("inf")], requires_grad=True)
    want, given = gradients(lambda x: torch.hypot(x, torch.tensor([0.0, 0.0, 4.0, 1.0, 0.0])), x, tmp_path)
    torch.testing.assert_close(given, want, equal_nan=True)


@pytest.mark.parametrize("target", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cross_entropy_of_certainties(dtype, target, tmp_path):
    """The slope of log has no bound at 0; that of the loss has."""
    x = torch.tensor([0.0, 1.0, 0.5, 1e-20, 1 - 1e-6], dtype=dtype, requires_grad=True)
    want, given = gradients(lambda x: F.binary_cross_entropy(x, torch.full_like(x, target), reduction="none"), x,
                            tmp_path)
    torch.testing.assert_close(given, want)


@pytest.mark.parametrize("f", [torch.abs, torch.sgn, lambda z: z ** 2.5, lambda z: torch.linalg.vector_norm(z),
                               lambda z: torch.exp(z) * z.abs()])
def test_complex_zero(f, tmp_path):
    """That of abs is 0 there, in a file that we write, too; of hypot it is NaN."""
    def g(x):
        y = f(torch.complex(x, x.flip(0) * x))
        return y.real + 2 * y.imag if y.is_complex() else y
    x = torch.tensor([0.0, 3.0, -4.0, 0.0], dtype=torch.float64, requires_grad=True)
    want, given = gradients(g, x, tmp_path)
    torch.testing.assert_close(given, want)
    qkv.Model(tmp_path / "m.pt2").save(tmp_path / "again.pt2")
    again, = torch.autograd.grad(torch.export.load(tmp_path / "again.pt2").module()(x), x)
    torch.testing.assert_close(again, want)


@pytest.mark.parametrize("p", [1, 2])
def test_margins_at_their_kink(p, tmp_path):
    x = torch.tensor([[1.0, 2.0, 1.0], [3.0, 1.0, 0.0]], requires_grad=True)
    want, given = gradients(lambda x: F.multi_margin_loss(x, torch.tensor([1, 0]), p, reduction="sum"), x, tmp_path)
    assert torch.equal(given, want)
    labels = torch.tensor([[1, 2, -1], [0, -1, 1]])
    want, given = gradients(lambda x: F.multilabel_margin_loss(x, labels, reduction="sum"), x, tmp_path)
    torch.testing.assert_close(given, want)


@pytest.mark.parametrize("f", [lambda x: torch.pow(0.0, x), lambda x: torch.linalg.det(x.reshape(2, 2) * 1),
                               lambda x: torch.linalg.det(torch.stack([x, x, x + 1]).reshape(3, 2, 2)).sum()])
@pytest.mark.parametrize("x", [[1.0, 2.0, 2.0, 4.0], [0.0, 0.0, 0.0, 0.0], [0.0, -1.0, 2.0, 0.5]])
def test_powers_and_determinants_of_zero(f, x, tmp_path):
    x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    want, given = gradients(lambda x: f(x) + x * 0, x, tmp_path)
    torch.testing.assert_close(given, want, equal_nan=True)


INF = float("inf")


@pytest.mark.parametrize("f", [torch.prod, lambda x: x.prod(0), lambda x: x.prod(-1, True),
                               lambda x: x.reshape(2, 3).prod(), lambda x: x.reshape(2, 3).prod(1),
                               lambda x: x.reshape(2, 3).prod(0, True), lambda x: x.cumprod(0),
                               lambda x: x.reshape(2, 3).cumprod(1), lambda x: x.reshape(3, 1, 2).cumprod(1)])
@pytest.mark.parametrize("x", [[1.0, 2.0, 3.0, -4.0, 5.0, 0.5], [0.0, 2.0, 3.0, 1.0, 2.0, 3.0],
                               [1.0, 0.0, 3.0, 0.0, 2.0, -0.0], [2.0, INF, 1.0, 3.0, NAN, 2.0],
                               [2.0, INF, 0.0, 3.0, NAN, 2.0], [0.0, INF, 0.0, 3.0, 0.0, NAN],
                               [1e200, 1e200, 2.0, 1e-200, 1e200, 0.5]])
def test_products_of_zeros_and_infinities(f, x, tmp_path):
    x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    want, given = gradients(f, x, tmp_path)
    torch.testing.assert_close(given, want, equal_nan=True)


@pytest.mark.parametrize("eps", [None, 0.0, 0.25, 1e-6, 0.75])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logit_at_its_bounds(dtype, eps, tmp_path):
    x = torch.tensor([0.0, 1.0, 0.5, 0.25, 0.75, -0.5, 1.5, 1e-7, NAN], dtype=dtype, requires_grad=True)
    want, given = gradients(lambda x: torch.logit(x, eps), x, tmp_path)
    torch.testing.assert_close(given, want, equal_nan=True)


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("x", [[[1.0, 2.0], [1.0, 3.0], [1.0, 3.0], [0.0, -1.0]],
                               [[NAN, 2.0], [1.0, NAN], [3.0, 3.0], [-INF, INF]]])
def test_bags_of_equal_rows(x, padding, tmp_path):
    """The first of the largest rows has all of the gradient; a NaN counts where its bag begins with it."""
    index, start = torch.tensor([0, 1, 2, 3, 1, 0, 2, 2, 3, 3]), torch.tensor([0, 3, 6, 6, 8])

    def bags(x):
        return F.embedding_bag(index, x, start, mode="max", padding_idx=padding)
    x = torch.tensor(x, requires_grad=True)
    want, given = gradients(bags, x, tmp_path)
    torch.testing.assert_close(given, want, equal_nan=True)
    torch.export.save(torch.export.export(Call(bags), (x.detach(),)), tmp_path / "bags.pt2")
    model = qkv.Model(tmp_path / "bags.pt2")
    model.save(tmp_path / "again.pt2")
    for path in ("bags.pt2", "again.pt2"):
        y, = qkv.Model(tmp_path / path).run_dlpack([x.detach()]).values()
        torch.testing.assert_close(torch.from_dlpack(y), bags(x.detach()), equal_nan=True)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-9, 0.0, INF])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cosines_of_short_vectors(dtype, scale, tmp_path):
    """Below eps the gradient of the norm is there, though the norm is not."""
    x = (torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=dtype) * scale).requires_grad_()
    want, given = gradients(lambda x: F.cosine_similarity(x.reshape(2, 2), torch.tensor([[0.5, 1.0]], dtype=dtype),
                                                          eps=1e-2), x, tmp_path)
    torch.testing.assert_close(given, want, equal_nan=True)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_gradients_of_bounds(which, tmp_path):
    """Of a bound that equals the other one there is none."""
    every = itertools.product([-1.0, 0.0, 1.0, 2.0] + [NAN], repeat=3)
    three = [torch.tensor(x) for x in zip(*every)]

    def f(x):
        given = [x if k == which else y for k, y in enumerate(three)]
        return torch.clamp(*given)
    want, given = gradients(f, three[which].clone().requires_grad_(), tmp_path)
    assert torch.equal(given, want)


@pytest.mark.parametrize("f", [torch.prod, lambda x: x.reshape(2, 3).prod(1), torch.logit, torch.std,
                               lambda x: x.norm(1.5), lambda x: x.norm(), lambda x: x.reshape(2, 3).norm(3, 1),
                               lambda x: torch.dist(x, x), lambda x: torch.nextafter(x, x.abs())])
@pytest.mark.parametrize("x", [[0.0, -0.0, 0.0, 0.0, 0.0, 0.0], [0.5, 0.0, 2.0, -1.0, 0.25, 1.0],
                               [0.5, 0.0, 0.0, 1.5, 0.25, 1.0]])
def test_forward_derivatives(f, x, tmp_path):
    """What the gradient leaves out is not infinite or NaN: a forward derivative is multiplied by 0 there."""
    class Tangent(nn.Module):
        def forward(self, x, t):
            return torch.func.jvp(f, (x,), (t,))[1]
    given = torch.tensor(x, dtype=torch.float64), torch.arange(1.0, 7, dtype=torch.float64)
    torch.export.save(torch.export.export(Tangent(), given), tmp_path / "m.pt2")
    got = qkv.Model(tmp_path / "m.pt2").run_dlpack(list(given))["output_0"]
    torch.testing.assert_close(torch.from_dlpack(got), Tangent()(*given), equal_nan=True)
