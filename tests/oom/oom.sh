#!/bin/sh
# oom.sh RUN_OOM MODELS: the test with a folder of its own to write to.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$1" "$2" "$folder"
