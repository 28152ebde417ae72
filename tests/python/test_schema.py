"""Reports of the library are as docs/schema says."""
import ctypes
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

jsonschema = pytest.importorskip("jsonschema")
torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from qkv._lib import library_path  # noqa: E402
from torch import nn  # noqa: E402

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "docs/schema"
DIGITS = pathlib.Path(__file__).resolve().parents[2] / "demo/digits_vit.pt2"


class Attend(nn.Module):
    """One attention that is spelled out, with a mask, and one that is not."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)

    def forward(self, x, mask):
        q = self.proj(x)
        scores = (q @ q.transpose(-1, -2) / 8**0.5).masked_fill(~mask[:, None], float("-inf"))
        x = torch.softmax(scores, -1)[:, None] @ q[:, None]
        return nn.functional.scaled_dot_product_attention(x, x, x).square().mean()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("schema") / "m.pt2"
    args = (torch.randn(2, 4, 8), torch.ones(2, 4, dtype=torch.bool))
    torch.export.save(torch.export.export(Attend(), args), path)
    return path


def holds(name, report):
    assert next(iter(report)) == "schema"
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text())).validate(report)


def test_backends(path):
    holds("backends", qkv.Model(path).backends("cuda-sm80"))
    q = np.zeros((1, 2, 4, 8), np.float32)
    holds("sdpa_choice", qkv.sdpa_choice(q, q, q, device="cuda-sm80", report=True))


def test_quantize(path):
    holds("quantize", qkv.Model(path).quantize(dynamic=True).quantize_report)
    holds("quantize", qkv.Model(path).quantize().quantize_report)
    holds("quantize", qkv.Model(DIGITS).quantize(target="tensorrt-10-fp8").quantize_report)
    report = qkv.Model(path).quantize(weight_bits=4, budget="cosine>=0.9", metric=lambda m: 1.0).quantize_report
    assert report["budget"] and report["metric"] and "bits" in report["sites"][0]
    holds("quantize", report)


@pytest.mark.parametrize("recompute", ["none", "cheap"])
def test_joint(path, recompute):
    report = qkv.joint(qkv.Model(path), recompute=recompute).joint_report
    assert report["gradients"]
    holds("joint", report)


@pytest.mark.parametrize("prove", [False, True])
def test_rewrite(path, prove):
    report = qkv.Model(path).rewrite(prove=prove, skip_padding=True)
    assert report["firings"] and report["skip_padding"]
    holds("rewrite", report)


def test_prove(path, tmp_path):
    model = qkv.Model(path)
    holds("prove", qkv.prove(model, model))
    model.save_onnx(tmp_path / "m.onnx")
    holds("prove", qkv.prove(path, tmp_path / "m.onnx"))
    torch.export.save(torch.export.export(Flat(), (torch.randn(2, 4),)), tmp_path / "flat.pt2")
    report = qkv.prove(path, tmp_path / "flat.pt2")
    assert report["result"] == "unknown"
    holds("prove", report)


def test_rewrite_left(path):
    report = qkv.Model(path).rewrite(exact_masked_rows=True)
    assert report["left"]
    holds("rewrite", report)


@pytest.mark.parametrize("profile", ["ort", "tensorrt"])
def test_onnx(path, profile, tmp_path):
    report = qkv.Model(path).save_onnx(tmp_path / "m.onnx", profile=profile)
    holds("onnx", report)
    with pytest.raises(jsonschema.ValidationError):
        holds("onnx", {**report, "opset": "18"})


class Flat(nn.Module):
    def forward(self, x):
        return x.reshape(x.shape[0], -1) + 1


def printed(*args):
    """What the command prints; of these two reports it adds nothing to what the library gives."""
    command = os.environ.get("QKV", str(SCHEMAS.parents[1] / "build/qkv"))
    return json.loads(subprocess.run([command, *map(str, args), "--json", "-q"], capture_output=True, text=True).stdout)


def test_generalize_and_check(tmp_path):
    for n in (2, 3):
        torch.export.save(torch.export.export(Flat(), (torch.randn(n, 4),)), tmp_path / f"{n}.pt2")
    report = printed("generalize", tmp_path / "2.pt2", tmp_path / "3.pt2")
    assert report["sizes"] and report["checks"]
    holds("generalize", report)
    report = printed("check", tmp_path / "2.pt2")
    assert report["findings"]
    holds("check", report)


def test_describe(path):
    report = qkv.Model(path).describe()
    assert {a["op"] for a in report["attentions"]} == {"softmax", "scaled_dot_product_attention"}
    holds("describe", report)


@pytest.mark.parametrize("passes", ["import", "import,rewrite", None])
def test_graph(path, passes):
    report = qkv.Model(path).graph(passes)
    assert report["nodes"] and report["weights"] and report["outputs"]
    holds("graph", report)


def test_memory(path):
    with qkv.Model(path).session() as session:
        session.run({"x": np.ones((2, 4, 8), np.float32), "mask": np.ones((2, 4), bool)})
        report = session.memory()
    assert report["held"] and report["peak"] is not None
    holds("memory", report)


def test_profile(path):
    library = ctypes.CDLL(library_path())
    library.qkv_session_profile_json.restype = ctypes.c_void_p
    model = qkv.Model(path)
    with model.session() as session:
        pointer = ctypes.c_void_p(session._opened.pointer)
        library.qkv_session_profile(pointer, 1)
        session.run({"x": np.ones((2, 4, 8), np.float32), "mask": np.ones((2, 4), bool)})
        report = json.loads(ctypes.string_at(library.qkv_session_profile_json(pointer, None)))
    assert {"flops" in step for step in report["steps"]} == {True, False}
    holds("profile", report)
