#!/bin/sh
# run_pack with a folder of its own.   pack.sh RUN_PACK SMALL_FOLDER
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$1" "$2" "$dir"
