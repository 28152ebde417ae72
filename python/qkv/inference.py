"""The interface of onnxruntime's InferenceSession and what programs use beside it: `import qkv as ort`.

    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: array}
    logits, = session.run(None, feeds)
"""
from __future__ import annotations

import enum
import os
import warnings
from typing import Any, BinaryIO, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

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


class ModelMetadata(NamedTuple):
    producer_name: str
    custom_metadata_map: Dict[str, str]


class GraphOptimizationLevel(enum.IntEnum):
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class _Configured:
    """Entries are kept and change nothing."""

    def __init__(self):
        self._entries: Dict[str, str] = {}

    def _add(self, key: str, value: str) -> None:
        self._entries[key] = value

    def _get(self, key: str) -> str:
        return self._entries[key]


class SessionOptions(_Configured):
    """intra_op_num_threads is the number of threads. Other attributes may be set and change nothing: models are always
    optimized (qkv.Model's `fuse`, `rewrite` and `passes` say how)."""

    intra_op_num_threads = inter_op_num_threads = 0
    graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode = ExecutionMode.ORT_SEQUENTIAL
    log_severity_level, log_verbosity_level, logid = 2, 0, ""
    enable_profiling = False
    add_session_config_entry, get_session_config_entry = _Configured._add, _Configured._get

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Nothing to do: sizes are those of the inputs of each run."""

    def register_custom_ops_library(self, path: str) -> None:
        raise Error(f"'{path}': libraries of custom ops are not loaded; a model-local function in the ONNX file, or "
                    "the op's ATen form in a .pt2, runs without one", 4)


class RunOptions(_Configured):
    """Changes nothing."""

    log_severity_level, log_verbosity_level, logid = 2, 0, ""
    add_run_config_entry, get_run_config_entry = _Configured._add, _Configured._get


class OrtValue:
    """An array. It stays where it is: nothing is copied."""

    def __init__(self, array: np.ndarray):
        self._array = array

    @classmethod
    def ortvalue_from_numpy(cls, array: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        if device_type != "cpu":
            raise Error(f"device '{device_type}': qkv runs on the CPU", 4)
        return cls(array)

    @classmethod
    def ortvalue_from_shape_and_type(cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu",
                                     device_id: int = 0) -> "OrtValue":
        return cls.ortvalue_from_numpy(np.zeros(shape, element_type), device_type)

    def numpy(self) -> np.ndarray:
        return np.asarray(self._array)

    def shape(self) -> List[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        kind = self.numpy().dtype
        short = "bool" if kind == bool else f"{kind.kind}{kind.itemsize * 8}"
        return f"tensor({TYPES.get(short, short)})"

    def device_name(self) -> str:
        return "cpu"

    def is_tensor(self) -> bool:
        return True

    def has_value(self) -> bool:
        return True


def get_available_providers() -> List[str]:
    return [CPU]


get_all_providers = get_available_providers


def get_device() -> str:
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Nothing to do: what is to be said is a warning or an error of Python."""


# What only such programs use, and qkv.NAME finds.
NAMES = ("ExecutionMode", "GraphOptimizationLevel", "ModelMetadata", "NodeArg", "OrtValue", "RunOptions",
         "get_all_providers", "get_device", "set_default_logger_severity")


def _arguments(values):
    return [NodeArg(x.get("label", x["name"]), x["shape"], f"tensor({TYPES.get(x['dtype'], x['dtype'])})")
            for x in values]


def _only_cpu(providers):
    names = [p if isinstance(p, str) else p[0] for p in providers or ()]
    others = [name for name in names if name != CPU]
    if others:
        warnings.warn(f"qkv runs on the CPU: {', '.join(others)} is not used", stacklevel=3)


class InferenceSession:
    """onnxruntime.InferenceSession for .onnx, .pt2 and .qkv files, or the bytes of one. It runs on the CPU: another
    provider is a warning. `options` are those of qkv.Model."""

    def __init__(self, path_or_bytes: Union[str, os.PathLike, bytes, BinaryIO],
                 sess_options: Optional[SessionOptions] = None, providers: Optional[Sequence[Any]] = None,
                 provider_options: Optional[Sequence[Mapping[str, Any]]] = None, **options: Any):
        _only_cpu(providers)
        options.setdefault("threads", getattr(sess_options, "intra_op_num_threads", 0) or None)
        self._model, self._options = Model(path_or_bytes, **options), sess_options or SessionOptions()
        self._about = self._model.describe()
        self._known = {x[key] for x in self._about["outputs"] for key in ("name", "label") if key in x}

    def get_inputs(self) -> List[NodeArg]:
        return _arguments(self._about["inputs"])

    def get_outputs(self) -> List[NodeArg]:
        return _arguments(self._about["outputs"])

    def get_overridable_initializers(self) -> List[NodeArg]:
        return []

    def get_providers(self) -> List[str]:
        return [CPU]

    def get_provider_options(self) -> Dict[str, Dict[str, str]]:
        return {CPU: {}}

    def set_providers(self, providers: Sequence[Any], provider_options: Any = None) -> None:
        _only_cpu(providers)

    def disable_fallback(self) -> None:
        """Nothing to do: there is one provider."""

    enable_fallback = disable_fallback

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        """Of an ONNX file; a .pt2 and a .qkv have no metadata of this kind."""
        return ModelMetadata(self._about["producer"].partition(" ")[0], self._about["metadata"])

    def run(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any],
            run_options: Any = None) -> List[np.ndarray]:
        """The named outputs, or all if None. run_options changes nothing."""
        names = list(output_names or self._model.outputs)
        for name in names:
            if name not in self._known:
                raise Error(f"no output is called '{name}'; this model has {', '.join(self._model.outputs)}", 2)
        results = self._model.run(input_feed)
        return [results[name] for name in names]

    def run_with_ort_values(self, output_names: Optional[Sequence[str]],
                            input_dict_ort_values: Mapping[str, OrtValue], run_options: Any = None) -> List[OrtValue]:
        values = self.run(output_names, {k: v.numpy() for k, v in input_dict_ort_values.items()}, run_options)
        return [OrtValue(v) for v in values]

    def io_binding(self):
        raise Error("there is no binding here, because inputs in CPU memory are not copied and outputs are NumPy's own "
                    "memory: use run (or qkv.Model.run_dlpack, which also takes and gives torch tensors)", 4)

    def run_with_iobinding(self, binding: Any, run_options: Any = None):
        self.io_binding()
