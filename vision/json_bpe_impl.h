/* A tokenizer.json as it was read, for json_bpe_read.c and json_bpe.c. */
#ifndef QKV_VISION_JSON_BPE_IMPL_H
#define QKV_VISION_JSON_BPE_IMPL_H
#include "base/arena.h"
#include "base/map.h"
#include "vision/json_bpe.h"
#include "vision/merges.h"
#include "vision/split.h"

/* SPARSE: room is made for all ids below the largest, which a small file could set to MAX_IDS. */
enum { BYTES = 256, MAX_IDS = 1 << 21, SPARSE = 16, FREE_IDS = 1 << 16, MAX_TEMPLATE = 64 };

typedef struct Word {  /* by id */
    const char *bytes; /* NULL: there is no such id */
    uint32_t size;
    bool special;
} Word;

typedef struct Added {
    const char *content;
    size_t size;
    int id;
    bool special, single_word, lstrip, rstrip, normalized;
} Added;

/* The tokens that are looked for in a text before (normalized 0) or after the normalizer, sorted. */
typedef struct AddedSet {
    const Added **token;
    int *start; /* by token: the longest other one that it begins with; -1: none */
    int n, first[BYTES + 1]; /* by first byte */
} AddedSet;

struct JsonBpe {
    Arena *arena;
    Map id, added_id; /* token, as the file writes it -> id + 1: of the vocabulary, of added_tokens */
    Word *word;
    int64_t size;
    Merges merges;
    int byte_id[BYTES]; /* -1: the vocabulary lacks it */
    int unk;            /* -1: none; bytes without an id are left out */
    bool fuse_unk, ignore_merges;
    Added *added;
    int nadded;
    AddedSet before_and_after[2];
    int normal_form; /* utf8proc's options; 0: texts stay as they are */
    Splitter *splitter;
    int64_t prefix[MAX_TEMPLATE], suffix[MAX_TEMPLATE]; /* of the post_processor */
    int nprefix, nsuffix;
};

int json_bpe_in_vocab(const JsonBpe *t, const char *token); /* -1: it is not, though it may be an added token */
/* text in the normal form, mem_free()d; NULL on failure. */
char *json_bpe_normal(const JsonBpe *t, const char *text, size_t size, size_t *n, Err *err);
#endif
