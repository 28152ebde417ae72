/* The modules of a model as a list: from what nodes say (nn_module_stack) and from the names of weights. Contract in
 * describe.h.
 *
 *     {"path": "layers.0", "type": "Layer", "parameters": 672, "nodes": 21, "attentions": 1}
 */
#include <stdio.h>
#include <string.h>
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/vec.h"
#include "facts/attention.h"
#include "program/describe.h"

enum { MOST_PARTS = 20000, LONGEST_PATH = 500 }; /* a file may say anything */

typedef struct Part {
    const char *path, *type;       /* in the list's arena; type NULL: unknown */
    int parent, below, last, next; /* indices, -1: none. below, last: what is in it; next: in the same one */
    int nodes, attentions;
    int64_t parameters;
} Part;

typedef struct Parts {
    Arena *a;
    Part *part;
    int n;
    Map by_path; /* path -> index + 1 */
    bool known;  /* some node says where it belongs */
} Parts;

static int find(const Parts *p, const char *path) { return (int)(uintptr_t)map_get(&p->by_path, path) - 1; }

/* The longest path in the list that this one begins with. */
static int parent_of(const Parts *p, const char *path)
{
    char *up = arena_strdup(p->a, path);
    if (!up || !*path) return -1;
    for (char *dot; (dot = strrchr(up, '.'));) {
        *dot = '\0';
        if (find(p, up) >= 0) return find(p, up);
    }
    return find(p, "");
}

/* type: need not end. */
static bool add(Parts *p, const char *path, const char *type, size_t ntype)
{
    int at = find(p, path);
    if (at < 0 && (p->n >= MOST_PARTS || strlen(path) > LONGEST_PATH)) return true;
    if (at < 0) {
        Part *all = vec_room(p->a, p->part, p->n, sizeof *all);
        const char *copy = arena_strdup(p->a, path);
        if (!all || !copy) return false;
        p->part = all;
        int up = parent_of(p, path);
        all[at = p->n] = (Part){.path = copy, .parent = up, .below = -1, .last = -1, .next = -1};
        if (up >= 0) *(all[up].last < 0 ? &all[up].below : &all[all[up].last].next) = at;
        if (up >= 0) all[up].last = at;
        if (!map_put(&p->by_path, copy, (void *)(uintptr_t)(++p->n))) return false;
    }
    if (ntype && !p->part[at].type) p->part[at].type = arena_strndup(p->a, type, ntype);
    return !ntype || p->part[at].type;
}

/* a, a.b, a.b.0 of "a.b.0": a number alone is not a module. */
static bool add_path(Parts *p, const char *path)
{
    for (const char *end = path; *path && end && end - path <= LONGEST_PATH;) {
        end = strchr(end, '.');
        while (end && is_digit(end[1])) end = strchr(end + 1, '.');
        char *up = arena_strndup(p->a, path, end ? (size_t)(end - path) : strnlen(path, LONGEST_PATH + 1));
        if (!up || !add(p, up, NULL, 0)) return false;
        if (end) end++;
    }
    return true;
}

/* "L__self__,,M;L__self__layers.0,layers.0,Layer" */
static bool add_stack(Parts *p, const char *stack)
{
    for (const char *s = stack; *s;) {
        size_t n = strcspn(s, ";");
        char *item = arena_strndup(p->a, s, n), *path = item ? strchr(item, ',') : NULL,
             *type = path ? strchr(path + 1, ',') : NULL;
        if (!item) return false;
        if (type) {
            *type++ = '\0';
            if (!add(p, path + 1, type, strlen(type))) return false;
        }
        s += n + (s[n] == ';');
    }
    return true;
}

/* The path of the module that a weight belongs to, "" for the model; NULL where its name does not say. */
static const char *path_of_weight(const Parts *p, const Value *w)
{
    const char *dot = w->fqn && w->weight != W_CONSTANT ? strrchr(w->fqn, '.') : NULL;
    return dot ? arena_strndup(p->a, w->fqn, (size_t)(dot - w->fqn)) : w->fqn && w->weight != W_CONSTANT ? "" : NULL;
}

/* The same bytes under two names count once. */
static void count_weights(Parts *p, const Graph *g)
{
    Map seen = {0}; /* where a weight is, and how many elements it has */
    for (int i = 0; i < g->nweight; i++) {
        const Value *w = g->weight[i];
        char key[48];
        snprintf(key, sizeof key, "%p %lld", w->data->data, (long long)tensor_numel(w->data));
        const char *path = w->weight == W_PARAMETER ? path_of_weight(p, w) : NULL;
        bool tied = map_has(&seen, key);
        const char *own = tied || !w->data->data ? NULL : arena_strdup(p->a, key);
        if (own && !map_put(&seen, own, p)) break;
        for (int at = path && !tied ? find(p, path) : -1; at >= 0; at = p->part[at].parent)
            p->part[at].parameters += tensor_numel(w->data);
    }
    map_free(&seen);
}

/* Nodes that say nothing are the model's own. */
static void count_nodes(Parts *p, const Graph *g, AttentionFinder *f)
{
    for (const Node *n = g->first; n; n = n->next) {
        AttentionParts a = {.n = 0};
        bool attention = n->op->id == OP_scaled_dot_product_attention || (attention_begins(f, n, &a) && a.values);
        for (int at = find(p, n->module ? n->module->path : ""); at >= 0; at = p->part[at].parent) {
            p->part[at].nodes++;
            p->part[at].attentions += attention;
        }
    }
}

/* A part and all that is in it. */
static void put_part(const Parts *p, int i, Buf *out)
{
    for (; i >= 0; i = p->part[i].next) {
        const Part *x = &p->part[i];
        jw_line(out);
        jw_put(out, "{'path': %s, 'type': %s, 'parameters': %lld", x->path, x->type, (long long)x->parameters);
        if (p->known) jw_put(out, "'nodes': %d, 'attentions': %d}", x->nodes, x->attentions);
        else jw_put(out, "'nodes': null, 'attentions': null}");
        put_part(p, x->below, out);
    }
}

void describe_modules(const Graph *g, Buf *out)
{
    Parts p = {.a = arena_create(0)};
    AttentionFinder f;
    Err err = {0};
    bool ok = p.a && add(&p, "", NULL, 0);
    for (const Node *n = g->first; ok && n; n = n->next)
        if (n->module && (p.known = true))
            ok = n->module->stack ? add_stack(&p, n->module->stack) : add_path(&p, n->module->path);
    for (int i = 0; ok && i < g->nweight; i++) {
        const char *path = path_of_weight(&p, g->weight[i]);
        if (path && find(&p, path) < 0) ok = add_path(&p, path);
    }
    ok = ok && attention_finder(&f, g, &err);
    if (ok) {
        count_weights(&p, g);
        count_nodes(&p, g, &f);
        attention_finder_free(&f);
        put_part(&p, 0, out);
    }
    out->failed |= !ok;
    map_free(&p.by_path);
    arena_destroy(p.a);
}
