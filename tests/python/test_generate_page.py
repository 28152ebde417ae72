"""docs/GENERATE.md: its commands, its Python and its C run, in order, and say the same."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
import lm  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
QKV = pathlib.Path(os.environ.get("QKV", ROOT / "build/qkv")).resolve()


@pytest.mark.turns
def test_page(tmp_path):
    build, bin_ = QKV.parent if QKV.parent.name != "cli" else QKV.parent.parent, tmp_path / "bin"
    lm.model("llama").save_pretrained(tmp_path / "lm")
    lm.tokenizer("llama3").save(str(tmp_path / "lm/tokenizer.json"))
    bin_.mkdir()
    (bin_ / "qkv").symlink_to(QKV)
    (bin_ / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (bin_ / "pkg-config").write_text(f"#!/bin/sh\necho -I{ROOT}/include -L{build} -lqkv_vision -lqkv\n")
    for name in ("python", "pkg-config"):
        (bin_ / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python"),
           "LD_LIBRARY_PATH": str(build)}
    said = []
    page = (ROOT / "docs/GENERATE.md").read_text()
    for kind, block in re.findall(r"^```(sh|python|c)\n(.*?)^```$", page, re.S | re.M):
        if kind == "c":
            (tmp_path / "generate.c").write_text(block)
            continue
        runs = [["python", "-c", block]] if kind == "python" else [["sh", "-c", line] for line in block.splitlines()]
        for words in runs:
            r = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, timeout=300)
            assert r.returncode == 0, (words[-1], r.stderr.decode())
            said.append((words[-1], r.stdout))
    out = dict(said)
    texts = [v for k, v in said if k.startswith("qkv generate") and "--json" not in k]
    greedy, drawn, static, plain = (t.decode() for t in texts)
    assert greedy == static == plain != drawn
    python = next(v for k, v in said if k.startswith("import")).decode()
    assert python == greedy + drawn
    assert out["./generate"].decode(errors="replace") == python
    assert '"finish"' in next(v for k, v in said if "--json" in k).decode()
