/* Digests of bytes: XXH64 (Yann Collet; https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md) with two seeds.
 * Contract in digest.h. */
#include "base/digest.h"
#include <string.h>
#include "base/number.h"

static const uint64_t P1 = 0x9e3779b185ebca87u, P2 = 0xc2b2ae3d27d4eb4fu, P3 = 0x165667b19e3779f9u,
                      P4 = 0x85ebca77c2b2ae63u, P5 = 0x27d4eb2f165667c5u;

static uint64_t turn(uint64_t x, int by) { return x << by | x >> (64 - by); }
static uint64_t round_of(uint64_t lane, uint64_t word) { return turn(lane + word * P2, 31) * P1; }

static uint64_t u64_at(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap64(v) : v;
}

static uint64_t u32_at(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap32(v) : v;
}

/* Four lanes over blocks of 32 bytes, joined. */
static uint64_t lanes(const unsigned char *p, size_t blocks, uint64_t seed)
{
    uint64_t v[4] = {seed + P1 + P2, seed + P2, seed, seed - P1};
    for (; blocks; blocks--, p += 32)
        for (int i = 0; i < 4; i++) v[i] = round_of(v[i], u64_at(p + 8 * i));
    uint64_t h = turn(v[0], 1) + turn(v[1], 7) + turn(v[2], 12) + turn(v[3], 18);
    for (int i = 0; i < 4; i++) h = (h ^ round_of(0, v[i])) * P1 + P4;
    return h;
}

uint64_t digest_xxh64(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *p = bytes, *end = p + n;
    uint64_t h = n >= 32 ? lanes(p, n / 32, seed) : seed + P5;
    p += n / 32 * 32;
    h += n;
    for (; end - p >= 8; p += 8) h = turn(h ^ round_of(0, u64_at(p)), 27) * P1 + P4;
    if (end - p >= 4) {
        h = turn(h ^ u32_at(p) * P1, 23) * P2 + P3;
        p += 4;
    }
    for (; p < end; p++) h = turn(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

void digest_add(Digest *d, const void *bytes, size_t n)
{
    const size_t most = 1 << 16; /* the second half finds it in the cache */
    const unsigned char *p = bytes;
    for (size_t done = 0;; done += most) {
        size_t piece = n - done < most ? n - done : most;
        d->half[0] = digest_xxh64(p + done, piece, d->half[0]);
        d->half[1] = digest_xxh64(p + done, piece, d->half[1] ^ P3);
        if (n - done <= most) return;
    }
}

void digest_text(Digest *d, const char *text) { digest_add(d, text, strlen(text)); }

void digest_print(const Digest *d, char out[DIGEST_TEXT])
{
    text_printf(out, DIGEST_TEXT, "%016llx%016llx", (unsigned long long)d->half[0], (unsigned long long)d->half[1]);
}
