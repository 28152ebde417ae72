#!/usr/bin/env python3
"""Exports models with torch.onnx.export, by both of its exporters, loads them with qkv and compares with eager
PyTorch at every size, before and after qkv rewrite. TAP.

    onnx_models.py                       a handful (about a minute); needs .venv with torch, transformers,
                                         onnx, onnxscript
    onnx_models.py --all                 every model of the zoo (generate.py --list)
    onnx_models.py bert_sdpa swin_eager [--keep DIR] [--exporter dynamo|script]

Where an exporter fails, the model is skipped and named. Where the script exporter bakes a size in, so that ONNX
Runtime cannot run the model at another size either, or computes other values, that size is skipped too. Where the
file says
something else than eager, and ONNX Runtime gives what qkv gives, the line says so. Tolerances: run_models.py.
"""
import argparse
import contextlib
import os
import pathlib
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]
import generate  # noqa: E402
import numpy as np  # noqa: E402
import run_models  # noqa: E402

HANDFUL = ["bert_sdpa", "gpt2_eager", "gpt2_with_past", "llama_sdpa", "t5_eager", "whisper_sdpa", "clip_sdpa",
           "vit_sdpa", "swin_eager", "detr_eager"]
NAMES = {np.dtype("float32"): "F32", np.dtype("float64"): "F64", np.dtype("float16"): "F16", np.dtype("int64"): "I64",
         np.dtype("int32"): "I32", np.dtype("int16"): "I16", np.dtype("int8"): "I8", np.dtype("uint8"): "U8",
         np.dtype("bool"): "BOOL"}


def with_past(zoo):
    """GPT-2 that takes and gives its cache as flat tensors, past lengths of 0 too."""
    import torch
    import transformers as T
    from torch.export import Dim
    from transformers.cache_utils import DynamicCache

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.m = zoo.strengthen(T.GPT2LMHeadModel._from_config(T.GPT2Config(vocab_size=99, n_positions=64,
                                                                                n_embd=32, n_layer=2, n_head=4),
                                                                   attn_implementation="eager"))

        def forward(self, input_ids, attention_mask, k0, v0, k1, v1):
            cache = DynamicCache()
            cache.update(k0, v0, 0)
            cache.update(k1, v1, 1)
            past, n = k0.shape[2], input_ids.shape[1]
            positions = torch.arange(past, past + n)[None]
            out = self.m(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache,
                         position_ids=positions, use_cache=True)
            return (out.logits, *[t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)])

    def sample(b, s, past):
        kv = {f"{n}{i}": zoo.R(b, 4, past, 8, seed=2 * i + (n == "v")) for i in range(2) for n in "kv"}
        return dict(input_ids=zoo.I(98, b, s, lo=3), attention_mask=zoo.keep_mask(b, past + s), **kv)

    b, s, past = Dim("batch", min=1, max=8), Dim("seq", min=1, max=16), Dim("past", min=0, max=32)
    dyn = dict(input_ids={0: b, 1: s}, attention_mask={0: b, 1: Dim.AUTO},
               **{n: {0: b, 2: past} for n in ("k0", "v0", "k1", "v1")})
    zoo.model("gpt2_with_past")(lambda: (Decoder().eval(), [sample(2, 3, 5), sample(1, 1, 9), sample(3, 4, 0)], dyn))


def numpy(tree):
    import torch
    return [x.detach().float().numpy() if x.dtype is torch.bfloat16 else x.detach().numpy()
            for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def named(arrays):
    return {f"output_{i}": (NAMES.get(a.dtype, str(a.dtype)), a) for i, a in enumerate(arrays)}


def dynamic_axes(names, dyn, feeds):
    """For the script exporter: {input: {axis: name}}, flat."""
    import torch
    flat = {}
    for name, spec in dyn.items():
        if isinstance(feeds[name], torch.Tensor) and spec:
            flat[name] = {k: getattr(v, "__name__", "").isidentifier() and v.__name__ or f"{name}_{k}"
                          for k, v in (spec.items() if isinstance(spec, dict) else enumerate(spec)) if v is not None}
    return flat


@contextlib.contextmanager
def silent():
    """The exporters print, from C++ too: nothing of it belongs among the tests."""
    sys.stdout.flush()
    kept, nothing = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    try:
        for fd in (1, 2):
            os.dup2(nothing, fd)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
        sys.stdout.flush()
    finally:
        for fd, old in zip((1, 2), kept):
            os.dup2(old, fd)
            os.close(old)
        os.close(nothing)


def export(module, sample, dyn, path, dynamo):
    import torch
    kwargs = generate.copies(sample)
    if dynamo:
        torch.onnx.export(module, (), path, kwargs=kwargs, dynamic_shapes=dyn, dynamo=True, verbose=False,
                          external_data=False)
    else:
        if not all(isinstance(x, torch.Tensor) for x in kwargs.values()):
            raise TypeError("nested inputs")
        names = list(kwargs)
        torch.onnx.export(module, tuple(kwargs.values()), path, input_names=names,
                          dynamic_axes=dynamic_axes(names, dyn or {}, sample), opset_version=17, dynamo=False)


def by_runtime(path, feeds):
    """What ONNX Runtime makes of it; None when it cannot."""
    try:
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})
    except Exception:
        return None


def one(zoo, name, folder, exporter):
    import torch
    import qkv
    module, variants, dyn = zoo.MODELS[name].build()
    path = str(folder / f"{name}_{exporter}.onnx")
    try:
        with silent(), torch.no_grad():
            export(module, variants[0], dyn, path, exporter == "dynamo")
    except Exception as e:
        return "skip", f"the exporter fails: {type(e).__name__} {str(e).splitlines()[0][:100] if str(e) else ''}"
    try:
        model = qkv.Model(path)
    except qkv.Error as e:
        return "not ok", str(e).replace(path, "model")
    notes = []
    for k, sample in enumerate(variants):
        feeds = {n: x if x.dtype is torch.bfloat16 else x.numpy()
                 for n, x in generate.leaves(generate.copies(sample)).items()}
        if len(feeds) == len(model.inputs):
            feeds = {m: feeds[m] if m in feeds else x for m, x in zip(model.inputs, feeds.values())}
        feeds = {n: feeds[n] for n in model.inputs}
        with torch.no_grad():
            eager = module(**generate.copies(sample))
        want, tol = named(numpy(eager)), zoo.MODELS[name].tol
        if any(getattr(x, "dtype", None) is torch.bfloat16 for x in torch.utils._pytree.tree_leaves(eager)):
            tol = run_models.RELATIVE["BF16"]  # NumPy has it as float32
        try:
            got, why = named(list(model.run(feeds).values())), ""
        except qkv.Error as e:
            got, why = None, str(e)
        why = why or run_models.differ(got, want, tol)[0]
        if not why:
            continue
        other = by_runtime(path, feeds)
        if exporter == "script" and (other is None or run_models.differ(named(other), want, tol)[0]):
            notes.append(f"variant {k} not compared: ONNX Runtime does not give eager's values either")
            continue
        if got and other is not None and not run_models.differ(got, named(other), 1e-2)[0]:
            notes.append(f"variant {k}: the file says something else than eager, and so ONNX Runtime")
            continue
        return "not ok", f"variant {k}: {why}" + (" (ONNX Runtime cannot run it)" if other is None else "")
    left = rewritten(model, name, feeds, got, tol)
    return ("not ok", left) if left else ("ok", "; ".join(notes))


def rewritten(model, name, feeds, want, tol):
    """Every attention of the handful is found in the form that ONNX has it, and the values stay."""
    model.rewrite()
    if name in HANDFUL and ".softmax" in model.graph_text():
        return "an attention is not recognised: qkv rewrite --why-not"
    return want and run_models.differ(named(list(model.run(feeds).values())), want, tol)[0]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*")
    ap.add_argument("--all", action="store_true")
    ap.add_argument("--keep", metavar="DIR")
    ap.add_argument("--exporter", choices=["dynamo", "script"])
    a = ap.parse_args()
    zoo = generate.load()
    with_past(zoo)
    names = a.names or (list(zoo.MODELS) if a.all else HANDFUL)
    failed = number = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(a.keep or temporary)
        folder.mkdir(exist_ok=True)
        for name in names:
            for exporter in [a.exporter] if a.exporter else ["dynamo", "script"]:
                result, why = one(zoo, name, folder, exporter)
                number += 1
                failed += result == "not ok"
                if result == "skip":
                    print(f"ok {number} - {name} {exporter} # SKIP {why}", flush=True)
                else:
                    print(f"{result} {number} - {name} {exporter}{': ' + why if why else ''}", flush=True)
    print(f"1..{number}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
