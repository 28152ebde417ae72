#!/usr/bin/env bash
# Each public header stands alone, as C and as C++, and includes nothing but qkv.h; qkv.h stays short. TAP.
set -uo pipefail
cd "$(dirname "$0")/.."
n=0 failed=0
ok() { # NAME COMMAND...
  n=$((n + 1))
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then echo "ok $n - headers: $name"; else
    echo "not ok $n - headers: $name"
    printf '%s\n' "$out" | sed 's/^/# /'
    failed=1
  fi
}
compiles() { # COMPILER STANDARD LANGUAGE HEADER
  printf '#include "%s"\n#include "%s"\n' "$4" "$4" |
    "$1" "-std=$2" -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -Iinclude -x "$3" -
}
alone() { ! grep '#include' "$1" | grep -v -e '<stddef.h>' -e '<stdint.h>' -e '"qkv.h"'; }
short() { [ "$(wc -l <include/qkv.h)" -le 250 ] && head -40 include/qkv.h | grep -q qkv_session_run; }
for h in qkv qkv_tools qkv_train qkv_vision; do
  ok "$h.h as C" compiles ${CC:-cc} c99 c "$h.h"
  ! command -v "${CXX:-c++}" >/dev/null || ok "$h.h as C++" compiles "${CXX:-c++}" c++11 c++ "$h.h"
  ok "$h.h includes qkv.h alone" alone "include/$h.h"
done
ok "qkv.h is at most 250 lines, its first use on the first page" short
echo "1..$n"
exit $failed
