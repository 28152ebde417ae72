"""The op table of src/op as Python sees it: the C preprocessor reads the X-lists.

    for row in rows(): row.name, row.family, row.schema, row.traits and the fields of WORDS
"""
import collections
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# files of src/op with rows that files contain
FAMILIES = ["view", "pointwise", "special", "backward", "make", "reduce", "index", "image", "linalg", "fft", "inplace"]
WORDS = {"LOWER": "lower", "VIEW": "view", "RUN": "run", "TRAITS": "traits", "ALIAS_OF": "alias_of",
         "FROM_ONNX": "from_onnx", "ONNX": "onnx", "WHY": "onnx_text"}
Row = collections.namedtuple("Row", ["name", "family", "schema", *WORDS.values()])


def rows():
    """Columns that a row does not have are "none"; traits are a set."""
    table = (ROOT / "src" / "op" / "ops.def").read_text()
    words = "".join(f"#define {w}(x, ...) @{w} x @end\n" for w in WORDS if w != "ONNX")
    words += "#define ONNX(x, text) @ONNX x @end @WHY text @end\n"
    for family in FAMILIES:
        one = re.sub(r'#include "op/(\w+)\.def"\n', lambda m: m.group(0) if m.group(1) == family else "", table)
        source = f"#define OP(id, name, schema, ...) @@ name @ schema @ __VA_ARGS__\n{words}{one}"
        text = subprocess.run(["gcc", "-E", "-P", "-x", "c", "-I", str(ROOT / "src"), "-"], input=source,
                              capture_output=True, text=True, check=True).stdout
        for row in " ".join(text.split()).split("@@")[1:]:
            name, schema, said = (c.strip() for c in row.split(" @ ", 2))
            columns = {field: (re.search(rf"@{w} (.*?) @end", said) or [None, "none"])[1] for w, field in WORDS.items()}
            columns["traits"] = set(columns["traits"].split(" | ")) - {"none"}
            yield Row(name.strip('"'), family, re.sub(r'(?<!\\)" *"', "", schema).strip('"').replace('\\"', '"'),
                      **columns)


def exempt(row):
    """Needs no golden case: in-place forms, asserts, random numbers, complex halves, which safetensors lacks, and rows
    that give no tensor (sizes). As in tests/ops/run_ops.c."""
    return (row.traits & {"INPLACE", "EFFECT", "RANDOM"} or "(a!)" in row.schema or row.lower in ("ignore", "chalf")
            or row.name.startswith("qkv.")
            or "Tensor" not in row.schema[row.schema.rindex("->"):])
