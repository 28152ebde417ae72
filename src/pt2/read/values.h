/* What a node takes and gives, by its names in the file: arguments as values and numbers,
 * results declared and named. */
#ifndef QKV_PT2_READ_VALUES_H
#define QKV_PT2_READ_VALUES_H
#include "pt2/read/read_impl.h"

enum { MAX_OUT = 8 };

typedef struct NodeCall {
    const Op *op;
    Arg *arg;
    Ref *self;        /* the Ref of the first argument, if it is a tensor */
    int nnames;       /* how many results the file names */
    int mark;         /* values made by this node have ids from here */
    bool other_dtype; /* as in Lower */
    bool writes_results;
    Ref *out[MAX_OUT]; /* of an op with out=: what its results are written to */
    int nout;
    const json_t *inputs; /* of the node in the file; may be NULL */
} NodeCall;

Slot *scope_want(Import *im, Scope *s, const char *name); /* NULL: not defined before */
/* One argument of the file. *ref: the tensor's Ref where it is one. */
bool read_arg(Import *im, Scope *s, const json_t *v, Arg *out, Ref **ref);

/* The names of a node's tensor results: one as_tensors, or several as_tensor. */
int result_names(const json_t *outputs, const char **names, int cap);
const char *number_in(const json_t *out);       /* the name of a result that is a number; NULL */
const char *number_name(const json_t *outputs); /* of the first result */
/* What the file says that a number is; *out NULL when it says nothing. */
bool declared_number(Import *im, Scope *s, const char *name, Expr **out);
/* Gives a result its name in the file, unless an outer value has it. */
bool name_result(Import *im, Value *v, const char *name, int first_new_id);
/* Result number `which` of a node, named and put into the scope, if it is as the file declares it. */
bool take_result(Import *im, Scope *s, const NodeCall *c, const char *name, Value *v, int which);

/* memory.c */
/* Of as_strided: its operand becomes the memory that it is a view of, and its offset one from there. */
bool in_storage(Import *im, NodeCall *c);
/* v, result number `which` of a node, as a view of an operand where PyTorch gives one, which the file's strides decide;
 * else as a tensor of its own. NULL when out of memory. */
Ref *ref_of_result(Import *im, Scope *s, const NodeCall *c, Value *v, int which, const json_t *meta);

/* writes.c */
/* The pure form of an in-place op: aten.add_.Tensor -> aten.add.Tensor. NULL when the table has none. */
const Op *pure_form(const Op *op);
/* The op whose results an op with out= writes. inputs: of the node; NULL: any. NULL: it is none. */
const Op *out_form(const char *target, const json_t *inputs);
bool in_place(Import *im, Scope *s, const NodeCall *c, Lower *L, const char *name);
/* The results of c->op, lowered, are written to c->out, and are called names[]. */
bool write_results(Import *im, Scope *s, const NodeCall *c, Lower *L, const char *const *names, int n);
#endif
