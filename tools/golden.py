#!/usr/bin/env python3
"""Golden cases for every op row: PyTorch's eager CPU answers, as text calls and small tensors.

    tools/golden.py             writes tests/ops/<family>/<op>.cases and .safetensors (needs torch, safetensors)
    tools/golden.py NAME ...    those of the ops of these names alone: lerp grid_sampler_2d
    tools/golden.py --check     says whether the committed cases are what this program writes; TAP
    tools/golden.py --missing   rows of ops.def without a case

A case is one line, `name: aten.add.Tensor(%0, %1, alpha=2)`; %k is tensor `name.ink` of the safetensors file and the
expected results are `name.out0`, .... The grammar is src/ir/text.h's. `# static` at the end of a line: sizes must be
constants (they are arguments of the call, so a symbolic run would contradict them). `# fixed 0.1 1`: axis 1 of %0 and
all axes of %1 must be. What is called lives in golden_cases/, one file a family.
"""
import argparse
import importlib
import os
import sys
import zlib

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
from safetensors.torch import save_file

from optable import ROOT, exempt, rows as table_rows

OUT = ROOT / "tests" / "ops"
FAMILIES = ["view", "pointwise", "reduce", "index", "image", "linalg"]

f32, f64, f16, bf16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
i64, i32, i16, i8, u8, b8 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool
FLOATS, INTS = [f32, f64, f16, bf16], [i64, i32, u8, i16, i8]
ALL = FLOATS + INTS + [b8]
SHORT = {f32: "f32", f64: "f64", f16: "f16", bf16: "bf16", i64: "i64", i32: "i32", i16: "i16", i8: "i8", u8: "u8",
         b8: "bool", torch.complex64: "complex64", torch.complex128: "complex128",
         torch.float8_e4m3fn: "f8e4m3fn", torch.float8_e5m2: "f8e5m2", torch.uint16: "u16", torch.uint32: "u32",
         torch.uint64: "u64"}
G = torch.Generator()
inf, nan = float("inf"), float("nan")


def t(*shape, dt=f32, lo=-3.0, hi=3.0):
    """Random tensor: floats uniform in [lo, hi); integers in the same range, at least 0 when unsigned;
    bools half true."""
    shape = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else list(shape)
    if dt is b8:
        return torch.rand(shape, generator=G) > 0.5
    if dt.is_floating_point:
        return (torch.rand(shape, generator=G, dtype=f64) * (hi - lo) + lo).to(dt)
    lo, hi = int(lo), int(hi) + 1
    if dt is u8 and lo < 0:
        lo, hi = 0, hi - lo
    return torch.randint(lo, max(hi, lo + 1), shape, generator=G).to(dt)


def idx(n, *shape, lo=0, dt=i64):
    return torch.randint(lo, n, shape, generator=G).to(dt)


def special(dt=f32):
    """Zeros of both signs, infinities, NaN, halves, large and small numbers."""
    return torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, inf, -inf, nan, 1e-4, -7.25, 30.0,
                         -30.0]).to(dt)


class Family:
    """Collects cases; `family.op(name)` gives a function that adds one,
    `.maybe` one that PyTorch may refuse (a dtype it lacks)."""
    def __init__(self):
        self.cases, self.tensors, self.count = [], {}, {}

    def op(self, name):
        G.manual_seed(zlib.crc32(name.encode()))
        ns, op, overload = name.split(".")
        packet = getattr(getattr(torch.ops, ns), op, None)
        if packet is None or overload not in packet.overloads():
            print(f"# no such op: {name}", file=sys.stderr)
            return Recorder(self, name, refuse)
        return Recorder(self, name, getattr(packet, overload))

    def files(self):
        """{op: (the text of its cases, its tensors)}; overloads of one op share a file."""
        out = {}
        for case in self.cases:     # rows that do not exist yet have their cases waiting
            name, call = case.split(": ", 1)
            out.setdefault(call.split("(")[0].split(".")[1], []).append((name, case))
        keys = {}
        for key in self.tensors:
            keys.setdefault(key.rsplit(".", 1)[0], []).append(key)
        return {op: ("".join(c + "\n" for _, c in cases),
                     {k: self.tensors[k] for name, _ in cases for k in keys.get(name, [])})
                for op, cases in out.items()}

    def own(self, name, f):
        """An op that torch itself does not carry, by its definition in Python."""
        G.manual_seed(zlib.crc32(name.encode()))
        return Recorder(self, name, f)


def refuse(*args, **kw):
    raise NotImplementedError


class Recorder:
    def __init__(self, family, name, f):
        self.family, self.name, self.f = family, name, f

    def __call__(self, *args, static=False, fixed="", outs=99, **kw):
        """fixed: see above; outs: how many of the results are compared (the rest is for training)."""
        tensors = []

        def text(a):
            if isinstance(a, torch.Tensor):
                tensors.append(a.contiguous().clone())
                return f"%{len(tensors) - 1}"
            if isinstance(a, (list, tuple)):
                return "[" + ", ".join(map(text, a)) + "]"
            if isinstance(a, (torch.device, torch.layout, torch.memory_format)):
                return "none"
            if a is None or isinstance(a, bool):
                return str(a).lower()
            if isinstance(a, torch.dtype):
                return SHORT[a]
            return f'"{a}"' if isinstance(a, str) else repr(a)
        call = ", ".join([text(a) for a in args] + [f"{k}={text(v)}" for k, v in kw.items()])
        torch.manual_seed(0)
        with torch.no_grad():
            result = self.f(*args, **kw)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        k = self.family.count[self.name] = self.family.count.get(self.name, -1) + 1
        name = f"{self.name.split('.', 1)[1].replace('.default', '').replace('.', '_')}_{k}"
        self.family.cases.append(f"{name}: {self.name}({call})" + ("  # static" if static else f"  # fixed {fixed}"
                                                                   if fixed else ""))
        for i, x in enumerate(tensors):
            self.family.tensors[f"{name}.in{i}"] = x
        for i, x in enumerate(results[:outs]):
            if isinstance(x, torch.Tensor):
                self.family.tensors[f"{name}.out{i}"] = x.detach().resolve_conj().resolve_neg().contiguous().clone()

    def maybe(self, *args, **kw):
        try:
            self(*args, **kw)
        except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
            pass


def build():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(False)
    sys.path.insert(0, str(ROOT / "tools"))
    out = {}
    for name in FAMILIES:
        out[name] = Family()
        importlib.import_module(f"golden_cases.{name}").add(out[name])
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--check", action="store_true")
    ap.add_argument("--missing", action="store_true")
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    families = build()
    # The files of cases are those of src/op, with make.def's in pointwise.
    rows = {r.name: r for r in table_rows()}
    covered = {c for f in families.values() for c in f.count}
    missing = [n for n, r in rows.items() if n not in covered and not exempt(r)]
    if a.missing:
        for n in missing:
            print(f"{rows[n].family:10s} {n}{rows[n].schema}")
        print(f"# {len(missing)} rows without a case; {len(covered - set(rows))} ops with cases but without a row:",
              *sorted(covered - set(rows)))
        return
    bad = False
    print(f"1..{len(families)}") if a.check else None
    for k, (name, f) in enumerate(families.items(), 1):
        files = f.files()
        have = {p.stem for p in (OUT / name).glob("*.cases")}
        if a.check:
            differ = sorted(have ^ set(files)) + [op for op in have & set(files)
                                                  if (OUT / name / f"{op}.cases").read_text() != files[op][0]]
            bad |= bool(differ)
            print(f"{'not ' if differ else ''}ok {k} - golden: tests/ops/{name} is what tools/golden.py writes "
                  f"{' '.join(differ)}")
            continue
        (OUT / name).mkdir(exist_ok=True)
        for op, (text, tensors) in files.items():
            if not a.names or op in a.names:
                (OUT / name / f"{op}.cases").write_text(text)
                save_file(tensors, OUT / name / f"{op}.safetensors")
        for op in [] if a.names else have - set(files):
            for ending in ("cases", "safetensors"):
                (OUT / name / f"{op}.{ending}").unlink()
        print(f"{name:10s} {len(f.cases):5d} cases of {len(files)} ops")
    if missing:
        print(f"# {len(missing)} rows without a case: tools/golden.py --missing")
    sys.exit(bad)


if __name__ == "__main__":
    import golden  # the cases import it, too: one generator for all

    golden.main()
