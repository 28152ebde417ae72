"""qkv.Segmenter against `qkv segment` on the same pictures (test_segment.py holds that against the reference),
given as arrays."""
import ctypes as C
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

import qkv
from qkv import _lib

Image = pytest.importorskip("PIL.Image")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GROUND = ROOT / "tests" / "cli" / "models" / "ground.pt2"
QKV = os.environ.get("QKV", str(ROOT / "build" / "qkv"))
WORDS = ["red", "green", "blue"]


def picture(seed, width, height):
    r = np.random.default_rng(seed)
    a = r.integers(0, 60, (height, width, 3))
    a[height // 3:, :width // 3, seed % 3] += 180
    a[:height // 2, width // 2:, (seed + 1) % 3] += 160
    return a.astype(np.uint8)


@pytest.mark.parametrize("options", [{}, {"tile": 64, "overlap": 20}, {"batch": 1}])
def test_as_the_command(tmp_path, options):
    image = picture(0, 150, 110)
    Image.fromarray(image).save(tmp_path / "a.png")
    command = [QKV, "segment", str(GROUND), "--image", "a.png", "--threshold", "0.2", "--json", "-o", "over.png",
               *sum((["--text", w] for w in WORDS), []), *sum(([f"--{k}", str(v)] for k, v in options.items()), [])]
    want = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True,
                                     check=True).stdout)["annotations"]
    found = qkv.Segmenter(GROUND, WORDS, threshold=0.2, threads=2, **options)(image)
    assert len(found) == len(want) > 2 and found.size == (110, 150)
    for one, a in zip(found, want):
        x0, y0, x1, y1 = one.box
        assert (one.prompt, one.text, one.area) == (a["category_id"] - 1, WORDS[a["category_id"] - 1], a["area"])
        assert one.counts == a["segmentation"]["counts"] and list(one.size) == a["segmentation"]["size"]
        np.testing.assert_allclose([x0, y0, x1 - x0, y1 - y0, one.score], [*a["bbox"], a["score"]], rtol=1e-6,
                                   atol=1e-6)
        assert one.mask.dtype == bool and one.mask.shape == (110, 150) and one.mask.sum() == one.area
    np.testing.assert_array_equal(found.overlay(image), np.array(Image.open(tmp_path / "over.png")))


def test_masks_lie_where_they_should():
    """Red on the left, green on the right: each half's mask is in its half."""
    image = np.zeros((40, 60, 3), np.uint8)
    image[:, :30, 0] = image[:, 30:, 1] = 255
    found = qkv.Segmenter(GROUND, ["red", "green"])(image)
    best = {text: max((i for i in found if i.text == text), key=lambda i: i.score) for text in ("red", "green")}
    for text, half in (("red", np.s_[:, :30]), ("green", np.s_[:, 30:])):
        mask = best[text].mask
        assert mask[half].sum() > 0.8 * mask.sum() > 0 and mask[half].mean() > 0.5


def numbers(found):
    return [(i.text, i.score, i.box, i.counts) for i in found]


def test_kinds_of_pictures(tmp_path):
    find, images = qkv.Segmenter(GROUND, WORDS, threshold=0.1), [picture(s, 60, 50) for s in range(5)]
    want = [numbers(find(image)) for image in images]
    assert any(want)
    assert [numbers(f) for f in find(images)] == want
    assert [numbers(f) for f in find(np.stack(images))] == want
    Image.fromarray(images[0]).save(tmp_path / "a.png")
    assert numbers(find(tmp_path / "a.png")) == want[0]
    assert numbers(find(Image.fromarray(images[0]))) == want[0]
    assert numbers(find(np.concatenate([images[0], images[0][..., :1]], -1))) == want[0]
    assert numbers(find(np.asfortranarray(images[0]))) == want[0]
    gray = images[0][..., 0]
    assert numbers(find(gray)) == numbers(find(gray[..., None])) == numbers(find(np.stack([gray] * 3, -1)))
    assert find([]) == []


def test_texts_of_a_call():
    find, image = qkv.Segmenter(GROUND, WORDS, threshold=0.1), picture(1, 60, 50)
    all_three = numbers(find(image))
    green = numbers(find(image, "green"))
    assert green == [n for n in all_three if n[0] == "green"] and numbers(find(image)) == all_three


def test_pickle():
    find, image = qkv.Segmenter(GROUND, WORDS, threshold=0.1), picture(2, 60, 50)
    found = find(image)
    sent = pickle.dumps(find)
    assert len(sent) < 10_000 and pickle.loads(sent)(image)[0].counts == found[0].counts
    came = pickle.loads(pickle.dumps(found))
    assert numbers(came) == numbers(found) and came.size == found.size and came.texts == found.texts
    with pytest.raises(qkv.Error, match="come from another process"):
        came.overlay(image)


@pytest.mark.parametrize("model,texts,image,message", [
    (GROUND, WORDS, np.zeros((4, 4, 3)),
     r"the image is float64 of shape \(4, 4, 3\); expected uint8 \(height, width, 3\)"),
    (GROUND, WORDS, [np.zeros((4, 4, 3), np.uint8), np.zeros((3, 4, 5), np.uint8)],
     r"image 1 is uint8 of shape \(3, 4, 5\)"),
    (GROUND, WORDS, np.zeros((0, 4, 3), np.uint8), "0 x 4 pixels: a picture has 1 to"),
    (GROUND, WORDS, "nowhere.png", "nowhere.png"),
    (GROUND, (), np.zeros((4, 4, 3), np.uint8), "no text to look for"),
    (GROUND, ["red", ""], np.zeros((4, 4, 3), np.uint8), "text 2 .*no tokens"),
    (GROUND.parent / "bare.pt2", WORDS, np.zeros((4, 4, 3), np.uint8), "holds no 'qkv/processor.json'"),
    ("nowhere.pt2", WORDS, np.zeros((4, 4, 3), np.uint8), "nowhere.pt2"),
])
def test_errors(model, texts, image, message):
    find = qkv.Segmenter(model, texts)
    for _ in range(2):
        with pytest.raises(qkv.Error, match=message) as e:
            find(image)
        assert "\n" not in str(e.value)


def test_what_the_model_tells():
    """The two functions by which libqkv_vision looks into a model:
    its extra files, and the table that ids are looked up in."""
    lib, m, e, size = _lib.lib(), qkv.Model(GROUND), _lib.CError(), C.c_size_t()
    lib.qkv_model_extra_file.restype = C.c_void_p
    extra = lib.qkv_model_extra_file(C.c_void_p(m._model), b"qkv/processor.json", C.byref(size), C.byref(e))
    assert extra, e.message
    assert "contract" in json.loads(C.string_at(extra, size.value)) and C.string_at(extra, size.value + 1)[-1] == 0
    lib.qkv_free(extra)
    assert not lib.qkv_model_extra_file(C.c_void_p(m._model), b"qkv/nothing", C.byref(size), C.byref(e))
    assert (e.code, e.message.decode()) == (2, f"{GROUND}: holds no 'qkv/nothing'")
    name, rows, found = C.c_char_p(), C.c_int64(), {}
    for i in range(lib.qkv_model_input_count(m._model)):
        assert lib.qkv_model_input_table(C.c_void_p(m._model), i, C.byref(name), C.byref(rows),
                                         C.byref(e)) == 0, e.message
        found[lib.qkv_model_input_rank(m._model, i)] = name.value, rows.value
    assert found[4] == (None, 0) and found[2][0].endswith(b".weight") and found[2][1] > 514
    assert lib.qkv_model_input_table(C.c_void_p(m._model), 9, C.byref(name), C.byref(rows), C.byref(e)) == 2
    assert e.message.decode() == f"input 9: the model has {len(found)} inputs"


def test_library_missing(tmp_path):
    """Models run without libqkv_vision; a segmenter says which file it needs."""
    library = pathlib.Path(_lib.library_path())
    shutil.copy(library, tmp_path / "libqkv.so")
    code = f"""if True:
        import numpy as np, qkv
        qkv.Model({str(GROUND)!r})
        try:
            qkv.Segmenter({str(GROUND)!r}, ["red"])(np.zeros((4, 4, 3), np.uint8))
        except qkv.Error as e:
            print(e.code, e)"""
    environment = {**os.environ, "QKV_LIBRARY": str(tmp_path / "libqkv.so"),
                   "PYTHONPATH": str(pathlib.Path(qkv.__file__).parents[1])}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True,
                          check=True).stdout
    missing = tmp_path / "libqkv_vision.so"
    assert said.startswith(f"3 cannot load '{missing}', which pictures, tokenizers and segmenters need: "), said


def test_long_text():
    with pytest.warns(UserWarning, match="tokens long; the model reads 16, the rest is cut off"):
        qkv.Segmenter(GROUND)(picture(0, 20, 20), ["red " * 40])
