"""The command under limits of its process: one sentence, the right exit code, nothing half-written."""
import os
import pathlib
import resource
import signal
import subprocess
import time

import pytest

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU])
@pytest.mark.parametrize("words", [
    ("rewrite", MODEL, "--prove", "--seeds", "1000", "-o", "out.pt2"),
    ("bench", MODEL, "--iterations", "1000000"),
    ("generalize", str(HERE.parent / "cli" / "models" / "static_a.pt2"),
     str(HERE.parent / "cli" / "models" / "static_b.pt2"), "-o", "out.pt2"),
], ids=lambda w: w[0])
def test_signals_leave_nothing_behind(tmp_path, words, number):
    for delay in (0.0, 0.01, 0.03, 0.1):
        with subprocess.Popen([QKV, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)) as p:  # nohup ignores some
            time.sleep(delay)
            p.send_signal(number)
            p.communicate(timeout=60)
        assert p.returncode in (0, -number, 128 + number), (delay, p.returncode)  # ended, before it listened, or by it
        assert not list(tmp_path.glob(".*"))
