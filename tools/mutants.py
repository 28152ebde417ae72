#!/usr/bin/env python3
"""Mutants of the built-in rules: one token of a graft or guard changed. Which does --prove catch?

    tools/mutants.py                    all rules; prints the table of docs/PROOF.md
    tools/mutants.py attention rotary   rules with one of these words in their names
    tools/mutants.py --list             mutants that were proven equal, one per line

Each mutant takes its rule's place in the cases of tests/rules in which that rule fires or must not fire, and is run
twice (build/tests/rules/run_rules --with): proven on exact payloads and proven on floats. A mutant is

    refused   it is not a rule, or it never fired: its guard does not hold, or the engine refused dtype, sizes or cost
    unseen    it fired, and every result is what the rule itself gives: nothing was there to catch
    caught    a proof failed
    equal     it fired, gave another graph, and no proof failed: the change says the same (layer_norm of x less its
              mean), or the graph has less fused (a wrong form that no rule takes up)

Where a proof failed, the same result must not be certified for all sizes (program/certify.h), whether or not the rule
itself is.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN = ROOT / "build/tests/rules/run_rules"
FORMULAS = ROOT / "build/src/rewrite/families/formulas.rules"
TOKEN = re.compile(r'"[^"]*"|[()\[\]]|[^\s()\[\]"]+')
SWAPS = [("mul", "div"), ("add", "sub"), ("softmax", "log_softmax"), ("true", "false"), ("maximum", "minimum"),
         ("sqrt", "neg"), ("layer_norm", "rms_norm"), ("silu", "sigmoid"), ("gelu", "silu"), ("exp", "neg"),
         ("relu", "neg"), ("sin", "cos"), ("mean", "sum")]
OTHER = {a: b for pair in SWAPS for a, b in (pair, pair[::-1])}


def without_comments(text):
    return re.sub(r";[^\n]*", "", text)


def elements(text, start, end):
    """Spans of the outermost words and lists of text[start:end]."""
    depth, first = 0, start
    for m in TOKEN.finditer(text, start, end):
        if depth == 0:
            first = m.start()
        depth += (m.group() in "([") - (m.group() in ")]")
        if depth == 0:
            yield first, m.end()


def parts(rule):
    """Spans of a rule's name, pattern, graft and guards."""
    return list(elements(rule, 1, len(rule) - 1))[1:]  # without the word "rule"


def changes(token, captures):
    """What one token may become."""
    if token.startswith("?"):
        return [next((c for c in captures if c != token), None)]
    if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", token):
        value = float(token)
        return [repr(value + 1) if "." in token else str(int(value) + 1), "-" + token if value > 0 else token[1:]]
    return [OTHER.get(token)]


def mutants(rule):
    """(what was changed, text) for every change of one token after the pattern; a guard left out is one."""
    spans = parts(rule)
    pattern, rest = spans[1], spans[2:]
    captures = list(dict.fromkeys(re.findall(r"\?\w+", rule[slice(*pattern)])))
    for number, (start, end) in enumerate(rest):
        kind = ("a form's " if rule.startswith("(derive") else "a rule's ") + ("graft" if number == 0 else "guard")
        for m in TOKEN.finditer(rule, start, end):
            for to in changes(m.group(), captures):
                if to and to != m.group():
                    yield kind, f"{m.group()} -> {to}", rule[:m.start()] + to + rule[m.end():]
        if number:
            yield kind, f"without {rule[start:end]}", rule[:start] + rule[end:]


def rules():
    """(name, phase, text) of the built-in rules."""
    files = sorted((ROOT / "src/rewrite").glob("*/*.rules")) + [FORMULAS]
    for path in files:
        phase = "recompose"
        text = without_comments(path.read_text())
        for text in [text[start:end] for start, end in elements(text, 0, len(text))]:
            words = TOKEN.findall(text)
            if words[1] == "phase":
                phase = words[2]
            else:
                yield words[2], phase, text


def cases():
    """Rule -> names of the cases with the built-in rules where it fires, gives a form, or must not fire."""
    found = collections.defaultdict(list)
    for path in sorted((ROOT / "tests/rules").glob("*.txt")):
        for case in path.read_text().split("=== ")[1:]:
            name = case.split("\n", 1)[0]
            if "--- rules\n" in case or "unproven" in case:
                continue
            fired = case.split("--- fired", 1)[-1] if "--- fired" in case else ""
            refused = "".join(re.findall(r"--- not ([^\n]*)", case))
            for word in set(re.findall(r"\w+", fired + " " + refused)):
                found[word].append((name, word in fired.split()))
    return found


def run(text, names, floats):
    """Outcome of each case: ("error", message), ("same", fired) or ("other", fired)."""
    with tempfile.NamedTemporaryFile("w", suffix=".rules") as f:
        f.write(text)
        f.flush()
        out = subprocess.run([RUN, "--with", f.name, *(["--floats"] if floats else []), ROOT / "tests/rules", *names],
                             capture_output=True, text=True, timeout=300).stdout
    for case in out.split("case ")[1:]:
        lines = case.split("\n")
        if lines[0].split(": ", 1)[1] in names:
            yield (lines[1].split(" ")[0], lines[1] if lines[1].startswith("error") else " ".join(lines[2:]))


DIFFERS = re.compile(r"the replacement of .* differs|skipping padding changes")


def certified(text, names):
    """The cases whose result is certified for all sizes."""
    with tempfile.NamedTemporaryFile("w", suffix=".rules") as f:
        f.write(text)
        f.flush()
        out = subprocess.run([RUN, "--with", f.name, "--certify", ROOT / "tests/rules", *names],
                             capture_output=True, text=True, timeout=300).stdout
    return {case.split("\n", 1)[0].split(": ", 1)[1] for case in out.split("case ")[1:]
            if case.split("\n")[1] == "certified"}


def differing(text, names):
    """The cases in which a firing differs from what it replaces."""
    return {name for name in names for kind, message in run(text, [name], False)
            if kind == "error" and DIFFERS.search(message)}


def judge(rule, text, names, floats):
    outcomes = list(run(text, names, floats))
    if any(kind == "error" and DIFFERS.search(message) for kind, message in outcomes):
        return "caught"
    if not outcomes or all(kind == "error" for kind, _ in outcomes):
        return "refused"
    fired = [kind for kind, what in outcomes if kind != "error" and rule in what.split()]
    if "other" in fired:
        return "equal"
    return "unseen" if fired else "refused"


def one(job):
    name, phase, kind, what, text, names = job
    text = f"(phase {phase})\n{text}\n"
    exact = judge(name, text, names, False)
    differ = differing(text, names) if exact == "caught" else set()
    told = bool(differ & certified("", names))  # there the rule itself is certified
    unsound = bool(differ & certified(text, names))
    return name, kind, what, exact, judge(name, text, names, True), told, unsound


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--list", action="store_true", help="print the mutants that were proven equal")
    parser.add_argument("--cases", type=int, default=4, help="cases per rule, of each kind (default 4)")
    o = parser.parse_args()
    where, jobs = cases(), []
    for name, phase, text in rules():
        if o.words and not any(w in name for w in o.words):
            continue
        fires = [n for n, f in where[name] if f][:o.cases]
        refuses = [n for n, f in where[name] if not f][:o.cases]
        jobs += [(name, phase, kind, what, mutant, fires + refuses) for kind, what, mutant in mutants(text)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(one, jobs))
    table = collections.Counter()
    for name, kind, what, exact, floats, told, unsound in results:
        wrong = "caught" in (exact, floats)
        table[kind, "made"] += 1
        table[kind, "refused"] += exact == "refused"
        table[kind, "unseen"] += exact == "unseen" and not wrong
        table[kind, "equal"] += exact == "equal" and not wrong
        table[kind, "wrong"] += wrong
        table[kind, "exact"] += exact == "caught"
        table[kind, "floats"] += floats == "caught"
        table[kind, "told"] += told
        table[kind, "unsound"] += unsound
        if unsound:
            print(f"{name}\t{kind}\t{what}\tcertified, and wrong")
        if o.list and (exact == "equal" or (wrong and exact != "caught")):
            print(f"{name}\t{kind}\t{what}\texact {exact}, floats {floats}")
    print("| token of | mutants | refused | no case tells | proven equal | wrong | caught exactly | caught by floats "
          "| the rule is certified | the mutant is |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    missed = 0
    for kind in ("a rule's graft", "a rule's guard", "a form's graft", "a form's guard"):
        row = [table[kind, c] for c in ("made", "refused", "unseen", "equal", "wrong", "exact", "floats",
                                        "told", "unsound")]
        print(f"| {kind} | " + " | ".join(map(str, row)) + " |")
        missed += table[kind, "wrong"] - table[kind, "exact"] + table[kind, "unsound"]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
