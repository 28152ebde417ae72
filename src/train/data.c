/* Data and their order. Contract in data.h. */
#include "train/data.h"
#include <string.h>
#include "base/mem.h"

enum { DEFAULT_BATCH = 32, ALIGN = 64 };

struct Data {
    const Graph *g;
    Tensor *from; /* per input; contiguous */
    void **own;   /* the copy of one that was not */
    void **room;  /* rows of the current batch */
    bool *whole;
    int64_t rows, batch;
    bool fixed;
};

static bool fixed_shape(const Value *v, const Tensor *t)
{
    bool same = true;
    for (int k = 0; k < v->rank; k++) same &= ex_is_int(v->dim[k]) && v->dim[k]->i == t->shape[k];
    return same;
}

static bool take(Data *d, int i, const Tensor *t, Err *err)
{
    const Value *v = d->g->input[i];
    if (!t->data && !t->rank)
        return fail(err, E_USAGE, "the data have no '%s', which is an input of the model", value_label(v));
    if (t->dtype != v->dtype)
        return fail(err, E_USAGE, "the data '%s' are %s, expected %s: convert them", value_label(v),
                    dtype_name(t->dtype), dtype_name(v->dtype));
    if (t->rank != v->rank)
        return fail(err, E_USAGE, "the data '%s' have rank %d, expected %d: axis 0 counts the examples", value_label(v),
                    t->rank, v->rank);
    for (int k = 1; k < v->rank; k++)
        if (ex_is_int(v->dim[k]) && v->dim[k]->i != t->shape[k])
            return fail(err, E_USAGE, "the data '%s': axis %d is %lld, expected %lld", value_label(v), k,
                        (long long)t->shape[k], (long long)v->dim[k]->i);
    d->from[i] = *t;
    if (t->rank && t->shape[0] > d->rows) d->rows = t->shape[0];
    if (tensor_contiguous(t)) return true;
    d->own[i] = mem_alloc(tensor_bytes(t) + 1);
    if (!d->own[i]) return oom(err);
    d->from[i] = tensor_of(t->dtype, t->rank, t->shape, d->own[i]);
    tensor_copy(&d->from[i], t);
    return true;
}

/* As many rows as every input with a row an example may have. */
static int64_t usual_batch(const Data *d)
{
    int64_t n = DEFAULT_BATCH, low, high;
    for (int i = 0; i < d->g->ninput; i++) {
        if (d->whole[i]) continue;
        ex_range(d->g->ex, d->g->input[i]->dim[0], &low, &high);
        n = n > high ? high : n < low ? low : n;
    }
    return n > 1 ? n : 1;
}

static bool agree(Data *d, Err *err)
{
    for (int i = 0; i < d->g->ninput; i++) {
        const Value *v = d->g->input[i];
        const Tensor *t = &d->from[i];
        d->whole[i] = !t->rank || t->shape[0] != d->rows;
        if (d->whole[i] && !fixed_shape(v, t))
            return fail(err, E_USAGE, "the data '%s' have %lld rows, other data have %lld", value_label(v),
                        (long long)(t->rank ? t->shape[0] : 0), (long long)d->rows);
        if (d->whole[i] || !ex_is_int(v->dim[0])) continue;
        if (d->batch && d->batch != v->dim[0]->i)
            return fail(err, E_USAGE,
                        "input '%s' takes batches of %lld, found %lld: leave the batch out, or export the model with a "
                        "batch that varies",
                        value_label(v), (long long)v->dim[0]->i, (long long)d->batch);
        d->batch = v->dim[0]->i;
        d->fixed = true;
    }
    if (!d->batch) d->batch = usual_batch(d);
    if (d->rows < 1) return fail(err, E_USAGE, "the data have no rows");
    if (d->fixed && d->rows < d->batch)
        return fail(err, E_USAGE, "the data have %lld rows, and the model takes batches of %lld", (long long)d->rows,
                    (long long)d->batch);
    return d->rows <= DATA_MOST_ROWS ||
           fail(err, E_LIMIT, "the data have %lld rows, at most %d are taken", (long long)d->rows, DATA_MOST_ROWS);
}

static bool rooms(Data *d, Err *err)
{
    for (int i = 0; i < d->g->ninput; i++) {
        if (d->whole[i]) continue;
        int64_t n = d->batch < d->rows ? d->batch : d->rows;
        size_t row = tensor_bytes(&d->from[i]) / (size_t)d->rows, bytes;
        if (__builtin_mul_overflow(row, (size_t)n, &bytes) ||
            !(d->room[i] = mem_aligned(ALIGN, (bytes + ALIGN) / ALIGN * ALIGN)))
            return oom(err);
    }
    return true;
}

Data *data_create(const Graph *g, const Tensor *tensor, int64_t batch, Err *err)
{
    Data *d = mem_zeroed(1, sizeof *d);
    size_t n = (size_t)g->ninput + 1;
    bool ok = d && (d->from = mem_zeroed(n, sizeof *d->from)) && (d->own = mem_zeroed(n, sizeof *d->own)) &&
              (d->room = mem_zeroed(n, sizeof *d->room)) && (d->whole = mem_zeroed(n, sizeof *d->whole));
    if (!ok) oom(err);
    if (ok) {
        d->g = g;
        d->batch = batch;
    }
    for (int i = 0; ok && i < g->ninput; i++) ok = take(d, i, &tensor[i], err);
    if (ok && agree(d, err) && rooms(d, err)) return d;
    data_free(d);
    return NULL;
}

void data_free(Data *d)
{
    if (!d) return;
    for (int i = 0; d->g && i < d->g->ninput; i++) {
        mem_free(d->own[i]);
        mem_free(d->room[i]);
    }
    mem_free(d->from);
    mem_free(d->own);
    mem_free(d->room);
    mem_free(d->whole);
    mem_free(d);
}

int64_t data_rows(const Data *d) { return d->rows; }
int64_t data_batch_size(const Data *d) { return d->batch; }
bool data_fixed(const Data *d) { return d->fixed; }

bool data_batch(Data *d, Session *s, const int64_t *row, int64_t n, Err *err)
{
    for (int i = 0; i < d->g->ninput; i++) {
        Tensor t = d->from[i];
        if (!d->whole[i]) {
            size_t bytes = tensor_bytes(&t) / (size_t)d->rows;
            for (int64_t k = 0; bytes && k < n; k++)
                memcpy((char *)d->room[i] + (size_t)k * bytes, (const char *)t.data + (size_t)row[k] * bytes, bytes);
            t.shape[0] = n;
            t.data = d->room[i];
        }
        TRY(session_set_input(s, i, &t, err));
    }
    return true;
}

void data_permutation(Rng *g, int64_t n, int64_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = i;
    for (int64_t i = 0; i + 1 < n; i++) {
        int64_t k = i + (int64_t)(rng_u32(g) % (uint64_t)(n - i)), x = out[i];
        out[i] = out[k];
        out[k] = x;
    }
}
