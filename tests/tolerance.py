"""How far results may differ and still be equal, by dtype: src/tensor/tolerance.def, as C reads it.

    tolerance("OP")     {"f64": 1e-10, "f32": 2e-5, "f16": 2e-3, "bf16": 2e-2}
"""
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parent.parent / "src/tensor/tolerance.def"


def tolerance(what):
    columns, figures = (re.search(rf"TOLERANCE\({row},([^)]*)\)", TABLE.read_text())[1].split(",")
                        for row in ("WHAT", what))
    return dict(zip((c.strip() for c in columns), map(float, figures)))
