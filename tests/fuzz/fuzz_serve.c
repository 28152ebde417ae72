/* Requests of qkv serve, as its front gives them to the readers: of the Open Inference Protocol, with JSON alone or
 * with binary tensors after it, of OpenAI's embeddings, and of pictures and texts as multipart/form-data. A byte says
 * which, two how long the JSON is, or the Content-Type. */
#include <string.h>
#include "base/mem.h"
#include "format/json.h"
#include "fuzz.h"
#include "serve/oip.h"
#include "serve/coco.h"
#include "serve/openai.h"
#include "serve/segment.h"

static const char *const tokens[] = {
    "\"inputs\": [",
    "{\"name\": \"ids\", \"shape\": [1, 4], \"datatype\": \"INT64\", \"data\": [1,2,3,4]}",
    "\"outputs\": [{\"name\": \"y\"}]",
    "\"parameters\": {\"binary_data_size\": 8}",
    "\"binary_data_output\": true",
    "\"priority\": 1",
    "\"timeout\": 1000",
    "\"id\": \"x\"",
    "\"FP16\"",
    "\"BOOL\"",
    "9223372036854775807",
    "-1",
    "1e999",
    "\"model\": \"m\"",
    "\"input\": [\"a car\", [2, 3]]",
    "\"encoding_format\": \"base64\"",
    "\"dimensions\": 2",
    "null",
    "[[",
    "\r\n--x\r\n",
    "\r\n--x--\r\n",
    "Content-Disposition: form-data; name=\"text\"\r\n\r\n",
    "Content-Disposition: form-data; name=\"image\"; filename=\"a\\\"b\"\r\n\r\n",
    "Content-Disposition: form-data; name=\"threshold\"\r\n\r\n0.5",
    "Content-Transfer-Encoding: binary\r\n",
    "multipart/form-data; boundary=\"x\"",
    NULL};

#define IDS "{\"name\": \"ids\", \"shape\": [2, 3], \"datatype\": \"INT64\", \"data\": [[1, 2, 3], [4, 5, 6]]}"
#define MASK                                                                                                           \
    "{\"name\": \"mask\", \"shape\": [2, 3], \"datatype\": \"BOOL\", \"data\": [true, true, false, true, true, true]}"
#define HALF                                                                                                           \
    "{\"name\": \"half\", \"shape\": [2, 2], \"datatype\": \"FP16\", \"parameters\": {\"binary_data_size\": 8}}"

static void add_binary(FuzzAdd *add, char kind, const char *json, const char *rest, size_t n)
{
    char bytes[1024];
    size_t length = strlen(json);
    bytes[0] = kind;
    bytes[1] = (char)(length & 255);
    bytes[2] = (char)(length >> 8);
    memcpy(bytes + 3, json, length);
    memcpy(bytes + 3 + length, rest, n);
    add(bytes, 3 + length + n);
}

static void seeds(FuzzAdd *add)
{
    static const char json[] = "\0\0\0{\"id\": \"1\", \"inputs\": [" IDS ", " MASK
                               "], \"outputs\": [{\"name\": \"y\"}], "
                               "\"parameters\": {\"priority\": 2, \"timeout\": 5}}",
                      texts[] = "\2\0\0{\"model\": \"m\", \"input\": [\"A red car.\", [2, 5]], \"dimensions\": 3, "
                                "\"encoding_format\": \"base64\"}";
    add(json, sizeof json - 1);
    add(texts, sizeof texts - 1);
    static const char form[] = "--x\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n"
                               "Content-Type: image/png\r\n\r\n\x89PNG\r\n\r\n--x\r\n"
                               "Content-Disposition: form-data; name=text\r\n\r\nred car\r\n--x\r\n"
                               "Content-Disposition: form-data; name=threshold\r\n\r\n0.25\r\n--x--\r\n";
    add_binary(add, 3, "multipart/form-data; boundary=x", form, sizeof form - 1);
    add_binary(add, 1, "{\"inputs\": [" IDS ", " MASK ", " HALF "], \"parameters\": {\"binary_data_output\": true}}",
               "\0<\0<\0<\0<", 8);
}

/* (batch, tokens) ids and mask, (batch, 2) half -> (batch, tokens, 3) y, (batch) flag */
static const Model *make_model(void)
{
    static Model m = {.nin = 3,
                      .nout = 2,
                      .together = true,
                      .min_rows = 1,
                      .max_rows = 64,
                      .ragged = true,
                      .mask = 1,
                      .min_tokens = 1,
                      .max_tokens = 64,
                      .capacity = 16,
                      .embeds = 0,
                      .width = 3,
                      .least = 1,
                      .in = {{.name = "ids", .dtype = DT_I64, .rank = 2, .dim = {-1, -1}, .tokens = {false, true}},
                             {.name = "mask", .dtype = DT_BOOL, .rank = 2, .dim = {-1, -1}, .tokens = {false, true}},
                             {.name = "half", .dtype = DT_F16, .rank = 2, .dim = {-1, 2}}},
                      .out = {{.name = "y", .dtype = DT_F32, .rank = 3, .dim = {-1, -1, 3}},
                              {.name = "flag", .dtype = DT_BOOL, .rank = 1, .dim = {-1}}},
                      .role = {0, 1, -1, -1}};
    static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nred\ncar\n.\n";
    if (m.tokenizer) return &m;
    qkv_error e;
    fuzz_set_file((const uint8_t *)vocab, sizeof vocab - 1);
    m.tokenizer = qkv_tokenizer_wordpiece(FUZZ_PATH, 1, &e);
    fuzz_check(m.tokenizer, "the vocabulary is read");
    return &m;
}

/* What the model would give for a request: y and flag of its rows and tokens, or of one text. */
static void make_outputs(Tensor *out, int64_t rows, int64_t length)
{
    static float y[64 * 64 * 3];
    static uint8_t flag[64];
    for (int i = 0; i < 64 * 64 * 3; i++) y[i] = (float)(i % 7 - 3);
    out[0] = tensor_of(DT_F32, 3, (int64_t[]){rows, length, 3}, y);
    out[1] = tensor_of(DT_BOOL, 1, (int64_t[]){rows}, flag);
}

static void check_json(const char *text, size_t n)
{
    Err err = {0};
    json_t *v = json_read(text, n, "the answer", &err);
    fuzz_check(v, "an answer is JSON");
    json_free(v);
}

static void try_infer(const Model *m, const uint8_t *body, size_t size, size_t header)
{
    Err err = {0};
    Infer *r = infer_read(m, body, size, header, &err);
    if (!r) {
        fuzz_said(&err);
        return;
    }
    r->call.model = (Model *)(uintptr_t)m;
    Tensor out[3] = {0};
    if (item_measure(m, &r->item, &err)) {
        fuzz_check(r->item.rows >= 1 && r->item.rows <= 64 && r->item.tokens >= 1 && r->item.tokens <= 64,
                   "rows and tokens are in the model's range");
        fuzz_check(r->item.real >= 0 && r->item.real <= r->item.rows * r->item.tokens,
                   "no more are real than there are");
        Buf answer = {0};
        size_t json;
        make_outputs(out, r->item.rows, r->item.tokens);
        fuzz_check(infer_take(r, &r->item, out, &err), "outputs are taken");
        fuzz_check(infer_write(r, "m", &answer, &json, &err), "an answer is written");
        check_json(answer.data, json ? json : answer.len);
        buf_free(&answer);
    } else fuzz_said(&err);
    infer_free(r);
}

static void try_embeddings(const Model *m, const uint8_t *body, size_t size)
{
    Err err = {0};
    Embeddings *r = embeddings_read(body, size, &err);
    bool ok = r && embeddings_bind(r, m, &err);
    if (!ok) fuzz_said(&err);
    Tensor out[3] = {0};
    if (r) r->call.model = (Model *)(uintptr_t)m;
    for (int i = 0; ok && i < r->call.n; i++) {
        Item *item = &r->call.item[i];
        item->index = i;
        fuzz_check(r->length[i] >= 1 && r->length[i] <= m->capacity, "a text has at most as many tokens as fit");
        make_outputs(out, 1, item->in[0].shape[1]);
        fuzz_check(r->call.take(r, item, out, &err), "an embedding is taken");
    }
    Buf answer = {0};
    if (ok && embeddings_write(r, &answer, &err)) check_json(answer.data, answer.len);
    buf_free(&answer);
    embeddings_free(r);
}

static void try_segment(const uint8_t *body, size_t size, size_t header)
{
    Err err = {0};
    char type[256];
    size_t n = header < size ? header : size;
    if (n > sizeof type - 1) n = sizeof type - 1;
    memcpy(type, body, n);
    type[n] = 0;
    const uint8_t *from = body + n, *end = body + size;
    Segmenting *r = segment_read(type, from, (size_t)(end - from), &err);
    if (!r) {
        fuzz_said(&err);
        return;
    }
    const uint8_t *picture = r->picture;
    fuzz_check(picture >= from && r->size >= 1 && r->size <= (size_t)(end - picture), "the picture is in the body");
    fuzz_check(r->n >= 1 && r->n <= MOST_NAMED && r->file, "there are texts and a name");
    for (int i = 0; i < r->n; i++) {
        size_t length = strlen(r->text[i]);
        fuzz_check(length >= 1 && length <= MOST_NAMED_BYTES, "a text is within its bound");
    }
    Buf answer = {0};
    Coco c = {.model = r->file, .threshold = r->threshold, .text = r->text, .n = r->n};
    coco_write(&c, r->file, NULL, NULL, &answer);
    check_json(answer.data, answer.len);
    buf_free(&answer);
    segment_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) return 0;
    const Model *m = make_model();
    size_t header = (size_t)data[1] | (size_t)data[2] << 8;
    if (data[0] == 3) try_segment(data + 3, size - 3, header);
    else if (data[0] == 2) try_embeddings(m, data + 3, size - 3);
    else try_infer(m, data + 3, size - 3, data[0] == 1 ? header : INFER_JSON);
    return 0;
}

/* The JSON changes as JSON does, what follows it as bytes; the length between them stays right most of the time. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    static uint8_t text[1 << 16];
    (void)seed;
    if (size < 3 || max < 8 || data[0] == 3 || !fuzz_random(8)) return LLVMFuzzerMutate(data, size, max);
    size_t header = (size_t)data[1] | (size_t)data[2] << 8;
    size_t n = data[0] == 1 && header <= size - 3 ? header : size - 3, rest = size - 3 - n;
    if (n >= sizeof text) return LLVMFuzzerMutate(data, size, max);
    memcpy(text, data + 3, n);
    size_t most = max - 3 - rest < sizeof text - 1 ? max - 3 - rest : sizeof text - 1;
    size_t fresh = json_mutate(text, n, most);
    memmove(data + 3 + fresh, data + 3 + n, rest);
    memcpy(data + 3, text, fresh);
    if (fuzz_random(16)) {
        data[1] = (uint8_t)fresh;
        data[2] = (uint8_t)(fresh >> 8);
    }
    return 3 + fresh + rest;
}

const FuzzTarget fuzz_target = {.name = "serve", .tokens = tokens, .seeds = seeds, .memory_ratio = 300};
