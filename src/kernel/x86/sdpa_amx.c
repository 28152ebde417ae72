/* Attention in bf16 on AMX tiles: both products in tiles of 16 rows of 32 bf16. All that is not tiles is in
 * sdpa_pairs.h.
 *
 * _tile_dpbf16ps: C (16, 16) f32 += A (16, 32) bf16 * B (32, 16), B as 16 rows of pairs: B[k / 2][n] holds elements k
 * and k + 1 of column n.
 */
enum { GROUP = 32, KEYS = 512 };
#include "kernel/x86/sdpa_pairs_back.h"
#include "kernel/x86/tiles.h"

/* c (32, 32) = or += a (32, steps * 32) * two columns of tiles; lda and ldc in bytes. `two`: more than 16 rows. */
static inline void tiles(float *c, int64_t ldc, const void *a, int64_t lda, const uint16_t *left, const uint16_t *right,
                         int64_t steps, bool two, bool add)
{
    const char *p = a;
    char *to = (char *)c;
    __asm__ volatile("" ::: "memory"); /* gcc 12 does not know that the loads read memory */
    if (add) {
        _tile_loadd(0, to, ldc);
        _tile_loadd(1, to + 64, ldc);
        _tile_loadd(2, to + 16 * ldc, ldc);
        _tile_loadd(3, to + 16 * ldc + 64, ldc);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < steps; i++) {
        _tile_loadd(4, p + i * 64, lda);
        _tile_loadd(6, left + i * 512, 64);
        _tile_loadd(7, right + i * 512, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (!two) continue;
        _tile_loadd(5, p + i * 64 + 16 * lda, lda);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, ldc);
    _tile_stored(1, to + 64, ldc);
    if (!two) return;
    _tile_stored(2, to + 16 * ldc, ldc);
    _tile_stored(3, to + 16 * ldc + 64, ldc);
}

/* The largest elements of rows of c, as they are. */
static void keep_tops(const PairProduct *p)
{
    for (int r = 0; r < p->rows; r++) {
        const float *c = (const float *)(const void *)((const char *)p->c + r * p->ldc);
        Vec top = vec_at(p->tops[r]);
        for (int64_t j = 0; j < p->columns; j += 2 * LANES)
            top = vec_max(vec_at(c + j + LANES), vec_max(vec_at(c + j), top));
        vec_put(p->tops[r], top);
    }
}

static void product(const PairProduct *p)
{
    for (int64_t j = 0; j < p->columns; j += 32) {
        const uint16_t *b = p->b + j / 16 * p->next;
        tiles(p->c + j, p->ldc, p->a, p->lda, b, b + p->next, padded(p->K, STEP) / STEP, p->rows > 16, p->add);
    }
    if (p->tops && !p->plus && p->times == 1) {
        keep_tops(p);
        return;
    }
    for (int r = 0; r < p->rows && p->tops; r++) {
        float *c = (float *)(void *)((char *)p->c + r * p->ldc);
        const float *plus = p->plus ? p->plus + r * p->ldp : NULL;
        Vec top = vec_at(p->tops[r]);
        for (int64_t j = 0; j < p->columns; j += LANES) {
            Vec y = vec_at(c + j) * p->times;
            if (plus) y += vec_at(plus + j);
            if (plus || p->times != 1) vec_put(c + j, y);
            top = vec_max(y, top);
        }
        vec_put(p->tops[r], top);
    }
}

static void enter(void) { tiles_configure(16); }
static void leave(void) { _tile_release(); }

static const SdpaWay way = {GROUP, 16, room, pack, attend, enter, leave};

void KERNEL(sdpa_fill)(SdpaKernels *k)
{
    fill(k, &way);
    fill_back(k);
}
