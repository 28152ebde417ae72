/* What the files of libqkv_vision share: the border to qkv.h, errors and memory across it.
 *
 *     Err e = vision_begin();
 *     if (image_read_rgb(&p->im, path, &e)) return p;
 *     return vision_null(&e, err);
 */
#ifndef QKV_VISION_VISION_H
#define QKV_VISION_VISION_H
#include "base/given.h"
#include "base/versioned.h"
#include "qkv.h"
#include "vision/image.h"

struct qkv_picture {
    Image im;
};

/* Every public function that can fail begins with it: no error, no refusal of memory yet, and libqkv's allocator. */
Err vision_begin(void);
qkv_status vision_give(const Err *from, qkv_error *to); /* hands an error out */
void *vision_null(const Err *from, qkv_error *to);      /* the same where a pointer is returned: NULL */
bool vision_fail(Err *err, const qkv_error *from);      /* takes over what libqkv said; returns false */
#endif
