/* Tensors as rows. Contract in rows.h. */
#include "run/rows.h"
#include "run/pointwise.h"

/* x with the set dims after the others. */
static Tensor moved(const Tensor *x, const bool *set)
{
    Tensor u = *x;
    int n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->rank; i++)
            if (set[i] == (pass == 1)) {
                u.shape[n] = x->shape[i];
                u.stride[n++] = x->stride[i];
            }
    return u;
}

bool rows_of(Call *c, const Tensor *x, const bool *set, Rows *r, Err *err)
{
    Tensor u = moved(x, set);
    *r = (Rows){.t = row_type(x->dtype), .rows = 1, .n = 1};
    for (int i = 0; i < x->rank; i++) *(set[i] ? &r->n : &r->rows) *= x->shape[i];
    const Tensor *flat = call_contiguous(c, &u, r->t, err);
    TRY(flat);
    r->data = flat->data;
    return true;
}

void rows_dims(const Call *c, int arg, int rank, bool *set)
{
    int64_t d[MAX_RANK];
    int n = call_ints(c, arg, d, MAX_RANK);
    for (int i = 0; i < MAX_RANK; i++) set[i] = n == 0 && i < rank;
    for (int i = 0; i < n; i++) set[d[i] < 0 ? d[i] + (rank ? rank : 1) : d[i]] = true;
}

void rows_put(Tensor *out, int64_t i, double f, int64_t v, bool is_float)
{
    void *p = (char *)out->data + (size_t)i * dtype_size(out->dtype);
    if (is_float) store_f64(out->dtype, p, f);
    else store_i64(out->dtype, p, v);
}

bool rows_back(Call *c, Tensor *out, const void *rows, DType t, int d, Err *err)
{
    Tensor u = *out;
    int64_t n = 1;
    u.dtype = t;
    u.data = (void *)(uintptr_t)rows;
    if (u.rank) u.stride[d] = 1;
    n = u.rank ? u.shape[d] : 1;
    for (int i = u.rank - 1; i >= 0; i--)
        if (i != d) {
            u.stride[i] = n;
            n *= u.shape[i];
        }
    return run_copy_tensor(out, &u, c->env->threads) ||
           call_fail(c, E_UNSUPPORTED, err, "a copy from %s to %s", dtype_name(t), dtype_name(out->dtype));
}

double rows_squares(const Rows *r, const void *row, double m)
{
    enum { SUMS = 8 };
    double s[SUMS] = {0};
    int64_t n = r->n, i = 0;
    const float *f = row;
    const double *d = row;
    for (; i + SUMS <= n && r->t == DT_F32; i += SUMS)
        for (int k = 0; k < SUMS; k++) s[k] += ((double)f[i + k] - m) * ((double)f[i + k] - m);
    for (; i + SUMS <= n && r->t != DT_F32; i += SUMS)
        for (int k = 0; k < SUMS; k++) s[k] += (d[i + k] - m) * (d[i + k] - m);
    for (; i < n; i++) s[0] += (value_at(r, row, i) - m) * (value_at(r, row, i) - m);
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}
