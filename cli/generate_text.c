/* Text as tokens arrive. Contract in generate.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "generate.h"

/* How many bytes at the end could be the beginning of a stop string. */
static size_t may_stop(const Shown *s)
{
    size_t most = 0;
    for (int i = 0; i < s->stop->n; i++) {
        size_t n = strlen(s->stop->item[i]);
        for (size_t k = n ? n - 1 : 0; k > most; k--)
            if (k <= s->size && !memcmp(s->text + s->size - k, s->stop->item[i], k)) most = k;
    }
    return most;
}

/* Bytes of the UTF-8 character at p, or of what is there instead of one: as many as could begin one, at least 1. */
static size_t character(const char *p, size_t size, bool *whole)
{
    const unsigned char *c = (const unsigned char *)p;
    size_t n = c[0] >= 0xF0 ? 4 : c[0] >= 0xE0 ? 3 : c[0] >= 0xC0 ? 2 : 1, k = 1;
    *whole = c[0] < 0x80;
    if (*whole || c[0] < 0xC2 || c[0] > 0xF4) return 1;
    unsigned char low = c[0] == 0xE0   ? 0xA0
                        : c[0] == 0xF0 ? 0x90
                                       : 0x80,
                  high = c[0] == 0xED   ? 0x9F
                         : c[0] == 0xF4 ? 0x8F
                                        : 0xBF;
    for (; k < n && k < size && c[k] >= low && c[k] <= high; k++) {
        low = 0x80;
        high = 0xBF;
    }
    *whole = k == n;
    return k;
}

/* How many bytes at the end are the beginning of a character. */
static size_t part_of_character(const char *text, size_t size)
{
    bool whole;
    for (size_t k = size < 3 ? size : 3; k; k--)
        if ((text[size - k] & 0xC0) == 0xC0 && character(text + size - k, k, &whole) == k && !whole) return k;
    return 0;
}

/* U+FFFD for each part that is not UTF-8. To be freed. */
static char *readable(const char *text, size_t size)
{
    char *out = must(malloc(3 * size + 1));
    size_t n = 0;
    bool whole;
    for (size_t at = 0, k; at < size; at += k) {
        k = character(text + at, size - at, &whole);
        memcpy(out + n, whole ? text + at : "\xef\xbf\xbd", whole ? k : 3);
        n += whole ? k : 3;
    }
    out[n] = 0;
    return out;
}

static void find_stop(Shown *s, size_t from)
{
    for (int i = 0; i < s->stop->n; i++) {
        size_t n = strlen(s->stop->item[i]), start = from > n ? from - n : 0;
        const char *at = n ? memmem(s->text + start, s->size - start, s->stop->item[i], n) : NULL;
        if (!at) continue;
        s->size = (size_t)(at - s->text);
        s->stopped = true;
    }
}

static void print_to(Shown *s, size_t end)
{
    if (end <= s->out) return;
    char *text = readable(s->text + s->out, end - s->out);
    show_speech("%s", text);
    fflush(stdout);
    free(text);
    s->out = end;
}

void shown_add(Shown *s, const char *bytes, size_t n)
{
    size_t from = s->size;
    if (s->size + n + 1 > s->cap) {
        s->cap = 2 * (s->size + n + 1);
        s->text = must(realloc(s->text, s->cap));
    }
    memcpy(s->text + s->size, bytes, n);
    s->size += n;
    find_stop(s, from);
    if (!s->stream) return;
    size_t held = s->stopped ? 0 : may_stop(s);
    print_to(s, s->size - held - part_of_character(s->text, s->size - held));
}

void shown_rest(Shown *s) { print_to(s, s->size); }
char *shown_text(const Shown *s) { return readable(s->text, s->size); }
void shown_free(Shown *s) { free(s->text); }
