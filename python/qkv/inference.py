"""The interface of onnxruntime.InferenceSession, for programs written for it: `import qkv as ort`.

    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: array}
    logits, = session.run(None, feeds)
"""
from __future__ import annotations

import os
import warnings
from typing import Any, BinaryIO, List, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from ._lib import Error
from .model import Model

CPU = "CPUExecutionProvider"
TYPES = {"f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
         "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8",
         "f8e4m3fn": "float8e4m3fn", "f8e5m2": "float8e5m2", "f8e4m3fnuz": "float8e4m3fnuz",
         "f8e5m2fnuz": "float8e5m2fnuz", "f8e8m0fnu": "float8e8m0", "i4": "int4", "u4": "uint4", "i2": "int2",
         "u2": "uint2", "f4e2m1": "float4e2m1", "c64": "complex64", "c128": "complex128"}


class NodeArg(NamedTuple):
    """An input or output: sizes are numbers or names, `type` is "tensor(float)"."""

    name: str
    shape: List[Union[int, str]]
    type: str


class SessionOptions:
    """intra_op_num_threads is the number of threads; other attributes may be set and change nothing."""

    intra_op_num_threads = 0


def get_available_providers() -> List[str]:
    return [CPU]


def _arguments(values):
    return [NodeArg(x.get("label", x["name"]), x["shape"], f"tensor({TYPES.get(x['dtype'], x['dtype'])})")
            for x in values]


class InferenceSession:
    """onnxruntime.InferenceSession for .onnx, .pt2 and .qkv files, or the bytes of one. It runs on the CPU: another
    provider is a warning. `options` are those of qkv.Model."""

    def __init__(self, path_or_bytes: Union[str, os.PathLike, bytes, BinaryIO],
                 sess_options: Optional[SessionOptions] = None, providers: Optional[Sequence[Any]] = None,
                 provider_options: Optional[Sequence[Mapping[str, Any]]] = None, **options: Any):
        names = [p if isinstance(p, str) else p[0] for p in providers or ()]
        others = [name for name in names if name != CPU]
        if others:
            warnings.warn(f"qkv runs on the CPU: {', '.join(others)} is not used", stacklevel=2)
        options.setdefault("threads", getattr(sess_options, "intra_op_num_threads", 0) or None)
        self._model = Model(path_or_bytes, **options)
        self._about = self._model.describe()
        self._known = {x[key] for x in self._about["outputs"] for key in ("name", "label") if key in x}

    def get_inputs(self) -> List[NodeArg]:
        return _arguments(self._about["inputs"])

    def get_outputs(self) -> List[NodeArg]:
        return _arguments(self._about["outputs"])

    def get_providers(self) -> List[str]:
        return [CPU]

    def run(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any],
            run_options: Any = None) -> List[np.ndarray]:
        """The named outputs, or all if None. run_options changes nothing."""
        names = list(output_names or self._model.outputs)
        for name in names:
            if name not in self._known:
                raise Error(f"no output is called '{name}'; this model has {', '.join(self._model.outputs)}", 2)
        results = self._model.run(input_feed)
        return [results[name] for name in names]

    def io_binding(self):
        raise Error("there is no binding here, because inputs in CPU memory are not copied and outputs are NumPy's own "
                    "memory: use run (or qkv.Model.run_dlpack, which also takes and gives torch tensors)", 4)

    def run_with_iobinding(self, binding: Any, run_options: Any = None):
        self.io_binding()
