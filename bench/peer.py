#!/usr/bin/env python3
"""The process of a family of peers (PyTorch, ONNX Runtime, OpenVINO or qkv): opens a model once for each of them, and
times runs as it is told. bench/peers.py starts one for each family and asks them in turn.

    peer.py torch,compile,torch-bf16 vit_b ~/.cache/qkv-peers/vit_b 1
        prints {"torch": {}, "compile": {"error": "why not"}, ...}: who is ready, those in integers with the cosine of
        their first output with eager's in float32; then reads lines "PEER RUNS", and prints the least time of those
        runs in ms for each

Files are those of bench/prepare.py. What a peer is:
    torch, compile              PyTorch eager, and torch.compile
    torch-bf16, compile-bf16    the same module in bfloat16, its weights cast once; where a model does not run so,
                                autocast that stays open over the runs of a round, which casts them once, too
    ort, ov, ov-bf16            the ONNX file; ov-bf16: INFERENCE_PRECISION_HINT
    qkv, qkv-bf16, qkv-skip...  the .pt2; -skip: skip_padding
    ort-dynamic, ort-qdq        quantize_dynamic, and quantize_static with QuantizeLinear and DequantizeLinear
    ov-int8                     NNCF's quantization after training, model_type TRANSFORMER
    qkv-int8, qkv-int8-bf16     `qkv quantize --dynamic`; -bf16: what stays in floats is bfloat16
    qkv-static                  `qkv quantize`, calibrated by one input
"""
import contextlib, copy, functools, json, os, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models

# What comes after the base name of the file that a peer reads: of those in integers, and of the families' others.
FILES = {"ort-dynamic": ".dynamic.onnx", "ort-qdq": ".qdq.onnx", "ov-int8": ".int8.xml", "qkv-int8": ".int8.pt2",
         "qkv-int8-bf16": ".int8.pt2", "qkv-static": ".static.pt2"}
FLOATS = {"ort": ".onnx", "ov": ".onnx", "qkv": ".pt2"}


def family(peer):
    first = peer.split("-")[0]
    return "torch" if first == "compile" else first


def precision(peer):
    """Peers of one are compared with each other."""
    return "int8" if peer in FILES else "bf16" if peer.endswith("bf16") else "f32"


def file_of(peer, base):
    path = base + (FILES.get(peer) or FLOATS[family(peer)])
    if not os.path.exists(path) and os.path.exists(path + ".why"):  # bench/prepare.py could not make it
        raise RuntimeError(open(path + ".why").read())
    return path


# ------------------------------------------------------------------ opening: a function that runs, and its context
@functools.lru_cache(1)
def built(name):
    m, x = models.build(name)
    return m.eval(), x


def in_bfloat16(m, x):
    """The module and its inputs, cast once; None where an op meets two dtypes."""
    import torch
    m, x = copy.deepcopy(m).bfloat16(), tuple(t.bfloat16() if t.is_floating_point() else t for t in x)
    try:
        m(*x)
    except RuntimeError as e:
        print(f"bfloat16: {str(e).splitlines()[0][:100]}; autocast instead", file=sys.stderr)
        return None
    return m, x


def open_torch(peer, name, base, threads):
    import torch
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    m, x = built(name)
    cast = in_bfloat16(m, x) if peer.endswith("bf16") else (m, x)
    context = contextlib.nullcontext if cast else functools.partial(torch.autocast, "cpu", torch.bfloat16)
    m, x = cast or (m, x)
    f = torch.compile(m) if peer.startswith("compile") else m
    return lambda: f(*x), context


def inputs_of(base, names):
    """In the order of `names`; a name that the file does not have is the next of the program's inputs."""
    from safetensors.numpy import load_file
    x, order = load_file(base + ".inputs.safetensors"), json.load(open(base + ".json"))["inputs"]
    return [x[n] if n in x else x[order[i]] for i, n in enumerate(names)]


def open_ort(peer, name, base, threads):
    import onnxruntime as ort
    so = ort.SessionOptions()
    so.intra_op_num_threads = threads
    s = ort.InferenceSession(file_of(peer, base), so, providers=["CPUExecutionProvider"])
    names = [i.name for i in s.get_inputs()]
    feed = dict(zip(names, inputs_of(base, names)))
    return lambda: s.run(None, feed), contextlib.nullcontext


def open_ov(peer, name, base, threads):
    import openvino as ov
    core = ov.Core()
    c = core.compile_model(core.read_model(file_of(peer, base)), "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if peer == "ov-bf16" else "f32"})
    r = c.create_infer_request()
    for i, v in enumerate(inputs_of(base, [p.get_any_name() for p in c.inputs])):
        r.set_input_tensor(i, ov.Tensor(v))
    return r.infer, contextlib.nullcontext


def open_qkv(peer, name, base, threads):
    import qkv
    m = qkv.Model(file_of(peer, base), threads=threads, compute="bf16" if peer.endswith("bf16") else None,
                  skip_padding="-skip" in peer)
    session, feeds = m.session(), dict(zip(m.inputs, inputs_of(base, m.inputs)))
    return lambda: session.run(feeds), contextlib.nullcontext


def cosine(result, base):
    """Of the first output of a peer that is not PyTorch with eager's (bench/prepare.py)."""
    import numpy as np
    from safetensors.numpy import load_file
    got, want = (np.asarray(x, np.float64).ravel() for x in (result[0], load_file(base + ".eager.safetensors")["0"]))
    return float(got @ want / np.sqrt((got @ got) * (want @ want)))


OPEN = {"torch": open_torch, "ort": open_ort, "ov": open_ov, "qkv": open_qkv}


# ------------------------------------------------------------------ the process
def least_ms(run, context, runs):
    best = float("inf")
    with context():
        for _ in range(runs):
            t = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - t)
    return best * 1e3


def main():
    peers, name, base, threads = sys.argv[1].split(","), sys.argv[2], sys.argv[3], int(sys.argv[4])
    answers = os.fdopen(os.dup(1), "w", 1)
    os.dup2(2, 1)                                    # what libraries print is not an answer
    ready, said = {}, {}
    for peer in peers:
        try:
            ready[peer] = OPEN[family(peer)](peer, name, base, threads)
            least_ms(*ready[peer], 2)
            said[peer] = {"cosine": cosine(ready[peer][0](), base)} if precision(peer) == "int8" else {}
        except Exception as e:
            said[peer] = {"error": (str(e).strip().splitlines() or [type(e).__name__])[-1][:120]}
    print(json.dumps(said), file=answers)
    for line in sys.stdin:
        peer, runs = line.split()
        print(least_ms(*ready[peer], int(runs)), file=answers)


if __name__ == "__main__":
    main()
