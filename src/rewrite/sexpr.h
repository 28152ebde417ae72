/* S-expressions, as rule files are written in.
 *
 *     ; a comment
 *     (rule gelu_erf (mul ?x 0.5) (gelu ?x) (dtype_float ?x))        lists, [lists], symbols, numbers, "text"
 *
 * Errors: E_FORMAT with the line. Depth at most 64; E_LIMIT above 1 MiB.
 */
#ifndef QKV_REWRITE_SEXPR_H
#define QKV_REWRITE_SEXPR_H
#include "base/arena.h"

typedef struct Sexpr {
    enum SexprKind { SX_SYMBOL, SX_NUMBER, SX_TEXT, SX_LIST, SX_BRACKET } kind;
    int line;
    const char *text; /* SX_SYMBOL, SX_TEXT */
    double number;
    bool integral; /* written without a point or exponent */
    int n;
    struct Sexpr **item;
} Sexpr;

/* All expressions of a text as one list. NULL on error. */
Sexpr *sexpr_parse(Arena *a, const char *text, Err *err);
bool sexpr_is(const Sexpr *s, const char *symbol);    /* is it this symbol? */
bool sexpr_heads(const Sexpr *s, const char *symbol); /* a list that begins with it? */
#endif
