"""Exported programs and packed models that are valid JSON in valid archives, one edit each, and what must be said."""
import io
import json
import os
import pathlib
import re
import resource
import struct
import subprocess
import sys
import zipfile
import zlib

import pytest

import qkv

SMALL = pathlib.Path(__file__).resolve().parent.parent / "models" / "small"
QKV = os.environ.get("QKV", SMALL.parents[2] / "build/qkv")
sys.path.insert(0, str(SMALL.parents[1] / "bad"))
import growth  # noqa: E402


def refused(path, message):
    with pytest.raises(qkv.Error, match=re.escape(message)):
        qkv.Model(path)


# ------------------------------------------------------------------ .pt2

def graph(d): return d["graph_module"]["graph"]
def nodes(d): return graph(d)["nodes"]
def specs(d, way="input"): return d["graph_module"]["signature"][f"{way}_specs"]
def first(d, part): return next(n for n in nodes(d) if part in n["target"])
def argument(n, k, value): n["inputs"][k]["arg"] = value
def values(d): return graph(d)["tensor_values"]
def tensor(name): return {"as_tensor": {"name": name}}
def body(n, k): return n["inputs"][k]["arg"]["as_graph"]["graph"]


def new_input(d, arg):
    specs(d).append({"user_input": {"arg": arg}})
    graph(d)["inputs"].append(arg)


def new_output(d, arg, kind="user_output", **more):
    specs(d, "output").append({kind: {"arg": arg, **more}})
    graph(d)["outputs"].append(arg)


def stack(*names):
    tensors = {"as_tensors": [{"name": n} for n in names]}
    return {"target": "torch.ops.aten.stack.default",
            "inputs": [{"name": n, "arg": a, "kind": 1} for n, a in (("tensors", tensors), ("dim", {"as_int": -1}))]}


def inner(d, part): return next(n for n in body(first(d, "cond"), 2)["nodes"] if part in n["target"])
def twice(names): names.append(names[0])


def chunks(d, names):
    given = (("self", tensor("x")), ("chunks", {"as_int": 2}), ("dim", {"as_int": 2}))
    first(d, "linear").update(target="torch.ops.aten.chunk.default",
                              outputs=[{"as_tensors": [{"name": n} for n in names]}],
                              inputs=[{"name": n, "arg": a, "kind": 1} for n, a in given])


def groups(d):
    """x as weights, as many groups as it has rows, of a vector in place of a picture"""
    given = (("input", tensor("p_mha_in_proj_bias")), ("weight", tensor("x")),
             ("groups", {"as_sym_int": {"as_name": "made"}}))
    first(d, "linear").update(target="torch.ops.aten.conv1d.default",
                              inputs=[{"name": n, "arg": a, "kind": 1} for n, a in given])
    nodes(d).insert(0, LENGTH)


LENGTH = {"target": "torch.ops.aten.sym_size.int", "outputs": [{"as_sym_int": {"as_name": "made"}}], "metadata": {},
          "inputs": [{"name": n, "arg": a, "kind": 1} for n, a in (("self", tensor("x")), ("dim", {"as_int": 0}))]}
SIZE = {"target": "_operator.mul", "inputs": [{"name": "", "arg": {"as_int": 2}, "kind": 1}] * 2,
        "outputs": [{"as_sym_int": {"as_name": "made"}}], "metadata": {}}


def effect(d, op, *given):
    """In front of all nodes, as run_decompositions() puts what has an effect."""
    given = tensor("token"), {"as_operator": f"torch.ops.{op}"}, *given
    nodes(d).insert(0, {"target": "torch.ops.higher_order.with_effects", "metadata": {},
                        "inputs": [{"name": "", "arg": a, "kind": 1} for a in given],
                        "outputs": [tensor("token_1"), {"as_none": True}]})


EDITS = [  # model, edit, what is said
    ("mha_self", lambda d: effect(d, "my.op"), "my.op"),
    ("mha_self", lambda d: effect(d, "aten.add_.Tensor", tensor("x"), tensor("x")), "an effect of aten.add_.Tensor"),
    ("mha_self", lambda d: effect(d, "aten._linalg_check_errors.default", tensor("x"), {"as_string": "inv"},
                                  {"as_bool": False}), "expected the info of a factorization"),
    ("mha_self", lambda d: effect(d, "aten._linalg_check_errors.default", *[tensor("x")] * 4),
     "argument 5: aten._linalg_check_errors.default has no such parameter"),
    ("mha_self", lambda d: values(d).pop("x"), "'x' is not in tensor_values"),
    ("mha_self", lambda d: values(d).pop("p_mha_in_proj_bias"), "'p_mha_in_proj_bias' is not in tensor_values"),
    ("mha_self", lambda d: specs(d)[0]["parameter"].update(parameter_name="no"), "weight 'no' is not in the archive"),
    ("mha_self", lambda d: values(d)["p_mha_in_proj_bias"].update(dtype=8), "but the graph declares it otherwise"),
    ("mha_self", lambda d: specs(d).append({"odd": {}}), "input of kind 'odd'"),
    ("mha_self", lambda d: new_input(d, {"as_ints": [1]}), "an input of kind as_ints"),
    ("mha_self", lambda d: new_input(d, {"as_float": "odd"}), "found string 'odd', expected a number"),
    ("mha_self", lambda d: new_input(d, {"as_sym_int": {"as_int": 3}}), "an input size without a name"),
    ("mha_self", lambda d: new_input(d, {"as_sym_float": {"as_name": "f"}}), "input 'f' is a dynamic float"),
    ("mha_self", lambda d: new_output(d, {"as_sym_int": {"as_name": "no"}}), "output 'no' is never computed"),
    ("mha_self", lambda d: new_output(d, {"name": "transpose_5"}, "gradient_to_parameter", parameter_name="no"),
     "a gradient of 'no', which is not a parameter"),
    ("mha_self", lambda d: new_output(d, {"name": "transpose_5"}, "gradient_to_user_input", user_input_name="no"),
     "a gradient of 'no', which is not a input"),
    ("mha_self", lambda d: new_output(d, {"name": "transpose_5"}, "buffer_mutation", buffer_name="mha.in_proj_bias"),
     "buffer 'mha.in_proj_bias': node 'transpose_5' (aten.expand.default)"),
    ("mha_self", lambda d: [new_output(d, {"as_int": i}) for i in range(10001)],
     "more than 10000 numbers among the results"),
    ("mha_self", lambda d: values(d)["linear"].update(dtype=8), "'linear' is declared as f64, but the op gives f32"),
    ("mha_self", lambda d: values(d)["linear"].update(sizes=[]), "is declared with rank 0, but the op gives rank 3"),
    ("mha_self", lambda d: values(d)["linear"]["sizes"].__setitem__(2, {"as_int": 7}),
     "size 2 is declared as 7, but the"),
    ("mha_self", lambda d: values(d).pop("linear"), "'linear' is not in tensor_values"),
    ("mha_self", lambda d: argument(first(d, "linear"), 0, {"as_tensor": {"name": "sym_size_int_3"}}),
     "'sym_size_int_3' is not a tensor"),
    ("mha_self", lambda d: first(d, "linear").update(stack("x", "p_mha_in_proj_bias")),
     "tensor 1 has 1 dims, the first 3"),
    ("mha_self", lambda d: argument(first(d, "view"), 1, {"as_sym_ints": [{"as_name": "x"}]}), "'x' is not a number"),
    ("mha_self", lambda d: argument(first(d, "view"), 1, {"as_sym_ints": [{"as_name": 3}]}), "expected a name"),
    ("mha_self", lambda d: argument(first(d, "view"), 1, {"as_ints": 3}), "expected an array"),
    ("mha_self", lambda d: argument(first(d, "view"), 1, {"as_ints": [None]}), "found null, expected a number"),
    ("mha_self", lambda d: argument(first(d, "view"), 1, {"as_odd": 3}), "an argument of kind 'as_odd'"),
    ("mha_self", lambda d: argument(first(d, "view"), 1, {"as_string": 3}), "expected a string"),
    ("hand_rope", lambda d: argument(first(d, "scaled_dot"), 5, {"as_int": 256}),
     "argument 'is_causal': found 256, expected true or false"),
    ("sdpa_dead_rows_core", lambda d: argument(first(d, "any.dim"), 2, {"as_int": -1}),
     "argument 'keepdim': found -1, expected true or false"),
    ("mha_self", lambda d: argument(first(d, "view"), 1, {"as_scalar_type": 99}), "dtype code 99 is not known"),
    ("mha_self", lambda d: argument(first(d, "view"), 1, {"as_tensors": 3}), "expected an array"),
    ("mha_self", lambda d: argument(first(d, "view"), 1, {"as_complex": {"real": "no", "imag": 1}}),
     "a complex number"),
    ("mha_self", lambda d: nodes(d).insert(0, {**SIZE, "inputs": SIZE["inputs"][:1]}), "takes 2 arguments, found 1"),
    ("mha_self", lambda d: nodes(d).insert(0, {**SIZE, "inputs": [{"name": "", "arg": tensor("x"), "kind": 1}] * 2}),
     "argument 0 of"),
    ("mha_self", lambda d: d.update(guards_code=[3]), "guards_code: entry 0 is not a string"),
    ("mha_self", lambda d: d.update(guards_code=[""] * 60000), "guards_code: 60000 of them, at most"),
    ("mha_self", lambda d: d["range_constraints"]["s77"].update(min_val="a"), "expected an integer or null"),
    ("mha_self", lambda d: d["range_constraints"].update({f"u{i}": {} for i in range(60000)}),
     "60002 of them, at most"),
    ("mha_self", lambda d: values(d)["x"]["sizes"].__setitem__(0, {"as_odd": "3"}), "found as_odd with string"),
    ("write_index_put", lambda d: argument(first(d, "index_put_"), 0, {"as_int": 3}),
     "expected a tensor to write to"),
    ("control_nested", lambda d: argument(first(d, "cond"), 0, {"as_float": 0.5}), "expected a truth value"),
    ("control_nested", lambda d: argument(first(d, "cond"), 0, {"as_string": "a"}), "as the condition"),
    ("control_nested", lambda d: argument(first(d, "cond"), 0, tensor("x")), "the condition is f32, expected bool"),
    ("control_nested", lambda d: argument(first(d, "cond"), 1, {"as_int": 3}), "argument 1 is not a graph"),
    ("control_nested", lambda d: argument(first(d, "cond"), 3, {"as_int": 3}), "expected a list"),
    ("control_nested", lambda d: first(d, "cond")["inputs"].__delitem__(3), "argument 3 is missing"),
    ("control_nested", lambda d: body(first(d, "cond"), 1)["inputs"].pop(), "operands"),
    ("control_nested", lambda d: body(first(d, "cond"), 1)["outputs"].clear(), "result"),
    ("scan_rnn", lambda d: argument(first(d, "scan"), 2, {"as_tensors": []}), "there is no sequence to go over"),
    ("scan_rnn", lambda d: argument(first(d, "scan"), 0, {"as_int": 3}), "argument 0 is not a graph"),
    ("scan_rnn", lambda d: body(first(d, "scan"), 0)["outputs"].clear(), "carried values"),
    ("scan_rnn", lambda d: argument(first(d, "scan"), 2, {"as_ints": [3]}), "sequence 0 is a number"),
    ("scan_rnn", lambda d: argument(first(d, "scan"), 1, {"as_tensors": [{"name": "sum_1"}] * 300}),
     "300 carried values"),
    ("scan_rnn", lambda d: body(first(d, "scan"), 0)["nodes"][0].update(target="torch.ops.aten.mul_.Tensor"),
     "it writes to its operand"),
    ("scan_rnn", lambda d: body(first(d, "scan"), 0)["outputs"].__setitem__(0, {"as_string": "a"}),
     "a result of kind 'as_string'"),
    ("scan_rnn", lambda d: first(d, "scan").update(outputs=first(d, "scan")["outputs"] * 2),
     "the file names 4 results"),
    ("control_nested", lambda d: [nodes(d).insert(0, LENGTH), argument(first(d, "cond"), 0,
                                                                       {"as_sym_int": {"as_name": "made"}})],
     "the condition is a number"),
    ("control_nested", lambda d: twice(body(inner(d, "while"), 0)["outputs"]), "gives 2 results, expected 1"),
    ("mha_self", lambda d: nodes(d).insert(0, {**SIZE, "target": "torch._functorch.predispatch._add_batch_dim"}),
     "it stands in no vmap"),
    ("mha_self", lambda d: chunks(d, "abc"), "2 pieces, the file names 3"),
    ("mha_self", lambda d: values(d)["linear"].update(dtype=99), "tensor_values: 'linear'"),
    ("mha_self", groups, "rank 1, expected 3"),
    ("no_grad_region", lambda d: first(d, "set_grad")["inputs"].pop(), "operands"),
    ("no_grad_region", lambda d: argument(first(d, "set_grad"), 2, {"as_string": "a"}),
     "is neither a tensor nor a number"),
]


def rewritten(path, base, end, change):
    with zipfile.ZipFile(SMALL / f"{base}.pt2") as z:
        files = {i.filename: z.read(i) for i in z.infolist()}
    key = next(k for k in files if k.endswith(end))
    doc = json.loads(files[key])
    change(doc)
    files[key] = json.dumps(doc).encode()
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w") as z:
        for name, data in files.items():
            z.writestr(name, data)
    path.write_bytes(b.getvalue())


@pytest.mark.parametrize("base, change, message", EDITS)
def test_exported(base, change, message, tmp_path):
    rewritten(tmp_path / "m.pt2", base, "models/model.json", change)
    refused(tmp_path / "m.pt2", message)


def test_writes_through_views_of_views(tmp_path):
    growth.writes(tmp_path / "m.pt2", 70, True)
    refused(tmp_path / "m.pt2", "that need more than")
    views = [growth.call("squeeze.dim" if i % 2 else "unsqueeze.default", f"v{i - 1}" if i else "b", f"v{i}", 0)
             for i in range(4000)]

    def sizes(program):
        graph(program)["tensor_values"].update(
            {f"{k}{i}": {**growth.TENSOR, "sizes": [{"as_int": n} for n in ([4] if i % 2 else [1, 4])],
                         "strides": [{"as_int": 1}] * (2 - i % 2)} for k in "vw" for i in range(4000)})
    growth.archive(tmp_path / "m.pt2", [growth.relu_of("x", "b"), *views, growth.call("add_.Tensor", "v3999", "w3999")],
                   ["b"], outputs=[{"user_output": {"arg": tensor("b")}}], extra=sizes)
    refused(tmp_path / "m.pt2", "a write through 4000 views of views")


def item(d):
    """The condition read from its tensor."""
    read = {"target": "torch.ops.aten._local_scalar_dense.default", "outputs": [{"as_sym_bool": {"as_name": "made"}}],
            "metadata": {}, "inputs": [{"name": "self", "arg": first(d, "cond")["inputs"][0]["arg"], "kind": 1}]}
    at = next(i for i, n in enumerate(nodes(d)) if "cond" in n["target"])
    nodes(d).insert(at, read)
    argument(first(d, "cond"), 0, {"as_sym_bool": {"as_name": "made"}})


def doubled(d):
    """A branch's operand of 2*s77 rows, which no input has."""
    wide = {"target": "torch.ops.aten.cat.default", "outputs": [tensor("twice")], "metadata": {},
            "inputs": [{"name": n, "arg": a, "kind": 1}
                       for n, a in (("tensors", {"as_tensors": [{"name": "x"}] * 2}), ("dim", {"as_int": 0}))]}
    size = {"as_expr": {"expr_str": "2*s77", "hint": {"as_int": 6}}}
    values(d)["twice"] = {**values(d)["x"], "sizes": [size, {"as_int": 4}]}
    nodes(d).insert(next(i for i, n in enumerate(nodes(d)) if "cond" in n["target"]), wide)
    first(d, "cond")["inputs"][3]["arg"]["as_tensors"][0] = {"name": "twice"}


SUM = {"target": "torch.sym_sum", "outputs": [{"as_sym_int": {"as_name": "made"}}], "metadata": {},
       "inputs": [{"name": "", "arg": {"as_ints": [2, 3]}, "kind": 1}]}
LOADS = [  # model, edit
    ("mha_self", lambda d: nodes(d).insert(0, SUM)),
    ("resnet_small", lambda d: argument(first(d, "batch_norm"), 5, {"as_bool": True})),
    ("control_nested", lambda d: values(d).pop("getitem")),
    ("control_nested", item),
    ("control_nested", doubled),
]


@pytest.mark.parametrize("base, change", LOADS)
def test_loads(base, change, tmp_path):
    rewritten(tmp_path / "m.pt2", base, "models/model.json", change)
    assert qkv.Model(tmp_path / "m.pt2").graph_text()


def test_truth_as_number(tmp_path):
    rewritten(tmp_path / "m.pt2", "hand_rope", "models/model.json",
              lambda d: argument(first(d, "scaled_dot"), 5, {"as_int": 1}))
    assert qkv.Model(tmp_path / "m.pt2").graph_text() == qkv.Model(SMALL / "hand_rope.pt2").graph_text()


# ------------------------------------------------------------------ pictures

def jpeg_of_scans(side):
    """A black picture of side x side in all scans that one of gray may have, a bit of a coefficient in each: none of
    them says anything of any block."""
    segment = lambda marker, data: bytes([255, marker]) + struct.pack(">H", len(data) + 2) + data
    table = lambda kind, symbol: segment(0xC4, bytes([kind, 1, *[0] * 15, symbol]))
    blocks = (-(-side // 8)) ** 2
    bits = ("0" + format(0x2AAA, "014b")) * -(-blocks // (0x4000 + 0x2AAA))  # the ends of so many blocks at once
    bits += "1" * (-len(bits) % 8)
    ends = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    scan = lambda at, high, low, data: segment(0xDA, bytes([1, 1, 0, at, at, high << 4 | low])) + data
    return (b"\xff\xd8" + segment(0xDB, b"\0" + b"\1" * 64) + table(0x00, 0) + table(0x10, 0xE0) +
            segment(0xC2, struct.pack(">BHHB", 8, side, side, 1) + bytes([1, 0x11, 0])) +
            scan(0, 0, 0, bytes(-(-blocks // 8))) + b"".join(
                scan(at, low + 1 if low < 13 else 0, low, ends) for at in range(1, 64) for low in range(13, -1, -1)) +
            b"\xff\xd9")


def test_scans_of_a_jpeg(tmp_path):
    """As libjpeg's own fuzzing does, which takes no more than 500: half a megabyte went through 120 gigapixels."""
    words = ["run", SMALL.parents[1] / "cli/models/rgb.pt2", "--image", "p.jpg"]
    (tmp_path / "p.jpg").write_bytes(jpeg_of_scans(64))
    done = subprocess.run([QKV, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done
    (tmp_path / "p.jpg").write_bytes(jpeg_of_scans(12000))
    begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([QKV, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 5 and "scans of 12000 x 12000 pixels are too many" in done.stderr, done
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun < 5
    done = subprocess.run([QKV, *words, "--memory-limit", "200M"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 5 and "--memory-limit is 200.0 MiB" in done.stderr, done


# ------------------------------------------------------------------ .qkv (docs/PACK.md)

SIZES = {"name": "s77", "input": 0, "axis": 0}
PACKED = [  # edit of the description, what is said
    (lambda d: d["weights"][0].update(shape=[1] * 17), "rank 17: allowed is 0 to 16"),
    (lambda d: d["weights"][0].update(shape=["a"]), "shape: found string, expected integers"),
    (lambda d: d["weights"].append(d["weights"][0]), "5 weights, but the graph names 4"),
    (lambda d: d["weights"][0].update(offset=-64), "at -64 are outside"),
    (lambda d: d["sizes"].append({**SIZES, "name": "no"}), "size 'no': the graph has none of this name"),
    (lambda d: d["sizes"][0].update(input=9), "axis 0 of input 9 does not determine it"),
    (lambda d: d["scalars"].append({"name": "k", "at": -1}), "input 'k': place -1"),
    (lambda d: d["scalars"].append({"name": "k", "at": 1, "number": "("}), "input 'k'"),
    (lambda d: d["scalars"].append({"name": "k", "at": 1, "number": "s77 + 1"}), "expected a number or a size"),
    (lambda d: d.update(labels=["a", "b"]), "2 labels, but the graph has 1 outputs"),
    (lambda d: d["extra"].append({"name": "a", "offset": 1, "size": 1}), "extra file 0"),
    (lambda d: d.update(kept={"qkv": 3}), "field 'qkv': found integer"),
]


def described(packed, change):
    """The packed model with another description, its places and its checksum put right."""
    header = list(struct.unpack("<8sII7QI52s", packed[:128]))
    text = packed[header[6]:header[6] + header[7] + 1]
    doc = json.loads(packed[header[4]:header[4] + header[5]])
    change(doc)
    new = json.dumps(doc).encode() + b"\0"
    data, at = packed[header[8]:], 128 + len(new)
    place = -(-(at + len(text)) // 4096) * 4096
    header[3:9] = [place + len(data), 128, len(new) - 1, at, len(text) - 1, place]
    header[10] = zlib.crc32(new + text)
    return (struct.pack("<8sII7QI52s", *header) + new + text).ljust(place, b"\0") + data


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "m.qkv"
    qkv.Model(SMALL / "mha_self.pt2").pack(path)
    return path.read_bytes()


@pytest.mark.parametrize("change, message", PACKED)
def test_packed(packed, change, message, tmp_path):
    (tmp_path / "m.qkv").write_bytes(described(packed, change))
    refused(tmp_path / "m.qkv", message)


def patched(packed, at, form, value):
    return packed[:at] + struct.pack(form, value) + packed[at + struct.calcsize(form):]


HEADERS = [  # of a packed model's bytes, and what is said
    (lambda b: b[:100], "the file has 100 bytes, a header has 128"),
    (lambda b: b[:8] + b[8:12][::-1] + b[12:], "packed on a machine of the other byte order"),
    (lambda b: patched(b, 12, "<I", 99), "packed in version 99 of the format"),
    (lambda b: patched(b, 127, "<B", 1), "reserved bytes of the header are not 0"),
    (lambda b: b + b"x", "its header says"),
    (lambda b: b[:129] + b"\0" + b[130:], "description: expected text that ends with its length"),
    (lambda b: b[:129] + bytes([b[129] ^ 1]) + b[130:], "the checksum of description and graph does not match"),
    (lambda b: patched(b, 56, "<Q", 4097), "expected those from the page after the graph"),
]


@pytest.mark.parametrize("change, message", HEADERS)
def test_packed_header(packed, change, message, tmp_path):
    (tmp_path / "m.qkv").write_bytes(change(packed))
    refused(tmp_path / "m.qkv", message)


def test_packed_as_it_was(packed, tmp_path):
    (tmp_path / "m.qkv").write_bytes(described(packed, lambda d: d.update(
        labels=["scores"], more=1, kept={"qkv": "0", "key": "a"},
        scalars=[{"name": "k", "at": 1, "text": "word"}, {"name": "n", "at": 2, "number": "3"}])))
    assert "scores" in qkv.Model(tmp_path / "m.qkv").describe()["outputs"][0].values()


@pytest.mark.parametrize("command, name", [("pack", "m.qkv"), ("convert", "m.onnx"), ("convert", "m.pt2")])
def test_written_without_room(command, name, tmp_path):
    done = subprocess.run([QKV, command, SMALL / "mha_self.pt2", "-o", tmp_path / name], capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    assert done.returncode == 3 and "File too large" in done.stderr and not list(tmp_path.iterdir())


def test_packed_weights_in_one_place(tmp_path):
    """Two weights that begin at the same byte: each product's packed one is named by the weight that it reads."""
    field = growth.field
    entry = lambda key, value: field(13, field(1, key) + field(2, value))
    place = lambda size: entry("location", "w.bin") + entry("offset", "0") + entry("length", str(size))
    weight = lambda name, rows: field(5, field(1, rows) + field(1, 8) + field(2, 1) + field(8, name) + field(14, 1) +
                                      place(32 * rows))
    given = lambda number, name, *dims: field(number, field(1, name) + field(2, field(
        1, field(1, 1) + field(2, b"".join(field(1, field(1, d)) for d in dims)))))
    growth.onnx(tmp_path / "m.onnx", growth.onnx_node("MatMul", ["x", "w8"], ["y"]) + growth.onnx_node(
        "MatMul", ["z", "w4"], ["v"]) + field(2, "g") + given(11, "x", 3, 8) + given(11, "z", 3, 4) +
        given(12, "y", 3, 8) + given(12, "v", 3, 8) + weight("w4", 4) + weight("w8", 8))
    (tmp_path / "w.bin").write_bytes(struct.pack("<64f", *range(64)))
    qkv.Model(tmp_path / "m.onnx").pack(tmp_path / "m.qkv")
    packed = (tmp_path / "m.qkv").read_bytes()
    header = struct.unpack("<8sII7QI52s", packed[:128])
    kept = json.loads(packed[header[4]:header[4] + header[5]])["packed"]
    assert sorted((p["k"], p["at"]) for p in kept) == [(4, 0), (8, 0)] and len({p["weight"] for p in kept}) == 2
    qkv.Model(tmp_path / "m.qkv")
