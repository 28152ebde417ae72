#!/usr/bin/env python3
"""Cost against size: measures and draws bench/attention.svg (time of attention over the number of tokens) and
bench/padding.svg (time of a batch of texts over the share of padding).

  plots.py [attention] [padding] [--peers ort,ov,ov-bf16,qkv,qkv-bf16] [--rounds 5] [--sizes 128,256,...] [--shares
  0,10,...] [--threads 1]
           [--qkv build/qkv] [--cache DIR] [--out bench]
  plots.py --draw                            draws again from bench/attention.json and bench/padding.json,
                                             where the figures are kept

Attention is sdpa_1_12_N_64: one sequence, 12 heads of 64. The batches are BERT base with 8 texts and MiniLM with 16,
at most 128 tokens (bench/models.py). Measured as bench/peers.py does: all peers in turn, the least of all rounds. The
SVG has no scripts and takes its colours from the reader's scheme, light or dark.
"""
import argparse, json, os, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import machine, models, peers, prepare
from draw import H, LEFT, W, legend, number, panel, svg

SIZES = "128,256,512,1024,2048,4096,8192,16384"
SHARES = "0,10,20,30,40,50,60,70,80,90"


# ------------------------------------------------------------------ measuring
def measure(names, wanted, a, peak):
    """{model: {peer: ms}}; a long run has few iterations a round."""
    out = {}
    for name in names:
        a.peers = ",".join(wanted)
        r = peers.compare(name, a, peak)
        out[name] = {p: row.get("min_ms") for p, row in r["peers"].items()}
        errors = {p: row["error"] for p, row in r["peers"].items() if "error" in row}
        print(name, " ".join(f"{p} {t:.3f}" for p, t in out[name].items() if t),
              *(f"{p}: {e}" for p, e in errors.items()), flush=True)
    return out


def room_for_scores(n):
    """Is there memory for two matrices of scores (12, n, n)? ONNX Runtime and OpenVINO may make them."""
    free = next(int(l.split()[1]) for l in open("/proc/meminfo") if l.startswith("MemAvailable")) * 1024
    return 2 * 4 * 12 * n * n < 0.6 * free


def attention(a, peak):
    out = {}
    for n in map(int, a.sizes.split(",")):
        a.iterations, a.rounds = (2, a.most) if n <= 2048 else (1, max(2, a.most // 2))
        kinds = [k for k in a.kinds.split(",") if room_for_scores(n) or not k.startswith(("ort", "ov"))]
        out.update({str(n): t for t in measure([f"sdpa_1_12_{n}_64"], kinds, a, peak).values()})
    return out


def padding(a, peak):
    out, kinds = {}, a.kinds.split(",")
    kinds += [k.replace("qkv", "qkv-skip") for k in kinds if k in ("qkv", "qkv-bf16")]
    a.iterations, a.rounds = 1, a.most
    for model, batch in (("bert_b", 8), ("minilm", 16)):
        got = measure([f"{model}_pad_{int(s)}" for s in a.shares.split(",")], kinds, a, peak)
        out[model] = {str(share_of(batch, int(n.rsplit("_", 1)[1]))): t for n, t in got.items()}
    return out


def share_of(batch, wanted):
    """Percent of padding that the batch really has: with one token a text at least, 8 texts cannot have 90."""
    return round(100 * (1 - sum(models.lengths_for(batch, 128, wanted / 100)) / (batch * 128)))


# ------------------------------------------------------------------ drawing
def series_of(figures, ratio=lambda x, ms: ms):
    """[(class, bf16?, [(x, value)])] of {x: {peer: ms}}"""
    seen = list(dict.fromkeys(p for t in figures.values() for p in t))
    out = []
    for p in seen:
        points = [(float(x), ratio(float(x), t[p])) for x, t in figures.items() if t.get(p)]
        if points:
            out.append((p.removesuffix("-bf16"), p.endswith("bf16"), points))
    return out


def draw_attention(d, out):
    f = d["figures"]
    sizes = [int(n) for n in f]
    ticks = [(n, number(n) if n < 1000 else f"{n // 1024}k") for n in sizes]
    time = series_of(f)
    rate = series_of(f, lambda n, ms: 4 * 12 * n * n * 64 / ms / 1e6)
    kinds = list(dict.fromkeys(k for k, _, _ in time))
    body = (panel(0, 30, "attention of 12 heads of 64", "tokens", ticks, "ms", time, True, True)
            + panel(W, 30, "the same as operations a second", "tokens", ticks, "GFLOP/s", rate, True,
                    False) + legend(LEFT, 24, kinds, any(h for _, h, _ in time))
            + f'<text x="{LEFT}" y="{H + 48}">{d["machine"]}; {d["threads"]} thread{"s" * (d["threads"] > 1)}, '
              f'{d["date"]}</text>')
    open(os.path.join(out, "attention.svg"), "w").write(svg(2 * W, H + 62, kinds, body,
                                                            "Time of attention over the number of tokens"))


def draw_padding(d, out):
    body, kinds, halves = "", [], False
    for i, (model, title) in enumerate((("bert_b", "BERT base, 8 texts of at most 128 tokens"),
                                        ("minilm", "MiniLM, 16 texts of at most 128 tokens"))):
        s = series_of(d["figures"][model])
        kinds = list(dict.fromkeys(kinds + [k for k, _, _ in s]))
        halves |= any(h for _, h, _ in s)
        body += panel(i * W, 30, title, "share of padding", [(float(x), f"{x} %") for x in d["figures"][model]], "ms",
                      s, False, False)
    body += legend(LEFT, 24, kinds,
                   halves) + f'<text x="{LEFT}" y="{H + 48}">{d["machine"]}; {d["threads"]} thread{"s" * (d["threads"] > 1)}, {d["date"]}</text>'
    open(os.path.join(out, "padding.svg"), "w").write(svg(2 * W, H + 62, kinds, body,
                                                          "Time of a batch over the share of padding"))


DRAW = {"attention": draw_attention, "padding": draw_padding}
MEASURE = {"attention": attention, "padding": padding}


def main():
    import datetime
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", nargs="*", default=[], help="attention, padding (default: both)")
    p.add_argument("--peers", dest="kinds", default="torch,torch-bf16,ort,ov,ov-bf16,qkv,qkv-bf16")
    p.add_argument("--rounds", dest="most", type=int, default=5)
    p.add_argument("--sizes", default=SIZES)
    p.add_argument("--shares", default=SHARES)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--qkv", default="build/qkv")
    p.add_argument("--cache", default=prepare.CACHE)
    p.add_argument("--out", default=HERE)
    p.add_argument("--draw", action="store_true")
    a = p.parse_args()
    os.makedirs(a.cache, exist_ok=True)
    for what in a.what or list(DRAW):
        if what not in DRAW:
            p.error(f"found '{what}', expected attention or padding")
        kept = os.path.join(a.out, what + ".json")
        if not a.draw:
            with machine.Peak() as peak:
                d = {"machine": machine.describe().split(";")[0], "date": datetime.date.today().isoformat(),
                     "threads": a.threads, "command": " ".join(["bench/plots.py"] + sys.argv[1:]),
                     "figures": MEASURE[what](a, peak)}
            json.dump(d, open(kept, "w"), indent=1)
        DRAW[what](json.load(open(kept)), a.out)


if __name__ == "__main__":
    main()
