"""A causal language model of transformers as one .pt2 for `qkv generate` (docs/GENERATE.md).

    python -m qkv.recipes.causal_lm FOLDER -o model.pt2                   keys and values as inputs and outputs
    python -m qkv.recipes.causal_lm FOLDER -o model.pt2 --cache static --max-length 512
    python -m qkv.recipes.causal_lm FOLDER -o model.pt2 --random 0        config.json is enough: random weights

With --cache past the inputs are input_ids, past_key_0, past_value_0, ... and the outputs logits, present_key_0,
present_value_0, ..., with variable batch, tokens and past, which may be empty. With --cache static they are input_ids,
cache_position and logits: keys and values are buffers of --max-length tokens for --batch sequences, which the session
keeps. With --cache none: input_ids and logits. tokenizer.json is copied beside the model, if the folder has one.
"""
import argparse
import os
import shutil
import sys

import torch

from .._lib import Error

LONGEST = 1 << 20  # tokens, where the model's config names no limit


def load(folder, seed=None):
    """The folder's model with its weights; with random ones of that seed if it is given."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        if seed is not None:
            torch.manual_seed(seed)
            return transformers.AutoModelForCausalLM.from_config(config).eval()
        return transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    except (OSError, ValueError) as e:
        raise Error(f"{folder}: not a folder of a causal language model of transformers: {e}", 3) from None


def _past_layer(keys, values):
    """A layer of a DynamicCache that holds these keys and values (batch, heads, past, size), past 0 included."""
    from transformers.cache_utils import DynamicLayer

    class Past(DynamicLayer):
        def get_seq_length(self):
            return self.keys.shape[-2]  # DynamicLayer asks whether there are any, which would fix the answer

    layer = Past()
    layer.keys, layer.values, layer.is_initialized = keys, values, True
    layer.dtype, layer.device = keys.dtype, keys.device
    return layer


class WithPast(torch.nn.Module):
    """forward(input_ids, {"key_0": ..., "value_0": ...}): what a run of the model with a DynamicCache returns."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, past):
        from transformers.cache_utils import Cache

        layers = [_past_layer(past[f"key_{i}"], past[f"value_{i}"]) for i in range(len(past) // 2)]
        out = self.model(input_ids=input_ids, past_key_values=Cache(layers=layers), use_cache=True)
        present = {f"present_{kind}_{i}": t for i, layer in enumerate(out.past_key_values.layers)
                   for kind, t in (("key", layer.keys), ("value", layer.values))}
        return {"logits": out.logits, **present}


def _with_static_cache(model, batch, length):
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    class WithStaticCache(TorchExportableModuleWithStaticCache):
        def forward(self, input_ids, cache_position):
            for layer in self.static_cache.layers:
                layer.cumulative_length.copy_(cache_position[0])
            return {"logits": self.model(input_ids=input_ids, position_ids=cache_position[None],
                                         past_key_values=self.static_cache, use_cache=True).logits}

    model.generation_config.use_cache, model.generation_config.cache_implementation = True, "static"
    return WithStaticCache(model, batch_size=batch, max_cache_len=length)


class WithoutCache(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return {"logits": self.model(input_ids=input_ids, use_cache=False).logits}


def _first_past(model, batch, tokens):
    """Keys and values after `tokens` tokens, {"key_0": (batch, heads, tokens, size), ...}."""
    with torch.no_grad():
        cache = model(input_ids=torch.zeros(batch, tokens, dtype=torch.long), use_cache=True).past_key_values
    past = {}
    for i, layer in enumerate(getattr(cache, "layers", ())):
        if getattr(layer, "keys", None) is None or layer.keys.dim() != 4:
            raise Error(f"layer {i} keeps a {type(layer).__name__}, not keys and values: try --cache none", 4)
        past[f"key_{i}"], past[f"value_{i}"] = torch.randn_like(layer.keys), torch.randn_like(layer.values)
    if not past:
        raise Error("the model returns no keys and values: try --cache none", 4)
    return past


def _limit(model, max_length):
    config = model.config.get_text_config()
    return max_length or getattr(config, "max_position_embeddings", None) or LONGEST


def export_past(model, path, max_length=None):
    from .. import export

    dim, limit = torch.export.Dim, _limit(model, max_length)
    batch, tokens, past = dim("batch", min=1, max=1024), dim("tokens", min=1, max=limit), dim("past", min=0, max=limit)
    kept = _first_past(model, 2, 5)
    return export(WithPast(model), (torch.randint(0, 9, (2, 3)), kept),
                  dynamic_shapes=({0: batch, 1: tokens}, {name: {0: batch, 2: past} for name in kept}), path=path)


def export_static(model, path, max_length=None, batch=1):
    from .. import export

    length = min(_limit(model, max_length), 2048)
    tokens = torch.export.Dim("tokens", min=1, max=length)
    return export(_with_static_cache(model, batch, length), (torch.randint(0, 9, (batch, 3)), torch.arange(3)),
                  dynamic_shapes=({1: tokens}, {0: tokens}), path=path, checks=0)  # positions are not random values


def export_plain(model, path, max_length=None):
    from .. import export

    dim = torch.export.Dim
    batch, tokens = dim("batch", min=1, max=1024), dim("tokens", min=1, max=_limit(model, max_length))
    return export(WithoutCache(model), (torch.randint(0, 9, (2, 3)),), dynamic_shapes=({0: batch, 1: tokens},),
                  path=path)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m qkv.recipes.causal_lm", description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="config.json, weights and tokenizer.json, as save_pretrained writes them")
    parser.add_argument("-o", "--output", default="model.pt2", metavar="FILE")
    parser.add_argument("--cache", choices=("past", "static", "none"), default="past")
    parser.add_argument("--max-length", type=int, metavar="N", help="most tokens; default: the config's limit")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="sequences at once, for --cache static")
    parser.add_argument("--random", type=int, metavar="SEED", help="random weights instead of the folder's")
    o = parser.parse_args(argv)
    try:
        model = load(o.folder, o.random)
        if o.cache == "static":
            report = export_static(model, o.output, o.max_length, o.batch)
        else:
            report = (export_past if o.cache == "past" else export_plain)(model, o.output, o.max_length)
    except Error as e:
        print(f"causal_lm: error: {e}", file=sys.stderr)
        return e.code or 1
    print(report)
    tokenizer = os.path.join(o.folder, "tokenizer.json")
    beside = os.path.join(os.path.dirname(os.path.abspath(o.output)), "tokenizer.json")
    if os.path.exists(tokenizer) and not (os.path.exists(beside) and os.path.samefile(tokenizer, beside)):
        shutil.copy(tokenizer, beside)
    return 0


if __name__ == "__main__":
    sys.exit(main())
