/* qkv_model_extract and the weights of a model. */
#include <stdlib.h>
#include <string.h>
#include "api/api_impl.h"
#include "extract/extract.h"

_Static_assert((int)QKV_PARAMETER == (int)W_PARAMETER && (int)QKV_BUFFER == (int)W_BUFFER &&
                   (int)QKV_CONSTANT == (int)W_CONSTANT,
               "kinds agree");

qkv_model *qkv_model_extract(const qkv_model *m, const char *const *from, int n_from, const char *const *to, int n_to,
                             qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(m) || !GIVEN_TEXTS(from, n_from) || !GIVEN_TEXTS(to, n_to)) return api_null(&e, err);
    Graph *g = graph_extract(m->program.graph, from, n_from, to, n_to, &e);
    qkv_model *cut = g ? api_model_of(g, m->path, m, &e) : NULL;
    if (api_whole(cut != NULL, &e)) return cut;
    qkv_model_free(cut);
    return api_null(&e, err);
}

int qkv_model_weight_count(const qkv_model *m) { return m ? m->program.graph->nweight : 0; }

const char *qkv_model_weight(const qkv_model *m, int i, qkv_tensor *out, qkv_weight_kind *kind, int *persistent)
{
    if (!m || i < 0 || i >= m->program.graph->nweight) return NULL;
    const Graph *g = m->program.graph;
    const Value *v = g->weight[i];
    if (out)
        *out = (qkv_tensor){(qkv_dtype)v->data->dtype, v->data->rank, v->data->shape, v->data->stride, v->data->data};
    if (kind) *kind = (qkv_weight_kind)v->weight;
    if (persistent) *persistent = v->weight == W_BUFFER && v->persistent;
    return v->fqn ? v->fqn : v->name;
}
