/* b of windows: the elements of a product's second operand where no strides of rows and columns say where they are.
 * A row and a column each have a place, and an element is at their sum. Contract in gemm_impl.h.
 *
 *     x (4, 4), windows of 3 x 3:     rows 0 1 4 5      columns 0 1 2 4 5 6 8 9 10, in runs of 3
 */
#include <string.h>
#include "base/mem.h"
#include "kernel/gemm_impl.h"
#include "kernel/variant.h"

/* Places of n elements of axes [first, end) from element `at` on, the last axis fastest. */
static void places(const Tensor *t, int first, int end, int64_t at, int64_t n, int64_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = at + i;
        to[i] = 0;
        for (int k = end - 1; k >= first; rest /= t->shape[k--]) to[i] += rest % t->shape[k] * t->stride[k];
    }
}

Windows *windows_of(const Tensor *windows, int along, int64_t first, int64_t K, Err *err)
{
    int64_t N = 1;
    for (int i = 1 + along; i < windows->rank; i++) N *= windows->shape[i];
    Windows *w = mem_alloc(sizeof *w);
    int64_t *room = w ? mem_alloc((size_t)(K + 2 * N + 1) * sizeof *room) : NULL;
    if (!room) {
        mem_free(w);
        return oom(err), NULL;
    }
    *w = (Windows){K, N, room, room + K};
    places(windows, 1, 1 + along, first, K, w->row);
    places(windows, 1 + along, windows->rank, 0, N, w->col);
    for (int64_t i = N - 1; i >= 0; i--)
        w->col[N + i] = i + 1 < N && w->col[i + 1] == w->col[i] + 1 ? w->col[N + i + 1] + 1 : 1;
    return w;
}

void windows_free(Windows *w)
{
    if (w) mem_free(w->row);
    mem_free(w);
}

/* Single elements. */
static void pick_4(const Windows *w, uint32_t *to, int64_t step, const uint32_t *from, int64_t k, int64_t n,
                   int64_t col, int64_t cols)
{
    for (int64_t i = k; i < k + n; i++, to += step) {
        const uint32_t *x = from + w->row[i];
        for (int64_t j = 0; j < cols; j++) to[j] = x[w->col[col + j]];
    }
}

static void pick_2(const Windows *w, uint16_t *to, int64_t step, const uint16_t *from, int64_t k, int64_t n,
                   int64_t col, int64_t cols)
{
    for (int64_t i = k; i < k + n; i++, to += step) {
        const uint16_t *x = from + w->row[i];
        for (int64_t j = 0; j < cols; j++) to[j] = x[w->col[col + j]];
    }
}

/* n rows of `bytes`, whose places are `row`, to rows `step` bytes apart. */
INLINE void lines(char *to, int64_t step, const char *from, const int64_t *row, int64_t n, int64_t size, size_t bytes)
{
    for (int64_t i = 0; i < n; i++) memcpy(to + i * step, from + row[i] * size, bytes);
}

void windows_take(const Windows *w, void *to, int64_t step, const void *from, size_t size, int64_t k, int64_t n,
                  int64_t col, int64_t cols)
{
    enum { SHORT = 4 };
    const int64_t *run = w->col + w->N, each = (int64_t)size;
    if (least(run[col], cols) < SHORT && cols >= SHORT) {
        if (size == 4) pick_4(w, to, step, from, k, n, col, cols);
        else pick_2(w, to, step, from, k, n, col, cols);
        return;
    }
    for (int64_t j = 0, some; j < cols; j += some) {
        some = least(run[col + j], cols - j);
        const char *x = (const char *)from + w->col[col + j] * each;
        char *y = (char *)to + j * each;
        switch (some * each) {
        case 64: lines(y, step * each, x, w->row + k, n, each, 64); break;
        case 96: lines(y, step * each, x, w->row + k, n, each, 96); break;
        case 128: lines(y, step * each, x, w->row + k, n, each, 128); break;
        case 192: lines(y, step * each, x, w->row + k, n, each, 192); break;
        default: lines(y, step * each, x, w->row + k, n, each, (size_t)(some * each));
        }
    }
}
