"""The merges of CLIP's byte-level BPE tokenizer, which also is SAM 3's.

    lines = clip_merges(48894, checkpoint="sam3/")      # ["i n", "t h", ...], the order is the rank

They come from a checkpoint's merges.txt or tokenizer.json, or else from CLIP's own bpe_simple_vocab_16e6.txt.gz,
which the wheel of open_clip_torch on PyPI holds: installed, in the cache, or fetched into it by pip (1.5 MB, without
what it depends on).
"""
import glob
import gzip
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import zipfile

from .._lib import Error

CLIP_COUNT = 49152 - 256 - 2  # CLIP's file has 262,144 merges; its tokenizer stops there
CLIP_SHA256 = "d308b7377a8ceaa9707a21614fe8c831b9196e197b7aeb69833359362907af02"
NAME = "bpe_simple_vocab_16e6.txt.gz"


def clip_merges(count, checkpoint=None):
    """The first `count` merges."""
    found = _of_checkpoint(checkpoint) if checkpoint else None
    source, lines = found or _of_clip()
    if len(lines) < count:
        raise Error(f"{source}: {len(lines)} merges; the model's vocabulary needs {count}", 2)
    for n, line in enumerate(lines[:count]):
        if len(line.split(" ")) != 2 or not all(line.split(" ")):
            raise Error(f"{source}: merge {n + 1} is {line!r}; expected two tokens with a space between them", 2)
    return lines[:count]


def _of_checkpoint(folder):
    path = os.path.join(folder, "merges.txt")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            return path, _lines(f.read())
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8") as f:
            merges = json.load(f)["model"]["merges"]
        return path, [m if isinstance(m, str) else " ".join(m) for m in merges]
    except (ValueError, KeyError, TypeError) as e:
        raise Error(f"{path}: not a byte-level BPE tokenizer: it has no model.merges", 2) from e


def _lines(text):
    lines = text.split("\n")
    if lines and "#version" in lines[0]:
        lines = lines[1:]
    return [line.rstrip("\r") for line in lines if line.strip()]


def _of_clip():
    spec = importlib.util.find_spec("open_clip")
    installed = spec and spec.submodule_search_locations and os.path.join(spec.submodule_search_locations[0], NAME)
    if installed and os.path.exists(installed):
        with open(installed, "rb") as f:
            return _checked(installed, f.read())
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "qkv")
    wheel = _wheel(cache)
    if not wheel:
        fetch = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d",
                 cache, "open_clip_torch"]
        done = subprocess.run(fetch, capture_output=True, text=True)
        wheel = _wheel(cache)
        if not wheel:
            said = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
            raise Error(f"CLIP's merges could not be downloaded from PyPI ({said}): put merges.txt into the "
                        "checkpoint's folder, or install "
                        "open_clip_torch", 2)
    with zipfile.ZipFile(wheel) as z:
        return _checked(wheel, z.read(f"open_clip/{NAME}"))


def _wheel(cache):
    found = sorted(glob.glob(os.path.join(cache, "open_clip_torch-*.whl")))
    return found[-1] if found else None


def _checked(path, packed):
    lines = _lines(gzip.decompress(packed).decode())[:CLIP_COUNT]
    if hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest() != CLIP_SHA256:
        raise Error(f"{path}: {NAME} in it is not CLIP's", 2)
    return path, lines
