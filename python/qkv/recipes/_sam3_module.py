"""SAM 3's text-grounded segmentation as one module for torch.export, over the submodules of transformers' Sam3Model.

    model = transformers.Sam3Model(config)
    module = Grounding(model, contract="meta")
    logits, boxes, masks, presence = module(patch_batch, token_ids)         # (B, 3, H, W), (P, 32) -> rows b * P + p

The weights, names and layers are transformers'. The code between the layers is written out here, for three reasons.
transformers keeps the grid's size in a tensor (item() and unbacked sizes in the graph), keys caches by sizes and
recovers the batch by division, which adds guards on sizes. It computes results that no output needs (a fourth pyramid
level, the text pooler, the semantic head, stacks over decoder layers). And it repeats image features per prompt;
here, everything that depends only on the image is computed once per image, including the first fusion layer's
self-attention. tests/python/test_sam3.py compares it with Sam3Model.forward.
"""
import contextlib
import math

import torch
import torch.nn.functional as F
from torch import nn

CONTRACTS = ("meta", "hf")
OUTPUTS = ("pred_logits", "pred_boxes", "pred_masks", "presence_logit_dec")
BOX_PAD = -10  # the label of a box that is none


class Grounding(nn.Module):
    """B images (B, 3, H, W) and P prompts (P, 32) to, for every prompt on every image (row b * P + p),

        pred_logits         meta [B*P, Q, 1], hf [B*P, Q]    clamped to +-12
        pred_boxes          [B*P, Q, 4]                      relative to the image; meta: centre and size, hf: corners
        pred_masks          [B*P, Q, 4h, 4w]                 logits; h, w: the grid of patches
        presence_logit_dec  [B*P, 1]                         hf clamps it to +-10

    Prompts are ids <start> ... <end>, padded. meta: id 0 means no token, as in Meta's code; hf: what follows the
    first <end> is padding, whatever it is, as transformers' attention mask says. With boxes=True also boxes (B, P, N,
    4), centre and size in [0, 1], and box_labels (B, P, N): 1 positive, 0 negative, -10 none. `autocast`: the dtype
    of torch.autocast inside; inputs and outputs stay float32. dynamic=True: H and W are any multiples of step(model).
    """

    def __init__(self, model, contract="meta", boxes=False, autocast=None, dynamic=False):
        super().__init__()
        if contract not in CONTRACTS:
            raise ValueError(f"contract {contract!r}: 'meta' or 'hf'")
        self.model, self.contract, self.boxes, self.autocast, self.dynamic = model, contract, boxes, autocast, dynamic
        for parent in list(model.modules()):
            for name, child in parent.named_children():
                if isinstance(child, nn.Dropout):
                    setattr(parent, name, nn.Identity())

    def forward(self, patch_batch, token_ids, boxes=None, box_labels=None):
        region = torch.autocast(patch_batch.device.type,
                                dtype=self.autocast) if self.autocast else contextlib.nullcontext()
        with region:
            out = self.run(patch_batch, token_ids, boxes, box_labels)
        return tuple(o.float() for o in out) if self.autocast else out

    def run(self, patch_batch, token_ids, boxes, box_labels):
        m, batch, prompts = self.model, patch_batch.shape[0], token_ids.shape[0]
        pyramid = self.image_features(patch_batch)
        h, w = pyramid[-1].shape[-2:]
        flat = pyramid[-1].flatten(2).transpose(1, 2)
        pos = sine_table(m.vision_encoder.neck.position_encoding, h, w, flat)

        prompt, mask = self.text_features(token_ids), self.text_mask(token_ids)
        prompt, mask = (t.unsqueeze(0).expand(batch, *t.shape).flatten(0, 1) for t in (prompt, mask))
        if self.boxes:
            torch._check(boxes.shape[:2] == (batch, prompts) and box_labels.shape == boxes.shape[:3])
            valid = box_labels != BOX_PAD
            tokens = self.geometry_tokens(pyramid[-1], flat, pos, boxes, torch.where(valid, box_labels, 0), valid)
            prompt = torch.cat([prompt, tokens], 1)
            mask = torch.cat([mask, torch.ones_like(mask[:, :1]), valid.flatten(0, 1)], 1)
        elif self.contract == "meta":
            prompt = torch.cat([prompt, per_prompt(self.geometry_tokens(pyramid[-1], flat, pos), prompts)], 1)
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
        keys = mask[:, None, None, :]

        fused = self.fuse(flat, pos, prompt, keys, prompts)
        queries, box, presence = self.decode(fused, pos, prompt, keys, h, w)
        logits = m.dot_product_scoring(decoder_hidden_states=queries[None], text_features=prompt, text_mask=mask)[0]
        masks = self.masks(pyramid, fused, queries, prompt, keys, batch, prompts)
        if self.contract == "hf":
            limit = m.detr_decoder.clamp_presence_logit_max_val
            return logits.squeeze(-1), corners(box), masks, presence.clamp(-limit, limit)
        return logits, box, masks, presence

    def image_features(self, pixels):
        """The pyramid without its coarsest level, finest first: [B, C, 4h, 4w], [B, C, 2h, 2w], [B, C, h, w]."""
        vit = self.model.vision_encoder.backbone
        x = vit.embeddings.patch_embeddings.projection(pixels).permute(0, 2, 3, 1)
        h, w = x.shape[1:3]
        table = vit.embeddings.position_embeddings
        n = math.isqrt(table.shape[1])
        table = table.reshape(1, n, n, -1)
        if self.dynamic:
            table = table.repeat(1, h // n, w // n, 1)
        else:
            table = table.repeat(1, -(-h // n), -(-w // n), 1)[:, :h, :w]
        x = vit.layer_norm(x + table)
        size = vit.config.window_size
        whole = self.rotary(h, w, size / w, x)
        window = self.rotary(size, size, 1.0, x)
        for layer in vit.layers:
            y = layer.layer_norm1(x)
            if layer.window_size:
                y = self.windowed(lambda t, a=layer.attention: a(t, window)[0], y, layer.window_size)
            else:
                y = layer.attention(y, whole)[0]
            x = x + y
            x = x + layer.mlp(layer.layer_norm2(x))
        x = x.permute(0, 3, 1, 2)
        return [level(x) for level in self.model.vision_encoder.neck.fpn_layers[:-1]]

    def rotary(self, h, w, scale, like):
        """cos and sin [1, h*w, D] of two-dimensional rotary positions, pairs of channels:
        the first half by column, the second by row."""
        frequency = self.model.vision_encoder.backbone.layers[0].rotary_emb.inv_freq
        column, row = (torch.arange(n, device=like.device) * scale for n in (w, h))
        column = (column[:, None] * frequency).expand(h, w, -1)
        row = (row[:, None] * frequency).unsqueeze(1).expand(h, w, -1)
        angle = torch.cat([column, row], -1).flatten(0, 1)[None].repeat_interleave(2, dim=-1)
        return angle.cos(), angle.sin()

    def windowed(self, attend, x, size):
        """attend([B * windows, size, size, C]) over windows of a [B, h, w, C] map.
        A grid that is not a multiple of the window is padded."""
        batch, h, w, c = x.shape
        if not self.dynamic and (h % size or w % size):
            x = F.pad(x, (0, 0, 0, -w % size, 0, -h % size))
        rows, columns = x.shape[1] // size, x.shape[2] // size
        x = x.view(batch, rows, size, columns, size, c).transpose(2, 3)
        x = attend(x.clone(memory_format=torch.contiguous_format).view(batch * rows * columns, size, size, c))
        x = x.view(batch, rows, columns, size, size, c).transpose(2, 3)
        x = x.clone(memory_format=torch.contiguous_format).view(batch, rows * size, columns * size, c)
        return x if self.dynamic else x[:, :h, :w]

    def text_features(self, token_ids):
        """[P, 32, C]. Causal alone: what a padded position holds is read by no one, for every later use masks it."""
        clip = self.model.text_encoder.text_model
        x = clip.embeddings(input_ids=token_ids)
        for layer in clip.encoder.layers:
            x = layer(x, attention_mask=None, is_causal=True)
        return self.model.text_projection(clip.final_layer_norm(x))

    def text_mask(self, token_ids):
        """[P, 32] bool, true where a token is."""
        if self.contract == "meta":
            return token_ids != 0
        end = token_ids == self.model.config.text_config.vocab_size - 1
        return end.cumsum(1) - end.long() == 0

    def geometry_tokens(self, features, flat, pos, boxes=None, labels=None, valid=None):
        """The geometry encoder's CLS token [B, 1, C] or, with boxes, CLS and one token per box for every prompt [B*P,
        1+N, C]. No positions are added to prompt tokens, so their order does not matter: padded boxes stay in place,
        hidden by the mask."""
        g = self.model.geometry_encoder
        batch, prompts, mask = features.shape[0], 1, None
        x = g.cls_embed.weight[None].expand(batch, -1, -1)
        if boxes is not None:
            prompts = boxes.shape[1]
            x = torch.cat([per_prompt(x, prompts), self.box_tokens(features, boxes, labels)], 1)
            valid = valid.flatten(0, 1)
            mask = torch.cat([torch.ones_like(valid[:, :1]), valid], 1)[:, None, None, :]
        x = g.prompt_layer_norm(g.final_proj(x))
        keys = flat + pos
        for layer in g.layers:
            y = layer.layer_norm1(x)
            x = layer.self_attn(query=y, key=y, value=y, attention_mask=mask)[0] + x
            # tokens do not see each other here: all prompts of an image are queries of one attention,
            # and its keys are projected once
            y = layer.layer_norm2(x).reshape(batch, prompts * x.shape[1], x.shape[2])
            x = layer.cross_attn(query=y, key=keys, value=flat)[0].reshape(x.shape) + x
            x = layer.mlp(layer.layer_norm3(x)) + x
        return g.output_layer_norm(x)

    def box_tokens(self, features, boxes, labels):
        """[B*P, N, C]: each box encoded by its coordinates, the features under it (ROIAlign),
        its position and its label."""
        g = self.model.geometry_encoder
        batch, prompts, count = boxes.shape[:3]
        h, w = features.shape[-2:]
        normed = g.vision_layer_norm(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        flat = boxes.flatten(0, 2)
        cx, cy, bw, bh = flat.unbind(-1)
        x0, y0, x1, y1 = corners(flat).unbind(-1)
        image = torch.arange(batch, device=boxes.device)[:, None].expand(batch, prompts * count).flatten()
        rois = torch.stack([image.to(flat.dtype), x0 * w, y0 * h, x1 * w, y1 * h], -1)
        pooled = torch.ops.torchvision.roi_align(normed.float(), rois, 1.0, g.roi_size, g.roi_size, -1, False)
        px, py = g.position_encoding.encode_1d_positions(cx, cy)
        where = torch.cat([py, px, bh[:, None], bw[:, None]], 1)
        x = g.label_embed(labels.flatten()) + (g.boxes_direct_project(flat) + g.boxes_pool_project(pooled).flatten(1)
                                               + g.boxes_pos_enc_project(where))
        return x.view(batch * prompts, count, x.shape[-1])

    def fuse(self, x, pos, prompt, keys, prompts):
        """Image tokens [B, h*w, C] that have read the prompt: [B*P, h*w, C].
        Until the first cross-attention they depend on the image alone."""
        for i, layer in enumerate(self.model.detr_encoder.layers):
            y = layer.layer_norm1(x)
            at = y + pos
            x = layer.self_attn(query=at, key=at, value=y)[0] + x
            if i == 0:
                x = per_prompt(x, prompts)
            x = layer.cross_attn(query=layer.layer_norm2(x), key=prompt, value=prompt, attention_mask=keys)[0] + x
            x = layer.mlp(layer.layer_norm3(x)) + x
        return x

    def decode(self, features, pos, prompt, keys, h, w):
        """Queries [N, Q, C], their boxes [N, Q, 4] (centre and size) and the presence logit [N, 1]."""
        d, n = self.model.detr_decoder, features.shape[0]
        boxes = d.reference_points.weight.sigmoid()[None].expand(n, -1, -1)
        x = torch.cat([d.presence_token.weight, d.query_embed.weight])[None].expand(n, -1, -1)
        image_keys = features + pos
        for layer in d.layers:
            where = d.ref_point_head(d.position_encoding.encode_boxes(boxes))
            where = F.pad(where, (0, 0, 1, 0))  # row 0, the presence token, has no box
            at = x + where
            x = layer.self_attn_layer_norm(x + layer.self_attn(query=at, key=at, value=x)[0])
            x = layer.text_cross_attn_layer_norm(x + layer.text_cross_attn(query=x + where, key=prompt, value=prompt,
                                                                           attention_mask=keys)[0])
            bias = self.box_bias(boxes, h, w)
            x = layer.vision_cross_attn_layer_norm(
                x + layer.vision_cross_attn(query=x + where, key=image_keys, value=features, attention_mask=bias)[0])
            x = layer.mlp_layer_norm(x + layer.mlp(x))
            queries = d.output_layer_norm(x[:, 1:])
            boxes = (d.box_head(queries) + inverse_sigmoid(boxes)).sigmoid()
        presence = d.presence_head(d.presence_layer_norm(x[:, :1])).squeeze(-1)
        return queries, boxes, presence

    def box_bias(self, boxes, h, w):
        """[N, heads, 1+Q, h*w], added to scores: what two small networks make of the signed log distances of a row's
        and a column's edge to the box's. It is a sum of a term per row and one per column; the presence token's is
        0."""
        d = self.model.detr_decoder
        x0, y0, x1, y1 = corners(boxes).unbind(-1)

        def term(n, low, high, network):
            at = torch.arange(n, device=boxes.device, dtype=boxes.dtype) / n
            distance = torch.stack([at - low[..., None], at - high[..., None]], -1) * 8  # [N, Q, n, 2]
            distance = torch.sign(distance) * torch.log2(torch.abs(distance) + 1.0) / math.log2(8)
            return F.pad(network(distance).permute(0, 3, 1, 2), (0, 0, 1, 0))

        row, column = term(h, y0, y1, d.box_rpb_embed_y), term(w, x0, x1, d.box_rpb_embed_x)
        return (row.unsqueeze(4) + column.unsqueeze(3)).flatten(3)

    def masks(self, pyramid, fused, queries, prompt, keys, batch, prompts):
        """[N, Q, 4h, 4w]. The pyramid's finer levels are one per image;
        they are added to every prompt's map without copies."""
        head = self.model.mask_decoder
        y = fused + head.prompt_cross_attn(query=head.prompt_cross_attn_norm(fused), key=prompt, value=prompt,
                                           attention_mask=keys)[0]
        y = y.transpose(1, 2).reshape(y.shape[0], y.shape[2], *pyramid[-1].shape[-2:])
        stages = zip(reversed(pyramid[:-1]), head.pixel_decoder.conv_layers, head.pixel_decoder.norms)
        for skip, conv, norm in stages:
            y = F.interpolate(y, size=skip.shape[-2:], mode="nearest")
            y = (y.view(batch, prompts, *y.shape[1:]) + skip.unsqueeze(1)).flatten(0, 1)
            y = F.relu(norm(conv(y)))
        return torch.einsum("bqc,bchw->bqhw", head.mask_embedder(queries), head.instance_projection(y))


def step(model):
    """Heights and widths of dynamic images are multiples of this:
    whole windows, and whole tiles of the position table."""
    c = model.config.vision_config.backbone_config
    return c.patch_size * math.lcm(c.window_size, c.pretrain_image_size // c.patch_size)


def per_prompt(t, prompts):
    """[B, ...] -> [B*P, ...]"""
    return t.unsqueeze(1).expand(t.shape[0], prompts, *t.shape[1:]).flatten(0, 1)


def corners(boxes):
    cx, cy, w, h = boxes.unbind(-1)
    return torch.stack([cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h], -1)


def inverse_sigmoid(x, eps=1e-3):
    x = x.clamp(min=0, max=1)
    return torch.log(x.clamp(min=eps) / (1 - x).clamp(min=eps))


def sine_table(encoding, h, w, like):
    """[1, h*w, C], the same for all images: sines and cosines of the row (first half of C) and of the column
    (second)."""
    n = encoding.num_position_features
    index = torch.arange(n, device=like.device).to(like.dtype)
    frequency = encoding.temperature ** (2 * torch.div(index, 2, rounding_mode="floor") / n)

    def axis(length):
        at = torch.arange(1, length + 1, device=like.device, dtype=like.dtype)
        at = (at / (at[-1:] + 1e-6) * encoding.scale)[:, None] / frequency
        return torch.stack([at[:, 0::2].sin(), at[:, 1::2].cos()], 2).flatten(1)

    row, column = axis(h)[:, None].expand(h, w, n), axis(w)[None].expand(h, w, n)
    return torch.cat([row, column], 2).flatten(0, 1)[None]


# --- torchvision::roi_align where torchvision is not installed


def _bins(rois, scale, height, width, rows, columns, sampling, aligned):
    """The weights of an image's rows and columns in the bins: Wy [K, height, rows], Wx [K, width, columns]."""

    def weights(low, high, bins, n):
        length = high - low if aligned else (high - low).clamp(min=1.0)
        samples = torch.full_like(length, sampling) if sampling > 0 else torch.ceil(length / bins)
        most = int(samples.max().clamp(min=0)) if len(samples) else 0
        i, p = torch.arange(most, dtype=low.dtype), torch.arange(bins, dtype=low.dtype)
        apart = length / bins / samples
        # [K, bins, most]
        at = low[:, None, None] + p[:, None] * (length / bins)[:, None, None] + (i + 0.5) * apart[:, None, None]
        used = (i < samples[:, None, None]) & (at >= -1.0) & (at <= n)
        at = at.clamp(0.0, n - 1.0)[..., None]
        triangle = (1.0 - (at - torch.arange(n, dtype=low.dtype)).abs()).clamp(min=0.0)
        return torch.where(used[..., None], triangle, 0.0).sum(2) / samples.clamp(min=1.0)[:, None, None]

    x0, y0, x1, y1 = (rois[:, 1:] * scale - (0.5 if aligned else 0.0)).unbind(-1)
    return weights(y0, y1, height, rows), weights(x0, x1, width, columns)


def roi_align(features, rois, scale, height, width, sampling, aligned):
    """torchvision's roi_align as its C++ defines it (torchvision/csrc/ops/cpu/roi_align_kernel.cpp): a sample outside
    [-1, size] is 0. Bilinear sampling is separable, so that a box is two small products: out[k,c,p,q] = sum_yx
    Wy[k,p,y] features[image of k,c,y,x] Wx[k,q,x]."""
    wy, wx = _bins(rois, scale, height, width, *features.shape[2:], sampling, aligned)
    return wy[:, None] @ features[rois[:, 0].long()] @ wx[:, None].transpose(-1, -2)


def roi_align_backward(grad, rois, scale, height, width, batch, channels, rows, columns, sampling, aligned):
    """torchvision's _roi_align_backward: the same products the other way, added up by image."""
    wy, wx = _bins(rois, scale, height, width, rows, columns, sampling, aligned)
    return grad.new_zeros(batch, channels, rows, columns).index_add_(0, rois[:, 0].long(),
                                                                     wy[:, None].transpose(-1, -2) @ grad @ wx[:, None])


def _register():
    """Registers the op with torch, so that files with box prompts can be exported,
    loaded and run without torchvision."""
    try:
        import torchvision  # noqa: F401  registers it itself

        return None
    except Exception:  # not there, or made for another torch
        pass
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        library.define("roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt "
                       "pooled_width, int sampling_ratio, "
                       "bool aligned) -> Tensor")
        library.define("_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, "
                       "SymInt pooled_width, SymInt batch_size, "
                       "SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor")
    except RuntimeError:  # already registered
        return None
    library.impl("roi_align", roi_align, "CPU")
    library.impl("roi_align", lambda x, rois, scale, h, w, sampling, aligned: x.new_empty(rois.shape[0], x.shape[1],
        h, w), "Meta")
    library.impl("_roi_align_backward", roi_align_backward, "CPU")
    library.impl("_roi_align_backward", lambda g, rois, scale, ph, pw, n, c, h, w, sampling, aligned: g.new_empty(n,
        c, h, w), "Meta")
    return library


_library = _register()  # the op lives as long as this object
