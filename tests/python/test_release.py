"""tools/release.sh refuses before it does anything: a bad version, an older one, one that is tagged, changes that are
not committed."""
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path):
    """A repository with the script, version 0.3.0 and the tag of a later one."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/release.sh", tmp_path / "tools")
    (tmp_path / "VERSION").write_text("0.3.0\n")
    for command in ("init -q", "add -A", "-c user.name=t -c user.email=t@t commit -q -m Begin", "tag v0.4.0"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("version, said", [("", "expected one as in"), ("1.0", "expected one as in"),
                                           ("0.3.0", "expected one after 0.3.0"), ("0.2.9", "expected one after 0.3.0"),
                                           ("0.4.0", "tagged already"), ("0.10.0", "not committed")])
def test_refuses(checkout, version, said):
    if version == "0.10.0":
        (checkout / "new").write_text("")
    done = subprocess.run(["tools/release.sh", version], cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 1 and said in done.stderr, done
    assert not (checkout / "build-release").exists() and (checkout / "VERSION").read_text() == "0.3.0\n"
