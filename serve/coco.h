/* What was found in a picture as COCO's JSON: qkv segment and qkv serve.
 *
 *     Coco c = {.model = "sam3.pt2", .threshold = 0.5, .text = texts, .n = 2};
 *     coco_write(&c, "street.jpg", picture, found, &out);      {"schema": 1, "info": {"model": "sam3.pt2", ...
 */
#ifndef QKV_SERVE_COCO_H
#define QKV_SERVE_COCO_H
#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "qkv_vision.h"

typedef struct Coco {
    const char *model;
    double threshold;
    int64_t tile;            /* 0: none */
    const char *const *text; /* n categories, numbered from 1 */
    int n;
    const int *cut; /* how many tokens of a text did not fit, by text; NULL: none */
} Coco;

/* p NULL: no picture. Masks are compressed run lengths. */
void coco_write(const Coco *c, const char *name, const qkv_picture *p, const qkv_instances *found, Buf *out);
#endif
