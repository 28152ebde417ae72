"""Models kept packed in a folder, and what processes that share them hold."""
import json
import os
import re
import subprocess
import sys
import zlib

import numpy as np
import pytest
import qkv

from protobuf import field

HERE = os.path.dirname(__file__)
DIGITS = os.path.join(HERE, "..", "..", "demo", "digits_vit.pt2")
QKV = os.environ.get("QKV", os.path.join(HERE, "..", "..", "build", "qkv"))
IMAGE = np.random.default_rng(0).random((2, 1, 8, 8), np.float32)


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "a" / "cache")


def kept(folder):
    names = os.listdir(folder)
    assert all(n.endswith(".qkv") for n in names)
    return sorted(os.path.join(folder, n) for n in names)


def edited(path, old, new):
    """The file with one text of its description replaced, and the checksum of it right."""
    b = bytearray(open(path, "rb").read())
    assert b.count(old) == 1 and len(old) == len(new)
    b[:] = b.replace(old, new)
    u64 = lambda at: int.from_bytes(b[at:at + 8], "little")  # noqa: E731
    crc = zlib.crc32(b[u64(24):u64(24) + u64(32) + 1])
    b[72:76] = zlib.crc32(b[u64(40):u64(40) + u64(48) + 1], crc).to_bytes(4, "little")
    open(path, "wb").write(b)


def test_written_then_mapped(folder):
    plain = qkv.Model(DIGITS, threads=1)
    assert not plain.cached and plain.cache_note is None
    first, second = qkv.Model(DIGITS, cache=folder, threads=1), qkv.Model(DIGITS, cache=folder, threads=1)
    path, = kept(folder)
    assert first.cached and first.cache_note == f"{path}: written"
    assert second.cached and second.cache_note == f"{path}: mapped"
    assert np.array_equal(first(IMAGE)[0], plain(IMAGE)[0]) and np.array_equal(second(IMAGE)[0], plain(IMAGE)[0])
    assert second.inputs == plain.inputs and second.outputs == plain.outputs
    assert os.stat(folder).st_mode & 0o77 == 0


def test_a_file_for_each_set_of_options(folder, tmp_path):
    qkv.Model(DIGITS, cache=folder)
    qkv.Model(DIGITS, cache=folder, compute="bf16")
    assert len(kept(folder)) == 2
    other = tmp_path / "of_other_bytes.pt2"
    model = qkv.Model(DIGITS)
    model.save(other)
    qkv.Model(str(other), cache=folder)
    qkv.Model(open(DIGITS, "rb"), cache=folder)  # the same bytes
    assert len(kept(folder)) == 3
    model.save_onnx(tmp_path / "m.onnx", external_data=True)
    before = qkv.Model(str(tmp_path / "m.onnx"), cache=folder)(IMAGE)[0]
    data = bytearray((tmp_path / "m.onnx.data").read_bytes())
    data[:4096] = bytes(4096)
    (tmp_path / "m.onnx.data").write_bytes(data)
    after = qkv.Model(str(tmp_path / "m.onnx"), cache=folder)
    assert len(kept(folder)) == 5 and after.cached and not np.array_equal(after(IMAGE)[0], before)


@pytest.mark.parametrize("what, says", [
    ("version", "qkv 9.9.9 wrote it, this is"), ("cpu", "it is packed for nil, this CPU runs"),
    ("key", "it is of another model"), ("short", "its header says"), ("empty", "0 bytes are too few"),
    ("plain", "does not say which model"), ("folder", "it is a folder")])
def test_not_used(folder, what, says):
    expected = qkv.Model(DIGITS, cache=folder, threads=1)(IMAGE)[0]
    path, = kept(folder)
    level = os.path.basename(path).split("-")[1][:-len(".qkv")]
    if what == "version":
        edited(path, f'"qkv": "{qkv.version()}"'.encode(), b'"qkv": "9.9.9"')
    elif what == "cpu":
        edited(path, f'"cpu": "{level}"'.encode(), b'"cpu": "nil"'.ljust(len(level) + 9))
    elif what == "key":
        edited(path, b'"key": "' + os.path.basename(path)[:4].encode(), b'"key": "xxxx')
    elif what == "plain":
        qkv.Model(DIGITS).pack(path)
    elif what == "folder":
        os.unlink(path)
        os.mkdir(path)
    else:
        os.truncate(path, 5000 if what == "short" else 0)
    model = qkv.Model(DIGITS, cache=folder, threads=1)
    assert says in model.cache_note and np.array_equal(model(IMAGE)[0], expected)
    if what != "folder":  # which cannot be replaced
        assert model.cached and model.cache_note.startswith("not used: ") and "written again" in model.cache_note
        assert qkv.Model(DIGITS, cache=folder).cache_note == f"{path}: mapped"


def test_without_a_folder(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    model = qkv.Model(DIGITS, cache=file / "folder")
    assert not model.cached and model.cache_note.startswith("not kept: cannot make the folder")
    assert np.isfinite(model(IMAGE)[0]).all()
    with pytest.raises(qkv.Error, match="node by node") as e:
        qkv.Model(DIGITS, cache=tmp_path, fuse=False)
    assert e.value.code == 2
    with pytest.raises(qkv.Error, match="nowhere.pt2"):
        qkv.Model("nowhere.pt2", cache=tmp_path)


def command(*args, **env):
    return subprocess.run([QKV, *args], capture_output=True, text=True, env={**os.environ, **env}, timeout=120)


def test_command(folder, tmp_path):
    """--cache takes the user's folder, --cache=DIR another; what is to be known is said with -v."""
    for what in "written", "mapped":
        done = command("run", DIGITS, "--cache", "-v", XDG_CACHE_HOME=folder)
        path, = kept(folder + "/qkv/packed")
        assert done.returncode == 0 and f"cache {path}: {what}" in done.stderr
    done = command("run", DIGITS, f"--cache={tmp_path / 'c'}", "--json")
    assert done.returncode == 0 and "cache" not in done.stderr and json.loads(done.stdout)["model"] == DIGITS
    assert len(kept(tmp_path / "c")) == 1
    done = command("run", DIGITS, "--cache=/proc/nowhere")
    assert done.returncode == 0 and "warning: cache not kept: cannot make the folder '/proc/nowhere'" in done.stderr
    assert command("run", DIGITS, f"--cache={tmp_path / 'c'}", "-q").stderr == ""


# ---------------------------------------------------------------- what processes hold

HOLD = """
import sys
import numpy as np
import qkv
model = qkv.Model(sys.argv[1], threads=1, cache=sys.argv[2]) if sys.argv[1] else None
for _ in range(3):
    y = model(np.ones((4, 1024), np.float32))[0] if model else None
print(model.cache_note if model else "", flush=True)
sys.stdin.readline()
"""
LAYERS, SIZE = 8, 1024


def write_products(path):
    """An ONNX model of 32 MiB: x (4, 1024) times one matrix after the other."""
    rng, nodes, weights = np.random.default_rng(0), b"", b""
    for i in range(LAYERS):
        w = rng.standard_normal((SIZE, SIZE), np.float32) / 32
        weights += field(5, field(1, SIZE) + field(1, SIZE) + field(2, 1) + field(8, f"w{i}") + field(9, w.tobytes()))
        nodes += field(1, field(1, f"x{i}") + field(1, f"w{i}") + field(2, f"x{i + 1}") + field(4, "MatMul"))

    def value(name):
        shape = field(1, field(1, 4)) + field(1, field(1, SIZE))
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))
    graph = nodes + field(2, "g") + weights + field(11, value("x0")) + field(12, value(f"x{LAYERS}"))
    path.write_bytes(field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17)))


def started(n, *args):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return [subprocess.Popen([sys.executable, "-c", HOLD, *map(str, args)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, env=env) for _ in range(n)]


def held(n, *args):
    """MiB that n processes hold together (PSS) of .qkv files and of memory of their own, and what their caches did."""
    processes = started(n, *args)
    notes, packed, own = [p.stdout.readline().strip() for p in processes], 0, 0
    for p in processes:
        for entry in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", open(f"/proc/{p.pid}/smaps").read(), flags=re.M)[1:]:
            first, _, rest = entry.partition("\n")
            size = int(re.search(r"^Pss: +(\d+) kB$", rest, re.M)[1]) / 1024
            packed += size if first.endswith(".qkv") else 0
            own += 0 if "/" in first else size  # heap, stacks, anonymous memory: all but files
    for p in processes:
        p.communicate("\n", timeout=60)
        assert p.returncode == 0
    return packed, own, notes


@pytest.mark.turns
@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="the system does not tell")
def test_memory_of_four_processes(folder, tmp_path):
    """The weights of four are those of one, where each would hold 32 MiB of its own; and four that begin together
    write one file and map that."""
    write_products(tmp_path / "m.onnx")
    notes = held(4, tmp_path / "m.onnx", folder)[2]
    path, = kept(folder)
    assert sorted(notes) == [f"{path}: mapped"] * 3 + [f"{path}: written"]
    nothing, empty, _ = held(4, "", "")
    one, _, _ = held(1, tmp_path / "m.onnx", folder)
    four, own, notes = held(4, tmp_path / "m.onnx", folder)
    assert notes == [f"{path}: mapped"] * 4
    print(f"MiB of the file: one process {one:.1f}, four {four:.1f}; their own {own:.1f}, without a model {empty:.1f}")
    weights = LAYERS * SIZE * SIZE * 4 / 2**20
    assert nothing == 0 and weights < four < 1.02 * one < 1.2 * weights
    assert own - empty < 4 * 4  # graph, plan and activations; a copy of the weights would be 4 x 32


def test_portable_bits():
    """The same bits on two levels; without the keyword bfloat16 is each level's own."""
    code = ("import hashlib, sys, numpy as np, qkv\n"
            "x = np.random.default_rng(0).random((2, 1, 8, 8), np.float32)\n"
            "model = qkv.Model(sys.argv[1], compute='bf16', portable_bits=True)\n"
            "print(hashlib.sha256(np.ascontiguousarray(model.run(x)[0])).hexdigest())\n")
    seen = set()
    for level in ("gen", "amx"):
        env = {**os.environ, "QKV_CPU": level, "PYTHONPATH": os.pathsep.join(sys.path)}
        seen.add(subprocess.check_output([sys.executable, "-c", code, DIGITS], env=env, text=True))
    assert len(seen) == 1 and seen.pop().strip()
