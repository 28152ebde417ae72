/* Weights that are read transposed and in no other way are stored that way, as torch.onnx stores them. Quantizers of
 * other tools look for products that read an initializer, and runtimes for products that DequantizeLinear feeds.
 *
 *     w (N, K) -> DequantizeLinear(axis=0) -> Transpose -> MatMul
 *     w (K, N) -> DequantizeLinear(axis=1) -> MatMul               w's metadata says so: our reader gives (N, K) again
 */
#include <string.h>
#include "onnx/write/write_impl.h"

typedef struct Turning {
    Onnx *o;
    Map turned, other; /* names that are read transposed, perhaps cast or dequantized first; in any other way */
    Map stored;        /* names that stand for transposed matrices now */
    Map instead;       /* result of a Transpose that is gone -> what its readers take */
    bool ok;
} Turning;

static void put(Turning *t, Map *m, const char *name, const void *value)
{
    t->ok = t->ok && map_put(m, name, (void *)(uintptr_t)value);
}

static OnnxAttr *find_attr(const OnnxNode *n, const char *name)
{
    for (int i = 0; i < n->nattr; i++)
        if (!strcmp(n->attr[i].name, name)) return &n->attr[i];
    return NULL;
}

static bool transposes(const OnnxNode *n)
{
    const OnnxAttr *perm = strcmp(n->op, "Transpose") ? NULL : find_attr(n, "perm");
    return perm && perm->n == 2 && perm->ints[0] == 1;
}

/* May what it reads be transposed instead of what it gives? Not by blocks: ONNX Runtime makes such a product one that
 * rounds what it multiplies with to 8 bits, unless a session is told otherwise. */
static bool passes(const OnnxNode *n)
{
    return !strcmp(n->op, "Cast") || (!strcmp(n->op, "DequantizeLinear") && !find_attr(n, "block_size"));
}

static bool only_turned(const Turning *t, const char *name)
{
    return map_has(&t->turned, name) && !map_has(&t->other, name);
}

/* Readers come after what they read. */
static void look_at_readers(Turning *t, const OnnxValueInfo *output, int noutput)
{
    Onnx *o = t->o;
    for (int i = 0; i < o->ninput; i++) put(t, &t->other, o->input[i].name, o);
    for (int i = 0; i < noutput; i++) put(t, &t->other, output[i].name, o);
    Map results = {0};
    for (int i = 0; i < noutput; i++) put(t, &results, output[i].name, o);
    for (int i = o->nnode - 1; t->ok && i >= 0; i--) {
        const OnnxNode *n = &o->node[i];
        bool turns = transposes(n) && !map_has(&results, n->output[0]);
        if (!turns && !(passes(n) && only_turned(t, n->output[0]))) t->ok = put_uses(&t->other, n, o);
        else put(t, &t->turned, n->input[0], o);
        for (int k = 1; k < n->ninput; k++) put(t, &t->other, n->input[k], o); /* scales, zero points */
    }
    map_free(&results);
}

static void store(OnnxTensor *x)
{
    static OnnxPair word = {ONNX_TRANSPOSED_KEY, "1"};
    Tensor *t = &x->t;
    const int64_t size = t->shape[0], stride = t->stride[0];
    t->shape[0] = t->shape[1];
    t->stride[0] = t->stride[1];
    t->shape[1] = size;
    t->stride[1] = stride;
    x->metadata = &word;
    x->nmetadata = 1;
}

static void turn_info(Onnx *o, const char *name)
{
    for (int i = 0; i < o->ninfo; i++) {
        OnnxTypeProto *type = &o->info[i].type;
        if (type->rank != 2 || strcmp(o->info[i].name, name)) continue;
        const OnnxDim first = type->dim[0];
        type->dim[0] = type->dim[1];
        type->dim[1] = first;
    }
}

/* Its input is transposed now. */
static void turn_node(Turning *t, OnnxNode *n)
{
    OnnxAttr *axis = find_attr(n, "axis");
    if (axis) axis->i = axis->i == 0 || axis->i == -2;
    turn_info(t->o, n->output[0]);
    put(t, &t->stored, n->output[0], t->o);
}

static void read_instead(const Turning *t, OnnxNode *n)
{
    for (int i = 0; i < n->ninput; i++) {
        const char *name = map_get(&t->instead, n->input[i]);
        if (name) n->input[i] = name;
    }
    for (int i = 0; i < n->nattr; i++) {
        OnnxGraph *body = n->attr[i].type == ONNX_ATTR_GRAPH ? n->attr[i].g : NULL;
        for (int k = 0; body && k < body->nnode; k++) read_instead(t, &body->node[k]);
    }
}

void store_transposed(Onnx *o, const OnnxValueInfo *output, int noutput)
{
    Turning t = {.o = o, .ok = true};
    look_at_readers(&t, output, noutput);
    for (int i = 0; t.ok && i < o->ninit; i++) {
        OnnxTensor *x = &o->init[i];
        if (x->t.rank != 2 || !only_turned(&t, x->name)) continue;
        store(x);
        put(&t, &t.stored, x->name, o);
    }
    for (int i = 0; t.ok && t.stored.count && i < o->nnode; i++) {
        OnnxNode *n = &o->node[i];
        bool there = n->ninput && map_has(&t.stored, n->input[0]);
        if (there && transposes(n)) put(&t, &t.instead, n->output[0], n->input[0]);
        else if (there && passes(n)) turn_node(&t, n);
        read_instead(&t, n);
    }
    if (!t.ok) out_of_memory(o);
    Map *maps[] = {&t.turned, &t.other, &t.stored, &t.instead};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) map_free(maps[i]);
}
