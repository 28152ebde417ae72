"""Models that others quantized are read, run as products of integers, and written with their quantizers."""
import logging
import os
import re
import subprocess

import numpy as np
import pytest
import qkv

onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
from onnx import TensorProto as T  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

QKV = os.environ.get("QKV", "build/qkv")
WIDE = (64, 96, 40)


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def integers(path):
    """Of the products that a run computes: how many are of integers, and of blocks of integers."""
    done = subprocess.run([QKV, "graph", path, "--after", "integers"], check=True, capture_output=True, text=True)
    text = done.stdout
    left = re.findall(r"= aten\.(?:linear|matmul|mm|addmm)\.", text)
    return text.count("= qkv.linear_integer."), text.count("= qkv.linear_blocks."), len(left)


def run(path, x, level="ORT_DISABLE_ALL"):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def weights(half=False):
    rng = np.random.default_rng(0)
    dtype = np.float16 if half else np.float32
    for i in range(2):
        yield (i, (rng.standard_normal(WIDE[i:i + 2]) / 9).astype(np.float32),
               rng.standard_normal(WIDE[i + 1]).astype(dtype))


def save(path, nodes, given, opset, half=False, ir=10):
    t = T.FLOAT16 if half else T.FLOAT
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", t, ["batch", "n", WIDE[0]])],
                              [helper.make_tensor_value_info("y", t, ["batch", "n", WIDE[2]])], given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return np.random.default_rng(1).standard_normal((2, 9, WIDE[0])).astype(np.float16 if half else np.float32)


def layers(make, path, opset, half=False):
    """Two layers and a ReLU; make(i, w, x, nodes, given): the names of what is multiplied."""
    nodes, given, x = [], [], "x"
    for i, w, b in weights(half):
        x, w = make(i, w, x, nodes, given)
        given.append(numpy_helper.from_array(b, f"b{i}"))
        nodes += [helper.make_node("MatMul", [x, w], [f"m{i}"]),
                  helper.make_node("Add", [f"m{i}", f"b{i}"], ["y" if i else "s"])]
        x = f"m{i}"
        if not i:
            nodes.append(helper.make_node("Relu", ["s"], ["r"]))
            x = "r"
    return save(path, nodes, given, opset, half)


def pairs(half, turned):
    """ModelOpt's: weights in floats, each with its quantizer and the inverse."""
    dtype = np.float16 if half else np.float32

    def make(i, w, x, nodes, given):
        w = (w.T if turned else w).astype(dtype)
        scale = (np.abs(w.astype(np.float32)).max(1 if turned else 0) / 127).astype(dtype)
        for name, value in ((f"w{i}", w), (f"s{i}", scale), (f"z{i}", np.zeros(len(scale), np.int8)),
                            (f"t{i}", np.array(0.03, dtype)), (f"o{i}", np.array(0, np.int8))):
            given.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        axis = 0 if turned else 1
        nodes += [helper.make_node("QuantizeLinear", [x, f"t{i}", f"o{i}"], [f"q{i}"]),
                  helper.make_node("DequantizeLinear", [f"q{i}", f"t{i}", f"o{i}"], [f"d{i}"]),
                  helper.make_node("QuantizeLinear", [f"w{i}", f"s{i}", f"z{i}"], [f"v{i}"], axis=axis),
                  helper.make_node("DequantizeLinear", [f"v{i}", f"s{i}", f"z{i}"], [f"u{i}"], axis=axis)]
        if turned:
            nodes.append(helper.make_node("Transpose", [f"u{i}"], [f"k{i}"], perm=[1, 0]))
        return f"d{i}", f"{'k' if turned else 'u'}{i}"
    return make


def blocks(half):
    """ModelOpt's AWQ: int4 with a scale for 32 rows of a column, and a factor in front."""
    dtype = np.float16 if half else np.float32

    def make(i, w, x, nodes, given):
        groups = w.reshape(-1, 32, w.shape[1])
        scale = np.abs(groups).max(1) / 7
        q = np.clip(np.round(groups / scale[:, None]), -8, 7).reshape(w.shape)
        given += [helper.make_tensor(f"w{i}", T.INT4, q.shape, q.astype(int).ravel().tolist()),
                  numpy_helper.from_array(scale.astype(dtype), f"s{i}"),
                  numpy_helper.from_array(np.linspace(0.5, 1.5, w.shape[0]).astype(dtype), f"p{i}")]
        nodes += [helper.make_node("Mul", [x, f"p{i}"], [f"d{i}"]),
                  helper.make_node("DequantizeLinear", [f"w{i}", f"s{i}"], [f"u{i}"], axis=0, block_size=32)]
        return f"d{i}", f"u{i}"
    return make


@pytest.mark.parametrize("make,opset,half,expected", [
    (pairs(False, False), 17, False, (2, 0, 0)), (pairs(False, True), 17, False, (2, 0, 0)),
    (pairs(True, False), 19, True, (2, 0, 0)), (blocks(False), 21, False, (0, 2, 0)),
    (blocks(True), 21, True, (0, 2, 0))], ids=["pairs", "turned", "pairs-f16", "int4", "int4-f16"])
def test_as_modelopt_writes_them(make, opset, half, expected, tmp_path):
    x = layers(make, tmp_path / "m.onnx", opset, half)
    model = qkv.Model(tmp_path / "m.onnx")
    want, found = run(tmp_path / "m.onnx", x), model(x)[0]
    assert found.dtype == want.dtype and cosine(np.asarray(found), want) > (0.9999 if half else 0.9999999)
    assert integers(tmp_path / "m.onnx") == expected
    for profile in ("ort", "tensorrt", "openvino"):
        model.save_onnx(tmp_path / "again.onnx", profile=profile)
        ops = [[n.op_type for n in onnx.load(tmp_path / p).graph.node] for p in ("m.onnx", "again.onnx")]
        assert [o.count("QuantizeLinear") for o in ops] == [4 if expected[0] else 0] * 2
        assert ops[0].count("DequantizeLinear") == ops[1].count("DequantizeLinear")
        assert cosine(run(tmp_path / "again.onnx", x), want) > 0.9999
        report = qkv.check(tmp_path / "again.onnx", target=profile)
        assert not report.errors and not report.warnings


def floats(path):
    nodes, given = [], []
    for i, w, b in weights():
        given += [numpy_helper.from_array(w, f"w{i}"), numpy_helper.from_array(b, f"b{i}")]
        nodes += [helper.make_node("MatMul", ["r" if i else "x", f"w{i}"], [f"m{i}"]),
                  helper.make_node("Add", [f"m{i}", f"b{i}"], ["y" if i else "s"])]
        if not i:
            nodes.append(helper.make_node("Relu", ["s"], ["r"]))
    return save(path, nodes, given, 18, ir=8)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_onnx_runtimes_dynamic_quantizer(columns, fused, tmp_path):
    """MatMulInteger and what scales it are a product between quantizers; so are MatMulIntegerToFloat and
    DynamicQuantizeMatMul, which its optimizer makes of them."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    logging.disable(logging.WARNING)
    x, path = floats(tmp_path / "f.onnx"), tmp_path / "q.onnx"
    quantization.quantize_dynamic(tmp_path / "f.onnx", path, per_channel=columns, reduce_range=True,
                                  weight_type=quantization.QuantType.QInt8)
    want = run(path, x)
    if fused:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(tmp_path / "fused.onnx")
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        path = tmp_path / "fused.onnx"
    assert any("Integer" in n.op_type or n.op_type == "DynamicQuantizeMatMul" for n in onnx.load(path).graph.node)
    model = qkv.Model(path)
    assert integers(path) == (2, 0, 0)
    assert np.abs(np.asarray(model(x)[0]) - want).max() < 1e-5 * np.abs(want).max()
    model.save_onnx(tmp_path / "again.onnx")
    ops = [n.op_type for n in onnx.load(tmp_path / "again.onnx").graph.node]
    assert (ops.count("QuantizeLinear"), ops.count("DequantizeLinear")) == (2, 4)
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        assert cosine(run(tmp_path / "again.onnx", x, level), want) > 0.99999
    model.save(tmp_path / "again.pt2")
    assert np.abs(np.asarray(qkv.Model(tmp_path / "again.pt2")(x)[0]) - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("symmetric", [False, True])
def test_onnx_runtimes_weights_alone(symmetric, tmp_path):
    """MatMulNBits; without zero points it is signed integers, which every target and opset takes."""
    quantizer = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer").MatMulNBitsQuantizer
    logging.disable(logging.WARNING)
    x = floats(tmp_path / "f.onnx")
    q = quantizer(onnx.load(tmp_path / "f.onnx"), block_size=32, is_symmetric=symmetric)
    q.process()
    onnx.save(q.model.model, tmp_path / "q.onnx")
    want, model = run(tmp_path / "q.onnx", x), qkv.Model(tmp_path / "q.onnx")
    assert integers(tmp_path / "q.onnx") == (0, 2, 0)
    assert np.abs(np.asarray(model(x)[0]) - want).max() < 1e-5 * np.abs(want).max()
    for profile, opset in (("ort", None), ("tensorrt", None), ("ort", 18), ("tensorrt", 18)):
        if opset and not symmetric:
            continue  # u4 with zero points came with opset 21
        model.save_onnx(tmp_path / "again.onnx", profile=profile, opset=opset)
        ops = [n.op_type for n in onnx.load(tmp_path / "again.onnx").graph.node]
        assert ops.count("MatMulNBits") == 2 * (opset == 18 and profile == "ort")
        assert ops.count("DequantizeLinear") + ops.count("MatMulNBits") == 2
        assert np.abs(run(tmp_path / "again.onnx", x) - want).max() < 1e-5 * np.abs(want).max()
