/* Contract in text.h. */
#include "serve/text.h"
#include <math.h>
#include <string.h>

static const char *const role_names[ROLES][3] = {
    [ROLE_IDS] = {"input_ids", "ids", "tokens"},
    [ROLE_MASK] = {"attention_mask", "mask", "input_mask"},
    [ROLE_TYPES] = {"token_type_ids", "segment_ids", "token_types"},
    [ROLE_POSITIONS] = {"position_ids", "positions", "position"},
};

static int role_of(const char *name)
{
    for (int r = 0; r < ROLES; r++)
        for (int k = 0; k < 3; k++)
            if (!strcmp(name, role_names[r][k])) return r;
    return -1;
}

bool text_roles(const qkv_model *m, int role[ROLES], Err *err)
{
    for (int r = 0; r < ROLES; r++) role[r] = -1;
    for (int i = 0; i < qkv_model_input_count(m); i++) {
        const char *name = qkv_model_input_name(m, i);
        int r = role_of(name), rank = qkv_model_input_rank(m, i);
        if (r < 0)
            return fail(err, E_USAGE, "input '%s': expected input_ids, attention_mask, token_type_ids or position_ids",
                        name);
        if (rank != 2) return fail(err, E_USAGE, "input '%s' has rank %d, expected (batch, tokens)", name, rank);
        role[r] = i;
    }
    return role[ROLE_IDS] >= 0 || fail(err, E_USAGE, "the model has no input 'input_ids'");
}

int64_t text_value(Role r, const int64_t *ids, int length, int64_t k)
{
    switch (r) {
    case ROLE_IDS: return k < length ? ids[k] : 0;
    case ROLE_MASK: return k < length;
    case ROLE_POSITIONS: return k;
    default: return 0;
    }
}

int text_output(const int *rank, int n)
{
    for (int want = 3; want >= 2; want--)
        for (int i = 0; i < n; i++)
            if (rank[i] == want) return i;
    return -1;
}

void text_normalize(float *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    for (int64_t i = 0; i < n; i++) v[i] = (float)((double)v[i] / fmax(sqrt(sum), 1e-12));
}

void text_pool(const Tensor *y, int64_t row, int64_t length, bool cls, float *out)
{
    int64_t width = y->shape[y->rank - 1], count = y->rank == 2 || cls ? 1 : length;
    int64_t across = y->stride[y->rank - 1], down = y->rank == 3 ? y->stride[1] : 0;
    size_t size = dtype_size(y->dtype);
    for (int64_t k = 0; k < width; k++) {
        const char *at = (const char *)y->data + (row * y->stride[0] + k * across) * (int64_t)size;
        double sum = 0;
        for (int64_t t = 0; t < count; t++) sum += load_f64(y->dtype, at + t * down * (int64_t)size);
        out[k] = (float)(sum / (double)count);
    }
    text_normalize(out, width);
}

Tensor tensor_from(const qkv_tensor *t)
{
    Tensor out = tensor_of((DType)t->dtype, t->rank, t->shape, t->data);
    if (t->strides) memcpy(out.stride, t->strides, (size_t)t->rank * sizeof *t->strides);
    return out;
}
