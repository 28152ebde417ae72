/* Forward derivatives, which a file asks for between two calls (torch.func.jvp, torch.autograd.forward_ad):
 *
 *     d = make_dual(x, t)        x, with the tangent t
 *     y = f(d)
 *     s = tangent(y)             J t, J the derivative of f at x
 *
 * The gradient of y at d, for a cotangent u, is J^T u: linear in u. Its own gradient at u, for the cotangent t, is J t.
 * So both walks are those of grad.c, and an op whose gradient is written in rows that have gradients has a forward
 * derivative. u is a tangent of its own, which has no value: what still reads it after both walks, as the loop whose
 * turns keep what they begin with, does not need it. It becomes 1, as the derivative of a determinant asks whether u
 * is 0. Contract in grad.h.
 */
#include <string.h>
#include "base/mem.h"
#include "grad/grad_impl.h"
#include "ir/bodies.h"

enum { MOST_REGIONS = 64 }; /* each walks over the graph twice */

typedef struct Region {
    Graph *g;
    int64_t number;
    Node **dual, **asked, **cotangent; /* make_dual, tangent; u of each tangent */
    int nduals, nasked;
    int outputs; /* of the graph; after them, while other nodes are written out: these nodes, whether they are used or
                    not, and the gradients of duals */
} Region;

static bool of_region(const Node *n, OpId op, int64_t region)
{
    const Arg *a = &n->arg[op == OP_make_dual ? 2 : 1];
    return n->op->id == op && a->kind == ARG_EXPR && ex_equals_int(a->e, region);
}

static bool hold(Region *r, const Node *n, Err *err) { return graph_add_output(r->g, "held", n->out[0], err); }

static bool find_nodes(Region *r, Err *err)
{
    int n = 0;
    for (const Node *i = r->g->first; i; i = i->next) n += i->op->id == OP_make_dual || i->op->id == OP_tangent;
    r->dual = mem_zeroed((size_t)n + 1, sizeof *r->dual);
    r->asked = mem_zeroed((size_t)n + 1, sizeof *r->asked);
    r->cotangent = mem_zeroed((size_t)n + 1, sizeof *r->cotangent);
    if (!r->dual || !r->asked || !r->cotangent) return oom(err);
    for (Node *i = r->g->first; i; i = i->next) {
        if (of_region(i, OP_make_dual, r->number)) r->dual[r->nduals++] = i;
        if (of_region(i, OP_tangent, r->number)) r->asked[r->nasked++] = i;
    }
    for (int i = 0; i < r->nduals; i++) TRY(hold(r, r->dual[i], err));
    for (int i = 0; i < r->nasked; i++) {
        TRY(r->cotangent[i] = graph_add_before(r->g, r->asked[i], OP_tangent, 2, r->asked[i]->arg, "cotangent", err));
        TRY(hold(r, r->asked[i], err) && hold(r, r->cotangent[i], err));
    }
    return true;
}

static bool begin(Grad *d, Graph *g, const JointOptions *o, Err *err)
{
    *d = (Grad){.g = g, .ex = g->ex, .err = err, .o = o};
    return gd_begin(d);
}

/* J^T u of every dual. */
static bool walk_for_duals(Region *r, const JointOptions *o, Err *err)
{
    Grad d;
    TRY(begin(&d, r->g, o, err));
    for (int i = 0; i < r->nduals; i++) d.leaf[r->dual[i]->out[0]->id].wanted = true;
    gd_spread(&d);
    for (int i = 0; i < r->nasked; i++) TRY(gd_send(&d, r->asked[i]->arg[0].v, r->cotangent[i]->out[0]));
    TRY(gd_walk_back(&d));
    d.node = NULL;
    for (int i = 0; i < r->nduals; i++) {
        Value *gradient = gd_gradient_of(&d, r->dual[i]->out[0]);
        TRY(gradient && graph_add_output(r->g, "gradient", gradient, err));
    }
    return attention_written_out(r->g, err);
}

/* J t, in the place of what stands for it. */
static bool walk_for_tangents(Region *r, const JointOptions *o, Err *err)
{
    Grad d;
    const int first = r->outputs + r->nduals + 2 * r->nasked;
    TRY(begin(&d, r->g, o, err));
    for (int i = 0; i < r->nasked; i++) d.leaf[r->cotangent[i]->out[0]->id].wanted = true;
    gd_spread(&d);
    for (int i = 0; i < r->nduals; i++) TRY(gd_send(&d, r->g->output[first + i].value, r->dual[i]->arg[1].v));
    TRY(gd_walk_back(&d));
    d.node = NULL;
    for (int i = 0; i < r->nasked; i++) {
        Value *u = r->cotangent[i]->out[0], *tangent = gd_gradient_of(&d, u),
              *any = gd_full(&d, 1, u->dtype, u->rank, u->dim);
        TRY(tangent && any);
        graph_replace_uses(r->g, r->asked[i]->out[0], tangent);
        graph_replace_uses(r->g, u, any);
        graph_remove(r->g, r->asked[i]);
        graph_remove(r->g, r->cotangent[i]);
    }
    return true;
}

static void drop(Graph *g, Node *n)
{
    graph_replace_uses(g, n->out[0], n->arg[0].v);
    graph_remove(g, n);
}

static bool region_tangents(Graph *g, int64_t number, Err *err)
{
    const JointOptions o = {.decompose = DECOMPOSE_NONE, .recompute = RECOMPUTE_NONE};
    Region r = {.g = g, .number = number, .outputs = g->noutput};
    bool ok = find_nodes(&r, err);
    if (ok && r.nasked) ok = walk_for_duals(&r, &o, err) && walk_for_tangents(&r, &o, err);
    g->noutput = r.outputs;
    for (int i = 0; ok && i < r.nduals; i++) drop(g, r.dual[i]);
    mem_free(r.dual);
    mem_free(r.asked);
    mem_free(r.cotangent);
    if (!ok) return false;
    graph_dce(g);
    return graph_sort(g, err);
}

/* The number of the last region; 0: there is none. -1: one stands in a body. */
static int64_t last_region(const Graph *g)
{
    int64_t last = 0;
    const Graph *body;
    for (const Node *n = g->first; n; n = n->next) {
        for (int i = 0; (body = body_at(n, i)); i++)
            if (last_region(body)) return -1;
        if (n->op->id != OP_make_dual && n->op->id != OP_tangent) continue;
        const Arg *a = &n->arg[n->op->id == OP_make_dual ? 2 : 1];
        if (a->kind == ARG_EXPR && ex_is_int(a->e) && a->e->i > last) last = a->e->i;
    }
    return last;
}

bool graph_tangents(Graph *g, Err *err)
{
    int64_t last = last_region(g);
    if (!last) return true;
    if (last < 0) return fail(err, E_UNSUPPORTED, "a forward derivative inside a loop or branch");
    if (last > MOST_REGIONS) return fail(err, E_LIMIT, "more than %d regions of forward derivatives", MOST_REGIONS);
    graph_dce(g);
    TRY(bodies_lift(g, true, err));
    for (int64_t k = 1; k <= last; k++)
        TRY(region_tangents(g, k, err) || within(err, "the forward derivative %lld", (long long)k));
    return graph_check(g, err);
}
