/* Lowering of matrix products and sums of them.
 *
 *     baddbmm(c, a, b, beta, alpha)  -> add(mul(c, beta), mul(matmul(a, b), alpha))
 *     addmm(bias, x, w.t())          -> linear(x, w, bias)
 *     einsum("bhqd,bhkd->bhqk")      -> permute, reshape, matmul, reshape, permute
 */
#include <string.h>
#include "lower/lower_table.h"

static Value *product(Lower *L, Value *a, Value *b)
{
    return a && b ? EMIT(L, matmul, arg_value(a), arg_value(b)) : NULL;
}

/* Vectors become matrices, and the dim that they stood for goes again. */
bool lower_matmul(Lower *L)
{
    Value *a, *b, *c;
    TRY(lower_two(L, 0, 1, &a, &b));
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
    TRY(lower_two(L, 0, 1, &x, &w));
    if (w->rank != 1) return lower_return(L, lower_emit(L, OP_linear, 3, L->arg));
    Lower M = *L;
    M.op = op_get(OP_matmul);
    TRY(lower_matmul(&M));
    Value *y = M.result.v;
    if (bias) y = EMIT(L, add_Tensor, arg_value(y), arg_value(bias), arg_int(L->g, 1));
    return y && lower_return(L, y);
}

/* _grouped_mm: rows sorted by group, offs[g] the first row after group g (mixtures of experts). Three ranks of 3 are
 * a batched product. transformers::grouped_mm_fallback(input, weight, offs) is the same with rows after the last
 * group zero. PyTorch takes offs in int32 alone. */
bool lower_grouped_mm(Lower *L)
{
    Value *a, *b, *offs = lower_value(L, 2), *c;
    TRY(lower_two(L, 0, 1, &a, &b));
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

/* v * by; integers by the integer part of a float */
static Value *scaled(Lower *L, Value *v, const Arg *by)
{
    if (!v || lower_is_number(by, 1)) return v;
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
    if (lower_is_number(&L->arg[3], 0)) return lower_return(L, c);
    self = scaled(L, self, &L->arg[3]);
    return c && self && lower_return(L, EMIT(L, add_Tensor, arg_value(c), arg_value(self)));
}

/* addmm, then ReLU or GELU */
bool lower_addmm_activation(Lower *L)
{
    bool gelu;
    TRY(lower_const_bool(L, 5, &gelu));
    Value *y = lower_as(L, OP_addmm, 5, L->arg);
    return y && lower_return(L, gelu ? AS(L, gelu, arg_value(y)) : AS(L, relu, arg_value(y)));
}

/* addmm, baddbmm, addmv. bias + x @ w^T with a bias of rank 1 is a Linear. */
bool lower_addmm(Lower *L)
{
    Value *a, *b, *bias = lower_value(L, 0);
    TRY(lower_two(L, 1, 2, &a, &b));
    bool linear = L->op->id == OP_addmm && bias && bias->rank == 1 && lower_is_number(&L->arg[3], 1) &&
                  lower_is_number(&L->arg[4], 1) && bias->dim[0] == b->dim[b->rank - 1] && b->rank == 2;
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
    TRY(lower_two(L, 1, 2, &a, &b));
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
    TRY(lower_two(L, 0, 1, &a, &b));
    if (a->rank != 1 || b->rank != 1) return lower_fail(L, 0, "ranks %d and %d, expected 1", a->rank, b->rank);
    a = lower_reshape(L, a, 2, (Expr *[]){a->dim[0], one});
    return a && lower_return(L, EMIT(L, mul_Tensor, arg_value(a), arg_value(b)));
}

bool lower_vecdot(Lower *L)
{
    int d;
    Value *a, *b;
    TRY(lower_two(L, 0, 1, &a, &b));
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

/* A dim of 1 that is summed beside a longer one: the longer is summed alone, as in ATen, which then multiplies truth
 * values as integers. */
static bool drop_thin(Einsum *e, Term *t, const Term *other)
{
    Expr *dim[MAX_RANK];
    int kept = 0, n = t->n;
    for (int i = 0; i < n; i++) {
        int l = t->letter[i], k = find(other, l);
        bool thin = k >= 0 && !e->in_out[l] && ex_equals_int(t->v->dim[i], 1) && !ex_equals_int(other->v->dim[k], 1);
        if (thin) continue;
        t->letter[kept] = l;
        dim[kept++] = t->v->dim[i];
    }
    t->n = kept;
    return kept == n || (t->v = lower_reshape(e->L, t->v, kept, dim)) != NULL;
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

/* A dim of 1 in one of two terms is as long as the other's: written out, unless all dims that the product itself
 * broadcasts are. */
static bool widen(Einsum *e, Term *a, Term *b)
{
    Lower *L = e->L;
    int batch = 0;
    for (int i = 0; i < a->n; i++) batch += e->in_out[a->letter[i]] && find(b, a->letter[i]) >= 0;
    for (int i = 0; i < a->n; i++) {
        Expr *dim[MAX_RANK];
        int l = a->letter[i], k = find(b, l);
        if (k < 0 || ex_equals_int(a->v->dim[i], 1) == ex_equals_int(b->v->dim[k], 1)) continue;
        Term *thin = ex_equals_int(a->v->dim[i], 1) ? a : b;
        Expr *size = thin == a ? b->v->dim[k] : a->v->dim[i];
        if (e->in_out[l] && batch == 1) continue;
        for (int d = 0; d < thin->n; d++) dim[d] = d == (thin == a ? i : k) ? size : thin->v->dim[d];
        TRY(thin->v = EMIT(L, expand, arg_value(thin->v), arg_exprs(L->g, thin->n, dim)));
    }
    return true;
}

/* One product of two terms: letters of both and of the output are batch, of both alone are summed. */
static bool contract(Einsum *e, Term *a, Term *b, Term *out)
{
    Lower *L = e->L;
    int la[MAX_RANK * 2], lb[MAX_RANK * 2], batch = 0, rows = 0, cols = 0, inner = 0, n = 0;
    int only_a[MAX_RANK], only_b[MAX_RANK], both[MAX_RANK];
    TRY(drop_thin(e, a, b) && drop_thin(e, b, a) && sum_alone(e, a, b) && sum_alone(e, b, a));
    DType t = dtype_promote(a->v->dtype, b->v->dtype); /* integers that were summed are i64 */
    TRY((a->v = lower_cast(L, a->v, t)) && (b->v = lower_cast(L, b->v, t)) && widen(e, a, b));
    for (int i = 0; i < a->n; i++) {
        int l = a->letter[i], k = find(b, l);
        if (k < 0) only_a[rows++] = l;
        else if (e->in_out[l]) la[batch++] = l;
        else both[inner++] = l;
    }
    for (int i = 0; i < b->n; i++)
        if (find(a, b->letter[i]) < 0) only_b[cols++] = b->letter[i];
    if (batch + rows + cols > MAX_RANK)
        return lower_fail(L, 1, "a product of rank %d: at most %d is supported", batch + rows + cols, MAX_RANK);
    for (int i = 0; i < batch; i++) out->letter[n++] = lb[i] = la[i];
    for (int i = 0; i < rows; i++) out->letter[n++] = la[batch + i] = only_a[i];
    for (int i = 0; i < inner; i++) la[batch + rows + i] = lb[batch + i] = both[i];
    for (int i = 0; i < cols; i++) out->letter[n++] = lb[batch + inner + i] = only_b[i];
    out->n = n;
    Value *x = arranged(L, a, la, batch + rows + inner, (int[]){batch, rows, inner}, 3);
    Value *y = arranged(L, b, lb, batch + inner + cols, (int[]){batch, inner, cols}, 3);
    Value *c = t == DT_BOOL && !inner ? AS(L, mul_Tensor, v(x), v(y)) : product(L, x, y); /* no matrices of truth */
    Expr *dim[MAX_RANK];
    for (int i = 0; i < n; i++) { /* a letter that is longer in a later term is still 1 here */
        int k = find(a, out->letter[i]), m = find(b, out->letter[i]);
        bool of_b = k < 0 || (m >= 0 && ex_equals_int(a->v->dim[k], 1));
        dim[i] = of_b ? b->v->dim[m] : a->v->dim[k];
    }
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
        for (int k = 0; k < t[i].n; k++) count[t[i].letter[k]]++;
        p += n + (p[n] == ',');
    }
    if (arrow) {
        int letters = 0, dots = 0;
        for (const char *q = arrow + 2; *q; q++) letters += letter_of(*q) >= 0, dots += *q == '.';
        int spread = 0;
        for (int l = 52; l < LETTERS; l++) spread += count[l] > 0;
        TRY(read_term(L, arrow + 2, strlen(arrow + 2), letters + (dots ? spread : 0), &out));
    } else { /* the letters that stand once, in alphabetical order, capitals first, after the dots */
        for (int l = 52; l < LETTERS; l++)
            if (count[l]) out.letter[out.n++] = l;
        for (int k = 0; k < 52; k++) {
            int l = k < 26 ? 26 + k : k - 26;
            if (count[l] == 1 && out.n < MAX_RANK) out.letter[out.n++] = l;
        }
    }
    for (int k = 0; k < out.n; k++) {
        if (!count[out.letter[k]]) return lower_fail(L, 0, "the result has a letter that no operand has");
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
    Value *sum = EMIT(L, sum_dim_IntList, arg_value(v), arg_ints(L->g, 1, (int64_t[]){axis}), arg_bool(L->g, true));
    return sum ? lower_cast(L, sum, v->dtype) : NULL;
}

bool lower_tensordot(Lower *L)
{
    Value *a, *b;
    TRY(lower_two(L, 0, 1, &a, &b));
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
    for (int i = 0; i < a->rank; i++) e.in_out[x.letter[i]] = find(&y, x.letter[i]) < 0;
    for (int i = 0; i < b->rank; i++)
        if (find(&x, y.letter[i]) < 0) e.in_out[y.letter[i]] = true;
    return contract(&e, &x, &y, &out) && lower_return(L, out.v);
}

/* y[..., o] = a[..., i] w[o, i, j] b[..., j] + bias */
bool lower_bilinear(Lower *L)
{
    Value *a, *b, *w = lower_value(L, 2), *bias = lower_value(L, 3);
    TRY(lower_two(L, 0, 1, &a, &b));
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
