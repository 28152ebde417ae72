/* PyTorch's CPU generator: MT19937 (Matsumoto and Nishimura 1998), seeded as torch.manual_seed does, one draw after the
 * other.
 *
 *     rng_seed(&r, 0);
 *     rng_double(&r);      what torch.manual_seed(0); torch.rand(1, dtype=torch.float64) gives
 */
#ifndef QKV_RUN_RNG_H
#define QKV_RUN_RNG_H
#include <stdint.h>

typedef struct Rng {
    uint32_t state[624];
    int next; /* 624: all used */
} Rng;

void rng_seed(Rng *r, uint64_t seed);
uint32_t rng_u32(Rng *r);
uint64_t rng_u64(Rng *r);  /* the earlier draw is the upper half */
double rng_double(Rng *r); /* [0, 1), 53 bits */
#endif
