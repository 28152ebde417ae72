/* Portable kernels: every level's products, attention and its gradient give the same bits, at sizes beyond those of the
 * golden cases and small models (run_portable.c): many blocks of K, many panels of keys, rows that fill no tile.
 */
#include "kernel_test.h"
#include "kernel/gemm_impl.h"
#include "team/team.h"
#include "sdpa_test.h"

static const CpuLevel above[] = {CPU_AVX2, CPU_AVX512, CPU_AVX512VNNI, CPU_AMX}; /* gen, or the best there is */

/* ------------------------------------------------------------------ products */

static void product(CpuLevel l, const GemmMatmul *d, const GemmBuffers *b)
{
    Err err = {0};
    PackedWeights *w = packed_weights_create(&err);
    Packed *g = packed_matmul(w, kernels_portable_at(l), d, &err);
    if (!g) STOP("%s", err.msg);
    size_t n = packed_scratch(g) + 64 - packed_scratch(g) % 64;
    void *scratch = aligned_alloc(64, n);
    if (!packed_run(g, b, scratch, &err)) STOP("%s", err.msg);
    free(scratch);
    packed_free(g);
    packed_weights_free(w);
}

static void fill(float *x, int64_t n, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++) x[i] = random_unit(state);
}

static void check_product(int64_t M, int64_t N, int64_t K, bool rounded, GemmAct act, uint64_t *state)
{
    float *a = room(0, M * K * 4), *b = room(1, K * N * 4), *bias = room(2, N * 4), *want = room(3, M * N * 4),
          *got = room(4, M * N * 4);
    fill(a, M * K, state), fill(b, K * N, state), fill(bias, N, state);
    Tensor ta = tensor_of(DT_F32, 2, (int64_t[]){M, K}, a), tb = tensor_of(DT_F32, 2, (int64_t[]){K, N}, b),
           tc = tensor_of(DT_F32, 2, (int64_t[]){M, N}, want), tbias = tensor_of(DT_F32, 1, (int64_t[]){N}, bias);
    GemmMatmul d = {.a = &ta, .b = &tb, .c = &tc, .bias = &tbias, .act = act, .rounded = rounded};
    product(CPU_GEN, &d, &(GemmBuffers){a, b, bias, NULL, want});
    for (size_t i = 0; i < sizeof above / sizeof *above; i++) {
        product(above[i], &d, &(GemmBuffers){a, b, bias, NULL, got});
        if (memcmp(got, want, (size_t)(M * N) * 4))
            STOP("product of %d x %d x %d, activation %d: %s has other bits than gen", (int)M, (int)N, (int)K, (int)act,
                 cpu_level_name(above[i]));
    }
}

static void test_products(void **state)
{
    (void)state;
    uint64_t random = 1;
    static const int64_t sizes[][3] = {{1, 100, 1000}, {7, 33, 517}, {31, 97, 130}};
    for (int i = 0; i < 3; i++)
        for (int rounded = 0; rounded < 2; rounded++)
            check_product(sizes[i][0], sizes[i][1], sizes[i][2], rounded, GEMM_NONE, &random);
    for (GemmAct act = GEMM_NONE; act <= GEMM_QUICK_GELU; act++) check_product(5, 49, 20, false, act, &random);
}

/* ------------------------------------------------------------------ attention */

typedef struct Results {
    float *out, *lse, *dq, *dk, *dv;
} Results;

static void attention(CpuLevel l, const SdpaBackward *of, const Results *to)
{
    const SdpaKernels *k = &kernels_portable_at(l)->sdpa;
    SdpaBackward d = *of;
    d.f.out = to->out, d.f.lse = to->lse, d.dq = to->dq, d.dk = to->dk, d.dv = to->dv;
    size_t n = k->workspace(&d.f, 1), m = k->backward_workspace(&d, 1);
    void *space = aligned_alloc(64, ((n > m ? n : m) / 64 + 1) * 64);
    k->run(&d.f, space, 1);
    k->backward(&d, space, 1);
    free(space);
}

static void plain(int64_t *stride, int64_t heads, int64_t rows, int64_t width)
{
    stride[2] = width, stride[1] = rows * width, stride[0] = heads * rows * width;
}

static void check_attention(int64_t N, int64_t M, int64_t D, int64_t E, MaskKind kind, bool causal, uint64_t *state)
{
    enum { H = 2, OWN = 5 };
    SdpaBackward d = {.f = {.t = DT_F32, .B = 1, .H = H, .Hkv = kind % 2 + 1, .N = N, .M = M, .D = D, .E = E}};
    Sdpa *a = &d.f;
    a->q = operand(0, 1, H, N, D, false, a->qs, state);
    a->k = operand(1, 1, a->Hkv, M, D, true, a->ks, state);
    a->v = operand(2, 1, a->Hkv, M, E, false, a->vs, state);
    make_mask(a, kind, state);
    d.dout = operand(10, 1, H, N, E, false, d.dos, state);
    a->scale = 0.3, a->lower = -N, a->upper = causal ? M - N : M, a->softcap = kind == SPREAD ? 5 : 0;
    plain(a->os, H, N, E), plain(a->ls, H, N, 1), plain(d.dqs, H, N, D);
    plain(d.dks, a->Hkv, M, D), plain(d.dvs, a->Hkv, M, E);
    int64_t size[OWN] = {H * N * E, H * N, H * N * D, a->Hkv * M * D, a->Hkv * M * E};
    float *want[OWN], *got[OWN];
    for (int i = 0; i < OWN; i++) want[i] = malloc((size_t)size[i] * 4), got[i] = malloc((size_t)size[i] * 4);
    attention(CPU_GEN, &d, &(Results){want[0], want[1], want[2], want[3], want[4]});
    for (size_t l = 0; l < sizeof above / sizeof *above; l++) {
        attention(above[l], &d, &(Results){got[0], got[1], got[2], got[3], got[4]});
        for (int i = 0; i < OWN; i++)
            for (int64_t k = 0; k < size[i]; k++)
                if (memcmp(&got[i][k], &want[i][k], 4) && !(isnan(got[i][k]) && isnan(want[i][k])))
                    STOP("attention of %d x %d, mask %s, causal %d: result %d at %d is %.9g on %s, %.9g on gen", (int)N,
                         (int)M, mask_names[kind], causal, i, (int)k, (double)got[i][k], cpu_level_name(above[l]),
                         (double)want[i][k]);
    }
    for (int i = 0; i < OWN; i++) free(want[i]), free(got[i]);
}

static void test_attention(void **state)
{
    (void)state;
    uint64_t random = 2;
    static const int64_t sizes[][4] = {{3, 600, 33, 24}, {29, 530, 16, 40}, {9, 5, 64, 8}}; /* N, M, D, E */
    for (int i = 0; i < 3; i++)
        for (MaskKind kind = NO_MASK; kind < MASKS; kind++) {
            if ((i + (int)kind) % ONE_IN) continue;
            check_attention(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], kind, (i + (int)kind) % 2, &random);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_attention)};
    team_enter(1, NULL);
    return cmocka_run_group_tests_name("portable", tests, NULL, NULL);
}
