#!/usr/bin/env python3
"""Times forward and backward of a model with a loss: the joint graph of `qkv joint` beside PyTorch eager,
interleaved, in one run.

  joint.py [--models digits,minilm,vit_b,swin_t,llama] [--threads 1] [--qkv build/qkv] [--cache DIR] [--rounds 5]
  [--iterations 3] [--json OUT] [--markdown OUT]

PyTorch runs loss = module(*inputs) and loss.backward() with gradients set to None before, qkv runs the file that `qkv
joint --loss output_0` writes; both compute the loss and the gradients of all parameters, without dropout. Rounds go
around the two, so noise hits both alike, and each figure is the minimum over all rounds. The share of peak takes
PyTorch's count of floating-point operations of products, convolutions and attention of both passes. The largest
difference of a gradient, relative to its own largest element (or a thousandth of the largest of all), is printed too.
Needs: torch, transformers, safetensors; cc for the peak.
"""
import argparse, datetime, json, os, subprocess, sys

HERE = os.path.abspath(__file__)
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "..", "demo")]
import machine

MODELS = ["digits", "minilm", "vit_b", "swin_t", "llama"]


def build(name):
    """(module, inputs): positional inputs, the loss comes out; the same weights and inputs in every process.
    NAME_B is NAME at batch B."""
    import torch, transformers as tf
    from torch import nn
    tf.logging.set_verbosity_error()
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)
    known = next((m for m in sorted(MODELS, key=len, reverse=True) if name.startswith(m)),
                 None) or sys.exit(f"unknown model {name}: expected one of {', '.join(MODELS)}, and _B for a batch")
    batch = int(name[len(known) + 1:] or {"digits": 64, "minilm": 8, "vit_b": 2, "swin_t": 2, "llama": 2}[known])

    class Loss(nn.Module):
        """Cross entropy of what `head` makes of the model's result."""
        def __init__(self, body, head, **loss):
            super().__init__()
            self.body, self.head, self.loss = body, head, nn.CrossEntropyLoss(**loss)

        def forward(self, x, target):
            y = self.body(x)
            y = self.head(getattr(y, "last_hidden_state", y))
            return self.loss(y.flatten(0, -2), target.flatten())

    class First(nn.Linear):
        def forward(self, x):
            return super().forward(x[:, 0])

    class Mean(nn.Linear):
        def forward(self, x):
            return super().forward(x.mean(1))

    pictures, classes = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    if known == "digits":                             # the demo's model, as demo/train_digits.py trains it
        from train_digits import DigitsViT
        return Loss(DigitsViT(), nn.Identity(), label_smoothing=0.05).eval(), (torch.rand(batch, 1, 8, 8),
                                                                               torch.randint(0, 10, (batch,)))
    if known == "minilm":                             # MiniLM-L6's sizes, a class of each text
        c = tf.BertConfig(attn_implementation="sdpa", hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                          intermediate_size=1536)
        return Loss(tf.BertModel(c, add_pooling_layer=False),
                    First(384, 10)).eval(), (torch.randint(5, 30000, (batch, 128)), classes % 10)
    if known == "vit_b":
        return Loss(tf.ViTModel(tf.ViTConfig(attn_implementation="sdpa"), add_pooling_layer=False),
                    First(768, 1000)).eval(), (pictures, classes)
    if known == "swin_t":
        return Loss(tf.SwinModel(tf.SwinConfig(), add_pooling_layer=False), Mean(768, 1000)).eval(), (pictures, classes)
    c = tf.LlamaConfig(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
                       intermediate_size=1408, vocab_size=8000,
                       attn_implementation="sdpa", use_cache=False)
    return Loss(tf.LlamaModel(c), nn.Linear(512, 8000, bias=False)).eval(), (torch.randint(0, 8000, (batch, 128)),
                                                                             torch.randint(0, 8000, (batch, 128)))


def flops(module, inputs):
    """Products, convolutions and attention of both passes; attention's backward is five products of the forward
    pass's two."""
    from torch.utils.flop_counter import FlopCounterMode
    import torch

    def attention(q, k, v, dropout=0.0, is_causal=False, *rest, out_shape=None, **kw):
        (b, h, n, d), m, e = q, k[2], v[3]
        return 2 * b * h * n * m * (d + e) // (2 if is_causal else 1)

    def backward(grad, q, k, v, out, lse, dropout=0.0, is_causal=False, *rest, out_shape=None, **kw):
        return attention(q, k, v, dropout, is_causal) * 5 // 2

    ops = torch.ops.aten
    known = {ops._scaled_dot_product_flash_attention_for_cpu: attention,
             ops._scaled_dot_product_flash_attention_for_cpu_backward: backward}
    with FlopCounterMode(display=False, custom_mapping=known) as f:
        module(*inputs).backward()
    module.zero_grad()
    return f.get_total_flops()


def prepare(name, a):
    """NAME.pt2, NAME.inputs.safetensors, NAME.grads.safetensors, NAME.json once; NAME.joint.pt2 by this qkv."""
    base = os.path.join(a.cache, name)
    if not os.path.exists(base + ".json"):
        import torch
        from safetensors.torch import save_file
        m, x = build(name)
        ep = torch.export.export(m, x, strict=False)
        torch.export.save(ep, base + ".pt2")
        save_file(dict(zip(ep.graph_signature.user_inputs, x)), base + ".inputs.safetensors")
        count = flops(m, x)
        m(*x).backward()
        save_file({"grad." + n: p.grad for n, p in m.named_parameters() if p.grad is not None},
                  base + ".grads.safetensors")
        json.dump({"flops": count}, open(base + ".json", "w"))
    subprocess.run([a.qkv, "joint", base + ".pt2", "--loss", "output_0", "-o", base + ".joint.pt2"], check=True,
                   capture_output=True)
    return base, json.load(open(base + ".json"))["flops"]


def difference(base, a):
    from safetensors.numpy import load_file
    import numpy as np
    out = base + ".step.safetensors"
    subprocess.run([a.qkv, "run", base + ".joint.pt2", "-i", base + ".inputs.safetensors", "-o", out], check=True,
                   capture_output=True)
    ours, theirs = load_file(out), load_file(base + ".grads.safetensors")
    floor = 1e-3 * max(np.abs(t).max() for t in theirs.values())
    return max(float(np.abs(ours[n] - t).max() / max(np.abs(t).max(), floor)) for n, t in theirs.items() if n in ours)


def worker(name, threads):
    """Reads a count, prints the least ms of so many steps."""
    import torch
    torch.set_num_threads(threads)
    m, x = build(name)

    def step():
        m.zero_grad(set_to_none=True)
        m(*x).backward()
    machine.serve(step)


def ours(base, n, a):
    r = subprocess.run([a.qkv, "bench", base + ".joint.pt2", "-i", base + ".inputs.safetensors", "--threads",
                        str(a.threads), "--iterations", str(n), "--json"],
                       check=True, capture_output=True, text=True)
    r = json.loads(r.stdout)
    return r["min_ms"], r.get("peak_bytes")


def compare(name, a, peak):
    base, count = prepare(name, a)
    p = subprocess.Popen([sys.executable, HERE, "--worker", name, str(a.threads)],
                         env=dict(os.environ, OMP_NUM_THREADS=str(a.threads)),
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if p.stdout.readline() != "ready\n":
        sys.exit(f"{name}: PyTorch's process died")
    torch_ms = qkv_ms = float("inf")
    for _ in range(a.rounds):
        p.stdin.write(f"{a.iterations}\n")
        p.stdin.flush()
        torch_ms = min(torch_ms, float(p.stdout.readline()))
        qkv_ms = min(qkv_ms, ours(base, a.iterations, a)[0])
        peak.measure()
    p.stdin.close()
    p.wait(30)
    return {"flops": count, "torch_ms": torch_ms, "qkv_ms": qkv_ms, "torch_over_qkv": torch_ms / qkv_ms,
            "difference": difference(base, a)}


def markdown(out):
    lines = [f"### {out['date']}, {out['threads']} thread{'s' * (out['threads'] > 1)}", "",
             f"Machine: {out['machine']}; {out['peak_gflops']:.0f} GFLOP/s a core in f32 at best. {out['qkv']}.", "",
             f"    {out['command']}", "",
             "| model | GFLOP | PyTorch eager ms | qkv ms | x PyTorch | of peak | largest difference of a gradient |",
             "|---|---|---|---|---|---|---|"]
    for name, m in out["models"].items():
        share = f"{100 * m['share_of_peak']:.1f} %" if m["share_of_peak"] else ""
        lines.append(f"| {name} | {m['flops'] / 1e9:.2f} | {m['torch_ms']:.2f} | {m['qkv_ms']:.2f} | "
                     f"{m['torch_over_qkv']:.2f} | {share} | {m['difference']:.1e} |")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--worker":
        return worker(sys.argv[2], int(sys.argv[3]))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default=",".join(MODELS), help="names, each followed by _B for a batch of B")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--qkv", default="build/qkv")
    p.add_argument("--cache", default=os.path.expanduser("~/.cache/qkv-joint"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--iterations", type=int, default=3, help="steps of each in a round")
    p.add_argument("--prepare", action="store_true", help="make the files and check the gradients, time nothing")
    p.add_argument("--json", help="everything, for programs")
    p.add_argument("--markdown", help="a section for bench/RESULTS.md: machine, versions, command, table")
    a = p.parse_args()
    os.makedirs(a.cache, exist_ok=True)
    if a.prepare:
        for name in a.models.split(","):
            print(f"{name}: gradients differ by {difference(prepare(name, a)[0], a):.1e}", flush=True)
        return
    with machine.Peak() as peak:
        version = subprocess.run([a.qkv, "--version"], capture_output=True, text=True).stdout.strip()
        out = {"date": datetime.date.today().isoformat(), "machine": machine.describe(), "qkv": version,
               "threads": a.threads, "command": " ".join(["bench/joint.py"] + sys.argv[1:]), "models": {}}
        for name in a.models.split(","):
            m = out["models"][name] = compare(name, a, peak)
            out["peak_gflops"] = peak.top[0]
            for r in out["models"].values():
                r["share_of_peak"] = r["flops"] / (peak.top[0] * a.threads) / 1e6 / r["qkv_ms"] if peak.top[0] else 0
            print(f"{name:10s} torch {m['torch_ms']:9.2f} ms, qkv {m['qkv_ms']:9.2f} ms: {m['torch_over_qkv']:.2f} x, "
                  f"{100 * m['share_of_peak']:.1f} % of peak, gradients differ by {m['difference']:.1e}", flush=True)
            if a.json:
                json.dump(out, open(a.json, "w"), indent=1)
            if a.markdown:
                open(a.markdown, "w").write(markdown(out))


if __name__ == "__main__":
    main()
