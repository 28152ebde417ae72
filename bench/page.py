#!/usr/bin/env python3
"""The page of a kind of CPU, of what bench/peers.py --page kept.

    bench/page.py bench/results/zen4.json           writes zen4.md and zen4.svg beside it

Tables by precision and threads, geometric means, and for each row what limits it: the slowest ops of qkv's run with
their share of its time, and of the machine's multiply-adds or reading, whichever is nearer.
"""
import json, math, os, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import draw, models, peer

BUSY = 0.5  # CPUs that others used, or that the host took, from which on a row is marked
PRECISIONS = {"f32": "float32", "bf16": "bfloat16", "int8": "Integers of 8 bits"}


def busy(row):
    return max(row["others"], row["stolen"]) > BUSY


def threads_of(key):
    return int(key.split("/")[1])


def share_of_peak(row, name, threads):
    """Of the multiply-adds that the row's best peak allows; None of integers, for which no loop is timed."""
    if peer.precision(name) == "int8":
        return None
    top = max(r[peer.precision(name) == "bf16"] for r in row["peak"]) * threads
    return row["flops"] / top / 1e6 / row["peers"][name]["min_ms"] if top else None


def percent(x):
    return "" if x is None else f"{100 * x:.0f} %"


# ------------------------------------------------------------------ tables
def cell(row, name):
    found = row["peers"].get(name, {})
    return f"{found['min_ms']:.2f}" if "min_ms" in found else "-"


def heading(columns):
    return ["| " + " | ".join(columns) + " |", "|---|" + "---:|" * (len(columns) - 1)]


def table(rows, precision, threads):
    """Of {key: row}: our columns, what they are compared with, ratios and shares."""
    names = list(dict.fromkeys(p for row in rows.values() for p in row["peers"] if peer.precision(p) == precision))
    mine = [p for p in names if p.startswith("qkv")]
    theirs = [p for p in names if p not in mine]
    lines = heading(["model", *mine, *theirs, *(f"best / {p}" for p in mine), "of peak", "peak", "others"])
    for key, row in rows.items():
        ratios = [row["peers"].get(p, {}).get("best_peer_over_qkv") for p in mine]
        share = share_of_peak(row, mine[0], threads) if mine and "min_ms" in row["peers"].get(mine[0], {}) else None
        seen = [r[precision == "bf16"] for r in row["peak"]]
        lines.append("| " + " | ".join([
            key.split("/")[0], *(cell(row, p) for p in mine + theirs),
            *("-" if r is None else f"{r:.2f}" for r in ratios), percent(share),
            "" if precision == "int8" else f"{seen[0]:.0f}, {seen[-1]:.0f}",
            f"{max(row['others'], row['stolen']):.2f}" + (" busy" if busy(row) else "")]) + " |")
    return lines + [""] + means(rows, mine) + cosines(rows, mine + theirs) + failures(rows, names)


def means(rows, mine):
    out = []
    for p in mine:
        ratios = {key.split("/")[0]: row["peers"][p]["best_peer_over_qkv"] for key, row in rows.items()
                  if "best_peer_over_qkv" in row["peers"].get(p, {})}
        if ratios:
            mean, low = math.exp(sum(map(math.log, ratios.values())) / len(ratios)), min(ratios, key=ratios.get)
            out += [f"{p}: geometric mean {mean:.2f} x the best peer over {len(ratios)} models, lowest "
                    f"{ratios[low]:.2f} ({low}).", ""]
    return out


def cosines(rows, names):
    """Of peers in integers: how near they are to the floats."""
    known = {key: [row["peers"].get(p, {}).get("cosine") for p in names] for key, row in rows.items()}
    known = {key: found for key, found in known.items() if any(found)}
    if not known:
        return []
    return (["Cosine of the first output with PyTorch's in float32:", ""] + heading(["model", *names]) +
            ["| " + " | ".join([key.split("/")[0], *("-" if c is None else f"{c:.6f}" for c in found)]) + " |"
             for key, found in known.items()] + [""])


def failures(rows, names):
    found = [f"- {key.split('/')[0]}, {p}: {row['peers'][p]['error']}" for key, row in rows.items() for p in names
             if "error" in row["peers"].get(p, {})]
    return (["Without a figure:", ""] + found + [""]) if found else []


# ------------------------------------------------------------------ what limits a row
def bound(op):
    """An op by what is nearer to its limit."""
    name = op["op"].removeprefix("aten.").removesuffix(".default")
    what, share = max(("multiply-adds", op["share_of_peak"]), ("reading", op["share_of_reading"]), key=lambda x: x[1])
    return f"{name} {percent(op['share'])}" + (f" ({percent(share)} of {what})" if share > 0.005 else "")


def limits(rows):
    lines = []
    for key, row in rows.items():
        for p, ops in row["limits"].items():
            said = "; ".join(bound(op) for op in ops if op["share"] >= 0.02)
            lines.append(f"| {key.split('/')[0]} | {threads_of(key)} | {p} | {said} |")
    return ["| model | threads | peer | ops by their share of the time |", "|---|---:|---|---|"] + lines


# ------------------------------------------------------------------ the page
INTRO = """`make bench` measures rows and writes this page; do not edit it. Milliseconds, the least of all rounds, in
which all peers take turns, each family in a process of its own. torch-bf16 and compile-bf16 have their weights cast
once. Ratio: the best peer of the precision over qkv; above 1, qkv is faster. Of peak: operations of products,
convolutions and attention against the fastest multiply-add loop on registers of the row's rounds; "peak" is that loop
before the first and after the last round, GFLOP/s of a core. "others": CPUs that other processes used meanwhile, or
that the host took away; above 0.5 the row is marked busy, and a later run measures it again."""


def in_order(rows):
    """As bench/models.py names them."""
    names = models.names("all")
    return dict(sorted(rows.items(), key=lambda r: (threads_of(r[0]), names.index(r[0].split("/")[0]), r[0])))


def of_group(rows, threads, integers):
    return {key: row for key, row in rows.items()
            if threads_of(key) == threads and key.endswith("/int8") == integers}


def picture(rows):
    """Bars of the ratios of one thread, float32 beside bfloat16."""
    ratio = lambda row, name: row["peers"].get(name, {}).get("best_peer_over_qkv")
    groups = [(key.split("/")[0], [("qkv", False, ratio(row, "qkv")), ("qkv", True, ratio(row, "qkv-bf16"))])
              for key, row in of_group(rows, 1, False).items()]
    return draw.bars("the best peer's time over qkv's, one thread", groups, ["qkv"], "level")


def sections(rows):
    for threads in sorted({threads_of(key) for key in rows}):
        for precision, title in PRECISIONS.items():
            some = {key: row for key, row in of_group(rows, threads, precision == "int8").items()
                    if any(peer.precision(p) == precision for p in row["peers"])}
            if some:
                yield [f"## {title}, {threads} thread{'s' * (threads > 1)}", "", *table(some, precision, threads)]


def text(kept, svg):
    ordered = in_order(kept["rows"])
    rows = ordered.values()
    dates, versions = sorted(r["date"] for r in rows), sorted({r["qkv"] for r in rows})
    lines = [f"# {kept['kind']}", "", INTRO, "", *(f"- {part}" for part in kept["machine"].split("; ")),
             f"- measured from {dates[0]} to {dates[-1]} UTC", *(f"- {v}" for v in versions),
             f"- {sum(map(busy, rows))} of {len(rows)} rows busy", "", f"![the best peer's time over qkv's]({svg})",
             ""]
    for section in sections(ordered):
        lines += section
    lines += ["## What limits each row", "",
              "From `qkv bench --per-op`: ops with 2 % of the time and more, and how near each comes to the machine's",
              "multiply-adds or to what it reads from memory, whichever is nearer. Above 100 % of reading, it came",
              "from a cache.", "", *limits(ordered)]
    return "\n".join(lines) + "\n"


def write(kept, path):
    """PATH.md and PATH.svg"""
    open(path + ".svg", "w").write(picture(in_order(kept["rows"])))
    open(path + ".md", "w").write(text(kept, os.path.basename(path) + ".svg"))


def main():
    for path in sys.argv[1:]:
        write(json.load(open(path)), path.removesuffix(".json"))


if __name__ == "__main__":
    main()
