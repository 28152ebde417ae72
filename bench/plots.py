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
import argparse, json, math, os, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import machine, models, peers

SIZES = "128,256,512,1024,2048,4096,8192,16384"
SHARES = "0,10,20,30,40,50,60,70,80,90"
NAMES = {"torch": "PyTorch", "compile": "torch.compile", "ort": "ONNX Runtime", "ov": "OpenVINO", "qkv": "qkv",
         "qkv-skip": "qkv --skip-padding"}
COLOURS = {"torch": ("#b5532b", "#f0946b"), "compile": ("#9a3f8f", "#df8fd5"), "ort": ("#2d7d46", "#6fcf8b"),
           "ov": ("#2a66b8", "#7db1f5"), "qkv": ("#c01530", "#ff7f8e"), "qkv-skip": ("#8a6d00", "#e8c547")}


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
W, H, LEFT, TOP, RIGHT, BOTTOM = 520, 360, 62, 44, 22, 44


def style(kinds):
    light = "".join(f".{k}{{--c:{COLOURS[k][0]}}}" for k in kinds)
    dark = "".join(f".{k}{{--c:{COLOURS[k][1]}}}" for k in kinds)
    return ("<style>svg{--ink:#1f2328;--grid:#d8dee4;--paper:#ffffff}" + light
            + "text{font:12px system-ui,sans-serif;fill:var(--ink)}.title{font-weight:600;"
            "font-size:13px}.grid{stroke:var(--grid)}.line{fill:none;stroke:var(--c);stroke-width:2}.dot{fill:var(--c)}.half{stroke-dasharray:5 4}"
            ".paper{fill:var(--paper)}@media "
            "(prefers-color-scheme:dark){svg{--ink:#e6edf3;--grid:#373e47;--paper:#0d1117}" + dark + "}</style>")


def number(v):
    return f"{v:g}" if v < 1000 else f"{v / 1000:g}k"


def decades(low, high):
    return [m * 10.0 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for m in (1, 2, 5) if low <= m * 10.0 ** e <= high]


def rounded(step):
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    ten = 10.0 ** math.floor(math.log10(step))
    return next(m * ten for m in (1, 2, 2.5, 5, 10) if m * ten >= step)


def panel(x0, y0, title, across, ticks, label, series, log_x, log_y):
    """One chart at (x0, y0). series: [(class, bf16?, [(x, ms)])]; ticks: values and their words on the x axis."""
    points = [p for _, _, s in series for p in s]
    xs, ys = [x for x, _ in ticks], [y for _, y in points]
    low, high = (min(ys) / 1.3, max(ys) * 1.3) if log_y else (0, max(ys) * 1.08)
    scale = lambda v, a, b, log: (math.log(v / a) / math.log(b / a)) if log else (v - a) / ((b - a) or 1)
    px = lambda v: x0 + LEFT + scale(v, xs[0], xs[-1], log_x) * (W - LEFT - RIGHT)
    py = lambda v: y0 + H - BOTTOM - scale(v, low, high, log_y) * (H - TOP - BOTTOM)
    out = [f'<text class="title" x="{x0 + LEFT}" y="{y0 + 20}">{title}</text>']
    steps = decades(low, high) if log_y else [i * rounded(high / 5) for i in range(9) if i * rounded(high / 5) <= high]
    for v in steps:
        out.append(f'<line class="grid" x1="{x0 + LEFT}" x2="{x0 + W - RIGHT}" y1="{py(v):.1f}" y2="{py(v):.1f}"/>'
                   f'<text x="{x0 + LEFT - 6}" y="{py(v) + 4:.1f}" text-anchor="end">{number(v)}</text>')
    for v, word in ticks:
        out.append(f'<text x="{px(v):.1f}" y="{y0 + H - BOTTOM + 18}" text-anchor="middle">{word}</text>')
    out.append(f'<text x="{x0 + LEFT + (W - LEFT - RIGHT) / 2}" y="{y0 + H - 8}" text-anchor="middle">{across}</text>')
    out.append(f'<text x="{x0 + LEFT - 6}" y="{y0 + TOP - 8}" text-anchor="end">{label}</text>')
    for kind, half, s in series:
        path = " ".join(f"{'M' if i == 0 else 'L'}{px(x):.1f} {py(y):.1f}" for i, (x, y) in enumerate(s))
        out.append(f'<g class="{kind}"><path class="line{" half" if half else ""}" d="{path}"/>'
                   + "".join(f'<circle class="dot" cx="{px(x):.1f}" cy="{py(y):.1f}" r="2.6"><title>{NAMES[kind]}{" bf16" if half else ""}: {y:.3g} ms</title></circle>'
                             for x, y in s) + "</g>")
    return "".join(out)


def legend(x, y, kinds, halves):
    out = []
    for k in kinds:
        out.append(f'<g class="{k}"><path class="line" d="M{x} {y - 4}h22"/></g><text x="{x + 28}" y="{y}">{NAMES[k]}</text>')
        x += 50 + 7.2 * len(NAMES[k])
    if halves:
        out.append(f'<g><path class="line half" style="stroke:var(--ink)" d="M{x} {y - 4}h22"/></g><text x="{x + 28}" y="{y}">bf16</text>')
    return "".join(out)


def svg(width, height, kinds, body, title):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{title}">'
            f'{style(kinds)}<rect class="paper" width="{width}" height="{height}"/>{body}</svg>\n')


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
            + f'<text x="{LEFT}" y="{H + 48}">{d["machine"]}; {d["threads"]} thread{"s" * (d["threads"] > 1)}, {d["date"]}</text>')
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
    p.add_argument("--cache", default=os.path.expanduser("~/.cache/qkv-peers"))
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
