/* Layouts of results. Contract in layout.h. */
#include "plan/layout.h"
#include <string.h>

/* Pooling of a batch of images, with nothing but the values wanted. */
static bool pools(const Call *c, const Tensor *t)
{
    const bool bytes = t->dtype == DT_I8 || t->dtype == DT_U8;
    if (t->dtype != DT_F32 && t->dtype != DT_BF16 && !bytes) return false;
    switch (c->node->op->id) {
    case OP_max_pool2d_with_indices: return t->rank == 4 && (c->unused & 2);
    case OP_max_pool3d_with_indices: return t->rank == 5 && (c->unused & 2);
    case OP_avg_pool2d:
    case OP__adaptive_avg_pool2d: return t->rank == 4 && !bytes;
    case OP_avg_pool3d:
    case OP__adaptive_avg_pool3d: return t->rank == 5 && !bytes;
    default: return false;
    }
}

/* It is laid out so, and not contiguous as well. */
static bool lies_so(const Tensor *t) { return t && t->rank >= 3 && tensor_channels_last(t) && !tensor_contiguous(t); }

static bool same_shape(const Tensor *a, const Tensor *b)
{
    return a->rank == b->rank && !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
}

/* Pictures that are joined along their channels. */
static bool joins(const Call *c, const Tensor *t)
{
    if (c->node->op->id != OP_cat || call_dim(c, 1, t->rank) != 1) return false;
    for (int i = 0; i < c->arg[0].n; i++)
        if (!lies_so(c->arg[0].ts[i]) || c->arg[0].ts[i]->dtype != t->dtype || c->arg[0].ts[i]->rank != t->rank)
            return false;
    return c->arg[0].n > 0;
}

/* A constant around each picture, whose rows of pixels are whole: no part of it cut away, no channels added. */
static bool pads(const Call *c)
{
    const Tensor *x = call_in(c, 0);
    if (c->node->op->id != OP_constant_pad_nd || !lies_so(x)) return false;
    for (int i = 0; i < c->arg[1].n; i++) {
        int64_t n = scalar_i64(c->arg[1].ss[i]);
        if (n < 0 || (n && i >= 2 * (x->rank - 2))) return false;
    }
    Tensor dense = *x; /* sizes of 1 may have any stride */
    strides_channels_last(dense.rank, dense.shape, dense.stride);
    return !memcmp(dense.stride, x->stride, (size_t)x->rank * sizeof *x->stride);
}

/* The axis of channels of pictures that lie so, be it the second or one further on. -1: they do not. */
static int channels_of(const Tensor *x)
{
    if (lies_so(x)) return 1;
    for (int k = 2; k < x->rank - 2; k++)
        if (x->shape[k] > 1 && tensor_axis_last(x, k) && !tensor_contiguous(x)) return k;
    return -1;
}

/* That of a pointwise op's operands of t's shape. */
static int channels_of_operands(const Call *c, const Tensor *t)
{
    for (int i = 0; i < c->node->op->schema->nparams; i++) {
        const Tensor *x = call_in(c, i);
        int k = x && same_shape(x, t) ? channels_of(x) : -1;
        if (k > 0) return k;
    }
    return -1;
}

static bool channels_last(const Call *c, const Tensor *t)
{
    const Node *n = c->node;
    if (t->rank < 3) return false;
    if (n->op->id == OP_convolution) return t->dtype == DT_F32 || t->dtype == DT_BF16;
    if (n->op->id == OP_convolution_integer) return true;
    if (n->op->id == OP_quantize_linear || n->op->id == OP_dequantize_linear)
        return tensor_numel(call_in(c, 1)) == 1 && lies_so(call_in(c, 0));
    if (n->op->id == OP_upsample)
        return (t->dtype == DT_F32 || t->dtype == DT_BF16) && call_in(c, 0)->dtype == t->dtype &&
               lies_so(call_in(c, 0));
    if (n->op->id == OP_batch_norm || n->op->id == OP_group_norm)
        return t->dtype == DT_F32 && call_in(c, 0)->dtype == t->dtype && lies_so(call_in(c, 0));
    if (joins(c, t) || pads(c)) return true;
    if (pools(c, t)) return call_in(c, 0)->dtype == t->dtype && lies_so(call_in(c, 0));
    return false;
}

void layout_choose(const Call *c, Tensor *t)
{
    OpId id = c->node->op->id;
    bool heads = id == OP_scaled_dot_product_attention || id == OP_sdpa_lse || id == OP_sdpa_backward;
    if (heads && t->rank == 4) {
        int64_t H = t->shape[1], N = t->shape[2], E = t->shape[3];
        memcpy(t->stride, (int64_t[]){N * H * E, E, H * E, 1}, 4 * sizeof *t->stride);
        return;
    }
    int k = channels_last(c, t) ? 1 : c->node->op->flags & OPF_ANY_LAYOUT ? channels_of_operands(c, t) : -1;
    if (k > 0) strides_axis_last(t->rank, t->shape, k, t->stride);
}
