"""torch.compile(model, backend="qkv"), and qkv.Model of an ExportedProgram: equal to eager, forward and training."""
import os
import subprocess
import sys
import textwrap
import tomllib

import pytest

torch = pytest.importorskip("torch")
from parts import R, fn  # noqa: E402
from small import MODELS, Attention, Gated, called, close, convolutions, tensors  # noqa: E402
from torch import nn  # noqa: E402

import qkv  # noqa: E402
import qkv.dynamo  # noqa: E402
from qkv._compiler import compile_with  # noqa: E402

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")


def compiled(model, options=None, **how):
    """The compiled model, and what was compiled."""
    torch._dynamo.reset()
    made = []
    return torch.compile(model, backend=lambda gm, inputs: compile_with(gm, inputs, options, made), **how), made


@pytest.mark.turns
@pytest.mark.parametrize("make", MODELS)
def test_forward_equals_eager(make):
    model, inputs = make()
    model.eval()
    run, made = compiled(model)
    with torch.no_grad():
        close(called(run, inputs), called(model, inputs))
    assert sum(c.in_c for c in made) == sum(c.ops for c in made) > 1, "\n".join(map(str, made))
    assert sum(c.attentions for c in made) >= (1 if make is convolutions else 2)


@pytest.mark.turns
@pytest.mark.parametrize("make", MODELS)
def test_training_equals_eager(make):
    torch.manual_seed(0)
    model, inputs = make()
    model.train()
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    run, made = compiled(model)
    wanted = [p for p in model.parameters() if p.requires_grad]
    found = []
    for f in (model, run):
        torch.manual_seed(3)
        out = called(f, inputs)
        loss = sum((x * R(*x.shape)).sum() for x in out if x.requires_grad)
        grads = torch.autograd.grad(loss, wanted, allow_unused=True)
        assert sum(g is not None for g in grads) > 3
        found.append([*out, *(g for g in grads if g is not None)])
    close(found[1], found[0], 1e-4)
    assert {c.kind for c in made} == {"forward", "backward"}
    assert sum(c.in_c for c in made) > 0.8 * sum(c.ops for c in made)


@pytest.mark.parametrize("options", [dict(norm_first=True), dict(norm_first=False, activation="gelu")])
@pytest.mark.parametrize("masked", ["nothing", "padding", "causal"])
def test_fast_path_of_encoder_layers(options, masked):
    """PyTorch's fused op of inference is taken apart, with each kind of mask."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, **options).eval()
    pad = torch.arange(5) >= torch.tensor([[5], [3]])
    how = {"nothing": {}, "padding": dict(src_key_padding_mask=pad),
           "causal": dict(src_mask=torch.ones(5, 5, dtype=torch.bool).triu(1))}[masked]
    run, made = compiled(model)
    with torch.no_grad():
        got, expected = run(R(2, 5, 32), **how), model(R(2, 5, 32), **how)
    keep = ~pad if masked == "padding" else slice(None)
    close([got[keep]], [expected[keep]])
    assert all(c.in_c == c.ops and not c.reasons for c in made)


@pytest.mark.parametrize("weights", [False, True])
def test_fast_path_of_attention(weights):
    model = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x, memory = R(2, 5, 32), R(2, 7, 32, seed=1)
    for q, k in ((x, x), (x, memory)):
        run, made = compiled(model)
        with torch.no_grad():
            got, expected = (tensors(f(q, k, k, need_weights=weights)) for f in (run, model))
        close(got, expected)
        assert all(c.in_c == c.ops for c in made)


@pytest.mark.turns
def test_sizes_stay_dynamic():
    model = Gated(16)
    run, made = compiled(model, dynamic=True)
    with torch.no_grad():
        for shape in ((2, 6, 16), (3, 9, 16), (5, 2, 16)):
            close([run(R(*shape))], [model(R(*shape))])
    assert len(made) == 1 and made[0].parts[0].model.symbols
    f = fn(lambda self, x, n: x.reshape(n, -1) * n)  # a number that is an argument
    run, made = compiled(f, dynamic=True)
    for n in (2, 3, 6):
        close([run(R(2, 6, 4), n)], [f(R(2, 6, 4), n)])
    assert sum(len(c.parts) for c in made) >= 1


@pytest.mark.turns
def test_training_with_dynamic_sizes():
    model = Gated(16).train()
    run, made = compiled(model, dynamic=True)
    for shape in ((2, 6, 16), (3, 9, 16)):
        found = [torch.autograd.grad(f(R(*shape)).sin().sum(), list(model.parameters())) for f in (model, run)]
        close(found[1], found[0], 1e-4)
    assert [c.kind for c in made] == ["forward", "backward"]


def test_steps_of_an_optimizer():
    """Parameters change between calls: they are inputs, never copies."""
    models = []
    for wrapped in (False, True):
        torch.manual_seed(0)
        model = Gated(16)
        run = compiled(model)[0] if wrapped else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            (run(R(2, 6, 16)) - R(2, 6, 16, seed=1)).square().mean().backward()
            optimizer.step()
        models.append([p.detach() for p in model.parameters()])
    close(models[1], models[0], 1e-4)


@torch.library.custom_op("qkv_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def test_an_unknown_op_runs_in_pytorch(caplog):
    model = fn(lambda self, x: self.b(twice(self.a(x))), a=Attention(16, 2), b=Attention(16, 2))
    run, made = compiled(model)
    with torch.no_grad():
        close([run(R(2, 5, 16))], [model(R(2, 5, 16))])
    assert len(made[0].parts) == 2 and made[0].in_c == made[0].ops - 1 and made[0].attentions == 2
    (reason, names), = made[0].reasons.items()
    assert "qkv_test.twice.default" in reason and "qkv.register_op" in reason and len(names) == 1


def test_random_ops_draw_from_pytorchs_generator():
    model = nn.Sequential(Attention(16, 2), nn.Dropout(0.4), Attention(16, 2)).train()
    run, made = compiled(model)
    found = []
    for f in (model, run):
        torch.manual_seed(5)
        found.append(f(R(2, 5, 16)))
    close(found[1], found[0])
    assert any("random generator" in reason for reason in made[0].reasons)


def test_buffers_are_written_and_results_keep_their_strides():
    model, x = nn.BatchNorm1d(4).train(), R(6, 4)
    other = nn.BatchNorm1d(4).train()
    close([compiled(model)[0](x)], [other(x)])
    close([model.running_mean, model.running_var], [other.running_mean, other.running_var])
    f = fn(lambda self, x: (x.sin().transpose(0, 1), x.t(), x.exp()[0]))
    got, expected = compiled(f)[0](x), f(x)
    assert [t.stride() for t in got] == [t.stride() for t in expected]
    assert got[1].data_ptr() == x.data_ptr()
    close(got, expected)


def test_results_that_look_at_one_tensor_share_it_in_training():
    """AOTAutograd makes them of that tensor, by the strides and offsets of what a backend returns."""
    model = fn(lambda self, x: self.views(self.a(x).unflatten(-1, (4, 4))), a=nn.Linear(16, 16))
    model.views = lambda y: (y[:, 1], y.mT, y.expand(2, *y.shape), y[..., 1:3].unbind(-1), y.diagonal(dim1=1, dim2=2))
    found = []
    for f in (model, compiled(model, dynamic=True)[0]):
        got = tensors(f(R(3, 16)))
        found.append([*got, *torch.autograd.grad(sum(x.sin().sum() for x in got), list(model.parameters()))])
    close(found[1], found[0])
    assert [t.stride() for t in found[1]] == [t.stride() for t in found[0]]
    assert len({t.untyped_storage().data_ptr() for t in found[1][:-2]}) == 1


def test_freeze_sees_what_changes():
    model = Gated(16)
    run, made = compiled(model, {"freeze": True})
    with torch.no_grad():
        close([run(R(2, 6, 16))], [model(R(2, 6, 16))])
        assert made[0].parts[0].model.inputs == [made[0].parts[0].model.inputs[0]]
        model.up.weight.mul_(2)
        close([run(R(2, 6, 16))], [model(R(2, 6, 16))])
        model.down.weight = nn.Parameter(R(16, 32))
        close([run(R(2, 6, 16))], [model(R(2, 6, 16))])


def test_what_a_call_fails_on_runs_in_pytorch(caplog):
    model = Gated(16)
    run, made = compiled(model)
    with torch.no_grad():
        run(R(2, 6, 16))
        made[0].parts[0].model.close()
        with caplog.at_level("WARNING", logger="qkv.dynamo"):
            close([run(R(2, 6, 16))], [model(R(2, 6, 16))])
    assert "runs in PyTorch this time: this model is closed" in caplog.text


def test_options_are_checked():
    for options, message in (({"thread": 1}, "expected compute, freeze, threads"),
                             ({"compute": "f8"}, "expected one of None, 'f32', 'bf16'")):
        run, _ = compiled(nn.Linear(2, 2), options)
        with pytest.raises(Exception, match=message):
            run(R(1, 2))


def test_explain_says_what_was_gained():
    torch._dynamo.reset()
    found = qkv.dynamo.explain(Gated(16), R(2, 6, 16), rounds=1)
    text = str(found)
    assert found.difference < 1e-5 and found.eager_ms > 0 and found.compiled_ms > 0
    assert "forward:" in text and "backward:" in text and "fused attentions" in text and "times as fast" in text


def test_an_exported_program_from_memory():
    model = Gated(16).eval()
    program = torch.export.export(model, (R(2, 6, 16),))
    loaded = qkv.Model(program)
    close([torch.from_dlpack(loaded.run_dlpack([R(2, 6, 16)])["output_0"])], [model(R(2, 6, 16)).detach()])
    assert set(loaded.weights()) == set(model.state_dict()) and loaded.path is None
    with pytest.raises(qkv.Error, match="or an ExportedProgram"):
        qkv.Model(model)


@pytest.mark.turns
def test_installed_packages_need_no_import(tmp_path):
    """The entry point of pyproject.toml, and TORCH_LOGS."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as f:
        points = tomllib.load(f)["project"]["entry-points"]["torch_dynamo_backends"]
    info = tmp_path / "qkv-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: qkv\nVersion: 0.0\n")
    lines = [f"{k} = {v}\n" for k, v in points.items()]
    (info / "entry_points.txt").write_text("[torch_dynamo_backends]\n" + "".join(lines))
    code = """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4))
        torch.compile(model, backend="qkv")(torch.ones(2, 4))
        import sys
        assert "qkv" in sys.modules
        import qkv.dynamo                               # registers nothing a second time
        torch._dynamo.reset()
        torch.compile(model, backend="qkv", options={"threads": 1})(torch.ones(2, 4))
    """
    path = os.pathsep.join([str(tmp_path), os.path.join(ROOT, "python")])
    said = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": path, "TORCH_LOGS": "qkv"})
    assert said.returncode == 0, said.stderr
    assert "ops in C" in said.stderr and "draws from PyTorch's random generator" in said.stderr


def test_a_part_that_torch_cannot_write_runs_in_pytorch(monkeypatch, caplog):
    def refuse(*_):
        raise AssertionError("expected something else")

    monkeypatch.setattr("qkv._parts.Program", refuse)
    model = Attention(16, 2)
    run, made = compiled(model)
    with torch.no_grad():
        close([run(R(2, 5, 16))], [model(R(2, 5, 16))])
    assert not made[0].parts and "expected something else" in " ".join(made[0].reasons)
    assert "cannot be written as a program" in caplog.text
