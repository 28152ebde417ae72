/* What the unit tests share: cmocka, a folder that is removed at exit, files that live in memory,
 * little-endian bytes, one random number generator. */
#ifndef QKV_TESTS_UNIT_H
#define QKV_TESTS_UNIT_H
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail /* the library has its own */
#define STOP(...)                                                                                                      \
    do {                                                                                                               \
        print_error(__VA_ARGS__);                                                                                      \
        print_error("\n");                                                                                             \
        _fail(__FILE__, __LINE__);                                                                                     \
    } while (0)
#include "base/buf.h"
#include "base/err.h"

/* A passing call; shows the message when it does not. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if (!(call)) STOP("%s: %s", #call, err.msg);                                                                   \
    } while (0)
/* A call that must fail with this code and say something. */
#define REFUSED(call, want)                                                                                            \
    do {                                                                                                               \
        err = (Err){0};                                                                                                \
        if (call) STOP("%s: accepted", #call);                                                                         \
        if (err.code != (want)) STOP("%s: code %d: %s", #call, (int)err.code, err.msg);                                \
        assert_true(strlen(err.msg) > 8);                                                                              \
    } while (0)

static char unit_folder[64];

__attribute__((unused)) static void unit_remove_folder(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", unit_folder);
    if (system(command)) perror(unit_folder);
}

/* "/tmp/qkv-unit-XXXXXX/<name>", good until the next call but three. */
__attribute__((unused)) static const char *unit_path(const char *name)
{
    static char paths[4][160];
    static int turn;
    if (!*unit_folder) {
        strcpy(unit_folder, "/tmp/qkv-unit-XXXXXX");
        if (!mkdtemp(unit_folder)) abort();
        atexit(unit_remove_folder);
    }
    char *p = paths[turn++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", unit_folder, name);
    return p;
}

/* A file in memory with these bytes; the same path for each call, so that thousands cost no disk. */
__attribute__((unused)) static const char *unit_file(const void *bytes, size_t n)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) fd = memfd_create("unit", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, bytes, n, 0) != (ssize_t)n) abort();
    return path;
}

__attribute__((unused)) static Buf unit_read(const char *path)
{
    Buf b = {0};
    char block[4096];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) buf_add(&b, block, n);
    fclose(f);
    return b;
}

__attribute__((unused)) static void put_le(Buf *b, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) buf_add(b, &(unsigned char){(unsigned char)(i < 8 ? v >> 8 * i : 0)}, 1);
}

__attribute__((unused)) static uint32_t unit_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}
#endif
