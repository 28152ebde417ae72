/* A name for bytes: 128 bits, at several GB/s, the same on every machine. Not against somebody who makes two files of
 * one digest on purpose.
 *
 *     Digest d = {0};
 *     digest_add(&d, bytes, n);
 *     digest_text(&d, "bf16");
 *     char name[DIGEST_TEXT];
 *     digest_print(&d, name);                "44bc2cf5ad770999..."
 */
#ifndef QKV_BASE_DIGEST_H
#define QKV_BASE_DIGEST_H
#include <stddef.h>
#include <stdint.h>

typedef struct Digest {
    uint64_t half[2];
} Digest;

enum { DIGEST_TEXT = 33 };
void digest_add(Digest *d, const void *bytes, size_t n); /* the pieces' borders count */
void digest_text(Digest *d, const char *text);
void digest_print(const Digest *d, char out[DIGEST_TEXT]);
uint64_t digest_xxh64(const void *bytes, size_t n, uint64_t seed);
#endif
