/* qkv report and qkv compare: the page, and what both put on it. */
#ifndef QKV_CLI_PAGE_H
#define QKV_CLI_PAGE_H
#include "cli.h"

/* Writes data where the ending of path says: .html the page, .json the data alone, .csv its steps. Drops data. */
int page_write(const char *path, json_t *data);
int page_can_write(const char *path); /* is it one of the three? */

/* ------------------------------------------------------------------ parts of the data */

json_t *page_of(const char *kind); /* {"schema", "kind", "machine": {..}} */
/* What qkv inspect --json prints of m, with "bytes" and "sha256" of its file and its "graph". */
int model_facts(const char *path, const qkv_model *m, json_t **out);
/* The report that a call of the library gave, with its text freed; NULL: text is NULL, or not JSON. */
json_t *parsed(char *text);
/* Of so many runs with inputs that are set, fewer where they take ten seconds: {"inputs", "threads", "runs", "min_ms",
 * "steps", "flame", "peak", "memory", ..}, as measured.c says. */
int measured(Loaded *m, int64_t runs, json_t **out);

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
