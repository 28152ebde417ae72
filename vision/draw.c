/* Overlays. Contract in draw.h. */
#include "vision/draw.h"
#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "base/mem.h"
#include "base/number.h"
#include "vision/font.h"

enum {
    LINE = FONT_HEIGHT + 1,
    LABEL = 9 /* dots from line to line; height of a score, which has no letters below the line */,
    CAPITAL = 7,
    REPLACEMENT = 0xFFFD
};

typedef struct Colour {
    uint8_t r, g, b;
} Colour;
/* Seven that people with colour blindness tell apart (Okabe and Ito 2008). */
static const Colour palette[] = {{230, 159, 0},   {86, 180, 233}, {0, 158, 115}, {240, 228, 66},
                                 {204, 121, 167}, {213, 94, 0},   {0, 114, 178}};
enum { COLOURS = sizeof palette / sizeof *palette };

static void dot(Image *im, int64_t x, int64_t y, Colour c)
{
    if (x < 0 || y < 0 || x >= im->width || y >= im->height) return;
    uint8_t *p = im->pixels + 3 * ((size_t)y * (size_t)im->width + (size_t)x);
    p[0] = c.r;
    p[1] = c.g;
    p[2] = c.b;
}

static int64_t within_picture(double v, int64_t most) { return v > 0 ? (v < (double)most ? (int64_t)v : most) : 0; }

static void fill(Image *im, int64_t x0, int64_t y0, int64_t x1, int64_t y1, Colour c)
{
    x0 = x0 > 0 ? x0 : 0;
    y0 = y0 > 0 ? y0 : 0;
    for (int64_t y = y0; y < y1 && y < im->height; y++)
        for (int64_t x = x0; x < x1 && x < im->width; x++) dot(im, x, y, c);
}

/* The next character, which is not the end; a byte that belongs to none is REPLACEMENT. */
static uint32_t next_letter(const char **at)
{
    const unsigned char *s = (const unsigned char *)*at;
    int more = *s < 0x80                 ? 0
               : *s >= 0xC2 && *s < 0xE0 ? 1
               : *s >= 0xE0 && *s < 0xF0 ? 2
               : *s >= 0xF0 && *s < 0xF5 ? 3
                                         : -1;
    uint32_t c = more < 0 ? REPLACEMENT : more == 0 ? *s : *s & (0x3Fu >> more);
    for (int k = 1; k <= more; k++) {
        if ((s[k] & 0xC0) != 0x80) {
            *at += k;
            return REPLACEMENT;
        }
        c = c << 6 | (s[k] & 0x3F);
    }
    *at += more < 0 ? 1 : more + 1;
    return c;
}

/* Accents that follow their letter, and what joins emoji: they are left out. */
static bool takes_no_room(uint32_t c)
{
    return (c >= 0x300 && c < 0x370) || (c >= 0x200B && c < 0x2010) || (c >= 0xFE00 && c < 0xFE10);
}

static uint64_t glyph_of(uint32_t c)
{
    uint64_t replacement = 0;
    for (size_t i = 0; i < sizeof font_range / sizeof *font_range; i++) {
        if (c >= font_range[i].first && c <= font_range[i].last) {
            uint64_t g = font_glyph[font_range[i].at + c - font_range[i].first];
            if (g || c == ' ' || c == 0xA0) return g;
        }
        if (font_range[i].first == REPLACEMENT) replacement = font_glyph[font_range[i].at];
    }
    return replacement;
}

static int letters(const char *s)
{
    int n = 0;
    while (*s) n += !takes_no_room(next_letter(&s));
    return n;
}

static void write_text(Image *im, int64_t x, int64_t y, int scale, const char *s, Colour c)
{
    while (*s) {
        uint32_t letter = next_letter(&s);
        if (takes_no_room(letter)) continue;
        uint64_t glyph = glyph_of(letter);
        for (int k = 0; glyph; k++, glyph >>= 1)
            if (glyph & 1)
                fill(im, x + k % FONT_WIDTH * scale, y + k / FONT_WIDTH * scale, x + (k % FONT_WIDTH + 1) * scale,
                     y + (k / FONT_WIDTH + 1) * scale, c);
        x += FONT_WIDTH * scale;
    }
}

static Colour ink(Colour on)
{
    return 299 * on.r + 587 * on.g + 114 * on.b > 128000 ? (Colour){0, 0, 0} : (Colour){255, 255, 255};
}

/* Tinted where the mask is, in full colour along its border. mask: room for the picture's pixels. */
static void draw_mask(Image *im, const Instance *in, uint8_t *mask, int thick)
{
    int64_t w = in->width, h = in->height;
    Colour c = palette[in->prompt % COLOURS];
    instance_mask(in, mask);
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++) {
            if (!mask[y * w + x]) continue;
            bool border = x < thick || y < thick || x + thick >= w || y + thick >= h || !mask[y * w + x - thick] ||
                          !mask[y * w + x + thick] || !mask[(y - thick) * w + x] || !mask[(y + thick) * w + x];
            uint8_t *p = im->pixels + 3 * (y * im->width + x);
            const uint8_t to[3] = {c.r, c.g, c.b};
            for (int k = 0; k < 3; k++) p[k] = (uint8_t)(border ? to[k] : (p[k] + to[k] + 1) / 2);
        }
}

static void draw_box(Image *im, const Instance *in, int thick, int scale)
{
    int64_t x0 = within_picture(in->box[0], in->width - 1), y0 = within_picture(in->box[1], in->height - 1);
    int64_t x1 = within_picture(in->box[2], in->width), y1 = within_picture(in->box[3], in->height);
    Colour c = palette[in->prompt % COLOURS];
    fill(im, x0, y0, x1, y0 + thick, c);
    fill(im, x0, y1 - thick, x1, y1, c);
    fill(im, x0, y0, x0 + thick, y1, c);
    fill(im, x1 - thick, y0, x1, y1, c);
    char label[16];
    text_printf(label, sizeof label, "%.2f", in->score);
    int64_t wide = FONT_WIDTH * scale * letters(label) + scale, high = LABEL * scale, top = y0 >= high ? y0 - high : y0;
    if (wide > in->width || high > in->height) return; /* a picture too small for letters */
    if (x0 + wide > in->width) x0 = in->width - wide;
    fill(im, x0, top, x0 + wide, top + high, c);
    write_text(im, x0 + scale, top, scale, label, ink(c));
}

static void draw_legend(Image *im, int top, const Instances *list, const char *const *prompts, int nprompts, int scale)
{
    static const Colour paper = {255, 255, 255}, black = {0, 0, 0};
    fill(im, 0, top, im->width, im->height, paper);
    for (int p = 0; p < nprompts; p++) {
        int64_t y = top + (int64_t)p * LINE * scale + scale, count = 0;
        char number[32];
        for (int i = 0; i < list->n; i++) count += list->item[i].prompt == p;
        snprintf(number, sizeof number, ": %lld", (long long)count);
        fill(im, 2 * scale, y + scale, 9 * scale, y + (1 + CAPITAL) * scale, palette[p % COLOURS]);
        write_text(im, 11 * scale, y, scale, prompts[p], black);
        write_text(im, (11 + FONT_WIDTH * (int64_t)letters(prompts[p])) * scale, y, scale, number, black);
    }
}

bool picture_overlay(const Image *im, const Instances *list, const char *const *prompts, int nprompts, Image *out,
                     Err *err)
{
    int least = im->width < im->height ? im->width : im->height, thick = least / 300 + 1, scale = least / 350 + 1;
    size_t line = 3 * (size_t)im->width, legend = (size_t)nprompts * LINE * (size_t)scale + 2 * (size_t)scale, bytes,
           rows;
    if (!add_size((size_t)im->height, legend, &rows) || rows > INT32_MAX || !mul_size(rows, line, &bytes))
        return fail(err, E_LIMIT, "an overlay of %zu rows is too large", rows);
    uint8_t *mask = mem_alloc((size_t)im->width * (size_t)im->height);
    *out = (Image){.width = im->width, .height = (int)rows, .channels = 3, .pixels = mem_alloc(bytes)};
    if (!mask || !out->pixels) {
        mem_free(mask);
        image_free(out);
        return oom(err);
    }
    memcpy(out->pixels, im->pixels, line * (size_t)im->height);
    for (int i = list->n; i-- > 0;)
        draw_mask(out, &list->item[i], mask, thick); /* of each prompt the best last, on top */
    for (int i = list->n; i-- > 0;) draw_box(out, &list->item[i], thick, scale);
    draw_legend(out, im->height, list, prompts, nprompts, scale);
    mem_free(mask);
    return true;
}
