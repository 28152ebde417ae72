#!/usr/bin/env python3
"""Reads what is written: lines of at most 120 columns, and English phrases that we do not use. Prints TAP.

    tools/checktext.py            not ok 1 - text: lines of more than 120 columns
                                  # src/ir/graph.c: 3 lines of more than 120 columns (12, 80, 81), 2 allowed: wrap them
    tools/checktext.py --lower    after lines were wrapped: writes the lower counts into tools/long_lines.txt

tools/long_lines.txt has a line for each file that still has long lines, and how many; it may only get shorter. Generated files, tables
of Markdown and lines that are one long word are left out. Phrases are looked for in prose, comments and strings; identifiers are free.
Without git (an archive of the sources) there is nothing to read.
"""
import io
import pathlib
import re
import subprocess
import sys
import tokenize

import tap

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = "tools/long_lines.txt"
COLUMNS = 120
TEXT = re.compile(r"(?:.*\.(?:[ch]|def|py|sh|md|rules|build)|man/.*|.*Makefile)")
GENERATED = {"docs/OPS.md", "src/onnx/check/schemas.def", "vision/html_entities.def", "vision/font.h",
             "tests/unit/bpe_cases.h", "tests/unit/wordpiece_cases.h"}
# what is refused, what to write instead, phrases in which it is right
BANNED = [
    (r"\b(?:is|are|was|were) no (?!longer\b|more\b|larger\b|better\b|good\b)\w+", "is not a, is not an, are not",
     [r"\bthere (?:is|are|was|were) no\b"]),
    (r"\bnobody\b", "nothing, no one, no reader", [r"[\"'%]nobody"]),
    (r"\banew\b", "again", []),
    (r"\bbehind\b", "after, below, by way of", [r"\"behind\"",
                                                r"\b(?:left|leave|leaves|leaving|stayed|stays|hide)\b[^.]* behind\b"]),
    (r"\bby hand\b", "decomposed, as separate ops", [r"(?:written|write|worked out|read|steps) by hand"]),
    (r"\bin other clothes\b", "in another form", []),
    (r"\bcome out of data\b", "data-dependent", []),
    (r"\b(?:the same|other|right|wrong|\w+'s) numbers\b|\bthe numbers (?:are those|stay)\b", "values",
     [r"PyTorch's numbers"]),
]
WORDS_OF = {"tools/checktext.py", "tests/python/test_tools.py"}  # hold the phrases themselves
C_WORDS = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', re.S)


def files(root):
    """{name: text} of the tracked files that people write."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files"], capture_output=True, text=True).stdout.split("\n")
    return {n: (root / n).read_text() for n in listed if TEXT.fullmatch(n) and n not in GENERATED
            and (root / n).is_file()}


def long_lines(name, text):
    """Numbers of the lines that are too long."""
    return [k for k, line in enumerate(text.split("\n"), 1)
            if len(line) > COLUMNS and not (name.endswith(".md") and line.startswith("|"))
            and max(map(len, line.split())) < COLUMNS - 10]


def limits(root):
    return {name: int(n) for n, name in (line.split() for line in (root / LIMITS).read_text().splitlines())}


def words(name, text):
    """The text's comments and strings, in the lines in which they stand, apart from each other."""
    if re.search(r"\.[ch]$|\.def$", name):
        spans = [m.span() for m in C_WORDS.finditer(text)]
    elif name.endswith(".py"):
        begin = [0]
        for line in text.splitlines(keepends=True):
            begin.append(begin[-1] + len(line))
        kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
        spans = [(begin[t.start[0] - 1] + t.start[1], begin[t.end[0] - 1] + t.end[1])
                 for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type in kinds]
    else:
        return text
    out, at = [], 0
    for a, b in spans:
        out += [" " * (a > at), "\n" * text.count("\n", at, a), text[a:b]]
        at = b
    return "".join(out)


def found(pattern, prose):
    """Matches of a phrase, which may go on in the next line of a comment."""
    return re.finditer(pattern.replace(" ", r"\s+(?:(?:\*|//|#|;)\s+)?"), prose, re.I)


def phrases(name, text):
    """What is refused of one file, line by line."""
    prose = words(name, text)
    for pattern, instead, allowed in BANNED:
        refused = list(found(pattern, prose))
        right = [m.span() for a in allowed for m in found(a, prose)] if refused else []
        for m in refused:
            if not any(a <= m.end() and m.start() <= b for a, b in right):
                yield f"{name}:{prose.count(chr(10), 0, m.start()) + 1}: '{' '.join(m[0].split())}': {instead}"


def main(argv, root=ROOT):
    text = files(root)
    lines = {name: n for name, t in text.items() if (n := long_lines(name, t))}
    if argv == ["--lower"]:
        (root / LIMITS).write_text("".join(f"{len(n)} {name}\n" for name, n in sorted(lines.items())))
        return
    if argv:
        sys.exit(__doc__)
    most = limits(root)
    over = [f"{name}: {len(n)} lines of more than {COLUMNS} columns ({', '.join(map(str, n[:8]))}), "
            f"{most.get(name, 0)} allowed: wrap them"
            for name, n in lines.items() if len(n) > most.get(name, 0)]
    count = sum(map(len, lines.values()))
    tap.report("text", [
        (f"lines of more than {COLUMNS} columns: {count}, at most {sum(most.values())}", over),
        ("English as it is written", [p for name, t in text.items() if name not in WORDS_OF
                                      for p in phrases(name, t)])])


if __name__ == "__main__":
    main(sys.argv[1:])
