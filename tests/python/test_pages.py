"""The pages that lead from an author's problem to a running file: every program and every command of them runs.

A block of python that begins with "# NAME.py" is that file, one of C that begins with "/* NAME.c"; an indented line
that begins with "python", "qkv", "cc" or "./" is run, in the page's order, in one folder. "# exit 1" at its end is the
exit code that it must have; an indented line without a command must be among the lines printed so far.
"""
import os
import pathlib
import re
import subprocess

import pytest
import warm

pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[2]
QKV = os.environ.get("QKV", str(ROOT / "build" / "qkv"))
BLOCK = re.compile(r"```(?:python\n# |c\n/\* )(\S+\.(?:py|c))(.*?)```", re.DOTALL)
COMMANDS = ("qkv", "python", "cc")


def shell(folder, command):
    """Against this checkout's headers and library."""
    build = pathlib.Path(QKV).resolve().parents[1]
    flags = f"-I{ROOT}/include -L{build} -lqkv"
    command = command.replace("$(pkg-config --cflags --libs qkv)", flags)
    return subprocess.run(["sh", "-c", command], cwd=folder, text=True, capture_output=True, timeout=300,
                          env={**os.environ, "LD_LIBRARY_PATH": str(build)})


def run(folder, command, printed):
    words, _, comment = command.partition("#")
    argv = words.split()
    if argv[0] == "python":
        done = warm.run(argv[1:], cwd=folder)
    elif argv[0] != "qkv":
        done = shell(folder, command)
    else:
        done = subprocess.run([QKV, *argv[1:]], cwd=folder, capture_output=True, text=True, timeout=300)
    code = re.search(r"exit (\d)", comment)
    assert done.returncode == (int(code[1]) if code else 0), f"{command}\n{done.stdout}\n{done.stderr}"
    printed.append(done.stdout)
    stated = comment.strip()
    if stated and not code and re.match(r"\d|attentions", stated):
        assert stated in done.stdout, f"{command}\n{done.stdout}"


def check_headings(text, said):
    """They quote what this torch's torch.export says."""
    headings = re.findall(r'^## "(.*?)"$', text, re.MULTILINE)
    assert any(headings[0] in s for s in said)
    assert any(re.sub(r"marked \w+ as", "marked batch as", headings[1]) in s for s in said)
    assert any(re.search(r"Eq\(u0\*u1, s\d+\)", s) for s in said)


@pytest.mark.turns
@pytest.mark.parametrize("page", ["EXPORT_ERRORS", "FUSION", "DRIFT", "PATTERNS", "QUANTIZE-TUTORIAL"])
def test_page(page, tmp_path):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    for name, body in BLOCK.findall(text):
        (tmp_path / name).write_text(body if name.endswith(".py") else "/* " + body)
    printed = []
    lines = [line[4:] for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
             if line.startswith("    ") and line[4:5] != " "]
    assert len(lines) > 3
    for line in lines:
        if line.split()[0] in COMMANDS or line.startswith("./"):
            run(tmp_path, line, printed)
        else:
            assert any(line in p for p in printed), line
    if page == "EXPORT_ERRORS":
        check_headings(text, printed)
