/* Container of packed models. Contract in packfile.h. */
#include "format/packfile.h"
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include "base/arena.h"
#include "base/file.h"

/* All integers are in the machine's byte order, which `order` records. Offsets count from the begin of the file. */
typedef struct Header {
    char magic[8];
    uint32_t order, version;
    uint64_t file_size;
    uint64_t json, json_size; /* with a NUL after it, which the size does not count */
    uint64_t text, text_size; /* the same */
    uint64_t data, data_size;
    uint32_t crc; /* of json and text, their NULs included */
    uint32_t zero[13];
} Header;
_Static_assert(sizeof(Header) == 128, "a header has 128 bytes");

static const char magic[8] = {(char)0x93, 'Q', 'K', 'V', 'P', 'K', 'D', '\n'};
static const uint32_t ORDER = 0x01020304;
enum { DATA_ALIGN = 4096 };

bool packfile_is(const unsigned char *bytes, uint64_t size)
{
    return size >= sizeof magic && !memcmp(bytes, magic, sizeof magic);
}

/* A text in the file: inside, and with a NUL after it as the only one. */
static bool text_in(const unsigned char *bytes, uint64_t size, uint64_t at, uint64_t n, const char *what,
                    const char **out, Err *err)
{
    if (at < sizeof(Header) || !in_range_u64(at, n, size) || at + n == size)
        return fail(err, E_FORMAT, "%s: %llu bytes at %llu are outside the file's %llu", what, (unsigned long long)n,
                    (unsigned long long)at, (unsigned long long)size);
    if (memchr(bytes + at, 0, n) || bytes[at + n])
        return fail(err, E_FORMAT, "%s: expected text that ends with its length", what);
    *out = (const char *)bytes + at;
    return true;
}

static uint32_t crc_of(const char *json, uint64_t nj, const char *text, uint64_t nt)
{
    return (uint32_t)crc32_z(crc32_z(0, (const unsigned char *)json, nj + 1), (const unsigned char *)text, nt + 1);
}

static bool round_to(uint64_t n, uint64_t to, uint64_t *out)
{
    if (n > UINT64_MAX - to) return false;
    *out = (n + to - 1) / to * to;
    return true;
}

bool packfile_read(PackFile *f, const unsigned char *bytes, uint64_t size, Err *err)
{
    Header h;
    if (!packfile_is(bytes, size))
        return fail(err, E_FORMAT, "not a packed model: its first bytes are not those of the format");
    if (size < sizeof h)
        return fail(err, E_FORMAT, "the file has %llu bytes, a header has %zu", (unsigned long long)size, sizeof h);
    memcpy(&h, bytes, sizeof h);
    if (h.order != ORDER)
        return fail(err, E_UNSUPPORTED,
                    "packed on a machine of the other byte order; pack the model again on this one");
    if (h.version != PACKFILE_VERSION)
        return fail(err, E_UNSUPPORTED, "packed in version %u of the format, this qkv reads %d; pack the model again",
                    h.version, PACKFILE_VERSION);
    for (size_t i = 0; i < sizeof h.zero / sizeof *h.zero; i++)
        if (h.zero[i]) return fail(err, E_FORMAT, "reserved bytes of the header are not 0");
    if (h.file_size != size)
        return fail(err, E_FORMAT, "the file has %llu bytes, its header says %llu", (unsigned long long)size,
                    (unsigned long long)h.file_size);
    *f = (PackFile){.json_size = h.json_size, .text_size = h.text_size, .data_size = h.data_size};
    TRY(text_in(bytes, size, h.json, h.json_size, "description", &f->json, err) &&
        text_in(bytes, size, h.text, h.text_size, "graph", &f->text, err));
    if (crc_of(f->json, f->json_size, f->text, f->text_size) != h.crc)
        return fail(err, E_FORMAT, "the checksum of description and graph does not match: the file is damaged");
    /* No checksum covers the data: they are where the writer puts them, or another page's bytes would be weights. */
    uint64_t begin;
    if (!round_to(h.text + h.text_size + 1, DATA_ALIGN, &begin) || h.data != begin || h.data > size ||
        h.data_size != size - h.data)
        return fail(err, E_FORMAT,
                    "data: found %llu bytes at %llu, expected those from the page after the graph, which ends at %llu, "
                    "to the file's end at %llu",
                    (unsigned long long)h.data_size, (unsigned long long)h.data,
                    (unsigned long long)(h.text + h.text_size), (unsigned long long)size);
    f->data = bytes + h.data;
    return true;
}

bool packfile_blob(PackFile *f, int64_t offset, int64_t size, const unsigned char **out, Err *err)
{
    if (offset < 0 || size < 0 || offset % PACKFILE_ALIGN ||
        !in_range_u64((uint64_t)offset, (uint64_t)size, f->data_size))
        return fail(err, E_FORMAT, "%lld bytes at %lld are outside the data's %llu, or not at a multiple of %d",
                    (long long)size, (long long)offset, (unsigned long long)f->data_size, PACKFILE_ALIGN);
    *out = f->data + offset;
    if ((uint64_t)(offset + size) > f->named) f->named = (uint64_t)(offset + size);
    return true;
}

bool packfile_all_named(const PackFile *f, Err *err)
{
    return f->named == f->data_size ||
           fail(err, E_FORMAT, "the description names %llu bytes of data, the file has %llu: they are another model's",
                (unsigned long long)f->named, (unsigned long long)f->data_size);
}

bool packfile_place(PackBlob *blob, int n, Err *err)
{
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        uint64_t end;
        blob[i].offset = at;
        if (__builtin_add_overflow(at, blob[i].size, &end) || !round_to(end, PACKFILE_ALIGN, &at))
            return fail(err, E_LIMIT, "the file would be too large");
    }
    return true;
}

static bool zeros(OutFile *o, uint64_t *at, uint64_t to, Err *err)
{
    static const unsigned char none[DATA_ALIGN];
    while (*at < to) {
        uint64_t n = to - *at < sizeof none ? to - *at : sizeof none;
        TRY(outfile_write(o, none, (size_t)n, err));
        *at += n;
    }
    return true;
}

static bool put(OutFile *o, uint64_t *at, const void *bytes, uint64_t n, Err *err)
{
    *at += n;
    return !n || outfile_write(o, bytes, (size_t)n, err);
}

static bool write_all(OutFile *o, const Header *h, const char *json, const char *text, const PackBlob *blob, int n,
                      Err *err)
{
    uint64_t at = 0;
    TRY(put(o, &at, h, sizeof *h, err) && put(o, &at, json, h->json_size + 1, err) &&
        put(o, &at, text, h->text_size + 1, err));
    for (int i = 0; i < n; i++)
        TRY(zeros(o, &at, h->data + blob[i].offset, err) && put(o, &at, blob[i].data, blob[i].size, err));
    return zeros(o, &at, h->file_size, err);
}

bool packfile_write(const char *path, const char *json, const char *text, const PackBlob *blob, int n, Err *err)
{
    Header h = {.order = ORDER,
                .version = PACKFILE_VERSION,
                .json = sizeof h,
                .json_size = strlen(json),
                .text_size = strlen(text)};
    memcpy(h.magic, magic, sizeof magic);
    h.text = h.json + h.json_size + 1;
    if (!round_to(h.text + h.text_size + 1, DATA_ALIGN, &h.data))
        return fail(err, E_LIMIT, "the file would be too large");
    h.data_size = n ? blob[n - 1].offset + blob[n - 1].size : 0;
    h.file_size = h.data + h.data_size;
    h.crc = crc_of(json, h.json_size, text, h.text_size);
    OutFile *o = outfile_open(path, err);
    TRY(o);
    if (write_all(o, &h, json, text, blob, n, err)) return outfile_commit(o, err);
    outfile_abort(o);
    return false;
}
