#!/usr/bin/env python3
"""A text encoder on Ray Serve: two replicas of `qkv serve`, on as many machines as the cluster has.

    pip install "ray[serve]"
    PYTHONPATH=python QKV=build/qkv python examples/ray_serve.py minilm.pt2      vocab.txt lies beside it
"""
import json
import os
import sys
import urllib.request

from ray import serve

import qkv


def main(model, route="/", port=8000):
    """{text: embedding}"""
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    app = qkv.serve_app(f"encoder={os.path.abspath(model)}", replicas=2, cpus=0.5, options=["--max-delay-ms", "2"])
    serve.run(app, name=route, route_prefix=route)
    texts = ["a cat", "rain falls"]
    body = json.dumps({"model": "encoder", "input": texts}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{route.rstrip('/')}/v1/embeddings", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as r:
        return dict(zip(texts, (one["embedding"] for one in json.load(r)["data"])))


if __name__ == "__main__":
    for text, embedding in main(*sys.argv[1:]).items():
        print(text, embedding[:4], "...")
