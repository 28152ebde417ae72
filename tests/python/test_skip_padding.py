"""--skip-padding against eager PyTorch: real positions are the dense model's, padded ones 0,
for every kind of padding; and where it must not apply."""
import json
import os
import subprocess
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import qkv  # noqa: E402
from torch import nn  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QKV = os.environ.get("QKV", os.path.join(ROOT, "build", "qkv"))
SMALL = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
             max_position_embeddings=64)
SIZES = [(1, 7), (3, 16), (5, 33)]
warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()


def masks(B, S):
    """Which tokens are real."""
    g = torch.Generator().manual_seed(B * 100 + S)
    n = torch.randint(1, S + 1, (B, 1), generator=g)
    i = torch.arange(S)[None]
    behind, before = i < n, i >= S - n
    holes = torch.rand(B, S, generator=g) < 0.6
    empty = behind.clone()
    empty[B // 2] = False
    return {"none": torch.ones(B, S, dtype=torch.bool), "behind": behind, "before": before, "holes": holes,
            "one empty": empty, "all empty": torch.zeros(B, S, dtype=torch.bool)}


class Hidden(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, input_ids, attention_mask):
        return self.m(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class MeanPooled(Hidden):
    def forward(self, input_ids, attention_mask):
        x = super().forward(input_ids, attention_mask)
        real = attention_mask.unsqueeze(-1).expand(x.size()).float()
        return x, (x * real).sum(1) / real.sum(1).clamp(min=1e-9)


class MaxPooled(Hidden):
    """The mask is written once more, as nothing of the attention has it."""

    def forward(self, input_ids, attention_mask):
        x = super().forward(input_ids, attention_mask)
        return x, x.masked_fill(attention_mask.unsqueeze(-1).eq(0), -1e9).max(1).values, \
            torch.where(attention_mask.bool()[..., None], x.sigmoid(), -5).amax(1)


class Decoder(nn.Module):
    """torch.nn's layers with a causal mask and one of padding."""

    def __init__(self):
        super().__init__()
        self.e = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 2,
                                       enable_nested_tensor=False)

    def forward(self, x, padding):
        causal = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)
        for layer in self.e.layers:
            x = layer(x, src_mask=causal, src_key_padding_mask=padding)
        return x


class Inside(nn.Module):
    """The mask comes from the tokens themselves."""

    def __init__(self):
        super().__init__()
        self.table, self.l = nn.Embedding(50, 32), nn.Linear(32, 32)
        self.e = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 1,
                                       enable_nested_tensor=False)

    def forward(self, ids):
        return self.l(self.e(self.table(ids), src_key_padding_mask=ids == 0))


def hf(make, implementation, wrap=Hidden):
    return lambda: wrap(make(implementation))


def bert(a, **kw):
    return transformers.BertModel(transformers.BertConfig(attn_implementation=a, **{**SMALL, **kw}),
                                  add_pooling_layer=False)


def distilbert(a):
    return transformers.DistilBertModel(transformers.DistilBertConfig(vocab_size=50, dim=32, n_layers=2, n_heads=4,
                                                                      hidden_dim=40, max_position_embeddings=64,
                                                                      attn_implementation=a))


def roberta(a):
    return transformers.RobertaModel(transformers.RobertaConfig(attn_implementation=a, pad_token_id=1,
                                                                **{**SMALL, "max_position_embeddings": 80}),
                                     add_pooling_layer=False)


def gpt2(a):
    return transformers.GPT2Model(transformers.GPT2Config(vocab_size=50, n_positions=64, n_embd=32, n_layer=2,
                                                          n_head=4, use_cache=False, attn_implementation=a))


def llama(a):
    return transformers.LlamaModel(transformers.LlamaConfig(num_key_value_heads=2, use_cache=False,
                                                            attn_implementation=a, **SMALL))


def clip(a):
    return transformers.CLIPTextModel(transformers.CLIPTextConfig(attn_implementation=a, projection_dim=32,
                                                                  eos_token_id=2, **SMALL))


def ids_and_mask(real):
    return torch.randint(3, 50, real.shape), real.long()


def floats_and(second):
    return lambda real: (torch.randn(*real.shape, 32), second(real))


def additive(real):
    return torch.zeros(real.shape).masked_fill(~real, float("-inf"))


def torch_encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 2, enable_nested_tensor=False)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = torch_encoder()

    def forward(self, x, padding):
        return self.e(x, src_key_padding_mask=padding)


MODELS = {
    "bert_sdpa": (hf(bert, "sdpa"), ids_and_mask), "bert_eager": (hf(bert, "eager"), ids_and_mask),
    "bert_mean": (hf(bert, "sdpa", MeanPooled), ids_and_mask),
    "bert_max": (hf(bert, "sdpa", MaxPooled), ids_and_mask), "distilbert": (hf(distilbert, "sdpa"), ids_and_mask),
    "roberta": (hf(roberta, "sdpa"), ids_and_mask), "gpt2_eager": (hf(gpt2, "eager"), ids_and_mask),
    "llama": (hf(llama, "sdpa"), ids_and_mask), "clip_text": (hf(clip, "sdpa"), ids_and_mask),
    "encoder_bool": (Encoder, floats_and(lambda real: ~real)), "encoder_float": (Encoder, floats_and(additive)),
    "decoder": (Decoder, floats_and(additive)),
    "inside": (Inside, lambda real: (torch.randint(1, 50, real.shape) * real,)),
}


@pytest.fixture(scope="module", params=MODELS)
def exported(request, tmp_path_factory):
    make, inputs = MODELS[request.param]
    torch.manual_seed(0)
    m = make().eval()
    path = tmp_path_factory.mktemp("skip") / f"{request.param}.pt2"
    B, S = torch.export.Dim("batch", max=16), torch.export.Dim("seq", max=60)
    x = inputs(masks(3, 16)["behind"])
    torch.export.save(torch.export.export(m, x, dynamic_shapes=tuple({0: B, 1: S} for _ in x), strict=False), path)
    return m, inputs, str(path)


def outputs(model, x):
    got = model.run(dict(zip(model.inputs, (a.numpy() for a in x))))
    return [np.asarray(got[name]) for name in model.outputs]


def expected(m, x):
    with torch.no_grad():
        y = m(*x)
    return [t.numpy() for t in (y if isinstance(y, tuple) else (y,))]


def check_tokens(y, e, real, tolerance, what):
    real = real.numpy()
    assert not y[~real].any() and np.isfinite(y).all(), what
    real = real & np.isfinite(e).all(-1)  # eager layers of torch.nn let NaN of padded rows through
    if real.any():
        np.testing.assert_allclose(y[real], e[real], rtol=0, atol=tolerance * np.abs(e[real]).max(), err_msg=what)


@pytest.mark.turns
@pytest.mark.parametrize("compute", [None, "bf16"])
def test_real_positions_are_eager_and_padded_ones_zero(exported, compute):
    m, inputs, path = exported
    model = qkv.Model(path, threads=1, skip_padding=True, compute=compute)
    for B, S in SIZES if compute is None else SIZES[1:2]:
        for kind, real in masks(B, S).items():
            x = inputs(real)
            y, e = outputs(model, x), expected(m, x)
            check_tokens(y[0], e[0], real, 1e-5 if compute is None else 3e-2, f"{kind}, {B} x {S}")
            for a, b in zip(y[1:], e[1:]):  # pooled
                some = real.any(1).numpy()
                np.testing.assert_allclose(a[some], b[some], rtol=0, atol=(1e-5 if compute is None else 3e-2)
                                           * np.abs(b).max(), err_msg=f"{kind}, {B} x {S}")


def test_it_is_proven(exported):
    path = exported[2]
    report = qkv.Model(path, threads=1).rewrite(prove=True, skip_padding=True)["skip_padding"]
    assert report["nothing"] is None and len(report["masks"]) == 1
    mask = report["masks"][0]
    assert mask["applied"] and mask["attentions"] >= 1 and mask["nodes"] > 10 * mask["attentions"] and mask["not_proven"] is None and mask["runs"] >= 10


def test_threads_and_runs_of_other_lengths_give_the_same_bits(exported):
    m, inputs, path = exported
    one, two = (qkv.Model(path, threads=n, skip_padding=True) for n in (1, 2))
    x = [inputs(real) for real in masks(5, 33).values()]
    first = [outputs(one, a) for a in x]
    for a, y in list(zip(x, first))[::-1]:
        for b, c, d in zip(outputs(one, a), outputs(two, a), y):
            assert b.tobytes() == c.tobytes() == d.tobytes()


class Unmasked(Hidden):
    def forward(self, input_ids, attention_mask):
        return super().forward(input_ids, attention_mask).mean(1)


def test_a_mean_over_padding_stays_dense(tmp_path):
    torch.manual_seed(0)
    m, path = Unmasked(bert("sdpa")).eval(), str(tmp_path / "mean.pt2")
    real = masks(3, 16)["behind"]
    x = ids_and_mask(real)
    torch.export.save(torch.export.export(m, x, strict=False), path)
    model = qkv.Model(path, threads=1)
    mask = model.rewrite(skip_padding=True)["skip_padding"]["masks"][0]
    assert not mask["applied"] and "mean" in mask["why"]
    e = expected(m, x)[0]
    np.testing.assert_allclose(outputs(model, x)[0], e, rtol=0, atol=1e-5 * np.abs(e).max())


def test_command(exported, tmp_path):
    m, inputs, path = exported
    real = masks(3, 16)["behind"]
    x = inputs(real)
    names = qkv.Model(path, threads=1).inputs
    np.savez(tmp_path / "in.npz", **{n: a.numpy() for n, a in zip(names, x)})
    done = subprocess.run([QKV, "run", path, "-i", tmp_path / "in.npz", "--skip-padding", "-o", tmp_path / "out.npz"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and "run on real tokens" in done.stderr, done.stderr
    check_tokens(np.load(tmp_path / "out.npz")["output_0"], expected(m, x)[0], real, 1e-5, "command")
    done = subprocess.run([QKV, "bench", path, "-i", tmp_path / "in.npz", "--skip-padding", "--json", "--iterations",
                           "2"], capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["min_ms"] > 0, done.stderr


@pytest.fixture(scope="module", params=["dynamo", "script", "packed"])
def otherwise(request, tmp_path_factory):
    """BERT with its mean as other programs write it: both exporters of ONNX, and a .qkv packed without padding."""
    torch.manual_seed(0)
    folder, kind = tmp_path_factory.mktemp("otherwise"), request.param
    m, x = MeanPooled(bert("eager" if kind == "packed" else "sdpa")).eval(), ids_and_mask(masks(2, 7)["behind"])
    names, path = ["input_ids", "attention_mask"], str(folder / "bert.onnx")
    if kind == "script":
        pytest.importorskip("onnx")
        torch.onnx.export(m, x, path, dynamo=False, input_names=names, opset_version=17,
                          dynamic_axes={n: {0: "batch", 1: "seq"} for n in names})
        return m, path, kind
    B, S = torch.export.Dim("batch", max=16), torch.export.Dim("seq", max=60)
    shapes = tuple({0: B, 1: S} for _ in x)
    if kind == "dynamo":
        pytest.importorskip("onnxscript")
        torch.onnx.export(m, x, path, dynamo=True, input_names=names, dynamic_shapes=shapes, external_data=False,
                          verbose=False)
        return m, path, kind
    torch.export.save(torch.export.export(m, x, dynamic_shapes=shapes, strict=False), str(folder / "bert.pt2"))
    subprocess.run([QKV, "pack", str(folder / "bert.pt2"), "-o", str(folder / "bert.qkv"), "--skip-padding", "-q"],
                   check=True, capture_output=True)
    return m, str(folder / "bert.qkv"), kind


@pytest.mark.turns
def test_the_mask_is_found_however_it_is_spelled(otherwise):
    """Indices that count from the end, rows of a flat mask: it is attention_mask, whose zeros the mean relies on."""
    m, path, kind = otherwise
    report = qkv.Model(path, threads=1).rewrite(prove=True, skip_padding=True)["skip_padding"]
    assert [(a["mask"], a["applied"], a["attentions"], a["before"]) for a in report["masks"]] == [
        ("attention_mask", True, 2, kind == "packed")], report
    if kind != "packed":
        assert report["masks"][0]["not_proven"] is None and report["masks"][0]["runs"] >= 10
    model = qkv.Model(path, threads=1, skip_padding=True)
    for mask, real in masks(3, 16).items():
        x = ids_and_mask(real)
        y, e = outputs(model, x), expected(m, x)
        check_tokens(y[0], e[0], real, 1e-5, mask)
        some = real.any(1).numpy()
        np.testing.assert_allclose(y[1][some], e[1][some], rtol=0, atol=1e-5 * np.abs(e[1]).max(), err_msg=mask)


class OtherRows(nn.Module):
    """Attention sees the padding of another sample than the mean does."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x, mask):
        B, S, _ = x.shape
        q, k, v = (t.reshape(B, S, 2, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        rows = B - 1 - torch.arange(B)
        real = mask.bool()[rows[:, None, None, None], torch.arange(S)]
        y = nn.functional.scaled_dot_product_attention(q, k, v, real).transpose(1, 2).reshape(B, S, 16)
        return (y * mask[..., None]).sum(1)


def test_another_index_is_another_mask(tmp_path):
    torch.manual_seed(0)
    m, path = OtherRows().eval(), str(tmp_path / "rows.pt2")
    B, S = torch.export.Dim("batch", min=2, max=16), torch.export.Dim("seq", min=2, max=60)
    x = torch.randn(3, 9, 16), masks(3, 9)["behind"].long()
    torch.export.save(torch.export.export(m, x, dynamic_shapes=({0: B, 1: S}, {0: B, 1: S})), path)
    mask = qkv.Model(path, threads=1).rewrite(skip_padding=True)["skip_padding"]["masks"][0]
    assert not mask["applied"] and "sum" in mask["why"]
    e = expected(m, x)[0]
    y = outputs(qkv.Model(path, skip_padding=True), x)[0]
    np.testing.assert_allclose(y, e, rtol=0, atol=1e-5 * np.abs(e).max())


def test_verify(exported, tmp_path):
    m, inputs, path = exported
    real = masks(3, 16)["behind"]
    x = inputs(real)
    model = qkv.Model(path, threads=1)
    np.savez(tmp_path / "in.npz", **{n: a.numpy() for n, a in zip(model.inputs, x)})
    e = expected(m, x)
    for wrong in (False, True):
        if wrong:
            e[0][0, 0, 0] += 1
        np.savez(tmp_path / "e.npz", **dict(zip(model.outputs, e)))
        done = subprocess.run([QKV, "verify", path, "-i", tmp_path / "in.npz", "-e", tmp_path / "e.npz",
                               "--skip-padding"], capture_output=True, text=True)
        assert done.returncode == wrong, done.stdout + done.stderr
    if e[0].ndim == 3:
        assert f"{int((~real).sum())} of {real.numel()} rows are 0" in done.stderr


class Square(nn.Module):
    """Batch, tokens, heads and head size are all 4: sizes alone do not tell the axes apart."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x, mask):
        q, k, v = (t.reshape(4, 4, 4, 4).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, mask[:, None, None, :])
        return self.out(y.transpose(1, 2).reshape(4, 4, 16)) + x


def test_axes_of_one_size(tmp_path):
    torch.manual_seed(0)
    m, path = Square().eval(), str(tmp_path / "square.pt2")
    torch.export.save(torch.export.export(m, (torch.randn(4, 4, 16), masks(4, 4)["behind"])), path)
    report = qkv.Model(path, threads=1).rewrite(prove=True, skip_padding=True)["skip_padding"]["masks"][0]
    assert report["applied"] and report["not_proven"] is None and report["runs"] == 5
    model = qkv.Model(path, threads=1, skip_padding=True)
    for kind, real in masks(4, 4).items():
        x = (torch.randn(4, 4, 16), real)
        check_tokens(outputs(model, x)[0], expected(m, x)[0], real, 1e-5, kind)


def test_nothing_to_skip(tmp_path):
    path = str(tmp_path / "linear.pt2")
    torch.export.save(torch.export.export(nn.Linear(3, 2), (torch.randn(4, 3),)), path)
    done = subprocess.run([QKV, "run", path, "--skip-padding"], capture_output=True, text=True)
    assert done.returncode == 0 and "no padding to skip: there is no attention; the model runs dense" in done.stderr
