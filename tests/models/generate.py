#!/usr/bin/env python3
"""Makes the test models with torch: NAME.pt2, NAME.vK.in.safetensors,
NAME.vK.out.safetensors (eager outputs) and NAME.json.

    generate.py --out DIR [--only NAME ...] [--jobs 2]      all models of zoo_*.py
    generate.py --list
    generate.py --small     the committed few of tests/models/small
    generate.py --version   those of tests/models/versions, as the torch that is installed exports them

Every file is deterministic. Without --only, QKV_SHARE chooses a part (tests/share.py).
Stack traces are left out of the archives (most of their bytes, and they hold paths of this machine).
"""
import argparse
import json
import logging
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from share import exported, share  # noqa: E402
from tolerance import tolerance  # noqa: E402

SMALL = ["mha_self", "mha_cross_padding", "sdpa_gqa", "sdpa_dead_rows_core", "hand_rope", "encoder_prenorm_gelu",
         "storage_zoo", "autocast_region_bf16", "no_grad_region", "write_select_copy_add", "write_index_put",
         "kv_cache_slice", "unbacked_item", "unbacked_nonzero", "derived_14", "derived_from_one", "size_arithmetic",
         "outputs_nested", "inputs_of_every_kind", "tower_bf16", "resnet_small", "pyramid_small", "norms_small",
         "mask_lies_otherwise", "control_nested", "scan_rnn", "forward_derivatives"]

OF_VERSION = ["sdpa_gqa", "while_counter"]
OF_OLDEST = ["lstm_gru"]  # up to 2.12 its states are declared with an axis too many
OF_NEWEST = ["ops_of_2_15"]


def load(hf=True):
    import torch
    import zoo
    import zoo_control  # noqa: F401
    import zoo_misc     # noqa: F401  registers its models
    import zoo_nn       # noqa: F401
    import zoo_wide     # noqa: F401
    if hf:
        import zoo_hf   # noqa: F401
    torch.set_num_threads(1)
    # eager's fast path zeroes padded rows; an exported graph never takes it
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.WARNING)
    return zoo


def leaves(tree, prefix=""):
    """Tensor inputs by the names that torch.export gives their placeholders."""
    import torch
    out = {}
    for k, v in (tree.items() if isinstance(tree, dict) else enumerate(tree)):
        name = f"{prefix}_{k}" if prefix else str(k)
        if isinstance(v, torch.Tensor):
            out[name] = v
        elif isinstance(v, (dict, list, tuple)):
            out.update(leaves(v, name))
    return out


def tensors(out):
    """Tensors, and numbers as tensors of rank 0."""
    import torch
    found = [y for y in torch.utils._pytree.tree_leaves(out) if isinstance(y, (torch.Tensor, bool, int, float))]
    return {f"output_{i}": torch.as_tensor(x, dtype=torch.float64 if isinstance(x, float) else None)
            .detach().contiguous().clone() for i, x in enumerate(found)}


def copies(tree):
    """Inputs of their own for every run: a model may write them."""
    import torch
    return torch.utils._pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, tree)


def strip(ep, keys):
    import torch
    for gm in ep.graph_module.modules():
        if isinstance(gm, torch.fx.GraphModule):
            for n in gm.graph.nodes:
                for k in keys:
                    n.meta.pop(k, None)


def wide_throughout():
    """A context where a float32 that a module itself asks for, as T5's layer norm does, is float64."""
    import torch

    class Wide(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            asked = lambda x: torch.float64 if x is torch.float32 else x
            if func is torch.Tensor.float:
                func = torch.Tensor.double
            return func(*map(asked, args), **{k: asked(v) for k, v in (kwargs or {}).items()})

    return Wide()


def distance(module, variants, expected):
    """How far eager in float32 is from eager in float64, as a share of the peak: its own results are uncertain by that
    much. 0 where something else differs (other dtypes, random numbers, an arg-max)."""
    import copy
    import torch
    wide = lambda x: x.double() if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x
    try:
        module, worst = copy.deepcopy(module).double(), 0.0
        for v, e in zip(variants, expected):
            with torch.no_grad(), wide_throughout():
                exact = tensors(module(**torch.utils._pytree.tree_map(wide, copies(v))))
            for k, x in e.items():
                if x.dtype == torch.float32 and x.numel() and x.isfinite().all():
                    peak = float(x.abs().max()) or 1
                    worst = max(worst, float((exact[k] - x.double()).abs().max()) / peak)
    except Exception:  # a module that takes float32 alone
        return 0.0
    return worst


def make(zoo, maker, out, small):
    """One model; returns its number of variants."""
    import copy
    import contextlib
    import torch
    from safetensors.torch import save_file
    module, variants, dyn = maker.build()
    cast = lambda: torch.autocast("cpu", dtype=maker.autocast) if maker.autocast else contextlib.nullcontext()
    expected = []
    for v in variants:
        torch.manual_seed(0)  # as a session is
        with torch.no_grad(), cast():
            expected.append(tensors(copy.deepcopy(module)(**copies(v))))
    with torch.set_grad_enabled(maker.grad), cast():
        ep = torch.export.export(module, (), copies(variants[0]), dynamic_shapes=dyn, strict=maker.strict)
    if maker.decompose:
        ep = ep.run_decompositions()
    strip(ep, ["stack_trace", "nn_module_stack", "torch_fn", "from_node", "custom"] if small else ["stack_trace"])
    base = os.path.join(out, maker.name)
    torch.export.save(ep, base + ".pt2")
    for i, (v, e) in enumerate(zip(variants, expected)):
        save_file({k: x.contiguous().clone() for k, x in leaves(v).items()}, f"{base}.v{i}.in.safetensors")
        save_file(e, f"{base}.v{i}.out.safetensors")
    tol = maker.tol
    if not tol and not maker.autocast and 2e-6 < (noise := distance(module, variants, expected)) < 2e-5:
        tol = tolerance("TORCH")["f32"] + noise
    json.dump(dict(name=maker.name, torch=torch.__version__, variants=len(variants), tol=tol),
              open(base + ".json", "w"))
    return len(variants)


def run(names, out, hf, small=False):
    zoo = load(hf)
    bad = 0
    for name in names:
        try:
            if small:
                make(zoo, zoo.MODELS[name], out, small)
            else:
                exported("models", name, out, lambda folder: make(zoo, zoo.MODELS[name], folder, small))
        except Exception as e:  # one model that torch refuses must not hide the others
            bad += 1
            print(f"cannot make {name}: {type(e).__name__}: {str(e)[:400]}", flush=True)
    return bad


def committed(names, out):
    """Archives in a folder that is made again; the C test needs no more than them and their tensors."""
    out.mkdir(parents=True, exist_ok=True)
    for f in out.glob("*"):
        f.unlink()
    bad = run(names, str(out), False, True)
    for f in out.glob("*.json"):
        f.unlink()
    return bad


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default="build/models")
    ap.add_argument("--only", action="append")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--small", action="store_true")
    ap.add_argument("--version", action="store_true")
    ap.add_argument("--jobs", type=int, default=2)
    a = ap.parse_args()
    if a.small:
        sys.exit(committed(SMALL, HERE / "small") > 0)
    if a.version:
        import torch
        version = torch.__version__.split("+")[0]
        own = OF_OLDEST * version.startswith("2.9") + OF_NEWEST * version.startswith("2.15")
        sys.exit(committed(OF_VERSION + own, HERE / "versions" / version) > 0)
    names = a.only
    if not names:
        models = load().MODELS
        names = share(models, {n: {m.written[0]: {m.written[1]}} for n, m in models.items()})
    if a.list:
        print(*names, sep="\n")
        return
    os.makedirs(a.out, exist_ok=True)
    if a.jobs <= 1 or a.only:
        sys.exit(run(names, a.out, True) > 0)
    parts = [names[k::a.jobs] for k in range(a.jobs)]
    started = [subprocess.Popen([sys.executable, __file__, "--out", a.out, "--jobs",
                                 "1"] + [x for n in p for x in ("--only", n)]) for p in parts]
    sys.exit(max(p.wait() for p in started))


if __name__ == "__main__":
    main()
