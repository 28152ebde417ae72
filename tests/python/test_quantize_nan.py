"""NaN in few bits is 0, as PyTorch's quantizers make it, and the lowest integer where they are faked in floats, in
every kernel and after a model is written."""
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


class Faked(torch.nn.Module):
    def __init__(self, by_channel, low, high):
        super().__init__()
        self.by_channel, self.low, self.high = by_channel, low, high
        self.register_buffer("scales", torch.tensor([0.5, 0.25, 1]))
        self.register_buffer("zeros", torch.tensor([3, 4, 7], dtype=torch.int32))

    def forward(self, x):
        if self.by_channel:
            return torch.fake_quantize_per_channel_affine(x, self.scales, self.zeros, 0, self.low, self.high)
        return torch.fake_quantize_per_tensor_affine(x, 0.5, 3, self.low, self.high)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("by_channel,low,high", [(c, *ends) for c in (False, True) for ends in
                                                 ((0, 255), (-128, 127), (-100, 90))] + [(False, 1, 10)])
def test_nan_is_the_lowest_where_it_is_faked(by_channel, low, high, dtype, tmp_path):
    module, x = Faked(by_channel, low, high), torch.randn(3, 77, dtype=dtype)
    x[:, ::5] = float("nan")
    want = module(x)
    assert not want.isnan().any() and (want[:, ::5] == want.min(1, keepdim=True).values).all()
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "in.pt2")
    model = qkv.Model(str(tmp_path / "in.pt2"))
    model.save(str(tmp_path / "s.pt2"))
    for path in "in.pt2", "s.pt2":
        got = qkv.Model(str(tmp_path / path))(x.numpy())
        assert np.array_equal(np.asarray(got[0]), want.numpy()), path
    again = torch.export.load(tmp_path / "s.pt2").module()(x)
    assert torch.equal(again[0] if isinstance(again, (list, tuple)) else again, want)
    if dtype == torch.float32:
        ort = pytest.importorskip("onnxruntime")
        model.save_onnx(tmp_path / "m.onnx")
        session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
        assert np.array_equal(session.run(None, {model.inputs[0]: x.numpy()})[0], want.numpy())


def test_nan_has_no_gradient_where_it_is_faked(tmp_path):
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([float("nan"), 1.0, 300.0, -2.0]))

        def forward(self, x):
            return (torch.fake_quantize_per_tensor_affine(self.w, 0.5, 3, 0, 255) * x).sum()

    module, x = Loss(), torch.tensor([1.0, 2, 3, 4])
    module(x).backward()
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "in.pt2")
    joint = qkv.Model(str(tmp_path / "in.pt2")).joint()
    got = [np.asarray(y) for y in joint(x.numpy())]
    assert np.array_equal(got[-1], module.w.grad.numpy()), got
