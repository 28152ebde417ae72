/* ONNX's random numbers: dropout in training, RandomUniform and its like. Contract in onnx_impl.h.
 *
 *     Dropout(x, 0.1, true, seed=7)        ->  where(qkv.seeded_uniform([...], 7) >= 0.1, x / 0.9, 0)
 *
 * With a seed the values are those of ONNX's reference (NumPy's RandomState) for uniform draws; without one the session
 * draws them.
 */
#include <math.h>
#include <string.h>
#include "onnx/read/read_impl.h"

/* A seed is an integer (Dropout) or a float; *seeded: there is one */
static bool seed_of(OnnxOp *o, bool *seeded, int64_t *seed)
{
    const OnnxAttr *a = op_attr(o, "seed");
    *seeded = a != NULL;
    *seed = !a ? 0 : a->type == ONNX_ATTR_FLOAT ? (int64_t)(fabs((double)a->f) < 0x1p32 ? a->f : 0) : a->i;
    return !a || a->type == ONNX_ATTR_FLOAT || a->type == ONNX_ATTR_INT ||
           fail(o->im->err, E_FORMAT, "attribute 'seed' is not a number");
}

/* Uniform in [0, 1), in double */
static Value *uniform(OnnxOp *o, int rank, Expr *const *dim)
{
    bool seeded;
    int64_t seed;
    if (!seed_of(o, &seeded, &seed)) return NULL;
    if (seeded) return AS(&o->L, seeded_uniform, arg_exprs(o->g, rank, dim), arg_int(o->g, seed));
    return AS(&o->L, rand, arg_exprs(o->g, rank, dim), arg_dtype(DT_F64));
}

static Value *dropped(OnnxOp *o, Value *x, Value *ratio, Value **kept)
{
    Value *wide = lower_cast(&o->L, ratio, DT_F64);
    TRY_NULL(*kept = AS(&o->L, ge_Tensor, v(uniform(o, x->rank, x->dim)), v(wide)));
    Value *left = lower_cast(&o->L, AS(&o->L, sub_Tensor, v(op_number(o, DT_F64, 1)), v(wide)), x->dtype);
    return AS(&o->L, where_self, v(*kept), v(AS(&o->L, div_Tensor, v(x), v(left))), v(op_number(o, x->dtype, 0)));
}

static Value *scalar(OnnxOp *o, Value *x) { return x && x->rank ? lower_reshape(&o->L, x, 0, NULL) : x; }

/* Outside training: the input, and a mask of ones. Whether it is training may be computed. */
bool onnx_dropout(OnnxOp *o)
{
    Value *x, *ratio, *training = NULL, *kept = NULL;
    TRY(op_tensor(o, 0, &x));
    Value *y = x, *all = AS(&o->L, full, arg_exprs(o->g, x->rank, x->dim), arg_bool(o->g, true), arg_dtype(DT_BOOL));
    const Cell *known = op_known(o, 2);
    bool decided = !op_has(o, 2) || (known && known->n == 1 && ex_is_const(known->e[0])),
         trains = op_has(o, 2) && (!decided || known->e[0]->i != 0);
    if (trains) {
        TRY(op_optional(o, 1, &ratio));
        if (!ratio) ratio = op_number(o, DT_F32, 0.5);
        TRY((ratio = scalar(o, ratio)) && (y = dropped(o, x, ratio, &kept)));
    } else kept = all;
    if (!decided) {
        TRY(op_tensor(o, 2, &training) && (training = scalar(o, training)));
        y = AS(&o->L, where_self, v(training), v(y), v(x));
        kept = AS(&o->L, where_self, v(training), v(kept), v(all));
    }
    TRY(op_return(o, 0, y));
    if (!op_wants(o, 1)) return true;
    return op_return(o, 1, o->opset >= 12 ? kept : lower_cast(&o->L, kept, o->opset >= 10 ? DT_BOOL : x->dtype));
}

/* The shape and dtype that attributes or the input give */
static bool asked_for(OnnxOp *o, int *rank, Expr **dim, DType *t)
{
    const int64_t *shape;
    Value *x = NULL;
    int n;
    if (strstr(o->node->op, "Like")) {
        TRY(op_tensor(o, 0, &x));
        *rank = x->rank;
        for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i];
    } else {
        TRY(op_attr_ints(o, "shape", &shape, &n));
        if (!shape || n > MAX_RANK)
            return fail(o->im->err, E_FORMAT, "attribute 'shape' is missing, or longer than %d", MAX_RANK);
        *rank = n;
        for (int i = 0; i < n; i++) dim[i] = ex_int(o->ex, shape[i]);
    }
    return op_attr_dtype(o, "dtype", x && dtype_is_float(x->dtype) ? x->dtype : DT_F32, t);
}

/* low + (high - low) u */
bool onnx_random_uniform(OnnxOp *o)
{
    int rank;
    Expr *dim[MAX_RANK];
    DType t;
    double low, high;
    TRY(asked_for(o, &rank, dim, &t) && op_attr_float(o, "low", 0, &low) && op_attr_float(o, "high", 1, &high));
    Value *y = AS(&o->L, mul_Tensor, v(uniform(o, rank, dim)), arg_float(o->g, high - low));
    return op_return(o, 0, lower_cast(&o->L, AS(&o->L, add_Tensor, v(y), arg_float(o->g, low)), t));
}

/* mean + scale sqrt(2) erfinv(2 u - 1), u inside (0, 1) */
bool onnx_random_normal(OnnxOp *o)
{
    int rank;
    Expr *dim[MAX_RANK];
    DType t;
    double mean, scale;
    TRY(asked_for(o, &rank, dim, &t) && op_attr_float(o, "mean", 0, &mean) && op_attr_float(o, "scale", 1, &scale));
    Value *u = AS(&o->L, mul_Tensor, v(AS(&o->L, add_Tensor, v(uniform(o, rank, dim)), arg_float(o->g, 0x1p-54))),
                  arg_float(o->g, 2));
    Value *y = AS(&o->L, erfinv, v(AS(&o->L, sub_Tensor, v(u), arg_float(o->g, 1))));
    y = AS(&o->L, mul_Tensor, v(y), arg_float(o->g, scale * sqrt(2)));
    return op_return(o, 0, lower_cast(&o->L, AS(&o->L, add_Tensor, v(y), arg_float(o->g, mean)), t));
}

/* 1 where a uniform number is below the input */
bool onnx_bernoulli(OnnxOp *o)
{
    Value *x;
    DType t;
    TRY(op_tensor(o, 0, &x) && op_attr_dtype(o, "dtype", x->dtype, &t));
    return op_return(
        o, 0,
        lower_cast(&o->L, AS(&o->L, lt_Tensor, v(uniform(o, x->rank, x->dim)), v(lower_cast(&o->L, x, DT_F64))), t));
}

/* Classes drawn by their (unnormalised) log-probabilities, rows (batch, classes): how many sums of probabilities are
 * below a uniform number */
bool onnx_multinomial(OnnxOp *o)
{
    Value *x;
    DType t;
    int64_t count;
    TRY(op_tensor(o, 0, &x) && op_attr_dtype(o, "dtype", DT_I32, &t) && op_attr_int(o, "sample_size", 1, &count));
    if (x->rank != 2 || count < 1)
        return op_fail(o, 0, "rank %d with %lld samples, expected rows of log-probabilities", x->rank,
                       (long long)count);
    Expr *one = ex_int(o->ex, 1), *n = ex_int(o->ex, count);
    Value *sums = AS(&o->L, cumsum, v(AS(&o->L, softmax_int, v(lower_cast(&o->L, x, DT_F64)), arg_int(o->g, 1))),
                     arg_int(o->g, 1));
    TRY(sums && (sums = lower_reshape(&o->L, sums, 3, (Expr *[]){x->dim[0], one, x->dim[1]})));
    Value *u = uniform(o, 3, (Expr *[]){x->dim[0], n, one});
    Value *below = lower_cast(&o->L, AS(&o->L, le_Tensor, v(sums), v(u)), DT_I64);
    Value *at = AS(&o->L, sum_dim_IntList, v(below), arg_ints(o->g, 1, (int64_t[]){2}));
    at = AS(&o->L, clamp, v(at), arg_int(o->g, 0), arg_expr(ex_sub(o->ex, x->dim[1], one)));
    return op_return(o, 0, lower_cast(&o->L, at, t));
}
