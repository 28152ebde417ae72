"""Ops that the library lacks, as PyTorch itself takes them apart, for AOTAutograd's `decompositions`."""
import functools

import torch
from torch._decomp import decomposition_table

from ._lib import lib


@functools.cache
def decompositions():
    """{op: function}. An op that draws random values stays whole, so that PyTorch's generator moves as in eager."""
    return {op: f for op, f in decomposition_table.items() if isinstance(op, torch._ops.OpOverload)
            and op.namespace == "aten" and not lib().qkv_op_known(str(op).encode())
            and torch.Tag.nondeterministic_seeded not in op.tags}
