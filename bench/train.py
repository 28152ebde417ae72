#!/usr/bin/env python3
"""Training beside PyTorch: the demo's Vision Transformer on scikit-learn's digits, from the same weights,
in the same order of examples.

    bench/train.py                            loss curves, accuracy, and the time of a step:
                                              PyTorch eager with foreach and with fused AdamW, and qkv
    bench/train.py --epochs 3 --threads 2 --json

Epochs of the three take turns in one process; a step's time is the least epoch's over its steps. Dropout is off, so
that the curves can be compared: the largest difference of a step's loss is printed. Needs torch, scikit-learn.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "demo")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--cpu-time", action="store_true",
                   help="time of the processor instead of the clock's: for one thread on a machine that others use")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    clock = time.process_time if o.cpu_time else time.perf_counter
    os.environ["QKV_NUM_THREADS"] = str(o.threads)
    import numpy as np
    import torch
    from sklearn.datasets import load_digits
    from torch.export import Dim
    from train_digits import DigitsViT

    import qkv

    torch.set_num_threads(o.threads)
    torch.backends.mha.set_fastpath_enabled(False)
    digits = load_digits()
    x, y = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None], torch.tensor(digits.target)
    test = torch.arange(len(x)) % 5 == 0
    xs, ys, xv, yv = x[~test], y[~test], x[test], y[test]

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(o.seed)
            self.model = DigitsViT()

        def forward(self, image, target):
            logits = self.model(image)
            return torch.nn.functional.cross_entropy(logits, target), logits

    with tempfile.TemporaryDirectory() as d:
        batch = Dim("batch", min=1, max=4096)
        torch.export.save(torch.export.export(WithLoss().eval(), (xs[:3], ys[:3]),
                                              dynamic_shapes=({0: batch}, {0: batch})), d + "/m.pt2")
        qkv.joint(d + "/m.pt2", loss="output_0", path=d + "/j.pt2")
        trainer = qkv.Trainer(d + "/j.pt2", lr=o.lr, seed=o.seed, threads=o.threads)
        g, losses, seconds, steps = torch.Generator().manual_seed(o.seed), {}, {}, 0
        modules = {name: WithLoss().eval() for name in ("torch foreach", "torch fused")}
        optimizers = {name: torch.optim.AdamW(m.parameters(), o.lr, **{name.split()[1]: True})
                      for name, m in modules.items()}
        feeds = {"image": xs.numpy(), "target": ys.numpy()}
        for _ in range(o.epochs):
            order = torch.randperm(len(xs), generator=g).split(o.batch)
            steps = len(order)
            for name, m in modules.items():
                start = clock()
                for rows in order:
                    loss, _ = m(xs[rows], ys[rows])
                    optimizers[name].zero_grad()
                    loss.backward()
                    optimizers[name].step()
                    losses.setdefault(name, []).append(loss.item())
                seconds.setdefault(name, []).append(clock() - start)
            start = clock()
            for rows in order:
                i = rows.numpy()
                losses.setdefault("qkv", []).append(trainer.step({k: v[i] for k, v in feeds.items()}).loss)
            seconds.setdefault("qkv", []).append(clock() - start)
        with torch.no_grad():
            accuracy = {name: (m(xv, yv)[1].argmax(1) == yv).float().mean().item() for name, m in modules.items()}
        found = trainer.model().run({"image": xv.numpy(), "target": yv.numpy()})["output_1"]
        accuracy["qkv"] = float((found.argmax(1) == yv.numpy()).mean())
    apart = float(np.abs(np.array(losses["qkv"]) - np.array(losses["torch foreach"])).max())
    ms = {name: 1e3 * min(s) / steps for name, s in seconds.items()}
    result = {"threads": o.threads, "epochs": o.epochs, "batch": o.batch, "step_ms": ms, "accuracy": accuracy,
              "largest_loss_difference": apart, "last_loss": {k: v[-1] for k, v in losses.items()}}
    if o.json:
        print(json.dumps(result))
        return
    for name in ms:
        print(f"{name:14} {ms[name]:8.2f} ms a step, accuracy {accuracy[name]:.4f}, last loss {losses[name][-1]:.5f}")
    print(f"qkv / best of torch: {min(v for k, v in ms.items() if k != 'qkv') / ms['qkv']:.2f} x; largest difference "
          f"of a step's loss {apart:.1e}")


if __name__ == "__main__":
    main()
