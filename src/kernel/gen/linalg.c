/* Attention in portable C with gcc's vector types; compiled once per rung. Contract in kernel/linalg.h.
 *
 * Work is cut into tasks of QROWS * TASK_ROWS query rows of one head. A task packs that head's keys transposed and its values, both in
 * panels of TILE columns, then both products are the same micro-kernel: C (6, TILE) += A (6, K) * panel (K, TILE), the accumulators in
 * registers. Keys come in blocks of KEYS; each block's scores are exponentiated against the running maximum of their row.
 */
#include "kernel/linalg.h"
#include <math.h>
#include <omp.h>
#include <string.h>
#include "kernel/gen/vmath.h"
#include "kernel/variant.h"

#if defined(__AVX512F__)
enum { LANES = 16, VECTORS = 4 };
#elif defined(__AVX2__)
enum { LANES = 8, VECTORS = 2 };
#else
enum { LANES = 4, VECTORS = 2 };
#endif
enum { QROWS = 6, TILE = LANES * VECTORS, KEYS = 512, TASK_ROWS = 32 };

typedef float Vec __attribute__((vector_size(LANES * 4), aligned(4)));

static int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* c[r][0 .. width) (+)= sum over k of a[r * lda + k] * b[k * width + ...], r < QROWS; width is `vectors` vectors */
static inline __attribute__((always_inline)) void micro(int rows, int vectors, float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                                                        int64_t K, bool add)
{
    Vec acc[QROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) acc[r][v] = add ? *(const Vec *)(c + r * ldc + v * LANES) : (Vec){0};
    for (int64_t k = 0; k < K; k++) {
        Vec y[VECTORS];
        for (int v = 0; v < vectors; v++) y[v] = *(const Vec *)(b + (k * vectors + v) * LANES);
        for (int r = 0; r < rows; r++) {
            float x = a[r * lda + k];
            for (int v = 0; v < vectors; v++) acc[r][v] += x * y[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) *(Vec *)(c + r * ldc + v * LANES) = acc[r][v];
}

/* The row count is a constant in each case: the accumulators stay in registers. */
static inline __attribute__((always_inline)) void rows_times(int rows, int vectors, float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                                                             int64_t K, bool add)
{
    switch (rows) {
    case 6: micro(6, vectors, c, ldc, a, lda, b, K, add); break;
    case 5: micro(5, vectors, c, ldc, a, lda, b, K, add); break;
    case 4: micro(4, vectors, c, ldc, a, lda, b, K, add); break;
    case 3: micro(3, vectors, c, ldc, a, lda, b, K, add); break;
    case 2: micro(2, vectors, c, ldc, a, lda, b, K, add); break;
    default: micro(1, vectors, c, ldc, a, lda, b, K, add); break;
    }
}

static void product(int rows, int64_t width, float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t K, bool add)
{
    if (width == TILE) rows_times(rows, VECTORS, c, ldc, a, lda, b, K, add);
    else rows_times(rows, VECTORS / 2, c, ldc, a, lda, b, K, add);
}

/* Panels of values are half as wide where the head fits. */
static int64_t value_width(int64_t E) { return E <= TILE / 2 ? TILE / 2 : TILE; }

/* Keys transposed: panel t holds keys t * TILE ..., as [d][key in panel]; missing keys are 0. */
static void pack_keys(float *to, const float *k, int64_t row, int64_t M, int64_t D)
{
    for (int64_t t = 0; t < M; t += TILE) {
        int64_t n = M - t < TILE ? M - t : TILE;
        if (n < TILE) memset(to, 0, (size_t)(D * TILE) * sizeof *to);
        for (int64_t j = 0; j < n; j++) {
            const float *from = k + (t + j) * row;
            for (int64_t d = 0; d < D; d++) to[d * TILE + j] = from[d];
        }
        to += D * TILE;
    }
}

/* Values: panel t holds columns t * width ..., as [key][column in panel]. */
static void pack_values(float *to, const float *v, int64_t row, int64_t M, int64_t E)
{
    int64_t width = value_width(E);
    for (int64_t t = 0; t < E; t += width) {
        int64_t n = E - t < width ? E - t : width;
        for (int64_t m = 0; m < M; m++, to += width) {
            for (int64_t e = 0; e < n; e++) to[e] = v[m * row + t + e];
            for (int64_t e = n; e < width; e++) to[e] = 0;
        }
    }
}

typedef struct Space {
    float *keys, *values, *scores, *out, *query;
} Space;

static int64_t per_thread(const Sdpa *a)
{
    int64_t pe = padded(a->E, value_width(a->E));
    return padded(a->M, TILE) * a->D + a->M * pe + QROWS * (KEYS + TILE) + QROWS * pe + QROWS * a->D + 64;
}

static int64_t workspace(const Sdpa *a) { return per_thread(a); }

static Space split(const Sdpa *a, float *p)
{
    Space s;
    int64_t pe = padded(a->E, value_width(a->E));
    s.keys = p;
    s.values = s.keys + padded(a->M, TILE) * a->D;
    s.scores = s.values + a->M * pe;
    s.out = s.scores + QROWS * (KEYS + TILE);
    s.query = s.out + QROWS * pe;
    return s;
}

static void add_mask(const Sdpa *a, float *s, int64_t at, int64_t n)
{
    int64_t step = a->ms[3];
    if (a->mask) {
        const float *m = a->mask + at;
        if (step == 1)
            for (int64_t j = 0; j < n; j++) s[j] += m[j];
        else
            for (int64_t j = 0; j < n; j++) s[j] += m[j * step];
    } else if (a->truth) {
        const uint8_t *m = a->truth + at;
        for (int64_t j = 0; j < n; j++) s[j] = m[j * step] ? s[j] : -INFINITY;
    }
}

static float row_max(const float *s, int64_t n)
{
    float m = -INFINITY;
#pragma omp simd reduction(max : m)
    for (int64_t j = 0; j < n; j++) m = s[j] > m ? s[j] : m;
    return m;
}

/* s = exp(s - top); the sum of it. n is a multiple of LANES. */
static float row_exp(float *s, float top, int64_t n)
{
    float part[LANES] = {0}, sum = 0;
    for (int64_t j = 0; j < n; j += LANES)
        for (int l = 0; l < LANES; l++) {
            float e = vm_exp_down(s[j + l] - top);
            s[j + l] = e;
            part[l] += e;
        }
    for (int l = 0; l < LANES; l++) sum += part[l];
    return sum;
}

/* rows query rows from n0 of head (b, h); keys and values are packed. */
static void attend(const Sdpa *a, const Space *s, int64_t b, int64_t h, int64_t n0, int rows)
{
    int64_t width = value_width(a->E), pe = padded(a->E, width), last = n0 + rows + a->upper < a->M ? n0 + rows + a->upper : a->M;
    int64_t first = n0 + a->lower > 0 ? (n0 + a->lower) / TILE * TILE : 0;
    float top[QROWS], sum[QROWS];
    for (int r = 0; r < rows; r++) {
        const float *q = a->q + b * a->qs[0] + h * a->qs[1] + (n0 + r) * a->qs[2];
        for (int64_t d = 0; d < a->D; d++) s->query[r * a->D + d] = q[d] * a->scale;
        top[r] = -INFINITY;
        sum[r] = 0;
    }
    memset(s->out, 0, (size_t)(rows * pe) * sizeof *s->out);
    for (int64_t m0 = first; m0 < last; m0 += KEYS) {
        int64_t n = last - m0 < KEYS ? last - m0 : KEYS, ld = KEYS + TILE, whole = padded(n, LANES);
        for (int64_t t = 0; t < n; t += TILE) product(rows, TILE, s->scores + t, ld, s->query, a->D, s->keys + (m0 + t) * a->D, a->D, false);
        for (int r = 0; r < rows; r++) {
            float *row = s->scores + r * ld;
            if (a->softcap > 0)
                for (int64_t j = 0; j < n; j++) row[j] = a->softcap * vm_tanh(row[j] / a->softcap);
            add_mask(a, row, b * a->ms[0] + h * a->ms[1] + (n0 + r) * a->ms[2] + m0 * a->ms[3], n);
            int64_t from = n0 + r + a->lower - m0, to = n0 + r + a->upper + 1 - m0; /* allowed keys of this block */
            for (int64_t j = 0; j < from && j < n; j++) row[j] = -INFINITY;
            for (int64_t j = to < 0 ? 0 : to; j < n; j++) row[j] = -INFINITY;
            for (int64_t j = n; j < whole; j++) row[j] = -INFINITY;
            float m = row_max(row, whole), new_top = m > top[r] ? m : top[r], base = new_top == -INFINITY ? 0 : new_top;
            if (top[r] != new_top && top[r] != -INFINITY) {
                float shrink = vm_exp(top[r] - new_top);
                sum[r] *= shrink;
                for (int64_t e = 0; e < pe; e++) s->out[r * pe + e] *= shrink;
            }
            top[r] = new_top;
            sum[r] += row_exp(row, base, whole);
        }
        for (int64_t t = 0; t < pe; t += width) product(rows, width, s->out + t, pe, s->scores, ld, s->values + t * a->M + m0 * width, n, true);
    }
    for (int r = 0; r < rows; r++) {
        float *out = a->out + ((b * a->H + h) * a->N + n0 + r) * a->E, inverse = 1 / sum[r];
        for (int64_t e = 0; e < a->E; e++) out[e] = sum[r] == 0 ? 0 : s->out[r * pe + e] * inverse; /* 0 * NaN is not 0 */
    }
}

static void sdpa(const Sdpa *a, float *space, int threads)
{
    int64_t heads = a->B * a->H, chunk = QROWS * TASK_ROWS, chunks = (a->N + chunk - 1) / chunk;
    if (heads >= threads || chunks < 2) { /* whole heads: each is packed once */
        chunk = a->N;
        chunks = 1;
    }
    int64_t tasks = heads * chunks, each = per_thread(a);
    if (heads * a->N * a->M * (a->D + a->E) < 1 << 18) threads = 1; /* less than it takes to wake another */
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; task++) {
        Space s = split(a, space + omp_get_thread_num() * each);
        int64_t head = task / chunks, b = head / a->H, h = head % a->H, kv = h / (a->H / a->Hkv);
        int64_t from = task % chunks * chunk, to = from + chunk < a->N ? from + chunk : a->N;
        pack_keys(s.keys, a->k + b * a->ks[0] + kv * a->ks[1], a->ks[2], a->M, a->D);
        pack_values(s.values, a->v + b * a->vs[0] + kv * a->vs[1], a->vs[2], a->M, a->E);
        for (int64_t n = from; n < to; n += QROWS) attend(a, &s, b, h, n, to - n < QROWS ? (int)(to - n) : QROWS);
    }
}

/* ------------------------------------------------------------------ rotary embedding */

/* Halves: cos and sin of the first and of the second. */
static void rotate_halves(float *restrict y, const float *restrict x, int64_t h, const float *c0, const float *c1, const float *s0, const float *s1)
{
    for (int64_t i = 0; i < h; i++) {
        float a = x[i], b = x[i + h];
        y[i] = a * c0[i] - b * s0[i];
        y[i + h] = b * c1[i] + a * s1[i];
    }
}

/* Pairs: cos and sin of element 2 i at [2 i], or of both at [i]. */
static void rotate_pairs(float *restrict y, const float *restrict x, int64_t h, const float *restrict c, const float *restrict s)
{
    for (int64_t i = 0; i < h; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * c[2 * i] - b * s[2 * i];
        y[2 * i + 1] = b * c[2 * i + 1] + a * s[2 * i + 1];
    }
}

static void rotate_pairs_one(float *restrict y, const float *restrict x, int64_t h, const float *c, int64_t cd, const float *s, int64_t sd)
{
    for (int64_t i = 0; i < h; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * c[i * cd] - b * s[i * sd];
        y[2 * i + 1] = b * c[i * cd + (cd == 2)] + a * s[i * sd + (sd == 2)];
    }
}

static void rotary_rows(const Rotary *r, int64_t from, int64_t to)
{
    int64_t at[MAX_RANK], left = from, xo = 0, co = 0, so = 0, h = r->D / 2;
    for (int k = r->rank - 1; k >= 0; k--) {
        at[k] = left % r->shape[k];
        left /= r->shape[k];
        xo += at[k] * r->xs[k];
        co += at[k] * r->cs[k];
        so += at[k] * r->ss[k];
    }
    for (int64_t n = from; n < to; n++) {
        const float *x = (const float *)r->x + xo, *c = (const float *)r->cos + co, *s = (const float *)r->sin + so;
        float *y = (float *)r->out + n * r->D;
        if (!r->interleaved) rotate_halves(y, x, h, c, r->one_cos ? c : c + h, s, r->one_sin ? s : s + h);
        else if (!r->one_cos && !r->one_sin) rotate_pairs(y, x, h, c, s);
        else rotate_pairs_one(y, x, h, c, r->one_cos ? 1 : 2, s, r->one_sin ? 1 : 2);
        for (int k = r->rank - 1; k >= 0; k--) { /* the next row */
            xo += r->xs[k];
            co += r->cs[k];
            so += r->ss[k];
            if (++at[k] < r->shape[k]) break;
            xo -= r->shape[k] * r->xs[k];
            co -= r->shape[k] * r->cs[k];
            so -= r->shape[k] * r->ss[k];
            at[k] = 0;
        }
    }
}

static void rotary(const Rotary *r, int threads)
{
    int64_t rows = 1, chunk;
    for (int i = 0; i < r->rank; i++) rows *= r->shape[i];
    if (rows == 0) return;
    if (rows * r->D < 1 << 15) threads = 1;
    chunk = (rows + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int t = 0; t < threads; t++) rotary_rows(r, t * chunk < rows ? t * chunk : rows, (t + 1) * chunk < rows ? (t + 1) * chunk : rows);
}

void KERNEL(linalg_fill)(LinalgKernels *k);

void KERNEL(linalg_fill)(LinalgKernels *k)
{
    k->sdpa_workspace = workspace;
    k->sdpa_f32 = sdpa;
    k->rotary_f32 = rotary;
}
