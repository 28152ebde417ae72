"""SAM 3 in small, of the classes of Meta's package: the sizes of qkv.recipes.sam3.tiny_config(). tests/sam3_own.py
exports it by --module sam3_small:build, and reads its checkpoint into transformers' model of config()."""
from torch import nn

WIDTH, HEADS, FEED, LAYERS, QUERIES = 32, 4, 64, 2, 20


def config():
    from qkv.recipes import sam3

    made = sam3.tiny_config()
    made.text_config.projection_dim, made.text_config.intermediate_size = 512, 256  # what VETextEncoder makes
    return made


def build():
    from sam3.model.decoder import TransformerDecoder, TransformerDecoderLayer
    from sam3.model.encoder import TransformerEncoderFusion, TransformerEncoderLayer
    from sam3.model.geometry_encoders import SequenceGeometryEncoder
    from sam3.model.maskformer_segmentation import PixelDecoder, UniversalSegmentationHead
    from sam3.model.model_misc import MLP, DotProductScoring, MultiheadAttentionWrapper, TransformerWrapper
    from sam3.model.necks import Sam3DualViTDetNeck
    from sam3.model.position_encoding import PositionEmbeddingSine
    from sam3.model.sam3_image import Sam3Image
    from sam3.model.text_encoder_ve import VETextEncoder
    from sam3.model.vitdet import ViT
    from sam3.model.vl_combiner import SAM3VLBackbone

    def attention(batch_first=False, dropout=0.1):
        return MultiheadAttentionWrapper(WIDTH, HEADS, dropout, batch_first=batch_first)

    def layer(batch_first, positions_at_self):
        return TransformerEncoderLayer(
            activation="relu", d_model=WIDTH, dim_feedforward=FEED, dropout=0.1, pos_enc_at_attn=positions_at_self,
            pos_enc_at_cross_attn_keys=not positions_at_self, pos_enc_at_cross_attn_queries=False, pre_norm=True,
            self_attention=attention(batch_first), cross_attention=attention(batch_first))

    def positions():
        return PositionEmbeddingSine(num_pos_feats=WIDTH, normalize=True, scale=None, temperature=10000)

    vision = ViT(
        img_size=112, pretrain_img_size=56, patch_size=14, embed_dim=64, depth=4, num_heads=4, mlp_ratio=2.0,
        norm_layer="LayerNorm", drop_path_rate=0.1, global_att_blocks=(1, 3), rel_pos_blocks=(), use_rope=True,
        use_interp_rope=True, window_size=4, retain_cls_token=False, ln_pre=True, bias_patch_embed=False)
    neck = Sam3DualViTDetNeck(position_encoding=positions(), d_model=WIDTH, trunk=vision)
    text = VETextEncoder(d_model=WIDTH, tokenizer=None, width=64, heads=HEADS, layers=LAYERS, vocab_size=1024)
    decoder_layer = TransformerDecoderLayer(
        activation="relu", d_model=WIDTH, dim_feedforward=FEED, dropout=0.1, cross_attention=attention(),
        n_heads=HEADS, use_text_cross_attention=True)
    transformer = TransformerWrapper(
        encoder=TransformerEncoderFusion(
            layer=layer(True, True), num_layers=LAYERS, d_model=WIDTH, num_feature_levels=1, frozen=False,
            use_act_checkpoint=True, add_pooled_text_to_img_feat=False, pool_text_with_mask=True),
        decoder=TransformerDecoder(
            layer=decoder_layer, num_layers=LAYERS, num_queries=QUERIES, return_intermediate=True, box_refine=True,
            num_o2m_queries=0, dac=True, boxRPB="log", d_model=WIDTH, frozen=False, interaction_layer=None,
            dac_use_selfatt_ln=True, use_act_checkpoint=True, presence_token=True),
        d_model=WIDTH)
    head = UniversalSegmentationHead(
        hidden_dim=WIDTH, upsampling_stages=3, aux_masks=False, presence_head=False, dot_product_scorer=None,
        act_ckpt=True, cross_attend_prompt=attention(dropout=0),
        pixel_decoder=PixelDecoder(num_upsampling_stages=3, interpolation_mode="nearest", hidden_dim=WIDTH))
    geometry = SequenceGeometryEncoder(
        pos_enc=positions(), encode_boxes_as_points=False, points_direct_project=True, points_pool=True,
        points_pos_enc=True, boxes_direct_project=True, boxes_pool=True, boxes_pos_enc=True, d_model=WIDTH,
        num_layers=LAYERS, layer=layer(False, False), use_act_ckpt=True, add_cls=True, add_post_encode_proj=True)
    prompt = MLP(WIDTH, FEED, WIDTH, 2, dropout=0.1, residual=True, out_norm=nn.LayerNorm(WIDTH))
    return Sam3Image(
        backbone=SAM3VLBackbone(visual=neck, text=text, scalp=1), transformer=transformer,
        input_geometry_encoder=geometry, segmentation_head=head, num_feature_levels=1, o2m_mask_predict=True,
        dot_prod_scoring=DotProductScoring(d_model=WIDTH, d_proj=WIDTH, prompt_mlp=prompt), use_instance_query=False,
        multimask_output=True, inst_interactive_predictor=None, matcher=None).eval()
