/* WordPiece: a vocabulary, a NUL, a text. Ids are lines of the vocabulary, between [CLS] and [SEP]. */
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "vision/wordpiece.h"

static const char *const tokens[] = {"[UNK]\n",
                                     "[CLS]\n",
                                     "[SEP]\n",
                                     "\r\n",
                                     "\n",
                                     "##",
                                     "##a\n",
                                     "a\n",
                                     "\xc3\xa9",
                                     "\xe4\xb8\xad",
                                     "\xcc\x81",
                                     "\xc4\xb0",
                                     "\xf0\x9f\x98\x80",
                                     "\xff",
                                     "\xef\xbf\xbd",
                                     " ",
                                     "!",
                                     NULL};

static void seeds(FuzzAdd *add)
{
    static const char plain[] = "[UNK]\n[CLS]\n[SEP]\na\n##b\nab\n##c\ncar\n.\n\0A red car. abc",
                      accents[] = "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n\xc3\xa9t\xc3\xa9\n\xe4\xb8\xad\n##i\ni\n"
                                  "\0\xc3\x89T\xc3\x89 \xe4\xb8\xad\xc4\xb0\xff!";
    add(plain, sizeof plain - 1);
    add(accents, sizeof accents - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    size_t vocab = end ? (size_t)(end - data) : size, rest = end ? size - vocab - 1 : 0;
    char *text = malloc(rest + 1);
    if (!text) return 0;
    if (rest) memcpy(text, end + 1, rest);
    text[rest] = 0;
    fuzz_set_file(data, vocab);
    for (int lowercase = 0; lowercase < 2; lowercase++) {
        Err err = {0};
        Tokenizer *t = wordpiece_open(FUZZ_PATH, lowercase, &err);
        for (int capacity = 1; t && capacity < 64; capacity += 21) {
            int64_t ids[64];
            int n = wordpiece_encode(t, text, ids, capacity, &err);
            fuzz_check(n <= capacity, "no more ids than there is room for");
            fuzz_check(n < 0 || n >= 2, "[CLS] and [SEP] are there");
            if (n < 0) fuzz_said(&err);
            for (int i = 0; i < n; i++)
                fuzz_check(ids[i] >= 0 && ids[i] <= (int64_t)vocab, "an id is a line of the vocabulary");
        }
        if (!t) fuzz_said(&err);
        wordpiece_free(t);
    }
    free(text);
    return 0;
}

const FuzzTarget fuzz_target = {.name = "wordpiece", .tokens = tokens, .seeds = seeds, .memory_ratio = 300};
