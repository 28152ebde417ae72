"""What qkv writes of a model it reads again, whatever the numbers in the file:
slices from the end are bounded once more when a packed model is read."""
import json
import os
import pathlib
import random
import re
import subprocess
import zipfile

import pytest
import qkv

ROOT = pathlib.Path(__file__).parent.parent.parent
QKV = os.environ.get("QKV", str(ROOT / "build" / "qkv"))


def cut(model, number, out):
    """model with every slice's last integer replaced; False where it has no slice."""
    with zipfile.ZipFile(model) as z:
        files = {i.filename: z.read(i) for i in z.infolist()}
    key = next(k for k in files if k.endswith("models/model.json"))
    doc = json.loads(files[key])
    found = False
    for n in doc["graph_module"]["graph"]["nodes"]:
        last = [i["arg"] for i in n["inputs"] if "as_int" in i["arg"]]
        if n["target"] == "torch.ops.aten.slice.Tensor" and last:
            last[-1]["as_int"], found = number, True
    files[key] = json.dumps(doc).encode()
    with zipfile.ZipFile(out, "w") as z:
        for k, v in files.items():
            z.writestr(k, v)
    return found


@pytest.mark.parametrize("number", [-1, 1, 3, 1 << 31, (1 << 63) - 1])
def test_what_is_written_loads(tmp_path, number):
    wrote = 0
    for model in sorted((ROOT / "tests/models/small").glob("*.pt2")):
        if not cut(model, number, tmp_path / "m.pt2"):
            continue
        for command, out in (("pack", "m.qkv"), ("rewrite", "r.pt2"), ("convert", "m.onnx")):
            done = subprocess.run([QKV, command, "-q", tmp_path / "m.pt2", "-o", tmp_path / out], capture_output=True)
            if done.returncode:
                continue    # it may be refused, with what is wrong
            wrote += 1
            read = subprocess.run([QKV, "inspect", tmp_path / out], capture_output=True, text=True)
            assert read.returncode == 0, f"{model.name}, {command}: {read.stderr}"
    assert wrote


def test_sizes_that_no_machine_runs(tmp_path):
    """Packing runs the model once; sizes of 2^31 are written without packed weights, at once and in little memory."""
    size = ROOT / "tests/models/small/size_arithmetic.pt2"
    with zipfile.ZipFile(size) as z:
        files = {i.filename: z.read(i) for i in z.infolist()}
    key = next(k for k in files if k.endswith("models/model.json"))
    doc = json.loads(files[key])
    pad = next(i["arg"]["as_ints"] for n in doc["graph_module"]["graph"]["nodes"] for i in n["inputs"]
               if "as_ints" in i["arg"] and i["name"] == "pad")
    pad[-1] = 1 << 31
    files[key] = json.dumps(doc).encode()
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as z:
        for k, v in files.items():
            z.writestr(k, v)
    done = subprocess.run([QKV, "pack", tmp_path / "m.pt2", "-o", tmp_path / "m.qkv"], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 0 and "the limit is 50331648" in done.stdout + done.stderr
    assert subprocess.run([QKV, "inspect", tmp_path / "m.qkv"], capture_output=True).returncode == 0


@pytest.mark.parametrize("op, argument", [("conv2d", "stride"), ("conv2d", "padding"), ("max_pool2d", "kernel_size"),
                                          ("max_pool2d", "stride")])
def test_windows_that_no_reader_takes(tmp_path, op, argument):
    """A stride of 2^40 was written to ONNX, where our own reader refuses it: it is refused where it enters."""
    with zipfile.ZipFile(ROOT / "tests/models/small/resnet_small.pt2") as z:
        files = {i.filename: z.read(i) for i in z.infolist()}
    key = next(k for k in files if k.endswith("models/model.json"))
    doc = json.loads(files[key])
    node = next(n for n in doc["graph_module"]["graph"]["nodes"] if n["target"] == f"torch.ops.aten.{op}.default")
    next(i["arg"] for i in node["inputs"] if i["name"] == argument)["as_ints"] = [1 << 40, 1 << 40]
    files[key] = json.dumps(doc).encode()
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as z:
        for k, v in files.items():
            z.writestr(k, v)
    with pytest.raises(qkv.Error, match=f"argument '{argument}': found 1099511627776, expected at most 1073741824"):
        qkv.Model(str(tmp_path / "m.pt2"))


NUMBERS = [-2**63, -2**31, -65, -1, 0, 1, 2, 3, 7, 64, 2**24, 2**31 - 1, 2**31, 2**40, 2**46, 2**63 - 1]
SIZES = ["Min({}, Integer({}))", "Max({}, Integer({}))", "Mul({}, Integer({}))", "Add({}, Integer({}))",
         "FloorDiv({}, Integer({}))", "Mod({}, Integer({}))"]


def slots(x, found):
    """Where numbers, truth values and size expressions stand below x."""
    for k, v in (x.items() if isinstance(x, dict) else enumerate(x)):
        if k in ("metadata", "dtype", "layout", "device"):
            continue
        if isinstance(v, (dict, list)):
            slots(v, found)
        elif isinstance(v, int) or k == "expr_str":
            found.append((x, k))
    return found


def mutate(doc, rng):
    found = slots(doc["graph_module"]["graph"], slots(doc["range_constraints"], []))
    for x, k in rng.choices(found, k=rng.choice([1, 1, 2])):
        old = x[k]
        x[k] = (not old if isinstance(old, bool) else rng.choice([old + 1, -old, 2 * old, rng.choice(NUMBERS)])
                if isinstance(old, int) else
                rng.choice(SIZES).format(old, rng.choice([-1, 0, 1, 2, 14, 2**31, 2**62])))


@pytest.mark.parametrize("seed", range(4))
def test_mutants_are_read_back(tmp_path, seed):
    """Sizes, ranges and arguments at random: what loads and can be written must load again. QKV_MUTANTS: how many, for a longer search."""
    rng, wrote = random.Random(seed), 0
    for _ in range(int(os.environ.get("QKV_MUTANTS", "20"))):
        with zipfile.ZipFile(rng.choice(sorted((ROOT / "tests/models/small").glob("*.pt2")))) as z:
            files = {i.filename: z.read(i) for i in z.infolist()}
        key = next(k for k in files if re.search(r"models/[^/]*\.json$", k))
        doc = json.loads(files[key])
        mutate(doc, rng)
        files[key] = json.dumps(doc).encode()
        with zipfile.ZipFile(tmp_path / "m.pt2", "w") as z:
            for k, v in files.items():
                z.writestr(k, v)
        try:
            model = qkv.Model(str(tmp_path / "m.pt2"))
        except qkv.Error:
            continue
        for name, write in ("s.pt2", model.save), ("m.onnx", model.save_onnx), ("m.qkv", model.pack):
            try:
                write(str(tmp_path / name))
            except qkv.Error:
                continue
            wrote += 1
            qkv.Model(str(tmp_path / name))
    assert wrote


GRAPHS = {  # what was written and could not be read, as text of onnx
    "a loop of fewer than no turns": "g (float[2] x) => (float[2] y, float[k, 2] s) <int64 n = {-1}> "
    "{ y, s = Loop (n, , x) <body = b (int64 i, bool d, float[2] a) => (bool e, float[2] z, float[2] t) "
    "{ e = Identity (d) z = Neg (a) t = Neg (a) }> }",
    "a count that an input holds": "g (float[2, 5] x, int64[1] k) => (float[2, n] y, int64[2, n] i) "
    "{ y, i = TopK (x, k) }",
    "integers that do not saturate": "g (float[2] x) => (uint8[2] y) <float s = {0.5}> "
    "{ y = QuantizeLinear <saturate = 0> (x, s) }",
    "a quotient of 4 bits": "g (float[2] x) => (uint8[2] y) <float s = {0.5}> "
    "{ y = QuantizeLinear <precision = 23> (x, s) }",
}


@pytest.mark.parametrize("what", GRAPHS)
def test_onnx_is_read_back(tmp_path, what):
    onnx = pytest.importorskip("onnx")
    text = '<ir_version: 10, opset_import: ["": 23]>\n' + GRAPHS[what]
    (tmp_path / "in.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    model, wrote = qkv.Model(tmp_path / "in.onnx"), 0
    for name, write in ("s.pt2", model.save), ("m.onnx", model.save_onnx), ("m.qkv", model.pack):
        try:
            write(str(tmp_path / name))
        except qkv.Error as e:
            assert "a type that PyTorch does not have" in str(e)
            continue
        wrote += 1
        qkv.Model(str(tmp_path / name))
    assert wrote > 1


def test_topk_of_a_negative_count(tmp_path):
    onnx, np = pytest.importorskip("onnx"), pytest.importorskip("numpy")
    text = '<ir_version: 10, opset_import: ["": 23]>\n' + GRAPHS["a count that an input holds"]
    (tmp_path / "in.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    model, x = qkv.Model(tmp_path / "in.onnx"), np.arange(10, dtype=np.float32).reshape(2, 5)
    assert model.run({"x": x, "k": np.int64([2])})["y"].tolist() == [[4, 3], [9, 8]]
    with pytest.raises(qkv.Error, match="a length of at least 0"):
        model.run({"x": x, "k": np.int64([-3])})


@pytest.mark.parametrize("name", ["inf", "nan", "True", "or", "zuf0", "2", "x" * 255, "x" * 256, "\u00e9" * 300, "a.b"])
def test_names_of_sizes(tmp_path, name):
    """Words of size expressions, and names that are too long to be read."""
    onnx = pytest.importorskip("onnx")
    x, y = (onnx.helper.make_tensor_value_info(k, 1, dims) for k, dims in
            (("x", [name, name[:240] + "_", 4]), ("y", [None, None, 4])))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    (tmp_path / "in.onnx").write_bytes(made.SerializeToString())
    model = qkv.Model(tmp_path / "in.onnx")
    assert len(model.symbols) == 2
    for path, write in ("s.pt2", model.save), ("m.onnx", model.save_onnx), ("m.qkv", model.pack):
        write(str(tmp_path / path))
        assert len(qkv.Model(str(tmp_path / path)).symbols) == 2


@pytest.mark.parametrize("inputs, known, size", [("", "<int64[1] k = {3}> {", "3"),
                                                 (", float[m] z", "{ k = Shape(z)", "m")])
def test_topk_refuses_short_rows(tmp_path, inputs, known, size):
    """A .pt2 file of it has a slice, which by itself takes what there is; an ONNX file TopK again."""
    onnx = pytest.importorskip("onnx")
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g (float[2, n] x{inputs}) '
                                   f"=> (float[2, {size}] y) {known} y, i = TopK(x, k) }}")
    (tmp_path / "in.onnx").write_bytes(made.SerializeToString())
    model = qkv.Model(tmp_path / "in.onnx")
    model.save(str(tmp_path / "s.pt2"))
    model.pack(str(tmp_path / "m.qkv"))
    model.save_onnx(str(tmp_path / "again.onnx"))
    qkv.Model(tmp_path / "s.pt2").save_onnx(str(tmp_path / "of_pt2.onnx"))
    for path in "in.onnx", "s.pt2", "m.qkv", "again.onnx", "of_pt2.onnx":
        for n in 3, 2:
            shapes = ["--shape", f"x:2x{n}"] + (["--shape", "z:3"] if inputs else [])
            done = subprocess.run([QKV, "run", str(tmp_path / path), *shapes], capture_output=True, text=True)
            assert (done.returncode == 0) == (n == 3), (path, done)
            assert n == 3 or "k no larger than dim 1" in done.stderr, done
    torch = pytest.importorskip("torch")
    program = torch.export.load(tmp_path / "s.pt2").module()
    with pytest.raises((RuntimeError, AssertionError)):
        program(torch.randn(2, 2), *([torch.randn(3)] if inputs else []))
    assert program(torch.randn(2, 4), *([torch.randn(3)] if inputs else [])) is not None


@pytest.mark.parametrize("fill", [float("-inf"), -1e9, None])
def test_attention_that_sees_no_key(tmp_path, fill):
    """A mask of nothing but false, fused or not: the values are PyTorch's, before writing and after."""
    torch, np = pytest.importorskip("torch"), pytest.importorskip("numpy")

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.zeros(1, 1, 5, 5, dtype=torch.bool))

        def forward(self, q, k, v):
            if fill is None:
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
            return (q @ k.transpose(-1, -2) / 2).masked_fill(~self.mask, fill).softmax(-1) @ v

    inputs = tuple(torch.randn(1, 2, 5, 4) for _ in range(3))
    module, arrays = Attention(), [t.numpy() for t in inputs]
    torch.export.save(torch.export.export(module, inputs), tmp_path / "in.pt2")
    model = qkv.Model(tmp_path / "in.pt2")
    for path, write in ("s.pt2", model.save), ("m.onnx", model.save_onnx), ("m.qkv", model.pack):
        write(str(tmp_path / path))
    want = module(*inputs).numpy()
    for path in "in.pt2", "s.pt2", "m.onnx", "m.qkv":
        got = np.asarray(qkv.Model(str(tmp_path / path))(*arrays)).reshape(want.shape)
        assert np.allclose(got, want, rtol=1e-5, atol=1e-6, equal_nan=True), path


FRONTS = [(lambda y, i: (y[:, :3], i[:, :3]), True), (lambda y, i: (y[:, :3],), True), (lambda y, i: (i[:, :3],), True),
          (lambda y, i: (y[:, :3], i[:, :2]), False), (lambda y, i: (i[:, :3], i), False),
          (lambda y, i: (y[:, :3], y[:, 1:]), False), (lambda y, i: (y[:1],), False)]


def test_the_front_of_a_sorted_row(tmp_path):
    """What is sorted and cut is TopK of so many in ONNX, unless more is read of it than its front."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")

    class Sorted(torch.nn.Module):
        def forward(self, x):
            found = [torch.sort(x, dim=1, descending=k % 2 == 0, stable=True) for k in range(len(FRONTS))]
            return [y for (front, _), both in zip(FRONTS, found) for y in front(*both)]

    x = torch.tensor([[3., float("nan"), 1, 1, float("-inf"), 2], [0, -0., 5, 5, float("inf"), 5]])
    program = torch.export.export(Sorted(), (x,), dynamic_shapes=({1: torch.export.Dim("n", min=4)},))
    torch.export.save(program, tmp_path / "m.pt2")
    qkv.Model(tmp_path / "m.pt2").save_onnx(str(tmp_path / "m.onnx"))
    ops = [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node]
    assert ops.count("TopK") == len(FRONTS) and ops.count("Slice") == 6, ops
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    for n in 6, 4:
        part = x[:, :n].contiguous()
        for a, b in zip(Sorted()(part), session.run(None, {"x": part.numpy()}), strict=True):
            torch.testing.assert_close(torch.tensor(b), a, rtol=0, atol=0, equal_nan=True)


def test_a_rule_that_makes_more_than_there_was_room_for(tmp_path):
    """100 times three products with sums: the rules' own forms of them outgrow what the round began with."""
    onnx = pytest.importorskip("onnx")
    np = pytest.importorskip("numpy")
    make, numbers, random = onnx.helper, onnx.numpy_helper.from_array, np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i in range(100):
        for c in "qkv":
            weights += [numbers(random.standard_normal((8, 8)).astype(np.float32) / 10, f"w{c}{i}"),
                        numbers(random.standard_normal(8).astype(np.float32), f"b{c}{i}")]
            nodes += [make.make_node("MatMul", [x, f"w{c}{i}"], [f"p{c}{i}"]),
                      make.make_node("Add", [f"p{c}{i}", f"b{c}{i}"], [f"{c}{i}"])]
        nodes += [make.make_node("Mul", [f"q{i}", f"k{i}"], [f"m{i}"]),
                  make.make_node("Add", [f"m{i}", f"v{i}"], [f"a{i}"])]
        x = f"a{i}"
    value = make.make_tensor_value_info
    graph = make.make_graph(nodes, "g", [value("x", 1, ["n", 8])], [value(x, 1, ["n", 8])], weights)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    done = subprocess.run([QKV, "rewrite", "--json", tmp_path / "m.onnx"], capture_output=True, text=True)
    assert done.returncode == 0, done
    fired = [f for f in json.loads(done.stdout)["firings"] if f["rule"] == "linear_with_bias"]
    assert len(fired) == 300
