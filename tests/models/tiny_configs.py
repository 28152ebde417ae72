"""Any configuration class of transformers made tiny, by the names of its own fields, and inputs for its model, by the
names of its forward's parameters. every_config.py goes over all of them.

    config = tiny("llama")                      a LlamaConfig of 2 layers, 64 wide, 120 tokens
    for make in candidates(model, "llama"):     make(batch, length) is a dict of inputs; the first that the model takes

What a model asks for beyond that is data: EXTRA.
"""
import dataclasses
import functools
import itertools
import math
import pathlib
import re

from zoo import *

VOCABULARY, WIDTH, HEAD, HEADS, INNER = 120, 64, 16, 4, 96
TOKENS = {}  # names of special tokens beyond the tiny vocabulary -> their places in it, the same in every part


def token(name, v):
    return v if v < 90 else TOKENS.setdefault(name.replace("_index", "_id"), VOCABULARY - 1 - len(TOKENS) % 20)


def at_most(limit):
    return lambda name, v: min(v, limit)


# The first pattern that a field's name contains says what becomes of an integer.
NUMBERS = [(re.compile(pattern), rule) for pattern, rule in [
    (r"token_(id|index)$|_token$|(bos|eos|pad|cls|sep|unk|mask|start|end|newline|patch)_(id|index|idx)$", token),
    (r"^(num_)?channels$|in_channels$|in_chans$|num_labels|type_vocab|temporal|tubelet|num_frames", at_most(4)),
    (r"vocab_size|vocab$", at_most(VOCABULARY)),
    (r"codebook_size|num_embeddings$|num_codevectors|num_buckets|attention_num_buckets", at_most(32)),
    (r"shared_experts?$|n_group$|topk_group|expert_group$", at_most(1)),
    (r"per_tok$|topk|top_k|moe_k$", at_most(2)),
    (r"position|^n_ctx$|max_seq|max_length|context_length|max_len", at_most(256)),
    (r"(image|img|eval|train|pretrain)_?(image)?_size$|^resolution$|crop_size", None),
    (r"patch_size|frequency_stride|time_stride", at_most(8)),
    (r"num_key_value_groups", at_most(2)),
    (r"key_value|kv_heads|key_heads", at_most(2)),
    (r"heads|n_head$", lambda name, v: v if v in (1, 2) else HEADS),
    (r"head_dim|rotary_dim|head_size|d_kv$|d_head$|dim_head$|attention_head_dim", at_most(HEAD)),
    (r"rank$|state", at_most(HEAD)),
    (r"experts?$", at_most(4)),
    (r"first_k_dense|dense_layers$|kv_shared", at_most(1)),
    (r"num_encoder_blocks", at_most(8)),
    (r"num_pos_feats", at_most(WIDTH // 2)),
    (r"layers?$|depth$|num_blocks$|_blocks$|block_repeats", at_most(2)),
    (r"quer(y|ies)|latents$|num_prompts|landmarks|centroids|proposals", at_most(8)),
    (r"window|local_attention|attention_chunk|chunk_size", at_most(4)),
    (r"mel|bins$", at_most(16)),
    (r"num_filters", at_most(4)),
    (r"intermediate|ffn|d_ff$|mlp_dim|feedforward|d_inner|n_inner|linear_units|mlp_size|ff_dim", at_most(INNER)),
    (r"groups$", at_most(8)),
    (r"seq_length|image_length|source|target", at_most(64)),
    (r"size|dim|channels?|width|d_model|embd|features|units|hidden|planes", at_most(WIDTH)),
]]
LEFT = re.compile(r"stride|kernel|dilation|padding|ratio|scale|factor|levels|sampl|pad_head")  # lists that stay
PLACES = re.compile(r"ind(ex|exes|ices)$|idxs?$|layer_ids$|feature_layers?$|layers_idx|^global_attention_blocks$")
EXACTLY = re.compile(r"out_ind|hook|intermediate_layers")  # of these there must be as many as before
DEPTHS = re.compile(r"depths?|num_layers|blocks|layer_nums|repeats|numb_of_layers|num_layers")
SWITCHES = dict(use_cache=False, apply_spec_augment=False, use_pretrained_backbone=False, use_timm_backbone=False,
                use_mamba_kernels=False, disable_custom_kernels=True, output_hidden_states=False, use_kernels=False)
BASE = None


def layers_of(default):
    for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth"):
        if isinstance(getattr(default, name, None), int):
            return name, getattr(default, name)
    return None, 0


def chosen_layers(default, count):
    """Places of layers of every kind that the lists with an entry a layer tell apart: two at least."""
    lists = [v for v in vars(default).values() if isinstance(v, (list, tuple)) and len(v) == count]
    kinds = [str([x[i] for x in lists]) for i in range(count)]
    first = {}
    for i, kind in enumerate(kinds):
        first.setdefault(kind, i)
    keep = sorted(first.values())[:4]
    places = [len(v) for k, v in vars(default).items()
              if EXACTLY.search(k) and isinstance(v, (list, tuple))]
    for i in range(count):
        if len(keep) < min(max(2, *places, 0), count) and i not in keep:
            keep.append(i)
    return sorted(keep)


def small_places(name, v, count, left):
    """Numbers of layers, of which fewer are left."""
    if EXACTLY.search(name):
        return [left - len(v) + i + (max(v) == count) for i in range(len(v))]
    return list(dict.fromkeys(x % left if x >= 0 else x for x in v))


def small_stages(given, count, left):
    """out_indices and out_features of fewer layers: they are not among the fields."""
    places, names = given.get("out_indices"), given.get("out_features")
    if places:
        yield "out_indices", small_places("out_indices", places, count, left)
    if names and all(re.fullmatch(r"stage\d+", n) for n in names):
        places = small_places("out_indices", [int(n[5:]) for n in names], count, left)
        yield "out_features", [f"stage{i}" for i in places]


def small_list(name, v):
    if LEFT.search(name) or not v or not all(isinstance(x, int) and not isinstance(x, bool) for x in v):
        return v
    if DEPTHS.search(name):
        return type(v)(min(x, 1) for x in v)
    if re.search(r"image_size|img_size|resolution", name):
        return type(v)([None] * len(v))
    if re.search(r"patch", name):
        return type(v)(min(x, 8) for x in v)
    common = math.gcd(*v)
    if "heads" in name:
        return type(v)(x // common for x in v)
    if len(set(v)) == 1 and len(v) > 1:  # as wide as each other, and as what is WIDTH
        return type(v)(min(x, WIDTH) for x in v)
    if max(v) > WIDTH and re.search(r"size|dim|channels?|width|filters|hidden", name):
        return type(v)(x // common * HEAD for x in v) if common > HEAD else type(v)(min(x, WIDTH) for x in v)
    return v


def small_rope(v, head):
    """Sections of a rotary embedding fill half of a head; lists of factors have an entry for each pair."""
    if not isinstance(v, dict):
        return v
    out = {}
    for k, x in v.items():
        if isinstance(x, dict):
            x = small_rope(x, head)
        elif k == "mrope_section":
            total = max(len(x), int(head * (v.get("partial_rotary_factor") or 1)) // 2)
            sizes = [max(1, e * total // sum(x)) for e in x]
            sizes[0] += total - sum(sizes)
            x = type(x)(sizes)
        elif isinstance(x, list) and k.endswith("factor"):
            x = x[:head // 2]
        out[k] = x
    return out


def with_sections(v):
    """Where a model takes sections of other sizes for granted."""
    if any(isinstance(x, dict) for x in v.values()):
        return {k: with_sections(x) if isinstance(x, dict) else x for k, x in v.items()}
    total = int(HEAD * (v.get("partial_rotary_factor") or 1)) // 2
    return {**v, "mrope_section": [total - 2 * (total // 3), total // 3, total // 3]}


@functools.cache
def has_sections(cls):
    import inspect
    folder = pathlib.Path(inspect.getfile(cls)).parent
    return any("mrope_section" in f.read_text() for f in folder.glob("modeling_*.py"))


def small(cls, default, given):
    """kwargs of cls for a tiny one; default is an object of it, given what its part says itself."""
    fields = {f.name: f for f in dataclasses.fields(cls)}
    declared = lambda f: f.default if f.default is not dataclasses.MISSING else (
        f.default_factory() if f.default_factory is not dataclasses.MISSING else None)
    kwargs = dict(given)
    count_name, count = layers_of(default)
    keep = chosen_layers(default, count) if count > 2 else list(range(count))
    image = 64 if "depths" in fields or "patch_size" not in fields else 32
    for name, f in fields.items():
        if name in BASE and name != "use_cache" or name[0] == "_":
            continue
        v = getattr(default, name, None)
        own = given.get(name, declared(f))
        if name in SWITCHES and isinstance(v, (bool, type(None))):
            kwargs[name] = SWITCHES[name]
        elif name in cls.sub_configs_defaults or v is None or isinstance(v, (bool, str, float)):
            continue
        elif name == count_name:
            kwargs[name] = len(keep)
        elif isinstance(v, (list, tuple)) and len(v) == count > 2 and not PLACES.search(name):
            picked = type(v)(v[i] for i in keep)
            kwargs[name] = small_list(name, picked) if own is not None else picked
        elif PLACES.search(name) and isinstance(v, (list, tuple)):
            if all(isinstance(x, int) for x in v) and v and count:
                kwargs[name] = type(v)(small_places(name, v, count, len(keep)))
        elif name == "rope_parameters" and own is None and v and isinstance(v, dict) and has_sections(cls):
            kwargs[name] = with_sections(v)
        elif own is None and not (isinstance(v, list) and re.search(r"depths|hidden_sizes|per_stage", name)):
            continue
        elif name == "image_grid_pinpoints":
            kwargs[name] = [[image, image], [image, 2 * image]]
        elif isinstance(v, dict):
            kwargs[name] = small_rope(v, HEAD)
        elif isinstance(v, (list, tuple)):
            kwargs[name] = small_list(name, v)
            if None in kwargs[name]:
                kwargs[name] = type(v)([image] * len(v))
        elif isinstance(v, int) and "key_value" in name and v == getattr(default, "num_attention_heads", None):
            kwargs[name] = v if v in (1, 2) else HEADS
        elif isinstance(v, int) and name == "embed_dim" and "depths" in fields:
            kwargs[name] = HEAD
        elif isinstance(v, int):
            for pattern, rule in NUMBERS:
                if pattern.search(name):
                    kwargs[name] = image if rule is None else rule(name, v)
                    break
    if len(keep) < count:
        kwargs.update(small_stages(given, count, len(keep)))
    return kwargs


def readable(config):
    """Also those of its fields that layers may have for themselves."""
    config.allow_global_per_layer_attribute_access = True
    return config


def parts(cls, default, extra):
    """kwargs of cls with its own parts as objects."""
    given = {}
    for key, spec in cls.sub_configs_defaults.items():
        sub = getattr(default, key, None)
        if sub is None or key in extra and not isinstance(extra[key], dict):
            continue
        more = dict(extra.get(key, {}))
        kind = type(sub)
        if more.get("model_type", kind.model_type) != kind.model_type:
            from transformers import CONFIG_MAPPING
            kind = CONFIG_MAPPING[more.pop("model_type")]
            sub = kind()
        else:
            more.pop("model_type", None)
        more = {**EXTRA.get(kind.model_type, {}).get("config", {}), **more}
        sub = readable(sub)
        more = {**parts(kind, sub, more), **{k: v for k, v in more.items() if k not in kind.sub_configs_defaults}}
        own = small(kind, sub, spec.init_kwargs if kind is type(getattr(default, key)) else {})
        given[key] = kind(**{**own, **more})
    return given


def tiny(model_type):
    """The configuration of this type, tiny."""
    global BASE
    from transformers import CONFIG_MAPPING, PreTrainedConfig
    BASE = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    TOKENS.clear()
    cls, extra = CONFIG_MAPPING[model_type], EXTRA.get(model_type, {}).get("config", {})
    backbone = dict(use_timm_backbone=False) if "backbone_config" in cls.sub_configs_defaults else {}
    try:
        default = cls(**backbone)
    except Exception:  # one that asks for its parts
        default = cls(**extra)
    return cls(**{**small(cls, readable(default), {}), **parts(cls, default, extra),
                  **{k: v for k, v in extra.items() if k not in cls.sub_configs_defaults or not isinstance(v, dict)}})


# ------------------------------------------------------------------ inputs
def found(config, *names, otherwise=None):
    """The first of these fields that the configuration or a part of it has."""
    for name in names:
        v = getattr(config, name, None)
        if v is not None:
            return v
    for key in type(config).sub_configs_defaults:
        sub = getattr(config, key, None)
        if sub is not None and (v := found(sub, *names)) is not None:
            return v
    return otherwise


def picture(config):
    size = found(config, "image_size", "img_size", otherwise=64)
    return tuple(size) if isinstance(size, (list, tuple)) else (size, size)


def boxes(b, s):
    corner = I(100, b, s, 4)
    corner[..., 2:] += corner[..., :2]
    return corner


# Ways to make an input, by its name, in the order in which they are tried: expressions of b, s, t (lengths), c (the
# configuration), h, w, ch, mel.
WAYS = {
    "input_ids": ["I(words(c), b, s, lo=3)"],
    "attention_mask": ["keep_mask(b, s)"],
    "decoder_input_ids": ["I(words(c), b, t, lo=3, seed=1)"],
    "bbox": ["boxes(b, s)"],
    "pixel_values": ["R(b, ch, h, w)", "R(b, ch, 64, 64)", "R(b, 2, ch, h, w)", "R(b, ch, 4, h, w)",
                     "R(b, 4, ch, h, w)", "R(b, ch, 96, 96)", "R(b, ch, 224, 224)"],
    "pixel_values_videos": ["R(b, 4, ch, h, w)", "R(b, 2, ch, h, w)", "R(b, found(c, 'frames_per_clip', "
                            "'num_frames', otherwise=8), ch, h, w)"],
    "input_features": ["R(b, mel, 2 * found(c, 'max_source_positions', otherwise=50))", "R(b, 64, mel)",
                       "R(b, mel, 64)", "R(b, mel, 128)", "R(b, 64, 80)", "R(b, 1, 1001, 64)", "R(b, 64, 160)"],
    "input_values": ["R(b, 800)", "R(b, found(c, 'max_length', otherwise=64), mel)", "R(b, 1, 1600)", "R(b, 4000)",
                     "R(b, 1, 16000)", "R(b, 16000)"],
    "past_values": ["R(b, past(c))", "R(b, past(c), found(c, 'num_input_channels', 'input_size', otherwise=1))"],
    "past_time_features": ["R(b, past(c), features(c))"],
    "past_observed_mask": ["torch.ones(b, past(c))", "torch.ones(b, past(c), found(c, 'num_input_channels', "
                           "'input_size', otherwise=1))"],
    "past_values_padding": ["torch.zeros(b, past(c), dtype=torch.long)"],
    "future_time_features": ["R(b, found(c, 'prediction_length', otherwise=2), features(c), seed=1)"],
    "future_values": ["R(b, found(c, 'prediction_length', otherwise=2), seed=2)"],
    "freq": ["I(3, b, 1)"],
    "inputs_embeds": ["R(b, s, found(c, 'hidden_size', 'd_model', 'n_embd', otherwise=64))"],
    "hidden_states": ["R(b, s, found(c, 'hidden_size', 'd_model', otherwise=64))"],
    "encoder_hidden_states": ["R(b, s, found(c, 'encoder_hidden_size', 'cross_hidden_size', 'hidden_size', "
                              "otherwise=64), seed=3)"],
    "query_embeds": ["R(b, 5, found(c, 'hidden_size', otherwise=64))"],
    "flattened_patches": ["torch.cat([torch.arange(1, 17).float()[None, :, None].expand(b, 16, 1) // 4, "
                          "torch.arange(16).float()[None, :, None].expand(b, 16, 1) % 4, R(b, 16, found(c, "
                          "'patch_embed_hidden_size', otherwise=ch * found(c, 'patch_size', otherwise=8) ** 2))], -1)"],
    "spectrogram": ["R(b, 40, mel)"],
    "visual_feats": ["R(b, 5, found(c, 'visual_feat_dim', otherwise=64))"],
    "visual_pos": ["R(b, 5, 4).abs()"],
    "visual_embeds": ["R(b, 5, found(c, 'visual_embedding_dim', otherwise=64))"],
    "task_inputs": ["I(90, b, found(c, 'task_seq_len', otherwise=7), lo=3)"],
    "audio_values": ["R(b, 1, 1600)"],
    "audio_codes": ["I(30, b, found(c, 'num_codebooks', 'num_quantizers', otherwise=2), s)"],
    "input_points": ["R(b, 1, 2, 2).abs() * 20"],
    "states": ["R(b, s, c.state_dim)"], "actions": ["R(b, s, c.act_dim)"], "returns_to_go": ["R(b, s, 1)"],
    "rewards": ["R(b, s, 1)"], "timesteps": ["torch.arange(s)[None].expand(b, s).clone()"],
    "token_type_ids": ["torch.zeros(b, s, dtype=torch.long)"],
    "qformer_input_ids": ["I(90, b, 4, lo=3, seed=4)"],
}
ALWAYS = ["attention_mask", "decoder_input_ids", "bbox", "past_time_features", "past_observed_mask",
          "past_values_padding", "future_time_features", "freq", "visual_feats", "visual_pos", "visual_embeds",
          "task_inputs", "states", "actions", "rewards", "returns_to_go", "timesteps", "query_embeds"]
LENGTHS = {"input_ids", "attention_mask", "decoder_input_ids", "bbox", "token_type_ids", "states", "actions",
           "returns_to_go", "rewards", "timesteps", "mm_token_type_ids"}  # their axis 1 is a length that may vary


def words(c):
    return min(90, found(c, "vocab_size", otherwise=90))


def past(c):
    return found(c, "context_length", otherwise=16) + max(found(c, "lags_sequence", otherwise=[0]))


def features(c):
    return max(found(c, "num_time_features", otherwise=1), 1)


def mel_of(c):
    return found(c, "num_mel_bins", "input_feat_per_channel", "n_mels", "feature_projection_input_dim", "num_mels",
                 "n_mel_bins", "input_feat_size", "mel_bins", "input_dim", otherwise=16)


def of_signature(model):
    import inspect
    return inspect.signature(model.forward).parameters


def made(ways, config):
    """b, s -> inputs by expressions."""
    code = {k: compile(v, k, "eval") for k, v in ways.items()}

    def make(b, s):
        h, w = picture(config)
        scope = dict(globals(), b=b, s=s, t=max(s - 2, 2), c=config, h=h, w=w,
                     ch=found(config, "num_channels", "in_channels", "in_chans", otherwise=3),
                     mel=mel_of(config))
        return {k: eval(x, scope) for k, x in code.items()}
    return make


def rows_of(features):
    """How many rows of features a batch of pictures or sounds has."""
    out = getattr(features, "pooler_output", None)
    out = features if out is None else out
    leaves = torch.utils._pytree.tree_leaves(out)
    return sum(x.numel() // x.shape[-1] for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point())


def masked(media, names, mel):
    """With a mask for the frames of features, where the model takes one."""
    def make(b, s):
        given = media(b, s)
        x = given.get("input_features")
        if x is not None and "input_features_mask" in names:
            given["input_features_mask"] = torch.ones(b, x.shape[1 if x.shape[-1] == mel else -1], dtype=torch.long)
        return given
    return make


def packed_pictures(config):
    """Patches of one picture of 4 x 4 patches for each row, as a list of patches, and their grid."""
    part = getattr(config, "vision_config", config)
    ch = found(part, "in_channels", "in_chans", "num_channels", otherwise=3)
    size = found(part, "patch_size", otherwise=8)
    time = found(part, "temporal_patch_size", "patch_temporal", otherwise=1)
    return lambda b, s: dict(pixel_values=R(16 * b, ch * time * size * size),
                             image_grid_thw=torch.tensor([[1, 4, 4]] * b))


def with_media(model, config, media, feature, place):
    """Text around the places of as many tokens as the features of `media` are."""
    names = of_signature(model)

    def make(b, s):
        given = media(b, s)
        ask = getattr(model, feature, None) or getattr(model.model, feature)
        import inspect
        known = inspect.signature(ask).parameters
        with torch.no_grad():
            count = rows_of(ask(**{k: v for k, v in given.items() if k in known or k in ("pixel_values",)})) // b
        ids = torch.cat([I(90, b, 2, lo=3), torch.full((b, count), place), I(90, b, s, lo=3, seed=1)], 1)
        out = dict(input_ids=ids, attention_mask=torch.ones_like(ids), **given)
        if "mm_token_type_ids" in names:
            out["mm_token_type_ids"] = (ids == place).int()
        if "token_type_ids" in names:
            out["token_type_ids"] = (ids == place).long()
        if "decoder_input_ids" in names:
            out["decoder_input_ids"] = I(90, b, 5, lo=3, seed=2)
        return out
    return make


def candidates(model, model_type):
    """Functions of a batch and a length that give inputs, the likeliest first."""
    config, names = model.config, of_signature(model)
    own = EXTRA.get(model_type, {}).get("inputs", {}).get(type(model).__name__) or \
        EXTRA.get(model_type, {}).get("inputs", {}).get("")
    if own:
        yield made(own, config)
        return
    main = model.main_input_name
    main = list(main) if isinstance(main, (list, tuple)) else [main]
    needed = [n for n, p in names.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    image = found(config, "image_token_id", "image_token_index")
    audio = found(config, "audio_token_id", "audio_token_index")
    if "grid_thw" in names:
        grids = packed_pictures(config)
        yield lambda b, s: {k: v for k, v in zip((main[0] if main[0] in names else needed[0], "grid_thw"),
                                                 grids(b, s).values())}
    if "input_ids" in names and "pixel_values" in names and image is not None:
        if "image_grid_thw" in names and hasattr(config, "vision_config"):
            yield with_media(model, config, packed_pictures(config), "get_image_features", image)
        sizes = {"image_sizes": "torch.tensor([[h, w]] * b)"} if "image_sizes" in names else {}
        for way in WAYS["pixel_values"]:
            for more in (sizes, {}) if sizes else ({},):
                asked = {n: WAYS[n][0] for n in needed if n in WAYS and n not in (*main, *LENGTHS)}
                media = made({**asked, "pixel_values": way, **more}, config)
                yield with_media(model, config, media, "get_image_features", image)
    if "input_ids" in names and audio is not None:
        for name in ("input_features", "input_values"):
            for way in WAYS[name] if name in names else ():
                yield with_media(model, config, masked(made({name: way}, config), names, mel_of(config)),
                                 "get_audio_features", audio)
    both = ["input_ids"] * ("input_ids" in names and ("pixel_values" in main or "pixel_values" in needed)
                            and "pixel_values" in names)
    texts = "input_ids" in main or both
    beside = ["pixel_values"] * ("input_ids" in main and "pixel_values" in names and image is None)
    picked = [n for n in dict.fromkeys([*main, *both, *needed, *beside, *ALWAYS]) if n in names and n in WAYS
              and (n != "attention_mask" or texts) and (n != "decoder_input_ids" or config.is_encoder_decoder
                                                        or n in needed)]
    optional = [n for n in picked if n not in needed and n not in main and n not in both]
    for fewer in ([], [n for n in optional if n == "attention_mask"], optional):
        left = [n for n in picked if n not in fewer]
        for combination in itertools.islice(itertools.product(*(WAYS[n] for n in left)), 12):
            yield masked(made(dict(zip(left, combination)), config), names, mel_of(config))


STAGES = {"stem_channels": [3, 16, 16], "stage_in_channels": [16, 16, 16, 32], "stage_mid_channels": [16] * 4,
          "stage_out_channels": [16, 16, 32, 64], "hidden_sizes": [16, 16, 32, 64]}  # of HGNetV2
PATCHES = {"pixel_values": "R(b, 16, 3 * found(c, 'patch_size') ** 2)",
           "pixel_attention_mask": "torch.ones(b, 16, dtype=torch.long)",
           "spatial_shapes": "torch.tensor([[4, 4]] * b)"}

NATIVE = {"pixel_values": "R(1, 3, h, w * b)", "target_sizes": "torch.tensor([[h, w]] * b) // c.patch_size"}

WINDOWS = {"scale_factor_list": [1, 2, 4, 8], "kernel_list": [3, 2, 2], "intraclass_block_config": {
    **{f"{way}_{what}ratio": [size, 1, [x // 2 for x in size]]
       for what, k in (("long", 7), ("mid", 5), ("short", 3))
       for way, size in (("vertical_long_to_small_conv", [k, 1]), ("horizontal_small_to_long_conv", [1, k]),
                         ("symmetric_conv_long", [k, k]))},
    "reduce_channel": [1, 1, 0], "return_channel": [1, 1, 0]}}  # of the PP-OCR detectors' necks

PYRAMID = {"model_type": "pp_lcnet_v4", "stem_channels": [3, 48, 96],
           "block_configs": [[[3, 96, 96, 1, True]], [[3, 96, 96, 2, False]], [[3, 96, 192, 2, True]],
                             [[3, 192, 384, 2, False]]],
           "out_features": ["stage1", "stage2", "stage3", "stage4"], "out_indices": [1, 2, 3, 4]}

HIERA = {"backbone_channel_list": [128, 64, 32, 16], "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]]}

CODEC = {"model_type": "mimi", "num_filters": 4, "hidden_size": 64, "codebook_dim": 64, "codebook_size": 32,
         "vector_quantization_hidden_dimension": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
         "num_key_value_heads": 4, "intermediate_size": 96, "upsample_groups": 64, "num_quantizers": 4}

EXTRA = {
    "autoformer": {"config": {"prediction_length": 2, "num_time_features": 1}},
    "bamba": {"config": {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": "auto"}},
    "beit": {"config": {"num_hidden_layers": 4, "out_indices": [0, 1, 2, 3]}},
    "blip-2": {"config": {"image_token_id": 110}},
    "cohere_compass_text": {"config": {"rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 10000.0}}}},
    "cvt": {"config": {"depth": [1, 2, 3]}},
    "deepseek_ocr2": {"config": {
        "vision_config": {"sam_config": {"downsample_channels": [WIDTH // 2, WIDTH]}},
        "text_config": {"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2}}},
    "deepseek_v2": {"config": {"num_experts_per_tok": 2}},
    "dia": {"config": {"delay_pattern": [0, 8, 9, 10]}},
    "diffusion_gemma": {"config": {"text_config": {
        "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}}},
    "donut-swin": {"config": {"window_size": 2}},
    "depth_pro": {"config": {"patch_size": 32, "intermediate_hook_ids": [1, 0]},
                  "inputs": {"": {"pixel_values": "R(b, 3, 128, 128)"}}},
    "efficientnet": {"config": {"hidden_dim": 2560}},
    "esm": {"config": {"vocab_size": 96, "pad_token_id": 1, "mask_token_id": 2}},
    "evolla": {"config": {"protein_encoder_config": {
        "vocab_size": 96, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS,
        "intermediate_size": INNER}, "aligner_num_add_layers": 1, "resampler_depth": 1},
        "inputs": {"": {"input_ids": "I(90, b, s, lo=3)", "attention_mask": "keep_mask(b, s)",
                        "protein_input_ids": "I(90, b, 6, lo=5)",
                        "protein_attention_mask": "torch.ones(b, 6, dtype=torch.long)"}}},
    "exaone4_5_vision": {"config": {"window_size": 32}},
    "falcon_h1": {"config": {"mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16}},
    "clap": {"config": {"audio_config": {"hidden_size": 512, "num_mel_bins": 64, "spec_size": 256}},
             "inputs": {"": {"input_ids": "I(90, b, s, lo=3)", "input_features": "R(b, 1, 1001, 64)"}}},
    "clvp": {"config": {"text_config": {"num_attention_heads": 2}, "speech_config": {"num_attention_heads": 2}},
             "inputs": {"": {"input_ids": "I(90, b, s, lo=3)",
                             "input_features": "R(b, c.decoder_config.feature_size, 40)",
                             "attention_mask": "torch.ones(b, s, dtype=torch.long)"}}},
    "dac": {"config": {"encoder_hidden_size": 8}},
    "dots1": {"config": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2}},
    "dbrx": {"config": {"attn_config": {"clip_qkv": 8.0, "rope_theta": 10000.0}}},
    "fastspeech2_conformer_with_hifigan": {"config": {"vocoder_config": {"model_in_dim": HEAD}}},
    "fun_asr_nano": {"config": {"adaptor_config": {"intermediate_size": WIDTH // 4}}},
    "fun_asr_nano_encoder": {"inputs": {"": {
        "input_features": "R(b, 20, c.num_mel_bins * c.num_stacked_frames)",
        "input_features_mask": "torch.ones(b, 20, dtype=torch.long)"}}},
    "funnel": {"config": {"block_sizes": [1, 1, 1]}},
    "gemma3n_audio": {"inputs": {"": {"audio_mel": "R(b, 64, c.input_feat_size)",
                                      "audio_mel_mask": "torch.arange(64) >= 64 - 8 * torch.arange(b)[:, None]"}}},
    "gpt_neo": {"config": {"attention_types": [[["global", "local"], 1]]}},
    "glm5_next_text": {"config": {"index_topk": 16}},
    "hgnet_v2": {"config": STAGES},
    "hunyuan_v1_dense": {"config": {"head_dim": 16}},
    "hunyuan_v1_moe": {"config": {"head_dim": 16}},
    "hunyuan_vl_text": {"config": {"head_dim": 16}},
    "informer": {"config": {"prediction_length": 2, "num_time_features": 1}},
    "inkling2_vision": {"inputs": {"": {
        "pixel_values": "R(4 * b, *[c.patch_size * c.spatial_merge_size] * 2, ch).tanh()",
        "image_grid_thw": "torch.tensor([[1, 2, 2]] * b)"}}},
    "instructblip": {"config": {"image_token_id": 110}},
    "levit": {"config": {"patch_size": 16, "image_size": 64}},
    "lfm2_moe": {"config": {"layer_types": ["conv", "full_attention"]}},
    "lightglue": {"config": {"keypoint_detector_config": {"keypoint_decoder_dim": 65}},
                  "inputs": {"": {"pixel_values": "R(b, 2, 3, h, w)"}}},
    "kosmos-2": {"inputs": {"": {
        "pixel_values": "R(b, 3, h, w)", "input_ids": "I(90, b, c.latent_query_num + s, lo=3)",
        "image_embeds_position_mask": "(torch.arange(c.latent_query_num + s) < c.latent_query_num).long()[None]"
                                      ".repeat(b, 1)"}}},
    "layoutlmv3": {"config": {"coordinate_size": 11, "shape_size": 10}},
    "gemma4_vision": {"inputs": {"": {
        "pixel_values": "R(b, 36, 3 * c.patch_size ** 2).sigmoid()",
        "pixel_position_ids": "torch.stack([torch.arange(36) % 6, torch.arange(36) // 6], -1)[None].repeat(b, 1, 1)"}}},
    "lw_detr": {"config": {"projector_scale_factors": [1.0]}},
    "lilt": {"config": {"hidden_size": 96}},
    "mamba2": {"config": {"num_heads": 8, "n_groups": 1}},
    "mimi_decoder": {"inputs": {"": {"latents": "R(b, c.hidden_size, s)"}}},
    "minicpm_ocr_vision": {"inputs": {"": NATIVE}},
    "minicpmv4_7_vision": {"inputs": {"": NATIVE}},
    "muse_glimmer_assistant": {"inputs": {"": {
        "noise_embeds": "R(b, s, c.hidden_size)", "attention_mask": "torch.ones(b, 5 + s, dtype=torch.long)",
        "context_hidden_states": "R(b, 5, c.hidden_size * len(c.target_layer_ids), seed=1)"}}},
    "muse_spark_audio": {"inputs": {"": {"input_values": "R(b, 960 * s)"}}},
    "musicgen": {"inputs": {"": {"input_ids": "I(30, 4 * b, s)"}}},
    "musicgen_melody": {"inputs": {"": {"input_ids": "I(30, 4 * b, s)"}}},
    "nemotron": {"config": {"num_key_value_heads": 2}},
    "ministral": {"config": {"head_dim": HEAD}},
    "nemotron_h": {"config": {"mamba_num_heads": 8}},
    "nemotron3_5_asr": {"config": {"default_prompt_id": 3},
                        "inputs": {"": {"input_features": "R(b, 64, mel)", "decoder_input_ids": "I(90, b, s, lo=3)"}}},
    "nystromformer": {"config": {"conv_kernel_size": 5}, "inputs": {"": {"input_ids": "I(90, b, 64, lo=3)"}}},
    "omdet-turbo": {"config": {"decoder_hidden_dim": 32, "encoder_hidden_dim": 32,
                               "vision_features_channels": [32] * 3, "encoder_in_channels": [32, 64, 128],
                               "apply_layernorm_after_vision_backbone": False},
                    "inputs": {"": {
        "pixel_values": "R(b, 3, h, w)", "classes_input_ids": "I(90, 3 * b, 4, lo=3)",
        "classes_attention_mask": "torch.ones(3 * b, 4, dtype=torch.long)", "tasks_input_ids": "I(90, b, 5, lo=3)",
        "tasks_attention_mask": "torch.ones(b, 5, dtype=torch.long)", "classes_structure": "torch.full((b,), 3)"}}},
    "pe_audio_encoder": {"config": {"dac_config": {"encoder_hidden_size": 8}}},
    "perceiver": {"config": {"max_position_embeddings": 16, "d_latents": 64, "qk_channels": 32, "v_channels": 64},
                  "inputs": {"": {"inputs": "I(90, b, 16, lo=3)"}}},
    "pi0": {"inputs": {"": {
        "state": "R(b, c.max_state_dim)", "noise": "R(b, c.chunk_size, c.max_action_dim, seed=1)",
        "timestep": "R(b).sigmoid()", "pixel_values": "R(b, 2, 3, h, w)",
        "pixel_attention_mask": "torch.ones(b, 2, dtype=torch.bool)",
        "input_ids": "torch.cat([torch.full((b, 32), c.vlm_config.image_token_id), I(90, b, s, lo=3)], 1)",
        "attention_mask": "torch.ones(b, 32 + s, dtype=torch.long)"}}},
    "qwen2_5_vl": {"config": {"vision_config": {"window_size": 32}}},
    "qwen2_5_vl_vision": {"config": {"window_size": 32}},
    "pp_lcnet_v4": {"config": {"stem_channels": [3, 48, 96]}},
    "pp_ocrv5_server_det": {"config": WINDOWS},
    "pp_ocrv6_medium_det": {"config": {**WINDOWS, "backbone_config": PYRAMID}},
    "pp_ocrv6_small_det": {"config": {"layer_list_out_channels": [96, 96, 192, 384], "backbone_config": PYRAMID}},
    "slanext": {"config": {"post_conv_in_channels": 64}},
    "pp_doclayout_v3": {"config": {"x4_feat_dim": 16}},
    "prompt_depth_anything": {"config": {"backbone_config": {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]}}},
    "pvt": {"config": {"num_encoder_blocks": 4}},
    "reformer": {"config": {"is_decoder": True, "attn_layers": ["local", "lsh"], "axial_pos_shape": [4, 4],
                            "axial_pos_embds_dim": [16, 48], "num_buckets": 2, "local_attn_chunk_length": 4,
                            "lsh_attn_chunk_length": 4, "hash_seed": 0},
                 "inputs": {"": {"input_ids": "I(90, b, 16, lo=3)"}}},
    "qwen3_asr_encoder": {"config": {"n_window_infer": 16}, "inputs": {"": {
        "input_features": "R(b, mel, 64)", "input_features_mask": "torch.ones(b, 64, dtype=torch.long)"}}},
    "sam2": {"config": {"vision_config": HIERA}},
    "sam2_vision_model": {"config": HIERA},
    "sam2_hiera_det_model": {"config": {"hidden_size": 16, "image_size": [64, 64]}},
    "sam3_vision_model": {"config": {"backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]]}},
    "seggpt": {"config": {"merge_index": 0}, "inputs": {"": {
        "pixel_values": "R(b, 3, h // 2, w)", "prompt_pixel_values": "R(b, 3, h // 2, w, seed=1)",
        "prompt_masks": "R(b, 3, h // 2, w, seed=2)"}}},
    "siglip2": {"inputs": {"": PATCHES}},
    "siglip2_vision_model": {"inputs": {"": PATCHES}},
    "swin": {"config": {"window_size": 2}},
    "step3p5": {"config": {"sliding_window": 4}},
    "superglue": {"config": {"keypoint_detector_config": {"keypoint_decoder_dim": 65}},
                  "inputs": {"": {"pixel_values": "R(b, 2, 3, h, w)"}}},
    "superpoint": {"config": {"keypoint_decoder_dim": 65}},
    "time_series_transformer": {"config": {"prediction_length": 2, "num_time_features": 1}},
    "textnet": {"config": {"stem_out_channels": HEAD}},
    "tvp": {"config": {"visual_prompt_size": 8},
            "inputs": {"": {"input_ids": "I(90, b, s, lo=3)", "pixel_values": "R(b, c.num_frames, 3, h, w)"}}},
    "uvdoc": {"config": {"bridge_connector": (128, 128), "backbone_config": {
        "out_features": [f"stage{i}" for i in range(1, 7)]}}},
    "univnet": {"config": {"model_in_channels": WIDTH},
                "inputs": {"": {"input_features": "R(b, 12, mel)",
                                "noise_sequence": "R(b, 12, c.model_in_channels, seed=1)"}}},
    "vibevoice_acoustic_tokenizer_decoder": {"inputs": {"": {"hidden_states": "R(b, c.hidden_size, 10)"}}},
    "vibevoice_asr": {"config": {"acoustic_tokenizer_chunk_size": 3200}},
    "video_llama_3_vision": {"inputs": {"": {
        "pixel_values": "R(16 * b, 3 * c.patch_size ** 2)", "grid_thw": "torch.tensor([[1, 4, 4]] * b)",
        "merge_sizes": "torch.full((b,), 2)"}}},
    "vibevoice_acoustic_tokenizer_encoder": {"inputs": {"": {"hidden_states": "R(b, 1, 16000)"}}},
    "vitmatte": {"config": {"backbone_config": {"patch_size": 16}, "fusion_hidden_sizes": [64, 32, 16, 8]}},
    "wav2vec2-conformer": {"config": {"vocab_size": 32}},
    "wav2vec2-bert": {"config": {"vocab_size": 32}},
    "zamba": {"config": {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"]}},
    "align": {"config": {"vision_config": {"hidden_dim": 2560}, "projection_dim": 128}},
    "molmo2": {"config": {"adapter_config": {"vision_feature_layer": [1, 0]}}},
    "kimi_k25_vision": {"inputs": {"": {
        "pixel_values": "R(16 * b, 3, c.patch_size, c.patch_size)", "grid_thw": "torch.tensor([[1, 4, 4]] * b)"}}},
    "kyutai_speech_to_text": {"config": {"codec_config": CODEC},
                              "inputs": {"": {"input_ids": "I(30, b, s, c.num_codebooks + 1)"}}},
    "csm": {"config": {"codec_config": CODEC}},
    "chameleon": {"config": {"vocabulary_map": {
        "<image>": 110, **{f"IMGIMG{chr(65 + i // 10)}{chr(65 + i % 10)}Z": 3 + i for i in range(32)}}}},
    "instructblipvideo": {"config": {"video_token_id": 110}, "inputs": {"": {
        "pixel_values": "R(b, 4, 3, h, w)", "qformer_input_ids": "I(90, b, 4, lo=3)",
        "input_ids": "torch.cat([torch.full((b, 4 * c.num_query_tokens), 110), I(90, b, s, lo=3)], 1)"}}},
    "voxtral_realtime": {"inputs": {"": {"input_ids": "I(90, b, s, lo=3)", "input_features": "R(b, mel, 8 * s)"}}},
    "pp_formulanet": {"config": {"vision_config": {"post_conv_in_channels": 64}}},
    "speech-encoder-decoder": {"inputs": {"": {
        "input_values": "R(b, 4000)", "decoder_input_ids": "I(90, b, t, lo=3)"}}},
}
