"""qkv --sandbox: every kind of command works on the files that it names, and on no other."""
import os
import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
QKV = os.environ.get("QKV", str(HERE.parents[1] / "build" / "qkv"))
MODELS = HERE.parent / "cli" / "models"


def qkv(folder, *words):
    done = subprocess.run([QKV, *words], cwd=folder, capture_output=True, text=True, timeout=60)
    if done.returncode == 4 and "--sandbox" in done.stderr:
        pytest.skip(done.stderr.strip())
    return done


@pytest.fixture
def folder(tmp_path):
    for name in ("affine.pt2", "eager.pt2"):
        shutil.copy(MODELS / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", [
    ("inspect", "eager.pt2"), ("graph", "eager.pt2", "--as-run"), ("check", "eager.pt2", "--full"),
    ("run", "affine.pt2", "-o", "out.npz", "--trace", "trace.json"), ("bench", "affine.pt2"),
    ("rewrite", "eager.pt2", "--prove", "-o", "made/../rewritten.pt2"), ("convert", "eager.pt2", "-o", "made/out.onnx"),
    ("pack", "affine.pt2", "-o", "affine.qkv"), ("joint", "affine.pt2", "-o", "joint.pt2"),
    ("extract", "affine.pt2", "--weights", "-o", "w.npz"), ("graph", "affine.pt2", "-o", "made/g.svg"),
    ("report", "affine.pt2", "--no-run", "-o", "made/r.html"), ("quantize", "eager.pt2", "-o", "made/q.onnx"),
    ("compare", "affine.pt2", "affine.pt2", "--no-run", "-o", "made/c.json"),
], ids=lambda words: words[0])
def test_a_command_prints_and_writes_the_same(folder, words):
    (folder / "made").mkdir()
    free = qkv(folder, *words)
    written = {p.relative_to(folder) for p in folder.rglob("*")}
    kept = qkv(folder, "--sandbox", *words)
    assert kept.returncode == free.returncode
    if words[0] != "bench":
        assert kept.stdout == free.stdout
    assert {p.relative_to(folder) for p in folder.rglob("*")} == written  # nothing temporary is left


def test_a_folder_of_packed_models_is_kept_where_it_is_named(folder):
    for said in "written", "mapped":
        done = qkv(folder, "--sandbox", "run", "affine.pt2", "-v", "--cache=kept")
        assert done.returncode == 0 and f".qkv: {said}" in done.stderr
    assert len(list((folder / "kept").glob("*.qkv"))) == 1


def test_a_link_is_followed_where_its_name_was_given(folder):
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (folder / "affine.pt2").rename(elsewhere / "real.pt2")
    (folder / "link.pt2").symlink_to("elsewhere/real.pt2")
    assert qkv(folder, "--sandbox", "run", "link.pt2").returncode == 0


def test_what_failed_says_that_there_is_a_sandbox(folder):
    done = qkv(folder, "--sandbox", "run", "missing.pt2")
    assert done.returncode == 3 and "qkv --sandbox=FILE" in done.stderr
