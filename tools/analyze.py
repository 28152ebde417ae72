#!/usr/bin/env python3
"""What static analysers say of the library and the programs: make analyze. Exit 1 where one of them finds something.

    analyze.py [TOOL ...] [-- FILE ...]      gcc, clang-tidy, cppcheck; files relative to the project

Each tool leaves out what is listed beside it here (clang-tidy: in .clang-tidy), for the reason that stands there.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
ROOMS = ("src/", "cli/", "serve/", "vision/", "certify/")

# gcc -fanalyzer does not relate a loop that fills an array to the loop over the same range that reads it, nor
# `if (!f(&x)) return false` (TRY) to x being set: 780 findings of these kinds; 40 were followed, and none of their
# paths can be taken. NULL from a failed allocation is tested by running: tests/oom refuses every allocation once.
GCC = ("use-of-uninitialized-value", "null-dereference", "null-argument")

# cppcheck reads neither hexadecimal floats nor the loops of base/ and format/ that are macros, and takes a pointer that
# is given to a call for one that is returned.
CPPCHECK = ("unknownMacro", "internalAstError", "incorrectLogicOperator", "returnDanglingLifetime", "uninitvar",
            "arrayIndexThenCheck",  # text[i] && i < n: the text ends first
            "zerodivcond",          # a step of 0 is refused where it is read
            "invalidFunctionArg")   # log(0) of an empty sum is -inf, as in PyTorch


def commands():
    """{file: [compiler, argument, ...]} without outputs, of the rooms whose code is not a kernel's, which have no
    pointers but their arguments."""
    found = {}
    for e in json.loads((BUILD / "compile_commands.json").read_text()):
        name = os.path.relpath(os.path.join(e["directory"], e["file"]), ROOT)
        if not name.startswith(ROOMS) or name.startswith("src/kernel/") or name in found:
            continue
        words, out, skip = shlex.split(e["command"]), [], False
        for w in words:
            if not skip and w not in ("-MD", "-Werror", "-o", "-MQ", "-MF", "/usr/bin/ccache", "ccache"):
                out.append(w)
            skip = w in ("-o", "-MQ", "-MF")
        found[name] = out
    return found


def gcc(files, known):
    if known[files[0]][0].endswith("clang"):
        return None
    off = [f"-Wno-analyzer-{k}" for k in GCC]

    def one(name):
        done = subprocess.run([*known[name], "-o", os.devnull, "-fanalyzer", *off, "-fdiagnostics-plain-output"],
                              cwd=BUILD, capture_output=True, text=True)
        return [line for line in done.stderr.splitlines() if "-Wanalyzer" in line]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [line for lines in pool.map(one, files) for line in lines]


def clang_tidy(files, _known):
    def one(name):
        done = subprocess.run(["clang-tidy", "-p", str(BUILD), "--quiet", "--extra-arg=-w", str(ROOT / name)],
                              capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if re.search(r"(warning|error): .*\[", line)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return sorted({line for lines in pool.map(one, files) for line in lines})


def cppcheck(files, _known):
    done = subprocess.run(["cppcheck", "-q", f"-j{os.cpu_count()}", "--enable=warning,portability", "--std=c11",
                           "-D_GNU_SOURCE", "-Iinclude", "-Isrc", "-Ibuild/src", "-Ibuild/src/op",
                           *(f"--suppress={k}" for k in (*CPPCHECK, "missingIncludeSystem")),
                           "--template={file}:{line}: {id}: {message}", *files],
                          cwd=ROOT, capture_output=True, text=True)
    return [line for line in done.stderr.splitlines() if ": " in line]


TOOLS = {"gcc": ("gcc", gcc), "clang-tidy": ("clang-tidy", clang_tidy), "cppcheck": ("cppcheck", cppcheck)}


def main():
    words = sys.argv[1:]
    asked, files = (words[:words.index("--")], words[words.index("--") + 1:]) if "--" in words else (words, [])
    unknown = [w for w in asked if w not in TOOLS]
    if unknown:
        sys.exit(f"analyze.py: no analyser '{unknown[0]}': {', '.join(TOOLS)}")
    known, bad = commands(), 0
    files = files or sorted(known)
    for name in asked or TOOLS:
        program, run = TOOLS[name]
        found = run(files, known) if shutil.which(program) else None
        if found is None:
            print(f"{name}: not installed, left out")
            continue
        print(f"{name}: {len(files)} files, {len(found)} findings", *found, sep="\n  ")
        bad += len(found)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
