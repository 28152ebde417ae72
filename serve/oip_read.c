/* Requests of the Open Inference Protocol. Contract in oip.h. */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/number.h"
#include "format/json.h"
#include "serve/oip.h"
#include "tensor/dtype.h"

/* ------------------------------------------------------------------ tensors as JSON */

json_t *request_json(const void *bytes, size_t size, const char *kept, Err *err)
{
    json_t *root = json_read_keeping(bytes, size, kept, "the body", err);
    if (!root && !mem_ran_out()) err->code = E_FORMAT;
    return root;
}

void *request_new(size_t size, Arena **own, Err *err)
{
    mem_begin();
    *own = arena_create(0);
    void *r = *own ? arena_alloc(*own, 1, size) : NULL;
    if (r) return r;
    oom(err);
    arena_destroy(*own);
    return NULL;
}

static bool wrong_value(JsonType t, size_t at, const Port *p, Err *err)
{
    return fail(err, E_USAGE, "input '%s': value %zu is %s, expected %s", p->name, at, json_type_name(t),
                dtype_is_float(p->dtype) ? "a number"
                : p->dtype == DT_BOOL    ? "true or false"
                                         : "an integer");
}

bool dtype_holds(DType t, int64_t v)
{
    int64_t bytes = 0;
    store_i64(t, &bytes, v);
    return load_i64(t, &bytes) == v && (t != DT_U64 || v >= 0);
}

static bool put_value(JsonType type, const char *text, size_t at, const Port *p, char *to, Err *err)
{
    to += at * dtype_size(p->dtype);
    bool is_integer = type == JSON_INTEGER;
    if (dtype_is_float(p->dtype)) {
        if (!is_integer && type != JSON_REAL) return wrong_value(type, at, p, err);
        store_f64(p->dtype, to, is_integer ? (double)parse_int(text, NULL) : parse_double(text, NULL));
        return true;
    }
    if (p->dtype == DT_BOOL) {
        if (type != JSON_TRUE && type != JSON_FALSE) return wrong_value(type, at, p, err);
        store_i64(p->dtype, to, type == JSON_TRUE);
        return true;
    }
    if (!is_integer) return wrong_value(type, at, p, err);
    int64_t i = parse_int(text, NULL);
    if (!dtype_holds(p->dtype, i))
        return fail(err, E_USAGE, "input '%s': value %zu is %lld, which %s does not hold", p->name, at, (long long)i,
                    oip_datatype(p->dtype));
    store_i64(p->dtype, to, i);
    return true;
}

/* The values of arrays of arrays, into `to` where there is one; how many they are. */
static bool each_value(const char *list, const Port *p, char *to, size_t *n, Err *err)
{
    JsonType type;
    const char *text;
    int depth = 0;
    for (*n = 0; json_kept_value(&list, &depth, &type, &text); ++*n) {
        if (type == JSON_STRING || type == JSON_OBJECT) return wrong_value(type, *n, p, err);
        if (to) TRY(put_value(type, text, *n, p, to, err));
    }
    return true;
}

static bool read_json_data(const json_t *in, const Port *p, Tensor *t, Arena *a, Err *err)
{
    json_t *data = json_object_get(in, "data");
    const char *list = json_kept(data);
    size_t n, want = (size_t)tensor_numel(t);
    if (p->dtype == DT_F16 || p->dtype == DT_BF16)
        return fail(err, E_USAGE, "input '%s': %s is sent as binary data, not as JSON", p->name,
                    oip_datatype(p->dtype));
    if (!list) return json_want_array(in, "data", &data, err) || within(err, "input '%s'", p->name);
    TRY(each_value(list, p, NULL, &n, err));
    if (n != want) return fail(err, E_USAGE, "input '%s': data has %zu values, its shape %zu", p->name, n, want);
    t->data = arena_alloc(a, n + 1, dtype_size(p->dtype));
    return t->data ? each_value(list, p, t->data, &n, err) : oom(err);
}

/* ------------------------------------------------------------------ tensors as binary data */

typedef struct Rest { /* of the body, after its JSON */
    const char *at;
    size_t left;
} Rest;

static bool read_binary_data(int64_t size, Rest *rest, const Port *p, Tensor *t, Arena *a, Err *err)
{
    size_t want = tensor_bytes(t);
    if (size < 0 || (uint64_t)size != want)
        return fail(err, E_USAGE, "input '%s': binary_data_size is %lld, but its shape takes %zu bytes", p->name,
                    (long long)size, want);
    if (want > rest->left)
        return fail(err, E_USAGE, "input '%s': %zu bytes of binary data are left in the body, its shape takes %zu",
                    p->name, rest->left, want);
    t->data = arena_alloc(a, want + 1, 1);
    if (!t->data) return oom(err);
    memcpy(t->data, rest->at, want);
    rest->at += want;
    rest->left -= want;
    if (p->dtype == DT_BOOL)
        for (size_t i = 0; i < want; i++) ((uint8_t *)t->data)[i] = ((uint8_t *)t->data)[i] != 0;
    return true;
}

/* ------------------------------------------------------------------ inputs */

static const json_t *parameter(const json_t *of, const char *name)
{
    return json_object_get(json_object_get(of, "parameters"), name);
}

static bool read_shape(const json_t *in, const Port *p, Tensor *t, Err *err)
{
    json_t *shape;
    const json_t *size;
    size_t i, bytes;
    int64_t dim[MAX_RANK];
    if (!json_want_array(in, "shape", &shape, err)) return within(err, "input '%s'", p->name);
    if (json_array_size(shape) != (size_t)p->rank)
        return fail(err, E_USAGE, "input '%s' has %zu axes, expected %d", p->name, json_array_size(shape), p->rank);
    json_array_foreach(shape, i, size)
    {
        if (!json_is_integer(size) || json_to_int(size) < 0)
            return fail(err, E_USAGE, "input '%s': size %zu is not an integer of at least 0", p->name, i);
        dim[i] = json_to_int(size);
    }
    if (!shape_bytes(p->dtype, p->rank, dim, &bytes, err)) {
        err->code = E_USAGE;
        return within(err, "input '%s'", p->name);
    }
    *t = tensor_of(p->dtype, p->rank, dim, NULL);
    return true;
}

static int port_called(const Port *p, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(p[i].name, name)) return i;
    return -1;
}

static bool read_input(const Model *m, const json_t *in, Infer *r, bool *given, Rest *rest, Err *err)
{
    const char *name, *datatype;
    TRY(json_want_string(in, "name", &name, err));
    int i = port_called(m->in, m->nin, name);
    if (i < 0) return fail(err, E_USAGE, "the model has no input '%s'", name);
    const Port *p = &m->in[i];
    if (given[i]) return fail(err, E_USAGE, "input '%s' is given twice", name);
    given[i] = true;
    if (!json_want_string(in, "datatype", &datatype, err)) return within(err, "input '%s'", name);
    if (!oip_datatype(p->dtype))
        return fail(err, E_UNSUPPORTED, "input '%s' is %s, which the protocol has no name for", name,
                    dtype_name(p->dtype));
    if (oip_dtype(datatype) != p->dtype)
        return fail(err, E_USAGE, "input '%s' has the datatype '%s', expected %s", name, datatype,
                    oip_datatype(p->dtype));
    if (parameter(in, "shared_memory_region"))
        return fail(err, E_UNSUPPORTED, "input '%s': shared memory is not supported", name);
    const json_t *binary = parameter(in, "binary_data_size");
    TRY(read_shape(in, p, &r->item.in[i], err));
    if (!binary) return read_json_data(in, p, &r->item.in[i], r->arena, err);
    if (!json_is_integer(binary)) return fail(err, E_USAGE, "input '%s': binary_data_size is not an integer", name);
    return read_binary_data(json_to_int(binary), rest, p, &r->item.in[i], r->arena, err);
}

static bool read_inputs(const Model *m, const json_t *root, Infer *r, Rest *rest, Err *err)
{
    json_t *list;
    const json_t *one;
    size_t i;
    bool given[MOST_PORTS] = {0};
    TRY(json_want_array(root, "inputs", &list, err));
    r->item.in = arena_array(r->arena, Tensor, m->nin + 1);
    if (!r->item.in) return oom(err);
    json_array_foreach(list, i, one) TRY(read_input(m, one, r, given, rest, err));
    for (int k = 0; k < m->nin; k++)
        if (!given[k]) return fail(err, E_USAGE, "input '%s' is missing", m->in[k].name);
    return !rest->left || fail(err, E_USAGE, "%zu bytes of the body belong to no input", rest->left);
}

/* ------------------------------------------------------------------ outputs */

static bool read_output(const Model *m, const json_t *out, bool binary, Infer *r, Err *err)
{
    const char *name;
    TRY(json_want_string(out, "name", &name, err));
    int i = port_called(m->out, m->nout, name);
    if (i < 0) return fail(err, E_USAGE, "the model has no output '%s'", name);
    for (int k = 0; k < r->n; k++)
        if (r->order[k] == i) return fail(err, E_USAGE, "output '%s' is asked for twice", name);
    if (parameter(out, "classification") || parameter(out, "shared_memory_region"))
        return fail(err, E_UNSUPPORTED, "output '%s': classification and shared memory are not supported", name);
    const json_t *own = parameter(out, "binary_data");
    r->binary[i] = own ? json_is_true(own) : binary;
    r->order[r->n++] = i;
    return true;
}

static bool read_outputs(const Model *m, const json_t *root, Infer *r, Err *err)
{
    bool binary = json_is_true(parameter(root, "binary_data_output"));
    const json_t *list = json_object_get(root, "outputs"), *one;
    size_t i;
    if (list && !json_is_array(list)) return fail(err, E_USAGE, "'outputs' is %s, expected an array", json_kind(list));
    json_array_foreach(list, i, one) TRY(read_output(m, one, binary, r, err));
    for (int k = 0; !json_array_size(list) && k < m->nout; k++) {
        r->order[r->n++] = k;
        r->binary[k] = binary;
    }
    for (int k = 0; k < r->n; k++) {
        const Port *p = &m->out[r->order[k]];
        if (!oip_datatype(p->dtype))
            return fail(err, E_UNSUPPORTED, "output '%s' is %s, which the protocol has no name for", p->name,
                        dtype_name(p->dtype));
        if ((p->dtype == DT_F16 || p->dtype == DT_BF16) && !r->binary[r->order[k]])
            return fail(err, E_USAGE, "output '%s' is %s: ask for it as binary data", p->name, oip_datatype(p->dtype));
    }
    return true;
}

/* ------------------------------------------------------------------ the whole */

/* As in Triton: priority 1 goes first, 0 is as if not given; the timeout is in microseconds. */
static bool read_parameters(const json_t *root, Infer *r, Err *err)
{
    const json_t *priority = parameter(root, "priority"), *timeout = parameter(root, "timeout");
    r->call.level = LEVEL_DEFAULT;
    if (priority) {
        int64_t p = json_to_int(priority);
        if (!json_is_integer(priority) || p < 0 || p > LEVELS)
            return fail(err, E_USAGE, "parameter 'priority' is not an integer from 0 to %d", LEVELS);
        if (p) r->call.level = (int)p - 1;
    }
    if (!timeout) return true;
    if (!json_is_integer(timeout) || json_to_int(timeout) < 0)
        return fail(err, E_USAGE, "parameter 'timeout' is not a number of microseconds");
    r->timeout = (double)json_to_int(timeout) * 1e-6;
    return true;
}

static bool read_id(const json_t *root, Infer *r, Err *err)
{
    const json_t *id = json_object_get(root, "id");
    if (!id) return true;
    if (!json_is_string(id)) return fail(err, E_USAGE, "'id' is %s, expected a string", json_kind(id));
    r->id = arena_strdup(r->arena, json_string_value(id));
    return r->id || oom(err);
}

static bool read_all(const Model *m, const char *body, size_t size, size_t header, Infer *r, Err *err)
{
    if (header != INFER_JSON && header > size)
        return fail(err, E_USAGE, "Inference-Header-Content-Length is %zu, the body has %zu bytes", header, size);
    size_t json = header == INFER_JSON ? size : header;
    Rest rest = {body + json, size - json};
    json_t *root = request_json(body, json, "data", err);
    TRY(root);
    bool ok = (json_is_object(root) || fail(err, E_USAGE, "the body is not a JSON object")) && read_id(root, r, err) &&
              read_parameters(root, r, err) && read_outputs(m, root, r, err) && read_inputs(m, root, r, &rest, err);
    json_free(root);
    return ok;
}

Infer *infer_read(const Model *m, const void *body, size_t size, size_t header, Err *err)
{
    Arena *a;
    Infer *r = request_new(sizeof *r, &a, err);
    if (!r) return NULL;
    r->arena = a;
    r->call.item = &r->item;
    r->call.n = 1;
    r->call.take = infer_take;
    r->call.user = r;
    if (read_all(m, body, size, header, r, err)) return r;
    infer_free(r);
    return NULL;
}

void infer_free(Infer *r)
{
    if (r) arena_destroy(r->arena);
}
