/* Runs sequences of different lengths through an encoder with a key padding mask in one batch. Step 4 of
 * docs/KEY_PADDING_MASK.md.
 *
 *     gcc -std=c17 encode.c $(pkg-config --cflags --libs qkv) -o encode
 *     ./encode encoder.pt2 sequences.safetensors out.safetensors        or encoder.onnx: the same program
 *
 * The sequences, tensors "0", "1", ... of (length, width), are padded to the longest one. The model's second input is
 * the mask, (batch, length): bool (true = padding) or float32 (-inf = padding); or the lengths, (batch), of int64.
 * Results are cut back to each length.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <qkv.h>

static int stop(const qkv_error *e)
{
    fprintf(stderr, "encode: %s\n", e->message);
    return (int)e->code;
}

static int usage(const char *what)
{
    fprintf(stderr, "encode: %s\n", what);
    return QKV_USAGE;
}

typedef struct Batch {
    int64_t n, longest, width;
    int64_t *length;
    float *x;     /* (n, longest, width) */
    void *second; /* mask or lengths */
} Batch;

static bool fill(Batch *b, const qkv_tensors *in, qkv_dtype mask, int mask_rank)
{
    b->n = qkv_tensors_count(in);
    b->length = (int64_t *)calloc((size_t)b->n + 1, sizeof *b->length);
    if (!b->length) return false;
    for (int64_t i = 0; i < b->n; i++) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)i);
        const qkv_tensor *t = qkv_tensors_find(in, name);
        if (!t || t->dtype != QKV_F32 || t->rank != 2 || (i && t->shape[1] != b->width)) return false;
        b->length[i] = t->shape[0];
        b->width = t->shape[1];
        if (b->length[i] > b->longest) b->longest = b->length[i];
    }
    size_t row = (size_t)(b->longest * b->width);
    b->x = (float *)calloc((size_t)b->n * row + 1, sizeof *b->x);
    b->second = calloc((size_t)(b->n * b->longest) + 1, qkv_dtype_size(mask));
    if (!b->x || !b->second) return false;
    for (int64_t i = 0; i < b->n; i++) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)i);
        memcpy(b->x + (size_t)i * row, qkv_tensors_find(in, name)->data,
               (size_t)(b->length[i] * b->width) * sizeof *b->x);
        if (mask_rank == 1) ((int64_t *)b->second)[i] = b->length[i];
        for (int64_t k = b->length[i]; mask_rank == 2 && k < b->longest; k++) {
            if (mask == QKV_BOOL) ((bool *)b->second)[i * b->longest + k] = true;
            else ((float *)b->second)[i * b->longest + k] = -INFINITY;
        }
    }
    return true;
}

static qkv_status run(qkv_session *s, const qkv_model *m, const Batch *b, qkv_tensor *y, qkv_error *e)
{
    int64_t x_shape[] = {b->n, b->longest, b->width}, second_shape[] = {b->n, b->longest};
    qkv_tensor x = {.dtype = QKV_F32, .rank = 3, .shape = x_shape, .data = b->x};
    qkv_tensor second = {.dtype = qkv_model_input_dtype(m, 1),
                         .rank = qkv_model_input_rank(m, 1),
                         .shape = second_shape,
                         .data = b->second};
    qkv_status status;
    if ((status = qkv_session_set_input(s, "0", &x, e)) || (status = qkv_session_set_input(s, "1", &second, e)))
        return status;
    if ((status = qkv_session_run(s, e))) return status;
    return qkv_session_output(s, 0, y, e);
}

/* Each sequence's rows of y (n, longest, width), under its name. */
static qkv_status write(const char *path, const Batch *b, const qkv_tensor *y, qkv_error *e)
{
    size_t n = (size_t)b->n;
    qkv_tensor *out = (qkv_tensor *)calloc(n + 1, sizeof *out);
    int64_t(*shape)[2] = (int64_t(*)[2])calloc(n + 1, sizeof *shape);
    char(*text)[24] = (char(*)[24])calloc(n + 1, sizeof *text);
    const char **name = (const char **)calloc(n + 1, sizeof *name);
    qkv_status status = QKV_LIMIT;
    for (size_t i = 0; out && shape && text && name && i < n; i++) {
        snprintf(text[i], sizeof text[i], "%zu", i);
        name[i] = text[i];
        shape[i][0] = b->length[i];
        shape[i][1] = y->shape[2];
        qkv_tensor row = {.dtype = QKV_F32, .rank = 2, .shape = shape[i]};
        row.data = (float *)y->data + (int64_t)i * y->shape[1] * y->shape[2];
        out[i] = row;
    }
    if (out && shape && text && name) status = qkv_tensors_write(path, name, out, (int)n, e);
    free(out);
    free(shape);
    free(text);
    free(name);
    return status;
}

int main(int argc, char **argv)
{
    qkv_error e = {.code = QKV_LIMIT, .message = "out of memory"};
    Batch b = {0};
    qkv_tensor y;
    if (argc != 4) return usage("usage: encode MODEL SEQUENCES OUT");
    qkv_model *m = qkv_model_load(argv[1], NULL, &e);
    if (!m) return stop(&e);
    qkv_dtype mask = qkv_model_input_dtype(m, 1);
    int rank = qkv_model_input_rank(m, 1), code = QKV_OK;
    if (qkv_model_input_count(m) != 2 ||
        !((rank == 2 && (mask == QKV_BOOL || mask == QKV_F32)) || (rank == 1 && mask == QKV_I64)))
        return usage("the model must take (src, mask) or (src, lengths)");
    qkv_tensors *in = qkv_tensors_open(argv[2], &e);
    if (!in) return stop(&e);
    if (!fill(&b, in, mask, rank)) return usage("expected float32 tensors \"0\", \"1\", ... of (length, width)");
    qkv_session *s = qkv_session_create(m, NULL, &e);
    if (!s || run(s, m, &b, &y, &e) || write(argv[3], &b, &y, &e)) code = stop(&e);
    else printf("%lld sequences of up to %lld positions in one run\n", (long long)b.n, (long long)b.longest);
    qkv_session_free(s);
    qkv_tensors_free(in);
    qkv_model_free(m);
    free(b.x);
    free(b.second);
    free(b.length);
    return code;
}
