#!/bin/sh
# Fuzzes every reader under the address and undefined-behaviour sanitizers: make fuzz
#   FUZZ_SECONDS (60) for each target, FUZZ_SEED (the time), FUZZ_TARGETS ("zip json": all when empty).
#   A finding is kept in build-fuzz/findings, inputs that reached new code in build-fuzz/kept: the next run goes on there.
cd "$(dirname "$0")/../.." || exit 2
dir=build-fuzz save=build-fuzz/findings seed=${FUZZ_SEED:-$(date +%s)} status=0
make --no-print-directory $dir/build.ninja >&2 || exit 2
ninja -C $dir fuzz >&2 || exit 2
mkdir -p $save
for exe in $dir/tests/fuzz/fuzz_*; do
  name=${exe##*/fuzz_}
  [ -f "$exe" ] && [ -x "$exe" ] || continue
  case " ${FUZZ_TARGETS:-$name} " in *" $name "*) ;; *) continue ;; esac
  mkdir -p "build-fuzz/kept/$name"
  "$exe" --seconds "${FUZZ_SECONDS:-60}" --seed "$seed" --save $save --keep "build-fuzz/kept/$name" \
    tests/models/small tests/cli/models tests/ops || status=1
done
exit $status
