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


# ---------------------------------------------------------------- .qkv

@pytest.mark.parametrize("options", [["--calibrate"], ["--calibrate", "--target", "tensorrt-10"], ["--dynamic"],
                                     ["--dynamic", "--asymmetric"], ["--weights-only", "int4"]], ids=str)
def test_a_packed_file_is_the_packed_pt2(digits, tmp_path, options):  # noqa: F811
    np.savez(tmp_path / "known.npz", image=digits[0])
    if "--calibrate" in options:
        options = ["--calibrate", tmp_path / "known.npz", *options[1:]]
    told("quantize", DIGITS, *options, "-o", tmp_path / "q.pt2")
    told("pack", tmp_path / "q.pt2", "-o", tmp_path / "two.qkv")
    assert "packed for" in told("quantize", DIGITS, *options, "-o", tmp_path / "one.qkv")
    one, two = (logits(qkv.Model(tmp_path / name), digits[1]) for name in ("one.qkv", "two.qkv"))
    assert np.array_equal(one, two)
    ops = told("graph", tmp_path / "one.qkv")
    assert "qkv.linear_blocks" in ops or "qkv.linear_integer" in ops


def test_a_packed_file_as_json_and_for_a_metric(tmp_path):
    report = json.loads(told("quantize", DIGITS, "--dynamic", "--json", "-o", tmp_path / "q.qkv", "--metric",
                             f"echo 1 && echo {{}} >>{tmp_path}/asked #"))
    assert report["pack"]["output"] == report["output"] == str(tmp_path / "q.qkv") and report["pack"]["weights"] > 17
    assert [os.path.basename(p) for p in (tmp_path / "asked").read_text().split()] == ["model.qkv"] * 2


@pytest.mark.parametrize("args,words", [
    (["-o", "q.bin"], "found 'q.bin', expected a file that ends in .onnx, .pt2 or .qkv"),
    (["-o", "q.qkv", "--opset", "18"], "--target, --opset and --external-data are for ONNX"),
    (["-o", "q.qkv", "--trainable"], "--trainable makes a model to be trained, which a packed one cannot be")], ids=str)
def test_packing_asked_wrongly(tmp_path, args, words):
    found = subprocess.run([os.path.abspath(QKV), "quantize", DIGITS, "--dynamic", *args], cwd=tmp_path,
                           capture_output=True, text=True)
    assert found.returncode == 2 and words in found.stderr and not list(tmp_path.iterdir())


# ---------------------------------------------------------------- 4 bits through .pt2

def integers_of(path):
    """How many matrices there are of each integer type."""
    found = {}
    for t in onnx.load(path).graph.initializer:
        if len(t.dims) > 1 and t.data_type in (onnx.TensorProto.INT8, onnx.TensorProto.INT4, onnx.TensorProto.UINT8):
            found[t.data_type] = found.get(t.data_type, 0) + 1
    return found


@pytest.mark.parametrize("group", [8, 16, 64])  # 64 is longer than the rows: a scale a row
@pytest.mark.parametrize("profile", ["ort", "tensorrt", "openvino"])
def test_four_bits_stay_four_bits(two_layers, tmp_path, group, profile):  # noqa: F811
    ort = pytest.importorskip("onnxruntime")
    model, x = two_layers
    made = model.quantize(weight_bits=4, group=group)
    made.save(tmp_path / "q.pt2")
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # else it rounds what layers read
    for name, of in ("direct.onnx", made), ("through.onnx", qkv.Model(tmp_path / "q.pt2")):
        assert of.save_onnx(tmp_path / name, profile=profile)["opset"] == 21
        assert integers_of(tmp_path / name) == {onnx.TensorProto.INT4: 2}
        found = ort.InferenceSession(tmp_path / name, plain).run(None, {of.inputs[0]: x})[0]
        assert np.abs(found - logits(made, x)).max() < 1e-5 * np.abs(found).max()
    if profile == "ort" and group > 8:
        qkv.Model(tmp_path / "q.pt2").save_onnx(tmp_path / "old.onnx", opset=18)
        found = {n.op_type: n for n in onnx.load(tmp_path / "old.onnx").graph.node}["MatMulNBits"]
        assert next(a.i for a in found.attribute if a.name == "bits") == 4


def test_eight_bits_stay_eight_bits(two_layers, tmp_path):  # noqa: F811
    """Where a row's elements are large, or what the layer reads is of integers: its product is one of bytes."""
    model, x = two_layers
    for name, options in ("blocks", {"weight_bits": 8}), ("rows", {"weight_bits": 8, "group": 64}), ("static", {}):
        model.quantize(**options).save(tmp_path / f"{name}.pt2")
        qkv.Model(tmp_path / f"{name}.pt2").save_onnx(tmp_path / f"{name}.onnx", opset=21)
        assert integers_of(tmp_path / f"{name}.onnx") == {onnx.TensorProto.INT8: 2}


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


# ---------------------------------------------------------------- layers as ONNX files have them

def as_exporters_write(path, const, turned, rank):
    """LayerNormalization, MatMul and Add, Relu, MatMul and Add: weights (K, N), or Transpose of (N, K)."""
    rng = np.random.default_rng(0)
    nodes, held, at = [], [], "n"

    def weight(array, name):
        tensor = onnx.numpy_helper.from_array(array.astype(np.float32), name)
        if const:
            nodes.append(onnx.helper.make_node("Constant", [], [name], value=tensor))
        else:
            held.append(tensor)
        return name

    def node(op, *of, to):
        nodes.append(onnx.helper.make_node(op, of, [to]))
        return to

    node("LayerNormalization", "x", weight(1 + 9 * rng.random(64), "norm"), to="n")
    for i, (K, N) in enumerate([(64, 96), (96, 64)]):
        w = rng.standard_normal((K, N)) / np.sqrt(K)
        w = node("Transpose", weight(w.T, f"w{i}"), to=f"t{i}") if turned else weight(w, f"w{i}")
        b = weight(rng.standard_normal(N), f"b{i}")
        at = node("Add", *([node("MatMul", at, w, to=f"m{i}"), b][::-1 if i else 1]), to=f"y{i}")
        at = node("Relu", at, to="r") if not i else at
    shape = ["batch", 16, 64][-rank:] if rank == 3 else ["batch", 64]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", at)]
    graph = onnx.helper.make_graph(nodes, "layers", ends[:1], ends[1:], held)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9), path)
    return rng.standard_normal((32, *shape[1:])).astype(np.float32)


WAYS = {"static": ({}, 0.9995), "dynamic": ({"dynamic": True}, 0.9995), "int4": ({"weight_bits": 4}, 0.99),
        "smooth": ({"dynamic": True, "asymmetric": True, "smooth": 0.5, "correct": True}, 0.9995),
        "gptq": ({"weight_bits": 4, "weight_method": "awq+gptq"}, 0.995),
        "tensorrt": ({"target": "tensorrt-10"}, 0.9995)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("const,turned,rank", [(False, False, 3), (True, False, 2), (False, True, 3)])
def test_layers_as_onnx_files_have_them(tmp_path, const, turned, rank, way):
    """Those of MatMul and Add are quantized as a .pt2's are: every layer, and what is written runs elsewhere."""
    ort = pytest.importorskip("onnxruntime")
    x = as_exporters_write(tmp_path / "m.onnx", const, turned, rank)
    options, least = WAYS[way]
    model = qkv.Model(tmp_path / "m.onnx")
    made = model.quantize({"x": x}, **options)
    report = made.quantize_report
    assert [s["kind"] for s in report["sites"] if s["kind"] != "residual"] == ["linear"] * 2, report
    assert all(not s["why_not"] for s in report["sites"]) and report["weights"] == 2
    want = logits(model, x)
    made.save_onnx(tmp_path / "q.onnx")
    made.save(tmp_path / "q.pt2")
    cpu = {"providers": ["CPUExecutionProvider"]}
    found = ort.InferenceSession(tmp_path / "q.onnx", **cpu).run(None, {"x": x})[0]
    for y in found, logits(made, x), logits(qkv.Model(tmp_path / "q.pt2"), x):
        assert cosine(y, want) > least, way
    if way == "static":
        told("quantize", tmp_path / "m.onnx", "--dynamic", "--skip", "w1", "-o", tmp_path / "s.onnx")
        assert integers_of(tmp_path / "s.onnx") == {onnx.TensorProto.INT8: 1}


def test_layers_of_onnx_files_are_trained(tmp_path):
    x = as_exporters_write(tmp_path / "m.onnx", False, False, 3)
    model = qkv.Model(tmp_path / "m.onnx")
    model.quantize({"x": x}, trainable=True).save(tmp_path / "t.pt2")
    made = qkv.Model(tmp_path / "t.pt2").quantize()
    made.save_onnx(tmp_path / "q.onnx")
    assert integers_of(tmp_path / "q.onnx") == {onnx.TensorProto.INT8: 2}
    assert cosine(logits(made, x), logits(model, x)) > 0.9995


# ---------------------------------------------------------------- words

def test_the_words_of_a_budget(digits, tmp_path):  # noqa: F811
    np.savez(tmp_path / "known.npz", image=digits[0])
    common = ["quantize", DIGITS, "--calibrate", tmp_path / "known.npz", "--threads", "1", "-o", tmp_path / "q.pt2"]
    text = told(*common, "--budget", "cosine>=0.99998")
    assert re.search(r"^cosine 0\.9999\d\d? with all 17 layers quantized, 0\.9999\d+ with \d+ of them left in floats "
                     r"\(limit 0\.99998\)$", text, re.M), text
    text = told(*common, "--budget", "kl<=0.5")
    assert re.search(r"^divergence 0\.0\d+ with all 17 layers quantized, which holds the limit 0\.5$", text, re.M), text
    assert "e-0" not in text.split("output_0")[0]


# ---------------------------------------------------------------- ONNX Runtime's own rewriting

def run_by_ort(ort, path, inputs):
    """After its own rewriting, which is to take the file; without VNNI, where the sums of what it makes saturate, as
    the file says."""
    found = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)[0]
    if "vnni" in open("/proc/cpuinfo").read():
        return found
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, plain, providers=["CPUExecutionProvider"]).run(None, inputs)[0]


@pytest.mark.parametrize("target", ["cpu", "tensorrt-10", "openvino"])
@pytest.mark.parametrize("opset", [18, 21, 23])
def test_layers_of_fixed_sizes_in_onnx_runtime(tmp_path, target, opset):
    """It made a Gemm of MatMul and Add with a vector, and of the quantizer in front a QuantizeLinear of two types."""
    ort, torch = pytest.importorskip("onnxruntime"), pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 64))
    x = torch.randn(2, 24, 64)
    qkv.export(layers, (x,), path=tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    made = model.quantize({model.inputs[0]: x.numpy()}, target=target)
    made.save_onnx(tmp_path / "q.onnx", opset=opset, profile={"cpu": "ort"}.get(target, target.split("-")[0]))
    found = run_by_ort(ort, tmp_path / "q.onnx", {model.inputs[0]: x.numpy()})
    assert cosine(found, logits(made, x.numpy())) > 0.9999
    assert cosine(logits(qkv.Model(tmp_path / "q.onnx"), x.numpy()), logits(made, x.numpy())) > 0.99999


@pytest.mark.parametrize("target", ["tensorrt-10", "openvino"])
@pytest.mark.parametrize("opset", [18, 21])
def test_heads_that_queries_share_are_repeated_as_integers(tmp_path, target, opset):
    """DequantizeLinear feeds the products. ONNX Runtime refused what it made of one in front of an Unsqueeze."""
    ort, torch = pytest.importorskip("onnxruntime"), pytest.importorskip("torch")

    class Grouped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(64, n) for n in (64, 32, 32))

        def forward(self, x):
            q, k, v = (f(x).unflatten(-1, (-1, 16)).transpose(1, 2) for f in (self.q, self.k, self.v))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    torch.manual_seed(0)
    x, size = torch.randn(2, 20, 64), torch.export.Dim("n", min=2, max=64)
    qkv.export(Grouped(), (x,), dynamic_shapes=({1: size},), path=tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    made = model.quantize({"x": x.numpy()}, target=target)
    assert made.quantize_report["left"] == 0
    made.save_onnx(tmp_path / "q.onnx", opset=opset, profile=target.split("-")[0])
    feeds = {n.output[0]: n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node}
    products = [[feeds.get(i) for i in n.input] for n in onnx.load(tmp_path / "q.onnx").graph.node
                if n.op_type == "MatMul"]
    assert products.count(["DequantizeLinear"] * 2) == (5 if target == "tensorrt-10" else 3)
    found = ort.InferenceSession(tmp_path / "q.onnx", providers=["CPUExecutionProvider"]).run(None, {"x": x.numpy()})
    assert cosine(found[0], logits(made, x.numpy())) > 0.9999
    again = qkv.Model(tmp_path / "q.onnx")
    assert cosine(logits(again, x.numpy()), logits(made, x.numpy())) > 0.99999
