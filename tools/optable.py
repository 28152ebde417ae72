"""The op table of src/ir/ops_*.def as Python sees it: the C preprocessor reads the X-lists.

    for row in rows(): row.name, row.family, row.lower, row.run, row.schema, row.flags
"""
import collections
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
FAMILIES = ["view", "pointwise", "reduce", "index", "image", "linalg"]
Row = collections.namedtuple("Row", "name family schema lower shape view run flags")


def rows():
    for family in FAMILIES:
        path = ROOT / "src" / "ir" / f"ops_{family}.def"
        source = f'#define OP(id, name, schema, lower, shape, view, run, flags) @@ name @ schema @ lower @ shape @ view @ run @ flags\n#include "{path}"\n'
        text = subprocess.run(["gcc", "-E", "-P", "-x", "c", "-"], input=source, capture_output=True, text=True, check=True).stdout
        for row in " ".join(text.split()).split("@@")[1:]:
            name, schema, *columns = [c.strip() for c in row.split(" @ ")]
            yield Row(name.strip('"'), family, re.sub(r'(?<!\\)" *"', "", schema).strip('"').replace('\\"', '"'), *columns)


def exempt(row):
    """Needs no golden case: in-place forms, asserts, random numbers, and rows that give no tensor (sizes). As in tests/ops/run_ops.c."""
    return (any(f in row.flags for f in ("OPF_INPLACE", "OPF_EFFECT", "OPF_RANDOM")) or "(a!)" in row.schema or row.lower == "ignore" or row.name.startswith("qkv.")
            or "Tensor" not in row.schema[row.schema.rindex("->"):])
