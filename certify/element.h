/* The reader of a lemma, which element.c, lemma.c, function.c and place.c share. */
#ifndef QKV_CERTIFY_ELEMENT_H
#define QKV_CERTIFY_ELEMENT_H
#include "certify/certify.h"

enum { MAX_NAMES = 16 };

/* A lemma as it is read, for the element of v at idx; `at`: what comes next of it. */
typedef struct Reader {
    Checker *c;
    Terms *t;
    ExprPool *p;
    int side, rank, nvars;
    const Node *node;
    const Value *v;
    Expr *idx[MAX_RANK];
    const char *at;
    struct {
        const char *name, *body; /* of a definition */
        Expr *e;                 /* of a variable */
        int n;
    } name[MAX_NAMES];
    bool skip;
} Reader;

static inline void *wrong(Reader *r)
{
    return term_refuse(r->t, "'%s': %s here has no lemma", r->node->name, r->node->op->name);
}

static inline int axis_of(const Expr *e, int rank)
{
    int64_t d = e->kind == EX_INT ? e->i + (e->i < 0 ? rank : 0) : -1;
    return d < 0 || d >= rank ? -1 : (int)d;
}

static inline Expr *size_of(Reader *r, const Value *v, int axis) { return checker_expr(r->c, r->side, v->dim[axis]); }
static inline Expr *zero(Reader *r) { return ex_int(r->p, 0); }
static inline Expr *fresh(Reader *r, Expr *extent) { return ix_var(&r->t->x, "f", r->c->depth++, extent); }
static inline Step *step_of(Reader *r) { return &r->c->side[r->side].step[r->v->id]; }

/* Of lemma.c. */
Term *element_lemma(Reader *r, const char *text);
Term *element_number(Reader *r, const Expr *e);
Term *element_times(Reader *r, Term *a, Term *b);
Term *element_operand(Reader *r, const Arg *a); /* broadcast to the place, or as r->at says */
bool element_over_axis(const Reader *r, const Arg *a, const char *name, int n, int i);
Term *element_cast(Reader *r); /* of element.c */

/* Of function.c. */
Term *element_at(Reader *r, const Value *x, Term **at);
Term *element_place(Reader *r, Term *i, Expr *n); /* i, looked up among n; NULL: the source may not look it up */
Term *element_from_end(Reader *r, Term *i, Expr *n);
Term *element_function(Reader *r);
Term *element_of_tensors(Reader *r);

/* Of place.c, each for the node in hand. */
Term *element_view(Reader *r);
Term *element_cat(Reader *r);
Term *element_indexed(Reader *r);
Term *element_put(Reader *r);
Term *element_written(Reader *r);
Term *element_padded(Reader *r);
Term *element_convolution(Reader *r);
Term *element_rotary(Reader *r);
Term *element_whole(Reader *r, Term *v);
void element_put_index(Reader *r, Expr *e, Buf *out);
#endif
