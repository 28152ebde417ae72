"""NaN in few bits is 0, as PyTorch's quantizers make it, in every kernel and after a model is written."""
import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
import qkv  # noqa: E402
import torch.ao.quantization.fx._decomposed  # noqa: E402, F401  (defines the ops)

OPS = torch.ops.quantized_decomposed


class Quantizer(torch.nn.Module):
    def __init__(self, dtype, by_channel):
        super().__init__()
        ends = torch.iinfo(dtype)
        self.rest = ends.min, ends.max, dtype
        self.by_channel = by_channel
        self.register_buffer("scales", torch.full((3,), 0.5))
        self.register_buffer("zeros", torch.tensor([3, 0, 100]))

    def forward(self, x):
        if self.by_channel:
            return OPS.quantize_per_channel(x, self.scales, self.zeros, 0, *self.rest)
        return OPS.quantize_per_tensor(x, 0.5, 3, *self.rest)


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_nan_is_zero(dtype, by_channel, tmp_path):
    module, x = Quantizer(dtype, by_channel), torch.randn(3, 77)
    x[:, ::5] = float("nan")
    want = module(x).numpy()
    assert (want[:, ::5] == 0).all()
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "in.pt2")
    model = qkv.Model(str(tmp_path / "in.pt2"))
    model.save(str(tmp_path / "s.pt2"))
    for path in "in.pt2", "s.pt2":
        got = qkv.Model(str(tmp_path / path))(x.numpy())
        assert np.array_equal(np.asarray(got[0] if isinstance(got, (list, tuple)) else got), want), path
    again = torch.export.load(tmp_path / "s.pt2").module()(x)
    assert np.array_equal((again[0] if isinstance(again, (list, tuple)) else again).numpy(), want)
