#!/usr/bin/env python3
"""Writes files as C arrays, so that the library carries them: tools/embed.py OUT.c SYMBOL FILE...

    const char *const SYMBOL[] = {bytes of the first file, ..., NULL};    each ends with a 0 byte
"""
import sys


def main():
    out, symbol, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    lines = ["/* Made by tools/embed.py. */", "#include <stddef.h>", f"extern const char *const {symbol}[];"]
    for k, name in enumerate(files):
        data = open(name, "rb").read() + b"\0"
        lines.append(f"static const char file{k}[] = {{")
        lines += ["    " + ", ".join(str(b if b < 128 else b - 256) for b in data[i:i + 32]) + ","
                  for i in range(0, len(data), 32)]
        lines.append("};")
    lines.append(f"const char *const {symbol}[] = {{{', '.join(f'file{k}' for k in range(len(files)))}, NULL}};")
    open(out, "w").write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
