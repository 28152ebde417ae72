#!/usr/bin/env bash
# Installs into a temporary folder and builds examples/embed.c against it with pkg-config and CMake, shared and static; runs it. TAP.
set -uo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0 failed=0
ok() { # NAME COMMAND...
  n=$((n + 1))
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then echo "ok $n - install: $name"; else
    echo "not ok $n - install: $name"
    printf '%s\n' "$out" | sed 's/^/# /'
    failed=1
  fi
}
# Whatever build/ was configured for before.
installed() { meson configure build -Dprefix=/somewhere && make install PREFIX=/opt/qkv DESTDIR="$dir" && [ -f "$dir/opt/qkv/include/qkv.h" ] && [ ! -e "$dir/somewhere" ]; }
pc() { PKG_CONFIG_SYSROOT_DIR="$dir" PKG_CONFIG_PATH="$(dirname "$(find "$dir" -name qkv.pc)")" pkg-config "$@" qkv; }
libdir() { dirname "$(find "$dir" -name 'libqkv.so')"; }
shared() { gcc -std=c17 -Wall -Wextra -Wpedantic -Werror examples/embed.c $(pc --cflags --libs) -o "$dir/shared"; }
static() { gcc -std=c17 examples/embed.c $(pc --cflags) "$(libdir)/libqkv.a" $(pc --libs --static | tr ' ' '\n' | grep -v '^-lqkv$') -o "$dir/static"; }
cplusplus() { printf '#include <qkv.h>\nint main() { return qkv_version() ? 0 : 1; }\n' >"$dir/x.cc" && g++ -std=c++17 -Wall -Wextra -Werror "$dir/x.cc" $(pc --cflags --libs) -o "$dir/cc" && LD_LIBRARY_PATH="$(libdir)" "$dir/cc"; }
exports() { ! nm -D --defined-only "$(libdir)/libqkv.so" | awk '$2 == "T" {print $3}' | grep -v '^qkv_'; }
once() { [ "$(pc --libs --static | tr ' ' '\n' | grep -c -e -fopenmp)" = 1 ]; }
found() { # TARGET: a project of its own that finds the package
  mkdir -p "$dir/cmake-$1" && cp examples/embed.c "$dir/cmake-$1/"
  printf 'cmake_minimum_required(VERSION 3.18)\nproject(x C)\nfind_package(qkv 0.1 REQUIRED)\nadd_executable(embed embed.c)\ntarget_link_libraries(embed %s)\n' "$2" >"$dir/cmake-$1/CMakeLists.txt"
  cmake -S "$dir/cmake-$1" -B "$dir/cmake-$1/build" -DCMAKE_PREFIX_PATH="$dir/opt/qkv" && cmake --build "$dir/cmake-$1/build" &&
    "$dir/cmake-$1/build/embed" tests/models/small/mha_self.pt2
}
dependent() { readelf -d "$1" | grep -q 'NEEDED.*libqkv'; }
# One file that needs no library, from a build without oneDNN: Debian has no static one.
lone() {
  gcc -O2 -static examples/embed.c $(pc --cflags) -Wl,--gc-sections -Wl,--start-group "$(libdir)/libqkv.a" $(pc --libs --static | tr ' ' '\n' | grep -v '^-lqkv$') -Wl,--end-group -s -o "$dir/lone" &&
    ! readelf -d "$dir/lone" | grep NEEDED && "$dir/lone" tests/models/small/mha_self.pt2 && wc -c "$dir/lone"
}
removed() { make uninstall PREFIX=/opt/qkv DESTDIR="$dir" && [ -z "$(find "$dir/opt" ! -type d)" ]; }
ok "make install, whatever was configured before" installed
ok "embed.c builds against the shared library" shared
ok "and runs" env LD_LIBRARY_PATH="$(libdir)" "$dir/shared" tests/models/small/mha_self.pt2
ok "embed.c builds against the static library" static
ok "and runs" "$dir/static" tests/models/small/mha_self.pt2
command -v g++ >/dev/null && ok "the header is C++ too" cplusplus
ok "the shared library exports qkv_* alone" exports
ok "pkg-config says -fopenmp once" once
if command -v cmake >/dev/null; then
  ok "find_package: the shared library" found shared qkv::qkv
  ok "which the program needs" dependent "$dir/cmake-shared/build/embed"
  ok "find_package: the static library" found static qkv::static
  ok "which the program has in itself" eval '! dependent "$dir/cmake-static/build/embed"'
fi
grep -q '"dnnl"\|-ldnnl' "$(dirname "$(find "$dir" -name qkv.pc)")/qkv.pc" || ok "a program without any library" lone
ok "make uninstall takes everything away" removed
echo "1..$n"
exit $failed
