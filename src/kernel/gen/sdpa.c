/* Attention in portable C with gcc's vector types; compiled once per ISA level. Contract in kernel/sdpa.h, masks and
 * threads in sdpa_stack.h.
 *
 * Keys are packed transposed and values as they are, as floats, both in panels of up to TILE columns, once for the
 * heads that share them. Then both products are the same micro-kernel, C (ROWS, TILE) += A (ROWS, K) * panel (K, TILE),
 * the accumulators in registers. BLOCK query rows go over the keys together, KEYS at a time: panel by panel their
 * scores, which also leaves each row's maximum; then row by row exp2 against the running maximum; then the product with
 * the values, which takes up the change of the maximum as it reads what it adds to, and 1 / sum as it writes the last
 * time.
 */
#include "kernel/gen/sdpa_stack.h"
#include "kernel/variant.h"

#if defined(__AVX512F__)
enum { ROWS = 6, VECTORS = 4, BLOCK = 24 };
#else
enum { ROWS = 6, VECTORS = 2, BLOCK = 24 };
#endif
enum {
    TILE = LANES * VECTORS,
    KEYS = 512,
    LEAD = KEYS + LANES
}; /* rows of scores LEAD apart: 2048 bytes apart they would share few sets of the cache */
static const float LOG2E = 1.44269504f;

/* ------------------------------------------------------------------ micro-kernel */

typedef struct Product {
    const float *a, *b;
    int64_t lda, ldb, K;
    const float *from; /* what is added to, a row times its shrink; shrink NULL: 0 */
    const float *shrink;
    const float *times; /* the rows' factors of the result; NULL: 1 */
    const float *plus;  /* what is added to the result, rows ldp apart; NULL: 0 */
    const float *soon;  /* rows like those of `plus`, to fetch meanwhile, anywhere; NULL: none */
    int64_t ldp;
    float *to;
    int64_t ldf, ldt;
    int tail;    /* columns of the last vector, the others become -inf; 0: all of them */
    float *tops; /* (rows, LANES): the maxima of the columns that a lane has seen; NULL: not wanted */
} Product;

INLINE void step(int rows, int vectors, Vec acc[ROWS][VECTORS], const float *a, int64_t lda, const float *b)
{
    Vec y[VECTORS];
    EACH_VECTOR y[v] = vec_at(b + v * LANES);
    EACH_ROW EACH_VECTOR acc[r][v] = fused(acc[r][v], every(a[r * lda]), y[v]);
}

/* to[r][0 .. vectors * LANES) = (from[r] * shrink[r] + sum over k of a[r][k] * b[k]) * times[r] + plus[r].
 * Sums go over k in order. */
INLINE void micro(int rows, int vectors, const Product *p)
{
    Vec acc[ROWS][VECTORS];
    const float *a = p->a, *b = p->b;
    int64_t K = p->K, lda = p->lda, ldb = p->ldb, k = 0;
    EACH_ROW EACH_VECTOR acc[r][v] = vec_set(0);
    if (p->shrink) EACH_ROW EACH_VECTOR acc[r][v] = vec_at(p->from + r * p->ldf + v * LANES) * p->shrink[r];
    const float *soon = p->soon ? p->soon : p->to;
    for (int64_t rest = p->soon ? p->ldp : 0; k + 2 * VECTORS <= K; soon = far(soon, rest))
        for (int v = 0; v < VECTORS; v++, k += 2) {
            __builtin_prefetch(far(soon, v * LANES));
            step(rows, vectors, acc, a + k, lda, b + k * ldb);
            step(rows, vectors, acc, a + k + 1, lda, b + (k + 1) * ldb);
        }
    for (; k + 1 < K; k += 2) {
        step(rows, vectors, acc, a + k, lda, b + k * ldb);
        step(rows, vectors, acc, a + k + 1, lda, b + (k + 1) * ldb);
    }
    if (k < K) step(rows, vectors, acc, a + k, lda, b + k * ldb);
    if (p->times) EACH_ROW EACH_VECTOR acc[r][v] *= p->times[r];
    if (p->plus && !p->tail) EACH_ROW EACH_VECTOR acc[r][v] += vec_at(p->plus + r * p->ldp + v * LANES);
    if (p->plus && p->tail)
        EACH_ROW EACH_VECTOR acc[r][v] += v + 1 < vectors
                                              ? vec_at(p->plus + r * p->ldp + v * LANES)
                                              : vec_load_some(DT_F32, p->plus + r * p->ldp + v * LANES, p->tail);
    if (p->tail) EACH_ROW acc[r][vectors - 1] = vec_between(acc[r][vectors - 1], 0, 0, p->tail);
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
#ifdef QKV_FUSED
    default: micro(rows, vectors, p); break;
#else
    case 6: micro(6, vectors, p); break;
    case 5: micro(5, vectors, p); break;
    case 4: micro(4, vectors, p); break;
    case 3: micro(3, vectors, p); break;
    case 2: micro(2, vectors, p); break;
    default: micro(1, vectors, p); break;
#endif
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

/* ------------------------------------------------------------------ packing */

typedef struct Space {
    float *keys, *values, *scores, *out, *queries;
} Space;

static int64_t values_width(int64_t E) { return padded(E, LANES); }

/* In floats: where each begins, and `end`. */
typedef struct Layout {
    int64_t queries, out, keys, values, end;
} Layout;

static Layout lay_out(const Sdpa *a)
{
    Layout l = {.queries = BLOCK * LEAD};
    l.out = l.queries + BLOCK * padded(a->D, LANES);
    l.keys = l.out + BLOCK * values_width(a->E);
    l.values = l.keys + padded(a->M, LANES) * a->D;
    l.end = l.values + a->M * values_width(a->E);
    return l;
}

static Space space_in(const Sdpa *a, float *p)
{
    Layout l = lay_out(a);
    return (Space){.scores = p, .queries = p + l.queries, .out = p + l.out, .keys = p + l.keys, .values = p + l.values};
}

static size_t room(const Sdpa *a) { return (size_t)lay_out(a).end * sizeof(float); }

/* LANES keys from key j on, elements d .. d + LANES of each, transposed. */
INLINE void square(DType t, const Stack *s, int64_t j, int64_t d, float *to, int64_t width)
{
    Vec x[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) x[i] = vec_load(t, key_at(s, j + i) + d * (t == DT_F32 ? 4 : 2));
    vec_transpose(x);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) vec_put(to + i * width, x[i]);
}

static void pack_square(const Stack *s, int64_t j, int64_t d, float *to, int64_t width)
{
    if (s->a->t == DT_F32) square(DT_F32, s, j, d, to, width);
    else if (s->a->t == DT_BF16) square(DT_BF16, s, j, d, to, width);
    else square(DT_F16, s, j, d, to, width);
}

/* `keys` keys, n elements of each; the other keys are 0. */
static void pack_part(const Stack *s, int64_t j, int64_t keys, int64_t d, int64_t n, float *to, int64_t width)
{
    Vec x[LANES];
    for (int64_t i = 0; i < LANES; i++)
        x[i] = i < keys ? vec_load_some(s->a->t, key_at(s, j + i) + d * element_size(s->a), n) : vec_set(0);
    vec_transpose(x);
    for (int64_t k = 0; k < n; k++) vec_put(to + k * width, x[k]);
}

/* Keys transposed: panel t holds keys t * TILE ..., as [d][key in panel]; missing keys are 0. */
static void pack_keys(const Stack *s, float *to)
{
    int64_t D = s->a->D;
    for (int64_t t = 0; t < s->M; t += TILE) {
        int64_t width = panel_vectors(t, s->M) * LANES;
        for (int64_t j = 0; j < width; j += LANES)
            for (int64_t d = 0; d < D; d += LANES) {
                int64_t n = least(LANES, D - d), keys = least(LANES, s->M - t - j);
                if (n == LANES && keys == LANES) pack_square(s, t + j, d, to + d * width + j, width);
                else pack_part(s, t + j, keys, d, n, to + d * width + j, width);
            }
        to += D * width;
    }
}

/* Values: panel t holds columns t * TILE ..., as [key][column in panel]. */
static void pack_values(const Stack *s, float *to)
{
    int64_t E = s->a->E;
    for (int64_t t = 0; t < E; t += TILE) {
        int64_t width = panel_vectors(t, E) * LANES;
        for (int64_t m = 0; m < s->M; m++, to += width)
            vec_row(s->a->t, to, value_at(s, m) + t * element_size(s->a), least(width, E - t), 1);
    }
}

static void pack(const Stack *s)
{
    Space p = space_in(s->a, s->room);
    pack_keys(s, p.keys);
    pack_values(s, p.values);
}

/* ------------------------------------------------------------------ attention */

/* ROWS rows or fewer that go together. */
typedef struct Group {
    int rows;
    Row row[ROWS];
    int64_t low, high;    /* keys that any of the rows may see */
    int64_t inner, outer; /* keys that all of them may see */
    float *scores, *out, *queries;
    bool together; /* all rows are of one head */
    bool plain;    /* a tile of scores is done when the mask is added to it */
    bool begun, done, written;
    float top[ROWS], sum[ROWS][LANES], tops[ROWS][LANES];
} Group;

/* s = 2^(s log2(e) - top log2(e)), n scores, in whole vectors; its sum, lane by lane, is added. */
static void row_exp(float *s, float top, int64_t n, float *sum)
{
    float base = top == -INFINITY ? 0 : top * LOG2E;
    Vec total = vec_at(sum), other = {0};
    if (fabsf(top) > 1e3f &&
        !isinf(top)) { /* a mask hides all: base is rounded, a fused product is not, and their difference may be huge */
        for (int64_t j = 0; j < n; j++) s[j] -= top;
        base = 0;
    }
    for (int64_t j = 0; j < n; j += 2 * LANES) {
        Vec x = vec_exp2(fused(every(-base), vec_at(s + j), every(LOG2E)));
        vec_put(s + j, x);
        total += x;
        if (j + LANES < n) {
            x = vec_exp2(fused(every(-base), vec_at(s + j + LANES), every(LOG2E)));
            vec_put(s + j + LANES, x);
            other += x;
        }
    }
    vec_put(sum, total + other);
}

/* The scores of keys from .. to of the group's rows are in place: their weights, and what they add to the result. */
static void take_in(const Stack *s, const Space *space, Group *g, int64_t m0, int64_t from, int64_t to, bool last)
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
        Product p = {.a = g->scores + from - m0,
                     .lda = LEAD,
                     .K = to - from,
                     .b = space->values + offset + from * width,
                     .ldb = width,
                     .from = g->out + t,
                     .ldf = pe,
                     .shrink = g->begun ? shrink : NULL,
                     .times = last ? times : NULL,
                     .to = g->out + t,
                     .ldt = pe};
        if (direct) p.to = (float *)(void *)g->row[0].out + t, p.ldt = a->os[2];
        product(g->rows, vectors, &p);
        offset += s->M * width;
    }
    g->begun = true;
    g->done = last;
    g->written = direct;
}

static void write_out(const Stack *s, Group *g)
{
    const Sdpa *a = s->a;
    int64_t pe = values_width(a->E), size = element_size(a);
    for (int r = 0; r < g->rows && a->lse; r++) put_lse(&g->row[r], g->top[r], vec_total(vec_at(g->sum[r])));
    for (int r = 0; r < g->rows && !g->written; r++) {
        float sum = vec_total(vec_at(g->sum[r])), times = g->done ? 1 : 1 / sum;
        for (int64_t e = 0; e < a->E; e += LANES) {
            Vec x = vec_set(0);
            if (sum != 0) x = vec_at(g->out + r * pe + e) * times; /* 0 * NaN is not 0 */
            if (e + LANES <= a->E) vec_store(a->t, g->row[r].out + e * size, x);
            else vec_store_some(a->t, g->row[r].out + e * size, x, a->E - e);
        }
    }
}

/* count: rows of the block, which another one follows. */
static void begin(const Stack *s, Group *g, int64_t row, int64_t count)
{
    const Sdpa *a = s->a;
    g->begun = g->done = g->written = false;
    g->together = s->per == 1 || row / s->q.N == (row + g->rows - 1) / s->q.N;
    g->plain = !(a->softcap > 0) && (!s->masked || (a->mask && a->ms[3] == 1 && g->together));
    g->low = s->M, g->high = 0, g->inner = 0, g->outer = s->M;
    for (int r = 0; r < g->rows; r++) {
        Row w = g->row[r] = stack_row(s, row + r);
        g->low = least(g->low, w.low), g->high = most(g->high, w.high);
        g->inner = most(g->inner, w.low), g->outer = least(g->outer, w.high);
        g->top[r] = -INFINITY;
        vec_put(g->sum[r], vec_set(0));
        ask_for(w.q + count * a->qs[2] * element_size(a), a->D * element_size(a));
        vec_row(a->t, g->queries + r * a->D, w.q, a->D,
                (float)a->scale); /* the last vector may reach into the next row, which comes later */
    }
}

/* `count` rows of the stack from `row` on. */
static void attend(const Stack *s, int64_t row, int64_t count)
{
    const Sdpa *a = s->a;
    Group group[BLOCK / ROWS];
    Space space = space_in(a, s->room);
    int groups = (int)((count + ROWS - 1) / ROWS);
    int64_t low = s->M, high = 0;
    for (int i = 0; i < groups; i++) {
        Group *g = &group[i];
        int64_t at = count * i / groups;
        g->rows = (int)(count * (i + 1) / groups - at);
        g->scores = space.scores + i * ROWS * LEAD;
        g->out = space.out + i * ROWS * values_width(a->E);
        g->queries = space.queries + i * ROWS * a->D;
        begin(s, g, row + at, count);
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
            int64_t lead = panel_vectors(t, s->M) * LANES;
            for (int i = 0; i < groups; i++) {
                Group *g = &group[i];
                float *scores = g->scores + t - m0;
                int vectors = panel_vectors(t, g->high); /* a triangle's edge needs no more */
                int64_t width = vectors * LANES, n = least(width, s->M - t);
                if (g->high <= t || g->low >= t + n) continue;
                bool whole = t >= g->inner && t + n <= g->outer, clean = whole && g->plain;
                if ((!whole || s->masked) && !panel_live(s, g->row, g->rows, t, n)) {
                    for (int r = 0; r < g->rows && from[i] >= 0; r++)
                        for (int64_t j = 0; j < width; j += LANES) vec_put(scores + r * LEAD + j, vec_set(-INFINITY));
                    continue;
                }
                Product p = {.a = g->queries,
                             .lda = a->D,
                             .K = a->D,
                             .b = space.keys + t * a->D,
                             .ldb = lead,
                             .to = scores,
                             .ldt = LEAD,
                             .tail = clean ? (int)(n % LANES) : 0,
                             .tops = clean ? g->tops[0] : NULL};
                int64_t next = t + TILE < g->high ? t + TILE : count * a->ms[2] + low; /* in the mask */
                if (!clean) ask_for_mask(s, g->row, g->rows, next, TILE);
                else if (s->masked) {
                    p.plus = a->mask + g->row[0].masked + t, p.ldp = a->ms[2];
                    p.soon = far(a->mask, g->row[0].masked + next);
                } else if (s->added) p.plus = s->added + t;
                product(g->rows, vectors, &p);
                for (int r = 0; r < g->rows && !clean; r++)
                    vec_put(g->tops[r], mask_row(s, &g->row[r], scores + r * LEAD, t, n, width, 1, vec_at(g->tops[r])));
                if (from[i] < 0) from[i] = t;
                to[i] = least(t + n, g->high);
            }
        }
        for (int i = 0; i < groups; i++)
            if (to[i] >= 0) take_in(s, &space, &group[i], m0, from[i], to[i], end >= group[i].high);
    }
    for (int i = 0; i < groups; i++) write_out(s, &group[i]);
}

static const SdpaWay packed = {BLOCK, ROWS, room, pack, attend, NULL, NULL};
const SdpaWay *KERNEL(sdpa_thin)(void);

static const SdpaWay *way_of(const Sdpa *a) { return sdpa_is_thin(a) ? KERNEL(sdpa_thin)() : &packed; }
static size_t workspace(const Sdpa *a, int threads) { return sdpa_room(a, way_of(a)) * (size_t)threads; }
static void sdpa(const Sdpa *a, void *space, int threads) { sdpa_all(a, way_of(a), space, threads); }

void KERNEL(sdpa_backward_fill)(SdpaKernels *k);
void KERNEL(sdpa_fill)(SdpaKernels *k);
void KERNEL(sdpa_fill)(SdpaKernels *k)
{
    k->workspace = workspace, k->run = sdpa;
    KERNEL(sdpa_backward_fill)(k);
}
