"""What qkv writes of a model it reads again, whatever the numbers in the file:
slices from the end are bounded once more when a packed model is read."""
import json
import os
import pathlib
import subprocess
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
QKV = os.environ.get("QKV", str(ROOT / "build" / "qkv"))


def cut(model, number, out):
    """model with every slice's last integer replaced; False where it has no slice."""
    with zipfile.ZipFile(model) as z:
        files = {i.filename: z.read(i) for i in z.infolist()}
    key = next(k for k in files if k.endswith("models/model.json"))
    doc = json.loads(files[key])
    found = False
    for n in doc["graph_module"]["graph"]["nodes"]:
        last = [i["arg"] for i in n["inputs"] if "as_int" in i["arg"]]
        if n["target"] == "torch.ops.aten.slice.Tensor" and last:
            last[-1]["as_int"], found = number, True
    files[key] = json.dumps(doc).encode()
    with zipfile.ZipFile(out, "w") as z:
        for k, v in files.items():
            z.writestr(k, v)
    return found


@pytest.mark.parametrize("number", [-1, 1, 3, 1 << 31, (1 << 63) - 1])
def test_what_is_written_loads(tmp_path, number):
    wrote = 0
    for model in sorted((ROOT / "tests/models/small").glob("*.pt2")):
        if not cut(model, number, tmp_path / "m.pt2"):
            continue
        for command, out in (("pack", "m.qkv"), ("rewrite", "r.pt2"), ("convert", "m.onnx")):
            done = subprocess.run([QKV, command, "-q", tmp_path / "m.pt2", "-o", tmp_path / out], capture_output=True)
            if done.returncode:
                continue    # it may be refused, with what is wrong
            wrote += 1
            read = subprocess.run([QKV, "inspect", tmp_path / out], capture_output=True, text=True)
            assert read.returncode == 0, f"{model.name}, {command}: {read.stderr}"
    assert wrote


def test_sizes_that_no_machine_runs(tmp_path):
    """Packing runs the model once; sizes of 2^31 are written without packed weights, at once and in little memory."""
    size = ROOT / "tests/models/small/size_arithmetic.pt2"
    with zipfile.ZipFile(size) as z:
        files = {i.filename: z.read(i) for i in z.infolist()}
    key = next(k for k in files if k.endswith("models/model.json"))
    doc = json.loads(files[key])
    pad = next(i["arg"]["as_ints"] for n in doc["graph_module"]["graph"]["nodes"] for i in n["inputs"]
               if "as_ints" in i["arg"] and i["name"] == "pad")
    pad[-1] = 1 << 31
    files[key] = json.dumps(doc).encode()
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as z:
        for k, v in files.items():
            z.writestr(k, v)
    done = subprocess.run([QKV, "pack", tmp_path / "m.pt2", "-o", tmp_path / "m.qkv"], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 0 and "the limit is 4294967296" in done.stdout + done.stderr
    assert subprocess.run([QKV, "inspect", tmp_path / "m.qkv"], capture_output=True).returncode == 0
