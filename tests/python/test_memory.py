"""Models from bytes, file objects and archives."""
import io
import os
import subprocess
import sys
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


MANY_SIZES = """
import os, sys
import numpy as np
import qkv

m = qkv.Model(sys.argv[1], threads=1)


def run(n):
    y = m(np.full(n, 1, np.float32))[0]
    assert y.shape == (n,) and np.abs(y - 1 - np.float32(np.sin(np.float32(2)))).max() < 1e-6


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


run(1 << 22)
before = resident()
for k in range(28):  # 16 MiB each, 448 in all
    run((1 << 22) - k)
print(resident() - before)
for k in (0, 5, 27, 0):
    run((1 << 22) - k)
"""


@pytest.mark.turns
def test_constants_of_many_sizes(tmp_path):
    """What sizes and weights alone decide is kept for each of them, up to a limit; later it is computed again."""
    onnx = pytest.importorskip("onnx")
    h, numbers = onnx.helper, onnx.TensorProto
    nodes = [h.make_node("Shape", ["x"], ["n"]), h.make_node("Expand", ["w", "n"], ["e"]),
             h.make_node("Sin", ["e"], ["s"]), h.make_node("Add", ["x", "s"], ["y"])]
    ports = [h.make_tensor_value_info(name, numbers.FLOAT, ["n"]) for name in "xy"]
    graph = h.make_graph(nodes, "g", ports[:1], ports[1:], [h.make_tensor("w", numbers.FLOAT, [1], [2.0])])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20),  # what is freed goes back at once
           "PYTHONPATH": os.path.dirname(os.path.dirname(qkv.__file__))}
    done = subprocess.run([sys.executable, "-c", MANY_SIZES, tmp_path / "m.onnx"], env=env, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 200


def test_memory_limit(tmp_path, model):
    image = np.zeros((2, 1, 8, 8), np.float32)
    assert np.array_equal(qkv.Model(DIGITS, memory_limit=1 << 26)(image)[0], model(image)[0])
    small = qkv.Model(DIGITS, memory_limit=4096)
    with pytest.raises(qkv.Error, match="the limit is 4096") as e:
        small(image)
    assert e.value.code == 5


def test_memory_limit_of_constants(tmp_path):
    """A file of a hundred bytes whose constants take 2 GiB: the session is refused, with little memory taken."""
    onnx = pytest.importorskip("onnx")
    text = ('<ir_version: 10, opset_import: ["": 21]>\ng (int64[2] x) => (int64[2] y) '
            '<int64 a = {0}, int64 n = {268435456}, int64 d = {1}> '
            '{ r = Range (a, n, d) s = ReduceSum (r) y = Add (x, s) }')
    data = onnx.parser.parse_model(text).SerializeToString()
    with pytest.raises(qkv.Error, match="the limit is 1048576") as e:
        qkv.Model(data, memory_limit=1 << 20)(np.zeros(2, np.int64))
    assert e.value.code == 5


def test_constants_of_a_small_file_stay_nodes(tmp_path):
    """Three of 32 MiB in a file of 200 bytes: what is written does not hold them."""
    onnx = pytest.importorskip("onnx")
    text = ('<ir_version: 10, opset_import: ["": 21]>\ng (int64[1] x) => (int64[4194304] y) '
            '<int64 a = {0}, int64 n = {4194304}, int64 d = {1}> '
            '{ r = Range (a, n, d) s = Mul (r, r) t = Add (s, r) y = Add (x, t) }')
    model = qkv.Model(onnx.parser.parse_model(text).SerializeToString())
    for name, write in ("m.onnx", model.save_onnx), ("m.pt2", model.save):
        write(tmp_path / name)
        assert (tmp_path / name).stat().st_size < 1 << 20
        assert qkv.Model(tmp_path / name).run([np.int64([3])])[0][9] == 93
