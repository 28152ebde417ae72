/* Protobuf's wire format. Contract in proto.h. */
#include "format/proto.h"
#include <limits.h>
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"

/* ------------------------------------------------------------------ reading */

Pb pb_of(const void *bytes, uint64_t size)
{
    return (Pb){.p = bytes, .end = size ? (const uint8_t *)bytes + size : bytes, .start = bytes};
}
Pb pb_sub(const PbField *f)
{
    return (Pb){.p = f->bytes, .end = f->size ? f->bytes + f->size : f->bytes, .start = f->start};
}
uint64_t pb_offset(const PbField *f) { return (uint64_t)(f->bytes - f->start); }

static bool bad(Pb *m, const uint8_t *at, Err *err, const char *what)
{
    m->bad = true;
    return fail(err, E_FORMAT, "byte %llu: %s", (unsigned long long)(at - m->start), what);
}

static bool varint(Pb *m, uint64_t *v, Err *err)
{
    const uint8_t *at = m->p;
    *v = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (m->p == m->end) return bad(m, at, err, "a number that the end of its message cuts off");
        uint8_t b = *m->p++;
        if (shift == 63 && b > 1)
            return bad(m, at, err, b & 0x80 ? "a number of more than 10 bytes" : "a number of more than 64 bits");
        *v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return true;
    }
}

static bool fixed(Pb *m, size_t n, uint64_t *v, Err *err)
{
    *v = 0;
    if ((size_t)(m->end - m->p) < n) return bad(m, m->p, err, "a number that the end of its message cuts off");
    for (size_t i = 0; i < n; i++) *v |= (uint64_t)m->p[i] << 8 * i;
    m->p += n;
    return true;
}

static bool length(Pb *m, PbField *f, Err *err)
{
    const uint8_t *at = m->p;
    TRY(varint(m, &f->size, err));
    uint64_t rest = (uint64_t)(m->end - m->p);
    if (f->size > rest) {
        m->bad = true;
        return fail(err, E_FORMAT, "byte %llu: field %u declares %llu bytes, %llu are left",
                    (unsigned long long)(at - m->start), f->number, (unsigned long long)f->size,
                    (unsigned long long)rest);
    }
    f->bytes = m->p;
    if (f->size) m->p += f->size;
    return true;
}

bool pb_next(Pb *m, PbField *f, Err *err)
{
    uint64_t tag;
    const uint8_t *at = m->p;
    if (m->bad || m->p == m->end) return false;
    *f = (PbField){.start = m->start, .bytes = at};
    TRY(varint(m, &tag, err));
    if (tag >> 3 == 0 || tag >> 32)
        return bad(m, at, err, tag >> 3 ? "a field number above 2^29 - 1" : "field number 0, which does not exist");
    f->number = (uint32_t)(tag >> 3);
    f->wire = (PbWire)(tag & 7);
    switch (f->wire) {
    case PB_VARINT: return varint(m, &f->value, err);
    case PB_FIXED64: return fixed(m, 8, &f->value, err);
    case PB_FIXED32: return fixed(m, 4, &f->value, err);
    case PB_BYTES: return length(m, f, err);
    case PB_GROUP:
    case PB_GROUP_END: return bad(m, at, err, "a group, which no field of this format is");
    }
    return bad(m, at, err, "a wire type that does not exist");
}

static const char *wire_name(PbWire w)
{
    return w == PB_VARINT    ? "a varint"
           : w == PB_BYTES   ? "bytes with a length"
           : w == PB_FIXED32 ? "4 bytes"
                             : "8 bytes";
}

static bool want(const PbField *f, PbWire wire, Err *err)
{
    if (f->wire == wire) return true;
    return fail(err, E_FORMAT, "byte %llu: field %u is %s, expected %s", (unsigned long long)pb_offset(f), f->number,
                wire_name(f->wire), wire_name(wire));
}

bool pb_int(const PbField *f, int64_t *v, Err *err)
{
    TRY(want(f, PB_VARINT, err));
    *v = (int64_t)f->value;
    return true;
}

bool pb_int32(const PbField *f, int *v, Err *err)
{
    TRY(want(f, PB_VARINT, err));
    *v = (int)(uint32_t)f->value;
    return true;
}

bool pb_float(const PbField *f, float *v, Err *err)
{
    uint32_t bits = (uint32_t)f->value;
    TRY(want(f, PB_FIXED32, err));
    memcpy(v, &bits, 4);
    return true;
}

bool pb_want_bytes(const PbField *f, Err *err) { return want(f, PB_BYTES, err); }

bool pb_count(const PbField *f, PbWire wire, uint64_t *n, Err *err)
{
    *n = 1;
    if (f->wire != PB_BYTES) return want(f, wire, err);
    uint64_t size = wire == PB_FIXED32 ? 4 : 8;
    if (wire != PB_VARINT) {
        *n = f->size / size;
        return f->size % size == 0 ||
               fail(err, E_FORMAT, "byte %llu: field %u has %llu bytes, not a multiple of %llu",
                    (unsigned long long)pb_offset(f), f->number, (unsigned long long)f->size, (unsigned long long)size);
    }
    *n = 0; /* every number ends with a byte below 128 */
    for (uint64_t i = 0; i < f->size; i++) *n += f->bytes[i] < 0x80;
    return true;
}

bool pb_numbers(const PbField *f, PbWire wire, int width, void *out, uint64_t *n, Err *err)
{
    uint8_t *to = (uint8_t *)out + *n * (uint64_t)width;
    if (f->wire != PB_BYTES) {
        TRY(want(f, wire, err));
        memcpy(to, &f->value, (size_t)width);
        ++*n;
        return true;
    }
    if (wire == PB_VARINT) {
        uint64_t v;
        for (Pb m = pb_sub(f); m.p != m.end; to += width, ++*n) {
            TRY(varint(&m, &v, err));
            memcpy(to, &v, (size_t)width);
        }
        return true;
    }
    if (f->size) memcpy(to, f->bytes, f->size); /* fixed numbers are kept as wide as they are: width is 4 or 8 */
    *n += f->size / (uint64_t)width;
    return true;
}

bool pb_tally(Pb m, uint32_t *times, uint32_t count, Err *err)
{
    memset(times, 0, count * sizeof *times);
    for (PbField f; pb_next(&m, &f, err);)
        if (f.number < count && ++times[f.number] == INT32_MAX)
            return fail(err, E_LIMIT, "field %u occurs more than 2^31 times", f.number);
    return !m.bad;
}

/* ------------------------------------------------------------------ writing */

static void flush(PbWriter *w)
{
    if (w->used && !w->failed && !w->sink(w->user, w->buffer, w->used, w->err)) w->failed = true;
    w->used = 0;
}

void pb_raw(PbWriter *w, const void *bytes, uint64_t n)
{
    w->total += n;
    if (!w->writing || !n || w->failed) return;
    if (n > sizeof w->buffer - w->used) flush(w);
    if (n > sizeof w->buffer) {
        if (!w->failed && !w->sink(w->user, bytes, n, w->err)) w->failed = true;
        return;
    }
    memcpy(w->buffer + w->used, bytes, n);
    w->used += n;
}

static void put_varint(PbWriter *w, uint64_t v)
{
    uint8_t b[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) b[n++] = (uint8_t)(v | 0x80);
    b[n++] = (uint8_t)v;
    pb_raw(w, b, n);
}

static void put_tag(PbWriter *w, uint32_t number, PbWire wire)
{
    put_varint(w, (uint64_t)number << 3 | (uint64_t)wire);
}

void pb_put_int(PbWriter *w, uint32_t number, int64_t v)
{
    put_tag(w, number, PB_VARINT);
    put_varint(w, (uint64_t)v);
}

void pb_put_float(PbWriter *w, uint32_t number, float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    uint8_t b[4] = {(uint8_t)u, (uint8_t)(u >> 8), (uint8_t)(u >> 16), (uint8_t)(u >> 24)};
    put_tag(w, number, PB_FIXED32);
    pb_raw(w, b, 4);
}

void pb_put_head(PbWriter *w, uint32_t number, uint64_t n)
{
    put_tag(w, number, PB_BYTES);
    put_varint(w, n);
}

void pb_put_bytes(PbWriter *w, uint32_t number, const void *bytes, uint64_t n)
{
    pb_put_head(w, number, n);
    pb_raw(w, bytes, n);
}

void pb_put_string(PbWriter *w, uint32_t number, const char *s) { pb_put_bytes(w, number, s, strlen(s)); }

static size_t new_slot(PbWriter *w)
{
    uint64_t *grown = w->n < INT_MAX ? vec_grow(w->length, (int)w->n, sizeof *grown) : NULL;
    if (!grown) {
        w->failed = true;
        return SIZE_MAX;
    }
    w->length = grown;
    return w->n++;
}

PbMark pb_begin(PbWriter *w, uint32_t number)
{
    put_tag(w, number, PB_BYTES);
    size_t slot = w->writing ? w->next++ : new_slot(w);
    if (w->writing && !w->failed) put_varint(w, w->length[slot]);
    return (PbMark){slot, w->total};
}

void pb_end(PbWriter *w, PbMark m)
{
    if (w->writing || w->failed) return;
    w->length[m.slot] = w->total - m.start;
    put_varint(w, w->length[m.slot]);
}

void pb_write_to(PbWriter *w, PbSink *sink, void *user, Err *err)
{
    w->writing = true;
    w->sink = sink;
    w->user = user;
    w->err = err;
    w->total = 0;
    if (w->failed) oom(err);
}

bool pb_finish(PbWriter *w)
{
    flush(w);
    pb_drop(w);
    return !w->failed;
}

void pb_drop(PbWriter *w)
{
    mem_free(w->length);
    w->length = NULL;
}
