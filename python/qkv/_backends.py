"""Which kernel PyTorch takes for an attention: `qkv backends`, and the rules for one call."""
import ctypes as C
import json
from typing import Any, Dict, Mapping, Optional

from ._lib import CError, CTensor, DTYPES, Error, SdpaCall, check, lib, text

BACKENDS = ("math", "flash", "efficient", "cudnn")  # by PyTorch's enum values
_LONG = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
         "int16": "i16", "int8": "i8", "uint8": "u8", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2",
         "complex64": "c64"}


def cudnn_number(version):
    """9.20.0 as cuDNN's integer version, 92000; None and 0: the default."""
    if not version:
        return 0
    parts = [int(p) for p in str(version).split(".")] + [0, 0]
    return int(version) if parts[0] >= 1000 else parts[0] * 10000 + parts[1] * 100 + parts[2]


def _tensor(t, keep):
    """A torch tensor or an array (NumPy), or (shape, dtype) or (shape, strides, dtype):
    as sizes, strides in elements, and dtype."""
    if isinstance(t, tuple):
        shape, strides, dtype = t if len(t) == 3 else (t[0], None, t[1])
    else:
        shape, dtype = t.shape, t.dtype
        strides = t.stride() if callable(getattr(t, "stride", None)) else [s // t.itemsize for s in t.strides]
    name = str(dtype).rpartition(".")[2]
    name = _LONG.get(name, name)
    if name not in DTYPES:
        raise Error(f"dtype '{dtype}' is not known", 2)
    sizes = [(C.c_int64 * max(len(x), 1))(*x) for x in (shape, shape if strides is None else strides)]
    keep.extend(sizes)
    return CTensor(DTYPES.index(name), len(shape), sizes[0], None if strides is None else sizes[1], None)


def sdpa_choice(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, enable_gqa=False, device="cpu",
                cudnn=None, requires_grad=None,
                mask_requires_grad=None, report=False):
    """The backend that PyTorch 2.13 picks for this call of scaled_dot_product_attention on a device ("cpu",
    "cuda-sm80", "cuda-sm90", ...): "flash", "efficient", "cudnn" or "math". Tensors are torch's, NumPy's, or (shape,
    dtype), (shape, strides, dtype). report=True returns a dict with backend and refused: [{backend, rule, what,
    change, source}], the rules that keep the call from a better backend. requires_grad=None: as set on the
    tensors."""
    keep = []
    asks = requires_grad if requires_grad is not None else any(bool(getattr(t, "requires_grad", False))
                                                               for t in (query, key, value))
    mask_asks = mask_requires_grad if mask_requires_grad is not None else bool(getattr(attn_mask, "requires_grad",
        False))
    mask = None if attn_mask is None else C.pointer(_tensor(attn_mask, keep))
    offset = [t.storage_offset() if callable(getattr(t, "storage_offset", None)) else 0 for t in (query, key, value)]
    call = SdpaCall(C.sizeof(SdpaCall), _tensor(query, keep), _tensor(key, keep), _tensor(value, keep), mask,
                    mask_asks, asks, is_causal, enable_gqa, dropout_p,
                    (C.c_int64 * 3)(*offset))
    e, out, found = CError(), C.c_int(), C.c_void_p()
    check(lib().qkv_sdpa_choice(C.byref(call), device.encode(), cudnn_number(cudnn), C.byref(out),
                                C.byref(found) if report else None, C.byref(e)) == 0, e)
    return json.loads(text(found.value, e)) if report else BACKENDS[out.value]


def backends(model: Any, device: str = "cpu", dims: Optional[Mapping[str, int]] = None, train: bool = False,
             cudnn: Optional[str] = None) -> Dict[str, Any]:
    """Which kernel PyTorch 2.13 picks, and why, for every attention of a model (a path or a qkv.Model) as its file
    has it: the output of `qkv backends --json` as a dict. dims: known sizes, {"batch": 8}. Other sizes stay symbols,
    and the choice is then a list of cases."""
    from .model import Model

    return (model if isinstance(model, Model) else Model(model)).backends(device, dims, train, cudnn)
