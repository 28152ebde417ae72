/* What the files of the public interface share. */
#ifndef QKV_API_IMPL_H
#define QKV_API_IMPL_H
#include "compile.h"
#include "qkv.h"

struct qkv_model {
    Program program;
    char *path;
    char ***input_dim; /* per input, per axis: text */
};

qkv_status api_give(const Err *from, qkv_error *to); /* hands an internal error out */
void *api_null(const Err *from, qkv_error *to);        /* the same, for who returns a pointer: NULL */
/* A model of a graph that was made here; takes the graph, in any case. like: whose file's versions it shows, and whose dtype
 * of products its runs have. */
qkv_model *api_model_of(Graph *g, const char *name, const qkv_model *like, Err *err);
struct Session *api_session(const qkv_session *s);
#endif
