/* Linear layers with weights of few bits and a scale a block (kernel/gemm_blocks.h), packed once for all plans of a
 * session.
 *
 *     linear_blocks(x: f32 (B, N, K), none, w: i4 (M, K), scales: f32 (M, K / 32), none, 32, 4)   ->  f32 (B, N, M)
 *     linear_blocks(x: i8 (B, N, K), scale: f32 (B, N, 1), w, ...)                                the same
 */
#include "kernel/gemm_blocks.h"
#include "kernel/integer.h"
#include "kernel/kernel.h"
#include "run/integer_pool.h"
#include "run/product.h"
#include "run/run_table.h"

typedef struct Operands {
    const Tensor *x, *scale, *w, *by, *zero, *bias, *residual;
    int64_t M, N, K, block, blocks;
} Operands;

static const Tensor *vector(Call *c, const Tensor *t, Err *err)
{
    return call_contiguous(c, t, t->dtype == DT_BF16 ? DT_NONE : DT_F32, err);
}

static bool operands(Call *c, Operands *o, Err *err)
{
    *o = (Operands){.w = call_in(c, 2), .bias = call_in(c, 7), .residual = c->epilogue.residual};
    const Tensor *scale = call_in(c, 1), *zero = call_in(c, 4);
    TRY(o->x = call_contiguous(c, call_in(c, 0), scale ? DT_NONE : DT_F32, err));
    TRY(!scale || (o->scale = call_contiguous(c, scale, DT_F32, err)));
    TRY(o->by = call_contiguous(c, call_in(c, 3), DT_F32, err));
    TRY(!zero || (o->zero = call_contiguous(c, zero, DT_NONE, err)));
    TRY(!o->bias || (o->bias = vector(c, o->bias, err)));
    TRY(!o->residual || (o->residual = vector(c, o->residual, err)));
    o->N = o->w->shape[0];
    o->K = o->w->shape[1];
    o->M = o->N ? tensor_numel(call_out(c, 0)) / o->N : 0;
    o->block = call_i64(c, 5);
    if (o->block > o->K) o->block = o->K;
    o->blocks = o->by->shape[1];
    return true;
}

/* By loops, at the reference's ISA level. */
static void portable(Call *c, const Operands *o)
{
    Tensor *out = call_out(c, 0);
    for (int64_t i = 0; i < o->M * o->N; i++) {
        int64_t row = i / o->N, col = i % o->N;
        double sum = 0;
        for (int64_t k = 0; k < o->K; k++) {
            int64_t at = col * o->blocks + k / o->block,
                    w = tensor_get_i64(o->w, col * o->K + k) - (o->zero ? tensor_get_i64(o->zero, at) : 0);
            sum += tensor_get(o->x, row * o->K + k) * (double)w * tensor_get(o->by, at);
        }
        if (o->scale) sum *= tensor_get(o->scale, tensor_numel(o->scale) == 1 ? 0 : row);
        double y = product_activation((int)c->epilogue.act, sum + (o->bias ? tensor_get(o->bias, col) : 0));
        if (o->residual) y = c->epilogue.times ? y * tensor_get(o->residual, i) : y + tensor_get(o->residual, i);
        store_f64(out->dtype, (char *)out->data + (size_t)i * dtype_size(out->dtype), y);
    }
}

static const PackedWeight *packed(Call *c, const Operands *o, Err *err)
{
    RunEnv *e = c->env;
    const bool keep = c->arg[2].constant && c->arg[3].constant && (!o->zero || c->arg[4].constant);
    const PackedWeight *p = keep ? integer_pool_find(e, o->w->data, o->N, o->K, o->block) : NULL;
    if (p) return p;
    BlockWeight w = {.data = o->w->data,
                     .t = o->w->dtype,
                     .rs = o->w->stride[0],
                     .cs = o->w->stride[1],
                     .scale = o->by->data,
                     .zero = o->zero ? o->zero->data : NULL};
    PackedWeight made = {.of = keep ? o->w->data : NULL, .N = o->N, .K = o->K};
    made.form = blocks_form(&w, o->N, o->K, o->block, (int)call_i64(c, 6));
    if (keep) p = integer_pool_add(e, made, blocks_bytes(&made.form), err);
    else {
        PackedWeight *here = call_scratch(c, sizeof *here, err);
        if (here) {
            *here = made;
            here->data = call_scratch(c, blocks_bytes(&made.form), err);
            p = here->data ? here : NULL;
        }
    }
    if (p) blocks_pack(p->data, &p->form, &w, e->threads);
    return p;
}

/* (input, scale, weight, weight_scale, weight_zero, block, bits, bias) */
bool run_linear_blocks(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    Operands o;
    TRY(operands(c, &o, err));
    if (tensor_numel(out) == 0) return true;
    if (!kernels()->blocks.mr) {
        TRY(o.w = call_contiguous(c, o.w, DT_NONE, err));
        portable(c, &o);
        return true;
    }
    const PackedWeight *p = packed(c, &o, err);
    TRY(p);
    BlockMatmul m = {.form = &p->form,
                     .packed = p->data,
                     .M = o.M,
                     .x = o.x->data,
                     .scale_x = o.scale ? o.scale->data : NULL,
                     .step_x = o.scale && tensor_numel(o.scale) > 1,
                     .out = {.c = out->data,
                             .c_type = out->dtype,
                             .c_step = o.N,
                             .bias = o.bias ? o.bias->data : NULL,
                             .bias_type = o.bias ? o.bias->dtype : DT_F32,
                             .residual = o.residual ? o.residual->data : NULL,
                             .residual_type = o.residual ? o.residual->dtype : DT_F32,
                             .residual_step = o.N,
                             .times = c->epilogue.times,
                             .act = (int)product_act((int)c->epilogue.act)}};
    void *scratch = call_scratch(c, blocks_scratch(&m), err);
    TRY(scratch);
    blocks_matmul(&m, scratch, c->env->threads);
    return true;
}
