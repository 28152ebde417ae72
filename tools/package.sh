#!/usr/bin/env bash
# What build/ would install, under the prefix that it is configured for.
#   tools/package.sh uninstall [DESTDIR]   takes those files away, and folders that are empty then and named for qkv
#   tools/package.sh deb                   dist/qkv_VERSION_ARCH.deb; what it depends on is asked of dpkg
set -euo pipefail
cd "$(dirname "$0")/.."
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
DESTDIR="$stage" meson install -C build --no-rebuild --quiet

case "${1:-}" in
  uninstall)
    dest=${2:-}
    (cd "$stage" && find . ! -type d) | while read -r file; do
      rm -fv "$dest/${file#./}"
    done
    (cd "$stage" && find . -depth -type d -name qkv) | while read -r folder; do
      [ ! -d "$dest/${folder#./}" ] || rmdir --ignore-fail-on-non-empty "$dest/${folder#./}"
    done ;;
  deb)
    version=$(meson introspect build --projectinfo | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
    arch=$(dpkg --print-architecture)
    mapfile -t libraries < <(find "$stage" -name 'libqkv*.so.*' -type f)
    needs=$(for so in $(objdump -p "${libraries[@]}" "$stage/usr/bin/qkv" | awk '$1 == "NEEDED" && $2 !~ /^libqkv/ {print $2}' | sort -u); do
      path=$(ldconfig -p | awk -v so="$so" '$1 == so {print $NF; exit}')
      path=$(readlink -f "$path")
      { dpkg -S "$path" || dpkg -S "${path#/usr}"; } 2>/dev/null | cut -d: -f1 # packages older than the merge of /lib and /usr/lib
    done | sort -u | paste -sd, | sed 's/,/, /g')
    mkdir -p "$stage/DEBIAN" "$stage/usr/share/doc/qkv" dist
    cp LICENSE "$stage/usr/share/doc/qkv/copyright"
    gzip -9n "$stage"/usr/share/man/man1/*.1
    strip --strip-unneeded "${libraries[@]}" "$stage/usr/bin/qkv" "$stage/usr/bin/qkv-certify"
    cat >"$stage/DEBIAN/control" <<END
Package: qkv
Version: $version
Architecture: $arch
Maintainer: the authors of qkv <qkv@localhost>
Depends: $needs
Installed-Size: $(du -sk "$stage/usr" | cut -f1)
Section: science
Priority: optional
Description: PyTorch attention models, out of Python
 A library and a command that run, check, rewrite, convert and train what torch.export wrote, without Python.
END
    printf 'activate-noawait ldconfig\n' >"$stage/DEBIAN/triggers"
    dpkg-deb --root-owner-group --build "$stage" "dist/qkv_${version}_$arch.deb" ;;
  *) sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
