"""Ops that the library lacks, as ops that it has, for AOTAutograd's `decompositions`: those that PyTorch can take apart
itself, and the fused ones that nn.TransformerEncoderLayer and nn.MultiheadAttention call without gradients."""
import functools
import math

import torch
from torch._decomp import decomposition_table
from torch.nn import functional as F

from ._lib import lib

aten = torch.ops.aten
PADDING = 1  # mask_type of a mask (B, K); others broadcast to (B, H, Q, K). Bool: true where nothing is attended


def _heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _bias(mask, mask_type, like):
    """The mask as it is added to scores, in float; None without one."""
    if mask is None:
        return None
    if mask_type == PADDING:
        mask = mask[:, None, None]
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, -math.inf) \
        if mask.dtype == torch.bool else mask


def _projected(query, key, value, weight, bias):
    if query is key and key is value:
        return F.linear(query, weight, bias).chunk(3, -1)
    return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weight.chunk(3), bias.chunk(3))]


def multi_head_attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias,
                         mask=None, need_weights=True, average_attn_weights=True, mask_type=None):
    q, k, v = (_heads(x, num_head) for x in _projected(query, key, value, qkv_weight, qkv_bias))
    bias = _bias(mask, mask_type, q)
    if need_weights:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        weights = (scores if bias is None else scores + bias).softmax(-1)
        out = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        out, weights = F.scaled_dot_product_attention(q, k, v, bias), query.new_empty(0)
    return F.linear(out.transpose(1, 2).flatten(2), proj_weight, proj_bias), weights


def encoder_layer(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps,
                  norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2,
                  ffn_bias_2, mask=None, mask_type=None):
    def first(x):
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x):
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(x):
        return multi_head_attention(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
                                    False, True, mask_type)[0]

    def fed(x):
        x = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(x) if use_gelu else F.relu(x), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attended(first(src))
        return x + fed(second(x))
    x = first(src + attended(src))
    return second(x + fed(x))


FUSED = {aten._native_multi_head_attention.default: multi_head_attention,
         aten._transformer_encoder_layer_fwd.default: encoder_layer}


@functools.cache
def decompositions():
    """{op: function}. An op that draws random values stays whole, so that PyTorch's generator moves as in eager."""
    missing = {op: f for op, f in decomposition_table.items() if isinstance(op, torch._ops.OpOverload)
               and op.namespace == "aten" and not lib().qkv_op_known(str(op).encode())
               and torch.Tag.nondeterministic_seeded not in op.tags}
    return {**missing, **FUSED}
