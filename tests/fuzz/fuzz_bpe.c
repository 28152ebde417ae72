/* CLIP's BPE: merges, a NUL, a text. */
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "vision/bpe.h"

static const char *const tokens[] = {"a b\n",
                                     "ab c\n",
                                     "c</w>\n",
                                     "</w>",
                                     "#version\n",
                                     " ",
                                     "\n",
                                     "&amp;",
                                     "&#x41;",
                                     "&#",
                                     "&eacute",
                                     "<|endoftext|>",
                                     "<end_of_text>",
                                     "'s",
                                     "'ll",
                                     "\xc5\xbf",
                                     "\xc4\xb0",
                                     "\xce\xa3",
                                     "\xcc\x81",
                                     "\xf0\x9f\x98\x80",
                                     "\xef\xbd\xb6",
                                     "\xef\xac\x83",
                                     "\xff",
                                     NULL};

static void seeds(FuzzAdd *add)
{
    static const char
        plain[] = "#version: 0.2\nr e\na r\nre d</w>\nc ar\nt h\nth e</w>\n\0The RED c\xc3\xa1r's &amp; it",
        marks[] =
            "\xc4\xa6 \xc5\x81\na a\naa aa\naa a</w>\n\0aaaaaaa \xce\xa3\xce\xa3 <|endoftext|>&lt;end_of_text>\xff";
    add(plain, sizeof plain - 1);
    add(marks, sizeof marks - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    size_t merges = end ? (size_t)(end - data) : size, rest = end ? size - merges - 1 : 0;
    char *text = malloc(rest + 1);
    if (!text) return 0;
    if (rest) memcpy(text, end + 1, rest);
    text[rest] = 0;
    for (int style = 0; style < 2; style++) {
        Err err = {0};
        Bpe *b = bpe_open((const char *)data, merges, (ClipStyle)style, &err);
        for (int room = 1; b && room < 64; room += 31) {
            int64_t ids[64];
            int n = bpe_encode(b, text, ids, room, &err);
            fuzz_check(n < 0 || n >= 2, "<start> and <end> are there");
            if (n < 0) fuzz_said(&err);
            for (int i = 0; n >= 0 && i < room; i++)
                fuzz_check(ids[i] >= 0 && ids[i] < bpe_vocabulary(b), "an id is in the vocabulary");
        }
        if (!b) fuzz_said(&err);
        bpe_free(b);
    }
    free(text);
    return 0;
}

const FuzzTarget fuzz_target = {.name = "bpe", .tokens = tokens, .seeds = seeds, .memory_ratio = 300};
