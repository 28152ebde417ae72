/* Skipping padding: regions and their borders. Contract in skip_padding.h. */
#include "padding/skip_padding.h"
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "facts/views.h"
#include "padding/skip_prove.h"

enum { MAX_MASKS = 16, MAX_STOPS = 256, MAX_ROUNDS = 64 };

typedef struct Attending {
    Node *node;
    int mask; /* of the distinct ones; -1: it hides in another way */
} Attending;

typedef struct Skip {
    Tokens t;
    Rewrite rw;
    Graph *g;
    const Prover *prover;
    SkipLog *log;
    Err *err;
    Attending *at;
    int nat;
    KeyMask mask[MAX_MASKS];
    int nmasks;
    unsigned char *role; /* by value id: ROLE_* */
    unsigned char *witness;
    int *stream; /* by value id: union-find of what hangs together */
    Node **node; /* the dense graph, in order */
    int nnodes;
    /* the region being tried */
    int which, root;
    const Value *source; /* what the mask is made of */
    SkipMask *entry;
    SkipStop stop[MAX_STOPS];
    SkipBorder border[MAX_STOPS];
    int nstops, nborders;
    char refused[300];
} Skip;
enum {
    ROLE_INSIDE = 1,
    ROLE_HEAVY = 2,
    ROLE_BORDER = 4
}; /* its node is rebuilt; it depends on an attention of the region; it is read outside */

/* ------------------------------------------------------------------ attentions and their masks */

static bool find_masks(Skip *s, char *why, size_t room)
{
    int n = 0;
    for (const Node *x = s->g->first; x; x = x->next) n += x->op->id == OP_scaled_dot_product_attention;
    s->at = mem_zeroed((size_t)n + 1, sizeof *s->at);
    if (!s->at) return oom(s->err);
    for (Node *x = s->g->first; x; x = x->next) {
        if (x->op->id != OP_scaled_dot_product_attention) continue;
        KeyMask m;
        Attending *at = &s->at[s->nat++];
        *at = (Attending){x, -1};
        if (x->arg[3].kind != ARG_VALUE) continue;
        if (!key_mask_of(&s->rw, x, &m)) {
            if (!why[0]) snprintf(why, room, "attention '%.60s': %.150s", x->name, m.why);
            continue;
        }
        for (int i = 0; i < s->nmasks && at->mask < 0; i++)
            if (key_mask_same(&m, &s->mask[i])) at->mask = i;
        if (at->mask < 0 && s->nmasks < MAX_MASKS) {
            at->mask = s->nmasks;
            s->mask[s->nmasks++] = m;
        }
    }
    if (!n && !why[0]) snprintf(why, room, "there is no attention");
    return true;
}

static Attending *attending(Skip *s, const Node *n)
{
    for (int i = 0; i < s->nat; i++)
        if (s->at[i].node == n) return &s->at[i];
    return NULL;
}

/* ------------------------------------------------------------------ what hangs together */

static int root_of(Skip *s, int id)
{
    while (s->stream[id] != id) id = s->stream[id] = s->stream[s->stream[id]];
    return id;
}

static bool tagged(const Skip *s, const Value *v) { return v->id < s->t.nvalues && s->t.tag[v->id].b >= 0; }

typedef struct Joining {
    Skip *s;
    int id;
} Joining;

static void join(void *user, Value **slot)
{
    Joining *j = user;
    if (tagged(j->s, *slot) && !j->s->t.constant[(*slot)->id] && !j->s->t.constant[j->id])
        j->s->stream[root_of(j->s, (*slot)->id)] = root_of(j->s, j->id);
}

typedef struct Depends {
    const unsigned char *constant;
    bool all;
} Depends;

static void constant_operand(void *user, Value **slot)
{
    Depends *d = user;
    d->all &= d->constant[(*slot)->id] != 0;
}

static void find_constants(Skip *s)
{
    for (int i = 0; i < s->g->nweight; i++) s->t.constant[s->g->weight[i]->id] = !graph_writes(s->g, s->g->weight[i]);
    for (int i = 0; i < s->nnodes; i++) {
        Depends d = {s->t.constant, !(s->node[i]->op->flags & OPF_RANDOM)};
        node_each_operand(s->node[i], constant_operand, &d);
        for (int k = 0; k < s->node[i]->nout; k++) s->t.constant[s->node[i]->out[k]->id] = d.all;
    }
}

/* Batch and token axes of all values that attentions with this mask reach through ops that treat tokens one by one. */
static void find_tags(Skip *s)
{
    Tokens *t = &s->t;
    for (int i = 0; i < t->nvalues; i++) {
        t->tag[i] = (Tag){-1, -1};
        s->stream[i] = i;
    }
    for (int i = 0; i < s->nat; i++) {
        const Node *n = s->at[i].node;
        if (s->at[i].mask != s->which || n->arg[0].v->dim[2] != t->S) continue;
        for (int k = 0; k < 3; k++)
            if (!t->constant[n->arg[k].v->id]) t->tag[n->arg[k].v->id] = (Tag){0, 2};
        t->tag[n->out[0]->id] = (Tag){0, 2};
    }
    bool changed = true;
    for (int round = 0; changed && round < MAX_ROUNDS; round++) {
        changed = false;
        for (int i = s->nnodes - 1; i >= 0; i--) changed |= tag_backward(t, s->node[i]);
        for (int i = 0; i < s->nnodes; i++) changed |= tag_forward(t, s->node[i]);
    }
    for (int i = 0; i < s->nnodes; i++) {
        Node *n = s->node[i];
        const Attending *at = attending(s, n);
        Joining j = {s, n->nout ? n->out[0]->id : 0};
        if (at && at->mask == s->which && tagged(s, n->out[0])) join(&j, &n->arg[0].v);
        else if (!at && token_node(t, n)) node_each_operand(n, join, &j);
    }
}

/* Of the region's tokens; what follows from sizes and weights alone (positions, types of tokens) may be of any. */
static bool in_stream(Skip *s, const Value *v)
{
    return tagged(s, v) && (s->t.constant[v->id] || root_of(s, v->id) == s->root);
}

/* Queries, keys and values are the same tokens. */
static bool is_self(Skip *s, const Node *n)
{
    for (int k = 0; k < 3; k++)
        if (!tagged(s, n->arg[k].v) || s->t.tag[n->arg[k].v->id].b != 0 || s->t.tag[n->arg[k].v->id].s != 2)
            return false;
    int root = root_of(s, n->arg[0].v->id);
    return root_of(s, n->arg[1].v->id) == root && root_of(s, n->arg[2].v->id) == root;
}

/* Bounds of positions that mean the same among the real tokens: none, or at most the query's own position. */
static bool bounds_stay(const KeyMask *m) { return !m->lower && (!m->upper || ex_equals_int(m->upper, 0)); }

/* Is this an attention that runs on real tokens? *why when it is almost one. */
static bool inside_attention(Skip *s, const Node *n, KeyMask *m, const char **why)
{
    const Attending *at = attending(s, n);
    if (!at || at->mask != s->which || !is_self(s, n) || !in_stream(s, n->arg[0].v) || !key_mask_of(&s->rw, n, m))
        return false;
    if (!bounds_stay(m)) {
        *why = "it bounds positions, and padding between real tokens would count";
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------ the region */

static bool stop_here(Skip *s, const Node *n, const char *why)
{
    snprintf(s->refused, sizeof s->refused, "'%.80s' (%s) %.150s", n->name, n->op->name, why);
    return false;
}

typedef struct Reading {
    Skip *s;
    unsigned char all;
} Reading;

static void reads(void *user, Value **slot)
{
    Reading *r = user;
    if ((*slot)->id < r->s->t.nvalues) r->all |= r->s->role[(*slot)->id];
}

/* Which nodes are rebuilt, and which of them depend on an attention that is. False when no attention is. */
static bool find_region(Skip *s)
{
    bool any = false;
    memset(s->role, 0, (size_t)s->t.nvalues);
    for (int i = 0; i < s->nnodes; i++) {
        Node *n = s->node[i];
        KeyMask m;
        const char *why = NULL;
        bool attention = inside_attention(s, n, &m, &why);
        any |= attention;
        if (why && !any) stop_here(s, n, why);
        if (!attention && !(n->nout == 1 && in_stream(s, n->out[0]) && token_node(&s->t, n))) continue;
        Reading r = {s, 0};
        node_each_operand(n, reads, &r);
        s->role[n->out[0]->id] = (unsigned char)(ROLE_INSIDE | (r.all & ROLE_HEAVY) | (attention ? ROLE_HEAVY : 0));
    }
    return any;
}

/* The witness (key_mask_witnesses) that v is, or that it is made of: 1, 2, 0. */
static int witness_of(Skip *s, const Value *v)
{
    enum { DEEPEST = 24 };
    bool other;
    int sign = 0;
    for (int depth = 0; depth < DEEPEST && v && v->id < s->t.nvalues; depth++) {
        if (s->witness[v->id]) return s->witness[v->id] ^ sign;
        if (!tagged(s, v)) return 0;
        v = key_mask_below(&s->rw, v, &other);
        if (other) sign ^= 3;
    }
    return 0;
}

/* The operand that n, a where, shows at real tokens, while padding has the number *c; 0: not so. */
static int shown_at_tokens(Skip *s, const Node *n, double *c)
{
    const Arg *a = n ? n->arg : NULL;
    if (!n || n->op->id != OP_where_self || a[0].kind != ARG_VALUE) return 0;
    int witness = tagged(s, a[0].v) ? witness_of(s, a[0].v) : 0, shown = witness == 1 ? 1 : 2;
    return witness && constant_of(s->rw.g, &a[3 - shown], c) ? shown : 0;
}

/* Is v, whose axes are known, 0 wherever its token is padding? */
static bool zero_at_padding(Skip *s, const Value *v, int depth)
{
    if (v->id >= s->t.nvalues || depth > 24) return false;
    if (witness_of(s, v) == 1) return true;
    if (!tagged(s, v) || !v->def || !token_node(&s->t, v->def)) return false;
    const Arg *a = v->def->arg;
    double c;
    if (v->def->op->flags & OPF_KEEPS_ZERO) return zero_at_padding(s, a[0].v, depth + 1);
    for (int i = 0; v->def->op->id == OP_mul_Tensor && i < 2; i++)
        if (a[i].kind == ARG_VALUE && tagged(s, a[i].v) && zero_at_padding(s, a[i].v, depth + 1)) return true;
    return shown_at_tokens(s, v->def, &c) && c == 0;
}

/* May n read v, dense with zeros at padding? *why: how it gets by. */
static bool may_read(Skip *s, const Node *n, const Value *v, const char **why)
{
    Tag in = s->t.tag[v->id];
    const Attending *at = attending(s, n);
    if (at && at->mask == s->which && n->arg[0].v != v) {
        *why = "an attention of other queries, which hides padding";
        return true;
    }
    if (zero_at_padding(s, v, 0)) {
        *why = "what it reads is 0 at padding";
        return true;
    }
    double c;
    int shown = shown_at_tokens(s, n, &c);
    if (shown && n->arg[shown].kind == ARG_VALUE && n->arg[shown].v == v && n->arg[3 - shown].v != v) {
        *why = "what it reads is hidden at padding";
        return true;
    }
    *why = "one token of a sample";
    if (in.b == in.s || !n->op->schema->nparams || n->arg[0].kind != ARG_VALUE || n->arg[0].v != v) return false;
    Expr *one = ex_int(s->g->ex, 1);
    const Arg *dim = n->op->schema->nparams > 1 ? &n->arg[1] : NULL;
    bool along = dim && dim->kind == ARG_EXPR && ex_is_int(dim->e) &&
                 (dim->e->i == in.s || dim->e->i + v->rank == in.s);
    if (n->op->id == OP_select_int) return along;
    if (n->op->id == OP_slice_Tensor) return along && n->out[0]->dim[(int)in.s] == one;
    return n->op->id == OP_index_Tensor && in.b == 0 && in.s == 1 && dim->n == 2 && dim->vs[0] && dim->vs[1] &&
           dim->vs[1]->rank == 1 && dim->vs[1]->dim[0] == s->t.B;
}

static bool add_stop(Skip *s, Value *v, const char *node, const char *op, const char *why)
{
    int i = 0;
    while (i < s->nborders && s->border[i].dense != v) i++;
    if (s->nstops == MAX_STOPS || (i == s->nborders && s->nborders == MAX_STOPS)) {
        snprintf(s->refused, sizeof s->refused, "more than %d places read what it gives", MAX_STOPS);
        return false;
    }
    s->stop[s->nstops++] = (SkipStop){node, op, v->name, why};
    if (i == s->nborders) s->border[s->nborders++] = (SkipBorder){.dense = v, .tag = s->t.tag[v->id]};
    s->role[v->id] |= ROLE_BORDER;
    return true;
}

typedef struct Outside {
    Skip *s;
    Node *n;
    bool ok;
} Outside;

static void read_outside(void *user, Value **slot)
{
    Outside *o = user;
    Skip *s = o->s;
    Value *v = *slot;
    const char *why = NULL, *bounds = NULL;
    KeyMask m;
    if (!o->ok || v->id >= s->t.nvalues || !(s->role[v->id] & ROLE_HEAVY))
        return; /* what comes before attention is as cheap dense */
    if (may_read(s, o->n, v, &why)) o->ok = add_stop(s, v, o->n->name, o->n->op->name, why);
    else {
        inside_attention(s, o->n, &m, &bounds);
        o->ok = stop_here(s, o->n, bounds ? bounds : "reads padded positions");
    }
}

static void leave(void *user, Value **slot)
{
    Outside *o = user;
    Skip *s = o->s;
    Value *v = *slot;
    const char *why;
    double c;
    if (v->id < s->t.nvalues && s->role[v->id] & ROLE_HEAVY && shown_at_tokens(s, v->def, &c) &&
        !may_read(s, o->n, v, &why))
        s->role[v->id] = 0;
}

/* What puts a number at padding for a reader outside, as before a maximum over the tokens, is dense like that one. */
static void leave_hiding(Skip *s)
{
    for (int i = 0; i < s->nnodes; i++) {
        Outside o = {s, s->node[i], true};
        if (o.n->nout != 1 || !(s->role[o.n->out[0]->id] & ROLE_INSIDE)) node_each_operand(o.n, leave, &o);
    }
}

/* Who reads the region's values from outside; false when somebody would see padding. */
static bool find_borders(Skip *s)
{
    s->nstops = s->nborders = 0;
    for (int i = 0; i < s->nnodes; i++) {
        Node *n = s->node[i];
        if (n->nout == 1 && (s->role[n->out[0]->id] & ROLE_INSIDE)) continue;
        Outside o = {s, n, true};
        node_each_operand(n, read_outside, &o);
        TRY(o.ok);
    }
    for (int i = 0; i < graph_mutations(s->g); i++) {
        const Value *v = graph_mutation(s->g, i)->value;
        if (v->id < s->t.nvalues && (s->role[v->id] & ROLE_HEAVY)) {
            snprintf(s->refused, sizeof s->refused, "a buffer keeps padded positions of '%.80s'", v->name);
            return false;
        }
    }
    for (int i = 0; i < expr_symbol_count(s->g->ex); i++) {
        const Symbol *y = expr_symbol(s->g->ex, i);
        if (symbol_out_of_data(y) && y->value && y->value->id < s->t.nvalues &&
            (s->role[y->value->id] & ROLE_HEAVY)) {
            snprintf(s->refused, sizeof s->refused, "the size '%.40s' is read from '%.80s'", y->name, y->value->name);
            return false;
        }
    }
    for (int i = 0; i < s->g->noutput; i++) {
        Value *v = s->g->output[i].value;
        if (v->id < s->t.nvalues && (s->role[v->id] & ROLE_INSIDE))
            TRY(add_stop(s, v, s->g->output[i].name, NULL, "an output"));
    }
    return true;
}

/* ------------------------------------------------------------------ building */

static bool build_attention(Skip *s, const Node *n, const KeyMask *m)
{
    Tokens *t = &s->t;
    Value *x[3], *bias;
    for (int k = 0; k < 3; k++) TRY(x[k] = token_packed(t, n->arg[k].v));
    TRY(key_mask_bias(s->g, m, t->B, t->S, &bias, s->err));
    if (bias) {
        Expr *all = ex_mul(s->g->ex, t->B, t->S);
        Node *flat = graph_add(s->g, OP_reshape, 2, (Arg[]){arg_value(bias), arg_exprs(s->g, 1, &all)}, "key_bias",
                               s->err);
        TRY(flat);
        Node *real = graph_add(s->g, OP_index_select, 3,
                               (Arg[]){arg_value(flat->out[0]), arg_int(s->g, 0), arg_value(t->index)}, "key_bias",
                               s->err);
        TRY(real);
        bias = real->out[0];
    }
    Arg args[] = {arg_value(x[0]),
                  arg_value(x[1]),
                  arg_value(x[2]),
                  arg_value(t->offsets),
                  arg_value(t->offsets),
                  arg_value(bias),
                  n->arg[6],
                  n->arg[8],
                  arg_none(),
                  m->upper ? arg_expr(m->upper) : arg_none()};
    Node *y = graph_add(s->g, OP_sdpa_varlen, 10, args, n->name, s->err);
    TRY(y);
    t->packed[n->out[0]->id] = y->out[0];
    return true;
}

static bool build_region(Skip *s)
{
    TRY(tokens_start(&s->t, &s->mask[s->which]));
    s->entry->attentions = s->entry->nodes = 0;
    for (int i = 0; i < s->nnodes; i++) {
        const Node *n = s->node[i];
        KeyMask m;
        const char *why = NULL;
        if (n->nout != 1 || !(s->role[n->out[0]->id] & ROLE_INSIDE)) continue;
        bool attention = n->op->id == OP_scaled_dot_product_attention;
        TRY(attention ? inside_attention(s, n, &m, &why) && build_attention(s, n, &m) : token_build(&s->t, n));
        s->entry->attentions += attention;
        s->entry->nodes++;
    }
    for (int i = 0; i < s->nborders; i++) TRY(s->border[i].padded = token_padded(&s->t, s->border[i].dense));
    return true;
}

/* ------------------------------------------------------------------ committing */

static void swap(void *user, Value **slot)
{
    Skip *s = user;
    for (int i = 0; i < s->nborders; i++)
        if (*slot == s->border[i].dense && (s->role[(*slot)->id] & ROLE_HEAVY)) *slot = s->border[i].padded;
}

static bool prove(Skip *s)
{
    SkipClaim c = {s->g, s->t.B, s->t.S, s->source, s->witness[s->source->id], s->t.real, s->nborders, s->border};
    return skip_prove(s->prover, &c, &s->entry->proof, s->err);
}

static bool commit(Skip *s)
{
    for (int i = 0; i < s->nnodes; i++) {
        Node *n = s->node[i];
        if (n->nout == 1 && (s->role[n->out[0]->id] & ROLE_INSIDE)) continue;
        node_each_operand(n, swap, s);
    }
    for (int i = 0; i < s->g->noutput; i++)
        for (int k = 0; k < s->nborders; k++)
            if (s->g->output[i].value == s->border[k].dense) s->g->output[i].value = s->border[k].padded;
    for (int k = 0; k < s->nborders; k++)
        TRY(graph_rename(s->g, s->border[k].padded, s->border[k].dense->name, s->err));
    TRY(graph_sort(s->g, s->err));
    graph_dce(s->g);
    return true;
}

/* What was built for a region that is none goes again. */
static void undo(Skip *s, Node *last, int symbols)
{
    while (s->g->last != last) graph_remove(s->g, s->g->last);
    for (int i = symbols; i < expr_symbol_count(s->g->ex); i++) expr_symbol(s->g->ex, i)->source = SYM_GONE;
}

/* ------------------------------------------------------------------ what was done before */

static SkipMask *add_entry(Skip *s);

static int count_packed(const Skip *s, const Expr *tokens)
{
    int n = 0;
    for (const Node *x = s->g->first; x; x = x->next)
        n += x->nout > 0 && x->out[0]->rank > 0 && x->out[0]->dim[0] == tokens;
    return n;
}

/* An entry for each mask whose padding the graph, that of a packed file, leaves out already. */
static bool find_packed(Skip *s)
{
    KeyMask seen[MAX_MASKS];
    for (const Node *x = s->g->first; x; x = x->next) {
        KeyMask m;
        if (x->op->id != OP_sdpa_varlen || !key_mask_of_packed(&s->rw, x, &m)) continue;
        int at = 0;
        while (at < s->log->nmasks && !key_mask_same(&m, &seen[at])) at++;
        if (at == MAX_MASKS) continue;
        if (at == s->log->nmasks) {
            unsigned char *witness = mem_zeroed((size_t)s->g->next_id + 1, 1);
            SkipMask *entry = witness ? add_entry(s) : NULL;
            if (entry) {
                seen[at] = m;
                *entry = (SkipMask){.applied = true, .before = true, .nodes = count_packed(s, x->out[0]->dim[0])};
                entry->mask = arena_strdup(s->log->arena, value_label(key_mask_witnesses(&s->rw, &m, witness)));
            }
            mem_free(witness);
            if (!entry) return oom(s->err);
        }
        s->log->mask[at].attentions++;
    }
    return true;
}

/* ------------------------------------------------------------------ driver */

static bool list_nodes(Skip *s)
{
    size_t n = (size_t)s->g->next_id + 1;
    Tokens *t = &s->t;
    mem_free(s->node);
    mem_free(t->tag);
    mem_free(t->packed);
    mem_free(t->constant);
    mem_free(s->role);
    mem_free(s->witness);
    mem_free(s->stream);
    *t = (Tokens){.g = s->g,
                  .rw = &s->rw,
                  .err = s->err,
                  .nvalues = s->g->next_id,
                  .tag = mem_zeroed(n, sizeof *t->tag),
                  .packed = mem_zeroed(n, sizeof *t->packed),
                  .constant = mem_zeroed(n, 1)};
    s->role = mem_zeroed(n, 1);
    s->witness = mem_zeroed(n, 1);
    s->stream = mem_zeroed(n, sizeof *s->stream);
    s->node = mem_zeroed((size_t)s->g->nnodes + 1, sizeof *s->node);
    s->nnodes = 0;
    if (!t->tag || !t->packed || !t->constant || !s->role || !s->witness || !s->stream || !s->node) return oom(s->err);
    for (Node *x = s->g->first; x; x = x->next) s->node[s->nnodes++] = x;
    find_constants(s);
    return true;
}

static SkipMask *add_entry(Skip *s)
{
    SkipLog *log = s->log;
    SkipMask *grown = arena_array(log->arena, SkipMask, log->nmasks + 1);
    if (!grown) {
        oom(s->err);
        return NULL;
    }
    if (log->nmasks) memcpy(grown, log->mask, (size_t)log->nmasks * sizeof *grown);
    log->mask = grown;
    return &log->mask[log->nmasks++];
}

static bool keep_log(Skip *s)
{
    SkipMask *m = s->entry;
    Arena *a = s->log->arena;
    m->applied = true;
    m->nstops = s->nstops;
    m->stop = arena_array(a, SkipStop, s->nstops + 1);
    if (!m->stop) return oom(s->err);
    for (int i = 0; i < s->nstops; i++) {
        const SkipStop *x = &s->stop[i];
        m->stop[i] = (SkipStop){arena_strdup(a, x->node), x->op, arena_strdup(a, x->value), x->why};
    }
    return true;
}

/* One mask: its first stream of tokens that attends to itself. */
static bool try_mask(Skip *s)
{
    const Node *self = NULL;
    const KeyMask *m = &s->mask[s->which];
    Tokens *t = &s->t;
    TRY(list_nodes(s));
    TRY(s->entry = add_entry(s));
    s->source = key_mask_witnesses(&s->rw, m, s->witness);
    s->entry->mask = arena_strdup(s->log->arena, value_label(s->source));
    s->refused[0] = 0;
    for (int i = 0; i < s->nat && !self; i++) {
        const Node *n = s->at[i].node;
        if (s->at[i].mask != s->which || n->arg[0].v->dim[2] != n->arg[1].v->dim[2]) continue;
        t->B = n->arg[0].v->dim[0];
        t->S = n->arg[0].v->dim[2];
        find_tags(s);
        if (is_self(s, n)) self = n;
    }
    Node *last = s->g->last;
    int symbols = expr_symbol_count(s->g->ex);
    if (!self) snprintf(s->refused, sizeof s->refused, "no attention of these tokens to themselves has it");
    else {
        Err e = {0};
        s->root = root_of(s, self->arg[0].v->id);
        bool region = find_region(s);
        if (region) leave_hiding(s);
        if (region && find_borders(s) && s->nborders) {
            t->err = &e;
            int nrequire = s->g->nrequire;
            Err *err = s->err;
            s->err = &e;
            bool built = build_region(s);
            s->err = err;
            if (built && s->g->nrequire > nrequire) {
                snprintf(s->refused, sizeof s->refused,
                         "sizes would have to be equal that are not known to be (%.150s)",
                         s->g->require[nrequire].where);
                built = false;
            } else if (!built) snprintf(s->refused, sizeof s->refused, "%.250s", e.msg);
            s->g->nrequire = nrequire;
            if (built && (!s->prover || prove(s))) return commit(s) && keep_log(s);
            undo(s, last, symbols);
            if (e.code == E_LIMIT) return *s->err = e, false;
            TRY(s->err->code != E_MISMATCH);
        } else if (!s->refused[0]) snprintf(s->refused, sizeof s->refused, "nothing reads what it gives");
    }
    s->entry->why = arena_strdup(s->log->arena, s->refused);
    return true;
}

bool skip_padding(Graph *g, const Prover *prover, SkipLog *log, Err *err)
{
    RewriteOptions options = {0};
    Err mine = {0};
    Skip *s = mem_zeroed(1, sizeof *s);
    char why[300] = "";
    *log = (SkipLog){.arena = arena_create(0)};
    if (!s || !log->arena) {
        mem_free(s);
        return oom(err);
    }
    s->g = g;
    s->prover = prover;
    s->log = log;
    s->err = &mine;
    s->rw = (Rewrite){.g = g, .ex = g->ex, .o = &options, .err = &mine};
    bool ok = find_packed(s) && find_masks(s, why, sizeof why);
    for (s->which = 0; ok && s->which < s->nmasks; s->which++) ok = try_mask(s);
    if (ok && !log->nmasks) log->nothing = arena_strdup(log->arena, why[0] ? why : "no attention has a mask");
    if (ok) ok = graph_check(g, &mine) || within(&mine, "after skipping padding");
    if (!ok) *err = mine;
    mem_free(s->at);
    mem_free(s->node);
    mem_free(s->t.tag);
    mem_free(s->t.packed);
    mem_free(s->t.constant);
    mem_free(s->role);
    mem_free(s->witness);
    mem_free(s->stream);
    mem_free(s);
    return ok;
}

void skip_log_free(SkipLog *log)
{
    arena_destroy(log->arena);
    *log = (SkipLog){0};
}
