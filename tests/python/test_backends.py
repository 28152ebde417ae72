"""Which kernel PyTorch takes for an attention: qkv's table for the CPU against PyTorch's own choice, call by call;
models; what --lift-sdpa changes.

The table for CUDA has no such truth here: its cases are PyTorch's source read by hand.
"""
import itertools

import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from tolerance import tolerance  # noqa: E402

TOLERANCE = tolerance("TORCH")["f32"]

NAMES = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}


def truth(q, k, v, mask=None, dropout=0.0, causal=False, gqa=False):
    return NAMES[torch._fused_sdp_choice(q, k, v, mask, dropout, causal, enable_gqa=gqa)]


def layouts(shape, dtype):
    """One shape in several orders of memory."""
    yield "contiguous", torch.empty(shape, dtype=dtype)
    if len(shape) >= 2:
        yield "last turned", torch.empty(shape[:-2] + (shape[-1], shape[-2]), dtype=dtype).transpose(-1, -2)
    if len(shape) >= 3:
        yield "heads turned", torch.empty(shape[:-3] + (shape[-2], shape[-3], shape[-1]), dtype=dtype).transpose(-2, -3)
        yield "one head", torch.empty(shape[:-3] + (1,) + shape[-2:], dtype=dtype).expand(shape)
    yield "every second", torch.empty(shape[:-1] + (2 * shape[-1],), dtype=dtype)[..., ::2]
    yield "sliced", torch.empty(shape[:-1] + (3 * shape[-1],), dtype=dtype)[..., :shape[-1]]


def grid():
    """(what, q, k, v, mask, dropout, causal, gqa)"""
    f32 = torch.float32
    for shape in [(2, 3, 5, 8), (1, 1, 1, 1), (2, 3, 5, 20), (2, 4, 7, 512), (3, 5, 8), (5, 8), (1, 2, 3, 4, 8),
                  (2, 3, 1, 16), (2, 3, 0, 8), (2, 3, 5, 1), (0, 2, 3, 8)]:
        for dtype in (f32, torch.float64, torch.float16, torch.bfloat16):
            for (a, q), (b, k), (c, v) in itertools.product(layouts(shape, dtype), repeat=3):
                if a == "contiguous" or (a == b == c) or b == c == "contiguous":
                    yield f"{shape} {dtype} {a} {b} {c}", q, k, v, None, 0.0, False, False
    def new(*shape, dtype=f32, grad=False):
        return torch.empty(shape, dtype=dtype, requires_grad=grad)
    for B, H, N, M, D in [(2, 4, 5, 7, 8), (1, 2, 6, 6, 16), (2, 1, 1, 3, 4)]:
        q, k, v = new(B, H, N, D), new(B, H, M, D), new(B, H, M, D)
        for rank in range(2, 6):
            for axes in itertools.product(*[(1, s) for s in (1, B, H, N, M)[5 - rank:]]):
                for dtype in (f32, torch.bool, torch.float64):
                    for causal in (False, True):
                        yield f"{tuple(q.shape)} mask {axes} {dtype} causal {causal}", q, k, v, new(*axes,
                            dtype=dtype), 0.0, causal, False
        for wrong in [(N + 1, M), (N, M + 1), (B + 1, H, N, M), (B, H + 1, N, M), (B, 1, N + 2, M)]:
            yield f"{tuple(q.shape)} mask {wrong}", q, k, v, new(*wrong), 0.0, False, False
        yield "a mask turned", q, k, v, new(M, N).transpose(0, 1), 0.0, False, False
        yield "a mask with a gradient", q, k, v, new(N, M, grad=True), 0.0, False, False
        yield "a mask with a gradient of one", q, k, v, new(1, 1, N, M, grad=True), 0.0, False, False
        for grads in itertools.product((False, True), repeat=3):
            t = [new(B, H, n, D, grad=g) for n, g in zip((N, M, M), grads)]
            for p in (0.0, 0.1, 0.5):
                for causal in (False, True):
                    yield f"gradients {grads} dropout {p} causal {causal}", *t, None, p, causal, False
        yield "value's own size", q, k, new(B, H, M, 2 * D), None, 0.0, False, False
        yield "key's own size", q, new(B, H, M, 2 * D), v, None, 0.0, False, False
        yield "batch of one", q, new(1, H, M, D), new(1, H, M, D), None, 0.0, False, False
        yield "value's batch of one", q, k, new(1, H, M, D), None, 0.0, False, False
        yield "no keys", q, new(B, H, 0, D), new(B, H, 0, D), None, 0.0, False, False
        yield "mixed dtypes", q, k.double(), v, None, 0.0, False, False
        yield "mixed dtypes of value", q, k, v.half(), None, 0.0, False, False
        yield "complex", q.cfloat(), k.cfloat(), v.cfloat(), None, 0.0, False, False
        yield "integers", q.int(), k.int(), v.int(), None, 0.0, False, False
        yield "mixed ranks", q, k[0], v[0], None, 0.0, False, False
        for hk, hv in itertools.product((1, 2, 3, 4, 8), repeat=2):
            for gqa in (False, True):
                yield f"heads {hk} {hv} gqa {gqa}", new(B, 8, N, D), new(B, hk, M, D), new(B, hv, M,
                    D), None, 0.0, False, gqa


def test_cpu_table():
    wrong, n, seen = [], 0, {}
    for what, q, k, v, mask, dropout, causal, gqa in grid():
        want = truth(q, k, v, mask, dropout, causal, gqa)
        got = qkv.sdpa_choice(q, k, v, mask, dropout, causal, enable_gqa=gqa)
        n += 1
        seen[want] = seen.get(want, 0) + 1
        if got != want:
            wrong.append(f"{what}: {got}, PyTorch {want}")
    assert not wrong, f"{len(wrong)} of {n}: " + "; ".join(wrong[:10])
    assert n >= 500 and min(seen.values()) >= 100, (n, seen)


# ---------------------------------------------------------------- cases of CUDA, from its source


def cuda(device, q, k=None, v=None, mask=None, dtype="f16", cudnn=None, **call):
    return qkv.sdpa_choice((q, dtype), (k or q, dtype), (v or k or q, dtype), None if mask is None else (mask, dtype),
                           device=device, cudnn=cudnn, **call)


@pytest.mark.parametrize("want, device, call", [
    ("flash", "cuda-sm80", dict(q=(2, 8, 128, 64))),
    ("cudnn", "cuda-sm90", dict(q=(2, 8, 128, 64))),
    ("flash", "cuda-sm90", dict(q=(2, 8, 128, 64), cudnn="9.10.2")),
    ("flash", "cuda-sm120", dict(q=(2, 8, 128, 64))),
    ("flash", "cuda-sm90", dict(q=(2, 8, 128, 60))),
    ("flash", "cuda-sm90", dict(q=(2, 8, 128, 256))),
    ("cudnn", "cuda-sm90", dict(q=(2, 8, 128, 256), cudnn="9.23.0")),
    ("flash", "cuda-sm90", dict(q=(2, 8, 128, 160), cudnn="9.23.0", requires_grad=True)),
    ("cudnn", "cuda-sm100", dict(q=(2, 8, 128, 192), v=(2, 8, 128, 128))),
    ("efficient", "cuda-sm80", dict(q=(2, 8, 128, 192), v=(2, 8, 128, 128))),
    ("efficient", "cuda-sm80", dict(q=(2, 8, 128, 64), mask=(128, 128))),
    ("math", "cuda-sm80", dict(q=(2, 8, 128, 60), mask=(128, 128))),
    ("cudnn", "cuda-sm90", dict(q=(2, 8, 128, 64), mask=(128, 128))),
    ("efficient", "cuda-sm90", dict(q=(2, 8, 128, 64), mask=(8, 128, 128))),
    ("efficient", "cuda-sm80", dict(q=(2, 8, 128, 64), dtype="f32")),
    ("efficient", "cuda-sm80", dict(q=(2, 8, 128, 20), dtype="f32")),
    ("math", "cuda-sm80", dict(q=(2, 8, 128, 18), dtype="f32")),
    ("efficient", "cuda-sm75", dict(q=(2, 8, 128, 18), dtype="f32")),
    ("math", "cuda-sm75", dict(q=(2, 8, 128, 64), dtype="bf16")),
    ("efficient", "cuda-sm75", dict(q=(2, 8, 128, 64))),
    ("math", "cuda-sm80", dict(q=(2, 8, 128, 64), dtype="f64")),
    ("math", "cuda-sm80", dict(q=(8, 128, 64))),
    ("math", "cuda-sm80", dict(q=(2, 8, 128, 320), mask=(127, 128), requires_grad=True, k=(1, 8, 128, 320))),
    ("efficient", "cuda-sm80", dict(q=(2, 8, 128, 320))),
    ("efficient", "cuda-sm80", dict(q=(2, 8, 1, 64), k=(2, 8, 128, 64), is_causal=True)),
    ("flash", "cuda-sm80", dict(q=(2, 8, 128, 64), is_causal=True, dropout_p=0.1)),
    ("flash", "cuda-sm90", dict(q=(2, 8, 128, 64), dropout_p=0.1)),
    ("cudnn", "cuda-sm90", dict(q=(2, 8, 128, 64), dropout_p=0.125)),
    ("flash", "cuda-sm90", dict(q=(2, 8, 128, 64), k=(2, 8, 1, 64))),
    ("flash", "cuda-sm90", dict(q=(65536, 8, 16, 64))),
    ("flash", "cuda-sm86", dict(q=(2, 8, 128, 200))),
    ("efficient", "cuda-sm86", dict(q=(2, 8, 128, 200), requires_grad=True)),
    ("flash", "cuda-sm86", dict(q=(2, 8, 128, 240), requires_grad=True)),
    ("efficient", "cuda-sm86", dict(q=(2, 8, 128, 240), requires_grad=True, dropout_p=0.1)),
    ("flash", "cuda-sm80", dict(q=(2, 8, 128, 64), k=(2, 2, 128, 64), enable_gqa=True)),
    ("math", "cuda-sm80", dict(q=(2, 8, 128, 64), k=(2, 2, 128, 64))),
    ("cudnn", "cuda-sm90", dict(q=(2, 8, 128, 64), k=(2, 2, 128, 64), v=(2, 4, 128, 64), enable_gqa=True)),
])
def test_cuda_table(want, device, call):
    assert cuda(device, **call) == want


def test_cuda_strides():
    turned, offset = ((2, 8, 128, 64), (65536, 8192, 1, 128), "f16"), torch.empty(2, 8, 128, 65,
        dtype=torch.float16)[..., 1:]
    assert qkv.sdpa_choice(turned, turned, turned, device="cuda-sm80") == "math"
    mask = ((128, 128), (1, 128), "f16")
    q = ((2, 8, 128, 64), "f16")
    assert qkv.sdpa_choice(q, q, q, mask, device="cuda-sm80") == "math"
    assert qkv.sdpa_choice(q, q, q, mask) == "flash"
    assert qkv.sdpa_choice(offset, q, q, ((128, 128), "f16"), device="cuda-sm80") == "math"
    assert [r["rule"] for r in qkv.sdpa_choice(offset, q, q, ((128, 128), "f16"), device="cuda-sm80",
                                               report=True)["refused"]] == ["no_mask", "alignment"]


def test_every_rule_is_documented():
    import pathlib
    import re

    root = pathlib.Path(__file__).resolve().parents[2]
    rules = re.findall(r"^RULE\((\w+),", (root / "src/backends/sdpa_rules.def").read_text(), re.M)
    page = (root / "docs/BACKENDS.md").read_text()
    assert len(rules) > 20 and not [r for r in rules if not re.search(rf"\b{r}\b", page)]


def test_bad_words():
    q = ((2, 8, 128, 64), "f16")
    for device in ("gpu", "cuda", "cuda-sm", "cuda-sm9x", "cuda-sm20"):
        with pytest.raises(qkv.Error, match="expected cpu or cuda-smNN"):
            qkv.sdpa_choice(q, q, q, device=device)
    with pytest.raises(qkv.Error, match="rank 17"):
        qkv.sdpa_choice(((1,) * 17, "f16"), q, q)
    with pytest.raises(qkv.Error, match="at least 1"):
        qkv.sdpa_choice(((), "f16"), q, q)


# ---------------------------------------------------------------- models


class Watch(torch.fx.Interpreter):
    """Runs an exported program's module; what PyTorch picks for every attention on the way."""

    def run_node(self, n):
        if n.target is torch.ops.aten.scaled_dot_product_attention.default:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            self.seen.append(NAMES[torch._fused_sdp_choice(*args, **kwargs)])
        return super().run_node(n)


def picked(module, args, grad=False):
    watch = Watch(module)
    watch.seen = []
    with torch.set_grad_enabled(grad):
        out = watch.run(*args)
    return watch.seen, out


class Kinds(nn.Module):
    """Attention as people write it."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(4, 9, 9))
        self.whole = nn.Parameter(torch.randn(1, 4, 9, 9))
        self.frozen = nn.Parameter(torch.randn(1, 4, 9, 9), requires_grad=False)
        self.linear = nn.Linear(32, 32)

    def forward(self, x, keep):
        sdpa, heads = F.scaled_dot_product_attention, lambda t: t.unflatten(-1, (4, 8)).transpose(1, 2)
        q, turned = heads(self.linear(x)), x.transpose(1, 2).contiguous().unflatten(1, (4, 8)).transpose(2, 3)
        n = x.shape[1]
        y = sdpa(q, q, q)
        y = y + sdpa(q, q, q, is_causal=True, scale=0.2)
        y = y + sdpa(q, q, q, keep[:, None, None, :])
        y = y + sdpa(q, q, q, keep[:, None, :, None] & keep[:, None, None, :])
        y = y + sdpa(q, q, q, self.bias)
        y = y + sdpa(q, q, q, self.bias[None])
        y = y + sdpa(q, q, q, self.whole)
        y = y + sdpa(q, q, q, self.frozen)
        y = y + sdpa(turned, turned, turned)
        y = y + sdpa(turned, q, q)
        y = y + sdpa(turned.contiguous(), q, q)
        y = y + sdpa(q, q[:1], q[:1])
        y = y + sdpa(q, q[:, :2], q[:, :2], enable_gqa=True)
        y = y + sdpa(q[..., :4], q[..., :4], q)
        y = y + sdpa(q[..., ::2], q[..., ::2], q[..., ::2]).repeat(1, 1, 1, 2)
        y = y + sdpa(q.flatten(0, 1), q.flatten(0, 1), q.flatten(0, 1)).unflatten(0, (-1, 4))
        y = y + sdpa(q[:, 0], q[:, 0], q[:, 0])[:, None]
        y = y + sdpa(q[0, 0], q[0, 0], q[0, 0])
        return y + sdpa(q[None], q[None], q[None])[0]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    torch.manual_seed(0)
    args = torch.randn(3, 9, 32), torch.rand(3, 9) > 0.3
    batch = torch.export.Dim("batch", min=2, max=8)
    program = torch.export.export(Kinds().eval(), args, dynamic_shapes={"x": {0: batch}, "keep": {0: batch}})
    path = str(tmp_path_factory.mktemp("kinds") / "kinds.pt2")
    torch.export.save(program, path)
    return path, args


@pytest.mark.turns
@pytest.mark.parametrize("train", [False, True])
def test_model(kinds, train):
    path, args = kinds
    seen, _ = picked(torch.export.load(path).module(), args, train)
    report = qkv.backends(path, train=train, dims={"batch": 3})
    assert len(seen) == 19 and {"math", "flash"} <= set(seen)
    assert [a["choice"][0]["backend"] for a in report["attentions"]] == seen
    assert [len(a["choice"]) for a in report["attentions"]] == [1] * len(seen)
    assert all(bool(a["refused"]) == (a["choice"][0]["backend"] == "math") for a in report["attentions"])


def test_paths_and_cases(tmp_path):
    class Cross(nn.Module):
        def forward(self, q, k):
            return F.scaled_dot_product_attention(q, k, k, is_causal=True)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Cross(), Cross()])

        def forward(self, q, k):
            return self.layers[0](q, k) + self.layers[1](q, k)

    q, k = torch.randn(2, 4, 5, 64, dtype=torch.float16), torch.randn(2, 4, 7, 64, dtype=torch.float16)
    Dim = torch.export.Dim
    batch, n, m = Dim("batch", min=1, max=1 << 20), Dim("n", min=1, max=100), Dim("m", min=1, max=100)
    path = str(tmp_path / "cross.pt2")
    torch.export.save(torch.export.export(Outer(), (q, k),
                                          dynamic_shapes={"q": {0: batch, 2: n}, "k": {0: batch, 2: m}}), path)
    report = qkv.backends(path, device="cuda-sm90")
    B, H, N, D = report["attentions"][0]["query"]
    M = report["attentions"][0]["key"][2]
    assert [a["path"] for a in report["attentions"]] == ["layers.0", "layers.1"] and (H, D) == (4, 64)
    assert [(c["backend"], c["when"], c["rule"]) for c in report["attentions"][1]["choice"]] == [
        ("cudnn", f"{B} <= 65535 and {M} != 1", "many"), ("flash", f"{N} == {M}", "causal_square"),
        ("efficient", None, None)]
    some = qkv.backends(path, device="cuda-sm90", dims={"batch": 70000, "k.2": 9})["attentions"][0]
    assert [(c["backend"], c["when"], c["rule"]) for c in some["choice"]] == [("flash", f"{N} == 9", "causal_square"),
                                                                              ("efficient", None, None)]
    assert some["refused"][0]["rule"] == "many" and some["refused"][0]["when"] is None
    with pytest.raises(qkv.Error, match="no size is called"):
        qkv.backends(path, dims={"nothing": 3})


# ---------------------------------------------------------------- lifting


def test_lift(kinds, tmp_path):
    """What is left with math on the CPU is what changes numbers or needs another model:
    a mask that asks for a gradient."""
    path, args = kinds
    module = torch.export.load(path).module()
    model, out = qkv.Model(path), str(tmp_path / "lifted.pt2")
    before = [a["choice"][0]["backend"] for a in model.backends()["attentions"]]
    report = model.rewrite(prove=True, lift_sdpa="cpu")
    lifts = [f for f in report["firings"] if f["rule"].startswith("lift")]
    assert all(f["runs"] > 0 and f["not_proven"] is None for f in lifts), lifts
    assert {f["note"] for f in lifts} >= {"2 axes became (batch, heads, length, size)",
                                          "3 axes became (batch, heads, length, size)",
                                          "5 axes became (batch, heads, length, size)",
                                          "batch and heads that broadcast are written out",
                                          "head sizes 4, 8 padded to 8, 8"}
    assert any("contiguous" in f["note"] for f in lifts)
    model.save(out)
    seen, got = picked(torch.export.load(out).module(), args)
    want = module(*args)
    assert (got - want).abs().max() <= TOLERANCE * want.abs().max()
    assert seen.count("math") == 3 and before.count("math") > 8  # self.bias, self.bias[None], self.whole
    told = qkv.backends(out)["attentions"]
    assert [a["choice"][0]["backend"] for a in told] == seen == [a["choice"][0]["backend"]
                                                                 for a in model.backends()["attentions"]]
    assert {r["rule"] for a in told for r in a["refused"]} == {"mask_grad"}


class Heads(nn.Module):
    """Heads of 18, which no CUDA kernel takes with a mask."""

    def forward(self, x, mask):
        q = x.unflatten(-1, (2, 18)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q, mask).transpose(1,
                                                                       2).flatten(2) + F.scaled_dot_product_attention(q, q, q[..., :9], is_causal=True).mean()


@pytest.mark.parametrize("device, size", [("cuda-sm80", 20), ("cuda-sm90", 20), ("cuda-sm75", 18)])
def test_lift_for_cuda(device, size, tmp_path):
    torch.manual_seed(0)
    path, out = str(tmp_path / "heads.pt2"), str(tmp_path / "lifted.pt2")
    batch, n = torch.export.Dim("batch", min=1), torch.export.Dim("n", min=2)
    args = torch.randn(3, 5, 36), torch.randn(5, 5)
    torch.export.save(torch.export.export(Heads(), args,
                                          dynamic_shapes={"x": {0: batch, 1: n}, "mask": {0: n, 1: n}}), path)
    model = qkv.Model(path)
    report = model.rewrite(prove=True, lift_sdpa=device)
    assert all(f["not_proven"] is None for f in report["firings"])
    model.save(out)
    told = qkv.backends(out, device=device)["attentions"]
    assert [a["choice"][0]["backend"] for a in told] == ["efficient"] * 2 and told[0]["query"][3] == size
    x = torch.randn(2, 7, 36), torch.randn(7, 7)
    want, got = Heads()(*x), torch.export.load(out).module()(*x)
    assert (got - want).abs().max() <= TOLERANCE * want.abs().max()


def test_lift_leaves_alone(tmp_path):
    """Nothing is done where nothing is won."""
    class Plain(nn.Module):
        def forward(self, q):
            return F.scaled_dot_product_attention(q, q, q) + F.scaled_dot_product_attention(q, q, q, is_causal=True)

    path = str(tmp_path / "plain.pt2")
    torch.export.save(torch.export.export(Plain(), (torch.randn(2, 4, 6, 18),)), path)
    report = qkv.Model(path).rewrite(lift_sdpa="cpu")
    assert not report["firings"] and report["nodes_after"] == report["nodes_before"]
    with pytest.raises(qkv.Error, match="expected cpu or cuda-smNN"):
        qkv.Model(path).rewrite(lift_sdpa="gpu")
