#!/usr/bin/env python3
"""The figures of `make coverage-attention`: runs the spellings and the survey, prints the result,
and writes it into docs/ATTENTION.md.

    coverage.py                            exports everything in a temporary folder first (takes half an hour)
    coverage.py --spellings DIR --models DIR        from folders made earlier by generate.py and survey.py --out
    coverage.py --failures FILE            writes what failed, one paragraph per spelling or model,
                                           with the rewriter's reasons
    coverage.py --dry                      does not write docs/ATTENTION.md
"""
import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "ATTENTION.md"
sys.path.insert(0, str(HERE))
from run import summary  # noqa: E402


def collect(script, folder, tmp):
    report = os.path.join(tmp, script + ".json")
    args = [sys.executable, str(HERE / f"{script}.py"), "--report", report] + (["--dir", folder] if folder else [])
    log = subprocess.run(args, stdout=subprocess.PIPE, text=True).stdout
    return json.load(open(report)), [line for line in log.splitlines() if "cannot make" in line]


def cpu():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def share(a, b):
    return f"{a} of {b}"


def pairs(models):
    """Models by name without their spelling: {name: {"eager" | "sdpa" | "": result}}."""
    out = {}
    for m in models:
        name, _, impl = m["name"].rpartition("_")
        key = (name, impl) if impl in ("eager", "sdpa") else (m["name"], "")
        out.setdefault(key[0], {})[key[1]] = m
    return out


def found(r):
    return "-" if r is None else f"{min(r['fused'], r['attentions'])}/{r['attentions']}" + ("" if r["right"]
        else " wrong")


def figures(spelled, models):
    s = summary(spelled)
    by_impl = {impl: [m for m in models if (m["name"].rpartition("_")[2] if m["name"].rpartition("_")[2] in ("eager",
        "sdpa") else "") == impl] for impl in ("eager", "sdpa", "")}
    total = lambda ms: share(sum(min(m["fused"], m["attentions"]) for m in ms), sum(m["attentions"] for m in ms))
    whole = lambda ms: share(sum(m["ok"] for m in ms), len(ms))
    big = max(models, key=lambda m: m["nodes_before"])
    lines = [
        "| figure | |", "|---|---|",
        f"| legitimate spellings that pass | {share(s['legitimate_right'], s['legitimate'])} |",
        f"| legitimate spellings whose outputs changed | {s['legitimate_wrong_numbers']} |",
        f"| traps that fail | {share(s['traps_wrong'], s['traps'])} |",
        f"| attentions found, models written out (eager) | {total(by_impl['eager'])}, in whole models "
        f"{whole(by_impl['eager'])} |",
        f"| attentions found, models that call scaled_dot_product_attention | {total(by_impl['sdpa'])}, in whole "
        f"models {whole(by_impl['sdpa'])} |",
        f"| attentions found, other models | {total(by_impl[''])}, in whole models {whole(by_impl[''])} |",
        f"| models whose outputs changed | {sum(not m['right'] for m in models)} |",
        f"| largest difference, relative to the largest value (float32) | "
        f"{max((m['error'] for m in models + spelled if m['right'] and m['wide']), default=0):.1e} |",
        f"| biggest graph | {big['name']}: {big['nodes_before']} to {big['nodes_after']} nodes, {big['ms']:.0f} ms "
        "with the proof |",
        "", f"{cpu()}, `make coverage-attention`.", "",
        "| model | attentions | eager | sdpa | largest difference | nodes before | after |",
        "|---|--:|--:|--:|--:|--:|--:|"]
    for name, impls in sorted(pairs(models).items()):
        first = impls.get("eager") or impls.get("") or impls["sdpa"]
        lines.append(f"| {name} | {first['attentions']} | {found(impls.get('eager') or impls.get(''))} | "
                     f"{found(impls.get('sdpa'))} | {max(m['error'] for m in impls.values()):.0e} | "
                     f"{first['nodes_before']} | {first['nodes_after']} |")
    return s, "\n".join(lines)


def failures(spelled, models, unmade):
    out = []
    for r in sorted(spelled, key=lambda r: (r["right"], r["kind"] == "legit", r["group"])) + sorted(models,
        key=lambda r: r["right"]):
        if not r["ok"]:
            out.append(f"{r['name']} ({r.get('kind', 'model')}, "
                       f"{'numbers right' if r['right'] else 'NUMBERS WRONG'}): {r['why']}")
            out += [f"    left {x['node']}: {x['rule']}: {x['reason']}" + (f" ({x['advice']})" if x["advice"] else "")
                    for x in r["reasons"][:3]]
    return "\n".join(out + unmade) + "\n"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--spellings")
    ap.add_argument("--models")
    ap.add_argument("--failures")
    ap.add_argument("--dry", action="store_true")
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        (spelled, unmade), (models, more) = collect("run", a.spellings, tmp), collect("survey", a.models, tmp)
    s, text = figures(spelled, models)
    print(text)
    if a.failures:
        open(a.failures, "w").write(failures(spelled, models, unmade + more))
    if not a.dry:
        page = PAGE.read_text()
        PAGE.write_text(re.sub(r"(<!-- figures -->\n).*(<!-- end of figures -->)",
                               lambda m: m.group(1) + text + "\n" + m.group(2), page, flags=re.S))
    for line in unmade + more:
        print(line)
    sys.exit(bool(s["traps_wrong"] or s["legitimate_wrong_numbers"] or any(not m["right"] for m in models)))


if __name__ == "__main__":
    main()
