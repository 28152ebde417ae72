"""A program that called setlocale, as desktop programs do, reads, runs and reports as any other."""
import os
import subprocess
import sys

import pytest

TESTS = os.path.join(os.path.dirname(__file__), "..")
MODELS = [os.path.join(TESTS, name) for name in ("models/small/hand_rope.pt2", "models/small/encoder_prenorm_gelu.pt2",
                                                 "cli/models/spelled.onnx", "cli/models/sdpa.pt2")]
PROGRAM = """
import json, locale, sys
name, out = sys.argv[1:3]
if name:
    locale.setlocale(locale.LC_ALL, name)
    assert locale.localeconv()["decimal_point"] == ","
import numpy as np, qkv
for path in sys.argv[3:]:
    model = qkv.Model(path)
    rng = np.random.default_rng(0)
    x = [rng.standard_normal([d if isinstance(d, int) else 6 for d in i["shape"]]) for i in model.describe()["inputs"]]
    x = [v > -1 if i["dtype"] == "bool" else v.astype(np.float32) for v, i in zip(x, model.describe()["inputs"])]
    for result in model.run(x).values():
        print(result.shape, result.ravel()[:50].tolist())
    report = model.rewrite(prove=True)
    print({k: v for k, v in report.items() if k != "ms"})
    for result in model.run(x).values():
        print(result.ravel()[:50].tolist())
    print(model.backends())
    print(model.save_onnx(out))
    print(open(out, "rb").read())
"""


def test_a_decimal_comma(tmp_path):
    made = subprocess.run([os.path.join(TESTS, "locale.sh"), str(tmp_path)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no locale with a decimal comma can be made: {made.stderr.strip()}")
    env = {**os.environ, "LOCPATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    said = [subprocess.run([sys.executable, "-c", PROGRAM, name, str(tmp_path / "m.onnx"), *MODELS], env=env,
                           capture_output=True, text=True, timeout=120) for name in ("", "de_DE.UTF-8")]
    assert not said[0].returncode, said[0].stderr
    assert not said[1].returncode, said[1].stderr
    assert said[0].stdout == said[1].stdout
