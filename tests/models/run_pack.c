/* Packed models (.qkv): each small model (tests/models/small) is packed, read back, and gives the same bits as its
 * source at all its sizes; and files that are damaged, of another version or for another CPU are refused in a sentence.
 * TAP.
 *
 *     run_pack tests/models/small FOLDER       FOLDER: where files may be written
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>
#include "qkv.h"
#include "qkv_tools.h"
#include "folder.h"
#include "tap.h"

enum { MAX_VARIANTS = 8 };

static bool run(qkv_session *s, const qkv_model *m, const qkv_tensors *in, qkv_error *e)
{
    for (int i = 0; i < qkv_model_input_count(m); i++) {
        const qkv_tensor *t = qkv_tensors_find(in, qkv_model_input_name(m, i));
        if (!t || qkv_session_set_input(s, qkv_model_input_name(m, i), t, e) != QKV_OK) return false;
    }
    return qkv_session_run(s, e) == QKV_OK;
}

static int64_t elements(const qkv_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

/* Row-major element i. */
static const char *element(const qkv_tensor *t, int64_t i)
{
    int64_t at = 0, inner = 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        at += i % t->shape[d] * (t->strides ? t->strides[d] : inner);
        inner *= t->shape[d];
        i /= t->shape[d];
    }
    return (const char *)t->data + at * (int64_t)qkv_dtype_size(t->dtype);
}

static bool same_bits(qkv_session *a, qkv_session *b, int outputs)
{
    for (int i = 0; i < outputs; i++) {
        qkv_tensor x, y;
        if (qkv_session_output(a, i, &x, NULL) != QKV_OK || qkv_session_output(b, i, &y, NULL) != QKV_OK) return false;
        if (x.dtype != y.dtype || x.rank != y.rank ||
            (x.rank && memcmp(x.shape, y.shape, (size_t)x.rank * sizeof *x.shape)))
            return false;
        for (int64_t k = 0; k < elements(&x); k++)
            if (memcmp(element(&x, k), element(&y, k), qkv_dtype_size(x.dtype))) return false;
    }
    return true;
}

static bool same_face(const qkv_model *a, const qkv_model *b)
{
    bool same = qkv_model_input_count(a) == qkv_model_input_count(b) &&
                qkv_model_output_count(a) == qkv_model_output_count(b) &&
                qkv_model_symbol_count(a) == qkv_model_symbol_count(b);
    for (int i = 0; same && i < qkv_model_input_count(a); i++) {
        same = !strcmp(qkv_model_input_name(a, i), qkv_model_input_name(b, i)) &&
               qkv_model_input_dtype(a, i) == qkv_model_input_dtype(b, i);
        for (int d = 0; same && d < qkv_model_input_rank(a, i); d++)
            same = !strcmp(qkv_model_input_dim(a, i, d), qkv_model_input_dim(b, i, d));
    }
    for (int i = 0; same && i < qkv_model_output_count(a); i++)
        same = !strcmp(qkv_model_output_name(a, i), qkv_model_output_name(b, i));
    for (int i = 0; same && i < qkv_model_symbol_count(a); i++) {
        int64_t lo[2], hi[2];
        const char *x = qkv_model_symbol(a, i, &lo[0], &hi[0]), *y = qkv_model_symbol(b, i, &lo[1], &hi[1]);
        same = !strcmp(x, y) && lo[0] == lo[1] && hi[0] == hi[1];
    }
    return same;
}

/* Packed, and packed again from what was packed. */
static void run_model(const char *dir, const char *name, const char *to)
{
    char path[1024], packed[1024], again[1024];
    qkv_error e = {0};
    qkv_pack_info info[2] = {{.struct_size = sizeof *info}, {.struct_size = sizeof *info}};
    snprintf(path, sizeof path, "%s/%s.pt2", dir, name);
    snprintf(packed, sizeof packed, "%s/%s.qkv", to, name);
    snprintf(again, sizeof again, "%s/%s.again.qkv", to, name);
    qkv_model *m[3] = {qkv_model_load(path, NULL, &e)};
    bool ok = m[0] && qkv_model_pack(m[0], packed, &info[0], &e) == QKV_OK &&
              (m[1] = qkv_model_load(packed, NULL, &e)) != NULL;
    ok = ok && qkv_model_pack(m[1], again, &info[1], &e) == QKV_OK && (m[2] = qkv_model_load(again, NULL, &e)) != NULL;
    bool face = ok && same_face(m[0], m[1]) && same_face(m[0], m[2]) && info[0].packed == info[1].packed &&
                info[0].weights == info[1].weights;
    qkv_session_options so = {.struct_size = sizeof so, .threads = 1};
    qkv_session *s[3] = {0};
    for (int i = 0; i < 3; i++) ok = ok && (s[i] = qkv_session_create(m[i], &so, &e)) != NULL;
    int n = 0;
    for (bool same = ok; same && n < MAX_VARIANTS; n++) {
        snprintf(path, sizeof path, "%s/%s.v%d.in.safetensors", dir, name, n);
        qkv_tensors *in = qkv_tensors_open(path, NULL);
        if (!in) break;
        for (int i = 0; i < 3; i++) ok = ok && run(s[i], m[i], in, &e);
        same = ok = ok && same_bits(s[0], s[1], qkv_model_output_count(m[0])) &&
                    same_bits(s[0], s[2], qkv_model_output_count(m[0]));
        qkv_tensors_free(in);
    }
    qkv_stats st = {.struct_size = sizeof st};
    ok = ok && !qkv_session_stats(s[1], &st, &e);
    char *graph = ok ? qkv_model_graph_text(m[1], &e) : NULL;
    bool lazy = !ok || !info[0].packed || !st.packed_bytes ||
                (graph && strstr(graph, "aten.convolution")); /* which pack as they run */
    qkv_free(graph);
    tap_ok(ok && n && face && lazy, "%s: the same bits at %d sizes, %d weights packed%s %s %s", name, n, info[0].packed,
           lazy ? "" : ", but packed again as it ran", e.message, info[0].message);
    for (int i = 0; i < 3; i++) {
        qkv_session_free(s[i]);
        qkv_model_free(m[i]);
    }
}

/* ------------------------------------------------------------------ hostile files */

typedef struct Bytes {
    unsigned char *data;
    size_t size;
} Bytes;

static Bytes read_file(const char *path)
{
    Bytes b = {0};
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) abort();
    b.size = (size_t)ftell(f);
    b.data = malloc(b.size + 1);
    rewind(f);
    if (!b.data || fread(b.data, 1, b.size, f) != b.size) abort();
    fclose(f);
    return b;
}

/* Loads bytes as a file and, if that works, runs once; the status of what failed. */
static qkv_status try_bytes(const unsigned char *data, size_t n, qkv_error *e)
{
    char path[64];
    int fd = memfd_create("packed", 0);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    *e = (qkv_error){0};
    qkv_model *m = qkv_model_load(path, NULL, e);
    qkv_session_options so = {.struct_size = sizeof so, .threads = 1, .memory_limit = (size_t)64 << 20};
    qkv_session *s = m ? qkv_session_create(m, &so, e) : NULL;
    qkv_status st = s ? qkv_session_random_inputs(s, NULL, NULL, 0, 1, e) : e->code;
    if (st == QKV_OK) st = qkv_session_run(s, e);
    qkv_session_free(s);
    qkv_model_free(m);
    close(fd);
    return st;
}

static uint64_t u64_at(const Bytes *b, size_t at)
{
    uint64_t v;
    memcpy(&v, b->data + at, sizeof v);
    return v;
}

/* Header fields, as docs/PACK.md has them. */
enum {
    ORDER = 8,
    VERSION = 12,
    FILE_SIZE = 16,
    JSON = 24,
    JSON_SIZE = 32,
    TEXT = 40,
    TEXT_SIZE = 48,
    DATA = 56,
    DATA_SIZE = 64,
    CRC = 72
};

/* The checksum as it should be: the parsers after it must stand on their own. */
static void mend(Bytes *b)
{
    uint64_t json = u64_at(b, JSON), nj = u64_at(b, JSON_SIZE), text = u64_at(b, TEXT), nt = u64_at(b, TEXT_SIZE);
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, b->data + json, nj + 1), b->data + text, nt + 1);
    memcpy(b->data + CRC, &crc, sizeof crc);
}

static void refused(const Bytes *b, qkv_status want, const char *says, const char *what)
{
    qkv_error e;
    qkv_status st = try_bytes(b->data, b->size, &e);
    tap_ok(st == want && strstr(e.message, says), "%s: %s", what, e.message);
}

static void replaced(const Bytes *from, const char *old, const char *with, qkv_status want, const char *says)
{
    Bytes b = {malloc(from->size), from->size};
    memcpy(b.data, from->data, b.size);
    char *at = memmem(b.data, b.size, old, strlen(old));
    if (!at || strlen(old) != strlen(with)) abort();
    memcpy(at, with, strlen(with));
    mend(&b);
    refused(&b, want, says, with);
    free(b.data);
}

static void field(const Bytes *from, size_t at, uint64_t v, size_t n, qkv_status want, const char *says)
{
    Bytes b = {malloc(from->size), from->size};
    char what[64];
    memcpy(b.data, from->data, b.size);
    memcpy(b.data + at, &v, n);
    snprintf(what, sizeof what, "%llu at %zu", (unsigned long long)v, at);
    refused(&b, want, says, what);
    free(b.data);
}

static void hostile(const char *path)
{
    Bytes b = read_file(path);
    qkv_error e;
    int bad = 0, loaded = 0;
    uint64_t data = u64_at(&b, DATA), text_end = u64_at(&b, TEXT) + u64_at(&b, TEXT_SIZE);
    for (size_t n = 0; n < b.size; n += n < text_end ? 1 : 97) {
        qkv_status st = try_bytes(b.data, n, &e);
        bad += st != QKV_UNREADABLE || !e.message[0];
    }
    tap_ok(!bad, "every prefix is refused");
    bad = 0;
    for (size_t i = 0; i < text_end; i++) {
        b.data[i] ^= 1;
        qkv_status st = try_bytes(b.data, b.size, &e);
        bad += st == QKV_OK || !e.message[0];
        b.data[i] ^= 1;
    }
    for (size_t i = 0; i < u64_at(&b, JSON); i++)
        for (int bit = 1; bit < 8; bit++) {
            b.data[i] ^= (unsigned char)(1 << bit);
            qkv_status st = try_bytes(b.data, b.size, &e);
            bad += st == QKV_OK || !e.message[0];
            b.data[i] ^= (unsigned char)(1 << bit);
        }
    tap_ok(!bad, "every flipped bit of header, description and graph is refused");
    bad = 0;
    for (size_t i = u64_at(&b, JSON); i < text_end; i++) {
        unsigned char was = b.data[i];
        for (int bit = 0; bit < 7; bit += 2) {
            b.data[i] = (unsigned char)(was ^ 1 << bit);
            mend(&b);
            qkv_status st = try_bytes(b.data, b.size, &e);
            loaded += st == QKV_OK;
            bad += st != QKV_OK && !e.message[0];
        }
        b.data[i] = was;
    }
    mend(&b);
    tap_ok(!bad && loaded, "with the checksum put right: refused in a sentence, or harmless (%d times)", loaded);
    field(&b, ORDER, 0x04030201, 4, QKV_UNSUPPORTED, "other byte order");
    field(&b, VERSION, 2, 4, QKV_UNSUPPORTED, "version 2");
    field(&b, FILE_SIZE, b.size + 1, 8, QKV_UNREADABLE, "header says");
    field(&b, JSON, UINT64_MAX, 8, QKV_UNREADABLE, "outside");
    field(&b, JSON_SIZE, UINT64_MAX - 100, 8, QKV_UNREADABLE, "outside");
    field(&b, TEXT_SIZE, b.size, 8, QKV_UNREADABLE, "outside");
    field(&b, DATA, data + 64, 8, QKV_UNREADABLE, "page");
    field(&b, DATA, 0, 8, QKV_UNREADABLE, "expected those from the page after the graph");
    field(&b, DATA_SIZE, u64_at(&b, DATA_SIZE) - 64, 8, QKV_UNREADABLE, "to the file's end");
    field(&b, DATA_SIZE, UINT64_MAX, 8, QKV_UNREADABLE, "to the file's end");
    Bytes more = {calloc(1, b.size + 64), b.size + 64};
    memcpy(more.data, b.data, b.size);
    memcpy(more.data + FILE_SIZE, &(uint64_t){more.size}, 8);
    memcpy(more.data + DATA_SIZE, &(uint64_t){more.size - data}, 8);
    refused(&more, QKV_UNREADABLE, "another model's", "data of another length");
    free(more.data);
    field(&b, CRC, 7, 4, QKV_UNREADABLE, "checksum");
    replaced(&b, "\"offset\": 0}", "\"offset\": 8}", QKV_UNREADABLE, "multiple of 64");
    replaced(&b, "\"dtype\": \"f32\"", "\"dtype\": \"f33\"", QKV_UNREADABLE, "f33");
    replaced(&b, "\"dtype\": \"f32\"", "\"dtype\": \"i32\"", QKV_UNREADABLE, "another dtype or shape");
    replaced(&b, "\"extra\": []", "\"extra\": {}", QKV_UNREADABLE, "'extra'");
    replaced(&b, "\"weights\"", "\"wieghts\"", QKV_UNREADABLE, "'weights'");
    char *layout = memmem(b.data, b.size, "\"layout\": \"", 11);
    if (layout) { /* the reference rung packs nothing */
        replaced(&b, "\"weight\": 0", "\"weight\": 9", QKV_UNREADABLE, "weight");
        replaced(&b, "\"at\": 0,", "\"at\": 4,", QKV_UNREADABLE, "not a part of weight");
        layout[11] ^= 2;
        mend(&b);
        refused(&b, QKV_UNSUPPORTED, "run 'qkv pack' on the model's source here", "another CPU's layout");
    }
    free(b.data);
}

static void run_named(const char *folder, const char *name, void *user) { run_model(folder, name, user); }

int main(int argc, char **argv)
{
    char path[1024];
    if (!each_model(argc == 3 ? argv[1] : NULL, run_named, argv[2])) {
        fprintf(stderr, "usage: run_pack FOLDER TO\n");
        return 2;
    }
    snprintf(path, sizeof path, "%s/mha_self.qkv", argv[2]);
    hostile(path);
    return tap_done();
}
