"""What `qkv rewrite` counts as left: every softmax(QK)V of the result, and none that a rule has fused."""
import json
import os
import subprocess

import pytest

torch = pytest.importorskip("torch")

QKV = os.environ.get("QKV", "build/qkv")
RULE = """(phase fuse)
(rule ours (matmul (softmax (mul (matmul ?q (permute ?k _)) ?scale) _) ?v)
           (scaled_dot_product_attention ?q ?k ?v none 0.0 false :scale ?scale))
"""


def attention(softmax):
    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return softmax(q @ k.transpose(-2, -1) * 0.25) @ v

    return Attention()


def rewrite(path, *options):
    """(fused, reasons of what is left, exit code with --require-fused)"""
    command = [QKV, "rewrite", str(path), "--json", "--require-fused", *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(result.stdout)
    assert report["attentions_left"] == len(report["left"])
    return report["attentions_fused"], [x["reason"] for x in report["left"]], result.returncode


def exported(softmax, path):
    x = torch.randn(2, 3, 5, 16)
    torch.export.save(torch.export.export(attention(softmax), (x, x + 1, x + 2)), path)
    return path


def test_a_rule_of_a_later_phase_fuses(tmp_path):
    path = exported(lambda s: s.softmax(-1), tmp_path / "m.pt2")
    rules = tmp_path / "ours.rules"
    rules.write_text(RULE)
    assert rewrite(path, "--no-builtin-rules", "--rules", str(rules)) == (1, [], 0)


def test_without_the_phase_that_recognises(tmp_path):
    path = exported(lambda s: s.softmax(-1), tmp_path / "m.pt2")
    why = "the rules that recognise attention (phase recompose) did not see it"
    assert rewrite(path, "--phases", "convert") == (0, [why], 1)
    assert rewrite(path) == (1, [], 0)


def test_an_exponential_of_log_softmax_is_a_softmax(tmp_path):
    path = exported(lambda s: s.log_softmax(-1).exp(), tmp_path / "m.pt2")
    fused, reasons, code = rewrite(path, "--no-builtin-rules")
    assert (fused, len(reasons), code) == (0, 1, 1)
    assert rewrite(path) == (1, [], 0)


def test_attention_between_quantizers_is_counted(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    quantizer = ["scale", "zero"]
    nodes = [helper.make_node("MatMul", ["q", "k"], ["s"]),
             helper.make_node("QuantizeLinear", ["s", *quantizer], ["s8"]),
             helper.make_node("DequantizeLinear", ["s8", *quantizer], ["sd"]),
             helper.make_node("Softmax", ["sd"], ["p"], axis=-1),
             helper.make_node("QuantizeLinear", ["p", *quantizer], ["p8"]),
             helper.make_node("DequantizeLinear", ["p8", *quantizer], ["pd"]),
             helper.make_node("MatMul", ["pd", "v"], ["y"])]
    sizes = {"q": [2, 5, 8], "k": [2, 8, 5], "v": [2, 5, 8], "y": [2, 5, 8]}
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sizes.items()]
    constants = [helper.make_tensor("scale", TensorProto.FLOAT, [], [0.02]),
                 helper.make_tensor("zero", TensorProto.INT8, [], [0])]
    graph = helper.make_graph(nodes, "g", infos[:3], infos[3:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]), tmp_path / "m.onnx")
    fused, reasons, code = rewrite(tmp_path / "m.onnx")
    assert (fused, len(reasons), code) == (0, 1, 1) and "qkv.quantize_linear" in reasons[0]
