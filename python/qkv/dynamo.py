"""qkv as a backend of torch.compile (docs/COMPILE.md).

    torch.compile(model, backend="qkv")                          # an installed package is found by its entry point
    print(qkv.dynamo.explain(model, x, mask))                    # what runs in C, why not the rest, and what is gained
    import qkv.dynamo                                            # in a checkout: registers the backend
"""
import dataclasses
import functools
import time

import torch
from torch.utils import _pytree as pytree

from ._compiler import Compiled, backend, compile_with

__all__ = ["Compiled", "Explanation", "backend", "explain"]

if "qkv" not in torch._dynamo.list_backends(None):
    torch._dynamo.register_backend(compiler_fn=backend, name="qkv")


@dataclasses.dataclass
class Explanation:
    """graphs: what was compiled, a list of Compiled; difference: the largest to eager's results, or gradients, of the
    peak; eager_ms, compiled_ms: the smallest time of a call, taken in turns; with gradients, of forward and
    backward."""

    graphs: list
    difference: float
    eager_ms: float
    compiled_ms: float

    def __str__(self):
        gain = self.eager_ms / self.compiled_ms
        return "\n".join([*map(str, self.graphs),
                          f"largest difference to eager {self.difference:.1e} of the peak",
                          f"{self.compiled_ms:.2f} ms a call, eager {self.eager_ms:.2f} ms: {gain:.2f} times as fast"])


def _tensors(result):
    return [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def _any_gradient(x):
    """The same for each call, and not ones: the sum of a norm's result has no gradient but rounding."""
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)


def _step(f, args, kwargs, parameters):
    """Results, and gradients of the parameters."""
    results = _tensors(f(*args, **kwargs))
    wanted = [x for x in results if x.requires_grad]
    grads = torch.autograd.grad(wanted, parameters, list(map(_any_gradient, wanted)), allow_unused=True) \
        if wanted and parameters else []
    return [x.detach() for x in results], [x for x in grads if x is not None]


def _best(f, rounds):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        f()
        times.append(1e3 * (time.perf_counter() - begin))
    return min(times)


def _largest(tensors):
    return max((float(x.double().abs().max()) for x in tensors if x.numel()), default=0.0)


def _apart(got, expected):
    """The largest difference of tensors, of their peak: some gradients, as of a key's bias, are 0 but for rounding."""
    got, expected = ([torch.view_as_real(x) if x.is_complex() else x for x in part] for part in (got, expected))
    return _largest([a.double() - b.double() for a, b in zip(got, expected)]) / (_largest(expected) or 1.0)


def explain(model, *args, rounds=5, options=None, dynamic=None, **kwargs):
    """Compiles model (an nn.Module or function) for these inputs, compares results and gradients of parameters with
    eager, times both in turns (the best of `rounds`, twice), and says what was gained. No gradient is accumulated."""
    made = []

    def ours(graph_module, example_inputs, **_):
        return compile_with(graph_module, example_inputs, options, made)

    compiled = torch.compile(model, backend=ours, dynamic=dynamic)
    parameters = [p for p in model.parameters() if p.requires_grad] if isinstance(model, torch.nn.Module) else []
    random, results = torch.get_rng_state(), []
    for f in (model, compiled):
        torch.set_rng_state(random)
        results.append(_step(f, args, kwargs, parameters))
    steps = [functools.partial(_step, f, args, kwargs, parameters) for f in (model, compiled)]
    times = zip(*[[_best(step, rounds) for step in steps] for _ in range(2)])
    return Explanation(made, max(map(_apart, results[1], results[0])), *map(min, times))
