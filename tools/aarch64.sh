#!/usr/bin/env bash
# Builds for aarch64 with Debian's cross compiler and runs the tests of the library in an emulator: the portable rung on another architecture.
#
#   tools/aarch64.sh [TEST ...]       everything lies in build-aarch64; needs apt and, when a tool is missing, root; 10 minutes on two cores
#   tools/aarch64.sh --fetch          only the tools and the libraries, which tools/wheels.py links
#
# Libraries come from Debian's arm64 packages, unpacked and not installed. Tests that start the command from a shell are left out: they would
# need the kernel to know the emulator.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$PWD/build-aarch64 root=$PWD/build-aarch64/root
say() { echo "aarch64: $*" >&2; }
missing=()
for p in gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc qemu-user:qemu-aarch64 meson:meson ninja-build:ninja; do
  command -v "${p#*:}" >/dev/null || missing+=("${p%%:*}")
done
if [ ${#missing[@]} -gt 0 ]; then
  sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  say "installing ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ ! -d "$root" ]; then
  say "fetching arm64 libraries"
  mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial"
  : >"$dir/apt/status"
  apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Dir::State::status="$dir/apt/status" \
      -o Dir::State::lists="$dir/apt/lists" -o Dir::Cache="$dir/apt" -o Debug::NoLocking=true "$@"
  }
  apt update
  apt install -y --download-only --no-install-recommends libc6-dev libminizip-dev zlib1g-dev libjansson-dev libpng-dev \
    libjpeg62-turbo-dev libutf8proc-dev libpcre2-dev libcmocka-dev >/dev/null
  mkdir -p "$root.part"
  for p in "$dir"/apt/archives/*.deb; do dpkg -x "$p" "$root.part"; done
  find "$root.part" -type l -lname '/*' -printf '%p %l\n' | while read -r link to; do ln -sfn "$root$to" "$link"; done
  mv "$root.part" "$root"
fi
[ "${1:-}" != --fetch ] || exit 0
cat >"$dir/cross.ini" <<END
[binaries]
c = ['aarch64-linux-gnu-gcc', '--sysroot=$root']
ar = 'aarch64-linux-gnu-ar'
objcopy = 'aarch64-linux-gnu-objcopy'
strip = 'aarch64-linux-gnu-strip'
pkg-config = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '$root']
[properties]
sys_root = '$root'
pkg_config_libdir = '$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
[ -f "$dir/build/build.ninja" ] || meson setup "$dir/build" --cross-file "$dir/cross.ini" --werror >"$dir/setup.log" || { cat "$dir/setup.log" >&2; exit 1; }
tests=("$@")
[ ${#tests[@]} -gt 0 ] || mapfile -t tests < <(meson test -C "$dir/build" --list 2>/dev/null | sed 's/.* //' |
  grep -vE '^(qkv:)?(cli|bad|models_pack)$')
meson test -C "$dir/build" -t 30 "${tests[@]}" # and builds what they need
