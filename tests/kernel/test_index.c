/* Moving elements by maps and by row numbers: nothing is computed,
 * so every byte is compared with the plain definition. */
#include "kernel_test.h"

enum { RANKS = 5, MOST = 70 };
static const int thread_counts[] = {1, 2, 3, 8};

typedef enum Pattern { RANDOM, RUNS, FLIPPED, OUTSIDE, PATTERNS } Pattern;

/* Indices into `size` elements; a pad of -1 at both ends in RUNS, everywhere in OUTSIDE. */
static void make_map(int64_t *map, int64_t n, int64_t size, Pattern p, uint64_t *state)
{
    int64_t lead = (int64_t)(unit_random(state) % 3);
    for (int64_t i = 0; i < n; i++) {
        int64_t run = i - lead < size ? i - lead : -1;
        map[i] = size == 0 || p == OUTSIDE ? -1
                 : p == RUNS               ? (run < 0 ? -1 : run)
                 : p == FLIPPED            ? (n - 1 - i) % size
                                           : (int64_t)(unit_random(state) % (uint32_t)(size + 1)) - 1;
    }
}

static void fill_bytes(unsigned char *p, int64_t n, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++) p[i] = (unsigned char)unit_random(state);
}

typedef struct Map {
    int rank;
    int64_t n[RANKS], in[RANKS], stride[RANKS], *map[RANKS];
    int64_t low, high; /* what the view spans, in elements from its first */
} Map;

/* Strides of a shuffled order of dims, some flipped, spread or 0. */
static void make_strides(Map *m, uint64_t *state)
{
    int64_t step = 1, turn = unit_random(state) % 2;
    m->low = m->high = 0;
    for (int d = m->rank - 1; d >= 0; d--) {
        int at = turn ? m->rank - 1 - d : d;
        uint32_t how = unit_random(state) % 8;
        m->stride[at] = how == 0 ? 0 : how == 1 ? -step : how == 2 ? step * 2 : step;
        int64_t reach = m->stride[at] * (m->in[at] > 0 ? m->in[at] - 1 : 0);
        if (reach < 0) m->low += reach;
        else m->high += reach;
        step *= how == 2 ? 2 * m->in[at] : m->in[at] > 0 ? m->in[at] : 1;
    }
}

static void map_model(char *out, const char *first, const Map *m, const char *fill, size_t size)
{
    int64_t total = 1, at[RANKS] = {0};
    for (int d = 0; d < m->rank; d++) total *= m->n[d];
    for (int64_t i = 0; i < total; i++) {
        int64_t offset = 0;
        bool outside = false;
        for (int d = 0; d < m->rank; d++) {
            outside |= m->map[d][at[d]] < 0;
            offset += m->map[d][at[d]] * m->stride[d];
        }
        memcpy(out + (size_t)i * size, outside ? fill : first + offset * (int64_t)size, size);
        for (int d = m->rank - 1; d >= 0 && ++at[d] == m->n[d]; d--) at[d] = 0;
    }
}

static void check_map(Map *m, size_t size, uint64_t *state)
{
    static int64_t maps[RANKS][8192];
    char fill[16];
    int64_t total = 1;
    bool empty = false;
    for (int d = 0; d < m->rank; d++) {
        m->map[d] = maps[d];
        make_map(maps[d], m->n[d], m->in[d], (Pattern)(unit_random(state) % PATTERNS), state);
        total *= m->n[d];
        empty |= m->in[d] == 0;
    }
    make_strides(m, state);
    int64_t span = empty ? 0 : m->high - m->low + 1;
    unsigned char *in = room(0, span * (int64_t)size);
    const char *first = (const char *)in - m->low * (int64_t)size * !empty;
    fill_bytes(in, span * (int64_t)size, state);
    fill_bytes((unsigned char *)fill, 16, state);
    char *want = room(1, total * (int64_t)size);
    map_model(want, first, m, fill, size);
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(index, l))
        for (int t = 0; t < 4; t++) {
            char *out = room(2, total * (int64_t)size);
            kernels_at(l)->index.map(out, first, m->rank, m->n, m->stride, (const int64_t *const *)m->map, fill, size,
                                     thread_counts[t]);
            if (total && memcmp(out, want, (size_t)total * size))
                STOP("map of rank %d, %d-byte elements, %d threads on %s differs", m->rank, (int)size, thread_counts[t],
                     cpu_level_name(l));
            assert_guard(out);
        }
}

static void test_map(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int round = 0; round < 700; round++) {
        Map m = {.rank = round % RANKS};
        for (int d = 0; d < m.rank; d++) {
            m.n[d] = (int64_t)(unit_random(&seed) % (m.rank < 3 ? MOST : 7));
            m.in[d] = (int64_t)(unit_random(&seed) % (m.rank < 3 ? MOST : 7));
        }
        check_map(&m, (size_t)1 << round / RANKS % 5, &seed);
    }
}

/* Above 2^15 elements threads start: long rows, and very many short ones. */
static void test_map_large(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (size_t size = 1; size <= 16; size *= 2) {
        check_map(&(Map){.rank = 2, .n = {5, 8191}, .in = {7, 6000}}, size, &seed);
        check_map(&(Map){.rank = 3, .n = {61, 300, 2}, .in = {50, 301, 3}}, size, &seed);
        check_map(&(Map){.rank = 2, .n = {8000, 5}, .in = {600, 5}}, size, &seed);
    }
}

static void test_rows(void **state)
{
    static const size_t widths[] = {0, 1, 2, 3, 4, 7, 8, 12, 16, 31, 32, 33, 63, 64, 65, 1024};
    static const int64_t counts[] = {0, 1, 2, 3, 17, 700};
    uint64_t seed = 3;
    (void)state;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(index, l))
                for (int t = 0; t < 4; t++) {
                    int64_t n = counts[c], bytes = (int64_t)widths[w], *index = room(0, n * 8);
                    unsigned char *table = room(1, 37 * bytes), *out = room(2, n * bytes);
                    fill_bytes(table, 37 * bytes, &seed);
                    for (int64_t i = 0; i < n; i++) index[i] = i == n - 1 ? 36 : (int64_t)(unit_random(&seed) % 37);
                    kernels_at(l)->index.rows(out, table, index, n, (size_t)bytes, thread_counts[t]);
                    for (int64_t i = 0; i < n; i++)
                        if (memcmp(out + i * bytes, table + index[i] * bytes, (size_t)bytes))
                            STOP("row %d of %d, %d bytes, %d threads on %s differs", (int)i, (int)n, (int)bytes,
                                 thread_counts[t], cpu_level_name(l));
                    assert_guard(out);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_map), cmocka_unit_test(test_map_large),
                                       cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
