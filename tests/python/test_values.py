"""Values of inputs that PyTorch's kernels refuse: the run here refuses them, and so does PyTorch what is written."""
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402
F = nn.functional

INF, NAN = float("inf"), float("nan")
TABLE = torch.arange(20.0).reshape(5, 4)


class Calls(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *x):
        return self.f(*x)


def bags(mode, last=False):
    return lambda i, o: F.embedding_bag(i, TABLE, o, mode=mode, include_last_offset=last)


def square(x):
    return torch.full((3, 3), x)


def near(x):
    return torch.eye(3) + x


CASES = {  # valid inputs, then what is refused
    "one_hot": (lambda i: F.one_hot(i.reshape(1, 3), 4), [([0, 3, 2],), ([-1, 3, 2],), ([0, 4, 2],)]),
    "bag": (bags("sum"), [([1, 2, 4], [0, 2, 2]), ([1, 2, 4], [1, 2, 2]), ([1, 2, 4], [0, 1, 4]),
                          ([1, 2, 4], [0, -1, 2]), ([1, 2, 4], [0, 5, 3]), ([1, 2, 5], [0, 2, 2])]),
    "bag_mean": (bags("mean"), [([1, 2, 4], [0, 2, 3]), ([1, 2, 4], [1, 2, 2]), ([1, 2, 4], [0, 1, 4])]),
    "bag_max_last": (bags("max", True), [([1, 2, 4], [0, 2, 3]), ([1, 2, 4], [1, 2, 3]), ([1, 2, 4], [0, 1, 4])]),
    "segments": (lambda n: torch.segment_reduce(TABLE, "sum", lengths=n, axis=0),
                 [([2, 3],), ([2, 4],), ([2, 2],), ([-1, 6],)]),
    "segments_from": (lambda n: torch.segment_reduce(TABLE, "max", offsets=n, axis=0), [([0, 2, 5],), ([0, 3, 2],)]),
    "labels": (lambda t: F.multilabel_margin_loss(TABLE[:1], t.reshape(1, 4)),
               [([0, 1, -1, 0],), ([0, -2, -1, 0],), ([0, -1, -2, 0],), ([0, 1, -1, 4],)]),
    "histogram": (lambda x: torch.histogram(x, 4)[0], [([1.0, 2],), ([NAN, 2.0],), ([1.0, INF],)]),
    "histc": (lambda x: torch.histc(x, 4), [([1.0, 2],), ([NAN, 2.0],), ([1.0, INF],)]),
    "binary_cross_entropy": (F.binary_cross_entropy,
                             [([0.0, 0.5, 1.0], [1.0, 0.25, 0.0]), ([0.0, 0.5, 1.1], [1.0, 0.25, 0.0]),
                              ([-0.1, 0.5, 1.0], [1.0, 0.25, 0.0]), ([0.0, NAN, 1.0], [1.0, 0.25, 0.0]),
                              ([0.0, 0.5, 1.0], [1.5, 0.25, 0.0]), ([0.0, 0.5, 1.0], [1.0, 0.25, NAN])]),
    "binary_cross_entropy_half": (lambda p, t: F.binary_cross_entropy(p.bfloat16(), t.bfloat16()).float(),
                                  [([0.25, 1.0], [1.0, 0.0]), ([0.25, 1.1], [1.0, 0.0]), ([0.25, 1.0], [-1.0, 0.0])]),
    "quantile": (lambda q: torch.quantile(TABLE[:3, 0], q),
                 [([0.0, 1],), ([-0.1, 1.0],), ([0.0, 1.1],), ([NAN, 0.5],)]),
    "nanquantile": (lambda q: torch.nanquantile(TABLE, q, dim=0), [([0.5],), ([-0.1],), ([1.1],)]),
    "eigh": (lambda a: torch.linalg.eigh(a)[0], [(near(0.1),), (square(NAN),), (square(INF),)]),
    "svd": (lambda a: (lambda u, s, vh: u @ torch.diag(s) @ vh)(*torch.linalg.svd(a)),
            [(near(0.1),), (square(NAN),), (square(INF),)]),
    "singular_values": (torch.linalg.svdvals, [(near(0.1),), (square(NAN),)]),
    "inverse_of_factor": (torch.cholesky_inverse, [(torch.eye(3),), (square(0.0),)]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_that_are_refused(name, tmp_path):
    f, given = CASES[name]
    valid, *others = [tuple(torch.as_tensor(x) for x in inputs) for inputs in given]
    program = torch.export.export(Calls(f), valid)
    torch.export.save(program, tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    model.save(tmp_path / "written.pt2")
    written = torch.export.load(tmp_path / "written.pt2").module()
    want = program.module()(*valid)
    torch.testing.assert_close(torch.from_dlpack(model.run_dlpack(list(valid))["output_0"]), want)
    torch.testing.assert_close(written(*valid), want)
    for inputs in others:
        for run in (program.module(), written):
            with pytest.raises((RuntimeError, IndexError)):
                run(*inputs)
        with pytest.raises(qkv.Error):
            model.run_dlpack(list(inputs))


VALID = {  # infinite and singular matrices that PyTorch takes
    "singular_values": (torch.linalg.svdvals, near(INF)),
    "lu": (lambda a: torch.linalg.lu(a)[2], square(0.0)),
    "lu_factor_ex": (lambda a: torch.linalg.lu_factor_ex(a)[0], square(0.0)),
}


@pytest.mark.parametrize("name", VALID)
def test_matrices_without_an_inverse(name, tmp_path):
    f, a = VALID[name]
    torch.export.save(torch.export.export(Calls(f), (a,)), tmp_path / "m.pt2")
    got = qkv.Model(tmp_path / "m.pt2").run_dlpack([a])["output_0"]
    torch.testing.assert_close(torch.from_dlpack(got), f(a), equal_nan=True)
