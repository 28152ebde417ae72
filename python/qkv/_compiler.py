"""torch.compile(model, backend="qkv"): docs/COMPILE.md. pyproject.toml names `backend` as an entry point, so that
PyTorch finds it without an import; `import qkv.dynamo` is for a checkout that is not installed.

TORCH_LOGS=qkv says what the library runs of each graph, and why PyTorch runs the rest; TORCH_LOGS=+qkv names nodes.
"""
import dataclasses
import logging

from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext

from ._decomposed import decompositions
from ._lib import Error
from ._parts import computes, split

log = logging.getLogger("qkv.dynamo")
OPTIONS = {"compute": (None, "f32", "bf16"), "freeze": (False, True), "threads": None}


@dataclasses.dataclass
class Compiled:
    """One graph that PyTorch handed over. kind: "inference", "forward" or "backward"; ops: its ops that compute (views
    and sizes do not); in_c: those that the library runs; reasons: {why PyTorch runs the others: their names}."""

    kind: str
    ops: int
    in_c: int
    parts: list
    reasons: dict

    @property
    def attentions(self):
        """Attentions of the library's parts, each one op, forward or backward."""
        return sum("scaled_dot_product" in n["op"] or "sdpa" in n["op"]
                   for part in self.parts for n in part.model.graph(None)["nodes"])

    def __str__(self):
        lines = [f"{self.kind}: {self.in_c} of {self.ops} ops in C, in {len(self.parts)} "
                 f"part{'' if len(self.parts) == 1 else 's'}, with {self.attentions} fused attentions"]
        return "\n".join(lines + [f"  {len(names)} in PyTorch: {reason}" for reason, names in self.reasons.items()])


def _checked(options):
    for name, value in options.items():
        if name not in OPTIONS:
            raise Error(f"option '{name}' of backend \"qkv\": expected {', '.join(OPTIONS)}", 2)
        if OPTIONS[name] and value not in OPTIONS[name]:
            raise Error(f"option '{name}' of backend \"qkv\" is {value!r}: expected one of "
                        f"{', '.join(map(repr, OPTIONS[name]))}", 2)
    return options


def _frozen(graph_module):
    """Names of the placeholders that are parameters and buffers."""
    context = TracingContext.try_get()
    static = getattr(context and context.fw_metadata, "static_input_indices", None) or ()
    taken = [n.name for n in graph_module.graph.nodes if n.op == "placeholder"]
    return {taken[i] for i in static if i < len(taken)}


def _compiler(kind, options, made):
    def compile_graph(graph_module, _):
        ops = sum(map(computes, graph_module.graph.nodes))
        frozen = _frozen(graph_module) if options.get("freeze") and kind == "inference" else ()
        whole, parts, reasons = split(graph_module, options, log.warning, frozen, kind == "forward")
        compiled = Compiled(kind, ops, sum(p.work for p in parts), parts, reasons)
        made.append(compiled)
        if log.isEnabledFor(logging.INFO):
            log.info("%s", compiled)
        for reason, names in reasons.items():
            log.debug("in PyTorch: %s: %s", ", ".join(names), reason)
        return make_boxed_func(whole.forward)
    return compile_graph


def compile_with(graph_module, example_inputs, options, made):
    options = _checked(options or {})
    kinds = {"fw_compiler": "forward", "bw_compiler": "backward", "inference_compiler": "inference"}
    compilers = {name: _compiler(kind, options, made) for name, kind in kinds.items()}
    return aot_autograd(**compilers, decompositions=decompositions())(graph_module, example_inputs)


def backend(graph_module, example_inputs, mode=None, options=None):
    """What torch.compile calls with each graph. options: "compute": "bf16" as in qkv.Model; "freeze": True keeps
    parameters packed between runs (docs/COMPILE.md); "threads": an int, else as many as PyTorch has."""
    return compile_with(graph_module, example_inputs, options, [])
