"""qkv serve: protocols, limits, refusals, stopping and loading again, over real sockets."""
import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

import serving
from serving import MODELS, QKV, Server, tensor
from tolerance import tolerance

pytestmark = pytest.mark.skipif(serving.missing() is not None, reason=serving.missing() or "")

EAGER, AFFINE, WORDS, TWO = (os.path.join(MODELS, f"{n}.pt2") for n in ("eager", "affine", "words", "two"))


@pytest.fixture(scope="module")
def server():
    with serving.serving(EAGER, AFFINE, WORDS, f"pair={TWO}", "--max-body", "1M") as s:
        yield s


def affine(x):
    w, b = np.arange(12, dtype=np.float32).reshape(3, 4) / 4, np.array([0, 0.5, -1], np.float32)
    return np.maximum(x @ w.T + b, 0) * 2


def run_qkv(model, tmp_path, **inputs):
    np.savez(tmp_path / "in.npz", **inputs)
    subprocess.run([QKV, "run", model, "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz", "-q"], check=True,
                   capture_output=True)
    return dict(np.load(tmp_path / "out.npz"))


# ------------------------------------------------------------------ descriptions


def test_descriptions(server):
    assert server.get("/v2")[1]["name"] == "qkv" and "binary_tensor_data" in server.get("/v2")[1]["extensions"]
    assert server.get("/v2/health/live") == (200, {"live": True})
    assert server.get("/v2/health/ready") == (200, {"ready": True})
    assert server.get("/health") == (200, {"status": "ok"})
    assert server.get("/v2/models/pair/ready")[0] == server.get("/v2/models/pair/versions/1/ready")[0] == 200
    status, m = server.get("/v2/models/pair")
    assert status == 200 and m["name"] == "pair" and m["inputs"] == [
        {"name": "a", "datatype": "INT64", "shape": [-1, 3]}, {"name": "b", "datatype": "FP32", "shape": [-1, 3]}]
    assert [o["datatype"] for o in m["outputs"]] == ["FP32", "BOOL"]
    assert server.get("/v2/models/eager")[1]["parameters"]["batches"] == "without padding"
    assert m["parameters"]["batches"] == "equal sizes"
    names = ["eager", "affine", "words", "pair"]
    assert [m["name"] for m in server.post("/v2/repository/index", {})[1]] == names
    models = server.get("/v1/models")[1]
    assert models["object"] == "list" and [m["id"] for m in models["data"]] == names
    assert server.get("/v1/models/words")[1]["id"] == "words"


# ------------------------------------------------------------------ inference


def test_json_tensors(server):
    x = np.array([[1, 2, 3, 4], [0, -1, 2, 0.1]], np.float32)
    body = {"id": "seven", "inputs": [tensor("x", x, "FP32")]}
    body["inputs"][0]["data"] = x.tolist()  # nested, too
    status, out = server.post("/v2/models/affine/infer", body)
    assert status == 200 and out["id"] == "seven" and out["model_name"] == "affine"
    y = out["outputs"][0]
    assert y["name"] == "output_0" and y["shape"] == [2, 3] and y["datatype"] == "FP32"
    np.testing.assert_allclose(np.float32(y["data"]).reshape(2, 3), affine(x), rtol=1e-6)


def test_binary_tensors(server):
    a, b = np.array([[1, 2, 3]], np.int64), np.array([[0.5, 2, -9]], np.float32)
    head = json.dumps({"inputs": [tensor("b", b, "FP32", binary_data_size=12), tensor("a", a, "INT64")],
                       "outputs": [{"name": "output_1", "parameters": {"binary_data": True}},
                                   {"name": "output_0"}]}).encode()
    status, headers, data = server.ask("POST", "/v2/models/pair/versions/1/infer", head + b.tobytes(),
                                       {"Inference-Header-Content-Length": str(len(head))})
    n = int(headers["Inference-Header-Content-Length"])
    out = json.loads(data[:n])["outputs"]
    assert status == 200 and headers["Content-Type"] == "application/octet-stream"
    assert [o["name"] for o in out] == ["output_1", "output_0"]
    assert out[0]["parameters"] == {"binary_data_size": 3} and data[n:] == b"\1\0\1"
    assert out[1]["data"] == [1.5, 4, -6]


def test_lengths_share_runs_and_agree(server, tmp_path):
    rng = np.random.default_rng(0)

    def one(n):
        x = rng.standard_normal((1, n, 8)).astype(np.float32)
        mask = np.ones((1, n), bool)
        mask[0, n - n // 4:] = False
        want = run_qkv(EAGER, tmp_path, x=x, mask=mask)["output_0"]
        return x, mask, want
    cases = [one(n) for n in (2, 5, 16, 9, 3, 12)]
    before = server.metrics()

    def send(case):
        x, mask, want = case
        status, out = server.post("/v2/models/eager/infer",
                                  {"inputs": [tensor("x", x, "FP32"), tensor("mask", mask, "BOOL")]})
        got = np.float32(out["outputs"][0]["data"]).reshape(want.shape)
        real = mask[..., None] & np.ones_like(want, bool)
        return status, float(np.abs(got - want)[real].max() / np.abs(want).max())
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        results = list(pool.map(send, cases * 20))
    assert all(status == 200 and difference <= tolerance("PADDING")["f32"] for status, difference in results)
    after = server.metrics()
    ran = {k: after[k + '{model="eager"}'] - before[k + '{model="eager"}']
           for k in ("qkv_tokens_total", "qkv_padded_tokens_total", "qkv_batch_rows_count")}
    assert ran["qkv_tokens_total"] == 20 * sum(int(m.sum()) for _, m, _ in cases)
    assert ran["qkv_padded_tokens_total"] > ran["qkv_tokens_total"]
    assert ran["qkv_batch_rows_count"] <= 120
    assert 0 < after['qkv_padding_avoided_ratio{model="eager"}'] < 1


def test_packed_without_padding_shares_runs(tmp_path):
    """A .qkv of `qkv pack --skip-padding` holds no attention with a mask; its file still says which input that was."""
    packed = str(tmp_path / "eager.qkv")
    subprocess.run([QKV, "pack", EAGER, "-o", packed, "--skip-padding", "-q"], check=True, capture_output=True)
    rng = np.random.default_rng(1)
    x, mask = rng.standard_normal((1, 7, 8)).astype(np.float32), np.ones((1, 7), bool)
    want = run_qkv(EAGER, tmp_path, x=x, mask=mask)["output_0"]
    with serving.serving(packed) as s:
        assert s.get("/v2/models/eager")[1]["parameters"]["batches"] == "without padding"
        status, out = s.post("/v2/models/eager/infer",
                             {"inputs": [tensor("x", x, "FP32"), tensor("mask", mask, "BOOL")]})
        got = np.float32(out["outputs"][0]["data"]).reshape(want.shape)
        assert status == 200 and np.abs(got - want).max() <= tolerance("PADDING")["f32"] * np.abs(want).max()


def test_tritonclient(server):
    client = pytest.importorskip("tritonclient.http")
    x = np.array([[1, 2, 3, 4]], np.float32)
    with client.InferenceServerClient(server.url) as c:
        assert c.is_server_live() and c.is_server_ready() and c.is_model_ready("affine")
        assert c.get_server_metadata()["name"] == "qkv"
        assert c.get_model_metadata("affine")["inputs"][0]["datatype"] == "FP32"
        assert {m["name"] for m in c.get_model_repository_index()} >= {"affine", "pair"}
        c.load_model("affine")
        for binary in (True, False):
            i = client.InferInput("x", [1, 4], "FP32")
            i.set_data_from_numpy(x, binary_data=binary)
            r = c.infer("affine", [i], outputs=[client.InferRequestedOutput("output_0", binary_data=binary)],
                        request_id="9", priority=1, timeout=1000000)
            np.testing.assert_allclose(r.as_numpy("output_0"), affine(x), rtol=1e-6)
            assert r.get_response()["id"] == "9"
        i.set_data_from_numpy(x)
        np.testing.assert_allclose(c.infer("affine", [i]).as_numpy("output_0"), affine(x), rtol=1e-6)
        with pytest.raises(client.InferenceServerException, match="no input 'y'"):
            wrong = client.InferInput("y", [1, 4], "FP32")
            wrong.set_data_from_numpy(x)
            c.infer("affine", [wrong])


# ------------------------------------------------------------------ embeddings


def embeddings_of(texts, *more):
    out = subprocess.run([QKV, "embed", WORDS, "--vocab", os.path.join(MODELS, "vocab.txt"), "--json", *more, *texts],
                         capture_output=True, text=True, check=True).stdout
    out = json.loads(out)
    return np.float32(out["embeddings"]), out["tokens"]


def test_embeddings(server):
    texts = ["A cat sits.", "rain falls", "the dog"]
    want, tokens = embeddings_of(texts)
    status, out = server.post("/v1/embeddings", {"model": "words", "input": texts})
    assert status == 200 and out["object"] == "list" and out["model"] == "words"
    assert [d["index"] for d in out["data"]] == [0, 1, 2]
    np.testing.assert_allclose([d["embedding"] for d in out["data"]], want, atol=1e-6)
    assert out["usage"] == {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)}
    out = server.post("/v1/embeddings", {"model": "words", "input": texts[1], "encoding_format": "base64"})[1]
    got = np.frombuffer(base64.b64decode(out["data"][0]["embedding"]), np.float32)
    np.testing.assert_allclose(got, want[1], atol=1e-6)
    out = server.post("/v1/embeddings", {"model": "words", "input": texts, "dimensions": 4})[1]
    cut = want[:, :4] / np.maximum(np.linalg.norm(want[:, :4], axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose([d["embedding"] for d in out["data"]], cut, atol=1e-6)
    ids = server.post("/v1/embeddings", {"model": "words", "input": [[2, 5, 3], [2, 3]]})
    assert ids[0] == 200 and ids[1]["usage"]["prompt_tokens"] == 5
    assert server.post("/v1/embeddings", {"model": "words", "input": [2, 5, 3]})[1]["data"][0] == ids[1]["data"][0]


def test_openai_client(server):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://{server.url}/v1", api_key="none", max_retries=0)
    want, _ = embeddings_of(["A cat sits.", "rain falls"])
    for more in ({}, {"encoding_format": "float"}):  # without it the client asks for base64
        out = client.embeddings.create(model="words", input=["A cat sits.", "rain falls"], **more)
        np.testing.assert_allclose([d.embedding for d in out.data], want, atol=1e-6)
    assert len(client.embeddings.create(model="words", input="cat", dimensions=3).data[0].embedding) == 3
    assert "words" in [m.id for m in client.models.list()]
    with pytest.raises(openai.NotFoundError, match="no model is called 'gpt'"):
        client.embeddings.create(model="gpt", input="cat")
    with pytest.raises(openai.BadRequestError, match="takes no texts"):
        client.embeddings.create(model="affine", input="cat")


# ------------------------------------------------------------------ refusals


def infer(**change):
    return {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4], **change}]}


@pytest.mark.parametrize("body, said", [
    (b"", "empty"), (b"{", "unexpected"), (b"[]", "not a JSON object"), (b'{"inputs": 3}', "expected an array"),
    (b'{"inputs": []}', "input 'x' is missing"), (b"\xff\xfe", "the body"), (b"[" * 100000, "the body"),
    (infer(name="z"), "no input 'z'"), (infer(datatype="FP64"), "expected FP32"), (infer(datatype="nope"), "'nope'"),
    (infer(shape=[1, 3]), "4 values, its shape 3"), (infer(shape=[4]), "has 1 axes, expected 2"),
    (infer(shape=[1, -4]), "at least 0"), (infer(shape=[1, 1 << 62]), "input 'x'"),
    (infer(shape=[2, 2]), "2 along axis 1"), (infer(shape=[1, 4.5]), "not an integer"),
    (infer(data=[1, 2, "x", 4]), "value 2 is string"), (infer(data=[1, 2, None, 4]), "value 2 is null"),
    (infer(data={}), "expected an array"), (infer(shape=[0, 4], data=[]), "the batch is 0"),
    (infer(shape=[65, 4], data=[0] * 260), "1 to 64"),
    (infer(parameters={"binary_data_size": 16}), "0 bytes of binary data are left"),
    (infer(parameters={"binary_data_size": 1 << 40}), "its shape takes 16 bytes"),
    (infer(parameters={"binary_data_size": "16"}), "not an integer"),
    ({**infer(), "outputs": [{"name": "nope"}]}, "no output 'nope'"),
    ({**infer(), "outputs": [{"name": "output_0"}] * 2}, "asked for twice"),
    ({**infer(), "parameters": {"priority": 9}}, "priority"),
    ({"inputs": infer()["inputs"] * 2}, "given twice"),
])
def test_wrong_requests(server, body, said):
    status, out = server.post("/v2/models/affine/infer", body)
    assert status == 400 and list(out) == ["error"], out
    if isinstance(body, bytes):
        assert len(out["error"]) > 8
    else:
        assert said in out["error"]
    assert server.post("/v2/models/affine/infer", infer())[0] == 200


@pytest.mark.parametrize("body, said", [
    (b"{}", "'model'"), ({"model": "words"}, "'input'"), ({"model": "words", "input": []}, "0 texts"),
    ({"model": "words", "input": ""}, "empty text"), ({"model": "words", "input": ["a", 3]}, "input 1 is integer"),
    ({"model": "words", "input": ["a"] * 3000}, "3000 texts"), ({"model": 3, "input": "a"}, "expected a string"),
    ({"model": "words", "input": "a", "encoding_format": "hex"}, "'hex'"),
    ({"model": "words", "input": "a", "dimensions": 9}, "the model's embeddings have 8"),
    ({"model": "words", "input": "a", "dimensions": 0}, "above 0"),
    ({"model": "words", "input": [[-1]]}, "expected an id"), ({"model": "words", "input": [[5] * 17]}, "17 tokens"),
    ({"model": "words", "input": [[2, 999]]}, "999"),
])
def test_wrong_embeddings(server, body, said):
    status, out = server.post("/v1/embeddings", body)
    assert status == 400 and out["error"]["type"] == "invalid_request_error" and said in out["error"]["message"]


def test_wrong_http(server):
    assert server.get("/nothing")[0] == 404 and server.get("/v2/models/nix")[0] == 404
    assert server.get("/v2/models/affine/versions/2")[0] == 404
    assert server.ask("GET", "/v2/models/affine/infer")[0] == 405 and server.ask("PUT", "/health", b"")[0] == 405
    assert server.ask("POST", "/v2/models/affine/infer", b"x" * (1 << 20) + b"x")[0] == 413
    assert server.ask("POST", "/v2/models/affine/infer", b"{}", {"Content-Encoding": "gzip"})[0] == 415
    assert server.ask("POST", "/v2/models/affine/infer", b"{}", {"Inference-Header-Content-Length": "99"})[0] == 400
    assert server.ask("POST", "/v2/models/affine/infer", b"{}", {"Inference-Header-Content-Length": "-1"})[0] == 400
    assert server.ask("POST", "/v2/models/affine/infer", infer(), {"Qkv-Priority": "high"})[0] == 400
    wishes = {"Qkv-Priority": "1", "Qkv-Timeout-Ms": "9000"}
    assert server.ask("POST", "/v2/models/affine/infer", infer(), wishes)[0] == 200
    head = b"POST /v2/models/affine/infer HTTP/1.1\r\nHost: x\r\n"
    assert b" 413 " in server.raw(head + b"Content-Length: 99999999999\r\n\r\n").split(b"\r\n")[0]
    for wrong in (b"Content-Length: 99999999999999999999999999\r\n", b"Content-Length: x\r\n",
                  b"Content-Length: -5\r\n",
                  b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                  b"Content-Length: 5\r\nContent-Length: 2\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
                  b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                  b"a" * 40000 + b": b\r\n", b"no colon\r\n"):
        line = server.raw(head + wrong + b"\r\n12345").split(b"\r\n")[0]
        assert line == b"" or b" 4" in line, (wrong[:40], line)
    for wrong in (b"\r\n\r\n\r\n", b"\0\1\2\3" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                  b"\x16\x03\x01\x02\x00"):
        server.raw(wrong, half=True)
    for path in (b"/v2\0x", b"/v2\0", b"/v2/models/affine\0/infer", b"/v2?a=\0b", b"\0"):
        line = server.raw(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n", half=True).split(b"\r\n")[0]
        assert b" 400 " in line, (path, line)
    assert b" 404 " in server.raw(b"GET /v2%00/models/affine HTTP/1.1\r\nHost: x\r\n\r\n").split(b"\r\n")[0]
    answer = server.raw(b"GET /v2/models/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n")
    assert json.loads(answer.split(b"\r\n\r\n")[1])["error"] == "no model is called '\ufffd\ufffd'"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    body = json.dumps(infer()).encode()
    assert b" 200 " in server.raw(chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)).split(b"\r\n")[0]
    piece = b"%x\r\n%s\r\n" % (1 << 16, b"x" * (1 << 16))
    assert b" 413 " in server.raw(chunked + piece * 20 + b"0\r\n\r\n").split(b"\r\n")[0]
    assert server.raw(head + b"Content-Length: 500\r\n\r\n{", half=True) == b""  # its body never comes
    assert server.get("/health")[0] == 200


def test_keeps_connections(server):
    c = server.connect()
    for path, want in (("/health", 200), ("/nothing", 404), ("/v2/models/nix", 404), ("/health", 200)):
        c.request("GET", path)
        r = c.getresponse()
        r.read()
        assert r.status == want and not r.will_close
    c.close()


def test_log(server):
    server.post("/v2/models/affine/infer", infer())
    server.get("/nothing")
    line = server.last_line("/v2/models/affine/infer", 200)
    assert line["status"] == 200 and line["model"] == "affine" and line["peer"] == "127.0.0.1" and line["run_ms"] > 0
    assert "nothing" in server.last_line("/nothing", 404)["error"]


def test_a_log_that_is_not_read_stops_nothing():
    r, w = os.pipe()
    command = [QKV, "serve", AFFINE, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=w) as p, contextlib.ExitStack() as at_end:
        at_end.callback(p.kill)
        said = b""
        while b"listening" not in said:
            said += os.read(r, 4096)
        port = int(re.search(rb"127\.0\.0\.1:(\d+)", said).group(1))
        for k in range(40):  # of 3 KB each, and a pipe takes 64
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            c.request("GET", "/" + "x" * (3000 if k < 38 else 9000))
            assert c.getresponse().status == 404
            c.close()
        os.set_blocking(r, False)
        said = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                said += os.read(r, 1 << 16)
        c.request("GET", "/" + "y" * 9000)
        assert c.getresponse().status == 404
        os.set_blocking(r, True)
        while b"/yyy" not in said or not said.endswith(b"\n"):
            said += os.read(r, 1 << 16)
        lines = list(map(json.loads, said.splitlines()))
        assert sum(x.get("lost", 0) for x in lines) > 10  # told by this line or, where that was late, by the 40th's
        line = next(x for x in lines if x.get("path", "").startswith("/yyy"))  # the 40th's may also come after it
        assert len(line["path"]) < 200
        p.terminate()
        os.close(w)
        assert p.wait(20) == 0
    os.close(r)


def test_metrics_are_well_formed(server):
    server.post("/v2/models/affine/infer", infer())
    text = server.ask("GET", "/metrics")[2].decode()
    kinds = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, value = line.split("{")[0].split(" ")[0], line.rsplit(" ", 1)[1]
        base = next((name[:-len(s)] for s in ("_bucket", "_sum", "_count") if name.endswith(s) and
                     name[:-len(s)] in kinds), name)
        assert base in kinds and float(value) >= 0
        assert name == base or kinds[base] == "histogram"
    m = server.metrics()
    assert m['qkv_requests_total{model="affine",endpoint="infer",code="200"}'] >= 1
    buckets = [v for k, v in m.items() if k.startswith('qkv_compute_seconds_bucket{model="affine"')]
    assert buckets == sorted(buckets) and buckets[-1] == m['qkv_compute_seconds_count{model="affine"}']


# ------------------------------------------------------------------ limits


def test_token_and_unix_socket(tmp_path):
    token, path = tmp_path / "token", tmp_path / "s.sock"
    token.write_text("secret\n")
    with serving.serving(AFFINE, "--unix", path, "--token", f"@{token}") as s:
        assert s.get("/health")[0] == s.get("/v2/health/live")[0] == 200
        for wrong in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "Bearer secrets"},
                      {"Authorization": "Basic secret"}, {"Authorization": "secret"}):
            status, headers, _ = s.ask("GET", "/v2", headers=wrong)
            assert status == 401 and headers["WWW-Authenticate"] == "Bearer"
        assert s.get("/v2", {"Authorization": "Bearer secret"})[0] == 200
        with socket.socket(socket.AF_UNIX) as u:
            u.connect(str(path))
            u.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert u.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert oct(path.stat().st_mode & 0o777) == "0o660"
        second = subprocess.run([QKV, "serve", AFFINE, "--unix", path], capture_output=True, text=True)
        assert second.returncode == 2 and "another server listens" in second.stderr
    assert not path.exists()


def test_command_line(tmp_path):
    def fails(*args):
        done = subprocess.run([QKV, "serve", *map(str, args)], capture_output=True, text=True, timeout=20)
        return done.returncode, done.stderr
    assert fails(AFFINE, AFFINE)[1].startswith("qkv: error: two models are called 'affine'")
    assert fails(AFFINE, "--pool", "max")[0] == 2
    assert fails(AFFINE, "--http", "nowhere")[0] == 2 and fails(AFFINE, "--http", "127.0.0.1:999999")[0] == 2
    assert fails(tmp_path / "none.pt2")[0] == 3
    assert fails(AFFINE, "--token", f"@{tmp_path}/none")[0] == 3
    assert fails(AFFINE, "--tokenizer", f"other={tmp_path}/vocab.txt")[0] == 2
    (tmp_path / "file").write_text("")
    assert "not a socket" in fails(AFFINE, "--unix", tmp_path / "file")[1]


def slow_args():
    """Requests of `words` wait for company for two seconds: there is something to fill, cancel and stop."""
    return WORDS, AFFINE, "--max-delay-ms", "2000"


WORD = {"model": "words", "input": "a cat"}


def test_queue_is_bounded():
    with serving.serving(*slow_args(), "--max-queue", "2") as s:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(s.post, "/v1/embeddings", WORD) for _ in range(2)]
            time.sleep(0.3)
            status, headers, data = s.ask("POST", "/v1/embeddings", WORD)
            assert status == 429 and int(headers["Retry-After"]) >= 1
            assert json.loads(data)["error"]["type"] == "rate_limit_error"
            assert s.metrics()['qkv_queue_length{model="words"}'] == 2
            assert [w.result()[0] for w in waiting] == [200, 200]
        assert s.post("/v1/embeddings", {"model": "words", "input": ["a"] * 3})[0] == 400  # it would never fit


def test_times_out():
    with serving.serving(*slow_args()) as s:
        start = time.monotonic()
        status, out = s.post("/v1/embeddings", WORD, {"Qkv-Timeout-Ms": "100"})
        assert status == 504 and "0.1 s" in out["error"]["message"] and time.monotonic() - start < 1
        assert s.metrics()['qkv_expired_total{model="words"}'] == 1


def test_a_long_run_is_interrupted(tmp_path):
    """Products of minutes: a deadline ends them, and the next request is answered by the same session."""
    onnx = pytest.importorskip("onnx")
    h, size = onnx.helper, 4096
    ints = [h.make_tensor("wide", 7, [2], [size, size]), h.make_tensor("k", 7, [1], [60])]
    body = h.make_graph([h.make_node("MatMul", ["m", "m"], ["p"]), h.make_node("Mul", ["p", "small"], ["q"]),
                         h.make_node("Identity", ["c"], ["d"])], "body",
                        [h.make_tensor_value_info("i", 7, []), h.make_tensor_value_info("c", 9, []),
                         h.make_tensor_value_info("m", 1, [size, size])],
                        [h.make_tensor_value_info("d", 9, []), h.make_tensor_value_info("q", 1, [size, size])])
    graph = h.make_graph(
        [h.make_node("Expand", ["x", "wide"], ["m0"]), h.make_node("Reshape", ["turns", "none"], ["n"]),
         h.make_node("Loop", ["n", "", "m0"], ["out"], body=body), h.make_node("ReduceMean", ["out", "axes"], ["y"])],
        "long", [h.make_tensor_value_info("x", 1, [1, 1]), h.make_tensor_value_info("turns", 7, [1, 1])],
        [h.make_tensor_value_info("y", 1, [1, 1])],
        ints[:1] + [h.make_tensor("none", 7, [0], []), h.make_tensor("axes", 7, [2], [0, 1]),
                    h.make_tensor("small", 1, [], [1 / size])])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]), tmp_path / "long.onnx")
    with serving.serving(tmp_path / "long.onnx") as s:
        def ask(turns, timeout):
            start = time.monotonic()
            body = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]},
                               {"name": "turns", "shape": [1, 1], "datatype": "INT64", "data": [turns]}]}
            status, out = s.post("/v2/models/long/infer", body, {"Qkv-Timeout-Ms": str(timeout)})
            return status, out, time.monotonic() - start
        status, out, took = ask(100, 300)
        assert status == 504 and took < 5, (status, out, took)
        status, out, took = ask(0, 20000)
        assert status == 200 and out["outputs"][0]["data"] == [1.0]


def test_client_goes_away():
    with serving.serving(*slow_args()) as s:
        c = s.connect()
        c.request("POST", "/v1/embeddings", json.dumps(WORD))
        time.sleep(0.2)
        c.close()
        for _ in range(50):
            if s.metrics()['qkv_cancelled_total{model="words"}']:
                break
            time.sleep(0.02)
        m = s.metrics()
        assert m['qkv_cancelled_total{model="words"}'] == 1 and m['qkv_queue_length{model="words"}'] == 0
        assert m['qkv_batch_rows_count{model="words"}'] == 0  # it never ran
        for _ in range(250):  # the line follows the count
            logged = [line["status"] for line in s.log() if line["path"] == "/v1/embeddings"]
            if logged:
                break
            time.sleep(0.02)
        assert logged == [499]


def test_slow_and_idle_connections():
    with serving.serving(AFFINE, "--idle-timeout", "1") as s:
        s.get("/health")
        before = s.resident()
        idle = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(400)]
        slow = socket.create_connection(("127.0.0.1", s.port))
        ended = threading.Event()

        def drip():  # never silent for long, never done
            try:
                for c in b"POST /v2/models/affine/infer HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"x" * 1000:
                    slow.sendall(bytes([c]))
                    time.sleep(0.05)
            except OSError:
                ended.set()
        threading.Thread(target=drip, daemon=True).start()
        assert s.post("/v2/models/affine/infer", infer())[0] == 200
        assert s.metrics()["qkv_connections"] >= 401
        assert s.resident() - before < 40 << 20
        assert ended.wait(5)
        assert idle[0].recv(1) == b""
        for c in idle:
            c.close()
        assert s.post("/v2/models/affine/infer", infer())[0] == 200


def test_a_long_body_takes_four_times_its_size():
    """The body, a copy of its text, and its numbers, of two bytes of text each; no value of 8 bytes for each."""
    body = json.dumps(infer(data="here")).replace('"here"', "[" + "0," * (15 << 20) + "0]").encode()
    with serving.serving(AFFINE) as s:
        s.get("/health")
        before = s.peak()
        status, said = s.post("/v2/models/affine/infer", body)
        assert status == 400 and "data has 15728641 values" in said["error"], said
        assert s.peak() - before < 4 * len(body)


def test_a_text_too_long_to_read_is_its_senders_matter():
    """503 would have it sent again."""
    with serving.serving(WORDS) as s:
        status, out = s.post("/v1/embeddings", {"model": "words", "input": ["a", "a" * 17000000]})
        assert status == 400 and "input 1: a text of 17000000 bytes, at most" in out["error"]["message"], out


# ------------------------------------------------------------------ stopping and loading


def test_term_answers_what_was_accepted():
    s = Server(*slow_args())
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(s.post, "/v1/embeddings", WORD) for _ in range(8)]
        time.sleep(0.4)
        s.process.send_signal(signal.SIGTERM)
        assert [w.result()[0] for w in waiting] == [200] * 8
    assert s.process.wait(20) == 0


def load_until(s, stop, lost, counts, sent):
    """Keeps a connection busy; an answer that is missing after its request was sent is lost."""
    c = s.connect()
    while not stop.is_set():
        try:
            c.request("POST", "/v2/models/affine/infer", json.dumps(infer()))
        except OSError:
            return
        sent.append(1)
        try:
            r = c.getresponse()
            data = json.loads(r.read())
        except (OSError, http.client.HTTPException) as e:
            lost.append(e)
            return
        if r.status != 200 or data["outputs"][0]["data"] != [10, 31, 48]:
            lost.append(data)
        counts.append(1)
        if r.will_close:
            return




def test_term_under_load_loses_nothing():
    s = Server(AFFINE)
    stop, lost, counts, sent = threading.Event(), [], [], []
    threads = [threading.Thread(target=load_until, args=(s, stop, lost, counts, sent)) for _ in range(6)]
    for t in threads:
        t.start()
    time.sleep(1)
    s.process.send_signal(signal.SIGTERM)
    for t in threads:
        t.join(20)
    stop.set()
    assert s.process.wait(20) == 0
    assert not lost and len(counts) == len(sent) > 50


def test_loads_again_without_losing_a_request(tmp_path):
    model = tmp_path / "affine.pt2"
    shutil.copy(AFFINE, model)
    s = Server(model)
    stop, lost, counts, sent = threading.Event(), [], [], []
    threads = [threading.Thread(target=load_until, args=(s, stop, lost, counts, sent)) for _ in range(4)]
    for t in threads:
        t.start()
    for k in range(8):
        if k % 2:
            s.process.send_signal(signal.SIGHUP)
        else:
            assert s.ask("POST", "/v2/repository/models/affine/load", b"{}")[0] in (200, 409)
        time.sleep(0.1)
    stop.set()
    for t in threads:
        t.join(20)
    assert not lost and len(counts) == len(sent) > 50
    loads = s.metrics()['qkv_loads_total{model="affine"}']
    assert loads >= 4
    shutil.copy(os.path.join(MODELS, "affine2.pt2"), tmp_path / "new")
    os.replace(tmp_path / "new", model)
    assert s.ask("POST", "/v2/repository/models/affine/load", b"{}")[0] == 200
    assert s.post("/v2/models/affine/infer", infer())[1]["outputs"][0]["data"] != [10, 31, 48]
    model.write_bytes(b"not a model")
    status, out = s.post("/v2/repository/models/affine/load", {})
    assert status == 500 and "stays as it is" in out["error"]
    assert s.post("/v2/models/affine/infer", infer())[0] == 200
    assert s.stop() == 0
