/* Following a value through views and casts. Contract in views.h. */
#include "facts/views.h"

Value *value_below(const Value *v, PassFn *passes, const void *user)
{
    while (v && v->kind == V_NODE && v->def /* none: a writer's own value */ && v->def->op->schema->nparams &&
           v->def->arg[0].kind == ARG_VALUE && passes(v->def, user))
        v = v->def->arg[0].v;
    return (Value *)(uintptr_t)v;
}

static bool view(const Node *n, const void *user)
{
    (void)user;
    return n->op->flags & OPF_VIEW;
}

static bool view_or_cast(const Node *n, const void *user)
{
    (void)user;
    return n->op->flags & OPF_VIEW || n->op->id == OP_to_copy;
}

static bool view_above(const Node *n, const void *from) { return n->op->flags & OPF_VIEW && n->out[0] != from; }

Value *through_views(const Value *v) { return value_below(v, view, NULL); }
Value *through_casts(const Value *v) { return value_below(v, view_or_cast, NULL); }
bool is_view_of(const Value *v, const Value *from) { return value_below(v, view_above, from) == from; }
