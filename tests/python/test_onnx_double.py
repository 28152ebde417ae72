"""Functions of float64 that ONNX Runtime has of float32 alone: PyTorch's values to the last digits, at the ends too."""
import math

import pytest

torch = pytest.importorskip("torch")
runtime = pytest.importorskip("onnxruntime")
import qkv  # noqa: E402
from torch import nn  # noqa: E402

ENDS = [0.0, 1e-300, 1e-20, 1e-9, 1e-5, 0.1, 0.5, 0.7, 0.9, 0.999999, 1 - 1e-15, 1.0, 1.0000001, 1.5, 2.0, 3.0, 5.0,
        8.0, 20.0, 26.5, 40.0, 100.0, 709.0, 711.0, 1e5, 1e9, 1e11, 1e30, 1e200, 1.7e308, math.inf, math.nan]


class Of(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


@pytest.mark.parametrize("name", ["tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf",
                                  "erfc"])
def test_functions_of_double(name, tmp_path):
    f = getattr(torch, name)
    ends, draw = torch.tensor(ENDS, dtype=torch.float64), torch.Generator().manual_seed(0)
    spread = [torch.randn(500, generator=draw, dtype=torch.float64) * s for s in (0.3, 3, 1e4)]
    x = torch.cat([ends, -ends, *spread])
    torch.export.save(torch.export.export(Of(f), (x,)), tmp_path / "m.pt2")
    qkv.Model(tmp_path / "m.pt2").save_onnx(tmp_path / "m.onnx")
    got = runtime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x.numpy()})[0]
    # a tangent near its poles has lost what its argument had been rounded by
    torch.testing.assert_close(torch.from_numpy(got), f(x), rtol=1e-9 if name == "tan" else 2e-15,
                               atol=1e-15 if name == "erfc" else 0, equal_nan=True)


def test_gelu_of_a_scalar(tmp_path):
    """ONNX Runtime's fused op takes none."""
    f, x = nn.GELU(approximate="tanh"), torch.tensor(0.7)
    torch.export.save(torch.export.export(f, (x,)), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    model.save_onnx(tmp_path / "m.onnx")
    got = runtime.InferenceSession(tmp_path / "m.onnx").run(None, {model.inputs[0]: x.numpy()})[0]
    torch.testing.assert_close(torch.tensor(got), f(x))
