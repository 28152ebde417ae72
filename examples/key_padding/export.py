#!/usr/bin/env python3
"""Step 1 of docs/KEY_PADDING_MASK.md: nn.TransformerEncoder with src_key_padding_mask,
exported for any batch and any length.

    python examples/key_padding/export.py FOLDER [--float] [--inside]

writes FOLDER/encoder.pt2, sequences of different lengths (sequences.safetensors: "0", "1", ... each (length, 32)),
and the results of eager PyTorch for each of them alone, without padding (expected.safetensors). --float: the mask is
float, -inf where padded, instead of bool. --inside: the model takes lengths and makes the mask itself.
"""
import os
import sys

import torch
from safetensors.torch import save_file
from torch import nn

WIDTH, HEADS, LAYERS, LENGTHS = 32, 4, 2, (5, 9, 1, 7)


class Encoder(nn.Module):
    """Stands in for a trained model."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1, activation="gelu", batch_first=True)
        # Nested tensors are a fast path of eager PyTorch: they drop padded positions, and cannot be exported.
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, src, padding):
        return self.encoder(src, src_key_padding_mask=padding)


class InsideEncoder(Encoder):
    """The mask inside the graph: from the lengths."""

    def forward(self, src, lengths):
        return super().forward(src, torch.arange(src.shape[1])[None, :] >= lengths[:, None])


def main():
    folder = next(a for a in sys.argv[1:] if not a.startswith("-"))
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(0)
    model = (InsideEncoder if "--inside" in sys.argv else Encoder)().eval()
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    src = torch.randn(2, 6, WIDTH)
    if "--inside" in sys.argv:
        second, dynamic = torch.tensor([6, 4]), {0: batch}
    else:
        second, dynamic = torch.arange(6)[None, :] >= torch.tensor([6, 4])[:, None], {0: batch, 1: length}
        if "--float" in sys.argv:
            second = torch.zeros(2, 6).masked_fill(second, float("-inf"))
    program = torch.export.export(model, (src, second), dynamic_shapes=({0: batch, 1: length}, dynamic))
    torch.export.save(program, os.path.join(folder, "encoder.pt2"))

    sequences = [torch.randn(n, WIDTH) for n in LENGTHS]
    with torch.no_grad():
        alone = [model.encoder(s[None])[0] for s in sequences]
    save_file({str(i): s for i, s in enumerate(sequences)}, os.path.join(folder, "sequences.safetensors"))
    save_file({str(i): y.contiguous() for i, y in enumerate(alone)}, os.path.join(folder, "expected.safetensors"))


if __name__ == "__main__":
    main()
