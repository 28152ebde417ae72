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
