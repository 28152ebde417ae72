/* Finding out how constant tensors follow from sizes. Contract and examples in generalize_baked.h. */
#include "generalize/baked.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"

/* One file's tensor, contiguous, with its axes split into parts. */
typedef struct Dense {
    DType dtype;
    int rank;
    int64_t n[MAX_PARTS + MAX_RANK], stride[MAX_PARTS + MAX_RANK];
    int64_t count;
    size_t size; /* of an element */
    const char *at;
} Dense;

static const char *element(const Dense *d, int64_t i) { return d->at + (size_t)i * d->size; }
static double value(const Dense *d, int64_t i) { return load_f64(d->dtype, element(d, i)); }

static void set_strides(Dense *d)
{
    d->count = 1;
    for (int k = d->rank - 1; k >= 0; k--) {
        d->stride[k] = d->count;
        d->count *= d->n[k];
    }
}

static bool equal_at(const Dense *x, int64_t i, const Dense *y, int64_t k)
{
    return !memcmp(element(x, i), element(y, k), x->size);
}

/* The next index in row-major order; false after the last. */
static bool next_index(const Dense *d, int64_t *index, int64_t *flat)
{
    for (int k = d->rank - 1; k >= 0; k--) {
        if (++index[k] < d->n[k]) {
            *flat += d->stride[k];
            return true;
        }
        *flat -= (d->n[k] - 1) * d->stride[k];
        index[k] = 0;
    }
    return false;
}

/* ------------------------------------------------------------------ affine */

/* base + sum of slope * index, per position of the fixed parts; false where the values are not so. */
static bool affine_of(const Dense *d, const bool *varies, int64_t nfixed, double *base, double (*slope)[MAX_PARTS])
{
    int64_t index[MAX_PARTS] = {0}, flat = 0, fixed_stride[MAX_PARTS] = {0}, all = 1;
    for (int k = d->rank - 1; k >= 0; k--) {
        if (varies[k]) continue;
        fixed_stride[k] = all;
        all *= d->n[k];
    }
    if (all != nfixed || !d->count) return false;
    double scale = 0;
    do {
        int64_t fixed = 0;
        int moved = -1, steps = 0;
        for (int k = 0; k < d->rank; k++) {
            if (!varies[k]) fixed += index[k] * fixed_stride[k];
            else if (index[k]) {
                steps += index[k] == 1 ? 1 : 2;
                moved = k;
            }
        }
        double v = value(d, flat);
        if (!isfinite(v)) return false;
        if (fabs(v) > scale) scale = fabs(v);
        if (!steps) base[fixed] = v;
        else if (steps == 1) slope[fixed][moved] = v - base[fixed];
        else { /* in row-major order every neighbour of the origin but those after this element has been met */
            double want = base[fixed];
            bool known = true;
            for (int k = 0; k < d->rank; k++) {
                if (!varies[k] || !index[k]) continue;
                want += slope[fixed][k] * (double)index[k];
                known &= !isnan(slope[fixed][k]);
            }
            double room = dtype_is_float(d->dtype) ? 1e-6 * fmax(fabs(v), scale * 1e-3) : 0;
            if (!known || fabs(v - want) > room) return false;
        }
    } while (next_index(d, index, &flat));
    return true;
}

static bool whole_numbers(const double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (v[i] != nearbyint(v[i]) || fabs(v[i]) > 1e15) return false;
    return true;
}

/* The same table in every file, or one number in each. at[f] + i*stride is element i of file f. */
static bool join_coef(Arena *arena, int nfiles, double *const *at, int64_t stride, int64_t n, Coef *out)
{
    bool same = true, single = true;
    *out = (Coef){.integral = true};
    for (int f = 0; f < nfiles; f++)
        for (int64_t i = 0; i < n; i++) {
            same = same && at[f][i * stride] == at[0][i * stride];
            single = single && at[f][i * stride] == at[f][0];
            out->integral = out->integral && whole_numbers(&at[f][i * stride], 1);
        }
    if (single) {
        for (int f = 0; f < nfiles; f++) out->v[f] = at[f][0];
        return true;
    }
    if (!same) return false;
    out->table = true;
    out->at = arena_array(arena, double, n);
    for (int64_t i = 0; out->at && i < n; i++) out->at[i] = at[0][i * stride];
    return out->at != NULL;
}

static bool find_affine(Arena *arena, Baked *b, const Dense *d, int nfiles)
{
    bool varies[MAX_PARTS];
    int64_t nfixed = 1;
    if (b->dtype == DT_BOOL || dtype_is_complex(b->dtype) || d[0].rank > MAX_PARTS) return false;
    for (int k = 0; k < b->nparts; k++) {
        varies[k] = b->part[k].varies;
        if (!varies[k]) nfixed *= d[0].n[k];
        for (int f = 0; varies[k] && f < nfiles; f++)
            if (d[f].n[k] < 2) return false;
    }
    double *base[GEN_FILES] = {NULL}, (*slope[GEN_FILES])[MAX_PARTS] = {NULL};
    bool ok = true, enough = false;
    for (int f = 0; f < nfiles && ok; f++) {
        base[f] = mem_alloc((size_t)nfixed * sizeof **base + 8);
        slope[f] = mem_alloc((size_t)nfixed * sizeof **slope + 8);
        ok = base[f] && slope[f];
        for (int64_t i = 0; ok && i < nfixed; i++)
            for (int k = 0; k < MAX_PARTS; k++) slope[f][i][k] = NAN;
        ok = ok && affine_of(&d[f], varies, nfixed, base[f], slope[f]);
        enough |= d[f].count / (nfixed ? nfixed : 1) > 3;
    }
    ok = ok && enough && join_coef(arena, nfiles, base, 1, nfixed, &b->start);
    for (int k = 0; ok && k < b->nparts; k++) {
        double *at[GEN_FILES];
        if (!varies[k]) continue;
        for (int f = 0; f < nfiles; f++) at[f] = &slope[f][0][k];
        ok = join_coef(arena, nfiles, at, MAX_PARTS, nfixed, &b->step[k]);
    }
    for (int f = 0; f < nfiles; f++) {
        mem_free(base[f]);
        mem_free(slope[f]);
    }
    return ok;
}

/* ------------------------------------------------------------------ runs */

/* Element (i, k) of parts p and q is element (i + 1, k + 1), everywhere. */
static bool by_difference(const Dense *d, int p, int q)
{
    int64_t index[MAX_PARTS + MAX_RANK] = {0}, flat = 0, diagonal = d->stride[p] + d->stride[q];
    if (!d->count) return false;
    do
        if (index[p] + 1 < d->n[p] && index[q] + 1 < d->n[q] && !equal_at(d, flat, d, flat + diagonal)) return false;
    while (next_index(d, index, &flat));
    return true;
}

/* A new dense tensor whose axis p has the given picks of it, and whose axis `drop` (or -1) is at given places. */
static bool pick(const Dense *d, int p, int64_t n, const int64_t *at_p, int drop, const int64_t *at_drop, Dense *out)
{
    Dense r = *d;
    r.n[p] = n;
    if (drop >= 0) r.n[drop] = 1;
    set_strides(&r);
    char *bytes = mem_alloc((size_t)(r.count > 0 ? r.count : 1) * r.size);
    if (!bytes) return false;
    int64_t index[MAX_PARTS + MAX_RANK] = {0}, flat = 0;
    if (r.count) do {
            int64_t from = 0;
            for (int k = 0; k < r.rank; k++)
                from += (k == p ? at_p[index[p]] : k == drop ? at_drop[index[p]] : index[k]) * d->stride[k];
            memcpy(bytes + (size_t)flat * r.size, element(d, from), r.size);
        } while (next_index(&r, index, &flat));
    r.at = bytes;
    *out = r;
    return true;
}

static bool same_slice(const Dense *d, int p, int64_t i, int64_t k)
{
    Dense part = *d;
    part.n[p] = 1;
    int64_t count = 1, index[MAX_PARTS + MAX_RANK] = {0}, flat = 0;
    for (int a = 0; a < part.rank; a++) count *= part.n[a]; /* strides stay those of d */
    if (!count) return true;
    do
        if (!equal_at(d, flat + i * d->stride[p], d, flat + k * d->stride[p])) return false;
    while (next_index(&part, index, &flat));
    return true;
}

/* The starts of runs 1, 2, ... along axis p; -1 when there are too many. */
static int runs_along(const Dense *d, int p, int64_t *start)
{
    int n = 1;
    for (int64_t i = 1; i < d->n[p]; i++) {
        if (same_slice(d, p, i - 1, i)) continue;
        if (n == MAX_RUNS) return -1;
        start[n++ - 1] = i;
    }
    return n;
}

typedef struct Work { /* the tensors of all files while they shrink */
    Dense d[GEN_FILES];
    char *own[GEN_FILES];
    int nfiles;
} Work;

static bool shrink(Work *w, int f, int p, int64_t n, const int64_t *at_p, int drop, const int64_t *at_drop)
{
    Dense out;
    if (!pick(&w->d[f], p, n, at_p, drop, at_drop, &out)) return false;
    mem_free(w->own[f]);
    w->own[f] = (char *)(uintptr_t)out.at;
    w->d[f] = out;
    return true;
}

/* Parts p and q become one axis of differences, p - q from -(n_q - 1) on. */
static bool fold_difference(Work *w, int p, int q)
{
    for (int f = 0; f < w->nfiles; f++) {
        int64_t np = w->d[f].n[p], nq = w->d[f].n[q], n = np + nq - 1;
        int64_t *at = mem_alloc((size_t)(2 * n + 2) * sizeof *at);
        if (!at) return false;
        for (int64_t i = 0; i < n; i++) {
            at[i] = i >= nq - 1 ? i - (nq - 1) : 0;
            at[n + i] = i >= nq - 1 ? 0 : nq - 1 - i;
        }
        bool ok = shrink(w, f, p, n, at, q, at + n);
        mem_free(at);
        if (!ok) return false;
    }
    return true;
}

static bool fold_runs(Work *w, Baked *b, int p, int minus, const int64_t *shift)
{
    RunAxis *a = &b->runs[b->nruns_axes];
    *a = (RunAxis){.part = p, .minus = minus};
    int64_t start[GEN_FILES][MAX_RUNS];
    for (int f = 0; f < w->nfiles; f++) {
        int n = runs_along(&w->d[f], p, start[f]);
        if (n < 0 || (f && n != a->nruns)) return false;
        a->nruns = n;
    }
    for (int f = 0; f < w->nfiles; f++) {
        int64_t at[MAX_RUNS] = {0};
        for (int r = 1; r < a->nruns; r++) {
            at[r] = start[f][r - 1];
            a->start[r - 1][f] = start[f][r - 1] - shift[f];
        }
        if (!shrink(w, f, p, a->nruns, at, -1, NULL)) return false;
    }
    b->nruns_axes++;
    return true;
}

static bool constant_along(const Work *w, int p)
{
    int64_t start[MAX_RUNS];
    for (int f = 0; f < w->nfiles; f++)
        if (runs_along(&w->d[f], p, start) != 1) return false;
    return true;
}

/* The runs of all axes in front, then what does not vary. */
static bool take_table(Arena *arena, Baked *b, const Work *w)
{
    const Dense *d = &w->d[0];
    for (int f = 1; f < w->nfiles; f++)
        if (w->d[f].count != d->count || memcmp(w->d[f].at, d->at, (size_t)d->count * d->size)) return false;
    int order[MAX_PARTS], n = 0, rank = 0;
    int64_t shape[MAX_RANK];
    for (int i = 0; i < b->nruns_axes; i++) order[n++] = b->runs[i].part;
    for (int k = 0; k < b->nparts; k++)
        if (!b->part[k].varies) order[n++] = k;
    if (n > MAX_RANK || !d->count) return false;
    Dense view = {.dtype = d->dtype, .rank = n, .size = d->size, .at = d->at};
    for (int i = 0; i < n; i++) shape[rank++] = view.n[i] = d->n[order[i]];
    char *bytes = arena_alloc(arena, (size_t)d->count, d->size);
    if (!bytes) return false;
    set_strides(&view);
    int64_t index[MAX_PARTS + MAX_RANK] = {0}, flat = 0;
    do {
        int64_t from = 0;
        for (int i = 0; i < n; i++) from += index[i] * d->stride[order[i]];
        memcpy(bytes + (size_t)flat * d->size, element(d, from), d->size);
    } while (next_index(&view, index, &flat));
    b->table = tensor_of(d->dtype, rank, shape, bytes);
    return true;
}

static bool find_runs(Arena *arena, Baked *b, const Dense *dense, int nfiles)
{
    Work w = {.nfiles = nfiles};
    bool done[MAX_PARTS] = {false}, ok = true, shorter = false;
    static const int64_t none[GEN_FILES] = {0};
    memcpy(w.d, dense, (size_t)nfiles * sizeof *dense);
    b->nruns_axes = 0;
    for (int k = 0; ok && k < b->nparts; k++)
        if (b->part[k].varies && constant_along(&w, k)) done[k] = ok = fold_runs(&w, b, k, -1, none);
    for (int p = 0; ok && p < b->nparts; p++)
        for (int q = p + 1; ok && !done[p] && q < b->nparts; q++) {
            if (!b->part[p].varies || !b->part[q].varies || done[q]) continue;
            bool along = true;
            int64_t shift[GEN_FILES] = {0};
            for (int f = 0; along && f < nfiles; f++) {
                along = by_difference(&w.d[f], p, q);
                shift[f] = w.d[f].n[q] - 1;
            }
            if (!along) continue;
            ok = fold_difference(&w, p, q) && fold_runs(&w, b, p, q, shift);
            done[p] = done[q] = true;
        }
    for (int k = 0; ok && k < b->nparts; k++)
        if (b->part[k].varies && !done[k]) ok = fold_runs(&w, b, k, -1, none);
    for (int i = 0; i < b->nruns_axes; i++) /* as many runs as elements says nothing */
        for (int f = 0; f < nfiles; f++) shorter |= dense[f].n[b->runs[i].part] > b->runs[i].nruns;
    ok = ok && shorter && take_table(arena, b, &w);
    for (int f = 0; f < nfiles; f++) mem_free(w.own[f]);
    return ok;
}

/* ------------------------------------------------------------------ prefix, numbers */

static bool find_prefix(Baked *b, const Dense *d, int nfiles)
{
    b->file = 0;
    for (int f = 1; f < nfiles; f++)
        if (d[f].count > d[b->file].count) b->file = f;
    const Dense *all = &d[b->file];
    for (int f = 0; f < nfiles; f++) {
        if (d[f].count < 2) return false;
        for (int k = 0; k < all->rank; k++)
            if (d[f].n[k] > all->n[k]) return false;
        int64_t index[MAX_PARTS + MAX_RANK] = {0}, flat = 0;
        do {
            int64_t from = 0;
            for (int k = 0; k < all->rank; k++) from += index[k] * all->stride[k];
            if (!equal_at(&d[f], flat, all, from)) return false;
        } while (next_index(&d[f], index, &flat));
    }
    return true;
}

static bool find_numbers(Baked *b, const Dense *d, int nfiles)
{
    if (d[0].count > MAX_NUMBERS || !d[0].count || dtype_is_complex(b->dtype) || b->dtype == DT_BOOL) return false;
    if (dtype_is_float(b->dtype) && d[0].count > 4) return false;
    for (int f = 0; f < nfiles; f++) {
        if (d[f].count != d[0].count) return false;
        for (int64_t i = 0; i < d[f].count; i++) b->number[i][f] = value(&d[f], i);
    }
    return true;
}

/* ------------------------------------------------------------------ all */

static bool dense_of(Arena *arena, const Tensor *t, Dense *d)
{
    *d = (Dense){.dtype = t->dtype, .size = dtype_size(t->dtype), .at = t->data};
    if (tensor_contiguous(t)) return true;
    void *bytes = arena_alloc(arena, tensor_bytes(t) + 1, 1);
    if (!bytes) return false;
    Tensor to = tensor_of(t->dtype, t->rank, t->shape, bytes);
    tensor_copy(&to, t);
    d->at = bytes;
    return true;
}

/* The parts of the axes, an axis with sizes `of` as split says; false when that does not apply anywhere. */
static bool set_parts(Baked *b, Dense *d, int nfiles, const Split *split)
{
    bool applied = !split;
    b->nparts = 0;
    for (int k = 0; k < b->rank; k++) {
        bool fits = split != NULL;
        for (int f = 0; fits && f < nfiles; f++) fits = split->left[f] * split->right[f] == b->shape[k][f];
        if (b->nparts + 2 > MAX_PARTS) return false;
        for (int half = 0; half < (fits ? 2 : 1); half++) {
            Part *p = &b->part[b->nparts++];
            *p = (Part){.axis = k};
            for (int f = 0; f < nfiles; f++) {
                p->n[f] = !fits ? b->shape[k][f] : half ? split->right[f] : split->left[f];
                p->varies |= p->n[f] != p->n[0];
            }
        }
        applied |= fits;
    }
    for (int f = 0; f < nfiles; f++) {
        d[f].rank = b->nparts;
        for (int k = 0; k < b->nparts; k++) d[f].n[k] = b->part[k].n[f];
        set_strides(&d[f]);
    }
    return applied;
}

static void say_difference(Arena *arena, Baked *b, const Dense *d, int nfiles, const char *const *name, bool parameter)
{
    for (int f = 1; f < nfiles; f++) {
        int64_t i = 0;
        bool shape = d[f].count != d[0].count;
        for (int k = 0; k < b->rank; k++) shape |= b->shape[k][f] != b->shape[k][0];
        if (shape) {
            b->why = arena_printf(
                arena,
                parameter
                    ? "a parameter whose size depends on the input's: learned values cannot be computed from sizes"
                    : "no pattern was found: neither an affine index, runs, nor a part of the larger one");
            return;
        }
        while (i < d[0].count && equal_at(&d[0], i, &d[f], i)) i++;
        if (i == d[0].count) continue;
        b->why = arena_printf(arena, "same shape, different values: element %lld is %.9g in %s and %.9g in %s%s",
                              (long long)i, value(&d[0], i), name[0], value(&d[f], i), name[f],
                              parameter ? "; the files hold different weights" : "");
        return;
    }
    b->why = arena_strdup(arena, "no pattern was found");
}

Baked *baked_find(Arena *arena, const Tensor *const *t, int nfiles, const char *const *name, bool parameter,
                  const Split *split, int nsplit)
{
    Baked *b = arena_new(arena, Baked);
    Dense d[GEN_FILES];
    if (!b) return NULL;
    b->dtype = t[0]->dtype;
    b->rank = t[0]->rank;
    b->kind = BAKED_UNKNOWN;
    bool same = true;
    for (int f = 0; f < nfiles; f++) {
        if (t[f]->dtype != b->dtype || t[f]->rank != b->rank) {
            char x[200], y[200];
            b->why = arena_printf(arena, "%s in %s, %s in %s", tensor_describe(t[0], x, sizeof x), name[0],
                                  tensor_describe(t[f], y, sizeof y), name[f]);
            return b->why ? b : NULL;
        }
        if (!dense_of(arena, t[f], &d[f])) return NULL;
        for (int k = 0; k < b->rank; k++) {
            b->shape[k][f] = t[f]->shape[k];
            same = same && t[f]->shape[k] == t[0]->shape[k];
        }
    }
    if (!set_parts(b, d, nfiles, NULL)) {
        b->why = arena_printf(arena, "rank %d is too large", b->rank);
        return b;
    }
    bool shape = same;
    for (int f = 1; same && f < nfiles; f++)
        same = d[f].at == d[0].at || !d[0].count || !memcmp(d[f].at, d[0].at, (size_t)d[0].count * d[0].size);
    if (same) b->kind = BAKED_SAME;
    else if (shape && !parameter && find_numbers(b, d, nfiles)) b->kind = BAKED_NUMBERS;
    else {
        Baked best = *b;
        int64_t least = INT64_MAX;
        for (int i = -1; best.kind != BAKED_AFFINE && i < nsplit; i++) {
            if ((i < 0 && shape) || !set_parts(b, d, nfiles, i < 0 ? NULL : &split[i])) continue;
            if (find_affine(arena, b, d, nfiles)) b->kind = BAKED_AFFINE;
            else if (find_runs(arena, b, d, nfiles)) b->kind = BAKED_RUNS;
            else continue;
            int64_t size = 1; /* the smallest table says the most; of two that are as small the one over known sizes */
            for (int k = 0; b->kind == BAKED_RUNS && k < b->table.rank; k++) size *= b->table.shape[k];
            if (size <= least) best = *b;
            if (size < least) least = size;
        }
        *b = best;
        if (b->kind == BAKED_UNKNOWN) set_parts(b, d, nfiles, NULL);
        if (b->kind == BAKED_UNKNOWN && !shape && find_prefix(b, d, nfiles)) b->kind = BAKED_PREFIX;
    }
    if (b->kind == BAKED_UNKNOWN) say_difference(arena, b, d, nfiles, name, parameter);
    return b->kind != BAKED_UNKNOWN || b->why ? b : NULL;
}
