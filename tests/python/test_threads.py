"""One model used by many threads: the numbers of one thread, and nothing of what runs leave behind gets mixed."""
import asyncio
import os
import pathlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402
from torch import nn  # noqa: E402


ROOT = pathlib.Path(__file__).resolve().parents[2]


class Pair(nn.Module):
    """Two inputs, one of which is worth keeping."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.picture, self.text = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, picture, text):
        p, t = self.picture(picture), self.text(text)
        return self.attention(t, p, p, need_weights=False)[0] + t, p


class Counter(nn.Module):
    """A cache: what it gives depends on all runs so far."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen.add_(x)
        return self.seen * 1.0


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class Joined(nn.Module):
    """Pieces that lie apart in what they are cut from: long and short ones, turned ones, along several axes."""

    def forward(self, x):
        rolled = torch.cat([x[:, :, 3:], x[:, :, :3]], 2)
        short = torch.cat([rolled[..., 5:], rolled[..., :5], rolled[..., ::2]], -1)
        return rolled, short, torch.cat([x.transpose(1, 2), x.transpose(1, 2) + 1.0], 1), torch.cat([x[1:], x[:1]])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    at = tmp_path_factory.mktemp("threads") / "pair.pt2"
    n, m = torch.export.Dim("n", max=64), torch.export.Dim("m", max=64)
    args = torch.randn(2, 5, 32), torch.randn(2, 7, 32)
    qkv.export(Pair().eval(), args, dynamic_shapes=({1: n}, {1: m}), path=str(at))
    return at


def saved(module, *args, at, **options):
    torch.export.save(torch.export.export(module, args, **options), at)
    return qkv.Model(at)


def feeds(k):
    r = np.random.default_rng(k)
    return {"picture": r.random((2, 3 + k % 5, 32), np.float32), "text": r.random((2, 4 + k % 7, 32), np.float32)}


def in_threads(f, n, *args):
    """f(*args, i) in n threads that begin together."""
    together = threading.Barrier(n)

    def one(i):
        together.wait()
        return f(*args, i)

    with ThreadPoolExecutor(n) as pool:
        return [x.result() for x in [pool.submit(one, i) for i in range(n)]]


@pytest.mark.parametrize("threads", [4, 16])
def test_one_model_in_many_threads(path, threads):
    """Different sizes and numbers: what one thread gets from a model of its own; results stay as they are."""
    alone, model = qkv.Model(path, threads=1), qkv.Model(path, threads=1)
    want = [alone.run(feeds(k)) for k in range(12)]

    def work(i):
        ks = [(i + j) % 12 for j in range(24)]
        return [(k, model.run(feeds(k))) for k in ks]

    for got in in_threads(work, threads):
        for k, out in got:
            for name in want[k]:
                np.testing.assert_array_equal(out[name], want[k][name], err_msg=f"{k} {name}")


@pytest.mark.parametrize("threads", [1, 5])
def test_pieces_are_joined_by_all_threads(tmp_path, threads):
    at = tmp_path / "joined.pt2"
    n = torch.export.Dim("n", max=512)
    qkv.export(Joined(), (torch.randn(2, 9, 11, 40),), dynamic_shapes=({1: n},), path=str(at))
    model = qkv.Model(str(at), threads=threads)
    for size in (1, 9, 300):
        x = torch.randn(2, size, 11, 40)
        for got, want in zip(model.run({"x": x.numpy()}).values(), Joined()(x)):
            np.testing.assert_array_equal(got, want.numpy())


def test_missing_input_is_not_the_last_runs(path):
    model = qkv.Model(path)
    model.run(feeds(1))
    with pytest.raises(qkv.Error, match="input 'text' is not given"):
        model.run({"picture": feeds(1)["picture"]})


def test_kept_inputs_are_the_threads_own(path):
    model, alone = qkv.Model(path, threads=1), qkv.Model(path, threads=1)
    met = threading.Barrier(4)

    def work(i):
        model.run(feeds(i), keep=["picture"])
        met.wait()
        return model.run({"text": feeds(i + 20)["text"]})["output_0"]

    for i, got in enumerate(in_threads(work, 4)):
        want = alone.run({"picture": feeds(i)["picture"], "text": feeds(i + 20)["text"]})
        np.testing.assert_array_equal(got, want["output_0"])
    with pytest.raises(qkv.Error, match="input 'picture' is not given"):
        model.run({"text": feeds(0)["text"]})  # this thread has kept nothing


def test_sessions(path):
    model, alone = qkv.Model(path, threads=1), qkv.Model(path, threads=1)
    with model.session() as a, model.session() as b:
        a.run(feeds(1), keep="picture")
        b.run(feeds(2), keep="picture")
        for session, k in ((a, 1), (b, 2)):
            want = alone.run({"picture": feeds(k)["picture"], "text": feeds(9)["text"]})
            np.testing.assert_array_equal(session.run({"text": feeds(9)["text"]})["output_0"], want["output_0"])
        with pytest.raises(qkv.Error, match="2 sessions of this model .* are open"):
            model.set_weights({})
    with pytest.raises(qkv.Error, match="closed"):
        a.run(feeds(1))
    model.set_weights({"text.bias": np.zeros(32, np.float32)})
    assert not np.array_equal(model.run(feeds(1))["output_0"], alone.run(feeds(1))["output_0"])


def test_weights_change_between_runs_of_others(path):
    """set_weights waits for runs that are under way; each run has the old weights or the new ones."""
    model, bias = qkv.Model(path, threads=1), np.ones(32, np.float32)
    old = model.run(feeds(3))["output_1"]
    stop = threading.Event()

    def work(i):
        if i:
            got = []
            while not stop.is_set():
                got.append(model.run(feeds(3))["output_1"])
            return got
        for k in range(6):
            model.set_weights({"picture.bias": bias * k})
        stop.set()
        return [model.run(feeds(3))["output_1"]]

    results = in_threads(work, 4)
    allowed = [old]
    for k in range(6):
        model.set_weights({"picture.bias": bias * k})
        allowed.append(model.run(feeds(3))["output_1"])
    np.testing.assert_array_equal(results[0][0], allowed[-1])
    assert all(any(np.array_equal(x, a) for a in allowed) for got in results for x in got)


def test_written_buffers_belong_to_one_thread(tmp_path):
    model = saved(Counter(), torch.ones(3), at=tmp_path / "counter.pt2")
    one = [np.ones(3, np.float32)]
    assert [model.run(one)["output_0"][0] for _ in range(2)] == [1, 2]  # a single thread: as ever
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(qkv.Error, match=r"buffers that it writes.*thread 'MainThread'.*model.session\(\)"):
            pool.submit(model.run, one).result()
        assert model.run(one)["output_0"][0] == 3

        def begin():
            model.reset()
            return model.run(one)["output_0"][0]

        assert pool.submit(begin).result() == 1

    def work(i):
        with model.session() as s:
            first = [s.run(one)["output_0"][0] for _ in range(20)]
            s.reset()
            return first + [s.run(one)["output_0"][0]]

    assert in_threads(work, 8) == [[*range(1, 21), 1]] * 8


def test_random_numbers_are_drawn_once(tmp_path):
    model, alone = (saved(Noise(), torch.ones(64), at=tmp_path / f"{k}.pt2") for k in range(2))
    x = [np.zeros(64, np.float32)]
    want = {alone.run(x)["output_0"].tobytes() for _ in range(40)}
    got = [a.tobytes() for part in in_threads(lambda i: [model.run(x)["output_0"] for _ in range(10)], 4) for a in part]
    assert len(want) == 40 and set(got) == want


def test_one_session_in_two_threads(path):
    """Python says so; so does the library, whoever calls it."""
    with qkv.Model(path).session() as s:
        error = pytest.raises(qkv.Error, match="another thread is using this session")
        with s._use(), ThreadPoolExecutor(1) as pool, error:
            pool.submit(s.run, feeds(1)).result()
        s.run(feeds(1))
        with ThreadPoolExecutor(1) as pool:  # one after the other is fine
            pool.submit(s.run, feeds(1)).result()


class Products(nn.Module):
    """A second of work in one step, about."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen.add_(1)
        return x @ x, self.seen * 1.0


def test_a_run_is_cancelled_from_another_thread(tmp_path):
    n = torch.export.Dim("n")
    model = saved(Products(), torch.ones(4, 4), at=tmp_path / "m.pt2", dynamic_shapes=[[n, n]])
    x = np.eye(4, dtype=np.float32)
    large = [np.ones((6000, 6000), np.float32)]
    with model.session() as s, ThreadPoolExecutor(1) as pool:
        s.run([x])
        run = pool.submit(s.run, large)
        time.sleep(0.1)
        asked = time.monotonic()
        s.cancel()
        with pytest.raises(qkv.Error, match="the run was cancelled") as e:
            run.result()
        assert e.value.code == 5 and time.monotonic() - asked < 1  # milliseconds, on a machine of its own
        with pytest.raises(qkv.Error, match="the run was cancelled"):
            s.run([x])
        s.cancel(False)
        assert s.run([x])["output_1"].tolist() == [2, 2, 2]
        s.cancel()
    with pytest.raises(qkv.Error, match="this session is closed"):
        s.cancel()
    assert model.run([x])["output_0"].tolist() == x.tolist()


FORKS = """
import os, sys, threading, time
import numpy as np
import qkv
path, model = sys.argv[1], qkv.Model(sys.argv[1], threads=2)
x = {"picture": np.ones((2, 5, 32), np.float32), "text": np.ones((2, 6, 32), np.float32)}
want, wrong, done = model.run(x)["output_0"].tobytes(), [], False

def busy(i):
    while not done:
        with qkv.Model(path, threads=1 + i % 2).session() as s:
            for _ in range(3):
                s.run(x)

def forks():
    for _ in range(6):
        time.sleep(0.01)
        child = os.fork()
        if not child:
            same = [model.run(x)["output_0"].tobytes(), qkv.Model(path, threads=2).run(x)["output_0"].tobytes()]
            os._exit(same != [want, want])
        end, pid = time.monotonic() + 30, 0
        while not pid and time.monotonic() < end:
            time.sleep(0.002)
            pid, status = os.waitpid(child, os.WNOHANG)
        if not pid:
            os.kill(child, 9)
            os.waitpid(child, 0)
        wrong.append(status if pid else "does not end")

others = [threading.Thread(target=busy, args=(i,)) for i in range(3)]
one = threading.Thread(target=forks)
[t.start() for t in (*others, one)]
one.join()
done = True
[t.join() for t in others]
sys.exit(str(wrong) if any(wrong) else 0)
"""


def test_a_thread_forks_while_others_load_and_run(path):
    """The child has one thread, and whatever the others held at that moment stays held there."""
    done = subprocess.run([sys.executable, "-c", FORKS, str(path)], capture_output=True, text=True, timeout=500,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == 0, done.stderr


def test_asyncio(path, tmp_path):
    model, alone = qkv.Model(path, threads=1), qkv.Model(path, threads=1)

    async def many():
        return await asyncio.gather(*[model.arun(feeds(k)) for k in range(12)])

    for k, got in enumerate(asyncio.run(many())):
        np.testing.assert_array_equal(got["output_0"], alone.run(feeds(k))["output_0"])
    counter = saved(Counter(), torch.ones(3), at=tmp_path / "counter.pt2")

    async def steps():
        with pytest.raises(qkv.Error, match="await its arun"):
            await counter.arun([np.ones(3, np.float32)])
        with counter.session() as s:
            return [(await s.arun([np.ones(3, np.float32)]))["output_0"][0] for _ in range(3)]

    assert asyncio.run(steps()) == [1, 2, 3]


def test_web_server(path):
    """FastAPI runs plain functions in a pool of threads, which the requests of one event loop share; `async` ones
    await the model."""
    fastapi, httpx = pytest.importorskip("fastapi"), pytest.importorskip("httpx")
    app, model, alone = fastapi.FastAPI(), qkv.Model(path, threads=1), qkv.Model(path, threads=1)
    used, several = set(), threading.Event()

    @app.get("/plain/{k}")
    def plain(k: int):
        used.add(threading.get_ident())
        if len(used) == 4:
            several.set()
        assert several.wait(60)  # until four threads are in here
        return model.run(feeds(k))["output_0"].tolist()

    @app.get("/async/{k}")
    async def awaited(k: int):
        return (await model.arun(feeds(k)))["output_0"].tolist()

    async def requests():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://qkv") as client:
            answers = await asyncio.gather(*[client.get(f"/{kind}/{k}") for k in range(32)
                                             for kind in ("plain", "async")])
            return [a.raise_for_status().json() for a in answers]

    for i, got in enumerate(asyncio.run(requests())):
        np.testing.assert_array_equal(np.float32(got), alone.run(feeds(i // 2))["output_0"])
    assert len(used) >= 4


def test_model_is_freed_with_its_last_reference(path):
    import weakref

    model = qkv.Model(path)
    model.run(feeds(1), keep="picture")
    gone = weakref.ref(model)
    del model
    assert gone() is None
