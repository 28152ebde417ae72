/* Registered ops: is a schema one, and the rows that they take. Contract in own.h. */
#include "op/own.h"
#include <string.h>
#include "base/number.h"
#include "op/schema.h"

enum { FIRST = OP_own_0, ROWS = OP_own_31 - OP_own_0 + 1 };
static OwnOp own[ROWS];
static char names[ROWS][OWN_NAME + 20], schemas[ROWS][OWN_SCHEMA + 1];

static const char *word_end(const char *s)
{
    while (is_alnum(*s) || *s == '_') s++;
    return s;
}

/* "my", or the "com.acme" of an ONNX domain. */
static const char *space_end(const char *s)
{
    const char *end = word_end(s);
    while (end > s && *end == '.' && word_end(end + 1) > end + 1) end = word_end(end + 1);
    return end;
}

/* "my::twice", "my::twice.out" -> "my.twice.default", "my.twice.out"; false: it is another text. */
static bool spelled(const char *name, char *out)
{
    const char *op = strstr(name, "::"), *overload = op ? strchr(op, '.') : NULL;
    if (!op || strlen(name) > OWN_NAME || space_end(name) != op || op == name) return false;
    const char *end = word_end(op + 2);
    if (end == op + 2 || *end != (overload ? '.' : '\0') || (overload && (*word_end(overload + 1) || !overload[1])))
        return false;
    size_t space = (size_t)(op - name), base = (size_t)(end - op - 2);
    memcpy(out, name, space);
    out[space] = '.';
    memcpy(out + space + 1, op + 2, base);
    strcpy(out + space + 1 + base, overload ? overload : ".default");
    return true;
}

/* One "Type name" or "Type name=default", up to what ends it; NULL: it is none. */
static const char *parameter(const char *s, bool *tensor)
{
    static const char *const types[] = {"Tensor[]", "Tensor?", "Tensor",  "SymInt[]", "SymInt", "int[]", "int",
                                        "float[]",  "float",   "Scalar?", "Scalar",   "bool",   "str"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t n = strlen(types[i]);
        if (strncmp(s, types[i], n) || (s[n] == '?' && types[i][n - 1] == '?')) continue;
        s += n;
        if (*s == '?') s++; /* int?, float[]? */
        if (*s++ != ' ') return NULL;
        const char *name = s;
        s = word_end(s);
        if (s == name) return NULL;
        *tensor = *types[i] == 'T';
        if (*s != '=') return s;
        s++;
        if (*s == '"' || *s == '\'') {
            const char *close = strchr(s + 1, *s);
            return close ? close + 1 : NULL;
        }
        if (*s == '[') {
            const char *close = strchr(s, ']');
            return close && !memchr(s + 1, '[', (size_t)(close - s - 1)) ? close + 1 : NULL;
        }
        const char *begin = s;
        while (is_alnum(*s) || *s == '.' || *s == '-' || *s == '+' || *s == '_') s++;
        return s > begin ? s : NULL;
    }
    return NULL;
}

static bool results(const char *s)
{
    if (!strcmp(s, "Tensor")) return true;
    if (*s++ != '(') return false;
    for (int n = 0;; n++) {
        if (strncmp(s, "Tensor", 6)) return false;
        s += 6;
        if (!strcmp(s, ")")) return n > 0;
        if (strncmp(s, ", ", 2)) return false;
        s += 2;
    }
}

/* "(Tensor x, *, float by=2.0) -> Tensor": tensors in, tensors out. NULL: it is one; otherwise where it is not. */
static const char *wrong(const char *s)
{
    int n = 0;
    bool tensor, any = false;
    if (*s != '(') return s;
    s++;
    while (*s != ')') {
        const char *at = s;
        if (*s == '*' && s[1] == ',') s++;
        else if (!(s = parameter(s, &tensor)) || ++n > OWN_PARAMS) return at;
        else any |= tensor;
        if (*s != ')' && strncmp(s, ", ", 2)) return at;
        if (*s == ',') s += 2;
    }
    if (!any || strncmp(s, ") -> ", 5)) return s;
    return results(s + 5) ? NULL : s + 5;
}

const Op *op_register(const char *name, const char *schema, const OwnOp *given, Err *err)
{
    char text[OWN_NAME + 20];
    if (!spelled(name, text))
        return fail(err, E_USAGE, "'%.100s': expected a name like my::op, of at most %d characters", name, OWN_NAME),
               NULL;
    const char *at = strlen(schema) > OWN_SCHEMA ? schema : wrong(schema);
    if (at)
        return fail(err, E_USAGE,
                    "'%s': near '%.40s' its schema is not one: expected tensors, numbers and strings, and tensors as "
                    "results, as in \"(Tensor x, float by=2.0) -> Tensor\"",
                    name, at),
               NULL;
    if (given->gradient && !spelled(given->gradient, (char[OWN_NAME + 20]){0}))
        return fail(err, E_USAGE, "'%s': its gradient '%.100s' is not a name like my::op_backward", name,
                    given->gradient),
               NULL;
    op_table_lock();
    int k = 0;
    while (k < ROWS && *names[k]) k++;
    bool free = k < ROWS && !op_find_locked(text);
    if (free) {
        strcpy(names[k], text);
        strcpy(schemas[k], schema);
        own[k] = *given;
        op_table_fill((OpId)(FIRST + k), names[k], schemas[k]);
    }
    op_table_unlock();
    if (free) return op_get((OpId)(FIRST + k));
    if (k < ROWS) fail(err, E_USAGE, "'%s': there is an op of that name already", name);
    else fail(err, E_LIMIT, "'%s': %d ops are registered, the most there can be", name, ROWS);
    return NULL;
}

const OwnOp *op_own(const Op *op)
{
    return op->flags & OPF_OWN && *names[op->id - FIRST] ? &own[op->id - FIRST] : NULL;
}

const Op *op_find_own(const char *name)
{
    char text[OWN_NAME + 20];
    return spelled(name, text) ? op_find(text) : NULL;
}
