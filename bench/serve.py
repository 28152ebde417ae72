#!/usr/bin/env python3
"""Requests per second that `qkv serve` and ONNX Runtime answer with a p99 of at most 100 ms: one machine, open loop.

  serve.py --model minilm.pt2 --vocab vocab.txt [--qkv build/qkv] [--servers qkv,ort,ort-1] [--seconds 8]
           [--limit-ms 100] [--threads 2] [--flood 1200] [--rounds 2] [--no-search] [--soak SECONDS [--soak-only]]

Each request is one text for /v1/embeddings, of log-normal length as in the key-padding tutorial (4 to 256 tokens). The
generator is a process of its own: requests are due at random times of a fixed rate (Poisson) whatever was answered, a
latency counts from when its request was due, and every embedding is compared with PyTorch's of the text alone. The
rate is raised until the p99 is above the limit, then the step is halved. Before that, more is asked than any server
answers (--flood), which gives answers per second, and CPU time per answer; the latter holds on a busy machine, too.
Servers have the same number of threads, and floods go around them:
  qkv      qkv serve
  ort      the same model as ONNX (qkv convert) in ONNX Runtime, in a small asyncio server of this file: what waits is
           one batch of at most 32, padded to its longest
  ort-1    the same, each text alone
  inf      PyPI's infinity-emb with its torch engine in float32 on the same weights, in an environment of its own:
           --infinity VENV/bin/infinity_emb (python -m venv VENV; VENV/bin/pip install 'infinity-emb[torch,server]')
           0.0.78 needs torch, transformers 4, click 8.1 and typer 0.12
With -bf16 after its name, qkv and inf multiply bfloat16; with -int8, qkv (qkv quantize --dynamic) and ort, ort-1
(onnxruntime's quantize_dynamic) multiply integers. Such embeddings are right if their cosine with PyTorch's in float32
is at least 0.999 and 0.95. Compare servers of the same arithmetic.
--soak SECONDS is full load: --clients connections to qkv, each of which asks again as soon as it is answered. Every
answer is compared, memory is looked at every five seconds; --soak-only leaves out the rest.
Needs: torch, transformers (the truth), onnxruntime, tokenizers.
"""
import argparse, asyncio, atexit, base64, json, os, re, signal, subprocess, sys, tempfile, threading, time

import numpy as np

HERE = os.path.abspath(__file__)
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "..", "python"))
import machine

BATCH, TEXTS, CONNECTIONS, NEAR = 32, 200, 512, 1e-4
COSINE = {"f32": None, "bf16": 0.999, "int8": 0.95}


# ------------------------------------------------------------------ texts and what they embed to
def make_texts(vocab, rng):
    words = [w for w in vocab if re.fullmatch("[a-z]{2,9}", w)]
    lengths = np.clip(rng.lognormal(3.7, 0.7, TEXTS), 4, 256).astype(int)
    return [" ".join(rng.choice(words, n - 2)) for n in lengths]


def truth(vocab, texts):
    import torch
    from qkv.recipes import minilm
    from transformers import BertTokenizer

    torch.set_num_threads(1)
    module, tokenizer = minilm.load(minilm.find_weights()), BertTokenizer(vocab, do_lower_case=True)
    out, tokens = [], 0
    with torch.no_grad():
        for text in texts:
            t = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
            h = module(t["input_ids"], t["attention_mask"])[0].mean(0)
            out.append(torch.nn.functional.normalize(h, dim=0).numpy())
            tokens += t["input_ids"].shape[1]
    return np.stack(out), tokens / len(texts)


# ------------------------------------------------------------------ the peer: ONNX Runtime with padding
def ort_server(path, vocab, threads, batch):
    import concurrent.futures

    import onnxruntime
    from tokenizers import BertWordPieceTokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if os.environ.get("OMP_WAIT_POLICY") == "passive":  # as for qkv: threads that wait take no CPU
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    tokenizer = BertWordPieceTokenizer(vocab, lowercase=True)
    worker, waiting = concurrent.futures.ThreadPoolExecutor(1), asyncio.Queue()

    def run(texts):
        ids = [tokenizer.encode(t).ids[:512] for t in texts]
        x, mask = np.zeros((2, len(ids), max(map(len, ids))), np.int64)
        for i, one in enumerate(ids):
            x[i, :len(one)], mask[i, :len(one)] = one, 1
        h = session.run(None, {"input_ids": x, "attention_mask": mask})[0]
        e = (h * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        e = (e / np.linalg.norm(e, axis=1, keepdims=True)).astype(np.float32)
        return [base64.b64encode(row.tobytes()).decode() for row in e]

    async def batches():
        loop = asyncio.get_running_loop()
        while True:
            taken = [await waiting.get()]
            while len(taken) < batch and not waiting.empty():
                taken.append(waiting.get_nowait())
            for (_, done), e in zip(taken, await loop.run_in_executor(worker, run, [t for t, _ in taken])):
                done.set_result(e)

    async def client(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                n = int(re.search(rb"content-length: (\d+)", head, re.I).group(1))
                text = json.loads(await reader.readexactly(n))["input"]
                done = asyncio.get_running_loop().create_future()
                waiting.put_nowait((text, done))
                body = json.dumps({"object": "list", "data": [{"object": "embedding", "index": 0,
                                                               "embedding": await done}]}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main():
        server = await asyncio.start_server(client, "127.0.0.1", 0, backlog=1024)
        print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
        await batches()
    asyncio.run(main())


# ------------------------------------------------------------------ the generator
def generate(job):
    """{"ok", "wrong", "lost", latencies in ms}"""
    bodies = [json.dumps({"model": "minilm", "input": t, "encoding_format": "base64"}).encode() for t in job["texts"]]
    want = np.load(job["truth"])
    rng = np.random.default_rng(job["seed"])
    due = np.cumsum(rng.exponential(1 / job["rate"], int(job["rate"] * job["seconds"])))
    which = rng.integers(len(bodies), size=len(due))
    sent = len(due)
    latency, counts = [], {"wrong": 0, "lost": 0}
    clients = job.get("clients")
    free, most = [], asyncio.Semaphore(clients or CONNECTIONS)

    async def ask(i, at):
        async with most:
            try:
                r, w = free.pop() if free else await asyncio.open_connection("127.0.0.1", job["port"])
                w.write(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        b"Content-Length: %d\r\n\r\n%s" % (len(bodies[i]), bodies[i]))
                head = await r.readuntil(b"\r\n\r\n")
                n = int(re.search(rb"content-length: (\d+)", head, re.I).group(1))
                body = await r.readexactly(n)
            except (OSError, asyncio.IncompleteReadError):
                counts["lost"] += 1
                return
            free.append((r, w))
        latency.append((time.perf_counter() - at) * 1e3)
        if b" 200 " not in head[:20]:
            counts["lost"] += 1
            return
        e = np.frombuffer(base64.b64decode(json.loads(body)["data"][0]["embedding"]), np.float32)
        right = np.abs(e - want[i]).max() <= NEAR if not job.get("cosine") else e @ want[i] >= job["cosine"]
        counts["wrong"] += not right

    async def closed():
        nonlocal sent
        end, sent = time.perf_counter() + job["seconds"], 0

        async def client():
            nonlocal sent
            while (at := time.perf_counter()) < end:
                sent += 1
                await ask(int(rng.integers(len(bodies))), at)
        await asyncio.gather(*(client() for _ in range(clients)))

    async def main():
        start, tasks = time.perf_counter() + 0.05, []
        for i, at in zip(which, due):
            wait = start + at - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(ask(i, start + at)))
        await asyncio.gather(*tasks)
    begun = time.perf_counter()
    asyncio.run(closed() if clients else main())
    seconds = time.perf_counter() - begun
    latency.sort()
    at = lambda q: latency[min(len(latency) - 1, int(q * len(latency)))] if latency else float("inf")
    return {"sent": sent, **counts, "p50": at(0.5), "p99": at(0.99), "seconds": seconds}


# ------------------------------------------------------------------ one server at a time
def weights_folder():
    from qkv.recipes import minilm
    return minilm.find_weights()


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Running:
    def __init__(self, name, o, models):
        kind, mode = re.fullmatch(r"(.*?)(?:-(bf16|int8))?", name).groups()
        mode = mode or "f32"
        self.cosine = COSINE[mode]
        env = {**os.environ, "OMP_NUM_THREADS": str(o.threads), "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
        own = [models("pt2-int8")] if mode == "int8" else [o.model, *(["--dtype", "bf16"] if mode == "bf16" else [])]
        line = {"qkv": lambda: [o.qkv, "serve", "minilm=" + own[0], *own[1:], "--tokenizer", o.vocab, "--http",
                                "127.0.0.1:0", "--threads", str(o.threads)] + o.serve,
                "ort": lambda: [sys.executable, HERE, "--ort-server", models("onnx-int8" if mode == "int8" else "onnx"),
                                o.vocab, str(o.threads), str(BATCH)],
                "ort-1": lambda: line["ort"]()[:-1] + ["1"],
                "inf": lambda: [o.infinity, "v2", "--model-id", weights_folder(), "--served-model-name", "minilm",
                                "--engine", "torch", "--device", "cpu", "--dtype",
                                "bfloat16" if mode == "bf16" else "float32", "--url-prefix", "/v1", "--host",
                                "127.0.0.1", "--port", str(free_port())]}
        self.process = subprocess.Popen(line[kind](), stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL,
                                        env=env if kind == "inf" else None)
        atexit.register(self.process.kill)  # where an error ends this program before it is told to stop
        self.port = next(int(m.group(1)) for m in map(re.compile(r"http://127\.0\.0\.1:(\d+)").search,
                                                      self.process.stderr) if m)
        # the access log is written, and read by nothing but this
        self.sink = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def load(self, job, rate, seconds, seed):
        job = {**job, "port": self.port, "cosine": self.cosine, "rate": rate, "seconds": seconds, "seed": seed}
        done = subprocess.run([sys.executable, HERE, "--generate"], input=json.dumps(job), capture_output=True,
                              text=True, check=True)
        return json.loads(done.stdout)

    def cpu_ms(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.sink.wait()


class Models:
    """The model in other forms, made when they are first asked for."""

    def __init__(self, o, folder):
        self.o, self.folder = o, folder

    def __call__(self, form):
        path = os.path.join(self.folder, {"onnx": "f32.onnx", "onnx-int8": "int8.onnx", "pt2-int8": "int8.pt2"}[form])
        if os.path.exists(path):
            return path
        if form == "onnx-int8":
            from onnxruntime.quantization import QuantType, quantize_dynamic
            quantize_dynamic(self("onnx"), path, weight_type=QuantType.QInt8)
            return path
        line = ["convert"] if form == "onnx" else ["quantize", "--dynamic"]
        subprocess.run([self.o.qkv, *line, self.o.model, "-o", path, "-q"], check=True, stdout=subprocess.DEVNULL)
        return path


def most_per_second(server, job, o):
    """The highest rate whose p99 keeps the limit, to 5 %, and what was measured there."""
    def fits(rate):
        r = server.load(job, rate, o.seconds, int(rate * 10))
        print(f"    {rate:6.1f}/s: p50 {r['p50']:.1f} ms, p99 {r['p99']:.1f} ms, {r['lost']} lost, {r['wrong']} wrong",
              file=sys.stderr, flush=True)
        wrong.append(r["wrong"])
        return r if r["p99"] <= o.limit_ms and not r["lost"] and not r["wrong"] else None
    wrong, low, high, best = [], 0, 16.0, None
    while r := fits(high):
        low, high, best = high, high * 1.6, r
    while high / max(low, 1) > 1.05 and high > 2:
        middle = (low + high) / 2
        r = fits(middle)
        low, high, best = (middle, high, r) if r else (low, middle, best)
    return low, best, sum(wrong)


def soak(server, job, o):
    """Full load for a long time; memory is to stay as it was after the first minute or tenth of it."""
    memory, over, cpu = [], threading.Event(), server.cpu_ms()

    def watch():
        while not over.wait(min(5, o.soak / 20)):
            memory.append(server.resident())
    watcher = threading.Thread(target=watch)
    watcher.start()
    r = server.load({**job, "clients": o.clients}, 1, o.soak, 3)
    over.set()
    watcher.join()
    answered, warm = r["sent"] - r["lost"], len(memory) // 10
    first, last = memory[warm:len(memory) // 2], memory[len(memory) // 2:]
    print(f"\nsoak: {r['seconds']:.0f} s of {o.clients} connections: {r['sent']} sent, {r['lost']} lost, {r['wrong']} "
          f"wrong; {answered / r['seconds']:.1f} answers/s, p50 {r['p50']:.0f} ms, p99 {r['p99']:.0f} ms, "
          f"{(server.cpu_ms() - cpu) / max(answered, 1):.2f} CPU ms an answer; memory {min(first):.0f} to "
          f"{max(first):.0f} MiB in the first half, {min(last):.0f} to {max(last):.0f} in the second", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="/tmp/minilm/minilm.pt2")
    p.add_argument("--vocab", default="/tmp/minilm/vocab.txt")
    p.add_argument("--qkv", default="build/qkv")
    p.add_argument("--serve", default=[], type=str.split, help="more options of qkv serve")
    p.add_argument("--servers", default="qkv,ort,ort-1", help="of those above")
    p.add_argument("--infinity", default="infinity_emb", help="the program of infinity-emb")
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--limit-ms", type=float, default=100)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--flood", type=int, default=1200, help="requests, all at once")
    p.add_argument("--rounds", type=int, default=2, help="floods of each server; the best counts")
    p.add_argument("--no-search", action="store_true", help="no rate at the limit: on a busy machine it says nothing")
    p.add_argument("--soak", type=float, default=0)
    p.add_argument("--soak-only", action="store_true")
    p.add_argument("--clients", type=int, default=64, help="connections of --soak")
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        texts = make_texts([w.rstrip("\n") for w in open(o.vocab, encoding="utf-8")], np.random.default_rng(0))
        want, tokens = truth(o.vocab, texts)
        job = {"texts": texts, "truth": os.path.join(folder, "truth.npy")}
        np.save(job["truth"], want)
        models = Models(o, folder)
        print(f"{machine.describe()}; load {os.getloadavg()[0]:.1f}; {o.threads} threads, {tokens:.0f} tokens a "
              f"text on average\n\n| server | requests/s at p99 <= {o.limit_ms:.0f} ms | p50, p99 there, ms | "
              "p50 at 5/s, ms | flooded: answers/s | CPU ms an answer | wrong |\n|---|---|---|---|---|---|---|")
        servers = {name: Running(name, o, models) for name in (["qkv"] if o.soak_only else o.servers.split(","))}
        for server in servers.values():
            server.load(job, 20, 3, 1)  # warm
        if o.soak_only:
            soak(servers["qkv"], job, o)
            servers.pop("qkv").stop()
        floods = {name: [] for name in servers}
        for k in range(o.rounds):  # around the servers, so that noise hits all alike
            for name, server in servers.items():
                before = server.cpu_ms()
                r = server.load(job, o.flood * 4, 0.25, 7 + k)
                answered = r["sent"] - r["lost"]
                print(f"    {name} flooded: {r}", file=sys.stderr, flush=True)
                floods[name].append((answered / r["seconds"], (server.cpu_ms() - before) / answered, r["wrong"]))
        for name, server in servers.items():
            low = server.load(job, 5, o.seconds, 2)
            rate, best, wrong = (0, None, 0) if o.no_search else most_per_second(server, job, o)
            at = f"{rate:.0f} | {best['p50']:.1f}, {best['p99']:.1f}" if best else "- | -"
            most, cpu = max(f[0] for f in floods[name]), min(f[1] for f in floods[name])
            bad = sum(f[2] for f in floods[name])
            print(f"| {name} | {at} | {low['p50']:.1f} | {most:.0f} | {cpu:.1f} | {wrong + bad} |", flush=True)
        if o.soak and "qkv" in servers:
            soak(servers["qkv"], job, o)
        for server in servers.values():
            server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--generate"]:
        print(json.dumps(generate(json.load(sys.stdin))))
    elif sys.argv[1:2] == ["--ort-server"]:
        ort_server(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
