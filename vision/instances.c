/* Instances. Contract in instances.h. The resizing is PyTorch's upsample_bilinear2d (aten/native/UpSample.h:
 * area_pixel_compute_source_index), the compressed runs are those of cocoapi (common/maskApi.c: rleToString).
 */
#include "base/vec.h"
#include "vision/instances.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/mem.h"

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

void instances_free(Instances *list)
{
    for (int i = 0; i < list->n; i++) mem_free(list->item[i].run);
    mem_free(list->item);
    *list = (Instances){0};
}

/* ------------------------------------------------------------------ runs */

typedef struct Runs {
    uint32_t *run;
    int n;
    int64_t area;
    bool on, failed; /* on: the last run is of 1s */
} Runs;

static void push(Runs *r, uint32_t length)
{
    uint32_t *more = vec_grow(r->run, r->n, sizeof *more);
    if (!more) {
        r->failed = true;
        return;
    }
    r->run = more;
    r->run[r->n++] = length;
}

/* `length` more pixels of one kind. */
static void extend(Runs *r, bool on, uint32_t length)
{
    if (!length) return;
    if (!r->n) push(r, 0);
    if (on != r->on) {
        push(r, 0);
        r->on = on;
    }
    if (r->failed) return;
    r->run[r->n - 1] += length;
    if (on) r->area += length;
}

typedef struct Axis {
    int *at, *next;
    float *w; /* of `next`; 1 - w of `at` */
} Axis;

static bool axis_make(Axis *a, int in, int out)
{
    float scale = (float)in / (float)out;
    a->at = mem_alloc((size_t)out * sizeof *a->at);
    a->next = mem_alloc((size_t)out * sizeof *a->next);
    a->w = mem_alloc((size_t)out * sizeof *a->w);
    if (!a->at || !a->next || !a->w) return false;
    for (int i = 0; i < out; i++) {
        float x = scale * ((float)i + 0.5f) - 0.5f;
        if (x < 0) x = 0;
        a->at[i] = (int)x < in - 1 ? (int)x : in - 1;
        a->next[i] = a->at[i] + (a->at[i] < in - 1);
        a->w[i] = x - (float)a->at[i];
        if (a->w[i] > 1) a->w[i] = 1;
    }
    return true;
}

static void axis_free(Axis *a)
{
    mem_free(a->at);
    mem_free(a->next);
    mem_free(a->w);
}

/* Column by column, as the runs go: one column of the small mask between its neighbours, then that stretched. */
static void mask_runs(Runs *r, const InstanceRule *rule, const float *mask, int mh, int mw, const Axis *ax,
                      const Axis *ay, float *column)
{
    int full_h = rule->full_height ? rule->full_height : rule->height,
        full_w = rule->full_width ? rule->full_width : rule->width;
    float cut = (float)(rule->sigmoid_first ? rule->mask_threshold
                                            : log(rule->mask_threshold / (1 - rule->mask_threshold)));
    uint32_t below = (uint32_t)(full_h - rule->y - rule->height);
    extend(r, false, (uint32_t)rule->x * (uint32_t)full_h);
    for (int x = 0; x < rule->width; x++) {
        const float *left = mask + ax->at[x], *right = mask + ax->next[x];
        float w = ax->w[x];
        for (int y = 0; y < mh; y++)
            column[y] = (1 - w) * left[(size_t)y * (size_t)mw] + w * right[(size_t)y * (size_t)mw];
        extend(r, false, (uint32_t)rule->y);
        int since = 0;
        bool on = false;
        for (int y = 0; y < rule->height; y++) {
            float v = (1 - ay->w[y]) * column[ay->at[y]] + ay->w[y] * column[ay->next[y]];
            if ((v > cut) == on) continue;
            extend(r, on, (uint32_t)(y - since));
            on = !on;
            since = y;
        }
        extend(r, on, (uint32_t)(rule->height - since));
        extend(r, false, below);
    }
    extend(r, false, (uint32_t)(full_w - rule->x - rule->width) * (uint32_t)full_h);
}

/* ------------------------------------------------------------------ which */

typedef struct Kept {
    float score;
    int64_t query;
} Kept;

static int better(const void *a, const void *b)
{
    const Kept *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->query < y->query ? -1 : x->query > y->query;
}

static bool room(Instances *list, Err *err)
{
    Instance *more = vec_grow(list->item, list->n, sizeof *more);
    if (!more) return oom(err);
    list->item = more;
    return true;
}

static void place_box(const InstanceRule *rule, const float *b, double *box)
{
    double w = rule->width, h = rule->height;
    double x0 = (double)b[0], y0 = (double)b[1], x1 = (double)b[2], y1 = (double)b[3];
    if (!rule->corners) {
        x0 = (double)b[0] - 0.5 * (double)b[2];
        y0 = (double)b[1] - 0.5 * (double)b[3];
        x1 = (double)b[0] + 0.5 * (double)b[2];
        y1 = (double)b[1] + 0.5 * (double)b[3];
    }
    box[0] = rule->x + x0 * w;
    box[1] = rule->y + y0 * h;
    box[2] = rule->x + x1 * w;
    box[3] = rule->y + y1 * h;
}

bool instances_add(Instances *list, const InstanceRule *rule, const GroundingOutputs *out, int prompt, Err *err)
{
    size_t plane = (size_t)out->mask_height * (size_t)out->mask_width;
    Kept *kept = mem_zeroed((size_t)out->queries + 1, sizeof *kept);
    float *column = mem_alloc((size_t)out->mask_height * sizeof *column), *chance = mem_alloc(plane * sizeof *chance);
    Axis ax = {0}, ay = {0};
    bool ok = axis_make(&ax, out->mask_width, rule->width) && axis_make(&ay, out->mask_height, rule->height) && kept &&
              column && chance;
    if (!ok) oom(err);
    int n = 0;
    for (int64_t q = 0; ok && q < out->queries; q++) {
        float score = sigmoid(out->logits[q]) * sigmoid(out->presence);
        if ((double)score > rule->threshold) kept[n++] = (Kept){score, q};
    }
    if (ok) qsort(kept, (size_t)n, sizeof *kept, better);
    for (int i = 0; ok && i < n; i++) {
        const float *mask = out->masks + (size_t)kept[i].query * plane;
        if (!(ok = room(list, err))) break;
        if (rule->sigmoid_first) {
            for (size_t k = 0; k < plane; k++) chance[k] = sigmoid(mask[k]);
            mask = chance;
        }
        Runs r = {0};
        mask_runs(&r, rule, mask, out->mask_height, out->mask_width, &ax, &ay, column);
        if (r.failed) {
            mem_free(r.run);
            ok = oom(err);
            break;
        }
        Instance *in = &list->item[list->n++];
        *in = (Instance){.prompt = prompt,
                         .score = (double)kept[i].score,
                         .area = r.area,
                         .run = r.run,
                         .runs = r.n,
                         .width = rule->full_width ? rule->full_width : rule->width,
                         .height = rule->full_height ? rule->full_height : rule->height};
        in->seen[0] = rule->x;
        in->seen[1] = rule->y;
        in->seen[2] = rule->x + rule->width;
        in->seen[3] = rule->y + rule->height;
        place_box(rule, out->boxes + 4 * kept[i].query, in->box);
    }
    axis_free(&ax);
    axis_free(&ay);
    mem_free(kept);
    mem_free(column);
    mem_free(chance);
    return ok;
}

/* ------------------------------------------------------------------ what can be done with one */

void instance_mask(const Instance *in, uint8_t *out)
{
    size_t at = 0, h = (size_t)in->height, w = (size_t)in->width;
    memset(out, 0, w * h);
    for (int k = 0; k < in->runs; at += in->run[k++]) {
        uint8_t *p = out + at % h * w + at / h;
        size_t y = at % h;
        for (uint32_t i = 0; k & 1 && i < in->run[k]; i++) {
            *p = 1;
            p += w;
            if (++y == h) { /* on top of the next column */
                y = 0;
                p -= w * h - 1;
            }
        }
    }
}

bool instance_counts(const Instance *in, Buf *out)
{
    for (int i = 0; i < in->runs; i++) {
        int64_t x = (int64_t)in->run[i] - (i > 2 ? (int64_t)in->run[i - 2] : 0);
        for (bool more = true; more;) {
            char c = (char)(x & 31);
            x >>= 5; /* five bits a character; the sign goes on, until the rest is nothing else */
            more = c & 16 ? x != -1 : x != 0;
            c = (char)((more ? c | 32 : c) + 48);
            buf_add(out, &c, 1);
        }
    }
    return !out->failed;
}

/* Both masks at once: how many pixels are in both, and their union's runs. */
static int64_t overlap(const Instance *a, const Instance *b, Runs *both)
{
    int64_t common = 0;
    uint32_t left_a = a->runs ? a->run[0] : 0, left_b = b->runs ? b->run[0] : 0;
    for (int i = 0, k = 0; i < a->runs && k < b->runs;) {
        uint32_t step = left_a < left_b ? left_a : left_b;
        if (i & k & 1) common += step;
        if (both) extend(both, (i | k) & 1, step);
        left_a -= step;
        left_b -= step;
        if (!left_a && ++i < a->runs) left_a = a->run[i];
        if (!left_b && ++k < b->runs) left_b = b->run[k];
    }
    return common;
}

/* Pixels of the mask in columns x0 .. x1 and rows y0 .. y1. */
static int64_t area_within(const Instance *in, const int *part)
{
    int64_t area = 0, at = 0, h = in->height;
    for (int k = 0; k < in->runs; k++) {
        for (int64_t left = in->run[k], step; left > 0; left -= step, at += step) {
            int64_t x = at / h, y = at % h, last;
            step = left < h - y ? left : h - y; /* the part in one column */
            last = y + step < part[3] ? y + step : part[3];
            if (k & 1 && x >= part[0] && x < part[2] && last > (y > part[1] ? y : part[1]))
                area += last - (y > part[1] ? y : part[1]);
            if (!(k & 1) && step < left) step = left; /* zeros need no columns */
        }
    }
    return area;
}

/* One thing, seen in two tiles? Where both looked, the masks agree. */
static bool same_thing(const Instance *a, const Instance *b, double share)
{
    int part[4];
    for (int k = 0; k < 4; k++) part[k] = (k < 2) == (a->seen[k] > b->seen[k]) ? a->seen[k] : b->seen[k];
    if (a->prompt != b->prompt || part[0] >= part[2] || part[1] >= part[3] || !memcmp(a->seen, b->seen, sizeof a->seen))
        return false;
    int64_t common = overlap(a, b, NULL);
    if (!common) return false;
    int64_t in_a = area_within(a, part), in_b = area_within(b, part);
    return (double)common > share * (double)(in_a < in_b ? in_a : in_b);
}

static bool join(Instance *a, Instance *b, Err *err)
{
    Runs both = {0};
    overlap(a, b, &both);
    if (both.failed) {
        mem_free(both.run);
        return oom(err);
    }
    mem_free(a->run);
    mem_free(b->run);
    b->run = NULL;
    a->run = both.run;
    a->runs = both.n;
    a->area = both.area;
    a->score = fmax(a->score, b->score);
    for (int k = 0; k < 4; k++) {
        a->box[k] = k < 2 ? fmin(a->box[k], b->box[k]) : fmax(a->box[k], b->box[k]);
        a->seen[k] = (k < 2) == (a->seen[k] < b->seen[k]) ? a->seen[k] : b->seen[k];
    }
    return true;
}

bool instances_merge(Instances *list, double share, Err *err)
{
    for (int i = 0; i < list->n; i++)
        for (int k = i + 1; k < list->n;) {
            Instance *a = &list->item[i], *b = &list->item[k];
            if (!same_thing(a, b, share)) {
                k++;
                continue;
            }
            TRY(join(a, b, err));
            memmove(b, b + 1, (size_t)(list->n - k - 1) * sizeof *b);
            list->n--;
            k = i + 1; /* the union may meet what its parts did not */
        }
    return true;
}
