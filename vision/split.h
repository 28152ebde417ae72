/* A text in pieces, cut by regular expressions: the pre_tokenizer of a tokenizer.json.
 *
 *     Splitter *s = splitter_open(json_find(root, "pre_tokenizer"), err);
 *     Pieces p = {0};
 *     split_text(s, "Hello world", 11, &p, err);      p.text + p.end[i - 1] .. p.text + p.end[i]: "Hello", " world"
 *
 * Known are Sequence, ByteLevel, Split with a Regex or String (Isolated, Removed), Digits and Punctuation. Expressions
 * run in PCRE2, with a limit on how much they may try in a text.
 */
#ifndef QKV_VISION_SPLIT_H
#define QKV_VISION_SPLIT_H
#include "base/buf.h"
#include "format/json.h"

typedef struct Splitter Splitter;
Splitter *splitter_open(const json_t *pre_tokenizer, Err *err);
void splitter_free(Splitter *s);
bool splitter_has_bytes(const Splitter *s); /* is ByteLevel among them? */

typedef struct Pieces {
    char *text;
    size_t *end; /* by piece, in text */
    int n;
} Pieces;
/* text: UTF-8. p is overwritten. */
bool split_text(const Splitter *s, const char *text, size_t size, Pieces *p, Err *err);
void pieces_free(Pieces *p);
#endif
