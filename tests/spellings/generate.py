#!/usr/bin/env python3
"""Exports the attention spellings: NAME.pt2, NAME.vK.in.safetensors, NAME.vK.out.safetensors (eager outputs), for
entries that may mask whole rows NAME.vK.dead.safetensors (the rows of output_0 that are), and index.json, one object
per spelling.

    generate.py --out DIR [--only PATTERN ...] [--jobs 2]
    generate.py --list

PATTERN is a name with * and ?. Every file is deterministic. Without --only, QKV_SHARE chooses a part (tests/share.py).
"""
import argparse
import copy
import fnmatch
import json
import logging
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from share import exported, share  # noqa: E402

FILES = ["scores", "masks", "softmaxes", "layouts", "einsums", "grouped", "positions", "inductor", "decomposed",
         "projections", "modules", "families", "traps", "found", "mixtures", "published", "repositories", "collected",
         "further", "wild"]


def load():
    import importlib
    import spell
    import torch
    torch.set_num_threads(1)
    # eager's fast path zeroes padded rows; an exported graph never takes it
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.WARNING)
    for f in FILES:
        if (HERE / f"{f}.py").exists():
            spell.group(f)
            importlib.import_module(f)
    return spell


def tensors(out):
    import torch
    return {f"output_{i}": x.detach().contiguous().clone()
            for i, x in enumerate(y for y in torch.utils._pytree.tree_leaves(out) if isinstance(y, torch.Tensor))}


def copies(inputs):
    return {k: v.clone() for k, v in inputs.items()}


def close(a, b):
    """Loosely: is the exported program the eager one at all?"""
    import torch
    return len(a) == len(b) and all(x.shape == y.shape and torch.allclose(x.double(), y.double(), 2e-2, 2e-2,
                                                                          equal_nan=True)
                                    for x, y in zip(a.values(), b.values()))


def make(spell, e, out):
    """One spelling; returns its index entry."""
    import torch
    from safetensors.torch import save_file
    module = e.module()
    sizes = e.sizes or spell.SIZES
    variants = [e.make(s, i) for i, s in enumerate(sizes)]
    if not e.sizes and e.dynamic:
        variants.append(e.make(spell.ONES, len(sizes)))
    with torch.set_grad_enabled(e.grad):
        ep = torch.export.export(module, (), copies(variants[0]), dynamic_shapes=e.dims(), strict=e.strict)
    if e.decompose:
        ep = ep.run_decompositions()
    for gm in ep.graph_module.modules():
        if isinstance(gm, torch.fx.GraphModule):
            for n in gm.graph.nodes:
                for key in ("stack_trace", "nn_module_stack", "torch_fn", "from_node"):
                    n.meta.pop(key, None)
    base = os.path.join(out, e.name)
    torch.export.save(ep, base + ".pt2")
    runnable, kept = ep.module(), []
    for v in variants:
        with torch.no_grad():
            want = tensors(copy.deepcopy(module)(**copies(v)))
            try:
                got = tensors(runnable(**copies(v)))
            except (AssertionError, RuntimeError, ValueError):
                if v is variants[0]:
                    raise
                continue    # a guard of the export refuses this size; not the rewriter's business
        if not close(got, want):
            raise AssertionError("torch's own exported program differs from eager")
        i = len(kept)
        kept.append(v)
        save_file({k: x.contiguous().clone() for k, x in v.items()}, f"{base}.v{i}.in.safetensors")
        save_file(want, f"{base}.v{i}.out.safetensors")
        if e.dead:
            d = e.dead(**v)
            save_file(dict(output_0=d.expand(torch.broadcast_shapes(d.shape, want["output_0"].shape)).contiguous()),
                      f"{base}.v{i}.dead.safetensors")
    return dict(name=e.name, group=e.group, kind=e.kind, attentions=e.count, dead_rows=bool(e.dead),
                variants=len(kept), tol=e.tol, note=e.note)


def run(names, out):
    spell = load()
    index, bad = {}, 0
    for name in names:
        try:
            index[name] = exported("spellings", name, out, lambda folder: make(spell, spell.ENTRIES[name], folder))
        except Exception as x:  # one spelling that torch refuses must not hide the others
            bad += 1
            print(f"cannot make {name}: {type(x).__name__}: {str(x)[:300]}", flush=True)
    return index, bad


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default="build/spellings")
    ap.add_argument("--only", action="append")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--jobs", type=int, default=1)
    ap.add_argument("--part", help=argparse.SUPPRESS)
    a = ap.parse_args()
    entries = load().ENTRIES
    groups = {n: {e.written[0]: {e.written[1]}} for n, e in entries.items()}
    names = [n for n in entries if any(fnmatch.fnmatchcase(n, p) for p in a.only)] if a.only else share(entries, groups)
    if a.list:
        for n in names:
            print(f"{n:44s} {entries[n].kind:6s} {entries[n].count} {entries[n].group}")
        return
    os.makedirs(a.out, exist_ok=True)
    if a.jobs > 1:
        parts = [os.path.join(a.out, f"index.part{k}") for k in range(a.jobs)]
        more = [x for p in a.only or [] for x in ("--only", p)]
        started = [subprocess.Popen([sys.executable, __file__, "--out", a.out, "--part", f"{k}/{a.jobs}", *more])
                   for k in range(a.jobs)]
        bad = sum(p.wait() for p in started)
        index = {}
        for p in parts:
            index.update(json.load(open(p)))
            os.unlink(p)
    else:
        if a.part:
            k, n = map(int, a.part.split("/"))
            names = names[k::n]
        index, bad = run(names, a.out)
        if a.part:
            json.dump(index, open(os.path.join(a.out, f"index.part{k}"), "w"))
            sys.exit(bad > 0)
    path = os.path.join(a.out, "index.json")
    old = {e["name"]: e for e in json.load(open(path))} if a.only and os.path.exists(path) else {}
    old.update(index)
    json.dump([old[n] for n in entries if n in old], open(path, "w"), indent=1)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
