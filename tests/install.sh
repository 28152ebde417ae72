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
installed() { meson configure build -Dprefix=/somewhere && make install PREFIX=/opt/qkv DESTDIR="$dir" && [ "$(ls "$dir/opt/qkv/include" | wc -l)" = "$(ls include | wc -l)" ] && [ ! -e "$dir/somewhere" ]; }
pc_of() { PKG_CONFIG_SYSROOT_DIR="$dir" PKG_CONFIG_PATH="$(dirname "$(find "$dir" -name qkv.pc)")" pkg-config "$@"; }
pc() { pc_of "$@" qkv; }
system_libs() { pc_of --libs --static "$1" | tr ' ' '\n' | grep -v '^-lqkv'; } # PACKAGE: what its archive needs beside qkv's own
libdir() { dirname "$(find "$dir" -name 'libqkv.so')"; }
shared() { gcc -std=c17 -Wall -Wextra -Wpedantic -Werror examples/embed.c $(pc --cflags --libs) -o "$dir/shared"; }
static() { gcc -std=c17 examples/embed.c $(pc --cflags) "$(libdir)/libqkv.a" $(system_libs qkv) -o "$dir/static"; }
cplusplus() { printf '#include <qkv.h>\nint main() { return qkv_version() ? 0 : 1; }\n' >"$dir/x.cc" && g++ -std=c++17 -Wall -Wextra -Werror "$dir/x.cc" $(pc --cflags --libs) -o "$dir/cc" && LD_LIBRARY_PATH="$(libdir)" "$dir/cc"; }
wrapper() {
  g++ -std=c++17 -Wall -Wextra -Werror examples/embed.cpp $(pc --cflags --libs) -o "$dir/wrapper" &&
    LD_LIBRARY_PATH="$(libdir)" "$dir/wrapper" tests/models/small/mha_self.pt2
}
exports() { ! nm -D --defined-only "$(libdir)/$1" | awk '$2 ~ /[A-Z]/ {print $3}' | grep -v '^qkv_'; }
global() { # ARCHIVE: its global names
  local names
  names=$(nm --defined-only --extern-only "$(libdir)/$1" | awk 'NF == 3 {print $3}') && grep -q '^qkv_' <<<"$names" && ! grep -v '^qkv_' <<<"$names"
}
# A program with functions of its own that are named as some inside the libraries, and an allocator that both must use.
cat >"$dir/names.c" <<'END'
#include <qkv.h>
#include <qkv_vision.h>
#include <stdlib.h>
#include <string.h>
static int taken;
static void *take(void *user, size_t alignment, size_t n)
{
    (void)user;
    taken++;
    return aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment);
}
static void *grow(void *user, void *p, size_t n) { return (void)user, realloc(p, n); }
static void release(void *user, void *p) { (void)user, free(p); }
int fail(void) { return 1; }
int within(void) { return 2; }
int main(int argc, char **argv)
{
    qkv_error e;
    const qkv_allocator own = {sizeof own, take, grow, release, NULL};
    if (qkv_set_allocator(&own, &e)) return 1;
    qkv_model *m = qkv_model_load(argv[1], NULL, &e);
    qkv_model_free(m);
    const uint8_t pixel[3] = {1, 2, 3};
    int before = taken;
    qkv_picture *p = qkv_picture_create(pixel, 1, 1, 3, &e);
    int ok = m && before && p && taken > before && qkv_picture_rgb(p)[2] == 3;
    qkv_picture_free(p);
    ok = ok && !qkv_model_load("nowhere.pt2", NULL, &e) && strstr(e.message, "nowhere.pt2");
    ok = ok && !qkv_picture_create(pixel, 1, 1, 2, &e) && e.code == QKV_USAGE && strstr(e.message, "2 channels");
    return ok && argc == 2 && fail() == 1 && within() == 2 ? 0 : 1;
}
END
names_static() {
  gcc -std=c17 -Wall -Wextra -Werror "$dir/names.c" $(pc --cflags) "$(libdir)/libqkv_vision.a" "$(libdir)/libqkv.a" $(system_libs qkv_vision) $(system_libs qkv) -o "$dir/names" &&
    ! readelf -d "$dir/names" | grep 'NEEDED.*libqkv' && "$dir/names" tests/models/small/mha_self.pt2
}
names_shared() {
  gcc -std=c17 "$dir/names.c" $(pc_of --cflags --libs qkv_vision) -o "$dir/names" && LD_LIBRARY_PATH="$(libdir)" "$dir/names" tests/models/small/mha_self.pt2
}
apart() { ! readelf -d "$(libdir)/libqkv.so" | grep -E 'NEEDED.*lib(png|jpeg|utf8proc|pcre)'; }
own_threads() {
  ! readelf -d "$(libdir)/libqkv.so" | grep -E 'NEEDED.*lib(gomp|omp|iomp)' &&
    ! pc --libs --static | grep -e openmp -e gomp
}
found() { # NAME TARGET SOURCE: a project of its own that finds the package
  mkdir -p "$dir/cmake-$1" && cp "$3" "$dir/cmake-$1/embed.c"
  printf 'cmake_minimum_required(VERSION 3.18)\nproject(x C)\nfind_package(qkv 0.1 REQUIRED)\nadd_executable(embed embed.c)\ntarget_link_libraries(embed %s)\n' "$2" >"$dir/cmake-$1/CMakeLists.txt"
  cmake -S "$dir/cmake-$1" -B "$dir/cmake-$1/build" -DCMAKE_PREFIX_PATH="$dir/opt/qkv" && cmake --build "$dir/cmake-$1/build" &&
    "$dir/cmake-$1/build/embed" tests/models/small/mha_self.pt2
}
dependent() { readelf -d "$1" | grep -q 'NEEDED.*libqkv'; }
# One file that needs no library.
lone() {
  gcc -O2 -static examples/embed.c $(pc --cflags) -Wl,--gc-sections -Wl,--start-group "$(libdir)/libqkv.a" $(system_libs qkv) -Wl,--end-group -s -o "$dir/lone" &&
    ! readelf -d "$dir/lone" | grep NEEDED && "$dir/lone" tests/models/small/mha_self.pt2 &&
    [ "$(wc -c <"$dir/lone")" -lt 6000000 ] # kernels of seven ISA levels; one built for size: docs/PLATFORMS.md
}
# Writers and gradients, which embed.c does not use, are left out of it: sections of one name stay apart in the archive.
left_out() {
  gcc -O2 examples/embed.c $(pc --cflags) -Wl,--gc-sections "$(libdir)/libqkv.a" $(system_libs qkv) -o "$dir/less" &&
    nm "$dir/less" >"$dir/names.txt" && grep -q ' session_run$' "$dir/names.txt" &&
    ! grep -E ' (graph_joint|grad_attention|onnx_write|pt2_save|qkv_check|trainer_step)$' "$dir/names.txt"
}
removed() { make uninstall PREFIX=/opt/qkv DESTDIR="$dir" && [ -z "$(find "$dir/opt" ! -type d)" ]; }
ok "make install, whatever was configured before" installed
ok "embed.c builds against the shared library" shared
ok "and runs" env LD_LIBRARY_PATH="$(libdir)" "$dir/shared" tests/models/small/mha_self.pt2
ok "embed.c builds against the static library" static
ok "and runs" "$dir/static" tests/models/small/mha_self.pt2
command -v g++ >/dev/null && ok "the header is C++ too" cplusplus
command -v g++ >/dev/null && ok "embed.cpp builds against the installed qkv.hpp, and runs" wrapper
for name in libqkv libqkv_vision; do
  ok "$name.so exports qkv_* alone" exports $name.so
  ok "$name.a has qkv_* alone as global names" global $name.a
done
ok "libqkv needs no library for pictures or texts" apart
ok "a program with a function called fail links both archives" names_static
ok "and both shared libraries" names_shared
ok "threads need no OpenMP runtime" own_threads
if command -v cmake >/dev/null; then
  ok "find_package: the shared library" found shared qkv::qkv examples/embed.c
  ok "which the program needs" dependent "$dir/cmake-shared/build/embed"
  ok "find_package: the static library" found static qkv::static examples/embed.c
  ok "which the program has in itself" eval '! dependent "$dir/cmake-static/build/embed"'
  ok "find_package: libqkv_vision, shared" found vision qkv::vision "$dir/names.c"
  ok "find_package: libqkv_vision, static" found vision-static qkv::vision_static "$dir/names.c"
fi
ok "pkg-config says nothing of oneDNN" eval '! pc --libs --static | grep -q dnnl'
ok "a program without any library" lone
ok "a program is linked without what it does not use" left_out
ok "make uninstall takes everything away" removed
echo "1..$n"
exit $failed
