/* SHA-256 (FIPS 180-4) of a file in pieces.
 *
 *     Sha256 s;
 *     sha256_init(&s);
 *     sha256_add(&s, "abc", 3);
 *     sha256_end(&s, hex);          ba7816bf 8f01cfea ...
 */
#include <stdio.h>
#include <string.h>
#include "page.h"

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* One of the 64 steps. What FIPS 180-4 moves from name to name stays where it is: names turn instead. */
static inline __attribute__((always_inline)) void step(uint32_t *v, int i, uint32_t in)
{
    const uint32_t a = v[-i & 7], b = v[(1 - i) & 7], c = v[(2 - i) & 7], e = v[(4 - i) & 7], f = v[(5 - i) & 7],
                   g = v[(6 - i) & 7];
    const uint32_t sum1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25), choice = (e & f) ^ (~e & g);
    const uint32_t sum0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t first = v[(7 - i) & 7] + sum1 + choice + in;
    v[(3 - i) & 7] += first;
    v[(7 - i) & 7] = first + sum0 + majority;
}

static void add_block(uint32_t *state, const unsigned char *p)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i += 8)
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) step(v, k, constants[i + k] + w[i + k]);
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

void sha256_init(Sha256 *s)
{
    *s = (Sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(Sha256 *s, const void *data, size_t n)
{
    const unsigned char *p = data;
    while (n) {
        size_t at = s->bytes % 64, take = n < 64 - at ? n : 64 - at;
        if (take == 64) add_block(s->state, p);
        else memcpy(s->block + at, p, take);
        s->bytes += take;
        p += take;
        n -= take;
        if (at && at + take == 64) add_block(s->state, s->block);
    }
}

void sha256_end(Sha256 *s, char hex[65])
{
    uint64_t bits = s->bytes * 8;
    unsigned char size[8];
    sha256_add(s, "\x80", 1);
    while (s->bytes % 64 != 56) sha256_add(s, "", 1);
    for (int i = 0; i < 8; i++) size[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(s, size, 8);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", (unsigned)s->state[i]);
}
