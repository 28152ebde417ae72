#!/bin/sh
# oom.sh RUN_OOM SMALL CLI [SCENARIO]: the test with a folder of its own to write to.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
exe=$1 small=$2 cli=$3
shift 3
"$exe" "$small" "$cli" "$folder" "$@"
