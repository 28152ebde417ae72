#!/usr/bin/env python3
"""How far bf16 is from float32: qkv's outputs and torch autocast's, both against eager float32,
for the models of bench/models.py.

  accuracy.py [--models models,padded] [--draws 3] [--qkv build/qkv] [--cache DIR] [--threads 1] [--markdown OUT]
  [--json OUT]

Two measures over all outputs and several draws of inputs together: max = max |a - b| / max |b|, and rms = sqrt(mean
(a - b)^2) / sqrt(mean b^2); an output of few numbers says little by itself: one draw of four logits of CLIP can be
worse than autocast's while its embeddings are better. Where a model has a key padding mask, only real positions
count: what is computed for padding does not count. Exit code 1 when qkv's max is above 2e-2 or its rms above torch
autocast's: the largest of few numbers is luck, their mean square is not; both are printed.
"""
import argparse, json, os, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import machine, models, peers, prepare

LIMIT = 2e-2


def real_rows(inputs, shape):
    """A mask (batch, seq) of the inputs that the output's first two axes are padded by; None when there is none."""
    import torch
    for x in inputs:
        if x.dtype == torch.long and x.shape == shape[:2] and bool(((x == 0) | (x == 1)).all()):
            return x.bool()
    return None


def drawn(x, i):
    """Draw i of the inputs x: other values, the same tokens in another order, the same masks; draw 0 is x."""
    import torch
    if i == 0:
        return x
    g = torch.Generator().manual_seed(i)
    is_mask = lambda t: t.dtype == torch.bool or bool(((t == 0) | (t == 1)).all())
    return tuple(torch.randn(t.shape, generator=g) if t.is_floating_point() else t if is_mask(t)
                 else t[..., torch.randperm(t.shape[-1], generator=g)]
                 for t in x)


def eager(m, x):
    """(float32 outputs, autocast's outputs)"""
    import torch
    with torch.no_grad():
        f = m(*x)
        with torch.autocast("cpu", torch.bfloat16):
            h = m(*x)
    as_list = lambda y: [t.float() for t in (y if isinstance(y, tuple) else (y,))]
    return as_list(f), as_list(h)


def run(qkv, base, x, dtype, threads, skip):
    from safetensors.torch import load_file, save_file
    with tempfile.TemporaryDirectory() as d:
        out, given = os.path.join(d, "y.safetensors"), os.path.join(d, "x.safetensors")
        save_file({n: t.contiguous() for n, t in zip(json.load(open(base + ".json"))["inputs"], x)}, given)
        r = subprocess.run([qkv, "run", base + ".pt2", "-i", given, "-o", out, "--threads", str(threads), "--dtype",
                            dtype, "-q"]
                           + (["--skip-padding"] if skip else []), capture_output=True, text=True)
        if r.returncode:
            raise RuntimeError(peers.last_line(r.stderr))
        y = load_file(out)
    return [t.float() for _, t in sorted(y.items(), key=lambda e: int(e[0].rsplit("_", 1)[-1]))]


class Errors:
    """Of all that was added."""
    def __init__(self):
        self.worst = self.power = self.error = self.peak = 0.0

    def add(self, got, want, inputs):
        for a, b in zip(got, want):
            rows = real_rows(inputs, b.shape)
            a, b = (a, b) if rows is None else (a[rows], b[rows])
            a, b = a.double(), b.double()
            self.worst, self.peak = max(self.worst, float((a - b).abs().max())), max(self.peak, float(b.abs().max()))
            self.error, self.power = self.error + float(((a - b) ** 2).sum()), self.power + float((b ** 2).sum())

    def both(self):
        return self.worst / self.peak, (self.error / self.power) ** 0.5


def measure(name, kinds, a, failed):
    """{label: (max, rms)} of one model"""
    base = prepare.floats(name, a.cache)
    m, x = models.build(name)
    m.eval()
    sums = {label: Errors() for label in ["torch bf16"] + [k[0] for k in kinds]}
    broken = set()
    for i in range(a.draws):
        inputs = drawn(x, i)
        want, half = eager(m, inputs)
        sums["torch bf16"].add(half, want, inputs)
        for label, dtype, skip in kinds:
            try:
                if label not in broken:
                    sums[label].add(run(a.qkv, base, inputs, dtype, a.threads, skip), want, inputs)
            except RuntimeError as e:
                broken.add(label)
                failed.append(f"{name}: {label}: {e}")
    return {label: s.both() for label, s in sums.items() if label not in broken}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default="sdpa,models,padded")
    p.add_argument("--draws", type=int, default=3)
    p.add_argument("--qkv", default="build/qkv")
    p.add_argument("--cache", default=prepare.CACHE)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--skip-padding", action="store_true",
                   help="also qkv --skip-padding, for models with a padding mask")
    p.add_argument("--markdown")
    p.add_argument("--json")
    a = p.parse_args()
    os.makedirs(a.cache, exist_ok=True)
    rows, failed = {}, []
    plain = [("qkv f32", "f32", False), ("qkv bf16", "bf16", False)]
    skipping = [("qkv f32 skip", "f32", True), ("qkv bf16 skip", "bf16", True)]
    for name in models.names(a.models):
        padded = "padded" in name or "_pad_" in name
        row = rows[name] = measure(name, plain + (skipping if a.skip_padding and padded else []), a, failed)
        for label, (most, rms) in row.items():
            if label.startswith("qkv bf16") and (most > LIMIT or rms > row["torch bf16"][1]):
                failed.append(f"{name}: {label} max {most:.2e} (limit {LIMIT:g}), rms {rms:.2e} (torch autocast "
                              f"{row['torch bf16'][1]:.2e})")
        print(f"{name:34s} " + "  ".join(f"{k} max {m:.2e} rms {r:.2e}" for k, (m, r) in row.items()), flush=True)
    lines = [f"Machine: {machine.describe()}.", "", f"    {' '.join(['bench/accuracy.py'] + sys.argv[1:])}", "",
             "| model | torch bf16 max | rms | qkv bf16 max | rms | qkv f32 max |", "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        t, h, f = row["torch bf16"], row.get("qkv bf16", (float("nan"),) * 2), row.get("qkv f32", (float("nan"),) * 2)
        lines.append(f"| {name} | {t[0]:.2e} | {t[1]:.2e} | {h[0]:.2e} | {h[1]:.2e} | {f[0]:.1e} |")
    if a.markdown:
        open(a.markdown, "w").write("\n".join(lines) + "\n")
    if a.json:
        json.dump(rows, open(a.json, "w"), indent=1)
    for f in failed:
        print(f"FAILED {f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
