"""Written files: other float types, folded constants, old opsets, profiles for TensorRT."""
import json
import os
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402

QKV = os.environ.get("QKV", os.path.join(os.path.dirname(__file__), "..", "..", "build", "qkv"))
Dim = torch.export.Dim
F = torch.nn.functional


class Block(torch.nn.Module):
    """Attention with an additive mask that some rows of a batch fill, a norm, a table of embeddings."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = torch.nn.Embedding(40, 32), torch.nn.LayerNorm(32)
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
        self.conv = torch.nn.Conv1d(32, 32, 3, padding=1)

    def forward(self, ids, keep):
        b, n = ids.shape
        x = self.norm(self.embed(ids))
        q, k, v = self.qkv(x).view(b, n, 3, 2, 16).permute(2, 0, 3, 1, 4)
        mask = torch.where(keep[:, None, None, :], 0.0, torch.finfo(torch.float32).min)
        p = torch.softmax(q @ k.transpose(-1, -2) * 0.25 + mask, -1)
        x = x + self.out((p @ v).transpose(1, 2).reshape(b, n, 32))
        return F.hardswish(self.conv(x.transpose(1, 2))).transpose(1, 2)  # HardSwish came with opset 14


class Shifted(torch.nn.Module):
    """The mask of shifted windows as Swin makes it, at a fixed size."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        mask = torch.zeros(1, 8, 8, 1)
        count = 0
        for h in (slice(0, -4), slice(-4, -2), slice(-2, None)):
            for w in (slice(0, -4), slice(-4, -2), slice(-2, None)):
                mask[:, h, w, :] = count
                count += 1
        m = mask.view(1, 2, 4, 2, 4, 1).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16)
        m = m.unsqueeze(1) - m.unsqueeze(2)
        m = m.masked_fill(m != 0, -100.0).masked_fill(m == 0, 0.0)
        return torch.softmax(x * self.scale + m, -1)


def run(*args, fails=0):
    done = subprocess.run([QKV, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == fails, done.stderr
    return done


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    torch.manual_seed(0)
    module, path = Block().eval(), tmp_path_factory.mktemp("written") / "m.pt2"
    b, n = Dim("batch", min=1, max=8), Dim("seq", min=1, max=32)
    args = (torch.randint(0, 40, (2, 6)), torch.ones(2, 6, dtype=torch.bool))
    qkv.export(module, args, dynamic_shapes=({0: b, 1: n}, {0: b, 1: n}), path=str(path))
    return module, str(path)


def inputs(b, n, empty_row=False):
    keep = torch.rand(b, n) > 0.3
    keep[:, 0] = True
    if empty_row:
        keep[0] = False
    return torch.randint(0, 40, (b, n)), keep


def close(got, want, share):
    want = want.detach().float().numpy()
    assert np.isfinite(got).all() and got.shape == want.shape
    assert np.abs(got - want).max() <= share * np.abs(want).max()


SHARE = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5}  # src/tensor/tolerance.def
SIZES = [(1, 1), (3, 7), (8, 32)]


def check(run, module, share, empty_rows_differ):
    """At all sizes, with a row of the mask that allows no key: its average of all values stays where the sums are as
    exact as the mask; in any case it is finite."""
    for b, n in SIZES:
        ids, keep = inputs(b, n, empty_row=True)
        got, want = run(ids, keep), module(ids, keep)
        assert np.isfinite(got).all()
        close(got[empty_rows_differ:], want[empty_rows_differ:], share) if b > 1 else None


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("rewrite", [True, False])
@pytest.mark.parametrize("end", ["pt2", "onnx"])
def test_dtype(made, tmp_path, dtype, rewrite, end):
    module, path = made
    out = tmp_path / f"m.{end}"
    said = run("convert", path, "-o", out, "--dtype", dtype, *(["--rewrite"] if rewrite else [])).stderr
    model = qkv.Model(out)
    if dtype != "f32":
        assert "stays f32: inputs, outputs" in said and "layer_norm 1" in said and "embedding 1" in said
        assert "weights 17.1 KiB, before 33.9 KiB" in said
    check(lambda ids, keep: model(ids, keep)[0], module, 2 * SHARE[dtype], dtype == "f16")
    if end == "pt2":
        program = torch.export.load(out).module()
        ids, keep = inputs(3, 7)
        close(program(ids, keep).detach().numpy(), module(ids, keep), 2 * SHARE[dtype])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_dtype_in_onnxruntime(made, tmp_path, dtype):
    ort, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    module, path = made
    run("convert", path, "-o", tmp_path / "m.onnx", "--dtype", dtype, "--rewrite")
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"), full_check=True)
    session = ort.InferenceSession(str(tmp_path / "m.onnx"))
    check(lambda ids, keep: session.run(None, {"ids": ids.numpy(), "keep": keep.numpy()})[0], module,
          2 * SHARE[dtype], dtype == "f16")


def test_dtype_back(made, tmp_path):
    """A bf16 model as float32: its own values, exactly those that bf16 holds."""
    _, path = made
    run("convert", path, "-o", tmp_path / "b.pt2", "--dtype", "bf16")
    run("convert", tmp_path / "b.pt2", "-o", tmp_path / "f.pt2", "--dtype", "f32")
    model = qkv.Model(tmp_path / "f.pt2")
    assert "bf16" not in model.graph_text()
    narrow, wide = qkv.Model(tmp_path / "b.pt2").weights(), model.weights()
    assert all(np.array_equal(narrow[name], wide[name]) for name in narrow)


def test_tied_weights_stay_tied(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(64, 32), torch.nn.Linear(32, 64, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    torch.manual_seed(0)
    module, ids = Tied().eval(), torch.randint(0, 64, (2, 5))
    qkv.export(module, (ids,), path=str(tmp_path / "t.pt2"))
    run("convert", tmp_path / "t.pt2", "-o", tmp_path / "h.onnx", "--dtype", "f16")
    assert os.path.getsize(tmp_path / "h.onnx") < 64 * 32 * 2 + 2000
    close(qkv.Model(tmp_path / "h.onnx")(ids)[0], module(ids), 8e-3)


def test_bad_dtypes(made, tmp_path):
    _, path = made
    assert "expected f16, bf16 or f32" in run("convert", path, "-o", tmp_path / "x.onnx", "--dtype", "f64",
                                              fails=2).stderr
    qkv.Model(path).pack(tmp_path / "m.qkv")
    assert "packed" in run("convert", tmp_path / "m.qkv", "-o", tmp_path / "x.onnx", "--dtype", "f16", fails=4).stderr
    big = torch.nn.Linear(8, 8)
    big.weight.data[0, 0] = 1e5
    qkv.export(big.eval(), (torch.randn(2, 8),), path=str(tmp_path / "big.pt2"))
    said = run("convert", tmp_path / "big.pt2", "-o", tmp_path / "x.pt2", "--dtype", "f16", fails=2).stderr
    assert "weight 'weight' holds 100000, which f16 cannot: take bf16" in said
    assert not os.path.exists(tmp_path / "x.pt2") and not os.path.exists(tmp_path / "x.onnx")


def test_constants_are_folded(tmp_path):
    torch.manual_seed(0)
    module, x = Shifted().eval(), torch.randn(4, 16, 16)
    program = torch.export.export(module, (x,))
    torch.export.save(program, tmp_path / "s.pt2")
    model = qkv.Model(tmp_path / "s.pt2")
    assert model.graph_text().count("slice_scatter") >= 9
    for end in ("pt2", "onnx"):
        run("convert", tmp_path / "s.pt2", "-o", tmp_path / f"t.{end}")
        written = qkv.Model(tmp_path / f"t.{end}")
        nodes = [line for line in written.graph_text().splitlines() if line.startswith("%")]
        assert len(nodes) == 3, nodes  # mul, add, softmax
        close(written(x)[0], module(x), 2e-5)
    loaded = torch.export.load(tmp_path / "t.pt2")
    torch.testing.assert_close(loaded.module()(x), module(x))
    assert list(dict(loaded.named_parameters())) == ["scale"]


def test_parameters_and_buffers_are_not_folded(tmp_path):
    class Turned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4, 6))
            self.register_buffer("table", torch.randn(6))

        def forward(self, x):
            return x @ (self.w * 2).T + self.table.exp()[:4]

    module, x = Turned().eval(), torch.randn(3, 6)
    qkv.export(module, (x,), path=str(tmp_path / "p.pt2"))
    run("convert", tmp_path / "p.pt2", "-o", tmp_path / "q.pt2")
    loaded = torch.export.load(tmp_path / "q.pt2")
    assert set(loaded.state_dict) == {"w", "table"}
    loaded.module().load_state_dict({"w": module.w.data, "table": module.table})
    close(qkv.Model(tmp_path / "q.pt2")(x)[0], module(x), 2e-5)


@pytest.mark.parametrize("opset", [13, 14, 15, 16, 17])
@pytest.mark.parametrize("target", ["ort", "tensorrt", "spec"])
def test_old_opsets(made, tmp_path, opset, target):
    ort, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    module, path = made
    run("convert", path, "-o", tmp_path / "m.onnx", "--opset", opset, "--target", target, "--rewrite")
    model = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == opset and model.ir_version <= 8
    session = ort.InferenceSession(str(tmp_path / "m.onnx"))
    for b, n in SIZES:
        ids, keep = inputs(b, n)
        close(session.run(None, {"ids": ids.numpy(), "keep": keep.numpy()})[0], module(ids, keep), 2e-5)
    ids, keep = inputs(3, 7)
    close(qkv.Model(tmp_path / "m.onnx")(ids, keep)[0], module(ids, keep), 2e-5)


def test_opset_too_old_names_the_node(tmp_path):
    class Sample(torch.nn.Module):
        def forward(self, x, grid):
            return F.grid_sample(x, grid, align_corners=False)

    args = (torch.randn(1, 2, 5, 5), torch.rand(1, 3, 3, 2))
    qkv.export(Sample(), args, path=str(tmp_path / "g.pt2"))
    said = run("convert", tmp_path / "g.pt2", "-o", tmp_path / "g.onnx", "--opset", 13, fails=4).stderr
    assert "grid_sampler" in said and "ONNX has GridSample from opset 16 on" in said
    assert not os.path.exists(tmp_path / "g.onnx")
    run("convert", tmp_path / "g.pt2", "-o", tmp_path / "g.onnx", "--opset", 16)
    assert "13 to 25" in run("convert", tmp_path / "g.pt2", "-o", tmp_path / "h.onnx", "--opset", 12, fails=2).stderr


def test_tensorrt_profiles(made, tmp_path):
    _, path = made
    out = tmp_path / "m.onnx"
    said = run("convert", path, "-o", out, "--target", "tensorrt", "--rewrite").stdout.splitlines()
    shapes = ("--minShapes=ids:1x1,keep:1x1 --optShapes=ids:2x6,keep:2x6 --maxShapes=ids:8x32,keep:8x32")
    assert f"trtexec --onnx={out} {shapes}" in said
    report = json.loads(run("convert", path, "-o", out, "--target", "tensorrt", "--rewrite", "--dtype", "f16",
                            "--json").stdout)
    assert report["tensorrt"]["profiles"][0] == {"input": "ids", "min": [1, 1], "opt": [2, 6], "max": [8, 32]}
    assert report["tensorrt"]["trtexec"] == f"trtexec --onnx={out} --stronglyTyped {shapes}"
    assert "tensorrt" not in json.loads(run("convert", path, "-o", out, "--json").stdout)


def test_tensorrt_profile_needs_a_bound(tmp_path):
    module = torch.nn.Linear(4, 4).eval()
    qkv.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: Dim("rows")},), path=str(tmp_path / "l.pt2"))
    done = run("convert", tmp_path / "l.pt2", "-o", tmp_path / "l.onnx", "--target", "tensorrt")
    assert "size 'rows' has no upper bound" in done.stderr and "--minShapes" not in done.stdout


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_polygamma_of_half_types(dtype, tmp_path):
    """PyTorch has no zeta function of them: what is written computes it in float32."""
    class Trigamma(torch.nn.Module):
        def forward(self, x):
            return torch.polygamma(1, x)

    x = torch.linspace(0.5, 5, 9).to(dtype)
    torch.export.save(torch.export.export(Trigamma(), (x,)), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    model.rewrite()
    model.save(tmp_path / "again.pt2")
    got = torch.export.load(tmp_path / "again.pt2").module()(x)
    torch.testing.assert_close(got, Trigamma()(x))


class Regions(torch.nn.Module):
    """As many regions of keys and values as there are windows of four queries: that keys and values are as many follows
    from quotients alone, and is said in the file once they are one attention."""

    def forward(self, q, k, v):
        b, n, c = q.shape
        assert n % 4 == 0
        q, k, v = (x.reshape(b, n // 4, -1, c) for x in (q, k, v))
        k, v = (F.pad(x, (0, 0, 0, 0, 1, 1)).unfold(1, 3, 1).movedim(-1, 2).flatten(2, 3) for x in (k, v))
        return ((q @ k.transpose(-1, -2)).softmax(-1) @ v).reshape(b, n, c)


def test_sizes_that_are_one_by_quotients(tmp_path):
    sizes = {a: Dim.AUTO for a in (0, 1)}
    args = tuple(torch.randn(2, 12, 8) for _ in range(3))
    torch.export.save(torch.export.export(Regions(), args, dynamic_shapes=(sizes,) * 3), tmp_path / "a.pt2")
    run("rewrite", tmp_path / "a.pt2", "-o", tmp_path / "b.pt2", "--require-fused", "-q")
    model, again = qkv.Model(tmp_path / "b.pt2"), torch.export.load(tmp_path / "b.pt2").module()
    for n, m in ((12, 12), (12, 15), (16, 8)):
        x = [torch.randn(3, k, 8) for k in (n, m, m)]
        for got in (model.run_dlpack(x)["output_0"], again(*x)):
            torch.testing.assert_close(torch.from_dlpack(got), Regions()(*x))


class Truths(torch.nn.Module):
    """Numbers that are written as truths, which arithmetic is done with when a file is read."""

    def forward(self, x):
        return (torch.lerp(x, x + 1, True), torch.arange(False, 4, True), torch.addmm(x, x, x, beta=True, alpha=True),
                F.softplus(x, True), x.std(1, correction=True), torch.linspace(False, True, 3), F.elu(x, True))


def test_truths_as_numbers(tmp_path):
    x = torch.randn(4, 4)
    torch.export.save(torch.export.export(Truths(), (x,)), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    model.save(tmp_path / "saved.pt2")
    for got in (model.run([x.numpy()]).values(), torch.export.load(tmp_path / "saved.pt2").module()(x)):
        for a, b in zip(got, Truths()(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(a), b)


class Ordered(torch.nn.Module):
    def forward(self, x):
        return (x.argsort(dim=-1, stable=True), torch.sort(x, stable=True, descending=True)[1],
                *torch.sort(x, dim=0, stable=True))


def test_stable_sorts_stay_stable(tmp_path):
    """PyTorch's other sort takes equal elements in another order."""
    x = torch.randint(0, 3, (2, 128), generator=torch.Generator().manual_seed(0))
    torch.export.save(torch.export.export(Ordered(), (x,)), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    model.save(tmp_path / "saved.pt2")
    model.save_onnx(tmp_path / "m.onnx")
    qkv.Model(tmp_path / "m.onnx").save(tmp_path / "back.pt2")
    want = torch.utils._pytree.tree_leaves(Ordered()(x))
    loaded = [torch.utils._pytree.tree_leaves(torch.export.load(tmp_path / f"{n}.pt2").module()(x))
              for n in ("saved", "back")]
    for got in (model.run([x.numpy()]).values(), *loaded):
        for a, b in zip(got, want, strict=True):
            assert torch.equal(torch.as_tensor(a), b)


class Chunked(torch.nn.Module):
    """The last chunk of two or three has one element; its size, n - 1 when this was traced, is never 3."""

    def forward(self, x, seen):
        return torch.where(seen.chunk(3, -1)[-1], x.unflatten(-4, (1, -1)), -x.unflatten(-4, (1, -1)))


def test_a_size_that_is_one_or_never_the_other(tmp_path):
    given = torch.randn(2, 3, 2, 3), torch.tensor([True, False])
    free = Dim.AUTO
    torch.export.save(torch.export.export(Chunked(), given, dynamic_shapes=({0: free, 1: free}, {0: free})),
                      tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    model.save(tmp_path / "saved.pt2")
    for x in (given[0], torch.randn(4, 5, 2, 3)):
        want = Chunked()(x, given[1])
        assert torch.equal(torch.as_tensor(model.run([x.numpy(), given[1].numpy()])["output_0"]), want)
        assert torch.equal(torch.export.load(tmp_path / "saved.pt2").module()(x, given[1]), want)
