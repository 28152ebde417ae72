"""SAM 3's text-grounded segmentation as one .pt2 for any number of images and prompts.

    python -m qkv.recipes.sam3 --checkpoint sam3/ -o sam3.pt2       a folder with config.json and *.safetensors
    python -m qkv.recipes.sam3 --checkpoint sam3.pt -o sam3.pt2     Meta's own file, as facebookresearch/sam3 reads it
    python -m qkv.recipes.sam3 --tiny -o tiny.pt2                   random weights; without --tiny,
                                                                    at full size (840 M parameters)
    python -m qkv.recipes.sam3 --module sam3.model_builder:build_sam3_image_model -o sam3.pt2     Meta's own code,
                                                                    where its package is installed

    forward(patch_batch (B, 3, 1008, 1008), token_ids (P, 32)) -> pred_logits, pred_boxes, pred_masks,
    presence_logit_dec
    with --boxes: forward(patch_batch, token_ids, boxes (B, P, N, 4), box_labels (B, P, N))

Every prompt is applied to every image: row b * P + p is image b with prompt p. B, P and N can be any number from 1.
The file also holds the tokenizer's merges (extra/qkv/tokenizer.bpe) and the parameters of pre- and post-processing
(extra/qkv/processor.json). docs/SAM3.md describes the outputs, the two contracts and --dynamic-size. Needs
transformers and, without a checkpoint's merges, PyPI.
"""
import argparse
import collections
import contextlib
import itertools
import json
import os
import time
import types

import torch
from torch.export import Dim

from .. import nn as qkv_nn
from .._lib import Error
from ._clip_merges import clip_merges
from ._sam3_meta import converted, read
from ._sam3_module import CONTRACTS, OUTPUTS, Grounding, step
from ._sam3_own import OwnGrounding, build
from ._sam3_patches import applied

SIZES = ((1, 1), (1, 2), (3, 2), (2, 4))
MOST_STEPS = 10  # --dynamic-size: up to 10 steps per side, 3360 pixels in the full model
SPECIAL = 2 * 256 + 2  # ids that are not merges: bytes, bytes that end a word, <start>, <end>


# ------------------------------------------------------------------ models


def tiny_config():
    """SAM 3's architecture in small: images of 112, two windowed and two global layers, two of everything else,
    1024 ids."""
    from transformers import Sam3Config

    heads = dict(hidden_size=32, num_attention_heads=4)
    backbone = dict(model_type="sam3_vit_model", hidden_size=64, intermediate_size=128, num_hidden_layers=4,
                    num_attention_heads=4, image_size=112,
                    patch_size=14, window_size=4, global_attn_indexes=[1, 3], pretrain_image_size=56)
    return Sam3Config(
        vision_config=dict(model_type="sam3_vision_model", fpn_hidden_size=32,
                           backbone_feature_sizes=[[32, 32], [16, 16], [8, 8]],
                           backbone_config=backbone),
        text_config=dict(model_type="clip_text_model", vocab_size=1024, hidden_size=64, intermediate_size=128,
                         projection_dim=32,
                         num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32, hidden_act="gelu",
                         bos_token_id=1022,
                         eos_token_id=1023, pad_token_id=0),
        geometry_encoder_config=dict(num_layers=2, intermediate_size=64, roi_size=7, **heads),
        detr_encoder_config=dict(num_layers=2, intermediate_size=64, **heads),
        detr_decoder_config=dict(num_layers=2, intermediate_size=64, num_queries=20, **heads),
        mask_decoder_config=dict(**heads))


def random_model(tiny=False, seed=0):
    """Random weights. The tiny model's are wide enough that every part moves the outputs."""
    from transformers import Sam3Config, Sam3Model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Sam3Model(tiny_config() if tiny else Sam3Config()).eval()
        with torch.no_grad():
            for p in model.parameters() if tiny else ():
                gain = 1.0 if p.dim() == 1 and p.mean() > 0.5 else 0.0
                p.copy_(torch.randn_like(p) * (0.5 / max(p.shape[-1], 16) ** 0.5 if p.dim() > 1 else 0.1) + gain)
    return model


def load_meta(path, config=None):
    """The model of Meta's own checkpoint. config: a Sam3Config or the path of a config.json of another size than SAM
    3's."""
    from transformers import Sam3Config, Sam3Model

    tensors = read(path)
    if isinstance(config, (str, os.PathLike)):
        try:
            config = Sam3Config.from_json_file(config)
        except (OSError, ValueError) as e:
            raise Error(f"{config}: not a config.json of a Sam3Config: {e}", 2) from None
    with torch.device("meta"):
        model = Sam3Model(config or Sam3Config())
    weights = converted(tensors, model.state_dict(), path)
    fresh = Sam3Model(model.config).eval()  # buffers that no file holds
    fresh.load_state_dict(weights, assign=True)
    return fresh


def load_checkpoint(folder, config=None):
    """The model of a Hugging Face folder, config.json of model_type sam3 or sam3_video and safetensors, or of Meta's
    file."""
    from transformers import Sam3Config, Sam3Model

    if os.path.isfile(folder):
        return load_meta(folder, config)

    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        kind = config.get("model_type")
    except OSError:
        raise Error(f"{folder}: no config.json in it; a checkpoint is a folder with config.json and *.safetensors",
                    2) from None
    except (ValueError, AttributeError):
        raise Error(f"{folder}/config.json is not a JSON object", 2) from None
    if kind not in ("sam3", "sam3_video"):
        raise Error(f"{folder}: a checkpoint of model_type {kind!r}; this recipe takes 'sam3' or 'sam3_video'", 2)
    config = config.get("detector_config", config)
    with _quiet():
        try:
            model, info = Sam3Model.from_pretrained(folder, config=Sam3Config(**config), dtype=torch.float32,
                                                    attn_implementation="sdpa",
                                                    use_safetensors=True, local_files_only=True,
                                                    output_loading_info=True)
        except Exception as e:
            raise Error(f"{folder}: {str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__}", 2) from e
    missing = sorted(info["missing_keys"])
    if missing:
        raise Error(f"{folder}: {len(missing)} of the model's tensors are not in the checkpoint, '{missing[0]}' is "
                    "the first", 2)
    return model.eval()


@contextlib.contextmanager
def _quiet():
    """Silences the table of mismatched weights that transformers prints to stderr; an error of our own replaces it."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(level)


# ------------------------------------------------------------------ what goes in


def sample(model, batch, prompts, boxes=False, size=None, seed=0):
    """Inputs by name: noise, and prompts of 1 to 7 random tokens."""
    g = torch.Generator().manual_seed(1000 * seed + 10 * batch + prompts)
    text, image = model.config.text_config, model.config.vision_config.image_size
    height, width = size or ((image, image) if isinstance(image, int) else image)
    start, end = text.vocab_size - 2, text.vocab_size - 1
    ids = torch.zeros(prompts, text.max_position_embeddings, dtype=torch.long)
    for p in range(prompts):
        n = 1 + (3 * p + seed) % 7
        ids[p, 0], ids[p, n + 1] = start, end
        ids[p, 1:n + 1] = torch.randint(1, start, (n,), generator=g)
    out = {"patch_batch": torch.rand(batch, 3, height, width, generator=g) * 2 - 1, "token_ids": ids}
    if boxes:
        middle = torch.rand(batch, prompts, 3, 2, generator=g) * 1.2 - 0.1  # some reach over the image's edge
        out["boxes"] = torch.cat([middle, torch.rand(batch, prompts, 3, 2, generator=g) * 0.4 + 0.05], -1)
        out["box_labels"] = torch.tensor([1, 0, -10]).expand(batch, prompts, 3).contiguous()
    return out


def processor(model, contract, boxes=False, dynamic=False, checkpoint=None):
    """What surrounds the network, for extra/qkv/processor.json."""
    given = {}
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = os.path.join(checkpoint or "", name)
        if checkpoint and os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                read = json.load(f)
            given = {**read.get("image_processor", read), **given}
    image = model.config.vision_config.image_size
    height, width = (image, image) if isinstance(image, int) else image
    text = model.config.text_config
    out = {
        "format": "qkv.sam3", "version": 1, "contract": contract,
        "image": {"height": height, "width": width, "resample": "bilinear", "antialias": True, "keep_aspect": False,
                  "rescale": given.get("rescale_factor", 1 / 255), "mean": given.get("image_mean", [0.5] * 3),
                  "std": given.get("image_std", [0.5] * 3)},
        "text": {"length": text.max_position_embeddings, "vocabulary": text.vocab_size, "start": text.vocab_size - 2,
                 "end": text.vocab_size - 1, "pad": 0, "merges": "qkv/tokenizer.bpe"},
        "inputs": ["patch_batch", "token_ids"] + (["boxes", "box_labels"] if boxes else []), "outputs": list(OUTPUTS),
        "box_format": "cxcywh" if contract == "meta" else "xyxy",
        "score_threshold": 0.5 if contract == "meta" else 0.3, "mask_threshold": 0.5,
        "mask_resize": "logits" if contract == "meta" else "probabilities",
    }
    if dynamic:
        unit = step(model)
        out["image"]["dynamic"] = {"step": unit, "min": 2 * unit, "max": MOST_STEPS * unit}
    return out


# ------------------------------------------------------------------ export


def export(module, seed=0):
    """The exported program of a Grounding; its only conditions on sizes are the declared ranges."""
    model = module.model
    batch, prompts = Dim("batch", min=1), Dim("prompts", min=1)
    shapes = {"patch_batch": {0: batch}, "token_ids": {0: prompts}}
    size = None
    if module.dynamic:
        unit = step(model)
        rows, columns = Dim("height_steps", min=2, max=MOST_STEPS), Dim("width_steps", min=2, max=MOST_STEPS)
        shapes["patch_batch"].update({2: unit * rows, 3: unit * columns})
        size = (2 * unit, 3 * unit)
    if module.boxes:
        count = Dim("boxes", min=1)
        shapes.update(boxes={0: batch, 1: prompts, 2: count}, box_labels={0: batch, 1: prompts, 2: count})
    example = sample(model, 2, 3, module.boxes, size, seed)  # torch takes a size of 1 for a constant
    if module.boxes:
        # no two sizes alike
        example = {k: torch.cat([v, v], 2) if k.startswith("box") else v for k, v in example.items()}
    with torch.no_grad():
        program = torch.export.export(module, tuple(example.values()), dynamic_shapes=shapes, strict=False)
    _prove_guards(module, getattr(program, "_guards_code", None) or [])
    for graph in _graphs(program.graph_module):
        for node in graph.nodes:  # stack traces with this machine's paths are most of the file's JSON
            for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node"):
                node.meta.pop(key, None)
    program._example_inputs = None  # they would be saved as a pickle
    nodes = {n.name: n for n in program.graph.nodes}
    for spec, name in zip(program.graph_signature.output_specs, OUTPUTS):
        nodes[spec.arg.name]._rename(name)
        spec.arg.name = nodes[spec.arg.name].name
    return program


def _prove_guards(module, guards):
    """Conditions on sizes that torch wrote into the program must hold at every size that is declared (such as W // 14
    == 4 * (W // 56))."""
    unit = step(module.model) if module.dynamic else None
    sides = [unit * k for k in range(2, MOST_STEPS + 1)] if module.dynamic else [None]
    codes = [(g, compile(g.strip(), "guard", "eval")) for g in dict.fromkeys(guards)]
    for batch, prompts, count, h, w in itertools.product((1, 2, 7), (1, 2, 7), (1, 2, 5) if module.boxes else (1,),
                                                         sides, sides):
        image = module.model.config.vision_config.image_size
        shapes = {"patch_batch": (batch, 3, h or image, w or image),
                  "token_ids": (prompts, module.model.config.text_config.max_position_embeddings),
                  "boxes": (batch, prompts, count, 4), "box_labels": (batch, prompts, count)}
        inputs = {name: types.SimpleNamespace(size=lambda shape=shape: shape) for name, shape in shapes.items()}
        for guard, code in codes:
            if not eval(code, {"__builtins__": {}, "min": min, "max": max}, {"L": inputs}):
                raise Error(f"the exported program refuses sizes that are declared, {shapes}: {guard}", 1)


def _graphs(module):
    return [m.graph for m in module.modules() if isinstance(m, torch.fx.GraphModule)]


def _ops(program):
    return collections.Counter(str(n.target) for g in _graphs(program.graph_module) for n in g.nodes
                               if n.op == "call_function")


def _cases(module, pairs):
    out = [(b, p, None) for b, p in pairs]
    if module.dynamic:
        unit = step(module.model)
        out = [(b, p, (unit * (2 + i % 3), unit * (2 + (i + 1) % 2))) for i, (b, p, _) in enumerate(out)]
    return out


def check(module, program, pairs=SIZES, say=print):
    """Prints the largest differences between eager PyTorch and the program, one row per case;
    raises if one is not 0."""
    run = program.module()
    worst = 0.0
    for batch, prompts, size in _cases(module, pairs):
        x = sample(module.model, batch, prompts, module.boxes, size, seed=1)
        with torch.no_grad():
            want, got = module(*x.values()), run(*x.values())
        row = [float((a - b).abs().max()) for a, b in zip(want, got)]
        worst = max(worst, *row)
        at = "x".join(map(str, x["patch_batch"].shape[2:]))
        say(f"  {batch:>2} {prompts:>2} {at:>9}  " + "  ".join(f"{d:>18.3g}" for d in row))
    if not worst == 0:
        raise Error(f"the exported program differs from eager PyTorch by {worst:.3g}; 0 is expected", 1)


def make(path, checkpoint=None, tiny=False, contract="meta", dtype=torch.float32, boxes=False, dynamic=False, seed=0,
         pairs=SIZES, say=print, config=None):
    """Writes `path`; returns the module, whose forward is what the file computes. config: of Meta's checkpoint, where
    it is not SAM 3's."""
    model = load_checkpoint(checkpoint, config) if checkpoint else random_model(tiny, seed)
    if checkpoint and os.path.isfile(checkpoint):
        checkpoint = os.path.dirname(os.path.abspath(checkpoint))  # merges and the processor's parameters
    module = Grounding(model, contract, boxes, None if dtype == torch.float32 else dtype, dynamic).eval()
    return _write(module, path, checkpoint, contract, seed, pairs, say)


def make_own(path, spec, checkpoint=None, boxes=False, seed=0, pairs=SIZES, say=print, image_size=1008):
    """The same of Meta's own code: spec is "package.module:function", which makes the module."""
    with applied(say=say):
        torch.manual_seed(seed)
        module = OwnGrounding(build(spec, checkpoint), boxes, image_size).eval()
        folder = os.path.dirname(os.path.abspath(checkpoint)) if checkpoint else None
        return _write(module, path, folder, "meta", seed, pairs, say)


def _write(module, path, checkpoint, contract, seed, pairs, say):
    model, boxes, dynamic = module.model, module.boxes, module.dynamic
    merges = clip_merges(model.config.text_config.vocab_size - SPECIAL, checkpoint)
    replaced = qkv_nn.replace_mha(model)
    began = time.time()
    program = export(module, seed)
    ops = _ops(program)
    say(f"exported in {time.time() - began:.1f} s: {sum(ops.values())} ops, "
        f"{sum(p.numel() for p in model.parameters()):,} parameters, "
        f"{ops['aten.scaled_dot_product_attention.default']} attentions; nn.MultiheadAttention replaced: {replaced}")
    heading = "   B  P      size  " + "  ".join(f"{n:>18}" for n in OUTPUTS)
    if pairs:
        say(f"largest difference from eager PyTorch, before saving\n{heading}")
        check(module, program, pairs, say)
    extra = {"qkv/tokenizer.bpe": "".join(f"{m}\n" for m in merges),
             "qkv/processor.json": json.dumps(processor(model, contract, boxes, dynamic, checkpoint), indent=1) + "\n"}
    torch.export.save(program, path, extra_files=extra)
    say(f"{path}: {os.path.getsize(path):,} bytes, {len(merges)} merges")
    if pairs:
        say(f"largest difference from eager PyTorch, saved and loaded\n{heading}")
        check(module, torch.export.load(path), pairs, say)
    return module


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m qkv.recipes.sam3", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.pt2")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--checkpoint", metavar="DIR|FILE",
                        help="a folder with config.json and *.safetensors, or Meta's sam3.pt; without it weights are "
                             "random")
    source.add_argument("--tiny", action="store_true",
                        help="the architecture in small: 112 x 112 images, 1024 ids, 0.6 M parameters")
    parser.add_argument("--module", metavar="PACKAGE.MODULE:FUNCTION",
                        help="Meta's own code, which this function makes (sam3.model_builder:build_sam3_image_model), "
                             "with patches that are listed; --checkpoint: its sam3.pt; without it weights are random")
    parser.add_argument("--image-size", type=int, default=1008, help="of the images that --module takes (default 1008)")
    parser.add_argument("--config", metavar="FILE.json", help="with Meta's file: a Sam3Config of another size")
    parser.add_argument("--contract", choices=CONTRACTS, default="meta",
                        help="whose outputs: Meta's code (default) or transformers'")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32",
                        help="bfloat16: autocast inside, float32 at both ends")
    parser.add_argument("--boxes", action="store_true", help="box prompts in addition to the text")
    parser.add_argument("--dynamic-size", action="store_true",
                        help="heights and widths of 2 to 10 steps (336 in the full model)")
    parser.add_argument("--seed", type=int, default=0, help="of random weights (default 0)")
    parser.add_argument("--no-check", action="store_true",
                        help="do not compare the program with eager PyTorch (minutes at full size)")
    a = parser.parse_args(argv)
    fixed = [f"--{n.replace('_', '-')}" for n, usual in (("tiny", False), ("config", None), ("dynamic_size", False),
                                                         ("contract", "meta"), ("dtype", "float32"))
             if getattr(a, n) != usual]
    if a.module and fixed:
        parser.error(f"--module goes with Meta's sizes, outputs and float32: leave out {', '.join(fixed)}")
    try:
        if a.module:
            make_own(a.output, a.module, a.checkpoint, a.boxes, a.seed, () if a.no_check else SIZES,
                     image_size=a.image_size)
            return
        make(a.output, a.checkpoint, a.tiny, a.contract, getattr(torch, a.dtype), a.boxes, a.dynamic_size, a.seed,
             () if a.no_check else SIZES, config=a.config)
    except Error as e:
        raise SystemExit(f"sam3: {e}") from None


if __name__ == "__main__":
    main()
