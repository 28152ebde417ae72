/* ONNX's sampling at points, regions and boxes. Contract in onnx_impl.h.
 *
 *     NonMaxSuppression(boxes, scores, 10, 0.5, 0.3)       ->  torchvision.nms for each image and class, its first
 *                                                              ones, joined
 */
#include <string.h>
#include "onnx/read/read_impl.h"

enum { MAX_LISTS = 4096 };

bool onnx_grid_sample(OnnxOp *o)
{
    Value *x, *grid;
    const char *mode, *pad;
    int64_t corners;
    static const char *const modes[][3] = {{"bilinear", "linear", "linear"},
                                           {"nearest", "nearest", "nearest"},
                                           {"bicubic", "cubic", "cubic"}},
                             *const pads[] = {"zeros", "border", "reflection"};
    int m = -1, p = -1;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &grid) && op_attr_string(o, "mode", "linear", &mode) &&
        op_attr_string(o, "padding_mode", "zeros", &pad) && op_attr_int(o, "align_corners", 0, &corners));
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++)
            if (!strcmp(mode, modes[i][k])) m = i;
        if (!strcmp(pad, pads[i])) p = i;
    }
    if (m < 0 || p < 0) return fail(o->im->err, E_FORMAT, "mode '%.40s', padding_mode '%.40s'", mode, pad);
    if (x->rank != 4 && x->rank != 5) return op_unsupported(o, "an input of rank %d", x->rank);
    return op_return(o, 0,
                     AS(&o->L, grid_sampler, v(x), v(lower_cast(&o->L, grid, x->dtype)), arg_int(o->g, m),
                        arg_int(o->g, p), arg_bool(o->g, corners != 0)));
}

bool onnx_affine_grid(OnnxOp *o)
{
    Value *theta;
    Expr **size;
    int n;
    int64_t corners;
    TRY(op_tensor(o, 0, &theta) && op_sizes(o, 1, &n, &size) && op_attr_int(o, "align_corners", 0, &corners));
    if (n != 4 && n != 5) return op_fail(o, 1, "%d sizes, expected 4 or 5", n);
    return op_return(
        o, 0, AS(&o->L, affine_grid_generator, v(theta), arg_exprs(o->g, n, size), arg_bool(o->g, corners != 0)));
}

/* Of torchvision: averages of samples inside each cell of a region (x1, y1, x2, y2) */
bool onnx_roi_align(OnnxOp *o)
{
    Value *x, *rois, *image;
    const char *mode, *place;
    int64_t h, w, ratio;
    double scale;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &rois) && op_tensor(o, 2, &image) &&
        op_attr_string(o, "mode", "avg", &mode) &&
        op_attr_string(o, "coordinate_transformation_mode", o->opset >= 16 ? "half_pixel" : "output_half_pixel",
                       &place) &&
        op_attr_int(o, "output_height", 1, &h) && op_attr_int(o, "output_width", 1, &w) &&
        op_attr_int(o, "sampling_ratio", 0, &ratio) && op_attr_float(o, "spatial_scale", 1, &scale));
    if (strcmp(mode, "avg")) return op_unsupported(o, "mode '%.40s'; averages are supported", mode);
    if (rois->rank != 2 || image->rank != 1)
        return op_fail(o, 1, "ranks %d and %d, expected regions (n, 4) and their images (n)", rois->rank, image->rank);
    Value *first = lower_reshape(&o->L, lower_cast(&o->L, image, rois->dtype), 2,
                                 (Expr *[]){image->dim[0], ex_int(o->ex, 1)});
    TRY(first);
    Value *all = AS(&o->L, cat, arg_values(o->g, 2, (Value *[]){first, rois}), arg_int(o->g, 1));
    return op_return(o, 0,
                     AS(&o->L, torchvision_roi_align, v(x), v(all), arg_float(o->g, scale), arg_int(o->g, h),
                        arg_int(o->g, w), arg_int(o->g, ratio), arg_bool(o->g, !strcmp(place, "half_pixel"))));
}

bool onnx_max_roi_pool(OnnxOp *o)
{
    Value *x, *rois;
    const int64_t *size;
    int n;
    double scale;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &rois) && op_attr_ints(o, "pooled_shape", &size, &n) &&
        op_attr_float(o, "spatial_scale", 1, &scale));
    if (n != 2) return fail(o->im->err, E_FORMAT, "attribute 'pooled_shape' has %d elements, expected 2", n);
    return op_return(o, 0,
                     AS(&o->L, torchvision_roi_pool, v(x), v(rois), arg_float(o->g, scale), arg_int(o->g, size[0]),
                        arg_int(o->g, size[1])));
}

static bool pair_of(OnnxOp *o, const char *name, int want, int64_t fill, int64_t *out)
{
    const int64_t *given;
    int n;
    TRY(op_attr_ints(o, name, &given, &n));
    if (n && n != want) return fail(o->im->err, E_FORMAT, "attribute '%s' has %d elements, expected %d", name, n, want);
    for (int i = 0; i < want; i++) out[i] = n ? given[i] : fill;
    return true;
}

/* Of torchvision; pads after the picture only say how large the result is, which is as large as the offsets say. */
bool onnx_deform_conv(OnnxOp *o)
{
    Value *x, *w, *offset, *bias, *mask;
    int64_t step[2], apart[2], pad[4], groups, parts;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &w) && op_tensor(o, 2, &offset) && op_optional(o, 3, &bias) &&
        op_optional(o, 4, &mask) && op_attr_int(o, "group", 1, &groups) && op_attr_int(o, "offset_group", 1, &parts));
    if (x->rank != 4) return op_unsupported(o, "an input of rank %d", x->rank);
    if (w->rank != 4) return op_fail(o, 1, "rank %d, expected 4", w->rank);
    TRY(pair_of(o, "strides", 2, 1, step) && pair_of(o, "dilations", 2, 1, apart) && pair_of(o, "pads", 4, 0, pad));
    bool masked = mask != NULL;
    if (!bias) bias = AS(&o->L, full, arg_exprs(o->g, 1, w->dim), arg_int(o->g, 0), arg_dtype(x->dtype));
    if (!mask) mask = offset;
    const int64_t n[] = {step[0], step[1], pad[0], pad[1], apart[0], apart[1], groups, parts};
    Arg a[14] = {v(x), v(w), v(offset), v(mask), v(bias)};
    for (int i = 0; i < 8; i++) a[5 + i] = arg_int(o->g, n[i]);
    a[13] = arg_bool(o->g, masked);
    return op_return(o, 0, lower_as(&o->L, OP_torchvision_deform_conv2d, 14, a));
}

static Value *column(OnnxOp *o, Value *x, int k)
{
    return AS(&o->L, select_int, v(x), arg_int(o->g, 2), arg_int(o->g, k));
}

/* Any two corners, or a middle and a size, as (least, least, most, most) */
static Value *corners_of(OnnxOp *o, Value *boxes, bool centred)
{
    Value *c[4], *out[4];
    for (int i = 0; i < 4; i++) TRY_NULL(c[i] = column(o, boxes, i));
    for (int i = 0; i < 2; i++) {
        Value *half = centred ? AS(&o->L, mul_Tensor, v(c[2 + i]), arg_float(o->g, 0.5)) : NULL;
        out[i] = centred ? AS(&o->L, sub_Tensor, v(c[i]), v(half)) : AS(&o->L, minimum, v(c[i]), v(c[2 + i]));
        out[2 + i] = centred ? AS(&o->L, add_Tensor, v(c[i]), v(half)) : AS(&o->L, maximum, v(c[i]), v(c[2 + i]));
        TRY_NULL(out[i] && out[2 + i]);
    }
    return AS(&o->L, stack, arg_values(o->g, 4, out), arg_int(o->g, 2));
}

/* Rows (image, class, box) of one list: the first `most` that are left, as far as their scores reach;
 * nms gives them by falling score. */
static Value *kept_rows(OnnxOp *o, Value *boxes, Value *scores, int64_t image, int64_t klass, double overlap,
                        Expr *most, Value *least)
{
    Value *keep = AS(&o->L, torchvision_nms, v(boxes), v(scores), arg_float(o->g, overlap));
    TRY_NULL(keep);
    Expr *n = ex_min(o->ex, most, keep->dim[0]), *reach;
    if (least) {
        Value *high = AS(&o->L, gt_Tensor, v(AS(&o->L, index_select, v(scores), arg_int(o->g, 0), v(keep))), v(least));
        Value *count = AS(&o->L, sum_dim_IntList, v(lower_cast(&o->L, high, DT_I64)),
                          arg_ints(o->g, 1, (int64_t[]){0}));
        if (!count || !op_item(o, count, 0, &reach)) return NULL;
        n = ex_min(o->ex, n, reach);
    }
    keep = AS(&o->L, slice_Tensor, v(keep), arg_int(o->g, 0), arg_int(o->g, 0), arg_expr(n), arg_int(o->g, 1));
    TRY_NULL(keep);
    Value *part[3];
    for (int i = 0; i < 2; i++)
        TRY_NULL(part[i] = AS(&o->L, full, arg_exprs(o->g, 1, keep->dim), arg_int(o->g, i ? klass : image),
                              arg_dtype(DT_I64)));
    part[2] = keep;
    return AS(&o->L, stack, arg_values(o->g, 3, part), arg_int(o->g, 1));
}

/* boxes (images, n, 4), scores (images, classes, n), most a class, overlap, least score */
bool onnx_non_max_suppression(OnnxOp *o)
{
    Value *boxes, *scores, *least, *rows[MAX_LISTS];
    int64_t centred;
    int n = 0;
    Expr *zero = ex_int(o->ex, 0), **most = &zero;
    double overlap = 0;
    TRY(op_tensor(o, 0, &boxes) && op_tensor(o, 1, &scores) && op_optional(o, 4, &least) &&
        op_attr_int(o, "center_point_box", 0, &centred));
    if (boxes->rank != 3 || scores->rank != 3)
        return op_fail(o, 0, "ranks %d and %d, expected 3", boxes->rank, scores->rank);
    if (op_has(o, 2)) TRY(op_sizes(o, 2, &n, &most));
    const Cell *limit = op_known(o, 3);
    if (op_has(o, 3) && (!limit || limit->n != 1 || !ex_is_const(limit->e[0])))
        return op_unsupported(o, "input 3 '%.100s' is computed; give its value when loading", o->node->input[3]);
    if (limit) overlap = ex_number(limit->e[0]);
    if (!ex_is_int(scores->dim[0]) || !ex_is_int(scores->dim[1]))
        return op_unsupported(o, "the number of images or classes varies; only fixed ones are supported");
    int64_t images = scores->dim[0]->i, classes = scores->dim[1]->i;
    if (images < 1 || classes < 1 || images > MAX_LISTS || images * classes > MAX_LISTS)
        return op_unsupported(o, "%lld images of %lld classes", (long long)images, (long long)classes);
    if (least && least->rank) TRY(least = lower_reshape(&o->L, least, 0, NULL));
    TRY(boxes = corners_of(o, boxes, centred != 0));
    for (int64_t i = 0; i < images; i++) {
        Value *some = AS(&o->L, select_int, v(boxes), arg_int(o->g, 0), arg_int(o->g, i)),
              *all = AS(&o->L, select_int, v(scores), arg_int(o->g, 0), arg_int(o->g, i));
        for (int64_t k = 0; k < classes; k++) {
            Value *s = AS(&o->L, select_int, v(all), arg_int(o->g, 0), arg_int(o->g, k));
            TRY(some && s && (rows[i * classes + k] = kept_rows(o, some, s, i, k, overlap, *most, least)) &&
                onnx_fits(o->im));
        }
    }
    return op_return(o, 0, AS(&o->L, cat, arg_values(o->g, (int)(images * classes), rows), arg_int(o->g, 0)));
}

/* Columns (N, C kernel, windows) summed into pictures, of two axes */
bool onnx_col2im(OnnxOp *o)
{
    Value *x;
    Expr **size, *wide[2], *cut[4];
    const int64_t *kernel;
    int n, m;
    int64_t strides[2], dilations[2], pads[4];
    TRY(op_tensor(o, 0, &x) && op_sizes(o, 1, &n, &size) && op_const_ints(o, 2, &m, &kernel));
    if (n != 2 || m != 2) return op_unsupported(o, "images of %d axes; two are supported", n);
    TRY(op_attr_sizes(o, "strides", 2, 1, 1, strides) && op_attr_sizes(o, "dilations", 2, 1, 1, dilations) &&
        op_attr_sizes(o, "pads", 4, 0, 0, pads));
    for (int i = 0; i < 2; i++) {
        wide[i] = ex_add(o->ex, size[i], ex_int(o->ex, pads[i] + pads[2 + i]));
        cut[2 * (1 - i)] = ex_int(o->ex, -pads[i]);
        cut[2 * (1 - i) + 1] = ex_int(o->ex, -pads[2 + i]);
    }
    static const int64_t zeros[2];
    Value *y = AS(&o->L, col2im, v(x), arg_exprs(o->g, 2, wide), arg_ints(o->g, 2, kernel),
                  arg_ints(o->g, 2, dilations), arg_ints(o->g, 2, zeros), arg_ints(o->g, 2, strides));
    bool none = !pads[0] && !pads[1] && !pads[2] && !pads[3];
    return op_return(o, 0, none ? y : AS(&o->L, constant_pad_nd, v(y), arg_exprs(o->g, 4, cut), arg_float(o->g, 0)));
}

/* Values back to the places that MaxPool gave, among zeros; positions count over the whole input. */
bool onnx_max_unpool(OnnxOp *o)
{
    Value *x, *at;
    int64_t kernel[MAX_RANK], strides[MAX_RANK], pads[2 * MAX_RANK];
    int n, given = 0;
    Expr **shape = NULL, *dim[MAX_RANK], *all = ex_int(o->ex, 1), *count = all, *inner[MAX_RANK];
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &at));
    n = x->rank - 2;
    if (n < 1 || !op_attr(o, "kernel_shape"))
        return op_fail(o, 0, "rank %d and %s kernel_shape, expected 3 axes or more and one", x->rank,
                       op_attr(o, "kernel_shape") ? "a" : "no");
    TRY(op_attr_sizes(o, "kernel_shape", n, 1, 1, kernel) && op_attr_sizes(o, "strides", n, 1, 1, strides) &&
        op_attr_sizes(o, "pads", 2 * n, 0, 0, pads));
    if (op_has(o, 2)) TRY(op_sizes(o, 2, &given, &shape));
    if (shape && given != x->rank) return op_fail(o, 2, "%d sizes for rank %d", given, x->rank);
    for (int i = 0; i < x->rank; i++) {
        int64_t k = i - 2;
        inner[i] = i < 2 ? x->dim[i]
                         : ex_add(o->ex,
                                  ex_mul(o->ex, ex_sub(o->ex, x->dim[i], ex_int(o->ex, 1)), ex_int(o->ex, strides[k])),
                                  ex_int(o->ex, kernel[k] - pads[k] - pads[n + k]));
        dim[i] = shape ? shape[i] : inner[i];
        all = ex_mul(o->ex, all, inner[i]);
        count = ex_mul(o->ex, count, x->dim[i]);
    }
    Value *none = AS(&o->L, full, arg_exprs(o->g, 1, &all), arg_int(o->g, 0), arg_dtype(x->dtype));
    Value *y = AS(&o->L, scatter_src, v(none), arg_int(o->g, 0), v(lower_reshape(&o->L, at, 1, &count)),
                  v(lower_reshape(&o->L, x, 1, &count)));
    TRY(y && (y = lower_reshape(&o->L, y, x->rank, inner)));
    Expr *pad[2 * MAX_RANK]; /* a larger output has zeros at the end */
    for (int i = 0; i < x->rank; i++) {
        pad[2 * (x->rank - 1 - i)] = ex_int(o->ex, 0);
        pad[2 * (x->rank - 1 - i) + 1] = ex_sub(o->ex, dim[i], inner[i]);
    }
    return op_return(o, 0,
                     shape ? AS(&o->L, constant_pad_nd, v(y), arg_exprs(o->g, 2 * x->rank, pad), arg_int(o->g, 0)) : y);
}
