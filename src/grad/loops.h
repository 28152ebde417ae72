/* Rows as loops of plainer rows, for a format that has loops and not the op: what the files of the word LOOPS share.
 *
 *     Loop l;
 *     TRY(open_loop(d, &l));
 *     Value *a = loop_carry(&l, x), *w = loop_capture(&l, y);    in the body, x as the last turn left it, and y
 *     Value *next = gd_mul(&l.in, a, w);
 *     Node *loop = close_loop(&l, limit, NULL, NULL, &next, 0, NULL);
 *
 * As with gd_*: NULL operands give NULL, so calls nest.
 */
#ifndef QKV_GRAD_LOOPS_H
#define QKV_GRAD_LOOPS_H
#include "grad/grad_impl.h"

typedef bool LoopsFn(Grad *d); /* puts other values in the place of the node's results, or leaves it as it is */
#define LOOPS(f) LoopsFn loops_##f;
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"

enum { LOOP_PARTS = 6 };

typedef struct Loop {
    Grad *around, in; /* in: the body */
    Value *outside[LOOP_PARTS];
    int n, ncarried;
    Expr *outer[2 * LOOP_PARTS], *inner[2 * LOOP_PARTS];
    int nsizes;
    Value *turn, *go;
} Loop;

bool open_loop(Grad *d, Loop *l);
/* Inputs of the body: what a turn hands to the next one, and, once all these are there, what every turn reads. */
Value *loop_carry(Loop *l, Value *v);
Value *loop_capture(Loop *l, Value *v);
Value *loop_turn(Loop *l); /* the turn as a list */
/* The loop in the graph around it: `limit` turns, or while `more`, which each turn computes, holds; `first` is what it
 * begins with. Results: what was carried, and what each turn gave, stacked. */
Node *close_loop(Loop *l, Expr *limit, Value *first, Value *more, Value *const *next, int nstack, Value *const *stack);

/* y, in its dtype, is result k of the node. */
bool loops_give(Grad *d, int k, Value *y);

/* nodes */
static inline Value *picked(Grad *d, Value *x, int axis, Value *at)
{
    return x && at ? GD(d, index_select, V(x), arg_int(d->g, axis), V(at)) : NULL;
}

static inline Value *chosen(Grad *d, Value *c, Value *a, Value *b)
{
    return c && a && b ? GD(d, where_self, V(c), V(a), V(b)) : NULL;
}

/* x, and the number where c holds */
static inline Value *but(Grad *d, Value *c, double number, Value *x)
{
    return c && x ? GD(d, where_self, V(c), arg_float(d->g, number), V(x)) : NULL;
}

static inline Value *quotient(Grad *d, Value *a, Value *b) { return a && b ? GD(d, div_Tensor, V(a), V(b)) : NULL; }
static inline Value *equal(Grad *d, Value *a, Value *b) { return a && b ? GD(d, eq_Tensor, V(a), V(b)) : NULL; }
static inline Value *nought(Grad *d, Value *a) { return a ? GD(d, eq_Tensor, V(a), arg_float(d->g, 0)) : NULL; }
static inline Value *above(Grad *d, Value *a, Value *b) { return a && b ? GD(d, gt_Tensor, V(a), V(b)) : NULL; }
static inline Value *not_below(Grad *d, Value *a, Value *b) { return a && b ? GD(d, ge_Tensor, V(a), V(b)) : NULL; }
static inline Value *both(Grad *d, Value *a, Value *b) { return a && b ? GD(d, logical_and, V(a), V(b)) : NULL; }
static inline Value *either(Grad *d, Value *a, Value *b) { return a && b ? GD(d, logical_or, V(a), V(b)) : NULL; }
static inline Value *negative(Grad *d, Value *x) { return x ? GD(d, neg, V(x)) : NULL; }
static inline Value *root(Grad *d, Value *x) { return x ? GD(d, sqrt, V(x)) : NULL; }
static inline Value *size(Grad *d, Value *x) { return x ? GD(d, abs, V(x)) : NULL; }
static inline Value *square(Grad *d, Value *x) { return gd_mul(d, x, x); }
static inline Value *plus(Grad *d, Value *x, double c)
{
    return x ? GD(d, add_Tensor, V(x), arg_float(d->g, c)) : NULL;
}
static inline Value *times(Grad *d, Value *x, double c) { return gd_scale(d, x, gd_float(d, c)); }
#endif
