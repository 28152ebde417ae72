/* The gradient of attention in portable C with gcc's vector types; compiled once per ISA level. Contract and formulas
 * in kernel/sdpa.h.
 *
 * A job is a range of the keys of one head of keys, with all query rows that use them. Queries (times scale) and dout
 * are packed once as rows of floats. KEYS keys at a time, whose dk and dv are summed up where they stay in the cache,
 * the rows go by in blocks of QUERIES: scores and dP are made, become weights P and dS, and are multiplied into dv, dk
 * and dq. So five products of (QUERIES, KEYS) blocks, and nothing of the size (N, M): memory is O((N + KEYS) (D + E)) a
 * job. All products are one micro-kernel, C (ROWS, TILE) += A (ROWS, K) B (K, TILE), whose A is read element by element
 * by any strides: P^T and dS^T need no transposing. Blocks that neither mask nor bounds allow are skipped. Where there
 * are few heads of keys their keys are cut into ranges, by a rule that does not know the number of threads; each has
 * its own sum of dq, and these are added up in order: the same bits for any number of threads.
 */
#include "kernel/gen/sdpa_stack.h"
#include "kernel/variant.h"

#if defined(__AVX512F__)
enum { ROWS = 6, VECTORS = 4, KEYS = 64, QUERIES = 48 };
#else
enum { ROWS = 6, VECTORS = 2, KEYS = 96, QUERIES = 48 };
#endif
enum { TILE = LANES * VECTORS, JOBS = 8 }; /* of JOBS jobs there is enough for the threads of most machines */
static const float LOG2E = 1.44269504f;

/* ------------------------------------------------------------------ products */

typedef struct Span {
    int64_t from, to;
} Span;

/* C (rows, columns) = or += A (rows, K) B (K, columns); A(r, k) is at a[r * ra + k * ka]. B and C are there up to whole
 * vectors. `seen`: for each ROWS rows the columns that are wanted, from a whole vector on; `terms`: the part of K whose
 * terms are not all zero. NULL: all. */
typedef struct Product {
    const float *a, *b;
    int64_t ra, ka, ldb, K;
    float *c;
    int64_t ldc, rows, columns;
    bool add;
    const Span *seen, *terms;
} Product;

INLINE void micro(int rows, int vectors, const Product *p, int64_t row, int64_t column)
{
    Vec acc[ROWS][VECTORS];
    Span terms = p->terms ? p->terms[row / ROWS] : (Span){0, p->K};
    int64_t ra = p->ra, ka = p->ka, ldb = p->ldb, ldc = p->ldc;
    const float *a = p->a + row * ra + terms.from * ka, *b = p->b + column + terms.from * ldb;
    float *c = p->c + row * ldc + column;
    EACH_ROW EACH_VECTOR acc[r][v] = p->add ? vec_at(c + r * ldc + v * LANES) : vec_set(0);
    for (int64_t k = terms.from; k < terms.to; k++, a += ka, b += ldb) {
        Vec y[VECTORS];
        /* a is not to be known as a multiple of ka: gcc would make another loop for steps of 1, and would keep the sums
         * that both have in memory. */
        __asm__("" : "+r"(a), "+r"(b));
        EACH_VECTOR y[v] = vec_at(b + v * LANES);
        EACH_ROW EACH_VECTOR acc[r][v] = fused(acc[r][v], every(a[r * ra]), y[v]);
    }
    EACH_ROW EACH_VECTOR vec_put(c + r * ldc + v * LANES, acc[r][v]);
}

/* The row count is a constant in each case: the accumulators stay in registers. */
INLINE void rows_times(int64_t rows, int vectors, const Product *p, int64_t row, int64_t column)
{
    switch (rows) {
#ifdef QKV_FUSED
    default: micro((int)rows, vectors, p, row, column); break;
#else
    case 6: micro(6, vectors, p, row, column); break;
    case 5: micro(5, vectors, p, row, column); break;
    case 4: micro(4, vectors, p, row, column); break;
    case 3: micro(3, vectors, p, row, column); break;
    case 2: micro(2, vectors, p, row, column); break;
    default: micro(1, vectors, p, row, column); break;
#endif
    }
}

static void product(const Product *p)
{
    for (int64_t j = 0; j < p->columns; j += TILE)
        for (int64_t r = 0; r < p->rows; r += ROWS) {
            Span seen = p->seen ? p->seen[r / ROWS] : (Span){0, p->columns};
            int64_t rows = least(ROWS, p->rows - r), from = most(j, seen.from), to = least(j + TILE, seen.to);
            if (from >= to) continue;
            switch ((to - from + LANES - 1) / LANES) {
#if defined(__AVX512F__)
            case 4: rows_times(rows, 4, p, r, from); break;
            case 3: rows_times(rows, 3, p, r, from); break;
#endif
            case 2: rows_times(rows, 2, p, r, from); break;
            default: rows_times(rows, 1, p, r, from); break;
            }
        }
}

/* ------------------------------------------------------------------ room */

/* Rows of n floats as vectors read them, an odd number of lines apart: they share no sets of the cache. */
static int64_t lead(int64_t n) { return padded(n, 16) | 16; }

/* What there is to do: jobs = units * ranges, a unit is a head of keys of a batch, a range `keys` of its keys. */
typedef struct Work {
    int64_t rows, units, ranges, keys; /* query rows of a unit */
    int64_t ld, le;                    /* leads of D and E */
    int64_t nk, nq, lk;                /* keys and rows of a block, if there are so many; the lead of rows of keys */
} Work;

static Work work_of(const Sdpa *a)
{
    Work w = {.rows = a->Hkv ? a->H / a->Hkv * a->N : 0,
              .units = a->B * a->Hkv,
              .ranges = 1,
              .ld = lead(a->D),
              .le = lead(a->E)};
    if (w.units && w.units < JOBS) w.ranges = (JOBS + w.units - 1) / w.units;
    w.keys = most(padded((a->M + w.ranges - 1) / w.ranges, KEYS), KEYS);
    w.ranges = most(1, (a->M + w.keys - 1) / w.keys);
    w.nk = least(KEYS, a->M), w.nq = least(QUERIES, w.rows), w.lk = padded(w.nk, LANES) + 16;
    return w;
}

/* Of a thread, in floats; dq sums of jobs (ranges > 1) follow those of all threads. */
typedef struct Space {
    float *q, *dout, *lse, *delta; /* rows of the unit */
    float *dq;
    float *keys, *values, *rows; /* of nk keys: transposed (D, lk) and (E, lk), and keys as rows (nk, ld) */
    float *dk, *dv;              /* (nk, ld), (nk, le) */
    float *p, *ds, *slope;       /* (nq, lk) */
} Space;

static int64_t lay_out(const Sdpa *a, const Work *w, float *from, Space *s)
{
    int64_t at = 0, size[] = {w->rows * w->ld,
                              w->rows * w->le,
                              w->rows,
                              w->rows,
                              w->ranges == 1 ? w->rows * w->ld : 0,
                              a->D * w->lk,
                              a->E * w->lk,
                              w->nk * w->ld,
                              w->nk * w->ld,
                              w->nk * w->le,
                              w->nq * w->lk,
                              w->nq * w->lk,
                              a->softcap > 0 ? w->nq * w->lk : 0};
    float **to[] = {&s->q,    &s->dout, &s->lse, &s->delta, &s->dq, &s->keys, &s->values,
                    &s->rows, &s->dk,   &s->dv,  &s->p,     &s->ds, &s->slope};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        if (from) *to[i] = from + at;
        at += padded(size[i], 16);
    }
    return at;
}

static size_t workspace(const SdpaBackward *g, int threads)
{
    Work w = work_of(&g->f);
    Space s;
    int64_t apart = w.ranges > 1 ? w.units * w.ranges * w.rows * w.ld : 0;
    return (size_t)(lay_out(&g->f, &w, NULL, &s) * threads + padded(apart, 16)) * sizeof(float);
}

/* ------------------------------------------------------------------ a job */

typedef struct Job {
    const SdpaBackward *g;
    const Work *w;
    Stack stack; /* masks and rows, with no softcap of its own */
    Sdpa plain;
    Space s;
    float *dq; /* (rows, ld), summed up */
} Job;

static int64_t bytes(const Sdpa *a, int64_t n) { return n * element_size(a); }

/* n floats times `factor` as type t. */
static void put_row(DType t, char *to, const float *from, int64_t n, float factor)
{
    int64_t i = 0, size = t == DT_F32 ? 4 : 2;
    for (; i + LANES <= n; i += LANES) vec_store(t, to + i * size, vec_at(from + i) * factor);
    if (i < n) vec_store_some(t, to + i * size, vec_at(from + i) * factor, n - i);
}

/* Row i's dq. */
static char *query_result(const Job *j, int64_t i)
{
    const SdpaBackward *g = j->g;
    int64_t h = j->stack.kv * j->stack.per + i / g->f.N, n = i % g->f.N;
    return (char *)g->dq + bytes(&g->f, j->stack.b * g->dqs[0] + h * g->dqs[1] + n * g->dqs[2]);
}

/* Queries, dout, logsumexp and the sums of dout out, row by row. */
static void pack_queries(Job *j)
{
    const SdpaBackward *g = j->g;
    const Sdpa *a = &g->f;
    float out[LANES];
    for (int64_t i = 0; i < j->w->rows; i++) {
        Row row = stack_row(&j->stack, i);
        int64_t h = j->stack.kv * j->stack.per + i / a->N;
        const char *dout = (const char *)g->dout + bytes(a, j->stack.b * g->dos[0] + h * g->dos[1] + row.n * g->dos[2]);
        float *to = j->s.dout + i * j->w->le;
        Vec sum = vec_set(0);
        vec_row(a->t, j->s.q + i * j->w->ld, row.q, a->D, (float)a->scale);
        vec_row(a->t, to, dout, a->E, 1);
        for (int64_t e = 0; e < a->E; e += LANES) {
            vec_put(out, vec_set(0));
            vec_row(a->t, out, row.out + bytes(a, e), least(LANES, a->E - e), 1);
            sum = fused(sum, vec_at(to + e), vec_at(out));
        }
        j->s.delta[i] = vec_total(sum);
        j->s.lse[i] = *row.lse == -INFINITY ? INFINITY : *row.lse; /* no key: weights 0 */
    }
}

/* n rows of `width` elements as columns: to[d * lead_to + i]; 0 after the last. */
static void transpose(const float *rows, int64_t ld, int64_t n, int64_t width, float *to, int64_t lead_to)
{
    for (int64_t i = 0; i < padded(n, LANES); i += LANES)
        for (int64_t d = 0; d < width; d += LANES) {
            Vec x[LANES];
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++) x[k] = i + k < n ? vec_at(rows + (i + k) * ld + d) : vec_set(0);
            vec_transpose(x);
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++)
                if (d + k < width) vec_put(to + (d + k) * lead_to + i, x[k]);
        }
}

static void pack_keys(Job *j, int64_t from, int64_t n)
{
    const Sdpa *a = &j->g->f;
    for (int64_t i = 0; i < n; i++)
        vec_row(a->t, j->s.dv + i * j->w->le, value_at(&j->stack, from + i), a->E,
                1); /* room that is free until it is summed up in */
    transpose(j->s.dv, j->w->le, n, a->E, j->s.values, j->w->lk);
    for (int64_t i = 0; i < n; i++) vec_row(a->t, j->s.rows + i * j->w->ld, key_at(&j->stack, from + i), a->D, 1);
    transpose(j->s.rows, j->w->ld, n, a->D, j->s.keys, j->w->lk);
    memset(j->s.dk, 0, (size_t)(j->w->nk * j->w->ld) * sizeof(float));
    memset(j->s.dv, 0, (size_t)(j->w->nk * j->w->le) * sizeof(float));
}

static void put_keys(const Job *j, int64_t from, int64_t n)
{
    const SdpaBackward *g = j->g;
    const Sdpa *a = &g->f;
    for (int64_t i = from; i < from + n; i++) {
        if (g->dk)
            put_row(a->t, (char *)g->dk + bytes(a, j->stack.b * g->dks[0] + j->stack.kv * g->dks[1] + i * g->dks[2]),
                    j->s.dk + (i - from) * j->w->ld, a->D, 1);
        if (g->dv)
            put_row(a->t, (char *)g->dv + bytes(a, j->stack.b * g->dvs[0] + j->stack.kv * g->dvs[1] + i * g->dvs[2]),
                    j->s.dv + (i - from) * j->w->le, a->E, 1);
    }
}

/* Scores x become softcap tanh(x / softcap); slope: by which its gradient is multiplied. */
static void soften(float *x, float *slope, int64_t n, float cap)
{
    for (int64_t i = 0; i < n; i++) {
        float t = vm_tanh(x[i] / cap);
        x[i] = cap * t;
        slope[i] = 1 - t * t;
    }
}

static void add_mask_gradient(const Job *j, const Row *row, int64_t h, int64_t t, int64_t n, const float *ds)
{
    const SdpaBackward *g = j->g;
    float *to = (float *)g->dmask + j->stack.b * g->dms[0] + h * g->dms[1] + row->n * g->dms[2] + t * g->dms[3];
    for (int64_t i = most(0, row->low - t); i < least(n, row->high - t); i++) to[i * g->dms[3]] += ds[i];
}

/* Scores p of one row with keys t .. t + n become weights, dP in ds becomes dS. */
static void weigh(const Job *j, const Row *row, int64_t i, int64_t t, int64_t n, bool whole, float *p, float *ds,
                  float *slope)
{
    const SdpaBackward *g = j->g;
    int64_t width = padded(n, LANES);
    float lse = j->s.lse[i], delta = j->s.delta[i];
    if (slope) soften(p, slope, n, (float)g->f.softcap);
    if (!whole) mask_row(&j->stack, row, p, t, n, width, 1, vec_set(0));
    for (int64_t k = 0; k < width; k += LANES) {
        Vec y = vec_exp2((vec_at(p + k) - lse) * LOG2E);
        vec_put(p + k, y);
        vec_put(ds + k, y * (vec_at(ds + k) - delta));
    }
    if (g->dmask) add_mask_gradient(j, row, j->stack.kv * j->stack.per + i / g->f.N, t, n, ds);
    if (slope)
        for (int64_t k = 0; k < n; k++) ds[k] *= slope[k];
}

/* What bounds leave of a block of `count` rows and n keys: for each ROWS rows the keys that any of them may see, from a
 * whole vector on, and for each ROWS keys the rows that may see any of them. */
typedef struct Seen {
    Span keys[(QUERIES + ROWS - 1) / ROWS], rows[(KEYS + ROWS - 1) / ROWS];
} Seen;

static void look(Seen *s, const Row *row, int64_t count, int64_t t, int64_t n)
{
    for (int64_t k = 0; k < n; k += ROWS) s->rows[k / ROWS] = (Span){count, 0};
    for (int64_t i = 0; i < count; i += ROWS) {
        Span seen = {n, 0};
        for (int64_t r = i; r < least(i + ROWS, count); r++) {
            int64_t from = most(0, row[r].low - t), to = least(n, row[r].high - t);
            if (from >= to) continue;
            seen = (Span){least(seen.from, from), most(seen.to, to)};
            for (int64_t k = from / ROWS; k * ROWS < to; k++) s->rows[k] = (Span){least(s->rows[k].from, r), r + 1};
        }
        s->keys[i / ROWS] = (Span){seen.from / LANES * LANES, seen.to};
    }
}

/* The weights of row i of the block, of the keys that its ROWS rows may see; products read zeros beside them. */
static void weigh_seen(const Job *j, const Row *row, int64_t i, Span seen, int64_t t, int64_t n, float *p, float *ds,
                       float *slope)
{
    int64_t end = padded(seen.to, LANES), width = padded(n, LANES);
    for (int64_t k = 0; k < width; k += LANES)
        if (k < seen.from || k >= end) vec_put(p + k, vec_set(0)), vec_put(ds + k, vec_set(0));
    if (seen.from < seen.to)
        weigh(j, row, i, t + seen.from, seen.to - seen.from, false, p + seen.from, ds + seen.from,
              slope ? slope + seen.from : NULL);
}

/* Rows from `row` on, `count` of them, with keys t .. t + n. */
static void block(Job *j, int64_t row, int64_t count, int64_t t, int64_t n)
{
    const SdpaBackward *g = j->g;
    const Sdpa *a = &g->f;
    const Space *s = &j->s;
    int64_t ld = j->w->ld, le = j->w->le, lk = j->w->lk, low = a->M, high = 0, inner = 0, outer = a->M;
    Row rows[QUERIES];
    Seen seen;
    for (int64_t i = 0; i < count; i++) {
        rows[i] = stack_row(&j->stack, row + i);
        low = least(low, rows[i].low), high = most(high, rows[i].high);
        inner = most(inner, rows[i].low), outer = least(outer, rows[i].high);
    }
    bool all = t >= inner && t + n <= outer, whole = !j->stack.masked && all;
    if (t >= high || t + n <= low || (!whole && !panel_live(&j->stack, rows, (int)count, t, n))) return;
    if (!all) look(&seen, rows, count, t, n);
    const Span *keys = all ? NULL : seen.keys, *queries = all ? NULL : seen.rows;
    float *q = s->q + row * ld, *dout = s->dout + row * le;
    product(&(Product){.a = q,
                       .ra = ld,
                       .ka = 1,
                       .b = s->keys,
                       .ldb = lk,
                       .K = a->D,
                       .c = s->p,
                       .ldc = lk,
                       .rows = count,
                       .columns = n,
                       .seen = keys});
    product(&(Product){.a = dout,
                       .ra = le,
                       .ka = 1,
                       .b = s->values,
                       .ldb = lk,
                       .K = a->E,
                       .c = s->ds,
                       .ldc = lk,
                       .rows = count,
                       .columns = n,
                       .seen = keys});
    for (int64_t i = 0; i < count; i++) {
        float *p = s->p + i * lk, *ds = s->ds + i * lk, *slope = a->softcap > 0 ? s->slope + i * lk : NULL;
        if (all) weigh(j, &rows[i], row + i, t, n, whole, p, ds, slope);
        else weigh_seen(j, &rows[i], row + i, keys[i / ROWS], t, n, p, ds, slope);
    }
    if (g->dv)
        product(&(Product){.a = s->p,
                           .ra = 1,
                           .ka = lk,
                           .b = dout,
                           .ldb = le,
                           .K = count,
                           .c = s->dv,
                           .ldc = le,
                           .rows = n,
                           .columns = a->E,
                           .add = true,
                           .terms = queries});
    if (g->dk)
        product(&(Product){.a = s->ds,
                           .ra = 1,
                           .ka = lk,
                           .b = q,
                           .ldb = ld,
                           .K = count,
                           .c = s->dk,
                           .ldc = ld,
                           .rows = n,
                           .columns = a->D,
                           .add = true,
                           .terms = queries});
    if (g->dq)
        product(&(Product){.a = s->ds,
                           .ra = lk,
                           .ka = 1,
                           .b = s->rows,
                           .ldb = ld,
                           .K = n,
                           .c = j->dq + row * ld,
                           .ldc = ld,
                           .rows = count,
                           .columns = a->D,
                           .add = true,
                           .terms = keys});
}

static void run_job(Job *j, int64_t from, int64_t to)
{
    const Work *w = j->w;
    pack_queries(j);
    memset(j->dq, 0, (size_t)(w->rows * w->ld) * sizeof(float));
    for (int64_t t = from; t < to; t += KEYS) {
        int64_t n = least(KEYS, to - t);
        pack_keys(j, t, n);
        for (int64_t row = 0; row < w->rows; row += QUERIES) block(j, row, least(QUERIES, w->rows - row), t, n);
        put_keys(j, t, n);
    }
}

static void put_queries(const Job *j, const float *dq)
{
    for (int64_t i = 0; i < j->w->rows && j->g->dq; i++)
        put_row(j->g->f.t, query_result(j, i), dq + i * j->w->ld, j->g->f.D, (float)j->g->f.scale);
}

/* ------------------------------------------------------------------ all jobs */

static void open_job(Job *j, const SdpaBackward *g, const Work *w, int64_t unit)
{
    j->g = g;
    j->w = w;
    j->plain = g->f;
    j->plain.softcap = 0;
    j->stack = (Stack){.a = &j->plain,
                       .b = unit / g->f.Hkv,
                       .kv = unit % g->f.Hkv,
                       .per = g->f.H / g->f.Hkv,
                       .M = g->f.M,
                       .masked = g->f.mask || g->f.truth};
    j->stack.q = sdpa_sequence(&g->f, j->stack.b);
}

static void clear_mask_gradient(const SdpaBackward *g)
{
    int64_t n[4] = {g->f.B, g->f.H, g->f.N, g->f.M}, i[4];
    for (int k = 0; k < 4; k++) n[k] = g->dms[k] ? n[k] : 1;
    for (i[0] = 0; i[0] < n[0]; i[0]++)
        for (i[1] = 0; i[1] < n[1]; i[1]++)
            for (i[2] = 0; i[2] < n[2]; i[2]++)
                for (i[3] = 0; i[3] < n[3]; i[3]++)
                    ((float *)g->dmask)[i[0] * g->dms[0] + i[1] * g->dms[1] + i[2] * g->dms[2] + i[3] * g->dms[3]] = 0;
}

static void backward(const SdpaBackward *g, void *space, int threads)
{
    Work w = work_of(&g->f);
    Space all;
    int64_t each = lay_out(&g->f, &w, NULL, &all), jobs = w.units * w.ranges, next = 0;
    float *sums = (float *)space + each * threads;
    if (g->dmask) {
        clear_mask_gradient(g);
        threads = 1; /* sums over axes along which it broadcasts stay in order */
    }
    if ((double)w.units * (double)w.rows * (double)g->f.M * (double)(g->f.D + g->f.E) < 1 << 17)
        threads = 1; /* less than it takes to wake another */
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static, 1)
    for (int i = 0; i < threads; i++) {
        Job j;
        lay_out(&g->f, &w, (float *)space + each * i, &j.s);
        for (;;) {
            int64_t job;
#pragma omp atomic capture
            job = next++;
            if (job >= jobs || team_stopped()) break;
            int64_t from = job % w.ranges * w.keys;
            open_job(&j, g, &w, job / w.ranges);
            j.dq = w.ranges > 1 ? sums + job * w.rows * w.ld : j.s.dq;
            run_job(&j, from, least(g->f.M, from + w.keys));
            if (w.ranges == 1) put_queries(&j, j.dq);
        }
    }
    if (w.ranges == 1 || !g->dq) return;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static, 1)
    for (int64_t unit = 0; unit < w.units; unit++) {
        Job j;
        float *sum = sums + unit * w.ranges * w.rows * w.ld;
        open_job(&j, g, &w, unit);
        for (int64_t r = 1; r < w.ranges; r++)
            for (int64_t k = 0; k < w.rows * w.ld; k++) sum[k] += sum[r * w.rows * w.ld + k];
        put_queries(&j, sum);
    }
}

void KERNEL(sdpa_backward_fill)(SdpaKernels *k);
void KERNEL(sdpa_backward_fill)(SdpaKernels *k) { k->backward_workspace = workspace, k->backward = backward; }
