#!/usr/bin/env bash
# Runs the test suites and adds them up. Called by `make check` and `make check-all`.
#   tools/check.sh quick    C tests, command line, installed library, layers, documents: no torch, no network
#   tools/check.sh all      the same, then sanitizers, every CPU rung, warnings as errors, Python and the models made with torch
# Logs are kept in build/check/. The last line is "N passed, N failed"; the exit code says whether all passed.
set -uo pipefail
cd "$(dirname "$0")/.."
mode="${1:-quick}"
logs=build/check
rm -rf $logs && mkdir -p $logs
export QKV="$PWD/build/qkv" QKV_LIBRARY="$PWD/build/libqkv.so" LC_ALL=C.UTF-8
suites=()

suite() { # NAME COMMAND...: its output into a log, its exit code remembered
  local name=$1 t=$SECONDS code=0
  shift
  printf '%-20s ' "$name" >&2
  "$@" >"$logs/$name.log" 2>&1 </dev/null || code=$?
  printf '%s (%d s)\n' "$([ $code = 0 ] && echo ok || echo "FAILED, see $logs/$name.log")" $((SECONDS - t)) >&2
  suites+=("$name=$logs/$name.log:$code")
}
meson_suite() { # NAME BUILDDIR [VARIABLE=VALUE...]: all programs of meson test; counted from its JSON log
  local name=$1 dir=$2 t=$SECONDS code=0
  shift 2
  printf '%-20s ' "$name" >&2
  env "$@" meson test -C "$dir" --no-rebuild --print-errorlogs --logbase "$name" >"$logs/$name.log" 2>&1 </dev/null || code=$?
  cp "$dir/meson-logs/$name.json" "$logs/$name.json" 2>/dev/null
  printf '%s (%d s)\n' "$([ $code = 0 ] && echo ok || echo "FAILED, see $logs/$name.log")" $((SECONDS - t)) >&2
  suites+=("$name=$logs/$name.json:$code")
}
build_with() { # DIR OPTION...
  [ -f "$1/build.ninja" ] || meson setup "$@"
  ninja -C "$1"
}
python=.venv/bin/python
have() { [ -x $python ] && $python -c "import $1" 2>/dev/null; }
skip() { echo "skipped: $1" >>$logs/skipped; }

meson_suite c build
suite layers python3 tools/layers.py
suite documents python3 tools/opsdoc.py --check
suite findings python3 tools/checkdoc.py --check
[ -f tests/install.sh ] && suite install bash tests/install.sh
if have pytest && have numpy; then
  suite python $python -m pytest -q -p no:cacheprovider tests/python --ignore tests/python/test_onnx_backend.py --ignore tests/python/test_onnx_ops.py
else
  skip "tests/python (no numpy and pytest in .venv; tools/setup.sh check installs them)"
fi

if [ "$mode" = all ]; then
  have ray || skip "tests/python/test_ray.py (no ray in .venv)"
  best=$(build/qkv --version | sed 's/.*(\(.*\))/\1/')
  for rung in ref gen avx2 avx512 avx512bf16; do
    [ "$rung" = "$best" ] && break
    meson_suite "rung_$rung" build QKV_CPU=$rung
  done
  suite warnings build_with build-werror -Dwerror=true --buildtype=debugoptimized
  suite asan_build build_with build-asan -Db_sanitize=address,undefined -Db_lundef=false --buildtype=debugoptimized
  meson_suite asan build-asan
  suite golden $python tools/golden.py --check
  suite models $python tests/models/run_models.py
  if have onnxruntime && have ml_dtypes; then
    suite onnx_types $python tools/onnx_types.py --check
    suite onnx_ops $python tests/ops/onnx_ops.py build/tests/ops/write_onnx
    suite onnx_ops_23 $python tests/ops/onnx_ops.py build/tests/ops/write_onnx --opset 23
  else
    skip "tests/ops/onnx_ops.py (no onnxruntime in .venv)"
  fi
  suite spellings $python tests/spellings/run.py
  if have onnx && have ml_dtypes; then
    have onnxscript && suite onnx_models $python tests/models/onnx_models.py
    suite onnx_backend $python -m pytest -q -p no:cacheprovider --tb=line tests/python/test_onnx_backend.py
    have onnxruntime && suite onnx_graphs $python -m pytest -q -p no:cacheprovider --tb=line tests/python/test_onnx_ops.py
  else
    skip "tests/python/test_onnx_backend.py, tests/models/onnx_models.py (no onnx in .venv)"
  fi
fi
[ -s $logs/skipped ] && cat $logs/skipped
python3 tools/count.py "${suites[@]}"
