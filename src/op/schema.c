/* The op table in memory: rows of ops.def, their schemas parsed once.
 *
 * Schema grammar (torchgen's, as str(op._schema) prints it):
 *   (Tensor self, int[2] stride=[1, 1], *, Scalar alpha=1, ScalarType? dtype=None) -> (Tensor, Tensor)
 */
#include "op/op.h"
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/map.h"

/* Traits as rows write them. */
enum {
#define TRAIT(name) name = OPF_##name,
#include "op/traits.def"
#undef TRAIT
};

static Op table[OP_COUNT] = {
#define TRAITS(set) .flags = set,
#define SHAPE(f) .plain = true,
#define COST(n) .cost = n,
#define UNREAD(bits) .unread = bits,
#define ALIAS_OF(of) .alias_of = OP_##of,
#define OP(id_, name_, schema_, ...) [OP_##id_] = {__VA_ARGS__ .id = OP_##id_, .name = name_, .schema_text = schema_},
#include "op/ops.def"
};
static Map by_name;
static Arena *memory;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool starts(const char **s, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*s, word, n)) return false;
    *s += n;
    return true;
}

static ParamType type_of(const char *name, size_t n, bool list)
{
    static const struct {
        const char *name;
        ParamType one, many;
    } types[] = {
        {"Tensor", PT_TENSOR, PT_TENSORS}, {"int", PT_INT, PT_INTS},      {"SymInt", PT_INT, PT_INTS},
        {"float", PT_FLOAT, PT_FLOATS},    {"SymFloat", PT_FLOAT, PT_FLOATS}, {"bool", PT_BOOL, PT_BOOLS}, {"SymBool", PT_BOOL, PT_BOOLS},
        {"Scalar", PT_SCALAR, PT_SCALARS}, {"str", PT_STR, PT_IGNORED},   {"ScalarType", PT_DTYPE, PT_IGNORED},
        {"Graph", PT_GRAPH, PT_IGNORED},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == n && !strncmp(name, types[i].name, n)) return list ? types[i].many : types[i].one;
    return PT_IGNORED;
}

/* One "Type name=default", up to the ',' or ')' that ends it. */
static void parse_param(const char **s, bool kwonly, Param *p)
{
    *p = (Param){.kwonly = kwonly};
    const char *type = *s;
    while (isalnum((unsigned char)**s) || **s == '_' || **s == '.') ++*s;
    size_t n = (size_t)(*s - type);
    if (**s == '(') { /* alias annotation: (a), (a!), (a -> *) */
        p->aliased = true;
        while (**s != ')') {
            if (**s == '!') p->written = true;
            ++*s;
        }
        ++*s;
    }
    bool inner_optional = starts(s, "?"), list = false;
    if (**s == '[') {
        list = true;
        ++*s;
        p->fixed_len = (int)strtol(*s, NULL, 10);
        while (**s != ']') ++*s;
        ++*s;
        if (**s == '(') {
            while (**s != ')') ++*s;
            ++*s;
        }
    }
    p->optional = starts(s, "?") || (inner_optional && !list);
    p->type = type_of(type, n, list);
    while (**s == ' ') ++*s;
    const char *name = *s;
    while (isalnum((unsigned char)**s) || **s == '_') ++*s;
    p->name = arena_strndup(memory, name, (size_t)(*s - name));
    if (starts(s, "=")) {
        const char *def = *s;
        int depth = 0;
        for (char quote = 0; **s && (quote || depth || (**s != ',' && **s != ')')); ++*s) {
            if (quote) quote = **s == quote ? 0 : quote;
            else if (**s == '"' || **s == '\'') quote = **s;
            else depth += **s == '[' ? 1 : **s == ']' ? -1 : 0;
        }
        p->def = arena_strndup(memory, def, (size_t)(*s - def));
    }
}

static const Schema *parse_schema(const char *text)
{
    Param params[64];
    Schema *schema = arena_new(memory, Schema);
    const char *s = text + 1;
    bool kwonly = false;
    while (*s && *s != ')') {
        if (starts(&s, ", ")) continue;
        if (*s == '*') {
            kwonly = true;
            s++;
            continue;
        }
        parse_param(&s, kwonly, &params[schema->nparams++]);
    }
    schema->params = arena_array(memory, Param, schema->nparams + 1);
    memcpy(schema->params, params, (size_t)schema->nparams * sizeof *params);
    s = strstr(s, "->");
    schema->returns_list = strstr(s, "[]") != NULL;
    if (!strstr(s, "()")) {
        schema->nreturns = 1;
        int depth = 0;
        for (s += 2; *s; s++) {
            depth += *s == '(' ? 1 : *s == ')' ? -1 : 0;
            if (*s == ',') schema->nreturns++;
        }
    }
    return schema;
}

static void load(void)
{
    memory = arena_create(0);
    for (int i = OP_NONE + 1; i < OP_COUNT; i++) {
        table[i].schema = parse_schema(table[i].schema_text);
        if (!table[i].cost) table[i].cost = table[i].flags & OPF_VIEW ? 1 : 50;
        map_put(&by_name, table[i].name, &table[i]);
    }
}

const Op *op_get(OpId id)
{
    pthread_once(&once, load);
    return &table[id];
}

const Op *op_find(const char *name)
{
    pthread_once(&once, load);
    if (!strncmp(name, "torch.ops.", 10)) name += 10;
    return map_get(&by_name, name);
}

int op_param(const Op *op, const char *name)
{
    for (int i = 0; i < op->schema->nparams; i++)
        if (!strcmp(op->schema->params[i].name, name)) return i;
    return -1;
}
