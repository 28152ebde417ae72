#!/usr/bin/env python3
"""Start and memory beside ONNX Runtime: until a session is there, until its first output is, and what activations take. One thread, interleaved, minimum.

    bench/start.py MODEL.onnx MODEL.pt2 [MODEL.qkv ...]      --qkv build/qkv --rounds 6

ONNX Runtime does not tell the size of its arena: anonymous memory of a process of its own after the first run less that before it, weights being there by then.
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
o.intra_op_num_threads = 1
t = time.perf_counter()
s = ort.InferenceSession(sys.argv[1], o, providers=["CPUExecutionProvider"])
start = time.perf_counter() - t
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
feed = {i.name: np.ones([d if isinstance(d, int) else 1 for d in i.shape], types[i.type]) for i in s.get_inputs()}
before = anon()
t = time.perf_counter()
s.run(None, feed)
print(start * 1e3, (time.perf_counter() - t + start) * 1e3, anon() - before)
"""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("onnx")
    p.add_argument("models", nargs="+")
    p.add_argument("--qkv", default="build/qkv")
    p.add_argument("--rounds", type=int, default=6)
    a = p.parse_args()
    found = {}
    for _ in range(a.rounds):
        run = subprocess.run([sys.executable, "-c", ORT, a.onnx], capture_output=True, text=True, check=True)
        found.setdefault(a.onnx, []).append([float(x) for x in run.stdout.split()])
        for m in a.models:
            run = subprocess.run([a.qkv, "bench", m, "--threads", "1", "--warmup", "2", "--iterations", "1", "--json", "-q"], capture_output=True, text=True, check=True)
            d = json.loads(run.stdout)
            found.setdefault(m, []).append([d["load_ms"], d["load_ms"] + d["first_ms"], d["activation_mb"] + d["scratch_mb"]])
    print("| file | session ms | first output ms | activations MiB |\n|---|---|---|---|")
    for name, rows in found.items():
        best = [min(r[i] for r in rows) for i in range(3)]
        print(f"| {name.rsplit('/', 1)[-1]} | {best[0]:.1f} | {best[1]:.1f} | {best[2]:.2f} |")


if __name__ == "__main__":
    main()
