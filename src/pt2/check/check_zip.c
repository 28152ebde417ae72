/* The container of a .pt2 as bytes. The directory is walked here by itself, without the reader that loading uses, and
 * goes on after each finding; contents (pickles, code, archives in the archive) are looked at through the reader, where
 * it takes the file. Contract in check.h.
 *
 *     end record -> directory at .. -> per entry: its names, sizes, flags; its local header again; the bytes between
 *         entries
 */
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "format/zip.h"
#include "base/mem.h"
#include "verify/check.h"

enum { LOCAL = 30, CENTRAL = 46, END = 22, MOST = 200000, RATIO = 1000 };
#define FULL 0xffffffffu

static unsigned u16(const unsigned char *p) { return (unsigned)p[0] | (unsigned)p[1] << 8; }
static uint32_t u32(const unsigned char *p) { return u16(p) | (uint32_t)u16(p + 2) << 16; }
static uint64_t u64(const unsigned char *p) { return u32(p) | (uint64_t)u32(p + 4) << 32; }

typedef struct Entry {
    const unsigned char *name;
    unsigned nname, flags, method;
    uint64_t packed, size, header, begin, end; /* begin .. end: local header to the end of its data */
    const char *place;
} Entry;

typedef struct Walk {
    Check *c;
    const unsigned char *p;
    uint64_t size, directory, directory_end;
    Entry *entry;
    size_t n;
} Walk;

/* The last end record whose comment ends the file; others are counted. */
static bool find_end(Walk *w, uint64_t *count)
{
    if (w->size < END) return false;
    uint64_t at = w->size - END, lowest = w->size > END + 65535 ? w->size - END - 65535 : 0;
    while (u32(w->p + at) != 0x06054b50 || at + END + u16(w->p + at + 20) > w->size) {
        if (at == lowest) return false;
        at--;
    }
    uint64_t end = at + END + u16(w->p + at + 20), n = u32(w->p + at + 12), offset = u32(w->p + at + 16);
    if (end != w->size)
        check_add(w->c, Q(911), "archive", "%llu bytes follow the end record at byte %llu",
                  (unsigned long long)(w->size - end), (unsigned long long)at);
    if (u16(w->p + at + 20) && memmem(w->p + at + END, end - at - END, "PK", 2))
        check_add(w->c, Q(911), "archive", "the comment of %u bytes holds what looks like another archive",
                  u16(w->p + at + 20));
    *count = u16(w->p + at + 10);
    if (at >= 20 && u32(w->p + at - 20) == 0x07064b50) {
        uint64_t r = u64(w->p + at - 12);
        if (in_range_u64(r, 56, at) && u32(w->p + r) == 0x06064b50) {
            *count = u64(w->p + r + 32);
            n = u64(w->p + r + 40);
            offset = u64(w->p + r + 48);
        }
    }
    if (!in_range_u64(offset, n, at)) {
        check_add(w->c, Q(100), "archive",
                  "the end record puts the directory at byte %llu, %llu bytes long, outside the file",
                  (unsigned long long)offset, (unsigned long long)n);
        return false;
    }
    w->directory = offset;
    w->directory_end = offset + n;
    return true;
}

/* 64-bit sizes and offset, from the extra field. */
static void wide(const unsigned char *extra, unsigned n, Entry *e)
{
    while (n >= 4) {
        unsigned id = u16(extra), len = u16(extra + 2);
        if (len > n - 4) return;
        const unsigned char *p = extra + 4, *end = p + len;
        if (id == 1) {
            uint64_t *const field[] = {&e->size, &e->packed, &e->header};
            for (int i = 0; i < 3; i++)
                if (*field[i] == FULL && end - p >= 8) {
                    *field[i] = u64(p);
                    p += 8;
                }
            return;
        }
        extra += 4 + len;
        n -= 4 + len;
    }
}

static void check_name(Walk *w, const Entry *e)
{
    const char *why = NULL;
    const unsigned char *s = e->name;
    for (unsigned i = 0; i < e->nname && !why; i++) {
        if (s[i] < ' ' || s[i] == 0x7f) why = "a control character";
        else if (s[i] == '\\') why = "a backslash";
        else if (s[i] == '.' && i + 1 < e->nname && s[i + 1] == '.' && (i == 0 || s[i - 1] == '/') &&
                 (i + 2 == e->nname || s[i + 2] == '/'))
            why = "'..'";
    }
    if (!why && e->nname && s[0] == '/') why = "an absolute path";
    if (!why && e->nname > 1 && is_alpha(s[0]) && s[1] == ':') why = "a drive";
    if (why) check_add(w->c, Q(904), e->place, "its name has %s", why);
    if (e->nname > 4096) check_add(w->c, Q(904), e->place, "its name has %u bytes", e->nname);
}

static void check_local(Walk *w, Entry *e)
{
    if (!in_range_u64(e->header, LOCAL, w->directory) || u32(w->p + e->header) != 0x04034b50) {
        check_add(w->c, Q(910), e->place, "the directory puts it at byte %llu, where no entry begins",
                  (unsigned long long)e->header);
        return;
    }
    const unsigned char *h = w->p + e->header;
    unsigned flags = u16(h + 6), nname = u16(h + 26), extra = u16(h + 28);
    e->begin = e->header;
    uint64_t data = e->header + LOCAL + nname + extra;
    if (!in_range_u64(data, e->packed, w->directory)) {
        check_add(w->c, Q(906), e->place, "its %llu bytes at byte %llu reach into the directory or beyond the file",
                  (unsigned long long)e->packed, (unsigned long long)data);
        return;
    }
    e->end = data + e->packed;
    if (nname != e->nname || memcmp(h + LOCAL, e->name, nname))
        check_add(w->c, Q(910), e->place, "its own header has another name, '%.*s'", (int)(nname < 200 ? nname : 200),
                  h + LOCAL);
    if (u16(h + 8) != e->method)
        check_add(w->c, Q(910), e->place, "its own header has compression method %u, the directory %u", u16(h + 8),
                  e->method);
    if ((flags ^ e->flags) & 1)
        check_add(w->c, Q(910), e->place, "only one of its two headers says that it is encrypted");
    Entry own = {.packed = u32(h + 18), .size = u32(h + 22)};
    wide(h + LOCAL + nname, extra, &own);
    bool later = flags & 8; /* sizes come after the data */
    if (!later && (own.packed != e->packed || own.size != e->size))
        check_add(w->c, Q(910), e->place, "its own header says %llu bytes, the directory %llu",
                  (unsigned long long)own.size, (unsigned long long)e->size);
    if (!later || !in_range_u64(e->end, 16, w->directory) || u32(w->p + e->end) != 0x08074b50) return;
    const unsigned char *next = w->p + e->end + 16; /* sizes of 4 bytes each, or of 8 */
    bool is_short = e->end + 16 == w->directory || (in_range_u64(e->end, 20, w->directory) && u32(next) == 0x04034b50);
    if (is_short || in_range_u64(e->end, 24, w->directory)) e->end += is_short ? 16 : 24;
}

static void check_entry(Walk *w, Entry *e, unsigned made_by, uint32_t attributes)
{
    Check *c = w->c;
    check_name(w, e);
    if (e->flags & 1) check_add(c, Q(908), e->place, "it is encrypted");
    if (e->method != 0 && e->method != 8) check_add(c, Q(913), e->place, "compression method %u", e->method);
    if (made_by >> 8 == 3 && (attributes >> 16 & 0170000) == 0120000)
        check_add(c, Q(909), e->place, "its mode bits make it a link");
    if (e->method == 0 && e->packed != e->size)
        check_add(c, Q(910), e->place, "stored, but %llu bytes would become %llu", (unsigned long long)e->packed,
                  (unsigned long long)e->size);
    else if (e->size / RATIO > e->packed)
        check_add(c, Q(907), e->place, "%llu bytes would become %llu", (unsigned long long)e->packed,
                  (unsigned long long)e->size);
    check_local(w, e);
}

static void walk_directory(Walk *w, uint64_t count)
{
    uint64_t at = w->directory;
    w->entry = mem_zeroed((size_t)(count < MOST ? count : MOST) + 1, sizeof *w->entry);
    if (!w->entry) {
        w->c->failed = true;
        return;
    }
    while (at + CENTRAL <= w->directory_end && w->n < count && w->n < MOST) {
        const unsigned char *r = w->p + at;
        unsigned nname = u16(r + 28), extra = u16(r + 30), comment = u16(r + 32);
        if (u32(r) != 0x02014b50 || !in_range_u64(at, (uint64_t)CENTRAL + nname + extra + comment, w->directory_end))
            break;
        Entry *e = &w->entry[w->n++];
        *e = (Entry){.name = r + CENTRAL,
                     .nname = nname,
                     .flags = u16(r + 8),
                     .method = u16(r + 10),
                     .packed = u32(r + 20),
                     .size = u32(r + 24),
                     .header = u32(r + 42)};
        wide(r + CENTRAL + nname, extra, e);
        e->place = check_place(w->c, "entry '%.*s'", (int)(nname < 200 ? nname : 200), e->name);
        check_entry(w, e, u16(r + 4), u32(r + 38));
        at += (uint64_t)CENTRAL + nname + extra + comment;
    }
    if (w->n != count || at != w->directory_end)
        check_add(w->c, Q(910), "archive", "the directory says %llu entries in %llu bytes; %zu were found in %llu",
                  (unsigned long long)count, (unsigned long long)(w->directory_end - w->directory), w->n,
                  (unsigned long long)(at - w->directory));
}

static int by_begin(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int by_name(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    for (unsigned i = 0; i < x->nname && i < y->nname; i++) {
        int d = to_lower(x->name[i]) - to_lower(y->name[i]);
        if (d) return d;
    }
    return (int)x->nname - (int)y->nname;
}

static void check_names(Walk *w)
{
    qsort(w->entry, w->n, sizeof *w->entry, by_name);
    for (size_t i = 1; i < w->n; i++) {
        const Entry *a = &w->entry[i - 1], *b = &w->entry[i];
        if (by_name(a, b)) continue;
        bool same = a->nname == b->nname && !memcmp(a->name, b->name, a->nname);
        check_add(w->c, Q(905), b->place,
                  same ? "another entry has the same name" : "another entry's name differs in capitals alone");
    }
}

static void check_bytes(Walk *w)
{
    qsort(w->entry, w->n, sizeof *w->entry, by_begin);
    uint64_t at = 0;
    for (size_t i = 0; i < w->n; i++) {
        const Entry *e = &w->entry[i];
        if (!e->end) continue;
        if (e->begin < at && i)
            check_add(w->c, Q(906), e->place, "it begins at byte %llu, before the one before it has ended",
                      (unsigned long long)e->begin);
        else if (e->begin > at)
            check_add(w->c, Q(911), e->place, "%llu bytes in front of it belong to no entry",
                      (unsigned long long)(e->begin - at));
        if (e->end > at) at = e->end;
    }
    if (at < w->directory)
        check_add(w->c, Q(911), "archive", "%llu bytes between the last entry and the directory",
                  (unsigned long long)(w->directory - at));
}

/* ------------------------------------------------------------------ contents */

static bool ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && !strcmp(s + n - m, suffix);
}

static bool is_code(const char *name, const unsigned char *p, uint64_t n)
{
    static const char *const suffix[] = {".so", ".dll", ".dylib", ".exe", ".py", ".pyc", ".sh", ".cubin", ".ptx", ".o"};
    for (size_t i = 0; i < sizeof suffix / sizeof *suffix; i++)
        if (ends(name, suffix[i])) return true;
    return strstr(name, ".so.") ||
           (n > 4 && (!memcmp(p, "\177ELF", 4) || !memcmp(p, "\xcf\xfa\xed\xfe", 4) ||
                      (n > 64 && !memcmp(p, "MZ", 2) && u32(p + 60) < n - 4 && !memcmp(p + u32(p + 60), "PE\0", 4))));
}

static bool is_pickle(const char *name, const unsigned char *p, uint64_t n)
{
    bool named = ends(name, ".pkl") || ends(name, ".pickle") || strstr(name, "custom_obj_") ||
                 strstr(name, "opaque_obj_");
    bool begins = n > 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5;
    return n &&
           (named || (begins && p[n - 1] == '.') ||
            ((ends(name, ".pt") || ends(name, ".pth") || ends(name, ".bin")) && !(n > 4 && !memcmp(p, "PK\3\4", 4))));
}

static void check_contents(Check *c, Zip *z, const char *outer)
{
    Err e;
    for (size_t i = 0; i < zip_count(z); i++) {
        const ZipEntry *entry = zip_entry(z, i);
        const void *data;
        uint64_t n;
        bool large = entry->method &&
                     entry->size > 64u << 20; /* what is compressed and large is not a pickle of example inputs */
        if (entry->encrypted || large || !zip_data(z, entry, false, &data, &n, &e)) continue;
        const unsigned char *p = data;
        const char *place = check_place(c, "entry '%s%s%.200s'", outer, *outer ? "', in it '" : "", entry->name);
        if (is_code(entry->name, p, n)) check_add(c, Q(903), place, "%llu bytes of code", (unsigned long long)n);
        else if (is_pickle(entry->name, p, n)) check_pickle(c, place, p, n);
        else if (n > 4 && !memcmp(p, "PK\3\4", 4)) {
            Zip *inner = *outer ? NULL : zip_open(p, n, &e);
            if (inner) check_contents(c, inner, entry->name);
            else check_add(c, Q(914), place, "an archive that cannot be looked into");
            zip_close(inner);
        }
    }
}

void check_zip(Check *c, const unsigned char *bytes, uint64_t size)
{
    Walk w = {.c = c, .p = bytes, .size = size};
    uint64_t count;
    if (!find_end(&w, &count)) return; /* the reader says why */
    walk_directory(&w, count);
    if (w.entry) {
        check_names(&w);
        check_bytes(&w);
    }
    mem_free(w.entry);
    Err e;
    Zip *z = zip_open(bytes, size, &e);
    if (z) check_contents(c, z, "");
    zip_close(z);
}
