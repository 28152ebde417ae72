#!/usr/bin/env python3
"""Adds up all suites. Each argument is a log NAME=FILE or NAME=FILE:EXIT (the suite's exit code); prints a table and
"N passed, N failed" as its last line; exits 1 when anything failed.

Understands TAP (ok / not ok), pytest summaries ("3 passed, 1 failed in 0.1s"), and meson's testlog.json (one object a
line, whose stdout is TAP). A suite that ended badly without a failed test to show for it counts as one failed; one
that printed no test and ended well counts as one passed.

    tools/count.py c=build/meson-logs/testlog.json python=build/check/python.log:0
"""
import json
import re
import sys

TAP = re.compile(r"^\s*(not )?ok\b(?! *# *SKIP)(?:.*?(# *SKIP))?", re.I)
PYTEST = re.compile(r"\b(\d+) (passed|failed|errors?|skipped)\b")


def count_text(text, code):
    """(passed, failed, skipped, lines that failed) of one program's output."""
    passed = failed = skipped = 0
    lines = []
    summary = None
    for line in text.splitlines():
        m = TAP.match(line)
        if m:
            if "# skip" in line.lower():
                skipped += 1
            elif m.group(1):
                failed += 1
                lines.append(line.strip())
            else:
                passed += 1
        elif re.match(r"^=*\s*\d+ (passed|failed|errors?|skipped)\b.* in [\d.]+", line):
            summary = line
        elif line.startswith(("FAILED ", "ERROR ")):
            lines.append(line.strip())
    if summary:
        for n, what in PYTEST.findall(summary):
            if what == "passed":
                passed += int(n)
            elif what == "skipped":
                skipped += int(n)
            else:
                failed += int(n)
    if code and not failed:
        failed += 1
        lines.append(f"ended with exit code {code}")
    if not passed and not failed and not skipped:
        passed = 1
    return passed, failed, skipped, lines


def count_meson(text):
    """Meson's JSON log: every test program is a suite of its own."""
    total = [0, 0, 0, []]
    for line in filter(str.strip, text.split("\n")):
        t = json.loads(line)
        if t["result"] == "SKIP":
            total[2] += 1
            continue
        code = 0 if t["result"] in ("OK", "EXPECTEDFAIL") else t.get("returncode") or 1
        got = count_text(t.get("stdout") or "", code)
        for k in range(3):
            total[k] += got[k]
        total[3] += [f"{t['name']}: {x}" for x in got[3]]
    return tuple(total)


def main():
    sums = [0, 0, 0]
    for arg in sys.argv[1:]:
        name, path = arg.split("=", 1)
        path, _, code = path.partition(":")
        code = int(code or 0)
        try:
            text = open(path, errors="replace").read()
        except OSError as e:
            text, code = "", code or 1
            print(f"# {name}: {e}")
        got = count_meson(text) if path.endswith(".json") else count_text(text, code)
        if path.endswith(".json") and code and not got[1]:
            got = (got[0], 1, got[2], [f"ended with exit code {code}"])
        for k in range(3):
            sums[k] += got[k]
        print(f"{name:24s} {got[0]:6d} passed {got[1]:4d} failed" + (f" {got[2]:4d} skipped" if got[2] else ""))
        for line in got[3][:20]:
            print(f"    {line}")
    print(f"{sums[0]} passed, {sums[1]} failed")
    sys.exit(sums[1] > 0)


if __name__ == "__main__":
    main()
