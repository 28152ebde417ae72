#!/usr/bin/env python3
"""Times the tokens that a random Llama writes, greedily: qkv with fed keys and values beside transformers' eager
generate and a loop of ONNX Runtime with io-binding on the ONNX file of the same model, interleaved.

  generate.py [--models tiny,medium] [--prompt 32] [--tokens 64] [--rounds 3] [--threads 1] [--markdown OUT]

Each figure is the most tokens per second of all rounds, the prompt's run left out; a round runs each of them once.
All must write the same tokens. Needs: torch, transformers; onnxruntime for its row.
"""
import argparse
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "python")]
SIZES = {"tiny": dict(hidden_size=64, intermediate_size=172, num_hidden_layers=4, num_attention_heads=4,
                      num_key_value_heads=2, vocab_size=1000),
         "medium": dict(hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
                        num_key_value_heads=4, vocab_size=32000)}


def qkv_loop(path, threads):
    import numpy as np
    import qkv
    session = qkv.Model(path, threads=threads).session()
    for name in session.inputs[1:]:
        session.feed(name, from_=name.replace("past", "present"))

    def run(ids, tokens):
        session.reset()
        x, out = ids, []
        for _ in range(tokens):
            x = session.run({"input_ids": x})["logits"][:, -1].argmax(-1)[:, None]
            out.append((int(x[0, 0]), time.perf_counter()))
        return out
    return run


def torch_loop(model):
    import torch

    @torch.no_grad()
    def run(ids, tokens):
        from transformers import DynamicCache
        x, out, cache = torch.from_numpy(ids), [], DynamicCache()
        for _ in range(tokens):
            x = model(input_ids=x, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1)[:, None]
            out.append((int(x[0, 0]), time.perf_counter()))
        return out
    return run


def ort_loop(path, threads):
    """Keys and values stay in OrtValues from run to run."""
    import numpy as np
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    shapes = {i.name: i.shape for i in session.get_inputs()}
    names, outputs = list(shapes), [o.name for o in session.get_outputs()]

    def run(ids, tokens):
        past = {n: ort.OrtValue.ortvalue_from_numpy(np.zeros((1, shapes[n][1], 0, shapes[n][3]), np.float32))
                for n in names[1:]}
        x, out = ids, []
        for _ in range(tokens):
            binding = session.io_binding()
            binding.bind_cpu_input(names[0], x)
            for n, v in past.items():
                binding.bind_ortvalue_input(n, v)
            for o in outputs:
                binding.bind_output(o)
            session.run_with_iobinding(binding)
            logits, *present = binding.get_outputs()
            past = dict(zip(names[1:], present))
            x = logits.numpy()[:, -1].argmax(-1)[:, None].astype(np.int64)
            out.append((int(x[0, 0]), time.perf_counter()))
        return out
    return run


def measure(name, o, folder):
    import torch
    import transformers as T
    import qkv
    from qkv.recipes import causal_lm
    torch.manual_seed(0)
    config = T.LlamaConfig(**SIZES[name], max_position_embeddings=2048, bos_token_id=0, eos_token_id=0)
    model = T.LlamaForCausalLM._from_config(config, attn_implementation="sdpa").eval()
    path = os.path.join(folder, name + ".pt2")
    causal_lm.export_past(model, path)
    loops = {"qkv": qkv_loop(path, o.threads), "transformers eager": torch_loop(model)}
    try:
        import onnxruntime  # noqa: F401
        qkv.Model(path).save_onnx(path[:-3] + "onnx")
        loops["ONNX Runtime, io-binding"] = ort_loop(path[:-3] + "onnx", o.threads)
    except ImportError:
        print("onnxruntime is not installed: its row is left out", file=sys.stderr)
    ids = torch.randint(1, 900, (1, o.prompt)).numpy()
    best, tokens = {}, {}
    for r in range(o.rounds):
        for who, run in loops.items():
            out = run(ids, o.tokens)
            best[who] = max(best.get(who, 0), (o.tokens - 1) / (out[-1][1] - out[0][1]))
            tokens[who] = [t for t, _ in out]
    same = {who: t == tokens["qkv"] for who, t in tokens.items()}
    return [(name, who, f"{best[who]:.1f}", f"{best['qkv'] / best[who]:.2f}", "yes" if same[who] else "no")
            for who in loops]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--models", default="tiny,medium")
    for name, value in (("--prompt", 32), ("--tokens", 64), ("--rounds", 3), ("--threads", 1)):
        p.add_argument(name, type=int, default=value)
    p.add_argument("--markdown")
    o = p.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(o.threads)
    import torch
    torch.set_num_threads(o.threads)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for name in o.models.split(",") for row in measure(name, o, folder)]
    lines = ["| model | who | tokens/s | qkv / it | same tokens |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    print("\n".join(lines))
    if o.markdown:
        with open(o.markdown, "w") as f:
            f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
