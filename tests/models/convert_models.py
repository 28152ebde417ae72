#!/usr/bin/env python3
"""Converts every model that generate.py made to ONNX, runs it in ONNX Runtime (profile openvino:
in OpenVINO) at every size, and compares with PyTorch's eager outputs. TAP, one line a model.

    convert_models.py --dir DIR [--opset 18] [--profile ort] [--rewrite] [--check] [NAME ..]
                                                                  --check: onnx.checker with full_check, too

Models that ONNX or the runtime cannot say are in REFUSED with what the refusal says;
a model there that converts fails the test.
"""
import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import pathlib
import re
import sys
import tempfile

import numpy as np
from ml_dtypes import bfloat16

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]
import qkv
from run_models import differ, read

NAMES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
         "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}
REFUSED = {
    "volumes_sampled": "windows that end outside",
    "wide_binary": "next representable", "wide_shapes": "look at f32 as i32",
}
# What a runtime works out otherwise: (profile, model) -> why
DIFFERENT = {
    ("openvino", "lstm_gru"): "stacked LSTMs of both directions", ("openvino", "wide_reduce"): "nanmedian",
    ("openvino", "order"): "nanmedian",
    ("openvino", "wide_reduce_core"): "nanmedian", ("openvino", "wide_products"): "it ends the process",
    **{("openvino", "fft_" + name): "its DFT of reals keeps their axis of 1"
       for name in ("gfnet", "long_convolution", "mel", "neural_operator")},
    **{("openvino", name): "it counts a Scan's inputs wrongly when nothing is carried"
       for name in ("map_over_batch", "vmap_mask_and_products")},
    # ONNX Runtime on files for the standard (opset 23): docs/ONNX.md
    **{("spec", name): "it refuses masks whose query axis is 1" for name in ("encoder_padding", "mha_cross_padding",
                                                                             "transformer_full")},
    **{("spec", name): "it takes rows of the lowest float32 for rows of -inf"
       for name in ("sdpa_finfo_mask", "timesfm_sdpa")},
}


class OnnxRuntime:
    def __init__(self, path):
        import onnxruntime as ort
        ort.set_default_logger_severity(4)
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.ort, self.session = ort, ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, inputs):
        feeds = {}
        for i in self.session.get_inputs():
            dtype, x = inputs[i.name]
            make = self.ort.OrtValue.ortvalue_from_numpy
            feeds[i.name] = self.ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x.astype(bfloat16).view(np.uint16),
                16) if dtype == "BF16" else make(np.array(x, order="C"))
        names = [o.name for o in self.session.get_outputs()]
        out = {}
        for name, value in zip(names, self.session.run_with_ort_values(names, feeds)):
            if value.element_type() == 16:
                import torch
                out[name] = "BF16", torch.from_dlpack(value._ortvalue.to_dlpack()).float().numpy()
            else:
                x = value.numpy()
                out[name] = NAMES[str(x.dtype)], x
        return out


class OpenVino:
    def __init__(self, path):
        import onnx
        import openvino as ov
        graph = onnx.load(path, load_external_data=False).graph
        self.ov, self.inputs, self.outputs = ov, [i.name for i in graph.input], [o.name for o in graph.output]
        self.model = ov.Core().compile_model(path, "CPU",
                                             {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})

    def tensor(self, dtype, x):
        if dtype != "BF16":
            return np.array(x, order="C")
        return self.ov.Tensor(x.astype(bfloat16).view(np.uint16), self.ov.Shape(x.shape), self.ov.Type.bf16)

    def run(self, inputs):
        result = self.model([self.tensor(*inputs[name]) for name in self.inputs])
        out = {}
        for name, o in zip(self.outputs, self.model.outputs):
            x = result[o]
            wide = o.get_element_type() == self.ov.Type.bf16
            out[name] = ("BF16",
                         x.view(np.uint16).view(bfloat16).astype(np.float32)) if wide else (NAMES[str(x.dtype)], x)
        return out


def one(folder, m, a, tmp):
    """'' when right, else what is wrong first; the largest error; what the file holds."""
    name, path = m["name"], f"{tmp}/{m['name']}.onnx"
    model = qkv.Model(folder / f"{name}.pt2", threads=1)
    if a.rewrite:
        model.rewrite()
    report = model.save_onnx(path, opset=a.opset, profile=a.profile)
    if a.check:
        import onnx
        onnx.checker.check_model(path, full_check=True)
    state = {}
    if a.profile == "openvino":  # takes no defaults: buffers that a run changes are inputs like others
        import onnx
        other = f"{tmp}/state.onnx"
        model.save_onnx(other, opset=a.opset, profile="spec")
        graph = onnx.load(other).graph
        given = {i.name for i in graph.input}
        values = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer if i.name in given}
        state = {k: (NAMES[str(x.dtype)], x) for k, x in values.items()}
    runtime = (OpenVino if a.profile == "openvino" else OnnxRuntime)(path)
    worst = 0.0
    for v in range(m["variants"]):
        want = read(folder / f"{name}.v{v}.out.safetensors")
        got = runtime.run({**state, **read(folder / f"{name}.v{v}.in.safetensors")})
        what, err = differ({k: x for k, x in got.items() if re.fullmatch(r"output_\d+", k)}, want, m["tol"])
        worst = max(worst, err)
        if what:
            return f"v{v}: {what}", worst, report
    return "", worst, report


def apart(*args):
    """one() in a process of its own: a runtime may end it."""
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(one, *args).result()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--dir", type=pathlib.Path, required=True)
    ap.add_argument("--opset", type=int, default=18)
    ap.add_argument("--profile", default="ort")
    ap.add_argument("--rewrite", action="store_true")
    ap.add_argument("--check", action="store_true")
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    models = [m for m in (json.loads(f.read_text()) for f in sorted(a.dir.glob("*.json"))) if not a.names
              or m["name"] in a.names]
    print(f"1..{len(models)}")
    bad = refused = 0
    with tempfile.TemporaryDirectory() as tmp:
        for k, m in enumerate(models, 1):
            name = m["name"]
            try:
                what, worst, report = apart(a.dir, m, a, tmp)
                known = DIFFERENT.get((a.profile, name))
                note = f"{worst:.1e} {report['nodes']} nodes" if not what else f"{what} ({known})" if known else what
                ok = not what or bool(known)
                if name.removesuffix("_core") in REFUSED and a.profile == "ort":
                    ok, note = False, "was to be refused, and is not"
            except Exception as e:  # what a runtime or qkv refuses is a failure of this model alone
                why, known = REFUSED.get(name.removesuffix("_core")), DIFFERENT.get((a.profile, name))
                ok = why is not None and why in str(e) or bool(known) or "ONNX" in str(e) and " opset " in str(e).rsplit(":", 1)[-1] \
                    or a.profile in ("spec", "tensorrt") and "NOT_IMPLEMENTED" in str(e)
                refused += ok
                note = f"refused: {known or why}" if ok else f"{type(e).__name__}: {str(e)[-600:]}"
            bad += not ok
            print(f"{'' if ok else 'not '}ok {k} - onnx: {name} {note}".replace("\n", " "), flush=True)
            for f in pathlib.Path(tmp).iterdir():
                with contextlib.suppress(OSError):
                    f.unlink()
    print(f"# {len(models)} models, {refused} refused, {bad} wrong (opset {a.opset}, profile "
          f"{a.profile}{', rewritten' if a.rewrite else ''})")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
