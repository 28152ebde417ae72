"""The pages of qkv report and qkv compare in a browser: layout, contrast, keyboard, console, hostile names."""
import json
import os
import pathlib
import subprocess
import time

import pytest

from browser import CHROMIUM, Page

if not CHROMIUM:
    pytest.skip("no Chromium (Debian: apt install chromium): the pages are not looked at", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]
QKV = os.environ.get("QKV", str(ROOT / "build/qkv"))
CHECKS = (pathlib.Path(__file__).parent / "report_checks.js").read_text()
TABS = "[...document.querySelectorAll('[role=tab]')].map((t) => t.id.slice(4))"
SHOTS = os.environ.get("QKV_SHOTS")  # a folder for pictures of all pages, to be looked at


def page_of(model, out, *more, command="report"):
    models = [model] if command == "report" else model
    subprocess.run([QKV, command, *map(str, models), "-o", out, "-q", *more], check=True)
    return out


def whole(path, name, width=1280, dark=False):
    """Every tab of a page is as it should be."""
    with Page(path, width=width, dark=dark) as page:
        tabs = page.run(TABS)
        for tab in tabs:
            page.open(tab)
            time.sleep(0.1)
            page.settle()
            if SHOTS:
                page.shot(f"{SHOTS}/{name}-{tab}-{width}{'-dark' if dark else ''}.png")
            assert page.run(CHECKS) == [], (name, tab)
            assert page.run("document.getElementById('panel-' + location.hash.slice(1)).textContent.trim().length") > 40
        assert page.errors == []
        assert [u for u in page.requests if not u.startswith(("file:", "data:"))] == []
        return tabs


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                     vocab_size=64, max_position_embeddings=64)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    model.set_attn_implementation("eager")
    batch, seq = torch.export.Dim("batch", max=8), torch.export.Dim("seq", max=64)
    args = (torch.randint(0, 64, (2, 8)), torch.ones(2, 8, dtype=torch.long))
    sizes = {"input_ids": {0: batch, 1: seq}, "attention_mask": {0: batch, 1: seq}}
    program = torch.export.export(model, args, dynamic_shapes=sizes, strict=False)
    torch.export.save(program, folder / "bert.pt2")
    return folder / "bert.pt2"


@pytest.fixture(scope="module")
def bert_page(bert):
    return page_of(bert, bert.with_suffix(".html"), "-D", "batch=2", "-D", "seq=16")


@pytest.mark.turns
@pytest.mark.parametrize("width,dark", [(1280, False), (1600, True), (700, False)])
def test_bert(bert_page, width, dark):
    assert set(whole(bert_page, "bert", width, dark)) == {"summary", "graph", "attention", "time", "memory", "kernels"}


def test_axe(bert_page):
    """axe-core's own rules, where the package that carries it is installed: the first tab with the page around it, then
    each tab alone; in the dark those of colours."""
    carrier = pytest.importorskip("axe_core_python")
    axe = next(pathlib.Path(carrier.__file__).parent.rglob("axe.min.js")).read_text()
    for options in ("{resultTypes: ['violations']}", "{resultTypes: ['violations'], runOnly: ['color-contrast']}"):
        with Page(bert_page, dark="contrast" in options) as page:
            page.send("Page.setBypassCSP", enabled=True)
            page.run(axe + "; true")
            for i, tab in enumerate(page.run(TABS)):
                page.open(tab)
                where = f"document.getElementById('panel-{tab}')" if i else "document"
                found = page.run(f"axe.run({where}, {options}).then((r) => r.violations.map((v) => v.id + ': ' + "
                                 "v.nodes.slice(0, 3).map((n) => n.html.slice(0, 150)).join(' | ')))")
                assert found == [], tab


def test_keyboard(bert_page):
    """Everything without a mouse: tabs by arrows, rows by arrows, folding, searching, zooming, details by Enter."""
    with Page(bert_page) as page:
        focus = "document.activeElement.id || document.activeElement.getAttribute('role')"
        page.key("Tab")
        assert page.run(focus) == "tab-summary"
        page.key("ArrowRight")
        assert page.run(focus) == "tab-graph" and not page.run("document.getElementById('panel-graph').hidden")
        for _ in range(12):
            if page.run(focus) == "treegrid":
                break
            page.key("Tab")
        assert page.run(focus) == "treegrid"
        rows = "graph.rows.length"
        page.key("Home")
        page.key("ArrowLeft")  # the first row is a module: it folds, and unfolds
        folded = page.run(rows)
        page.key("ArrowRight")
        assert page.run(rows) > folded
        page.key("ArrowDown")
        assert page.run("graph.at") == 1 and page.run("document.querySelector('[aria-selected=true].row').id") == "row1"
        assert page.run("document.querySelector('[role=treegrid]').getAttribute('aria-activedescendant')") == "row1"
        height = page.run("graph.rowHeight")
        page.key("+")
        assert page.run("graph.rowHeight") > height
        page.key("0")
        assert page.run("graph.rowHeight") == height
        page.key("/")
        page.type("softmax")
        page.settle()
        assert "2 matches" in page.run("graph.status.textContent")
        page.key("Enter")
        page.settle()
        assert "softmax" in page.run("document.querySelector('[aria-selected=true].row').textContent")
        assert "scaled_dot_product_attention" in page.run("document.querySelector('.side').textContent")
        assert page.errors == []


def test_an_attention_tells_how_it_was_made(bert_page):
    """q, k, v, mask, scale and heads; the lines of Python; the rule, its proof and its difference."""
    with Page(bert_page, tab="attention") as page:
        text = page.run("document.getElementById('panel-attention').textContent")
        for word in ("heads2", "head size16", "query", "mask", "scale0.25", "equal in", "evaluations", "rule"):
            assert word in text, word
        page.run("document.querySelector('#panel-attention details').open = true")
        assert "modeling_bert.py" in page.run("document.querySelector('#panel-attention pre').textContent")
        page.run("document.querySelector('#panel-attention .link').click()")
        page.settle()
        row = page.run("[M.left.nodes[graph.rows[graph.at].l].op, M.right.nodes[graph.rows[graph.at].r].op]")
        assert row == ["aten.matmul.default", "aten.scaled_dot_product_attention.default"]


@pytest.mark.turns
def test_swin(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.SwinConfig(image_size=32, patch_size=4, embed_dim=12, depths=[2, 1], num_heads=[2, 2],
                                     window_size=4)
    model = transformers.SwinModel(config).eval()
    torch.export.save(torch.export.export(model, (torch.randn(1, 3, 32, 32),), strict=False), tmp_path / "swin.pt2")
    whole(page_of(tmp_path / "swin.pt2", tmp_path / "swin.html"), "swin")


@pytest.mark.turns
def test_sam3(tmp_path):
    pytest.importorskip("transformers")
    from qkv.recipes import sam3
    sam3.make(str(tmp_path / "sam3.pt2"), tiny=True)
    whole(page_of(tmp_path / "sam3.pt2", tmp_path / "sam3.html", "--runs", "1"), "sam3", 1440)


@pytest.mark.turns
def test_compare(bert, tmp_path):
    """A .pt2 beside its ONNX file and beside one with another weight: the page names the first pair that differs."""
    import qkv
    qkv.Model(bert).save_onnx(tmp_path / "bert.onnx")
    sizes = ("-D", "batch=2", "-D", "seq=8", "--runs", "1")
    page = page_of((bert, tmp_path / "bert.onnx"), tmp_path / "same.html", *sizes, command="compare")
    assert "values" in whole(page, "compare")
    changed = qkv.Model(bert)
    name = next(n for n in changed.weights() if n.endswith("layer.1.attention.self.key.weight"))
    changed.set_weights({name: changed.weights()[name] * 3})
    changed.save(tmp_path / "changed.pt2")
    got = subprocess.run([QKV, "compare", bert, tmp_path / "changed.pt2", "-o", tmp_path / "diff.html", *sizes],
                         capture_output=True, text=True)
    assert got.returncode == 1 and "are the first that differ" in got.stdout
    with Page(tmp_path / "diff.html", tab="values") as page:
        first = page.run("DATA.values.pairs[DATA.values.first].a")
        i = page.run(f"M.left.byName.get({json.dumps(first)})")
        assert page.run(f"M.left.module[{i}]").endswith("layer.1.attention.self.key")
        assert "differs first" in page.run("document.getElementById('panel-values').textContent")
        assert page.errors == []


def onnx_chain(path, names, op="Relu"):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto as T, helper as h
    nodes, x = [], "x"
    for name in names:
        nodes.append(h.make_node(op, [x], [name], name=name))
        x = name
    ends = [[h.make_tensor_value_info(name, T.FLOAT, ["n", 4])] for name in ("x", x)]
    graph = h.make_graph(nodes, "g", *ends)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]), path)


def test_ten_thousand_nodes(tmp_path):
    """Few rows exist at once, wherever one scrolls to."""
    onnx_chain(tmp_path / "big.onnx", [f"layer.{i // 10}/v{i}" for i in range(10000)], "Tanh")
    page_of(tmp_path / "big.onnx", tmp_path / "big.html", "--runs", "1", "--no-prove")
    with Page(tmp_path / "big.html", tab="graph") as page:
        page.run("graph.unfoldAll()")
        page.settle()
        assert page.run("graph.rows.length") >= 10000
        most = page.run("""(() => { let most = 0;
          for (let i = 0; i < 60; i++) {
            graph.rowsBox.scrollTop = (i * 9973 % 10000) * graph.rowHeight;
            graph.redraw();
            most = Math.max(most, document.querySelectorAll('.row').length);
          }
          return most; })()""")
        assert 10 < most < 120
        page.run("graph.find('v9999')")
        page.run("graph.next(1)")
        page.settle()
        assert "v9999" in page.run("document.querySelector('[aria-selected=true].row').textContent")
        assert page.run(CHECKS) == [] and page.errors == []


HOSTILE = ["</script><script>window.hacked=1</script>", "<img src=x onerror=window.hacked=2>", "\"'><b>&amp;",
           "a\u0001\u001b[31m\u202egnp", "<!--<script>", "javascript:alert(1)", "${window.hacked=3}",
           "__proto__", "constructor"]


def test_hostile_names(tmp_path):
    onnx_chain(tmp_path / "hostile.onnx", HOSTILE)
    name = tmp_path / "<img src=x onerror=hacked=4>.onnx"
    (tmp_path / "hostile.onnx").rename(name)
    page_of(name, tmp_path / "hostile.html", "--runs", "1")
    text = (tmp_path / "hostile.html").read_text()
    assert text.count("<script") == 2 and text.count("</script>") == 2 and "<img" not in text
    with Page(tmp_path / "hostile.html", tab="graph") as page:
        for tab in page.run(TABS):
            page.open(tab)
        for i in range(len(HOSTILE)):
            page.run(f"graph.select({i})")
        assert page.run("window.hacked") is None
        assert page.run("document.querySelectorAll('img, b b, main script').length") == 0
        assert "<img src=x" in page.run("document.getElementById('title').textContent")
        assert page.errors == []


def test_training_curves(tmp_path):
    log = tmp_path / "log.jsonl"
    lines = [{"epoch": s // 10, "step": s, "loss": 2 / (1 + s), "lr": 0.1, "grad_norm": 1.0} for s in range(30)]
    for e in range(3):
        lines.append({"epoch": e, "step": e * 10 + 9, "loss": 2 / (1 + e), "val_loss": 2.2 / (1 + e),
                      "val_accuracy": 0.5})
    log.write_text("\n".join(map(json.dumps, lines)) + "\n")
    page_of(ROOT / "tests/cli/models/affine.pt2", tmp_path / "t.html", "--train-log", log, "--runs", "1")
    assert "training" in whole(tmp_path / "t.html", "training")
    with Page(tmp_path / "t.html", tab="training") as page:
        assert page.run("document.querySelectorAll('#panel-training polyline').length") == 4
