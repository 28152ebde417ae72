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
"${CC:-cc}" -O2 -static -s -Iinclude examples/embed.c -o "$out" -Wl,--gc-sections -Wl,--build-id=none \
  -Wl,-z,noseparate-code -Wl,--start-group build-small/libqkv.a -lminizip -lz -lm -lpthread -Wl,--end-group
for model in tests/models/small/mha_self.pt2 tests/cli/models/padded.onnx; do "$out" $model >/dev/null; done
size=$(wc -c <"$out")
echo "$out: $size bytes"
[ "$size" -le $most ] || { echo "small: found $size bytes, expected at most $most" >&2; exit 1; }
