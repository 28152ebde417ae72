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
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert "CPUExecutionProvider" in ort.get_available_providers()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed, shown = {}, []
    for x in session.get_inputs():
        sizes = [n if isinstance(n, int) else 3 for n in x.shape]
        feed[x.name] = np.random.default_rng(0).random(sizes, np.float32)
        shown.append((x.name, len(x.shape), x.type))
    outputs = [(o.name, o.type) for o in session.get_outputs()]
    everything = session.run(None, feed)
    run_options = ort.RunOptions()
    run_options.log_severity_level = 3
    chosen = session.run([outputs[0][0]], feed, run_options)
    values = session.run_with_ort_values(None, {k: ort.OrtValue.ortvalue_from_numpy(v) for k, v in feed.items()})
    assert np.array_equal(values[0].numpy(), everything[0])
    shown += [(v.shape(), v.data_type(), v.device_name()) for v in values]
    shown += [session.get_session_options().get_session_config_entry("session.intra_op.allow_spinning"),
              list(session.get_provider_options()), session.get_overridable_initializers(), ort.get_device()[:3]]
    meta = session.get_modelmeta()
    assert meta.custom_metadata_map["qkv.profile"] == "ort"
    shown += [meta.producer_name, meta.custom_metadata_map]
    session.disable_fallback()
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
    with pytest.raises(qkv.Error, match="'mine.so': libraries of custom ops are not loaded"):
        qkv.SessionOptions().register_custom_ops_library("mine.so")
