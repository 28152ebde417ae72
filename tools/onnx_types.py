#!/usr/bin/env python3
"""Writes src/onnx/write/types.def: which dtypes an ONNX op takes, by the standard's schemas (onnx.defs) and by what
ONNX Runtime makes a CPU session of.

    tools/onnx_types.py             writes the file
    tools/onnx_types.py --check     exit code 1 when the file is not what would be written

A model of one node is made for every op, dtype and opset below. FIXED takes away what fails only when it runs.
"""
import argparse
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper

FILE = pathlib.Path(__file__).resolve().parent.parent / "src" / "onnx" / "write" / "types.def"
DTYPES = dict(F32=T.FLOAT, F64=T.DOUBLE, F16=T.FLOAT16, BF16=T.BFLOAT16, I64=T.INT64, I32=T.INT32, I16=T.INT16,
              I8=T.INT8, U8=T.UINT8, BOOL=T.BOOL, U16=T.UINT16,
              U32=T.UINT32, U64=T.UINT64)
SPELLED = {"tensor(" + n + ")": k for n, k in (("float", "F32"), ("double", "F64"), ("float16", "F16"),
                                               ("bfloat16", "BF16"), ("int64", "I64"), ("int32", "I32"),
                                               ("int16", "I16"),
                                                ("int8", "I8"), ("uint8", "U8"), ("bool", "BOOL"), ("uint16", "U16"),
                                                ("uint32", "U32"), ("uint64", "U64"))}
OPSETS = (17, 18, 20, 22, 23)
M, IMAGE = [2, 3], [2, 2, 3, 3]


def i64(*v):
    return np.array(v, np.int64)


# op -> (inputs: "T" = of the dtype in question with SHAPE, a list = of the dtype with that shape,
# an array = a constant, "" = left out), attributes, SHAPE
OPS = {op: (["T"], {}, M) for op in (
    "Abs Neg Sign Relu Exp Log Sqrt Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Sigmoid "
    "Erf Floor Ceil Round IsNaN IsInf Not Softplus HardSigmoid "
    "HardSwish Elu LeakyRelu BitwiseNot Softmax LogSoftmax Mish ThresholdedRelu Softsign Gelu ReduceMax ReduceMin "
    "ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp "
    "ReduceSumSquare ArgMax ArgMin Transpose Trilu EyeLike NonZero Bernoulli RandomUniformLike Clip Selu Celu "
    "Hardmax Unique").split()}
OPS |= {op: (["T", "T"], {}, M) for op in (
    "Add Sub Mul Div Pow Mod Max Min Equal Less Greater LessOrEqual GreaterOrEqual And Or Xor BitwiseAnd BitwiseOr "
    "BitwiseXor PRelu Sum").split()}
OPS |= {
    "Where": ([np.array([True, False, True]), "T", "T"], {}, M), "ReduceSum": (["T", i64(1)], {}, M),
    "CumSum": (["T", np.array(0)], {}, M), "TopK": (["T", i64(2)], {}, M),
    "MatMul": (["T", "T"], {}, [3, 3]), "Gemm": (["T"] * 3, {}, [3, 3]), "Conv": (["T", "T"], {}, IMAGE),
    "ConvTranspose": (["T", "T"], {}, IMAGE), "MaxPool": (["T"], {"kernel_shape": [2, 2]}, IMAGE),
    "AveragePool": (["T"], {"kernel_shape": [2, 2]}, IMAGE), "GlobalAveragePool": (["T"], {}, IMAGE),
    "LayerNormalization": (["T", [3]], {}, M), "BatchNormalization": (["T"] + [[2]] * 4, {}, [2, 2, 3]),
    "InstanceNormalization": (["T", [2], [2]], {}, [2, 2, 3]), "GroupNormalization": (["T", [2], [2]],
        {"num_groups": 2}, [2, 2, 3]), "RMSNormalization": (["T", [3]], {}, M),
    "Attention": (["T"] * 3, {}, [1, 2, 3, 4]),
    "RotaryEmbedding": (["T", [1, 3, 2], [1, 3, 2]], {}, [1, 2, 3, 4]), "Reshape": (["T", i64(-1)], {}, M),
    "Concat": (["T", "T"], {"axis": 0}, M), "Expand": (["T", i64(2, 2, 3)], {}, M),
    "Slice": (["T", i64(0), i64(1), i64(0)], {}, M), "Tile": (["T", i64(2, 1)], {}, M),
    "Gather": (["T", i64(0, 1)], {}, M), "GatherElements": (["T", i64([0, 1, 0])], {}, M),
    "GatherND": (["T", i64([0, 1])], {}, M), "ScatterElements": (["T", i64([0, 1, 0]), [1, 3]], {}, M),
    "ScatterND": (["T", i64([0, 1], [1, 1]), [2]], {}, M), "Pad": (["T", i64(0, 0, 1, 1)], {}, M),
    "Squeeze": (["T", i64(0)], {}, [1, 3]), "Unsqueeze": (["T", i64(0)], {}, M),
    "Range": ([[], [], []], {}, []), "Resize": (["T", "", "", i64(1, 1, 4, 4)], {}, [1, 1, 2, 2]),
    "GridSample": (["T", "T"], {}, [1, 2, 3, 2]), "Einsum": (["T", "T"], {"equation": "ij,ij->i"}, M),
    "Split": (["T"], {"num_outputs": 2}, [2, 2]), "LSTM": ([[2, 1, 3], [1, 4, 3], [1, 4, 1]], {"hidden_size": 1}, M),
    "GRU": ([[2, 1, 3], [1, 3, 3], [1, 3, 1]], {"hidden_size": 1}, M),
    "RNN": ([[2, 1, 3], [1, 1, 3], [1, 1, 1]], {"hidden_size": 1}, M), "Det": (["T"], {}, [2, 2]),
    "RoiAlign": (["T", [2, 4], i64(0, 0)], {}, [1, 1, 3, 3]), "BitShift": (["T", "T"], {"direction": "LEFT"}, M),
    "Col2Im": (["T", i64(4, 4), i64(2, 2)], {}, [1, 4, 9]),
}
# "Could not run" comes late: an LSTM of float64 loads, Clip of bf16 is written out into ops that are not there
FIXED = {"LSTM": {"F64"}, "GRU": {"F64"}, "Clip": {"BF16"}}
SAME = {"Pow": 3}  # its exponent has a type of its own in the standard; we give it the base's


def schema(op, opset):
    try:
        return onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None


def loads(op, dtype, opset):
    inputs, attributes, shape = OPS[op]
    names, graph_inputs, constants = [], [], []
    for j, x in enumerate(inputs):
        names.append("" if isinstance(x, str) and x == "" else f"i{j}")
        if isinstance(x, np.ndarray):
            constants.append(onnx.numpy_helper.from_array(x, names[-1]))
        elif names[-1]:
            graph_inputs.append(helper.make_tensor_value_info(names[-1], DTYPES[dtype], shape if x == "T" else x))
    if op == "Split" and opset < 18:
        attributes = {}
    node = helper.make_node(op, names, [f"o{k}" for k in range(max(1, schema(op, opset).min_output))], **attributes)
    try:
        graph = helper.make_graph([node], "g", graph_inputs, [onnx.ValueInfoProto(name=o) for o in node.output],
                                  constants)
        model = onnx.shape_inference.infer_shapes(helper.make_model(graph,
                                                                    opset_imports=[helper.make_opsetid("", opset)],
                                                                    ir_version=10), strict_mode=True)
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return True
    except Exception:  # the standard or the runtime says no
        return False


def key(op):
    return next(j for j, x in enumerate(OPS[op][0]) if not isinstance(x, np.ndarray))


def allowed(op, opset):
    s = schema(op, opset)
    name = s.inputs[min(key(op), len(s.inputs) - 1)].type_str
    types = next((c.allowed_type_strs for c in s.type_constraints if c.type_param_str == name), [name])
    return {SPELLED[t] for t in types if t in SPELLED}


def row(op):
    opsets = [v for v in OPSETS if schema(op, v)]
    early = set.intersection(*(allowed(op, v) for v in opsets))
    runs = [{d for d in allowed(op, v) if loads(op, d, v)} for v in opsets]
    ours = (set.intersection(*runs) or set.union(*runs)) - FIXED.get(op, set())
    s = schema(op, OPSETS[-1])
    name, mask = s.inputs[min(key(op), len(s.inputs) - 1)].type_str, 0
    for j, i in enumerate(s.inputs):
        if i.type_str == name:
            mask |= 0xffffffff if i.option == onnx.defs.OpSchema.FormalParameterOption.Variadic else 1 << j
    sets = ("(" + " | ".join(d for d in DTYPES if d in x) + ")" if x else "0"
            for x in (early, early | allowed(op, OPSETS[-1]), ours))
    same = "true" if s.outputs[0].type_str == name else "false"
    return in_lines([f"TYPES({op}", f"0x{SAME.get(op, mask):x}", same, *sets])


def in_lines(parts, width=120):
    """The parts of a row, separated by commas, in lines of at most `width` columns."""
    out, line = [], ""
    for part in (p + (")" if p is parts[-1] else ",") for p in parts):
        if line and len(line) + 1 + len(part) > width:
            out, line = out + [line], "      " + part
        else:
            line += " " * bool(line) + part
    return "\n".join(out + [line])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--check", action="store_true")
    a = ap.parse_args()
    ort.set_default_logger_severity(4)
    version = ".".join(ort.__version__.split(".")[:2])
    text = f"""/* TYPES(op, inputs, output, in the standard up to opset 22, from 23 on,
 *       in ONNX Runtime {version}'s CPU kernels at every opset)
 * inputs: bit i: input i is of the type in question; output: output 0 is. Written by tools/onnx_types.py.
 */
""" + "\n".join(map(row, OPS)) + "\n"
    if not a.check:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE} is not what tools/onnx_types.py writes")


if __name__ == "__main__":
    main()
