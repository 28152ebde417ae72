"""A package "sam3" in small, for test_sam3_own.py: the parts and the calls of facebookresearch/sam3, and what keeps its
code from exporting, where that stands there."""
# ---- __init__.py
# ---- model/__init__.py
# ---- model/position_encoding.py
import torch
from torch import nn


class PositionEmbeddingSine(nn.Module):
    def __init__(self, feats, precompute_resolution=None):
        super().__init__()
        self.feats, self.cache = feats, {}
        if precompute_resolution is not None:
            tensors = torch.zeros((1, 1, precompute_resolution, precompute_resolution), device="cuda")
            self.forward(tensors)

    def _encode_xy(self, x, y):
        # The positions are expected to be normalized
        assert len(x) == len(y) and x.ndim == y.ndim == 1
        step = torch.arange(1, self.feats // 2 + 1, dtype=torch.float32, device=x.device)
        return (x[:, None] * step).sin(), (y[:, None] * step).cos()

    @torch.no_grad()
    def forward(self, x):
        cache_key = None
        cache_key = (x.shape[-2], x.shape[-1])
        if cache_key in self.cache:
            return self.cache[cache_key][None].repeat(x.shape[0], 1, 1, 1)
        rows = torch.arange(1, x.shape[-2] + 1, dtype=torch.float32, device=x.device)[:, None, None]
        columns = torch.arange(1, x.shape[-1] + 1, dtype=torch.float32, device=x.device)[None, :, None]
        step = 1 / torch.arange(1, self.feats + 1, dtype=torch.float32, device=x.device)
        pos = ((rows * step).sin() + (columns * step).cos()).permute(2, 0, 1)[None].repeat(x.shape[0], 1, 1, 1)
        if cache_key is not None:
            self.cache[cache_key] = pos[0]
        return pos
# ---- model/encoder.py
import torch
from torch import nn


class TransformerEncoderFusion(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attn, self.norm = nn.MultiheadAttention(width, 4), nn.LayerNorm(width)

    def forward(self, src, prompt, prompt_key_padding_mask, feat_sizes=None):
        if feat_sizes is None:
            assert all(
                x.dim == 4 for x in src
            ), "expected list of (bs, c, h, w) tensors"
        x = src[-1]
        y = self.attn(self.norm(x), prompt, prompt, key_padding_mask=prompt_key_padding_mask, need_weights=False)[0]
        sizes = torch.tensor([list(s) for s in feat_sizes], dtype=torch.long, device=x.device)
        return {"memory": x + y, "spatial_shapes": sizes}
# ---- model/decoder.py
import torch
from torch import nn


class TransformerDecoder(nn.Module):
    def __init__(self, width, queries, resolution=None, stride=None):
        super().__init__()
        self.query_embed = nn.Embedding(queries, width)
        self.boxes = nn.Linear(width, 4)
        self.boxRPB_embed_x, self.boxRPB_embed_y = nn.Linear(2, width), nn.Linear(2, width)
        self.boxRPB = "linear"
        self.compilable_cord_cache = None
        self.compilable_stored_size = None
        self.coord_cache = {}
        if resolution is not None and stride is not None:
            size = resolution // stride
            self.compilable_cord_cache = self._get_coords(size, size, device="cuda")
            self.compilable_stored_size = (size, size)

    @staticmethod
    def _get_coords(H, W, device):
        return torch.arange(0, H, device=device) / H, torch.arange(0, W, device=device) / W

    def _get_rpb_matrix(self, reference_boxes, feat_size):
        H, W = feat_size
        boxes_xyxy = reference_boxes.transpose(0, 1)
        bs, num_queries, _ = boxes_xyxy.shape
        if self.compilable_cord_cache is None:
            self.compilable_cord_cache = self._get_coords(H, W, reference_boxes.device)
            self.compilable_stored_size = (H, W)

        if torch.compiler.is_dynamo_compiling() or self.compilable_stored_size == (
            H,
            W,
        ):
            # good, hitting the cache, will be compilable
            coords_h, coords_w = self.compilable_cord_cache
        else:
            # cache miss, will create compilation issue
            # In case we're not compiling, we'll still rely on the dict-based cache
            if feat_size not in self.coord_cache:
                self.coord_cache[feat_size] = self._get_coords(
                    H, W, reference_boxes.device
                )
            coords_h, coords_w = self.coord_cache[feat_size]

            assert coords_h.shape == (H,)
            assert coords_w.shape == (W,)

        deltas_y = coords_h.view(1, -1, 1) - boxes_xyxy.reshape(-1, 1, 4)[:, :, 1:4:2]
        deltas_y = self.boxRPB_embed_y(deltas_y.view(bs, num_queries, -1, 2))
        deltas_x = coords_w.view(1, -1, 1) - boxes_xyxy.reshape(-1, 1, 4)[:, :, 0:3:2]
        deltas_x = self.boxRPB_embed_x(deltas_x.view(bs, num_queries, -1, 2))

        if not torch.compiler.is_dynamo_compiling():
            assert deltas_x.shape[:3] == (bs, num_queries, W)
            assert deltas_y.shape[:3] == (bs, num_queries, H)

        B = deltas_y.unsqueeze(3) + deltas_x.unsqueeze(2)
        if not torch.compiler.is_dynamo_compiling():
            assert B.shape[:4] == (bs, num_queries, H, W)
        B = B.flatten(2, 3).mean(-1)
        if not torch.compiler.is_dynamo_compiling():
            assert B.shape[2:] == (num_queries, H * W)
        return B

    def forward(self, memory, spatial_shapes):
        queries = self.query_embed.weight[:, None].expand(-1, memory.shape[1], -1)
        reference_boxes = self.boxes(queries).sigmoid()
        bias = self._get_rpb_matrix(
                    reference_boxes,
                    (spatial_shapes[0, 0], spatial_shapes[0, 1]),
                )
        scores = queries.transpose(0, 1) @ memory.permute(1, 2, 0) / memory.shape[2] ** 0.5 + bias
        return scores.softmax(-1) @ memory.transpose(0, 1), reference_boxes.transpose(0, 1)
# ---- model/geometry_encoders.py
import torch
from torch import nn


class Prompt:
    def __init__(self, box_embeddings, box_mask, box_labels=None):
        self.box_embeddings, self.box_mask, self.box_labels = box_embeddings, box_mask, box_labels


def is_right_padded(mask):
    return (mask.long() == torch.sort(mask.long(), dim=-1)[0]).all()


def concat_padded_sequences(seq1, mask1, seq2, mask2):
    seq1_length, batch_size, hidden_size = seq1.shape
    seq2_length, batch_size, hidden_size = seq2.shape

    assert batch_size == seq1.size(1) == seq2.size(1) == mask1.size(0) == mask2.size(0)
    assert hidden_size == seq1.size(2) == seq2.size(2)
    assert seq1_length == mask1.size(1)
    assert seq2_length == mask2.size(1)

    torch._assert_async(is_right_padded(mask1))
    torch._assert_async(is_right_padded(mask2))

    return torch.cat([seq1, seq2]), torch.cat([mask1, mask2], 1)


class SequenceGeometryEncoder(nn.Module):
    def __init__(self, width, pos_enc):
        super().__init__()
        self.d_model, self.roi_size, self.pos_enc = width, 3, pos_enc
        self.pool = nn.Conv2d(width, width, 3)
        self.label_embed, self.cls_embed = nn.Embedding(2, width), nn.Embedding(1, width)

    def _encode_boxes(self, boxes, boxes_mask, boxes_labels, img_feats):
        n_boxes, bs = boxes.shape[:2]
        if n_boxes:
            H, W = img_feats.shape[-2:]
            boxes_xyxy = torch.cat([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)
            scale = torch.tensor([W, H, W, H], dtype=boxes_xyxy.dtype)
            scale = scale.pin_memory().to(device=boxes_xyxy.device, non_blocking=True)
            boxes_xyxy = boxes_xyxy * scale.view(1, 1, 4)
            sampled = torchvision.ops.roi_align(
                img_feats, boxes_xyxy.float().transpose(0, 1).unbind(0), self.roi_size
            )
            assert list(sampled.shape) == [
                bs * n_boxes,
                self.d_model,
                self.roi_size,
                self.roi_size,
            ]
            proj = self.pool(sampled).view(bs, n_boxes, self.d_model).transpose(0, 1)
            where = self.pos_enc._encode_xy(boxes[..., 0].flatten(), boxes[..., 1].flatten())
            return proj + torch.cat(where, -1).view(n_boxes, bs, -1) + self.label_embed(boxes_labels.long()), boxes_mask
        return boxes.new_zeros(0, bs, self.d_model), boxes_mask

    def forward(self, geo_prompt, img_feats):
        made, mask = self._encode_boxes(geo_prompt.box_embeddings, geo_prompt.box_mask, geo_prompt.box_labels,
                                        img_feats)
        cls = self.cls_embed.weight[:, None].expand(1, made.shape[1], self.d_model)
        return concat_padded_sequences(made, mask, cls, torch.zeros_like(mask[:, :1]) if made.shape[0] else
                                       mask.new_zeros(mask.shape[0], 1))
# ---- model_builder.py
import types

import torch
from torch import nn

from sam3.model.decoder import TransformerDecoder
from sam3.model.encoder import TransformerEncoderFusion
from sam3.model.geometry_encoders import SequenceGeometryEncoder
from sam3.model.position_encoding import PositionEmbeddingSine

WIDTH = 16


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(600, WIDTH)

    def forward(self, ids):
        x = self.token_embedding(ids)
        return x.mean(1), x


class Language(nn.Module):
    context_length = 12

    def __init__(self):
        super().__init__()
        self.encoder, self.resizer = Text(), nn.Linear(WIDTH, WIDTH)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.language_backbone = nn.Conv2d(3, WIDTH, 14, 14), Language()
        self.positions = PositionEmbeddingSine(WIDTH, precompute_resolution=4)

    def forward_image(self, samples):
        x = self.patches(samples)
        return {"backbone_fpn": [x], "vision_pos_enc": [self.positions(x)]}


class Sam3Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.transformer = nn.Module()
        self.transformer.encoder = TransformerEncoderFusion(WIDTH)
        self.transformer.decoder = TransformerDecoder(WIDTH, 5, resolution=56, stride=14)
        self.geometry_encoder = SequenceGeometryEncoder(WIDTH, self.backbone.positions)

    def forward_grounding(self, backbone_out, find_input, find_target, geometric_prompt):
        x = (backbone_out["backbone_fpn"][-1] + backbone_out["vision_pos_enc"][-1])[find_input.img_ids]
        sizes = [x.shape[-2:]]
        geo, geo_mask = self.geometry_encoder(geometric_prompt, x)
        prompt = torch.cat([backbone_out["language_features"][:, find_input.text_ids], geo])
        mask = torch.cat([backbone_out["language_mask"][find_input.text_ids], geo_mask], 1)
        made = self.transformer.encoder([x.flatten(2).permute(2, 0, 1)], prompt, mask, sizes)
        hs, boxes = self.transformer.decoder(made["memory"], made["spatial_shapes"])
        masks = torch.einsum("bqc,bchw->bqhw", hs, x)
        return {"pred_logits": hs.sum(-1, keepdim=True), "pred_boxes": boxes, "pred_masks": masks,
                "presence_logit_dec": hs.mean((1, 2))[:, None]}


def build_sam3_image_model(bpe_path=None, device="cuda", eval_mode=True, checkpoint_path=None, load_from_HF=True):
    assert device == "cpu" and not load_from_HF
    return Sam3Image()
