"""Gradients of models whose sizes are data, or whose own code computes in float32 under float64: torch.autograd's."""
import contextlib
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import interpolate  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))
import generate  # noqa: E402


class Positions(nn.Module):
    """SigLIP 2's: one table, resized for each picture to the number of patches that it has, padded with the first."""

    def __init__(self, pictures):
        super().__init__()
        self.pictures, self.table, self.length = pictures, nn.Parameter(torch.randn(25, 6)), 24

    def forward(self, patches, shapes):
        table = self.table.reshape(5, 5, 6).permute(2, 0, 1)[None]
        out = torch.empty(self.pictures, self.length, 6)
        for i in range(self.pictures):
            height, width = shapes[i].tolist()
            torch._check(height >= 1)
            torch._check(width >= 1)
            torch._check(height * width <= self.length)
            size = interpolate(table, size=(height, width), mode="bilinear", align_corners=False, antialias=True)
            rows = size.reshape(6, height * width).transpose(0, 1)
            out[i, :height * width] = rows
            out[i, height * width:] = rows[0]
        return ((patches + out).sigmoid() * torch.arange(1.0, 7)).sum()


def gradients(model, inputs, names):
    results = model.run([x.detach().numpy() for x in inputs])
    return [torch.as_tensor(results[f"grad.{n}"]) for n in names]


@pytest.mark.parametrize("pictures", [1, 2, 3])
def test_interpolates_of_sizes_that_are_data(pictures, tmp_path):
    torch.manual_seed(0)
    module = Positions(pictures)
    inputs = lambda *sizes: (torch.randn(pictures, 24, 6), torch.tensor(sizes[:pictures]))
    torch.export.save(torch.export.export(module, inputs((3, 4), (2, 6), (4, 4))), tmp_path / "m.pt2")
    joint = qkv.Model(tmp_path / "m.pt2").joint()
    joint.save(tmp_path / "j.pt2")
    for given in (inputs((3, 4), (2, 6), (4, 4)), inputs((6, 4), (1, 1), (3, 7)), inputs((5, 2), (2, 12), (1, 3))):
        want = torch.autograd.grad(module(*given), module.table)
        loaded = torch.export.load(tmp_path / "j.pt2").module()(*given)
        for got in (gradients(joint, given, ["table"]), gradients(qkv.Model(tmp_path / "j.pt2"), given, ["table"]),
                    loaded[1:]):
            torch.testing.assert_close(got[0].detach(), want[0], rtol=2e-5, atol=2e-5)


def text(kind, config, **more):
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    config = getattr(transformers, config)(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                           pad_token_id=0, **more)
    return getattr(transformers, kind)(config)


FLOAT32_PARTS = {
    "rms norms": lambda: text("LlamaModel", "LlamaConfig", num_attention_heads=4, num_key_value_heads=2,
                              use_cache=False),
    "rotary embedding": lambda: text("ModernBertModel", "ModernBertConfig", num_attention_heads=4),
    "decay": lambda: text("MambaModel", "MambaConfig", state_size=4, use_cache=False)}


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids)[0].sigmoid().double().mean()


@pytest.mark.turns
@pytest.mark.parametrize("part", FLOAT32_PARTS)
def test_float64_around_parts_in_float32(part, tmp_path):
    """Where a model casts to float32 within float64, both sides' gradients round there; the same model in float64
    throughout has autograd's to float64's last digits."""
    torch.manual_seed(0)
    module, ids = Loss(FLOAT32_PARTS[part]().double().eval()), torch.randint(1, 50, (2, 7))
    names = [n for n, p in module.named_parameters()]
    for throughout, most in ((False, 2e-5), (True, 2e-12)):
        with generate.wide_throughout() if throughout else contextlib.nullcontext():
            want = torch.autograd.grad(module(ids), list(module.parameters()))
            torch.export.save(torch.export.export(module, (ids,), strict=False), tmp_path / "m.pt2")
        got = gradients(qkv.Model(tmp_path / "m.pt2").joint(), (ids,), names)
        peak = max(g.abs().max() for g in want)
        for name, g, w in zip(names, got, want, strict=True):
            assert g.dtype == torch.float64
            assert (g - w).abs().max() <= most * torch.maximum(w.abs().max(), 1e-3 * peak), name
