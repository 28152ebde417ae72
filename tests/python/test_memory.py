"""Models from bytes, file objects and archives."""
import io
import os
import zipfile

import numpy as np
import pytest
import qkv

DIGITS = os.path.join(os.path.dirname(__file__), "..", "..", "demo", "digits_vit.pt2")


@pytest.fixture(scope="module")
def model():
    return qkv.Model(DIGITS)


@pytest.mark.parametrize("ending", ["pt2", "onnx", "qkv"])
def test_memory(tmp_path, model, ending):
    path, image = str(tmp_path / f"m.{ending}"), np.random.default_rng(0).random((2, 1, 8, 8), np.float32)
    {"pt2": model.save, "onnx": model.save_onnx, "qkv": model.pack}[ending](path)
    expected = qkv.Model(path)(image)[0]
    data = open(path, "rb").read()
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as z:
        z.writestr("inner", data)
    stream = io.BytesIO()
    stream.write(data)  # and left at its end, as torch.export.save leaves it
    member = zipfile.ZipFile(written).open("inner")
    sources = [data, bytearray(data), memoryview(data), stream, open(path, "rb"), member]
    for source in sources:
        m = qkv.Model(source, threads=1)
        assert m.path is None and np.array_equal(m(image)[0], expected)
    m.rewrite()
    assert np.abs(m(image)[0] - expected).max() < 1e-5


def test_external_data(tmp_path, model):
    """Weights in a file of their own are not looked for in the working directory."""
    model.save_onnx(tmp_path / "m.onnx", external_data=True)
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        with pytest.raises(qkv.Error, match="a model in memory has no folder") as e:
            qkv.Model((tmp_path / "m.onnx").read_bytes())
    finally:
        os.chdir(before)
    assert e.value.code == 3


def test_refused(model):
    for source, message in ((b"", "memory"), (b"nonsense" * 9, "memory"), (5, "a model of type int: expected a path"),
                            (io.StringIO("text"), "a model of type str")):
        with pytest.raises(qkv.Error, match=message):
            qkv.Model(source)
    with pytest.raises(qkv.Error, match="cannot be sent"):
        qkv.Model(open(DIGITS, "rb")).__reduce__()
