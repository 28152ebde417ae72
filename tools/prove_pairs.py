#!/usr/bin/env python3
"""`qkv prove` on a folder of models: each NAME.pt2 against what qkv makes of it, its decomposed form, and NAME.onnx
beside it. Prints a line for each pair that is not told exactly, and the table of docs/PROOF.md. Minutes; not part of
CI.

    tools/prove_pairs.py FOLDER [--only bert] [--list]
"""
import argparse
import collections
import json
import pathlib
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
QKV = ROOT / "build" / "qkv"
SENSES = {"equal over the reals for all sizes in range": "for all sizes", "equal on random exact payloads": "exactly",
          "equal within a tolerance on random floats": "on floats"}
OPSETS = (13, 18, 23)


TIMEOUT = 900  # seconds for one command


def run(*command):
    try:
        return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"more than {TIMEOUT} s")


def decomposed(path, to):
    import torch
    try:
        torch.export.save(torch.export.load(path).run_decompositions(), to)
    except Exception as e:  # what PyTorch itself cannot decompose
        print(f"{path.stem}: not decomposed: {str(e).splitlines()[0]}", flush=True)
        return False
    return True


def made(path, what, *command):
    """Did qkv write the file?"""
    r = run(QKV, *command)
    if r.returncode:
        print(f"{path.stem}, {what}: not made: {r.stderr.strip()}", flush=True)
    return r.returncode == 0


def others(path, folder):
    """(what, file): what is compared with path."""
    new, cert = folder / "new.pt2", folder / "c.json"
    if made(path, "`qkv rewrite`", "rewrite", path, "-o", new, "--certify", cert):
        yield "`qkv rewrite`", new
    for opset in OPSETS:
        onnx, what = folder / f"{opset}.onnx", f"`qkv convert`, opset {opset}"
        if made(path, what, "convert", path, "-o", onnx, "--opset", opset, "--certify", cert):
            yield what, onnx
    if decomposed(path, folder / "core.pt2"):
        yield "`run_decompositions()`", folder / "core.pt2"
    if path.with_suffix(".onnx").exists():
        yield "`torch.onnx.export`", path.with_suffix(".onnx")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="", help="models with this in their names")
    parser.add_argument("--list", action="store_true", help="a line for every pair")
    o = parser.parse_args()
    table = collections.defaultdict(collections.Counter)
    for path in sorted(p for p in o.folder.glob("*.pt2") if o.only in p.stem):
        with tempfile.TemporaryDirectory() as folder:
            for what, other in others(path, pathlib.Path(folder)):
                start = time.monotonic()
                r = run(QKV, "prove", path, other, "--json", "--sizes", 2, "--seeds", 1, "--counterexample",
                        pathlib.Path(folder) / "c.npz")
                report = json.loads(r.stdout) if r.returncode in (0, 1, 4) and r.stdout else {}
                found = SENSES.get(report.get("sense")) or report.get("result") or f"exit code {r.returncode}"
                table[what][found] += 1
                why = report.get("why") or report.get("why_floats") or report.get("why_not_all_sizes")
                if o.list or found not in ("for all sizes", "exactly"):
                    print(f"{path.stem}, {what}: {found}, {time.monotonic() - start:.0f} s: {why}", flush=True)
    kinds = [*SENSES.values(), "different", "unknown"]
    print("| with |" + "".join(f" {k} |" for k in kinds) + "\n|---|" + "---:|" * len(kinds))
    for what, row in table.items():
        print(f"| {what} |" + "".join(f" {row[k]} |" for k in kinds), dict(row) if set(row) - set(kinds) else "")


if __name__ == "__main__":
    main()
