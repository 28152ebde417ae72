/* Autocast's rules. Contract in autocast.h. */
#include "lower/autocast.h"

/* As rows of the op table declare it. */
enum { NARROW = 1, FULL = 2, FULL_ON_CUDA = 4 /* only the declared dtype can bring these in */, WIDEST = 8 };

static const struct {
    int class;
    OpId op;
} rows[OP_COUNT] = {
#define AUTOCAST(set) .class = set,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

static bool low(DType t) { return t == DT_BF16 || t == DT_F16; }
static bool eligible(DType t) { return low(t) || t == DT_F32; }

static Value *cast(Graph *g, Value *v, DType t, Err *err)
{
    if (v->dtype == t || !eligible(v->dtype)) return v;
    Node *n = graph_add(g, OP_to_copy, 2, (Arg[]){arg_value(v), arg_dtype(t)}, v->name, err);
    return n ? n->out[0] : NULL;
}

static bool cast_all(Graph *g, const Op *op, Arg *arg, DType t, Err *err)
{
    for (int i = 0; i < op->schema->nparams; i++) {
        if (arg[i].kind == ARG_VALUE) TRY(arg[i].v = cast(g, arg[i].v, t, err));
        if (arg[i].kind != ARG_VALUES) continue;
        Arg list = arg_values(g, arg[i].n, arg[i].vs);
        if (!list.vs) return oom(err);
        for (int k = 0; k < list.n; k++)
            if (list.vs[k]) TRY(list.vs[k] = cast(g, list.vs[k], t, err));
        arg[i] = list;
    }
    return true;
}

typedef struct Seen {
    bool f32, low, other;
} Seen;

static void look(Seen *s, const Value *v)
{
    if (!v) return;
    s->f32 |= v->dtype == DT_F32;
    s->low |= low(v->dtype);
    s->other |= v->dtype == DT_F64;
}

bool autocast_args(Graph *g, const Op *op, Arg *arg, DType declared, DType compute, Err *err)
{
    Seen s = {0};
    int class = rows[op->id].class;
    for (int i = 0; i < op->schema->nparams; i++) {
        if (arg[i].kind == ARG_VALUE) look(&s, arg[i].v);
        for (int k = 0; arg[i].kind == ARG_VALUES && k < arg[i].n; k++) look(&s, arg[i].vs[k]);
    }
    if (class & NARROW) {
        DType t = low(declared) ? declared : compute != DT_NONE && declared == DT_F32 && !s.other ? compute : DT_NONE;
        return t == DT_NONE || !(s.f32 || (s.low && low(declared))) || cast_all(g, op, arg, t, err);
    }
    if (!s.low) return true;
    bool full = declared == DT_F32 && (class & FULL || (compute == DT_NONE && class & FULL_ON_CUDA));
    bool mixed = s.f32 && class & WIDEST;
    return (!full && !mixed) || cast_all(g, op, arg, DT_F32, err);
}
