/* Overlays. Contract in draw.h. */
#include "picture/draw.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"

/* ' ' to '~', five columns each, the lowest bit on top. */
static const uint8_t font[95][5] = {
    {0, 0, 0, 0, 0}, {0, 0, 0x5F, 0, 0}, {0, 7, 0, 7, 0}, {0x14, 0x7F, 0x14, 0x7F, 0x14}, {0x24, 0x2A, 0x7F, 0x2A, 0x12}, {0x23, 0x13, 8, 0x64, 0x62}, {0x36, 0x49, 0x56, 0x20, 0x50},
    {0, 8, 7, 3, 0}, {0, 0x1C, 0x22, 0x41, 0}, {0, 0x41, 0x22, 0x1C, 0}, {0x2A, 0x1C, 0x7F, 0x1C, 0x2A}, {8, 8, 0x3E, 8, 8}, {0, 0x80, 0x70, 0x30, 0}, {8, 8, 8, 8, 8}, {0, 0, 0x60, 0x60, 0},
    {0x20, 0x10, 8, 4, 2}, {0x3E, 0x51, 0x49, 0x45, 0x3E}, {0, 0x42, 0x7F, 0x40, 0}, {0x72, 0x49, 0x49, 0x49, 0x46}, {0x21, 0x41, 0x49, 0x4D, 0x33}, {0x18, 0x14, 0x12, 0x7F, 0x10},
    {0x27, 0x45, 0x45, 0x45, 0x39}, {0x3C, 0x4A, 0x49, 0x49, 0x31}, {0x41, 0x21, 0x11, 9, 7}, {0x36, 0x49, 0x49, 0x49, 0x36}, {0x46, 0x49, 0x49, 0x29, 0x1E}, {0, 0, 0x14, 0, 0},
    {0, 0x40, 0x34, 0, 0}, {0, 8, 0x14, 0x22, 0x41}, {0x14, 0x14, 0x14, 0x14, 0x14}, {0, 0x41, 0x22, 0x14, 8}, {2, 1, 0x59, 9, 6}, {0x3E, 0x41, 0x5D, 0x59, 0x4E}, {0x7C, 0x12, 0x11, 0x12, 0x7C},
    {0x7F, 0x49, 0x49, 0x49, 0x36}, {0x3E, 0x41, 0x41, 0x41, 0x22}, {0x7F, 0x41, 0x41, 0x41, 0x3E}, {0x7F, 0x49, 0x49, 0x49, 0x41}, {0x7F, 9, 9, 9, 1}, {0x3E, 0x41, 0x41, 0x51, 0x73},
    {0x7F, 8, 8, 8, 0x7F}, {0, 0x41, 0x7F, 0x41, 0}, {0x20, 0x40, 0x41, 0x3F, 1}, {0x7F, 8, 0x14, 0x22, 0x41}, {0x7F, 0x40, 0x40, 0x40, 0x40}, {0x7F, 2, 0x1C, 2, 0x7F}, {0x7F, 4, 8, 0x10, 0x7F},
    {0x3E, 0x41, 0x41, 0x41, 0x3E}, {0x7F, 9, 9, 9, 6}, {0x3E, 0x41, 0x51, 0x21, 0x5E}, {0x7F, 9, 0x19, 0x29, 0x46}, {0x26, 0x49, 0x49, 0x49, 0x32}, {3, 1, 0x7F, 1, 3}, {0x3F, 0x40, 0x40, 0x40, 0x3F},
    {0x1F, 0x20, 0x40, 0x20, 0x1F}, {0x3F, 0x40, 0x38, 0x40, 0x3F}, {0x63, 0x14, 8, 0x14, 0x63}, {3, 4, 0x78, 4, 3}, {0x61, 0x59, 0x49, 0x4D, 0x43}, {0, 0x7F, 0x41, 0x41, 0x41}, {2, 4, 8, 0x10, 0x20},
    {0, 0x41, 0x41, 0x41, 0x7F}, {4, 2, 1, 2, 4}, {0x40, 0x40, 0x40, 0x40, 0x40}, {0, 3, 7, 8, 0}, {0x20, 0x54, 0x54, 0x78, 0x40}, {0x7F, 0x28, 0x44, 0x44, 0x38}, {0x38, 0x44, 0x44, 0x44, 0x28},
    {0x38, 0x44, 0x44, 0x28, 0x7F}, {0x38, 0x54, 0x54, 0x54, 0x18}, {0, 8, 0x7E, 9, 2}, {0x18, 0xA4, 0xA4, 0x9C, 0x78}, {0x7F, 8, 4, 4, 0x78}, {0, 0x44, 0x7D, 0x40, 0}, {0x20, 0x40, 0x40, 0x3D, 0},
    {0x7F, 0x10, 0x28, 0x44, 0}, {0, 0x41, 0x7F, 0x40, 0}, {0x7C, 4, 0x78, 4, 0x78}, {0x7C, 8, 4, 4, 0x78}, {0x38, 0x44, 0x44, 0x44, 0x38}, {0xFC, 0x18, 0x24, 0x24, 0x18}, {0x18, 0x24, 0x24, 0x18, 0xFC},
    {0x7C, 8, 4, 4, 8}, {0x48, 0x54, 0x54, 0x54, 0x24}, {4, 4, 0x3F, 0x44, 0x24}, {0x3C, 0x40, 0x40, 0x20, 0x7C}, {0x1C, 0x20, 0x40, 0x20, 0x1C}, {0x3C, 0x40, 0x30, 0x40, 0x3C},
    {0x44, 0x28, 0x10, 0x28, 0x44}, {0x4C, 0x90, 0x90, 0x90, 0x7C}, {0x44, 0x64, 0x54, 0x4C, 0x44}, {0, 8, 0x36, 0x41, 0}, {0, 0, 0x77, 0, 0}, {0, 0x41, 0x36, 8, 0}, {2, 1, 2, 4, 2},
};
enum { ADVANCE = 6, LINE = 10 }; /* dots from letter to letter, from line to line */

typedef struct Colour {
    uint8_t r, g, b;
} Colour;
/* Seven that people with colour blindness tell apart (Okabe and Ito 2008). */
static const Colour palette[] = {{230, 159, 0}, {86, 180, 233}, {0, 158, 115}, {240, 228, 66}, {204, 121, 167}, {213, 94, 0}, {0, 114, 178}};
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

/* Characters, not bytes: one that is not ASCII is one '?'. */
static int letters(const char *s)
{
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static void write_text(Image *im, int64_t x, int64_t y, int scale, const char *s, Colour c)
{
    for (; *s; s++) {
        unsigned char letter = (unsigned char)*s;
        if ((letter & 0xC0) == 0x80) continue;
        const uint8_t *glyph = font[letter >= ' ' && letter <= '~' ? letter - ' ' : '?' - ' '];
        for (int k = 0; k < 5; k++)
            for (int bit = 0; bit < 8; bit++)
                if (glyph[k] >> bit & 1) fill(im, x + k * scale, y + bit * scale, x + (k + 1) * scale, y + (bit + 1) * scale, c);
        x += ADVANCE * scale;
    }
}

static Colour ink(Colour on) { return 299 * on.r + 587 * on.g + 114 * on.b > 128000 ? (Colour){0, 0, 0} : (Colour){255, 255, 255}; }

/* Tinted where the mask is, in full colour along its border. mask: room for the picture's pixels. */
static void draw_mask(Image *im, const Instance *in, uint8_t *mask, int thick)
{
    int64_t w = in->width, h = in->height;
    Colour c = palette[in->prompt % COLOURS];
    instance_mask(in, mask);
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++) {
            if (!mask[y * w + x]) continue;
            bool border = x < thick || y < thick || x + thick >= w || y + thick >= h || !mask[y * w + x - thick] || !mask[y * w + x + thick] || !mask[(y - thick) * w + x] || !mask[(y + thick) * w + x];
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
    snprintf(label, sizeof label, "%.2f", in->score);
    int64_t wide = ADVANCE * scale * letters(label) + scale, high = (LINE - 1) * scale, top = y0 >= high ? y0 - high : y0;
    if (wide > in->width || high > in->height) return; /* a picture too small for letters */
    if (x0 + wide > in->width) x0 = in->width - wide;
    fill(im, x0, top, x0 + wide, top + high, c);
    write_text(im, x0 + scale, top + scale, scale, label, ink(c));
}

static void draw_legend(Image *im, int top, const Instances *list, const char *const *prompts, int nprompts, int scale)
{
    static const Colour paper = {255, 255, 255}, black = {0, 0, 0};
    fill(im, 0, top, im->width, im->height, paper);
    for (int p = 0; p < nprompts; p++) {
        int64_t y = top + (int64_t)p * LINE * scale + 2 * scale, count = 0;
        char number[32];
        for (int i = 0; i < list->n; i++) count += list->item[i].prompt == p;
        snprintf(number, sizeof number, ": %lld", (long long)count);
        fill(im, 2 * scale, y, 9 * scale, y + 7 * scale, palette[p % COLOURS]);
        write_text(im, 11 * scale, y, scale, prompts[p], black);
        write_text(im, (11 + ADVANCE * (int64_t)letters(prompts[p])) * scale, y, scale, number, black);
    }
}

bool picture_overlay(const Image *im, const Instances *list, const char *const *prompts, int nprompts, Image *out, Err *err)
{
    int least = im->width < im->height ? im->width : im->height, thick = least / 300 + 1, scale = least / 350 + 1;
    size_t line = 3 * (size_t)im->width, legend = (size_t)nprompts * LINE * (size_t)scale + 2 * (size_t)scale, bytes, rows;
    if (!add_size((size_t)im->height, legend, &rows) || rows > INT32_MAX || !mul_size(rows, line, &bytes)) return fail(err, E_LIMIT, "an overlay of %zu rows is too large", rows);
    uint8_t *mask = malloc((size_t)im->width * (size_t)im->height);
    *out = (Image){.width = im->width, .height = (int)rows, .channels = 3, .pixels = malloc(bytes)};
    if (!mask || !out->pixels) {
        free(mask);
        image_free(out);
        return fail(err, E_LIMIT, "out of memory");
    }
    memcpy(out->pixels, im->pixels, line * (size_t)im->height);
    for (int i = list->n; i-- > 0;) draw_mask(out, &list->item[i], mask, thick); /* of each prompt the best last, on top */
    for (int i = list->n; i-- > 0;) draw_box(out, &list->item[i], thick, scale);
    draw_legend(out, im->height, list, prompts, nprompts, scale);
    free(mask);
    return true;
}
