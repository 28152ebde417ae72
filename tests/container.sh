#!/usr/bin/env bash
# Builds examples/serve/Containerfile without privileges of a container engine and without a registry, runs what came
# out as its own user, asks it for embeddings and stops it.
#
#   tests/container.sh [MODEL]      a text encoder with vocab.txt beside it (tests/cli/models/words.pt2); needs root,
#                                   debootstrap, buildah and the network for apt; 10 minutes on two busy cores
#
# The base image is Debian as debootstrap makes it, under the name that the file asks for. WORK (build/container) holds
# everything and is removed at the end, unless KEEP is set. TAP.
set -uo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ] || ! command -v debootstrap buildah >/dev/null; then
  echo "container.sh needs root, debootstrap and buildah" >&2
  exit 2
fi
work=${WORK:-build/container} model=$(realpath "${1:-tests/cli/models/words.pt2}") n=0 status=0 port=18200
rm -rf "$work" && mkdir -p "$work" && work=$(cd "$work" && pwd)
trap '[ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
b=(buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs)
step() { # NAME COMMAND...
  n=$((n + 1))
  if "${@:2}" >>"$work/log" 2>&1; then echo "ok $n - container: $1"; else
    echo "not ok $n - container: $1"
    tail -20 "$work/log" | sed 's/^/# /'
    status=1
  fi
}
base() {
  debootstrap --variant=minbase --include=ca-certificates bookworm "$work/base" &&
    cp -L /etc/resolv.conf "$work/base/etc/" && c=$("${b[@]}" from scratch) && "${b[@]}" copy -q "$c" "$work/base" / &&
    "${b[@]}" commit -q "$c" docker.io/library/debian:12-slim
}
image() {
  git clone -q . "$work/src" && cd "$work/src" &&
    "${b[@]}" build --isolation chroot --pull-never -t qkv-serve -f examples/serve/Containerfile . && cd - >/dev/null
}
answers() {
  c=$("${b[@]}" from --pull-never localhost/qkv-serve) || return 1
  "${b[@]}" run --isolation chroot --user 65534 --volume "$(dirname "$model"):/models:ro" "$c" -- \
    qkv serve --http 127.0.0.1:$port "encoder=/models/$(basename "$model")" 2>"$work/server" &
  for _ in $(seq 100); do curl -sf http://127.0.0.1:$port/v2/health/ready && break; sleep 0.2; done
  curl -sf http://127.0.0.1:$port/v1/embeddings -d '{"model": "encoder", "input": "a cat"}' |
    grep -q '"embedding"' || return 1
  server=$(pgrep -f "qkv serve --http 127.0.0.1:$port encoder=" | tail -1)
  [ "$(stat -c %u "/proc/$server")" = 65534 ] && kill -TERM "$server" && wait && grep stopping "$work/server"
}
step "base image" base
step "image of the file" image
step "answers as its own user, and stops" answers
echo "1..$n"
exit $status
