"""Training through quantizers: PyTorch's gradients, digits in float, after rounding and after training, files."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from parts import Attending  # noqa: E402
from qkv import quant  # noqa: E402

QKV = os.environ.get("QKV", "build/qkv")
DIGITS = pathlib.Path(__file__).resolve().parents[2] / "demo/digits_vit.pt2"
F = torch.nn.functional


class Loss(torch.nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, x, y):
        return self.loss(self.model(x), y)


def joint(module, x, y, folder):
    """The gradients of Loss(x, y) in C, as a model."""
    batch = {0: torch.export.Dim("batch", min=1, max=512)}
    torch.export.save(torch.export.export(module, (x, y), dynamic_shapes=(batch, batch)), folder / "loss.pt2")
    return qkv.joint(folder / "loss.pt2", loss="output_0")


OPTIONS = [{}, {"asymmetric": True, "target": "tensorrt-10"}, {"weight_bits": 4}, {"weight_bits": 8, "group": 64}]


@pytest.mark.turns
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_are_pytorchs(tmp_path, options):
    torch.manual_seed(0)
    x, y = torch.randn(6, 20, 64), torch.randn(6, 20, 64)
    batch = {0: torch.export.Dim("batch", min=1, max=512)}
    some_saturate = {"x": x / 2}
    prepared = quant.prepare(Attending(), (x,), dynamic_shapes=(batch,), calibrate=some_saturate, **options)
    fake = [n for n in prepared.graph.nodes if "fake_quantize" in str(n.target)]
    report = prepared.quantize_report
    probabilities = sum(s["kind"] == "attention" and s["why_not"] is None for s in report["sites"]) * (
        options.get("target") == "tensorrt-10")
    assert len(fake) == len(report["points"]) + report["weights"] + probabilities > 0
    module = Loss(prepared, F.mse_loss)
    module(x, y).backward()
    want = {name: p.grad.numpy() for name, p in module.named_parameters()}
    got = joint(module, x, y, tmp_path)(x, y)
    assert np.isclose(got[0], module(x, y).item(), rtol=1e-5)
    assert set(got.names) >= {f"grad.{name}" for name in want}
    for name, g in want.items():
        found = np.asarray(got[f"grad.{name}"])
        assert np.abs(found - g).max() <= 2e-5 * np.abs(g).max(), name


def test_saturated_values_have_no_gradient():
    x = torch.tensor([[0.1] * 15 + [9.0]])
    layer = torch.nn.Linear(16, 8)
    prepared = quant.prepare(layer, (x,), calibrate={"input": torch.full((4, 16), 0.5)})
    x.requires_grad_()
    prepared(x).sum().backward()
    assert x.grad[0, 15] == 0 and (x.grad[0, :15] != 0).all()


@pytest.fixture(scope="module")
def digits():
    data = pytest.importorskip("sklearn.datasets").load_digits()
    x, test = torch.from_numpy((data.images / 16).astype(np.float32)[:, None]), np.arange(len(data.images)) % 5 == 0
    y = torch.from_numpy(data.target)
    return x[~test], y[~test], x[test], y[test]


def right(model, x, y):
    return (np.asarray(model(x.numpy())[0]).argmax(1) == y.numpy()).mean()


@pytest.mark.turns
@pytest.mark.parametrize("options", [{"target": "tensorrt-10"}, {"weight_bits": 4, "group": 48}], ids=str)
def test_digits_trained_in_c(digits, tmp_path, options):
    """PyTorch places, C trains; the file keeps the scales, and its integers compute what was trained."""
    x, y, x_test, y_test = digits
    model = qkv.Model(DIGITS)
    calibrate = None if options.get("weight_bits") else {"image": x[:128]}
    rounded = model.quantize(calibrate, **options)
    prepared = quant.prepare(model, calibrate=calibrate, **options)
    graph = joint(Loss(prepared, F.cross_entropy), x[:8], y[:8], tmp_path)
    trainer = qkv.Trainer(graph, lr=2e-4)
    trainer.fit({"x": x.numpy(), "y": y.numpy()}, epochs=1, batch=64)
    prepared.load_state_dict({name[len("model."):]: torch.from_numpy(w) for name, w in trainer.weights().items()},
                             strict=False)
    batch = {0: torch.export.Dim("batch", min=1, max=512)}
    torch.export.save(torch.export.export(prepared, (x[:8],), dynamic_shapes=(batch,)), tmp_path / "trained.pt2")
    trained = qkv.Model(tmp_path / "trained.pt2")
    made = trained.quantize()
    assert made.quantize_report["calibration"] == "trained"
    assert made.quantize_report["weights"] == prepared.quantize_report["weights"]
    logits, kept = np.asarray(trained(x_test.numpy())[0]), np.asarray(made(x_test.numpy())[0])
    assert np.abs(logits - kept).max() < 1e-3 * np.abs(logits).max()
    lost = [F.cross_entropy(torch.from_numpy(np.asarray(m(x[:512].numpy())[0])), y[:512]).item()
            for m in (rounded, made)]
    assert lost[1] < lost[0]  # training through the quantizers does what it is for
    assert right(made, x_test, y_test) >= right(model, x_test, y_test) - (0.01 if calibrate is None else 0.003)
    made.save_onnx(tmp_path / "made.onnx", opset=made.quantize_report["opset"] if calibrate is None else 18)
    again = np.asarray(qkv.Model(tmp_path / "made.onnx")(x_test.numpy())[0])
    assert (again * kept).sum() / np.sqrt((again * again).sum() * (kept * kept).sum()) > 0.99999


SCALES, ZEROS = torch.tensor([0.1, 0.2, 0.05]), torch.tensor([0, 3, -2], dtype=torch.int32)
FAKES = {
    "numbers": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
    "a narrow range": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -127, 127),
    "tensors": lambda x: torch.fake_quantize_per_tensor_affine(x, SCALES[:1], ZEROS[1:2], -128, 127),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(x.relu(), SCALES, ZEROS, 1, -8, 7),
    "what two read": lambda x: x + torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 1, -128, 127) * x,
}
LOADS = "import sys, torch; torch.save(torch.export.load(sys.argv[1]).module()(torch.load(sys.argv[2])), sys.argv[3])"


class Calls(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FAKES)
def test_torch_loads_fake_quantizers_as_they_are(name, dtype, tmp_path):
    """In a process that registers no ops of PT2E, which importing qkv does."""
    x = (8 * torch.randn(4, 3, generator=torch.Generator().manual_seed(1))).to(dtype)
    want = FAKES[name](x)
    torch.export.save(torch.export.export(Calls(FAKES[name]), (x,)), tmp_path / "m.pt2")
    qkv.Model(tmp_path / "m.pt2").save(tmp_path / "saved.pt2")
    torch.save(x, tmp_path / "x.pt")
    subprocess.run([sys.executable, "-c", LOADS, *(tmp_path / f for f in ("saved.pt2", "x.pt", "y.pt"))], check=True)
    assert torch.equal(torch.load(tmp_path / "y.pt"), want)
    again = qkv.Model(tmp_path / "saved.pt2")
    assert torch.equal(torch.from_dlpack(list(again.run_dlpack({again.inputs[0]: x}).values())[0]), want)
