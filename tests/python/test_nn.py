"""qkv.nn against torch.nn: the same values, gradients and state;
exports that torch.nn's own modules do not survive, run in C."""
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
from tolerance import tolerance  # noqa: E402

TOLERANCE = tolerance("TORCH")["f32"]

E, H = 16, 4
INF = float("inf")


def same(got, expected, tolerance=2e-6):
    if expected is None:
        assert got is None
        return
    assert got.shape == expected.shape and got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance
                               * max(1.0, float(expected.detach().nan_to_num().abs().max())), equal_nan=True)


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
MASKS = ["none", "pad_bool", "pad_float", "bool", "float", "bool3d", "float3d", "pad_bool+bool", "pad_float+float3d",
         "pad_bool+float", "pad_float+bool3d", "causal", "causal+pad_bool"]


def inputs(mha, kind, batch, n, m):
    """query, key, value: all one tensor, key and value one, or three; batch None = unbatched."""
    def one(length, width):
        shape = (length, width) if batch is None else (batch, length, width) if mha.batch_first else (length, batch,
            width)
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
            grads.append(dict(zip([*named, *range(len(leaves))],
                                  torch.autograd.grad(loss, [*named.values(), *leaves]))))
    same(outs[1][0], outs[0][0])
    same(outs[1][1], outs[0][1])
    assert grads[0].keys() == grads[1].keys()
    for name in grads[0]:
        same(grads[1][name], grads[0][name], 2e-5)


@pytest.mark.turns
@pytest.mark.parametrize("spec", MASKS)
@pytest.mark.parametrize("option", OPTIONS)
def test_same_as_torch(option, spec):
    mha = attention(**OPTIONS[option])
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)
    kinds = ["self", "cross", "apart"] if mha._qkv_same_embed_dim else ["apart"]
    for kind, batch, (need, average) in itertools.product(kinds, (3, None),
                                                          ((False, True), (True, True), (True, False))):
        n, m = (5, 5) if kind == "self" else (4, 7)
        args = inputs(mha, kind, batch, n, m)
        compare(mha, new, args, dict(masks(spec, mha, batch, n, m), need_weights=need, average_attn_weights=average))


def test_fully_masked_rows():
    mha = attention(batch_first=True)
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)
    x = torch.randn(2, 3, E)
    for mask in (dict(key_padding_mask=torch.tensor([[True] * 3, [False, True, True]])),
                 dict(attn_mask=torch.eye(3).eq(0).logical_or(torch.eye(3).eq(1)[:1]))):
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
            for got, expected in zip(new(*args, need_weights=need, **options),
                                     mha(*args, need_weights=need, **options)):
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
            (dict(attn_mask=torch.zeros(2, H, 7, 5)), RuntimeError),
            (dict(attn_mask=torch.zeros(1, 2, H, 5, 7)), RuntimeError),
            (dict(key_padding_mask=torch.zeros(2, 5)), RuntimeError),
            (dict(key_padding_mask=torch.zeros(7)), AssertionError),
            (dict(attn_mask=torch.zeros(5, 7, dtype=torch.long)), AssertionError),
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
    with pytest.raises(TypeError, match="IgnoresSuper"):
        qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(IgnoresSuper(E, H))


class Inherits(nn.MultiheadAttention):
    def __init__(self, width):
        super().__init__(width, H, batch_first=True)

    def _project(self):
        return "the user's"


class OwnForward(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


class IgnoresSuper(nn.MultiheadAttention):
    def forward(self, x):
        q, k, v = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        return self.out_proj(nn.functional.scaled_dot_product_attention(q, k, v))


class Zoo(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.TransformerEncoderLayer(E, H, 32, batch_first=True, dropout=0.0)
        self.shared = self.layer.self_attn
        self.list = nn.ModuleList([nn.MultiheadAttention(E, H, batch_first=True), Inherits(E)])
        self.own = OwnForward(E, H, batch_first=True)
        self.ignores = IgnoresSuper(E, H, batch_first=True)

    def forward(self, x):
        x = self.shared(self.layer(x), x, x)[0]
        for mha in self.list:
            x = x + mha(x, x, x)[0]
        return self.ignores(self.own(x))


def test_replace_keeps_identity_and_reports(capsys):
    model = Zoo()
    before, optimizer, x = copy.deepcopy(model), torch.optim.SGD(model.parameters(), lr=0.5), torch.randn(2, 5, E)
    seen = []
    model.list[0].register_forward_hook(lambda m, a, out: seen.append(m))
    with pytest.warns(UserWarning, match=r"ignores \(IgnoresSuper\) has its own forward, which does not call super"):
        assert qkv.nn.replace_mha(model, verbose=True) == 4
    printed = capsys.readouterr().out
    assert all(line in printed
               for line in ("layer.self_attn (MultiheadAttention): now ExportFriendlyMultiheadAttention",
                            "list.1 (Inherits)", "own (OwnForward)"))
    friendly = qkv.nn.ExportFriendlyMultiheadAttention
    assert model.shared is model.layer.self_attn and isinstance(model.shared, friendly) and isinstance(model.list[0],
        friendly)
    assert isinstance(model.list[1], Inherits) and isinstance(model.list[1],
                                                              friendly) and model.list[1]._project() == "the user's"
    assert isinstance(model.own, OwnForward) and isinstance(model.own, friendly) and type(model.ignores) is IgnoresSuper
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
    for m in (mha, copy.deepcopy(mha), qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha),
              qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(twin)):
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
        # torch's output has other strides there, and the layers' dropout draws in memory order
        dropout = 0.0 if batch_first else 0.2
        model = nn.Transformer(E, H, 2, 2, 32, batch_first=batch_first, dropout=dropout).train(mode == "train")
    new = copy.deepcopy(model)
    assert qkv.nn.replace_mha(new) == 6
    s, t = torch.randn(3, 6, E), torch.randn(3, 5, E)
    padding = torch.arange(6) >= torch.tensor([[6], [4], [5]])  # left aligned: inference packs it into nested tensors
    if not batch_first:
        s, t = s.transpose(0, 1), t.transpose(0, 1)
    causal, some = torch.ones(5, 5, dtype=torch.bool).triu(1), torch.eye(6, dtype=torch.bool)
    for options in ({}, dict(src_key_padding_mask=padding, memory_key_padding_mask=padding),
                    dict(src_mask=some, tgt_mask=causal),
                    dict(src_mask=some, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5),
                         tgt_is_causal=True)):
        results = []
        for m in (model, new):
            torch.manual_seed(5)
            with torch.set_grad_enabled(mode != "inference"):
                results.append(m(s, t, **options))
        same(results[1], results[0], 1e-5)


def test_nn_is_imported_when_asked_for():
    code = "import sys, qkv; assert 'torch' not in sys.modules; qkv.nn.replace_mha; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True,
                   env={"PYTHONPATH": ":".join(p for p in sys.path if p), "PATH": ""})


# ------------------------------------------------------------------ exports, run in C at sizes that export never saw

AUTO = torch.export.Dim.AUTO
Dim = torch.export.Dim
b, s, t = Dim("b", max=8), Dim("s", max=40), Dim("t", max=40)
h, w = Dim("h", min=1, max=8), Dim("w", min=1, max=8)


class Calls(nn.Module):
    """Attention modules and a function that uses them."""

    def __init__(self, function, **options):
        super().__init__()
        self.mha, self.function = attention(batch_first=True, **options), function
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.layer = nn.TransformerEncoderLayer(E, H, 32, batch_first=True)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, 32, batch_first=True), 2)
            self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(E, H, 32, batch_first=True), 1)
            self.transformer = nn.Transformer(E, H, 1, 1, 32, batch_first=True)
        self.patches, self.table = nn.Conv2d(3, E, 14, 14), nn.Parameter(torch.randn(H, 201))
        for p in self.parameters():
            nn.init.normal_(p, std=0.3)
        # 588 terms a patch: tokens of about 1, or scores of some hundreds would amplify any rounding
        nn.init.normal_(self.patches.weight, std=0.04)

    def forward(self, *args):
        return self.function(self, *args)


def runs_in_c(model, make, sizes, shapes, path, strict=False, grad=False):
    """Exports the replaced model at sizes[0]; compares the file in C with the eager original at all of them."""
    model = model.eval()
    new = copy.deepcopy(model)
    assert qkv.nn.replace_mha(new) > 0
    with torch.set_grad_enabled(grad):
        program = torch.export.export(new, make(*sizes[0]), dynamic_shapes=(shapes,), strict=strict)
    torch.export.save(program, path)
    c = qkv.Model(path)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            for at in sizes:
                args = make(*at)
                expected = model(*args)
                got = c.run_dlpack(list(args))
                for i, y in enumerate(expected if isinstance(expected, tuple) else (expected,)):
                    same(torch.from_dlpack(got[f"output_{i}"]), y, 1e-5)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return program


def some(*shape):
    mask = torch.rand(shape) < 0.4
    mask[..., 0] = False
    return mask


def cells(rows, columns):
    row, column = torch.arange(rows)[:, None].expand(rows, columns).flatten(), torch.arange(columns).expand(rows,
        columns).flatten()
    return row[:, None] - row, column[:, None] - column


def attend(m, image, kind, more=None):
    x = m.patches(image)
    rows, columns = x.shape[-2:]
    x = x.flatten(2).transpose(1, 2)
    mask, query = more, x
    if kind == "cross":
        query, mask = more, None
    elif kind == "computed":
        down, right = cells(rows, columns)
        mask = (down.abs() > 1) | (right.abs() > 1)
    elif kind == "per_head":
        down, right = cells(rows, columns)
        bias = m.table[:, (down + 10 * right).clamp(-100, 100) + 100]
        mask = bias.expand(x.shape[0], -1, -1, -1).flatten(0, 1)
    return m.mha(query, x, x, attn_mask=mask, need_weights=kind == "weights")[0]


IMAGE_SIZES = [(3, 2, 3), (2, 5, 2), (4, 3, 7), (5, 8, 8)]


@pytest.mark.turns
@pytest.mark.parametrize("form,kind,batch", [
    *(("14*h", kind, "dynamic") for kind in ("none", "weights", "cross", "mask", "mask3d", "computed", "per_head")),
    ("14*h", "mask3d", "static"), ("plain", "computed", "dynamic"), ("auto", "mask3d", "dynamic"),
    ("auto", "per_head", "static")])
def test_images(form, kind, batch, tmp_path):
    size = {"14*h": {2: 14 * h, 3: 14 * w}, "plain": {2: Dim("H", min=28, max=120), 3: Dim("W", min=28, max=120)},
            "auto": {2: AUTO, 3: AUTO}}[form]
    first = {0: AUTO if form == "auto" else b} if batch == "dynamic" else {}
    shapes = [first | size]
    if kind in ("mask", "weights"):
        shapes.append({0: AUTO, 1: AUTO})
    elif kind == "mask3d":
        shapes.append(({0: AUTO if form == "auto" else H * b} if batch == "dynamic" else {}) | {1: AUTO, 2: AUTO})
    elif kind == "cross":
        shapes.append(first | {1: AUTO})

    def make(n, rows, columns):
        n, area = 2 if batch == "static" else n, rows * columns
        image = torch.randn(n, 3, 14 * rows + (form == "plain") * 5, 14 * columns)
        more = {"mask": lambda: some(area, area), "weights": lambda: torch.randn(area, area),
                "mask3d": lambda: torch.randn(n * H, area, area),
                "cross": lambda: torch.randn(n, rows + 3, E)}.get(kind)
        return (image,) if more is None else (image, more())
    # torch guards against 1 where a size is left to it or expanded to
    one = form == "14*h" and kind not in ("computed", "per_head")
    sizes = IMAGE_SIZES + ([(1, 1, 4), (2, 3, 1)] if one else [])
    runs_in_c(Calls(lambda m, image, *more: attend(m, image, kind, *more)), make, sizes, tuple(shapes),
              tmp_path / "m.pt2")


def test_images_of_336(tmp_path):
    model = Calls(lambda m, image: attend(m, image, "computed"))
    model.patches = nn.Conv2d(3, E, 112, 112)
    runs_in_c(model, lambda n, rows, columns: (torch.randn(n, 3, 336 * rows, 336 * columns),),
              [(3, 2, 3), (1, 3, 2), (2, 1, 2), (1, 1, 1)],
              ({0: b, 2: 336 * h, 3: 336 * w},), tmp_path / "m.pt2")


def grid(m, x, shape):
    rows, columns = shape.tolist()
    down, right = cells(rows, columns)
    return (down.abs() > 1) | (right.abs() > 1)


def slopes(m, x, shape):
    rows, columns = shape.tolist()
    i = torch.arange(rows * columns, dtype=torch.float32)
    return ((i[:, None] - i).abs() * m.table[:, :1, None]).expand(x.shape[0], -1, -1, -1).flatten(0, 1)


FROM_DATA = {
    "mask": (lambda m, x, at: m.mha(x, x, x, attn_mask=grid(m, x, at), need_weights=False)[0], {}),
    "mask_weights": (lambda m, x, at: m.mha(x, x, x, attn_mask=grid(m, x, at), average_attn_weights=False),
                     dict(add_bias_kv=True, add_zero_attn=True)),
    "per_head": (lambda m, x, at: m.mha(x, x, x, attn_mask=slopes(m, x, at), need_weights=False)[0], {}),
    "unbatched": (lambda m, x, at: m.mha(x[0], x[0], x[0], attn_mask=grid(m, x, at))[0], {}),
    "padding": (lambda m, x, at: m.mha(x, x, x, attn_mask=grid(m, x, at),
                                       key_padding_mask=torch.arange(at.prod().item()).eq(1).expand(x.shape[0],
                                           -1))[0], {}),
    "reshaped": (lambda m, x, at: m.mha(x.reshape(x.shape[0], at.tolist()[0] * at.tolist()[1], E), x, x,
                                        attn_mask=grid(m, x, at))[0], {}),
    "first": (lambda m, x, at: m.mha(x[:, :1] * torch.ones(at.prod().item(), 1), x, x, need_weights=False)[0], {}),
    "encoder": (lambda m, x, at: m.encoder(x, grid(m, x, at)), {}),
}
SELECTED = {
    "keys": (lambda m, x, keep: m.mha(x, x[:, keep], x[:, keep], need_weights=False)[0], {}),
    "all": (lambda m, x, keep: (lambda y: m.mha(y, y, y, need_weights=False)[0])(x[:, keep]), {}),
    "options": (lambda m, x, keep: m.mha(x, x[:, keep], x[:, keep]), dict(add_bias_kv=True, add_zero_attn=True)),
    "masked": (lambda m, x, keep: m.mha(x, x[:, keep], x[:, keep], attn_mask=torch.eye(x.shape[1])[:, keep],
                                        need_weights=False)[0], {}),
    "padding": (lambda m, x, keep: m.mha(x, x[:, keep], x[:, keep], need_weights=False,
                                         key_padding_mask=(torch.arange(x.shape[1]) % 4 == 0)[keep].expand(
        x.shape[0], -1))[0], dict(add_zero_attn=True)),
    "encoder": (lambda m, x, keep: m.encoder(x[:, keep]), {}),
    "decoder": (lambda m, x, keep: m.decoder(x, x[:, keep],
                                             tgt_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1])), {}),
    "causal": (lambda m, x, keep: (lambda y: m.transformer(x, y,
                                                           tgt_mask=nn.Transformer.generate_square_subsequent_mask(y.shape[1])))(x[:, keep]), {}),
}
GRIDS = [(3, 3, 4), (1, 2, 5), (4, 1, 2), (2, 7, 5), (1, 1, 1)]


@pytest.mark.turns
@pytest.mark.parametrize("case,strict", [*((case, False) for case in FROM_DATA), ("per_head", True)])
def test_sizes_that_come_out_of_a_tensor(case, strict, tmp_path):
    function, options = FROM_DATA[case]
    # torch asserts that an item which equals the length is 2 or more, as the traced length
    sizes = GRIDS[:-1] if case == "padding" else GRIDS
    runs_in_c(Calls(function, **options), lambda n, rows, columns: (torch.randn(n, rows * columns, E),
                                                                    torch.tensor([rows, columns])), sizes,
              ({0: b, 1: s}, None), tmp_path / "m.pt2", strict)


@pytest.mark.turns
@pytest.mark.parametrize("case,strict", [*((case, False) for case in SELECTED), ("masked", True)])
def test_keys_selected_by_a_mask(case, strict, tmp_path):
    function, options = SELECTED[case]
    runs_in_c(Calls(function, **options), lambda n, rows, columns: (torch.randn(n, rows * columns, E),
                                                                    torch.arange(rows * columns) % 3 != 1), GRIDS,
              ({0: b, 1: s}, {0: s}), tmp_path / "m.pt2", strict)


def padding(n, length):
    return torch.arange(length) >= torch.randint(1, length + 1, (n, 1))


TRANSFORMERS = {
    "masks": (lambda m, x, y, xm, ym: m.transformer(x, y, src_mask=xm, tgt_mask=ym),
              lambda n, i, j: (some(i, i), torch.randn(j, j)), ({0: s, 1: s}, {0: t, 1: t})),
    "causal": (lambda m, x, y: m.transformer(x, y,
                                             tgt_mask=nn.Transformer.generate_square_subsequent_mask(y.shape[1])),
               lambda n, i, j: (), ()),
    "hint": (lambda m, x, y, ym: m.transformer(x, y, tgt_mask=ym, tgt_is_causal=True),
             lambda n, i, j: (torch.full((j, j), -INF).triu(1),), ({0: t, 1: t},)),
    "all": (lambda m, x, y, *masks: m.transformer(x, y, *masks),
            lambda n, i, j: (some(i, i), torch.full((j, j), -INF).triu(1), torch.randn(j, i), padding(n, i),
                             torch.randn(n, j), padding(n, i)),
            ({0: s, 1: s}, {0: t, 1: t}, {0: t, 1: s}, {0: b, 1: s}, {0: b, 1: t}, {0: b, 1: s})),
    "encoder": (lambda m, x, y, xm, p: m.encoder(x, xm, p) + y[:, :1], lambda n, i, j: (some(i, i), padding(n, i)),
                ({0: s, 1: s}, {0: b, 1: s})),
    "padded": (lambda m, x, y, p: m.encoder(x, src_key_padding_mask=p) + y[:, :1], lambda n, i, j: (padding(n, i),),
               ({0: b, 1: s},)),
    "decoder": (lambda m, x, y, ym: m.decoder(y, x, tgt_mask=ym), lambda n, i, j: (torch.randn(j, j),),
                ({0: t, 1: t},)),
    "layer": (lambda m, x, y, xm: m.layer(x, xm) + y[:, :1], lambda n, i, j: (torch.randn(i, i),), ({0: s, 1: s},)),
}


@pytest.mark.turns
@pytest.mark.parametrize("case,strict,grad", [*((case, False, False) for case in TRANSFORMERS),
                                              ("masks", False, True), ("masks", True, False), ("padded", True, False)])
def test_transformers_with_masks(case, strict, grad, tmp_path):
    function, masks_of, shapes = TRANSFORMERS[case]
    program = runs_in_c(Calls(function), lambda n, i, j: (torch.randn(n, i, E), torch.randn(n, j, E),
                                                          *masks_of(n, i, j)), [(3, 6, 5), (1, 9, 7), (5, 2, 13),
                        (2, 1, 1), (2, 30, 2)], ({0: b, 1: s}, {0: b, 1: t}, *shapes), tmp_path / "m.pt2", strict, grad)
    assert "aten.scaled_dot_product_attention.default" in {str(n.target) for n in program.graph.nodes}


# ------------------------------------------------------------------ qkv.export:
# what torch refuses becomes possible, or a sentence


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = attention(batch_first=True)

    def forward(self, x, mask=None):
        return self.mha(x, x, x, attn_mask=mask, need_weights=False)[0]


def images(*more):
    model = Calls(lambda m, image, *mask: attend(m, image, "given" if mask else "none", *mask))
    qkv.nn.replace_mha(model)
    return model


@pytest.mark.turns
@pytest.mark.parametrize("name,image,shape,mask", [
    ("root of 1", (2, 3, 28, 14), {0: b, 2: 14 * h, 3: 14 * w}, None),
    ("below the minimum", (2, 3, 28, 14), {2: 14 * Dim("h", min=2, max=6), 3: 14 * Dim("w", min=2, max=6)}, None),
    ("plain from one patch on", (1, 3, 28, 45), {0: b, 2: Dim("H", min=14, max=120), 3: Dim("W", min=14, max=120)},
     None),
    ("mask in the exact range", (2, 3, 28, 42), {0: b, 2: 14 * h, 3: 14 * w}, Dim("hw", min=1, max=64)),
    ("mask left to torch", (2, 3, 28, 42), {0: b, 2: 14 * h, 3: 14 * w}, AUTO),
    ("mask left to torch, root of 1", (2, 3, 28, 14), {0: b, 2: 14 * h, 3: 14 * w}, AUTO),
])
def test_export_of_images(name, image, shape, mask, tmp_path):
    args = [torch.randn(image)]
    if mask is not None:
        area = (image[2] // 14) * (image[3] // 14)
        args.append(some(area, area))
    shapes = ((shape, {0: mask, 1: mask}) if mask is not None else (shape,),)
    report = qkv.export(images(), tuple(args), dynamic_shapes=shapes, path=tmp_path / "m.pt2")
    assert len(report.differences) == 3 and report.max_rel < TOLERANCE


@pytest.mark.parametrize("name,args,shapes,sentence", [
    ("two names for one size", (torch.randn(3, 5, E), some(5, 5)), ({0: b, 1: s}, {0: t, 1: t}),
     r"input 'mask' axis 0 \(t\) always equals input 'x' axis 1 \(s\): declare s for both"),
    ("batch times heads", (torch.randn(3, 5, E), torch.randn(3 * H, 5, 5)),
     ({0: b, 1: s}, {0: Dim("bh", max=40), 1: s, 2: s}),
     r"input 'mask' axis 0 \(bh\) is always 4\*b: declare 4\*b for it"),
    ("batch times heads left to torch", (torch.randn(3, 5, E), torch.randn(3 * H, 5, 5)),
     ({0: b, 1: s}, {0: AUTO, 1: s, 2: s}),
     r"input 'mask' axis 0 is always 4\*b: declare 4\*b for it"),
    ("fixed by the mask", (torch.randn(3, 5, E), some(5, 5)), ({0: b, 1: s}, None),
     r"s is always 5 in this module: leave it out of dynamic_shapes, or make"),
])
def test_export_says_what_to_declare(name, args, shapes, sentence, tmp_path):
    model = Attends()
    qkv.nn.replace_mha(model)
    with pytest.raises(qkv.Error, match=sentence) as e:
        qkv.export(model, args, dynamic_shapes=shapes, path=tmp_path / "m.pt2")
    assert e.value.code == 2 and e.value.__cause__ is not None


def test_export_says_what_range_to_declare(tmp_path):
    hw = Dim("hw", max=20000)
    with pytest.raises(qkv.Error,
                       match=r"\(hw\) is declared as hw <= 20000, and the module needs .*<= 64: declare hw = "
                             r"Dim\('hw', max=64\), or Dim.AUTO"):
        qkv.export(images(), (torch.randn(2, 3, 28, 42), some(6, 6)),
                   dynamic_shapes=(({0: b, 2: 14 * h, 3: 14 * w}, {0: hw, 1: hw}),), path=tmp_path / "m.pt2")


def test_export_names_the_remedy_for_sizes_from_data(tmp_path):
    shapes = (({0: b, 1: s}, None),)
    args = (torch.randn(2, 12, E), torch.tensor([3, 4]))
    model = Calls(FROM_DATA["mask"][0])
    with pytest.raises(qkv.Error,
                       match=r"branches on a data-dependent size or value, .*test_nn.py:\d+\): call "
                             r"qkv.nn.replace_mha\(model\) before"):
        qkv.export(model, args, dynamic_shapes=shapes, path=tmp_path / "m.pt2")
    qkv.nn.replace_mha(model)
    assert qkv.export(model, args, dynamic_shapes=shapes, path=tmp_path / "m.pt2").max_rel < TOLERANCE
    with pytest.raises(qkv.Error, match="torch._check"):
        qkv.export(Calls(lambda m, x, at: x if at[0].item() > 2 else -x), args, dynamic_shapes=shapes,
                   path=tmp_path / "m.pt2")


# ------------------------------------------------------------------ subclasses with a forward of their own


class NoWeights(nn.MultiheadAttention):
    """Meta's MultiheadAttentionWrapper."""

    def forward(self, *args, **kwargs):
        kwargs["need_weights"] = False
        return super().forward(*args, **kwargs)


class Gated(nn.MultiheadAttention):
    """Changes the result, has arguments and state of its own, and counts its calls in a buffer."""

    def __init__(self, *args, gate, **kwargs):
        super().__init__(*args, **kwargs)
        self.gate = nn.Parameter(torch.full((E,), gate))
        self.register_buffer("calls", torch.zeros(()))
        self.extra = {"gate": gate}

    def forward(self, query, key, value, scale, **kwargs):
        self.calls += 1
        out, weights = super().forward(query * 1.0 if scale is None else query * scale, key, value, **kwargs)
        return out * self.gate, weights


class SecondLayer(Gated):
    """A forward that comes to nn.MultiheadAttention's by way of another one's."""

    def forward(self, x):
        return super().forward(x, x, x, 0.5, need_weights=False)[0] + x


class Particular(nn.MultiheadAttention):
    """Takes no tensors without meaning: only its code tells that it calls super().forward."""

    def forward(self, query, memory):
        if query.shape[-2] != memory["tokens"].shape[-2]:
            raise ValueError("sizes")
        return super().forward(query, memory["tokens"], memory["tokens"], need_weights=False)[0]


class Asking(nn.TransformerEncoderLayer):
    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        masks = dict(attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal)
        out, weights = self.self_attn(x, x, x, need_weights=True, **masks)
        return self.dropout1(out) * (1 + weights.amax())

    def forward(self, src, *args, **kwargs):
        return super().forward(src, *args, **kwargs) * 2


class Crossing(nn.TransformerDecoderLayer):
    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        return super()._sa_block(x * 0.5, attn_mask, key_padding_mask, is_causal)

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        return super()._mha_block(x, mem * 2, attn_mask, key_padding_mask, is_causal) + x


class Caller(nn.Module):
    def __init__(self, module, call):
        super().__init__()
        self.module, self.call = module, call

    def forward(self, x, rows):
        x = x[:, :rows.item()]  # a data-dependent size
        return self.call(self.module, x)


WRAPPERS = {
    "no_weights": (lambda: NoWeights(E, H, batch_first=True), lambda m, x: m(x, x, x)[0], 1),
    "gated": (lambda: Gated(E, H, batch_first=True, gate=0.5), lambda m, x: m(x, x, x, 0.7)[0], 1),
    "second_layer": (lambda: SecondLayer(E, H, batch_first=True, gate=2.0), lambda m, x: m(x), 1),
    "particular": (lambda: Particular(E, H, batch_first=True), lambda m, x: m(x, {"tokens": x * 2}), 1),
    "encoder_layer": (lambda: Asking(E, H, 32, batch_first=True, dropout=0.0), lambda m, x: m(x), 1),
    "decoder_layer": (lambda: Crossing(E, H, 32, batch_first=True, dropout=0.0), lambda m, x: m(x, x * 3), 2),
}


@pytest.mark.turns
@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_of_attention(name, tmp_path):
    make, call, count = WRAPPERS[name]
    torch.manual_seed(3)
    model = Caller(make(), call).eval()
    before, keys, state, cls = copy.deepcopy(model), list(model.state_dict()), torch.get_rng_state(), type(model.module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert qkv.nn.replace_mha(model) == count
    assert isinstance(model.module, cls) and list(model.state_dict()) == keys
    assert torch.equal(torch.get_rng_state(), state)  # the trial left no trace
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), before.state_dict().values()))
    attentions = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    assert attentions and all(isinstance(m, qkv.nn.ExportFriendlyMultiheadAttention) for m in attentions)
    x, rows = torch.randn(2, 6, E), torch.tensor(4)
    same(model(x, rows), before(x, rows))
    if name == "no_weights":
        assert torch.equal(model(x, rows), before(x, rows))
    if name == "gated":
        assert model.module.calls == 1 and model.module.extra == {"gate": 0.5}
    again = pickle.loads(pickle.dumps(model.module)).state_dict()
    same(again[keys[0].removeprefix("module.")], model.state_dict()[keys[0]])

    batch = torch.export.Dim("batch")
    qkv.export(model, (x, rows), dynamic_shapes=({0: batch}, {}), path=str(tmp_path / "m.pt2"))
    y, fewer = torch.randn(3, 6, E), torch.tensor(5)
    got = qkv.Model(tmp_path / "m.pt2").run([y.numpy(), fewer.numpy()])["output_0"]
    same(torch.from_numpy(got), before(y, fewer).detach(), 1e-5)


def test_from_nn_mha_of_wrappers():
    mha, x = NoWeights(E, H, batch_first=True), torch.randn(2, 5, E)
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)
    assert type(mha) is NoWeights and isinstance(new, NoWeights) and new(x, x, x)[1] is None
    same(new(x, x, x)[0], mha(x, x, x)[0])
    with pytest.raises(TypeError, match=r"IgnoresSuper has its own forward, which does not call super\(\).forward"):
        qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(IgnoresSuper(E, H, batch_first=True))
