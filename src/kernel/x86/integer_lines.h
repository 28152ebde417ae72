/* Lines of bytes on their way into packed operands. */
#ifndef QKV_KERNEL_X86_INTEGER_LINES_H
#define QKV_KERNEL_X86_INTEGER_LINES_H
#include "kernel/gen/product_impl.h"

enum { PIECE = 4 * LANES }; /* bytes of a line of K that are turned at once */

/* n bytes `step` apart with some bits flipped, zeros after them. */
INLINE void line_of(uint8_t *restrict to, const uint8_t *x, int64_t step, int n, uint8_t flip)
{
    uint8_t some[PIECE];
    if (n < PIECE || step != 1) {
        memset(some, flip, sizeof some); /* zeros, once flipped */
        if (step == 1) memcpy(some, x, (size_t)n);
        else
            for (int i = 0; i < n; i++) some[i] = x[i * step];
        x = some;
    }
    for (int i = 0; i < PIECE; i++) to[i] = x[i] ^ flip;
}
#endif
