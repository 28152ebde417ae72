"""qkv check against onnx.checker: valid models, and models that one edit made wrong.
Every finding is made by a test here or in test_check_pt2.py."""
import os
import pathlib
import re
import time

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
import qkv  # noqa: E402
from onnx import TensorProto as T, helper as h, numpy_helper  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HIT = set()


def weight(name, *shape, dtype=np.float32, seed=0):
    return numpy_helper.from_array(np.random.default_rng(seed).standard_normal(shape).astype(dtype), name)


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, dtype=np.int64), name)


def value(name, *shape, elem=T.FLOAT):
    return h.make_tensor_value_info(name, elem, shape)


def model(nodes, inputs, outputs, init=(), opset=18, info=(), ir=10, functions=(), domains=()):
    graph = h.make_graph(nodes, "g", inputs, outputs, list(init), value_info=list(info))
    imports = [h.make_opsetid("", opset)] + [h.make_opsetid(d, v) for d, v in domains]
    return h.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))


def mlp():
    """x (b, 4) -> y (b, 3), and a cast, a reshape, a softmax between."""
    nodes = [h.make_node("MatMul", ["x", "w"], ["h"], name="first"), h.make_node("Add", ["h", "b"], ["s"], name="bias"),
             h.make_node("Softmax", ["s"], ["p"], name="soft", axis=-1),
             h.make_node("Reshape", ["p", "shape"], ["y"], name="flat")]
    return model(nodes, [value("x", "n", 4)], [value("y", "n", 3)],
                 [weight("w", 4, 3), weight("b", 3), ints("shape", -1, 3)], info=[value("h", "n", 3)])


def attention(mask=("b", 1, "s", "s"), elem=T.FLOAT, opset=23, **attributes):
    nodes = [h.make_node("Attention", ["q", "k", "v", "m"], ["y"], name="attend", **attributes)]
    q = [value(n, "b", 4, "s", 32, elem=elem) for n in "qkv"]
    return model(nodes, q + [value("m", *mask, elem=T.BOOL)], [value("y", "b", 4, "s", 32, elem=elem)], opset=opset)


def padded(fill, opset=18, guard=False):
    """softmax(where(keep, q k^T, fill)) v, the classical key padding mask."""
    nodes = [h.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), h.make_node("MatMul", ["q", "t"], ["s"]),
             h.make_node("Where", ["m", "s", "fill"], ["f"], name="fill_in"),
             h.make_node("Softmax", ["f"], ["p"], name="soft", axis=-1), h.make_node("MatMul", ["p", "v"], ["y"])]
    q = [value(n, "b", 4, "s", 32) for n in "qkv"]
    return model(nodes, q + [value("m", "b", 1, 1, "s", elem=T.BOOL)], [value("y", "b", 4, "s", 32)],
                 [numpy_helper.from_array(np.float32(fill), "fill")], opset=opset)


def branches():
    then = h.make_graph([h.make_node("Neg", ["x"], ["a"])], "then", [], [value("a", "n")])
    other = h.make_graph([h.make_node("Abs", ["x"], ["c"])], "else", [], [value("c", "n")])
    return model([h.make_node("If", ["cond"], ["y"], name="choose", then_branch=then, else_branch=other)],
                 [value("cond", elem=T.BOOL), value("x", "n")], [value("y", "n")])


def function(op="Relu", version=18):
    f = h.make_function("mine", "f", ["a"], ["c"], [h.make_node(op, ["a"], ["c"])], [h.make_opsetid("", version)])
    return model([h.make_node("f", ["x"], ["y"], domain="mine", name="call")], [value("x", "n")], [value("y", "n")],
                 functions=[f], domains=[("mine", 1)])


def sparse_and_optional():
    nodes = [h.make_node("Clip", ["x", "", "top"], ["c"]), h.make_node("Dropout", ["c"], ["y", ""])]
    return model(nodes, [value("x", "n", 2)], [value("y", "n", 2)], [numpy_helper.from_array(np.float32(1), "top")])


VALID = {"mlp": mlp, "attention": attention, "padded": lambda: padded(-1e9), "branches": branches,
         "function": function, "optional": sparse_and_optional,
         "old": lambda: model([h.make_node("Dropout", ["x"], ["y"], ratio=0.5)], [value("x", "n")], [value("y", "n")],
                              opset=7, ir=3)}


def run(m, tmp_path, **options):
    path = tmp_path / "m.onnx"
    path.write_bytes(m if isinstance(m, bytes) else m.SerializeToString())
    report = qkv.check(path, **options)
    HIT.update(f["id"] for f in report.findings)
    return report


def refused(m, folder=None):
    """What onnx.checker has against it, or None."""
    try:
        if folder:
            onnx.checker.check_model(str(folder / "m.onnx"), full_check=True)
        else:
            onnx.checker.check_model(m, full_check=True)
    except Exception as e:
        return str(e) or type(e).__name__
    return None


@pytest.mark.parametrize("name", VALID)
def test_valid(name, tmp_path):
    m = VALID[name]()
    assert refused(m) is None
    report = run(m, tmp_path)
    assert report and not report.warnings, str(report)


# ------------------------------------------------------------------ one edit each: (what, finding, model, edit);
# "more": onnx.checker takes it


def node(m, name): return next(n for n in m.graph.node if n.name == name)
def put(m, **fields): [setattr(m, k, v) for k, v in fields.items()]


def rename_output(m, name, to):
    for n in m.graph.node:
        n.output[:] = [to if o == name else o for o in n.output]


def swap(m):
    nodes = list(m.graph.node)[::-1]
    del m.graph.node[:]
    m.graph.node.extend(nodes)


def retype(m, name, elem):
    next(v for v in [*m.graph.input, *m.graph.output, *m.graph.value_info]
         if v.name == name).type.tensor_type.elem_type = elem


def reshape_info(m, name, *shape):
    v = next(v for v in [*m.graph.input, *m.graph.output, *m.graph.value_info] if v.name == name)
    v.CopyFrom(value(name, *shape, elem=v.type.tensor_type.elem_type))


def replace_weight(m, name, t):
    next(i for i in m.graph.initializer if i.name == name).CopyFrom(t)


def recursion(m):
    f = m.functions[0]
    f.opset_import.append(h.make_opsetid("mine", 1))
    f.node[0].CopyFrom(h.make_node("f", ["a"], ["c"], domain="mine"))


EDITS = [
    ("unknown op", "Q101", mlp, lambda m: put(node(m, "soft"), op_type="Softmux")),
    ("op of another domain", "Q102", mlp, lambda m: (put(node(m, "soft"), domain="mine"),
                                                     m.opset_import.append(h.make_opsetid("mine", 1))), "more"),
    ("attribute missing", "Q103", lambda: model([h.make_node("Cast", ["x"], ["y"], to=1)], [value("x", 2)],
                                                [value("y", 2)]), lambda m: m.graph.node[0].ClearField("attribute")),
    ("input left out", "Q103", mlp, lambda m: node(m, "first").input.__setitem__(1, "")),
    ("attribute unknown", "Q104", mlp, lambda m: node(m, "soft").attribute.append(h.make_attribute("axes", 1))),
    ("attribute of a later version", "Q104", lambda: attention(opset=23),
     lambda m: node(m, "attend").attribute.append(h.make_attribute("left_window_size", 4))),
    ("attribute kind", "Q105", mlp, lambda m: node(m, "soft").attribute[0].CopyFrom(h.make_attribute("axis", [1]))),
    ("attribute kind float", "Q105", mlp,
     lambda m: node(m, "soft").attribute[0].CopyFrom(h.make_attribute("axis", 1.0))),
    ("attribute twice", "Q106", mlp, lambda m: node(m, "soft").attribute.append(h.make_attribute("axis", 1))),
    ("too many inputs", "Q107", mlp, lambda m: node(m, "soft").input.append("b")),
    ("too few inputs", "Q107", mlp, lambda m: node(m, "first").input.pop()),
    ("too many outputs", "Q107", mlp, lambda m: node(m, "soft").output.append("extra")),
    ("nothing in or out", "Q107", mlp, lambda m: m.graph.node.append(h.make_node("Relu", [], []))),
    ("undefined", "Q108", mlp, lambda m: node(m, "bias").input.__setitem__(0, "nowhere")),
    ("undefined in a branch", "Q108", branches, lambda m: m.graph.node[0].attribute[0].g.node[0].input.__setitem__(0,
        "nowhere")),
    ("used before", "Q109", mlp, swap),
    ("own output", "Q109", mlp, lambda m: node(m, "bias").input.__setitem__(0, "s")),
    ("defined twice", "Q110", mlp, lambda m: rename_output(m, "s", "h")),
    ("weight's name defined again", "Q110", mlp, lambda m: rename_output(m, "s", "w")),
    ("inputs of one name", "Q110", mlp, lambda m: m.graph.input.append(value("x", 2))),
    ("weights of one name", "Q110", mlp, lambda m: m.graph.initializer.append(weight("w", 4, 3))),
    ("a branch shadows", "Q110", branches, lambda m: (m.graph.node[0].attribute[0].g.node[0].output.__setitem__(0,
        "x"), put(m.graph.node[0].attribute[0].g.output[0], name="x"))),
    ("functions of one name", "Q110", function, lambda m: m.functions.append(m.functions[0])),
    ("output not computed", "Q111", mlp, lambda m: put(m.graph.output[0], name="nowhere")),
    ("output of a branch from outside", "Q111", branches,
     lambda m: put(m.graph.node[0].attribute[0].g.output[0], name="x")),
    ("graph without a name", "Q112", mlp, lambda m: put(m.graph, name="")),
    ("op without a name", "Q112", mlp, lambda m: put(node(m, "soft"), op_type="")),
    ("weight without a name", "Q112", mlp, lambda m: put(m.graph.initializer[0], name="")),
    ("attribute without a name", "Q112", mlp, lambda m: put(node(m, "soft").attribute[0], name="")),
    ("input without a type", "Q114", mlp, lambda m: m.graph.input[0].ClearField("type")),
    ("input without an element type", "Q114", mlp, lambda m: m.graph.input[0].type.tensor_type.ClearField("elem_type")),
    ("input without a shape", "Q114", mlp, lambda m: m.graph.input[0].type.tensor_type.ClearField("shape")),
    ("attribute without a type", "Q114", mlp, lambda m: node(m, "soft").attribute[0].ClearField("type")),
    ("attribute refers to nothing", "Q114", mlp, lambda m: (node(m, "soft").attribute[0].ClearField("i"),
                                                            put(node(m, "soft").attribute[0], ref_attr_name="a")),
     "more"),
    ("old IR without inputs for weights", "Q114", mlp, lambda m: put(m, ir_version=3)),
    ("recursive function", "Q118", function, recursion),
    ("heads 0", "Q120", lambda: attention(q_num_heads=4, kv_num_heads=4),
     lambda m: put(node(m, "attend").attribute[0], i=0), "more"),
    ("heads 2^31", "Q120", lambda: attention(q_num_heads=4, kv_num_heads=4),
     lambda m: put(node(m, "attend").attribute[0], i=1 << 31), "more"),
    ("scale NaN", "Q120", lambda: attention(scale=1.0), lambda m: put(node(m, "attend").attribute[0], f=float("nan")),
     "more"),
    ("softcap infinite", "Q120", lambda: attention(softcap=1.0),
     lambda m: put(node(m, "attend").attribute[0], f=float("inf")), "more"),
    ("Cast to nothing", "Q120", lambda: model([h.make_node("Cast", ["x"], ["y"], to=1)], [value("x", 2)],
                                              [value("y", 2)]), lambda m: put(m.graph.node[0].attribute[0], i=99)),
    ("domain not imported", "Q121", function, lambda m: m.opset_import.pop()),
    ("nothing imported", "Q121", mlp, lambda m: m.ClearField("opset_import")),
    ("opset 0", "Q122", mlp, lambda m: put(m.opset_import[0], version=0)),
    ("opset 10^9", "Q122", mlp, lambda m: put(m.opset_import[0], version=10**9), "more"),
    ("IR version missing", "Q123", mlp, lambda m: m.ClearField("ir_version")),
    ("IR version 99", "Q123", mlp, lambda m: put(m, ir_version=99)),
    ("deprecated op", "Q124", lambda: model([h.make_node("Upsample", ["x", "k"], ["y"], mode="nearest")],
                                            [value("x", 1, 1, 2, 2)], [value("y", 1, 1, 4, 4)], [weight("k", 4)],
                                            opset=9),
     lambda m: put(m.opset_import[0], version=10)),
    ("op newer than the opset", "Q125", attention, lambda m: put(m.opset_import[0], version=22)),
    ("domain imported twice", "Q126", mlp, lambda m: m.opset_import.append(h.make_opsetid("", 17)), "more"),
    ("metadata twice", "Q126", mlp, lambda m: m.metadata_props.extend([onnx.StringStringEntryProto(key="a",
        value="1"), onnx.StringStringEntryProto(key="a", value="2")])),
    ("function of another opset", "Q128", lambda: function("Gelu", 20), lambda m: None),
    ("declared type", "Q201", mlp, lambda m: retype(m, "h", T.DOUBLE)),
    ("declared output type", "Q201", mlp, lambda m: retype(m, "y", T.INT64)),
    ("declared rank", "Q202", mlp, lambda m: reshape_info(m, "h", "n", 3, 1)),
    ("declared size", "Q203", mlp, lambda m: reshape_info(m, "h", "n", 5)),
    ("matmul sizes", "Q204", mlp, lambda m: replace_weight(m, "w", weight("w", 5, 3))),
    ("broadcast sizes", "Q204", mlp, lambda m: replace_weight(m, "b", weight("b", 2))),
    ("axis out of range", "Q204", mlp, lambda m: put(node(m, "soft").attribute[0], i=7)),
    ("reshape", "Q204", lambda: model([h.make_node("Reshape", ["x", "s"], ["y"])], [value("x", 2, 3)],
                                      [value("y", 3, 2)], [ints("s", 3, 2)]),
     lambda m: (replace_weight(m, "s", ints("s", 4, 2)), reshape_info(m, "y", 4, 2)), "more"),
    ("concat sizes", "Q204", lambda: model([h.make_node("Concat", ["x", "z"], ["y"], axis=0)],
                                           [value("x", 2, 3), value("z", 2, 3)], [value("y", 4, 3)]),
     lambda m: reshape_info(m, "z", 2, 4)),
    ("perm", "Q204", lambda: model([h.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], [value("x", 2, 3)],
                                   [value("y", 3, 2)]), lambda m: m.graph.node[0].attribute[0].ints.__setitem__(0, 0)),
    ("gemm ranks", "Q204", lambda: model([h.make_node("Gemm", ["x", "w"], ["y"])], [value("x", "n", 4)],
                                         [value("y", "n", 3)], [weight("w", 4, 3)]),
     lambda m: reshape_info(m, "x", "n", 2, 4)),
    ("inputs of two types", "Q205", mlp, lambda m: replace_weight(m, "w", weight("w", 4, 3, dtype=np.float64))),
    ("a type that the op does not take", "Q205", mlp, lambda m: retype(m, "x", T.BOOL)),
    ("size -1", "Q206", mlp, lambda m: reshape_info(m, "x", -1, 4), "more"),
    ("input and weight differ", "Q303", mlp, lambda m: m.graph.input.append(value("w", 4, 9))),
]


@pytest.mark.parametrize("case", EDITS, ids=lambda c: c[0])
def test_edit(case, tmp_path):
    what, finding, make, edit, *more = case
    m = make()
    edit(m)
    report, problem = run(m, tmp_path), refused(m)
    assert finding in {f["id"] for f in report.findings}, f"{report}; onnx.checker: {problem}"
    assert (problem is None) == bool(more), problem
    if problem:
        assert not report


OPS = ("Abs Add And Cast Clip Concat Equal Exp Gather Gemm Identity MatMul Mul Neg Not Pow Relu Reshape Softmax "
       "Sqrt Squeeze Sub Transpose Unsqueeze Where".split())


def mutate(m, rng):
    """One random edit of a model."""
    g, n = m.graph, m.graph.node[rng.integers(len(m.graph.node))]
    values = [*g.input, *g.output, *g.value_info]
    v = values[rng.integers(len(values))]
    dims = v.type.tensor_type.shape.dim
    pick = lambda items: items[rng.integers(len(items))]
    match rng.integers(18):
        case 0: n.attribute and n.attribute.pop()
        case 1: n.attribute.append(h.make_attribute(pick(["axis", "to", "zzz", "perm"]), pick([1, 1.5, "a"])))
        case 2 if n.input: n.input[rng.integers(len(n.input))] = pick(["", "nowhere", n.output[0]])
        case 3: n.input and n.input.pop()
        case 4: n.input.append(g.input[0].name)
        case 5: n.output.append("extra")
        case 6: n.op_type = pick(OPS)
        case 7: m.opset_import[0].version = int(rng.integers(1, 28))
        case 8: v.type.tensor_type.elem_type = int(pick([1, 6, 7, 9, 10, 11]))
        case 9 if dims: pick(dims).dim_value = int(rng.integers(0, 7))
        case 10 if dims: dims.pop()
        case 11: dims.add().dim_value = 2
        case 12: n.output[0] = g.input[0].name
        case 13: g.node.append(n)
        case 14: g.node.remove(n)
        case 15: del g.input[rng.integers(len(g.input))]
        case 16 if n.attribute and n.attribute[0].type == 2: n.attribute[0].i = int(pick([-9, -1, 0, 1, 3, 9]))
        case 17: m.ir_version = int(pick([1, 2, 3, 9, 15]))


def test_random_edits(tmp_path):
    """What onnx.checker refuses is an error."""
    rng, agreed, missed = np.random.default_rng(0), 0, []
    makers = list(VALID.values())
    for i in range(600):
        m = makers[rng.integers(len(makers))]()
        mutate(m, rng)
        problem = refused(m)
        if problem and run(m, tmp_path):
            missed.append((i, problem))
        agreed += bool(problem)
    assert agreed > 300 and not missed, missed[:10]


def external(location, tmp_path):
    m = mlp()
    t = m.graph.initializer[0]
    raw = t.raw_data
    t.ClearField("raw_data")
    t.data_location = T.EXTERNAL
    t.external_data.append(onnx.StringStringEntryProto(key="location", value=location))
    return m, raw


@pytest.mark.parametrize("kind", ["up", "absolute", "link", "hard link", "missing", "good"])
def test_external_data(kind, tmp_path):
    m, raw = external({"up": "../w.bin", "absolute": str(tmp_path / "w.bin")}.get(kind, "w.bin"), tmp_path)
    folder = tmp_path / "model"
    folder.mkdir()
    other = tmp_path / "w.bin"
    other.write_bytes(raw)
    if kind == "link":
        (folder / "w.bin").symlink_to(other)
    elif kind == "hard link":
        os.link(other, folder / "w.bin")
    elif kind == "good":
        (folder / "w.bin").write_bytes(raw)
    report = run(m, folder, security=True)
    problem = refused(m, folder)
    assert bool(report) == (problem is None) == (kind == "good"), f"{report}; {problem}"
    if kind != "good":
        assert {"missing": "Q302"}.get(kind, "Q912") in {f["id"] for f in report.findings}, str(report)


def tensor(m, **fields):
    t = m.graph.initializer[0]
    for k, v in fields.items():
        t.ClearField(k)
        if isinstance(v, (list, tuple)):
            getattr(t, k).extend(v)
        elif v is not None:
            setattr(t, k, v)


@pytest.mark.parametrize("fields", [{"raw_data": b"\0" * 8}, {"dims": [1 << 40, 1 << 40]}, {"dims": [-1, 3]},
                                    {"data_type": None}, {"data_type": 0}, {"float_data": [1.0]}, {"data_type": 8}],
                         ids=str)
def test_damaged_tensors_cannot_be_read(fields, tmp_path):
    m = mlp()
    tensor(m, **fields)
    report = run(m, tmp_path)
    assert refused(m) and not report and "Q100" in {f["id"] for f in report.errors}, str(report)


def test_every_prefix_of_a_file(tmp_path):
    data = mlp().SerializeToString()
    for n in range(0, len(data), 3):
        report = run(data[:n], tmp_path)
        assert not report, n


def calls(n, callee, twice=False):
    """n functions, each calling callee(i) once or twice."""
    def body(i):
        if callee(i) is None:
            return [h.make_node("Relu", ["a"], ["b"])]
        first = h.make_node(callee(i), ["a"], ["c" if twice else "b"], domain="mine")
        return [first, h.make_node(callee(i), ["c"], ["b"], domain="mine")] if twice else [first]

    functions = [h.make_function("mine", f"f{i}", ["a"], ["b"], body(i),
                                 [h.make_opsetid("mine", 1), h.make_opsetid("", 18)]) for i in range(n)]
    return model([h.make_node("f0", ["x"], ["y"], domain="mine")], [value("x", 2)], [value("y", 2)],
                 functions=functions, domains=[("mine", 1)])


def nested(depth):
    g = h.make_graph([h.make_node("Relu", ["x"], ["z"])], "leaf", [], [value("z", 2)])
    for i in range(depth):
        g = h.make_graph([h.make_node("If", ["c"], [f"z{i}"], name="if", then_branch=g,
                                      else_branch=h.make_graph([h.make_node("Relu", ["x"], ["w"])], "e", [],
                                                               [value("w", 2)]))], "g", [], [value(f"z{i}", 2)])
    return model(list(g.node), [value("x", 2), value("c", elem=T.BOOL)], [value(f"z{depth - 1}", 2)])


HOSTILE = {
    "functions that double": lambda: calls(60, lambda i: f"f{i + 1}" if i < 59 else None, twice=True),
    "a circle of functions": lambda: calls(3000, lambda i: f"f{(i + 1) % 3000}"),
    "a chain of functions": lambda: calls(3000, lambda i: f"f{i + 1}" if i < 2999 else None),
    "graphs in graphs": lambda: nested(31),
    "50 000 undefined values": lambda: model([h.make_node("Relu", [f"u{i}"], [f"x{i}"]) for i in range(50000)],
                                             [value("x", 2)], [value("x1", 2)]),
    "one output 50 000 times": lambda: model([h.make_node("Relu", ["x"], ["y"], name="n") for i in range(50000)],
                                             [value("x", 2)], [value("y", 2)]),
    "20 000 attributes": lambda: model([h.make_node("Relu", ["x"], ["y"], **{f"a{i}": i for i in range(20000)})],
                                       [value("x", 2)], [value("y", 2)]),
    "20 000 inputs": lambda: model([h.make_node("Sum", [f"i{k}" for k in range(20000)], ["y"])],
                                   [value(f"i{k}", 2) for k in range(20000)], [value("y", 2)]),
    "a name of a megabyte": lambda: model([h.make_node("R" * 1000000, ["x"], ["y"])], [value("x", 2)], [value("y", 2)]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_soon(name, tmp_path):
    m = HOSTILE[name]()
    start = time.process_time()
    report = run(m, tmp_path, security=True, full=True)
    assert time.process_time() - start < 2
    assert report.findings and all(len(str(f)) < 5000 for f in report.findings)


def test_finds_more_than_errors(tmp_path):
    def ids(m, **options):
        return {f["id"] for f in run(m, tmp_path, **options).findings}

    m = mlp()
    m.graph.initializer.append(weight("never", 3))
    m.graph.input.append(value("spare", 2))
    m.graph.node.append(h.make_node("Neg", ["h"], ["dead"], name="first"))
    m.graph.value_info.append(value("ghost", 2))
    assert {"Q113", "Q115", "Q116", "Q119", "Q307"} <= ids(m)
    m = mlp()
    w = np.ones((4, 3), np.float32)
    w[0, 0] = np.nan
    replace_weight(m, "w", numpy_helper.from_array(w, "w"))
    assert "Q304" in ids(m)
    w[0, 0] = np.inf
    replace_weight(m, "w", numpy_helper.from_array(w, "w"))
    assert "Q305" in ids(m)
    m = mlp()
    m.graph.input[0].name = m.graph.node[0].input[0] = "my input"
    assert "Q127" in ids(m)
    assert "Q501" in ids(padded(-np.inf)) and "Q502" in ids(padded(-1e9)) and "Q503" in ids(attention())
    copies = [h.make_node("MatMul", ["x", "w"], ["h"]), h.make_node("MatMul", ["h", "u"], ["y"])]
    m = model(copies, [value("x", "n", 32)], [value("y", "n", 32)], [weight("w", 32, 32), weight("u", 32, 32)])
    assert "Q306" in ids(m)


def test_what_is_said_of_masked_rows():
    """Q501 to Q503, by ONNX Runtime: a row without an allowed key is NaN, the average of all values, or 0."""
    ort = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 4, 3, 32)).astype(np.float32) for _ in range(3))
    keep = np.ones((2, 1, 1, 3), bool)
    keep[1] = False

    def y(m, mask):
        return ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None,
            {"q": q, "k": k, "v": v, "m": mask})[0]

    assert np.isnan(y(padded(-np.inf), keep)[1]).all() and np.isfinite(y(padded(-np.inf), keep)[0]).all()
    assert np.allclose(y(padded(-1e9), keep)[1], v[1].mean(1, keepdims=True), atol=1e-5)
    assert (y(attention(), np.broadcast_to(keep, (2, 1, 3, 3)))[1] == 0).all()
    with pytest.raises(Exception, match="q_sequence_length"):  # Q603
        y(attention(mask=("b", 1, 1, "s")), keep)


def test_hidden_names(tmp_path):
    m = branches()
    m.graph.node[0].attribute[0].g.initializer.append(weight("x", 2))
    assert "Q129" in {f["id"] for f in run(m, tmp_path).findings}


@pytest.mark.turns
def test_torch_exports(tmp_path):
    """nn.TransformerEncoder with a padding mask, as torch.onnx.export writes it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    encoder = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder

        def forward(self, x, mask):
            return self.encoder(x, src_key_padding_mask=mask)

    b, s = torch.export.Dim("b", min=2, max=8), torch.export.Dim("s", min=2, max=64)
    for opset, finding in ((18, "Q501"), (23, "Q503")):
        path = tmp_path / f"{opset}.onnx"
        torch.onnx.export(Model(), (torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)), str(path),
                          dynamo=True, opset_version=opset, verbose=False,
                          dynamic_shapes={"x": {0: b, 1: s}, "mask": {0: b, 1: s}})
        onnx.checker.check_model(str(path), full_check=True)
        report = qkv.check(path)
        assert report and finding in {f["id"] for f in report.findings}, str(report)
    assert "Q603" in {f["id"] for f in qkv.check(path, target="ort").errors}


def test_baked_sizes(tmp_path):
    def shaped(*target, out):
        return model([h.make_node("Reshape", ["x", "s"], ["y"], name="view")], [value("x", "batch", "seq", 32)],
                     [value("y", *out)], [ints("s", *target)])

    def ids(m):
        return {f["id"] for f in run(m, tmp_path).findings}

    assert "Q402" in ids(shaped(2, -1, 4, 8, out=(2, None, 4, 8)))
    assert "Q401" in ids(shaped(2, 5, 4, 8, out=(2, 5, 4, 8)))
    assert not {"Q401", "Q402"} & ids(shaped(0, 0, 4, 8, out=("batch", "seq", 4, 8)))
    assert not {"Q401", "Q402"} & ids(shaped(-1, 32, out=(None, 32)))
    fixed = model([h.make_node("Relu", ["x"], ["y"])], [value("x", 1, "seq", 32)], [value("y", 1, "seq", 32)])
    assert "Q403" in ids(fixed)
    fixed = model([h.make_node("Relu", ["x"], ["y"])], [value("x", 1, 3)], [value("y", 1, 3)])
    assert "Q404" in ids(fixed)


def test_targets(tmp_path):
    def ids(m, target):
        return {f["id"] for f in run(m, tmp_path, target=target).findings}

    assert "Q603" in ids(attention(mask=("b", 1, 1, "s")), "ort") and "Q603" not in ids(attention(), "ort")
    assert "Q603" not in ids(attention(mask=("b", 1, 1, "s")), "openvino")
    assert "Q604" in ids(attention(), "tensorrt")
    assert "Q602" in ids(attention(elem=T.BFLOAT16), "ort") or "Q602" in ids(model([h.make_node("MatMul", ["x", "x"],
        ["y"])], [value("x", 2, 2, elem=T.BFLOAT16)], [value("y", 2, 2, elem=T.BFLOAT16)]), "ort")
    assert "Q607" in ids(model([h.make_node("Neg", ["x"], ["y"])], [value("x", 2, elem=T.DOUBLE)],
                               [value("y", 2, elem=T.DOUBLE)]), ["tensorrt"])
    assert "Q602" in ids(model([h.make_node("Neg", ["x"], ["y"])], [value("x", 2, elem=T.INT16)],
                               [value("y", 2, elem=T.INT16)]), ["tensorrt"])
    gelu = model([h.make_node("FastGelu", ["x"], ["y"], domain="com.microsoft")], [value("x", "n", 4)],
                 [value("y", "n", 4)], domains=[("com.microsoft", 1)])
    assert "Q601" in ids(gelu, "tensorrt") and not {"Q601", "Q602"} & ids(gelu, "ort")
    assert "Q606" in ids(model([h.make_node("Relu", ["x"], ["y"])], [value("x", 2)], [value("y", 2)], opset=28), "ort")
    with pytest.raises(qkv.Error):
        qkv.check("m.onnx", target="nowhere")


@pytest.mark.parametrize("rows", [4, "b"])
@pytest.mark.parametrize("op, zero", [("QuantizeLinear", True), ("QuantizeLinear", False), ("DequantizeLinear", False)])
def test_blocks_for_openvino(op, zero, rows, tmp_path):
    """What the checker says of them is what OpenVINO says."""
    openvino = pytest.importorskip("openvino")
    to, of = (T.INT8, T.FLOAT) if op[0] == "Q" else (T.FLOAT, T.INT8)
    node = h.make_node(op, ["x", "s", "z"][:2 + zero], ["y"], axis=1, block_size=32,
                       **({"output_dtype": T.INT8} if op[0] == "Q" else {}))
    scales = [value("s", rows, 2)] + ([value("z", rows, 2, elem=T.INT8)] if zero else [])
    m = model([node], [value("x", rows, 64, elem=of), *scales], [value("y", rows, 64, elem=to)], opset=21)
    core, loads = openvino.Core(), True
    try:
        core.compile_model(core.read_model(m.SerializeToString()), "CPU")
    except RuntimeError:
        loads = False
    ids = {f["id"] for f in run(m, tmp_path, target="openvino").findings}
    assert ("Q608" not in ids) == loads == (rows == 4 and (zero or op[0] == "D"))
    assert "Q608" not in {f["id"] for f in run(m, tmp_path, target="ort").findings}


def test_a_nan_that_is_chosen(tmp_path):
    nan = h.make_tensor("nan", T.FLOAT, [], [float("nan")])
    where = h.make_node("Where", ["c", "nan", "x"], ["y"])
    ins, outs = [value("x", "n"), value("c", "n", elem=T.BOOL)], [value("y", "n")]
    assert "Q304" not in {f["id"] for f in run(model([where], ins, outs, [nan]), tmp_path).findings}
    qkv.Model(tmp_path / "m.onnx").save(tmp_path / "m.pt2")
    assert "Q304" not in {f["id"] for f in qkv.check(tmp_path / "m.pt2").findings}
    add = h.make_node("Add", ["y", "nan"], ["z"])
    assert "Q304" in {f["id"] for f in run(model([where, add], ins, [value("z", "n")], [nan]), tmp_path).findings}
    qkv.Model(tmp_path / "m.onnx").save(tmp_path / "m.pt2")
    assert "Q304" in {f["id"] for f in qkv.check(tmp_path / "m.pt2").findings}
    mixed = h.make_tensor("nan", T.FLOAT, [2], [float("nan"), 1])
    assert "Q304" in {f["id"] for f in run(model([where], [value("x", 2), value("c", 2, elem=T.BOOL)], [value("y", 2)],
                                                 [mixed]), tmp_path).findings}


def test_ort_loads_what_the_target_allows(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    for elem in (T.FLOAT, T.FLOAT16, T.BFLOAT16, T.DOUBLE, T.INT32, T.INT8, T.UINT8, T.BOOL):
        for op, n in (("MatMul", 2), ("Add", 2), ("Softmax", 1), ("Relu", 1), ("Gather", 2), ("Where", 3),
                      ("LayerNormalization", 2)):
            names = ["x", "z", "u"][:n]
            kinds = {"Gather": [elem, T.INT64], "Where": [T.BOOL, elem, elem]}.get(op, [elem] * n)
            m = model([h.make_node(op, names, ["y"])], [value(a, 4, 4, elem=k) for a, k in zip(names, kinds)],
                      [value("y", *([4, 4, 4] if op == "Gather" else [4, 4]), elem=elem)])
            report = run(m, tmp_path, target="ort")
            if refused(m):
                assert not report
                continue
            try:
                ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
                loads = True
            except Exception:
                loads = False
            assert bool(report) == loads, (op, T.DataType.Name(elem), str(report))


def test_every_finding_is_made():
    """Last: what no test here makes is made by test_check_pt2.py, which lists it."""
    import test_check_pt2

    if len(HIT) < 20:
        pytest.skip("the tests that make findings were not run")
    table = set(re.findall(r"^FINDING\((\d+),", (ROOT / "src/verify/findings.def").read_text(), re.M))
    unit = set(re.findall(r"Q\(\d+\)", (ROOT / "tests/unit/test_check.c").read_text()))
    missing = {f"Q{n}" for n in table} - HIT - test_check_pt2.FINDINGS - {f"Q{u[2:-1]}" for u in unit}
    assert not missing, sorted(missing)
