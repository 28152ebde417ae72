/* DFT, STFT and the weights of mel spectrograms. ONNX's tensors are pairs on the last axis, or reals with a last axis
 * of 1.
 *
 *     DFT(x (B, L, 1), axis=1, onesided=1)    fft_real(x (B, L), [1], 0, true)
 */
#include "onnx/read/read_impl.h"

typedef struct Signal {
    Value *x; /* reals, or pairs */
    bool complex;
    int rank; /* without the last axis */
} Signal;

static bool signal_of(OnnxOp *o, Signal *s)
{
    TRY(op_tensor(o, 0, &s->x));
    s->rank = s->x->rank - 1;
    if (s->rank < 1) return op_fail(o, 0, "rank %d, expected 2 or more", s->x->rank);
    const Expr *last = s->x->dim[s->rank];
    if (!ex_equals_int(last, 1) && !ex_equals_int(last, 2))
        return op_unsupported(o, "whether the signal is complex is not known from its last size; it must be 1 or 2");
    s->complex = ex_equals_int(last, 2);
    if (!s->complex) s->x = lower_reshape(&o->L, s->x, s->rank, s->x->dim);
    return s->x != NULL;
}

/* Cut, or filled with zeros, to n along the axis */
static Value *of_length(OnnxOp *o, Value *x, int axis, Expr *n)
{
    Expr *pad[2 * MAX_RANK];
    if (!n || x->dim[axis] == n) return x;
    for (int i = 0; i < 2 * x->rank; i++) pad[i] = ex_int(o->ex, 0);
    pad[2 * (x->rank - 1 - axis) + 1] = ex_sub(o->ex, n, x->dim[axis]);
    return AS(&o->L, constant_pad_nd, v(x), arg_exprs(o->g, 2 * x->rank, pad), arg_float(o->g, 0));
}

static bool axis_of(OnnxOp *o, int rank, int *axis)
{
    int64_t a = -2, *given = &a;
    int n = 1;
    if (o->opset < 20) TRY(op_attr_int(o, "axis", 1, &a));
    else if (op_has(o, 2)) TRY(op_const_ints(o, 2, &n, (const int64_t **)&given));
    if (n != 1) return op_fail(o, 2, "%d axes, expected one", n);
    TRY(op_axis(o, "axis", *given, rank + 1, axis));
    return *axis < rank || op_fail(o, 0, "the axis of pairs is not transformed");
}

bool onnx_dft(OnnxOp *o)
{
    Signal s;
    int axis, n = 0;
    int64_t inverse, onesided;
    Expr **length = NULL;
    TRY(signal_of(o, &s) && axis_of(o, s.rank, &axis) && op_attr_int(o, "inverse", 0, &inverse) &&
        op_attr_int(o, "onesided", 0, &onesided));
    if (op_has(o, 1)) TRY(op_sizes(o, 1, &n, &length));
    if (op_has(o, 1) && n != 1) return op_fail(o, 1, "%d sizes, expected one", n);
    Expr *size = length ? length[0] : NULL, *two = ex_int(o->ex, 2), *one = ex_int(o->ex, 1);
    Arg dim = arg_ints(o->g, 1, (int64_t[]){axis}), norm = arg_int(o->g, inverse ? 2 : 0);
    if (onesided && s.complex != (inverse != 0))
        return op_fail(o, 0, "one side of a %s signal, %s", s.complex ? "complex" : "real",
                       inverse ? "inverse" : "forward");
    if (onesided && inverse) { /* bins to reals */
        if (!size) size = ex_mul(o->ex, two, ex_sub(o->ex, s.x->dim[axis], one));
        Value *x = of_length(o, s.x, axis, ex_add(o->ex, ex_floordiv(o->ex, size, two), one));
        Value *y = x ? EMIT(&o->L, fft_to_real, v(x), dim, norm, arg_expr(size)) : NULL;
        return y && op_return(o, 0, AS(&o->L, unsqueeze, v(y), arg_int(o->g, -1)));
    }
    Value *x = of_length(o, s.x, axis, size);
    if (x && !s.complex && inverse) { /* pairs with imaginary parts of 0 */
        Value *zero = AS(&o->L, zeros_like, v(x));
        x = zero ? AS(&o->L, stack, arg_values(o->g, 2, (Value *[]){x, zero}), arg_int(o->g, -1)) : NULL;
        s.complex = true;
    }
    if (!x) return false;
    return op_return(o, 0,
                     s.complex ? EMIT(&o->L, fft_complex, v(x), dim, norm, arg_bool(o->g, !inverse))
                               : EMIT(&o->L, fft_real, v(x), dim, norm, arg_bool(o->g, onesided != 0)));
}

static bool constant_of(OnnxOp *o, int i, int64_t *out)
{
    const int64_t *list;
    int n;
    TRY(op_const_ints(o, i, &n, &list));
    if (n != 1 || list[0] < 1) return op_fail(o, i, "expected one number from 1 on");
    *out = list[0];
    return true;
}

/* (signal, frame_step, window, frame_length) -> (B, frames, bins, 2) */
bool onnx_stft(OnnxOp *o)
{
    Signal s;
    Value *window;
    int64_t step = 1, length = 1, onesided;
    TRY(signal_of(o, &s) && constant_of(o, 1, &step) && op_optional(o, 2, &window) &&
        op_attr_int(o, "onesided", 1, &onesided));
    if (s.rank != 2) return op_fail(o, 0, "rank %d, expected 3", s.rank + 1);
    if (op_has(o, 3)) TRY(constant_of(o, 3, &length));
    else if (window && window->rank == 1 && ex_is_int(window->dim[0])) length = window->dim[0]->i;
    else return op_unsupported(o, "the length of a frame is neither given nor the window's");
    if (s.complex && onesided) return op_fail(o, 0, "one side of a complex signal");
    Value *y = AS(&o->L, unfold, v(s.x), arg_int(o->g, 1), arg_int(o->g, length), arg_int(o->g, step));
    if (y && s.complex) y = AS(&o->L, transpose_int, v(y), arg_int(o->g, 2), arg_int(o->g, 3));
    if (y && window && s.complex) window = AS(&o->L, unsqueeze, v(window), arg_int(o->g, 1));
    if (y && window) y = AS(&o->L, mul_Tensor, v(y), v(window));
    Arg dim = arg_ints(o->g, 1, (int64_t[]){2}), norm = arg_int(o->g, 0);
    return y && op_return(o, 0,
                          s.complex ? EMIT(&o->L, fft_complex, v(y), dim, norm, arg_bool(o->g, true))
                                    : EMIT(&o->L, fft_real, v(y), dim, norm, arg_bool(o->g, onesided != 0)));
}

/* ------------------------------------------------------------------ mel weights */

static Value *times(OnnxOp *o, Value *x, double by) { return AS(&o->L, mul_Tensor, v(x), arg_float(o->g, by)); }
static Value *less(OnnxOp *o, Value *x, Value *y) { return AS(&o->L, sub_Tensor, v(x), v(y)); }
static Value *over(OnnxOp *o, Value *x, Value *y) { return AS(&o->L, div_Tensor, v(x), v(y)); }

/* 2595 log10(1 + f / 700) */
static Value *mel_of(OnnxOp *o, int i)
{
    Value *f;
    TRY_NULL(op_tensor(o, i, &f));
    f = lower_reshape(&o->L, lower_cast(&o->L, f, DT_F64), 0, NULL);
    Value *part = AS(&o->L, add_Tensor, v(AS(&o->L, div_Tensor, v(f), arg_float(o->g, 700))), arg_float(o->g, 1));
    return times(o, AS(&o->L, log10, v(part)), 2595);
}

/* Triangles (frequencies, bands): a band rises from the middle of the one before it to its own, and falls to that of
 * the one after it. The middles are as far apart as mels are, in whole frequencies. */
bool onnx_mel_weights(OnnxOp *o)
{
    Expr *size[3], **e, *one = ex_int(o->ex, 1), *two = ex_int(o->ex, 2);
    DType t;
    int n;
    for (int i = 0; i < 3; i++) {
        TRY(op_sizes(o, i, &n, &e));
        if (n != 1) return op_fail(o, i, "%d elements, expected one", n);
        size[i] = e[0];
        TRY(graph_require(o->g, ex_make(o->ex, EX_LE, ex_int(o->ex, i == 2), size[i], NULL), o->im->err,
                          "node '%s': %s", o->L.name, i == 2 ? "a sample rate above 0" : "a count of at least 0"));
    }
    TRY(op_attr_dtype(o, "output_datatype", DT_F32, &t));
    Expr *count = ex_add(o->ex, size[0], two), *rows = ex_add(o->ex, ex_floordiv(o->ex, size[1], two), one);
    Value *low = mel_of(o, 3), *high = mel_of(o, 4), *at[3];
    Value *step = AS(&o->L, div_Tensor, v(less(o, high, low)), arg_expr(count));
    Value *k = AS(&o->L, arange, arg_expr(count), arg_dtype(DT_F64));
    Value *j = AS(&o->L, arange, arg_expr(rows), arg_dtype(DT_F64));
    TRY(step && k && (j = lower_reshape(&o->L, j, 2, (Expr *[]){rows, one})));
    Value *mel = AS(&o->L, add_Tensor, v(AS(&o->L, mul_Tensor, v(k), v(step))), v(low));
    Value *f = AS(&o->L, pow_Scalar, arg_int(o->g, 10), v(AS(&o->L, div_Tensor, v(mel), arg_float(o->g, 2595))));
    f = times(o, AS(&o->L, sub_Tensor, v(f), arg_int(o->g, 1)), 700);
    f = AS(&o->L, mul_Tensor, v(f), arg_expr(ex_add(o->ex, size[1], one)));
    f = AS(&o->L, floor, v(AS(&o->L, div_Tensor, v(f), arg_expr(size[2]))));
    for (int i = 0; i < 3; i++) {
        Expr *from = ex_int(o->ex, i);
        TRY(f && (at[i] = lower_piece(&o->L, f, 0, from, ex_add(o->ex, from, size[0]))));
    }
    Value *up = over(o, less(o, j, at[0]), less(o, at[1], at[0]));
    up = AS(&o->L, where_ScalarSelf, v(AS(&o->L, eq_Tensor, v(at[1]), v(at[0]))), arg_float(o->g, 1), v(up));
    Value *down = over(o, less(o, at[2], j), less(o, at[2], at[1]));
    down = AS(&o->L, where_ScalarOther, v(AS(&o->L, lt_Tensor, v(j), v(at[2]))), v(down), arg_float(o->g, 0));
    Value *y = AS(&o->L, where_self, v(AS(&o->L, le_Tensor, v(j), v(at[1]))), v(up), v(down));
    y = AS(&o->L, where_ScalarOther, v(AS(&o->L, ge_Tensor, v(j), v(at[0]))), v(y), arg_float(o->g, 0));
    return y && op_return(o, 0, lower_cast(&o->L, y, t));
}
