#!/usr/bin/env python3
"""The changelog by fragments: one small file a change in changelog.d, so that parallel work does not collide.

    changelog.d/+seed.changed.md      "`--seed` has one default, 0." ; added, changed or fixed
    tools/changelog.py --check        TAP: names and contents of fragments, the form of CHANGELOG.md's newest section
    tools/changelog.py 0.2.0          at a release: collects them into CHANGELOG.md under "## 0.2.0 (date)",
                                      and removes them

An entry says in one paragraph what a user notices. A newest section that is "(unreleased)" is continued,
and dated by its release.
"""
import datetime
import pathlib
import re
import sys
import textwrap

import tap

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = ("Added", "Changed", "Fixed")
NAME = re.compile(r"\+[a-z0-9][a-z0-9-]*\.(added|changed|fixed)\.md")
WIDTH = 110


def fragments(root):
    """The files of changelog.d except the one that explains them."""
    return sorted(p for p in (root / "changelog.d").iterdir() if p.name != "README.md")


def entries(body):
    """{kind: [entry in one line]} of a section; None holds what stands under no kind."""
    out, kind = {}, None
    for line in body.splitlines():
        if line.startswith("### "):
            kind = line[4:]
            out.setdefault(kind, [])
        elif line.startswith("- "):
            out.setdefault(kind, []).append(line[2:])
        elif line.strip() and out.get(kind):
            out[kind][-1] += " " + line.strip()
        elif line.strip():
            out.setdefault(None, []).append(line)
    return out


def newest(text):
    """(before, title, body, after) of the first section of CHANGELOG.md."""
    head, *sections = re.split(r"(?m)^(?=## )", text)
    title, _, body = sections[0].partition("\n")
    return head, title, body, "".join(sections[1:])


def written(title, kinds):
    """A section as text."""
    lines = [title]
    for kind in KINDS:
        if kinds.get(kind):
            lines += ["", f"### {kind}", ""]
            lines += [textwrap.fill(e, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
                                    break_on_hyphens=False) for e in kinds[kind]]
    return "\n".join(lines) + "\n"


def wrong(path):
    """What is wrong with a fragment."""
    text = path.read_text()
    if not NAME.fullmatch(path.name):
        yield "its name is not +WORDS.added.md, .changed.md or .fixed.md"
    if not text.strip() or "\n\n" in text.strip() or text.startswith(("-", "#")):
        yield "it is not one paragraph without a bullet"
    elif not text.rstrip().endswith("."):
        yield "it does not end in a full stop"


def check(root):
    kinds = entries(newest((root / "CHANGELOG.md").read_text())[2])
    order = [k for k in kinds if k in KINDS]
    bad = [f"under no heading: {e[:60]}" for e in kinds.get(None, [])]
    bad += [f"### {k}: not one of {', '.join(KINDS)}" for k in kinds if k and k not in KINDS]
    bad += [f"the headings are not in the order {', '.join(KINDS)}"] * (order != [k for k in KINDS if k in order])
    tap.report("changelog", [
        ("fragments are named and written as CONTRIBUTING says",
         [f"{p.name}: {w}" for p in fragments(root) for w in wrong(p)]),
        ("the newest section has Added, Changed and Fixed", bad)])


def release(root, version):
    page = root / "CHANGELOG.md"
    head, title, body, after = newest(page.read_text())
    kinds = entries(body)
    if not title.endswith("(unreleased)"):
        kinds, after = {}, f"{title}\n{body}{after}"
    for path in fragments(root):
        kinds.setdefault(NAME.fullmatch(path.name)[1].capitalize(), []).append(" ".join(path.read_text().split()))
        path.unlink()
    section = written(f"## {version} ({datetime.date.today()})", kinds)
    page.write_text(head + section + ("\n" + after if after else ""))


def main(argv, root=ROOT):
    if argv == ["--check"]:
        check(root)
    elif len(argv) == 1 and re.fullmatch(r"\d+\.\d+\.\d+", argv[0]):
        release(root, argv[0])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
