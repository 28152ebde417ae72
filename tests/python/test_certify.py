"""qkv rewrite --certify and qkv-certify: certificates that hold, and what is changed in a certificate or in a graph is
refused."""
import copy
import ctypes as C
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
import qkv  # noqa: E402
from qkv import _lib  # noqa: E402
from torch import nn  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import test_prove  # noqa: E402

BUILD = pathlib.Path(os.environ.get("QKV_BUILD", pathlib.Path(__file__).parents[2] / "build"))
REALS = "equal over the reals for all sizes in range"


class Bert(nn.Module):
    """Projections, a scale, a mask, a softmax and a product, as BERT spells them."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        hidden = (1.0 - mask[:, None, None, :]) * -10000.0
        p = (q @ k.transpose(-1, -2) / 2.0 + hidden).softmax(-1)
        return self.o((p @ v).transpose(1, 2).reshape(x.shape[0], x.shape[1], 8))


class Gpt(nn.Module):
    """A causal fill of -1e9, a decomposed softmax and GELU."""

    def __init__(self):
        super().__init__()
        self.c, self.o = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (t.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2) for t in self.c(x).split(8, -1))
        n = x.shape[1]
        scores = (q * 0.5) @ k.transpose(-1, -2)
        scores = torch.where(torch.ones(n, n, dtype=torch.bool).tril(), scores, torch.tensor(-1e9))
        e = torch.exp(scores - scores.amax(-1, keepdim=True))
        y = self.o(((e / e.sum(-1, keepdim=True)) @ v).transpose(1, 2).flatten(2))
        return 0.5 * y * (1 + torch.tanh(0.7978845608028654 * (y + 0.044715 * y ** 3)))


class Llama(nn.Module):
    """Decomposed RMS norms, halves that rotate, and heads of keys that are repeated."""

    def __init__(self):
        super().__init__()
        self.w, self.q = nn.Parameter(torch.rand(8) + 0.5), nn.Linear(8, 16, bias=False)
        self.k, self.v = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def turn(self, x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def forward(self, x, angle):
        b, n = x.shape[:2]
        x = self.w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        cos, sin = angle.cos(), angle.sin()
        q = self.turn(self.q(x).view(b, n, 4, 4).transpose(1, 2), cos, sin)
        k = self.turn(self.k(x).view(b, n, 2, 4).transpose(1, 2), cos, sin)
        v = self.v(x).view(b, n, 2, 4).transpose(1, 2)
        k, v = (t[:, :, None].expand(b, 2, 2, n, 4).reshape(b, 4, n, 4) for t in (k, v))
        p = (q @ k.transpose(2, 3) * 0.5).softmax(-1)
        return (p @ v).transpose(1, 2).reshape(b, n, 16)


class Loss(Bert):
    """A loss, whose gradients qkv joint writes with products and a softmax."""

    def forward(self, x, mask):
        return super().forward(x, mask).square().sum()


CASES = {"bert": (Bert, (torch.randn(2, 5, 8), torch.ones(2, 5)), ({0: "b", 1: "n"}, {0: "b", 1: "n"})),
         "gpt": (Gpt, (torch.randn(2, 5, 8),), ({0: "b", 1: "n"},)),
         "joint": (Loss, (torch.randn(2, 5, 8), torch.ones(2, 5)), ({0: "b", 1: "n"}, {0: "b", 1: "n"})),
         "llama": (Llama, (torch.randn(2, 5, 8), torch.randn(5, 4)), ({0: "b", 1: "n"}, {0: "n"}))}


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def written_out(path, joint, *options):
    """The joint graph of a loss, with products and a softmax for each attention."""
    r = run(BUILD / "cli" / "qkv", "joint", path, "--loss", "output_0", "--decompose", "math", "-o", joint, *options)
    assert r.returncode == 0, r.stderr


def checked(source, result, certificate):
    """The exit code of qkv-certify and what it says."""
    r = run(BUILD / "qkv-certify", source, result, certificate)
    assert r.returncode in (0, 1, 3, 4), (r.returncode, r.stderr)
    return r.returncode, r.stdout + r.stderr


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{name: (source, result, certificate)}"""
    folder, made = tmp_path_factory.mktemp("certify"), {}
    for name, (module, args, axes) in CASES.items():
        torch.manual_seed(1)
        dims = {k: torch.export.Dim(k, min=2, max=64) for k in "bn"}
        sizes = tuple({axis: dims[k] for axis, k in d.items()} for d in axes)
        made[name] = paths = tuple(folder / f"{name}{end}" for end in (".pt2", ".new.pt2", ".json"))
        torch.export.save(torch.export.export(module().eval(), args, dynamic_shapes=sizes), paths[0])
        if name == "joint":
            written_out(paths[0], paths[0])
        r = run(BUILD / "cli" / "qkv", "rewrite", paths[0], "-o", paths[1], "--certify", paths[2])
        assert r.returncode == 0, r.stderr
        assert REALS in r.stdout, (name, r.stdout)
    return made


@pytest.mark.turns
@pytest.mark.parametrize("name", CASES)
def test_it_holds(files, name):
    code, said = checked(*files[name])
    assert code == 0 and REALS in said and "2 to 64" in said, said
    cert = json.loads(files[name][2].read_text())
    rule = "sdpa_backward" if name == "joint" else "attention"
    assert cert["whole"] and any(rule in c["rules"] for c in cert["claims"])
    with zipfile.ZipFile(files[name][1]) as z:
        inside = [n for n in z.namelist() if n.endswith("extra/qkv_certificate.json")]
        assert len(inside) == 1 and json.loads(z.read(inside[0])) == cert


@pytest.mark.skipif(not shutil.which("nm"), reason="nm is not installed")
def test_the_checker_links_no_rewriter():
    names = run("nm", BUILD / "qkv-certify").stdout
    assert " checker_replay\n" in names and " pt2_open\n" in names
    assert not [n for n in names.split() if n.startswith(("rewrite_", "rules_", "certify_graphs", "session_"))]


@pytest.mark.turns
def test_the_file_computes_the_same(files):
    for name, (source, result, _) in files.items():
        a, b = (torch.utils._pytree.tree_leaves(torch.export.load(p).module()(*CASES[name][1]))
                for p in (source, result))
        assert len(a) == len(b) and all(torch.allclose(x, y, atol=1e-5) for x, y in zip(a, b)), name


def spoilt(cert):
    """The certificate with one thing changed: (what, certificate)."""
    def other(what, change):
        c = copy.deepcopy(cert)
        change(c)
        return what, c
    yield other("format", lambda c: c.update(format="another"))
    yield other("no claims", lambda c: c.update(claims=[]))
    for i, w in enumerate(cert["weights"]):
        yield other(f"weight {i} from", lambda c, i=i: c["weights"][i].update({"from": w["from"] + 1}))
        yield other(f"weight {i} of", lambda c, i=i: c["weights"][i].update(of=cert["weights"][i - 1]["of"]))
    for i, claim in enumerate(cert["claims"]):
        at = f"claim {i} {claim['result']}"
        yield other(f"{at} left out", lambda c, i=i: c["claims"].pop(i))
        yield other(f"{at} twice", lambda c, i=i: c["claims"].append(c["claims"][i]))
        yield other(f"{at} about another", lambda c, i=i: c["claims"][i].update(source="x"))
        yield other(f"{at} cut is empty", lambda c, i=i: c["claims"][i].update({"from": []})
                    if c["claims"][i]["from"] else c.update(format=""))
        yield other(f"{at} cut is larger", lambda c, i=i: c["claims"][i]["from"].append(claim["source"]))
        for k, law in enumerate(claim["laws"]):
            yield other(f"{at} law {law} left out", lambda c, i=i, k=k: c["claims"][i]["laws"].pop(k))
        yield other(f"{at} law added", lambda c, i=i: c["claims"][i]["laws"].append("mask-distributes"))
        for side in ("left", "right"):
            for k, step in enumerate(claim[side]):
                to = f"{at} {side} {k} {step[1]}"
                yield other(f"{to} left out", lambda c, i=i, s=side, k=k: c["claims"][i][s].pop(k))
                yield other(f"{to} lemma", lambda c, i=i, s=side, k=k, name=step[1]: c["claims"][i][s][k].__setitem__(
                    1, "softmax" if name != "softmax" else "permute"))
                if len(step) == 2:
                    yield other(f"{to} a map", lambda c, i=i, s=side, k=k: c["claims"][i][s][k].append("at0"))
                for m, index in enumerate(step[2:], 2):
                    yield other(f"{to} map {m}", lambda c, i=i, s=side, k=k, m=m, index=index:
                                c["claims"][i][s][k].__setitem__(m, f"({index}) + 1"))


@pytest.mark.turns
@pytest.mark.parametrize("name", CASES)
def test_a_changed_certificate_is_refused(files, name, tmp_path):
    source, result, certificate = files[name]
    cert, path, kinds = json.loads(certificate.read_text()), tmp_path / "c.json", 0
    for what, other in spoilt(cert):
        if other == cert:
            continue
        path.write_text(json.dumps(other))
        code, said = checked(source, result, path)
        assert code in (1, 3), (what, said)
        kinds += 1
    assert kinds > 30


@pytest.mark.turns
@pytest.mark.parametrize("name", CASES)
def test_a_changed_graph_is_refused(files, name, tmp_path):
    """One constant, axis or mask of the result, or of the source, is another one."""
    source, result, certificate = files[name]
    path, refused = tmp_path / "other.pt2", 0
    for which in (source, result):
        for kind, what, graph, parts, text in test_prove.pairs(which):
            with zipfile.ZipFile(path, "w") as z:
                for i, data in parts.items():
                    z.writestr(i, json.dumps(text) if i is graph else data)
            pair = (path, result) if which == source else (source, path)
            r = run(BUILD / "qkv-certify", *pair, certificate)
            if r.returncode == 0:  # a default that is written out, sizes that say the same, a source without them
                assert same(which, path, name) or (which == source and not runs(path, name)), (kind, what)
            refused += r.returncode != 0
    assert refused >= 10, refused


def runs(path, name):
    """Does PyTorch take the file, and these sizes?"""
    try:
        torch.export.load(path).module()(*CASES[name][1])
    except Exception:
        return False
    return True


def same(a, b, name):
    """Do two files compute the same in PyTorch?"""
    try:
        x, y = (torch.utils._pytree.tree_leaves(torch.export.load(p).module()(*CASES[name][1])) for p in (a, b))
    except Exception:
        return False
    return len(x) == len(y) and all(torch.equal(*each) for each in zip(x, y))


def certificate_of(source, result, path):
    """What is found about two files that were not made from each other."""
    a, b = qkv.Model(source), qkv.Model(result)
    text, e = C.c_void_p(), _lib.CError()
    status = _lib.lib().qkv_model_save_certified(b._model, a._model, None, os.fsencode(path), C.byref(text), C.byref(e))
    _lib.check(status == 0, e)
    return json.loads(_lib.text(text.value, e))


def product(x, y, v, dim=-1, scale=0.5, before=lambda s: s, after=lambda p: p):
    return after(before(x @ y.transpose(-1, -2) * scale).softmax(dim)) @ v


def sdpa(x, y, v, mask=None):
    return nn.functional.scaled_dot_product_attention(x, y, v, mask)


def causal(s, diagonal=0, fill=float("-inf")):
    return s.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1 + diagonal), fill)


def above(diagonal):
    return torch.full((5, 5), -torch.inf).triu(diagonal)


def less(s, dim):
    return s - s.amax(dim, keepdim=True)


def apart():
    return torch.arange(5)[:, None] - torch.arange(5)


def repeated(x, y, v):
    y, v = (t[:, :1].expand(-1, 2, -1, -1) for t in (y, v))
    return sdpa(x, y, v)


def pairs_turned(x, y, v):
    half = torch.cat([-y[..., 2:], y[..., :2]], -1)
    return x * v.cos() + half * v.sin()


def hidden(s, low=-1e4):
    """A causal mask by factors of 1 and 0, as GPT-1 has it."""
    seen = torch.ones(5, 5).tril()
    return s * seen + low * (1 - seen)


def beside(a, b):
    return torch.stack([a, b], -1).flatten(-2)


def pairs_beside(x, v):
    a, b, c, s = x[..., 0::2], x[..., 1::2], v[..., :2].cos(), v[..., :2].sin()
    return beside(a * c - b * s, b * c + a * s)


def pairs_beside_turned(x, y, v):
    c, s = v[..., :2].cos(), v[..., :2].sin()
    return x * beside(c, c) + beside(-y[..., 1::2], y[..., 0::2]) * beside(s, s)


def floored(s, low):
    return torch.max(s, torch.full((), low))


def sinks(x, y):
    """Weights of five keys and of one more column, which depends on the query."""
    return torch.cat([x @ y.mT * 0.5, x[..., :1]], -1).softmax(-1)


def sunk(x, y, v, fill=-3e38):
    columns = torch.cat([causal(x @ y.mT * 0.5, fill=fill), v[..., :1]], -1)
    return (columns - columns.max(-1, keepdim=True).values).softmax(-1)[..., :-1] @ v


def sunk_padded(x, y, v, value=0.0):
    rows = (0, 0, 0, 1)
    mask = torch.cat([causal(torch.zeros(2, 2, 5, 5)), v[..., :1]], -1)
    return sdpa(x, nn.functional.pad(y, rows), nn.functional.pad(v, rows, value=value), mask)


def twice(x, y):
    """A sum in a sum of as many parts; before the first two rows there is one more in it."""
    first = (torch.arange(5) < 2).float()[:, None]
    return (x + first * y.sum(0)).tanh().sum(1).tanh().sum(0)


def norm(x, y, v):
    c = x - x.mean(-1, keepdim=True)
    return c * torch.rsqrt(c.pow(2).mean(-1, keepdim=True) + 1e-5)


# name: (a function, another spelling of it, what looks like it and is something else); x, y, v are (2, 2, 5, 4)
TRAPS = {
    "scale": (sdpa, lambda x, y, v: product(x * 0.25, y, v, scale=2.0), lambda x, y, v: product(x, y, v, scale=0.25)),
    "axis": (sdpa, product, lambda x, y, v: product(x, y, v, dim=-2)),
    "transpose": (sdpa, product, lambda x, y, v: (x @ v.transpose(-1, -2) * 0.5).softmax(-1) @ y),
    "mask after": (lambda x, y, v: product(x, y, v, before=causal),
                   lambda x, y, v: nn.functional.scaled_dot_product_attention(x, y, v, is_causal=True),
                   lambda x, y, v: product(x, y, v, after=lambda p: p.tril())),
    "diagonal": (lambda x, y, v: product(x, y, v, before=causal),
                 lambda x, y, v: nn.functional.scaled_dot_product_attention(x, y, v, is_causal=True),
                 lambda x, y, v: product(x, y, v, before=lambda s: causal(s, 1))),
    "mask multiplied": (lambda x, y, v: product(x, y, v, before=causal),
                        lambda x, y, v: product(x, y, v, before=lambda s: causal(s, 0, -1e9)),
                        lambda x, y, v: product(x, y, v, before=lambda s: s.tril())),
    "a fill that is seen": (lambda x, y, v: product(x, y, v, before=causal),
                            lambda x, y, v: product(x, y, v, before=lambda s: causal(s, 0, -1e7)),
                            lambda x, y, v: product(x, y, v, before=lambda s: causal(s, 0, -3.0))),
    "a floor that is reached": (
        lambda x, y, v: product(x, y, v, before=lambda s: floored(causal(s, fill=-3e38), -3e38)),
        lambda x, y, v: sdpa(x, y, v, causal(torch.zeros(5, 5), fill=-3e38)),
        lambda x, y, v: product(x, y, v, before=lambda s: floored(causal(s), -3.0))),
    "factors": (lambda x, y, v: product(x, y, v, before=hidden),
                lambda x, y, v: sdpa(x, y, v, causal(torch.zeros(5, 5))),
                lambda x, y, v: product(x, y, v, before=lambda s: hidden(s, -3.0))),
    "pairs": (lambda x, y, v: pairs_beside(x, v), lambda x, y, v: pairs_beside_turned(x, x, v),
              lambda x, y, v: pairs_beside_turned(x, y, v)),
    "heads": (lambda x, y, v: x.transpose(1, 2).reshape(2, 5, 8), lambda x, y, v: x.permute(0, 2, 1, 3).flatten(2),
              lambda x, y, v: x.permute(0, 2, 3, 1).flatten(2)),
    "repeated heads": (repeated, lambda x, y, v: nn.functional.scaled_dot_product_attention(
        x, y[:, :1], v[:, :1], enable_gqa=True), lambda x, y, v: sdpa(x, y, v[:, 1:].expand(-1, 2, -1, -1))),
    "rotation": (pairs_turned, lambda x, y, v: torch.sin(v) * torch.cat([-y.chunk(2, -1)[1], y.chunk(2, -1)[0]], -1)
                 + torch.cos(v) * x, lambda x, y, v: x * v.cos() + torch.cat([y[..., 2:], -y[..., :2]], -1) * v.sin()),
    "norm": (norm, lambda x, y, v: nn.functional.layer_norm(x, (4,), eps=1e-5),
             lambda x, y, v: nn.functional.layer_norm(x, (4,), eps=1e-3)),
    "maximum": (lambda x, y, v: (x - x.amax(-1, keepdim=True)).softmax(-1), lambda x, y, v: x.softmax(-1),
                lambda x, y, v: (x - x.amax(-1, keepdim=True) * y).softmax(-1)),
}


BOTH = torch.tensor([0, 0])
COOL = torch.tensor(-1.1).double().exp().item()        # as a learned temperature of float32 is


def safe(scores):
    """As torch decomposes its own."""
    return torch.where((scores == -torch.inf).all(-1, True), 0.0, scores.softmax(-1))


LATER = torch.ones(5, 5).triu(1) > 0
PLACES, OTHERS = torch.tensor([[2, 0], [1, 1]]), torch.tensor([[0, 0], [1, 1]])
F = nn.functional
TRAPS.update({
    "window": (lambda x, y, v: sdpa(x, y, v, apart().abs() <= 2),
               lambda x, y, v: sdpa(x, y, v, (apart() <= 2) & (apart() >= -2)),
               lambda x, y, v: sdpa(x, y, v, (apart() <= 2) & (apart() >= -1))),
    "window without its edge": (lambda x, y, v: sdpa(x, y, v, apart().abs() < 2),
                                lambda x, y, v: sdpa(x, y, v, (apart() <= 1) & (apart() > -2)),
                                lambda x, y, v: sdpa(x, y, v, (apart() <= 2) & (apart() > -2))),
    "beyond a distance": (lambda x, y, v: torch.where(x.abs() >= y, x, v),
                          lambda x, y, v: torch.where((x >= y) | (-x >= y), x, v),
                          lambda x, y, v: torch.where((x >= y) | (x <= y), x, v)),
    "clamp": (lambda x, y, v: x.clamp(min=0) + y.clamp(-0.5, 0.25),
              lambda x, y, v: x.relu() + y.clamp(min=-0.5).clamp(max=0.25),
              lambda x, y, v: x.relu() + y.clamp(-0.5, 0.5)),
    "convolution": (lambda x, y, v: F.conv2d(x, y[:, :, :3, :2]) * 0.5 + 1.5,
                    lambda x, y, v: F.conv2d(x, y[:, :, :3, :2] * 0.5, torch.full((2,), 1.5)),
                    lambda x, y, v: F.conv2d(x, y[:, :, 1:4, :2] * 0.5, torch.full((2,), 1.5))),
    "groups": (lambda x, y, v: F.conv2d(x, y[:, :1, :3, :1], groups=2, padding=1, stride=2),
               lambda x, y, v: F.conv2d(F.pad(x, (1, 1, 1, 1)), y[:, :1, :3, :1], groups=2, stride=2),
               lambda x, y, v: F.conv2d(F.pad(x, (1, 1, 1, 1), value=1.0), y[:, :1, :3, :1], groups=2, stride=2)),
    "padding": (lambda x, y, v: F.pad(x, (1, 0, 0, 2)).sum((2, 3)), lambda x, y, v: torch.cat(
        [torch.zeros(2, 2, 7, 1), torch.cat([x, torch.zeros(2, 2, 2, 4)], 2)], 3).sum((2, 3)),
        lambda x, y, v: torch.cat([torch.ones(2, 2, 7, 1), torch.cat([x, torch.zeros(2, 2, 2, 4)], 2)], 3).sum((2, 3))),
    "variance": (lambda x, y, v: x.var(-1), lambda x, y, v: (x - x.mean(-1, keepdim=True)).pow(2).sum(-1) / 3,
                 lambda x, y, v: (x - x.mean(-1, keepdim=True)).pow(2).mean(-1)),
    "running sum": (lambda x, y, v: x.cumsum(2), lambda x, y, v: torch.ones(5, 5).tril() @ x,
                    lambda x, y, v: torch.ones(5, 5).tril(-1) @ x),
    "indices": (lambda x, y, v: x[:, :, PLACES],
                lambda x, y, v: x.index_select(2, PLACES.flatten()).view(2, 2, 2, 2, 4),
                lambda x, y, v: x[:, :, PLACES.T]),
    "minus infinity above": (lambda x, y, v: product(x, y, v, before=causal),
                             lambda x, y, v: product(x, y, v, before=lambda s: s + above(1)),
                             lambda x, y, v: product(x, y, v, before=lambda s: s + above(2))),
    "less the largest that is seen": (lambda x, y, v: product(x, y, v, before=causal),
                                      lambda x, y, v: product(x, y, v, before=lambda s: less(causal(s), -1)),
                                      lambda x, y, v: product(x, y, v, before=lambda s: less(causal(s), -2))),
    "windows": (lambda x, y, v: x.unfold(2, 3, 2),
                lambda x, y, v: x[:, :, torch.arange(2)[:, None] * 2 + torch.arange(3)].mT,
                lambda x, y, v: x[:, :, torch.arange(2)[:, None] + torch.arange(3)].mT),
    "indices in front": (lambda x, y, v: x[OTHERS, :, PLACES],
                         lambda x, y, v: x[OTHERS.T, :, PLACES.T].transpose(0, 1),
                         lambda x, y, v: x[OTHERS, :, PLACES.T]),
    "batch norm": (lambda x, y, v: F.batch_norm(x, y[0, 0, 0, :2], v[0, 0, 0, :2].square(), eps=1e-3),
                   lambda x, y, v: (x - y[0, 0, 0, :2, None, None]) * torch.rsqrt(
                       v[0, 0, 0, :2, None, None].square() + 1e-3),
                   lambda x, y, v: (x - y[0, 0, 0, :2, None, None]) * torch.rsqrt(
                       v[0, 0, 0, :2, None, None].square()) + 1e-3),
    "infinite": (lambda x, y, v: torch.where(causal(torch.zeros(2, 2, 5, 5)) == -torch.inf, 0.5, 1.5),
                 lambda x, y, v: 1.5 - torch.ones(2, 2, 5, 5).triu(1),
                 lambda x, y, v: 1.5 - torch.ones(2, 2, 5, 5).triu(0)),
    "rounded down": (lambda x, y, v: x * torch.arange(4).floor_divide(2),
                     lambda x, y, v: x * torch.arange(2)[:, None].expand(2, 2).reshape(4),
                     lambda x, y, v: x * torch.arange(2)[None].expand(2, 2).reshape(4)),
    "a negative divisor": (lambda x, y, v: x * torch.arange(20).floor_divide(-8).view(5, 4),
                           lambda x, y, v: x * torch.arange(20).view(5, 4).floor_divide(-8),
                           lambda x, y, v: x * torch.arange(5)[:, None].floor_divide(-2)),
    "rounded to zero": (lambda x, y, v: x * torch.div(torch.arange(4), -3, rounding_mode="trunc"),
                        lambda x, y, v: torch.div(torch.arange(4), -3, rounding_mode="trunc") * x,
                        lambda x, y, v: x * torch.div(torch.arange(4), -3, rounding_mode="floor")),
    "rounded floats": (lambda x, y, v: x * torch.div(torch.arange(4.0), 2, rounding_mode="floor"),
                       lambda x, y, v: x * torch.div(torch.arange(4), 2, rounding_mode="floor"),
                       lambda x, y, v: x * torch.div(torch.arange(4.0), 2)),
    "a sum that is at least 1": (
        lambda x, y, v: F.normalize(less(x @ y.mT + 1, -1).exp(), 1, -1), lambda x, y, v: (x @ y.mT).softmax(-1),
        lambda x, y, v: F.normalize(less(x @ y.mT, -2).exp(), 1, -1)),
    "powers of e": (lambda x, y, v: torch.pow(math.e, x) / torch.pow(math.e, x).sum(-1, True),
                    lambda x, y, v: x.softmax(-1),
                    lambda x, y, v: torch.pow(2.7, x) / torch.pow(2.7, x).sum(-1, True)),
    "powers of a root of e": (lambda x, y, v: torch.pow(math.exp(0.5), x), lambda x, y, v: (x / 2).exp(),
                              lambda x, y, v: (x * 2).exp()),
    "the logarithm of a product": (lambda x, y, v: (x.exp() * y.exp().sum(-1, True)).log(),
                                   lambda x, y, v: x + y.logsumexp(-1, True),
                                   lambda x, y, v: x - y.logsumexp(-1, True)),
    "logarithm": (lambda x, y, v: (x - x.exp().sum(-1, keepdim=True).log()).exp(), lambda x, y, v: x.softmax(-1),
                  lambda x, y, v: (x - x.exp().sum(-2, keepdim=True).log()).exp()),
    "a sink": (lambda x, y, v: sinks(x, y)[..., :-1] @ v,
               lambda x, y, v: sdpa(x, *(torch.cat([t, torch.zeros(2, 2, 1, 4)], 2) for t in (y, v)),
                                    torch.cat([torch.zeros(2, 2, 5, 5), x[..., :1]], -1)),
               lambda x, y, v: sinks(x, y)[..., 1:] @ v),
    "a transposed convolution": (lambda x, y, v: F.conv_transpose2d(x, v, y[0, 0, 0, :2], (2, 1), 1) * 3,
                                 lambda x, y, v: F.conv_transpose2d(x, 3 * v, 3 * y[0, 0, 0, :2], (2, 1), 1),
                                 lambda x, y, v: F.conv_transpose2d(x, 3 * v.flip(2), 3 * y[0, 0, 0, :2], (2, 1),
                                                                    1)),
    "a sink in front": (lambda x, y, v: torch.cat([x[..., :1], x @ y.mT * 0.4], -1).softmax(-1)[..., 1:] @ v,
                        lambda x, y, v: (x @ y.mT * 0.4).exp() / ((x @ y.mT * 0.4).exp().sum(-1, True)
                                                                  + x[..., :1].exp()) @ v,
                        lambda x, y, v: torch.cat([x[..., :1], x @ y.mT * 0.4], -1).softmax(-1)[..., :-1] @ v),
    "a sum by ranges": (lambda x, y, v: torch.cat([x, y, x], 2).exp().sum(2),
                        lambda x, y, v: 2 * x.exp().sum(2) + y.exp().sum(2),
                        lambda x, y, v: x.exp().sum(2) + 2 * y.exp().sum(2)),
    "masks by cases": (lambda x, y, v: torch.cat([causal(x @ y.mT), x], -1).softmax(-1)[..., 5:],
                       lambda x, y, v: x.exp() / (causal(x @ y.mT).exp().sum(-1, True) + x.exp().sum(-1, True)),
                       lambda x, y, v: x.exp() / (causal(x @ y.mT, 1).exp().sum(-1, True) + x.exp().sum(-1, True))),
    "in common": (lambda x, y, v: (x - y).exp() / ((x - y).exp().sum(2, True) + (-y[:, :, :1]).exp()),
                  lambda x, y, v: (x - y).exp() / ((-y[:, :, :1]).exp() * (1 + ((x - y).exp() * y[:, :, :1].exp()).sum(
                      2, True))),
                  lambda x, y, v: (x - y).exp() / ((-y[:, :, :1]).exp() * (2 + ((x - y).exp() * y[:, :, :1].exp()).sum(
                      2, True)))),
    "sums of exponentials": (lambda x, y, v: (x - torch.logaddexp(x.logsumexp(-1, True), y[..., :1])).exp(),
                             lambda x, y, v: x.exp() / (x.exp().sum(-1, True) + y[..., :1].exp()),
                             lambda x, y, v: x.exp() / (x.exp().sum(-1, True) + y[..., 1:2].exp())),
    "the identity": (lambda x, y, v: torch.eye(5) @ x, lambda x, y, v: torch.ones(5, 5).tril().triu() @ x,
                     lambda x, y, v: torch.ones(5, 5).tril().triu(-1) @ x),
    "sums change places": (lambda x, y, v: (product(x, y, v) * x).sum(-1),
                           lambda x, y, v: ((x @ y.mT * 0.5).softmax(-1) * (x @ v.mT)).sum(-1),
                           lambda x, y, v: ((x @ y.mT * 0.5).softmax(-1) * (v @ x.mT)).sum(-1)),
    "a sink less the largest": (sunk, sunk_padded, lambda x, y, v: sunk_padded(x, y, v, value=1.0)),
    "a sink beside infinities": (lambda x, y, v: sunk(x, y, v, -math.inf), sunk_padded,
                                 lambda x, y, v: sunk_padded(x, y, v, value=1.0)),
    "a sum in parts": (lambda x, y, v: torch.cat([x.square(), y], 2).sum(2), lambda x, y, v: (x.square() + y).sum(2),
                       lambda x, y, v: x.square().sum(2) + y[:, :, 1:].sum(2)),
    "a sum in two": (lambda x, y, v: x.reshape(2, 10, 4).sum(1), lambda x, y, v: x.sum((1, 2)),
                     lambda x, y, v: x.reshape(2, 5, 8)[..., :4].sum(1)),
    "cast": (lambda x, y, v: x * (torch.arange(4) - 1).bool(),
             lambda x, y, v: torch.where(torch.arange(4) == 1, 0, 1) * x,
             lambda x, y, v: torch.where(torch.arange(4) >= 1, 1, 0) * x),
    "a diagonal that is written": (
        lambda x, y, v: (x @ y.mT).diagonal_scatter(v[..., 0], 0, -2, -1).exp(),
        lambda x, y, v: torch.where(torch.eye(5).bool(), v[..., :1], x @ y.mT).exp(),
        lambda x, y, v: torch.where(torch.eye(5).bool(), v[..., 0][..., None, :] + x[..., :1], x @ y.mT).exp()),
    "a diagonal below": (lambda x, y, v: x.diagonal_scatter(v[:, :, :4, 3], -1, 2, 3) * 2,
                         lambda x, y, v: (x.mT * 2).diagonal_scatter(v[:, :, :4, 3] * 2, 1, -2, -1).mT,
                         lambda x, y, v: (x.mT * 2).diagonal_scatter(v[:, :, 1:5, 3] * 2, 1, -2, -1).mT),
    "a slice that is written": (
        lambda x, y, v: x.slice_scatter(y.split([3, 2], 2)[0], 2, -3) * 2,
        lambda x, y, v: torch.cat([x[:, :, :2], y[:, :, :3]], 2) * 2,
        lambda x, y, v: torch.cat([x[:, :, :2], y[:, :, 1:4]], 2) * 2),
    "a row that is written": (lambda x, y, v: x.select_scatter(y[:, :, 2], 2, -1) * 2,
                              lambda x, y, v: torch.cat([2 * x[:, :, :4], 2 * y[:, :, 2:3]], 2),
                              lambda x, y, v: torch.cat([2 * x[:, :, :4], 2 * y[:, :, 3:4]], 2)),
    "what is written at indices": (
        lambda x, y, v: x.index_put((torch.tensor([1]), BOTH), torch.tensor(0.5)) * 2,
        lambda x, y, v: torch.where(torch.ones(2, 2).bool().index_put((torch.tensor([1]), BOTH), torch.tensor(False))[
            ..., None, None], 2 * x, 1.0),
        lambda x, y, v: torch.where(torch.ones(2, 2).bool().index_put((BOTH, torch.tensor([1])), torch.tensor(False))[
            ..., None, None], 2 * x, 1.0)),
    "roots of a root": (lambda x, y, v: ((x * 8 ** -0.25) @ (y * 8 ** -0.25).mT).softmax(-1) @ v,
                        lambda x, y, v: (x @ y.mT * 8 ** -0.5).softmax(-1) @ v,
                        lambda x, y, v: (x @ y.mT * 9 ** -0.5).softmax(-1) @ v),
    "a triangle of numbers": (lambda x, y, v: product(x, y, v, before=lambda s: s.where(torch.ones(5, 5).tril() > 0,
                                                                                        -1e9)),
                              lambda x, y, v: product(x, y, v, before=causal),
                              lambda x, y, v: product(x, y, v, before=lambda s: causal(s, 1))),
    "a softmax that is safe": (lambda x, y, v: safe((x @ y.mT).masked_fill(v[..., None, :, 0] > 0, -torch.inf)) @ v,
                               lambda x, y, v: F.scaled_dot_product_attention(x, y, v, v[..., None, :, 0] <= 0,
                                                                              scale=1.0),
                               lambda x, y, v: F.scaled_dot_product_attention(x, y, v, v[..., None, :, 1] <= 0,
                                                                              scale=1.0)),
    "a root of a root": (lambda x, y, v: x / torch.tensor(8.0).sqrt().sqrt() * y / torch.tensor(8.0).sqrt().sqrt(),
                         lambda x, y, v: x * y / 8 ** 0.5, lambda x, y, v: x * y / 8 ** 0.25),
    "an exponential of a number": (lambda x, y, v: (x @ y.mT * torch.tensor(-1.1).exp()).softmax(-1) @ v,
                                   lambda x, y, v: F.scaled_dot_product_attention(x, y, v, scale=COOL),
                                   lambda x, y, v: F.scaled_dot_product_attention(x, y, v, scale=COOL + 1e-4)),
    "powers of two": (lambda x, y, v: (lambda e: e / e.sum(-1, True))((x @ y.mT * 1.4426950408889634).exp2()) @ v,
                      lambda x, y, v: F.scaled_dot_product_attention(x, y, v, scale=1.0),
                      lambda x, y, v: F.scaled_dot_product_attention(x, y, v, scale=0.6931471805599453)),
    "a root that was multiplied": (lambda x, y, v: ((x * 0.6) @ (y * 0.7).mT * 8 ** -0.5).softmax(-1) @ v,
                                   lambda x, y, v: F.scaled_dot_product_attention(x, y, v, scale=8 ** -0.5 * 0.6 * 0.7),
                                   lambda x, y, v: F.scaled_dot_product_attention(x, y, v, scale=8 ** -0.5 * 0.4201)),
    "digits that were divided by a power of two": (
        lambda x, y, v: ((x * 5.4730064863875) @ y.mT * 0.25).softmax(-1) @ v,
        lambda x, y, v: F.scaled_dot_product_attention(x, y, v, scale=1.368251621596875),
        lambda x, y, v: F.scaled_dot_product_attention(x, y, v, scale=1.369)),
    "the lowest of f16": (lambda x, y, v: product(x, y, v, before=causal),
                          lambda x, y, v: product(x, y, v, before=lambda s: causal(s, 0, -1e4)),
                          lambda x, y, v: product(x, y, v, before=lambda s: causal(s, 1, -65504.0))),
    "digits of a number": (lambda x, y, v: (x + 0.044715 * x ** 3) * 0.7978845608,
                           lambda x, y, v: (x + 0.044715 * x ** 3) * 0.7978845608028654,
                           lambda x, y, v: (x + 0.044715 * x ** 3) * 0.7978),
    "a logarithm that is written": (lambda x, y, v: x.exp() / (x.exp().sum(-1, True) + 2.5),
                                    lambda x, y, v: torch.cat([x, torch.full((2, 2, 5, 1), 2.5).log()], -1).softmax(
                                        -1)[..., :4],
                                    lambda x, y, v: torch.cat([x, torch.full((2, 2, 5, 1), 2.0).log()], -1).softmax(
                                        -1)[..., :4]),
    "numbers": (lambda x, y, v: x.masked_fill(y > 0, -torch.inf).nan_to_num(neginf=0),
                lambda x, y, v: torch.where(y > 0, -torch.inf, x).nan_to_num(neginf=0),
                lambda x, y, v: x.masked_fill(y > 0, -torch.inf)),
    "numbers of masked scores": (
        lambda x, y, v: torch.nan_to_num(x @ y.mT + torch.zeros(5, 5).masked_fill(LATER, -torch.inf), neginf=-2.0),
        lambda x, y, v: torch.where(LATER, -2.0, x @ y.mT), lambda x, y, v: torch.where(LATER, -3.0, x @ y.mT)),
    "an index from the end": (lambda x, y, v: x[:, :, 1:][:, :, torch.arange(3) - 1] * 2,
                              lambda x, y, v: 2 * x[:, :, 1:][:, :, -1 + torch.arange(3)],
                              lambda x, y, v: x[:, :, :3] * 2),
    "an index from the end of two": (
        lambda x, y, v: torch.cat([x, y], 2)[:, :, torch.arange(4) - 1] * 2,
        lambda x, y, v: 2 * torch.cat([x, y], 2)[:, :, -1 + torch.arange(4)],
        lambda x, y, v: x[:, :, torch.arange(4) - 1] * 2),
    "an index from the end of what is padded": (
        lambda x, y, v: F.pad(x, (0, 0, 2, 0))[:, :, torch.arange(4) - 1] * 2,
        lambda x, y, v: 2 * F.pad(x, (0, 0, 2, 0))[:, :, -1 + torch.arange(4)],
        lambda x, y, v: torch.cat([torch.zeros(2, 2, 3, 4), x[:, :, :1]], 2) * 2),
    "a sum in a sum": (lambda x, y, v: twice(x[0, 0, :, :3], y[0, 0, :, :3]),
                       lambda x, y, v: twice(x[0, 0, :, :3] * 1.0, y[0].transpose(0, 1)[:, 0, :3]),
                       lambda x, y, v: twice(torch.cat([x[0, 0, :2, :3], x[0, 0, 2:, :3].mT]), y[0, 0, :, :3])),
    "integers padded with a half": (
        lambda x, y, v: F.pad((x > 0).long(), (1, 1), value=0.5) * 1.0,
        lambda x, y, v: 1.0 * F.pad((x > 0).long(), (1, 1), value=0.5),
        lambda x, y, v: F.pad((x > 0).float(), (1, 1), value=0.5)),
    "no gradient": (lambda x, y, v: x.detach().exp() * y, lambda x, y, v: x.exp() * y,
                    lambda x, y, v: y.detach().exp() * y),
})


class Calls(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x, y, v):
        return self.f(x, y, v)


@pytest.mark.turns
@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_not_certified(name, tmp_path):
    """What says the same is certified, what only looks alike is not."""
    args = tuple(torch.randn(2, 2, 5, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))
    paths = [tmp_path / f"{i}.pt2" for i in range(3)]
    results = []
    for f, path in zip(TRAPS[name], paths):
        torch.export.save(torch.export.export(Calls(f), args), path)
        results.append(f(*args))
    assert torch.allclose(results[0], results[1], atol=1e-5) and not torch.allclose(results[0], results[2], atol=1e-6)
    same, other = (certificate_of(paths[0], p, tmp_path / "o.pt2") for p in paths[1:])
    assert same["whole"], same["why"]
    assert not other["whole"]


class Ones(nn.Module):
    """A product with a buffer of one element."""

    def __init__(self, value):
        super().__init__()
        self.register_buffer("one", torch.full((1, 1), value))

    def forward(self, x):
        return (x * self.one).exp()


@pytest.mark.parametrize("value", (1.0, 1.5))
def test_a_buffer_that_is_one(value, tmp_path):
    """A rule drops the factor, which the file's number allows."""
    for name, module in dict(a=Ones(value), b=Exponential()).items():
        torch.export.save(torch.export.export(module, (torch.randn(2, 3),)), tmp_path / f"{name}.pt2")
    same = certificate_of(tmp_path / "a.pt2", tmp_path / "b.pt2", tmp_path / "o.pt2")
    assert same["whole"] == (value == 1), same


class Exponential(nn.Module):
    def forward(self, x):
        return x.exp()


class Times(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, x):
        return x.tanh() * self.number


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_digits_that_a_dtype_does_not_hold(dtype, tmp_path):
    """Two numbers are one where their op computes in float32 and has one number for both."""
    for name, number in dict(a=0.7978845608, b=0.7978845608028654).items():
        torch.export.save(torch.export.export(Times(number), (torch.randn(3).to(dtype),)), tmp_path / f"{name}.pt2")
    made = certificate_of(tmp_path / "a.pt2", tmp_path / "b.pt2", tmp_path / "o.pt2")
    assert made["whole"] == (dtype == torch.float32), made
    assert any("single" in c["laws"] for c in made["claims"]) == made["whole"]


class Blocks(nn.Module):
    """Two blocks, each with a norm inside of a softmax inside of a norm: written out from the input, terms explode."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, w):
        for _ in range(2):
            h = F.rms_norm(x, (4,)) @ w
            x = x + (h @ h.mT).softmax(-1) @ h * self.scale
            x = x + F.relu(F.rms_norm(x, (4,)) @ w) @ w
        return x


def test_a_claim_that_explodes_is_given_up(tmp_path):
    for i, scale in enumerate((0.5, 0.25)):
        program = torch.export.export(Blocks(scale), (torch.randn(2, 3, 4), torch.randn(4, 4)))
        torch.export.save(program, tmp_path / f"{i}.pt2")
    assert not certificate_of(tmp_path / "0.pt2", tmp_path / "1.pt2", tmp_path / "o.pt2")["whole"]


class Chunks(nn.Module):
    """Products within chunks of a length that is padded up to whole chunks, as Mamba 2 has them."""

    def forward(self, x):
        x = F.pad(x, (0, 0, 0, (4 - x.shape[1] % 4) % 4))
        x = x.reshape(x.shape[0], x.shape[1] // 4, 4, 2, 4)
        return torch.einsum("bclhn,bcshn->bhcls", x, x)


def test_chunks_of_any_length(tmp_path):
    source, result, certificate = tmp_path / "a.pt2", tmp_path / "b.pt2", tmp_path / "c.json"
    sizes = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(Chunks(), (torch.randn(2, 7, 8),), dynamic_shapes=sizes), source)
    r = run(BUILD / "cli" / "qkv", "rewrite", source, "-o", result, "--certify", certificate)
    assert r.returncode == 0 and "flat_product" in r.stdout and REALS in r.stdout, r.stdout + r.stderr
    assert checked(source, result, certificate)[0] == 0


class Folded(nn.Module):
    """A convolution with a norm, a scale and a shift after it, and a linear layer with a scale."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 4, bias=False)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)
        self.scale = nn.Parameter(torch.rand(4))

    def forward(self, x):
        return self.out(F.relu(self.norm(self.conv(x))).mean((2, 3))) * self.scale


class Both(nn.Module):
    """torch's own module: its projections are taken apart and put together by divisions by the sizes."""

    def __init__(self):
        super().__init__()
        self.a = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.a(x, x, x, average_attn_weights=False)


@pytest.mark.parametrize("most", (None, 63))
def test_sizes_without_a_least_one(most, tmp_path):
    """A Dim begins with 0, of which nothing is said."""
    source, result, certificate = (tmp_path / n for n in ("a.pt2", "b.pt2", "c.json"))
    dims = ({i: torch.export.Dim(f"d{i}", max=most) for i in range(2)},)
    torch.export.save(torch.export.export(Both().eval(), (torch.randn(3, 5, 8),), dynamic_shapes=dims), source)
    r = run(BUILD / "cli" / "qkv", "rewrite", source, "-o", result, "--certify", certificate)
    assert r.returncode == 0 and REALS in r.stdout, r.stdout + r.stderr
    code, said = checked(source, result, certificate)
    assert code == 0 and said.count(f": 1 to {most}" if most else ": 1 or more") == 2, said


def test_sums_that_become_one(tmp_path):
    """As a retention normalises its decay: a sum that keeps its axis, and one whose axis comes back; of what may be
    infinite in between."""
    def decay(x, y, v):
        n = torch.arange(4.0)
        apart = (n[:, None] - n).masked_fill(~torch.ones(4, 4).tril().bool(), torch.inf)
        d = torch.nan_to_num((apart * y[0, 0, :, :1, None]).exp())
        scale = d.sum(-1, keepdim=True).sqrt()
        last = d[:, -1] / d[:, -1].sum(-1, keepdim=True)
        return x * last[0], v / (scale / d[:, -1].sum(-1)[:, None, None])
    path, args = tmp_path / "m.pt2", (torch.randn(2, 3, 4), torch.randn(2, 3, 4, 4), torch.randn(4, 1, 5))
    torch.export.save(torch.export.export(Calls(decay), args), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)


class Segments(nn.Module):
    """Attention within segments of 10, of which the exporter says 10*(n//10) == n."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        b, n = x.shape[0], x.shape[1]
        torch._check(n // 10 * 10 == n)
        q, k, v = (f(x).view(b, n, 2, 4).transpose(1, 2).unflatten(2, (n // 10, 10)).transpose(1, 2).flatten(0, 1)
                   for f in (self.q, self.k, self.v))
        hidden = torch.ones(10, 10, dtype=torch.bool).triu(1)
        y = (q @ k.mT * 0.5).masked_fill(hidden, -1e9).softmax(-1) @ v
        return self.o(y.view(b, n // 10, 2, 10, 4).transpose(2, 3).reshape(b, n, 8))


def test_sizes_that_a_condition_divides(tmp_path):
    path = tmp_path / "m.pt2"
    sizes = ({0: torch.export.Dim("b", min=1, max=64), 1: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(Segments().eval(), (torch.randn(2, 20, 8),), dynamic_shapes=sizes), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    assert "scaled_dot_product_attention" in run(BUILD / "cli" / "qkv", "graph", tmp_path / "r.pt2").stdout


def test_forward_derivatives_are_written_out_first(tmp_path):
    """The checker has no gradients: it says so, and replays what is said of the file that convert writes."""
    def slope(x, y, v):
        return torch.func.jvp(lambda x: (x @ y.mT * 0.5).softmax(-1) @ y, (x,), (v,))
    path, plain, made = (tmp_path / f"{n}.pt2" for n in ("m", "plain", "made"))
    torch.export.save(torch.export.export(Calls(slope), tuple(torch.randn(3, 2, 2, 5, 4))), path)
    r = run(BUILD / "cli" / "qkv", "rewrite", path, "-o", made, "--certify", f"{made}.json")
    assert r.returncode == 0 and REALS in r.stdout, r.stderr
    r = run(BUILD / "cli" / "qkv", "check", made, "--certificate", path)
    assert r.returncode == 0 and REALS in r.stdout, r.stdout + r.stderr
    r = run(BUILD / "qkv-certify", path, made, f"{made}.json")
    assert r.returncode == 4 and "'qkv convert' writes it out" in r.stderr, r.stderr
    assert run(BUILD / "cli" / "qkv", "convert", path, "-o", plain).returncode == 0
    assert certified(made, "rewrite", plain, source=plain) == (True, None)


def certified(path, *command, source):
    """What a command that writes `path` certifies, replayed by both programs. (whole, why)"""
    r = run(BUILD / "cli" / "qkv", *command, "-o", path, "--certify", f"{path}.json")
    assert r.returncode == 0, r.stderr
    cert = json.loads(pathlib.Path(f"{path}.json").read_text())
    assert (REALS in r.stdout) == cert["whole"]
    for program in ([BUILD / "qkv-certify", source, path],
                    [BUILD / "cli" / "qkv", "check", path, "--certificate", source]):
        r = run(*program)
        assert r.returncode == (0 if cert["whole"] else 1) and (REALS in r.stdout) == cert["whole"], r.stdout + r.stderr
    return cert["whole"], cert["why"]


@pytest.mark.turns
@pytest.mark.parametrize("heads, mask", ((4, "causal"), (2, "shared"), (2, "repeated")))
def test_gradients_of_attention(heads, mask, tmp_path):
    """Of keys and values that heads share, and of dimensions that vary; the loss reads the result twice."""
    def loss(q, k, v):
        if mask == "repeated":
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        return sdpa(q, k, v).square().sum() if mask == "repeated" else F.scaled_dot_product_attention(
            q, k, v, is_causal=mask == "causal", enable_gqa=mask == "shared").square().sum()
    q, k = torch.randn(2, 4, 5, 4), torch.randn(2, heads, 5, 4)
    sizes = {0: torch.export.Dim("b", min=2, max=64), 2: torch.export.Dim("n", min=2, max=64)}
    path, joint = tmp_path / "m.pt2", tmp_path / "j.pt2"
    torch.export.save(torch.export.export(Calls(loss), (q, k, k), dynamic_shapes=(sizes,) * 3), path)
    written_out(path, joint, "--grad", "*")
    assert certified(tmp_path / "r.pt2", "rewrite", joint, source=joint) == (True, None)
    assert "sdpa_backward" in (tmp_path / "r.pt2.json").read_text()


def one_more(x, y, v):
    e = (x @ y.mT * 0.5).exp()
    return e / (2.5 + e.sum(-1, True)) @ v


def filled_diagonal(x, y, v):
    scores = x @ y.mT * 0.5
    scores.diagonal(dim1=-2, dim2=-1).fill_(-1e9)
    return scores.softmax(-1) @ v


def filled_keys(x, y, v):
    scores = x @ y.mT * 0.5
    scores[:, :, :, BOTH] = -1e9
    return scores.softmax(-1) @ v


def numbers(x, y, v):
    return torch.nan_to_num(x @ y.mT * 0.5).softmax(-1) @ v


def numbers_of_masked(x, y, v):
    """As differential attention of the reference code has it: minus infinity is a number then, which hides as well."""
    hidden = torch.zeros(x.shape[2], y.shape[2]).masked_fill(torch.ones(x.shape[2], y.shape[2]).triu(1) > 0, -torch.inf)
    return torch.nan_to_num(x @ y.mT * 0.5 + hidden).softmax(-1) @ v


def hidden_twice(x, y, v):
    """With constants that are made again for each condition, as CPM-Ant does."""
    seen, more = v[..., None, :, 0] > 0, x * torch.tensor([1.0, 2, 3, 4])
    scores = (more @ y.mT * 0.5).masked_fill(seen == torch.tensor(False), -torch.inf)
    return scores.softmax(-1).masked_fill(seen == torch.tensor(False), 0) @ v + (x * torch.tensor([1.0, 2, 3, 4])).exp()


def forgotten(x, y, v):
    """As a forgetting attention has it: what gates leave of a key is a bias beside a causal fill."""
    gone = (F.logsigmoid(v[..., 0]) * 1.0).cumsum(-1)
    scores = x @ y.mT * 0.5 + (gone[..., :, None] - gone[..., None, :])
    return scores.masked_fill(torch.ones(x.shape[2], y.shape[2], dtype=torch.bool).triu(1),
                              torch.finfo(torch.float32).min).softmax(-1) @ v


def scores_of_before(x, y, v):
    """As RealFormer has it: scores of one attention are a bias of the next one, and the fill stands twice."""
    hide = torch.ones(x.shape[2], y.shape[2], dtype=torch.bool).triu(1)
    scores = (x @ y.mT * 0.5).masked_fill(hide, torch.finfo(torch.float32).min)
    z = scores.softmax(-1) @ v
    return (z @ y.mT * 0.5 + scores).masked_fill(hide, torch.finfo(torch.float32).min).softmax(-1) @ z


@pytest.mark.parametrize("f", (one_more, filled_diagonal, filled_keys, numbers, numbers_of_masked, hidden_twice,
                               forgotten, scores_of_before))
def test_attention_of_scores_that_are_written(f, tmp_path):
    path, args = tmp_path / "m.pt2", tuple(torch.randn(3, 2, 2, 5, 4))
    sizes = {0: torch.export.Dim("b", min=2, max=64), 2: torch.export.Dim("n", min=3, max=64)}
    torch.export.save(torch.export.export(Calls(f), args, dynamic_shapes=(sizes,) * 3), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    assert "scaled_dot_product_attention" in run(BUILD / "cli" / "qkv", "graph", tmp_path / "r.pt2").stdout


@pytest.mark.parametrize("f", (lambda x, y, v: (x.exp() / 1.0, (x.exp() / 1.0).sin()), lambda x, y, v: x * 1.0,
                               lambda x, y, v: (x.exp(), x.exp() / 1.0, y * 1.0)))
def test_outputs_that_a_rule_leaves_under_another_name(f, tmp_path):
    """A factor of one is dropped: what is left has a value's class that the output does not have."""
    path, args = tmp_path / "m.pt2", tuple(torch.randn(3, 2, 3))
    torch.export.save(torch.export.export(Calls(f), args), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    assert "div" not in run(BUILD / "cli" / "qkv", "graph", tmp_path / "r.pt2").stdout.replace("%div", "")
    other = tmp_path / "o.pt2"
    torch.export.save(torch.export.export(Calls(lambda x, y, v: f(y, x, v)), args), other)
    assert run(BUILD / "qkv-certify", other, tmp_path / "r.pt2", tmp_path / "r.pt2.json").returncode == 1


class Images(nn.Module):
    """Rows that are not empty, cut into parts of sizes that data has, as pictures of several sizes are."""

    def forward(self, x, n):
        y = x[x.abs().sum(-1) != 0] * 1.0
        a, b = n.tolist()
        torch._check(a + b == y.shape[0])
        p, q = y.split([a, b])
        return p.exp() * 1.0, q.sin()


def test_parts_of_sizes_that_an_assert_says(tmp_path):
    path, x = tmp_path / "m.pt2", torch.randn(5, 3)
    x[2] = 0
    sizes = {0: torch.export.Dim.AUTO}, None
    torch.export.save(torch.export.export(Images(), (x, torch.tensor([1, 3])), dynamic_shapes=sizes), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)


class Windows(nn.Module):
    """Windows of four rows in another order: that there are as many as before is a condition on both sizes."""

    def forward(self, x, order):
        y = x.exp().reshape(x.shape[0] // 4, 4, 6)[order].reshape(x.shape[0], 6)
        return y.reshape(x.shape[0], 2, 3).reshape(x.shape[0], 3, 2).sin()


def test_sizes_that_a_condition_says(tmp_path):
    path, rows = tmp_path / "m.pt2", {0: torch.export.Dim.AUTO}
    program = torch.export.export(Windows(), (torch.randn(12, 6), torch.tensor([2, 0, 1])), dynamic_shapes=(rows, rows))
    torch.export.save(program, path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    assert "s" in str(program.graph.find_nodes(op="placeholder")[0].meta["val"].shape[0])


class Frames(nn.Module):
    """Patches of two frames as tokens: only that a patch fits says that there is one."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 4, 2, stride=2)

    def forward(self, x):
        y = self.patch(x.flatten(0, 1)).unflatten(0, (-1, 2))
        return y.permute(0, 2, 1, 3, 4).flatten(2).transpose(1, 2).sin()


def test_sizes_that_are_enough_for_a_window(tmp_path):
    path, auto = tmp_path / "m.pt2", torch.export.Dim.AUTO
    sizes = ({0: auto, 3: auto, 4: auto},)
    torch.export.save(torch.export.export(Frames(), (torch.randn(3, 2, 3, 8, 6),), dynamic_shapes=sizes), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)


class Patches(nn.Module):
    """A vision transformer's patches and its table of 16 places: no small sizes fit, and channels are 3 by the norm."""

    def __init__(self):
        super().__init__()
        self.norm, self.put, self.qkv = nn.LayerNorm(192), nn.Linear(192, 8), nn.Linear(8, 24)
        self.places = nn.Parameter(torch.randn(16, 8))

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.reshape(b, c, h // 8, 8, w // 8, 8).permute(0, 2, 4, 3, 5, 1).reshape(b, (h // 8) * (w // 8), 64 * c)
        q, k, v = self.qkv(self.put(self.norm(x)) + self.places).chunk(3, -1)
        return (q @ k.transpose(1, 2) / 3).softmax(-1) @ v


def test_patches_of_images_of_any_size(tmp_path):
    path, x = tmp_path / "m.pt2", torch.randn(2, 3, 32, 32)
    sizes = (dict.fromkeys(range(4), torch.export.Dim.AUTO),)
    torch.export.save(torch.export.export(Patches(), (x,), dynamic_shapes=sizes), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    model = qkv.Model(path)
    report = model.rewrite(prove=True)
    assert report["attentions_fused"] == 1 and not any(f.get("not_proven") for f in report["firings"])


class Tables(nn.Module):
    """CoAtNet's table of 16 places, and MaxViT's windows of 3, for images of any size."""

    def __init__(self, window):
        super().__init__()
        self.window, self.qkv, self.put = window, nn.Linear(8, 24), nn.Conv2d(3, 8, 3, stride=2, padding=1)
        n = window * window if window else 16
        self.table = nn.Parameter(torch.randn(2, n, n))

    def attend(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(2, 3) / 2 + self.table).softmax(-1) @ v).transpose(1, 2).reshape(b, n, c)

    def forward(self, x):
        x, n = self.put(x), self.window
        b, c, h, w = x.shape
        if not n:
            return self.attend(x.flatten(2).transpose(1, 2))
        x = x.view(b, c, h // n, n, w // n, n).permute(0, 2, 4, 3, 5, 1).reshape(-1, n * n, c)
        return self.attend(x).view(b, h // n, w // n, n, n, c).permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w).tanh()


@pytest.mark.parametrize("window, size", [(0, 8), (3, 12)])
def test_tables_of_fixed_size(tmp_path, window, size):
    path, x = tmp_path / "m.pt2", torch.randn(2, 3, size, size)
    sizes = ({i: torch.export.Dim.AUTO for i in (0, 2, 3)},)
    torch.export.save(torch.export.export(Tables(window), (x,), dynamic_shapes=sizes), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    report = qkv.Model(path).rewrite(prove=True)
    assert report["attentions_fused"] == 1 and not any(f.get("not_proven") for f in report["firings"])


class Twice(nn.Module):
    """Sizes that data has and that are read twice: the second time the first of them is known to be at least 1."""

    def forward(self, x, n):
        a, b = n.tolist()
        y = torch.zeros(a, 3).exp() * 1.0, torch.zeros(b) + x
        c, d = n.tolist()
        torch._check(c >= 1)
        return *y, torch.zeros(c, 3) + 1.0, torch.zeros(d)


def test_sizes_that_are_read_twice(tmp_path):
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Twice(), (torch.randn(1), torch.tensor([2, 3]))), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)


def test_reshapes_of_reshapes_are_the_same(tmp_path):
    path, f = tmp_path / "m.pt2", lambda x, y, v: x.exp().reshape(4, 5, 4).reshape(2, 2, 20).reshape(8, 10).sin()
    torch.export.save(torch.export.export(Calls(f), tuple(torch.randn(3, 2, 2, 5, 4))), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    assert json.loads((tmp_path / "r.pt2.json").read_text())["claims"] == []


SIGNS = {"a sum": lambda x: torch.atan2(x.sum(-1).unsqueeze(-1), x),
         "a mean": lambda x: torch.signbit(x.mean(-1).unsqueeze(-1).repeat(1, 1, 4)),
         "places": lambda x: torch.copysign(x[..., 1], x.transpose(1, 2).select(1, 0).unsqueeze(1).flatten(1)),
         "numbers": lambda x: torch.isfinite(x.permute(2, 0, 1).permute(1, 2, 0))}


@pytest.mark.parametrize("name", SIGNS)
def test_bits_of_elements_that_are_moved(name, tmp_path):
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Calls(lambda x, y, v: SIGNS[name](x.exp())), tuple(torch.randn(3, 2, 5, 4))),
                      path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    assert json.loads((tmp_path / "r.pt2.json").read_text())["claims"]


class Recurrent(nn.Module):
    """An op without a lemma, whose operands have other names in what is written."""

    def __init__(self, start):
        super().__init__()
        torch.manual_seed(1)
        self.lstm, self.start = nn.LSTM(4, 3, 2, batch_first=True), start

    def forward(self, x):
        start = torch.full((2, x.shape[0], 3), self.start)
        return self.lstm((x * 1.0).tanh() / 1.0, (start, start))[0]


def test_operands_under_other_names(tmp_path):
    path = [tmp_path / "0.pt2", tmp_path / "1.pt2"]
    for p, start in zip(path, (0.0, 1.0)):
        torch.export.save(torch.export.export(Recurrent(start), (torch.randn(2, 5, 4),)), p)
    assert certified(tmp_path / "r.pt2", "rewrite", path[0], source=path[0]) == (True, None)
    assert run(BUILD / "qkv-certify", path[1], tmp_path / "r.pt2", tmp_path / "r.pt2.json").returncode == 1


class Shown(nn.Module):
    """An attention whose mask of places is an output, too."""

    def forward(self, x, seen):
        place = torch.arange(x.shape[2])
        past = place[:, None] >= place
        x = x.exp()
        return F.scaled_dot_product_attention(x, x, x, past & seen[:, None, None]), past


def test_places_are_looked_at(tmp_path):
    path = tmp_path / "m.pt2"
    args = torch.randn(2, 2, 5, 4), torch.ones(2, 5, dtype=torch.bool)
    torch.export.save(torch.export.export(Shown(), args), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    claims = json.loads((tmp_path / "r.pt2.json").read_text())["claims"]
    assert any("attention" in c["result"] and "exp" in c["from"] for c in claims), claims


class Plus(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, x):
        return x + self.number


class Fresh(nn.Module):
    """Projections as they are initialised: biases of zeros, of which any is a part of any."""

    def __init__(self):
        super().__init__()
        self.first, self.q, self.k, self.v = (nn.Linear(8, n) for n in (12, 8, 4, 4))
        for bias in (self.first.bias, self.q.bias, self.k.bias, self.v.bias):
            nn.init.zeros_(bias)

    def forward(self, x):
        heads = (t.unflatten(-1, (-1, 4)).transpose(1, 2) for t in (self.q(x), self.k(x), self.v(x)))
        return F.scaled_dot_product_attention(*heads, enable_gqa=True), self.first(x)


class Buffered(nn.Module):
    """A causal mask of the longest text in a buffer, of which each text takes a corner."""

    def __init__(self, mask, spell):
        super().__init__()
        self.register_buffer("mask", mask)
        self.spell = spell

    def forward(self, x):
        n = x.shape[2]
        return self.spell(x @ x.mT * 0.5, self.mask[..., :n, :n]).softmax(-1) @ x


BUFFERS = {"ones": (torch.ones(1, 1, 16, 16).tril(), lambda s, m: s.masked_fill(m == 0, -torch.inf)),
           "truths": (torch.ones(16, 16).triu(1).bool(), lambda s, m: s.masked_fill(m, -1e9)),
           "factors": (torch.ones(16, 16).tril(), lambda s, m: s * m - 1e4 * (1 - m))}


@pytest.mark.parametrize("name", BUFFERS)
def test_a_causal_mask_in_a_buffer(name, tmp_path):
    mask, spell = BUFFERS[name]
    path, sizes = tmp_path / "m.pt2", {2: torch.export.Dim.AUTO}
    for i, m in enumerate((mask, mask.roll(1, -1))):
        module = Buffered(m.clone(), spell).eval()
        torch.export.save(torch.export.export(module, (torch.randn(2, 2, 5, 4),), dynamic_shapes=(sizes,)), path)
        assert certified(tmp_path / "r.pt2", "rewrite", path, source=path)[0] or i
        causal = "is_causal=true" in run(BUILD / "cli" / "qkv", "graph", tmp_path / "r.pt2").stdout
        assert causal == (i == 0), i


def test_biases_of_zeros(tmp_path):
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Fresh(), (torch.randn(2, 5, 8),)), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    assert "pack_qkv" in (tmp_path / "r.pt2.json").read_text()


def test_folded_weights(tmp_path):
    """With a certificate, weights are not rounded once more; the rules fire all the same."""
    x, path = torch.randn(2, 3, 5, 6), tmp_path / "m.pt2"
    torch.manual_seed(2)
    model = Folded().eval()
    torch.export.save(torch.export.export(model, (x,)), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    cert = json.loads((tmp_path / "r.pt2.json").read_text())
    fired = {r for c in cert["claims"] for r in c["rules"]}
    assert {"fold_batch_norm", "fold_scale"} <= fired, fired
    got = torch.export.load(tmp_path / "r.pt2").module()(x)
    assert torch.allclose(got, model(x), atol=1e-5)


def test_a_number_that_becomes_a_bias(tmp_path):
    path, model = tmp_path / "m.pt2", nn.Sequential(nn.Linear(4, 6, bias=False), Plus(1), nn.Tanh())
    torch.export.save(torch.export.export(model, (torch.randn(3, 4),)), path)
    assert certified(tmp_path / "r.pt2", "rewrite", path, source=path) == (True, None)
    assert "fold_shift" in (tmp_path / "r.pt2.json").read_text()
    torch.export.save(torch.export.export(nn.Sequential(model[0], Plus(2), model[2]), (torch.randn(3, 4),)), path)
    assert run(BUILD / "qkv-certify", path, tmp_path / "r.pt2", tmp_path / "r.pt2.json").returncode == 1


@pytest.mark.turns
@pytest.mark.parametrize("opset", (13, 18, 23))
@pytest.mark.parametrize("name", CASES)
def test_convert(files, name, opset, tmp_path):
    source = files[name][0]
    path = tmp_path / "m.onnx"
    assert certified(path, "convert", source, "--opset", opset, source=source) == (True, None)
    other = next(f[0] for n, f in files.items() if n != name)
    assert run(BUILD / "qkv-certify", other, path).returncode == 1


def pooled(x, **kw): return F.avg_pool2d(x, 2) + F.avg_pool2d(x, 3, 2, 1, **kw)[..., :2, :2]


# name: (a function, what looks like it and is something else) of (2, 3, 5, 4)
SPELLED = {
    "log_sigmoid": (F.logsigmoid, lambda x: -F.logsigmoid(-x)),
    "logsumexp": (lambda x: x.logsumexp(-1), lambda x: x.logsumexp(-1) - x.amax(-1)),
    "logsumexp of axes": (lambda x: x.logsumexp((1, 3), True), lambda x: x.logsumexp((1, 2), True).mean(3, True)),
    "nan_to_num": (lambda x: x.nan_to_num(), lambda x: x.nan_to_num(posinf=1.0)),
    "nan_to_num, all": (lambda x: x.nan_to_num(1.0, 2.0, 3.0), lambda x: x.nan_to_num(1.0, 3.0, 2.0)),
    "avg_pool2d": (pooled, lambda x: pooled(x, count_include_pad=False)),
    "avg_pool2d without a batch": (lambda x: pooled(x[0]), lambda x: pooled(x[0], count_include_pad=False)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x[0], 2), lambda x: F.avg_pool1d(x[0], 2, 1)[..., :2]),
    "normalize": (lambda x: F.normalize(x, dim=-1), lambda x: F.normalize(x, dim=-2)),
    "norm of order 1": (lambda x: F.normalize(x, 1, -1), lambda x: F.normalize(x, 2, -1)),
    "floor_divide": (lambda x: x * (x * 9).long().floor_divide(4), lambda x: x * ((x * 9).long() - 1).floor_divide(4)),
    "remainder": (lambda x: x * (x * 9).long().remainder(4), lambda x: x * (x * 9).long().fmod(4)),
    "norm of order 3": (lambda x: x.norm(3, -1), lambda x: x.norm(2, -1)),
}


class Function(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


@pytest.mark.parametrize("name", SPELLED)
def test_what_onnx_spells_otherwise(name, tmp_path):
    paths, axes = [tmp_path / "a.pt2", tmp_path / "b.pt2"], ({0: torch.export.Dim.AUTO},)
    for f, path in zip(SPELLED[name], paths):
        program = torch.export.export(Function(f), (torch.randn(2, 3, 5, 4),), dynamic_shapes=axes)
        torch.export.save(program, path)
    whole = certified(tmp_path / "m.onnx", "convert", paths[0], source=paths[0])
    assert (whole == (True, None)) == (name != "norm of order 3"), whole
    assert not certificate_of(paths[1], tmp_path / "m.onnx", tmp_path / "o.onnx")["whole"]


class Types(nn.Module):
    """The types of tokens as BERT has them: numbers of a buffer, at places that are numbers of another one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("types", torch.tensor([[0, 1, 1, 0]]))
        self.register_buffer("at", torch.arange(4)[None])
        self.of = nn.Embedding(2, 3)

    def forward(self, x):
        return self.of(self.types.expand(len(x), -1).gather(1, self.at.expand(len(x), -1))) + x


def test_places_that_are_numbers_of_a_buffer(tmp_path):
    path, sizes = tmp_path / "m.pt2", ({0: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(Types(), (torch.randn(5, 4, 3),), dynamic_shapes=sizes), path)
    assert certified(tmp_path / "m.onnx", "convert", path, source=path) == (True, None)


class Slices(nn.Module):
    """Slices that are written."""

    def __init__(self, ends):
        super().__init__()
        self.ends = ends

    def forward(self, x):
        return [x.slice_scatter(x[:, a:b] * 2, 1, a, b) for a, b in self.ends]


@pytest.mark.parametrize("ends, sizes, whole", [
    (((0, 2), (2, None), (-2, None), (5, 9), (0, None)), {0: torch.export.Dim.AUTO}, True),
    (((1, 3), (-4, -1), (3, 1), (9, 9)), {0: torch.export.Dim.AUTO}, False),
    (((0, 2), (1, 3), (-2, None), (0, None)), {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}, False)])
def test_slices_that_are_written(ends, sizes, whole, tmp_path):
    path, f = tmp_path / "m.pt2", Slices(ends)
    torch.export.save(torch.export.export(f, (torch.randn(2, 6),), dynamic_shapes=(sizes,)), path)
    assert certified(tmp_path / "m.onnx", "convert", path, source=path)[0] == whole
    for x in (torch.randn(2, 6), torch.randn(3, 6), torch.randn(2, 9))[:2 + (1 in sizes)]:
        assert all(torch.equal(torch.as_tensor(a), b) for a, b in zip(qkv.Model(tmp_path / "m.onnx")(x), f(x)))


def test_convert_rewritten_and_back(files, tmp_path):
    source = files["bert"][0]
    path, back = tmp_path / "m.onnx", tmp_path / "b.pt2"
    assert certified(path, "convert", source, "--rewrite", "--opset", 23, source=source) == (True, None)
    assert certified(back, "convert", path, source=path) == (True, None)
    assert run(BUILD / "cli" / "qkv", "convert", path, "-o", tmp_path / "p.pt2").returncode == 0
    with zipfile.ZipFile(tmp_path / "p.pt2") as z:  # a certificate is about the file that it is in
        assert not [n for n in z.namelist() if "certificate" in n]


def test_a_changed_number_of_an_onnx_file_is_refused(files, tmp_path):
    onnx = pytest.importorskip("onnx")
    source, path, refused = files["gpt"][0], tmp_path / "m.onnx", 0
    assert certified(path, "convert", source, source=source)[0]
    for k, w in enumerate(onnx.load(path).graph.initializer):
        model = onnx.load(path)
        w = model.graph.initializer[k]
        a = onnx.numpy_helper.to_array(w)
        if a.dtype.kind == "f" and np.isfinite(a).all():
            b = a.copy().reshape(-1)
            b[-1] = b[-1] * 1.5 + 0.25
            w.CopyFrom(onnx.numpy_helper.from_array(b.reshape(a.shape), w.name))
            onnx.save(model, path.with_name("o.onnx"))
            r = run(BUILD / "qkv-certify", source, path.with_name("o.onnx"))
            assert r.returncode == 1, (w.name, r.stdout)
            refused += 1
    assert refused >= 8


def test_lift_and_generalize(files, tmp_path):
    source = files["llama"][0]
    assert certified(tmp_path / "l.pt2", "rewrite", source, "--lift-sdpa", "--device", "cuda-sm90", source=source)[0]
    static = []
    for k, n in enumerate((5, 7)):
        torch.manual_seed(1)
        static.append(tmp_path / f"{k}.pt2")
        torch.export.save(torch.export.export(Gpt().eval(), (torch.randn(2 + k, n, 8),)), static[k])
    path = tmp_path / "g.pt2"
    assert certified(path, "generalize", *static, source=static[0]) == (True, None)
    assert run(BUILD / "qkv-certify", static[1], path).returncode == 0
    torch.manual_seed(2)
    torch.export.save(torch.export.export(Gpt().eval(), (torch.randn(2, 5, 8),)), static[1])
    assert run(BUILD / "qkv-certify", static[1], path).returncode == 1


RELU = "(float[2] x) => (float y) { y = Relu(x) }"
NEGATED = "(float[2] x) => (float y) { z = Neg(x) y = Neg(z) }"
SUM = "(float[2] x) => (float y) { y = Add(x, x) }"
TWICE = "(float[2] x) => (float y) <float t = {2.0}> { y = Mul(x, t) }"
ADDS = "(float[2] x) => (float y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }"
OTHER = "(float[2] x) => (float y) <float[2] v = {1.0, 3.0}> { y = Add(x, v) }"

INDEXED = "(float[2] x, int64[2] i) => (float y) { y = Gather(x, i) }"
FOUND = "(float[2] x) => (int64 y) { r = Relu(x) y = NonZero(x) }"


MOST = (1 << 63) - 1

def claim(**parts): return {"claims": [{"result": "y", **parts}]}
def weight(**parts): return {"weights": [parts]}


REFUSED = [  # source, result, parts of a certificate, what is said
    (RELU, RELU.replace(")", ", float z)", 1), {}, "2 inputs, the source has 1"),
    (RELU, RELU.replace("x", "z"), {}, "input 0 is 'z', the source's 'x'"),
    (RELU, RELU.replace("2", "3"), {}, "dtypes or sizes differ"),
    (RELU, RELU.replace("float", "double"), {}, "dtypes or sizes differ"),
    (RELU, "(float[2] x) => (float y, float z) { y = Relu(x) z = Relu(x) }", {}, "the numbers of results differ"),
    (RELU, RELU.replace("Relu", "Neg"), {}, "output 'y' is not shown"),
    (RELU, "(float[2] x) => (float y) { r = Relu(x) z = RandomNormalLike(x) y = Add(r, z) }", {},
     "has an effect beside its result"),
    ("(float[n] x) => (float y) { y = Relu(x) }",
     "(float[n] x) => (float y) <int64[2] s = {2, -1}, int64[1] t = {-1}> { r = Relu(x) h = Reshape(r, s) "
     "y = Reshape(h, t) }", {}, "a condition on sizes that the source lacks"),
    (RELU, NEGATED, claim(source="no"), "the source has no value 'no'"),
    (RELU, NEGATED, claim(source="y", **{"from": [3]}), "something other than names"),
    (RELU, NEGATED, claim(source="y", **{"from": ["no"]}), "the source has no value 'no'"),
    (RELU, NEGATED, claim(), "field 'source'"),
    (RELU, NEGATED, claim(source="y"), "different forms"),
    (RELU, RELU, claim(source="y"), "a claim is made twice"),
    ("(float[2] x) => (float y) { s = ReduceSum(x) y = Mul(x, s) }", NEGATED, claim(source="s"),
     "differ in dtype or sizes"),
    (SUM, TWICE, claim(source="y"), "the claim names no steps"),
    (SUM, TWICE, claim(source="y", **{"from": []}, laws=[], left=[], right=[]), "it takes "),
    (RELU, RELU, weight(weight="w", count=1, of=None, **{"from": 0}), "the result has no value 'w'"),
    (ADDS, OTHER, weight(weight="v", count=2, of="w", **{"from": 0}), "weight 'v': 2 rows from row 0 on are not 'w'"),
    (ADDS, OTHER, weight(weight="v", count=MOST, of=None, **{"from": MOST}), f"{MOST} rows from row {MOST} on are"),
    (ADDS, OTHER, weight(weight="v", count=-MOST - 1, of=None, **{"from": 0}), f"{-MOST - 1} rows from row 0 on"),
    (ADDS, OTHER, weight(weight="v", count=1, of=None, **{"from": 0}), "are not '0'"),
    (ADDS, OTHER, weight(weight="v", count=2, of="y", **{"from": 0}), "is not 'y', number by number"),
    (ADDS, OTHER, weight(weight="v", count=1, of="w", **{"from": -5}), "are not 'w'"),
    (ADDS, OTHER, weight(weight="v", count=1, of="w"), "field 'from'"),
    (ADDS, OTHER, weight(weight="v", count=1, of=7, **{"from": 0}), "field 'of'"),
    *[(RELU, RELU, {key: other}, f"field '{key}': found {kind}, expected an array") for key in ("claims", "weights")
      for other, kind in (({}, "object"), (None, "null"), ("", "string"), (0, "integer"))],
    (RELU, RELU, {"format": ["qkv certificate 2"]}, "field 'format'"),
    (RELU, RELU, {"format": "qkv"}, "found format 'qkv', expected 'qkv certificate 2': it is not a certificate"),
    *[(RELU, RELU, {"format": f"qkv certificate {v}"}, f"found format 'qkv certificate {v}', expected "
       "'qkv certificate 2': have this qkv write it again (--certify)") for v in (0, 1, 3, 99999999999)],
    (INDEXED.replace("Gather(x, i)", "Relu(x)"), INDEXED, {}, "may have an error that the source has not"),
    (FOUND.replace("NonZero(x)", "Cast<to = 7>(r)"), FOUND, {}, "size 'n0' is not the source's"),
    (FOUND, FOUND.replace("NonZero(x)", "NonZero(r)"), {}, "size 'n0' is not provably the source's"),
    (RELU, RELU, {"claims": [None]}, "a claim is made twice, out of order, or of what needs none"),
]


def read_as_onnx(onnx, text, path, ranges=None):
    head = f', metadata_props: ["qkv.range.n": "{ranges}"]' if ranges else ""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]{head}> g {text}')
    path.write_bytes(model.SerializeToString())


def replayed(onnx, source, result, parts, folder, ranges=(None, None)):
    paths = [folder / "a.onnx", folder / "b.onnx"]
    for text, path, of in zip((source, result), paths, ranges):
        read_as_onnx(onnx, text, path, of)
    cert = {"format": "qkv certificate 2", "claims": [], "weights": [], **parts}
    (folder / "c.json").write_text(json.dumps(cert))
    return checked(*paths, folder / "c.json")


@pytest.mark.parametrize("source, result, parts, says", REFUSED)
def test_what_is_said_of_a_refusal(source, result, parts, says, tmp_path):
    code, said = replayed(pytest.importorskip("onnx"), source, result, parts, tmp_path)
    assert code in (1, 3, 4) and says in said, said


class Kept(nn.Module):
    """A buffer that is written: of what, times `factor`."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.register_buffer("kept", torch.zeros(2))

    def forward(self, x):
        self.kept.copy_(x * self.factor)
        return x + 1


def test_a_buffer_may_be_written_nothing_else(tmp_path):
    for factor in (2, 3):
        torch.export.save(torch.export.export(Kept(factor), (torch.randn(2),)), tmp_path / f"{factor}.pt2")
    (tmp_path / "c.json").write_text(json.dumps({"format": "qkv certificate 2", "claims": []}))
    assert checked(tmp_path / "2.pt2", tmp_path / "2.pt2", tmp_path / "c.json")[0] == 0
    code, said = checked(tmp_path / "2.pt2", tmp_path / "3.pt2", tmp_path / "c.json")
    assert code == 1 and "what is written to 'b_kept' is not shown to be the source's" in said, said


def test_sizes_may_have_no_narrower_range(tmp_path):
    onnx, same = pytest.importorskip("onnx"), "(float[n] x) => (float y) { y = Relu(x) }"
    for ranges, code in (("2..9", "2..9"), 0), (("2..9", "1..9"), 0), (("2..9", "3..9"), 1), (("2..9", "2..8"), 1):
        got, said = replayed(onnx, same, same, {}, tmp_path, ranges)
        assert got == code and (not code or "has a narrower range" in said), (ranges, said)


def test_sizes_that_are_called_as_an_index_is(tmp_path):
    """A size is never taken for the index of an axis, nor n x for i x."""
    onnx = pytest.importorskip("onnx")
    for k in range(12):
        size = f"o0_{k}"
        head = f"(float[{size}] x) => (float y) <int64 z = {{0}}, int64 o = {{1}}>"
        times = f"{head} {{ s = Shape(x) n = Squeeze(s) f = Cast<to: int = 1>(n) y = Mul(x, f) }}"
        along = f"{head} {{ s = Shape(x) n = Squeeze(s) r = Range(z, n, o) f = Cast<to: int = 1>(r) y = Mul(x, f) }}"
        for text, path in ((times, tmp_path / "a.onnx"), (along, tmp_path / "b.onnx")):
            read_as_onnx(onnx, text, path)
        assert not certificate_of(tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "c.onnx")["whole"], size


class Chunk(nn.Module):
    """The mask of a cache beside that of a chunk: a guard says that the chunk has as many tokens as x."""

    def forward(self, x, past, chunk):
        k = torch.cat([past, x], 2)
        seen = torch.cat([torch.ones(x.shape[0], past.shape[2], dtype=torch.bool), chunk], -1)[:, None, None]
        return (x @ k.mT * 0.5).masked_fill(~seen, -1e9).softmax(-1) @ k


class Length(nn.Module):
    """A number that is checked to be the keys' size."""

    def __init__(self, which=0, check=True):
        super().__init__()
        self.which, self.check = which, check

    def forward(self, x, k, *lengths):
        n = lengths[self.which].item()
        torch._check(n == k.shape[2] if self.check else n <= k.shape[2])
        scores = (x @ k.mT * 0.5)[..., :n]
        return scores.masked_fill(torch.arange(n) >= n - 1, -1e9).softmax(-1) @ k[:, :, :n]


def by_itself(module, args, axes, path):
    """Exported with a symbol for each axis."""
    sizes = tuple({a: torch.export.Dim.AUTO for a in x} if x else None for x in axes)
    sizes = sizes if len(args) == 3 else (*sizes[:2], sizes[2:])
    torch.export.save(torch.export.export(module, args, dynamic_shapes=sizes), path)
    return path


def test_sizes_that_are_one(tmp_path):
    """Equal by a guard or an assert, which the result checks, too."""
    x, k, four, also = torch.randn(2, 1, 5, 4), torch.randn(2, 1, 4, 4), torch.tensor(4), torch.tensor(4)
    chunk = (x, k, torch.ones(2, 5, dtype=torch.bool)), ([0, 2], [0, 2], [0, 1]), (x, k, torch.ones(2, 6) > 0)
    length = (x, k, four, also), ([0, 2], [0, 2], None, None), (x, k, four - 1, also)
    for module, (args, axes, wrong) in ((Chunk(), chunk), (Length(), length)):
        source = by_itself(module, args, axes, tmp_path / "a.pt2")
        result = tmp_path / "b.pt2"
        assert certified(result, "rewrite", source, source=source)[0]
        model, again = qkv.Model(result), torch.export.load(result).module()
        assert "scaled_dot_product_attention" in run(BUILD / "cli" / "qkv", "graph", result).stdout
        np.testing.assert_allclose(model(*args)[0], module(*args), 1e-5, 1e-6)
        np.testing.assert_allclose(again(*args), module(*args), 1e-5, 1e-6)
        for refused in (model, again):
            with pytest.raises(Exception, match="expected|Expected|assertion failed"):
                refused(*wrong)
    for which, check in ((1, True), (0, False)):
        other = by_itself(Length(which, check), length[0], length[1], tmp_path / "c.pt2")
        assert checked(other, result, f"{result}.json")[0] != 0, (which, check)


class Picked(nn.Module):
    """Rows that a mask picks, twice; what is reshaped there and back; parts whose lengths are read from data."""

    def forward(self, x, keep, counts):
        rows, again = x[keep], (2 * x)[keep]
        first, second = counts.tolist()
        torch._check(first >= 0)
        torch._check(second >= 0)
        torch._check(first + second == rows.shape[0])
        there = (rows / 3)[None, None][:, 0]
        parts = torch.cat([p.sin() for p in rows.split([first, second])])
        return rows[:, None][:, None] + again[:, None, None], there[0].cos(), parts


def test_sizes_out_of_data(tmp_path):
    """Of one mask alone they are one; a bound that follows from what the source checks is not a new condition."""
    args = torch.randn(6, 4), torch.tensor([1, 1, 0, 1, 0, 0]) > 0, torch.tensor([1, 2])
    torch.export.save(torch.export.export(Picked(), args), tmp_path / "a.pt2")
    text = run(BUILD / "cli" / "qkv", "graph", tmp_path / "a.pt2").stdout
    read = [line.split(" in ")[0].split(" = ")[1] for line in text.splitlines() if " = size %" in line]
    assert len(read) == len(set(read)) == 2, text
    assert certified(tmp_path / "b.pt2", "rewrite", tmp_path / "a.pt2", source=tmp_path / "a.pt2") == (True, None)
    for got, want in zip(qkv.Model(tmp_path / "b.pt2")(*args), Picked()(*args)):
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)

    class Other(Picked):
        def forward(self, x, keep, counts):
            rows, there, _ = super().forward(x, keep, counts)
            return rows, there, x.sin()

    torch.export.save(torch.export.export(Other(), args), tmp_path / "c.pt2")
    assert checked(tmp_path / "c.pt2", tmp_path / "b.pt2", tmp_path / "b.pt2.json")[0] != 0


class Noise(nn.Module):
    """Numbers that are drawn are those of the same place in the order of draws."""

    def __init__(self, turned=False, more=False):
        super().__init__()
        self.turned, self.more = turned, more

    def forward(self, x):
        a, b = torch.rand(3, 4), torch.rand(3, 4)
        a, b = (b, a) if self.turned else (a, b)
        y = x[:, None][:, None] * a[:, None, None]
        return (y + torch.rand(3, 1, 1, 4) if self.more else y).sin() - b[:, None][:, None]


def test_numbers_that_are_drawn(tmp_path):
    x = torch.randn(3, 4)
    for name, module in (("a", Noise()), ("b", Noise(turned=True)), ("c", Noise(more=True))):
        torch.export.save(torch.export.export(module, (x,)), tmp_path / f"{name}.pt2")
    result = tmp_path / "r.pt2"
    assert certified(result, "rewrite", tmp_path / "a.pt2", source=tmp_path / "a.pt2") == (True, None)
    for other in ("b.pt2", "c.pt2"):
        assert checked(tmp_path / other, result, f"{result}.json")[0] != 0, other


class Chunked(nn.Module):
    """Attention within chunks of four tokens, as scans in chunks (Mamba 2) cut a padded text."""

    def __init__(self, ceil):
        super().__init__()
        self.q, self.ceil = nn.Linear(4, 4), ceil

    def forward(self, x):
        b, n, c = x.shape
        x = nn.functional.pad(x, (0, 0, 0, (n + 3) // 4 * 4 - n if self.ceil else (4 - n % 4) % 4))
        q = self.q(x.reshape(b, -1, 4, c)).reshape(b, -1, 4, 2, 2).transpose(2, 3)
        q = q.reshape(b * (x.shape[1] // 4), 2, 4, 2) if self.ceil else q
        y = (q @ q.mT * 0.5).softmax(-1) @ q
        return y.reshape(b, -1, 2, 4, 2).transpose(2, 3).reshape(b, -1, 4)[:, :n]


@pytest.mark.parametrize("ceil", (True, False))
def test_attention_in_chunks_of_any_length(ceil, tmp_path):
    sizes = {a: torch.export.Dim.AUTO for a in (0, 1)}
    program = torch.export.export(Chunked(ceil), (torch.randn(2, 7, 4),), dynamic_shapes=(sizes,))
    torch.export.save(program, tmp_path / "a.pt2")
    assert certified(tmp_path / "b.pt2", "rewrite", tmp_path / "a.pt2", source=tmp_path / "a.pt2") == (True, None)
    assert "scaled_dot_product_attention" in run(BUILD / "cli" / "qkv", "graph", tmp_path / "b.pt2").stdout


class LocalWindows(nn.Module):
    """Each window of four tokens sees its neighbours, as in local attention (Longformer, Performer)."""

    def forward(self, q, k, v):
        b, n, c = q.shape
        assert n % 4 == 0
        q, k, v = (x.reshape(b, n // 4, 4, c) for x in (q, k, v))
        k, v = (F.pad(x, (0, 0, 0, 0, 1, 1), value=-1.0).unfold(1, 3, 1).movedim(-1, 2).flatten(2, 3) for x in (k, v))
        p = torch.einsum("bwic,bwjc->bwij", q, k).softmax(-1)
        return torch.einsum("bwij,bwjc->bwic", p, v).reshape(b, n, c)


def test_windows_of_four_tokens(tmp_path):
    sizes = {a: torch.export.Dim.AUTO for a in (0, 1)}
    args = tuple(torch.randn(2, 12, 8) for _ in range(3))
    torch.export.save(torch.export.export(LocalWindows(), args, dynamic_shapes=(sizes,) * 3), tmp_path / "a.pt2")
    assert certified(tmp_path / "b.pt2", "rewrite", tmp_path / "a.pt2", source=tmp_path / "a.pt2") == (True, None)
    assert "scaled_dot_product_attention" in run(BUILD / "cli" / "qkv", "graph", tmp_path / "b.pt2").stdout


class Complex(nn.Module):
    """A complex weight, complex numbers seen as reals and reals as complex ones, and complex outputs."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 5, dtype=torch.cfloat))

    def forward(self, x):
        z = torch.fft.rfft(x) @ self.w.mT
        return z, self.w.view(torch.float32)[:, 1::2] * 2, (x * 1.5).view(torch.complex64), self.w[:, 1]


class Turned(nn.Module):
    """Texts and pictures, each turned by other parts of one table of complex numbers, as Qwen-Image has it."""

    def __init__(self):
        super().__init__()
        self.table = torch.polar(torch.ones(9, 4), torch.arange(9.0)[:, None] * torch.tensor([1.0, 0.3, 0.1, 0.03]))

    def forward(self, x):
        rows, columns = self.table.split([2, 2], 1)
        places = torch.cat([rows[:2, None].expand(2, 3, 2), columns[None, :3].expand(2, 3, 2)], -1).reshape(6, 4)
        parts = []
        for y, by in ((x[:, :2], self.table[2:4]), (x[:, 2:], places)):
            y = torch.view_as_complex(y.reshape(*y.shape[:-1], 4, 2)) * by[:, None]
            parts.append(torch.view_as_real(y).flatten(3))
        return torch.cat(parts, 1)


class Routed(nn.Module):
    """Experts of other groups are hidden from topk, as DeepSeek-V3 has it: where one is found is a number, and so is
    what is weighed by it and normalised."""

    def __init__(self):
        super().__init__()
        self.gate, self.w = nn.Linear(8, 4, bias=False), nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        best = scores.unflatten(-1, (2, 2)).sum(-1).topk(1, -1).indices
        seen = torch.zeros_like(scores[:, :2]).scatter_(1, best, 1).repeat_interleave(2, 1)
        chosen = scores.masked_fill(seen == 0, -torch.inf).topk(2, -1).indices
        x = x + x * scores.gather(1, chosen).sum(-1, True)
        return self.w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Adapted(nn.Module):
    """Queries and keys with an adapter of low rank each, turned pair by pair; two heads to a key."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.qa, self.ka, self.qb, self.kb = (nn.Linear(*n, bias=False) for n in (
            (32, 32), (32, 16), (32, 16), (32, 4), (32, 4), (4, 32), (4, 16)))
        self.register_buffer("cos", torch.rand(64, 4))
        self.register_buffer("sin", torch.rand(64, 4))

    def heads(self, x, turn):
        b, n, _ = x.shape
        x = x.view(b, n, -1, 8)
        if turn:
            pairs, cos, sin = x.reshape(b, n, -1, 4, 2), self.cos[:n][None, :, None], self.sin[:n][None, :, None]
            x = torch.stack([pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin], -1)
        return x.reshape(b, n, -1, 8).transpose(1, 2)

    def forward(self, x):
        q, k = self.q(x) + self.qb(self.qa(x)) * 2.0, self.k(x) + self.kb(self.ka(x)) * 2.0
        q, k, v = self.heads(q, True), self.heads(k, True), self.heads(self.v(x), False)
        k, v = (y[:, :, None].expand(-1, 2, 2, -1, 8).flatten(1, 2) for y in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def test_adapters_of_turned_pairs(tmp_path):
    program = torch.export.export(Adapted(), (torch.randn(2, 9, 32),),
                                  dynamic_shapes=({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},))
    torch.export.save(program, tmp_path / "a.pt2")
    assert certified(tmp_path / "b.pt2", "rewrite", tmp_path / "a.pt2", source=tmp_path / "a.pt2") == (True, None)


class Hidden(nn.Module):
    """Scores of later keys are overwritten at places that are computed, as in Reformer's full attention."""

    def forward(self, q, k):
        scores = q @ k.mT
        i, j = torch.triu_indices(6, 6, 1)
        scores[:, i, j] = -1e9
        return scores.softmax(-1) @ k


class Cosine(nn.Module):
    """Attention of normalised queries and keys, whose bound 1e-12 a certificate cannot have, with its weights."""

    def forward(self, q, k):
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        p = (q @ k.mT * 2.1).softmax(-1)
        return p @ k, p


class Linear(nn.Module):
    """Linear attention: keys become weights over tokens, so that their projection may do as queries; other heads read
    the same projection as they are."""

    def __init__(self):
        super().__init__()
        self.k = nn.Linear(8, 8, bias=False)

    def forward(self, x, v):
        k = self.k(x).unflatten(-1, (2, 4)).transpose(1, 2)
        return k[:, 1:].softmax(-2).mT @ v, k[:, :1]


class Angle(nn.Module):
    """The angle of what a rule changes, and a row that is looked up by it, as Canny's edges are found."""

    def __init__(self, looks):
        super().__init__()
        self.w, self.looks = nn.Parameter(torch.rand(8) + 0.5), looks

    def forward(self, x):
        x = self.w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        angle = torch.atan2(x[:, :4], x[:, 4:])
        return x.gather(1, (angle + 3.2).long()) if self.looks else angle


class Least(nn.Module):
    """The least magnitude above 0, which is infinite where there is none, in an order, as kornia normalises."""

    def forward(self, x):
        x = x.abs()
        least = x.masked_fill(x == 0, torch.inf).amin(-1, keepdim=True)
        return torch.where(torch.isfinite(x.amax(-1, keepdim=True).clamp_max(1.0).clamp_min(least)), x, x * 2)


@pytest.mark.parametrize("module, op, why", [(Angle(False), "atan2", "the sign of 0"),
                                             (Angle(True), "atan2", "the sign of 0"),
                                             (Least(), "isfinite", "an order of infinities")])
def test_what_cannot_be_shown_is_named(module, op, why, tmp_path):
    path = tmp_path / "a.pt2"
    torch.export.save(torch.export.export(module, (torch.randn(3, 8),)), path)
    whole, said = certified(tmp_path / "b.pt2", "rewrite", path, source=path)
    assert not whole and said.startswith(f"'{op}': ") and why in said, said


class Moved(nn.Module):
    """The angle of what views alone move, which are folded: its zeros have the signs that they had."""

    def forward(self, x):
        return torch.atan2(x[:, 1].unsqueeze(1), x.select(1, 0)[:, None])


class CutImage(nn.Module):
    """Attention within the blocks of an image, with a bias by distance, as HaloNet cuts them: steps of the claim hold
    quotients that claims tried before have made in another order."""

    def __init__(self):
        super().__init__()
        self.q, self.o, self.far = nn.Linear(8, 8, bias=False), nn.Linear(8, 8), nn.Parameter(torch.randn(7, 4))

    def distances(self, q):
        b, h, w, _ = q.shape
        x = F.pad((q @ self.far.mT).reshape(b * h, w, 7), (0, 1)).reshape(b * h, -1)
        x = F.pad(x, (0, 7 - w)).reshape(b * h, w + 1, 7)[:, :w, -4:].reshape(b, h, w, 4)
        return x.unsqueeze(2).expand(-1, -1, 4, -1, -1)

    def forward(self, x):
        b, c, h, w = x.shape
        k = F.unfold(x, 4, stride=2, padding=1).reshape(b, c, 16, -1).permute(0, 3, 2, 1).reshape(-1, 16, c)
        x = x.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, c)
        q, k = (self.q(y).reshape(y.shape[0], -1, 2, 4).transpose(1, 2).reshape(-1, y.shape[1], 4) for y in (x, k))
        q = q * 0.5
        at = q.reshape(-1, 2, 2, 4)
        bias = self.distances(at).permute(0, 1, 3, 2, 4).reshape(-1, 4, 16)
        bias = bias + self.distances(at.transpose(1, 2)).permute(0, 3, 1, 4, 2).reshape(-1, 4, 16)
        seen = F.unfold(torch.ones(1, 1, h, w), 4, stride=2, padding=1).mT
        seen = seen[:, None, None].expand(b, -1, 2, -1, -1).permute(0, 3, 2, 1, 4).reshape(-1, 1, 16).bool()
        y = (q @ k.mT + bias).masked_fill(~seen, -1e9).softmax(-1) @ k
        y = self.o(y.reshape(-1, 2, 4, 4).transpose(1, 2).reshape(-1, 4, 8))
        return y.reshape(b, h // 2, w // 2, 2, 2, c).permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w)


@pytest.mark.parametrize("module, inputs", [(Complex(), ((3, 8),)), (Turned(), ((2, 8, 3, 8),)),
                                            (Routed(), ((3, 8),)), (Hidden(), ((2, 6, 4), (2, 6, 4))),
                                            (Cosine(), ((2, 5, 4), (2, 7, 4))), (Linear(), ((3, 6, 8), (3, 1, 6, 4))),
                                            (CutImage(), ((3, 8, 8, 8),)), (Moved(), ((3, 2, 5),))],
                         ids=["complex", "turned", "routed", "hidden", "cosine", "linear", "blocks", "moved"])
def test_what_is_spelled_anew(module, inputs, tmp_path):
    program = torch.export.export(module, tuple(torch.randn(*x) for x in inputs),
                                  dynamic_shapes=tuple({0: torch.export.Dim.AUTO} for _ in inputs))
    torch.export.save(program, tmp_path / "a.pt2")
    assert certified(tmp_path / "b.pt2", "rewrite", tmp_path / "a.pt2", source=tmp_path / "a.pt2") == (True, None)
