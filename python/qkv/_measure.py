"""What can be watched and measured of runs: methods that Session and Model have.

    with session.profile() as report: ...       report["steps"] afterwards: the time of each step
    with session.trace("trace.json"): ...       every step of every run, for https://ui.perfetto.dev
    model.verify(feeds, expected)               which outputs agree, and by how much they differ
    model.bench({"batch": 8})                   the time of a run
"""
from __future__ import annotations

import contextlib
import ctypes as C
import json
import os
import time
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Union

import numpy as np

from ._html import ReportDict
from ._lib import SESSION_PROGRESS, CDifference, CError, CStats, Error, check, lib, text

MISMATCH = 1  # qkv_status


class Watched:
    """Of a Session."""

    def seed(self, seed: int) -> None:
        """Random ops draw what PyTorch's CPU draws after torch.manual_seed(seed)."""
        with self._use() as opened:
            lib().qkv_session_seed(opened.pointer, seed)

    def stats(self) -> Dict[str, Any]:
        """Memory, steps, plans and threads: qkv_stats in qkv_tools.h says what each is."""
        e, out = CError(), CStats(C.sizeof(CStats))
        with self._use() as opened:
            check(lib().qkv_session_stats(opened.pointer, C.byref(out), C.byref(e)) == 0, e)
        return {name: getattr(out, name) for name, _ in CStats._fields_[1:]}

    def memory(self) -> ReportDict:
        """What the arena holds at each step of the last run, and what holds its peak (docs/schema/memory.json)."""
        e = CError()
        with self._use() as opened:
            return ReportDict(json.loads(text(lib().qkv_session_memory_json(opened.pointer, C.byref(e)), e)))

    @contextlib.contextmanager
    def profile(self) -> Iterator[Dict[str, Any]]:
        """`with session.profile() as report:` measures each step of the runs in the block. Afterwards report["steps"]
        holds {node, op, calls, total_ms, flops, ...} of each (docs/schema/profile.json)."""
        e, report = CError(), ReportDict()
        with self._use() as opened:
            lib().qkv_session_profile(opened.pointer, 1)
        try:
            yield report
        finally:
            with self._use() as opened:
                found = text(lib().qkv_session_profile_json(opened.pointer, C.byref(e)), e)
                lib().qkv_session_profile(opened.pointer, 0)
            report.update(json.loads(found))

    @contextlib.contextmanager
    def trace(self, path: Union[str, os.PathLike], events: int = 1 << 20) -> Iterator[None]:
        """`with session.trace("trace.json"):` writes every step of the runs in the block, at most `events`, for
        https://ui.perfetto.dev."""
        e = CError()
        with self._use() as opened:
            check(lib().qkv_session_trace(opened.pointer, events, C.byref(e)) == 0, e)
        try:
            yield
        finally:
            with self._use() as opened:
                status = lib().qkv_session_trace_write(opened.pointer, os.fsencode(path), C.byref(e))
                lib().qkv_session_trace(opened.pointer, 0, None)
            check(status == 0, e)

    def on_progress(self, tell: Optional[Callable[[str, float], Any]]) -> None:
        """From now on every step of a run calls tell(module, done), done from 0 to 1; None: no longer. It must be
        quick, and must not use this session."""
        f = SESSION_PROGRESS((lambda _, module, done: tell(module.decode(), done)) if tell else 0)
        with self._use() as opened:
            lib().qkv_session_on_progress(opened.pointer, f, None)
            opened.tell, self._kept = f, True  # so that no other user of the pool gets this session


class Measured:
    """Of a Model."""

    def verify(self, feeds: Any, expected: Union[Mapping[str, Any], Sequence[Any]], atol: Optional[float] = None,
               rtol: float = 0) -> Dict[str, Dict[str, Any]]:
        """Runs the model and compares its outputs with expected ones, by name or in order: {output: {agrees, max_abs,
        max_rel, max_abs_over_peak, cosine, failed, ...}}. An element differs if |got - expected| > atol + rtol *
        |expected|; atol=None is what `qkv verify` takes, a share of the largest expected value."""
        from ._tensors import _array_of, _borrow

        results = self.run_dlpack(feeds)
        named = expected if isinstance(expected, Mapping) else dict(zip(results, expected))
        if not named:
            raise Error("verify: no output is expected", 2)
        found, least = {}, dict(zip(results, self._tolerances()))
        for name, want in named.items():
            if name not in results:
                raise Error(f"no output is called '{name}'; this model has {', '.join(results)}", 2)
            got, want, e, d = _borrow(results[name]), _borrow(want), CError(), CDifference()
            limit = atol
            if atol is None:
                share = max(least[name], *(lib().qkv_tolerance(t.c.dtype) for t in (got, want)))
                values = np.abs(_array_of(want.c)) if share else np.empty(0)
                limit = share * float(np.max(values, where=np.isfinite(values), initial=0))
            status = lib().qkv_compare(C.byref(got.c), C.byref(want.c), limit, rtol, C.byref(d), C.byref(e))
            check(status in (0, MISMATCH), e)
            found[name] = {"agrees": status == 0, "atol": limit, "rtol": rtol,
                           **{field: getattr(d, field) for field, _ in CDifference._fields_}}
        return found

    def _tolerances(self):
        """Of each output, how far it may differ and still be equal, as a share of its largest value."""
        e, shares = CError(), (C.c_double * max(len(self.outputs), 1))()
        check(lib().qkv_model_output_tolerances(self._model, shares, C.byref(e)) == 0, e)
        return shares[:len(self.outputs)]

    def bench(self, dims: Optional[Mapping[str, int]] = None, runs: int = 20, warmup: int = 3,
              seed: int = 0) -> Dict[str, Any]:
        """Times runs on random inputs of these sizes ({"batch": 8}; others are the smallest that the file allows):
        {median_ms, min_ms, mean_ms, p95_ms, runs, inputs}."""
        if runs < 1 or warmup < 0:
            raise Error(f"bench: {runs} runs after {warmup}; at least one run is needed", 2)
        e, dims, times = CError(), dict(dims or {}), []
        names = (C.c_char_p * max(len(dims), 1))(*[name.encode() for name in dims])
        sizes = (C.c_int64 * max(len(dims), 1))(*dims.values())
        with self.session() as session, session._use() as opened:
            check(lib().qkv_session_random_inputs(opened.pointer, names, sizes, len(dims), seed, C.byref(e)) == 0, e)
            shapes = opened.input_shapes(self.inputs)
            for _ in range(warmup + runs):
                start = time.perf_counter()
                status = lib().qkv_session_run(opened.pointer, C.byref(e))
                times.append(1e3 * (time.perf_counter() - start))
                opened.forget_outputs()
                check(status == 0, e)
            lib().qkv_session_clear_inputs(opened.pointer)
        times = times[warmup:]
        return {"median_ms": float(np.median(times)), "min_ms": min(times), "mean_ms": float(np.mean(times)),
                "p95_ms": float(np.percentile(times, 95)), "runs": runs, "inputs": shapes}

    def seed(self, seed: int) -> None:
        """Random ops draw what PyTorch's CPU draws after torch.manual_seed(seed)."""
        if self._sessions.state:
            with self._sessions.only() as opened:
                lib().qkv_session_seed(opened.pointer, seed)
