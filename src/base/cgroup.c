/* Limits of control groups. Contract in cgroup.h. */
#include "base/cgroup.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/number.h"

/* What one group grants; 0 when it sets no limit. */
typedef double Grant(const char *root, const char *folder);

/* A thing that groups limit, as both versions show it. */
typedef struct Limited {
    const char *controller; /* version 1's name of it */
    Grant *v1, *v2;
} Limited;

/* Up to n numbers of the first line of a group's file; how many there are. */
static int numbers_in(const char *root, const char *folder, const char *file, double *v, int n)
{
    char line[256], path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s%s%s", root, folder, file);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    const char *at = fgets(line, sizeof line, f), *end;
    fclose(f);
    int found = 0;
    for (; at && found < n; at = end, found++) {
        v[found] = parse_double(at, &end);
        if (end == at) break;
    }
    return found;
}

static double cpus_v2(const char *root, const char *folder)
{
    double v[2]; /* quota and period; "max 100000": no limit */
    return numbers_in(root, folder, "/cpu.max", v, 2) == 2 && v[0] > 0 && v[1] > 0 ? v[0] / v[1] : 0;
}

static double cpus_v1(const char *root, const char *folder)
{
    double quota, period;
    if (!numbers_in(root, folder, "/cpu.cfs_quota_us", &quota, 1)) return 0;
    if (!numbers_in(root, folder, "/cpu.cfs_period_us", &period, 1)) return 0;
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* What a group's processes hold and the kernel cannot drop, which pages of files it can: of "NAME BYTES" a line. */
static double held_by(const char *root, const char *folder, const char *name)
{
    char line[256], path[2 * PATH_MAX];
    size_t n = strlen(name);
    double bytes = 0;
    snprintf(path, sizeof path, "%s%s/memory.stat", root, folder);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *end;
        if (!strncmp(line, name, n) && line[n] == ' ') bytes = parse_double(line + n, &end);
    }
    if (f) fclose(f);
    return bytes;
}

static double left_of(double most, double held) { return most - held > 1 ? most - held : 1; }

static double memory_v2(const char *root, const char *folder)
{
    double most; /* "max": no limit */
    if (!numbers_in(root, folder, "/memory.max", &most, 1) || most <= 0) return 0;
    return left_of(most, held_by(root, folder, "anon"));
}

static double memory_v1(const char *root, const char *folder)
{
    double most; /* without a limit it is a number above all machines' memory */
    if (!numbers_in(root, folder, "/memory.limit_in_bytes", &most, 1) || most <= 0) return 0;
    return left_of(most, held_by(root, folder, "total_rss"));
}

/* The tightest limit on the way from a group up to the root; a container may see only the root. */
static double tightest(const char *root, char *folder, Grant *granted, double least)
{
    for (;;) {
        double most = granted(root, folder);
        if (most > 0 && (least == 0 || most < least)) least = most;
        char *slash = strrchr(folder, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

static bool in_list(const char *list, const char *name)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n == strlen(name) && !strncmp(list, name, n)) return true;
    }
    return false;
}

static double granted(const char *root, const char *own, const Limited *of)
{
    char line[PATH_MAX + 64], root_v1[PATH_MAX], top[] = "";
    snprintf(root_v1, sizeof root_v1, "%s/%s", root, of->controller);
    double least = tightest(root_v1, top, of->v1, tightest(root, top, of->v2, 0));
    FILE *f = fopen(own, "r");
    while (f && fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':'), *folder = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!folder) continue;
        *folder++ = 0;
        folder[strcspn(folder, "\n")] = 0;
        controllers++;
        if (!*controllers) least = tightest(root, folder, of->v2, least);
        else if (in_list(controllers, of->controller)) least = tightest(root_v1, folder, of->v1, least);
    }
    if (f) fclose(f);
    return least;
}

double cgroup_cpus(const char *root, const char *own)
{
    return granted(root, own, &(const Limited){"cpu", cpus_v1, cpus_v2});
}

double cgroup_memory(const char *root, const char *own)
{
    return granted(root, own, &(const Limited){"memory", memory_v1, memory_v2});
}
