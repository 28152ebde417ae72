#!/usr/bin/env python3
"""Makes hostile .onnx files, field by field, named by what must happen to them.

    onnx_edits.py OUT_FOLDER      writes OUT_FOLDER/reject_*.onnx, accept_*.onnx, any_*.onnx and data files;
                                  Python's standard library only

reject: loading, or running with random inputs, must say what is wrong. accept: must load and run. any: must not crash.
A message is a list of encoded fields; i() is a number, b() are bytes or a message or text, f() is a float.
"""
import os
import pathlib
import struct
import sys

OUT = pathlib.Path(sys.argv[1])
FLOAT, INT32, INT64, STRING = 1, 6, 7, 8


def var(n):
    n &= (1 << 64) - 1
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7f | 0x80])
        n >>= 7
    return out + bytes([n])


def i(field, n): return var(field << 3) + var(n)
def f(field, x): return var(field << 3 | 5) + struct.pack("<f", x)


def b(field, x):
    x = x.encode() if isinstance(x, str) else b"".join(x) if isinstance(x, list) else x
    return var(field << 3 | 2) + var(len(x)) + x


def pair(field, key, value): return b(field, [b(1, key), b(2, value)])
def floats(*x): return struct.pack(f"<{len(x)}f", *x)


def tensor(name, dims, data=None, type=FLOAT, *more):
    return [i(1, d) for d in dims] + [i(2, type), b(8, name)] + ([b(9, data)] if data is not None else []) + list(more)


def outside(name, dims, *pairs):
    return tensor(name, dims, None, FLOAT, *[pair(13, k, v) for k, v in pairs], i(14, 1))


def value(name, dims, type=FLOAT):
    shape = [b(1, [b(2, d) if isinstance(d, str) else i(1, d)]) for d in dims]
    return [b(1, name), b(2, [b(1, [i(1, type), b(2, shape)])])]


def node(op, inputs, outputs, *attrs, domain=None):
    return [b(1, x) for x in inputs] + [b(2, x) for x in outputs] + [b(4, op)] + [b(5, a)
        for a in attrs] + ([b(7, domain)] if domain else [])


def attr_i(name, n): return [b(1, name), i(3, n), i(20, 2)]
def attr_f(name, x): return [b(1, name), f(2, x), i(20, 1)]
def attr_g(name, g): return [b(1, name), b(6, g), i(20, 5)]


def graph(nodes, inputs=(), outputs=(), inits=(), more=()):
    return [b(1, n) for n in nodes] + [b(2, "g")] + [b(5, t) for t in inits] + [b(11, v) for v in inputs] + [b(12, v)
        for v in outputs] + list(more)


def model(g, opsets=(("", 21),), more=()):
    return [i(1, 10), b(7, g)] + [b(8, ([b(1, d)] if d else []) + [i(2, v)]) for d, v in opsets] + list(more)


def write(kind, what, m):
    (OUT / f"{kind}_{what}.onnx").write_bytes(b"".join(m) if isinstance(m, list) else m)


X, Y, W = value("x", ["n", 3]), value("y", ["n", 3]), tensor("w", [3], floats(1, 2, 3))
ADD = node("Add", ["x", "w"], ["y"])


def with_weight(kind, what, t, **more): write(kind, what, model(graph([ADD], [X], [Y], [t], **more)))
def with_graph(kind, what, g, **more): write(kind, what, model(g, **more))
def with_nodes(kind, what, nodes, inputs=(X,), inits=(W,), **more):
    write(kind, what, model(graph(nodes, inputs, [Y], inits), **more))


GOOD = graph([ADD], [X], [Y], [W])
good = b"".join(model(GOOD))
with_weight("accept", "good", W)
with_weight("accept", "typed_packed", tensor("w", [3], None, FLOAT, b(4, floats(1, 2, 3))))
with_weight("accept", "typed_one_by_one", tensor("w", [3], None, FLOAT, f(4, 1), f(4, 2), f(4, 3)))
with_weight("accept", "dims_packed", [b(1, var(3)), i(2, FLOAT), b(8, "w"), b(9, floats(1, 2, 3))])
with_weight("accept", "last_name_wins", tensor("v", [3], floats(1, 2, 3), FLOAT, b(8, "w")))
write("accept", "unknown_fields", model(GOOD, more=[i(200, 1), b(201, "x"), f(202, 1.0), var(203 << 3 | 1) + bytes(8)]))
write("accept", "fields_reversed", [b(8, [i(2, 21)]), b(7, GOOD), i(1, 10)])

# ------------------------------------------------------------------ the wire
write("reject", "empty", b"")
write("reject", "zeros", bytes(64))
write("reject", "text", b"this is not a model\n" * 40)
write("reject", "varint_11_bytes", [b"\x08" + b"\xff" * 10 + b"\x01"] + model(GOOD))
write("reject", "varint_65_bits", [b"\x08" + b"\xff" * 9 + b"\x7f"] + model(GOOD))
write("reject", "varint_cut", good + b"\x08\xff")
write("reject", "length_beyond", good + b"\x3a\x7f" + bytes(9))
write("reject", "length_2_64", good + b"\x3a" + b"\xff" * 9 + b"\x01")
write("reject", "group", good + b"\x0b\x0c")
write("reject", "group_end", good + b"\x0c")
write("reject", "wire_type_6", good + b"\x0e\x01")
write("reject", "field_0", good + b"\x02\x01x")
write("reject", "field_2_30", good + var(1 << 33) + b"\x00")
write("reject", "graph_is_a_number", [i(1, 10), i(7, 3)])
write("reject", "no_graph", [i(1, 10), b(8, [i(2, 21)])])
write("reject", "graph_twice", model(GOOD) + [b(7, GOOD)])
write("reject", "name_no_utf8", model(graph([ADD], [X], [Y], [W], [b(2, b"\xff\xfe")])))
write("reject", "name_nul", model(graph([node("Add", ["x", "w"], ["y\0z"])], [X], [Y], [W])))
write("reject", "bytes_after_the_end", good + b"\xff")


def deep(n):
    g = GOOD
    for _ in range(n):
        g = graph([node("If", ["c"], ["y"], attr_g("then_branch", g), attr_g("else_branch", GOOD))], [X], [Y], [W])
    return g


write("reject", "graphs_33_deep", model(deep(33)))
g = [b""]
for _ in range(10000):
    g = [b(1, [b(5, [b(6, g)])])]
write("reject", "graphs_10000_deep", model(g))
t = b(1, [i(1, 1)])
for _ in range(10000):
    t = b(4, [b(1, t)])
write("reject", "types_10000_deep", model(graph([ADD], [[b(1, "x"), b(2, t)]], [Y], [W])))
for what, one in {"nodes": b(1, b""), "initializers": b(5, b""), "inputs": b(11, b""),
                  "value_infos": b(13, b"")}.items():
    write("reject", "million_empty_" + what, model(graph([ADD], [X], [Y], [W], [one * 2_000_000])))
write("reject", "million_attributes",
      model(graph([node("Add", ["x", "w"], ["y"]) + [b(5, b"") * 2_000_000]], [X], [Y], [W])))

# ------------------------------------------------------------------ tensors
with_weight("reject", "dims_product", tensor("w", [4194305, 4194305, 211106198978564], floats(1)))
with_weight("reject", "dim_negative", tensor("w", [-3], floats(1, 2, 3)))
with_weight("reject", "dim_2_63", tensor("w", [(1 << 63) - 1], floats(1, 2, 3)))
with_weight("reject", "rank_17", tensor("w", [1] * 17, floats(1)))
with_weight("reject", "raw_short", tensor("w", [3], floats(1, 2)))
with_weight("reject", "raw_long", tensor("w", [3], floats(1, 2, 3, 4)))
with_weight("reject", "raw_missing", tensor("w", [3]))
with_weight("reject", "typed_short", tensor("w", [3], None, FLOAT, b(4, floats(1, 2))))
with_weight("reject", "typed_odd", tensor("w", [3], None, FLOAT, b(4, floats(1, 2, 3) + b"x")))
with_weight("reject", "typed_other", tensor("w", [3], None, FLOAT, b(7, b"\1\2\3")))
with_weight("reject", "raw_and_typed", tensor("w", [3], floats(1, 2, 3), FLOAT, b(4, floats(1, 2, 3))))
with_weight("reject", "type_unknown", tensor("w", [3], floats(1, 2, 3), 99))
with_weight("reject", "type_none", tensor("w", [3], floats(1, 2, 3), 0))
with_weight("reject", "type_strings", tensor("w", [3], None, STRING, b(6, "a"), b(6, "b"), b(6, "c")))
with_weight("reject", "strings_raw", tensor("w", [3], b"abc", STRING))
with_weight("reject", "segment", tensor("w", [3], floats(1, 2, 3), FLOAT, b(3, [i(1, 0), i(2, 3)])))


def sparse(index):
    return b(15, [b(1, tensor("w", [2], floats(1, 2))), b(2, tensor("", [2], struct.pack("<2q", *index), INT64)),
                  i(3, 3)])


for what, index in {"beyond": (0, 3), "negative": (-1, 1), "twice": (1, 1), "unsorted": (2, 0),
                    "huge": (0, 1 << 62)}.items():
    with_graph("reject", "sparse_" + what, graph([ADD], [X], [Y], [], [sparse(index)]))
with_graph("any", "sparse_good", graph([ADD], [X], [Y], [], [sparse((0, 2))]))

# ------------------------------------------------------------------ data in other files
(OUT / "sub").mkdir()
for name in ("data.bin", "hard.bin", "sub/data.bin"):
    (OUT / name).write_bytes(floats(1, 2, 3, 4))
(OUT.parent / (OUT.name + ".outside")).write_bytes(floats(1, 2, 3, 4))
os.symlink("data.bin", OUT / "soft.bin")
os.symlink("sub", OUT / "way")
os.link(OUT / "hard.bin", OUT / "hard2.bin")
os.mkfifo(OUT / "fifo.bin")
at = lambda location, *more: outside("w", [3], ("location", location), *more)
with_weight("accept", "external", at("data.bin", ("offset", "4"), ("length", "12")))
with_weight("accept", "external_folder", at("sub/data.bin"))
for what, location in {"parent": f"../{OUT.name}.outside", "parent_inside": "sub/../data.bin",
                       "absolute": str(OUT / "data.bin"), "device": "/dev/zero", "symlink": "soft.bin",
                       "symlink_folder": "way/data.bin", "hard_link": "hard.bin", "fifo": "fifo.bin", "folder": "sub",
                       "missing": "nothing.bin", "empty": "", "itself": "reject_external_itself.onnx/",
                       "long": "x" * 5000}.items():
    with_weight("reject" if what != "itself" else "any", "external_" + what, at(location))
with_weight("reject", "external_beyond", at("data.bin", ("offset", "8")))
with_weight("reject", "external_overflow", at("data.bin", ("offset", str((1 << 64) - 8)), ("length", "12")))
with_weight("reject", "external_offset_text", at("data.bin", ("offset", "0x4")))
with_weight("reject", "external_offset_negative", at("data.bin", ("offset", "-4")))
with_weight("reject", "external_offset_2_64", at("data.bin", ("offset", str(1 << 64))))
with_weight("reject", "external_length", at("data.bin", ("length", "16")))
with_weight("reject", "external_key", at("data.bin", ("basepath", "/etc")))
with_weight("reject", "external_and_raw", at("data.bin") + [b(9, floats(1, 2, 3))])
with_weight("reject", "external_strings", outside("w", [3], ("location", "data.bin")) + [i(2, STRING)])

# ------------------------------------------------------------------ what the graph says
A = attr_i
def attr_is(name, *n): return [b(1, name)] + [i(8, x) for x in n] + [i(20, 7)]


def function(name, nodes, inputs=("a",), outputs=("b",), domain="here", *more):
    return b(25, [b(1, name)] + [b(4, x) for x in inputs] + [b(5, x) for x in outputs] + [b(7, n) for n in nodes] +
             [b(9, [i(2, 21)]), b(9, [b(1, "here"), i(2, 1)]), b(10, domain)] + list(more))


def with_functions(kind, what, *functions, nodes=None):
    write(kind, what, model(graph(nodes or [node("F", ["x"], ["y"], domain="here")], [X], [Y]),
                            (("", 21), ("here", 1)), functions))


call = lambda name, x, y: node(name, [x], [y], domain="here")
boolean = node("Constant", [], ["c"], [b(1, "value"), b(5, tensor("", [], b"\1", 9)), i(20, 4)])
with_functions("accept", "function", function("F", [node("Relu", ["a"], ["b"])]))
with_functions("reject", "function_itself", function("F", [call("F", "a", "b")]))
with_functions("reject", "function_mutual", function("F", [call("G", "a", "b")]), function("G", [call("F", "a", "b")]))
with_functions("reject", "function_through_if", function("F",
                                                         [boolean, node("If", ["c"], ["b"],
                                                                        attr_g("then_branch",
                                                                               graph([call("F", "a", "z")], [],
                                                                                   [value("z", ["n", 3])])),
                                                                                attr_g("else_branch",
                                                                                    graph([node("Relu", ["a"],
                                                                                        ["z"])], [],
                                                                                        [value("z", ["n", 3])])))]))
with_functions("reject", "function_twice", function("F", [node("Relu", ["a"], ["b"])]),
               function("F", [node("Abs", ["a"], ["b"])]))
with_functions("reject", "function_missing", function("H", [node("Relu", ["a"], ["b"])]))
with_functions("reject", "function_output_missing", function("F", [node("Relu", ["a"], ["q"])]))
# each calls the next one twice: 2^40 nodes
with_functions("reject", "function_doubling", *[function(f"F{k}" if k else "F", [call(f"F{k + 1}", "a", "m"),
    call(f"F{k + 1}", "m", "b")] if k < 29 else [node("Relu", ["a"], ["b"])])
                                                for k in range(30)])
loop = graph([node("Identity", ["q"], ["cond_out"]), node("Identity", ["a"], ["a_out"])], [value("it", [], INT64),
    value("q", [], 9), value("a", ["n", 3])], [value("cond_out", [], 9), value("a_out", ["n", 3])])
with_nodes("any", "loop_2_62",
           [node("Constant", [], ["m"], [b(1, "value"), b(5, tensor("", [], struct.pack("<q", 1 << 62), INT64)),
                                         i(20, 4)]), boolean,
            node("Loop", ["m", "c", "x"], ["y"], attr_g("body", loop))])
for what, opsets in {"none": [], "zero": [("", 0)], "negative": [("", -1)], "huge": [("", 10 ** 9)],
                     "twice": [("", 21), ("ai.onnx", 13)], "unknown_domain": [("", 21), ("x.y", 1)]}.items():
    write("any" if what == "unknown_domain" else "reject", "opset_" + what, model(GOOD, opsets))
with_nodes("reject", "op_unknown", [node("Nothing", ["x", "w"], ["y"])])
with_nodes("reject", "op_empty", [node("", ["x", "w"], ["y"])])
with_nodes("reject", "op_domain_unknown", [node("Add", ["x", "w"], ["y"], domain="x.y")])
with_nodes("reject", "op_10_mb", [node("A" * 10_000_000, ["x", "w"], ["y"])])
with_nodes("reject", "value_undefined", [node("Add", ["x", "nobody"], ["y"])])
with_nodes("any", "value_later", [node("Add", ["x", "t"], ["y"]), node("Relu", ["x"], ["t"])])
with_nodes("reject", "value_cycle", [node("Add", ["x", "y"], ["t"]), node("Relu", ["t"], ["y"])])
with_nodes("reject", "value_itself", [node("Add", ["x", "y"], ["y"])])
with_nodes("reject", "two_producers", [ADD, node("Relu", ["x"], ["y"])])
with_nodes("reject", "producer_of_input", [ADD, node("Relu", ["y"], ["x"])])
with_nodes("reject", "producer_of_weight", [node("Relu", ["x"], ["w"]), ADD])
with_nodes("reject", "output_not_produced", [node("Add", ["x", "w"], ["z"])])
with_nodes("any", "inputs_too_many", [node("Add", ["x", "w", "w"], ["y"])])
with_nodes("reject", "inputs_too_few", [node("Add", ["x"], ["y"])])
with_nodes("reject", "input_left_out", [node("Add", ["x", ""], ["y"])])
with_nodes("reject", "outputs_none", [node("Add", ["x", "w"], [])])
with_nodes("any", "outputs_too_many", [node("Add", ["x", "w"], ["y", "z"])])
with_nodes("reject", "attribute_type", [node("Softmax", ["x"], ["y"], attr_f("axis", 1.0))])
with_nodes("reject", "attribute_range", [node("Softmax", ["x"], ["y"], attr_i("axis", 7))])
with_nodes("any", "attribute_unknown", [node("Softmax", ["x"], ["y"], attr_i("axes", 1))])
with_nodes("any", "attribute_twice", [node("Softmax", ["x"], ["y"], attr_i("axis", 1), attr_i("axis", 0))])
with_nodes("reject", "inputs_same_name", [ADD], (X, X))
with_nodes("reject", "weights_same_name", [ADD], (X,), (W, W))
with_nodes("any", "weight_is_input", [ADD], (X, value("w", [3])))
with_nodes("reject", "input_no_name", [ADD], (value("", [3]), X))
with_nodes("reject", "shapes_differ", [ADD], (value("x", ["n", 4]),))
with_nodes("reject", "types_differ", [ADD], (value("x", ["n", 3], INT64),))
with_nodes("any", "input_dim_negative", [ADD], (value("x", [-1, 3]),))
with_nodes("any", "input_dim_2_62", [ADD], (value("x", [1 << 62, 3]),))
with_nodes("reject", "input_type_none", [ADD], ([b(1, "x")],))
with_nodes("any", "input_odd_names", [ADD], (value("x", ["a\nb 'c' \\ %s", 3]),))
shape = lambda *d: tensor("s", [len(d)], struct.pack(f"<{len(d)}q", *d), INT64)
for what, dims in {"2_63": (1 << 62, 1 << 62), "negative": (-2, 3), "two_unknown": (-1, -1), "zero": (0, 0, 0)}.items():
    with_nodes("any" if what == "zero" else "reject", "reshape_" + what, [node("Reshape", ["x", "s"], ["y"])],
               inits=(shape(*dims),))
with_nodes("reject", "gather_beyond", [node("Gather", ["x", "k"], ["y"], attr_i("axis", 1))],
           inits=(tensor("k", [1], struct.pack("<q", 3), INT64),))
with_nodes("any", "expand_huge", [node("Expand", ["w", "s"], ["y"])], inits=(W, shape(1 << 40, 3)))
# ------------------------------------------------------------------ numbers of any size
P = value("x", ["n", 1, 5, 5])
int64 = lambda name, dims, *v: tensor(name, dims, struct.pack(f"<{len(v)}q", *v), INT64)
for what, n in {"2_40": 1 << 40, "min": -(1 << 63), "max": (1 << 63) - 1}.items():
    for op in ("DepthToSpace", "SpaceToDepth"):
        write("reject", f"{op}_{what}",
              model(graph([node(op, ["x"], ["y"], attr_i("blocksize", n))], [P], [value("y", "ncij")])))
ends = lambda *v: [int64(name, [], n) for name, n in zip("asd", v)]
for what, v in {"min": (-(1 << 63), 5, 1), "far": (5, (1 << 63) - 1, 1), "back": (5, -(1 << 63), -(1 << 63)),
                "step": (0, 5, -(1 << 63))}.items():
    write("any", "range_" + what,
          model(graph([node("Range", ["a", "s", "d"], ["y"])], [], [value("y", ["n"], INT64)], ends(*v))))
for what, box in {"1e5": (-1e5, -1e5, 1e5, 1e5), "1e30": (-1e30, -1e30, 1e30, 1e30), "nan": (float("nan"),) * 4,
                  "inf": (float("-inf"), 0, 0, float("inf"))}.items():
    for kind, ratio in (("accept", 0), ("accept", 2), ("reject", 1 << 40)):
        roi = node("RoiAlign", ["x", "r", "k"], ["y"], attr_i("output_height", 2), attr_i("output_width", 2),
                   attr_i("sampling_ratio", ratio))
        if kind == "accept" and what in ("nan", "inf"):
            kind = "any"    # it runs; the checker minds the weight
        write(kind, f"roi_{what}_{ratio}", model(graph([roi], [P], [value("y", [1, 1, 2, 2])],
                                                       [tensor("r", [1, 4], floats(*box)), int64("k", [1], 0)])))
    pool = node("MaxRoiPool", ["x", "r"], ["y"], attr_is("pooled_shape", 2, 2))
    write("any", "pooled_" + what, model(graph([pool], [P], [value("y", [1, 1, 2, 2])],
                                               [tensor("r", [1, 5], floats(0, *box))])))

deformed = [value("x", ["n", 4, 8, 8]), value("w", [6, 4, 3, 3]), value("o", ["n", 18, 6, 6])]
for what in ("group", "offset_group", "strides", "dilations", "pads"):
    for n in (0, -1, 1 << 40):
        many = attr_is(what, *[n] * (4 if what == "pads" else 2)) if what.endswith("s") else attr_i(what, n)
        write("any" if what == "pads" and n == 0 else "reject", f"deformed_{what}_{n}",
              model(graph([node("DeformConv", ["x", "w", "o"], ["y"], many)], deformed, [value("y", ["n", 6, 6, 6])])))

Q = value("x", ["b", "h", "n", 8])
for what, attrs in {"heads_zero": [A("q_num_heads", 0), A("kv_num_heads", 0)],
                    "heads_negative": [A("q_num_heads", -1), A("kv_num_heads", -1)],
                    "heads_2_31": [A("q_num_heads", 1 << 31), A("kv_num_heads", 1 << 31)],
                    "softmax_type": [A("softmax_precision", 999)]}.items():
    nodes3 = [node("Attention", ["x", "x", "x"], ["y"], *attrs)]
    write("reject", "attention_" + what,
          model(graph(nodes3, [value("x", ["b", "n", 8])], [value("y", ["b", "n", 8])]), (("", 23),)))
for what, attrs in {"scale_nan": [attr_f("scale", float("nan"))], "scale_inf": [attr_f("scale", float("inf"))],
                    "softcap_inf": [attr_f("softcap", float("inf"))], "softcap_negative": [attr_f("softcap", -1.0)],
                    "causal_2": [A("is_causal", 2)], "mode_9": [A("qk_matmul_output_mode", 9)]}.items():
    write("any", "attention_" + what, model(graph([node("Attention", ["x", "x", "x"], ["y"], *attrs)], [Q],
                                                  [value("y", ["b", "h", "n", 8])]), (("", 23),)))

# ------------------------------------------------------------------ much of one thing: time must grow with the file
names = [f"n{k}" for k in range(60_000)]
write("reject", "many_opsets", model(GOOD, [("", 21)] + [(n, 1) for n in names]))
with_functions("any", "many_functions", *[function(n, [node("Relu", ["a"], ["b"])]) for n in ["F"] + names[:10_000]],
               nodes=[call("F", "x", "t")] + [call(n, "x", n) for n in names[:9_999]] + [call("n9999", "x", "y")])
with_nodes("any", "many_inputs", [ADD], [X] + [value(n, [n + "d"]) for n in names[:8000]])
with_nodes("any", "many_weights", [ADD], inits=[W] + [tensor(n, [1], floats(1)) for n in names])
with_nodes("any", "many_nodes", [ADD] + [node("Relu", ["x"], [n]) for n in names[:20_000]])
with_nodes("any", "many_chained",
           [node("Relu", [a], [b_]) for a, b_ in zip(["x"] + names[:9_999], names[:9_999] + ["y"])])
with_nodes("any", "many_unknown_ops", [node("Op" + n, ["x"], [n]) for n in names[:20_000]])
with_nodes("any", "many_attributes", [node("Softmax", ["x"], ["y"], *[attr_i(n, 1) for n in names])])
write("any", "many_metadata", model(GOOD, more=[pair(14, n, n) for n in names]))
with_nodes("any", "many_node_inputs", [node("Concat", ["x"] * 60_000, ["y"], attr_i("axis", 0))])
with_nodes("any", "many_symbols", [ADD], [X] + [value(n, [f"{n}*3+{n}_"]) for n in names[:3000]])

# ------------------------------------------------------------------ numbers at the ends of their range


def const(name, *n): return tensor(name, [len(n)], struct.pack(f"<{len(n)}q", *n), INT64)


def microsoft(op, inputs, *attrs): return node(op, inputs, ["y"], *attrs, domain="com.microsoft")


def with_values(kind, what, nodes, inputs, inits=()):
    write(kind, what, model(graph(nodes, [value(*v) for v in inputs], [value("y", ["a", "b"])], inits),
                            (("", 21), ("com.microsoft", 1))))


FIRST, LAST = -(1 << 63), (1 << 63) - 1
step = graph([node("Identity", ["a"], ["z"])], [value("a", [3])], [value("z", [3])])
for what, n in {"first_32": -(1 << 31), "first": FIRST, "last": LAST, "one_beyond_32": (1 << 32) + 1}.items():
    with_values("reject", "scan_inputs_" + what, [node("Scan", ["x"], ["y"], attr_i("num_scan_inputs", n),
                                                       attr_g("body", step))], [("x", ["n", 3])])
cached = [("q", ["n", "s", 32]), ("l", ["n"], INT32), ("t", [], INT32)]
for heads in 1 << 62, LAST, FIRST:
    with_values("reject", f"heads_{heads}", [microsoft("GroupQueryAttention", ["q", "", "", "", "", "l", "t"],
                                                       attr_i("num_heads", heads), attr_i("kv_num_heads", heads))],
                cached)
image = [("x", [1, 1, 4, 4]), ("at", [1, 1, 4, 4], INT64)]
for what, pads in {"last": (LAST, 0, LAST, 0), "first": (FIRST, 0, 0, 0)}.items():
    with_values("reject", "unpool_pads_" + what, [node("MaxUnpool", ["x", "at"], ["y"], attr_is("kernel_shape", 2, 2),
                                                       attr_is("pads", *pads))], image)
    with_values("reject", "col2im_pads_" + what, [node("Col2Im", ["c", "s", "k"], ["y"], attr_is("pads", *pads))],
                [("c", [1, 4, 9])], [const("s", 4, 4), const("k", 2, 2)])
with_values("reject", "unpool_rank_1", [node("MaxUnpool", ["x", "x"], ["y"], attr_is("kernel_shape"))], [("x", [4])])
with_values("reject", "conv_kernel_2_62", [node("Conv", ["x", "w"], ["y"], attr_is("dilations", 1 << 30, 1))],
            [("x", [1, 1, 4, 4]), ("w", [1, 1, 1 << 62, 3])])
pieces = [node("SplitToSequence", ["x", "s"], ["q"]), node("ConcatFromSequence", ["q"], ["y"], attr_i("axis", 0))]
for what, sizes in {"last": (LAST, LAST), "negative": (8, -2), "first": (FIRST, 6), "beyond": (7,)}.items():
    with_values("reject", "split_" + what, pieces, [("x", [6, 3])], [const("s", *sizes)])
for n in LAST, FIRST, -1:
    with_values("accept" if n == LAST else "reject", f"split_each_{n}", pieces, [("x", [6, 3])],
                [tensor("s", [], struct.pack("<q", n), INT64)])
known = [node("Shape", ["x"], ["k"]), node("Slice", ["k", "from", "to", "zero", "step"], ["z"]),
         node("Expand", ["x", "z"], ["y"])]
for n in LAST, FIRST, FIRST + 1:
    with_values("any", f"slice_step_{n}", known, [("x", ["n", 3])], [const("from", 1), const("to", LAST),
                                                                     const("zero", 0), const("step", n)])
with_values("reject", "lrn_2_62", [node("LRN", ["x"], ["y"], attr_i("size", 1 << 62))], [("x", [1, 3, 2, 2])])
with_values("reject", "quantize_precision", [node("QuantizeLinear", ["x", "s"], ["q"], attr_i("precision", 2)),
                                             node("Cast", ["q"], ["y"], attr_i("to", 1))], [("x", ["n", 3])],
            [tensor("s", [], floats(0.1))])
for what, n in {"integers": attr_is("activations", 1, 2), "floats": [b(1, "activations"), f(7, 1.0), i(20, 6)]}.items():
    with_values("reject", "activations_" + what, [node("GRU", ["x", "w", "r"], ["y"], n)], [("x", [2, "n", 3])],
                [tensor("w", [1, 6, 3], floats(*[0.1] * 18)), tensor("r", [1, 6, 2], floats(*[0.1] * 12))])
with_values("reject", "gru_third_result", [node("GRU", ["x", "w", "r"], ["h", "z", "y"])], [("x", [2, "n", 3])],
            [tensor("w", [1, 6, 3], floats(*[0.1] * 18)), tensor("r", [1, 6, 2], floats(*[0.1] * 12))])
for factor in 1e30, float("inf"), float("nan"), 1e-30:
    with_values("any", f"resize_{factor}", [node("Resize", ["x", "", "s"], ["y"], [b(1, "mode"), b(4, "cubic"),
                                                                                   i(20, 3)])],
                [("x", [1, 1, 4, "n"])], [tensor("s", [4], floats(1, 1, factor, factor))])
with_values("reject", "resize_of_nothing", [node("Resize", ["x", "", "", "s"], ["y"], [
    b(1, "keep_aspect_ratio_policy"), b(4, "not_smaller"), i(20, 3)])], [("x", [1, 1, 0, 4])], [const("s", 1, 1, 5, 5)])
