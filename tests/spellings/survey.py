#!/usr/bin/env python3
"""Rewrites the attention models of transformers and torch.nn, and counts:
how many attentions each holds, how many became sdpa, how many are left.

    survey.py                      exports the models in a temporary folder first (needs .venv with torch and
                                   transformers)
    survey.py --out DIR            exports them and stops
    survey.py --dir DIR [PATTERN]  models exported before
    survey.py --report FILE        what happened to each, as JSON

The number of attentions is counted by watching eager run: every softmax whose scores come out of a product of two
activations and whose weights go into another one that sums over the same axis, and every fused attention kernel, as
far as the outputs depend on it. TAP, one line a model: ok when at least as many are fused, none is left, and the
numbers are eager's at every size.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "models")]
import run as spellings  # noqa: E402
from run_models import read  # noqa: E402

SKIP = ("hand_", "sdpa_", "mha_")    # of zoo_nn: the spellings cover them
ABSENT = "does not support an attention implementation through"


def counter():
    """A dispatch mode that follows products and softmaxes through what only rearranges or changes them element
    by element."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    leaf = torch.utils._pytree.tree_leaves
    PRODUCTS = {"bmm", "mm", "addmm", "baddbmm", "matmul", "addbmm", "mv", "dot"}
    ENDS = {"convolution", "native_layer_norm", "embedding", "native_group_norm", "native_batch_norm",
            "_native_batch_norm_legit_no_training", "grid_sampler_2d", "topk", "sort", "argmax",
            "max_pool2d_with_indices"}

    class Count(TorchDispatchMode):
        def __init__(self, module):
            super().__init__()
            self.weights = {t.untyped_storage().data_ptr() for t in list(module.parameters()) + list(module.buffers())}
            # every tensor, or an id would be used again; of each result, what it was made of
            self.alive, self.parents = [], {}
            # ids of tensors: scores (maybe), weights (by which softmax, over how many)
            self.product, self.softmax = set(), {}
            # fused attentions; products that weights go into, with their softmaxes
            self.kernels, self.ends = [], []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            tensors = [t for t in leaf((args, kwargs)) if isinstance(t, torch.Tensor)]
            results = [t for t in leaf(out) if isinstance(t, torch.Tensor)]
            self.alive += tensors + results
            # what is written through a view shows in everything of that memory
            for t in results:
                self.parents.setdefault(id(t), [-t.untyped_storage().data_ptr()]).extend(id(x) for x in tensors
                    if x is not t)
            if name.endswith("_") and tensors:
                results = results + tensors[:1]
                self.parents.setdefault(-tensors[0].untyped_storage().data_ptr(), []).extend(id(x) for x in tensors)
            sources = {s for t in tensors for s in self.softmax.get(id(t), ())}
            if name.startswith("_scaled_dot_product"):
                self.kernels.append(id(results[0]))
            elif name in PRODUCTS:
                # what the product sums over must be what the softmax went over; a sink column is one more
                keys = tensors[-2].shape[-1]
                sources = {s for s in sources if s[1] - keys in (0, 1)}
                if sources:
                    self.ends.append((id(results[0]), sources))
                if not any(t.untyped_storage().data_ptr() in self.weights for t in tensors[-2:]):
                    self.product |= {id(t) for t in results}
            elif name in ("_softmax", "_safe_softmax"):
                if id(tensors[0]) in self.product:
                    self.softmax.update({id(t): {(len(self.alive), t.shape[args[1]])} for t in results})
            elif name not in ENDS:
                if any(id(t) in self.product for t in tensors):
                    self.product |= {id(t) for t in results}
                if sources:
                    for t in results:
                        self.softmax[id(t)] = self.softmax.get(id(t), set()) | sources
            return out

        def result(self, out):
            """(attentions, fused ones among them) that the output depends on."""
            todo, live = [id(t) for t in leaf(out) if isinstance(t, torch.Tensor)], set()
            while todo:
                i = todo.pop()
                if i not in live:
                    live.add(i)
                    todo += self.parents.get(i, ())
            fused = sum(k in live for k in self.kernels)
            return fused + len({s for end, sources in self.ends if end in live for s in sources}), fused

    return Count


def load():
    """tests/models' zoo and its generate.py (by path: this folder has a generate.py of its own)."""
    import importlib.util
    spec = importlib.util.spec_from_file_location("model_generate", HERE.parent / "models" / "generate.py")
    g = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(g)
    import torch
    torch.backends.mha.set_fastpath_enabled(False)
    import zoo
    import zoo_nn  # noqa: F401
    import zoo_hf  # noqa: F401
    import survey_zoo  # noqa: F401
    torch.set_num_threads(1)
    import logging
    logging.disable(logging.WARNING)
    return zoo, g


def count(maker, g):
    import torch
    module, variants, _ = maker.build()
    Count = counter()
    with torch.no_grad():
        c = Count(module)
        with c:
            out = module(**g.copies(variants[0]))
    return c.result(out)


def fixed(maker):
    """The same model with all sizes constant."""
    import copy
    m = copy.copy(maker)
    m.build = lambda: (lambda module, variants, _: (module, variants[:1], None))(*maker.build())
    return m


def noise(maker, g):
    """How far eager's float32 outputs move, relative to the largest value, when weights move by a rounding (three
    times) and when all is float64: what no rewriting can be held to."""
    import torch
    wide = lambda t: t.double() if isinstance(t, torch.Tensor) and t.dtype == torch.float32 else t
    module, variants, _ = maker.build()
    others = []
    for seed in range(3):
        m, draw = maker.build()[0], torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in m.parameters():
                p.mul_(1 + 2.0 ** -24 * torch.randn(p.shape, generator=draw))
        others.append((m, lambda t: t))
    others.append((maker.build()[0].double(), wide))
    worst = 0.0
    for v in variants:
        with torch.no_grad():
            a = g.tensors(module(**g.copies(v)))
            for m, cast in others:
                try:
                    b = g.tensors(m(**torch.utils._pytree.tree_map(cast, g.copies(v))))
                except (RuntimeError, TypeError):
                    continue    # a model that cannot be widened
                worst = max([worst] + [((x.double() - b[k].double()).abs().max()
                                        / b[k].double().abs().max().clamp(min=1e-30)).item()
                                       for k, x in a.items() if x.dtype == torch.float32 and x.numel()
                                       and b[k].isfinite().all()])
    return worst


def same_as_eager(out, name, count):
    """The sizes at which PyTorch's own exported program gives eager's values (transformers may branch on a mask's
    values): keeps those, returns how many."""
    import torch
    module, kept = torch.export.load(os.path.join(out, name + ".pt2")).module(), 0
    for v in range(count):
        base = os.path.join(out, f"{name}.v{v}")
        with torch.no_grad():
            got = module(**spellings.inputs(os.path.join(out, name), v))
        want = read(base + ".out.safetensors")
        leaves = [x for x in torch.utils._pytree.tree_leaves(got) if isinstance(x, torch.Tensor)]
        if all(torch.allclose(x.double(), torch.from_numpy(want[f"output_{i}"][1].copy()).double(), 1e-2, 1e-2,
                              equal_nan=True) for i, x in enumerate(leaves)):
            for end in (".in.safetensors", ".out.safetensors"):
                os.replace(base + end, os.path.join(out, f"{name}.v{kept}{end}"))
            kept += 1
    return kept


def export(names, out, counts_only=False):
    zoo, g = load()
    bad = 0
    for name in names:
        try:
            attentions, fused = count(zoo.MODELS[name], g)
            if counts_only:
                if out and os.path.exists(path := os.path.join(out, name + ".json")):
                    json.dump(dict(json.load(open(path)), attentions=attentions, sdpa=fused), open(path, "w"))
                print(f"{name:40s} {attentions} ({fused} sdpa)", flush=True)
                continue
            try:
                g.make(zoo, zoo.MODELS[name], out, False)
            except Exception:   # torch refuses these sizes as symbols: at the first size, then
                g.make(zoo, fixed(zoo.MODELS[name]), out, False)
            path = os.path.join(out, name + ".json")
            e = json.load(open(path))
            error = noise(zoo.MODELS[name], g)
            # four such differences, where that is more than the usual
            tol = e["tol"] or (4 * error if 4 * error > 2e-5 else None)
            json.dump(dict(e, attentions=attentions, sdpa=fused, variants=same_as_eager(out, name, e["variants"]),
                           tol=tol), open(path, "w"))
        except Exception as e:  # one model that torch or transformers refuses must not hide the others
            if ABSENT not in str(e):    # a model without that spelling is none to survey
                bad += 1
                print(f"cannot make {name}: {type(e).__name__}: {' '.join(str(e)[:300].split())}", flush=True)
    return bad


def models():
    zoo, _ = load()
    return [n for n in zoo.MODELS if not n.startswith(SKIP)]


def check(e, folder, tmp, original):
    """One model, as run.check() does a spelling."""
    source, target = folder / (e["name"] + ".pt2"), pathlib.Path(tmp) / (e["name"] + ".pt2")
    r = dict(name=e["name"], attentions=e["attentions"], sdpa=e["sdpa"], ok=False, right=False, why="", fused=0,
             left=0, error=0.0, ms=0.0, nodes_before=0, nodes_after=0, reasons=[])
    if original:
        r["why"], r["error"], _ = spellings.numbers(source, e, folder, False)
        r["ok"] = r["right"] = not r["why"]
        return r
    code, said, stderr, wall = spellings.rewrite(source, target)
    if code or said is None:
        r["why"] = f"exit {code}: {stderr[-400:]}"
        return r
    r.update(fused=said["attentions_fused"], left=said["attentions_left"], ms=said.get("ms", wall),
             nodes_before=said["nodes_before"], nodes_after=said["nodes_after"])
    r["reasons"] = [{k: str(x.get(k) or "") for k in ("node", "rule", "matched", "reason", "advice")}
                    for x in said["left"]]
    what, r["error"], _ = spellings.numbers(target, e, folder, False)
    r["right"], r["wide"] = not what, e["tol"] is None and spellings.wide(e, folder)
    if what:
        r["why"] = what
    elif r["fused"] < e["attentions"] or r["left"]:
        r["why"] = f"fused {r['fused']} of {e['attentions']}, left {r['left']}"
    r["ok"] = not r["why"]
    target.unlink(missing_ok=True)
    return r


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--dir", type=pathlib.Path)
    ap.add_argument("--out")
    ap.add_argument("--counts", action="store_true",
                    help="only count the attentions; exports nothing, but corrects the counts of --dir")
    ap.add_argument("--original", action="store_true")
    ap.add_argument("--report")
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--part", help=argparse.SUPPRESS)
    ap.add_argument("patterns", nargs="*")
    a = ap.parse_args()
    chosen = lambda names: [n for n in names if not a.patterns or any(fnmatch.fnmatchcase(n, p) for p in a.patterns)]
    if a.counts:
        sys.exit(export(chosen(models()), a.dir, True) > 0)
    if a.part:
        k, n = map(int, a.part.split("/"))
        sys.exit(export(chosen(models())[k::n], a.out) > 0)
    with tempfile.TemporaryDirectory() as tmp:
        folder, unmade = a.dir, []
        if not folder:
            folder = pathlib.Path(a.out or os.path.join(tmp, "models"))
            folder.mkdir(parents=True, exist_ok=True)
            started = [subprocess.Popen([sys.executable, __file__, "--out", str(folder), "--part", f"{k}/{a.jobs}",
                                         *a.patterns], stdout=subprocess.PIPE, text=True) for k in range(a.jobs)]
            unmade = [line for p in started for line in p.communicate()[0].splitlines()]
            if a.out:
                print(*unmade, sep="\n")
                sys.exit(bool(unmade))
        import torch
        torch.set_num_threads(1)
        entries = [json.loads(f.read_text()) for f in sorted(folder.glob("*.json"))]
        entries = [e for e in entries if e["name"] in chosen([e["name"]])]
        results = []
        spellings.warm()
        print(f"1..{len(entries) + len(unmade)}", flush=True)

        def done(e, r):
            results.append(r)
            told = f"{r['fused']} of {e['attentions']}, {r['error']:.1e}, {r['nodes_before']} to {r['nodes_after']} nodes, {r['ms']:.0f} ms" if r["ok"] else r["why"].replace("\n", " ")
            print(f"{'' if r['ok'] else 'not '}ok {len(results)} - model: {e['name']} {told}", flush=True)

        spellings.run(entries, folder, tmp, a.original, a.jobs, done, check)
        for i, line in enumerate(unmade):
            print(f"not ok {len(results) + i + 1} - model: {line}")
        print(f"# models with every attention found {sum(r['ok'] for r in results)}/{len(results)}, attentions "
              f"{sum(min(r['fused'], r['attentions']) for r in results)}/{sum(r['attentions'] for r in results)}")
        if a.report:
            json.dump(results, open(a.report, "w"), indent=1)
        sys.exit(any(not r["ok"] for r in results) or bool(unmade))


if __name__ == "__main__":
    main()
