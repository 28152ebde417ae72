/* Threads of our own (src/team), linked instead of the compiler's OpenMP runtime whatever the rest of the build takes.
 */
#include "unit.h"
#include "team/omp.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 1000, MOST = 9 };

static void each_index_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= MOST; threads++) {
        int seen[N] = {0}, thread_seen[MOST] = {0}, wrong = 0;
#pragma omp parallel for num_threads(threads)
        for (int i = 0; i < N; i++) seen[i]++;
#pragma omp parallel for num_threads(threads) if (threads > 4) schedule(static, 1)
        for (int i = 0; i < N; i++) seen[i]++;
#pragma omp parallel num_threads(threads)
        thread_seen[omp_get_thread_num()] += omp_get_num_threads() <= threads;
        for (int i = 0; i < N; i++) wrong += seen[i] != 2;
        for (int i = 0; i < threads; i++) wrong += thread_seen[i] != 1;
        assert_int_equal(wrong, 0);
    }
}

static void loops_in_turn(void **state)
{
    (void)state;
    int a[N] = {0}, b[N] = {0}, wrong = 0;
#pragma omp parallel num_threads(4)
    {
#pragma omp for schedule(dynamic, 3)
        for (int64_t i = 0; i < N; i++) a[i]++;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < N; i++) b[i] = a[N - 1 - i]; /* all of the first loop is done */
    }
    for (int i = 0; i < N; i++) wrong += a[i] != 1 || b[i] != 1;
    assert_int_equal(wrong, 0);
}

static void barriers(void **state)
{
    (void)state;
    int at[MOST] = {0};
    atomic_int wrong = 0;
#pragma omp parallel num_threads(MOST)
    for (int step = 1; step <= 200; step++) {
        at[omp_get_thread_num()] = step;
#pragma omp barrier
        for (int i = 0; i < omp_get_num_threads(); i++) wrong += at[i] != step;
#pragma omp barrier
    }
    assert_int_equal(wrong, 0);
}

static void region_within_a_region(void **state)
{
    (void)state;
    atomic_int inner = 0, outer = 0;
#pragma omp parallel num_threads(3)
    {
        outer++;
#pragma omp parallel num_threads(3)
        inner += omp_get_num_threads() == 1 && omp_get_thread_num() == 0;
    }
    assert_int_equal(outer, 3);
    assert_int_equal(inner, 3);
}

static double largest(const double *x, int n, int threads)
{
    double most = 0;
#pragma omp parallel for num_threads(threads) reduction(max : most)
    for (int i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static void *many_regions(void *wrong)
{
    double x[N];
    for (int i = 0; i < N; i++) x[i] = i;
    for (int k = 0; k < 200; k++) *(int *)wrong += largest(x, N - k, 1 + k % 4) != N - k - 1;
    return NULL;
}

static void regions_of_several_threads(void **state)
{
    (void)state;
    pthread_t t[16];
    int wrong[16] = {0};
    for (int i = 0; i < 16; i++) assert_int_equal(pthread_create(&t[i], NULL, many_regions, &wrong[i]), 0);
    for (int i = 0; i < 16; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(wrong[i], 0);
    }
}

static void after_fork(void **state)
{
    (void)state;
    int status, wrong = 0;
    many_regions(&wrong);
    pid_t child = fork();
    if (!child) {
        alarm(20);
        many_regions(&wrong);
        _exit(wrong);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    many_regions(&wrong);
    assert_int_equal(wrong, 0);
}

static void who_waits_sleeps(void **state)
{
    (void)state;
    struct timespec before, after, nap = {.tv_nsec = 200000000};
    int wrong = 0;
    many_regions(&wrong);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nanosleep(&nap, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    double used = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    assert_true(used < 0.1);
}

static void threads_wanted(void **state)
{
    (void)state;
    assert_true(omp_get_max_threads() >= 1);
    omp_set_num_threads(5);
    assert_int_equal(omp_get_max_threads(), 5);
    assert_int_equal(omp_get_num_threads(), 1);
    assert_int_equal(omp_get_thread_num(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_index_once),  cmocka_unit_test(loops_in_turn),
        cmocka_unit_test(barriers),         cmocka_unit_test(region_within_a_region),
        cmocka_unit_test(after_fork),       cmocka_unit_test(regions_of_several_threads),
        cmocka_unit_test(who_waits_sleeps), cmocka_unit_test(threads_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
