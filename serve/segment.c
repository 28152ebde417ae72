/* Contract in segment.h. */
#include "serve/segment.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/number.h"
#include "serve/coco.h"
#include "serve/multipart.h"
#include "serve/oip.h"

enum { MOST_PARTS = MOST_NAMED + 8 };

/* ------------------------------------------------------------------ the request */

/* A part as text: within the bound, and without a 0 in it. */
static const char *as_text(const Segmenting *r, const MultiPart *p, Err *err)
{
    if (p->size > MOST_NAMED_BYTES || !p->size || memchr(p->data, 0, p->size)) {
        fail(err, E_USAGE, "field '%s' has %zu bytes, expected a text of 1 to %d", p->name, p->size, MOST_NAMED_BYTES);
        return NULL;
    }
    char *text = arena_alloc(r->arena, p->size + 1, 1);
    if (!text) {
        oom(err);
        return NULL;
    }
    memcpy(text, p->data, p->size);
    text[p->size] = 0;
    return text;
}

static bool take_picture(Segmenting *r, const MultiPart *p, Err *err)
{
    if (r->picture) return fail(err, E_USAGE, "field 'image' is given twice; a request is about one picture");
    if (!p->size) return fail(err, E_USAGE, "field 'image' is empty, expected a PNG or JPEG");
    r->picture = p->data;
    r->size = p->size;
    r->file = p->file ? p->file : "image";
    return true;
}

static bool take_threshold(Segmenting *r, const char *text, Err *err)
{
    const char *end = text;
    r->threshold = parse_double(text, &end);
    return (end > text && !*end && r->threshold > 0 && r->threshold < 1) ||
           fail(err, E_USAGE, "field 'threshold' is '%.40s', expected a number between 0 and 1", text);
}

static bool take_field(Segmenting *r, const MultiPart *p, Err *err)
{
    if (!strcmp(p->name, "image")) return take_picture(r, p, err);
    bool text = !strcmp(p->name, "text"), threshold = !strcmp(p->name, "threshold");
    if (!text && !threshold && strcmp(p->name, "model"))
        return fail(err, E_USAGE, "field '%.60s': expected image, text, threshold or model", p->name);
    const char *value = as_text(r, p, err);
    TRY(value);
    if (threshold) return take_threshold(r, value, err);
    if (!text) r->model = value;
    else if (r->n == MOST_NAMED) return fail(err, E_USAGE, "more than %d texts", MOST_NAMED);
    else r->text[r->n++] = value;
    return true;
}

static bool read_fields(Segmenting *r, const char *type, const void *body, size_t size, Err *err)
{
    MultiPart *part = arena_array(r->arena, MultiPart, MOST_PARTS);
    int n;
    if (!part) return oom(err);
    TRY(multipart_read(type, body, size, r->arena, part, MOST_PARTS, &n, err));
    for (int i = 0; i < n; i++) TRY(take_field(r, &part[i], err));
    if (!r->picture) return fail(err, E_USAGE, "field 'image' is missing: the picture, a PNG or JPEG");
    return r->n || fail(err, E_USAGE, "field 'text' is missing: what to look for");
}

Segmenting *segment_read(const char *type, const void *body, size_t size, Err *err)
{
    Arena *a;
    Segmenting *r = request_new(sizeof *r, &a, err);
    if (!r) return NULL;
    r->arena = a;
    if (read_fields(r, type, body, size, err)) return r;
    segment_free(r);
    return NULL;
}

void segment_free(Segmenting *r)
{
    if (!r) return;
    buf_free(&r->answer);
    arena_destroy(r->arena);
}

/* ------------------------------------------------------------------ the run */

/* Whatever is wrong with a picture is its sender's matter, but for memory. */
static qkv_picture *decode(const Segmenting *r, Err *err)
{
    qkv_error e;
    qkv_picture *p = qkv_picture_read_memory(r->picture, r->size, MOST_PIXELS, &e);
    if (p) return p;
    said(err, &e);
    if (!mem_ran_out()) err->code = E_USAGE;
    within(err, "field 'image'");
    return NULL;
}

static bool look(Segmenting *r, qkv_segmenter *g, const qkv_picture *p, Err *err)
{
    qkv_error e;
    int tokens[MOST_NAMED], context = qkv_segmenter_context(g);
    if (qkv_segmenter_set_threshold(g, r->threshold, &e) || qkv_segmenter_prompts(g, r->text, r->n, tokens, &e))
        return said(err, &e);
    for (int i = 0; i < r->n; i++) tokens[i] = tokens[i] > context ? tokens[i] - context : 0;
    qkv_instances *found = qkv_segmenter_run(g, p, &e);
    if (!found) return said(err, &e);
    Coco c = {.model = r->name, .threshold = qkv_segmenter_threshold(g), .text = r->text, .n = r->n, .cut = tokens};
    r->answer.len = 0;
    coco_write(&c, r->file, p, found, &r->answer);
    qkv_instances_free(found);
    return !r->answer.failed || oom(err);
}

static bool segment(void *user, qkv_segmenter *g, Err *err)
{
    qkv_picture *p = decode(user, err);
    bool ok = p && look(user, g, p, err);
    qkv_picture_free(p);
    return ok;
}

bool segment_bind(Segmenting *r, const char *name, const Model *m, Err *err)
{
    if (!m->segments) return fail(err, E_USAGE, "model '%s' does not segment: %s", name, m->no_segments);
    r->name = name;
    r->call.item = &r->item;
    r->call.n = 1;
    r->call.segment = segment;
    r->call.user = r;
    r->call.level = LEVEL_DEFAULT;
    r->item.rows = r->item.real = r->n;
    return true;
}

bool segment_write(Segmenting *r, Buf *out, Err *err)
{
    buf_add(out, r->answer.data, r->answer.len);
    return !out->failed || oom(err);
}
