/* What the tests of expressions share: a pool, text both ways. */
#ifndef QKV_TESTS_UNIT_EXPR_H
#define QKV_TESTS_UNIT_EXPR_H
#include "unit.h"
#include "expr/expr.h"

typedef struct Fixture {
    Arena *arena;
    ExprPool *pool;
} Fixture;

__attribute__((unused)) static int set_up(void **state)
{
    Fixture *f = calloc(1, sizeof *f);
    f->arena = arena_create(0);
    f->pool = expr_pool(f->arena);
    *state = f;
    return !f->pool;
}

__attribute__((unused)) static int tear_down(void **state)
{
    Fixture *f = *state;
    expr_pool_free(f->pool);
    arena_destroy(f->arena);
    free(f);
    return 0;
}

__attribute__((unused)) static Expr *parsed(ExprPool *p, const char *text)
{
    Err err = {0};
    Expr *e = ex_parse(p, text, NULL, NULL, &err);
    if (!e) STOP("%.100s: %s", text, err.msg);
    return e;
}

/* Good until the next call but three. */
__attribute__((unused)) static const char *printed(const ExprPool *p, const Expr *e)
{
    static char text[4][2048];
    static int turn;
    Buf b = {0};
    char *out = text[turn++ % 4];
    ex_print(p, e, &b);
    snprintf(out, sizeof text[0], "%s", b.data);
    buf_free(&b);
    return out;
}
#endif
