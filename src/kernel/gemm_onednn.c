/* oneDNN 2 or 3 as gemm_impl.h declares it: every primitive, attribute and query of oneDNN is in this file, what the
 * versions differ in is in onednn_api.h. Weights: the primitive is asked which layout it wants (format tag any), and
 * constant weights are reordered into it once, those of a convolution that change in every run.
 */
#include "kernel/gemm_impl.h"
#include <omp.h>
#include <pthread.h>
#include <string.h>
#include "base/cpu.h"
#include "base/map.h"
#include "base/vec.h"
#include "kernel/onednn_api.h"
#include "team/team.h"

typedef struct Reordered {
    const void *from;
    Desc plain, want;
    void *data;
} Reordered;

struct OneDnnPool {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    Reordered *packed;
    int npacked;
    Lookup by_place;
    size_t bytes;
};

enum { ALIGN = 64, MAX_ARGS = 8, MAX_DESCS = 12 };

static bool failed(Err *err, const char *what, dnnl_status_t s)
{
    return fail(err, s == dnnl_out_of_memory ? E_LIMIT : E_UNSUPPORTED, "oneDNN: %s failed (status %d)", what, (int)s);
}

#define DNNL(call)                                                                                                     \
    do {                                                                                                               \
        dnnl_status_t status_ = (call);                                                                                \
        if (status_ != dnnl_success) return failed(err, #call, status_);                                               \
    } while (0)

OneDnnPool *onednn_pool_create(Err *err)
{
    OneDnnPool *p = mem_zeroed(1, sizeof *p);
    if (!p) {
        oom(err);
        return NULL;
    }
    if (cpu_level() < CPU_AVX512)
        dnnl_set_max_cpu_isa(cpu_level() == CPU_AVX2 ? dnnl_cpu_isa_avx2 : dnnl_cpu_isa_sse41);
    dnnl_status_t s = dnnl_engine_create(&p->engine, dnnl_cpu, 0);
    if (s == dnnl_success) s = dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags);
    if (s == dnnl_success) return p;
    failed(err, "engine", s);
    onednn_pool_free(p);
    return NULL;
}

void onednn_pool_free(OneDnnPool *p)
{
    if (!p) return;
    for (int i = 0; i < p->npacked; i++) {
        dnnl_memory_desc_destroy(p->packed[i].plain);
        dnnl_memory_desc_destroy(p->packed[i].want);
        mem_free(p->packed[i].data);
    }
    mem_free(p->packed);
    lookup_free(&p->by_place);
    if (p->stream) dnnl_stream_destroy(p->stream);
    if (p->engine) dnnl_engine_destroy(p->engine);
    mem_free(p);
}

size_t onednn_pool_bytes(const OneDnnPool *p) { return p ? p->bytes : 0; }

struct OneDnn {
    OneDnnPool *pool;
    dnnl_primitive_t main, in, out, back, turn; /* in, out, back (of what is summed), turn (of weights): reorders around
                                                   a convolution in another layout; NULL otherwise */
    dnnl_memory_t a, b, c, bias, residual, scratch, in_memory, out_memory,
        turned; /* turned: weights in the layout that is wanted */
    DescView plain_a, plain_b, plain_c;
    Desc descs[MAX_DESCS]; /* all that were made for it */
    int ndescs;
    int residual_arg;
    bool b_packed, alone; /* alone: too little work to wake a second thread for */
    size_t scratch_main, scratch_in, scratch_out, scratch_turned;
};

static size_t round_up(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

size_t onednn_scratch(const OneDnn *g)
{
    return round_up(g->scratch_main) + round_up(g->scratch_in) + round_up(g->scratch_out) + round_up(g->scratch_turned);
}

void onednn_free(OneDnn *g)
{
    if (!g) return;
    dnnl_memory_t all[] = {g->a, g->b, g->c, g->bias, g->residual, g->scratch, g->in_memory, g->out_memory, g->turned};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) dnnl_memory_destroy(all[i]);
    if (g->main) dnnl_primitive_destroy(g->main);
    if (g->in) dnnl_primitive_destroy(g->in);
    if (g->out) dnnl_primitive_destroy(g->out);
    if (g->back) dnnl_primitive_destroy(g->back);
    if (g->turn) dnnl_primitive_destroy(g->turn);
    for (int i = 0; i < g->ndescs; i++) dnnl_memory_desc_destroy(g->descs[i]);
    mem_free(g);
}

static dnnl_data_type_t type_of(DType t)
{
    return t == DT_F32 ? dnnl_f32 : t == DT_BF16 ? dnnl_bf16 : dnnl_data_type_undef;
}

static bool strided(OneDnn *g, DescView *md, int rank, const dnnl_dims_t dims, DType t, const dnnl_dims_t strides,
                    Err *err)
{
    DNNL(dnnl_memory_desc_create_with_strides(&g->descs[g->ndescs], rank, dims, type_of(t), strides));
    *md = g->descs[g->ndescs++];
    return true;
}

static bool plain(OneDnn *g, DescView *md, const Tensor *t, Err *err)
{
    dnnl_dims_t dims, strides;
    for (int i = 0; i < t->rank; i++) {
        dims[i] = t->shape[i];
        strides[i] = t->stride[i];
    }
    return strided(g, md, t->rank, dims, t->dtype, strides, err);
}

static bool any_layout(OneDnn *g, DescView *md, DescView like, Err *err)
{
    DNNL(desc_any(&g->descs[g->ndescs], like));
    *md = g->descs[g->ndescs++];
    return true;
}

static const dnnl_alg_kind_t eltwise[] = {0, dnnl_eltwise_relu, dnnl_eltwise_gelu_erf, dnnl_eltwise_gelu_tanh,
                                          dnnl_eltwise_swish}; /* by GemmAct */

static bool attributes(dnnl_primitive_attr_t *attr, GemmAct act, DescView residual, int *residual_arg, Err *err)
{
    dnnl_post_ops_t post;
    int n = 0;
    DNNL(dnnl_primitive_attr_create(attr));
    DNNL(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user));
    if (act == GEMM_NONE && !residual) return true;
    DNNL(dnnl_post_ops_create(&post));
    dnnl_status_t s = dnnl_success;
    if (act != GEMM_NONE) {
        s = post_eltwise(post, eltwise[act], act == GEMM_SILU ? 1.0f : 0.0f);
        n++;
    }
    if (s == dnnl_success && residual) {
        s = dnnl_post_ops_append_binary(post, dnnl_binary_add, residual);
        *residual_arg = DNNL_ARG_ATTR_MULTIPLE_POST_OP(n) | DNNL_ARG_SRC_1;
    }
    if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(*attr, post);
    dnnl_post_ops_destroy(post);
    return s == dnnl_success || failed(err, "post-ops", s);
}

/* act(conv + bias + what dst holds) */
static bool conv_attributes(dnnl_primitive_attr_t *attr, const GemmConv *d, Err *err)
{
    dnnl_post_ops_t post;
    DNNL(dnnl_primitive_attr_create(attr));
    DNNL(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user));
    DNNL(dnnl_post_ops_create(&post));
    dnnl_status_t s = d->sum ? post_sum(post) : dnnl_success;
    if (s == dnnl_success && d->act != GEMM_NONE)
        s = post_eltwise(post, eltwise[d->act], d->act == GEMM_SILU ? 1.0f : 0.0f);
    if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(*attr, post);
    dnnl_post_ops_destroy(post);
    return s == dnnl_success || failed(err, "post-ops", s);
}

/* One reorder from -> to with its own buffers, run at once. */
static bool reorder_now(OneDnnPool *p, DescView from, const void *src, DescView to, void *dst, Err *err)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t prim = NULL;
    dnnl_memory_t a = NULL, b = NULL;
    dnnl_status_t s = dnnl_reorder_primitive_desc_create(&pd, from, p->engine, to, p->engine, NULL);
    if (s == dnnl_success) s = dnnl_primitive_create(&prim, pd);
    if (s == dnnl_success) s = dnnl_memory_create(&a, from, p->engine, (void *)(uintptr_t)src);
    if (s == dnnl_success) s = dnnl_memory_create(&b, to, p->engine, dst);
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, a}, {DNNL_ARG_TO, b}};
    if (s == dnnl_success) s = dnnl_primitive_execute(prim, p->stream, 2, args);
    if (s == dnnl_success) s = dnnl_stream_wait(p->stream);
    if (a) dnnl_memory_destroy(a);
    if (b) dnnl_memory_destroy(b);
    if (prim) dnnl_primitive_destroy(prim);
    if (pd) dnnl_primitive_desc_destroy(pd);
    return s == dnnl_success || failed(err, "reorder", s);
}

/* The weight's bytes in the layout that a primitive wants; made once. A layout that is the plain one costs nothing. */
static bool packed_weight(OneDnnPool *p, const void *data, DescView have, DescView want, void **out, Err *err)
{
    if (dnnl_memory_desc_equal(have, want)) {
        *out = (void *)(uintptr_t)data;
        return true;
    }
    size_t tried = 0;
    uint64_t h = hash_keyed(&data, sizeof data);
    int64_t i;
    while ((i = lookup_next(&p->by_place, h, &tried)) >= 0) {
        Reordered *k = &p->packed[i];
        if (k->from == data && dnnl_memory_desc_equal(k->plain, have) && dnnl_memory_desc_equal(k->want, want)) {
            *out = k->data;
            return true;
        }
    }
    Reordered *grown = vec_grow(p->packed, p->npacked, sizeof *grown);
    if (!grown) return oom(err);
    p->packed = grown;
    size_t n = dnnl_memory_desc_get_size(want);
    Reordered k = {.from = data, .data = mem_aligned(ALIGN, round_up(n))};
    bool ok = k.data ? reorder_now(p, have, data, want, k.data, err)
                     : fail(err, E_LIMIT, "out of memory: %zu bytes of packed weights", n);
    dnnl_status_t s = ok ? dnnl_memory_desc_clone(&k.plain, have) : dnnl_success;
    if (ok && s == dnnl_success) s = dnnl_memory_desc_clone(&k.want, want);
    if (ok && s == dnnl_success && !lookup_add(&p->by_place, h, (size_t)p->npacked)) s = dnnl_out_of_memory;
    if (!ok || s != dnnl_success) {
        if (k.plain) dnnl_memory_desc_destroy(k.plain);
        if (k.want) dnnl_memory_desc_destroy(k.want);
        mem_free(k.data);
        return ok && failed(err, "layout of weights", s);
    }
    p->packed[p->npacked++] = k;
    p->bytes += n;
    *out = k.data;
    return true;
}

static bool memory_for(OneDnnPool *p, dnnl_memory_t *m, DescView md, void *data, Err *err)
{
    DNNL(dnnl_memory_create(m, md, p->engine, data));
    return true;
}

/* ------------------------------------------------------------------ matmul */

/* A dim that is stepped over with stride 0 is a dim of size 1 to oneDNN, which broadcasts it. */
static Tensor unexpanded(const Tensor *t)
{
    Tensor u = *t;
    for (int i = 0; i < u.rank - 2; i++)
        if (u.stride[i] == 0) u.shape[i] = 1;
    int64_t n = 1;
    for (int i = u.rank - 1; i >= 0; i--) { /* strides of size-1 dims must look plausible */
        if (u.shape[i] == 1) u.stride[i] = n;
        if (u.stride[i] * u.shape[i] > n) n = u.stride[i] * u.shape[i];
    }
    return u;
}

static bool build_matmul(OneDnn *g, const void *what, dnnl_primitive_desc_t *pd, Err *err)
{
    const GemmMatmul *d = what;
    OneDnnPool *p = g->pool;
    Tensor a = unexpanded(d->a), b = unexpanded(d->b);
    DescView bias = NULL, residual = NULL;
    dnnl_primitive_attr_t attr = NULL;
    TRY(plain(g, &g->plain_a, &a, err) && plain(g, &g->plain_b, &b, err) && plain(g, &g->plain_c, d->c, err));
    DescView wb = g->plain_b;
    if (d->b_constant) TRY(any_layout(g, &wb, g->plain_b, err));
    if (d->bias) {
        Tensor row = *d->bias; /* broadcast over all but the last dim */
        row.rank = d->c->rank;
        for (int i = 0; i < row.rank; i++) row.shape[i] = i == row.rank - 1 ? d->c->shape[i] : 1;
        strides_contiguous(row.rank, row.shape, row.stride);
        TRY(plain(g, &bias, &row, err));
    }
    if (d->residual) TRY(plain(g, &residual, d->residual, err));
    bool ok = attributes(&attr, d->act, residual, &g->residual_arg, err);
    dnnl_status_t s = ok ? dnnl_matmul_primitive_desc_create(pd, p->engine, g->plain_a, wb, bias, g->plain_c, attr)
                         : dnnl_unimplemented;
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (!ok || s != dnnl_success) return ok && failed(err, "matmul", s);
    DescView scratch = dnnl_primitive_desc_query_md(*pd, dnnl_query_scratchpad_md, 0);
    g->scratch_main = dnnl_memory_desc_get_size(scratch);
    DNNL(dnnl_primitive_create(&g->main, *pd));
    void *weight = NULL;
    DescView want = dnnl_primitive_desc_query_md(*pd, dnnl_query_weights_md, 0);
    if (d->b_constant) TRY(packed_weight(p, d->b->data, g->plain_b, want, &weight, err));
    g->b_packed = d->b_constant;
    TRY(memory_for(p, &g->a, g->plain_a, DNNL_MEMORY_NONE, err));
    TRY(memory_for(p, &g->b, want, d->b_constant ? weight : DNNL_MEMORY_NONE, err));
    TRY(memory_for(p, &g->c, g->plain_c, DNNL_MEMORY_NONE, err));
    TRY(memory_for(p, &g->scratch, scratch, DNNL_MEMORY_NONE, err));
    if (d->bias) TRY(memory_for(p, &g->bias, bias, DNNL_MEMORY_NONE, err));
    if (d->residual) TRY(memory_for(p, &g->residual, residual, DNNL_MEMORY_NONE, err));
    return true;
}

enum { WORTH_THREADS = 1 << 20 }; /* floating-point operations: some 10 microseconds of one core */

/* oneDNN asks its OpenMP for the number of threads when a primitive is made and when it runs, and must hear the same.
 * Gives the number before. */
static int take_threads(const OneDnn *g)
{
    int before = omp_get_max_threads();
    omp_set_num_threads(g->alone ? 1 : team_width());
    return before;
}

/* After fork() the child has none of its OpenMP's threads, but would wait for them: they are given back before, and
 * made again where they are needed. */
static void before_fork(void) { omp_pause_resource_all(omp_pause_soft); }
static void watch_forks(void) { pthread_atfork(before_fork, NULL, NULL); }
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

typedef bool Build(OneDnn *g, const void *what, dnnl_primitive_desc_t *pd, Err *err);

static OneDnn *made(OneDnnPool *p, Build *build, const void *what, int64_t multiplications, Err *err)
{
    OneDnn *g = mem_zeroed(1, sizeof *g);
    dnnl_primitive_desc_t pd = NULL;
    if (!g) {
        oom(err);
        return NULL;
    }
    g->pool = p;
    g->alone = 2 * multiplications < WORTH_THREADS;
    pthread_once(&fork_once, watch_forks);
    int before = take_threads(g);
    bool ok = build(g, what, &pd, err);
    omp_set_num_threads(before);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (ok) return g;
    onednn_free(g);
    return NULL;
}

OneDnn *onednn_matmul(OneDnnPool *p, const GemmMatmul *d, Err *err)
{
    return made(p, build_matmul, d, tensor_numel(d->c) * d->a->shape[d->a->rank - 1], err);
}

/* ------------------------------------------------------------------ convolution */

/* (O, C/g, k...) as (g, O/g, C/g, k...); transposed (C, O/g, k...) as (g, O/g, C/g, k...), which swaps two strides. */
static bool weight_desc(OneDnn *p, const GemmConv *d, Err *err)
{
    dnnl_dims_t dims, strides;
    const Tensor *w = d->w;
    int n = 0, g = d->groups > 1;
    int64_t rows = w->shape[0] / d->groups;
    if (g) {
        dims[n] = d->groups;
        strides[n++] = rows * w->stride[0];
    }
    dims[n] = d->transposed ? w->shape[1] : rows;
    strides[n++] = d->transposed ? w->stride[1] : w->stride[0];
    dims[n] = d->transposed ? rows : w->shape[1];
    strides[n++] = d->transposed ? w->stride[0] : w->stride[1];
    for (int i = 0; i < d->spatial; i++) {
        dims[n] = w->shape[2 + i];
        strides[n++] = w->stride[2 + i];
    }
    return strided(p, &p->plain_b, n, dims, w->dtype, strides, err);
}

static bool reorder_for(OneDnn *g, dnnl_primitive_t *prim, DescView from, DescView to, Err *err)
{
    dnnl_primitive_desc_t pd;
    DNNL(dnnl_reorder_primitive_desc_create(&pd, from, g->pool->engine, to, g->pool->engine, NULL));
    dnnl_status_t s = dnnl_primitive_create(prim, pd);
    dnnl_primitive_desc_destroy(pd);
    return s == dnnl_success || failed(err, "reorder", s);
}

/* x or y as it is laid out: strides of axes of size 1 are free, and oneDNN knows a layout by all of them. */
static bool activations_desc(OneDnn *g, DescView *md, const Tensor *t, Err *err)
{
    Tensor u = *t;
    if (tensor_channels_last(t)) strides_channels_last(u.rank, u.shape, u.stride);
    else strides_contiguous(u.rank, u.shape, u.stride);
    return plain(g, md, &u, err);
}

/* What the convolution computes on: channels-last stays (the fast kernels take it),
 * a contiguous tensor is what the kernel likes best. */
static bool channels_desc(OneDnn *g, DescView *md, const Tensor *t, DescView have, Err *err)
{
    if (!tensor_channels_last(t)) return any_layout(g, md, have, err);
    *md = have;
    return true;
}

/* as_it_lies: in the layout that x and y have. */
static bool create_conv(OneDnn *g, const GemmConv *d, bool as_it_lies, dnnl_primitive_desc_t *pd, Err *err)
{
    DescView x = NULL, w = NULL, y = NULL, bias = NULL;
    dnnl_dims_t dilation;
    dnnl_primitive_attr_t attr = NULL;
    if (as_it_lies) TRY(channels_desc(g, &x, d->x, g->plain_a, err) && channels_desc(g, &y, d->y, g->plain_c, err));
    else TRY(any_layout(g, &x, g->plain_a, err) && any_layout(g, &y, g->plain_c, err));
    TRY(any_layout(g, &w, g->plain_b, err));
    if (d->bias) TRY(strided(g, &bias, 1, (dnnl_dims_t){d->bias->shape[0]}, d->bias->dtype, (dnnl_dims_t){1}, err));
    for (int i = 0; i < d->spatial; i++) dilation[i] = d->dilation[i] - 1;
    dnnl_status_t s = dnnl_unimplemented;
    bool ok = conv_attributes(&attr, d, err);
    if (ok && d->transposed)
        s = dnnl_deconvolution_forward_primitive_desc_create(pd, g->pool->engine, dnnl_forward_inference,
                                                             dnnl_deconvolution_direct, x, w, bias, y, d->stride,
                                                             dilation, d->padding, d->padding_end, attr);
    else if (ok)
        s = dnnl_convolution_forward_primitive_desc_create(pd, g->pool->engine, dnnl_forward_inference,
                                                           dnnl_convolution_direct, x, w, bias, y, d->stride, dilation,
                                                           d->padding, d->padding_end, attr);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (!ok || s != dnnl_success) return ok && failed(err, "convolution", s);
    if (d->bias && !g->bias) TRY(memory_for(g->pool, &g->bias, bias, DNNL_MEMORY_NONE, err));
    return true;
}

/* oneDNN's plain loops, some hundred times slower than its generated code. */
static bool is_reference(dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success && name &&
           !strncmp(name, "ref", 3);
}

/* Channels-last stays so if there is code for it (below AVX-512 there is little). */
static bool choose_conv(OneDnn *g, const GemmConv *d, dnnl_primitive_desc_t *pd, Err *err)
{
    TRY(create_conv(g, d, true, pd, err));
    if (!is_reference(*pd)) return true;
    dnnl_primitive_desc_t other = NULL;
    TRY(create_conv(g, d, false, &other, err));
    dnnl_primitive_desc_destroy(*pd);
    *pd = other;
    return true;
}

static bool build_conv(OneDnn *g, const void *what, dnnl_primitive_desc_t *pd, Err *err)
{
    const GemmConv *d = what;
    TRY(activations_desc(g, &g->plain_a, d->x, err) && activations_desc(g, &g->plain_c, d->y, err) &&
        weight_desc(g, d, err));
    TRY(choose_conv(g, d, pd, err));
    DescView x = dnnl_primitive_desc_query_md(*pd, dnnl_query_src_md, 0),
             y = dnnl_primitive_desc_query_md(*pd, dnnl_query_dst_md, 0);
    DescView w = dnnl_primitive_desc_query_md(*pd, dnnl_query_weights_md, 0),
             scratch = dnnl_primitive_desc_query_md(*pd, dnnl_query_scratchpad_md, 0);
    g->scratch_main = dnnl_memory_desc_get_size(scratch);
    DNNL(dnnl_primitive_create(&g->main, *pd));
    void *weight = NULL;
    if (d->w_constant) TRY(packed_weight(g->pool, d->w->data, g->plain_b, w, &weight, err));
    g->b_packed = d->w_constant;
    if (!d->w_constant && !dnnl_memory_desc_equal(w, g->plain_b)) {
        TRY(reorder_for(g, &g->turn, g->plain_b, w, err) && memory_for(g->pool, &g->turned, w, DNNL_MEMORY_NONE, err));
        g->scratch_turned = dnnl_memory_desc_get_size(w);
        w = g->plain_b;
    }
    if (!dnnl_memory_desc_equal(x, g->plain_a)) {
        TRY(reorder_for(g, &g->in, g->plain_a, x, err) && memory_for(g->pool, &g->in_memory, x, DNNL_MEMORY_NONE, err));
        g->scratch_in = dnnl_memory_desc_get_size(x);
    }
    if (!dnnl_memory_desc_equal(y, g->plain_c)) {
        TRY(reorder_for(g, &g->out, y, g->plain_c, err) &&
            memory_for(g->pool, &g->out_memory, y, DNNL_MEMORY_NONE, err));
        g->scratch_out = dnnl_memory_desc_get_size(y);
        if (d->sum) TRY(reorder_for(g, &g->back, g->plain_c, y, err));
    }
    TRY(memory_for(g->pool, &g->a, g->plain_a, DNNL_MEMORY_NONE, err));
    TRY(memory_for(g->pool, &g->b, w, d->w_constant ? weight : DNNL_MEMORY_NONE, err));
    TRY(memory_for(g->pool, &g->c, g->plain_c, DNNL_MEMORY_NONE, err));
    return memory_for(g->pool, &g->scratch, scratch, DNNL_MEMORY_NONE, err);
}

OneDnn *onednn_conv(OneDnnPool *p, const GemmConv *d, Err *err)
{
    int64_t outputs = d->transposed ? d->w->shape[1] * d->groups : d->w->shape[0];
    return made(p, build_conv, d, tensor_numel(d->y) * (tensor_numel(d->w) / (outputs > 0 ? outputs : 1)), err);
}

/* ------------------------------------------------------------------ running */

static bool point(dnnl_memory_t m, const void *data, Err *err)
{
    if (m) DNNL(dnnl_memory_set_data_handle(m, (void *)(uintptr_t)data));
    return true;
}

static bool execute(OneDnn *g, const GemmBuffers *m, void *scratch, Err *err)
{
    char *s = scratch, *in = s + round_up(g->scratch_main), *out = in + round_up(g->scratch_in),
         *turned = out + round_up(g->scratch_out);
    TRY(point(g->a, m->a, err) && point(g->c, m->c, err) && point(g->bias, m->bias, err) &&
        point(g->residual, m->residual, err));
    TRY(point(g->scratch, s, err) && point(g->in_memory, in, err) && point(g->out_memory, out, err) &&
        point(g->turned, turned, err));
    if (!g->b_packed) TRY(point(g->b, m->b, err));
    if (g->turn)
        DNNL(dnnl_primitive_execute(g->turn, g->pool->stream, 2,
                                    (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, g->b}, {DNNL_ARG_TO, g->turned}}));
    if (g->in)
        DNNL(dnnl_primitive_execute(g->in, g->pool->stream, 2,
                                    (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, g->a}, {DNNL_ARG_TO, g->in_memory}}));
    dnnl_exec_arg_t args[MAX_ARGS] = {{DNNL_ARG_SRC, g->in ? g->in_memory : g->a},
                                      {DNNL_ARG_WEIGHTS, g->turn ? g->turned : g->b},
                                      {DNNL_ARG_DST, g->out ? g->out_memory : g->c},
                                      {DNNL_ARG_SCRATCHPAD, g->scratch}};
    int n = 4;
    if (g->bias) args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, g->bias};
    if (g->residual) args[n++] = (dnnl_exec_arg_t){g->residual_arg, g->residual};
    if (g->back)
        DNNL(dnnl_primitive_execute(g->back, g->pool->stream, 2,
                                    (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, g->c}, {DNNL_ARG_TO, g->out_memory}}));
    DNNL(dnnl_primitive_execute(g->main, g->pool->stream, n, args));
    if (g->out)
        DNNL(dnnl_primitive_execute(g->out, g->pool->stream, 2,
                                    (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, g->out_memory}, {DNNL_ARG_TO, g->c}}));
    DNNL(dnnl_stream_wait(g->pool->stream));
    return true;
}

bool onednn_run(OneDnn *g, const GemmBuffers *m, void *scratch, Err *err)
{
    int before = take_threads(g);
    bool ok = execute(g, m, scratch, err);
    omp_set_num_threads(before);
    return ok;
}
