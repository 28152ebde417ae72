"""PyTorch's quantizers in .pt2 files, equal to eager, and as QuantizeLinear and DequantizeLinear in ONNX."""
import os
import subprocess

import pytest

torch = pytest.importorskip("torch")
import torch.ao.quantization.fx._decomposed  # noqa: E402,F401  (defines the ops)
import qkv  # noqa: E402

QKV = os.environ.get("QKV", "build/qkv")
PT2E = torch.ops.quantized_decomposed


class Pt2e(torch.nn.Module):
    """A linear layer with weights per channel and activations per tensor, as convert_pt2e leaves it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("weight", torch.randint(-127, 128, (6, 8), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(6) * 0.02 + 0.001)
        self.register_buffer("zeros", torch.zeros(6, dtype=torch.int64))

    def forward(self, x):
        q = PT2E.quantize_per_tensor(x, 0.0234375, 5, 0, 255, torch.uint8)
        x = PT2E.dequantize_per_tensor(q, 0.0234375, 5, 0, 255, torch.uint8)
        w = PT2E.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        return torch.nn.functional.linear(x, w)


def test_runs_and_goes_to_onnx(tmp_path):
    onnx = pytest.importorskip("onnx")
    path, written = tmp_path / "m.pt2", tmp_path / "m.onnx"
    report = qkv.export(Pt2e(), (torch.randn(3, 8) * 3,), path=path,
                        dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert len(report.differences) == 3
    subprocess.run([QKV, "convert", str(path), "-o", str(written)], check=True, capture_output=True)
    ops = [n.op_type for n in onnx.load(written).graph.node]
    assert (ops.count("QuantizeLinear"), ops.count("DequantizeLinear")) == (1, 2)
