/* qkv_register_op: what the interface calls an op, as shape functions and kernels (op/own.h). */
#include <string.h>
#include "api/api_impl.h"
#include "op/own.h"
#include "run/run.h"
#include "shape/shape.h"

typedef struct Registered { /* never freed: an op stays */
    OwnOp own;
    qkv_op op;
    char gradient[OWN_NAME + 1];
} Registered;

static bool said(qkv_status status, const qkv_error *e, Err *err)
{
    if (status == QKV_OK) return true;
    bool known = status >= QKV_MISMATCH && status <= QKV_LIMIT;
    return fail(err, known ? (ErrCode)status : E_UNSUPPORTED, "%s",
                *e->message ? e->message : "its function failed and did not say why");
}

/* ------------------------------------------------------------------ shapes */

static bool take_result(Shape *s, int k, const qkv_op_result *r)
{
    Expr *dim[MAX_RANK];
    if ((int)r->dtype <= 0 || (int)r->dtype >= DT_COUNT || r->rank < 0 || r->rank > MAX_RANK)
        return fail(s->err, E_USAGE, "result %d has dtype %d and rank %d: expected a dtype, and a rank of at most %d",
                    k, (int)r->dtype, r->rank, MAX_RANK);
    for (int i = 0; i < r->rank; i++) {
        if (!memchr(r->dim[i], '\0', sizeof r->dim[i]))
            return fail(s->err, E_USAGE, "size %d of result %d has no end", i, k);
        dim[i] = ex_parse(s->ex, r->dim[i], NULL, NULL, s->err);
        if (!dim[i]) return within(s->err, "size %d of result %d, '%s'", i, k, r->dim[i]);
    }
    return shape_out(s, k, (DType)r->dtype, r->rank, dim);
}

static bool own_shape(const OwnOp *own, Shape *s)
{
    const Registered *r = own->user;
    int n = s->node->op->schema->nparams, nout = s->node->op->schema->nreturns;
    qkv_op_arg arg[OWN_PARAMS];
    qkv_error e = {0};
    qkv_op_result *out = arena_array(s->g->arena, qkv_op_result, nout + 1);
    if (!out) return oom(s->err);
    memset(out, 0, sizeof *out * (size_t)(nout + 1));
    for (int i = 0; i < n; i++) TRY(api_declared(shape_arg(s, i), s->ex, s->g->arena, &arg[i], s->err));
    TRY(said(r->op.shape(r->op.user, n, arg, nout, out, &e), &e, s->err));
    for (int k = 0; k < nout; k++)
        TRY(take_result(s, k, &out[k]) || within(s->err, "the shape function of %s", r->op.name));
    return true;
}

/* ------------------------------------------------------------------ kernels */

static bool tensors_given(Call *c, int n, Tensor *const *t, qkv_op_arg *to, Err *err)
{
    qkv_tensor *q = call_scratch(c, sizeof *q * (size_t)(n + 1), err);
    if (!q) return false;
    for (int i = 0; i < n; i++) {
        const Tensor *x = call_contiguous(c, t[i], DT_NONE, err);
        if (!x) return false;
        q[i] = (qkv_tensor){.dtype = (qkv_dtype)x->dtype, .rank = x->rank, .shape = x->shape, .data = x->data};
    }
    *to = (qkv_op_arg){.kind = QKV_OP_TENSORS, .n = n, .tensors = q};
    return true;
}

static bool numbers_given(Call *c, int n, const Scalar *s, qkv_op_arg *to, Err *err)
{
    int64_t *ints = call_scratch(c, sizeof *ints * (size_t)(n + 1), err);
    double *floats = ints ? call_scratch(c, sizeof *floats * (size_t)(n + 1), err) : NULL;
    if (!floats) return false;
    for (int i = 0; i < n; i++) {
        ints[i] = scalar_i64(s[i]);
        floats[i] = scalar_f64(s[i]);
    }
    *to = (qkv_op_arg){.kind = QKV_OP_NUMBERS, .n = n, .ints = ints, .floats = floats};
    return true;
}

static bool given(Call *c, int i, qkv_op_arg *to, Err *err)
{
    const CallArg *a = &c->arg[i];
    *to = (qkv_op_arg){.kind = QKV_OP_NONE};
    switch (a->kind) {
    case ARG_VALUE: return tensors_given(c, 1, &a->t, to, err);
    case ARG_VALUES: return tensors_given(c, a->n, a->ts, to, err);
    case ARG_EXPR: return numbers_given(c, 1, &a->s, to, err);
    case ARG_EXPRS: return numbers_given(c, a->n, a->ss, to, err);
    case ARG_STR: *to = (qkv_op_arg){.kind = QKV_OP_TEXT, .n = 1, .text = a->str}; return true;
    default: return true;
    }
}

static bool own_run(const OwnOp *own, Call *c, Err *err)
{
    const Registered *r = own->user;
    qkv_op_arg arg[OWN_PARAMS];
    qkv_error e = {0};
    int n = c->node->op->schema->nparams;
    qkv_tensor *out = call_scratch(c, sizeof *out * (size_t)(c->nout + 1), err);
    if (!out) return false;
    for (int i = 0; i < n; i++) TRY(given(c, i, &arg[i], err));
    for (int k = 0; k < c->nout; k++) {
        const Tensor *t = call_out(c, k);
        out[k] = (qkv_tensor){.dtype = (qkv_dtype)t->dtype, .rank = t->rank, .shape = t->shape, .data = t->data};
    }
    return said(r->op.kernel(r->op.user, n, arg, c->nout, out, c->env->threads, &e), &e, err) ||
           within(err, "node '%s'", c->node->name);
}

/* ------------------------------------------------------------------ the call */

static bool whole(const qkv_op *o, Err *err)
{
    if (!o->name || !o->schema) return fail(err, E_USAGE, "an op without a name or a schema");
    if (!o->shape || !o->kernel) return fail(err, E_USAGE, "'%.100s': expected a shape function and a kernel", o->name);
    return !o->gradient || strlen(o->gradient) <= OWN_NAME ||
           fail(err, E_USAGE, "'%.100s': the name of its gradient is longer than %d characters", o->name, OWN_NAME);
}

qkv_status qkv_register_op(const qkv_op *op, qkv_error *err)
{
    Err e = api_begin();
    qkv_op o = {0};
    if (!op) {
        fail(&e, E_USAGE, "op is NULL");
        return api_give(&e, err);
    }
    if (!VERSIONED_TAKE(qkv_op, user, &o, op, &e) || !whole(&o, &e)) return api_give(&e, err);
    Registered *r = mem_zeroed(1, sizeof *r);
    if (!r) {
        oom(&e);
        return api_give(&e, err);
    }
    r->op = o;
    if (o.gradient) strcpy(r->gradient, o.gradient);
    r->own = (OwnOp){own_shape, own_run, o.gradient ? r->gradient : NULL, r};
    const Op *made = op_register(o.name, o.schema, &r->own, &e);
    if (made) {
        r->op.name = made->name; /* the caller's strings are copied */
        r->op.schema = made->schema_text;
        r->op.gradient = r->own.gradient;
    } else mem_free(r);
    return made ? QKV_OK : api_give(&e, err);
}
