/* Text before CLIP's tokenizers split it. Contract in clip_text.h. The steps are those of ftfy 6.3 (fixes.py,
 * chardata.py), of Python's html module (html/__init__.py) and of str.lower().
 */
#include "vision/clip_text.h"
#include <string.h>
#include <utf8proc.h>
#include "base/mem.h"

typedef utf8proc_int32_t Char;

static void put(Buf *b, Char c)
{
    utf8proc_uint8_t bytes[4];
    buf_add(b, bytes, (size_t)utf8proc_encode_char(c, bytes));
}

/* The character at p and its length. */
static Char next(const char *p, size_t left, size_t *n)
{
    Char c;
    utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)left, &c);
    *n = k > 0 ? (size_t)k : 1;
    return k > 0 ? c : 0xFFFD;
}

static bool is_white(Char c) /* White_Space of the Unicode character database */
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

ClipClass clip_class(const char *text, size_t n, size_t *length)
{
    Char c = next(text, n, length);
    utf8proc_category_t k = utf8proc_category(c);
    if (is_white(c)) return CLIP_SPACE;
    if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) return CLIP_LETTER;
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO ? CLIP_NUMBER : CLIP_OTHER;
}

/* U+0080 to U+009F, which no text means, are taken for the characters of Windows-1252 there,
 * by html.unescape and by ftfy. */
static const uint16_t windows[32] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                     0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                     0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                     0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

/* ------------------------------------------------------------------ entities */

typedef struct Entity {
    const char *name, *text;
} Entity;
static const Entity entities[] = {
#define E(name, text) {name, text},
#include "vision/html_entities.def"
#undef E
};

static const char *entity(const char *name, size_t n)
{
    size_t lo = 0, hi = sizeof entities / sizeof *entities;
    while (lo < hi) {
        size_t at = (lo + hi) / 2;
        int d = strncmp(entities[at].name, name, n);
        if (!d && !entities[at].name[n]) return entities[at].text;
        if (d < 0) lo = at + 1;
        else hi = at; /* also where it is longer than `name`: it sorts after it */
    }
    return NULL;
}

/* "&#...": the length of it, 0 when it is none; *c is what it stands for, -1 for nothing (html.unescape). */
static size_t number(const char *p, size_t left, Char *c)
{
    bool hex = left > 2 && (p[2] | 0x20) == 'x';
    size_t first = hex ? 3 : 2, at = first;
    int32_t v = 0;
    for (; at < left; at++) {
        char d = (char)(p[at] | 0x20);
        int digit = p[at] >= '0' && p[at] <= '9' ? p[at] - '0' : hex && d >= 'a' && d <= 'f' ? d - 'a' + 10 : -1;
        if (digit < 0) break;
        if (v <= 0x10FFFF) v = v * (hex ? 16 : 10) + digit;
    }
    if (at == first) return 0;
    at += at < left && p[at] == ';';
    *c = v;
    if (v == 0 || (v >= 0xD800 && v <= 0xDFFF) || v > 0x10FFFF) *c = 0xFFFD;
    else if (v >= 0x80 && v <= 0x9F) *c = windows[v - 0x80];
    else if (v < 9 || v == 11 || (v >= 14 && v < 32) || v == 127 || (v >= 0xFDD0 && v <= 0xFDEF) ||
             (v & 0xFFFE) == 0xFFFE)
        *c = -1;
    return at;
}

/* html.unescape; careful: only what ends in ';', and of names only whole ones (ftfy's unescape_html). */
static void unescape(const char *p, size_t left, bool careful, Buf *out)
{
    while (left) {
        size_t plain = 0, used = 0;
        while (plain < left && p[plain] != '&') plain++;
        buf_add(out, p, plain);
        p += plain;
        left -= plain;
        if (!left) return;
        Char c = -1;
        const char *text = NULL;
        if (left > 2 && p[1] == '#') used = number(p, left, &c);
        else {
            size_t run = 1, most;
            while (run < left && run <= 32 &&
                   ((p[run] >= '0' && p[run] <= '9') || ((p[run] | 0x20) >= 'a' && (p[run] | 0x20) <= 'z')))
                run++;
            most = run - 1 + (run < left && p[run] == ';');
            for (size_t n = most; n >= 2 && !text && (n == most || !careful); n--)
                if ((text = entity(p + 1, n))) used = n + 1;
        }
        if (used && careful && p[used - 1] != ';') used = 0;
        if (used && text) buf_puts(out, text);
        else if (used && c >= 0) put(out, c);
        if (!used) buf_add(out, p, used = 1);
        p += used;
        left -= used;
    }
}

/* ------------------------------------------------------------------ single characters */

static const struct {
    Char c;
    const char *text;
} ligatures[] = {
    {0x132, "IJ"},        {0x133, "ij"},        {0x149, "\xca\xbcn"},  {0x1F1, "DZ"},  {0x1F2, "Dz"},  {0x1F3, "dz"},
    {0x1C4, "D\xc5\xbd"}, {0x1C5, "D\xc5\xbe"}, {0x1C6, "d\xc5\xbe"},  {0x1C7, "LJ"},  {0x1C8, "Lj"},  {0x1C9, "lj"},
    {0x1CA, "NJ"},        {0x1CB, "Nj"},        {0x1CC, "nj"},         {0xFB00, "ff"}, {0xFB01, "fi"}, {0xFB02, "fl"},
    {0xFB03, "ffi"},      {0xFB04, "ffl"},      {0xFB05, "\xc5\xbft"}, {0xFB06, "st"},
};

static bool is_dropped(Char c) /* ftfy's control characters; the whitespace among them stays */
{
    return c < 9 || c == 11 || (c >= 14 && c < 32) || c == 127 || (c >= 0x206A && c <= 0x206F) || c == 0xFEFF ||
           (c >= 0xFFF9 && c <= 0xFFFC);
}

static void fix_char(Char c, Buf *out)
{
    for (size_t i = 0; i < sizeof ligatures / sizeof *ligatures; i++) {
        if (ligatures[i].c != c) continue;
        const char *text = ligatures[i].text;
        if (c == 0x149) buf_puts(out, "'n"); /* its first character is a quote of the next step */
        else buf_puts(out, text);
        return;
    }
    if (c >= 0x80 && c <= 0x9F) c = windows[c - 0x80];
    if (c == 0x3000) c = ' ';
    if (c == 0x2BC || (c >= 0x2018 && c <= 0x201B)) c = '\'';
    if (c >= 0x201C && c <= 0x201F) c = '"';
    if (is_dropped(c)) return;
    if (c < 0xFF01 || c > 0xFFEF) {
        put(out, c);
        return;
    }
    Char wide[8];
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, wide, 8, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, &last);
    for (utf8proc_ssize_t i = 0; i < n && i < 8; i++) put(out, wide[i]);
}

static bool compose(Buf *b, Err *err)
{
    utf8proc_uint8_t *text = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)b->data, (utf8proc_ssize_t)b->len, &text,
                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0) return fail(err, n == UTF8PROC_ERROR_NOMEM ? E_LIMIT : E_FORMAT, "%s", utf8proc_errmsg(n));
    b->len = 0;
    buf_add(b, text, (size_t)n);
    mem_free_c(text);
    return true;
}

/* ------------------------------------------------------------------ lower case */

static bool is_cased(Char c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

static bool is_passed_over(Char c) /* Case_Ignorable */
{
    static const uint16_t marks[] = {'\'',   '.',    ':',    0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
                                     0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
    utf8proc_category_t k = utf8proc_category(c);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (c == marks[i]) return true;
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK;
}

/* A sigma at the end of a word (Final_Sigma, SpecialCasing.txt): after a cased letter (`inside`), before none. */
static bool word_ends(const char *p, size_t left)
{
    while (left) {
        size_t n;
        Char c = next(p, left, &n);
        if (is_cased(c)) return false;
        if (!is_passed_over(c)) return true;
        p += n;
        left -= n;
    }
    return true;
}

static void lower(const char *p, size_t left, ClipStyle style, Buf *out)
{
    bool inside = false;
    while (left) {
        size_t n;
        Char c = next(p, left, &n);
        p += n;
        left -= n;
        if (c == 0x130) buf_puts(out, "i\xcc\x87"); /* the one character whose lower case is two */
        else if (c == 0x3A3 && style == CLIP_META && inside && word_ends(p, left)) put(out, 0x3C2);
        else put(out, utf8proc_tolower(c));
        if (!is_passed_over(c)) inside = is_cased(c);
    }
}

bool clip_clean(const char *text, size_t n, ClipStyle style, Buf *out, Err *err)
{
    Buf a = {0}, b = {0};
    bool careful = style == CLIP_META && !memchr(text, '<', n);
    if (careful) {
        unescape(text, n, true, &b);
        text = b.len ? b.data : "";
        n = b.len;
    }
    for (size_t at = 0, k; at < n; at += k) {
        Char c = next(text + at, n - at, &k);
        if (style == CLIP_META) fix_char(c, &a);
        else put(&a, c);
    }
    bool whole = !a.len || a.failed || compose(&a, err);
    for (int i = 0; whole && style == CLIP_META && i < 2; i++) {
        b.len = 0;
        if (a.len) unescape(a.data, a.len, false, &b);
        Buf swap = a;
        a = b;
        b = swap;
    }
    if (whole && a.len) lower(a.data, a.len, style, out);
    bool room = !a.failed && !b.failed && !out->failed;
    buf_free(&a);
    buf_free(&b);
    return whole && (room || oom(err));
}
