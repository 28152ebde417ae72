/* Attention in bf16 by instructions that multiply pairs. Includers give GROUP, the query rows that go together, KEYS,
 * the keys at a time, and product(); all else is here. Contract in kernel/sdpa.h, masks and threads in
 * gen/sdpa_stack.h. f32 and f16 are left to the ISA level below: a bf16 has too few bits for them.
 *
 *     enum { GROUP = 32, KEYS = 512 };
 *     #include "kernel/x86/sdpa_pairs.h"
 *     static void product(const PairProduct *p) { ... }
 *     static const SdpaWay way = {GROUP, ROWS, room, pack, attend, NULL, NULL};
 *     void KERNEL(sdpa_fill)(SdpaKernels *k) { fill(k, &way); }
 *
 * Second operands are packed in blocks of 16 columns, rows of pairs: a 32-bit word holds elements k and k + 1 of a
 * column. For q k^T a column is a key and k goes along d (words transposed), for p v a column is one of the values' and
 * k goes along keys. GROUP query rows take KEYS keys at a time: their scores as f32, then exp2 against the running
 * maximum row by row into bf16 in the same place, then the product with the values on top of what was there. Weights
 * are bf16, their sum is taken before they are rounded.
 */
#ifndef QKV_KERNEL_X86_SDPA_PAIRS_H
#define QKV_KERNEL_X86_SDPA_PAIRS_H
#include <immintrin.h>
#include "kernel/gen/sdpa_stack.h"
#include "kernel/variant.h"

enum { PANEL = 64, LEAD = KEYS + 16, STEP = 32 };
static const float LOG2E = 1.44269504f;

/* c (rows, columns) = or += a (rows, K) * b (K, columns), bf16 by bf16 into f32; with `tops`, c = a * b * times + plus.
 * Operands are there up to multiples
 * of STEP in K and of STEP in columns, and rows of a and c up to GROUP; what is past K is 0 in both. */
typedef struct PairProduct {
    float *c;
    const void *a;
    const uint16_t *b; /* block of 16 columns: [K / 2][16][2] */
    int64_t lda, ldc;  /* bytes from row to row */
    int64_t next;      /* elements from one block of b to the next */
    int64_t K, columns;
    int rows;
    bool add;
    float (*tops)[16]; /* by row, lane by lane: the largest elements so far, c's included in the end; NULL: none */
    const float *plus; /* NULL: 0 */
    const float *soon; /* as many rows as c has, to fetch meanwhile, anywhere; NULL: none */
    int64_t ldp;       /* floats from row to row of plus and of soon */
    float times;
} PairProduct;

static void product(const PairProduct *p);

/* ------------------------------------------------------------------ room */

typedef struct Space {
    float *scores, *out;
    uint16_t *queries, *keys, *values;
} Space;

typedef struct Layout { /* in bytes */
    int64_t out, queries, keys, values, end;
} Layout;

static Layout lay_out(const Sdpa *a)
{
    Layout l = {.out = GROUP * LEAD * 4};
    int64_t pm = padded(a->M, STEP);
    l.queries = l.out + GROUP * padded(a->E, STEP) * 4;
    l.keys = l.queries + GROUP * padded(a->D, STEP) * 2;
    l.values = l.keys + pm * padded(a->D, STEP) * 2;
    l.end = l.values + pm * padded(a->E, STEP) * 2;
    return l;
}

static Space space_in(const Sdpa *a, void *room)
{
    Layout l = lay_out(a);
    char *p = room;
    return (Space){.scores = room,
                   .out = (float *)(void *)(p + l.out),
                   .queries = (uint16_t *)(void *)(p + l.queries),
                   .keys = (uint16_t *)(void *)(p + l.keys),
                   .values = (uint16_t *)(void *)(p + l.values)};
}

static size_t room(const Sdpa *a) { return (size_t)lay_out(a).end; }

/* ------------------------------------------------------------------ packing */

/* n <= 32 bf16, 0 after them. */
static inline __m512i some(const void *p, int64_t n)
{
    return _mm512_maskz_loadu_epi16(n >= 32 ? 0xffffffffu : (1u << n) - 1, p);
}

typedef const char *RowAt(const Stack *s, int64_t j); /* row j of keys or of values */

/* Blocks of 16 rows, [pair of d][row]; rows to a multiple of 32, 0 where there is none. */
INLINE void pack_across(const Stack *s, RowAt *row_at, int64_t width, uint16_t *to)
{
    for (int64_t t = 0; t < padded(s->M, STEP); t += 16)
        for (int64_t d = 0; d < width; d += STEP, to += 512) {
            Vec x[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                x[i] = t + i < s->M ? (Vec)some(row_at(s, t + i) + d * 2, width - d) : vec_set(0);
            vec_transpose(x);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) _mm512_store_si512(to + i * 32, (__m512i)x[i]);
        }
}

/* Elements i of two rows side by side: elements 0 to 15, and with `upper` 16 to 31. */
static const uint16_t side_by_side[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                          8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};

INLINE __m512i pairs_order(bool upper)
{
    return _mm512_add_epi16(_mm512_loadu_si512(side_by_side), _mm512_set1_epi16(upper ? 16 : 0));
}

/* Blocks of 16 columns, [pair of rows][column]. */
INLINE void pack_down(const Stack *s, RowAt *row_at, int64_t width, uint16_t *to)
{
    int64_t steps = padded(s->M, STEP) / STEP;
    __m512i first = pairs_order(false), second = pairs_order(true);
    for (int64_t e = 0; e < width; e += STEP) {
        uint16_t *left = to + e / 16 * steps * 512, *right = left + steps * 512;
        for (int64_t m = 0; m < steps * STEP; m += 2) {
            __m512i x = m < s->M ? some(row_at(s, m) + e * 2, width - e) : _mm512_setzero_si512();
            __m512i y = m + 1 < s->M ? some(row_at(s, m + 1) + e * 2, width - e) : _mm512_setzero_si512();
            _mm512_store_si512(left + m * 16, _mm512_permutex2var_epi16(x, first, y));
            _mm512_store_si512(right + m * 16, _mm512_permutex2var_epi16(x, second, y));
        }
    }
}

static void pack(const Stack *s)
{
    Space p = space_in(s->a, s->room);
    pack_across(s, key_at, s->a->D, p.keys);
    pack_down(s, value_at, s->a->E, p.values);
}

/* ------------------------------------------------------------------ softmax */

/* 2^z for weights that become bf16: relative error 7.5e-5. Minimax by Remez' algorithm on [0, 1).
 * 0 below the normal numbers; NaN stays. */
static inline __m512 exp2_short(__m512 z)
{
    __m512 r = _mm512_reduce_ps(z, 1), p = _mm512_set1_ps(7.802452264e-2f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.260671554e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.958335405e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.999252186e-1f));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(z, _mm512_set1_ps(-126), _CMP_NLT_UQ), p, z);
}

/* n scores x (n a multiple of 32) become bf16 weights 2^((x - top) unit) in the same place;
 * their sum, lane by lane, is added to `sum`. */
static void row_exp(float *x, float top, float unit, int64_t n, float *sum)
{
    float base = top == -INFINITY ? 0 : top * unit;
    __m512 total = _mm512_loadu_ps(sum), other = _mm512_setzero_ps(), c = _mm512_set1_ps(unit);
    if (fabsf(top) > 1e3f &&
        !isinf(top)) { /* a mask hides all: base is rounded, a fused product is not, and their difference may be huge */
        for (int64_t j = 0; j < n; j++) x[j] -= top;
        base = 0;
    }
    __m512 b = _mm512_set1_ps(base);
    for (int64_t j = 0; j < n; j += 32) {
        __m512 y = exp2_short(_mm512_fmsub_ps(_mm512_load_ps(x + j), c, b)),
               z = exp2_short(_mm512_fmsub_ps(_mm512_load_ps(x + j + 16), c, b));
        total = _mm512_add_ps(total, y);
        other = _mm512_add_ps(other, z);
        _mm512_store_si512((uint16_t *)(void *)x + j, (__m512i)_mm512_cvtne2ps_pbh(z, y));
    }
    _mm512_storeu_ps(sum, _mm512_add_ps(total, other));
}

/* ------------------------------------------------------------------ attention */

typedef struct Group {
    int rows;
    Row row[GROUP];
    float top[GROUP], sum[GROUP][16], tops[GROUP][16];
} Group;

/* New maxima in: what was summed so far is brought down to them. Scores are `scale` away from what exp takes. */
static void raise_tops(Group *g, float *out, int64_t width, float scale, bool begun)
{
    for (int r = 0; r < g->rows; r++) {
        float m = vec_largest(vec_at(g->tops[r])), before = g->top[r];
        if (!(m > before)) continue;
        g->top[r] = m;
        if (!begun || before == -INFINITY) continue;
        float less = vm_exp((before - m) * scale);
        vec_put(g->sum[r], vec_at(g->sum[r]) * less);
        for (int64_t e = 0; e < width; e += LANES) vec_put(out + r * width + e, vec_at(out + r * width + e) * less);
    }
}

static void write_out(const Stack *s, const Group *g, const float *out, int64_t width, float scale)
{
    int64_t E = s->a->E;
    for (int r = 0; r < g->rows; r++) {
        float sum = vec_total(vec_at(g->sum[r]));
        __m512 times = _mm512_set1_ps(1 / sum);
        put_lse(&g->row[r], g->top[r] * scale, sum);
        for (int64_t e = 0; e < E; e += 16) {
            __m512 x = sum != 0 ? _mm512_mul_ps(_mm512_load_ps(out + r * width + e), times)
                                : _mm512_setzero_ps(); /* 0 * NaN is not 0 */
            _mm256_mask_storeu_epi16(g->row[r].out + e * 2, (__mmask16)(E - e >= 16 ? 0xffff : (1 << (E - e)) - 1),
                                     (__m256i)_mm512_cvtneps_pbh(x));
        }
    }
}

static void attend(const Stack *s, int64_t first, int64_t count)
{
    const Sdpa *a = s->a;
    Space p = space_in(a, s->room);
    Group g;
    int64_t dp = padded(a->D, STEP), pe = padded(a->E, STEP), pm = padded(s->M, STEP), low = s->M, high = 0, inner = 0,
            outer = s->M;
    /* Scores are scaled one by one only where something follows that is not multiplied; else by exp's own product. */
    bool scaled = a->softcap > 0 || s->added || (s->masked && a->mask) || !(a->scale > 0), begun = false;
    bool together = s->per == 1 || first / s->q.N == (first + count - 1) / s->q.N; /* rows of one head */
    bool sums = !(a->softcap > 0) && (!s->masked || (a->mask && a->ms[3] == 1 && together));
    float scale = scaled ? 1 : (float)a->scale;
    g.rows = (int)count;
    for (int64_t r = count; r < GROUP; r++) /* rows that are missing are 0 */
        for (int64_t d = 0; d < dp; d += STEP) _mm512_store_si512(p.queries + r * dp + d, _mm512_setzero_si512());
    for (int r = 0; r < count; r++) {
        Row w = g.row[r] = stack_row(s, first + r);
        for (int64_t d = 0; d < dp; d += STEP) _mm512_store_si512(p.queries + r * dp + d, some(w.q + d * 2, a->D - d));
        low = least(low, w.low), high = most(high, w.high);
        inner = most(inner, w.low), outer = least(outer, w.high);
        g.top[r] = -INFINITY;
        vec_put(g.sum[r], vec_set(0));
        ask_for(w.q + count * a->qs[2] * 2, a->D * 2); /* of the group that follows */
    }
    for (int64_t m0 = low / PANEL * PANEL; m0 < high; m0 += KEYS) {
        int64_t end = least(m0 + KEYS, high), from = -1, to = -1;
        for (int r = 0; r < g.rows; r++) vec_put(g.tops[r], vec_set(-INFINITY));
        for (int64_t t = m0; t < end; t += PANEL) {
            int64_t width = least(PANEL, pm - t), n = least(width, s->M - t);
            float *scores = p.scores + t - m0;
            bool whole = t >= inner && t + width <= outer, clean = whole && sums;
            if (!(whole && !s->masked) && !panel_live(s, g.row, g.rows, t, n)) {
                for (int r = 0; r < g.rows && from >= 0; r++)
                    for (int64_t j = 0; j < width; j += LANES) vec_put(scores + r * LEAD + j, vec_set(-INFINITY));
                continue;
            }
            bool adds = clean && s->masked;
            int64_t next = t + PANEL < high ? t + PANEL : count * a->ms[2] + low; /* in the mask */
            if (!clean) ask_for_mask(s, g.row, g.rows, next, PANEL);
            product(&(PairProduct){.c = scores,
                                   .ldc = LEAD * 4,
                                   .a = p.queries,
                                   .lda = dp * 2,
                                   .b = p.keys + t * dp,
                                   .next = 16 * dp,
                                   .K = a->D,
                                   .columns = width,
                                   .rows = g.rows,
                                   .tops = clean ? g.tops : NULL,
                                   .plus = adds       ? a->mask + g.row[0].masked + t
                                           : s->added ? s->added + t
                                                      : NULL,
                                   .soon = adds ? far(a->mask, g.row[0].masked + next) : NULL,
                                   .ldp = s->masked ? a->ms[2] : 0,
                                   .times = scaled ? (float)a->scale : 1});
            for (int r = 0; r < g.rows && !clean; r++)
                vec_put(g.tops[r], mask_row(s, &g.row[r], scores + r * LEAD, t, n, width, scaled ? (float)a->scale : 1,
                                            vec_at(g.tops[r])));
            if (from < 0) from = t;
            to = t + width;
        }
        if (to < 0) continue;
        raise_tops(&g, p.out, pe, scale, begun);
        for (int r = 0; r < g.rows; r++) {
            row_exp(p.scores + r * LEAD + from - m0, g.top[r], scale * LOG2E, to - from, g.sum[r]);
        }
        product(&(PairProduct){.c = p.out,
                               .ldc = pe * 4,
                               .a = p.scores + from - m0,
                               .lda = LEAD * 4,
                               .b = p.values + from * 16,
                               .next = pm * 16,
                               .K = least(to, high) - from,
                               .columns = pe,
                               .rows = g.rows,
                               .add = begun});
        begun = true;
    }
    write_out(s, &g, p.out, pe, scale);
}

/* ------------------------------------------------------------------ entry */

static const SdpaWay *pairs; /* the includer's way */
static SdpaKernels below;    /* the ISA level below's, for the other dtypes, and for few queries */

static bool takes(const Sdpa *a) { return a->t == DT_BF16 && !sdpa_is_thin(a); }

static size_t workspace(const Sdpa *a, int threads)
{
    return takes(a) ? sdpa_room(a, pairs) * (size_t)threads : below.workspace(a, threads);
}

static void sdpa(const Sdpa *a, void *space, int threads)
{
    if (takes(a)) sdpa_all(a, pairs, space, threads);
    else below.run(a, space, threads);
}

static void fill(SdpaKernels *k, const SdpaWay *way)
{
    pairs = way;
    below = *k;
    k->workspace = workspace, k->run = sdpa;
}

void KERNEL(sdpa_fill)(SdpaKernels *k);
#endif
