/* Attention in portable C with gcc's vector types; compiled once per rung. Contract in kernel/sdpa.h.
 *
 * The heads that share keys and values are one stack of query rows. Keys are packed transposed and values as they are, both in panels of up to
 * TILE columns, once for the stack. Then both products are the same micro-kernel, C (ROWS, TILE) += A (ROWS, K) * panel (K, TILE), the
 * accumulators in registers. BLOCK query rows go over the keys together, KEYS at a time: panel by panel their scores, which also leaves each
 * row's maximum; then row by row exp2 against the running maximum; then the product with the values, which takes up the change of the maximum
 * as it reads what it adds to, and 1 / sum as it writes the last time.
 * A mask that is the same for every query is resolved while packing: keys that it forbids are not packed at all. Other masks and bounds are
 * looked at per panel: what allows nothing is not computed, what allows everything is not touched.
 */
#include "kernel/sdpa.h"
#include "kernel/gen/sdpa_vec.h"
#include "kernel/gen/vmath.h"
#include "kernel/variant.h"

#if defined(__AVX512F__)
enum { ROWS = 6, VECTORS = 4, BLOCK = 24 };
#else
enum { ROWS = 6, VECTORS = 2, BLOCK = 24 };
#endif
enum { TILE = LANES * VECTORS, KEYS = 512, LEAD = KEYS + LANES }; /* rows of scores LEAD apart: 2048 bytes apart they would share few sets of the cache */
static const float LOG2E = 1.44269504f;

static int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* ------------------------------------------------------------------ micro-kernel */

typedef struct Product {
    const float *a, *b;
    int64_t lda, K;
    const float *from;  /* what is added to, a row times its shrink; shrink NULL: 0 */
    const float *shrink;
    const float *times; /* the rows' factors of the result; NULL: 1 */
    float *to;
    int64_t ldf, ldt;
    float *tops;        /* (rows, LANES): the maxima of the columns that a lane has seen; NULL: not wanted */
} Product;

/* Unrolled whatever the compiler thinks of it: the accumulators must be registers. */
#define EACH_ROW _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
#define EACH_VECTOR _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++)

INLINE void step(int rows, int vectors, Vec acc[ROWS][VECTORS], const float *a, int64_t lda, const float *b)
{
    Vec y[VECTORS];
    EACH_VECTOR y[v] = vec_at(b + v * LANES);
    EACH_ROW EACH_VECTOR acc[r][v] += a[r * lda] * y[v];
}

/* to[r][0 .. vectors * LANES) = (from[r] * shrink[r] + sum over k of a[r][k] * b[k]) * times[r]; b is a panel of that width. Sums go over k in order. */
INLINE void micro(int rows, int vectors, const Product *p)
{
    Vec acc[ROWS][VECTORS];
    const float *a = p->a, *b = p->b;
    int64_t K = p->K, lda = p->lda, k = 0;
    EACH_ROW EACH_VECTOR acc[r][v] = vec_set(0);
    if (p->shrink)
        EACH_ROW EACH_VECTOR acc[r][v] = vec_at(p->from + r * p->ldf + v * LANES) * p->shrink[r];
    for (; k + 1 < K; k += 2) {
        step(rows, vectors, acc, a + k, lda, b + k * vectors * LANES);
        step(rows, vectors, acc, a + k + 1, lda, b + (k + 1) * vectors * LANES);
    }
    if (k < K) step(rows, vectors, acc, a + k, lda, b + k * vectors * LANES);
    if (p->times)
        EACH_ROW EACH_VECTOR acc[r][v] *= p->times[r];
    EACH_ROW EACH_VECTOR vec_put(p->to + r * p->ldt + v * LANES, acc[r][v]);
    if (!p->tops) return;
    EACH_ROW
    {
        Vec top = vec_at(p->tops + r * LANES);
        EACH_VECTOR top = vec_max(acc[r][v], top);
        vec_put(p->tops + r * LANES, top);
    }
}

/* The row count is a constant in each case: the accumulators stay in registers. */
INLINE void rows_times(int rows, int vectors, const Product *p)
{
    switch (rows) {
    case 6: micro(6, vectors, p); break;
    case 5: micro(5, vectors, p); break;
    case 4: micro(4, vectors, p); break;
    case 3: micro(3, vectors, p); break;
    case 2: micro(2, vectors, p); break;
    default: micro(1, vectors, p); break;
    }
}

static void product(int rows, int vectors, const Product *p)
{
    switch (vectors) {
#if defined(__AVX512F__)
    case 4: rows_times(rows, 4, p); break;
    case 3: rows_times(rows, 3, p); break;
#endif
    case 2: rows_times(rows, 2, p); break;
    default: rows_times(rows, 1, p); break;
    }
}

/* Vectors of the panel that begins at column t of n. */
static int panel_vectors(int64_t t, int64_t n) { return (int)least(VECTORS, (n - t + LANES - 1) / LANES); }

/* ------------------------------------------------------------------ what a thread has */

/* A stack of rows: head h, query n is row (h - first head) * N + n. `live` are the keys that were packed, in order; NULL: all. */
typedef struct Stack {
    const Sdpa *a;
    SdpaSequence q;
    int64_t b, kv, per, M;
    const int32_t *live;
    const float *added; /* the mask of the packed keys when it is the same for all queries; NULL: none is left */
    bool masked;        /* the mask is looked at per panel */
    float *keys, *values, *scores, *out, *queries;
    int32_t *live_room;
    float *added_room;
} Stack;

static int64_t values_width(int64_t E) { return padded(E, LANES); }

static int64_t per_thread(const Sdpa *a)
{
    int64_t pm = padded(a->M, LANES), pe = values_width(a->E);
    return padded(pm * a->D + a->M * pe + BLOCK * LEAD + BLOCK * pe + BLOCK * padded(a->D, LANES) + 2 * pm + 8 * LANES, LANES);
}

static size_t workspace(const Sdpa *a, int threads) { return (size_t)(per_thread(a) * threads) * sizeof(float); }

static Stack stack_in(const Sdpa *a, float *p)
{
    Stack s = {.a = a};
    int64_t pm = padded(a->M, LANES), pe = values_width(a->E);
    s.scores = p;
    s.queries = s.scores + BLOCK * LEAD;
    s.keys = s.queries + padded(BLOCK * padded(a->D, LANES), LANES);
    s.values = s.keys + pm * a->D;
    s.out = s.values + a->M * pe;
    s.added_room = s.out + BLOCK * pe;
    s.live_room = (int32_t *)(void *)(s.added_room + pm);
    return s;
}

/* ------------------------------------------------------------------ packing */

static int64_t key_row(const Stack *s, int64_t j) { return s->live ? s->live[j] : j; }

/* The same mask for all queries of the stack, and no bounds: which keys are allowed, and what is added to their scores. */
static void resolve_mask(Stack *s, int64_t h)
{
    const Sdpa *a = s->a;
    bool bounded = a->lower > -s->q.N || a->upper < s->q.M - 1;
    int64_t at = s->b * a->ms[0] + h * a->ms[1], n = 0;
    s->M = s->q.M;
    s->live = NULL;
    s->added = NULL;
    s->masked = a->mask || a->truth;
    if (!s->masked || bounded || (a->ms[2] && s->q.N > 1) || (a->ms[1] && s->per > 1)) return;
    bool zero = true;
    for (int64_t j = 0; j < s->q.M; j++) {
        float x = a->mask ? a->mask[at + j * a->ms[3]] : a->truth[at + j * a->ms[3]] ? 0 : -INFINITY;
        s->live_room[n] = (int32_t)j;
        s->added_room[n] = x;
        n += x != -INFINITY;
        zero &= x == 0 || x == -INFINITY;
    }
    s->masked = false;
    s->M = n;
    if (n < s->q.M) s->live = s->live_room;
    if (!zero) s->added = s->added_room;
}

/* LANES keys from key j on, LANES elements of each, transposed. */
INLINE void square(DType t, const Stack *s, const char *from, int64_t j, float *to, int64_t width)
{
    Vec x[LANES];
    int64_t row = s->a->ks[2] * (t == DT_F32 ? 4 : 2);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) x[i] = vec_load(t, from + key_row(s, j + i) * row);
    vec_transpose(x);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) vec_put(to + i * width, x[i]);
}

static void pack_square(const Stack *s, const char *from, int64_t j, float *to, int64_t width)
{
    if (s->a->t == DT_F32) square(DT_F32, s, from, j, to, width);
    else if (s->a->t == DT_BF16) square(DT_BF16, s, from, j, to, width);
    else square(DT_F16, s, from, j, to, width);
}

/* `keys` keys, n elements of each; the other keys are 0. */
static void pack_part(const Stack *s, const char *from, int64_t j, int64_t keys, int64_t n, float *to, int64_t width)
{
    float row[LANES];
    for (int64_t i = 0; i < LANES; i++) {
        vec_put(row, vec_set(0));
        if (i < keys) vec_put(row, vec_load_some(s->a->t, from + key_row(s, j + i) * s->a->ks[2] * (s->a->t == DT_F32 ? 4 : 2), n));
        for (int64_t d = 0; d < n; d++) to[d * width + i] = row[d];
    }
}

/* Keys transposed: panel t holds keys t * TILE ..., as [d][key in panel]; missing keys are 0. */
static void pack_keys(const Stack *s)
{
    const Sdpa *a = s->a;
    int64_t size = a->t == DT_F32 ? 4 : 2, D = a->D;
    const char *k = s->q.k + s->kv * a->ks[1] * size;
    float *to = s->keys;
    for (int64_t t = 0; t < s->M; t += TILE) {
        int64_t width = panel_vectors(t, s->M) * LANES;
        for (int64_t j = 0; j < width; j += LANES)
            for (int64_t d = 0; d < D; d += LANES) {
                int64_t n = least(LANES, D - d), keys = least(LANES, s->M - t - j);
                const char *from = k + d * size;
                if (n == LANES && keys == LANES) pack_square(s, from, t + j, to + d * width + j, width);
                else pack_part(s, from, t + j, keys, n, to + d * width + j, width);
            }
        to += D * width;
    }
}

/* Values: panel t holds columns t * TILE ..., as [key][column in panel]. */
static void pack_values(const Stack *s)
{
    const Sdpa *a = s->a;
    int64_t size = a->t == DT_F32 ? 4 : 2;
    const char *v = s->q.v + s->kv * a->vs[1] * size;
    float *to = s->values;
    for (int64_t t = 0; t < a->E; t += TILE) {
        int64_t width = panel_vectors(t, a->E) * LANES;
        for (int64_t m = 0; m < s->M; m++, to += width) vec_row(a->t, to, v + (key_row(s, m) * a->vs[2] + t) * size, least(width, a->E - t), 1);
    }
}

/* ------------------------------------------------------------------ one panel's mask */

/* ROWS rows or fewer that go together. */
typedef struct Group {
    int rows;
    int64_t low, high;        /* keys that any of the rows may see */
    int64_t inner, outer;     /* keys that all of them may see */
    int64_t n[ROWS], masked[ROWS]; /* the query; where its mask begins */
    float *scores, *out, *queries;
    char *first;   /* where its first row goes */
    bool together; /* all rows are of one head */
    bool begun, done, written;
    float top[ROWS], sum[ROWS][LANES], tops[ROWS][LANES];
} Group;

/* Does the mask allow any of these rows any of keys t .. t + n? Ends at the first that it does. */
static bool panel_live(const Stack *s, const Group *g, int64_t t, int64_t n)
{
    const Sdpa *a = s->a;
    for (int r = 0; s->masked && r < g->rows; r++) {
        int64_t from = most(t, g->n[r] + a->lower), to = least(t + n, g->n[r] + a->upper + 1);
        for (int64_t j = from; j < to; j++) {
            int64_t at = g->masked[r] + j * a->ms[3];
            if (a->mask ? a->mask[at] != -INFINITY : a->truth[at] != 0) return true;
        }
    }
    return !s->masked;
}

/* Softcap, mask and bounds on the scores of keys t .. t + n, and their maxima; `width` scores lie there. */
static void mask_panel(const Stack *s, Group *g, float *scores, int64_t t, int64_t n, int64_t width)
{
    const Sdpa *a = s->a;
    for (int r = 0; r < g->rows; r++) {
        float *restrict x = scores + r * LEAD;
        int64_t step = a->ms[3], from = g->n[r] + a->lower - t, to = least(n, g->n[r] + a->upper + 1 - t);
        if (a->softcap > 0)
            for (int64_t j = 0; j < n; j++) x[j] = a->softcap * vm_tanh(x[j] / a->softcap);
        if (s->added)
            for (int64_t j = 0; j < n; j++) x[j] += s->added[t + j];
        if (s->masked && a->mask) {
            const float *m = a->mask + g->masked[r] + t * step;
            if (step == 1)
                for (int64_t j = 0; j < n; j++) x[j] += m[j];
            else
                for (int64_t j = 0; j < n; j++) x[j] += m[j * step];
        } else if (s->masked) {
            const uint8_t *m = a->truth + g->masked[r] + t * step;
            if (step == 1)
                for (int64_t j = 0; j < n; j++) x[j] = m[j] ? x[j] : -INFINITY;
            else
                for (int64_t j = 0; j < n; j++) x[j] = m[j * step] ? x[j] : -INFINITY;
        }
        Vec top = vec_at(g->tops[r]);
        for (int64_t j = 0; j < width; j += LANES) {
            Vec y = vec_at(x + j);
            if (j < from || j + LANES > to) vec_put(x + j, y = vec_between(y, j, from, to));
            top = vec_max(y, top);
        }
        vec_put(g->tops[r], top);
    }
}

/* ------------------------------------------------------------------ attention */

/* s = 2^(s log2(e) - top log2(e)), n scores, in whole vectors; its sum, lane by lane, is added. */
static void row_exp(float *s, float top, int64_t n, float *sum)
{
    float base = top == -INFINITY ? 0 : top * LOG2E;
    Vec total = vec_at(sum), other = {0};
    if (fabsf(top) > 1e3f && !isinf(top)) { /* a mask hides all: base is rounded, a fused product is not, and their difference may be huge */
        for (int64_t j = 0; j < n; j++) s[j] -= top;
        base = 0;
    }
    for (int64_t j = 0; j < n; j += 2 * LANES) {
        Vec x = vec_exp2(vec_at(s + j) * LOG2E - base);
        vec_put(s + j, x);
        total += x;
        if (j + LANES < n) {
            x = vec_exp2(vec_at(s + j + LANES) * LOG2E - base);
            vec_put(s + j + LANES, x);
            other += x;
        }
    }
    vec_put(sum, total + other);
}

/* The scores of keys from .. to of the group's rows are in place: their weights, and what they add to the result. */
static void take_in(const Stack *s, Group *g, int64_t m0, int64_t from, int64_t to, bool last)
{
    const Sdpa *a = s->a;
    int64_t pe = values_width(a->E), offset = 0;
    float shrink[ROWS], times[ROWS];
    bool direct = last && a->t == DT_F32 && a->E % LANES == 0 && g->together;
    for (int r = 0; r < g->rows; r++) {
        float m = vec_largest(vec_at(g->tops[r])), top = m > g->top[r] ? m : g->top[r];
        shrink[r] = g->top[r] == top || g->top[r] == -INFINITY ? 1 : vm_exp(g->top[r] - top);
        g->top[r] = top;
    }
    for (int r = 0; r < g->rows; r++) {
        if (g->begun) vec_put(g->sum[r], vec_at(g->sum[r]) * shrink[r]);
        row_exp(g->scores + r * LEAD + from - m0, g->top[r], padded(to - from, LANES), g->sum[r]);
        if (!last) continue;
        float sum = vec_total(vec_at(g->sum[r]));
        times[r] = 1 / sum;
        direct &= sum != 0;
    }
    for (int64_t t = 0; t < a->E; t += TILE) {
        int vectors = panel_vectors(t, a->E), width = vectors * LANES;
        Product p = {.a = g->scores + from - m0, .lda = LEAD, .K = to - from, .b = s->values + offset + from * width, .from = g->out + t, .ldf = pe,
                     .shrink = g->begun ? shrink : NULL, .times = last ? times : NULL, .to = g->out + t, .ldt = pe};
        if (direct) p.to = (float *)(void *)g->first + t, p.ldt = a->os[2];
        product(g->rows, vectors, &p);
        offset += s->M * width;
    }
    g->begun = true;
    g->done = last;
    g->written = direct;
}

static char *out_row(const Stack *s, int64_t row)
{
    const Sdpa *a = s->a;
    int64_t h = s->kv * s->per + row / s->q.N;
    return s->q.out + (h * a->os[1] + row % s->q.N * a->os[2]) * (a->t == DT_F32 ? 4 : 2);
}

static void write_out(const Stack *s, Group *g, int64_t row)
{
    const Sdpa *a = s->a;
    int64_t pe = values_width(a->E), size = a->t == DT_F32 ? 4 : 2;
    for (int r = 0; r < g->rows && !g->written; r++) {
        char *out = out_row(s, row + r);
        float sum = vec_total(vec_at(g->sum[r])), times = g->done ? 1 : 1 / sum;
        for (int64_t e = 0; e < a->E; e += LANES) {
            Vec x = vec_set(0);
            if (sum != 0) x = vec_at(g->out + r * pe + e) * times; /* 0 * NaN is not 0 */
            if (e + LANES <= a->E) vec_store(a->t, out + e * size, x);
            else vec_store_some(a->t, out + e * size, x, a->E - e);
        }
    }
}

static void begin(const Stack *s, Group *g, int64_t row)
{
    const Sdpa *a = s->a;
    int64_t size = a->t == DT_F32 ? 4 : 2;
    g->begun = g->done = g->written = false;
    g->first = out_row(s, row);
    g->together = row / s->q.N == (row + g->rows - 1) / s->q.N;
    g->low = s->M, g->high = 0, g->inner = 0, g->outer = s->M;
    for (int r = 0; r < g->rows; r++) {
        int64_t h = s->kv * s->per + (row + r) / s->q.N, n = (row + r) % s->q.N, low = most(0, n + a->lower), high = least(s->M, n + a->upper + 1);
        const char *q = s->q.q + (h * a->qs[1] + n * a->qs[2]) * size;
        float *to = g->queries + r * a->D;
        g->n[r] = n;
        g->masked[r] = s->b * a->ms[0] + h * a->ms[1] + n * a->ms[2];
        g->low = least(g->low, low), g->high = most(g->high, high);
        g->inner = most(g->inner, low), g->outer = least(g->outer, high);
        g->top[r] = -INFINITY;
        vec_put(g->sum[r], vec_set(0));
        vec_row(a->t, to, q, a->D, a->scale); /* the last vector may reach into the next row, which comes later */
    }
}

/* `count` rows of the stack from `row` on. */
static void attend(const Stack *s, int64_t row, int64_t count)
{
    const Sdpa *a = s->a;
    Group group[BLOCK / ROWS];
    int groups = (int)((count + ROWS - 1) / ROWS);
    int64_t low = s->M, high = 0, pe = values_width(a->E);
    bool every = !s->masked && !s->added && !(a->softcap > 0);
    for (int i = 0; i < groups; i++) {
        Group *g = &group[i];
        g->rows = (int)least(ROWS, count - i * ROWS);
        g->scores = s->scores + i * ROWS * LEAD;
        g->out = s->out + i * ROWS * pe;
        g->queries = s->queries + i * ROWS * a->D;
        begin(s, g, row + i * ROWS);
        low = least(low, g->low);
        high = most(high, g->high);
    }
    for (int64_t m0 = low / TILE * TILE; m0 < high; m0 += KEYS) {
        int64_t end = least(m0 + KEYS, high), from[BLOCK / ROWS], to[BLOCK / ROWS];
        for (int i = 0; i < groups; i++) {
            from[i] = to[i] = -1;
            for (int r = 0; r < group[i].rows; r++) vec_put(group[i].tops[r], vec_set(-INFINITY));
        }
        for (int64_t t = m0; t < end; t += TILE) {
            int vectors = panel_vectors(t, s->M);
            int64_t width = vectors * LANES, n = least(width, s->M - t);
            for (int i = 0; i < groups; i++) {
                Group *g = &group[i];
                float *scores = g->scores + t - m0;
                if (g->high <= t || g->low >= t + n) continue;
                if (!panel_live(s, g, t, n)) {
                    for (int r = 0; r < g->rows && from[i] >= 0; r++)
                        for (int64_t j = 0; j < width; j += LANES) vec_put(scores + r * LEAD + j, vec_set(-INFINITY));
                    continue;
                }
                bool clean = every && t >= g->inner && t + width <= g->outer;
                Product p = {.a = g->queries, .lda = a->D, .K = a->D, .b = s->keys + t * a->D, .to = scores, .ldt = LEAD, .tops = clean ? g->tops[0] : NULL};
                product(g->rows, vectors, &p);
                if (!clean) mask_panel(s, g, scores, t, n, width);
                if (from[i] < 0) from[i] = t;
                to[i] = least(t + n, g->high);
            }
        }
        for (int i = 0; i < groups; i++)
            if (to[i] >= 0) take_in(s, &group[i], m0, from[i], to[i], end >= group[i].high);
    }
    for (int i = 0; i < groups; i++) write_out(s, &group[i], row + i * ROWS);
}

/* ------------------------------------------------------------------ threads */

/* About what `count` rows of a stack from `row` on cost: the keys that the first and the last of them see. */
static double cost(const Sdpa *a, const SdpaSequence *q, int64_t row, int64_t count)
{
    int64_t first = row % q->N, last = (row + count - 1) % q->N;
    int64_t seen = least(q->M, first + a->upper + 1) - most(0, first + a->lower) + least(q->M, last + a->upper + 1) - most(0, last + a->lower);
    return (double)count * (double)(most(0, seen) + 2);
}

/* Blocks from `from` to `to` in units of cost over all stacks. */
static void share(const Sdpa *a, float *space, double from, double to)
{
    double at = 0;
    Stack s = stack_in(a, space);
    s.per = a->H / a->Hkv;
    for (int64_t b = 0; b < a->B; b++) {
        s.b = b;
        s.q = sdpa_sequence(a, b);
        for (s.kv = 0; s.kv < a->Hkv; s.kv++) {
            bool packed = false;
            for (int64_t row = 0; row < s.per * s.q.N && at < to; row += BLOCK) {
                int64_t count = least(BLOCK, s.per * s.q.N - row);
                double start = at;
                at += cost(a, &s.q, row, count);
                if (start < from || start >= to) continue;
                if (!packed) {
                    resolve_mask(&s, s.kv * s.per);
                    pack_keys(&s);
                    pack_values(&s);
                    packed = true;
                }
                attend(&s, row, count);
            }
        }
    }
}

static void sdpa(const Sdpa *a, void *space, int threads)
{
    double total = 0;
    int64_t each = per_thread(a), per = a->H / a->Hkv;
    if ((double)(a->B * a->H * a->N) * (double)a->M * (double)(a->D + a->E) < 1 << 18) threads = 1; /* less than it takes to wake another */
    for (int64_t b = 0; b < a->B && threads > 1; b++) {
        SdpaSequence q = sdpa_sequence(a, b);
        for (int64_t row = 0; row < per * q.N; row += BLOCK) total += (double)a->Hkv * cost(a, &q, row, least(BLOCK, per * q.N - row));
    }
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static, 1)
    for (int i = 0; i < threads; i++) share(a, (float *)space + i * each, total * i / threads, i + 1 == threads ? INFINITY : total * (i + 1) / threads);
}

void KERNEL(sdpa_fill)(SdpaKernels *k);
void KERNEL(sdpa_fill)(SdpaKernels *k) { *k = (SdpaKernels){workspace, sdpa}; }
