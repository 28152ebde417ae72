/* Ops at sizes that are worked on in blocks, by two threads, with axes in another order: against the definition,
 * element by element. The golden cases of tests/ops are too small for blocks. */
#include <math.h>
#include "base/file.h"
#include "base/pages.h"
#include "kernel/gemm.h"
#include "run/session.h"
#include "unit_graph.h"

typedef struct Ran {
    Graph *g;
    Session *s;
    Tensor in[3];
} Ran;

static Ran ran(const char *text)
{
    Err err = {0};
    Ran r = {.g = unit_graph(text)};
    uint64_t seed = 1;
    unit_mark_inputs(r.g);
    r.s = session_create(r.g, NULL, 2, 0, &err);
    assert_non_null(r.s);
    for (int i = 0; i < r.g->ninput; i++) {
        int64_t shape[MAX_RANK], n = 1;
        for (int d = 0; d < r.g->input[i]->rank; d++) n *= shape[d] = r.g->input[i]->dim[d]->i;
        float *x = calloc((size_t)n, sizeof *x);
        for (int64_t k = 0; k < n; k++) x[k] = (float)(unit_random(&seed) % 2000) / 1000 - 1;
        r.in[i] = tensor_of(DT_F32, r.g->input[i]->rank, shape, x);
        OK(session_set_input(r.s, i, &r.in[i], &err));
    }
    OK(session_run(r.s, &err));
    return r;
}

static void done(Ran *r)
{
    for (int i = 0; i < r->g->ninput; i++) free(r->in[i].data);
    session_free(r->s);
    graph_free(r->g);
}

static float at(const Tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return *((const float *)t->data + a * t->stride[0] + b * t->stride[1] + c * t->stride[2] + d * t->stride[3]);
}

/* Heads are the last axis of what is padded: a row of zeros before and two after. */
static void test_pad(void **state)
{
    (void)state;
    Ran r = ran("input %x: f32[2, 150, 91, 8]\n"
                "%t: f32[2, 8, 150, 91] = aten.permute.default(%x, [0, 3, 1, 2])\n"
                "%y: f32[2, 8, 153, 91] = aten.constant_pad_nd.default(%t, [0, 0, 1, 2], -7.0)\n"
                "%z: f32[2, 150, 91, 9] = aten.constant_pad_nd.default(%x, [1, 0], 5.0)\n"
                "%u: f32[5, 150, 91, 8] = aten.constant_pad_nd.default(%x, [0, 0, 0, 0, 0, 0, 0, 3], 2.0)\n"
                "output output_0 = %y\noutput output_1 = %z\noutput output_2 = %u\n");
    const Tensor *y = session_output(r.s, 0), *z = session_output(r.s, 1), *u = session_output(r.s, 2);
    for (int64_t b = 0; b < 5; b++)
        for (int64_t q = 0; q < 153; q++)
            for (int64_t k = 0; k < 91; k++)
                for (int64_t h = 0; h < 9; h++) {
                    bool inside = q >= 1 && q <= 150;
                    if (b < 2 && h < 8) assert_true(at(y, b, h, q, k) == (inside ? at(&r.in[0], b, q - 1, k, h) : -7));
                    if (b < 2 && q < 150) assert_true(at(z, b, q, k, h) == (h ? at(&r.in[0], b, q, k, h - 1) : 5));
                    if (q < 150 && h < 8) assert_true(at(u, b, q, k, h) == (b < 2 ? at(&r.in[0], b, q, k, h) : 2));
                }
    done(&r);
}

/* Short rows: both operands broadcast, along different axes; with casts, and a row that no block divides. */
static void test_short_rows(void **state)
{
    (void)state;
    Ran r = ran("input %a: f32[70, 37, 1, 7]\n"
                "input %b: f32[70, 1, 29, 7]\n"
                "%h: bf16[70, 1, 29, 7] = aten._to_copy.default(%b, dtype=bf16)\n"
                "%w: f32[70, 1, 29, 7] = aten._to_copy.default(%h, dtype=f32)\n"
                "%y: f32[70, 37, 29, 7] = aten.sub.Tensor(%a, %b)\n"
                "%z: f32[70, 37, 29, 7] = aten.mul.Tensor(%a, %w)\n"
                "%g: bool[70, 37, 29, 7] = aten.gt.Tensor(%a, %b)\n"
                "%m: f32[70, 37, 29, 7] = aten.where.self(%g, %a, %b)\n"
                "output output_0 = %y\noutput output_1 = %z\noutput output_2 = %w\noutput output_3 = %m\n");
    const Tensor *y = session_output(r.s, 0), *z = session_output(r.s, 1), *w = session_output(r.s, 2),
                 *m = session_output(r.s, 3);
    for (int64_t i = 0; i < 70; i++)
        for (int64_t k = 0; k < 37; k++)
            for (int64_t x = 0; x < 29; x++)
                for (int64_t h = 0; h < 7; h++) {
                    float a = at(&r.in[0], i, k, 0, h), b = at(&r.in[1], i, 0, x, h);
                    assert_true(at(y, i, k, x, h) == a - b);
                    assert_true(at(z, i, k, x, h) == a * at(w, i, 0, x, h));
                    assert_true(at(m, i, k, x, h) == (a > b ? a : b));
                }
    done(&r);
}

static void test_group_norm(void **state)
{
    (void)state;
    Ran r = ran("input %x: f32[2, 12, 71, 53]\n"
                "%y: f32[2, 12, 71, 53] = aten.group_norm.default(%x, 3, none, none, 0.00001)\n"
                "output output_0 = %y\n");
    const Tensor *x = &r.in[0], *y = session_output(r.s, 0);
    enum { EACH = 4 * 71 * 53 };
    for (int g = 0; g < 6; g++) {
        const float *in = (const float *)x->data + (int64_t)g * EACH, *out = (const float *)y->data + (int64_t)g * EACH;
        double mean = 0, var = 0;
        for (int i = 0; i < EACH; i++) mean += in[i];
        mean /= EACH;
        for (int i = 0; i < EACH; i++) var += (in[i] - mean) * (in[i] - mean);
        var /= EACH;
        for (int i = 0; i < EACH; i++) assert_true(fabs(out[i] - (in[i] - mean) / sqrt(var + 1e-5)) < 2e-6);
    }
    done(&r);
}

/* Weights of a mapped file give their memory back once they are packed;
 * what is read there later is the file's, and results stay. */
static void test_mapped_weight(void **state)
{
    (void)state;
    enum { K = 300, N = 700 };
    Err err = {0};
    static float w[N * K], x[40 * K];
    float *y[3];
    uint64_t seed = 3;
    for (int i = 0; i < N * K; i++) w[i] = (float)(unit_random(&seed) % 200) / 100 - 1;
    for (int i = 0; i < 40 * K; i++) x[i] = (float)(unit_random(&seed) % 200) / 100 - 1;
    const char *path = unit_path("weight");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(w, sizeof w, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    MappedFile file;
    OK(file_map(&file, path, &err));
    Tensor weight = tensor_of(DT_F32, 2, (int64_t[]){N, K}, (void *)(uintptr_t)file.data),
           in = tensor_of(DT_F32, 2, (int64_t[]){40, K}, x);
    Graph *g = unit_graph("input %x: f32[40, 300]\nweight %w: f32[700, 300] = parameter \"f32[700, 300]\"\n"
                          "%y: f32[40, 700] = aten.linear.default(%x, %w)\noutput output_0 = %y\n");
    g->weight[0]->data = &weight;
    Session *s = session_create(g, NULL, 2, 0, &err);
    assert_non_null(s);
    gemm_pool_mapped(session_products(s), file.data, file.size);
    for (int i = 0; i < 3; i++) {
        OK(session_set_input(s, 0, &in, &err) && session_run(s, &err));
        y[i] = malloc(40 * N * sizeof(float));
        assert_non_null(y[i]);
        memcpy(y[i], session_output(s, 0)->data, 40 * N * sizeof(float));
        assert_memory_equal(y[i], y[0], 40 * N * sizeof(float));
        assert_memory_equal(file.data, w, sizeof w);
    }
    for (int i = 0; i < 3; i++) free(y[i]);
    session_free(s);
    graph_free(g);
    pages_done(file.data + 1, file.size - 1);
    assert_memory_equal(file.data, w, sizeof w);
    file_unmap(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pad),
        cmocka_unit_test(test_short_rows),
        cmocka_unit_test(test_group_norm),
        cmocka_unit_test(test_mapped_weight),
    };
    return cmocka_run_group_tests_name("large", tests, NULL, NULL);
}
