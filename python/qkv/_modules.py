"""from_pt2: a file as a tree of modules, in which the parts of each attention are modules (docs/MODULES.md).

The tree is torch.export.unflatten's, of the file after qkv's rules. A part is cut out of the graph of the module that
it is in: `carve` makes a module of a set of its nodes and calls that in their place. Sets are such that no path leaves
one and comes back.
"""
import dataclasses
import operator
import os
import tempfile
from typing import Optional

import torch

from .model import Model

aten = torch.ops.aten
SDPA = aten.scaled_dot_product_attention.default
PRODUCTS = {aten.linear, aten.matmul, aten.mm, aten.bmm, aten.addmm, aten.baddbmm, aten.convolution, aten.conv1d,
            aten.conv2d, aten.conv3d}
GATES = {aten.mul}
VIEWS = {aten.reshape, aten.view, aten.permute, aten.transpose, aten.roll, aten.slice, aten.unsqueeze, aten.squeeze,
         aten.clone, aten.contiguous, aten.constant_pad_nd, aten.pad, aten.expand, aten.flatten, aten.unflatten,
         aten.cat, aten._unsafe_view}


@dataclasses.dataclass
class Attention:
    """One attention of a tree: paths of its parts, as get_submodule takes them; None where the model has none."""

    path: str
    attention: str
    in_projection: Optional[str] = None
    out_projection: Optional[str] = None
    partition: Optional[str] = None
    reverse: Optional[str] = None


class Part(torch.nn.Module):
    """A part of the module around it. It has no weights of its own: it reads those of that module, under the names of
    the source, so that a state dict is the source's. What replaces it takes the same tensors and returns the same."""

    def __init__(self, owner, graph):
        super().__init__()
        self._owner = [owner]  # not a submodule
        self._graph_module = [torch.fx.GraphModule(owner, graph)]

    @property
    def graph(self):
        return self._graph_module[0].graph

    def forward(self, *args):
        return type(self._graph_module[0]).forward(self._owner[0], *args)

    def extra_repr(self):
        taken = [n.name for n in self.graph.nodes if n.op == "placeholder"]
        return f"{len(self.graph.nodes)} nodes of {', '.join(taken)}"


# ------------------------------------------------------------------ questions about nodes


def _packet(node):
    return getattr(node.target, "overloadpacket", None)


def _tensor(node):
    return not isinstance(node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _data(node):
    """The computed tensors that a node reads."""
    return [n for n in node.all_input_nodes if n.op != "get_attr" and _tensor(n)]


def _has_product(module):
    return any(_product(module, n) for n in module.graph.nodes) if hasattr(module, "graph") else False


def _has_attention(module):
    return any(n.target is SDPA for m in module.modules() if hasattr(m, "graph") for n in m.graph.nodes)


def _product(module, node):
    """Whether a node multiplies with weights: itself, or the module that it calls."""
    if node.op == "call_module":
        child = module.get_submodule(node.target)
        return not isinstance(child, Part) and not _has_attention(child) and _has_product(child)
    return node.op == "call_function" and _packet(node) in PRODUCTS and len(_data(node)) < len(node.all_input_nodes)


def _is_view(node):
    return node.op == "call_function" and _packet(node) in VIEWS and len(set(_data(node))) == 1


def _of_windows(chain):
    """Whether views cut a map into windows, put it together or shift it."""
    return any(_packet(n) is aten.roll or getattr(n.meta.get("val"), "ndim", 0) > 4 for n in chain)


def _before(nodes, ends=()):
    """These nodes and all that they read, not beyond those of `ends`."""
    found, todo = set(), list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += [] if node in ends else node.all_input_nodes
    return found


# ------------------------------------------------------------------ cutting


def _sorted(graph):
    """Moves nodes so that each stands after what it reads."""
    done, last = set(), None
    for first in list(graph.nodes):
        todo = [first]
        while todo:
            node = todo[-1]
            missing = [n for n in node.all_input_nodes if n not in done]
            if node in done or not missing:
                todo.pop()
                if node not in done:
                    done.add(node)
                    if last is not None:
                        last.append(node)
                    last = node
            todo += missing if node not in done else []


def _own_sizes(given):
    """Sizes of the tensors that a region is given, which it reads itself."""
    return [n for n in given if n.target is aten.sym_size.int and n.args[0] in given and n.op == "call_function"]


def _free_name(module, name):
    names = (f"{name}_{i}" if i else name for i in range(10**6))
    return next(n for n in names if not hasattr(module, n))


def carve(module, name, region, first=()):
    """Makes a Part of the region (nodes of the module's graph) and returns its name in the module. Inputs and outputs
    stand in the order of `first`, then in that of the graph."""
    order = {n: i for i, n in enumerate((*first, *(n for n in module.graph.nodes if n not in first)))}
    inside = [n for n in module.graph.nodes if n in region]
    read = sorted({i for n in inside for i in n.all_input_nodes if i not in region}, key=order.get)
    weights = [n for n in read if n.op == "get_attr"]
    given = [n for n in read if n.op != "get_attr"]
    sizes = _own_sizes(given)
    given = [n for n in given if n not in sizes]
    results = sorted((n for n in inside if any(u not in region for u in n.users)), key=order.get)
    graph, copies = torch.fx.Graph(), {}
    for node in given:
        copies[node] = graph.placeholder("given" if node.name == "self" else node.name)
        copies[node].meta = dict(node.meta)
    for node in (*weights, *sizes, *inside):
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    made = tuple(copies[n] for n in results)
    graph.output(made if len(made) > 1 else made[0])
    graph.lint()
    name = _free_name(module, name)
    setattr(module, name, Part(module, graph))
    with module.graph.inserting_after(inside[-1]):
        call = module.graph.create_node("call_module", name, tuple(given))
    call.meta = {"val": tuple(n.meta.get("val") for n in results) if len(results) > 1 else results[0].meta.get("val")}
    after = call
    for i, node in enumerate(results):
        new = call
        if len(results) > 1:
            with module.graph.inserting_after(after):
                new = after = module.graph.call_function(operator.getitem, (call, i))
            new.meta = {"val": node.meta.get("val")}
        for user in [u for u in node.users if u not in region]:
            user.replace_input_with(node, new)
    for node in reversed(inside):
        module.graph.erase_node(node)
    for node in (*sizes, *weights):
        if not node.users:
            module.graph.erase_node(node)
    _sorted(module.graph)
    module.finalize()
    return name


# ------------------------------------------------------------------ finding


def _projections(module, ends):
    """(region, products): what makes q, k and v from the inputs of the products with weights that feed them."""
    products = set()
    todo, seen = list(ends), set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if _product(module, node):
            products.add(node)
        else:
            todo += _data(node)
    outside = _before(i for p in products for i in _data(p))
    region = {n for n in _before(ends) - outside if n.op not in ("placeholder", "get_attr")}
    return region if products else set(), products & region


def _out_projection(module, start):
    """(region, product): from an attention's result to the first product with weights; (None, None): the graph ends
    before; (set(), None): something else is in between."""
    after = {start}
    for node in list(module.graph.nodes):
        if node is start or after.isdisjoint(node.all_input_nodes):
            continue
        if node.op == "output":
            return (None, None) if len(node.all_input_nodes) == 1 else (set(), None)
        if not _tensor(node):
            continue
        if _product(module, node):
            after.add(node)
            return (after & _before([node])) - {start}, node
        if any(n not in after for n in _data(node)) and _packet(node) not in GATES or \
                node.op == "call_module" and isinstance(module.get_submodule(node.target), Part):
            return set(), None
        after.add(node)
    return set(), None


def _views_back(node):
    """The chain of views that ends in `node`, and what it begins with."""
    chain = []
    while _is_view(node):
        chain.append(node)
        node = _data(node)[0]
    return chain, node


def _views_on(node):
    """The chain of views that begins with the only reader of `node`."""
    chain = []
    while len(readers := [u for u in node.users if _tensor(u)]) == 1 and _is_view(readers[0]):
        node = readers[0]
        chain.append(node)
    return chain, node


class _Cut:
    def __init__(self, root):
        self.root = root

    def above(self, path):
        """(path of the module around, node of its graph that calls this one); (None, None) at the root."""
        around = path
        while around:
            around = around.rpartition(".")[0]
            module = self.root.get_submodule(around) if around else self.root
            target = path[len(around) + 1 if around else 0:]
            for node in getattr(getattr(module, "graph", None), "nodes", ()):
                if node.op == "call_module" and node.target == target:
                    return around, node
        return None, None

    def at(self, path):
        return self.root.get_submodule(path) if path else self.root

    def carved(self, path, name, region, first=()):
        made = carve(self.at(path), name, region, first)
        return f"{path}.{made}" if path else made

    def outside(self, path, node):
        """What a placeholder is in the module around."""
        around, call = self.above(path)
        if call is None:
            return None, None
        taken = [n for n in self.at(path).graph.nodes if n.op == "placeholder"]
        return around, call.args[taken.index(node)] if taken.index(node) < len(call.args) else \
            call.kwargs[node.target]

    def in_projection(self, path, ends):
        """Cuts it out, in the module of the attention or one around it. Returns its path, the path of the module and
        the tensor that it projects, if it is one."""
        region, products = _projections(self.at(path), ends)
        if not region:
            inside = {n for n in _before(ends) if n.op == "placeholder" and _tensor(n)}
            if len(inside) > len(ends):
                return None, path, None
            found = [self.outside(path, n) for n in ends if n.op == "placeholder"]
            if len(found) < len(ends) or any(node is None for _, node in found):
                return None, path, None
            return self.in_projection(found[0][0], [node for _, node in found])
        sources = {i for p in products for i in _data(p)}
        made = self.carved(path, "in_projection", region, ends)
        return made, path, sources.pop() if len(sources) == 1 else None

    def out_projection(self, path, start):
        """Cuts it out. Returns its path, the module's, and the node that calls it."""
        module = self.at(path)
        region, product = _out_projection(module, start)
        if region is None:
            around, call = self.above(path)
            return self.out_projection(around, call) if call is not None else (None, path, start)
        if not region:
            return None, path, start
        made = self.carved(path, "out_projection", region)
        return made, path, self._call_of(path, made)

    def _call_of(self, path, part):
        name = part[len(path) + 1 if path else 0:]
        return next(n for n in self.at(path).graph.nodes if n.op == "call_module" and n.target == name)

    def partition(self, path, node):
        while node is not None:
            chain, node = _views_back(node)
            if _of_windows(chain):
                return self.carved(path, "partition", set(chain))
            if node.op != "placeholder":
                return None
            path, node = self.outside(path, node)

    def reverse(self, path, node):
        while node is not None:
            chain, last = _views_on(node)
            if _of_windows(chain):
                return self.carved(path, "reverse", set(chain))
            if not any(u.op == "output" and len(u.all_input_nodes) == 1 for u in last.users):
                return None
            path, node = self.above(path)

    def attention(self, path, node):
        ends = [n for n in node.args[:3]]
        made = self.carved(path, "attention", {node}, node.all_input_nodes)
        call = self._call_of(path, made)
        found = Attention(path, made)
        found.out_projection, end_path, end = self.out_projection(path, call)
        found.reverse = self.reverse(end_path, end)
        found.in_projection, begin_path, source = self.in_projection(path, list(dict.fromkeys(ends)))
        found.partition = self.partition(begin_path, source) if source is not None else None
        return found


# ------------------------------------------------------------------ the tree


def from_pt2(path):
    """The model of a .pt2 or ONNX file (a path, bytes, an ExportedProgram) as an nn.Module: submodules and weights are
    named as in the source, and each attention that qkv's rules recognise is one scaled_dot_product_attention in a
    module of its own. `tree.attentions` lists them with their parts: in_projection, attention, out_projection, and
    for windows partition and reverse (docs/MODULES.md). The tree trains and exports."""
    model = Model(path)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.pt2")
        model.rewrite(phases=("recompose", "convert"))
        model.save(file)
        program = torch.export.load(file)
    stacks = [n.meta.get("nn_module_stack") for n in program.graph.nodes]
    root = next(([next(iter(s.items()))] for s in stacks if s), [("", ("", "torch.nn.Module"))])
    for node, stack in zip(program.graph.nodes, stacks):
        if not stack and node.op not in ("placeholder", "output"):  # of no module that the file names
            node.meta["nn_module_stack"] = dict(root)
    tree = torch.export.unflatten(program)
    cut = _Cut(tree)
    places = [(name, node) for name, module in tree.named_modules() if hasattr(module, "finalize")
              for node in module.graph.nodes if node.op == "call_function" and node.target is SDPA]
    tree.attentions = [cut.attention(name, node) for name, node in places]
    return tree
