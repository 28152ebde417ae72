#!/usr/bin/env python3
"""qkv and ONNX Runtime on a machine with other work: medians beside so many busy processes, in one run.

    bench/busy.py                                       build/qkv, 2 threads, twice as many busy processes as CPUs
    bench/busy.py --models distilbert_1x128 --busy 0    an idle machine, for comparison
    bench/busy.py --qkv before=/tmp/qkv --qkv after=build/qkv

Models with random weights: a tiny Qwen3 (4 layers of 256) and DistilBERT (6 layers of 768), by batch x tokens. Each
program runs in a process of its own, one at a time, in rounds of --seconds; its median is over all runs of all rounds,
so that what one of them costs when the system takes its CPU counts as often as it happens. Busy processes multiply
without pause. Prints a table for bench/RESULTS.md, the machine's load beside it.
"""
import argparse, json, multiprocessing, os, statistics, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import machine

HERE = os.path.abspath(__file__)
MODELS = ["qwen3_1x128", "qwen3_2x64", "distilbert_1x128", "distilbert_2x64"]


def shape_of(name):
    return tuple(map(int, name.split("_")[1].split("x")))


def build(name):
    import torch
    import transformers as tf
    tf.logging.set_verbosity_error()
    torch.manual_seed(0)
    if name.startswith("qwen3"):
        model = tf.Qwen3Model(tf.Qwen3Config(
            vocab_size=1024, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=8,
            num_key_value_heads=4, head_dim=32, use_cache=False, attn_implementation="sdpa"))
    else:
        model = tf.DistilBertModel(tf.DistilBertConfig(attn_implementation="sdpa"))

    class Ids(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids):
            return self.model(input_ids=input_ids).last_hidden_state

    return Ids().eval(), (torch.randint(5, 250, shape_of(name)),)


def prepare(name, cache):
    import torch
    base = os.path.join(cache, name)
    if not os.path.exists(base + ".onnx"):
        module, inputs = build(name)
        with torch.no_grad():
            torch.export.save(torch.export.export(module, inputs, strict=False), base + ".pt2")
            torch.onnx.export(module, inputs, base + ".onnx", dynamo=True, opset_version=18, verbose=False)
    return base


def ort_worker(base, threads):
    """Reads seconds, runs so long, prints the times of its runs in ms as JSON."""
    import numpy as np
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(base + ".onnx", options, providers=["CPUExecutionProvider"])
    ids = np.full(shape_of(os.path.basename(base)), 7, np.int64)
    feed = {i.name: ids for i in session.get_inputs()}
    serve(lambda: session.run(None, feed))


def qkv_worker(base, threads, library):
    os.environ["QKV_LIBRARY"] = library
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), "..", "python"))
    import numpy as np
    import qkv
    model = qkv.Model(base + ".pt2", threads=threads)
    feed = {name: np.full(shape_of(os.path.basename(base)), 7, np.int64) for name in model.inputs}
    serve(lambda: model.run(feed))


def serve(run):
    for _ in range(5):
        run()
    print("ready", flush=True)
    for line in sys.stdin:
        end, times = time.perf_counter() + float(line), []
        while not times or time.perf_counter() < end:
            t = time.perf_counter()
            run()
            times.append((time.perf_counter() - t) * 1e3)
        print(json.dumps(times), flush=True)


class Program:
    def __init__(self, name, command, env):
        self.name, self.times = name, []
        self.p = subprocess.Popen([sys.executable, HERE, "--worker", *command], env=env, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        if self.p.stdout.readline() != "ready\n":
            sys.exit(f"{name}: did not start")

    def go(self, seconds):
        self.p.stdin.write(f"{seconds}\n")
        self.p.stdin.flush()
        self.times += json.loads(self.p.stdout.readline())

    def end(self):
        self.p.stdin.close()
        self.p.wait(60)


def busy():
    x = 1
    while True:
        x = x * 3 % 1000003


def compare(model, a, cache):
    base, env = prepare(model, cache), dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    programs = [Program("ONNX Runtime", ["ort", base, str(a.threads)], env)]
    programs += [Program(n, ["qkv", base, str(a.threads), os.path.abspath(p)], env) for n, p in a.qkv]
    others = [multiprocessing.Process(target=busy, daemon=True) for _ in range(a.busy)]
    [o.start() for o in others]
    try:
        for _ in range(a.rounds):
            [p.go(a.seconds) for p in programs]
    finally:
        [o.kill() for o in others]
        [o.join() for o in others]
    [p.end() for p in programs]
    return {p.name: {"median": statistics.median(p.times), "p95": sorted(p.times)[int(len(p.times) * .95)],
                     "least": min(p.times), "runs": len(p.times)} for p in programs}


def main():
    if sys.argv[1:2] == ["--worker"]:
        kind, base, threads = sys.argv[2], sys.argv[3], int(sys.argv[4])
        return ort_worker(base, threads) if kind == "ort" else qkv_worker(base, threads, sys.argv[5])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", type=lambda s: s.split(","), default=MODELS)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--busy", type=int, default=2 * len(os.sched_getaffinity(0)), help="processes")
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--seconds", type=float, default=2.0, help="of each program in each round")
    p.add_argument("--qkv", action="append", metavar="NAME=LIBRARY", type=lambda s: s.split("=", 1),
                   help="libraries to compare (default qkv=build/libqkv.so)")
    p.add_argument("--cache", help="folder of the exported models (default: temporary)")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    a.qkv = a.qkv or [["qkv", os.path.join(os.path.dirname(HERE), "..", "build", "libqkv.so")]]
    with tempfile.TemporaryDirectory() as folder:
        out = {m: compare(m, a, a.cache or folder) for m in a.models}
    if a.json:
        return print(json.dumps(out))
    print(f"{machine.describe()}; {a.threads} threads beside {a.busy} busy processes; load {os.getloadavg()[0]:.1f}\n")
    print("| model | program | median ms | 95 % | least | runs |\n|---|---|---:|---:|---:|---:|")
    for model, rows in out.items():
        for name, r in rows.items():
            print(f"| {model} | {name} | {r['median']:.3f} | {r['p95']:.3f} | {r['least']:.3f} | {r['runs']} |")


if __name__ == "__main__":
    main()
