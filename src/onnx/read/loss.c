/* ONNX's losses. Contract in onnx_impl.h.
 *
 *     NegativeLogLikelihoodLoss(x, target, weight)         ->  -x at the target, times its weight; the mean divides
 *                                                              by the weights' sum
 */
#include <string.h>
#include "onnx/read/read_impl.h"

static Value *total(OnnxOp *o, Value *x)
{
    Value *flat = x ? AS(&o->L, reshape, v(x), arg_ints(o->g, 1, (int64_t[]){-1})) : NULL;
    return flat ? AS(&o->L, sum_dim_IntList, v(flat), arg_ints(o->g, 1, (int64_t[]){0}), arg_bool(o->g, false),
                     arg_dtype(x->dtype))
                : NULL;
}

/* x (N, C, ...), target (N, ...) */
static Value *likelihood(OnnxOp *o, Value *x, Value *target, Value *weight)
{
    const char *how;
    int64_t ignore;
    Expr *dim[MAX_RANK], *all = ex_int(o->ex, 1);
    bool ignores = op_attr(o, "ignore_index") != NULL;
    if (!op_attr_string(o, "reduction", "mean", &how) || !op_attr_int(o, "ignore_index", 0, &ignore)) return NULL;
    if (x->rank < 2 || target->rank != x->rank - 1) {
        op_fail(o, 1, "rank %d for scores of rank %d", target->rank, x->rank);
        return NULL;
    }
    Value *t = lower_cast(&o->L, target, DT_I64), *w = NULL, *zero = op_number(o, x->dtype, 0);
    Value *left_out = ignores ? AS(&o->L, eq_Tensor, v(t), v(op_number(o, DT_I64, (double)ignore))) : NULL;
    if (ignores) t = AS(&o->L, where_self, v(left_out), v(op_number(o, DT_I64, 0)), v(t));
    TRY_NULL(t);
    for (int i = 0; i < x->rank; i++) dim[i] = i == 1 ? ex_int(o->ex, 1) : x->dim[i];
    for (int i = 0; i < t->rank; i++) all = ex_mul(o->ex, all, t->dim[i]);
    Value *picked = AS(&o->L, neg,
                       v(AS(&o->L, gather, v(x), arg_int(o->g, 1), v(lower_reshape(&o->L, t, x->rank, dim)))));
    Value *loss = picked ? lower_reshape(&o->L, picked, t->rank, t->dim) : NULL;
    if (weight) w = AS(&o->L, index_select, v(weight), arg_int(o->g, 0), v(lower_reshape(&o->L, t, 1, &all)));
    if (w) w = lower_reshape(&o->L, w, t->rank, t->dim);
    if (!weight && ignores)
        w = AS(&o->L, full, arg_exprs(o->g, t->rank, t->dim), arg_float(o->g, 1), arg_dtype(x->dtype));
    if (w && ignores) w = AS(&o->L, where_self, v(left_out), v(zero), v(w));
    if (w) loss = AS(&o->L, mul_Tensor, v(loss), v(w));
    if (!strcmp(how, "none")) return loss;
    Value *sum = total(o, loss);
    if (!strcmp(how, "sum") || !sum) return sum;
    Value *count = w ? total(o, w) : AS(&o->L, full, arg_ints(o->g, 0, NULL), arg_expr(all), arg_dtype(x->dtype));
    return AS(&o->L, div_Tensor, v(sum), v(count));
}

bool onnx_nll_loss(OnnxOp *o)
{
    Value *x, *target, *weight;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &target) && op_optional(o, 2, &weight));
    return op_return(o, 0, likelihood(o, x, target, weight));
}

/* of log_softmax over the classes, which is the second result */
bool onnx_cross_entropy(OnnxOp *o)
{
    Value *x, *target, *weight;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &target) && op_optional(o, 2, &weight));
    TRY(x = AS(&o->L, log_softmax_int, v(x), arg_int(o->g, 1)));
    TRY(op_return(o, 0, likelihood(o, x, target, weight)));
    return !op_wants(o, 1) || op_return(o, 1, x);
}
