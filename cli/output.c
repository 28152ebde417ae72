/* Numbers, shapes and JSON as the commands print them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

/* ------------------------------------------------------------------ tensors */

int64_t tensor_count(const qkv_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

static double from_f16(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 ? -v : v;
}

static double from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* A float of at most 8 bits: sign, exponent, fraction. nan, infinity: codes without the sign; 256 when there is none.
 * */
static double small_float(unsigned code, int exponent_bits, int fraction_bits, int bias, unsigned nan,
                          unsigned infinity)
{
    unsigned top = 1u << (exponent_bits + fraction_bits), sign = code & top,
             fraction = code & ((1u << fraction_bits) - 1);
    int exponent = (int)((code & (top - 1)) >> fraction_bits);
    double v = ldexp(exponent ? (double)(fraction + (1u << fraction_bits)) : fraction,
                     (exponent ? exponent : 1) - bias - fraction_bits);
    if (code == nan || (infinity < 256 && (code & (top - 1)) > infinity) || (nan == 0x7f && (code & 0x7f) == nan))
        return NAN;
    if ((code & (top - 1)) == infinity) v = INFINITY;
    return sign ? -v : v;
}

int64_t tensor_once(qkv_tensor *t, int64_t shape[])
{
    int64_t times = 1;
    for (int i = 0; i < t->rank; i++) {
        bool repeats = t->strides && !t->strides[i] && t->shape[i] > 1;
        shape[i] = repeats ? 1 : t->shape[i];
        times *= repeats ? t->shape[i] : 1;
    }
    t->shape = shape;
    return times;
}

double tensor_number(const qkv_tensor *t, int64_t flat)
{
    int64_t at = 0, step = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        at += flat % t->shape[i] * (t->strides ? t->strides[i] : step);
        flat /= t->shape[i];
        step *= t->shape[i];
    }
    const void *p = t->data;
    switch (t->dtype) {
    case QKV_F32: return (double)((const float *)p)[at];
    case QKV_F64: return ((const double *)p)[at];
    case QKV_F16: return from_f16(((const uint16_t *)p)[at]);
    case QKV_BF16: return from_bf16(((const uint16_t *)p)[at]);
    case QKV_I64: return (double)((const int64_t *)p)[at];
    case QKV_I32: return ((const int32_t *)p)[at];
    case QKV_I16: return ((const int16_t *)p)[at];
    case QKV_I8:
    case QKV_I4:
    case QKV_I2: return ((const int8_t *)p)[at];
    case QKV_U8:
    case QKV_BOOL:
    case QKV_U4:
    case QKV_U2: return ((const uint8_t *)p)[at];
    case QKV_U16: return ((const uint16_t *)p)[at];
    case QKV_U32: return ((const uint32_t *)p)[at];
    case QKV_U64: return (double)((const uint64_t *)p)[at];
    case QKV_F8E4M3: return small_float(((const uint8_t *)p)[at], 4, 3, 7, 0x7f, 256);
    case QKV_F8E5M2: return small_float(((const uint8_t *)p)[at], 5, 2, 15, 256, 0x7c);
    case QKV_F8E4M3FNUZ: return small_float(((const uint8_t *)p)[at], 4, 3, 8, 0x80, 256);
    case QKV_F8E5M2FNUZ: return small_float(((const uint8_t *)p)[at], 5, 2, 16, 0x80, 256);
    case QKV_F8E8M0: return ((const uint8_t *)p)[at] == 0xff ? NAN : ldexp(1, ((const uint8_t *)p)[at] - 127);
    case QKV_F4E2M1: return small_float(((const uint8_t *)p)[at], 2, 1, 1, 256, 256);
    case QKV_C32: return hypot(from_f16(((const uint16_t *)p)[2 * at]), from_f16(((const uint16_t *)p)[2 * at + 1]));
    case QKV_C64: return hypot(((const float *)p)[2 * at], ((const float *)p)[2 * at + 1]);
    case QKV_C128: return hypot(((const double *)p)[2 * at], ((const double *)p)[2 * at + 1]);
    default: return NAN;
    }
}

bool tensor_put(const qkv_tensor *t, int64_t flat, int64_t v)
{
    switch (t->dtype) {
    case QKV_F32: ((float *)t->data)[flat] = (float)v; return true;
    case QKV_F64: ((double *)t->data)[flat] = (double)v; return true;
    case QKV_I64: ((int64_t *)t->data)[flat] = v; return true;
    case QKV_I32: ((int32_t *)t->data)[flat] = (int32_t)v; return true;
    case QKV_BOOL:
    case QKV_U8: ((uint8_t *)t->data)[flat] = (uint8_t)v; return true;
    default: return false;
    }
}

static char *numbers_text(const int64_t *v, int n, char *buf, size_t size)
{
    size_t at = (size_t)snprintf(buf, size, "(");
    for (int i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%lld", i ? ", " : "", (long long)v[i]);
    if (at < size) snprintf(buf + at, size - at, "%s", n == 1 ? ",)" : ")");
    return buf;
}

char *shape_text(const qkv_tensor *t, char *buf, size_t size) { return numbers_text(t->shape, t->rank, buf, size); }

static void index_of(const qkv_tensor *t, int64_t flat, int64_t *at)
{
    for (int i = t->rank - 1; i >= 0; i--) {
        at[i] = flat % t->shape[i];
        flat /= t->shape[i];
    }
}

char *index_text(const qkv_tensor *t, int64_t flat, char *buf, size_t size)
{
    int64_t at[QKV_MAX_RANK] = {0};
    index_of(t, flat, at);
    return numbers_text(at, t->rank, buf, size);
}

char *count_text(int64_t n, char *buf, size_t size)
{
    char digits[32];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    size_t at = 0;
    for (int i = 0; i < len && at + 2 < size; i++) {
        if (i && (len - i) % 3 == 0 && digits[i - 1] != '-') buf[at++] = ' ';
        buf[at++] = digits[i];
    }
    buf[at] = 0;
    return buf;
}

char *bytes_text(double bytes, char *buf, size_t size)
{
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (; bytes >= 1024 && u < 4; u++) bytes /= 1024;
    snprintf(buf, size, u ? "%.1f %s" : "%.0f %s", bytes, unit[u]);
    return buf;
}

/* ------------------------------------------------------------------ JSON */

int utf8_bytes(const unsigned char *s)
{
    int n = s[0] < 0x80                   ? 1
            : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
            : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
            : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                          : 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
               (s[0] == 0xf4 && s[1] > 0x8f);
    return bad ? 0 : n;
}

void utf8_clean(char *s)
{
    while (*s) {
        int n = utf8_bytes((const unsigned char *)s);
        if (!n) *s = '?';
        s += n ? n : 1;
    }
}

const char *text_at(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

json_t *json_text(const char *s)
{
    if (!s) return json_null();
    char *copy = must(strdup(s));
    utf8_clean(copy);
    json_t *j = json_string(copy);
    free(copy);
    return j;
}

json_t *json_number(double v)
{
    if (isnan(v)) return json_string("NaN");
    if (isinf(v)) return json_string(v > 0 ? "Infinity" : "-Infinity");
    return json_real(v);
}

static json_t *json_integers(const int64_t *v, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(a, json_integer(v[i]));
    return a;
}

json_t *json_shape(const qkv_tensor *t) { return json_integers(t->shape, t->rank); }

json_t *json_index(const qkv_tensor *t, int64_t flat)
{
    int64_t at[QKV_MAX_RANK] = {0};
    index_of(t, flat, at);
    return json_integers(at, t->rank);
}
