/* ZIP archives: the directory through minizip over memory, every offset and size checked again, entries mapped. Contract in zip.h. */
#include "format/zip.h"
#include <ctype.h>
#include <minizip/unzip.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/arena.h"
#include "base/file.h"
#include "base/map.h"

enum { MAX_ENTRIES = 200000, MAX_NAME = 4096, MAX_RATIO = 1000, LOCAL_HEADER = 30, CENTRAL_HEADER = 46, END_RECORD = 22 };

struct Zip {
    const unsigned char *bytes;
    uint64_t size, directory; /* where the central directory begins */
    Arena *arena;
    ZipEntry *entry;
    void **inflated; /* per entry */
    size_t count;
    Map by_name;
};

/* ------------------------------------------------------------------ minizip over memory */

typedef struct Memory {
    const unsigned char *bytes;
    uint64_t size, at;
} Memory;

static voidpf memory_open(voidpf opaque, const void *name, int mode)
{
    (void)name;
    (void)mode;
    ((Memory *)opaque)->at = 0;
    return opaque;
}

static uLong memory_read(voidpf opaque, voidpf stream, void *buf, uLong n)
{
    Memory *m = stream;
    (void)opaque;
    uint64_t left = m->size - m->at;
    if (n > left) n = (uLong)left;
    memcpy(buf, m->bytes + m->at, n);
    m->at += n;
    return n;
}

static uLong memory_write(voidpf opaque, voidpf stream, const void *buf, uLong n)
{
    (void)opaque;
    (void)stream;
    (void)buf;
    (void)n;
    return 0;
}

static ZPOS64_T memory_tell(voidpf opaque, voidpf stream)
{
    (void)opaque;
    return ((Memory *)stream)->at;
}

static long memory_seek(voidpf opaque, voidpf stream, ZPOS64_T offset, int origin)
{
    Memory *m = stream;
    (void)opaque;
    uint64_t base = origin == ZLIB_FILEFUNC_SEEK_SET ? 0 : origin == ZLIB_FILEFUNC_SEEK_CUR ? m->at : m->size, to;
    if (__builtin_add_overflow(base, (uint64_t)offset, &to) || to > m->size) return -1;
    m->at = to;
    return 0;
}

static int memory_nothing(voidpf opaque, voidpf stream)
{
    (void)opaque;
    (void)stream;
    return 0;
}

/* ------------------------------------------------------------------ numbers in the file */

static unsigned u16(const unsigned char *p) { return (unsigned)p[0] | (unsigned)p[1] << 8; }
static uint32_t u32(const unsigned char *p) { return u16(p) | (uint32_t)u16(p + 2) << 16; }
static uint64_t u64(const unsigned char *p) { return u32(p) | (uint64_t)u32(p + 4) << 32; }

/* ------------------------------------------------------------------ the directory */

/* Offset, size and count of the central directory, from the last end record (ZIP64 where it points to one). */
static bool find_directory(Zip *z, uint64_t *count, Err *err)
{
    if (z->size < END_RECORD) return fail(err, E_FORMAT, "%llu bytes are too few for a ZIP archive", (unsigned long long)z->size);
    uint64_t lowest = z->size > END_RECORD + 65535 ? z->size - END_RECORD - 65535 : 0, at = z->size - END_RECORD;
    while (u32(z->bytes + at) != 0x06054b50 || at + END_RECORD + u16(z->bytes + at + 20) != z->size) {
        if (at == lowest) return fail(err, E_FORMAT, "no end record: the file is no ZIP archive, or it is cut off");
        at--;
    }
    const unsigned char *e = z->bytes + at;
    uint64_t size = u32(e + 12), offset = u32(e + 16), end = at;
    *count = u16(e + 10);
    if (u16(e + 4) || u16(e + 6)) return fail(err, E_UNSUPPORTED, "an archive in several parts");
    if (at >= 20 && u32(z->bytes + at - 20) == 0x07064b50) {
        uint64_t r = u64(z->bytes + at - 12);
        if (!in_range_u64(r, 56, at - 20) || u32(z->bytes + r) != 0x06064b50)
            return fail(err, E_FORMAT, "byte %llu: the ZIP64 end record is not where its locator says", (unsigned long long)r);
        *count = u64(z->bytes + r + 32);
        size = u64(z->bytes + r + 40);
        offset = u64(z->bytes + r + 48);
        end = r;
    }
    if (!in_range_u64(offset, size, end) || offset + size != end)
        return fail(err, E_FORMAT, "the directory (offset %llu, %llu bytes) does not end at byte %llu, where the end record begins",
                    (unsigned long long)offset, (unsigned long long)size, (unsigned long long)end);
    if (*count > size / CENTRAL_HEADER) return fail(err, E_FORMAT, "%llu entries do not fit in a directory of %llu bytes", (unsigned long long)*count,
                                                    (unsigned long long)size);
    if (*count > MAX_ENTRIES) return fail(err, E_LIMIT, "%llu entries, at most %d are read", (unsigned long long)*count, MAX_ENTRIES);
    z->directory = offset;
    return true;
}

/* Two names that some system would take for one file share this form: lower case, '/' for '\\', cut at a NUL. */
static char *folded(Arena *a, const char *name)
{
    char *s = arena_strdup(a, name);
    for (char *p = s; p && *p; p++) *p = *p == '\\' ? '/' : (char)tolower((unsigned char)*p);
    return s;
}

static bool safe_name(const char *n)
{
    if (!*n || *n == '/' || *n == '\\' || (isalpha((unsigned char)n[0]) && n[1] == ':')) return false;
    for (const char *p = n; *p;) {
        size_t k = strcspn(p, "/\\");
        if (k == 2 && p[0] == '.' && p[1] == '.') return false;
        p += k + (p[k] != 0);
    }
    return true;
}

/* The local header must agree with the directory; where it leaves sizes to a data descriptor, they are 0. */
static bool check_local(const Zip *z, const ZipEntry *e, uint64_t header, Err *err)
{
    const unsigned char *h = z->bytes + header;
    size_t n = strlen(e->name);
    if (u32(h) != 0x04034b50) return fail(err, E_FORMAT, "entry '%s': no local header at byte %llu", e->name, (unsigned long long)header);
    if (u16(h + 26) != n || memcmp(h + LOCAL_HEADER, e->name, n))
        return fail(err, E_FORMAT, "entry '%s': its local header has another name", e->name);
    if (u16(h + 8) != (unsigned)e->method) return fail(err, E_FORMAT, "entry '%s': its local header has another method", e->name);
    uint32_t packed = u32(h + 18), size = u32(h + 22);
    bool open = (u16(h + 6) & 8) && packed == 0 && size == 0, large = packed == 0xffffffffu || size == 0xffffffffu;
    if (!open && !large && (packed != e->packed_size || size != e->size))
        return fail(err, E_FORMAT, "entry '%s': its local header has other sizes", e->name);
    return true;
}

static bool read_entry(Zip *z, unzFile u, ZipEntry *e, Err *err)
{
    unz_file_info64 info;
    char name[MAX_NAME + 1];
    if (unzGetCurrentFileInfo64(u, &info, name, sizeof name, NULL, 0, NULL, 0) != UNZ_OK) return fail(err, E_FORMAT, "an entry cannot be read");
    if (info.size_filename > MAX_NAME) return fail(err, E_LIMIT, "an entry's name has %lu bytes, at most %d are read", info.size_filename, MAX_NAME);
    if (memchr(name, 0, info.size_filename)) return fail(err, E_FORMAT, "entry '%s': a NUL in its name", name);
    *e = (ZipEntry){.name = arena_strndup(z->arena, name, info.size_filename), .packed_size = info.compressed_size, .size = info.uncompressed_size,
                    .crc = (uint32_t)info.crc, .method = (int)info.compression_method, .encrypted = (info.flag & 1) != 0};
    if (!e->name) return fail(err, E_LIMIT, "out of memory");
    if (!safe_name(e->name)) return fail(err, E_FORMAT, "entry '%s': a name that leaves the archive's folder", e->name);
    unz64_file_pos pos;
    if (unzGetFilePos64(u, &pos) != UNZ_OK) return fail(err, E_FORMAT, "entry '%s' cannot be found", e->name);
    uint64_t header = 0;
    const unsigned char *c = z->bytes + pos.pos_in_zip_directory;
    if (!in_range_u64(pos.pos_in_zip_directory, CENTRAL_HEADER, z->size)) return fail(err, E_FORMAT, "entry '%s': the directory is cut off", e->name);
    header = u32(c + 42);
    if (header == 0xffffffffu || u32(c + 20) == 0xffffffffu || u32(c + 24) == 0xffffffffu) { /* in the ZIP64 field, in this order, those that are full */
        uint64_t x = pos.pos_in_zip_directory + CENTRAL_HEADER + u16(c + 28), end = x + u16(c + 30);
        if (end > z->size) return fail(err, E_FORMAT, "entry '%s': the directory is cut off", e->name);
        bool found = false;
        while (!found && x + 4 <= end) {
            uint64_t n = u16(z->bytes + x + 2), at = x + 4;
            found = u16(z->bytes + x) == 1;
            if (at + n > end) return fail(err, E_FORMAT, "entry '%s': a field reaches beyond its header", e->name);
            uint64_t *full[] = {&e->size, &e->packed_size, &header}; /* minizip 1.1 leaves the sizes at 2^32 - 1 where long has 64 bits */
            static const int place[] = {24, 20, 42};
            for (uint64_t k = 0, used = 0; found && k < 3; k++) {
                if (u32(c + place[k]) != 0xffffffffu) continue;
                if (used + 8 > n) return fail(err, E_FORMAT, "entry '%s': its ZIP64 field is too short", e->name);
                *full[k] = u64(z->bytes + at + used);
                used += 8;
            }
            x = at + n;
        }
        if (!found) return fail(err, E_FORMAT, "entry '%s': its ZIP64 field is missing", e->name);
    }
    if (!in_range_u64(header, LOCAL_HEADER, z->directory) || !in_range_u64(header + LOCAL_HEADER, u16(z->bytes + header + 26), z->directory))
        return fail(err, E_FORMAT, "entry '%s': its header at byte %llu is outside the file", e->name, (unsigned long long)header);
    TRY(check_local(z, e, header, err));
    e->offset = header + LOCAL_HEADER + u16(z->bytes + header + 26) + u16(z->bytes + header + 28);
    if (!in_range_u64(e->offset, e->packed_size, z->directory))
        return fail(err, E_FORMAT, "entry '%s': its %llu bytes at %llu reach into the directory", e->name, (unsigned long long)e->packed_size,
                    (unsigned long long)e->offset);
    if (e->method == 0 && e->packed_size != e->size) return fail(err, E_FORMAT, "entry '%s': stored, but its two sizes differ", e->name);
    if (e->method != 0 && e->size / MAX_RATIO > e->packed_size)
        return fail(err, E_LIMIT, "entry '%s': %llu bytes would become %llu", e->name, (unsigned long long)e->packed_size, (unsigned long long)e->size);
    return true;
}

static int by_offset(const void *a, const void *b)
{
    const ZipEntry *x = *(const ZipEntry *const *)a, *y = *(const ZipEntry *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static bool check_overlap(const Zip *z, Err *err)
{
    const ZipEntry **order = malloc((z->count + 1) * sizeof *order);
    if (!order) return fail(err, E_LIMIT, "out of memory");
    for (size_t i = 0; i < z->count; i++) order[i] = &z->entry[i];
    qsort(order, z->count, sizeof *order, by_offset);
    bool ok = true;
    for (size_t i = 1; ok && i < z->count; i++)
        if (order[i - 1]->offset + order[i - 1]->packed_size > order[i]->offset || order[i - 1]->offset == order[i]->offset)
            ok = fail(err, E_FORMAT, "entries '%s' and '%s' overlap", order[i - 1]->name, order[i]->name);
    free(order);
    return ok;
}

static bool read_directory(Zip *z, unzFile u, uint64_t count, Err *err)
{
    Map names = {0};
    bool ok = true;
    z->entry = arena_array(z->arena, ZipEntry, count + 1);
    z->inflated = arena_array(z->arena, void *, count + 1);
    if (!z->entry || !z->inflated) return fail(err, E_LIMIT, "out of memory");
    int step = count ? unzGoToFirstFile(u) : UNZ_END_OF_LIST_OF_FILE;
    for (; ok && step == UNZ_OK; step = unzGoToNextFile(u)) {
        ZipEntry *e = &z->entry[z->count];
        if (z->count == count) {
            ok = fail(err, E_FORMAT, "the directory holds more entries than its end record says");
            break;
        }
        ok = read_entry(z, u, e, err);
        char *form = ok ? folded(z->arena, e->name) : NULL;
        if (ok && form && map_has(&names, form)) ok = fail(err, E_FORMAT, "entry '%s' is there twice", e->name);
        if (ok && (!form || !map_put(&names, form, e) || !map_put(&z->by_name, e->name, e))) ok = fail(err, E_LIMIT, "out of memory");
        if (ok) z->count++;
    }
    map_free(&names);
    if (ok && (step != UNZ_END_OF_LIST_OF_FILE || z->count != count))
        ok = fail(err, E_FORMAT, "the directory breaks off after %zu of %llu entries", z->count, (unsigned long long)count);
    return ok && check_overlap(z, err);
}

Zip *zip_open(const void *bytes, uint64_t size, Err *err)
{
    uint64_t count = 0;
    Zip *z = calloc(1, sizeof *z);
    if (!z || !(z->arena = arena_create(0))) {
        free(z);
        fail(err, E_LIMIT, "out of memory");
        return NULL;
    }
    z->bytes = bytes;
    z->size = size;
    bool ok = find_directory(z, &count, err);
    Memory m = {bytes, size, 0};
    zlib_filefunc64_def io = {memory_open, memory_read, memory_write, memory_tell, memory_seek, memory_nothing, memory_nothing, &m};
    unzFile u = ok ? unzOpen2_64("", &io) : NULL;
    if (ok && !u) ok = fail(err, E_FORMAT, "the directory cannot be read");
    ok = ok && read_directory(z, u, count, err);
    if (u) unzClose(u);
    if (ok) return z;
    zip_close(z);
    return NULL;
}

void zip_close(Zip *z)
{
    if (!z) return;
    for (size_t i = 0; z->inflated && i < z->count; i++) free(z->inflated[i]);
    map_free(&z->by_name);
    arena_destroy(z->arena);
    free(z);
}

size_t zip_count(const Zip *z) { return z->count; }
const ZipEntry *zip_entry(const Zip *z, size_t i) { return &z->entry[i]; }
const ZipEntry *zip_find(const Zip *z, const char *name) { return map_get(&z->by_name, name); }

static uint32_t crc_of(const unsigned char *p, uint64_t n)
{
    uLong crc = crc32(0, NULL, 0);
    while (n) {
        uInt k = n > 1u << 30 ? 1u << 30 : (uInt)n;
        crc = crc32(crc, p, k);
        p += k;
        n -= k;
    }
    return (uint32_t)crc;
}

static bool inflate_entry(const Zip *z, const ZipEntry *e, void **out, Err *err)
{
    unsigned char *p = malloc(e->size + 64);
    if (!p) return fail(err, E_LIMIT, "entry '%s': out of memory for %llu bytes", e->name, (unsigned long long)e->size);
    z_stream s = {.next_in = (unsigned char *)(uintptr_t)(z->bytes + e->offset)};
    uint64_t in = e->packed_size, room = e->size;
    int r = inflateInit2(&s, -MAX_WBITS);
    s.next_out = p;
    while (r == Z_OK) {
        if (!s.avail_in) in -= s.avail_in = in > 1u << 30 ? 1u << 30 : (uInt)in;
        if (!s.avail_out) room -= s.avail_out = room > 1u << 30 ? 1u << 30 : (uInt)room;
        r = inflate(&s, Z_NO_FLUSH);
    }
    uint64_t made = (uint64_t)(s.next_out - p);
    inflateEnd(&s);
    if (r != Z_STREAM_END || made != e->size) {
        free(p);
        return fail(err, E_FORMAT, "entry '%s': its compressed bytes are damaged", e->name);
    }
    *out = p;
    return true;
}

bool zip_data(Zip *z, const ZipEntry *e, bool check_crc, const void **bytes, uint64_t *size, Err *err)
{
    size_t i = (size_t)(e - z->entry);
    *size = e->size;
    if (e->encrypted) return fail(err, E_UNSUPPORTED, "entry '%s' is encrypted", e->name);
    if (e->method == 0) {
        *bytes = z->bytes + e->offset;
    } else if (e->method == 8) {
        if (!z->inflated[i]) TRY(inflate_entry(z, e, &z->inflated[i], err));
        *bytes = z->inflated[i];
        check_crc = true;
    } else {
        return fail(err, E_UNSUPPORTED, "entry '%s': compression method %d; stored and deflate are read", e->name, e->method);
    }
    if (check_crc && crc_of(*bytes, e->size) != e->crc) return fail(err, E_FORMAT, "entry '%s': its checksum is wrong, the bytes are damaged", e->name);
    return true;
}

/* ------------------------------------------------------------------ writing */

struct ZipWriter {
    OutFile *out;
    Arena *arena;
    ZipEntry *entry;
    size_t count, cap;
    uint64_t at;
};

ZipWriter *zip_writer(OutFile *out, Err *err)
{
    ZipWriter *w = calloc(1, sizeof *w);
    if (!w || !(w->arena = arena_create(0))) {
        free(w);
        fail(err, E_LIMIT, "out of memory");
        return NULL;
    }
    w->out = out;
    return w;
}

static void put(unsigned char **p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) *(*p)++ = (unsigned char)(v >> 8 * i);
}

static bool emit(ZipWriter *w, const void *bytes, uint64_t n, Err *err)
{
    w->at += n;
    return outfile_write(w->out, bytes, n, err);
}

bool zip_add(ZipWriter *w, const char *name, const void *bytes, uint64_t size, Err *err)
{
    unsigned char head[LOCAL_HEADER + 20 + 4 + 64] = {0}, *p = head;
    size_t n = strlen(name);
    if (n > MAX_NAME) return fail(err, E_FORMAT, "entry name of %zu bytes", n);
    if (w->count == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 64;
        ZipEntry *e = realloc(w->entry, cap * sizeof *e);
        if (!e) return fail(err, E_LIMIT, "out of memory");
        w->entry = e;
        w->cap = cap;
    }
    ZipEntry *e = &w->entry[w->count];
    *e = (ZipEntry){.name = arena_strdup(w->arena, name), .offset = w->at, .packed_size = size, .size = size, .crc = crc_of(bytes, size)};
    if (!e->name) return fail(err, E_LIMIT, "out of memory");
    bool large = size >= 0xffffffffu;
    size_t fixed = LOCAL_HEADER + n + (large ? 20 : 0) + 4, pad = (64 - (w->at + fixed) % 64) % 64;
    put(&p, 0x04034b50, 4);
    put(&p, large ? 45 : 20, 2);
    put(&p, 0x0800, 2); /* names are UTF-8 */
    put(&p, 0, 6);
    put(&p, e->crc, 4);
    put(&p, large ? 0xffffffffu : size, 4);
    put(&p, large ? 0xffffffffu : size, 4);
    put(&p, n, 2);
    put(&p, (large ? 20u : 0u) + 4u + pad, 2);
    TRY(emit(w, head, LOCAL_HEADER, err) && emit(w, name, n, err));
    p = head;
    if (large) {
        put(&p, 1, 2);
        put(&p, 16, 2);
        put(&p, size, 8);
        put(&p, size, 8);
    }
    put(&p, 0x4246, 2); /* "FB", as torch pads */
    put(&p, pad, 2);
    memset(p, 'Z', pad);
    TRY(emit(w, head, (uint64_t)(p - head) + pad, err) && emit(w, bytes, size, err));
    w->count++;
    return true;
}

static bool write_directory(ZipWriter *w, Err *err)
{
    uint64_t start = w->at;
    for (size_t i = 0; i < w->count; i++) {
        const ZipEntry *e = &w->entry[i];
        unsigned char head[CENTRAL_HEADER + 28], *p = head;
        size_t n = strlen(e->name);
        put(&p, 0x02014b50, 4);
        put(&p, 45, 2);
        put(&p, 45, 2);
        put(&p, 0x0800, 2);
        put(&p, 0, 6);
        put(&p, e->crc, 4);
        put(&p, 0xffffffffu, 4);
        put(&p, 0xffffffffu, 4);
        put(&p, n, 2);
        put(&p, 28, 2);
        put(&p, 0, 10);
        put(&p, 0xffffffffu, 4);
        TRY(emit(w, head, CENTRAL_HEADER, err) && emit(w, e->name, n, err));
        p = head;
        put(&p, 1, 2);
        put(&p, 24, 2);
        put(&p, e->size, 8);
        put(&p, e->size, 8);
        put(&p, e->offset, 8);
        TRY(emit(w, head, 28, err));
    }
    unsigned char end[56 + 20 + END_RECORD], *p = end;
    uint64_t size = w->at - start;
    put(&p, 0x06064b50, 4);
    put(&p, 44, 8);
    put(&p, 45, 2);
    put(&p, 45, 2);
    put(&p, 0, 8);
    put(&p, w->count, 8);
    put(&p, w->count, 8);
    put(&p, size, 8);
    put(&p, start, 8);
    put(&p, 0x07064b50, 4);
    put(&p, 0, 4);
    put(&p, w->at, 8);
    put(&p, 1, 4);
    put(&p, 0x06054b50, 4);
    put(&p, 0, 4);
    put(&p, w->count < 0xffff ? w->count : 0xffff, 2);
    put(&p, w->count < 0xffff ? w->count : 0xffff, 2);
    put(&p, size < 0xffffffffu ? size : 0xffffffffu, 4);
    put(&p, start < 0xffffffffu ? start : 0xffffffffu, 4);
    put(&p, 0, 2);
    return emit(w, end, sizeof end, err);
}

bool zip_finish(ZipWriter *w, Err *err)
{
    bool ok = write_directory(w, err);
    arena_destroy(w->arena);
    free(w->entry);
    free(w);
    return ok;
}
