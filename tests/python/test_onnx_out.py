"""qkv.Model.save_onnx and `qkv convert` against PyTorch: what is written loads in ONNX Runtime and OpenVINO,
and gives eager's values."""
import functools
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
import qkv  # noqa: E402
from parts import B, R, S, fn  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from tolerance import tolerance  # noqa: E402

TOLERANCE = tolerance("TORCH")["f32"]

ROOT = pathlib.Path(__file__).resolve().parents[2]
QKV = os.environ.get("QKV", str(ROOT / "build" / "qkv"))
ort.set_default_logger_severity(4)


def exported(folder, module, inputs, dynamic=None):
    with torch.no_grad():
        torch.export.save(torch.export.export(module, inputs, dynamic_shapes=dynamic), folder / "model.pt2")
    return qkv.Model(folder / "model.pt2")


def run_ort(path, inputs):
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), inputs)))


def run_openvino(path, inputs):
    ov = pytest.importorskip("openvino")
    model = ov.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    result = model(dict(zip((i.get_any_name() for i in model.inputs), inputs)))
    return [result[o] for o in model.outputs]


def close(got, want, tol=TOLERANCE):
    want = want.detach().numpy()
    assert got.shape == want.shape and got.dtype == want.dtype
    if not np.issubdtype(want.dtype, np.floating):
        assert np.array_equal(got, want)
        return
    assert np.array_equal(np.isfinite(got), np.isfinite(want))
    peak = np.abs(np.nan_to_num(want)).max(initial=0)
    assert np.abs(np.nan_to_num(got - want)).max(initial=0) <= tol * max(peak, 1e-6)


FORMS = [("ort", o) for o in range(17, 26)] + [("spec", 18), ("spec", 21), ("openvino", 18), ("openvino", 23),
                                               ("tensorrt", 18)]


def out_and_compare(folder, module, variants, dynamic, profile, opset, rewrite=False):
    model = exported(folder, module, variants[0], dynamic)
    if rewrite:
        model.rewrite()
    report = model.save_onnx(folder / "m.onnx", opset=opset, profile=profile)
    onnx.checker.check_model(str(folder / "m.onnx"), full_check=True)
    assert report["missing"] == [] and report["opset"] == opset
    for inputs in variants:
        with torch.no_grad():
            want = [x for x in tree_leaves(module(*inputs)) if isinstance(x, torch.Tensor)]
        flat = [x.numpy() for x in tree_leaves(inputs)]
        for a, b in zip((run_openvino if profile == "openvino" else run_ort)(folder / "m.onnx", flat), want,
                        strict=True):
            close(a, b)
    return report


class Block(nn.Module):
    """An encoder layer and a head over its first token."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu", norm_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x, pad):
        y = self.layer(x, src_key_padding_mask=pad)
        return self.head(y[:, 0]), y


def padding(b, s):
    """Row 0 is whole; the others lose one more at the end each."""
    return torch.arange(s)[None] >= torch.clamp(s - torch.arange(b), min=1)[:, None]


@pytest.mark.turns
@pytest.mark.parametrize("profile,opset", FORMS)
def test_encoder_layer(tmp_path, profile, opset):
    torch.backends.mha.set_fastpath_enabled(False)
    report = out_and_compare(tmp_path, Block().eval(),
                             [(R(b, s, 16, seed=b), padding(b, s)) for b, s in ((2, 6), (1, 3), (4, 9))],
                             ({0: B, 1: S}, {0: B, 1: S}), profile, opset)
    # the mask is a float one: ONNX Runtime would take rows of the lowest number for rows of -inf
    as_op = profile == "spec" and opset >= 23
    assert report["attentions"] == {"op": int(as_op), "decomposed": int(not as_op)}


def attention(row, **kw):
    return fn(lambda self, q, k, v, m: F.scaled_dot_product_attention(q, k, v, m[:, None, None] if row else m, **kw))


def qkv_inputs(b, n, m, mask, heads=4, kv_heads=4):
    return R(b, heads, n, 8), R(b, kv_heads, m, 8, seed=1), R(b, kv_heads, m, 8, seed=2), mask


N, M = Dim("n", min=2, max=64), Dim("m", min=2, max=32)


def dead_rows(b, n, m):
    mask = torch.rand(b, 1, n, m, generator=torch.Generator().manual_seed(n)) < 0.6
    mask[0, 0, 0] = False
    return mask


@pytest.mark.turns
@pytest.mark.parametrize("profile,opset", [("ort", 18), ("ort", 23), ("spec", 23), ("openvino", 18), ("tensorrt", 18)])
@pytest.mark.parametrize("mask", ["bool", "float", "row"])
@pytest.mark.parametrize("form", ["plain", "gqa", "scale"])
def test_masks_and_dead_rows(tmp_path, profile, opset, mask, form):
    """Rows that allow no key are 0, as PyTorch has them; neither NaN nor an average."""
    if profile == "spec" and mask == "row":
        pytest.skip("legal, and refused by ONNX Runtime: docs/ONNX.md")
    kv = 2 if form == "gqa" else 4
    kw = {"plain": {}, "gqa": {"enable_gqa": True}, "scale": {"scale": 0.3}}[form]

    def inputs(b, n, m):
        keep = dead_rows(b, n, m)
        keep = keep[:, 0, 0] if mask == "row" else keep
        return qkv_inputs(b, n, m, torch.where(keep, R(*keep.shape, seed=3), -torch.inf) if mask == "float" else keep,
                          kv_heads=kv)
    axes = {0: B, 2: N}, {0: B, 2: M}, {0: B, 2: M}, {0: B, 1: M} if mask == "row" else {0: B, 2: N, 3: M}
    report = out_and_compare(tmp_path, attention(mask == "row", **kw),
                             [inputs(2, 5, 7), inputs(3, 8, 4), inputs(1, 2, 2)], axes, profile, opset)
    assert sum(report["attentions"].values()) == 1


@pytest.mark.turns
@pytest.mark.parametrize("profile,opset", [("ort", 18), ("ort", 23), ("spec", 23), ("openvino", 18)])
def test_causal_is_top_left(tmp_path, profile, opset):
    model = fn(lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    out_and_compare(tmp_path, model, [qkv_inputs(2, n, m, None)[:3] for n, m in ((5, 7), (6, 3), (4, 4))],
                    ({0: B, 2: N}, {0: B, 2: M}, {0: B, 2: M}), profile, opset)


def hand_written(self, q, k, v):
    """Scores capped, causal, and with a window of 3: what rewriting makes one op of."""
    s = torch.tanh(q @ k.transpose(-1, -2) * 0.35 / 5) * 5
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
    s = s.masked_fill((j > i) | (j < i - 3), -torch.inf)
    return torch.softmax(s, -1) @ v


@pytest.mark.turns
@pytest.mark.parametrize("profile,opset", [("ort", 18), ("ort", 23), ("spec", 23), ("openvino", 18), ("tensorrt", 18)])
@pytest.mark.parametrize("rewrite", [False, True])
def test_softcap_and_window(tmp_path, profile, opset, rewrite):
    report = out_and_compare(tmp_path, fn(hand_written),
                             [tuple(R(b, 4, n, 8, seed=i) for i in range(3)) for b, n in ((2, 6), (1, 9))],
                             ({0: B, 2: N},) * 3, profile, opset,
                             rewrite)
    assert sum(report["attentions"].values()) == rewrite


def switch_beside_window(self, q, k, v, on):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(on > 0) & (j <= i) & (j >= i - 3))


@pytest.mark.turns
@pytest.mark.parametrize("profile,opset", [("ort", 18), ("ort", 23), ("spec", 23), ("openvino", 18), ("tensorrt", 18)])
def test_mask_of_rank_0_beside_a_window(tmp_path, profile, opset):
    """One truth value for all scores: rewriting keeps it as the mask, and makes the rest causal with a window."""
    feeds = [(*(R(b, 4, n, 8, seed=i) for i in range(3)), torch.tensor(on)) for b, n, on in ((2, 6, 1), (1, 9, 0))]
    module, dynamic = fn(switch_beside_window), ({0: B, 2: N},) * 3 + (None,)
    report = out_and_compare(tmp_path, module, feeds, dynamic, profile, opset, rewrite=True)
    assert sum(report["attentions"].values()) == 1


def cut_pads(self, x):
    amounts = (3, -3), (-3, 3), (-1, 2), (-2, -1)
    return [F.pad(x, by, mode=mode) for mode in ("replicate", "reflect") for by in amounts]


@pytest.mark.parametrize("profile,opset", [("ort", 18), ("openvino", 18)])
def test_pads_that_cut_off_what_they_repeat(tmp_path, profile, opset):
    """PyTorch repeats elements first; ONNX cuts first, and has too few then."""
    out_and_compare(tmp_path, fn(cut_pads), [(R(b, 3, 6),) for b in (2, 1)], ({0: B},), profile, opset)


def sizes(self, x):
    b, s, d = x.shape
    y = x.reshape(b, s // 2, 2, d).mean(2).reshape(b * (s // 2), d)
    return y, F.pad(x, (0, 0, s // 2, 1)), torch.arange(s + b, dtype=torch.float32), torch.full((b, 2 * s),
        s / (b + 1)), x[:, s // 3:s - 1], x.new_zeros(b, s) + torch.eye(s)[:1]


@pytest.mark.turns
@pytest.mark.parametrize("profile,opset", [("ort", 17), ("ort", 18), ("ort", 23), ("openvino", 18)])
def test_sizes_are_nodes(tmp_path, profile, opset):
    s2 = 2 * Dim("h", min=1, max=32)
    variants = [(R(b, s, 3),) for b, s in ((2, 6), (1, 2), (3, 10))]
    out_and_compare(tmp_path, fn(sizes), variants, ({0: B, 1: s2},), profile, opset)
    g = onnx.load(tmp_path / "m.onnx").graph
    names = [d.dim_param for d in g.input[0].type.tensor_type.shape.dim]
    assert names[0] and names[1].startswith("2*") and not names[2]
    assert [o.name for o in g.output] == [f"output_{i}" for i in range(6)]


def test_names_and_ties(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(11, 6)
            self.head = nn.Linear(6, 11, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return {"logits": self.head(self.embed(ids)), "ids": ids}
    model = exported(tmp_path, Tied().eval(), (torch.tensor([[1, 2, 3], [4, 5, 6]]),), ({0: B, 1: S},))
    model.save_onnx(tmp_path / "m.onnx")
    m = onnx.load(tmp_path / "m.onnx")
    big = [i for i in m.graph.initializer if i.dims and i.dims[0] == 11]
    assert len(big) == 1 and big[0].name in ("embed.weight", "head.weight")
    assert [i.name for i in m.graph.input] == ["ids"] and m.producer_name == "qkv" and m.opset_import[0].version == 18
    assert [o.name for o in m.graph.output] == ["output_0", "output_1"]
    first = (tmp_path / "m.onnx").read_bytes()
    qkv.Model(tmp_path / "model.pt2").save_onnx(tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == first
    assert all(t.type.tensor_type.HasField("shape") for t in m.graph.value_info)


class Products(nn.Module):
    """A layer that is used twice, a matrix that the module transposes, and a head whose weight is a table, too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.up, self.back = nn.Embedding(11, 7), nn.Linear(7, 70), nn.Parameter(torch.randn(7, 70))
        self.mix = nn.Linear(7, 7)

    def forward(self, ids):
        x = self.mix(self.mix(self.table(ids)))
        return F.linear(self.up(x) @ self.back.mT, self.table.weight)


@pytest.mark.parametrize("opset, external", [(13, False), (18, True), (23, False)])
def test_products_read_initializers(tmp_path, opset, external):
    """As torch.onnx writes them, so that quantizers of others find the weights; our reader has them as they were."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    ids, path = torch.tensor([[1, 2, 3], [4, 5, 10]]), str(tmp_path / "m.onnx")
    model = exported(tmp_path, Products().eval(), (ids,), ({0: B, 1: S},))
    model.save_onnx(path, opset=opset, external_data=external)
    onnx.checker.check_model(path, full_check=True)
    graph = onnx.load(path).graph
    sizes = {i.name: tuple(i.dims) for i in graph.initializer}
    products = [sizes.get(n.input[1]) for n in graph.node if n.op_type == "MatMul"]
    assert products == [(7, 7), (7, 7), (7, 70), (70, 7), None]  # the table is held once
    assert len([s for s in sizes.values() if len(s) == 2]) == 4 and sizes["up.weight"] == (7, 70)
    want, held = Products().eval()(ids), qkv.Model(path).weights()
    close(run_ort(path, [ids.numpy()])[0], want)
    close(qkv.Model(path)(ids.numpy())[0], want)
    for name, values in model.weights().items():
        assert np.array_equal(held[name], values), name
    qkv.Model(path).save_onnx(tmp_path / "again.onnx", opset=opset)
    again = {i.name: tuple(i.dims) for i in onnx.load(tmp_path / "again.onnx").graph.initializer}
    assert all(again.get(name) == size for name, size in sizes.items() if len(size) == 2)
    quantization.quantize_dynamic(path, tmp_path / "q.onnx")
    ops = [n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node]
    assert ops.count("MatMulInteger") == 4 and ops.count("MatMul") == 1


def test_products_in_a_certificate(tmp_path):
    exported(tmp_path, Products().eval(), (torch.tensor([[1, 2, 3], [4, 5, 6]]),), ({0: B, 1: S},))
    run = functools.partial(subprocess.run, cwd=tmp_path, check=True, capture_output=True)
    command = pathlib.Path(QKV).resolve()
    run([command, "convert", "model.pt2", "-o", "m.onnx", "--certify", "c.json"])
    run([command.parent.parent / "qkv-certify", "model.pt2", "m.onnx", "c.json"])


def test_external_data(tmp_path):
    model = exported(tmp_path, nn.Linear(64, 64).eval(), (R(2, 64),), ({0: B},))
    model.save_onnx(tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "m.onnx.data").stat().st_size >= 64 * 64 * 4 > (tmp_path / "m.onnx").stat().st_size
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    with torch.no_grad():
        close(run_ort(tmp_path / "m.onnx", [R(3, 64, seed=2).numpy()])[0], nn_linear(tmp_path, R(3, 64, seed=2)))


def nn_linear(folder, x):
    return torch.export.load(folder / "model.pt2").module()(x)


def test_state_goes_in_and_out(tmp_path):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x):
            self.seen.add_(x.sum(0))
            return x + self.seen
    model = exported(tmp_path, Counter().eval(), (R(2, 3),), ({0: B},))
    report = model.save_onnx(tmp_path / "m.onnx")
    assert any("seen_out" in n for n in report["notes"])
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    assert [o.name for o in session.get_outputs()] == ["output_0", "seen_out"]
    module, feeds = Counter().eval(), {}
    for k in range(3):
        x = R(2, 3, seed=k)
        y, state = session.run(None, {"x": x.numpy(), **feeds})
        close(y, module(x))
        close(state, module.seen)
        feeds = {"seen": state}


def test_state_that_is_overwritten_first_may_be_left_out(tmp_path):
    """No node reads what the file holds for it (a StaticCache's position), but the input keeps its default."""
    class Position(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("at", torch.zeros((), dtype=torch.int64))

        def forward(self, x, p):
            self.at.copy_(p[0])
            y = x * self.at
            self.at.add_(1)
            return y
    exported(tmp_path, Position().eval(), (R(2, 3), torch.tensor([2])), ({0: B}, None)).save_onnx(tmp_path / "m.onnx")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    x = R(2, 3)
    y, at = session.run(None, {"x": x.numpy(), "p": np.array([2])})
    close(y, x * 2)
    assert at == 3


class Cache(nn.Module):
    """A table that is read turned, a place in it that decides what is read, and a sum that nothing reads."""
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(6, 4))
        self.register_buffer("at", torch.ones(1, dtype=torch.int64))
        self.register_buffer("sum", torch.zeros(()))

    def forward(self, x):
        y = x @ self.k.t()
        self.k.index_copy_(0, self.at, x[:1])
        self.at.add_(1)
        self.sum.copy_(y.sum())
        return y, self.k[self.at - 1]


@pytest.mark.parametrize("profile", ["ort", "spec", "tensorrt"])
def test_state_comes_back(tmp_path, profile):
    model = exported(tmp_path, Cache().eval(), (R(2, 4),), ({0: B},))
    model.save_onnx(tmp_path / "m.onnx", profile=profile)
    back = qkv.Model(tmp_path / "m.onnx")
    back.save(tmp_path / "back.pt2")
    ep = torch.export.load(tmp_path / "back.pt2")
    assert sorted(ep.graph_signature.buffers_to_mutate.values()) == ["at", "k", "sum"]
    assert {"at", "k", "sum"} <= set(ep.state_dict) and len(ep.graph_signature.user_outputs) == 2
    module, again = Cache().eval(), ep.module()
    for k in range(4):
        x = R(2 + k, 4, seed=k)
        for a, b, c in zip(module(x), again(x), back.run([x.numpy()]).values(), strict=True):
            close(b.numpy(), a)
            close(np.array(c), a)
    back.save_onnx(tmp_path / "m2.onnx", profile=profile)
    assert [len(g.input) for g in (onnx.load(tmp_path / n).graph for n in ("m.onnx", "m2.onnx"))] == [4, 4]


@pytest.mark.parametrize("change", ["name", "type", "default", "other"])
def test_state_that_another_program_changed_stays_an_output(tmp_path, change):
    exported(tmp_path, Cache().eval(), (R(2, 4),), ({0: B},)).save_onnx(tmp_path / "m.onnx")
    m = onnx.load(tmp_path / "m.onnx")
    k = next(i for i in m.graph.initializer if i.name == "k")
    if change == "name":
        next(p for p in m.metadata_props if p.value == "k").value = "old"
    elif change == "type":
        next(o for o in m.graph.output if o.name == "k_out").type.tensor_type.shape.dim[0].dim_param = "n"
    elif change == "default":
        m.graph.initializer.remove(k)
    else:
        next(p for p in m.metadata_props if p.value == "k").key = "qkv.state.none"
    onnx.save(m, tmp_path / "m.onnx")
    back = qkv.Model(tmp_path / "m.onnx").describe()
    assert [o["name"] for o in back["outputs"]] == ["output_0", "output_1", "k_out"]
    assert [i["name"] for i in back["inputs"]] == ["x", "k"][:1 + (change == "default")]


@pytest.mark.parametrize("opset", [18, 23])
def test_bf16_runs_in_onnx_runtime(tmp_path, opset):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(torch.bfloat16).eval()
    outer = fn(lambda self, x: self.inner(x.to(torch.bfloat16)).float(), inner=module)
    exported(tmp_path, outer, (R(3, 8),), ({0: B},)).save_onnx(tmp_path / "m.onnx", opset=opset)
    with torch.no_grad():
        close(run_ort(tmp_path / "m.onnx", [R(5, 8, seed=1).numpy()])[0], outer(R(5, 8, seed=1)), tol=3e-2)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("scale", [0.7, 1.15, 2.3])  # which float32 holds a little below
def test_scales_that_round_to_a_size(tmp_path, scale, mode):
    resize = fn(lambda self, x: F.interpolate(x, scale_factor=scale, mode=mode))
    for n in (10, 20, 13):
        x = R(1, 2, n, n)
        exported(tmp_path, resize, (x,)).save_onnx(tmp_path / "model.onnx", opset=18, profile="ort")
        close(run_ort(tmp_path / "model.onnx", [x.numpy()])[0], resize(x))


def test_all_missing_are_named(tmp_path):
    three = fn(lambda self, x: (torch.special.bessel_y0(x), torch.special.airy_ai(x) + 1, x.exp()))
    model = exported(tmp_path, three, (R(3),))
    with pytest.raises(qkv.Error) as e:
        model.save_onnx(tmp_path / "m.onnx")
    assert e.value.code == 4 and "bessel_y0" in str(e.value) and "airy" in str(e.value) and "2 nodes" in str(e.value)
    assert not (tmp_path / "m.onnx").exists()
    for profile, opset in (("nobody", 18), ("ort", 16), ("ort", 26)):
        with pytest.raises(qkv.Error):
            model.save_onnx(tmp_path / "m.onnx", profile=profile, opset=opset)


def convert(*args):
    return subprocess.run([QKV, "convert", *map(str, args)], capture_output=True, text=True)


def test_tensorrt_rules(tmp_path):
    bad = fn(lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v))
    exported(tmp_path, bad, tuple(R(1, 2, 4, 12, seed=i) for i in range(3)))
    ran = convert(tmp_path / "model.pt2", "-o", tmp_path / "m.onnx", "--target", "tensorrt", "--json")
    report = json.loads(ran.stdout)
    assert ran.returncode == 0 and {w["rule"] for w in report["warnings"]} == {"dtype",
                                                                               "head-size"} and "head size is 12" in ran.stderr
    assert all(w["node"] for w in report["warnings"])
    assert convert(tmp_path / "model.pt2", "-o", tmp_path / "m.onnx", "--target", "tensorrt", "--strict",
                   "-q").returncode == 1
    exported(tmp_path, bad, tuple(R(1, 2, 4, 32, seed=i).half() for i in range(3)))
    ran = convert(tmp_path / "model.pt2", "-o", tmp_path / "m.onnx", "--target", "tensorrt", "--strict")
    assert ran.returncode == 0, ran.stderr
    ops = [n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node]
    assert ops.index("Mul") < ops.index("MatMul") < ops.index("Softmax") and "Cast" not in ops


def test_command(tmp_path):
    exported(tmp_path, nn.Linear(4, 2).eval(), (R(2, 4),), ({0: B},))
    ran = convert(tmp_path / "model.pt2", "-o", tmp_path / "m.onnx", "--opset", 20)
    assert ran.returncode == 0 and "opset 20, target ort" in ran.stdout
    assert convert(tmp_path / "model.pt2", "-o", tmp_path / "again.pt2").returncode == 0
    assert qkv.Model(tmp_path / "again.pt2").graph_text() == qkv.Model(tmp_path / "model.pt2").graph_text()
    for args in (("-o", tmp_path / "m.txt"), (), ("-o", tmp_path / "x.pt2", "--opset", 18),
                 ("-o", tmp_path / "m.onnx", "--target", "orrt")):
        assert convert(tmp_path / "model.pt2", *args).returncode == 2


@pytest.mark.parametrize("opset", [18, 23])
def test_comes_back(tmp_path, opset):
    """qkv reads its own file, gives eager's values, and writes what it read as it was."""
    torch.backends.mha.set_fastpath_enabled(False)
    model = exported(tmp_path, Block().eval(), (R(2, 6, 16), padding(2, 6)), ({0: B, 1: S}, {0: B, 1: S}))
    model.save_onnx(tmp_path / "a.onnx", opset=opset)
    read = qkv.Model(tmp_path / "a.onnx")
    for b, s in ((2, 6), (4, 9)):
        with torch.no_grad():
            want = Block().eval()(R(b, s, 16, seed=b), padding(b, s))
        for got, x in zip(read.run([R(b, s, 16, seed=b).numpy(), padding(b, s).numpy()]).values(), want, strict=True):
            close(np.asarray(got), x)
    read.save_onnx(tmp_path / "b.onnx", opset=opset)
    again = qkv.Model(tmp_path / "b.onnx")
    assert again.graph_text() == read.graph_text()
    again.save_onnx(tmp_path / "c.onnx", opset=opset)
    assert (tmp_path / "c.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def control_model(path):
    """y = x doubled until its sum is 100 or more, at most n times; then x or -x, as the sum is positive."""
    from onnx import TensorProto as T
    from onnx import helper as h
    f, node, info = [T.FLOAT, ["n"]], h.make_node, h.make_tensor_value_info
    body = h.make_graph([node("Mul", ["x_in", "two"], ["x_out"]), node("ReduceSum", ["x_out"], ["s"], keepdims=0),
                         node("Less", ["s", "hundred"], ["go"])], "body",
                        [info("i", T.INT64, []), info("go_in", T.BOOL, []), info("x_in", *f)],
                        [info("go", T.BOOL, []), info("x_out", *f), info("s", T.FLOAT, [])])
    yes, no = (h.make_graph([node(op, [a], [out])], out, [], [info(out, *f)])
               for op, a, out in (("Identity", "y", "a"), ("Neg", "x", "b")))
    nodes = [node("Loop", ["n", "", "x"], ["y", "sums"], body=body), node("ReduceSum", ["x"], ["total"], keepdims=0),
             node("Greater", ["total", "two"], ["positive"]),
             node("If", ["positive"], ["z"], then_branch=yes, else_branch=no)]
    values = [onnx.numpy_helper.from_array(np.float32(v), name) for name, v in (("two", 2), ("hundred", 100))]
    g = h.make_graph(nodes, "g", [info("x", *f), info("n", T.INT64, [])],
                     [info("y", *f), info("sums", T.FLOAT, ["turns"]), info("z", *f)], values)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 18)], ir_version=8), path)


@pytest.mark.parametrize("opset", [17, 18, 23])
def test_loops_and_branches(tmp_path, opset):
    control_model(tmp_path / "given.onnx")
    qkv.Model(tmp_path / "given.onnx").save_onnx(tmp_path / "m.onnx", opset=opset)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    for x, n in ((np.arange(4), 9), (-np.arange(3), 2), (np.arange(5), 0)):
        feeds = {"x": x.astype(np.float32), "n": np.array(n)}
        a, b = (ort.InferenceSession(str(tmp_path / f), providers=["CPUExecutionProvider"]).run(None, feeds)
                for f in ("given.onnx", "m.onnx"))
        for want, got in zip(a, b, strict=True):
            assert want.shape == got.shape and np.allclose(want, got)


@pytest.mark.turns
@pytest.mark.parametrize("name, options", [
    ("Qwen3MoeConfig", dict(moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, head_dim=8)),
    ("GptOssConfig", dict(num_local_experts=4, num_experts_per_tok=2, head_dim=8, sliding_window=8))])
def test_mixture_of_experts(name, options, tmp_path):
    """A histogram counts each expert's tokens, a product of groups of rows runs the experts: at other sizes, too."""
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, name)(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                                         num_attention_heads=4, num_key_value_heads=2, **options)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    module = fn(lambda self, ids: model(input_ids=ids, use_cache=False).logits)
    module.model = model
    with torch.no_grad():
        program = torch.export.export(module, (torch.randint(0, 50, (2, 7)),),
                                      dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    assert {"aten.histc.default", "transformers.grouped_mm_fallback.default"} <= {str(n.target) for n in
                                                                                 program.graph.nodes}
    torch.export.save(program, tmp_path / "m.pt2")
    qkv.Model(tmp_path / "m.pt2").save_onnx(tmp_path / "m.onnx")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    qkv.Model(tmp_path / "m.onnx").save(tmp_path / "back.pt2")
    back = torch.export.load(tmp_path / "back.pt2").module()
    for shape in ((2, 7), (3, 11)):
        ids = torch.randint(0, 50, shape)
        want, got = module(ids).detach().numpy(), session.run(None, {session.get_inputs()[0].name: ids.numpy()})[0]
        assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
        assert np.abs(back(ids)[0].detach().numpy() - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("profile", ["ort", "openvino"])
def test_axes_that_may_be_empty(tmp_path, profile):
    """Sums of exponentials over no elements are -inf, attention to no keys is 0, as read again, too."""
    def forward(self, x, q, k, m):
        x, k, m = x[..., 1:], k[..., 1:, :], m[..., 1:]
        exponentials = torch.logsumexp(x, -1), torch.logsumexp(x, (0, 2)), torch.logcumsumexp(x, -1)
        return *exponentials, *(F.scaled_dot_product_attention(q, k, k, mask) for mask in (m, m.float()))

    n = Dim.DYNAMIC
    variants = []
    for size in (4, 1):
        x = R(3, 4, size)
        x[1:2] = -torch.inf
        variants.append((x, R(1, 2, 3, 8), R(1, 2, size, 8), torch.arange(size).expand(3, size) % 3 != 1))
    if profile == "openvino":
        variants = variants[:1]
    module = fn(forward)
    out_and_compare(tmp_path, module, variants, ({2: n}, None, {2: n}, {1: n}), profile, 18)
    back = qkv.Model(tmp_path / "m.onnx")
    for inputs in variants:
        for got, want in zip(back(*(x.numpy() for x in inputs)), module(*inputs), strict=True):
            close(got, want)


def test_largest_of_pictures_of_any_size(tmp_path):
    class Largest(nn.Module):
        def forward(self, x):
            return (*F.adaptive_max_pool2d(x, 1, return_indices=True), F.adaptive_max_pool1d(x[:, :, 0], 1))
    h, w = Dim("h", min=2, max=64), Dim("w", min=2, max=64)
    out_and_compare(tmp_path, Largest(), [(torch.randn(2, 3, 5, 7),), (torch.randn(2, 3, 6, 2),)],
                    ({2: h, 3: w},), "ort", 18)


def test_largest_of_windows_of_any_size(tmp_path):
    class Largest(nn.Module):
        def forward(self, x):
            return (*F.adaptive_max_pool2d(x.round(), (3, 2), return_indices=True),
                    *F.adaptive_max_pool3d(x[None], (2, 3, 4), return_indices=True), F.adaptive_max_pool1d(x[:, 0], 3))
    h, w = Dim("h", min=4, max=64), Dim("w", min=4, max=64)
    out_and_compare(tmp_path, Largest(), [(torch.randn(2, 3, 5, 7),), (torch.randn(2, 3, 8, 4),)],
                    ({2: h, 3: w},), "ort", 18)


@pytest.mark.parametrize("opset", [18, 19, 20, 21, 23])
def test_largest_beside_zeros(tmp_path, opset):
    """ONNX Runtime takes zeros around a MaxPool's input for its own padding, which is minus infinity."""
    module = nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(3, 2))
    out_and_compare(tmp_path, module, [(-torch.rand(2, 3, 9, 8),), (-torch.rand(3, 3, 7, 8),)],
                    ({0: Dim.AUTO, 2: Dim.AUTO},), "ort", opset)


def test_rectified_number(tmp_path):
    out_and_compare(tmp_path, nn.PReLU(), [(torch.tensor(-2.0),), (torch.tensor(3.0),)], None, "ort", 18)


def test_lstm_with_a_projection(tmp_path):
    """ONNX's LSTM has none: its steps are a Scan's or a Loop's."""
    torch.manual_seed(0)
    layer = nn.LSTM(4, 6, 2, proj_size=3, bidirectional=True)
    feeds = [(R(5, b, 4), (R(4, b, 3), R(4, b, 6))) for b in (2, 4)]
    out_and_compare(tmp_path, layer, feeds, ({1: B}, ({1: B}, {1: B})), "ort", 18)


def test_divisors(tmp_path):
    both = fn(lambda self, a, b: (torch.gcd(a, b), torch.lcm(a[:, None], b), torch.gcd(a[:0], b[:0])))
    a, b = torch.tensor([12, -18, 0, 0, 7, 2**40]), torch.tensor([8, 27, 5, 0, -21, 6])
    out_and_compare(tmp_path, both, [(a, b), (a[:2], b[:2])], ({0: S}, {0: S}), "ort", 18)


def test_what_cannot_be_packed_names_its_file(tmp_path):
    """A size that is 200 choices deep: it runs, and no text of it reads back."""
    steps = "".join(f"k{i} = Constant<value_ints = [{3 * i + 5}]>() more{i} = Greater(n{i}, k{i}) "
                    f"next{i} = Add(n{i}, one) n{i + 1} = Where(more{i}, next{i}, n{i})\n" for i in range(200))
    text = ('<ir_version: 9, opset_import: ["" : 18]> g (float[A] x) => (float[B] y) <int64[1] first = {0}, '
            'int64[1] one = {1}, float[1] value = {0.5}> { sizes = Shape(x) n0 = Gather(sizes, first)\n' + steps +
            'y = Expand(value, n200) }')
    onnx.save(onnx.parser.parse_model(text), tmp_path / "deep.onnx")
    done = subprocess.run([QKV, "pack", tmp_path / "deep.onnx", "-o", tmp_path / "deep.qkv"], capture_output=True,
                          text=True)
    assert done.returncode == 4, done
    assert done.stderr.startswith(f"qkv: error: {tmp_path}/deep.onnx: it cannot be packed, for as text"), done


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("sizes", [(9, 11), (1, 40), (3, 5, 6)])
def test_nearest_pixels_of_half_types(tmp_path, sizes, padding, corners, dtype):
    """PyTorch rounds a place to the half type at each step: the pixel is the same one in other runtimes."""
    def sample(self, x, grid):
        return F.grid_sample(x.to(dtype), grid.to(dtype), "nearest", padding, corners).float()
    torch.manual_seed(0)
    given = torch.randint(-99, 99, (2, 3, *sizes)).float(), torch.rand(2, *[12] * len(sizes), len(sizes)) * 2.4 - 1.2
    exported(tmp_path, fn(sample), given).save_onnx(tmp_path / "out.onnx", opset=18 if len(sizes) == 2 else 20)
    want = fn(sample)(*given)
    back = qkv.Model(tmp_path / "out.onnx").run_dlpack(list(given))
    assert torch.equal(torch.from_dlpack(next(iter(back.values()))), want)
    got, = run_ort(tmp_path / "out.onnx", [x.numpy() for x in given])
    assert np.array_equal(got, want.numpy())
