/* qkv report and qkv compare: the page, and what both put on it. Its data go into the file as they come, since those of
 * a model with a million nodes take a gigabyte:
 *
 *     Page *p;
 *     int code = page_begin("r.html", "report", &p);           {"schema": .., "kind": .., "machine": {..}
 *     if (code) return code;
 *     page_open(p, "models", '[');
 *     page_text(p, NULL, text);                                JSON of the library
 *     page_close(p, "]");
 *     page_value(p, "training", list);                         of jansson, whose reference it takes
 *     return page_end(p, code);                                or nothing is written, where code is not 0
 */
#ifndef QKV_CLI_PAGE_H
#define QKV_CLI_PAGE_H
#include "cli.h"

/* The ending of path says what is written: .html the page, .json the data alone, .csv its steps. */
typedef struct Page Page;
int page_can_write(const char *path); /* is it one of the three? */
int page_begin(const char *path, const char *kind, Page **out);
int page_end(Page *p, int code); /* of what filled it; what was wrong with the file else */

/* A member, or an element with the key NULL. What goes wrong with the file is told by page_end. */
void page_text(Page *p, const char *key, const char *json);
void page_value(Page *p, const char *key, json_t *v);
void page_open(Page *p, const char *key, char bracket);
void page_open_text(Page *p, const char *key, const char *json); /* an object to which more members come */
void page_close(Page *p, const char *brackets);
/* The "steps" of a profile as a member: the rows of a .csv. */
void page_steps(Page *p, const char *file, const char *profile);

/* ------------------------------------------------------------------ parts of the data */

/* Opens what qkv inspect --json prints of m, with "bytes" and "sha256" of its file and its "graph". */
int page_open_model(Page *p, const char *path, const qkv_model *m);
/* A text of the library, which is freed. */
int page_report(Page *p, const char *key, char *text, const qkv_error *e);
/* What measured takes: peak is read by measure_machine, before there is a model. */
typedef struct Measuring {
    const char *file, *dtype;
    int64_t runs;
    qkv_peak peak;
} Measuring;
int measure_machine(const ModelOptions *o, qkv_peak *out);
/* Of so many runs with inputs that are set, fewer where they take ten seconds: {"inputs", "threads", "runs", "min_ms",
 * "steps", "flame", "peak", "memory", ..}, as measured.c says. */
int measured(Page *p, Loaded *m, const Measuring *how);

/* "sha256" of bytes in hexadecimal */
typedef struct Sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} Sha256;
void sha256_init(Sha256 *s);
void sha256_add(Sha256 *s, const void *data, size_t n);
void sha256_end(Sha256 *s, char hex[65]);
#endif
