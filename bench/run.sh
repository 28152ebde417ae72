#!/bin/sh
# make bench: the page of this kind of CPU, bench/results/KIND.md, of qkv beside PyTorch, ONNX Runtime and OpenVINO.
#   make bench                       all rows: hours
#   make bench MINUTES=20            as many as that allows: those that are not there, then busy ones, then the oldest
#   MODELS=vit_b,bert_b_128 THREADS=1 PEERS=torch,torch-bf16,ort,ov,ov-bf16,qkv,qkv-bf16 make bench MINUTES=5
#                                    these models (names and groups of bench/models.py) and peers (bench/peer.py) alone
#   QKV_CPU=avx2 make bench MINUTES=20             all of them held to AVX2: bench/results/KIND-avx2.md
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh bench
exec .venv/bin/python bench/peers.py --page bench/results --models "${MODELS:-models}" --threads "${THREADS:-1,2}" \
  ${PEERS:+--peers "$PEERS"} ${MINUTES:+--minutes "$MINUTES"} --qkv build/qkv
