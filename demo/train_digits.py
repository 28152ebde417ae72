#!/usr/bin/env python3
"""Trains the demo's Vision Transformer on scikit-learn's digits and exports it:
digits_vit.pt2, labels.txt, digits/*.png.

    python demo/train_digits.py        (needs torch 2.13, scikit-learn, Pillow; about a minute on one core)

Input: (batch, 1, 8, 8) float32 in [0, 1], a picture of one handwritten digit; output: (batch, 10) logits. The test
part of the data (every fifth picture) is never trained on; twenty of its pictures become the demo's PNG files, with
the true label in their names.
"""
import json
import os
import zipfile

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))


class DigitsViT(nn.Module):
    """Patches of 2 x 2, a class token, four pre-norm encoder layers of nn.MultiheadAttention."""

    def __init__(self, embed=48, heads=4, layers=4):
        super().__init__()
        self.patch = nn.Conv2d(1, embed, 2, 2)
        self.cls = nn.Parameter(torch.zeros(1, 1, embed))
        self.pos = nn.Parameter(torch.randn(1, 17, embed) * 0.02)
        layer = nn.TransformerEncoderLayer(embed, heads, 2 * embed, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(embed)
        self.head = nn.Linear(embed, 10)

    def forward(self, image):
        x = self.patch(image * 2 - 1).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.encoder(x)[:, 0]))


def jittered(x, generator):
    """The training set is small: its pictures get noise, and a tenth of them is moved by one pixel."""
    y = x + 0.08 * torch.randn(x.shape, generator=generator)
    move = torch.rand(len(x), generator=generator) < 0.1
    return torch.where(move[:, None, None, None], torch.roll(y, int(torch.randint(-1, 2, (1,), generator=generator)),
                                                             3), y)


def train(model, x, y, epochs=90, batch=64):
    g = torch.Generator().manual_seed(0)
    steps = epochs * ((len(x) + batch - 1) // batch)
    opt = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.05)
    plan = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, steps)
    model.train()
    for _ in range(epochs):
        for i in torch.randperm(len(x), generator=g).split(batch):
            loss = nn.functional.cross_entropy(model(jittered(x[i], g)), y[i], label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            plan.step()
    return model.eval()


def without_traces(path):
    """The same archive without node metadata: stack traces name files of this machine."""
    with zipfile.ZipFile(path) as z:
        entries = [(i.filename, z.read(i)) for i in z.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for name, data in entries:
            if name.endswith("models/model.json"):
                program = json.loads(data)
                for node in program["graph_module"]["graph"]["nodes"]:
                    node["metadata"] = {}
                data = json.dumps(program, separators=(",", ":")).encode()
            z.writestr(zipfile.ZipInfo(name), b"" if "sample_inputs" in name else data)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_digits()
    x = torch.tensor(digits.images / 16.0, dtype=torch.float32)[:, None]
    y = torch.tensor(digits.target)
    test = torch.arange(len(x)) % 5 == 0
    model = train(DigitsViT(), x[~test], y[~test])
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        right = (model(x[test]).argmax(1) == y[test]).float().mean().item()
        program = torch.export.export(model, (x[:3],), dynamic_shapes={"image": {0: torch.export.Dim("batch", min=1,
            max=1024)}}, strict=False)
    print(f"accuracy on {int(test.sum())} test pictures: {right:.4f}")
    path = os.path.join(HERE, "digits_vit.pt2")
    torch.export.save(program, path)
    without_traces(path)
    with open(os.path.join(HERE, "labels.txt"), "w") as f:
        f.writelines(f"{i}\n" for i in range(10))
    os.makedirs(os.path.join(HERE, "digits"), exist_ok=True)
    for k, i in enumerate(torch.nonzero(test).flatten().tolist()[:20]):
        pixels = np.rint(digits.images[i] / 16 * 255).astype(np.uint8)
        Image.fromarray(pixels, "L").save(os.path.join(HERE, "digits", f"{k:02d}_label{int(y[i])}.png"))


if __name__ == "__main__":
    main()
