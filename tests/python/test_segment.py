"""`qkv segment` against the reference: pre- and post-processing written with PyTorch (torchvision's resize on uint8,
the post-processing of facebookresearch/sam3 and of transformers' Sam3ImageProcessor), around
tests/cli/models/ground.pt2 run by PyTorch."""
import ctypes as C
import importlib.util
import json
import os
import pathlib
import pty
import struct
import subprocess

import numpy as np
import pytest

import qkv
from qkv import _lib

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")
F = torch.nn.functional
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "tests" / "cli" / "models"
QKV = os.environ.get("QKV", str(ROOT / "build" / "qkv"))


def picture(seed, width, height, mode="RGB"):
    """Something with edges, gradients and noise."""
    r = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    a = np.stack([x * 255 / width, y * 255 / height, 128 + 120 * np.sin(x / 7) * np.cos(y / 5)], -1) + r.normal(0, 20,
        (height, width, 3))
    a[height // 3:height // 2 + 1, width // 4:width // 2 + 1] = r.integers(0, 256, 3)
    return Image.fromarray(a.clip(0, 255).astype(np.uint8)).convert(mode)


def resized(image, size):
    t = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)[None]
    return F.interpolate(t, size=size, mode="bilinear", align_corners=False, antialias=True)[0]


def qkv_input(path, size):
    lib, err = _lib.vision(), _lib.CError()
    lib.qkv_picture_read.restype = C.c_void_p
    p = lib.qkv_picture_read(str(path).encode(), C.byref(err))
    assert p, err.message
    out = np.empty((3, *size), np.float32)
    half = (C.c_float * 3)(0.5, 0.5, 0.5)
    assert lib.qkv_picture_input(C.c_void_p(p), size[0], size[1], half, half, out.ctypes.data_as(C.c_void_p),
                                 C.byref(err)) == 0, err.message
    lib.qkv_picture_free(C.c_void_p(p))
    return torch.from_numpy(out)


@pytest.mark.parametrize("width,height,size", [(40, 30, (32, 32)), (32, 32, (32, 32)), (1, 1, (56, 56)),
                                               (1, 200, (24, 24)), (5, 3, (112, 112)), (641, 479, (112, 112)),
                                               (1300, 37, (56, 70)), (100, 900, (252, 252)), (31, 33, (32, 32)),
                                               (2000, 1500, (1008, 1008))])
def test_input(tmp_path, width, height, size):
    image = picture(width, width, height)
    image.save(tmp_path / "a.png")
    want = (resized(image, size).float() / 255 - 0.5) / 0.5
    assert torch.equal(qkv_input(tmp_path / "a.png", size), want)


@pytest.mark.parametrize("mode", ["L", "1", "P", "LA", "RGBA"])
def test_modes(tmp_path, mode):
    image = picture(3, 50, 40, "RGB" if mode.endswith("A") else mode)
    if mode.endswith("A"):
        image = image.convert(mode)
        image.putalpha(picture(4, 50, 40, "L"))
    image.save(tmp_path / "a.png")
    want = (resized(image, (24, 24)).float() / 255 - 0.5) / 0.5
    assert torch.equal(qkv_input(tmp_path / "a.png", (24, 24)), want)


def test_16_bits(tmp_path):
    """Reduced to the nearest of 256 levels; Pillow would cut off at 255."""
    deep = np.random.default_rng(1).integers(0, 65536, (40, 50)).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "a.png")
    image = Image.fromarray((deep / 257).round().astype(np.uint8))
    want = (resized(image, (40, 50)).float() / 255 - 0.5) / 0.5
    assert torch.equal(qkv_input(tmp_path / "a.png", (40, 50)), want)


@pytest.mark.parametrize("damage,sentence,code", [(lambda p: picture(1, 30, 20, "CMYK").save(p), "CMYK", 4),
                                                  (lambda p: p.write_bytes(b""), "PNG", 3), (None, "Premature end", 3)])
def test_unreadable(tmp_path, damage, sentence, code):
    path = tmp_path / "a.jpg"
    if damage:
        damage(path)
    else:
        picture(1, 90, 80).save(path)
        path.write_bytes(path.read_bytes()[:2000])
    err = _lib.CError()
    lib = _lib.vision()
    lib.qkv_picture_read.restype = C.c_void_p
    assert not lib.qkv_picture_read(str(path).encode(), C.byref(err))
    assert str(path) in err.message.decode() and sentence in err.message.decode()
    command = subprocess.run([QKV, "segment", str(MODELS / "ground.pt2"), "--image", str(path), "--text", "red"],
                             capture_output=True, text=True)
    assert command.returncode == code and command.stdout == "" and command.stderr == f"qkv: error: {err.message.decode()}\n"


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation(tmp_path, order, mode):
    """EXIF's eight ways up, and values that are none."""
    lib, err = functions(), _lib.CError()
    for value in range(10):
        ifd = struct.pack(order + "HHHIHHI", 1, 0x0112, 3, 1, value, 0, 0)
        exif = b"Exif\0\0" + (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8) + ifd
        picture(value, 37, 22, mode).save(tmp_path / "a.jpg", exif=exif)
        image = Image.open(tmp_path / "a.jpg")
        assert image.getexif()[0x0112] == value
        want = np.array(ImageOps.exif_transpose(image).convert("RGB"))
        p = C.c_void_p(lib.qkv_picture_read(str(tmp_path / "a.jpg").encode(), C.byref(err)))
        assert p, err.message
        shape = lib.qkv_picture_height(p), lib.qkv_picture_width(p), 3
        got = np.ctypeslib.as_array(C.cast(lib.qkv_picture_rgb(p), C.POINTER(C.c_uint8)), shape).copy()
        lib.qkv_picture_free(p)
        # two versions of libjpeg may round their IDCT otherwise
        assert got.shape == want.shape and np.abs(got.astype(int) - want).max() <= 2, value


def decode(segmentation):
    """COCO's compressed run lengths (maskApi.c: rleFrString)."""
    runs, text = [], segmentation["counts"].encode()
    while text:
        x, shift = 0, 0
        while True:
            c, text = text[0] - 48, text[1:]
            x |= (c & 31) << shift
            shift += 5
            if not c & 32:
                x -= (c >> 4 & 1) << shift
                break
        runs.append(x + (runs[-2] if len(runs) > 2 else 0))
    height, width = segmentation["size"]
    assert sum(runs) == height * width
    return np.repeat(np.arange(len(runs)) % 2, runs).reshape(width, height).T


@torch.no_grad()
def reference(image, ids, contract, threshold):
    """[(prompt, score, box, mask before the threshold)], as the two processors do it."""
    program = torch.export.load(MODELS / "ground.pt2").module()
    t = resized(image, (32, 32)).float()
    t = (t - 127.5) / 127.5 if contract == "hf" else (t / 255 - 0.5) / 0.5
    logits, boxes, masks, presence = program(t[None], ids)
    scores = logits.squeeze(-1).sigmoid() * presence.sigmoid()
    w, h = image.size
    if contract == "meta":
        boxes = torch.cat([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)
        big = F.interpolate(masks, (h, w), mode="bilinear", align_corners=False).sigmoid()
    else:
        big = F.interpolate(masks.sigmoid(), (h, w), mode="bilinear", align_corners=False)
    boxes = boxes * torch.tensor([w, h, w, h])
    return [(p, float(scores[p, q]), boxes[p, q].numpy(), big[p, q].numpy()) for p in range(len(ids))
            for q in scores[p].argsort(descending=True, stable=True).tolist()
            if scores[p, q] > threshold]


@pytest.mark.parametrize("contract", ["meta", "hf"])
@pytest.mark.parametrize("width,height", [(40, 30), (9, 14), (301, 200)])
def test_instances(tmp_path, contract, width, height):
    image = picture(width, width, height)
    image.save(tmp_path / "a.png")
    (tmp_path / "p.json").write_text(json.dumps({"contract": contract, "image": {"height": 32, "width": 32},
                                                 "text": {"length": 16}, "score_threshold": 0.02}))
    words = {"red": 512 + 1, "green": 512 + 4, "blue": 512 + 7}
    ids = torch.zeros(3, 16, dtype=torch.int64) if contract == "meta" else torch.full((3, 16), 521)
    for i, word in enumerate(words.values()):
        ids[i, :3] = torch.tensor([520, word, 521])
    command = [QKV, "segment", str(MODELS / "ground.pt2"), "--image", "a.png", "--processor", "p.json", "--masks",
               "m", "-o", "over.png", "--json"]
    out = subprocess.run([*command, *sum((["--text", w] for w in words), [])], cwd=tmp_path, capture_output=True,
                         text=True, check=True).stdout
    got, want = json.loads(out)["annotations"], reference(image, ids, contract, 0.02)
    assert len(got) == len(want) > 1
    cut = 0
    for k, (a, (prompt, score, box, mask)) in enumerate(zip(got, want)):
        assert a["category_id"] == prompt + 1 and abs(a["score"] - score) < 1e-5
        x, y, w, h = a["bbox"]
        np.testing.assert_allclose([x, y, x + w, y + h], box, atol=1e-3)
        have = decode(a["segmentation"])
        assert have.sum() == a["area"]
        sure = np.abs(mask - 0.5) > 1e-5
        assert (have == (mask > 0.5))[sure].all()
        cut += 0 < have.mean() < 1
        name = tmp_path / "m" / f"a.png-{k + 1:03d}-{list(words)[prompt]}.png"
        assert (np.array(Image.open(name)) == 255 * have).all()
    assert cut
    over = np.array(Image.open(tmp_path / "over.png"))
    assert over.shape[1] == width and over.shape[0] > height and (over[:height] != np.array(image)).any()


def functions():
    lib = _lib.vision()
    for name in ("qkv_segmenter_create", "qkv_segmenter_run", "qkv_picture_read", "qkv_picture_rgb"):
        getattr(lib, name).restype = C.c_void_p
    return lib


def test_texts_are_encoded_once(tmp_path):
    """Two pictures, then another text: the embedding of ids runs with the first and the third."""
    picture(1, 40, 30).save(tmp_path / "a.png")
    lib, core, err = functions(), _lib.lib(), _lib.CError()
    core.qkv_session_profile_json.restype = C.c_void_p
    m = qkv.Model(MODELS / "ground.pt2")
    session = m.session()
    core.qkv_session_profile(C.c_void_p(session._opened.pointer), 1)
    g = C.c_void_p(lib.qkv_segmenter_create(C.c_void_p(m._model), C.c_void_p(session._opened.pointer), None,
                                            C.byref(err)))
    assert g, err.message
    p = C.c_void_p(lib.qkv_picture_read(str(tmp_path / "a.png").encode(), C.byref(err)))
    calls = []
    for text in (b"red", None, b"blue", None):
        if text:
            assert lib.qkv_segmenter_prompts(g, (C.c_char_p * 1)(text), 1, None, C.byref(err)) == 0, err.message
        found = C.c_void_p(lib.qkv_segmenter_run(g, p, C.byref(err)))
        assert found, err.message
        lib.qkv_instances_free(found)
        steps = json.loads(C.string_at(core.qkv_session_profile_json(C.c_void_p(session._opened.pointer),
                                                                     None)))["steps"]
        calls.append(sum(s["calls"] for s in steps if "embedding" in s["op"]))
    lib.qkv_segmenter_free(g)
    lib.qkv_picture_free(p)
    assert calls == [1, 1, 2, 2]


@pytest.mark.parametrize("batch", [None, "2 to 3"])
def test_models_that_take_two_pictures(tmp_path, batch):
    """A batch that the file fixes, or a range from 2: five pictures, the last runs filled up."""
    make = load(MODELS / "make.py")
    dims = {"patch_batch": {0: torch.export.Dim("b", min=2, max=3)} if batch else None,
            "token_ids": {0: torch.export.Dim("p", min=1)}}
    program = torch.export.export(make.Ground().eval(), (torch.zeros(2, 3, 32, 32),
                                                         torch.zeros(3, 16, dtype=torch.int64)), dynamic_shapes=dims)
    extra = {"qkv/tokenizer.bpe": "\n".join(make.MERGES),
             "qkv/processor.json": json.dumps({"contract": "meta", "score_threshold": 0.02})}
    torch.export.save(program, tmp_path / "two.pt2", extra_files=extra)
    (tmp_path / "in").mkdir()
    for i in range(5):
        picture(i, 40 + i, 30).save(tmp_path / "in" / f"{i}.png")
    found = []
    for name, n in ((MODELS / "ground.pt2", 1), ("two.pt2", 1), ("two.pt2", 9)):
        command = [QKV, "segment", str(name), "--images", "in", "--text", "red", "--text", "blue", "--threshold",
                   "0.02", "--batch-size", str(n), "--output-dir", f"out{len(found)}", "--json"]
        found.append(json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True,
                                               check=True).stdout))
    assert len(found[0]["annotations"]) > 5
    for other in found[1:]:
        for a, b in zip(found[0]["annotations"], other["annotations"], strict=True):
            assert a["segmentation"] == b["segmentation"] and abs(a["score"]
                                                                  - b["score"]) < 1e-6 and a["image_id"] == b["image_id"]


def test_progress(tmp_path):
    """On a terminal: pictures done, the time left, what runs. Elsewhere nothing (tests/cli/segment.t)."""
    (tmp_path / "in").mkdir()
    large = picture(1, 1500, 1200)
    for i in range(6):
        large.save(tmp_path / "in" / f"{i}.jpg", quality=50)
    (tmp_path / "in" / "3.jpg").write_bytes(b"")
    command = [QKV, "segment", str(MODELS / "ground.pt2"), "--images", "in", "--text", "red", "--batch-size", "1",
               "--output-dir", "out"]
    ours, theirs = pty.openpty()
    child = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    out = b""
    while True:
        try:
            out += os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)
    assert child.wait() == 1
    bars = [line for line in out.decode().replace("\x1b[K", "").split("\r") if "[" in line and "/6" in line]
    assert bars and all(line.startswith("segment [") for line in bars)
    done = [int(line.split("]")[1].split("/")[0]) for line in bars]
    assert done == sorted(done) and done[-1] >= 4
    assert any("colour" in line or "writing" in line for line in bars)


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tutorial_blocks():
    """Output with a blank line in it belongs to its command as a whole: written again, the page stays as it is."""
    tutorial = load(ROOT / "tools" / "tutorial.py")
    page = "Text.\n\n    $ a\n    one\n\n    two\n\n    $ b\n\nText.\n    code\n"
    assert tutorial.blocks(page) == [["Text.", []], ["", []], ["    $ a", ["one", "", "two"]], ["", []],
                                     ["    $ b", []], ["", []], ["Text.", []], ["    code", []]]


def test_tutorial(tmp_path):
    """docs/TUTORIAL-SAM3.md holds what its commands print and draw; those that need Python,
    or depend on Pillow's JPEGs or on random weights, are left out."""
    tutorial, tests = load(ROOT / "tools" / "tutorial.py"), load(ROOT / "tests" / "cli" / "run.py")
    (tmp_path / "work").mkdir()
    tutorial.prepare(tmp_path / "work", Image.open(ROOT / "docs" / "tutorial" / "scene.png"))
    ran = 0
    for line, printed in tutorial.blocks(tutorial.DOCUMENT.read_text()):
        if not line.startswith("    $ ") or any(word in line for word in ("python", "tiny.pt2", "phone.jpg")):
            continue
        got = tutorial.run(line[6:], tmp_path / "work", QKV)
        assert tests.same([one.rstrip() for one in printed], got), (line, got)
        ran += 1
    assert ran >= 8
    for name in ("overlay.png", "mask.png", "tiles.png"):
        shown, made = (np.array(Image.open(f / name)).astype(int)
                       for f in (ROOT / "docs" / "tutorial", tmp_path / "work"))
        assert shown.shape == made.shape and (shown != made).mean() < 0.001, name
