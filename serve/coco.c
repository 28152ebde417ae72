/* Contract in coco.h. */
#include "serve/coco.h"
#include "base/jsonw.h"
#include "base/number.h"

/* Texts and names of files need not be UTF-8, JSON must be. */
static void put_text(Buf *out, const char *key, const char *s)
{
    Buf clean = {0};
    for (int n; *s; s += n ? n : 1) {
        n = utf8_length(s);
        if (n) buf_add(&clean, s, (size_t)n);
        else buf_puts(&clean, "?");
    }
    jw_text(out, key, clean.data ? clean.data : "");
    out->failed |= clean.failed;
    buf_free(&clean);
}

static void put_info(const Coco *c, Buf *out)
{
    jw_open(out, "info", '{');
    put_text(out, "model", c->model);
    jw_number(out, "threshold", c->threshold);
    jw_int(out, "tile", c->tile);
    bool cut = false;
    for (int i = 0; c->cut && i < c->n; i++) cut |= c->cut[i] > 0;
    if (cut) {
        jw_open(out, "cut", '[');
        for (int i = 0; i < c->n; i++)
            if (c->cut[i] > 0) put_text(out, NULL, c->text[i]);
        jw_close(out, "]");
    }
    jw_put(out, "}, 'categories': [");
    for (int i = 0; i < c->n; i++) {
        jw_put(out, "{'id': %d", i + 1);
        put_text(out, "name", c->text[i]);
        jw_close(out, "}");
    }
    jw_close(out, "]");
}

static void put_instance(const qkv_instance *in, int id, const qkv_picture *p, Buf *out)
{
    jw_put(out, "{'id': %d, 'image_id': 1, 'category_id': %d", id, in->prompt + 1);
    jw_number(out, "score", in->score);
    jw_open(out, "bbox", '[');
    for (int k = 0; k < 2; k++) jw_number(out, NULL, in->box[k]);
    for (int k = 0; k < 2; k++) jw_number(out, NULL, in->box[k + 2] - in->box[k]);
    jw_put(out, "], 'area': %lld, 'iscrowd': 0, 'segmentation': {'size': [", (long long)in->area);
    jw_int(out, NULL, qkv_picture_height(p));
    jw_int(out, NULL, qkv_picture_width(p));
    jw_put(out, "], 'counts': %s}}", in->counts);
}

void coco_write(const Coco *c, const char *name, const qkv_picture *p, const qkv_instances *found, Buf *out)
{
    jw_report(out);
    put_info(c, out);
    jw_open(out, "images", '[');
    if (p) {
        jw_put(out, "{'id': 1");
        put_text(out, "file_name", name);
        jw_put(out, "'width': %d, 'height': %d}", qkv_picture_width(p), qkv_picture_height(p));
    }
    jw_put(out, "], 'annotations': [");
    for (int i = 0; p && i < qkv_instances_count(found); i++) put_instance(qkv_instances_at(found, i), i + 1, p, out);
    jw_close(out, "]}");
}
