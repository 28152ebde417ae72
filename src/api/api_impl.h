/* What the files of the public interface share. */
#ifndef QKV_API_API_IMPL_H
#define QKV_API_API_IMPL_H
#include "base/given.h"
#include "base/mem.h"
#include "base/versioned.h"
#include <stdatomic.h>
#include "onnx/write/write.h"
#include "rewrite/family.h"
#include "program/cache.h"
#include "program/program.h"
#include "team/team.h"
#include "qkv.h"
#include "qkv_tools.h"
#include "qkv_train.h"

struct qkv_model {
    Program program;
    Cached cached;
    char *path;
    char ***input_dim; /* per input, per axis: text */
};

/* What a tensor given out points into. */
typedef struct Shown {
    int64_t shape[MAX_RANK], stride[MAX_RANK];
} Shown;

struct qkv_session {
    const qkv_model *model;
    struct Session *session;
    TeamExecutor executor; /* run NULL: the pool's threads */
    struct Training *training; /* api_train.c; NULL: it runs only */
    Shown *output, *input;
    qkv_node_callback *on_node;
    void *on_node_user;
    qkv_output_memory *memory;
    void *memory_user;
    atomic_uintptr_t user; /* the thread that is in a call on this session; 0: none */
    int depth;             /* calls that it makes from inside that call */
    atomic_bool disturbed; /* another thread wanted in meanwhile, by a function that cannot say so */
};

/* api_use.c: every call on a session stands between the two. False, with the error: another thread is in one. */
bool api_enter(const qkv_session *s, Err *err);
void api_leave(const qkv_session *s);
/* For functions without a status: false makes the call that is under way an error. */
bool api_enter_silent(const qkv_session *s);
/* Leaves; the status and error of a call that went well or not. */
qkv_status api_done(const qkv_session *s, bool ok, Err *e, qkv_error *err);

/* Every call that can fail begins with it: no error, and no refusal of memory yet. */
static inline Err api_begin(void)
{
    mem_begin();
    return (Err){0};
}
/* Every call that makes something ends with it: what came out while memory was refused may be less than it should
 * be. */
static inline bool api_whole(bool ok, Err *e) { return ok && mem_ran_out() ? oom(e) : ok; }
qkv_status api_give(const Err *from, qkv_error *to);     /* hands an internal error out */
const OnnxProfile *api_onnx_profile(qkv_onnx_profile p); /* names.c; NULL: there is none */
/* names.c: the name of a choice was found; otherwise the error says that its enum does not have the value. */
bool api_known(const char *name, const char *choice, int value, Err *err);
void *api_null(const Err *from, qkv_error *to);          /* the same, for who returns a pointer: NULL */
void *api_no_memory(qkv_error *to);
/* A model of a graph that was made here; takes the graph, in any case. like: whose file's versions it shows, and
 * whose dtype of products its runs have. */
qkv_model *api_model_of(Graph *g, const char *name, const qkv_model *like, Err *err);
/* args.c: an argument of a node, in memory of the arena. */
bool api_declared(const Arg *a, ExprPool *ex, Arena *arena, qkv_op_arg *to, Err *err);
const char *api_expr_text(ExprPool *ex, const Expr *e, Arena *arena); /* NULL: out of memory */
/* rules.c: the functions that rules of the caller may name, as a family; api_rule_functions_free in any case. */
bool api_rule_functions(const qkv_rule_function *f, int n, Family *to, Err *err);
void api_rule_functions_free(Family *f);
/* A copy whose graph may be changed; see program_copy. */
qkv_model *api_model_copy(const qkv_model *m, Err *err);
bool api_input_texts(qkv_model *m, Err *err); /* the sizes of inputs as text, again after a size was renamed */
struct Session *api_session(const qkv_session *s);
bool api_tensor(const qkv_tensor *q, Tensor *t, Err *err);
void api_tensor_out(const Tensor *t, Shown *shown, qkv_tensor *q);
int api_find_input(const Graph *g,
                   const char *name); /* by name, or by position "0", "1", ...; -1: api_unknown_input says so */
bool api_unknown_input(const Graph *g, const char *name, Err *err);
/* api_train.c: what a session needs that was asked to train. */
bool api_training_create(qkv_session *s, const qkv_train_options *o, int threads, size_t memory_limit, Err *err);
void api_training_free(qkv_session *s);
#endif
