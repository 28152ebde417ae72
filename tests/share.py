"""Which entries of a large suite a commit runs, and the exports that torch need not make twice.

    names = share(names, {"mask_2d": {"masks"}})     with QKV_SHARE=8: an eighth, another one for each commit,
                                                     and the groups that were changed
    names = share(names, {}, 4)                      the same, a fourth at least
    meta = exported("models", name, out, make)       make(folder) writes NAME.*;
                                                     a copy is kept by the hash of versions and sources

The share of a commit is chosen by its hash, so that it is the same wherever the commit is tested. An entry one of whose
groups has the name of a Python file of tests/ or python/, a page or a file of rules that was changed within six hours
before the commit (tests/spellings/masks.py, attention/masks.rules) runs in any case. Tests of tests/python that are
marked with turns(4) share the same way, a fourth at least (tests/python/conftest.py).
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


def meaning(name, text):
    """A file of Python, text or rules without its layout and comments, so that wrapping lines changes nothing."""
    if name.endswith(".md"):
        return text.split()
    if name.endswith(".rules"):
        return re.sub(r";[^\n]*", "", text).split()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return ast.dump(tree)


@functools.cache
def changed_stems():
    """Names without ending of such files that were added or edited (not just moved or wrapped) within six hours before
    the commit, which is what one session writes between two runs of CI."""
    since = int(git("log", "-1", "--format=%ct") or 0) - 6 * 3600
    log = git("log", f"--since={since}", "--format=", "--name-status", "-M", "--diff-filter=AM", "--", "tests/*.py",
              "python/*.py", "docs/*.md", "*.rules")
    before = git("rev-list", "-1", f"--before={since}", "HEAD")
    stems = set()
    for name in {line.split("\t")[-1] for line in log.splitlines() if line}:
        old = git("show", f"{before}:{name}") if before else ""
        if not old or meaning(name, old) != meaning(name, git("show", f"HEAD:{name}")):
            stems.add(pathlib.PurePosixPath(name).stem)
    return stems


def share(names, groups, most=None):
    """The names to run, in their order: one in QKV_SHARE, or in `most` where that is less.
    groups: {name: the stems of the files that it comes from}."""
    of = int(os.environ.get("QKV_SHARE", "1"))
    of = min(of, most or of)
    if of <= 1:
        return list(names)
    commit = git("rev-parse", "HEAD") or "0"
    part, changed = int(commit[:8], 16) % of, changed_stems()
    return [n for n in names if int(hashlib.sha1(n.encode()).hexdigest()[:8], 16) % of == part
            or changed & groups.get(n, set())]


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
