"""Outputs carry the names of the module's: keys of dicts, fields of dataclasses, named tuples and ModelOutputs.
output_0 and the position name them, too."""
import collections
import dataclasses
import json
import os
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402

QKV = os.environ.get("QKV", os.path.join(os.path.dirname(__file__), "..", "..", "build", "qkv"))


@dataclasses.dataclass
class Moments:
    mean: torch.Tensor
    spread: torch.Tensor


Pair = collections.namedtuple("Pair", "loss logits")
torch.export.register_dataclass(Moments, serialized_type_name="test_output_names.Moments")
torch.utils._pytree._register_namedtuple(Pair, serialized_type_name="test_output_names.Pair")


class Named(torch.nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make, self.weight = make, torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.make(x * self.weight)


MODULES = {
    "dict": (lambda x: {"logits": x + 1, "hidden": (x * 2, [x * 3, 5]), "none": None},
             ["logits", "hidden.0", "hidden.1.0", "hidden.1.1"]),
    "dataclass": (lambda x: Moments(x + 1, x * 2), ["mean", "spread"]),
    "namedtuple": (lambda x: Pair(x.sum(), collections.OrderedDict(p=x * 2, q=x * 3)),
                   ["loss", "logits.p", "logits.q"]),
    "tuple": (lambda x: (x + 1, {"a": x * 2}), ["output_0", "output_1"]),
    "tensor": (lambda x: x + 1, ["output_0"]),
    "misleading": (lambda x: {"output_1": x + 1, "1": x * 2, "a": {"b": x * 3}, "a.b": x * 4},
                   ["output_0", "output_1", "a.b", "output_3"]),
}


def exported(tmp_path, kind):
    program, path = torch.export.export(Named(MODULES[kind][0]), (torch.ones(3),)), str(tmp_path / f"{kind}.pt2")
    torch.export.save(program, path)
    return path


@pytest.mark.parametrize("kind", MODULES)
def test_labels(tmp_path, kind):
    path, names, x = exported(tmp_path, kind), MODULES[kind][1], np.float32([1, 2, 3])
    expected = [np.asarray(t) for t in torch.utils._pytree.tree_leaves(MODULES[kind][0](torch.from_numpy(x)))
                if t is not None]
    model = qkv.Model(path)
    model.save(tmp_path / "again.pt2")
    model.pack(tmp_path / "m.qkv")
    model.rewrite()
    for m in (model, qkv.Model(tmp_path / "again.pt2"), qkv.Model(tmp_path / "m.qkv")):
        results = m.run([x])
        assert list(results) == m.outputs == names
        for i, name in enumerate(names):
            assert np.array_equal(results[name], expected[i])
            assert results[f"output_{i}"] is results[name]
    assert [o["name"] for o in model.describe()["outputs"]] == [f"output_{i}" for i in range(len(names))]


def test_numbers(tmp_path):
    """Numbers among the results are tensors of rank 0; a .pt2 that is written has the numbers again."""
    class Module(torch.nn.Module):
        def forward(self, x, k):
            n = x.shape[0]
            return {"n": n, "y": x * 2, "even": 2 * n + 1, "half": 0.5, "yes": True, "none": None,
                    "sum": k.sum().item(), "seven": 7}

    x, k = torch.ones(3, 2), torch.tensor([4, 5])
    path, again = tmp_path / "m.pt2", tmp_path / "again.pt2"
    torch.export.save(torch.export.export(Module(), (x, k), dynamic_shapes=({0: torch.export.Dim("b")}, {})), path)
    model = qkv.Model(path)
    model.save(again)
    model.pack(tmp_path / "m.qkv")
    model.save_onnx(tmp_path / "m.onnx")
    x = torch.ones(5, 2)
    expected = {"n": 5, "y": x * 2, "even": 11, "half": 0.5, "yes": True, "sum": 9, "seven": 7}
    for m in (model, qkv.Model(path, optimize=False), qkv.Model(again), qkv.Model(tmp_path / "m.qkv")):
        results = m.run([x, k])
        assert m.outputs == list(expected)
        for name, value in expected.items():
            assert np.array_equal(results[name], value), name
        assert [results[n].dtype.name for n in ("n", "half", "yes", "sum")] == ["int64", "float64", "bool", "int64"]
        assert results["n"].shape == ()
    loaded = torch.export.load(again).module()(x, k)
    assert loaded | {"y": 0} == expected | {"y": 0, "none": None}
    assert type(loaded["yes"]) is bool and type(loaded["half"]) is float and type(loaded["n"]) is int
    assert not any(n.target == torch.ops.aten.full.default for n in torch.export.load(again).graph.nodes)
    onnxruntime = pytest.importorskip("onnxruntime")
    given = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x.numpy(), "k": k.numpy()})
    assert [np.asarray(v).tolist() for v in given] == [np.asarray(v).tolist() for v in expected.values()]


def test_everywhere(tmp_path):
    """The command's files and tolerances, parts, gradients, training and batches know both names."""
    path, x = exported(tmp_path, "namedtuple"), np.float32([1, 2, 3])
    model = qkv.Model(path)
    np.savez(tmp_path / "in.npz", x=x)
    results = model.run([x])
    for name in ("logits.p", "output_1"):
        np.savez(tmp_path / "out.npz", **{name: results[1] + 1e-3})
        command = [QKV, "verify", path, "-i", str(tmp_path / "in.npz"), "-e", str(tmp_path / "out.npz")]
        assert subprocess.run(command, capture_output=True).returncode == 1
        for tolerance in ("logits.p:0.01", "output_1:0.01"):
            r = subprocess.run([*command, "--atol", tolerance], capture_output=True, text=True)
            assert r.returncode == 0, r.stderr
        assert np.array_equal(model.extract(end=name).run([x])[0], results[1])
        batch = qkv.BatchPredictor(path, outputs={name: "y"})
        assert batch._opened().outputs[name]["shape"] == [3]
    r = subprocess.run([*command, "--atol", "logits:1"], capture_output=True, text=True)
    assert r.returncode == 2 and "the model has no output 'logits'" in r.stderr
    for loss in ("loss", "output_0"):
        joint = model.joint(loss)
        assert joint.outputs[:3] == MODULES["namedtuple"][1]
        assert np.array_equal(joint.run([x])["grad.weight"], x)
    shown = subprocess.run([QKV, "inspect", path], capture_output=True, text=True).stdout
    assert "label" in shown and "logits.q" in shown
    r = subprocess.run([QKV, "run", path, "-i", str(tmp_path / "in.npz"), "--json"], capture_output=True, text=True)
    assert [o["name"] for o in json.loads(r.stdout)["outputs"]] == ["output_0", "output_1", "output_2"]


def test_model_output(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.DistilBertConfig(vocab_size=50, dim=16, hidden_dim=32, n_heads=2, n_layers=1)
    module, ids = transformers.DistilBertForSequenceClassification(config).eval(), torch.ones(2, 6, dtype=torch.long)
    program = torch.export.export(module, (ids,), {"output_hidden_states": True})
    torch.export.save(program, tmp_path / "m.pt2")
    out = qkv.Model(tmp_path / "m.pt2")(input_ids=ids)
    assert out.names == ("logits", "hidden_states.0", "hidden_states.1")
    assert np.abs(out["logits"] - module(ids).logits.detach().numpy()).max() < 1e-5
