#!/usr/bin/env python3
"""Commit messages: a subject of at most 72 characters, an empty line, and a body that says why.

    tools/commits.py FILE      the message in FILE, as git's commit-msg hook (.githooks; `make check` sets
                               core.hooksPath to it)
    tools/commits.py --check   TAP: the commits of this history since the rule
"""
import pathlib
import subprocess
import sys

import tap

ROOT = pathlib.Path(__file__).resolve().parent.parent
SINCE = "2026-11-23T00:00:00Z"  # older commits did not know the rule
SUBJECT = 72


def wrong(message):
    """What is wrong with a message, comments of the editor removed; merges say what git says."""
    lines = [line.rstrip() for line in message.split("\n# ------------------------ >8")[0].split("\n")
             if not line.startswith("#")]
    subject, *rest = "\n".join(lines).strip("\n").split("\n")
    if subject.startswith("Merge "):
        return
    if len(subject) > SUBJECT:
        yield f"the subject has {len(subject)} characters, at most {SUBJECT} are allowed"
    if subject.startswith(("fixup!", "squash!", "amend!")):
        yield "a fixup belongs into the commit that it fixes: git rebase --autosquash"
    if rest and rest[0]:
        yield "the line after the subject is not empty"
    if not any(rest):
        yield "there is no body: say why, and for whom"


def history(root, since):
    """(short hash, message) of the commits since then, merges left out."""
    log = subprocess.run(["git", "-C", str(root), "log", "--no-merges", f"--since-as-filter={since}",
                          "--format=%h%n%B%x00"],
                         capture_output=True, text=True)
    for entry in filter(str.strip, log.stdout.split("\0")):
        name, _, message = entry.strip("\n").partition("\n")
        yield name, message


def main(argv, root=ROOT, since=SINCE):
    if argv == ["--check"]:
        bad = [f"{name} {message.splitlines()[0]}: {w}" for name,
               message in history(root, since) for w in wrong(message)]
        tap.report("commits", [("messages have a short subject and a body", bad)])
    elif len(argv) == 1 and not argv[0].startswith("-"):
        bad = list(wrong(pathlib.Path(argv[0]).read_text()))
        sys.exit("".join(f"commit message: {w}\n" for w in bad).strip() or 0)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
