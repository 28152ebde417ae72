"""Methods of sessions and models that watch and measure runs."""
import json
import os

import numpy as np
import pytest
import qkv

DIGITS = os.path.join(os.path.dirname(__file__), "..", "..", "demo", "digits_vit.pt2")
IMAGE = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)


@pytest.fixture(scope="module")
def model():
    return qkv.Model(DIGITS, threads=1)


def test_profile_and_stats(model):
    with model.session() as s:
        with s.profile() as report:
            for _ in range(3):
                s(IMAGE)
        steps = [x for x in report["steps"] if x["node"]]
        assert len(steps) > 5 and all(x["calls"] == 3 for x in steps)
        assert sum(x["total_ms"] for x in steps) > 0
        stats = s.stats()
        assert stats["threads"] == 1 and stats["plans"] == 1 and stats["steps"] > 5 and stats["activation_bytes"] > 0
        s(IMAGE[:1])
        assert s.stats()["plans"] == 2
        with s.profile() as again:
            pass
        assert not [x for x in again["steps"] if x["calls"]]  # that run was not profiled


def test_trace(tmp_path, model):
    with model.session() as s:
        with s.trace(tmp_path / "t.json"):
            s(IMAGE)
            s(IMAGE)
        names = [x.get("name") for x in json.load(open(tmp_path / "t.json"))["traceEvents"]]
        assert len(names) > 10 and max(map(names.count, names)) >= 2
        with pytest.raises(qkv.Error, match="no-such-folder"):
            with s.trace(tmp_path / "no-such-folder" / "t.json"):
                s(IMAGE)


def test_progress(model):
    told = []
    with model.session() as s:
        s.on_progress(lambda module, done: told.append(done))
        s(IMAGE)
        assert len(told) > 5 and told == sorted(told) and 0 <= told[0] and 0.5 < told[-1] <= 1
        n = len(told)
        s.on_progress(None)
        s(IMAGE)
        assert len(told) == n
        s.on_progress(lambda module, done: told.append(done))
    for _ in range(3):  # the pool does not get a session that tells
        model(IMAGE)
    assert len(told) == n


def test_verify(model):
    got = model.run([IMAGE])[0]
    same = model.verify([IMAGE], {"output_0": got})["output_0"]
    assert same["agrees"] and same["max_abs"] == 0 and same["atol"] == pytest.approx(2e-5 * np.abs(got).max())
    other = got.copy()
    other[1, 2] += 0.5
    found = model.verify({"image": IMAGE}, [other])["output_0"]
    assert not found["agrees"] and found["failed"] == 1 and found["index"] == 12
    assert found["max_abs"] == pytest.approx(0.5) and found["b"] == pytest.approx(other[1, 2])
    assert model.verify([IMAGE], [other], atol=0.6)["output_0"]["agrees"]
    for expected, message in (({"logits": got}, "no output is called 'logits'"), ({}, "no output is expected"),
                              ([got[:1]], "shape")):
        with pytest.raises(qkv.Error, match=message):
            model.verify([IMAGE], expected)


def test_bench(model):
    batch = next(iter(model.symbols))
    t = model.bench({batch: 5}, runs=4)
    assert t["inputs"] == {"image": [5, 1, 8, 8]} and t["runs"] == 4
    assert 0 < t["min_ms"] <= t["median_ms"] <= t["p95_ms"]
    assert model.bench(runs=1)["inputs"]["image"][0] == model.symbols[batch][0]
    with pytest.raises(qkv.Error, match="nothing"):
        model.bench({"nothing": 5})
    with pytest.raises(qkv.Error, match="at least one run"):
        model.bench(runs=0)


def test_seed(tmp_path):
    torch = pytest.importorskip("torch")

    class Noise(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    torch.export.save(torch.export.export(Noise(), (torch.zeros(4),)), tmp_path / "m.pt2")
    noise, x = qkv.Model(tmp_path / "m.pt2"), np.zeros(4, np.float32)
    torch.manual_seed(7)
    expected = [torch.rand(4).numpy() for _ in range(2)]
    with noise.session() as s:
        for runs in (noise, s):
            runs.seed(7)
            assert all(np.array_equal(runs(x)[0], e) for e in expected)
