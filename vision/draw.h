/* Instances drawn over their picture: masks, boxes and scores in a colour per prompt, and a legend below.
 *
 *     Image over;
 *     picture_overlay(&im, &list, prompts, nprompts, &over, err);
 *     image_write_png(&over, "overlay.png", err);
 *
 * Letters are 6 x 10 dots (font.h): Latin-1 and Latin Extended-A, Greek, Cyrillic; other characters are a box with a
 * question mark. Sizes grow with the picture.
 */
#ifndef QKV_VISION_DRAW_H
#define QKV_VISION_DRAW_H
#include "vision/image.h"
#include "vision/instances.h"

bool picture_overlay(const Image *im, const Instances *list, const char *const *prompts, int nprompts, Image *out,
                     Err *err);
#endif
