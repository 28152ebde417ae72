"""Export-friendly attention: modules of torch.nn that torch.export accepts with data-dependent sizes.

    import qkv.nn
    n = qkv.nn.replace_mha(model)          # in place; model itself may be an nn.MultiheadAttention; n = number replaced
    qkv.export(model, args, dynamic_shapes=..., path="model.pt2")

    attention = qkv.nn.ExportFriendlyMultiheadAttention.from_nn_mha(mha)  # one module, with a copy of the weights

    tree = qkv.nn.from_pt2("model.pt2")    # a file as modules, with the parts of each attention (docs/MODULES.md)

nn.MultiheadAttention compares sizes in Python, which stops an export with data-dependent sizes. nn.TransformerEncoder
and nn.TransformerDecoder read the values of a mask to see whether it is causal, which stops every export. The classes
here do neither.
"""
import copy
import functools
import inspect
import math
import types
import warnings
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.parametrize import is_parametrized

from ._modules import from_pt2

__all__ = ["ExportFriendlyMultiheadAttention", "ExportFriendlyTransformerDecoder", "ExportFriendlyTransformerEncoder",
           "ExportFriendlyTransformerEncoderLayer", "from_pt2", "replace_mha"]


class ExportFriendlyMultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention with another forward: same constructor, options, parameters, state_dict and results.

    A row whose keys are all masked: with need_weights=False attention gives zeros, so the output is out_proj.bias;
    with need_weights=True the output and the weights are NaN. nn.MultiheadAttention gives the same outside its
    inference fast path (there: NaN).

    Sizes are never compared in Python. A mask is expanded to the size it must have, which eager mode checks and
    torch.export records as a condition for run time. A mask with an axis of size 1 is therefore broadcast.

    Two things that nn.MultiheadAttention refuses: attn_mask may be (batch, heads, queries, keys), and bf16 or f16
    inputs may meet float32 parameters, which are cast to the query's dtype.
    """

    @classmethod
    def from_nn_mha(cls, mha, share=False):
        """An attention like `mha` (options, dtype, device, mode, hooks). It has its own copy of the weights; with
        share=True it uses the same Parameter objects, so that optimizers and tied modules keep working. A subclass of
        nn.MultiheadAttention keeps its methods, including a forward that calls super().forward."""
        if not isinstance(mha, nn.MultiheadAttention):
            raise TypeError(f"from_nn_mha takes an nn.MultiheadAttention, not {type(mha).__name__}")
        if not isinstance(mha, cls) and not _reaches(mha, nn.MultiheadAttention):
            raise TypeError(f"{type(mha).__name__} has its own forward, which does not call super().forward: there is "
                            "nothing "
                            "that ExportFriendlyMultiheadAttention could replace")
        kept = {id(t): t for t in (*mha.parameters(), *mha.buffers())} if share else {}
        new = copy.deepcopy(mha, kept)
        _become(new, cls)
        return new

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):
        # nn.TransformerEncoder makes them from padded batches, only in eager inference
        if query.is_nested or key.is_nested or value.is_nested:
            return super().forward(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights,
                                   is_causal)
        batched = _is_batched(query, key, value, key_padding_mask, attn_mask)
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal=True means that attn_mask is causal: pass attn_mask too "
                               "(nn.Transformer.generate_square_subsequent_mask)")
        causal = is_causal and key_padding_mask is None and not need_weights  # only then can the hint replace the mask
        if causal:
            attn_mask = None

        q, k, v = (_split_heads(self, x) for x in _project(self, query, key, value))
        mask = _merge_masks(self, attn_mask, key_padding_mask, q, k, batched)
        if self.bias_k is not None:  # one additional key and value, learned
            k, v = (torch.cat([x, _split_heads(self, _as(b, query)).expand(x.size(0), -1, -1, -1)], 2)
                    for x, b in ((k, self.bias_k), (v, self.bias_v)))
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))

        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = _weights(q, k, mask, p)
            out = weights @ v
            if average_attn_weights:
                weights = weights.mean(1)
            if not batched:
                weights = weights.squeeze(0)
        else:
            if mask is not None and mask.dtype == torch.bool:
                mask = mask.logical_not()  # here True is masked, there True attends
            # choosing an SDPA kernel compares sizes; the exported op does not depend on the choice
            with sdpa_kernel(SDPBackend.MATH) if torch.compiler.is_exporting() else nullcontext():
                out = F.scaled_dot_product_attention(q, k, v, mask, p, causal)
        out = _join_heads(self, out, batched)
        return F.linear(out, _as(self.out_proj.weight, query), _as(self.out_proj.bias, query)), weights


def _as(parameter, query):
    """A float32 parameter in the dtype of a bf16 or f16 query."""
    if parameter is None or parameter.dtype != torch.float32 or query.dtype not in (torch.bfloat16, torch.float16):
        return parameter
    return parameter.to(query.dtype)


def _project(mha, query, key, value):
    """q, k, v of width E; inputs that are the same tensor share one product."""
    weight, bias = _as(mha.in_proj_weight, query), _as(mha.in_proj_bias, query)
    if not mha._qkv_same_embed_dim:
        weights = (_as(w, query) for w in (mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight))
    elif query is key and key is value:
        return F.linear(query, weight, bias).chunk(3, -1)
    elif key is value:
        sizes = (mha.embed_dim, 2 * mha.embed_dim)
        w_q, w_kv = weight.split(sizes)
        b_q, b_kv = (None, None) if bias is None else bias.split(sizes)
        return F.linear(query, w_q, b_q), *F.linear(key, w_kv, b_kv).chunk(2, -1)
    else:
        weights = weight.chunk(3)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return tuple(F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))


def _split_heads(mha, x):
    """(B, N, E), (N, B, E) or (N, E) -> (B, H, N, D)"""
    x = x.unflatten(-1, (mha.num_heads, mha.head_dim))
    if x.dim() == 3:
        return x.transpose(0, 1).unsqueeze(0)
    return x.transpose(1, 2) if mha.batch_first else x.permute(1, 2, 0, 3)


def _join_heads(mha, x, batched):
    """The inverse: (B, H, N, D) back to the input's layout."""
    if not batched:
        x = x.squeeze(0).transpose(0, 1)
    else:
        x = x.transpose(1, 2) if mha.batch_first else x.permute(2, 0, 1, 3)
    return x.flatten(-2)


def _fitted(mha, name, mask, q, k, batched):
    """The mask with the sizes that it must have; where only the other batch_first gives it those, that is said."""
    def fitted(b, n, m):
        if name == "key_padding_mask":
            return mask.expand(b, m)[:, None, None, :]
        if mask.dim() == 2:
            return mask.expand(n, m)
        return (mask.unflatten(0, (b, mha.num_heads)) if mask.dim() == 3 else mask).expand(b, mha.num_heads, n, m)

    try:
        return fitted(q.size(0), q.size(2), k.size(2))
    except RuntimeError:
        try:
            otherwise = batched and fitted(q.size(2), q.size(0), k.size(0)) is not None
        except RuntimeError:
            otherwise = False
        if not otherwise:
            raise
    order = "(batch, length, width)" if mha.batch_first else "(length, batch, width)"
    raise RuntimeError(f"{name} is {tuple(mask.shape)}, which does not fit {q.size(0)} batches of {q.size(2)} queries "
                       f"and {k.size(2)} keys: with batch_first={mha.batch_first} query, key and value are {order}; "
                       f"the mask fits with batch_first={not mha.batch_first}")


def _merge_masks(mha, attn_mask, key_padding_mask, q, k, batched):
    """One mask that broadcasts to (B, H, N, keys): bool if both are (True = masked), otherwise additive;
    None if there is none."""
    masks = [_fitted(mha, name, mask, q, k, batched)
             for name, mask in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)) if mask is not None]
    if not masks:
        return None
    if len(masks) == 1:
        mask = masks[0]
    elif all(x.dtype == torch.bool for x in masks):
        mask = masks[0] | masks[1]
    else:
        mask = _additive(masks[0], q.dtype) + _additive(masks[1], q.dtype)
    extra = (mha.bias_k is not None) + bool(mha.add_zero_attn)
    return F.pad(mask, (0, extra)) if extra else mask  # added keys are never masked


def _weights(q, k, mask, p):
    scores = (q * math.sqrt(1.0 / q.size(-1))) @ k.transpose(-2, -1)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(mask, float("-inf"))
    elif mask is not None:
        scores = scores + (mask if mask.dtype == scores.dtype else mask.to(scores.dtype))
    return F.dropout(scores.softmax(-1), p) if p else scores.softmax(-1)


def _is_batched(query, key, value, key_padding_mask, attn_mask):
    """Checks ranks and dtypes, never sizes."""
    rank = query.dim()
    if rank not in (2, 3):
        raise AssertionError(f"query has {rank} dimensions; attention takes (batch, length, width) or, unbatched, "
                             "(length, width)")
    for name, x in (("key", key), ("value", value)):
        if x.dim() != rank:
            raise AssertionError(f"query has {rank} dimensions, {name} has {x.dim()}")
    if key_padding_mask is not None and key_padding_mask.dim() != rank - 1:
        raise AssertionError(f"key_padding_mask has {key_padding_mask.dim()} dimensions; a query with {rank} takes "
                             f"one with {rank - 1}")
    if attn_mask is not None and attn_mask.dim() not in (2, 3, 4):
        raise RuntimeError(f"attn_mask has {attn_mask.dim()} dimensions; it is (queries, keys), "
                           "(batch * heads, queries, keys) or (batch, heads, queries, keys)")
    for name, mask in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
        if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
            raise AssertionError(f"{name} is {mask.dtype}; masks are bool (True = masked) or floating point (added)")
    return rank == 3


def _additive(mask, dtype):
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))


class ExportFriendlyTransformerEncoderLayer(nn.TransformerEncoderLayer):
    """nn.TransformerEncoderLayer that torch.export traces op by op,
    never as the single op of its inference fast path."""

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        if not torch.compiler.is_exporting():
            return super().forward(src, src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            src = src + self._sa_block(self.norm1(src), src_mask, src_key_padding_mask, is_causal)
            return src + self._ff_block(self.norm2(src))
        src = self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(src + self._ff_block(src))


class ExportFriendlyTransformerEncoder(nn.TransformerEncoder):
    """nn.TransformerEncoder that, under torch.export, neither reads the mask's values to see whether it is causal nor
    packs rows into nested tensors: the mask is applied as it is, which gives the same results."""

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        if not torch.compiler.is_exporting():
            return super().forward(src, mask, src_key_padding_mask, is_causal)
        mask, padding = (_additive(x, src.dtype) for x in (mask, src_key_padding_mask))
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=padding, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class ExportFriendlyTransformerDecoder(nn.TransformerDecoder):
    """nn.TransformerDecoder that, under torch.export, does not read the mask's values to see whether it is causal."""

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=None,
                memory_is_causal=False):
        if tgt_is_causal is None and torch.compiler.is_exporting():
            tgt_is_causal = False
        return super().forward(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                               tgt_is_causal, memory_is_causal)


_VARIANTS = {
    nn.MultiheadAttention: ExportFriendlyMultiheadAttention,
    nn.TransformerEncoderLayer: ExportFriendlyTransformerEncoderLayer,
    nn.TransformerEncoder: ExportFriendlyTransformerEncoder,
    nn.TransformerDecoder: ExportFriendlyTransformerDecoder,
}


def replace_mha(model, verbose=False):
    """Turns every nn.MultiheadAttention in `model` into an ExportFriendlyMultiheadAttention,
    and returns how many there were.

    A module keeps its identity: only its class changes. Parameters, hooks, optimizers, modules used in several places
    and outside references are not affected, and `model` itself may be an attention. Subclasses of
    nn.MultiheadAttention stay instances of their class. Their own forward keeps its code around super().forward,
    which is now the replacement's. One that does not call it (found by a call on a copy, with small tensors) is left
    alone with a warning. nn.TransformerEncoder, its layers and nn.TransformerDecoder (nn.Transformer has them) change
    only during export; they are not counted. A second call finds nothing to do. verbose=True prints one line per
    module.

    Eager results stay equal, also on the fast path of nn.TransformerEncoderLayer (which treats additive masks as
    bool) and with the nested tensors of nn.TransformerEncoder (which zero padded rows). Exported programs use
    neither: compare them with torch.backends.mha.set_fastpath_enabled(False), as qkv.export does.
    """
    count = 0
    for name, module in model.named_modules():
        of = next((c for c in _VARIANTS if isinstance(module, c)), None)
        if of is None or isinstance(module, _VARIANTS[of]):
            continue
        where = f"{name or 'the model'} ({type(module).__name__})"
        if not _reaches(module, of):
            left = f"{where} has its own forward, which does not call super().forward: left alone"
            if of is nn.MultiheadAttention:
                warnings.warn(left, stacklevel=2)
            if verbose:
                print(left)
            continue
        _become(module, _VARIANTS[of])
        count += of is nn.MultiheadAttention
        if verbose:
            print(f"{where}: now {type(module).__name__}")
    return count


class _Reached(BaseException):
    pass


def _reaches(module, of):
    """Whether the module's forward calls that of torch's class `of`. A forward of its own is called on a copy, and
    stopped when it gets there. If it fails earlier, as small meaningless tensors may well cause, its code decides."""
    if "forward" in vars(module):
        return False
    if type(module).forward is of.forward:
        return True

    def forward(self, *args, **kwargs):
        raise _Reached

    cls = type(module)
    try:
        there = types.new_class("Reached", (of,), {}, lambda namespace: namespace.update(forward=forward))
        tried = copy.deepcopy(module, {id(p): p for p in module.parameters()})
        tried.__class__ = types.new_class(cls.__name__, (cls, there))
        args, kwargs = _small_arguments(tried, of)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            tried.forward(*args, **kwargs)
    except _Reached:
        return True
    except Exception:
        own = [inspect.unwrap(vars(c)["forward"]) for c in cls.__mro__[:cls.__mro__.index(of)] if "forward" in vars(c)]
        return all(inspect.isfunction(f) and "super" in f.__code__.co_names for f in own)
    return False


def _small_arguments(module, of):
    """A value for each required argument of forward: tensors first."""
    like = next(module.parameters())
    widths = (like.size(-1),) * (2 if of is nn.TransformerDecoder else 1)
    if of is nn.MultiheadAttention:
        widths = module.embed_dim, module.kdim, module.vdim
    parameters = inspect.signature(module.forward).parameters.values()
    required = [p for p in parameters if p.default is p.empty]
    n = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in required)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        n = len(widths)
    tensors = [torch.zeros(2, 2, w, dtype=like.dtype, device=like.device) for w in widths]
    return [*tensors, *[None] * n][:max(n, 1)], {p.name: None for p in required if p.kind is p.KEYWORD_ONLY}


def _become(module, friendly):
    cls = type(module)
    if not is_parametrized(module):
        module.__class__ = _variant(cls, friendly)
    elif not isinstance(module, friendly):  # torch's class for parametrized modules stays outermost
        members = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
        module.__class__ = types.new_class(cls.__name__, (_variant(cls.__bases__[0], friendly),), {},
                                           lambda namespace: namespace.update(members))


@functools.lru_cache(maxsize=None)
def _variant(cls, friendly):
    """The new class for a module of class `cls`: `friendly` for torch's own; for a user's subclass,
    one that derives from both, so that its super() is `friendly`."""
    if issubclass(cls, friendly):
        return cls
    if cls in _VARIANTS:
        return friendly

    def reduce(self, protocol):  # pickle cannot find a class created at run time by its name
        _, _, *state = super(both, self).__reduce_ex__(protocol)
        return (_revive, (cls, friendly), *state)

    members = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__reduce_ex__": reduce}
    both = types.new_class(f"ExportFriendly{cls.__name__}", (cls, friendly), {},
                           lambda namespace: namespace.update(members))
    return both


def _revive(cls, friendly):
    variant = _variant(cls, friendly)
    return variant.__new__(variant)
