/* ZIP archives: the directory through minizip over memory, every offset and size checked again, entries mapped.
 * Contract in zip.h. */
#include "format/zip.h"
#include <minizip/unzip.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/arena.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/vec.h"

enum {
    MAX_ENTRIES = 200000,
    MAX_NAME = 4096,
    MAX_RATIO = 1000,
    LOCAL_HEADER = 30,
    CENTRAL_HEADER = 46,
    END_RECORD = 22
};
#define FULL 0xffffffffu /* in a 32-bit size or offset: look into the ZIP64 field */

struct Zip {
    const unsigned char *bytes;
    uint64_t size, directory, directory_end; /* the central directory: its first byte, and the first one after it */
    Arena *arena;
    ZipEntry *entry;
    uint64_t *header; /* per entry: where its local header begins */
    void **inflated;  /* per entry */
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

/* Offset, size and count of the central directory, from the last end record (ZIP64 where it points to one); *stop:
 * where its comment begins. */
static bool find_directory(Zip *z, uint64_t *count, uint64_t *stop, Err *err)
{
    if (z->size < END_RECORD)
        return fail(err, E_FORMAT, "%llu bytes are too few for a ZIP archive", (unsigned long long)z->size);
    uint64_t lowest = z->size > END_RECORD + 65535 ? z->size - END_RECORD - 65535 : 0, at = z->size - END_RECORD;
    while (u32(z->bytes + at) != 0x06054b50 || at + END_RECORD + u16(z->bytes + at + 20) != z->size) {
        if (at == lowest) return fail(err, E_FORMAT, "no end record: the file is not a ZIP archive, or it is cut off");
        at--;
    }
    const unsigned char *e = z->bytes + at;
    uint64_t size = u32(e + 12), offset = u32(e + 16), end = at;
    *count = u16(e + 10);
    *stop = at + END_RECORD;
    if (memmem(e + 4, z->size - at - 4, "PK\5\6", 4))
        return fail(err, E_FORMAT, "byte %llu: the archive's comment holds another end record", (unsigned long long)at);
    if (u16(e + 4) || u16(e + 6) || u16(e + 8) != u16(e + 10))
        return fail(err, E_UNSUPPORTED, "an archive in several parts; join it into one file");
    if (at >= 20 && u32(z->bytes + at - 20) == 0x07064b50) {
        uint64_t r = u64(z->bytes + at - 12);
        if (!in_range_u64(r, 56, at - 20) || u32(z->bytes + r) != 0x06064b50)
            return fail(err, E_FORMAT, "byte %llu: the ZIP64 end record is not where its locator says",
                        (unsigned long long)r);
        uint64_t large_count = u64(z->bytes + r + 32), large_size = u64(z->bytes + r + 40),
                 large_offset = u64(z->bytes + r + 48);
        if ((*count != 0xffff && *count != large_count) || (size != FULL && size != large_size) ||
            (offset != FULL && offset != large_offset))
            return fail(err, E_FORMAT, "byte %llu: the ZIP64 end record and the end record at byte %llu disagree",
                        (unsigned long long)r, (unsigned long long)at);
        *count = large_count;
        size = large_size;
        offset = large_offset;
        end = r;
    }
    if (!in_range_u64(offset, size, end) || offset + size != end)
        return fail(err, E_FORMAT,
                    "the directory (offset %llu, %llu bytes) does not end at byte %llu, where the end record begins",
                    (unsigned long long)offset, (unsigned long long)size, (unsigned long long)end);
    if (*count > size / CENTRAL_HEADER)
        return fail(err, E_FORMAT, "%llu entries do not fit in a directory of %llu bytes", (unsigned long long)*count,
                    (unsigned long long)size);
    if (*count > MAX_ENTRIES)
        return fail(err, E_LIMIT, "%llu entries, at most %d are read", (unsigned long long)*count, MAX_ENTRIES);
    z->directory = offset;
    z->directory_end = end;
    return true;
}

/* Two names that some system would take for one file share this form: lower case (unless `cased`), '/' for '\\'. */
static char *folded(Arena *a, const char *name, bool cased)
{
    char *s = arena_strdup(a, name);
    for (char *p = s; p && *p; p++) {
        if (*p == '\\') *p = '/';
        else if (!cased && *p >= 'A' && *p <= 'Z') *p = (char)(*p - 'A' + 'a');
    }
    return s;
}

static bool safe_name(const char *n)
{
    if (!*n || *n == '/' || *n == '\\' || (is_alpha(n[0]) && n[1] == ':')) return false;
    for (const char *p = n; *p;) {
        size_t k = strcspn(p, "/\\");
        if (k == 2 && p[0] == '.' && p[1] == '.') return false;
        p += k + (p[k] != 0);
    }
    return true;
}

/* The ZIP64 field (id 1) among extra fields [at, end): up to `want` numbers of 8 bytes into out.
 * False and a message when it is missing, too short or there twice. */
static bool zip64_field(const Zip *z, uint64_t at, uint64_t end, int want, uint64_t *out, const char *name, Err *err)
{
    bool found = false;
    while (at + 4 <= end) {
        uint64_t id = u16(z->bytes + at), n = u16(z->bytes + at + 2);
        at += 4;
        if (n > end - at) return fail(err, E_FORMAT, "entry '%s': an extra field reaches beyond its header", name);
        if (id == 1) {
            if (found) return fail(err, E_FORMAT, "entry '%s': two ZIP64 fields in one header", name);
            if (n < 8 * (uint64_t)want)
                return fail(err, E_FORMAT, "entry '%s': its ZIP64 field has %llu bytes, %d are needed", name,
                            (unsigned long long)n, 8 * want);
            for (int i = 0; i < want; i++) out[i] = u64(z->bytes + at + 8 * i);
            found = true;
        }
        at += n;
    }
    return found || fail(err, E_FORMAT, "entry '%s': sizes of 0xffffffff, but no ZIP64 field", name);
}

/* The local header must agree with the directory; where it leaves sizes and checksum to a data descriptor (flag 8),
 * they are 0. */
static bool check_local(const Zip *z, const ZipEntry *e, uint64_t header, Err *err)
{
    const unsigned char *h = z->bytes + header;
    size_t n = strlen(e->name);
    unsigned flags = u16(h + 6);
    if (u32(h) != 0x04034b50)
        return fail(err, E_FORMAT, "entry '%s': no local header at byte %llu", e->name, (unsigned long long)header);
    if (u16(h + 26) != n || memcmp(h + LOCAL_HEADER, e->name, n))
        return fail(err, E_FORMAT, "entry '%s': its local header at byte %llu has another name", e->name,
                    (unsigned long long)header);
    if (u16(h + 8) != (unsigned)e->method)
        return fail(err, E_FORMAT, "entry '%s': method %d in the directory, %u in its local header", e->name, e->method,
                    u16(h + 8));
    if ((flags & 1) != (unsigned)e->encrypted)
        return fail(err, E_FORMAT, "entry '%s': encrypted in one of its headers only", e->name);
    uint64_t sizes[2] = {u32(h + 22), u32(h + 18)}, full[2] = {0, 0};
    int large = (sizes[0] == FULL) + (sizes[1] == FULL);
    if (large) {
        uint64_t extra = header + LOCAL_HEADER + n;
        TRY(zip64_field(z, extra, extra + u16(h + 28), large, full, e->name, err));
        if (sizes[0] == FULL) sizes[0] = full[0];
        if (sizes[1] == FULL) sizes[1] = full[large - 1];
    }
    bool later = (flags & 8) && sizes[0] == 0 && sizes[1] == 0;
    if (!later && (sizes[0] != e->size || sizes[1] != e->packed_size))
        return fail(err, E_FORMAT,
                    "entry '%s': %llu bytes (%llu packed) in the directory, %llu (%llu) in its local header", e->name,
                    (unsigned long long)e->size, (unsigned long long)e->packed_size, (unsigned long long)sizes[0],
                    (unsigned long long)sizes[1]);
    if (!later && u32(h + 14) != e->crc && !((flags & 8) && u32(h + 14) == 0))
        return fail(err, E_FORMAT, "entry '%s': its local header has another checksum", e->name);
    return true;
}

/* Where the entry's bytes are, and that its numbers are possible. c: its record in the directory, known to be
 * inside. */
static bool place_entry(Zip *z, ZipEntry *e, uint64_t record, uint64_t *header, Err *err)
{
    const unsigned char *c = z->bytes + record;
    uint64_t size = u32(c + 24), packed = u32(c + 20), at = u32(c + 42), full[3];
    int large = (size == FULL) + (packed == FULL) + (at == FULL), i = 0;
    if (large) {
        uint64_t extra = record + CENTRAL_HEADER + u16(c + 28);
        TRY(zip64_field(z, extra, extra + u16(c + 30), large, full, e->name, err));
        if (size == FULL) size = full[i++];
        if (packed == FULL) packed = full[i++];
        if (at == FULL) at = full[i++];
    }
    if ((e->size != size && e->size != FULL) ||
        (e->packed_size != packed && e->packed_size != FULL)) /* minizip 1.1 leaves sizes of ZIP64 at FULL */
        return fail(err, E_FORMAT, "entry '%s': its ZIP64 sizes are ambiguous", e->name);
    e->size = size;
    e->packed_size = packed;
    if (!in_range_u64(at, LOCAL_HEADER, z->directory) ||
        !in_range_u64(at + LOCAL_HEADER, (uint64_t)u16(z->bytes + at + 26) + u16(z->bytes + at + 28), z->directory))
        return fail(err, E_FORMAT,
                    "entry '%s': its local header at byte %llu is outside the %llu bytes before the directory", e->name,
                    (unsigned long long)at, (unsigned long long)z->directory);
    TRY(check_local(z, e, at, err));
    *header = at;
    e->offset = at + LOCAL_HEADER + u16(z->bytes + at + 26) + u16(z->bytes + at + 28);
    if (!in_range_u64(e->offset, e->packed_size, z->directory))
        return fail(err, E_FORMAT, "entry '%s': its %llu bytes at byte %llu reach into the directory at byte %llu",
                    e->name, (unsigned long long)e->packed_size, (unsigned long long)e->offset,
                    (unsigned long long)z->directory);
    if (e->method == 0 && !e->encrypted && e->packed_size != e->size)
        return fail(err, E_FORMAT, "entry '%s': stored, but its sizes differ, %llu and %llu", e->name,
                    (unsigned long long)e->packed_size, (unsigned long long)e->size);
    if (e->method != 0 && e->size / MAX_RATIO > e->packed_size)
        return fail(err, E_LIMIT, "entry '%s': %llu bytes would become %llu; at most %d times as many are inflated",
                    e->name, (unsigned long long)e->packed_size, (unsigned long long)e->size, MAX_RATIO);
    return true;
}

/* One record of the directory. *record: where it must begin; moved to where the next one must. minizip looks for the
 * end records by rules of its own; that it reads the directory found above, and nothing else, is checked here at each
 * record. */
static bool read_entry(Zip *z, unzFile u, uint64_t *record, ZipEntry *e, uint64_t *header, Err *err)
{
    unz_file_info64 info;
    unz64_file_pos pos;
    char name[MAX_NAME + 1];
    uint64_t at = *record;
    if (unzGetCurrentFileInfo64(u, &info, name, sizeof name, NULL, 0, NULL, 0) != UNZ_OK ||
        unzGetFilePos64(u, &pos) != UNZ_OK || pos.pos_in_zip_directory != at ||
        !in_range_u64(at, CENTRAL_HEADER, z->directory_end))
        return fail(err, E_FORMAT, "byte %llu: not an entry of the directory", (unsigned long long)at);
    const unsigned char *c = z->bytes + at;
    uint64_t n = info.size_filename;
    *record = at + CENTRAL_HEADER + u16(c + 28) + u16(c + 30) + u16(c + 32);
    if (u32(c) != 0x02014b50 || u16(c + 28) != n || *record > z->directory_end || u32(c + 16) != info.crc ||
        u16(c + 10) != info.compression_method)
        return fail(err, E_FORMAT, "byte %llu: a damaged entry of the directory", (unsigned long long)at);
    if (n > MAX_NAME)
        return fail(err, E_LIMIT, "byte %llu: an entry's name has %llu bytes, at most %d are read",
                    (unsigned long long)at, (unsigned long long)n, MAX_NAME);
    if (memcmp(name, c + CENTRAL_HEADER, n))
        return fail(err, E_FORMAT, "byte %llu: a damaged entry of the directory", (unsigned long long)at);
    name[n] = 0;
    if (memchr(name, 0, n)) return fail(err, E_FORMAT, "entry '%s': a NUL in its name", name);
    *e = (ZipEntry){.name = arena_strndup(z->arena, name, n),
                    .packed_size = info.compressed_size,
                    .size = info.uncompressed_size,
                    .crc = (uint32_t)info.crc,
                    .method = (int)info.compression_method,
                    .encrypted = (info.flag & 1) != 0};
    if (!e->name) return oom(err);
    if (!safe_name(e->name)) return fail(err, E_FORMAT, "entry '%s': a name that leaves the archive's folder", e->name);
    if ((info.version >> 8) == 3 && (info.external_fa >> 16 & 0170000) == 0120000)
        return fail(err, E_FORMAT, "entry '%s': a symbolic link", e->name);
    return place_entry(z, e, at, header, err);
}

/* ------------------------------------------------------------------ the whole archive */

typedef struct Range {
    uint64_t begin, end;
    const char *name;
} Range;

static int by_begin(const void *a, const void *b)
{
    const Range *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* From the local header to the last data byte no two entries share a byte. */
static bool check_overlap(const Zip *z, Err *err)
{
    Range *r = mem_alloc((z->count + 1) * sizeof *r);
    if (!r) return oom(err);
    for (size_t i = 0; i < z->count; i++)
        r[i] = (Range){z->header[i], z->entry[i].offset + z->entry[i].packed_size, z->entry[i].name};
    qsort(r, z->count, sizeof *r, by_begin);
    bool ok = true;
    for (size_t i = 1; ok && i < z->count; i++)
        if (r[i - 1].end > r[i].begin)
            ok = fail(err, E_FORMAT, "entries '%s' and '%s' overlap at byte %llu", r[i - 1].name, r[i].name,
                      (unsigned long long)r[i].begin);
    mem_free(r);
    return ok;
}

static bool read_directory(Zip *z, unzFile u, uint64_t count, bool cased, Err *err)
{
    Map names = {0};
    bool ok = true;
    uint64_t record = z->directory;
    z->entry = arena_array(z->arena, ZipEntry, count + 1);
    z->header = arena_array(z->arena, uint64_t, count + 1);
    z->inflated = arena_array(z->arena, void *, count + 1);
    if (!z->entry || !z->header || !z->inflated) return oom(err);
    for (int step = count ? unzGoToFirstFile(u) : UNZ_END_OF_LIST_OF_FILE; ok && step == UNZ_OK && z->count < count;
         step = unzGoToNextFile(u)) {
        ZipEntry *e = &z->entry[z->count];
        if (!(ok = read_entry(z, u, &record, e, &z->header[z->count], err))) break;
        char *form = folded(z->arena, e->name, cased);
        ZipEntry *other = form ? map_get(&names, form) : NULL;
        if (other && !strcmp(other->name, e->name)) ok = fail(err, E_FORMAT, "entry '%s' occurs twice", e->name);
        else if (other)
            ok = fail(err, E_FORMAT, "entries '%s' and '%s' would be one file on some systems", other->name, e->name);
        else if (!form || !map_put(&names, form, e) || !map_put(&z->by_name, e->name, e)) ok = oom(err);
        else z->count++;
    }
    map_free(&names);
    if (ok && z->count != count)
        ok = fail(err, E_FORMAT, "byte %llu: the directory breaks off after %zu of %llu entries",
                  (unsigned long long)record, z->count, (unsigned long long)count);
    if (ok && record != z->directory_end)
        ok = fail(err, E_FORMAT, "byte %llu: the directory goes on after its %llu entries", (unsigned long long)record,
                  (unsigned long long)count);
    return ok && check_overlap(z, err);
}

static Zip *open_once(const void *bytes, uint64_t size, bool cased, Err *err)
{
    uint64_t count = 0, stop = 0;
    Zip *z = mem_zeroed(1, sizeof *z);
    if (!z || !(z->arena = arena_create(0))) {
        mem_free(z);
        oom(err);
        return NULL;
    }
    z->bytes = bytes;
    z->size = size;
    bool ok = find_directory(z, &count, &stop, err);
    Memory m = {bytes, ok ? stop : 0, 0}; /* minizip looks for the end record in the last 65,535 bytes alone */
    zlib_filefunc64_def io = {memory_open, memory_read,    memory_write,   memory_tell,
                              memory_seek, memory_nothing, memory_nothing, &m};
    unzFile u = ok && count ? unzOpen2_64("", &io) : NULL; /* it takes an end record at byte 0 for none */
    if (ok && count && !u) ok = fail(err, E_FORMAT, "the directory cannot be read");
    ok = ok && read_directory(z, u, count, cased, err);
    if (u) unzClose(u);
    if (ok) return z;
    zip_close(z);
    return NULL;
}

/* minizip does not say that it lacked memory: what looks damaged is so if it looks so twice, while there is more than
 * minizip takes. */
static Zip *open_any(const void *bytes, uint64_t size, bool cased, Err *err)
{
    Err e = {0};
    Zip *z = open_once(bytes, size, cased, &e);
    if (!z && e.code == E_FORMAT) {
        e = (Err){0};
        z = open_once(bytes, size, cased, &e);
    }
    if (!z && e.code == E_FORMAT) {
        void *more = mem_alloc(1 << 16);
        if (!more) oom(&e);
        mem_free(more);
    }
    if (!z && err) *err = e;
    return z;
}

Zip *zip_open(const void *bytes, uint64_t size, Err *err) { return open_any(bytes, size, false, err); }
Zip *zip_open_cased(const void *bytes, uint64_t size, Err *err) { return open_any(bytes, size, true, err); }

void zip_close(Zip *z)
{
    if (!z) return;
    for (size_t i = 0; z->inflated && i < z->count; i++) mem_free(z->inflated[i]);
    map_free(&z->by_name);
    arena_destroy(z->arena);
    mem_free(z);
}

const void *zip_bytes(const Zip *z, uint64_t *size)
{
    *size = z->size;
    return z->bytes;
}

size_t zip_count(const Zip *z) { return z->count; }
const ZipEntry *zip_entry(const Zip *z, size_t i) { return &z->entry[i]; }
const ZipEntry *zip_find(const Zip *z, const char *name) { return map_get(&z->by_name, name); }

/* before: 0, or that of what is before them. */
static uint32_t crc_after(uint32_t before, const unsigned char *p, uint64_t n)
{
    uLong crc = before;
    while (n) {
        uInt k = n > 1u << 30 ? 1u << 30 : (uInt)n;
        crc = crc32(crc, p, k);
        p += k;
        n -= k;
    }
    return (uint32_t)crc;
}

static void *zlib_alloc(void *user, uInt count, uInt size)
{
    (void)user;
    return mem_zeroed(count, size);
}

static void zlib_free(void *user, void *p)
{
    (void)user;
    mem_free(p);
}

static bool inflate_entry(const Zip *z, const ZipEntry *e, void **out, Err *err)
{
    unsigned char *p = mem_alloc(e->size + 1);
    z_stream s = {.next_in = (unsigned char *)(uintptr_t)(z->bytes + e->offset),
                  .next_out = p,
                  .zalloc = zlib_alloc,
                  .zfree = zlib_free};
    if (!p || inflateInit2(&s, -MAX_WBITS) != Z_OK) {
        mem_free(p);
        return fail(err, E_LIMIT, "entry '%s': out of memory for %llu bytes", e->name, (unsigned long long)e->size);
    }
    uint64_t in = e->packed_size, room = e->size;
    int r = Z_OK;
    while (r == Z_OK) {
        if (!s.avail_in) in -= s.avail_in = in > 1u << 30 ? 1u << 30 : (uInt)in;
        if (!s.avail_out) room -= s.avail_out = room > 1u << 30 ? 1u << 30 : (uInt)room;
        r = inflate(&s, Z_NO_FLUSH);
    }
    uint64_t made = (uint64_t)(s.next_out - p), unused = in + s.avail_in;
    inflateEnd(&s);
    if (r == Z_STREAM_END && made == e->size && unused == 0) {
        *out = p;
        return true;
    }
    mem_free(p);
    if (r == Z_MEM_ERROR) return fail(err, E_LIMIT, "entry '%s': out of memory", e->name);
    if (r == Z_STREAM_END && unused)
        return fail(err, E_FORMAT, "entry '%s': %llu bytes follow its compressed data", e->name,
                    (unsigned long long)unused);
    return fail(err, E_FORMAT, "entry '%s': its compressed bytes are damaged: %llu of %llu bytes came out", e->name,
                (unsigned long long)made, (unsigned long long)e->size);
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
        return fail(err, E_UNSUPPORTED, "entry '%s': compression method %d; stored and deflate are read", e->name,
                    e->method);
    }
    if (check_crc && crc_after(0, *bytes, e->size) != e->crc)
        return fail(err, E_FORMAT, "entry '%s': its checksum is wrong, the bytes are damaged; copy the file again",
                    e->name);
    return true;
}

/* ------------------------------------------------------------------ writing */

struct ZipWriter {
    OutFile *out;
    Arena *arena;
    ZipEntry *entry;
    size_t count;
    uint64_t at;
    Map names;
};

ZipWriter *zip_writer(OutFile *out, Err *err)
{
    ZipWriter *w = mem_zeroed(1, sizeof *w);
    if (!w || !(w->arena = arena_create(0))) {
        mem_free(w);
        oom(err);
        return NULL;
    }
    w->out = out;
    return w;
}

static void put(unsigned char **p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) *(*p)++ = (unsigned char)(i < 8 ? v >> 8 * i : 0);
}

static bool emit(ZipWriter *w, const void *bytes, uint64_t n, Err *err)
{
    w->at += n;
    return outfile_write(w->out, bytes, n, err);
}

bool zip_add(ZipWriter *w, const char *name, const void *bytes, uint64_t size, Err *err)
{
    return zip_add_parts(w, name, &(ZipPart){bytes, size}, 1, err);
}

bool zip_add_parts(ZipWriter *w, const char *name, const ZipPart *parts, int nparts, Err *err)
{
    unsigned char head[LOCAL_HEADER + 20 + 4 + 64] = {0}, *p = head;
    size_t n = strlen(name);
    uint64_t size = 0;
    uint32_t crc = 0;
    if (n > MAX_NAME || !safe_name(name)) return fail(err, E_USAGE, "'%s' cannot name an entry of an archive", name);
    if (map_has(&w->names, name)) return fail(err, E_USAGE, "two entries named '%s'", name);
    if (w->count == MAX_ENTRIES) return fail(err, E_LIMIT, "more than %d entries", MAX_ENTRIES);
    for (int i = 0; i < nparts; i++) {
        size += parts[i].size;
        crc = crc_after(crc, parts[i].bytes, parts[i].size);
    }
    ZipEntry *all = vec_grow(w->entry, (int)w->count, sizeof *all);
    if (!all) return oom(err);
    w->entry = all;
    ZipEntry *e = &all[w->count];
    *e = (ZipEntry){.name = arena_strdup(w->arena, name),
                    .offset = w->at,
                    .packed_size = size,
                    .size = size,
                    .crc = crc};
    if (!e->name || !map_put(&w->names, e->name, w)) return oom(err);
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
    TRY(emit(w, head, (uint64_t)(p - head) + pad, err));
    for (int i = 0; i < nparts; i++) TRY(emit(w, parts[i].bytes, parts[i].size, err));
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
    const size_t wide = w->count ? 0 : sizeof end - END_RECORD; /* readers know an empty archive by its first bytes */
    return emit(w, end + wide, sizeof end - wide, err);
}

bool zip_finish(ZipWriter *w, Err *err)
{
    bool ok = write_directory(w, err);
    map_free(&w->names);
    arena_destroy(w->arena);
    mem_free(w->entry);
    mem_free(w);
    return ok;
}
