/* What an ONNX file's bytes say and its records no longer do: attributes without a type (the reader infers it), and the
 * paths of external data, also where the reader refuses them.
 *
 *     weight 'w': its data is at '../../etc/passwd'        Q912
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "format/proto.h"
#include "onnx/check/check_onnx.h"

enum { DEEPEST = 40, NAME = 200 };

static const char *name_of(Check *c, const PbField *f)
{
    return check_place(c, "%.*s", (int)(f->size < NAME ? f->size : NAME), (const char *)f->bytes);
}

/* A path relative to the model's folder that stays in it, through no link. */
static void check_location(Check *c, const char *place, const char *path, size_t n, const char *folder)
{
    char full[PATH_MAX];
    struct stat s;
    const char *why = NULL;
    if (!n) why = "no path";
    else if (path[0] == '/' || path[0] == '\\' || (n > 1 && path[1] == ':')) why = "an absolute path";
    else if (memchr(path, 0, n)) why = "a path with a NUL";
    for (size_t i = 0; i + 1 < n && !why; i++)
        if (path[i] == '.' && path[i + 1] == '.' && (i == 0 || path[i - 1] == '/' || path[i - 1] == '\\') &&
            (i + 2 == n || path[i + 2] == '/' || path[i + 2] == '\\'))
            why = "a path with '..'";
    if (why) {
        check_add(c, Q(912), place, "its data is at '%.*s', %s", (int)(n < NAME ? n : NAME), path, why);
        return;
    }
    if (!folder || (size_t)snprintf(full, sizeof full, "%s/%.*s", folder, (int)n, path) >= sizeof full) return;
    for (char *p = full + strlen(folder) + 1;; p++) { /* each part of the path */
        if (*p && *p != '/') continue;
        char end = *p;
        *p = 0;
        if (lstat(full, &s)) {
            check_add(c, Q(302), place, "there is no file '%.*s'", (int)(n < NAME ? n : NAME), path);
            return;
        }
        if (S_ISLNK(s.st_mode)) {
            check_add(c, Q(912), place, "its data is reached through the link '%.*s'", (int)(n < NAME ? n : NAME),
                      path);
            return;
        }
        if (!(*p = end)) break;
    }
    if (!S_ISREG(s.st_mode))
        check_add(c, Q(912), place, "'%.*s' is not a regular file", (int)(n < NAME ? n : NAME), path);
    else if (s.st_nlink > 1)
        check_add(c, Q(912), place, "'%.*s' has another name elsewhere (a hard link)", (int)(n < NAME ? n : NAME),
                  path);
}

static void scan_tensor(Check *c, Pb m, const char *folder)
{
    Err e;
    const char *name = "";
    for (Pb at = m; at.p; at.p = NULL)
        for (PbField f; pb_next(&at, &f, &e);)
            if (f.number == 8 && f.wire == PB_BYTES) name = name_of(c, &f);
    for (PbField f; pb_next(&m, &f, &e);) {
        if (f.number != 13 || f.wire != PB_BYTES) continue;
        Pb pair = pb_sub(&f);
        bool location = false;
        PbField value = {0};
        for (PbField p; pb_next(&pair, &p, &e);) {
            if (p.number == 1 && p.wire == PB_BYTES) location = p.size == 8 && !memcmp(p.bytes, "location", 8);
            if (p.number == 2 && p.wire == PB_BYTES) value = p;
        }
        if (location)
            check_location(c, check_place(c, "weight '%s'", name), value.bytes ? (const char *)value.bytes : "",
                           value.size, folder);
    }
}

static void scan_graph(Check *c, Pb m, const char *folder, int depth);

static void scan_attr(Check *c, Pb m, const char *place, const char *folder, int depth)
{
    Err e;
    const char *name = "";
    bool typed = false, any = false;
    for (PbField f; pb_next(&m, &f, &e);) {
        any = true;
        if (f.number == 1 && f.wire == PB_BYTES) name = name_of(c, &f);
        typed |= f.number == 20;
        if ((f.number == 5 || f.number == 10) && f.wire == PB_BYTES) scan_tensor(c, pb_sub(&f), folder);
        if ((f.number == 6 || f.number == 11) && f.wire == PB_BYTES) scan_graph(c, pb_sub(&f), folder, depth + 1);
    }
    if (any && !typed) check_add(c, Q(114), place, "attribute '%s' does not say its type", name);
}

static void scan_node(Check *c, Pb m, const char *folder, int depth)
{
    Err e;
    const char *place = "a node";
    for (Pb at = m; at.p; at.p = NULL)
        for (PbField f; pb_next(&at, &f, &e);)
            if ((f.number == 3 || f.number == 4) && f.wire == PB_BYTES)
                place = check_place(c, "node '%s'", name_of(c, &f));
    for (PbField f; pb_next(&m, &f, &e);)
        if (f.number == 5 && f.wire == PB_BYTES) scan_attr(c, pb_sub(&f), place, folder, depth);
}

static void scan_graph(Check *c, Pb m, const char *folder, int depth)
{
    Err e;
    if (depth > DEEPEST) return;
    for (PbField f; pb_next(&m, &f, &e);) {
        if (f.wire != PB_BYTES) continue;
        if (f.number == 1) scan_node(c, pb_sub(&f), folder, depth);
        if (f.number == 5) scan_tensor(c, pb_sub(&f), folder);
        if (f.number == 15) { /* sparse: values and indices */
            Pb s = pb_sub(&f);
            for (PbField t; pb_next(&s, &t, &e);)
                if ((t.number == 1 || t.number == 2) && t.wire == PB_BYTES) scan_tensor(c, pb_sub(&t), folder);
        }
    }
}

void check_onnx_wire(Check *c, const void *bytes, uint64_t size, const char *folder)
{
    Err e;
    Pb m = pb_of(bytes, size);
    for (PbField f; pb_next(&m, &f, &e);) {
        if (f.wire != PB_BYTES) continue;
        if (f.number == 7) scan_graph(c, pb_sub(&f), folder, 0);
        if (f.number != 25) continue;
        Pb body = pb_sub(&f);
        for (PbField n; pb_next(&body, &n, &e);)
            if (n.number == 7 && n.wire == PB_BYTES) scan_node(c, pb_sub(&n), folder, 0);
    }
}
