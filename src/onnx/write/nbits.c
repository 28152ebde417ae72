/* Linear layers of weights in 4 and 8 bits by blocks below opset 21, where DequantizeLinear has neither blocks nor 4
 * bits. For ONNX Runtime its own MatMulNBits, for others a matrix with a block a row, an element a byte.
 *
 *     linear(x, dequantize_linear(w: i4 (N, K), scale (N, K / 32), axis 1, block 32), b)
 *         ->  MatMulNBits(x, bytes (N, K / 32, 16), scales, b)         elements with 8 added, the low half first
 *     dequantize_linear(w: i4 (N, K), scale (N, K / 32), axis 1, block 32)
 *         ->  Reshape(DequantizeLinear(w: i8 (N * K / 32, 32), scale (N * K / 32), axis=0), (N, K))
 */
#include <string.h>
#include "onnx/write/write_impl.h"

enum { LEAST_BLOCK = 16, MOST_BLOCK = 256 };

static const Tensor *known(const Value *v) { return v->kind == V_WEIGHT && v->weight != W_PARAMETER ? v->data : NULL; }
/* Scales of floats may be parameters: a reader of ONNX takes initializers of floats for such. */
static const Tensor *known_scale(const Value *v) { return v->kind == V_WEIGHT && !v->changes ? v->data : NULL; }

/* The block of d's weight; 4 bits by a scale a row are one block, as long as the row or a little longer. 0: it has none
 * that the op takes. */
static int64_t block_of(const Node *d)
{
    const Value *w = d->arg[0].v, *scale = d->arg[1].v;
    int64_t block = d->arg[4].e->i, room = LEAST_BLOCK;
    if (scale->rank == 2) return d->arg[3].e->i == 1 && block >= LEAST_BLOCK && !(block & (block - 1)) ? block : 0;
    if (w->dtype != DT_I4 || scale->rank != 1 || d->arg[3].e->i != 0 || !w->data) return 0;
    while (room < w->data->shape[1]) room *= 2;
    return room <= MOST_BLOCK ? room : 0;
}

static bool nbits_weight(const Onnx *o, const Node *d)
{
    if (!for_ort(o) || o->opt.opset >= HAS_BLOCKS || !d || d->op->id != OP_dequantize_linear) return false;
    const Value *w = d->arg[0].v, *scale = d->arg[1].v;
    bool bits = w->dtype == DT_I4 || w->dtype == DT_I8;
    return bits && w->rank == 2 && block_of(d) && known(w) && known_scale(scale) && scale->dtype == DT_F32 &&
           d->arg[2].kind == ARG_NONE && d->out[0]->dtype == DT_F32 && tensor_contiguous(w->data) &&
           tensor_contiguous(scale->data);
}

static bool takes_nbits(const Onnx *o, const Node *n)
{
    return n->op->id == OP_linear && n->arg[0].v->dtype == DT_F32 && nbits_weight(o, n->arg[1].v->def);
}

typedef struct Readers {
    const Onnx *o;
    const Value *v;
    bool only;
} Readers;

static void look(void *user, Value **slot)
{
    Readers *r = user;
    r->only = r->only && *slot != r->v;
}

/* Is this weight's inverse part of the products that read it? */
bool inside_nbits(const Onnx *o, const Node *d)
{
    Readers r = {o, d->out[0], true};
    if (!nbits_weight(o, d)) return false;
    for (int i = 0; i < o->g->noutput; i++) r.only = r.only && o->g->output[i].value != r.v;
    for (const Node *n = d->next; n; n = n->next) {
        bool product = takes_nbits(o, n) && n->arg[1].v == r.v && n->arg[0].v != r.v;
        if (!product) node_each_operand((Node *)n, look, &r);
    }
    return r.only;
}

/* false: DequantizeLinear takes it as it is, or it is not a constant of blocks along rows */
bool out_rows_of_blocks(Onnx *o, const Node *d)
{
    const Tensor *w = known(d->arg[0].v), *scale = known_scale(d->arg[1].v);
    const int64_t block = d->arg[4].e->i, axis = d->arg[3].e->i;
    if (o->opt.opset >= HAS_BLOCKS || !w || !scale || (w->dtype != DT_I4 && w->dtype != DT_I8)) return false;
    if (!block && w->dtype != DT_I4) return false;
    if (w->rank != 2 || axis != (block ? 1 : 0) || scale->dtype != DT_F32 || d->arg[2].kind != ARG_NONE ||
        !tensor_contiguous(w) || !tensor_contiguous(scale))
        return false;
    const int64_t rows = tensor_numel(scale), row = rows ? tensor_numel(w) / rows : 0;
    Tensor elements = tensor_of(DT_I8, 2, (int64_t[]){rows, row}, w->data),
           scales = tensor_of(DT_F32, 1, (int64_t[]){rows}, scale->data);
    Ref x = tensor_const(o, &elements, d->arg[0].v->fqn), by = tensor_const(o, &scales, d->arg[1].v->fqn);
    attr_int(o, "axis", 0);
    Ref y = NODE(o, "DequantizeLinear", DT_F32, x, by);
    give(o, d, 0, cast(o, block ? NODE(o, "Reshape", DT_F32, y, ints(o, 2, w->shape)) : y, d->out[0]->dtype));
    return true;
}

/* (N, blocks, bytes of a block): of 4 bits two elements a byte; of 8 bits with 128 added. */
static Ref packed(Onnx *o, const Node *d, int64_t block, int64_t blocks)
{
    const Tensor *w = d->arg[0].v->data;
    const bool four = w->dtype == DT_I4;
    const int64_t N = w->shape[0], K = w->shape[1], bytes = four ? block / 2 : block;
    const int8_t *from = w->data;
    uint8_t *to = arena_alloc(o->a, (size_t)(N * blocks * bytes) + 1, 1);
    if (!to) {
        out_of_memory(o);
        return none();
    }
    memset(to, four ? 0x88 : 0x80, (size_t)(N * blocks * bytes));
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            int v = from[n * K + k];
            uint8_t *at = to + n * blocks * bytes + (four ? k / 2 : k);
            if (!four) *at = (uint8_t)(v + 128);
            else *at = (uint8_t)(k % 2 ? (*at & 15) | (v + 8) << 4 : (*at & 240) | (v + 8));
        }
    Tensor t = tensor_of(DT_U8, 3, (int64_t[]){N, blocks, bytes}, to);
    return tensor_const(o, &t, d->arg[0].v->fqn);
}

/* false: it is another product */
bool out_nbits(Onnx *o, const Node *n)
{
    if (!takes_nbits(o, n)) return false;
    const Node *d = n->arg[1].v->def;
    const int64_t block = block_of(d), N = d->arg[0].v->data->shape[0], K = d->arg[0].v->data->shape[1];
    Tensor scales = *d->arg[1].v->data;
    Ref x = arg_ref(o, n, 0), w = packed(o, d, block, (K + block - 1) / block),
        by = tensor_const(o, &scales, d->arg[1].v->fqn), bias = arg_ref(o, n, 2);
    attr_int(o, "K", K);
    attr_int(o, "N", N);
    attr_int(o, "bits", d->arg[0].v->dtype == DT_I4 ? 4 : 8);
    attr_int(o, "block_size", block);
    give(o, n, 0, contrib_node(o, "MatMulNBits", x.t, 6, (Ref[]){x, w, by, none(), none(), bias}));
    return true;
}
