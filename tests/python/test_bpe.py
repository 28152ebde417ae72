"""CLIP's tokenizer of the library (qkv_tokenizer_clip) against transformers' CLIPTokenizer, on random texts;
the merges are CLIP's first 500."""
import ctypes as C
import html
import pathlib
import random
import unicodedata

import pytest

from qkv import _lib

MERGES = pathlib.Path(__file__).parent / "clip_merges.txt"
WORDS = ("a red car person don't I'll WE'VE they're café CAFÉ naïve ΟΔΟΣ İstanbul straße 日本語 русский 😀 👨‍👩‍👧 🇩🇪 ½ ² "
         "٣ 10 2024 … — ° ™ e\u0301 \u0301 Å "
         "<b> !!! ?! a.b,c #tag @me http://x.y/z 's 'T 'lll \u200d \u00a0 \t \n \u2028 \u00ad <|endoftext|> "
         "<|STARTOFTEXT|>!! ininin").split(" ")
RANGES = [(32, 127), (160, 0x250), (0x370, 0x600), (0x2000, 0x2200), (0x3040, 0x3100), (0x4e00, 0x9fff),
          (0x1f300, 0x1f700), (1, 0x30000)]


@pytest.fixture(scope="module")
def transformers_clip():
    transformers = pytest.importorskip("transformers")
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = [chr(b) for b in own] + [chr(256 + i) for i in range(256 - len(own))]
    merges = [tuple(line.split()) for line in MERGES.read_text().split("\n")[1:] if line]
    vocab = names + [n + "</w>" for n in names] + ["".join(m) for m in merges] + ["<|startoftext|>", "<|endoftext|>"]
    return transformers.CLIPTokenizer(vocab={v: i for i, v in enumerate(vocab)}, merges=merges)


def clip(hf):
    lib, err = _lib.vision(), _lib.CError()
    lib.qkv_tokenizer_clip.restype = C.c_void_p
    lib.qkv_tokenizer_encode.argtypes = [C.c_void_p, C.c_char_p, C.POINTER(C.c_int64), C.c_int, C.c_void_p]
    t = lib.qkv_tokenizer_clip(str(MERGES).encode(), hf, C.byref(err))
    assert t, err.message

    def encode(text, room=512):
        ids = (C.c_int64 * room)()
        n = lib.qkv_tokenizer_encode(t, text.encode(), ids, room, C.byref(err))
        assert n >= 2, err.message
        return list(ids)[:n]

    return encode


def random_text(r):
    """Of characters that Unicode 14 knows: newer ones depend on the tables of either side."""
    if r.random() < 0.5:
        return r.choice(["", " "]).join(r.choice(WORDS) for _ in range(r.randrange(12)))
    text = "".join(chr(r.randrange(*r.choice(RANGES))) for _ in range(r.randrange(1, 14)))
    return "".join(c for c in text if unicodedata.category(c) not in ("Cn", "Co", "Cs") and not 0x30000 <= ord(c))


def test_transformers(transformers_clip):
    encode, r = clip(1), random.Random(5)
    for _ in range(4000):
        text = random_text(r)
        assert encode(text) == transformers_clip(text)["input_ids"], ascii(text)


def test_meta_unescapes(transformers_clip):
    """Where no special token, quote or width is in the text, SAM 3's own tokenizer is transformers' on the text
    without entities. ftfy, too, unescapes some, but not in a text with a '<'."""
    encode, r = clip(0), random.Random(6)
    parts = ["a ", "red", "car's ", "I'LL ", "café", "&amp;", "&amp;amp;", "&lt;b&gt;", "&eacute", "&#39;s",
             "&#x4E2D;", "&notit;", "&", ";", "#", "中文 ", "10", "😀", "&copy2"]
    for _ in range(2000):
        text = "<" + "".join(r.choice(parts) for _ in range(r.randrange(10)))
        assert encode(text) == transformers_clip(html.unescape(html.unescape(text)))["input_ids"], ascii(text)


def test_cut():
    for hf in (0, 1):
        ids = clip(hf)("word " * 40, 32)
        assert len(ids) == 32 and ids[0] == 1012 and ids[-1] == 1013 and 1013 not in ids[1:-1]
