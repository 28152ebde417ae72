/* Threads of our own (src/team): parts, claimed loops, company, executors, fork, sleep. */
#include "unit.h"
#include "base/cpu.h"
#include "team/team.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 1000, MOST = 9 };

/* Threads of a region are not more than asked for; its parts are all run, once. */
static void each_index_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= MOST; threads++) {
        int seen[N] = {0}, part_seen[MOST] = {0}, parts = 0, wrong = 0;
#pragma omp parallel for num_threads(threads)
        for (int i = 0; i < N; i++) seen[i]++;
#pragma omp parallel for num_threads(threads) if (threads > 4) schedule(static, 1)
        for (int i = 0; i < N; i++) seen[i]++;
#pragma omp parallel num_threads(threads) reduction(max : parts)
        {
            part_seen[team_part()]++;
            parts = team_parts();
        }
        assert_in_range(parts, 1, threads);
        for (int i = 0; i < N; i++) wrong += seen[i] != 2;
        for (int i = 0; i < parts; i++) wrong += part_seen[i] != 1;
        assert_int_equal(wrong, 0);
    }
}

/* Iterations that are claimed, in loops with and without something around them, of sizes that do not divide. */
static void claimed_loops(void **state)
{
    (void)state;
    for (int threads = 1; threads <= MOST; threads++)
        for (int64_t n = 0; n < 40; n += 13) {
            int a[40] = {0}, b[40] = {0}, wrong = 0;
            atomic_int entered = 0, parts = 0;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
            for (int64_t i = 0; i < n; i++) a[i]++;
#pragma omp parallel num_threads(threads)
            {
                entered++;
                parts = team_parts();
#pragma omp for schedule(dynamic, 3) nowait
                for (int64_t i = 0; i < n; i++) b[i] += a[n - 1 - i];
            }
            for (int i = 0; i < 40; i++) wrong += a[i] != (i < n) || b[i] != (i < n);
            assert_int_equal(wrong, 0);
            assert_int_equal(entered, parts);
        }
}

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

/* One iteration takes long: others take the rest, also what was the share of the part that has it. */
static void a_slow_part_holds_nothing_up(void **state)
{
    (void)state;
    for (int tries = 0;; tries++) {
        int by[N] = {0}, taken = 0;
        atomic_int slow = -1, parts = 0;
        assert_in_range(tries, 0, 50);
#pragma omp parallel num_threads(2)
        {
            parts = team_parts();
#pragma omp for schedule(dynamic, 1) nowait
            for (int64_t i = 0; i < N; i++) {
                if (i == 0) nap(20000000), slow = team_part();
                by[i] = team_part();
            }
        }
        for (int i = 1; i < N / 2; i++) taken += by[i] != slow;
        if (parts == 2 && taken == N / 2 - 1) return; /* a busy machine may not have run both at once */
    }
}

/* One part of eight takes three times as long as the others: who waits for it still saves what six others did. */
static void many_are_worth_waiting_for(void **state)
{
    enum { PARTS = 8, REGIONS = 12 };
    int whole = 0;
    (void)state;
    for (int i = 0; i < REGIONS; i++) {
        atomic_int parts = 0;
#pragma omp parallel num_threads(PARTS)
        {
            parts = team_parts();
#pragma omp for schedule(static, 1) nowait
            for (int k = 0; k < PARTS; k++) nap(k == PARTS - 1 ? 30000000 : 10000000);
        }
        whole += parts == PARTS;
    }
    assert_in_range(whole, REGIONS * 3 / 4, REGIONS);
}

static void region_within_a_region(void **state)
{
    (void)state;
    atomic_int inner = 0, outer = 0, parts = 0;
#pragma omp parallel num_threads(3)
    {
        outer++;
        parts = team_parts();
#pragma omp parallel num_threads(3)
        inner += team_parts() == 1 && team_part() == 0;
    }
    assert_int_equal(outer, parts);
    assert_int_equal(inner, parts);
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

static atomic_int here, stop, threads_now, most_now;

/* Opens regions until told to stop, and notes how many threads are in one at once. */
static void *company(void *threads)
{
    TeamStay before = team_enter(*(int *)threads, NULL);
    atomic_fetch_add(&here, 1);
    while (!atomic_load(&stop)) {
        if (atomic_load(&here) < 3) continue;
#pragma omp parallel num_threads(*(int *)threads)
        {
            int now = atomic_fetch_add(&threads_now, 1) + 1, most = atomic_load(&most_now);
            while (now > most && !atomic_compare_exchange_weak(&most_now, &most, now)) continue;
            nap(100000);
            atomic_fetch_sub(&threads_now, 1);
        }
    }
    team_leave(before);
    return NULL;
}

/* Three threads that want four each, or as many as there are CPUs: together they have no more than that, or, where
 * there are fewer CPUs, each its own. */
static void sessions_share(void **state)
{
    (void)state;
    pthread_t t[3];
    int cpus = cpu_count(), want = cpus < 4 ? cpus : 4;
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, company, &want), 0);
    for (int i = 0; i < 20; i++) nap(10000000);
    atomic_store(&stop, 1);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    assert_in_range(most_now, 1, cpus > 3 ? cpus : 3);
}

/* ------------------------------------------------------------------ executors */

enum Way { IN_TURN, BACKWARDS, THREADS, HALF, TWICE };
typedef struct Task {
    void (*task)(void *, int);
    void *data;
    int i;
} Task;

static void *one_task(void *t)
{
    Task *k = t;
    k->task(k->data, k->i);
    return NULL;
}

static int asked;
static void execute(void *user, int n, void (*task)(void *, int), void *data)
{
    enum Way way = *(enum Way *)user;
    asked = n;
    pthread_t t[MOST];
    Task k[MOST];
    for (int i = 0; i < n && way == THREADS; i++) {
        k[i] = (Task){task, data, i};
        assert_int_equal(pthread_create(&t[i], NULL, one_task, &k[i]), 0);
    }
    for (int i = 0; i < n; i++)
        if (way == THREADS) pthread_join(t[i], NULL);
        else if (way != HALF || i % 2) task(data, way == BACKWARDS ? n - 1 - i : i);
    for (int i = 0; i < n && way == TWICE; i++) task(data, i);
}

static void callers_executor(void **state)
{
    (void)state;
    for (enum Way way = IN_TURN; way <= TWICE; way++) {
        TeamExecutor x = {execute, &way};
        TeamStay before = team_enter(5, &x);
        int seen[N] = {0}, claimed[N] = {0}, wrong = 0;
        assert_ptr_equal(team_executor(), &x);
#pragma omp parallel for
        for (int i = 0; i < N; i++) seen[i]++;
#pragma omp parallel for num_threads(3) schedule(dynamic, 1)
        for (int64_t i = 0; i < N; i++) claimed[i] += team_width() == 5;
        team_leave(before);
        assert_null(team_executor());
        for (int i = 0; i < N; i++) wrong += seen[i] != 1 || claimed[i] != 1;
        assert_int_equal(wrong, 0);
        assert_int_equal(asked, 3);
    }
}

/* ------------------------------------------------------------------ fork, sleep, numbers */

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

/* Microseconds after the last region no thread of the pool takes time any more. */
static void who_waits_sleeps(void **state)
{
    (void)state;
    struct timespec before, after;
    int wrong = 0;
    double least = 1;
    for (int i = 0; i < 3; i++) { /* a virtual CPU that is taken away at a bad moment counts as used */
        many_regions(&wrong);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
        nap(200000000);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
        double used = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
        if (used < least) least = used;
    }
    assert_true(least < 0.01);
}

static void threads_wanted(void **state)
{
    (void)state;
    unsetenv("QKV_NUM_THREADS");
    setenv("OMP_NUM_THREADS", "3", 1);
    assert_int_equal(team_default(), 3);
    setenv("QKV_NUM_THREADS", "7", 1);
    assert_int_equal(team_default(), 7);
    unsetenv("QKV_NUM_THREADS");
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(team_default(), cpu_count());
    TeamStay before = team_enter(5, NULL);
    assert_int_equal(team_width(), 5);
    TeamStay inner = team_enter(2, NULL);
    assert_int_equal(team_width(), 2);
    team_leave(inner);
    assert_int_equal(team_width(), 5);
    team_leave(before);
    assert_int_equal(team_parts(), 1);
    assert_int_equal(team_part(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_index_once),
        cmocka_unit_test(claimed_loops),
        cmocka_unit_test(a_slow_part_holds_nothing_up),
        cmocka_unit_test(many_are_worth_waiting_for),
        cmocka_unit_test(region_within_a_region),
        cmocka_unit_test(after_fork),
        cmocka_unit_test(regions_of_several_threads),
        cmocka_unit_test(sessions_share),
        cmocka_unit_test(callers_executor),
        cmocka_unit_test(who_waits_sleeps),
        cmocka_unit_test(threads_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
