"""Text and tokens of a language model: Tokenizer reads a tokenizer.json, Sampler chooses the next token
(docs/GENERATE.md)."""
from __future__ import annotations

import ctypes as C
import os
from typing import Any, Iterable, Optional, Union

import numpy as np

from ._lib import CError, Error, SampleOptions, check, vision


class Tokenizer:
    """The byte-level BPE of a tokenizer.json (GPT-2, Llama 3, Qwen and others); the ids are those of `tokenizers`.

        t = qkv.Tokenizer("tokenizer.json")
        ids = t.encode("Hello world")           # int64, with the special tokens that the file adds
        t.decode(ids)
    """

    def __init__(self, path: Union[str, os.PathLike]):
        self._pointer = None
        self._free, e = vision().qkv_tokenizer_free, CError()
        self._pointer = vision().qkv_tokenizer_json(os.fsencode(path), C.byref(e))
        check(self._pointer, e)

    def __del__(self):
        if self._pointer:
            self._free(self._pointer)

    def __len__(self) -> int:
        """The largest id + 1."""
        return vision().qkv_tokenizer_size(self._pointer)

    def encode(self, text: str) -> np.ndarray:
        e, data = CError(), text.encode()
        if b"\0" in data:
            raise Error("the text has a NUL character", 2)
        ids = np.empty(len(data) + 64, np.int64)
        while True:
            n = vision().qkv_tokenizer_encode(self._pointer, data, ids.ctypes.data_as(C.POINTER(C.c_int64)), len(ids),
                                              C.byref(e))
            check(n >= 0, e)
            if n <= len(ids):
                return ids[:n].copy()
            ids = np.empty(n, np.int64)

    def bytes(self, id: int) -> bytes:
        """What a token stands for; it may be a part of a character."""
        n = C.c_size_t()
        found = vision().qkv_tokenizer_bytes(self._pointer, int(id), C.byref(n))
        if not found:
            raise Error(f"token {int(id)}: the tokenizer has no such id", 2)
        return C.string_at(found, n.value)

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD."""
        kept = (i for i in ids if not (skip_special and vision().qkv_tokenizer_is_special(self._pointer, int(i))))
        return b"".join(map(self.bytes, kept)).decode(errors="replace")

    def find(self, token: str) -> Optional[int]:
        """The id of a token as the file writes it, "<|endoftext|>"; None if there is none."""
        id = vision().qkv_tokenizer_find(self._pointer, token.encode())
        return None if id < 0 else id


class Sampler:
    """Chooses a token from logits: sampler(logits[0, -1]). temperature=0 takes the largest. top_k and top_p keep the
    likeliest tokens; the same seed gives the same tokens as `qkv generate` and qkv_sample."""

    def __init__(self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0):
        self._options = SampleOptions(C.sizeof(SampleOptions), temperature, top_k, top_p)
        self._state = C.c_uint64(seed)

    def __call__(self, logits: Any) -> int:
        e, x = CError(), np.ascontiguousarray(logits, np.float32).reshape(-1)
        id = vision().qkv_sample(x.ctypes.data_as(C.POINTER(C.c_float)), x.size, C.byref(self._options),
                                 C.byref(self._state), C.byref(e))
        check(id >= 0, e)
        return id
