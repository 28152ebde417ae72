#!/usr/bin/env python3
"""The command where memory runs out, that of its own JSON, tables and libraries, too: exit code 5 and a sentence, or
the same as always; no file is left, and none is half written. TAP: one line a command.

    command.py QKV librefuse.so MODELS [--points N] [WORD]
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile

COMMANDS = [line.split() for line in """
inspect eager.pt2
graph eager.pt2 --as-run -o out/g.svg
check eager.pt2 --full --json
backends sdpa.pt2 --device cuda-sm90
report affine.pt2 -o out/r.html
compare affine.pt2 affine2.pt2 -o out/c.json
run eager.pt2 -o out/o.npz --trace out/t.json
verify padded.onnx padded.onnx
prove eager.pt2 eager.pt2
rewrite eager.pt2 -o out/r.pt2 --certify out/c.json
rewrite eager.pt2 --prove --json
rewrite turns.pt2 -o out/t.pt2 --certify out/t.json
convert eager.pt2 -o out/e.onnx --external-data
extract affine.pt2 --weights -o out/w.npz
generalize static_a.pt2 static_b.pt2 static_c.pt2 -o out/d.pt2 --json
joint train.pt2 --loss output_0 -o out/j.pt2
pack eager.pt2 -o out/e.qkv
quantize eager.pt2 --weights-only int4 -o out/q.onnx
embed words.pt2 --vocab vocab.txt cat dog -o out/e.npz
""".strip().splitlines()]
REFUSALS = {"": {}, " and all after it": {"REFUSE_ON": "1"},  # little room is still there: minizip takes 1 KiB
            " and all after it of more than 600 bytes": {"REFUSE_ON": "1", "REFUSE_ABOVE": "600"}}
MILLISECONDS = re.compile(r'"ms": [0-9.]+')
MEASURED = ("report", "compare", "run", "embed", "verify")  # their output holds times


def wrong(qkv, library, words, folder, expected, **refuse):
    """What is wrong with one run; None: nothing."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    env = dict(os.environ, LD_PRELOAD=library, QKV_NUM_THREADS="1", **refuse)
    done = subprocess.run([qkv, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    files = {p.name for p in out.iterdir()}
    if expected is None:
        return done, files
    before, names = expected
    if done.returncode not in (5, before.returncode):
        return f"exit code {done.returncode}: {done.stderr.strip()[-150:]}"
    if done.returncode == 5 and "memory" not in done.stderr:
        return f"exit code 5 and no reason: {done.stderr.strip()[-150:]}"
    if any(name.startswith(".qkv") for name in files):
        return f"left: {files}"
    if done.returncode == before.returncode and before.returncode == 0:
        if words[0] not in MEASURED and MILLISECONDS.sub("", done.stdout) != MILLISECONDS.sub("", before.stdout):
            return f"success, and prints something else: '{done.stdout[-150:]}'"
        if files != names:
            return f"success, and writes {files or 'nothing'}"
    return None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("qkv"), ap.add_argument("library"), ap.add_argument("models")
    ap.add_argument("--points", type=int, default=5)
    ap.add_argument("word", nargs="?", default="")
    a = ap.parse_args()
    a.qkv, a.library = os.path.abspath(a.qkv), os.path.abspath(a.library)
    failed = n = 0
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / "work"
        shutil.copytree(a.models, folder)
        for words in COMMANDS:
            if a.word not in " ".join(words):
                continue
            count = folder / "count"
            expected = wrong(a.qkv, a.library, words, folder, None, REFUSE_COUNT=str(count))
            total = int(count.read_text())
            found = [] if expected[0].returncode in (0, 1) else [expected[0].stderr]
            for at in random.Random(os.environ.get("QKV_TURN", "") + words[0]).sample(range(1, total + 1), a.points):
                for after, on in REFUSALS.items():
                    why = wrong(a.qkv, a.library, words, folder, expected, REFUSE_AT=str(at), **on)
                    if why:
                        found.append(f"allocation {at} of {total} refused{after}: {why}")
            n += 1
            failed += bool(found)
            print(f"{'not ' if found else ''}ok {n} - {words[0]}: {total} allocations", *found[:5], sep="\n#   ",
                  flush=True)
    print(f"1..{n}")
    return failed > 0


if __name__ == "__main__":
    raise SystemExit(main())
