/* What the files of src/pt2/read share. */
#ifndef QKV_PT2_READ_READ_IMPL_H
#define QKV_PT2_READ_READ_IMPL_H
#include "format/json.h"
#include "pt2/read/functional.h"
#include "pt2/read/read.h"

enum { MAX_SUBGRAPH_DEPTH = 32 };

/* What a name of the file stands for. */
typedef struct Slot {
    enum {
        SLOT_TENSOR,
        SLOT_NUMBER,
        SLOT_OTHER
    } kind;   /* SLOT_OTHER: a result that is not computed here, as random state of attention */
    Ref *ref; /* SLOT_TENSOR */
    Expr *e;  /* SLOT_NUMBER */
} Slot;

/* One graph of the file: the outer one, or a subgraph that is inlined. */
typedef struct Scope {
    struct Scope *outer;
    Map names; /* name -> Slot */
    const json_t *graph, *tensor_values, *sym_int_values, *sym_bool_values, *sym_float_values;
    int depth;
} Scope;

typedef struct Import {
    Source *pt2;
    Graph *g;
    DType compute;
    Map weights, constants; /* state-dict name -> const Tensor */
    Map aligned;            /* entry name -> its copy */
    Require *guard;         /* as read, for require_guards; where: its text */
    int nguard;
    const SourceWatch *watch; /* NULL: the first problem ends the import */
    int nresults;             /* outputs so far, without gradients */
    int nnumbers;             /* those that are numbers */
    bool misdeclared;         /* a declared rank was known to be wrong: those of later results follow from it */
    bool integers_stay;       /* nothing in the file writes a tensor of integers in place */
    int regions;              /* of forward derivatives so far */
    bool in_region;
    bool in_body;             /* g is what a loop or branch of the file's graph runs */
    Err *err;
} Import;

/* A SymInt / SymFloat / SymBool object, or a name in `scope`. */
bool read_sym(Import *im, const json_t *v, Expr **out);
/* A constant: an integer, a float ("Infinity", "-Infinity" and "NaN" too), a truth value. */
bool read_number(Import *im, const json_t *v, Expr **out);
bool read_meta(Import *im, const json_t *meta, DType *t, int *rank, Expr **dim);
/* The scope of a graph in a graph: its names see those around it. holder: what "graph" stands in. */
bool scope_open(Import *im, Scope *around, const json_t *holder, Scope *inner, json_t **placeholders, json_t **results);
Slot *scope_find(const Scope *s, const char *name);
bool scope_put(Import *im, Scope *s, const char *name, Slot slot);
/* signature.c */
bool add_input(Import *im, Scope *s, const json_t *spec);
bool add_outputs(Import *im, Scope *s, const json_t *specs);
/* The labels of outputs, from out_spec; fields: of namedtuples. */
bool label_outputs(Import *im, const json_t *fields);
bool add_writes(Import *im, Scope *s);
/* nodes.c */
bool import_nodes(Import *im, Scope *s);
/* The nodes of a graph, in order. */
typedef struct NodeList {
    const json_t **at; /* NULL: read already, by vmap_region */
    size_t *end, n;    /* where a vmap begins: the node after it; 0: it never ends */
} NodeList;
bool node_list(NodeList *out, const json_t *nodes, Err *err); /* vmap.c; node_list_free in any case */
void node_list_free(NodeList *l);
bool import_range(Import *im, Scope *s, const NodeList *nodes, size_t from, size_t to);
bool find_missing_ops(Import *im, const json_t *graph);
/* control.c: ops that choose among graphs or repeat one; -1: it is none of them */
int control_find(const char *target);
bool control_node(Import *im, Scope *s, const json_t *node, int which);
/* vmap.c: calls that torch.vmap leaves in a graph */
typedef enum VmapCall { VMAP_NONE, VMAP_LOAD, VMAP_BEGIN, VMAP_ADD, VMAP_REMOVE, VMAP_END } VmapCall;
VmapCall vmap_call(const char *target);
/* The nodes from a VMAP_BEGIN to the end of its region; *next: the node after it. */
bool vmap_region(Import *im, Scope *s, const NodeList *nodes, size_t at, size_t end, size_t *next);
/* dual.c: calls that torch.func.jvp and torch.autograd.forward_ad leave in a graph; -1: it is none of them */
int dual_find(const char *target);
bool dual_node(Import *im, Scope *s, const json_t *node, int which);
/* lines.c: of the nodes made since `mark`, the graph's next_id before the file's node was read */
bool note_line(Import *im, const json_t *node, int mark);
/* guards.c */
bool import_guards(Import *im, const json_t *guards);
bool require_guards(Import *im);
#endif
