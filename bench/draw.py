"""Charts as SVG without scripts, whose colours are the reader's scheme's, light or dark: what bench/plots.py and
bench/page.py draw with.

    body = panel(0, 30, "title", "tokens", ticks, "ms", series, True, False) + legend(62, 24, kinds, True)
    svg(W, H, kinds, body, "what is shown")                    kinds: names of NAMES
"""
import math

NAMES = {"torch": "PyTorch", "compile": "torch.compile", "ort": "ONNX Runtime", "ov": "OpenVINO", "qkv": "qkv",
         "qkv-skip": "qkv --skip-padding"}
COLOURS = {"torch": ("#b5532b", "#f0946b"), "compile": ("#9a3f8f", "#df8fd5"), "ort": ("#2d7d46", "#6fcf8b"),
           "ov": ("#2a66b8", "#7db1f5"), "qkv": ("#c01530", "#ff7f8e"), "qkv-skip": ("#8a6d00", "#e8c547")}
W, H, LEFT, TOP, RIGHT, BOTTOM = 520, 360, 62, 44, 22, 44


def style(kinds):
    light = "".join(f".{k}{{--c:{COLOURS[k][0]}}}" for k in kinds)
    dark = "".join(f".{k}{{--c:{COLOURS[k][1]}}}" for k in kinds)
    return ("<style>svg{--ink:#1f2328;--grid:#d8dee4;--paper:#ffffff}" + light
            + "text{font:12px system-ui,sans-serif;fill:var(--ink)}.title{font-weight:600;"
            "font-size:13px}.grid{stroke:var(--grid)}.line{fill:none;stroke:var(--c);stroke-width:2}"
            ".dot{fill:var(--c)}.half{stroke-dasharray:5 4}"
            ".paper{fill:var(--paper)}.bar{fill:var(--c)}.pale{opacity:.55}.one{stroke:var(--ink)}@media "
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
                   + "".join(f'<circle class="dot" cx="{px(x):.1f}" cy="{py(y):.1f}" r="2.6">'
                             f'<title>{NAMES[kind]}{" bf16" if half else ""}: {y:.3g} ms</title></circle>'
                             for x, y in s) + "</g>")
    return "".join(out)


def legend(x, y, kinds, halves):
    out = []
    for k in kinds:
        out.append(f'<g class="{k}"><path class="line" d="M{x} {y - 4}h22"/></g>'
                   f'<text x="{x + 28}" y="{y}">{NAMES[k]}</text>')
        x += 50 + 7.2 * len(NAMES[k])
    if halves:
        out.append(f'<g><path class="line half" style="stroke:var(--ink)" d="M{x} {y - 4}h22"/></g>'
                   f'<text x="{x + 28}" y="{y}">bf16</text>')
    return "".join(out)


def svg(width, height, kinds, body, title):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-label="{title}">'
            f'{style(kinds)}<rect class="paper" width="{width}" height="{height}"/>{body}</svg>\n')


def bars(title, groups, kinds, one):
    """Horizontal bars: groups [(label, [(kind, half?, value or None)])], a line at 1 that `one` explains."""
    height, top = 15, 74
    most = max((v for _, row in groups for _, _, v in row if v), default=1) * 1.08
    left, y, body = 132, top, [f'<text class="title" x="{LEFT}" y="22">{title}</text>', legend(LEFT, 46, kinds, True)]
    px = lambda v: left + v / most * (2 * W - left - RIGHT)
    for label, row in groups:
        body.append(f'<text x="{left - 8}" y="{y + height * len(row) / 2 + 4:.1f}" text-anchor="end">{label}</text>')
        for kind, half, v in row:
            if v:
                body.append(f'<g class="{kind}"><rect class="bar{" pale" if half else ""}" x="{left}" y="{y}" '
                            f'width="{px(v) - left:.1f}" height="{height - 3}"/></g>'
                            f'<text x="{px(v) + 4:.1f}" y="{y + 10}">{v:.2f}</text>')
            y += height
        y += 6
    body.append(f'<line class="one" x1="{px(1):.1f}" x2="{px(1):.1f}" y1="{top - 4}" y2="{y}"/>'
                f'<text x="{px(1):.1f}" y="{top - 8}" text-anchor="middle">{one}</text>')
    return svg(2 * W, y + 14, kinds, "".join(body), title)
