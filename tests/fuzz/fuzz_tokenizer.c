/* tokenizer.json: the file, a NUL, a text. */
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "vision/json_bpe.h"

static const char *const tokens[] = {"\"type\":\"BPE\"",
                                     "\"type\":\"ByteLevel\"",
                                     "\"type\":\"Sequence\"",
                                     "\"type\":\"Split\"",
                                     "\"Regex\":\"\\\\s+|(?i:'s)\"",
                                     "\"String\":\" \"",
                                     "\"behavior\":\"Removed\"",
                                     "\"type\":\"Digits\",\"individual_digits\":true",
                                     "\"type\":\"NFKC\"",
                                     "\"ignore_merges\":true",
                                     "\"byte_fallback\":true",
                                     "\"normalized\":true",
                                     "\"single_word\":true",
                                     "\"lstrip\":true",
                                     "\"special\":true",
                                     "\"id\":4294967296",
                                     "\"id\":-1",
                                     "2147483647",
                                     "\"a b\"",
                                     "[\"a\",\"b\"]",
                                     "\xc4\xa0",
                                     "\xc3\xa9",
                                     "e\xcc\x81",
                                     "\xe2\x84\xab",
                                     "\xf0\x9f\x98\x80",
                                     "\xff",
                                     "<s>",
                                     NULL};

static void seeds(FuzzAdd *add)
{
    static const char
        plain[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xc4\xa0\":3,\"\xc4\xa0"
                  "ab\":4},\"merges\":[\"a b\",[\"\xc4\xa0\",\"ab\"]]},\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                  "\"add_prefix_space\":false,\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\"}}\0ab abba's",
        added[] = "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true,\"lstrip\":true},{\"id\":4,"
                  "\"content\":\"e\xcc\x81\",\"normalized\":true,\"single_word\":true,\"rstrip\":true}],"
                  "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                  "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}| ?\\\\p{L}+\"},\"behavior\":"
                  "\"Isolated\",\"invert\":false},{\"type\":\"Digits\",\"individual_digits\":true},"
                  "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}]},\"post_processor\":"
                  "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
                  "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":"
                  "\"<s>\",\"ids\":[3],\"tokens\":[\"<s>\"]}}},\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,"
                  "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}\0ab <s> 1234 e\xcc\x81 \xff";
    add(plain, sizeof plain - 1);
    add(added, sizeof added - 1);
}

static void encode(const JsonBpe *t, const char *text)
{
    int64_t ids[64];
    Err err = {0};
    int all = json_bpe_encode(t, text, ids, 64, &err), few = json_bpe_encode(t, text, ids, 3, &err);
    fuzz_check(all == few, "the number of ids does not depend on the room for them");
    if (all < 0) fuzz_said(&err);
    all = all < 0 ? all : json_bpe_encode(t, text, ids, 64, &err);
    for (int i = 0; i < all && i < 64; i++) {
        size_t n = 0;
        fuzz_check(ids[i] >= 0 && ids[i] < json_bpe_size(t), "an id is in the vocabulary");
        const char *bytes = json_bpe_bytes(t, ids[i], &n);
        fuzz_check(bytes != NULL, "an id has bytes");
        fuzz_check(!n || memchr(bytes, bytes[n - 1], n), "bytes can be read");
        json_bpe_is_special(t, ids[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    size_t file = end ? (size_t)(end - data) : size, rest = end ? size - file - 1 : 0;
    char *text = malloc(rest + 1);
    if (!text) return 0;
    if (rest) memcpy(text, end + 1, rest);
    text[rest] = 0;
    Err err = {0};
    JsonBpe *t = json_bpe_open(json_read(data, file, "tokenizer.json", &err), "tokenizer.json", &err);
    if (t) encode(t, text);
    else fuzz_said(&err);
    size_t n;
    if (t)
        fuzz_check(!json_bpe_bytes(t, json_bpe_size(t), &n) && !json_bpe_bytes(t, -1, &n), "other ids have no bytes");
    json_bpe_free(t);
    free(text);
    return 0;
}

/* The values of the file; the text after it by bytes. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    (void)seed;
    const uint8_t *end = memchr(data, 0, size);
    size_t file = end ? (size_t)(end - data) : size, rest = size - file;
    if (!end || fuzz_random(3) == 0) return LLVMFuzzerMutate(data, size, max);
    uint8_t *text = malloc(rest);
    if (!text) return size;
    memcpy(text, end, rest);
    size_t now = json_mutate(data, file, max - rest);
    memcpy(data + now, text, rest);
    free(text);
    return now + rest;
}

const FuzzTarget fuzz_target = {.name = "tokenizer", .tokens = tokens, .seeds = seeds, .memory_ratio = 300};
