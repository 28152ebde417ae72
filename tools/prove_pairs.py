#!/usr/bin/env python3
"""`qkv prove` on a folder of models: each NAME.pt2 against what qkv makes of it, its decomposed form, and NAME.onnx
beside it. Prints the table of docs/PROOF.md. Minutes; not part of CI.

    tools/prove_pairs.py FOLDER [--only bert]
"""
import argparse
import collections
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
QKV = ROOT / "build" / "qkv"
SENSES = {"equal over the reals for all sizes in range": "for all sizes", "equal on random exact payloads": "exactly",
          "equal within a tolerance on random floats": "on floats"}
OPSETS = (13, 18, 23)


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def decomposed(path, to):
    import torch
    try:
        torch.export.save(torch.export.load(path).run_decompositions(), to)
    except Exception as e:  # what PyTorch itself cannot decompose
        print(f"{path.stem}: not decomposed: {str(e).splitlines()[0]}", flush=True)
        return False
    return True


def others(path, folder):
    """(what, file): what is compared with path."""
    new, cert = folder / "new.pt2", folder / "c.json"
    if run(QKV, "rewrite", path, "-o", new, "--certify", cert).returncode == 0:
        yield "`qkv rewrite`", new
    for opset in OPSETS:
        onnx = folder / f"{opset}.onnx"
        if run(QKV, "convert", path, "-o", onnx, "--opset", opset, "--certify", cert).returncode == 0:
            yield f"`qkv convert`, opset {opset}", onnx
    if decomposed(path, folder / "core.pt2"):
        yield "`run_decompositions()`", folder / "core.pt2"
    if path.with_suffix(".onnx").exists():
        yield "`torch.onnx.export`", path.with_suffix(".onnx")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="")
    o = parser.parse_args()
    table = collections.defaultdict(collections.Counter)
    for path in sorted(p for p in o.folder.glob("*.pt2") if o.only in p.stem):
        with tempfile.TemporaryDirectory() as folder:
            for what, other in others(path, pathlib.Path(folder)):
                r = run(QKV, "prove", path, other, "--json", "--sizes", 2, "--seeds", 1)
                report = json.loads(r.stdout) if r.returncode in (0, 1, 4) and r.stdout else {}
                found = SENSES.get(report.get("sense")) or report.get("result") or f"exit code {r.returncode}"
                table[what][found] += 1
                if found not in ("for all sizes", "exactly"):
                    print(f"{path.stem}, {what}: {found}: {report.get('why') or report.get('why_floats')}", flush=True)
    kinds = [*SENSES.values(), "different", "unknown"]
    print("| with |" + "".join(f" {k} |" for k in kinds) + "\n|---|" + "---:|" * len(kinds))
    for what, row in table.items():
        print(f"| {what} |" + "".join(f" {row[k]} |" for k in kinds), dict(row) if set(row) - set(kinds) else "")


if __name__ == "__main__":
    main()
