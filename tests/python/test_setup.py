"""tools/setup.sh where it cannot install: it names the packages of each system and fails, and installs nothing."""
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = ("bash", "awk", "cat", "dirname", "sed")


def setup(folder, target, **programs):
    """Runs it with these programs (name=script) and what it is written in, and no others."""
    for name in NEEDED:
        if not (folder / name).exists():
            (folder / name).symlink_to(shutil.which(name))
    for name, script in programs.items():
        (folder / name.replace("_", "-")).write_text(f"#!{shutil.which('sh')}\n{script}\n")
        (folder / name.replace("_", "-")).chmod(0o755)
    env = {k: v for k, v in os.environ.items() if k not in ("CC", "PATH")}
    return subprocess.run([shutil.which("bash"), str(ROOT / "tools" / "setup.sh"), target],
                          env={**env, "PATH": str(folder)}, capture_output=True, text=True)


def test_without_apt(tmp_path):
    done = setup(tmp_path, "build", id="echo 0")
    assert done.returncode == 1, done
    lines = {line[2:18].strip(): line.split() for line in done.stderr.splitlines()[1:]}
    assert list(lines) == ["Debian, Ubuntu", "Fedora", "Arch", "macOS"]
    assert "meson" in lines["Fedora"] and "libjansson-dev" in lines["Debian, Ubuntu"] and "jansson" in lines["Arch"] and "libpng" in lines["macOS"]
    assert "-" not in lines["macOS"]


def test_without_root_and_sudo(tmp_path):
    done = setup(tmp_path, "build", id="echo 1000", apt_get="echo apt-get was called; exit 9")
    assert done.returncode == 1 and "apt-get install gcc meson" in done.stderr and "was called" not in done.stdout + done.stderr


def test_only_what_is_missing(tmp_path):
    every = {name: "exit 0" for name in ("cc", "meson", "ninja")}
    done = setup(tmp_path, "build", id="echo 0", pkg_config='[ "$2" != jansson ]', **every)
    assert done.returncode == 1 and "apt-get install libjansson-dev\n" in done.stderr


def test_onednn_is_not_asked_for(tmp_path):
    done = setup(tmp_path, "build", id="echo 1000")
    assert done.returncode == 1 and "libjansson-dev" in done.stderr and "dnnl" not in done.stderr


def test_installs_by_sudo(tmp_path):
    every = {name: "exit 0" for name in ("cc", "meson", "ninja")}
    done = setup(tmp_path, "build", id="echo 1000", apt_get="echo apt-get $* >&2", sudo='"$@"',
                 env="shift; exec \"$@\"", pkg_config='[ "$2" != jansson ]', **every)
    assert done.returncode == 0
    assert re.search(r"^apt-get install -y .*--no-install-recommends .* libjansson-dev$", done.stderr, re.MULTILINE)
