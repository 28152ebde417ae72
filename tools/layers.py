#!/usr/bin/env python3
"""Checks who includes whom against the table "Who may include whom" of ARCHITECTURE.md. Prints TAP, one line a room.

    tools/layers.py        not ok 3 - layers: ir: src/ir/graph.c:5 includes plan/plan.h

A room is a folder below src/ that holds C files (src/kernel with all that is in it), certify/, vision/, serve/ or
cli/. Its row names the rooms that it may include besides itself; a name ending in '.h' is a single header. The rows
must stand in an order in which no room includes a later one, so that there is no cycle. A foreign header may be
included where the second table names it.
"""
import pathlib
import re

import tap

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTSIDE = ("certify", "cli", "serve", "vision")  # rooms beside src/
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def tables():
    """{room: what it may include}, in the order of the rows, and {foreign header: the rooms that may}."""
    rooms, foreign = {}, {}
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        m = re.match(r"\| `([^`]+)` \| (.*) \|$", line)
        if m:
            names = re.findall(r"`([^`]+)`", m.group(2)) + (list(rooms) if "every room above" in m.group(2) else [])
            (foreign if m.group(1).startswith("<") else rooms)[m.group(1).strip("<>")] = names
    return rooms, foreign


def folder_of(room):
    return ROOT / room if room.split("/")[0] in OUTSIDE else ROOT / "src" / room


def files(room):
    """The C files of a room: those of its folder, for kernel those below it, too."""
    folder = folder_of(room)
    found = folder.rglob("*") if room == "kernel" else folder.glob("*")
    return sorted(p for p in found if p.suffix in (".c", ".h"))


def room_of(target, rooms):
    """The room that an included path lies in, or the public header that it is; '' for a file of the same folder."""
    if target.startswith("qkv") and "/" not in target:
        return target
    parts = target.split("/")[:-1]
    while parts and "/".join(parts) not in rooms:
        parts.pop()
    return "/".join(parts)


def violations(room, rooms, foreign):
    for file in files(room):
        text = file.read_text(errors="replace")
        for m in INCLUDE.finditer(text):
            where = f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, m.start()) + 1} includes {m.group(2)}"
            if m.group(1) == "<":
                header = next((h for h in foreign if m.group(2) == h or m.group(2).startswith(h + "/")), None)
                if header and room not in foreign[header]:
                    yield where
                continue
            at = room_of(m.group(2), rooms)
            if not at and (file.parent / m.group(2)).exists():
                continue
            if at != room and not {at, m.group(2)} & set(rooms[room]):
                yield where


def main():
    rooms, foreign = tables()
    have = {str(p.parent.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("*.[ch]")}
    have = {"kernel" if r.split("/")[0] == "kernel" else r for r in have}
    have |= {str(p.parent.relative_to(ROOT)) for room in OUTSIDE for p in (ROOT / room).rglob("*.[ch]")}
    results = [("every room has a row, and every row a room",
                sorted(f"{r}: only {'a row' if r in rooms else 'a folder'}" for r in have ^ set(rooms)))]
    order = list(rooms)
    late = [f"{r} includes {x}, whose row comes later" for k, r in enumerate(order) for x in rooms[r] if x in order[k:]]
    results.append(("no cycle", late))
    results += [(r, list(violations(r, rooms, foreign))) for r in rooms if r in have]
    tap.report("layers", results)


if __name__ == "__main__":
    main()
