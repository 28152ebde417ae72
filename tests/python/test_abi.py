"""The border of the library: what it exports, and that every public function is held to docs/ABI.md."""
import pathlib
import re
import shutil
import subprocess

import pytest

from qkv._lib import library_path, vision_path

ROOT = pathlib.Path(__file__).resolve().parents[2]
# nothing to refuse: no pointer, or any value of it is fine
WITHOUT_POINTERS = {"version", "cpu", "free", "interrupted", "dtype_name", "dtype_size", "check_id", "status_name",
                    "onnx_profile_name", "optimizer_name", "schedule_name", "decompose_name", "graph_format_name",
                    "quantize_target", "calibration_name", "recompute_name", "phase_name", "target_name", "tolerance",
                    "sdpa_backend_name", "weight_kind_name"}


def declared(headers="*.h"):
    text = "".join(h.read_text() for h in sorted((ROOT / "include").glob(headers)))
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return set(re.findall(r"QKV_API[^;(]*?\bqkv_(\w+)\s*\(", text))


@pytest.mark.skipif(not shutil.which("nm"), reason="needs nm")
def test_exports():
    """Exactly what the headers declare, each in its library."""
    vision = declared("qkv_vision.h")
    for path, names in (library_path(), declared() - vision), (vision_path(library_path()), vision):
        nm = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
        exported = {line.split()[-1].split("@")[0] for line in nm.splitlines()}
        assert exported == {"qkv_" + name for name in names}


def test_every_function_is_called_with_null():
    called = set(re.findall(r"\bqkv_(\w+)\(", (ROOT / "tests/unit/test_border.c").read_text()))
    assert declared() - called == WITHOUT_POINTERS - called


def test_options_name_their_version():
    """Every struct with a struct_size goes through base/versioned.h, but for the one that callbacks get."""
    header = "".join(h.read_text() for h in sorted((ROOT / "include").glob("*.h")))
    structs = set(re.findall(r"typedef struct (qkv_\w+) \{\s*size_t struct_size;", header))
    sources = "".join(p.read_text() for folder in ("src/api", "vision") for p in sorted((ROOT / folder).glob("*.c")))
    held = set(re.findall(r"VERSIONED_(?:TAKE|WANTED)\((qkv_\w+),", sources))
    assert structs - held == {"qkv_fit_event"}
    assert len(structs) > 10
