#!/usr/bin/env python3
"""Writes the last figures of the suites into docs/TESTING.md, from the logs of tools/check.sh.

    make check-all FULL=1 && tools/testing.py build/check      [--commit HASH]: where the logs are another tree's

A suite's figures: passed, failed, seconds on the wall, seconds of processor (its own and its children's).
"""
import argparse
import datetime
import pathlib
import re
import subprocess

import count

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "TESTING.md"
BEGIN, END = "<!-- tools/testing.py writes from here -->\n", "<!-- to here -->\n"


def seconds(text):
    """2m17.246s, as bash prints times."""
    minutes, rest = re.fullmatch(r"(\d+)m([\d.]+)s", text).groups()
    return 60 * int(minutes) + float(rest)


def rows(logs):
    """(suite, passed, failed, seconds, processor seconds or None), in the order in which they ended."""
    took = {name: int(s) for name, s in (line.split() for line in (logs / "figures").read_text().splitlines())}
    for line in (logs / "suites").read_text().splitlines():
        name, path, code = re.fullmatch(r"(.*?)=(.*):(\d+)", line).groups()
        text = (logs / pathlib.Path(path).name).read_text(errors="replace")
        passed, failed = (count.count_meson(text) if path.endswith(".json") else count.count_text(text, int(code)))[:2]
        times = logs / f"{name}.times"
        used = sum(map(seconds, times.read_text().splitlines()[-1].split())) if times.exists() else None
        yield name, passed, failed, took[name], used


def processor():
    """The machine's CPU and how many of it there are."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    names = re.findall(r"^model name\s*: (.*)$", info, re.M)
    return f"{len(names)} cores of {names[0]}" if names else "unknown CPU"


def table(logs, commit):
    when = datetime.date.fromtimestamp((logs / "suites").stat().st_mtime)
    share = (logs / "share").read_text().strip()
    what = "everything (`FULL=1`)" if share == "1" else f"a share run (one entry in {share} of the rotating suites)"
    lines = [f"{when}, commit {commit}, {processor()}: {what}.", "",
             "| suite | passed | failed | seconds | processor, s |", "|---|---:|---:|---:|---:|"]
    every = list(rows(logs))
    for name, passed, failed, took, used in every:
        lines.append(f"| {name} | {passed} | {failed} | {took} | {'' if used is None else round(used)} |")
    lines.append(f"| together | {sum(r[1] for r in every)} | {sum(r[2] for r in every)} | | "
                 f"{round(sum(r[4] or 0 for r in every))} |")
    return "\n".join(lines) + "\n"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("logs", type=pathlib.Path, help="the folder of logs: build/check")
    ap.add_argument("--commit", help="whose logs they are; this tree's commit without it")
    a = ap.parse_args()
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + table(a.logs, a.commit or head.stdout.strip()) + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
