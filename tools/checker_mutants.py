#!/usr/bin/env python3
"""The checker of certificates with one condition left out at a time: does a pair that differs show it?

    tools/checker_mutants.py                 all conditions of certify/*.c but main.c
    tools/checker_mutants.py --only masked   those whose text has this in it
    tools/checker_mutants.py --every 5       each fifth; --from 2: beginning with the third
    tools/checker_mutants.py term.c          of this file alone

A condition is an operand of && or ||, or a refusal (if ... return wrong, NULL, false). Each checker that lacks one is
built and asked about the traps of tests/python/test_certify.py and the pairs of test_differ.py, which it must not
certify, and about the other spellings of the traps, which it should. Printed per condition: what it then does:

    differs   it certifies a pair that differs: the condition is needed, and a test tells
    lost      it certifies less: an equal pair is lost
    breaks    it does not build, or ends otherwise
    same      no pair tells: the condition is a limit, follows from others, or a test is missing
"""
import argparse
import json
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD, TESTS = ROOT / "build", ROOT / "tests/python"
FILES = ("atom.c", "element.c", "function.c", "index.c", "lemma.c", "place.c", "replay.c", "side.c", "term.c")
REFUSAL = re.compile(r"^ +(?:else )?if \((?:[^;{}]*)\)\s*return (?:wrong|term_refuse|NULL|false|fail)[^;]*;\n", re.M)


def blank(text):
    """Comments and strings as spaces, so that places stay."""
    return re.sub(r'"(?:\\.|[^"\\])*"|/\*.*?\*/|\'(?:\\.|[^\'])\'', lambda m: re.sub(r"[^\n]", " ", m.group()), text,
                  flags=re.S)


def end_of(text, at, step):
    """How far an operand reaches from `at` on, forwards or backwards."""
    depth, opening = 0, "([{" if step > 0 else ")]}"
    while 0 <= at < len(text):
        c = text[at]
        if c in opening:
            depth += 1
        elif c in "()[]{}":
            depth -= 1
        pair = text[min(at, at + step):max(at, at + step) + 1]
        stops = c in ";,?" or (c == ":" and text[at - 1:at + 2] != "::") or pair in ("&&", "||") or (
            step < 0 and (c == "=" and text[at - 1] not in "=!<>" and text[at + 1] != "="
                          or text[:at + 1].endswith("return ")))
        if depth < 0 or (depth == 0 and stops):
            return at
        at += step
    return at


def conditions(text):
    """(place, what, text without it)"""
    plain = blank(text)
    for m in REFUSAL.finditer(plain):
        yield m.start(), " ".join(text[m.start():m.end()].split()), text[:m.start()] + text[m.end():]
    for m in re.finditer(r"&&|\|\|", plain):
        end = end_of(plain, m.end(), 1)
        yield m.start(), " ".join(text[m.start():end].split()), text[:m.start()] + text[end:]
        first = end_of(plain, m.start() - 1, -1) + 1
        if plain[max(0, first - 2):first].strip() not in ("&&", "||") and plain[first - 1] not in "&|":
            what = " ".join(text[first:m.end()].split())
            yield m.start(), what, text[:first] + " " + text[m.end():]


def commands(objects):
    """How ninja compiles each of these files, and links the library of what `objects` lists."""
    said = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", (BUILD / "libqkv.so").resolve().name],
                          capture_output=True, text=True, check=True).stdout.splitlines()
    compiles = {f: next(c for c in said if f"/certify/{f}" in c) for f in FILES}
    return compiles, said[-1].replace(" libqkv_plain.a", f" @{objects}")


def export(folder):
    """[[file, file, do they differ ("so": has the second an error that the first has not), name]]"""
    sys.path[:0] = [str(TESTS), str(ROOT / "python")]
    import onnx
    import test_certify
    import test_differ
    import torch
    args, pairs = tuple(torch.randn(2, 2, 5, 4, generator=torch.Generator().manual_seed(i)) for i in range(3)), []
    for k, (name, spelt) in enumerate(test_certify.TRAPS.items()):
        paths = [str(test_differ.exported(f, args, folder / f"t{k}.{i}.pt2")) for i, f in enumerate(spelt)]
        pairs += [[paths[0], paths[2], True, name], [paths[0], paths[1], False, name]]
    for k, (name, a, b) in enumerate(test_differ.pairs(folder)):
        pairs.append([*(shutil.copy(p, folder / f"d{k}.{i}.pt2") for i, p in enumerate((a, b))), True, name])
    for k, (name, a, b) in enumerate(test_differ.onnx_pairs(folder, onnx)):
        pairs.append([*(shutil.copy(p, folder / f"o{k}.{i}.onnx") for i, p in enumerate((a, b))), True, name])
    for k, (name, a, b) in enumerate(test_differ.errors(folder)):
        pairs.append([*(shutil.copy(p, folder / f"e{k}.{i}.pt2") for i, p in enumerate((a, b))), "so", name])
    return [[str(a), str(b), differ, name] for a, b, differ, name in pairs]


ASK = """
import ctypes as C, json, os, sys
import qkv
from qkv import _lib
for a, b, differ, name in sorted(json.load(open(sys.argv[1])), key=lambda p: not p[2]):
    for x, y in ((a, b), (b, a)) if differ is True else ((a, b),):
        source, result = qkv.Model(x), qkv.Model(y)
        text, e = C.c_void_p(), _lib.CError()
        status = _lib.lib().qkv_model_save_certified(result._model, source._model, None, os.fsencode(
            sys.argv[2] + os.path.splitext(y)[1]), C.byref(text), C.byref(e))
        _lib.check(status == 0, e)
        if json.loads(_lib.text(text.value, e))["whole"] == bool(differ):
            print("differs" if differ else "lost", name)
            sys.exit()
print("same")
"""


def verdict(folder, library, limit=60):
    """limit: seconds of CPU time, as other work may stop this one."""
    env = {"PATH": "/usr/bin:/bin", "QKV_LIBRARY": str(library), "PYTHONPATH": str(ROOT / "python")}
    r = subprocess.run([sys.executable, "-c", ASK, folder / "pairs.json", folder / "out"], env=env, capture_output=True,
                       text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)))
    if r.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "breaks: takes too long"
    return r.stdout.strip() if r.returncode == 0 else "breaks"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="*", default=FILES)
    p.add_argument("--only", default="")
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--from", type=int, default=0, dest="first")
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        objects, library, changed = folder / "objects", folder / "libqkv.so", folder / "changed.o"
        members = subprocess.run(["ar", "t", "libqkv_plain.a"], cwd=BUILD, capture_output=True, text=True, check=True)
        (folder / "pairs.json").write_text(json.dumps(export(folder)))
        compiles, link = commands(objects)
        said = verdict(folder, BUILD / "libqkv.so")
        assert said == "same", f"the checker itself: {said}"
        asked, counts = 0, {}
        for f in o.files:
            path = ROOT / "certify" / f
            text = path.read_text()
            for place, what, other in conditions(text):
                asked += o.only in what
                if o.only not in what or (asked - 1) % o.every != o.first:
                    continue
                member = re.search(r" -o (\S+)", compiles[f]).group(1)
                (folder / f).write_text(other)
                command = re.sub(r" -o \S+", f" -o {changed}", compiles[f]).replace(f"../certify/{f}", str(folder / f))
                command = re.sub(r" -M\w+( \S+\.(o|d))?", "", command) + " -O0 -w"
                built = subprocess.run(command, shell=True, cwd=BUILD, capture_output=True).returncode == 0
                if built:
                    objects.write_text(members.stdout.replace(member, str(changed)))
                    subprocess.run(re.sub(r" -o \S+", f" -o {library}", link), shell=True, cwd=BUILD, check=True,
                                   capture_output=True)
                said = verdict(folder, library) if built else "breaks: is not built"
                counts[said.split()[0].strip(":")] = counts.get(said.split()[0].strip(":"), 0) + 1
                line = text.count("\n", 0, place) + 1
                print(f"{said.split()[0]:8} certify/{f}:{line}: {what[:110]}"
                      f"{'  [' + ' '.join(said.split()[1:]) + ']' if ' ' in said else ''}", flush=True)
        print(", ".join(f"{k} {n}" for k, n in sorted(counts.items())))


if __name__ == "__main__":
    main()
