/* A model as it is served: its file, what it takes and gives, whether requests may share a run, its tokenizer.
 *
 *     Model *m = served_open(&source, err);        one reference
 *     ... served_take(m), served_drop(m) ...        any thread; the last one frees it
 *
 * Requests share a run where every input and output has the batch along its first axis. They may then have different
 * numbers of tokens where --skip-padding took effect, so that the padding between them is not computed. Neither is
 * taken on trust: the model runs two requests together and each alone when it is opened, and both must give the same.
 */
#ifndef QKV_SERVE_MODEL_H
#define QKV_SERVE_MODEL_H
#include <stdatomic.h>
#include "qkv_vision.h"
#include "serve/text.h"

typedef struct Source { /* of a model; strings are the caller's and outlive it */
    const char *name, *path;
    const char *cache;     /* as qkv_load_options; NULL: none */
    /* vocab.txt or tokenizer.json, and merges of CLIP for a model that segments; NULL: one beside the model or in it */
    const char *tokenizer;
    const char *processor; /* of a model that segments; NULL: the one in its file */
    bool bf16, no_mmap, no_optimize, portable_bits, cased, cls, no_batch;
    int threads;
    size_t memory_limit;
    int64_t text_tokens; /* most of a text; 0: what the model allows, at most TEXT_TOKENS */
} Source;

enum { MOST_PORTS = 64 };

typedef struct Port { /* an input or output */
    const char *name;
    DType dtype;
    int rank;
    int64_t dim[MAX_RANK];      /* -1: it varies */
    const char *text[MAX_RANK]; /* how the model calls a size that varies */
    bool tokens[MAX_RANK];      /* it is the number of tokens */
} Port;

typedef struct Model {
    atomic_int references;
    const Source *source;
    qkv_model *model;
    const struct JsonValue *described; /* owns names and texts of ports */
    Port in[MOST_PORTS], out[MOST_PORTS];
    int nin, nout;
    bool together;              /* requests of equal sizes may share a run */
    int64_t min_rows, max_rows; /* then: of the batch */
    bool ragged;                /* and such as differ in their number of tokens */
    int mask;                   /* then: the input that marks tokens */
    int64_t padding;            /* and what it holds at padding */
    int64_t min_tokens, max_tokens;
    char why[256]; /* why not both; "" otherwise */
    bool resets;   /* a run leaves something for the next one, which must not see it */
    qkv_session_options run;
    /* texts */
    qkv_tokenizer *tokenizer;          /* NULL: it takes none */
    char no_texts[320];                /* why not */
    int role[ROLES], capacity, embeds; /* embeds: the output that is pooled */
    int64_t least;                     /* tokens that an input has at least */
    int64_t width;                     /* of an embedding; -1: it varies */
    bool cls;
    /* pictures */
    bool segments;
    char no_segments[320]; /* why not */
} Model;

Model *served_open(const Source *s, Err *err);
Model *served_take(Model *m);
/* Finds what texts name in pictures, with a session of the model that is for it alone; NULL: an error. */
qkv_segmenter *served_segmenter(const Model *m, qkv_session *s, size_t features, Err *err);
void served_drop(Model *m);              /* NULL is fine */
bool said(Err *err, const qkv_error *e); /* takes over what the library said; false */
#endif
