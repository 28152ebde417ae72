#!/usr/bin/env python3
"""Makes the ONNX models of the command's tests with the onnx package, next to this file.
They are committed; run this only to change them.

padded.onnx     attention of q, k, v (b, 2, s, 8) with mask (b, 1, 1, s), as ONNX's Attention
spelled.onnx    the same spelled out at opset 18: the mask fills in -inf before a Softmax
wrong.onnx      a MatMul whose sizes do not fit, a value that nothing defines, an attribute that does not exist,
                a declared type that is not the op's
baked.onnx      x (batch, seq, 16) reshaped to (2, -1, 4, 4), the batch of the example
"""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent


def value(name, *shape, elem=T.FLOAT): return h.make_tensor_value_info(name, elem, shape)


def save(name, nodes, inputs, outputs, weights=(), info=(), opset=18):
    graph = h.make_graph(nodes, name, inputs, outputs, list(weights), value_info=list(info))
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10), HERE / f"{name}.onnx")


def main():
    qkv = [value(n, "b", 2, "s", 8) for n in "qkv"] + [value("mask", "b", 1, 1, "s", elem=T.BOOL)]
    y = [value("y", "b", 2, "s", 8)]
    save("padded", [h.make_node("Attention", ["q", "k", "v", "mask"], ["y"], name="attend")], qkv, y, opset=23)
    save("spelled", [h.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
                     h.make_node("MatMul", ["q", "t"], ["s"]), h.make_node("Where", ["mask", "s", "low"], ["m"]),
                     h.make_node("Softmax", ["m"], ["p"], axis=-1), h.make_node("MatMul", ["p", "v"], ["y"])], qkv, y,
         [numpy_helper.from_array(np.float32("-inf"), "low")])
    w = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    save("wrong", [h.make_node("MatMul", ["x", "w"], ["a"], name="first"), h.make_node("Add", ["x", "nowhere"], ["c"],
        name="second"), h.make_node("Softmax", ["x"], ["d"], name="third", axes=1),
                   h.make_node("Relu", ["x"], ["y"], name="fourth")], [value("x", "n", 4)],
         [value("y", "n", 4, elem=T.DOUBLE)], [w])
    shape = numpy_helper.from_array(np.array([2, -1, 4, 4], np.int64), "shape")
    save("baked", [h.make_node("Reshape", ["x", "shape"], ["y"], name="heads")], [value("x", "batch", "seq", 16)],
         [value("y", 2, None, 4, 4)], [shape])


if __name__ == "__main__":
    main()
