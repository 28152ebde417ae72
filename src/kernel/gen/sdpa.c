/* Attention in portable C with gcc's vector types; compiled once per rung. Contract in kernel/sdpa.h.
 *
 * Work is cut into tasks of QROWS * TASK_ROWS query rows of one head. A task packs that head's keys transposed and its values, both in
 * panels of TILE columns, then both products are the same micro-kernel: C (6, TILE) += A (6, K) * panel (K, TILE), the accumulators in
 * registers. Keys come in blocks of KEYS; each block's scores are exponentiated against the running maximum of their row.
 */
#include "kernel/sdpa.h"
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

/* n elements of x from `at` as floats. */
static inline void floats(float *to, DType t, const char *x, int64_t at, int64_t n)
{
    const uint16_t *h = (const uint16_t *)(const void *)x + at;
    if (t == DT_F32) memcpy(to, (const float *)(const void *)x + at, (size_t)n * 4);
    else if (t == DT_BF16)
        for (int64_t i = 0; i < n; i++) to[i] = bf16_to_f32(h[i]);
    else
        for (int64_t i = 0; i < n; i++) to[i] = f16_to_f32(h[i]);
}

/* Keys transposed: panel t holds keys t * TILE ..., as [d][key in panel]; missing keys are 0. */
static void pack_keys(float *to, const Sdpa *a, const SdpaSequence *q, int64_t head, float *row)
{
    for (int64_t t = 0; t < q->M; t += TILE) {
        int64_t n = q->M - t < TILE ? q->M - t : TILE;
        if (n < TILE) memset(to, 0, (size_t)(a->D * TILE) * sizeof *to);
        for (int64_t j = 0; j < n; j++) {
            floats(row, a->t, q->k, head * a->ks[1] + (t + j) * a->ks[2], a->D);
            for (int64_t d = 0; d < a->D; d++) to[d * TILE + j] = row[d];
        }
        to += a->D * TILE;
    }
}

/* Values: panel t holds columns t * width ..., as [key][column in panel]. */
static void pack_values(float *to, const Sdpa *a, const SdpaSequence *q, int64_t head)
{
    int64_t width = value_width(a->E);
    for (int64_t t = 0; t < a->E; t += width) {
        int64_t n = a->E - t < width ? a->E - t : width;
        for (int64_t m = 0; m < q->M; m++, to += width) {
            floats(to, a->t, q->v, head * a->vs[1] + m * a->vs[2] + t, n);
            for (int64_t e = n; e < width; e++) to[e] = 0;
        }
    }
}

typedef struct Space {
    float *keys, *values, *scores, *out, *query, *row;
} Space;

static int64_t per_thread(const Sdpa *a)
{
    int64_t pe = padded(a->E, value_width(a->E));
    return padded(padded(a->M, TILE) * a->D + a->M * pe + QROWS * (KEYS + TILE) + QROWS * pe + (QROWS + 1) * a->D, 16);
}

static size_t workspace(const Sdpa *a, int threads) { return (size_t)(per_thread(a) * threads) * sizeof(float); }

static Space split(const Sdpa *a, float *p)
{
    Space s;
    int64_t pe = padded(a->E, value_width(a->E));
    s.keys = p;
    s.values = s.keys + padded(a->M, TILE) * a->D;
    s.scores = s.values + a->M * pe;
    s.out = s.scores + QROWS * (KEYS + TILE);
    s.query = s.out + QROWS * pe;
    s.row = s.query + QROWS * a->D;
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

/* x (n) into element `at` of out and on. */
static inline void store(char *out, DType t, int64_t at, const float *x, int64_t n)
{
    uint16_t *h = (uint16_t *)(void *)out + at;
    if (t == DT_F32) memcpy((float *)(void *)out + at, x, (size_t)n * 4);
    else if (t == DT_BF16)
        for (int64_t i = 0; i < n; i++) h[i] = f32_to_bf16(x[i]);
    else
        for (int64_t i = 0; i < n; i++) h[i] = f32_to_f16(x[i]);
}

/* rows query rows from n0 of head (b, h); keys and values are packed. */
static void attend(const Sdpa *a, const SdpaSequence *q, const Space *s, int64_t b, int64_t h, int64_t n0, int rows)
{
    int64_t width = value_width(a->E), pe = padded(a->E, width), last = n0 + rows + a->upper < q->M ? n0 + rows + a->upper : q->M;
    int64_t first = n0 + a->lower > 0 ? (n0 + a->lower) / TILE * TILE : 0;
    float top[QROWS], sum[QROWS];
    for (int r = 0; r < rows; r++) {
        float *x = s->query + r * a->D;
        floats(x, a->t, q->q, h * a->qs[1] + (n0 + r) * a->qs[2], a->D);
        for (int64_t d = 0; d < a->D; d++) x[d] *= a->scale;
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
        for (int64_t t = 0; t < pe; t += width) product(rows, width, s->out + t, pe, s->scores, ld, s->values + t * q->M + m0 * width, n, true);
    }
    for (int r = 0; r < rows; r++) {
        float *x = s->out + r * pe, inverse = 1 / sum[r];
        for (int64_t e = 0; e < a->E; e++) x[e] = sum[r] == 0 ? 0 : x[e] * inverse; /* 0 * NaN is not 0 */
        store(q->out, a->t, h * a->os[1] + (n0 + r) * a->os[2], x, a->E);
    }
}

static void sdpa(const Sdpa *a, void *space, int threads)
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
        Space s = split(a, (float *)space + omp_get_thread_num() * each);
        int64_t head = task / chunks, b = head / a->H, h = head % a->H, kv = h / (a->H / a->Hkv);
        SdpaSequence q = sdpa_sequence(a, b);
        int64_t from = task % chunks * chunk, to = from + chunk < q.N ? from + chunk : q.N;
        if (from >= to) continue;
        pack_keys(s.keys, a, &q, kv, s.row);
        pack_values(s.values, a, &q, kv);
        for (int64_t n = from; n < to; n += QROWS) attend(a, &q, &s, b, h, n, to - n < QROWS ? (int)(to - n) : QROWS);
    }
}

void KERNEL(sdpa_fill)(SdpaKernels *k);
void KERNEL(sdpa_fill)(SdpaKernels *k) { *k = (SdpaKernels){workspace, sdpa}; }
