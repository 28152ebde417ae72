#!/usr/bin/env python3
"""Writes tests/unit/bpe_cases.h: the merges of tests/python/clip_merges.txt,
and what CLIP's two tokenizers make of texts with them.

    .venv/bin/python tests/unit/make_bpe.py > tests/unit/bpe_cases.h
    (transformers 5.23, tokenizers 0.23, regex, ftfy 6.3)

hf: transformers' CLIPTokenizer. meta: OpenAI's SimpleTokenizer as SAM 3 has it: ftfy, html.unescape twice,
white space, lower case, its pattern, and the same merges.
"""
import html
import pathlib

import ftfy
import regex
import tokenizers
import transformers
from c_string import c_string

MERGES = (pathlib.Path(__file__).parent.parent / "python" / "clip_merges.txt").read_text()
SPECIAL = "<start_of_text>|<end_of_text>"
PATTERN = regex.compile(SPECIAL + r"|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", regex.IGNORECASE)

TEXTS = [
    "", " ", "\t\n", "a", "person", "red car", "The RED  Car.", "a photo of the thing in the morning",
    "there thereabouts", "I'll they're we've I'm he'd don't it's",
    "I'LL IT'S 'S 's't 'lls", "rock'n'roll ''s", "a1b22 2024 3.14", "10x", "!!! ?! ...", "a.b,c;d:e", "#tag @me",
    "x-y_z", "(a) [b] {c}", "$5 & 6%", "caf\u00e9 CAF\u00c9 cafe\u0301", "\u00c5 \u212b A\u030a",
    "stra\u00dfe \u1e9e", "\u0130stanbul I\u0131",
    "\u039f\u0394\u039f\u03a3 \u03a3 \u03a3\u03a3 \u0391\u03a3' \u0391\u03a3'\u0391 \u03c3\u03c2",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439", "\u4e2d\u6587\u5b57", "\u65e5\u672c\u8a9e\u3067\u3059",
    "\u304b\u3099", "\ud55c\uae00", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\u0939\u093f\u0928\u094d\u0926\u0940", "\U0001f600", "a\U0001f600b", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\u00bd \u00b2 \u0663 \u2167",
    "\u201cquoted\u201d \u2018x\u2019 don\u2019t \u2019s", "\u2013 \u2014 \u2026",
    "\ufb01ne o\ufb03ce \ufb05 \u0149 \u01c6 \u0133", "\uff21\uff22\uff23 \uff76\uff9e\uff85 \uff01",
    "&amp; &lt;b&gt; &quot;x&quot;", "&eacute; &Eacute; &hellip;", "&amp;amp; &amp;lt;", "&#39;s &#x41; &#65",
    "&#0; &#128; &#xD800; &#1114112; &#xFFFF; &#11; &#x;", "&notit; &not &am &lt5", "<b> &rsquo;s", "&rsquo;s",
    "&;", "&", "& &#", "a\u00a0b\u2003c\u3000d\u2028e", "a\u0085b", "a\x1cb\x01c\x7fd",
    "a\u200bb\ufeffc\u00add\u2060e", "\ufffd", "\u0378".replace("\u0378", ""), "\u0301", "\u0301\u0302 a\u0301\u0302",
    "<|endoftext|>", "a<|endoftext|>b", "<|STARTOFTEXT|>!!", "!<|endoftext|>", "<end_of_text> <START_OF_TEXT>a",
    "&lt;end_of_text&gt;", "\u017f '\u017f", "aaaaaaaaaaaaaaaaa", "ininininin the thethe",
    "in" * 40, "word " * 40, "\U0001f600" * 20,
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a\u032f\u031e\u0320\u034dA",
]
ROOMS = [("red car", 3), ("red car", 4), ("red car", 5), ("red car", 2), ("", 2), ("word " * 40, 32), ("in" * 40, 32)]


def byte_names():
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in own]
    return {b: chr(b) for b in own} | {b: chr(256 + i) for i, b in enumerate(rest)}


def main():
    names = byte_names()
    merges = [tuple(line.split()) for line in MERGES.split("\n")[1:] if line]
    vocab = [*names.values()] + [n + "</w>" for n in names.values()] + ["".join(m) for m in merges]
    start, end = len(vocab), len(vocab) + 1
    ids = {v: i for i, v in enumerate(vocab)}
    model = tokenizers.models.BPE(vocab=ids, merges=merges, end_of_word_suffix="</w>")
    hf = transformers.CLIPTokenizer(vocab=ids | {"<|startoftext|>": start, "<|endoftext|>": end}, merges=merges)

    def meta(text):
        text = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
        out = [start]
        for piece in PATTERN.findall(" ".join(text.split()).lower()):
            if piece in ("<start_of_text>", "<end_of_text>"):
                out.append(start if piece == "<start_of_text>" else end)
            else:
                out += [t.id for t in model.tokenize("".join(names[b] for b in piece.encode()))]
        return out + [end]

    print(f"/* Made by tests/unit/make_bpe.py with transformers {transformers.__version__}, tokenizers "
          f"{tokenizers.__version__}, ftfy {ftfy.__version__}. */")
    print("static const char merges[] =")
    lines = MERGES.splitlines(keepends=True)
    for i in range(0, len(lines), 14):
        print("    " + c_string("".join(lines[i:i + 14])).replace("\\012", "\\n"))
    print("    ;")
    cases = [(t, 160) for t in TEXTS] + ROOMS
    print(f"static const struct {{\n    const char *text;\n    int room, n_meta, n_hf, meta[160], hf[160]; /* n: of "
          f"the whole text */\n}} cases[] = {{")
    for text, room in cases:
        rows = []
        for ids_of, pad in ((meta, 0), (lambda t: hf(t)["input_ids"], end)):
            row = ids_of(text)
            cut = row[:room] if len(row) <= room else row[:room - 1] + [end]
            assert len(row) <= 160
            rows.append((len(row), cut, pad))
        print(f"    {{{c_string(text)}, {room}, {rows[0][0]}, {rows[1][0]}, "
              + ", ".join("{" + ", ".join(map(str, r[1])) + "}" for r in rows) + "},")
    print("};")


main()
