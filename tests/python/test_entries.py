"""What `qkv inspect` lists of a .pt2's entries: those of the archive's root, by their names there."""
import json
import os
import pathlib
import subprocess
import zipfile

ROOT = pathlib.Path(__file__).parent.parent.parent
QKV = os.environ.get("QKV", str(ROOT / "build" / "qkv"))


def test_entries_beside_the_root(tmp_path):
    """Names are cut by the root's length only where they begin with it; shorter ones were read past their end."""
    with zipfile.ZipFile(ROOT / "tests/models/small/mha_self.pt2") as z:
        files = {i.filename.split("/", 1)[1]: z.read(i) for i in z.infolist()}
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as z:
        for name, data in files.items():
            z.writestr(f"abcdefgh/{name}", data)
        z.writestr("abcdefgh/extra/mine", b"1")
        z.writestr("12345678/extra/other", b"2")
        z.writestr("z", b"3")
    found = json.loads(subprocess.run([QKV, "inspect", tmp_path / "m.pt2", "--json"], capture_output=True,
                                      check=True).stdout)
    assert "extra/mine (extra file)" in found["ignored_entries"]
    assert not [e for e in found["ignored_entries"] if "other" in e]
