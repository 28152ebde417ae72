"""Meta's own module of SAM 3 as a function of images and prompts, for --module.

    module = OwnGrounding(build_sam3_image_model(load_from_HF=False, device="cpu"), boxes=False)

The same inputs and outputs as the recipe's module with the contract "meta" (_sam3_module.py): row b * P + p is image b
with prompt p.
"""
import gzip
import importlib
import inspect
import os
import tempfile
import types

import torch
from torch import nn

from .._lib import Error
from ._clip_merges import CLIP_COUNT, clip_merges
from ._sam3_meta import TRACKER_NECK, read
from ._sam3_module import OUTPUTS

PARTS = ("backbone", "transformer", "geometry_encoder", "forward_grounding")


def randomize(model):
    """Random weights with which every part moves the outputs, also where Meta's code leaves them uninitialised."""
    with torch.no_grad():
        for p in model.parameters():
            gain = 1.0 if p.dim() == 1 and p.mean() > 0.5 else 0.0
            p.copy_(torch.randn_like(p) * (p[0].numel() ** -0.5 if p.dim() in (2, 4) else 0.1) + gain)


def load(model, path):
    """Meta's own loader says nothing about a file that has none of the names."""
    found = model.load_state_dict(read(path), strict=False)
    unknown = [n for n in found.unexpected_keys if not n.startswith(TRACKER_NECK)]
    lists = {"of the module's tensors are not in it": found.missing_keys, "of its names are not known": unknown}
    wrong = [f"{len(names)} {what}: {', '.join(names)}" for what, names in lists.items() if names]
    if wrong:
        raise Error(f"{path}: {'; '.join(wrong)}", 2)


def _made(make, options):
    """What the function makes. PyPI's sam3 has no vocabulary for its tokenizer, which is not exported: CLIP's."""
    takes = inspect.signature(make).parameters
    options = {name: value for name, value in options.items() if name in takes}
    try:
        return make(**options)
    except FileNotFoundError as e:
        if "bpe_path" not in takes or not str(e.filename).endswith(".txt.gz"):
            raise
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bpe.txt.gz")
        with gzip.open(path, "wt", encoding="utf-8") as f:
            f.write("\n".join(["", *clip_merges(CLIP_COUNT), ""]))
        return make(**options, bpe_path=path)


def build(spec, checkpoint=None):
    """The module that "package.module:function" makes, on the CPU, with a checkpoint of Meta's or random weights."""
    name, _, function = spec.partition(":")
    if not function:
        raise Error(f"--module '{spec}': expected package.module:function, as "
                    "sam3.model_builder:build_sam3_image_model", 2)
    try:
        make = getattr(importlib.import_module(name), function)
    except (ImportError, AttributeError) as e:
        raise Error(f"--module '{spec}': {e}", 2) from None
    model = _made(make, dict(device="cpu", eval_mode=True, load_from_HF=False))
    missing = [p for p in PARTS if not hasattr(model, p)]
    if missing or not isinstance(model, nn.Module):
        raise Error(f"--module '{spec}': a {type(model).__name__} without {', '.join(missing) or 'parameters'}: "
                    "expected Meta's Sam3Image", 2)
    if checkpoint:
        load(model, checkpoint)
    else:
        randomize(model)
    return model.eval()


class OwnGrounding(nn.Module):
    contract, dynamic, autocast = "meta", False, None

    def __init__(self, model, boxes, image_size=1008):
        super().__init__()
        self.model, self.boxes = model, boxes
        text = model.backbone.language_backbone
        model.config = types.SimpleNamespace(  # what the recipe asks of transformers' model
            vision_config=types.SimpleNamespace(image_size=image_size),
            text_config=types.SimpleNamespace(vocab_size=text.encoder.token_embedding.num_embeddings,
                                              max_position_embeddings=text.context_length))

    def forward(self, patch_batch, token_ids, boxes=None, box_labels=None):
        model, B, P = self.model, patch_batch.shape[0], token_ids.shape[0]
        out = {"img_batch_all_stages": patch_batch, **model.backbone.forward_image(patch_batch)}
        decoder = model.transformer.decoder
        decoder.qkv_feature_size = tuple(out["backbone_fpn"][-1].shape[-2:])
        text = model.backbone.language_backbone
        memory = text.resizer(text.encoder(token_ids)[1].transpose(0, 1))
        out.update(language_features=memory, language_mask=token_ids == 0)
        images = torch.arange(B, device=patch_batch.device)[:, None].expand(B, P).flatten()
        prompts = torch.arange(P, device=patch_batch.device)[None].expand(B, P).flatten()
        find = types.SimpleNamespace(img_ids=images, text_ids=prompts)
        found = model.forward_grounding(out, find, None, self._prompt(B * P, boxes, box_labels, patch_batch))
        return tuple(found[name] for name in OUTPUTS)

    def _prompt(self, rows, boxes, labels, like):
        """Meta's Prompt: boxes (N, rows, 4) and their labels; what is padded has the label -10."""
        kind = importlib.import_module(type(self.model.geometry_encoder).__module__).Prompt
        if not self.boxes:
            return kind(box_embeddings=like.new_zeros(0, rows, 4),
                        box_mask=like.new_zeros(rows, 0, dtype=torch.bool))
        boxes, labels = boxes.flatten(0, 1), labels.flatten(0, 1)
        order = (labels == -10).to(torch.uint8).argsort(dim=1, stable=True)  # Meta's code wants padding on the right
        boxes, labels = boxes.gather(1, order[..., None].expand(-1, -1, 4)), labels.gather(1, order)
        return kind(box_embeddings=boxes.transpose(0, 1).contiguous(), box_mask=labels == -10,
                    box_labels=labels.clamp(min=0).transpose(0, 1).contiguous())
