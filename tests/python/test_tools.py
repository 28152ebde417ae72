"""The tools that hold the house rules: what they write, and that they refuse what they are for."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]


def tree(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def refused(capsys, check):
    """The lines that contradict a check, or none where it passes."""
    try:
        check()
    except SystemExit as e:
        out = capsys.readouterr().out
        assert bool(e.code) == ("not ok" in out)
        return [line[2:] for line in out.splitlines() if line.startswith("# ")]


def test_changelog_collects(tmp_path):
    import changelog
    root = tree(tmp_path, {
        "CHANGELOG.md": "# Changelog\n\n## 0.1.0 (unreleased)\n\n### Added\n\n- One.\n\n### Fixed\n\n- Two\n  lines.\n",
        "changelog.d/README.md": "How.\n", "changelog.d/+a.fixed.md": "A crash.\n",
        "changelog.d/+b.changed.md": "A default.\n"})
    changelog.main(["0.1.0"], root)
    text = (root / "CHANGELOG.md").read_text()
    assert "unreleased" not in text and text.startswith("# Changelog\n\n## 0.1.0 (20")
    assert text.split(")\n",
                      1)[1] == ("\n### Added\n\n- One.\n\n### Changed\n\n- A default.\n\n### Fixed\n\n- Two lines.\n"
                                "- A crash.\n")
    assert [p.name for p in (root / "changelog.d").iterdir()] == ["README.md"]
    (root / "changelog.d" / "+c.added.md").write_text("Later.\n")
    changelog.main(["0.2.0"], root)
    assert (root / "CHANGELOG.md").read_text().count("\n## ") == 2


def test_changelog_refuses(tmp_path, capsys):
    import changelog
    root = tree(tmp_path,
                {"CHANGELOG.md": "# Changelog\n\n## 0.1.0 (unreleased)\n\n- Loose.\n\n### Fixed\n\n- B.\n\n### "
                                 "Added\n\n- A.\n",
                 "changelog.d/new.md": "A.\n", "changelog.d/+b.fixed.md": "- B\n",
                 "changelog.d/+c.fixed.md": "No stop\n"})
    found = refused(capsys, lambda: changelog.main(["--check"], root))
    assert [f.split(":")[0] for f in found] == ["+b.fixed.md", "+c.fixed.md", "new.md", "under no heading",
                                                "the headings are not in the order Added, Changed, Fixed"]


def git(root, *args):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.hooksPath=/dev/null"]
    subprocess.run(["git", "-C", str(root), *identity, *args], check=True, capture_output=True)


def test_commit_messages(tmp_path, capsys):
    import commits
    assert not list(commits.wrong("Read files in place\n\nA copy took twice the memory.\n# comment\n"))
    assert not list(commits.wrong("Merge branch 'x'\n"))
    for message, what in {"x" * 73 + "\n\nWhy.\n": "has 73 characters", "fixup! Read\n\nWhy.\n": "a fixup",
                          "Read\n": "there is no body",
                          "Read\nfiles\n": "is not empty"}.items():
        assert [what in w for w in commits.wrong(message)] == [True], message
    git(tmp_path, "init", "-q")
    for message in ("Read files\n\nWhy.", "Write files"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", message)
    found = refused(capsys, lambda: commits.main(["--check"], tmp_path, "2000-01-01T00:00:00Z"))
    assert len(found) == 1 and found[0].endswith("Write files: there is no body: say why, and for whom")
    assert refused(capsys, lambda: commits.main(["--check"], tmp_path, "2090-01-01T00:00:00Z")) == []


def test_text(tmp_path, capsys):
    import checktext
    root = tree(tmp_path, {
        "a.c": 'int behind; // nothing\n/* This is no\n * comment */\nputs("other numbers of nobody");\n',
        "b.py": "behind = 1  # stands behind it\nprint('it is no longer, and there is no other')\n",
        "c.md": "| " + "wide " * 40 + "|\n" + "x" * 200 + "\n" + "long " * 30 + "\n",
        "d.sh": "# " + "long " * 30 + "\n" + "# " + "long " * 30 + "\n",
        "tools/long_lines.txt": "1 d.sh\n"})
    git(root, "init", "-q")
    git(root, "add", "a.c", "b.py", "c.md", "d.sh")
    found = refused(capsys, lambda: checktext.main([], root))
    assert [f.split(" columns")[0] for f in found[:2]] == ["c.md: 1 lines of more than 120",
                                                           "d.sh: 2 lines of more than 120"]
    assert [f.split("': ")[0] for f in found[2:]] == ["a.c:2: 'is no * comment", "a.c:4: 'nobody",
                                                      "a.c:4: 'other numbers", "b.py:1: 'behind"]
    checktext.main(["--lower"], root)
    assert (root / "tools" / "long_lines.txt").read_text() == "1 c.md\n2 d.sh\n"


def test_wrapping_is_not_a_change():
    """tests/share.py runs the groups that a commit changes; lines that were wrapped and comments do not count."""
    import share
    old = '"""Doc."""\nx = f(1, "a b")  # why\n'
    assert share.meaning("a.py", old) == share.meaning("a.py",
                                                       '"""Doc,\nwrapped."""\n# why\nx = f(1,\n      "a "\n      '
                                                       '"b")\n')
    assert share.meaning("a.py", old) != share.meaning("a.py", old.replace("1", "2"))
    assert share.meaning("a.rules", "(a b) ; c\n") == share.meaning("a.rules", "; c,\n; d\n(a\n  b)")
    assert share.meaning("a.rules", "(a b)") != share.meaning("a.rules", "(a c)")
    assert share.meaning("a.md", "a b\nc\n") == share.meaning("a.md", "a\nb c\n")


def test_what_a_change_reaches():
    """Statements of a file of tests that differ, and those that use what they bind, fixtures among it."""
    import share
    old = """
import os
SIZES = [1, 2]
def helper(x): return x
@pytest.fixture
def made(): return helper(1)
def test_a(made): assert made
@pytest.mark.parametrize("n", SIZES)
def test_b(n): assert n
def test_c(): assert os
model("m")(lambda: 1)
model("n")(lambda: 2)
"""
    def tests(new):
        words = {w for w in share.changed_words(old, new)[0] if isinstance(w, str)}
        return {w for w in words if w.startswith("test_") or len(w) == 1 and w in "mn"}
    assert tests(old) == set() and tests(old.replace("return x", "return (x)  # why")) == set()
    assert tests(old.replace("return x", "return x + 1")) == {"test_a"}
    assert tests(old.replace("[1, 2]", "[1]")) == {"test_b", "n"}
    assert tests(old.replace("assert os", "assert not os")) == {"test_c"}
    assert tests(old.replace("lambda: 1", "lambda: 3")) == {"m"}
    assert share.changed_words(old, old.replace("lambda: 1", "lambda:\\\n 3"))[0] == {"m", 11, 12}
    assert {w for w in share.changed_words(old, old.replace("SIZES)", "SIZES[1:])"))[0] if w != "test_b"} == {"n", 8, 9}
    assert tests(old + "def test_d(): pass\n") == {"test_d"}
    assert share.changed_words(old, old + "run()\n") is None
    assert share.changed_words(old, old + "@pytest.fixture(autouse=True)\ndef f(): pass\n") is None
    assert "test_a" in share.changed_words(old, old)[1]


def test_a_share_of_each_commit(monkeypatch):
    """One entry in so many, and those of changed files; the parts together are all entries."""
    import share
    names = [f"n{i}" for i in range(100)]
    monkeypatch.setattr(share, "changed", lambda: {"masks": ({"n7", "f"}, {"n7", "n8", "f"}), "PAGE": None})
    parts = []
    for part in range(4):
        monkeypatch.setattr(share, "git", lambda *args, part=part: f"{part:08x}")
        monkeypatch.setenv("QKV_SHARE", "32")
        parts += share.share(names, {}, 4)
        groups = {"n7": {"x": set(), "masks": {"n7"}}, "n8": {"masks": {"n8"}}, "n9": {"masks": {"n9"}},
                  "n10": {"PAGE": set()}}
        ran = set(share.share(names, groups, 4))
        assert {"n7", "n9", "n10"} <= ran and ("n8" in ran) == ("n8" in parts[-25:])
    assert sorted(parts) == sorted(names)
    monkeypatch.setenv("QKV_SHARE", "1")
    assert share.share(names, {}, 4) == names


def test_figures(tmp_path):
    import testing
    logs = tree(tmp_path, {
        "suites": "layers=build/check/layers.log:0\npython_1=build/check/python_1.log:1\n", "share": "5\n",
        "figures": "layers 3\npython_1 65\n", "layers.log": "1..2\nok 1 - a\nok 2 - b\n",
        "layers.times": "0m0.0s 0m0.0s\n0m1.2s 0m0.3s\n",
        "python_1.log": "FAILED x\n3 passed, 1 failed in 64.0s\n", "python_1.times": "0m0.0s 0m0.0s\n1m2.0s 0m3.4s\n"})
    lines = testing.table(logs, "abc").splitlines()
    assert "commit abc" in lines[0] and "one entry in 5" in lines[0]
    assert lines[4:] == ["| layers | 2 | 0 | 3 | 2 |", "| python_1 | 3 | 1 | 65 | 65 |",
                         "| together | 5 | 1 | | 67 |"]
    (logs / "share").write_text("1\n")
    assert "everything" in testing.table(logs, "abc")
