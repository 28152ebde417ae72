#!/usr/bin/env python3
"""Builds wheels of the Python package into dist/, reproducibly: the same commit gives the same bytes.

    tools/wheels.py                     linux-x86_64
    tools/wheels.py TARGET ...          linux-x86_64 linux-aarch64; docs/PLATFORMS.md has the state of each

meson-python builds the package from what pyproject.toml says. gcc compiles, and PyPI's ziglang links, which makes
a library for an older glibc than the machine's; libraries come from Debian's archives. What the wheel holds in
the end, the C library with whatever it needs linked in, is checked here (needed libraries, glibc's versions,
size) and written down in a CycloneDX SBOM (PEP 770). All that is made on the way lies in build-wheel*/;
`tools/setup.sh wheel` installs the tools in build-wheel/venv.
"""
import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build-wheel"
PYTHON = WORK / "venv/bin/python"
GLIBC = (2, 28)
LIMIT = 6 << 20
# glibc's own libraries
OWN = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# target: prefix of Debian's compiler, the architecture's name
TARGETS = {"linux-x86_64": ("", "x86_64"), "linux-aarch64": ("aarch64-linux-gnu-", "aarch64")}
# what is linked in: pkg-config's name, the project's, Debian's package, licence
PARTS = (("zlib", "zlib", "zlib1g-dev", "Zlib"), ("minizip", "minizip", "libminizip-dev", "Zlib"),
         ("jansson", "jansson", "libjansson-dev", "MIT"), ("libpng", "libpng", "libpng-dev", "libpng-2.0"),
         ("libjpeg", "libjpeg-turbo", "libjpeg62-turbo-dev", "IJG AND BSD-3-Clause AND Zlib"),
         ("libutf8proc", "utf8proc", "libutf8proc-dev", "MIT AND Unicode-3.0"),
         ("libpcre2-8", "pcre2", "libpcre2-dev", "BSD-3-Clause"))


def run(*command, **more):
    return subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE, **more).stdout


def sysroot(target):
    """The folder with Debian's libraries of another architecture, or none for this machine's own."""
    return ROOT / "build-aarch64/root" if TARGETS[target][0] else pathlib.Path("/")


def machine_file(target, folder):
    """Meson's machine file, and the compiler that it names: gcc for objects, zig for what is linked."""
    prefix, cpu = TARGETS[target]
    root = sysroot(target)
    gcc = ("ccache " if shutil.which("ccache") else "") + (f"{prefix}gcc --sysroot={root}" if prefix else "cc")
    cc = folder / "cc"
    cc.write_text(f"""#!/bin/sh
for a; do
  case $a in -c | -E | -S | --version | -print-* | --print-*) exec {gcc} "$@" ;; esac
done
exec {PYTHON} -m ziglang cc -target {cpu}-linux-gnu.{GLIBC[0]}.{GLIBC[1]} "$@"
""")
    cc.chmod(0o755)
    text = f"[binaries]\nc = '{cc}'\npkg-config = 'pkg-config'\n"
    text += "".join(f"{tool} = '{prefix}{tool}'\n" for tool in ("ar", "objcopy", "strip"))
    if prefix:
        text += f"""[properties]
sys_root = '{root}'
pkg_config_libdir = '{root}/usr/lib/{cpu}-linux-gnu/pkgconfig:{root}/usr/share/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = '{cpu}'
cpu = '{cpu}'
endian = 'little'
"""
    path = folder / "machine.ini"
    path.write_text(text)
    return f"--{'cross' if prefix else 'native'}-file={path}"


# Debian compiles its archives for programs: in a shared library their direct uses of libc's stderr do not link. They
# get a copy of it.
STDERR = """#include <stdio.h>
FILE *qkv_stderr;
__attribute__((constructor)) static void set(void) { qkv_stderr = stderr; }
"""


def archives(target, folder):
    """PKG_CONFIG_PATH of libpng and libjpeg whose archives can be linked into a shared library."""
    root, (prefix, cpu) = sysroot(target), TARGETS[target]
    lib, out = root / f"usr/lib/{cpu}-linux-gnu", folder / "lib"
    out.mkdir(exist_ok=True)
    (folder / "stderr.c").write_text(STDERR)
    for module, name in (("libpng", "libpng16.a"), ("libjpeg", "libjpeg.a")):
        run(f"{prefix}objcopy", "--redefine-sym", "stderr=qkv_stderr", "-D", lib / name, out / name)
        copy = folder / f"{module}_stderr.o"
        run(folder / "cc", "-O2", "-fPIC", "-fvisibility=hidden", "-c", folder / "stderr.c", "-o", copy)
        run(f"{prefix}ar", "rD", out / name, copy)
        text = (lib / f"pkgconfig/{module}.pc").read_text()
        (out / f"{module}.pc").write_text(re.sub(r"(?m)^libdir=.*$", f"libdir={out}", text))
    return str(out)


def parts(target):
    """(component of the SBOM, its notices) of each library that is linked in."""
    root, (_, cpu) = sysroot(target), TARGETS[target]
    env = dict(os.environ, PKG_CONFIG_LIBDIR=f"{root}/usr/lib/{cpu}-linux-gnu/pkgconfig:{root}/usr/share/pkgconfig")
    for module, source, package, licence in PARTS:
        version = run("pkg-config", "--modversion", module, env=env).strip()
        yield component("generic", source, version, licence), (root / f"usr/share/doc/{package}/copyright").read_bytes()


def component(registry, name, version, licence):
    return {"type": "library", "name": name, "version": version, "licenses": [{"expression": licence}],
            "purl": f"pkg:{registry}/{name}@{version}"}


def sbom(version, components, when):
    me = component("pypi", "qkv", version, "Apache-2.0")
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
                       "metadata": {"timestamp": stamp, "component": me}, "components": components}, indent=1).encode()


def check_binary(name, path):
    """A sentence for whatever keeps the file from running where the tag says that it does."""
    out = run("readelf", "-dVW", path, env=dict(os.environ, LC_ALL="C"))
    for library in sorted(set(re.findall(r"\(NEEDED\).*\[(.*)\]", out)) - OWN - {"libqkv.so"}):
        yield f"{name} needs {library}, which not every machine has"
    newest = max((tuple(map(int, v.split("."))) for v in re.findall(r"Name: GLIBC_([0-9.]+)", out)), default=(0,))
    if newest > GLIBC:
        yield f"{name} needs glibc {'.'.join(map(str, newest))}, expected at most {'.'.join(map(str, GLIBC))}"


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def finish(raw, target, when, folder):
    """The wheel of meson-python with its tag, SBOM and notices, its files in one order and of one time."""
    tag = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{TARGETS[target][1]}"
    files = {}
    with zipfile.ZipFile(raw) as z:
        for i in z.infolist():
            if not i.is_dir():
                files[i.filename] = (z.read(i), i.external_attr >> 16 & 0o111)
    info = next(n for n in files if n.endswith(".dist-info/WHEEL")).rpartition("/")[0]
    version = info[len("qkv-"):-len(".dist-info")]
    files[f"{info}/WHEEL"] = (re.sub(rb"(?m)^Tag: .*$", f"Tag: {tag}".encode(), files[f"{info}/WHEEL"][0]), 0)
    components = []
    for part, notice in parts(target):
        components.append(part)
        files[f"{info}/licenses/{part['name']}.txt"] = (notice, 0)
    files[f"{info}/sboms/qkv.cdx.json"] = (sbom(version, components, when), 0)
    wrong = []
    for name, (data, executable) in files.items():
        if data[:4] == b"\x7fELF":
            binary = folder / "binary"
            binary.write_bytes(data)
            wrong += check_binary(name, binary)
    if not any(n.endswith("/libqkv.so") for n in files):
        wrong.append("there is no libqkv.so in it")
    record = f"{info}/RECORD"
    del files[record]
    rows = [f"{n},sha256={digest(files[n][0])},{len(files[n][0])}\n" for n in sorted(files)] + [f"{record},,\n"]
    files[record] = ("".join(rows).encode(), 0)
    out = ROOT / "dist" / f"qkv-{version}-{tag}.whl"
    out.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name in sorted(files, key=lambda n: (n == record, n)):
            entry = zipfile.ZipInfo(name, time.gmtime(when)[:6])
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = (0o100755 if files[name][1] else 0o100644) << 16
            z.writestr(entry, files[name][0])
    if out.stat().st_size > LIMIT:
        wrong.append(f"it has {out.stat().st_size} bytes, expected at most {LIMIT}")
    if wrong:
        out.unlink()
        sys.exit("wheels: " + "\n        ".join(wrong))
    return out


def build(target):
    folder = WORK / target
    folder.mkdir(parents=True, exist_ok=True)
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct", cwd=ROOT))
    shutil.rmtree(folder / "raw", ignore_errors=True)
    machine = machine_file(target, folder)
    env = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS", "LDFLAGS")}
    env |= {"SOURCE_DATE_EPOCH": str(when), "PATH": f"{PYTHON.parent}:{env['PATH']}",
            "PKG_CONFIG_PATH": archives(target, folder)}
    run(PYTHON, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
        "-w", folder / "raw", f"-Cbuild-dir={ROOT / f'build-wheel-{target}'}", f"-Csetup-args={machine}",
        "-Csetup-args=-Dprefer_static=true", ROOT, env=env)
    return finish(next((folder / "raw").glob("*.whl")), target, when, folder)


def main():
    targets = sys.argv[1:] or ["linux-x86_64"]
    for target in targets:
        if target not in TARGETS:
            sys.exit(f"wheels: found target '{target}', expected one of {' '.join(TARGETS)}")
    for target in targets:
        wheel = build(target)
        data = wheel.read_bytes()
        print(f"{wheel.relative_to(ROOT)}  {len(data)} bytes  sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
