"""docs/SERVE.md: its commands and its Python run against a server, and what examples/serve names exists."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import serving
import test_serve_segment

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/SERVE.md").read_text()
pytestmark = pytest.mark.skipif(serving.missing() is not None, reason=serving.missing() or "")


@pytest.fixture(scope="module")
def url():
    with serving.serving(*(os.path.join(serving.MODELS, f"{n}.pt2") for n in ("words", "affine", "ground"))) as s:
        yield f"http://{s.url}"


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_commands(url, tmp_path):
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.S | re.M) for line in block.splitlines()]
    assert len(lines) >= 8
    (tmp_path / "street.png").write_bytes(test_serve_segment.picture(1))
    for line in lines:
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env={**os.environ, "URL": url}, capture_output=True,
                              text=True)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert done.stdout or "/load" in line or line.startswith("echo")


@pytest.mark.parametrize("client, said", [("openai", "2 10\n"), ("tritonclient.http", "[[10. 31. 48.]]\n")])
def test_clients(url, client, said):
    pytest.importorskip(client)
    block = next(b for b in re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M) if client.split(".")[0] in b)
    done = subprocess.run([sys.executable, "-c", block], env={**os.environ, "URL": url}, capture_output=True, text=True)
    assert done.stdout == said, done.stderr


def test_options_are_those_of_the_command():
    told = subprocess.run([serving.QKV, "help", "serve"], capture_output=True, text=True, check=True).stdout
    for option in set(re.findall(r"`?(--[a-z][a-z-]+)", PAGE)) - {"--skip-padding"}:
        assert option in told, option


def test_unit_is_understood():
    unit = (ROOT / "examples/serve/qkv-serve.service").read_text()
    told = subprocess.run([serving.QKV, "help", "serve"], capture_output=True, text=True, check=True).stdout
    command = re.search(r"^ExecStart=/usr/bin/qkv serve (.*)$", unit, re.M).group(1)
    assert all(o.split("=")[0] in told for o in command.split() if o.startswith("--"))
    assert "Type=notify" in unit and "ExecReload=/bin/kill -HUP" in unit


@pytest.mark.skipif(not shutil.which("systemd-analyze") or not shutil.which("man"), reason="needs systemd and man")
def test_systemd_verifies_the_unit(tmp_path):
    """With the program and the man page that are here; a misspelled setting is a finding."""
    unit, manual = (ROOT / "examples/serve/qkv-serve.service").read_text(), tmp_path / "man/man1"
    manual.mkdir(parents=True)
    shutil.copy(ROOT / "man/qkv-serve.1", manual)
    unit = unit.replace("/usr/bin/qkv", os.path.realpath(serving.QKV))
    for text, fine in ((unit, True), (unit.replace("MemoryMax=", "MemoryMaximum="), False)):
        (tmp_path / "qkv-serve.service").write_text(text)
        done = subprocess.run(["systemd-analyze", "verify", "./qkv-serve.service"], cwd=tmp_path, capture_output=True,
                              text=True, env={**os.environ, "MANPATH": str(tmp_path / "man")})
        assert (done.returncode == 0 and not done.stderr) == fine, done.stderr


def test_tells_the_service_manager(tmp_path):
    """Type=notify: READY=1 when it listens, STOPPING=1 when told to."""
    import socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(tmp_path / "notify"))
        s.settimeout(20)
        os.environ["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        try:
            server = serving.Server(os.path.join(serving.MODELS, "affine.pt2"))
        finally:
            del os.environ["NOTIFY_SOCKET"]
        assert s.recv(100) == b"READY=1"
        assert server.stop() == 0
        assert s.recv(100) == b"STOPPING=1"
