/* What the files of `qkv generate` share: the model as a decoder (generate_model.c), and what of the text may be shown
 * (generate_text.c). */
#ifndef QKV_CLI_GENERATE_H
#define QKV_CLI_GENERATE_H
#include "cli.h"

/* ------------------------------------------------------------------ the model */

typedef enum CacheKind { CACHE_PAST, CACHE_BUFFERS, CACHE_NONE } CacheKind;
extern const char *const cache_names[]; /* "past", "buffers", "none" */

typedef struct Decoder {
    Loaded *m;
    int ids, position, mask; /* inputs; -1: the model has none */
    int logits;              /* output */
    CacheKind cache;
    struct Fed {
        const char *input, *output;
        void *first; /* zeros, for the first run */
    } * fed;         /* past and present */
    int nfed;
    int64_t rows, most; /* sequences of a run, which are all the same; tokens of a run */
    int64_t *seen;      /* all tokens until now */
    int64_t nseen, cap;
} Decoder;

/* Which input and output is what, and feeds: those of `pairs` ("past_0=output_1"), the others by their names, else in
 * order. */
int decoder_open(Decoder *d, Loaded *m, const List *pairs);
void decoder_close(Decoder *d);
/* Runs the model on n more tokens. *logits: those after the last one, of *size ids; valid until the next run. */
int decoder_run(Decoder *d, const int64_t *ids, int64_t n, const float **logits, int64_t *size, qkv_error *e);

/* ------------------------------------------------------------------ the text */

typedef struct Shown {
    const List *stop;
    char *text; /* all bytes until now */
    size_t size, cap, out;
    bool stream, stopped;
} Shown;

/* Adds a token's bytes, and prints (stream) what is whole: neither a part of a character nor the beginning of a stop
 * string. Once one is there the text ends before it, and `stopped` is set. What is not UTF-8 is shown as U+FFFD. */
void shown_add(Shown *s, const char *bytes, size_t n);
void shown_rest(Shown *s);        /* prints what was not printed yet */
char *shown_text(const Shown *s); /* all of it, to be freed */
void shown_free(Shown *s);
#endif
