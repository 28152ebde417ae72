/* Matrix products of every rung against sums in double: sizes around the edges of tiles and panels, layouts, epilogues,
 * dtypes, threads. Gaps between rows, and what lies around the operands, are NaN. AMX's tiles run in emulation, too
 * (emulated/immintrin.h), so that they are tested on every x86.
 */
#include "kernel_test.h"
#include "kernel/gemm_impl.h"
#include "team/team.h"

#ifdef EMULATED
void product_fill_emulated_amx(ProductKernels *k);
#endif

enum { A, B, C, BIAS, MORE, OTHER };

typedef struct Case {
    int64_t batch, M, N, K;
    DType a, b, c, bias, more; /* bias, more: DT_NONE for none */
    int layout_a, layout_b,
        gap; /* 0 rows, 1 turned, 2 rows apart; gap: elements between the rows of c and of the residual */
    bool constant, rounded, times, last;
    GemmAct act;
} Case;

static size_t size_of(DType t) { return t == DT_BF16 ? 2 : 4; }
static double get(DType t, const void *p, int64_t i) { return element_of(t, p, i); }
static double rounded(double x) { return bf16_to_f32(f32_to_bf16((float)x)); }

/* Its elements, in rows that lie together, or columns; low: as bf16. To be freed. */
static double *in_double(DType t, const Tensor *x, bool columns, bool low)
{
    int64_t n = tensor_numel(x), across = columns ? 2 : 1, along = 3 - across;
    double *y = malloc((size_t)(n + 1) * sizeof *y);
    assert_non_null(y);
    for (int64_t i = 0; i < n; i++) {
        int64_t line = i / x->shape[along], batch = line / x->shape[across];
        y[i] = get(t, x->data, batch * x->stride[0] + line % x->shape[across] * x->stride[across] +
                                   i % x->shape[along] * x->stride[along]);
        if (low) y[i] = rounded(y[i]);
    }
    return y;
}

/* batch x rows x cols in room `r`; strides are set, elements are from -1 to 1. */
static Tensor operand(int r, DType t, int64_t batch, int64_t rows, int64_t cols, int layout, uint64_t *state)
{
    int64_t step = layout == 1   ? rows + 2
                   : layout == 2 ? cols + 3
                                 : cols,
            lines = layout == 1 ? cols : rows, n = batch * lines * step;
    Tensor x = tensor_of(t, 3, (int64_t[]){batch, rows, cols}, room(r, n * (int64_t)size_of(t)));
    x.stride[0] = lines * step;
    x.stride[1] = layout == 1 ? 1 : step;
    x.stride[2] = layout == 1 ? step : 1;
    for (int64_t i = 0; i < tensor_numel(&x); i++) {
        int64_t at = i / (rows * cols) * x.stride[0] + i / cols % rows * x.stride[1] + i % cols * x.stride[2];
        store_f64(t, (char *)x.data + (size_t)at * size_of(t), random_unit(state));
    }
    return x;
}

static double activation(GemmAct act, double x)
{
    switch (act) {
    case GEMM_RELU: return x < 0 ? 0 : x;
    case GEMM_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case GEMM_GELU_TANH: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case GEMM_SILU: return x / (1 + exp(-x));
    case GEMM_QUICK_GELU: return x / (1 + exp(-1.702 * x));
    default: return x;
    }
}

static Case now;
static CpuLevel rung;
static bool tiles; /* the kernel of large float32 products takes the place of the small ones': all sizes run on it */
static bool emulated; /* AMX's, on the machine's best level */

static CpuLevel first_rung(void) { return emulated ? cpu_best() : tiles ? CPU_AMX : next_rung_of(product, CPU_REF); }
static const char *rung_name(void) { return emulated ? "emulated AMX" : cpu_level_name(rung); }

static Kernels kernels_of_rung(void)
{
    Kernels k = *kernels_at(rung);
#ifdef EMULATED
    if (emulated) product_fill_emulated_amx(&k.product);
#endif
    return k;
}

static const Kernels *kernels_here(void)
{
    static Kernels changed;
    if (!tiles) return kernels_at(rung);
    changed = kernels_of_rung();
    changed.product.f32 = changed.product.f32_tiles;
    changed.product.f32_tiles.layout = NULL;
    return &changed;
}

static Packed *made(PackedWeights *w, const Tensor *a, const Tensor *b, const Tensor *c, const Tensor *bias,
                    const Tensor *more)
{
    Err err = {0};
    GemmMatmul d = {.a = a,
                    .b = b,
                    .c = c,
                    .bias = bias,
                    .residual = more,
                    .b_constant = now.constant,
                    .rounded = now.rounded,
                    .times = now.times,
                    .act_last = now.last,
                    .act = now.act};
    Packed *g = packed_matmul(w, kernels_here(), &d, &err);
    if (!g) STOP("%s", err.msg);
    return g;
}

static void run(const Packed *g, const Tensor *a, const Tensor *b, void *c, const Tensor *bias, const void *more)
{
    void *scratch = aligned_alloc(64, packed_scratch(g) + 64 - packed_scratch(g) % 64);
    memset(scratch, 0xff, packed_scratch(g)); /* padding must not be taken from there */
    Err err = {0};
    if (!packed_run(g, &(GemmBuffers){a->data, b->data, bias ? bias->data : NULL, more, c}, scratch, &err))
        STOP("%s", err.msg);
    free(scratch);
}

static void check(const Case *s, uint64_t *state)
{
    now = *s;
    int64_t step = s->N + s->gap, nc = s->batch * s->M * step;
    Tensor a = operand(A, s->a, s->batch, s->M, s->K, s->layout_a, state),
           b = operand(B, s->b, s->constant ? 1 : s->batch, s->K, s->N, s->layout_b, state);
    Tensor c = tensor_of(s->c, 3, (int64_t[]){s->batch, s->M, s->N}, room(C, nc * (int64_t)size_of(s->c))),
           bias = operand(BIAS, s->bias ? s->bias : DT_F32, 1, 1, s->N, 0, state);
    Tensor more = operand(MORE, s->more ? s->more : DT_F32, s->batch, s->M, s->N, s->gap ? 2 : 0, state);
    c.stride[0] = s->M * step;
    c.stride[1] = step;
    bias.rank = 1;
    bias.shape[0] = s->N;
    bias.stride[0] = 1;
    PackedWeights *w = packed_weights_create(NULL);
    const Tensor *pb = s->bias ? &bias : NULL, *pm = s->more ? &more : NULL;
    team_enter(1, NULL);
    Packed *g = made(w, &a, &b, &c, pb, pm);
    run(g, &a, &b, c.data, pb, pm ? more.data : NULL);
    packed_free(g);
    bool low = s->rounded || s->b == DT_BF16;
    double *rows = in_double(s->a, &a, false, low), *columns = in_double(s->b, &b, true, low);
    for (int64_t i = 0; i < s->batch * s->M * s->N; i++) {
        int64_t q = i / (s->M * s->N), m = i / s->N % s->M, n = i % s->N;
        const double *x = rows + (q * s->M + m) * s->K, *y = columns + ((s->constant ? 0 : q) * s->N + n) * s->K;
        double sum = 0, size = 0;
        for (int64_t k = 0; k < s->K; k++) {
            sum += x[k] * y[k];
            size += fabs(x[k] * y[k]);
        }
        double plus = s->more ? get(s->more, more.data, q * more.stride[0] + m * more.stride[1] + n) : 0;
        sum += (s->bias ? get(s->bias, bias.data, n) : 0) + (s->last ? plus : 0);
        double want = activation(s->act, sum);
        want = s->last ? want : s->times && s->more ? want * plus : want + plus;
        double far = (size + 1) * ((double)s->K + 8) * 0x1p-24 + (s->c == DT_BF16 ? (fabs(want) + 0.01) * 0x1.1p-8 : 0);
        double got = get(s->c, c.data, q * c.stride[0] + m * step + n);
        if (!(fabs(got - want) <= far))
            STOP("%d of %d x %d x %d on %s: [%d, %d, %d] is %a, expected %a", (int)s->batch, (int)s->M, (int)s->K,
                 (int)s->N, rung_name(), (int)q, (int)m, (int)n, got, want);
    }
    free(rows);
    free(columns);
    for (int64_t i = 0; i < nc; i++)
        for (size_t k = 0; i % step >= s->N && k < size_of(s->c); k++)
            assert_int_equal(((unsigned char *)c.data)[(size_t)i * size_of(s->c) + k], 0xff);
    assert_guard(c.data);
    /* the same bits with three threads, where a constant b is packed as it is used for the first time, with sixteen,
     * where it is kept; and for a row alone */
    unsigned char *other = room(OTHER, nc * (int64_t)size_of(s->c));
    PackedWeights *fresh = packed_weights_create(NULL);
    for (int first = 1; first >= 0; first--) {
        team_enter(first ? 3 : 16, NULL);
        memset(other, 0xff, (size_t)nc * size_of(s->c));
        g = made(first ? fresh : w, &a, &b, &c, pb, pm);
        run(g, &a, &b, other, pb, pm ? more.data : NULL);
        packed_free(g);
        assert_memory_equal(other, c.data, (size_t)nc * size_of(s->c));
    }
    packed_weights_free(fresh);
    Tensor one = a, out = c, added = more, pane = b;
    int64_t m = (int64_t)(unit_random(state) % (uint64_t)s->M);
    one.shape[0] = out.shape[0] = added.shape[0] = pane.shape[0] = 1;
    one.shape[1] = out.shape[1] = added.shape[1] = 1;
    one.data = (char *)a.data + (size_t)(m * a.stride[1]) * size_of(s->a);
    added.data = (char *)more.data + (size_t)(m * more.stride[1]) * (s->more ? size_of(s->more) : 4);
    memset(other, 0xff, (size_t)nc * size_of(s->c));
    g = made(w, &one, &pane, &out, pb, pm ? &added : NULL);
    run(g, &one, &pane, other, pb, pm ? added.data : NULL);
    packed_free(g);
    assert_memory_equal(other, (char *)c.data + (size_t)(m * step) * size_of(s->c), (size_t)s->N * size_of(s->c));
    packed_weights_free(w);
}

static const DType types[] = {DT_F32, DT_BF16};

static void test_sizes(void **state)
{
    static const int64_t Ms[] = {1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 18, 19, 31, 32, 33, 49, 65},
                         Ns[] = {1, 8, 15, 16, 17, 31, 32, 33, 47, 48, 49, 95, 97, 200},
                         Ks[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 127, 128, 129, 255, 257, 600};
    uint64_t seed = 7;
    (void)state;
    for (rung = first_rung(); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 400 / ONE_IN; i++) {
            DType t = types[i % 2];
            Case s = {.batch = 1,
                      .M = Ms[unit_random(&seed) % 19],
                      .N = Ns[unit_random(&seed) % 14],
                      .K = Ks[unit_random(&seed) % 17],
                      .a = t,
                      .b = t,
                      .c = t,
                      .layout_a = (int)(unit_random(&seed) % 3),
                      .layout_b = (int)(unit_random(&seed) % 3),
                      .constant = i % 4 < 2};
            check(&s, &seed);
        }
}

static void test_epilogues(void **state)
{
    uint64_t seed = 11;
    (void)state;
    for (rung = first_rung(); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 320 / ONE_IN; i++) {
            Case s = {.batch = 1,
                      .M = 1 + (int64_t)(unit_random(&seed) % 40),
                      .N = 1 + (int64_t)(unit_random(&seed) % 100),
                      .K = 1 + (int64_t)(unit_random(&seed) % 300),
                      .a = types[i & 1],
                      .b = types[i >> 1 & 1],
                      .c = types[i >> 2 & 1],
                      .bias = (DType[]){DT_NONE, DT_F32, DT_BF16}[i % 3],
                      .more = (DType[]){DT_BF16, DT_NONE, DT_F32}[i / 3 % 3],
                      .act = (GemmAct)(i % 6),
                      .times = i % 17 < 5,
                      .last = i % 17 > 10,
                      .gap = i % 7 == 0 ? 3 : 0,
                      .constant = i % 11 < 6,
                      .rounded = i % 13 < 6};
            check(&s, &seed);
        }
}

static void test_batches(void **state)
{
    uint64_t seed = 13;
    (void)state;
    for (rung = first_rung(); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 40 / ONE_IN; i++) {
            DType t = types[i % 2];
            Case s = {.batch = 1 + (int64_t)(unit_random(&seed) % 6),
                      .M = 1 + (int64_t)(unit_random(&seed) % 70),
                      .N = 1 + (int64_t)(unit_random(&seed) % 70),
                      .K = 1 + (int64_t)(unit_random(&seed) % 130),
                      .a = t,
                      .b = t,
                      .c = t,
                      .layout_a = i % 3,
                      .layout_b = i / 3 % 3};
            check(&s, &seed);
        }
}

/* More rows than a superblock has, more panels and tiles than a task; blocks of K. */
static void test_large(void **state)
{
    uint64_t seed = 17;
    (void)state;
    for (rung = first_rung(); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 4; i += ONE_IN > 1 || emulated ? 3 : 1) {
            Case s = {.batch = 1,
                      .M = i < 2 ? 2111 : 300,
                      .N = i < 2 ? 40 : 451,
                      .K = i < 2 ? 37 : 700,
                      .a = types[i % 2],
                      .b = types[i % 2],
                      .c = types[i % 2],
                      .constant = true};
            check(&s, &seed);
        }
}

/* NaN and infinities come through, and stay in their rows and columns. */
static void test_extremes(void **state)
{
    enum { M = 20, K = 40, N = 50 };
    Err err = {0};
    (void)state;
    for (rung = first_rung(); rung < CPU_LEVELS; rung = next_rung_of(product, rung)) {
        float *a = room(A, M * K * 4), *b = room(B, K * N * 4), *c = room(C, M * N * 4);
        for (int i = 0; i < M * K; i++)
            a[i] = i / K == 3 && i % K == 5 ? NAN : i / K == 18 && i % K == 0 ? INFINITY : 1;
        for (int i = 0; i < K * N; i++) b[i] = i % N == 49 && i / N == 39 ? NAN : 0.5f;
        Tensor ta = tensor_of(DT_F32, 2, (int64_t[]){M, K}, a), tb = tensor_of(DT_F32, 2, (int64_t[]){K, N}, b),
               tc = tensor_of(DT_F32, 2, (int64_t[]){M, N}, c);
        for (int low = 0; low < 2; low++) {
            GemmMatmul d = {.a = &ta, .b = &tb, .c = &tc, .rounded = low};
            Packed *g = packed_matmul(NULL, kernels_here(), &d, &err);
            run(g, &ta, &tb, c, NULL, NULL);
            packed_free(g);
            for (int i = 0; i < M * N; i++) {
                float want = i / N == 3 || i % N == 49 ? NAN : i / N == 18 ? INFINITY : K * 0.5f;
                if (!same_f32(c[i], want))
                    STOP("[%d, %d] on %s is %a", i / N, i % N, rung_name(), (double)c[i]);
            }
        }
    }
}

/* Activations of every kind of result, from -12 to 12 and beyond, of a row alone and of a tile: their own error is
 * below that of rounding the result. */
static void check_activation(GemmAct act, DType t, DType u, int64_t rows)
{
    enum { N = 2400, MORE_N = 3 };
    Err err = {0};
    Tensor a = tensor_of(t, 2, (int64_t[]){rows, 1}, room(A, rows * 4)),
           b = tensor_of(t, 2, (int64_t[]){1, N + MORE_N}, room(B, (N + MORE_N) * (int64_t)size_of(t))),
           c = tensor_of(u, 2, (int64_t[]){rows, N + MORE_N}, room(C, rows * (N + MORE_N) * (int64_t)size_of(u)));
    for (int64_t m = 0; m < rows; m++) store_f64(t, (char *)a.data + (size_t)m * size_of(t), 1);
    for (int n = 0; n < N + MORE_N; n++)
        store_f64(t, (char *)b.data + (size_t)n * size_of(t),
                  n < N ? (n - N / 2) * 0.01 + 0.003 : (double[]){INFINITY, -INFINITY, NAN}[n - N]);
    Packed *g = packed_matmul(NULL, kernels_here(), &(GemmMatmul){.a = &a, .b = &b, .c = &c, .act = act}, &err);
    run(g, &a, &b, c.data, NULL, NULL);
    packed_free(g);
    for (int64_t i = 0; i < rows * (N + MORE_N); i++) {
        double x = get(t, b.data, i % (N + MORE_N)), got = get(u, c.data, i), want = activation(act, x);
        double far = fabs(x) * 0x1p-22 + (u == DT_BF16 ? fabs(want) * 0x1.1p-8 : 0);
        if (isfinite(x) ? !(fabs(got - want) <= far) : !same_f32((float)got, (float)want))
            STOP("activation %d of %a as %s on %s is %a, expected %a", (int)act, x, dtype_name(u), rung_name(), got,
                 want);
    }
}

static void test_activations(void **state)
{
    (void)state;
    for (rung = first_rung(); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int act = GEMM_NONE; act <= GEMM_QUICK_GELU; act++)
            for (int i = 0; i < 8; i++) check_activation((GemmAct)act, types[i & 1], types[i >> 1 & 1], i < 4 ? 1 : 7);
}

/* A weight is kept at its second use. Bytes packed once and given are what a pool would have packed;
 * b itself is not read again. */
static void test_given(void **state)
{
    enum { M = 5, K = 70, N = 61 };
    Err err = {0};
    uint64_t seed = 19;
    (void)state;
    for (rung = first_rung(); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int low = 0; low < 2; low++) {
            Tensor a = operand(A, DT_F32, 1, M, K, 0, &seed), b = operand(B, DT_F32, 1, K, N, 1, &seed),
                   c = tensor_of(DT_F32, 3, (int64_t[]){1, M, N}, room(C, M * N * 4));
            const ProductKernel *k = packed_kernel(kernels_here(), &b, low);
            float want[M * N];
            void *packed = aligned_alloc(64, (packed_bytes(k, K, N) + 63) / 64 * 64);
            GemmMatmul d = {.a = &a, .b = &b, .c = &c, .b_constant = true, .rounded = low};
            for (int given = 0; given < 2; given++) {
                PackedWeights *w = packed_weights_create(&err);
                if (given) {
                    packed_pack(k, packed, &b, low, 2);
                    memset(b.data, 0xff, (size_t)(N * (K + 2)) * 4);
                    assert_true(packed_give(w, k, &b, low, packed, &err));
                }
                Packed *g = packed_matmul(w, kernels_here(), &d, &err);
                for (int use = 0; use < 3; use++) {
                    run(g, &a, &b, c.data, NULL, NULL);
                    assert_true(packed_weights_bytes(w) == (given || !use ? 0 : packed_bytes(k, K, N)));
                    if (given || use) assert_memory_equal(want, c.data, sizeof want);
                    memcpy(want, c.data, sizeof want);
                }
                packed_free(g);
                packed_weights_free(w);
            }
            free(packed);
        }
}

/* Products of many rows at all sizes take the tiles' kernel, but for weights that were given packed; rows are the same
 * wherever they lie, and in a product that may be smaller the same as in a small one. */
static void test_choice(void **state)
{
    enum { M = 900, K = 70, N = 130, FROM = 100 };
    Err err = {0};
    uint64_t seed = 23;
    (void)state;
    rung = cpu_best();
    const Kernels here = kernels_of_rung();
    const ProductKernel *plain = &here.product.f32, *large = &here.product.f32_tiles;
    if (!large->layout) return;
    team_enter(2, NULL);
    Tensor a = operand(A, DT_F32, 1, M, K, 0, &seed), b = operand(B, DT_F32, 1, K, N, 1, &seed),
           c = tensor_of(DT_F32, 3, (int64_t[]){1, M, N}, room(C, M * N * 4));
    GemmMatmul d = {.a = &a, .b = &b, .c = &c};
    PackedWeights *w = packed_weights_create(&err);
    Packed *g = packed_matmul(NULL, &here, &d, &err);
    run(g, &a, &b, c.data, NULL, NULL);
    packed_free(g);
    Tensor one = a, row = c;
    one.shape[1] = row.shape[1] = 1;
    row.data = room(OTHER, N * 4);
    d.a = &one;
    d.c = &row;
    g = packed_matmul(NULL, &here, &d, &err);
    run(g, &one, &b, row.data, NULL, NULL);
    packed_free(g);
    assert_memory_equal(row.data, c.data, N * 4);
    d = (GemmMatmul){.a = &a, .b = &b, .c = &c, .b_constant = true, .least_rows = M - FROM};
    g = packed_matmul(w, &here, &d, &err);
    assert_true(packed_scratch(g) > packed_bytes(large, K, N)); /* b, packed each time */
    run(g, &a, &b, c.data, NULL, NULL);
    packed_free(g);
    assert_int_equal(packed_weights_bytes(w), 0);
    Tensor some = a, out = c;
    some.shape[1] = out.shape[1] = M - FROM;
    some.data = (float *)a.data + FROM * K;
    out.data = room(OTHER, (M - FROM) * N * 4);
    d.a = &some;
    d.c = &out;
    g = packed_matmul(w, &here, &d, &err);
    run(g, &some, &b, out.data, NULL, NULL);
    packed_free(g);
    assert_memory_equal(out.data, (float *)c.data + FROM * N, (size_t)(M - FROM) * N * 4);
    /* fewer rows, of a weight: they take its parts, which are kept from the second use on */
    some.shape[1] = out.shape[1] = FROM;
    d.least_rows = FROM;
    g = packed_matmul(w, &here, &d, &err);
    for (int use = 0; use < 2; use++) {
        run(g, &some, &b, out.data, NULL, NULL);
        assert_memory_equal(out.data, (float *)c.data + FROM * N, FROM * N * 4);
        assert_int_equal(packed_weights_bytes(w), use ? packed_bytes(large, K, N) : 0);
    }
    packed_free(g);
    some.shape[1] = out.shape[1] = M - FROM;
    d.least_rows = M - FROM;
    void *packed = aligned_alloc(64, (packed_bytes(plain, K, N) + 63) / 64 * 64);
    packed_pack(plain, packed, &b, false, 1);
    memset(b.data, 0xff, (size_t)(N * (K + 2)) * 4);
    assert_true(packed_give(w, plain, &b, false, packed, &err));
    g = packed_matmul(w, &here, &d, &err);
    run(g, &some, &b, out.data, NULL, NULL);
    packed_free(g);
    packed_weights_free(w);
    free(packed);
    for (int i = 0; i < (M - FROM) * N; i++)
        assert_true(fabsf(((float *)out.data)[i] - ((float *)c.data)[FROM * N + i]) < 1e-5f);
}

/* Operands of all magnitudes: each bit of a float counts, the largest too. */
static void test_magnitudes(void **state)
{
    enum { M = 33, K = 1, N = 50 };
    Err err = {0};
    uint64_t seed = 29;
    (void)state;
    for (rung = first_rung(); rung < CPU_LEVELS; rung = next_rung_of(product, rung)) {
        float *a = room(A, M * K * 4), *b = room(B, K * N * 4), *c = room(C, M * N * 4);
        for (int i = 0; i < M; i++) a[i] = i ? ldexpf(random_unit(&seed), i * 5 - 75) : 0x1.fffffep127f;
        for (int i = 0; i < N; i++) b[i] = i ? random_unit(&seed) : 1;
        Tensor ta = tensor_of(DT_F32, 2, (int64_t[]){M, K}, a), tb = tensor_of(DT_F32, 2, (int64_t[]){K, N}, b),
               tc = tensor_of(DT_F32, 2, (int64_t[]){M, N}, c);
        Packed *g = packed_matmul(NULL, kernels_here(), &(GemmMatmul){.a = &ta, .b = &tb, .c = &tc}, &err);
        run(g, &ta, &tb, c, NULL, NULL);
        packed_free(g);
        for (int i = 0; i < M * N; i++) {
            double want = (double)a[i / N] * b[i % N];
            if (!(fabs(c[i] - want) <= fabs(want) * 0x1p-23))
                STOP("%a times %a on %s is %a", (double)a[i / N], (double)b[i % N], rung_name(), (double)c[i]);
        }
    }
}

/* Where bf16 is multiplied as float32, too, its packed weights are half as large, so that a decoder reads no more. */
static void test_narrow(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_AVX512; l <= cpu_best(); l++) {
        const ProductKernels *k = &kernels_at(l)->product;
        Tensor b = tensor_of(DT_BF16, 2, (int64_t[]){64, 96}, NULL);
        assert_ptr_equal(packed_kernel(kernels_at(l), &b, false), &k->bf16);
        assert_int_equal(2 * packed_bytes(&k->bf16, 64, 96), packed_bytes(&k->f32, 64, 96));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes),    cmocka_unit_test(test_epilogues),
                                       cmocka_unit_test(test_batches),  cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_extremes), cmocka_unit_test(test_activations),
                                       cmocka_unit_test(test_given),    cmocka_unit_test(test_magnitudes),
                                       cmocka_unit_test(test_choice),   cmocka_unit_test(test_narrow)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tiles = kernels_at(CPU_AMX)->product.f32_tiles.layout != NULL;
    if (tiles) failed += cmocka_run_group_tests(tests, NULL, NULL);
#ifdef EMULATED
    tiles = emulated = true;
    failed += cmocka_run_group_tests_name("emulated AMX", tests, NULL, NULL);
#endif
    return failed;
}
