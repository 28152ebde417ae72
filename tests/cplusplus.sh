#!/usr/bin/env bash
# qkv.hpp with each C++ compiler that there is, with and without exceptions and RTTI: compiled without warnings, and
# run. TAP.
#
#   tests/cplusplus.sh build        the folder that holds libqkv.so
set -uo pipefail
lib=$(cd "${1:-build}" && pwd)
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0 failed=0
model=tests/models/small/mha_self.pt2
ok() { # NAME COMMAND...
  n=$((n + 1))
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then echo "ok $n - cplusplus: $name"; else
    echo "not ok $n - cplusplus: $name"
    printf '%s\n' "$out" | sed 's/^/# /'
    failed=1
  fi
}
compiled() { # OUTPUT SOURCE COMPILER FLAG...
  "$3" -std=c++17 -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror "${@:4}" -Iinclude "$2" \
    -L"$lib" -lqkv -Wl,-rpath,"$lib" -o "$dir/$1"
}
same_as_in_c() { # what embed.c prints
  gcc -Iinclude examples/embed.c -L"$lib" -lqkv -Wl,-rpath,"$lib" -o "$dir/embed-c" &&
    diff <("$dir/embed-c" $model) <("$dir/embed" $model)
}
usage() { "$dir/embed"; [ $? = 2 ] && ! "$dir/embed" nowhere.pt2 2>"$dir/said" && grep -q "nowhere.pt2" "$dir/said"; }
aborts() { # without exceptions value() says why and ends
  printf '#include <qkv.hpp>\nint main() { return qkv::model::load("nowhere.pt2").value().input_count(); }\n' \
    >"$dir/aborts.cpp"
  compiled aborts "$dir/aborts.cpp" "$1" -fno-exceptions || return
  (ulimit -c 0; "$dir/aborts") 2>"$dir/said"
  [ $? = 134 ] && grep "qkv: error: .*nowhere.pt2" "$dir/said"
}
dangling() { # a view of a temporary vector is refused
  printf '#include <qkv.hpp>\nint main() { return qkv::view(std::vector<float>(4), {4}).data() != nullptr; }\n' \
    >"$dir/dangling.cpp"
  ! compiled dangling "$dir/dangling.cpp" "$1"
}
for cxx in g++ clang++; do
  command -v $cxx >/dev/null || { echo "# $cxx is not installed"; continue; }
  for flags in "" "-fno-exceptions -fno-rtti"; do
    mkdir -p "$dir/files"
    ok "$cxx $flags" compiled test_hpp tests/cplusplus/test_hpp.cpp $cxx $flags
    ok "and runs" "$dir/test_hpp" $model "$dir/files"
  done
  ok "$cxx: value() without exceptions" aborts $cxx
  ok "$cxx: a view of a temporary vector" dangling $cxx
  ok "$cxx: examples/embed.cpp" compiled embed examples/embed.cpp $cxx -fno-exceptions
  ok "prints what embed.c prints" same_as_in_c
  ok "and fails as it does" usage
done
echo "1..$n"
exit $failed
