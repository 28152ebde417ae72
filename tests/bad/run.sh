#!/bin/sh
# test_bad on freshly edited files.   run.sh TEST_BAD SMALL_FOLDER
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 "$(dirname "$0")/edits.py" "$2" "$dir"
"$1" "$2" "$dir"
