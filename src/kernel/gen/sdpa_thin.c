/* Attention of few queries (a decoding step): keys and values are read once, from where they are, and nothing is
 * packed. Contract in kernel/sdpa.h, masks and threads in sdpa_stack.h; compiled once per ISA level.
 *
 * ROWS rows of the heads that share keys go together. LANES keys at a time: a product with a key leaves LANES partial
 * sums, which a transpose and LANES additions make the scores of all the keys. Weights are exp2 against the running
 * maximum; values are added up row by row.
 */
#include "kernel/gen/sdpa_stack.h"
#include "kernel/variant.h"

enum { ROWS = 4, VECTORS = 4, KEYS = 512, WIDTH = VECTORS * LANES };
static const float LOG2E = 1.44269504f;

typedef struct Space {
    float *scores, *queries, *out, *part;
} Space;

static int64_t row_width(int64_t n) { return padded(n, LANES); }

static Space space_in(const Sdpa *a, float *p)
{
    Space s = {.scores = p, .queries = p + ROWS * KEYS, .part = p + ROWS * (KEYS + row_width(a->D))};
    s.out = s.part + ROWS * LANES * LANES;
    return s;
}

static size_t room(const Sdpa *a)
{
    return (size_t)(ROWS * (KEYS + row_width(a->D) + LANES * LANES + row_width(a->E))) * sizeof(float);
}

static void pack(const Stack *s) { (void)s; }

INLINE Vec load(DType t, const char *p, int64_t at, int64_t n)
{
    p += at * (t == DT_F32 ? 4 : 2);
    return n - at >= LANES ? vec_load(t, p) : vec_load_some(t, p, n - at);
}

/* Memory is what a decoding step waits for: rows AHEAD of the one in work are asked for while it is. */
enum { AHEAD = 32 };

/* Partial sums of `rows` rows with 4 keys: part[row][key][lane]. */
INLINE void dots(DType t, int rows, const Stack *s, int64_t key, const float *queries, float *part)
{
    Vec acc[ROWS][4];
    const char *k[4];
    int64_t D = s->a->D, width = row_width(D);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        k[i] = key_at(s, least(key + i, s->M - 1));
        ask_for(key_at(s, least(key + i + AHEAD, s->M - 1)), D * (t == DT_F32 ? 4 : 2));
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows * 4; i++) acc[i / 4][i % 4] = vec_set(0);
    for (int64_t d = 0; d < D; d += LANES) {
        Vec y[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) y[i] = load(t, k[i], d, D);
#pragma GCC unroll 16
        for (int i = 0; i < rows * 4; i++)
            acc[i / 4][i % 4] = fused(acc[i / 4][i % 4], vec_at(queries + i / 4 * width + d), y[i % 4]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows * 4; i++) vec_put(part + (i / 4 * LANES + i % 4) * LANES, acc[i / 4][i % 4]);
}

/* Scores of keys t .. t + LANES; those after the last key repeat it. */
static void score(const Stack *s, int64_t t, const Space *p, int rows, float *scores)
{
    for (int64_t j = 0; j < LANES; j += 4) {
        float *part = p->part + j * LANES;
        if (s->a->t == DT_F32 && rows == 1) dots(DT_F32, 1, s, t + j, p->queries, part);
        else if (s->a->t == DT_F32) dots(DT_F32, ROWS, s, t + j, p->queries, part);
        else if (s->a->t == DT_BF16) dots(DT_BF16, ROWS, s, t + j, p->queries, part);
        else dots(DT_F16, ROWS, s, t + j, p->queries, part);
    }
    for (int r = 0; r < rows; r++) {
        Vec x[LANES], sum = vec_set(0);
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) x[i] = vec_at(p->part + (r * LANES + i) * LANES);
        vec_transpose(x);
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) sum += x[i];
        vec_put(scores + r * KEYS, sum);
    }
}

/* out[row][e ..] += weights of keys from .. to times their values, `vectors` vectors wide. */
INLINE void add_values(DType t, int rows, int vectors, const Stack *s, int64_t from, int64_t to, int64_t e,
                       const float *weights, float *out)
{
    Vec acc[ROWS][VECTORS];
    int64_t E = s->a->E, width = row_width(E);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) acc[r][v] = vec_at(out + r * width + e + v * LANES);
    for (int64_t j = from; j < to; j++) {
        const char *from_value = value_at(s, j);
        Vec y[VECTORS];
        if (e == 0) ask_for(value_at(s, least(j + AHEAD, s->M - 1)), E * (t == DT_F32 ? 4 : 2));
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            y[v] = vectors == VECTORS ? vec_load(t, from_value + (e + v * LANES) * (t == DT_F32 ? 4 : 2))
                                      : load(t, from_value, e + v * LANES, E);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) acc[r][v] = fused(acc[r][v], every(weights[r * KEYS + j - from]), y[v]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) vec_put(out + r * width + e + v * LANES, acc[r][v]);
}

static void values(const Stack *s, int rows, int64_t from, int64_t to, const float *weights, float *out)
{
    DType t = s->a->t;
    int64_t e = 0, E = s->a->E;
    for (; e + WIDTH <= E; e += WIDTH) {
        if (t == DT_F32 && rows == 1) add_values(DT_F32, 1, VECTORS, s, from, to, e, weights, out);
        else if (t == DT_F32) add_values(DT_F32, ROWS, VECTORS, s, from, to, e, weights, out);
        else if (t == DT_BF16) add_values(DT_BF16, ROWS, VECTORS, s, from, to, e, weights, out);
        else add_values(DT_F16, ROWS, VECTORS, s, from, to, e, weights, out);
    }
    for (; e < E; e += LANES) {
        if (t == DT_F32) add_values(DT_F32, ROWS, 1, s, from, to, e, weights, out);
        else if (t == DT_BF16) add_values(DT_BF16, ROWS, 1, s, from, to, e, weights, out);
        else add_values(DT_F16, ROWS, 1, s, from, to, e, weights, out);
    }
}

/* x = 2^((x - top) log2(e)), n scores, in whole vectors; their sum. */
static float row_exp(float *x, float top, int64_t n)
{
    Vec sum = vec_set(0);
    for (int64_t j = 0; j < n; j += LANES) {
        Vec y = vec_exp2((vec_at(x + j) - (top == -INFINITY ? 0 : top)) * LOG2E);
        vec_put(x + j, y);
        sum += y;
    }
    return vec_total(sum);
}

static void attend(const Stack *s, int64_t first, int64_t count)
{
    const Sdpa *a = s->a;
    Space p = space_in(a, s->room);
    Row row[ROWS];
    float top[ROWS], sum[ROWS] = {0};
    int rows = (int)count;
    int64_t low = s->M, high = 0, dw = row_width(a->D), ew = row_width(a->E);
    memset(p.out, 0, (size_t)(ROWS * ew) * sizeof(float));
    memset(p.queries, 0, (size_t)(ROWS * dw) * sizeof(float));
    memset(p.scores, 0, ROWS * KEYS * sizeof(float));
    for (int r = 0; r < rows; r++) {
        row[r] = stack_row(s, first + r);
        vec_row(a->t, p.queries + r * dw, row[r].q, a->D, (float)a->scale);
        low = least(low, row[r].low), high = most(high, row[r].high);
        top[r] = -INFINITY;
    }
    for (int64_t m0 = low / LANES * LANES; m0 < high; m0 += KEYS) {
        int64_t n = least(KEYS, high - m0);
        Vec tops[ROWS];
        for (int r = 0; r < rows; r++) tops[r] = vec_set(-INFINITY);
        for (int64_t t = 0; t < n; t += LANES) score(s, m0 + t, &p, rows, p.scores + t);
        for (int r = 0; r < rows; r++) {
            float *x = p.scores + r * KEYS, m;
            tops[r] = mask_row(s, &row[r], x, m0, least(n, s->M - m0), padded(n, LANES), 1, tops[r]);
            m = vec_largest(tops[r]);
            if (m > top[r]) {
                float less = top[r] == -INFINITY ? 0 : vm_exp(top[r] - m);
                for (int64_t e = 0; top[r] != -INFINITY && e < ew; e += LANES)
                    vec_put(p.out + r * ew + e, vec_at(p.out + r * ew + e) * less);
                sum[r] *= less;
                top[r] = m;
            }
            sum[r] += row_exp(x, top[r], padded(n, LANES));
        }
        values(s, rows, m0, m0 + n, p.scores, p.out);
    }
    for (int r = 0; r < rows; r++) {
        put_lse(&row[r], top[r], sum[r]);
        for (int64_t e = 0; e < a->E; e += LANES) {
            Vec x = vec_set(0);
            if (sum[r] != 0) x = vec_at(p.out + r * ew + e) * (1 / sum[r]); /* 0 * NaN is not 0 */
            if (e + LANES <= a->E) vec_store(a->t, row[r].out + e * element_size(a), x);
            else vec_store_some(a->t, row[r].out + e * element_size(a), x, a->E - e);
        }
    }
}

const SdpaWay *KERNEL(sdpa_thin)(void);
const SdpaWay *KERNEL(sdpa_thin)(void)
{
    static const SdpaWay way = {ROWS, ROWS, room, pack, attend, NULL, NULL};
    return &way;
}
