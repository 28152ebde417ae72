"""ONNX's backend interface for the library: used by the standard's own tests, and by tools written for any backend.

    from qkv.onnx_backend import Backend
    rep = Backend.prepare(onnx.load("model.onnx"))
    out = rep.run([ids, mask])                       # in the order of the graph's inputs, or {name: array};
                                                     a named tuple

    BackendTest(Backend, __name__)                   # onnx.backend.test; tests/python/test_onnx_backend.py

Needs the packages onnx and ml_dtypes in addition to numpy. A model is first loaded without fixed inputs. If the
library reports that an input's value decides the graph (the axes of a reduction, the length of a sequence), the model
is loaded again with the values of the call, as `qkv --fix` does; `rep.fixed` names those inputs. Nodes run as the
file has them, rounding where the standard rounds: an optimised model rounds fewer times in float16.
"""
import os
import re
import tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, TypeProto, helper, numpy_helper
from onnx.backend.base import Backend as Base
from onnx.backend.base import BackendRep, namedtupledict

from ._lib import Error
from .model import Model

UNSUPPORTED, ASKS = 4, re.compile("when loading")
NAMED = re.compile(r"input \d+ '([^']*)'|input '([^']*)'")


def _array(output):
    """An Output in the dtype that ONNX's NumPy helpers use: bfloat16 as ml_dtypes has it."""
    if output.dtype == "bf16":
        return output._raw.view(ml_dtypes.bfloat16).reshape(output.shape)
    return np.asarray(output)


def _load(model, fixed):
    with tempfile.TemporaryDirectory() as folder:  # the library keeps the file mapped
        path = os.path.join(folder, "model.onnx")
        onnx.save_model(model, path, save_as_external_data=model.ByteSize() > 1 << 30)
        return Model(path, fixed=fixed, optimize=False)


def _is_plain(value):
    return isinstance(value, np.ndarray) and value.dtype.kind not in "OUS"


def _parts(name, values):
    return [f"{name}_{i}" for i in range(len(values))]


def _with_values(model, values):
    """A copy of the model in which inputs that are not numeric tensors are known:
    strings as initializers, sequences by their length."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    graph, nodes = out.graph, []
    for info in list(graph.input):
        value, optional = values.get(info.name), info.type.HasField("optional_type")
        if info.name not in values or (_is_plain(value) and not optional):
            continue
        if _is_plain(value):
            info.type.CopyFrom(info.type.optional_type.elem_type)
            continue
        graph.input.remove(info)
        if isinstance(value, np.ndarray):
            graph.initializer.append(numpy_helper.from_array(value.astype(object), info.name))
        elif value is None:
            nodes.append(helper.make_node("Optional", [], [info.name], type=info.type.optional_type.elem_type))
        else:
            for part, v in zip(_parts(info.name, value), value):
                graph.input.append(helper.make_tensor_value_info(part, helper.np_dtype_to_tensor_dtype(v.dtype),
                                                                 v.shape))
            nodes.append(helper.make_node("SequenceConstruct", _parts(info.name, value), [info.name]) if value else
                         helper.make_node("SequenceEmpty", [], [info.name], dtype=TensorProto.FLOAT))
    for node in reversed(nodes):
        graph.node.insert(0, node)
    return out


class Rep(BackendRep):
    """A model that is ready, or that waits for the values of inputs that decide its graph."""

    def __init__(self, model):
        known = {t.name for t in model.graph.initializer}
        self._proto, self._made = model, {}
        self.inputs = [i.name for i in model.graph.input if i.name not in known]
        self.outputs = [o.name for o in model.graph.output]
        self.fixed = []
        try:
            self._model = _load(model, None)
        except Error as e:
            if e.code != UNSUPPORTED or not ASKS.search(str(e)):
                raise
            self._model, self._refusal = None, str(e)

    def _for_values(self, feeds):
        """Loads the model, fixing the inputs that the library asks for one after the other."""
        proto, fixed = self._proto, {}
        if not all(_is_plain(v) for v in feeds.values()) or any(i.type.HasField("optional_type")
                                                                for i in proto.graph.input):
            proto = _with_values(proto, feeds)
            try:
                return _load(proto, None)
            except Error as e:
                if e.code != UNSUPPORTED or not ASKS.search(str(e)):
                    raise
                message = str(e)
        else:
            message = self._refusal
        while True:
            names = [n for found in NAMED.findall(message) for n in found if _is_plain(feeds.get(n)) and n not in fixed]
            if not names:  # the deciding value is computed from inputs, integers among them
                names = [n for n, v in feeds.items() if _is_plain(v) and v.dtype.kind in "iub" and n not in fixed]
            if not names and proto is self._proto:
                raise Error(message, UNSUPPORTED)
            fixed.update({n: feeds[n] for n in names})
            self.fixed = sorted(fixed) + [n for n, v in feeds.items() if not _is_plain(v)]
            try:
                key = repr([(n, v.dtype, v.shape, v.tobytes()) for n, v in fixed.items()])
                if proto is not self._proto:
                    return _load(proto, fixed)
                if key not in self._made:
                    self._made[key] = _load(proto, fixed)
                return self._made[key]
            except Error as e:
                if e.code != UNSUPPORTED or not ASKS.search(str(e)) or not names:
                    raise
                message = str(e)

    def run(self, inputs, **_):
        feeds = dict(inputs) if isinstance(inputs, dict) else dict(zip(self.inputs, inputs))
        feeds = {n: v if v is None or isinstance(v, (list, tuple)) else np.asarray(v) for n, v in feeds.items()}
        model = self._model or self._for_values(feeds)
        for name, value in list(feeds.items()):
            if isinstance(value, (list, tuple)):
                feeds.update(zip(_parts(name, value), value))
        found = model.run_dlpack({n: feeds[n] for n in model.inputs if n in feeds})
        results = []
        for name in self.outputs:
            if name in found:
                results.append(_array(found[name]))
            else:  # a sequence: its elements are separate outputs
                results.append([_array(found[n]) for n in model.outputs if re.fullmatch(re.escape(name) + r"_\d+", n)])
        return namedtupledict("Outputs", self.outputs)(*results)


class Backend(Base):
    @classmethod
    def supports_device(cls, device):
        return device == "CPU"

    @classmethod
    def is_compatible(cls, model, device="CPU", **_):
        try:
            return cls.supports_device(device) and Rep(model) is not None
        except Error as e:
            if e.code != UNSUPPORTED:
                raise
            return False

    @classmethod
    def prepare(cls, model, device="CPU", **_):
        if not cls.supports_device(device):
            raise Error(f"device {device}: only CPU is supported", 2)
        return Rep(model)

    @classmethod
    def run_node(cls, node, inputs, device="CPU", outputs_info=None, **kwargs):
        feeds = dict(inputs) if isinstance(inputs, dict) else dict(zip([n for n in node.input if n], inputs))
        feeds = {n: np.asarray(v) for n, v in feeds.items()}
        ins = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
               for n, v in feeds.items()]
        outs = [helper.make_value_info(n, TypeProto()) for n in node.output if n]
        opsets = [helper.make_opsetid("", kwargs.get("opset_version", onnx.defs.onnx_opset_version()))]
        if node.domain:
            opsets.append(helper.make_opsetid(node.domain, 1))
        model = helper.make_model(helper.make_graph([node], "node", ins, outs), opset_imports=opsets)
        return cls.prepare(model, device).run(feeds)


prepare, run_model, run_node = Backend.prepare, Backend.run_model, Backend.run_node
supports_device, is_compatible = Backend.supports_device, Backend.is_compatible
