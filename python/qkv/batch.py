"""BatchPredictor: runs a model on dicts of columns, as ray.data.Dataset.map_batches passes them,
in one process or in many.

    predict = qkv.BatchPredictor("sam3.pt2", fixed_inputs={"token_ids": ids}, outputs={"output_0":
    "logits"}, passthrough=["name"])
    predict({"patch_batch": images, "name": names})            {"logits": (B, P, ...), "name": names}
"""
import ast
import functools
import os
import threading

import numpy as np

from ._lib import Error
from ._process import Lazy
from ._tensors import _numpy_type
from .model import Model


# ------------------------------------------------------------------ sizes

_OPERATORS = {ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
              ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b, ast.Pow: lambda a, b: a ** b}


_PARSING = threading.Lock()  # CPython 3.11 fails where two threads parse at once (gh-106905)


@functools.lru_cache(maxsize=None)
def _parsed(text):
    with _PARSING:
        return ast.parse(text, mode="eval").body


def _size(size, symbols):
    """The value of a size as the model describes it (3, "s0*s1", "14*s1 + 1");
    None if it depends on more than `symbols`."""

    def value(node):
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return symbols[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Call):
            return {"Max": max, "Min": min}[node.func.id](*map(value, node.args))
        raise KeyError(node)

    try:
        return value(_parsed(str(size)))
    except (KeyError, SyntaxError, ZeroDivisionError):
        return None


def _shape_text(shape):
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


class _Opened:
    """A model with its session, used by one thread at a time."""

    def __init__(self, path, options, fixed):
        self.lock = threading.Lock()
        self.model = Model(path, **options)
        self.session = self.model.session()
        d = self.model.describe()
        self.inputs = {i["name"]: i for i in d["inputs"]}
        self.names = {o["name"]: o for o in d["outputs"]}
        self.outputs = {**self.names, **{o["label"]: o for o in d["outputs"] if "label" in o}}
        self.scalars = {s["name"] for s in d["scalar_inputs"]}
        self.fixed_given = False


# ------------------------------------------------------------------ columns

def _type(spec):
    if spec["dtype"] != "bf16":
        return np.dtype(_numpy_type(spec["dtype"]))
    try:
        import ml_dtypes
    except ImportError:
        raise Error(f"input '{spec['name']}' takes bfloat16, which NumPy has once ml_dtypes is installed", 2) from None
    return np.dtype(ml_dtypes.bfloat16)


def _unfit(row, spec):
    """Why a row does not fit the input, or None. Values are widened, never narrowed,
    and integers do not become floats."""
    shape, want = spec["shape"][1:], _type(spec)
    same_kind = row.dtype.kind == want.kind or {row.dtype.kind, want.kind} == {"i", "u"}
    if row.dtype != want and not (same_kind and np.can_cast(row.dtype, want, "safe")):
        return f"is {row.dtype}, input '{spec['name']}' takes {want}"
    if len(shape) != row.ndim or any(isinstance(s, int) and s != n for s, n in zip(shape, row.shape)):
        return f"has shape {_shape_text(row.shape)}, input '{spec['name']}' takes {_shape_text(shape)}"
    return None


def _column(name, a, spec):
    """The column as an array for the input: unchanged, unless it must be widened or its rows are separate arrays."""
    if isinstance(a, (list, tuple)):
        rows = a
        a = np.empty(len(rows), object)
        for i, row in enumerate(rows):
            a[i] = row
    a = np.asarray(a)
    if not spec["shape"]:
        raise Error(f"input '{spec['name']}' has no axis for a batch's rows; pass it in fixed_inputs", 2)
    if a.ndim == 0 or not len(a):
        raise Error(f"column '{name}': has no rows", 2)
    rows = [np.asarray(r) for r in a] if a.dtype == object else a[:1]
    for i, row in enumerate(rows):
        why = _unfit(row, spec)
        if why:
            raise Error(f"column '{name}': row {i} {why}", 2)
        if row.shape != rows[0].shape:
            raise Error(f"column '{name}': row {i} has shape {_shape_text(row.shape)}, row 0 "
                        f"{_shape_text(rows[0].shape)}; one shape a batch", 2)
    if a.dtype == object:
        a = np.stack(rows)
    return a.astype(_type(spec), copy=False)


class BatchPredictor(Lazy):
    """Runs a model on a dict of arrays, each with a leading axis of rows, and returns such a dict.
    It pickles as a path and
    options. In the receiving process the file is opened and its weights are mapped at the first call, with one session
    per process for all equal predictors.

        ray.data.read_parquet(...).map_batches(qkv.BatchPredictor, fn_constructor_kwargs={"path":
        "model.pt2"}, compute=ray.data.ActorPoolStrategy(size=2))

    fixed_inputs  {input: array}: the same for every batch, such as prompts. What depends only on them is computed once.
    columns       {input: column}, if their names differ.
    outputs       which to return, all by default: a list of names, or {output: name of the column}.
    passthrough   columns of the batch to return unchanged: a list, or True for all that are not inputs.
    fixed_first   row p * B + b of an output belongs to row b of the batch. By default row b * P + p does.
    threads, compute and further options are qkv.Model's. threads=None:
    OMP_NUM_THREADS, which Ray sets to the actor's num_cpus.

    A contiguous array of the input's dtype is read in place, even if Ray shares it between processes.
    Integers and floats
    are widened to the input's dtype; anything else is an error.
    Outputs that have a multiple of the batch's rows (B * P,
    where the batch binds B and fixed inputs bind P) become (B, P, ...). bfloat16 outputs become float32.
    """

    def __init__(self, path, *, fixed_inputs=None, columns=None, outputs=None, passthrough=False, fixed_first=False,
                 **options):
        self.path = os.path.abspath(path)
        self.fixed_inputs = {name: np.asarray(x) for name, x in (fixed_inputs or {}).items()}
        self.columns = dict(columns or {})
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.outputs = outputs if outputs is None or isinstance(outputs, dict) else {name: name for name in outputs}
        if isinstance(passthrough, str):
            passthrough = [passthrough]
        self.passthrough = passthrough if isinstance(passthrough, bool) else list(passthrough)
        self.fixed_first, self.options = fixed_first, options

    def __repr__(self):
        return f"BatchPredictor({self.path!r})"

    # ---------------------------------------------------------------- once per process

    def _known(self, what, names, known):
        for name in names:
            if name not in known:
                raise Error(f"{self.path}: {what} '{name}': the model has {', '.join(known)}", 2)

    def _opened(self):
        o = self._mine(_Opened, self.options, self.fixed_inputs)
        self._known("fixed input", self.fixed_inputs, [*o.inputs, *o.scalars])
        self._known("columns: input", self.columns, list(o.inputs))
        self._known("output", self.outputs or (), list(o.outputs))
        if all(name in self.fixed_inputs for name in o.inputs):
            raise Error(f"{self.path}: every input is fixed; nothing is left for a batch's columns", 2)
        return o

    # ---------------------------------------------------------------- once per batch

    def _inputs(self, o, batch):
        feeds, used, first = {}, set(), None
        for name, spec in o.inputs.items():
            if name in self.fixed_inputs:
                continue
            column = self.columns.get(name, name)
            if column not in batch:
                raise Error(f"the batch has no column '{column}' for input '{name}'; it has "
                            f"{', '.join(map(str, batch)) or 'none'}", 2)
            feeds[name] = _column(column, batch[column], spec)
            used.add(column)
            first = first or column
            if len(feeds[name]) != len(batch[first]):
                raise Error(f"column '{column}' has {len(feeds[name])} rows, column '{first}' {len(batch[first])}", 2)
        return feeds, used

    def _factors(self, o, feeds):
        """{output: its rows per row of the batch; 0: as many rows as the batch},
        from the sizes that the model declares."""
        symbols, of_rows, n, fixed_rows = {}, set(), len(next(iter(feeds.values()))), True
        for name, a in {**self.fixed_inputs, **feeds}.items():
            shape = o.inputs[name]["shape"] if name in o.inputs else ()
            for axis, (size, value) in enumerate(zip(shape, np.shape(a))):
                if isinstance(size, str) and size.isidentifier():
                    symbols[size] = value
                    if axis == 0 and name in feeds:
                        of_rows.add(size)
                if axis == 0 and name in feeds:
                    fixed_rows &= isinstance(size, int)
        factors = {}
        for name in self.outputs or o.names:
            shape = o.outputs[name]["shape"]
            size = shape[0] if shape else None
            if size in of_rows:
                factors[name] = 0
                continue
            at = lambda rows: _size(size, {**symbols, **dict.fromkeys(of_rows, rows)})
            if fixed_rows and isinstance(size, int) and size % n == 0:
                factors[name] = 0 if size == n else size // n
                continue
            each = at(1)
            if not shape or not each or any(at(rows) != each * rows for rows in (2, 3, n)):
                what = f"has {size} rows, which is not a fixed number per row of the batch" if shape else "is a scalar"
                raise Error(f"{self.path}: output '{name}' {what}; choose others with outputs=[...]", 2)
            factors[name] = each
        return factors

    def _rows(self, a, each, n):
        if not each:
            return a
        return a.reshape(each, n, *a.shape[1:]).swapaxes(0, 1) if self.fixed_first else a.reshape(n, each, *a.shape[1:])

    def _passed(self, batch, used):
        if not self.passthrough:
            return {}
        names = [c for c in batch if c not in used] if self.passthrough is True else self.passthrough
        for name in names:
            if name not in batch:
                raise Error(f"the batch has no column '{name}' to pass through; it has {', '.join(map(str, batch))}", 2)
        return {name: batch[name] for name in names}

    def __call__(self, batch):
        o = self._opened()
        feeds, used = self._inputs(o, batch)
        factors = self._factors(o, feeds)
        out, n = self._passed(batch, used), len(next(iter(feeds.values())))
        names = self.outputs or {name: name for name in o.names}
        for column in names.values():
            if column in out:
                raise Error(f"column '{column}' is passed through, and an output has that name; rename it with "
                            f"outputs={{...}}", 2)
        with o.lock:
            given = {name: x for name, x in self.fixed_inputs.items() if name in o.scalars or not o.fixed_given}
            keep = [name for name in given if name in o.inputs]
            results = o.session.run({**given, **feeds}, keep)
            o.fixed_given = True
        out.update({column: self._rows(results[name], factors[name], n) for name, column in names.items()})
        return out
