"""qkv.BatchPredictor in ray.data.Dataset.map_batches: one machine, two actors; and examples/ray_batch.py.
Ray is started once, small and without network."""
import importlib.util
import os
import pathlib
import tempfile
import uuid

import numpy as np
import pytest

# read by the import; the token is this cluster's own, not the user's
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_memory_monitor_refresh_ms="0", RAY_AUTH_MODE="token",
                  RAY_AUTH_TOKEN=uuid.uuid4().hex)
ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")
import qkv  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GROUND = ROOT / "tests" / "cli" / "models" / "ground.pt2"
IDS = np.zeros((3, 16), np.int64)
IDS[:, 0], IDS[:, 1], IDS[:, 2] = 520, [513, 516, 519], 521


@pytest.fixture(scope="module", autouse=True)
def cluster():
    # paths of sockets are short
    with pytest.MonkeyPatch.context() as env, tempfile.TemporaryDirectory(prefix="qkv-ray-",
                                                                          ignore_cleanup_errors=True) as folder:
        env.setenv("PYTHONPATH", str(ROOT / "python"))
        env.setenv("QKV_LIBRARY", qkv.library_path())
        ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20,
                 log_to_driver=False, _node_ip_address="127.0.0.1", _temp_dir=folder)
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield
        ray.shutdown()


def test_two_actors(tmp_path):
    import time

    class Watched(qkv.BatchPredictor):
        def __init__(self, *args, **options):  # ready when the other one is, however busy the machine is
            super().__init__(*args, **options)
            (tmp_path / str(os.getpid())).touch()
            until = time.monotonic() + 60
            while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
                time.sleep(0.05)

        def __call__(self, batch):
            time.sleep(0.2)  # time for the other one to take a batch
            rows = len(batch["image"])
            return {**super().__call__(batch), "process": np.full(rows, os.getpid()), "rows": np.full(rows, rows)}

    x = np.random.default_rng(0).random((14, 3, 32, 32), dtype=np.float32)
    table = ray.data.from_items([{"image": x[i], "name": f"image {i}"} for i in range(len(x))], override_num_blocks=4)
    options = {"path": str(GROUND), "fixed_inputs": {"token_ids": IDS}, "columns": {"patch_batch": "image"},
               "passthrough": ["name"], "outputs": {"output_0": "logits", "output_2": "masks"}}
    rows = table.map_batches(Watched, fn_constructor_kwargs=options, batch_size=3,
                             compute=ray.data.ActorPoolStrategy(size=2)).take_all()
    want = qkv.Model(GROUND).run({"patch_batch": x, "token_ids": IDS})
    assert sorted(rows[0]) == ["logits", "masks", "name", "process", "rows"]
    found = {r["name"]: r for r in rows}
    assert len(rows) == len(found) == 14
    for i in range(14):
        r = found[f"image {i}"]
        np.testing.assert_array_equal(r["logits"], want["output_0"].reshape(14, 3, 2, 1)[i])
        np.testing.assert_array_equal(r["masks"], want["output_2"].reshape(14, 3, 2, 16, 16)[i])
    processes = {int(r["process"]) for r in rows}
    assert len(processes) == 2 and os.getpid() not in processes
    assert {int(r["rows"]) for r in rows} > {3}  # a smaller batch at the end, too


@pytest.mark.turns
def test_an_error_is_told():
    table = ray.data.from_numpy(np.zeros((2, 3, 32, 32)))
    with pytest.raises(Exception, match="column 'data': row 0 is float64, input 'patch_batch' takes float32"):
        table.map_batches(qkv.BatchPredictor, fn_constructor_kwargs={"path": str(GROUND),
                                                                     "fixed_inputs": {"token_ids": IDS},
                                                                     "columns": {"patch_batch": "data"}},
                          concurrency=1).take_all()


@pytest.mark.turns
def test_example():
    pytest.importorskip("PIL")
    spec = importlib.util.spec_from_file_location("ray_batch", ROOT / "examples" / "ray_batch.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    found = example.main()
    assert len(found) == 20
    right = [int(pathlib.Path(path).stem.split("_")[-1][-1]) == digit for path, digit in found.items()]
    assert sum(right) >= 18
