/* Arguments of nodes of a graph, as functions of the caller get them: sizes as text. */
#include "api/api_impl.h"

typedef struct Declaring {
    ExprPool *ex;
    Arena *arena;
    qkv_op_arg *to;
    Err *err;
} Declaring;

const char *api_expr_text(ExprPool *ex, const Expr *e, Arena *arena)
{
    Buf b = {0};
    ex_print(ex, e, &b);
    const char *text = b.failed ? NULL : arena_strdup(arena, b.data);
    buf_free(&b);
    return text;
}

static bool texts_of(Declaring *d, int n, Expr *const *e, const char *const **out)
{
    const char **text = arena_array(d->arena, const char *, n + 1);
    for (int i = 0; text && i < n; i++)
        if (!(text[i] = api_expr_text(d->ex, e[i], d->arena))) return oom(d->err);
    *out = text;
    return text || oom(d->err);
}

static bool tensors(Declaring *d, int n, Value *const *v)
{
    qkv_tensor *t = arena_array(d->arena, qkv_tensor, n + 1);
    const char *const **dims = arena_array(d->arena, const char *const *, n + 1);
    if (!t || !dims) return oom(d->err);
    for (int i = 0; i < n; i++) {
        if (!v[i]) return fail(d->err, E_UNSUPPORTED, "a list with a tensor that is none");
        t[i] = (qkv_tensor){.dtype = (qkv_dtype)v[i]->dtype, .rank = v[i]->rank};
        TRY(texts_of(d, v[i]->rank, v[i]->dim, &dims[i]));
    }
    *d->to = (qkv_op_arg){.kind = QKV_OP_TENSORS, .n = n, .tensors = t, .dims = dims};
    return true;
}

static bool numbers(Declaring *d, int n, Expr *const *e)
{
    int64_t *ints = arena_array(d->arena, int64_t, n + 1);
    double *floats = arena_array(d->arena, double, n + 1);
    if (!ints || !floats) return oom(d->err);
    bool constant = true;
    for (int i = 0; i < n; i++) {
        constant &= ex_is_const(e[i]);
        floats[i] = ex_is_const(e[i]) ? ex_number(e[i]) : 0;
        ints[i] = e[i]->kind == EX_FLOAT ? (int64_t)e[i]->f : ex_is_const(e[i]) ? e[i]->i : 0;
    }
    *d->to = (qkv_op_arg){
        .kind = QKV_OP_NUMBERS, .n = n, .ints = constant ? ints : NULL, .floats = constant ? floats : NULL};
    return texts_of(d, n, e, &d->to->sizes);
}

bool api_declared(const Arg *a, ExprPool *ex, Arena *arena, qkv_op_arg *to, Err *err)
{
    Declaring d = {ex, arena, to, err};
    *to = (qkv_op_arg){.kind = QKV_OP_NONE};
    switch (a->kind) {
    case ARG_VALUE: return tensors(&d, 1, &a->v);
    case ARG_VALUES: return tensors(&d, a->n, a->vs);
    case ARG_EXPR: return numbers(&d, 1, &a->e);
    case ARG_EXPRS: return numbers(&d, a->n, a->es);
    case ARG_STR: *to = (qkv_op_arg){.kind = QKV_OP_TEXT, .n = 1, .text = a->s}; return true;
    case ARG_DTYPE: *to = (qkv_op_arg){.kind = QKV_OP_TEXT, .n = 1, .text = dtype_name(a->dtype)}; return true;
    default: return true;
    }
}
