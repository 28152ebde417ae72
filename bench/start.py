#!/usr/bin/env python3
"""Start and memory beside ONNX Runtime: until a session is there, until its first output is,
and what activations take. Interleaved, minimum.

    bench/start.py MODEL.onnx MODEL.pt2 [MODEL.qkv ...]      --qkv build/qkv --rounds 6 --threads 1

The second run is told too: weights are packed for keeps in it. ONNX Runtime does not tell the size of its arena:
anonymous memory of a process of its own after the first run less that before it, weights being there by then.
Of qkv: what it planned, results and scratch.
"""
import argparse
import json
import subprocess
import sys

ORT = """
import re, sys, time
import numpy as np
import onnxruntime as ort
def anon(): return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) / 1024
o = ort.SessionOptions()
o.intra_op_num_threads = int(sys.argv[2])
t = time.perf_counter()
s = ort.InferenceSession(sys.argv[1], o, providers=["CPUExecutionProvider"])
start = time.perf_counter() - t
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
feed = {i.name: np.ones([d if isinstance(d, int) else 1 for d in i.shape], types[i.type]) for i in s.get_inputs()}
before = anon()
t = time.perf_counter()
s.run(None, feed)
first, held, t = time.perf_counter() - t + start, anon() - before, time.perf_counter()
s.run(None, feed)
print(start * 1e3, first * 1e3, (time.perf_counter() - t) * 1e3, held)
"""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("onnx")
    p.add_argument("models", nargs="+")
    p.add_argument("--qkv", default="build/qkv")
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args()
    found = {}
    for _ in range(a.rounds):
        run = subprocess.run([sys.executable, "-c", ORT, a.onnx, str(a.threads)], capture_output=True, text=True,
                             check=True)
        found.setdefault("ONNX Runtime", []).append([float(x) for x in run.stdout.split()])
        for m in a.models:
            run = subprocess.run([a.qkv, "bench", m, "--threads", str(a.threads), "--warmup", "1", "--iterations",
                                  "1", "--json", "-q"], capture_output=True, text=True, check=True)
            d = json.loads(run.stdout)
            found.setdefault(m, []).append([d["load_ms"], d["load_ms"] + d["first_ms"], d["min_ms"],
                                            d["activation_mb"] + d["scratch_mb"]])
    print("| file | session ms | first output ms | second run ms | activations MiB |\n|---|---|---|---|---|")
    for name, rows in found.items():
        best = [min(r[i] for r in rows) for i in range(4)]
        print(f"| {name.rsplit('/', 1)[-1]} | {best[0]:.1f} | {best[1]:.1f} | {best[2]:.1f} | {best[3]:.2f} |")


if __name__ == "__main__":
    main()
