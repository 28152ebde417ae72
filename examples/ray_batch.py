#!/usr/bin/env python3
"""Runs a model over a folder of images with two Ray workers.
Each opens the file once, and they share its mapped weights.

    pip install "ray[data]" pillow
    PYTHONPATH=python python examples/ray_batch.py                  the demo's digits; or pass MODEL FOLDER
"""
import os
import sys

import numpy as np
import ray

import qkv

DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "demo")


def prepare(batch):
    """Pixels (rows, 8, 8) of 0 to 255 -> the model's input."""
    return {"image": batch["image"][:, None].astype(np.float32) / 255, "path": batch["path"]}


def main(model=os.path.join(DEMO, "digits_vit.pt2"), folder=os.path.join(DEMO, "digits")):
    """{path: digit}"""
    found = ray.data.read_images(folder, mode="L", include_paths=True).map_batches(prepare).map_batches(
        qkv.BatchPredictor,
        fn_constructor_kwargs={"path": os.path.abspath(model), "outputs": {"output_0": "scores"},
                               "passthrough": ["path"], "threads": 1},
        batch_size=8, concurrency=2, num_cpus=0.5)  # half a CPU each leaves one for reading on a machine with two
    return {row["path"]: int(row["scores"].argmax()) for row in found.iter_rows()}


if __name__ == "__main__":
    for path, digit in sorted(main(*sys.argv[1:]).items()):
        print(f"{digit}  {path}")
