/* Integer products by AMX-INT8: tiles of 16 rows of 64 bytes, multiplied by TDPBSUD, signed by unsigned, into sums of
 * 32 bits. Contract in kernel/integer.h; what the offset of b and the zero points add comes off as in integer_vnni.h.
 *
 *     a packed: sums of the rows, their zero points; then [K / 64][rows][64] signed bytes (u8 less 128)
 *     b packed: panel after panel: sums of its columns, then [K / 64][3][16 words][16 columns] unsigned (i8 and 128)
 * K is padded with zeros of a.
 */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include "kernel/kernel.h"
#include "kernel/x86/tiles.h"

enum { T = 16, NV = 3, NR = T * NV, LINE = 64, TILE = T * LINE, AT_ONCE = 8 };

typedef struct Head { /* of a tile of a */
    int32_t sum[T], zero[T];
} Head;

static int64_t chunks_of(int64_t K) { return (K + LINE - 1) / LINE; }

static size_t a_bytes(int64_t K) { return sizeof(Head) + (size_t)chunks_of(K) * TILE; }

static size_t panel_bytes(int64_t K) { return NR * sizeof(int32_t) + (size_t)chunks_of(K) * NV * TILE; }

static size_t b_bytes(int64_t K, int64_t N) { return (size_t)((N + NR - 1) / NR) * panel_bytes(K); }

static void pack_a(void *to, const IntegerIn *a, int64_t row, int rows, int64_t K)
{
    const uint8_t flip = a->t == DT_U8 ? 0x80 : 0;
    Head *head = to;
    for (int r = 0; r < rows; r++) {
        const uint8_t *x = (const uint8_t *)a->data + (row + r) * a->rs;
        uint8_t *line = (uint8_t *)(head + 1) + r * LINE;
        int32_t sum = 0;
        for (int64_t k = 0; k < K; k += LINE, line += rows * LINE) {
            int n = K - k < LINE ? (int)(K - k) : LINE;
            for (int i = 0; i < n; i++) sum += (int8_t)(line[i] = x[(k + i) * a->cs] ^ flip);
            memset(line + n, 0, (size_t)(LINE - n));
        }
        head->sum[r] = sum;
        head->zero[r] = integer_zero_of(a, row + r) - flip;
    }
}

static void pack_b(void *to, const IntegerIn *b, int64_t K, int64_t N)
{
    const uint8_t flip = b->t == DT_U8 ? 0 : 0x80;
    memset(to, 0, b_bytes(K, N));
    for (int64_t n = 0; n < N; n++) {
        char *panel = (char *)to + (size_t)(n / NR) * panel_bytes(K);
        const int64_t j = n % NR;
        uint8_t *p = (uint8_t *)panel + NR * sizeof(int32_t) + j / T * TILE + j % T * 4;
        int32_t sum = 0;
        for (int64_t k = 0; k < K; k++) {
            uint8_t v = ((const uint8_t *)b->data)[k * b->rs + n * b->cs] ^ flip;
            p[k / LINE * NV * TILE + k % LINE / 4 * LINE + k % 4] = v;
            sum += v;
        }
        ((int32_t *)(void *)panel)[j] = sum;
    }
}

/* Sums are in tiles 0 to 2, of so many rows as a's, which is 3; b's are 4 to 6. */
static void tile(const IntegerTile *t)
{
    const Head *head = t->a;
    const int rows = t->rows, columns = (t->cols + T - 1) / T;
    const char *a = (const char *)(head + 1), *panel = (const char *)t->b + (size_t)t->panel * panel_bytes(t->K),
               *b = panel + NR * sizeof(int32_t), *ahead = t->ahead;
    const int32_t *sums = (const int32_t *)(const void *)panel;
    const uint32_t v = (uint32_t)(t->zero_b + 128), K = (uint32_t)t->K;
    const int64_t chunks = chunks_of(t->K), each = chunks ? (t->lines + chunks - 1) / chunks : 0;
    for (int r = 0; r < rows; r++) {
        const uint32_t u = (uint32_t)head->zero[r], of_row = v * (K * u - (uint32_t)head->sum[r]);
        for (int j = 0; j < NR; j++) t->acc[r * NR + j] = (int32_t)(of_row - u * (uint32_t)sums[j]);
    }
    tiles_configure(rows);
    _tile_loadd(0, t->acc, NR * 4);
    _tile_loadd(1, t->acc + T, NR * 4);
    _tile_loadd(2, t->acc + 2 * T, NR * 4);
    for (int64_t k = 0; k < chunks; k++, a += rows * LINE, b += NV * TILE) {
        _tile_loadd(3, a, LINE);
        _tile_loadd(4, b, LINE);
        _tile_dpbsud(0, 3, 4);
        if (columns > 1) {
            _tile_loadd(5, b + TILE, LINE);
            _tile_dpbsud(1, 3, 5);
        }
        if (columns > 2) {
            _tile_loadd(6, b + 2 * TILE, LINE);
            _tile_dpbsud(2, 3, 6);
        }
        for (int64_t i = 0; i < each; i++, ahead += LINE) __builtin_prefetch(ahead, 0, 2);
    }
    _tile_stored(0, t->acc, NR * 4);
    _tile_stored(1, t->acc + T, NR * 4);
    _tile_stored(2, t->acc + 2 * T, NR * 4);
    _tile_release();
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
    k->mr = T;
    k->nr = NR;
    k->a_bytes = a_bytes;
    k->b_bytes = b_bytes;
    k->pack_a = pack_a;
    k->pack_b = pack_b;
    k->tile = tile;
    k->finish = finish;
}
