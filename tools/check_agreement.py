#!/usr/bin/env python3
"""qkv check beside onnx.checker and ONNX Runtime, over the onnx package's test models: the figures of docs/CHECK.md.

    .venv/bin/python tools/check_agreement.py valid            the models as they are: no errors
    .venv/bin/python tools/check_agreement.py edits 3000 1     so many random edits from that seed:
                                                               what onnx.checker refuses must be an error
    .venv/bin/python tools/check_agreement.py ort              --target ort against whether ONNX Runtime makes a
                                                               session of it

Prints each disagreement, then the counts. onnx.checker itself dies of some edits (an assertion in its shape
inference); another seed avoids them.
"""
import collections
import copy
import os
import pathlib
import random
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python")]
os.environ.setdefault("QKV_LIBRARY", str(ROOT / "build" / "libqkv.so"))
warnings.filterwarnings("ignore")
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import qkv  # noqa: E402
from onnx import helper as h  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402

np.seterr(all="ignore")
TARGET = {"Q601", "Q602", "Q603", "Q606"}


def models():
    """(name, ModelProto) of the standard's tests."""
    for kind in ("node", "simple", "pytorch-converted", "pytorch-operator"):
        for t in load_model_tests(kind=kind):
            path = pathlib.Path(t.model_dir or "") / "model.onnx"
            if t.model is not None:
                yield t.name, t.model
            elif path.exists():
                yield t.name, onnx.load(path)


def check(m, folder, **options):
    path = os.path.join(folder, "m.onnx")
    with open(path, "wb") as f:
        f.write(m.SerializeToString())
    return qkv.check(path, **options)


def refused(m):
    try:
        onnx.checker.check_model(m, full_check=True)
    except Exception as e:
        return str(e).replace("\n", " ")[:160] or type(e).__name__
    return ""


def edit(m, rng, ops):
    """One random edit."""
    g, n = m.graph, rng.choice(m.graph.node)
    values = [*g.input, *g.output, *g.value_info]
    v, names = rng.choice(values), [i.name for i in g.input] or ["zz"]
    dims, a = v.type.tensor_type.shape.dim, rng.choice(n.attribute) if n.attribute else None
    kind = rng.randrange(22)
    if kind == 0 and a:
        n.attribute.remove(a)
    elif kind == 1:
        n.attribute.append(h.make_attribute(rng.choice(["axis", "to", "zzz", "perm", "epsilon"]),
                                            rng.choice([1, 1.5, "a", [1, 2]])))
    elif kind == 2 and n.input:
        n.input[rng.randrange(len(n.input))] = rng.choice(["", "nowhere", n.output[0] if n.output else "q"])
    elif kind == 3 and n.input:
        n.input.pop()
    elif kind == 4:
        n.input.append(rng.choice(names))
    elif kind == 5 and n.output:
        n.output.pop()
    elif kind == 6:
        n.output.append("extra")
    elif kind == 7:
        n.op_type = rng.choice(ops)
    elif kind == 8:
        m.opset_import[0].version = rng.randint(1, 28)
    elif kind == 9:
        v.type.tensor_type.elem_type = rng.choice([1, 2, 3, 6, 7, 9, 10, 11, 16])
    elif kind == 10 and dims:
        rng.choice(dims).dim_value = rng.randint(0, 7)
    elif kind == 11 and dims:
        dims.pop()
    elif kind == 12:
        dims.add().dim_value = 2
    elif kind == 13:
        nodes = list(g.node)
        rng.shuffle(nodes)
        del g.node[:]
        g.node.extend(nodes)
    elif kind == 14:
        g.node.append(copy.deepcopy(n))
    elif kind == 15:
        g.node.remove(n)
    elif kind == 16 and g.input:
        del g.input[rng.randrange(len(g.input))]
    elif kind == 17 and n.output:
        n.output[0] = rng.choice(names)
    elif kind == 18 and a and a.type == 2:
        a.i = rng.choice([-9, -1, 0, 1, 3, 9, 2**40])
    elif kind == 18 and a and a.ints:
        a.ints[rng.randrange(len(a.ints))] = rng.choice([-5, 0, 1, 2, 7])
    elif kind == 19:
        m.ir_version = rng.choice([1, 2, 3, 4, 9, 14, 15])
    elif kind == 20:
        v.ClearField("type")
    elif kind == 21 and a and a.type in (2, 7):
        a.CopyFrom(h.make_attribute(a.name, [1] if a.type == 2 else 1))


def run_valid(folder):
    for name, m in models():
        r = check(m, folder)
        if not r:
            print(f"{name}: {r.errors[0]}")
        yield "no errors" if r else "errors"


def run_edits(folder, count, seed):
    rng, pool = random.Random(seed), [m for _, m in models() if m.ByteSize() < 20000 and m.graph.input]
    ops = sorted({s.name for s in onnx.defs.get_all_schemas() if not s.domain})
    for i in range(count):
        base = rng.choice(pool)
        m = copy.deepcopy(base)
        edit(m, rng, ops)
        if m.SerializeToString() == base.SerializeToString():
            continue
        problem, r = refused(m), check(m, folder)
        if problem and r:
            print(f"edit {i} ({m.graph.node[0].op_type if m.graph.node else ''}): missed: {problem}")
        elif r.errors and not problem:
            print(f"edit {i} ({m.graph.node[0].op_type if m.graph.node else ''}): more than onnx.checker: "
                  f"{r.errors[0]}")
        yield f"onnx.checker {'refuses' if problem else 'accepts'}, qkv check has {'no errors' if r else 'errors'}"


def run_ort(folder):
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    for name, m in models():
        ours = [f for f in check(m, folder, target="ort").errors if f["id"] in TARGET]
        try:
            onnxruntime.InferenceSession(os.path.join(folder, "m.onnx"), providers=["CPUExecutionProvider"])
            problem = ""
        except Exception as e:
            problem = str(e).replace("\n", " ")[:160]
        if bool(ours) != bool(problem):
            print(f"{name}: {ours[0] if ours else 'allowed'}; ONNX Runtime: {problem or 'takes it'}")
        yield f"ONNX Runtime {'refuses' if problem else 'takes'} it, qkv check {'says so' if bool(ours) == bool(problem) else 'does not'}"


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else "valid"
    with tempfile.TemporaryDirectory() as folder:
        runs = {"valid": lambda: run_valid(folder), "ort": lambda: run_ort(folder),
                "edits": lambda: run_edits(folder, *map(int, sys.argv[2:4]))}
        for text, n in sorted(collections.Counter(runs[what]()).items()):
            print(f"{n:6} {text}")


if __name__ == "__main__":
    main()
