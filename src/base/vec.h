/* Arrays in an arena that grow at their end: room doubles whenever the count is a power of two, so that n elements take
 * at most 4n.
 *
 *     Output *all = vec_room(g->arena, g->output, g->noutput, sizeof *all);      NULL when out of memory; g->output
 * still holds if (!all) return false; all[g->noutput++] = fresh; g->output = all;
 */
#ifndef QKV_BASE_VEC_H
#define QKV_BASE_VEC_H
#include "base/arena.h"

/* The array with room for element n, which is zeroed or was never read; list: NULL or what this gave for each of the
 * n before. An array that something else allocated to its exact size must be copied here first. */
void *vec_room(Arena *a, void *list, int n, size_t size);
#endif
