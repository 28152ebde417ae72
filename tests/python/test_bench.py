"""The tools of bench/: what they count and draw, on made-up figures; they time nothing here."""
import math
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
torch = pytest.importorskip("torch")
import models, peers, plots


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

    got = peers.floating_point_operations("block", Block().eval(), (torch.randn(2, 5, 16),))
    assert got == 2 * 10 * 16 * 48 + 2 * 2 * 2 * 5 * 5 * 8


class Top:
    top, seen = (200.0, 1000.0), [(150.0, 900.0), (200.0, 1000.0)]


def test_tables(tmp_path):
    row = lambda ms, ratio=None: {"min_ms": ms} | ({"best_peer_over_qkv": ratio} if ratio else {})
    out = {"date": "2026-01-02", "machine": "M", "qkv": "qkv 1", "threads": 2, "command": "peers.py", "models": {
        "a": {"flops": 4e9, "peak": [], "peers": {"ov": row(20.0), "qkv": row(10.0, 2.0),
                                                  "qkv-bf16": {"error": "no such thing"}}},
        "b": {"flops": 8e9, "peak": [], "peers": {"ov": row(20.0), "qkv": row(40.0, 0.5), "ov-bf16": row(8.0)}}}}

    class A:
        threads, json, markdown = 2, str(tmp_path / "o.json"), str(tmp_path / "o.md")

    peers.finish(out, A, Top)
    assert out["models"]["a"]["peers"]["qkv"]["share_of_peak"] == pytest.approx(4 / 0.010 / 400)
    assert out["models"]["b"]["peers"]["ov-bf16"]["share_of_peak"] == pytest.approx(8 / 0.008 / 2000)
    assert out["geometric_means"] == {"qkv": {"geometric_mean": pytest.approx(1.0), "lowest": 0.5, "models": 2}}
    text = (tmp_path / "o.md").read_text()
    assert "| a | qkv | 10.00 | 100.0 % | 2.00 |" in text and "| a | qkv-bf16 | no such thing | | |" in text and "lowest 0.50 x" in text
    assert "200 GFLOP/s a core in f32" in text and "150 and 900 at worst" in text


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
    svg = ElementTree.parse(tmp_path / f"{what}.svg").getroot()
    width, height = (float(v) for v in svg.attrib["viewBox"].split()[2:])
    seen = [e.tag.rsplit("}", 1)[1] for e in svg.iter()]
    assert seen.count("circle") == (10 if what == "attention" else 12) and "script" not in seen
    for e in svg.iter():
        for axis, v in numbers(e):
            assert 0 <= v <= (width if axis in ("x", "1", "2") else height) and math.isfinite(v), e.attrib
    assert "prefers-color-scheme:dark" in (tmp_path / f"{what}.svg").read_text()
