"""register_op: ops of one's own, as Python functions (docs/CUSTOM_OPS.md).

    qkv.register_op("my::twice", "(Tensor x, float by=2.0) -> Tensor", lambda x, by: x, lambda x, by: x * by)
"""
import ctypes as C

import numpy as np

from ._lib import DTYPES, CError, CTensor, Error, check, lib
from ._tensors import _array_of, _numpy_type

MAX_RANK, DIM = 16, 256
NONE, TENSORS, NUMBERS, TEXT = range(4)


class _Arg(C.Structure):
    _fields_ = [("kind", C.c_int), ("n", C.c_int), ("tensors", C.POINTER(CTensor)),
                ("dims", C.POINTER(C.POINTER(C.c_char_p))), ("ints", C.POINTER(C.c_int64)),
                ("floats", C.POINTER(C.c_double)), ("sizes", C.POINTER(C.c_char_p)), ("text", C.c_char_p)]


class _Result(C.Structure):
    _fields_ = [("dtype", C.c_int), ("rank", C.c_int), ("dim", C.c_char * DIM * MAX_RANK)]


_SHAPE = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int, C.POINTER(_Arg), C.c_int, C.POINTER(_Result), C.POINTER(CError))
_KERNEL = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int, C.POINTER(_Arg), C.c_int, C.POINTER(CTensor), C.c_int,
                      C.POINTER(CError))


class _Op(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("name", C.c_char_p), ("schema", C.c_char_p), ("shape", _SHAPE),
                ("kernel", _KERNEL), ("gradient", C.c_char_p), ("user", C.c_void_p)]


_registered = []  # functions that the library calls: as long as the process


class Size:
    """A size that is not known yet, in a shape function: x.shape[0] + 1, 2 * n, n // 4, n % 3, Size.max(n, 1)."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text

    def _with(self, other, sign, turned=False):
        if not isinstance(other, (int, Size)):
            return NotImplemented
        pair = (other, self) if turned else (self, other)
        return Size(f"({pair[0]}){sign}({pair[1]})")

    def __add__(self, other):
        return self._with(other, " + ")

    def __radd__(self, other):
        return self._with(other, " + ", True)

    def __sub__(self, other):
        return self._with(other, " - ")

    def __rsub__(self, other):
        return self._with(other, " - ", True)

    def __mul__(self, other):
        return self._with(other, "*")

    def __rmul__(self, other):
        return self._with(other, "*", True)

    def __floordiv__(self, other):
        return self._with(other, "//")

    def __mod__(self, other):
        return self._with(other, " % ")

    def __bool__(self):
        raise TypeError(f"the size {self.text} is not known when a model is loaded: a shape function cannot branch on "
                        "it")

    __index__ = __bool__
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: self.__bool__()
    __hash__ = None

    @staticmethod
    def max(a, b):
        return Size(f"Max({a}, {b})")

    @staticmethod
    def min(a, b):
        return Size(f"Min({a}, {b})")


class Meta:
    """A tensor in a shape function: its dtype ("f32", as Output.dtype) and shape, a tuple of ints and Sizes."""

    def __init__(self, dtype, shape):
        self.dtype, self.shape = dtype, tuple(shape)

    @property
    def ndim(self):
        return len(self.shape)

    def __repr__(self):
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def _size(text):
    text = text.decode()
    return int(text) if text.lstrip("-").isdigit() else Size(text)


def _types(schema):
    """The type of each parameter, which the library has checked."""
    inside = schema[1:schema.rindex(") -> ")]
    found, depth, at = [], 0, 0
    for i, c in enumerate(inside + ","):
        depth += (c == "[") - (c == "]")
        if c == "," and not depth:
            found.append(inside[at:i].split()[0].rstrip("?"))
            at = i + 1
    return [t for t in found if t != "*"]


def _number(arg, i, kind):
    if not arg.ints:
        return _size(arg.sizes[i])
    if kind == "bool":
        return bool(arg.ints[i])
    return arg.floats[i] if kind in ("float", "Scalar") else arg.ints[i]


def _python(arg, kind, tensor):
    """An argument as Python has it; tensor(arg, i) makes one."""
    if arg.kind == NONE:
        return None
    if arg.kind == TEXT:
        return arg.text.decode()
    of = (lambda i: tensor(arg, i)) if arg.kind == TENSORS else (lambda i: _number(arg, i, kind.partition("[")[0]))
    return [of(i) for i in range(arg.n)] if "[" in kind else of(0)


def _meta(arg, i):
    t = arg.tensors[i]
    return Meta(DTYPES[t.dtype], [_size(arg.dims[i][k]) for k in range(t.rank)])


def _several(made, n, what):
    made = list(made) if isinstance(made, (tuple, list)) else [made]
    if len(made) != n:
        raise TypeError(f"{what} returned {len(made)} results, the schema has {n}")
    return made


def _told(f):
    """f as a callback: what it raises becomes the library's error."""
    def call(*args):
        try:
            f(*args[:-1])
            return 0
        except Exception as e:
            args[-1].contents.message = f"{type(e).__name__}: {e}".encode()[:1000]
            return e.code if isinstance(e, Error) and e.code else 4
    return call


def _view(t, writable):
    """The memory of a contiguous tensor as an array; bf16 as uint16."""
    dtype, shape = DTYPES[t.dtype], t.shape[:t.rank]
    item = np.dtype(np.uint16 if dtype == "bf16" else _numpy_type(dtype))
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, item)
    raw = (C.c_uint8 * (count * item.itemsize)).from_address(t.data)
    a = np.frombuffer(raw, item).reshape(shape)
    a.flags.writeable = writable
    return a


def _lent(arg, i):
    t = arg.tensors[i]
    return _array_of(t) if DTYPES[t.dtype] == "bf16" else _view(t, False)


def _torch_of(arg, i):
    import torch

    t = arg.tensors[i]
    a = torch.from_numpy(_view(t, False).copy() if not t.data else _view(t, True))
    return a.view(torch.bfloat16) if DTYPES[t.dtype] == "bf16" else a


def _store(made, t):
    to = _view(t, True)
    if DTYPES[t.dtype] == "bf16":
        bits = np.asarray(made, np.float32).view(np.uint32)
        made = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    made = np.asarray(made)
    if made.shape != to.shape:
        raise TypeError(f"the kernel returned shape {list(made.shape)}, the shape function said {list(to.shape)}")
    to[...] = made


def _from_torch(x):
    import torch

    x = x.detach() if isinstance(x, torch.Tensor) else torch.as_tensor(x)
    return x.float().numpy() if x.dtype == torch.bfloat16 else x.numpy()


def register_op(name, schema, shape, kernel, gradient=None, arrays="numpy"):
    """From now on models with this op load and run: my::twice is my.twice.default of a .pt2, and the op "twice" of the
    domain "my" in ONNX (docs/CUSTOM_OPS.md).

    schema: as PyTorch writes it, "(Tensor x, float by=2.0) -> Tensor". shape(*arguments) returns a Meta (a dtype and a
    shape), or a tuple of them; its tensors are Metas, whose sizes may be unknown (Size). kernel(*arguments) returns
    arrays of those shapes; its tensors are read-only NumPy arrays that last as long as the call, or, with
    arrays="torch", tensors. gradient: the name of a registered op that takes the gradient of each result, then the
    op's arguments, and returns the gradient of each tensor. The functions are called by every thread that runs a
    model; what they raise becomes an Error that names the node."""
    if arrays not in ("numpy", "torch"):
        raise Error(f"arrays '{arrays}': expected numpy or torch", 2)
    tensor, result = (_lent, np.asarray) if arrays == "numpy" else (_torch_of, _from_torch)
    kinds = []

    def shapes(_, n, args, n_results, results):
        made = _several(shape(*[_python(args[i], kinds[i], _meta) for i in range(n)]), n_results, "the shape function")
        for to, meta in zip(results[:n_results], made):
            to.dtype, to.rank = DTYPES.index(meta.dtype), meta.ndim
            for axis, size in enumerate(meta.shape):
                text = str(size).encode()
                if len(text) >= DIM:
                    raise ValueError(f"the size {size} has more than {DIM - 1} characters")
                to.dim[axis].value = text

    def run(_, n, args, n_results, results, threads):
        made = _several(kernel(*[_python(args[i], kinds[i], tensor) for i in range(n)]), n_results, "the kernel")
        for to, x in zip(results[:n_results], made):
            _store(result(x), to)

    op = _Op(C.sizeof(_Op), name.encode(), schema.encode(), _SHAPE(_told(shapes)), _KERNEL(_told(run)),
             gradient.encode() if gradient else None, None)
    e = CError()
    check(lib().qkv_register_op(C.byref(op), C.byref(e)) == 0, e)
    kinds.extend(_types(schema))
    _registered.append(op)
