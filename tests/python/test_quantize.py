"""qkv quantize: files that ONNX Runtime and torch read, accuracy on the demo's digits, data that do not fit."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import time
from xml.etree import ElementTree

import numpy as np
import pytest
import qkv

QKV = os.environ.get("QKV", "build/qkv")
SMALL = pathlib.Path(__file__).resolve().parents[1] / "models/small"
DIGITS = pathlib.Path(__file__).resolve().parents[2] / "demo/digits_vit.pt2"


@pytest.fixture(scope="module")
def digits():
    """Pictures to calibrate on, pictures that the demo was not trained on, their labels."""
    data = pytest.importorskip("sklearn.datasets").load_digits()
    x, test = (data.images / 16).astype(np.float32)[:, None], np.arange(len(data.images)) % 5 == 0
    return x[~test][:128], x[test], data.target[test]


def logits(model, x):
    return np.asarray(model(x)[0])


def openvino_results(path, x):
    core = pytest.importorskip("openvino").Core()
    return core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(x)[0]


def cosine(a, b):
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


@pytest.mark.parametrize("options", [{}, {"calibration": "entropy"}, {"asymmetric": True}, {"target": "tensorrt-10"},
                                     {"target": "openvino"}, {"dynamic": True}, {"dynamic": True, "asymmetric": True},
                                     {"smooth": 0.5, "correct": True}], ids=str)
def test_accuracy(digits, options):
    known, x, labels = digits
    model = qkv.Model(DIGITS)
    made = model.quantize(None if options.get("dynamic") else {"image": known}, **options)
    expected, found = logits(model, x), logits(made, x)
    right = [(y.argmax(1) == labels).mean() for y in (expected, found)]
    assert right[0] - right[1] <= 0.003 and cosine(found, expected) > 0.999
    assert cosine(found, expected) < 1  # it did round


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("bits,method,least", [(8, "rtn", 0.9999), (4, "rtn", 0.998), (4, "awq", 0.999),
                                               (4, "gptq", 0.9995), (4, "awq+gptq", 0.9995)])
def test_weights_alone(digits, bits, method, least, dynamic):
    known, x, labels = digits
    model = qkv.Model(DIGITS)
    made = model.quantize(None if method == "rtn" else {"image": known}, weight_bits=bits, weight_method=method,
                          dynamic=dynamic)
    assert made.quantize_report["weight_bits"] == bits and made.quantize_report["group"] == 32
    assert made.quantize_report["points"] == [] and made.quantize_report["weights"] == 17
    expected, found = logits(model, x), logits(made, x)
    right = [(y.argmax(1) == labels).mean() for y in (expected, found)]
    assert right[0] - right[1] <= (0.003 if bits == 8 else 0.01) and least < cosine(found, expected) < 1


@pytest.mark.parametrize("options", [(), ("--weights-only", "int8"), ("--budget", "cosine>=0.9999")], ids=str)
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_norms_folded_into_layers_that_stay_in_floats(tmp_path, options, ending):
    """The folded weights were in memory that had been freed."""
    model, made = str(SMALL / "resnet_small.pt2"), str(tmp_path / f"q.{ending}")
    subprocess.run([QKV, "quantize", model, "-o", made, *options], check=True)
    subprocess.run([QKV, "verify", made, model, "--atol", "0.05"], check=True)


def test_integers_are_compared_without_a_copy_in_floats(tmp_path):
    """Four weights of 16 MiB: packed floats and integers, and no floats of the integers beside them, packed or not."""
    onnx = pytest.importorskip("onnx")
    random = np.random.default_rng(0)
    weights = [onnx.numpy_helper.from_array(random.standard_normal((2048, 2048), np.float32), f"w{i}")
               for i in range(4)]
    nodes = [onnx.helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(4)]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2048]) for name in ("x0", "x4")]
    graph = onnx.helper.make_graph(nodes, "wide", ends[:1], ends[1:], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10),
              tmp_path / "wide.onnx")
    most = 430 << 20
    command = [pathlib.Path(QKV).resolve(), "quantize", "wide.onnx", "--dynamic", "--threads", "1", "-o", "q.pt2"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (most, most)))
    assert not done.returncode and "4 quantized" in done.stdout, done.stderr


@pytest.mark.turns
def test_weights_alone_in_files(digits, tmp_path):
    """DequantizeLinear by blocks, MatMulNBits, PyTorch's dequantizer by groups, .qkv: the same results, and packed."""
    ort = pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    import torch.ao.quantization.fx._decomposed  # noqa: F401  (defines the ops)
    _, x, _ = digits
    x, results = x[:40], {}
    for bits in ("int4", "int8"):
        for name, more in {"blocks.onnx": [], "nbits.onnx": ["--opset", "18"], "m.pt2": []}.items():
            path = tmp_path / f"{bits}.{name}"
            subprocess.run([QKV, "quantize", DIGITS, "--weights-only", bits, "-o", path, *more], check=True,
                           capture_output=True)
            results[path] = logits(qkv.Model(path), x)
            ops = subprocess.run([QKV, "graph", path, "--after", "integers"], capture_output=True, text=True).stdout
            assert ops.count("qkv.linear_blocks.default") == 17 and ops.count(f"bits={bits[3:]}") == 17
            if path.suffix == ".onnx":
                found = ort.InferenceSession(path).run(None, {"image": x})[0]
            else:
                with torch.no_grad():
                    found = torch.export.load(path).module()(torch.from_numpy(x)).numpy()
            assert np.abs(found - results[path]).max() < 1e-4 * np.abs(found).max()
        packed = tmp_path / f"{bits}.qkv"
        subprocess.run([QKV, "pack", tmp_path / f"{bits}.blocks.onnx", "-o", packed], check=True, capture_output=True)
        assert np.array_equal(logits(qkv.Model(packed), x), results[tmp_path / f"{bits}.blocks.onnx"])
    four, eight = ((tmp_path / f"int{n}.nbits.onnx").stat().st_size for n in (4, 8))
    assert eight - four > 30_000


@pytest.mark.parametrize("shape", [(1, 512), (3, 512), (2, 7, 512)], ids=str)
def test_rows_do_not_depend_on_their_number(tmp_path, shape):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer, path = torch.nn.Linear(512, 300), tmp_path / "m.pt2"
    spec = {0: torch.export.Dim("rows", min=1, max=64)}
    qkv.export(layer, (torch.randn(4, 512),), dynamic_shapes=(spec,), path=path)
    for dynamic in (False, True):
        made = [qkv.Model(path).quantize(weight_bits=4, group=64, dynamic=dynamic, threads=n) for n in (1, 2)]
        x = torch.randn(int(np.prod(shape[:-1])), 512).numpy()
        rows = np.concatenate([np.asarray(made[0](x[i:i + 1])[0]) for i in range(len(x))])
        assert np.array_equal(rows, np.asarray(made[1](x)[0]))
        want = layer(torch.from_numpy(x)).detach().numpy()
        assert 0.99 < cosine(rows, want) < 1


def test_gptq_loses_less(tmp_path):
    """On inputs whose channels depend on each other, as those of real layers do."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer, path = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(96, 64)), tmp_path / "m.pt2"
    x = torch.randn(600, 24) @ torch.randn(24, 96) / 5
    spec = {0: torch.export.Dim("rows", min=1, max=1024)}
    qkv.export(layer, (x[:4],), dynamic_shapes=(spec,), path=path)
    model, want = qkv.Model(path), layer(x[500:]).detach().numpy()
    errors = []
    for method in ("rtn", "gptq"):
        made = model.quantize({model.inputs[0]: x[:500].numpy()}, weight_bits=4, weight_method=method)
        errors.append(np.square(np.asarray(made(x[500:].numpy())[0]) - want).mean())
    assert errors[1] < errors[0] / 3


@pytest.mark.parametrize("args,words", [
    (["--group", "64"], "--group and --method say how --weights-only rounds"),
    (["--weights-only", "int3"], "--weights-only int3: expected int8 or int4"),
    (["--weights-only", "int4", "--group", "20"], "a group of 20, expected a multiple of 8"),
    (["--weights-only", "int4", "--method", "best"], "there are rtn, gptq, awq and awq+gptq")], ids=str)
def test_weights_alone_asked_wrongly(tmp_path, args, words):
    found = subprocess.run([QKV, "quantize", DIGITS, *args, "-o", tmp_path / "q.onnx"], capture_output=True, text=True)
    assert found.returncode == 2 and words in found.stderr


def outliers(tmp_path):
    """A model whose norm makes two channels a hundred times larger than the others, and data for it."""
    torch = pytest.importorskip("torch")

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.a, self.b = torch.nn.LayerNorm(64), torch.nn.Linear(64, 96), torch.nn.Linear(96, 64)
            with torch.no_grad():
                self.norm.weight[3], self.norm.weight[40] = 60.0, 90.0
                self.norm.bias += 5

        def forward(self, x):
            y = self.norm(x)
            return y + self.b(torch.nn.functional.gelu(self.a(y))), self.a(y)

    torch.manual_seed(0)
    m, x = M().eval(), torch.randn(64, 8, 64)
    qkv.export(m, (x[:2],), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},), path=tmp_path / "o.pt2")
    return qkv.Model(tmp_path / "o.pt2"), x.numpy()


@pytest.mark.parametrize("dynamic", [False, True])
def test_smoothing_and_correction(tmp_path, dynamic):
    model, x = outliers(tmp_path)
    name = model.inputs[0]
    want = np.asarray(model(x[:16])[1])

    def error(**options):
        made = model.quantize({name: x[16:]} if options or not dynamic else None, dynamic=dynamic, **options)
        found = np.asarray(made(x[:16])[1])
        return np.square(found - want).mean(), np.abs((found - want).mean((0, 1))).mean()

    plain, smooth, correct = error(), error(smooth=0.5), error(smooth=0.5, correct=True)
    assert smooth[0] < plain[0] / 4  # the outliers take the other channels' bits
    assert correct[1] < smooth[1] / 2  # the mean of what rounding the weights loses is in the bias


def test_budget_keeps_the_worst_layers(tmp_path):
    model, x = outliers(tmp_path)
    name = model.inputs[0]
    made = model.quantize({name: x}, budget="cosine>=0.9999")
    report, sites = made.quantize_report, made.quantize_report["sites"]
    assert report["budget"]["all"] < 0.9999 <= report["budget"]["reached"]
    kept = [s for s in sites if s["why_not"]]
    assert 0 < len(kept) == report["budget"]["kept"] < len(sites)
    assert all("the budget keeps it" in s["why_not"] for s in kept)
    assert all(s["loss"] >= 0 and s["float_ms"] > 0 and s["integer_ms"] > 0 for s in sites)
    assert model.quantize({name: x}, budget="kl<=10").quantize_report["budget"]["kept"] == 0
    with pytest.raises(qkv.Error, match="the budget cannot be met: .* at best"):
        model.quantize({name: x}, budget="cosine>=0.9999999999")
    for wrong in ["cosine>=1.5", "cosine=0.9", "kl<=x"]:
        with pytest.raises(qkv.Error, match="expected cosine>=X"):
            model.quantize({name: x}, budget=wrong)


def test_a_plot_of_what_layers_lose(digits, tmp_path):
    """A row a layer in the order in which they go back to floats; names of the file are text, not elements."""
    onnx = pytest.importorskip("onnx")
    names, weight = ["a", "<b>&", "c\x1b"], np.random.default_rng(0).standard_normal((32, 32), np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", [f"x{i}", name], [f"x{i + 1}"]) for i, name in enumerate(names)], "g",
        *([onnx.helper.make_tensor_value_info(name, 1, [64, 32])] for name in ("x0", "x3")),
        [onnx.numpy_helper.from_array(weight, name) for name in names])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
              tmp_path / "m.onnx")
    np.savez(tmp_path / "known.npz", image=digits[0])

    def plot(model, *args):
        done = subprocess.run([QKV, "quantize", model, "-o", tmp_path / "q.onnx", "--threads", "1", "--json", "--plot",
                               tmp_path / "l.svg", *args], check=True, capture_output=True, text=True)
        svg = ElementTree.parse(tmp_path / "l.svg").getroot()
        width, height = (float(v) for v in svg.attrib["viewBox"].split()[2:])
        for e in svg.iter():
            for side, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
                assert 0 <= float(e.attrib.get(side, 0)) <= most
        report = json.loads(done.stdout)  # one object: what the writer of ONNX says is a member
        assert report["onnx"]["opset"] >= 18
        names = [e.text for e in svg.iter() if e.attrib.get("class") == "name"]
        circles = [e.attrib for e in svg.iter() if e.tag.endswith("circle")]
        ranked = sorted((s for s in report["sites"] if "rank" in s), key=lambda s: s["rank"])
        assert [s["rank"] for s in ranked] == list(range(1, len(ranked) + 1))
        return report["budget"], names, circles, ranked

    budget, names, circles, ranked = plot(DIGITS, "--calibrate", tmp_path / "known.npz", "--budget", "cosine>=0.99998")
    kept = budget["kept"]
    assert 0 < kept < len(ranked) == 17 and names == [s["weight"] for s in ranked] and len(circles) == 2 * 17
    assert all(s["why_not"].startswith("the budget keeps it") for s in ranked[:kept])
    assert not any(s["why_not"] for s in ranked[kept:])
    assert [c["fill"] for c in circles[::2]] == ["#d1691e"] * kept + ["#1f5f9e"] * (17 - kept)
    _, names, circles, _ = plot(tmp_path / "m.onnx", "--dynamic", "--budget", "kl<=1")
    assert sorted(names) == ["<b>&", "a", "c\\x1b"] and len(circles) == 3


def test_a_metric_of_ones_own(tmp_path):
    model, x = outliers(tmp_path)
    name, asked = model.inputs[0], []
    want = np.asarray(model(x[:16])[0])

    def metric(m):
        asked.append(cosine(np.asarray(m(x[:16])[0]), want))
        return asked[-1]

    report = model.quantize({name: x}, metric=metric).quantize_report
    assert report["metric"] == {"floats": pytest.approx(1), "quantized": pytest.approx(asked[1]), "calls": 2}
    limit, asked[:] = (asked[1] + 1) / 2, []
    made = model.quantize({name: x}, metric=metric, budget=f"metric>={limit * 100:.9f}%")
    report = made.quantize_report
    assert report["budget"]["metric"] == "metric" and report["budget"]["kept"] == report["left"] > 0
    assert report["metric"]["calls"] == len(asked) and limit <= report["budget"]["reached"] in asked
    assert cosine(np.asarray(made(x[:16])[0]), want) == pytest.approx(report["metric"]["quantized"])
    assert all(s["sqnr_db"] > 0 and s["kl"] >= 0 for s in report["sites"])
    for budget, calls, words in [
            ("metric>=1.1", 0, "the metric of the floats is 1, 1.1 was asked for"),
            ("metric>=99.99999999%", 0, "cannot be met: with all layers but one in floats the metric is .*the floats"),
            ("metric>=99.99999999%", 2, "asked for 2 times, and no candidate held .*; allow more calls")]:
        with pytest.raises(qkv.Error, match=words):
            model.quantize({name: x}, metric=metric, budget=budget, metric_calls=calls)
    with pytest.raises(qkv.Error, match="needs a metric"):
        model.quantize({name: x}, budget="metric>=1")
    with pytest.raises(ZeroDivisionError):
        model.quantize({name: x}, metric=lambda m: 1 / 0)


def test_a_metric_command(digits, tmp_path):
    np.savez(tmp_path / "known.npz", image=digits[0][:32])
    (tmp_path / "size").write_text("test ${1##*.} = onnx && echo model of 3 parts && echo bytes: $(wc -c <$1) && "
                                   f"echo $1 >>{tmp_path}/asked")

    def quantize(*args):
        return subprocess.run([QKV, "quantize", DIGITS, "--calibrate", tmp_path / "known.npz", "-o",
                               tmp_path / "q.onnx", *args], capture_output=True, text=True)

    done = quantize("--metric", f"sh {tmp_path}/size {{}} || exit 9", "--budget", "metric<=0.2e6")
    assert done.returncode == 4 and "the metric of the floats is" in done.stderr, done.stdout
    done = quantize("--metric", f"sh {tmp_path}/size", "--budget", "metric<=100%", "--explain")
    assert done.returncode == 0 and "metric: " in done.stdout and "holds 99 % and 99.9 %); 2 calls" in done.stdout
    assert "sqnr dB" in done.stdout
    paths = (tmp_path / "asked").read_text().split()
    assert len(paths) == 3 and not any(os.path.exists(os.path.dirname(p)) for p in paths)
    (tmp_path / "q.onnx").unlink()
    for command, words in [("false", "failed, with exit code 1"), ("echo", "/model.onnx', with 0 numbers"),
                           ("true", "prints nothing"), ("echo 1 2 #", "is '1 2', with 2 numbers; expected one"),
                           ("kill -9 $$ #", "was ended by signal 9")]:
        done = quantize("--metric", command)
        assert done.returncode == 2 and words in done.stderr and not (tmp_path / "q.onnx").exists()
    done = quantize("--budget", "metric>=1")
    assert done.returncode == 2 and "limits the figure of --metric COMMAND: give it, too" in done.stderr


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_metric_command_that_is_interrupted(tmp_path, ending):
    """Nothing of the call is left behind."""
    with subprocess.Popen([QKV, "quantize", DIGITS, "--dynamic", "-o", tmp_path / "q.onnx", "--metric",
                           f"echo 1 >{tmp_path}/began; sleep 60 #"], env={**os.environ, "TMPDIR": str(tmp_path)},
                          start_new_session=True) as run:
        while not (tmp_path / "began").exists():
            assert run.poll() is None
            time.sleep(0.02)
        assert len(list(tmp_path.glob("qkv-metric-*/model.onnx"))) == 1
        os.killpg(run.pid, ending)
        assert run.wait() == 128 + ending
    assert [f.name for f in tmp_path.iterdir()] == ["began"]


def test_budget_of_4_bits_keeps_layers_in_8(digits):
    known, x, _ = digits
    made = qkv.Model(DIGITS).quantize({"image": known[:64]}, weight_bits=4, budget="cosine>=0.9995")
    report = made.quantize_report
    bits = [s["bits"] for s in report["sites"]]
    assert report["budget"]["all"] < 0.9995 <= report["budget"]["reached"] and not report["left"]
    assert 0 < bits.count(8) == report["budget"]["kept"] < len(bits) and bits.count(4) == len(bits) - bits.count(8)


def test_a_budget_keeps_the_cheapest_layers(digits):
    """No set of layers of a smaller size takes as much loss away; the greedy order by loss for size keeps more."""
    known = digits[0][:64]
    model, greedy_paid, paid = qkv.Model(DIGITS), 0, 0
    for limit in (0.9993, 0.9996):
        sites = model.quantize({"image": known}, weight_bits=4, budget=f"cosine>={limit}").quantize_report["sites"]
        size = np.array([model.weights()[s["weight"]].size for s in sites])
        loss, kept = np.array([s["loss"] for s in sites]), np.array([s["bits"] == 8 for s in sites])
        sets = (np.arange(1 << len(sites))[:, None] >> np.arange(len(sites)) & 1).astype(bool)
        enough = sets[sets @ loss >= loss[kept].sum() * (1 - 1e-9)]
        assert kept.any() and size[kept].sum() == (enough @ size).min()
        order = np.argsort(-loss / size)
        count = np.searchsorted(np.cumsum(loss[order]), loss[kept].sum() * (1 - 1e-9)) + 1
        paid, greedy_paid = paid + size[kept].sum(), greedy_paid + size[order[:count]].sum()
        assert [s["rank"] <= kept.sum() for s in sites] == kept.tolist()
    assert paid < greedy_paid


@pytest.mark.parametrize("options", [{}, {"asymmetric": True}, {"weight_bits": 4}], ids=str)
@pytest.mark.parametrize("opset", [17, 21])
def test_no_warning_of_files_of_our_own(options, opset, tmp_path):
    for target in ("cpu", "openvino"):
        made = qkv.Model(DIGITS).quantize(dynamic=True, target=target, **options)
        made.save_onnx(tmp_path / "q.onnx", opset=opset, profile="ort" if target == "cpu" else target)
        report = qkv.check(tmp_path / "q.onnx", target="ort" if target == "cpu" else target)
        assert not report.errors and not report.warnings


@pytest.mark.parametrize("most, batches", [(8, 3), (64, 1)])
def test_batches_are_as_large_as_the_model_takes(most, batches, tmp_path):
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    weight = onnx.numpy_helper.from_array(rng.standard_normal((32, 32), np.float32), "w")
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                                   *([onnx.helper.make_tensor_value_info(v, 1, ["n", 32])] for v in "xy"), [weight])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.helper.set_model_props(made, {"qkv.range.n": f"1..{most}"})
    onnx.save(made, tmp_path / "m.onnx")
    model = qkv.Model(tmp_path / "m.onnx").quantize({"x": rng.standard_normal((20, 32), np.float32)})
    assert model.quantize_report["batches"] == batches


@pytest.mark.parametrize("target", ["cpu", "ort", "tensorrt", "tensorrt-10", "tensorrt-10-fp8", "tensorrt-8",
                                    "openvino"])
def test_commands_take_the_same_targets(target, tmp_path):
    """A name that qkv quantize takes is one of qkv convert and qkv check, which speak of its runtime."""
    made = subprocess.run([QKV, "quantize", DIGITS, "--target", target, "-o", tmp_path / "q.onnx"], capture_output=True)
    done = subprocess.run([QKV, "convert", tmp_path / "q.onnx", "--target", target, "--opset", "19", "-o",
                           tmp_path / "c.onnx"],
                          capture_output=True)
    assert made.returncode == done.returncode == 0
    done = subprocess.run([QKV, "check", tmp_path / "c.onnx", "--target", f"qkv,{target}", "--json"],
                          capture_output=True, text=True)
    runtime = "ort" if target == "cpu" else target.split("-")[0]
    assert done.returncode == 0 and json.loads(done.stdout)["targets"] == ["qkv", runtime]


def test_floats_of_quantized_weights_are_not_kept(digits, tmp_path):
    made = qkv.Model(DIGITS).quantize({"image": digits[0]}, smooth=0.5)
    made.save(tmp_path / "q.pt2")
    kept = [n for n, w in made.weights().items() if w.dtype == np.float32 and w.ndim == 2]
    assert not [n for n in kept if "smooth" in n or n + "_int8" in made.weights()]
    assert (tmp_path / "q.pt2").stat().st_size < DIGITS.stat().st_size


def test_scales_of_tokens_are_one_op(digits, tmp_path):
    for asymmetric in (False, True):
        made = qkv.Model(DIGITS).quantize(dynamic=True, asymmetric=asymmetric)
        made.save(tmp_path / "d.pt2")
        out = subprocess.run([QKV, "graph", tmp_path / "d.pt2", "--after", "integers"], check=True, capture_output=True,
                             text=True).stdout
        assert "qkv.quantize_rows" in out and "aten.amax" not in out and "qkv.linear_integer" in out
        assert np.array_equal(logits(made, digits[1][:4]), logits(qkv.Model(tmp_path / "d.pt2"), digits[1][:4]))


def test_any_number_of_threads(digits):
    known, x, _ = digits
    made = [qkv.Model(DIGITS).quantize({"image": known}, threads=n, calibration="mse") for n in (1, 3)]
    assert made[0].quantize_report["points"] == made[1].quantize_report["points"]
    assert np.array_equal(logits(made[0], x), logits(made[1], x))


@pytest.mark.parametrize("target", ["cpu", "tensorrt-10", "openvino"])
@pytest.mark.parametrize("opset", [17, 21, 23])
def test_onnx_runtime_agrees(digits, tmp_path, target, opset):
    ort = pytest.importorskip("onnxruntime")
    known, x, _ = digits
    np.savez(tmp_path / "known.npz", image=known)
    path = tmp_path / "q.onnx"
    subprocess.run([QKV, "quantize", DIGITS, "--calibrate", tmp_path / "known.npz", "--target", target, "--opset",
                    str(opset), "-o", path], check=True, capture_output=True)
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # else sums saturate on AVX2
    expected = ort.InferenceSession(path, plain).run(None, {"image": x})[0]
    assert cosine(logits(qkv.Model(path), x), expected) > 0.99999


@pytest.mark.turns
def test_float8(digits, tmp_path):
    """TensorRT's float8: 1/448 after the softmax; values as torch.float8_e4m3fn has them, in every runtime."""
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    known, x, labels = digits
    model, path = qkv.Model(DIGITS), tmp_path / "q.onnx"
    made = model.quantize({"image": known}, target="tensorrt-10-fp8")
    report, weights = made.quantize_report, made.weights()
    attentions = [s["why_not"] for s in report["sites"] if s["kind"] == "attention"]
    assert attentions == [None] * 4 and {p["dtype"] for p in report["points"]} == {"f8e4m3fn"}
    assert next(s["why_not"] for s in report["sites"] if s["weight"] == "head.weight") == (
        "it has 10 results, tensorrt-10-fp8 takes 16 and more")
    found = logits(made, x)
    assert (found.argmax(1) == labels).mean() >= 0.99 and 0.999 < cosine(found, logits(model, x)) < 0.99999
    made.save_onnx(path, opset=report["opset"], profile="tensorrt")
    onnx.checker.check_model(onnx.load(path), full_check=True)
    graph = onnx.load(path).graph
    values = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer if not t.dims}
    by = [n for n in graph.node if n.op_type == "QuantizeLinear"]
    assert len(by) == len(report["points"]) + 4 and report["opset"] == 19
    feeds = {n.output[0]: n.op_type for n in graph.node}
    products = [[feeds[i] for i in n.input] for n in graph.node if n.op_type == "MatMul"]
    assert products.count(["DequantizeLinear"] * 2) == 24  # of them 16 weights, which are held transposed
    assert sum(values.get(n.input[1]) == np.float32(1 / 448) for n in by) == 4
    assert cosine(logits(qkv.Model(path), x), found) > 0.999999
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # it takes float8 for int8 (1.31)
    assert cosine(ort.InferenceSession(path, plain).run(None, {"image": x})[0], found) > 0.99999
    made.save(tmp_path / "q.pt2")
    program = torch.export.load(tmp_path / "q.pt2")
    with torch.no_grad():
        eager = program.module()(torch.from_numpy(x)).numpy()
    assert cosine(eager, found) > 0.99999 and cosine(logits(qkv.Model(tmp_path / "q.pt2"), x), found) > 0.99999
    name, held = next((n, w) for n, w in program.state_dict.items() if n.endswith("_f8"))
    w = torch.from_numpy(model.weights()[name[:-3]].copy())
    scale = torch.from_numpy(weights[name[:-3] + "_scale"].copy())
    assert torch.equal(held.float(), (w / scale[:, None]).to(torch.float8_e4m3fn).float())
    for wrong in ({"asymmetric": True}, {"dynamic": True}, {"calibration": "entropy"}):
        with pytest.raises(qkv.Error, match="leave out asymmetric|takes minmax"):
            model.quantize(target="tensorrt-10-fp8", **wrong)


def test_dynamic_and_read_back(digits, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    _, x, _ = digits
    path = tmp_path / "q.onnx"
    made = qkv.Model(DIGITS).quantize(dynamic=True)
    made.save_onnx(path, opset=21)
    found = ort.InferenceSession(path).run(None, {"image": x})[0]
    assert cosine(logits(made, x), found) > 0.99999 and cosine(logits(qkv.Model(path), x), found) > 0.99999


@pytest.fixture(scope="module")
def two_layers(tmp_path_factory):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(40, 48), torch.nn.ReLU(), torch.nn.Linear(48, 24))
    x, path = torch.randn(9, 5, 40), tmp_path_factory.mktemp("layers") / "m.pt2"
    torch.export.save(torch.export.export(layers, (x,), dynamic_shapes=({0: torch.export.Dim("b", max=64)},)), path)
    return qkv.Model(path), x.numpy()


@pytest.mark.parametrize("options", [{"dynamic": True}, {"dynamic": True, "asymmetric": True},
                                     {"weight_bits": 4, "group": 64}, {"weight_bits": 4, "group": 8}], ids=str)
@pytest.mark.parametrize("profile", ["ort", "openvino"])
@pytest.mark.parametrize("opset", [13, 20])
def test_scales_of_tokens_and_rows_in_old_opsets(two_layers, tmp_path, options, profile, opset):
    """Without blocks: scales of tokens are spelled out; 4 bits by a scale a row are a MatMulNBits of one block, those
    of other targets and of short blocks bytes with a block a row."""
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    model, x = two_layers
    path, made = tmp_path / "q.onnx", model.quantize(**options)
    made.save_onnx(path, opset=opset, profile=profile)
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # else it rounds once more
    found = ort.InferenceSession(path, plain).run(None, {made.inputs[0]: x})[0]
    assert cosine(logits(made, x), found) > 0.99999 and cosine(logits(qkv.Model(path), x), found) > 0.99999
    ops, alone = [n.op_type for n in onnx.load(path).graph.node], "weight_bits" in options
    bits = alone and profile == "ort" and options["group"] == 64
    assert ops.count("MatMulNBits") == 2 * bits and "QuantizeLinear" not in ops
    assert ops.count("DequantizeLinear") == 2 * (not bits)  # of weights
    out = subprocess.run([QKV, "graph", path, "--after", "integers"], check=True, capture_output=True, text=True).stdout
    assert out.count("qkv.linear_blocks") == 2 and out.count("bits=4") == 2 * alone
    if profile == "openvino":
        assert cosine(logits(made, x), openvino_results(path, x)) > 0.9999  # it rounds to 8 bits once more


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_dynamic_in_onnx_runtime(digits, tmp_path, asymmetric, opset):
    """Its fused product takes no zero point a row (MatMulIntegerToFloat)."""
    ort = pytest.importorskip("onnxruntime")
    x = digits[1]
    made = qkv.Model(DIGITS).quantize(dynamic=True, asymmetric=asymmetric)
    made.save_onnx(tmp_path / "q.onnx", opset=opset)
    found = ort.InferenceSession(tmp_path / "q.onnx", providers=["CPUExecutionProvider"]).run(None, {"image": x})[0]
    assert cosine(logits(made, x), found) > 0.9999


@pytest.mark.parametrize("asymmetric", [False, True])
def test_dynamic_in_openvino(digits, tmp_path, asymmetric):
    """It reads no scales of blocks of values whose sizes vary."""
    _, x, _ = digits
    made = qkv.Model(DIGITS).quantize(dynamic=True, asymmetric=asymmetric)
    made.save_onnx(tmp_path / "q.onnx", opset=21, profile="openvino")
    found = openvino_results(tmp_path / "q.onnx", x)
    assert cosine(logits(made, x), found) > 0.9999 and cosine(logits(qkv.Model(tmp_path / "q.onnx"), x), found) > 0.9999


@pytest.mark.parametrize("options", [{"target": "tensorrt-10"}, {"asymmetric": True, "target": "tensorrt-10"},
                                     {"dynamic": True}], ids=str)
def test_torch_loads_it(tmp_path, options):
    torch = pytest.importorskip("torch")
    import torch.ao.quantization.fx._decomposed  # noqa: F401  (defines the ops)
    from parts import Attending

    torch.manual_seed(0)
    x = torch.randn(8, 20, 64)
    size = torch.export.Dim("batch", max=64)
    torch.export.save(torch.export.export(Attending(), (x,), dynamic_shapes=({0: size},)), tmp_path / "m.pt2")
    made = qkv.Model(tmp_path / "m.pt2").quantize(None if options.get("dynamic") else {"x": x}, **options)
    made.save(tmp_path / "q.pt2")
    program = torch.export.load(tmp_path / "q.pt2")
    used = {str(n.target) for n in program.graph.nodes if n.op == "call_function"}
    assert any("quantized_decomposed" in name for name in used)
    expected = program.module()(x).detach().numpy()
    assert cosine(logits(made, x), expected) > 0.99999
    assert cosine(logits(qkv.Model(tmp_path / "q.pt2"), x), expected) > 0.99999
    report = made.quantize_report
    assert [s["why_not"] for s in report["sites"]] == [None] * len(report["sites"])


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"asymmetric": True, "target": "openvino"}], ids=str)
def test_massive_activations_stay_in_floats(tmp_path, options):
    """A channel that is thousands of times the others and says nothing: with it in one scale, rounding decides."""
    torch = pytest.importorskip("torch")

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.head = torch.nn.Linear(64, 64), torch.nn.Linear(64, 50)
            self.register_buffer("outlier", torch.zeros(64))
            self.outlier[7] = 6000.0
            with torch.no_grad():
                self.head.weight[:, 7] = 0.05

        def forward(self, x):
            return self.head(torch.tanh(self.a(x)) + self.outlier)

    torch.manual_seed(0)
    m, x = M().eval(), torch.randn(40, 8, 64)
    torch.export.save(torch.export.export(m, (x,)), tmp_path / "m.pt2")
    model, name = qkv.Model(tmp_path / "m.pt2"), "x"
    want, data = np.asarray(model(x)[0]).argmax(-1), {name: x.numpy()}

    def agreement(**more):
        made = model.quantize(data, **options, **more)
        return (np.asarray(made(x)[0]).argmax(-1) == want).mean(), made.quantize_report

    flipped, report = agreement(massive=1e9)
    assert flipped < 0.3 and report["left"] == 0
    same, report = agreement()
    assert same >= 0.97 and [s["weight"] for s in report["sites"] if s["why_not"]] == ["head.weight"]
    why = report["sites"][1]["why_not"]
    assert "massive activations: the largest is" in why and "channel 7 of 64, in 320 of 320 tokens" in why
    found = report["outputs"][0]
    assert found["rows"] == 320 and found["same_argmax"] == round(same * 320)


def test_tensorrt_is_its_newest_version(digits, tmp_path):
    report = qkv.Model(DIGITS).quantize({"image": digits[0]}, target="tensorrt").quantize_report
    assert report["target"] == "tensorrt-10"
    for name, code in ("tensorrt-8", 0), ("tensorrt-7", 2):
        done = subprocess.run([QKV, "convert", DIGITS, "--target", name, "-o", tmp_path / "m.onnx"],
                              capture_output=True, text=True)
        assert done.returncode == code and ("target tensorrt" in done.stdout) == (not code)


@pytest.mark.parametrize("target, flags", [("tensorrt-10", "--int8 --fp16"), ("tensorrt-10-fp8", "--stronglyTyped")])
def test_trtexec_is_told_what_is_quantized(target, flags, tmp_path):
    out = tmp_path / "q.onnx"
    done = subprocess.run([QKV, "quantize", DIGITS, "--target", target, "-o", out], capture_output=True, text=True)
    assert done.returncode == 0 and f"trtexec --onnx={out} {flags} --minShapes" in done.stdout


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_by_blocks_go_from_pt2_to_old_opsets(bits, digits, tmp_path):
    """A .pt2 spells a zero point of zeros out, which MatMulNBits and blocks of rows do without."""
    ort = pytest.importorskip("onnxruntime")
    x = digits[1][:8]
    made = qkv.Model(DIGITS).quantize(weight_bits=bits)
    made.save(tmp_path / "w.pt2")
    want = np.asarray(made(x)[0])
    for profile in ("ort", "tensorrt"):
        qkv.Model(tmp_path / "w.pt2").save_onnx(tmp_path / "w.onnx", opset=18, profile=profile)
        session = ort.InferenceSession(tmp_path / "w.onnx", providers=["CPUExecutionProvider"])
        assert cosine(session.run(None, {"image": x})[0], want) > 0.9999


def refused(*args, **options):
    with pytest.raises(qkv.Error) as e:
        qkv.Model(DIGITS).quantize(*args, **options)
    return str(e.value)


def test_data_that_do_not_fit(digits):
    known = digits[0]
    bad = known.copy()
    every = {}, {"dynamic": True}, {"dynamic": True, "smooth": 0.5}, {"weight_bits": 4, "weight_method": "gptq"}
    bad[40, 0, 3, 3] = np.nan
    for options in *every, {"weight_bits": 4}:
        assert "the calibration data 'image' are NaN in row 40 (element 27 of it)" in refused({"image": bad}, **options)
    bad[40, 0, 3, 3] = -np.inf  # which a mask may have
    for options in every:
        words = refused({"image": bad}, **options)
        assert "the calibration data 'image' are infinite in row 40 (element 27 of it): value 'layer_norm'" in words
    assert "are f64, expected f32: convert them" in refused({"image": known.astype(np.float64)})
    assert "nothing to quantize: linear__194: massive activations" in refused({"image": known}, massive=1)
    assert "takes scales that are constants: leave out dynamic" in refused(dynamic=True, target="tensorrt")
    assert "axis 2 is 7, expected 8" in refused({"image": known[:, :, :7]})
    assert "no input is called 'picture'" in refused({"picture": known})
    assert "have no rows" in refused({"image": known[:0]})
    assert "no target is called 'tpu'; there are cpu, tensorrt-10" in refused(target="tpu")
    assert "calibration 'guess': expected minmax" in refused(calibration="guess")


def test_attention_under_a_mask_of_minus_infinity(tmp_path):
    """Sessions leave it as it is, for rows without a key are NaN; a quantized model has it as one op."""
    torch = pytest.importorskip("torch")

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(32, 96)

        def forward(self, x):
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
            allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
            return (q @ k.mT / 4).masked_fill(~allowed, float("-inf")).softmax(-1) @ v

    torch.manual_seed(0)
    x, axes = torch.randn(4, 12, 32), {1: torch.export.Dim("t", min=2, max=64)}
    torch.export.save(torch.export.export(M().eval(), (x,), dynamic_shapes=(axes,)), tmp_path / "m.pt2")
    made = qkv.Model(tmp_path / "m.pt2").quantize({"x": x.numpy()}, target="tensorrt-10")
    sites = made.quantize_report["sites"]
    assert [(s["kind"], s["why_not"]) for s in sites] == [("linear", None), ("attention", None)]
    assert made.quantize_report["outputs"][0]["cosine"] > 0.999


def test_what_is_quantized_already(digits):
    made = qkv.Model(DIGITS).quantize({"image": digits[0]})
    with pytest.raises(qkv.Error, match="quantized already: node"):
        made.quantize(dynamic=True)


def test_names_that_nothing_has(digits, tmp_path):
    for name, words in [("haed*", "no weight or op of theirs, is called 'haed*'"),
                        ("hed.weight", "is called 'hed.weight'; did you mean 'head.weight'?")]:
        done = subprocess.run([QKV, "quantize", DIGITS, "--dynamic", "--skip", f"head*,{name}", "-o",
                               tmp_path / "q.onnx"], capture_output=True, text=True)
        assert done.returncode == 2 and words in done.stderr and not (tmp_path / "q.onnx").exists()
        assert f"is called '{name}'" in refused(dynamic=True, skip=["head*", name])


def test_ops_that_are_skipped(digits):
    def left(*skip):
        report = qkv.Model(DIGITS).quantize({"image": digits[0]}, target="openvino", skip=skip).quantize_report
        return {s["kind"] for s in report["sites"] if s["why_not"]}

    assert left("aten.scaled_dot_product_attention*") == left("aten.scaled_dot_*") == {"attention"}
    assert "linear" in left("aten.linear.default") and "attention" not in left("aten.linear.default")
    assert "is called '*linear.default'" in refused({"image": digits[0]}, skip="*linear.default")


@pytest.mark.parametrize("begins, kind", [(b"eight bytes and more of text", "a text"),
                                          (b"\x89PNG\r\n\x1a\n\0", "a PNG image"),
                                          (b"\xff\xd8\xff\xe0 JFIF...", "a JPEG image"),
                                          (b"\x08\x08\x12\x03qkv\x1a\x05", "an ONNX model"),
                                          (b"\0" * 7 + b"\x7f?", "something else")])
def test_calibration_data_of_a_wrong_kind(tmp_path, begins, kind):
    (tmp_path / "data").write_bytes(begins)
    done = subprocess.run([QKV, "quantize", DIGITS, "--calibrate", tmp_path / "data", "-o", tmp_path / "q.onnx"],
                          capture_output=True, text=True)
    words = f"data: it is {kind}, expected a file of tensors: .safetensors, .npz or .npy"
    assert done.returncode == 3 and words in done.stderr


def test_calibration_data_that_are_a_model(tmp_path):
    done = subprocess.run([QKV, "quantize", DIGITS, "--calibrate", DIGITS, "-o", tmp_path / "q.onnx"],
                          capture_output=True, text=True)
    assert done.returncode == 2 and "holds no tensors to calibrate with: expected an array for" in done.stderr


def test_an_empty_file(tmp_path):
    np.savez(tmp_path / "none.npz")
    done = subprocess.run([QKV, "quantize", DIGITS, "--calibrate", tmp_path / "none.npz", "-o", tmp_path / "q.onnx"],
                          capture_output=True, text=True)
    assert done.returncode in (2, 3) and "none.npz" in done.stderr and not (tmp_path / "q.onnx").exists()


def test_a_folder_of_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    folder = DIGITS.parent / "digits"
    x = np.stack([np.asarray(image.open(f), np.float32)[None] / 255 for f in sorted(folder.glob("*.png"))])
    np.savez(tmp_path / "known.npz", image=(x - np.float32(0.25)) / 2)
    for data, name in ([folder, "--mean", "0.25", "--std", "2"], "a.onnx"), ([tmp_path / "known.npz"], "b.onnx"):
        subprocess.run([QKV, "quantize", DIGITS, "--calibrate", *data, "-o", tmp_path / name], check=True)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_random_ranges_are_said_loudly(tmp_path):
    done = subprocess.run([QKV, "quantize", DIGITS, "-o", tmp_path / "q.onnx"], capture_output=True, text=True)
    assert done.returncode == 0 and "warning: the ranges come from random inputs" in done.stderr


def test_channels_of_zeros_and_layers_left(tmp_path):
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(16, 8)
    with torch.no_grad():
        layer.weight[3] = 0
    torch.export.save(torch.export.export(layer, (torch.randn(4, 16),)), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    made, x = model.quantize(dynamic=True), np.ones((4, 16), np.float32)
    assert logits(made, x)[0, 3] == logits(model, x)[0, 3] and made.weights()["weight_scale"][3] == 1
    with pytest.raises(qkv.Error, match="nothing to quantize: .*asked to be left"):
        model.quantize(dynamic=True, skip="weig*")


def pictures(n):
    return np.random.default_rng(3).random((n, 1, 8, 8), np.float32)


def cached_arrays(path):
    """{name: a writable view of its bytes}, and the bytes of the whole file."""
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    dtypes = {"I64": np.int64, "F64": np.float64, "U32": np.uint32, "U8": np.uint8}
    return {name: np.frombuffer(memoryview(data)[start + t["data_offsets"][0]:start + t["data_offsets"][1]],
                                dtypes[t["dtype"]])
            for name, t in json.loads(data[8:start]).items() if name != "__metadata__"}, data


@pytest.mark.parametrize("how", ["minmax", "average", "entropy"])
def test_calibration_goes_on_where_it_was_stopped(tmp_path, how):
    model, data, cache = qkv.Model(DIGITS), {"image": pictures(64)}, tmp_path / "seen.safetensors"
    want = model.quantize(data, how, batch=8).quantize_report
    calls = []

    def stop(done, total):
        calls.append(done)
        return done == 5

    with pytest.raises(qkv.Error, match="stopped"):
        model.quantize(data, how, batch=8, calibration_cache=cache, progress=stop)
    assert calls == [1, 2, 3, 4, 5]
    for first in (6, (16 if how == "entropy" else 8) + 1):  # of the rest, then of the comparison alone
        calls = []
        got = model.quantize(data, how, batch=8, calibration_cache=cache, threads=1,
                             progress=lambda done, total: calls.append(done)).quantize_report
        assert calls[0] == first and got == want
    with pytest.raises(qkv.Error, match="another model or other data"):
        model.quantize({"image": pictures(64) * 2}, how, batch=8, calibration_cache=cache)
    with pytest.raises(qkv.Error, match="a calibration cache keeps ranges, and dynamic has none"):
        model.quantize(dynamic=True, calibration_cache=cache)


def test_every_look_at_the_data_tells_its_progress():
    calls = []
    qkv.Model(DIGITS).quantize({"image": pictures(48)}, "mse", batch=16, smooth=0.5, correct=True,
                               progress=lambda done, total: calls.append((done, total)))
    looks = [(i, 3) for i in (1, 2, 3)]
    assert calls == looks + looks + [(i, 9) for i in range(1, 10)]  # smoothing, biases; ranges twice, comparison
    with pytest.raises(qkv.Error, match="stopped"):
        qkv.Model(DIGITS).quantize({"image": pictures(48)}, smooth=0.5, batch=16, progress=lambda done, total: True)


def test_a_damaged_calibration_cache_is_refused(tmp_path):
    model, data, cache = qkv.Model(DIGITS), {"image": pictures(32)}, tmp_path / "seen.safetensors"
    model.quantize(data, "mse", batch=16, calibration_cache=cache)
    for name, at, value in (("done", 0, 5), ("done", 0, -1), ("count", 3, -1), ("range", 1, np.nan), ("bins", 7, -1),
                            ("bins", 7, np.inf), ("all", 1, -2), ("rows", 1, -2), ("channels", 0, -1),
                            ("channels", 1, 1 << 62), ("channels", 0, 1), ("most", 2, 0x7f800000)):
        arrays, whole = cached_arrays(cache)
        arrays[name][at] = value
        (tmp_path / "bad.safetensors").write_bytes(whole)
        with pytest.raises(qkv.Error, match="bad.safetensors: it holds no '.*' that qkv quantize would write") as e:
            model.quantize(data, "mse", batch=16, calibration_cache=tmp_path / "bad.safetensors")
        assert e.value.code == 3
    (tmp_path / "bad.safetensors").write_bytes(cache.read_bytes()[:-9])
    with pytest.raises(qkv.Error, match="calibration cache: "):
        model.quantize(data, "mse", batch=16, calibration_cache=tmp_path / "bad.safetensors")


def test_convolutions_alone_need_calibration(tmp_path):
    torch = pytest.importorskip("torch")
    x = torch.randn(1, 3, 12, 12)
    torch.export.save(torch.export.export(torch.nn.Conv2d(3, 64, 3), (x,)), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    with pytest.raises(qkv.Error, match="convolutions need scales from calibration"):
        model.quantize(dynamic=True)
    assert cosine(logits(model.quantize({"input": x.numpy()}), x.numpy()), logits(model, x.numpy())) > 0.999
