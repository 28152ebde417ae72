"""qkv.prove: files against their rewritten and ONNX forms, and against themselves with one constant, axis or mask
changed."""
import json
import math
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402

EXACT = "equal on random exact payloads"
REALS = "equal over the reals for all sizes in range"  # of what is equal on payloads, too


class Attention(nn.Module):
    """Spelled out: scale, causal mask, softmax."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 4, 4).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * 0.5
        scores = scores.masked_fill(torch.ones(n, n).tril(0) == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, 16))


class Sdpa(nn.Module):
    """The op, with a rotary embedding before it."""

    def forward(self, x, angle):
        cos, sin = angle.cos() * 1.0, angle.sin() * 1.0
        turned = torch.cat([-x[..., 2:], x[..., :2]], -1)
        q = x * cos + turned * sin
        y = nn.functional.scaled_dot_product_attention(q, x, x, is_causal=True, scale=0.25)
        return y.transpose(1, 2).flatten(2)


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.norm = nn.Parameter(torch.randn(6)), nn.LayerNorm(6, eps=1e-5)

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        y = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-3) * self.w
        return self.norm(y + x) + nn.functional.silu(x) * 0.7 + x.cumsum(1)


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = nn.functional.gelu(self.norm(self.conv(x)))
        y = torch.cat([y, y.flip(2) * 2.5], 1)
        return y.mean((2, 3)).softmax(0) + y.amax((2, 3)), y[:, 1:3].permute(0, 2, 3, 1)


class Picks(nn.Module):
    def forward(self, x, ids):
        y = nn.functional.pad(x, (1, 2), value=0.5)
        y = torch.where(y > 0.25, y, y * 0.125) + y.clamp(-1.5, 0.75)
        return y.index_select(1, ids), y.roll(1, 0).narrow(1, 1, 2), y.triu(1).sum(0), y.sort(1).values


class Windows(nn.Module):
    """Shifted windows with a table of biases, and a mask added and multiplied."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(2, 4, 4))

    def forward(self, x, keep):
        x = torch.roll(x, (1, -1), (1, 2))
        y = x.view(2, 2, 2, 2, 2, 4).permute(0, 1, 3, 2, 4, 5).reshape(8, 4, 2, 2).transpose(1, 2)
        scores = (y * 0.7) @ y.transpose(2, 3) + self.table.unsqueeze(0)
        hidden = (1.0 - keep.float())[None, None, None] * -100.0
        p = torch.softmax(scores + hidden, dim=3) * keep[None, None, None].float()
        z = (p / (p.sum(3, keepdim=True) + 1e-6)) @ y
        z = torch.stack([z.unbind(1)[1], z.unbind(1)[0]], 2).flatten(2)
        return torch.roll(z.view(2, 2, 2, 2, 2, 4).permute(0, 1, 3, 2, 4, 5).reshape(2, 4, 4, 4), (-1, 1), (1, 2))


def inputs(name):
    torch.manual_seed(3)
    return {"attention": (Attention(), (torch.randn(2, 5, 16),)),
            "sdpa": (Sdpa(), (torch.randn(2, 3, 5, 4), torch.randn(5, 4))),
            "norms": (Norms(), (torch.randn(2, 5, 6),)),
            "windows": (Windows(), (torch.randn(2, 4, 4, 4), torch.tensor([True, False, True, True]))),
            "vision": (Vision().eval(), (torch.randn(2, 3, 8, 6),)),
            "picks": (Picks(), (torch.randn(4, 5), torch.tensor([2, 0, 1])))}[name]


NAMES = ["attention", "sdpa", "norms", "windows", "vision", "picks"]
DYNAMIC = {"attention": ({0: "b", 1: "n"},), "norms": ({0: "b", 1: "n"},), "sdpa": ({0: "b"}, None)}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prove")
    for name in NAMES:
        module, args = inputs(name)
        sizes = None
        if name in DYNAMIC:
            dims = {k: torch.export.Dim(k, min=2, max=9) for k in "bn"}
            sizes = tuple(d and {axis: dims[k] for axis, k in d.items()} for d in DYNAMIC[name])
        torch.export.save(torch.export.export(module, args, dynamic_shapes=sizes), folder / f"{name}.pt2")
    return {name: folder / f"{name}.pt2" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_rewritten_and_onnx(paths, name, tmp_path):
    model = qkv.Model(paths[name])
    model.save_onnx(tmp_path / "m.onnx")
    report = qkv.prove(paths[name], tmp_path / "m.onnx")
    assert report["result"] == "equal" and report["sense"] in (EXACT, REALS), report
    firings = model.rewrite(prove=True)["firings"]
    assert all(f["sense"] == EXACT for f in firings), firings
    model.save(tmp_path / "m.pt2")
    report = qkv.prove(paths[name], tmp_path / "m.pt2")
    assert report["result"] == "equal" and report["runs"] >= 2
    # weights that took a norm's scale in are rounded: the files differ in the last bit
    assert report["sense"] in (EXACT, REALS) or (name == "vision" and "rounded" in report["why_floats"])


@pytest.mark.parametrize("opset", (13, 18, 23))
def test_every_opset(paths, opset, tmp_path):
    for name in NAMES:
        qkv.Model(paths[name]).save_onnx(tmp_path / "m.onnx", opset=opset)
        report = qkv.prove(paths[name], tmp_path / "m.onnx", sizes=2, seeds=1)
        assert report["result"] == "equal" and report["sense"] in (EXACT, REALS), (name, report)


@pytest.mark.turns
def test_decomposed(paths, tmp_path):
    """ATen's core ops, as PyTorch itself spells the model with them."""
    for name in ("attention", "norms", "windows"):
        torch.export.save(torch.export.load(paths[name]).run_decompositions(), tmp_path / "core.pt2")
        report = qkv.prove(paths[name], tmp_path / "core.pt2", sizes=2, seeds=1)
        assert report["result"] == "equal" and report["sense"] in (EXACT, REALS), (name, report)


@pytest.mark.turns
def test_exported_by_torch(paths, tmp_path):
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
    program = torch.export.load(paths["attention"])
    torch.onnx.export(program, (), tmp_path / "m.onnx", dynamo=True, verbose=False)
    report = qkv.prove(paths["attention"], tmp_path / "m.onnx", sizes=2, seeds=1)
    assert report["result"] == "equal" and report["sense"] in (EXACT, REALS), report


@pytest.mark.turns
def test_encoder_exported_by_torch(tmp_path):
    """For all sizes: the exporter turns weights around and splits attention's scale."""
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
    torch.manual_seed(0)
    m = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 1,
                                    enable_nested_tensor=False).eval()
    b, n = torch.export.Dim("b", min=2, max=8), torch.export.Dim("n", min=2, max=30)
    program = torch.export.export(m, (torch.randn(3, 5, 16),), dynamic_shapes=({0: b, 1: n},))
    torch.export.save(program, tmp_path / "m.pt2")
    torch.onnx.export(program, (), tmp_path / "m.onnx", dynamo=True, verbose=False)
    report = qkv.prove(tmp_path / "m.pt2", tmp_path / "m.onnx")
    assert report["result"] == "equal" and report["sense"] == REALS, report


class Masked(torch.nn.Module):
    """A mask beside the tokens: what an exporter writes between them counts its views otherwise."""

    def __init__(self):
        super().__init__()
        self.m = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 1,
                                             enable_nested_tensor=False)

    def forward(self, x, mask):
        return self.m(x, src_key_padding_mask=mask)


class Ported(torch.nn.Module):
    """Strips of 14 pixels, a table of positions, which an exporter folds, and rows that an argmax names."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(6, 2)
        self.register_buffer("places", torch.arange(3))

    def forward(self, x, ids):
        x = x.unflatten(2, (-1, 14)).mean(-1) * self.table(self.places)[:, :1]
        return x[torch.arange(x.shape[0]), ids.argmax(-1)]


class Buckets(torch.nn.Module):
    """A table of distances, as T5 has it: an index that is chosen by cases."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(12, 4)

    def forward(self, x):
        i = torch.arange(x.shape[1])
        far = (i - i[:, None]).abs()
        place = torch.minimum(3 + (far + 1.0).log().long(), torch.full_like(far, 9))
        place = torch.where(far < 3, far, place) + 2 * (i > i[:, None])
        return x[:, :, None] * self.table(place)


class Deep(torch.nn.Module):
    """Residuals, whose sums and products an exporter counts otherwise."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(12))
        self.norm = torch.nn.ModuleList(torch.nn.LayerNorm(4) for _ in range(13))

    def forward(self, x):
        for layer, norm in zip(self.layer, self.norm):
            x = x + x * layer(norm(x))
        return self.norm[12](x)


class Folded(torch.nn.Module):
    """What an exporter computes of weights and numbers: a table of angles, a temperature."""

    def __init__(self):
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.tensor(1.3))

    def forward(self, x):
        angle = torch.arange(1.0, 5)[:, None] / 10000 ** (torch.arange(4) / 4)
        table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :4]
        return x.transpose(1, 2) @ table * self.temperature.exp()


class Groups(torch.nn.Module):
    """A norm of groups, which an exporter spells by one of its parts; bounds; a quotient that is rounded down."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.GroupNorm(2, 4)
        torch.nn.init.normal_(self.norm.weight)

    def forward(self, x):
        place = torch.arange(x.shape[0] * x.shape[2])[:, None] // x.shape[2]
        y = self.norm(x[..., None])[..., 0].clamp(-0.5, 0.25)
        return y * place.view(x.shape[0], 1, x.shape[2])


B, S = torch.export.Dim("b", min=2, max=8), torch.export.Dim("n", min=2, max=30)
FROM_TORCH = {
    "buckets": (Buckets, (torch.randn(3, 5, 4),), ({0: B, 1: S},)),
    "deep": (Deep, (torch.randn(3, 5, 4),), ({0: B, 1: S},)),
    "mask": (Masked, (torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)), ({0: B, 1: S}, {0: B, 1: S})),
    "folded": (Folded, (torch.randn(3, 4, 5),), ({0: B, 2: S},)),
    "groups": (Groups, (torch.randn(3, 4, 5),), ({0: B, 2: S},)),
    "ported": (Ported, (torch.randn(3, 3, 42), torch.randint(0, 9, (3, 3))), ({0: B, 2: 14 * S}, {0: B})),
}


def call_otherwise(onnx, path):
    """Sums and products under other names."""
    model = onnx.load(path)
    kept = {out.name for out in model.graph.output}
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [f"other_{k}" if k.startswith(("add", "mul")) and k not in kept else k for k in names]
    del model.graph.value_info[:]
    onnx.save(model, path)


@pytest.mark.turns
@pytest.mark.parametrize("name", FROM_TORCH)
def test_exported_by_torch_for_all_sizes(name, tmp_path):
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
    torch.manual_seed(0)
    module, args, axes = FROM_TORCH[name]
    program = torch.export.export(module().eval(), args, dynamic_shapes=axes)
    torch.export.save(program, tmp_path / "m.pt2")
    torch.onnx.export(program, (), tmp_path / "m.onnx", dynamo=True, verbose=False)
    if name == "deep":
        call_otherwise(pytest.importorskip("onnx"), tmp_path / "m.onnx")
    report = qkv.prove(tmp_path / "m.pt2", tmp_path / "m.onnx")
    assert report["result"] == "equal" and report["sense"] == REALS, report
    assert [a for a in report["assuming"] if "float32" in a] == report["assuming"][-1:], "ONNX says numbers in float32"


def test_weights_that_are_not_what_was_folded(tmp_path):
    """Within 2^-20 a weight is what was rounded to it, and the report says so; beyond it is another."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
    torch.manual_seed(0)
    program = torch.export.export(Folded().eval(), (torch.randn(3, 4, 5),))
    torch.export.save(program, tmp_path / "m.pt2")
    torch.onnx.export(program, (), tmp_path / "m.onnx", dynamo=True, verbose=False)
    report = qkv.prove(tmp_path / "m.pt2", tmp_path / "m.onnx")
    assert report["sense"] == REALS and any("2^-20" in a for a in report["assuming"]), report
    folded = [w.name for w in onnx.load(tmp_path / "m.onnx").graph.initializer]
    told = 0
    for name in folded:
        model = onnx.load(tmp_path / "m.onnx")
        w = next(w for w in model.graph.initializer if w.name == name)
        a = onnx.numpy_helper.to_array(w)
        if a.dtype != np.float32:
            continue
        w.CopyFrom(onnx.numpy_helper.from_array(a * np.float32(1 + 4e-6), name))
        onnx.save(model, tmp_path / "o.onnx")
        report = qkv.prove(tmp_path / "m.pt2", tmp_path / "o.onnx", counterexample=tmp_path / "c.npz")
        assert report["sense"] != REALS, (name, report)
        told += 1
    assert told == 2


def halves(x, c, s):
    a, b = x.chunk(2, -1)
    return x * torch.cat([c, c], -1).cos() + torch.cat([-b, a], -1) * torch.cat([s, s], -1).sin()


def neighbours(x, c, s):
    a, b, c, s = x[..., 0::2], x[..., 1::2], c.cos(), s.sin()
    return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)


class Rotated(torch.nn.Module):
    def __init__(self, turn):
        super().__init__()
        self.turn = turn

    def forward(self, x, c, s):
        return self.turn(x, c[:, None], s[:, None])


ROTATED = {  # a spelling of ONNX's op, or what looks like it; interleaved; is it the same?
    "halves": (halves, 0, True), "neighbours": (neighbours, 1, True),
    "halves for neighbours": (halves, 1, False), "neighbours for halves": (neighbours, 0, False),
    "the other way": (lambda x, c, s: halves(x, c, -s), 0, False),
    "sines for cosines": (lambda x, c, s: halves(x, s, c), 0, False),
    "keys the other way": (lambda x, c, s: halves(x.flip(-1), c, s).flip(-1), 0, False),
    "angles the other way": (lambda x, c, s: neighbours(x, c.flip(-1), s.flip(-1)), 1, False),
}


@pytest.mark.parametrize("name", ROTATED)
def test_rotary_of_onnx(name, tmp_path):
    """ONNX's RotaryEmbedding has one angle for a pair, PyTorch's spellings have two."""
    helper = pytest.importorskip("onnx.helper")
    turn, interleaved, same = ROTATED[name]
    torch.export.save(torch.export.export(
        Rotated(turn), (torch.randn(3, 2, 5, 8), torch.randn(3, 5, 4), torch.randn(3, 5, 4)),
        dynamic_shapes=({0: B, 2: S}, {0: B, 1: S}, {0: B, 1: S})), tmp_path / "m.pt2")
    sizes = {"x": ["b", 2, "n", 8], "c": ["b", "n", 4], "s": ["b", "n", 4], "y": ["b", 2, "n", 8]}
    x, c, s, y = (helper.make_tensor_value_info(k, 1, v) for k, v in sizes.items())
    nodes = [helper.make_node("Cos", ["c"], ["cos"]), helper.make_node("Sin", ["s"], ["sin"]),
             helper.make_node("RotaryEmbedding", ["x", "cos", "sin"], ["y"], interleaved=interleaved)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x, c, s], [y]), ir_version=11,
                              opset_imports=[helper.make_opsetid("", 23)])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    report = qkv.prove(tmp_path / "m.pt2", tmp_path / "m.onnx", counterexample=tmp_path / "c.npz")
    assert report["result"] == ("equal" if same else "different"), report
    assert (report["sense"] == REALS) == same, report


class Scaled(torch.nn.Module):
    """Scores as torch.onnx.export spells them: queries and keys times the fourth root of 1/8, in float32."""

    def __init__(self, parts):
        super().__init__()
        self.parts, self.root = parts, torch.tensor(8 ** -0.25)

    def forward(self, x):
        if self.parts:
            return ((x * self.root) @ (x * self.root).mT).softmax(-1) @ x
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def test_float32_roots(tmp_path):
    """A float32 that ends in zeros is the root it was rounded from; small elements are seen by some payload."""
    for parts in (False, True):
        torch.export.save(torch.export.export(Scaled(parts), (torch.randn(4, 9, 8),)), tmp_path / f"{parts}.pt2")
    report = qkv.prove(tmp_path / "False.pt2", tmp_path / "True.pt2")
    assert report["result"] == "equal" and report["why_floats"] is None, report


class Turned(torch.nn.Module):
    """A linear layer whose weight is stored the other way, as torch.onnx.export stores it."""

    def __init__(self, turned, wrong=None):
        super().__init__()
        w = torch.arange(24.0).view(4, 6).sin()
        if turned:
            w = w.t().contiguous()
        if wrong:
            w[wrong] += 1e-6
        self.turned, self.w = turned, torch.nn.Parameter(w)

    def forward(self, x):
        return (x @ self.w if self.turned else torch.nn.functional.linear(x, self.w)).relu()


def test_turned_weights(tmp_path):
    """Certified where each row is a column, refused where one element is another."""
    n = torch.export.Dim("n", min=2)
    for name, model in (("one", Turned(False)), ("other", Turned(True)), ("wrong", Turned(True, (5, 3)))):
        torch.export.save(torch.export.export(model, (torch.randn(3, 6),), dynamic_shapes=({0: n},)),
                          tmp_path / f"{name}.pt2")
    report = qkv.prove(tmp_path / "one.pt2", tmp_path / "other.pt2")
    assert report["result"] == "equal" and report["sense"] == REALS, report
    report = qkv.prove(tmp_path / "other.pt2", tmp_path / "one.pt2")
    assert report["sense"] == REALS, report
    report = qkv.prove(tmp_path / "one.pt2", tmp_path / "wrong.pt2")
    assert report["sense"] != REALS, report


def changed(value, name):
    """What an argument may become, and what that is: a constant, an axis, a mask."""
    if "as_float" in value and name != "dropout_p":
        x = value["as_float"]
        other = 0.0 if isinstance(x, str) else 1.5 * x + 0.25
        yield "constant", {"as_float": -1.0 if other == x else other}
        if not isinstance(x, str) and x:
            yield "constant", {"as_float": -x}
    if name in ("dim", "diagonal", "index", "start", "end") and "as_int" in value:
        for step in (1, -1):
            yield "mask" if name == "diagonal" else "axis", {"as_int": value["as_int"] + step}
    if name in ("dims", "dim", "padding", "stride", "shifts") and "as_ints" in value and len(value["as_ints"]) > 1:
        axes = value["as_ints"]
        yield "axis", {"as_ints": axes[:-2] + [axes[-1], axes[-2]]}
        yield "axis", {"as_ints": [(a + 1) % len(axes) for a in axes]}
    if name == "is_causal":
        yield "mask", {"as_bool": not value["as_bool"]}


def pairs(path):
    """The file with one argument of a node changed, each change once: (what, bytes)."""
    with zipfile.ZipFile(path) as z:
        files = {i: z.read(i) for i in z.infolist()}
    graph = next(i for i in files if i.filename.endswith("models/model.json"))
    for at, node in enumerate(json.loads(files[graph])["graph_module"]["graph"]["nodes"]):
        for k, given in enumerate(node["inputs"]):
            for kind, to in changed(given["arg"], given["name"]):
                model = json.loads(files[graph])
                model["graph_module"]["graph"]["nodes"][at]["inputs"][k]["arg"] = to
                yield kind, f"{node['target']} {given['name']} {given['arg']} -> {to}", graph, files, model


def same_in_torch(path, other, name):
    """Is the change one that PyTorch does not see either, such as a number that is added to all scores of a row?"""
    _, args = inputs(name)
    try:
        a, b = (torch.export.load(p).module()(*args) for p in (path, other))
    except Exception:
        return True  # not a model any more
    a, b = (x if isinstance(x, tuple) else (x,) for x in (a, b))
    return all(x.shape == y.shape and torch.allclose(x, y, rtol=1e-4, atol=1e-4, equal_nan=True) for x, y in zip(a, b))


def test_every_change_is_caught(paths, tmp_path):
    caught, kinds, missed, other = 0, set(), [], tmp_path / "other.pt2"
    for name in NAMES:
        model = qkv.Model(paths[name])
        for kind, what, graph, files, text in pairs(paths[name]):
            with zipfile.ZipFile(other, "w") as z:
                for i, data in files.items():
                    z.writestr(i, json.dumps(text) if i is graph else data)
            try:
                report = qkv.prove(model, other)
            except qkv.Error:
                continue  # sizes that do not fit
            if report["result"] == "different":
                caught += 1
                kinds.add(kind)
            elif not same_in_torch(paths[name], other, name):
                missed.append((name, what, report["result"], report["sense"] or report["why"]))
    assert not missed
    assert caught >= 50 and kinds == {"constant", "axis", "mask"}, (caught, kinds)


def test_counterexample(paths, tmp_path):
    module, args = inputs("norms")
    module.norm.eps = 2e-5
    torch.export.save(torch.export.export(module, args), tmp_path / "eps.pt2")
    file = tmp_path / "c.npz"
    report = qkv.prove(tmp_path / "eps.pt2", paths["norms"], counterexample=str(file))
    d = report["difference"]
    assert report["result"] == "different" and d["on"] == "exact payloads" and d["max_rel_peak"] < 1e-4
    with np.load(file) as tensors:
        assert set(tensors) == {"x", "first", "second"} and tensors["first"].size == d["of"]
    assert math.isclose(d["first"], tensors_at(tmp_path / "eps.pt2", file, d["index"]), rel_tol=1e-3, abs_tol=1e-4)


def tensors_at(path, file, index):
    with np.load(file) as tensors:
        return float(np.asarray(qkv.Model(path).run({"x": tensors["x"]})["output_0"]).reshape(-1)[index])


def test_cannot_be_told(paths):
    report = qkv.prove(paths["norms"], paths["sdpa"])
    assert report["result"] == "unknown" and "the first model has 1 input, the second 2" in report["why"]
    report = qkv.prove(paths["norms"], paths["attention"])
    assert report["result"] in ("unknown", "different")


def test_sizes_and_floats(paths):
    report = qkv.prove(paths["attention"], paths["attention"], dims={"batch": 3}, sizes=2, seeds=1, floats=True)
    assert report["sense"] == "equal within a tolerance on random floats" and report["runs"] == 2
    assert all(3 in s.values() for s in report["sizes"]) and len(report["sizes"]) == 2


class Powers(nn.Module):
    """A product that is 0 in the ring of exact proofs, whatever x is (docs/PROOF.md, *Vanishing products*)."""

    def __init__(self, f, scale=1.0, beside=False):
        super().__init__()
        self.f, self.scale, self.beside = f, scale, beside

    def forward(self, x):
        y = self.f(x, self.scale)
        return x + y if self.beside else y


def nested(x, c):
    for _ in range(4):
        x, c = torch.tanh(c * x), 1.0
    return x


VANISHING = {
    "sines": lambda x, c: c * x.sin() ** 4,
    "tangents": lambda x, c: c * x.tanh() * x.sin() * x.expm1() * x.sinh(),
    "nested": nested,
    "decided": lambda x, c: (c * x.tanh() ** 4 > 0.3).float(),
    "as truth": lambda x, c: (x.sin() ** 4 * (2 - c)).bool().float(),
    "of a cosine": lambda x, c: c * (1 - x.cos()) * (1 - x.cos()),
    "summed": lambda x, c: (x.sin() * x.tanh()) @ (c * x.tanh() * x.sin()).mT,
}


@pytest.mark.parametrize("beside", (False, True))
@pytest.mark.parametrize("name", VANISHING)
def test_vanishing_products(name, beside, tmp_path):
    x = torch.randn(4, 4)
    for scale in (1.0, 2.0):
        module = Powers(VANISHING[name], scale, beside)
        torch.export.save(torch.export.export(module, (x,)), tmp_path / f"{scale}.pt2")
    report = qkv.prove(tmp_path / "1.0.pt2", tmp_path / "2.0.pt2")
    assert report["result"] == "different", report
    assert qkv.prove(tmp_path / "1.0.pt2", tmp_path / "1.0.pt2")["result"] == "equal"


def test_vanishing_products_in_rules(tmp_path):
    """A rule that is wrong where all that it changes vanishes is refused; a right one is proven on floats."""
    torch.export.save(torch.export.export(Powers(nested, 2.0), (torch.randn(4, 4),)), tmp_path / "m.pt2")
    for inner, right in (("(add ?x ?x)", True), ("?x", False)):
        rules = tmp_path / "own.rules"
        rules.write_text("(phase fuse)\n(reorder own (tanh (tanh (tanh (tanh (mul ?x 2))))) "
                         f"(tanh (tanh (tanh (tanh {inner})))))\n")
        model = qkv.Model(tmp_path / "m.pt2")
        if not right:
            with pytest.raises(qkv.Error, match="differs"):
                model.rewrite(rules=[rules], prove=True)
            continue
        firing, = [f for f in model.rewrite(rules=[rules], prove=True)["firings"] if f["rule"] == "own"]
        assert firing["sense"] == "equal within a tolerance on random floats", firing
        assert "vanish in exact arithmetic" in firing["why_floats"]


# A function of integers, and what a rule takes out of it and puts there.
OF_INTEGERS = {
    "squares": (lambda i: (i * i).float(), "(mul ?x ?x)", "?x"),
    "signs": (lambda i: (i * i * i).float(), "(mul (mul ?x ?x) ?x)", "(mul ?x ?x)"),
    "tokens": (lambda i: (i != 50256).float(), "(ne ?x 50256)", "(eq ?x ?x)"),
    "beside an index": (lambda i: torch.arange(2.)[i] + (i * i)[:, :1].sum(), "(mul ?x ?x)", "(mul ?x 1)"),
    "of a sum": (lambda i: (i * i).sum(1).float(), "(sum (mul ?x ?x) ?d ?k)", "(sum ?x ?d ?k)"),
}


class Integers(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, i):
        return self.f(i)


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_wrong_rules_of_integers(name, tmp_path):
    """What holds for 0 and 1, which indices and masks are, is refused where others may be."""
    f, before, after = OF_INTEGERS[name]
    torch.export.save(torch.export.export(Integers(f), (torch.ones(4, 4, dtype=torch.int64),)), tmp_path / "m.pt2")
    rules = tmp_path / "own.rules"
    rules.write_text(f"(phase fuse)\n(reorder own {before} {after})\n")
    with pytest.raises(qkv.Error, match="differs"):
        qkv.Model(tmp_path / "m.pt2").rewrite(rules=[rules], prove=True)


# The dtype of an input, and two functions of it that differ where its integers wrap around.
WRAP = {
    "a sum": (torch.int8, lambda i: (i + 1).float(), lambda i: i.float() + 1),
    "a difference of unsigned ones": (torch.uint8, lambda i: (i - 1).float(), lambda i: i.float() - 1),
    "a product": (torch.int8, lambda i: (i * i).int(), lambda i: i.int() * i.int()),
    "the least one": (torch.int8, lambda i: i.abs().int(), lambda i: i.int().abs()),
    "a shift": (torch.int16, lambda i: (i << 3).int(), lambda i: i.int() << 3),
    "a cast": (torch.int64, lambda i: i.to(torch.uint8).float(), lambda i: i.abs().float()),
}


@pytest.mark.parametrize("name", WRAP)
def test_integers_that_wrap(name, tmp_path):
    dtype, *both = WRAP[name]
    paths = [tmp_path / "a.pt2", tmp_path / "b.pt2"]
    for path, f in zip(paths, both):
        torch.export.save(torch.export.export(Integers(f), (torch.ones(4, 4, dtype=dtype),)), path)
    assert qkv.prove(*paths, counterexample=str(tmp_path / "c.npz"))["result"] == "different"
