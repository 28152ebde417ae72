/* What qkv compare does with the values of two models: pairs of nodes, and how far they differ. */
#ifndef QKV_CLI_COMPARE_H
#define QKV_CLI_COMPARE_H
#include "page.h"

/* What a pair that differs is called; NULL: none does. */
typedef struct Differing {
    char *a, *b;
    size_t pairs; /* of all nodes */
} Differing;

/* Runs both, node by node, on the inputs that they have, and writes "values": {"pairs": [{a, b, by, ..}], "first":
 * index in pairs or null, "left_a": nodes of a without a partner, "left_b", "not_kept": values that were too many to
 * hold}. */
int compare_values(Page *p, Loaded *a, Loaded *b, Differing *first);
#endif
