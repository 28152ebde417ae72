/* Which kernel PyTorch takes on a device for each attention of a joint graph that is a pair of ops (qkv.sdpa_lse and
 * qkv.sdpa_backward); the pair's parameter `kernel` says so to writers of files.
 *
 *     SdpaDevice d;
 *     PairKernel *list; int n;
 *     sdpa_device("cuda-sm90", 0, &d, err) && pair_kernels(g, &d, &bound, arena, &list, &n, err);
 *
 * On the CPU there is one pair, and `kernel` stays unset.
 */
#ifndef QKV_BACKENDS_PAIR_KERNELS_H
#define QKV_BACKENDS_PAIR_KERNELS_H
#include "backends/sdpa_choice.h"

typedef struct PairKernel {
    const char *node; /* of the forward pass */
    SdpaBackend backend;
    const Expr *assumes;      /* what sizes must meet, which the graph requires from now on; NULL: nothing */
    const SdpaRuleText *rule; /* what keeps it from a better kernel; NULL: nothing */
    SdpaBackend better;       /* of that rule */
} PairKernel;

/* Where the choice depends on sizes, the kernel that all sizes allow; with `bound` sizes, the one for those, and the
 * graph requires what makes it so. list: in memory of the arena. Errors: E_LIMIT. */
bool pair_kernels(Graph *g, const SdpaDevice *d, const Binding *bound, Arena *arena, PairKernel **list, int *n,
                  Err *err);
#endif
