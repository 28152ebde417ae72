/* The table of ONNX ops. Contract in onnx_schema.h. */
#include "onnx/check/schema.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"

static const OnnxTypes type_sets[] = {
#define ONNX_TYPES(index, tensor, sequence, optional, optional_sequence, other)                                        \
    {tensor, sequence, optional, optional_sequence, other},
#include "onnx/check/schemas.def"
#undef ONNX_TYPES
};

static const OnnxSchema rows[] = {
#define ONNX_OP(domain, name, since, deprecated, min_in, max_in, min_out, max_out, in, out, attrs, types)              \
    {domain, name, since, deprecated, min_in, max_in, min_out, max_out, in, out, attrs, types},
#include "onnx/check/schemas.def"
#undef ONNX_OP
};
enum { ROWS = sizeof rows / sizeof *rows, SETS = sizeof type_sets / sizeof *type_sets };

static const char *const keys[] = {
#define ONNX_OP(domain, name, since, deprecated, min_in, max_in, min_out, max_out, in, out, attrs, types)              \
    domain ":" name,
#include "onnx/check/schemas.def"
#undef ONNX_OP
};

#define ONNX_LATEST(opset, ir) const int onnx_latest_opset = opset, onnx_latest_ir = ir;
#include "onnx/check/schemas.def"
#undef ONNX_LATEST

bool onnx_schemas(OnnxSchemas *s)
{
    *s = (OnnxSchemas){0};
    for (int i = 0; i < ROWS; i++)
        if (!map_has(&s->first, keys[i]) && !map_put(&s->first, keys[i], (void *)(uintptr_t)&rows[i])) return false;
    return true;
}

void onnx_schemas_free(OnnxSchemas *s) { map_free(&s->first); }

const OnnxSchema *onnx_schema(const OnnxSchemas *s, const char *domain, const char *name, int64_t opset, int *later)
{
    char key[160];
    *later = 0;
    if (snprintf(key, sizeof key, "%s:%s", domain, name) >= (int)sizeof key) return NULL;
    const OnnxSchema *first = map_get(&s->first, key), *found = NULL;
    if (!first) return NULL;
    *later = first->since;
    for (const OnnxSchema *r = first; r < rows + ROWS && !strcmp(r->name, name) && !strcmp(r->domain, domain); r++)
        if (r->since <= opset) found = r;
    return found;
}

/* The end of an item of a list that commas or spaces separate. */
static const char *item_end(const char *p, char between)
{
    const char *e = strchr(p, between);
    return e ? e : p + strlen(p);
}

bool onnx_param(const char *list, int i, OnnxParam *out)
{
    const char *p = list;
    if (!*p) return false;
    for (;; i--) {
        const char *e = item_end(p, ',');
        bool option = *p == '?' || *p == '*' || *p == '~';
        if (i <= 0 || (!*e && (*p == '*' || *p == '~'))) {
            out->option = option ? *p : ' ';
            p += option;
            snprintf(out->type, sizeof out->type, "%.*s", (int)(e - p), p);
            return true;
        }
        if (!*e) return false;
        p = e + 1;
    }
}

const OnnxTypes *onnx_types(const OnnxSchema *s, const char *type)
{
    size_t n = strlen(type);
    for (const char *p = s->types; *p;) {
        const char *e = item_end(p, ',');
        if (!strncmp(p, type, n) && p[n] == ':') {
            int at = (int)parse_int(p + n + 1, NULL);
            return at >= 0 && at < SETS ? &type_sets[at] : NULL;
        }
        p = e + (*e != 0);
    }
    return NULL;
}

bool onnx_schema_attr_at(const OnnxSchema *s, int i, char *out, char *kind, bool *required)
{
    for (const char *p = s->attrs; *p; i--) {
        const char *e = item_end(p, ' ');
        if (!i) {
            *required = *p == '!';
            p += *required;
            *kind = e[-1];
            snprintf(out, 64, "%.*s", (int)(e - p - 2), p);
            return true;
        }
        p = e + (*e != 0);
    }
    return false;
}

char onnx_schema_attr(const OnnxSchema *s, const char *name, bool *required)
{
    char at[64], kind;
    for (int i = 0; onnx_schema_attr_at(s, i, at, &kind, required); i++)
        if (!strcmp(at, name)) return kind;
    *required = false;
    return 0;
}
