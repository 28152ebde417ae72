"""The models that bench/peers.py, bench/accuracy.py and bench/plots.py time:
a name becomes a module with random weights and its inputs.

    module, inputs = build("bert_b_padded")            inputs: positional, in the order of the module's forward
    names("sdpa")                                      what a user may ask for, by group

sdpa_B_H_N_D is the attention operator alone: queries (B, H, N, D) against as many keys.
Endings, in any order and number:
    _causal      a query sees itself and the keys before it
    _kpm         a key padding mask (B, 1, 1, N), true where a key is real:
                 the first batch row has all keys, the last a quarter
    _bias        a bias (B, H, N, N) of its own for every head, added to the scores
    _gqaK        K heads of keys and values, each for H / K heads of queries
    _decode      one query against N keys
bert_b_pad_P and minilm_pad_P are batches in which P percent of the positions are padding.
"""
import os
import sys

GROUPS = {
    "sdpa": ["sdpa_1_12_197_64", "sdpa_1_12_512_64", "sdpa_1_16_576_64", "sdpa_1_16_5184_64", "sdpa_4_8_1024_128",
             "sdpa_4_8_1024_128_causal", "sdpa_1_12_512_64_causal", "sdpa_8_12_512_64_kpm", "sdpa_1_12_512_64_bias",
             "sdpa_1_32_1024_64_gqa8", "sdpa_1_32_4096_128_gqa8_decode"],
    "models": ["vit_b", "vit_l6_512", "bert_b_128", "bert_b_512", "swin_t", "detr", "clip", "whisper_enc",
               "whisper_dec", "llama_prefill", "llama_decode", "convnext_t", "resnet50", "sam3_tiny", "dinov2_s",
               "t5_small", "modernbert"],
    "padded": ["bert_b_padded", "minilm_padded"],
}


def names(text):
    """A list of names and groups ("models,bert_b_padded") as names; "all" is every group."""
    out = []
    for n in text.split(","):
        out += sum(GROUPS.values(), []) if n == "all" else GROUPS.get(n, [n])
    return out


def lengths_for(batch, seq, share):
    """`batch` lengths from `seq` falling as a power, so that `share` of the positions is padding,
    as near as one can get."""
    real, low, high = batch * seq * (1 - share), 0.0, 100.0
    for _ in range(60):                                        # bisection of the exponent
        power = (low + high) / 2
        lengths = [max(1, round(seq * ((batch - i) / batch) ** power)) for i in range(batch)]
        low, high = (power, high) if sum(lengths) > real else (low, power)
    return lengths


def sdpa(name):
    import torch
    p = name.split("_")
    b, h, n, d = map(int, p[1:5])
    ends = p[5:]
    groups = next((int(e[3:]) for e in ends if e.startswith("gqa")), h)
    causal, rows = "causal" in ends, 1 if "decode" in ends else n
    unknown = [e for e in ends if e not in ("causal", "kpm", "bias", "decode") and not e.startswith("gqa")]
    if unknown:
        sys.exit(f"unknown ending _{unknown[0]} of {name}")

    class S(torch.nn.Module):
        def forward(self, q, k, v, mask=None):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal,
                                                                    enable_gqa=groups != h)

    x = (torch.randn(b, h, rows, d), torch.randn(b, groups, n, d), torch.randn(b, groups, n, d))
    if "kpm" in ends:
        last = n // 4 if b > 1 else 3 * n // 4
        lens = torch.linspace(n, last, b).long() if b > 1 else torch.tensor([last])
        x += ((torch.arange(n)[None] < lens[:, None])[:, None, None, :],)
    if "bias" in ends:
        x += (torch.randn(b, h, rows, n),)
    return S(), x


def sdpa_flops(name):
    b, h, n, d = map(int, name.split("_")[1:5])
    return 4 * b * h * (1 if "_decode" in name else n) * n * d // (2 if "causal" in name else 1)


def build(name):
    """(module, inputs); the same weights and inputs in every process."""
    import torch
    torch.manual_seed(0)
    if name.startswith("sdpa_"):
        return sdpa(name)
    import transformers as tf
    tf.logging.set_verbosity_error()
    torch.manual_seed(0)

    class Named(torch.nn.Module):
        """Positional inputs by name in, the results called `pick` out."""
        def __init__(self, m, names, pick=("last_hidden_state",)):
            super().__init__()
            self.m, self.names, self.pick = m, names, pick

        def forward(self, *x):
            y = self.m(**dict(zip(self.names, x)))
            r = tuple(getattr(y, p) for p in self.pick)
            return r if len(r) > 1 else r[0]

    def bert(batch, seq, lengths=None, **kw):
        m = tf.BertModel(tf.BertConfig(attn_implementation="sdpa", **kw), add_pooling_layer=False)
        ids = torch.randint(5, 30000, (batch, seq))
        if lengths is None:
            return Named(m, ["input_ids"]), (ids,)
        mask = (torch.arange(seq)[None] < torch.tensor(lengths)[:, None]).long()
        return Named(m, ["input_ids", "attention_mask"]), (ids, mask)

    def vit(**kw):
        return Named(tf.ViTModel(tf.ViTConfig(attn_implementation="sdpa", **kw), add_pooling_layer=False),
                     ["pixel_values"])

    minilm = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    if name == "vit_b":
        return vit(), (torch.randn(1, 3, 224, 224),)
    if name == "vit_l6_512":
        return vit(hidden_size=1024, num_hidden_layers=6, num_attention_heads=16, intermediate_size=4096,
                   image_size=512), (torch.randn(1, 3, 512, 512),)
    if name == "bert_b_128":
        return bert(1, 128)
    if name == "bert_b_512":
        return bert(1, 512)
    # the everyday batch: one long text, many short ones; 41 % real tokens
    if name == "bert_b_padded":
        return bert(8, 128, [128, 96, 64, 48, 32, 24, 16, 12])
    if name == "minilm_padded":
        return bert(16, 128, [128, 100, 80, 64, 50, 40, 32, 28, 24, 20, 18, 16, 14, 12, 10, 8], **minilm)
    if name.startswith("bert_b_pad_"):
        return bert(8, 128, lengths_for(8, 128, int(name.split("_")[-1]) / 100))
    if name.startswith("minilm_pad_"):
        return bert(16, 128, lengths_for(16, 128, int(name.split("_")[-1]) / 100), **minilm)
    if name == "swin_t":
        return Named(tf.SwinModel(tf.SwinConfig(), add_pooling_layer=False),
                     ["pixel_values"]), (torch.randn(1, 3, 224, 224),)
    # DETR-R50 with a backbone of transformers' own, on one square picture
    if name == "detr":
        c = tf.DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
                          backbone_config=tf.ResNetConfig(out_features=["stage4"]))
        c._attn_implementation = {"": "sdpa", "backbone_config": "eager"}
        return (Named(tf.DetrForObjectDetection(c), ["pixel_values", "pixel_mask"], ("logits", "pred_boxes")),
                (torch.randn(1, 3, 640, 640), torch.ones(1, 640, 640, dtype=torch.long)))
    if name == "clip":                                # ViT-B/32 and its text tower: one picture, four captions
        c = tf.CLIPConfig(attn_implementation="sdpa")
        ids = torch.randint(5, 49000, (4, 77))
        ids[:, -1] = c.text_config.eos_token_id
        return (Named(tf.CLIPModel(c), ["input_ids", "pixel_values"],
                      ("logits_per_image", "text_embeds", "image_embeds")), (ids, torch.randn(1, 3, 224, 224)))
    if name.startswith("whisper"):                    # whisper-tiny's sizes: 30 s of sound; one token of the answer
        c = tf.WhisperConfig(d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
                             decoder_attention_heads=6, encoder_ffn_dim=1536,
                             decoder_ffn_dim=1536, attn_implementation="sdpa")
        if name == "whisper_enc":
            return Named(tf.WhisperModel(c).encoder, ["input_features"]), (torch.randn(1, 80, 3000),)
        return cached(tf.WhisperModel(c).decoder, c.decoder_layers, 4 * [(1, 6, 64, 64)], 4 * [(1, 6, 1500, 64)], 64)
    if name.startswith("llama"):
        c = tf.LlamaConfig(hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4,
                           intermediate_size=2816,
                           max_position_embeddings=4096, attn_implementation="sdpa", use_cache=False)
        if name == "llama_prefill":
            return Named(tf.LlamaModel(c), ["input_ids"]), (torch.randint(5, 30000, (1, 256)),)
        return cached(tf.LlamaModel(c), c.num_hidden_layers, 8 * [(1, 4, 512, 64)], None, 512)
    if name == "convnext_t":
        return Named(tf.ConvNextModel(tf.ConvNextConfig()), ["pixel_values"]), (torch.randn(1, 3, 224, 224),)
    if name == "resnet50":
        return Named(tf.ResNetModel(tf.ResNetConfig()), ["pixel_values"], ("pooler_output",)), (
            torch.randn(1, 3, 224, 224),)
    if name == "dinov2_s":
        c = tf.Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=518, attn_implementation="sdpa")
        return Named(tf.Dinov2Model(c), ["pixel_values"]), (torch.randn(1, 3, 518, 518),)
    if name == "t5_small":                            # its encoder
        return Named(tf.T5EncoderModel(tf.T5Config()), ["input_ids"]), (torch.randint(5, 30000, (1, 512)),)
    if name == "modernbert":                          # every third layer looks at all tokens, the others at 128
        c = tf.ModernBertConfig(attn_implementation="sdpa", reference_compile=False)
        return Named(tf.ModernBertModel(c), ["input_ids"]), (torch.randint(5, 30000, (1, 512)),)
    if name == "sam3_tiny":                           # the recipe's: all of SAM 3's parts, pictures of 112 x 112
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
        from qkv.recipes import sam3
        ids = torch.zeros(1, 32, dtype=torch.long)
        ids[0, :4] = torch.tensor([1022, 600, 700, 1023])
        return sam3.Grounding(sam3.random_model(tiny=True)), (torch.randn(1, 3, 112, 112), ids)
    sys.exit(f"unknown model {name}")


def cached(model, layers, own, cross, at):
    """One token at position `at` of a decoder: keys and values of the tokens before it (and of the encoder's output)
    are inputs."""
    import torch
    from transformers import DynamicCache, EncoderDecoderCache

    def cache(kv):
        c = DynamicCache()
        for i in range(layers):
            c.update(kv[2 * i], kv[2 * i + 1], i)
        return c

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def forward(self, ids, *kv):
            past = cache(kv[:2 * layers])
            if cross is None:
                return self.m(input_ids=ids, past_key_values=past, use_cache=True).last_hidden_state
            past = EncoderDecoderCache(past, cache(kv[2 * layers:]))
            for i in range(layers):
                past.is_updated[i] = True
            # its keys and values are cached: never read
            encoded = torch.zeros(1, cross[0][2], cross[0][1] * cross[0][3])
            return self.m(input_ids=ids, encoder_hidden_states=encoded, past_key_values=past,
                          use_cache=True).last_hidden_state

    kv = [torch.randn(s) for s in own for _ in "kv"] + [torch.randn(s) for s in cross or [] for _ in "kv"]
    return Step(), (torch.randint(5, 30000, (1, 1)), *kv)
