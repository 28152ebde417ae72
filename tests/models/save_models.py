#!/usr/bin/env python3
"""Saves every model that generate.py made with qkv, loads the result with torch.export.load and with qkv, and
compares both with PyTorch's eager outputs at every size. TAP, one line a model; `text` says that the graph reads back
as the same text.

    save_models.py --dir DIR [NAME ..]      run_models.py calls it; the rules of comparing are there
"""
import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]
import generate
import qkv
from run_models import differ, read


def arrays(tensors):
    """{name: (dtype, array)} as run_models.read gives it."""
    import torch
    names = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16",
             torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
             torch.bool: "BOOL"}
    return {k: (names[t.dtype], (t.float() if t.dtype == torch.bfloat16 else t).numpy()) for k, t in tensors.items()}


def arguments(ep, inputs):
    """(args, kwargs) from tensors by placeholder; other inputs are what they were at export."""
    import torch
    user = [s.arg for s in ep.graph_signature.input_specs
            if s.kind == torch.export.graph_signature.InputKind.USER_INPUT]
    flat = [a.value if isinstance(a, torch.export.graph_signature.ConstantArgument) else inputs[a.name] for a in user]
    return torch.utils._pytree.tree_unflatten(flat, ep.call_spec.in_spec)


def one(folder, name, tol, variants, tmp):
    """'' when right, else what is wrong first; the largest errors of PyTorch and of qkv; does the text stay?"""
    import torch
    from safetensors.torch import load_file
    path = os.path.join(tmp, "saved.pt2")
    given = qkv.Model(folder / f"{name}.pt2", threads=1)
    given.save(path)
    again, ep = qkv.Model(path, threads=1), torch.export.load(path)
    written = ({**ep.state_dict, **ep.constants}[name] for name in ep.graph_signature.buffers_to_mutate.values())
    module, state = ep.module(), [(t, t.detach().clone()) for t in written]
    worst = [0.0, 0.0]
    for v in range(variants):
        for t, before in state:
            t.data.copy_(before)
        inputs, want = load_file(folder / f"{name}.v{v}.in.safetensors"), read(folder / f"{name}.v{v}.out.safetensors")
        again.reset()
        again.seed(0)
        torch.manual_seed(0)
        results = again.run_dlpack(inputs)
        args, kwargs = arguments(ep, inputs)
        with torch.no_grad():
            eager = generate.tensors(module(*args, **kwargs))
        ours = {f"output_{i}": torch.from_dlpack(o) for i, o in enumerate(results.values())}
        for k, (who, got) in enumerate((("PyTorch", arrays(eager)), ("qkv", arrays(ours)))):
            what, err = differ(got, want, tol)
            worst[k] = max(worst[k], err)
            if what:
                return f"v{v} in {who}: {what}", worst, False
    return "", worst, again.graph_text() == given.graph_text()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--dir", type=pathlib.Path, required=True)
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        generate.load()  # results' types of models and transformers become known to PyTorch
    models = [m for m in (json.loads(f.read_text()) for f in sorted(a.dir.glob("*.json"))) if not a.names
              or m["name"] in a.names]
    print(f"1..{len(models)}")
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        for k, m in enumerate(models, 1):
            try:
                what, worst, same = one(a.dir, m["name"], m["tol"], m["variants"], tmp)
            except Exception as e:  # what PyTorch or qkv refuses is a failure of this model alone
                what, worst, same = f"{type(e).__name__}: {str(e)[-600:]}", [0, 0], False
            bad += bool(what)
            note = what.replace("\n", " ") if what else f"{worst[0]:.1e} {worst[1]:.1e}{' text' if same else ''}"
            print(f"{'not ' if what else ''}ok {k} - save: {m['name']} {note}", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
