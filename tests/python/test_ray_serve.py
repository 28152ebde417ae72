"""qkv.serve_app: two replicas of Ray Serve on one machine, each with its own `qkv serve`; and the example.

Not a part of the usual tests: `pip install 'ray[serve]'` into an environment and run it with that Python."""
import asyncio
import base64
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import signal
import socket
import sys
import tempfile
import time
import urllib.request
import uuid

import numpy as np
import pytest

import serving
from serving import MODELS, QKV

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import qkv  # noqa: E402
from qkv import _serve  # noqa: E402

pytestmark = pytest.mark.skipif(serving.missing() is not None, reason=serving.missing() or "")
WORDS, EAGER = (os.path.abspath(os.path.join(MODELS, f"{n}.pt2")) for n in ("words", "eager"))


# ------------------------------------------------------------------ without Ray: what a replica does

def test_passes_requests_on():
    async def run():
        s = _serve.Server([WORDS], os.path.abspath(QKV))
        try:
            body = json.dumps({"model": "words", "input": "a cat"}).encode()
            many = await asyncio.gather(*(s.ask("POST", "/v1/embeddings", [("Host", "else"), ("Content-Length", "7")],
                                                body) for _ in range(40)))
            assert {status for status, _, _ in many} == {200} and len({data for _, _, data in many}) == 1
            links = len(s.idle)
            assert 1 <= links <= 40
            status, headers, data = await s.ask("POST", "/v1/embeddings", [], b"{")
            assert status == 400 and b"error" in data and len(s.idle) == links
            assert (await s.ask("HEAD", "/health", [], b""))[0::2] == (200, b"")
            s.process.kill()  # it is started again
            s.process.wait()
            assert (await s.ask("POST", "/v1/embeddings", [], body))[2] == many[0][2]
            assert s.runs()
        finally:
            s.stop()
        assert s.process.returncode == 0
    asyncio.run(run())


def test_says_why_it_does_not_start():
    async def run():
        with pytest.raises(qkv.Error, match="did not start: .*no-such.pt2"):
            _serve.Server(["no-such.pt2"], os.path.abspath(QKV))
        with pytest.raises(qkv.Error, match="there is no program '/no/qkv'"):
            _serve.Server([WORDS], "/no/qkv")
    asyncio.run(run())


# ------------------------------------------------------------------ with it

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def url():
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_memory_monitor_refresh_ms="0", RAY_AUTH_MODE="token",
                      RAY_AUTH_TOKEN=uuid.uuid4().hex)
    pytest.importorskip("ray.serve", reason="pip install 'ray[serve]'")
    import ray
    from ray import serve
    port = free_port()
    with pytest.MonkeyPatch.context() as env, tempfile.TemporaryDirectory(prefix="qkv-ray-",
                                                                          ignore_cleanup_errors=True) as folder:
        env.setenv("PYTHONPATH", str(ROOT / "python"))
        env.setenv("QKV_LIBRARY", qkv.library_path())
        env.setenv("QKV", os.path.abspath(QKV))
        ray.init(address="local", num_cpus=4, include_dashboard=False, object_store_memory=100 << 20,
                 log_to_driver=False, _node_ip_address="127.0.0.1", _temp_dir=folder)
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(qkv.serve_app(WORDS, f"e={EAGER}", replicas=2, cpus=1), route_prefix="/qkv")
        yield f"http://127.0.0.1:{port}/qkv"
        serve.shutdown()
        ray.shutdown()


def ask(url, path, body=None, **headers):
    """(status, headers, bytes)"""
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, r.headers, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


def test_two_replicas_answer_as_one_server(url):
    texts = [" ".join(["a", "cat", "sits", "rain"][:1 + i % 4]) for i in range(200)]
    with serving.serving(WORDS) as s:
        want = {t: s.post("/v1/embeddings", {"model": "words", "input": t, "encoding_format": "base64"})[1]["data"]
                for t in set(texts)}

    def one(text):
        status, headers, data = ask(url, "/v1/embeddings", {"model": "words", "input": text,
                                                            "encoding_format": "base64"})
        return status, headers["Qkv-Replica"], json.loads(data)["data"]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(one, texts))
    assert {status for status, _, _ in got} == {200}
    assert len({replica for _, replica, _ in got}) == 2
    for text, (_, _, data) in zip(texts, got):
        a, b = (np.frombuffer(base64.b64decode(d[0]["embedding"]), np.float32) for d in (data, want[text]))
        assert np.abs(a - b).max() < 1e-6


def test_binary_tensors_and_refusals_pass_through(url):
    x, mask = np.random.default_rng(0).random((1, 5, 8), np.float32), np.ones((1, 5), bool)
    head = json.dumps({"inputs": [{"name": n, "shape": list(a.shape), "datatype": d,
                                   "parameters": {"binary_data_size": a.nbytes}}
                                  for n, a, d in (("x", x, "FP32"), ("mask", mask, "BOOL"))],
                       "parameters": {"binary_data_output": True}}).encode()
    status, headers, data = ask(url, "/v2/models/e/infer", head + x.tobytes() + mask.tobytes(),
                                **{"Inference-Header-Content-Length": str(len(head))})
    assert status == 200, data
    out = np.frombuffer(data[int(headers["Inference-Header-Content-Length"]):], np.float32)
    want = next(iter(qkv.Model(EAGER).run({"x": x, "mask": mask}).values()))
    np.testing.assert_allclose(out, np.asarray(want).ravel(), rtol=0, atol=1e-5)
    status, _, data = ask(url, "/v2/models/none/infer", b"{}")
    assert status == 404 and json.loads(data) == {"error": "no model is called 'none'"}
    assert ask(url, "/v2/health/ready")[0] == 200


def test_a_server_that_died_comes_back(url):
    pid = int(ask(url, "/v2/health/ready")[1]["Qkv-Replica"])
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    answers = [ask(url, "/v1/embeddings", {"model": "words", "input": "a cat"}) for _ in range(40)]
    assert [status for status, _, _ in answers] == [200] * 40
    assert str(pid) not in {headers["Qkv-Replica"] for _, headers, _ in answers}


def test_example(url):
    spec = importlib.util.spec_from_file_location("ray_serve", ROOT / "examples" / "ray_serve.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    found = example.main(WORDS, route="/example", port=int(url.rsplit(":", 1)[1].split("/")[0]))
    assert sorted(found) == ["a cat", "rain falls"] and all(len(e) == 8 for e in found.values())
