#!/usr/bin/env python3
"""Writes docs/CHECK.md: the findings of qkv check, from src/verify/findings.def.

    tools/checkdoc.py            writes the file
    tools/checkdoc.py --check    fails when it is not what the table gives, or when a finding is never made
"""
import pathlib
import re
import sys

import tap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "CHECK.md"
TEXT = r'"((?:[^"\\]|\\.)*)"'
STRING = rf'{TEXT}(?:\s*{TEXT})*'
ROW = re.compile(rf'FINDING\((\d+), (\w+),\s*((?:{STRING}\s*,?\s*){{3}})\)|/\* ([a-z][^*]*?) \*/')

HEAD = """# qkv check: findings

    qkv check model.pt2                              all findings: severity, id, place, sentence
    qkv check model.onnx --target ort,tensorrt       also what these runtimes do not have or refuse
    qkv check stranger.pt2 --security --full         also the container, pickles and code in it, checksums
    qkv check --explain Q501                         what a finding means and what to do

`qkv check` reads a file independently of the code that loads it. It checks the records first: schema, names,
order, arguments, weights against the file. Then it checks types and sizes node by node, against what the file
declares. Then it checks the graph as a whole: sizes, masks, the values of weights. It continues after a
finding, so it lists all of them, not only the first. Nothing in the file is executed or unpickled.

Exit codes: 0 no errors; 1 errors (with `--strict`, also warnings); 3 the file cannot be read at all. `--json`
prints one object whose `findings` have `id`, `severity`, `place`, `message` and `remedy`. In C this is
`qkv_check`, in Python `qkv.check(path)`.

## Agreement with other checkers

`tools/check_agreement.py` compares qkv with onnx 1.23.2 and ONNX Runtime 1.31.1 on 2,024 models: the node,
simple and PyTorch tests of the onnx package.

- `valid`: none of the 2,024 has an error.
- `edits 3000 1`: 3,000 random edits of them. onnx.checker with `full_check` refuses 2,199; 2,162 of those
  have an error here. The other 37 break the sizes of ops that transformers do not use (Scan, SequenceMap,
  StringSplit, ImageDecoder, Momentum, ConvTranspose ...). 68 models that onnx.checker accepts have an error
  here: sizes that cannot fit, arguments that must come in pairs. Of the kinds of nodes in
  `tests/python/test_check.py`, none is missed.
- `ort`: `--target ort` and ONNX Runtime agree on 2,006. 18 that ONNX Runtime refuses are not reported (string
  normalizers, batch-major RNNs, PRelu before opset 7). No model that it accepts is reported.

The 35 torch.export models that this project is built on have no errors, and neither have the ONNX files that
torch and `qkv convert` make of them. What the finding about each kind of mask states is tested by running
ONNX Runtime (`test_what_is_said_of_masked_rows`).

Not checked: what Python's guards in a `.pt2` require beyond sizes; operators whose behaviour depends on
run-time data; OpenVINO's and TensorRT's op lists (only element types, domains and the rules of fused
attention). Sizes that ONNX nodes compute are followed when they are constants, sizes of inputs, or slices and
products of these.

## Severities

An error is something that a loader refuses, or that cannot be right. A warning is legal and probably not
intended. A note is worth knowing. Ids never change their meaning.
"""


def rows():
    text = (ROOT / "src/verify/findings.def").read_text()
    text = text[text.index("*/") + 2:]
    for m in ROW.finditer(text):
        if m.group(1):
            parts = []
            for part in re.finditer(rf'{STRING}', m.group(3)):
                parts.append("".join(re.findall(TEXT, part.group(0))).replace('\\"', '"'))
            yield int(m.group(1)), m.group(2).lower(), *parts
        else:
            yield m.group(m.lastindex)


def page():
    out = [HEAD]
    for r in rows():
        if isinstance(r, str):
            out.append(f"\n## {r[0].upper()}{r[1:]}\n\n| id | severity | finding | meaning | what to do "
                       "|\n|---|---|---|---|---|\n")
        else:
            number, severity, title, text, remedy = r
            out.append(f"| Q{number} | {severity} | {title} | {text} | {remedy} |\n".replace("_", "\\_"))
    return "".join(out)


def main():
    if "--check" not in sys.argv:
        PAGE.write_text(page())
        return
    source = "".join(p.read_text() for p in (ROOT / "src").rglob("*.c"))
    made = [r for r in rows() if not isinstance(r, str)]
    current = PAGE.exists() and PAGE.read_text() == page()
    checks = [("docs/CHECK.md is up to date", [] if current else ["tools/checkdoc.py writes it"])]
    for r in made:
        found = f"Q({r[0]})" in source or f"FINDING_{r[0]})" in source
        checks.append((f"Q{r[0]} is made somewhere", [] if found else ["no file of src calls it"]))
    tap.report("findings", checks)


if __name__ == "__main__":
    main()
