/* Protobuf's wire format, read in place and written in one pass; no schema, no allocation while reading.
 *
 *     Pb m = pb_of(bytes, size);
 *     for (PbField f; pb_next(&m, &f, err);)
 *         switch (f.number) {
 *         case 1: TRY(pb_int(&f, &version, err)); break;
 *         case 7: TRY(read_graph(&graph, pb_sub(&f), err)); break;    f.bytes of f.size, inside m
 *         }
 *     if (m.bad) return false;
 *
 * A field's number is 1 to 2^29 - 1, a varint has at most 10 bytes and 64 bits, a length is inside its message; groups
 * are refused. Fields that are not asked for are skipped by being ignored. Errors are E_FORMAT and begin with "byte N",
 * N counted from the file's start.
 *
 * Writing calls the same function twice: lengths come before what they measure, so that the first call counts and the
 * second one writes.
 *
 *     PbWriter w = {0};
 *     write_model(&w, model);                    counts: w.total
 *     pb_write_to(&w, sink, user);
 *     write_model(&w, model);                    writes
 *     bool ok = pb_finish(&w);
 */
#ifndef QKV_FORMAT_PROTO_H
#define QKV_FORMAT_PROTO_H
#include <stdint.h>
#include "base/err.h"

/* ------------------------------------------------------------------ reading */

typedef enum PbWire { PB_VARINT, PB_FIXED64, PB_BYTES, PB_GROUP, PB_GROUP_END, PB_FIXED32 } PbWire;

typedef struct Pb {
    const uint8_t *p, *end, *start; /* start: of the file, for offsets */
    bool bad;                       /* pb_next failed */
} Pb;

typedef struct PbField {
    uint32_t number;
    PbWire wire;
    uint64_t value;               /* PB_VARINT, PB_FIXED32, PB_FIXED64: the bits */
    const uint8_t *bytes, *start; /* PB_BYTES */
    uint64_t size;
} PbField;

Pb pb_of(const void *bytes, uint64_t size);
/* The next field; false at the end, and when the bytes are wrong (m->bad). */
bool pb_next(Pb *m, PbField *f, Err *err);
Pb pb_sub(const PbField *f);
uint64_t pb_offset(const PbField *f); /* of its value, from the file's start */

/* A field's value, if its wire type fits. */
bool pb_int(const PbField *f, int64_t *v, Err *err);
bool pb_int32(const PbField *f, int *v, Err *err); /* the low 32 bits, as protobuf reads an int32 */
bool pb_float(const PbField *f, float *v, Err *err);
bool pb_want_bytes(const PbField *f, Err *err);
/* How many numbers a field of a repeated number holds: packed ones many, else one.
 * wire: how a single one is written. */
bool pb_count(const PbField *f, PbWire wire, uint64_t *n, Err *err);
/* Appends them to `out` from *n on, each with `width` bytes (1, 2, 4, 8: low bytes first). There must be room. */
bool pb_numbers(const PbField *f, PbWire wire, int width, void *out, uint64_t *n, Err *err);
/* How often each field below `count` occurs in m, and that every field of m can be read; below 2^31 times each. */
bool pb_tally(Pb m, uint32_t *times, uint32_t count, Err *err);

/* ------------------------------------------------------------------ writing */

typedef bool PbSink(void *user, const void *bytes, size_t n, Err *err);

typedef struct PbWriter {
    uint64_t total;   /* bytes so far */
    uint64_t *length; /* of every message, in the order of their beginnings */
    size_t n, next;
    bool writing, failed;
    PbSink *sink;
    void *user;
    Err *err;
    uint8_t buffer[4096];
    size_t used;
} PbWriter;

void pb_put_int(PbWriter *w, uint32_t number, int64_t v);
void pb_put_float(PbWriter *w, uint32_t number, float v);
void pb_put_bytes(PbWriter *w, uint32_t number, const void *bytes, uint64_t n);
void pb_put_string(PbWriter *w, uint32_t number, const char *s);
/* Bytes that come in pieces: the head, then pb_raw until n are there. */
void pb_put_head(PbWriter *w, uint32_t number, uint64_t n);
void pb_raw(PbWriter *w, const void *bytes, uint64_t n);
/* A message in a message. Gives what pb_end wants. */
typedef struct PbMark {
    size_t slot;
    uint64_t start;
} PbMark;
PbMark pb_begin(PbWriter *w, uint32_t number);
void pb_end(PbWriter *w, PbMark m);
/* From counting to writing. err hears of what the sink says. */
void pb_write_to(PbWriter *w, PbSink *sink, void *user, Err *err);
bool pb_finish(PbWriter *w); /* flushes, frees; false when anything failed (out of memory: E_LIMIT) */
void pb_drop(PbWriter *w);   /* frees after counting alone */
#endif
