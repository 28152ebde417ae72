#!/usr/bin/env python3
"""Finds second lists of ops: four names or more of the op table in one place of src outside src/op. What is said of an
op stands in its row. Prints TAP.

    tools/oplists.py        not ok 3 - oplists: plan/layout.c
                            # src/plan/layout.c:9 one body for 18 ops: OP_relu, OP_silu, OP_gelu ...

A switch that does other work for each op is none; a list is

    one body      case OP_a: case OP_b: case OP_c: case OP_d: with nothing between
    an array      = {OP_a, OP_b, ...}, pairs and rows included
    a chain       id == OP_a || id == OP_b || ..., or strcmp(name, "aten.a.default") || ...
    of names      "aten.a.default", "aten.b.default", ... in one initializer

Arrays that are indexed by a number of axes, {OP_avg_pool1d, OP_avg_pool2d, OP_avg_pool3d}, have three.
"""
import pathlib
import re

import tap

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST = 3
OP = r"OP_(?!NONE\b|COUNT\b)\w+"
NAME = r'"(?:torch\.ops\.)?(?:aten|qkv|torchvision|prims)\.\w+(?:\.\w+)?"'
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def lists(text):
    """(offset, kind, ops) of each list."""
    for m in re.finditer(rf"(?:\bcase\s+{OP}\s*:\s*)+", text):
        yield m.start(), "one body for", re.findall(OP, m.group())
    for m in re.finditer(r"=\s*(\{[^;]*?\});", text):
        yield m.start(), "an array of", re.findall(rf"\b{OP}", m.group(1)) + re.findall(NAME, m.group(1))
    for kind in (rf"[=!]=\s*({OP})", rf"!?strn?cmp\([^()]*?({NAME})[^()]*\)"):
        for m in re.finditer(rf"{kind}(?:[^;{{}}?]*?(?:\|\||&&)[^;{{}}?]*?{kind})+", text):
            found = re.findall(OP, m.group()) if "OP_" in kind else re.findall(NAME, m.group())
            yield m.start(), "a chain of", found


def main():
    files = [p for p in sorted((ROOT / "src").rglob("*.[ch]")) if p.parent != ROOT / "src" / "op"]
    bad = []
    for p in files:
        text = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), p.read_text())
        for at, kind, ops in lists(text):
            if len(set(ops)) > MOST:
                bad.append((p.relative_to(ROOT), text.count("\n", 0, at) + 1, kind, ops))
    folders = sorted({str(p.parent.relative_to(ROOT)) for p in files})
    tap.report("oplists", [
        (folder, [f"{path}:{line} {kind} {len(ops)} ops: {', '.join(ops[:4])}{' ...' if len(ops) > 4 else ''}"
                  for path, line, kind, ops in bad if str(path.parent) == folder]) for folder in folders])


if __name__ == "__main__":
    main()
