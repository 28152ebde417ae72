/* Operands and masks of attention for its kernels' tests: rooms 0 to 4 and 7 to 9 of kernel_test.h, lse in 11. */
#include "kernel_test.h"

typedef enum MaskKind {
    NO_MASK,
    KEYS_ONLY,
    PER_HEAD,
    PER_ROW,
    SPREAD,
    TRUTH_KEYS,
    TRUTH_ROW,
    TRUTH_NONE,
    MASKS
} MaskKind;

static const char *const mask_names[] = {"none",        "(M)",       "(H, N, M)",    "(N, 1)",
                                         "(N, M) by 2", "truth (M)", "truth (N, M)", "truth, no key"};

/* q, k, v of (B, rows, heads, width) seen as (B, heads, rows, width), rows 3 apart, or plain. */
__attribute__((unused)) static float *operand(int at, int64_t B, int64_t heads, int64_t rows, int64_t width,
                                              bool turned, int64_t *stride, uint64_t *state)
{
    int64_t row = width + 3;
    stride[2] = turned ? heads * row : row;
    stride[1] = turned ? row : rows * row;
    stride[0] = rows * heads * row;
    float *x = room(at, rows * width * heads * B > 0 ? (B * rows * heads * row - 3) * 4 : 0);
    for (int64_t i = 0; i < B * heads * rows * width; i++) {
        int64_t r = i / width;
        x[r / rows / heads * stride[0] + r / rows % heads * stride[1] + r % rows * stride[2] + i % width] = random_unit(
                                                                                                                state) *
                                                                                                            2;
    }
    return x;
}

__attribute__((unused)) static void make_mask(Sdpa *a, MaskKind kind, uint64_t *state)
{
    static const int64_t none[4] = {0, 0, 0, 0};
    int64_t M = a->M, N = a->N,
            n = kind == PER_HEAD    ? a->H * N * M
                : kind == PER_ROW   ? N
                : kind == SPREAD    ? 2 * N * M
                : kind == TRUTH_ROW ? N * M
                                    : M;
    memcpy(a->ms, none, sizeof none);
    a->mask = NULL;
    a->truth = NULL;
    if (kind == NO_MASK) return;
    a->ms[2] = kind == KEYS_ONLY || kind == TRUTH_KEYS || kind == TRUTH_NONE ? 0
               : kind == SPREAD                                              ? 2 * M
               : kind == PER_ROW                                             ? 1
                                                                             : M;
    a->ms[3] = kind == PER_ROW ? 0 : kind == SPREAD ? 2 : 1;
    a->ms[1] = kind == PER_HEAD ? N * M : 0;
    float *f = room(3, n * 4);
    uint8_t *t = room(4, n);
    for (int64_t i = 0; i < n; i++) {
        f[i] = unit_random(state) % 4 ? 3 * random_unit(state) : -INFINITY;
        t[i] = (uint8_t)(kind == TRUTH_NONE || unit_random(state) % 3 == 0 ? 0 : 1 + i % 255);
    }
    if (kind >= TRUTH_KEYS) a->truth = t;
    else a->mask = f;
}

/* The same values in dtype t, where t has them: rounded in place,
 * and copied as t into room `at` up to the page's end. */
__attribute__((unused)) static const void *in_dtype(int at, DType t, float *x, int64_t n)
{
    if (t == DT_F32 || !x) return x;
    uint16_t *y = room(at, n * 2);
    for (int64_t i = 0; i < n; i++) {
        y[i] = t == DT_BF16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]);
        x[i] = t == DT_BF16 ? bf16_to_f32(y[i]) : f16_to_f32(y[i]);
    }
    return y;
}

/* (B, H, N) into a room of its own. */
__attribute__((unused)) static void place_lse(Sdpa *a)
{
    a->lse = room(11, a->B * a->H * a->N * 4);
    a->ls[2] = 1, a->ls[1] = a->N, a->ls[0] = a->H * a->N;
}

__attribute__((unused)) static Sdpa make_sdpa(const int64_t *s, bool turned, uint64_t *state)
{
    Sdpa a = {.t = DT_F32,
              .B = s[0],
              .H = s[1],
              .Hkv = s[2],
              .N = s[3],
              .M = s[4],
              .D = s[5],
              .E = s[6],
              .scale = 0.7f / sqrtf((float)(s[5] + 1)),
              .lower = -SDPA_ANY,
              .upper = SDPA_ANY};
    a.q = operand(0, a.B, a.H, a.N, a.D, turned, a.qs, state);
    a.k = operand(1, a.B, a.Hkv, a.M, a.D, turned, a.ks, state);
    a.v = operand(2, a.B, a.Hkv, a.M, a.E, turned, a.vs, state);
    return a;
}

/* Elements from the first to the last of (A, B, C, width). */
__attribute__((unused)) static int64_t span(int64_t A, int64_t B, int64_t C, int64_t width, const int64_t *stride)
{
    return A * B * C * width > 0 ? (A - 1) * stride[0] + (B - 1) * stride[1] + (C - 1) * stride[2] + width : 0;
}

__attribute__((unused)) static Sdpa typed(Sdpa *f, DType t)
{
    Sdpa a = *f;
    a.t = t;
    a.q = in_dtype(7, t, (float *)(uintptr_t)f->q, span(a.B, a.H, a.N, a.D, a.qs));
    a.k = in_dtype(8, t, (float *)(uintptr_t)f->k, span(a.B, a.Hkv, a.M, a.D, a.ks));
    a.v = in_dtype(9, t, (float *)(uintptr_t)f->v, span(a.B, a.Hkv, a.M, a.E, a.vs));
    return a;
}
