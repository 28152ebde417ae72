"""The Python package against PyTorch. test_model.py needs NumPy alone."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
import qkv  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from tolerance import tolerance  # noqa: E402

TOLERANCE = tolerance("TORCH")["f32"]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.mha = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x, mask):
        return self.mha(x, x, x, key_padding_mask=mask, need_weights=False)[0]


def example(b, s):
    mask = torch.zeros(b, s, dtype=torch.bool)
    mask[0, -1] = True
    return torch.randn(b, s, 16), mask


def shapes(lo=1):
    b, s = Dim("b", min=lo, max=8), Dim("s", min=2, max=64)
    return {"x": {0: b, 1: s}, "mask": {0: b, 1: s}}


def test_export_checks_several_sizes(tmp_path):
    report = qkv.export(Attention(), example(2, 5), dynamic_shapes=shapes(), path=tmp_path / "m.pt2")
    assert len(report.differences) == 3 and report.max_rel < TOLERANCE


def test_export_replaces_sizes_that_torch_specialises(tmp_path):
    report = qkv.export(Attention(), example(1, 5), dynamic_shapes=shapes(), path=tmp_path / "m.pt2")
    assert any("b = 1" in n for n in report.notes)
    assert report.differences[0][0]["b"] >= 2


def test_export_follows_sizes_left_to_torch(tmp_path):
    class Sum(nn.Module):
        def forward(self, a, b):
            return (a + b).reshape(a.shape[0], 2, -1).sum(1)

    auto, path = Dim.AUTO, tmp_path / "m.pt2"
    report = qkv.export(Sum(), (torch.randn(1, 8), torch.randn(1, 8)),
                        dynamic_shapes=({0: auto, 1: auto(min=2, max=20)}, {0: auto, 1: auto}), path=path)
    assert len(report.differences) == 3 and report.max_rel < TOLERANCE
    assert len({tuple(d[0].values()) for d in report.differences}) == 3
    assert all(d[0]["a.1"] == d[0]["b.1"] and d[0]["a.1"] % 2 == 0 for d in report.differences)
    report = qkv.export(nn.Linear(8, 3), (torch.randn(2, 8),), dynamic_shapes=({0: auto, 1: auto},), path=path)
    assert any("axis 1" in s and "constant 8" in s for s in report.narrowed)


def test_export_keeps_inputs_apart(tmp_path):
    class Sdpa(nn.Module):
        def forward(self, q, k, v):
            return nn.functional.scaled_dot_product_attention(q, k, v)

    x = torch.randn(2, 2, 5, 8)
    report = qkv.export(Sdpa(), (x, x, x), path=tmp_path / "m.pt2")
    assert sum("shares memory" in n for n in report.notes) == 2
    a, b, c = (torch.randn(2, 2, 5, 8) for _ in range(3))
    got = qkv.Model(tmp_path / "m.pt2").run([a, b, c])["output_0"]
    assert np.abs(got - Sdpa()(a, b, c).numpy()).max() < 1e-5


def test_archive_holds_no_pickle_and_no_paths(tmp_path):
    import zipfile

    qkv.export(Attention(), example(2, 5), dynamic_shapes=shapes(), path=tmp_path / "m.pt2")
    with zipfile.ZipFile(tmp_path / "m.pt2") as z:
        assert all(z.getinfo(n).file_size == 0 for n in z.namelist() if "sample_inputs" in n)
        assert b"stack_trace" not in z.read([n for n in z.namelist() if n.endswith("model.json")][0])
    assert torch.export.load(tmp_path / "m.pt2").module()(*example(3, 9)).shape == (3, 9, 16)


def test_dlpack_both_ways_and_bfloat16(tmp_path):
    class Half(nn.Module):
        def forward(self, x):
            return x * 2, x.float() + 1

    x = torch.randn(3, 4).bfloat16()
    qkv.export(Half(), (x,), path=tmp_path / "m.pt2")
    out = qkv.Model(tmp_path / "m.pt2").run_dlpack([x])
    assert torch.equal(torch.from_dlpack(out["output_0"]), x * 2)
    assert np.allclose(np.asarray(out["output_1"]), (x.float() + 1).numpy())


def test_dlpack_of_complex_results(tmp_path):
    x = torch.randn(3, 4, 2)

    class Complex(nn.Module):
        def forward(self, x):
            return torch.view_as_complex(x), torch.view_as_complex(x.double())

    qkv.export(Complex(), (x,), path=tmp_path / "m.pt2")
    out = qkv.Model(tmp_path / "m.pt2").run_dlpack([x])
    assert torch.equal(torch.from_dlpack(out["output_0"]), torch.view_as_complex(x))
    assert torch.equal(torch.from_dlpack(out["output_1"]), torch.view_as_complex(x.double()))


def test_strided_input_and_unknown_name(tmp_path):
    qkv.export(Attention(), example(2, 5), dynamic_shapes=shapes(), path=tmp_path / "m.pt2")
    m = qkv.Model(tmp_path / "m.pt2")
    x, mask = example(2, 5)
    turned = np.ascontiguousarray(x.numpy().transpose(0, 2, 1)).transpose(0, 2, 1)
    assert np.array_equal(m.run({"x": turned, "mask": mask})["output_0"], m.run({"x": x, "mask": mask})["output_0"])
    with pytest.raises(qkv.Error, match="no input is called 'y'") as e:
        m.run({"y": x})
    assert e.value.code == 2


def test_trace_names_every_node(tmp_path):
    from safetensors.numpy import load_file

    module, inputs = Attention(), example(2, 5)
    qkv.export(module, inputs, dynamic_shapes=shapes(), path=tmp_path / "m.pt2")
    n = qkv.trace(str(tmp_path / "m.pt2"), inputs, str(tmp_path / "t.safetensors"))
    nodes = load_file(tmp_path / "t.safetensors")
    assert n == len(nodes) > 10
    assert qkv.trace(module, inputs, str(tmp_path / "m.safetensors"), dynamic_shapes=shapes()) == n
    of_module = load_file(tmp_path / "m.safetensors")
    assert nodes.keys() == of_module.keys() and all(np.array_equal(nodes[k], of_module[k]) for k in nodes)


def test_trace_has_zeros_for_new_memory(tmp_path):
    from safetensors.numpy import load_file

    class Fresh(torch.nn.Module):
        def forward(self, x):
            return x.new_empty(2, 3).copy_(x)

    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # new memory is NaN
    try:
        qkv.trace(Fresh(), (torch.ones(2, 3),), str(tmp_path / "t.safetensors"))
    finally:
        torch.use_deterministic_algorithms(was)
    assert not load_file(tmp_path / "t.safetensors")["new_empty"].any()


def test_inference_session_and_pickling(tmp_path):
    import pickle

    qkv.export(Attention(), example(2, 5), dynamic_shapes=shapes(), path=tmp_path / "m.pt2")
    x, mask = example(4, 7)
    s = qkv.InferenceSession(tmp_path / "m.pt2")
    got = s.run(None, {"x": x.numpy(), "mask": mask.numpy()})[0]
    again = pickle.loads(pickle.dumps(qkv.Model(str(tmp_path / "m.pt2")))).run({"x": x, "mask": mask})["output_0"]
    assert np.array_equal(got, again)
