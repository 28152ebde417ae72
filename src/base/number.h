/* Numbers and characters as text, the same in every locale: a program that uses the library may have called setlocale,
 * after which the C library reads "0.5" as 0 and writes "0,5". tools/checksrc.py refuses the C library's own functions.
 *
 *     const char *end;
 *     double v = parse_double("0.5 * x", &end);        0.5, end at " * x"
 *     text_printf(line, sizeof line, "%.3g", v);       as snprintf
 *     buf_printf, arena_printf, fail and within go the same way.
 */
#ifndef QKV_BASE_NUMBER_H
#define QKV_BASE_NUMBER_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* As strtod and strtoll of base 10; end may be NULL. */
double parse_double(const char *text, const char **end);
int64_t parse_int(const char *text, const char **end); /* too large: INT64_MAX or INT64_MIN, and errno is ERANGE */

int text_printf(char *out, size_t size, const char *fmt, ...) QKV_PRINTF(3, 4);
int text_vprintf(char *out, size_t size, const char *fmt, va_list ap) QKV_PRINTF(3, 0);

enum { DOUBLE_TEXT = 40 };
/* The least digits that read back as v: "0.1", "1e+30"; "inf", "-inf", "nan" (a NaN's sign does not count). */
void print_double(char out[DOUBLE_TEXT], double v);

/* Characters: ASCII, everything else is none of these. */
static inline bool is_digit(int c) { return c >= '0' && c <= '9'; }
static inline bool is_upper(int c) { return c >= 'A' && c <= 'Z'; }
static inline bool is_alpha(int c) { return is_upper(c) || (c >= 'a' && c <= 'z'); }
static inline bool is_alnum(int c) { return is_alpha(c) || is_digit(c); }
static inline bool is_space(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static inline int to_lower(int c) { return is_upper(c) ? c + ('a' - 'A') : c; }
/* Bytes of the UTF-8 character at text, 0 where there is none (overlong forms, surrogates, above U+10FFFF). */
int utf8_length(const char *text);
bool same_word(const char *a, const char *b); /* equal but for the case of ASCII letters */
#endif
