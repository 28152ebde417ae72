#!/usr/bin/env python3
"""How far quantized embeddings of all-MiniLM-L6-v2 are from the floats', on sentences of Python's own help.

  minilm.py [--sentences 1000] [--known 128] [--cache DIR] WORDS...
  minilm.py weight_bits=4,weight_method=gptq dynamic=1,asymmetric=1,smooth=0.5,correct=1

Each of WORDS is the options of one Model.quantize. Prints a row each: the mean and the least cosine of sentences
(pooled by their mean), and the rank correlation of the similarities of all pairs. What looks at data gets `known` rows
of 64 tokens of other sentences, without padding.
"""
import argparse, ast, os, re, sys, tempfile

import numpy as np


def sentences(n, known):
    import pydoc_data.topics
    text = " ".join(re.sub(r"\s+", " ", t) for _, t in sorted(pydoc_data.topics.topics.items()))
    all_ = [s for s in re.split(r"(?<=[.]) ", text) if 30 < len(s) < 300]
    test = all_[::max(1, len(all_) // n)][:n]
    rest = [s for s in all_ if s not in set(test)]
    return test, rest[::max(1, len(rest) // (4 * known))]


def exported(path):
    import torch, qkv
    from qkv.recipes import minilm
    spec = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("seq", min=2, max=512)}
    qkv.export(minilm.load(minilm.find_weights()), (torch.randint(1000, 20000, (2, 7)),
                                                    torch.ones(2, 7, dtype=torch.long)),
               dynamic_shapes=(spec, spec), path=path)


def without_padding(tokenizer, sentences, n):
    ids = [i for s in sentences for i in tokenizer(s, add_special_tokens=False)["input_ids"]]
    rows = [[tokenizer.cls_token_id, *ids[i:i + 62], tokenizer.sep_token_id] for i in range(0, len(ids) - 61, 62)][:n]
    return {"input_ids": np.array(rows), "attention_mask": np.ones((len(rows), 64), np.int64)}


def embeddings(model, tokens):
    out = []
    for i in range(0, len(tokens["input_ids"]), 50):
        keep = tokens["attention_mask"][i:i + 50, :, None]
        y = np.asarray(model(tokens["input_ids"][i:i + 50], tokens["attention_mask"][i:i + 50])[0])
        out.append((y * keep).sum(1) / keep.sum(1))
    y = np.concatenate(out)
    return y / np.linalg.norm(y, axis=1, keepdims=True)


def ranks(x):
    r = np.empty(len(x))
    r[np.argsort(x, kind="stable")] = np.arange(len(x))
    return r


def main():
    import qkv
    from qkv.recipes import minilm
    from transformers import BertTokenizer
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--sentences", type=int, default=1000)
    ap.add_argument("--known", type=int, default=128)
    ap.add_argument("--cache", default=tempfile.gettempdir())
    ap.add_argument("words", nargs="+")
    a = ap.parse_args()
    path = os.path.join(a.cache, "minilm.pt2")
    if not os.path.exists(path):
        exported(path)
    tokenizer = BertTokenizer(os.path.join(minilm.find_weights(), "vocab.txt"), do_lower_case=True)
    test, other = sentences(a.sentences, a.known)
    test = tokenizer(test, padding=True, truncation=True, max_length=64, return_tensors="np")
    known = without_padding(tokenizer, other, a.known)
    model = qkv.Model(path)
    want = embeddings(model, test)
    pairs = np.triu_indices(len(want), 1)
    by = ranks((want @ want.T)[pairs])
    print(f"{len(want)} sentences | mean cosine | least | rank correlation")
    for words in a.words:
        options = {k: int(v) if v.isdigit() else v if v[:1].isalpha() else ast.literal_eval(v)
                   for k, v in (w.split("=", 1) for w in words.split(","))}
        dynamic = options.get("dynamic") or options.get("weight_bits")
        looks = not dynamic or any(options.get(k) for k in ("smooth", "correct", "weight_method", "budget"))
        made = model.quantize({n: known[n] for n in model.inputs} if looks else None, **options)
        got, kept = embeddings(made, test), made.quantize_report.get("budget", {}).get("kept")
        cosine = (got * want).sum(1)
        print(f"{words} | {cosine.mean():.4f} | {cosine.min():.4f} | "
              f"{np.corrcoef(ranks((got @ got.T)[pairs]), by)[0, 1]:.4f}"
              + (f" | {kept} of {len(made.quantize_report['sites'])} layers kept" if kept else ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
