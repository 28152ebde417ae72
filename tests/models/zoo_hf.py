"""Attention models of the transformers package, tiny and with strong random weights, in eager and sdpa spellings."""
import transformers as T

from zoo import *

ENC = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
           max_position_embeddings=80)
DEC = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
           intermediate_size=37, max_position_embeddings=128, use_cache=False)
VIS = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, image_size=32,
           patch_size=8)
S2S = dict(vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
           decoder_attention_heads=4, encoder_ffn_dim=37, decoder_ffn_dim=37)
T5 = dict(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
          relative_attention_max_distance=20)
WAV = dict(vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
           conv_dim=[16] * 3, conv_stride=[4, 4, 2], conv_kernel=[8, 8, 4],
           num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
           apply_spec_augment=False)


def build(cls, config, attn):
    torch.manual_seed(0)
    return strengthen(cls._from_config(config, attn_implementation=attn) if hasattr(cls, "_from_config")
                      else cls(config))


class Wrap(nn.Module):
    """Calls the model with its inputs by keyword and returns the picked fields,
    so that only tensors leave the graph."""
    def __init__(self, m, pick, fixed):
        super().__init__()
        self.m, self.pick, self.fixed = m, pick, fixed


def wrap(m, names, pick, **fixed):
    scope = {}
    exec(f"def forward(self, {', '.join(names)}):\n    out = self.m({', '.join(f'{n}={n}' for n in names)}, "
         "**self.fixed)\n"
         "    r = tuple(getattr(out, p) for p in self.pick)\n    return r if len(r) > 1 else r[0]\n", scope)
    return type("Wrap", (Wrap,), scope)(m, pick, fixed).eval()


def both(name, make, impls=("sdpa", "eager"), **options):
    for impl in impls:
        model(f"{name}_{impl}", **options)(lambda impl=impl: make(impl))


def text(name, cls, config, pick=("last_hidden_state",), mask=True, shapes=((2, 7), (3, 12), (1, 4)),
         impls=("sdpa", "eager"), grad=False, hi=98, **fixed):
    names = ["input_ids"] + ["attention_mask"] * mask
    def make(impl):
        mk = lambda b, s: {"input_ids": I(hi, b, s, lo=3), **({"attention_mask": keep_mask(b, s)} if mask else {})}
        b, s = batch(), seq()
        return wrap(build(cls, config(), impl), names, pick, return_dict=True,
                    **fixed), [mk(*x) for x in shapes], {n: {0: b, 1: s} for n in names}
    both(name, make, impls, grad=grad)


def image(name, cls, config, pick=("last_hidden_state",), size=32, hw=None, shapes=None, impls=("sdpa", "eager"),
          **fixed):
    """hw = (step, min, max): height and width are step*Dim; otherwise the batch alone is dynamic."""
    def make(impl):
        dims = {0: batch()}
        if hw:
            dims.update({2: hw[0] * Dim("h", min=hw[1], max=hw[2]), 3: hw[0] * Dim("w", min=hw[1], max=hw[2])})
        return (wrap(build(cls, config(), impl), ["pixel_values"], pick, **fixed),
                [dict(pixel_values=R(b, 3, h, w)) for b, h, w in shapes or [(2, size, size), (3, size, size)]],
                dict(pixel_values=dims))
    both(name, make, impls)


EAGER = ("eager",)
text("albert", T.AlbertModel, lambda: T.AlbertConfig(embedding_size=16, **ENC))
text("bert", T.BertModel, lambda: T.BertConfig(**ENC), ("last_hidden_state", "pooler_output"))
text("bert_grad", T.BertModel, lambda: T.BertConfig(**ENC), impls=("sdpa",), grad=True)
text("distilbert", T.DistilBertModel, lambda: T.DistilBertConfig(vocab_size=99, dim=32, n_layers=2, n_heads=4,
                                                                 hidden_dim=37, max_position_embeddings=80))
text("electra", T.ElectraModel, lambda: T.ElectraConfig(embedding_size=16, **ENC))
text("roberta", T.RobertaModel, lambda: T.RobertaConfig(**ENC))
text("mpnet", T.MPNetModel, lambda: T.MPNetConfig(**ENC), impls=EAGER)
text("deberta_v2", T.DebertaV2Model, lambda: T.DebertaV2Config(relative_attention=True, position_buckets=8,
                                                               pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm",
                                                               share_att_key=True, **ENC),
     impls=EAGER)
text("modernbert", T.ModernBertModel, lambda: T.ModernBertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=3,
                                                                 num_attention_heads=4, intermediate_size=37,
                                                                 local_attention=6,
     pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2))
text("t5_encoder", T.T5EncoderModel, lambda: T.T5Config(**T5))
text("clip_text", T.CLIPTextModel, lambda: T.CLIPTextConfig(eos_token_id=98, bos_token_id=0, pad_token_id=1, **ENC))
text("siglip_text", T.SiglipTextModel, lambda: T.SiglipTextConfig(**ENC))
text("gpt2", T.GPT2Model, lambda: T.GPT2Config(vocab_size=99, n_positions=80, n_embd=32, n_layer=2, n_head=4),
     use_cache=False)
text("gptneox", T.GPTNeoXModel, lambda: T.GPTNeoXConfig(rotary_pct=0.5, **ENC), use_cache=False)
text("bloom", T.BloomModel, lambda: T.BloomConfig(vocab_size=99, hidden_size=32, n_layer=2, n_head=4), impls=EAGER,
     use_cache=False)
text("llama", T.LlamaModel, lambda: T.LlamaConfig(**DEC), use_cache=False)
text("llama_lm_grad", T.LlamaForCausalLM, lambda: T.LlamaConfig(**DEC), ("logits",), mask=False, grad=True,
     use_cache=False)
text("mistral", T.MistralModel, lambda: T.MistralConfig(sliding_window=4, head_dim=8, **DEC), use_cache=False)
text("qwen2", T.Qwen2Model, lambda: T.Qwen2Config(**DEC), grad=True, use_cache=False)
text("qwen3_tied", T.Qwen3ForCausalLM, lambda: T.Qwen3Config(head_dim=8, tie_word_embeddings=True, **DEC),
     ("logits",), mask=False, use_cache=False)
text("gemma2", T.Gemma2Model, lambda: T.Gemma2Config(head_dim=8, sliding_window=4, **DEC), impls=EAGER, use_cache=False)
text("gemma3", T.Gemma3TextModel, lambda: T.Gemma3TextConfig(head_dim=8, sliding_window=4, **DEC), use_cache=False)
text("phi3", T.Phi3Model, lambda: T.Phi3Config(pad_token_id=0, **DEC), use_cache=False)
text("opt", T.OPTModel, lambda: T.OPTConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                            ffn_dim=37, max_position_embeddings=80, word_embed_proj_dim=32),
     use_cache=False)


def pair(name, cls, config, pick, **fixed):
    def make(impl):
        mk = lambda b, s, t: dict(input_ids=I(98, b, s, lo=3), attention_mask=keep_mask(b, s),
                                  decoder_input_ids=I(98, b, t, lo=3, seed=1))
        b, s, t = batch(), seq(), seq("tgt", mx=60)
        names = ["input_ids", "attention_mask", "decoder_input_ids"]
        return wrap(build(cls, config(), impl), names, pick, use_cache=False, **fixed), [mk(2, 7, 5),
            mk(3, 9, 4)], {names[0]: {0: b, 1: s}, names[1]: {0: b, 1: s}, names[2]: {0: b, 1: t}}
    both(name, make)


pair("bart", T.BartModel, lambda: T.BartConfig(max_position_embeddings=80, pad_token_id=1, **S2S),
     ("last_hidden_state",))
pair("t5", T.T5ForConditionalGeneration, lambda: T.T5Config(decoder_start_token_id=0, **T5), ("logits",))
image("vit", T.ViTModel, lambda: T.ViTConfig(**VIS))
image("vit_interpolate", T.ViTModel, lambda: T.ViTConfig(**VIS), hw=(8, 3, 9), shapes=[(2, 40, 48), (1, 32, 64)],
      interpolate_pos_encoding=True)
image("deit", T.DeiTModel, lambda: T.DeiTConfig(**VIS))
image("beit", T.BeitModel, lambda: T.BeitConfig(use_relative_position_bias=True, use_mask_token=True, **VIS))
image("dinov2", T.Dinov2Model, lambda: T.Dinov2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                                      image_size=28, patch_size=14), hw=(14, 2, 12),
      shapes=[(2, 42, 56), (3, 56, 28), (1, 70, 42)])
image("dinov2_registers", T.Dinov2WithRegistersModel, lambda: T.Dinov2WithRegistersConfig(hidden_size=32,
    num_hidden_layers=2, num_attention_heads=4, image_size=28, patch_size=14), size=28)
image("dinov3", T.DINOv3ViTModel, lambda: T.DINOv3ViTConfig(num_register_tokens=4, **{**VIS, "patch_size": 16}),
      hw=(16, 1, 12), shapes=[(2, 48, 32), (3, 64, 32), (1, 32, 64)])
image("swin", T.SwinModel, lambda: T.SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2],
                                                num_heads=[2, 4], window_size=4))
image("swinv2", T.Swinv2Model, lambda: T.Swinv2Config(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2],
                                                      num_heads=[2, 4], window_size=4), impls=EAGER)
image("hiera", T.HieraModel, lambda: T.HieraConfig(image_size=[32, 32], embed_dim=16, depths=[1, 1], num_heads=[1, 2],
                                                   patch_stride=[4, 4], patch_size=[7, 7], patch_padding=[3, 3],
      query_stride=[2, 2], num_query_pool=1, masked_unit_size=[4, 4], masked_unit_attention=[True, False]), impls=EAGER)
image("siglip_vision", T.SiglipVisionModel, lambda: T.SiglipVisionConfig(**VIS), ("last_hidden_state", "pooler_output"))
image("clip_vision", T.CLIPVisionModel, lambda: T.CLIPVisionConfig(**VIS))
image("segformer", T.SegformerForSemanticSegmentation, lambda: T.SegformerConfig(num_encoder_blocks=2, depths=[1, 1],
    sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3],
      strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=5),
      ("logits",), hw=(16, 1, 8), shapes=[(2, 48, 32), (3, 64, 32), (1, 32, 64)])


def _sam_vision():
    return T.SamVisionConfig(hidden_size=32, output_channels=16, num_hidden_layers=2, num_attention_heads=4,
                             image_size=64, patch_size=8, window_size=4, global_attn_indexes=[1], mlp_dim=37,
                             num_pos_feats=8)
image("sam_vision", T.SamVisionModel, _sam_vision, size=64)


def _sam3():
    from transformers.models.sam3.configuration_sam3 import Sam3VisionConfig
    return Sam3VisionConfig(backbone_config=dict(model_type="sam3_vit_model", hidden_size=32, intermediate_size=64,
                                                 num_hidden_layers=2, num_attention_heads=4, image_size=56,
                                                 patch_size=14,
                            window_size=2, global_attn_indexes=[1], pretrain_image_size=56), fpn_hidden_size=16,
                            backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]], scale_factors=[4.0, 2.0, 1.0])


def _sam3_model(config):
    from transformers.models.sam3.modeling_sam3 import Sam3VisionModel
    return Sam3VisionModel
class _Lazy:
    """transformers.models.sam3 is imported only when the model is made."""
    @staticmethod
    def _from_config(config, attn_implementation):
        return _sam3_model(config)._from_config(config, attn_implementation=attn_implementation)
image("sam3_vision", _Lazy, _sam3, size=56)


def _sam(impl):
    c = T.SamConfig(vision_config=_sam_vision().to_dict(),
                    prompt_encoder_config=dict(hidden_size=16, image_size=64, patch_size=8, mask_input_channels=4),
                    mask_decoder_config=dict(hidden_size=16, mlp_dim=32, num_hidden_layers=2, num_attention_heads=2,
                                             iou_head_hidden_dim=16))
    mk = lambda b: dict(pixel_values=R(b, 3, 64, 64), input_points=R(b, 1, 2, 2).abs() * 20)
    b = batch()
    return wrap(build(T.SamModel, c, impl), ["pixel_values", "input_points"], ("iou_scores", "pred_masks")), [mk(2),
        mk(3)], dict(pixel_values={0: b}, input_points={0: b})
both("sam", _sam)


def _clip(impl):
    c = T.CLIPConfig(text_config=dict(eos_token_id=98, bos_token_id=0, pad_token_id=1, **ENC), vision_config=VIS,
                     projection_dim=16)
    mk = lambda b, s, i: dict(input_ids=I(98, b, s, lo=3), pixel_values=R(i, 3, 32, 32), attention_mask=keep_mask(b, s))
    t, s = Dim("tbatch", min=1, max=8), seq()
    return (wrap(build(T.CLIPModel, c, impl), ["input_ids", "pixel_values", "attention_mask"],
                 ("logits_per_image", "text_embeds", "image_embeds")), [mk(2, 7, 3), mk(4, 9, 2)],
            dict(input_ids={0: t, 1: s}, pixel_values={0: Dim("ibatch", min=1, max=8)}, attention_mask={0: t, 1: s}))
both("clip", _clip)


# ------------------------------------------------------------------ detection and segmentation
def detr(name, cls, config, hw=False, levels=False, impls=("sdpa", "eager"), **extra):
    def make(impl):
        backbone = T.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic",
                                  out_features=["stage1", "stage2"] if levels else ["stage2"])
        c = config(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone,
                   d_model=32, encoder_layers=2, decoder_layers=2,
                   encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=37, decoder_ffn_dim=37,
                   num_queries=6, num_labels=5, **extra)
        m = build(cls, c, impl if impl == "eager" else {"": impl, "backbone_config": "eager"})
        def mk(b, h, w):
            mask = torch.ones(b, h, w, dtype=torch.long)
            mask[0, :, w // 2:] = 0
            return dict(pixel_values=R(b, 3, h, w), pixel_mask=mask)
        b, h, w = batch(), Dim("h", min=2, max=8), Dim("w", min=2, max=8)
        dyn = dict(pixel_values={0: b, 2: 32 * h, 3: 32 * w},
                   pixel_mask={0: b, 1: 32 * h, 2: 32 * w}) if hw else dict(pixel_values={0: b}, pixel_mask={0: b})
        return wrap(m, ["pixel_values", "pixel_mask"], ("logits", "pred_boxes")), [mk(*s)
            for s in ([(2, 96, 64), (1, 64, 128), (3, 64, 96)] if hw else [(2, 64, 64), (3, 64, 64)])], dyn
    both(name, make, impls)


detr("detr", T.DetrForObjectDetection, T.DetrConfig, hw=True)
detr("conditional_detr", T.ConditionalDetrForObjectDetection, T.ConditionalDetrConfig)
detr("deformable_detr", T.DeformableDetrForObjectDetection, T.DeformableDetrConfig, levels=True, num_feature_levels=2,
     encoder_n_points=2, decoder_n_points=2, disable_custom_kernels=True)


def swin_backbone():
    return T.SwinConfig(image_size=64, patch_size=4, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2],
                        window_size=2, out_features=["stage1", "stage2", "stage3", "stage4"])


@model("mask2former")
def _():
    c = T.Mask2FormerConfig(backbone_config=swin_backbone(), hidden_dim=32, feature_size=32, mask_feature_size=32,
                            encoder_feedforward_dim=32, dim_feedforward=32, encoder_layers=1,
                            decoder_layers=3, num_attention_heads=2, num_queries=5, num_labels=4)
    torch.manual_seed(0)
    m = strengthen(T.Mask2FormerForUniversalSegmentation(c))
    return wrap(m, ["pixel_values"], ("class_queries_logits", "masks_queries_logits")), [dict(pixel_values=R(b, 3, 64,
        64)) for b in (2, 3)], dict(pixel_values={0: batch()})


@model("maskformer")
def _():
    c = T.MaskFormerConfig(backbone_config=swin_backbone(), fpn_feature_size=32, mask_feature_size=32, num_labels=4,
                           decoder_config=T.DetrConfig(
        d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=5).to_dict())
    torch.manual_seed(0)
    m = strengthen(T.MaskFormerForInstanceSegmentation(c))
    return wrap(m, ["pixel_values"], ("class_queries_logits", "masks_queries_logits")), [dict(pixel_values=R(b, 3, 64,
        64)) for b in (2, 3)], dict(pixel_values={0: batch()})


# ------------------------------------------------------------------ audio and time series
def wave(name, cls, config, mask=False):
    def make(impl):
        def mk(b, s):
            m = torch.ones(b, s, dtype=torch.long)
            m[0, s // 2:] = 0
            return dict(input_values=R(b, s), **({"attention_mask": m} if mask else {}))
        b, s = batch(), Dim("samples", min=400, max=4000)
        names = ["input_values"] + ["attention_mask"] * mask
        return wrap(build(cls, config(), impl), names, ("last_hidden_state",)), [mk(2, 800),
            mk(3, 1200)], {n: {0: b, 1: s} for n in names}
    both(name, make)


wave("wav2vec2", T.Wav2Vec2Model, lambda: T.Wav2Vec2Config(**WAV))
wave("wav2vec2_mask", T.Wav2Vec2Model, lambda: T.Wav2Vec2Config(**WAV), mask=True)
wave("hubert", T.HubertModel, lambda: T.HubertConfig(**WAV))


def _whisper(impl):
    c = T.WhisperConfig(**S2S, max_source_positions=20, max_target_positions=20, num_mel_bins=8, pad_token_id=0,
                        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    mk = lambda b, s: dict(input_features=R(b, 8, 40), decoder_input_ids=I(98, b, s, lo=3))
    b = batch()
    return wrap(build(T.WhisperForConditionalGeneration, c, impl), ["input_features", "decoder_input_ids"],
                ("logits",), use_cache=False), [mk(2, 5), mk(3, 9)], dict(
        input_features={0: b}, decoder_input_ids={0: b, 1: seq(mx=20)})
both("whisper", _whisper)


def _chronos(impl):
    from transformers.models.t5.configuration_t5 import T5Config
    mk = lambda b, s: dict(input_ids=I(98, b, s, lo=3), decoder_input_ids=I(98, b, 4, lo=3, seed=1))
    b, s = batch(), seq()
    m = build(T.T5Model, T5Config(is_gated_act=True, dense_act_fn="gelu_new", feed_forward_proj="gated-gelu", **T5),
              impl)
    return wrap(m, ["input_ids", "decoder_input_ids"], ("last_hidden_state",), use_cache=False), [mk(2, 7),
        mk(3, 9)], dict(input_ids={0: b, 1: s}, decoder_input_ids={0: b})
both("t5_gated", _chronos)


def _timesfm(impl):
    c = T.TimesFmConfig(patch_length=8, context_length=64, horizon_length=16, num_hidden_layers=2, hidden_size=32,
                        intermediate_size=37, head_dim=8, num_attention_heads=4, freq_size=3)
    from transformers.models.timesfm.modeling_timesfm import TimesFmModel
    mk = lambda b, n: dict(past_values=R(b, 8 * n),
                           past_values_padding=(torch.arange(8 * n)[None] < torch.arange(b)[:, None] * 4).long(),
                           freq=I(3, b, 1))
    b, n = Dim("batch", min=2, max=8), Dim("n", min=2, max=8)
    return wrap(build(TimesFmModel, c, impl), ["past_values", "past_values_padding", "freq"],
                ("last_hidden_state",)), [mk(2, 3), mk(3, 5)], dict(
        past_values={0: b, 1: 8 * n}, past_values_padding={0: b, 1: 8 * n}, freq={0: b})
both("timesfm", _timesfm)
