"""Differential attention: fused, certified, trained and, where it cannot be fused, named."""
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402


class Differential(nn.Module):
    """Twice as many heads of queries and keys, whose probabilities are taken apart; kind: what is done to the
    second."""

    def __init__(self, kind="rows"):
        super().__init__()
        self.proj, self.lam, self.kind = nn.Linear(16, 48), nn.Parameter(torch.tensor(0.3)), kind

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.proj(x).chunk(3, -1)
        q, k = (t.view(b, n, 4, 4).transpose(1, 2) for t in (q, k))
        v = v.view(b, n, 2, 8).transpose(1, 2)
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        p = (q @ k.mT * 0.5).masked_fill(hidden, float("-inf")).softmax(-1).view(b, 2, 2, n, n)
        factor = self.lam if self.kind == "rows" else x[:, None, None, :, 0]
        return (p[:, :, 0] - factor * p[:, :, 1]) @ v


def exported(path, module, *args):
    n = torch.export.Dim("n", min=2, max=64)
    torch.export.save(torch.export.export(module, args, dynamic_shapes=({1: n},)), path)
    return path


def test_fused_and_trained(tmp_path):
    """In a file that was rewritten first the gradients are those of two attentions."""
    torch.manual_seed(0)
    module, x = Differential(), torch.randn(2, 7, 16)
    model = qkv.Model(exported(tmp_path / "m.pt2", module, x))
    report = model.rewrite(prove=True)
    assert report["attentions_fused"] == 2 and not report["left"]
    assert all(f["sense"] == "equal on random exact payloads" for f in report["firings"])
    model.save(tmp_path / "fused.pt2")
    torch.testing.assert_close(torch.export.load(tmp_path / "fused.pt2").module()(x), module(x), rtol=1e-5, atol=1e-6)

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.export.load(tmp_path / "fused.pt2").module()

        def forward(self, x):
            return (self.inner(x) ** 2).sum()
    torch.export.save(torch.export.export(Loss(), (x,)), tmp_path / "loss.pt2")
    step = qkv.Model(tmp_path / "loss.pt2").joint().run({"x": x.numpy()})
    (module(x) ** 2).sum().backward()
    wanted = {"proj.weight": module.proj.weight.grad, "proj.bias": module.proj.bias.grad, "lam": module.lam.grad}
    for name, grad in wanted.items():
        got, = [g for k, g in step.items() if k.startswith("grad.") and k.endswith(name)]
        torch.testing.assert_close(torch.as_tensor(got), grad, rtol=1e-4, atol=1e-5)


def test_named_where_it_is_not(tmp_path):
    report = qkv.Model(exported(tmp_path / "m.pt2", Differential("keys"), torch.randn(2, 7, 16))).rewrite()
    left, = report["left"]
    assert report["attentions_fused"] == 0
    assert left["rule"] == "attention_sum" and "changed key by key" in left["reason"] and left["advice"]
