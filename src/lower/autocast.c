/* Autocast's rules. Contract in autocast.h. */
#include "lower/autocast.h"
#include <string.h>

/* Names without overload. LOWER: run in the low precision; FULL: run in float32; WIDEST: run in the widest of the operands. */
static const char *const lower_ops[] = {"aten.conv1d",
                                        "aten.conv2d",
                                        "aten.conv3d",
                                        "aten.convolution",
                                        "aten._convolution",
                                        "aten.conv_tbc",
                                        "aten.conv_transpose1d",
                                        "aten.conv_transpose2d",
                                        "aten.conv_transpose3d",
                                        "aten.bmm",
                                        "aten.mm",
                                        "aten.mv",
                                        "aten.baddbmm",
                                        "aten.addmm",
                                        "aten.addbmm",
                                        "aten.addmv",
                                        "aten.linear",
                                        "aten.matmul",
                                        "aten.einsum",
                                        "aten.prelu",
                                        "aten.linalg_vecdot",
                                        "aten.scaled_dot_product_attention",
                                        "aten._native_multi_head_attention",
                                        "aten._scaled_dot_product_flash_attention_for_cpu",
                                        NULL};
static const char *const full_cpu_ops[] = {"aten.avg_pool3d",
                                           "aten.binary_cross_entropy",
                                           "aten.grid_sampler",
                                           "aten.polar",
                                           "aten.prod",
                                           "aten.quantile",
                                           "aten.nanquantile",
                                           "aten.stft",
                                           "aten.cdist",
                                           "aten.trace",
                                           "aten.view_as_complex",
                                           "aten.cholesky",
                                           "aten.mse_loss",
                                           "aten.cosine_embedding_loss",
                                           "aten.nll_loss",
                                           "aten.hinge_embedding_loss",
                                           "aten.poisson_nll_loss",
                                           "aten.smooth_l1_loss",
                                           "aten.cross_entropy_loss",
                                           "aten.l1_loss",
                                           "aten.huber_loss",
                                           "aten.margin_ranking_loss",
                                           "aten.soft_margin_loss",
                                           "aten.triplet_margin_loss",
                                           "aten.multi_margin_loss",
                                           "aten.ctc_loss",
                                           "aten.kl_div",
                                           "aten.multilabel_margin_loss",
                                           "aten.binary_cross_entropy_with_logits",
                                           "aten.replication_pad2d",
                                           "aten.replication_pad3d",
                                           "aten.reflection_pad1d",
                                           "aten.reflection_pad2d",
                                           "aten.upsample_nearest1d",
                                           "aten.upsample_nearest2d",
                                           "aten.upsample_nearest3d",
                                           "aten.upsample_linear1d",
                                           "aten.upsample_bilinear2d",
                                           "aten.upsample_trilinear3d",
                                           "aten.upsample_bicubic2d",
                                           "aten.adaptive_avg_pool3d",
                                           "aten.avg_pool2d",
                                           NULL};
/* In float32 under CUDA's autocast; only the declared dtype can bring these in. */
static const char *const full_cuda_ops[] = {"aten.acos",
                                            "aten.asin",
                                            "aten.cosh",
                                            "aten.erfinv",
                                            "aten.exp",
                                            "aten.expm1",
                                            "aten.log",
                                            "aten.log10",
                                            "aten.log2",
                                            "aten.log1p",
                                            "aten.reciprocal",
                                            "aten.rsqrt",
                                            "aten.sinh",
                                            "aten.tan",
                                            "aten.pow",
                                            "aten.softplus",
                                            "aten.layer_norm",
                                            "aten.native_layer_norm",
                                            "aten.group_norm",
                                            "aten.norm",
                                            "aten.cosine_similarity",
                                            "aten.softmax",
                                            "aten.log_softmax",
                                            "aten.cumsum",
                                            "aten.cumprod",
                                            "aten.sum",
                                            "aten.softmin",
                                            "aten.rms_norm",
                                            NULL};
static const char *const widest_ops[] = {
    "aten.cat",          "aten.stack",     "aten.index_copy", "aten.atan2",       "aten.addcdiv",
    "aten.addcmul",      "aten.bilinear",  "aten.cross",      "aten.dot",         "aten.vdot",
    "aten.grid_sampler", "aten.index_put", "aten.tensordot",  "aten.scatter_add", NULL};

static bool listed(const char *const *list, const char *name)
{
    const char *overload = strrchr(name, '.');
    size_t n = (size_t)(overload - name);
    for (; *list; list++)
        if (strlen(*list) == n && !strncmp(*list, name, n)) return true;
    return false;
}

static bool low(DType t) { return t == DT_BF16 || t == DT_F16; }
static bool eligible(DType t) { return low(t) || t == DT_F32; }

static Value *cast(Graph *g, Value *v, DType t, Err *err)
{
    if (v->dtype == t || !eligible(v->dtype)) return v;
    Node *n = graph_add(g, OP_to_copy, 2, (Arg[]){arg_value(v), arg_dtype(t)}, v->name, err);
    return n ? n->out[0] : NULL;
}

static bool cast_all(Graph *g, const Op *op, Arg *arg, DType t, Err *err)
{
    for (int i = 0; i < op->schema->nparams; i++) {
        if (arg[i].kind == ARG_VALUE) TRY(arg[i].v = cast(g, arg[i].v, t, err));
        if (arg[i].kind != ARG_VALUES) continue;
        Arg list = arg_values(g, arg[i].n, arg[i].vs);
        if (!list.vs) return oom(err);
        for (int k = 0; k < list.n; k++)
            if (list.vs[k]) TRY(list.vs[k] = cast(g, list.vs[k], t, err));
        arg[i] = list;
    }
    return true;
}

typedef struct Seen {
    bool f32, low, other;
} Seen;

static void look(Seen *s, const Value *v)
{
    if (!v) return;
    s->f32 |= v->dtype == DT_F32;
    s->low |= low(v->dtype);
    s->other |= v->dtype == DT_F64;
}

bool autocast_args(Graph *g, const Op *op, Arg *arg, DType declared, DType compute, Err *err)
{
    Seen s = {0};
    for (int i = 0; i < op->schema->nparams; i++) {
        if (arg[i].kind == ARG_VALUE) look(&s, arg[i].v);
        for (int k = 0; arg[i].kind == ARG_VALUES && k < arg[i].n; k++) look(&s, arg[i].vs[k]);
    }
    if (listed(lower_ops, op->name)) {
        DType t = low(declared) ? declared : compute != DT_NONE && declared == DT_F32 && !s.other ? compute : DT_NONE;
        return t == DT_NONE || !s.f32 || cast_all(g, op, arg, t, err);
    }
    if (!s.low) return true;
    bool full = declared == DT_F32 &&
                (listed(full_cpu_ops, op->name) || (compute == DT_NONE && listed(full_cuda_ops, op->name)));
    bool mixed = s.f32 && listed(widest_ops, op->name);
    return (!full && !mixed) || cast_all(g, op, arg, DT_F32, err);
}
