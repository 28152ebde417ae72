"""torch.compile(model, backend="qkv"), and qkv.Model of an ExportedProgram: equal to eager, forward and training."""
import os
import subprocess
import sys
import textwrap
import tomllib

import pytest
import torch
from parts import R, fn
from torch import nn
from torch.nn import functional as F

import qkv
import qkv.dynamo
from qkv._compiler import compile_with

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")


class Attention(nn.Module):
    """As models write it by hand: products, a mask, a softmax."""

    def __init__(self, width, heads, rotary=False):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if self.rotary:
            angle = torch.arange(n)[:, None] / 10 ** torch.arange(c // self.heads // 2)
            turn = torch.cat([angle, angle], -1)
            q, k = (t * turn.cos() + torch.cat([-t[..., t.shape[-1] // 2:], t[..., :t.shape[-1] // 2]], -1) * turn.sin()
                    for t in (q, k))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        scores = scores if mask is None else scores.masked_fill(~mask, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class Windows(nn.Module):
    """Swin's: rolled, cut into windows of 4, attended, put together."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, 2)

    def forward(self, x):
        b, h, w, c = x.shape
        y = torch.roll(self.norm(x), (-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c).transpose(2, 3)
        y = self.attention(y.reshape(-1, 16, c)).view(b, h // 4, w // 4, 4, 4, c)
        return x + torch.roll(y.transpose(2, 3).reshape(b, h, w, c), (2, 2), (1, 2))


class Gated(nn.Module):
    """Llama's layer: RMSNorm, rotary attention, a gated MLP."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.attention = nn.RMSNorm(width), nn.RMSNorm(width), Attention(width, 2, rotary=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        n = x.shape[1]
        x = x + self.attention(self.a(x), torch.ones(n, n, dtype=torch.bool).tril())
        gate, up = self.up(self.b(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def hugging_face(kind, **config):
    import transformers

    torch.manual_seed(0)
    return getattr(transformers, kind)(getattr(transformers, kind.replace("Model", "Config"))(**config)).eval()


SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
IDS = torch.randint(0, 90, (2, 7), generator=torch.Generator().manual_seed(1))


def bert():
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 4:] = 0
    return hugging_face("BertModel", vocab_size=99, **SMALL), dict(input_ids=IDS, attention_mask=mask)


def vit():
    return hugging_face("ViTModel", image_size=16, patch_size=4, **SMALL), dict(pixel_values=R(2, 3, 16, 16))


def swin():
    return hugging_face("SwinModel", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2],
                        window_size=4), dict(pixel_values=R(1, 3, 32, 32))


def llama():
    return hugging_face("LlamaModel", vocab_size=99, num_key_value_heads=1, **SMALL), dict(input_ids=IDS,
                                                                                           use_cache=False)


def gpt2():
    return hugging_face("GPT2Model", vocab_size=99, n_embd=32, n_layer=2, n_head=2), dict(input_ids=IDS,
                                                                                          use_cache=False)


def distilbert():
    return hugging_face("DistilBertModel", vocab_size=99, dim=32, n_layers=2, n_heads=2, hidden_dim=64), dict(
        input_ids=IDS)


def encoder():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), dict(src=R(2, 5, 32))


def by_hand():
    return nn.Sequential(*[Gated(16) for _ in range(2)]), (R(2, 6, 16),)


def windows():
    return nn.Sequential(*[Windows(16) for _ in range(2)]), (R(2, 8, 8, 16),)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 16, 4, 4, bias=False), nn.BatchNorm2d(16), nn.GELU(), nn.Flatten(2), fn(
        lambda self, x: self.a(x.transpose(1, 2)), a=Attention(16, 2))), (R(2, 3, 16, 16),)


MODELS = [bert, vit, swin, llama, gpt2, distilbert, encoder, by_hand, windows, convolutions]


def tensors(x):
    return [t for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def close(got, expected, share=2e-5):
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert a.shape == b.shape and a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=0, atol=share * max(float(b.detach().abs().max()), 1e-3), equal_nan=True)


def compiled(model, options=None, **how):
    """The compiled model, and what was compiled."""
    torch._dynamo.reset()
    made = []
    return torch.compile(model, backend=lambda gm, inputs: compile_with(gm, inputs, options, made), **how), made


def called(model, inputs):
    return tensors(model(*inputs) if isinstance(inputs, tuple) else model(**inputs))


@pytest.mark.parametrize("make", MODELS)
def test_forward_equals_eager(make):
    model, inputs = make()
    model.eval()
    run, made = compiled(model)
    with torch.no_grad():
        close(called(run, inputs), called(model, inputs))
    assert sum(c.in_c for c in made) == sum(c.ops for c in made) > 5, "\n".join(map(str, made))
    assert sum(c.attentions for c in made) >= (1 if make is convolutions else 2)


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
        grads = torch.autograd.grad(sum((x * R(*x.shape)).sum() for x in out if x.requires_grad), wanted, allow_unused=True)
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


def test_installed_packages_need_no_import(tmp_path):
    """The entry point of pyproject.toml, and TORCH_LOGS."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as f:
        points = tomllib.load(f)["project"]["entry-points"]["torch_dynamo_backends"]
    info = tmp_path / "qkv-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: qkv\nVersion: 0.0\n")
    (info / "entry_points.txt").write_text("[torch_dynamo_backends]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
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
