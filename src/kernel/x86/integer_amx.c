/* Integer products by AMX-INT8: tiles of 16 rows of 64 bytes, multiplied by TDPBSUD, signed by unsigned, into sums of
 * 32 bits. Contract in kernel/integer.h; what the offset of b and the zero points add comes off as in integer_vnni.h.
 *
 *     a packed: sums of the rows, their zero points; then [K / 64][rows][64] signed bytes (u8 less 128), rows padded to
 *               16 or 32
 *     b packed: panel after panel: sums of its columns, then [K / 64][3][16 words][16 columns] unsigned (i8 and 128)
 * K is padded with zeros of a.
 */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include "kernel/kernel.h"
#include "kernel/x86/integer_lines.h"
#include "kernel/x86/tiles.h"

enum { T = 16, MR = 2 * T, NV = 3, NR = T * NV, TILE = T * LINE, AT_ONCE = 8 };

typedef struct Head { /* of a tile of a */
    int32_t sum[MR], zero[MR];
} Head;

static int64_t chunks_of(int64_t K) { return (K + LINE - 1) / LINE; }
static int high_of(int rows) { return (rows + T - 1) / T * T; }

static size_t a_bytes(int64_t K) { return sizeof(Head) + (size_t)chunks_of(K) * 2 * TILE; }

static size_t panel_bytes(int64_t K) { return NR * sizeof(int32_t) + (size_t)chunks_of(K) * NV * TILE; }

static size_t b_bytes(int64_t K, int64_t N) { return (size_t)((N + NR - 1) / NR) * panel_bytes(K); }

/* ------------------------------------------------------------------ packing */

static void pack_a(void *to, const IntegerIn *a, int64_t row, int rows, int64_t K)
{
    const uint8_t flip = a->t == DT_U8 ? 0x80 : 0;
    const int high = high_of(rows);
    Head *head = to;
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = (const uint8_t *)a->data + (row + r) * a->rs;
        uint8_t *line = (uint8_t *)(head + 1) + r * LINE;
        int32_t sum = 0;
        for (int64_t k = 0; k < K; k += LINE, line += high * LINE) {
            line_of(line, x + k * a->cs, a->cs, K - k < LINE ? (int)(K - k) : LINE, flip);
            for (int i = 0; i < LINE; i++) sum += (int8_t)line[i];
        }
        head->sum[r] = sum;
        head->zero[r] = integer_zero_of(a, row + r) - flip;
    }
    if (rows == high) return;
    uint8_t *rest = (uint8_t *)(head + 1) + rows * LINE;
    for (int64_t k = 0; k < K; k += LINE, rest += high * LINE) memset(rest, 0, (size_t)(high - rows) * LINE);
}

/* 64 elements of K by 16 columns, of which `cols` are b's. */
static void pack_tile(uint8_t *p, const IntegerIn *b, int64_t k, int n, int64_t col, int cols, uint8_t flip)
{
    uint8_t line[T][LINE] __attribute__((aligned(LINE)));
    const float *from[T];
    for (int j = 0; j < T; j++) {
        const uint8_t *x = (const uint8_t *)b->data + (j < cols ? (col + j) * b->cs + k * b->rs : 0);
        line_of(line[j], x, b->rs, j < cols ? n : 0, flip);
        from[j] = (const float *)(const void *)line[j];
    }
    turn_lines((float *)(void *)p, T, from, T);
}

static void pack_b(void *to, const IntegerIn *b, int64_t K, int64_t N)
{
    const uint8_t flip = b->t == DT_U8 ? 0 : 0x80;
    char *panel = to;
    for (int64_t first = 0; first < N; first += NR, panel += panel_bytes(K)) {
        int32_t *sum = (int32_t *)(void *)panel;
        uint8_t *p = (uint8_t *)(sum + NR);
        memset(sum, 0, NR * sizeof *sum);
        for (int64_t k = 0; k < K; k += LINE)
            for (int v = 0; v < NV; v++, p += TILE) {
                int64_t col = first + v * T, left = N - col;
                pack_tile(p, b, k, K - k < LINE ? (int)(K - k) : LINE, col,
                          left < 0   ? 0
                          : left < T ? (int)left
                                     : T,
                          flip);
                for (int w = 0; w < T; w++)
                    for (int j = 0; j < 4 * T; j++) sum[v * T + j / 4] += p[w * LINE + j];
            }
    }
}

/* ------------------------------------------------------------------ tiles */

static void begin(void) { tiles_configure(T); }
static void end(void) { _tile_release(); }

/* What the zero points and the offset of b add. */
static void begin_sums(const IntegerTile *t, const Head *head, const int32_t *sums)
{
    const uint32_t v = (uint32_t)(t->zero_b + 128), K = (uint32_t)t->K;
    for (int r = 0; r < t->rows; r++) {
        const uint32_t u = (uint32_t)head->zero[r], of_row = v * (K * u - (uint32_t)head->sum[r]);
        for (int j = 0; j < NR; j++) t->acc[r * NR + j] = (int32_t)(of_row - u * (uint32_t)sums[j]);
    }
}

/* The tm x tn tiles of sums, loaded or stored. */
#define OF_SUMS(act)                                                                                                   \
    act(0, t->acc, NR * 4);                                                                                            \
    if (tn > 1) act(1, t->acc + T, NR * 4);                                                                            \
    if (tn > 2) act(2, t->acc + 2 * T, NR * 4);                                                                        \
    if (tm > 1) act(3, t->acc + T * NR, NR * 4);                                                                       \
    if (tm > 1 && tn > 1) act(4, t->acc + T * NR + T, NR * 4);                                                         \
    if (tm > 1 && tn > 2) act(5, t->acc + T * NR + 2 * T, NR * 4)

/* tm x tn tiles: sums in 0 to 5, one of a in 6, one of b in 7. The second tile of a meets b's in reverse, so that one
 * of them is there already. L1 keeps the panel: a, which comes from L2 once, goes by it. */
__attribute__((always_inline)) static inline void tile_of(int tm, int tn, const IntegerTile *t)
{
    const Head *head = t->a;
    const char *a = (const char *)(head + 1), *panel = (const char *)t->b + (size_t)t->panel * panel_bytes(t->K),
               *b = panel + NR * sizeof(int32_t), *ahead = t->ahead;
    const int64_t chunks = chunks_of(t->K), each = chunks ? (t->lines + chunks - 1) / chunks : 0;
    begin_sums(t, head, (const int32_t *)(const void *)panel);
    OF_SUMS(_tile_loadd);
    for (int64_t k = 0; k < chunks; k++, a += tm * TILE, b += NV * TILE) {
        _tile_stream_loadd(6, a, LINE);
        _tile_loadd(7, b, LINE);
        _tile_dpbsud(0, 6, 7);
        if (tn > 1) {
            _tile_loadd(7, b + TILE, LINE);
            _tile_dpbsud(1, 6, 7);
        }
        if (tn > 2) {
            _tile_loadd(7, b + 2 * TILE, LINE);
            _tile_dpbsud(2, 6, 7);
        }
        if (tm > 1) {
            _tile_stream_loadd(6, a + TILE, LINE);
            if (tn > 2) {
                _tile_dpbsud(5, 6, 7);
                _tile_loadd(7, b + TILE, LINE);
            }
            if (tn > 1) {
                _tile_dpbsud(4, 6, 7);
                _tile_loadd(7, b, LINE);
            }
            _tile_dpbsud(3, 6, 7);
        }
        for (int64_t i = 0; i < each; i++, ahead += LINE) __builtin_prefetch(ahead, 0, 2);
    }
    OF_SUMS(_tile_stored);
}

static void tile(const IntegerTile *t)
{
    const bool two = t->rows > T;
    if (t->cols > 2 * T) {
        if (two) tile_of(2, 3, t);
        else tile_of(1, 3, t);
    } else if (t->cols > T) {
        if (two) tile_of(2, 2, t);
        else tile_of(1, 2, t);
    } else if (two) tile_of(2, 1, t);
    else tile_of(1, 1, t);
}

/* The level below takes as many rows as its own tiles have. */
static void (*finish_some)(const struct IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows,
                           int cols);

static void finish(const struct IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows, int cols)
{
    for (int r = 0; r < rows; r += AT_ONCE)
        finish_some(m, acc + r * NR, row + r, col, rows - r < AT_ONCE ? rows - r : AT_ONCE, cols);
}

void integer_fill_amx(IntegerKernels *k);
void integer_fill_amx(IntegerKernels *k)
{
    finish_some = k->finish;
    k->mr = MR;
    k->nr = NR;
    k->a_bytes = a_bytes;
    k->b_bytes = b_bytes;
    k->pack_a = pack_a;
    k->look = NULL;
    k->pack_b = pack_b;
    k->tile = tile;
    k->begin = begin;
    k->end = end;
    k->finish = finish;
}
