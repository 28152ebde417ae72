#!/bin/sh
# make bench: qkv beside ONNX Runtime, OpenVINO and PyTorch, interleaved, in one run; the table for bench/RESULTS.md.
#   MODELS=vit_b,bert_b_128 PEERS=torch,ort,ov,qkv THREADS=1 ROUNDS=12 ITERATIONS=2 make bench   (MODELS: names and groups of bench/models.py)
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh torch
missing=$(.venv/bin/python -c "import importlib.util as u; print(*[p for p in ('onnx', 'onnxscript', 'onnxruntime', 'openvino') if u.find_spec(p) is None])")
[ -z "$missing" ] || .venv/bin/pip install -q --disable-pip-version-check -c tools/constraints.txt $missing
exec .venv/bin/python bench/peers.py --models "${MODELS:-vit_b,bert_b_128}" --peers "${PEERS:-torch,torch-bf16,ort,ov,ov-bf16,qkv,qkv-bf16}" \
  --threads "${THREADS:-1}" --rounds "${ROUNDS:-12}" --iterations "${ITERATIONS:-2}" --qkv build/qkv
