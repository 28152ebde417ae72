#!/usr/bin/env bash
# Installs into a temporary folder and builds examples/embed.c against it with pkg-config, shared and static; runs it. TAP.
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
installed() { DESTDIR="$dir" meson install -C build --no-rebuild --quiet; }
pc() { PKG_CONFIG_SYSROOT_DIR="$dir" PKG_CONFIG_PATH="$(dirname "$(find "$dir" -name qkv.pc)")" pkg-config "$@" qkv; }
libdir() { dirname "$(find "$dir" -name 'libqkv.so')"; }
shared() { gcc -std=c17 -Wall -Wextra -Wpedantic -Werror examples/embed.c $(pc --cflags --libs) -o "$dir/shared"; }
static() { gcc -std=c17 examples/embed.c $(pc --cflags) "$(libdir)/libqkv.a" $(pc --libs --static | tr ' ' '\n' | grep -v '^-lqkv$') -fopenmp -o "$dir/static"; }
cplusplus() { printf '#include <qkv.h>\nint main() { return qkv_version() ? 0 : 1; }\n' >"$dir/x.cc" && g++ -std=c++17 -Wall -Wextra -Werror "$dir/x.cc" $(pc --cflags --libs) -o "$dir/cc" && LD_LIBRARY_PATH="$(libdir)" "$dir/cc"; }
exports() { ! nm -D --defined-only "$(libdir)/libqkv.so" | awk '$2 == "T" {print $3}' | grep -v '^qkv_'; }
ok "meson install" installed
ok "embed.c builds against the shared library" shared
ok "and runs" env LD_LIBRARY_PATH="$(libdir)" "$dir/shared" tests/models/small/mha_self.pt2
ok "embed.c builds against the static library" static
ok "and runs" "$dir/static" tests/models/small/mha_self.pt2
command -v g++ >/dev/null && ok "the header is C++ too" cplusplus
ok "the shared library exports qkv_* alone" exports
echo "1..$n"
exit $failed
