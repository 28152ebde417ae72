"""Activations whose numbers a run computes: as PyTorch, here and in ONNX."""
import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
import qkv  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

X = [-3.0, -1.0, -0.75, -0.0, 0.0, 0.3, 0.75, 2.0, 7.0, float("nan"), float("inf"), -float("inf")]
CASES = {
    "leaky_relu": lambda x, s: F.leaky_relu(x, s.item()), "elu": lambda x, s: F.elu(x, s.item()),
    "celu": lambda x, s: F.celu(x, s.item()), "threshold": lambda x, s: F.threshold(x, s.item(), -1.0),
    "hardshrink": lambda x, s: F.hardshrink(x, s.item()), "softplus": lambda x, s: F.softplus(x, s.item(), 20.0),
    "linear from": lambda x, s: F.softplus(x, 1.5, s.item()),
    "hardtanh": lambda x, s: torch.ops.aten.hardtanh(x, -s.item(), s.item()),
}


class Calls(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x, s):
        return self.f(x, s)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_numbers_of_data(name, dtype, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    args = torch.tensor(X, dtype=dtype), torch.tensor(0.75)
    torch.export.save(torch.export.export(Calls(CASES[name]), args), tmp_path / "m.pt2")
    want, feeds = CASES[name](*args).numpy(), [a.numpy() for a in args]
    model = qkv.Model(tmp_path / "m.pt2")
    np.testing.assert_allclose(model(*feeds)[0], want, rtol=1e-6, atol=1e-6)
    model.save_onnx(tmp_path / "m.onnx")
    s = ort.InferenceSession(tmp_path / "m.onnx")
    np.testing.assert_allclose(s.run(None, dict(zip((i.name for i in s.get_inputs()), feeds)))[0], want, rtol=1e-5,
                               atol=1e-6)
