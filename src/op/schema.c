/* The op table in memory: rows of ops.def, their schemas parsed once.
 *
 * Schema grammar (torchgen's, as str(op._schema) prints it):
 *   (Tensor self, int[2] stride=[1, 1], *, Scalar alpha=1, ScalarType? dtype=None) -> (Tensor, Tensor)
 */
#include "op/own.h"
#include "op/schema.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/map.h"
#include "base/number.h"

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
#define OP(id_, name_, schema_, ...) [OP_##id_] = {__VA_ARGS__.id = OP_##id_, .name = name_, .schema_text = schema_},
#include "op/ops.def"
};
/* All of them together are no longer than the rows' strings, and no parameter has fewer than 6 characters ("int a,"):
 * room that cannot be refused. */
enum {
    TEXT = 0
#define OP(id, name, schema, ...) +sizeof schema
#include "op/ops.def"
    ,
    SLOTS = 4096 /* by name */
};
_Static_assert(OP_COUNT < SLOTS / 2, "the table of names is sparse");
static Schema schemas[OP_COUNT];
static Param params[TEXT / 6 + 32 * OWN_PARAMS]; /* and those of registered ops, of which there are 32 rows */
static char texts[TEXT + 32 * OWN_SCHEMA];
static const Op *by_name[SLOTS];
static size_t nparams, ntext;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_rwlock_t names_lock = PTHREAD_RWLOCK_INITIALIZER;

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
        {"Tensor", PT_TENSOR, PT_TENSORS},    {"int", PT_INT, PT_INTS},          {"SymInt", PT_INT, PT_INTS},
        {"float", PT_FLOAT, PT_FLOATS},       {"SymFloat", PT_FLOAT, PT_FLOATS}, {"bool", PT_BOOL, PT_BOOLS},
        {"SymBool", PT_BOOL, PT_BOOLS},       {"Scalar", PT_SCALAR, PT_SCALARS}, {"str", PT_STR, PT_IGNORED},
        {"ScalarType", PT_DTYPE, PT_IGNORED}, {"Graph", PT_GRAPH, PT_IGNORED},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == n && !strncmp(name, types[i].name, n)) return list ? types[i].many : types[i].one;
    return PT_IGNORED;
}

static const char *copied(const char *s, size_t n)
{
    char *p = texts + ntext;
    memcpy(p, s, n); /* its end is there: all is zero */
    ntext += n + 1;
    return p;
}

/* One "Type name=default", up to the ',' or ')' that ends it. */
static void parse_param(const char **s, bool kwonly, Param *p)
{
    *p = (Param){.kwonly = kwonly};
    const char *type = *s;
    while (is_alnum(**s) || **s == '_' || **s == '.') ++*s;
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
        p->fixed_len = (int)parse_int(*s, NULL);
        while (**s != ']') ++*s;
        ++*s;
        if (**s == '(') {
            while (**s != ')') ++*s;
            ++*s;
        }
    }
    p->holes = inner_optional && list;
    p->optional = starts(s, "?") || (inner_optional && !list);
    p->type = type_of(type, n, list);
    while (**s == ' ') ++*s;
    const char *name = *s;
    while (is_alnum(**s) || **s == '_') ++*s;
    p->name = copied(name, (size_t)(*s - name));
    if (starts(s, "=")) {
        const char *def = *s;
        int depth = 0;
        for (char quote = 0; **s && (quote || depth || (**s != ',' && **s != ')')); ++*s) {
            if (quote) quote = **s == quote ? 0 : quote;
            else if (**s == '"' || **s == '\'') quote = **s;
            else depth += **s == '[' ? 1 : **s == ']' ? -1 : 0;
        }
        p->def = copied(def, (size_t)(*s - def));
    }
}

static const struct {
    const char *op, *param, *names[8]; /* NULL at the end */
} choices[] = {
#define CHOICE(op, param, ...) {op, param, {__VA_ARGS__}},
#include "op/choices.def"
#undef CHOICE
};

static const char *const *choices_of(const char *op, const Param *p)
{
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if ((p->type == PT_INT || p->type == PT_STR) && !strcmp(choices[i].param, p->name) &&
            (!*choices[i].op || !strcmp(choices[i].op, op)))
            return choices[i].names;
    return NULL;
}

static void parse_schema(const char *op, const char *text, Schema *schema)
{
    schema->params = params + nparams;
    const char *s = text + 1;
    bool kwonly = false;
    while (*s && *s != ')') {
        if (starts(&s, ", ")) continue;
        if (*s == '*') {
            kwonly = true;
            s++;
            continue;
        }
        Param *p = &schema->params[schema->nparams++];
        parse_param(&s, kwonly, p);
        p->choices = choices_of(op, p);
    }
    nparams += (size_t)schema->nparams;
    s = strstr(s, "->");
    schema->returns_list = strstr(s, "[]") != NULL;
    if (!strstr(s, "()")) {
        schema->nreturns = 1;
        for (s += 2; *s; s++) schema->nreturns += *s == ',';
    }
}

/* Where the op of this name is, or would be. */
static const Op **slot_of(const char *name)
{
    size_t k = hash_bytes(name, strlen(name)) % SLOTS;
    while (by_name[k] && strcmp(by_name[k]->name, name)) k = (k + 1) % SLOTS;
    return &by_name[k];
}

/* In a child of fork() no thread is left that could give the lock back. */
static void before_fork(void) { pthread_rwlock_wrlock(&names_lock); }
static void in_parent(void) { pthread_rwlock_unlock(&names_lock); }
static void in_child(void) { names_lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER; }

static void load(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
    for (int i = OP_NONE + 1; i < OP_COUNT; i++) {
        parse_schema(table[i].name, table[i].schema_text, &schemas[i]);
        table[i].schema = &schemas[i];
        if (!(table[i].flags & OPF_OWN)) *slot_of(table[i].name) = &table[i];
        if (!table[i].cost) table[i].cost = table[i].flags & OPF_VIEW ? 1 : 50;
    }
}

const Op *op_get(OpId id)
{
    pthread_once(&once, load);
    return &table[id];
}

const char *op_base(const Op *op, size_t *n)
{
    const char *base = strchr(op->name, '.') + 1;
    for (const char *dot; op->flags & OPF_OWN && (dot = strchr(base, '.')) && strchr(dot + 1, '.');)
        base = dot + 1; /* an ONNX domain has dots */
    *n = strcspn(base, ".");
    return base;
}

void op_table_lock(void)
{
    pthread_once(&once, load);
    pthread_rwlock_wrlock(&names_lock);
}

void op_table_unlock(void) { pthread_rwlock_unlock(&names_lock); }

const Op *op_find_locked(const char *name) { return *slot_of(name); }

void op_table_fill(OpId id, const char *name, const char *schema)
{
    Op *op = &table[id];
    schemas[id] = (Schema){0};
    op->name = name;
    op->schema_text = schema;
    parse_schema(name, schema, &schemas[id]);
    *slot_of(name) = op;
}

const Op *op_find(const char *name)
{
    pthread_once(&once, load);
    if (!strncmp(name, "torch.ops.", 10)) name += 10;
    pthread_rwlock_rdlock(&names_lock);
    const Op *op = *slot_of(name);
    pthread_rwlock_unlock(&names_lock);
    return op;
}

int op_param(const Op *op, const char *name)
{
    for (int i = 0; i < op->schema->nparams; i++)
        if (!strcmp(op->schema->params[i].name, name)) return i;
    return -1;
}
