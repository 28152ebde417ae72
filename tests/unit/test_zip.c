/* ZIP archives: what is written reads back; every hostile archive of a list is refused for the right reason.
 *
 * Archives are put together here field by field, so that each field can lie: Part gives one entry, Archive the tail.
 */
#include "unit.h"
#include <sys/resource.h>
#include <time.h>
#include <zlib.h>
#include "base/file.h"
#include "format/zip.h"

typedef struct Part {
    const char *name, *local_name; /* local_*: what the local header says, where that is not the truth */
    size_t name_bytes;             /* 0 = strlen */
    const void *data;
    uint64_t size, packed; /* packed: bytes of data */
    unsigned method, local_method, flags;
    uint32_t crc;
    uint64_t local_size, offset; /* offset: of the local header, 0 = where it is written */
    uint32_t attributes;
    bool directory_only, zip64; /* zip64: sizes and offset in a ZIP64 field */
    int zip64_bytes;            /* length of that field when it lies */
} Part;

typedef struct Archive {
    const char *comment, *prefix;
    uint64_t count, directory_shift; /* 0 = the truth */
    bool zip64_end, zip64_lies;
} Archive;

static Part stored(const char *name, const void *data, size_t n)
{
    return (Part){.name = name, .data = data, .size = n, .packed = n, .crc = (uint32_t)crc32(0, data, (uInt)n)};
}

static void put_central(Buf *b, const Part *p, uint64_t offset)
{
    size_t n = p->name_bytes ? p->name_bytes : strlen(p->name);
    int field = p->zip64_bytes ? p->zip64_bytes : 24;
    put_le(b, 0x02014b50, 4);
    put_le(b, p->attributes ? 3 << 8 | 20 : 20, 2);
    put_le(b, 20, 2);
    put_le(b, p->flags, 2);
    put_le(b, p->method, 2);
    put_le(b, 0, 4);
    put_le(b, p->crc, 4);
    put_le(b, p->zip64 ? 0xffffffff : p->packed, 4);
    put_le(b, p->zip64 ? 0xffffffff : p->size, 4);
    put_le(b, n, 2);
    put_le(b, p->zip64 && field > 0 ? (uint64_t)field + 4 : 0, 2);
    put_le(b, 0, 6);
    put_le(b, p->attributes, 4);
    put_le(b, p->zip64 ? 0xffffffff : offset, 4);
    buf_add(b, p->name, n);
    if (!p->zip64 || field < 0) return;
    put_le(b, 1, 2);
    put_le(b, (uint64_t)field, 2);
    const uint64_t v[3] = {p->size, p->packed, offset};
    for (int i = 0; i < field / 8; i++) put_le(b, v[i % 3], 8);
}

static Buf make(const Part *parts, size_t n, const Archive *a)
{
    Buf b = {0};
    uint64_t at[16];
    static const Archive plain;
    if (!a) a = &plain;
    if (a->prefix) buf_puts(&b, a->prefix);
    size_t start = b.len;
    for (size_t i = 0; i < n; i++) {
        const Part *p = &parts[i];
        const char *name = p->local_name ? p->local_name : p->name;
        size_t length = p->name_bytes ? p->name_bytes : strlen(name);
        at[i] = p->offset ? p->offset : b.len - start;
        if (p->directory_only) continue;
        put_le(&b, 0x04034b50, 4);
        put_le(&b, 20, 2);
        put_le(&b, p->flags, 2);
        put_le(&b, p->local_method ? p->local_method : p->method, 2);
        put_le(&b, 0, 4);
        put_le(&b, p->crc, 4);
        put_le(&b, p->packed, 4);
        put_le(&b, p->local_size ? p->local_size : p->size, 4);
        put_le(&b, length, 2);
        put_le(&b, 0, 2);
        buf_add(&b, name, length);
        buf_add(&b, p->data, p->packed);
    }
    uint64_t directory = b.len - start;
    for (size_t i = 0; i < n; i++) put_central(&b, &parts[i], at[i]);
    uint64_t size = b.len - start - directory, count = a->count ? a->count : n, end = b.len - start;
    directory += a->directory_shift;
    if (a->zip64_end) {
        put_le(&b, 0x06064b50, 4);
        put_le(&b, 44, 8);
        put_le(&b, 45 | 45 << 16, 4);
        put_le(&b, 0, 8);
        put_le(&b, count, 8);
        put_le(&b, count, 8);
        put_le(&b, size, 8);
        put_le(&b, directory, 8);
        put_le(&b, 0x07064b50, 4);
        put_le(&b, 0, 4);
        put_le(&b, end + (a->zip64_lies ? 1u << 20 : 0u), 8);
        put_le(&b, 1, 4);
    }
    put_le(&b, 0x06054b50, 4);
    put_le(&b, 0, 4);
    put_le(&b, count > 0xffff ? 0xffff : count, 2);
    put_le(&b, count > 0xffff ? 0xffff : count, 2);
    put_le(&b, size, 4);
    put_le(&b, directory, 4);
    put_le(&b, a->comment ? strlen(a->comment) : 0, 2);
    if (a->comment) buf_puts(&b, a->comment);
    assert_false(b.failed);
    return b;
}

/* Opening must fail with this code, and the message must hold this text.
 * The bytes lie in a block of their exact size, so that the sanitizer sees a read past them. */
static void refused(Buf b, ErrCode code, const char *text)
{
    Err err = {0};
    char *bytes = malloc(b.len + !b.len);
    if (b.len) memcpy(bytes, b.data, b.len);
    Zip *z = zip_open(bytes, b.len, &err);
    if (z) STOP("accepted, expected: %s", text);
    if (err.code != code || !strstr(err.msg, text)) STOP("code %d: %s; expected %s", (int)err.code, err.msg, text);
    free(bytes);
    buf_free(&b);
}

static void refused_parts(ErrCode code, const char *text, const Part *parts, size_t n)
{
    refused(make(parts, n, NULL), code, text);
}

static Buf deflated(const void *data, size_t n)
{
    z_stream s = {0};
    Buf b = {0};
    unsigned char out[4096];
    assert_int_equal(deflateInit2(&s, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    s.next_in = (unsigned char *)(uintptr_t)data;
    s.avail_in = (uInt)n;
    int r;
    do {
        s.next_out = out;
        s.avail_out = sizeof out;
        r = deflate(&s, Z_FINISH);
        buf_add(&b, out, sizeof out - s.avail_out);
    } while (r == Z_OK);
    deflateEnd(&s);
    return b;
}

static Part packed(const char *name, const void *data, size_t n, const Buf *d)
{
    Part p = stored(name, data, n);
    p.method = 8;
    p.data = d->data;
    p.packed = d->len;
    return p;
}

/* ------------------------------------------------------------------ good archives */

static void expect_entry(Zip *z, const char *name, const void *data, size_t n)
{
    Err err = {0};
    const void *bytes;
    uint64_t size;
    const ZipEntry *e = zip_find(z, name);
    assert_non_null(e);
    OK(zip_data(z, e, true, &bytes, &size, &err));
    assert_int_equal(size, n);
    if (n) assert_memory_equal(bytes, data, n);
}

static void test_round_trip(void **state)
{
    (void)state;
    Err err = {0};
    char path[2][200], big[3000];
    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 7);
    for (int k = 0; k < 2; k++) {
        snprintf(path[k], sizeof path[k], "%s", unit_path(k ? "b.zip" : "a.zip"));
        OutFile *o = outfile_open(path[k], &err);
        ZipWriter *w = zip_writer(o, &err);
        OK(w && zip_add(w, "m/data", big, sizeof big, &err) && zip_add(w, "m/empty", NULL, 0, &err) &&
           zip_add(w, "m/\xc3\xa9", "x", 1, &err));
        REFUSED(zip_add(w, "m/data", "x", 1, &err), E_USAGE);
        REFUSED(zip_add(w, "../x", "x", 1, &err), E_USAGE);
        OK(zip_finish(w, &err) && outfile_commit(o, &err));
    }
    Buf a = unit_read(path[0]), b = unit_read(path[1]);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    Zip *z = zip_open(a.data, a.len, &err);
    OK(z);
    assert_int_equal(zip_count(z), 3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(zip_entry(z, i)->offset % 64, 0);
    assert_string_equal(zip_entry(z, 0)->name, "m/data");
    expect_entry(z, "m/data", big, sizeof big);
    expect_entry(z, "m/empty", "", 0);
    expect_entry(z, "m/\xc3\xa9", "x", 1);
    assert_null(zip_find(z, "m/Data"));
    zip_close(z);
    buf_free(&a);
    buf_free(&b);
}

static void test_good(void **state)
{
    (void)state;
    Err err = {0};
    char text[5000];
    memset(text, 'a', sizeof text);
    Buf d = deflated(text, sizeof text), nothing = deflated("", 0);
    Part parts[] = {stored("s", "hello", 5), packed("d", text, sizeof text, &d), packed("e", "", 0, &nothing),
                    stored("folder/", "", 0)};
    Part wide[] = {stored("s", "hello", 5)};
    wide[0].zip64 = true;
    static char longest[65536];
    memset(longest, 'c', 65535);
    Archive tails[] = {{0}, {.comment = "a comment"}, {.comment = longest}, {.zip64_end = true}};
    for (size_t k = 0; k < sizeof tails / sizeof *tails; k++) {
        Buf b = make(parts, 4, &tails[k]), w = make(wide, 1, &tails[k]);
        Zip *z = zip_open(b.data, b.len, &err);
        OK(z);
        for (int twice = 0; twice < 2; twice++) {
            expect_entry(z, "s", "hello", 5);
            expect_entry(z, "d", text, sizeof text);
            expect_entry(z, "e", "", 0);
        }
        zip_close(z);
        OK(z = zip_open(w.data, w.len, &err));
        expect_entry(z, "s", "hello", 5);
        zip_close(z);
        buf_free(&b);
        buf_free(&w);
    }
    Buf empty = make(NULL, 0, NULL);
    Zip *z = zip_open(empty.data, empty.len, &err);
    OK(z);
    assert_int_equal(zip_count(z), 0);
    zip_close(z);
    zip_close(NULL);
    buf_free(&empty);
    buf_free(&d);
    buf_free(&nothing);
}

/* Local headers as torch writes them: flag 8, checksum and sizes 0, a data descriptor after the bytes. */
static void test_descriptor(void **state)
{
    (void)state;
    Err err = {0};
    Part p = stored("a", "hello", 5);
    p.flags = 8;
    Buf b = make(&p, 1, NULL);
    memset(b.data + 14, 0, 12);
    Zip *z = zip_open(b.data, b.len, &err);
    OK(z);
    expect_entry(z, "a", "hello", 5);
    zip_close(z);
    b.data[6] = 0; /* without the flag, zeros are a lie */
    refused(b, E_FORMAT, "local header");
}

/* 5 GB of weights, most of them a hole in the file: opening touches a few pages. */
static void test_large(void **state)
{
    (void)state;
    Err err = {0};
    const uint64_t size = (uint64_t)5 << 30;
    char path[200];
    snprintf(path, sizeof path, "%s", unit_path("large"));
    Buf head = {0}, tail = {0};
    put_le(&head, 0x04034b50, 4);
    put_le(&head, 8 << 16, 4); /* version 0, flag 8 */
    put_le(&head, 0, 18);
    put_le(&head, 1, 4);
    buf_puts(&head, "w");
    Part p = {.name = "w", .size = size, .packed = size, .zip64 = true, .flags = 8};
    put_central(&tail, &p, 0);
    uint64_t directory = head.len + size, n = tail.len;
    put_le(&tail, 0x06064b50, 4);
    put_le(&tail, 44, 8);
    put_le(&tail, 0, 12);
    put_le(&tail, 1, 8);
    put_le(&tail, 1, 8);
    put_le(&tail, n, 8);
    put_le(&tail, directory, 8);
    put_le(&tail, 0x07064b50, 8);
    put_le(&tail, directory + n, 8);
    put_le(&tail, 1, 4);
    put_le(&tail, 0x06054b50, 8);
    put_le(&tail, 1 | 1 << 16, 4);
    put_le(&tail, UINT64_MAX, 8);
    put_le(&tail, 0, 2);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    bool written = fd >= 0 && pwrite(fd, head.data, head.len, 0) == (ssize_t)head.len &&
                   pwrite(fd, tail.data, tail.len, (off_t)directory) == (ssize_t)tail.len;
    close(fd);
    if (written) {
        MappedFile f;
        struct rusage before, after;
        struct timespec t0, t1;
        OK(file_map(&f, path, &err));
        getrusage(RUSAGE_SELF, &before);
        clock_gettime(CLOCK_MONOTONIC, &t0);
        Zip *z = zip_open(f.data, f.size, &err);
        OK(z);
        const void *bytes;
        uint64_t got;
        OK(zip_data(z, zip_find(z, "w"), false, &bytes, &got, &err));
        clock_gettime(CLOCK_MONOTONIC, &t1);
        getrusage(RUSAGE_SELF, &after);
        assert_true(got == size && (const unsigned char *)bytes == f.data + head.len);
        assert_true(t1.tv_sec - t0.tv_sec <= 1);
        assert_true(after.ru_maxrss - before.ru_maxrss < 20000);
        zip_close(z);
        file_unmap(&f);
    } else {
        print_message("# no room for a sparse file of 5 GB\n");
    }
    unlink(path);
    buf_free(&head);
    buf_free(&tail);
}

/* ------------------------------------------------------------------ hostile archives: Z1 to Z10 of the list */

static Buf sample(void)
{
    static const char text[] = "the quick brown fox jumps over the lazy dog, the quick brown fox";
    Buf d = deflated(text, sizeof text);
    Part parts[] = {stored("m/a", "hello, world", 12), packed("m/b", text, sizeof text, &d), stored("m/c", "", 0)};
    Buf b = make(parts, 3, &(Archive){.zip64_end = true});
    buf_free(&d);
    return b;
}

/* Opens and reads everything; true when all of it was fine. Entries must lie inside. */
static bool read_all(const char *bytes, size_t n)
{
    Err err = {0};
    unsigned sum = 0;
    char *exact = malloc(n + !n);
    memcpy(exact, bytes, n);
    Zip *z = zip_open(exact, n, &err);
    bool ok = z != NULL;
    assert_true(ok || (err.code && *err.msg));
    for (size_t i = 0; z && i < zip_count(z); i++) {
        const void *p;
        uint64_t size;
        const ZipEntry *e = zip_entry(z, i);
        assert_true(e->offset <= n && e->packed_size <= n - e->offset);
        if (zip_data(z, e, true, &p, &size, &err))
            for (uint64_t k = 0; k < size; k++) sum += ((const unsigned char *)p)[k];
        else ok = false;
    }
    zip_close(z);
    free(exact);
    return ok && sum != 1;
}

static void test_truncated(void **state)
{
    (void)state;
    Buf b = sample();
    assert_true(read_all(b.data, b.len));
    for (size_t n = 0; n < b.len; n++)
        if (read_all(b.data, n)) STOP("accepted %zu of %zu bytes", n, b.len);
    buf_puts(&b, "x");
    assert_false(read_all(b.data, b.len));
    buf_free(&b);
}

static void test_flipped(void **state)
{
    (void)state;
    Buf b = sample();
    for (size_t i = 0; i < b.len * 8; i++) {
        b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
        read_all(b.data, b.len);
        b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
    }
    uint64_t rng = 42;
    char *copy = malloc(b.len);
    for (int round = 0; round < 20000; round++) { /* several fields at once, with the values that break things */
        static const unsigned char values[] = {0, 1, 0xff, 0x7f, 0x80, 'P'};
        memcpy(copy, b.data, b.len);
        for (uint32_t k = unit_random(&rng) % 6 + 1; k; k--) {
            size_t at = unit_random(&rng) % b.len, width = (size_t)1 << unit_random(&rng) % 4;
            for (size_t w = 0; w < width && at + w < b.len; w++) copy[at + w] = (char)values[unit_random(&rng) % 6];
        }
        read_all(copy, b.len);
    }
    free(copy);
    buf_free(&b);
}

static void test_checksum(void **state)
{
    (void)state;
    Err err = {0};
    const void *p;
    uint64_t n;
    Part part = stored("a", "hello", 5);
    part.crc ^= 1;
    Buf b = make(&part, 1, NULL);
    Zip *z = zip_open(b.data, b.len, &err);
    OK(z && zip_data(z, zip_entry(z, 0), false, &p, &n, &err));
    REFUSED(zip_data(z, zip_entry(z, 0), true, &p, &n, &err), E_FORMAT);
    zip_close(z);
    buf_free(&b);
}

static void test_headers_differ(void **state)
{
    (void)state;
    Part p = stored("a", "hello", 5), q = p;
    q.local_name = "b";
    refused_parts(E_FORMAT, "another name", &q, 1);
    q.local_name = "ab";
    refused_parts(E_FORMAT, "another name", &q, 1);
    q = p, q.local_method = 8;
    refused_parts(E_FORMAT, "method 0 in the directory, 8 in its local header", &q, 1);
    q = p, q.local_size = 6;
    refused_parts(E_FORMAT, "in its local header", &q, 1);
    Buf b = make(&p, 1, NULL);
    b.data[14] = (char)(b.data[14] ^ 1);
    refused(b, E_FORMAT, "another checksum");
    b = make(&p, 1, NULL);
    b.data[6] |= 1;
    refused(b, E_FORMAT, "encrypted in one");
}

static void test_names(void **state)
{
    (void)state;
    Err err = {0};
    Part two[] = {stored("m/a", "1", 1), stored("m/a", "2", 1)};
    refused_parts(E_FORMAT, "occurs twice", two, 2);
    two[1].name = "M/A";
    refused_parts(E_FORMAT, "one file on some systems", two, 2);
    two[1].name = "m\\a";
    refused_parts(E_FORMAT, "one file on some systems", two, 2);
    two[1].name = "m/a\0", two[1].name_bytes = 4;
    refused_parts(E_FORMAT, "a NUL", two, 2);
    two[1] = stored("m/A", "2", 1);
    Buf b = make(two, 2, NULL);
    Zip *z = zip_open_cased(b.data, b.len, &err);
    OK(z);
    expect_entry(z, "m/a", "1", 1);
    expect_entry(z, "m/A", "2", 1);
    zip_close(z);
    buf_free(&b);
    static const char *const bad[] = {"../x", "a/../x", "/etc/x", "C:\\x", "a\\..\\x", "..", "\\x", "a/.."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused_parts(E_FORMAT, "leaves the archive's folder", &(Part){.name = bad[i]}, 1);
    refused_parts(E_FORMAT, "symbolic link", &(Part){.name = "link", .attributes = 0120777u << 16}, 1);
    char *longest = malloc(5001);
    memset(longest, 'n', 5000);
    longest[5000] = 0;
    refused_parts(E_LIMIT, "5000 bytes", &(Part){.name = longest}, 1);
    free(longest);
}

static void test_overlap(void **state)
{
    (void)state;
    /* one local header for two entries */
    Part same[] = {stored("x", "hello", 5), stored("a", "hello", 5), stored("a", "hello", 5)};
    same[2].directory_only = true;
    same[2].offset = 30 + 1 + 5;
    refused_parts(E_FORMAT, "occurs twice", same, 3);
    same[2].name = "b";
    refused_parts(E_FORMAT, "another name", same, 3);
    /* an entry quoted inside another's bytes */
    Part inner = stored("in", "12345678", 8);
    Buf inside = make(&inner, 1, NULL);
    Part outer[] = {stored("out", inside.data, inside.len), inner};
    outer[1].directory_only = true;
    outer[1].offset = 30 + 3;
    refused_parts(E_FORMAT, "overlap", outer, 2);
    /* an entry that ends in the middle of the next one's local header */
    Part reach[] = {stored("a", "hello", 5), stored("b", "world", 5)};
    Buf b = make(reach, 2, NULL);
    for (int field = 18; field <= 22; field += 4) b.data[field] = 15; /* local header, then directory, of the first */
    size_t directory = 2 * (30 + 1 + 5);
    b.data[directory + 20] = b.data[directory + 24] = 15;
    refused(b, E_FORMAT, "overlap");
    /* an entry that reaches into the directory */
    b = make(reach, 1, NULL);
    for (int field = 18; field <= 22; field += 4) b.data[field] = 15;
    b.data[36 + 20] = b.data[36 + 24] = 15;
    refused(b, E_FORMAT, "into the directory");
    buf_free(&inside);
}

static void test_bombs(void **state)
{
    (void)state;
    Err err = {0};
    enum { SIZE = 10 << 20 };
    char *zeros = calloc(SIZE, 1);
    Buf d = deflated(zeros, SIZE); /* about 1028:1 */
    assert_true(SIZE / d.len > 1000);
    Part p = packed("bomb", zeros, SIZE, &d);
    refused_parts(E_LIMIT, "would become", &p, 1);
    p.size = 1000; /* more comes out than it says */
    Buf b = make(&p, 1, NULL);
    Zip *z = zip_open(b.data, b.len, &err);
    OK(z);
    const void *bytes;
    uint64_t n;
    REFUSED(zip_data(z, zip_entry(z, 0), false, &bytes, &n, &err), E_FORMAT);
    zip_close(z);
    buf_free(&b);
    Buf few = deflated("hello", 5);
    p = packed("few", "hello", 5, &few);
    p.size = 6; /* less comes out */
    b = make(&p, 1, NULL);
    OK(z = zip_open(b.data, b.len, &err));
    REFUSED(zip_data(z, zip_entry(z, 0), false, &bytes, &n, &err), E_FORMAT);
    zip_close(z);
    buf_free(&b);
    buf_puts(&few, "rest"); /* bytes after the end of the stream */
    p = packed("rest", "hello", 5, &few);
    b = make(&p, 1, NULL);
    OK(z = zip_open(b.data, b.len, &err));
    REFUSED(zip_data(z, zip_entry(z, 0), false, &bytes, &n, &err), E_FORMAT);
    zip_close(z);
    buf_free(&b);
    p = stored("s", "hello", 5);
    p.size = 1u << 30;
    refused_parts(E_FORMAT, "its sizes differ", &p, 1);
    buf_free(&few);
    buf_free(&d);
    free(zeros);
}

static void test_zip64(void **state)
{
    (void)state;
    Part p = stored("a", "hello", 5), q = p;
    refused(make(&p, 1, &(Archive){.zip64_end = true, .count = (uint64_t)1 << 63}), E_FORMAT, "do not fit");
    refused(make(&p, 1, &(Archive){.zip64_end = true, .count = 2}), E_FORMAT, "do not fit");
    refused(make(&p, 1, &(Archive){.zip64_end = true, .zip64_lies = true}), E_FORMAT, "locator");
    refused(make(&p, 1, &(Archive){.zip64_end = true, .directory_shift = UINT64_MAX - 60}), E_FORMAT, "ZIP64");
    refused(make(&p, 1, &(Archive){.count = 1000}), E_FORMAT, "do not fit");
    refused(make(&p, 1, &(Archive){.directory_shift = 1}), E_FORMAT, "does not end at");
    Part many[3] = {p, stored("b", "", 0), stored("c", "", 0)};
    refused(make(many, 3, &(Archive){.count = 2}), E_FORMAT, "goes on after");
    q.zip64 = true, q.zip64_bytes = -1;
    refused_parts(E_FORMAT, "", &q, 1);
    q.zip64_bytes = 8;
    refused_parts(E_FORMAT, "", &q, 1);
    q.zip64_bytes = 0, q.offset = UINT64_MAX - 8;
    refused_parts(E_FORMAT, "outside", &q, 1);
    q.offset = 0;
    Buf b = make(&q, 1, NULL);
    memset(b.data + 36 + 46 + 1 + 4, 0xff, 16); /* both sizes 2^64 - 1 */
    refused(b, E_FORMAT, "");
}

static void test_end_records(void **state)
{
    (void)state;
    Part p = stored("a", "hello", 5);
    Buf inner = make(&p, 1, NULL);
    refused(make(&p, 1, &(Archive){.prefix = "#!/bin/sh\n"}), E_FORMAT, "does not end at");
    refused(make(&p, 1, &(Archive){.comment = "PK\5\6 in a comment"}), E_FORMAT, "another end record");
    Buf b = make(&p, 1, NULL);
    buf_add(&b, inner.data + inner.len - 22, 22); /* two end records */
    refused(b, E_FORMAT, "does not end at");
    b = make(&p, 1, NULL);
    buf_add(&b, inner.data, inner.len); /* an archive after an archive */
    refused(b, E_FORMAT, "does not end at");
    b = make(&p, 1, NULL);
    b.data[b.len - 18] = 1; /* a second disk */
    refused(b, E_UNSUPPORTED, "several parts");
    refused((Buf){0}, E_FORMAT, "too few");
    buf_free(&inner);
}

static void test_unsupported(void **state)
{
    (void)state;
    static const struct {
        unsigned method, flags;
        const char *text;
    } rows[] = {{0, 1, "encrypted"}, {99, 0, "method 99"}, {12, 0, "method 12"}, {8, 1, "encrypted"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Err err = {0};
        Part two[] = {stored("a", "hello", 5), stored("b", "world", 5)};
        two[0].method = rows[i].method;
        two[0].flags = rows[i].flags;
        Buf b = make(two, 2, NULL);
        Zip *z = zip_open(b.data, b.len, &err);
        OK(z); /* refused when it is read, not before: the rest is usable */
        const void *p;
        uint64_t n;
        REFUSED(zip_data(z, zip_find(z, "a"), true, &p, &n, &err), E_UNSUPPORTED);
        assert_non_null(strstr(err.msg, rows[i].text));
        expect_entry(z, "b", "world", 5);
        zip_close(z);
        buf_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_good),           cmocka_unit_test(test_descriptor),
        cmocka_unit_test(test_large),       cmocka_unit_test(test_truncated),      cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_checksum),    cmocka_unit_test(test_headers_differ), cmocka_unit_test(test_names),
        cmocka_unit_test(test_overlap),     cmocka_unit_test(test_bombs),          cmocka_unit_test(test_zip64),
        cmocka_unit_test(test_end_records), cmocka_unit_test(test_unsupported),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
