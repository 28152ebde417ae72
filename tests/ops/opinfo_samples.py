"""PyTorch's samples of its ops as exported programs, for opinfo.py.

A sample is the op in a module: its tensors are the inputs, all else is constant. Three samples are taken of an entry
of the database: the first, the middle and the last. For gradients it is a weighted sum of the op's results; those of
float32 are taken in float64 where the op takes it, so that a wrong term does not look like rounding.
"""
import contextlib
import functools
import io
import itertools
import pathlib

SAMPLES = 3


def entries(dtype="float32"):
    """{name: OpInfo} of what takes that dtype on the CPU."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    taken = [op for op in op_db if op.supports_dtype(getattr(torch, dtype), "cpu")]
    return {".".join(filter(None, (op.name, op.variant_test_name))): op for op in taken}


def picked(samples):
    """The first, the middle and the last of at most 60."""
    some = list(itertools.islice(samples, 60))
    at = {i * (len(some) - 1) // (SAMPLES - 1) for i in range(SAMPLES)} if some else ()
    return [some[i] for i in sorted(at)]


def differentiable(dtype="float32"):
    """{name: OpInfo} of those whose results autograd goes back from."""
    import torch
    wanted = getattr(torch, dtype)
    return {name: op for name, op in entries(dtype).items()
            if op.supports_autograd and (dtype == "float32" or wanted in op.supported_backward_dtypes("cpu"))}


def weighted(results):
    """The sum of all numbers that have a gradient, each times another weight."""
    import torch
    loss = 0
    for y in results:
        if isinstance(y, torch.Tensor) and y.requires_grad:
            y = torch.view_as_real(y) if y.is_complex() else y
            loss = loss + (y * torch.arange(y.numel(), dtype=y.dtype).cos().reshape(y.shape)).sum()
    return loss


# Gradients that in PyTorch are not the derivative: that of self lies where src was written, and nowhere else.
# What differences give is right.
BY_DIFFERENCES = ("as_strided_scatter",)


def differences(module, fed):
    import torch

    def at(x, k, step):
        x.data.view(-1)[k] += step
        y = module(*fed).item()
        x.data.view(-1)[k] -= step
        return y
    return [torch.tensor([at(x, k, 0.5) - at(x, k, -0.5) for k in range(x.numel())], dtype=x.dtype).reshape(x.shape)
            for x in fed if x.requires_grad]  # of linear functions


def gradients(module, fed):
    """Of those inputs that ask for one, by eager PyTorch."""
    import torch
    wanted = [x for x in fed if x.requires_grad]
    found = torch.autograd.grad(module(*fed), wanted, allow_unused=True)
    return [torch.zeros_like(x) if g is None or g._is_zerotensor() else g for x, g in zip(wanted, found)]


def write(folder, op, grads=False, dtype="float32", decomposed=False):
    """k.pt2 and k.pt (inputs, results or gradients) for each sample; why torch did not export the others.
    decomposed: after run_decompositions()."""
    import torch
    from torch.utils import _pytree as pytree
    numbers = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}
    dtype = getattr(torch, dtype)
    if grads and dtype == torch.float32 and op.supports_dtype(torch.float64, "cpu"):
        dtype = torch.float64
    torch.manual_seed(0)
    reasons = []
    for k, sample in enumerate(picked(op.sample_inputs("cpu", dtype, requires_grad=grads))):
        leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]

        class Module(torch.nn.Module):
            def forward(self, *given):
                left = iter([x.clone() if x.requires_grad else x for x in given])
                filled = [next(left) if isinstance(x, torch.Tensor) else x for x in leaves]
                first, args, kwargs = pytree.tree_unflatten(filled, tree)
                call = functools.partial(op.gradcheck_wrapper, op.op) if grads else op.op  # of symmetric matrices
                results = sample.output_process_fn_grad(call(first, *args, **kwargs))  # of several right answers one
                if grads:
                    return weighted(pytree.tree_leaves(results))
                return results if isinstance(results, torch.Tensor) else tuple(pytree.tree_leaves(results))

        fed = [x.detach().clone().requires_grad_(x.requires_grad) for x in tensors]  # some entries write their inputs
        try:
            with torch.set_grad_enabled(grads), contextlib.redirect_stderr(io.StringIO()):
                program = torch.export.export(Module(), tuple(tensors))
                program = program.run_decompositions() if decomposed else program
                torch.export.save(program, f"{folder}/{k}.pt2")
                torch.manual_seed(0)
                truth = differences if op.name in BY_DIFFERENCES else gradients
                results = truth(program.module(), fed) if grads else program.module()(*[x.clone() for x in fed])
        except Exception as e:
            pathlib.Path(f"{folder}/{k}.pt2").unlink(missing_ok=True)
            reasons.append(f"{type(e).__name__}: {e}".split("\n")[0][:160])
            continue
        results = [x.detach() if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=numbers[type(x).__name__])
                   for x in pytree.tree_leaves(results) if x is not None]
        torch.save((fed, results), f"{folder}/{k}.pt")
    return reasons
