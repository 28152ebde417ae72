"""PyTorch's samples of its ops as exported programs, for opinfo.py.

A sample is the op in a module: its tensors are the inputs, all else is constant. Three samples are taken of an entry
of the database: the first, the middle and the last.
"""
import contextlib
import io
import itertools
import pathlib

SAMPLES = 3


def entries():
    """{name: OpInfo} of what takes float32 on the CPU."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    taken = [op for op in op_db if op.supports_dtype(torch.float32, "cpu")]
    return {".".join(filter(None, (op.name, op.variant_test_name))): op for op in taken}


def picked(samples):
    """The first, the middle and the last of at most 60."""
    some = list(itertools.islice(samples, 60))
    at = {i * (len(some) - 1) // (SAMPLES - 1) for i in range(SAMPLES)} if some else ()
    return [some[i] for i in sorted(at)]


def write(folder, op):
    """k.pt2 and k.pt (inputs, results) for each sample; the reasons why torch did not export the others."""
    import torch
    from torch.utils import _pytree as pytree
    numbers = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}
    torch.manual_seed(0)
    reasons = []
    for k, sample in enumerate(picked(op.sample_inputs("cpu", torch.float32, requires_grad=False))):
        leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]

        class Module(torch.nn.Module):
            def forward(self, *given):
                left = iter(given)
                filled = [next(left) if isinstance(x, torch.Tensor) else x for x in leaves]
                first, args, kwargs = pytree.tree_unflatten(filled, tree)
                results = sample.output_process_fn_grad(op.op(first, *args, **kwargs))  # of several right answers one
                return results if isinstance(results, torch.Tensor) else tuple(pytree.tree_leaves(results))

        fed = [x.detach().clone() for x in tensors]  # some entries write their inputs
        try:
            with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
                program = torch.export.export(Module(), tuple(tensors))
                torch.export.save(program, f"{folder}/{k}.pt2")
                torch.manual_seed(0)
                results = pytree.tree_leaves(program.module()(*[x.clone() for x in fed]))
        except Exception as e:
            pathlib.Path(f"{folder}/{k}.pt2").unlink(missing_ok=True)
            reasons.append(f"{type(e).__name__}: {e}".split("\n")[0][:160])
            continue
        results = [x.detach() if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=numbers[type(x).__name__])
                   for x in results if x is not None]
        torch.save((fed, results), f"{folder}/{k}.pt")
    return reasons
