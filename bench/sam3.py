#!/usr/bin/env python3
"""SAM 3 at full size: one picture, one prompt, beside PyTorch; where the time goes, stage by stage.

    python -m qkv.recipes.sam3 -o full.pt2          (3.4 GB; random weights, or --checkpoint DIR)
    bench/sam3.py full.pt2 --threads 2 --markdown out.md
    qkv quantize full.pt2 --dynamic -o int8.pt2 && bench/sam3.py full.pt2 --int8 int8.pt2 --peers qkv,qkv-bf16,qkv-int8

Each peer is a process of its own: it opens the file, runs a picture of noise with one prompt three times, and (qkv)
with another prompt on the same picture, which is kept. A figure is the least of the three runs: qkv's first packs
weights on the way, its second to keep them; the first is told, too. PyTorch runs the
same file by torch.export.load, in float32 and under bf16 autocast; differences are the largest from its float32. With
random weights the sign of a mask's logit says little, so that IoU is given at 0, the model's own threshold, and at the
median of each mask of the floats, where half of all pixels are above, and most are near it. Peak
memory is the process's largest resident size; PyTorch's counts what loading takes, the other figure is what it holds
after the runs.
Stages are told by the names of the weights (qkv_session_on_progress):
what has no weights counts to the stage before it."""
import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ["torch", "torch-bf16", "qkv", "qkv-bf16", "qkv-int8"]
STAGES = {"vision": "image encoder", "text": "text encoder", "geometry": "geometry", "detr_encoder": "fusion encoder",
          "detr_decoder": "decoder", "dot": "decoder", "mask": "mask head"}
RUNS = 3
OUTPUTS = ("pred_logits", "pred_boxes", "pred_masks", "presence_logit_dec")


def inputs(a, prompts):
    if a.inputs:
        given = np.load(a.inputs)
        return {"patch_batch": given["patch_batch"][:1], "token_ids": np.resize(given["token_ids"], (prompts, 32))}
    r = np.random.default_rng(1)
    ids = np.zeros((prompts, 32), np.int64)
    for i in range(prompts):
        ids[i, :6] = [a.vocab - 2, *r.integers(a.vocab // 2, a.vocab - 2, 4), a.vocab - 1]
    return {"patch_batch": r.standard_normal((1, 3, a.size, a.size)).astype(np.float32).clip(-1, 1), "token_ids": ids}


def memory():
    """Largest and present resident size, MiB."""
    lines = dict(line.split(":") for line in open("/proc/self/status"))
    return [int(lines[k].split()[0]) / 1024 for k in ("VmHWM", "VmRSS")]


def stage_of(module):
    return next((name for prefix, name in STAGES.items() if module.startswith(prefix)), module or "(none)")


def run_qkv(a, result):
    sys.path.insert(0, str(ROOT / "python"))
    import qkv
    from qkv import _lib
    start = time.perf_counter()
    m = qkv.Model(a.int8 if a.peer.endswith("int8") else a.model, threads=a.threads,
                  compute="bf16" if a.peer.endswith("bf16") else None)
    result["open"] = time.perf_counter() - start
    seen = []
    told = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p,
                            ctypes.c_double)(lambda _, module, done: seen.append((time.perf_counter(), module)))
    on_progress = _lib.lib().qkv_session_on_progress
    on_progress.argtypes, on_progress.restype = [ctypes.c_void_p, type(told), ctypes.c_void_p], None
    session = m.session()
    on_progress(session._opened.pointer, told, None)
    one, two = inputs(a, 1), inputs(a, 2)
    runs = []
    for _ in range(RUNS):
        seen.clear()
        start = time.perf_counter()
        out = session.run(one)
        end = time.perf_counter()
        stages = {}
        for (at, module), (after, _) in zip(seen, seen[1:] + [(end, b"")]):
            stages[stage_of(module.decode())] = stages.get(stage_of(module.decode()), 0) + after - at
        runs.append((end - start, stages))
    result["first"] = runs[0][0]
    result["seconds"], result["stages"] = min(runs, key=lambda r: r[0])
    result["out"] = out
    if a.prompts:
        session.run(one, keep=["patch_batch"])
        times = []
        for i in (1, 0):
            start = time.perf_counter()
            session.run({"token_ids": two["token_ids"][i:i + 1]})
            times.append(time.perf_counter() - start)
        result["prompt"] = min(times)


def run_torch(a, result):
    import torch
    torch.set_num_threads(a.threads)
    start = time.perf_counter()
    module = torch.export.load(a.model).module()
    # autocast has other dtypes
    for n in [n for n in module.graph.nodes if n.target == torch.ops.aten._assert_tensor_metadata.default]:
        module.graph.erase_node(n)
    module.recompile()
    result["open"] = time.perf_counter() - start
    x = [torch.from_numpy(v) for v in inputs(a, 1).values()]
    times = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=a.peer.endswith("bf16")):
        for _ in range(RUNS):
            start = time.perf_counter()
            out = module(*x)
            times.append(time.perf_counter() - start)
    result["first"], result["seconds"] = times[0], min(times)
    result["out"] = {n: o.float().numpy() for n, o in zip(OUTPUTS, out)}


def child(a):
    result = {}
    (run_torch if a.peer.startswith("torch") else run_qkv)(a, result)
    result["peak"], result["resident"] = memory()
    np.savez(a.out, *result.pop("out").values())
    print(json.dumps(result))


def iou(masks, floats, threshold):
    """The mean over all masks: pixels above in both, over those in either."""
    a, b = masks > threshold, floats > threshold
    return np.mean((a & b).sum((-1, -2)) / np.maximum((a | b).sum((-1, -2)), 1))


def table(results, outs):
    lines = ["| peer | open, s | first run, s | picture and prompt, s | another prompt, s | peak MiB | "
             "after the runs | logits, boxes, masks, presence differ by | masks' IoU at 0, at the median |",
             "|---|---|---|---|---|---|---|---|---|"]
    floats = outs.get("torch", outs.get("qkv"))
    for peer, r in results.items():
        far, near = "", ""
        if floats:
            far = " ".join(f"{np.abs(x - y).max():.1e}" for x, y in zip(outs[peer], floats))
            near = " ".join(f"{iou(outs[peer][2], floats[2], t):.4f}"
                            for t in (0, np.median(floats[2], (-1, -2), keepdims=True)))
        prompt = format(r["prompt"], ".2f") if "prompt" in r else ""
        lines.append(f"| {peer} | {r['open']:.2f} | {r['first']:.2f} | {r['seconds']:.2f} | {prompt} | "
                     f"{r['peak']:.0f} | {r['resident']:.0f} | {far} | {near} |")
    timed = {peer: r["stages"] for peer, r in results.items() if "stages" in r}
    names = sorted({s for t in timed.values() for s in t}, key=lambda s: (list(STAGES.values()) + [s]).index(s))
    if timed:
        lines += ["", "| stage, s | " + " | ".join(timed) + " |", "|---|" + "---|" * len(timed)]
        lines += [f"| {s} | " + " | ".join(f"{t.get(s, 0):.3f}" for t in timed.values()) + " |" for s in names]
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--peers", help="some of " + ", ".join(PEERS) + " (default: all, qkv-int8 where --int8 is given)")
    p.add_argument("--int8", help="the model as `qkv quantize` wrote it")
    p.add_argument("--inputs", help=".npz with patch_batch and token_ids, of which the first of each are taken")
    p.add_argument("--size", type=int, default=1008, help="height and width of the picture")
    p.add_argument("--vocab", type=int, default=49408)
    p.add_argument("--no-prompts", dest="prompts", action="store_false", help="no second prompt on the kept picture")
    p.add_argument("--markdown", help="write the tables there, too")
    p.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    p.add_argument("--out", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peer:
        return child(a)
    results, outs = {}, {}
    peers = a.peers.split(",") if a.peers else [peer for peer in PEERS if a.int8 or peer != "qkv-int8"]
    if "qkv-int8" in peers and not a.int8:
        p.error("qkv-int8 needs --int8 FILE")
    with tempfile.TemporaryDirectory() as d:
        for peer in peers:
            out = f"{d}/{peer}.npz"
            command = [sys.executable, __file__, a.model, "--threads", str(a.threads), "--size", str(a.size),
                       "--vocab", str(a.vocab), "--peer", peer, "--out", out] + ([] if a.prompts else ["--no-prompts"])
            command += [word for name in ("int8", "inputs") if vars(a)[name] for word in ("--" + name, vars(a)[name])]
            results[peer] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE,
                                                      text=True).stdout.splitlines()[-1])
            outs[peer] = list(np.load(out).values())
            print(peer, f"{results[peer]['seconds']:.2f} s", file=sys.stderr, flush=True)
    text = table(results, outs)
    print(text)
    if a.markdown:
        pathlib.Path(a.markdown).write_text(text)


if __name__ == "__main__":
    main()
