"""A model called as a module is: inputs by position and name, results by both; repr, with, py.typed."""
import os
import pickle

import numpy as np
import pytest
import qkv

TWO = os.path.join(os.path.dirname(__file__), "..", "cli", "models", "two.pt2")
DIGITS = os.path.join(os.path.dirname(__file__), "..", "..", "demo", "digits_vit.pt2")


@pytest.fixture(scope="module")
def model():
    return qkv.Model(TWO)


@pytest.fixture
def feeds(model):
    random, sizes = np.random.default_rng(0), {s: low for s, (low, _) in model.symbols.items()}
    return {i["name"]: (random.random([sizes.get(n, n) for n in i["shape"]]) * 9).astype(i["dtype"].replace("i", "int")
            if i["dtype"][0] == "i" else np.float32) for i in model.describe()["inputs"]}


def test_call(model, feeds):
    first, second = model.inputs
    expected = model.run(feeds)
    for out in (model(*feeds.values()), model(feeds[first], **{second: feeds[second]}), model(**feeds)):
        assert list(out.names) == model.outputs == list(expected)
        for i, (name, value) in enumerate(zip(out.names, out)):  # by position, by name, unpacked
            assert np.array_equal(value, expected[name])
            assert out[i] is value and out[name] is value and out[f"output_{i}"] is value
            assert expected[i] is expected[name] is expected[f"output_{i}"] is expected.get(i)
        assert all(np.array_equal(v, expected[k]) for k, v in dict(out).items())
    with model.session() as s:
        assert np.array_equal(s(*feeds.values())[0], expected[0])
    assert "output_9" not in expected and expected.get("output_9", 5) == 5
    with pytest.raises(KeyError, match="the outputs are"):
        expected["logits_of_another"]
    again = pickle.loads(pickle.dumps(out))
    assert again.names == out.names and np.array_equal(again[0], out[0])


def test_wrong_calls(model, feeds):
    a = feeds[model.inputs[0]]
    with pytest.raises(qkv.Error, match="3 inputs were given, the model has 2"):
        model(a, a, a)
    with pytest.raises(qkv.Error, match=f"input '{model.inputs[0]}' was given by position and by name"):
        model(a, **{model.inputs[0]: a})
    with pytest.raises(qkv.Error, match="no input is called 'mask'"):
        model(a, mask=a)


def test_repr():
    text = repr(qkv.Model(DIGITS))
    assert text.startswith(f"qkv.Model('{DIGITS}')\n  inputs image f32[")
    assert "\n  outputs " in text and "\n  sizes " in text


def test_close():
    with qkv.Model(DIGITS) as model:
        pixels = np.zeros([n if isinstance(n, int) else 2 for n in model.describe()["inputs"][0]["shape"]], np.float32)
        model(pixels)
        own = model.session()
        with pytest.raises(qkv.Error, match="1 sessions of this model"):
            model.close()
        own.close()
    assert repr(model) == f"qkv.Model({DIGITS!r}, closed)"
    with pytest.raises(qkv.Error, match="this model is closed"):
        model(pixels)
    for use in (model.describe, model.graph_text, lambda: model.save("never.pt2"), model.session):
        with pytest.raises(qkv.Error):
            use()
    model.close()


def test_hints():
    import typing

    assert os.path.exists(os.path.join(os.path.dirname(qkv.__file__), "py.typed"))
    assert typing.get_type_hints(qkv.Model.__call__)["return"] is qkv.Outputs
    for f in (qkv.Model.__init__, qkv.Model.run, qkv.Model.describe, qkv.check, qkv.backends, qkv.generalize, qkv.joint,
              qkv.version, qkv.library_path):
        assert typing.get_type_hints(f), f


def test_commands(tmp_path, monkeypatch):
    import qkv_command

    found = qkv.commands()
    assert list(found)[0] == "inspect" and {"run", "convert", "bench", "help"} < set(found)
    assert found["run"] == "Run a model and write its outputs"
    monkeypatch.setattr(qkv_command, "PLACES", (str(tmp_path / "qkv"),))
    with pytest.raises(qkv.Error, match="the command is not in .*; `make` builds it, and a wheel holds it"):
        qkv.commands()
