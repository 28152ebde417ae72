"""The answer of a checking tool as TAP, which tools/count.py adds up.

    tap.report("layers", [("no cycle", ["run includes api"])])      prints   1..1
                                                                             not ok 1 - layers: no cycle
                                                                             # run includes api
"""
import sys


def report(suite, checks):
    """checks: (what is true, [what contradicts it]). Ends the program, with 1 where anything does."""
    print(f"1..{len(checks)}")
    for k, (what, bad) in enumerate(checks, 1):
        print(f"{'not ' if bad else ''}ok {k} - {suite}: {what}")
        for line in bad:
            print(f"# {line}")
    sys.exit(any(bad for _, bad in checks))
