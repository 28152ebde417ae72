#!/usr/bin/env bash
# Runs the test suites and adds them up. Called by `make check` and `make check-all`.
#   tools/check.sh quick    C tests, command line, installed library, layers, documents: no torch, no network
#   tools/check.sh all      the same, then sanitizers, every CPU rung, Python and the models made with torch
# Logs are kept in build/check/. The last line is "N passed, N failed"; the exit code says whether all passed.
set -uo pipefail
cd "$(dirname "$0")/.."
mode="${1:-quick}"
logs=build/check
rm -rf $logs && mkdir -p $logs
export QKV="$PWD/build/qkv" QKV_LIBRARY="$PWD/build/libqkv.so" LC_ALL=C.UTF-8
export TORCH_FAKE_TENSOR_DISPATCH_CACHE=0 # of no use to a model that is exported once: half of torch.export's time

ended() { # NAME LOG CODE SECONDS
  printf '%-20s %s (%d s)\n' "$1" "$([ "$3" = 0 ] && echo ok || echo "FAILED, see $logs/$1.log")" "$4" >&2
  echo "$1=$2:$3" >>$logs/suites
}
suite() { # NAME COMMAND...: its output into a log, its exit code remembered
  local name=$1 t=$SECONDS code=0
  shift
  "$@" >"$logs/$name.log" 2>&1 </dev/null || code=$?
  ended "$name" "$logs/$name.log" $code $((SECONDS - t))
}
meson_suite() { # NAME BUILDDIR [VARIABLE=VALUE...] [-- OPTION...]: programs of meson test; counted from its JSON log
  local name=$1 dir=$2 t=$SECONDS code=0 variables=()
  shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do variables+=("$1") && shift; done
  env "${variables[@]}" meson test -C "$dir" --no-rebuild --print-errorlogs --logbase "$name" "${@:2}" >"$logs/$name.log" 2>&1 </dev/null || code=$?
  cp "$dir/meson-logs/$name.json" "$logs/$name.json" 2>/dev/null
  ended "$name" "$logs/$name.json" $code $((SECONDS - t))
}
python=.venv/bin/python
have() { [ -x $python ] && $python -c "import $1" 2>/dev/null; }
skip() { echo "skipped: $1" >>$logs/skipped; }

meson_suite c build
suite layers python3 tools/layers.py
suite oplists python3 tools/oplists.py
suite documents python3 tools/opsdoc.py --check
suite findings python3 tools/checkdoc.py --check
[ -f tests/install.sh ] && suite install bash tests/install.sh

python_tests() {
  if have pytest && have numpy; then
    suite python $python -m pytest -q -p no:cacheprovider --durations=20 tests/python --ignore tests/python/test_onnx_backend.py --ignore tests/python/test_onnx_ops.py
  else
    skip "tests/python (no numpy and pytest in .venv; tools/setup.sh check installs them)"
  fi
}

torch_models() {
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
}

if [ "$mode" = all ]; then
  have ray || skip "tests/python/test_ray.py (no ray in .venv)"
  best=$(build/qkv --version | sed 's/.*(\(.*\))/\1/')
  for rung in ref gen avx2 avx512 avx512bf16; do
    [ "$rung" = "$best" ] && break
    meson_suite "rung_$rung" build QKV_CPU=$rung -- --no-suite fuzz
  done
  suite asan_build make asan-build
  meson_suite asan build-asan
  torch_models & # beside the Python suite: mostly one thread each
fi
python_tests
wait
[ -s $logs/skipped ] && cat $logs/skipped
mapfile -t suites <$logs/suites
python3 tools/count.py "${suites[@]}"
