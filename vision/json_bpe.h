/* The byte-level BPE of a tokenizer.json: GPT-2's, Llama 3's, Qwen's and others of their kind.
 *
 *     JsonBpe *t = json_bpe_open(json_read(bytes, size, "tokenizer.json", err), "tokenizer.json", err);
 *     int n = json_bpe_encode(t, "Hello world", ids, 128, err);           as `tokenizers` with add_special_tokens
 *     size_t k;
 *     const char *bytes = json_bpe_bytes(t, ids[0], &k);                  "Hello"
 *
 * Read are model (BPE), added_tokens, normalizer (NFC, NFD, NFKC, NFKD), pre_tokenizer (split.h), post_processor
 * (TemplateProcessing for one text, ByteLevel); truncation and padding are not applied. A file with anything else is
 * refused (E_UNSUPPORTED names it).
 */
#ifndef QKV_VISION_JSON_BPE_H
#define QKV_VISION_JSON_BPE_H
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "format/json.h"

typedef struct JsonBpe JsonBpe;
/* root: is freed; NULL: err says why. */
JsonBpe *json_bpe_open(json_t *root, const char *what, Err *err);
void json_bpe_free(JsonBpe *t);
int64_t json_bpe_size(const JsonBpe *t); /* the largest id + 1 */
/* How many ids the text has, of which at most `capacity` are written; -1 on failure. */
int json_bpe_encode(const JsonBpe *t, const char *text, int64_t *ids, int capacity, Err *err);
const char *json_bpe_bytes(const JsonBpe *t, int64_t id, size_t *n); /* NULL for an id that there is not */
bool json_bpe_is_special(const JsonBpe *t, int64_t id);
int64_t json_bpe_find(const JsonBpe *t, const char *token); /* as the file writes it; -1: there is none */
#endif
