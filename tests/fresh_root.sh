#!/usr/bin/env bash
# A machine on which nothing is installed: debootstraps Debian into a folder, clones this repository into it, and runs
# make demo there; in another such folder make check, and what only then can be tried.
#
#   tests/fresh_root.sh [RELEASE ...]      bookworm trixie; needs root, debootstrap and the network; 15 minutes a
#                                          release on two cores
#
# ROOTS (build/roots) holds a log for each release; the roots themselves are made each time and removed at the end,
# unless KEEP is set. MIRROR is where Debian comes from (http://deb.debian.org/debian). What this machine's pip is
# configured for is copied, and folders that it reads packages from (PIP_FOLDERS) are lent. COMPILERS ("clang gcc-13")
# are Debian's packages of others to build with. The last line of each release's output says what was measured; the exit
# code says whether all passed. TAP.
set -uo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null || { echo "fresh_root.sh needs root and debootstrap" >&2; exit 2; }
roots=${ROOTS:-build/roots} mirror=${MIRROR:-http://deb.debian.org/debian} status=0 n=0
releases=("${@:-bookworm}")
[ $# -gt 0 ] || releases=(bookworm trixie)
mkdir -p "$roots"
roots=$(cd "$roots" && pwd)
mounted=()
unmount() {
  for m in "${mounted[@]}"; do umount -l "$m"; done
  mounted=()
}
trap unmount EXIT
bind() { # FOLDER ROOT
  mkdir -p "$2$1" && mount --bind "$1" "$2$1" && mounted=("$2$1" "${mounted[@]}")
}
within() { chroot "$root" env -i HOME=/root LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -o pipefail -c "cd /root/qkv && $1"; }
step() { # NAME COMMAND: in the root
  local t=$SECONDS
  n=$((n + 1))
  if within "$2" >>"$log" 2>&1 </dev/null; then echo "ok $n - $release: $1 ($((SECONDS - t)) s)"; else
    echo "not ok $n - $release: $1, see $log"
    status=1
  fi
}
lend() { for folder in /proc /dev ${PIP_FOLDERS:-}; do bind "$folder" "$root"; done; }
for release in "${releases[@]}"; do
  root=$roots/$release log=$roots/$release.log
  rm -rf "$root" "$root-demo" && : >"$log"
  debootstrap --variant=minbase --include=git,make,ca-certificates "$release" "$root" "$mirror" >>"$log" 2>&1 || { echo "Bail out! debootstrap failed, see $log"; exit 1; }
  for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /root/.config/pip/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -e "$file" ] || { mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"; }
  done
  git clone -q . "$root/root/qkv" && cp -a "$root" "$root-demo" || exit 1
  root=$root-demo
  lend
  step "make demo, alone" "make demo"
  unmount
  [ -n "${KEEP:-}" ] || rm -rf "$root"
  root=${root%-demo}
  lend
  step "make check, alone" "make check"
  step "make deb, installed" "make deb && dpkg -i dist/qkv_*.deb && cd / && qkv inspect /root/qkv/demo/digits_vit.pt2"
  for cc in ${COMPILERS:-}; do
    step "make with $cc" "apt-get install -y -qq --no-install-recommends $cc && CC=$cc meson setup build-$cc &&
      ninja -C build-$cc product && build-$cc/cli/qkv run demo/digits_vit.pt2"
  done
  n=$((n + 1))
  if ! grep -a warning: "$log"; then echo "ok $n - $release: the compiler warns of nothing"; else
    echo "not ok $n - $release: the compiler's warnings, above"
    status=1
  fi
  within "gcc --version | head -1; python3 --version; ls -l build/libqkv.so.\$(cat VERSION)" 2>/dev/null | sed 's/^/# /'
  grep -aE '^[0-9]+ passed, [0-9]+ failed$' "$log" | sed 's/^/# make check: /'
  unmount
  [ -n "${KEEP:-}" ] || rm -rf "$root"
done
echo "1..$n"
exit $status
