/* Fourier transforms: one dim after the other, lines of the others side by side.
 *
 *     fft_real(x, [1, 2], 0, true)     lines of dim 2 to pairs, then those of dim 1 in place
 *
 * A step keeps the roots of its lengths for the next run (c->state).
 */
#include <math.h>
#include "base/mem.h"
#include "kernel/kernel.h"
#include "run/product.h"
#include "run/run_table.h"

/* ------------------------------------------------------------------ plans of a step */

typedef struct Plans { /* of dim i of the list */
    FftPlan plan[MAX_RANK];
    void *roots[MAX_RANK];
} Plans;

static void free_plans(void *state)
{
    Plans *p = state;
    for (int i = 0; i < MAX_RANK; i++) mem_free(p->roots[i]);
    mem_free(p);
}

static bool plan_of(Call *c, int i, int64_t n, bool real, DType t, const FftPlan **out, Err *err)
{
    Plans *p = c->state;
    FftPlan fresh;
    if (!p) {
        p = c->state = mem_zeroed(1, sizeof *p);
        if (!p) return oom(err);
        c->state_free = free_plans;
    }
    *out = &p->plan[i];
    if (p->roots[i] && p->plan[i].n == n) return true;
    if (n < 1) return call_fail(c, E_USAGE, err, "a Fourier transform of %lld elements", (long long)n);
    if (!fft_plan(&fresh, n, real, t)) return call_fail(c, E_LIMIT, err, "%lld elements are too many", (long long)n);
    mem_free(p->roots[i]);
    p->roots[i] = mem_aligned(64, fresh.bytes);
    if (!p->roots[i]) return oom(err);
    fft_plan_fill(&fresh, p->roots[i]);
    p->plan[i] = fresh;
    return true;
}

/* ------------------------------------------------------------------ one dim */

typedef struct Side { /* a tensor, perhaps with a last axis of pairs */
    const Tensor *t;
    int64_t imag;
} Side;

static Side pairs_of(const Tensor *t) { return (Side){t, t->stride[t->rank - 1]}; }
static Side reals_of(const Tensor *t) { return (Side){t, 0}; }

/* The lines along dim d, from one tensor to the other. */
static bool transform(Call *c, Fft *f, Side in, Side out, int rank, int d, Err *err)
{
    size_t bytes;
    f->rank = 0;
    for (int i = 0; i < rank; i++) {
        if (i == d) continue;
        f->shape[f->rank] = out.t->shape[i];
        f->in_stride[f->rank] = in.t->stride[i];
        f->out_stride[f->rank++] = out.t->stride[i];
    }
    f->in = in.t->data;
    f->in_step = in.t->stride[d];
    f->in_imag = in.imag;
    f->out = out.t->data;
    f->out_step = out.t->stride[d];
    f->out_imag = out.imag;
    if (!fft_line_count(f)) return true;
    if (!fft_work(f, c->env->threads, &bytes)) return call_fail(c, E_LIMIT, err, "lines are too long");
    TRY(f->work = call_scratch(c, bytes, err));
    const FftKernels *k = &kernels()->fft;
    if (f->plan->t == DT_F64) k->lines_f64(f, c->env->threads);
    else k->lines_f32(f, c->env->threads);
    return true;
}

/* 1, 1 / sqrt(n), 1 / n */
static double factor(const Call *c, int64_t n)
{
    int64_t norm = call_i64(c, 2);
    return norm == 0 ? 1 : norm == 1 ? 1 / sqrt((double)n) : 1 / (double)n;
}

typedef struct Dims {
    int n;
    int64_t at[MAX_RANK];
} Dims;

static Dims dims_of(const Call *c)
{
    Dims d;
    d.n = call_ints(c, 1, d.at, MAX_RANK);
    return d;
}

/* Complex transforms of the first `count` dims in the list, in place of `out` but for the first one's operand. */
static bool complex_dims(Call *c, const Tensor *in, const Tensor *out, int count, bool inverse, Err *err)
{
    Dims d = dims_of(c);
    for (int i = 0; i < count; i++) {
        Fft f = {.kind = FFT_COMPLEX, .inverse = inverse};
        int64_t n = out->shape[d.at[i]];
        TRY(plan_of(c, i, n, false, out->dtype, &f.plan, err));
        f.scale = factor(c, n);
        TRY(transform(c, &f, pairs_of(i ? out : in), pairs_of(out), out->rank - 1, (int)d.at[i], err));
    }
    return true;
}

/* ------------------------------------------------------------------ rows */

bool run_fft_complex(Call *c, Err *err)
{
    return complex_dims(c, call_in(c, 0), call_out(c, 0), dims_of(c).n, !call_bool(c, 3), err);
}

bool run_fft_real(Call *c, Err *err)
{
    const Tensor *x = call_in(c, 0), *out = call_out(c, 0);
    Dims d = dims_of(c);
    int last = (int)d.at[d.n - 1];
    Fft f = {.kind = FFT_TO_COMPLEX, .whole = !call_bool(c, 3), .scale = factor(c, x->shape[last])};
    TRY(plan_of(c, d.n - 1, x->shape[last], true, x->dtype, &f.plan, err));
    return transform(c, &f, reals_of(x), pairs_of(out), x->rank, last, err) &&
           complex_dims(c, out, out, d.n - 1, false, err);
}

/* The other dims go through scratch. */
bool run_fft_to_real(Call *c, Err *err)
{
    const Tensor *x = call_in(c, 0), *out = call_out(c, 0);
    Dims d = dims_of(c);
    int last = (int)d.at[d.n - 1];
    Fft f = {.kind = FFT_TO_REAL, .inverse = true, .scale = factor(c, out->shape[last])};
    TRY(plan_of(c, d.n - 1, out->shape[last], true, x->dtype, &f.plan, err));
    if (d.n > 1) {
        const Tensor *work = product_scratch(c, x->dtype, x->rank, x->shape, err);
        TRY(work && complex_dims(c, x, work, d.n - 1, true, err));
        x = work;
    }
    return transform(c, &f, pairs_of(x), reals_of(out), out->rank, last, err);
}
