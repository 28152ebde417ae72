/* Integer products and their scales, as ONNX Runtime's quantize_dynamic writes them, as products between quantizers:
 * so they run as integers, and every writer has them.
 *
 *     Mul(Cast(MatMulInteger(a, b, a_zero, 0), float), Mul(a_scale, b_scale))
 *         ->  matmul(dequantize_linear(a, a_scale, a_zero), dequantize_linear(b, b_scale, axis 1))
 */
#include "base/mem.h"
#include "base/vec.h"
#include "facts/constant.h"
#include "onnx/read/read_impl.h"

static bool zeros(const Graph *g, const Value *zero)
{
    const Tensor *t = constant_tensor(g, zero);
    const int64_t n = t ? tensor_numel(t) : 0;
    bool all = t != NULL;
    for (int64_t i = 0; all && i < n; i++) all = !tensor_get_i64(t, i);
    return all;
}

bool op_symmetric_columns(const OnnxOp *o, const Value *b, const Value *scale, const Value *zero)
{
    return b->dtype == DT_I8 && b->rank == 2 && scale->dtype == DT_F32 && scale->rank < 2 &&
           (!zero || zeros(o->g, zero));
}

bool op_remember_product(OnnxOp *o, Value *y, Value *a, Value *a_zero, Value *b, const Value *b_zero)
{
    OnnxImport *im = o->im;
    if (!y || a->rank < 2 || b->dtype != DT_I8 || b->rank != 2 || (b_zero && !zeros(o->g, b_zero))) return true;
    OnnxProduct *all = vec_room(im->g->arena, im->product, im->nproduct, sizeof *all);
    if (!all) return oom(im->err);
    all[im->nproduct++] = (OnnxProduct){y, a, a_zero, b};
    im->product = all;
    return true;
}

/* The other factor of n, a product with x; NULL: n is something else. */
static Value *other_factor(const Node *n, const Value *x)
{
    if (n->op->id != OP_mul_Tensor || n->arg[0].kind != ARG_VALUE || n->arg[1].kind != ARG_VALUE) return NULL;
    return n->arg[0].v == x ? n->arg[1].v : n->arg[1].v == x ? n->arg[0].v : NULL;
}

static bool alike(const Value *a, const Value *b)
{
    bool same = a->rank == b->rank && a->dtype == b->dtype;
    for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
    return same;
}

/* The scale of p's second factor, where the first one's is its quantizer's and `both` their product; NULL otherwise. */
static Value *scale_of_columns(const OnnxProduct *p, const Value *both)
{
    const Node *q = p->a->def, *n = both->def;
    if (!q || !n || q->op->id != OP_quantize_linear || q->arg[5].e->i ||
        (q->arg[2].kind == ARG_VALUE ? q->arg[2].v : NULL) != p->a_zero)
        return NULL;
    Value *scale = other_factor(n, q->arg[1].v);
    return scale && scale->dtype == DT_F32 && scale->rank < 2 && q->arg[1].v->dtype == DT_F32 ? scale : NULL;
}

/* n multiplies the product p, as floats, with its scales: *done when it is replaced. */
static bool between_quantizers(Graph *g, Node *n, const OnnxProduct *p, const Value *floats, Err *err)
{
    Value *both = other_factor(n, floats), *scale = both ? scale_of_columns(p, both) : NULL;
    if (!scale) return true;
    const Node *q = p->a->def;
    const char *name = n->out[0]->name;
    Node *a = graph_add_before(g, n, OP_dequantize_linear, 4,
                               (Arg[]){arg_value(p->a), q->arg[1], q->arg[2], arg_int(g, 0)}, name, err),
         *b = a ? graph_add_before(g, n, OP_dequantize_linear, 4,
                                   (Arg[]){arg_value(p->b), arg_value(scale), arg_none(),
                                           arg_int(g, scale->rank ? 1 : 0)},
                                   name, err)
                : NULL,
         *y = b ? graph_add_before(g, n, OP_matmul, 2, (Arg[]){arg_value(a->out[0]), arg_value(b->out[0])}, name, err)
                : NULL;
    TRY(y);
    if (!alike(y->out[0], n->out[0])) return true;
    graph_replace_uses(g, n->out[0], y->out[0]);
    return true;
}

/* One pass: `of` has 1 + the product by the id of its value, as int32 and as floats. */
static bool merge(OnnxImport *im, int *of, int n)
{
    for (int i = 0; i < im->nproduct; i++) of[im->product[i].y->id] = 1 + i;
    for (Node *at = im->g->first, *next; at; at = next) {
        next = at->next;
        if (at->op->id == OP_to_copy && at->arg[0].v->id < n && at->out[0]->id < n && at->out[0]->dtype == DT_F32)
            of[at->out[0]->id] = of[at->arg[0].v->id];
        for (int k = 0; at->op->id == OP_mul_Tensor && k < 2; k++) {
            const Value *x = at->arg[k].kind == ARG_VALUE ? at->arg[k].v : NULL;
            if (!x || x->id >= n || !of[x->id] || x->dtype != DT_F32) continue;
            TRY(between_quantizers(im->g, at, &im->product[of[x->id] - 1], x, im->err));
        }
    }
    return true;
}

bool onnx_products(OnnxImport *im)
{
    const int n = im->g->next_id;
    int *of = im->nproduct ? mem_zeroed((size_t)n + 1, sizeof *of) : NULL;
    if (!im->nproduct) return true;
    bool ok = of ? merge(im, of, n) : oom(im->err);
    mem_free(of);
    return ok;
}
