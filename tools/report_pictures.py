#!/usr/bin/env python3
"""Draws docs/report/*.png: pages of a small BERT with random weights, in headless Chromium.

    .venv/bin/python tools/report_pictures.py          needs torch, transformers, pillow and Chromium
"""
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]
from browser import Page  # noqa: E402

QKV, OUT = ROOT / "build/qkv", ROOT / "docs/report"


def bert(path):
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
                                     vocab_size=200, max_position_embeddings=128)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    model.set_attn_implementation("eager")
    sizes = {0: torch.export.Dim("batch", max=16), 1: torch.export.Dim("seq", max=128)}
    args = (torch.randint(0, 200, (2, 16)), torch.ones(2, 16, dtype=torch.long))
    dynamic = {"input_ids": sizes, "attention_mask": sizes}
    program = torch.export.export(model, args, dynamic_shapes=dynamic, strict=False)
    torch.export.save(program, path)


def draw(page, name):
    """Few colours are enough, and keep the files small."""
    path = OUT / f"{name}.png"
    page.settle()
    page.shot(path)
    Image.open(path).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path.relative_to(ROOT), path.stat().st_size)


def main():
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        model, html = pathlib.Path(folder, "bert.pt2"), pathlib.Path(folder, "bert.html")
        bert(model)
        sizes = ["-D", "batch=4", "-D", "seq=64", "--runs", "50"]
        subprocess.run([QKV, "report", model, *sizes, "-o", html, "-q"], check=True)
        with Page(html, 1280, 760, tab="graph") as page:
            page.run("graph.show(1, 'matmul_1')")
            draw(page, "graph")
            page.open("attention")
            draw(page, "attention")
        with Page(html, 1280, 1000, tab="time") as page:
            draw(page, "time")
        with Page(html, 1280, 640, dark=True, tab="memory") as page:
            draw(page, "memory")


if __name__ == "__main__":
    main()
