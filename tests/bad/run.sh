#!/bin/sh
# test_bad on freshly edited files.   run.sh TEST_BAD SMALL_FOLDER
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 "$(dirname "$0")/edits.py" "$2" "$dir"
mkdir "$dir/onnx"
python3 "$(dirname "$0")/onnx_edits.py" "$dir/onnx"
"$1" "$2" "$dir"
