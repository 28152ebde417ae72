"""Tests whose cases take turns:

    @pytest.mark.turns          with QKV_SHARE set, one case in eight of each commit, all of them where the test or what
                                it uses in its file, the module that the file is named after or the page that a case
                                names was changed

For cases that torch takes seconds to export, many of which are alike. `make check-all FULL=1` runs all of them.
"""
import os
import pathlib
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))

import pytest  # noqa: E402
import share  # noqa: E402

TURNS = 8


def pytest_configure(config):
    config.addinivalue_line("markers", "turns: some of the cases run for a commit")


@pytest.fixture(autouse=True)
def nothing_compiled():
    """torch keeps what it compiled of loops, and exports another test's with a guard against the sizes of that."""
    yield
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


def pytest_collection_modifyitems(config, items):
    kept, left = [], []
    for item in items:
        mark = item.get_closest_marker("turns")
        stem = pathlib.Path(item.fspath).stem
        case = item.callspec.id.split("-") if hasattr(item, "callspec") else []
        stems = {name: set() for name in (stem.removeprefix("test_"), *case)} | {stem: {item.originalname}}
        (kept if not mark or share.share([item.nodeid], {item.nodeid: stems}, TURNS) else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
