"""Checking a model file: the findings of `qkv check`."""
import ctypes as C
import json
import os
from typing import Iterable, Optional, Union

from ._html import html_table
from ._lib import CError, CheckOptions, check as raise_unless, choice, lib


class Finding(dict):
    """{"id": "Q501", "severity": "warning", "place", "message", "remedy"}; prints as one line."""

    def __str__(self):
        return f"{self['severity']} {self['id']}: {self['place']}: {self['message']}"


class Report:
    """findings, most severe first; errors, warnings and notes hold those of one severity. bool(report): no errors."""

    def __init__(self, data):
        self.data = data
        self.findings = [Finding(f) for f in data["findings"]]
        self.errors, self.warnings, self.notes = ([f for f in self.findings if f["severity"] == s]
                                                  for s in ("error", "warning", "note"))
        self.readable = data["readable"]

    def __bool__(self):
        return self.readable and not self.errors

    def __str__(self):
        return "\n".join(map(str, self.findings)) or "no findings"

    def _repr_html_(self):
        heads = ["severity", "id", "place", "message", "remedy"]
        counts = f"{len(self.errors)} errors, {len(self.warnings)} warnings, {len(self.notes)} notes"
        title = f"{self.data['file']}: {counts}"
        return html_table(title, heads, [[f.get(h, "") for h in heads] for f in self.findings])


def check(path: Union[str, os.PathLike], target: Union[None, str, Iterable[str]] = None, security: bool = False,
          full: bool = False) -> Report:
    """Looks for errors in a .pt2 or ONNX file without running it.
    Returns a Report, also for a file that cannot be read.

    target: one or more of qkv, ort, openvino, tensorrt; also reports what these would refuse.
    Ids: docs/CHECK.md, `qkv check --explain ID`.
    """
    names = target or [] if not isinstance(target, str) else target.split(",")
    options = CheckOptions(C.sizeof(CheckOptions), sum({choice("target", name) for name in names}), security, full, 0)
    error, out = CError(), C.c_void_p()
    status = lib().qkv_check(os.fsencode(path), C.byref(options), C.byref(out), C.byref(error))
    if not out.value:
        raise_unless(status == 0, error)
    try:
        return Report(json.loads(C.string_at(out.value).decode()))
    finally:
        lib().qkv_free(out)
