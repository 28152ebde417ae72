/* Lowering of padding: circular padding by parts that are put side by side, the rest by rows of their own. */
#include <string.h>
#include "lower/lower_table.h"

bool lower_reflect_alias(Lower *L)
{
    bool reflect = L->op->id == OP_reflection_pad2d || L->op->id == OP_reflection_pad3d;
    return lower_return(L, lower_emit(L, reflect ? OP_reflection_pad1d : OP_replication_pad1d, 2, L->arg));
}

/* circular: negative sizes cut off; then the end before the start, the start after the end */
static bool circular(Lower *L, Value *x, const Arg *pad)
{
    Expr *zero = ex_int(L->ex, 0);
    for (int k = 0; x && 2 * k + 1 < pad->n; k++) {
        int d = x->rank - 1 - k;
        if (d < 0) return lower_fail(L, 1, "more pairs than the %d dims", x->rank);
        Expr *before = pad->es[2 * k], *after = pad->es[2 * k + 1], *first = zero, *n = x->dim[d];
        if (ex_is_int(before) && before->i < 0) first = ex_neg(L->ex, before), before = zero;
        if (ex_is_int(after) && after->i < 0) n = ex_add(L->ex, n, after), after = zero;
        if (first != zero || n != x->dim[d]) TRY(x = lower_piece(L, x, d, first, n));
        n = x->dim[d];
        Value *list[3] = {lower_piece(L, x, d, ex_sub(L->ex, n, before), n), x, lower_piece(L, x, d, zero, after)};
        x = list[0] && list[2] ? EMIT(L, cat, arg_values(L->g, 3, list), arg_int(L->g, d)) : NULL;
    }
    return lower_return(L, x);
}

static bool padded(Lower *L, Value *x, Arg by, Arg value)
{
    if (value.kind == ARG_EXPR && value.e) value = arg_expr(lower_number_for(L, value.e, x->dtype));
    return lower_return(L, EMIT(L, constant_pad_nd, arg_value(x), by, value));
}

static bool pad(Lower *L, const char *mode)
{
    Value *x = lower_value(L, 0);
    if (!x) return lower_fail(L, 0, "expected a tensor");
    if (!strcmp(mode, "circular")) return circular(L, x, &L->arg[1]);
    if (!strcmp(mode, "reflect")) return lower_return(L, EMIT(L, reflection_pad1d, arg_value(x), L->arg[1]));
    if (!strcmp(mode, "replicate")) return lower_return(L, EMIT(L, replication_pad1d, arg_value(x), L->arg[1]));
    return padded(L, x, L->arg[1], lower_is_none(L, 3) ? arg_int(L->g, 0) : L->arg[3]);
}

bool lower_constant_pad(Lower *L)
{
    Value *x = lower_value(L, 0);
    if (!x) return lower_fail(L, 0, "expected a tensor");
    return padded(L, x, L->arg[1], L->arg[2]);
}

bool lower_pad(Lower *L) { return pad(L, L->arg[2].kind == ARG_STR ? L->arg[2].s : "constant"); }
bool lower_pad_circular(Lower *L) { return pad(L, "circular"); }

bool lower_pad_enum(Lower *L)
{
    static const char *const mode[] = {"reflect", "replicate", "circular", "constant"}; /* at::padding_mode */
    int64_t k;
    TRY(lower_const_int(L, 2, &k));
    if (k < 0 || k > 3) return lower_fail(L, 2, "found %lld, expected 0 to 3", (long long)k);
    return pad(L, mode[k]);
}
