#!/usr/bin/env bash
# The Python package as a wheel holds it. In any build: its library and command, laid out as a wheel does, and used from
# a clean folder. Where the tools of `make wheel` are installed: the wheel itself, in a clean venv. TAP.
#
#   tests/wheel.sh          seconds; as long as a build with the tools and nothing built
#   WHEEL=1 tests/wheel.sh  with the tools missing it fails; builds twice and compares
#
# PYTHONS are interpreters in whose venvs the wheel is installed, beside that of .venv.
set -uo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0 failed=0
ok() { # NAME COMMAND...
  n=$((n + 1))
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then echo "ok $n - wheel: $name"; else
    echo "not ok $n - wheel: $name"
    printf '%s\n' "$out" | sed 's/^/# /'
    failed=1
  fi
}
model=$PWD/tests/models/small/mha_self.pt2
[ ! -x .venv/bin/python ] || python=$PWD/.venv/bin/python
python=${python:-python3}
laid_out() {
  { [ -e build/python/qkv ] || ninja -C build package; } && mkdir -p "$dir/site/qkv/bin" &&
    cp -r python/qkv python/qkv_command.py "$dir/site" && cp build/python/libqkv.so "$dir/site/qkv" &&
    cp build/python/qkv "$dir/site/qkv/bin"
}
# COMMAND...: with that package, and nothing of the checkout
elsewhere() { (cd "$dir" && env -u QKV_LIBRARY PYTHONPATH="$dir/site" "$@"); }
command_of_module() {
  [ "$(elsewhere "$python" -m qkv --version | cut -d' ' -f1)" = qkv ] && elsewhere "$python" -m qkv inspect "$model"
}
exit_codes() { elsewhere "$python" -m qkv nonsense; [ $? = 2 ]; }
exports() { ! nm -D --defined-only "$dir/site/qkv/libqkv.so" | awk '$2 ~ /[A-Z]/ {print $3}' | grep -v '^qkv_'; }
same_level() { [ "$(elsewhere "$dir/site/qkv/bin/qkv" --version)" = "$(build/qkv --version)" ]; }
runs() { # [LINES]: a model runs, after these lines of Python
  elsewhere "$python" - "$model" <<END
import sys
${1:-}
import numpy as np
import qkv
assert "torch" not in sys.modules
y = qkv.Model(sys.argv[1]).run({"x": np.ones((2, 5, 16), np.float32)})
assert all(np.isfinite(np.asarray(v)).all() for v in y.values())
from qkv import _lib
assert _lib.vision() is _lib.lib() and _lib.lib()._name.endswith("qkv/libqkv.so")
END
}
# The process has another library of that name already, whose functions answer nothing and whose names come first.
two_libraries() {
  nm -D --defined-only "$dir/site/qkv/libqkv.so" | awk '{print "void *" $3 "(void) { return 0; }"}' >"$dir/other.c"
  gcc -shared -fPIC -Wl,-soname,libqkv.so "$dir/other.c" -o "$dir/other.so" &&
    ! readelf -rW "$dir/site/qkv/libqkv.so" | grep ' qkv_' &&
    runs "import ctypes; ctypes.CDLL('$dir/other.so', ctypes.RTLD_GLOBAL)"
}
older_library() {
  local said
  echo 'const char *qkv_version(void) { return "0.0.7"; }' | gcc -shared -fPIC -xc - -o "$dir/libqkv-old.so" || return
  said=$(cd "$dir" && QKV_LIBRARY="$dir/libqkv-old.so" PYTHONPATH="$dir/site" \
    "$python" -c 'import qkv; qkv.Model("x.pt2")' 2>&1)
  echo "$said"
  grep -q "qkv 0.0.7, older than this package" <<<"$said"
}
wheel() { ls -t dist/qkv-*manylinux*_x86_64.whl | head -1; }
again() { # the same bytes from a build of its own
  local first
  first=$(sha256sum "$(wheel)") && rm -rf build-wheel-linux-x86_64 && tools/wheels.py &&
    [ "$first" = "$(sha256sum "$(wheel)")" ]
}
sbom() {
  "$python" -m zipfile -e "$(wheel)" "$dir/unpacked" &&
    "$python" -m json.tool "$dir"/unpacked/*.dist-info/sboms/qkv.cdx.json | grep libjpeg-turbo &&
    ls "$dir"/unpacked/*.dist-info/licenses/zlib.txt
}
in_clean_venv() { # PYTHON
  rm -rf "$dir/venv"
  "$1" -m venv "$dir/venv" && "$dir/venv/bin/pip" install -q --disable-pip-version-check "$(wheel)" || return
  local python=$dir/venv/bin/python
  (cd "$dir" && env -i "$dir/venv/bin/qkv" inspect "$model" && env -i "$dir/venv/bin/python" -m qkv --version) && runs
}
finds_level() { [ "$("$dir/venv/bin/qkv" --version)" = "$(build/qkv --version)" ]; }
without_avx2() {
  local level
  for level in gen ref; do QKV_CPU=$level "$dir/venv/bin/qkv" run "$model" -D s77=2 -D s27=3 || return; done
}
# A root that holds the wheel, glibc and busybox: no Python, no other library. /proc tells the loader where the command
# is.
alone() {
  local root=$dir/root so
  mkdir -p "$root/proc" && "$python" -m zipfile -e "$(wheel)" "$root" && cp "$model" "$root/m.pt2" || return
  for so in /lib64/ld-linux-x86-64.so.2 $(ldd "$root/qkv/libqkv.so" | awk '$2 == "=>" {print $3}' | grep ^/); do
    install -D "$so" "$root$so"
  done
  install -D "$(command -v busybox)" "$root/bin/sh" && chmod +x "$root/qkv/bin/qkv" || return
  unshare -m sh -c 'mount --bind /proc "$1/proc" && exec chroot "$1" /bin/sh -c "$2"' - "$root" \
    "qkv/bin/qkv inspect m.pt2 && qkv/bin/qkv run m.pt2 -D s77=2 -D s27=3"
}
expressions() { # of a tokenizer.json, by the PCRE2 that is linked in: a and b are apart, and not the token ab
  cat >"$dir/tokenizer.json" <<'END'
{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
 "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
   {"type": "Split", "pattern": {"Regex": "\\p{L}(?!x)"}, "behavior": "Isolated", "invert": false},
   {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
 "decoder": {"type": "ByteLevel"}}
END
  elsewhere "$python" -c "import qkv
x = qkv.Tokenizer('$dir/tokenizer.json').encode('ab').tolist()
assert x == [0, 1], x"
}
# A build from the source distribution, where a library is not installed: meson's sentence, and failure.
sdist() {
  local venv=$PWD/build-wheel/venv out
  hook() { PATH=$venv/bin:$PATH "$venv/bin/python" -c "import mesonpy; mesonpy.build_$1('$dir')" 2>&1; }
  hook sdist && tar xzf "$dir"/qkv-*.tar.gz -C "$dir" && cd "$dir"/qkv-*/ || return
  ! out=$(PKG_CONFIG_LIBDIR=/nowhere hook wheel) && grep 'ERROR: Dependency "minizip" not found' <<<"$out"
}
ok "the package is linked and laid out" laid_out
ok "python -m qkv is the command" command_of_module
ok "whose exit code is handed on" exit_codes
ok "the library exports qkv_* alone" exports
ok "it finds the same ISA level as build/qkv" same_level
if "$python" -c 'import numpy' 2>/dev/null; then
  ok "a model runs, without torch, and pictures are in the same library" runs
  ok "expressions of a tokenizer" expressions
  ok "beside another libqkv in the process" two_libraries
  ok "a library older than the package: a sentence" older_library
else
  echo "# no model is run from Python: $python has no numpy"
fi
if [ -n "${WHEEL:-}" ] || build-wheel/venv/bin/python -c 'import mesonpy, ziglang' 2>/dev/null; then
  ok "make wheel" tools/wheels.py
  ok "a source distribution says which library is missing" eval "(sdist)"
  ok "SBOM and licences of what is linked in" sbom
  for p in ${PYTHONS:-} "$python"; do
    ok "in a clean venv of $("$p" --version): qkv, python -m qkv, import qkv" in_clean_venv "$p"
  done
  ok "with the same ISA level" finds_level
  ok "on a CPU without AVX2" without_avx2
  if [ "$(id -u)" = 0 ] && command -v busybox >/dev/null; then ok "with nothing but glibc and busybox" alone; fi
  [ -z "${WHEEL:-}" ] || ok "two builds, one hash" again
else
  echo "# make wheel is not tried: there is no build-wheel/venv with meson-python and ziglang (tools/setup.sh wheel)"
fi
echo "1..$n"
exit $failed
