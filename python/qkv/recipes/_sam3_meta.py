"""Meta's own checkpoint of SAM 3 (sam3.pt), with the names of facebookresearch/sam3, as weights of transformers'
Sam3Model.

    weights = converted(read("sam3.pt"), model.state_dict())

Meta's file has the detector ("detector.*") and the tracker of the video model ("tracker.*"), which is left out. Packed
projections of attention (in_proj, qkv) are cut into three. What Meta computes when a model is made (freqs_cis) and what
the recipe has no input for (points) is known and not used; any other name that does not fit is listed.
"""
import re
import zipfile

import torch

from .._lib import Error

DETECTOR, TRACKER, TRACKER_NECK = "detector.", "tracker.", "backbone.vision_backbone.sam2_convs."
UNUSED = re.compile(rf".*\.freqs_cis$|geometry_encoder\.points_\w+\.(weight|bias)$|{re.escape(TRACKER_NECK)}")

# (Meta's name, the model's), tried in order; groups are put where \1 stands. A name in braces adds to a number.
NAMES = [(re.compile(pattern + "$"), name) for pattern, name in (
    (r"backbone\.vision_backbone\.trunk\.patch_embed\.proj\.(\w+)",
     r"vision_encoder.backbone.embeddings.patch_embeddings.projection.\1"),
    (r"backbone\.vision_backbone\.trunk\.ln_pre\.(\w+)", r"vision_encoder.backbone.layer_norm.\1"),
    (r"backbone\.vision_backbone\.trunk\.blocks\.(\d+)\.norm([12])\.(\w+)",
     r"vision_encoder.backbone.layers.\1.layer_norm\2.\3"),
    (r"backbone\.vision_backbone\.trunk\.blocks\.(\d+)\.attn\.proj\.(\w+)",
     r"vision_encoder.backbone.layers.\1.attention.o_proj.\2"),
    (r"backbone\.vision_backbone\.trunk\.blocks\.(\d+)\.mlp\.(fc[12]\.\w+)",
     r"vision_encoder.backbone.layers.\1.mlp.\2"),
    (r"backbone\.vision_backbone\.convs\.(\d+)\.dconv_2x2(?:_0)?\.(\w+)",
     r"vision_encoder.neck.fpn_layers.\1.scale_layers.0.\2"),
    (r"backbone\.vision_backbone\.convs\.(\d+)\.dconv_2x2_1\.(\w+)",
     r"vision_encoder.neck.fpn_layers.\1.scale_layers.2.\2"),
    (r"backbone\.vision_backbone\.convs\.(\d+)\.conv_1x1\.(\w+)", r"vision_encoder.neck.fpn_layers.\1.proj1.\2"),
    (r"backbone\.vision_backbone\.convs\.(\d+)\.conv_3x3\.(\w+)", r"vision_encoder.neck.fpn_layers.\1.proj2.\2"),
    (r"backbone\.language_backbone\.encoder\.positional_embedding",
     r"text_encoder.text_model.embeddings.position_embedding.weight"),
    (r"backbone\.language_backbone\.encoder\.token_embedding\.weight",
     r"text_encoder.text_model.embeddings.token_embedding.weight"),
    (r"backbone\.language_backbone\.encoder\.ln_final\.(\w+)", r"text_encoder.text_model.final_layer_norm.\1"),
    (r"backbone\.language_backbone\.encoder\.transformer\.resblocks\.(\d+)\.ln_([12])\.(\w+)",
     r"text_encoder.text_model.encoder.layers.\1.layer_norm\2.\3"),
    (r"backbone\.language_backbone\.encoder\.transformer\.resblocks\.(\d+)\.mlp\.c_fc\.(\w+)",
     r"text_encoder.text_model.encoder.layers.\1.mlp.fc1.\2"),
    (r"backbone\.language_backbone\.encoder\.transformer\.resblocks\.(\d+)\.mlp\.c_proj\.(\w+)",
     r"text_encoder.text_model.encoder.layers.\1.mlp.fc2.\2"),
    (r"backbone\.language_backbone\.resizer\.(\w+)", r"text_projection.\1"),
    (r"transformer\.encoder\.layers\.(\d+)\.norm([123])\.(\w+)", r"detr_encoder.layers.\1.layer_norm\2.\3"),
    (r"transformer\.encoder\.layers\.(\d+)\.linear([12])\.(\w+)", r"detr_encoder.layers.\1.mlp.fc\2.\3"),
    (r"transformer\.decoder\.layers\.(\d+)\.norm1\.(\w+)", r"detr_decoder.layers.\1.vision_cross_attn_layer_norm.\2"),
    (r"transformer\.decoder\.layers\.(\d+)\.catext_norm\.(\w+)",
     r"detr_decoder.layers.\1.text_cross_attn_layer_norm.\2"),
    (r"transformer\.decoder\.layers\.(\d+)\.norm2\.(\w+)", r"detr_decoder.layers.\1.self_attn_layer_norm.\2"),
    (r"transformer\.decoder\.layers\.(\d+)\.norm3\.(\w+)", r"detr_decoder.layers.\1.mlp_layer_norm.\2"),
    (r"transformer\.decoder\.layers\.(\d+)\.linear([12])\.(\w+)", r"detr_decoder.layers.\1.mlp.fc\2.\3"),
    (r"transformer\.decoder\.norm\.(\w+)", r"detr_decoder.output_layer_norm.\1"),
    (r"transformer\.decoder\.(query_embed|reference_points|presence_token)\.weight", r"detr_decoder.\1.weight"),
    (r"transformer\.decoder\.presence_token_out_norm\.(\w+)", r"detr_decoder.presence_layer_norm.\1"),
    (r"transformer\.decoder\.presence_token_head\.layers\.(\d+)\.(\w+)", r"detr_decoder.presence_head.layer{\1}.\2"),
    (r"transformer\.decoder\.bbox_embed\.layers\.(\d+)\.(\w+)", r"detr_decoder.box_head.layer{\1}.\2"),
    (r"transformer\.decoder\.ref_point_head\.layers\.(\d+)\.(\w+)", r"detr_decoder.ref_point_head.layer{\1}.\2"),
    (r"transformer\.decoder\.boxRPB_embed_([xy])\.layers\.(\d+)\.(\w+)", r"detr_decoder.box_rpb_embed_\1.layer{\2}.\3"),
    (r"geometry_encoder\.encode\.(\d+)\.norm([123])\.(\w+)", r"geometry_encoder.layers.\1.layer_norm\2.\3"),
    (r"geometry_encoder\.encode\.(\d+)\.linear([12])\.(\w+)", r"geometry_encoder.layers.\1.mlp.fc\2.\3"),
    (r"geometry_encoder\.encode_norm\.(\w+)", r"geometry_encoder.output_layer_norm.\1"),
    (r"geometry_encoder\.norm\.(\w+)", r"geometry_encoder.prompt_layer_norm.\1"),
    (r"geometry_encoder\.img_pre_norm\.(\w+)", r"geometry_encoder.vision_layer_norm.\1"),
    (r"geometry_encoder\.((?:label_embed|cls_embed|final_proj|boxes_\w+)\.\w+)", r"geometry_encoder.\1"),
    (r"segmentation_head\.pixel_decoder\.((?:conv_layers|norms)\.\d+\.\w+)", r"mask_decoder.pixel_decoder.\1"),
    (r"segmentation_head\.mask_predictor\.mask_embed\.(layers\.\d+\.\w+)", r"mask_decoder.mask_embedder.\1"),
    (r"segmentation_head\.cross_attn_norm\.(\w+)", r"mask_decoder.prompt_cross_attn_norm.\1"),
    (r"segmentation_head\.semantic_seg_head\.(\w+)", r"mask_decoder.semantic_projection.\1"),
    (r"segmentation_head\.instance_seg_head\.(\w+)", r"mask_decoder.instance_projection.\1"),
    (r"dot_prod_scoring\.prompt_mlp\.layers\.(\d+)\.(\w+)", r"dot_product_scoring.text_mlp.layer{\1}.\2"),
    (r"dot_prod_scoring\.prompt_mlp\.out_norm\.(\w+)", r"dot_product_scoring.text_mlp_out_norm.\1"),
    (r"dot_prod_scoring\.prompt_proj\.(\w+)", r"dot_product_scoring.text_proj.\1"),
    (r"dot_prod_scoring\.hs_proj\.(\w+)", r"dot_product_scoring.query_proj.\1"),
)]
# Modules with packed projections: Meta's, the model's, and what the model calls the projection of the result.
PACKED = [(re.compile(pattern + "$"), name, out) for pattern, name, out in (
    (r"backbone\.language_backbone\.encoder\.transformer\.resblocks\.(\d+)\.attn",
     r"text_encoder.text_model.encoder.layers.\1.self_attn", "out_proj"),
    (r"transformer\.encoder\.layers\.(\d+)\.self_attn", r"detr_encoder.layers.\1.self_attn", "o_proj"),
    (r"transformer\.encoder\.layers\.(\d+)\.cross_attn_image", r"detr_encoder.layers.\1.cross_attn", "o_proj"),
    (r"transformer\.decoder\.layers\.(\d+)\.self_attn", r"detr_decoder.layers.\1.self_attn", "o_proj"),
    (r"transformer\.decoder\.layers\.(\d+)\.ca_text", r"detr_decoder.layers.\1.text_cross_attn", "o_proj"),
    (r"transformer\.decoder\.layers\.(\d+)\.cross_attn", r"detr_decoder.layers.\1.vision_cross_attn", "o_proj"),
    (r"geometry_encoder\.encode\.(\d+)\.self_attn", r"geometry_encoder.layers.\1.self_attn", "o_proj"),
    (r"geometry_encoder\.encode\.(\d+)\.cross_attn_image", r"geometry_encoder.layers.\1.cross_attn", "o_proj"),
    (r"segmentation_head\.cross_attend_prompt", r"mask_decoder.prompt_cross_attn", "o_proj"),
)]
VIT = re.compile(r"backbone\.vision_backbone\.trunk\.blocks\.(\d+)\.attn\.qkv\.(weight|bias)$")
POSITIONS = "backbone.vision_backbone.trunk.pos_embed"
TEXT_PROJECTION = "backbone.language_backbone.encoder.text_projection"


def read(path):
    """The tensors of the detector, by Meta's names without the prefix. Nothing but tensors is unpickled."""
    if not zipfile.is_zipfile(path):
        raise Error(f"{path}: expected a folder with config.json and *.safetensors, or a checkpoint that torch.save "
                    "wrote, as Meta's sam3.pt", 2)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as e:
        raise Error(f"{path}: torch.load(weights_only=True) refuses it, and nothing else is tried: "
                    f"{str(e).strip().splitlines()[0]}", 3) from e
    if isinstance(found, dict) and isinstance(found.get("model"), dict):
        found = found["model"]
    if not isinstance(found, dict) or not all(isinstance(t, torch.Tensor) for t in found.values()):
        raise Error(f"{path}: expected a dict of tensors, or one under 'model'", 3)
    if any(name.startswith(DETECTOR) for name in found):
        return {name[len(DETECTOR):]: t for name, t in found.items() if name.startswith(DETECTOR)}
    return {name: t for name, t in found.items() if not name.startswith(TRACKER)}


def _thirds(name, t):
    return {f"{name}.{part}_proj": piece for part, piece in zip("qkv", t.chunk(3))}


def _packed(name, t):
    module, _, end = name.rpartition(".in_proj_")
    kind = end if module else name.rpartition(".")[2]
    module = module or name.removesuffix(f".out_proj.{kind}")
    for pattern, to, out in PACKED:
        if (m := pattern.match(module)):
            if not name.endswith(f".out_proj.{kind}"):
                return {f"{key}.{kind}": piece for key, piece in _thirds(m.expand(to), t).items()}
            return {f"{m.expand(to)}.{out}.{kind}": t}
    return {}


def renamed(name, t):
    """What a tensor of Meta's is in the model, {name: tensor}; {}: it is not known."""
    if name == POSITIONS:
        return {"vision_encoder.backbone.embeddings.position_embeddings": t[:, 1:]}  # the first is of a class token
    if name == TEXT_PROJECTION:
        return {"text_encoder.text_projection.weight": t.T}
    if (m := VIT.match(name)):
        to = f"vision_encoder.backbone.layers.{m[1]}.attention"
        return {f"{key}.{m[2]}": piece for key, piece in _thirds(to, t).items()}
    for pattern, to in NAMES:
        if (m := pattern.match(name)):
            return {re.sub(r"\{(\d+)\}", lambda n: str(int(n[1]) + 1), m.expand(to)): t}
    return _packed(name, t)


def converted(tensors, expected, path="checkpoint"):
    """The model's state dict. expected: {name: tensor} of the model, of whose shapes the tensors must be. Names that
    are missing or that nothing takes, and shapes that differ, are an Error that lists all of them."""
    made, extra = {}, []
    for name, t in tensors.items():
        new = renamed(name, t)
        if not new and not UNUSED.match(name) or any(n not in expected for n in new):
            extra.append(name)
        made.update((n, x) for n, x in new.items() if n in expected)
    missing = sorted(set(expected) - set(made))
    shapes = [f"{n} {list(made[n].shape)}, expected {list(expected[n].shape)}" for n in sorted(made)
              if made[n].shape != expected[n].shape]
    wrong = [f"{len(names)} {what}: {', '.join(names)}" for what, names in (
        ("of the model's tensors are not in it", missing), ("of its names are not known", extra),
        ("have other shapes", shapes)) if names]
    if wrong:
        raise Error(f"{path}: {'; '.join(wrong)}", 2)
    return {n: t.float().contiguous() for n, t in made.items()}
