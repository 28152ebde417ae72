#!/usr/bin/env python3
"""Prints rows for src/op/*.def from PyTorch's own schemas.

  tools/schema.py aten.add.Tensor aten.linear ...      one line each; other kinds of rows: src/op/ops.def
"""
import sys

import torch


def row(name):
    ns, op, overload = (name.split(".") + ["default"])[:3]
    text = str(getattr(getattr(getattr(torch.ops, ns), op), overload)._schema)
    ident = op.strip("_") if overload == "default" else f"{op}_{overload}"
    if op.startswith("_") and not op.startswith("__") and hasattr(getattr(torch.ops, ns), op.strip("_")):
        ident = op if overload == "default" else f"{op}_{overload}"
    if op.endswith("_") and not op.startswith("__"):
        ident = op + ("" if overload == "default" else "_" + overload)
    schema = text[text.index("("):].replace('"', '\\"')
    kind, f = ("INPLACE", "") if op.endswith("_") and not op.startswith("__") else ("COMPOSITE", f", {op.strip('_')}")
    return f'{kind}({ident}, "{ns}.{op}.{overload}", "{schema}"{f})'


for n in sys.argv[1:]:
    print(row(n))
