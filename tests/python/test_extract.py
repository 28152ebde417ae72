"""Parts of a model: their values are those of the whole, in qkv, in PyTorch after saving, and as ONNX."""
import gc
import pathlib
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

SMALL = pathlib.Path(__file__).resolve().parents[1] / "models" / "small"
B, S = Dim("b", min=1, max=8), Dim("s", min=2, max=32)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Two encoder layers with a padding mask, exported with variable batch and length;
    the values of every node as PyTorch computes them."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(False)

    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, keep):
            return self.model(x, mask=None, src_key_padding_mask=torch.where(keep, 0.0, float("-inf")))

    module = Padded().eval()
    x, keep = torch.randn(3, 7, 16), torch.arange(7) < torch.tensor([[7], [4], [5]])
    with torch.no_grad():
        ep = torch.export.export(module, (x, keep), dynamic_shapes=({0: B, 1: S}, {0: B, 1: S}))
    path = tmp_path_factory.mktemp("extract") / "encoder.pt2"
    torch.export.save(ep, path)
    values = {}

    class Trace(torch.fx.Interpreter):
        def run_node(self, n):
            out = super().run_node(n)
            if isinstance(out, torch.Tensor):
                values[n.name] = out.detach()
            return out

    x, keep = torch.randn(2, 9, 16), torch.arange(9) < torch.tensor([[9], [3]])
    with torch.no_grad():
        Trace(ep.module()).run(x, keep)
        values["result"] = module(x, keep)
    values.update(x=x, keep=keep)
    return path, {name: v.numpy() for name, v in values.items()}


def close(a, b):
    assert a.shape == b.shape
    finite = np.isfinite(b)
    assert np.array_equal(finite, np.isfinite(a)) and np.abs(a[finite]
                                                             - b[finite]).max(initial=0) <= 2e-5 * np.abs(b[finite]).max(initial=1e-6)


def norms(model):
    return re.findall(r"%(\w+): \S+ = aten.layer_norm", model.graph_text().replace(", ", ","))


def test_every_value_from_the_inputs(encoder):
    """A cut up to any value gives what PyTorch has there."""
    path, values = encoder
    model = qkv.Model(path)
    names = [n for n in re.findall(r"^%(\w+): f32", model.graph_text(), re.M) if n in values]
    assert len(names) > 20
    for name in names:
        part = model.extract(end=name)
        assert part.outputs == [name] and set(part.inputs) <= {"x", "keep"}
        close(part.run({i: values[i] for i in part.inputs})[name], values[name])


def test_block_saved(encoder, tmp_path):
    """Half a block: from the sum before one norm to the next norm; as .pt2 in PyTorch, as .onnx in ONNX Runtime,
    with another batch."""
    path, values = encoder
    model = qkv.Model(path)
    first, last = norms(model)[1], norms(model)[2]
    assert first in values and last in values
    with pytest.raises(qkv.Error, match="need the input|needs the size"):
        model.extract([first], [last])  # the residual goes around the norm
    added = re.search(rf"%{first}: \S+ = aten.layer_norm.default\(%(\w+)",
                      model.graph_text().replace(", ", ",")).group(1)
    part = model.extract(added, last)
    assert part.inputs == [added] and part.outputs == [last]
    feeds = {i: values[i] for i in part.inputs}
    close(part.run(feeds)[last], values[last])
    whole = {s for s in re.findall(r'"(\S+)"', model.graph_text()) if "weight" in s or "bias" in s}
    kept = {s for s in re.findall(r'"(\S+)"', part.graph_text()) if "weight" in s or "bias" in s}
    assert kept < whole
    part.save(tmp_path / "part.pt2")
    ep = torch.export.load(tmp_path / "part.pt2")
    close(ep.module()(*[torch.from_numpy(feeds[i]) for i in part.inputs])[0].detach().numpy(), values[last])
    again = qkv.Model(tmp_path / "part.pt2")
    assert again.inputs == part.inputs and again.symbols == part.symbols
    other = {i: np.concatenate([feeds[i]] * 2) for i in part.inputs}  # another batch: sizes stay variable
    close(again.run(other)["output_0"][2:], values[last])
    ort = pytest.importorskip("onnxruntime")
    part.save_onnx(tmp_path / "part.onnx")
    session = ort.InferenceSession(str(tmp_path / "part.onnx"), providers=["CPUExecutionProvider"])
    close(session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})[0], values[last])


def test_of_onnx(encoder, tmp_path):
    """An ONNX file cut in two: one part after the other gives what the whole gives."""
    path, values = encoder
    qkv.Model(path).save_onnx(tmp_path / "whole.onnx")
    model = qkv.Model(tmp_path / "whole.onnx")
    middle = re.findall(r"^%(\w+): f32\S+ = aten.add", model.graph_text().replace(", ", ","), re.M)[-1]
    head, tail = model.extract(end=middle), model.extract(start=middle)
    assert tail.inputs == [middle] and head.outputs == [middle]
    between = head.run({i: values[i] for i in head.inputs})
    close(tail.run(between)[tail.outputs[0]], values["result"])


def test_errors(encoder):
    model = qkv.Model(encoder[0])
    with pytest.raises(qkv.Error, match="there is no value 'kep'; near it: .*'keep'") as e:
        model.extract(["kep"], norms(model)[:1])
    assert e.value.code == 2


def test_outlives_the_whole(encoder):
    path, values = encoder
    part = qkv.Model(path).extract(end=norms(qkv.Model(path))[0])
    gc.collect()
    close(part.run({"x": values["x"]})[part.outputs[0]], values[part.outputs[0]])


def listed(text):
    """([results, operands] of every node, inputs, outputs) of a graph's text."""
    nodes = []
    for line in text.splitlines():
        if line.startswith("%"):
            left, right = line.split(" = ", 1)
            nodes.append((re.findall(r"%([\w.]+): ", left), re.findall(r"%([\w.]+)", right)))
    return nodes, re.findall(r"^input %([\w.]+):", text,
                             re.M), list(dict.fromkeys(re.findall(r"^output \S+ = %([\w.]+)", text, re.M)))


@pytest.mark.parametrize("path", sorted(p for p in SMALL.glob("*.pt2") if "bf16" not in p.name), ids=lambda p: p.stem)
def test_cut_in_two(path, tmp_path):
    """Everything that is alive between two nodes is where the model is cut: the second part, in memory,
    as .pt2 and as .onnx, gives what the whole gives."""
    load_file = pytest.importorskip("safetensors.numpy").load_file
    model = qkv.Model(path, fuse=False)
    feeds = load_file(path.with_name(path.stem + ".v0.in.safetensors"))
    feeds = {n: feeds[n] if n in feeds else feeds[str(i)] for i, n in enumerate(model.inputs)}
    nodes, inputs, results = listed(model.graph_text())
    want = model.extract(end=results).run(feeds)
    for at in {len(nodes) * k // 4 for k in (1, 2, 3)}:
        used = {v for _, operands in nodes[at:] for v in operands} | set(results)
        alive = [v for made, _ in nodes[:at] for v in made if v in used]
        if not alive:
            continue
        start, tail = alive + [v for v in inputs if v in used], None
        while tail is None:
            try:
                tail = model.extract(start, results)
            except qkv.Error as e:  # an input that tells a size
                start.append(re.search(r"; '(\S+)' has it|need the input '(\S+)'", str(e)).expand(r"\1\2"))
        head = model.extract(end=alive)
        between = dict(zip(alive, head.run({i: feeds[i] for i in head.inputs}).values()))
        given = {i: between.get(i, feeds.get(i)) for i in tail.inputs}
        tail.save(tmp_path / "tail.pt2")
        tail.save_onnx(tmp_path / "tail.onnx")
        for part in (tail, qkv.Model(tmp_path / "tail.pt2"), qkv.Model(tmp_path / "tail.onnx")):
            got = part.run({i: given[i] for i in part.inputs})
            for name, a in zip(want, list(got.values())):
                close(a, want[name])
