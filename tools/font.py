#!/usr/bin/env python3
"""Writes vision/font.h: letters of the X Window System's font 6x10 (misc-fixed, "Public domain font.
Share and enjoy.") for overlays.

    apt-get download xfonts-base; dpkg-deb -x xfonts-base_*.deb x
    tools/font.py x/usr/share/fonts/X11/misc/6x10.pcf.gz

Run it only to change the ranges below. A glyph is 60 bits, six a row from the top, the lowest on the left;
a character of a range that the font lacks is 0.
"""
import gzip
import pathlib
import struct
import sys

RANGES = ((0x20, 0x7E, "ASCII"), (0xA0, 0x17F, "Latin-1, Latin Extended-A"), (0x192, 0x192, "florin"),
          (0x218, 0x21B, "Romanian"), (0x386, 0x3CE, "Greek"), (0x401, 0x45F, "Cyrillic"),
          (0x490, 0x491, "Ukrainian"), (0x2010, 0x2026, "dashes and quotes"), (0x20AC, 0x20AC, "euro"),
          (0x2212, 0x2212, "minus"),
          (0xFFFD, 0xFFFD, "what is not here"))
METRICS, BITMAPS, ENCODINGS = 4, 8, 32
WIDTH, HEIGHT, ASCENT = 6, 10, 8


def glyphs(path):
    """{code point: 60 bits} of a .pcf.gz (X11's portable compiled format)."""
    data = gzip.open(path).read()
    count, = struct.unpack_from("<I", data, 4)
    table = {}
    for i in range(count):
        kind, form, _, offset = struct.unpack_from("<IIII", data, 8 + 16 * i)
        table[kind] = offset, ">" if form & 4 else "<", form
    at, e, form = table[METRICS]
    if form & 0x100:  # compressed
        n, = struct.unpack_from(e + "H", data, at + 4)
        metrics = [tuple(b - 128 for b in data[at + 6 + 5 * i:at + 11 + 5 * i]) for i in range(n)]
    else:
        n, = struct.unpack_from(e + "I", data, at + 4)
        metrics = [struct.unpack_from(e + "5h", data, at + 8 + 12 * i) for i in range(n)]
    at, e, form = table[BITMAPS]
    n, = struct.unpack_from(e + "I", data, at + 4)
    offsets = struct.unpack_from(f"{e}{n}I", data, at + 8)
    bits, pad = at + 8 + 4 * n + 16, 1 << (form & 3)
    high_first, unit = bool(form & 8), 1 << (form >> 4 & 3)
    at, e, _ = table[ENCODINGS]
    lo2, hi2, lo1, hi1, _ = struct.unpack_from(e + "5H", data, at + 4)
    out = {}
    for row in range(lo1, hi1 + 1):
        for column in range(lo2, hi2 + 1):
            i, = struct.unpack_from(e + "H", data, at + 14 + 2 * ((row - lo1) * (hi2 - lo2 + 1) + column - lo2))
            if i == 0xFFFF:
                continue
            left, right, _, ascent, descent = metrics[i]
            line = -(-(right - left) // (8 * pad)) * pad
            value = 0
            for y in range(ascent + descent):
                raw = data[bits + offsets[i] + y * line:bits + offsets[i] + (y + 1) * line]
                if (e == ">") != high_first and unit > 1:
                    raw = b"".join(raw[k:k + unit][::-1] for k in range(0, len(raw), unit))
                for x in range(right - left):
                    bit = raw[x // 8] >> (7 - x % 8 if high_first else x % 8) & 1
                    at_x, at_y = left + x, ASCENT - ascent + y
                    if bit and 0 <= at_x < WIDTH and 0 <= at_y < HEIGHT:
                        value |= 1 << (at_y * WIDTH + at_x)
            out[row << 8 | column] = value
    return out


def main():
    have, at, ranges, rows = glyphs(sys.argv[1]), 0, [], []
    for first, last, what in RANGES:
        ranges.append(f"    {{0x{first:X}, 0x{last:X}, {at}}}, /* {what} */\n")
        words = [f"0x{have.get(c, 0):X}" for c in range(first, last + 1)]
        at += len(words)
        line = "   "
        for w in words:
            if len(line) + len(w) + 2 > 150:
                rows.append(line + "\n")
                line = "   "
            line += f" {w},"
        rows.append(line + "\n")
    text = ("/* Written by tools/font.py from the X Window System's font 6x10 (misc-fixed), which is in the public "
            "domain. A letter is 6 dots wide and 10 high, 60 bits, six a row\n"
            " * from the top, the lowest on the left; 0: the font lacks it. */\n#ifndef QKV_PICTURE_FONT_H\n#define "
            "QKV_PICTURE_FONT_H\n#include <stdint.h>\n\n"
            f"enum {{ FONT_WIDTH = {WIDTH}, FONT_HEIGHT = {HEIGHT} }};\n\n"
            "static const struct {\n    uint16_t first, last, at;\n} font_range[] = {\n" + "".join(ranges) + "};\n\n"
            f"static const uint64_t font_glyph[{at}] = {{\n" + "".join(rows) + "};\n#endif\n")
    (pathlib.Path(__file__).resolve().parent.parent / "vision" / "font.h").write_text(text)
    print(f"{at} letters, {sum(have.get(c, 0) == 0 for a, b, _ in RANGES for c in range(a, b + 1))} of them empty, "
          f"{len(text)} bytes")


if __name__ == "__main__":
    main()
