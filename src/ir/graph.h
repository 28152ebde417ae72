/* Graph: values and nodes in SSA form, in topological order. What import guarantees: pure ops, no subgraphs, every
 * value with dtype and symbolic shape, sizes as expressions (no nodes that compute sizes), asserts and guards in a
 * table beside the nodes.
 *
 *     graph_find_value(g, "linear_3")
 *     for (Node *n = g->first; n; n = n->next) ...
 *
 * All memory is the graph's arena. Names are unique among values.
 */
#ifndef QKV_IR_GRAPH_H
#define QKV_IR_GRAPH_H
#include "base/arena.h"
#include "base/map.h"
#include "op/op.h"
#include "expr/expr.h"
#include "tensor/tensor.h"

typedef struct Value Value;
typedef struct Node Node;
typedef struct Graph Graph;

typedef enum ValueKind { V_INPUT, V_WEIGHT, V_NODE } ValueKind;

struct Value {
    const char *name;
    const char *label; /* of an input: its name in the file, where that is more than letters, digits, '_' and '.'; NULL
                          otherwise */
    Expr **dim; /* rank expressions */
    Node *def;  /* V_NODE: the node and which of its outputs */
    int out;
    int id; /* dense, for side tables: 0 .. graph->nvalues - 1 */
    /* V_WEIGHT: borrowed data with its own strides, the name in the state dict, and (below) what it is */
    const Tensor *data;
    const char *fqn;
    int rank;
    ValueKind kind : 8; /* and so on: a graph may have very many values */
    DType dtype : 8;
    enum { W_PARAMETER, W_BUFFER, W_CONSTANT } weight : 8;
    bool persistent : 1;
    bool frozen : 1;  /* a parameter that asks for no gradient */
    bool trains : 1;  /* V_INPUT: one that requires a gradient */
    bool changes : 1; /* V_WEIGHT: a training session changes its values between runs */
};

typedef enum ArgKind {
    ARG_NONE,
    ARG_VALUE,
    ARG_VALUES, /* one tensor, a list (elements may be NULL) */
    ARG_EXPR,
    ARG_EXPRS, /* int, float, bool, Scalar and lists of them: constants are EX_INT ... */
    ARG_STR,
    ARG_DTYPE,
    ARG_GRAPH, /* what a loop or branch runs: a graph with values and symbols of its own */
} ArgKind;

typedef struct Arg {
    ArgKind kind;
    int n; /* ARG_VALUES, ARG_EXPRS */
    union {
        Value *v;
        Value **vs;
        Expr *e;
        Expr **es;
        const char *s;
        DType dtype;
        Graph *g;
    };
} Arg;

/* The part of the author's model that a node belongs to. */
typedef struct Module {
    const char *path;  /* "encoder.layers.0.attn"; "" is the model itself */
    const char *stack; /* a .pt2's text of all modules around and their classes (nn_module_stack); NULL: unknown */
} Module;

struct Node {
    const Op *op;
    const char *name; /* of its first output, or the file's name for it */
    const Module *module; /* NULL: the file does not say */
    Arg *arg;         /* op->schema->nparams of them, defaults filled in */
    Value **out;
    int nout;
    Node *prev, *next;
};

/* A condition on sizes that must hold for a binding; checked once per binding. */
typedef struct Require {
    Expr *cond;
    const char *where; /* "node 'add_3': sizes of dim 1" / "guard: ..." */
} Require;

typedef struct Output {
    const char *name;       /* output_0, output_1, ... in flattened order of leaves that are tensors or numbers */
    const char *value_name; /* the name in the file */
    const char *label;      /* what the module calls it: "logits", "hidden_states.0"; NULL where it has no name */
    Value *value;
    bool number;        /* Python's int, float or bool: the value holds it as a tensor of rank 0, a .pt2 as it is */
    bool loss;          /* of a joint graph: what the gradients are of */
    Value *gradient_of; /* of a joint graph: the weight or input whose gradient this is; NULL otherwise */
} Output;

typedef struct Mutation { /* after a run, the weight (a buffer) takes this value; of inputs, only Python's callers see
                             it */
    Value *target, *value;
} Mutation;

/* An input that the file fixed to one value (int, float, bool, str, None given at export), or that is a bare size. */
typedef struct ScalarInput {
    const char *name;
    Arg value; /* what it was fixed to; ARG_EXPR with a symbol for a dynamic int */
    int at;    /* its place among all inputs, tensors included */
} ScalarInput;

/* A result that is neither a tensor nor a number: a string or None, at its place among all results. For writers; a run
 * does not give it. */
typedef struct ScalarOutput {
    Arg value;
    int at;
} ScalarOutput;

enum { LOOP_MAX_TURNS = 1 << 24 }; /* of qkv.loop: more is taken for a loop that never ends */

struct Graph {
    Arena *arena;
    ExprPool *ex;
    Node *first, *last;
    int nnodes, nvalues, next_id;
    Value **input;
    int ninput; /* user inputs, tensors, in flattened order */
    ScalarInput *scalar_input;
    int nscalar_input;
    Value **weight;
    int nweight;
    Output *output;
    int noutput;
    ScalarOutput *scalar_output;
    int nscalar_output;
    Mutation *mutation;
    int nmutation;
    Mutation *input_mutation;
    int ninput_mutation; /* for writers: a run leaves the caller's tensors as they are */
    Require *require;
    int nrequire;
    Map names;           /* value name -> Value* */
    Map modules;         /* stack, or path without one -> Module* */
    const Module *module; /* of the nodes that are added; NULL: that of the node before which one is added */
    struct Body *bodies; /* of arguments: freed with the graph */
    bool core;           /* a .pt2 of it holds ops of ATen's core alone */
    /* How Python calls the model, as JSON text for writers; each may be NULL: pytrees of arguments and results,
     * the list of forward's argument names, the fields of named tuples. */
    const char *in_spec, *out_spec, *forward_args, *namedtuples;
};

Graph *graph_create(void); /* NULL when out of memory */
void graph_free(Graph *g);

/* Arguments. */
Arg arg_none(void);
Arg arg_value(Value *v);
Arg arg_values(Graph *g, int n, Value *const *vs);
Arg arg_expr(Expr *e);
Arg arg_exprs(Graph *g, int n, Expr *const *es);
Arg arg_int(Graph *g, int64_t v);
Arg arg_ints(Graph *g, int n, const int64_t *v);
Arg arg_float(Graph *g, double v);
Arg arg_bool(Graph *g, bool v);
Arg arg_dtype(DType t);
Arg arg_str(Graph *g, const char *s);
Arg arg_graph(Graph *g, Graph *body); /* g owns the body from now on; none when out of memory (the body is freed) */
bool arg_same(const Arg *a, const Arg *b);
/* False for an argument that could not be built: no memory, or an expression over its limit. */
bool arg_built(const Arg *a);

/* args in the form that the schema promises, defaults filled in; out has op->schema->nparams elements.
 * Errors name the argument. */
bool op_fit_args(Graph *g, const Op *op, int nargs, const Arg *args, Arg *out, Err *err);

Value *graph_add_input(Graph *g, const char *name, DType t, int rank, Expr *const *dim);
/* Symbols that nothing gives a value yet are bound by the first input that has them as a size, else by the first one
 * with a size in which they are: 14*s1 is solved. */
bool graph_bind_sizes(Graph *g, Err *err);
Value *graph_add_weight(Graph *g, const char *name, const char *fqn, const Tensor *data);
/* Appends a node; args in schema order, missing trailing ones take their defaults. The shape function (graph_infer)
 * gives the outputs. `name`: of the first output; made unique with a suffix; NULL = the op's own name.
 * NULL on error, err names node and argument. */
Node *graph_add(Graph *g, OpId op, int nargs, const Arg *args, const char *name, Err *err);
/* The same, placed before `at` (NULL = at the end). */
Node *graph_add_before(Graph *g, Node *at, OpId op, int nargs, const Arg *args, const char *name, Err *err);
/* The same without inference, for copies of a checked graph: args are the schema's, in g's arena;
 * node_set_out declares each of the results. */
Node *graph_add_declared(Graph *g, const Op *op, Arg *args, int nout, const char *name, Err *err);
/* The module of this path, made at its first use; both texts are copied. stack may be NULL. NULL when out of memory. */
const Module *graph_module(Graph *g, const char *path, const char *stack);
/* The size that is called `from` is called `to` from now on, in what is required of it, too. E_USAGE: expr.h. */
bool graph_rename_size(Graph *g, const char *from, const char *to, Err *err);
#define SIZE_NAMES "qkv_sizes.json" /* extra file of a .pt2: what its sizes are called, {"s43": "batch"} */
#define RANGE_OF "range of "        /* begins Require.where of a declared range, before the expression's text */
/* Declares output k of node n, for shape functions. */
bool node_set_out(Graph *g, Node *n, int k, DType t, int rank, Expr *const *dim, Err *err);
bool graph_set_nout(Graph *g, Node *n, int nout, Err *err);
/* The first result of n, which has one, becomes another value; name NULL: it takes over the name. Who used the old
 * value still does. */
bool node_new_result(Graph *g, Node *n, const char *name, DType t, int rank, Expr *const *dim, Err *err);
/* The outputs of a node from its arguments, for graph_add: the one function of ir/ that shape/ has (shape/infer.c). */
bool graph_infer(Graph *g, Node *n, Err *err);
bool graph_require(Graph *g, Expr *cond, Err *err, const char *fmt, ...)
    QKV_PRINTF(4, 5); /* folds true; E_FORMAT on provably false */
/* Sizes that are required to be equal are one from now on. Of `s22 + s98 == s98 + s1` s22 is gone: the axes of inputs
 * are checked against s1 in place of the requirement. Of `u0 == s1`, read from data, the requirement stays, and s1
 * stands wherever u0 did. also: more requirements, which the graph does not have yet. */
bool graph_unify_sizes(Graph *g, Require *also, int *nalso, Err *err);

bool graph_add_output(Graph *g, const char *name, Value *v, Err *err);
const char *output_label(const Output *o);                            /* label, or name */
int graph_find_output(const Graph *g, const char *name);              /* by its name or label; -1: none has it */
bool graph_add_mutation(Graph *g, Value *target, Value *v, Err *err); /* of a weight, or of an input */
const char *value_label(const Value *v);                              /* label, or name */
int graph_mutations(const Graph *g);                                  /* of weights, then of inputs */
const Mutation *graph_mutation(const Graph *g, int i);
bool graph_writes(const Graph *g,
                  const Value *v); /* does a run, or a training session between runs, change this weight? */
/* The first of the names that this weight has: parameters of one form in the same memory are one parameter. */
Value *graph_first_name(const Graph *g, const Value *weight);
bool graph_first_names(const Graph *g, Value **first); /* the same of all g->nweight. False: no memory */
bool graph_same_parameter(const Graph *g, const Value *a, const Value *b); /* names of one */
/* Weights that no run changes by the memory that they show: the number of the first that shows what t shows, read in
 * the same way; -1: none. `first` begins as {0}; lookup_free. False: no memory, nothing to free. */
bool graph_weights_by_memory(const Graph *g, Lookup *first);
int graph_weight_that_shows(const Graph *g, const Lookup *first, const Tensor *t);
/* first[i], of g->nweight: the first weight with the content of weight i where no run changes either, else itself;
 * `constants`: of constants of 4 KiB at most alone. What a model makes again at every call, as torch.tensor(False),
 * stands in its file once for each. False: no memory. */
bool graph_equal_weights(const Graph *g, bool constants, Value **first);
bool graph_merge_constants(Graph *g); /* the first of them is read in place of the others. False: no memory */
/* tied[i], of g->nweight: does an earlier weight have the memory and number of elements of weight i? False: no
 * memory. */
bool graph_tied_weights(const Graph *g, bool *tied);
/* Is output k the gradient of a parameter whose gradient an earlier output is, under another name? */
bool graph_repeats_gradient(const Graph *g, int k);
/* Gives v this name; a value that had it takes v's old one. */
bool graph_rename(Graph *g, Value *v, const char *name, Err *err);
Value *graph_find_value(const Graph *g, const char *name);
void graph_each_operand(Graph *g, void (*f)(void *user, Value **slot), void *user); /* of nodes, outputs and others */
void graph_replace_uses(Graph *g, Value *from, Value *to);                          /* in all of them */
/* The same where the nodes that use it come at or after `at`;
 * stops when it has found so many `uses` (as graph_count_uses counts them). */
void graph_replace_uses_after(Graph *g, Value *from, Value *to, Node *at, int uses);
/* Whoever reads v reads by[v->id] from now on, where that is not NULL. */
void graph_replace_all(Graph *g, Value **by);
void graph_remove(Graph *g, Node *n);                /* unlinks; its outputs must not be used */
void graph_link_before(Graph *g, Node *n, Node *at); /* links a node that was removed again, NULL = at the end */
bool graph_sort(Graph *g, Err *err); /* operands before their users, otherwise in the order that there is */
int graph_dce(Graph *g);             /* removes unused pure nodes; how many */
/* aten.detach becomes its operand: only gradients, which are made of the graph as it was imported, look at it.
 * How many there were. */
int graph_drop_detach(Graph *g);
/* Count of uses per value id (nodes, outputs, what outputs are gradients of, mutations),
 * in the caller's array of g->next_id ints. */
void graph_count_uses(const Graph *g, int *uses);
/* Weights that have lost their last use, and those with ids from `fresh` on that have none, leave the graph. used: uses
 * by id, before. */
bool graph_drop_weights(Graph *g, const int *used, int fresh, Err *err);
/* Calls f for each Value* operand of a node (lists flattened, NULLs skipped); f may replace it. */
void node_each_operand(Node *n, void (*f)(void *user, Value **slot), void *user);

/* Text: prints, parses back to the same text (src/ir/text.c). Weights print as name, dtype, shape, fqn;
 * data is looked up by fqn with `weights` when parsing (may be NULL if the text has none). */
void graph_print(const Graph *g, Buf *out);
void graph_print_node(const Graph *g, const Node *n, Buf *out); /* its line */
typedef const Tensor *WeightFn(void *user, const char *fqn);
Graph *graph_parse(const char *text, WeightFn *weights, void *user, Err *err);
/* The same for a text that is not trusted. Shape inference takes arguments for what lowering makes of them;
 * `make` lowers a call, gives its results (at most 64) and may refuse it. */
typedef bool MakeFn(Graph *g, const Op *op, const Arg *arg, const char *name, Value **out, int *nout, Err *err);
Graph *graph_parse_checked(const char *text, WeightFn *weights, void *user, MakeFn *make, Err *err);
/* SSA, order, arity, types; false names the first violation, or says that memory was refused since mem_begin: what was
 * made without it may lack a name, an operand or a condition. */
bool graph_check(const Graph *g, Err *err);
#endif
