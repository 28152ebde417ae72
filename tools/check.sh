#!/usr/bin/env bash
# Runs the test suites, three at a time, and adds them up. Called by `make check` and `make check-all`.
#   tools/check.sh quick                 C tests, command line, installed library, layers, sources, documents: no torch, no network
#   tools/check.sh all                   the same, then sanitizers, every CPU level, a decimal comma, Python and the models made with torch
#   tools/check.sh only SUITE [CASE...]  one suite of the list below, with what its program takes: only models mha_self
#   tools/check.sh list                  the suites
# The large suites of torch run a share of their entries that changes with the commit (tests/share.py); FULL=1 runs all of them.
# Logs are kept in build/check/. The last line is "N passed, N failed"; the exit code says whether all passed.
set -uo pipefail
cd "$(dirname "$0")/.."
mode="${1:-quick}"
logs=build/check
export QKV="$PWD/build/qkv" QKV_LIBRARY="$PWD/build/libqkv.so" LC_ALL=C.UTF-8
export TORCH_FAKE_TENSOR_DISPATCH_CACHE=0 # of no use to a model that is exported once: half of torch.export's time
export OMP_WAIT_POLICY=passive            # suites share the machine
export PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX="$PWD/build/pycache" # compiled once, whatever the image says, and
                                          # not beside files that tests list
lanes=3                                   # on two CPUs: one waits for a disk, a process or a clock
[ "${FULL:-0}" = 1 ] && export QKV_SHARE=1 || export QKV_SHARE="${QKV_SHARE:-32}"
[ "$QKV_SHARE" = 1 ] || export QKV_TURN="$(git rev-parse --short=6 HEAD 2>/dev/null || echo 0)"
but=() # what c leaves out
python=.venv/bin/python
[ -x $python ] || python=python3

have() { local m; for m in "$@"; do $python -c "import $m" 2>/dev/null || return 1; done; }
# The CPU levels of this machine but the one that it uses, which the other suites run at. avxvnni and avx512vnni differ
# from those below them in integer products and packed weights alone, which the kernel tests run at every level. Every
# second one for a commit, unless all are asked for.
levels() {
  local usual level
  usual=$(build/qkv --version)
  for level in ref gen avx2 avx512 avx512bf16; do
    [ "${usual/*(/(}" != "($level)" ] && [[ $(QKV_CPU=$level build/qkv --version) = *"($level)" ]] && echo $level
  done | awk -v turn=$((0x${QKV_TURN:-0})) -v all=${QKV_TURN:-yes} 'all == "yes" || NR % 2 == turn % 2'
}
programs() { # NAME BUILDDIR OPTION...: programs of meson test; counted from its JSON log
  local code=0
  meson test -C "$2" --no-rebuild --print-errorlogs --num-processes "${PROCESSES:-1}" --logbase "$1" "${@:3}" || code=$?
  cp "$2/meson-logs/$1.json" "$logs/$1.json"
  return $code
}
pytest() { $python -m pytest -q -p no:cacheprovider "$@"; }
python_files() { # PART: the files of one half; the standard's own tests of ONNX are suites of their own
  ls tests/python/test_*.py | grep -v -e test_onnx_backend -e test_onnx_ops | awk -v part="$1" 'NR % 2 == part'
}

# A suite is a function; what it needs of Python is named in needs.
declare -A needs=([python_1]="pytest numpy" [python_2]="pytest numpy" [golden]=torch [models]=torch [spellings]=torch
  [opinfo]="torch expecttest" [opinfo_decomposed]="torch expecttest" [opinfo_grad]="torch expecttest"
  [onnx_types]="onnxruntime ml_dtypes"
  [random_torch]="torch onnxruntime ml_dtypes"
  [onnx_ops]="onnxruntime ml_dtypes" [onnx_ops_23]="onnxruntime ml_dtypes onnx" [onnx_models]="torch onnx onnxscript"
  [onnx_backend]="pytest onnx ml_dtypes" [onnx_graphs]="pytest onnx onnxruntime")
suite_c() { programs c build "${but[@]}" "$@"; }
suite_layers() { python3 tools/layers.py; }
suite_oplists() { python3 tools/oplists.py; }
suite_checksrc() { python3 tools/checksrc.py; }
suite_checktext() { python3 tools/checktext.py; }
suite_changelog() { python3 tools/changelog.py --check; }
suite_commits() { python3 tools/commits.py --check; }
suite_documents() { python3 tools/opsdoc.py --check; }
suite_findings() { python3 tools/checkdoc.py --check; }
suite_install() { bash tests/install.sh; }
suite_wheel() { bash tests/wheel.sh; }
suite_locale() { # a program that uses the library may have a decimal comma
  local comma
  comma=$(tests/locale.sh build/locale) && LOCPATH="$comma" QKV_TEST_LOCALE=de_DE.UTF-8 programs locale build --suite locale "$@"
}
suite_asan() { programs asan build-asan --no-suite soak "$@"; } # the soak runs in c, and under ThreadSanitizer
suite_tsan() { programs tsan build-tsan --suite threads "$@"; }
suite_python_1() { pytest --durations=20 ${@:-$(python_files 1)}; }
suite_python_2() { pytest --durations=20 ${@:-$(python_files 0)}; }
suite_golden() { $python tools/golden.py --check "$@"; }
suite_models() { $python tests/models/run_models.py --jobs 1 "$@"; }
suite_spellings() { $python tests/spellings/run.py --jobs 1 "$@"; }
suite_random_torch() { $python tests/models/run_torch.py "$@"; }
suite_opinfo() { $python tests/ops/opinfo.py "$@"; }
suite_opinfo_decomposed() { $python tests/ops/opinfo.py --decomposed "$@"; }
suite_opinfo_grad() { $python tests/ops/opinfo.py --grad "$@"; }
suite_onnx_types() { $python tools/onnx_types.py --check "$@"; }
suite_onnx_ops() { $python tests/ops/onnx_ops.py build/tests/ops/write_onnx "$@"; }
suite_onnx_ops_23() { $python tests/ops/onnx_ops.py build/tests/ops/write_onnx --opset 23 --unlike 18 "$@"; }
suite_onnx_models() { $python tests/models/onnx_models.py "$@"; }
suite_onnx_backend() { pytest --tb=line tests/python/test_onnx_backend.py "$@"; }
suite_onnx_graphs() { pytest --tb=line tests/python/test_onnx_ops.py "$@"; }
# Kernel tests force every level themselves, and reading does not depend on it: what runs models and ops is left, and of
# the command's tests a third, another one at each level.
at_level() { # LEVEL N OPTION...
  QKV_CPU=$1 QKV_TURN=${QKV_TURN:+$(printf %x $((0x$QKV_TURN + $2)))} \
    programs "level_$1" build --suite ops --suite rules --suite models --suite cli "${@:3}"
}
suite_level_ref() { at_level ref 0 "$@"; }
suite_level_gen() { at_level gen 1 "$@"; }
suite_level_avx2() { at_level avx2 2 "$@"; }
suite_level_avx512() { at_level avx512 3 "$@"; }
suite_level_avx512bf16() { at_level avx512bf16 4 "$@"; }

quick="c layers oplists checksrc checktext changelog commits documents findings install wheel"
# longest first, so that the lanes end together
large="asan python_1 python_2 c spellings onnx_models models tsan onnx_ops onnx_graphs opinfo opinfo_decomposed opinfo_grad
  onnx_backend golden random_torch onnx_ops_23 onnx_types"

run() { # SUITE ARGUMENT...: its output into a log, its exit code, time and processor time remembered
  local name=$1 code=0 start=$SECONDS log
  local -a cpu
  ("suite_$name" "${@:2}"; code=$?; times >"$logs/$name.times"; exit $code) >"$logs/$name.log" 2>&1 </dev/null || code=$?
  read -ra cpu <<<"$(tail -1 "$logs/$name.times" 2>/dev/null)"
  log=$logs/$name.json
  [ -f "$log" ] || log=$logs/$name.log
  printf '%-20s %s (%d s, processor %s %s)\n' "$name" "$([ $code = 0 ] && echo ok || echo "FAILED, see $logs/$name.log")" \
    $((SECONDS - start)) "${cpu[@]:-}" >&2
  echo "$name $((SECONDS - start))" >>$logs/figures
  echo "$name=$log:$code" >>$logs/suites
}
ready() { # SUITE: is what it needs installed?
  have ${needs[$1]:-} && return
  echo "skipped: $1 (needs ${needs[$1]} in .venv; tools/setup.sh installs them)" >>$logs/skipped
  return 1
}
all_of() { # SUITE...: as many at a time as there are lanes
  local s
  for s in "$@"; do
    ready "$s" || continue
    while [ "$(jobs -rp | wc -l)" -ge $lanes ]; do wait -n; done
    run "$s" &
  done
  wait
}

case "$mode" in
  list)
    declare -F | sed -n 's/.* suite_//p'
    exit ;;
  only)
    [ $# -ge 2 ] && declare -F "suite_$2" >/dev/null || { echo "tools/check.sh only SUITE: one of the suites of tools/check.sh list" >&2; exit 2; }
    mkdir -p $logs
    case $2 in asan | tsan) make $2-build ;; esac
    unset QKV_TURN
    PROCESSES=2 QKV_SHARE=1 "suite_$2" "${@:3}"
    exit ;;
  quick | all) ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
rm -rf $logs && mkdir -p $logs && echo $QKV_SHARE >$logs/share
if [ "$mode" = quick ]; then
  PROCESSES=2 run c
  all_of ${quick#c } python_1 python_2
else
  [ "$QKV_SHARE" = 1 ] || but=(--no-suite fuzz) # asan runs the same inputs of the same seeds
  tools/setup.sh torch >$logs/setup.log 2>&1 </dev/null & # beside the builds: it waits for the disk
  installing=$!
  for sanitizer in asan tsan; do
    make $sanitizer-build >$logs/${sanitizer}_build.log 2>&1 </dev/null ||
      echo "${sanitizer}_build=$logs/${sanitizer}_build.log:1" >>$logs/suites
  done
  wait $installing || { cat $logs/setup.log >&2; exit 1; }
  have ray || echo "skipped: tests/python/test_ray.py (no ray in .venv)" >>$logs/skipped
  tests/locale.sh build/locale >/dev/null 2>&1 && large="$large locale" ||
    echo "skipped: locale (tests/locale.sh cannot make a locale with a decimal comma)" >>$logs/skipped
  all_of $large $(levels | sed s/^/level_/) ${quick#c }
fi
[ -s $logs/skipped ] && cat $logs/skipped
mapfile -t suites <$logs/suites
python3 tools/count.py "${suites[@]}"
