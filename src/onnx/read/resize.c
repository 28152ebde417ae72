/* ONNX's resampling of pictures. Contract in onnx_impl.h.
 *
 *     Resize(x, scales=[1, 1, 2, 2], mode="linear")        ->  qkv.upsample(x, [2*h, 2*w], "linear", scales=[2, 2])
 *     Resize of another kind                               ->  a product with weights along each axis that changes
 *     Resize of another kind, nearest                      ->  index_select along each axis that changes
 *
 * qkv.upsample knows PyTorch's kinds. All others follow ONNX's definition: output i of an axis is at a place of the
 * input, and is the element nearest to it, or the sum of the elements around it by weights that the mode gives; those
 * make a matrix (out, in), which is computed from the sizes when they are bound.
 */
#include <math.h>
#include <string.h>
#include "facts/nearest.h"
#include "onnx/read/read_impl.h"

typedef struct Resize {
    const char *mode, *place, *nearest; /* mode, coordinate_transformation_mode, nearest_mode */
    double cubic_a, outside_value;
    int64_t exclude_outside, antialias;
    Expr *out[MAX_RANK], *scale[MAX_RANK]; /* scale NULL: out / in */
    Expr *from[MAX_RANK], *to[MAX_RANK];   /* of tf_crop_and_resize */
} Resize;

static const double WHOLE = 0x1p53; /* doubles below it hold every integer */

static Expr *num(OnnxOp *o, int64_t n) { return ex_int(o->ex, n); }
static bool is(const char *a, const char *b) { return !strcmp(a, b); }

static Value *mul(OnnxOp *o, Value *a, Arg b) { return AS(&o->L, mul_Tensor, v(a), b); }
static Value *add(OnnxOp *o, Value *a, Arg b) { return AS(&o->L, add_Tensor, v(a), b); }
static Value *sub(OnnxOp *o, Value *a, Arg b) { return AS(&o->L, sub_Tensor, v(a), b); }
static Value *f64(OnnxOp *o, Value *x) { return lower_cast(&o->L, x, DT_F64); }

/* floor(in * scale), as ONNX has it: exact where the scale is a whole number or one over it */
static Expr *scaled(OnnxOp *o, Expr *in, Expr *scale)
{
    double f = ex_is_const(scale) ? ex_number(scale) : 0;
    if (f == floor(f) && f > 0 && f < WHOLE) return ex_mul(o->ex, in, num(o, (int64_t)f));
    if (f > 1 / WHOLE && f < 1 && 1 / f == floor(1 / f)) return ex_floordiv(o->ex, in, num(o, (int64_t)(1 / f)));
    return ex_make(o->ex, EX_FLOOR, ex_mul(o->ex, ex_make(o->ex, EX_TOFLOAT, in, NULL, NULL), scale), NULL, NULL);
}

static bool float_sizes(OnnxOp *o, int i, int *n, Expr ***e)
{
    const Cell *c = op_known(o, i);
    *n = 0;
    if (!op_has(o, i)) return true;
    if (!c)
        return op_unsupported(o, "input %d '%.100s' is computed; give its value when loading", i, o->node->input[i]);
    *n = c->n;
    *e = c->e;
    return true;
}

/* sizes or scales for all axes, or for `axes`; what they do not name stays as it is */
static bool read_sizes(OnnxOp *o, const Value *x, Resize *r)
{
    Expr **sizes = NULL, **scales = NULL;
    const int64_t *axes;
    int naxes, ns = 0, nf = 0, axis[MAX_RANK];
    bool upsample = is(o->node->op, "Upsample");
    const char *policy;
    TRY(op_attr_ints(o, "axes", &axes, &naxes) && op_attr_string(o, "keep_aspect_ratio_policy", "stretch", &policy));
    int at_scales = o->opset >= 11 && !upsample ? 2 : 1;
    TRY(float_sizes(o, at_scales, &nf, &scales));
    if (op_has(o, 3)) TRY(op_sizes(o, 3, &ns, &sizes));
    if (!op_has(o, 1) && upsample) { /* opset 7 */
        const OnnxAttr *a = op_attr(o, "scales");
        if (!a || a->type != ONNX_ATTR_FLOATS || a->n > MAX_RANK)
            return fail(o->im->err, E_FORMAT, "attribute 'scales' is missing");
        nf = (int)a->n;
        scales = arena_array(o->g->arena, Expr *, nf + 1);
        if (!scales) return oom(o->im->err);
        for (int i = 0; i < nf; i++) scales[i] = ex_float(o->ex, (double)a->floats[i]);
    }
    int n = axes ? naxes : x->rank, count = ns ? ns : nf;
    if (count != n || n > MAX_RANK) return fail(o->im->err, E_FORMAT, "%d sizes or scales for %d axes", count, n);
    for (int i = 0; i < n; i++) TRY(op_axis(o, "axis", axes ? axes[i] : i, x->rank, &axis[i]));
    for (int i = 0; i < x->rank; i++) r->out[i] = x->dim[i];
    bool stretch = is(policy, "stretch");
    if (!stretch && ns) { /* one scale for all: the smallest or the largest that they ask for */
        double best = 0;
        for (int i = 0; i < n; i++) {
            if (!ex_is_int(sizes[i]) || !ex_is_int(x->dim[axis[i]]))
                return op_unsupported(
                    o, "keep_aspect_ratio_policy '%.40s' with sizes that vary; give them when loading", policy);
            double f = (double)sizes[i]->i / (double)x->dim[axis[i]]->i;
            best = i == 0 || (is(policy, "not_larger") ? f < best : f > best) ? f : best;
        }
        for (int i = 0; i < n; i++) {
            double size = floor((double)x->dim[axis[i]]->i * best + 0.5);
            if (!(size >= 0 && size < WHOLE))
                return op_fail(o, 3, "axis %d of %lld elements times %g is not a size", axis[i],
                               (long long)x->dim[axis[i]]->i, best);
            r->scale[axis[i]] = ex_float(o->ex, best);
            r->out[axis[i]] = num(o, (int64_t)size);
        }
        return true;
    }
    for (int i = 0; i < n; i++) {
        if (!ns) r->scale[axis[i]] = scales[i];
        r->out[axis[i]] = ns ? sizes[i] : scaled(o, x->dim[axis[i]], scales[i]);
        if (!r->out[axis[i]]) return fail(o->im->err, E_LIMIT, "a size expression is too large");
    }
    if (is(r->place, "tf_crop_and_resize")) {
        Expr **roi;
        int count_roi;
        TRY(float_sizes(o, 1, &count_roi, &roi));
        if (count_roi != 2 * n) return op_fail(o, 1, "%d values, expected a start and an end of %d axes", count_roi, n);
        for (int i = 0; i < n; i++) {
            r->from[axis[i]] = roi[i];
            r->to[axis[i]] = roi[n + i];
        }
        for (int i = 0; i < n && !ns; i++) { /* of the part that is cut out */
            Expr *part = ex_make(o->ex, EX_ADD, roi[n + i], ex_mul(o->ex, roi[i], ex_float(o->ex, -1)), NULL);
            Expr *len = ex_mul(o->ex, ex_mul(o->ex, ex_make(o->ex, EX_TOFLOAT, x->dim[axis[i]], NULL, NULL), part),
                               scales[i]);
            r->out[axis[i]] = ex_make(o->ex, EX_FLOOR, len, NULL, NULL);
        }
    }
    return true;
}

static bool same_size(const Resize *r, const Value *x, int i)
{
    const Expr *s = r->scale[i];
    bool one = !s || (ex_is_const(s) && (s->kind == EX_FLOAT ? s->f == 1 : s->i == 1));
    return r->out[i] == x->dim[i] && one && !r->from[i];
}

/* ------------------------------------------------------------------ PyTorch's kinds */

static const char *torch_mode(const Resize *r, bool *corners)
{
    *corners = is(r->place, "align_corners");
    bool half = is(r->place, "half_pixel") || is(r->place, "pytorch_half_pixel");
    if (r->exclude_outside && !r->antialias) return NULL;
    if (is(r->mode, "nearest")) {
        if (is(r->place, "asymmetric") && is(r->nearest, "floor")) return "nearest";
        return is(r->place, "half_pixel") && is(r->nearest, "round_prefer_ceil") ? "nearest-exact" : NULL;
    }
    if (!half && !*corners) return NULL;
    if (is(r->mode, "linear")) return r->antialias ? NULL : "linear";
    return is(r->mode, "cubic") && !r->antialias && r->cubic_a == -0.75 ? "cubic" : NULL;
}

static bool same_elements(const Value *x, const Resize *r, int i)
{
    return nearest_agrees(x->dim[i], r->out[i], r->scale[i], is(r->place, "half_pixel"), x->rank < 5);
}

/* NULL without an error: not of PyTorch's kinds */
static Value *by_upsample(OnnxOp *o, Value *x, const Resize *r)
{
    bool corners, scaled_by = true;
    const char *mode = torch_mode(r, &corners);
    int n = x->rank - 2;
    Expr *factors[MAX_RANK];
    if (!mode || n < 1 || n > 3 || !same_size(r, x, 0) || !same_size(r, x, 1) || !dtype_is_float(x->dtype)) return NULL;
    if ((is(mode, "cubic") && n != 2) ||
        (is(r->place, "pytorch_half_pixel") && !is(mode, "linear") && !is(mode, "cubic")))
        return NULL;
    for (int i = 0; i < n; i++) {
        if (is(r->mode, "nearest") && !same_elements(x, r, 2 + i)) return NULL;
        factors[i] = r->scale[2 + i];
        scaled_by = scaled_by && factors[i];
    }
    if (is(r->place, "pytorch_half_pixel"))
        for (int i = 0; i < n; i++)
            if (!ex_is_int(r->out[2 + i]) || r->out[2 + i]->i <= 1) return NULL;
    return AS(&o->L, upsample, v(x), arg_exprs(o->g, n, r->out + 2), arg_str(o->g, mode), arg_bool(o->g, corners),
              scaled_by && !corners ? arg_exprs(o->g, n, factors) : arg_none());
}

/* ------------------------------------------------------------------ weights */

static Value *number(OnnxOp *o, Expr *e)
{
    return AS(&o->L, full, arg_ints(o->g, 0, NULL), arg_expr(e), arg_dtype(DT_F64));
}
static Value *positions(OnnxOp *o, Expr *n, DType t, bool column)
{
    Value *i = AS(&o->L, arange_start_step, arg_int(o->g, 0), arg_expr(n), arg_int(o->g, 1), arg_dtype(t));
    return i && column ? lower_reshape(&o->L, i, 2, (Expr *[]){n, num(o, 1)}) : i;
}

/* Where output i is in the input, (out, 1). ONNX Runtime computes places in float32, which decides between the elements
 * of "nearest". */
static Value *places(OnnxOp *o, const Resize *r, int axis, Expr *in, Value *scale)
{
    Value *i = positions(o, r->out[axis], is(r->mode, "nearest") ? DT_F32 : DT_F64, true);
    Value *n = number(o, in), *m = number(o, r->out[axis]);
    Value *half = AS(&o->L, div_Tensor, v(add(o, i, arg_float(o->g, 0.5))), v(scale));
    if (is(r->place, "asymmetric")) return AS(&o->L, div_Tensor, v(i), v(scale));
    if (is(r->place, "half_pixel")) return sub(o, half, arg_float(o->g, 0.5));
    if (is(r->place, "pytorch_half_pixel")) {
        Value *one = AS(&o->L, le_Tensor, v(m), v(op_number(o, DT_F64, 1)));
        return AS(&o->L, where_self, v(one), v(op_number(o, DT_F64, 0)), v(sub(o, half, arg_float(o->g, 0.5))));
    }
    if (is(r->place, "half_pixel_symmetric")) { /* the middles of both coincide, whatever the rounding of the size */
        Value *adjust = AS(&o->L, div_Tensor, v(m), v(mul(o, n, v(scale))));
        Value *middle = mul(o, n, arg_float(o->g, 0.5));
        Value *offset = mul(o, middle, v(sub(o, op_number(o, DT_F64, 1), v(adjust))));
        return sub(o, add(o, half, v(offset)), arg_float(o->g, 0.5));
    }
    if (is(r->place, "align_corners")) {
        Value *last = sub(o, m, arg_float(o->g, 1)), *steps = AS(&o->L, maximum, v(last), v(op_number(o, DT_F64, 1)));
        return AS(&o->L, div_Tensor, v(mul(o, i, v(sub(o, n, arg_float(o->g, 1))))), v(steps));
    }
    if (is(r->place, "tf_crop_and_resize") && r->from[axis]) {
        Value *from = number(o, r->from[axis]), *to = number(o, r->to[axis]), *last = sub(o, n, arg_float(o->g, 1));
        Value *steps = AS(&o->L, maximum, v(sub(o, m, arg_float(o->g, 1))), v(op_number(o, DT_F64, 1)));
        Value *x = AS(&o->L, div_Tensor, v(mul(o, mul(o, i, v(sub(o, to, v(from)))), v(last))), v(steps));
        Value *single = mul(o, mul(o, add(o, from, v(to)), arg_float(o->g, 0.5)), v(last));
        x = add(o, x, v(mul(o, from, v(last))));
        return AS(&o->L, where_self, v(AS(&o->L, le_Tensor, v(m), v(op_number(o, DT_F64, 1)))), v(single), v(x));
    }
    op_unsupported(o, "coordinate_transformation_mode '%.40s'", r->place);
    return NULL;
}

/* The element that "nearest" takes */
static Value *nearest_of(OnnxOp *o, const Resize *r, Value *x)
{
    Value *floor = AS(&o->L, floor, v(x)), *ceil = AS(&o->L, ceil, v(x)), *half = add(o, floor, arg_float(o->g, 0.5));
    if (is(r->nearest, "floor")) return floor;
    if (is(r->nearest, "ceil")) return ceil;
    if (is(r->nearest, "round_prefer_floor"))
        return AS(&o->L, where_self, v(AS(&o->L, le_Tensor, v(x), v(half))), v(floor), v(ceil));
    if (is(r->nearest, "round_prefer_ceil"))
        return AS(&o->L, where_self, v(AS(&o->L, lt_Tensor, v(x), v(half))), v(floor), v(ceil));
    fail(o->im->err, E_FORMAT, "attribute 'nearest_mode' is '%.40s'", r->nearest);
    return NULL;
}

/* linear: max(0, 1 - |d|); cubic: Keys' two pieces with coefficient a */
static Value *weight_at(OnnxOp *o, const Resize *r, Value *d)
{
    Value *a = AS(&o->L, abs, v(d)), *one = op_number(o, DT_F64, 1);
    if (is(r->mode, "linear")) return AS(&o->L, clamp, v(sub(o, one, v(a))), arg_float(o->g, 0));
    double k = r->cubic_a;
    Value *near = add(o,
                      mul(o, mul(o, add(o, mul(o, a, arg_float(o->g, k + 2)), arg_float(o->g, -(k + 3))), v(a)), v(a)),
                      arg_float(o->g, 1));
    Value *far = add(o, mul(o, add(o, mul(o, add(o, a, arg_float(o->g, -5)), v(a)), arg_float(o->g, 8)), v(a)),
                     arg_float(o->g, -4));
    far = AS(&o->L, where_self, v(AS(&o->L, lt_Tensor, v(a), v(op_number(o, DT_F64, 2)))),
             v(mul(o, far, arg_float(o->g, k))), v(op_number(o, DT_F64, 0)));
    return AS(&o->L, where_self, v(AS(&o->L, le_Tensor, v(a), v(one))), v(near), v(far));
}

/* How far from its place a weight may be: an expression, as the scale may follow from sizes */
static Expr *reach_of(OnnxOp *o, const Resize *r, int axis, Expr *in)
{
    const Expr *s = r->scale[axis];
    int64_t width = is(r->mode, "cubic") ? 2 : 1;
    if (!r->antialias) return num(o, width);
    double f = s && ex_is_const(s) ? ex_number(s) : 0;
    if (f > 1.0 / (1 << 20)) return num(o, width * (int64_t)(f < 1 ? ceil(1 / f) : 1) + 1);
    Expr *out = ex_max(o->ex, r->out[axis], num(o, 1)),
         *ratio = ex_floordiv(o->ex, ex_sub(o->ex, ex_add(o->ex, in, out), num(o, 1)), out);
    return ex_add(o->ex, ex_mul(o->ex, ex_max(o->ex, ratio, num(o, 1)), num(o, width)), num(o, 1));
}

/* The (out, in) matrix of one axis. Positions past the ends count for the elements at the ends, or (exclude_outside)
 * not at all; with antialias the weights are as wide as the input is smaller. */
static Value *weights(OnnxOp *o, const Resize *r, int axis, Expr *in, Value *scale, Value *place)
{
    Value *column = positions(o, in, DT_F64, false), *last = number(o, ex_sub(o->ex, in, num(o, 1)));
    Value *at = column;
    Expr *reach = r->exclude_outside ? NULL : reach_of(o, r, axis, in),
         *n = reach ? ex_add(o->ex, in, ex_mul(o->ex, reach, num(o, 2))) : in;
    if (reach) at = sub(o, positions(o, n, DT_F64, false), arg_expr(reach));
    Value *distance = sub(o, at, v(place));
    if (r->antialias) distance = mul(o, distance, v(AS(&o->L, minimum, v(scale), v(op_number(o, DT_F64, 1)))));
    Value *w = weight_at(o, r, distance);
    w = AS(&o->L, div_Tensor, v(w),
           v(AS(&o->L, sum_dim_IntList, v(w), arg_ints(o->g, 1, (int64_t[]){1}), arg_bool(o->g, true))));
    if (!reach) return w;
    at = AS(&o->L, minimum, v(AS(&o->L, clamp, v(at), arg_float(o->g, 0))), v(last));
    TRY_NULL(at);
    Value *hit = f64(o, AS(&o->L, eq_Tensor, v(lower_reshape(&o->L, at, 2, (Expr *[]){n, num(o, 1)})), v(column)));
    return AS(&o->L, matmul, v(w), v(hit));
}

/* x with axis indexed, or multiplied by (out, in); places outside the input take the extrapolation value */
static Value *along(OnnxOp *o, Value *x, const Resize *r, int axis, Value **outside)
{
    Expr *in = x->dim[axis];
    Value *scale = r->scale[axis] && !r->from[axis]
                       ? number(o, r->scale[axis])
                       : AS(&o->L, div_Tensor, v(number(o, r->out[axis])), v(number(o, in)));
    Value *place = places(o, r, axis, in, scale);
    TRY_NULL(place);
    if (r->from[axis]) {
        Expr *dim[MAX_RANK];
        Value *out = AS(&o->L, logical_or, v(AS(&o->L, lt_Tensor, v(place), v(op_number(o, DT_F64, 0)))),
                        v(AS(&o->L, gt_Tensor, v(place), v(number(o, ex_sub(o->ex, in, num(o, 1)))))));
        for (int i = 0; i < x->rank; i++) dim[i] = i == axis ? r->out[axis] : num(o, 1);
        TRY_NULL(out && (out = lower_reshape(&o->L, out, x->rank, dim)));
        TRY_NULL(*outside = *outside ? AS(&o->L, logical_or, v(*outside), v(out)) : out);
    }
    if (is(r->mode, "nearest")) {
        Value *last = number(o, ex_sub(o->ex, in, num(o, 1))), *at = nearest_of(o, r, place);
        at = at ? AS(&o->L, minimum, v(AS(&o->L, clamp, v(at), arg_float(o->g, 0))), v(last)) : NULL;
        at = at ? lower_cast(&o->L, lower_reshape(&o->L, at, 1, &r->out[axis]), DT_I64) : NULL;
        return at ? AS(&o->L, index_select, v(x), arg_int(o->g, axis), v(at)) : NULL;
    }
    Value *w = weights(o, r, axis, in, scale, place);
    TRY_NULL(w);
    int perm[MAX_RANK], back[MAX_RANK];
    for (int i = 0, k = 0; i < x->rank; i++)
        if (i != axis) perm[k++] = i;
    perm[x->rank - 1] = axis;
    for (int i = 0; i < x->rank; i++) back[perm[i]] = i;
    Value *y = AS(&o->L, matmul, v(lower_permute(&o->L, x, perm)), v(lower_permute(&o->L, w, (int[]){1, 0})));
    return y ? lower_permute(&o->L, y, back) : NULL;
}

bool onnx_resize(OnnxOp *o)
{
    Value *x, *outside = NULL;
    Resize r = {.cubic_a = -0.75};
    bool upsample = is(o->node->op, "Upsample"), old = upsample || o->opset < 11;
    TRY(op_tensor(o, 0, &x) && op_attr_string(o, "mode", "nearest", &r.mode) &&
        op_attr_string(o, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel", &r.place) &&
        op_attr_string(o, "nearest_mode", old ? "floor" : "round_prefer_floor", &r.nearest) &&
        op_attr_float(o, "cubic_coeff_a", -0.75, &r.cubic_a) &&
        op_attr_float(o, "extrapolation_value", 0, &r.outside_value) &&
        op_attr_int(o, "exclude_outside", 0, &r.exclude_outside) && op_attr_int(o, "antialias", 0, &r.antialias));
    if (is(r.mode, "bilinear")) r.mode = "linear";
    if (!is(r.mode, "nearest") && !is(r.mode, "linear") && !is(r.mode, "cubic"))
        return fail(o->im->err, E_FORMAT, "attribute 'mode' is '%.40s'", r.mode);
    TRY(read_sizes(o, x, &r));
    Value *y = by_upsample(o, x, &r);
    if (y || o->im->err->code) return op_return(o, 0, y);
    bool nearest = is(r.mode, "nearest");
    y = nearest ? x : f64(o, x);
    for (int i = 0; y && i < x->rank; i++)
        if (!same_size(&r, x, i)) y = along(o, y, &r, i, &outside);
    if (y && outside) y = AS(&o->L, where_self, v(outside), v(op_number(o, DT_F64, r.outside_value)), v(y));
    if (y && !nearest && !dtype_is_float(x->dtype)) { /* rounded and kept in range, as the reference does */
        double n = ldexp(1, dtype_bits(x->dtype));
        bool is_signed = x->dtype == DT_I8 || x->dtype == DT_I16 || x->dtype == DT_I32 || x->dtype == DT_I64;
        if (dtype_bits(x->dtype) < 64)
            y = AS(&o->L, clamp, v(AS(&o->L, round, v(y))), arg_float(o->g, is_signed ? -n / 2 : 0),
                   arg_float(o->g, is_signed ? n / 2 - 1 : n - 1));
    }
    return op_return(o, 0, y ? lower_cast(&o->L, y, x->dtype) : NULL);
}
