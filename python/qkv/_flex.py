"""flex_attention in an exported program: torch.export.save of torch 2.13 refuses the operator, so that its definition
is exported instead, whose attention qkv recognises like any other."""
import contextlib
import importlib
import math
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_OPERATOR, _FLEX, _WRAPPED = ("torch._higher_order_ops.flex_attention", "torch.nn.attention.flex_attention",
                              "torch._dynamo._trace_wrapped_higher_order_op")


class _Lookups(TorchFunctionMode):
    """bias[h], document[b, i] of positions that are tensors: an index, where PyTorch would ask for their values. Takes
    the place of TransformGetItemToIndex, whose autograd function no file can hold."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__getitem__:
            at = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(x, torch.Tensor) for x in at) and all(isinstance(x, (int, torch.Tensor)) for x in at):
                tensor, positions = args[0], []
                for x in at:
                    if isinstance(x, torch.Tensor):
                        positions.append(x)
                    else:
                        tensor = tensor.select(len(positions), x)
                return torch.ops.aten.index(tensor, positions)
        return func(*args, **(kwargs or {}))


def _defined(_, query, key, value, score_mod, block_mask, scale, kernel_options, score_other=(), mask_other=()):
    """What flex_attention's operator computes, as torch._higher_order_ops.flex_attention.math_attention defines it:
    (attention, logarithms to base 2 of the rows' sums, largest scores in the same unit)."""
    flex = importlib.import_module(_FLEX)
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    heads = query.size(1) // key.size(1)
    if heads > 1:
        key, value = (x.repeat_interleave(heads, 1) for x in (key, value))
    scores = query.to(working) @ key.to(working).transpose(-2, -1) * scale
    at = [torch.arange(n) for n in scores.shape]
    every = flex._vmap_for_bhqkv
    with _Lookups():
        if score_mod is not flex._identity:
            scores = every(score_mod, (0,), (None,) * len(score_other))(scores, *at, *score_other)
        if block_mask[-1] is not flex.noop_mask:
            mask = every(block_mask[-1], (), (None,) * len(mask_other))(*at, *mask_other)
            scores = torch.where(mask, scores, -math.inf)
    out = torch._safe_softmax(scores, -1).to(query.dtype) @ value.to(query.dtype)
    return out, scores.logsumexp(-1) / math.log(2), scores.amax(-1) / math.log(2)


def _one_block(dense, mask_mod, seq_lengths, q_block, kv_block):
    """A block mask of one block: which blocks are empty is for kernels, and would put their size into the program."""
    flex = importlib.import_module(_FLEX)
    batch = dense[0].shape[:2]
    return flex.BlockMask.from_kv_blocks(torch.ones((*batch, 1), dtype=torch.int32),
                                         torch.zeros((*batch, 1, 1), dtype=torch.int32), BLOCK_SIZE=(q_block, kv_block),
                                         mask_mod=mask_mod, seq_lengths=seq_lengths)


@contextlib.contextmanager
def written_out():
    """While it lasts, flex_attention is its definition: for torch.export of a module that calls it."""
    operator, flex, wrapped = (importlib.import_module(m) for m in (_OPERATOR, _FLEX, _WRAPPED))
    with contextlib.ExitStack() as stack:
        for owner, name, new in ((operator.FlexAttentionHOP, "__call__", _defined),
                                 (flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True),
                                 (flex, "setup_compilation_env", contextlib.nullcontext),
                                 (flex, "_convert_mask_to_block_mask", lambda mask, *_, **__: (mask, None)),
                                 (flex, "_create_sparse_block_from_block_mask", _one_block),
                                 (wrapped, "TransformGetItemToIndex", _Lookups)):
            stack.enter_context(mock.patch.object(owner, name, new))
        yield
