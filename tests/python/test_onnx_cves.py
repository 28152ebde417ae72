"""What went wrong in the onnx package, by its number, tried on qkv: reading, checking, and writing."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))
import qkv  # noqa: E402

QKV = os.environ.get("QKV", str(HERE.parents[1] / "build" / "qkv"))
SECRET = np.arange(4, dtype=np.float32)


def model_with(keys, nodes=None, functions=()):
    """x + w, where w lies in another file; keys: its external_data."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in keys.items():
        w.external_data.add(key=key, value=value)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    graph = helper.make_graph(nodes or [helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y],
                              [w] if keys else [])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=functions)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    return tmp_path


def refused(place, model, code=3):
    """The sentence with which every way of opening the file ends."""
    path = place / "model" / "m.onnx"
    path.write_bytes(model.SerializeToString())
    said = []
    for words in (["inspect"], ["run"], ["convert", "-o", str(place / "out.onnx")], ["graph"]):
        done = subprocess.run([QKV, words[0], str(path), *words[1:]], capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done
        said.append(done.stderr)
    with pytest.raises(qkv.Error):
        qkv.Model(str(path))
    assert not (place / "out.onnx").exists()
    return said[0]


@pytest.mark.parametrize("location", ["../secret.bin", "sub/../../secret.bin", "./../secret.bin", "{absolute}"])
def test_cve_2022_25882_and_2024_27318_names_that_leave_the_folder(place, location):
    (place / "model" / "sub").mkdir()
    said = refused(place, model_with({"location": location.format(absolute=place / "secret.bin")}))
    assert "leaves the model's folder" in said or "absolute" in said


@pytest.mark.parametrize("way", ["w.bin", "way/secret.bin"])
def test_cve_2026_27489_symbolic_links(place, way):
    (place / "model" / "w.bin").symlink_to("../secret.bin")
    (place / "model" / "way").symlink_to("..")
    assert "is a symbolic link" in refused(place, model_with({"location": way}))


def test_cve_2026_34446_hard_links(place):
    os.link(place / "secret.bin", place / "model" / "w.bin")
    assert "hard link" in refused(place, model_with({"location": "w.bin"}))


@pytest.mark.parametrize("keys", [
    {"location": "w.bin", "basepath": "/etc"}, {"location": "w.bin", "__class__": "x"},
    {"location": "w.bin", "length": str(1 << 62)}, {"location": "w.bin", "offset": str(1 << 63), "length": "16"},
    {"location": "w.bin", "offset": "-8"}, {"location": "w.bin", "length": "1e9"},
], ids=lambda keys: "_".join(list(keys)[1:]))
def test_cve_2026_34445_keys_of_external_data(place, keys):
    """Any key became an attribute of a Python object there, and a length an allocation."""
    (place / "model" / "w.bin").write_bytes(SECRET.tobytes())
    refused(place, model_with(keys))


def test_cve_2025_51480_a_name_in_the_model_does_not_choose_where_is_written(place):
    """onnx.save_external_data wrote to the location that the model names."""
    model = model_with({"location": "../over.bin"})
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(SECRET, "../../over"))
    model.graph.node[0].input[1] = "../../over"
    path = place / "model" / "m.onnx"
    path.write_bytes(model.SerializeToString())
    before = sorted(p for p in place.rglob("*"))
    done = subprocess.run([QKV, "convert", str(path), "--external-data", "-o", str(place / "model" / "out.onnx")],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    made = {p.name for p in place.rglob("*")} - {p.name for p in before}
    assert made <= {"out.onnx", "out.onnx.data"} and not list(place.parent.glob("over*"))


def test_ghsa_7w46_functions_that_call_each_other(place):
    def function(name, calls):
        body = [helper.make_node(calls, ["a"], ["b"], domain="local")]
        return helper.make_function("local", name, ["a"], ["b"], body, [helper.make_opsetid("local", 1)])
    node = helper.make_node("F", ["x"], ["y"], domain="local")
    said = refused(place, model_with({}, [node], [function("F", "G"), function("G", "F")]), code=5)
    assert "do they call each other?" in said
    assert said.count("node '") == 2 and said.count("function '") == 1, said  # the outermost and the innermost
