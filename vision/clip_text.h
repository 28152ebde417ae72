/* Text as CLIP's two tokenizers see it before they split it: Unicode put right and lower case.
 *
 *     Buf b = {0};
 *     clip_clean("Caf&eacute; \xe2\x80\x9cRed\xe2\x80\x9d", CLIP_META, &b, err);      caf\xc3\xa9 "red"
 *
 * CLIP_HF is transformers' CLIPTokenizer: NFC, lower case character by character.
 * CLIP_META is OpenAI's SimpleTokenizer (open_clip, SAM 3): ftfy.fix_text, html.unescape twice, Python's str.lower().
 * Of ftfy's steps those that follow from single characters are here: entities, ligatures, widths, quotes, control
 * characters, NFC. Its guesses at text that was decoded with the wrong table (mojibake) are not.
 */
#ifndef QKV_VISION_CLIP_TEXT_H
#define QKV_VISION_CLIP_TEXT_H
#include <stdint.h>
#include "base/buf.h"

typedef enum ClipStyle { CLIP_META, CLIP_HF } ClipStyle;
/* Appends to out; bytes that are not UTF-8 become U+FFFD each. */
bool clip_clean(const char *text, size_t n, ClipStyle style, Buf *out, Err *err);

typedef enum ClipClass { CLIP_SPACE, CLIP_LETTER, CLIP_NUMBER, CLIP_OTHER } ClipClass;
/* The class of the first character of n > 0 bytes of UTF-8, and its length: \s, \p{L}, \p{N} or none of them. */
ClipClass clip_class(const char *text, size_t n, size_t *length);
#endif
