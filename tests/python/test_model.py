"""qkv.Model with NumPy alone: the model of the demo."""
import os
import pickle

import numpy as np
import pytest
import qkv

DIGITS = os.path.join(os.path.dirname(__file__), "..", "..", "demo", "digits_vit.pt2")
TWO = os.path.join(os.path.dirname(__file__), "..", "cli", "models", "two.pt2")


@pytest.fixture(scope="module")
def model():
    return qkv.Model(DIGITS)


@pytest.fixture
def pixels(model):
    shape = [n if isinstance(n, int) else 5 for n in model.describe()["inputs"][0]["shape"]]
    return np.random.default_rng(0).random(shape, np.float32)


def test_rows_of_a_batch_are_independent(model, pixels):
    whole = model.run([pixels])["output_0"]
    assert whole.shape == (5, 10) and np.isfinite(whole).all() and np.ptp(whole) > 0.1
    for i in range(5):
        assert np.abs(model.run([pixels[i:i + 1]])["output_0"] - whole[i]).max() < 1e-5


def test_a_large_batch_is_as_its_rows(tmp_path):
    """Products of many rows may be summed otherwise than those of few (x86/product_amx_f32.c),
    but not because the batch is large."""
    torch = pytest.importorskip("torch")
    m = torch.nn.TransformerEncoderLayer(64, 4, 160, batch_first=True).eval()
    ep = torch.export.export(m, (torch.zeros(3, 40, 64),), dynamic_shapes=({0: torch.export.Dim("b", min=1, max=64)},))
    torch.export.save(ep, tmp_path / "m.pt2")
    model, x = qkv.Model(str(tmp_path / "m.pt2")), torch.randn(32, 40, 64)
    (whole,), (one,) = model.run([x.numpy()]).values(), model.run([x[5:6].numpy()]).values()
    assert np.array_equal(whole[5:6], one)
    assert np.abs(whole - m(x).detach().numpy()).max() < 1e-5


def test_a_picture_is_pooled_to_one_cell(tmp_path):
    """One cell is laid out both ways; the picture before it has its channels last."""
    torch = pytest.importorskip("torch")

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = torch.nn.Conv2d(3, 40, 3)
            self.long = torch.nn.Conv1d(5, 24, 3)

        def forward(self, x, y):
            f = torch.nn.functional
            a, b = self.wide(x), self.long(y)
            return (f.adaptive_avg_pool2d(a, 1), f.adaptive_avg_pool2d(a, (2, 1)), f.adaptive_avg_pool1d(b, 1),
                    f.adaptive_avg_pool2d(a[0], 1), f.adaptive_avg_pool2d(a.transpose(2, 3), 1),
                    f.avg_pool2d(a, (7, 9)))

    m, inputs = Pooled().eval(), (torch.randn(2, 3, 9, 11), torch.randn(2, 5, 20))
    torch.export.save(torch.export.export(m, inputs), tmp_path / "m.pt2")
    got = qkv.Model(str(tmp_path / "m.pt2")).run([t.numpy() for t in inputs]).values()
    for have, want in zip(got, m(*inputs), strict=True):
        assert have.shape == want.shape and np.abs(have - want.detach().numpy()).max() < 1e-6


def test_strides_and_names(model, pixels):
    turned = np.asfortranarray(pixels)
    assert np.array_equal(model.run({model.inputs[0]: turned})["output_0"], model.run([pixels])["output_0"])
    with pytest.raises(qkv.Error, match="no input is called 'y'") as e:
        model.run({"y": pixels})
    assert e.value.code == 2


def test_session_and_pickling(model, pixels):
    expected = model.run([pixels])["output_0"]
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.run([pixels])["output_0"], expected)
    assert np.array_equal(qkv.InferenceSession(DIGITS).run(None, {model.inputs[0]: pixels})[0], expected)


@pytest.mark.parametrize("name", ["m.pt2", "m.onnx", "m.qkv"])
def test_a_file_that_is_cut_while_it_is_used(tmp_path, model, pixels, name):
    """Read into memory, the file may go; mapped, this process would."""
    path = str(tmp_path / name)
    {"m.pt2": model.save, "m.onnx": model.save_onnx, "m.qkv": model.pack}[name](path)
    expected = qkv.Model(path).run([pixels])["output_0"]
    copy = qkv.Model(path, mmap=False)
    os.truncate(path, 100)
    assert np.array_equal(copy.run([pixels])["output_0"], expected)


@pytest.mark.parametrize("of", ["bytes", "copy"])
def test_a_copy_of_a_file_keeps_its_weights(tmp_path, of):
    """Packed weights let the pages of a mapped file go; what is in memory has no file to be read from again."""
    torch = pytest.importorskip("torch")
    m, x = torch.nn.Linear(256, 256), torch.randn(64, 256)
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(m, (x,)), path)
    model = qkv.Model(path.read_bytes()) if of == "bytes" else qkv.Model(path, mmap=False)
    model.save(tmp_path / "before.pt2")
    for _ in range(2):
        session = model.session()
        for _ in range(3):
            y, = session.run([x.numpy()]).values()
            assert np.abs(y - m(x).detach().numpy()).max() < 1e-5
    model.save(tmp_path / "after.pt2")
    assert (tmp_path / "after.pt2").read_bytes() == (tmp_path / "before.pt2").read_bytes()


def test_rewriting(pixels):
    model = qkv.Model(DIGITS)
    before = model.run([pixels])["output_0"]
    report = model.rewrite(prove=True)
    assert report["attentions_left"] == 0 and report["attentions_fused"] == model.graph_text().count("= aten.scaled_dot_product_attention")
    assert np.abs(model.run([pixels])["output_0"] - before).max() < 1e-4
    assert pickle.loads(pickle.dumps(model)).graph_text() == model.graph_text()
    with pytest.raises(qkv.Error, match="no-such.rules"):
        model.rewrite(rules=["no-such.rules"])


def test_symbols_and_text(model):
    assert [lo for lo, _ in model.symbols.values()] == [1]
    assert "aten.scaled_dot_product_attention.default" in model.graph_text()


def test_kept_input():
    a, b = np.arange(6).reshape(2, 3), np.ones((2, 3), np.float32)
    full, kept = qkv.Model(TWO), qkv.Model(TWO)
    want = full.run({"a": a, "b": b})["output_0"]
    assert np.array_equal(kept.run({"a": a, "b": b}, keep=["a"])["output_0"], want)
    a[:] = 7  # the copy counts, not the caller's memory
    assert np.array_equal(kept.run({"b": b})["output_0"], want)
    assert np.array_equal(kept.run({"b": 2 * b})["output_0"], want + 1)
    assert np.array_equal(kept.run({"a": a, "b": b})["output_0"], 8 * b)
    with pytest.raises(qkv.Error, match="no input is called 'c'"):
        kept.run({"b": b}, keep="c")
    with pytest.raises(qkv.Error):  # another number of rows than a has
        kept.run({"b": b[:1]})
