"""Random numbers that nothing reads are drawn all the same: what is drawn after them is what PyTorch draws. What
PyTorch does not draw by is refused."""
import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
import qkv  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def count(x):
    torch.rand(7)
    n = torch.randint(1, 5, (1,)).item()
    torch._check(n >= 1)
    torch._check(n <= 4)
    return torch.arange(n) + torch.rand(1)


def attention(x):
    F.scaled_dot_product_attention(x.view(1, 1, 2, 2), x.view(1, 1, 2, 2), x.view(1, 1, 2, 2), dropout_p=0.5)
    return x + torch.rand(4)


CASES = {
    "tensors": lambda x: (torch.rand(3), x + torch.rand(4), torch.randn_like(x), x + torch.rand(4))[1::2],
    "integers": lambda x: (torch.bernoulli(torch.full((3,), 0.5)), torch.randint(0, 9, (2,)), torch.randperm(5),
                           torch.multinomial(torch.ones(4), 2), x + torch.rand(4))[-1],
    "counts": lambda x: (torch.poisson(torch.full((3,), 2.5)), torch.poisson(torch.full((3,), 25.0)),
                         torch.binomial(torch.full((3, 1), 9.0), torch.full((4,), 0.25)), x + torch.rand(4))[-1],
    "written": lambda x: (torch.empty(4).uniform_(), torch.empty(3).normal_(), torch.empty(3).exponential_(),
                          x + torch.rand(4))[-1],
    "layers": lambda x: (F.dropout(x, 0.5, True), F.rrelu(x, training=True), F.gumbel_softmax(x),
                         x + torch.rand(4))[-1],
    "attention": attention,
    "a size": count,
}


class Calls(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


class Both(nn.Module):
    def __init__(self, f=torch.binomial):
        super().__init__()
        self.f = f

    def forward(self, n, p):
        return self.f(n, p)


@pytest.mark.parametrize("name", CASES)
def test_draws_that_nothing_reads(name, tmp_path):
    x = torch.arange(4.0)
    torch.export.save(torch.export.export(Calls(CASES[name]), (x,)), tmp_path / "m.pt2")
    torch.manual_seed(7)
    want = torch.utils._pytree.tree_leaves(CASES[name](x))
    model = qkv.Model(tmp_path / "m.pt2")
    model.rewrite()
    model.save(tmp_path / "saved.pt2")
    for m in (qkv.Model(tmp_path / "m.pt2"), model, qkv.Model(tmp_path / "saved.pt2")):
        with m.session() as s:
            s.seed(7)
            given = s.run({m.inputs[0]: x.numpy()} if m.inputs else {})
        assert all(np.array_equal(a, b.numpy()) for a, b in zip(given.values(), want, strict=True))
    torch.manual_seed(7)
    again = torch.utils._pytree.tree_leaves(torch.export.load(tmp_path / "saved.pt2").module()(x))
    assert all(torch.equal(a, b) for a, b in zip(again, want, strict=True))


INF, NAN = float("inf"), float("nan")


def weights(n, again):
    return lambda p: torch.multinomial(p, n, replacement=again)


REFUSED = {  # what is drawn by: valid, then what PyTorch refuses
    "multinomial": (weights(2, False), [[1.0, 2, 3], [1.0, -1, 1], [1.0, INF, 1], [1.0, NAN, 1], [0.0, 0, 0]]),
    "multinomial_one": (weights(1, False), [[1.0, 2, 3], [1.0, -1, 1], [0.0, 0, 0]]),
    "multinomial_again": (weights(2, True), [[1.0, 2, 3], [1.0, -1, 1], [1.0, INF, 1], [0.0, 0, 0]]),
    "poisson": (torch.poisson, [[0.0, 3, 30], [-1.0, 3, 30], [0.0, NAN, 30]]),
    "multinomial_rows": (lambda p: torch.multinomial(p.reshape(2, 2), 1), [[1.0, 2, 3, 0], [1.0, 1, 0, 0]]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_drawn_by(name, tmp_path):
    f, (valid, *others) = REFUSED[name]

    path = str(tmp_path / "draw.pt2")
    program = torch.export.export(Calls(f), (torch.tensor(valid),))
    torch.export.save(program, path)
    torch.manual_seed(7)
    want = program.module()(torch.tensor(valid))
    with qkv.Model(path).session() as s:
        s.seed(7)
        assert np.array_equal(s.run([np.array(valid, "f4")])["output_0"], want.numpy())
        for other in others:
            with pytest.raises(RuntimeError):
                program.module()(torch.tensor(other))
            with pytest.raises(qkv.Error):
                s.run([np.array(other, "f4")])


def test_counts_that_are_nan(tmp_path):
    """PyTorch's loop does not end on them."""
    n, p = torch.tensor([3.0, 40.0]), torch.tensor([0.25, 0.5])
    program = torch.export.export(Both(), (n, p))
    torch.export.save(program, tmp_path / "m.pt2")
    torch.manual_seed(7)
    want = program.module()(n, p)
    with qkv.Model(tmp_path / "m.pt2").session() as s:
        s.seed(7)
        assert np.array_equal(s.run([n.numpy(), p.numpy()])["output_0"], want.numpy())
        with pytest.raises(qkv.Error, match="a count that is NaN"):
            s.run([np.array([NAN, 40], "f4"), p.numpy()])


@pytest.mark.parametrize("f", [F.binary_cross_entropy, lambda x, y: torch.poisson(x) + y])
def test_random_inputs_are_values_that_run(f, tmp_path):
    x = torch.rand(40)
    torch.export.save(torch.export.export(Both(f), (x, x)), tmp_path / "m.pt2")
    assert qkv.Model(tmp_path / "m.pt2").bench(runs=1, warmup=0)["runs"] == 1
