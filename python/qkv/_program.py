"""Programs of torch in memory: the archive of an ExportedProgram, and an ExportedProgram of a graph of torch.fx.

    archive(torch.export.export(module, (x,)))      what torch.export.save writes, as bytes
    program(graph_module)                           of ATen ops whose nodes have meta["val"], as AOTAutograd makes them
"""
import io

import torch
from torch.export import exported_program as ep
from torch.export.graph_signature import (ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec,
                                          TensorArgument)
from torch.utils import _pytree as pytree


def archive(exported):
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    return buffer.getbuffer()


def value_of(node):
    return node.meta.get("val")


def sizes_of(node):
    """The symbolic sizes of a node's result."""
    value = value_of(node)
    return [s for s in (value.shape if isinstance(value, torch.Tensor) else [value]) if isinstance(s, torch.SymInt)]


def _without_numbers(graph):
    """Placeholders of numbers become sizes of tensors that have them, else of a new input. Returns the names of the
    placeholders for which there is a new input, which stands in their place."""
    taken, new = [n for n in graph.nodes if n.op == "placeholder"], []
    tensors = [n for n in taken if isinstance(value_of(n), torch.Tensor)]
    first = next((n for n in graph.nodes if n.op != "placeholder"))
    for number in taken:
        size = value_of(number)
        if isinstance(size, torch.Tensor):
            continue
        if number.users:
            places = ((t, axis) for t in tensors for axis, s in enumerate(value_of(t).shape)
                      if isinstance(s, torch.SymInt) and s.node.expr == size.node.expr)
            tensor, axis = next(places, (None, 0))
            if tensor is None:
                with graph.inserting_before(number):
                    tensor = graph.placeholder(f"as_many_as_{number.name}")
                tensor.meta["val"] = tensors[0].meta["val"].new_empty([size]) if tensors else torch.empty([size])
                new.append(number.name)
            with graph.inserting_before(first):
                same = graph.call_function(torch.ops.aten.sym_size.int, (tensor, axis))
            same.meta["val"] = size
            number.replace_all_uses_with(same)
        graph.erase_node(number)
    return new


def _contiguous_results(graph, returned):
    """Results whose strides are those of a permuted contiguous tensor are permuted to that one. Returns, for each
    result, the permutation that undoes it, or None."""
    undo = []
    for at, node in enumerate(returned):
        value, order = value_of(node), None
        if value.ndim > 1 and not value.is_contiguous():
            hint = [s.node.hint if isinstance(s, torch.SymInt) else s for s in value.stride()]
            order = sorted(range(value.ndim), key=lambda i: -hint[i])
        if order is not None and 0 not in hint and order != list(range(value.ndim)):
            made = graph.call_function(torch.ops.aten.permute.default, (node, order))
            made.meta["val"] = value.permute(order)
            returned[at] = made
            undo.append([order.index(i) for i in range(value.ndim)])
        else:
            undo.append(None)
    return undo


class Program:
    """exported: the ExportedProgram of a graph. inputs: for each of its inputs, in order, the name of the graph's
    placeholder and whether that is a number, for which the input is a tensor of so many elements; the placeholders
    of `weights` ({name: tensor}) are its parameters. undo: for each result, how to permute it, or None."""

    def __init__(self, graph_module, weights=None):
        weights = weights or {}
        graph = torch.fx.Graph()
        copies = {n: graph.node_copy(n) for n in graph_module.graph.nodes if n.op == "placeholder"}
        returned = pytree.tree_leaves(graph.graph_copy(graph_module.graph, copies))
        counted = _without_numbers(graph)
        self.undo = _contiguous_results(graph, returned)
        graph.output(tuple(returned))
        for node in graph.nodes:
            node.meta = {"val": value_of(node)} if node.op != "output" else {}
        taken = [n for n in graph.nodes if n.op == "placeholder"]
        self.inputs = [(n.name.removeprefix("as_many_as_"), True) if n.name.removeprefix("as_many_as_") in counted
                       else (n.name, False) for n in taken if n.name not in weights]
        self.names = [n.name for n in taken if n.name not in weights]
        arguments = [TensorArgument(name=n.name) for n in taken]
        results = [TensorArgument(name=n.name) for n in returned]
        signature = ExportGraphSignature(
            [InputSpec(InputKind.PARAMETER, a, target=a.name) if a.name in weights
             else InputSpec(InputKind.USER_INPUT, a, target=None) for a in arguments],
            [OutputSpec(OutputKind.USER_OUTPUT, a, target=None) for a in results])
        given = [a for a in arguments if a.name not in weights]
        call = ep.ModuleCallSignature(inputs=given, outputs=results,
                                      in_spec=pytree.tree_structure((tuple(given), {})),
                                      out_spec=pytree.tree_structure(tuple(results)))
        found = {s: size.node.shape_env for n in taken for size in sizes_of(n) for s in size.node.expr.free_symbols}
        self.exported = ep.ExportedProgram(
            root=torch.nn.Module(), graph=graph, graph_signature=signature, state_dict=weights,
            range_constraints={s: env.var_to_range[s] for s, env in found.items()},
            module_call_graph=[ep.ModuleCallEntry("", call)])
