/* The pictures of the public interface. Contracts in include/qkv_vision.h. */
#include <string.h>
#include "base/mem.h"
#include "qkv_vision.h"
#include "vision/image.h"
#include "vision/processor.h"
#include "vision/resize.h"
#include "vision/vision.h"

enum { MAX_PIXELS = 1 << 28 /* as image_read */ };

qkv_picture *qkv_picture_read(const char *path, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(path)) return vision_null(&e, err);
    qkv_picture *p = mem_zeroed(1, sizeof *p);
    if (p && image_read_rgb(&p->im, path, &e)) return p;
    if (!p) oom(&e);
    mem_free(p);
    return vision_null(&e, err);
}

qkv_picture *qkv_picture_read_memory(const void *bytes, size_t n, int64_t pixels, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(bytes)) return vision_null(&e, err);
    qkv_picture *p = mem_zeroed(1, sizeof *p);
    if (p && image_read_rgb_memory(&p->im, bytes, n, pixels, &e)) return p;
    if (!p) oom(&e);
    mem_free(p);
    return vision_null(&e, err);
}

static bool picture_copy(Image *im, const uint8_t *pixels, int height, int width, int channels, Err *err)
{
    if (channels != 1 && channels != 3) return fail(err, E_USAGE, "%d channels, expected 1 or 3", channels);
    if (height < 1 || width < 1 || (int64_t)height * width > MAX_PIXELS)
        return fail(err, E_USAGE, "%d x %d pixels: a picture has 1 to %d", height, width, MAX_PIXELS);
    size_t n = (size_t)height * (size_t)width;
    *im = (Image){width, height, 3, mem_alloc(3 * n)};
    if (!im->pixels) return oom(err);
    if (channels == 3) memcpy(im->pixels, pixels, 3 * n);
    for (size_t i = 0; channels == 1 && i < n; i++) memset(im->pixels + 3 * i, pixels[i], 3);
    return true;
}

qkv_picture *qkv_picture_create(const uint8_t *pixels, int height, int width, int channels, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(pixels)) return vision_null(&e, err);
    qkv_picture *p = mem_zeroed(1, sizeof *p);
    if (p && picture_copy(&p->im, pixels, height, width, channels, &e)) return p;
    if (!p) oom(&e);
    mem_free(p);
    return vision_null(&e, err);
}

void qkv_picture_free(qkv_picture *p)
{
    if (!p) return;
    image_free(&p->im);
    mem_free(p);
}

int qkv_picture_width(const qkv_picture *p) { return p ? p->im.width : 0; }
int qkv_picture_height(const qkv_picture *p) { return p ? p->im.height : 0; }
const uint8_t *qkv_picture_rgb(const qkv_picture *p) { return p ? p->im.pixels : NULL; }

qkv_status qkv_picture_write(const qkv_picture *p, const char *path, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(p) || !GIVEN(path)) return vision_give(&e, err);
    return image_write_png(&p->im, path, &e) ? QKV_OK : vision_give(&e, err);
}

qkv_status qkv_picture_input(const qkv_picture *p, int height, int width, const float *mean, const float *std,
                             float *out, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(p) || !GIVEN(mean) || !GIVEN(std) || !GIVEN(out)) return vision_give(&e, err);
    bool ok = height >= 1 && width >= 1 && height <= PROCESSOR_MAX_SIDE && width <= PROCESSOR_MAX_SIDE;
    if (!ok) fail(&e, E_USAGE, "%d x %d: sides are from 1 to %d", height, width, PROCESSOR_MAX_SIDE);
    ok = ok && picture_to_input(&p->im, 0, 0, p->im.width, p->im.height, height, width, mean, std, false, out, &e);
    return ok ? QKV_OK : vision_give(&e, err);
}

qkv_status qkv_image_read(const char *path, int channels, int height, int width, const float *mean, const float *std,
                          float *out, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(path) || !GIVEN(out)) return vision_give(&e, err);
    Image im = {0};
    bool ok = image_read(&im, path, &e) &&
              (image_to_tensor(&im, channels, height, width, mean, std, out, &e) || within(&e, "%s", path));
    image_free(&im);
    return ok ? QKV_OK : vision_give(&e, err);
}
