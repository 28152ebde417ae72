/* Computing with elements that are known: how ONNX's Shape, Gather, Concat, Mul ... become expressions instead of
 * nodes.
 *
 *     Reshape(x, Concat(Gather(Shape(x), 0), [-1, 64]))      ->  reshape(x, [s0, -1, 64])
 *
 * Integers and truth values fold as expressions over symbols. Floats fold only where the result is exact in any
 * precision: constants, rounded to their dtype at each step as a kernel would, and sizes times or over powers of two.
 * A size times or over any constant folds in double, in which expressions are evaluated.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "onnx/read/read_impl.h"

typedef struct Known {
    DType t;
    int rank, n;
    int64_t dim[MAX_RANK];
    Expr **e;
} Known;

static bool load_known(OnnxOp *o, int i, Known *k)
{
    const Cell *c = op_known(o, i);
    if (!c || c->rank > MAX_RANK) return false;
    *k = (Known){.t = cell_dtype(c), .rank = c->rank, .n = c->n, .e = c->e};
    for (int d = 0; d < c->rank; d++) k->dim[d] = c->dim[d];
    return true;
}

/* Does every given input have known elements, few enough to compute with? Constants that are data (floats of more
 * than one element) are left alone: they belong to the weights. */
static bool all_known(OnnxOp *o)
{
    if (!o->node->ninput) return false;
    for (int i = 0; i < o->node->ninput; i++) {
        if (!o->in[i]) continue;
        if (o->in[i]->is_list || !cell_known(o->im, o->in[i])) return false;
        if (dtype_is_float(cell_dtype(o->in[i])) && o->in[i]->n > (o->in[i]->parameter ? 1 : 16)) return false;
    }
    return true;
}

static bool give(OnnxOp *o, const Known *k, bool *taken)
{
    for (int i = 0; i < k->n; i++)
        if (!k->e[i]) return true; /* not an expression that can be made: let kernels compute it */
    *taken = true;
    return op_return_sizes(o, 0, k->t, k->rank, k->dim, k->n, k->e);
}

static Expr **room(OnnxOp *o, int64_t n) { return n <= CELL_MAX ? arena_array(o->g->arena, Expr *, n + 1) : NULL; }

/* ------------------------------------------------------------------ shapes */

static bool fold_shape(OnnxOp *o, bool *taken)
{
    Expr *dim[MAX_RANK];
    int64_t start, end;
    Cell *c = o->in[0];
    int rank = c ? cell_rank(c) : 0;
    if (!c || c->is_list || (c->string && !c->v)) return true;
    TRY(op_attr_int(o, "start", 0, &start) && op_attr_int(o, "end", rank, &end));
    for (int i = 0; i < rank; i++) dim[i] = c->v ? c->v->dim[i] : ex_int(o->ex, c->dim[i]);
    if (start < 0) start += rank;
    if (end < 0) end += rank;
    start = start < 0 ? 0 : start > rank ? rank : start;
    end = end < start ? start : end > rank ? rank : end;
    int64_t n = end - start;
    *taken = true;
    return op_return_sizes(o, 0, DT_I64, 1, &n, (int)n, dim + start);
}

static bool fold_size(OnnxOp *o, bool *taken)
{
    Cell *c = o->in[0];
    Expr *all = ex_int(o->ex, 1);
    if (!c || c->is_list || (c->string && !c->v)) return true;
    for (int i = 0; i < cell_rank(c); i++) all = ex_mul(o->ex, all, c->v ? c->v->dim[i] : ex_int(o->ex, c->dim[i]));
    *taken = true;
    return op_return_sizes(o, 0, DT_I64, 0, NULL, 1, &all);
}

/* ------------------------------------------------------------------ choosing elements */

static bool const_index(const Expr *e, int64_t n, int64_t *out)
{
    if (!ex_is_int(e) || e->i < -n || e->i >= n) return false;
    *out = e->i < 0 ? e->i + n : e->i;
    return true;
}

static bool fold_gather(OnnxOp *o, bool *taken)
{
    Known x, at;
    int64_t axis;
    TRY(op_attr_int(o, "axis", 0, &axis));
    if (!load_known(o, 0, &x) || !load_known(o, 1, &at) || x.rank != 1 || (axis != 0 && axis != -1)) return true;
    Known y = {.t = x.t, .rank = at.rank, .n = at.n, .e = room(o, at.n)};
    memcpy(y.dim, at.dim, sizeof y.dim);
    for (int i = 0; y.e && i < at.n; i++) {
        int64_t k;
        if (!const_index(at.e[i], x.n, &k)) return true;
        y.e[i] = x.e[k];
    }
    return !y.e || give(o, &y, taken);
}

/* One axis, with constant bounds: inputs from opset 10 on, attributes before. */
static bool fold_slice(OnnxOp *o, bool *taken)
{
    Known x, v[4];
    int64_t start, end, step = 1;
    int axis = 0;
    if (!load_known(o, 0, &x) || x.rank < 1 || o->opset < 10) return true;
    for (int i = 0; i < 4; i++) {
        v[i].n = 0;
        if (op_has(o, i + 1) && (!load_known(o, i + 1, &v[i]) || v[i].n != 1 || !ex_is_int(v[i].e[0]))) return true;
    }
    if (!v[0].n || !v[1].n) return true;
    start = v[0].e[0]->i;
    end = v[1].e[0]->i;
    if (v[2].n) TRY(op_axis(o, "axis", v[2].e[0]->i, x.rank, &axis));
    if (v[3].n) step = v[3].e[0]->i;
    if (step == 0) return fail(o->im->err, E_FORMAT, "input 4: a step of 0");
    int64_t n = x.dim[axis];
    step = step > n ? n + 1 : step < -n ? -n - 1 : step; /* that far it takes one element */
    int64_t lo = step > 0 ? 0 : -1, hi = step > 0 ? n : n - 1, inner = 1, count = 0;
    if (start < 0) start += n;
    if (end < 0) end += n;
    start = start < 0 ? 0 : start > hi ? hi : start;
    end = end < lo ? lo : end > n ? n : end;
    for (int i = axis + 1; i < x.rank; i++) inner *= x.dim[i];
    for (int64_t i = start; step > 0 ? i < end : i > end; i += step) count++;
    Known y = x;
    y.dim[axis] = count;
    y.e = room(o, x.n);
    y.n = 0;
    for (int64_t outer = 0; y.e && n && inner && outer < x.n / (n * inner); outer++)
        for (int64_t i = start, c = 0; c < count; i += step, c++)
            for (int64_t k = 0; k < inner; k++) y.e[y.n++] = x.e[(outer * n + i) * inner + k];
    return !y.e || give(o, &y, taken);
}

static bool fold_transpose(OnnxOp *o, bool *taken)
{
    Known x;
    const int64_t *perm;
    int n;
    int64_t step[MAX_RANK], at = 1;
    TRY(op_attr_ints(o, "perm", &perm, &n));
    if (!load_known(o, 0, &x) || (perm && n != x.rank)) return true;
    for (int i = x.rank - 1; i >= 0; i--) {
        step[i] = at;
        at *= x.dim[i];
    }
    Known y = x;
    y.e = room(o, x.n);
    for (int i = 0; i < x.rank; i++) {
        int64_t from = perm ? perm[i] : x.rank - 1 - i;
        if (from < 0 || from >= x.rank) return true;
        y.dim[i] = x.dim[from];
    }
    for (int k = 0; y.e && k < x.n; k++) {
        int64_t left = k, index = 0;
        for (int i = x.rank - 1; i >= 0; i--) {
            index += left % y.dim[i] * step[perm ? perm[i] : x.rank - 1 - i];
            left /= y.dim[i];
        }
        if (index < 0 || index >= x.n) return true; /* not a permutation: its row reports it */
        y.e[k] = x.e[index];
    }
    return !y.e || give(o, &y, taken);
}

static bool fold_concat(OnnxOp *o, bool *taken)
{
    Known x, y = {.rank = 1};
    int n = 0;
    for (int i = 0; i < o->node->ninput; i++) {
        if (!load_known(o, i, &x) || x.rank != 1 || x.n > CELL_MAX - n) return true;
        n += x.n;
    }
    y.e = room(o, n);
    for (int i = 0; y.e && i < o->node->ninput; i++) {
        load_known(o, i, &x);
        y.t = x.t;
        for (int k = 0; k < x.n; k++) y.e[y.n++] = x.e[k];
    }
    y.dim[0] = y.n;
    return !y.e || give(o, &y, taken);
}

/* The same elements in another shape. */
static bool fold_view(OnnxOp *o, bool *taken)
{
    Known x, s;
    const char *op = o->node->op;
    if (!load_known(o, 0, &x)) return true;
    if (!strcmp(op, "Unsqueeze") || !strcmp(op, "Squeeze")) {
        if (x.rank > 1 || x.n != 1) return true;
        bool squeeze = op[0] == 'S';
        if (squeeze == (x.rank == 0)) return true;
        x.rank = !squeeze;
        x.dim[0] = 1;
        int axis[MAX_RANK], n;
        TRY(squeeze ? op_axes(o, 13, 1, 1, &n, axis) : op_new_axes(o, 0, &n, axis));
        return n > 1 || give(o, &x, taken);
    }
    if (!strcmp(op, "Reshape")) {
        int64_t n = 1, dim[MAX_RANK];
        int rest = -1;
        if (!load_known(o, 1, &s) || s.rank > 1 || s.n > MAX_RANK) return true;
        for (int i = 0; i < s.n; i++) {
            if (!ex_is_int(s.e[i]) || s.e[i]->i < -1 || s.e[i]->i == 0 || s.e[i]->i > CELL_MAX ||
                (s.e[i]->i < 0 && rest >= 0))
                return true;
            dim[i] = s.e[i]->i;
            if (dim[i] < 0) rest = i;
            else if ((n *= dim[i]) > CELL_MAX) return true;
        }
        if (rest >= 0) n *= dim[rest] = x.n / n;
        if (n != x.n) return true;
        x.rank = s.n;
        memcpy(x.dim, dim, sizeof dim);
    }
    return give(o, &x, taken);
}

/* ------------------------------------------------------------------ arithmetic */

static bool power_of_two(const Expr *e)
{
    int exp;
    return e->kind == EX_FLOAT && isfinite(e->f) && fabs(frexp(e->f, &exp)) == 0.5;
}

static Expr *truth(OnnxOp *o, Expr *e) { return e->kind == EX_INT ? ex_bool(o->ex, e->i != 0) : e; }

typedef enum Kind { ADD, SUB, MUL, DIV, MOD, MIN, MAX, EQ, LT, LE, GT, GE, AND, OR } Kind;

static bool never_negative(OnnxOp *o, const Expr *e)
{
    int64_t lo, hi;
    ex_range(o->ex, e, &lo, &hi);
    return lo >= 0;
}

static Expr *fold_floats(OnnxOp *o, Kind k, DType t, Expr *a, Expr *b)
{
    if (ex_is_const(a) && ex_is_const(b) && a->kind == EX_FLOAT && b->kind == EX_FLOAT) {
        double x = a->f, y = b->f;
        switch (k) {
        case ADD: return ex_float(o->ex, round_to(t, x + y));
        case SUB: return ex_float(o->ex, round_to(t, x - y));
        case MUL: return ex_float(o->ex, round_to(t, x * y));
        case DIV: return ex_float(o->ex, round_to(t, x / y));
        case MIN: return isnan(x) || isnan(y) ? NULL : ex_float(o->ex, x < y ? x : y);
        case MAX: return isnan(x) || isnan(y) ? NULL : ex_float(o->ex, x > y ? x : y);
        case EQ: return ex_bool(o->ex, x == y);
        case LT: return ex_bool(o->ex, x < y);
        case LE: return ex_bool(o->ex, x <= y);
        case GT: return ex_bool(o->ex, x > y);
        case GE: return ex_bool(o->ex, x >= y);
        default: return NULL;
        }
    }
    if (k == MUL && (power_of_two(a) || power_of_two(b))) return ex_make(o->ex, EX_MUL, a, b, NULL);
    if (k == DIV && power_of_two(b)) return ex_make(o->ex, EX_MUL, a, ex_float(o->ex, 1 / b->f), NULL);
    bool by = b->kind == EX_FLOAT && isfinite(b->f) && b->f != 0 && a->kind == EX_TOFLOAT,
         times = a->kind == EX_FLOAT && isfinite(a->f) && b->kind == EX_TOFLOAT;
    if (t == DT_F64 && ((k == MUL && (by || times)) || (k == DIV && by)))
        return ex_make(o->ex, k == MUL ? EX_MUL : EX_TRUEDIV, a, b, NULL);
    return NULL;
}

/* a / b where b divides a: of a difference of e and e % b that is e // b. NULL: it may leave something. */
static Expr *exact_quotient(ExprPool *p, Expr *a, Expr *b, int depth)
{
    Expr *left = ex_mod(p, a, b);
    if (left && ex_equals_int(left, 0)) return ex_floordiv(p, a, b);
    for (int i = 0; depth && i < (a->kind == EX_ADD ? a->nargs : 1); i++) {
        Expr *term = a->kind == EX_ADD ? a->args[i] : a, *m = term->kind == EX_MUL ? term->args[term->nargs - 1] : term;
        if (m->kind != EX_MOD || m->args[1] != b) continue;
        Expr *e = m->args[0], *rest = ex_sub(p, ex_add(p, a, m), e),
             *q = rest ? exact_quotient(p, rest, b, depth - 1) : NULL;
        if (!q) continue;
        Expr *whole = exact_quotient(p, e, b, depth - 1);
        return ex_add(p, q, whole ? whole : ex_floordiv(p, e, b));
    }
    return NULL;
}

/* Division of ONNX integers rounds toward zero; Mod has the sign of the divisor unless fmod. */
static Expr *fold_ints(OnnxOp *o, Kind k, Expr *a, Expr *b)
{
    ExprPool *p = o->ex;
    switch (k) {
    case ADD: return ex_add(p, a, b);
    case SUB: return ex_sub(p, a, b);
    case MUL: return ex_mul(p, a, b);
    case DIV:
        if (ex_equals_int(b, 0)) return NULL;
        if (never_negative(o, a) && never_negative(o, b)) return ex_floordiv(p, a, b);
        if (ex_is_int(a) && ex_is_int(b)) return b->i != -1 ? ex_int(p, a->i / b->i) : NULL;
        return exact_quotient(p, a, b, 3);
    case MOD:
        if (ex_equals_int(b, 0) || (op_attr(o, "fmod") && !(never_negative(o, a) && never_negative(o, b)))) return NULL;
        return ex_mod(p, a, b);
    case MIN: return ex_min(p, a, b);
    case MAX: return ex_max(p, a, b);
    case EQ: return ex_make(p, EX_EQ, a, b, NULL);
    case LT: return ex_make(p, EX_LT, a, b, NULL);
    case LE: return ex_make(p, EX_LE, a, b, NULL);
    case GT: return ex_make(p, EX_LT, b, a, NULL);
    case GE: return ex_make(p, EX_LE, b, a, NULL);
    default: return NULL;
    }
}

static bool broadcast(const Known *a, const Known *b, Known *y)
{
    y->rank = a->rank > b->rank ? a->rank : b->rank;
    y->n = 1;
    for (int i = 0; i < y->rank; i++) {
        int64_t p = i - y->rank + a->rank >= 0 ? a->dim[i - y->rank + a->rank] : 1,
                q = i - y->rank + b->rank >= 0 ? b->dim[i - y->rank + b->rank] : 1;
        if (p != q && p != 1 && q != 1) return false;
        y->dim[i] = p == 1 ? q : p;
        if (y->n && y->dim[i] > CELL_MAX / y->n) return false;
        y->n *= (int)y->dim[i];
    }
    return true;
}

static Expr *element_for(const Known *x, const Known *y, int at)
{
    int64_t index = 0, step = 1;
    for (int i = y->rank - 1; i >= 0; i--) {
        int64_t here = at % y->dim[i];
        at /= (int)y->dim[i];
        int d = i - y->rank + x->rank;
        if (d < 0) continue;
        index += x->dim[d] == 1 ? 0 : here * step;
        step *= x->dim[d];
    }
    return x->e[index];
}

static bool fold_two(OnnxOp *o, Kind k, bool *taken)
{
    Known y;
    if (!load_known(o, 0, &y)) return true;
    for (int i = 1; i < o->node->ninput; i++) { /* Min and Max take any number */
        Known a = y, b;
        if (!load_known(o, i, &b) || a.t != b.t || !broadcast(&a, &b, &y)) return true;
        y.e = room(o, y.n);
        y.t = k >= EQ && k <= OR ? DT_BOOL : a.t;
        for (int j = 0; j < y.n; j++) {
            if (!y.e) return true;
            Expr *p = element_for(&a, &y, j), *q = element_for(&b, &y, j);
            if (k == AND || k == OR) y.e[j] = ex_make(o->ex, k == AND ? EX_AND : EX_OR, truth(o, p), truth(o, q), NULL);
            else if (dtype_is_float(a.t)) y.e[j] = fold_floats(o, k, a.t, p, q);
            else if (a.t == DT_BOOL)
                y.e[j] = k == EQ && ex_is_const(p) && ex_is_const(q) ? ex_bool(o->ex, p->i == q->i) : NULL;
            else y.e[j] = a.t == DT_I64 || a.t == DT_I32 ? fold_ints(o, k, p, q) : NULL;
            if (!y.e[j]) return true;
        }
    }
    return give(o, &y, taken);
}

/* Equal of tensors of strings, which are constants. */
static bool equal_strings(OnnxOp *o, bool *taken)
{
    const Cell *c[2];
    Known x[2], y = {.t = DT_BOOL};
    for (int i = 0; i < 2; i++) {
        if (!op_has(o, i) || !o->in[i]->string || o->in[i]->nstring > CELL_MAX || o->in[i]->rank > MAX_RANK)
            return true;
        c[i] = o->in[i];
        x[i] = (Known){.rank = c[i]->rank, .n = c[i]->nstring, .e = room(o, c[i]->nstring)};
        for (int d = 0; d < c[i]->rank; d++) x[i].dim[d] = c[i]->dim[d];
        for (int k = 0; x[i].e && k < x[i].n; k++) x[i].e[k] = ex_int(o->ex, k);
        if (!x[i].e) return true;
    }
    if (!broadcast(&x[0], &x[1], &y) || !(y.e = room(o, y.n))) return true;
    for (int i = 0; i < y.n; i++)
        y.e[i] = ex_bool(
            o->ex, !strcmp(c[0]->string[element_for(&x[0], &y, i)->i], c[1]->string[element_for(&x[1], &y, i)->i]));
    return give(o, &y, taken);
}

static Expr *cast_element(OnnxOp *o, Expr *e, DType from, DType to)
{
    bool was_float = dtype_is_float(from), whole = to == DT_I64 || to == DT_I32;
    if (dtype_is_float(to) && dtype_size(to) == 1) return NULL;
    if (to == DT_BOOL) {
        if (from == DT_BOOL) return e;
        return ex_is_const(e) ? ex_bool(o->ex, e->kind == EX_FLOAT ? e->f != 0 : e->i != 0)
               : was_float    ? NULL
                              : ex_make(o->ex, EX_NE, e, ex_int(o->ex, 0), NULL);
    }
    if (dtype_is_float(to)) {
        if (ex_is_const(e)) return ex_float(o->ex, round_to(to, ex_number(e)));
        return (to == DT_F32 || to == DT_F64) && !was_float && from != DT_BOOL
                   ? ex_make(o->ex, EX_TOFLOAT, e, NULL, NULL)
               : was_float && to == from ? e
                                         : NULL;
    }
    if (!whole) return NULL;
    if (from == DT_BOOL)
        return ex_is_const(e) ? ex_int(o->ex, e->i) : ex_make(o->ex, EX_WHERE, e, ex_int(o->ex, 1), ex_int(o->ex, 0));
    if (!was_float) return e;
    if (ex_is_const(e)) return fabs(e->f) < 0x1p31 ? ex_int(o->ex, (int64_t)e->f) : NULL;
    return ex_make(o->ex, EX_TRUNC, e, NULL, NULL);
}

static bool fold_cast(OnnxOp *o, bool *taken)
{
    Known x;
    DType to;
    if (!load_known(o, 0, &x)) return true;
    if (!strcmp(o->node->op, "CastLike")) {
        if (!op_has(o, 1)) return true;
        to = cell_dtype(o->in[1]);
    } else {
        const OnnxAttr *a = op_attr(o, "to");
        if (!a || a->type != ONNX_ATTR_INT || a->i < 0 || a->i >= ONNX_TYPE_COUNT) return true;
        to = dtype_from_onnx((int)a->i);
    }
    Known y = x;
    y.t = to;
    y.e = room(o, x.n);
    for (int i = 0; y.e && i < x.n; i++) y.e[i] = cast_element(o, x.e[i], x.t, to);
    return !y.e || to == DT_NONE || give(o, &y, taken);
}

static Expr *one_element(OnnxOp *o, const char *op, DType t, Expr *e)
{
    bool is_float = dtype_is_float(t), constant = ex_is_const(e);
    if (!strcmp(op, "Not")) return t == DT_BOOL ? ex_make(o->ex, EX_NOT, truth(o, e), NULL, NULL) : NULL;
    if (is_float && constant) {
        double v = e->f;
        if (!strcmp(op, "Sqrt")) return ex_float(o->ex, round_to(t, sqrt(v)));
        if (!strcmp(op, "Neg")) return ex_float(o->ex, -v);
        if (!strcmp(op, "Floor")) return ex_float(o->ex, floor(v));
        if (!strcmp(op, "Ceil")) return ex_float(o->ex, ceil(v));
        if (!strcmp(op, "Abs")) return ex_float(o->ex, fabs(v));
        if (!strcmp(op, "Reciprocal")) return ex_float(o->ex, round_to(t, 1 / v));
        return NULL;
    }
    if (is_float) { /* floor and ceil of a size times a power of two, still a float */
        if (!strcmp(op, "Floor"))
            return ex_make(o->ex, EX_TOFLOAT, ex_make(o->ex, EX_FLOOR, e, NULL, NULL), NULL, NULL);
        if (!strcmp(op, "Ceil")) return ex_make(o->ex, EX_TOFLOAT, ex_make(o->ex, EX_CEIL, e, NULL, NULL), NULL, NULL);
        return NULL;
    }
    if (t != DT_I64 && t != DT_I32) return NULL;
    if (!strcmp(op, "Neg")) return ex_neg(o->ex, e);
    if (!strcmp(op, "Abs")) return never_negative(o, e) ? e : ex_make(o->ex, EX_ABS, e, NULL, NULL);
    return NULL;
}

static bool fold_one(OnnxOp *o, bool *taken)
{
    Known x;
    if (!load_known(o, 0, &x)) return true;
    Known y = x;
    y.e = room(o, x.n);
    for (int i = 0; y.e && i < x.n; i++)
        if (!(y.e[i] = one_element(o, o->node->op, x.t, x.e[i]))) return true;
    return !y.e || give(o, &y, taken);
}

static bool fold_where(OnnxOp *o, bool *taken)
{
    Known c, a, b, ab, y;
    if (!load_known(o, 0, &c) || !load_known(o, 1, &a) || !load_known(o, 2, &b) || a.t != b.t ||
        !broadcast(&a, &b, &ab) || !broadcast(&ab, &c, &y))
        return true;
    y.t = a.t;
    y.e = room(o, y.n);
    for (int i = 0; y.e && i < y.n; i++) {
        Expr *cond = truth(o, element_for(&c, &y, i)), *p = element_for(&a, &y, i), *q = element_for(&b, &y, i);
        y.e[i] = ex_is_const(cond)                       ? (cond->i ? p : q)
                 : p == q                                ? p
                 : a.t == DT_BOOL || dtype_is_float(a.t) ? NULL
                                                         : ex_make(o->ex, EX_WHERE, cond, p, q);
        if (!y.e[i]) return true;
    }
    return !y.e || give(o, &y, taken);
}

/* Over the whole of a vector of integers. */
static bool fold_reduce(OnnxOp *o, bool *taken)
{
    Known x;
    int64_t keep;
    const char *op = o->node->op + strlen("Reduce");
    if (!load_known(o, 0, &x) || x.rank != 1 || (x.t != DT_I64 && x.t != DT_I32) || !x.n) return true;
    TRY(op_attr_int(o, "keepdims", 1, &keep));
    int axis[MAX_RANK], n;
    TRY(op_axes(o, strcmp(op, "Sum") ? 18 : 13, 1, 1, &n, axis));
    if (n == 0) return true;
    Expr *all = x.e[0];
    for (int i = 1; i < x.n; i++) {
        Kind k = !strcmp(op, "Prod") ? MUL : !strcmp(op, "Sum") ? ADD : !strcmp(op, "Max") ? MAX : MIN;
        all = fold_ints(o, k, all, x.e[i]);
        if (!all) return true;
    }
    Known y = {.t = x.t, .rank = keep != 0, .n = 1, .dim = {1}, .e = &all};
    return give(o, &y, taken);
}

static bool fold_range(OnnxOp *o, bool *taken)
{
    Known v[3];
    for (int i = 0; i < 3; i++)
        if (!load_known(o, i, &v[i]) || v[i].n != 1 || !ex_is_int(v[i].e[0])) return true;
    int64_t start = v[0].e[0]->i, end = v[1].e[0]->i, step = v[2].e[0]->i;
    if (step == 0) return fail(o->im->err, E_FORMAT, "input 2: a step of 0");
    const int64_t far = 1LL << 40;
    if (start < -far || start > far || end < -far || end > far || step < -far || step > far) return true;
    int64_t n = step > 0 ? (end - start + step - 1) / step : (start - end - step - 1) / -step;
    Known y = {.t = v[0].t,
               .rank = 1,
               .n = n > 0 && n <= CELL_MAX ? (int)n : 0,
               .dim = {n > 0 ? n : 0},
               .e = room(o, n > 0 ? n : 0)};
    for (int i = 0; y.e && i < y.n; i++) y.e[i] = ex_int(o->ex, start + step * i);
    return !y.e || n > 16 || give(o, &y, taken);
}

static bool fold_fill(OnnxOp *o, bool *taken)
{
    Known s;
    const OnnxAttr *a = op_attr(o, "value");
    if (!load_known(o, 0, &s) || s.n > 1 || (s.n && (!ex_is_int(s.e[0]) || s.e[0]->i < 0 || s.e[0]->i > 16)))
        return true;
    if (!a || a->type != ONNX_ATTR_TENSOR ||
        (a->t->t.dtype != DT_I64 && a->t->t.dtype != DT_I32 && a->t->t.dtype != DT_BOOL) || tensor_numel(&a->t->t) != 1)
        return true;
    int n = s.n ? (int)s.e[0]->i : 1;
    int64_t v = tensor_get_i64(&a->t->t, 0);
    Known y = {.t = a->t->t.dtype, .rank = s.n, .n = n, .dim = {n}, .e = room(o, n)};
    for (int i = 0; y.e && i < n; i++) y.e[i] = y.t == DT_BOOL ? ex_bool(o->ex, v != 0) : ex_int(o->ex, v);
    return !y.e || give(o, &y, taken);
}

/* A short vector of one element repeated: Expand(v, [n]). */
static bool fold_expand(OnnxOp *o, bool *taken)
{
    Known x, s;
    if (!load_known(o, 0, &x) || !load_known(o, 1, &s) || dtype_is_float(x.t) || s.n > 1 || x.rank > 1) return true;
    if (s.n == 1 && (!ex_is_int(s.e[0]) || s.e[0]->i < 1 || s.e[0]->i > 16)) return true;
    Known want = {.rank = s.n, .dim = {s.n ? s.e[0]->i : 1}}, y;
    if (!broadcast(&x, &want, &y)) return true;
    y.t = x.t;
    y.e = room(o, y.n);
    for (int i = 0; y.e && i < y.n; i++) y.e[i] = element_for(&x, &y, i);
    return !y.e || give(o, &y, taken);
}

static const struct {
    const char *op;
    bool (*fold)(OnnxOp *o, bool *taken);
    int kind; /* of fold_two, -1 otherwise */
} folds[] = {
    {"Gather", fold_gather, -1},
    {"Slice", fold_slice, -1},
    {"Transpose", fold_transpose, -1},
    {"Concat", fold_concat, -1},
    {"Unsqueeze", fold_view, -1},
    {"Squeeze", fold_view, -1},
    {"Reshape", fold_view, -1},
    {"Identity", fold_view, -1},
    {"Cast", fold_cast, -1},
    {"CastLike", fold_cast, -1},
    {"Where", fold_where, -1},
    {"Range", fold_range, -1},
    {"ConstantOfShape", fold_fill, -1},
    {"Expand", fold_expand, -1},
    {"ReduceProd", fold_reduce, -1},
    {"ReduceSum", fold_reduce, -1},
    {"ReduceMax", fold_reduce, -1},
    {"ReduceMin", fold_reduce, -1},
    {"Not", fold_one, -1},
    {"Sqrt", fold_one, -1},
    {"Neg", fold_one, -1},
    {"Floor", fold_one, -1},
    {"Ceil", fold_one, -1},
    {"Abs", fold_one, -1},
    {"Reciprocal", fold_one, -1},
    {"Add", NULL, ADD},
    {"Sub", NULL, SUB},
    {"Mul", NULL, MUL},
    {"Div", NULL, DIV},
    {"Mod", NULL, MOD},
    {"Min", NULL, MIN},
    {"Max", NULL, MAX},
    {"Equal", NULL, EQ},
    {"Less", NULL, LT},
    {"LessOrEqual", NULL, LE},
    {"Greater", NULL, GT},
    {"GreaterOrEqual", NULL, GE},
    {"And", NULL, AND},
    {"Or", NULL, OR},
};

bool onnx_fold(OnnxOp *o, bool *taken)
{
    *taken = false;
    if (*o->node->domain || o->node->noutput != 1) return true;
    if (!strcmp(o->node->op, "Shape")) return fold_shape(o, taken);
    if (!strcmp(o->node->op, "Size")) return fold_size(o, taken);
    if (!strcmp(o->node->op, "Equal") && op_has(o, 0) && o->in[0]->string) return equal_strings(o, taken);
    if (!all_known(o)) return true;
    for (size_t i = 0; i < sizeof folds / sizeof *folds; i++) {
        if (strcmp(folds[i].op, o->node->op)) continue;
        return folds[i].fold ? folds[i].fold(o, taken) : fold_two(o, (Kind)folds[i].kind, taken);
    }
    return true;
}
