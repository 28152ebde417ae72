"""Meta's own module of SAM 3 as a function of images and prompts, for --module.

    module = OwnGrounding(build_sam3_image_model(load_from_HF=False, device="cpu"), boxes=False)

The same inputs and outputs as the recipe's module with the contract "meta" (_sam3_module.py): row b * P + p is image b
with prompt p.
"""
import importlib
import inspect
import types

import torch
from torch import nn

from .._lib import Error
from ._sam3_module import OUTPUTS

PARTS = ("backbone", "transformer", "geometry_encoder", "forward_grounding")


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
    takes = inspect.signature(make).parameters
    options = dict(device="cpu", eval_mode=True, load_from_HF=False, checkpoint_path=checkpoint)
    model = make(**{k: v for k, v in options.items() if k in takes})
    missing = [p for p in PARTS if not hasattr(model, p)]
    if missing or not isinstance(model, nn.Module):
        raise Error(f"--module '{spec}': a {type(model).__name__} without {', '.join(missing) or 'parameters'}: "
                    "expected Meta's Sam3Image", 2)
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
        return kind(box_embeddings=boxes.transpose(0, 1).contiguous(), box_mask=labels == -10,
                    box_labels=labels.clamp(min=0).transpose(0, 1).contiguous())
