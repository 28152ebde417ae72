/* Files under faults: the linker puts the functions below between base/file.c and the system (-Wl,--wrap). */
#include "unit.h"
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "program/check_file.h"

typedef enum Call { NONE, READ, WRITE, FSYNC, RENAME, FSTAT } Call;
typedef enum Fault { FAILS, SHORT, INTERRUPTED, ENDS } Fault;
static Call faulty;
static Fault fault;
static int left; /* calls until it happens; SHORT: at every call */

/* Is this call the one? */
static bool now(Call c) { return c == faulty && (fault == SHORT || left-- == 0); }

static ssize_t wrong(int code)
{
    errno = code;
    return -1;
}

ssize_t __real_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n)
{
    if (!now(READ)) return __real_read(fd, p, n > 1000 ? 1000 : n);
    if (fault == ENDS) return 0;
    return fault == SHORT ? __real_read(fd, p, n > 7 ? 7 : n) : wrong(fault == INTERRUPTED ? EINTR : EIO);
}

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    if (!now(WRITE)) return __real_write(fd, p, n);
    return fault == SHORT ? __real_write(fd, p, n > 7 ? 7 : n) : wrong(fault == INTERRUPTED ? EINTR : ENOSPC);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) { return now(FSYNC) ? (int)wrong(EIO) : __real_fsync(fd); }

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to) { return now(RENAME) ? (int)wrong(EIO) : __real_rename(from, to); }

/* What fstat is called where files may be large. */
int __real_fstat64(int fd, struct stat *st);
int __wrap_fstat64(int fd, struct stat *st);
int __wrap_fstat64(int fd, struct stat *st) { return now(FSTAT) ? (int)wrong(EIO) : __real_fstat64(fd, st); }

static void inject(Call c, Fault f, int after)
{
    faulty = c;
    fault = f;
    left = after;
}

enum { SIZE = 5000 };
static char bytes[SIZE];

static void test_reads(void **state)
{
    (void)state;
    Err err = {0};
    MappedFile f;
    char path[200];
    snprintf(path, sizeof path, "%s", unit_path("faults"));
    for (int i = 0; i < SIZE; i++) bytes[i] = (char)(i * 31);
    OK(outfile_all(path, bytes, SIZE, &err));
    assert_false(file_copies(true));
    static const struct {
        Fault fault;
        int after;
        const char *says; /* NULL: the file is read */
    } rows[] = {{SHORT, 0, NULL},
                {INTERRUPTED, 0, NULL},
                {INTERRUPTED, 3, NULL},
                {FAILS, 0, "cannot read"},
                {FAILS, 3, "cannot read"},
                {ENDS, 3, "it became shorter"},
                {ENDS, 0, "it became shorter"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        inject(READ, rows[i].fault, rows[i].after);
        bool ok = file_map(&f, path, &err);
        inject(NONE, FAILS, 0);
        if (ok != !rows[i].says) STOP("row %zu: %s", i, ok ? "read" : err.msg);
        if (ok) assert_true(f.size == SIZE && !memcmp(f.data, bytes, SIZE));
        else if (err.code != E_IO || !strstr(err.msg, rows[i].says)) STOP("row %zu: %d %s", i, (int)err.code, err.msg);
        if (ok) file_unmap(&f);
        err = (Err){0};
    }
    OK(file_map(&f, path, &err));
    assert_int_equal(truncate(path, 10), 0); /* what was read stays */
    assert_memory_equal(f.data, bytes, SIZE);
    file_unmap(&f);
    assert_true(file_copies(false));
}

/* A file that can be read once, and then no more, which says nothing about it. */
static void test_read_again(void **state)
{
    (void)state;
    static const unsigned char relu[] = { /* y = Relu(x) as ONNX */
        8, 8, 58, 51, 10, 12, 10, 1, 120, 18, 1, 121, 34, 4, 82, 101, 108, 117, 18, 1, 103, 90, 15, 10, 1, 120, 18,
        10, 10, 8, 8, 1, 18, 4, 10, 2, 8, 4, 98, 15, 10, 1, 121, 18, 10, 10, 8, 8, 1, 18, 4, 10, 2, 8, 4, 66, 4, 10,
        0, 16, 17};
    for (int after = 0; after < 3; after++) { /* the file's size is asked for twice */
        Err err = {0};
        Buf report = {0};
        CheckCounts counts;
        CheckOptions o = {0};
        const char *path = unit_path("relu.onnx");
        OK(outfile_all(path, relu, sizeof relu, &err));
        inject(FSTAT, FAILS, after);
        bool ok = model_check(path, &o, &report, &counts, &err);
        inject(NONE, FAILS, 0);
        if (ok != (after == 2)) STOP("%d: %s", after, ok ? report.data : err.msg);
        if (!ok) assert_true(err.code == E_IO && strstr(err.msg, "cannot read"));
        buf_free(&report);
    }
}

static int files_in(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.' || e->d_name[1] == 'q';
    if (d) closedir(d);
    return n;
}

static void test_writes(void **state)
{
    (void)state;
    Err err = {0};
    MappedFile f;
    char folder[160], path[200];
    snprintf(folder, sizeof folder, "%s", unit_path("writes"));
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/a", folder);
    OK(outfile_all(path, "old", 3, &err));
    static const struct {
        Call call;
        Fault fault;
        bool written;
    } rows[] = {{WRITE, FAILS, false},
                {FSYNC, FAILS, false},
                {RENAME, FAILS, false},
                {WRITE, SHORT, true},
                {WRITE, INTERRUPTED, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        inject(rows[i].call, rows[i].fault, 0);
        bool ok = outfile_all(path, bytes, SIZE, &err);
        inject(NONE, FAILS, 0);
        if (ok != rows[i].written || (!ok && err.code != E_IO)) STOP("row %zu: %d %s", i, (int)err.code, err.msg);
        err = (Err){0};
        OK(file_map(&f, path, &err)); /* the old file or the new one, and nothing beside it */
        assert_true(ok ? f.size == SIZE && !memcmp(f.data, bytes, SIZE) : f.size == 3 && !memcmp(f.data, "old", 3));
        file_unmap(&f);
        assert_int_equal(files_in(folder), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads), cmocka_unit_test(test_read_again),
                                       cmocka_unit_test(test_writes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
