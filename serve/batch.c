/* Contract in batch.h. */
#include "serve/batch.h"
#include <string.h>
#include "base/arena.h"
#include "base/mem.h"

/* ------------------------------------------------------------------ one request */

static bool check_input(const Port *p, const Tensor *t, Err *err)
{
    char found[160];
    if (t->dtype != p->dtype || t->rank != p->rank)
        return fail(err, E_USAGE, "input '%s' is %s, expected %s with %d axes", p->name,
                    tensor_describe(t, found, sizeof found), dtype_name(p->dtype), p->rank);
    for (int k = 0; k < p->rank; k++)
        if (p->dim[k] >= 0 && t->shape[k] != p->dim[k])
            return fail(err, E_USAGE, "input '%s' has %lld along axis %d, expected %lld", p->name,
                        (long long)t->shape[k], k, (long long)p->dim[k]);
    return true;
}

/* All inputs agree on rows, and on tokens. */
static bool agree(const Model *m, const Item *item, Err *err)
{
    for (int i = 0; i < m->nin; i++) {
        const Tensor *t = &item->in[i];
        if (t->shape[0] != item->rows)
            return fail(err, E_USAGE, "input '%s' has %lld rows, '%s' has %lld", m->in[i].name, (long long)t->shape[0],
                        m->in[0].name, (long long)item->rows);
        if (m->ragged && t->rank > 1 && m->in[i].tokens[1] && t->shape[1] != item->tokens)
            return fail(err, E_USAGE, "input '%s' has %lld tokens, '%s' has %lld", m->in[i].name,
                        (long long)t->shape[1], m->in[m->mask].name, (long long)item->tokens);
    }
    if (item->rows < 1 || item->rows > m->max_rows)
        return fail(err, E_USAGE, "the batch is %lld, the model takes 1 to %lld", (long long)item->rows,
                    (long long)m->max_rows);
    if (m->ragged && (item->tokens < 1 || item->tokens > m->max_tokens))
        return fail(err, E_USAGE, "input '%s' has %lld tokens, the model takes %lld to %lld", m->in[m->mask].name,
                    (long long)item->tokens, (long long)m->min_tokens, (long long)m->max_tokens);
    return true;
}

static int64_t count_real(const Model *m, const Item *item)
{
    const Tensor *mask = &item->in[m->mask];
    int64_t n = item->rows * item->tokens, real = 0;
    size_t size = dtype_size(mask->dtype);
    for (int64_t i = 0; i < n; i++)
        real += load_i64(mask->dtype, (const char *)mask->data + (size_t)i * size) != m->padding;
    return real;
}

bool item_measure(const Model *m, Item *item, Err *err)
{
    for (int i = 0; i < m->nin; i++) TRY(check_input(&m->in[i], &item->in[i], err));
    item->rows = m->together ? item->in[0].shape[0] : 1;
    item->tokens = m->ragged ? item->in[m->mask].shape[1] : 0;
    item->real = item->rows;
    if (m->together) TRY(agree(m, item, err));
    if (m->ragged) item->real = count_real(m, item);
    return true;
}

bool items_fit(const Model *m, const Item *first, const Item *other)
{
    if (!m->together) return false;
    for (int i = 0; i < m->nin; i++)
        for (int k = 1; k < m->in[i].rank; k++)
            if (!m->in[i].tokens[k] && first->in[i].shape[k] != other->in[i].shape[k]) return false;
    return true;
}

BatchSize batch_size(Item *const *item, int n)
{
    BatchSize b = {0};
    int64_t longest = 1;
    for (int i = 0; i < n; i++) {
        b.rows += item[i]->rows;
        b.real += item[i]->real;
        if (item[i]->tokens > longest) longest = item[i]->tokens;
    }
    b.padded = b.rows * longest;
    return b;
}

/* ------------------------------------------------------------------ inputs one below the other */

static void copy_row(const Tensor *from, int64_t row, char *to)
{
    size_t bytes = dtype_size(from->dtype);
    for (int k = 1; k < from->rank; k++) bytes *= (size_t)from->shape[k];
    memcpy(to, (const char *)from->data + (size_t)row * bytes, bytes);
}

/* Every row of a joined input takes `room` bytes: that of its longest, with padding after the others'. */
static bool join(const Model *m, int i, Item *const *item, int n, int64_t rows, int64_t tokens, Arena *a, Tensor *out,
                 Err *err)
{
    const Port *p = &m->in[i];
    int64_t shape[MAX_RANK];
    size_t bytes;
    for (int k = 0; k < p->rank; k++) shape[k] = k && p->tokens[k] ? tokens : item[0]->in[i].shape[k];
    shape[0] = rows;
    TRY(shape_bytes(p->dtype, p->rank, shape, &bytes, err));
    char *data = arena_alloc(a, bytes + 1, 1), *to = data;
    if (!data) return oom(err);
    *out = tensor_of(p->dtype, p->rank, shape, data);
    size_t room = bytes / (size_t)rows, size = dtype_size(p->dtype);
    if (i == m->mask && m->padding)
        for (size_t k = 0; k < bytes; k += size) store_i64(p->dtype, data + k, m->padding);
    for (int k = 0; k < n; k++)
        for (int64_t r = 0; r < item[k]->rows; r++, to += room) copy_row(&item[k]->in[i], r, to);
    for (; to < data + bytes; to += room) memcpy(to, to - room, room); /* up to the least batch of the model */
    return true;
}

static bool set_inputs(const Model *m, qkv_session *s, Item *const *item, int n, Arena *a, Err *err)
{
    qkv_error e;
    int64_t rows = 0, tokens = m->ragged ? m->min_tokens : 0;
    for (int k = 0; k < n; k++) {
        rows += item[k]->rows;
        if (item[k]->tokens > tokens) tokens = item[k]->tokens;
    }
    if (m->together && rows < m->min_rows) rows = m->min_rows;
    bool as_is = n == 1 && (!m->together || (rows == item[0]->rows && tokens == item[0]->tokens));
    for (int i = 0; i < m->nin; i++) {
        Tensor *t = arena_new(a, Tensor);
        if (!t) return oom(err);
        if (as_is) *t = item[0]->in[i];
        else TRY(join(m, i, item, n, rows, tokens, a, t, err));
        qkv_tensor x = {(qkv_dtype)t->dtype, t->rank, t->shape, NULL, t->data};
        if (qkv_session_set_input(s, m->in[i].name, &x, &e)) return said(err, &e);
    }
    return true;
}

/* ------------------------------------------------------------------ each one's part */

static bool give(const Model *m, qkv_session *s, Item *const *item, int n, BatchTake *take, void *user, Err *err)
{
    Tensor whole[MOST_PORTS], part[MOST_PORTS + 1];
    qkv_error e;
    for (int i = 0; i < m->nout; i++) {
        qkv_tensor y;
        if (qkv_session_output(s, i, &y, &e)) return said(err, &e);
        whole[i] = tensor_from(&y);
    }
    int64_t row = 0;
    for (int k = 0; k < n; row += item[k++]->rows) {
        for (int i = 0; i < m->nout; i++) {
            Tensor *t = &part[i];
            *t = whole[i];
            if (!m->together) continue;
            t->data = (char *)t->data + row * t->stride[0] * (int64_t)dtype_size(t->dtype);
            t->shape[0] = item[k]->rows;
            for (int d = 1; d < t->rank; d++)
                if (m->out[i].tokens[d]) t->shape[d] = item[k]->tokens;
        }
        part[m->nout] = (Tensor){0};
        TRY(take(user, item[k], part, err));
    }
    return true;
}

bool batch_run(const Model *m, qkv_session *s, Item *const *item, int n, BatchTake *take, void *user, Err *err)
{
    qkv_error e;
    Arena *a = arena_create(0);
    if (!a) return oom(err);
    if (m->resets) {
        qkv_session_reset(s);
        qkv_session_seed(s, 0);
    }
    bool ok = set_inputs(m, s, item, n, a, err);
    if (ok && qkv_session_run(s, &e)) ok = said(err, &e);
    ok = ok && give(m, s, item, n, take, user, err);
    qkv_session_clear_inputs(s);
    arena_destroy(a);
    return ok;
}
