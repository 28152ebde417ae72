/* The gradient of attention in bf16 by instructions that multiply pairs: the other half of sdpa_pairs.h, with the
 * includer's GROUP and product(). Contract and formulas in kernel/sdpa.h.
 *
 *     enum { GROUP = 32, KEYS = 512 };
 *     #include "kernel/x86/sdpa_pairs_back.h"
 *     static void product(const PairProduct *p) { ... }
 *     void KERNEL(sdpa_fill)(SdpaKernels *k) { fill(k, &way); fill_back(k); }
 *
 * BACK_ROWS query rows of a stack go over the keys BACK_KEYS at a time; GROUP of them at once have their scores S and
 * dP = dout v^T as f32, which become P = 2^(S log2(e) - lse log2(e)) and dS = P (dP - sum_e dout out) row by row, two
 * rows at once. Both are rounded to bf16, as PyTorch's kernel rounds them, and go from there into three products whose
 * sums are f32:
 *
 *     dv^T (E, keys) += dout^T P,    dk^T (D, keys) += q^T dS       rows of P and dS in pairs, as second operand,
 *                                                                   once all rows of the block have them
 *     dq (rows, D) += dS k                                          dS also as first operand
 *
 * dk and dv are summed transposed because P and dS come row by row, and are turned as they are written; `scale` goes to
 * dq and dk last. Nothing of (N, M) is kept: a thread has the packed keys and values of a stack and the sums of dk and
 * dv.
 *
 * The rows of a stack are summed in parts of part_rows, the parts one after the other, whoever made them: where heads
 * are too few for the threads, these take parts, and dk and dv have the same bits. The ISA level below takes what is
 * not here: other dtypes, softcap, the mask's gradient, few queries.
 */
#ifndef QKV_KERNEL_X86_SDPA_PAIRS_BACK_H
#define QKV_KERNEL_X86_SDPA_PAIRS_BACK_H
#include "kernel/x86/sdpa_pairs.h"
#include "team/team.h"

enum {
    BACK_ROWS = 8 * GROUP,
    BACK_KEYS = 128,
    BACK_LEAD = BACK_KEYS + 16,   /* floats from row to row of S and dP */
    BACK_FIRST = BACK_KEYS + 32,  /* elements from row to row of dS as first operand */
    BACK_TURNED = BACK_ROWS + 32, /* elements from row to row of q^T and dout^T */
    BACK_NEXT = BACK_ROWS * 16,   /* elements from one block of 16 keys of P and dS to the next */
    PARTS_MOST = 8
};
_Static_assert(BACK_ROWS % STEP == 0 && BACK_KEYS == 2 * PANEL,
               "blocks of whole steps; of two panels none lies between others");

/* ------------------------------------------------------------------ room */

typedef struct BackSpace {
    float *scores, *dp, *dq;
    uint16_t *q, *dout, *turned_q, *turned_dout;
    uint16_t *first, *p, *ds;
    uint16_t *keys, *values, *keys_down; /* keys and values across, keys down */
    float *sums, *part;                  /* dk^T, then dv^T: of the parts so far, of this one */
} BackSpace;

static int64_t sums_lead(const Sdpa *a) { return padded(a->M, STEP) + 16; }
static int64_t sums_of(const Sdpa *a) { return (padded(a->D, STEP) + padded(a->E, STEP)) * sums_lead(a); } /* floats */

static int64_t stack_rows(const Sdpa *a) { return a->H / a->Hkv * a->N; }
static int64_t part_rows(const Sdpa *a)
{
    return most(4 * BACK_ROWS, padded((stack_rows(a) + PARTS_MOST - 1) / PARTS_MOST, BACK_ROWS));
}
static int64_t parts_of_stack(const Sdpa *a) { return most(1, (stack_rows(a) + part_rows(a) - 1) / part_rows(a)); }

/* bytes more, on a line of their own, of a room that may be NULL (they are only counted); where they begin */
static char *taken(char *room, int64_t *used, int64_t bytes)
{
    char *p = room ? room + *used : NULL;
    *used += padded(bytes, LINE);
    return p;
}

/* The thread's pieces of a room, and the bytes of it that they use; a room of NULL: the bytes only. */
static BackSpace back_space(const Sdpa *a, char *room, int64_t *used)
{
    int64_t dp = padded(a->D, STEP), pe = padded(a->E, STEP), pm = padded(a->M, STEP);
    BackSpace s;
    *used = 0;
    s.scores = (float *)(void *)taken(room, used, GROUP * BACK_LEAD * 4);
    s.dp = (float *)(void *)taken(room, used, GROUP * BACK_LEAD * 4);
    s.dq = (float *)(void *)taken(room, used, BACK_ROWS * dp * 4);
    s.q = (uint16_t *)(void *)taken(room, used, BACK_ROWS * dp * 2);
    s.dout = (uint16_t *)(void *)taken(room, used, BACK_ROWS * pe * 2);
    s.turned_q = (uint16_t *)(void *)taken(room, used, dp * BACK_TURNED * 2);
    s.turned_dout = (uint16_t *)(void *)taken(room, used, pe * BACK_TURNED * 2);
    s.first = (uint16_t *)(void *)taken(room, used, GROUP * BACK_FIRST * 2);
    s.p = (uint16_t *)(void *)taken(room, used, BACK_KEYS / 16 * BACK_NEXT * 2);
    s.ds = (uint16_t *)(void *)taken(room, used, BACK_KEYS / 16 * BACK_NEXT * 2);
    s.keys = (uint16_t *)(void *)taken(room, used, pm * dp * 2);
    s.values = (uint16_t *)(void *)taken(room, used, pm * pe * 2);
    s.keys_down = (uint16_t *)(void *)taken(room, used, pm * dp * 2);
    s.sums = (float *)(void *)taken(room, used, sums_of(a) * 4);
    s.part = (float *)(void *)taken(room, used, sums_of(a) * 4);
    return s;
}

/* Threads take parts of stacks where whole ones would leave some idle. */
static bool back_splits(const Sdpa *a, int threads)
{
    int64_t stacks = a->B * a->Hkv;
    return parts_of_stack(a) > 1 && stacks < 2 * threads && stacks % threads;
}

static int64_t mask_room(const Sdpa *a) { return padded(padded(a->M, 16) * 8, LINE); }

static int64_t back_room(const Sdpa *a)
{
    int64_t bytes;
    back_space(a, NULL, &bytes);
    return mask_room(a) + bytes;
}

/* ------------------------------------------------------------------ a block of query rows */

/* What a row's weights are made with: 2^(x unit - base). */
typedef struct BackRow {
    float unit, base, delta;
    float lse;
    bool far; /* lse is taken off first: base would be rounded, a fused product is not, and their difference may be huge
               */
} BackRow;

typedef struct Back {
    const SdpaBackward *d;
    Stack s;
    BackSpace space;
    int rows;
    bool scaled; /* scores are scaled before the mask */
    Row row[BACK_ROWS];
    BackRow weigh[BACK_ROWS];
} Back;

static const char *dout_at(const Back *k, int64_t i)
{
    int64_t h = k->s.kv * k->s.per + i / k->s.q.N;
    return (const char *)k->d->dout + (k->s.b * k->d->dos[0] + h * k->d->dos[1] + i % k->s.q.N * k->d->dos[2]) * 2;
}

static char *dq_at(const Back *k, int64_t i)
{
    int64_t h = k->s.kv * k->s.per + i / k->s.q.N;
    return (char *)k->d->dq + (k->s.b * k->d->dqs[0] + h * k->d->dqs[1] + i % k->s.q.N * k->d->dqs[2]) * 2;
}

/* Rows x (padded(rows, 32), width) as (width, rows). */
static void turn_rows(const uint16_t *x, int64_t width, int64_t rows, uint16_t *to)
{
    __m512i order[2] = {pairs_order(false), pairs_order(true)};
    for (int64_t r = 0; r < rows; r += STEP)
        for (int64_t e = 0; e < width; e += 16) {
            Vec pair[16]; /* of rows, a word a column */
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) {
                const uint16_t *from = x + (r + 2 * i) * width + e / STEP * STEP;
                pair[i] = (Vec)_mm512_permutex2var_epi16(_mm512_load_si512(from), order[e / 16 % 2],
                                                         _mm512_load_si512(from + width));
            }
            vec_transpose(pair);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) _mm512_store_si512(to + (e + i) * BACK_TURNED + r, (__m512i)pair[i]);
        }
}

/* Row r is the stack's i: its operands, its logsumexp, and delta = sum_e dout out. */
static void begin_row(Back *k, int r, int64_t i)
{
    const Sdpa *a = k->s.a;
    int64_t dp = padded(a->D, STEP), pe = padded(a->E, STEP);
    const char *dout = dout_at(k, i);
    __m512 delta = _mm512_setzero_ps();
    Row w = k->row[r] = stack_row(&k->s, i);
    for (int64_t d = 0; d < dp; d += STEP) _mm512_store_si512(k->space.q + r * dp + d, some(w.q + d * 2, a->D - d));
    for (int64_t e = 0; e < pe; e += STEP) {
        __m512i x = some(dout + e * 2, a->E - e);
        delta = _mm512_dpbf16_ps(delta, (__m512bh)x, (__m512bh)some(w.out + e * 2, a->E - e));
        _mm512_store_si512(k->space.dout + r * pe + e, x);
    }
    float lse = *w.lse, unit = (k->scaled ? 1 : (float)a->scale) * LOG2E;
    bool far = fabsf(lse) > 1e3f && !isinf(lse);
    k->weigh[r] = (BackRow){.unit = far ? LOG2E : unit,
                            .delta = _mm512_reduce_add_ps(delta),
                            .lse = lse,
                            .far = far,
                            .base = far                ? 0
                                    : lse == -INFINITY ? INFINITY
                                                       : lse * LOG2E}; /* a row without a key: all weights are 0 */
}

static void begin_rows(Back *k, int64_t first, int64_t count)
{
    const Sdpa *a = k->s.a;
    int64_t dp = padded(a->D, STEP), pe = padded(a->E, STEP), whole = padded(count, STEP);
    k->rows = (int)count;
    for (int r = 0; r < count; r++) begin_row(k, r, first + r);
    memset(k->space.q + count * dp, 0, (size_t)((whole - count) * dp * 2));
    memset(k->space.dout + count * pe, 0, (size_t)((whole - count) * pe * 2));
    memset(k->space.dq, 0, (size_t)(BACK_ROWS * dp * 4));
    turn_rows(k->space.q, dp, whole, k->space.turned_q);
    turn_rows(k->space.dout, pe, whole, k->space.turned_dout);
}

static void end_rows(const Back *k, int64_t first)
{
    int64_t D = k->s.a->D, dp = padded(D, STEP);
    __m512 scale = _mm512_set1_ps((float)k->s.a->scale);
    for (int r = 0; r < k->rows && k->d->dq; r++) {
        char *to = dq_at(k, first + r);
        for (int64_t d = 0; d < D; d += 16)
            _mm256_mask_storeu_epi16(
                to + d * 2, (__mmask16)(D - d >= 16 ? 0xffff : (1 << (D - d)) - 1),
                (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_load_ps(k->space.dq + r * dp + d), scale)));
    }
}

/* ------------------------------------------------------------------ weights */

/* Elements i and i + 16 of a vector side by side. */
static const uint16_t halves_beside[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                           8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

/* Two rows of n scores and dP (n a multiple of 16), one below the other; `one`: there is only the first.
 * P and dS in pairs, dS as rows, too. */
INLINE void weigh_pair(bool one, const float *x, const float *dp, const BackRow *w, int64_t n, uint16_t *p,
                       uint16_t *ds, uint16_t *first)
{
    __m512 unit = _mm512_set1_ps(w[0].unit), base = _mm512_set1_ps(w[0].base), delta = _mm512_set1_ps(w[0].delta);
    __m512 unit2 = _mm512_set1_ps(w[!one].unit), base2 = _mm512_set1_ps(w[!one].base),
           delta2 = _mm512_set1_ps(w[!one].delta);
    __m512i order = _mm512_loadu_si512(halves_beside);
    for (int64_t j = 0; j < n; j += 16, p += BACK_NEXT, ds += BACK_NEXT) {
        __m512 y = exp2_short(_mm512_fmsub_ps(_mm512_load_ps(x + j), unit, base)),
               z = _mm512_mul_ps(y, _mm512_sub_ps(_mm512_load_ps(dp + j), delta));
        __m512 y2 = _mm512_setzero_ps(), z2 = _mm512_setzero_ps();
        if (!one) {
            y2 = exp2_short(_mm512_fmsub_ps(_mm512_load_ps(x + BACK_LEAD + j), unit2, base2));
            z2 = _mm512_mul_ps(y2, _mm512_sub_ps(_mm512_load_ps(dp + BACK_LEAD + j), delta2));
        }
        __m512i narrow = (__m512i)_mm512_cvtne2ps_pbh(z2, z);
        _mm512_store_si512(p, _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(y2, y)));
        _mm512_store_si512(ds, _mm512_permutexvar_epi16(order, narrow));
        _mm256_store_si256((__m256i *)(void *)(first + j), _mm512_castsi512_si256(narrow));
        if (!one) _mm256_store_si256((__m256i *)(void *)(first + BACK_FIRST + j), _mm512_extracti64x4_epi64(narrow, 1));
    }
}

/* The weights of `rows` rows from row g of the block on, for the n keys whose scores, dP and places these are. */
static void weigh(const Back *k, int g, int rows, float *x, const float *dp, int64_t n, uint16_t *p, uint16_t *ds,
                  uint16_t *first)
{
    float scale = k->scaled ? 1 : (float)k->s.a->scale;
    for (int r = 0; r < rows; r++)
        if (k->weigh[g + r].far)
            for (int64_t j = 0; j < n; j++) x[r * BACK_LEAD + j] = x[r * BACK_LEAD + j] * scale - k->weigh[g + r].lse;
    for (int r = 0; r < rows; r += 2) {
        int64_t pair = (g + r) / 2 * 32;
        if (r + 1 < rows)
            weigh_pair(false, x + r * BACK_LEAD, dp + r * BACK_LEAD, &k->weigh[g + r], n, p + pair, ds + pair,
                       first + r * BACK_FIRST);
        else
            weigh_pair(true, x + r * BACK_LEAD, dp + r * BACK_LEAD, &k->weigh[g + r], n, p + pair, ds + pair,
                       first + r * BACK_FIRST);
    }
}

/* Rows from .. to of P and dS are 0 for n keys. */
static void clear_pairs(const Back *k, int64_t at, int from, int to, int64_t n)
{
    for (int64_t j = 0; j < n && to > from; j += 16) {
        int64_t to_clear = (at + j) / 16 * BACK_NEXT + from / 2 * 32;
        memset(k->space.p + to_clear, 0, (size_t)(to - from) * 32);
        memset(k->space.ds + to_clear, 0, (size_t)(to - from) * 32);
    }
}

/* ------------------------------------------------------------------ products */

/* Scores and dP of `rows` rows from row g on and the panel of keys from m0 + at on, up to the last that bounds let any
 * of them see: their width; 0: none of the rows may see any. */
static int64_t panel_scores(const Back *k, int g, int rows, int64_t m0, int64_t at)
{
    const Sdpa *a = k->s.a;
    const BackSpace *w = &k->space;
    int64_t dp = padded(a->D, STEP), pe = padded(a->E, STEP), t = m0 + at, inner = 0, outer = k->s.M, high = t;
    for (int r = g; r < g + rows; r++) {
        inner = most(inner, k->row[r].low), outer = least(outer, k->row[r].high);
        high = most(high, k->row[r].high);
    }
    int64_t width = least(PANEL, padded(high - t, STEP)), n = least(width, k->s.M - t);
    bool clean = !k->scaled && !k->s.masked && t >= inner && t + width <= outer;
    if (!clean && !panel_live(&k->s, k->row + g, rows, t, n)) return 0;
    product(&(PairProduct){.c = w->scores + at,
                           .ldc = BACK_LEAD * 4,
                           .a = w->q + g * dp,
                           .lda = dp * 2,
                           .b = w->keys + t * dp,
                           .next = 16 * dp,
                           .K = a->D,
                           .columns = width,
                           .rows = rows});
    product(&(PairProduct){.c = w->dp + at,
                           .ldc = BACK_LEAD * 4,
                           .a = w->dout + g * pe,
                           .lda = pe * 2,
                           .b = w->values + t * pe,
                           .next = 16 * pe,
                           .K = a->E,
                           .columns = width,
                           .rows = rows});
    for (int r = 0; r < rows && !clean; r++)
        mask_row(&k->s, &k->row[g + r], w->scores + r * BACK_LEAD + at, t, n, width, k->scaled ? (float)a->scale : 1,
                 vec_set(0));
    return width;
}

/* sums (width, keys), sums_lead apart, += turned (width, rows) * rows from .. to of n keys' pairs. */
static void add_sums(const Back *k, float *sums, const uint16_t *turned, int64_t width, const uint16_t *pairs_of_keys,
                     int from, int to, int64_t n)
{
    int64_t lead = sums_lead(k->s.a);
    for (int64_t e = 0; e < width; e += GROUP)
        product(&(PairProduct){.c = sums + e * lead,
                               .ldc = lead * 4,
                               .a = turned + e * BACK_TURNED + from,
                               .lda = BACK_TURNED * 2,
                               .b = pairs_of_keys + from / 2 * 32,
                               .next = BACK_NEXT,
                               .K = to - from,
                               .columns = n,
                               .rows = (int)least(GROUP, width - e),
                               .add = true});
}

/* n keys from m0 + at on: what rows from .. to of the block add to their dk and dv. */
static void add_keys(const Back *k, float *sums, int64_t m0, int64_t at, int64_t n, int from, int to)
{
    const Sdpa *a = k->s.a;
    const BackSpace *w = &k->space;
    const uint16_t *p = w->p + at / 16 * BACK_NEXT, *ds = w->ds + at / 16 * BACK_NEXT;
    float *dk = sums + m0 + at, *dv = dk + padded(a->D, STEP) * sums_lead(a);
    if (k->d->dk) add_sums(k, dk, w->turned_q, a->D, ds, from, to, n);
    if (k->d->dv) add_sums(k, dv, w->turned_dout, a->E, p, from, to, n);
}

/* The block's rows and keys m0 .. end: what they add to dq, dk and dv. */
static void back_keys(const Back *k, float *sums, int64_t m0, int64_t end)
{
    enum { STEPS = BACK_KEYS / STEP };
    const BackSpace *w = &k->space;
    int64_t dp = padded(k->s.a->D, STEP), pm = padded(k->s.M, STEP), reach = least(padded(end - m0, PANEL), pm - m0);
    int from[STEPS] = {0}, to[STEPS] = {0}; /* rows that see something of so many keys */
    for (int g = 0; g < k->rows; g += GROUP) {
        int rows = (int)least(GROUP, k->rows - g);
        int64_t first = -1, last = 0;
        for (int64_t at = 0; at < end - m0; at += PANEL) {
            int64_t width = panel_scores(k, g, rows, m0, at);
            clear_pairs(k, at + width, g, g + (int)padded(rows, 2), least(PANEL, reach - at) - width);
            if (!width) continue;
            weigh(k, g, rows, w->scores + at, w->dp + at, width, w->p + at / 16 * BACK_NEXT,
                  w->ds + at / 16 * BACK_NEXT, w->first + at);
            for (int64_t i = at / STEP; i < (at + width) / STEP; i++) {
                if (to[i] == 0) from[i] = g;
                to[i] = g + (int)padded(rows, 2);
            }
            if (first < 0) first = at;
            last = at + width;
        }
        if (last > 0 && k->d->dq)
            product(&(PairProduct){.c = w->dq + g * dp,
                                   .ldc = dp * 4,
                                   .a = w->first + first,
                                   .lda = BACK_FIRST * 2,
                                   .b = w->keys_down + (m0 + first) * 16,
                                   .next = pm * 16,
                                   .K = last - first,
                                   .columns = dp,
                                   .rows = rows,
                                   .add = true});
    }
    clear_pairs(k, 0, (int)padded(k->rows, 2), (int)padded(k->rows, STEP), reach);
    for (int i = 0, next; i < STEPS; i = next) {
        for (next = i + 1; next < STEPS && from[next] == from[i] && to[next] == to[i];) next++;
        if (to[i]) add_keys(k, sums, m0, i * STEP, (next - i) * STEP, from[i], to[i]);
    }
}

/* Rows first .. first + count of the stack: their dq, and what they add to the sums of dk and dv. */
static void back_rows(Back *k, float *sums, int64_t first, int64_t count)
{
    int64_t low = k->s.M, high = 0;
    begin_rows(k, first, count);
    for (int r = 0; r < k->rows; r++) low = least(low, k->row[r].low), high = most(high, k->row[r].high);
    for (int64_t m0 = low / PANEL * PANEL; m0 < high; m0 += BACK_KEYS)
        back_keys(k, sums, m0, least(m0 + BACK_KEYS, high));
    end_rows(k, first);
}

/* ------------------------------------------------------------------ keys and values */

static void pack_back(const Back *k)
{
    pack_across(&k->s, key_at, k->s.a->D, k->space.keys);
    pack_across(&k->s, value_at, k->s.a->E, k->space.values);
    pack_down(&k->s, key_at, k->s.a->D, k->space.keys_down);
}

/* sums (width, keys) times `scale` to rows of `to`, `step` elements apart; 0 to keys that no query sees. */
static void write_keys(const Stack *s, const float *sums, int64_t width, float scale, char *to, int64_t step)
{
    int64_t lead = sums_lead(s->a);
    for (int64_t m = 0; m < s->q.M && s->live; m++) memset(to + m * step * 2, 0, (size_t)width * 2);
    for (int64_t m = 0; m < s->M; m += 16)
        for (int64_t d = 0; d < width; d += 16) {
            Vec x[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) x[i] = vec_at(sums + (d + i) * lead + m) * scale;
            vec_transpose(x);
            for (int64_t i = 0; i < 16 && m + i < s->M; i++)
                _mm256_mask_storeu_epi16(to + ((s->live ? s->live[m + i] : m + i) * step + d) * 2,
                                         (__mmask16)(width - d >= 16 ? 0xffff : (1 << (width - d)) - 1),
                                         (__m256i)_mm512_cvtneps_pbh((__m512)x[i]));
        }
}

static void write_stack(const SdpaBackward *d, const Stack *s, const float *sums)
{
    int64_t dp = padded(s->a->D, STEP);
    if (d->dk)
        write_keys(s, sums, s->a->D, (float)s->a->scale, (char *)d->dk + (s->b * d->dks[0] + s->kv * d->dks[1]) * 2,
                   d->dks[2]);
    if (d->dv)
        write_keys(s, sums + dp * sums_lead(s->a), s->a->E, 1,
                   (char *)d->dv + (s->b * d->dvs[0] + s->kv * d->dvs[1]) * 2, d->dvs[2]);
}

/* ------------------------------------------------------------------ threads */

static Stack back_stack(const Sdpa *a, char *room, int64_t stack)
{
    Stack s = {
        .a = a, .per = a->H / a->Hkv, .b = stack / a->Hkv, .kv = stack % a->Hkv, .added_room = (float *)(void *)room};
    s.live_room = (int32_t *)(void *)(s.added_room + padded(a->M, 16));
    s.q = sdpa_sequence(a, s.b);
    resolve_mask(&s);
    return s;
}

static void begin_stack(Back *k, const SdpaBackward *d, char *room, int64_t stack)
{
    int64_t used;
    k->d = d;
    k->s = back_stack(&d->f, room, stack);
    k->space = back_space(&d->f, room + mask_room(&d->f), &used);
    k->scaled = k->s.added || (k->s.masked && d->f.mask) || !(d->f.scale > 0);
    pack_back(k);
}

/* The sums of one part of the stack. */
static void sum_part(Back *k, int64_t part, float *sums)
{
    int64_t rows = stack_rows(k->s.a), end = least(rows, (part + 1) * part_rows(k->s.a));
    memset(sums, 0, (size_t)sums_of(k->s.a) * 4);
    for (int64_t r = part * part_rows(k->s.a); r < end; r += BACK_ROWS)
        back_rows(k, sums, r, least(BACK_ROWS, end - r));
}

static void add_part(const Sdpa *a, float *sums, const float *part)
{
    for (int64_t i = 0; i < sums_of(a); i += 16) vec_put(sums + i, vec_at(sums + i) + vec_at(part + i));
}

static void back_stacks(const SdpaBackward *d, char *space, int threads)
{
    const Sdpa *a = &d->f;
    int64_t each = back_room(a), stacks = a->B * a->Hkv;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        char *room = space + team_part() * each;
        Back k;
        if (pairs->enter) pairs->enter();
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t i = 0; i < stacks; i++) {
            begin_stack(&k, d, room, i);
            sum_part(&k, 0, k.space.sums);
            for (int64_t part = 1; part < parts_of_stack(a); part++) {
                sum_part(&k, part, k.space.part);
                add_part(a, k.space.sums, k.space.part);
            }
            write_stack(d, &k.s, k.space.sums);
        }
        if (pairs->leave) pairs->leave();
    }
}

/* Parts first, each into sums of its own, then stack by stack their total. */
static void back_parts(const SdpaBackward *d, char *space, int threads)
{
    const Sdpa *a = &d->f;
    int64_t each = back_room(a), stacks = a->B * a->Hkv, parts = parts_of_stack(a);
    float *sums = (float *)(void *)(space + threads * each);
#pragma omp parallel num_threads(threads)
    {
        char *room = space + team_part() * each;
        Back k;
        if (pairs->enter) pairs->enter();
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t i = 0; i < stacks * parts; i++) {
            begin_stack(&k, d, room, i / parts);
            sum_part(&k, i % parts, sums + i * sums_of(a));
        }
        if (pairs->leave) pairs->leave();
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < stacks; i++) {
        float *total = sums + i * parts * sums_of(a);
        for (int64_t part = 1; part < parts; part++) add_part(a, total, total + part * sums_of(a));
        Stack s = back_stack(a, space + team_part() * each, i);
        write_stack(d, &s, total);
    }
}

/* ------------------------------------------------------------------ entry */

static bool takes_back(const SdpaBackward *d) { return takes(&d->f) && !(d->f.softcap > 0) && !d->dmask; }

static int back_threads(const SdpaBackward *d, int threads)
{
    const Sdpa *a = &d->f;
    return (double)(a->B * a->H * a->N) * (double)a->M * (double)(a->D + a->E) < 1 << 17
               ? 1
               : threads; /* less than it takes to wake another */
}

static size_t backward_workspace(const SdpaBackward *d, int threads)
{
    if (!takes_back(d)) return below.backward_workspace(d, threads);
    int64_t parts = back_splits(&d->f, threads) ? d->f.B * d->f.Hkv * parts_of_stack(&d->f) * sums_of(&d->f) * 4 : 0;
    return (size_t)(threads * back_room(&d->f) + parts);
}

static void backward(const SdpaBackward *d, void *space, int threads)
{
    int n = back_threads(d, threads);
    if (!takes_back(d)) below.backward(d, space, threads);
    else if (back_splits(&d->f, n)) back_parts(d, space, n);
    else back_stacks(d, space, n);
}

/* After fill, which keeps the ISA level below. */
static void fill_back(SdpaKernels *k) { k->backward_workspace = backward_workspace, k->backward = backward; }
#endif
