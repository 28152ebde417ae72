/* Attention, fused: out (B, H, N, E) = softmax(scale * q k^T + mask) v, row-wise over keys; a row with no allowed key
 * gives 0, as PyTorch's SDPA does. q (B, H, N, D), k (B, Hkv, M, D), v (B, Hkv, M, E), Hkv divides H. f32, bf16 or f16
 * in and out; scores, softmax and sums in f32. The reference takes f64, too (kernels_at(CPU_REF)), and works in it.
 *
 *     Sdpa a = {.t = DT_F32, .B = 1, .H = 12, .Hkv = 12, .N = 197, .M = 197, .D = 64, .E = 64, .q = q, ...,
 *               .lower = -SDPA_ANY, .upper = SDPA_ANY};
 *     void *space = mem_alloc(kernels()->sdpa.workspace(&a, threads));
 *     kernels()->sdpa.run(&a, space, threads);
 *
 * Strides in elements; the last dim is contiguous. Nothing else is asked of them: (B, N, H, D) and three in one (B, N,
 * 3, H, D) are strides. mask: additive float or truth (non-zero = attend), by strides over (B, H, N, M), 0 where it
 * broadcasts; NULL for none. Key j is allowed for query i when i + lower <= j <= i + upper: SDPA_ANY bounds nothing,
 * upper = 0 is aten's is_causal (top-left aligned). softcap c > 0: scores s become c * tanh(s / c) before the mask
 * (Gemma 2, section 2). Ragged: q_rows and k_rows, B + 1 integers each, give that sequence b's queries are rows
 * q_rows[b] .. q_rows[b + 1] of q and out, its keys rows k_rows[b] .. of k and v; batch strides of the four are not
 * used, N and M are the most that a sequence has, positions (mask, bounds) count from each sequence's first row. lse:
 * the natural logarithm of the sum of exp(scores), scores as softmax sees them: what the backward pass makes the
 * weights from again. -inf for a row with no allowed key. Formula: online softmax over blocks of keys (Milakov and
 * Gimelshein 2018; Dao et al. 2022). No (N, M) matrix is made.
 *
 * Its gradient, from out and lse of the forward pass (Dao et al. 2022, appendix B.2 and B.4; FlashAttention-2):
 *
 *     S = score(scale q k^T),  P = exp(S - lse),  dv = P^T dout,  dP = dout v^T,  dmask = P (dP - sum_e dout out),
 *     dS = dmask score',  dq = scale dS k,  dk = scale dS^T q
 *
 *     SdpaBackward d = {.f = a, .dout = dout, .dq = dq, ..., strides};
 *     void *space = mem_alloc(kernels()->sdpa.backward_workspace(&d, threads));
 *     kernels()->sdpa.backward(&d, space, threads);
 *
 * P is 0 in rows whose lse is -inf. dk and dv of a head of keys are summed over the heads that use it, dmask over axes
 * along which the mask broadcasts (strides of 0). Results are written, not added to, and need not be zero before. Not
 * for ragged sequences (q_rows, k_rows).
 */
#ifndef QKV_KERNEL_SDPA_H
#define QKV_KERNEL_SDPA_H
#include "tensor/tensor.h"

enum { SDPA_ANY = 1 << 30 }; /* as lower: -SDPA_ANY */

typedef struct Sdpa {
    DType t; /* of q, k, v and out */
    int64_t B, H, Hkv, N, M, D, E;
    const void *q, *k, *v;
    void *out;
    int64_t qs[3], ks[3], vs[3], os[3]; /* strides of batch, head, row */
    void *lse; /* logsumexp (B, H, N): NULL, or float (double when t is DT_F64) by strides ls */
    int64_t ls[3];
    const float *mask;
    const double *mask_f64; /* in place of mask when t is DT_F64 */
    const uint8_t *truth;
    int64_t ms[4];
    double scale, softcap;
    int64_t lower, upper;
    const int64_t *q_rows, *k_rows; /* NULL: dense */
} Sdpa;

/* One sequence: its sizes and its first rows (of head 0). */
typedef struct SdpaSequence {
    int64_t N, M;
    const char *q, *k, *v;
    char *out;
} SdpaSequence;

static inline SdpaSequence sdpa_sequence(const Sdpa *a, int64_t b)
{
    int64_t size = (int64_t)dtype_size(a->t), qr = a->q_rows ? a->q_rows[b] : 0, kr = a->k_rows ? a->k_rows[b] : 0;
    bool qd = !a->q_rows, kd = !a->k_rows;
    return (SdpaSequence){.N = qd ? a->N : a->q_rows[b + 1] - qr,
                          .M = kd ? a->M : a->k_rows[b + 1] - kr,
                          .q = (const char *)a->q + (qd ? b * a->qs[0] : qr * a->qs[2]) * size,
                          .k = (const char *)a->k + (kd ? b * a->ks[0] : kr * a->ks[2]) * size,
                          .v = (const char *)a->v + (kd ? b * a->vs[0] : kr * a->vs[2]) * size,
                          .out = (char *)a->out + (qd ? b * a->os[0] : qr * a->os[2]) * size};
}

typedef struct SdpaBackward {
    Sdpa f;                                 /* operands as the forward pass had them; out and lse are read */
    const void *dout;                       /* (B, H, N, E) of type f.t */
    void *dq, *dk, *dv;                     /* of q's, k's, v's shape and type f.t; NULL: not wanted */
    int64_t dos[3], dqs[3], dks[3], dvs[3]; /* strides of batch, head, row; the last dim is contiguous */
    void *dmask; /* of the mask's own shape by strides dms over (B, H, N, M), 0 where it broadcasts: float (double when
                    f.t is DT_F64); NULL: not wanted */
    int64_t dms[4];
} SdpaBackward;

typedef struct SdpaKernels {
    size_t (*workspace)(const Sdpa *a, int threads); /* bytes for all threads together; 64-byte aligned */
    void (*run)(const Sdpa *a, void *space, int threads);
    size_t (*backward_workspace)(const SdpaBackward *a, int threads); /* likewise */
    void (*backward)(const SdpaBackward *a, void *space, int threads);
} SdpaKernels;
#endif
