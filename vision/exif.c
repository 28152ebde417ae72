/* EXIF's orientation. Contract in exif.h. */
#include "vision/exif.h"
#include <stdbool.h>
#include <string.h>

enum {
    APP1 = 0xE1,
    SOS = 0xDA,
    EOI = 0xD9,
    TEM = 0x01,
    RST0 = 0xD0,
    RST7 = 0xD7,
    TAG_ORIENTATION = 0x0112,
    TYPE_BYTE = 1,
    TYPE_SHORT = 3,
    TYPE_LONG = 4
};

static uint32_t u16(const uint8_t *p, bool little)
{
    return little ? p[0] | (uint32_t)p[1] << 8 : (uint32_t)p[0] << 8 | p[1];
}
static uint32_t u32(const uint8_t *p, bool little)
{
    return little ? u16(p, true) | u16(p + 2, true) << 16 : u16(p, false) << 16 | u16(p + 2, false);
}

/* The tag in the first directory of a TIFF file of n bytes. */
static uint32_t tiff_orientation(const uint8_t *p, size_t n)
{
    if (n < 8 || (memcmp(p, "II*\0", 4) && memcmp(p, "MM\0*", 4))) return 1;
    bool little = p[0] == 'I';
    size_t at = u32(p + 4, little);
    if (at > n || n - at < 2) return 1;
    uint32_t entries = u16(p + at, little), found = 1;
    for (at += 2; entries-- > 0 && n - at >= 12; at += 12) { /* tag, type, count, value or where it is */
        const uint8_t *e = p + at, *value = e + 8;
        if (u16(e, little) != TAG_ORIENTATION || u32(e + 4, little) != 1) continue;
        uint32_t type = u16(e + 2, little);
        found = type == TYPE_SHORT  ? u16(value, little)
                : type == TYPE_LONG ? u32(value, little)
                : type == TYPE_BYTE ? value[0]
                                    : found;
    }
    return found;
}

int exif_orientation(const uint8_t *p, size_t n)
{
    for (size_t at = 2; n >= 4 && at <= n - 4 && p[at] == 0xFF;) {
        uint8_t marker = p[at + 1];
        if (marker == 0xFF) { /* fill */
            at++;
            continue;
        }
        if (marker == SOS || marker == EOI) break;
        if (marker == TEM || (marker >= RST0 && marker <= RST7)) {
            at += 2;
            continue;
        }
        size_t length = u16(p + at + 2, false); /* of itself and what follows */
        if (length < 2 || length > n - at - 2) break;
        if (marker == APP1 && length >= 8 && !memcmp(p + at + 4, "Exif\0\0", 6)) {
            uint32_t o = tiff_orientation(p + at + 10, length - 8);
            return o >= 1 && o <= 8 ? (int)o : 1;
        }
        at += 2 + length;
    }
    return 1;
}
