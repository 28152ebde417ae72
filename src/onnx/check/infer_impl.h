/* What src/verify/onnx_infer*.c share: reading a node, giving results, refusing. An op's function reads f->in and fills
 * f->out:
 *
 *     void infer_op_gemm(OnnxInfer *f)
 *     {
 *         if (!ranked(f, 0) || !ranked(f, 1)) return;                 nothing follows from what is not known
 *         if (differ(inner, other)) infer_refuse(f, "...");           a finding
 *         give(f, 0, 2, (OnnxSize[]){rows, columns});
 *     }
 */
#ifndef QKV_ONNX_CHECK_INFER_IMPL_H
#define QKV_ONNX_CHECK_INFER_IMPL_H
#include <string.h>
#include "onnx/check/infer.h"

static inline OnnxSize number(int64_t v) { return (OnnxSize){SIZE_NUMBER, v}; }
static inline OnnxSize unknown(void) { return (OnnxSize){SIZE_UNKNOWN, 0}; }
static inline bool is_number(OnnxSize s) { return s.kind == SIZE_NUMBER; }
static inline bool is_one(OnnxSize s) { return s.kind == SIZE_NUMBER && s.v == 1; }
static inline bool differ(OnnxSize a, OnnxSize b) { return is_number(a) && is_number(b) && a.v != b.v; }

static inline const OnnxShape *input(const OnnxInfer *f, int i) { return i < f->node->ninput ? f->in[i] : NULL; }
static inline bool ranked(const OnnxInfer *f, int i) { return input(f, i) && input(f, i)->rank >= 0; }

static inline OnnxShape *output(OnnxInfer *f, int k) { return k < f->node->noutput ? &f->out[k] : NULL; }

static inline void give_rank(OnnxInfer *f, int k, int rank)
{
    OnnxShape *o = output(f, k);
    if (!o || rank < 0 || rank > MAX_RANK) return;
    o->rank = rank;
    for (int i = 0; i < rank; i++) o->dim[i] = unknown();
}

/* Sizes above 2^40 are taken for unknown, so that sums and small multiples of sizes do not overflow. */
static inline void give(OnnxInfer *f, int k, int rank, const OnnxSize *dim)
{
    give_rank(f, k, rank);
    OnnxShape *o = output(f, k);
    for (int i = 0; o && o->rank == rank && i < rank; i++)
        o->dim[i] = is_number(dim[i]) && (dim[i].v < 0 || dim[i].v > ONNX_LARGEST) ? unknown() : dim[i];
}

static inline void give_same(OnnxInfer *f, int k, int i)
{
    if (ranked(f, i)) give(f, k, input(f, i)->rank, input(f, i)->dim);
}

/* ---- onnx_infer.c */
OnnxShape infer_copy(const OnnxShape *s);                               /* to change, of one that may be kept */
bool infer_among(const char *name, const char *list);                   /* is name one of the words in list? */
void infer_refuse(OnnxInfer *f, const char *fmt, ...) QKV_PRINTF(2, 3); /* Q204 */
int64_t infer_int(const OnnxInfer *f, const char *name, int64_t otherwise);
const OnnxAttr *infer_ints(const OnnxInfer *f, const char *name); /* NULL when absent */
bool infer_is(const OnnxInfer *f, const char *name, const char *text);
int infer_axis(OnnxInfer *f, int64_t axis, int rank); /* in -rank .. rank - 1, normalised; -1 after a finding */
int infer_numbers(const OnnxInfer *f, int i, int64_t *v,
                  int cap); /* elements of input i; -1 when they are not all known */
int infer_axes(const OnnxInfer *f, int i,
               int64_t *v); /* "axes" as attribute or as input i; -1: not given, -2: not known */
void infer_give_data(OnnxInfer *f, int n, const OnnxSize *data);              /* elements of result 0 */
bool infer_broadcast_into(OnnxInfer *f, OnnxShape *into, const OnnxShape *s); /* false after a finding */
bool infer_numel(int rank, const OnnxSize *d, int64_t *out); /* of known sizes; false when one is unknown */

/* ---- onnx_infer_view.c, onnx_infer_layers.c */
void infer_op_transpose(OnnxInfer *f);
void infer_op_concat(OnnxInfer *f);
void infer_op_reshape(OnnxInfer *f);
void infer_op_squeeze(OnnxInfer *f, bool unsqueeze);
void infer_op_gather(OnnxInfer *f);
void infer_op_slice(OnnxInfer *f);
void infer_op_split(OnnxInfer *f);
void infer_op_expand(OnnxInfer *f);
void infer_op_shape_of(OnnxInfer *f);
void infer_op_constant(OnnxInfer *f);
void infer_op_depth(OnnxInfer *f, bool to_space);
void infer_op_flatten(OnnxInfer *f);
void infer_op_from_sizes(OnnxInfer *f);
void infer_op_pad_tile(OnnxInfer *f);
void infer_op_matmul(OnnxInfer *f, int i, int k);
void infer_op_gemm(OnnxInfer *f);
void infer_op_reduce(OnnxInfer *f);
void infer_op_conv(OnnxInfer *f, bool pool);
void infer_op_grid(OnnxInfer *f);
void infer_op_norm(OnnxInfer *f);
void infer_op_resize(OnnxInfer *f);
void infer_op_rnn(OnnxInfer *f);
void infer_op_einsum(OnnxInfer *f);
void infer_op_global_pool(OnnxInfer *f);
void infer_op_loss(OnnxInfer *f);
void infer_op_attention(OnnxInfer *f);
void infer_op_topk(OnnxInfer *f);
void infer_op_unique(OnnxInfer *f);
void infer_op_ranks(OnnxInfer *f);
#endif
