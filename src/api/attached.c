/* A file's extra files, and what a graph does with an input: to prepare inputs. Contracts in include/qkv_tools.h. */
#include <string.h>
#include "api/api_impl.h"

void *qkv_model_extra_file(const qkv_model *m, const char *name, size_t *size, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(m) || !GIVEN(name) || !GIVEN(size)) return api_null(&e, err);
    Extras x;
    char *copy = NULL;
    bool found = false, ok = extras_open(&x, m->program.source, &e) || within(&e, "%s", m->path);
    for (int i = 0; ok && !found && i < x.n; i++)
        if (!strcmp(x.file[i].name, name)) {
            found = true;
            copy = mem_alloc((size_t)x.file[i].size + 1);
            if (!copy) break;
            memcpy(copy, x.file[i].bytes, (size_t)x.file[i].size);
            copy[x.file[i].size] = 0;
            *size = (size_t)x.file[i].size;
        }
    extras_close(&x);
    if (copy) return copy;
    if (found) oom(&e);
    else if (ok) fail(&e, E_USAGE, "%s: holds no '%s'", m->path, name);
    return api_null(&e, err);
}

/* The first table that values marked in `is` (by id) are looked up in; marks follow to other dtypes and shapes. */
static const Value *table_of(const Graph *g, unsigned char *is)
{
    for (const Node *n = g->first; n; n = n->next) {
        bool embedding = n->op->id == OP_embedding, select = n->op->id == OP_index_select;
        if (embedding || select) {
            const Value *table = n->arg[0].v;
            if (is[n->arg[embedding ? 1 : 2].v->id] && table->rank == 2 && table->dim[0]->kind == EX_INT) return table;
        } else if ((n->op->id == OP_to_copy || (n->op->flags & OPF_VIEW)) && n->arg[0].kind == ARG_VALUE)
            is[n->out[0]->id] = is[n->arg[0].v->id];
    }
    return NULL;
}

qkv_status qkv_model_input_table(const qkv_model *m, int i, const char **name, int64_t *rows, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(m) || !GIVEN(name) || !GIVEN(rows)) return api_give(&e, err);
    const Graph *g = m->program.graph;
    *name = NULL;
    *rows = 0;
    if (i < 0 || i >= g->ninput) {
        fail(&e, E_USAGE, "input %d: the model has %d inputs", i, g->ninput);
        return api_give(&e, err);
    }
    unsigned char *is = mem_zeroed((size_t)g->next_id + 1, 1);
    if (!is) {
        oom(&e);
        return api_give(&e, err);
    }
    is[g->input[i]->id] = 1;
    const Value *table = table_of(g, is);
    mem_free(is);
    if (table) {
        *name = table->fqn ? table->fqn : table->name;
        *rows = table->dim[0]->i;
    }
    return QKV_OK;
}
