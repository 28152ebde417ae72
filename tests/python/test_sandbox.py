"""qkv --sandbox: every kind of command works on the files that it names, and on no other."""
import os
import pathlib
import shutil
import subprocess
import time

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
    ("report", "affine.pt2", "-o", "made/r.html"), ("compare", "affine.pt2", "affine.pt2", "-o", "made/v.html"),
    ("report", "affine.pt2", "--no-run", "-o", "made/r.html"), ("quantize", "eager.pt2", "-o", "made/q.onnx"),
    ("quantize", "eager.pt2", "--target", "openvino", "--calibration-cache", "made/seen.npz", "-o", "made/q.onnx"),
    ("compare", "affine.pt2", "affine.pt2", "--no-run", "-o", "made/c.json"),
    ("rewrite", "eager.pt2", "-o", "made/r.pt2", "--certify", "made/r.json", "-q"),
    ("convert", "eager.pt2", "-o", "made/e.onnx", "--external-data", "--certify", "made/e.json", "-q"),
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


def test_an_onnx_model_reads_its_data_and_nothing_else_of_its_folder(folder):
    model = HERE.parent / "models" / "small" / "encoder_prenorm_gelu.pt2"
    assert qkv(folder, "convert", str(model), "-o", "e.onnx", "--external-data", "-q").returncode == 0
    assert (folder / "e.onnx.data").stat().st_size
    free, kept = qkv(folder, "run", "e.onnx"), qkv(folder, "--sandbox", "run", "e.onnx")
    assert kept.returncode == free.returncode == 0 and kept.stdout == free.stdout
    assert qkv(folder, "check", "e.onnx", "--security").returncode == 0
    os.link(folder / "e.onnx.data", folder / "other")
    for words in ("run", "e.onnx"), ("check", "e.onnx", "--security"):
        done = qkv(folder, "--sandbox", *words)
        assert done.returncode in (1, 3) and "hard link" in done.stdout + done.stderr, done
    (folder / "other").unlink()
    (folder / "e.onnx.data").rename(folder / "other")
    (folder / "e.onnx.data").symlink_to("other")
    done = qkv(folder, "--sandbox", "run", "e.onnx")
    assert done.returncode == 3 and "is a symbolic link" in done.stderr


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


@pytest.mark.parametrize("name", ["out.npz", "link.npz"])
def test_an_output_is_made_and_nothing_else_in_its_folder_can_be(folder, name):
    (folder / "beside").write_text("stays")
    (folder / "link.npz").symlink_to("made.npz")
    (folder / "made.npz").write_text("old")
    assert qkv(folder, "--sandbox", "run", "affine.pt2", "-o", name).returncode == 0
    assert (folder / "link.npz").is_symlink() and (folder / "beside").read_text() == "stays"
    assert (folder / name).read_bytes()[:2] == b"PK"


def test_a_command_that_is_killed_leaves_nothing(folder):
    before = set(os.listdir(folder))
    for delay in (0.0, 0.01, 0.02, 0.05):
        p = subprocess.Popen([QKV, "--sandbox", "convert", "eager.pt2", "-o", "e.onnx", "-q"], cwd=folder,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        p.kill()
        p.wait()
        end = time.monotonic() + 10
        while set(os.listdir(folder)) - before - {"e.onnx"} and time.monotonic() < end:
            time.sleep(0.01)  # whoever makes outputs sees the end a moment after it
        assert set(os.listdir(folder)) - before <= {"e.onnx"}
