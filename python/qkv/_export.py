"""export: writes a module as a .pt2 that runs at every declared size,
and compares the C library with PyTorch at several."""
import inspect
import itertools
import json
import math
import os
import re
import tempfile
import traceback
import zipfile
from contextlib import contextmanager

import sympy
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from ._flex import written_out
from ._lib import DTYPES, Error, lib
from .model import Model


class ExportReport:
    """What was checked. `differences`: [(sizes, largest absolute, largest relative to the output's peak)];
    `narrowed`: declared sizes that guards exclude, as sentences; `notes`: changes made to the example."""

    def __init__(self, path):
        self.path, self.differences, self.narrowed, self.notes = path, [], [], []

    @property
    def max_abs(self):
        return max((d[1] for d in self.differences), default=0.0)

    @property
    def max_rel(self):
        return max((d[2] for d in self.differences), default=0.0)

    def __str__(self):
        lines = [f"{self.path}: {os.path.getsize(self.path)} bytes, checked at {len(self.differences)} sizes"]
        for sizes, a, r in self.differences:
            lines.append(f"  {' '.join(f'{k}={v}' for k, v in sizes.items()) or 'fixed sizes'}: largest difference "
                         f"{a:.2e}, {r:.2e} of the peak")
        return "\n".join(lines + [f"  narrowed: {s}" for s in self.narrowed] + [f"  note: {s}" for s in self.notes])


# ------------------------------------------------------------------ dynamic shapes


class _Hint:
    """An axis left to torch (Dim.AUTO, Dim.DYNAMIC, with or without a range):
    free until the exported program constrains it."""

    def __init__(self, name, hint):
        self.__name__ = name
        self.ranged = hint.min is not None or hint.max is not None
        self.min, self.max = hint.min or 0, hint.max or 2**31


def _key(entry):
    """Of an entry of a path of pytree: the key, index or name of an attribute."""
    return next(getattr(entry, n) for n in ("key", "idx", "name") if hasattr(entry, n))


def _children(value):
    """[(key, child)] of a container: dict, list, or one that is registered with pytree; of a leaf, nothing."""
    found = pytree.tree_flatten_with_path(value, is_leaf=lambda x: x is not value)[0]
    return [(_key(path[0]), child) for path, child in found if path]


def _given(module, args, kwargs):
    """Arguments as a tuple, and a dict in the order of the signature, in which the program takes them."""
    if not isinstance(module, torch.nn.Module):
        found = "a class: make an object of it" if isinstance(module, type) else \
            f"{type(module).__name__}: call it in the forward of a module"
        raise Error(f"module: expected a torch.nn.Module, found {found}", 2)
    names = list(inspect.signature(module.forward).parameters)
    place = {n: names.index(n) if n in names else len(names) for n in kwargs or ()}
    return tuple(args), {n: kwargs[n] for n in sorted(place, key=place.get)}


def _bound(args, kwargs, module):
    """{name: value} of what forward is called with, and the name of the parameter that collects other keywords."""
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as e:
        raise Error(f"args and kwargs do not fit {type(module).__name__}.forward{signature}: {e}", 2) from e
    return bound, next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)


def _by_name(shapes, bound, collected):
    """dynamic_shapes as {name of an argument: its part}."""
    names, rest = ", ".join(bound), bound.get(collected, {})
    if not isinstance(shapes, (dict, list, tuple, type(None))):
        raise Error(f"dynamic_shapes: expected a dict or a tuple with an entry for each of {names}, found "
                    f"{type(shapes).__name__}", 2)
    if isinstance(shapes, (list, tuple)):
        if len(shapes) != len(bound):
            raise Error(f"dynamic_shapes: expected {len(bound)} entries, for {names}, found {len(shapes)}", 2)
        shapes = dict(zip(bound, shapes))
    for name in shapes or ():
        if name not in bound and name not in rest:
            raise Error(f"dynamic_shapes: '{name}' is not an argument: expected {names}", 2)
    of_rest = [n for n in rest if (shapes or {}).get(n) or ((shapes or {}).get(collected) or {}).get(n)]
    if of_rest:
        raise Error(f"dynamic_shapes: torch.export takes no dynamic sizes of '{of_rest[0]}', which forward collects in "
                    f"**{collected}: name it in the signature of forward", 2)
    return shapes or {}


def _axes(spec, tensor, name):
    """Of a tensor: its part of dynamic_shapes as {axis: Dim}."""
    place, rank = f"dynamic_shapes['{name}']", tensor.dim()
    if isinstance(spec, (list, tuple)):
        if len(spec) != rank:
            raise Error(f"{place}: expected {rank} entries, one for each axis, found {len(spec)}", 2)
        return dict(enumerate(spec))
    if not isinstance(spec, (dict, type(None))):
        raise Error(f"{place}: expected {{axis: Dim}}, found {spec!r}", 2)
    for axis in spec or ():
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise Error(f"{place}: found axis {axis!r}, expected 0 to {rank - 1} for a tensor of {rank} axes"
                        if rank else f"{place}: found axis {axis!r} of a tensor without axes", 2)
    return dict(spec or {})


def _parts(spec, keys, name):
    """Of a container: its part of dynamic_shapes as {key: part}."""
    if isinstance(spec, (list, tuple)) and len(spec) == len(keys):
        return dict(zip(keys, spec))
    if spec is None or isinstance(spec, dict) and set(spec) <= set(keys):
        return spec or {}
    raise Error(f"dynamic_shapes of '{name}': expected a list or dict with an entry for each of "
                f"{', '.join(map(str, keys))}, found {spec!r}", 2)


def _flat_specs(args, kwargs, dynamic_shapes, module):
    """One {axis: Dim} per tensor leaf, in order, and the leaf's name."""
    bound, collected = _bound(args, kwargs, module)
    dynamic_shapes = _by_name(dynamic_shapes, bound, collected)
    out, specialised = [], {}

    def free(dim, name, axis, size):
        if not isinstance(dim, type(Dim.AUTO)):
            return dim
        hint = _Hint(f"{name}.{axis}", dim)
        # sizes of 0 and 1 are replaced, equal ones together
        return specialised.setdefault(size, hint) if size < 2 else hint

    def walk(value, spec, name):
        if isinstance(value, torch.Tensor):
            axes, static = _axes(spec, value, name), (None, Dim.STATIC)
            out.append((name, value, {a: free(d, name, a, value.shape[a]) for a, d in axes.items() if d not in static
                                      and not isinstance(d, int)}))
            return
        children = _children(value)
        of = _parts(spec, [key for key, _ in children], name)
        for key, child in children:
            walk(child, of.get(key), f"{name}_{key}")

    for name, value in bound.items():
        walk(value, dynamic_shapes.get(name), name)
    return out


def _linear(dim):
    """(root, factor, offset) of a Dim, of 14*h, h + 1 ..., or of a _Hint."""
    root = getattr(dim, "root", dim)
    if root is dim:
        return root, 1, 0
    at = lambda v: int(dim.fn(v))
    return root, at(3) - at(2), at(2) - 2 * (at(3) - at(2))


def _bounds(root):
    hi = root.max if isinstance(root.max, int) and root.max < 2**31 else 2**31
    return max(root.min, 0), hi


def _choose(specs, apart=True, scaled=False):
    """Example sizes per root Dim: the caller's where torch does not specialise them, else fresh ones. torch fixes
    sizes 0 and 1, and sizes that coincide with another may be taken for the same (apart=False keeps those).
    scaled=True: axes left to torch grow with the sizes that were replaced, as a mask of H*W does."""
    given, notes, used = {}, [], set()
    for name, tensor, axes in specs:
        for axis, dim in axes.items():
            root, factor, offset = _linear(dim)
            if root.__name__ not in given:
                given[root.__name__] = (root, (tensor.shape[axis] - offset) // factor)
        used |= {s for a, s in enumerate(tensor.shape) if a not in axes}
    sizes = {}
    for name, (root, value) in given.items():
        lo, hi = _bounds(root)
        if value >= 2 and lo <= value <= hi and (not apart or isinstance(root, _Hint) or value not in sizes.values()):
            sizes[name] = value
            continue
        pool = [v for v in itertools.chain(range(max(lo, 3), min(hi, 200) + 1), range(max(lo, 2), min(hi, 3) + 1))
                if v >= 2]
        fresh = next((v for v in pool if v not in sizes.values() and v not in used), pool[0] if pool else value)
        notes.append(f"size {name} = {value} of the example would be taken for a constant: {fresh} was used instead")
        sizes[name] = fresh
    if scaled:
        new, old = (math.prod(x)
                    for x in zip(*[(sizes[n], max(v, 1)) for n, (_, v) in given.items() if sizes[n] != v], (1, 1)))
        sizes.update({n: sizes[n] * new // old for n, (root, v) in given.items() if isinstance(root, _Hint)
                      and sizes[n] == v})
    return {n: given[n][0] for n in given}, sizes, notes


def _like(tensor, shape, seed):
    """A tensor of another shape with similar values: floats with the same spread,
    integers and bools drawn from the given ones."""
    if tuple(shape) == tuple(tensor.shape):
        return tensor.detach().clone()
    g = torch.Generator().manual_seed(seed)
    if tensor.dtype.is_floating_point:
        finite = tensor[torch.isfinite(tensor)].double()
        spread = float(finite.std()) if finite.numel() > 1 else 1.0
        out = torch.randn(shape, generator=g, dtype=torch.float64) * (spread or 1.0)
        # an additive mask: its infinities go into the last column, never a whole row
        if finite.numel() < tensor.numel():
            out = torch.zeros(shape, dtype=torch.float64)
            if out.ndim and out.shape[-1] > 1:
                out[..., -1] = float("-inf")
        return out.to(tensor.dtype)
    flat = tensor.reshape(-1)
    if not flat.numel():
        return torch.zeros(shape, dtype=tensor.dtype)
    n = 1
    for s in shape:
        n *= s
    out = flat[torch.randint(len(flat), (n,), generator=g)].reshape(shape).clone()
    if set(flat.tolist()) <= {0, 1} and out.ndim:  # a mask keeps its first element
        out[..., 0] = tensor.reshape(-1, tensor.shape[-1])[0, 0] if tensor.ndim else flat[0]
    return out


def _shape_at(tensor, axes, sizes):
    shape = list(tensor.shape)
    for axis, dim in axes.items():
        root, factor, offset = _linear(dim)
        shape[axis] = sizes[root.__name__] * factor + offset
    return shape


def _resized(args, kwargs, specs, sizes, seed):
    """The example with its dynamic axes at `sizes`; no two leaves share memory."""
    leaves, tree = pytree.tree_flatten((args, kwargs))
    out, k = [], 0
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            out.append(leaf)
            continue
        out.append(_like(leaf, _shape_at(leaf, specs[k][2], sizes), seed + k))
        k += 1
    return pytree.tree_unflatten(out, tree)


# ------------------------------------------------------------------ guards

_SIZE = re.compile(r"L\['(\w+)'\]((?:\[[^\]]*\])*)\.size\(\)\[(\d+)\]")


def _input_name(match):
    return "_".join([match[1]] + re.findall(r"\['?(.*?)'?\]", match[2]))


def _readable(text):
    """L['x'][0].size()[1] as x_0.size(1)."""
    return _SIZE.sub(lambda m: f"{_input_name(m)}.size({m[3]})", text)


class _Sized:
    """Stands for a tensor in the text of a guard."""

    def __init__(self, shape):
        self.size = lambda: shape


def _evaluated(text, args, kwargs, module, specs, sizes):
    """The value of a guard's text at these sizes (numbers or symbols); None: the guard has another form."""
    leaves = iter([_Sized(_shape_at(tensor, axes, sizes)) for _, tensor, axes in specs])

    def sized(value):  # containers of any kind as dicts: guards take what is in them by key or index
        if isinstance(value, torch.Tensor):
            return next(leaves)
        return {k: sized(v) for k, v in _children(value)} or value

    inputs = sized(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    try:
        return eval(text, {"__builtins__": {}, "max": max, "min": min}, {"L": inputs, **sizes})
    except (KeyError, NameError, TypeError, ZeroDivisionError):
        return None


def _tied(program, args, kwargs, module, specs, at):
    """`at` with the sizes that a guard makes equal to an expression of others:
    mask.size(0) == (image.size(2)//14)*(image.size(3)//14)."""
    equalities = [g.split(" == ") for g in getattr(program, "_guards_code", None) or []
                  if re.fullmatch(r"[^=!<>]+ == [^=!<>]+", g)]
    axes_of = {name: axes for name, _, axes in specs}
    out = dict(at)

    def value(text):
        return _evaluated(text, args, kwargs, module, specs, out)

    def settled():
        for one, other in equalities + [e[::-1] for e in equalities]:
            size = _SIZE.fullmatch(one)
            dim = axes_of.get(_input_name(size), {}).get(int(size[3])) if size else None
            is_, must = (value(one), value(other)) if dim is not None else (None, None)
            if is_ is not None and must is not None and is_ != must:
                root, factor, offset = _linear(dim)
                out[root.__name__] = (must - offset) // factor
                return False
        return True

    for _ in range(4 * len(equalities)):
        if settled():
            break
    return out


def _followed(program, specs, at):
    """`at` with the axes left to torch as the program ties them: its symbols take the named sizes,
    then the wanted ones inside their ranges."""
    shapes = {n.name: n.meta["val"].shape for n in program.graph.nodes if n.op == "placeholder"
              and isinstance(n.meta.get("val"), torch.Tensor)}
    values, out, hints = {}, dict(at), []
    for name, _, axes in specs:
        for axis, dim in axes.items():
            size = shapes[name][axis] if name in shapes else None
            root, factor, offset = _linear(dim)
            if isinstance(root, _Hint):
                hints.append((root.__name__, size))
            elif isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                values[size.node.expr] = at[root.__name__] * factor + offset
    for name, size in hints:
        if isinstance(size, int):
            out[name] = size
        elif size is not None:
            for symbol in size.node.expr.free_symbols - set(values):
                r = program.range_constraints.get(symbol)
                want = at[name] if size.node.expr == symbol else size.node.shape_env.backed_var_to_val[symbol]
                values[symbol] = int(want) if r is None else int(min(max(want, r.lower), r.upper))
            out[name] = int(size.node.expr.subs(values))
    return out


def _can_be_equal(one, other, symbols):
    """Whether two expressions of sizes can be equal: not if a factor of their difference never is 0. A size that was
    declared without a smallest one counts from 1, since nothing is asked of empty tensors."""
    ranges = {symbol: ValueRanges(max(lo, 1), max(hi, 1)) for symbol, lo, hi in symbols}
    try:
        factor, factors = sympy.factor_list(sympy.sympify(one) - other)
        return factor == 0 or any(0 in bound_sympy(f, ranges) for f, _ in factors)
    except (sympy.PolynomialError, AttributeError, KeyError, NotImplementedError):  # floor, Mod
        return True


def _narrowed(program, args, kwargs, module, specs):
    """Sentences about what the saved program refuses although it was declared."""
    placeholders = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    ranges = {str(k): v for k, v in program.range_constraints.items()}
    out = []
    for name, _, axes in specs:
        value = placeholders.get(name)
        for axis, dim in axes.items():
            root, factor, offset = _linear(dim)
            if value is None:
                continue
            lo, hi = _bounds(root)
            lo, hi = lo * factor + offset, hi * factor + offset
            size = value.shape[axis]
            if isinstance(size, int) or size.node.expr.is_number:
                declared = "left to torch" if isinstance(root, _Hint) and not root.ranged else f"declared {lo} to {hi}"
                out.append(f"input '{name}' axis {axis}: {declared}, exported as the constant {size}")
                continue
            if isinstance(root, _Hint) and not root.ranged:
                continue
            r = ranges.get(str(size.node.expr))
            if r is None:
                continue
            got = [int(r.lower), int(r.upper) if "oo" not in str(r.upper) else 2**31]
            if got[0] > max(lo, 0) or (got[1] < hi and hi < 2**31):
                out.append(f"input '{name}' axis {axis}: declared {lo} to {hi}, the program takes {got[0]} to {got[1]}")
    roots = {root.__name__: root for _, _, axes in specs for root, _, _ in map(_linear, axes.values())}
    at = {name: sympy.Symbol(f"s{i}", integer=True) for i, name in enumerate(roots)}
    symbols = [(at[name], *_bounds(root)) for name, root in roots.items()]
    for guard in getattr(program, "_guards_code", None) or []:
        if guard.count("!=") != 1:
            continue
        sides = [_evaluated(side.strip(), args, kwargs, module, specs, at) for side in guard.split("!=")]
        if None in sides or _can_be_equal(*sides, symbols):
            out.append(f"PyTorch refuses {_readable(guard).replace('!=', '==')}; qkv runs such sizes, since the "
                       "condition is about strides alone")
    return list(dict.fromkeys(out))


# ------------------------------------------------------------------ refusals

_AT = rf"(?:(\S+) = )?({_SIZE.pattern})"


def _where(name, size):
    """input 'mask' axis 0 (t)"""
    m = _SIZE.fullmatch(size)
    return f"input '{_input_name(m)}' axis {m[3]}" + (f" ({name})" if name and not _SIZE.fullmatch(name) else "")


def _refusals(text):
    """What to declare instead, for each line of torch's message about constraints."""
    out, suggested = [], dict(re.findall(r"^  (\w+) = (Dim\(.*\))$", text, re.M))
    for line in text.splitlines():
        line = line.strip().removeprefix("- ")
        if m := re.match(r"You marked (.+?) as dynamic but your code specialized it to be a constant \((\d+)\)", line):
            out.append(f"{_readable(m[1])} is always {m[2]} in this module: leave it out of dynamic_shapes, or make "
                       "what fixes it (another input, a "
                       "buffer or a number of that size) dynamic as well")
        elif m := re.match(rf"The values of {_AT} and {_AT} must always be equal", line):
            n = len(m.groups()) // 2
            names = [g for g in (m[n + 1], m[1]) if g and not _SIZE.fullmatch(g)]
            out.append(f"{_where(m[1], m[2])} always equals {_where(m[n + 1], m[n + 2])}: declare "
                       f"{names[0] if names else 'Dim.AUTO'} for both")
        elif m := re.match(rf"The values of {_AT} must always be related to the values of .* by (.+) = (.+?)\.?$",
                           line):
            out.append(f"{_where(m[1], m[2])} is always {_readable(m[m.lastindex])}: declare "
                       f"{_readable(m[m.lastindex])} for it")
        elif m := re.match(rf"Not all values of {_AT} in the specified range (.+?) satisfy the generated guard "
                           r"(.+?)\.?$", line):
            fix = f"{m[1]} = {suggested[m[1]]}" if m[1] in suggested else "a range that keeps it"
            out.append(f"{_where(m[1], m[2])} is declared as {_readable(m[m.lastindex - 1])}, and the module needs "
                       f"{_readable(m[m.lastindex])}: declare "
                       f"{fix}, or Dim.AUTO")
    return list(dict.fromkeys(out))


def _unsupported(error, module, args, kwargs):
    """The sentence for an input of a class that is not registered with pytree; None for other errors."""
    m = re.match(r"Unsupported input type (<class '.+?'>)", str(error))
    if not m:
        return None
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    at, value = next((path, x) for path, x in pytree.tree_flatten_with_path(dict(bound))[0] if str(type(x)) == m[1])
    todo = "pass tensors, numbers, or lists, tuples and dicts of them, or register the class with " \
           "torch.utils._pytree.register_pytree_node"
    if type(value).__module__ == "transformers.cache_utils":
        todo = "call transformers.integrations.executorch.register_dynamic_cache_export_support() before, which " \
               "makes the keys and values of a DynamicCache inputs and outputs, or export with " \
               "python -m qkv.recipes.causal_lm"
    elif type(value).__name__ == "BlockMask":
        todo = "its mask_mod is code; call create_block_mask in forward, with the tensors that it reads as inputs"
    name = "_".join(str(_key(k)) for k in at)
    return f"input '{name}' is of class {type(value).__name__}, which torch.export does not take: {todo}"


def _explained(error, notes, module):
    """The refusal as one sentence, or None if `error` is clear enough."""
    text = str(error)
    if m := re.match(r"Found <class '(?:.*\.)?(\w+)'> in output, which is not a known type", text):
        todo = "return tensors, or lists, tuples and dicts of them"
        if "use_cache" in inspect.signature(module.forward).parameters:
            todo = "pass kwargs={'use_cache': False}, with which it keeps no keys and values for a next call"
        return f"the module returns a {m[1]}, which an exported program cannot: {todo}"
    if m := re.search(r"Could not guard on data-dependent expression (.+?)(?: \(unhinted: (.+?)\))?\.  ", text):
        frames = [(f.f_code.co_filename, n) for f, n in traceback.walk_tb(error.__traceback__)]
        own = [f"{file}:{n}" for file, n in frames if not (file.startswith("<") or file == __file__
                                                           or os.sep + "torch" + os.sep in file)]
        of_nn = any(file in (nn.functional.__file__, nn.modules.transformer.__file__) for file, _ in frames)
        at = f" ({own[-1]})" if own else ""
        todo = ("call qkv.nn.replace_mha(model) before" if of_nn
                else "state with torch._check what is known about it, or compute both ways and take torch.where")
        return f"the module branches on a data-dependent size or value, {m[2] or m[1]}{at}: {todo}"
    sentences = _refusals(text)
    if sentences:
        return "; ".join(sentences)
    if notes:
        return f"with another example ({'; '.join(notes)}) the module stops: {text.splitlines()[0] if text else type(error).__name__}; give an example " \
               "whose dynamic sizes are 2 or more and fit together"
    return None


def _exported(module, args, kwargs, dynamic_shapes, specs):
    """The program, the roots, the example's sizes and notes.
    Sizes that are equal in the example are made different where the module allows it."""
    tried, first = [], None
    for apart, scaled in ((True, False), (False, False), (False, True)):
        roots, sizes, notes = _choose(specs, apart, scaled)
        if sizes in tried:
            continue
        tried.append(sizes)
        for oblivious in (False, True):
            a, k = _resized(args, kwargs, specs, sizes, 0)
            # strides of tensors of size 1 are compared while tracing; torch can leave that undecided,
            # at the price of other conditions
            try:
                with torch.fx.experimental._config.patch(backed_size_oblivious=oblivious), written_out():
                    return torch.export.export(module, a, k, dynamic_shapes=dynamic_shapes,
                                               strict=False), roots, sizes, notes
            except Exception as e:
                if not oblivious and not scaled:
                    first = (e, notes)
                if "generated guard" not in str(e):
                    break
    error, notes = first
    sentence = _unsupported(error, module, args, kwargs) or _explained(error, notes, module)
    if sentence is None:
        raise error
    raise Error(f"torch.export refuses: {sentence}", 2) from error


@contextmanager
def _without_fast_path():
    """No gradients, and not the fast path of nn.TransformerEncoder: it zeroes padded rows, which no exported graph
    does."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def exported(module, args, kwargs=None, dynamic_shapes=None):
    """The program that export writes."""
    args, kwargs = _given(module, args, kwargs)
    module = module.eval()
    with _without_fast_path():
        return _exported(module, args, kwargs, dynamic_shapes, _flat_specs(args, kwargs, dynamic_shapes, module))[0]


# ------------------------------------------------------------------ saving


def strip_metadata(path):
    """Node metadata (stack traces with this machine's paths), apart from the modules around a node, and sample inputs
    (a pickle) are removed from the archive; weights keep their alignment."""
    with zipfile.ZipFile(path) as z:
        model = [n for n in z.namelist() if n.endswith(".json") and "/models/" in n][0]
        program = json.loads(z.read(model))

        def clean(graph):
            for node in graph["nodes"]:
                node["metadata"] = {k: v for k, v in node["metadata"].items() if k == "nn_module_stack"}
                for i in node["inputs"]:
                    if "as_graph" in i["arg"]:
                        clean(i["arg"]["as_graph"]["graph"])

        clean(program["graph_module"]["graph"])
        fd, temporary = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)))
        with os.fdopen(fd, "wb") as f, zipfile.ZipFile(f, "w", zipfile.ZIP_STORED, allowZip64=True) as out:
            for info in z.infolist():
                entry = zipfile.ZipInfo(info.filename)
                if info.filename == model:
                    data = json.dumps(program, separators=(",", ":")).encode()
                elif "/sample_inputs/" in info.filename:
                    data = b""
                else:
                    data = z.read(info)
                head = f.tell() + 30 + len(entry.filename.encode()) + (20 if len(data) >= 2**31 - 1 else 0) + 4
                pad = -head % 64  # weights are mapped: keep torch's alignment
                entry.extra = b"FB" + pad.to_bytes(2, "little") + b"Z" * pad
                out.writestr(entry, data)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def _size_names(program, specs):
    """{symbol of the program: name of the Dim}, as far as the caller named them."""
    inputs = [n.meta["val"] for n, s in zip(program.graph.nodes, program.graph_signature.input_specs)
              if s.kind.name == "USER_INPUT" and isinstance(n.meta.get("val"), torch.Tensor)]
    found = {}
    for value, (_, _, axes) in zip(inputs, specs):
        for axis, dim in axes.items():
            size = value.shape[axis]
            root = _linear(dim)[0]
            free = size.node.expr.free_symbols if isinstance(size, torch.SymInt) else ()
            if len(free) == 1 and not isinstance(root, _Hint):
                found.setdefault(str(next(iter(free))), root.__name__)
    return {k: v for k, v in found.items() if list(found.values()).count(v) == 1}


def _takes(program, args, kwargs):
    """Whether the exported program's own guards allow these sizes."""
    try:
        program.module()(*args, **kwargs)
    except (RuntimeError, AssertionError):
        return False
    return True


def _compare(expected, got, allowed):
    """The largest difference, and as a share of its output's largest value; where one is larger than what is allowed
    of its output, that of this output and what is allowed."""
    worst = rel = 0.0
    failed = None
    leaves = [t for t in pytree.tree_leaves(expected) if isinstance(t, torch.Tensor)]
    if len(leaves) != len(got):
        raise Error(f"PyTorch gives {len(leaves)} tensors, the C library {len(got)}", 1)
    for i, t in enumerate(leaves):
        y = torch.from_dlpack(got[f"output_{i}"]) if t.numel() else t
        if y.shape != t.shape or y.dtype != t.dtype:
            raise Error(f"output_{i}: PyTorch gives {t.dtype} {tuple(t.shape)}, the C library {y.dtype} "
                        f"{tuple(y.shape)}", 1)
        a, b = (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in (y, t))
        a, b = a.double(), b.double()
        finite = torch.isfinite(b)
        if not torch.equal(torch.nan_to_num(a[~finite], 7.0),
                           torch.nan_to_num(b[~finite], 7.0)) or not torch.isfinite(a[finite]).all():
            raise Error(f"output_{i}: NaN and infinities differ", 1)
        if finite.any():
            d = float((a - b)[finite].abs().max())
            share = d / max(float(b[finite].abs().max()), 1e-30)
            worst, rel = max(worst, d), max(rel, share)
            if share > allowed[i] and not failed:
                failed = d, share, allowed[i]
    return worst, rel, failed


def _allowed(model):
    """Of each output; of float64 what float32 has, as models compute parts in float32."""
    least = lib().qkv_tolerance(DTYPES.index("f32"))
    return [max(share, least) if share else 0 for share in model._tolerances()]


def export(module, args, kwargs=None, dynamic_shapes=None, path="model.pt2", checks=2, tolerance=None):
    """Exports `module` with torch.export, saves it to `path`, runs the file in the C library at the example's sizes
    and at `checks` more, and compares with eager PyTorch. Returns an ExportReport. Raises qkv.Error if results differ
    by more than `tolerance` relative to an output's largest value (default: what `qkv verify` takes of each output, by
    its dtype and those that it comes from, and at least float32's, 2e-5; integers and bools are equal).

    Dynamic sizes of the example that torch would specialize (0, 1, outside the Dim's range, two equal ones) are
    replaced. Tensors that are passed twice are copied, since export would merge them into one input.
    """
    args, kwargs = _given(module, args, kwargs)
    module = module.eval()
    specs = _flat_specs(args, kwargs, dynamic_shapes, module)
    shared, seen = [], set()
    for name, tensor, _ in specs:
        if tensor.data_ptr() in seen and tensor.numel():
            shared.append(f"input '{name}' shares memory with another: it was copied, so that both stay inputs")
        seen.add(tensor.data_ptr())
    report = ExportReport(str(path))
    with _without_fast_path():
        program, roots, sizes, notes = _exported(module, args, kwargs, dynamic_shapes, specs)
        report.notes = notes + shared
        report.narrowed = _narrowed(program, args, kwargs, module, specs)
        names = _size_names(program, specs)
        torch.export.save(program, str(path), extra_files={"qkv_sizes.json": json.dumps(names)} if names else None)
        strip_metadata(str(path))
        model = Model(path)
        allowed = [tolerance] * len(model.outputs) if tolerance is not None else _allowed(model)
        names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"
                 and hasattr(s.arg, "name")]
        tried = [sizes] + _more_sizes(roots, sizes, checks)
        for n, at in enumerate(tried):
            at = _tied(program, args, kwargs, module, specs, _followed(program, specs, at))
            if any(at == d[0] for d in report.differences):
                continue
            a, k = _resized(args, kwargs, specs, at, 100 * n)
            flat = [t for t in pytree.tree_leaves((a, k)) if isinstance(t, torch.Tensor)]
            try:
                expected = module(*a, **k)
            except (RuntimeError, AssertionError):
                continue  # the module itself refuses this combination of sizes
            feeds = {name: t for name, t in zip([m for m in names if m in model.inputs], flat)}
            try:
                got = model.run_dlpack(feeds)
            except Error as e:
                if e.code != 2 or _takes(program, a, k):
                    raise
                report.narrowed.append(str(e))
                continue
            worst, rel, failed = _compare(expected, got, allowed)
            report.differences.append((dict(at), worst, rel))
            if failed:
                raise Error(f"{path}: at {at} the C library differs from PyTorch by {failed[0]:.3e} "
                            f"({failed[1]:.3e} of the peak, allowed {failed[2]:g})", 1)
        if len(report.differences) == 1 and len(tried) > 1:
            report.notes.append("no other size was checked: the module refuses those that were tried, or some "
                                "sizes depend on the inputs' values")
    return report


def _more_sizes(roots, sizes, count):
    """Other sizes inside the declared ranges: the smallest, then larger ones."""
    out = []
    for n in range(count):
        at = {}
        for i, (name, root) in enumerate(roots.items()):
            lo, hi = _bounds(root)
            want = max(lo, 2) if n == 0 else sizes[name] + 2 * n + i + 1
            at[name] = min(want, hi)
        if at and at != sizes and at not in out:
            out.append(at)
    return out
