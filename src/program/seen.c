/* What calibration has seen, in a file. Contract in seen.h. */
#include "program/seen.h"
#include <math.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "format/tensors.h"

/* The tensors of the file, in memory. */
typedef struct Parts {
    int64_t *count, *all, *rows, *channels;
    double *range, *bins;
    uint32_t *most;
    int64_t nbins, nmost; /* points with bins: all or 0 */
} Parts;

enum { PARTS = 9 };

static const char *const names[PARTS] = {"key", "done", "count", "range", "bins", "all", "rows", "channels", "most"};

static void parts_free(Parts *p)
{
    mem_free(p->count);
    mem_free(p->range);
    mem_free(p->bins);
    mem_free(p->all);
    mem_free(p->rows);
    mem_free(p->channels);
    mem_free(p->most);
}

static bool parts_room(Parts *p, int n, Err *err)
{
    const size_t points = (size_t)n + 1;
    p->count = mem_zeroed(points, 2 * sizeof *p->count);
    p->range = mem_zeroed(points, 2 * sizeof *p->range);
    p->bins = mem_zeroed((size_t)p->nbins + 1, OBSERVER_BINS * sizeof *p->bins);
    p->all = mem_zeroed(points, MASSIVE_BINS * sizeof *p->all);
    p->rows = mem_zeroed(points, MASSIVE_BINS * sizeof *p->rows);
    p->channels = mem_zeroed(points, sizeof *p->channels);
    p->most = mem_zeroed((size_t)p->nmost + 1, sizeof *p->most);
    return (p->count && p->range && p->bins && p->all && p->rows && p->channels && p->most) || oom(err);
}

static void parts_tensors(const Parts *p, const Seen *s, Tensor *t)
{
    t[0] = tensor_of(DT_U8, 1, (int64_t[]){DIGEST_TEXT - 1}, (void *)(uintptr_t)s->key);
    t[1] = tensor_of(DT_I64, 0, NULL, (void *)(uintptr_t)&s->done);
    t[2] = tensor_of(DT_I64, 2, (int64_t[]){s->n, 2}, p->count);
    t[3] = tensor_of(DT_F64, 2, (int64_t[]){s->n, 2}, p->range);
    t[4] = tensor_of(DT_F64, 2, (int64_t[]){p->nbins, OBSERVER_BINS}, p->bins);
    t[5] = tensor_of(DT_I64, 2, (int64_t[]){s->n, MASSIVE_BINS}, p->all);
    t[6] = tensor_of(DT_I64, 2, (int64_t[]){s->n, MASSIVE_BINS}, p->rows);
    t[7] = tensor_of(DT_I64, 1, (int64_t[]){s->n}, p->channels);
    t[8] = tensor_of(DT_U32, 1, (int64_t[]){p->nmost}, p->most);
}

bool seen_save(const Seen *s, const char *path, Err *err)
{
    Parts p = {0};
    Tensor t[PARTS];
    for (int i = 0; i < s->n; i++) {
        p.nmost += s->massive[i]->K;
        if (s->observer[i].bin) p.nbins = s->n;
    }
    bool ok = parts_room(&p, s->n, err);
    int64_t at = 0;
    for (int i = 0; ok && i < s->n; i++) {
        const Observer *o = &s->observer[i];
        const Massive *m = s->massive[i];
        memcpy(p.count + (ptrdiff_t)2 * i, (int64_t[]){o->batches, o->count}, 2 * sizeof *p.count);
        memcpy(p.range + (ptrdiff_t)2 * i, (double[]){o->low, o->high}, 2 * sizeof *p.range);
        if (o->bin) memcpy(p.bins + (ptrdiff_t)OBSERVER_BINS * i, o->bin, OBSERVER_BINS * sizeof *p.bins);
        memcpy(p.all + (ptrdiff_t)MASSIVE_BINS * i, m->all, sizeof m->all);
        memcpy(p.rows + (ptrdiff_t)MASSIVE_BINS * i, m->rows, sizeof m->rows);
        p.channels[i] = m->K;
        if (m->K) memcpy(p.most + at, m->most, (size_t)m->K * sizeof *p.most);
        at += m->K;
    }
    if (ok) parts_tensors(&p, s, t);
    ok = ok && tensorfile_write(path, names, t, PARTS, err);
    parts_free(&p);
    return ok || within(err, "calibration cache");
}

static bool damaged(const char *what, Err *err)
{
    return fail(err, E_FORMAT, "it holds no '%s' that qkv quantize would write: remove it", what);
}

/* Sizes and numbers that a run would have left; what is counted is not negative. */
static bool plausible(const Parts *p, const Seen *s, Err *err)
{
    int64_t channels = 0;
    if (s->done < 0 || s->done > s->total) return damaged("done", err);
    for (int i = 0; i < s->n; i++) {
        if (p->channels[i] < 0 || p->channels[i] > p->nmost - channels) return damaged("channels", err);
        channels += p->channels[i];
        for (int k = 0; k < 2; k++) {
            if (p->count[2 * i + k] < 0) return damaged("count", err);
            if (!isfinite(p->range[2 * i + k])) return damaged("range", err);
        }
    }
    if (channels != p->nmost) return damaged("most", err);
    for (int64_t i = 0; i < p->nbins * OBSERVER_BINS; i++)
        if (!(p->bins[i] >= 0 && isfinite(p->bins[i]))) return damaged("bins", err);
    for (int64_t i = 0; i < (int64_t)s->n * MASSIVE_BINS; i++) {
        if (p->all[i] < 0) return damaged("all", err);
        if (p->rows[i] < 0) return damaged("rows", err);
    }
    for (int64_t i = 0; i < p->nmost; i++)
        if (p->most[i] >= 0x7f800000) return damaged("most", err);
    return true;
}

static bool give(const Parts *p, Seen *s, Err *err)
{
    int64_t at = 0;
    for (int i = 0; i < s->n; i++) {
        Observer *o = &s->observer[i];
        Massive *m = s->massive[i];
        o->batches = p->count[2 * i];
        o->count = p->count[2 * i + 1];
        o->low = p->range[2 * i];
        o->high = p->range[2 * i + 1];
        if (p->nbins && !(o->bin = mem_alloc(OBSERVER_BINS * sizeof *o->bin))) return oom(err);
        if (p->nbins) memcpy(o->bin, p->bins + (ptrdiff_t)OBSERVER_BINS * i, OBSERVER_BINS * sizeof *o->bin);
        memcpy(m->all, p->all + (ptrdiff_t)MASSIVE_BINS * i, sizeof m->all);
        memcpy(m->rows, p->rows + (ptrdiff_t)MASSIVE_BINS * i, sizeof m->rows);
        if (!(m->most = mem_alloc((size_t)p->channels[i] * sizeof *m->most))) return oom(err);
        m->K = p->channels[i];
        memcpy(m->most, p->most + at, (size_t)m->K * sizeof *m->most);
        at += m->K;
    }
    return true;
}

static bool take_file(const TensorFile *f, Seen *s, Parts *p, Err *err)
{
    Tensor t[PARTS];
    Seen file = *s;
    const Tensor *bins = tensorfile_find(f, "bins"), *most = tensorfile_find(f, "most"),
                 *key = tensorfile_find(f, "key");
    if (!bins || bins->rank != 2 || (bins->shape[0] && bins->shape[0] != s->n)) return damaged("bins", err);
    if (!most || most->rank != 1) return damaged("most", err);
    if (!key || key->dtype != DT_U8 || key->rank != 1 || key->shape[0] != DIGEST_TEXT - 1) return damaged("key", err);
    if (memcmp(key->data, s->key, DIGEST_TEXT - 1) != 0)
        return fail(err, E_USAGE,
                    "it holds the ranges of another model or other data, or of another way to find them: remove it, or "
                    "name another file");
    p->nbins = bins->shape[0];
    p->nmost = most->shape[0];
    TRY(parts_room(p, s->n, err));
    parts_tensors(p, &file, t);
    for (int i = 0; i < PARTS; i++) {
        const Tensor *x = tensorfile_find(f, names[i]);
        bool same = x && x->dtype == t[i].dtype && x->rank == t[i].rank;
        for (int k = 0; same && k < x->rank; k++) same = x->shape[k] == t[i].shape[k];
        if (!same) return damaged(names[i], err);
        tensor_copy(&t[i], x);
    }
    TRY(plausible(p, &file, err) && give(p, s, err));
    s->done = file.done;
    return true;
}

bool seen_load(Seen *s, const char *path, Err *err)
{
    Parts p = {0};
    if (access(path, F_OK)) return true;
    TensorFile *f = tensorfile_open(path, err);
    bool ok = f && (take_file(f, s, &p, err) || within(err, "%s", path));
    parts_free(&p);
    tensorfile_close(f);
    return ok || within(err, "calibration cache");
}
