#!/usr/bin/env python3
"""Rewrites every spelling of generate.py with `qkv rewrite --prove --json` and holds the result to account.
TAP, one line a spelling.

    run.py                         makes the spellings in a temporary folder first (needs .venv with torch)
    run.py --dir DIR [PATTERN ...] spellings made before
    run.py --original ...          the files as they are, not rewritten: is the rest of qkv up to them?
    run.py --report FILE           what happened to each, as JSON

A line is ok when the command succeeds, a legitimate spelling is fused (all its attentions, none left), what is not
attention stays, and the rewritten file gives eager's values at every size, run by qkv and loaded by torch.export.load
alike. Tolerances are run_models.py's. Rows that attend nowhere may differ where the spelling gives NaN or an average
and sdpa gives 0, if the rewriter says so; with --exact-masked-rows none may. Each spelling runs in a process of its
own, so that a crash is one failure.
"""
import argparse
import ctypes
import fnmatch
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent / "models"), str(ROOT / "python"), str(HERE)]
os.environ.setdefault("OMP_NUM_THREADS", "1")
from left import LEFT  # noqa: E402

QKV = os.environ.setdefault("QKV", str(ROOT / "build" / "qkv"))
os.environ.setdefault("QKV_LIBRARY", str(ROOT / "build" / "libqkv.so"))
import numpy as np  # noqa: E402
from run_models import differ, read  # noqa: E402

NAMES = {"f32": "F32", "f64": "F64", "f16": "F16", "bf16": "BF16", "i64": "I64", "i32": "I32", "i16": "I16",
         "i8": "I8", "u8": "U8", "bool": "BOOL"}


def rewrite(source, target, *options):
    """(exit code, the JSON object or None, stderr, milliseconds)"""
    t = time.monotonic()
    p = subprocess.run([os.path.abspath(QKV), "rewrite", os.path.abspath(source), "-o", os.path.abspath(target),
                        "--prove", "--json", *options], capture_output=True, text=True, timeout=300,
                       cwd=pathlib.Path(target).parent)     # a counterexample is saved where the command runs
    ms = (time.monotonic() - t) * 1e3
    try:
        return p.returncode, json.loads(p.stdout), p.stderr.strip(), ms
    except ValueError:
        return p.returncode, None, (p.stderr.strip() or "no JSON on stdout: " + p.stdout.strip()[:200]), ms


def inputs(base, v):
    from safetensors.torch import load_file
    return load_file(f"{base}.v{v}.in.safetensors")


def in_c(path, base, variants):
    """Outputs of qkv.Model at every size, as read() gives them."""
    import qkv
    model = qkv.Model(path, threads=1)
    return [{k: (NAMES[o.dtype], np.asarray(o)) for k, o in model.run_dlpack(inputs(base, v)).items()}
            for v in variants]


def in_torch(path, base, variants):
    """The same from PyTorch."""
    import torch
    module, out = torch.export.load(str(path)).module(), []
    for v in variants:
        with torch.no_grad():
            got = module(**inputs(base, v))
        leaves = [x for x in torch.utils._pytree.tree_leaves(got) if isinstance(x, torch.Tensor)]
        out.append({f"output_{i}": (NAMES[{"torch.bfloat16": "bf16", "torch.float16": "f16", "torch.float32": "f32",
                                           "torch.float64": "f64", "torch.int64": "i64", "torch.int32": "i32",
                                           "torch.bool": "bool"}[str(x.dtype)]], x.float().numpy()
                                    if x.dtype == torch.bfloat16 else x.numpy()) for i, x in enumerate(leaves)})
    return out


def compare(got, base, variants, tol, dead):
    """('' or what differs, largest relative error, whether rows that attend nowhere differ)"""
    worst, rows_differ = 0.0, False
    for g, v in zip(got, variants):
        want = read(f"{base}.v{v}.out.safetensors")
        if dead and g["output_0"][1].shape == want["output_0"][1].shape:
            rows = read(f"{base}.v{v}.dead.safetensors")["output_0"][1]
            a, b = g["output_0"][1].copy(), want["output_0"][1]
            rows_differ |= not np.allclose(a[rows], b[rows], 1e-3, 1e-4, equal_nan=True)
            a[rows] = b[rows]
            g = dict(g, output_0=(g["output_0"][0], a))
        what, err = differ(g, want, tol)
        worst = max(worst, err)
        if what:
            return f"size {v}: {what}", worst, rows_differ
    return "", worst, rows_differ


def numbers(path, e, folder, dead):
    """Both runtimes against eager: ('' or what is wrong, largest error, rows that attend nowhere differ)"""
    base, variants, worst, rows = folder / e["name"], range(e["variants"]), 0.0, False
    for where, run in (("qkv", in_c), ("torch", in_torch)):
        try:
            what, err, differs = compare(run(path, base, variants), base, variants, e["tol"], dead)
        except Exception as x:  # a file that one of the two refuses is a finding like any other
            return f"{where}: {type(x).__name__}: {str(x)[:400]}", worst, rows
        worst, rows = max(worst, err), rows or differs
        if what:
            return f"{where}: {what}", worst, rows
    return "", worst, rows


def wide(e, folder):
    """No tensor of 16 bits goes in or comes out."""
    base = folder / e["name"]
    return not any(t in ("BF16", "F16") for end in ("in", "out")
                   for t, _ in read(f"{base}.v0.{end}.safetensors").values())


def check(e, folder, tmp, original):
    """One spelling: a dictionary with ok, why, and what the rewriter said."""
    source, target = folder / (e["name"] + ".pt2"), pathlib.Path(tmp) / (e["name"] + ".pt2")
    r = dict(name=e["name"], kind=e["kind"], group=e["group"], attentions=e["attentions"], ok=False, right=False,
             why="", fused=0, left=0, error=0.0, ms=0.0, reasons=[])
    if original:
        r["why"], r["error"], _ = numbers(source, e, folder, False)
        r["ok"] = r["right"] = not r["why"]
        return r
    code, said, stderr, r["ms"] = rewrite(source, target)
    if code or said is None:
        r["why"] = f"exit {code}: {stderr[-400:]}"
        return r
    r["fused"], r["left"] = said["attentions_fused"], said["attentions_left"]
    r["reasons"] = [{k: str(x.get(k) or "") for k in ("node", "rule", "matched", "reason", "advice")}
                    for x in said["left"]]
    what, r["error"], rows = numbers(target, e, folder, e["dead_rows"])
    r["right"], r["wide"] = not what, e["tol"] is None and wide(e, folder)
    notes = " ".join(f.get("note") or "" for f in said["firings"])
    if what:
        r["why"] = what
    elif rows and not notes:
        r["why"] = "rows that attend nowhere differ, and no firing has a note about it"
    elif e["name"] in LEFT:
        r["why"] = "it is fused now: take it out of left.py" if r["fused"] else ""
    elif e["kind"] == "legit" and (r["fused"] < e["attentions"] or r["left"]):
        r["why"] = f"fused {r['fused']} of {e['attentions']}, left {r['left']}"
    elif e["kind"] == "other" and r["fused"]:
        r["why"] = f"fused {r['fused']} where there is no attention"
    elif e["dead_rows"]:
        code, said, stderr, _ = rewrite(source, target, "--exact-masked-rows")
        r["why"] = f"--exact-masked-rows: exit {code}: {stderr[-300:]}" if code or said is None else numbers(target,
            e, folder, False)[0]
        r["why"] = r["why"] and f"--exact-masked-rows: {r['why']}"
    r["ok"] = not r["why"]
    target.unlink(missing_ok=True)
    return r


def warm():
    """Imports what torch.export.load imports, so that the children need not."""
    import io
    import torch
    file = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), file)
    torch.export.load(file).module()


def apart(e, folder, tmp, original, check):
    """check() in a child; returns (pid, file with its answer).
    Torch is loaded already, so a child costs milliseconds."""
    answer = os.path.join(tmp, e["name"] + ".answer")
    pid = os.fork()
    if pid == 0:
        signal.alarm(300)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)      # ends with its parent
        json.dump(check(e, folder, tmp, original), open(answer, "w"))
        os._exit(0)
    return pid, answer


def run(entries, folder, tmp, original, jobs, done, check=check):
    """Calls done(entry, result) in the order of the entries; check() makes the result."""
    running, results, at = {}, {}, 0
    todo = list(enumerate(entries))
    while todo or running:
        while todo and len(running) < jobs:
            i, e = todo.pop(0)
            pid, answer = apart(e, folder, tmp, original, check)
            running[pid] = i, e, answer
        pid, status = os.wait()
        if pid not in running:
            continue
        i, e, answer = running.pop(pid)
        if status == 0:
            results[i] = json.load(open(answer))
        else:
            results[i] = dict(e, ok=False, right=False, fused=0, left=0, error=0.0, ms=0.0, nodes_before=0,
                              nodes_after=0, reasons=[],
                              why=f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status)
                              else f"the check itself failed, exit {os.WEXITSTATUS(status)}")
        while at in results:
            done(entries[at], results[at])
            at += 1


def summary(results):
    """The figures: legitimate spellings right, traps wrong."""
    legit, traps = [r for r in results if r["kind"] == "legit"], [r for r in results if r["kind"] != "legit"]
    return dict(legitimate=len(legit), legitimate_right=sum(r["ok"] and r["name"] not in LEFT for r in legit),
                legitimate_wrong_numbers=sum(not r["right"] for r in legit),
                traps=len(traps), traps_wrong=sum(not r["ok"] for r in traps),
                traps_fused=sum(r["fused"] > 0 for r in traps),
                largest_error=max((r["error"] for r in results), default=0.0))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--dir", type=pathlib.Path)
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--original", action="store_true")
    ap.add_argument("--report")
    ap.add_argument("patterns", nargs="*")
    a = ap.parse_args()
    import torch
    import qkv  # noqa: F401  loaded before the children are made
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        folder, unmade = a.dir, []
        if not folder:
            folder = pathlib.Path(tmp) / "spellings"
            only = [x for p in a.patterns for x in ("--only", p)]
            unmade = subprocess.run([sys.executable, str(HERE / "generate.py"), "--out", str(folder), "--jobs",
                                     str(a.jobs), *only], stdout=subprocess.PIPE, text=True).stdout.splitlines()
        entries = [e for e in json.load(open(folder / "index.json")) if not a.patterns
                   or any(fnmatch.fnmatchcase(e["name"], p) for p in a.patterns)]
        results = []
        warm()
        print(f"1..{len(entries) + len(unmade)}", flush=True)

        def done(e, r):
            results.append(r)
            left = f" (left: {LEFT[e['name']]})" if e["name"] in LEFT else ""
            told = (f"{r['error']:.1e}, fused {r['fused']}, left {r['left']}, {r['ms']:.0f} ms{left}" if r["ok"]
                    else r["why"].replace("\n", " "))
            print(f"{'' if r['ok'] else 'not '}ok {len(results)} - spelling: {e['name']} {told}", flush=True)

        run(entries, folder, tmp, a.original, a.jobs, done)
        for i, line in enumerate(unmade):
            print(f"not ok {len(results) + i + 1} - spelling: {line}")
        s = summary(results)
        print(f"# legitimate {s['legitimate_right']}/{s['legitimate']}, wrong values {s['legitimate_wrong_numbers']}, "
              f"traps wrong {s['traps_wrong']}/{s['traps']}, largest error {s['largest_error']:.1e}")
        if a.report:
            json.dump(results, open(a.report, "w"), indent=1)
        sys.exit(any(not r["ok"] for r in results) or bool(unmade))


if __name__ == "__main__":
    main()
