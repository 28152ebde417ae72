/* Characters that a terminal or a page obeys, hides, or writes in another order: names of a model may hold them, and
 * whoever prints names writes them out as \x1b or \u202e. Data alone, which the command shares. */
#ifndef QKV_BASE_HIDDEN_H
#define QKV_BASE_HIDDEN_H
#include <stddef.h>

/* The character at s, of n bytes of UTF-8, if it is one of these, else 0; n = 0: the byte there, which is not UTF-8. */
static inline unsigned hidden_at(const char *s, int n)
{
    static const struct {
        unsigned from, to;
    } hidden[] = {{0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},   {0x115f, 0x1160},   {0x180e, 0x180e},
                  {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},   {0x3164, 0x3164},
                  {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff9, 0xfffb}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
    const unsigned char *p = (const unsigned char *)s;
    unsigned c = n < 2 ? p[0] : p[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) c = c << 6 | (p[i] & 0x3fu);
    for (size_t i = 0; n && i < sizeof hidden / sizeof *hidden; i++)
        if (c >= hidden[i].from && c <= hidden[i].to) return c ? c : 1;
    return n ? 0 : c;
}
#endif
