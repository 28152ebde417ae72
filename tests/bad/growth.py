"""Memory and time of `qkv inspect` and `qkv check` on model files that grow, and of the commands that read other files:
what they take must be in proportion to the file.

    python3 growth.py QKV [--mb 1 10 100] [--kind NAME ...]      `--mb 100 --kind words`; all kinds by default

Makes a file of each kind and size with Python's standard library, runs each command on it and prints a table. A run
fails where it takes more than 4 times the file and 64 MiB, more than 2 s of CPU per 10 MB (and no less than 2 s), or
ends other than with 0 to 5; and where it takes 0.3 s and grew twice as fast as the file. TAP.
"""
import argparse, json, math, multiprocessing, os, struct, sys, tempfile, zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "../cli/models/affine.pt2")
sys.path.insert(0, os.path.join(HERE, ".."))
from protobuf import field, varint  # noqa: E402

TENSOR = {"dtype": 7, "sizes": [{"as_int": 4}], "requires_grad": False, "device": {"type": "cpu", "index": None},
          "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7}
SPEC = '[1, {"type": "builtins.tuple", "context": "null", "children_spec": []}]'


def tensor(name):
    return {"as_tensor": {"name": name}}


def archive(path, nodes=(), values=(), inputs=(), outputs=(), weights=(), deflate=False, extra=None):
    """A .pt2 with one input x of 4 numbers; `values` names more tensors,
    `weights` more parameters of one shared entry."""
    specs = [{"user_input": {"arg": tensor("x")}}] + list(inputs)
    graph = {"inputs": [], "outputs": [], "nodes": list(nodes),
             "tensor_values": {n: TENSOR for n in ["x", *values, *weights]}, "sym_int_values": {},
             "sym_bool_values": {}, "sym_float_values": {}, "is_single_tensor_return": False, "custom_obj_values": {}}
    specs += [{"parameter": {"arg": {"name": w}, "parameter_name": w}} for w in weights]
    call = {"fqn": "", "signature": {"inputs": [], "outputs": [], "in_spec": SPEC, "out_spec": SPEC,
                                     "forward_arg_names": ["x"]}}
    program = {"graph_module": {"graph": graph, "signature": {"input_specs": specs, "output_specs": list(outputs)},
                                "module_call_graph": [call], "metadata": {}, "treespec_namedtuple_fields": {}},
               "opset_version": {"aten": 10}, "range_constraints": {}, "schema_version": {"major": 8, "minor": 14},
               "verifiers": [], "torch_version": "2.13.0", "guards_code": []}
    if extra:
        extra(program)
    config = {"config": {w: {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": TENSOR}
                         for w in weights}}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED) as z:
        for name, text in {"archive_format": "pt2", "archive_version": "0", "byteorder": "little",
                           "models/model.json": json.dumps(program),
                           "data/weights/model_weights_config.json": json.dumps(config),
                           "data/constants/model_constants_config.json": '{"config": {}}',
                           "data/weights/weight_0": b"\0" * 16}.items():
            z.writestr("m/" + name, text)


def relu_of(of, to):
    return {"target": "torch.ops.aten.relu.default", "inputs": [{"name": "self", "arg": tensor(of), "kind": 1}],
            "outputs": [tensor(to)], "metadata": {}, "is_hop_single_tensor_return": None}


def relu(i, of): return relu_of(of, f"r{i}")


def nodes(path, n):
    archive(path, [relu(i, f"r{i - 1}" if i else "x") for i in range(n)], [f"r{i}" for i in range(n)],
            outputs=[{"user_output": {"arg": tensor(f"r{n - 1}")}}])


def call(op, of, to, *numbers):
    names = ("dim", "start", "end")
    return {"target": f"torch.ops.aten.{op}", "outputs": [tensor(to)], "metadata": {},
            "is_hop_single_tensor_return": None,
            "inputs": [{"name": n, "arg": a, "kind": 1} for n, a in
                       [("self", tensor(of)), *([("other", tensor(of))] if "_" in op else
                                                [(k, {"as_int": i}) for k, i in zip(names, numbers)])]]}


def writes(path, n, nested):
    """A buffer and n views, of it or each of the one before, which are written."""
    body = [call("slice.Tensor" if not nested else "unsqueeze.default" if i % 2 == 0 else "squeeze.dim",
                 f"v{i - 1}" if nested and i else "b", f"v{i}", *([0] if nested else [0, 0, 2])) for i in range(n)]
    body = [node for i, v in enumerate(body) for node in (v, call("add_.Tensor", f"v{i}", f"w{i}"))]

    def extra(program):
        sizes = lambda i: [1, 4] if nested and i % 2 == 0 else [4 if nested else 2]
        program["graph_module"]["graph"]["tensor_values"].update(
            {f"{k}{i}": {**TENSOR, "sizes": [{"as_int": s} for s in sizes(i)],
                         "strides": [{"as_int": 1}] * len(sizes(i))} for k in "vw" for i in range(n)})
    archive(path, [relu_of("x", "b"), *body, relu_of("b", "o")], ["b", "o"],
            outputs=[{"user_output": {"arg": tensor("o")}}], extra=extra)


def numbers(path, n):
    """n inputs that are numbers."""
    def extra(program):
        module = program["graph_module"]
        module["graph"]["sym_int_values"].update(
            {f"s{i}": {"as_expr": {"expr_str": f"s{i}", "hint": {"as_int": 4}}} for i in range(n)})
        program["range_constraints"].update({f"s{i}": {"min_val": 2, "max_val": 64} for i in range(n)})
    archive(path, [relu_of("x", "y")], ["y"], outputs=[{"user_output": {"arg": tensor("y")}}], extra=extra,
            inputs=[{"user_input": {"arg": {"as_sym_int": {"as_name": f"s{i}"}}}} for i in range(n)])


def detaches(path, n):
    """Sums of n values, detached each."""
    add = lambda i: {**call("add_.Tensor", f"d{i}", f"s{i}"), "target": "torch.ops.aten.add.Tensor"}
    body = [node for i in range(n) for node in (relu(i, "x"), call("detach.default", f"r{i}", f"d{i}"), add(i))]
    for i in range(1, n):
        body[3 * i + 2]["inputs"][1]["arg"] = tensor(f"s{i - 1}")
    archive(path, body, [f"{k}{i}" for k in "rds" for i in range(n)],
            outputs=[{"user_output": {"arg": tensor(f"s{n - 1}")}}])


def bomb(path, n):
    """Objects without members, deflated to a hundredth and less: refused, or read within the bound."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in {"archive_format": "pt2", "archive_version": "0",
                           "models/model.json": '{"a": [' + ",".join(["{}"] * n) + "]}",
                           "data/weights/model_weights_config.json": '{"config": {}}',
                           "data/constants/model_constants_config.json": '{"config": {}}'}.items():
            z.writestr("m/" + name, text)


def value_info(name):
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, field(1, field(1, 4)))))


def onnx(path, graph):
    with open(path, "wb") as f:
        f.write(field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17)))


def onnx_outputs(path, n):
    node = field(1, field(1, "x") + field(2, "y") + field(4, "Relu"))
    onnx(path, node + field(2, "g") + field(11, value_info("x")) + b"".join([field(12, value_info("y"))] * n))


def onnx_chain(path, n):
    body = b"".join(field(1, field(1, f"r{i - 1}" if i else "x") + field(2, f"r{i}") + field(4, "Relu"))
                    for i in range(n))
    onnx(path, body + field(2, "g") + field(11, value_info("x")) + field(12, value_info(f"r{n - 1}")))


def onnx_node(op, inputs, outputs, *more):
    return field(1, b"".join(field(1, x) for x in inputs) + b"".join(field(2, x) for x in outputs) + field(4, op) +
                 b"".join(more))


def onnx_model(path, nodes, inputs=b"", more=b""):
    onnx(path, nodes + field(2, "g") + inputs + field(11, value_info("x")) + field(12, value_info("y")) + more)


def named_size(name, size):
    return field(11, field(1, name) + field(2, field(1, field(1, 1) + field(2, field(1, field(2, size))))))


RELU = onnx_node("Relu", ["x"], ["y"])


def onnx_sums(path, _n):
    """An input whose smallest size is a product of sums: the same few bytes at any n."""
    sizes = "*".join(f"(a + b + {i})" for i in range(11))
    onnx_model(path, RELU, b"".join(named_size(k, size) for k, size in (("p", sizes), ("a", "a"), ("b", "b"))))


def onnx_names(path, n):
    """Names of sizes that are alike but for signs: each needs another one."""
    word = lambda i: "".join("-.:/"[i >> k & 3] for k in range(0, 20, 2))
    onnx_model(path, RELU, b"".join(named_size(f"i{i}", word(i) + "*1") for i in range(n)))


def onnx_products(path, n):
    onnx_model(path, RELU, b"".join(named_size(f"i{i}", f"a{i}*b{i}") for i in range(n)))


def onnx_odd(path, n):
    """Inputs whose sizes are 2 a + 1, each of a size of its own."""
    onnx_model(path, RELU, b"".join(named_size(f"i{i}", f"2*a{i} + 1") for i in range(n)))


def onnx_choices(path, n):
    """Sizes each of which two numbers give."""
    onnx_model(path, RELU, b"".join(named_size(f"i{i}", f"a{i}//2") for i in range(n)))


def onnx_backwards(path, n):
    """A sum of what all the nodes after it make."""
    onnx_model(path, onnx_node("Sum", [f"r{i}" for i in range(n)], ["y"]) + b"".join(
        onnx_node("Relu", ["x"], [f"r{i}"]) for i in range(n)))


def onnx_pieces(path, n):
    """Each node becomes 4 pieces, and what it gives is a result."""
    onnx_model(path, b"".join(onnx_node("SplitToSequence", ["x"], [f"s{i}"]) for i in range(n)) + RELU)


def onnx_sequence(path, n):
    onnx_model(path, onnx_node("SequenceEmpty", [], ["s0"]) + b"".join(
        onnx_node("SequenceInsert", [f"s{i}", "x"], [f"s{i + 1}"]) for i in range(n)) + RELU)


def onnx_sequence_results(path, n):
    onnx_model(path, onnx_node("SequenceConstruct", ["x"] * n, ["s"]) + RELU, more=field(12, field(1, "s")) * n)


def onnx_views(path, n):
    """Views, a product of a matrix with itself, and views of it."""
    side = lambda name: field(1, name) + field(2, field(1, field(1, 1) + field(2, field(1, field(1, 8)) * 2)))
    half = n // 2
    body = [onnx_node("Transpose", [f"r{i - 1}" if i else "x"], [f"r{i}"], field(6, "-" * 300)) for i in range(n)]
    body[half] = onnx_node("MatMul", [f"r{half - 1}"] * 2, [f"r{half}"])
    onnx(path, b"".join(body) + field(2, "g") + field(11, side("x")) + field(12, side(f"r{n - 1}")))


def onnx_turned(path, n):
    """(2, 4) seen as (2, 2, 2), turned and seen as (2, 4) again: after n times the place of an element is long."""
    list_of = lambda name, *sizes: field(5, field(1, len(sizes)) + field(2, 7) + field(8, name) +
                                         field(9, struct.pack(f"<{len(sizes)}q", *sizes)))
    perm = field(5, field(1, "perm") + b"".join(field(8, d) for d in (0, 2, 1)) + field(20, 7))
    sizes = field(1, field(1, 2)) + field(1, field(1, 4))
    side = lambda name: field(1, name) + field(2, field(1, field(1, 1) + field(2, sizes)))
    body = [onnx_node("Reshape", [f"c{i - 1}" if i else "x", "apart"], [f"a{i}"], field(6, "-" * 900)) +
            onnx_node("Transpose", [f"a{i}"], [f"b{i}"], perm) + onnx_node("Reshape", [f"b{i}", "flat"], [f"c{i}"])
            for i in range(n)]
    onnx(path, b"".join(body) + field(2, "g") + field(11, side("x")) + field(12, side(f"c{n - 1}")) +
         list_of("apart", 2, 2, 2) + list_of("flat", 2, 4))


def onnx_constants(path, n):
    """A list of 1024 numbers, negated over and over."""
    numbers = b"\x08\x80\x08\x10\x07" + field(8, "c") + field(9, b"\1" * 8192)
    onnx_model(path, b"".join(onnx_node("Neg", [f"c{i - 1}" if i else "c"], [f"c{i}"]) for i in range(n)) + RELU,
               more=field(5, numbers))


def onnx_turns(path, n):
    """A loop of 64 turns whose body holds nothing but constants."""
    flag, turn = (field(1, name) + field(2, field(1, field(1, kind) + field(2, b"")))
                  for name, kind in (("c", 9), ("t", 7)))
    body = (onnx_node("Identity", ["c"], ["d"]) + b"".join(
        field(5, b"\x08\x01\x10\x01" + field(8, f"w{i}") + field(9, b"\0" * 4)) for i in range(n)) +
            field(11, turn) + field(11, flag) + field(12, field(1, "d")))
    loop = onnx_node("Loop", ["m", ""], [], field(5, field(1, "body") + field(6, body) + field(20, 5)))
    onnx_model(path, loop + RELU,
               more=field(5, b"\x10\x07" + field(8, "m") + field(9, b"\x40" + b"\0" * 7)))


def attribute(name, value, kind): return field(5, field(1, name) + value + field(20, kind))


# c: is the sum of x not 0?
CONDITION = (onnx_node("ReduceSum", ["x"], ["s"], attribute("keepdims", field(3, 0), 2)) +
             onnx_node("Cast", ["s"], ["c"], attribute("to", field(3, 9), 2)))


def branch(name, nodes, result): return attribute(name, field(6, nodes + field(12, field(1, result))), 5)


def onnx_branches(path, n):
    """A chain of Ifs."""
    one = lambda i: onnx_node("If", ["c"], [f"y{i}"],
                              branch("then_branch", onnx_node("Relu", [f"y{i - 1}" if i else "x"], ["b"]), "b"),
                              branch("else_branch", onnx_node("Neg", ["x"], ["z"]), "z"))
    onnx_model(path, CONDITION + b"".join(map(one, range(n))) + onnx_node("Relu", [f"y{n - 1}"], ["y"]))


def onnx_module(path, n):
    """One node in a module n levels deep."""
    onnx_model(path, onnx_node("Relu", ["x"], ["y"], field(3, "/" + "a/" * n + "r")))


def guarded(path, n):
    """Sizes with a range each, and as many guards."""
    archive(path, extra=lambda program: program.update(
        range_constraints={f"s{i}": {"min_val": 2, "max_val": 1000 + i} for i in range(n)},
        guards_code=[f"s{i} <= {i}" for i in range(n)]))


def long_condition(path, _n):
    """A product of 12 sums that is never the size which it must be: 2 KB at any n."""
    size = lambda name: {"as_expr": {"expr_str": name, "hint": {"as_int": 4}}}

    def extra(program):
        program["guards_code"] = ["*".join(f"(s0 + s1 + {i})" for i in range(12)) + " == s0"]
        program["range_constraints"] = {s: {"min_val": 0, "max_val": 10} for s in ("s0", "s1")}
        for name in ("x", "r0"):
            program["graph_module"]["graph"]["tensor_values"][name] = {
                **TENSOR, "sizes": [size("s0"), size("s1")], "strides": [size("s1"), {"as_int": 1}]}
    archive(path, [relu(0, "x")], ["r0"], outputs=[{"user_output": {"arg": tensor("r0")}}], extra=extra)


def text(path, s):
    with open(path, "w") as f:
        f.write(s)


def rules(path, n):
    text(path, "(phase recompose)\n" + "".join(f"(rule r{i} (neg (neg ?x)) ?x)\n" for i in range(n)))


def one_rule(path, n):
    """A pattern of n alternatives."""
    text(path, "(phase recompose)\n(rule r (any " + "(neg ?x) " * n + ") ?x)\n")


def claims(path, n):
    text(path, json.dumps({"format": "qkv certificate 2",
                           "claims": [{"source": f"a{i}", "result": f"b{i}", "from": []} for i in range(n)]}))


def empty_claims(path, n):
    text(path, '{"format": "qkv certificate 2", "claims": [' + ",".join(["{}"] * n) + "]}")


def tokens(path, n):
    """A tokenizer.json of 2 n tokens, half of them merged."""
    text(path, json.dumps({"model": {
        "type": "BPE", "vocab": {f"{k}{i}": 2 * i + len(k) // 2 for i in range(n) for k in ("t", "t0t")},
        "merges": [f"t0 t{i}" for i in range(n)]},
        "pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}}))


def added_tokens(path, n):
    text(path, json.dumps({"added_tokens": [{"id": i, "content": f"<{i}>", "special": True} for i in range(n)],
                           "model": {"type": "BPE", "vocab": {"a": n}, "merges": []},
                           "pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}}))


def words(path, n):
    text(path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n" + "".join(f"w{i}\n" for i in range(n)))


def tensors(path, n):
    head = json.dumps({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(n)}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)


def arrays(path, n):
    """An archive of n arrays, each of which has one element."""
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
    one = b"\x93NUMPY\1\0" + struct.pack("<H", 118) + head.ljust(117).encode() + b"\n" + b"\0" * 4
    with zipfile.ZipFile(path, "w") as z:
        for i in range(n):
            z.writestr(f"a{i}.npy", one)


# kind: what makes a file of n elements, and its bytes an element
KINDS = {
    "unused tensor_values": (lambda p, n: archive(p, values=[f"t{i}" for i in range(n)]), 222),
    "nodes": (nodes, 420),
    "scalar inputs": (lambda p, n: archive(p, inputs=[{"constant_input": {"name": f"c{i}", "value": {"as_int": i}}}
                                                      for i in range(n)]), 65),
    "scalar outputs": (lambda p, n: archive(p, outputs=[{"user_output": {"arg": {"as_int": i}}} for i in range(n)]),
                       45),
    "weights on one entry": (lambda p, n: archive(p, weights=[f"w{i}" for i in range(n)]), 620),
    "outputs of one value": (lambda p, n: archive(p, outputs=[{"user_output": {"arg": tensor("x")}}] * n), 56),
    "writes to slices": (lambda p, n: writes(p, n, False), 1120),
    "writes through views of views": (lambda p, n: writes(p, n, True), 1050),
    "deflated objects": (bomb, 3),
    "ONNX outputs": (onnx_outputs, 19),
    "ONNX chain": (onnx_chain, 24),
    "ONNX names of sizes": (onnx_names, 40),
    "ONNX products of sizes": (onnx_products, 40),
    "ONNX nodes backwards": (onnx_backwards, 32),
    "ONNX pieces": (onnx_pieces, 30),
    "ONNX sequence": (onnx_sequence, 38),
    "ONNX results of a sequence": (onnx_sequence_results, 8),
    "ONNX constants": (onnx_constants, 22),
    "ONNX turns": (onnx_turns, 22),
    "ONNX module": (onnx_module, 2),
    "ONNX branches": (onnx_branches, 99),
    "guards": (guarded, 66),
}


# the same, the name of the file, and the command that reads it
OTHERS = {
    "detaches": (detaches, 1290, "m.pt2", ["QKV", "run", "FILE"]),
    "views in bf16": (onnx_views, 334, "m.onnx", ["QKV", "run", "FILE", "--dtype", "bf16", "--no-optimize"]),
    "views": (onnx_views, 334, "m.onnx", ["QKV", "run", "FILE", "--no-optimize"]),
    "turned views": (onnx_turned, 1035, "m.onnx", ["QKV", "rewrite", "FILE", "--certify", "c.json", "-o", "o.pt2"]),
    **{f"a chain: {' '.join(words)}": (onnx_chain, 24, "m.onnx", ["QKV", words[0], "FILE", *words[1:]]) for words in
       (["run"], ["pack", "-o", "o.qkv"], ["convert", "-o", "o.pt2"], ["rewrite", "-o", "o.pt2"],
        ["report", "--no-run", "-o", "o.html"],
        ["compare", "FILE", "--no-run", "-o", "o.html"])},
    "a product of sums": (onnx_sums, 1000000, "m.onnx", ["QKV", "pack", "FILE", "-o", "o.qkv"]),
    "a long condition": (long_condition, 1000000, "m.pt2", ["QKV", "rewrite", "FILE", "-o", "o.pt2"]),
    "rules": (rules, 30, "m.rules", ["QKV", "rewrite", MODEL, "--rules", "FILE"]),
    "one rule": (one_rule, 9, "m.rules", ["QKV", "rewrite", MODEL, "--rules", "FILE"]),
    "claims": (claims, 52, "m.json", ["CERTIFY", MODEL, MODEL, "FILE"]),
    "empty claims": (empty_claims, 3, "m.json", ["CERTIFY", MODEL, MODEL, "FILE"]),
    "tokens": (tokens, 43, "tokenizer.json", ["QKV", "generate", MODEL, "--prompt", "a", "--tokenizer", "FILE"]),
    "added tokens": (added_tokens, 55, "tokenizer.json",
                     ["QKV", "generate", MODEL, "--prompt", "a", "--tokenizer", "FILE"]),
    "words": (words, 8, "vocab.txt", ["QKV", "embed", os.path.join(HERE, "../cli/models/words.pt2"), "a", "--vocab",
                                      "FILE"]),
    "safetensors": (tensors, 66, "x.safetensors", ["QKV", "run", MODEL, "-i", "FILE"]),
    "npz": (arrays, 250, "x.npz", ["QKV", "run", MODEL, "-i", "FILE"]),
}


def negations(path, n):
    archive(path, [{**relu(i, f"r{i - 1}" if i else "x"), "target": "torch.ops.aten.neg.default"} for i in range(n)],
            [f"r{i}" for i in range(n)], outputs=[{"user_output": {"arg": tensor(f"r{n - 1}")}}])


def onnx_data_sizes(path, n):
    """A sum of n numbers that each have a size of data: how many elements are not 0."""
    to_float = field(5, field(1, "to") + field(3, 1) + field(20, 2))
    onnx_model(path, b"".join(
        onnx_node("Sin", [f"a{i - 1}" if i else "x"], [f"s{i}"]) + onnx_node("NonZero", [f"s{i}"], [f"z{i}"]) +
        onnx_node("ReduceSum", [f"z{i}"], [f"t{i}"]) + onnx_node("Cast", [f"t{i}"], [f"c{i}"], to_float) +
        onnx_node("Squeeze", [f"c{i}"], [f"q{i}"]) + onnx_node("Add", [f"s{i}", f"q{i}"], [f"a{i}"])
        for i in range(n)) + onnx_node("Relu", [f"a{n - 1}"], ["y"]))


def onnx_random(path, n):
    onnx_model(path, b"".join(
        onnx_node("RandomNormalLike", [f"a{i - 1}" if i else "x"], [f"s{i}"]) +
        onnx_node("Add", [f"a{i - 1}" if i else "x", f"s{i}"], [f"a{i}"]) for i in range(n)) +
               onnx_node("Relu", [f"a{n - 1}"], ["y"]))


def onnx_inputs(path, n):
    """A sum of n inputs, each of a size of its own."""
    one = lambda i: (onnx_node("ReduceSum", [f"i{i}"], [f"q{i}"], field(
        5, field(1, "keepdims") + field(3, 0) + field(20, 2))) +
                     onnx_node("Add", [f"s{i - 1}" if i else "x", f"q{i}"], [f"s{i}"]))
    onnx_model(path, b"".join(one(i) for i in range(n)) + onnx_node("Relu", [f"s{n - 1}"], ["y"]),
               b"".join(named_size(f"i{i}", f"n{i}") for i in range(n)))


def onnx_pairs(path, n):
    """Sines, each negated twice: as many claims of a certificate."""
    onnx_model(path, b"".join(
        onnx_node(op, [f"{of}{i - (of == 'c')}" if i or of != "c" else "x"], [f"{to}{i}"])
        for i in range(n) for op, of, to in (("Sin", "c", "a"), ("Neg", "a", "b"), ("Neg", "b", "c"))) +
               onnx_node("Relu", [f"c{n - 1}"], ["y"]))


def onnx_equal(path, n):
    """The same sine n times, and the sum of all."""
    onnx_model(path, b"".join(onnx_node("Sin", ["x"], [f"a{i}"]) for i in range(n)) + b"".join(
        onnx_node("Add", [f"s{i - 1}" if i else "x", f"a{i}"], [f"s{i}"]) for i in range(n)) +
               onnx_node("Relu", [f"s{n - 1}"], ["y"]))


def onnx_lives(path, n):
    """A sum at the end of n sines of sines: each lives until then."""
    onnx_model(path, b"".join(onnx_node("Sin", [f"a{i - 1}" if i else "x"], [f"a{i}"]) for i in range(n)) +
               onnx_node("Sum", [f"a{i}" for i in range(n)], ["s"]) + onnx_node("Relu", ["s"], ["y"]))


def onnx_layers(path, n):
    """Products with one matrix, biases and activations: as many claims as layers."""
    side = lambda name: field(1, name) + field(2, field(1, field(1, 1) + field(2, field(1, field(1, 4)) * 2)))
    body = [onnx_node("MatMul", [f"r{i - 1}" if i else "x", "w"], [f"m{i}"]) +
            onnx_node("Add", [f"m{i}", "b"], [f"a{i}"]) + onnx_node("Relu", [f"a{i}"], [f"r{i}"]) for i in range(n)]
    weight = lambda name, *sizes: field(5, b"".join(field(1, s) for s in sizes) + field(2, 1) + field(8, name) +
                                        field(9, b"\0\0\x80\x3e" * math.prod(sizes)))
    onnx(path, b"".join(body) + field(2, "g") + field(11, side("x")) + field(12, side(f"r{n - 1}")) +
         weight("w", 4, 4) + weight("b", 4))


def onnx_weights(path, n):
    """Products with a matrix each."""
    side = lambda name: field(1, name) + field(2, field(1, field(1, 1) + field(2, field(1, field(1, 8)) * 2)))
    weight = lambda name: (field(1, 8) * 2 + field(2, 1) + field(8, name) + field(9, b"\0\0\x80\x3e" * 64))
    onnx(path, b"".join(onnx_node("MatMul", [f"r{i - 1}" if i else "x", f"w{i}"], [f"r{i}"]) for i in range(n)) +
         field(2, "g") + field(11, side("x")) + field(12, side(f"r{n - 1}")) +
         b"".join(field(5, weight(f"w{i}")) for i in range(n)))


def onnx_loss(path, n):
    """The sum of what n matrices make of the input, one after the other."""
    weight = lambda name: (field(1, 8) * 2 + field(2, 1) + field(8, name) + field(9, b"\0\0\0\x3e" * 64))
    side = field(2, field(1, field(1, 1) + field(2, field(1, field(1, 8)) * 2)))
    onnx(path, b"".join(onnx_node("MatMul", [f"r{i - 1}" if i else "x", f"w{i}"], [f"r{i}"]) for i in range(n)) +
         onnx_node("ReduceSum", [f"r{n - 1}"], ["y"], field(5, field(1, "keepdims") + field(3, 0) + field(20, 2))) +
         field(2, "g") + field(11, field(1, "x") + side) +
         field(12, field(1, "y") + field(2, field(1, field(1, 1) + field(2, b"")))) +
         b"".join(field(5, weight(f"w{i}")) for i in range(n)))


def onnx_indices(path, n):
    """Two rows gathered and scattered n times: each makes the constants that convert folds."""
    to = field(5, field(1, 2) + field(1, 1) + field(2, 7) + field(8, "i") + field(9, struct.pack("<2q", 0, 2)))
    onnx_model(path, b"".join(
        onnx_node("GatherND", [f"a{i - 1}" if i else "x", "i"], [f"g{i}"]) + onnx_node("Sin", [f"g{i}"], [f"s{i}"]) +
        onnx_node("ScatterND", [f"a{i - 1}" if i else "x", "i", f"s{i}"], [f"a{i}"]) for i in range(n)) +
               onnx_node("Relu", [f"a{n - 1}"], ["y"]), more=to)


def onnx_quantized(path, n):
    """Values that are rounded to 8 bits after each of n functions."""
    byte = field(2, 3) + field(8, "z") + field(9, b"\0")
    scale = field(2, 1) + field(8, "s") + field(9, struct.pack("<f", 0.1))
    onnx_model(path, b"".join(
        onnx_node("QuantizeLinear", [f"t{i - 1}" if i else "x", "s", "z"], [f"q{i}"]) +
        onnx_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"]) + onnx_node("Tanh", [f"d{i}"], [f"t{i}"])
        for i in range(n)) + onnx_node("Relu", [f"t{n - 1}"], ["y"]), more=field(5, byte) + field(5, scale))


def onnx_norms(path, n):
    """Convolutions, each before a normalization that becomes part of it."""
    numbers = lambda name, *sizes: field(5, b"".join(field(1, s) for s in sizes) + field(2, 1) + field(8, name) +
                                         field(9, struct.pack("<f", 0.5) * math.prod(sizes)))
    side = lambda name: field(1, name) + field(2, field(1, field(1, 1) + field(2, b"".join(
        field(1, field(1, s)) for s in (1, 2, 3, 3)))))
    one = lambda i: (onnx_node("Conv", [f"r{i - 1}" if i else "x", f"w{i}"], [f"c{i}"]) +
                     onnx_node("BatchNormalization", [f"c{i}", *(f"{k}{i}" for k in "sbmv")], [f"r{i}"]))
    weights = lambda i: numbers(f"w{i}", 2, 2, 1, 1) + b"".join(numbers(f"{k}{i}", 2) for k in "sbmv")
    onnx(path, b"".join(map(one, range(n))) + field(2, "g") + field(11, side("x")) + field(12, side(f"r{n - 1}")) +
         b"".join(map(weights, range(n))))


def onnx_captures(path, n):
    """An If whose branches read n weights of the graph around them."""
    weight = lambda i: field(5, field(1, 4) + field(2, 1) + field(8, f"w{i}") + field(9, b"\0\0\x80\x3e" * 4))
    chain = lambda op: b"".join(onnx_node(op, [f"{op}{i - 1}" if i else "x", f"w{i}"], [f"{op}{i}"]) for i in range(n))
    half = lambda name, op: branch(name, chain(op), f"{op}{n - 1}")
    onnx_model(path, CONDITION + onnx_node("If", ["c"], ["y"], half("then_branch", "Add"), half("else_branch", "Mul")),
               more=b"".join(map(weight, range(n))))


def onnx_constants_of_two(path, n):
    """A sum of n constants, beside it one of n others, and a certificate that claims nothing."""
    number = lambda i, by: field(5, field(2, 1) + field(8, f"{by}{i}") + field(9, struct.pack("<f", i + by)))
    one = lambda by: (b"".join(onnx_node("Add", [f"s{i - 1}" if i else "x", f"{by}{i}"], [f"s{i}"]) for i in range(n)) +
                      onnx_node("Relu", [f"s{n - 1}"], ["y"]), b"", b"".join(number(i, by) for i in range(n)))
    onnx_model(path, *one(0.25))
    onnx_model(os.path.join(os.path.dirname(path), "o.onnx"), *one(0.5))
    empty_claims(os.path.join(os.path.dirname(path), "c.json"), 0)


# What works for each node: a file of n and one of 2 n of them, which takes at most three times as long, and as much
# memory. kind: what makes it, n, the name of the file, and the command
DOUBLED = {
    "proofs of a chain": (negations, 10000, "m.pt2", ["QKV", "rewrite", "FILE", "--prove"]),
    "proofs of layers": (onnx_layers, 4000, "m.onnx", ["QKV", "rewrite", "FILE", "--prove"]),
    "sizes of data": (onnx_data_sizes, 4000, "m.onnx", ["QKV", "convert", "FILE", "-o", "o.pt2"]),
    "a chain of sizes of data": (onnx_data_sizes, 4000, "m.onnx", ["QKV", "run", "FILE"]),
    "sizes that leave a choice": (onnx_choices, 9000, "m.onnx", ["QKV", "run", "FILE"]),
    "equal nodes": (onnx_equal, 5000, "m.onnx", ["QKV", "rewrite", "FILE"]),
    "long lives": (onnx_lives, 20000, "m.onnx", ["QKV", "run", "FILE"]),
    "inputs": (onnx_inputs, 4000, "m.onnx", ["QKV", "prove", "FILE", "FILE"]),
    "sizes that follow": (onnx_odd, 16000, "m.onnx", ["QKV", "run", "FILE"]),
    "sizes of two models": (onnx_odd, 12000, "m.onnx", ["QKV", "prove", "FILE", "FILE"]),
    "claims of a chain": (onnx_pairs, 1500, "m.onnx", ["QKV", "rewrite", "FILE", "--certify", "c.json", "-o", "o.pt2"]),
    "packed weights": (onnx_weights, 8000, "m.onnx", ["QKV", "pack", "FILE", "-o", "o.qkv"]),
    "weights in ONNX": (onnx_weights, 10000, "m.onnx", ["QKV", "convert", "FILE", "-o", "o.onnx"]),
    "weights in branches": (onnx_captures, 2000, "m.onnx", ["QKV", "rewrite", "FILE", "-o", "o.pt2"]),
    "folded norms": (onnx_norms, 2000, "m.onnx", ["QKV", "rewrite", "FILE", "-o", "o.pt2"]),
    "claims of norms": (onnx_norms, 1500, "m.onnx", ["QKV", "rewrite", "FILE", "--certify", "c.json", "-o", "o.pt2"]),
    "gradients": (onnx_loss, 20000, "m.onnx", ["QKV", "joint", "FILE", "-o", "o.pt2"]),
    "weights in bf16": (onnx_weights, 5000, "m.onnx", ["QKV", "convert", "FILE", "--dtype", "bf16", "-o", "o.pt2"]),
    "folded constants": (onnx_indices, 1500, "m.onnx", ["QKV", "convert", "FILE", "-o", "o.pt2"]),
    "numbers of two models": (numbers, 16000, "m.pt2",
                              ["QKV", "rewrite", "FILE", "--certify", "c.json", "-o", "o.pt2"]),
    "claims of branches": (onnx_branches, 99, "m.onnx",
                           ["QKV", "rewrite", "FILE", "--certify", "c.json", "-o", "o.pt2"]),
    "other names": (onnx_quantized, 1500, "m.onnx", ["QKV", "rewrite", "FILE", "--certify", "c.json", "-o", "o.pt2"]),
    "random numbers": (onnx_random, 1000, "m.onnx", ["QKV", "rewrite", "FILE", "--certify", "c.json", "-o", "o.pt2"]),
}


# What takes more for each thing than the rule allows: up to so many of them 64 MiB and 2 s are enough. As in DOUBLED
CEILINGS = {
    "many sizes of data": (onnx_data_sizes, 8000, "m.onnx", ["QKV", "run", "FILE"]),
    "a page with times": (onnx_chain, 20000, "m.onnx", ["QKV", "report", "FILE", "--runs", "1", "-o", "o.html"]),
    "constants of two models": (onnx_constants_of_two, 12000, "m.onnx", ["CERTIFY", "FILE", "o.onnx", "c.json"]),
}


WRITTEN = ("o.pt2", "o.onnx", "o.qkv", "o.html", "c.json")
MACHINE = 128  # MiB with which two threads measure how fast memory is read


def doubled(kind, qkv, folder):
    """What both runs take, and whether both commands end well; once more where other work disturbed."""
    make, n, name, command = DOUBLED[kind]
    path = os.path.join(folder, name)
    programs = {"QKV": qkv, "FILE": path, **{w: os.path.join(folder, w) for w in WRITTEN}}
    for _ in range(2):
        runs = []
        for k in (n, 2 * n):
            apart(make, path, k)
            runs.append(measure([programs.get(word, word) for word in command]))
        fine = all(r[0] == 0 for r in runs) and runs[1][2] <= max(3 * runs[0][2], 0.3) and \
            runs[1][1] <= 3 * runs[0][1]
        if fine:
            break
    return fine, runs


def files(kinds, sizes, folder, qkv):
    """(kind, MB, path, command) of each run."""
    certify = os.path.join(os.path.dirname(os.path.realpath(qkv)), "../qkv-certify")
    for kind in kinds:
        make, each, name, *command = (*KINDS[kind], "m.onnx" if "ONNX" in kind else "m.pt2", ["QKV", "inspect", "FILE"],
                                      ["QKV", "check", "FILE"]) if kind in KINDS else OTHERS.get(kind) or CEILINGS[kind]
        for mb in [1] if kind in CEILINGS else sizes:
            path = os.path.join(folder, name)
            apart(make, path, each if kind in CEILINGS else int(mb * 1e6 / each))
            programs = {"QKV": qkv, "CERTIFY": certify, "FILE": path,
                        **{w: os.path.join(folder, w) for w in WRITTEN}}
            for words in command:
                yield kind, mb, path, [programs.get(word, word) for word in words]


def environment():
    """Without the pattern that meson has malloc write into all memory: it takes twice as long as the rest, and makes
    pages resident that are not used."""
    return {k: v for k, v in os.environ.items() if k != "MALLOC_PERTURB_"}


def measure(command):
    """Exit code, MB and CPU seconds of one run."""
    silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    _, status, used = os.wait4(os.posix_spawnp(command[0], command, environment(), file_actions=silent), 0)
    return os.waitstatus_to_exitcode(status), used.ru_maxrss / 1024, used.ru_utime + used.ru_stime


def apart(make, *args):
    """In a process of its own: the peak of a command counts the memory of this one, which it begins as."""
    made = multiprocessing.get_context("fork").Process(target=make, args=args)
    made.start()
    made.join()
    if made.exitcode:
        sys.exit(f"a file cannot be made: {args}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("qkv")
    p.add_argument("--mb", type=float, nargs="+", default=[1, 10])
    p.add_argument("--kind", nargs="+", default=[*KINDS, *OTHERS, *CEILINGS, *DOUBLED])
    a = p.parse_args()
    count, failed, before = 0, 0, {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in [k for k in a.kind if k in DOUBLED]:
            ok, runs = doubled(kind, a.qkv, folder)
            count, failed = count + 1, failed + (not ok)
            print(f"{'ok' if ok else 'not ok'} {count} - {kind}, and twice as many: exit {runs[0][0]} and "
                  f"{runs[1][0]}, {runs[0][1]:.0f} and {runs[1][1]:.0f} MiB, {runs[0][2]:.2f} and {runs[1][2]:.2f} s",
                  flush=True)
        for kind, mb, path, command in files([k for k in a.kind if k not in DOUBLED], a.mb, folder, a.qkv):
            size = os.path.getsize(path) / 1e6
            code, peak, cpu = measure(command)
            most, time = 4 * size * 1e6 / 2**20 + 64, max(2, 0.2 * mb)
            most += MACHINE * ("--runs" in command)
            name = command[1] if command[0] == a.qkv else "certify"
            smaller, least = before.get((kind, name), (size, cpu))
            before[kind, name] = size, max(cpu, 0.01)
            in_line = cpu < 0.3 or cpu <= 2 * least * size / smaller
            ok = peak <= most and cpu <= time and in_line and code in (0, 1, 2, 3, 4, 5)  # 2: no such input
            count, failed = count + 1, failed + (not ok)
            print(f"{'ok' if ok else 'not ok'} {count} - {kind}: {size:.2f} MB {name}: exit {code}, "
                  f"{peak:.0f} of {most:.0f} MiB, {cpu:.2f} of {time:.0f} s", flush=True)
    print(f"1..{count}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
