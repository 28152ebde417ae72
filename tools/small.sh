#!/usr/bin/env bash
# A program that loads and runs models, as one file that needs nothing but Linux, made for size: examples/embed.c,
# linked statically and stripped. docs/PLATFORMS.md says what is left out.
#
#   tools/small.sh [OUTPUT]        build-small/embed; fails where it has more than 3,000,000 bytes or does not run
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build-small/embed} most=3000000
[ -e build-small/build.ninja ] || meson setup build-small -Dlevel=avx2 -Doptimization=s -Donednn=disabled \
  -Dc_args=-fno-asynchronous-unwind-tables >/dev/null
ninja -C build-small libqkv.a >/dev/null
# glibc's libm has many functions up to four times, for FMA, FMA4, AVX and SSE2: the one for SSE2 does for all CPUs.
libm=$(sed -n 's/.*[( ]\(\/[^ ]*libm-[^ ]*\.a\).*/\1/p' "$("${CC:-cc}" -print-file-name=libm.a)")
mapfile -t one < <(nm -g --defined-only "$libm" 2>/dev/null | awk '$2 == "T" {has[$3]}
  END {for (f in has) if (match(f, /_(avx|fma|fma4)$/)) {plain = substr(f, 1, RSTART - 1) "_sse2"
    if (plain in has) print "-Wl,--defsym=" f "=" plain}}')
"${CC:-cc}" -O2 -static -s -Iinclude examples/embed.c -o "$out" -Wl,--gc-sections -Wl,--build-id=none \
  -Wl,-z,noseparate-code "${one[@]}" -Wl,--start-group build-small/libqkv.a -lminizip -lz -lm -lpthread -Wl,--end-group
for model in tests/models/small/mha_self.pt2 tests/cli/models/padded.onnx; do "$out" $model >/dev/null; done
size=$(wc -c <"$out")
echo "$out: $size bytes"
[ "$size" -le $most ] || { echo "small: found $size bytes, expected at most $most" >&2; exit 1; }
