"""A program written for onnxruntime, run by it and by qkv."""
import os

import numpy as np
import pytest
import qkv

DIGITS = os.path.join(os.path.dirname(__file__), "..", "..", "demo", "digits_vit.pt2")


def program(ort, model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    assert "CPUExecutionProvider" in ort.get_available_providers()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed, shown = {}, []
    for x in session.get_inputs():
        sizes = [n if isinstance(n, int) else 3 for n in x.shape]
        feed[x.name] = np.random.default_rng(0).random(sizes, np.float32)
        shown.append((x.name, len(x.shape), x.type))
    outputs = [(o.name, o.type) for o in session.get_outputs()]
    everything = session.run(None, feed)
    chosen = session.run([outputs[0][0]], feed, None)
    assert isinstance(everything, list) and np.array_equal(chosen[0], everything[0])
    return shown, outputs, session.get_providers(), everything


@pytest.mark.parametrize("as_bytes", [False, True])
def test_program(tmp_path, as_bytes):
    ort = pytest.importorskip("onnxruntime")
    path = str(tmp_path / "m.onnx")
    qkv.Model(DIGITS).save_onnx(path)
    model = open(path, "rb").read() if as_bytes else path
    expected, got = program(ort, model), program(qkv, model)
    assert got[:3] == expected[:3]
    assert np.abs(got[3][0] - expected[3][0]).max() < 1e-5


def test_differences():
    with pytest.warns(UserWarning, match="qkv runs on the CPU: CUDAExecutionProvider is not used"):
        session = qkv.InferenceSession(DIGITS, providers=[("CUDAExecutionProvider", {}), "CPUExecutionProvider"])
    image = np.zeros((1, 1, 8, 8), np.float32)
    with pytest.raises(qkv.Error, match="no output is called 'logits'; this model has output_0"):
        session.run(["logits"], {"image": image})
    with pytest.raises(qkv.Error, match="use run"):
        session.run_with_iobinding(None)
    with pytest.raises(qkv.Error, match="use run"):
        session.io_binding()
