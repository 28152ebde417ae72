/* Integer products by AMX-INT8, its instructions emulated (emulated/immintrin.h): tiles against sums in 64 bits, at the
 * ends of the range; every row is finished once. */
#include "kernel_test.h"
#include "kernel/gemm_integer.h"

void integer_fill_emulated_amx(IntegerKernels *k);

enum { MOST_ROWS = 33, MOST_N = 101, MOST_K = 200 };

static uint8_t a[MOST_ROWS * MOST_K], b[MOST_N * MOST_K];
static int finished[MOST_ROWS];
static uint64_t state = 5;

static void fill(uint8_t *to, int n)
{
    static const uint8_t ends[] = {0, 127, 128, 129, 255, 1};
    for (int i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        to[i] = state >> 40 & 1 ? ends[(state >> 41) % 6] : (uint8_t)(state >> 48);
    }
}

static int value(uint8_t x, DType t) { return t == DT_U8 ? x : (int8_t)x; }

static void check_tile(const IntegerKernels *k, DType ta, DType tb, int K, int rows, int cols)
{
    static const uint8_t zeros[MOST_ROWS] = {3,  7,  0,  255, 128, 127, 1,  7,   200, 50, 0,  9,
                                             130, 64, 31, 254, 77,  5,   90, 255, 0,   1,  17, 128};
    IntegerIn ia = {a, ta, 0, K, 1, zeros}, ib = {b, tb, 9, 1, K, NULL};
    void *pa = room(0, (int64_t)k->a_bytes(K)), *pb = room(1, (int64_t)k->b_bytes(K, MOST_N));
    int32_t *acc = room(2, (int64_t)(k->mr * k->nr) * 4);
    k->pack_b(pb, &ib, K, MOST_N);
    k->pack_a(pa, &ia, 1, rows, K);
    IntegerTile t = {.acc = acc, .a = pa, .b = pb, .panel = 1, .K = K, .rows = rows, .cols = cols};
    t.zero_b = integer_zero(&ib);
    k->begin();
    k->tile(&t);
    k->end();
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < cols; j++) {
            int64_t sum = 0;
            for (int i = 0; i < K; i++)
                sum += (value(a[(r + 1) * K + i], ta) - value(zeros[r + 1], ta)) *
                       (value(b[(k->nr + j) * K + i], tb) - 9);
            assert_int_equal(acc[r * k->nr + j], sum);
        }
    assert_guard(pa);
    assert_guard(pb);
    assert_guard(acc);
}

static void count_rows(const struct IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows, int cols)
{
    (void)m;
    (void)acc;
    assert_true(rows <= 9 && col == 3 && cols == 5);
    for (int r = 0; r < rows; r++) finished[row + r]++;
}

static void test_tiles(void **unused)
{
    (void)unused;
    IntegerKernels k = {.finish = count_rows};
    integer_fill_emulated_amx(&k);
    fill(a, MOST_ROWS * MOST_K);
    fill(b, MOST_N * MOST_K);
    for (int K = 1; K <= MOST_K; K += 33)
        for (int rows = 1; rows <= k.mr; rows += 3) {
            check_tile(&k, DT_U8, DT_I8, K, rows, k.nr);
            check_tile(&k, DT_I8, DT_U8, K, rows, rows + 1);
        }
    int32_t none[32 * 48] = {0};
    k.finish(NULL, none, 0, 3, k.mr, 5);
    for (int r = 0; r < k.mr; r++) assert_int_equal(finished[r], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
