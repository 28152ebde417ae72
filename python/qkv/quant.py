"""Training with quantizers in PyTorch, at the places that `qkv quantize` takes (docs/QUANTIZE.md).

    prepared = qkv.quant.prepare(module, (x,), calibrate={"x": xs})     # trains like any module
    ...
    qkv.export(prepared, (x,), path="trained.pt2")
    qkv.Model("trained.pt2").quantize().save_onnx("trained.onnx")       # the same quantizers, weights as integers
"""
import functools
import os
import tempfile

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (defines the ops)

from ._export import exported
from .model import Model

aten = torch.ops.aten
_shapes = torch.library.Library("aten", "IMPL")  # torch.export asks for these two; PyTorch 2.13 has none


def _like(x, *_):
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


for _op in ("fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask"):
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{_op}", "Meta"):
        _shapes.impl(_op, _like, "Meta")


def prepare(module, args=(), kwargs=None, dynamic_shapes=None, calibrate=None, **options):
    """A copy of `module` (or of a .pt2 file: its path, or a qkv.Model) with fake quantization in front of what
    Model.quantize with the same options would round: gradients go straight through it, its scales stay as they are,
    weights are parameters under their own names. calibrate: arrays by the names of inputs, from which the ranges of
    activations come; not needed with weight_bits=4 or 8. Dropout is off, as in eval mode. The report is
    `quantize_report`."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.pt2")
        if isinstance(module, torch.nn.Module):
            torch.export.save(exported(module, args, kwargs, dynamic_shapes), path)
            module = path
        model = module if isinstance(module, Model) else Model(module)
        made = model.quantize(calibrate, trainable=True, **options)
        made.save(path)
        program = torch.export.load(path).module()
    _fake(program)
    prepared = torch.fx.GraphModule(program, program.graph)
    prepared.quantize_report = made.quantize_report
    return prepared


def _fake(program):
    """Quantizers become fake ones, and what is between them and their inverses passes floats on."""
    graph, after = program.graph, set()  # after: nodes that read a fake quantizer, by whatever way
    for node in list(graph.nodes):
        space, _, name = str(node.target).partition(".")
        ours = space == "quantized_decomposed"
        if node.op == "call_module" and node.target == "_guards_fn":
            graph.erase_node(node)
        elif ours and name.startswith("quantize_"):
            after.add(_fake_quantizer(program, node, name.partition(".")[0]))
        elif not after.isdisjoint(node.all_input_nodes):
            if ours:
                node.replace_all_uses_with(node.args[0])
            else:
                after.add(node)
    graph.eliminate_dead_code()
    graph.lint()


def _number(program, node):
    """What a node that reads no input gives, as a number."""
    def value(v):
        if not isinstance(v, torch.fx.Node):
            return v
        if v.op == "get_attr":
            return functools.reduce(getattr, v.target.split("."), program)
        return v.target(*map(value, v.args), **v.kwargs)

    return value(node).item()


def _fake_quantizer(program, node, name):
    """PyTorch's fake quantization in place of a quantizer, and of the clamp that may follow it."""
    graph, (x, scale, zero, *rest) = program.graph, node.args
    axis = rest.pop(0) if name == "quantize_per_channel" else 0
    low, high = rest[:2]
    user = next(iter(node.users))
    last = user if user.target is aten.clamp.default else node
    if last is user:
        low, high = user.args[1:]
    with graph.inserting_before(last.next):
        def call(op, *args):
            return graph.call_function(op, args)

        if name == "quantize_per_tensor":  # torch.export takes numbers alone
            made = call(aten.fake_quantize_per_tensor_affine.default, x, _number(program, scale),
                        _number(program, zero), low, high)
            last.replace_all_uses_with(made)
            return made
        zero = call(aten.to.dtype, zero, torch.int32)
        if name == "quantize_per_channel_group":  # a row for each group
            rows = [call(aten.reshape.default, v, s) for v, s in ((x, [-1, rest[3]]), (scale, [-1]), (zero, [-1]))]
            made = call(aten.fake_quantize_per_channel_affine.default, *rows, 0, low, high)
            made = call(aten.reshape.default, made, list(x.meta["val"].shape))
        else:
            made = call(aten.fake_quantize_per_channel_affine.default, x, scale, zero, axis, low, high)
    last.replace_all_uses_with(made)
    return made
