"""Large size expressions in every place of a .pt2 and an ONNX file, through every command: each ends within 2 s of CPU
and 4 times the file and 200 MiB (inputs are made), with a result or an exit code.

    python3 expressions.py QKV [WORD ...]      those whose name holds a word: "product 30 x 7, value"; TAP
    python3 expressions.py QKV --in-turn       each in one of the places: the first in the second, and so on (meson)
"""
import os, resource, subprocess, sys, tempfile, threading

import growth

SIZES = [f"s{i}" for i in range(40)]
COMMANDS = [["inspect", "FILE"], ["check", "FILE"], ["graph", "FILE"], ["run", "FILE"], ["bench", "FILE", "--predict"],
            ["rewrite", "FILE", "--prove"], ["backends", "FILE"], ["convert", "FILE", "-o", "o.onnx"],
            ["convert", "FILE", "-o", "o.pt2"], ["joint", "FILE", "-o", "j.pt2"], ["pack", "FILE", "-o", "o.qkv"],
            ["quantize", "FILE", "-o", "q.onnx"], ["report", "FILE", "--no-run", "-o", "r.json"],
            ["extract", "FILE", "--weights", "-o", "w.npz"], ["prove", "FILE", "FILE"],
            ["generalize", "FILE", "FILE", "-o", "g.pt2"], ["compare", "FILE", "FILE", "--no-run", "-o", "c.json"]]


def product(n, terms):
    return "*".join("(" + "+".join(SIZES[(i * terms + k) % 40] for k in range(terms)) + ")" for i in range(n))


def nested(before, after, n):
    return before * n + "s0" + after * n


EXPRESSIONS = {
    "product 30 x 7": product(30, 7), "product 2 x 40": product(2, 40), "product 12 x 40": product(12, 40),
    "powers by products": "*".join(["(s0+s1+1)"] * 1000), "powers": "(s0+s1+s2+s3)**1000000",
    "power of itself": "s99**s99", "sum of one": "+".join(["s0"] * 350000), "product of one": "*".join(["s0"] * 350000),
    "sum of 64,000": "+".join(f"{a}*{b}*{c}" for a in SIZES for b in SIZES for c in SIZES),
    "brackets": nested("(", ")", 300000), "signs": "-" * 800000 + "s0", "digits": "9" * 1000000,
    "quotients": nested("(", "+1)//2", 60000), "remainders": nested("Mod(", ", 7)", 50000),
    "maxima": nested("Max(", ", s1)", 50000), "minima of maxima": nested("Max(s0*s1, Min(", ", s1))", 20000),
    "one maximum": "Max(" + ", ".join(f"s{i % 40}+{i}" for i in range(60000)) + ")",
    "sum of quotients": "+".join(f"((s{i % 40}+{i})//{i % 7 + 2})" for i in range(40000)),
    "product of quotients": "*".join(f"((s{i % 40}+{i})//{i % 7 + 2}+s1)" for i in range(300)),
}


def tensor(*sizes):
    dims = [{"as_expr": {"expr_str": s, "hint": {"as_int": 4}}} for s in sizes]
    return {**growth.TENSOR, "sizes": dims, "strides": [{"as_int": 1}] * len(dims)}


def archive(path, place, e):
    """relu of x, beside inputs that have all of the sizes."""
    def put(program):
        values = program["graph_module"]["graph"]["tensor_values"]
        for k in range(4):
            values[f"z{k}"] = tensor(*SIZES[10 * k:10 * k + 10])
            program["graph_module"]["signature"]["input_specs"].append({"user_input": {"arg": growth.tensor(f"z{k}")}})
        program["range_constraints"] = {s: {"min_val": 1, "max_val": 2} for s in SIZES}
        for name in {"input": ["x", "r0"], "value": ["r0"]}.get(place, []):
            values[name] = tensor(e)
        if place == "guard":
            program["guards_code"] = [f"{e} <= 5"]
        if place == "range":
            program["range_constraints"][e] = {"min_val": 1, "max_val": 2}
    growth.archive(path, [growth.relu(0, "x")], ["r0"], outputs=[{"user_output": {"arg": growth.tensor("r0")}}],
                   extra=put)


# Rows that grow much faster than the sizes that they are made of, and what chooses such sizes.
ROWS = {"power of itself": "s0**s0", "power of a power": "(s0**s0)**s0", "powers": "(s0+1)**(s0+2)*s0**3",
        "products of sums": "(s0*s0+3)*(s0*s0+s0+7)*(s0+1)*s0*s0", "quotient of a power": "(s0**9)//(s0+2) + 1",
        "largest": "Max(s0**s0, Min(s0**(s0+1), s0**7))", "remainder": "Mod(s0**s0*7, s0**5+11) + 1"}
MAKES_SIZES = [["prove", "FILE", "FILE"], ["prove", "FILE", "FILE", "-D", "s0=7"],
               ["prove", "FILE", "FILE", "-D", "s0=8"], ["prove", "FILE", "FILE", "-D", "s0=16"],
               ["prove", "FILE", "FILE", "--float"], ["rewrite", "FILE", "--prove"],
               ["rewrite", "FILE", "--certify", "c.json", "-o", "o.pt2"],
               ["report", "FILE", "--no-run", "-o", "r.json"]]


def rows(path, e, n=160):
    """A chain of n ops, a third of which a rule removes, of rows that depend on the size of another input."""
    def put(program):
        values = program["graph_module"]["graph"]["tensor_values"]
        values["z"] = tensor("s0")
        program["graph_module"]["signature"]["input_specs"].append({"user_input": {"arg": growth.tensor("z")}})
        program["range_constraints"] = {"s0": {"min_val": 1, "max_val": 16}}
        values.update({name: tensor(e) for name in ["x"] + [f"r{i}" for i in range(n)]})
    ops = [{**growth.relu(i, f"r{i - 1}" if i else "x"),
            "target": f"torch.ops.aten.{'neg' if i % 3 else 'sin'}.default"} for i in range(n)]
    growth.archive(path, ops, outputs=[{"user_output": {"arg": growth.tensor(f"r{n - 1}")}}], extra=put)


def expanded(path, power, n=160):
    """A number expanded to s0**power rows within the graph, and as many ops."""
    sizes = growth.onnx_node("Shape", ["z"], ["p1"]) + b"".join(
        growth.onnx_node("Mul", [f"p{i}", "p1"], [f"p{i + 1}"]) for i in range(1, power))
    ops = b"".join(growth.onnx_node("Neg" if i % 3 else "Sin", [f"r{i}"], [f"r{i + 1}"]) for i in range(n))
    number = growth.field(5, b"\x08\x01\x10\x01" + growth.field(8, "c") + growth.field(9, b"\0\0\x80\x3f"))
    growth.onnx_model(path, sizes + growth.onnx_node("Mul", ["x", "c"], ["m"]) +
                      growth.onnx_node("ReduceSum", ["m"], ["s"], growth.field(
                          5, growth.field(1, "keepdims") + growth.field(3, 0) + growth.field(20, 2))) +
                      growth.onnx_node("Expand", ["s", f"p{power}"], ["r0"]) + ops +
                      growth.onnx_node("Identity", [f"r{n}"], ["y"]), growth.named_size("z", "s0"), number)


def onnx(path, _place, e):
    growth.onnx_model(path, growth.RELU, b"".join(growth.named_size(f"z{s}", s) for s in SIZES) +
                      growth.named_size("large", e))


PLACES = {"input": archive, "value": archive, "guard": archive, "range": archive, "ONNX": onnx}


def measure(command, folder):
    """Exit code, MiB and CPU seconds; -9 after 6 of them."""
    p = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         env=growth.environment(), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (6, 6)))
    late = threading.Timer(300, p.kill)
    late.start()
    _, status, used = os.wait4(p.pid, 0)
    late.cancel()
    p.returncode = os.waitstatus_to_exitcode(status)
    return p.returncode, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime


def held(qkv, commands, path, folder):
    """How commands take a file: the most MiB that are allowed, the most MiB and CPU seconds that were used, the exit
    code of the first, what is wrong."""
    most, worst, codes, wrong = 4 * os.path.getsize(path) / 2**20 + 200, [0, 0], [], []
    for command in commands:
        code, peak, cpu = measure([qkv, *command], folder)
        worst = [max(worst[0], peak), max(worst[1], cpu)]
        codes.append(code)
        if code not in range(6) or peak > most or cpu > 2:
            wrong.append(f"{command[0]}: exit {code}, {peak:.0f} MiB, {cpu:.1f} s")
    return most, worst, codes[0], wrong


def say(count, name, path, most, worst, wrong):
    print(f"{'not ok' if wrong else 'ok'} {count} - {name}: {os.path.getsize(path) / 1e6:.2f} MB, "
          f"at most {worst[0]:.0f} of {most:.0f} MiB and {worst[1]:.2f} of 2 s", *wrong, flush=True)


def main():
    qkv, words, count, failed = os.path.abspath(sys.argv[1]), sys.argv[2:], 0, 0
    in_turn = words == ["--in-turn"]
    with tempfile.TemporaryDirectory() as folder:
        for kind, make, e in [*((k, rows, e) for k, e in ROWS.items()), ("power", expanded, 8)]:
            name = f"{kind}, {make.__name__}"
            if not in_turn and words and not any(w in name for w in words):
                continue
            path = os.path.join(folder, "m.onnx" if make is expanded else "m.pt2")
            make(path, e)
            most, worst, _, wrong = held(qkv, [[path if w == "FILE" else w for w in c] for c in MAKES_SIZES], path,
                                         folder)
            count, failed = count + 1, failed + bool(wrong)
            say(count, name, path, most, worst, wrong)
        for i, (kind, e) in enumerate(EXPRESSIONS.items(), 1):
            for k, (place, make) in enumerate(PLACES.items()):
                name = f"{kind}, {place}"
                if k != i % len(PLACES) if in_turn else words and not any(w in name for w in words):
                    continue
                path = os.path.join(folder, "m.onnx" if place == "ONNX" else "m.pt2")
                make(path, place, e)
                most, worst, _, wrong = held(qkv, [[path if w == "FILE" else w for w in c] for c in COMMANDS], path,
                                             folder)
                count, failed = count + 1, failed + bool(wrong)
                say(count, name, path, most, worst, wrong)
    print(f"1..{count}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
