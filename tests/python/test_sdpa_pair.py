"""Joint graphs that PyTorch wrote, and ours: forward and backward attention, decomposed or PyTorch's own ops, become
qkv.sdpa_lse and qkv.sdpa_backward, proven; gradients stay torch.autograd's here, saved and in PyTorch."""
import os
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch._decomp import core_aten_decompositions  # noqa: E402
from torch._inductor.decomposition import decompositions as inductor  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.export.exported_program import _decompose_exported_program  # noqa: E402
from tolerance import tolerance  # noqa: E402

TOLERANCE = tolerance("TORCH")["f32"]

N, M = Dim("n", min=3, max=64), Dim("m", min=3, max=64)
TABLES = {"none": lambda: {}, "core": core_aten_decompositions, "inductor": lambda: inductor}


class Heads(nn.Module):
    """Projections around one attention: heads of queries and keys (None:
    no axis of heads), sizes of keys and values."""

    def __init__(self, heads=None, shared=None, D=4, E=None, bias=None, **how):
        super().__init__()
        self.heads, self.shared, self.D, self.E, self.how = heads, shared or heads, D, E or D, how
        self.q, self.k, self.v = (nn.Linear(6, size * (n or 1)) for size, n in ((D, heads), (D, self.shared),
                                                                                (self.E, self.shared)))
        self.bias = nn.Parameter(torch.randn(*bias)) if bias else None

    def forward(self, x, y, *mask):
        q, k, v = self.q(x), self.k(y), self.v(y)
        if self.heads:
            q, k, v = (t.unflatten(-1, (n, -1)).transpose(1, 2) for t, n in ((q, self.heads), (k, self.shared),
                                                                             (v, self.shared)))
        o = F.scaled_dot_product_attention(q, k, v, mask[0] if mask else self.bias, **self.how)
        return (o * o.sin()).mean()


def masks(kind, n, m):
    seen = torch.rand(2, 1, n, m) > 0.3
    seen[:, :, :, 0] = True
    return {"bool": [seen], "rows": [seen[:, 0]], "numbers": [torch.randn(n, m)]}.get(kind, [])


CASES = {
    "three axes": (lambda: Heads(), "", True),
    "three axes, causal, a scale": (lambda: Heads(is_causal=True, scale=0.4), "", True),
    "three axes, a mask": (lambda: Heads(), "rows", True),
    "other sizes of values": (lambda: Heads(2, E=8), "bool", True),
    "heads share keys": (lambda: Heads(6, 2, E=8, enable_gqa=True), "", True),
    "heads share keys, causal": (lambda: Heads(6, 2, enable_gqa=True, is_causal=True), "", True),
    "heads share keys, a mask": (lambda: Heads(6, 2, E=8, enable_gqa=True, scale=0.3), "bool", True),
    "all heads share a key, a bias is learnt": (lambda: Heads(4, 1, bias=(1, 4, 5, 7), enable_gqa=True), "", False),
    "a bias is learnt": (lambda: Heads(2, bias=(1, 2, 5, 7)), "", False),
    "PyTorch's kernel, causal": (lambda: Heads(2, is_causal=True), "", True),
    "PyTorch's kernel, a mask": (lambda: Heads(2), "numbers", True),
}


def inputs(kind, n, m):
    return torch.randn(2, n, 6), torch.randn(2, m, 6), *masks(kind, n, m)


def exported(module, kind, dynamic):
    args = inputs(kind, 5, 7)
    shapes = [{1: N}, {1: M}] if dynamic else [None, None]
    if len(args) > 2:
        shapes.append(({args[2].dim() - 2: N, args[2].dim() - 1: M},))
    return torch.export.export(module, args, dynamic_shapes=tuple(shapes) if dynamic else None)


def close(got, want, name):
    got, want = np.asarray(got), want.detach().numpy()
    assert got.shape == want.shape and np.abs(got - want).max() <= TOLERANCE * max(np.abs(want).max(), 1e-3), name


def check(model, module, kind, sizes, path):
    """Here, in the file that it writes, and in PyTorch: the loss and its gradients."""
    loaded = qkv.Model(path), torch.export.load(path)
    for n, m in sizes:
        args = inputs(kind, n, m)
        loss = module(*args)
        want = [loss, *torch.autograd.grad(loss, list(module.parameters()))]
        for run in (model, loaded[0]):
            values = run.run([a.numpy() for a in args])
            assert len(values) == len(want)
            for name, w in zip(values, want):
                close(values[name], w, name)
        with torch.no_grad():
            for i, (g, w) in enumerate(zip(loaded[1].module()(*args), want)):
                close(g.detach(), w, i)


def ops(path):
    program = torch.export.load(path)
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


# Each of PyTorch's tables with what it writes in its own way.
PYTORCHS = [("three axes", "none"), ("three axes, a mask", "core"), ("other sizes of values", "inductor"),
            ("heads share keys", "none"), ("a bias is learnt", "core"), ("PyTorch's kernel, causal", "core"),
            ("PyTorch's kernel, a mask", "none")]


@pytest.mark.turns
@pytest.mark.parametrize("name, table", PYTORCHS)
def test_pytorchs_joint_graphs(name, table, tmp_path):
    make, kind, dynamic = CASES[name]
    torch.manual_seed(0)
    module = make()
    program = _decompose_exported_program(exported(module, kind, dynamic), cia_to_decomp={},
                                          python_decomp_table=TABLES[table](), joint_loss_index=0,
                                          decompose_custom_triton_ops=False)
    torch.export.save(program, tmp_path / "j.pt2")
    model = qkv.Model(tmp_path / "j.pt2")
    report = model.rewrite(prove=True)
    assert report["attentions_fused"] == 1 and report["attentions_left"] == 0
    model.save(tmp_path / "out.pt2")
    written = ops(tmp_path / "out.pt2")
    if name.startswith(("PyTorch's", "three")):
        assert sum("for_cpu" in op for op in written) == 2 and not any("softmax" in op for op in written)
    check(model, module, kind, [(5, 7), (4, 9)] if dynamic else [(5, 7)], tmp_path / "out.pt2")


@pytest.mark.parametrize("name, decompose", [("three axes, causal, a scale", "math"), ("heads share keys, causal",
    "math"), ("heads share keys, a mask", "math"),
                                             ("all heads share a key, a bias is learnt", "math"),
                                             ("a bias is learnt", "none")])
def test_our_joint_graphs(name, decompose, tmp_path):
    make, kind, dynamic = CASES[name]
    torch.manual_seed(0)
    module = make()
    torch.export.save(exported(module, kind, dynamic), tmp_path / "m.pt2")
    model = qkv.joint(tmp_path / "m.pt2", loss="output_0", path=tmp_path / "j.pt2", decompose=decompose)
    report = model.rewrite(prove=True)
    assert report["attentions_left"] == 0 and (decompose == "none"
                                               or any(f["rule"] == "sdpa_backward" for f in report["firings"]))
    model.save(tmp_path / "out.pt2")
    check(model, module, kind, [(5, 7), (4, 9)] if dynamic else [(5, 7)], tmp_path / "out.pt2")


class Kernels(nn.Module):
    """The kernels beneath PyTorch's ops, operands (batch, rows, heads, size):
    the backward one reads the random state of the forward one."""

    def __init__(self, dropout=0.0, **how):
        super().__init__()
        self.dropout, self.how = dropout, how

    def forward(self, g, q, k, v):
        n, m, aten = q.shape[1], k.shape[1], torch.ops.aten
        o, lse, state, unused, _ = aten._flash_attention_forward(q, k, v, None, None, n, m, self.dropout, True, False,
                                                                 **self.how)
        return o, *aten._flash_attention_backward(g, q, k, v, o, lse, None, None, n, m, self.dropout, True, state,
                                                  unused,
                                                  **{k: a for k, a in self.how.items() if k.startswith("window")})


def kernels(path, n=5, m=7, **how):
    x = [torch.randn(2, size, heads, 8) for size, heads in ((n, 4), (n, 4), (m, 2), (m, 2))]
    torch.export.save(torch.export.export(Kernels(**how), tuple(x), dynamic_shapes=({1: N}, {1: N}, {1: M}, {1: M}),
                                          strict=False), path)


@pytest.mark.parametrize("how", [{}, {"window_size_left": 2, "window_size_right": 0}])
def test_kernels_beneath(how, tmp_path):
    kernels(tmp_path / "k.pt2", **how)
    model = qkv.Model(tmp_path / "k.pt2")
    for n, m in ((5, 7), (6, 6), (3, 11)):
        g, q, k, v = x = [torch.randn(2, size, heads, 8) for size, heads in ((n, 4), (n, 4), (m, 2), (m, 2))]
        ahead = torch.arange(m) - torch.arange(n)[:, None] - (m - n)
        seen = (ahead <= 0) & (ahead >= -how.get("window_size_left", m))
        with torch.enable_grad():
            leaves = [a.requires_grad_() for a in (q, k, v)]
            o = F.scaled_dot_product_attention(*(a.transpose(1, 2) for a in leaves), attn_mask=seen,
                                               enable_gqa=True).transpose(1, 2)
            want = [o, *torch.autograd.grad(o, leaves, g)]
        got = model.run([a.detach().numpy() for a in x])
        assert len(got) == 4
        for name, w in zip(got, want):
            close(got[name], w, name)


def test_kernels_beneath_are_refused(tmp_path):
    kernels(tmp_path / "d.pt2", dropout=0.5)
    with pytest.raises(qkv.Error, match="dropout"):
        qkv.Model(tmp_path / "d.pt2")
    kernels(tmp_path / "s.pt2", seqused_k=torch.tensor([3, 7], dtype=torch.int32))
    with pytest.raises(qkv.Error, match="'seqused_k'; expected none"):
        qkv.Model(tmp_path / "s.pt2")


def test_pass(tmp_path):
    """The pair is found by a pass of its own, which can be the last one, or left out."""
    torch.manual_seed(0)
    plain, joint = str(tmp_path / "m.pt2"), str(tmp_path / "j.pt2")
    torch.export.save(exported(Heads(2), "", False), plain)
    qkv.joint(plain, path=joint, decompose="math")

    def pairs(*options):
        text = subprocess.run([os.environ.get("QKV", "build/qkv"), "graph", joint, *options], capture_output=True,
                              text=True, check=True).stdout
        return text.count("= qkv.sdpa_backward.default(")

    assert [pairs("--after", name) for name in ("detach", "pair", "rewrite")] == [0, 1, 1]
    assert pairs("--passes", "detach,rewrite,fuse") == 0
