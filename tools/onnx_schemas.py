#!/usr/bin/env python3
"""Writes src/onnx/check/schemas.def and ort_kernels.def: every version of every ONNX op, from the onnx package,
and com.microsoft's from ONNX Runtime.

    .venv/bin/python tools/onnx_schemas.py            writes the file
    .venv/bin/python tools/onnx_schemas.py --check    fails when it would be another

A row: ONNX_OP("domain", "name", since, deprecated, min_in, max_in, min_out, max_out, "inputs", "outputs",
"attributes", "types")
  inputs, outputs   "T,?T2,*V,~V,int64": the type's name or an element type;
                    ? optional, * variadic, ~ variadic of different types
  attributes        "axis:i !to:i": name and kind (f i s t g F I S T G p y); ! required; *:i any other
  ort_kernels.def   ORT_KERNEL("domain:name", from, to, "T:0x402 U:0x202"): what ONNX Runtime's CPU provider computes,
                    bits as below; ONNX_FUNCTION("domain:name@since"): ops that the standard spells in others
  types             "T:3,T2:17": index of ONNX_TYPES(index, tensor, sequence, optional, optional sequence,
                    other) whose bits are TensorProto.DataType
"""
import pathlib
import sys

import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATH = ROOT / "src" / "onnx" / "check" / "schemas.def"
KINDS = {"FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "FLOATS": "F", "INTS": "I",
         "STRINGS": "S", "TENSORS": "T", "GRAPHS": "G", "SPARSE_TENSOR": "p", "SPARSE_TENSORS": "P",
         "TYPE_PROTO": "y", "TYPE_PROTOS": "Y"}
KERNELS = ROOT / "src" / "onnx" / "check" / "ort_kernels.def"
DOMAINS = ["", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training", "com.microsoft"]
MANY = 0x7fffffff


def element(name):
    """"float" -> TensorProto.DataType"""
    return onnx.TensorProto.DataType.Value(name.upper()) if name.upper() in onnx.TensorProto.DataType.keys() else None


def bits(strings):
    masks = [0, 0, 0, 0, 0]
    for s in strings:
        for i, (head, tail) in enumerate([("tensor(", ")"), ("seq(tensor(", "))"), ("optional(tensor(", "))"),
                                          ("optional(seq(tensor(", ")))")]):
            if s.startswith(head):
                code = element(s[len(head):-len(tail)])
                if code is not None:
                    masks[i] |= 1 << code
                break
        else:
            masks[4] = 1
    return tuple(masks)


def unchecked(s):
    """Does onnx.checker take attributes that the schema does not list? Told by giving it one first."""
    if s.domain == "com.microsoft" or s.deprecated:
        return False
    node = onnx.helper.make_node(s.name, ["x"] * s.min_input, ["y"] * s.min_output, domain=s.domain, a_a_a=1)
    context = onnx.checker.C.CheckerContext()
    context.ir_version = 10
    context.opset_imports = {s.domain: s.since_version}
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as e:
        return "Unrecognized attribute" not in str(e) and "Required attribute" in str(e)
    return bool(s.min_input or s.min_output)


def option(p):
    o = getattr(p.option, "name", str(p.option)).split(".")[-1]
    homogeneous = p.is_homogeneous if hasattr(p, "is_homogeneous") else p.isHomogeneous
    return "?" if o == "Optional" else ("*" if homogeneous else "~") if o == "Variadic" else ""


def kernels():
    """Merged by op and version: kernels that differ in one type alone become one row each of their types."""
    functions = {f"{s.domain}:{s.name}@{s.since_version}" for s in onnx.defs.get_all_schemas_with_history()
                 if s.has_function or s.has_context_dependent_function}
    rows = {}
    for k in ort.get_all_opkernel_def():
        if k.domain not in DOMAINS:
            continue
        # kernels of sequences only are kept with no bits: any type
        types = {n: bits(ts)[0] for n, ts in sorted(k.type_constraints.items())}
        group = rows.setdefault((k.domain, k.op_name, *k.version_range), [])
        for other in group:
            if len(types) == 1 and other.keys() == types.keys():
                other[next(iter(types))] |= next(iter(types.values()))
                break
        else:
            group.append(types)
    text = f"/* Written by tools/onnx_schemas.py from onnxruntime {onnxruntime.__version__}. */\n#ifdef ORT_KERNEL\n"
    for (domain, name, start, end), group in sorted(rows.items()):
        for types in group:
            text += f'ORT_KERNEL("{domain}:{name}", {start}, {end}, "{" ".join(f"{n}:{m:#x}" for n, m in types.items() if m)}")\n'
    text += "#endif\n#ifdef ONNX_FUNCTION\n" + "".join(f'ONNX_FUNCTION("{f}")\n'
                                                       for f in sorted(functions)) + "#endif\n"
    return text


def main():
    types, rows = {}, []
    schemas = [s for s in onnx.defs.get_all_schemas_with_history()] + [s for s in ort.get_all_operator_schema()
                                                                       if s.domain == "com.microsoft"]
    for s in sorted(schemas, key=lambda s: (DOMAINS.index(s.domain), s.name, s.since_version)):
        constraints = {}
        for t in s.type_constraints:
            name = getattr(t, "type_param_str", None)
            constraints[name] = types.setdefault(bits(t.allowed_type_strs), len(types))

        def parameter(p):
            text = p.type_str if hasattr(p, "type_str") else p.typeStr
            if text not in constraints:
                constraints[text] = types.setdefault(bits([text]), len(types))
            return option(p) + text.replace("tensor(",
                                            "").replace(")", "") if text.startswith("tensor(") else option(p) + text

        ins, outs = [",".join(parameter(p) for p in ps) for ps in (s.inputs, s.outputs)]
        names = {k.replace("tensor(", "").replace(")", "") if k.startswith("tensor(") else k: v
                 for k, v in constraints.items()}
        attrs = " ".join(f"{'!' if a.required else ''}{n}:{KINDS[getattr(a.type, 'name', str(a.type)).split('.')[-1]]}" for n, a in sorted(s.attributes.items()))
        attrs += " *:i" * unchecked(s)
        limit = [min(MANY, v) for v in (s.min_input, s.max_input, s.min_output, s.max_output)]
        rows.append(f'ONNX_OP("{s.domain}", "{s.name}", {s.since_version}, {int(s.deprecated)}, {limit[0]}, '
                    f'{limit[1]}, {limit[2]}, {limit[3]}, "{ins}", "{outs}", "{attrs}", '
                    f'"{",".join(f"{k}:{v}" for k, v in names.items())}")\n')
    text = f"/* Written by tools/onnx_schemas.py from onnx {onnx.__version__} and onnxruntime {onnxruntime.__version__}; columns are explained there. */\n"
    text += f"#ifdef ONNX_LATEST\nONNX_LATEST({onnx.defs.onnx_opset_version()}, {onnx.IR_VERSION})\n#endif\n#ifdef ONNX_TYPES\n"
    text += "".join(f"ONNX_TYPES({i}, {', '.join(f'{m:#x}' for m in masks)})\n" for masks, i in types.items())
    text += "#endif\n#ifdef ONNX_OP\n" + "".join(rows) + "#endif\n"
    runtime = kernels()
    if "--check" in sys.argv:
        sys.exit(PATH.read_text() != text or KERNELS.read_text() != runtime)
    PATH.write_text(text)
    KERNELS.write_text(runtime)
    print(f"{len(rows)} versions of ops, {len(types)} sets of types")


if __name__ == "__main__":
    main()
