/* Lowering of matrix products, convolutions and attention.
 *
 *     baddbmm(c, a, b, beta, alpha)  -> add(mul(c, beta), mul(matmul(a, b), alpha))
 *     addmm(bias, x, w.t())          -> linear(x, w, bias)
 *     einsum("bhqd,bhkd->bhqk")      -> permute, reshape, matmul, reshape, permute
 *     sdpa of rank 2, 3, 5           -> reshape to rank 4, sdpa, reshape
 */
#include <math.h>
#include <string.h>
#include "lower/lower_table.h"
#include "base/mem.h"
#include "shape/shape.h"

static Value *product(Lower *L, Value *a, Value *b)
{
    return a && b ? EMIT(L, matmul, arg_value(a), arg_value(b)) : NULL;
}

static bool two(Lower *L, int i, int k, Value **a, Value **b)
{
    *a = lower_value(L, i);
    *b = lower_value(L, k);
    return (*a && *b) || lower_fail(L, *a ? k : i, "expected a tensor");
}

/* Vectors become matrices, and the dim that they stood for goes again. */
bool lower_matmul(Lower *L)
{
    Value *a, *b, *c;
    TRY(two(L, 0, 1, &a, &b));
    if (!a->rank || !b->rank) return lower_fail(L, 0, "a tensor of rank 0 has no product");
    Expr *one = ex_int(L->ex, 1);
    bool va = a->rank == 1, vb = b->rank == 1;
    if (va) TRY(a = lower_reshape(L, a, 2, (Expr *[]){one, a->dim[0]}));
    if (vb) TRY(b = lower_reshape(L, b, 2, (Expr *[]){b->dim[0], one}));
    TRY(c = product(L, a, b));
    if (!va && !vb) return lower_return(L, c);
    Expr *dim[MAX_RANK];
    int n = 0;
    for (int i = 0; i < c->rank; i++)
        if (!(va && i == c->rank - 2) && !(vb && i == c->rank - 1)) dim[n++] = c->dim[i];
    return lower_return(L, lower_reshape(L, c, n, dim));
}

/* A weight of rank 1 is the vector that every row is multiplied with. */
bool lower_linear(Lower *L)
{
    Value *x, *w, *bias = lower_value(L, 2);
    TRY(two(L, 0, 1, &x, &w));
    if (w->rank != 1) return lower_return(L, lower_emit(L, OP_linear, 3, L->arg));
    Lower M = *L;
    M.op = op_get(OP_matmul);
    TRY(lower_matmul(&M));
    Value *y = M.result.v;
    if (bias) y = EMIT(L, add_Tensor, arg_value(y), arg_value(bias), arg_int(L->g, 1));
    return y && lower_return(L, y);
}

/* _grouped_mm: rows sorted by group, offs[g] the first row after group g (mixtures of experts). Three ranks of 3 are a batched product.
 * transformers::grouped_mm_fallback(input, weight, offs) is the same with rows after the last group zero. PyTorch takes
 * offs in int32 alone. */
bool lower_grouped_mm(Lower *L)
{
    Value *a, *b, *offs = lower_value(L, 2), *c;
    TRY(two(L, 0, 1, &a, &b));
    bool whole = L->op->id == OP_grouped_mm;
    if (whole && !lower_is_none(L, 3)) return lower_fail(L, 3, "PyTorch takes no bias here");
    if (a->rank == 3 && b->rank == 3 && !offs) c = product(L, a, b);
    else if (a->rank != 2 || (b->rank != 3 && b->rank != 2) || !offs)
        return lower_fail(
            L, 0, "ranks %d and %d, expected rows (S, K) with matrices (G, K, N), or columns (M, S) with rows (S, N)",
            a->rank, b->rank);
    else
        c = (offs = lower_cast(L, offs, DT_I32))
                ? EMIT(L, grouped_mm, arg_value(a), arg_value(b), arg_value(offs), arg_none(), arg_none())
                : NULL;
    return lower_return(L, c && whole && L->arg[4].kind == ARG_DTYPE ? lower_cast(L, c, L->arg[4].dtype) : c);
}

static bool is_number(const Arg *a, double v)
{
    return a->kind == ARG_NONE ? v == 1 : a->kind == ARG_EXPR && ex_is_const(a->e) && ex_number(a->e) == v;
}

/* v * by; integers by the integer part of a float */
static Value *scaled(Lower *L, Value *v, const Arg *by)
{
    if (!v || is_number(by, 1)) return v;
    bool cut = !dtype_is_float(v->dtype) && !dtype_is_complex(v->dtype) && by->kind == ARG_EXPR &&
               by->e->kind == EX_FLOAT;
    return EMIT(L, mul_Tensor, arg_value(v), cut ? arg_int(L->g, (int64_t)by->e->f) : *by);
}

/* beta * self + alpha * c; beta 0 ignores self, NaN included, as ATen does */
static bool plus_product(Lower *L, Value *c)
{
    Value *self = lower_value(L, 0);
    if (!self || !c) return c && lower_fail(L, 0, "expected a tensor");
    c = scaled(L, c, &L->arg[4]);
    if (is_number(&L->arg[3], 0)) return lower_return(L, c);
    self = scaled(L, self, &L->arg[3]);
    return c && self && lower_return(L, EMIT(L, add_Tensor, arg_value(c), arg_value(self)));
}

/* addmm, baddbmm, addmv. bias + x @ w^T with a bias of rank 1 is a Linear. */
bool lower_addmm(Lower *L)
{
    Value *a, *b, *bias = lower_value(L, 0);
    TRY(two(L, 1, 2, &a, &b));
    bool linear = L->op->id == OP_addmm && bias && bias->rank == 1 && is_number(&L->arg[3], 1) &&
                  is_number(&L->arg[4], 1) && bias->dim[0] == b->dim[b->rank - 1] && b->rank == 2;
    if (linear) {
        Value *w = lower_permute(L, b, (int[]){1, 0});
        if (b->kind == V_NODE && b->def->op->id == OP_permute)
            w = b->def->arg[0].v; /* the permutation of a permutation */
        return w && lower_return(L, EMIT(L, linear, arg_value(a), arg_value(w), arg_value(bias)));
    }
    if (b->rank != 1) return plus_product(L, product(L, a, b));
    Expr *one = ex_int(L->ex, 1);
    Value *c = product(L, a, lower_reshape(L, b, 2, (Expr *[]){b->dim[0], one}));
    return c && plus_product(L, lower_reshape(L, c, 1, c->dim));
}

/* The sum over the batch is a product over (batch, inner) at once. */
bool lower_addbmm(Lower *L)
{
    Value *a, *b;
    TRY(two(L, 1, 2, &a, &b));
    if (a->rank != 3 || b->rank != 3) return lower_fail(L, 1, "ranks %d and %d, expected 3", a->rank, b->rank);
    Expr *inner = ex_mul(L->ex, a->dim[0], a->dim[2]);
    Value *x = lower_permute(L, a, (int[]){1, 0, 2});
    x = x ? lower_reshape(L, x, 2, (Expr *[]){a->dim[1], inner}) : NULL;
    return plus_product(L, product(L, x, lower_reshape(L, b, 2, (Expr *[]){inner, b->dim[2]})));
}

bool lower_outer(Lower *L)
{
    Value *a, *b;
    Expr *one = ex_int(L->ex, 1);
    TRY(two(L, 0, 1, &a, &b));
    if (a->rank != 1 || b->rank != 1) return lower_fail(L, 0, "ranks %d and %d, expected 1", a->rank, b->rank);
    a = lower_reshape(L, a, 2, (Expr *[]){a->dim[0], one});
    return a && lower_return(L, EMIT(L, mul_Tensor, arg_value(a), arg_value(b)));
}

bool lower_vecdot(Lower *L)
{
    int d;
    Value *a, *b;
    TRY(two(L, 0, 1, &a, &b));
    Value *p = EMIT(L, mul_Tensor, arg_value(a), arg_value(b));
    TRY(p && lower_dim(L, 2, p->rank, &d));
    return lower_return(L, EMIT(L, sum_dim_IntList, arg_value(p), arg_ints(L->g, 1, (int64_t[]){d})));
}

/* ------------------------------------------------------------------ einsum */

enum { LETTERS = 64 };

typedef struct Term {
    Value *v;
    int n, letter[MAX_RANK]; /* one letter index per dim */
} Term;

typedef struct Einsum {
    Lower *L;
    Expr *size[LETTERS];
    bool in_out[LETTERS];
} Einsum;

static int letter_of(char c) { return c >= 'a' && c <= 'z' ? c - 'a' : c >= 'A' && c <= 'Z' ? 26 + c - 'A' : -1; }

/* "b...d" for a tensor of some rank: dots take letters 52, 53, ... counted from the right. */
static bool read_term(Lower *L, const char *text, size_t n, int rank, Term *t)
{
    int letters = 0, dots = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '.') dots++;
        else if (text[i] != ' ' && letter_of(text[i]) < 0) return lower_fail(L, 0, "'%c' in an equation", text[i]);
        else letters += text[i] != ' ';
    }
    int spread = dots ? rank - letters : 0;
    t->n = 0;
    if ((dots && dots != 3) || spread < 0 || spread > LETTERS - 52 || (rank >= 0 && letters + spread != rank))
        return lower_fail(L, 0, "'%.*s' for a tensor of rank %d", (int)n, text, rank);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ') continue;
        if (text[i] != '.') t->letter[t->n++] = letter_of(text[i]);
        else if (i + 1 == n || text[i + 1] != '.')
            for (int k = 0; k < spread; k++) t->letter[t->n++] = 52 + LETTERS - 52 - spread + k;
    }
    return true;
}

static int find(const Term *t, int letter)
{
    for (int i = 0; i < t->n; i++)
        if (t->letter[i] == letter) return i;
    return -1;
}

/* A letter twice in one term is that term's diagonal. */
static bool take_diagonals(Lower *L, Term *t)
{
    for (int i = 0; i < t->n; i++)
        for (int k = i + 1; k < t->n; k++) {
            if (t->letter[i] != t->letter[k]) continue;
            int letter = t->letter[i];
            t->v = EMIT(L, diagonal, arg_value(t->v), arg_int(L->g, 0), arg_int(L->g, i), arg_int(L->g, k));
            TRY(t->v);
            for (int m = k; m + 1 < t->n; m++) t->letter[m] = t->letter[m + 1];
            for (int m = i; m + 2 < t->n; m++) t->letter[m] = t->letter[m + 1];
            t->letter[t->n-- - 2] = letter;
            k = i;
        }
    return true;
}

/* Sums over the letters that no other operand has. */
static bool sum_alone(Einsum *e, Term *t, const Term *other)
{
    int64_t dims[MAX_RANK];
    int n = 0, kept = 0;
    for (int i = 0; i < t->n; i++) {
        bool alone = !e->in_out[t->letter[i]] && (!other || find(other, t->letter[i]) < 0);
        if (alone) dims[n++] = i;
        else t->letter[kept++] = t->letter[i];
    }
    if (!n) return true;
    Lower *L = e->L;
    t->n = kept;
    t->v = EMIT(L, sum_dim_IntList, arg_value(t->v), arg_ints(L->g, n, dims), arg_bool(L->g, false));
    return t->v != NULL;
}

/* t's dims in the order of `letters` (all of them in t), reshaped to `groups` sizes of dims each. */
static Value *arranged(Lower *L, const Term *t, const int *letters, int n, const int *group, int groups)
{
    int perm[MAX_RANK], at = 0;
    Expr *dim[MAX_RANK];
    for (int i = 0; i < n; i++) perm[i] = find(t, letters[i]);
    Value *v = lower_permute(L, t->v, perm);
    for (int g = 0; v && g < groups; g++) {
        dim[g] = ex_int(L->ex, 1);
        for (int k = 0; k < group[g]; k++) dim[g] = ex_mul(L->ex, dim[g], v->dim[at++]);
    }
    return v ? lower_reshape(L, v, groups, dim) : NULL;
}

/* One product of two terms: letters of both and of the output are batch, of both alone are summed. */
static bool contract(Einsum *e, Term *a, Term *b, Term *out)
{
    Lower *L = e->L;
    int la[MAX_RANK * 2], lb[MAX_RANK * 2], batch = 0, rows = 0, cols = 0, inner = 0, n = 0;
    int only_a[MAX_RANK], only_b[MAX_RANK], both[MAX_RANK];
    TRY(sum_alone(e, a, b) && sum_alone(e, b, a));
    for (int i = 0; i < a->n; i++) {
        int l = a->letter[i], k = find(b, l);
        if (k >= 0 && ex_equals_int(a->v->dim[i], 1) != ex_equals_int(b->v->dim[k], 1))
            e->size[l] = ex_equals_int(a->v->dim[i], 1) ? b->v->dim[k] : a->v->dim[i];
        if (k < 0) only_a[rows++] = l;
        else if (e->in_out[l]) la[batch++] = l;
        else both[inner++] = l;
    }
    for (int i = 0; i < b->n; i++)
        if (find(a, b->letter[i]) < 0) only_b[cols++] = b->letter[i];
    for (int i = 0; i < batch; i++) out->letter[n++] = lb[i] = la[i];
    for (int i = 0; i < rows; i++) out->letter[n++] = la[batch + i] = only_a[i];
    for (int i = 0; i < inner; i++) la[batch + rows + i] = lb[batch + i] = both[i];
    for (int i = 0; i < cols; i++) out->letter[n++] = lb[batch + inner + i] = only_b[i];
    out->n = n;
    Value *x = arranged(L, a, la, batch + rows + inner, (int[]){batch, rows, inner}, 3);
    Value *y = arranged(L, b, lb, batch + inner + cols, (int[]){batch, inner, cols}, 3);
    Value *c = product(L, x, y);
    Expr *dim[MAX_RANK];
    for (int i = 0; i < n; i++) dim[i] = e->size[out->letter[i]];
    return (out->v = c ? lower_reshape(L, c, n, dim) : NULL) != NULL;
}

bool lower_einsum(Lower *L)
{
    Einsum e = {.L = L};
    Term t[16], out = {0};
    const Arg *list = &L->arg[1];
    if (L->arg[0].kind != ARG_STR || list->kind != ARG_VALUES || list->n < 1 || list->n > 16)
        return lower_fail(L, 1, "expected 1 to 16 tensors");
    const char *p = L->arg[0].s, *arrow = strstr(p, "->");
    int count[LETTERS] = {0};
    for (int i = 0; i < list->n; i++) {
        size_t n = strcspn(p, ",-");
        if (!list->vs[i]) return lower_fail(L, 1, "element %d is None", i);
        t[i].v = list->vs[i];
        TRY(read_term(L, p, n, t[i].v->rank, &t[i]));
        for (int k = 0; k < t[i].n; k++) {
            int l = t[i].letter[k];
            count[l]++;
            if (!e.size[l] || ex_equals_int(e.size[l], 1)) e.size[l] = t[i].v->dim[k];
        }
        p += n + (p[n] == ',');
    }
    if (arrow) {
        int letters = 0, dots = 0;
        for (const char *q = arrow + 2; *q; q++) letters += letter_of(*q) >= 0, dots += *q == '.';
        int spread = 0;
        for (int l = 52; l < LETTERS; l++) spread += e.size[l] != NULL;
        TRY(read_term(L, arrow + 2, strlen(arrow + 2), letters + (dots ? spread : 0), &out));
    } else { /* the letters that stand once, in alphabetical order, capitals first, after the dots */
        for (int l = 52; l < LETTERS; l++)
            if (e.size[l]) out.letter[out.n++] = l;
        for (int k = 0; k < 52; k++) {
            int l = k < 26 ? 26 + k : k - 26;
            if (count[l] == 1 && out.n < MAX_RANK) out.letter[out.n++] = l;
        }
    }
    for (int k = 0; k < out.n; k++) {
        if (!e.size[out.letter[k]]) return lower_fail(L, 0, "the result has a letter that no operand has");
        e.in_out[out.letter[k]] = true;
    }
    for (int i = 0; i < list->n; i++) TRY(take_diagonals(L, &t[i]));
    Term acc = t[0];
    for (int i = 1; i < list->n; i++) {
        bool keep[LETTERS]; /* letters of later operands count as output letters until their turn */
        memcpy(keep, e.in_out, sizeof keep);
        for (int k = i + 1; k < list->n; k++)
            for (int d = 0; d < t[k].n; d++) e.in_out[t[k].letter[d]] = true;
        Term next = {0};
        TRY(contract(&e, &acc, &t[i], &next));
        memcpy(e.in_out, keep, sizeof keep);
        acc = next;
    }
    TRY(sum_alone(&e, &acc, NULL));
    int perm[MAX_RANK];
    for (int i = 0; i < out.n; i++) perm[i] = find(&acc, out.letter[i]);
    return lower_return(L, lower_permute(L, acc.v, perm));
}

/* An axis that meets one of size 1 is summed up first. */
static Value *sum_of_broadcast(Lower *L, Value *v, int axis, const Expr *other)
{
    if (!ex_equals_int(other, 1) || ex_equals_int(v->dim[axis], 1)) return v;
    return EMIT(L, sum_dim_IntList, arg_value(v), arg_ints(L->g, 1, (int64_t[]){axis}), arg_bool(L->g, true),
                arg_dtype(v->dtype));
}

bool lower_tensordot(Lower *L)
{
    Value *a, *b;
    TRY(two(L, 0, 1, &a, &b));
    Einsum e = {.L = L};
    Term x = {.v = a, .n = a->rank}, y = {.v = b, .n = b->rank}, out;
    const Arg *da = &L->arg[2], *db = &L->arg[3];
    if (da->n != db->n || a->rank + b->rank > 52) return lower_fail(L, 2, "found %d and %d dims", da->n, db->n);
    for (int i = 0; i < a->rank; i++) x.letter[i] = i;
    for (int i = 0; i < b->rank; i++) y.letter[i] = a->rank + i;
    for (int k = 0; k < da->n; k++) {
        int64_t i = da->es[k]->i, j = db->es[k]->i;
        if (!ex_is_int(da->es[k]) || !ex_is_int(db->es[k])) return lower_fail(L, 2, "must be constant integers");
        if (i < -a->rank || i >= a->rank || j < -b->rank || j >= b->rank)
            return lower_fail(L, 2, "dims %lld and %lld are out of range for ranks %d and %d", (long long)i,
                              (long long)j, a->rank, b->rank);
        i += i < 0 ? a->rank : 0;
        j += j < 0 ? b->rank : 0;
        y.letter[j] = x.letter[i];
        if (!ex_equals_int(a->dim[i], 1)) TRY(a = sum_of_broadcast(L, a, (int)i, b->dim[j]));
        else TRY(b = sum_of_broadcast(L, b, (int)j, a->dim[i]));
    }
    x.v = a;
    y.v = b;
    for (int i = 0; i < a->rank; i++) e.size[x.letter[i]] = a->dim[i];
    for (int i = 0; i < b->rank; i++) e.size[y.letter[i]] = b->dim[i];
    for (int i = 0; i < a->rank; i++) e.in_out[x.letter[i]] = find(&y, x.letter[i]) < 0;
    for (int i = 0; i < b->rank; i++)
        if (find(&x, y.letter[i]) < 0) e.in_out[y.letter[i]] = true;
    return contract(&e, &x, &y, &out) && lower_return(L, out.v);
}

/* y[..., o] = a[..., i] w[o, i, j] b[..., j] + bias */
bool lower_bilinear(Lower *L)
{
    Value *a, *b, *w = lower_value(L, 2), *bias = lower_value(L, 3);
    TRY(two(L, 0, 1, &a, &b));
    if (!w || w->rank != 3) return lower_fail(L, 2, "expected rank 3");
    Expr *rows = ex_int(L->ex, 1), *dim[MAX_RANK];
    for (int i = 0; i < a->rank - 1; i++) rows = ex_mul(L->ex, rows, dim[i] = a->dim[i]);
    dim[a->rank - 1] = w->dim[0];
    Value *x = lower_reshape(L, a, 2, (Expr *[]){rows, w->dim[1]}),
          *y = lower_reshape(L, b, 3, (Expr *[]){rows, w->dim[2], ex_int(L->ex, 1)});
    Value *m = lower_permute(L, w, (int[]){1, 0, 2});
    m = m ? lower_reshape(L, m, 2, (Expr *[]){w->dim[1], ex_mul(L->ex, w->dim[0], w->dim[2])}) : NULL;
    Value *t = product(L, x, m); /* (rows, o * j) */
    t = t ? lower_reshape(L, t, 3, (Expr *[]){rows, w->dim[0], w->dim[2]}) : NULL;
    t = product(L, t, y);
    t = t ? lower_reshape(L, t, a->rank, dim) : NULL;
    return t && lower_return(L, bias ? EMIT(L, add_Tensor, arg_value(t), arg_value(bias)) : t);
}

/* ------------------------------------------------------------------ convolution */

/* A list of n numbers; one number stands for all. */
static Arg spatial(Lower *L, const Arg *a, int n, int64_t otherwise)
{
    Expr *e[3];
    if (n < 0 || n > 3) n = 0; /* refused later */
    for (int i = 0; i < n; i++) {
        if (a->kind == ARG_EXPRS && a->n) e[i] = a->es[a->n == 1 ? 0 : i < a->n ? i : a->n - 1];
        else e[i] = a->kind == ARG_EXPR ? a->e : ex_int(L->ex, otherwise);
    }
    return arg_exprs(L->g, n, e);
}

/* An input without batch gets one for the convolution. */
static bool emit_conv(Lower *L, Value *x, int n, const Arg *w, const Arg *bias, Arg stride, Arg pad, Arg dilation,
                      bool transposed, Arg extra, const Arg *groups)
{
    bool lone = x->rank == n + 1;
    Expr *dim[MAX_RANK];
    if (n < 1 || n > 3) return lower_fail(L, 0, "rank %d, expected 3 to 5", x->rank);
    if (lone) {
        dim[0] = ex_int(L->ex, 1);
        for (int i = 0; i < x->rank; i++) dim[i + 1] = x->dim[i];
        TRY(x = lower_reshape(L, x, n + 2, dim));
    }
    Value *y = EMIT(L, convolution, arg_value(x), *w, *bias, stride, pad, dilation, arg_bool(L->g, transposed), extra,
                    *groups);
    return y && lower_return(L, lone ? lower_reshape(L, y, n + 1, y->dim + 1) : y);
}

bool lower_convnd(Lower *L)
{
    Value *x, *w;
    TRY(two(L, 0, 1, &x, &w));
    int n = w->rank - 2;
    Arg none = arg_none();
    return emit_conv(L, x, n, &L->arg[1], &L->arg[2], spatial(L, &L->arg[3], n, 1), spatial(L, &L->arg[4], n, 0),
                     spatial(L, &L->arg[5], n, 1), false, spatial(L, &none, n, 0), &L->arg[6]);
}

/* padding 'same': as many outputs as inputs; where the total is odd, one more after */
bool lower_conv_padding(Lower *L)
{
    Value *x, *w;
    TRY(two(L, 0, 1, &x, &w));
    int n = w->rank - 2;
    Arg none = arg_none(), dilation = spatial(L, &L->arg[5], n, 1), zero = spatial(L, &none, n, 0);
    bool same = L->arg[4].kind == ARG_STR && !strcmp(L->arg[4].s, "same");
    if (n < 1 || n > 3) return lower_fail(L, 1, "rank %d, expected 3 to 5", w->rank);
    int64_t pad[6], lo[3];
    bool odd = false;
    for (int i = 0; i < n; i++) {
        if (!ex_is_int(w->dim[2 + i]) || !ex_is_int(dilation.es[i]))
            return lower_fail(L, 1, "kernel sizes must be constant");
        int64_t total = 0;
        if (same && !mul_i64(dilation.es[i]->i, w->dim[2 + i]->i - 1, &total))
            return lower_fail(L, 5, "found %lld", (long long)dilation.es[i]->i);
        lo[i] = total / 2;
        pad[2 * (n - 1 - i)] = 0;
        pad[2 * (n - 1 - i) + 1] = total - 2 * lo[i];
        odd |= total % 2 != 0;
    }
    if (odd) TRY(x = EMIT(L, constant_pad_nd, arg_value(x), arg_ints(L->g, 2 * n, pad), arg_int(L->g, 0)));
    return emit_conv(L, x, n, &L->arg[1], &L->arg[2], spatial(L, &L->arg[3], n, 1), arg_ints(L->g, n, lo), dilation,
                     false, zero, &L->arg[6]);
}

/* conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation) */
bool lower_conv_transpose(Lower *L)
{
    Value *x, *w;
    TRY(two(L, 0, 1, &x, &w));
    int n = w->rank - 2;
    return emit_conv(L, x, n, &L->arg[1], &L->arg[2], spatial(L, &L->arg[3], n, 1), spatial(L, &L->arg[4], n, 0),
                     spatial(L, &L->arg[7], n, 1), true, spatial(L, &L->arg[5], n, 0), &L->arg[6]);
}

/* convolution, and _convolution with cuDNN's flags after it; a list of one value is for all dims, as "valid" decomposes
 * to a padding of [0] */
bool lower_conv_full(Lower *L)
{
    Value *x, *w;
    bool transposed;
    TRY(two(L, 0, 1, &x, &w) && lower_const_bool(L, 6, &transposed));
    int n = w->rank - 2;
    for (int k = 3; k < 8; k++)
        if (L->arg[k].kind == ARG_EXPRS && L->arg[k].n != 1 && L->arg[k].n != n)
            return lower_fail(L, k, "found %d values, expected %d", L->arg[k].n, n);
    return emit_conv(L, x, n, &L->arg[1], &L->arg[2], spatial(L, &L->arg[3], n, 1), spatial(L, &L->arg[4], n, 0),
                     spatial(L, &L->arg[5], n, 1), transposed, spatial(L, &L->arg[7], n, 0), &L->arg[8]);
}

/* w = v * (g / |v|), the norm over all dims but one */
bool lower_weight_norm(Lower *L)
{
    Value *v, *g;
    int d, n = 0;
    int64_t dims[MAX_RANK];
    TRY(two(L, 0, 1, &v, &g) && lower_dim(L, 2, v->rank, &d));
    for (int i = 0; i < v->rank; i++)
        if (i != d) dims[n++] = i;
    Value *norm = EMIT(L, linalg_vector_norm, arg_value(v), arg_int(L->g, 2), arg_ints(L->g, n, dims),
                       arg_bool(L->g, true));
    Value *ratio = norm ? EMIT(L, div_Tensor, arg_value(g), arg_value(norm)) : NULL;
    Value *w = ratio ? EMIT(L, mul_Tensor, arg_value(v), arg_value(ratio)) : NULL;
    if (L->op->id == OP_weight_norm) return lower_return(L, w);
    return w && lower_return_values(L, 2, (Value *[]){w, norm});
}

/* ------------------------------------------------------------------ attention */

/* Any rank as (batch, heads, rows, size): missing dims are 1, dims before the heads are merged. */
static Value *rank4(Lower *L, Value *v)
{
    Expr *dim[4] = {ex_int(L->ex, 1), ex_int(L->ex, 1), v->dim[v->rank - 2], v->dim[v->rank - 1]};
    if (v->rank == 4) return v;
    for (int i = 0; i < v->rank - 3; i++) dim[0] = ex_mul(L->ex, dim[0], v->dim[i]);
    if (v->rank >= 3) dim[1] = v->dim[v->rank - 3];
    return lower_reshape(L, v, 4, dim);
}

static Value *leading_ones(Lower *L, Value *v, int rank)
{
    Expr *dim[MAX_RANK];
    int more = rank - v->rank;
    for (int i = 0; i < rank; i++) dim[i] = i < more ? ex_int(L->ex, 1) : v->dim[i - more];
    return more ? lower_reshape(L, v, rank, dim) : v;
}

/* Batch and head dims that broadcast are written out. */
static Value *spread(Lower *L, Value *v, Expr *batch, Expr *heads)
{
    if (v->dim[0] == batch && v->dim[1] == heads) return v;
    bool b = ex_equals_int(v->dim[0], 1) && v->dim[0] != batch, h = ex_equals_int(v->dim[1], 1) && v->dim[1] != heads;
    if (!b && !h) return v;
    Expr *dim[4] = {b ? batch : v->dim[0], h ? heads : v->dim[1], v->dim[2], v->dim[3]};
    return EMIT(L, expand, arg_value(v), arg_exprs(L->g, 4, dim));
}

/* own: softcap, lower, upper, which a packed model has; NULL: none. lse: the logarithms of the sums are wanted, too; NULL: they are not. */
static bool attention(Lower *L, Value *q, Value *k, Value *v, Value *mask, Arg causal, Arg scale, Arg gqa,
                      const Arg *own, Value **lse)
{
    if (q->rank < 2 || k->rank < 2 || v->rank < 2)
        return lower_fail(L, 0, "ranks %d, %d, %d, expected 2 or more", q->rank, k->rank, v->rank);
    int rank = q->rank > k->rank ? q->rank : k->rank;
    if (v->rank > rank) rank = v->rank;
    TRY((q = leading_ones(L, q, rank)) && (k = leading_ones(L, k, rank)) && (v = leading_ones(L, v, rank)));
    Expr *dim[MAX_RANK];
    for (int i = 0; i < rank - 1; i++) dim[i] = i < rank - 2 && ex_equals_int(q->dim[i], 1) ? k->dim[i] : q->dim[i];
    dim[rank - 1] = v->dim[rank - 1];
    Value *q4 = rank4(L, q), *k4 = rank4(L, k), *v4 = rank4(L, v);
    if (!q4 || !k4 || !v4) return false;
    bool grouped = gqa.kind == ARG_EXPR && ex_is_const(gqa.e) && gqa.e->i;
    Expr *batch = ex_equals_int(q4->dim[0], 1) ? k4->dim[0] : q4->dim[0],
         *heads = ex_equals_int(q4->dim[1], 1) ? k4->dim[1] : q4->dim[1];
    if (!grouped) {
        q4 = spread(L, q4, batch, heads);
        k4 = spread(L, k4, batch, heads);
        v4 = spread(L, v4, batch, heads);
        if (!q4 || !k4 || !v4) return false;
    }
    if (mask && !dtype_is_float(mask->dtype) && mask->dtype != DT_BOOL)
        return lower_fail(L, 3, "dtype %s, expected bool or a float", dtype_name(mask->dtype));
    if (mask && mask->rank > 4) TRY(mask = rank4(L, mask));
    if (lse) {
        const Node *n = lower_emit_node(
            L, OP_sdpa_lse, 6, (Arg[]){arg_value(q4), arg_value(k4), arg_value(v4), arg_value(mask), causal, scale});
        TRY(n);
        *lse = n->out[1];
        return lower_return(L, n->out[0]);
    }
    Value *y = EMIT(L, scaled_dot_product_attention, arg_value(q4), arg_value(k4), arg_value(v4), arg_value(mask),
                    arg_float(L->g, 0), causal, scale, gqa, own ? own[0] : arg_float(L->g, 0),
                    own ? own[1] : arg_none(), own ? own[2] : arg_none());
    return y && lower_return(L, rank == 4 ? y : lower_reshape(L, y, rank, dim));
}

/* Dropout between softmax and the second product, as aten::_scaled_dot_product_attention_math does it. */
static bool attention_dropout(Lower *L, Value *q, Value *k, Value *v, Value *mask, bool causal, Arg scale, double p)
{
    int r = q->rank;
    double size;
    if (scale.kind == ARG_NONE && !(ex_is_const(q->dim[r - 1]) && (size = (double)q->dim[r - 1]->i) > 0))
        return fail(L->err, E_UNSUPPORTED, "attention with dropout and a head size that is not a constant");
    Arg factor = scale.kind == ARG_NONE ? arg_float(L->g, 1 / sqrt(size)) : scale;
    int perm[MAX_RANK];
    for (int i = 0; i < r; i++) perm[i] = i < r - 2 ? i : 2 * r - 3 - i;
    Value *s = EMIT(L, mul_Tensor, arg_value(q), factor);
    s = s ? product(L, s, lower_permute(L, k, perm)) : NULL;
    if (s && causal) {
        Value *ones = EMIT(L, full, arg_exprs(L->g, 2, &s->dim[s->rank - 2]), arg_bool(L->g, true), arg_dtype(DT_BOOL));
        mask = ones ? EMIT(L, tril, arg_value(ones), arg_int(L->g, 0)) : NULL;
    }
    if (s && mask && mask->dtype == DT_BOOL) {
        Value *never = EMIT(L, full, arg_exprs(L->g, 0, NULL), arg_float(L->g, -INFINITY), arg_dtype(s->dtype));
        s = never ? EMIT(L, where_self, arg_value(mask), arg_value(s), arg_value(never)) : NULL;
    } else if (s && mask) {
        s = EMIT(L, add_Tensor, arg_value(s), arg_value(mask));
    }
    s = s ? EMIT(L, safe_softmax, arg_value(s), arg_int(L->g, -1), arg_none()) : NULL;
    Value *noise = s ? EMIT(L, bernoulli_p, arg_value(s), arg_float(L->g, 1 - p), arg_none()) : NULL;
    noise = noise ? EMIT(L, div_Tensor, arg_value(noise), arg_float(L->g, 1 - p)) : NULL;
    return noise && lower_return(L, product(L, EMIT(L, mul_Tensor, arg_value(s), arg_value(noise)), v));
}

static bool no_dropout(Lower *L, int i)
{
    return is_number(&L->arg[i], 0) || fail(L->err, E_UNSUPPORTED, "%s with dropout in training mode", L->op->name);
}

bool lower_sdpa(Lower *L)
{
    Value *q, *k, *v = lower_value(L, 2);
    TRY(two(L, 0, 1, &q, &k));
    if (!v) return lower_fail(L, 2, "expected a tensor");
    if (!is_number(&L->arg[4], 0)) {
        bool causal, grouped;
        TRY(lower_const_bool(L, 5, &causal) && lower_const_bool(L, 7, &grouped));
        const Expr *p = L->arg[4].e;
        if (grouped || p->kind != EX_FLOAT || !(p->f > 0 && p->f < 1)) return no_dropout(L, 4);
        return attention_dropout(L, q, k, v, lower_value(L, 3), causal, L->arg[6], p->f);
    }
    return attention(L, q, k, v, lower_value(L, 3), L->arg[5], L->arg[6], L->arg[7], &L->arg[8], NULL);
}

/* The backends' own ops: the result and, of ranks that a gradient takes, the logarithms of its sums; where they are not
 * read import makes it scaled_dot_product_attention (sdpa_lse_unread). Random state is for dropout and stays undefined
 * (using it fails). */
bool lower_sdpa_other(Lower *L)
{
    Value *q, *k, *v = lower_value(L, 2), *lse = NULL;
    int mask = op_param(L->op, "attn_mask"), bias = op_param(L->op, "attn_bias"), scale = op_param(L->op, "scale"),
        gqa = op_param(L->op, "enable_gqa");
    TRY(two(L, 0, 1, &q, &k) && no_dropout(L, op_param(L->op, "dropout_p")));
    if (!v) return lower_fail(L, 2, "expected a tensor");
    Value *m = mask >= 0 ? lower_value(L, mask) : bias >= 0 ? lower_value(L, bias) : NULL;
    bool trains = L->op->id != OP_scaled_dot_product_attention_math && q->rank == 4 && k->rank == 4 && v->rank == 4;
    Arg grouped = gqa >= 0 ? L->arg[gqa] : arg_bool(L->g, trains && q->dim[1] != k->dim[1]);
    TRY(attention(L, q, k, v, m, L->arg[op_param(L->op, "is_causal")], scale >= 0 ? L->arg[scale] : arg_none(), grouped,
                  NULL, trains ? &lse : NULL));
    return lower_return_values(L, L->op->schema->nreturns, (Value *[16]){L->result.v, lse});
}

/* The logarithms as sdpa_backward takes them, (B, H, N): cuDNN has one axis more, the efficient kernel pads N. Weights in their place, (B, H, N, M), are what PyTorch's
 * decomposition of the forward op alone leaves there: they are computed again then. */
static Value *logarithms(Lower *L, Value *lse, Value *const *x, Arg mask, Arg causal, Arg scale)
{
    Value *q = x[1], *k = x[2];
    if (lse->rank == 4 && lse->dim[3] == k->dim[2] && !ex_equals_int(lse->dim[3], 1)) {
        const Node *n = lower_emit_node(L, OP_sdpa_lse, 6,
                                        (Arg[]){arg_value(q), arg_value(k), arg_value(x[3]), mask, causal, scale});
        return n ? n->out[1] : NULL;
    }
    if (lse->rank == 4 && ex_equals_int(lse->dim[3], 1))
        lse = lower_reshape(L, lse, 3, (Expr *[]){lse->dim[0], lse->dim[1], lse->dim[2]});
    if (lse && lse->rank == 3 && lse->dim[2] != q->dim[2])
        lse = EMIT(L, slice_Tensor, arg_value(lse), arg_int(L->g, 2), arg_int(L->g, 0), arg_expr(q->dim[2]),
                   arg_int(L->g, 1));
    return lse;
}

bool lower_sdpa_other_backward(Lower *L)
{
    Value *x[6];
    int mask = op_param(L->op, "attn_mask"), bias = op_param(L->op, "attn_bias"),
        wanted = op_param(L->op, "grad_input_mask");
    const int at[6] = {0, 1, 2, 3, op_param(L->op, "out"), op_param(L->op, "logsumexp")};
    TRY(no_dropout(L, op_param(L->op, "dropout_p")));
    for (int i = 0; i < 6; i++) {
        if (!(x[i] = lower_value(L, at[i]))) return lower_fail(L, at[i], "expected a tensor");
        if (i < 5 && x[i]->rank != 4) return lower_fail(L, at[i], "rank %d, expected 4", x[i]->rank);
    }
    Value *m = mask >= 0 ? lower_value(L, mask) : bias >= 0 ? lower_value(L, bias) : NULL;
    Arg causal = L->arg[op_param(L->op, "is_causal")], scale = L->arg[op_param(L->op, "scale")];
    const Arg *want = wanted >= 0 ? &L->arg[wanted] : NULL;
    bool grad_mask = want && m && dtype_is_float(m->dtype) && want->kind == ARG_EXPRS && want->n == 4 && want->es[3]->i;
    Value *lse = logarithms(L, x[5], x, arg_value(m), causal, scale);
    TRY(lse);
    const Node *n = lower_emit_node(L, OP_sdpa_backward, 13,
                                    (Arg[]){arg_value(x[0]), arg_value(x[1]), arg_value(x[2]), arg_value(x[3]),
                                            arg_value(x[4]), arg_value(lse), arg_value(m), causal, scale,
                                            arg_float(L->g, 0), arg_none(), arg_none(), arg_bool(L->g, grad_mask)});
    return n && lower_return_values(L, L->op->schema->nreturns, n->out);
}

/* An operand or result of the kernels beneath, (batch, rows, heads, size), as (batch, heads, rows, size), and back. */
static Value *heads_first(Lower *L, Value *v) { return lower_permute(L, v, (int[]){0, 2, 1, 3}); }

static bool kernel_operand(Lower *L, int i, Value **x)
{
    Value *v = lower_value(L, i);
    if (!v || v->rank != 4) return lower_fail(L, i, "expected a tensor of 4 axes: batch, rows, heads, size");
    return (*x = heads_first(L, v)) != NULL;
}

/* No dropout, no window of the efficient kernel, and one sequence a batch: nothing that says where others begin or end. */
static bool plain_kernel(Lower *L)
{
    static const char *const refused[] = {"cu_seqlens_q", "cu_seqlens_k", "cum_seq_q",    "cum_seq_k",
                                          "seqlen_k",     "seqused_k",    "alibi_slopes", "block_table"};
    TRY(no_dropout(L, op_param(L->op, "dropout_p")));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int at = op_param(L->op, refused[i]);
        if (at >= 0 && !lower_is_none(L, at))
            return fail(L->err, E_UNSUPPORTED,
                        "%s with '%s'; expected none: sequences of one length, without slopes or pages", L->op->name,
                        refused[i]);
    }
    int window = op_param(L->op, "window_size");
    if (window < 0 || lower_is_none(L, window) || is_number(&L->arg[window], 0)) return true;
    return fail(L->err, E_UNSUPPORTED, "%s with a window_size; expected none: give the window as a bias", L->op->name);
}

/* One side of a window: how many keys beyond the diagonal; NULL for none or a negative number. */
static Expr *window_side(Lower *L, const char *name)
{
    int at = op_param(L->op, name);
    Expr *e = at < 0 ? NULL : lower_expr(L, at);
    return e && ex_is_const(e) && e->i < 0 ? NULL : e;
}

/* Which keys j a query i sees, i + lower <= j <= i + upper. The kernels align the last query with the last key, but custom_mask_type 1 the first ones. bound: is_causal, lower, upper.
 * Sources: aten/src/ATen/native/transformers/cuda/attention.cu, flash_attn/src/mask.h, mem_eff_attention/kernel_forward.h (CustomMaskType). */
static bool kernel_bounds(Lower *L, const Value *q, const Value *k, Arg *bound)
{
    int type = op_param(L->op, "custom_mask_type");
    int64_t mask = 0;
    bool causal = false;
    if (type >= 0) {
        TRY(lower_const_int(L, type, &mask));
    } else {
        TRY(lower_const_bool(L, op_param(L->op, "is_causal"), &causal));
    }
    Expr *shift = ex_sub(L->ex, k->dim[2], q->dim[2]), *left = window_side(L, "window_size_left"),
         *right = causal || mask == 2 ? ex_int(L->ex, 0) : window_side(L, "window_size_right");
    Expr *lower = left ? ex_sub(L->ex, shift, left) : NULL, *upper = right ? ex_add(L->ex, shift, right) : NULL;
    bool top = mask == 1 || (upper && ex_equals_int(upper, 0));
    bound[0] = arg_bool(L->g, top);
    bound[1] = lower ? arg_expr(lower) : arg_none();
    bound[2] = upper && !top ? arg_expr(upper) : arg_none();
    return true;
}

/* The kernels that PyTorch's forward ops call, as inductor and hand-written models do. */
bool lower_sdpa_kernel(Lower *L)
{
    Value *x[3];
    Arg bound[3];
    TRY(plain_kernel(L));
    for (int i = 0; i < 3; i++) TRY(kernel_operand(L, i, &x[i]));
    TRY(kernel_bounds(L, x[0], x[1], bound));
    int bias = op_param(L->op, "bias");
    const Node *n = lower_emit_node(L, OP_sdpa_lse, 9,
                                    (Arg[]){arg_value(x[0]), arg_value(x[1]), arg_value(x[2]),
                                            arg_value(bias < 0 ? NULL : lower_value(L, bias)), bound[0],
                                            L->arg[op_param(L->op, "scale")], arg_float(L->g, 0), bound[1], bound[2]});
    Value *y = n ? heads_first(L, n->out[0]) : NULL;
    return y && lower_return_values(L, L->op->schema->nreturns, (Value *[8]){y, n->out[1]});
}

bool lower_sdpa_kernel_backward(Lower *L)
{
    Value *x[5], *result[4];
    Arg bound[3];
    int at = op_param(L->op, "logsumexp"), bias = op_param(L->op, "bias"),
        wanted = op_param(L->op, "bias_requires_grad");
    bool grad_mask = false;
    TRY(plain_kernel(L));
    for (int i = 0; i < 5; i++) TRY(kernel_operand(L, i < 4 ? i : op_param(L->op, "out"), &x[i]));
    TRY(kernel_bounds(L, x[1], x[2], bound));
    if (wanted >= 0) TRY(lower_const_bool(L, wanted, &grad_mask));
    Value *lse = lower_value(L, at), *mask = bias < 0 ? NULL : lower_value(L, bias);
    Arg scale = L->arg[op_param(L->op, "scale")];
    if (!lse || lse->rank != 3) return lower_fail(L, at, "expected a tensor of 3 axes: batch, heads, rows");
    TRY(lse = logarithms(L, lse, x, arg_value(mask), bound[0], scale));
    const Node *n = lower_emit_node(L, OP_sdpa_backward, 13,
                                    (Arg[]){arg_value(x[0]), arg_value(x[1]), arg_value(x[2]), arg_value(x[3]),
                                            arg_value(x[4]), arg_value(lse), arg_value(mask), bound[0], scale,
                                            arg_float(L->g, 0), bound[1], bound[2], arg_bool(L->g, grad_mask && mask)});
    TRY(n);
    for (int i = 0; i < 3; i++) TRY(result[i] = heads_first(L, n->out[i]));
    result[3] = n->out[3];
    return lower_return_values(L, L->op->schema->nreturns, result);
}

bool sdpa_lse_unread(Graph *g, Err *err)
{
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].loss) return true; /* a joint graph stays the pairs that it was written as */
    int *uses = mem_alloc(((size_t)g->next_id + 1) * sizeof *uses);
    bool ok = uses || oom(err);
    if (ok) graph_count_uses(g, uses);
    for (Node *n = g->first, *next; ok && n; n = next) {
        next = n->next;
        if (n->op->id != OP_sdpa_lse || n->out[1]->id >= g->next_id || uses[n->out[1]->id]) continue;
        const Arg *a = n->arg;
        bool grouped = a[0].v->dim[1] != a[1].v->dim[1];
        Node *y = graph_add_before(
            g, n, OP_scaled_dot_product_attention, 11,
            (Arg[]){a[0], a[1], a[2], a[3], arg_float(g, 0), a[4], a[5], arg_bool(g, grouped), a[6], a[7], a[8]},
            "attention", err);
        const char *name = n->out[0]->name;
        if (!(ok = y != NULL)) break;
        graph_replace_uses(g, n->out[0], y->out[0]);
        graph_remove(g, n);
        ok = graph_rename(g, y->out[0], name, err);
    }
    mem_free(uses);
    return ok;
}
