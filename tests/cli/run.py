#!/usr/bin/env python3
"""Runs the command's tests: NAME.t holds shell commands and exactly what they print.

    $ qkv verify affine.pt2 -i x.safetensors -e wrong.safetensors
    output    result ...          standard output
    ! qkv: warning: ...           standard error
    ? 1                           the exit code, when it is not 0

    run.py QKV [--bless] [--turns] [--sandbox] [NAME ...]
                                                 prints TAP; --bless writes what was printed into the files instead;
                                                 --sandbox: each command runs in the sandbox, and says the same;
                                                 --turns, or QKV_CPU (a level other than the machine's): where
                                                 QKV_TURN (hexadecimal) is set, a third of the files, which it chooses

Every file runs in a fresh folder that holds copies of models/, with `qkv`, `make` (make.py) and `trace` (trace.py) as
commands. Lines that begin with '#' are comments. Measured times, memory and the CPU's name are replaced by N; all
else with a fraction may differ by 2e-4, because
kernels differ from CPU to CPU.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
MEASURED = [
    (re.compile(r" *\d+\.\d+ ms"), " N ms"),
    (re.compile(r'("\w*(?:_ms|_mb|ms|share)": )[\d.e+-]+'), r"\1N"),
    (re.compile(r"peak memory [\d.]+ MiB.*"), "peak memory N"),
    (re.compile(r"\b(ref|gen|avx2|avxvnni|avx512|avx512vnni|avx512bf16|amx)\b(?!, )"), "CPU"),
]


def render(out, err, code):
    lines = out.splitlines() + ["! " + line for line in err.splitlines()] + ([f"? {code}"] if code else [])
    text = []
    for line in lines:
        for pattern, to in MEASURED:
            line = pattern.sub(to, line)
        text.append(line.rstrip())
    return text


def same_line(a, b):
    if a == b:
        return True
    if NUMBER.sub("0", re.sub(" +", " ", a)) != NUMBER.sub("0", re.sub(" +", " ", b)):
        return False
    for x, y in zip(NUMBER.findall(a), NUMBER.findall(b)):
        if x != y and ("." not in x + y and "e" not in x + y or abs(float(x) - float(y)) > 2e-4 * max(1,
            abs(float(x)))):
            return False
    return True


def same(a, b):
    return len(a) == len(b) and all(map(same_line, a, b))


def parse(text):
    """[(comment lines, command, expected lines)]"""
    cases, head = [], []
    for line in text.splitlines():
        if line.startswith("$ "):
            cases.append((head, line[2:], []))
            head = []
        elif line.startswith("#") or (not line and (head or not cases)):
            head.append(line)
        elif cases and not head:
            cases[-1][2].append(line)
        else:
            head.append(line)
    return cases, head


def uncounted(text):
    """Without what gcov says of counters that the sandbox keeps it from writing (tools/coverage.py)."""
    return re.sub(r"^profiling:.*\n", "", text, flags=re.M) if os.environ.get("QKV_COUNTED") else text


# What the sandbox adds to exit code 3, and the one file that a command reads without being told its name.
SANDBOX_NOTE = re.compile(r"^qkv: the sandbox opens only files that the command line names, .*\n", re.M)
NOT_NAMED = re.compile(r"^qkv generate (?!.*(--tokenizer|--help)).* --prompt")
SANDBOX = """#!/bin/sh
case "$1" in ""|-*|help) exec {exe} "$@" ;; esac
exec {exe} --sandbox "$@"
"""


def run_file(path, exe, bless, sandbox):
    """Prints TAP lines; returns (ran, failed)."""
    cases, tail = parse(path.read_text())
    failed, text = 0, []
    with tempfile.TemporaryDirectory() as d:
        work = pathlib.Path(d) / "work"
        shutil.copytree(HERE / "models", work)
        bin = pathlib.Path(d) / "bin"
        bin.mkdir()
        if sandbox:
            (bin / "qkv").write_text(SANDBOX.format(exe=shlex.quote(str(exe))))
            (bin / "qkv").chmod(0o755)
        else:
            (bin / "qkv").symlink_to(exe)
        for tool in ("make", "trace"):
            (bin / tool).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE}/{tool}.py" "$@"\n')
            (bin / tool).chmod(0o755)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("QKV_NUM", "OMP_NUM"))}
        env.update(PATH=f"{bin}:{env['PATH']}", QKV_NUM_THREADS="1", TERM="dumb", LC_ALL="C.UTF-8",
                   MAN=str(HERE.parent.parent / "man"))
        for head, command, expected in cases:
            if sandbox and NOT_NAMED.search(command):
                continue
            r = subprocess.run(["bash", "-c", command], cwd=work, env=env, capture_output=True, text=True,
                               timeout=300, stdin=subprocess.DEVNULL)
            out, err = (SANDBOX_NOTE.sub("", uncounted(s)) if sandbox else uncounted(s) for s in (r.stdout, r.stderr))
            got = render(out, err, r.returncode)
            while expected and not expected[-1]:
                expected = expected[:-1]
            got_cut = list(got)
            while got_cut and not got_cut[-1]:
                got_cut.pop()
            ok = same(expected, got_cut)
            text += head + ["$ " + command] + (expected if ok else got_cut)
            failed += not ok
            yield ok, command, expected, got_cut
    if bless and failed:
        path.write_text("\n".join(text + tail) + "\n")


def main():
    args = [a for a in sys.argv[1:] if a not in ("--bless", "--turns", "--sandbox")]
    bless, turns = "--bless" in sys.argv, "--turns" in sys.argv or "QKV_CPU" in os.environ
    turn = os.environ.get("QKV_TURN") if turns else None
    exe = pathlib.Path(args[0]).resolve()
    names = args[1:] or sorted(p.stem for p in HERE.glob("*.t"))[int(turn, 16) % 3 if turn else 0::3 if turn else 1]
    n = failed = 0
    if "--sandbox" in sys.argv:
        r = subprocess.run([exe, "--sandbox", "inspect", HERE / "models/affine.pt2"], capture_output=True, text=True)
        if r.returncode == 4 and "this system" in r.stderr:
            print(f"1..0 # SKIP {r.stderr}")
            sys.exit(77)
    for name in names:
        for ok, command, expected, got in run_file(HERE / f"{name}.t", exe, bless, "--sandbox" in sys.argv):
            n += 1
            failed += not ok
            print(f"{'ok' if ok else 'not ok'} {n} - {name}: {command}", flush=True)
            if not ok and not bless:
                for line in expected:
                    print(f"#  - {line}")
                for line in got:
                    print(f"#  + {line}")
    print(f"1..{n}")
    sys.exit(failed > 0 and not bless)


if __name__ == "__main__":
    main()
