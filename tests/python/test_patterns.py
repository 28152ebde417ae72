"""qkv.pattern: rules whose guards and grafts are Python functions."""
import json
import os
import pathlib
import subprocess

import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from parts import R, chain, fn  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

QKV = os.environ.get("QKV", str(pathlib.Path(__file__).resolve().parents[2] / "build" / "qkv"))


def exported(f, *inputs, shapes=None, **parts):
    return torch.export.export(fn(f, **parts), inputs, dynamic_shapes=shapes)


def rewritten(program, *rules, **options):
    """The report, and the graph as text; results are as before."""
    model = qkv.Model(program)
    report = model.rewrite(rules=rules, prove=True, **options)
    inputs = [x for x in program.example_inputs[0]]
    want = program.module()(*inputs)
    for got, t in zip(model.run_dlpack(inputs).values(), want if isinstance(want, tuple) else [want]):
        torch.testing.assert_close(torch.from_dlpack(got), t.detach(), rtol=1e-4, atol=1e-5)
    return report, model.graph_text()


def fired(report):
    return [f["rule"] for f in report["firings"]]


def test_views_are_what_was_matched():
    seen = {}

    def look(y, x, dims, c, s):
        if seen:  # the rule's own result
            return True
        seen.update(y=(y.op, y.dtype, y.shape, y.ndim, y.uses, y.name), dims=dims, c=c, s=s, repr=repr(x),
                    inputs=list(y.inputs), x=y.inputs["self"].name, bias=x.inputs["bias"].array(),
                    weight=x.inputs["weight"].weight, low=x.shape[0].low, high=x.shape[0].high,
                    same=x.shape[0] == y.shape[0], more=x.shape[0] > 1, less=x.shape[0] <= 99,
                    unknown=x.shape[0] > 2, twice=str(x.shape[0] * 2), keep=y)
        return True

    linear = nn.Linear(6, 8)
    program = exported(lambda self, x: (self.a(x).sum([1], keepdim=True) * 0.25).relu(), R(3, 6), a=linear,
                       shapes=({0: Dim("n", min=2, max=99)},))
    rule = qkv.pattern("seen", "(relu (= ?y (mul (sum ?x ?dims ?s) ?c)))",
                       lambda y, x, dims: ("relu", ("mul", ("sum", x, dims, True), y.inputs["other"])), look,
                       kind="reorder")
    report, _ = rewritten(program, rule)
    assert not report["refused"], report["refused"]
    n = repr(seen["y"][2][0])
    assert seen["y"][0] == "aten.mul.Tensor" and seen["y"][1] == "f32" and seen["y"][2][1] == 1
    assert seen["y"][3:] == (2, 1, "mul") and seen["inputs"] == ["self", "other"] and seen["x"] == "sum_1"
    assert seen["dims"] == [1] and seen["c"] == 0.25 and seen["s"] is True and seen["weight"] == "a.weight"
    torch.testing.assert_close(torch.from_numpy(seen["bias"]), linear.bias.detach())
    assert (seen["low"], seen["high"]) == (2, 99) and seen["same"] and seen["more"] and seen["less"]
    assert not seen["unknown"] and seen["repr"] == f"<linear = aten.linear.default: f32[{n}, 8]>"
    assert seen["twice"] == f"({n})*(2)"
    with pytest.raises(qkv.Error, match="as long as its function runs"):
        seen["keep"].array()


def test_the_same_trees_as_text_and_as_tuples():
    program = exported(lambda self, x: (x.softmax(-1) * 1).transpose(0, 1) + x.sigmoid() * x, R(4, 4))
    for tree, graft in [("(mul ?x (sigmoid ?x))", "(silu ?x)"), (("mul", "?x", ("sigmoid", "?x")), ("silu", "?x")),
                        ("(mul ?x (sigmoid ?x))", lambda x: ("silu", x))]:
        report, text = rewritten(program, qkv.pattern("my_swish", tree, graft, "(float ?x)", ("rank", "?x", 2)),
                                 builtin_rules=False)
        assert fired(report) == ["my_swish"] and "silu" in text
    report, text = rewritten(program, qkv.pattern(
        "turned", ("permute", "?x", ["?a", "?b"]), lambda x, a, b: ("permute", ("neg", ("neg", x)), [a - 2, b - 2]),
        lambda a, b: (a, b) == (1, 0), kind="reorder"), builtin_rules=False)
    assert fired(report) == ["turned"] and text.count("aten.neg") == 2


@pytest.mark.turns
def test_runs_of_any_length():
    for n in (1, 2, 7, 60):
        def forward(self, x):
            y = self.a(x)
            for i in range(n):
                y = [y.relu, y.exp, y.sin][i % 3]() * 0.5
            return y.reshape(x.shape[0], 2, 4)

        program = exported(forward, R(3, 6), a=nn.Linear(6, 8), shapes=({0: Dim("n", max=99)},))
        rule = qkv.pattern(
            "reshape_first",
            "(reshape (= ?y (+ (relu ~) (exp ~) (sin ~) (mul ~ 0.5) (= ?x (linear ...)))) ?sizes)",
            "(again ?y ?x (reshape ?x ?sizes))", kind="reorder")
        report, text = rewritten(program, rule)
        assert fired(report) == ["reshape_first"] and len(report["firings"][0]["nodes"]) == 2 * n + 1
        assert text.index("reshape") < text.index("mul")
        star = qkv.pattern("star", "(reshape (* (mul ~ 0.5) (log ~) (= ?x (linear ...))) ?sizes)",
                           "(reshape ?x ?sizes)")
        assert not rewritten(program, star)[0]["firings"]


def test_a_run_of_nodes_that_is_too_long_is_refused(tmp_path):
    chain(tmp_path / "long.onnx", ["Sin"] * 4000 + ["Relu"])
    endless = qkv.pattern("endless", "(relu (+ (sin ~) (exp ?x)))", "(relu ?x)")
    report = qkv.Model(tmp_path / "long.onnx").rewrite(rules=[endless])
    assert not report["firings"]


def test_forks_phases_and_functions_in_them():
    phases = []

    def first(x, w):
        phases.append(x.name)
        return ("matmul", x, ("permute", w, [1, 0]))

    program = exported(lambda self, x: (self.a(x).relu(), self.b(x).relu()), R(3, 6), a=nn.Linear(6, 8, bias=False),
                       b=nn.Linear(6, 4, bias=False))
    pair = qkv.pattern("pair", ("fork", ("relu", ("linear", "?x", "?w", None)), "(relu (linear ?x ?u none))"),
                       ("fork", ("relu", first), lambda x, u: ("relu", ("matmul", x, ("permute", u, [1, 0])))),
                       kind="reorder", phase="fuse")
    report, text = rewritten(program, pair, builtin_rules=False)
    assert fired(report) == ["pair"] and report["firings"][0]["phase"] == "fuse" and text.count("aten.matmul") == 2
    assert not rewritten(program, pair, phases=["recompose", "convert"])[0]["firings"] and phases


def test_derive_rules_meet_the_built_in_ones():
    """Scores that come through ops that no rule knows."""
    def forward(self, q, k, v):
        s = (q @ k.transpose(-1, -2)).exp().log() * 0.5
        return s.softmax(-1) @ v

    program = exported(forward, R(2, 3, 4, 8), R(2, 3, 5, 8), R(2, 3, 5, 8))
    assert rewritten(program)[0]["attentions_fused"] == 0
    undo = qkv.pattern("log_exp", "(log (exp ?x))", "?x", lambda x: x.dtype == "f32", kind="derive")
    report, _ = rewritten(program, undo)
    assert report["attentions_fused"] == 1 and report["attentions_left"] == 0


def test_what_a_guard_says_is_reported(tmp_path):
    program = exported(lambda self, x: x.sigmoid() * x, R(3, 6))
    for guard, reason in [(lambda x: False, "it does not hold"), (lambda x: "too small for us", "too small for us")]:
        mine = qkv.pattern("mine", "(mul ?x (sigmoid ?x))", "(silu ?x)", guard)
        report, _ = rewritten(program, mine, phases=["fuse"])
        assert not report["firings"] and report["refused"] == []  # not in its phase
        report, _ = rewritten(program, mine, builtin_rules=False)
        assert not report["firings"]
        assert [(r["rule"], r["node"]) for r in report["refused"]] == [("mine", "mul")]
        assert reason in report["refused"][0]["reason"]
    torch.export.save(program, tmp_path / "m.pt2")
    (tmp_path / "my.rules").write_text("(rule mine (mul ?x (sigmoid ?x)) (silu ?x) (rank ?x 4))")
    said = subprocess.run([QKV, "rewrite", tmp_path / "m.pt2", "--rules", tmp_path / "my.rules", "--no-builtin-rules",
                           "--why-not"],
                          capture_output=True, text=True)
    assert "refused: rule 'mine' at 'mul': 'x' has 2 axes, expected 4" in said.stdout, said
    found = json.loads(subprocess.run([QKV, "rewrite", tmp_path / "m.pt2", "--rules", tmp_path / "my.rules", "--json",
                                       "--no-builtin-rules"], capture_output=True, text=True).stdout)
    assert [r["rule"] for r in found["refused"]] == ["mine"]


def broken(x):
    raise ValueError("no such luck")


@pytest.mark.parametrize("guards, graft, said", [
    ([broken], "(silu ?x)", "rule 'mine': its guard broken raised ValueError: no such luck"),
    ([], broken, "rule 'mine': its graft broken raised ValueError: no such luck"),
    ([lambda x: None], "(silu ?x)", "a guard returned None: expected True, False, or a text"),
    ([lambda x: x.nothing], "(silu ?x)", "AttributeError"),
    ([lambda x: x.inputs["frob"]], "(silu ?x)", "KeyError"),
    ([lambda x: float(x) > 1], "(silu ?x)", "'x' is not a known number"),
    ([], lambda x: object(), "is not part of a tree"),
])
def test_functions_that_raise(guards, graft, said):
    program = exported(lambda self, x: (x.sigmoid() * x) @ (x.exp() + x.exp().tanh()), R(4, 4))
    mine = qkv.pattern("mine", "(mul ?x (sigmoid ?x))", graft, *guards)
    after = qkv.pattern("after", "(add (= ?y (shared (exp ?x))) (tanh ?y))", ("add", ("tanh", ("exp", "?x")), "?y"),
                        kind="reorder")
    with pytest.warns(RuntimeWarning, match="the rule did not fire there, and rewriting went on") as caught:
        report, _ = rewritten(program, mine, after, builtin_rules=False)
    assert said in str(caught[0].message)
    assert fired(report) == ["after"] and report["refused"][0]["rule"] == "mine"
    assert "it raised" in report["refused"][0]["reason"]


@pytest.mark.parametrize("graft, reason", [
    (lambda x: ("cat", [x, x]), "the result would have sizes"),
    (lambda x: ("frob", x), "no op of the plain form is called 'frob'"),
    (lambda x: "(silu ?x)", "path 'x': expected an argument from 0 to 0"),
    (lambda x: ("silu", x, 3), "takes 1 arguments by position"),
    (lambda x: 5, "the graft is not a tensor"),
])
def test_grafts_that_cannot_be(graft, reason):
    program = exported(lambda self, x: x.sigmoid() * x, R(4, 4))
    report, _ = rewritten(program, qkv.pattern("mine", "(mul ?x (sigmoid ?x))", graft), builtin_rules=False)
    assert not report["firings"] and reason in report["refused"][0]["reason"], report["refused"]


def test_a_wrong_rule_is_found_by_proof():
    program = exported(lambda self, x: x.sigmoid() * x, R(4, 4))
    wrong = qkv.pattern("wrong", "(mul ?x (sigmoid ?x))", lambda x: ("gelu", x))
    with pytest.raises(qkv.Error, match="rule 'wrong' at 'mul'.* differs") as e:
        qkv.Model(program).rewrite(rules=[wrong], prove=True, builtin_rules=False)
    assert e.value.code == 1


def test_wrong_patterns():
    program = exported(lambda self, x: x.sigmoid() * x, R(4, 4))
    for call, message in [
            (lambda: qkv.pattern("a b", "(neg ?x)", "?x"), "not a rule's name"),
            (lambda: qkv.pattern("a", "(neg ?x)", "?x", kind="maybe"), "kind 'maybe': expected rule, derive"),
            (lambda: qkv.pattern("a", "(neg ?x)", "?x", phase="early"), "phase 'early'"),
            (lambda: qkv.Model(program).rewrite(rules=[qkv.pattern("a", "(frob ?x)", "?x")]), "rule 'a': no op"),
            (lambda: qkv.Model(program).rewrite(rules=[qkv.pattern("a", "(neg ?x)", "?x", lambda y: True)]),
             "rule 'a': \\?y is not captured by the pattern")]:
        with pytest.raises(qkv.Error, match=message):
            call()
    with pytest.raises(TypeError, match="is not part of a tree"):
        qkv.pattern("a", ("neg", object()), "?x")


def twice(x):
    return ("mul", x, 2)


def test_a_model_goes_to_another_process_with_its_patterns(tmp_path):
    import pickle

    program = exported(lambda self, x: x + x, R(4, 4))
    torch.export.save(program, tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    model.rewrite(rules=[qkv.pattern("twice", "(add ?x ?x)", twice, kind="reorder")])
    assert "mul" in model.graph_text() and pickle.loads(pickle.dumps(model)).graph_text() == model.graph_text()
