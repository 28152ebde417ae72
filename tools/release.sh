#!/usr/bin/env bash
# A release of what is committed: in a clone below build-release/ the version and the changelog change and everything is
# built; what came of it is copied into dist/, and then the commit and its tag are brought here. Nothing is pushed.
#
#   tools/release.sh 0.2.0            tag v0.2.0, and in dist/: wheels, deb, source archive, SBOM, SHA256SUMS, and
#                                     abidiff.txt: the interface against the last tag's
#   tools/release.sh --try 0.2.0      the same without a tag, and the commit stays in the clone
#
# WHEELS are the targets of tools/wheels.py: "linux-x86_64 linux-aarch64".
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD clone=$PWD/build-release/qkv
die() { echo "release: $*" >&2; exit 1; }
keep=1
[ "${1:-}" != --try ] || { keep=; shift; }
version=${1:-} old=$(cat VERSION)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "found version '$version', expected one as in VERSION=0.2.0"
newer=$(printf '%s\n' "$old" "$version" | sort -V | tail -1)
[ "$version" != "$old" ] && [ "$newer" = "$version" ] || die "found version $version, expected one after $old"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || die "v$version is tagged already"
[ -z "$(git status --porcelain)" ] || die "there are changes that are not committed: git status"

rm -rf build-release
git clone -q . "$clone"
cd "$clone"
echo "$version" >VERSION
sed -i "s/qkv ${old//./\\.}/qkv $version/" man/*.1 tests/cli/help.t
python3 tools/changelog.py "$version"
git commit -qa -F - <<END
Release $version

CHANGELOG.md says what it changes.
END
mkdir -p build-wheel dist
[ ! -d "$here/build-wheel/venv" ] || ln -s "$here/build-wheel/venv" build-wheel/venv
make --no-print-directory deb
said=$(build/qkv --version)
[[ $said == "qkv $version "* ]] || die "the command says '$said', expected version $version"
tools/setup.sh release
targets=${WHEELS:-linux-x86_64 linux-aarch64}
[[ $targets != *aarch64* ]] || tools/aarch64.sh --fetch
tools/wheels.py $targets
build-wheel/venv/bin/python -c 'import mesonpy; mesonpy.build_sdist("dist")'
unzip -p "dist/qkv-$version-py3-none-manylinux_2_28_x86_64.whl" '*.cdx.json' >"dist/qkv-$version.cdx.json"
tools/abi.sh >dist/abidiff.txt 2>&1 ||
  echo "release: programs built for the last tag may not run, or nothing was compared: dist/abidiff.txt" >&2
(cd dist && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS)
mkdir -p "$here/dist"
cp dist/* "$here/dist"
[ -n "$keep" ] || exit 0
git -C "$here" pull -q --ff-only "$clone" HEAD
git -C "$here" tag -a "v$version" -m "qkv $version"
echo "v$version is tagged; dist/ holds what belongs to it. To publish: git push --follow-tags" >&2
