"""qkv joint --device: attention and its gradient as PyTorch's ops for a GPU, checked by FakeTensor on that device."""
import json
import operator
import os
import pathlib
import subprocess

import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: E402

QKV = os.environ.get("QKV", str(pathlib.Path(__file__).resolve().parents[2] / "build" / "qkv"))
F = nn.functional


class Attend(nn.Module):
    """One attention between two linear layers; `kind` says which."""

    def __init__(self, kind, heads=4, kv=4, size=16, dtype=torch.float32):
        super().__init__()
        self.kind, self.heads, self.kv, self.size = kind, heads, kv, size
        self.q = nn.Linear(24, heads * size, dtype=dtype)
        self.k = nn.Linear(24, kv * size, dtype=dtype)
        self.v = nn.Linear(24, kv * size, dtype=dtype)
        self.o = nn.Linear(heads * size, 24, dtype=dtype)
        if "bias" in kind:
            self.bias = nn.Parameter(torch.randn(heads, 12, 12, dtype=dtype))

    def forward(self, x, mask=None):
        def split(y, n):
            return y.unflatten(-1, (n, self.size)).transpose(1, 2)

        q, k, v = split(self.q(x), self.heads), split(self.k(x), self.kv), split(self.v(x), self.kv)
        m = mask[:, None, None] if "padding" in self.kind else self.bias[None] if "bias" in self.kind else None
        y = F.scaled_dot_product_attention(q, k, v, m, is_causal="causal" in self.kind,
                                           enable_gqa=self.heads != self.kv)
        return self.o(y.transpose(1, 2).flatten(2)).float().square().mean()


def exported(module, static=False, seq=12):
    x = torch.randn(3, seq, 24, generator=torch.Generator().manual_seed(1), dtype=module.q.weight.dtype)
    inputs = (x,)
    if "padding" in module.kind:
        inputs += (torch.arange(seq) < torch.tensor([seq, 5, 7])[:, None],)
    n, s = Dim("n", min=2, max=64), Dim("s", min=2, max=512)
    shapes = [{0: n} if static or "bias" in module.kind else {0: n, 1: s}] * len(inputs)
    return torch.export.export(module, inputs, dynamic_shapes=None if static else tuple(shapes))


def fake(program, device="cuda"):
    """Runs the program's graph on fake tensors of a device, node by node; what the file says of each value, and
    of the strides of what attention reads and gives, is what PyTorch's own kernels would give."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    values, seen = {}, {}
    with mode:
        def like(v):
            made = torch.empty_strided([int(d) for d in v.shape], [int(d) for d in v.stride()], dtype=v.dtype,
                                       device=device)
            return made

        for node in program.graph.nodes:
            if node.op == "placeholder":
                v = node.meta["val"]
                values[node] = like(v) if isinstance(v, torch.Tensor) else v
            elif node.op == "call_function":
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                if "device" in kwargs and kwargs["device"] is not None:
                    kwargs = {**kwargs, "device": device}
                values[node] = node.target(*args, **kwargs)
                said, got = node.meta.get("val"), values[node]
                if isinstance(said, torch.Tensor) and isinstance(got, FakeTensor):
                    assert got.dtype == said.dtype, node
                    assert [int(d) for d in got.shape] == [int(d) for d in said.shape], node
                    near = [*node.users, *node.all_input_nodes]
                    if any("scaled_dot_product" in str(n.target) for n in near):
                        assert [int(d) for d in got.stride()] == [int(d) for d in said.stride()], node
                if "scaled_dot_product" in str(node.target):
                    seen[str(node.target)] = node
                if node.target is operator.getitem and "scaled_dot_product" in str(node.args[0].target) \
                        and isinstance(got, FakeTensor):
                    assert got.device.type in (device, "meta"), node
    return seen


CASES = [
    # kind, heads, kv, size, dtype, device, kernel
    ("plain", 4, 4, 16, torch.float16, "cuda-sm80", "flash"),
    ("causal", 4, 4, 16, torch.bfloat16, "cuda-sm80", "flash"),
    ("plain", 4, 2, 16, torch.float16, "cuda-sm80", "flash"),
    ("plain", 4, 4, 12, torch.float16, "cuda-sm80", "flash"),  # heads are padded to 16
    ("plain", 4, 4, 16, torch.float32, "cuda-sm80", "efficient"),
    ("causal", 4, 4, 16, torch.float32, "cuda-sm80", "efficient"),
    ("padding", 4, 4, 16, torch.float16, "cuda-sm80", "efficient"),
    ("padding", 4, 4, 16, torch.float32, "cuda-sm90", "efficient"),
    ("bias", 4, 4, 16, torch.float32, "cuda-sm80", "efficient"),
    ("plain", 4, 2, 16, torch.float32, "cuda-sm80", "efficient"),
    ("plain", 4, 4, 10, torch.float32, "cuda-sm80", "math"),
    ("padding", 4, 4, 16, torch.bfloat16, "cuda-sm90", "cudnn"),
    ("causal", 4, 2, 16, torch.float16, "cuda-sm90", "cudnn"),
    ("plain", 4, 4, 16, torch.float32, "cpu", "flash"),
]


@pytest.mark.turns
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("kind, heads, kv, size, dtype, device, kernel", CASES,
                         ids=[f"{c[0]}-{c[1]}-{c[2]}-{c[3]}-{str(c[4])[6:]}-{c[5]}" for c in CASES])
def test_ops_are_those_of_the_device(tmp_path, kind, heads, kv, size, dtype, device, kernel, static):
    torch.manual_seed(0)
    module = Attend(kind, heads, kv, size, dtype)
    program = exported(module, static)
    source = qkv.Model(program)
    joint = source.joint(device=device, dims={"seq": 12, "batch": 3} if kernel == "cudnn" and not static else None)
    chosen = joint.joint_report["attentions"]
    assert [a["backend"] for a in chosen] == [kernel], chosen
    assert joint.joint_report["device"] == device
    joint.save(tmp_path / "joint.pt2")
    loaded = torch.export.load(tmp_path / "joint.pt2")
    seen = fake(loaded, "cpu" if device == "cpu" else "cuda")
    base = {"flash": "flash_attention_for_cpu" if device == "cpu" else "flash_attention", "efficient":
            "efficient_attention", "cudnn": "cudnn_attention"}.get(kernel)
    if base:
        assert set(seen) == {f"aten._scaled_dot_product_{base}.default",
                             f"aten._scaled_dot_product_{base}_backward.default"}
    else:
        assert not [t for t in seen if "backward" in t]
    # values: the joint model here, and the file read again, against autograd
    inputs = list(program.example_inputs[0])
    loss = module(*inputs)
    loss.backward()
    limit = 1e-4 if dtype == torch.float32 else 0.05
    for model in (joint, qkv.Model(tmp_path / "joint.pt2")):
        got = {k: torch.from_dlpack(t).float() for k, t in model.run_dlpack(inputs).items()}
        assert abs(float(got["output_0"]) - float(loss)) <= limit * abs(float(loss))
        for name, p in module.named_parameters():
            want = p.grad.float()
            worst = float((got[f"grad.{name}"] - want).abs().max() / want.abs().max().clamp(min=1e-3))
            assert worst < limit, (name, worst)


def test_conditions_on_sizes(tmp_path):
    """cuDNN takes batches of up to 65535: without a range flash is the kernel for all sizes; a batch that is given
    decides, and the file then refuses others."""
    x = torch.randn(3, 12, 24, dtype=torch.float16)
    program = torch.export.export(Attend("causal", dtype=torch.float16), (x,),
                                  dynamic_shapes=({0: Dim("n", min=2), 1: Dim("s", min=2, max=512)},))
    source = qkv.Model(program)
    found = source.joint(device="cuda-sm90").joint_report["attentions"][0]
    assert (found["backend"], found["assumes"], found["better"], found["rule"]) == ("flash", None, "cudnn", "many")
    decided = source.joint(device="cuda-sm90", dims={"batch": 3})
    found = decided.joint_report["attentions"][0]
    assert found["backend"] == "cudnn" and found["assumes"].endswith("<= 65535") and found["rule"] is None
    decided.save(tmp_path / "j.pt2")
    ranges = torch.export.load(tmp_path / "j.pt2").range_constraints.values()
    assert any(r.upper <= 65535 for r in ranges), ranges
    assert "device" not in source.joint().joint_report


def test_the_command(tmp_path):
    torch.export.save(exported(Attend("padding")), tmp_path / "m.pt2")

    def run(*args):
        return subprocess.run([QKV, "joint", tmp_path / "m.pt2", "-o", tmp_path / "j.pt2", *args], capture_output=True,
                              text=True)

    said = run("--device", "cuda-sm80")
    assert said.returncode == 0 and "attention sdpa_lse: efficient; flash asks: " in said.stdout, said
    assert "(no_mask)" in said.stdout or "(dtype)" in said.stdout
    found = json.loads(run("--device", "cuda-sm80", "--json").stdout)
    assert found["attentions"][0]["backend"] == "efficient" and found["attentions"][0]["better"] == "flash"
    assert run("--device", "gpu").returncode == 2 and run("--cudnn", "9.20.0").returncode == 2
