"""The command under limits of its process: one sentence, the right exit code, nothing half-written."""
import os
import pathlib
import re
import resource
import signal
import struct
import subprocess
import time

import pytest

from protobuf import field

HERE = pathlib.Path(__file__).resolve().parent
QKV = os.environ.get("QKV", str(HERE.parents[1] / "build" / "qkv"))
MODELS = HERE.parent / "models" / "small"
MODEL = str(MODELS / "encoder_prenorm_gelu.pt2")
LOADER = 127  # ld.so itself could not map a library


def libraries_failed(done):
    """Of qkv --version, before main: a library was not mapped, or a constructor of one (oneDNN's, GnuTLS's, which
    libmicrohttpd brings) found no memory."""
    return done.returncode in (LOADER, -signal.SIGSEGV) or (
        done.returncode == -signal.SIGABRT and "std::bad_alloc" in done.stderr)


def qkv(folder, *words, limits=(), threads=1):
    def limit():
        for what, value in limits:
            resource.setrlimit(what, (value, value))
    return subprocess.run([QKV, *words], cwd=folder, capture_output=True, text=True, timeout=60, preexec_fn=limit,
                          env={**os.environ, "OMP_NUM_THREADS": str(threads)})


@pytest.mark.parametrize("size", [0, 100, 4096])
@pytest.mark.parametrize("words", [
    ("convert", "-o", "out.onnx"), ("rewrite", "-o", "out.pt2"), ("pack", "-o", "out.qkv"),
    ("run", "-q", "-o", "out.npz"),
], ids=lambda w: w[0])
def test_a_limit_on_files_is_a_write_that_fails(tmp_path, words, size):
    done = qkv(tmp_path, words[0], MODEL, *words[1:], limits=[(resource.RLIMIT_FSIZE, size)])
    if done.returncode == 0:
        assert (tmp_path / words[-1]).stat().st_size <= size
        return
    assert done.returncode == 3 and "File too large" in done.stderr
    assert not list(tmp_path.iterdir())


def test_memory_that_the_system_refuses_is_a_limit(tmp_path):
    """From too little for the libraries to enough: never a crash, and never called the file's fault."""
    seen = set()
    for megabytes in range(8, 240, 4):
        limits = [(resource.RLIMIT_AS, megabytes << 20)]
        if libraries_failed(qkv(tmp_path, "--version", limits=limits)):
            continue
        for words in (("run", MODEL, "-q"), ("rewrite", MODEL, "--prove"), ("convert", MODEL, "-o", "out.onnx")):
            done = qkv(tmp_path, *words, limits=limits)
            assert done.returncode in (0, 5), (megabytes, words, done)
            assert done.returncode != 5 or "emory" in done.stderr, done.stderr
            seen.add(done.returncode)
        if done.returncode == 0:
            break
    assert 0 in seen and not list(tmp_path.glob(".*"))


def test_few_descriptors(tmp_path):
    for n in range(3, 10):
        done = qkv(tmp_path, "convert", MODEL, "-o", "out.onnx", limits=[(resource.RLIMIT_NOFILE, n)])
        assert done.returncode in (0, 3, LOADER), done
        assert done.returncode != 3 or "Too many open files" in done.stderr
        assert not list(tmp_path.glob(".*"))
    assert done.returncode == 0


def test_small_stacks(tmp_path):
    limits = [(resource.RLIMIT_STACK, 256 << 10)]
    three = ("run", MODEL, "-q", "--threads", "3")
    for words in (three, ("rewrite", MODEL, "--prove"), ("convert", MODEL, "-o", "o.onnx")):
        done = qkv(tmp_path, *words, limits=limits, threads=3)
        assert done.returncode == 0, done


@pytest.mark.parametrize("kilobytes", [32, 64, 128])
def test_less_stack_than_a_model_takes(tmp_path, kilobytes):
    done = qkv(tmp_path, "rewrite", MODEL, "--prove", limits=[(resource.RLIMIT_STACK, kilobytes << 10)])
    assert done.returncode == 5 and f"the stack is limited to {kilobytes} KiB" in done.stderr, done


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU])
@pytest.mark.parametrize("words", [
    ("rewrite", MODEL, "--prove", "--seeds", "1000", "-o", "out.pt2"),
    ("rewrite", MODEL, "-o", "out.pt2", "--certify", "out.json"),
    ("bench", MODEL, "--iterations", "1000000"),
    ("generalize", str(HERE.parent / "cli" / "models" / "static_a.pt2"),
     str(HERE.parent / "cli" / "models" / "static_b.pt2"), "-o", "out.pt2"),
    ("quantize", MODEL, "-o", "out.onnx"), ("pack", MODEL, "-o", "out.qkv"),
    ("--sandbox", "convert", MODEL, "-o", "out.onnx"),
], ids=lambda w: w[0])
def test_signals_leave_nothing_behind(tmp_path, words, number):
    for delay in (0.0, 0.01, 0.03, 0.1):
        with subprocess.Popen([QKV, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)) as p:  # nohup ignores some
            time.sleep(delay)
            p.send_signal(number)
            p.communicate(timeout=60)
        assert p.returncode in (0, -number, 128 + number), (delay, p.returncode)  # ended, before it listened, or by it
        wait_for(lambda: not list(tmp_path.glob(".*")))  # whoever makes a sandbox's outputs ends a moment later


def test_a_certificate_touches_no_file_beside_its_model(tmp_path):
    """What is written to be read again has a name of its own: a link with a name that can be guessed leads nowhere."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in ("out.pt2.uncertified", "out.pt2.uncertified.data"):
        (tmp_path / name).symlink_to(mine)
    done = qkv(tmp_path, "rewrite", MODEL, "-o", "out.pt2", "--certify", "out.json")
    assert done.returncode == 0 and mine.read_text() == "mine", done
    assert len(list(tmp_path.iterdir())) == 5


def wait_for(true):
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_file_that_shrinks_while_it_is_mapped_is_named(tmp_path):
    model = tmp_path / "m\x1b.pt2"
    model.write_bytes(pathlib.Path(MODEL).read_bytes())
    words = ["bench", str(model), "--no-optimize", "--iterations", "1000000"]
    with subprocess.Popen([QKV, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as p:
        maps = pathlib.Path(f"/proc/{p.pid}/maps")
        wait_for(lambda: ".pt2" in maps.read_text())
        os.truncate(model, 0)
        said = p.communicate(timeout=60)[1]
    assert p.returncode == 3 and f"{tmp_path}/m?.pt2 changed while it was being read".encode() in said, said


def onnx_tensor(name, dtype, dims, data):
    return b"".join(field(1, d) for d in dims) + field(2, dtype) + field(8, name) + field(9, data)


def onnx_value(name):
    dims = field(1, field(2, "n")) + field(1, field(1, 3))
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))


def onnx_node(op, inputs, output):
    return b"".join(field(1, x) for x in inputs) + field(2, output) + field(4, op)


def small_and_huge(path, *nodes):
    """y of x [n, 3], by nodes that have w, three floats, and s, a shape of 2**30 by 3, to expand it to."""
    graph = [field(1, onnx_node(*n)) for n in nodes] + [
        field(5, onnx_tensor("w", 1, [3], struct.pack("<3f", 1, 2, 3))),
        field(5, onnx_tensor("s", 7, [2], struct.pack("<2q", 1 << 30, 3))),
        field(11, onnx_value("x")), field(12, onnx_value("y"))]
    path.write_bytes(field(1, 10) + field(7, field(2, "g") + b"".join(graph)) + field(8, field(2, 21)))
    return str(path)


def test_a_limit_holds_for_all_that_a_command_does(tmp_path):
    """Files of 200 bytes whose constants have 12 GB, or whose output looks as large: below 2 GB, in little time."""
    folded = small_and_huge(tmp_path / "folded.onnx", ("Expand", "ws", "e"), ("Relu", "e", "r"),
                            ("ReduceSum", "r", "q"), ("Add", "xq", "y"))
    looks = small_and_huge(tmp_path / "looks.onnx", ("Expand", "ws", "y"))
    limits = [(resource.RLIMIT_AS, 2 << 30), (resource.RLIMIT_CPU, 5)]
    for words, code in {("run",): 5, ("bench",): 5, ("report", "-o", "r.html"): 5, ("verify", folded): 5,
                        ("prove", folded): 5, ("pack", "-o", "p.qkv"): 5, ("compare", folded, "-o", "c.html"): 5,
                        ("rewrite", "--prove", "-o", "r.pt2"): 0, ("convert", "-o", "c.onnx"): 0, ("inspect",): 0,
                        ("check", "--full"): 0, ("graph",): 0}.items():
        done = qkv(tmp_path, words[0], folded, *words[1:], "--memory-limit", "64M", limits=limits)
        assert done.returncode == code, (words, done)
        assert not code or "limit is" in done.stderr, (words, done)
    done = qkv(tmp_path, "prove", folded, folded, "--memory-limit", "64M", limits=limits)
    assert "--memory-limit is 64.0 MiB, and 64.0 MiB beside it for reading" in done.stderr, done
    done = qkv(tmp_path, "pack", folded, "-o", "p.qkv", limits=limits)  # without the option, too
    assert done.returncode == 5 and "the limit is" in done.stderr, done
    done = qkv(tmp_path, "run", looks, "--memory-limit", "64M", limits=limits)
    assert done.returncode == 5 and "output 'y' has 12884901888 bytes" in done.stderr, done
    done = qkv(tmp_path, "run", looks, "-q", limits=limits)
    assert done.returncode == 0 and "(1073741824, 3)    1    3     2" in done.stdout, done
    for words in (("verify", looks, looks), ("prove", "--float", looks, looks),
                  ("compare", looks, looks, "-o", "c.html")):
        done = qkv(tmp_path, *words, limits=limits)  # minutes, or days where it looks larger
        assert done.returncode == 5 and "3221225472 elements, which repeat a few, are too many" in done.stderr, done


def test_out_of_memory_says_what_for(tmp_path):
    """Without --memory-limit: 12 GB and more than the machine has, refused before anything is touched."""
    looks = small_and_huge(tmp_path / "looks.onnx", ("Expand", "ws", "y"))
    folded = small_and_huge(tmp_path / "folded.onnx", ("Expand", "ws", "e"), ("Relu", "e", "y"))
    runs = small_and_huge(tmp_path / "runs.onnx", ("ReduceSum", "x", "q"), ("Expand", "qs", "e"), ("Relu", "e", "y"))
    limits = [(resource.RLIMIT_AS, 2 << 30)]
    for words, says in ((("run", looks, "-o", "o.npz"), "tensor 'y' is written out with all 3221225472 elements: "
                         "out of memory: 12884901889 bytes were asked for"),
                        (("run", folded), "node 'y': out of memory: 12884901888 bytes, computed of constants"),
                        (("bench", runs, "--predict"), "out of memory: these sizes need 12884901952 bytes")):
        done = qkv(tmp_path, *words, limits=limits)
        assert done.returncode == 5 and says in done.stderr, (words, done)
    assert len(list(tmp_path.iterdir())) == 3
    model = pathlib.Path(runs).read_bytes().replace(struct.pack("<q", 1 << 30), struct.pack("<q", 1 << 40))
    (tmp_path / "runs.onnx").write_bytes(model)
    done = qkv(tmp_path, "run", runs)  # not ended by the system when it is touched
    assert done.returncode == 5 and "these sizes need 13194139533376 bytes" in done.stderr, done


def memory_of(name):
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def test_random_inputs_take_what_the_machine_has_left(tmp_path):
    """Refused before a byte is written, with the sizes that may be smaller; two inputs count together."""
    one = small_and_huge(tmp_path / "one.onnx", ("Relu", "x", "y"))
    two = small_and_huge(tmp_path / "two.onnx", ("Add", "xz", "y"))
    two_inputs = pathlib.Path(two).read_bytes()
    graph = two_inputs[two_inputs.index(b"\x12\x01g"):-len(field(8, field(2, 21)))] + field(11, onnx_value("z"))
    pathlib.Path(two).write_bytes(field(1, 10) + field(7, graph) + field(8, field(2, 21)))
    left, swap = memory_of("MemAvailable"), memory_of("SwapFree")
    for model, rows, largest in ((one, (left + swap) // 12 + (64 << 20), "x"), (two, (left + swap) // 18, "z")):
        for command in ("run", "bench"):
            done = qkv(tmp_path, command, model, "-D", f"n={rows}", limits=[(resource.RLIMIT_AS, 2 << 30)])
            assert done.returncode == 5 and re.search(
                rf"input '{largest}': out of memory: {12 * rows} bytes of random numbers, and \d+ are left; "
                rf"smaller with -D n=N \(now {rows}, at least [01]\)$", done.stderr), done
    done = qkv(tmp_path, "run", one, "-D", "n=30000000", limits=[(resource.RLIMIT_AS, 300 << 20)])
    assert done.returncode == 5 and "of random numbers; smaller with -D n=N" in done.stderr, done


def test_a_picture_whose_edges_pass_one_layer(tmp_path):
    """19 nodes that read the same 3,000: 57,000 points in a row, in another order for every other node."""
    nodes = [("Relu", "x", "c0"), ("Relu", ("c0",), "c1")] + [("Relu", "x", f"r{i}") for i in range(3000)]
    axis = field(5, field(1, "axis") + field(3, 0) + field(20, 2))
    graph = [field(1, onnx_node(*n)) for n in nodes]
    for k in range(19):
        read = [f"r{i * 1009 % 3000 if k % 2 else i}" for i in range(3000)] + ["c1"]
        graph += [field(1, onnx_node("Concat", read, f"y{k}") + axis), field(12, field(1, f"y{k}"))]
    path = tmp_path / "wide.onnx"
    path.write_bytes(field(1, 10) + field(7, field(2, "g") + b"".join(graph) + field(11, onnx_value("x"))) +
                     field(8, field(2, 21)))
    done = qkv(tmp_path, "graph", str(path), "-o", "wide.svg", limits=[(resource.RLIMIT_CPU, 2)])
    assert done.returncode == 0 and (tmp_path / "wide.svg").stat().st_size > 1 << 20, done
