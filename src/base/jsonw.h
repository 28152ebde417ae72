/* JSON as it is written: text at the end of a Buf, with the commas that it needs.
 *
 *     jw_put(b, "{'node': %s, 'count': %d", n->name, 3);    {"node": "conv", "count": 3
 *     jw_bool(b, "last", true);                             {"node": "conv", "count": 3, "last": true
 *     jw_open(b, "shape", '[');
 *     for (...) jw_int(b, NULL, n->shape[i]);               {"node": "conv", "count": 3, "last": true, "shape": [2, 3
 *     jw_close(b, "]}");                                    {"node": "conv", "count": 3, "last": true, "shape": [2, 3]}
 *
 * key: NULL in an array, and for what stands alone. The text that is there says whether a comma is due, so that a list
 * may begin in an empty Buf and stand in another one later.
 */
#ifndef QKV_BASE_JSONW_H
#define QKV_BASE_JSONW_H
#include <stdint.h>
#include "base/buf.h"

/* A piece with ' for ", and values: %s a string with quotes and escapes, or null; %d, %lld, %llu; %g as jw_number;
 * %.3f. It may begin by closing what is open: "], 'outputs': [". */
void jw_put(Buf *b, const char *piece, ...) QKV_PRINTF(2, 3);
void jw_open(Buf *b, const char *key, char bracket); /* '{' or '[' */
void jw_close(Buf *b, const char *brackets);
void jw_key(Buf *b, const char *key); /* the value comes next, with the key NULL */

void jw_text(Buf *b, const char *key, const char *text); /* NULL: null */
void jw_take(Buf *b, const char *key, Buf *text);        /* the text in another Buf, which is freed */
void jw_int(Buf *b, const char *key, int64_t v);
void jw_number(Buf *b, const char *key, double v); /* the least digits that read back as v; NaN and infinities: null */
void jw_bool(Buf *b, const char *key, bool v);
void jw_ints(Buf *b, const char *key, const int64_t *v, int n);
void jw_texts(Buf *b, const char *key, const char *const *text, int n);
void jw_raw(Buf *b, const char *key, const char *json); /* what is JSON already */
void jw_list(Buf *b, const char *key, char bracket,
             const Buf *items); /* around what was written into a Buf of its own */

void jw_line(Buf *b);    /* what comes next begins a line */
void jw_compact(Buf *b); /* drops the spaces and ends of lines between the tokens */

/* How every report of the library begins: the version of its keys (docs/schema), raised when one goes or changes. */
static inline void jw_report(Buf *b) { jw_put(b, "{'schema': 1"); }
#endif
