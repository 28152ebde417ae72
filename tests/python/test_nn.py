"""qkv.nn against torch.nn: the same numbers, gradients and state; exports that torch.nn's own modules do not survive, run in C."""
import copy
import io
import itertools
import pickle
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402

E, H = 16, 4
INF = float("inf")


def same(got, expected, tolerance=2e-6):
    if expected is None:
        assert got is None
        return
    assert got.shape == expected.shape and got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance * max(1.0, float(expected.detach().nan_to_num().abs().max())), equal_nan=True)


def attention(seed=0, heads=H, **options):
    torch.manual_seed(seed)
    mha = nn.MultiheadAttention(E, heads, **options)
    for p in mha.parameters():  # biases start at zero, which hides them
        nn.init.normal_(p, std=0.4)
    return mha


OPTIONS = {
    "plain": {},
    "batch_first": dict(batch_first=True),
    "no_bias": dict(bias=False, batch_first=True),
    "separate": dict(kdim=10, vdim=6),
    "separate_batch_first_no_bias": dict(kdim=10, vdim=E, bias=False, batch_first=True),
    "bias_kv": dict(add_bias_kv=True),
    "zero_attn": dict(add_zero_attn=True, batch_first=True),
    "everything": dict(kdim=E, vdim=6, add_bias_kv=True, add_zero_attn=True, batch_first=True),
    "one_head": dict(heads=1, batch_first=True, add_bias_kv=True, add_zero_attn=True),
}
MASKS = ["none", "pad_bool", "pad_float", "bool", "float", "bool3d", "float3d", "pad_bool+bool", "pad_float+float3d", "pad_bool+float", "pad_float+bool3d",
         "causal", "causal+pad_bool"]


def inputs(mha, kind, batch, n, m):
    """query, key, value: all one tensor, key and value one, or three; batch None = unbatched."""
    def one(length, width):
        shape = (length, width) if batch is None else (batch, length, width) if mha.batch_first else (length, batch, width)
        return torch.randn(shape, requires_grad=True)
    if kind == "self":
        x = one(n, E)
        return x, x, x
    query, key = one(n, E), one(m, mha.kdim)
    return query, key, key if kind == "cross" else one(m, mha.vdim)


def masks(spec, mha, batch, n, m):
    """attn_mask, key_padding_mask, is_causal; the first key is never masked."""
    out = {}
    for part in spec.split("+"):
        if part == "causal":
            out["attn_mask"], out["is_causal"] = torch.ones(n, m, dtype=torch.bool).triu(1), True
        elif part.startswith("pad"):
            shape = (m,) if batch is None else (batch, m)
            mask = torch.rand(shape) < 0.4
            mask[..., 0] = False
            out["key_padding_mask"] = mask if part == "pad_bool" else torch.randn(shape).masked_fill(mask, -INF)
        elif part != "none":
            shape = (n, m) if "3d" not in part else ((batch or 1) * mha.num_heads, n, m)
            mask = torch.rand(shape) < 0.4
            mask[..., 0] = False
            out["attn_mask"] = mask if "bool" in part else torch.randn(shape).masked_fill(mask, -INF)
    return out


def compare(mha, new, args, options, seed=None):
    """Outputs and the gradients of every parameter, input and floating mask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates masks of two kinds
        grads = []
        outs = []
        leaves = list({id(t): t for t in args}.values())
        for module in (mha, new):
            if seed is not None:
                torch.manual_seed(seed)
            out, weights = module(*args, **options)
            outs.append((out, weights))
            loss = (out * torch.linspace(-1, 2, out.numel()).reshape(out.shape)).sum()
            if weights is not None:
                loss = loss + (weights * torch.linspace(1, -2, weights.numel()).reshape(weights.shape)).sum()
            named = dict(module.named_parameters())
            grads.append(dict(zip([*named, *range(len(leaves))], torch.autograd.grad(loss, [*named.values(), *leaves]))))
    same(outs[1][0], outs[0][0])
    same(outs[1][1], outs[0][1])
    assert grads[0].keys() == grads[1].keys()
    for name in grads[0]:
        same(grads[1][name], grads[0][name], 2e-5)


@pytest.mark.parametrize("spec", MASKS)
@pytest.mark.parametrize("option", OPTIONS)
def test_same_as_torch(option, spec):
    mha = attention(**OPTIONS[option])
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)
    kinds = ["self", "cross", "apart"] if mha._qkv_same_embed_dim else ["apart"]
    for kind, batch, (need, average) in itertools.product(kinds, (3, None), ((False, True), (True, True), (True, False))):
        n, m = (5, 5) if kind == "self" else (4, 7)
        args = inputs(mha, kind, batch, n, m)
        compare(mha, new, args, dict(masks(spec, mha, batch, n, m), need_weights=need, average_attn_weights=average))


def test_fully_masked_rows():
    mha = attention(batch_first=True)
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)
    x = torch.randn(2, 3, E)
    for mask in (dict(key_padding_mask=torch.tensor([[True] * 3, [False, True, True]])), dict(attn_mask=torch.eye(3).eq(0).logical_or(torch.eye(3).eq(1)[:1]))):
        out = new(x, x, x, need_weights=False, **mask)[0]
        same(out, mha(x, x, x, need_weights=False, **mask)[0])
        same(out[0, 0], mha.out_proj.bias)
        out, weights = new(x, x, x, **mask)
        same(out, mha(x, x, x, **mask)[0])
        assert weights[0, 0].isnan().all() and not weights[1, 1].isnan().any()


def test_dropout_in_training():
    mha = attention(dropout=0.3, batch_first=True)
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)
    for need in (False, True):
        for kind in ("self", "cross"):
            compare(mha, new, inputs(mha, kind, 3, 5, 5), dict(need_weights=need), seed=3)
    x = torch.randn(2, 40, E)
    weights = new(x, x, x, average_attn_weights=False)[1]
    assert 0.25 < float((weights == 0).float().mean()) < 0.35
    assert abs(float(weights.detach().sum(-1).mean()) - 1) < 0.05
    assert not torch.equal(new(x, x, x)[0], new(x, x, x)[0])
    same(new.eval()(x, x, x)[0], mha.eval()(x, x, x)[0])


@pytest.mark.parametrize("spec", ["none", "pad_bool+bool", "pad_float+float3d"])
def test_autocast_and_bfloat16(spec):
    mha = attention(add_bias_kv=True, add_zero_attn=True)
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)
    args, options = inputs(mha, "apart", 3, 4, 7), masks(spec, mha, 3, 4, 7)
    for need in (False, True):
        with torch.autocast("cpu", torch.bfloat16):
            for got, expected in zip(new(*args, need_weights=need, **options), mha(*args, need_weights=need, **options)):
                same(got, expected, 2e-2)
    mha, new = mha.bfloat16(), new.bfloat16()
    args = [a.bfloat16() for a in args]
    options = {k: m.bfloat16() if m.is_floating_point() else m for k, m in options.items()}
    for need in (False, True):
        for got, expected in zip(new(*args, need_weights=need, **options), mha(*args, need_weights=need, **options)):
            same(got, expected, 2e-2)


def test_wrong_shapes_and_options_are_refused():
    new = qkv.nn.ExportFriendlyMultiheadAttention(E, H, batch_first=True)
    x, y = torch.randn(2, 5, E), torch.randn(2, 7, E)
    for options, error in (
            (dict(attn_mask=torch.zeros(7, 5)), RuntimeError), (dict(attn_mask=torch.zeros(H, 5, 7)), RuntimeError),
            (dict(attn_mask=torch.zeros(2, H, 5, 7)), RuntimeError), (dict(key_padding_mask=torch.zeros(2, 5)), RuntimeError),
            (dict(key_padding_mask=torch.zeros(7)), AssertionError), (dict(attn_mask=torch.zeros(5, 7, dtype=torch.long)), AssertionError),
            (dict(is_causal=True), RuntimeError)):
        for need in (False, True):
            with pytest.raises(error):
                new(x, y, y, need_weights=need, **options)
    with pytest.raises(AssertionError, match="key has 2"):
        new(x, y[0], y[0])


@pytest.mark.parametrize("option", ["plain", "separate", "everything"])
def test_state_dict_both_ways(option):
    a, b = attention(0, **OPTIONS[option]), attention(1, **OPTIONS[option])
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(a)
    assert list(new.state_dict()) == list(a.state_dict())
    new.load_state_dict(b.state_dict())
    args = inputs(a, "apart", 2, 3, 4)
    same(new(*args)[0], b(*args)[0])
    assert not torch.equal(a(*args)[0], b(*args)[0])
    a.load_state_dict(new.state_dict())
    same(a(*args)[0], b(*args)[0])


def test_copied_or_shared():
    mha = attention(dropout=0.1, batch_first=True).eval().double().requires_grad_(False)
    mha.tag = "kept"
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)
    assert not new.training and new.tag == "kept" and new.batch_first and new.dropout == 0.1 and not new.in_proj_weight.requires_grad
    assert all(p.data_ptr() != q.data_ptr() and torch.equal(p, q) for p, q in zip(mha.parameters(), new.parameters()))
    shared = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha, share=True)
    assert all(p is q for p, q in zip(mha.parameters(), shared.parameters())) and shared.out_proj is not mha.out_proj
    with pytest.raises(TypeError, match="Linear"):
        qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="OwnForward"):
        qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(OwnForward(E, H))


class Inherits(nn.MultiheadAttention):
    def __init__(self, width):
        super().__init__(width, H, batch_first=True)

    def _project(self):
        return "the user's"


class OwnForward(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


class Zoo(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.TransformerEncoderLayer(E, H, 32, batch_first=True, dropout=0.0)
        self.shared = self.layer.self_attn
        self.list = nn.ModuleList([nn.MultiheadAttention(E, H, batch_first=True), Inherits(E)])
        self.own = OwnForward(E, H, batch_first=True)

    def forward(self, x):
        x = self.shared(self.layer(x), x, x)[0]
        for mha in self.list:
            x = x + mha(x, x, x)[0]
        return self.own(x)


def test_replace_keeps_identity_and_reports(capsys):
    model = Zoo()
    before, optimizer, x = copy.deepcopy(model), torch.optim.SGD(model.parameters(), lr=0.5), torch.randn(2, 5, E)
    seen = []
    model.list[0].register_forward_hook(lambda m, a, out: seen.append(m))
    with pytest.warns(UserWarning, match=r"own \(OwnForward\) has a forward of its own"):
        assert qkv.nn.replace_mha(model, verbose=True) == 3
    printed = capsys.readouterr().out
    assert all(line in printed for line in ("layer.self_attn (MultiheadAttention): now ExportFriendlyMultiheadAttention", "list.1 (Inherits)", "own (OwnForward)"))
    friendly = qkv.nn.ExportFriendlyMultiheadAttention
    assert model.shared is model.layer.self_attn and isinstance(model.shared, friendly) and isinstance(model.list[0], friendly)
    assert isinstance(model.list[1], Inherits) and isinstance(model.list[1], friendly) and model.list[1]._project() == "the user's"
    assert type(model.own) is OwnForward
    same(model(x), before(x))
    assert seen == [model.list[0]]
    model(x).sum().backward()
    optimizer.step()
    assert not torch.equal(model.shared.in_proj_weight, before.shared.in_proj_weight)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert qkv.nn.replace_mha(model) == 0
    assert capsys.readouterr().out == ""


def test_replace_the_model_itself():
    mha = attention(batch_first=True)
    reference, x = copy.deepcopy(mha), torch.randn(2, 5, E)
    assert qkv.nn.replace_mha(mha) == 1 and type(mha) is qkv.nn.ExportFriendlyMultiheadAttention
    same(mha(x, x, x)[0], reference(x, x, x)[0])
    assert qkv.nn.replace_mha(nn.Linear(2, 2)) == 0


def test_copies_and_pickles():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.ModuleList([Zoo(), nn.Transformer(E, H, 1, 1, 32, batch_first=True)]).eval()
        qkv.nn.replace_mha(model)
    x = torch.randn(2, 5, E)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        assert [type(m) for m in again.modules()] == [type(m) for m in model.modules()]
        assert again[0].shared is again[0].layer.self_attn
        same(again[0](x), model[0](x))
        same(again[1](x, x), model[1](x, x))


def test_parametrized_and_pruned_attention():
    from torch.nn.utils import parametrizations, parametrize, prune

    mha, x = attention(batch_first=True), torch.randn(2, 5, E)
    parametrizations.weight_norm(mha, "in_proj_weight")
    mha.parametrizations.in_proj_weight.original0.data *= 2
    expected = mha(x, x, x)[0]
    twin = copy.deepcopy(mha)
    assert qkv.nn.replace_mha(mha) == 1 and isinstance(mha, qkv.nn.ExportFriendlyMultiheadAttention)
    assert not isinstance(twin, qkv.nn.ExportFriendlyMultiheadAttention)
    for m in (mha, copy.deepcopy(mha), qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha), qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(twin)):
        same(m(x, x, x)[0], expected)
    parametrize.remove_parametrizations(mha, "in_proj_weight")
    same(mha(x, x, x)[0], expected)
    pruned = attention(batch_first=True)
    prune.l1_unstructured(pruned, "in_proj_weight", 0.5)
    expected = pruned(x, x, x)[0]
    assert qkv.nn.replace_mha(pruned) == 1
    same(pruned(x, x, x)[0], expected)


@pytest.mark.parametrize("mode", ["train", "eval", "inference"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_transformers_stay_equal(batch_first, mode):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dropout = 0.0 if batch_first else 0.2  # torch's output has other strides there, and the layers' dropout draws in memory order
        model = nn.Transformer(E, H, 2, 2, 32, batch_first=batch_first, dropout=dropout).train(mode == "train")
    new = copy.deepcopy(model)
    assert qkv.nn.replace_mha(new) == 6
    s, t = torch.randn(3, 6, E), torch.randn(3, 5, E)
    padding = torch.arange(6) >= torch.tensor([[6], [4], [5]])  # left aligned: inference packs it into nested tensors
    if not batch_first:
        s, t = s.transpose(0, 1), t.transpose(0, 1)
    causal, some = torch.ones(5, 5, dtype=torch.bool).triu(1), torch.eye(6, dtype=torch.bool)
    for options in ({}, dict(src_key_padding_mask=padding, memory_key_padding_mask=padding), dict(src_mask=some, tgt_mask=causal),
                    dict(src_mask=some, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5), tgt_is_causal=True)):
        results = []
        for m in (model, new):
            torch.manual_seed(5)
            with torch.set_grad_enabled(mode != "inference"):
                results.append(m(s, t, **options))
        same(results[1], results[0], 1e-5)


def test_nn_is_imported_when_asked_for():
    code = "import sys, qkv; assert 'torch' not in sys.modules; qkv.nn.replace_mha; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(p for p in sys.path if p), "PATH": ""})
