/* Tensor files: .safetensors, .npz and .npy from one another, and weights of a model written as one.
 *
 *     qkv convert a.safetensors -o b.npz
 *     qkv extract bert.pt2 --weights -o bert.safetensors
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

bool is_tensor_file(const char *path)
{
    static const char *const endings[] = {".safetensors", ".npz", ".npy"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (n > strlen(endings[i]) && !strcmp(path + n - strlen(endings[i]), endings[i])) return true;
    return false;
}

static int tell(const char *path, const qkv_tensor *t, int n)
{
    char bytes[32];
    double size = 0;
    for (int i = 0; i < n; i++) size += (double)tensor_count(&t[i]) * (double)qkv_dtype_size(t[i].dtype);
    note("%s: %d tensor%s, %s", path, n, n == 1 ? "" : "s", bytes_text(size, bytes, sizeof bytes));
    return 0;
}

static int write_tensors(const char *path, const char *const *names, const qkv_tensor *t, int n)
{
    qkv_error e;
    return qkv_tensors_write(path, names, t, n, &e) == QKV_OK ? tell(path, t, n) : problem_of(&e);
}

int convert_tensors(const char *from, const char *to)
{
    qkv_error e;
    if (!is_tensor_file(from))
        return problem(QKV_USAGE,
                       "'%s' is not a tensor file; for the weights of a model, use qkv extract %s --weights -o %s",
                       from, from, to);
    qkv_tensors *f = qkv_tensors_open(from, &e);
    if (!f) return problem_of(&e);
    int n = qkv_tensors_count(f);
    const char **names = must(calloc((size_t)n + 1, sizeof *names));
    qkv_tensor *t = must(calloc((size_t)n + 1, sizeof *t));
    for (int i = 0; i < n; i++) {
        names[i] = qkv_tensors_name(f, i);
        t[i] = *qkv_tensors_at(f, i);
    }
    int code = write_tensors(to, names, t, n);
    free(names);
    free(t);
    qkv_tensors_free(f);
    return code;
}

/* The state dict: parameters and persistent buffers; with all also what else is stored. */
int write_weights(const char *path, bool all, const qkv_model *m)
{
    int count = qkv_model_weight_count(m), n = 0, left = 0;
    const char **names = must(calloc((size_t)count + 1, sizeof *names));
    qkv_tensor *t = must(calloc((size_t)count + 1, sizeof *t));
    for (int i = 0; i < count; i++) {
        qkv_weight_kind kind;
        int persistent;
        names[n] = qkv_model_weight(m, i, &t[n], &kind, &persistent);
        if (all || kind == QKV_PARAMETER || persistent) n++;
        else left++;
    }
    int code = write_tensors(path, names, t, n);
    if (!code && left)
        note("left out: constants and buffers that are not in the state dict (%d); --all writes them as well", left);
    free(names);
    free(t);
    return code;
}

int give_weights(qkv_model **m, const char *path)
{
    qkv_error e;
    qkv_tensors *file = qkv_tensors_open(path, &e);
    if (!file) return problem_of(&e);
    int n = qkv_tensors_count(file);
    const char **name = must(calloc((size_t)n + 1, sizeof *name));
    qkv_tensor *tensor = must(calloc((size_t)n + 1, sizeof *tensor));
    for (int i = 0; i < n; i++) {
        name[i] = qkv_tensors_name(file, i);
        tensor[i] = *qkv_tensors_at(file, i);
    }
    qkv_model *made = qkv_model_with_weights(*m, name, tensor, n, &e);
    int code = made ? replace_model(m, made, &e) : problem((int)e.code, "%s: %s", path, e.message);
    free(name);
    free(tensor);
    qkv_tensors_free(file);
    return code;
}
