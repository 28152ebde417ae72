#!/usr/bin/env python3
"""Checks who includes whom: the layers of ARCHITECTURE.md, from the #include lines. Prints TAP, one line a folder.

    tools/layers.py        not ok 3 - ir: src/ir/graph.c:5 includes plan/plan.h
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# folder -> folders (or single headers) it may include; its own folder is always allowed
ALLOWED = {
    "base": [],
    "tensor": ["base"],
    "format": ["base", "tensor"],
    "kernel": ["base", "tensor", "op/ops.def"],
    "op": ["base", "tensor"],
    "ir": ["base", "tensor", "op", "shape/expr.h"],
    "shape": ["base", "tensor", "op", "ir"],
    "backends": ["base", "tensor", "op", "ir", "shape"],
    "import": ["base", "tensor", "format", "op", "ir", "shape"],
    "emit": ["base", "tensor", "format", "op", "ir", "shape"],
    "rewrite": ["base", "tensor", "op", "ir", "shape", "backends"],
    "grad": ["base", "tensor", "op", "ir", "shape", "backends", "rewrite"],
    "verify": ["base", "tensor", "format", "op", "ir", "shape"],
    "plan": ["base", "tensor", "op", "ir", "shape", "kernel/kernel.h"],
    "run": ["base", "tensor", "op", "ir", "shape", "plan", "kernel"],
    "train": ["base", "tensor", "format", "op", "ir", "run", "kernel/kernel.h"],
    "text": ["base", "format"],
    "picture": ["base", "format"],
}
# files that lie lower than the rest of their folder
LOWER = {"shape/expr.h": ["base"], "shape/expr_impl.h": ["base"], "shape/expr.c": ["base"], "shape/expr_range.c": ["base"], "shape/expr_text.c": ["base"]}
# other people's headers, and the only places that may know them
FOREIGN = {
    "jansson.h": ["cli"], "zlib.h": ["format"], "unzip.h": ["format"], "minizip/": ["format"],
    "png.h": ["format"], "jpeglib.h": ["format"], "utf8proc.h": ["text"], "pcre2.h": ["text"], "oneapi/dnnl": ["kernel"], "dnnl": ["kernel"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def under(path, allowed):
    return any(path == a or path.startswith(a + "/") for a in allowed)


def violations(file, folder):
    """Lines of one file that include what its folder may not."""
    text = file.read_text(errors="replace")
    rel = file.relative_to(ROOT)
    inner = str(file.relative_to(ROOT / "src")) if folder not in ("cli", "include") else None
    for m in INCLUDE.finditer(text):
        line, target = text.count("\n", 0, m.start()) + 1, m.group(2)
        if m.group(1) == "<":
            for prefix, places in FOREIGN.items():
                if target == prefix or (target.startswith(prefix) and prefix[-1] != "h"):
                    if folder not in places and not (inner in places):
                        yield f"{rel}:{line} includes <{target}>"
            continue
        if folder == "cli":
            if target != "qkv.h" and not (ROOT / "cli" / target).exists():
                yield f"{rel}:{line} includes {target}; the command sees qkv.h alone"
            continue
        if folder is None or folder == "include":
            continue
        allowed = LOWER.get(inner) or ALLOWED[folder] + [folder]
        own = inner in LOWER and target in LOWER
        local = (file.parent / target).exists() and not (ROOT / "src" / target).exists()
        if not (own or local or under(target, allowed)):
            yield f"{rel}:{line} includes {target}"


def main():
    folders = sorted(p.name for p in (ROOT / "src").iterdir() if p.is_dir() and any(p.rglob("*.[ch]")))
    results = []
    for f in folders:
        if f not in ALLOWED:
            results.append((f, [f"src/{f} is not in tools/layers.py"]))
            continue
        results.append((f, [v for p in sorted((ROOT / "src" / f).rglob("*.[ch]")) for v in violations(p, f)]))
    results.append(("top", [v for p in sorted((ROOT / "src").glob("*.[ch]")) for v in violations(p, None)]))
    results.append(("cli", [v for p in sorted((ROOT / "cli").rglob("*.[ch]")) for v in violations(p, "cli")]))
    print(f"1..{len(results)}")
    for k, (name, bad) in enumerate(results, 1):
        print(f"{'not ' if bad else ''}ok {k} - layers: {name}")
        for b in bad:
            print(f"# {b}")
    sys.exit(any(bad for _, bad in results))


if __name__ == "__main__":
    main()
