/* PNG and JPEG. Contract in image.h. */
#include "vision/image.h"
#include <setjmp.h>
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>
#include <png.h>
#include <string.h>
#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "qkv_tools.h"
#include "vision/exif.h"
#include "vision/taps.h"
#include "vision/vision.h"

static const int64_t max_pixels = (int64_t)1 << 28;
static const int64_t max_packing = 8300; /* pixels to a byte: deflate gives at most 1032 bytes for one, 8 pixels in
                                            each; JPEG a bit for a block of a 32 x 32 unit */
static const int64_t max_scanned = (int64_t)1 << 32; /* pixels of all scans of a JPEG: those of most files are 10 */

void image_free(Image *im)
{
    mem_free(im->pixels);
    *im = (Image){0};
}

/* What is decoded: bytes of a file, and how many pixels may be in them. */
typedef struct Coded {
    const unsigned char *data;
    size_t size;
    int64_t most;
} Coded;

/* Before anything of the size that a few bytes claim is allocated. */
static bool plausible(int64_t w, int64_t h, const Coded *c, Err *err)
{
    if (w <= 0 || h <= 0) return fail(err, E_FORMAT, "a picture of %lld x %lld", (long long)w, (long long)h);
    if (w * h > c->most)
        return fail(err, E_LIMIT, "a picture of %lld x %lld, at most %lld pixels are read", (long long)w, (long long)h,
                    (long long)c->most);
    if ((uint64_t)(w * h / max_packing) > c->size)
        return fail(err, E_FORMAT, "a picture of %lld x %lld cannot be in %llu bytes: the file is cut off or damaged",
                    (long long)w, (long long)h, (unsigned long long)c->size);
    return true;
}

static bool room(Image *im, int64_t w, int64_t h, int channels, Err *err)
{
    im->width = (int)w;
    im->height = (int)h;
    im->channels = channels;
    im->pixels = mem_alloc((size_t)w * (size_t)h * (size_t)channels);
    return im->pixels || oom(err);
}

typedef struct PngSource {
    const unsigned char *at;
    size_t left;
    Err *err;
} PngSource;

static void png_read_bytes(png_structp png, png_bytep out, size_t n)
{
    PngSource *s = png_get_io_ptr(png);
    if (n > s->left) png_error(png, "the file is cut off");
    memcpy(out, s->at, n);
    s->at += n;
    s->left -= n;
}

static void png_failed(png_structp png, png_const_charp text)
{
    PngSource *s = png_get_error_ptr(png);
    fail(s->err, E_FORMAT, "PNG: %s", text);
    png_longjmp(png, 1);
}

static void png_warned(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

/* Over white: RGBA to RGB, gray + alpha to gray, in place. Samples are blended as they are stored, without gamma. */
static void drop_alpha(Image *im)
{
    size_t n = (size_t)im->width * (size_t)im->height, from = (size_t)im->channels, to = from - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned alpha = im->pixels[i * from + to];
        for (size_t c = 0; c < to; c++)
            im->pixels[i * to + c] = (uint8_t)((im->pixels[i * from + c] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
    im->channels = (int)to;
}

/* Everything that may jump back on an error; reads to the end chunk, so that a cut-off file is an error. */
static bool decode_png(png_structp png, png_infop info, const Coded *c, bool strip, Image *im,
                       png_bytep *volatile *rows, Err *err)
{
    png_read_info(png, info);
    TRY(plausible(png_get_image_width(png, info), png_get_image_height(png, info), c, err));
    png_set_expand(png); /* palettes to RGB, 1 to 4 bits to 8, transparent colours to alpha */
    png_set_scale_16(png);
    if (strip) png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    TRY(room(im, png_get_image_width(png, info), png_get_image_height(png, info), png_get_channels(png, info), err));
    size_t line = png_get_rowbytes(png, info);
    *rows = mem_alloc((size_t)im->height * sizeof **rows);
    if (!*rows || line != (size_t)im->width * (size_t)im->channels) return oom(err);
    for (int y = 0; y < im->height; y++) (*rows)[y] = im->pixels + (size_t)y * line;
    png_read_image(png, *rows);
    png_read_end(png, NULL);
    return true;
}

static bool read_png(Image *im, const Coded *c, bool strip, Err *err)
{
    PngSource source = {c->data, c->size, err};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, png_failed, png_warned);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    png_bytep *volatile rows = NULL; /* volatile: its value survives the jump */
    if (!info) {
        png_destroy_read_struct(&png, NULL, NULL);
        return oom(err);
    }
    if (setjmp(png_jmpbuf(png))) {
        mem_free(rows);
        png_destroy_read_struct(&png, &info, NULL);
        return false;
    }
    png_set_read_fn(png, &source, png_read_bytes);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL,
                                -1);              /* texts, profiles ...: skipped, or libpng allocates what they say */
    png_set_user_limits(png, 1u << 28, 1u << 28); /* the product is checked in plausible() */
    bool ok = decode_png(png, info, c, strip, im, &rows, err);
    mem_free(rows);
    png_destroy_read_struct(&png, &info, NULL);
    if (ok && im->channels % 2 == 0) drop_alpha(im);
    return ok;
}

typedef struct JpegError {
    struct jpeg_error_mgr base;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    Err *err;
} JpegError;

static void jpeg_failed(j_common_ptr c)
{
    JpegError *e = (JpegError *)c->err;
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    fail(e->err, E_FORMAT, "JPEG: %s", text);
    longjmp(e->back, 1);
}

/* Warnings mean damage ("premature end of file"): a half picture is an error here. Two are only about labels. */
static void jpeg_warned(j_common_ptr c, int level)
{
    int code = c->err->msg_code;
    if (level < 0 && code != JWRN_ADOBE_XFORM && code != JWRN_JFIF_MAJOR) jpeg_failed(c);
}

/* A scan of a dozen bytes may go through all of the picture once more. */
static void jpeg_goes_on(j_common_ptr c)
{
    const struct jpeg_decompress_struct *d = (const struct jpeg_decompress_struct *)(const void *)c;
    JpegError *e = (JpegError *)c->err;
    int64_t pixels = (int64_t)d->image_width * d->image_height; /* at most 2^32 */
    if (d->input_scan_number * pixels <= max_scanned) return;
    fail(e->err, E_LIMIT, "JPEG: %d scans of %u x %u pixels are too many", d->input_scan_number, d->image_width,
         d->image_height);
    longjmp(e->back, 1);
}

/* libjpeg keeps what the scans say until the last one; its own allocator knows no limit. */
static bool room_for_scans(struct jpeg_decompress_struct *d, Err *err)
{
    size_t n = 0;
    if (!jpeg_has_multiple_scans(d)) return true;
    for (int i = 0; i < d->num_components; i++) {
        const jpeg_component_info *part = &d->comp_info[i];
        n += (size_t)part->width_in_blocks * part->height_in_blocks * sizeof(JBLOCK);
    }
    void *probe = mem_alloc(n);
    mem_free(probe);
    return probe || oom(err);
}

static bool read_jpeg(Image *im, const Coded *c, Err *err)
{
    struct jpeg_decompress_struct d;
    JpegError e = {.progress.progress_monitor = jpeg_goes_on, .err = err};
    d.err = jpeg_std_error(&e.base);
    e.base.error_exit = jpeg_failed;
    e.base.emit_message = jpeg_warned;
    if (setjmp(e.back)) {
        jpeg_destroy_decompress(&d);
        return false;
    }
    jpeg_create_decompress(&d);
    d.progress = &e.progress;
    jpeg_mem_src(&d, c->data, (unsigned long)c->size);
    jpeg_read_header(&d, TRUE);
    bool ok = true;
    if (d.jpeg_color_space == JCS_CMYK || d.jpeg_color_space == JCS_YCCK)
        ok = fail(err, E_UNSUPPORTED, "JPEG in CMYK; convert it to RGB");
    d.out_color_space = d.jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
    ok = ok && plausible(d.image_width, d.image_height, c, err) && room_for_scans(&d, err) &&
         room(im, d.image_width, d.image_height, d.out_color_space == JCS_RGB ? 3 : 1, err);
    if (ok) {
        jpeg_start_decompress(&d);
        while (d.output_scanline < d.output_height) {
            unsigned char *row = im->pixels + (size_t)d.output_scanline * (size_t)im->width * (size_t)im->channels;
            jpeg_read_scanlines(&d, &row, 1);
        }
        jpeg_finish_decompress(&d);
    }
    jpeg_destroy_decompress(&d);
    return ok;
}

/* As EXIF's orientation says: 5 to 8 lie with rows and columns changed,
 * the others and they may be mirrored across and down. */
static bool turn_upright(Image *im, int orientation, Err *err)
{
    if (orientation == 1) return true;
    bool turned = orientation >= 5, left = orientation == 2 || orientation == 3 || orientation >= 7,
         up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    size_t c = (size_t)im->channels, w = (size_t)im->width, h = (size_t)im->height;
    Image out;
    TRY(room(&out, turned ? im->height : im->width, turned ? im->width : im->height, im->channels, err));
    uint8_t *to = out.pixels;
    for (size_t y = 0; y < (size_t)out.height; y++)
        for (size_t x = 0; x < (size_t)out.width; x++, to += c) {
            size_t u = turned ? y : x, v = turned ? x : y;
            memcpy(to, im->pixels + c * ((up ? h - 1 - v : v) * w + (left ? w - 1 - u : u)), c);
        }
    image_free(im);
    *im = out;
    return true;
}

static bool decode(Image *im, const Coded *c, bool strip, Err *err)
{
    bool ok;
    *im = (Image){0};
    if (c->size >= 8 && !memcmp(c->data, "\x89PNG\r\n\x1a\n", 8)) ok = read_png(im, c, strip, err);
    else if (c->size >= 3 && !memcmp(c->data, "\xff\xd8\xff", 3))
        ok = read_jpeg(im, c, err) && turn_upright(im, exif_orientation(c->data, c->size), err);
    else ok = fail(err, E_FORMAT, "found neither PNG nor JPEG; convert the picture to one of them");
    if (!ok) image_free(im);
    return ok;
}

static bool read_either(Image *im, const char *path, bool strip, Err *err)
{
    MappedFile f;
    *im = (Image){0};
    TRY(file_map(&f, path, err));
    bool ok = decode(im, &(Coded){f.data, f.size, max_pixels}, strip, err);
    file_unmap(&f);
    return ok || within(err, "%s", path);
}

bool image_read(Image *im, const char *path, Err *err) { return read_either(im, path, false, err); }

static bool to_rgb(Image *im, Err *err)
{
    if (im->channels == 3) return true;
    size_t n = (size_t)im->width * (size_t)im->height;
    uint8_t *rgb = mem_alloc(3 * n);
    if (!rgb) {
        image_free(im);
        return oom(err);
    }
    for (size_t i = 0; i < 3 * n; i++) rgb[i] = im->pixels[i / 3];
    mem_free(im->pixels);
    im->pixels = rgb;
    im->channels = 3;
    return true;
}

bool image_read_rgb(Image *im, const char *path, Err *err)
{
    return read_either(im, path, true, err) && to_rgb(im, err);
}

bool image_read_rgb_memory(Image *im, const void *bytes, size_t size, int64_t most, Err *err)
{
    Coded c = {bytes, size, most > 0 && most < max_pixels ? most : max_pixels};
    return decode(im, &c, true, err) && to_rgb(im, err);
}

bool image_write_png(const Image *im, const char *path, Err *err)
{
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)im->width,
                     .height = (png_uint_32)im->height,
                     .format = im->channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
    png_alloc_size_t n = PNG_IMAGE_PNG_SIZE_MAX(
        png); /* pages that stay empty cost nothing; asking for the size would compress twice */
    void *bytes = mem_alloc(n);
    bool ok = bytes || oom(err);
    if (ok && !png_image_write_to_memory(&png, bytes, &n, 0, im->pixels, 0, NULL))
        ok = fail(err, E_LIMIT, "%s: %s", path, png.message);
    qkv_error e;
    if (ok && qkv_file_write(path, bytes, n, &e)) ok = vision_fail(err, &e);
    mem_free(bytes);
    return ok;
}

/* ------------------------------------------------------------------ to a tensor */

static float channel(const Image *im, int x, int y, int c, int want)
{
    const uint8_t *p = im->pixels + ((size_t)y * (size_t)im->width + (size_t)x) * (size_t)im->channels;
    if (im->channels == 1) return p[0];
    if (want == 1)
        return (float)((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16); /* ITU-R 601, as Pillow's L */
    return p[c];
}

bool image_to_tensor(const Image *im, int want, int h, int w, const float *mean, const float *std, float *out, Err *err)
{
    if ((want != 1 && want != 3) || h < 1 || w < 1)
        return fail(err, E_USAGE, "%d channels of %d x %d: expected 1 or 3 channels and sizes above 0", want, h, w);
    Taps tx = {0}, ty = {0};
    float *rows = mem_alloc((size_t)w * (size_t)im->height * sizeof *rows);
    bool ok = (rows || oom(err)) && taps_make(&tx, im->width, w, err) && taps_make(&ty, im->height, h, err);
    for (int c = 0; ok && c < want; c++) {
        for (int x = 0; x < w; x++) /* across */
            for (int y = 0; y < im->height; y++) {
                const double *weight = tx.w + (size_t)x * (size_t)tx.most;
                float s = 0;
                for (int k = 0; k < tx.n[x]; k++) s += (float)weight[k] * channel(im, tx.first[x] + k, y, c, want);
                rows[(size_t)y * (size_t)w + (size_t)x] = s;
            }
        for (int y = 0; y < h; y++) /* down */
            for (int x = 0; x < w; x++) {
                const double *weight = ty.w + (size_t)y * (size_t)ty.most;
                float s = 0;
                for (int k = 0; k < ty.n[y]; k++)
                    s += (float)weight[k] * rows[(size_t)(ty.first[y] + k) * (size_t)w + (size_t)x];
                float v = s / 255.0f;
                out[((size_t)c * (size_t)h + (size_t)y) * (size_t)w + (size_t)x] = (v - (mean ? mean[c] : 0)) /
                                                                                   (std ? std[c] : 1);
            }
    }
    mem_free(rows);
    taps_free(&tx);
    taps_free(&ty);
    return ok;
}
