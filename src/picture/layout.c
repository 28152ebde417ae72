/* A layered layout: each box below everything it reads, edges that pass a layer go through a point in it.
 *
 * Layers are the longest ways from the top. The order within a layer comes from sweeps that sort by the mean place of
 * the neighbours above or below; x then moves towards that mean as far as the order and the gaps allow. Linear in
 * boxes and points for each sweep.
 */
#include <stdlib.h>
#include <string.h>
#include "picture/picture_impl.h"

enum { SWEEPS = 12, GAP = 22, MOST_POINTS = 60000, MARGIN = 20 };

typedef struct Vertex {
    int layer, order, w;
    double x, key;
} Vertex;

typedef struct Link {
    int from, to; /* vertices of neighbouring layers */
} Link;

typedef struct Layers {
    Picture *p;
    Vertex *v;
    int nv, nlayer;
    Link *link;
    int nlink;
    int *first;    /* by layer: of `row`; one more at the end */
    int *row;      /* vertices, layer by layer, in order */
    int *spare;    /* as large */
    int *begin[2]; /* by vertex: of `other`; one more at the end. 0: links from above, 1: to below */
    int *other[2];
} Layers;

/* ------------------------------------------------------------------ layers */

static void find_layers(Layers *l)
{
    const Picture *p = l->p;
    for (int i = 0; i < p->nedge; i++) { /* in order of `to`, which comes after `from` */
        int below = l->v[p->edge[i].from].layer + 1, to = p->edge[i].to;
        if (l->v[to].layer < below) l->v[to].layer = below;
    }
    for (int i = p->nbox - 1; i >= 0; i--) { /* what reads nothing goes right above its first reader */
        int least = -1;
        bool reads = false;
        for (int k = 0; k < p->nedge; k++) {
            reads |= p->edge[k].to == i;
            if (p->edge[k].from == i && (least < 0 || l->v[p->edge[k].to].layer < least))
                least = l->v[p->edge[k].to].layer;
        }
        if (!reads && least > 0) l->v[i].layer = least - 1;
    }
    for (int i = 0; i < p->nbox; i++)
        if (l->v[i].layer >= l->nlayer) l->nlayer = l->v[i].layer + 1;
}

/* Points where edges pass a layer. */
static bool add_points(Layers *l, const int *width, Layout *out)
{
    Picture *p = l->p;
    int points = 0;
    for (int i = 0; i < p->nedge; i++) points += l->v[p->edge[i].to].layer - l->v[p->edge[i].from].layer - 1;
    if (points > MOST_POINTS)
        return fail(p->err, E_LIMIT, "edges pass %d layers, more than %d: choose a part of the graph, or write DOT",
                    points, MOST_POINTS);
    Vertex *v = arena_array(p->a, Vertex, p->nbox + points + 1);
    l->link = arena_array(p->a, Link, p->nedge + points + 1);
    out->route = arena_array(p->a, Route, p->nedge + 1);
    if (!v || !l->link || !out->route) return oom(p->err);
    memcpy(v, l->v, (size_t)p->nbox * sizeof *v);
    l->v = v;
    l->nv = p->nbox;
    for (int i = 0; i < p->nbox; i++) v[i].w = width[i];
    for (int i = 0; i < p->nedge; i++) {
        int at = p->edge[i].from, to = p->edge[i].to;
        out->route[i] = (Route){l->nv, 0};
        while (v[at].layer + 1 < v[to].layer) {
            v[l->nv] = (Vertex){.layer = v[at].layer + 1, .w = 4};
            l->link[l->nlink++] = (Link){at, l->nv};
            at = l->nv++;
            out->route[i].n++;
        }
        l->link[l->nlink++] = (Link){at, to};
    }
    return true;
}

/* ------------------------------------------------------------------ rows and neighbours */

static bool make_rows(Layers *l)
{
    Arena *a = l->p->a;
    l->first = arena_array(a, int, l->nlayer + 2);
    l->row = arena_array(a, int, l->nv + 1);
    l->spare = arena_array(a, int, l->nv + 1);
    for (int d = 0; d < 2; d++) {
        l->begin[d] = arena_array(a, int, l->nv + 2);
        l->other[d] = arena_array(a, int, l->nlink + 1);
        if (!l->begin[d] || !l->other[d]) return oom(l->p->err);
    }
    int *fill = arena_array(a, int, l->nv + l->nlayer + 2);
    if (!l->first || !l->row || !l->spare || !fill) return oom(l->p->err);
    for (int i = 0; i < l->nv; i++) l->first[l->v[i].layer + 1]++;
    for (int i = 0; i < l->nlayer; i++) l->first[i + 1] += l->first[i];
    for (int i = 0; i < l->nv; i++) l->row[l->first[l->v[i].layer] + fill[l->v[i].layer]++] = i;
    for (int d = 0; d < 2; d++) {
        memset(fill, 0, (size_t)l->nv * sizeof *fill);
        for (int i = 0; i < l->nlink; i++) l->begin[d][(d ? l->link[i].from : l->link[i].to) + 1]++;
        for (int i = 0; i < l->nv; i++) l->begin[d][i + 1] += l->begin[d][i];
        for (int i = 0; i < l->nlink; i++) {
            int mine = d ? l->link[i].from : l->link[i].to;
            l->other[d][l->begin[d][mine] + fill[mine]++] = d ? l->link[i].to : l->link[i].from;
        }
    }
    return true;
}

/* The mean x of the neighbours above (0) or below (1); its own where there are none. */
static double wanted(const Layers *l, int v, int d)
{
    double sum = 0;
    int from = l->begin[d][v], to = l->begin[d][v + 1];
    for (int i = from; i < to; i++) sum += l->v[l->other[d][i]].x;
    return to > from ? sum / (to - from) : l->v[v].x;
}

/* By the keys; equal ones keep their order. A row may hold all of the points. */
static void sort_row(const Layers *l, int *row, int *spare, int n)
{
    if (n < 2) return;
    int half = n / 2, a = 0, b = half;
    sort_row(l, row, spare, half);
    sort_row(l, row + half, spare, n - half);
    for (int i = 0; i < n; i++) {
        bool first = b == n || (a < half && l->v[row[a]].key <= l->v[row[b]].key);
        spare[i] = row[first ? a++ : b++];
    }
    memcpy(row, spare, (size_t)n * sizeof *row);
}

/* As near to the keys as the order and the gaps allow: the mean of moving all to the right and all to the left. */
static void place_row(Layers *l, const int *row, int n)
{
    double at = 0;
    for (int i = 0; i < n; i++) {
        Vertex *v = &l->v[row[i]];
        double least = i ? at + (l->v[row[i - 1]].w + v->w) / 2.0 + GAP : v->key;
        at = v->x = v->key > least ? v->key : least;
    }
    for (int i = n - 1; i >= 0; i--) {
        Vertex *v = &l->v[row[i]];
        double most = i < n - 1 ? at - (l->v[row[i + 1]].w + v->w) / 2.0 - GAP : v->key;
        at = v->key < most ? v->key : most;
        v->x = (v->x + at) / 2;
    }
}

static void sweep(Layers *l, int d, bool reorder)
{
    for (int i = 0; i < l->nlayer; i++) {
        int layer = d ? l->nlayer - 1 - i : i, *row = l->row + l->first[layer];
        int n = l->first[layer + 1] - l->first[layer];
        for (int k = 0; k < n; k++) l->v[row[k]].key = wanted(l, row[k], d);
        if (reorder) sort_row(l, row, l->spare, n);
        place_row(l, row, n);
    }
}

/* ------------------------------------------------------------------ */

static bool give_out(const Layers *l, Layout *out)
{
    const Picture *p = l->p;
    double left = 0;
    for (int i = 0; i < l->nv; i++)
        if (i == 0 || l->v[i].x - l->v[i].w / 2.0 < left) left = l->v[i].x - l->v[i].w / 2.0;
    out->box = arena_array(p->a, Placed, l->nv + 1);
    if (!out->box) return oom(p->err);
    for (int i = 0; i < l->nv; i++) {
        Placed at = {(int)(l->v[i].x - left) + MARGIN,
                     l->v[i].layer * (BOX_HEIGHT + LAYER_GAP) + BOX_HEIGHT / 2 + MARGIN, l->v[i].w};
        out->box[i] = at;
        if (at.x + at.w / 2 + MARGIN > out->width) out->width = at.x + at.w / 2 + MARGIN;
    }
    out->point = out->box; /* routes count from there */
    out->npoint = l->nv;
    out->height = l->nlayer * (BOX_HEIGHT + LAYER_GAP) - LAYER_GAP + 2 * MARGIN;
    return true;
}

bool picture_layout(Picture *p, const int *width, Layout *out)
{
    Layers l = {.p = p, .v = arena_array(p->a, Vertex, p->nbox + 1)};
    *out = (Layout){.width = 2 * MARGIN, .height = 2 * MARGIN};
    if (!l.v) return oom(p->err);
    find_layers(&l);
    TRY(add_points(&l, width, out) && make_rows(&l));
    for (int i = 0; i < SWEEPS; i++) sweep(&l, i & 1, i < SWEEPS - 4);
    return give_out(&l, out);
}
