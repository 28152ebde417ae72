#!/bin/sh
# A program with a folder of its own as the last argument.   scratch.sh PROGRAM ARGUMENT...
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$@" "$dir"
