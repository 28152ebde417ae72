/* The whole of loading a packed model, and one run of what loads with random inputs.
 * Its checksum is put right, so that what comes after it is reached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "format/packfile.h"
#include "fuzz.h"
#include "qkv.h"
#include "qkv_tools.h"

static const char *const tokens[] = {"s0",
                                     "symbol u0 = size %x 0 in [0, 4]\n",
                                     "symbol u1 = item %x in [0, 4]\n",
                                     "%y: f32[s0, 4] = aten.relu.default(%x)\n",
                                     "aten.matmul.default",
                                     "aten.linear.default",
                                     "aten.add_.Tensor",
                                     "aten.slice.Tensor",
                                     "aten.as_strided.default",
                                     "aten.expand.default",
                                     "aten.index.Tensor",
                                     "aten.nonzero.default",
                                     "\nmutate %w = %y\n",
                                     "require ",
                                     "\"offset\": 64",
                                     "\"offset\": -64",
                                     "\"shape\": [0]",
                                     "\"shape\": []",
                                     "\"k\": 0",
                                     "\"row\": -1",
                                     "\"input\": 9",
                                     "\"dtype\": \"u8\"",
                                     "9223372036854775807",
                                     NULL};

enum { HEADER = 128, DATA = 4096 };

static void put64(uint8_t *at, uint64_t v) { memcpy(at, &v, sizeof v); }

static uint64_t get64(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

/* A file of the texts, with `n` bytes of data. */
static size_t compose(uint8_t *out, const char *json, const char *text, size_t n)
{
    uint64_t nj = strlen(json), nt = strlen(text);
    uint32_t head[2] = {0x01020304, PACKFILE_VERSION}, crc;
    memset(out, 0, DATA + n);
    memcpy(out, "\x93QKVPKD\n", 8);
    memcpy(out + 8, head, sizeof head);
    put64(out + 16, DATA + n);
    put64(out + 24, HEADER);
    put64(out + 32, nj);
    put64(out + 40, HEADER + nj + 1);
    put64(out + 48, nt);
    put64(out + 56, DATA);
    put64(out + 64, n);
    memcpy(out + HEADER, json, nj);
    memcpy(out + HEADER + nj + 1, text, nt);
    crc = (uint32_t)crc32_z(crc32_z(0, out + HEADER, nj + 1), out + HEADER + nj + 1, nt + 1);
    memcpy(out + 72, &crc, sizeof crc);
    return DATA + n;
}

static void seeds(FuzzAdd *add)
{
    static const char head[] = "{\"cpu\": \"gen\", \"source\": {\"torch\": \"\", \"producer\": \"\", \"schema_major\": "
                               "8, \"schema_minor\": 1, \"opset\": 0}, ";
    static const struct {
        const char *json, *text;
    } files[] = {
        {"\"weights\": [], \"packed\": [], \"sizes\": [{\"name\": \"s0\", \"input\": 0, \"axis\": 0}], \"scalars\": "
         "[]}",
         "symbol s0 in [1, 8]\ninput %x: f32[s0, 4]\n%y: f32[s0, 4] = aten.relu.default(%x)\noutput output_0 = %y\n"},
        {"\"weights\": [], \"packed\": [], \"sizes\": [{\"name\": \"s0\", \"input\": 0, \"axis\": 0}], \"scalars\": "
         "[]}", /* found: a range that ends before it begins */
         "symbol s0 in [0, -9223372036854775808]\ninput %x: f32[s0 - 1, 4]\n"},
        {"\"weights\": [{\"dtype\": \"f32\", \"shape\": [3, 4], \"offset\": 0}, {\"dtype\": \"f32\", \"shape\": [3], "
         "\"offset\": 64}], \"packed\": [], "
         "\"sizes\": [{\"name\": \"s0\", \"input\": 0, \"axis\": 0}], \"scalars\": [{\"name\": \"n\", \"at\": 1, "
         "\"number\": \"3\"}]}",
         "symbol s0 in [1, 8]\ninput %x: f32[s0, 4]\nweight %w: f32[3, 4] = parameter \"w\"\n"
         "weight %b: f32[3] = buffer \"b\"\n"
         "%y: f32[s0, 3] = aten.linear.default(%x, %w, %b)\nmutate %b = %b\noutput output_0 = %y\n"},
        {"\"weights\": [], \"packed\": [], \"extra\": [{\"name\": \"a/b\", \"offset\": 64, \"size\": 64}], \"sizes\": "
         "[], \"scalars\": []}",
         "symbol u0 = size %i 0 in [0, 4]\ninput %x: f32[4]\n%i: i64[u0, 1] = aten.nonzero.default(%x)\n"
         "output output_0 = %i\n"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        uint8_t file[DATA + 128];
        char json[1024];
        snprintf(json, sizeof json, "%s%s", head, files[i].json);
        add(file, compose(file, json, files[i].text, 128));
    }
}

/* One of the two texts changes, the header follows. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    PackFile f;
    Err err = {0};
    static uint8_t made[1 << 18];
    static char json[1 << 16], text[1 << 16];
    (void)seed;
    if (!packfile_read(&f, data, size, &err) || f.json_size >= sizeof json / 2 || f.text_size >= sizeof text / 2 ||
        f.data_size > 1 << 16 || fuzz_random(8) == 0)
        return LLVMFuzzerMutate(data, size, max);
    size_t nj = f.json_size, nt = f.text_size;
    memcpy(json, f.json, nj);
    memcpy(text, f.text, nt);
    if (fuzz_random(2)) nj = json_mutate((uint8_t *)json, nj, sizeof json / 2);
    else nt = LLVMFuzzerMutate((uint8_t *)text, nt, sizeof text / 2);
    json[nj] = text[nt] = 0;
    uint64_t end = HEADER + strlen(json) + strlen(text) + 2, at = (end + DATA - 1) / DATA * DATA;
    if (at + f.data_size > max || at + f.data_size > sizeof made) return size;
    static uint8_t kept[1 << 16];
    memcpy(kept, f.data, f.data_size);
    memset(made, 0, at + f.data_size);
    memcpy(made, data, HEADER);
    put64(made + 16, at + f.data_size);
    put64(made + 24, HEADER);
    put64(made + 32, strlen(json));
    put64(made + 40, HEADER + strlen(json) + 1);
    put64(made + 48, strlen(text));
    put64(made + 56, at);
    memcpy(made + HEADER, json, strlen(json));
    memcpy(made + HEADER + strlen(json) + 1, text, strlen(text));
    memcpy(made + at, kept, f.data_size);
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, made + HEADER, strlen(json) + 1), made + HEADER + strlen(json) + 1,
                                     strlen(text) + 1);
    memcpy(made + 72, &crc, sizeof crc);
    memcpy(data, made, at + f.data_size);
    return at + f.data_size;
}

static void said(qkv_status s, const qkv_error *e)
{
    fuzz_check(s == QKV_OK || (e->code == s && e->message[0]), "a refusal has its code and a message");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qkv_error e = {0};
    if (size < HEADER || !packfile_is(data, size) || get64(data + 16) != size) return 0;
    fuzz_set_file(data, size);
    qkv_model *m = qkv_model_load(FUZZ_PATH, NULL, &e);
    if (!m) {
        fuzz_check(e.code != QKV_OK && e.message[0], "a refusal has a code and a message");
        return 0;
    }
    char *text = qkv_model_describe(m, &e);
    fuzz_check(text != NULL, "what loads is described");
    qkv_free(text);
    for (int i = 0; i < qkv_model_input_count(m); i++) { /* inputs are the caller's: no limit holds them */
        double n = 1;
        for (int d = 0; d < qkv_model_input_rank(m, i); d++)
            n *= qkv_model_input_dim(m, i, d)[0] >= '0' && qkv_model_input_dim(m, i, d)[0] <= '9'
                     ? atof(qkv_model_input_dim(m, i, d))
                     : 64;
        if (n > 1 << 20) {
            qkv_model_free(m);
            return 0;
        }
    }
    qkv_session_options options = {.struct_size = sizeof options, .threads = 1, .memory_limit = (size_t)16 << 20};
    qkv_session *s = qkv_session_create(m, &options, &e);
    if (!s) said(e.code, &e);
    qkv_status st = s ? qkv_session_random_inputs(s, NULL, NULL, 0, 1, &e) : QKV_LIMIT;
    if (s) said(st, &e);
    for (int k = 0; k < 2 && st == QKV_OK; k++) {
        st = qkv_session_run(s, &e);
        said(st, &e);
    }
    qkv_session_free(s);
    qkv_model_free(m);
    return 0;
}

const FuzzTarget fuzz_target = {
    .name = "packed", .tokens = tokens, .seeds = seeds, .ending = ".qkv", .memory_ratio = 64};
