#!/bin/sh
# An archive to install: one object whose hidden symbols are local, so that they cannot meet a program's own names.
#
#   tools/archive.sh CC OBJCOPY AR OUTPUT.a INPUT...       inputs are objects and archives, all of which go in
set -eu
cc=$1 objcopy=$2 ar=$3 out=$4
shift 4
object=${out%.a}.o
# --unique: sections of one name stay apart, so that a program can leave out what it does not use (--gc-sections).
$cc -r -nostdlib -Wl,--unique -o "$object" -Wl,--whole-archive "$@" -Wl,--no-whole-archive
"$objcopy" --localize-hidden "$object"
rm -f "$out"
"$ar" rcs "$out" "$object"
rm "$object"
