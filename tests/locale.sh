#!/bin/sh
# Makes de_DE.UTF-8, a locale with a decimal comma, without being root, and prints the folder for LOCPATH.
#   tests/locale.sh FOLDER        exit code 1 where localedef or its sources (Debian's package "locales") are missing
mkdir -p "$1" && { [ -d "$1/de_DE.UTF-8" ] || localedef -i de_DE -f UTF-8 "$1/de_DE.UTF-8"; } >&2 && cd "$1" && pwd
