"""Combines static exports of one model at several sizes into one model with variable sizes."""
import ctypes as C
import json
import os
from typing import Any, Iterable, Mapping, Optional, Union

from ._lib import CError, Error, GeneralizeOptions, lib
from .model import Model


class Generalized:
    """The result; keys as in `qkv generalize --json`.

    model       a qkv.Model with variable sizes; None if something is not solved or a check failed
    sizes       [{name, expr, axes, values, tied}]
    numbers     [{node, op, argument, values, expr, also, places}]; also: other expressions that fit every file
    unsolved    [{node, op, argument, values, why, places}]
    notes       nodes that only some files have, requirements on sizes
    checks      [{against, sizes, agrees, max_abs_over_peak, problem}]
    """

    def __init__(self, report, model):
        self.model = model
        self.sizes, self.numbers, self.unsolved = report["sizes"], report["numbers"], report["unsolved"]
        self.notes, self.checks = report["notes"], report["checks"]

    @property
    def ambiguous(self):
        """Numbers that other expressions fit as well: another file at a different size would decide."""
        return [n for n in self.numbers if n["also"]]


def _texts(items):
    return (C.c_char_p * max(len(items), 1))(*[i.encode() for i in items])


def generalize(*files: Any, path: Union[None, str, os.PathLike] = None, dims: Optional[Mapping[str, Any]] = None,
               dynamic: Iterable[str] = (), check: Iterable[Any] = (), apart: bool = False) -> Generalized:
    """files: paths or Models of static exports (no dynamic_shapes) at two or more sizes.
    Writes the result to path if given.

    dims      {"batch": ["x.0", "mask.0"]}: names for sizes
    dynamic   axes ("x.0") that must be variable in the result
    check     more static exports; the result must agree with them at their sizes
    apart     treat axes that are equal in every file as separate sizes

    Raises qkv.Error (code 1, with the findings as `.report`) if something is not solved or a check fails.
    """
    models = [f if isinstance(f, Model) else Model(f) for f in files]
    checks = [f if isinstance(f, Model) else Model(f) for f in check]
    names = [f"{name}={','.join([axes] if isinstance(axes, str) else axes)}" for name, axes in (dims or {}).items()]
    pointers = lambda ms: (C.c_void_p * max(len(ms), 1))(*[m._model for m in ms])
    options = GeneralizeOptions(C.sizeof(GeneralizeOptions), _texts(names), len(names), _texts(list(dynamic)),
                                len(dynamic), int(apart),
                                C.cast(pointers(checks), C.POINTER(C.c_void_p)), len(checks))
    e, text = CError(), C.c_void_p()
    made = lib().qkv_model_generalize(pointers(models), len(models), C.byref(options), C.byref(text), C.byref(e))
    report = None
    if text.value:
        report = json.loads(C.string_at(text.value))
        lib().qkv_free(text)
    if not made:
        error = Error(e.message.decode(errors="replace"), e.code)
        error.report = Generalized(report, None) if report else None
        raise error
    model = Model._of(made, models)
    if path is not None:
        model.save(os.fspath(path))
    return Generalized(report, model)
