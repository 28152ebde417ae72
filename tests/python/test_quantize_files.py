"""What qkv quantize writes: .qkv as `qkv pack` makes it, 4 bits through .pt2, the opset that a file gets, the text of a
budget."""
import json
import os
import re
import subprocess

import numpy as np
import pytest
import qkv
from test_quantize import DIGITS, QKV, cosine, digits, logits, two_layers  # noqa: F401

onnx = pytest.importorskip("onnx")


def told(*args):
    done = subprocess.run([QKV, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def opset_of(path):
    return next(o.version for o in onnx.load(path).opset_import if not o.domain)


# ---------------------------------------------------------------- the opset

@pytest.mark.parametrize("options,profile,opset", [
    ({}, "ort", 18), ({"target": "tensorrt-10"}, "tensorrt", 18), ({"dynamic": True}, "ort", 21),
    ({"dynamic": True}, "spec", 21), ({"dynamic": True}, "openvino", 18),
    ({"dynamic": True, "asymmetric": True}, "ort", 18), ({"dynamic": True, "asymmetric": True}, "spec", 21),
    ({"weight_bits": 8}, "ort", 21), ({"target": "tensorrt-10-fp8"}, "tensorrt", 19)], ids=str)
def test_the_least_opset_that_has_the_quantizers(digits, tmp_path, options, profile, opset):  # noqa: F811
    """The same from the model, through a .pt2, and by the command."""
    made = qkv.Model(DIGITS).quantize({"image": digits[0][:8]}, **options)
    assert made.save_onnx(tmp_path / "a.onnx", profile=profile)["opset"] == opset == opset_of(tmp_path / "a.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "a.onnx"), full_check=True)
    made.save(tmp_path / "a.pt2")
    told("convert", tmp_path / "a.pt2", "--target", profile, "-o", tmp_path / "b.onnx")
    assert opset_of(tmp_path / "b.onnx") == opset
    assert made.save_onnx(tmp_path / "a.onnx", opset=23, profile=profile)["opset"] == 23


def test_volumes_are_sampled_from_opset_20_on(tmp_path):
    torch = pytest.importorskip("torch")

    class Sampled(torch.nn.Module):
        def forward(self, x, grid):
            return torch.nn.functional.grid_sample(x, grid, align_corners=False)

    x, grid = torch.randn(1, 2, 4, 5, 6), torch.rand(1, 3, 3, 3, 3) * 2 - 1
    qkv.export(Sampled(), (x, grid), path=tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    assert model.save_onnx(tmp_path / "m.onnx", profile="spec")["opset"] == 20
    with pytest.raises(qkv.Error, match="ONNX samples volumes from opset 20 on"):
        model.save_onnx(tmp_path / "m.onnx", opset=18, profile="spec")
