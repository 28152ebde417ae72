"""The models of the survey beyond tests/models/zoo_hf.py: tiny configurations of transformers' attention models,
eager and sdpa where both exist."""
import transformers as T

from zoo import *
import zoo_hf
from zoo_hf import DEC, EAGER, ENC, S2S, T5, VIS, WAV, both, build, detr, image, pair, text, wave, wrap

BOTH = ("sdpa", "eager")
PAD = dict(pad_token_id=1)
# ------------------------------------------------------------------ text encoders
for _n, _m, _c, _o in (
        ("roberta_prelayernorm", "RobertaPreLayerNormModel", "RobertaPreLayerNormConfig", {}),
        ("xlm_roberta", "XLMRobertaModel", "XLMRobertaConfig", {}),
        ("xlm_roberta_xl", "XLMRobertaXLModel", "XLMRobertaXLConfig", {}),
        ("camembert", "CamembertModel", "CamembertConfig", {}), ("ernie", "ErnieModel", "ErnieConfig", {}),
        ("megatron_bert", "MegatronBertModel", "MegatronBertConfig", {}),
        ("rembert", "RemBertModel", "RemBertConfig", dict(input_embedding_size=16)),
        ("roformer", "RoFormerModel", "RoFormerConfig", dict(embedding_size=16)), ("layoutlm", "LayoutLMModel",
            "LayoutLMConfig", {}), ("ibert", "IBertModel", "IBertConfig", {}),
    ("data2vec_text", "Data2VecTextModel", "Data2VecTextConfig", {}),
        ("splinter", "SplinterModel", "SplinterConfig", {}), ("esm", "EsmModel", "EsmConfig",
                                                              dict(pad_token_id=1, position_embedding_type="rotary",
                                                                   mask_token_id=4)),
    ("esm_absolute", "EsmModel", "EsmConfig", dict(pad_token_id=1, mask_token_id=4)),
        ("convbert", "ConvBertModel", "ConvBertConfig", dict(embedding_size=16, head_ratio=2)),
        ("bert_generation", "BertGenerationEncoder", "BertGenerationConfig", {}), ("lilt", "LiltModel", "LiltConfig",
            dict(hidden_size=48)), ("squeezebert", "SqueezeBertModel", "SqueezeBertConfig",
                                    dict(embedding_size=32, q_groups=2, k_groups=2, v_groups=2,
                                         post_attention_groups=1, intermediate_groups=2, output_groups=2,
                                         intermediate_size=36)),
        ("mobilebert", "MobileBertModel", "MobileBertConfig", dict(embedding_size=16, intra_bottleneck_size=16,
                                                                   true_hidden_size=16)),
    ("nystromformer", "NystromformerModel", "NystromformerConfig", dict(num_landmarks=64, segment_means_seq_len=64)),
        ("deberta", "DebertaModel", "DebertaConfig", dict(relative_attention=True, max_relative_positions=8,
                                                          pos_att_type=["p2c", "c2p"])),
    ("canine", "CanineModel", "CanineConfig", {}), ("markuplm", "MarkupLMModel", "MarkupLMConfig", {}),
        ("nomic_bert", "NomicBertModel", "NomicBertConfig", {}), ("jina_embeddings_v3", "JinaEmbeddingsV3Model",
                                                                  "JinaEmbeddingsV3Config", {}),
    ("big_bird", "BigBirdModel", "BigBirdConfig", dict(attention_type="original_full")),
    ("roc_bert", "RoCBertModel", "RoCBertConfig", {}),
        ("eurobert", "EuroBertModel", "EuroBertConfig", dict(pad_token_id=0, mask_token_id=4)),
        ("luke", "LukeModel", "LukeConfig", dict(entity_vocab_size=9, entity_emb_size=16)),
        ("tapas", "TapasModel", "TapasConfig", {})):
    if hasattr(T, _m):
        text(_n, getattr(T, _m), lambda c=getattr(T, _c), o=_o: c(**{**ENC, **o}))
text("xlm", T.XLMModel, lambda: T.XLMConfig(vocab_size=99, emb_dim=32, n_layers=2, n_heads=4,
                                            max_position_embeddings=80))
text("flaubert", T.FlaubertModel, lambda: T.FlaubertConfig(vocab_size=99, emb_dim=32, n_layers=2, n_heads=4,
                                                           max_position_embeddings=80))
text("xlnet", T.XLNetModel, lambda: T.XLNetConfig(vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=37),
     use_mems=False)
text("funnel", T.FunnelModel, lambda: T.FunnelConfig(vocab_size=99, block_sizes=[1, 1], num_decoder_layers=1,
                                                     d_model=32, n_head=4, d_head=8, d_inner=37, separate_cls=False),
     shapes=((2, 8), (3, 12)))
text("mt5_encoder", T.MT5EncoderModel, lambda: T.MT5Config(**T5))
text("umt5_encoder", T.UMT5EncoderModel, lambda: T.UMT5Config(**T5))

# ------------------------------------------------------------------ decoders
GPT = dict(vocab_size=99, n_positions=80, n_embd=32, n_layer=2, n_head=4)
for _n, _m, _c, _o in (
        ("mixtral", "MixtralModel", "MixtralConfig", dict(intermediate_size=32, num_local_experts=2,
                                                          num_experts_per_tok=1)), ("gemma", "GemmaModel",
                                                              "GemmaConfig", dict(head_dim=8)),
    ("phi", "PhiModel", "PhiConfig", {}), ("stablelm", "StableLmModel", "StableLmConfig", {}),
        ("starcoder2", "Starcoder2Model", "Starcoder2Config", dict(sliding_window=4)), ("persimmon", "PersimmonModel",
            "PersimmonConfig", {}), ("cohere", "CohereModel", "CohereConfig", {}),
    ("cohere2", "Cohere2Model", "Cohere2Config", dict(sliding_window=4)),
        ("olmo", "OlmoModel", "OlmoConfig", {}), ("olmo2", "Olmo2Model", "Olmo2Config", {}),
        ("olmo3", "Olmo3Model", "Olmo3Config", dict(sliding_window=4)), ("granite", "GraniteModel", "GraniteConfig",
                                                                         {}), ("glm", "GlmModel", "GlmConfig",
                                                                               dict(head_dim=8, pad_token_id=0)),
        ("glm4", "Glm4Model", "Glm4Config", dict(head_dim=8, pad_token_id=0)), ("helium", "HeliumModel",
                                                                                "HeliumConfig", dict(head_dim=8)),
    ("nemotron", "NemotronModel", "NemotronConfig", {}), ("qwen3", "Qwen3Model", "Qwen3Config", dict(head_dim=8)),
        ("qwen2_sliding", "Qwen2Model", "Qwen2Config", dict(use_sliding_window=True, sliding_window=4,
                                                            max_window_layers=1)),
    ("smollm3", "SmolLM3Model", "SmolLM3Config", dict(pad_token_id=0)), ("arcee", "ArceeModel", "ArceeConfig", {}),
        ("apertus", "ApertusModel", "ApertusConfig", {}), ("exaone4", "Exaone4Model", "Exaone4Config",
                                                           dict(sliding_window=4, sliding_window_pattern=2)),
    ("ernie4_5", "Ernie4_5Model", "Ernie4_5Config", {}), ("bitnet", "BitNetModel", "BitNetConfig", {}),
        ("seed_oss", "SeedOssModel", "SeedOssConfig", dict(head_dim=8)), ("ministral", "MinistralModel",
                                                                          "MinistralConfig",
                                                                          dict(head_dim=8, sliding_window=4)),
    ("vaultgemma", "VaultGemmaModel", "VaultGemmaConfig", dict(head_dim=8, sliding_window=4)),
        ("nanochat", "NanoChatModel", "NanoChatConfig", {}), ("diffllama", "DiffLlamaModel", "DiffLlamaConfig", {}),
        ("hunyuan", "HunYuanDenseV1Model", "HunYuanDenseV1Config", dict(head_dim=8, pad_token_id=0)),
        ("gemma3_global", "Gemma3TextModel", "Gemma3TextConfig",
         dict(head_dim=8, sliding_window=4, layer_types=["full_attention", "sliding_attention"])),
        ("deepseek_v2", "DeepseekV2Model", "DeepseekV2Config", dict(kv_lora_rank=16, q_lora_rank=16,
                                                                    qk_rope_head_dim=4, qk_nope_head_dim=8,
                                                                    v_head_dim=6, first_k_dense_replace=2,
                                                                    n_routed_experts=2, num_key_value_heads=4)),
        ("deepseek_v3", "DeepseekV3Model", "DeepseekV3Config", dict(kv_lora_rank=16, q_lora_rank=16,
                                                                    qk_rope_head_dim=4, qk_nope_head_dim=8,
                                                                    v_head_dim=6, first_k_dense_replace=2,
                                                                    num_key_value_heads=4)),
        ("qwen3_moe", "Qwen3MoeModel", "Qwen3MoeConfig", dict(head_dim=8, num_experts=2, num_experts_per_tok=1,
                                                              moe_intermediate_size=32)),
    ("olmoe", "OlmoeModel", "OlmoeConfig", dict(intermediate_size=32, num_experts=2, num_experts_per_tok=1)),
        ("modernbert_decoder", "ModernBertDecoderModel", "ModernBertDecoderConfig", dict(local_attention=6,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, num_hidden_layers=3)),
        ("gpt_oss", "GptOssModel", "GptOssConfig", dict(head_dim=8, num_local_experts=2, num_experts_per_tok=1,
                                                        sliding_window=4, intermediate_size=32, pad_token_id=0)),
    ("minimax", "MiniMaxModel", "MiniMaxConfig", dict(intermediate_size=32, head_dim=8, num_local_experts=2,
                                                      num_experts_per_tok=1)),
        ("jamba", "JambaModel", "JambaConfig", dict(num_experts=1, attn_layer_period=1, attn_layer_offset=0,
                                                    expert_layer_period=4, expert_layer_offset=3)),
    ("doge", "DogeModel", "DogeConfig", {}), ("lfm2", "Lfm2Model", "Lfm2Config",
                                              dict(layer_types=["full_attention", "full_attention"])),
        ("falcon", "FalconModel", "FalconConfig", dict(multi_query=True, new_decoder_architecture=False)),
        ("falcon_alibi", "FalconModel", "FalconConfig", dict(multi_query=False, alibi=True)),
        ("falcon_new", "FalconModel", "FalconConfig", dict(new_decoder_architecture=True, num_kv_heads=2)),
        ("gptneox_japanese", "GPTNeoXJapaneseModel", "GPTNeoXJapaneseConfig", dict(intermediate_multiple_size=1))):
    if hasattr(T, _m):
        text(_n, getattr(T, _m), lambda c=getattr(T, _c), o=_o: c(**{**DEC, **o}), use_cache=False)
text("openai_gpt", T.OpenAIGPTModel, lambda: T.OpenAIGPTConfig(**GPT))
text("gpt_neo", T.GPTNeoModel, lambda: T.GPTNeoConfig(vocab_size=99, hidden_size=32, num_layers=2,
                                                      attention_types=[[["global", "local"], 1]], num_heads=4,
                                                      max_position_embeddings=80, window_size=4), use_cache=False)
text("gptj", T.GPTJModel, lambda: T.GPTJConfig(rotary_dim=4, **GPT), use_cache=False)
text("codegen", T.CodeGenModel, lambda: T.CodeGenConfig(rotary_dim=4, **GPT), use_cache=False)
text("gpt_bigcode", T.GPTBigCodeModel, lambda: T.GPTBigCodeConfig(**GPT), use_cache=False)
text("gpt_bigcode_mha", T.GPTBigCodeModel, lambda: T.GPTBigCodeConfig(multi_query=False, **GPT), use_cache=False)
text("gpt2_inverse_layer", T.GPT2Model, lambda: T.GPT2Config(scale_attn_by_inverse_layer_idx=True,
                                                             reorder_and_upcast_attn=True, **GPT), use_cache=False)
text("ctrl", T.CTRLModel, lambda: T.CTRLConfig(vocab_size=99, n_positions=80, n_embd=32, dff=37, n_layer=2, n_head=4),
     use_cache=False)
text("mpt", T.MptModel, lambda: T.MptConfig(vocab_size=99, d_model=32, n_heads=4, n_layers=2, expansion_ratio=2,
                                            max_seq_len=80), use_cache=False)
text("biogpt", T.BioGptModel, lambda: T.BioGptConfig(**{**ENC, "intermediate_size": 40}), use_cache=False)
text("xglm", T.XGLMModel, lambda: T.XGLMConfig(vocab_size=99, d_model=32, ffn_dim=37, num_layers=2, attention_heads=4,
                                               max_position_embeddings=80), use_cache=False)
text("t5gemma_encoder", T.T5GemmaEncoderModel, lambda: T.T5GemmaConfig(encoder=dict(head_dim=8, sliding_window=4,
    **DEC), decoder=dict(head_dim=8, sliding_window=4, **DEC), is_encoder_decoder=False)) if hasattr(T,
        "T5GemmaEncoderModel") else None

# ------------------------------------------------------------------ encoders with decoders
POS = dict(max_position_embeddings=80)
pair("mbart", T.MBartModel, lambda: T.MBartConfig(**POS, **PAD, **S2S), ("last_hidden_state",))
pair("plbart", T.PLBartModel, lambda: T.PLBartConfig(**POS, **PAD, **S2S), ("last_hidden_state",))
pair("pegasus", T.PegasusModel, lambda: T.PegasusConfig(**POS, **S2S), ("last_hidden_state",))
pair("blenderbot", T.BlenderbotModel, lambda: T.BlenderbotConfig(**POS, **PAD, **S2S), ("last_hidden_state",))
pair("blenderbot_small", T.BlenderbotSmallModel, lambda: T.BlenderbotSmallConfig(**POS, **PAD, **S2S),
     ("last_hidden_state",))
pair("marian", T.MarianModel, lambda: T.MarianConfig(**POS, decoder_start_token_id=2, **PAD, **S2S),
     ("last_hidden_state",))
pair("m2m_100", T.M2M100Model, lambda: T.M2M100Config(**POS, **PAD, **S2S), ("last_hidden_state",))
pair("mt5", T.MT5Model, lambda: T.MT5Config(**T5), ("last_hidden_state",))
pair("umt5", T.UMT5Model, lambda: T.UMT5Config(**T5), ("last_hidden_state",))
pair("longt5", T.LongT5Model, lambda: T.LongT5Config(local_radius=3, encoder_attention_type="local", **T5),
     ("last_hidden_state",))
pair("prophetnet", T.ProphetNetModel, lambda: T.ProphetNetConfig(vocab_size=99, hidden_size=32, num_encoder_layers=2,
                                                                 num_decoder_layers=2, num_encoder_attention_heads=4,
                                                                 num_decoder_attention_heads=4, encoder_ffn_dim=37,
                                                                 decoder_ffn_dim=37,
     max_position_embeddings=80, ngram=2, num_buckets=8, relative_max_distance=20), ("last_hidden_state",))
pair("t5gemma", T.T5GemmaModel, lambda: T.T5GemmaConfig(encoder=dict(head_dim=8, sliding_window=4, **DEC),
                                                        decoder=dict(head_dim=8, sliding_window=4,
                                                                     cross_attention_hidden_size=32, **DEC),
                                                        attn_logit_softcapping=5.0), ("last_hidden_state",))
pair("nllb_moe", T.NllbMoeModel, lambda: T.NllbMoeConfig(encoder_sparse_step=0, decoder_sparse_step=0, **POS, **PAD,
                                                         **S2S), ("last_hidden_state",))
pair("mvp", T.MvpModel, lambda: T.MvpConfig(**POS, **PAD, **S2S), ("last_hidden_state",))

# ------------------------------------------------------------------ vision
for _n, _m, _c, _o in (
        ("vit_msn", "ViTMSNModel", "ViTMSNConfig", {}), ("data2vec_vision", "Data2VecVisionModel",
                                                         "Data2VecVisionConfig",
                                                         dict(use_relative_position_bias=True)),
    ("yolos", "YolosModel", "YolosConfig", dict(image_size=[32, 32], num_detection_tokens=5)),
        ("vit_hybrid", "ViTHybridModel", "ViTHybridConfig", {}), ("vitdet", "VitDetModel", "VitDetConfig",
                                                                  dict(window_size=2, window_block_indices=[0],
                                                                       use_relative_position_embeddings=True)),
    ("ijepa", "IJepaModel", "IJepaConfig", {}),
        ("dpt", "DPTModel", "DPTConfig", dict(is_hybrid=False, backbone_out_indices=[0, 1, 1, 1])),
        ("beit_absolute", "BeitModel", "BeitConfig", dict(use_absolute_position_embeddings=True)),
        ("mlcd", "MLCDVisionModel", "MLCDVisionConfig", {}),
        ("aimv2_vision", "Aimv2VisionModel", "Aimv2VisionConfig", {}), ("audio_as_image", "ViTModel", "ViTConfig",
                                                                        dict(qkv_bias=False)),
    ("pixio", "PixioModel", "PixioConfig", {}), ("clip_vision_projection", "CLIPVisionModelWithProjection",
                                                 "CLIPVisionConfig", dict(projection_dim=16)),
    ("metaclip_2_vision", "MetaClip2VisionModel", "MetaClip2VisionConfig", {}),
        ("x_clip_vision", "XCLIPVisionModel", "XCLIPVisionConfig", dict(num_frames=1, mit_hidden_size=32,
                                                                        mit_num_attention_heads=4)),
    ("owlvit_vision", "OwlViTVisionModel", "OwlViTVisionConfig", {}), ("altclip_vision", "AltCLIPVisionModel",
                                                                       "AltCLIPVisionConfig", {}),
    ("chinese_clip_vision", "ChineseCLIPVisionModel", "ChineseCLIPVisionConfig", {}),
        ("blip_vision", "BlipVisionModel", "BlipVisionConfig", {}), ("blip_2_vision", "Blip2VisionModel",
                                                                     "Blip2VisionConfig", {}),
    ("flava_image", "FlavaImageModel", "FlavaImageConfig", {}), ("git_vision", "GitVisionModel", "GitVisionConfig",
                                                                 {}), ("kosmos2_vision", "CLIPSegVisionModel",
                                                                       "CLIPSegVisionConfig", {}),
        ("groupvit_vision", "GroupViTVisionModel", "GroupViTVisionConfig",
         dict(depths=[1, 1, 1], num_hidden_layers=3, num_group_tokens=[4, 2, 0], num_output_groups=[4, 2, 0]))):
    if hasattr(T, _m):
        image(_n, getattr(T, _m), lambda c=getattr(T, _c), o=_o: c(**{**VIS, **o}),
              pick=("image_embeds",) if "projection" in _n else ("last_hidden_state",))
image("levit", T.LevitModel, lambda: T.LevitConfig(image_size=64, hidden_sizes=[16, 32, 48],
                                                   num_attention_heads=[1, 2, 3], depths=[1, 1, 1], key_dim=[8, 8, 8],
                                                   mlp_ratio=[2, 2, 2], attention_ratio=[2, 2, 2],
                                                   down_ops=[["Subsample", 8, 2, 4, 2, 2],
                                                             ["Subsample", 8, 4, 4, 2, 2]]), size=64)
image("pvt", T.PvtModel, lambda: T.PvtConfig(image_size=64, num_encoder_blocks=4, depths=[1, 1, 1, 1],
                                             hidden_sizes=[16, 32, 32, 32], num_attention_heads=[1, 2, 2, 4],
                                             mlp_ratios=[2, 2, 2, 2]), size=64)
image("pvt_v2", T.PvtV2Model, lambda: T.PvtV2Config(image_size=64, depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 32, 32],
                                                    num_attention_heads=[1, 2, 2, 4], mlp_ratios=[2, 2, 2, 2]), size=64)
image("pvt_v2_linear", T.PvtV2Model, lambda: T.PvtV2Config(image_size=64, depths=[1, 1, 1, 1],
                                                           hidden_sizes=[16, 32, 32, 32], num_attention_heads=[1, 2,
                                                               2, 4], mlp_ratios=[2, 2, 2, 2], linear_attention=True),
      size=64)
image("cvt", T.CvtModel, lambda: T.CvtConfig(embed_dim=[16, 32, 48], num_heads=[1, 2, 3], depth=[1, 2, 3]))
image("mobilevit", T.MobileViTModel, lambda: T.MobileViTConfig(image_size=64, hidden_sizes=[16, 24, 32],
                                                               neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64],
                                                               num_attention_heads=4), size=64)
image("mobilevitv2", T.MobileViTV2Model, lambda: T.MobileViTV2Config(image_size=64, width_multiplier=0.25), size=64)
image("glpn", T.GLPNModel, lambda: T.GLPNConfig(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1],
                                                hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2],
                                                num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16))
image("swin2sr", T.Swin2SRModel, lambda: T.Swin2SRConfig(image_size=32, patch_size=1, embed_dim=16, depths=[2],
                                                         num_heads=[2], window_size=4))
image("swin_pad", T.SwinModel, lambda: T.SwinConfig(image_size=36, patch_size=2, embed_dim=16, depths=[2, 2],
                                                    num_heads=[2, 4], window_size=4), size=36)
image("donut_swin", T.DonutSwinModel, lambda: T.DonutSwinConfig(image_size=[32, 32], patch_size=2, embed_dim=16,
                                                                depths=[2, 2], num_heads=[2, 4], window_size=4))
image("seggpt_like_dinov2_swiglu", T.Dinov2Model, lambda: T.Dinov2Config(hidden_size=32, num_hidden_layers=2,
                                                                         num_attention_heads=4, image_size=28,
                                                                         patch_size=14, use_swiglu_ffn=True), size=28)
image("efficientformer", T.EfficientFormerModel, lambda: T.EfficientFormerConfig(), size=32) if hasattr(T,
    "EfficientFormerModel") else None


def video(name, cls, config, frames=4, size=32, impls=BOTH):
    both(name, lambda impl: (wrap(build(cls, config(), impl), ["pixel_values"], ("last_hidden_state",)),
                             [dict(pixel_values=R(b, frames, 3, size, size)) for b in (2, 3)],
                             dict(pixel_values={0: batch()})), impls)


video("videomae", T.VideoMAEModel, lambda: T.VideoMAEConfig(num_frames=4, tubelet_size=2, **VIS))
video("vivit", T.VivitModel, lambda: T.VivitConfig(num_frames=4, tubelet_size=[2, 8, 8],
                                                   **{k: v for k, v in VIS.items() if k != "patch_size"}))
video("timesformer", T.TimesformerModel, lambda: T.TimesformerConfig(num_frames=4, **VIS))
video("timesformer_joint", T.TimesformerModel, lambda: T.TimesformerConfig(num_frames=4,
                                                                           attention_type="joint_space_time", **VIS))


def _vjepa(impl):
    c = T.VJEPA2Config(crop_size=32, patch_size=8, frames_per_clip=4, tubelet_size=2, hidden_size=48,
                       num_attention_heads=4, num_hidden_layers=2, pred_hidden_size=24, pred_num_attention_heads=2,
                       pred_num_hidden_layers=1, pred_num_mask_tokens=2)
    return wrap(build(T.VJEPA2Model, c, impl), ["pixel_values_videos"], ("last_hidden_state",),
                skip_predictor=True), [dict(pixel_values_videos=R(b, 4, 3, 32, 32))
                                       for b in (2, 3)], dict(pixel_values_videos={0: batch()})


both("vjepa2", _vjepa)


def _dims_shared(names):
    b = batch()
    return {n: {0: b} for n in names}


def _perceiver(impl):
    c = T.PerceiverConfig(num_latents=6, d_latents=32, d_model=24, num_blocks=1, num_self_attends_per_block=2,
                          num_self_attention_heads=4, num_cross_attention_heads=2)
    b, s = batch(), seq()
    return wrap(build(T.PerceiverModel, c, impl), ["inputs", "attention_mask"], ("last_hidden_state",
        )), [dict(inputs=R(x, n, 24), attention_mask=keep_mask(x, n))
             for x, n in ((2, 7), (3, 11))], dict(inputs={0: b, 1: s}, attention_mask={0: b, 1: s})


both("perceiver", _perceiver, EAGER)


def _sam2(impl):
    c = T.Sam2HieraDetConfig(hidden_size=16, num_attention_heads=1, image_size=[64, 64], patch_kernel_size=[7, 7],
                             patch_stride=[4, 4], patch_padding=[3, 3], query_stride=[2, 2],
                             window_positional_embedding_background_size=[4, 4],
                             num_query_pool_stages=3, blocks_per_stage=[1, 1, 2, 1], embed_dim_per_stage=[16, 32, 64,
                                 128], num_attention_heads_per_stage=[1, 2, 4, 8], window_size_per_stage=[8, 4, 4, 2],
                             global_attention_blocks=[3])
    return wrap(build(T.Sam2HieraDetModel, c, impl), ["pixel_values"], ("last_hidden_state",
                                                                        )), [dict(pixel_values=R(b, 3, 64, 64))
                                                                             for b in (2,
                                                                                 3)], dict(pixel_values={0: batch()})


both("sam2_hiera", _sam2)


def _sam2_whole(impl):
    from transformers.models.sam2.configuration_sam2 import Sam2VisionConfig
    v = Sam2VisionConfig(backbone_config=T.Sam2HieraDetConfig(hidden_size=16, num_attention_heads=1,
                                                              image_size=[64, 64], query_stride=[2, 2],
                                                              window_positional_embedding_background_size=[4, 4],
                                                              num_query_pool_stages=3, blocks_per_stage=[1, 1, 2, 1],
                         embed_dim_per_stage=[16, 32, 64, 128], num_attention_heads_per_stage=[1, 2, 4, 8],
                         window_size_per_stage=[8, 4, 4, 2], global_attention_blocks=[3]).to_dict(),
                         backbone_channel_list=[128, 64, 32, 16],
                         backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]], fpn_hidden_size=16)
    c = T.Sam2Config(vision_config=v.to_dict(), prompt_encoder_config=dict(hidden_size=16, image_size=64,
                                                                           patch_size=16, mask_input_channels=4),
                     mask_decoder_config=dict(hidden_size=16, mlp_dim=32, num_hidden_layers=2, num_attention_heads=2,
                                              iou_head_hidden_dim=16, iou_head_depth=2))
    return wrap(build(T.Sam2Model, c, impl), ["pixel_values", "input_points", "input_labels"],
                ("iou_scores", "pred_masks"), multimask_output=True), [
        dict(pixel_values=R(b, 3, 64, 64), input_points=R(b, 1, 2, 2).abs() * 20, input_labels=torch.ones(b, 1, 2,
            dtype=torch.long)) for b in (2, 3)], _dims_shared(("pixel_values", "input_points", "input_labels"))


both("sam2", _sam2_whole)


def _sam3_detector(impl):
    """SAM 3's DETR encoder and decoder are exercised through its vision tower in zoo_hf;
    here SAM-HQ, its older sister."""
    c = T.SamHQConfig(vision_config=zoo_hf._sam_vision().to_dict(),
                      prompt_encoder_config=dict(hidden_size=16, image_size=64, patch_size=8, mask_input_channels=4),
                      mask_decoder_config=dict(hidden_size=16, mlp_dim=32, num_hidden_layers=2, num_attention_heads=2,
                                               iou_head_hidden_dim=16, vit_dim=32))
    return wrap(build(T.SamHQModel, c, impl), ["pixel_values", "input_points"], ("iou_scores",
        "pred_masks")), [dict(pixel_values=R(b, 3, 64, 64), input_points=R(b, 1, 2, 2).abs() * 20)
                         for b in (2, 3)], _dims_shared(("pixel_values", "input_points"))


both("sam_hq", _sam3_detector)
detr("table_transformer", T.TableTransformerForObjectDetection, T.TableTransformerConfig)
detr("dab_detr", T.DabDetrForObjectDetection, T.DabDetrConfig)


def _rt_detr(impl):
    backbone = T.RTDetrResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                                    layer_type="basic", out_features=["stage2", "stage3", "stage4"],
                                    out_indices=[2, 3, 4])
    c = T.RTDetrConfig(backbone_config=backbone, use_timm_backbone=False, encoder_hidden_dim=32,
                       encoder_in_channels=[16, 24, 32], feat_strides=[8, 16, 32], encoder_layers=1,
                       encoder_ffn_dim=37, encoder_attention_heads=4, d_model=32, num_queries=6,
                       decoder_in_channels=[32, 32, 32], decoder_ffn_dim=37, decoder_layers=2,
                       decoder_attention_heads=4, decoder_n_points=2, num_labels=5, anchor_image_size=[64, 64],
                       learn_initial_query=False, disable_custom_kernels=True, num_denoising=0)
    return wrap(build(T.RTDetrForObjectDetection, c, impl if impl == "eager" else {"": impl,
        "backbone_config": "eager"}), ["pixel_values"], ("logits", "pred_boxes")), [dict(pixel_values=R(b, 3, 64, 64))
            for b in (2, 3)], dict(pixel_values={0: batch()})


both("rt_detr", _rt_detr)

# ------------------------------------------------------------------ text and images together
QF = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
          max_position_embeddings=80, encoder_hidden_size=24, cross_attention_frequency=1)


def _qformer(impl):
    mk = lambda b, n: dict(query_embeds=R(b, 5, 32), encoder_hidden_states=R(b, n, 24, seed=1))
    b = batch()
    return wrap(build(T.Blip2QFormerModel, T.Blip2QFormerConfig(**QF), impl), ["query_embeds",
                                                                               "encoder_hidden_states"],
                ("last_hidden_state",)), [mk(2, 7), mk(3, 11)], dict(query_embeds={0: b},
                                                                     encoder_hidden_states={0: b, 1: seq()})


both("blip_2_qformer", _qformer)
text("blip_text", T.BlipTextModel, lambda: T.BlipTextConfig(**ENC, is_decoder=False))
text("flava_text", T.FlavaTextModel, lambda: T.FlavaTextConfig(**ENC))
text("altclip_text", T.AltRobertaModel if hasattr(T, "AltRobertaModel") else T.RobertaModel,
     lambda: T.RobertaConfig(**ENC))
text("chinese_clip_text", T.ChineseCLIPTextModel, lambda: T.ChineseCLIPTextConfig(**ENC))
text("clipseg_text", T.CLIPSegTextModel, lambda: T.CLIPSegTextConfig(eos_token_id=98, bos_token_id=0, pad_token_id=1,
                                                                     **ENC))
text("owlvit_text", T.OwlViTTextModel, lambda: T.OwlViTTextConfig(**ENC))
text("groupvit_text", T.GroupViTTextModel, lambda: T.GroupViTTextConfig(eos_token_id=98, **ENC))
text("aimv2_text", T.Aimv2TextModel, lambda: T.Aimv2TextConfig(eos_token_id=98, **ENC)) if hasattr(T,
    "Aimv2TextModel") else None
text("clap_text", T.ClapTextModel, lambda: T.ClapTextConfig(**ENC))


def _lxmert(impl):
    c = T.LxmertConfig(vocab_size=99, hidden_size=32, num_attention_heads=4, intermediate_size=37, l_layers=1,
                       r_layers=1, x_layers=1, visual_feat_dim=12, max_position_embeddings=80)
    mk = lambda b, s, n: dict(input_ids=I(98, b, s, lo=3), attention_mask=keep_mask(b, s), visual_feats=R(b, n, 12),
                              visual_pos=R(b, n, 4))
    b, s, n = batch(), seq(), seq("boxes")
    return wrap(build(T.LxmertModel, c, impl), list(mk(2, 5, 3)), ("language_output", "vision_output")), [mk(2, 7, 5),
        mk(3, 9, 4)], dict(input_ids={0: b, 1: s}, attention_mask={0: b, 1: s}, visual_feats={0: b, 1: n},
                           visual_pos={0: b, 1: n})


def _visual_bert(impl):
    mk = lambda b, s, n: dict(input_ids=I(98, b, s, lo=3), attention_mask=keep_mask(b, s), visual_embeds=R(b, n, 12),
                              visual_attention_mask=keep_mask(b, n))
    b, s, n = batch(), seq(), seq("boxes")
    return (wrap(build(T.VisualBertModel, T.VisualBertConfig(visual_embedding_dim=12, **ENC), impl),
                 list(mk(2, 5, 3)), ("last_hidden_state",)), [mk(2, 7, 5), mk(3, 9, 4)],
            dict(input_ids={0: b, 1: s}, attention_mask={0: b, 1: s}, visual_embeds={0: b, 1: n},
                 visual_attention_mask={0: b, 1: n}))


both("lxmert", _lxmert, EAGER)
both("visual_bert", _visual_bert, EAGER)

# ------------------------------------------------------------------ sound and time series
wave("wavlm", T.WavLMModel, lambda: T.WavLMConfig(num_buckets=8, max_bucket_distance=20, **WAV))
wave("unispeech", T.UniSpeechModel, lambda: T.UniSpeechConfig(**WAV))
wave("unispeech_sat", T.UniSpeechSatModel, lambda: T.UniSpeechSatConfig(**WAV))
wave("data2vec_audio", T.Data2VecAudioModel, lambda: T.Data2VecAudioConfig(**WAV, conv_pos_kernel_size=3))
wave("sew", T.SEWModel, lambda: T.SEWConfig(squeeze_factor=2, **WAV))
wave("sew_d", T.SEWDModel, lambda: T.SEWDConfig(squeeze_factor=2, position_buckets=8, max_position_embeddings=64,
                                                **WAV))
wave("wav2vec2_conformer", T.Wav2Vec2ConformerModel,
     lambda: T.Wav2Vec2ConformerConfig(position_embeddings_type="relative", conv_depthwise_kernel_size=3, **WAV))
wave("wav2vec2_conformer_rotary", T.Wav2Vec2ConformerModel,
     lambda: T.Wav2Vec2ConformerConfig(position_embeddings_type="rotary", conv_depthwise_kernel_size=3, **WAV))


def frames(name, cls, config, width, key="input_features", impls=BOTH, **fixed):
    def make(impl):
        b, s = batch(), Dim("frames", min=8, max=60)
        return wrap(build(cls, config(), impl), [key], ("last_hidden_state",),
                    **fixed), [dict([(key, R(x, n, width))]) for x, n in ((2, 16), (3, 24))], {key: {0: b, 1: s}}
    both(name, make, impls)


frames("wav2vec2_bert", T.Wav2Vec2BertModel, lambda: T.Wav2Vec2BertConfig(hidden_size=32, num_hidden_layers=2,
                                                                          num_attention_heads=4, intermediate_size=37,
                                                                          feature_projection_input_dim=20,
                                                                          conv_depthwise_kernel_size=3,
                                                                          left_max_position_embeddings=8,
       right_max_position_embeddings=4), 20)
both("audio_spectrogram_transformer",
     lambda impl: (wrap(build(T.ASTModel, T.ASTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                                      intermediate_size=37, patch_size=4, frequency_stride=4,
                                                      time_stride=4, max_length=24, num_mel_bins=16), impl),
     ["input_values"], ("last_hidden_state",)), [dict(input_values=R(b, 24, 16)) for b in (2, 3)],
                   dict(input_values={0: batch()})))
both("clap_audio",
     lambda impl: (wrap(build(T.ClapAudioModel, T.ClapAudioConfig(spec_size=32, num_mel_bins=16, window_size=4,
                                                                  patch_size=2, patch_stride=[2, 2],
                                                                  patch_embeds_hidden_size=16, depths=[2, 2],
                                                                  num_attention_heads=[2, 4], num_hidden_layers=2,
                                                                  hidden_size=32,
     patch_embed_input_channels=1), impl), ["input_features"], ("last_hidden_state",)),
                   [dict(input_features=R(b, 1, 64, 16)) for b in (2, 3)], dict(input_features={0: batch()})))
both("patchtst",
     lambda impl: (wrap(build(T.PatchTSTModel, T.PatchTSTConfig(num_input_channels=3, context_length=32,
                                                                patch_length=8, patch_stride=8, d_model=32,
                                                                num_attention_heads=4, num_hidden_layers=2,
                                                                ffn_dim=37), impl), ["past_values"],
                        ("last_hidden_state",)),
     [dict(past_values=R(b, 32, 3)) for b in (2, 3)], dict(past_values={0: batch()})))


def _moonshine(impl):
    c = T.MoonshineConfig(vocab_size=99, hidden_size=32, intermediate_size=37, encoder_num_hidden_layers=2,
                          decoder_num_hidden_layers=2, encoder_num_attention_heads=4, decoder_num_attention_heads=4,
                          max_position_embeddings=80)
    b = batch()
    return wrap(build(T.MoonshineModel, c, impl), ["input_values", "decoder_input_ids"], ("last_hidden_state",),
                use_cache=False), [dict(input_values=R(x, 2000), decoder_input_ids=I(98, x, n, lo=3))
                                   for x, n in ((2, 5), (3, 8))], dict(
        input_values={0: b}, decoder_input_ids={0: b, 1: seq()})


def _speech_to_text(impl):
    c = T.Speech2TextConfig(**S2S, input_feat_per_channel=8, num_conv_layers=2, conv_channels=16,
                            max_source_positions=80, max_target_positions=80, pad_token_id=1)
    mk = lambda b, n: dict(input_features=R(b, 24, 8), decoder_input_ids=I(98, b, n, lo=3))
    b = batch()
    return wrap(build(T.Speech2TextModel, c, impl), ["input_features", "decoder_input_ids"], ("last_hidden_state",),
                use_cache=False), [mk(2, 5), mk(3, 8)], dict(input_features={0: b}, decoder_input_ids={0: b, 1: seq()})


both("moonshine", _moonshine)
both("speech_to_text", _speech_to_text)

# ------------------------------------------------------------------ the biggest graph
text("llama_90_layers", T.LlamaModel, lambda: T.LlamaConfig(**{**DEC, "num_hidden_layers": 90}), impls=EAGER,
     use_cache=False)
