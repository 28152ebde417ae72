"""Calls whose attributes are large while their tensors are small: none may take a time or memory that its sizes do not
account for. Each runs in 2 s of CPU and 200 MiB beside 4 times the file, or is refused.

    python3 costs.py QKV [WORD ...]      those whose name holds a word; TAP
"""
import os, struct, sys, tempfile

import growth
from expressions import held
from growth import field, onnx_node, varint

FLOAT, DOUBLE, INT64 = 1, 11, 7
FAR = 1 << 28


def ints(name, *values):
    return field(5, field(1, name) + field(8, b"".join(varint(v) for v in values)) + field(20, 7))


def one(name, value):
    return field(5, field(1, name) + field(3, value) + field(20, 2))


def word(name, text):
    return field(5, field(1, name) + field(4, text) + field(20, 3))


def shape(dims):
    return field(2, b"".join(field(1, field(1, d)) for d in dims))


def given(name, dims, kind=FLOAT):
    return field(11, field(1, name) + field(2, field(1, field(1, kind) + shape(dims))))


def constant(name, dims, values=None, kind=FLOAT):
    """Zeros where no values are given."""
    n = 1
    for d in dims:
        n *= d
    form = {FLOAT: "f", DOUBLE: "d", INT64: "q"}[kind]
    data = struct.pack(f"<{n}{form}", *values) if values else bytes(n * struct.calcsize(form))
    return field(5, b"".join(field(1, d) for d in dims) + field(2, kind) + field(8, name) + field(9, data))


def model(nodes, parts, opset=20, kind=FLOAT):
    """The last node gives y."""
    y = field(12, field(1, "y") + field(2, field(1, field(1, kind))))
    return field(1, 10) + field(7, b"".join(nodes) + field(2, "g") + b"".join(parts) + y) + field(
        8, field(1, "") + field(2, opset))


def call(op, inputs, parts, *more, **options):
    return model([onnx_node(op, inputs, ["y"], *more)], parts, **options)


def transposed(x, w, kind=FLOAT, *more):
    return call("ConvTranspose", ["x", "w"], [given("x", x, kind), constant("w", w, kind=kind)], *more, kind=kind)


def convolution(x, w, *more, kind=FLOAT):
    return call("Conv", ["x", "w"], [given("x", x, kind), constant("w", w, kind=kind)], *more, kind=kind)


def expanded(op, sizes, inputs=("e",), parts=(), *more):
    nodes = [onnx_node("Expand", ["x", "sizes"], ["e"]), onnx_node(op, inputs, ["y"], *more)]
    return model(nodes, [given("x", [1]), constant("sizes", [len(sizes)], sizes, INT64), *parts])


def numbers(values, name="k", kind=INT64):
    return constant(name, [len(values)], values, kind)


def turns(n, first):
    """A loop of n turns that adds a number to `first`."""
    scalar = lambda name, kind: field(1, name) + field(2, field(1, field(1, kind) + field(2, b"")))
    body = (onnx_node("Identity", ["c"], ["d"]) + onnx_node("Add", ["a", "one"], ["b"]) + field(2, "body") +
            field(5, field(2, FLOAT) + field(8, "one") + field(9, struct.pack("<f", 1))) +
            field(11, scalar("t", INT64)) + field(11, scalar("c", 9)) + given("a", [4]) + field(12, scalar("d", 9)) +
            field(12, field(1, "b") + field(2, field(1, field(1, FLOAT) + shape([4])))))
    loop = onnx_node("Loop", ["m", "", first], ["z"], field(5, field(1, "body") + field(6, body) + field(20, 5)))
    most = field(5, field(2, INT64) + field(8, "m") + field(9, struct.pack("<q", n)))
    return model([loop, onnx_node("Add", ["z", "x"], ["y"])], [given("x", [4]), constant("k", [4]), most])


ONNX = {
    "10,000,000 turns of a loop": lambda: turns(10_000_000, "x"),
    "10,000,000 turns of a loop over weights": lambda: turns(10_000_000, "k"),
    "transposed convolution of a pixel, 1 x 65,536": lambda: transposed([1, 1, 2], [1, 1, 65536]),
    "of 65,536 x 1": lambda: transposed([1, 1, 2, 1], [1, 1, 65536, 1]),
    "of 512 x 512": lambda: transposed([1, 2, 1, 1], [2, 2, 512, 512]),
    "of 64 x 64 x 64": lambda: transposed([1, 1, 2, 1, 1], [1, 1, 64, 64, 64]),
    "of 65,536, 8 channels": lambda: transposed([1, 8, 2], [8, 8, 65536]),
    "of 65,536, 8 groups": lambda: transposed([1, 8, 2], [8, 1, 65536], FLOAT, one("group", 8)),
    "of 65,536 in doubles": lambda: transposed([1, 1, 2], [1, 1, 65536], DOUBLE),
    "transposed with stride 2^28": lambda: transposed([1, 1, 1], [1, 1, 3], FLOAT, ints("strides", FAR)),
    "convolution of a pixel, padded by 65,535": lambda: convolution(
        [1, 1, 1], [1, 1, 65536], ints("pads", 65535, 65535)),
    "padded by 32,767 x 1 in doubles": lambda: convolution(
        [1, 1, 1, 1], [1, 1, 32768, 1], ints("pads", 32767, 0, 32767, 0), kind=DOUBLE),
    "convolution, dilated and padded by 2^28": lambda: convolution(
        [1, 1, 4], [1, 1, 3], ints("pads", FAR, FAR), ints("dilations", FAR)),
    "depthwise, dilated and padded by 2^28": lambda: convolution(
        [1, 8, 4], [8, 1, 3], ints("pads", FAR, FAR), ints("dilations", FAR), one("group", 8)),
    "16 channels, dilated and padded by 2^20 twice": lambda: convolution(
        [1, 16, 4, 4], [16, 16, 3, 3], ints("pads", *[1 << 20] * 4), ints("dilations", 1 << 20, 1 << 20)),
    "pool of 65,536, dilated": lambda: call("MaxPool", ["x"], [given("x", [1, 1, 1 << 16])], ints(
        "kernel_shape", 2), ints("dilations", 65535)),
    "antialiased to a 2^28th": lambda: call("Resize", ["x", "", "k"], [given("x", [1, 1, 64, 64]), constant(
        "k", [4], [1, 1, 2.0**-28, 2.0**-28])], word("mode", "cubic"), one("antialias", 1)),
    "RoiAlign of 2^30 samples": lambda: call("RoiAlign", ["x", "r", "b"], [given("x", [1, 1, 8, 8]), constant(
        "r", [1, 4], [0, 0, 4, 4]), constant("b", [1], kind=INT64)], one("sampling_ratio", 1 << 30)),
    "RoiAlign of a region of 1e30": lambda: call("RoiAlign", ["x", "r", "b"], [given("x", [1, 1, 8, 8]), constant(
        "r", [1, 4], [0, 0, 1e30, 1e30]), constant("b", [1], kind=INT64)]),
    "LRN over 2^28 channels": lambda: call("LRN", ["x"], [given("x", [1, 2, 2, 2])], one("size", FAR + 1)),
    "einsum of four vectors to a number": lambda: call(
        "Einsum", ["x", "x1", "x2", "x3"], [given(n, [1000]) for n in ("x", "x1", "x2", "x3")], word("equation",
                                                                                                 "a,b,c,d->")),
    "einsum of three, one kept": lambda: call("Einsum", ["x", "x1", "x2"], [given(n, [2000]) for n in (
        "x", "x1", "x2")], word("equation", "a,b,c->b")),
    "einsum of a matrix's own columns": lambda: call("Einsum", ["x", "x"], [given("x", [64, 64])], word(
        "equation", "ab,cd->bd")),
    "pieces of 2^31": lambda: model([onnx_node("Expand", ["x", "s"], ["e"]), onnx_node(
        "SplitToSequence", ["e", "k"], ["q"]), onnx_node("SequenceAt", ["q", "z"], ["y"])], [given("x", [1]), constant(
            "s", [1], [1 << 31], INT64), constant("k", [], [1], INT64), constant("z", [], [5], INT64)]),
    "DFT of a prime": lambda: call("DFT", ["x"], [given("x", [1, 1000003, 1])], opset=17),
    "DFT to 2^40": lambda: call("DFT", ["x", "k"], [given("x", [1, 4, 1]), constant("k", [], [1 << 40], INT64)],
                                opset=17),
    "a window of 2^40": lambda: call("HannWindow", ["k"], [constant("k", [], [1 << 40], INT64)]),
    "mel weights of 2^20 x 2^20": lambda: call("MelWeightMatrix", list("abcde"), [constant(
        "a", [], [1 << 20], INT64), constant("b", [], [1 << 21], INT64), constant("c", [], [16000], INT64), constant(
            "d", [], [0.0]), constant("e", [], [8000.0])]),
    "zeros of 2^40": lambda: call("ConstantOfShape", ["k"], [numbers([1 << 40])]),
    "a range of 2^40": lambda: call("Range", ["a", "b", "c"], [constant(n, [], [v], INT64) for n, v in (
        ("a", 0), ("b", 1 << 40), ("c", 1))], kind=INT64),
    "one hot of 2^40": lambda: call("OneHot", ["x", "k", "v"], [given("x", [4], INT64), constant(
        "k", [], [1 << 40], INT64), constant("v", [2], [0.0, 1.0])]),
    "padded by 2^40": lambda: call("Pad", ["x", "k"], [given("x", [4]), numbers([0, 1 << 40])]),
    "tiled 2^40 times": lambda: call("Tile", ["x", "k"], [given("x", [4]), numbers([1 << 40])]),
    "random numbers of 2^40": lambda: call("RandomNormal", [], [], ints("shape", 1 << 20, 1 << 20)),
    "2^31 draws": lambda: call("Multinomial", ["x"], [given("x", [1, 4])], one("sample_size", (1 << 31) - 1), one(
        "dtype", INT64), kind=INT64),
    "a grid of 2^20 x 2^20": lambda: call("AffineGrid", ["x", "k"], [given("x", [1, 2, 3]), numbers(
        [1, 1, 1 << 20, 1 << 20])]),
    "columns to a picture, 65,536 taps": lambda: call("Col2Im", ["x", "s", "k"], [given("x", [1, 65536, 2]), numbers(
        [1, 65537], "s"), numbers([1, 65536])]),
    "cut to 2^40": lambda: call("CenterCropPad", ["x", "k"], [given("x", [4]), numbers([1 << 40])], ints("axes", 0)),
    "expanded to 2^40 and added": lambda: model([onnx_node("Expand", ["x", "k"], ["e"]), onnx_node(
        "Add", ["e", "z"], ["y"])], [given("x", [1]), numbers([1 << 40]), given("z", [1])]),
    "doubled forty times": lambda: model([onnx_node("Concat", [p, p], ["y" if i == 39 else f"c{i}"], field(5, field(
        1, "axis") + field(3, 0) + field(20, 2))) for i, p in enumerate(["x", *[f"c{k}" for k in range(39)]])], [given(
            "x", [4])]),
}


def aten(target, *args, results=("r0",)):
    """A node: tensors by name, numbers, lists of numbers."""
    def arg(v):
        if isinstance(v, str):
            return growth.tensor(v)
        if isinstance(v, list):
            return {"as_ints": v}
        return {"as_int": v} if isinstance(v, int) else {"as_float": v}
    return {"target": f"torch.ops.aten.{target}", "metadata": {}, "is_hop_single_tensor_return": None,
            "inputs": [{"name": n, "arg": arg(v), "kind": 1} for n, v in args],
            "outputs": [growth.tensor(r) for r in results]}


def sized(*sizes, dtype=7):
    strides = [1] * len(sizes)
    for i in range(len(sizes) - 1, 0, -1):
        strides[i - 1] = strides[i] * sizes[i]
    return {**growth.TENSOR, "dtype": dtype, "sizes": [{"as_int": s} for s in sizes],
            "strides": [{"as_int": s} for s in strides]}


def pt2(x, result, target, *args):
    def put(program):
        program["graph_module"]["graph"]["tensor_values"].update(x=sized(*x), r0=sized(*result))
    return lambda path: growth.archive(path, [aten(target, ("self", "x"), *args)], ["r0"],
                                       outputs=[{"user_output": {"arg": growth.tensor("r0")}}], extra=put)


PT2 = {
    "power 2^62 of a matrix": pt2([4, 4], [4, 4], "linalg_matrix_power.default", ("n", 1 << 62)),
    "2^40 differences": pt2([4], [0], "diff.default", ("n", 1 << 40)),
    "polygamma of 2^40": pt2([4], [4], "special_polygamma.default", ("n", 1 << 40)),
    "a histogram of 2^40": pt2([4], [1 << 40], "histc.default", ("bins", 1 << 40)),
    "repeated 2^40 times": pt2([4], [1 << 42], "repeat_interleave.self_int", ("repeats", 1 << 40)),
    "combinations of 30": pt2([60], [118264581564861424, 30], "combinations.default", ("r", 30)),
    "windows of 2^40": pt2([4], [1 << 40], "constant_pad_nd.default", ("pad", [0, 1 << 40])),
    "adaptive pool to 2^40": pt2([1, 1, 4, 4], [1, 1, 1 << 20, 1 << 20], "adaptive_avg_pool2d.default",
                                 ("output_size", [1 << 20, 1 << 20])),
}


def main():
    qkv, words, count, failed = os.path.abspath(sys.argv[1]), sys.argv[2:], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make in {**ONNX, **PT2}.items():
            if words and not any(w in name for w in words):
                continue
            path = os.path.join(folder, "m.onnx" if name in ONNX else "m.pt2")
            if name in ONNX:
                with open(path, "wb") as f:
                    f.write(make())
            else:
                make(path)
            commands = [["run", path], ["check", path], ["rewrite", path], ["convert", path, "-o", "o.onnx"]]
            if "turns" in name: # those of `run` are the user's own
                commands[0] = ["pack", path, "-o", "o.qkv"]
                commands += [["prove", path, path], ["report", path, "--no-run", "-o", "o.html"]]
            if "doubled" in name: # an exact proof has two values of 8 bytes for each element
                commands.append(["prove", path, path])
            most, worst, code, wrong = held(qkv, commands, path, folder)
            count, failed = count + 1, failed + bool(wrong)
            print(f"{'not ok' if wrong else 'ok'} {count} - {name}: {commands[0][0]}: exit {code}, at most "
                  f"{worst[0]:.0f} of {most:.0f} MiB and {worst[1]:.2f} of 2 s", *wrong, flush=True)
    print(f"1..{count}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
