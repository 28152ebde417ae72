/* The part of <omp.h> that qkv uses, for a build with threads of its own (team.c). */
#ifndef QKV_TEAM_OMP_H
#define QKV_TEAM_OMP_H

typedef enum omp_pause_resource_t { omp_pause_soft = 1 } omp_pause_resource_t;

void omp_set_num_threads(int n); /* of the calling thread's regions from now on */
int omp_get_max_threads(void);
int omp_get_num_threads(void);
int omp_get_thread_num(void);
int omp_pause_resource_all(
    omp_pause_resource_t kind); /* nothing to do: a child of fork() starts without workers by itself */
#endif
