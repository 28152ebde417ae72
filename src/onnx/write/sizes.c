/* Sizes in an ONNX file: a constant where they are one, else Shape, Mul, Add ... nodes, each once for an expression.
 *
 *     2*s0 + 1   ->  Add(Mul(Shape(x, start=0, end=1), [2]), [1])         one-element lists, so that Concat makes
 *                                                                         shapes of them
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "onnx/write/write_impl.h"
#include "shape/solve.h"

static Symbol *symbol_of(const Onnx *o, const Expr *x) { return expr_symbol(o->p, (int)x->i); }

static DType size_dtype(const Expr *x) { return x->is_bool ? DT_BOOL : x->is_float ? DT_F64 : DT_I64; }

/* Room for what is kept by Expr id. */
static bool room(Onnx *o, const Expr *x)
{
    if (!x) {
        if (!o->broken) fail(o->err, E_LIMIT, "a size expression is too large");
        o->broken = true;
        return false;
    }
    if (x->id < o->nsizes) return true;
    uint32_t n = x->id + x->id / 2 + 64;
    Ref *size = arena_array(o->a, Ref, n);
    bool *asked = arena_array(o->a, bool, n);
    if (!size || !asked) {
        out_of_memory(o);
        return false;
    }
    if (o->nsizes) {
        memcpy(size, o->size, o->nsizes * sizeof *size);
        memcpy(asked, o->size_asked, o->nsizes * sizeof *asked);
    }
    o->size = size;
    o->size_asked = asked;
    o->nsizes = n;
    return true;
}

/* ------------------------------------------------------------------ where a size is found */

static Ref axis_of(Onnx *o, Value *v, int axis)
{
    Ref x = ref(o, v);
    if (o->opt.opset < 15) /* Shape gives all sizes there */
        return slice(o, NODE(o, "Shape", DT_I64, x), 0, INTS(o, axis), INTS(o, axis + 1), 1);
    attr_int(o, "start", axis);
    attr_int(o, "end", axis + 1);
    return NODE(o, "Shape", DT_I64, x);
}

static bool find_axis(const Onnx *o, const Expr *x, Value **v, int *axis)
{
    for (int i = 0; i < o->g->ninput; i++)
        for (int k = 0; k < o->g->input[i]->rank; k++)
            if (o->g->input[i]->dim[k] == x) {
                *v = o->g->input[i];
                *axis = k;
                return true;
            }
    return false;
}

static bool known(Onnx *o, const Expr *x);

typedef struct Solved {
    Value *v;
    int axis;
    Expr *factor, *rest;
} Solved;

/* x is an axis' size factor * s + rest: s = (size - rest) / factor. */
static bool solve_axis(Onnx *o, const Expr *s, Expr *size, Expr **factor, Expr **rest)
{
    return expr_split(o->p, size, s, factor, rest) && known(o, *factor) && known(o, *rest);
}

static bool find_solution(Onnx *o, const Expr *s, Value **v, int *axis, Expr **factor, Expr **rest)
{
    if (!o->solved) o->solved = arena_array(o->a, Solved *, expr_symbol_count(o->p) + 1);
    Solved *known_as = o->solved ? o->solved[s->i] : NULL;
    if (known_as) {
        *v = known_as->v;
        *axis = known_as->axis;
        *factor = known_as->factor;
        *rest = known_as->rest;
        return true;
    }
    if (!room(o, s) || !o->solved || o->size_asked[s->id]) return false;
    o->size_asked[s->id] = true;
    bool found = false;
    for (int i = 0; i < o->g->ninput && !found; i++)
        for (int k = 0; k < o->g->input[i]->rank && !found; k++) {
            Expr *size = o->g->input[i]->dim[k];
            *v = o->g->input[i];
            *axis = k;
            found = ex_mentions(size, s) && solve_axis(o, s, size, factor, rest);
        }
    o->size_asked[s->id] = false;
    if (!found || !(o->solved[s->i] = arena_new(o->a, Solved))) return false;
    *o->solved[s->i] = (Solved){*v, *axis, *factor, *rest};
    return true;
}

static bool known(Onnx *o, const Expr *x)
{
    Value *v;
    int axis;
    Expr *factor, *rest;
    if (ex_is_const(x) || find_axis(o, x, &v, &axis)) return true;
    if (x->kind == EX_SYM) return symbol_out_of_data(symbol_of(o, x)) || find_solution(o, x, &v, &axis, &factor, &rest);
    for (int i = 0; i < x->nargs; i++)
        if (!known(o, x->args[i])) return false;
    return true;
}

/* ------------------------------------------------------------------ nodes */

static Ref constant(Onnx *o, const Expr *x)
{
    if (x->kind == EX_INT) return INTS(o, x->i);
    unsigned char data[8];
    DType t = size_dtype(x);
    if (t == DT_BOOL) store_i64(t, data, x->i);
    else store_f64(t, data, x->f);
    char name[48];
    text_printf(name, sizeof name, "size.%s.%.17g", dtype_name(t), t == DT_BOOL ? (double)x->i : x->f);
    Tensor v = tensor_of(t, 1, (int64_t[]){1}, arena_alloc(o->a, 1, 16));
    if (!v.data) {
        out_of_memory(o);
        return none();
    }
    memcpy(v.data, data, dtype_size(t));
    return tensor_const(o, &v, name);
}

static Ref floor_div(Onnx *o, Expr *a, Expr *b, Ref x, Ref y)
{
    int64_t lo_a, hi_a, lo_b, hi_b;
    ex_range(o->p, a, &lo_a, &hi_a);
    ex_range(o->p, b, &lo_b, &hi_b);
    if (lo_a < 0 || lo_b <= 0)
        x = NODE(o, "Sub", DT_I64, x, NODE(o, "Mod", DT_I64, x, y)); /* Div of integers rounds to 0 */
    return NODE(o, "Div", DT_I64, x, y);
}

static Ref two(Onnx *o, Expr *x, Ref a, Ref b)
{
    DType t = a.t == DT_F64 || b.t == DT_F64 || x->kind == EX_TRUEDIV ? DT_F64 : a.t;
    if (x->kind == EX_FLOORDIV && t == DT_I64) return floor_div(o, x->args[0], x->args[1], a, b);
    a = cast(o, a, t);
    b = cast(o, b, t);
    switch (x->kind) {
    case EX_POW: return NODE(o, "Pow", t, a, b);
    case EX_FLOORDIV: return NODE(o, "Floor", t, NODE(o, "Div", t, a, b));
    case EX_MOD: return NODE(o, "Mod", t, a, b);
    case EX_MAX: return NODE(o, "Max", t, a, b);
    case EX_MIN: return NODE(o, "Min", t, a, b);
    case EX_TRUEDIV: return NODE(o, "Div", t, a, b);
    case EX_LSHIFT: return NODE(o, "Mul", t, a, NODE(o, "Pow", t, INTS(o, 2), b));
    case EX_RSHIFT: {
        Ref by = NODE(o, "Pow", t, INTS(o, 2), b);
        return NODE(o, "Div", t, NODE(o, "Sub", t, a, NODE(o, "Mod", t, a, by)), by);
    }
    case EX_EQ: return NODE(o, "Equal", DT_BOOL, a, b);
    case EX_NE: return negated(o, NODE(o, "Equal", DT_BOOL, a, b));
    case EX_LT: return NODE(o, "Less", DT_BOOL, a, b);
    case EX_LE: return NODE(o, "LessOrEqual", DT_BOOL, a, b);
    case EX_AND: return NODE(o, "And", DT_BOOL, a, b);
    case EX_OR: return NODE(o, "Or", DT_BOOL, a, b);
    case EX_ADD: return NODE(o, "Add", t, a, b);
    case EX_MUL: return NODE(o, "Mul", t, a, b);
    default: return none();
    }
}

static Ref one(Onnx *o, Expr *x, Ref a)
{
    Ref f = a.t == DT_BOOL ? a : cast(o, a, DT_F64);
    switch (x->kind) {
    case EX_TOFLOAT: return f;
    case EX_CEIL: return cast(o, NODE(o, "Ceil", DT_F64, f), DT_I64);
    case EX_FLOOR: return cast(o, NODE(o, "Floor", DT_F64, f), DT_I64);
    case EX_TRUNC: return cast(o, f, DT_I64);
    case EX_ROUND: return cast(o, NODE(o, "Round", DT_F64, f), DT_I64);
    case EX_SQRT: return NODE(o, "Sqrt", DT_F64, f);
    case EX_NEGF: return NODE(o, "Neg", a.t, a);
    case EX_ABS: return NODE(o, "Abs", a.t, a);
    case EX_NOT: return negated(o, a);
    default: return none();
    }
}

static Ref symbol(Onnx *o, Expr *x)
{
    Symbol *s = symbol_of(o, x);
    Value *v;
    int axis;
    Expr *factor, *rest;
    if (s->source == SYM_SIZE) return axis_of(o, s->value, s->dim);
    if (s->source == SYM_ITEM) return cast(o, flat(o, ref(o, s->value)), size_dtype(x));
    if (find_solution(o, x, &v, &axis, &factor, &rest)) {
        Ref y = size_of(o, v->dim[axis]);
        if (!ex_equals_int(rest, 0)) y = NODE(o, "Sub", DT_I64, y, size_of(o, rest));
        return ex_equals_int(factor, 1) ? y : NODE(o, "Div", DT_I64, y, size_of(o, factor));
    }
    for (int i = 0; i < o->g->nscalar_input; i++) {
        const ScalarInput *in = &o->g->scalar_input[i];
        if (in->value.kind != ARG_EXPR || in->value.e != x) continue;
        const char *name = fresh(o, in->name);
        OnnxTypeProto t = {.kind = ONNX_TENSOR, .elem = ONNX_INT64, .has_shape = true};
        o->input[o->ninput++] = (OnnxValueInfo){.name = name, .type = t};
        return flat(o, (Ref){name, DT_I64});
    }
    refuse(o, "size '%s' cannot be found from the sizes of the inputs", s->name);
    return none();
}

static Ref make(Onnx *o, Expr *x)
{
    Value *v;
    int axis;
    Ref arg[3];
    if (ex_is_const(x)) return constant(o, x);
    if (find_axis(o, x, &v, &axis)) return axis_of(o, v, axis);
    if (x->kind == EX_SYM) return symbol(o, x);
    if (x->kind == EX_WHERE) {
        for (int i = 0; i < 3; i++) arg[i] = size_of(o, x->args[i]);
        return where(o, arg[0], arg[1], cast(o, arg[2], arg[1].t));
    }
    if (x->nargs == 1) return one(o, x, size_of(o, x->args[0]));
    Ref y = size_of(o, x->args[0]);
    for (int i = 1; i < x->nargs; i++) {
        Expr *t = x->args[i];
        bool minus = x->kind == EX_ADD && !x->is_float && t->kind == EX_MUL && t->args[0]->kind == EX_INT &&
                     t->args[0]->i < 0;
        y = minus ? NODE(o, "Sub", DT_I64, y, size_of(o, ex_neg(o->p, t))) : two(o, x, y, size_of(o, t));
    }
    return y;
}

/* Made under names of sizes: what nodes call them must not grow when a file is read and written again. */
static void begin_shared(Onnx *o, const char *scope, Onnx *kept)
{
    kept->nnode = o->nnode;
    kept->scope = o->scope;
    kept->attr = o->attr;
    kept->nattr = o->nattr;
    o->scope = scope;
    o->attr = NULL;
    o->nattr = 0;
}

static void end_shared(Onnx *o, const Onnx *kept)
{
    o->scope = kept->scope;
    o->attr = kept->attr;
    o->nattr = kept->nattr;
    lend_nodes(o, kept->nnode);
}

Ref size_of(Onnx *o, Expr *x)
{
    if (!room(o, x) || o->broken || o->refused) return (Ref){"", x ? size_dtype(x) : DT_I64};
    if (o->size[x->id].name) return o->size[x->id];
    Onnx kept;
    begin_shared(o, "size", &kept);
    Ref y = make(o, x);
    end_shared(o, &kept);
    if (!o->refused && room(o, x)) o->size[x->id] = y;
    return y;
}

Ref size_scalar(Onnx *o, Expr *x, DType t)
{
    if (ex_is_const(x) && x->kind != EX_FLOAT && t == DT_I64) return integer(o, x->i);
    if (ex_is_const(x)) return number(o, t, ex_number(x));
    if (!room(o, x)) return (Ref){"", t};
    char *key = arena_printf(o->a, "scalar %u %s", x->id, dtype_name(t));
    Ref *done = key ? map_get(&o->shapes, key) : NULL;
    if (done) return *done;
    Onnx kept;
    Ref y = size_of(o, x);
    begin_shared(o, "size", &kept);
    y = NODE(o, "Reshape", t, cast(o, y, t), ints(o, 0, NULL));
    end_shared(o, &kept);
    done = arena_new(o->a, Ref);
    if (!key || !done) {
        out_of_memory(o);
        return y;
    }
    *done = y;
    if (!o->refused && !o->broken && !map_put(&o->shapes, key, done)) out_of_memory(o);
    return y;
}

/* ------------------------------------------------------------------ shapes */

Ref shape_of(Onnx *o, int n, Expr *const *dim)
{
    Ref part[MAX_RANK + 1];
    int nparts = 0;
    Buf key = {0};
    for (int i = 0; i < n; i++) {
        if (!room(o, dim[i])) {
            buf_free(&key);
            return none();
        }
        buf_printf(&key, "%u,", dim[i]->id);
    }
    if (key.failed) out_of_memory(o);
    Ref *done = map_get(&o->shapes, key.data ? key.data : "");
    for (int i = 0; i < n && !done;) {
        int64_t run[MAX_RANK + 1];
        int k = 0;
        while (i + k < n && ex_is_int(dim[i + k])) {
            run[k] = dim[i + k]->i;
            k++;
        }
        part[nparts++] = k ? ints(o, k, run) : size_of(o, dim[i]);
        i += k ? k : 1;
    }
    if (!done) {
        Ref r = nparts == 0 ? ints(o, 0, NULL) : part[0];
        if (nparts > 1) {
            Onnx kept;
            begin_shared(o, "shape", &kept);
            attr_int(o, "axis", 0);
            r = node_of(o, "Concat", DT_I64, nparts, part);
            end_shared(o, &kept);
        }
        done = arena_new(o->a, Ref);
        char *text = arena_strdup(o->a, key.data ? key.data : "");
        if (!done || !text) {
            out_of_memory(o);
            buf_free(&key);
            return r;
        }
        *done = r;
        if (!o->refused && !o->broken) map_put(&o->shapes, text, done);
    }
    buf_free(&key);
    return *done;
}

bool may_be_empty(const Onnx *o, const Expr *x)
{
    int64_t lo, hi;
    ex_range(o->p, x, &lo, &hi);
    return lo < 1;
}

/* One size that is neither a constant nor that of x at the same place is -1; the others must then not be 0. */
Ref reshape(Onnx *o, Ref x, int from_rank, Expr *const *from, int rank, Expr *const *dim)
{
    int64_t text[MAX_RANK];
    int open = 0;
    bool empty = false, same = from_rank == rank;
    for (int i = 0; i < rank; i++) {
        bool copied = i < from_rank && from[i] == dim[i];
        same &= copied;
        text[i] = ex_is_int(dim[i]) ? dim[i]->i : copied ? 0 : -1;
        open += text[i] < 0;
    }
    if (same) return x;
    for (int i = 0; i < rank; i++) empty |= (text[i] >= 0 && may_be_empty(o, dim[i]) && (open || ex_is_int(dim[i])));
    if (open <= 1 && !empty) return NODE(o, "Reshape", x.t, x, ints(o, rank, text));
    return to_shape(o, x, rank, dim);
}

Ref to_shape(Onnx *o, Ref x, int rank, Expr *const *dim)
{
    bool empty = false, none = false;
    Ref shape = shape_of(o, rank, dim);
    for (int i = 0; i < rank; i++) {
        empty |= may_be_empty(o, dim[i]);
        none |= ex_equals_int(dim[i], 0);
    }
    if (empty && (none || o->opt.opset >= 14)) attr_int(o, "allowzero", 1);
    else if (empty) o->empty_wrong = true; /* a size of 0 would be the operand's */
    return NODE(o, "Reshape", x.t, x, shape);
}

Ref expand(Onnx *o, Ref x, int from_rank, Expr *const *from, int rank, Expr *const *dim)
{
    Expr *to[MAX_RANK];
    bool same = from_rank == rank;
    for (int i = 0; i < rank; i++) {
        int k = i - (rank - from_rank);
        bool kept = k >= 0 && from[k] == dim[i];
        to[i] = kept ? ex_int(o->p, 1) : dim[i];
        same &= kept;
        if (!kept && k >= 0 && ex_equals_int(dim[i], 0))
            x = slice(o, x, k, INTS(o, 0), INTS(o, 0), 1); /* ONNX Runtime does not expand 1 to 0 */
    }
    bool thin = rank > from_rank; /* more axes, all of 1 */
    for (int i = 0; i < rank; i++) thin &= ex_equals_int(to[i], 1);
    int64_t front[MAX_RANK];
    for (int i = 0; i < rank - from_rank; i++) front[i] = i;
    if (thin) return NODE(o, "Unsqueeze", x.t, x, ints(o, rank - from_rank, front));
    return same ? x : NODE(o, "Expand", x.t, x, shape_of(o, rank, to));
}

/* Of a complex tensor: the pairs of reals that stand for it. */
static OnnxTypeProto type_of_pairs(Onnx *o, DType t, int rank, Expr *const *dim)
{
    Expr *pair[MAX_RANK];
    if (rank >= MAX_RANK) {
        refuse(o, "rank %d is too large for pairs", rank);
        rank = 0;
    }
    for (int i = 0; i < rank; i++) pair[i] = dim[i];
    pair[rank] = ex_int(o->p, 2);
    return type_of_value(o, t == DT_C128 ? DT_F64 : t == DT_C32 ? DT_F16 : DT_F32, rank + 1, pair);
}

OnnxTypeProto type_of_value(Onnx *o, DType t, int rank, Expr *const *dim)
{
    if (dtype_is_complex(t)) return type_of_pairs(o, t, rank, dim);
    OnnxTypeProto p = {.kind = ONNX_TENSOR,
                       .elem = dtype_to_onnx(t),
                       .has_shape = true,
                       .rank = rank,
                       .dim = arena_array(o->a, OnnxDim, rank)};
    if (!p.dim) {
        out_of_memory(o);
        p.rank = 0;
        return p;
    }
    for (int i = 0; i < rank; i++) {
        p.dim[i] = (OnnxDim){.known = ex_is_int(dim[i]), .param = ""};
        if (p.dim[i].known) {
            p.dim[i].value = dim[i]->i;
            continue;
        }
        Buf b = {0};
        ex_print(o->p, dim[i], &b);
        p.dim[i].param = b.data && b.len < 200 ? arena_strdup(o->a, b.data) : "";
        if (!p.dim[i].param) out_of_memory(o);
        buf_free(&b);
    }
    return p;
}
