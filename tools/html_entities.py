#!/usr/bin/env python3
"""Writes vision/html_entities.def from Python's html.entities.html5:
the names that HTML 5 gives to characters, sorted by bytes.

    tools/html_entities.py > vision/html_entities.def
"""
import html.entities

print("/* E(name without '&', text in UTF-8), sorted by bytes; made by tools/html_entities.py. */")
line = ""
for name, text in sorted(html.entities.html5.items(), key=lambda e: e[0].encode()):
    row = 'E("%s", "%s")' % (name, "".join(f"\\{b:03o}" for b in text.encode()))
    if line and len(line) + len(row) > 148:
        print(line)
        line = ""
    line += (" " if line else "") + row
print(line)
