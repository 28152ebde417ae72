/* Integer products: every ISA level against sums in 64 bits, at the ends of the range where bytes would saturate; the
 * same bits with more threads; rounding against rint. */
#include "kernel_test.h"
#include "kernel/gemm_impl.h"
#include "kernel/gemm_integer.h"

enum { MOST_M = 23, MOST_N = 101, MOST_K = 300 };

static uint8_t a[MOST_M * MOST_K], b[MOST_N * MOST_K];
static float scale_a[MOST_M], scale_b[MOST_N], bias[MOST_N], residual[MOST_M * MOST_N];
static uint64_t state = 7;

static unsigned draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 40);
}

/* Bytes, many of them at the ends. */
static void fill(uint8_t *to, int n)
{
    static const uint8_t ends[] = {0, 127, 128, 129, 255, 1};
    for (int i = 0; i < n; i++) to[i] = draw() % 3 ? ends[draw() % 6] : (uint8_t)draw();
}

static int value(const uint8_t *x, DType t, int64_t i) { return t == DT_U8 ? x[i] : (int8_t)x[i]; }

typedef struct Case {
    int M, N, K;
    DType ta, tb;
    int zero_a, zero_b;
    bool rows, residual;
    DType q; /* DT_NONE: floats */
} Case;

static void run(const Case *c, CpuLevel level, int threads, float *y, uint8_t *q)
{
    const IntegerKernels *k = &kernels_at(level)->integer;
    IntegerIn in = {b, c->tb, c->zero_b, 1, c->K, NULL};
    void *packed = room(0, (int64_t)k->b_bytes(c->K, c->N));
    k->pack_b(packed, &in, c->K, c->N);
    IntegerMatmul m = {.M = c->M,
                       .N = c->N,
                       .K = c->K,
                       .a = {a, c->ta, c->zero_a, c->K, 1, NULL},
                       .b = packed,
                       .zero_b = integer_zero(&in),
                       .scale_a = scale_a,
                       .scale_b = scale_b,
                       .step_a = c->rows,
                       .step_b = 1,
                       .out = {.c = y,
                               .c_type = DT_F32,
                               .c_step = c->N,
                               .bias = bias,
                               .bias_type = DT_F32,
                               .residual = c->residual ? residual : NULL,
                               .residual_type = DT_F32,
                               .residual_step = c->N}};
    if (c->q != DT_NONE) {
        m.q = q;
        m.q_type = c->q;
        m.q_step = c->N;
        m.rounding = (Rounding){0.5f, c->q == DT_U8 ? 100 : -3, (int)dtype_lowest(c->q), (int)dtype_highest(c->q),
                                false, 0};
    }
    integer_matmul(&m, room(1, (int64_t)integer_scratch(&m, threads)), threads);
}

static void compare(const Case *c, const float *y, const uint8_t *q)
{
    for (int i = 0; i < c->M; i++)
        for (int j = 0; j < c->N; j++) {
            int64_t sum = 0;
            for (int k = 0; k < c->K; k++)
                sum += (int64_t)(value(a, c->ta, i * c->K + k) - c->zero_a) *
                       (value(b, c->tb, j * c->K + k) - c->zero_b);
            int at = i * c->N + j;
            float want = (float)sum * (scale_a[c->rows ? i : 0] * scale_b[j]) + bias[j];
            want += c->residual ? residual[at] : 0;
            if (c->q == DT_NONE) assert_true(y[at] == want);
            else {
                double r = rint((double)(want / 0.5f)) + (c->q == DT_U8 ? 100 : -3), low = dtype_lowest(c->q),
                       high = dtype_highest(c->q);
                assert_int_equal(value(q, c->q, at), (int)(r < low ? low : r > high ? high : r));
            }
        }
}

static void test_products(void **unused)
{
    (void)unused;
    static float y[MOST_M * MOST_N], again[MOST_M * MOST_N];
    static uint8_t q[MOST_M * MOST_N], q_again[MOST_M * MOST_N];
    static const Case cases[] = {
        {1, 1, 1, DT_I8, DT_I8, 0, 0, false, false, DT_NONE},
        {7, 17, 5, DT_I8, DT_I8, 0, 0, false, false, DT_NONE},
        {13, 49, 64, DT_U8, DT_I8, 255, 0, true, true, DT_NONE},
        {23, 101, 300, DT_U8, DT_I8, 131, 0, true, false, DT_I8},
        {23, 101, 299, DT_I8, DT_U8, -128, 255, false, true, DT_U8},
        {2, 97, 256, DT_U8, DT_U8, 0, 0, false, false, DT_NONE},
        {6, 96, 257, DT_I8, DT_I8, 127, -128, true, false, DT_NONE},
    };
    if (cpu_level() == CPU_REF) return; /* it has loops in their place */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        fill(a, c->M * c->K);
        fill(b, c->N * c->K);
        for (int k = 0; k < c->M; k++) scale_a[k] = 0.25f * (float)(1 + k % 3); /* powers of two and small sums: */
        for (int k = 0; k < c->N; k++) {                                        /* floats are exact */
            scale_b[k] = 0.0625f;
            bias[k] = (float)(k % 7) - 3;
        }
        for (int k = 0; k < c->M * c->N; k++) residual[k] = (float)(k % 11);
        run(c, cpu_level(), 1, y, q);
        compare(c, y, q);
        run(c, cpu_level(), 3, again, q_again);
        assert_memory_equal(y, again, (size_t)(c->M * c->N) * sizeof *y);
        assert_memory_equal(q, q_again, (size_t)(c->M * c->N));
    }
}

/* Every level's tiles alone, with as many rows as they take. */
static void test_tiles(void **unused)
{
    (void)unused;
    static const uint8_t zeros[MOST_M] = {3, 7, 0, 255, 128, 127, 1, 7, 200, 50, 0, 9, 64, 31, 254, 90, 5, 17, 77};
    fill(a, MOST_M * MOST_K);
    fill(b, MOST_N * MOST_K);
    for (CpuLevel l = CPU_GEN; l < CPU_LEVELS; l = next_rung(l)) {
        const IntegerKernels *k = &kernels_at(l)->integer;
        assert_int_equal(k->nr, kernels_at(l)->product.f32.nr); /* whose epilogue takes the sums */
        for (int K = 1; K <= MOST_K; K += 37) {
            IntegerIn ia = {a, DT_U8, 0, K, 1, zeros}, ib = {b, DT_U8, 9, 1, K, NULL};
            void *pa = room(0, (int64_t)k->a_bytes(K)), *pb = room(1, (int64_t)k->b_bytes(K, MOST_N));
            int32_t *acc = room(2, (int64_t)(k->mr * k->nr) * 4);
            k->pack_b(pb, &ib, K, MOST_N);
            for (int rows = 1; rows <= k->mr && rows < MOST_M; rows++) {
                k->pack_a(pa, &ia, 1, rows, K);
                if (k->begin) k->begin();
                k->tile(&(IntegerTile){.acc = acc,
                                       .a = pa,
                                       .b = pb,
                                       .panel = 1,
                                       .K = K,
                                       .rows = rows,
                                       .cols = k->nr,
                                       .zero_b = integer_zero(&ib)});
                if (k->end) k->end();
                for (int r = 0; r < rows; r++)
                    for (int j = 0; j < k->nr && k->nr + j < MOST_N; j++) {
                        int64_t sum = 0;
                        for (int i = 0; i < K; i++)
                            sum += (a[(r + 1) * K + i] - zeros[r + 1]) * (b[(k->nr + j) * K + i] - 9);
                        assert_int_equal(acc[r * k->nr + j], sum);
                    }
            }
            assert_guard(pa);
            assert_guard(pb);
            assert_guard(acc);
        }
    }
}

/* ------------------------------------------------------------------ windows */

/* What the window of output o sees of a picture (in[0], in[1], in[2], C) at element k. */
static int seen(const IntegerWindows *w, int64_t row, int64_t k, int none)
{
    int64_t at[3], from = row / (w->out[0] * w->out[1] * w->out[2]), c = k % w->C;
    bool inside = true;
    k /= w->C;
    for (int d = 2; d >= 0; k /= w->size[d], row /= w->out[d], d--) {
        at[d] = row % w->out[d] * w->stride[d] - w->padding[d] + k % w->size[d] * w->dilation[d];
        inside &= at[d] >= 0 && at[d] < w->in[d];
    }
    for (int d = 0; d < 3; d++) from = from * w->in[d] + at[d];
    return inside ? (int8_t)a[from * w->C + c] : none;
}

static void test_windows(void **unused)
{
    (void)unused;
    static const IntegerWindows cases[] = {
        {5, {1, 4, 5}, {1, 2, 5}, {1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {1, 1, 1}, false},
        {3, {1, 1, 9}, {1, 1, 4}, {1, 1, 4}, {1, 1, 3}, {0, 0, 2}, {1, 1, 1}, false},
        {2, {3, 4, 5}, {3, 3, 4}, {2, 2, 2}, {1, 1, 1}, {1, 1, 2}, {2, 3, 3}, false},
        {4, {1, 2, 3}, {1, 4, 6}, {1, 1, 4}, {1, 1, 1}, {0, 1, 3}, {1, 1, 1}, false},
        {7, {1, 6, 6}, {1, 3, 3}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, false},
        /* whole words, in lines of four and more: rows as they are */
        {12, {1, 5, 5}, {1, 5, 5}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}, false},
        {4, {2, 4, 11}, {3, 3, 5}, {2, 2, 3}, {1, 1, 2}, {1, 0, 1}, {1, 1, 1}, false},
        {8, {1, 3, 13}, {1, 3, 13}, {1, 3, 3}, {1, 1, 1}, {0, 2, 3}, {1, 2, 3}, false},
        {68, {1, 1, 7}, {1, 1, 4}, {1, 1, 1}, {1, 1, 2}, {0, 0, 0}, {1, 1, 1}, false},
        {20, {1, 1, 19}, {1, 1, 19}, {1, 1, 3}, {1, 1, 1}, {0, 0, 1}, {1, 1, 1}, false},
        /* rows so many that threads have blocks of their own: packed, and as they are */
        {3, {1, 22, 23}, {1, 18, 20}, {1, 5, 4}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, false},
        {8, {1, 17, 24}, {1, 17, 24}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}, false},
    };
    enum { N = 50, PICTURES = 2, ZERO = -9 };
    if (cpu_level() == CPU_REF) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const IntegerWindows *w = &cases[i];
        const IntegerKernels *k = &kernels_at(cpu_level())->integer;
        const int64_t K = w->size[0] * w->size[1] * w->size[2] * w->C, M = PICTURES * w->out[0] * w->out[1] * w->out[2],
                      all = PICTURES * w->in[0] * w->in[1] * w->in[2] * w->C;
        const float one = 1;
        float *y = room(0, M * N * 4);
        assert_true(all <= MOST_M * MOST_K && N * K <= MOST_N * MOST_K);
        fill(a, (int)all);
        fill(b, (int)(N * K));
        uint8_t *picture = room(1, all);
        memcpy(picture, a, (size_t)all);
        const IntegerIn in = {b, DT_I8, 0, 1, K, NULL};
        void *packed = room(2, (int64_t)k->b_bytes(K, N));
        k->pack_b(packed, &in, K, N);
        IntegerMatmul m = {.M = M,
                           .N = N,
                           .K = K,
                           .a = {picture, DT_I8, ZERO, 0, 1, NULL},
                           .windows = w,
                           .b = packed,
                           .scale_a = &one,
                           .scale_b = &one,
                           .out = {.c = y, .c_type = DT_F32, .c_step = N}};
        for (int threads = 1; threads < 4; threads += 2) {
            void *scratch = room(3, (int64_t)integer_scratch(&m, threads));
            memset(y, -1, (size_t)(M * N) * sizeof *y); /* not what one thread has left */
            integer_matmul(&m, scratch, threads);
            assert_guard(scratch);
            for (int64_t row = 0; row < M; row++)
                for (int j = 0; j < N; j++) {
                    int64_t sum = 0;
                    for (int64_t c = 0; c < K; c++) sum += (seen(w, row, c, ZERO) - ZERO) * (int8_t)b[j * K + c];
                    assert_true(y[row * N + j] == (float)sum);
                }
        }
        assert_guard(picture);
    }
}

/* A channel for each column: sums of bytes at the ends of the range, with edges of the zero point. */
static void test_depthwise(void **unused)
{
    (void)unused;
    static const IntegerWindows cases[] = {
        {5, {1, 4, 5}, {1, 2, 5}, {1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {1, 1, 1}, true},
        {67, {1, 5, 7}, {1, 5, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}, true},
        {48, {1, 6, 6}, {1, 3, 3}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}, {1, 1, 1}, true},
        {20, {1, 1, 33}, {1, 1, 33}, {1, 1, 7}, {1, 1, 1}, {0, 0, 3}, {1, 1, 1}, true},
        {9, {3, 4, 5}, {3, 3, 4}, {2, 2, 2}, {1, 1, 1}, {1, 1, 2}, {2, 3, 3}, true},
    };
    enum { PICTURES = 2, ZERO = -9 };
    if (cpu_level() == CPU_REF) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const IntegerWindows *w = &cases[i];
        const int64_t K = w->size[0] * w->size[1] * w->size[2], lines = w->out[0] * w->out[1] * w->out[2], N = w->C,
                      all = PICTURES * w->in[0] * w->in[1] * w->in[2] * N;
        Tensor x = {.dtype = DT_I8, .rank = 5, .shape = {PICTURES, N, w->in[0], w->in[1], w->in[2]}},
               k = {.dtype = DT_I8, .rank = 5, .shape = {N, 1, w->size[0], w->size[1], w->size[2]}, .data = b},
               y = {.dtype = DT_F32, .rank = 5, .shape = {PICTURES, N, w->out[0], w->out[1], w->out[2]}};
        const GemmConv d = {.x = &x, .w = &k, .y = &y, .spatial = 3, .stride = w->stride, .padding = w->padding,
                            .padding_end = w->padding, .dilation = w->dilation, .groups = N, .w_constant = true};
        const float one = 1;
        float *out = room(0, PICTURES * lines * N * 4);
        uint8_t *picture = room(1, all);
        Err err = {0};
        assert_true(all <= MOST_M * MOST_K && N * K <= MOST_N * MOST_K);
        fill(a, (int)all);
        fill(b, (int)(N * K));
        memcpy(picture, a, (size_t)all);
        strides_channels_last(5, x.shape, x.stride);
        strides_contiguous(5, k.shape, k.stride);
        strides_channels_last(5, y.shape, y.stride);
        Depthwise *g = depthwise_conv(kernels(), &d, &err);
        assert_non_null(g);
        const IntegerMatmul m = {.M = PICTURES * lines, .N = N, .K = K, .a = {picture, DT_I8, ZERO, 0, 1, NULL},
                                 .windows = w, .scale_a = &one, .scale_b = &one,
                                 .out = {.c = out, .c_type = DT_F32, .c_step = N}};
        const GemmBuffers buffers = {.a = picture};
        assert_true(depthwise_run(g, &buffers, &m, room(2, (int64_t)depthwise_scratch(g)), &err));
        for (int64_t row = 0; row < PICTURES * lines; row++)
            for (int64_t j = 0; j < N; j++) {
                int64_t sum = 0;
                for (int64_t c = 0; c < K; c++)
                    sum += (seen(w, row, c * N + j, ZERO) - ZERO) * (int8_t)b[j * K + c];
                assert_true(out[row * N + j] == (float)sum);
            }
        assert_guard(picture);
        depthwise_free(g);
    }
}

/* ------------------------------------------------------------------ epilogues */

enum { ROWS = 5, COLS = 61 };

typedef struct Ending {
    DType residual, q; /* DT_NONE: none */
    int act;
    bool last, bias, inverse;
} Ending;

static int sum_at(int i, int j) { return (i * 7919 + j * 104729) % 20011 - 10005; }

static void end_at(CpuLevel l, const Ending *e, float *y, uint8_t *q)
{
    static const float by_row[ROWS] = {0.003f, 0.25f, 0.01f, 0.5f, 0.07f};
    float by_col[COLS], bias_of[COLS], more[ROWS * COLS];
    uint8_t few[ROWS * COLS];
    const IntegerKernels *k = &kernels_at(l)->integer;
    for (int j = 0; j < COLS; j++) by_col[j] = 0.001f * (float)(1 + j % 5), bias_of[j] = (float)(j % 9) / 7 - 0.5f;
    for (int i = 0; i < ROWS * COLS; i++) more[i] = (float)(i % 13) / 3 - 2, few[i] = (uint8_t)(i * 37);
    bias_of[3] = NAN;
    more[70] = -INFINITY;
    IntegerMatmul m = {.M = ROWS,
                       .N = COLS,
                       .scale_a = by_row,
                       .scale_b = by_col,
                       .step_a = 1,
                       .step_b = 1,
                       .residual_scale = 0.03f,
                       .residual_zero = e->residual == DT_U8 ? 128 : -3,
                       .out = {.c = y,
                               .c_type = DT_F32,
                               .c_step = COLS,
                               .bias = e->bias ? bias_of : NULL,
                               .bias_type = DT_F32,
                               .residual = e->residual == DT_NONE  ? NULL
                                           : e->residual == DT_F32 ? (const void *)more
                                                                   : few,
                               .residual_type = e->residual,
                               .residual_step = COLS,
                               .act_last = e->last,
                               .act = e->act}};
    if (e->q != DT_NONE) {
        m.q = q;
        m.q_type = e->q;
        m.q_step = COLS;
        m.rounding = (Rounding){0.011f, e->q == DT_U8 ? 100 : -3, (int)dtype_lowest(e->q), (int)dtype_highest(e->q),
                                e->inverse, 0};
    }
    int32_t acc[32 * 48];
    assert_true(k->nr * k->mr <= 32 * 48);
    for (int row = 0; row < ROWS; row += 3)
        for (int col = 0; col < COLS; col += k->nr) {
            int rows = ROWS - row < 3 ? ROWS - row : 3, cols = COLS - col < k->nr ? COLS - col : k->nr;
            memset(acc, 0, sizeof acc);
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < cols; j++) acc[i * k->nr + j] = sum_at(row + i, col + j);
            k->finish(&m, acc, row, col, rows, cols);
        }
}

/* act(sums scales + bias [+ residual]) [+ residual], rounded: the same bits on every level. */
static void test_endings(void **unused)
{
    (void)unused;
    static const DType residuals[] = {DT_NONE, DT_F32, DT_I8, DT_U8}, results[] = {DT_NONE, DT_I8, DT_U8};
    static const int acts[] = {GEMM_NONE, GEMM_RELU, GEMM_GELU_ERF};
    for (int i = 0; i < 4 * 3 * 3 * 8; i++) {
        const Ending e = {residuals[i % 4], results[i / 4 % 3], acts[i / 12 % 3], i / 36 & 1, i / 72 & 1, i / 144 & 1};
        const size_t bytes = ROWS * COLS;
        float *want = room(0, (int64_t)bytes * 4);
        uint8_t *q_want = room(1, (int64_t)bytes);
        end_at(CPU_GEN, &e, want, q_want);
        for (CpuLevel l = next_rung(CPU_GEN); l < CPU_LEVELS; l = next_rung(l)) {
            float *y = room(2, (int64_t)bytes * 4);
            uint8_t *q = room(3, (int64_t)bytes);
            end_at(l, &e, y, q);
            for (size_t at = 0; at < bytes; at++)
                if (e.q == DT_NONE ? !same_f32(y[at], want[at]) : q[at] != q_want[at])
                    STOP("ending %d on %s, element %d: %a, %d, expected %a, %d", i, cpu_level_name(l), (int)at,
                         (double)y[at], q[at], (double)want[at], q_want[at]);
        }
    }
}

/* A residual in few bits is what the floats are that it stands for; relu after it. */
static void test_residual(void **unused)
{
    (void)unused;
    static float y[ROWS * COLS];
    const Ending e = {DT_I8, DT_NONE, GEMM_RELU, true, false, false};
    end_at(cpu_level() == CPU_REF ? CPU_GEN : cpu_level(), &e, y, NULL);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) {
            static const float by_row[ROWS] = {0.003f, 0.25f, 0.01f, 0.5f, 0.07f};
            float want = (float)sum_at(i, j) * (by_row[i] * (0.001f * (float)(1 + j % 5)));
            want += (float)((int8_t)(uint8_t)((i * COLS + j) * 37) + 3) * 0.03f;
            assert_true(y[i * COLS + j] == (want < 0 ? 0 : want));
        }
}

static void test_rounding(void **unused)
{
    (void)unused;
    static const float x[] = {0,      -0.0f, 0.05f,    -0.05f,    0.15f,  0.25f, 1e30f,
                              -1e30f, NAN,   INFINITY, -INFINITY, 12.65f, 3};
    enum { N = sizeof x / sizeof *x };
    int8_t y[N];
    uint8_t u[N];
    for (CpuLevel l = CPU_GEN; l < CPU_LEVELS; l = next_rung(l))
        for (int inverse = 0; inverse < 2; inverse++) {
            const IntegerKernels *k = &kernels_at(l)->integer;
            const int none = inverse ? -127 : 0;
            const Rounding i8 = {0.1f, 3, -127, 127, inverse, none}, u8 = {0.1f, 128, 0, 255, inverse, -none},
                           plain = {0.1f, 0, -128, 127, inverse, none};
            k->round_i8(y, x, N, &i8);
            k->round_u8(u, x, N, &u8);
            for (int i = 0; i < N; i++) {
                float v = inverse ? x[i] * (float)(1 / (double)0.1f) : x[i] / 0.1f;
                double r = rint((double)v);
                assert_int_equal(y[i], isnan(v) ? none : (int)fmin(fmax(r + 3, -127), 127));
                assert_int_equal(u[i], isnan(v) ? -none : (int)fmin(fmax(r + 128, 0), 255));
            }
            k->round_i8(y, x, N, &plain);
            for (int i = 0; i < N; i++)
                if (isnan(x[i])) assert_int_equal(y[i], none);
        }
}

/* A row's own scale and zero point, as formulas say. */
static void test_rows(void **unused)
{
    (void)unused;
    enum { N = 77 };
    float x[N], scale, want;
    int8_t y[N];
    uint8_t u[N], zero;
    for (CpuLevel l = CPU_GEN; l < CPU_LEVELS; l = next_rung(l)) {
        const IntegerKernels *k = &kernels_at(l)->integer;
        for (int shift = -1; shift <= 2; shift++) {
            float low = 0, high = 0, most = 0;
            for (int i = 0; i < N; i++) {
                x[i] = (float)(draw() % 1000) / 300 - 2 + 2 * (float)shift;
                low = fminf(low, x[i]);
                high = fmaxf(high, x[i]);
                most = fmaxf(most, fabsf(x[i]));
            }
            k->row_i8(y, x, N, 1e-5f, &scale);
            assert_true(scale == most / 127);
            k->row_u8(u, x, N, 1e-7f, &want, &zero);
            assert_true(want == (high - low) / 255 && zero == (int)rintf(-low / want));
            for (int i = 0; i < N; i++) {
                assert_int_equal(y[i], (int)rintf(x[i] * (float)(1 / (double)scale)));
                int v = (int)rintf(x[i] * (float)(1 / (double)want)) + zero;
                assert_int_equal(u[i], v < 0 ? 0 : v > 255 ? 255 : v);
            }
        }
        x[5] = -NAN;
        k->row_i8(y, x, N, 1e-5f, &scale);
        k->row_u8(u, x, N, 1e-7f, &want, &zero);
        assert_true(isnan(scale) && isnan(want) && y[5] == 0);
        memset(x, 0, sizeof x);
        k->row_i8(y, x, N, 1e-5f, &scale);
        k->row_u8(u, x, N, 1e-7f, &want, &zero);
        assert_true(scale == 1e-5f / 127 && want == 1e-7f && !zero && !y[0] && !u[0]);
    }
}

/* Probabilities in few bits: within a step of softmax in double, the same bits on every level; masks, NaN. */
static void test_softmax(void **unused)
{
    (void)unused;
    enum { N = 77, ROOM = 128, CASES = 5 };
    float s[ROOM], from[N], mask[CASES][N];
    uint8_t p[CASES][ROOM], here[ROOM];
    for (int i = 0; i < N; i++) {
        from[i] = (float)(draw() % 1000) / 100 - 5;
        mask[2][i] = i % 5 ? (float)(draw() % 100) / 50 : -INFINITY;
        mask[3][i] = -INFINITY;
        mask[4][i] = NAN;
    }
    for (CpuLevel l = CPU_GEN; l < CPU_LEVELS; l = next_rung(l))
        for (int c = 0; c < CASES; c++) {
            const bool i8 = c % 2;
            IntegerSoftmax x = {s,
                                here,
                                N,
                                c < 2 ? NULL : mask[c],
                                {i8 ? 0.005f : 0.001f, i8 ? -7 : 5, i8 ? -128 : 0, i8 ? 127 : 255, true, 0}};
            double e[N], sum = 0;
            for (int i = 0; i < N; i++) {
                sum += e[i] = exp((double)(from[i] + (x.mask ? x.mask[i] : 0)));
                s[i] = from[i];
            }
            kernels_at(l)->integer.softmax(&x);
            for (int i = 0; i < N; i++) {
                double want = c > 2 ? 0 : e[i] / sum / (double)x.rounding.scale;
                want = fmin(want + x.rounding.zero, x.rounding.high);
                assert_true(fabs(want - (i8 ? (int8_t)here[i] : here[i])) < 0.51);
            }
            if (l == CPU_GEN) memcpy(p[c], here, N);
            assert_memory_equal(p[c], here, N);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_tiles),
                                       cmocka_unit_test(test_windows),  cmocka_unit_test(test_depthwise),
                                       cmocka_unit_test(test_endings),
                                       cmocka_unit_test(test_residual), cmocka_unit_test(test_rounding),
                                       cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_softmax)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
