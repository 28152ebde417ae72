"""Programs with autograd inside, whose files hold ATen's gradients by name: against eager, here, in PyTorch and in ONNX
Runtime."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from tolerance import tolerance  # noqa: E402
from torch import nn  # noqa: E402

CLOSE = tolerance("MODEL")["f32"]


def close(got, want):
    peak = max(want.abs().max().item(), 1e-6)
    assert np.abs(np.asarray(got) - want.detach().numpy()).max() <= CLOSE * peak


def holds(tmp_path, module, x, want):
    with torch.no_grad():
        torch.export.save(torch.export.export(module, x), tmp_path / "m.pt2")
    x = list(x)
    model = qkv.Model(tmp_path / "m.pt2")
    for got, w in zip(model.run(x).values(), want):
        close(got, w)
    model.save(tmp_path / "again.pt2")
    with torch.no_grad():
        again = torch.export.load(tmp_path / "again.pt2").module()(*x)
    for got, w in zip(again, want):
        close(got, w)
    onnxruntime = pytest.importorskip("onnxruntime")
    model.save_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    feeds = {i.name: t.numpy() for i, t in zip(session.get_inputs(), x)}
    for got, w in zip(session.run(None, feeds), want):
        close(got, w)


def test_jacobian(tmp_path):
    class Model(nn.Module):
        def forward(self, x):
            return (torch.autograd.functional.jacobian(lambda y: y.sin() * y[0], x),)

    x = torch.tensor([0.5, -1, 2])
    holds(tmp_path, Model(), (x,), Model()(x))


def test_joint_graph_of_pytorch(tmp_path):
    from torch.export.experimental import _export_forward_backward

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(2, 4, 3, 2, 1), nn.BatchNorm2d(4).eval(), nn.ReLU(), nn.AvgPool2d(2),
                nn.Conv2d(4, 4, 3, groups=2, padding=1), nn.SiLU(), nn.MaxPool2d(2), nn.Upsample(scale_factor=2),
                nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

        def forward(self, x, t):
            return nn.functional.cross_entropy(self.net(x), t)

    torch.manual_seed(0)
    module, x = Loss(), (torch.randn(3, 2, 17, 16), torch.tensor([2, 0, 1]))
    torch.export.save(_export_forward_backward(torch.export.export(module, x)), tmp_path / "joint.pt2")
    got = qkv.Model(tmp_path / "joint.pt2").run(list(x))
    loss = module(*x)
    loss.backward()
    close(got["output_0"], loss)
    for name, p in module.named_parameters():
        close(got["grad." + name], p.grad)


PICKED = {
    "maximum": lambda x: x.max(1)[0], "median": lambda x: x.median(0, keepdim=True)[0],
    "running maximum": lambda x: x.cummax(1)[0], "gather": lambda x: x.gather(1, (x > 0).long()),
    "embedding": lambda x: nn.functional.embedding((x[:, 0] > 0).long(), x), "trace": torch.trace,
    "masked scatter": lambda x: (x + 1).masked_scatter(x > 0, x.flip(0)), "logit": lambda x: x.logit(0.1),
}


@pytest.mark.parametrize("name", PICKED)
def test_gradient_of_what_is_picked(tmp_path, name):
    class Model(nn.Module):
        def forward(self, x):
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                return torch.autograd.grad(PICKED[name](x).sin().sum(), x)

    torch.manual_seed(0)
    x = torch.randn(4, 5)
    holds(tmp_path, Model(), (x,), Model()(x))
