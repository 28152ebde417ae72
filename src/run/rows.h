/* A tensor as rows: the dims to work along are brought to the end and made contiguous.
 *
 *     Rows r;
 *     rows_of(c, call_in(c, 0), set, &r, err)         row i is row_at(&r, i), r.n values of r.t
 *
 * Floats work in float (double for f64), integers and bools in int64_t; rows of another dtype or with strides are
 * copied first.
 */
#ifndef QKV_RUN_ROWS_H
#define QKV_RUN_ROWS_H
#include "run/run.h"

/* rows x n values of F32, F64 or I64; kept dims of the input in order make the rows. */
typedef struct Rows {
    DType t;
    int64_t rows, n;
    const void *data;
} Rows;

static inline DType row_type(DType t) { return t == DT_F64 ? DT_F64 : dtype_is_float(t) ? DT_F32 : DT_I64; }
static inline const void *row_at(const Rows *r, int64_t i)
{
    return (const char *)r->data + (size_t)(i * r->n) * dtype_size(r->t);
}
/* Number i of a row of floats. */
static inline double value_at(const Rows *r, const void *row, int64_t i)
{
    return r->t == DT_F32 ? (double)((const float *)row)[i] : ((const double *)row)[i];
}

/* Sum of (x - m)^2 over a row of floats, in eight sums: none waits for the one before it. */
double rows_squares(const Rows *r, const void *row, double m);
bool rows_of(Call *c, const Tensor *x, const bool *set, Rows *r, Err *err);
/* The dims that argument `arg` lists; all when it lists none. */
void rows_dims(const Call *c, int arg, int rank, bool *set);
/* out[i] = f, or v when the rows are integers. */
void rows_put(Tensor *out, int64_t i, double f, int64_t v, bool is_float);
/* Results of type t are laid out as rows with dim d last; out wants d in its place. */
bool rows_back(Call *c, Tensor *out, const void *rows, DType t, int d, Err *err);
#endif
