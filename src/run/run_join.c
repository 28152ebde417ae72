/* Joining: cat along any axis, of pictures along their channels, of an input that grows. */
#include <string.h>
#include "kernel/kernel.h"
#include "run/run_table.h"

/* Channels-last pictures along their channels (src/plan/layout.c): pixel by pixel. */
static void join_channels(Call *c, Tensor *out)
{
    size_t size = dtype_size(out->dtype), whole = (size_t)out->shape[1] * size;
    int64_t pixels = out->shape[1] ? tensor_numel(out) / out->shape[1] : 0;
#pragma omp parallel for num_threads(c->env->threads) if (tensor_numel(out) > 1 << 15)
    for (int64_t i = 0; i < pixels; i++) {
        char *to = (char *)out->data + (size_t)i * whole;
        for (int k = 0; k < c->arg[0].n; k++) {
            const Tensor *x = c->arg[0].ts[k];
            size_t piece = (size_t)x->shape[1] * size;
            memcpy(to, (const char *)x->data + (size_t)i * piece, piece);
            to += piece;
        }
    }
}

/* Is out contiguous but for room after what it has along axis d? */
static bool has_room(const Tensor *out, int d)
{
    Tensor t = *out;
    strides_with_room(&t, d, d && out->stride[d] ? out->stride[d - 1] / out->stride[d] : out->shape[d]);
    return !memcmp(t.stride, out->stride, (size_t)out->rank * sizeof *t.stride);
}

/* Elements of x that lie together, of axes from d on. */
static int64_t together(const Tensor *x, int d)
{
    int64_t n = 1;
    for (int i = x->rank - 1; i >= d && (x->shape[i] == 1 || x->stride[i] == n); i--) n *= x->shape[i];
    return n;
}

/* n pieces of `size` bytes that follow each other, `step` bytes apart in `to`: short ones without a call for each. */
static void spread(char *to, const char *from, int64_t n, int64_t size, int64_t step)
{
    if (size == 4)
        for (int64_t i = 0; i < n; i++, to += step, from += 4) memcpy(to, from, 4);
    else if (size == 2)
        for (int64_t i = 0; i < n; i++, to += step, from += 2) memcpy(to, from, 2);
    else if (size == 8)
        for (int64_t i = 0; i < n; i++, to += step, from += 8) memcpy(to, from, 8);
    else
        for (int64_t i = 0; i < n; i++, to += step, from += size) memcpy(to, from, (size_t)size);
}

/* x, whose elements lie together `run` at a time, into out: what has one index of the axes before d is `piece` elements
 * of x, `whole` of out. */
static void join(char *out, const Tensor *x, int64_t run, int64_t piece, int64_t whole, int threads)
{
    enum { PARALLEL = 1 << 15, BLOCK = 1 << 12 };
    int64_t size = (int64_t)dtype_size(x->dtype), n = tensor_numel(x) / run;
    if (run == piece && tensor_contiguous(x)) {
        int64_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(threads) if (n * run * size >= PARALLEL)
        for (int64_t i = 0; i < blocks; i++)
            spread(out + i * BLOCK * whole * size, (const char *)x->data + i * BLOCK * piece * size,
                   n - i * BLOCK < BLOCK ? n - i * BLOCK : BLOCK, piece * size, whole * size);
        return;
    }
#pragma omp parallel for num_threads(threads) if (n * run * size >= PARALLEL)
    for (int64_t i = 0; i < n; i++) {
        int64_t first = i * run, at = first, offset = 0;
        for (int d = x->rank - 1; d >= 0; d--) {
            offset += at % x->shape[d] * x->stride[d];
            at /= x->shape[d];
        }
        memcpy(out + (first / piece * whole + first % piece) * size, (const char *)x->data + offset * size,
               (size_t)(run * size));
    }
}

bool run_cat(Call *c, Err *err)
{
    enum { SHORT = 64 }; /* bytes of a run, below which a copy in the usual order is cheaper */
    Tensor *out = call_out(c, 0);
    int d = call_dim(c, 1, out->rank);
    if (!tensor_contiguous(out) && !has_room(out, d)) {
        join_channels(c, out);
        return true;
    }
    int64_t inner = 1, at = 0, size = (int64_t)dtype_size(out->dtype);
    for (int i = d + 1; i < out->rank; i++) inner *= out->shape[i];
    for (int k = 0; k < c->arg[0].n; k++) {
        const Tensor *x = c->arg[0].ts[k];
        int64_t piece = x->shape[d] * inner, run = together(x, d);
        bool there = k == 0 && x->data == out->data; /* an input that grows (src/run/feeds.c) */
        if (!there && run < piece && run * size < SHORT) {
            TRY(x = call_contiguous(c, x, DT_NONE, err));
            run = piece;
        }
        if (!there && tensor_numel(x))
            join((char *)out->data + at * inner * size, x, run, piece, d ? out->stride[d - 1] : piece,
                 c->env->threads);
        at += x->shape[d];
    }
    return true;
}
