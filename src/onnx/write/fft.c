/* Fourier transforms as ONNX's DFT, one dim after the other. ONNX's inverse divides by the number of elements; what the
 * norm wants besides is a product.
 *
 *     qkv.fft_real(x, [1], 0, true)     DFT(Unsqueeze(x, -1), axis=1, onesided=1)
 *     qkv.fft_to_real(z, [1], 2, n)     the other bins put after those of z, DFT(inverse=1), its real parts
 */
#include "onnx/write/write_impl.h"

enum { FIRST_OPSET = 17, AXIS_IS_INPUT = 20 };

static Ref dft(Onnx *o, Ref x, int64_t axis, bool inverse, bool onesided)
{
    if (inverse) attr_int(o, "inverse", 1);
    if (onesided) attr_int(o, "onesided", 1);
    if (o->opt.opset >= AXIS_IS_INPUT) return NODE(o, "DFT", x.t, x, none(), integer(o, axis));
    attr_int(o, "axis", axis);
    return NODE(o, "DFT", x.t, x);
}

/* x times what the norm leaves to do: `count` elements were transformed, and the inverse divided by their number. */
static Ref normed(Onnx *o, const Node *n, Ref x, Expr *count, bool inverse)
{
    int64_t norm = arg_i(o, n, 2, 0);
    if (norm == (inverse ? 2 : 0)) return x;
    Ref by = size_scalar(o, count, x.t);
    if (norm == 1) by = NODE(o, "Sqrt", by.t, by);
    return NODE(o, inverse ? "Mul" : "Div", x.t, x, by);
}

typedef struct Dims {
    int n;
    int64_t at[MAX_RANK];
    Expr *count; /* elements of a transform */
} Dims;

static Dims dims_of(Onnx *o, const Node *n, const Value *reals)
{
    Dims d = {.count = ex_int(o->p, 1)};
    if (o->opt.opset < FIRST_OPSET) refuse(o, "ONNX has Fourier transforms from opset %d on", FIRST_OPSET);
    d.n = arg_ints_of(o, n, 1, d.at);
    for (int i = 0; i < d.n; i++) d.count = ex_mul(o->p, d.count, reals->dim[d.at[i]]);
    return d;
}

void out_fft_complex(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    bool inverse = !arg_b(n, 3);
    Dims d = dims_of(o, n, n->out[0]);
    Ref y = arg_ref(o, n, 0);
    for (int i = 0; i < d.n; i++) y = dft(o, y, d.at[i], inverse, false);
    give(o, n, 0, normed(o, n, y, d.count, inverse));
}

void out_fft_real(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *x = arg_v(n, 0);
    Dims d = dims_of(o, n, x);
    Ref y = dft(o, unsqueeze(o, arg_ref(o, n, 0), x->rank), d.at[d.n - 1], false, arg_b(n, 3));
    for (int i = 0; i < d.n - 1; i++) y = dft(o, y, d.at[i], false, false);
    give(o, n, 0, normed(o, n, y, d.count, false));
}

/* Bins n / 2 + 1 to n - 1: the conjugates of bins (n - 1) / 2 to 1. */
static Ref other_bins(Onnx *o, Ref x, int64_t axis, Expr *n)
{
    Expr *count = ex_floordiv(o->p, ex_sub(o->p, n, ex_int(o->p, 1)), ex_int(o->p, 2));
    Ref y = slice(o, x, axis, size_of(o, count), INTS(o, 0), -1);
    static double conjugate[] = {1, -1}; /* the file borrows it */
    Tensor sign = tensor_of(DT_F64, 1, (int64_t[]){2}, conjugate);
    return NODE(o, "Mul", x.t, y, cast(o, tensor_const(o, &sign, "conjugate"), x.t));
}

void out_fft_to_real(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *z = arg_v(n, 0);
    Dims d = dims_of(o, n, n->out[0]);
    int64_t last = d.at[d.n - 1];
    Ref y = arg_ref(o, n, 0);
    for (int i = 0; i < d.n - 1; i++) y = dft(o, y, d.at[i], true, false);
    Ref rest = other_bins(o, y, last, arg_e(n, 3));
    attr_int(o, "axis", last);
    y = dft(o, NODE(o, "Concat", y.t, y, rest), last, true, false);
    attr_int(o, "axis", z->rank - 1);
    y = NODE(o, "Gather", y.t, y, integer(o, 0));
    give(o, n, 0, normed(o, n, y, d.count, true));
}
