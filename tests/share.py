"""Which entries of a large suite a commit runs, and the exports that torch need not make twice.

    names = share(names, {"mask_2d": {"masks": {17}}})
                                                     with QKV_SHARE=8: an eighth, another one for each commit, and
                                                     those of masks.py that were changed: written() gave ("masks", 17)
    names = share(names, {}, 4)                      the same, a fourth at least
    meta = exported("models", name, out, make)       make(folder) writes NAME.*;
                                                     a copy is kept by the hash of versions and sources

The share of a commit is chosen by its hash, so that it is the same wherever the commit is tested. An entry runs in any
case where a file that it comes from was changed within four hours before the commit: a page, a file of rules, a file of
python/; of a file of tests/ the statement counts that makes the entry, where it or a function, class or value that it
uses was changed. Tests of tests/python that are marked with turns share the same way, an eighth at least
(tests/python/conftest.py).
"""
import ast
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def git(*args):
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def plain(tree):
    """A piece of Python without its layout, comments, descriptions, and when it takes turns."""
    for node in ast.walk(tree):
        if isinstance(marks := getattr(node, "decorator_list", None), list):
            node.decorator_list = [d for d in marks if not ast.unparse(d).startswith("pytest.mark.turns")]
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return ast.dump(tree)


def meaning(name, text):
    """A file of Python, text or rules without its layout and comments, so that wrapping lines changes nothing."""
    if name.endswith(".md"):
        return text.split()
    if name.endswith(".rules"):
        return re.sub(r";[^\n]*", "", text).split()
    return plain(ast.parse(text))


def written():
    """Where the entry that is being made is written: (the stem of its file, the line of the file's own code)."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return pathlib.Path(frame.f_code.co_filename).stem, frame.f_lineno


def lines(statement):
    """Numbers of its lines."""
    first = min(s.lineno for s in (statement, *getattr(statement, "decorator_list", ())))
    return set(range(first, statement.end_lineno + 1))


def words(statement):
    """(names that it binds, names that it uses, its strings)"""
    binds, uses, strings = set(), set(), set()
    inner = {n for c in ast.walk(statement) if isinstance(c, ast.comprehension) for n in ast.walk(c.target)}
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and node not in inner:
            (uses if isinstance(node.ctx, ast.Load) else binds).add(node.id)
        elif isinstance(node, ast.arg):  # pytest's fixtures
            uses.add(node.arg)
        elif isinstance(node, ast.alias):
            binds.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            binds.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.add(node.value)
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        binds = {statement.name}
    return binds, uses, strings


def changed_words(old, new):
    """(words of the statements of a file of Python that differ from the old one's or use what such a statement binds,
    words of all statements): names that are bound, strings, and the numbers of their lines.
    None: all tests of the file may be others."""
    def statements(text):
        return [s for s in ast.parse(text).body
                if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    before = set(map(plain, statements(old)))
    every, differ, rest = set(), [], []
    for s in statements(new):
        known, autouse = plain(s) in before, "autouse" in ast.unparse(s)
        binds, uses, strings = words(s)
        found = binds, uses, strings | lines(s)
        every |= binds | strings | lines(s)
        if not known and (autouse or not binds | strings):
            return None
        (rest if known else differ).append(found)
    reached = differ
    while reached:
        bound = set().union(*(s[0] for s in reached))
        reached = [s for s in rest if s[1] & bound]
        rest = [s for s in rest if not s[1] & bound]
        differ = differ + reached
    return set().union(*(binds | strings for binds, _, strings in differ)), every


@functools.cache
def changed():
    """{name without ending: changed_words, or None: all}: of such files that were added or edited (not just moved or
    wrapped) within four hours before the commit, which is what one session writes between two runs of CI."""
    since = int(git("log", "-1", "--format=%ct") or 0) - 4 * 3600
    log = git("log", f"--since={since}", "--format=", "--name-status", "-M", "--diff-filter=AM", "--", "tests/*.py",
              "python/*.py", "docs/*.md", "*.rules")
    before = git("rev-list", "-1", f"--before={since}", "HEAD")
    found = {}
    for name in {line.split("\t")[-1] for line in log.splitlines() if line}:
        old, new = git("show", f"{before}:{name}") if before else "", git("show", f"HEAD:{name}")
        if old and meaning(name, old) == meaning(name, new):
            continue
        stem = pathlib.PurePosixPath(name).stem
        parts = changed_words(old, new) if old and name.startswith("tests/") and stem not in found else None
        found[stem] = parts
    return found


def is_changed(stems):
    """stems: {a stem of a file: the words for an entry there, or its line; none of them: the whole file stands for it}
    """
    for stem, own in stems.items():
        if stem in changed():
            parts = changed()[stem]
            if parts is None or own & parts[0] or not own & parts[1]:
                return True
    return False


def share(names, groups, most=None):
    """The names to run, in their order: one in QKV_SHARE, or in `most` where that is less.
    groups: {name: the files that it comes from, as is_changed takes them}."""
    of = int(os.environ.get("QKV_SHARE", "1"))
    of = min(of, most or of)
    if of <= 1:
        return list(names)
    part = int((git("rev-parse", "HEAD") or "0")[:8], 16) % of
    return [n for n in names if int(hashlib.sha1(n.encode()).hexdigest()[:8], 16) % of == part
            or is_changed(groups.get(n, {}))]


@functools.cache
def key(made_by, package=False):
    """The hash of everything that an export depends on: versions, and the sources (a folder of tests/, or a file;
    with package, the Python package too)."""
    h = hashlib.sha256(sys.version.encode())
    for name in ("torch", "transformers"):
        h.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    source = ROOT / "tests" / made_by
    sources = [pathlib.Path(__file__), *(source.glob("*.py") if source.is_dir() else [source])]
    for f in sorted([*sources, *((ROOT / "python" / "qkv").rglob("*.py") if package else [])]):
        h.update(f.name.encode() + b"\0" + f.read_bytes())
    return h.hexdigest()[:16]


def exported(made_by, name, out, make, package=False):
    """Puts the files of one entry into out, made by make(folder) or kept from before; returns what make returned."""
    caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    cache = caches / "qkv" / "exports" / made_by / key(made_by, package)
    kept = cache / name
    if not kept.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as tmp:
            fresh = pathlib.Path(tmp) / name
            fresh.mkdir()
            meta = make(str(fresh))
            (fresh / "made.json").write_text(json.dumps(meta))
            try:
                fresh.rename(kept)
            except OSError:  # another process was first
                pass
    for f in kept.iterdir():
        if f.name != "made.json":
            shutil.copyfile(f, pathlib.Path(out) / f.name)
    return json.loads((kept / "made.json").read_text())
