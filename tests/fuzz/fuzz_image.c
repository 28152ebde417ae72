/* PNG and JPEG: read, and made a tensor. */
#include <stdio.h>
#include <jpeglib.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "vision/image.h"
#include "fuzz.h"

static const char *const tokens[] = {
    "IHDR",     "IDAT",     "PLTE",     "tRNS",     "IEND",     "gAMA",     "iCCP",     "zTXt",     "\xff\xd8\xff",
    "\xff\xc0", "\xff\xc2", "\xff\xc4", "\xff\xda", "\xff\xdb", "\xff\xdd", "\xff\xd0", "\xff\xd9", "\xff\xee",
    "JFIF",     "\xff\xe1", "Exif",     "II*",      "MM",       "\x01\x12", "\x12\x01", NULL};

/* One chunk at `at`; its end. */
static size_t put_chunk(uint8_t *png, size_t at, const char *type, const uint8_t *data, size_t n)
{
    const uint8_t length[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    memcpy(png + at, length, 4);
    memcpy(png + at + 4, type, 4);
    if (n) memcpy(png + at + 8, data, n);
    uint32_t crc = (uint32_t)crc32(0, png + at + 4, (uInt)n + 4);
    for (int i = 0; i < 4; i++) png[at + 8 + n + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
    return at + 12 + n;
}

static void seed_png(FuzzAdd *add, uint8_t colour, uint8_t depth, uint8_t interlaced)
{
    uint8_t png[1024] = "\x89PNG\r\n\x1a\n", head[13] = {0, 0, 0, 5, 0, 0, 0, 7, depth, colour, 0, 0, interlaced},
            palette[48], raw[600] = {0}, packed[700];
    uLongf n = sizeof packed;
    static const uint8_t channels[7] = {1, 0, 3, 1, 2, 0, 4};
    size_t line = 1 + (5u * channels[colour] * depth + 7) / 8, at = put_chunk(png, 8, "IHDR", head, 13);
    for (size_t i = 0; i < sizeof palette; i++) palette[i] = (uint8_t)(i * 5);
    for (size_t i = 0; i < sizeof raw; i++) raw[i] = !interlaced && i % line == 0 ? (uint8_t)(i / line % 5) : 0;
    compress(packed, &n, raw, interlaced ? sizeof raw : 7 * line);
    if (colour == 3) at = put_chunk(png, at, "PLTE", palette, 48);
    if (colour == 3) at = put_chunk(png, at, "tRNS", palette, 4);
    at = put_chunk(png, at, "IDAT", packed, n);
    add(png, put_chunk(png, at, "IEND", NULL, 0));
}

static void seed_jpeg(FuzzAdd *add, J_COLOR_SPACE space, int channels, bool progressive, unsigned restart,
                      const char *exif)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    unsigned char *out = NULL, row[4 * 20];
    unsigned long n = 0;
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &n);
    c.image_width = 20;
    c.image_height = 18;
    c.input_components = channels;
    c.in_color_space = space;
    jpeg_set_defaults(&c);
    if (progressive) jpeg_simple_progression(&c);
    c.restart_interval = restart;
    jpeg_start_compress(&c, TRUE);
    if (exif) jpeg_write_marker(&c, JPEG_APP0 + 1, (const JOCTET *)exif, 32);
    while (c.next_scanline < c.image_height) {
        for (size_t i = 0; i < sizeof row; i++) row[i] = (uint8_t)(i * 7 + c.next_scanline * 11);
        jpeg_write_scanlines(&c, &(JSAMPROW){row}, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    add(out, n);
    free(out);
}

static void seeds(FuzzAdd *add)
{
    static const uint8_t kinds[][2] = {{0, 1}, {0, 8}, {0, 16}, {2, 8}, {2, 16},
                                       {3, 2}, {3, 8}, {4, 8},  {6, 8}, {6, 16}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (uint8_t interlaced = 0; interlaced < 2; interlaced++) seed_png(add, kinds[i][0], kinds[i][1], interlaced);
    for (int progressive = 0; progressive < 2; progressive++) {
        seed_jpeg(add, JCS_GRAYSCALE, 1, progressive, 0, "Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0");
        seed_jpeg(add, JCS_RGB, 3, progressive, 2, "Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\7\0\0");
        seed_jpeg(add, JCS_CMYK, 4, progressive, 0, NULL);
    }
}

/* The checksums of a PNG's chunks are put right, so that readers get beyond them. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    (void)seed;
    size = LLVMFuzzerMutate(data, size, max);
    if (size < 8 || memcmp(data, "\x89PNG", 4) || fuzz_random(8) == 0) return size;
    for (size_t at = 8; at + 12 <= size;) {
        size_t n = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 | (size_t)data[at + 2] << 8 | data[at + 3];
        if (n > size - at - 12) break;
        uint32_t crc = (uint32_t)crc32(0, data + at + 4, (uInt)n + 4);
        at += 12 + n;
        for (int i = 0; i < 4; i++) data[at - 4 + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
    }
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Image im;
    Err err = {0};
    float out[3 * 4 * 5];
    fuzz_set_file(data, size);
    if (!image_read(&im, FUZZ_PATH, &err)) {
        fuzz_said(&err);
        fuzz_check(!im.pixels, "a refused picture has no pixels");
        return 0;
    }
    size_t sum = 0;
    for (int64_t i = 0; i < (int64_t)im.width * im.height * im.channels; i++) sum += im.pixels[i];
    fuzz_check(sum <= 255 * (size_t)im.width * (size_t)im.height * 3 && (im.channels == 1 || im.channels == 3),
               "a picture is gray or RGB");
    fuzz_check(image_to_tensor(&im, im.channels == 1 ? 3 : 1, 4, 5, NULL, NULL, out, &err),
               "a picture becomes a tensor");
    for (size_t i = 0; i < (im.channels == 1 ? 60u : 20u); i++)
        fuzz_check(out[i] >= -0.01f && out[i] <= 1.01f, "a tensor's elements are from 0 to 1");
    image_free(&im);
    return 0;
}

const FuzzTarget fuzz_target = {
    .name = "image", .tokens = tokens, .seeds = seeds, .ending = ".png", .memory_ratio = 100000};
