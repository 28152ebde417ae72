"""Parts and pictures of graphs: qkv graph --module, --op, --around, -o; what verify --all says by module."""
import json
import os
import re
import subprocess
import xml.dom.minidom

import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from parts import chain  # noqa: E402
from test_names import Encoder  # noqa: E402

QKV = os.environ.get("QKV", os.path.join(os.path.dirname(__file__), "..", "..", "build", "qkv"))
Dim = torch.export.Dim


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("view") / "m.pt2"
    dims = ({0: Dim("batch", max=32), 1: Dim("seq", max=64)},)
    qkv.export(Encoder().eval(), (torch.randint(0, 20, (2, 5)),), dynamic_shapes=dims, path=str(path))
    return str(path)


def run(*args, fails=0):
    done = subprocess.run([QKV, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == fails, done.stderr
    return done.stdout if not fails else done.stderr


def nodes(text):
    return [line[1:line.index(":")] for line in text.splitlines() if line.startswith("%")]


def test_filters(path):
    everything = nodes(run("graph", path))
    part = run("graph", path, "--module", "layers.0.attention")
    assert 0 < len(nodes(part)) < len(everything)
    assert all(" in layers.0.attention" in line for line in part.splitlines())
    assert nodes(run("graph", path, "--module", "layers.1", "--op", "softmax")) == ["softmax_1"]
    assert nodes(run("graph", path, "--op", "aten.softmax")) == nodes(run("graph", path, "--op", "aten.softmax.int"))
    assert nodes(run("graph", path, "--around", "softmax:0")) == ["softmax"]
    near = nodes(run("graph", path, "--around", "softmax"))
    assert near[1] == "softmax" and len(near) == 3
    assert set(near) < set(nodes(run("graph", path, "--around", "softmax:2")))
    assert nodes(run("graph", path, "--around", "softmax:1000")) == everything
    fused = run("graph", path, "--as-run", "--op", "scaled_dot_product_attention")
    assert len(nodes(fused)) == 2


@pytest.mark.parametrize("options, says", [
    (["--module", "layers.0.atention"], "no node belongs to a module 'layers.0.atention'; did you mean "
                                        "'layers.0.attention'?"),
    (["--module", "decoder"], "no node belongs to a module 'decoder'"),
    (["--op", "sofmax"], "did you mean 'softmax'?"),
    (["--around", "softmx:2"], "did you mean 'softmax'?"),
    (["--around", "softmax:2000"], "at most 1000 edges"),
    (["--op", "embedding", "--module", "layers.0"], "no node meets all of the conditions"),
    (["-o", "x.png"], "ends in .svg, .dot or .txt"),
    (["-o", "/nowhere/x.svg"], "/nowhere/x.svg"),
])
def test_bad_filters(path, options, says):
    code = 3 if "/nowhere/x.svg" in options else 2
    assert says in run("graph", path, *options, fails=code)


def boxes(svg):
    doc = xml.dom.minidom.parse(str(svg))
    size = [int(doc.documentElement.getAttribute(k)) for k in ("width", "height")]
    found = []
    for g in doc.getElementsByTagName("g"):
        rect = g.getElementsByTagName("rect")[0]
        x, y, w, h = (int(rect.getAttribute(k)) for k in ("x", "y", "width", "height"))
        found.append((rect.getAttribute("class"), x, y, w, h))
    return doc, size, found


@pytest.mark.parametrize("options", [[], ["--module", "layers.0"], ["--around", "softmax:3"], ["--as-run"]])
def test_svg(path, tmp_path, options):
    run("graph", path, "-o", tmp_path / "g.svg", *options)
    doc, (width, height), found = boxes(tmp_path / "g.svg")
    text = run("graph", path, *options)
    assert sum(kind not in ("outside", "end") for kind, *_ in found) == len(nodes(text))
    assert all(0 <= x and x + w <= width and 0 <= y and y + h <= height for _, x, y, w, h in found)
    for i, (_, x, y, w, h) in enumerate(found):  # nothing lies on anything else
        assert not any(x < X + W and X < x + w and y < Y + H and Y < y + h for _, X, Y, W, H in found[:i])
    for edge in doc.getElementsByTagName("path"):
        places = [int(v) for v in re.findall(r"-?\d+", edge.getAttribute("d"))]
        if edge.parentNode.tagName != "marker":
            assert places[1] < places[-1]  # downwards


def test_svg_escapes_and_limits(tmp_path):
    class Named(torch.nn.Module):
        def forward(self, x):
            return {"<a> & b": x + 1}

    torch.export.save(torch.export.export(Named(), (torch.randn(2),)), tmp_path / "n.pt2")
    run("graph", tmp_path / "n.pt2", "-o", tmp_path / "n.svg")
    assert "&lt;a&gt; &amp; b" in open(tmp_path / "n.svg").read()
    boxes(tmp_path / "n.svg")

    chain(tmp_path / "l.onnx", ["Sin"] * 4100)
    assert "choose a part" in run("graph", tmp_path / "l.onnx", "-o", tmp_path / "l.svg", fails=5)
    assert not os.path.exists(tmp_path / "l.svg")
    run("graph", tmp_path / "l.onnx", "-o", tmp_path / "l.svg", "--around", "x7:5")
    run("graph", tmp_path / "l.onnx", "-o", tmp_path / "l.dot")


def test_dot(path, tmp_path):
    run("graph", path, "--module", "layers.0", "-o", tmp_path / "g.dot")
    text = open(tmp_path / "g.dot").read()
    assert text.count("{") == text.count("}") and 'subgraph "cluster_layers.0.attention"' in text
    declared = set(re.findall(r"^ *(n\d+) \[", text, re.M))
    assert declared and set(re.findall(r"\bn\d+\b(?= ->|;)", text)) <= declared


def test_inspect_modules(path):
    told = json.loads(run("inspect", path, "--json"))["modules"]
    by_path = {m["path"]: m for m in told}
    assert by_path[""]["attentions"] == 2 and by_path["layers.1"]["attentions"] == 1
    assert by_path["layers.0.attention"]["type"].endswith("Attention")
    module = Encoder()
    for name, m in module.named_modules():
        if name in by_path:
            assert by_path[name]["parameters"] == sum(p.numel() for p in m.parameters())
    text = run("inspect", path)
    assert "layers.0 to layers.1" in text and "modules (" in text


def test_verify_all(path, tmp_path):
    program = torch.export.load(path)
    ids = torch.randint(0, 20, (2, 5))
    qkv.trace(program, (ids,), str(tmp_path / "t.safetensors"))
    from safetensors.torch import load_file, save_file
    values = load_file(tmp_path / "t.safetensors")
    save_file({"ids": ids}, tmp_path / "in.safetensors")
    common = ["verify", path, "-i", tmp_path / "in.safetensors", "--per-node"]
    assert "0 of" in run(*common, tmp_path / "t.safetensors", "--all")
    for name in ("softmax", "softmax_1"):
        values[name] = values[name] + 0.5
    save_file(values, tmp_path / "w.safetensors")
    done = subprocess.run([QKV, *map(str, common), str(tmp_path / "w.safetensors"), "--all", "--json"],
                          capture_output=True, text=True)
    assert done.returncode == 1
    rows = {r["module"]: r for r in json.loads(done.stdout)["nodes"]["by_module"]}
    assert rows["layers.0.attention"]["differ"] == 1 and rows["layers.0.attention"]["first"] == "softmax"
    assert rows["layers.1.attention"]["first"] == "softmax_1" and rows["head"]["differ"] == 0
    first = subprocess.run([QKV, *map(str, common), str(tmp_path / "w.safetensors")], capture_output=True, text=True)
    assert "node 'softmax' (aten.softmax.int in layers.0.attention) is the first that differs" in first.stdout
    assert "--all goes with --per-node" in run("verify", path, path, "--all", fails=2)


def test_python_view(path):
    model = qkv.Model(path)
    assert nodes(model.graph_view(op="softmax")) == ["softmax", "softmax_1"]
    assert model.graph_view(module="head", format="svg").startswith("<svg")
    assert model.graph_view() == model.graph_text()
    with pytest.raises(qkv.Error, match="no node belongs"):
        model.graph_view(module="tail")
