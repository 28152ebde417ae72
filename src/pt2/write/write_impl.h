/* What the files of src/pt2/write share: the program's JSON in the making, and the names that it gives. */
#ifndef QKV_PT2_WRITE_WRITE_IMPL_H
#define QKV_PT2_WRITE_WRITE_IMPL_H
#include "pt2/write/write.h"
#include "base/jsonw.h"

/* A symbol that only a body has. */
typedef struct BodySymbol {
    const char *name;
    int64_t lo, hi;
} BodySymbol;

typedef struct Emit {
    const Graph *g;
    struct Emit *root;            /* of a body: the writer of the file's graph; NULL of that one */
    BodySymbol *body_symbol; /* of the file's graph: those of all bodies */
    int nbody_symbols, nbodies;
    Arena *arena;   /* names, and values that only the file has */
    Graph *scratch; /* where the schemas' defaults are parsed */
    Map taken;      /* name -> how often it was asked for */
    const char **name;
    bool *written;
    int nvalues, room;  /* by value id: its name in the file; is it there yet? */
    bool *absorbed;     /* by value id: a node that another one expresses with its own (find_absorbed) */
    const Module *module; /* of the node that is written */
    int depth;          /* of values written in front of their place */
    struct KernelPair **pair; /* attention.c: by value id of the logarithms */
    signed char *dense; /* by value id, for core: contiguous in PyTorch? 0: not known yet, 1 yes, -1 perhaps not */
    const char **size;
    bool *asked, *known;
    uint32_t nsizes;          /* by Expr id: the node that gives it, once there is one; being looked for; size_known */
    const char **symbol;      /* by index: its name in the file */
    struct Solution **solved; /* by index: the axis that it is computed from, once one is chosen: two symbols of one
                                 axis must not be computed from each other */
    bool *bound;              /* by index: a data-dependent size that is known already */
    int *first_of, *next_of;  /* by id of a value of g: 1 + the first symbol that is read from it; by index: 1 + the
                                 next one */
    Expr **asserted;          /* by index: the size that an assert says this one of data is; NULL: there is none */
    Expr **replaced;          /* by expression id, below nreplaced: it with such sizes, where that is known */
    uint32_t nreplaced;
    bool *checked;            /* by requirement: written already */
    bool too_long;            /* a size's text was cut */
    Binding hint;             /* the example sizes that the file carries */
    Buf nodes, tensors, ints, bools, floats, guards;
    Err *err;
} Emit;

/* sizes.c */
bool sizes_open(Emit *e);
/* The same for a body inside `outer`: outside[i] is what its input i stands for there, `sliced` of them without their
 * first axis; NULL where it stands for nothing. */
bool sizes_open_body(Emit *e, Emit *outer, Value *const *outside, const bool *sliced);
const char *sympy_name(const Expr *x);
void put_srepr(Emit *e, const Expr *x, Buf *out); /* "Mul(Integer(2), Symbol('s0', positive=True, integer=True))" */
/* PyTorch has a number under the size that an assert says it is, and refuses a file that calls it u0: x with such
 * sizes, NULL without memory. */
const Expr *as_asserted(Emit *e, const Expr *x);
void put_size(Emit *e, const Expr *x, Buf *out);  /* a SymInt: as_int, or as_expr with its hint */
bool size_name(Emit *e, const Expr *x,
               const char **name);       /* the node that computes it, written in front if it is the first use */
bool size_known(Emit *e, const Expr *x); /* can it be computed here? */
bool write_size_node(Emit *e, const char *target, const char *name, const Expr *value, int n, Expr *const *args,
                     const char *const *names);
bool put_number(Emit *e, const Expr *x, ParamType as,
                Buf *out);                        /* an argument: as_int, as_float, as_bool, as_sym_int ... */
Expr *is_true(const Emit *e, const Expr *symbol); /* what the item of a bool tensor is */
bool put_item(Emit *e, Value *v, const Expr *x);  /* the node that reads x from v */
/* Where a size is found: an axis of a tensor, a scalar input, or, for a symbol,
 * an axis that is factor * symbol + rest. */
typedef struct Axis {
    Value *v;
    int at;
} Axis;
typedef struct Solution {
    Axis axis;
    Expr *rest, *factor;
} Solution;
bool find_axis(const Emit *e, const Expr *x, Axis *out);
const char *size_input(const Emit *e, const Expr *x);
bool find_solution(Emit *e, const Expr *s, Solution *out);

/* checks.c */
bool note_value(Emit *e, const Value *v); /* v is written: the sizes that come out of it are known, asserts follow */
bool put_guards(Emit *e);

/* nodes.c */
bool name_values(Emit *e); /* values keep their names, ahead of all that is new in the file */
const char *fresh_name(Emit *e, const char *base);
Value *new_value(Emit *e, const char *base, DType t, int rank, Expr *const *dim); /* one that only the file has */
/* v is what the op makes of args: strides of a view are found from what it is a view of (facts/strides.h). */
bool declare_value(Emit *e, Value *v, const Op *op, const Arg *args);
DType held_as(const Value *v); /* weights of 4 bits are i8 and u8, as which they lie in memory */
bool requires_grad(const Value *v);
bool put_meta(Emit *e, const Value *v);                                                  /* into tensor_values */
void put_node(Emit *e, const char *target, Buf *inputs, Buf *outputs, const char *name); /* frees the lists */
/* {"as_tensor": {"name": NAME}}, {"as_int": V}, {"as_sym_int": {"as_name": NAME}} */
void put_tensor(Buf *out, const char *name);
void put_int(Buf *out, int64_t v);
void put_symbol(Buf *out, const Expr *x, const char *name);
void put_device(Buf *out, const Value *v); /* of a tensor: requires_grad and device */
bool write_node(Emit *e, const Op *op, const Arg *args, int nout, Value *const *out);
/* The same where results are none (out[k] NULL) or sizes (number[k]); number NULL: tensors alone. */
bool write_node_of(Emit *e, const Op *op, const Arg *args, int nout, Value *const *out, Expr *const *number);
bool emit_value(Emit *e, Value *v); /* v, if it is not there yet */
bool emit_nodes(Emit *e);

/* A node that only the file has, and its result; NULL on error. Arguments after the n given ones are none. */
Value *put(Emit *e, OpId op, int n, const Arg *args, const char *base, DType t, int rank, Expr *const *dim);
#define PUT(e, op, base, t, rank, dim, ...)                                                                            \
    put((e), OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__}, base, t, rank, dim)

/* spell.c: rows that ATen spells otherwise. Done: it was one of them and is written. */
bool find_absorbed(Emit *e);
bool spell_node(Emit *e, const Node *n, bool *done);

/* core.c: for graphs that ask for ATen's core alone. */
bool core_open(Emit *e);
bool core_spell(Emit *e, const Node *n, bool *done); /* rows that core spells otherwise */
bool core_overload(Emit *e, const Node *n,
                   Arg *args); /* the row's own overload, with tensors where core has none for numbers */

/* control.c: loops and branches */
bool spell_branch(Emit *e, const Node *n);
bool spell_loop(Emit *e, const Node *n);

/* attention.c */
bool spell_attention(Emit *e, const Node *n);
bool spell_sdpa_quantized(Emit *e, const Node *n);

/* fake_quantize.c: marks the quantizer before `back` as absorbed where both are a fake one; writes it. */
void absorb_fake_quantizer(Emit *e, const Node *back, const int *uses);
bool spell_fake_quantizer(Emit *e, const Node *back);
bool spell_sdpa_lse(Emit *e, const Node *n);
bool spell_sdpa_backward(Emit *e, const Node *n);
#endif
