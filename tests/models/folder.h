/* The models of a folder, for programs that run them all:
 *
 *     return each_model(argv[1], run_model, NULL) ? tap_done() : usage();
 */
#ifndef QKV_TESTS_FOLDER_H
#define QKV_TESTS_FOLDER_H
#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Calls f for the name of every .pt2 of the folder, without its ending, in their order; false:
 * there is no such folder. */
static bool each_model(const char *folder, void (*f)(const char *folder, const char *name, void *user), void *user)
{
    DIR *d = folder ? opendir(folder) : NULL;
    char *names[256];
    int n = 0;
    if (!d) return false;
    for (struct dirent *e; (e = readdir(d)) && n < 256;) {
        size_t len = strlen(e->d_name);
        if (len > 4 && !strcmp(e->d_name + len - 4, ".pt2")) names[n++] = strndup(e->d_name, len - 4);
    }
    closedir(d);
    qsort(names, (size_t)n, sizeof *names, by_name);
    for (int i = 0; i < n; i++) {
        f(folder, names[i], user);
        free(names[i]);
    }
    return true;
}
#endif
