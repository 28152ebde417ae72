"""ONNX -> .pt2 -> PyTorch: loads with torch.export.load, eager's values at other sizes, weights by name, trainable;
and read back by qkv, the same text."""
import os
import re
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
import qkv  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QKV = os.environ.get("QKV", os.path.join(ROOT, "build", "qkv"))


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, 5)

    def forward(self, x, padding):
        return self.head(self.encoder(x, src_key_padding_mask=padding))


def inputs(batch, length):
    torch.manual_seed(batch)
    return torch.randn(batch, length, 32), torch.arange(length)[None,
                                                                :] >= torch.tensor([length - i % 3
                                                                    for i in range(batch)])[:, None]


def convert(source, target):
    done = subprocess.run([QKV, "convert", "-q", str(source), "-o", str(target)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=["dynamo 18", "dynamo 23", "torchscript 17"])
def written(request, tmp_path_factory):
    kind, opset = request.param.split()
    folder = tmp_path_factory.mktemp(kind)
    torch.manual_seed(0)
    model = Encoder().eval()
    for p in model.parameters():  # exporters write equal weights once, as tied ones
        p.data += 0.05 * torch.randn_like(p)
    names = {0: "batch", 1: "length"}
    if kind == "dynamo":
        dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
        torch.onnx.export(model, inputs(2, 7), str(folder / "m.onnx"), opset_version=int(opset), dynamo=True,
                          dynamic_shapes=(dims, dims), external_data=False)
    else:
        torch.onnx.export(model, inputs(2, 7), str(folder / "m.onnx"), opset_version=int(opset), dynamo=False,
                          input_names=["x", "padding"],
                          dynamic_axes={"x": names, "padding": names})
    convert(folder / "m.onnx", folder / "m.pt2")
    return model, folder


@pytest.mark.turns
def test_same_numbers_at_other_sizes(written):
    model, folder = written
    loaded = torch.export.load(folder / "m.pt2").module()
    # the tracing exporter fixes sizes in Reshapes of MHA
    for size in ((2, 7),) if "torchscript" in folder.name else ((2, 7), (3, 4), (1, 33)):
        args = inputs(*size)
        np.testing.assert_allclose(loaded(*args)[0].detach().numpy(), model(*args).detach().numpy(), atol=3e-6)


@pytest.mark.turns
def test_weights_keep_their_names_and_values(written):
    model, folder = written
    state = torch.export.load(folder / "m.pt2").state_dict
    original = model.state_dict()
    for name, value in state.items():  # exporters to ONNX give folded or turned weights names of their own
        if name in original and original[name].shape == value.shape:
            assert torch.equal(value, original[name]), name
    assert "head.bias" in state and "encoder.layers.0.norm1.weight" in state


def test_trains(written):
    """The loss, and its gradient by every weight that still has eager's name, are eager's."""
    model, folder = written
    loaded = torch.export.load(folder / "m.pt2").module()
    x, padding = inputs(2, 7)
    grads = []
    for f, module in ((lambda: model(x, padding), model), (lambda: loaded(x, padding)[0], loaded)):
        names, parameters = zip(*module.named_parameters())
        assert all(p.requires_grad for p in parameters)
        loss = f().square().mean()
        grads.append({"loss": loss.detach(), **dict(zip(names, torch.autograd.grad(loss, parameters)))})
    shared = [name for name, g in grads[1].items() if name in grads[0] and g.shape == grads[0][name].shape]
    assert len(shared) > 10
    for name in shared:
        np.testing.assert_allclose(grads[1][name].numpy(), grads[0][name].numpy(), atol=1e-6, rtol=1e-3, err_msg=name)


def at_sizes(text, **sizes):
    """Each size of a text of a graph as a number."""
    name = "|".join(sizes)
    return re.sub(rf"[\w()*/+ -]*\b(?:{name})\b[\w()*/+ -]*", lambda m: str(eval(m.group(), {}, sizes)), text)


def test_text_of_what_was_written(written, tmp_path):
    """The graph that qkv reads from its own .pt2 is the ONNX model's, but for the names of results. A file's guards may
    say that sizes are equal (batch*length == 7*batch, where the exporter traced a length of 7): then one may stand for
    the other."""
    _, folder = written
    texts = [qkv.Model(str(folder / name)).graph_text() for name in ("m.onnx", "m.pt2")]
    nodes = [[line for line in t.splitlines() if not re.match("output |require ", line)] for t in texts]
    if "\nrequire " in texts[1]:
        nodes = [[line if line.startswith("symbol ") else at_sizes(line, batch=2, length=7) for line in lines]
                 for lines in nodes]
    assert nodes[0] == nodes[1]
    convert(folder / "m.pt2", tmp_path / "again.pt2")
    assert qkv.Model(str(tmp_path / "again.pt2")).graph_text() == texts[1]


def test_names_that_python_would_not_take(tmp_path):
    """Initializers with ':' and '/', one whose name is the beginning of another's, inputs with '-', a tied weight."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 4), dtype=np.float32)
    weights = {"onnx::MatMul_1": w, "/block/Constant": w[0], "a": w[1], "a.b": w[2], "0": w[3]}
    nodes = [helper.make_node("MatMul", ["in-put:0", "onnx::MatMul_1"], ["/m"])]
    last = "/m"
    for i, name in enumerate(list(weights)[1:] + ["a"]):
        nodes.append(helper.make_node("Add", [last, name], [f"s/{i}"]))
        last = f"s/{i}"
    graph = helper.make_graph(nodes, "g",
                              [helper.make_tensor_value_info("in-put:0", TensorProto.FLOAT, ["batch-size", 4])],
                              [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["batch-size", 4])],
                              [numpy_helper.from_array(x, n) for n, x in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    convert(tmp_path / "m.onnx", tmp_path / "m.pt2")
    x = rng.standard_normal((3, 4), dtype=np.float32)
    want = x @ w + w[0] + 2 * w[1] + w[2] + w[3]
    program = torch.export.load(tmp_path / "m.pt2")
    assert set(program.state_dict) == set(weights) - {"a"} | {"a_1"}  # "a.b" makes "a" a module
    np.testing.assert_allclose(program.module()(torch.from_numpy(x))[0].detach().numpy(), want, atol=1e-5)
    np.testing.assert_allclose(np.asarray(qkv.Model(str(tmp_path / "m.onnx")).run({"in-put:0": x})[last]), want,
                               atol=1e-5)


def test_ranges_and_derived_sizes_survive_onnx(tmp_path):
    """.pt2 -> ONNX -> .pt2: names of inputs, ranges of sizes, 2*n stays 2*n."""
    class Pairs(torch.nn.Module):
        def forward(self, x, y):
            return x.reshape(x.shape[0], -1, 2).sum(-1) + y

    n = torch.export.Dim("n", min=3, max=20)
    batch = torch.export.Dim("b", min=1, max=9)
    args = torch.randn(2, 8), torch.randn(2, 4)
    torch.export.save(torch.export.export(Pairs(), args, dynamic_shapes=({0: batch, 1: 2 * n}, {0: batch, 1: n})),
                      tmp_path / "a.pt2")
    convert(tmp_path / "a.pt2", tmp_path / "a.onnx")
    convert(tmp_path / "a.onnx", tmp_path / "b.pt2")
    first, last = (torch.export.load(tmp_path / name) for name in ("a.pt2", "b.pt2"))
    assert [s.arg.name for s in first.graph_signature.input_specs] == [s.arg.name
                                                                       for s in last.graph_signature.input_specs] == ["x", "y"]
    assert {(int(r.lower), int(r.upper)) for r in last.range_constraints.values()} == {(1, 9), (3, 20)}
    x, y = torch.randn(5, 14), torch.randn(5, 7)
    assert torch.equal(last.module()(x, y)[0], Pairs()(x, y))
    with pytest.raises(qkv.Error, match="allowed"):
        qkv.Model(str(tmp_path / "a.onnx")).run({"x": np.zeros((2, 42), np.float32),
                                                 "y": np.zeros((2, 21), np.float32)})


def test_parts_as_long_as_a_tensor_says(tmp_path):
    """What comes of all parts of an axis, put together, has its size again, also of more parts than 16."""
    n = 24
    parts = [f"p{i}" for i in range(n)]
    nodes = [helper.make_node("Split", ["x", "lengths"], parts, axis=0),
             *(helper.make_node("MatMul", [p, "w"], ["m" + p]) for p in parts),
             helper.make_node("Concat", ["m" + p for p in parts], ["all"], axis=0),
             helper.make_node("Add", ["all", "x"], ["y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, ["rows", 3]),
                                           info("lengths", TensorProto.INT64, [n])],
                              [info("y", TensorProto.FLOAT, ["rows", 3])],
                              [numpy_helper.from_array(np.eye(3, dtype=np.float32) * 2, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    convert(tmp_path / "m.onnx", tmp_path / "m.pt2")
    module, again = torch.export.load(tmp_path / "m.pt2").module(), qkv.Model(tmp_path / "m.pt2")
    for lengths in (np.arange(n) % 3, np.eye(n, dtype=np.int64)[5] * 7):
        x = torch.randn(int(lengths.sum()), 3)
        np.testing.assert_allclose(module(x, torch.from_numpy(lengths))[0].detach(), 3 * x, atol=1e-6)
        np.testing.assert_allclose(again.run([x, lengths])[0], 3 * x, atol=1e-6)
    for wrong in (np.arange(n), np.where(np.arange(n) == 3, -1, 1)):
        with pytest.raises(qkv.Error):
            again.run([torch.randn(22, 3), wrong])


@pytest.mark.turns
def test_groups_of_rows_beyond_what_one_size_adds_up(tmp_path):
    """As many groups as experts have large models: out of ONNX, what comes of all rows has the rows' size again."""
    class Grouped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(80, 16, 16, dtype=torch.bfloat16))

        def forward(self, x, counts):
            return x + torch._grouped_mm(x, self.w, offs=counts.cumsum(0).to(torch.int32))

    torch.manual_seed(0)
    model, counts = Grouped(), torch.arange(80) % 3
    args = (torch.randn(int(counts.sum()), 16, dtype=torch.bfloat16), counts)
    program = torch.export.export(model, args, dynamic_shapes=({0: torch.export.Dim("rows")}, None))
    torch.export.save(program, tmp_path / "m.pt2")
    convert(tmp_path / "m.pt2", tmp_path / "m.onnx")
    convert(tmp_path / "m.onnx", tmp_path / "back.pt2")
    back = torch.export.load(tmp_path / "back.pt2").module()
    for counts in (counts, torch.eye(80, dtype=torch.int64)[7] * 9):
        x = torch.randn(int(counts.sum()), 16, dtype=torch.bfloat16)
        np.testing.assert_allclose(back(x, counts)[0].float().detach(), model(x, counts).float().detach(), atol=0.1)


@pytest.mark.turns
def test_rows_of_experts_that_lists_of_sizes_part(tmp_path):
    """`x.split(counts.tolist())` is slices in the graph and one Split in ONNX: through two layers of experts, what
    comes back has the rows' size. One of the slices alone stays a Slice."""
    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = (torch.nn.Parameter(torch.randn(20, 8, 8) / 3) for _ in range(2))

        def forward(self, x, counts):
            n = counts.tolist()
            y = torch.cat([p @ w for p, w in zip(x.split(n), self.up)])
            y = torch.cat([p @ w for p, w in zip(y.relu().split(n), self.down)])
            return x + y, x.split(n)[1]

    torch.manual_seed(0)
    model, counts = Experts(), torch.arange(20) % 3
    program = torch.export.export(model, (torch.randn(19, 8), counts),
                                  dynamic_shapes=({0: torch.export.Dim.AUTO}, None))
    torch.export.save(program, tmp_path / "m.pt2")
    convert(tmp_path / "m.pt2", tmp_path / "m.onnx")
    ops = [n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node]
    assert ops.count("Split") == 2 and ops.count("Slice") <= 1
    convert(tmp_path / "m.onnx", tmp_path / "back.pt2")
    back, again = torch.export.load(tmp_path / "back.pt2").module(), qkv.Model(tmp_path / "m.onnx")
    for counts in (counts, torch.eye(20, dtype=torch.int64)[7] * 9):
        x = torch.randn(int(counts.sum()), 8)
        want = [t.detach() for t in model(x, counts)]
        for got in (back(x, counts), again.run([x, counts]).values()):
            for g, w in zip(got, want, strict=True):
                np.testing.assert_allclose(torch.as_tensor(g).detach(), w, atol=1e-5)


def test_sizes_that_are_filled_up_to_blocks(tmp_path):
    """-n % 4 and the quotients that follow stay expressions of n: none is read from a tensor."""
    class Blocks(torch.nn.Module):
        def forward(self, x):
            x = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[1] % 4))
            around = torch.nn.functional.pad(x.reshape(x.shape[0], x.shape[1] // 4, 4, 3), (0, 0, 2, 2))
            return around.sum(2), torch.arange((x.shape[1] - 7) // 2 + 9)

    any_size = torch.export.Dim.AUTO
    program = torch.export.export(Blocks(), (torch.randn(2, 6, 3),), dynamic_shapes=({0: any_size, 1: any_size},))
    torch.export.save(program, tmp_path / "m.pt2")
    convert(tmp_path / "m.pt2", tmp_path / "m.onnx")
    convert(tmp_path / "m.onnx", tmp_path / "back.pt2")
    assert " item " not in qkv.Model(tmp_path / "m.onnx").graph_text()
    back = torch.export.load(tmp_path / "back.pt2").module()
    for n in (4, 5, 11):
        x = torch.randn(3, n, 3)
        for got, want in zip(back(x), Blocks()(x), strict=True):
            torch.testing.assert_close(got, want)


def test_sizes_out_of_data_are_sizes(tmp_path):
    """In ONNX an element of Reshape's shape may be -1 when it is computed; our own writer computes none, so that a
    chain of views has no longer and longer sizes."""
    class Grid(torch.nn.Module):
        def forward(self, x, grid):
            a, b = grid.tolist()
            torch._check(a >= 1)
            torch._check(b >= 1)
            torch._check(a * b == x.shape[0])
            return x.view(a, b, 4).permute(1, 0, 2).reshape(b, a, 2, 2).permute(2, 1, 0, 3).reshape(2, a, b * 2)

    x, grid = torch.randn(6, 4), torch.tensor([2, 3])
    torch.export.save(torch.export.export(Grid(), (x, grid)), tmp_path / "m.pt2")
    convert(tmp_path / "m.pt2", tmp_path / "m.onnx")
    text = subprocess.run([QKV, "graph", str(tmp_path / "m.onnx")], capture_output=True, text=True).stdout
    assert "reshape" in text and "Where" not in text, text
    convert(tmp_path / "m.onnx", tmp_path / "back.pt2")
    for sizes in ([2, 3], [6, 1]):
        want = Grid()(x, torch.tensor(sizes)).numpy()
        np.testing.assert_array_equal(qkv.Model(tmp_path / "back.pt2")(x, torch.tensor(sizes))[0], want)
