/* Mutations of a protobuf message: fields at any depth, with the lengths around them put right. */
#include <stdlib.h>
#include <string.h>
#include "format/proto.h"
#include "fuzz.h"

enum { MAX_FIELDS = 512, DEEPEST = 12 };

static size_t put_varint(uint8_t *out, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) out[n++] = (uint8_t)(v | 0x80);
    out[n++] = (uint8_t)v;
    return n;
}

/* Where each field begins, and where the last one ends; 0 fields when it is not a message. */
static size_t fields(const uint8_t *data, size_t size, size_t *begin)
{
    Err ignored;
    Pb m = pb_of(data, size);
    PbField f;
    size_t n = 0;
    for (begin[0] = 0; n < MAX_FIELDS && pb_next(&m, &f, &ignored); begin[++n] = (size_t)(m.p - data)) {
    }
    return m.bad || !n ? 0 : n;
}

static uint64_t interesting(uint64_t v)
{
    static const uint64_t edges[] = {0,          1,          2,         3,          5,         7,        8,
                                     9,          14,         16,        17,         21,        23,       32,
                                     33,         127,        128,       255,        1 << 16,   1u << 31, 1ull << 32,
                                     1ull << 46, 1ull << 62, INT64_MAX, 1ull << 63, UINT64_MAX};
    size_t how = fuzz_random(4);
    return how == 0   ? v + fuzz_random(9) - 4
           : how == 1 ? edges[fuzz_random(sizeof edges / sizeof *edges)]
           : how == 2 ? -v
                      : v ^ (uint64_t)1 << fuzz_random(64);
}

/* Puts n bytes in the place of [at, end). */
static size_t splice(uint8_t *data, size_t size, size_t max, size_t at, size_t end, const uint8_t *bytes, size_t n)
{
    if (size - (end - at) + n > max) return size;
    memmove(data + at + n, data + end, size - end);
    if (n) memcpy(data + at, bytes, n);
    return size - (end - at) + n;
}

static size_t mutate(uint8_t *data, size_t size, size_t max, int depth)
{
    size_t begin[MAX_FIELDS + 1], n = fields(data, size, begin);
    if (!n || depth == 0 || fuzz_random(40) == 0) return LLVMFuzzerMutate(data, size, max);
    size_t k = fuzz_random(n), how = fuzz_random(12), at = begin[k], end = begin[k + 1];
    uint8_t head[20];
    Err ignored;
    PbField f;
    Pb m = pb_of(data + at, end - at);
    if (!pb_next(&m, &f, &ignored)) return size;
    if (how == 0) return splice(data, size, max, at, end, NULL, 0);
    if (how <= 2) { /* once more, or in another place */
        size_t to = begin[fuzz_random(n + 1)], len = end - at;
        uint8_t *copy = malloc(len);
        if (!copy) abort();
        memcpy(copy, data + at, len);
        size = splice(data, size, max, to, to, copy, len);
        free(copy);
        return size;
    }
    if (how == 3) { /* another number for the field, or another wire type */
        size_t tag = put_varint(head, f.number << 3 | (unsigned)f.wire),
               other = put_varint(head, (fuzz_random(3) ? 1 + fuzz_random(26) : f.number) << 3 |
                                            (fuzz_random(4) ? (unsigned)f.wire : fuzz_random(8)));
        return splice(data, size, max, at, at + tag, head, other);
    }
    if (f.wire == PB_VARINT) {
        size_t tag = put_varint(head, f.number << 3), len = tag + put_varint(head + tag, interesting(f.value));
        return splice(data, size, max, at, end, head, len);
    }
    if (f.wire != PB_BYTES) {
        data[end - 1 - fuzz_random(4)] ^= (uint8_t)(1u << fuzz_random(8));
        return size;
    }
    size_t room = f.size + 4096;
    uint8_t *inside = malloc(room + sizeof head);
    if (!inside) abort();
    if (f.size) memcpy(inside + sizeof head, f.bytes, f.size);
    size_t made = mutate(inside + sizeof head, f.size, room, depth - 1);
    size_t tag = put_varint(head, f.number << 3 | PB_BYTES), len = tag + put_varint(head + tag, made);
    memcpy(inside + sizeof head - len, head, len);
    size = splice(data, size, max, at, end, inside + sizeof head - len, len + made);
    free(inside);
    return size;
}

size_t protobuf_mutate(uint8_t *data, size_t size, size_t max) { return mutate(data, size, max, DEEPEST); }
