/* Expr: symbolic integers, floats and truth values; hash-consed and canonical as built, so equality is comparing
 * pointers.
 *
 *     ExprPool *p = expr_pool(arena);
 *     Expr *h = ex_symbol(p, "s0");
 *     Expr *e = ex_floordiv(p, ex_mul(p, ex_int(p, 28), h), ex_int(p, 14));   == ex_mul(p, ex_int(p, 2), h)
 *
 * Canonical form: integer sums and products are kept as expanded polynomials, terms sorted, constants first and folded.
 * Builders return NULL only when out of memory (or when the pool's limit of nodes is reached); NULL operands give NULL.
 * Meaning of the operations is sympy's as torch.export uses them (torch/utils/_sympy/functions.py): FloorDiv rounds
 * toward -inf, Mod has the sign of the divisor, division by zero is an error of evaluation, not of building.
 */
#ifndef QKV_EXPR_EXPR_H
#define QKV_EXPR_EXPR_H
#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

typedef enum ExprKind {
    EX_INT,
    EX_FLOAT,
    EX_BOOL,
    EX_SYM,
    EX_ADD,
    EX_MUL, /* n-ary */
    EX_POW,
    EX_FLOORDIV,
    EX_MOD,
    EX_MAX,
    EX_MIN,     /* binary */
    EX_TRUEDIV, /* float result: FloatTrueDiv, IntTrueDiv */
    EX_TOFLOAT,
    EX_CEIL,
    EX_FLOOR,
    EX_TRUNC,
    EX_ROUND,
    EX_SQRT,
    EX_NEGF,
    EX_ABS, /* unary; ceil..round give integers */
    EX_LSHIFT,
    EX_RSHIFT,
    EX_EQ,
    EX_NE,
    EX_LT,
    EX_LE, /* truth values; > and >= are swapped */
    EX_AND,
    EX_OR,
    EX_NOT,
    EX_WHERE,
} ExprKind;

typedef struct Expr {
    ExprKind kind;
    int nargs;
    struct Expr **args;
    int64_t i;   /* EX_INT value, EX_BOOL 0/1, EX_SYM index into the pool's symbols */
    double f;    /* EX_FLOAT value */
    uint32_t id; /* order of creation, dense */
    bool is_float, is_bool;
    int depth;
    uint64_t symbols; /* Bloom mask of the symbols below: bit index % 64 */
    uint32_t stamp;   /* import-time only: when lo, hi were computed */
    int64_t lo, hi;
} Expr;

/* Where a symbol's value comes from. */
typedef enum SymbolSource {
    SYM_FREE,
    SYM_INPUT,
    SYM_ITEM,
    SYM_SIZE,
    SYM_GONE
} SymbolSource; /* SYM_GONE: another took its place */

typedef struct Symbol {
    const char *name; /* zuf0, zuf1, ...: a float, read from a tensor (SYM_ITEM), as in torch.export; else an integer */
    int64_t lo, hi; /* inclusive; INT64_MIN / INT64_MAX = unbounded */
    bool has_hint;
    int64_t hint; /* the example size the file carries, if any */
    SymbolSource source;
    struct Value *value; /* SYM_ITEM: the 0-d tensor read; SYM_SIZE: the tensor whose dim it is; SYM_INPUT: an input
                            that binds it */
    int dim;
    Expr *expr; /* its EX_SYM node */
} Symbol;

/* Does a run know it only once it has computed a value? */
static inline bool symbol_out_of_data(const Symbol *s) { return s->source == SYM_ITEM || s->source == SYM_SIZE; }

typedef struct ExprPool ExprPool;
ExprPool *expr_pool(Arena *a);
/* The same pool in another arena; (*nodes)[e->id] is what `e` is there. Symbol.value is still the other graph's.
 * NULL when out of memory. */
ExprPool *expr_pool_copy(const ExprPool *from, Arena *a, Expr **nodes);
void expr_pool_free(ExprPool *p); /* its hash table; nodes live in the arena */
int expr_symbol_count(const ExprPool *p);
uint32_t expr_node_count(const ExprPool *p); /* nodes made so far */
Symbol *expr_symbol(const ExprPool *p, int index);
Symbol *expr_find_symbol(const ExprPool *p, const char *name); /* NULL when unknown; old names are known, too */
/* Symbol `from` prints as `to` from now on. E_USAGE: there is none of that name, or `to` is not a name or taken. */
bool expr_rename_symbol(ExprPool *p, const char *from, const char *to, Err *err);
/* What is checked before any node runs: of a conjunction of bounds (0 <= s1 - s0, 2*s0 <= 64) the ranges of their
 * differences are known to ex_range from now on, and what is a multiple of a number (n % 4 == 0) has no remainder:
 * n//(n//4) is 4. Of an equality that is not about a symbol alone (h*w == 16) one side stands for the other: what is
 * made from now on has 16 in place of h*w. The condition itself must have been made before: now it folds to true. */
void expr_assume(ExprPool *p, const Expr *cond);
/* Does an equality say that two symbols are the same? Of s22 + s98 == s98 + s1 they are s22 and s1. */
bool expr_same_symbols(ExprPool *p, const Expr *cond, Expr **a, Expr **b);
/* The symbol `from` is gone, and its names mean `to` from now on, which is within the ranges of both. What was built
 * with it stays as it is: see expr_replace. Equalities that were assumed of it are forgotten. */
void expr_merge_symbol(ExprPool *p, const Expr *from, const Expr *to);

Expr *ex_int(ExprPool *p, int64_t v);
Expr *ex_float(ExprPool *p, double v);
Expr *ex_bool(ExprPool *p, bool v);
Expr *ex_symbol(ExprPool *p, const char *name); /* found or created (SYM_FREE, unbounded) */
bool expr_names_float(const char *symbol);      /* zuf0, zuf1, ... */
enum { EXPR_NAME_MOST = 255 };                  /* bytes of a symbol's name */
bool expr_is_name(const char *s);               /* what prints as one word and reads back as the same symbol */
Expr *ex_add(ExprPool *p, Expr *a, Expr *b);
Expr *ex_sub(ExprPool *p, Expr *a, Expr *b);
Expr *ex_neg(ExprPool *p, Expr *a);
Expr *ex_mul(ExprPool *p, Expr *a, Expr *b);
Expr *ex_floordiv(ExprPool *p, Expr *a, Expr *b);
Expr *ex_mod(ExprPool *p, Expr *a, Expr *b);
Expr *ex_max(ExprPool *p, Expr *a, Expr *b);
Expr *ex_min(ExprPool *p, Expr *a, Expr *b);
/* Any other kind: unary with b = c = NULL, binary with c = NULL, EX_WHERE with all three. */
Expr *ex_make(ExprPool *p, ExprKind kind, Expr *a, Expr *b, Expr *c);

/* Of NULL, what was too large to be built, nothing is known. */
static inline bool ex_is_int(const Expr *e) { return e && e->kind == EX_INT; }
static inline bool ex_is_const(const Expr *e)
{
    return e && (e->kind == EX_INT || e->kind == EX_FLOAT || e->kind == EX_BOOL);
}
/* A constant as a number. */
static inline double ex_number(const Expr *e) { return e->kind == EX_FLOAT ? e->f : (double)e->i; }
static inline bool ex_equals_int(const Expr *e, int64_t v) { return ex_is_int(e) && e->i == v; }
/* Ranges belong to import: set there, before the graph is shared. */
void expr_set_range(ExprPool *p, int symbol, int64_t lo, int64_t hi);
/* Interval of an integer expression from its symbols' ranges; INT64_MIN / INT64_MAX where unbounded. */
void ex_range(const ExprPool *p, const Expr *e, int64_t *lo, int64_t *hi);
/* Does `e` mention a symbol that is not bound by input sizes (SYM_ITEM, SYM_SIZE)? */
bool ex_data_dependent(const ExprPool *p, const Expr *e);
bool ex_mentions(const Expr *e, const Expr *symbol);

/* A number: what an expression evaluates to. */
typedef struct Scalar {
    enum { SC_INT, SC_FLOAT, SC_BOOL } kind;
    int64_t i; /* SC_INT, SC_BOOL */
    double f;  /* SC_FLOAT */
} Scalar;
static inline double scalar_f64(Scalar s) { return s.kind == SC_FLOAT ? s.f : (double)s.i; }
static inline int64_t scalar_i64(Scalar s) { return s.kind == SC_FLOAT ? (int64_t)s.f : s.i; }

/* Values of all symbols of one pool, and what was evaluated with them so far. Not shared between threads. */
typedef struct Binding {
    int n;
    int64_t *value; /* of a symbol of floats the bits of its double */
    bool *bound;
    Scalar *memo;    /* by Expr id */
    uint32_t *known; /* by Expr id: the round in which it was evaluated */
    uint32_t nmemo, round; /* round: since a symbol lost its value */
} Binding;
bool binding_init(Binding *b, const ExprPool *p, Err *err);
/* Remembers also what expressions are that were made since. */
bool binding_extend(Binding *b, const ExprPool *p, Err *err);
void binding_free(Binding *b);
void binding_set(Binding *b, int symbol, int64_t value); /* forgets what was evaluated with another one */
void binding_set_float(Binding *b, int symbol, double value);
void binding_unset(Binding *b, int symbol);
void binding_clear(Binding *b);                          /* nothing is bound, as after binding_init */
bool ex_eval(const ExprPool *p, const Expr *e, const Binding *b, Scalar *out,
             Err *err); /* E_USAGE: unbound symbol, division by 0 */
bool ex_eval_i64(const ExprPool *p, const Expr *e, const Binding *b, int64_t *out, Err *err);

/* Text. Infix as Python writes it: "3*s0 + 1", "s0//14", "Max(1, s0)", "(s0 % 2 == 0) and (s0 < 9)".
 * Cut after 64 KiB, with "...". */
void ex_print(const ExprPool *p, const Expr *e, Buf *out);
/* The same for any pool that has the expression: ex_print has terms and factors as the pool came to know them. */
void ex_print_sorted(const ExprPool *p, const Expr *e, Buf *out);
/* Infix or sympy srepr ("Mul(Integer(16), Symbol('s10', positive=True))"); unknown symbols are created.
 * `atom`, if given, reads what the grammar does not know, e.g. "L['x'].size()[1]": gets the rest of the text,
 * sets *used, returns NULL to refuse. Errors give the byte offset. Depth at most 64; E_LIMIT: longer than 1 MiB, or
 * more than 2^14 terms and operations. */
typedef Expr *ExprAtom(void *user, const char *text, size_t *used);
Expr *ex_parse(ExprPool *p, const char *text, ExprAtom *atom, void *user, Err *err);
#endif
