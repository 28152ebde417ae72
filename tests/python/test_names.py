"""The author's names: of sizes (Dim), and of the modules that nodes belong to. They outlive every format."""
import json
import os
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402

QKV = os.environ.get("QKV", os.path.join(os.path.dirname(__file__), "..", "..", "build", "qkv"))
Dim = torch.export.Dim


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        p = torch.softmax(q @ k.transpose(-1, -2) / 2, -1)
        return self.o((p @ v).transpose(1, 2).reshape(b, n, 8))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm = Attention(), torch.nn.LayerNorm(8)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))

    def forward(self, x):
        x = self.norm(x + self.attention(x))
        return x + self.mlp(x)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(2))
        self.head = torch.nn.Linear(8, 3)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.head(x[:, 0])}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    torch.manual_seed(0)
    module, path = Encoder().eval(), tmp_path_factory.mktemp("names") / "m.pt2"
    ids = torch.randint(0, 20, (2, 5))
    qkv.export(module, (ids,), dynamic_shapes=({0: Dim("batch", max=32), 1: Dim("seq", max=64)},), path=str(path))
    return module, path


def run(*args, fails=None):
    done = subprocess.run([QKV, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == (0 if fails is None else fails), done.stderr
    return done.stdout if fails is None else done.stderr


def agrees(module, path):
    model = qkv.Model(path)
    for shape in ((1, 3), (3, 7), (4, 1)):
        ids = torch.randint(0, 20, shape)
        want = module(ids)["logits"].detach().numpy()
        assert np.abs(model(ids)[0] - want).max() <= 2e-5 * np.abs(want).max()
    return model


def paths_of(model):
    """{path of a module: its nodes}, from the graph's text."""
    out = {}
    for line in model.graph_text().splitlines():
        if line.startswith("%"):
            node = line[1:line.index(":")]
            out.setdefault(model.module_of(node), []).append(node)
    return out


def test_export_writes_names_of_sizes(made):
    module, path = made
    model = agrees(module, path)
    assert list(model.symbols) == ["batch", "seq"] and model.symbols["batch"][1] == 32
    told = json.loads(run("inspect", path, "--json"))
    assert told["inputs"][0]["shape"] == ["batch", "seq"] and "qkv_sizes" not in str(told["ignored_entries"])
    assert "batch" in run("run", path, "-D", "batch=33", "-o", os.devnull + ".npz", fails=2)


def test_derived_dim_names_its_root(tmp_path):
    class Grid(torch.nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] // 2, 2, 3).sum(1)

    h = Dim("h", min=2, max=16)
    qkv.export(Grid(), (torch.randn(8, 3),), dynamic_shapes=({0: 2 * h},), path=str(tmp_path / "g.pt2"))
    model = qkv.Model(tmp_path / "g.pt2")
    assert list(model.symbols) == ["h"] and "2*h" in model.graph_text()
    model.save(tmp_path / "again.pt2")
    assert "2*h" in qkv.Model(tmp_path / "again.pt2").graph_text()
    torch.export.load(tmp_path / "again.pt2")


@pytest.mark.parametrize("name", ["batch", "u_len", "zuf", "n"])
def test_names_outlive_pt2(made, tmp_path, name):
    module, path = made
    run("convert", path, "-o", tmp_path / "a.pt2", "--name-dim", f"batch={name}")
    model = agrees(module, tmp_path / "a.pt2")
    assert list(model.symbols) == [name, "seq"]
    program = torch.export.load(tmp_path / "a.pt2")
    ids = torch.randint(0, 20, (3, 6))
    torch.testing.assert_close(program.module()(ids)["logits"], module(ids)["logits"])
    model.save(tmp_path / "b.pt2")
    assert list(qkv.Model(tmp_path / "b.pt2").symbols) == [name, "seq"]


def test_modules_of_nodes(made, tmp_path):
    module, path = made
    first = paths_of(qkv.Model(path))
    assert {"embed", "layers.0.attention", "layers.1.mlp.2", "head", ""} <= set(first)
    model = qkv.Model(path)
    model.rewrite()
    fused = [line for line in model.graph_text().splitlines() if "scaled_dot_product_attention" in line]
    assert [line.rsplit(" in ", 1)[1] for line in fused] == ["layers.0.attention", "layers.1.attention"]
    for step in ("a.pt2", "b.pt2", "c.qkv"):
        (qkv.Model(path).pack if step.endswith("qkv") else qkv.Model(path).save)(tmp_path / step)
        assert set(first) - {None} <= set(paths_of(qkv.Model(tmp_path / step))) | {"layers.0.attention.k",
                                                                                   "layers.1.attention.k"}
    assert paths_of(qkv.Model(tmp_path / "b.pt2")) == first


def test_saved_pt2_unflattens(made, tmp_path):
    module, path = made
    qkv.Model(path).save(tmp_path / "a.pt2")
    tree = torch.export.unflatten(torch.export.load(tmp_path / "a.pt2"))
    assert dict(tree.named_modules()).keys() >= {"layers.0.attention.q", "layers.1.mlp.2", "head"}
    ids = torch.randint(0, 20, (3, 6))
    torch.testing.assert_close(tree(ids)["logits"], module(ids)["logits"])


def test_onnx_names_nodes_by_module(made, tmp_path):
    onnx = pytest.importorskip("onnx")
    module, path = made
    run("convert", path, "-o", tmp_path / "m.onnx", "--rewrite")
    model = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(model, full_check=True)
    names = [n.name for n in model.graph.node]
    assert len(set(names)) == len(names)
    assert any(n.startswith("/layers.1/attention/q/") for n in names)
    assert any(n.startswith("/layers.0/mlp/0/") or n.startswith("/layers.0/mlp.0/") for n in names)
    assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", "seq"]
    read = agrees(module, tmp_path / "m.onnx")
    assert "layers.1.attention.q" in paths_of(read)


def test_profile_and_trace_say_the_module(made, tmp_path):
    _, path = made
    session = qkv.Model(path).session()
    steps = json.loads(run("bench", path, "-D", "batch=2", "-D", "seq=4", "--iterations", "2", "--per-op", "-v",
                           "--json", "--trace", tmp_path / "t.json"))
    assert "layers.0.attention.q" in {row["module"] for row in steps["per_node"]}
    assert steps["modules"] and {"layers.0", "layers.1"} <= {row["module"] for row in steps["modules"]}
    events = json.load(open(tmp_path / "t.json"))["traceEvents"]
    assert "layers.1.attention.q" in {e["args"].get("module") for e in events if "args" in e}
    session.close()


@pytest.mark.parametrize("given, says", [
    (["batc=b"], "no size is called 'batc'; did you mean 'batch'?"),
    (["rows=b"], "no size is called 'rows'; there are batch, seq"),
    (["batch=seq"], "'seq' is already the name of another size"),
    (["batch=2b"], "'2b' is not a name"),
    (["batch="], "'' is not a name"),
    (["batch=" + "b" * 256], "is not a name; expected at most 255"),
    (["batch"], "found 'batch', expected SIZE=NAME"),
    (["batch=a", "batch=b"], "size 'batch' is given two names"),
    (["batch=a", "seq=a"], "'a' is already the name of another size"),
])
def test_bad_names(made, given, says):
    _, path = made
    options = [x for g in given for x in ("--name-dim", g)]
    assert says in run("inspect", path, *options, fails=2)


def test_python_renames(made):
    _, path = made
    model = qkv.Model(path)
    model.name_sizes({"batch": "rows"})
    assert list(model.symbols) == ["rows", "seq"]
    with pytest.raises(qkv.Error, match="no size is called 'columns'"):
        model.name_sizes({"columns": "c"})
    assert model.module_of("nothing") is None
    assert model(np.zeros((2, 3), np.int64))[0].shape == (2, 3)


def test_other_extra_files_stay(made, tmp_path):
    """A damaged list of names is an error that names the entry; names that cannot be are left out."""
    module, _ = made
    n = Dim("n", max=8)
    program = torch.export.export(module, (torch.zeros(3, 5, dtype=torch.int64),), dynamic_shapes=({0: n},))
    symbol = str(next(iter(program.range_constraints)))
    names = json.dumps({symbol: "rows", "q": "x"})
    torch.export.save(program, tmp_path / "a.pt2", extra_files={"qkv_sizes.json": names, "note.txt": "kept"})
    model = qkv.Model(tmp_path / "a.pt2")
    assert list(model.symbols) == ["rows"]
    model.save(tmp_path / "b.pt2")
    extra = {"note.txt": ""}
    torch.export.load(tmp_path / "b.pt2", extra_files=extra)
    assert extra["note.txt"] == "kept"
    torch.export.save(program, tmp_path / "c.pt2", extra_files={"qkv_sizes.json": json.dumps({symbol: "1x"})})
    assert list(qkv.Model(tmp_path / "c.pt2").symbols) == [symbol]
    torch.export.save(program, tmp_path / "d.pt2", extra_files={"qkv_sizes.json": "{"})
    with pytest.raises(qkv.Error, match="qkv_sizes.json"):
        qkv.Model(tmp_path / "d.pt2")
