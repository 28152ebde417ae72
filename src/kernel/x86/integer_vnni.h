/* Integer products by vpdpbusd, which adds four products of an unsigned and a signed byte to a sum of 32 bits, without
 * saturation. Included with W (words of a vector), MR, NV, NR and
 *     DOT(sum, b, a)         sum[i] += the dot product of four bytes of b, unsigned, and of a, signed
 *     EVERY(word)            a vector of one word
 *
 * Bytes of a are signed (u8 less 128), those of b unsigned (i8 and 128 more). What that adds comes off where a tile
 * begins: with a' and b' the bytes as packed, u and v their zero points,
 *     sum (a' - u) (b' - v) = sum a' b' - v (sum a' - K u) - u sum b'
 *
 *     a packed: sums of the rows, their zero points; then the rows, each of whole lines
 *     b packed: panel after panel: sums of its columns, then words, column after column in a word of K
 * K is padded with zeros.
 */
#include "kernel/kernel.h"
#include "kernel/x86/integer_lines.h"

typedef int32_t S __attribute__((vector_size(W * 4)));
typedef int32_t S4 __attribute__((vector_size(16)));
typedef S Bytes __attribute__((aligned(1), may_alias));
typedef uint8_t B16 __attribute__((vector_size(16), aligned(1)));

typedef struct Head { /* of a tile of a */
    int32_t sum[16], zero[16];
} Head;
_Static_assert(MR <= 16 && sizeof(Head) == 2 * LINE, "sums of all rows");

static int64_t words_of(int64_t K) { return (K + 3) / 4; }

/* From a row of packed a to the next. Lines that are 4096 bytes apart would share a place in L1. */
static int64_t row_bytes(int64_t K)
{
    const int64_t n = (K + LINE - 1) / LINE * LINE;
    return n % 4096 ? n : n + LINE;
}

static size_t a_bytes(int64_t K) { return sizeof(Head) + (size_t)(MR * row_bytes(K)); }

static size_t panel_bytes(int64_t K) { return (size_t)(words_of(K) + 1) * NR * 4; }

static size_t b_bytes(int64_t K, int64_t N) { return (size_t)((N + NR - 1) / NR) * panel_bytes(K); }

/* ------------------------------------------------------------------ packing */

INLINE int32_t total(S s)
{
    S4 part[W / 4], sum = {0};
    memcpy(part, &s, sizeof s);
    for (int i = 0; i < W / 4; i++) sum += part[i];
    sum += __builtin_shufflevector(sum, sum, 2, 3, 0, 1);
    return sum[0] + sum[1];
}

static void pack_a(void *to, const IntegerIn *a, int64_t row, int rows, int64_t K)
{
    const uint8_t flip = a->t == DT_U8 ? 0x80 : 0;
    Head *head = to;
    uint8_t *line = (uint8_t *)(head + 1);
    for (int r = 0; r < rows; r++, line += row_bytes(K)) {
        const uint8_t *x = (const uint8_t *)a->data + (row + r) * a->rs;
        S sum = {0};
        int64_t k = 0;
        for (; a->cs == 1 && k + PIECE <= K; k += PIECE)
            for (int64_t i = k; i < k + PIECE; i += W * 4) {
                const S v = *(const Bytes *)(const void *)(x + i) ^ EVERY((int32_t)(flip * 0x01010101u));
                *(S *)(void *)(line + i) = v;
                sum = DOT(sum, EVERY(0x01010101), v);
            }
#if defined(__AVX512BW__)
        if (a->cs == 1 && k < K) { /* the rest: a line, of which some is read */
            const __mmask64 there = ~(__mmask64)0 >> (PIECE - (K - k));
            const S v = (S)_mm512_maskz_loadu_epi8(there, x + k) ^ (S)_mm512_maskz_set1_epi8(there, (char)flip);
            *(S *)(void *)(line + k) = v;
            sum = DOT(sum, EVERY(0x01010101), v);
            k = K;
        }
#endif
        for (; k < K; k += PIECE) {
            line_of(line + k, x + k * a->cs, a->cs, K - k < PIECE ? (int)(K - k) : PIECE, flip);
            for (int i = 0; i < PIECE; i += W * 4) sum = DOT(sum, EVERY(0x01010101), *(const S *)(line + k + i));
        }
        head->sum[r] = total(sum);
        head->zero[r] = integer_zero_of(a, row + r) - flip;
    }
}

/* The sum of n bytes. */
INLINE S sum_of(S sum, const char *x, int64_t n)
{
    int64_t k = 0;
    for (; k + W * 4 <= n; k += W * 4) sum = DOT(sum, EVERY(0x01010101), *(const Bytes *)(const void *)(x + k));
    if (k == n) return sum;
#if defined(__AVX512BW__)
    const S rest = (S)_mm512_maskz_loadu_epi8(~(__mmask64)0 >> (W * 4 - (n - k)), x + k);
#else
    S rest = {0};
    memcpy(&rest, x + k, (size_t)(n - k));
#endif
    return DOT(sum, EVERY(0x01010101), rest);
}

static void look(void *to, const IntegerRows *from, int zero, int rows)
{
    Head *head = to;
    for (int r = 0; r < rows; r++) {
        S sum = {0};
        for (int64_t k = 0; k < from->taps; k++)
            sum = sum_of(sum, from->at + r * from->step + from->jump[k], from->each);
        head->sum[r] = total(sum);
        head->zero[r] = zero;
    }
}

/* Words of four rows, 16 columns at once. */
INLINE void pack_four(uint8_t *p, const uint8_t *const *row, uint8_t flip)
{
    for (int j = 0; j < NR; j += 16) {
        B16 r[4], low, high, more, most;
        for (int i = 0; i < 4; i++) r[i] = *(const B16 *)(row[i] + j) ^ flip;
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
        low = __builtin_shufflevector(r[0], r[1], LOW);
        high = __builtin_shufflevector(r[0], r[1], HIGH);
        more = __builtin_shufflevector(r[2], r[3], LOW);
        most = __builtin_shufflevector(r[2], r[3], HIGH);
#undef LOW
#undef HIGH
#define LOW 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23
#define HIGH 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31
        *(B16 *)(p + 4 * j) = __builtin_shufflevector(low, more, LOW);
        *(B16 *)(p + 4 * j + 16) = __builtin_shufflevector(low, more, HIGH);
        *(B16 *)(p + 4 * j + 32) = __builtin_shufflevector(high, most, LOW);
        *(B16 *)(p + 4 * j + 48) = __builtin_shufflevector(high, most, HIGH);
#undef LOW
#undef HIGH
    }
}

/* Columns side by side. */
static void pack_across(uint8_t *p, const IntegerIn *b, int64_t col, int cols, int64_t K, uint8_t flip)
{
    const uint8_t *x = (const uint8_t *)b->data + col, *row[4];
    uint8_t some[4][NR];
    memset(some, flip, sizeof some); /* zeros, once flipped */
    for (int64_t k = 0; k < K; k += 4, p += NR * 4) {
        for (int i = 0; i < 4; i++) {
            row[i] = some[i];
            if (k + i >= K) memset(some[i], flip, NR);
            else if (cols == NR) row[i] = x + (k + i) * b->rs;
            else memcpy(some[i], x + (k + i) * b->rs, (size_t)cols);
        }
        pack_four(p, row, flip);
    }
}

/* Columns that run along K (a linear's weight), 16 at once. */
static void pack_along(uint8_t *p, const IntegerIn *b, int64_t col, int cols, int64_t K, uint8_t flip)
{
    uint8_t line[LANES][PIECE] __attribute__((aligned(LINE)));
    const float *from[LANES];
    for (int j = 0; j < NR; j += LANES)
        for (int64_t k = 0; k < K; k += PIECE) {
            int n = K - k < PIECE ? (int)(K - k) : PIECE, words = (n + 3) / 4;
            float *to = (float *)(void *)(p + (k / 4 * NR + j) * 4);
            for (int i = 0; i < LANES; i++) {
                int there = j + i < cols ? n : 0;
                const uint8_t *x = (const uint8_t *)b->data + (there ? (col + j + i) * b->cs + k * b->rs : 0);
                line_of(line[i], x, b->rs, there, flip);
                from[i] = (const float *)(const void *)line[i];
            }
            if (words == LANES) turn_lines(to, NR, from, LANES);
            else
                for (int w = 0; w < words; w++)
                    for (int i = 0; i < LANES; i++) to[w * NR + i] = from[i][w];
        }
}

static void pack_b(void *to, const IntegerIn *b, int64_t K, int64_t N)
{
    const uint8_t flip = b->t == DT_U8 ? 0 : 0x80;
    char *p = to;
    for (int64_t col = 0; col < N; col += NR, p += panel_bytes(K)) {
        int cols = N - col < NR ? (int)(N - col) : NR;
        const S *words = (const S *)(const void *)(p + NR * 4);
        S sum[NV] = {0};
        (b->cs == 1 ? pack_across : pack_along)((uint8_t *)p + NR * 4, b, col, cols, K, flip);
        for (int64_t k = 0; k < words_of(K); k++)
            for (int v = 0; v < NV; v++) sum[v] = DOT(sum[v], *words++, EVERY(0x01010101));
        memcpy(p, sum, sizeof sum);
    }
}

/* ------------------------------------------------------------------ tiles */

typedef const int32_t __attribute__((may_alias)) Word;

/* While it runs, the next tile's rows come into L1 and a share of the next panel into L2, evenly spread. */
INLINE void tile_of(int rows, int nv, const IntegerTile *t)
{
    const Head *head = t->a;
    const bool packed = !t->from.at;
    const int64_t none = 0, words = words_of(packed ? t->K : t->from.each), taps = packed ? 1 : t->from.taps,
                  step = packed ? row_bytes(t->K) : t->from.step, lines = taps * ((words + LANES - 1) / LANES),
                  pace = lines ? (t->lines + lines - 1) / lines : 0, *jump = packed ? &none : t->from.jump;
    const char *rows_at = packed ? (const char *)(head + 1) : t->from.at,
               *first = packed ? (const char *)t->next_a + sizeof(Head) : t->next, *ahead = t->ahead,
               *sums = (const char *)t->b + (size_t)t->panel * panel_bytes(t->K), *b = sums + NR * 4;
    const uint32_t v = (uint32_t)(t->zero_b + 128), K = (uint32_t)t->K;
    S s[MR][NV];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        const uint32_t u = (uint32_t)head->zero[r];
        int32_t of_row = (int32_t)(v * (K * u - (uint32_t)head->sum[r]));
#pragma GCC unroll 4
        for (int k = 0; k < nv; k++) s[r][k] = EVERY(of_row);
        if (!u) continue;
#pragma GCC unroll 4
        for (int k = 0; k < nv; k++) s[r][k] -= EVERY((int32_t)u) * ((const S *)(const void *)sums)[k];
    }
    for (int64_t tap = 0; tap < taps; tap++) {
        const char *a = rows_at + jump[tap], *next = first + jump[tap];
        for (int64_t w = 0; w < words; w += LANES, next += LINE) {
            const int64_t n = words - w < LANES ? words - w : LANES;
            const char *fetch = next, *end = ahead + pace * LINE;
            for (int64_t i = 0; i < n; i++, a += 4, b += NR * 4, fetch += step) {
                S y[NV];
                if (i < rows) __builtin_prefetch(fetch, 0, 3);
                else if (ahead < end) {
                    __builtin_prefetch(ahead, 0, 2);
                    ahead += LINE;
                }
#pragma GCC unroll 4
                for (int k = 0; k < nv; k++) y[k] = ((const S *)(const void *)b)[k];
#pragma GCC unroll 16
                for (int r = 0; r < rows; r++) {
                    int32_t one = *(Word *)(const void *)(a + r * step);
#pragma GCC unroll 4
                    for (int k = 0; k < nv; k++) s[r][k] = DOT(s[r][k], y[k], EVERY(one));
                }
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int k = 0; k < nv; k++) memcpy(t->acc + r * NR + k * W, &s[r][k], sizeof s[r][k]);
}

/* One function per height, so that the sums stay in registers. */
#define TILE(rows)                                                                                                     \
    static void tile_##rows(const IntegerTile *t)                                                                      \
    {                                                                                                                  \
        if (t->cols > (NV - 1) * W) tile_of(rows, NV, t);                                                              \
        else if (NV > 2 && t->cols > W) tile_of(rows, 2, t);                                                           \
        else tile_of(rows, 1, t);                                                                                      \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
#if MR > 6
TILE(7)
TILE(8)
TILE(9)
#endif

static void tile(const IntegerTile *t)
{
    static void (*const of[])(const IntegerTile *t) = {
        NULL,   tile_1, tile_2, tile_3, tile_4, tile_5, tile_6,
#if MR > 6
        tile_7, tile_8, tile_9,
#endif
    };
    of[t->rows](t);
}

static void fill(IntegerKernels *k)
{
    k->mr = MR;
    k->nr = NR;
    k->a_bytes = a_bytes;
    k->b_bytes = b_bytes;
    k->pack_a = pack_a;
    k->look = look;
    k->look_bytes = sizeof(Head);
    k->pack_b = pack_b;
    k->tile = tile;
}
