"""qkv.BatchPredictor without Ray: rows, sizes, columns, copies, pickling, processes, threads.
Models of tests/cli/models; NumPy alone."""
import ctypes as C
import multiprocessing
import os
import pathlib
import pickle
import threading

import numpy as np
import pytest

import qkv
from qkv import _lib, _process

MODELS = pathlib.Path(__file__).resolve().parent.parent / "cli" / "models"
GROUND = MODELS / "ground.pt2"
IDS = np.zeros((3, 16), np.int64)
IDS[:, 0], IDS[:, 1], IDS[:, 2] = 520, [513, 516, 519], 521


def images(n, seed=0):
    return np.random.default_rng(seed).random((n, 3, 32, 32), dtype=np.float32)


def predictor(**options):
    return qkv.BatchPredictor(GROUND, **{"fixed_inputs": {"token_ids": IDS}, "threads": 2, **options})


def expected(x, ids=IDS):
    return qkv.Model(GROUND, threads=2).run({"patch_batch": x, "token_ids": ids})


# ------------------------------------------------------------------ what comes out


@pytest.mark.parametrize("n,prompts", [(1, 1), (1, 3), (4, 3), (4, 1), (3, 3)])
def test_rows_of_images_and_prompts(n, prompts):
    x, ids = images(n), IDS[:prompts]
    got, want = predictor(fixed_inputs={"token_ids": ids})({"patch_batch": x}), expected(x, ids)
    assert list(got) == list(want)
    for name, a in got.items():
        assert type(a) is np.ndarray and a.shape == (n, prompts, *want[name].shape[1:])
        np.testing.assert_array_equal(a.reshape(want[name].shape), want[name])
    for i in range(n):  # row b of the batch is image b
        np.testing.assert_array_equal(got["output_1"][i], expected(x[i:i + 1], ids)["output_1"])


def test_fixed_first():
    """The batch's rows are prompts, the image is fixed: row b * P + p of the outputs is image b with prompt p,
    so that batch rows come second."""
    x = images(2)
    got = predictor(fixed_inputs={"patch_batch": x}, fixed_first=True)({"token_ids": IDS})
    want = expected(x)["output_2"].reshape(2, 3, 2, 16, 16)
    assert got["output_2"].shape == (3, 2, 2, 16, 16)
    np.testing.assert_array_equal(got["output_2"], want.swapaxes(0, 1))


def test_no_fixed_inputs():
    ids = np.arange(6, dtype=np.int64).reshape(2, 3)
    ones = np.ones((2, 3), np.int64)
    got = qkv.BatchPredictor(MODELS / "words.pt2")({"input_ids": ids, "attention_mask": ones,
                                                    "token_type_ids": 0 * ones})
    assert [a.shape for a in got.values()] == [(2, 3, 8), (2, 8)]


def test_columns_outputs_and_passthrough():
    x, names, more = images(2), np.array(["a", "b"]), np.arange(2)
    p = predictor(columns={"patch_batch": "image"}, outputs={"output_3": "presence"}, passthrough=["name", "image"])
    got = p({"image": x, "name": names, "more": more})
    assert sorted(got) == ["image", "name", "presence"] and got["name"] is names and got["image"] is x
    got = predictor(outputs=["output_0"], passthrough=True)({"patch_batch": x, "name": names, "more": more})
    assert sorted(got) == ["more", "name", "output_0"] and got["more"] is more
    assert list(predictor(outputs="output_0")({"patch_batch": x})) == ["output_0"]


def test_results_stay():
    """Outputs of one call are not those of the next, though the session's memory is used again."""
    p = predictor()
    first, kept = p({"patch_batch": images(2, 1)}), {}
    for name, a in first.items():
        kept[name] = a.copy()
    p({"patch_batch": images(2, 2)})
    for name, a in first.items():
        np.testing.assert_array_equal(a, kept[name])


def test_rows_as_arrays_of_their_own():
    x = images(3)
    column = np.empty(3, object)
    for i in range(3):
        column[i] = x[i]
    for rows in (column, list(x), tuple(x)):
        np.testing.assert_array_equal(predictor()({"patch_batch": rows})["output_0"],
                                      predictor()({"patch_batch": x})["output_0"])


def test_widening():
    got = qkv.BatchPredictor(MODELS / "two.pt2")({"a": np.ones((2, 3), np.int16), "b": np.ones((2, 3), np.float16)})
    assert got["output_0"].dtype == np.float32 and (got["output_0"] == 2).all()


# ------------------------------------------------------------------ no copies


def test_no_copies(monkeypatch):
    # what the last run read can be asked for
    monkeypatch.setattr(_lib.lib(), "qkv_session_clear_inputs", lambda session: None)
    x = images(2)
    x.flags.writeable = False  # as Ray gives it
    p = predictor()
    p({"patch_batch": x})
    got = p({"patch_batch": x})
    lib, t, e = _lib.lib(), _lib.CTensor(), _lib.CError()
    lib.qkv_session_input.argtypes = [C.c_void_p, C.c_int, C.POINTER(_lib.CTensor), C.POINTER(_lib.CError)]
    session = p._session[1].session._opened.pointer
    # the library read the column itself
    assert lib.qkv_session_input(session, 0, C.byref(t), C.byref(e)) == 0 and t.data == x.ctypes.data
    for i, a in enumerate(got.values()):
        assert lib.qkv_session_output(session, i, C.byref(t), C.byref(e)) == 0
        size = a.size * a.itemsize
        # and wrote the result
        assert t.data == a.ctypes.data and np.shares_memory(a, np.frombuffer((C.c_uint8 * size).from_address(t.data),
                                                                             np.uint8))


def test_strided_columns_are_read_right():
    x = images(4)
    np.testing.assert_array_equal(predictor()({"patch_batch": x[::2]})["output_0"],
                                  predictor()({"patch_batch": x[::2].copy()})["output_0"])


# ------------------------------------------------------------------ errors


def ragged():
    rows = np.empty(3, object)
    rows[0], rows[1], rows[2] = np.zeros((3, 32, 32), np.float32), np.zeros((3, 32, 32), np.float32), np.zeros((3, 31,
        32), np.float32)
    return rows


def mixed():
    rows = ragged()
    rows[2] = np.zeros((3, 32, 32))
    return rows


@pytest.mark.parametrize("options,columns,message", [
    ({}, {"image": images(1)}, "the batch has no column 'patch_batch' for input 'patch_batch'; it has image"),
    ({}, {"patch_batch": images(1).astype(np.float64)},
     "column 'patch_batch': row 0 is float64, input 'patch_batch' takes float32"),
    ({}, {"patch_batch": (images(1) * 255).astype(np.uint8)},
     "column 'patch_batch': row 0 is uint8, input 'patch_batch' takes float32"),
    ({}, {"patch_batch": images(2).transpose(0, 2, 3, 1)},
     r"column 'patch_batch': row 0 has shape \(32, 32, 3\), input 'patch_batch' takes \(3, 32, 32\)"),
    ({}, {"patch_batch": images(2)[0, 0]}, r"column 'patch_batch': row 0 has shape \(32,\), input"),
    ({}, {"patch_batch": ragged()},
     r"column 'patch_batch': row 2 has shape \(3, 31, 32\), input 'patch_batch' takes \(3, 32, 32\)"),
    ({}, {"patch_batch": mixed()}, "column 'patch_batch': row 2 is float64, input 'patch_batch' takes float32"),
    ({}, {"patch_batch": images(2)[:0]}, "column 'patch_batch': has no rows"),
    ({"passthrough": ["name"]}, {"patch_batch": images(1)},
     "the batch has no column 'name' to pass through; it has patch_batch"),
    ({"passthrough": True, "outputs": {"output_0": "name"}}, {"patch_batch": images(1), "name": [1]},
     "column 'name' is passed through, and an output has that name"),
    ({"fixed_inputs": {}}, {"patch_batch": images(2), "token_ids": IDS},
     "column 'token_ids' has 3 rows, column 'patch_batch' 2"),
    ({"fixed_inputs": {}}, {"patch_batch": images(3), "token_ids": IDS},
     r"output 'output_0' has s\d+\*s\d+ rows, which is not a fixed number per row of the batch; choose others"),
    ({"fixed_inputs": {"text": IDS}}, {"patch_batch": images(1)},
     "fixed input 'text': the model has patch_batch, token_ids"),
    ({"columns": {"image": "x"}}, {"patch_batch": images(1)},
     "columns: input 'image': the model has patch_batch, token_ids"),
    ({"outputs": ["logits"]}, {"patch_batch": images(1)},
     "output 'logits': the model has output_0, output_1, output_2, output_3"),
    ({"fixed_inputs": {"patch_batch": images(1), "token_ids": IDS}}, {},
     "every input is fixed; nothing is left for a batch's columns"),
    ({"fixed_inputs": {"token_ids": IDS.astype(np.int32)}}, {"patch_batch": images(1)},
     "input 'token_ids': dtype is i32, expected i64"),
])
def test_errors(options, columns, message):
    with pytest.raises(qkv.Error, match=message) as e:
        predictor(**options)(columns)
    assert "\n" not in str(e.value)


def test_ragged_rows_where_the_model_takes_both(tmp_path):
    rows = [np.arange(3), np.arange(4)]
    with pytest.raises(qkv.Error, match=r"column 'input_ids': row 1 has shape \(4,\), row 0 \(3,\); one shape a batch"):
        qkv.BatchPredictor(MODELS / "words.pt2")({"input_ids": rows, "attention_mask": rows, "token_type_ids": rows})


def test_missing_file_is_told_at_the_first_call():
    p = qkv.BatchPredictor("nowhere.pt2")
    with pytest.raises(qkv.Error, match="nowhere.pt2"):
        p({"x": images(1)})


def test_an_error_does_not_spoil_the_next_call():
    p = predictor(fixed_inputs={"token_ids": IDS[:2]})
    for _ in range(2):
        with pytest.raises(qkv.Error):
            p({})
        assert p({"patch_batch": images(2)})["output_0"].shape[:2] == (2, 2)


# ------------------------------------------------------------------ processes and threads


def test_pickle():
    x, p = images(2), predictor(outputs={"output_0": "logits"})
    want = p({"patch_batch": x})["logits"]
    sent = pickle.dumps(p)
    assert len(sent) < 10_000
    q = pickle.loads(sent)
    assert q._session is None
    np.testing.assert_array_equal(q({"patch_batch": x})["logits"], want)
    assert q._session[1] is p._session[1]  # equal predictors of one process share a session
    other = predictor(fixed_inputs={"token_ids": IDS[:1]})
    other({"patch_batch": x})
    assert other._session[1] is not p._session[1]


def test_errors_are_sent():
    with pytest.raises(qkv.Error) as e:
        predictor()({})
    sent = pickle.loads(pickle.dumps(e.value))
    assert (str(sent), sent.code, sent.kind) == (str(e.value), 2, "usage")


def test_relative_path(monkeypatch, tmp_path):
    monkeypatch.chdir(MODELS)
    p = qkv.BatchPredictor("ground.pt2", fixed_inputs={"token_ids": IDS})
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(pickle.dumps(p))({"patch_batch": images(1)})["output_0"].shape == (1, 3, 2, 1)


def in_process(task):
    p, x = task
    return os.getpid(), p({"patch_batch": x})["output_2"], len(_process._opened)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(method):
    """After a run of this process, whose threads a forked one has not."""
    p = predictor(threads=2)
    tasks = [(p, images(n, n)) for n in (1, 2, 3, 2, 1, 4)]
    want = [p({"patch_batch": x})["output_2"] for _, x in tasks]
    with multiprocessing.get_context(method).Pool(2) as pool:
        got = pool.map_async(in_process, tasks, chunksize=1).get(60)
    for (pid, a, sessions), b in zip(got, want):
        np.testing.assert_array_equal(a, b)
        assert pid != os.getpid() and sessions == 1


def test_threads():
    p, x, got = predictor(), [images(1 + i % 3, i) for i in range(12)], {}
    threads = [threading.Thread(target=lambda i=i: got.update({i: p({"patch_batch": x[i]})["output_1"]}))
               for i in range(12)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i in range(12):
        np.testing.assert_array_equal(got[i].reshape(-1, 2, 4), expected(x[i])["output_1"])


def memory_of_file(path):
    """Kilobytes of its mappings in this process: {Rss, Pss, Private_Dirty ...}."""
    out, inside = {}, False
    for line in open("/proc/self/smaps"):
        word = line.split()
        if not word[0].endswith(":"):
            inside = line.rstrip().endswith(str(path))
        elif inside and word[-1] == "kB":
            out[word[0][:-1]] = out.get(word[0][:-1], 0) + int(word[1])
    return out


def use_and_measure(path, x, barrier, answers):
    p = qkv.BatchPredictor(path, threads=1)
    for _ in range(3):
        p({"x": x})
    barrier.wait(60)
    answers.put(memory_of_file(path))
    barrier.wait(60)


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="Linux's account of a process's memory")
def test_processes_share_the_weights(tmp_path):
    """A table of a .pt2, and a product's packed weight of a .qkv, 16 MB each."""
    torch = pytest.importorskip("torch")

    class Table(torch.nn.Embedding):
        def forward(self, x):
            return super().forward(x).sum(1)

    class Product(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x)

    cases = []
    for name, module, x in (("table", Table(8192, 512), torch.arange(8192)[None]),
                            ("product", Product(2048, 2048), torch.ones(8, 2048))):
        path = tmp_path / f"{name}.pt2"
        dims = {0: torch.export.Dim("b", min=1)}
        torch.export.save(torch.export.export(module.eval(), (x.repeat(2, 1),), dynamic_shapes=(dims,)), path)
        cases.append((path, x.numpy()))
    packed = tmp_path / "product.qkv"
    qkv.Model(cases[1][0]).pack(packed)
    cases[1] = packed, cases[1][1]

    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(2), context.Queue()
    for path, x in cases:
        workers = [context.Process(target=use_and_measure, args=(path, x, barrier, answers)) for _ in range(2)]
        [w.start() for w in workers]
        found = [answers.get(timeout=60) for _ in workers]
        [w.join() for w in workers]
        for m in found:
            assert m["Rss"] > 16_000 and m["Private_Dirty"] == 0 and m["Pss"] < 0.6 * m["Rss"]
