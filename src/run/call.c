/* What run functions share: scratch memory, contiguous operands, lists of values, errors. Contract in run.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/number.h"
#include "base/vec.h"
#include "run/pointwise.h"
#include "base/mem.h"
#include "run/run.h"

enum { ALIGN = 64 };

int call_ints(const Call *c, int i, int64_t *out, int cap)
{
    const CallArg *a = &c->arg[i];
    if (a->kind == ARG_EXPR && cap > 0) {
        out[0] = scalar_i64(a->s);
        return 1;
    }
    if (a->kind != ARG_EXPRS) return 0;
    for (int k = 0; k < a->n && k < cap; k++) out[k] = scalar_i64(a->ss[k]);
    return a->n < cap ? a->n : cap;
}

/* Bump memory; what does not fit is taken from the system once, and the next run has room for it. */
void *call_scratch(Call *c, size_t bytes, Err *err)
{
    struct RunEnv *e = c->env;
    size_t n, end;
    bool ok = add_size(bytes ? bytes : 1, ALIGN - 1, &n);
    n = n / ALIGN * ALIGN;
    ok = ok && add_size(e->scratch_used, n, &end);
    if (ok && e->memory_limit && end > e->memory_limit) {
        fail(err, E_LIMIT, "%zu bytes of scratch are needed, the limit is %zu", end, e->memory_limit);
        return NULL;
    }
    if (ok && end <= e->scratch_size) {
        void *p = e->scratch + e->scratch_used;
        e->scratch_used = end;
        return p;
    }
    void *p = ok ? mem_aligned(ALIGN, n ? n : ALIGN) : NULL;
    void **list = p ? vec_grow(e->overflow, e->noverflow, sizeof *list) : NULL;
    if (!list) {
        mem_free(p);
        fail(err, E_LIMIT, "out of memory: %zu bytes of scratch", bytes);
        return NULL;
    }
    e->overflow = list;
    list[e->noverflow++] = p;
    e->scratch_used = end;
    return p;
}

const Tensor *call_contiguous(Call *c, const Tensor *t, DType want, Err *err)
{
    DType dtype = want == DT_NONE ? t->dtype : want;
    if (dtype == t->dtype && tensor_contiguous(t)) return t;
    Tensor *copy = call_scratch(c, sizeof *copy, err);
    if (!copy) return NULL;
    *copy = tensor_of(dtype, t->rank, t->shape, NULL);
    copy->data = call_scratch(c, tensor_bytes(copy), err);
    if (!copy->data) return NULL;
    if (run_copy_tensor(copy, t, c->env->threads)) return copy;
    if (dtype_is_complex(dtype) || dtype_is_complex(t->dtype)) {
        fail(err, E_UNSUPPORTED, "a copy from %s to %s", dtype_name(t->dtype), dtype_name(dtype));
        return NULL;
    }
    tensor_copy(copy, t); /* types of 8 bits and fewer */
    return copy;
}

bool call_fail(Call *c, ErrCode code, Err *err, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return fail(err, code, "node '%s': %s", c->node->name, what);
}
