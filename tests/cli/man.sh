#!/bin/sh
# Writes the man pages from the command's own help.   tests/cli/man.sh build/qkv
[ -x "$1" ] || { echo "usage: tests/cli/man.sh build/qkv" >&2; exit 2; }
cd "$(dirname "$0")/../../man" || exit 1
case $1 in /*) qkv=$1 ;; *) qkv=$OLDPWD/$1 ;; esac
"$qkv" help --man >qkv.1
for c in inspect run verify prove bench generate embed classify segment rewrite graph generalize check convert extract \
  joint train quantize pack backends report compare serve help; do "$qkv" help $c --man >qkv-$c.1; done
