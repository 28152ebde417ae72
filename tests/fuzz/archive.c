/* Mutations inside a ZIP archive: an entry's bytes, names, the list of entries.
 * Sizes and checksums are those of what is written, so that readers get to the contents. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "format/zip.h"
#include "fuzz.h"

enum { LOCAL = 30, CENTRAL = 46, END = 22, MAX_ENTRIES = 256 };

static void le(uint8_t *p, int width, uint64_t v)
{
    for (int i = 0; i < width; i++) p[i] = (uint8_t)(v >> 8 * i);
}

/* Raw deflate into out; 0 when it does not fit. */
static size_t deflated(const ArchiveEntry *e, uint8_t *out, size_t max)
{
    z_stream s = {.next_in = e->data, .avail_in = (uInt)e->size, .next_out = out, .avail_out = (uInt)max};
    if (deflateInit2(&s, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
    bool done = deflate(&s, Z_FINISH) == Z_STREAM_END;
    deflateEnd(&s);
    return done ? max - s.avail_out : 0;
}

/* The fields that the local header (from byte 4) and the directory (from byte 6) share. */
static void shared_fields(uint8_t *p, const ArchiveEntry *e, size_t packed)
{
    memset(p, 0, 26);
    le(p, 2, 20);
    le(p + 4, 2, e->deflate ? 8 : 0);
    le(p + 10, 4, crc32(0, e->data, (uInt)e->size));
    le(p + 14, 4, packed);
    le(p + 18, 4, e->size);
    le(p + 22, 2, strlen(e->name));
}

size_t archive_write(const ArchiveEntry *e, size_t n, uint8_t *out, size_t max)
{
    size_t at = 0, begin[MAX_ENTRIES], packed[MAX_ENTRIES];
    for (size_t i = 0; i < n; i++) {
        size_t name = strlen(e[i].name);
        if (max - at < LOCAL + name + e[i].size) return 0;
        begin[i] = at;
        memcpy(out + at, "PK\3\4", 4);
        memcpy(out + at + LOCAL, e[i].name, name);
        uint8_t *to = out + at + LOCAL + name;
        packed[i] = e[i].deflate ? deflated(&e[i], to, max - at - LOCAL - name) : e[i].size;
        if (e[i].deflate && !packed[i]) return 0;
        if (!e[i].deflate && e[i].size) memcpy(to, e[i].data, e[i].size);
        shared_fields(out + at + 4, &e[i], packed[i]);
        at += LOCAL + name + packed[i];
    }
    size_t directory = at;
    for (size_t i = 0; i < n; i++) {
        size_t name = strlen(e[i].name);
        if (max - at < CENTRAL + name) return 0;
        memset(out + at, 0, CENTRAL);
        memcpy(out + at, "PK\1\2", 4);
        shared_fields(out + at + 6, &e[i], packed[i]);
        le(out + at + 42, 4, begin[i]);
        memcpy(out + at + CENTRAL, e[i].name, name);
        at += CENTRAL + name;
    }
    if (max - at < END) return 0;
    memset(out + at, 0, END);
    memcpy(out + at, "PK\5\6", 4);
    le(out + at + 8, 2, n);
    le(out + at + 10, 2, n);
    le(out + at + 12, 4, at - directory);
    le(out + at + 16, 4, directory);
    return at + END;
}

/* Copies of what the archive holds; how many entries, 0 when it is not one. Each has room for `max` bytes. */
static size_t read_entries(const uint8_t *data, size_t size, size_t max, ArchiveEntry *e)
{
    Err ignored;
    Zip *z = zip_open_cased(data, size, &ignored);
    size_t n = z && zip_count(z) <= MAX_ENTRIES ? zip_count(z) : 0;
    for (size_t i = 0; i < n; i++) {
        const void *bytes = NULL;
        uint64_t have = 0;
        if (!zip_data(z, zip_entry(z, i), true, &bytes, &have, &ignored) || have > max) have = 0;
        e[i] = (ArchiveEntry){
            .name = calloc(1, 300), .data = malloc(have + 4096), .size = have, .deflate = zip_entry(z, i)->method == 8};
        if (!e[i].name || !e[i].data) abort();
        strncpy(e[i].name, zip_entry(z, i)->name, 255);
        if (have) memcpy(e[i].data, bytes, have);
    }
    zip_close(z);
    return n;
}

size_t archive_mutate(uint8_t *data, size_t size, size_t max, EntryMutator *inside)
{
    ArchiveEntry e[MAX_ENTRIES];
    size_t n = fuzz_random(20) ? read_entries(data, size, max, e) : 0, made;
    if (!n) return LLVMFuzzerMutate(data, size, max);
    size_t k = fuzz_random(n), how = fuzz_random(40), all = n;
    for (size_t tries = 0; tries < 8 && !strstr(e[k].name, ".json") && fuzz_random(10); tries++) k = fuzz_random(n);
    if (how == 0) e[k].name[LLVMFuzzerMutate((uint8_t *)e[k].name, strlen(e[k].name), 255)] = 0;
    else if (how == 1) e[k].deflate = !e[k].deflate;
    else if (how == 2) { /* the last entry in its place */ ArchiveEntry gone = e[k];
        e[k] = e[--n];
        e[n] = gone;
    } else e[k].size = inside(e[k].name, e[k].data, e[k].size, e[k].size + 4096);
    made = archive_write(e, n, data, max);
    for (size_t i = 0; i < all; i++) {
        free(e[i].name);
        free(e[i].data);
    }
    return made ? made : size;
}
