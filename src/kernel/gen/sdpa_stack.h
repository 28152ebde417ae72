/* What attention kernels share whatever they multiply with: heads that use the same keys as one stack of query rows,
 * masks, threads.
 *
 *     static const SdpaWay way = {BLOCK, ROWS, per_thread, pack, attend, NULL, NULL};
 *     static void sdpa(const Sdpa *a, void *space, int threads) { sdpa_all(a, &way, space, threads); }
 *
 * A mask that is the same for every query of the stack is resolved before packing: keys that it forbids are not packed
 * at all, so that neither work nor NaN comes from them. Other masks and bounds are looked at per panel of keys: what
 * allows nothing is not computed, what allows everything is not touched. Threads get whole stacks and parts of stacks
 * of equal cost; a row's values do not depend on where it is cut.
 */
#ifndef QKV_KERNEL_GEN_SDPA_STACK_H
#define QKV_KERNEL_GEN_SDPA_STACK_H
#include "base/elementary.h"
#include "kernel/gen/sdpa_vec.h"
#include "kernel/gen/vmath.h"
#include "kernel/sdpa.h"
#include "team/team.h"

INLINE int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Row i is query i % N of head kv * per + i / N. */
typedef struct Stack {
    const Sdpa *a;
    SdpaSequence q;
    int64_t b, kv, per;
    int64_t M;           /* keys that are packed */
    const int32_t *live; /* which; NULL: all */
    const float *added; /* what the mask adds to them when it is the same for all queries; NULL: nothing */
    bool masked;        /* the mask is looked at per panel */
    float *added_room;
    int32_t *live_room;
    void *room; /* the kernel's own */
} Stack;

typedef struct Row {
    int64_t n, masked; /* the query; where its mask begins */
    int64_t low, high; /* keys within bounds */
    const char *q;
    char *out;
    float *lse; /* NULL: not wanted */
} Row;

typedef struct SdpaWay {
    int64_t block, unit;           /* rows that attend takes at most, and that it takes together */
    size_t (*room)(const Sdpa *a); /* bytes of a thread */
    void (*pack)(const Stack *s);  /* keys and values of the stack */
    void (*attend)(const Stack *s, int64_t row, int64_t count);
    void (*enter)(void), (*leave)(void); /* around all that a thread does; NULL: nothing */
} SdpaWay;

/* Few rows to a key: packing it would cost more than it saves (sdpa_thin.c). */
INLINE bool sdpa_is_thin(const Sdpa *a) { return a->N * (a->H / a->Hkv) <= 8; }

INLINE int64_t element_size(const Sdpa *a) { return a->t == DT_F32 ? 4 : 2; }

INLINE const char *key_at(const Stack *s, int64_t j)
{
    return s->q.k + (s->kv * s->a->ks[1] + (s->live ? s->live[j] : j) * s->a->ks[2]) * element_size(s->a);
}
INLINE const char *value_at(const Stack *s, int64_t j)
{
    return s->q.v + (s->kv * s->a->vs[1] + (s->live ? s->live[j] : j) * s->a->vs[2]) * element_size(s->a);
}

INLINE Row stack_row(const Stack *s, int64_t i)
{
    const Sdpa *a = s->a;
    int64_t head = s->per > 1 ? i / s->q.N : 0, h = s->kv * s->per + head, n = i - head * s->q.N;
    return (Row){.n = n,
                 .masked = s->b * a->ms[0] + h * a->ms[1] + n * a->ms[2],
                 .low = most(0, n + a->lower),
                 .high = least(s->M, n + a->upper + 1),
                 .q = s->q.q + (h * a->qs[1] + n * a->qs[2]) * element_size(a),
                 .out = s->q.out + (h * a->os[1] + n * a->os[2]) * element_size(a),
                 .lse = a->lse ? (float *)a->lse + s->b * a->ls[0] + h * a->ls[1] + n * a->ls[2] : NULL};
}

/* Scores of a row were summed up as exp(score - top). */
INLINE void put_lse(const Row *row, float top, float sum)
{
    if (row->lse) *row->lse = sum == 0 ? -INFINITY : top + real_logf(sum);
}

/* ------------------------------------------------------------------ asking for memory ahead */

enum { LINE = 64, SHORT = 256 };

/* Nothing is read here: it may be anywhere. */
INLINE void ask_for(const char *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += LINE) __builtin_prefetch((const char *)((uintptr_t)p + (uintptr_t)i));
}

/* Element `at`, to fetch: it may be after the end. */
INLINE const float *far(const float *x, int64_t at)
{
    return (const float *)((uintptr_t)x + (uintptr_t)at * sizeof *x);
}

/* ------------------------------------------------------------------ masks */

INLINE void resolve_mask(Stack *s)
{
    const Sdpa *a = s->a;
    bool bounded = a->lower > -s->q.N || a->upper < s->q.M - 1, zero = true;
    int64_t at = s->b * a->ms[0] + s->kv * s->per * a->ms[1], n = 0;
    s->M = s->q.M;
    s->live = NULL;
    s->added = NULL;
    s->masked = a->mask || a->truth;
    if (!s->masked || bounded || (a->ms[2] && s->q.N > 1) || (a->ms[1] && s->per > 1)) return;
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

/* Do mask and bounds allow any of these rows any of keys t .. t + n? Ends at the first that they do. */
INLINE bool panel_live(const Stack *s, const Row *row, int rows, int64_t t, int64_t n)
{
    const Sdpa *a = s->a;
    for (int r = 0; r < rows; r++) {
        int64_t from = most(t, row[r].low), to = least(t + n, row[r].high);
        if (from < to && !s->masked) return true;
        if (from < to && a->ms[3] == 1) {
            const float *m = a->mask ? a->mask + row[r].masked : NULL;
            const uint8_t *b = a->mask ? NULL : a->truth + row[r].masked;
            bool any = m ? m[from] != -INFINITY : b[from] != 0;
            if (any) return true; /* most often; else all of them, without a branch, so that vectors do it */
            if (m)
                for (int64_t j = from; j < to; j++) any |= m[j] != -INFINITY;
            else
                for (int64_t j = from; j < to; j++) any |= b[j] != 0;
            if (any) return true;
            continue;
        }
        for (int64_t j = from; j < to; j++) {
            int64_t at = row[r].masked + j * a->ms[3];
            if (a->mask ? a->mask[at] != -INFINITY : a->truth[at] != 0) return true;
        }
    }
    return false;
}

/* Rows of a mask are pages apart, where the hardware looks no further: n elements of each, from element `at` on. */
INLINE void ask_for_mask(const Stack *s, const Row *row, int rows, int64_t at, int64_t n)
{
    const Sdpa *a = s->a;
    int64_t size = a->mask ? (int64_t)sizeof *a->mask : (int64_t)sizeof *a->truth;
    const char *m = a->mask ? (const char *)a->mask : (const char *)a->truth;
    for (int r = 0; r < rows && s->masked && a->ms[2] && a->ms[3] == 1; r++)
        ask_for(m + (row[r].masked + at) * size, n * size);
}

/* Scale, softcap, mask and bounds on one row's scores x of keys t .. t + n, of which `width` are there; the maxima of
 * those and `top`. */
INLINE Vec mask_row(const Stack *s, const Row *row, float *restrict x, int64_t t, int64_t n, int64_t width, float scale,
                    Vec top)
{
    const Sdpa *a = s->a;
    float cap = (float)a->softcap;
    int64_t step = a->ms[3], from = row->low - t, to = least(n, row->high - t);
    if (!(cap > 0) && from <= 0 && to == n && (!s->masked || (a->mask && step == 1))) { /* only sums: one pass */
        const float *m = s->masked ? a->mask + row->masked + t : s->added ? s->added + t : NULL;
        for (int64_t j = 0; j < width; j += LANES) {
            Vec y = vec_at(x + j) * scale;
            if (m && j < n) y += j + LANES <= n ? vec_at(m + j) : vec_load_some(DT_F32, m + j, n - j);
            if (j + LANES > n) y = vec_between(y, 0, 0, n - j);
            vec_put(x + j, y);
            top = vec_max(y, top);
        }
        return top;
    }
    if (scale != 1)
        for (int64_t j = 0; j < width; j++) x[j] *= scale;
    if (cap > 0)
        for (int64_t j = 0; j < n; j++) x[j] = cap * vm_tanh(x[j] / cap);
    if (s->added)
        for (int64_t j = 0; j < n; j++) x[j] += s->added[t + j];
    if (s->masked && a->mask) {
        const float *m = a->mask + row->masked + t * step;
        if (step == 1)
            for (int64_t j = 0; j < n; j++) x[j] += m[j];
        else
            for (int64_t j = 0; j < n; j++) x[j] += m[j * step];
    } else if (s->masked) {
        const uint8_t *m = a->truth + row->masked + t * step;
        if (step == 1)
            for (int64_t j = 0; j < n; j++) x[j] = m[j] ? x[j] : -INFINITY;
        else
            for (int64_t j = 0; j < n; j++) x[j] = m[j * step] ? x[j] : -INFINITY;
    }
    for (int64_t j = 0; j < width; j += LANES) {
        Vec y = vec_at(x + j);
        if (j < from || j + LANES > to) vec_put(x + j, y = vec_between(y, j, from, to));
        top = vec_max(y, top);
    }
    return top;
}

/* ------------------------------------------------------------------ threads */

INLINE size_t sdpa_room(const Sdpa *a, const SdpaWay *way)
{
    return (way->room(a) + (size_t)padded(a->M, 16) * 8 + 63) / 64 * 64;
}

/* A stack's rows are cut into blocks that differ by one unit at most. */
INLINE int64_t blocks_of(const SdpaWay *way, int64_t rows)
{
    int64_t units = (rows + way->unit - 1) / way->unit, most_units = way->block / way->unit;
    return (units + most_units - 1) / most_units;
}

INLINE int64_t block_at(const SdpaWay *way, int64_t rows, int64_t i, int64_t blocks)
{
    return least(rows, (rows + way->unit - 1) / way->unit * i / blocks * way->unit);
}

/* About what `count` rows of a stack from `row` on cost: the keys that the first and the last of them see. */
INLINE double stack_cost(const Sdpa *a, const SdpaSequence *q, int64_t row, int64_t count)
{
    int64_t first = row % q->N, last = (row + count - 1) % q->N;
    int64_t seen = least(q->M, first + a->upper + 1) - most(0, first + a->lower) + least(q->M, last + a->upper + 1) -
                   most(0, last + a->lower);
    return (double)count * (double)(most(0, seen) + 2);
}

/* Rows `from` to `to` of n, `step` bytes apart. */
INLINE void ask_for_rows(const char *p, int64_t from, int64_t to, int64_t step, int64_t bytes)
{
    for (int64_t i = from; i < to; i++) ask_for(p + i * step, bytes);
}

/* Part i of `parts` of what the stack of head h touches: rows of a head are apart, and there are few of them, so that
 * the hardware learns too late where they are. */
INLINE void ask_for_stack(const Sdpa *a, int64_t b, int64_t h, int64_t i, int64_t parts)
{
    int64_t size = element_size(a);
    SdpaSequence q = sdpa_sequence(a, b);
    if (a->H > a->Hkv || a->M > SHORT || a->N > SHORT) return;
    ask_for_rows(q.q + h * a->qs[1] * size, q.N * i / parts, q.N * (i + 1) / parts, a->qs[2] * size, a->D * size);
    ask_for_rows(q.k + h * a->ks[1] * size, q.M * i / parts, q.M * (i + 1) / parts, a->ks[2] * size, a->D * size);
    ask_for_rows(q.v + h * a->vs[1] * size, q.M * i / parts, q.M * (i + 1) / parts, a->vs[2] * size, a->E * size);
    ask_for_rows(q.out + h * a->os[1] * size, q.N * i / parts, q.N * (i + 1) / parts, a->os[2] * size, a->E * size);
}

/* Of the stack after s, if it is this thread's: another's lines would go to and fro. */
INLINE void ask_for_next(const Stack *s, int64_t i, int64_t parts)
{
    const Sdpa *a = s->a;
    int64_t b = s->b, h = s->kv + 1;
    if (h == a->Hkv) h = 0, b++;
    if (b < a->B) ask_for_stack(a, b, h, i, parts);
}

INLINE double whole_cost(const Sdpa *a, const SdpaWay *way, const SdpaSequence *q)
{
    double cost = 0;
    int64_t rows = a->H / a->Hkv * q->N, blocks = blocks_of(way, rows);
    for (int64_t i = 0; i < blocks; i++) {
        int64_t row = block_at(way, rows, i, blocks);
        cost += stack_cost(a, q, row, block_at(way, rows, i + 1, blocks) - row);
    }
    return cost;
}

/* Blocks from `from` to `to` in units of cost over all stacks. */
static void sdpa_share(const Sdpa *a, const SdpaWay *way, void *space, double from, double to)
{
    double at = 0;
    bool first = true;
    Stack s = {.a = a, .per = a->H / a->Hkv, .added_room = space};
    s.live_room = (int32_t *)(void *)(s.added_room + padded(a->M, 16));
    s.room = s.live_room + padded(a->M, 16);
    if (way->enter) way->enter();
    for (s.b = 0; s.b < a->B && at < to; s.b++) {
        s.q = sdpa_sequence(a, s.b);
        double whole = whole_cost(a, way, &s.q);
        for (s.kv = 0; s.kv < a->Hkv && at < to; s.kv++) {
            double end = at + whole;
            bool packed = false;
            int64_t rows = s.per * s.q.N, blocks = blocks_of(way, rows);
            for (int64_t i = 0; i < blocks && at < to && !team_stopped(); i++) {
                int64_t row = block_at(way, rows, i, blocks), count = block_at(way, rows, i + 1, blocks) - row;
                double start = at;
                at += stack_cost(a, &s.q, row, count);
                if (start < from) continue;
                if (first) ask_for_stack(a, s.b, s.kv, 0, 1);
                first = false;
                if (!packed) {
                    resolve_mask(&s);
                    way->pack(&s);
                    packed = true;
                }
                if (end < to) ask_for_next(&s, i, blocks);
                way->attend(&s, row, count);
            }
        }
    }
    if (way->leave) way->leave();
}

INLINE void sdpa_all(const Sdpa *a, const SdpaWay *way, void *space, int threads)
{
    double total = 0;
    size_t each = sdpa_room(a, way);
    if ((double)(a->B * a->H * a->N) * (double)a->M * (double)(a->D + a->E) < 1 << 18)
        threads = 1; /* less than it takes to wake another */
    for (int64_t b = 0; b < a->B && threads > 1; b++) {
        SdpaSequence q = sdpa_sequence(a, b);
        total += (double)a->Hkv * whole_cost(a, way, &q);
    }
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static, 1)
    for (int i = 0; i < threads; i++)
        sdpa_share(a, way, (char *)space + (size_t)i * each, total * i / threads,
                   i + 1 == threads ? INFINITY : total * (i + 1) / threads);
}
#endif
