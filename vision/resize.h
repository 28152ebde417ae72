/* A picture at the size of a model's input, number for number as the reference processors of SAM 3 make it.
 *
 *     picture_to_input(&im, 0, 0, im.width, im.height, 1008, 1008, mean, std, false, out, err);      out (3, 1008,
 *         1008)
 *
 * They resize 8-bit pixels in 8 bits (torchvision v2 on a uint8 tensor): bilinear, antialiased, aspect not kept.
 * PyTorch does it with 16-bit weights, across first, each pass rounded (aten/native/cpu/UpSampleKernel.cpp:
 * compute_index_ranges_int16_weights), and so does this.
 */
#ifndef QKV_VISION_RESIZE_H
#define QKV_VISION_RESIZE_H
#include "vision/image.h"

/* out has height * width * 3 bytes; the part (x, y, w, h) of an RGB picture. */
bool picture_resize(const Image *im, int x, int y, int w, int h, int height, int width, uint8_t *out, Err *err);
/* out (3, height, width): (v / 255 - mean) / std, or with fused (v - 255 mean) / (255 std),
 * which differs in the last bit. */
bool picture_to_input(const Image *im, int x, int y, int w, int h, int height, int width, const float *mean,
                      const float *std, bool fused, float *out, Err *err);
#endif
