/* CLIP's byte-level BPE tokenizer.
 *
 *     Bpe *b = bpe_open(bytes, size, CLIP_META, err);        merges as text, "i n\nt h\na n\n...", the first line may
 *                                                            be a "#version"
 *     int n = bpe_encode(b, "a red car", ids, 32, err);      <start> a red car <end> 0 0 ...; n = 5
 *     bpe_free(b);
 *
 * Ids: 256 bytes, the same at the end of a word, one a merge, <start>, <end>. CLIP has 48,894 merges and thus 49,408
 * ids.
 */
#ifndef QKV_VISION_BPE_H
#define QKV_VISION_BPE_H
#include "vision/clip_text.h"

typedef struct Bpe Bpe;
/* merges is read, not kept; lines after CLIP's 48,894 are left out, as in its own tokenizer (the file has 262,144). */
Bpe *bpe_open(const char *merges, size_t size, ClipStyle style, Err *err);
void bpe_free(Bpe *b);
int bpe_vocabulary(const Bpe *b); /* number of ids */
/* Writes `context` ids: <start>, text, <end>, then 0 (CLIP_META) or <end> (CLIP_HF). A text of more is cut, its last
 * id is <end>. The number of ids that the whole text needs, with <start> and <end>: 2 when it has no tokens, above
 * `context` when it was cut; -1 on failure. */
int bpe_encode(const Bpe *b, const char *text, int64_t *ids, int context, Err *err);
#endif
