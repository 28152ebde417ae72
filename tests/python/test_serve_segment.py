"""POST /v1/segment of qkv serve: what `qkv segment` finds, features kept by picture, and everything that is refused."""
import concurrent.futures
import json
import os
import struct
import subprocess
import zipfile
import zlib

import numpy as np
import pytest

import serving
from serving import MODELS, QKV

pytestmark = pytest.mark.skipif(serving.missing() is not None, reason=serving.missing() or "")
GROUND, BARE, AFFINE = (os.path.join(MODELS, f"{n}.pt2") for n in ("ground", "bare", "affine"))
B = "=-=qkv=-="


def png(pixels):
    """(height, width, 3) as a PNG."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels.astype(np.uint8))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def picture(seed, width=40, height=30):
    """Red on the left, green on the right, and noise that makes every seed another picture."""
    x = np.random.default_rng(seed).integers(0, 40, (height, width, 3))
    x[:, :width // 2, 0] += 200
    x[:, width // 2:, 1] += 200
    return png(x)


def field(name, value, file=None, more=""):
    file = f'; filename="{file}"' if file else ""
    return (f'Content-Disposition: form-data; name="{name}"{file}\r\n{more}\r\n'.encode(),
            value.encode() if isinstance(value, str) else value)


def form(*fields, end="--\r\n", first=""):
    body = first.encode()
    for head, value in fields:
        body += f"--{B}\r\n".encode() + head + value + b"\r\n"
    return body + f"--{B}{end}".encode()


def ask(s, *fields, body=None, kind=f'multipart/form-data; boundary="{B}"', headers=()):
    status, _, data = s.ask("POST", "/v1/segment", form(*fields) if body is None else body,
                            {"Content-Type": kind, **dict(headers)})
    return status, json.loads(data)


@pytest.fixture(scope="module")
def server():
    with serving.serving(GROUND, BARE, AFFINE, "--max-body", "1M") as s:
        yield s


def by_command(tmp_path, image, *texts, threshold=None):
    (tmp_path / "street.png").write_bytes(image)
    done = subprocess.run([os.path.abspath(QKV), "segment", os.path.abspath(GROUND), "--image", "street.png", "--json"]
                          + [a for t in texts for a in ("--text", t)]
                          + (["--threshold", str(threshold)] if threshold else []), cwd=tmp_path, check=True,
                          capture_output=True, text=True)
    out = json.loads(done.stdout)
    out["info"]["model"] = "ground"
    return out


@pytest.mark.parametrize("texts, threshold", [(["red"], None), (["red", "green", "blue"], None), (["green"], 0.02)])
def test_as_the_command_writes_it(server, tmp_path, texts, threshold):
    image = picture(len(texts), 301, 200)
    fields = [field("image", image, "street.png"), *(field("text", t) for t in texts)]
    fields += [field("threshold", str(threshold))] if threshold else []
    status, out = ask(server, *fields)
    want = by_command(tmp_path, image, *texts, threshold=threshold)
    assert status == 200 and want["annotations"]
    for a, b in zip(out["annotations"], want["annotations"]):
        for key in "score", "bbox":  # the command prints ten digits
            np.testing.assert_allclose(a.pop(key), b.pop(key), rtol=1e-8)
    assert out == want
    # the threshold of one request is not that of the next one
    assert ask(server, field("image", image), field("text", "red"))[1]["info"]["threshold"] == 0.5


def counted(s):
    m = s.metrics()
    return [m[f'qkv_{name}_total{{model="ground"}}'] for name in ("pictures", "kept_pictures")]


def test_features_are_kept_by_picture(server):
    """Looked at with other texts, a picture's features are those that are there; the answers are the same."""
    images = [picture(100 + i) for i in range(3)]
    texts = ["red", "green", "blue"]
    before = counted(server)
    first = [ask(server, field("image", i), field("text", texts[0]), field("text", texts[1])) for i in images]
    assert [a - b for a, b in zip(counted(server), before)] == [3, 0]
    for _ in range(2):
        for image in images:
            for text in texts:
                assert ask(server, field("image", image), field("text", text))[0] == 200
    assert [a - b for a, b in zip(counted(server), before)] == [21, 18]
    again = [ask(server, field("image", i), field("text", texts[0]), field("text", texts[1])) for i in images]
    assert again == first and len({json.dumps(a) for a in first}) == 3


def test_features_have_a_bound():
    """Room for the features of one picture: of two in turn none is there again, of one every time."""
    with serving.serving(GROUND, "--features", "20K") as s, serving.serving(GROUND, "--features", "0") as none:
        for turn, want in (([1, 2, 1, 2], 0), ([3, 3, 3], 2)):
            before = counted(s)[1]
            for i in turn:
                assert ask(s, field("image", picture(i)), field("text", "red"))[0] == 200
            assert counted(s)[1] - before == want, turn
        for _ in range(3):
            assert ask(none, field("image", picture(1)), field("text", "red"))[0] == 200
        assert counted(none) == [3, 0]


def test_many_at_once(server):
    """Pictures and texts of several clients do not mix."""
    cases = [(picture(i % 4), ["red", "green", "blue"][i % 3]) for i in range(12)]
    want = [ask(server, field("image", p), field("text", t)) for p, t in cases]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda c: ask(server, field("image", c[0]), field("text", c[1])), cases * 5))
    assert got == want * 5 and all(status == 200 for status, _ in got)


def test_tokenizer_and_processor_as_files(tmp_path):
    """bare.pt2 contains neither."""
    with zipfile.ZipFile(GROUND) as z:
        for name in z.namelist():
            if os.path.basename(name) in ("tokenizer.bpe", "processor.json"):
                (tmp_path / os.path.basename(name)).write_bytes(z.read(name))
    with serving.serving(f"a={BARE}", f"b={GROUND}", "--tokenizer", f"a={tmp_path}/tokenizer.bpe", "--processor",
                         f"a={tmp_path}/processor.json") as s:
        fields = field("image", picture(1)), field("text", "red")
        outs = [ask(s, *fields, field("model", m)) for m in "ab"]
        assert outs[0][0] == 200 and outs[0][1]["annotations"] == outs[1][1]["annotations"] != []
        status, out = ask(s, *fields)
        assert status == 400 and out["error"]["message"] == "field 'model' is missing, and several models segment"


def test_long_texts_are_cut_and_said(server):
    status, out = ask(server, field("image", picture(1)), field("text", "red " * 30), field("text", "green"))
    assert status == 200 and out["info"]["cut"] == ["red " * 30]
    assert [c["name"] for c in out["categories"]] == ["red " * 30, "green"]


IMAGE, RED = field("image", picture(1)), field("text", "red")


@pytest.mark.parametrize("fields, said", [
    ([RED], "field 'image' is missing"), ([IMAGE], "field 'text' is missing"),
    ([IMAGE, IMAGE, RED], "field 'image' is given twice"), ([field("image", b""), RED], "field 'image' is empty"),
    ([IMAGE, field("text", "")], "field 'text' has 0 bytes"),
    ([IMAGE, field("text", "r" * 1025)], "field 'text' has 1025 bytes, expected a text of 1 to 1024"),
    ([IMAGE, field("text", b"a\0b")], "field 'text' has 3 bytes"),
    ([IMAGE, *[RED] * 65], "more than 64 texts"), ([IMAGE, *[RED] * 80], "the body has more than 72 parts"),
    ([IMAGE, field("text", " ")], "text 1 has no tokens"),
    ([IMAGE, RED, field("threshold", "2")], "field 'threshold' is '2', expected a number between 0 and 1"),
    ([IMAGE, RED, field("threshold", "nan")], "field 'threshold' is 'nan'"),
    ([IMAGE, RED, field("mask", "x")], "field 'mask': expected image, text, threshold or model"),
    ([IMAGE, RED, field("model", "affine")], "model 'affine' does not segment: it takes no picture"),
    ([IMAGE, RED, field("model", "bare")], "model 'bare' does not segment: "),
    ([field("image", b"GIF89a" + b"x" * 50), RED], "field 'image': found neither PNG nor JPEG"),
    ([field("image", picture(1)[:200]), RED], "field 'image': PNG: "),
    ([field("image", png(np.zeros((1, 1, 3)))[:16] + struct.pack(">II", 30000, 30000)
            + png(np.zeros((1, 1, 3)))[24:]), RED], "field 'image': "),
    ([field("image", picture(1), more="Content-Transfer-Encoding: base64\r\n"), RED],
     "a part's Content-Transfer-Encoding is 'base64', expected binary"),
    ([IMAGE, (b"Content-Disposition: attachment\r\n\r\n", b"x")], "'attachment', expected form-data"),
    ([IMAGE, (b"X: y\r\n\r\n", b"x")], "a part has no Content-Disposition"),
    ([IMAGE, (b"Content-Disposition: form-data; name=" + b"x" * 9000 + b"\r\n\r\n", b"x")],
     "the headers of a part do not end within 8192 bytes")])
def test_wrong_fields(server, fields, said):
    status, out = ask(server, *fields)
    message = out["error"]["message"]
    assert status == 400 and said in message and "\n" not in message, (status, message)
    assert ask(server, IMAGE, RED)[0] == 200


@pytest.mark.parametrize("body, kind, said", [
    (b"", None, "the body is of no Content-Type, expected multipart/form-data"),
    (b"{}", "application/json", "the body is application/json, expected multipart/form-data"),
    (b"x", "multipart/form-data", "a boundary of 0 characters, expected 1 to 70"),
    (b"x", "multipart/form-data; boundary=" + "x" * 71, "a boundary of 71 characters"),
    (b"", f"multipart/form-data; boundary={B}", "its boundary is nowhere in it"),
    (b"hello", f"multipart/form-data; boundary={B}", "its boundary is nowhere in it"),
    (form(IMAGE, RED, end="x"), f"multipart/form-data; boundary={B}",
     "a boundary is not followed by the end of its line"),
    (form(IMAGE, RED)[:200], f"multipart/form-data; boundary={B}", "the body is cut off"),
    (form(IMAGE, RED)[:60], f"multipart/form-data; boundary={B}", "the body is cut off in the headers of a part")])
def test_wrong_multipart(server, body, kind, said):
    status, _, data = server.ask("POST", "/v1/segment", body, {"Content-Type": kind} if kind else {})
    message = json.loads(data)["error"]["message"]
    assert status == 400 and said in message, message


def test_other_ways_to_write_it(server):
    """A preamble, spaces after the boundary, other fields of a part, quotes in a name, no quotes at all."""
    want = ask(server, IMAGE, RED)
    plain = (b"content-type: text/plain\r\nCONTENT-DISPOSITION: form-data; name=text\r\n\r\n", b"red")
    named = (b'Content-Disposition: form-data; filename="a \\"b\\" ; name=x"; name="image"\r\n\r\n', picture(1))
    body = form(named, plain, first="hello\r\n").replace(f"--{B}\r\n".encode(), f"--{B} \t\r\n".encode())
    status, out = ask(server, body=body, kind=f"Multipart/Form-Data; charset=utf-8; boundary={B}")
    assert status == 200 and out["images"][0]["file_name"] == 'a "b" ; name=x'
    assert out["annotations"] == want[1]["annotations"]


def test_too_many_pixels_are_not_decoded(server):
    """A PNG of 6000 x 6000 in 105 kB is refused by its head; memory stays."""
    rows = zlib.compress(b"\0" * (6000 * 18001), 9)
    head = png(np.zeros((1, 1, 3)))
    ihdr = struct.pack(">IIBBBBB", 6000, 6000, 8, 2, 0, 0, 0)
    image = head[:8] + b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d))
                                for k, d in ((b"IHDR", ihdr), (b"IDAT", rows), (b"IEND", b"")))
    before = server.resident()
    for _ in range(3):
        status, out = ask(server, field("image", image), RED)
        assert status == 400 and "6000 x 6000, at most 33554432 pixels are read" in out["error"]["message"]
    assert server.resident() - before < 50 << 20
    status, out = ask(server, field("image", b"x" * (1 << 21)), RED)
    assert status == 413


def test_loads_again_and_stops(tmp_path):
    """Requests go on while the model is loaded again; a picture's features are the new model's from then on."""
    with serving.serving(GROUND) as s:
        want = ask(s, IMAGE, RED)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(ask, s, IMAGE, RED) for _ in range(60)]
            assert s.post("/v2/repository/models/ground/load", {})[0] == 200
            assert all(a.result() == want for a in answers)
        looked, had = counted(s)
        assert ask(s, IMAGE, RED) == want and ask(s, IMAGE, RED) == want
        assert counted(s)[0] == looked + 2 and counted(s)[1] >= had + 1
        assert s.stop() == 0


def test_nothing_segments():
    with serving.serving(AFFINE) as s:
        status, out = ask(s, IMAGE, RED)
        assert status == 400 and "no model here segments" in out["error"]["message"]
        assert ask(s, IMAGE, RED, field("model", "ground"))[0] == 404


def test_deadline_and_log(server):
    status, out = ask(server, IMAGE, RED, headers={"Qkv-Timeout-Ms": "0"})
    assert status == 400 and "Qkv-Timeout-Ms" in out["error"]["message"]
    ask(server, IMAGE, RED, field("text", "green"))
    line = server.last_line("/v1/segment", 200)
    assert line["status"] == 200 and line["model"] == "ground" and line["items"] == 1
    assert server.metrics()['qkv_requests_total{model="ground",endpoint="segment",code="200"}'] > 1
