/* BERT's WordPiece tokenizer.
 *
 *     Tokenizer *t = wordpiece_open("vocab.txt", true, err);
 *     int n = wordpiece_encode(t, "A red car.", ids, 128, err);     [CLS] a red car . [SEP]
 *     wordpiece_free(t);
 */
#ifndef QKV_VISION_WORDPIECE_H
#define QKV_VISION_WORDPIECE_H
#include <stdint.h>
#include "base/err.h"

typedef struct Tokenizer Tokenizer;
/* vocab: one token a line, its line number is its id; must hold [UNK], [CLS] and [SEP]. */
Tokenizer *wordpiece_open(const char *vocab, bool lowercase, Err *err);
void wordpiece_free(Tokenizer *t);
/* How many ids were written (at most capacity; the text is cut, [SEP] stays), or -1. */
int wordpiece_encode(const Tokenizer *t, const char *text, int64_t *ids, int capacity, Err *err);
#endif
