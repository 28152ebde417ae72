#!/usr/bin/env python3
"""Makes small files for the command's tests, with the standard library alone.

    make.py png OUT WIDTHxHEIGHT PIXELS          PIXELS: rows separated by '/', pixels by ',': 0..255 gray or rrggbb;
                                                 the last is repeated
    make.py st OUT NAME:DTYPE:SHAPE:VALUES ...   a .safetensors; DTYPE f32, i64, bool; SHAPE 2x3;
                                                 VALUES by ',', the last is repeated
    make.py npy OUT SHAPE VALUES                 a .npy of f32
    make.py cut FILE BYTES                       keeps the first BYTES of a file
    make.py flip FILE OFFSET                     flips one bit
"""
import json
import struct
import sys
import zlib

CODES = {"f32": ("F32", "f", float), "i64": ("I64", "q", int), "bool": ("BOOL", "B", int)}


def repeated(items, n):
    return (items + [items[-1]] * n)[:n]


def png(path, size, pixels):
    w, h = map(int, size.split("x"))
    rows = [repeated(r.split(","), w) for r in repeated(pixels.split("/"), h)]
    color = len(rows[0][0]) == 6
    pixel = bytes.fromhex if color else lambda s: bytes([int(s)])
    raw = b"".join(b"\0" + b"".join(map(pixel, r)) for r in rows)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2 if color else 0, 0, 0, 0))
                + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def safetensors(path, specs):
    head, data = {}, b""
    for spec in specs:
        name, dtype, shape, values = spec.split(":")
        dims = [int(d) for d in shape.split("x") if d]
        count = 1
        for d in dims:
            count *= d
        code, letter, kind = CODES[dtype]
        raw = struct.pack(f"<{count}{letter}", *(kind(v) for v in repeated(values.split(","), count)))
        head[name] = {"dtype": code, "shape": dims, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def npy(path, shape, values):
    dims = [int(d) for d in shape.split("x")]
    count = 1
    for d in dims:
        count *= d
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(dims)}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + struct.pack(f"<{count}f",
            *map(float, repeated(values.split(","), count))))


def main():
    what, path, *rest = sys.argv[1:]
    if what == "png":
        png(path, *rest)
    elif what == "st":
        safetensors(path, rest)
    elif what == "npy":
        npy(path, *rest)
    else:
        data = bytearray(open(path, "rb").read())
        if what == "cut":
            data = data[:int(rest[0])]
        else:
            data[int(rest[0])] ^= 1
        open(path, "wb").write(data)


if __name__ == "__main__":
    main()
