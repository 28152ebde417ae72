#!/usr/bin/env python3
"""Random functions of PyTorch (torch_programs.py), exported with sizes that vary, through everything that qkv does with
a model, beside eager at three sizes, of which one is odd and one has ones. TAP, one line for each way.

    run_torch.py                        a share of a few seconds, another one for each commit
    run_torch.py --seeds 1000:3000      these; each difference is printed as the shortest program that still has it
    run_torch.py --seeds 17 --print     the program of a seed
    run_torch.py --jobs 2 --whole       processes; programs as they are, not shortened
    run_torch.py --ways run,ort         some of the ways

Ways: run (as `qkv run` does), plain (without optimization), again (the rewritten .pt2 in qkv), written (that in
PyTorch), ort (ONNX in ONNX Runtime), back (that ONNX in qkv), bf16 (within what bfloat16 rounds), grad (the joint
model's gradients against autograd's), proof (every rewriting is proven). A program that torch.export refuses, or whose
export does not do what eager does, is counted and left. How results are compared: run_models.py; where that finds a
difference, eager runs again with every result rounded otherwise in its last bit, and a result that this moves as far is
not held.
"""
import argparse
import collections
import contextlib
import copy
import json
import os
import pathlib
import re
import selectors
import signal
import sys
import tempfile
import traceback
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests"), str(ROOT / "python")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("QKV_LIBRARY", str(ROOT / "build" / "libqkv.so"))
os.environ.setdefault("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "0")
WAYS = ["run", "plain", "again", "written", "ort", "back", "bf16", "grad", "proof"]
LATE = 120      # CPU seconds of a program
# what ONNX Runtime does not do; the last is a name of its own, which its optimizer takes away with the node
OWN = ["NOT_IMPLEMENTED", "Size of X.shape[axis:] must be at least 1", "_token_0' is not a graph input"]
OPEN = {}       # seed: why it is not right
POOL = 128      # seeds that are known to be right, of which each commit runs some
UNIT = {"float64": 2.0 ** -52, "float32": 2.0 ** -23, "float16": 2.0 ** -10, "bfloat16": 2.0 ** -7}


# ------------------------------------------------------------------ how far rounding goes
def rounding(least):
    """A mode in which each new floating result is moved by about a unit in its last place, or by `least`; `nan` says
    whether an attention had a NaN among its scores, of which nothing is promised (docs/PROOF.md)."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Rounding(TorchDispatchMode):
        nan = False

        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            if "softmax" in f._schema.name or "scaled_dot_product" in f._schema.name:
                dot = "scaled_dot_product" in f._schema.name    # an infinity times 0 is among its scores
                self.nan = self.nan or any((~x.isfinite() if dot else x.isnan()).any() for x in args[:2]
                                           if isinstance(x, torch.Tensor))
            out = f(*args, **(kwargs or {}))
            returned = f._schema.returns
            for k, x in enumerate(out if isinstance(out, (tuple, list)) and len(returned) > 1 else [out]):
                alias = returned[k].alias_info if k < len(returned) else None
                own = not alias or alias.is_write
                if own and isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel():
                    unit = max(UNIT[str(x.dtype).removeprefix("torch.")], least)
                    with torch.no_grad():
                        moved = x * (1 + unit * (torch.randint(0, 2, x.shape) * 2 - 1).to(x.dtype))
                        x.data.copy_(torch.where(x == x.round(), x, moved)) if min(x.stride(), default=1) else None
            return out
    return Rounding()


def distance(a, b):
    """Of two results: the largest difference; infinite where they differ in kind."""
    import torch
    if a.dtype != b.dtype or a.shape != b.shape:
        return float("inf")
    if not a.is_floating_point():
        return 0.0 if torch.equal(a, b) else float("inf")
    a, b = a.double(), b.double()
    if not torch.equal(a.isfinite(), b.isfinite()) or not torch.equal(a.isnan(), b.isnan()):
        return float("inf")
    fine = a.isfinite()
    if not torch.equal(a[~fine & ~a.isnan()], b[~fine & ~b.isnan()]):
        return float("inf")
    return (a[fine] - b[fine]).abs().max().item() if fine.any() else 0.0


# ------------------------------------------------------------------ one program
class Case:
    """A program with its export, and what eager makes of it. `left` says why there is nothing to compare."""

    def __init__(self, p, folder):
        import torch
        import torch_programs as programs
        self.p, self.path, self.left = p, os.path.join(folder, "p.pt2"), ""
        self.folder = folder
        self.eager = p.module(programs.EAGER)
        auto = torch.export.Dim.AUTO
        dims = {n: {k: auto for k, d in enumerate(spec[1]) if d in p.sizes[0]} for n, spec in p.inputs.items()}
        try:
            module = p.module(programs.of_export())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.ep = torch.export.export(module, (), p.tensors(0), dynamic_shapes=dims)
                torch.export.save(self.ep, self.path)
        except Exception as e:
            self.left = f"not exported: {type(e).__name__}: {str(e).strip()[:160]}"
            return
        self.inputs, self.want, self.ones = [], [], []
        ranges = {n.name: [self.range_of(d) for d in n.meta["val"].shape] for n in self.ep.graph.nodes
                  if n.op == "placeholder" and n.name in dims}
        for k in range(len(p.sizes)):
            given = p.tensors(k)
            if not all(a <= e <= b for n, s in ranges.items() for (a, b), e in zip(s, given[n].shape)):
                continue
            try:
                want = self.outputs(self.eager, given)
                got = self.outputs(self.ep.module(), given)
            except Exception:
                if k == 0:
                    self.left = "torch runs its export at no size"
                    return
                continue
            if any(self.differ({n: got[n]}, {n: want[n]}, None) for n in want) and not self.apart(given, got, want):
                if k == 0:
                    self.left = "torch's export differs from eager"
                    return
                continue
            self.inputs.append(given)
            self.want.append(want)
            self.ones.append(1 in p.sizes[k].values())

    def range_of(self, size):
        """The sizes of an axis that the export allows; its lower bound of 2 stands for any."""
        if str(size).isdigit():
            return int(size), int(size)
        r = self.ep.range_constraints.get(size.node.expr)
        return (0, float("inf")) if r is None or not r.upper.is_Integer else (int(r.lower), int(r.upper))

    def outputs(self, module, given):
        import generate
        import torch
        with torch.no_grad():
            return generate.tensors(copy.deepcopy(module)(**generate.copies(given)))

    def apart(self, given, got, want, least=0.0):
        """Does rounding alone take eager's results as far as got from want?"""
        import torch
        torch.manual_seed(0)
        far = {k: distance(got[k], want[k]) if k in got else 0.0 for k in want}
        rounds = []
        for _ in range(4):
            with rounding(least) as mode:
                rounds.append(self.outputs(self.eager, given))
            if mode.nan:
                return True
        for k, d in far.items():
            moved = max(distance(x[k], want[k]) for x in rounds)
            if d > 0 and moved < d / (30 if least < 1e-3 else 10) and self.differ({k: got[k]}, {k: want[k]}, None):
                return False
        return True

    def differ(self, got, want, tol):
        import run_models
        import save_models
        with contextlib.suppress(KeyError):
            return run_models.differ(save_models.arrays(got), save_models.arrays(want), tol)[0]
        return "another dtype: " + ", ".join(str(x.dtype) for x in got.values())

    def judged(self, run, tol=None, least=0.0):
        """'' or what differs first, of run(inputs) -> tensors by name, at every size."""
        for k, (given, want) in enumerate(zip(self.inputs, self.want)):
            got = run(given)
            if list(got) != list(want):
                return f"size {k}: outputs {list(got)} instead of {list(want)}"
            for name in want:
                if got[name].dim() != want[name].dim() and self.ones[k]:
                    continue  # what squeeze does to a size that the export takes to be more than 1
                said = self.differ({name: got[name]}, {name: want[name]}, tol)
                if said and not self.apart(given, {name: got[name]}, {name: want[name]}, least):
                    return f"size {k}: {said}"
        return ""


def taken(outputs):
    """Of a model's results: tensors of torch, of their own. Buffers that a run writes are outputs of an ONNX model."""
    import torch
    own = [x for n, x in outputs.items() if re.fullmatch(r"output_\d+", n)]
    return {f"output_{i}": torch.from_dlpack(x).clone() for i, x in enumerate(own or outputs.values())}


def in_qkv(model):
    import generate

    def run(given):
        model.reset()
        return taken(model.run_dlpack({n: x for n, x in generate.copies(given).items() if n in model.inputs}))
    return run


def way_run(case):
    import qkv
    return case.judged(in_qkv(qkv.Model(case.path, threads=1)))


def way_plain(case):
    import qkv
    return case.judged(in_qkv(qkv.Model(case.path, threads=1, optimize=False, fuse=False)))


def rewritten(case):
    import qkv
    path = os.path.join(case.folder, "rewritten.pt2")
    if not os.path.exists(path):
        model = qkv.Model(case.path, threads=1)
        model.rewrite()
        model.save(path)
    return path


def way_again(case):
    import qkv
    return case.judged(in_qkv(qkv.Model(rewritten(case), threads=1)))


def way_written(case):
    import save_models
    import torch
    ep = torch.export.load(rewritten(case))
    module = ep.module()

    def run(given):
        args, kwargs = save_models.arguments(ep, given)
        import generate
        with torch.no_grad():
            return generate.tensors(copy.deepcopy(module)(*generate.copies(args), **generate.copies(kwargs)))
    return case.judged(run)


def onnx_of(case):
    import qkv
    path = os.path.join(case.folder, "p.onnx")
    if not os.path.exists(path):
        qkv.Model(case.path, threads=1).save_onnx(path)
    return path


def way_ort(case):
    import convert_models
    import numpy as np
    import save_models
    import torch
    runtime = convert_models.OnnxRuntime(onnx_of(case))

    def run(given):
        named = {i.name for i in runtime.session.get_inputs()}
        got = runtime.run(save_models.arrays({n: x for n, x in given.items() if n in named}))
        order = [n for n in got if re.fullmatch(r"output_\d+", n)]
        wide = lambda d, x: torch.from_numpy(np.array(x)).bfloat16() if d == "BF16" else torch.from_numpy(np.array(x))
        return {n: wide(*got[n]) for n in order}
    return case.judged(run)


def way_back(case):
    import qkv
    return case.judged(in_qkv(qkv.Model(onnx_of(case), threads=1)))


def way_bf16(case):
    import qkv
    from tolerance import tolerance
    return case.judged(in_qkv(qkv.Model(case.path, threads=1, compute="bf16")), tolerance("TORCH")["bf16"], 2.0 ** -7)


def way_proof(case):
    import qkv
    report = qkv.Model(case.path, threads=1).rewrite(prove=True)
    return "; ".join(f"{f['rule']}: {f['not_proven']}" for f in report["firings"] if f.get("not_proven"))


def way_grad(case):
    import generate
    import qkv
    import torch
    kinds = {s.kind.name for s in case.ep.graph_signature.output_specs}
    if not case.p.loss or "USER_INPUT_MUTATION" in kinds:
        return None
    if any(x.is_floating_point() and not x.isfinite().all() for x in case.want[0].values()):
        return None
    given = case.inputs[0]
    loss = f"output_{len(case.want[0]) - 1}"

    def autograd():
        module = copy.deepcopy(case.eager)
        leaves = {n: x.clone().requires_grad_() for n, x in given.items() if x.is_floating_point()}
        with torch.enable_grad():
            value = module(**{**generate.copies(given), **leaves})[-1]
            if not value.requires_grad:
                return None
            every = {**leaves, **dict(module.named_parameters())}
            found = torch.autograd.grad(value, list(every.values()), allow_unused=True)
        return {f"grad.{n}": torch.zeros_like(every[n]) if g is None else g for n, g in zip(every, found)}
    try:
        want = autograd()
    except (RuntimeError, IndexError):
        return None
    if not want:
        return None
    try:
        found = qkv.Model(case.path, threads=1).joint(loss=loss, inputs="*").run_dlpack(generate.copies(given))
    except qkv.Error as e:
        if "does not depend on any" in str(e):
            found = {}
        else:
            raise
    got = {n: torch.from_dlpack(found[n]).clone() if n in found else torch.zeros_like(g) for n, g in want.items()}
    peak = max((float(g.nan_to_num(0, 0, 0).abs().max()) for g in want.values() if g.numel()), default=0.0)
    floor = torch.tensor([peak * 1e-3])
    flat = lambda g: torch.cat([g.flatten().to(torch.promote_types(g.dtype, torch.float32)).float(), floor])
    for n in want:
        if not want[n].isfinite().all():  # where a derivative is not defined, formulas differ
            continue
        if got[n].dtype != want[n].dtype or got[n].shape != want[n].shape:
            return f"{n}: {got[n].dtype}{list(got[n].shape)} instead of {want[n].dtype}{list(want[n].shape)}"
        half = want[n].dtype in (torch.float16, torch.bfloat16)
        said = case.differ({n: flat(got[n])}, {n: flat(want[n])}, 3e-2 if half else 1e-4)
        if said:
            torch.manual_seed(0)
            d = distance(flat(got[n]), flat(want[n]))
            for _ in range(4):
                with rounding(0.0):
                    moved = distance(flat(autograd()[n]), flat(want[n]))
                if moved > d / 30:
                    said = ""
                    break
        if said:
            return said
    return ""


REFUSALS = {4: "refused", 5: "limit"}


def judge(p, ways):
    """{way: (state, what is said)}: equal, refused, wrong, failed; {"left": why} where nothing is compared."""
    import qkv
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        case = Case(p, folder)
        if case.left:
            return {"left": ("left", case.left)}
        found = {}
        for way in ways:
            try:
                said = globals()[f"way_{way}"](case)
                found[way] = ("none", "") if said is None else ("wrong", said) if said else ("equal", "")
            except qkv.Error as e:
                found[way] = REFUSALS.get(e.code, "failed"), str(e)
            except Exception as e:
                kind = "refused" if any(word in str(e) for word in OWN) else "failed"
                found[way] = kind, f"{type(e).__name__}: {str(e).strip()[:600]}"
        return found


# ------------------------------------------------------------------ processes
def started(seeds, a):
    """A process that judges programs and writes a line of JSON for each: (its id, where to read)."""
    r, w = os.pipe()
    pid = os.fork()
    if pid:
        os.close(w)
        return pid, os.fdopen(r)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # torch.export prints what it refuses
    os.dup2(nowhere, 2)
    with os.fdopen(w, "w") as out:
        lane(seeds, a, out)
    os._exit(0)


def lane(seeds, a, out):
    import torch_programs as programs
    known = collections.Counter()
    for seed in seeds:
        signal.setitimer(signal.ITIMER_PROF, LATE)
        text, reasons = [], set()
        try:
            p = programs.make(seed)
            found = judge(p, a.ways) if p else {"left": ("left", "no program")}
            for way in a.ways:
                reason = cause(found, way)
                if not reason or reason in reasons or reason.startswith(("refused", "limit")) and not a.refused:
                    continue
                reasons.add(reason)
                signal.setitimer(signal.ITIMER_PROF, LATE)
                q = shortened(p, way, reason) if not a.whole and (reason == "wrong" or known[reason] < 2) else p
                known[reason] += 1
                text.append(report(q, seed, way, judge(q, [way])))
        except Exception:
            found = {"left": ("broken", traceback.format_exc()[-900:])}
        print(json.dumps([seed, found, text]), file=out, flush=True)


def results(seeds, a):
    """(seed, {way: (state, what is said)}, reports), as they come; a process that ends is started again after the
    program that ended it."""
    waiting = selectors.DefaultSelector()

    def begin(left):
        if left:
            pid, f = started(left, a)
            waiting.register(f, selectors.EVENT_READ, (pid, left))
    for k in range(a.jobs):
        begin(list(seeds)[k::a.jobs])
    while waiting.get_map():
        for key, _ in waiting.select():
            (pid, left), line = key.data, key.fileobj.readline()
            if line:
                yield json.loads(line)
                del left[0]
                continue
            waiting.unregister(key.fileobj)
            _, status = os.waitpid(pid, 0)
            if left:
                yield left[0], {"left": ("broken", f"the process ended with {os.waitstatus_to_exitcode(status)}")}, []
                begin(left[1:])


def cause(found, way):
    """What two failures of a way have in common: without names and numbers."""
    state, said = found.get(way, ("equal", ""))
    if state in ("equal", "none", "left"):
        return None
    if state == "wrong":
        return "wrong"
    said = said.rsplit("/", 1)[-1]
    return state + " " + re.sub(r"'[^']*'|\d+|v\d+|[\w.]+_\d+", "#", said)


def shortened(p, way, reason):
    """The shortest program found that ends in the same way."""
    def still(q):
        return q.outputs and cause(judge(q, [way]), way) == reason

    def without(q, lines, outputs):
        q = copy.copy(q)
        made = {n for n, _, _ in lines if n} | set(q.inputs)
        kept, known = [], set(q.inputs)
        for line in lines:
            if set(re.findall(r"\bv\d+\b", line[1])) <= known:
                kept.append(line)
                known |= {line[0]} if line[0] else set()
        text = " ".join(line[1] for line in kept)
        q.lines, q.outputs = kept, [o for o in outputs if o in known]
        q.inputs = {n: s for n, s in q.inputs.items() if re.search(rf"\b{n}\b", text) or n in q.outputs}
        return q
    if p.loss and way != "grad":
        q = copy.copy(p)
        q.loss = False
        p = q if still(q) else p
    for o in p.outputs:
        q = without(p, p.lines, [o])
        if still(q):
            p = q
            break
    again = True
    while again:
        again = False
        for k in reversed(range(len(p.lines))):
            q = without(p, p.lines[:k] + p.lines[k + 1:], p.outputs)
            if not q.outputs and k:     # the one before it may differ as well
                earlier = [n for n, _, _ in p.lines[:k] if n]
                q = without(p, p.lines[:k], earlier[-1:])
            if len(q.lines) < len(p.lines) and still(q):
                p, again = q, True
                break
    for k in range(len(p.sizes) - 1, 0, -1):
        q = copy.copy(p)
        q.sizes = p.sizes[:k] + p.sizes[k + 1:]
        p = q if still(q) else p
    return p


def report(p, seed, way, found):
    shapes = ", ".join(f"{n} {s[0]}{list(s[1])}{' odd' if s[2] == 'odd' else ''}" for n, s in p.inputs.items())
    state, said = found.get(way, ("gone", ""))
    weights = {n: list(w.shape) for n, w in {**p.weights, **p.buffers}.items() if f"self.{n}" in p.source()}
    text = [f"seed {seed}, {way}, {state}: {said}", f"  {shapes} at {p.sizes} {weights or ''}", *p.source().split("\n")]
    return "\n".join("# " + t for t in text)


def seeds_of(text):
    first, _, last = text.partition(":")
    return range(int(first), int(last) if last else int(first) + 1)


def chosen():
    """The seeds of a commit, of those that are known to be right."""
    from share import share
    return [int(s) for s in share([str(s) for s in range(POOL) if s not in OPEN], {}, 8)]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seeds", type=seeds_of)
    ap.add_argument("--jobs", type=int, default=1)
    ap.add_argument("--ways", type=lambda s: s.split(","), default=WAYS)
    ap.add_argument("--whole", action="store_true")
    ap.add_argument("--refused", action="store_true", help="what is refused is reported as well")
    ap.add_argument("--print", action="store_true")
    a = ap.parse_args()
    import torch
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    import generate  # noqa: F401
    import save_models  # noqa: F401
    import convert_models  # noqa: F401
    import logging
    logging.disable(logging.WARNING)
    torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    seeds = a.seeds or chosen()
    if a.print:
        import torch_programs as programs
        for s in seeds:
            p = programs.make(s)
            print(p.sizes, p.inputs, p.source(), sep="\n")
        return 0
    counts = collections.Counter()
    print(f"1..{len(a.ways) + 1}")
    for seed, found, text in results(seeds, a):
        for way, (state, said) in found.items():
            counts[way, state] += 1
            if state in ("refused", "limit", "left", "broken"):
                print(f"# - seed {seed} {way} {state}: {said[:300]!r}")
        for t in text:
            print(t)
        sys.stdout.flush()
    for way in [*a.ways, "left"]:
        states = {s: n for (w, s), n in counts.items() if w == way}
        bad = states.get("wrong", 0) + states.get("failed", 0) + states.get("broken", 0)
        said = ", ".join(f"{n} {s}" for s, n in sorted(states.items()))
        print(f"{'not ok' if bad else 'ok'} - torch: {way}: {said or 0}")
    return int(any(s in ("wrong", "failed", "broken") for _, s in counts))


if __name__ == "__main__":
    sys.exit(main())
