/* Products with weights of few bits: every ISA level against double, the exactness of sums of integers, the same bits
 * for any number of rows and threads. */
#include "kernel_test.h"
#include "kernel/gemm_blocks.h"

enum { MOST_M = 9, MOST_N = 101, MOST_K = 320 };

static uint8_t w[MOST_N * MOST_K], zero[MOST_N * MOST_K];
static int8_t q[MOST_M * MOST_K];
static float x[MOST_M * MOST_K], scale[MOST_N * MOST_K], scale_x[MOST_M], bias[MOST_N], residual[MOST_M * MOST_N];
static uint64_t state = 3;

static unsigned draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 40);
}

typedef struct Case {
    int M, N, K, block, bits;
    DType t;
    bool zeros, halves, turned; /* turned: w is (K, N) */
} Case;

static const Case cases[] = {
    {1, 1, 8, 8, 4, DT_I4, false, true, false},      {1, 48, 64, 32, 4, DT_I4, false, true, false},
    {3, 49, 320, 32, 4, DT_U4, true, true, false},   {5, 101, 96, 96, 4, DT_I8, false, false, true},
    {9, 97, 131, 16, 4, DT_I4, true, false, false},  {4, 17, 5, 5, 4, DT_I4, false, true, false},
    {1, 96, 256, 128, 8, DT_I8, false, true, false}, {7, 100, 300, 32, 8, DT_U8, true, true, false},
    {2, 31, 77, 77, 8, DT_I8, true, false, true},    {8, 16, 40, 8, 8, DT_U8, true, true, true},
};

static int blocks(const Case *c) { return (c->K + c->block - 1) / c->block; }

static int element(const Case *c, const uint8_t *from, int at)
{
    return c->t == DT_U8 || c->t == DT_U4 ? from[at] : (int8_t)from[at];
}

static int weight_at(const Case *c, int n, int k) { return element(c, w, c->turned ? k * c->N + n : n * c->K + k); }

static uint8_t any_of(const Case *c)
{
    if (c->bits == 4) return c->t == DT_U4 ? draw() % 16 : (uint8_t)(int8_t)((int)(draw() % 16) - 8);
    return draw() % 4 ? (uint8_t)draw() : draw() % 2 ? 0x80 : 0x7f;
}

static void fill(const Case *c)
{
    for (int i = 0; i < c->N * c->K; i++) w[i] = any_of(c);
    for (int i = 0; i < c->N * blocks(c); i++) {
        zero[i] = any_of(c);
        scale[i] = c->halves ? 0.25f * (float)(1 + draw() % 7) : 0.01f * (float)(1 + draw() % 900);
    }
    for (int i = 0; i < c->M * c->K; i++) {
        x[i] = (float)(draw() % 2001) / 1000 - 1;
        q[i] = draw() % 4 ? (int8_t)draw() : draw() % 2 ? -128 : 127;
    }
    for (int i = 0; i < c->M; i++) scale_x[i] = 0.5f + (float)i;
    for (int i = 0; i < c->N; i++) bias[i] = (float)(i % 7) - 3;
    for (int i = 0; i < c->M * c->N; i++) residual[i] = (float)(i % 11);
}

static BlockWeight weight_of(const Case *c)
{
    return (BlockWeight){w, c->t, c->turned ? 1 : c->K, c->turned ? c->N : 1, scale, c->zeros ? zero : NULL};
}

static void run(const Case *c, const BlockForm *f, const void *packed, bool integers, int first, int rows, int threads,
                float *y)
{
    BlockMatmul m = {.form = f,
                     .packed = packed,
                     .M = rows,
                     .x = integers ? (const void *)(q + first * c->K) : x + first * c->K,
                     .scale_x = integers ? scale_x + first : NULL,
                     .step_x = 1,
                     .out = {.c = y,
                             .c_type = DT_F32,
                             .c_step = c->N,
                             .bias = bias,
                             .bias_type = DT_F32,
                             .residual = residual + first * c->N,
                             .residual_type = DT_F32,
                             .residual_step = c->N}};
    blocks_matmul(&m, room(1, (int64_t)blocks_scratch(&m)), threads);
}

/* The result and the sum of the absolute values of its terms. */
static double wanted(const Case *c, bool integers, int m, int n, double *size)
{
    double sum = 0;
    *size = 0;
    for (int k = 0; k < c->K; k++) {
        int at = n * blocks(c) + k / c->block, off = c->zeros ? element(c, zero, at) : 0;
        double by = integers ? (double)q[m * c->K + k] * (double)scale_x[m] : (double)x[m * c->K + k],
               term = by * (weight_at(c, n, k) - off) * (double)scale[at];
        sum += term;
        *size += fabs(term);
    }
    return sum + (double)bias[n] + (double)residual[m * c->N + n];
}

static void test_products(void **unused)
{
    (void)unused;
    static float y[MOST_M * MOST_N], again[MOST_M * MOST_N];
    if (cpu_level() == CPU_REF) return; /* it has loops in their place */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        fill(c);
        BlockWeight b = weight_of(c);
        BlockForm f = blocks_form(&b, c->N, c->K, c->block, c->bits);
        assert_int_equal(f.zeros, c->zeros);
        if (c->halves) assert_true(f.halves);
        void *packed = room(0, (int64_t)blocks_bytes(&f));
        blocks_pack(packed, &f, &b, 2);
        for (int integers = 0; integers < 2; integers++) {
            run(c, &f, packed, integers, 0, c->M, 1, y);
            for (int m = 0; m < c->M; m++)
                for (int n = 0; n < c->N; n++) {
                    double size, want = wanted(c, integers, m, n, &size);
                    /* integers: sums of a block are exact, its product and sum with the others are rounded */
                    double terms = integers ? 2 + blocks(c) : c->K + 8;
                    assert_true(fabs((double)y[m * c->N + n] - want) <= 0x1p-23 * (terms * size + 32));
                }
            run(c, &f, packed, integers, 0, c->M, 3, again);
            assert_memory_equal(y, again, (size_t)(c->M * c->N) * sizeof *y);
            for (int m = 0; m < c->M; m++) run(c, &f, packed, integers, m, 1, 1, again + m * c->N);
            assert_memory_equal(y, again, (size_t)(c->M * c->N) * sizeof *y);
        }
        assert_guard(packed);
    }
}

/* With scales of powers of two and one block, a product of integers is exact. */
static void test_exact(void **unused)
{
    (void)unused;
    static float y[MOST_M * MOST_N];
    if (cpu_level() == CPU_REF) return;
    for (int bits = 4; bits <= 8; bits += 4) {
        Case c = {5, 53, 256, 256, bits, DT_I8, true, true, false};
        fill(&c);
        for (int i = 0; i < c.N; i++) scale[i] = 0.5f;
        for (int i = 0; i < c.M; i++) scale_x[i] = 2;
        BlockWeight b = weight_of(&c);
        BlockForm f = blocks_form(&b, c.N, c.K, c.block, bits);
        void *packed = room(0, (int64_t)blocks_bytes(&f));
        blocks_pack(packed, &f, &b, 1);
        run(&c, &f, packed, true, 0, c.M, 1, y);
        for (int m = 0; m < c.M; m++)
            for (int n = 0; n < c.N; n++) {
                int64_t sum = 0;
                for (int k = 0; k < c.K; k++)
                    sum += q[m * c.K + k] * (weight_at(&c, n, k) - element(&c, zero, n));
                assert_true(y[m * c.N + n] == (float)sum + bias[n] + residual[m * c.N + n]);
            }
    }
}

static void test_shapes_of_tiles(void **unused)
{
    (void)unused;
    for (CpuLevel l = CPU_GEN; l < CPU_LEVELS; l = next_rung(l))
        assert_int_equal(kernels_at(l)->blocks.nr, kernels_at(l)->product.f32.nr); /* whose epilogue takes the sums */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_exact),
                                       cmocka_unit_test(test_shapes_of_tiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
