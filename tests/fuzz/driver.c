/* The main of a fuzz target, where the compiler has no libFuzzer. See fuzz.h.
 *
 *     fuzz_NAME [--seconds N | --runs N] [--seed N] [--save FOLDER] [--keep FOLDER] FILE|FOLDER...
 *
 * A child process does the work, with each input in memory that the parent sees: whatever ends the child, the parent
 * has the input and saves it. A finding is a signal, a sanitizer's report, a leak, more than 2 seconds of CPU, or
 * memory out of proportion. Where the library was built with -Dbranches=true (make fuzz), inputs that reach new code
 * join the corpus, and the folder that --keep names, from which the next run goes on: one that reaches nothing beyond
 * what is read before it is removed. TAP on stdout.
 */
#include <dirent.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "fuzz.h"
#include "../tap.h"

enum { MOST_INPUT = 256 << 10, MAX_CORPUS = 20000, MAX_SECONDS = 2, PROGRESS = 5 };

/* What child and parent both see. */
static struct {
    size_t size;
    long runs;
    double slowest;
    size_t peak;
    uint8_t data[MOST_INPUT];
} * shared;

static struct {
    uint8_t *data;
    size_t size;
} corpus[MAX_CORPUS];
static size_t ncorpus;

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ------------------------------------------------------------------ what targets and mutations ask for */

void fuzz_check(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "must hold: %s\n", what);
    abort();
}

void fuzz_said(const Err *err)
{
    fuzz_check(err->code != E_OK, "a refusal has a code");
    fuzz_check(err->msg[0], "a refusal has a message");
}

const uint8_t *driver_other(size_t *size)
{
    size_t k = fuzz_random(ncorpus);
    *size = corpus[k].size;
    return corpus[k].data;
}

/* The library is linked with --wrap: it maps a copy of exactly the input's bytes,
 * whose ends the address sanitizer watches. */
static const uint8_t *file_data;
static size_t file_size;

void fuzz_set_file(const uint8_t *data, size_t size)
{
    file_data = data;
    file_size = size;
}

uint8_t *fuzz_take_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    uint8_t *bytes = malloc(n);
    rewind(f);
    n = bytes ? fread(bytes, 1, n, f) : 0;
    fclose(f);
    unlink(path);
    fuzz_set_file(bytes, n);
    return bytes;
}

bool __wrap_file_map(MappedFile *f, const char *path, Err *err);
bool __wrap_file_map_inside(MappedFile *f, const char *folder, const char *relative, Err *err);
void __wrap_file_unmap(MappedFile *f);
void __wrap_pages_done(const void *data, size_t n);

bool __wrap_file_map(MappedFile *f, const char *path, Err *err)
{
    void *copy = NULL;
    fuzz_check(!strcmp(path, FUZZ_PATH), "no file is opened but the one named");
    *f = (MappedFile){0};
    if (!file_size) return true;
    if (posix_memalign(&copy, 4096, file_size)) return fail(err, E_LIMIT, "out of memory");
    *f = (MappedFile){memcpy(copy, file_data, file_size), file_size};
    return true;
}

/* A file that the input names: nothing of the machine is opened. */
bool __wrap_file_map_inside(MappedFile *f, const char *folder, const char *relative, Err *err)
{
    *f = (MappedFile){0};
    if (*folder || strcmp(relative, FUZZ_DATA)) return fail(err, E_IO, "cannot open '%s'", relative);
    return __wrap_file_map(f, FUZZ_PATH, err);
}

/* The file's pages cannot be read again, as those of a mapping can. */
void __wrap_pages_done(const void *data, size_t n)
{
    (void)data;
    (void)n;
}

void __wrap_file_unmap(MappedFile *f)
{
    free((void *)(uintptr_t)f->data);
    *f = (MappedFile){0};
}

/* ------------------------------------------------------------------ memory and coverage,
 * told by the compiler's runtime */

static size_t live, most, allowed = SIZE_MAX;

#if defined(__SANITIZE_ADDRESS__)
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void *, size_t), void (*)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *);
void __sanitizer_print_stack_trace(void);
int __lsan_do_recoverable_leak_check(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void); /* the runtime looks them up by name */
__attribute__((visibility("default"))) const char *__ubsan_default_options(void);

const char *__asan_default_options(void) { return "detect_leaks=1:allocator_may_return_null=1"; }
const char *__ubsan_default_options(void) { return "halt_on_error=1:print_stacktrace=1"; }

static void on_malloc(const volatile void *p, size_t n)
{
    (void)p;
    size_t now = __atomic_add_fetch(&live, n, __ATOMIC_RELAXED);
    if (now > most) most = now;
    if (now <= allowed) return;
    allowed = SIZE_MAX;
    fprintf(stderr, "memory out of proportion: %zu bytes for an input of %zu\n", now, shared->size);
    __sanitizer_print_stack_trace();
    abort();
}

static void on_free(const volatile void *p)
{
    if (p) __atomic_sub_fetch(&live, __sanitizer_get_allocated_size(p), __ATOMIC_RELAXED);
}

static void watch_memory(void) { __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free); }
static bool leaks(void) { return __lsan_do_recoverable_leak_check(); }
#else
static void watch_memory(void) {}
static bool leaks(void) { return false; }
#endif

static uint8_t reached[1 << 18];
static bool is_new;
void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void)
{
    extern const char __executable_start[];
    static uintptr_t before;
    uintptr_t here = (uintptr_t)__builtin_return_address(0) - (uintptr_t)__executable_start;
    uint8_t *r = &reached[(here ^ before) % sizeof reached];
    before = here << 3;
    if (*r) return;
    *r = 1;
    is_new = true;
}

/* ------------------------------------------------------------------ the child */

static void add_input(const void *bytes, size_t size)
{
    if (ncorpus == MAX_CORPUS || size > MOST_INPUT) return;
    uint8_t *copy = malloc(size + 1);
    if (!copy) abort();
    memcpy(copy, bytes, size);
    corpus[ncorpus].data = copy;
    corpus[ncorpus++].size = size;
}

/* Where the input is a file of `folder`. */
static void input_path(const char *folder, char *path, size_t room)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < shared->size; i++) hash = (hash ^ shared->data[i]) * 0x100000001b3u;
    snprintf(path, room, "%s/%s-%016llx", folder, fuzz_target.name, (unsigned long long)hash);
}

static bool save_input(const char *path)
{
    FILE *f = fopen(path, "wb");
    bool saved = f && fwrite(shared->data, 1, shared->size, f) == shared->size;
    if (f) saved = !fclose(f) && saved;
    return saved;
}

/* Growth without a leak (a cache of a library) is found out once or a few times, then no longer looked at. */
static void run_input(void)
{
    static int looks = 20;
    const struct itimerval limit = {.it_value = {.tv_sec = MAX_SECONDS}}, none = {0};
    uint8_t *exact = malloc(shared->size ? shared->size : 1);
    if (!exact) abort();
    memcpy(exact, shared->data, shared->size);
    size_t before = most = live;
    double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    setitimer(ITIMER_PROF, &limit, NULL); /* its signal ends the process */
    allowed = before + ((size_t)64 << 20) + fuzz_target.memory_ratio * shared->size;
    LLVMFuzzerTestOneInput(exact, shared->size);
    allowed = SIZE_MAX;
    setitimer(ITIMER_PROF, &none, NULL);
    double took = seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
    if (took > shared->slowest) shared->slowest = took;
    if (most - before > shared->peak) shared->peak = most - before;
    shared->runs++;
    if (live > before && looks > 0) {
        before = live;
        LLVMFuzzerTestOneInput(exact, shared->size);
        if (live > before) {
            looks--;
            fuzz_check(!leaks(), "nothing is leaked");
        }
    }
    free(exact);
}

static void progress(double *next, double begin)
{
    double now = seconds(CLOCK_MONOTONIC);
    if (now < *next) return;
    size_t edges = 0;
    for (size_t i = 0; i < sizeof reached; i++) edges += reached[i];
    fprintf(stderr, "%s: %.0f s, %ld inputs, %zu kept, %zu edges, slowest %.2f s, most memory %zu MiB\n",
            fuzz_target.name, now - begin, shared->runs, ncorpus, edges, shared->slowest, shared->peak >> 20);
    *next = now + PROGRESS;
}

/* Later inputs of the corpus, which reached new code, are taken more often. */
static void make_input(void)
{
    size_t recent = ncorpus < 64 ? ncorpus : 64,
           k = fuzz_random(2) ? fuzz_random(ncorpus) : ncorpus - 1 - fuzz_random(recent);
    memcpy(shared->data, corpus[k].data, corpus[k].size);
    shared->size = LLVMFuzzerCustomMutator ? LLVMFuzzerCustomMutator(shared->data, corpus[k].size, MOST_INPUT,
                                                                     (unsigned)fuzz_random(UINT32_MAX))
                                           : LLVMFuzzerMutate(shared->data, corpus[k].size, MOST_INPUT);
}

/* The corpus once; those from `kept` on are files of `keep`. */
static void replay(const char *keep, size_t kept)
{
    char path[4096];
    for (size_t k = 0; k < ncorpus; k++) {
        memcpy(shared->data, corpus[k].data, corpus[k].size);
        shared->size = corpus[k].size;
        is_new = false;
        run_input();
        if (is_new || k < kept) continue;
        input_path(keep, path, sizeof path);
        unlink(path);
    }
}

static void child(long runs, double limit, uint64_t seed, const char *keep, size_t kept)
{
    char path[4096];
    watch_memory();
    double begin = seconds(CLOCK_MONOTONIC), next = begin + PROGRESS;
    replay(keep, kept);
    mutate_seed(seed);
    while (limit > 0 ? seconds(CLOCK_MONOTONIC) - begin < limit : runs-- > 0) {
        make_input();
        is_new = false;
        run_input();
        if (is_new) add_input(shared->data, shared->size);
        if (is_new && keep) {
            input_path(keep, path, sizeof path);
            fuzz_check(save_input(path), "the folder of --keep can be written");
        }
        if (limit > 0) progress(&next, begin);
    }
    for (size_t k = 0; k < ncorpus; k++) free(corpus[k].data);
    exit(0);
}

/* ------------------------------------------------------------------ the parent */

static void add_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(shared->data, 1, MOST_INPUT, f) : 0;
    if (f && feof(f)) add_input(shared->data, n); /* larger files are left out */
    if (f) fclose(f);
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static void add_folder(const char *path)
{
    struct dirent **file;
    size_t end = fuzz_target.ending ? strlen(fuzz_target.ending) : 0;
    int n = end ? scandir(path, &file, NULL, by_name) : 0;
    for (int i = 0; i < n; i++) {
        char name[4096];
        size_t len = strlen(file[i]->d_name);
        snprintf(name, sizeof name, "%s/%s", path, file[i]->d_name);
        bool wanted = len > end && !strcmp(file[i]->d_name + len - end, fuzz_target.ending);
        if (wanted && fuzz_target.expand) fuzz_target.expand(name, add_input);
        else if (wanted) add_file(name);
        free(file[i]);
    }
    if (n > 0) free(file);
}

static void add_kept(const char *keep)
{
    struct dirent **file;
    int n = scandir(keep, &file, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", keep, file[i]->d_name);
        add_file(name);
        free(file[i]);
    }
    if (n > 0) free(file);
}

static void save_finding(const char *folder)
{
    char path[4096];
    input_path(folder, path, sizeof path);
    bool saved = save_input(path);
    fprintf(stderr, "%s: the input of %zu bytes is %s %s\n", fuzz_target.name, shared->size,
            saved ? "in" : "lost: cannot write", path);
}

static int usage(void)
{
    fprintf(stderr,
            "usage: fuzz_%s [--seconds N | --runs N] [--seed N] [--save FOLDER] [--keep FOLDER] FILE|FOLDER...\n",
            fuzz_target.name);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seconds", 1, NULL, 's'}, {"runs", 1, NULL, 'r'}, {"seed", 1, NULL, 'e'},
        {"save", 1, NULL, 'o'},    {"keep", 1, NULL, 'k'}, {0}};
    const char *folder = ".", *keep = NULL;
    double limit = 0;
    long runs = 0;
    uint64_t seed = 1;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 's') limit = atof(optarg);
        else if (o == 'r') runs = atol(optarg);
        else if (o == 'e') seed = strtoull(optarg, NULL, 10);
        else if (o == 'o') folder = optarg;
        else if (o == 'k') keep = optarg;
        else return usage();
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) abort();
    if (optind == argc || limit > 0 || runs) fuzz_target.seeds(add_input);
    for (int i = optind; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) != 0) return usage();
        if (S_ISDIR(st.st_mode)) add_folder(argv[i]);
        else add_file(argv[i]);
    }
    size_t seeds = ncorpus;
    if (keep) add_kept(keep);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) child(runs, limit, seed, keep, seeds);
    int status = 0;
    bool waited = pid > 0 && waitpid(pid, &status, 0) == pid,
         fine = waited && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (waited && !fine) {
        if (WIFSIGNALED(status))
            fprintf(stderr, "%s: %s\n", fuzz_target.name,
                    WTERMSIG(status) == SIGPROF ? "too slow" : strsignal(WTERMSIG(status)));
        save_finding(folder);
    }
    tap_ok(fine, "%s: %ld inputs from %zu, seed %llu; slowest %.2f s, most memory %zu MiB", fuzz_target.name,
           shared->runs, seeds, (unsigned long long)seed, shared->slowest, shared->peak >> 20);
    for (size_t k = 0; k < ncorpus; k++) free(corpus[k].data);
    return tap_done();
}
