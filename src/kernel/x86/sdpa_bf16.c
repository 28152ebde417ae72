/* Attention in bf16 by AVX512_BF16 (Zen 4, Cooper Lake): vdpbf16ps adds two products to a sum. All that is not this
 * product is in sdpa_pairs.h.
 *
 * ROWS rows of VECTORS vectors of sums stay in registers; a pair of a row of the first operand goes to all lanes of a
 * vector.
 */
enum { GROUP = 24, KEYS = 256 };
#include "kernel/x86/sdpa_pairs_back.h"

enum { ROWS = 6, VECTORS = 4 };

INLINE void micro(int rows, int vectors, const PairProduct *p, int64_t row, int64_t column)
{
    __m512 sum[ROWS][VECTORS];
    float *c = (float *)(void *)((char *)p->c + row * p->ldc) + column;
    const char *a = (const char *)p->a + row * p->lda;
    const uint16_t *b = p->b + column / 16 * p->next;
    int64_t lda = p->lda, ldc = p->ldc / 4, next = p->next;
    EACH_ROW EACH_VECTOR sum[r][v] = p->add ? _mm512_loadu_ps(c + r * ldc + v * 16) : _mm512_setzero_ps();
    const char *soon = p->soon ? (const char *)far(p->soon, row * p->ldp + column) : (const char *)c;
    int64_t rest = p->soon ? p->ldp * 4 : 0;
    for (const char *end = a + (p->K + 1) / 2 * 4; a < end; soon += rest) /* what is past K is 0 */
        for (int i = 0; i < VECTORS; i++, a += 4, b += 32) {
            __m512bh y[VECTORS];
            __builtin_prefetch(soon + i * 64);
            EACH_VECTOR y[v] = (__m512bh)_mm512_load_si512(b + v * next);
            EACH_ROW
            {
                __m512bh x = (__m512bh)_mm512_set1_epi32(*(const int32_t *)(const void *)(a + r * lda));
                EACH_VECTOR sum[r][v] = _mm512_dpbf16_ps(sum[r][v], y[v], x);
            }
        }
    if (p->tops) {
        __m512 times = _mm512_set1_ps(p->times);
        const float *plus = p->plus ? p->plus + row * p->ldp + column : NULL;
        EACH_ROW EACH_VECTOR sum[r][v] = sum[r][v] * times;
        if (plus) EACH_ROW EACH_VECTOR sum[r][v] += _mm512_loadu_ps(plus + r * p->ldp + v * 16);
        EACH_ROW
        {
            float *top = p->tops[row + r];
            __m512 most = _mm512_loadu_ps(top);
            EACH_VECTOR most = _mm512_max_ps(sum[r][v], most); /* as vec_max: a NaN is passed over */
            _mm512_storeu_ps(top, most);
        }
    }
    EACH_ROW EACH_VECTOR _mm512_storeu_ps(c + r * ldc + v * 16, sum[r][v]);
}

/* The row count is a constant in each case: the sums stay in registers. */
INLINE void rows_times(int rows, int vectors, const PairProduct *p, int64_t row, int64_t column)
{
    switch (rows) {
    case 6: micro(6, vectors, p, row, column); break;
    case 5: micro(5, vectors, p, row, column); break;
    case 4: micro(4, vectors, p, row, column); break;
    case 3: micro(3, vectors, p, row, column); break;
    case 2: micro(2, vectors, p, row, column); break;
    default: micro(1, vectors, p, row, column); break;
    }
}

static void product(const PairProduct *p)
{
    for (int64_t j = 0; j < p->columns; j += VECTORS * 16)
        for (int r = 0; r < p->rows; r += ROWS) {
            int rows = p->rows - r < ROWS ? p->rows - r : ROWS;
            if (p->columns - j >= VECTORS * 16) rows_times(rows, VECTORS, p, r, j);
            else rows_times(rows, 2, p, r, j); /* columns are a multiple of 32 */
        }
}

static const SdpaWay way = {GROUP, ROWS, room, pack, attend, NULL, NULL};

void KERNEL(sdpa_fill)(SdpaKernels *k)
{
    fill(k, &way);
    fill_back(k);
}
