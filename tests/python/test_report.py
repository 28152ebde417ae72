"""qkv report, qkv compare and qkv check --sarif, without a browser: what the files hold, and what is refused."""
import csv
import hashlib
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
import qkv

ROOT = pathlib.Path(__file__).resolve().parents[2]
QKV = os.environ.get("QKV", str(ROOT / "build/qkv"))
DIGITS, MODELS = ROOT / "demo/digits_vit.pt2", ROOT / "tests/cli/models"


def command(*args, code=0):
    got = subprocess.run([QKV, *map(str, args)], capture_output=True, text=True)
    assert got.returncode == code, got.stderr
    return got


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    command("report", DIGITS, "-D", "batch=4", "-o", folder / "r.html", "-q")
    return (folder / "r.html").read_text()


def test_one_file_that_fetches_nothing(report):
    data = report[report.index('id="data">'):report.index("</script>")]
    assert len(report) - len(data) < 200_000  # of the 2 MB that it may have
    page = report.replace(data, "")
    assert not re.search(r'(src|href)\s*=|@import|url\(|fetch\(|XMLHttpRequest|import\(', page.replace("link.href", ""))
    assert set(re.findall(r"https?://[\w./]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page


def test_what_it_holds(report):
    data = data_of(report)
    model, run = data["models"][0], data["time"][0]
    assert model["sha256"] == hashlib.sha256(DIGITS.read_bytes()).hexdigest()
    assert model["bytes"] == DIGITS.stat().st_size
    assert len(model["graph"]["nodes"]) == model["nodes"] == model["rewrite"]["nodes_before"]
    assert len(model["rewrite"]["graph"]["nodes"]) == model["rewrite"]["nodes_after"]
    assert all(f["runs"] > 0 for f in model["rewrite"]["firings"])
    assert run["inputs"] == [{"name": "image", "dtype": "f32", "shape": [4, 1, 8, 8]}]
    steps = [step for step, start, dur in run["flame"] if step >= 0]
    assert steps == [i for i, s in enumerate(run["steps"]) if s["node"]]
    assert sum(dur for _, _, dur in run["flame"]) <= run["min_ms"] * 1.5 + 1
    assert [b["device"] for b in data["backends"]] == ["cpu", "cuda-sm80", "cuda-sm90"]


@pytest.mark.turns
def test_exports(tmp_path, report):
    command("report", DIGITS, "-o", tmp_path / "r.json", "-q", "--no-prove", "--device", "cuda-sm120")
    data = json.loads((tmp_path / "r.json").read_text())
    assert data.keys() == data_of(report).keys() and [b["device"] for b in data["backends"]] == ["cuda-sm120"]
    assert not any("runs" in f for f in data["models"][0]["rewrite"]["firings"])
    command("report", DIGITS, "-o", tmp_path / "r.csv", "-q")
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert {"aten.linear.default", "aten.layer_norm.default"} <= {r["op"] for r in rows}
    assert all(float(r["total_ms"]) >= float(r["min_ms"]) >= 0 for r in rows)
    command("report", DIGITS, "-o", tmp_path / "n.json", "-q", "--no-run")
    assert json.loads((tmp_path / "n.json").read_text())["time"] == []


def test_the_lines_of_python(tmp_path):
    """Nodes know the module and the line that made them, after rewriting, too."""
    torch = pytest.importorskip("torch")

    class Attend(torch.nn.Module):
        def forward(self, x):
            scores = x @ x.transpose(-1, -2) / 2
            return torch.softmax(scores, -1) @ x

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Attend(), Attend()

        def forward(self, x):
            return self.second(self.first(x))

    torch.export.save(torch.export.export(Two(), (torch.randn(1, 2, 4, 4),)), tmp_path / "m.pt2")
    model = qkv.Model(tmp_path / "m.pt2")
    graph = model.graph()
    softmax = [n for n in graph["nodes"] if "softmax" in n["op"]]
    assert [n["module"] for n in softmax] == ["first", "second"]
    assert all("torch.softmax(scores, -1) @ x" in graph["lines"][n["line"]] for n in softmax)
    assert "test_report.py:" in graph["lines"][softmax[0]["line"]]
    model.rewrite()
    after = [n for n in model.graph()["nodes"] if "scaled_dot" in n["op"]]
    assert [n["module"] for n in after] == ["first", "second"] and all(n["line"] is not None for n in after)


def test_compare(tmp_path):
    command("compare", DIGITS, DIGITS, "-o", tmp_path / "same.json", "-q")
    same = json.loads((tmp_path / "same.json").read_text())
    assert same["values"]["first"] is None and all(o["agrees"] for o in same["outputs"]) and len(same["time"]) == 2
    assert same["values"]["left_a"] == same["values"]["left_b"] == []
    model = qkv.Model(DIGITS)
    weight = "encoder.layers.2.linear1.weight"
    model.set_weights({weight: model.weights()[weight] * 2})
    model.save(tmp_path / "other.pt2")
    got = command("compare", DIGITS, tmp_path / "other.pt2", "-o", tmp_path / "d.json", code=1)
    values = json.loads((tmp_path / "d.json").read_text())["values"]
    first, graph = values["pairs"][values["first"]], qkv.Model(DIGITS).graph()
    node = next(n for n in graph["nodes"] if n["name"] == first["a"])
    path = {w["name"]: w["path"] for w in graph["weights"]}
    assert path[node["inputs"]["weight"]] == weight and first["by"] == "name"
    assert f"'{first['a']}' and '{first['b']}' are the first that differ" in got.stdout
    assert all(p["agrees"] for p in values["pairs"][:values["first"]])


def test_compare_with_onnx(tmp_path):
    """The ONNX file has other names and ops: partners are found by their values."""
    qkv.Model(DIGITS).save_onnx(tmp_path / "m.onnx")
    command("compare", DIGITS, tmp_path / "m.onnx", "-o", tmp_path / "c.json", "-q", "-D", "batch=3")
    values = json.loads((tmp_path / "c.json").read_text())["values"]
    assert len(values["pairs"]) > 60 and values["first"] is None and {p["by"] for p in values["pairs"]} >= {"value"}


@pytest.mark.parametrize("args,code,words", [
    (["report", DIGITS], 2, "where to write is missing"),
    (["report", DIGITS, "-o", "r.pdf"], 2, "ends in .html, .json or .csv"),
    (["report", "nothing.pt2", "-o", "{}/r.html"], 3, "nothing.pt2"),
    (["report", DIGITS, "-o", "{}/r.html", "--device", "tpu"], 2, "tpu"),
    (["report", DIGITS, "-o", "{}/r.html", "--no-run", "--train-log", __file__], 3, "line 1 is not a JSON object"),
    (["report", DIGITS, "-o", "/nonexistent/r.html", "--no-run"], 3, "/nonexistent"),
    (["compare", DIGITS, "-o", "{}/r.html"], 2, "an argument is missing"),
    (["compare", DIGITS, MODELS / "two.pt2", "-o", "{}/r.html"], 2, "input"),
])
def test_refused(tmp_path, args, code, words):
    got = command(*[str(a).replace("{}", str(tmp_path)) for a in args], code=code)
    assert words in got.stderr and not list(tmp_path.iterdir())


def test_the_document(tmp_path, monkeypatch):
    """docs/REPORT.md: every command does what the page says."""
    monkeypatch.chdir(tmp_path)
    model = qkv.Model(DIGITS)
    model.save("vit.pt2")
    model.save_onnx("vit.onnx")
    weight = "encoder.layers.2.linear1.weight"
    model.set_weights({weight: model.weights()[weight] * 2})
    model.save("other.pt2")
    pathlib.Path("log.jsonl").write_text('{"epoch": 0, "step": 1, "loss": 2.5, "lr": 0.1, "grad_norm": 1}\n')
    page = (ROOT / "docs/REPORT.md").read_text()
    lines = re.findall(r"^    qkv (.*?)(?:  +.*)?$", page, re.M)
    assert len(lines) == 10
    for line in lines:
        printed = command(*line.split(), code=int("other.pt2" in line)).stdout
        if "other.pt2" in line:
            said = re.search(r"^    (of \d+ pairs of nodes.*)$", page, re.M).group(1)
            assert printed.splitlines()[0] == said
        if "-o" in line:
            assert pathlib.Path(line.split()[line.split().index("-o") + 1]).stat().st_size > 100


# ------------------------------------------------------------------ SARIF

def whole_sarif(sarif):
    """What SARIF 2.1.0 requires of the objects that are used (3.13, 3.14, 3.18, 3.19, 3.27, 3.28, 3.33, 3.49)."""
    assert sarif["version"] == "2.1.0" and len(sarif["runs"]) == 1 and sarif["$schema"].startswith("https://")
    run, = sarif["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] and re.fullmatch(r"\d+\.\d+\.\d+", driver["semanticVersion"])
    ids = [r["id"] for r in driver["rules"]]
    assert len(ids) == len(set(ids))
    for rule in driver["rules"]:
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
        assert all(rule[k]["text"] for k in ("shortDescription", "fullDescription", "help"))
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"] and result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        for place in result["locations"]:
            uri = place["physicalLocation"]["artifactLocation"]["uri"]
            assert re.fullmatch(r"[\w.~/:%-]+", uri)
            assert all(x["fullyQualifiedName"] for x in place.get("logicalLocations", []))
    return run["results"]


def test_sarif(tmp_path):
    got = json.loads(command("check", MODELS / "eager.pt2", "--sarif").stdout)
    found, = whole_sarif(got)
    assert found["ruleId"] == "Q501" and found["level"] == "warning" and "To do: " in found["message"]["text"]
    assert found["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "node 'exp'"
    assert whole_sarif(json.loads(command("check", MODELS / "affine.pt2", "--sarif").stdout)) == []
    odd = tmp_path / "a b#%.onnx"
    odd.write_bytes((MODELS / "wrong.onnx").read_bytes())
    got = subprocess.run([QKV, "check", odd, "--sarif"], capture_output=True, text=True)
    results = whole_sarif(json.loads(got.stdout))
    assert got.returncode == 1 and any(r["level"] == "error" for r in results)
    assert results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/a%20b%23%25.onnx")


# ------------------------------------------------------------------ notebooks

def test_notebooks(tmp_path):
    model = qkv.Model(DIGITS)
    shown = model._repr_html_()
    assert "77,530 parameters" in shown and "<td>image</td>" in shown and "1 to 1024" in shown
    report = model.rewrite(prove=True)
    assert "firings (" in report._repr_html_() and "fold_views" in report._repr_html_()
    assert isinstance(model.describe(), dict) and "<table>" in model.describe()._repr_html_()
    with model.session() as session:
        with session.profile() as profile:
            session.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
        assert "aten.linear.default" in profile._repr_html_() and "held (" in session.memory()._repr_html_()
    assert "Q501" in qkv.check(MODELS / "eager.pt2")._repr_html_()
    odd = tmp_path / "<b>.pt2"
    odd.write_bytes(DIGITS.read_bytes())
    closed = qkv.Model(odd)
    assert "<b>" not in closed._repr_html_() and "&lt;b&gt;" in closed._repr_html_()
    closed.close()
    assert "closed" in closed._repr_html_()
