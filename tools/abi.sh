#!/bin/sh
# Compares the interface with that of a release: the last tag v*, or the given tag or commit.
#   tools/abi.sh [TAG]        needs abidiff (Debian's abigail-tools)
# Added functions and fields are printed; what a program built against the release would trip over ends with 1.
set -eu
cd "$(dirname "$0")/.."
command -v abidiff >/dev/null || { echo "tools/abi.sh: abidiff is not installed (Debian: apt install abigail-tools)" >&2; exit 2; }
tag=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
[ -n "$tag" ] || { echo "no release is tagged yet: nothing to compare with"; exit 0; }
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

# A library of what the headers declare, with debug information and without what the functions do. (tests/python/test_abi.py
# holds the real libraries to the headers.)
declared() { # INCLUDE LIBRARY
  python3 - "$1" <<'EOF' | "${CC:-cc}" -g -w -shared -fPIC -I"$1" -x c - -o "$2"
import pathlib, re, sys
for header in sorted(pathlib.Path(sys.argv[1]).glob("*.h")):
    print(f'#include "{header.name}"')
    text = re.sub(r"/\*.*?\*/", " ", header.read_text(), flags=re.S)
    for function in re.findall(r"^QKV_API\b[^;]*(?=;)", text, flags=re.M):
        print(function, "{ __builtin_trap(); }")
EOF
}

git archive "$tag" include | tar -x -C "$made"
declared "$made/include" "$made/old.so"
declared include "$made/new.so"
changed=0
abidiff "$made/old.so" "$made/new.so" >"$made/report" || changed=$?
cat "$made/report"
[ $((changed & 3)) -eq 0 ] || exit 2
# docs/ABI.md allows new functions, fields at the end of structs and values at the end of enums.
broken="\[D\]|offset changed|(member|enumerator) deletion|from value|entity changed from|parameter .* was (added|removed)"
if grep -E "$broken" "$made/report" | grep -qv "to compatible type"; then
  echo "programs built against $tag may not run with this interface" >&2
  exit 1
fi
echo "programs built against $tag run with this interface"
