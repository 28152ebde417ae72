"""ONNX files against the onnx package: tensors of every type in every form are read as it reads them,
and what is written is what it would write."""
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ml_dtypes = pytest.importorskip("ml_dtypes")
import qkv  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

TYPES = [n
         for n in ("FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 BOOL FLOAT16 DOUBLE UINT32 UINT64 BFLOAT16 "
                   "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ "
                   "UINT4 INT4 FLOAT4E2M1 FLOAT8E8M0 UINT2 INT2").split() if n in TensorProto.DataType.keys()]


def values(kind, shape):
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(kind))
    r = np.random.default_rng(3)
    n = int(np.prod(shape))
    if kind == "BOOL":
        return r.integers(0, 2, n).astype(bool).reshape(shape)
    if np.dtype(dtype).kind in "iu":
        return r.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, n, dtype=dtype, endpoint=True).reshape(shape)
    if "INT" in kind:
        info = ml_dtypes.iinfo(dtype)
        return r.integers(int(info.min), int(info.max) + 1, n).astype(dtype).reshape(shape)
    return np.abs(r.standard_normal(n)).astype(np.float32).astype(dtype).reshape(shape)


def model(tensors, path, **options):
    nodes = [helper.make_node("Identity", [t.name], [t.name + "_out"]) for t in tensors]
    outputs = [helper.make_tensor_value_info(t.name + "_out", t.data_type, list(t.dims)) for t in tensors]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13), path, **options)


def packed(a, bits):
    """Elements of few bits, low ones first, as bytes."""
    flat, out = a.reshape(-1).view(np.uint8) & (1 << bits) - 1, []
    for at in range(0, flat.size, 8 // bits):
        out.append(sum(int(x) << i * bits for i, x in enumerate(flat[at:at + 8 // bits])))
    return out


def typed(name, kind, a):
    """The same in int32_data, float_data ...: the form that older writers use."""
    t = TensorProto(name=name, data_type=TensorProto.DataType.Value(kind), dims=a.shape)
    flat = a.reshape(-1)
    if kind == "FLOAT":
        t.float_data.extend(flat.tolist())
    elif kind == "DOUBLE":
        t.double_data.extend(flat.tolist())
    elif kind == "INT64":
        t.int64_data.extend(flat.tolist())
    elif kind in ("UINT32", "UINT64"):
        t.uint64_data.extend(flat.tolist())
    elif kind in ("FLOAT16", "BFLOAT16"):
        t.int32_data.extend(flat.view(np.uint16).tolist())
    elif kind in ("UINT4", "INT4", "FLOAT4E2M1", "UINT2", "INT2"):
        t.int32_data.extend(packed(a, 2 if kind.endswith("2") else 4))
    elif kind.startswith("FLOAT8"):
        t.int32_data.extend(flat.view(np.uint8).tolist())
    else:
        t.int32_data.extend(flat.astype(np.int64).tolist())
    return t


def same(got, want):
    got = np.asarray(got)
    if got.dtype != want.dtype and got.dtype == np.float32:  # bfloat16
        want = want.astype(np.float32)
    assert got.dtype == want.dtype and got.shape == want.shape
    assert np.array_equal(got.astype(np.float64), want.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("form", ["raw", "typed", "external"])
def test_types(form, tmp_path):
    tensors, want = [], {}
    for kind in TYPES:
        for shape in ((3, 5), (), (0, 2), (1,)):
            name = f"{kind}_{'x'.join(map(str, shape))}"
            a = values(kind, shape)
            t = typed(name, kind, a) if form == "typed" else numpy_helper.from_array(a, name)
            assert t.data_type == TensorProto.DataType.Value(kind)
            same(numpy_helper.to_array(t), a)
            tensors.append(t)
            want[name + "_out"] = a
    outside = dict(save_as_external_data=True, location="data.bin", size_threshold=0,
                   convert_attribute=False) if form == "external" else {}
    model(tensors, tmp_path / "m.onnx", **outside)
    got = qkv.Model(tmp_path / "m.onnx").run_dlpack({})
    assert set(got) == set(want)
    for name, a in want.items():
        same(got[name], a)


@pytest.mark.parametrize("external", [False, True])
def test_written(external, tmp_path):
    """What qkv writes is byte for byte what protobuf would write of it, and the checker takes it."""
    tensors = [numpy_helper.from_array(values(k, (30, 40)), k.lower())
               for k in ("FLOAT", "INT64", "BFLOAT16", "DOUBLE")]
    model(tensors, tmp_path / "in.onnx")
    for n in ("a", "b"):
        qkv.Model(tmp_path / "in.onnx").save_onnx(tmp_path / f"{n}.onnx", opset=23, profile="spec",
                                                  external_data=external)
    path = tmp_path / "a.onnx"
    data = path.read_bytes()
    assert onnx.load(path, load_external_data=False).SerializeToString() == data
    onnx.checker.check_model(str(path), full_check=True)
    if not external:
        assert data == (tmp_path / "b.onnx").read_bytes() and not (tmp_path / "a.onnx.data").exists()
    loaded, again = onnx.load(path), qkv.Model(path).run_dlpack({})
    assert external == (tmp_path / "a.onnx.data").exists()
    held = {tuple(t.dims) + (t.data_type,): numpy_helper.to_array(t) for t in loaded.graph.initializer}
    for t in tensors:
        same(held[tuple(t.dims) + (t.data_type,)], numpy_helper.to_array(t))
    assert len(again) == len(tensors)


def test_same_refusals(tmp_path):
    """Data files that the onnx package refuses are refused here, too."""
    t = numpy_helper.from_array(values("FLOAT", (3, 5)), "w")
    (tmp_path / "in").mkdir()
    (tmp_path / "outside.bin").write_bytes(t.raw_data)
    (tmp_path / "in" / "link.bin").symlink_to(tmp_path / "outside.bin")
    (tmp_path / "in" / "hard.bin").hardlink_to(tmp_path / "outside.bin")
    for location in ("../outside.bin", str(tmp_path / "outside.bin"), "link.bin", "hard.bin", "missing.bin"):
        out = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3, 5], data_location=TensorProto.EXTERNAL)
        out.external_data.add(key="location", value=location)
        graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 5])], [out])
        path = tmp_path / "in" / "m.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)],
                                           ir_version=10).SerializeToString())
        with pytest.raises(Exception):
            onnx.load(path)
        with pytest.raises(qkv.Error) as e:
            qkv.Model(path)
        assert e.value.code == 3 and "external data" in str(e.value)
