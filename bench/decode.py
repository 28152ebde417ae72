#!/usr/bin/env python3
"""One token of a decoder with weights of 4 and 8 bits: qkv, ONNX Runtime's MatMulNBits, llama.cpp. Rounds go around the
peers; a figure is the least over all rounds, in milliseconds.

    bench/decode.py llama_decode.pt2 --threads 1 --rounds 6 [--llama PYTHON]

llama_decode.pt2: bench/models.py. PYTHON: an interpreter with xllamacpp and gguf (PyPI, wheels of llama.cpp); its model
has the same layers, random weights, and 320 words. Of each of its requests, three tokens after a prompt of 512, the
mean time of a token counts.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HIDDEN, LAYERS, HEADS, KV, INNER, WORDS, PAST = 1024, 8, 16, 4, 2816, 320, 512
QKV = os.environ.get("QKV", "build/qkv")


def write_gguf(path, kind):
    import gguf
    import numpy as np
    from gguf.quants import quantize

    kind, rng, w = gguf.GGMLQuantizationType[kind], np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    w.add_context_length(4096)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(INNER)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_dimension_count(HIDDEN // HEADS)
    w.add_vocab_size(WORDS)
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [f"w{i}" for i in range(WORDS - 259)]
    w.add_tokenizer_model("llama")
    w.add_token_list([x.encode() for x in words])
    w.add_token_scores([-float(i) for i in range(WORDS)])
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * (WORDS - 259))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)

    def matrix(name, *shape):
        w.add_tensor(name, quantize((rng.standard_normal(shape) * 0.02).astype(np.float32), kind), raw_dtype=kind)

    def norm(name):
        w.add_tensor(name, np.ones(HIDDEN, np.float32))

    matrix("token_embd.weight", WORDS, HIDDEN)
    matrix("output.weight", WORDS, HIDDEN)
    norm("output_norm.weight")
    kv = HIDDEN // HEADS * KV
    for i in range(LAYERS):
        norm(f"blk.{i}.attn_norm.weight")
        norm(f"blk.{i}.ffn_norm.weight")
        for name, rows, columns in (("attn_q", HIDDEN, HIDDEN), ("attn_k", kv, HIDDEN), ("attn_v", kv, HIDDEN),
                                    ("attn_output", HIDDEN, HIDDEN), ("ffn_gate", INNER, HIDDEN),
                                    ("ffn_up", INNER, HIDDEN), ("ffn_down", HIDDEN, INNER)):
            matrix(f"blk.{i}.{name}.weight", rows, columns)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def serve_llama(path, kind, threads):
    """A line in: some requests; a line out: the least time."""
    import xllamacpp

    write_gguf(path, kind)
    p = xllamacpp.CommonParams()
    p.model.path = path
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
    p.n_ctx, p.n_parallel = 1024, 1
    server = xllamacpp.Server(p)
    prompt = [5 + i * 7 % 300 for i in range(PAST)]
    for _ in sys.stdin:
        times = []
        for _ in range(8):
            out = server.handle_completions({"prompt": prompt, "n_predict": 3, "ignore_eos": True, "temperature": 0,
                                             "cache_prompt": True})
            out = out if isinstance(out, dict) else json.loads(out)
            times.append(out["timings"]["predicted_per_token_ms"])
        print(f"\nleast {min(times)}", flush=True)


class Llama:
    def __init__(self, python, path, kind, threads):
        self.child = subprocess.Popen([python, __file__, "--serve", str(path), kind, str(threads)], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def __call__(self):
        self.child.stdin.write("go\n")
        self.child.stdin.flush()
        for line in self.child.stdout:
            if line.startswith("least "):
                return float(line.split()[1])
        sys.exit("llama.cpp stopped")


def runtime(path, threads):
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session, rng = ort.InferenceSession(path, options), np.random.default_rng(0)
    feeds = {i.name: rng.standard_normal(i.shape).astype(np.float32) if "float" in i.type
             else np.ones(i.shape, np.int64) for i in session.get_inputs()}

    def run():
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            session.run(None, feeds)
            times.append(time.perf_counter() - begin)
        return 1000 * min(times)
    return run


def ours(path, threads):
    def run():
        out = subprocess.run([QKV, "bench", path, "--threads", str(threads), "--iterations", "20", "--json"],
                             check=True, capture_output=True, text=True).stdout
        return json.loads(out)["min_ms"]
    return run


def with_integers(path, to):
    """ONNX Runtime rounds activations to 8 bits where accuracy_level says so."""
    import onnx

    m = onnx.load(path)
    for n in m.graph.node:
        if n.op_type == "MatMulNBits":
            n.attribute.append(onnx.helper.make_attribute("accuracy_level", 4))
    onnx.save(m, to)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--llama", metavar="PYTHON")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder, peers = pathlib.Path(folder), {"qkv f32": ours(a.model, a.threads)}
        subprocess.run([QKV, "convert", a.model, "-o", folder / "f32.onnx"], check=True, capture_output=True)
        peers["ort f32"] = runtime(folder / "f32.onnx", a.threads)
        for bits in ("int8", "int4"):
            made = [QKV, "quantize", a.model, "--weights-only", bits, "--group", str(a.group), "-o"]
            for name, more in ((bits, []), (f"{bits} dynamic", ["--dynamic"])):
                path = folder / f"{name}.onnx"
                subprocess.run([*made, path, *more], check=True, capture_output=True)
                peers[f"qkv {name}"] = ours(path, a.threads)
            nbits, integers = folder / f"{bits}.nbits.onnx", folder / f"{bits}.level4.onnx"
            subprocess.run([*made, nbits, "--opset", "18"], check=True, capture_output=True)
            with_integers(nbits, integers)
            peers[f"ort {bits}"] = runtime(nbits, a.threads)
            peers[f"ort {bits} accuracy_level 4"] = runtime(integers, a.threads)
        for kind in ("Q8_0", "Q4_0") if a.llama else ():
            peers[f"llama.cpp {kind}"] = Llama(a.llama, folder / f"{kind}.gguf", kind, a.threads)
        times = {name: [] for name in peers}
        for _ in range(a.rounds):
            for name, run in peers.items():
                times[name].append(run())
        for name, t in times.items():
            print(f"{name:32} {min(t):8.2f} ms", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve_llama(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
