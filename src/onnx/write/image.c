/* Resampling, pooling and detection in ONNX's words.
 *
 *     qkv.upsample(x, [h, w], "linear")   ->  Resize(x, sizes=[N, C, h, w], mode=linear, half_pixel)
 */
#include <math.h>
#include <string.h>
#include "facts/nearest.h"
#include "onnx/write/write_impl.h"

static Ref wide(Onnx *o, Ref x) { return x.t == DT_BF16 ? cast(o, x, DT_F32) : x; }

/* ------------------------------------------------------------------ resampling */

/* Resize takes sizes or scales: does it make the size of the scale, as far as that is known? Runtimes multiply in
 * float32, which makes 7 of 10 and 0.7f, although 0.7f is less than 0.7. */
static bool size_follows(const Expr *in, const Expr *out, float scale)
{
    return !ex_is_int(in) || !ex_is_int(out) || floorf((float)in->i * scale) == (float)out->i;
}

/* Where both resample an axis to the same elements; scales NULL: by the sizes. */
static bool agrees(const Node *n, const Arg *scales, int i, bool exact)
{
    const Value *x = arg_v(n, 0);
    const Expr *scale = scales && ex_number(scales->es[i]) > 0 ? scales->es[i] : NULL;
    return nearest_agrees(x->dim[2 + i], n->out[0]->dim[2 + i], scale, exact, x->rank < 5);
}

/* An axis by index, computed as PyTorch does: nearest_at of src/run/run_image.c. */
static Ref nearest_along(Onnx *o, Ref x, const Node *n, const Arg *scales, int i, bool exact)
{
    const Value *v = arg_v(n, 0);
    Expr *in = v->dim[2 + i], *out = n->out[0]->dim[2 + i];
    bool flat = v->rank < 5 && !exact, sizes = ex_is_int(in) && ex_is_int(out);
    double f = scales ? ex_number(scales->es[i]) : 0;
    Ref back = f > 0 ? number(o, DT_F32, (double)(float)(1 / f))
                     : bin(o, "Div", size_scalar(o, in, DT_F32), size_scalar(o, out, DT_F32));
    Ref j = positions(o, size_of(o, out)), place = cast(o, j, DT_F32), length = size_scalar(o, in, DT_I64);
    if (exact) place = bin(o, "Add", place, number(o, DT_F32, 0.5));
    place = bin(o, "Mul", place, back);
    Ref at = cast(o, NODE(o, "Floor", DT_F32, place), DT_I64);
    at = bin(o, "Min", at, bin(o, "Sub", length, integer(o, 1)));
    Ref count = size_scalar(o, out, DT_I64), twice = bin(o, "Mul", length, integer(o, 2));
    if (flat && (sizes ? in->i == out->i : f > 1 && f < 2))
        at = where(o, NODE(o, "Equal", DT_BOOL, count, length), j, at);
    if (flat && (sizes ? 2 * in->i == out->i : f > 1 && f < 3))
        at = where(o, NODE(o, "Equal", DT_BOOL, count, twice), bin(o, "Div", j, integer(o, 2)), at);
    attr_int(o, "axis", 2 + i);
    return NODE(o, "Gather", x.t, x, at);
}

void out_upsample(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0), *out = n->out[0];
    const char *mode = arg_s(n, 2, "nearest");
    bool corners = arg_b(n, 3), smooth = strstr(mode, "-aa") != NULL, nearest = !strncmp(mode, "nearest", 7),
         exact = !strcmp(mode, "nearest-exact");
    bool cubic = !strncmp(mode, "cubic", 5);
    const Arg *scales = &n->arg[4];
    float factor[MAX_RANK] = {1, 1};
    bool by_scale = scales->kind == ARG_EXPRS && scales->n == v->rank - 2 && !corners;
    for (int i = 0; by_scale && i < scales->n; i++) {
        by_scale = ex_is_const(scales->es[i]);
        factor[2 + i] = (float)ex_number(scales->es[i]);
        if (!by_scale || size_follows(v->dim[2 + i], out->dim[2 + i], factor[2 + i])) continue;
        refuse(o, "a scale that does not give the size: Resize has one of both");
        return;
    }
    if (smooth && (o->opt.opset < 18 || corners)) {
        refuse(o, corners ? "antialiasing with align_corners: runtimes do not agree"
                          : "ONNX resizes with antialiasing from opset 18 on");
        return;
    }
    if (!strcmp(mode, "lanczos-aa")) {
        refuse(o, "ONNX has no Lanczos filter");
        return;
    }
    if (dtype_is_int(v->dtype) && !nearest) {
        refuse(o, "interpolation of bytes, in fixed point in PyTorch: runtimes do not agree; resize floats");
        return;
    }
    bool agree = true;
    for (int i = 0; nearest && i < v->rank - 2; i++) agree = agree && agrees(n, by_scale ? scales : NULL, i, exact);
    if (!agree) {
        Ref y = arg_ref(o, n, 0);
        for (int i = 0; i < v->rank - 2; i++) y = nearest_along(o, y, n, by_scale ? scales : NULL, i, exact);
        give(o, n, 0, y);
        return;
    }
    Ref x = wide(o, arg_ref(o, n, 0)), sizes = none(), by = none();
    if (by_scale) {
        float *data = arena_array(o->a, float, v->rank);
        if (!data) {
            out_of_memory(o);
            return;
        }
        memcpy(data, factor, (size_t)v->rank * sizeof *data);
        Tensor t = tensor_of(DT_F32, 1, (int64_t[]){v->rank}, data);
        by = tensor_const(o, &t, "scales");
    } else {
        sizes = shape_of(o, out->rank, out->dim);
    }
    attr_str(o, "mode", nearest ? "nearest" : cubic ? "cubic" : "linear");
    attr_str(o, "coordinate_transformation_mode",
             nearest && !exact ? "asymmetric"
             : corners         ? "align_corners"
                               : "half_pixel");
    if (nearest) attr_str(o, "nearest_mode", exact ? "round_prefer_ceil" : "floor");
    if (cubic) attr_float(o, "cubic_coeff_a", smooth ? -0.5 : -0.75);
    if (smooth) {
        attr_int(o, "antialias", 1);
        attr_int(o, "exclude_outside", 1);
    }
    give(o, n, 0, NODE(o, "Resize", x.t, x, none(), by, sizes));
}

static Ref rounded(Onnx *o, Ref x, DType t) { return cast(o, cast(o, x, t), DT_F32); }

/* The grid, in float32, whose points are the middles of the pixels nearest to those of a grid of a half type: PyTorch
 * rounds each step from a point to a place to that type, runtimes of ONNX none. */
static Ref nearest_middles(Onnx *o, Ref grid, const Value *x, bool corners)
{
    const DType t = grid.t;
    Expr *dim[3]; /* a point has the last axis first */
    const int axes = x->rank - 2;
    for (int i = 0; i < axes; i++) dim[i] = x->dim[x->rank - 1 - i];
    Ref n = cast(o, shape_of(o, axes, dim), DT_F32), one = number(o, DT_F32, 1), two = number(o, DT_F32, 2);
    Ref u = rounded(o, bin(o, "Add", cast(o, grid, DT_F32), one), t);
    if (corners) u = rounded(o, bin(o, "Mul", bin(o, "Div", u, two), bin(o, "Sub", n, one)), t);
    else u = bin(o, "Div", rounded(o, bin(o, "Sub", rounded(o, bin(o, "Mul", u, n), t), one), t), two);
    u = bin(o, "Add", bin(o, "Mul", NODE(o, "Round", DT_F32, u), two), one);
    return bin(o, "Sub", bin(o, "Div", u, n), one);
}

void out_grid_sampler(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    static const char *const old[] = {"bilinear", "nearest", "bicubic"}, *const modes[] = {"linear", "nearest", "cubic"},
                             *const pads[] = {"zeros", "border", "reflection"};
    const Value *v = arg_v(n, 0);
    int64_t mode = arg_i(o, n, 2, 0), pad = arg_i(o, n, 3, 0);
    if (v->rank != 4 && o->opt.opset < SAMPLES_VOLUMES) {
        refuse(o, "ONNX samples volumes from opset %d on", SAMPLES_VOLUMES);
        return;
    }
    if (v->rank != 4 && mode == 2) {
        refuse(o, "no runtime of ONNX has cubic sampling of volumes");
        return;
    }
    Ref x = wide(o, arg_ref(o, n, 0)), grid = arg_ref(o, n, 1);
    bool corners = arg_b(n, 4), middles = mode == 1 && pad != 2 && (grid.t == DT_BF16 || grid.t == DT_F16);
    if (middles) x = cast(o, x, DT_F32);
    grid = middles ? nearest_middles(o, grid, v, corners) : cast(o, grid, x.t);
    attr_str(o, "mode", o->opt.opset >= SAMPLES_VOLUMES ? modes[mode] : old[mode]);
    attr_str(o, "padding_mode", pads[pad]);
    attr_int(o, "align_corners", corners && !middles);
    give(o, n, 0, NODE(o, "GridSample", x.t, x, grid));
}

/* -1 + 2 i / (size - 1) with corners, else the middles of the pixels: (2 i + 1) / size - 1. */
static Ref steps(Onnx *o, Expr *size, bool corners, DType t)
{
    Ref i = cast(o, positions(o, size_of(o, size)), t), count = size_scalar(o, size, t), one = number(o, t, 1),
        two = number(o, t, 2);
    if (!corners) return bin(o, "Sub", bin(o, "Div", bin(o, "Add", bin(o, "Mul", i, two), one), count), one);
    if (ex_equals_int(size, 1)) return i;
    return bin(o, "Sub", bin(o, "Div", bin(o, "Mul", i, two), bin(o, "Sub", count, one)), one);
}

/* (x, y[, z], 1) of every place, times theta */
void out_affine_grid(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Arg *size = &n->arg[1];
    int axes = size->n - 2;
    Ref theta = wide(o, arg_ref(o, n, 0)), part[4];
    Expr *one = ex_int(o->p, 1), *plane[4];
    for (int i = 0; i < axes; i++) plane[i] = size->es[2 + i];
    plane[axes] = one;
    for (int i = 0; i < axes; i++) { /* x runs along the last axis */
        Expr *thin[4];
        int at = axes - 1 - i;
        for (int k = 0; k <= axes; k++) thin[k] = k == at ? plane[at] : one;
        Ref s = steps(o, plane[at], arg_b(n, 2), theta.t);
        part[i] = expand(o, reshape(o, s, 1, &plane[at], axes + 1, thin), axes + 1, thin, axes + 1, plane);
    }
    part[axes] = NODE(o, "Expand", theta.t, number(o, theta.t, 1), shape_of(o, axes + 1, plane));
    attr_int(o, "axis", axes);
    Ref base = node_of(o, "Concat", theta.t, axes + 1, part);
    base = NODE(o, "Reshape", base.t, base, INTS(o, 1, -1, axes + 1));
    Ref y = bin(o, "MatMul", base, transpose(o, theta, 3, (int64_t[]){0, 2, 1}));
    give(o, n, 0, to_shape(o, y, n->out[0]->rank, n->out[0]->dim));
}

/* ------------------------------------------------------------------ pooling */

typedef struct Pool {
    int axes;
    int64_t kernel[8], stride[8], pads[16], dilation[8];
    bool ceil, batched;
} Pool;

static int64_t per_axis(const int64_t *list, int n, int i, int64_t otherwise)
{
    return n == 0 ? otherwise : list[n == 1 ? 0 : i];
}

static bool read_pool(Onnx *o, const Node *n, int axes, int stride, int padding, int dilation, int ceil, Pool *p)
{
    int64_t k[32], s[32], d[32], a[32];
    int nk = arg_ints_of(o, n, 1, k), ns = arg_ints_of(o, n, stride, s), np = arg_ints_of(o, n, padding, a),
        nd = dilation < 0 ? 0 : arg_ints_of(o, n, dilation, d);
    *p = (Pool){.axes = axes, .ceil = arg_b(n, ceil), .batched = arg_v(n, 0)->rank == axes + 2};
    for (int i = 0; i < axes; i++) {
        p->kernel[i] = per_axis(k, nk, i, 1);
        p->stride[i] = per_axis(s, ns, i, p->kernel[i]);
        p->pads[i] = p->pads[axes + i] = per_axis(a, np, i, 0);
        p->dilation[i] = per_axis(d, nd, i, 1);
    }
    return !o->refused;
}

static void attrs_of_pool(Onnx *o, const Pool *p)
{
    attr_ints(o, "kernel_shape", p->axes, p->kernel);
    attr_ints(o, "strides", p->axes, p->stride);
    attr_ints(o, "pads", 2 * p->axes, p->pads);
    if (p->ceil) attr_int(o, "ceil_mode", 1);
}

/* Places in the whole tensor, in the plane. */
static Ref in_plane(Onnx *o, Ref at, const Value *v, int axes)
{
    Expr *plane = ex_int(o->p, 1);
    for (int i = 0; i < axes; i++) plane = ex_mul(o->p, plane, v->dim[v->rank - axes + i]);
    return bin(o, "Mod", at, size_of(o, plane));
}

void out_max_pool(Onnx *o, const Node *n, const char *text)
{
    const Value *v = arg_v(n, 0);
    int axes = !strcmp(text, "3") ? 3 : 2;
    Pool p;
    if (!read_pool(o, n, axes, 2, 3, 4, 5, &p)) return;
    Ref x = arg_ref(o, n, 0), out[2];
    DType t = x.t;
    if (t == DT_I64 || t == DT_I32 || t == DT_I16) {
        refuse(o, "ONNX pools no %s", dtype_name(t));
        return;
    }
    x = wide(o, x);
    if (!p.batched) x = unsqueeze(o, x, 0);
    attrs_of_pool(o, &p);
    attr_ints(o, "dilations", axes, p.dilation);
    nodes_of(o, "MaxPool", 2, (DType[]){x.t, DT_I64}, out, 1, &x);
    out[1] = in_plane(o, out[1], v, axes);
    for (int i = 0; i < 2; i++) give(o, n, i, p.batched ? out[i] : squeeze(o, out[i], 0));
}

void out_avg_pool(Onnx *o, const Node *n, const char *text)
{
    int axes = !strcmp(text, "3") ? 3 : 2;
    Pool p;
    if (!read_pool(o, n, axes, 2, 3, -1, 4, &p)) return;
    bool all = arg_b(n, 5), divided = given(n, 6);
    Ref x = wide(o, arg_ref(o, n, 0));
    if (p.ceil && (all || divided)) {
        int64_t over = 0;
        for (int i = 0; i < axes; i++) over |= p.pads[i];
        if (over || divided) {
            refuse(o, "averages over the padding of windows that end outside");
            return;
        }
    }
    if (!p.batched) x = unsqueeze(o, x, 0);
    double size = 1;
    for (int i = 0; i < axes; i++) size *= (double)p.kernel[i];
    bool padded = false;
    for (int i = 0; i < axes; i++) padded |= p.pads[i] != 0;
    attrs_of_pool(o, &p);
    if ((all || divided) && padded) attr_int(o, "count_include_pad", 1);
    Ref y = NODE(o, "AveragePool", x.t, x);
    if (divided) y = bin(o, "Mul", y, like(o, y, size / (double)arg_i(o, n, 6, 1)));
    give(o, n, 0, p.batched ? y : squeeze(o, y, 0));
}

/* Part j of `to` is of elements floor(j * from / to) .. ceil((j + 1) * from / to) - 1 (ATen's
 * AdaptiveAveragePooling): (to), from lo to before hi. */
static void part_bounds(Onnx *o, Ref from, Ref to, Ref *lo, Ref *hi)
{
    Ref one = integer(o, 1), j = positions(o, to), next = bin(o, "Mul", bin(o, "Add", j, one), from);
    *lo = bin(o, "Div", bin(o, "Mul", j, from), to);
    *hi = bin(o, "Div", bin(o, "Sub", bin(o, "Add", next, to), one), to);
}

static void swap_with_last(int64_t *perm, int rank, int axis)
{
    for (int i = 0; i < rank; i++) perm[i] = i;
    perm[axis] = rank - 1;
    perm[rank - 1] = axis;
}

/* One axis averaged into `to` parts: the elements of each, picked by index, those after its end zeros. A product with
 * weights would spread a NaN over all parts. */
static Ref averaged(Onnx *o, Ref x, int rank, int axis, Expr *from, Expr *to)
{
    int64_t perm[MAX_RANK], last = rank;
    Ref a = size_of(o, from), b = size_of(o, to), one = integer(o, 1), lo, hi;
    part_bounds(o, a, b, &lo, &hi);
    Ref most = bin(o, "Add", bin(o, "Div", a, bin(o, "Max", b, one)), integer(o, 2));
    Ref at = bin(o, "Add", unsqueeze(o, lo, 1), positions(o, most));
    Ref inside = NODE(o, "Less", DT_BOOL, at, unsqueeze(o, hi, 1));
    swap_with_last(perm, rank, axis);
    x = transpose(o, x, rank, perm);
    at = bin(o, "Min", at, bin(o, "Sub", a, one));
    attr_int(o, "axis", last - 1);
    x = where(o, inside, NODE(o, "Gather", x.t, x, at), like(o, x, 0));
    x = reduce(o, "ReduceSum", x, 1, &last, false);
    x = bin(o, "Div", x, cast(o, bin(o, "Sub", hi, lo), x.t));
    return transpose(o, x, rank, perm);
}

/* Windows are of one size where the result's divides the input's. */
static bool even_windows(const Value *v, const Value *out, int axes, Pool *p)
{
    *p = (Pool){.axes = axes};
    for (int i = 0; i < axes; i++) {
        const Expr *a = v->dim[v->rank - axes + i], *b = out->dim[out->rank - axes + i];
        if (!ex_is_int(a) || !ex_is_int(b) || b->i < 1 || a->i % b->i) return false;
        p->kernel[i] = p->stride[i] = a->i / b->i;
    }
    return true;
}

static bool to_one(const Value *out, int axes)
{
    for (int i = 0; i < axes; i++)
        if (!ex_equals_int(out->dim[out->rank - axes + i], 1)) return false;
    return true;
}

void out_adaptive_avg(Onnx *o, const Node *n, const char *text)
{
    const Value *v = arg_v(n, 0), *out = n->out[0];
    int axes = !strcmp(text, "3") ? 3 : 2;
    int64_t axis[3];
    Pool p;
    Ref x = arg_ref(o, n, 0);
    if (x.t == DT_F16 || x.t == DT_BF16) x = cast(o, x, DT_F32);
    for (int i = 0; i < axes; i++) axis[i] = v->rank - axes + i;
    if (to_one(out, axes)) {
        give(o, n, 0, reduce(o, "ReduceMean", x, axes, axis, true));
        return;
    }
    if (even_windows(v, out, axes, &p) && x.t != DT_F64) {
        bool batched = v->rank == axes + 2;
        if (!batched) x = unsqueeze(o, x, 0);
        attrs_of_pool(o, &p);
        Ref y = NODE(o, "AveragePool", x.t, x);
        give(o, n, 0, batched ? y : squeeze(o, y, 0));
        return;
    }
    for (int i = 0; i < axes; i++) {
        Expr *a = v->dim[axis[i]], *b = out->dim[axis[i]];
        if (a != b) x = averaged(o, x, v->rank, (int)axis[i], a, b);
    }
    give(o, n, 0, x);
}

/* The largest element of the last axes, whatever their sizes, and its place among them. */
static void largest_of_all(Onnx *o, const Node *n, Ref x, const Value *v, int axes)
{
    int64_t axis[3];
    Expr *dim[MAX_RANK];
    int lead = v->rank - axes;
    for (int i = 0; i < axes; i++) axis[i] = lead + i;
    for (int i = 0; i < lead; i++) dim[i] = v->dim[i];
    dim[lead] = ex_int(o->p, 1);
    for (int i = 0; i < axes; i++) dim[lead] = ex_mul(o->p, dim[lead], v->dim[lead + i]);
    give(o, n, 0, reduce(o, "ReduceMax", x, axes, axis, true));
    Ref rows = reshape(o, x, v->rank, v->dim, lead + 1, dim);
    attr_int(o, "axis", lead);
    Ref place = NODE(o, "ArgMax", DT_I64, rows);
    for (int i = 1; i < axes; i++) place = unsqueeze(o, place, lead);
    give(o, n, 1, place);
}

/* The largest element of each of `to` parts of one axis, and its place along that axis. */
static Ref largest_of_parts(Onnx *o, Ref x, int rank, int axis, Expr *from, Expr *to, Ref *place)
{
    int64_t perm[MAX_RANK], last = rank - 1;
    Ref lo, hi, a = size_of(o, from), i = unsqueeze(o, positions(o, a), 1);
    part_bounds(o, a, size_of(o, to), &lo, &hi);
    Ref inside = NODE(o, "And", DT_BOOL, negated(o, NODE(o, "Less", DT_BOOL, i, lo)), NODE(o, "Less", DT_BOOL, i, hi));
    swap_with_last(perm, rank, axis);
    Ref each = where(o, inside, unsqueeze(o, transpose(o, x, rank, perm), rank), like(o, x, -INFINITY));
    attr_int(o, "axis", last);
    attr_int(o, "keepdims", 0);
    *place = transpose(o, NODE(o, "ArgMax", DT_I64, each), rank, perm);
    return transpose(o, reduce(o, "ReduceMax", each, 1, &last, false), rank, perm);
}

/* Axis by axis, the last one first: of equal elements the first row's, and there the first, is the largest. */
static void largest_of_windows(Onnx *o, const Node *n, Ref x, const Value *v, int axes)
{
    int lead = v->rank - axes;
    Ref place[3], flat;
    for (int i = axes - 1; i >= 0; i--) {
        x = largest_of_parts(o, x, v->rank, lead + i, v->dim[lead + i], n->out[0]->dim[lead + i], &place[i]);
        for (int k = i + 1; k < axes; k++) {
            attr_int(o, "axis", lead + i);
            place[k] = NODE(o, "GatherElements", DT_I64, place[k], place[i]);
        }
    }
    flat = place[0];
    for (int i = 1; i < axes; i++)
        flat = bin(o, "Add", bin(o, "Mul", flat, size_of(o, v->dim[lead + i])), place[i]);
    give(o, n, 0, x);
    give(o, n, 1, flat);
}

void out_adaptive_max(Onnx *o, const Node *n, const char *text)
{
    const Value *v = arg_v(n, 0), *out = n->out[0];
    int axes = !strcmp(text, "3") ? 3 : 2;
    Pool p;
    Ref x = wide(o, arg_ref(o, n, 0)), y[2];
    if (to_one(out, axes)) {
        largest_of_all(o, n, x, v, axes);
        return;
    }
    if (!even_windows(v, out, axes, &p)) {
        largest_of_windows(o, n, x, v, axes);
        return;
    }
    bool batched = v->rank == axes + 2;
    if (!batched) x = unsqueeze(o, x, 0);
    attrs_of_pool(o, &p);
    nodes_of(o, "MaxPool", 2, (DType[]){x.t, DT_I64}, y, 1, &x);
    y[1] = in_plane(o, y[1], v, axes);
    for (int i = 0; i < 2; i++) give(o, n, i, batched ? y[i] : squeeze(o, y[i], 0));
}

/* ------------------------------------------------------------------ detection */

/* How much each of an axis' `size` pixels weighs in each of `parts` bins of n regions, (n, parts, size): the mean,
 * over a bin's samples, of the two pixels around each, 0 for a sample outside [-1, size]
 * (torchvision/csrc/ops/cpu/roi_align_kernel.cpp, whose weights are products of one along y and one along x). from,
 * extent: (n, 1, 1). */
static Ref bin_weights(Onnx *o, Ref from, Ref extent, int64_t parts, int64_t ratio, Expr *size)
{
    DType t = from.t;
    Ref zero = number(o, t, 0), one = number(o, t, 1), last = size_scalar(o, ex_add(o->p, size, ex_int(o->p, -1)), t);
    Ref step = bin(o, "Div", extent, number(o, t, (double)parts)),
        count = ratio > 0 ? number(o, t, (double)ratio) : NODE(o, "Ceil", t, step), most = integer(o, ratio);
    if (ratio <= 0) { /* as many samples as pixels: the most that a bin has, 1 where there is no region */
        Ref each = flat(o, count), least = flat(o, one);
        attr_int(o, "axis", 0);
        most = NODE(o, "Concat", t, each, least);
        most = cast(o, reduce(o, "ReduceMax", most, 1, (int64_t[]){0}, false), DT_I64);
    }
    Ref i = cast(o, positions(o, most), t), divisor = bin(o, "Max", count, one);
    Ref part = unsqueeze(o, cast(o, positions(o, integer(o, parts)), t), 1);
    Ref at = bin(o, "Div", bin(o, "Mul", bin(o, "Add", i, number(o, t, 0.5)), step), divisor); /* (n, 1, samples) */
    at = bin(o, "Add", bin(o, "Add", from, bin(o, "Mul", part, step)), at);
    Ref outside = NODE(o, "Or", DT_BOOL, NODE(o, "Less", DT_BOOL, at, number(o, t, -1)),
                       NODE(o, "Greater", DT_BOOL, at, size_scalar(o, size, t)));
    outside = NODE(o, "Or", DT_BOOL, outside, negated(o, NODE(o, "Less", DT_BOOL, i, count)));
    Ref away = NODE(
        o, "Abs", t,
        bin(o, "Sub", unsqueeze(o, NODE(o, "Clip", t, at, zero, last), 3), cast(o, positions(o, size_of(o, size)), t)));
    Ref weight = where(o, unsqueeze(o, outside, 3), zero, bin(o, "Max", bin(o, "Sub", one, away), zero));
    return bin(o, "Div", reduce(o, "ReduceSum", weight, 1, (int64_t[]){2}, false), divisor);
}

/* rois (n, 5) of an op, seen as that where the file's sizes do not say it but a guard does. */
static Ref rois_of(Onnx *o, const Node *n)
{
    const Value *v = arg_v(n, 1);
    Ref rois = arg_ref(o, n, 1);
    Expr *five = ex_int(o->p, 5);
    return v->dim[1] == five ? rois : to_shape(o, rois, 2, (Expr *[]){v->dim[0], five});
}

typedef struct Regions { /* n of them */
    Ref image;           /* (n) i64: which one each is of */
    Ref side[2];         /* (n, 1, pw, w) and (n, 1, ph, h): what a bin takes of a column, of a row */
} Regions;

/* rois (n, 5); h, w: sizes of a picture; ratio: the argument that holds sampling_ratio, the one after it is aligned. */
static Regions regions(Onnx *o, const Node *n, Ref rois, Expr *h, Expr *w, int ratio)
{
    DType t = rois.t;
    bool aligned = arg_b(n, ratio + 1);
    Regions r = {.image = cast(o, squeeze(o, slice(o, rois, 1, INTS(o, 0), INTS(o, 1), 1), 1), DT_I64)};
    Ref box = slice(o, rois, 1, INTS(o, 1), INTS(o, 5), 1), shift = number(o, t, aligned ? 0.5 : 0),
        one = number(o, t, 1), from = none(), extent = none();
    box = bin(o, "Sub", bin(o, "Mul", box, number(o, t, arg_f(o, n, 2, 1))), shift);
    for (int k = 0; k < 2; k++) {
        from = unsqueeze(o, slice(o, box, 1, INTS(o, k), INTS(o, k + 1), 1), 2);
        extent = bin(o, "Sub", unsqueeze(o, slice(o, box, 1, INTS(o, 2 + k), INTS(o, 3 + k), 1), 2), from);
        if (!aligned) extent = bin(o, "Max", extent, one);
        r.side[k] = unsqueeze(
            o, bin_weights(o, from, extent, arg_i(o, n, k ? 3 : 4, 1), arg_i(o, n, ratio, 0), k ? h : w), 1);
    }
    return r;
}

/* Every region's image, times the weights of its columns and of its rows. */
static Ref roi_products(Onnx *o, const Node *n, Ref x, Ref rois)
{
    const Value *v = arg_v(n, 0);
    Regions r = regions(o, n, rois, v->dim[2], v->dim[3], 5);
    attr_int(o, "axis", 0);
    Ref pixels = NODE(o, "Gather", x.t, x, r.image);
    return bin(o, "MatMul", r.side[1], bin(o, "MatMul", pixels, transpose(o, r.side[0], 4, (int64_t[]){0, 1, 3, 2})));
}

/* The same products the other way, then the sum of what belongs to an image:
 * a product with ones where a region is of it. */
void out_roi_align_backward(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = n->out[0];
    Ref g = arg_ref(o, n, 0), rois = rois_of(o, n);
    DType t = g.t == DT_F64 ? DT_F64 : DT_F32;
    Expr *pixels = ex_mul(o->p, v->dim[1], ex_mul(o->p, v->dim[2], v->dim[3]));
    g = cast(o, g, t);
    Regions r = regions(o, n, cast(o, rois, t), v->dim[2], v->dim[3], 9);
    g = bin(o, "MatMul", transpose(o, r.side[1], 4, (int64_t[]){0, 1, 3, 2}),
            bin(o, "MatMul", g, r.side[0])); /* (n, C, h, w) */
    Ref owner = NODE(o, "Equal", DT_BOOL, unsqueeze(o, positions(o, size_of(o, v->dim[0])), 1),
                     unsqueeze(o, r.image, 0)); /* (N, n) */
    Ref sum = bin(o, "MatMul", cast(o, owner, t), to_shape(o, g, 2, (Expr *[]){arg_v(n, 0)->dim[0], pixels}));
    give(o, n, 0, to_shape(o, sum, 4, v->dim));
}

void out_roi_align(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0), rois = rois_of(o, n);
    if (x.t == DT_F16 || x.t == DT_BF16) {
        x = cast(o, x, DT_F32);
        rois = cast(o, rois, DT_F32);
    }
    if (for_ort(o) && o->opt.opset >= 22) { /* ONNX Runtime 1.31 has RoiAlign up to opset 21 */
        give(o, n, 0, roi_products(o, n, x, rois));
        return;
    }
    Ref batch = cast(o, squeeze(o, slice(o, rois, 1, INTS(o, 0), INTS(o, 1), 1), 1), DT_I64),
        box = slice(o, rois, 1, INTS(o, 1), INTS(o, 5), 1);
    int64_t h = arg_i(o, n, 3, 1), w = arg_i(o, n, 4, 1), ratio = arg_i(o, n, 5, 0);
    attr_str(o, "coordinate_transformation_mode", arg_b(n, 6) ? "half_pixel" : "output_half_pixel");
    attr_float(o, "spatial_scale", arg_f(o, n, 2, 1));
    attr_int(o, "output_height", h);
    attr_int(o, "output_width", w);
    attr_int(o, "sampling_ratio", ratio < 0 ? 0 : ratio);
    give(o, n, 0, NODE(o, "RoiAlign", x.t, x, box, batch));
}

void out_roi_pool(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0), rois = rois_of(o, n);
    DType t = for_ort(o) || x.t == DT_BF16 ? DT_F32 : x.t;
    int *uses = arena_array(o->a, int, o->g->next_id + 1);
    if (!uses) {
        out_of_memory(o);
        return;
    }
    graph_count_uses(o->g, uses);
    if (uses[n->out[1]->id]) refuse(o, "MaxRoiPool does not give the places of what it finds, its second result");
    attr_ints(o, "pooled_shape", 2, (int64_t[]){arg_i(o, n, 3, 1), arg_i(o, n, 4, 1)});
    attr_float(o, "spatial_scale", arg_f(o, n, 2, 1));
    give(o, n, 0, NODE(o, "MaxRoiPool", t, cast(o, x, t), cast(o, rois, t)));
}

/* A box that ends before it begins meets no other in torchvision; ONNX would turn it round. It becomes empty. */
void out_nms(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref boxes = cast(o, arg_ref(o, n, 0), DT_F32), scores = cast(o, arg_ref(o, n, 1), DT_F32),
        begin = slice(o, boxes, 1, INTS(o, 0), INTS(o, 2), 1), end = slice(o, boxes, 1, INTS(o, 2), INTS(o, 4), 1);
    end = NODE(o, "Max", DT_F32, begin, end);
    attr_int(o, "axis", 1);
    boxes = unsqueeze(o, NODE(o, "Concat", DT_F32, begin, end), 0);
    scores = unsqueeze(o, unsqueeze(o, scores, 0), 0);
    Ref most = size_of(o, arg_v(n, 0)->dim[0]),
        y = NODE(o, "NonMaxSuppression", DT_I64, boxes, scores, most, number(o, DT_F32, arg_f(o, n, 2, 0.5)));
    give(o, n, 0, squeeze(o, slice(o, y, 1, INTS(o, 2), INTS(o, 3), 1), 1));
}
