/* Which nodes vanish into others. Contract in fuse.h.
 *
 * A linear, matmul with a 2-D second operand, or convolution takes an activation that alone uses its result, and the
 * addition of a tensor of the same shape and dtype (a residual) that alone uses that, or a product with one. A linear
 * or matmul also takes casts between them: it computes in float32 and rounds once, at the end. A convolution takes a
 * residual and then an activation, not the reverse. Products of integers take a residual as the integers that it is
 * made of, and end in a quantizer of one scale.
 */
#include "plan/fuse.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"

typedef struct Fuser {
    const Graph *g;
    Fusion *f;
    int *uses;   /* by value id */
    Node **user; /* by value id: the last node that uses it */
} Fuser;

typedef struct Noting {
    Fuser *s;
    Node *n;
} Noting;

static void note_user(void *user, Value **slot)
{
    Noting *t = user;
    t->s->user[(*slot)->id] = t->n;
}

static Node *only_user(const Fuser *s, const Value *v) { return s->uses[v->id] == 1 ? s->user[v->id] : NULL; }

static unsigned char activation_of(const Node *n)
{
    switch (n->op->id) {
    case OP_relu: return ACT_RELU;
    case OP_silu: return ACT_SILU;
    case OP_gelu: return strcmp(n->arg[1].s, "tanh") ? ACT_GELU_ERF : ACT_GELU_TANH;
    default: return ACT_NONE;
    }
}

static bool same_type(const Value *a, const Value *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* The residual of add(v, r) or add(r, v). */
static Value *residual_of(const Node *n, const Value *v)
{
    if (n->op->id != OP_add_Tensor || n->arg[0].kind != ARG_VALUE || n->arg[1].kind != ARG_VALUE) return NULL;
    Value *other = n->arg[0].v == v ? n->arg[1].v : n->arg[0].v;
    return other != v && same_type(other, v) && same_type(n->out[0], v) ? other : NULL;
}

/* The other factor of mul(v, r) or mul(r, v). */
static Value *factor_of(const Node *n, const Value *v)
{
    if (n->op->id != OP_mul_Tensor || n->arg[0].kind != ARG_VALUE || n->arg[1].kind != ARG_VALUE) return NULL;
    Value *other = n->arg[0].v == v ? n->arg[1].v : n->arg[0].v;
    return other != v && same_type(other, v) && same_type(n->out[0], v) ? other : NULL;
}

static FusedNode *entry(Fuser *s, const Node *n) { return &s->f->node[n->out[0]->id]; }

/* The one user of v, unless another product has taken it already: linear(x) + linear(y) is fused once. */
static Node *free_user(Fuser *s, const Value *v)
{
    Node *n = only_user(s, v);
    return n && !(n->nout && entry(s, n)->absorbed) ? n : NULL;
}

static bool half(DType t) { return t == DT_BF16 || t == DT_F16; }

/* A cast between float32 and a half type. */
static bool is_cast(const Node *n)
{
    if (n->op->id != OP_to_copy) return false;
    DType from = n->arg[0].v->dtype, to = n->out[0]->dtype;
    return (from == DT_F32 && half(to)) || (half(from) && to == DT_F32);
}

typedef struct Chain {
    Fuser *s;
    FusedNode *p; /* of the product */
    Value *at;    /* the value so far */
    Node *last;
} Chain;

static Node *absorb(Chain *c, Node *n)
{
    entry(c->s, n)->absorbed = true;
    c->at = n->out[0];
    c->last = n;
    return free_user(c->s, c->at);
}

static void end_chain(const Chain *c, Node *producer)
{
    if (!c->last) return;
    c->p->result = c->at;
    entry(c->s, c->last)->producer = producer;
}

/* v sigmoid(1.702 v), whose three nodes alone use v: the last of them. */
static Node *quick_gelu(const Fuser *s, const Value *v)
{
    Node *last = s->uses[v->id] == 2 ? s->user[v->id] : NULL;
    Value *gate = last ? factor_of(last, v) : NULL;
    Node *sigmoid = gate && gate->def && gate->def->op->id == OP_sigmoid && s->uses[gate->id] == 1 ? gate->def : NULL;
    Node *scaled = sigmoid && s->uses[sigmoid->arg[0].v->id] == 1 ? sigmoid->arg[0].v->def : NULL;
    if (!scaled || scaled->op->id != OP_mul_Tensor || scaled->arg[0].kind != ARG_VALUE || scaled->arg[0].v != v ||
        scaled->arg[1].kind != ARG_EXPR)
        return NULL;
    return scaled->arg[1].e->kind == EX_FLOAT && fabs(scaled->arg[1].e->f - 1.702) < 1e-6 ? last : NULL;
}

static bool one_number(const Value *v)
{
    bool one = true;
    for (int i = 0; i < v->rank; i++) one &= ex_equals_int(v->dim[i], 1);
    return one;
}

/* The rounding to integers at the end of an integer layer, by one scale. */
static bool rounds(const Node *n, const Value *v)
{
    if (n->op->id != OP_quantize_linear || n->arg[0].v != v || n->arg[7].kind != ARG_NONE) return false;
    const Value *scale = n->arg[1].v, *zero = n->arg[2].kind == ARG_VALUE ? n->arg[2].v : NULL;
    DType t = n->out[0]->dtype;
    return (t == DT_I8 || t == DT_U8) && scale->dtype == DT_F32 && one_number(scale) && (!zero || one_number(zero));
}

/* A bound of clamp: NULL is `none`. */
static bool bound_of(const Arg *a, double none, double *x)
{
    *x = none;
    if (a->kind == ARG_NONE) return true;
    if (a->kind != ARG_EXPR || !ex_is_const(a->e)) return false;
    *x = ex_number(a->e);
    return true;
}

/* clamp(v, low, high) between numbers (relu6). */
static bool clamps(const Node *n, const Value *v)
{
    double low, high;
    return n->op->id == OP_clamp && n->arg[0].v == v && bound_of(&n->arg[1], -HUGE_VAL, &low) &&
           bound_of(&n->arg[2], HUGE_VAL, &high) && low <= high;
}

/* The inverse of a quantizer of one scale that v alone is for; NULL: it is none. */
static Node *inverse_for(const Fuser *s, const Value *v)
{
    Node *n = v->def;
    if (!n || n->op->id != OP_dequantize_linear || s->uses[v->id] != 1 || v->dtype != DT_F32) return NULL;
    const Value *scale = n->arg[1].v, *zero = n->arg[2].kind == ARG_VALUE ? n->arg[2].v : NULL;
    const DType t = n->arg[0].v->dtype;
    bool one = scale->dtype == DT_F32 && one_number(scale) && (!zero || one_number(zero));
    return one && (t == DT_I8 || t == DT_U8) ? n : NULL;
}

/* The chain's residual, as the integers that it is made of where the product takes them. */
static void take_residual(Chain *c, const Node *product, Value *residual)
{
    Node *inverse = product->op->flags & OPF_INTEGERS ? inverse_for(c->s, residual) : NULL;
    c->p->residual = residual;
    if (!inverse) return;
    c->p->inverse = inverse;
    c->p->residual = inverse->arg[0].v;
    entry(c->s, inverse)->absorbed = true;
}

static void fuse_product(Fuser *s, Node *n, bool conv)
{
    DType t = n->out[0]->dtype;
    if (t != DT_F32 && t != DT_BF16) return;
    Chain c = {s, entry(s, n), n->out[0], NULL};
    Node *next = free_user(s, c.at), *gelu;
    while (next && !conv && is_cast(next) && !half(next->out[0]->dtype)) next = absorb(&c, next);
    if (next && activation_of(next)) {
        c.p->act = activation_of(next);
        next = absorb(&c, next);
    } else if (!conv && (gelu = quick_gelu(s, c.at))) {
        Node *sigmoid = factor_of(gelu, c.at)->def;
        c.p->act = ACT_QUICK_GELU;
        entry(s, sigmoid->arg[0].v->def)->absorbed = entry(s, sigmoid)->absorbed = true;
        next = absorb(&c, gelu);
    }
    while (next && !conv && is_cast(next) && next->out[0]->dtype != DT_F16) next = absorb(&c, next);
    bool sums = !conv || (!c.p->act && (n->op->id != OP_convolution || (n->arg[6].e->kind == EX_BOOL &&
                                                                        !n->arg[6].e->i))); /* transposed */
    Value *residual = next && sums ? residual_of(next, c.at) : NULL,
          *factor = next && !conv ? factor_of(next, c.at) : NULL;
    if (residual || factor) {
        take_residual(&c, n, residual ? residual : factor);
        c.p->times = !residual;
        next = absorb(&c, next);
        if (conv && next && activation_of(next)) {
            c.p->act = activation_of(next);
            c.p->act_last = true;
            next = absorb(&c, next);
        }
        while (next && !conv && is_cast(next) && next->out[0]->dtype != DT_F16) next = absorb(&c, next);
    }
    if (n->op->flags & OPF_INTEGERS && next && c.at->dtype == DT_F32) {
        Node *clamp = clamps(next, c.at) ? next : NULL;
        if (clamp) next = free_user(s, clamp->out[0]);
        if (next && rounds(next, clamp ? clamp->out[0] : c.at)) {
            c.p->clamps = clamp;
            if (clamp) absorb(&c, clamp);
            c.p->rounds = next;
            absorb(&c, next);
        }
    }
    end_chain(&c, n);
}

/* Reads operands of any float where float32 is declared, and rounds its result to any. */
static bool any_float(const Node *n) { return n->op->flags & OPF_ANY_FLOAT && n->out[0]->dtype == DT_F32; }

/* The rounding of a result that is used by nothing else. */
static void fuse_rounding(Fuser *s, Node *n)
{
    Chain c = {s, entry(s, n), n->out[0], NULL};
    Node *next = free_user(s, c.at);
    if (c.p->absorbed || !next || !is_cast(next) || !half(next->out[0]->dtype)) return;
    absorb(&c, next);
    end_chain(&c, n);
}

/* All dims but the last, each at its least; 0 when that is too much or not known. */
static int64_t least_rows(const Graph *g, const Value *v)
{
    int64_t rows = 1, lo, hi;
    for (int i = 0; i < v->rank - 1; i++) {
        ex_range(g->ex, v->dim[i], &lo, &hi);
        if (lo <= 0 || !mul_i64(rows, lo, &rows)) return 0;
    }
    return rows;
}

/* Rows and columns of windows, for a product alone. */
static bool is_windows(const Fuser *s, const Node *n)
{
    if (n->op->id != OP_reshape || n->out[0]->rank != 3 || n->arg[0].v->rank < 4) return false;
    DType t = n->out[0]->dtype;
    const Node *user = only_user(s, n->out[0]);
    return (t == DT_F32 || t == DT_BF16) && user && user->op->id == OP_matmul && user->arg[1].v == n->out[0] &&
           user->out[0]->rank == 3 && user->arg[0].v->rank == 3;
}

static bool is_linear(const Node *n)
{
    return n->op->id == OP_linear || n->op->id == OP_linear_integer || n->op->id == OP_linear_blocks;
}

static void fuse_one(Fuser *s, Node *n)
{
    bool conv = n->op->id == OP_convolution || n->op->id == OP_convolution_integer;
    if (n->op->id == OP_linear || n->op->id == OP_matmul) entry(s, n)->least_rows = least_rows(s->g, n->out[0]);
    if (is_windows(s, n)) entry(s, n)->windows = true;
    bool product = n->op->id == OP_matmul && n->arg[1].v->rank == 2;
    if (conv || product || is_linear(n)) fuse_product(s, n, conv);
    else if (n->nout == 1 && any_float(n)) fuse_rounding(s, n);
}

/* What is false is not written: most pages of the entries take no memory. */
static void not_transparent(void *user, Value **slot)
{
    FusedNode *at = &((const Fuser *)user)->f->node[(*slot)->id];
    if (at->transparent) at->transparent = false;
}

static void not_weight(void *user, Value **slot)
{
    FusedNode *at = &((const Fuser *)user)->f->node[(*slot)->id];
    if (at->rounds_weight) at->rounds_weight = false;
}

static void refuse_result(Fuser *s, Value *v)
{
    not_transparent(s, &v);
    not_weight(s, &v);
}

/* Casts that are not steps: to float32, which only ops of any float use; of weights to bf16, which only linears use, as
 * their weight. */
static void find_casts(Fuser *s)
{
    for (Node *n = s->g->first; n; n = n->next) {
        if (!is_cast(n) || entry(s, n)->absorbed) continue;
        const Value *from = n->arg[0].v;
        DType to = n->out[0]->dtype;
        entry(s, n)->transparent = to == DT_F32 && from->def;
        entry(s, n)->rounds_weight = to == DT_BF16 && from->kind == V_WEIGHT && !graph_writes(s->g, from);
    }
    for (Node *n = s->g->first; n; n = n->next) {
        if (n->nout != 1 || !any_float(n)) node_each_operand(n, not_transparent, s);
        if (n->op->id != OP_linear) node_each_operand(n, not_weight, s);
        else not_weight(s, &n->arg[0].v);
        if (n->op->id == OP_linear && n->arg[2].kind == ARG_VALUE) not_weight(s, &n->arg[2].v);
    }
    for (int i = 0; i < s->g->noutput; i++) refuse_result(s, s->g->output[i].value);
    for (int i = 0; i < graph_mutations(s->g); i++) refuse_result(s, graph_mutation(s->g, i)->value);
}

bool fuse_graph(const Graph *g, Fusion *f, Err *err)
{
    size_t n = (size_t)g->next_id + 1;
    *f = (Fusion){.node = mem_zeroed(n, sizeof *f->node), .n = g->next_id};
    Fuser s = {.g = g, .f = f, .uses = mem_zeroed(n, sizeof *s.uses), .user = mem_zeroed(n, sizeof *s.user)};
    bool ok = f->node && s.uses && s.user;
    if (ok) {
        graph_count_uses(g, s.uses);
        for (Node *node = g->first; node; node = node->next) {
            Noting t = {&s, node};
            node_each_operand(node, note_user, &t);
        }
        for (Node *node = g->first; node; node = node->next) fuse_one(&s, node);
        find_casts(&s);
    } else {
        fusion_free(f);
        oom(err);
    }
    mem_free(s.uses);
    mem_free(s.user);
    return ok;
}

void fusion_free(Fusion *f)
{
    mem_free(f->node);
    *f = (Fusion){0};
}
