#!/usr/bin/env python3
"""Writes the files that peers read, once, into a folder: nothing here is timed.

    prepare.py vit_b,bert_b_128 [--integers] [--cache DIR]         names and groups of bench/models.py

    NAME.pt2, NAME.onnx, NAME.inputs.safetensors
    NAME.json                             floating-point operations, inputs in order
    NAME.eager.safetensors                "0": what PyTorch's first output is in float32
    with --integers                       NAME.dynamic.onnx, NAME.qdq.onnx (ONNX Runtime's tools), NAME.int8.xml (NNCF),
                                          NAME.int8.pt2, NAME.static.pt2 (qkv quantize)

A file that cannot be made says why on stderr; the peers that want it say so in their rows. One input, random like the
weights, calibrates everything: times are compared, not accuracy.
"""
import argparse, json, os, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import models, peer

CACHE = os.path.expanduser("~/.cache/qkv-peers")
COUNTED = 2  # what "flops" in NAME.json counts; 1 left attention out


def floating_point_operations(name, module, inputs):
    """Products, convolutions and attention. FlopCounterMode does not know the CPU's fused attention:
    counted here, half when causal."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    def attention(q, k, v, dropout=0.0, is_causal=False, *rest, out_shape=None, **kw):
        (b, h, n, d), m, e = q, k[2], v[3]
        return 2 * b * h * n * m * (d + e) // (2 if is_causal else 1)

    if name.startswith("sdpa_"):
        return models.sdpa_flops(name)
    known = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention}
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=known) as f:
        module(*inputs)
    return f.get_total_flops()


def attempt(path, what, make):
    """Calls make() where `path` is not there yet; a failure is a line on stderr, and in path.why for the page."""
    if os.path.exists(path):
        return
    try:
        make()
    except Exception as e:
        said = (str(e).strip().splitlines() or [type(e).__name__])[-1].removeprefix("qkv: error: ").split("; ")[0][:100]
        print(f"{os.path.basename(path)}: {what}: {said}", file=sys.stderr)
        with open(path + ".why", "w") as f:
            f.write(said)


def floats(name, cache):
    """The base name of NAME's files."""
    base = os.path.join(cache, name)
    about = json.load(open(base + ".json")) if os.path.exists(base + ".json") else {}
    if about.get("counted") == COUNTED and os.path.exists(base + ".eager.safetensors"):
        return base
    import torch
    from safetensors.torch import save_file
    from torch.utils._pytree import tree_leaves
    os.makedirs(cache, exist_ok=True)
    m, x = models.build(name)
    m.eval().requires_grad_(False)
    flops = floating_point_operations(name, m, x)
    with torch.no_grad():
        ep = torch.export.load(base + ".pt2") if about else torch.export.export(m, x, strict=False)
        if not about:
            torch.export.save(ep, base + ".pt2")
        order = list(ep.graph_signature.user_inputs)
        save_file({n: t.contiguous() for n, t in zip(order, x)}, base + ".inputs.safetensors")
        save_file({"0": tree_leaves(m(*x))[0].contiguous()}, base + ".eager.safetensors")
        attempt(base + ".onnx", "torch.onnx.export", lambda: torch.onnx.export(
            m, x, base + ".onnx", dynamo=True, opset_version=18, verbose=False))
    json.dump({"flops": flops, "inputs": order, "counted": COUNTED}, open(base + ".json", "w"))
    return base


# ------------------------------------------------------------------ integers
def folded(base):
    """ONNX Runtime's own preparation: shapes are inferred, constants folded; without it most weights are not found.
    It does not find weights in a file of their own."""
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process
    path, whole = base + ".folded.onnx", base + ".whole.onnx"
    if not os.path.exists(path):
        onnx.save(onnx.load(base + ".onnx"), whole)
        quant_pre_process(whole, path, skip_symbolic_shape=True)
        os.remove(whole)
    return path


def ort_dynamic(base):
    from onnxruntime.quantization import QuantType, quantize_dynamic
    quantize_dynamic(folded(base), base + ".dynamic.onnx", per_channel=True, weight_type=QuantType.QInt8)


def ort_qdq(base):
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    known = {t.name for t in onnx.load(folded(base), load_external_data=False).graph.initializer}
    graph = onnx.load(folded(base), load_external_data=False).graph
    names = [i.name for i in graph.input if i.name not in known]

    class Once(CalibrationDataReader):
        def __init__(self):
            self.feeds = iter([dict(zip(names, peer.inputs_of(base, names)))])

        def get_next(self):
            return next(self.feeds, None)

    quantize_static(folded(base), base + ".qdq.onnx", Once(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)


def ov_int8(base):
    import nncf
    import openvino as ov
    model = ov.Core().read_model(base + ".onnx")
    feed = peer.inputs_of(base, [p.get_any_name() for p in model.inputs])
    ov.save_model(nncf.quantize(model, nncf.Dataset([feed], lambda x: x), model_type=nncf.ModelType.TRANSFORMER,
                                subset_size=1), base + ".int8.xml")


def qkv_quantize(qkv, base, path, *options):
    r = subprocess.run([qkv, "quantize", base + ".pt2", *options, "-o", path], capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stderr)


def integers(base, qkv):
    attempt(base + ".dynamic.onnx", "quantize_dynamic", lambda: ort_dynamic(base))
    attempt(base + ".qdq.onnx", "quantize_static", lambda: ort_qdq(base))
    attempt(base + ".int8.xml", "NNCF", lambda: ov_int8(base))
    attempt(base + ".int8.pt2", "qkv quantize --dynamic",
            lambda: qkv_quantize(qkv, base, base + ".int8.pt2", "--dynamic"))
    attempt(base + ".static.pt2", "qkv quantize",
            lambda: qkv_quantize(qkv, base, base + ".static.pt2", "--calibrate", base + ".inputs.safetensors"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models")
    p.add_argument("--integers", action="store_true")
    p.add_argument("--cache", default=CACHE)
    p.add_argument("--qkv", default="build/qkv")
    a = p.parse_args()
    for name in models.names(a.models):
        base = floats(name, a.cache)
        if a.integers:
            integers(base, a.qkv)


if __name__ == "__main__":
    main()
