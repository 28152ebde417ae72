#!/usr/bin/env python3
"""Runs `qkv run` on every model that generate.py makes, at every size, and compares with PyTorch's eager outputs.
TAP, one line a variant. Packs every model (`qkv pack`) and runs what comes of it in the same way, one line a model.
Then saves every model with qkv and compares what PyTorch and qkv make of the result (save_models.py), one line a
model; then the same with ONNX for ONNX Runtime and OpenVINO (convert_models.py), where those are installed.

    run_models.py                    makes the models in a temporary folder first (needs .venv with torch, transformers)
    run_models.py --dir DIR [NAME..] models made before
    run_models.py --no-save          without saving, which needs torch

Reading and comparing is done here with NumPy alone, so that a fault of qkv's own reader or comparison cannot hide.
Equal means: same names, dtypes and shapes; NaN and infinities in the same places; floats within the row TORCH of
src/tensor/tolerance.def, and float32 and float64 also within 5e-5 * max(1, max|b|); integers and bools exactly. Where
eager itself is far from eager in float64, its distance is added (generate.py).
"""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from tolerance import tolerance  # noqa: E402

QKV = os.environ.get("QKV", str(HERE.parent.parent / "build" / "qkv"))
DTYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
          "BOOL": "?"}
RELATIVE = {k.upper(): v for k, v in tolerance("TORCH").items()}


def read(path):
    """{name: (dtype, array)} of a .safetensors; bf16 widened to float32."""
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for k, m in json.loads(raw[8:8 + n]).items():
        if k == "__metadata__":
            continue
        a, b = m["data_offsets"]
        data = raw[8 + n + a:8 + n + b]
        if m["dtype"] == "BF16":
            x = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            x = np.frombuffer(data, DTYPES[m["dtype"]])
        out[k] = m["dtype"], x.reshape(m["shape"])
    return out


def differ(got, want, tol):
    """'' when equal, else what differs first; and the largest error relative to the peak."""
    if list(sorted(got)) != list(sorted(want)):
        return f"outputs {sorted(got)} instead of {sorted(want)}", 0.0
    worst = 0.0
    for k in sorted(want):
        (dt, a), (de, b) = got[k], want[k]
        if dt != de or a.shape != b.shape:
            return f"{k}: {dt}{list(a.shape)} instead of {de}{list(b.shape)}", worst
        if de not in RELATIVE:
            if not np.array_equal(a, b):
                i = int(np.argmax((a != b).ravel()))
                return f"{k}: {np.count_nonzero(a != b)} of {a.size} differ, first [{i}] {a.ravel()[i]} instead of {b.ravel()[i]}", worst
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        odd = ~np.isfinite(b)
        if not np.array_equal(np.where(odd, b, 0), np.where(~np.isfinite(a), a, 0), equal_nan=True):
            return f"{k}: NaN or infinity out of place", worst
        if odd.all():
            continue
        peak, err = np.abs(b[~odd]).max(initial=0), np.abs(np.where(odd, 0, a - b))
        worst = max(worst, err.max() / peak if peak else err.max())
        rel = tol or RELATIVE[de]
        limit = min(5e-5 * max(1, peak), rel * peak) if rel <= RELATIVE["F32"] else rel * peak
        if err.max() > limit + 1e-30 and err.max() > 1e-12:
            i = int(np.argmax(err.ravel()))
            return f"{k}: [{i}] {a.ravel()[i]:.9g} instead of {b.ravel()[i]:.9g}: {err.max():.3g} > {limit:.3g}", worst
    return "", worst


def qkv(*args):
    """'', or what went wrong."""
    try:
        p = subprocess.run([QKV, *map(str, args)], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return f"{args[0]} took more than 120 s"
    return f"{args[0]}: exit {p.returncode}: {p.stderr.strip()[-400:]}" if p.returncode else ""


def one(folder, name, v, tol, tmp, model=None):
    base, out = folder / f"{name}.v{v}", os.path.join(tmp, f"{name}.v{v}.safetensors")
    wrong = qkv("run", model or folder / f"{name}.pt2", "-i", f"{base}.in.safetensors", "-o", out, "--threads", "1")
    if wrong:
        return wrong, 0.0
    result = differ(read(out), read(f"{base}.out.safetensors"), tol)
    os.unlink(out)
    return result


def packed(folder, name, variants, tol, tmp):
    """The first variant that is wrong, else the largest error."""
    model, worst = os.path.join(tmp, f"{name}.qkv"), 0.0
    wrong = qkv("pack", folder / f"{name}.pt2", "-o", model)
    for v in range(0 if wrong else variants):
        wrong, err = one(folder, name, v, tol, tmp, model)
        worst = max(worst, err)
        if wrong:
            wrong = f"v{v}: {wrong}"
            break
    pathlib.Path(model).unlink(missing_ok=True)
    return wrong, worst


def onnx_profiles():
    """Profiles whose runtime is installed."""
    have = [m for m in ("onnx", "onnxruntime", "ml_dtypes", "openvino") if importlib.util.find_spec(m)]
    return [p for p, needs in (("ort", {"onnxruntime", "ml_dtypes"}), ("openvino", {"onnx", "openvino", "ml_dtypes"}))
            if needs <= set(have)]


def saved(folder, names, jobs, script="save_models.py", word="save", *options):
    """Lines of save_models.py or convert_models.py without their numbers: (right, text).
    A model that ends its process is not right."""
    parts = [p for p in (names[k::jobs] for k in range(jobs)) if p]
    started = [subprocess.Popen([sys.executable, str(HERE / script), "--dir", str(folder), *p, *options],
                                stdout=subprocess.PIPE, text=True) for p in parts]
    for part, process in zip(parts, started):
        missing = list(part)
        for line in process.stdout:
            head, _, what = line.strip().partition(f" - {word}: ")
            if what and what.split()[0] in missing:
                missing.remove(what.split()[0])
                yield head.startswith("ok"), what
        process.wait()
        for name in missing:
            yield False, f"{name} not done: {script} ended with {process.returncode}"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--dir", type=pathlib.Path)
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--no-save", action="store_true")
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        folder, unmade = a.dir, ""
        if not folder:
            folder = pathlib.Path(tmp) / "models"
            made = subprocess.run([sys.executable, str(HERE / "generate.py"), "--out", str(folder), "--jobs",
                                   str(a.jobs)], stdout=subprocess.PIPE, text=True)
            unmade = made.stdout
        jobs, names, whole = [], [], []
        for f in sorted(folder.glob("*.json")):
            m = json.loads(f.read_text())
            if not a.names or m["name"] in a.names:
                names.append(m["name"])
                whole.append((m["name"], m["variants"], m["tol"]))
                jobs += [(m["name"], v, m["tol"]) for v in range(m["variants"])]
        bad, k, profiles = 0, 0, onnx_profiles()
        print(f"1..{len(jobs) + len(whole) + len(unmade.splitlines()) + (0 if a.no_save else len(names) * (1 + len(profiles)))}")
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            for (name, v, tol), (what, err) in zip(jobs, pool.map(lambda j: one(folder, j[0], j[1], j[2], tmp), jobs)):
                k += 1
                bad += bool(what)
                print(f"{'not ' if what else ''}ok {k} - model: {name} v{v} "
                      + (what.replace(chr(10), " ") if what else f"{err:.1e}"), flush=True)
            for (name, _, _), (what, err) in zip(whole, pool.map(lambda j: packed(folder, *j, tmp), whole)):
                k += 1
                bad += bool(what)
                print(f"{'not ' if what else ''}ok {k} - pack: {name} "
                      + (what.replace(chr(10), " ") if what else f"{err:.1e}"), flush=True)
        for right, what in () if a.no_save else saved(folder, names, a.jobs):
            k += 1
            bad += not right
            print(f"{'' if right else 'not '}ok {k} - save: {what}", flush=True)
        for profile in () if a.no_save else profiles:
            for right, what in saved(folder, names, a.jobs, "convert_models.py", "onnx", "--profile", profile):
                k += 1
                bad += not right
                print(f"{'' if right else 'not '}ok {k} - {profile}: {what}", flush=True)
        for line in unmade.splitlines():    # torch or transformers could not make a model: said, and counted
            k += 1
            bad += 1
            print(f"not ok {k} - model: {line}")
        sys.exit(bad > 0)


if __name__ == "__main__":
    main()
