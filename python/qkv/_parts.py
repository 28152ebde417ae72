"""The parts of a graph of ATen ops that the C library runs, and why PyTorch runs the rest.

    whole, parts, reasons = split(graph_module, options)

`whole` calls the parts, each a Part, in place of their nodes; reasons = {sentence: [names of nodes]}.
"""
import operator
import threading

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ._lib import Error, lib
from ._program import Program, value_of
from .model import Model

_DTYPES = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
           torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex32,
           torch.complex64, torch.complex128}


def target_of(node):
    """The node's target as torch.export writes it: aten.add.Tensor, _operator.mul."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return f"{target.__module__}.{target.__name__}"


def _argument(node, name):
    for at, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            return node.args[at] if at < len(node.args) else node.kwargs.get(name, argument.default_value)


def _draws(node):
    """Whether PyTorch's generator would move: attention without dropout draws nothing, whatever its tag says."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags and _argument(node, "dropout_p") != 0.0


def _of_value(value):
    """Why the library does not take this value; None where it does."""
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_of_value, value)), None)
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        return "it is a number that follows from sizes, and not an integer"
    if not isinstance(value, torch.Tensor):
        return None
    if value.device.type != "cpu":
        return f"it is on {value.device}"
    if value.layout != torch.strided:
        return f"its layout is {value.layout}"
    if value.dtype not in _DTYPES:
        return f"its dtype is {value.dtype}"
    symbols = [(s.node.shape_env, x) for s in value.shape if isinstance(s, torch.SymInt)
               for x in s.node.expr.free_symbols]
    return "its sizes depend on values" if any(env.is_unbacked_symint(x) for env, x in symbols) else None


def why_not(node):
    """Why PyTorch runs this node of ATen ops, in a sentence; None: the library takes it."""
    if node.target is operator.getitem:
        return why_not(node.args[0])
    name = target_of(node)
    if not lib().qkv_op_known(name.encode()):
        return f"the library has no {name}" if name.startswith("aten.") else \
            f"the library does not know {name}; qkv.register_op tells it what the op does"
    if _draws(node):
        return f"{name} draws from PyTorch's random generator"
    if name.startswith("aten.as_strided"):
        return f"{name} reads memory by strides, which the library lays out otherwise"
    for at in (node, *node.all_input_nodes):
        reason = _of_value(value_of(at))
        if reason:
            return f"{name}: {reason}" if at is node else f"{name}: {at.name} is given to it, and {reason}"
    return None


def is_view(node):
    """Whether a node only looks at memory or computes sizes."""
    if node.target is operator.getitem:
        return is_view(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    returns = node.target._schema.returns
    return node.target.namespace == "aten" and all(r.alias_info is not None and not r.alias_info.is_write
                                                   or str(r.type) in ("int", "SymInt", "bool") for r in returns)


def computes(node):
    return node.op == "call_function" and node.target is not operator.getitem and not is_view(node)


def views_apart(graph, every=False):
    """Results that are views or sizes of the graph's inputs, or with `every` of any value, get nodes of their own,
    which PyTorch runs: they cost nothing there. Returns the new nodes."""
    new, apart = set(), {}
    for node in graph.nodes:
        looks = node.op == "call_function" and is_view(node)
        apart[node] = node.op == "placeholder" or (all(apart[n] for n in node.all_input_nodes) if looks else every)

    def copied(node, end):
        if node.op != "call_function" or not is_view(node):
            return node
        given = {n: copied(n, end) for n in node.all_input_nodes}
        with graph.inserting_before(end):
            made = graph.node_copy(node, lambda n: given[n])
        new.add(made)
        return made

    end = next(n for n in reversed(graph.nodes) if n.op == "output")
    for node in end.all_input_nodes:
        if apart[node]:
            end.replace_input_with(node, copied(node, end))
    graph.eliminate_dead_code()
    return new


class _Support(OperatorSupportBase):
    def __init__(self, apart):
        self.apart, self.reasons = apart, {}

    def is_node_supported(self, submodules, node):
        if node.op != "call_function" or node in self.apart:
            return False
        if isinstance(value_of(node), (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return False  # arithmetic on sizes: parts get the results
        reason = why_not(node)
        if reason and node.target is not operator.getitem:
            self.reasons.setdefault(reason, {})[node.name] = node
        return reason is None


class Part(torch.nn.Module):
    """Nodes that one session of the library runs. Where it cannot, PyTorch runs them, and `said` is told why."""

    def __init__(self, graph_module, options, said, frozen=()):
        super().__init__()
        self.eager, self.options, self.said = graph_module, options, said
        self.taken = [n.name for n in graph_module.graph.nodes if n.op == "placeholder"]
        self.work = sum(map(computes, graph_module.graph.nodes))
        self.frozen = [i for i in frozen if isinstance(self._value(i), torch.Tensor)]
        self.lock, self.held = threading.Lock(), None
        self._load({})

    def _value(self, i):
        return value_of([n for n in self.eager.graph.nodes if n.op == "placeholder"][i])

    def _load(self, weights):
        program = Program(self.eager, weights)
        self.model = Model(program.exported, compute=self.options.get("compute"),
                           threads=self.options.get("threads") or torch.get_num_threads())
        place = {name: i for i, name in enumerate(self.taken)}
        self.feeds = [(name, place[of], number) for name, (of, number) in zip(program.names, program.inputs)]
        self.undo = program.undo

    def _hold(self, args):
        """Frozen inputs become weights, and are read again where they have changed since."""
        now = [(args[i].data_ptr(), args[i]._version) for i in self.frozen]
        if now == self.held:
            return
        with self.lock:
            weights = {self.taken[i]: torch.nn.Parameter(args[i].detach(), False) for i in self.frozen}
            if self.held is None:
                self._load(weights)
            else:
                self.model.set_weights(weights)
            self.held = now

    def forward(self, *args):
        try:
            if self.frozen:
                self._hold(args)
            feeds = {name: torch.empty(1).expand(args[i]) if number else args[i] for name, i, number in self.feeds}
            made = list(self.model._run(feeds, []).values())
        except (Error, RuntimeError) as e:  # a RuntimeError of torch: a tensor that DLPack does not take
            self.said(f"a part of {self.work} ops runs in PyTorch this time: {e}")
            return self.eager(*args)
        results = [torch.from_dlpack(x) if back is None else torch.from_dlpack(x).permute(back)
                   for x, back in zip(made, self.undo)]
        return results if len(results) > 1 else results[0]


def _fused(graph_module, apart):
    support = _Support(apart)
    partitioner = CapabilityBasedPartitioner(graph_module, support, allows_single_node_partition=True)
    parts = [p for p in partitioner.propose_partitions() if any(map(computes, p.nodes))]
    return partitioner.fuse_partitions(parts, prefix="qkv_part_"), support.reasons


def split(graph_module, options, said, frozen=(), views=False):
    """frozen: the names of placeholders whose values seldom change. views: whether results that are views must be
    views of the other results, as AOTAutograd has it for a forward graph: it takes their strides and offsets, and
    makes them of the result that they look at."""
    apart = views_apart(graph_module.graph, views)
    whole, found = _fused(graph_module, apart)
    reasons = {reason: list(nodes) for reason, nodes in found.items()}
    parts = []
    for call in [n for n in whole.graph.nodes if n.op == "call_module" and n.target.startswith("qkv_part_")]:
        inner = getattr(whole, call.target)
        try:
            part = Part(inner, options, said, [i for i, n in enumerate(call.args) if n.name in frozen])
        except Exception as e:  # also of torch, which writes the part as a program
            if not isinstance(e, Error):
                said(f"a part cannot be written as a program of torch.export: {type(e).__name__}: {e}")
            reasons.setdefault(str(e), []).extend(n.name for n in inner.graph.nodes if n.op == "call_function")
            continue
        setattr(whole, call.target, part)
        parts.append(part)
    whole.recompile()
    return whole, parts, reasons
