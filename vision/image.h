/* PNG and JPEG in, PNG out.
 *
 *     Image im;
 *     image_read(&im, "cat.jpg", err);      8 bits a channel; im.channels 1 (gray), 3 (RGB); alpha dropped over
 *                                           white, palettes and
 *     ... im.pixels[(y * im.width + x) * im.channels + c] ...        16 bits reduced, CMYK refused by name
 *     image_free(&im);
 *
 * A JPEG whose EXIF says that it lies on its side or is mirrored is turned upright, as PIL.ImageOps.exif_transpose
 * does.
 */
#ifndef QKV_VISION_IMAGE_H
#define QKV_VISION_IMAGE_H
#include <stdint.h>
#include "base/err.h"

typedef struct Image {
    int width, height, channels;
    uint8_t *pixels; /* owned, malloc */
} Image;

bool image_read(Image *im, const char *path, Err *err); /* by content; at most 2^28 pixels (E_LIMIT) */
/* The same from the bytes of a file, with at most `most` pixels (0: 2^28). */
bool image_read_rgb_memory(Image *im, const void *bytes, size_t size, int64_t most, Err *err);
bool image_read_rgb(Image *im, const char *path,
                    Err *err); /* always RGB, alpha left out and not blended, as Pillow's convert("RGB") */
bool image_write_png(const Image *im, const char *path, Err *err); /* whole or not at all: qkv_file_write */
void image_free(Image *im);
/* out (channels_wanted, h, w) float: convert gray<->RGB (ITU-R 601, as Pillow's L), resize to (h, w) with an
 * antialiased triangle filter (as Pillow BILINEAR: support scaled by the reduction factor), divide by 255, then (x -
 * mean[c]) / std[c]. */
bool image_to_tensor(const Image *im, int channels_wanted, int h, int w, const float *mean, const float *std,
                     float *out, Err *err);
#endif
