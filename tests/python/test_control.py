"""Control flow of torch.export: what is written loads in torch and ONNX Runtime with the same values, rules look
inside, and gradients are autograd's. Values of runs: tests/models/zoo_control.py."""
import json
import sys
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
import qkv  # noqa: E402
import torch.utils._pytree as pytree  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))
import zoo  # noqa: E402
import zoo_control  # noqa: E402, F401

NAMES = [n for n in zoo.MODELS if zoo.MODELS[n].build.__module__ == "zoo_control"]
# What PyTorch has no backward of, or a wrong one: integers, a mask, and its own associative_scan.
GRADS = ["cond_by_data", "cond_by_size", "cond_attention", "while_counter", "scan_rnn", "scan_attention",
    "map_over_batch", "control_nested"]


class Summed(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        parts = tensors(self.model(*inputs))
        return sum(x.float().pow(2).sum() for x in parts if x.is_floating_point())


def tensors(x):
    return [t for t in pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def exported(module, feeds, dims, path):
    """By keywords; of a sum by position, as its forward takes them."""
    inputs, shapes = ((), feeds[0]), dims
    if isinstance(module, Summed):
        inputs, shapes = (tuple(feeds[0].values()), {}), (tuple(dims.values()),)
    program = torch.export.export(module, *inputs, dynamic_shapes=shapes)
    torch.export.save(program, path)
    return program


def equal(got, want, what, tolerance=1e-5):
    assert len(got) == len(want), what
    for g, w in zip(got, want):
        g, w = np.asarray(g.detach() if isinstance(g, torch.Tensor) else g), w.detach().numpy()
        assert g.shape == w.shape and g.dtype == w.dtype, (what, g.shape, w.shape)
        np.testing.assert_allclose(g, w, atol=tolerance * max(1, np.abs(w).max(initial=0)), err_msg=what)


@pytest.mark.turns
@pytest.mark.parametrize("name", NAMES)
def test_round_trips(name, tmp_path):
    module, feeds, dims = zoo.MODELS[name].build()
    first, pt2, onnx, back = (str(tmp_path / x) for x in ("a.pt2", "b.pt2", "c.onnx", "d.pt2"))
    program = exported(module, feeds, dims, first)
    mine = qkv.Model(first)
    mine.save(pt2)
    mine.save_onnx(onnx)
    qkv.Model(onnx).save(back)
    again, session = torch.export.load(pt2), ort.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    from_onnx = torch.export.load(back)
    for feed in feeds:
        want = tensors(program.module()(**feed))
        equal(list(mine.run(feed).values()), want, "run")
        equal(list(qkv.Model(pt2).run(feed).values()), want, "read back")
        equal(tensors(again.module()(**feed)), want, "torch")
        arrays = {i.name: feed[i.name].numpy() for i in session.get_inputs()}
        equal(session.run(None, arrays), want, "ONNX Runtime")
        equal(list(qkv.Model(onnx).run(feed).values()), want, "ONNX read back")
        equal(tensors(from_onnx.module()(*feed.values())), want, "ONNX to .pt2")


@pytest.mark.turns
@pytest.mark.parametrize("name", ["cond_attention", "scan_attention"])
def test_attention_inside_is_recognised(name, tmp_path):
    module, feeds, dims = zoo.MODELS[name].build()
    path, out = str(tmp_path / "a.pt2"), str(tmp_path / "b.pt2")
    program = exported(module, feeds, dims, path)
    model = qkv.Model(path)
    report = model.rewrite(prove=True)
    assert [f["rule"] for f in report["firings"]] == ["attention"] and not report["left"], report
    assert "softmax" not in model.graph_text()
    model.save(out)
    for feed in feeds:
        equal(tensors(torch.export.load(out).module()(**feed)), tensors(program.module()(**feed)), name)


class Stacked(torch.nn.Module):
    """Nine weights in a body, of which the rules stack three and then the biases of three."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(8) + 0.5)
        self.q, self.k, self.v, self.o = (torch.nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        def turn(h, x):
            y = self.w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))
            q, k, v = (f(x[None]).view(1, 4, 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
            h = y + self.o(((q @ k.mT * 0.5).softmax(-1) @ v).transpose(1, 2).reshape(4, 8))
            return h, h * 2
        return zoo_control.scan(turn, torch.ones(4, 8), x)


def test_weights_that_rules_add_to_a_body(tmp_path):
    """They stand beside those that were there, whose names are what they were."""
    path, made = str(tmp_path / "a.pt2"), str(tmp_path / "b.pt2")
    model, x = Stacked().eval(), torch.randn(3, 4, 8)
    torch.export.save(torch.export.export(model, (x,)), path)
    rewritten = qkv.Model(path)
    rewritten.rewrite()
    rewritten.save(made)
    again = torch.export.load(made)
    assert set(again.state_dict) == {*model.state_dict(), "qkv_packed.weight", "qkv_packed.bias"}
    equal(tensors(again.module()(x)), tensors(model(x)), "rewritten")


@pytest.mark.turns
@pytest.mark.parametrize("name", GRADS)
def test_gradients(name, tmp_path):
    module, feeds, dims = zoo.MODELS[name].build()
    path = str(tmp_path / "a.pt2")
    program = exported(Summed(module), feeds, dims, path)
    joint = qkv.joint(path, inputs=["*"])
    for feed in feeds:
        reference = program.module()
        reference.zero_grad(set_to_none=True)  # its parameters are the program's
        leaves = {k: v.clone().requires_grad_(v.is_floating_point()) for k, v in feed.items()}
        reference(*leaves.values()).backward()
        want = {"grad." + k: p.grad for k, p in reference.named_parameters()}
        want |= {f"grad.inputs_{i}": v.grad for i, v in enumerate(leaves.values()) if v.is_floating_point()}
        if name == "while_counter" and feed["limit"] == 0:  # PyTorch goes back over a turn that was not run
            want = {key: torch.zeros_like(grad) for key, grad in want.items()} | {"grad.inputs_0": 2 * feed["x"]}
        got = joint.run(list(feed.values()))
        for key, grad in want.items():
            if key not in got:  # nothing of it reaches the sum
                assert grad is None, key
                continue
            grad = torch.zeros_like(torch.as_tensor(np.asarray(got[key]))) if grad is None else grad
            equal([got[key]], [grad], key, 2e-5)
        assert {k for k in got if k.startswith("grad.")} <= set(want)


@pytest.mark.turns
@pytest.mark.parametrize("name", ["cond_by_data", "scan_rnn", "map_over_batch"])
def test_joint_graphs_are_written(name, tmp_path):
    module, feeds, dims = zoo.MODELS[name].build()
    path, out, onnx = (str(tmp_path / x) for x in ("a.pt2", "b.pt2", "c.onnx"))
    exported(Summed(module), feeds, dims, path)
    joint = qkv.joint(path)
    joint.save(out)
    joint.save_onnx(onnx)
    session = ort.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    for feed in feeds:
        inputs = list(feed.values())
        want = [torch.as_tensor(np.asarray(x)) for x in joint.run(inputs).values()]
        equal(tensors(torch.export.load(out).module()(*inputs)), want, "torch", 2e-5)
        arrays = {i.name: inputs[int(i.name.rsplit("_", 1)[1])].numpy() for i in session.get_inputs()}
        equal(session.run(None, arrays), want, "ONNX", 2e-5)


def test_a_loop_that_pytorch_has_not(tmp_path):
    module, feeds, dims = zoo.MODELS["while_counter"].build()
    exported(Summed(module), feeds, dims, str(tmp_path / "a.pt2"))
    with pytest.raises(qkv.Error, match="stacks results of its turns, and whose count depends on data"):
        qkv.joint(str(tmp_path / "a.pt2")).save(str(tmp_path / "b.pt2"))


# ------------------------------------------------------------------ files that say what cannot be
def edited(source, path, change):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith("models/model.json"):
                program = json.loads(data)
                change(next(n for n in program["graph_module"]["graph"]["nodes"] if "higher_order" in n["target"]))
                data = json.dumps(program).encode()
            new.writestr(entry.filename, data)
    return path


def graph(node, i):
    return node["inputs"][i]["arg"]["as_graph"]["graph"]


def drop_result(node): graph(node, 2)["outputs"] = []
def drop_graph(node): node["inputs"][2]["arg"] = {"as_none": True}
def drop_operand(node): node["inputs"][-1]["arg"]["as_tensors"].pop()
def name_nothing(node): node["inputs"][-1]["arg"]["as_tensors"][0]["name"] = "nothing"
def no_list(node): node["inputs"][-1]["arg"] = {"as_int": 3}
def condition(node): node["inputs"][0]["arg"] = {"as_tensor": {"name": "x"}}
def more_results(node): node["outputs"].append({"as_tensor": {"name": "more"}})
def number(node): node["inputs"][0]["arg"] = {"as_float": 1.5}


@pytest.mark.parametrize("change, message", [
    (drop_result, "the branches give 1 and 0 results"),
    (drop_graph, "argument 2 is not a graph"),
    (drop_operand, "takes 6 operands, 5 are given"),
    (name_nothing, "'nothing' is used but not defined before"),
    (no_list, "found 'as_int', expected a list"),
    (condition, "the condition is f32, expected bool"),
    (number, "argument 0"),
    (more_results, "names 2 results, its graphs give 1"),
])
def test_hostile_branches(change, message, tmp_path):
    module, feeds, dims = zoo.MODELS["cond_by_data"].build()
    exported(module, feeds, dims, str(tmp_path / "a.pt2"))
    with pytest.raises(qkv.Error, match=message):
        qkv.Model(edited(str(tmp_path / "a.pt2"), str(tmp_path / "b.pt2"), change))


def fewer_results(node): graph(node, 0)["outputs"] = []
def no_sequences(node): node["inputs"][2]["arg"]["as_tensors"] = []
def short_of_one(node): node["inputs"][1]["arg"]["as_tensors"] = []


@pytest.mark.parametrize("change, message", [
    (fewer_results, "gives 0 results for 1 carried values"),
    (no_sequences, "there is no sequence to go over"),
    (short_of_one, "operands"),
])
def test_hostile_loops(change, message, tmp_path):
    module, feeds, dims = zoo.MODELS["scan_attention"].build()
    exported(module, feeds, dims, str(tmp_path / "a.pt2"))
    with pytest.raises(qkv.Error, match=message):
        qkv.Model(edited(str(tmp_path / "a.pt2"), str(tmp_path / "b.pt2"), change))


class Beside(torch.nn.Module):
    """A rule looks from the clamp past what is computed of the branch to what the branch gives."""

    def forward(self, x):
        y = torch.cond(x.shape[0] > 3, lambda a: a.relu(), lambda a: a.sin() + 1, (x,))
        least = torch.nn.functional.cross_entropy(y, torch.arange(y.shape[0]) % y.shape[1])
        return torch.clamp(y, least, least + 1)


def test_proofs_beside_a_branch(tmp_path):
    program = torch.export.export(Beside(), (torch.randn(5, 4),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    torch.export.save(program, tmp_path / "a.pt2")
    firings = qkv.Model(str(tmp_path / "a.pt2")).rewrite(prove=True)["firings"]
    assert firings and not [f for f in firings if f.get("not_proven")], firings
