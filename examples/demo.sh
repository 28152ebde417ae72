#!/bin/sh
# make demo: images of handwritten digits, from the part of scikit-learn's data that the model was not trained on.
set -eu
cd "$(dirname "$0")/.."
build/qkv inspect demo/digits_vit.pt2
echo
build/qkv classify demo/digits_vit.pt2 demo/digits/*.png --labels demo/labels.txt
