"""Tensors between Python and the library: NumPy's dtypes and qkv's, DLPack, and what runs return (Output, Outputs,
Results). Inputs are borrowed (`_borrow`), not copied."""
from __future__ import annotations

import ctypes as C
import math
import re
from typing import Any, Mapping, Tuple

import numpy as np

from ._lib import DTYPES, OUTPUT_MEMORY, CTensor, Error

NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64, "i32": np.int32, "i16": np.int16,
         "i8": np.int8, "u8": np.uint8, "bool": np.bool_, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
         "c64": np.complex64, "c128": np.complex128}
CODES = {np.dtype(t): DTYPES.index(name) for name, t in NUMPY.items()}
# What NumPy itself lacks: its name in ml_dtypes, and the plain type of its bytes where ml_dtypes is not installed
EXTRA = {"f8e4m3fn": ("float8_e4m3fn", np.uint8), "f8e5m2": ("float8_e5m2", np.uint8),
         "f8e4m3fnuz": ("float8_e4m3fnuz", np.uint8), "f8e5m2fnuz": ("float8_e5m2fnuz", np.uint8),
         "f8e8m0fnu": ("float8_e8m0fnu", np.uint8), "i4": ("int4", np.int8), "u4": ("uint4", np.uint8),
         "i2": ("int2", np.int8), "u2": ("uint2", np.uint8), "f4e2m1": ("float4_e2m1fn", np.uint8)}
QKV_OF_EXTRA = {name: t for t, (name, _) in EXTRA.items()}
# DLPack's (type code, bits) <-> qkv names; the struct layouts are dlpack.h's
DLPACK = {(2, 32): "f32", (2, 64): "f64", (2, 16): "f16", (4, 16): "bf16", (0, 64): "i64", (0, 32): "i32",
          (0, 16): "i16", (0, 8): "i8", (1, 8): "u8", (1, 16): "u16", (1, 32): "u32", (1, 64): "u64", (6, 8): "bool",
          (5, 32): "c32", (5, 64): "c64", (5, 128): "c128", (10, 8): "f8e4m3fn", (11, 8): "f8e4m3fnuz",
          (12, 8): "f8e5m2", (13, 8): "f8e5m2fnuz", (14, 8): "f8e8m0fnu"}
CODE_OF = {name: code for code, name in DLPACK.items()}


class _DLTensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("device_type", C.c_int), ("device_id", C.c_int), ("ndim", C.c_int),
                ("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16), ("shape", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64)), ("byte_offset", C.c_uint64)]


class _DLManaged(C.Structure):
    pass


_Deleter = C.CFUNCTYPE(None, C.POINTER(_DLManaged))
_DLManaged._fields_ = [("dl_tensor", _DLTensor), ("manager_ctx", C.c_void_p), ("deleter", _Deleter)]
_pointer_of = C.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = C.c_void_p, [C.py_object, C.c_char_p]
_new_capsule = C.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = C.py_object, [C.c_void_p, C.c_char_p, C.c_void_p]
_exported = {}


@_Deleter
def _release(managed):
    _exported.pop(C.addressof(managed.contents), None)


def _ints(values):
    return (C.c_int64 * max(len(values), 1))(*values)


class _Borrowed:
    """A tensor for the library over memory that the library does not own; keeps its owner alive. strides: None where
    it is contiguous."""

    def __init__(self, dtype, shape, strides, data, owner):
        self._keep = (owner, _ints(shape), None if strides is None else _ints(strides))
        self.c = CTensor(DTYPES.index(dtype), len(shape), self._keep[1], self._keep[2], data)


def _borrow(x):
    """NumPy arrays and Python numbers by their buffer, everything else by DLPack;
    contiguous and strided memory is not copied."""
    if isinstance(x, Output):
        return _Borrowed(x.dtype, x.shape, _contiguous(x.shape), x._raw.ctypes.data, x)
    if not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__"):
        if getattr(x, "requires_grad", False):
            x = x.detach()
        capsule = x.__dlpack__()
        t = C.cast(_pointer_of(capsule, b"dltensor"), C.POINTER(_DLManaged)).contents.dl_tensor
        name = DLPACK.get((t.code, t.bits))
        if t.device_type != 1:
            raise Error(f"a tensor on DLPack's device type {t.device_type}; give one in CPU memory", 2)
        if t.lanes != 1 or name is None:
            raise Error(f"a tensor of DLPack type ({t.code}, {t.bits}), {t.lanes} lanes, is not supported", 2)
        shape = t.shape[:t.ndim]
        return _Borrowed(name, shape, t.strides[:t.ndim] if t.strides else _contiguous(shape),
                         (t.data or 0) + t.byte_offset, (x, capsule))
    a = np.asarray(x)
    code = CODES.get(a.dtype)
    if code is not None and a.flags.c_contiguous:  # nearly all, and a decoder's step has dozens of them
        return _Borrowed(DTYPES[code], a.shape, None, a.ctypes.data, a)
    if str(a.dtype) == "bfloat16":  # ml_dtypes
        return _Borrowed("bf16", a.shape, [s // 2 for s in a.strides], a.ctypes.data, a)
    if str(a.dtype) in QKV_OF_EXTRA:
        t = QKV_OF_EXTRA[str(a.dtype)]
        a = np.ascontiguousarray(a.astype(np.int8) if t in ("i4", "i2") else a.view(np.uint8))
        return _Borrowed(t, a.shape, _contiguous(a.shape), a.ctypes.data, a)
    if a.dtype not in CODES:
        raise Error(f"dtype {a.dtype} is not supported", 2)
    if any(s % a.itemsize for s in a.strides):
        a = np.ascontiguousarray(a)
    return _Borrowed(DTYPES[CODES[a.dtype]], a.shape, [s // a.itemsize for s in a.strides], a.ctypes.data, a)


def _numpy_type(dtype):
    if dtype not in EXTRA:
        return NUMPY[dtype]
    name, plain = EXTRA[dtype]
    try:
        import ml_dtypes
    except ImportError:
        return plain
    return getattr(ml_dtypes, name, plain)


def _contiguous(shape):
    strides, n = [], 1
    for s in reversed(shape):
        strides.insert(0, n)
        n *= max(s, 1)
    return strides


def _array_of(t):
    """A copy of a CTensor, as np.asarray of an Output gives it."""
    dtype, shape = DTYPES[t.dtype], t.shape[:t.rank]
    strides = t.strides[:t.rank] if t.strides else _contiguous(shape)
    item = np.dtype(np.uint16 if dtype == "bf16" else _numpy_type(dtype))
    if 0 in shape:
        return np.empty(shape, item)
    raw = np.ctypeslib.as_array(C.cast(t.data, C.POINTER(C.c_uint8)),
                                (sum((n - 1) * s for n, s in zip(shape, strides)) * item.itemsize + item.itemsize,))
    a = np.lib.stride_tricks.as_strided(raw.view(item), shape, [s * item.itemsize for s in strides])
    return (a.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else a.copy()


class Output:
    """One result. np.asarray(o) gives a NumPy array without a copy. bf16, which NumPy lacks, becomes float32. Types
    of at most 8 bits that NumPy lacks become ml_dtypes' types, or plain bytes if it is not installed.
    torch.from_dlpack(o) keeps the dtype."""

    def __init__(self, dtype, shape, raw):
        self.dtype, self.shape, self._raw = dtype, tuple(shape), raw

    def __array__(self, dtype=None, copy=None):
        if self.dtype == "bf16":
            a = (self._raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            a = self._raw.view(_numpy_type(self.dtype))
        a = a.reshape(self.shape)
        return a if dtype is None else a.astype(dtype, copy=False)

    def numpy(self) -> np.ndarray:
        return np.asarray(self)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, stream=None, **_):
        code, bits = CODE_OF[self.dtype]
        shape, strides = _ints(self.shape), _ints(_contiguous(self.shape))
        managed = _DLManaged(_DLTensor(self._raw.ctypes.data, 1, 0, len(self.shape), code, bits, 1, shape, strides,
                                       0), None, _release)
        _exported[C.addressof(managed)] = (managed, shape, strides, self._raw)
        return _new_capsule(C.addressof(managed), b"dltensor", None)

    def __repr__(self):
        return f"Output({self.dtype}{list(self.shape)})"


def _place(names, key):
    """The position among `names` that a position, a name or output_N means."""
    names = list(names)
    if isinstance(key, str):
        if key in names:
            return names.index(key)
        key = int(key[7:]) if re.fullmatch(r"output_\d+", key) else None
    if key is None or not -len(names) <= key < len(names):
        raise KeyError(f"the outputs are {', '.join(names)}")
    return key


class Results(dict):
    """What run returns: {name: value}, in the module's order; by position, too: results[0], results["output_0"]."""

    def __missing__(self, key):
        return list(self.values())[_place(self, key)]

    def __contains__(self, key):
        try:
            return dict.__contains__(self, key) or _place(self, key) >= 0
        except KeyError:
            return False

    def get(self, key, default=None):
        return self[key] if key in self else default


class Outputs(tuple):
    """What a call returns: a tuple that names read, too. `logits, = model(ids)`, out["logits"], out[0], dict(out)."""

    names: Tuple[str, ...]

    def __new__(cls, results: Mapping[str, Any]) -> Outputs:
        self = super().__new__(cls, results.values())
        self.names = tuple(results)
        return self

    def __getnewargs__(self):  # pickles
        return (dict(zip(self.names, self)),)

    def __getitem__(self, key):
        return super().__getitem__(_place(self.names, key) if isinstance(key, str) else key)

    def keys(self) -> Tuple[str, ...]:
        return self.names

    def items(self):
        return zip(self.names, self)

    def __repr__(self):
        return f"Outputs({', '.join(f'{name}={value!r}' for name, value in self.items())})"


def _output_memory(made):
    """The callback that gives a run memory for its outputs: NumPy arrays, by position in `made`."""

    def give(_, i, like):
        t = like.contents
        dtype, shape = DTYPES[t.dtype], t.shape[:t.rank]
        size = math.prod(shape) * (CODE_OF[dtype][1] // 8 if dtype in CODE_OF else 1)
        try:
            raw = np.empty(size + 63, np.uint8)
        except MemoryError:
            return None
        start = -raw.ctypes.data % 64
        made[i] = Output(dtype, shape, raw[start:start + size])
        return raw.ctypes.data + start

    return OUTPUT_MEMORY(give)
