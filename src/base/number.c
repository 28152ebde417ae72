#include "base/number.h"
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

static locale_t plain; /* the "C" locale; none where the system has no memory for it, and the program's locale stays */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make_plain(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* Puts this thread, no other, into the "C" locale; give what it returns to uselocale. */
static locale_t enter_plain(void)
{
    pthread_once(&once, make_plain);
    return uselocale(plain);
}

double parse_double(const char *text, const char **end)
{
    char *stop;
    locale_t before = enter_plain();
    double v = strtod(text, &stop);
    uselocale(before);
    if (end) *end = stop;
    return v;
}

int64_t parse_int(const char *text, const char **end)
{
    const char *at = text;
    int64_t v = 0;
    while (is_space(*at)) at++;
    bool minus = *at == '-';
    if (minus || *at == '+') at++;
    if (end) *end = is_digit(*at) ? at : text;
    for (bool fits = true; is_digit(*at); at++) {
        int digit = minus ? '0' - *at : *at - '0';
        fits = fits && !__builtin_mul_overflow(v, 10, &v) && !__builtin_add_overflow(v, digit, &v);
        if (end) *end = at + 1;
        if (fits) continue;
        v = minus ? INT64_MIN : INT64_MAX;
        errno = ERANGE;
    }
    return v;
}

int text_vprintf(char *out, size_t size, const char *fmt, va_list ap)
{
    locale_t before = enter_plain();
    int n = vsnprintf(out, size, fmt, ap);
    uselocale(before);
    return n;
}

int text_printf(char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = text_vprintf(out, size, fmt, ap);
    va_end(ap);
    return n;
}

static bool reads_back(char out[DOUBLE_TEXT], int digits, double v)
{
    snprintf(out, DOUBLE_TEXT, "%.*g", digits, v);
    return strtod(out, NULL) == v;
}

/* What reads back with some digits does with more, which are nearer; but not at a power of two, whose neighbours are
 * not equally near. */
void print_double(char out[DOUBLE_TEXT], double v)
{
    enum { MOST = 17 };
    locale_t before = enter_plain();
    int exponent, bad = 0, good = 1;
    if (isnan(v)) v = fabs(v);
    const bool power = fabs(frexp(v, &exponent)) == 0.5;
    while (good < MOST && !reads_back(out, good, v)) {
        bad = good;
        good += power ? 1 : good < MOST - good ? good : MOST - good;
    }
    while (good - bad > 1) {
        int middle = bad + (good - bad) / 2;
        if (reads_back(out, middle, v)) good = middle;
        else bad = middle;
    }
    snprintf(out, DOUBLE_TEXT, "%.*g", good, v);
    uselocale(before);
}

int utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return 1;
    int n = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
               (s[0] == 0xf4 && s[1] > 0x8f);
    return bad ? 0 : n;
}

bool same_word(const char *a, const char *b)
{
    while (*a && to_lower(*a) == to_lower(*b)) a++, b++;
    return to_lower(*a) == to_lower(*b);
}
