/* Lowering of Fourier transforms to the three rows on reals and pairs of reals: lengths, norms and dims become
 * explicit, as in ATen's SpectralOps.cpp.
 *
 *     fft(z, n=8)       -> fft_complex(pairs padded to 8, [d], 0, true)
 *     fft(x)            -> fft_real(x, [d], 0, false)                    all bins
 *     irfft(z)          -> fft_to_real(pairs, [d], 2, 2*(s0 - 1))
 *     hfft(z)           -> irfft of the conjugates, with the norm of a forward transform
 *     stft(x, 400)      -> fft_real(unfold(pad(x)) * window)
 */
#include <string.h>
#include "lower/complex.h"
#include "lower/lower_table.h"

/* ------------------------------------------------------------------ dims and lengths */

typedef struct Axes {
    int n, dim[MAX_RANK];
    Expr *size[MAX_RANK]; /* NULL: as it is */
} Axes;

static bool add_axis(Lower *L, int i, const Expr *e, int rank, Axes *a)
{
    int64_t d = e && ex_is_int(e) ? e->i : INT64_MAX;
    if (d < -rank || d >= rank)
        return lower_fail(L, i, "dim out of range for rank %d (allowed %d to %d)", rank, -rank, rank - 1);
    int dim = (int)(d < 0 ? d + rank : d);
    for (int k = 0; k < a->n; k++)
        if (a->dim[k] == dim) return lower_fail(L, i, "dim %d appears twice", dim);
    a->size[a->n] = NULL;
    a->dim[a->n++] = dim;
    return true;
}

/* Argument i: dims of a tensor of this rank */
static bool listed_axes(Lower *L, int i, int rank, Axes *a)
{
    const Arg *list = &L->arg[i];
    a->n = 0;
    if (list->kind == ARG_EXPR) return add_axis(L, i, list->e, rank, a);
    for (int k = 0; k < list->n; k++) TRY(add_axis(L, i, list->es[k], rank, a));
    return true;
}

static Expr *length(const Expr *e) { return ex_equals_int(e, -1) ? NULL : (Expr *)(uintptr_t)e; }

/* (self, n or s, dim): without dim the last ones for which there are sizes, or all */
static bool axes_of(Lower *L, const Value *x, Axes *a)
{
    const Arg *size = &L->arg[1], *dim = &L->arg[2];
    bool sizes = size->kind == ARG_EXPRS;
    if (dim->kind != ARG_NONE) TRY(listed_axes(L, 2, x->rank, a));
    else {
        int n = sizes ? size->n : x->rank;
        if (n > x->rank) return lower_fail(L, 1, "%d sizes for a tensor of rank %d", n, x->rank);
        a->n = 0;
        for (int k = 0; k < n; k++) TRY(add_axis(L, 2, ex_int(L->ex, x->rank - n + k), x->rank, a));
    }
    if (sizes && size->n != a->n) return lower_fail(L, 1, "%d sizes for %d dims", size->n, a->n);
    for (int k = 0; k < a->n; k++)
        a->size[k] = sizes ? length(size->es[k]) : size->kind == ARG_EXPR ? length(size->e) : NULL;
    return true;
}

/* x, reals or pairs, cut or filled with zeros at the end of the axes whose size is given */
static Value *resized(Lower *L, Value *x, const Axes *a)
{
    Expr *pad[2 * MAX_RANK];
    bool any = false;
    for (int i = 0; i < 2 * x->rank; i++) pad[i] = ex_int(L->ex, 0);
    for (int k = 0; k < a->n; k++) {
        Expr *have = x->dim[a->dim[k]], *want = a->size[k];
        if (!want || want == have) continue;
        if (ex_is_int(want) && ex_is_int(have) && want->i < have->i) {
            x = EMIT(L, slice_Tensor, v(x), arg_int(L->g, a->dim[k]), arg_int(L->g, 0), arg_expr(want),
                     arg_int(L->g, 1));
            if (!x) return NULL;
            continue;
        }
        pad[2 * (x->rank - 1 - a->dim[k]) + 1] = ex_sub(L->ex, want, have);
        any = true;
    }
    return any ? EMIT(L, constant_pad_nd, v(x), arg_exprs(L->g, 2 * x->rank, pad), arg_int(L->g, 0)) : x;
}

/* ------------------------------------------------------------------ norms and operands */

static bool norm(Lower *L, bool forward, Arg *out)
{
    const Arg *a = &L->arg[3];
    const char *s = a->kind == ARG_STR ? a->s : "backward";
    bool ortho = !strcmp(s, "ortho"), back = !strcmp(s, "backward");
    if (!ortho && !back && strcmp(s, "forward"))
        return lower_fail(L, 3, "found '%.20s', expected 'backward', 'forward' or 'ortho'", s);
    *out = arg_int(L->g, ortho ? 1 : back != forward ? 2 : 0);
    return true;
}

/* The first operand: float32, float64 or complex */
static bool operand(Lower *L, Value **x)
{
    *x = lower_value(L, 0);
    if (!*x) return lower_fail(L, 0, "expected a tensor");
    if (!dtype_is_float((*x)->dtype) && !dtype_is_complex((*x)->dtype)) *x = lower_cast(L, *x, DT_F32);
    return *x != NULL;
}

static Arg dims_arg(Lower *L, const Axes *a)
{
    int64_t d[MAX_RANK];
    for (int k = 0; k < a->n; k++) d[k] = a->dim[k];
    return arg_ints(L->g, a->n, d);
}

static Value *conjugate(Lower *L, Value *z) { return z ? AS(L, conj, v(z)) : NULL; }

static Value *from_complex(Lower *L, Value *z, const Axes *a, Arg norm, bool forward)
{
    Value *pairs = complex_pairs(L, z);
    pairs = pairs ? resized(L, pairs, a) : NULL;
    if (!pairs || !a->n) return complex_from_pairs(L, pairs);
    return complex_from_pairs(L, EMIT(L, fft_complex, v(pairs), dims_arg(L, a), norm, arg_bool(L->g, forward)));
}

static Value *from_real(Lower *L, Value *x, const Axes *a, Arg norm, bool onesided)
{
    x = resized(L, x, a);
    if (!x || !a->n) return complex_joined(L, x, NULL);
    return complex_from_pairs(L, EMIT(L, fft_real, v(x), dims_arg(L, a), norm, arg_bool(L->g, onesided)));
}

/* n: the last size of the result */
static Value *to_real(Lower *L, Value *z, Axes *a, Arg norm, Expr *n)
{
    a->size[a->n - 1] = ex_add(L->ex, ex_floordiv(L->ex, n, ex_int(L->ex, 2)), ex_int(L->ex, 1));
    Value *pairs = complex_pairs(L, z);
    pairs = pairs ? resized(L, pairs, a) : NULL;
    return pairs ? EMIT(L, fft_to_real, v(pairs), dims_arg(L, a), norm, arg_expr(n)) : NULL;
}

/* ------------------------------------------------------------------ ATen's names */

static bool two_sided(Lower *L, bool forward)
{
    Value *x, *y;
    Axes a;
    Arg scale;
    TRY(operand(L, &x) && axes_of(L, x, &a) && norm(L, forward, &scale));
    if (dtype_is_complex(x->dtype)) return lower_return(L, from_complex(L, x, &a, scale, forward));
    y = from_real(L, x, &a, scale, false);
    return y && lower_return(L, forward ? y : conjugate(L, y));
}

bool lower_fft(Lower *L) { return two_sided(L, true); }
bool lower_ifft(Lower *L) { return two_sided(L, false); }

static bool one_sided(Lower *L, bool forward)
{
    Value *x, *y;
    Axes a;
    Arg scale;
    TRY(operand(L, &x) && axes_of(L, x, &a) && norm(L, forward, &scale));
    if (dtype_is_complex(x->dtype)) return lower_fail(L, 0, "%s, expected a real tensor", dtype_name(x->dtype));
    if (!a.n) return lower_fail(L, 2, "expected at least one dim");
    y = from_real(L, x, &a, scale, true);
    return y && lower_return(L, forward ? y : conjugate(L, y));
}

bool lower_rfft(Lower *L) { return one_sided(L, true); }
bool lower_ihfft(Lower *L) { return one_sided(L, false); }

static bool hermitian(Lower *L, bool forward)
{
    Value *z;
    Axes a;
    Arg scale;
    TRY(operand(L, &z) && axes_of(L, z, &a) && norm(L, forward, &scale));
    if (!a.n) return lower_fail(L, 2, "expected at least one dim");
    if (!dtype_is_complex(z->dtype)) z = lower_cast(L, z, complex_of(z->dtype));
    if (forward) z = conjugate(L, z);
    TRY(z);
    Expr *n = a.size[a.n - 1], *one = ex_int(L->ex, 1);
    if (!n) n = ex_mul(L->ex, ex_int(L->ex, 2), ex_sub(L->ex, z->dim[a.dim[a.n - 1]], one));
    return lower_return(L, to_real(L, z, &a, scale, n));
}

bool lower_irfft(Lower *L) { return hermitian(L, false); }
bool lower_hfft(Lower *L) { return hermitian(L, true); }

/* (self, dim, normalization, forward) */
bool lower_fft_c2c(Lower *L)
{
    Value *z = lower_value(L, 0);
    Axes a;
    bool forward;
    if (!z || !dtype_is_complex(z->dtype)) return lower_fail(L, 0, "expected a complex tensor");
    TRY(listed_axes(L, 1, z->rank, &a) && lower_const_bool(L, 3, &forward));
    return lower_return(L, from_complex(L, z, &a, L->arg[2], forward));
}

/* (self, dim, normalization, onesided) */
bool lower_fft_r2c(Lower *L)
{
    Value *x = lower_value(L, 0);
    Axes a;
    bool onesided;
    if (!x || !dtype_is_float(x->dtype)) return lower_fail(L, 0, "expected a tensor of floats");
    TRY(listed_axes(L, 1, x->rank, &a) && lower_const_bool(L, 3, &onesided));
    return lower_return(L, from_real(L, x, &a, L->arg[2], onesided));
}

/* (self, dim, normalization, last_dim_size) */
bool lower_fft_c2r(Lower *L)
{
    Value *z = lower_value(L, 0);
    Expr *n = lower_expr(L, 3);
    Axes a;
    if (!z || !dtype_is_complex(z->dtype) || !n) return lower_fail(L, 0, "expected a complex tensor");
    TRY(listed_axes(L, 1, z->rank, &a));
    if (!a.n) return lower_fail(L, 1, "expected at least one dim");
    return lower_return(L, to_real(L, z, &a, L->arg[2], n));
}

/* fftshift: by half a dim's size; ifftshift: by what is left of it */
bool lower_fft_shift(Lower *L)
{
    Value *x = lower_value(L, 0);
    bool back = L->op->id == OP_fft_ifftshift;
    Axes a = {0};
    Expr *shift[MAX_RANK], *two = ex_int(L->ex, 2);
    if (!x) return lower_fail(L, 0, "expected a tensor");
    if (!lower_is_none(L, 1)) TRY(listed_axes(L, 1, x->rank, &a));
    for (int k = 0; lower_is_none(L, 1) && k < x->rank; k++) TRY(add_axis(L, 1, ex_int(L->ex, k), x->rank, &a));
    if (!a.n) return lower_return(L, x);
    for (int k = 0; k < a.n; k++)
        shift[k] = ex_floordiv(L->ex, ex_add(L->ex, x->dim[a.dim[k]], ex_int(L->ex, back)), two);
    return lower_return(L, AS(L, roll, v(x), arg_exprs(L->g, a.n, shift), dims_arg(L, &a)));
}

/* (n, d): 0, 1, ... and, for both sides, -n / 2, ... -1, each over n d */
bool lower_fft_freq(Lower *L)
{
    Expr *n = lower_expr(L, 0), *d = lower_expr(L, 1), *two = ex_int(L->ex, 2), *one = ex_int(L->ex, 1);
    bool onesided = L->op->id == OP_fft_rfftfreq;
    if (!n || !d) return lower_fail(L, 0, "expected a number");
    DType t = L->arg[2].kind == ARG_DTYPE ? L->arg[2].dtype : DT_F32;
    Expr *half = ex_floordiv(L->ex, n, two), *first = onesided ? ex_add(L->ex, half, one) : ex_sub(L->ex, n, half);
    Arg step = arg_int(L->g, 1), type = arg_dtype(t);
    Value *k = AS(L, arange_start_step, arg_int(L->g, 0), arg_expr(first), step, type);
    if (!onesided) {
        Value *low = AS(L, arange_start_step, arg_expr(ex_neg(L->ex, half)), arg_int(L->g, 0), step, type);
        k = k && low ? AS(L, cat, arg_values(L->g, 2, (Value *[]){k, low}), arg_int(L->g, 0)) : NULL;
    }
    Expr *all = ex_mul(L->ex, ex_make(L->ex, EX_TOFLOAT, n, NULL, NULL), ex_make(L->ex, EX_TOFLOAT, d, NULL, NULL));
    Expr *by = ex_make(L->ex, EX_TRUEDIV, ex_float(L->ex, 1), all, NULL);
    return k && lower_return(L, AS(L, mul_Tensor, v(k), arg_expr(by)));
}

/* ------------------------------------------------------------------ windows */

typedef struct Frames {
    int64_t n, hop, around[2]; /* what n has more than win_length, at both ends of a window */
    Value *window; /* of n values; NULL: ones */
    bool center, normalized, has_sides, onesided;
} Frames;

static const Arg *named(Lower *L, const char *name)
{
    int i = op_param(L->op, name);
    return i < 0 ? NULL : &L->arg[i];
}

static bool truth(Lower *L, const char *name, bool otherwise)
{
    const Arg *a = named(L, name);
    return !a || a->kind != ARG_EXPR ? otherwise : a->e->i != 0;
}

static bool positive(Lower *L, const char *name, int64_t otherwise, int64_t *out)
{
    int i = op_param(L->op, name);
    *out = otherwise;
    if (!lower_is_none(L, i)) TRY(lower_const_int(L, i, out));
    return *out > 0 || lower_fail(L, i, "found %lld, expected 1 or more", (long long)*out);
}

/* The window in the middle of n values, zeros around it. */
static bool frames_of(Lower *L, DType t, Frames *f)
{
    int64_t width;
    *f = (Frames){0};
    TRY(positive(L, "n_fft", 0, &f->n) && positive(L, "hop_length", f->n / 4 ? f->n / 4 : 1, &f->hop) &&
        positive(L, "win_length", f->n, &width));
    if (width > f->n) return lower_fail(L, op_param(L->op, "win_length"), "wider than n_fft, %lld", (long long)f->n);
    const Arg *w = named(L, "window");
    f->window = w->kind == ARG_VALUE ? w->v : NULL;
    f->around[0] = (f->n - width) / 2, f->around[1] = f->n - width - f->around[0];
    if (f->window && f->window->rank != 1) return lower_fail(L, op_param(L->op, "window"), "expected one dim");
    if (!f->window && width < f->n) f->window = AS(L, full, arg_ints(L->g, 1, &width), arg_int(L->g, 1), arg_dtype(t));
    if (f->window && width < f->n) f->window = AS(L, constant_pad_nd, v(f->window), arg_ints(L->g, 2, f->around));
    const Arg *sides = named(L, "onesided");
    f->has_sides = sides->kind == ARG_EXPR;
    f->onesided = f->has_sides && sides->e->i;
    f->center = truth(L, "center", L->op->id != OP_stft);
    f->normalized = truth(L, "normalized", false);
    return L->err->code == E_OK;
}

/* n / 2 more at both ends of the last dim, as pad_mode says */
static Value *padded(Lower *L, Value *x, int64_t n)
{
    const Arg *mode = named(L, "pad_mode");
    Arg sizes = arg_ints(L->g, 2, (int64_t[]){n / 2, n / 2});
    Expr *dim[] = {ex_int(L->ex, 1), x->rank > 1 ? x->dim[0] : ex_int(L->ex, 1), x->dim[x->rank - 1]};
    Value *y = lower_reshape(L, x, 3, dim);
    y = y ? AS(L, pad, v(y), sizes, mode && mode->kind == ARG_STR ? *mode : arg_str(L->g, "reflect")) : NULL;
    return y ? lower_reshape(L, y, x->rank, y->dim + (3 - x->rank)) : NULL;
}

/* (..., L) -> (..., bins, frames) */
bool lower_stft(Lower *L)
{
    Value *x, *y;
    Frames f;
    Axes last = {.n = 1};
    TRY(operand(L, &x) && frames_of(L, x->dtype, &f));
    if (x->rank < 1 || x->rank > 2) return lower_fail(L, 0, "rank %d, expected 1 or 2", x->rank);
    if (f.center) TRY(x = padded(L, x, f.n));
    else if (truth(L, "align_to_window", false) && f.around[1]) /* the first window begins where the signal does */
        TRY(x = AS(L, constant_pad_nd, v(x), arg_ints(L->g, 2, f.around)));
    y = AS(L, unfold, v(x), arg_int(L->g, -1), arg_int(L->g, f.n), arg_int(L->g, f.hop));
    if (y && f.window) y = AS(L, mul_Tensor, v(y), v(f.window));
    TRY(y);
    last.dim[0] = y->rank - 1;
    Arg scale = arg_int(L->g, f.normalized);
    if (dtype_is_complex(y->dtype)) {
        if (f.onesided) return lower_fail(L, op_param(L->op, "onesided"), "a complex signal has two sides");
        y = from_complex(L, y, &last, scale, true);
    } else {
        y = from_real(L, y, &last, scale, f.onesided || !f.has_sides);
    }
    y = y ? AS(L, transpose_int, v(y), arg_int(L->g, -1), arg_int(L->g, -2)) : NULL;
    return y && lower_return(L, truth(L, "return_complex", false) ? y : complex_pairs(L, y));
}

/* Frames (B, T, n) where they overlap: sums (B, n + hop (T - 1)) */
static Value *overlapped(Lower *L, Value *x, const Frames *f, Expr *all)
{
    Expr *one = ex_int(L->ex, 1);
    Arg none = arg_ints(L->g, 2, (int64_t[]){0, 0}), single = arg_ints(L->g, 2, (int64_t[]){1, 1});
    x = AS(L, transpose_int, v(x), arg_int(L->g, 1), arg_int(L->g, 2));
    if (!x) return NULL;
    Value *y = EMIT(L, col2im, v(x), arg_exprs(L->g, 2, (Expr *[]){one, all}), arg_ints(L->g, 2, (int64_t[]){1, f->n}),
                    single, none, arg_ints(L->g, 2, (int64_t[]){1, f->hop}));
    return y ? lower_reshape(L, y, 2, (Expr *[]){x->dim[0], all}) : NULL;
}

/* y over the sum of the windows' squares, between what the transform was padded with */
static Value *without_window(Lower *L, Value *y, const Frames *f, Expr *all, Expr *count)
{
    Expr *one = ex_int(L->ex, 1), *half = ex_int(L->ex, f->n / 2), *length = lower_expr(L, op_param(L->op, "length"));
    Arg from = f->center ? arg_expr(half) : arg_int(L->g, 0), along = arg_int(L->g, 1);
    Expr *end = length      ? ex_add(L->ex, length, f->center ? half : ex_int(L->ex, 0))
                     : f->center ? ex_sub(L->ex, all, half)
                            : all;
    Value *w = f->window ? f->window : AS(L, full, arg_ints(L->g, 1, &f->n), arg_int(L->g, 1), arg_dtype(y->dtype));
    Value *square = AS(L, square, v(w));
    Expr *frames[] = {one, count, ex_int(L->ex, f->n)};
    square = square ? AS(L, expand, v(square), arg_exprs(L->g, 3, frames)) : NULL;
    square = square ? overlapped(L, square, f, all) : NULL;
    Expr *stop = ex_min(L->ex, end, all);
    y = AS(L, slice_Tensor, v(y), along, from, arg_expr(stop), arg_int(L->g, 1));
    square = square ? AS(L, slice_Tensor, v(square), along, from, arg_expr(stop), arg_int(L->g, 1)) : NULL;
    y = y && square ? AS(L, div_Tensor, v(y), v(square)) : NULL;
    if (!y || stop == end) return y;
    Expr *pad[] = {ex_int(L->ex, 0), ex_sub(L->ex, end, stop)};
    return AS(L, constant_pad_nd, v(y), arg_exprs(L->g, 2, pad));
}

/* Frames (B, T, n) -> samples (B, ...) */
static Value *samples(Lower *L, Value *y, const Frames *f, Expr *all, Expr *count)
{
    if (y && f->window) y = AS(L, mul_Tensor, v(y), v(f->window));
    y = y ? overlapped(L, y, f, all) : NULL;
    return y ? without_window(L, y, f, all, count) : NULL;
}

/* (..., bins, frames) -> (..., samples) */
bool lower_istft(Lower *L)
{
    Value *z, *y, *part[2];
    Frames f;
    Axes last = {.n = 1, .dim = {2}};
    TRY(operand(L, &z));
    if (!dtype_is_complex(z->dtype) || z->rank < 2 || z->rank > 3)
        return lower_fail(L, 0, "%s of rank %d, expected a complex tensor of rank 2 or 3", dtype_name(z->dtype),
                          z->rank);
    TRY(frames_of(L, complex_real_of(z->dtype), &f));
    if (f.window && dtype_is_complex(f.window->dtype)) return lower_fail(L, op_param(L->op, "window"), "complex");
    bool pairs = truth(L, "return_complex", false), single = z->rank == 2;
    if (pairs && f.onesided) return lower_fail(L, op_param(L->op, "onesided"), "a complex signal has two sides");
    if (single) TRY(z = AS(L, unsqueeze, v(z), arg_int(L->g, 0)));
    Expr *half = ex_make(L->ex, EX_EQ, z->dim[1], ex_int(L->ex, f.n / 2 + 1), NULL),
         *whole = ex_make(L->ex, EX_EQ, z->dim[1], ex_int(L->ex, f.n), NULL);
    if (!f.has_sides) half = ex_make(L->ex, EX_OR, half, whole, NULL); /* as many as there are say which */
    TRY(graph_require(L->g, f.has_sides && !f.onesided ? whole : half, L->err, "node '%s': frequencies", L->name));
    Expr *count = z->dim[2],
         *all = ex_add(L->ex, ex_int(L->ex, f.n - f.hop), ex_mul(L->ex, ex_int(L->ex, f.hop), count));
    Arg scale = arg_int(L->g, f.normalized ? 1 : 2);
    TRY(z = AS(L, transpose_int, v(z), arg_int(L->g, 1), arg_int(L->g, 2)));
    if (!pairs) {
        y = samples(L, to_real(L, z, &last, scale, ex_int(L->ex, f.n)), &f, all, count);
    } else {
        TRY(z = complex_pairs(L, from_complex(L, z, &last, scale, false)));
        for (int i = 0; i < 2; i++)
            TRY(part[i] = samples(L, AS(L, select_int, v(z), arg_int(L->g, -1), arg_int(L->g, i)), &f, all, count));
        y = complex_joined(L, part[0], part[1]);
    }
    return y && lower_return(L, single ? lower_reshape(L, y, 1, &y->dim[1]) : y);
}
