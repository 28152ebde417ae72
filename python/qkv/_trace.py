"""trace: every node's result from PyTorch, for `qkv verify MODEL -i IN --per-node FILE`."""
import torch
from torch.export._tree_utils import reorder_kwargs

from ._export import exported


def trace(program, args, path, kwargs=None, dynamic_shapes=None):
    """Runs an ExportedProgram, the .pt2 at a path, or a module in PyTorch and writes the result tensor of each node,
    by node name, to a .safetensors.

    args, kwargs: inputs as the module takes them. A module is exported first, as qkv.export does it: with the
    dynamic_shapes of the file that is verified, its nodes have the names that they have there. Returns the number of
    tensors written. Nodes inside subgraphs are not traced.
    """
    from safetensors.torch import save_file

    if isinstance(program, torch.nn.Module):
        program = exported(program, args, kwargs, dynamic_shapes)
    elif not isinstance(program, torch.export.ExportedProgram):
        program = torch.export.load(program)
    kwargs = reorder_kwargs(dict(kwargs or {}), program.call_spec.in_spec)
    flat = torch.utils._pytree.tree_leaves((tuple(args), kwargs))
    tensors = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node):
            result = super().run_node(node)
            if node.op == "call_function" and "empty" in str(node.target) and isinstance(result, torch.Tensor):
                result.zero_()  # what is in new memory differs from run to run
            if node.op == "call_function" and isinstance(result, torch.Tensor):
                tensors[node.name] = result.detach().clone().contiguous()
            return result

    feeds = iter(flat)
    values = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            values.append(next(feeds))
        else:
            values.append(program.state_dict.get(spec.target, program.constants.get(spec.target)))
    with torch.no_grad():
        Recorder(program.graph_module).run(*values)
    save_file(tensors, path)
    return len(tensors)
