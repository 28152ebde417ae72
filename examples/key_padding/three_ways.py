#!/usr/bin/env python3
"""Step 5 of docs/KEY_PADDING_MASK.md: what padding costs in three ways, measured.

    python examples/key_padding/three_ways.py [--width 256] [--layers 4] [--threads 2]

Batches of 8 sequences, most of them short (lengths log-normal, at most 256), through the same encoder:
  fixed     exported for a batch of 8 and a length of 256: every batch is padded to 256
  dynamic   batch and length variable, padded to the longest of the batch, the mask an input
  inside    the same, the mask made in the graph from the lengths
  one by one   without padding: a batch of 1 each (for comparison)
All results are compared with eager PyTorch on each sequence alone. Times are the minimum of five runs over all batches.
"""
import argparse
import os
import sys
import tempfile
import time
import warnings

import numpy as np
import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import qkv  # noqa: E402

LONGEST, BATCH, BATCHES = 256, 8, 6


class Encoder(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, src, padding):
        return self.encoder(src, src_key_padding_mask=padding)


class Inside(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.of = of

    def forward(self, src, lengths):
        return self.of(src, torch.arange(src.shape[1])[None, :] >= lengths[:, None])


def save(module, args, dynamic, path):
    torch.export.save(torch.export.export(module, args, dynamic_shapes=dynamic), path)
    return qkv.Model(path, threads=options.threads)


def padded(sequences, length):
    x = np.zeros((len(sequences), length, options.width), np.float32)
    for row, s in zip(x, sequences):
        row[:len(s)] = s
    return x


def mask_of(lengths, length):
    return np.arange(length)[None, :] >= lengths[:, None]


def fastest(way, batches):
    way(batches[0])
    times, results = [], None
    for _ in range(5):
        begin = time.perf_counter()
        results = [way(b) for b in batches]
        times.append(time.perf_counter() - begin)
    return min(times), results


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    eager = Encoder(options.width, options.layers).eval()
    lengths = np.clip(rng.lognormal(3.7, 0.7, (BATCHES, BATCH)), 4, LONGEST).astype(np.int64)
    batches = [[rng.standard_normal((n, options.width), dtype=np.float32) for n in row] for row in lengths]
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        src, mask = torch.zeros(BATCH, LONGEST, options.width), torch.zeros(BATCH, LONGEST, dtype=torch.bool)
        both = {0: batch, 1: length}
        fixed = save(eager, (src, mask), None, os.path.join(folder, "fixed.pt2"))
        dynamic = save(eager, (src[:2, :9].contiguous(), mask[:2, :9].contiguous()), (both, both),
                       os.path.join(folder, "dynamic.pt2"))
        inside = save(Inside(eager), (src[:2, :9].contiguous(), torch.tensor([9, 4])), (both, {0: batch}),
                      os.path.join(folder, "inside.pt2"))

    def longest(b):
        return max(map(len, b))

    def sizes(b):
        return np.array([len(s) for s in b])

    ways = {
        "fixed": lambda b: fixed.run({"src": padded(b, LONGEST), "padding": mask_of(sizes(b), LONGEST)})["output_0"],
        "dynamic": lambda b: dynamic.run({"src": padded(b, longest(b)),
                                          "padding": mask_of(sizes(b), longest(b))})["output_0"],
        "inside": lambda b: inside.run({"src": padded(b, longest(b)), "lengths": sizes(b)})["output_0"],
        "one by one": lambda b: [dynamic.run({"src": s[None], "padding": np.zeros((1, len(s)), bool)})["output_0"][0]
                                 for s in b],
    }
    used = int(lengths.sum())
    computed = {"fixed": BATCHES * BATCH * LONGEST, "one by one": used}
    with torch.no_grad():
        alone = [[eager.encoder(torch.from_numpy(s)[None])[0].numpy() for s in b] for b in batches]
    print(f"{'way':<12}{'ms per batch':>13}{'of fixed':>10}{'positions used':>16}{'largest difference':>20}")
    base = None
    for name, way in ways.items():
        seconds, results = fastest(way, batches)
        ms = 1e3 * seconds / BATCHES
        base = base or ms
        worst = max(float(np.abs(np.asarray(y)[:len(w)] - w).max()) for r, a in zip(results, alone)
                    for y, w in zip(r, a))
        share = used / computed.get(name, sum(BATCH * longest(b) for b in batches))
        print(f"{name:<12}{ms:13.2f}{ms / base:10.2f}{100 * share:15.0f}%{worst:20.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    main()
