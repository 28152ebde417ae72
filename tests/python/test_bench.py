"""The tools of bench/: what they count and draw, on made-up figures; they time nothing here."""
import math
import pathlib
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
torch = pytest.importorskip("torch")
import machine, models, page, peers, plots, prepare


@pytest.mark.parametrize("batch", [1, 2, 8, 16])
@pytest.mark.parametrize("share", [0, 0.1, 0.41, 0.5, 0.9, 0.99])
def test_lengths(batch, share):
    lengths = models.lengths_for(batch, 128, share)
    assert len(lengths) == batch and lengths[0] == 128 and lengths == sorted(lengths, reverse=True) and lengths[-1] >= 1
    real = sum(lengths) / (batch * 128)
    least = (127 + batch) / (batch * 128)
    assert abs(real - max(1 - share, least)) < 0.1 / batch + 0.01


def test_operations_of_attention():
    assert models.sdpa_flops("sdpa_2_3_5_8") == 4 * 2 * 3 * 5 * 5 * 8
    assert models.sdpa_flops("sdpa_2_3_6_8_causal") == 2 * 2 * 3 * 6 * 6 * 8
    assert models.sdpa_flops("sdpa_2_4_6_8_gqa2_decode") == 4 * 2 * 4 * 6 * 8


@pytest.mark.parametrize("name,shapes", [
    ("sdpa_2_4_6_8", [(2, 4, 6, 8)] * 3),
    ("sdpa_2_4_6_8_kpm", [(2, 4, 6, 8)] * 3 + [(2, 1, 1, 6)]),
    ("sdpa_2_4_6_8_bias", [(2, 4, 6, 8)] * 3 + [(2, 4, 6, 6)]),
    ("sdpa_2_4_6_8_gqa2_decode", [(2, 4, 1, 8)] + [(2, 2, 6, 8)] * 2),
    ("sdpa_2_4_6_8_causal_gqa1", [(2, 4, 6, 8)] + [(2, 1, 6, 8)] * 2)])
def test_kinds_of_attention(name, shapes):
    module, inputs = models.build(name)
    assert [tuple(x.shape) for x in inputs] == shapes
    assert module(*inputs).shape == inputs[0].shape


def test_unknown_names():
    with pytest.raises(SystemExit, match="unknown"):
        models.build("sdpa_2_4_6_8_caussal")
    assert models.names("vit_b,padded") == ["vit_b", "bert_b_padded", "minilm_padded"]
    assert set(models.GROUPS["models"]) < set(models.names("all"))


def test_products_and_attention_count():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.three = torch.nn.Linear(16, 48)

        def forward(self, x):
            q, k, v = self.three(x).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    got = prepare.floating_point_operations("block", Block().eval(), (torch.randn(2, 5, 16),))
    assert got == 2 * 10 * 16 * 48 + 2 * 2 * 2 * 5 * 5 * 8


def made_row(date, others=0.1, **ms):
    peers_of = {name.replace("_", "-"): {"min_ms" if isinstance(t, float) else "error": t} for name, t in ms.items()}
    peers.put_ratios(peers_of)
    return {"flops": 4e9, "peak": [(100.0, 200.0), (190.0, 380.0), (200.0, 400.0)], "others": others, "stolen": 0.0,
            "date": date, "qkv": "qkv 1", "seconds": 60, "peers": peers_of, "limits": {"qkv": [
                {"op": "aten.linear.default", "share": 0.91, "share_of_peak": 0.86, "share_of_reading": 0.2},
                {"op": "aten.sum.default", "share": 0.01, "share_of_peak": 0, "share_of_reading": 0.2}]}}


def made_page():
    return {"kind": "zen9", "machine": "M", "rows": {
        "bert_b_128/1": made_row("2026-01-03 04:05", 0.9, ort=40.0, ov=20.0, qkv=40.0, ov_bf16=8.0, qkv_bf16=4.0),
        "vit_b/1": made_row("2026-01-02 03:04", ov=50.0, torch=60.0, qkv=25.0, torch_bf16="no such thing",
                            qkv_bf16=9.0),
        "vit_b/1/int8": made_row("2026-01-02 03:10", ov_int8=6.0, ort_qdq=7.0, qkv_int8=4.0, qkv_int8_bf16=3.0),
        "vit_b/2": made_row("2026-01-02 03:06", ov=30.0, qkv=20.0)}}


def test_page():
    kept = made_page()
    kept["rows"]["vit_b/1/int8"]["peers"]["qkv-int8"]["cosine"] = 0.99951
    text = page.text(kept, "zen9.svg")
    assert text.index("| vit_b | 25.00 |") < text.index("| bert_b_128 | 40.00 |")  # as models.py has them
    assert "| vit_b | 25.00 | 50.00 | 60.00 | - | 2.00 | 80 % | 100, 200 | 0.10 |" in text
    assert "| 0.50 | 50 % | 100, 200 | 0.90 busy |" in text and "1 of 4 rows busy" in text
    assert "geometric mean 1.00 x the best peer over 2 models, lowest 0.50 (bert_b_128)" in text
    assert "- vit_b, torch-bf16: no such thing" in text and "## float32, 2 threads" in text
    assert "## bfloat16, 1 thread\n" in text and "## bfloat16, 2 threads" not in text  # of which there is none
    assert "| vit_b | 4.00 | 3.00 | 6.00 | 7.00 | 1.50 | 2.00 | " in text
    assert "| vit_b | 0.999510 | - | - | - |" in text
    assert "| vit_b | 2 | qkv | linear 91 % (86 % of multiply-adds) |" in text
    assert page.share_of_peak(kept["rows"]["vit_b/2"], "qkv", 2) == pytest.approx(4 / 0.020 / 400)


def test_rows_by_age():
    wanted = [(key, "", 1, "ov,qkv") for key in ("clip/1", "vit_b/1", "bert_b_128/1", "vit_b/2", "detr/1")]
    order = lambda units: [u[0] for u in peers.by_age(made_page()["rows"], units)]
    assert order(wanted) == ["clip/1", "detr/1", "bert_b_128/1", "vit_b/1", "vit_b/2"]
    wanted[3] = ("vit_b/2", "", 2, "ov,qkv,compile")  # was measured without compile
    assert order(wanted) == ["clip/1", "detr/1", "vit_b/2", "bert_b_128/1", "vit_b/1"]


def test_others():
    """A process that is ours counts as ours, the same one left out as another's."""
    import subprocess
    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        ours, not_ours = machine.Others([spin.pid]), machine.Others([])
        time.sleep(0.5)
        apart = not_ours.used()["others"] - ours.used()["others"]
    finally:
        spin.kill()
        spin.wait()
    assert 0.05 < apart < 1.3


def numbers(element):
    for key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy"):
        if key in element.attrib:
            yield key[-1] if key[-1] in "xy" else key[0], float(element.attrib[key])


@pytest.mark.parametrize("what", ["attention", "padding"])
def test_drawings(what, tmp_path):
    figures = {"128": {"ov": 1.0, "qkv": 0.5, "qkv-bf16": None}, "1024": {"ov": 64.0, "qkv": 32.0, "qkv-bf16": 8.0}}
    texts = {"0": {"ov": 900.0, "qkv": 800.0, "qkv-skip": 810.0}, "87": {"ov": 900.0, "qkv": 800.0, "qkv-skip": 110.0}}
    plots.DRAW[what]({"machine": "M", "threads": 1, "date": "2026-01-02",
                      "figures": figures if what == "attention" else {"bert_b": texts, "minilm": texts}},
                     str(tmp_path))
    seen = drawn(tmp_path / f"{what}.svg")
    assert seen.count("circle") == (10 if what == "attention" else 12) and "script" not in seen


def test_bars(tmp_path):
    page.write(made_page(), str(tmp_path / "zen9"))
    assert drawn(tmp_path / "zen9.svg").count("rect") == 1 + 3  # the paper, and a bar for each ratio of one thread


def drawn(path):
    """The names of its elements, all of which lie inside."""
    svg = ElementTree.parse(path).getroot()
    width, height = (float(v) for v in svg.attrib["viewBox"].split()[2:])
    for e in svg.iter():
        for axis, v in numbers(e):
            assert 0 <= v <= (width if axis in ("x", "1", "2") else height) and math.isfinite(v), e.attrib
    assert "prefers-color-scheme:dark" in path.read_text()
    return [e.tag.rsplit("}", 1)[1] for e in svg.iter()]
