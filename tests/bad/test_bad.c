/* Hostile files: the library must say what is wrong and never crash, hang, or take much memory. TAP.
 *
 *     test_bad SMALL_FOLDER EDITS_FOLDER
 *
 * Every prefix of a small .pt2 and .onnx, every byte of it with one bit flipped (what still loads is run with random
 * inputs), every seventh of one with branches and loops, and the edited files of edits.py and onnx_edits.py. Under
 * sanitizers prefixes and flips take turns (turn.h). Files are given through memory (memfd), so that tens of thousands
 * of them cost no disk.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "qkv.h"
#include "qkv_tools.h"
#include "tap.h"
#include "turn.h"

#if defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 4, MOST_MB = 4096 }; /* the sanitizer's own share */
#else
enum { SLOWER = 1, MOST_MB = 1024 };
#endif

/* Seconds of this process: others may keep the machine busy. */
static double now(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* Loads and, if that works, runs once with random inputs. */
static qkv_status try_file(const char *path, qkv_error *e)
{
    *e = (qkv_error){0};
    qkv_model *m = qkv_model_load(path, NULL, e);
    if (!m) return e->code;
    qkv_session_options so = {.struct_size = sizeof so, .threads = 1, .memory_limit = (size_t)64 << 20};
    qkv_session *s = qkv_session_create(m, &so, e);
    qkv_status st = s ? qkv_session_random_inputs(s, NULL, NULL, 0, 1, e) : e->code;
    if (st == QKV_OK) st = qkv_session_run(s, e);
    qkv_session_free(s);
    qkv_model_free(m);
    return st;
}

/* The checker on the same file: it must end with a report, and quickly; *clean: without an error or warning. */
static bool check_ends(const char *path, bool *clean, double *seconds)
{
    qkv_error e = {0};
    char *report = NULL;
    qkv_check_options o = {.struct_size = sizeof o, .security = 1, .full = 1, .strict = 1};
    double t = now();
    qkv_status st = qkv_check(path, &o, &report, &e);
    *seconds = now() - t;
    *clean = st == QKV_OK;
    bool said = report && (st == QKV_OK || e.message[0]) && st != QKV_USAGE;
    qkv_free(report);
    return said;
}

static unsigned char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    unsigned char *b = size > 0 ? malloc((size_t)size) : NULL;
    *n = b ? fread(b, 1, (size_t)size, f) : 0;
    fclose(f);
    return b;
}

static bool set_bytes(int fd, const unsigned char *b, size_t n)
{
    return ftruncate(fd, 0) == 0 && pwrite(fd, b, n, 0) == (ssize_t)n;
}

/* whole: no prefix of the file is a model. Every step-th byte; a step that is odd flips every bit in turn. */
static void prefixes_and_flips(const char *path, bool whole, size_t step)
{
    int turn = turn_of_three();
    size_t n = 0, first = turn > 0 ? (size_t)turn * step : 0;
    step *= turn < 0 ? 1 : 3;
    unsigned char *b = read_file(path, &n);
    int fd = memfd_create("bad", 0);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (!tap_ok(b && fd >= 0, "%s: can be read", path)) return;
    qkv_error e;
    long accepted = 0, silent = 0, loaded = 0, unended = 0;
    for (size_t k = first; k < n; k += step) {
        if (!set_bytes(fd, b, k)) break;
        qkv_status st = try_file(name, &e);
        accepted += st == QKV_OK;
        silent += st != QKV_OK && !e.message[0];
    }
    tap_ok(accepted == 0 || !whole, "%zu prefixes: refused (%ld accepted)", n / step, accepted);
    tap_ok(silent == 0, "%zu prefixes: each with a message (%ld without)", n / step, silent);
    silent = 0;
    for (size_t k = first; k < n; k += step) {
        b[k] ^= (unsigned char)(1u << (k % 8));
        if (!set_bytes(fd, b, n)) break;
        b[k] ^= (unsigned char)(1u << (k % 8));
        qkv_status st = try_file(name, &e);
        loaded += st == QKV_OK;
        silent += st != QKV_OK && !e.message[0];
        bool clean;
        double seconds;
        unended += k / step % 3 == 0 && (!check_ends(name, &clean, &seconds) || seconds > 2 * SLOWER);
    }
    tap_ok(unended == 0, "every third of them: checked with a report (%ld without)", unended);
    tap_ok(silent == 0, "%zu bit flips: no crash, each refusal with a message (%ld without); %ld ran all the same",
           n / step, silent, loaded);
    close(fd);
    free(b);
}

static void edited(const char *dir, const char *ending)
{
    DIR *d = opendir(dir);
    if (!tap_ok(d != NULL, "%s: edited files", dir)) return;
    for (struct dirent *f; (f = readdir(d));) {
        char path[1024];
        qkv_error e;
        if (!strstr(f->d_name, ending)) continue;
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        double t = now();
        qkv_status st = try_file(path, &e);
        t = now() - t;
        bool said = st == QKV_OK || (e.message[0] && st >= QKV_USAGE && st <= QKV_LIMIT);
        bool right = !strncmp(f->d_name, "accept", 6)   ? st == QKV_OK
                     : !strncmp(f->d_name, "reject", 6) ? st != QKV_OK
                                                        : true;
        tap_ok(said && right && t < 5 * SLOWER, "%s: %s (%d, %.1f s) %.200s", f->d_name,
               right          ? "as it must be"
               : st == QKV_OK ? "accepted"
                              : "refused",
               (int)st, t, st == QKV_OK ? "" : e.message);
        bool clean, ended = check_ends(path, &clean, &t);
        right = !strncmp(f->d_name, "accept", 6) ? clean : !strncmp(f->d_name, "reject", 6) ? !clean : true;
        tap_ok(ended && right && t < 2 * SLOWER, "check %s: %s (%.1f s)", f->d_name,
               right   ? "as it must be"
               : clean ? "nothing found"
                       : "found something",
               t);
    }
    closedir(d);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_bad SMALL_FOLDER EDITS_FOLDER\n");
        return 2;
    }
    char path[1024];
    edited(argv[2], ".pt2");
    for (int i = 0; i < 2; i++) { /* of branches and loops, too */
        snprintf(path, sizeof path, "%s/%s.pt2", argv[1], i ? "control_nested" : "sdpa_gqa");
        prefixes_and_flips(path, true, i ? 7 : 1);
    }
    snprintf(path, sizeof path, "%s/onnx", argv[2]);
    edited(path, ".onnx");
    snprintf(path, sizeof path, "%s/onnx/accept_good.onnx", argv[2]);
    prefixes_and_flips(path, false, 1);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    tap_ok(u.ru_maxrss >> 10 < MOST_MB, "peak memory of all of it: %ld MB, below %d", u.ru_maxrss >> 10, MOST_MB);
    return tap_done();
}
