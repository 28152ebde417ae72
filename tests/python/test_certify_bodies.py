"""Certificates of what runs in loops and branches: each body is a graph of its own, of which claims hold whatever it is
given. What is spelled otherwise in a body is certified; what differs there is not, nor is a certificate that was
changed.
"""
import copy
import json
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch._higher_order_ops.map import map as each  # noqa: E402
from torch._higher_order_ops.scan import scan  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_certify import BUILD, certificate_of, certified, checked, run  # noqa: E402
from test_differ import exported, leaves, rand  # noqa: E402

INF = float("inf")


class Block(nn.Module):
    """What rules rewrite: attention, its projections, and a norm that is written out."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.w = nn.Parameter(torch.rand(8) + 0.5)

    def norm(self, x):
        return self.w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def attend(self, x):
        q, k, v = (f(x).view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(((q @ k.mT * 0.5).softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


class Branch(Block):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.attend(self.norm(x)), lambda x: self.norm(x) - x, (x,))


class Scan(Block):
    def forward(self, x):
        def turn(h, x):
            h = torch.tanh(self.norm(h) + self.attend(x[None])[0])
            return h, h * 2
        return scan(turn, torch.ones(4, 8), x)


class Each(Block):
    def forward(self, x):
        return each(lambda x: self.attend(x[None])[0], x)


class While(Block):
    """torch's file carries the condition as well."""

    def forward(self, x):
        return while_loop(lambda i, y: (i < 5) & (y.sum() < 100), lambda i, y: (i + 1, self.norm(y) + i),
                          (torch.tensor(0), x))


class Nested(Block):
    def forward(self, x):
        def turn(h, x):
            h = torch.cond(x.sum() > 0, lambda h, x: self.norm(h) + x, lambda h, x: self.attend((h * x)[None])[0],
                           (h, x))
            return h, h * 2
        return scan(turn, torch.ones(4, 8), x)


MODELS = {"branch": Branch, "scan": Scan, "map": Each, "while": While, "nested": Nested}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{name: (source, result, certificate)}"""
    folder, made = tmp_path_factory.mktemp("bodies"), {}
    for name, model in MODELS.items():
        torch.manual_seed(2)
        made[name] = source, result = folder / f"{name}.pt2", folder / f"{name}.new.pt2"
        exported(model(), (torch.randn(3, 4, 8),), source, {0: torch.export.Dim("b", min=2, max=64)})
        assert certified(result, "rewrite", source, source=source) == (True, None), name
    return made


@pytest.mark.parametrize("name", MODELS)
def test_what_rules_rewrite_in_a_body(files, name):
    cert = json.loads(pathlib.Path(f"{files[name][1]}.json").read_text())
    bodies = [b for c in cert["claims"] for b in c["bodies"]]
    inner = [b for body in bodies for c in body["claims"] for b in c.get("bodies", ())]
    rules = {r for b in bodies + inner for c in b["claims"] for r in c.get("rules", ())}
    assert "rms_norm_by_hand" in rules or name == "map", rules
    assert "attention" in rules or name == "while", rules
    assert len(bodies) == (2 if name == "branch" else 1) and len(inner) == (2 if name == "nested" else 0)
    assert cert["claims"][0].get("carried") == ([-1, 0, 1] if name == "while" else None)


def spoilt(cert):
    """The certificate with one thing changed: (what, certificate)."""
    def other(what, change):
        c = copy.deepcopy(cert)
        change(c, c["claims"][0])
        return what, c
    claim = cert["claims"][0]
    yield other("nothing is claimed", lambda c, of: c["claims"].pop())
    yield other("no bodies", lambda c, of: of.pop("bodies"))
    yield other("empty bodies", lambda c, of: of.update(bodies=[]))
    yield other("bodies are a number", lambda c, of: of.update(bodies=3))
    yield other("a body is a number", lambda c, of: of.update(bodies=[3] * len(of["bodies"])))
    yield other("one body too many", lambda c, of: of["bodies"].append({"weights": [], "claims": []}))
    yield other("about an input", lambda c, of: of.update(source="x"))
    yield other("of another value", lambda c, of: of.update(result="nothing"))
    for k, wrong in enumerate(([], [0] * 9, [1, 0], [-1, -1, -1], [0, 0, 1], [-2, 0, 1], ["a", 0, 1], [1 << 40, 0, 1],
                               [-1, 1, 0], [-1, 0, 2])):
        if not isinstance(claim.get("carried"), type(None)) or wrong:
            yield other(f"carried {k}", lambda c, of, w=wrong: of.update(carried=w))
    for i, body in enumerate(claim["bodies"]):
        yield other(f"body {i} without claims", lambda c, of, i=i: of["bodies"][i].update(claims=[]))
        yield other(f"body {i} without a list", lambda c, of, i=i: of["bodies"][i].pop("claims"))
        for k, w in enumerate(body["weights"]):
            yield other(f"body {i} weight {k}", lambda c, of, i=i, k=k, w=w: of["bodies"][i]["weights"][k].update(
                {"from": w["from"] + 1}))
        for k, inner in enumerate(body["claims"]):
            yield other(f"body {i} claim {k} left out", lambda c, of, i=i, k=k: of["bodies"][i]["claims"].pop(k))
            yield other(f"body {i} claim {k} about another", lambda c, of, i=i, k=k:
                        of["bodies"][i]["claims"][k].update(source=inner["source"] + "_"))
            for side in ("left", "right"):
                for m in range(len(inner.get(side, ()))):
                    yield other(f"body {i} claim {k} {side} {m}", lambda c, of, i=i, k=k, s=side, m=m:
                                of["bodies"][i]["claims"][k][s].pop(m))


@pytest.mark.turns
@pytest.mark.parametrize("name", MODELS)
def test_a_changed_certificate_is_refused(files, name, tmp_path):
    source, result = files[name]
    cert, path, n = json.loads(pathlib.Path(f"{result}.json").read_text()), tmp_path / "c.json", 0
    for what, other in spoilt(cert):
        path.write_text(json.dumps(other))
        code, said = checked(source, result, path)
        assert code in (1, 3), (what, said)
        n += 1
    assert n > 20


def branch(yes, no, *args): return torch.cond(args[0].sum() > 0, yes, no, args)


def repeat(turns, body, *start):
    """A number of turns that is data, so that nothing is written out."""
    return while_loop(lambda i, *a: i < turns.sum().to(torch.int64), lambda i, *a: (i + 1, *body(i, *a)),
                      (torch.tensor(0), *start))


def sums(x, body, n=1):
    return scan(lambda h, v: body(*h, v), tuple(torch.zeros(4) for _ in range(n)), x)


X, Y, HIDE = rand(3, 4).abs(), rand(4, 4)[:3], torch.tensor([[True, False, False, True]])
ZEROS = torch.tensor([[1.0, -0.0, 0.0, -1.0], [-1.0, 1.0, 2.0, -0.0], [1.0, 1.0, 1.0, 1.0]])
# name: (a function, one that differs, arguments)
PAIRS = {
    "which branch": (lambda x: branch(lambda x: x * 2, lambda x: x * 3, x),
                     lambda x: branch(lambda x: x * 3, lambda x: x * 2, x), (X,)),
    "which condition": (lambda x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,)),
                        lambda x: torch.cond(x.sum() < 0, lambda x: x * 2, lambda x: x * 3, (x,)), (X,)),
    "the branch that is not taken": (lambda x: branch(lambda x: x * 2, lambda x: x * 3, x),
                                     lambda x: branch(lambda x: x * 2, lambda x: x * 4, x), (-X,)),
    "a number in a branch": (lambda x: branch(lambda x: x * 2, lambda x: x * 3, x),
                             lambda x: branch(lambda x: x * 2.5, lambda x: x * 3, x), (X,)),
    "the order of operands": (lambda x, y: branch(lambda x, y: x - y, lambda x, y: x * y, x, y),
                              lambda x, y: torch.cond(x.sum() > 0, lambda x, y: x - y, lambda x, y: x * y, (y, x)),
                              (X, Y)),
    "the order of results": (lambda x: branch(lambda x: (x * 2, x * 3), lambda x: (x * 4, x * 5), x),
                             lambda x: branch(lambda x: (x * 3, x * 2), lambda x: (x * 5, x * 4), x), (X,)),
    "what a loop begins with": (lambda x: scan(lambda h, v: (h + v, h * 2), torch.zeros(4), x),
                                lambda x: scan(lambda h, v: (h + v, h * 2), torch.ones(4), x), (X,)),
    "which value is carried": (lambda x: sums(x, lambda h, g, v: ((h + v, g * 1.0), h * 2), 2),
                               lambda x: sums(x, lambda h, g, v: ((h * 1.0, g + v), h * 2), 2), (X,)),
    "what is carried on": (lambda x: sums(x, lambda h, g, v: ((g + v, h * 1.0), h * 2), 2),
                           lambda x: sums(x, lambda h, g, v: ((h + v, g * 1.0), h * 2), 2), (X,)),
    "what a turn gives": (lambda x: sums(x, lambda h, v: ((h + v,), h * 2)),
                          lambda x: sums(x, lambda h, v: ((h + v,), h * 3)), (X,)),
    "which sequence": (lambda x, y: scan(lambda h, v: (h + v[0], h - v[1]), torch.zeros(4), (x, y)),
                       lambda x, y: scan(lambda h, v: (h + v[0], h - v[1]), torch.zeros(4), (y, x)), (X, Y)),
    "what is captured": (lambda x, y, z: each(lambda v: v * y - z, x), lambda x, y, z: each(lambda v: v * z - y, x),
                         (X, rand(4), rand(1, 4)[0])),
    "the number of turns": (lambda x: repeat(x, lambda i, y: (y * 1.5,), x),
                            lambda x: repeat(x + 1, lambda i, y: (y * 1.5,), x), (X,)),
    "the number of a turn": (lambda x: repeat(x, lambda i, y: (y + i,), x),
                             lambda x: repeat(x, lambda i, y: (y + i * 2,), x), (X,)),
    "infinities that a body is given": (
        lambda s, t: branch(lambda s, h: h - h, lambda s, h: h * 1.0, s, s.masked_fill(t, -INF)),
        lambda s, t: branch(lambda s, h: s * 0.0, lambda s, h: h * 1.0, s, s.masked_fill(t, -INF)), (X, HIDE)),
    "infinities that a turn leaves to the next": (
        lambda x: sums(x, lambda h, v: ((torch.where(v > 0, -INF, h),), h - h)),
        lambda x: sums(x, lambda h, v: ((torch.where(v > 0, -INF, h),), h * 0.0 + (v - v))), (X,)),
    "infinities that a branch gives": (
        lambda x: (lambda h: h - h)(branch(lambda x: x.masked_fill(x > 0, -INF), lambda x: x * 1.0, x)),
        lambda x: (lambda h: x * 0.0)(branch(lambda x: x.masked_fill(x > 0, -INF), lambda x: x * 1.0, x)), (X,)),
    "the sign of a zero that a turn leaves": (
        lambda x: scan(lambda h, v: (h * v, torch.signbit(h)), -torch.zeros(4), x),
        lambda x: scan(lambda h, v: (h * v + 0.0, torch.signbit(h)), -torch.zeros(4), x), (ZEROS.abs(),)),
    "a body in a body": (
        lambda x: each(lambda v: torch.cond(v.sum() > 0, lambda v: v * 2, lambda v: v * 3, (v,)), x),
        lambda x: each(lambda v: torch.cond(v.sum() > 0, lambda v: v * 2, lambda v: v * 4, (v,)), x), (-X,)),
    "the order of bodies that draw": (
        lambda x: (each(lambda v: v + torch.rand(4), x), each(lambda v: v * torch.rand(4), x)),
        lambda x: (each(lambda v: v * torch.rand(4), x), each(lambda v: v + torch.rand(4), x))[::-1], (X,)),
    "how many numbers a body draws": (
        lambda x: (each(lambda v: v + torch.rand(4), x), torch.rand(4)),
        lambda x: (each(lambda v: v + torch.rand(2, 4)[0], x), torch.rand(4)), (X,)),
}


@pytest.mark.turns
@pytest.mark.parametrize("name", PAIRS)
def test_bodies_that_differ_are_not_certified(name, tmp_path):
    f, g, args = PAIRS[name]
    a, b = tmp_path / "a.pt2", tmp_path / "b.pt2"
    torch.manual_seed(0)
    one = leaves(f, args)
    torch.manual_seed(0)
    other = leaves(g, args)
    assert any(x.shape != y.shape or not torch.equal(x, y) for x, y in zip(one, other))
    exported(f, args, a), exported(g, args, b)
    for source, result in ((a, b), (b, a)):
        found = certificate_of(source, result, tmp_path / "o.pt2")
        assert not found["whole"], found
        (tmp_path / "same.json").write_text(json.dumps(certificate_of(source, source, tmp_path / "o.pt2")))
        assert checked(source, result, tmp_path / "same.json")[0] == 1  # what holds of the source beside itself


# name: (a function, the same in another spelling, arguments)
SAME = {
    "a branch": (lambda x, y: branch(lambda x, y: (x @ y.transpose(0, 1) * 0.5).softmax(-1) @ y,
                                     lambda x, y: x * y, x, y),
                 lambda x, y: branch(lambda x, y: nn.functional.scaled_dot_product_attention(x, y, y, scale=0.5),
                                     lambda x, y: y * x, x, y), (X, Y)),
    "a turn": (lambda x: sums(x, lambda h, v: ((h + (v - v.mean()),), h * 2)),
               lambda x: sums(x, lambda h, v: ((v + h - v.sum() / 4,), h + h)), (X,)),
    "the sign of a zero that nothing changes": (
        lambda x: sums(x, lambda h, v: ((h * v,), (torch.signbit(h), v.square()))),
        lambda x: sums(x, lambda h, v: ((h * v,), (torch.signbit(h), v.square()))), (ZEROS,)),
    "numbers that are drawn": (lambda x: torch.rand(4) + each(lambda v: v + torch.rand(4), x),
                               lambda x: torch.rand(4) + each(lambda v: v + torch.rand(4), x), (X,)),
}


@pytest.mark.turns
@pytest.mark.parametrize("name", SAME)
def test_bodies_in_another_spelling(name, tmp_path):
    f, g, args = SAME[name]
    for h, path in ((f, "a.pt2"), (g, "b.pt2")):
        exported(h, args, tmp_path / path)
    for source, result in (("a.pt2", "b.pt2"), ("b.pt2", "a.pt2")):
        found = certificate_of(tmp_path / source, tmp_path / result, tmp_path / "o.pt2")
        assert found["whole"], found["why"]
        (tmp_path / "c.json").write_text(json.dumps(found))
        code, said = checked(tmp_path / source, tmp_path / "o.pt2", tmp_path / "c.json")
        assert code == 0, said


def test_branches_of_an_onnx_file(files, tmp_path):
    """Its bodies hold the weights that those of a .pt2 capture."""
    source = files["branch"][0]
    assert certified(tmp_path / "b.onnx", "convert", source, source=source) == (True, None)
    assert run(BUILD / "qkv-certify", source, tmp_path / "b.onnx").returncode == 0
