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


def test_scales_of_tokens_that_pytorch_misdeclares():
    """choose_qparams_per_token gives float32; its Meta function, and so the file, says float64 and int64."""
    class Tokens(torch.nn.Module):
        def forward(self, x):
            scales, zeros = PT2E.choose_qparams_per_token(x, torch.int8)
            q = PT2E.quantize_per_token(x, scales, zeros, -128, 127, torch.int8)
            return PT2E.dequantize_per_token(q, scales, zeros, -128, 127, torch.int8, torch.float32)

    module, x = Tokens(), torch.randn(3, 5, 8)
    got = qkv.Model(torch.export.export(module, (x,))).run_dlpack([x])["output_0"]
    assert torch.equal(torch.from_dlpack(got), module(x))


def test_runs_and_goes_to_onnx(tmp_path):
    onnx = pytest.importorskip("onnx")
    path, written = tmp_path / "m.pt2", tmp_path / "m.onnx"
    report = qkv.export(Pt2e(), (torch.randn(3, 8) * 3,), path=path,
                        dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert len(report.differences) == 3
    subprocess.run([QKV, "convert", str(path), "-o", str(written)], check=True, capture_output=True)
    ops = [n.op_type for n in onnx.load(written).graph.node]
    assert (ops.count("QuantizeLinear"), ops.count("DequantizeLinear")) == (1, 2)


def qoperators(path, columns):
    """QLinearConv and QLinearMatMul as ONNX Runtime's quantizer in its QOperator format writes them."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    rng, weights = np.random.default_rng(0), {}

    def add(name, value, dtype):
        weights[name] = np.asarray(value, dtype)

    add("x_scale", 0.03, np.float32)
    add("x_zero", 121, np.uint8)
    # 7 bits: without VNNI ONNX Runtime's product of uint8 by int8 adds pairs in 16 bits, which 8 bits overflow
    add("w", rng.integers(-63, 64, (8, 3, 3, 3)), np.int8)
    add("w_scale", rng.random(8) * 0.01 + 0.001 if columns else 0.004, np.float32)
    add("w_zero", np.zeros(8) if columns else 0, np.int8)
    add("bias", rng.integers(-3000, 3000, 8), np.int32)
    add("y_scale", 0.02, np.float32)
    add("y_zero", 130, np.uint8)
    add("b", rng.integers(-63, 64, (36, 10)), np.int8)
    add("b_scale", rng.random(10) * 0.01 + 0.001 if columns else 0.005, np.float32)
    add("b_zero", np.zeros(10) if columns else 0, np.int8)
    add("z_scale", 0.1, np.float32)
    add("z_zero", 128, np.uint8)
    add("shape", [0, 8, -1], np.int64)
    nodes = [helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["q"]),
             helper.make_node("QLinearConv", ["q", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero",
                                              "bias"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("Reshape", ["c", "shape"], ["r"]),
             helper.make_node("QLinearMatMul", ["r", "y_scale", "y_zero", "b", "b_scale", "b_zero", "z_scale",
                                                "z_zero"], ["m"]),
             helper.make_node("DequantizeLinear", ["m", "z_scale", "z_zero"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 6, 6])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(a, k) for k, a in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return rng.standard_normal((4, 3, 6, 6)).astype(np.float32)


@pytest.mark.parametrize("columns", [False, True])
def test_qoperators_become_pairs(tmp_path, columns):
    np, onnx, ort = (pytest.importorskip(name) for name in ("numpy", "onnx", "onnxruntime"))
    source, written = tmp_path / "q.onnx", tmp_path / "trt.onnx"
    x = qoperators(source, columns)
    want = ort.InferenceSession(source).run(None, {"x": x})[0]
    subprocess.run([QKV, "convert", source, "-o", written, "--target", "tensorrt", "--opset", "17"], check=True,
                   capture_output=True)
    ops = [n.op_type for n in onnx.load(written).graph.node]
    assert not [op for op in ops if op.startswith("QLinear")]
    assert ops.count("QuantizeLinear") == 3 and ops.count("DequantizeLinear") == 6
    after = subprocess.run([QKV, "graph", source, "--after", "integers"], capture_output=True, text=True).stdout
    assert "qkv.linear_integer" in after
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    for found in (np.asarray(qkv.Model(source)(x)[0]), ort.InferenceSession(written, plain).run(None, {"x": x})[0]):
        steps = np.abs(found - want) / np.float32(0.1)
        assert steps.max() < 1.01 and (steps > 0.5).mean() < 0.01  # where a sum lies between two integers


class IntegerConvolution(torch.nn.Module):
    """A convolution between quantizers whose scales are powers of two, so that float32 holds every result."""

    def __init__(self, axes, zero, channels=5, results=7, scalar=False, **options):
        super().__init__()
        g, size = torch.Generator().manual_seed(axes), (3, 2, 3)[:axes]
        shape = (results, channels // options.get("groups", 1), *size)
        self.register_buffer("weight", torch.randint(-127, 128, shape, dtype=torch.int8, generator=g))
        self.register_buffer("bias", torch.randint(-99, 99, (results,), generator=g) / 64)
        self.register_buffer("scales", torch.tensor([2.0**-k for k in range(3, 3 + results)]))
        self.register_buffer("zeros", torch.zeros(results, dtype=torch.int64))
        self.convolution = getattr(torch.nn.functional, f"conv{axes}d")
        self.options = options
        self.by = (2**-5, zero, 0, 255, torch.uint8) if zero else (2**-5, 0, -128, 127, torch.int8)

    def forward(self, x):
        return self.product(PT2E.dequantize_per_tensor(PT2E.quantize_per_tensor(x, *self.by), *self.by))

    def product(self, x):
        w = PT2E.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        return self.convolution(x, w, self.bias, **self.options)


@pytest.mark.parametrize("axes,zero,options", [
    (1, 0, {"padding": 2}), (2, 117, {"padding": (1, 0), "stride": 2}), (2, 0, {"dilation": (2, 1), "padding": 2}),
    (2, 0, {}), (3, 3, {"padding": 1, "stride": (1, 2, 1)}), (2, 0, {"groups": 5, "padding": (1, 1)}),
    (2, 117, {"groups": 5, "padding": (0, 1), "stride": 2}), (1, 0, {"groups": 5, "dilation": 2})], ids=str)
def test_convolutions_are_integers(tmp_path, axes, zero, options):
    """Exact at every ISA level."""
    import numpy as np

    results = options.get("groups", 7)  # depthwise: a result for each channel
    module, size = IntegerConvolution(axes, zero, results=results, **options), (9, 8, 7)[:axes]
    x, path = torch.randn(3, 5, *size, generator=torch.Generator().manual_seed(1)) * 2, tmp_path / "m.pt2"
    batch = torch.export.Dim("batch", min=1, max=8)
    torch.export.save(torch.export.export(module, (x,), dynamic_shapes=({0: batch},)), path)
    ops = subprocess.run([QKV, "graph", path, "--after", "integers"], capture_output=True, text=True, check=True).stdout
    assert "qkv.convolution_integer" in ops and "aten.convolution" not in ops
    want = module(x).numpy()  # exact: sums below 2^24
    np.savez(tmp_path / "x.npz", x=x.numpy())
    for level in ("ref", "gen", "avx2", "avx512", None):
        known = {"QKV_CPU": level} if level else {}
        done = subprocess.run([QKV, "run", path, "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz"],
                              env={**os.environ, **known}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert np.array_equal(next(iter(np.load(tmp_path / "y.npz").values())), want), level


class IntegerMobile(torch.nn.Module):
    """Expanded, depthwise and projected between quantizers, as in MobileNets, with an activation that has an end."""

    def __init__(self, asymmetric):
        super().__init__()
        self.expand = IntegerConvolution(2, 0, results=20, padding=1)
        self.depth = IntegerConvolution(2, 0, channels=20, results=20, groups=20, padding=(1, 0))
        self.project = IntegerConvolution(2, 0, channels=20, results=7, padding=(1, 1))
        self.range = (3, 0, 255, torch.uint8) if asymmetric else (0, -128, 127, torch.int8)

    def through(self, x, scale):
        by = (scale, *self.range)
        return PT2E.dequantize_per_tensor(PT2E.quantize_per_tensor(x, *by), *by)

    def forward(self, x):
        pad = torch.nn.functional.pad
        x = self.through(pad(torch.nn.functional.relu6(self.expand(x)), (2, 2, 1, 1)), 2**-4)
        x = self.through(pad(torch.clamp(self.depth.product(x), max=3), (0, 1, 0, 1)), 2**-4)
        return self.through(self.project.product(x), 2**-3)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_depthwise_convolutions_are_integers(tmp_path, asymmetric):
    """Exact at every ISA level; what is clamped in front of a quantizer vanishes into the products, and so do edges of
    zeros, which go around the integers, where they are as wide before as after."""
    import json
    import numpy as np

    module, x, path = IntegerMobile(asymmetric), torch.randn(2, 5, 14, 15) * 2, tmp_path / "m.pt2"
    torch.export.save(torch.export.export(module, (x,)), path)
    ops = subprocess.run([QKV, "graph", path, "--after", "integers"], capture_output=True, text=True, check=True).stdout
    assert ops.count("qkv.convolution_integer") == 3 and "aten.convolution" not in ops
    want = module(x).numpy()
    assert len(np.unique(want)) > 20
    np.savez(tmp_path / "x.npz", x=x.numpy())
    for level in ("ref", "gen", "avx2", "avx512", None):
        known = {"QKV_CPU": level} if level else {}
        for threads in ("1", "2"):
            done = subprocess.run([QKV, "run", path, "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--threads",
                                   threads], env={**os.environ, **known}, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert np.array_equal(next(iter(np.load(tmp_path / "y.npz").values())), want), level
    done = subprocess.run([QKV, "bench", path, "--per-op", "--json", "--iterations", "1"], capture_output=True,
                          text=True, check=True)
    steps = {op["op"]: op["nodes"] for op in json.loads(done.stdout)["ops"]}
    assert not [s for s in steps if "clamp" in s] and steps["aten.constant_pad_nd.default"] == 1, steps


class IntegerBlock(torch.nn.Module):
    """A stem that is pooled and two convolutions around a residual, as ResNets have them, between quantizers."""

    def __init__(self, asymmetric):
        super().__init__()
        self.stem = IntegerConvolution(2, 0, results=4, padding=1)
        self.inner = IntegerConvolution(2, 0, channels=4, results=4, padding=(1, 1))
        self.outer = IntegerConvolution(2, 0, channels=4, results=4, padding=(1, 0))
        self.inner.bias *= 4096
        self.outer.bias *= 4096
        self.range = (3, 0, 255, torch.uint8) if asymmetric else (0, -128, 127, torch.int8)

    def through(self, x, scale):
        by = (scale, *self.range)
        return PT2E.dequantize_per_tensor(PT2E.quantize_per_tensor(x, *by), *by)

    def forward(self, x):
        x = self.through(torch.nn.functional.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1), 64.0)
        y = self.outer.product(self.through(torch.relu(self.inner.product(x)), 64.0))
        return self.through(torch.relu(y + x), 4096.0)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_residuals_of_convolutions_are_bytes(tmp_path, asymmetric):
    """Exact at every ISA level; sum, relu, rounding and the residual's inverse vanish into the products."""
    import json
    import numpy as np

    module, x, path = IntegerBlock(asymmetric), torch.randn(2, 5, 14, 15) * 2, tmp_path / "m.pt2"
    torch.export.save(torch.export.export(module, (x,)), path)
    ops = subprocess.run([QKV, "graph", path, "--after", "integers"], capture_output=True, text=True, check=True).stdout
    assert ops.count("qkv.convolution_integer") == 3 and ops.index("max_pool2d") > ops.index("quantize_linear")
    want = module(x).numpy()
    assert len(np.unique(want)) > 20
    np.savez(tmp_path / "x.npz", x=x.numpy())
    for level in ("ref", "gen", "avx2", "avx512", None):
        known = {"QKV_CPU": level} if level else {}
        done = subprocess.run([QKV, "run", path, "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz"],
                              env={**os.environ, **known}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert np.array_equal(next(iter(np.load(tmp_path / "y.npz").values())), want), level
    done = subprocess.run([QKV, "bench", path, "--per-op", "--json", "--iterations", "1"], capture_output=True,
                          text=True, check=True)
    steps = {op["op"] for op in json.loads(done.stdout)["ops"]}
    assert not [s for s in steps if "add" in s or "relu" in s or "pad" in s], steps
