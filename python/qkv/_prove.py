"""Do two models compute the same: `qkv prove`."""
import ctypes as C
import json
import os
from typing import Any, Dict, Mapping, Optional

from ._lib import CError, ProveOptions, check, lib, text
from .model import Model

_TOLD = (0, 1, 4)  # equal, different, unknown: the report says which


def prove(first: Any, second: Any, dims: Optional[Mapping[str, int]] = None, sizes: int = 4, seeds: int = 2,
          floats: bool = False, counterexample: Optional[str] = None) -> Dict[str, Any]:
    """Evaluates two models (paths or Models; .pt2 and .onnx in any mix) on the same random payloads at several sizes.
    Returns the report of `qkv prove --json` as a dict: result is "equal", "different" or "unknown", and sense says
    what "equal" is worth (docs/PROOF.md).

    dims             {"batch": 2}: sizes of the first model that stay; others are varied within their ranges
    sizes, seeds     how many choices of sizes, and payloads at each
    floats           compare random floats within a tolerance only
    counterexample   where tensors that differ are written, .npz or .safetensors
    """
    a, b = (m if isinstance(m, Model) else Model(m) for m in (first, second))
    e, report, dims = CError(), C.c_void_p(), dims or {}
    names = (C.c_char_p * max(len(dims), 1))(*[k.encode() for k in dims])
    options = ProveOptions(C.sizeof(ProveOptions), names, (C.c_int64 * max(len(dims), 1))(*dims.values()), len(dims),
                           sizes, seeds, floats, os.fsencode(counterexample) if counterexample else None)
    status = lib().qkv_model_prove(a._model, b._model, C.byref(options), C.byref(report), C.byref(e))
    check(status in _TOLD and report.value, e)
    return json.loads(text(report.value, e))
