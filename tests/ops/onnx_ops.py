#!/usr/bin/env python3
"""Golden op cases as ONNX, run by ONNX Runtime and held against PyTorch's answers. TAP, one line an op.

    onnx_ops.py WRITE_ONNX [--opset N] [--profile ort] [WORD ...]       with words: every case that fails, too
    onnx_ops.py WRITE_ONNX --opset 23 --unlike 18    only files that differ from opset 18's in more than that number

A case that the writer refuses counts as refused; an op whose cases are all refused must say one of the reasons of the
op table, LATER or KNOWN; so must a difference.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort
from ml_dtypes import bfloat16
from safetensors import safe_open

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from tolerance import tolerance  # noqa: E402

TOLERANCE = {re.sub("^(b?)f", r"\1float", k): v for k, v in tolerance("OP").items()}
FAMILIES = ("view", "pointwise", "reduce", "index", "image", "linalg")

# What differs in ONNX Runtime and why: (op, in the case's call or its difference) -> reason;
# "" is all of the op's cases
RANDOM = ("aten.dropout.default", "aten.feature_dropout.default", "aten.native_dropout.default", "aten.rand.default",
          "aten.alpha_dropout.default", "aten.feature_alpha_dropout.default",
          "aten.rand_like.default", "aten.randn.default", "aten.randn_like.default", "aten.randint.default",
          "aten.randint.low", "aten.randint_like.default", "aten.bernoulli.p",
          "aten.randint_like.low_dtype", "aten.bernoulli.default", "aten.bernoulli.Tensor", "aten.uniform.default",
          "aten.exponential.default", "aten.geometric.default", "aten.cauchy.default", "aten.multinomial.default",
          "aten.log_normal.default", "aten.randperm.default", "aten.random.default", "aten.random.to",
          "aten.random.from", "aten.rand.generator", "aten.rand_like.generator", "aten.randn.generator",
          "aten.randn_like.generator", "aten.randint.generator", "aten.randint.low_generator",
          "aten.randint_like.generator", "aten.randint_like.low_generator_dtype", "aten.randperm.generator",
          *(f"aten.normal{n}" for n in ("_functional.default", ".Tensor_float", ".float_Tensor", ".Tensor_Tensor",
                                        ".float_float")))
COMPLEX = ("aten.view_as_complex.default", "aten.view_as_real.default", "aten.polar.default", "aten.complex.default",
           "aten.imag.default", "aten.angle.default", "aten._conj.default")
KNOWN = {
    ("aten.max_pool2d.default", "expected nan"): "ONNX Runtime's maximum of a window passes over NaN",
    ("aten.max_pool2d_with_indices.default", "expected nan"): "the same",
    ("aten.fft_fft.default", "element [0, 87, 1]"): "ONNX Runtime's transform of prime length, 101, loses places",
    ("aten.fft_ifft.default", "element [0, 88, 0]"): "the same",
    ("aten.upsample_linear1d.vec", "is inf, expected nan"): "ONNX Runtime copies an axis that keeps its size",
    ("torchvision.roi_pool.default", "second result"): "ONNX's pool of regions gives no places",
    ("aten.mode.default", "output_1"): "which of equal elements, in rows of more than 16: PyTorch's sorting",
    ("aten.mode.default", "expected nan"): "the mode of a row with NaN depends on PyTorch's sorting",
    ("aten.sort.default", "is nan, expected inf"): "ONNX Runtime's TopK orders NaN and infinities as they come",
    ("aten.kthvalue.default", "output_1"): "which of equal elements: PyTorch's choice is that of its sorting",
    ("aten.nanmedian.dim", "output_1"): "which NaN of a row that has nothing else: the same",
    ("aten.scaled_dot_product_attention.default",
     "(float64)"): "ONNX Runtime folds the scale into its product as a float32",
    ("torch_attn._varlen_attn.default", "(float64)"): "the same",
    ("aten.scaled_dot_product_attention.default", ", 0.3,"): "dropout",
    ("aten.scaled_dot_product_attention.default",
     "attn_mask->Shape()"): "ONNX Runtime refuses masks whose query axis is 1 (profile spec)",
    ("aten.signbit.default", "(bool)"): "the sign of NaN",
    ("aten.view.dtype", "look at"): "ONNX does not reinterpret bytes",
    ("aten.hash_tensor.default", "look at"): "the same",
    ("aten.rrelu.default", "true)"): "random numbers are the runtime's",
    ("aten.rrelu_with_noise_functional.default", "true)"): "the same",
    ("aten.grid_sampler_3d.default", "from opset 20"): "volumes",
    ("aten.grid_sampler_3d.default", "float16)"): "the same as of grid_sampler_2d",
    ("aten._upsample_lanczos2d_aa.vec", "Lanczos"): "ONNX has no such filter",
    ("aten._upsample_lanczos2d_aa.default", "Lanczos"): "the same",
    ("aten.grid_sampler_2d.default", "float16)"): "PyTorch places points in the half type, the graph in float32",
    **{(op, "no tensors of"): "no runtime takes complex tensors" for op in COMPLEX},
    **{(op, ""): "random numbers are the runtime's" for op in RANDOM},
}
# an op whose cases are all refused for one of these is as it should be
LATER = ("from opset ", "up to opset ", "runtimes do not agree")


def tensors():
    """{name: array} of all families; bf16 as ml_dtypes has it, complex numbers as pairs on a last axis of 2."""
    found = {}
    for family in FAMILIES:
        for path in sorted((HERE / family).glob("*.safetensors")):
            with safe_open(path, "pt") as f:
                for key in f.keys():
                    t = f.get_tensor(key)
                    half = str(t.dtype) == "torch.bfloat16"
                    x = None if "float8" in str(t.dtype) else t.float().numpy().astype(bfloat16) if half else t.numpy()
                    if x is not None and np.iscomplexobj(x):
                        x = np.stack([x.real, x.imag], -1)
                    found[f"{family}.{key}"] = x
    return found


def differ(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if str(want.dtype) not in TOLERANCE:
        return "" if np.array_equal(got, want) else f"{got.ravel()[:6]}, expected {want.ravel()[:6]} ({want.dtype})"
    g, w = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(w)
    peak = np.abs(w[finite]).max() if finite.any() else 0
    same = np.where(np.isnan(w), np.isnan(g), np.where(np.isinf(w), g == w,
                                                       np.abs(g - w) <= TOLERANCE[str(want.dtype)] * peak))
    if same.all():
        return ""
    at = np.argwhere(~same)[0]
    return f"element {list(map(int, at))} is {g[tuple(at)]}, expected {w[tuple(at)]} ({want.dtype})"


def run(path, name, data):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds, results = {}, {}
    for i in session.get_inputs():
        x = data[f"{name}.in{i.name}"]
        if x.dtype == bfloat16:
            feeds[i.name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), 16)
        else:
            feeds[i.name] = ort.OrtValue.ortvalue_from_numpy(np.array(x, order="C"))
    names = [o.name for o in session.get_outputs()]
    for key, value in zip(names, session.run_with_ort_values(names, feeds)):
        if data.get(f"{name}.out{key.removeprefix('output_')}") is None:
            continue
        if value.element_type() == 16:
            results[key] = bf16(value)
        else:
            results[key] = value.numpy()
    return results


def bf16(value):
    import torch
    return torch.from_dlpack(value._ortvalue.to_dlpack()).float().numpy().astype(bfloat16)


def known(op, text):
    return any(k == op and word in text for k, word in KNOWN)


def one(path, name, data):
    try:
        got = run(path, name, data)
    except Exception as e:
        return f"{type(e).__name__}: {str(e)[-300:]}".replace("\n", " ")
    for key, value in got.items():
        want = data.get(f"{name}.out{key.removeprefix('output_')}")
        if want is not None and (what := differ(value, want)):
            return f"{key}: {what}"
    return ""


def without_opset(path):
    """The bytes of a file without the versions that it declares."""
    import onnx
    m = onnx.load(path)
    m.ir_version = 0
    del m.opset_import[:]
    return m.SerializeToString(deterministic=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("write_onnx")
    ap.add_argument("--opset", type=int, default=18)
    ap.add_argument("--profile", default="ort")
    ap.add_argument("--unlike", type=int, metavar="OPSET")
    ap.add_argument("words", nargs="*")
    a = ap.parse_intermixed_args()
    ort.set_default_logger_severity(4)
    data, ops, never = tensors(), collections.defaultdict(lambda: dict(cases=0, refused=0, failed=0, absent=0,
                                                                       known=0, same=0, first="", why="")), {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None) as tmp:
        other = pathlib.Path(tmp) / "unlike"
        other.mkdir()
        if a.unlike:
            subprocess.run([a.write_onnx, HERE, other, a.profile, str(a.unlike), *a.words], stdout=subprocess.DEVNULL,
                           check=True)
        written = subprocess.run([a.write_onnx, HERE, tmp, a.profile, str(a.opset), *a.words], text=True,
                                 capture_output=True)
        for line in written.stdout.splitlines():
            if line.startswith("# "):
                never.update([line[2:].split("\t")])
                continue
            name, op, how, state, text = line.split("\t")
            if f"{name}.in0" in data and data[f"{name}.in0"] is None:  # NumPy has no such dtype
                continue
            seen = ops[op]
            seen["cases"] += 1
            if state == "refused":
                seen["refused"] += 1
                seen["why"] = text
                continue
            path, before = f"{tmp}/{name}.{how}.onnx", other / f"{name}.{how}.onnx"
            if before.exists() and without_opset(path) == without_opset(before):
                seen["same"] += 1
                continue
            what = one(path, name, data)
            if a.profile != "ort" and ("NOT_IMPLEMENTED" in what or "does not support double" in what):
                seen["absent"] += 1
            elif what and known(op, f"{text} {what}"):
                seen["known"] += 1
            elif what:
                seen["failed"] += 1
                seen["first"] = seen["first"] or f"{name} ({how}): {text}: {what}"
                if a.words:
                    print(f"# {name} ({how}): {text}: {what}")
    lines = [(written.returncode == 0, f"every plain row is in the table {written.stderr.strip()}")]
    for op, s in ops.items():
        if s["failed"]:
            lines.append((False, f"{op}: {s['failed']} of {s['cases']} differ: {s['first']}"))
        elif s["refused"] == s["cases"] and not known(op, s["why"]) and not any(why in s["why"]
                                                                                for why in (*never.values(), *LATER)):
            lines.append((False, f"{op}: all refused: {s['why']}"))
        else:
            lines.append((True, f"{op}: {s['cases']} cases" + "".join(f", {s[k]} {text}" for k, text in
                                                                      (("refused", "refused"),
                                                                       ("absent", "not in ONNX Runtime"),
                                                                       ("known", "known to differ"),
                                                                       ("same", f"as opset {a.unlike}")) if s[k])))
    print(f"1..{len(lines)}")
    for k, (ok, text) in enumerate(lines, 1):
        print(f"{'' if ok else 'not '}ok {k} - onnx: {text}")
    total = {k: sum(s[k] for s in ops.values()) for k in ("cases", "refused", "absent", "known", "same", "failed")}
    print(f"# {total['cases']} files, {total['refused']} refused, {total['absent']} not in ONNX Runtime, "
          f"{total['known']} known to differ, {total['same']} as an opset before, {total['failed']} differ (opset "
          f"{a.opset}, profile {a.profile})")
    sys.exit(not all(ok for ok, _ in lines))


if __name__ == "__main__":
    main()
