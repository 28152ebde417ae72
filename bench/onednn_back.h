/* oneDNN's gradients of a convolution, for bench/convolutions.c: in the layout in which pictures lie, or, where oneDNN
 * has only its plain loops for that, in the one that it likes best; weights are brought into its layout and their
 * gradient out of it at each run, as in training.
 *
 *     Back *b = back_create(&conv, weights, result, err);          back_run(b, dy, x_or_w, to);
 */
#ifndef QKV_BENCH_ONEDNN_BACK_H
#define QKV_BENCH_ONEDNN_BACK_H
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "kernel/onednn_api.h"

/* A buffer as the caller has it and as the primitive wants it; change: from the one to the other, NULL where they are
 * alike. */
typedef struct Side {
    Desc plain;
    DescView want;
    dnnl_memory_t have, used;
    dnnl_primitive_t change;
    void *room;
} Side;

enum { DY, OTHER, RESULT, SIDES };

typedef struct Back {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t forward, pd;
    dnnl_primitive_t main;
    Side side[SIDES];
    bool weights;
} Back;

static dnnl_data_type_t back_type(DType t) { return t == DT_BF16 ? dnnl_bf16 : dnnl_f32; }

static Desc back_desc(const Tensor *t, DType type)
{
    dnnl_dims_t dims, strides;
    Desc md = NULL;
    for (int i = 0; i < t->rank; i++) dims[i] = t->shape[i], strides[i] = t->stride[i];
    dnnl_memory_desc_create_with_strides(&md, t->rank, dims, back_type(type), strides);
    return md;
}

static Desc back_any(DescView like)
{
    Desc md = NULL;
    desc_any(&md, like);
    return md;
}

static dnnl_status_t back_describe(Back *b, const GemmConv *d, DescView x, DescView w, DescView dw, DescView y)
{
    dnnl_dims_t dilation;
    dnnl_alg_kind_t kind = dnnl_convolution_direct;
    for (int i = 0; i < d->spatial; i++) dilation[i] = d->dilation[i] - 1;
    const dnnl_dim_t *p = d->padding, *end = d->padding_end, *step = d->stride;
    dnnl_status_t s = dnnl_convolution_forward_primitive_desc_create(
        &b->forward, b->engine, dnnl_forward_training, kind, x, w, NULL, y, step, dilation, p, end, NULL);
    if (s != dnnl_success) return s;
#if DNNL_VERSION_MAJOR == 3
    if (b->weights)
        return dnnl_convolution_backward_weights_primitive_desc_create(&b->pd, b->engine, kind, x, dw, NULL, y, step,
                                                                       dilation, p, end, b->forward, NULL);
    return dnnl_convolution_backward_data_primitive_desc_create(&b->pd, b->engine, kind, x, w, y, step, dilation, p,
                                                                end, b->forward, NULL);
#else
    dnnl_convolution_desc_t of;
    if (b->weights)
        s = dnnl_dilated_convolution_backward_weights_desc_init(&of, kind, x, dw, NULL, y, step, dilation, p, end);
    else s = dnnl_dilated_convolution_backward_data_desc_init(&of, kind, x, w, y, step, dilation, p, end);
    return s == dnnl_success ? dnnl_primitive_desc_create(&b->pd, &of, NULL, b->engine, b->forward) : s;
#endif
}

static bool back_reference(dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success && name &&
           !strncmp(name, "ref", 3);
}

static bool back_side(Back *b, int i, DescView want, bool result)
{
    Side *s = &b->side[i];
    s->want = want;
    bool ok = dnnl_memory_create(&s->have, s->plain, b->engine, DNNL_MEMORY_NONE) == dnnl_success;
    if (dnnl_memory_desc_equal(s->plain, want)) return ok;
    dnnl_primitive_desc_t pd = NULL;
    s->room = aligned_alloc(64, (dnnl_memory_desc_get_size(want) + 127) / 64 * 64);
    ok = ok && dnnl_memory_create(&s->used, want, b->engine, s->room) == dnnl_success &&
         dnnl_reorder_primitive_desc_create(&pd, result ? want : s->plain, b->engine, result ? s->plain : want,
                                            b->engine, NULL) == dnnl_success &&
         dnnl_primitive_create(&s->change, pd) == dnnl_success;
    if (pd) dnnl_primitive_desc_destroy(pd);
    return ok;
}

static void back_free(Back *b)
{
    for (int i = 0; b && i < SIDES; i++) {
        Side *s = &b->side[i];
        if (s->have) dnnl_memory_destroy(s->have);
        if (s->used) dnnl_memory_destroy(s->used);
        if (s->change) dnnl_primitive_destroy(s->change);
        if (s->plain) dnnl_memory_desc_destroy(s->plain);
        free(s->room);
    }
    if (b && b->main) dnnl_primitive_destroy(b->main);
    if (b && b->pd) dnnl_primitive_desc_destroy(b->pd);
    if (b && b->forward) dnnl_primitive_desc_destroy(b->forward);
    if (b && b->stream) dnnl_stream_destroy(b->stream);
    if (b && b->engine) dnnl_engine_destroy(b->engine);
    free(b);
}

/* d: the forward convolution, not transposed. weights: their gradient, as float32; else the picture's. */
static Back *back_create(const GemmConv *d, bool weights)
{
    Back *b = calloc(1, sizeof *b);
    Tensor w = *d->w;
    if (d->groups > 1) { /* (groups, O, C, window) */
        for (int i = w.rank; i > 1; i--) w.shape[i] = d->w->shape[i - 1], w.stride[i] = d->w->stride[i - 1];
        w.shape[0] = d->groups, w.shape[1] = d->w->shape[0] / d->groups;
        w.stride[0] = w.shape[1] * d->w->stride[0], w.stride[1] = d->w->stride[0];
        w.rank++;
    }
    bool ok = dnnl_engine_create(&b->engine, dnnl_cpu, 0) == dnnl_success &&
              dnnl_stream_create(&b->stream, b->engine, dnnl_stream_default_flags) == dnnl_success;
    b->weights = weights;
    b->side[DY].plain = back_desc(d->y, d->y->dtype);
    b->side[weights ? OTHER : RESULT].plain = back_desc(d->x, d->x->dtype);
    b->side[weights ? RESULT : OTHER].plain = back_desc(&w, weights ? DT_F32 : w.dtype);
    Desc plain = back_desc(&w, w.dtype), any_w = back_any(plain),
         any_dw = back_any(b->side[weights ? RESULT : OTHER].plain), any_x = NULL, any_y = NULL;
    for (int liked = 0; ok && liked < 2; liked++) {
        DescView x = b->side[weights ? OTHER : RESULT].plain, y = b->side[DY].plain;
        any_x = back_any(x), any_y = back_any(y);
        ok = back_describe(b, d, liked || !tensor_channels_last(d->x) ? any_x : x, any_w, any_dw, liked ? any_y : y) ==
             dnnl_success;
        dnnl_memory_desc_destroy(any_x), dnnl_memory_desc_destroy(any_y);
        if (!ok || liked || !back_reference(b->pd)) break;
        dnnl_primitive_desc_destroy(b->pd), dnnl_primitive_desc_destroy(b->forward);
        b->pd = b->forward = NULL;
    }
    dnnl_memory_desc_destroy(plain), dnnl_memory_desc_destroy(any_w), dnnl_memory_desc_destroy(any_dw);
    dnnl_query_t other = weights ? dnnl_query_src_md : dnnl_query_weights_md,
                 result = weights ? dnnl_query_diff_weights_md : dnnl_query_diff_src_md;
    ok = ok && dnnl_primitive_create(&b->main, b->pd) == dnnl_success &&
         back_side(b, DY, dnnl_primitive_desc_query_md(b->pd, dnnl_query_diff_dst_md, 0), false) &&
         back_side(b, OTHER, dnnl_primitive_desc_query_md(b->pd, other, 0), false) &&
         back_side(b, RESULT, dnnl_primitive_desc_query_md(b->pd, result, 0), true);
    if (ok) return b;
    back_free(b);
    return NULL;
}

static void back_change(Back *b, int i, bool result)
{
    Side *s = &b->side[i];
    if (!s->change) return;
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, result ? s->used : s->have}, {DNNL_ARG_TO, result ? s->have : s->used}};
    dnnl_primitive_execute(s->change, b->stream, 2, args);
}

static void back_run(Back *b, const void *dy, const void *other, void *to)
{
    const void *data[SIDES] = {dy, other, to};
    dnnl_memory_t used[SIDES];
    for (int i = 0; i < SIDES; i++) {
        dnnl_memory_set_data_handle(b->side[i].have, (void *)(uintptr_t)data[i]);
        used[i] = b->side[i].change ? b->side[i].used : b->side[i].have;
    }
    back_change(b, DY, false), back_change(b, OTHER, false);
    dnnl_exec_arg_t args[SIDES] = {{DNNL_ARG_DIFF_DST, used[DY]},
                                   {b->weights ? DNNL_ARG_SRC : DNNL_ARG_WEIGHTS, used[OTHER]},
                                   {b->weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_DIFF_SRC, used[RESULT]}};
    dnnl_primitive_execute(b->main, b->stream, SIDES, args);
    back_change(b, RESULT, true);
    dnnl_stream_wait(b->stream);
}
#endif
