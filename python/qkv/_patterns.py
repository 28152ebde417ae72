"""pattern: rules of rewriting in Python, with functions as guards and grafts (docs/RULES.md).

    swish = qkv.pattern("my_swish", "(mul ?x (sigmoid (mul ?x ?c)))", lambda x: ("silu", x), lambda c: c == 1)
    model.rewrite(rules=[swish], prove=True)
"""
import collections.abc
import ctypes as C
import inspect
import os
import re
import warnings

import numpy as np

from ._lib import DTYPES, CError, CTensor, Error, RewriteOptions, check, lib
from ._ops import NONE, NUMBERS, TEXT, Size, _Arg
from ._tensors import _array_of

MISMATCH, UNSUPPORTED = 1, 4
UNBOUNDED = 2**63 - 1
MOST_ARGUMENTS = 8
BARE = re.compile(r"\?[\w/]+|_|\.\.\.|~|:\w+|" + "|".join(DTYPES[1:]))


class _CView(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("arg", _Arg), ("number", C.c_char_p), ("name", C.c_char_p),
                ("op", C.c_char_p), ("parameters", C.POINTER(C.c_char_p)), ("n_parameters", C.c_int),
                ("result", C.c_int), ("uses", C.c_int), ("low", C.POINTER(C.c_int64)), ("high", C.POINTER(C.c_int64)),
                ("weight", C.c_char_p), ("data", C.POINTER(CTensor))]


_CALL = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p, C.POINTER(CError))


class _Function(C.Structure):
    _fields_ = [("name", C.c_char_p), ("guard", _CALL), ("graft", _CALL), ("user", C.c_void_p)]


class MatchedSize(Size):
    """A symbolic size of a matched tensor, from `low` to `high` (None: unbounded). A comparison is True where it holds
    for all sizes in that range."""

    def __init__(self, text, low, high):
        super().__init__(text)
        self.low, self.high = low, high

    def __eq__(self, other):
        return isinstance(other, Size) and other.text == self.text

    def __hash__(self):
        return hash(self.text)

    def __lt__(self, other):
        return self.high is not None and self.high < other

    def __le__(self, other):
        return self == other or (self.high is not None and self.high <= other)

    def __gt__(self, other):
        return self.low > other

    def __ge__(self, other):
        return self == other or self.low >= other


class _Match:
    """What a function is called for; over when it returns."""

    def __init__(self, pointer):
        self.pointer = pointer

    def look(self, path):
        if self.pointer is None:
            raise Error("what a rule matched is there as long as its function runs", 2)
        e, view = CError(), _CView(struct_size=C.sizeof(_CView))
        check(lib().qkv_match_look(self.pointer, path.encode(), C.byref(view), C.byref(e)) == 0, e)
        return view

    def python(self, path):
        """What is at a path: a View, a number, a Size, a text, None, or a list of these."""
        view = self.look(path)
        arg = view.arg
        if arg.kind in (NONE, TEXT):
            return arg.text.decode() if arg.kind == TEXT else None
        if arg.kind == NUMBERS:
            made = [_number(arg, i) for i in range(arg.n)]
            return made if self.is_list(path) else made[0]
        return [View(self, f"{path}/{i}") for i in range(arg.n)] if view.name is None else View(self, path)

    def is_list(self, path):
        """One number has no elements, a list of one has."""
        e, view = CError(), _CView(struct_size=C.sizeof(_CView))
        return lib().qkv_match_look(self.pointer, f"{path}/0".encode(), C.byref(view), C.byref(e)) == 0


def _constant(text):
    return {"True": True, "False": False}[text] if text in ("True", "False") else \
        int(text) if text.lstrip("-").isdigit() else float(text)


def _number(arg, i):
    text = arg.sizes[i].decode()
    return _constant(text) if arg.ints else MatchedSize(text, -UNBOUNDED, None)


class _Inputs(collections.abc.Mapping):
    def __init__(self, match, path, names):
        self._match, self._path, self._names = match, path, names

    def __getitem__(self, name):
        if name not in self._names:
            raise KeyError(name)
        return self._match.python(f"{self._path}/{name}")

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)


class View:
    """A tensor of what a rule matched, read-only, as long as the function that got it runs.

    op: the op that computes it ("aten.mul.Tensor"), None for an input or a weight; inputs: that op's arguments by name
    (Views, numbers, texts, None, lists). dtype ("f32"), shape (ints and MatchedSizes), ndim. number: the number that
    all its elements are known to be, or None; float(view) is that. weight: its name in the state dict, or None;
    array(): a copy of the elements of a weight that no run changes, or None. name: in the graph; uses: how many read
    it."""

    def __init__(self, match, path):
        view = match.look(path)
        t = view.arg.tensors[0]
        self._match, self._path = match, path
        self.name, self.uses, self.result = view.name.decode(), view.uses, view.result
        self.op = view.op.decode() if view.op else None
        self.dtype = DTYPES[t.dtype]
        self.shape = tuple(_size(view.arg.dims[0][k].decode(), view.low[k], view.high[k]) for k in range(t.rank))
        self.number = _known(view.number)
        self.weight = view.weight.decode() if view.weight else None
        self.inputs = _Inputs(match, path, [view.parameters[i].decode() for i in range(view.n_parameters)])

    @property
    def ndim(self):
        return len(self.shape)

    def array(self):
        view = self._match.look(self._path)
        return _array_of(view.data.contents).copy() if view.data else None

    def __float__(self):
        if not isinstance(self.number, (int, float)):
            raise TypeError(f"'{self.name}' is not a known number")
        return float(self.number)

    def __repr__(self):
        return f"<{self.name} = {self.op or self.weight or 'input'}: {self.dtype}[{', '.join(map(str, self.shape))}]>"


def _size(text, low, high):
    return int(text) if text.lstrip("-").isdigit() else MatchedSize(text, low, None if high == UNBOUNDED else high)


def _known(text):
    if text is None:
        return None
    try:
        return _constant(text.decode())
    except ValueError:
        return MatchedSize(text.decode(), -UNBOUNDED, None)


def _tree(x, function=None, top=False):
    """A tree as text. function: what a Python function in it is called."""
    if isinstance(x, View):
        return f"?{x._path}"
    if isinstance(x, Size):
        return f'(size "{x}")'
    if isinstance(x, str):
        if top or x[:1] in ("(", "[") or BARE.fullmatch(x):
            return x
        return '"' + x.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if x is None or isinstance(x, (bool, np.bool_)):
        return {None: "none", True: "true", False: "false"}[x if x is None else bool(x)]
    if isinstance(x, (int, float, np.integer, np.floating)):
        return repr(x.item() if isinstance(x, np.generic) else x)
    if isinstance(x, list):
        return "[" + " ".join(_tree(i, function) for i in x) + "]"
    if isinstance(x, tuple) and x and isinstance(x[0], str):
        parts = [x[0]]
        for i in x[1:]:
            named = i.items() if isinstance(i, dict) else ()
            parts += [f":{k} {_tree(v, function)}" for k, v in named] if named else [_tree(i, function)]
        return "(" + " ".join(parts) + ")"
    if callable(x) and function:
        return function(x)
    raise TypeError(f"{x!r} is not part of a tree: expected text, a tuple (op, argument ...), a list, a number, None, "
                    "or what the rule captured")


def _holds(result):
    if isinstance(result, str):
        return result
    if isinstance(result, (bool, np.bool_)):
        return "" if result else "it does not hold"
    raise TypeError(f"a guard returned {result!r}: expected True, False, or a text that says why not")


class Pattern:
    """A rule, made by qkv.pattern."""

    def __init__(self, name, tree, graft, guards, kind, phase):
        self.name, self.tree, self.graft, self.guards, self.kind, self.phase = name, tree, graft, guards, kind, phase

    def __repr__(self):
        return f"<qkv.pattern {self.name}: {self.kind} in {self.phase}>"

    def _compile(self, functions):
        """The rule as text, its functions added to a _Functions."""
        def graft(f):
            return f"(@{functions.add(self, f, 'graft')} {_captures(f)})"

        def guard(f):
            return f"({functions.add(self, f, 'guard')} {_captures(f)})" if callable(f) else _tree(f, top=True)

        parts = [self.kind, self.name, _tree(self.tree, top=True), _tree(self.graft, graft, top=True),
                 *map(guard, self.guards)]
        return f"(phase {self.phase})\n({' '.join(parts)})\n"


def _captures(f):
    names = list(inspect.signature(f).parameters)
    if len(names) > MOST_ARGUMENTS:
        raise Error(f"{_called(f)} takes {len(names)} arguments, at most {MOST_ARGUMENTS} are given", 2)
    return " ".join(f"?{n}" for n in names)


def _called(f):
    return getattr(f, "__name__", type(f).__name__).strip("<>")


class _Functions:
    """The functions of all rules of one rewriting, as the library calls them; what they raised."""

    def __init__(self):
        self.list, self.names, self.raised = [], set(), {}

    def add(self, pattern, f, kind):
        base = name = "py_" + re.sub(r"\W", "_", _called(f), flags=re.ASCII)[:80]
        n = len(inspect.signature(f).parameters)
        for i in range(2, 10000):
            if name not in self.names:
                break
            name = f"{base}_{i}"
        self.names.add(name)

        def call(_, pointer, e):
            match = _Match(pointer)
            try:
                made = f(*[match.python(str(i)) for i in range(n)])
                why = _holds(made) if kind == "guard" else ""
                if kind == "graft":
                    error = CError()
                    if lib().qkv_match_build(pointer, _tree(made, top=True).encode(), C.byref(error)):
                        e.contents.message = error.message
                        return error.code
                e.contents.message = why.encode()[:1000]
                return MISMATCH if why else 0
            except Exception as x:
                said = f"{type(x).__name__}: {x}"
                e.contents.message = f"it raised {said}".encode()[:1000]
                self.raised.setdefault((pattern.name, kind, _called(f), said), []).append(1)
                return UNSUPPORTED
            finally:
                match.pointer = None

        c = _CALL(call)
        self.list.append(_Function(name.encode(), c if kind == "guard" else _CALL(), c if kind == "graft" else _CALL()))
        return name

    def warn(self):
        for (rule, kind, f, said), times in self.raised.items():
            warnings.warn(f"rule '{rule}': its {kind} {f} raised {said} ({len(times)} times); the rule did not fire "
                          "there, and rewriting went on", RuntimeWarning, stacklevel=3)


def _rules(rules):
    """The fields of RewriteOptions for files and Patterns, and the functions, which must outlive the call."""
    functions = _Functions()
    files = [os.fsencode(r) for r in rules if not isinstance(r, Pattern)]
    texts = [r._compile(functions).encode() for r in rules if isinstance(r, Pattern)]
    return dict(rule_files=(C.c_char_p * max(len(files), 1))(*files), rule_file_count=len(files),
                rule_texts=(C.c_char_p * max(len(texts), 1))(*texts), rule_text_count=len(texts),
                functions=C.cast((_Function * max(len(functions.list), 1))(*functions.list), C.c_void_p),
                n_functions=len(functions.list)), functions


def pattern(name, tree, graft, *guards, kind="rule", phase="recompose"):
    """A rule for Model.rewrite(rules=[...]): what `tree` matches is replaced by `graft` where all guards hold.

    Trees are those of .rules files (docs/RULES.md): as text, "(mul ?x (sigmoid ?x))", or as tuples, ("mul", "?x",
    ("sigmoid", "?x")), with lists, numbers, None, and {"dim": -1} for parameters by name. A guard is a text, a tuple,
    or a function whose parameters are names of captures: it returns True, False, or a text that says why not. A graft
    is a tree, or a function that returns one, made of the captures that it gets and of trees. Functions get Views of
    tensors, numbers, texts, None, and lists of these. What a function raises is a refusal: a RuntimeWarning names the
    rule, and rewriting goes on.

    kind: "rule" (fires where the graph gets cheaper), "derive" (adds an equal form) or "reorder" (fires at any cost,
    once at each value). phase: recompose, convert or fuse."""
    if kind not in ("rule", "derive", "reorder"):
        raise Error(f"kind '{kind}': expected rule, derive or reorder", 2)
    if phase not in ("recompose", "convert", "fuse"):
        raise Error(f"phase '{phase}': expected recompose, convert or fuse", 2)
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise Error(f"'{name}' is not a rule's name: expected letters, digits, '_', '.' and '-'", 2)
    made = Pattern(name, tree, graft, guards, kind, phase)
    made._compile(_Functions())
    return made
