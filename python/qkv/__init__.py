"""qkv: PyTorch attention models, without Python at run time.

    import qkv
    model = qkv.Model("vit.pt2")
    out = model(array)                                  # or model(pixel_values=array); a tuple with names
    out = model.run({"pixel_values": array})["output_0"]

    report = qkv.export(module, (x, mask), dynamic_shapes={...}, path="model.pt2")  # needs torch
    qkv.nn.replace_mha(module)                          # before export, for data-dependent sizes
    qkv.nn.from_pt2("model.pt2").attentions             # a file as modules, with the parts of each attention
    qkv.quant.prepare(module, (x,), calibrate={...})    # fake quantization where Model.quantize rounds, for training
    qkv.generalize("a.pt2", "b.pt2", path="dyn.pt2")    # static exports at two sizes become one for all sizes
    qkv.joint("model.pt2", loss="output_0", path="joint.pt2")  # the model and the gradients of its loss
    qkv.Trainer("joint.pt2", lr=1e-3).fit({"x": x, "target": y}, epochs=10)  # trains its parameters
    qkv.register_op("my::op", schema, shape, kernel)    # models with an op of your own (docs/CUSTOM_OPS.md)
    qkv.pattern("name", tree, graft, guard)             # a rule of your own for Model.rewrite (docs/RULES.md)
    qkv.prove("model.pt2", "model.onnx")["sense"]       # do two files compute the same, and in which sense
    qkv.check("model.onnx", target="ort")               # errors and warnings, as a Report
    qkv.backends("model.pt2", device="cuda-sm90")       # which kernel PyTorch takes for each attention
    qkv.BatchPredictor("model.pt2")                     # picklable, on dicts of columns: multiprocessing, ray.data
    qkv.serve_app("minilm.pt2", replicas=2)             # `qkv serve` as a Ray Serve application (docs/SERVE.md)
    qkv.Segmenter("sam3.pt2", ["red car"])(image)       # every instance of a text: boxes, masks
    qkv.Tokenizer("tokenizer.json"), qkv.Sampler(0.8)    # text and tokens of a language model (docs/GENERATE.md)
    qkv.InferenceSession("model.onnx")                  # as onnxruntime's
    list(qkv.commands())                                # what `python -m qkv` can do
    with model.session() as s, s.profile() as report:   # also s.trace, s.stats, s.seed; model.verify, model.bench
        s(array)
    qkv.trace("model.pt2", (x, mask), "trace.safetensors")   # for `qkv verify --per-node`

`Model` needs only NumPy. Inputs are not copied (NumPy, torch, anything with __dlpack__). Outputs are `Output` arrays,
which NumPy reads and which support DLPack.
"""
from ._lib import Error, library_path, version
from ._backends import backends, sdpa_choice
from ._check import check
from ._commands import commands
from ._generalize import Generalized, generalize
from ._ops import Meta, Size, register_op
from ._patterns import MatchedSize, Pattern, View, pattern
from ._prove import prove
from . import inference
from .batch import BatchPredictor
from .generate import Sampler, Tokenizer
from .inference import InferenceSession, SessionOptions, get_available_providers
from ._tensors import Output, Outputs
from .model import Model, Session, joint
from .segment import Segmenter
from .train import Step, Trainer

__all__ = ["BatchPredictor", "Error", "Generalized", "InferenceSession", "MatchedSize", "Meta", "Model", "Output",
           "Outputs", "Pattern", "Sampler", "Segmenter", "Session", "SessionOptions", "Size", "Step", "Tokenizer",
           "Trainer", "View", "backends", "check", "commands", "export", "generalize", "get_available_providers",
           "joint", "library_path", "nn", "pattern", "prove", "register_op", "sdpa_choice", "serve_app", "trace",
           "version"]


def __getattr__(name):  # import torch only for export
    if name in ("export", "ExportReport"):
        from . import _export

        return getattr(_export, name)
    if name == "__version__":
        return version()
    if name == "trace":
        from ._trace import trace

        return trace
    if name == "serve_app":  # asyncio
        from ._serve import serve_app

        return serve_app
    if name in ("nn", "quant"):
        import importlib

        return importlib.import_module("." + name, __name__)
    if name in inference.NAMES:
        return getattr(inference, name)
    raise AttributeError(f"module 'qkv' has no attribute {name!r}")
