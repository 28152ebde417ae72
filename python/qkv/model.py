"""Model: a .pt2, ONNX or packed file that runs in C."""
from __future__ import annotations

import asyncio
import contextlib
import ctypes as C
import functools
import json
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Dict, Iterable, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ._backends import cudnn_number
from ._html import ReportDict, html_table
from ._lib import (DTYPES, BackendsOptions, CError, CTensor, Error, GraphOptions, JointOptions,
                   LoadOptions, Metric, OnnxOptions, Progress, QuantizeOptions, RewriteOptions, SessionOptions, check,
                   choice, lib, text)
from ._measure import Measured, Watched
from ._patterns import Pattern, _rules
from ._sessions import WRITES_BUFFERS, Sessions
from ._tensors import Output, Outputs, Results, _array_of, _borrow, _output_memory

if TYPE_CHECKING:
    from torch.export import ExportedProgram
else:
    ExportedProgram = Any  # hints are there without torch

Feeds = Union[Mapping[str, Any], Sequence[Any], np.ndarray]
Names = Union[str, Iterable[str]]


class _Opened:
    """One session of the library, used by one thread at a time."""

    def __init__(self, model, threads, optimize, portable_bits, memory_limit):
        self.pointer = None
        e, size = CError(), C.sizeof(SessionOptions)
        options = SessionOptions(size, threads or 0, memory_limit, 0 if optimize else 1, portable_bits=portable_bits)
        self._free = lib().qkv_session_free
        self.pointer = lib().qkv_session_create(model, C.byref(options), C.byref(e))
        check(self.pointer, e)
        self._made = {}
        self._memory = _output_memory(self._made)
        lib().qkv_session_output_memory(self.pointer, self._memory, None)

    def run(self, feeds, kept, outputs):
        if not isinstance(feeds, dict):
            feeds = {str(i): x for i, x in enumerate(feeds if isinstance(feeds, (list, tuple)) else [feeds])}
        e, alive = CError(), []
        try:
            for name in kept:
                check(lib().qkv_session_keep(self.pointer, name.encode(), C.byref(e)) == 0, e)
            for name, x in feeds.items():
                alive.append(_borrow(x))
                tensor = C.byref(alive[-1].c)
                check(lib().qkv_session_set_input(self.pointer, name.encode(), tensor, C.byref(e)) == 0, e)
            check(lib().qkv_session_run(self.pointer, C.byref(e)) == 0, e)
            return Results((outputs[i], made) for i, made in sorted(self._made.items()))
        finally:  # arrays of this run are not the next one's
            self._made.clear()
            lib().qkv_session_clear_inputs(self.pointer)

    def feed(self, name, output):
        e = CError()
        ok = lib().qkv_session_feed(self.pointer, name.encode(), output and output.encode(), C.byref(e)) == 0
        check(ok, e)

    def output(self, name):
        e, t = CError(), CTensor()
        check(lib().qkv_session_output_by_name(self.pointer, name.encode(), C.byref(t), C.byref(e)) == 0, e)
        return _array_of(t)

    def input_shapes(self, names):
        e, t, found = CError(), CTensor(), {}
        for i, name in enumerate(names):
            check(lib().qkv_session_input(self.pointer, i, C.byref(t), C.byref(e)) == 0, e)
            found[name] = t.shape[:t.rank]
        return found

    def forget_outputs(self):
        self._made.clear()

    def reset(self):
        lib().qkv_session_reset(self.pointer)

    def cancel(self, on):
        lib().qkv_session_cancel(self.pointer, int(on))

    def close(self):
        if self.pointer:
            self._free(self.pointer)
        self.pointer = None

    __del__ = close


class _Runs:
    """The public methods that run, on top of `_run`."""

    inputs: list[str]
    outputs: list[str]

    def __call__(self, *args: Any, **named: Any) -> Outputs:
        """model(ids, attention_mask=mask): inputs by position or name, results by both: `logits, = model(ids)`,
        model(ids)["logits"]."""
        if len(args) > len(self.inputs):
            raise Error(f"{len(args)} inputs were given, the model has {len(self.inputs)}: {', '.join(self.inputs)}", 2)
        feeds = dict(zip(self.inputs, args))
        twice = [name for name in named if name in feeds]
        if twice:
            raise Error(f"input '{twice[0]}' was given by position and by name: give it once", 2)
        return Outputs(self.run({**feeds, **named}))

    def run(self, feeds: Feeds, keep: Names = ()) -> Dict[str, np.ndarray]:
        """feeds: {input name: array}, or a list in order. Returns {output name: NumPy array}; results[0] and
        results["output_0"] read by position.

        keep=["image"] caches that input: later runs may leave it out until it is given again, and what depends only on
        such inputs is computed once, such as the features of an image for all texts that follow. The results are the
        same, bit for bit."""
        return _arrays(self._run(feeds, _names(keep)))

    def run_dlpack(self, feeds: Feeds, keep: Names = ()) -> Dict[str, Output]:
        """The same, as Output objects, which keep bf16 and support DLPack."""
        return self._run(feeds, _names(keep))


def _arrays(results):
    return Results((name, np.asarray(o)) for name, o in results.items())


def _folder_of(cache):
    return None if cache is None or cache is False else b"" if cache is True else os.fsencode(cache)


def _names(keep):
    return [keep] if isinstance(keep, str) else list(keep)


class Session(_Runs, Watched):
    """What Model.session() returns: it has its own written buffers, kept inputs and random generator, and shares the
    model's weights. Any thread may use it, one at a time; concurrent use is an Error, but for `cancel`. Model.rewrite
    and Model.set_weights need all sessions closed."""

    def __init__(self, model):
        self._model, self._lock, self._kept = model, threading.Lock(), False
        self._door = threading.RLock()  # held while the session is closed or cancelled, by a signal's handler too
        self.inputs, self.outputs = model.inputs, model.outputs
        self._opened = None
        self._opened = model._sessions.hold()

    @contextlib.contextmanager
    def _use(self):
        if not self._lock.acquire(blocking=False):
            raise Error("another thread is using this session: use one session per thread, model.session(), or let "
                        "one thread "
                        "wait for the other", 2)
        try:
            if self._opened is None:
                raise Error("this session is closed", 2)
            yield self._opened
        finally:
            self._lock.release()

    def _run(self, feeds, keep):
        with self._use() as opened:
            self._kept |= bool(keep)
            return opened.run(feeds, keep, self._model.outputs)

    async def arun(self, feeds: Feeds, keep: Names = ()) -> Dict[str, np.ndarray]:
        """run, in one of asyncio's threads."""
        return await asyncio.to_thread(self.run, feeds, keep)

    def feed(self, name: str, from_: Optional[str]) -> None:
        """session.feed("past_0", from_="output_1"): after every run that input is what that output was in it, without
        a copy, and runs do not return the output (session.output gives it). Where the model appends to the input, it
        grows in place, and begins empty if the first run is not given it. from_=None ends it. (docs/GENERATE.md)"""
        with self._use() as opened:
            self._kept = True
            opened.feed(name, from_)

    def output(self, name: str) -> np.ndarray:
        """A copy of an output of the last run: one that is fed to an input."""
        with self._use() as opened:
            return opened.output(name)

    def reset(self) -> None:
        """Buffers that the model writes go back to the file's values; fed inputs are not set any more."""
        with self._use() as opened:
            opened.reset()

    def cancel(self, on: bool = True) -> None:
        """From any thread: ends the run that is under way, within milliseconds, and every later one, with an Error of
        code 5; buffers are as they were before it. cancel(False): the session runs again."""
        with self._door:
            if self._opened is None:
                raise Error("this session is closed", 2)
            self._opened.cancel(on)

    def close(self):
        """Drops kept inputs and buffers; further runs are errors."""
        if self._opened is None:
            return
        with self._use() as opened:
            with self._door:
                self._opened = None
                opened.cancel(False)
            self._model._sessions.release(opened, again=not self._kept and not self._model._sessions.state)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_opened", None):
            self.close()


def _ask(metric, pointer, figure, raised):
    """metric(model) of a model that the library lends, for Model.quantize; what it raises goes through `raised`."""
    try:
        model = Model._of(pointer)
        try:
            figure[0] = float(metric(model))
        finally:
            model._lend_back()
    except BaseException as e:
        raised.append(e)
    return int(bool(raised))


class Model(_Runs, Measured):
    """An open model file. Any number of threads may run it at once: each run has a session to itself, a free one or a
    new one. Sessions share the mapped weights. From its second run on, each keeps its own packed copy of them, unless
    the file is packed (Model.pack).

    path may also be the bytes of a file or an object that reads them (open(..., "rb"), io.BytesIO, a member of an
    archive); a BytesIO is read from its beginning. They are copied. Or the ExportedProgram that torch.export.export
    returned, which goes through memory.

    State that one run leaves to the next is never mixed. Inputs that a thread keeps (keep=[...]) belong to that
    thread. A model that writes buffers (a StaticCache) has one such state, which belongs to the thread that ran it
    first, until reset(). Until then a run in another thread is an Error; session() gives each thread its own state. A
    model that draws random numbers runs in one thread at a time, so that no two runs draw the same ones.

    compute="bf16" runs matrix products, convolutions and attention in bfloat16, accumulated in float32; outputs keep
    their dtypes. threads=None takes QKV_NUM_THREADS, OMP_NUM_THREADS, or the CPUs that this process may use.
    fixed={name: array} turns inputs of an ONNX model into constants, so that shapes and axes may depend on them.
    optimize=False runs the nodes of the file unchanged. Otherwise a rewritten copy runs, in which each spelling of
    attention, norms and activations is one op; the model itself, and what save writes, do not change. skip_padding=True:
    where a key padding mask marks tokens, the network runs on the real ones only, and padded positions of outputs are 0
    (model.rewrite(skip_padding=True) reports what it found). mmap=False reads the file into memory: one that is
    mapped and cut short by another process ends this one by SIGBUS. portable_bits=True: the same bits on every x86 CPU
    (docs/DETERMINISM.md); by default they are the same on CPUs of one level. memory_limit: the most bytes that a
    session takes for activations, constants, scratch and inputs (0: no limit); more is an Error with code 5 before
    anything is allocated. For models of strangers: a hundred bytes can ask for any size.

    cache=True, or a folder: the model is kept there packed for this CPU (Model.pack; True: $XDG_CACHE_HOME/qkv/packed),
    and mapped from there from the second time on, so that processes share one copy of its weights. `cached` says
    whether this one is, `cache_note` why it is not, or which file it is.
    """

    path: Optional[str]

    def __init__(self, path: Union[str, os.PathLike, bytes, BinaryIO, ExportedProgram], compute: Optional[str] = None,
                 threads: Optional[int] = None, fuse: bool = True, fixed: Optional[Mapping[str, Any]] = None,
                 optimize: bool = True, skip_padding: bool = False, mmap: bool = True,
                 cache: Union[bool, str, os.PathLike] = False, portable_bits: bool = False, memory_limit: int = 0):
        self._model = self._sessions = None
        data = _bytes_of(path)
        self.path = str(path) if data is None else None
        self._args = (self.path, compute, threads, fuse, fixed, optimize, skip_padding, mmap, cache, portable_bits,
                      memory_limit)
        e = CError()
        borrowed = [_borrow(x) for x in (fixed or {}).values()]
        names = (C.c_char_p * len(borrowed))(*[name.encode() for name in fixed or {}])
        tensors = (CTensor * len(borrowed))(*[b.c for b in borrowed])
        options = LoadOptions(C.sizeof(LoadOptions), DTYPES.index(compute) if compute else 0, 0 if fuse else 1, names,
                              tensors, len(borrowed),
                              skip_padding, 0 if mmap else 1, _folder_of(cache))
        if data is None:
            self._model = lib().qkv_model_load(self.path.encode(), C.byref(options), C.byref(e))
        else:
            self._model = lib().qkv_model_load_memory(data.ctypes.data, data.size, C.byref(options), C.byref(e))
        check(self._model, e)
        self._rewrites, self._before, self._users = [], [], weakref.WeakSet()
        self._open_sessions()
        self._list_ends()

    @property
    def cached(self) -> bool:
        """Mapped from a file of the folder that cache= asked for."""
        return bool(lib().qkv_model_cached(self._model, None))

    @property
    def cache_note(self) -> Optional[str]:
        """What became of cache=, in a sentence; None where it was not given."""
        note = C.c_char_p()
        lib().qkv_model_cached(self._model, C.byref(note))
        return note.value.decode() if note.value else None

    def _list_ends(self):
        m = self._model
        self.inputs = [lib().qkv_model_input_name(m, i).decode() for i in range(lib().qkv_model_input_count(m))]
        self.outputs = [lib().qkv_model_output_label(m, i).decode() for i in range(lib().qkv_model_output_count(m))]

    def _open_sessions(self):
        self._sessions = Sessions(self._maker(), lib().qkv_model_state(self._model))
        self._sessions.warm()

    def _maker(self):
        return functools.partial(_Opened, self._model, self._args[2], self._args[5], *self._args[9:])

    def _become(self, made):
        """The library's models do not change; this one stands for another from now on."""
        self._before.append(self._model)  # a Trainer may still run it
        self._model = made
        self._sessions.make = self._maker()

    def _free(self):
        for model in (self._model, *self._before):
            lib().qkv_model_free(model)
        self._model, self._before = None, []

    def _lend_back(self):
        """Of a model that the library owns: ends the sessions, and frees nothing else."""
        with self._sessions.closed():
            self._sessions.make = _refuse_closed
        self._model, self._before = None, []

    def close(self) -> None:
        """Ends the sessions and lets go of the file; further runs are errors. `with qkv.Model(path) as model` closes.
        Sessions of one's own must be closed before. While a Trainer, Segmenter or generalized model still works with
        the file, it stays open."""
        if self._model is None:
            return
        with self._sessions.closed():
            self._sessions.make = _refuse_closed
            if not self._users:
                self._free()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __del__(self):
        if getattr(self, "_sessions", None):
            self._sessions.close()
        if getattr(self, "_model", None):
            self._free()

    def __repr__(self):
        if self._model is None:
            return f"qkv.Model({self.path!r}, closed)"
        about = self.describe()
        lines = [f"{kind} {', '.join(_end_text(x) for x in about[kind]) or 'none'}" for kind in ("inputs", "outputs")]
        sizes = [f"{name} {low} to {'any' if high is None else high}" for name, (low, high) in self.symbols.items()]
        lines += ["sizes " + ", ".join(sizes)] if sizes else []
        return "\n  ".join([f"qkv.Model({self.path!r})", *lines])

    @classmethod
    def _of(cls, pointer, keep=None):
        """A model that the library made in memory; keep: owners of its weights' memory, where it does not share it."""
        m = cls.__new__(cls)
        m._model, m._sessions, m._keep, m.path, m._rewrites, m._before = pointer, None, keep, None, [], []
        m._users = weakref.WeakSet()
        for owner in keep or ():
            owner._users.add(m)
        m._args = (None, None, None, True, None, True, False, True, False, False, 0)
        m._open_sessions()
        m._list_ends()
        return m

    def __reduce__(self):  # another process opens the file again; weights are mapped, not sent
        if self.path is None:
            raise Error("a model made in memory cannot be sent; save it first", 2)
        return (_reopen, (self._args, self._rewrites))

    @property
    def symbols(self) -> Dict[str, Tuple[int, Optional[int]]]:
        """{name: (min, max)}; max None = unbounded."""
        out, lo, hi = {}, C.c_int64(), C.c_int64()
        for i in range(lib().qkv_model_symbol_count(self._model)):
            name = lib().qkv_model_symbol(self._model, i, C.byref(lo), C.byref(hi)).decode()
            out[name] = (lo.value, None if hi.value == 2**63 - 1 else hi.value)
        return out

    def describe(self) -> ReportDict:
        """What `qkv inspect --json` prints, as a dict."""
        e = CError()
        return ReportDict(json.loads(text(lib().qkv_model_describe(self._model, C.byref(e)), e)))

    def name_sizes(self, names: Mapping[str, str]) -> None:
        """Calls sizes otherwise from now on, {"s43": "batch"}, in everything that is said and written of the model.
        The old names still find them. A file of qkv.export has the names of its Dims."""
        e, room = CError(), max(len(names), 1)
        old, new = ((C.c_char_p * room)(*[x.encode() for x in part]) for part in (names, names.values()))
        with self._sessions.closed():
            made = lib().qkv_model_with_size_names(self._model, old, new, len(names), C.byref(e))
            check(made, e)
            self._become(made)

    def graph_view(self, module: Optional[str] = None, op: Optional[str] = None, around: Optional[str] = None,
                   hops: int = 1, passes: Optional[str] = None, as_run: bool = False, format: str = "text") -> str:
        """The nodes of a module, of an op ("linear"), at most `hops` edges from the node `around`, or those that meet
        all conditions given, as text, "dot" (for graphviz) or "svg". as_run=True: of the graph that runs; passes=
        "detach,rewrite": after these."""
        e, texts = CError(), [None if x is None else x.encode() for x in (passes, module, op, around)]
        options = GraphOptions(C.sizeof(GraphOptions), choice("graph_format", format), texts[0], as_run, *texts[1:],
                               hops)
        return text(lib().qkv_model_graph_view(self._model, C.byref(options), C.byref(e)), e)

    def to_dtype(self, dtype: str) -> Model:
        """A new model with other float types, for files: "f16" or "bf16" for products, attention, embedding tables
        and their weights (norms, sums, inputs and outputs stay float32), "f32" for all of a half-precision model. Its
        `dtype_report` names the ops of either kind."""
        e, report = CError(), C.c_void_p()
        made = lib().qkv_model_with_dtype(self._model, DTYPES.index(dtype), C.byref(report), C.byref(e))
        check(made, e)
        model = Model._of(made)
        model.dtype_report = json.loads(text(report.value, e))
        return model

    def module_of(self, node: str) -> Optional[str]:
        """The path of the module that a node of graph_text() belongs to, "encoder.layers.0.attn", "" for the model
        itself; None where the file does not say."""
        path = lib().qkv_model_node_module(self._model, node.encode())
        return None if path is None else path.decode()

    def graph_text(self) -> str:
        e = CError()
        return text(lib().qkv_model_graph_text(self._model, C.byref(e)), e)

    def graph(self, passes: Optional[str] = "import") -> ReportDict:
        """The graph as a dict of inputs, weights, outputs and nodes (docs/schema/graph.json), after the passes that
        are named ("import,detach,rewrite"); None: as a session runs it."""
        e = CError()
        found = lib().qkv_model_graph_json(self._model, passes.encode() if passes else None, C.byref(e))
        return ReportDict(json.loads(text(found, e)))

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        if self._model is None:
            return html_table(f"{self.path} (closed)", [], [])
        about = self.describe()
        rows = [[kind[:-1], x.get("label", x["name"]), x["dtype"], ", ".join(map(str, x["shape"]))]
                for kind in ("inputs", "outputs") for x in about[kind]]
        sizes = [["size", name, "", f"{low} to {'any' if high is None else high}"]
                 for name, (low, high) in self.symbols.items()]
        title = f"{os.path.basename(str(self.path))}: {about['parameters']:,} parameters, {about['nodes']:,} nodes"
        return html_table(title, ["", "name", "dtype", "sizes"], rows + sizes)

    def rewrite(self, prove: bool = False, rules: Iterable[Union[str, os.PathLike, Pattern]] = (),
                phases: Iterable[str] = ("recompose", "convert", "fuse"), exact_masked_rows: bool = False,
                counterexample: Optional[str] = None, skip_padding: bool = False, lift_sdpa: Optional[str] = None,
                cudnn: Optional[str] = None, builtin_rules: bool = True) -> Dict[str, Any]:
        """Turns every spelling of attention into scaled_dot_product_attention, and norms, activations and others into
        one op each. Returns the report of `qkv rewrite --json` as a dict. rules: more rules, files or qkv.pattern(...);
        the report's `refused` says where these did not fire; builtin_rules=False leaves the built-in ones out.
        prove=True evaluates every replacement first; one that differs raises Error (code 1). skip_padding=True:
        afterwards, where a key padding mask marks tokens, the network runs on the real ones only
        (docs/SKIP_PADDING.md). lift_sdpa="cpu", "cuda-sm90" ...: afterwards, attention is changed so that PyTorch takes
        a better kernel on that device (docs/BACKENDS.md). In the library this is a new model, which this object stands
        for from now on; a Trainer or joint() made before keeps the one it was made of."""
        e, report, rules = CError(), C.c_void_p(), list(rules)
        given, functions = _rules(rules)
        options = RewriteOptions(C.sizeof(RewriteOptions), phases=sum(choice("phase", p) for p in phases), prove=prove,
                                 no_builtin_rules=not builtin_rules,
                                 counterexample=os.fsencode(counterexample) if counterexample else None,
                                 exact_masked_rows=exact_masked_rows, skip_padding=skip_padding,
                                 lift_sdpa=lift_sdpa.encode() if lift_sdpa else None, cudnn=cudnn_number(cudnn),
                                 **given)
        with self._sessions.closed():
            made = lib().qkv_model_rewrite(self._model, C.byref(options), C.byref(report), C.byref(e))
            found = json.loads(text(report.value, e)) if report.value else None
            functions.warn()
            check(made, e)
            self._become(made)
        found = ReportDict(found)
        self._rewrites.append(dict(rules=rules, phases=phases, exact_masked_rows=exact_masked_rows,
                                   skip_padding=skip_padding, lift_sdpa=lift_sdpa, cudnn=cudnn,
                                   builtin_rules=builtin_rules))
        return found

    def backends(self, device: str = "cpu", dims: Optional[Mapping[str, int]] = None, train: bool = False,
                 cudnn: Optional[str] = None) -> Dict[str, Any]:
        """qkv.backends of this model."""
        e, dims = CError(), dims or {}
        names = (C.c_char_p * max(len(dims), 1))(*[k.encode() for k in dims])
        options = BackendsOptions(C.sizeof(BackendsOptions), device.encode(), cudnn_number(cudnn), train, names,
                                  (C.c_int64 * max(len(dims), 1))(*dims.values()), len(dims))
        return ReportDict(json.loads(text(lib().qkv_model_backends(self._model, C.byref(options), C.byref(e)), e)))

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Writes a .pt2 that torch.export.load and qkv.Model read, with the same inputs, outputs,
        weights and results."""
        e = CError()
        check(lib().qkv_model_save(self._model, os.fsencode(path), C.byref(e)) == 0, e)

    def pack(self, path: Union[str, os.PathLike]) -> None:
        """Writes the model as this machine runs it (.qkv), with weights packed for this CPU.
        qkv.Model maps the file; other CPUs refuse it."""
        e = CError()
        check(lib().qkv_model_pack(self._model, os.fsencode(path), None, C.byref(e)) == 0, e)

    def save_onnx(self, path: Union[str, os.PathLike], opset: Optional[int] = None, profile: str = "ort",
                  external_data: Optional[bool] = None) -> Dict[str, Any]:
        """Writes ONNX for a runtime: profile "ort", "openvino", "tensorrt", or "spec" for the standard.
        opset: 13 to 25; None: the first from 18 on that has what the model needs.
        external_data: True writes weights to a separate file, False never does, None does above 2 GiB. Returns the
        report of `qkv convert --json` as a dict. What ONNX cannot express raises Error with code 4, naming
        every node."""
        e, report = CError(), C.c_void_p()
        options = OnnxOptions(C.sizeof(OnnxOptions), opset or 0, choice("onnx_profile", profile),
                              0 if external_data is None else 1 if external_data else -1)
        ok = lib().qkv_model_save_onnx(self._model, os.fsencode(path), C.byref(options), C.byref(report),
                                       C.byref(e)) == 0
        found = json.loads(text(report.value, e)) if report.value else None
        check(ok, e)
        return found

    def extract(self, start: Names = (), end: Names = ()) -> Model:
        """A new model: the part between the values named by start (none: the inputs that are needed) and those named
        by end (none: the outputs), which become its inputs and outputs. Names are those of graph_text()."""
        e, names = CError(), [[start] if isinstance(start, str) else list(start),
                              [end] if isinstance(end, str) else list(end)]
        texts = [(C.c_char_p * max(len(n), 1))(*[x.encode() for x in n]) for n in names]
        made = lib().qkv_model_extract(self._model, texts[0], len(names[0]), texts[1], len(names[1]), C.byref(e))
        check(made, e)
        return Model._of(made)

    def joint(self, loss: Optional[str] = None, inputs: Names = (), parameters: bool = True, decompose: str = "none",
              recompute: str = "none", dims: Optional[Mapping[str, int]] = None, device: Optional[str] = None,
              cudnn: Optional[str] = None) -> Model:
        """The model and the gradients of its output `loss` (a scalar; None: the only output) as one model: its
        outputs, then grad.NAME of every parameter with requires_grad, and of inputs that had requires_grad at export
        or are named here ("*": all float inputs). decompose="math" writes attention as products and a softmax, whose
        result the backward pass reads; "core" writes everything in ATen's core ops. recompute="cheap" or "blocks"
        trades time for memory (docs/JOINT.md), decided at the sizes `dims` ({"batch": 8}; others are the file's
        examples). device="cuda-sm90" and others: a .pt2 of it has attention and its gradient as PyTorch's ops for that
        device. The result's `joint_report` is the report of `qkv joint --json`."""
        e, report, names = CError(), C.c_void_p(), [inputs] if isinstance(inputs, str) else list(inputs)
        texts = (C.c_char_p * max(len(names), 1))(*[n.encode() for n in names])
        dims = dims or {}
        room = max(len(dims), 1)
        sizes = (C.c_char_p * room)(*[k.encode() for k in dims]), (C.c_int64 * room)(*dims.values())
        options = JointOptions(C.sizeof(JointOptions), loss.encode() if loss else None,
                               choice("decompose", decompose), texts, len(names), not parameters,
                               choice("recompute", recompute), *sizes, len(dims),
                               device.encode() if device else None, cudnn_number(cudnn))
        made = lib().qkv_model_joint(self._model, C.byref(options), C.byref(report), C.byref(e))
        check(made, e)
        model = Model._of(made)
        model.joint_report = json.loads(text(report.value, e))
        return model

    def quantize(self, data: Optional[Mapping[str, Any]] = None, calibration: str = "minmax",
                 percentile: float = 99.99, target: str = "cpu", dynamic: bool = False, asymmetric: bool = False,
                 skip: Names = (), batch: int = 0, threads: int = 0, seed: int = 0,
                 progress: Optional[Callable[[int, int], Any]] = None, smooth: float = 0,
                 correct: bool = False, budget: str = "", weight_bits: int = 0, group: int = 0,
                 weight_method: str = "", trainable: bool = False,
                 metric: Optional[Callable[[Model], float]] = None, metric_calls: int = 0,
                 massive: float = 1000, calibration_cache: Union[str, os.PathLike, None] = None) -> Model:
        """A model whose linear layers and attentions stand between quantizers, where `target` multiplies integers
        (docs/QUANTIZE.md). data: arrays by the names of inputs, one example a row, from which the ranges come by
        `calibration` ("minmax", "average", "percentile", "entropy", "mse"); None: random numbers, which say little of
        a trained model. dynamic=True needs none: each run finds a scale a token. skip: names of nodes, weights or ops
        ("aten.convolution*") to leave in floats, with * and ?. smooth: SmoothQuant's alpha (0: not). correct: biases
        take up what rounding weights does to mean results. budget: "cosine>=0.999" or "kl<=0.01": layers that lose
        too much stay in floats, with weight_bits=4 in 8 bits. weight_bits=4 or 8: the weights of linear layers alone,
        by a scale for `group` (32) elements of a row, rounded by weight_method "rtn", "gptq", "awq" or "awq+gptq";
        with dynamic=True what layers read is rounded, too. trainable=True leaves weights in floats, each with its
        quantizer, for training (qkv.quant.prepare, Trainer); a model that was trained so keeps its quantizers.
        metric(model) finds a figure of its own, such as the accuracy on labelled data, of the floats and of the
        result; with budget "metric>=0.98", "metric>=99%" (of the floats') or "metric<=12" also of candidates, at most
        metric_calls (20) in all. Its model is open until it returns. massive: what reads values with elements so many
        times their median stays in floats (dynamic=True: where there are data). calibration_cache: a file that keeps
        what was seen of the data; a call that was stopped goes on there, and one with the same model, data and
        calibration does not look again. progress(done, total) is called after every batch; a true result stops. The
        result's `quantize_report` is the report of `qkv quantize --json`."""
        e, report, skip = CError(), C.c_void_p(), [skip] if isinstance(skip, str) else list(skip)
        borrowed = {name: _borrow(x) for name, x in (data or {}).items()}
        room = max(len(borrowed), 1)
        options = QuantizeOptions(C.sizeof(QuantizeOptions), target.encode(), choice("calibration", calibration),
                                  percentile, asymmetric, dynamic, (C.c_char_p * room)(*[n.encode() for n in borrowed]),
                                  (CTensor * room)(*[b.c for b in borrowed.values()]), len(borrowed), batch,
                                  (C.c_char_p * max(len(skip), 1))(*[n.encode() for n in skip]), len(skip), threads,
                                  seed, smooth=smooth, correct=correct,
                                  budget=budget.encode() or None, weight_bits=weight_bits, group=group,
                                  weight_method=weight_method.encode() or None, trainable=trainable)
        if progress:
            options.progress = Progress(lambda _, done, total: int(bool(progress(done, total))))
        raised = []
        options.metric_calls, options.massive = metric_calls, massive
        options.calibration_cache = os.fsencode(calibration_cache) if calibration_cache else None
        if metric:
            options.metric = Metric(lambda _, pointer, figure: _ask(metric, pointer, figure, raised))
        made = lib().qkv_model_quantize(self._model, C.byref(options), C.byref(report), C.byref(e))
        if raised:
            raise raised[0]
        check(made, e)
        model = Model._of(made)
        model.quantize_report = json.loads(text(report.value, e))
        return model

    def weights(self) -> Dict[str, np.ndarray]:
        """{name in the state dict: NumPy array}: parameters and persistent buffers, copied."""
        out, t, kind, persistent = {}, CTensor(), C.c_int(), C.c_int()
        for i in range(lib().qkv_model_weight_count(self._model)):
            name = lib().qkv_model_weight(self._model, i, C.byref(t), C.byref(kind), C.byref(persistent)).decode()
            if kind.value == 0 or persistent.value:
                out[name] = _array_of(t)
        return out

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Sets the values of these weights, {name: array}, with the same dtypes and sizes; all or none."""
        e, borrowed = CError(), [_borrow(x) for x in weights.values()]
        names = (C.c_char_p * max(len(borrowed), 1))(*[name.encode() for name in weights])
        with self._sessions.closed():
            values = (CTensor * max(len(borrowed), 1))(*[b.c for b in borrowed])
            made = lib().qkv_model_with_weights(self._model, names, values, len(borrowed), C.byref(e))
            check(made, e)
            self._become(made)

    def _run(self, feeds, keep):
        sessions = self._sessions
        if sessions.state:
            lent = sessions.only(keeps=bool(keep))
        else:
            lent = sessions.own() if keep or sessions.has_own() else sessions.lend()
        with lent as opened:
            return opened.run(feeds, keep, self.outputs)

    async def arun(self, feeds: Feeds) -> Dict[str, np.ndarray]:
        """run, in one of asyncio's threads. State that one run leaves to the next (buffers that the model writes, keep)
        needs a session: await model.session().arun(...)."""
        if self._sessions.state & WRITES_BUFFERS:
            raise Error("this model continues from the buffers that its last run wrote: create a model.session() "
                        "and await its arun", 2)

        def run():
            sessions = self._sessions
            with sessions.only() if sessions.state else sessions.lend() as opened:
                return _arrays(opened.run(feeds, (), self.outputs))

        return await asyncio.to_thread(run)

    def session(self) -> Session:
        """A separate Session: `with model.session() as s: s.run(...)`."""
        return Session(self)

    def reset(self) -> None:
        """Buffers that the model writes go back to the file's values."""
        if self._sessions.state:
            with self._sessions.only(begin=True) as opened:
                opened.reset()


def joint(model: Union[Model, str, os.PathLike], loss: Optional[str] = None,
          path: Union[None, str, os.PathLike] = None, **options: Any) -> Model:
    """Model.joint for a path or Model. If path is given, writes it as .pt2, or as ONNX if it ends in .onnx."""
    made = (model if isinstance(model, Model) else Model(model)).joint(loss, **options)
    if path:
        (made.save_onnx if os.fspath(path).endswith(".onnx") else made.save)(path)
    return made


def _bytes_of(source):
    """What is not a path, as an array of bytes; None for a path."""
    if type(source).__module__ == "torch.export.exported_program":
        from ._program import archive

        source = archive(source)
    if hasattr(source, "getbuffer"):
        source = source.getbuffer()
    elif hasattr(source, "read"):
        source = source.read()
    elif isinstance(source, (str, os.PathLike)):
        return None
    try:
        return np.frombuffer(source, np.uint8) if len(source) else np.empty(1, np.uint8)[:0]
    except TypeError:
        raise Error(f"a model of type {type(source).__name__}: expected a path, the bytes of a file, a file opened "
                    'with "rb", or an ExportedProgram', 2) from None


def _refuse_closed():
    raise Error("this model is closed", 2)


def _end_text(x):
    return f"{x.get('label', x['name'])} {x['dtype']}[{', '.join(map(str, x['shape']))}]"


def _reopen(args, rewrites):
    model = Model(*args)
    for options in rewrites:
        model.rewrite(**options)
    return model
