"""What qkv.nn's attention takes beyond nn.MultiheadAttention: masks per batch and head, bf16 and f16 inputs against
float32 parameters, and words about batch_first. Compared with eager PyTorch, exported, and run in C."""
import itertools

import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from test_nn import E, H, OPTIONS, attention, inputs, masks, same  # noqa: E402
from tolerance import tolerance  # noqa: E402


@pytest.mark.parametrize("option", ["plain", "separate", "everything"])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_mask_per_batch_and_head(option, kind):
    """(batch, heads, queries, keys) is the same as torch's (batch * heads, queries, keys), and may be broadcast."""
    mha = attention(**OPTIONS[option])
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)
    for batch, spec in itertools.product((3, None), (f"{kind}3d", f"{kind}3d+pad_{kind}")):
        args, options = inputs(mha, "apart", batch, 4, 7), masks(spec, mha, batch, 4, 7)
        split = options | {"attn_mask": options["attn_mask"].unflatten(0, (batch or 1, H))}
        for need in (False, True):
            for got, expected in zip(new(*args, need_weights=need, **split), mha(*args, need_weights=need, **options)):
                same(got, expected)
    one = masks(f"{kind}3d", mha, None, 4, 7)["attn_mask"]
    args = inputs(mha, "apart", 3, 4, 7)
    same(new(*args, attn_mask=one[None])[0], mha(*args, attn_mask=one.repeat(3, 1, 1))[0])


@pytest.mark.parametrize("option", ["plain", "separate", "everything"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_inputs_with_float_parameters(option, dtype):
    """The parameters are cast to the query's dtype: equal to a module that was cast, and float32 gradients."""
    mha = attention(**OPTIONS[option])
    new = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)
    cast = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha).to(dtype)
    kinds = ["self", "cross", "apart"] if mha._qkv_same_embed_dim else ["apart"]
    for kind, spec, need in itertools.product(kinds, ("none", "pad_bool+bool", "float"), (False, True)):
        n, m = (5, 5) if kind == "self" else (4, 7)
        args, options = [a.to(dtype) for a in inputs(mha, "apart", 3, n, m)], masks(spec, mha, 3, n, m)
        if kind == "self":
            args = [args[0]] * 3
        elif kind == "cross":
            args[2] = args[1]
        got, expected = (module(*args, need_weights=need, **options) for module in (new, cast))
        assert got[0].dtype == dtype
        for one, other in zip(got, expected):
            same(one, other, 0)
    got[0].float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in new.parameters())
    with pytest.raises(RuntimeError):  # any other mixture is as wrong as in torch
        new(*[a.double() for a in args])


def test_mask_that_fits_with_the_other_batch_first():
    x, y = torch.randn(2, 5, E), torch.randn(2, 7, E)
    for options in (dict(key_padding_mask=torch.zeros(2, 7)), dict(attn_mask=torch.zeros(5, 7)),
                    dict(attn_mask=torch.zeros(2 * H, 5, 7)), dict(attn_mask=torch.zeros(2, 1, 5, 7))):
        (name, mask), = options.items()
        for batch_first in (False, True):
            new = qkv.nn.ExportFriendlyMultiheadAttention(E, H, batch_first=batch_first)
            q, k = (x.transpose(0, 1), y.transpose(0, 1)) if batch_first else (x, y)
            with pytest.raises(RuntimeError) as e:
                new(q, k, k, **options)
            assert str(e.value) == (
                f"{name} is {tuple(mask.shape)}, which does not fit 5 batches of 2 queries and 2 keys: with "
                f"batch_first={batch_first} query, key and value are "
                f"{'(batch, length, width)' if batch_first else '(length, batch, width)'}; the mask fits with "
                f"batch_first={not batch_first}")
    with pytest.raises(RuntimeError, match="expand"):  # fits neither way
        new(x, x, x, key_padding_mask=torch.zeros(3, 3))


@pytest.mark.parametrize("need", [False, True])
def test_mask_per_batch_and_head_exports(need, tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mha = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(attention(batch_first=True))

        def forward(self, x, mask):
            return self.mha(x, x, x, need_weights=need, attn_mask=mask)[0]

    b, n = torch.export.Dim("b"), torch.export.Dim("n")
    report = qkv.export(Model(), (torch.randn(2, 5, E), torch.randn(2, H, 5, 5)), path=tmp_path / "m.pt2",
                        dynamic_shapes=({0: b, 1: n}, {0: b, 2: n, 3: n}))
    assert len(report.differences) == 3 and report.max_rel < tolerance("TORCH")["f32"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_inputs_with_float_parameters_export(dtype, tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            mha = attention(batch_first=True, add_bias_kv=True)
            self.mha = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)

        def forward(self, x, mask):
            return self.mha(x, x, x, need_weights=False, attn_mask=mask)[0]

    n = torch.export.Dim("n")
    mask = torch.randn(2, H, 5, 5).to(dtype)
    report = qkv.export(Model(), (torch.randn(2, 5, E).to(dtype), mask), path=tmp_path / "m.pt2",
                        dynamic_shapes=({1: n}, {2: n, 3: n}))
    assert len(report.differences) == 3
