"""Meta's own code of SAM 3 (facebookresearch/sam3), made to export: what its authors' code does that torch.export does
not take, as changes of its source that are listed, counted, and refused where the source is another.

    with applied(PATCHES, say=print):
        program = torch.export.export(...)

A patch names a function and replaces text in it. The function is compiled again from its changed source, in its own
module; the files stay as they are, and so does the function after the `with`.
"""
import contextlib
import functools
import importlib
import inspect
import textwrap
from typing import NamedTuple

from .._lib import Error


class Patch(NamedTuple):
    name: str
    function: str  # "module:Class.method"
    why: str
    changes: tuple  # (text, what takes its place), each of which must be there once


PATCHES = (
    Patch("sine positions not computed ahead", "sam3.model.position_encoding:PositionEmbeddingSine.__init__",
          "a cache on a GPU", (("if precompute_resolution is not None:", "if False:"),)),
    Patch("sine positions without a cache", "sam3.model.position_encoding:PositionEmbeddingSine.forward",
          "a dict keyed by sizes turns them into constants",
          (("""\
cache_key = (x.shape[-2], x.shape[-1])
        if cache_key in self.cache:
            return self.cache[cache_key][None].repeat(x.shape[0], 1, 1, 1)
""", ""),)),
    Patch("positions of boxes without an assert", "sam3.model.position_encoding:PositionEmbeddingSine._encode_xy",
          "len() of a tensor makes its size a constant",
          (("assert len(x) == len(y) and x.ndim == y.ndim == 1\n", ""),)),
    Patch("box-RPB coordinates not computed ahead", "sam3.model.decoder:TransformerDecoder.__init__",
          "a cache on a GPU", (("if resolution is not None and stride is not None:", "if False:"),)),
    Patch("box-RPB coordinates without caches", "sam3.model.decoder:TransformerDecoder._get_rpb_matrix",
          "caches keyed by sizes, and asserts on sizes, which become conditions of the program",
          (("""\
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
""", "coords_h, coords_w = self._get_coords(H, W, reference_boxes.device)\n"),
           ("""\
if not torch.compiler.is_dynamo_compiling():
            assert deltas_x.shape[:3] == (bs, num_queries, W)
            assert deltas_y.shape[:3] == (bs, num_queries, H)
""", ""),
           ("""\
if not torch.compiler.is_dynamo_compiling():
            assert B.shape[:4] == (bs, num_queries, H, W)
""", ""),
           ("""\
if not torch.compiler.is_dynamo_compiling():
            assert B.shape[2:] == (num_queries, H * W)
""", ""))),
    Patch("sizes of the feature map as integers", "sam3.model.decoder:TransformerDecoder.forward",
          "sizes that are read out of a tensor depend on data",
          (("(spatial_shapes[0, 0], spatial_shapes[0, 1]),", "self.qkv_feature_size,"),)),
    Patch("box prompts without pinned memory", "sam3.model.geometry_encoders:SequenceGeometryEncoder._encode_boxes",
          "pin_memory needs a GPU; a list of boxes per image fixes the batch; an assert on sizes",
          (("scale = scale.pin_memory().to(device=boxes_xyxy.device, non_blocking=True)",
            "scale = scale.to(device=boxes_xyxy.device)"),
           ("""\
sampled = torchvision.ops.roi_align(
                img_feats, boxes_xyxy.float().transpose(0, 1).unbind(0), self.roi_size
            )
            assert list(sampled.shape) == [
                bs * n_boxes,
                self.d_model,
                self.roi_size,
                self.roi_size,
            ]
""", """\
rows = boxes_xyxy.float().transpose(0, 1)
            image = torch.arange(bs, device=rows.device, dtype=rows.dtype)[:, None, None].expand(bs, n_boxes, 1)
            sampled = torch.ops.torchvision.roi_align(
                img_feats, torch.cat([image, rows], -1).flatten(0, 1), 1.0, self.roi_size, self.roi_size, -1, False
            )
"""))),
    Patch("prompts joined without asserts", "sam3.model.geometry_encoders:concat_padded_sequences",
          "asserts on sizes and on values",
          (("""\
assert batch_size == seq1.size(1) == seq2.size(1) == mask1.size(0) == mask2.size(0)
    assert hidden_size == seq1.size(2) == seq2.size(2)
    assert seq1_length == mask1.size(1)
    assert seq2_length == mask2.size(1)

    torch._assert_async(is_right_padded(mask1))
    torch._assert_async(is_right_padded(mask2))
""", ""),)),
    Patch("x.dim is a method", "sam3.model.encoder:TransformerEncoderFusion.forward",
          "`x.dim == 4` compares a method and never holds",
          (("x.dim == 4 for x in src", "x.dim() == 4 for x in src"),)),
)


def _find(patch):
    """(owner, name, function): where the patch's function is."""
    module, _, path = patch.function.partition(":")
    try:
        owner = importlib.import_module(module)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        return owner, name, inspect.getattr_static(owner, name)
    except (ImportError, AttributeError) as e:
        raise Error(f"patch '{patch.name}': {patch.function} is not there ({e}); the patches are for sam3 0.1.4", 2) \
            from None


def _source(patch, function):
    try:
        return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError) as e:
        raise Error(f"patch '{patch.name}': the source of {patch.function} cannot be read: {e}", 2) from None


def _indented_as_method(text, function):
    """The texts of patches have a method's indentation in its class; a dedented source has four columns less."""
    return text if "." not in function.partition(":")[2] else text.replace("\n    ", "\n")


def _patched(patch, owner, function):
    source = _source(patch, function)
    for old, new in patch.changes:
        old, new = (_indented_as_method(t, patch.function) for t in (old, new))
        if source.count(old) != 1:
            raise Error(f"patch '{patch.name}': the source of {patch.function} has changed: expected once, found "
                        f"{source.count(old)} times: {old.strip().splitlines()[0]!r}; the patches are for sam3 0.1.4",
                        2)
        source = source.replace(old, new or "pass\n")
    inner = inspect.unwrap(function)
    made = {}
    whole = "def make(__class__):\n" + textwrap.indent(source, "    ") + f"    return {inner.__name__}\n"
    exec(compile(whole, f"<{patch.function}, patched>", "exec"), inner.__globals__, made)
    return functools.update_wrapper(made["make"](owner), inner)  # __class__: what super() without arguments asks for


@contextlib.contextmanager
def applied(patches=PATCHES, say=print):
    """The patches are in effect inside; all of them, or Error names the first that does not fit and none is."""
    made = [_find(p) for p in patches]
    fresh = [_patched(p, owner, was) for p, (owner, _, was) in zip(patches, made)]
    say(f"{len(patches)} patches of Meta's code, {sum(len(p.changes) for p in patches)} changes:")
    for p in patches:
        say(f"  {p.function.partition(':')[2]}: {p.name} ({p.why})")
    for (owner, name, _), f in zip(made, fresh):
        setattr(owner, name, f)
    try:
        yield
    finally:
        for owner, name, was in made:
            setattr(owner, name, was)
