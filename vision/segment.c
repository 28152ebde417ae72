/* The part of the public interface that finds instances of texts in pictures: a grounding model's tokenizer, pre- and
 * post-processing around a session.
 *
 *     qkv_segmenter *g = qkv_segmenter_create(model, session, NULL, &e);
 *     qkv_segmenter_prompts(g, (const char *[]){"red car", "person"}, 2, NULL, &e);
 *     qkv_instances *found = qkv_segmenter_run(g, picture, &e);
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/number.h"
#include "qkv_tools.h"
#include "qkv_vision.h"
#include "vision/bpe.h"
#include "vision/draw.h"
#include "vision/instances.h"
#include "vision/processor.h"
#include "vision/resize.h"
#include "vision/vision.h"

enum { NO_BOX = -10 /* the label that SAM 3's padding has */ };
enum { MOST_FEATURES = 256 /* pictures whose features are kept */ };
enum { BATCH_BYTES = 1 << 30, MAX_BATCH = 16 }; /* activations of a batch that is chosen here, and parts in it */

struct qkv_instances {
    Instances list;
    qkv_instance *shown;
    Buf *counts;
};

/* What the model computes from a picture alone, and the picture as it saw it. */
typedef struct Features {
    uint64_t digest;
    float *input;
    qkv_kept *results;
    size_t bytes; /* of both */
    int64_t used;
} Features;

struct qkv_segmenter {
    const qkv_model *model;
    qkv_session *session;
    qkv_segment_options o;
    Processor p;
    Bpe *bpe;
    int pixels, ids, boxes, labels; /* which input is what; -1: there is none */
    int height, width, context, prompts;
    int least, most;   /* pictures that the model takes at once */
    int fits;          /* as many of them as BATCH_BYTES hold; 0: not known yet */
    int64_t *id;       /* prompts x context */
    bool fresh;        /* id has not been given to the session, which keeps it and what follows from it */
    int room;          /* pictures that the next three have room for */
    int64_t *no_label; /* room x prompts */
    float *no_box;     /* room x prompts x 4 */
    float *input;      /* room x 3 x height x width */
    float *copy[4];    /* of outputs that are not contiguous */
    Features features[MOST_FEATURES];
    int nfeatures, current; /* current: 1 + of which the session's are; 0: of another picture */
    size_t held;            /* bytes of all */
    int64_t looked, had;
    double own_threshold;
};

/* ------------------------------------------------------------------ what comes with the model */

/* What comes with the model as an extra file, or lies in a file that the caller named. */
typedef struct Attached {
    MappedFile file;
    void *own; /* the extra file; NULL: it is `file` */
    const void *bytes;
    size_t size;
} Attached;

/* Of the file `path`, or of the model's extra file `name`. */
static bool attached_open(Attached *a, const qkv_segmenter *g, const char *path, const char *name, const char *what,
                          Err *err)
{
    *a = (Attached){0};
    if (path) {
        TRY(file_map(&a->file, path, err));
        a->bytes = a->file.data;
        a->size = (size_t)a->file.size;
        return true;
    }
    qkv_error e;
    a->bytes = a->own = qkv_model_extra_file(g->model, name, &a->size, &e);
    if (a->own) return true;
    vision_fail(err, &e);
    if (err->code != E_USAGE) return false;
    return fail(err, E_USAGE, "%s, which qkv.recipes.sam3 puts into a .pt2; give the %s as a file of its own",
                e.message, what);
}

static void attached_close(Attached *a)
{
    file_unmap(&a->file);
    qkv_free(a->own);
}

static bool read_attached(qkv_segmenter *g, Err *err)
{
    static const char processor[] = "qkv/processor.json", tokenizer[] = "qkv/tokenizer.bpe";
    Attached a;
    bool ok = attached_open(&a, g, g->o.processor, processor, "processor", err) &&
              (processor_read(&g->p, a.bytes, a.size, err) ||
               within(err, "%s", g->o.processor ? g->o.processor : processor));
    attached_close(&a);
    TRY(ok);
    ok = attached_open(&a, g, g->o.tokenizer, tokenizer, "tokenizer", err) &&
         ((g->bpe = bpe_open(a.bytes, a.size, g->p.hf ? CLIP_HF : CLIP_META, err)) ||
          within(err, "%s", g->o.tokenizer ? g->o.tokenizer : tokenizer));
    attached_close(&a);
    return ok;
}

/* The size of an axis that the model fixes; 0 where it is variable. */
static int64_t fixed_size(const qkv_segmenter *g, int input, int axis)
{
    const char *text = qkv_model_input_dim(g->model, input, axis);
    return text && *text && strspn(text, "0123456789") == strlen(text) ? parse_int(text, NULL) : 0;
}

/* A size that the model fixes, or `said`; 0 when neither is there. */
static bool settle(const qkv_segmenter *g, int input, int axis, int64_t said, const char *key, int *out, Err *err)
{
    int64_t fixed = fixed_size(g, input, axis);
    const char *name = qkv_model_input_name(g->model, input);
    if (fixed && said && fixed != said)
        return fail(err, E_USAGE, "input '%s': axis %d is %lld, the processor's %s is %lld", name, axis,
                    (long long)fixed, key, (long long)said);
    if (!fixed && !said)
        return fail(err, E_USAGE, "input '%s': axis %d is variable; the processor does not say %s", name, axis, key);
    if (fixed > PROCESSOR_MAX_SIDE)
        return fail(err, E_USAGE, "input '%s': axis %d is %lld, at most %d is supported", name, axis, (long long)fixed,
                    PROCESSOR_MAX_SIDE);
    *out = (int)(fixed ? fixed : said);
    return true;
}

/* How many pictures the model takes at once: what its file fixes, or the range of the size's symbol. */
static void find_batch(qkv_segmenter *g)
{
    int64_t lo = fixed_size(g, g->pixels, 0), hi = lo;
    const char *dim = qkv_model_input_dim(g->model, g->pixels, 0);
    if (!lo) hi = INT_MAX;
    for (int i = 0; !lo && i < qkv_model_symbol_count(g->model); i++)
        if (!strcmp(qkv_model_symbol(g->model, i, NULL, NULL), dim)) {
            qkv_model_symbol(g->model, i, &lo, &hi);
            break;
        }
    g->least = lo < 1 ? 1 : lo < INT_MAX ? (int)lo : INT_MAX;
    g->most = hi < g->least ? g->least : hi < INT_MAX ? (int)hi : INT_MAX;
}

/* Every text begins and ends with the tokenizer's last two ids. */
static bool check_vocabulary(const qkv_segmenter *g, Err *err)
{
    const char *from = g->o.tokenizer ? g->o.tokenizer : "qkv/tokenizer.bpe", *table;
    int64_t ids = bpe_vocabulary(g->bpe), rows, special = 2 * 256 + 2;
    qkv_error e;
    if (qkv_model_input_table(g->model, g->ids, &table, &rows, &e)) return vision_fail(err, &e);
    if (rows && ids > rows)
        return fail(err, E_USAGE,
                    "%s: its last id, <end>, is %lld, the model's table of embeddings '%s' has %lld rows; give the "
                    "tokenizer that the model was made with, one of %lld merges",
                    from, (long long)ids - 1, table, (long long)rows, (long long)(rows > special ? rows - special : 0));
    if (g->p.vocabulary && ids != g->p.vocabulary)
        return fail(err, E_USAGE,
                    "%s: it has %lld ids, the processor says %lld; give the tokenizer that the model was made with, "
                    "one of %lld merges",
                    from, (long long)ids, (long long)g->p.vocabulary, (long long)(g->p.vocabulary - special));
    return true;
}

/* Which input is what, by ranks and dtypes. */
static bool find_inputs(qkv_segmenter *g, Err *err)
{
    const qkv_model *m = g->model;
    g->pixels = g->ids = g->boxes = g->labels = -1;
    for (int i = 0; i < qkv_model_input_count(m); i++) {
        int rank = qkv_model_input_rank(m, i);
        qkv_dtype t = qkv_model_input_dtype(m, i);
        const char *channels = rank == 4 ? qkv_model_input_dim(m, i, 1) : "",
                   *corners = rank == 4 ? qkv_model_input_dim(m, i, 3) : "";
        if (rank == 4 && t == QKV_F32 && !strcmp(channels, "3") && g->pixels < 0) g->pixels = i;
        else if (rank == 2 && t == QKV_I64 && g->ids < 0) g->ids = i;
        else if (rank == 4 && t == QKV_F32 && !strcmp(corners, "4") && g->boxes < 0) g->boxes = i;
        else if (rank == 3 && t == QKV_I64 && g->labels < 0) g->labels = i;
        else
            return fail(err, E_USAGE,
                        "input '%s': a grounding model takes one picture (B, 3, H, W) of f32 and token ids (P, "
                        "context) of i64, and box prompts",
                        qkv_model_input_name(m, i));
    }
    if (g->pixels < 0 || g->ids < 0)
        return fail(err, E_USAGE,
                    "the model takes no %s; a grounding model takes a picture (B, 3, H, W) and token ids (P, context)",
                    g->pixels < 0 ? "picture" : "token ids");
    if (qkv_model_output_count(m) != 3 && qkv_model_output_count(m) != 4)
        return fail(err, E_USAGE,
                    "the model has %d outputs; a grounding model has logits, boxes, masks and, with one, presence",
                    qkv_model_output_count(m));
    return true;
}

static bool settle_sizes(qkv_segmenter *g, Err *err)
{
    TRY(settle(g, g->pixels, 2, g->p.height, "image height", &g->height, err) &&
        settle(g, g->pixels, 3, g->p.width, "image width", &g->width, err));
    return settle(g, g->ids, 1, g->p.context, "text length", &g->context, err);
}

qkv_segmenter *qkv_segmenter_create(const qkv_model *m, qkv_session *s, const qkv_segment_options *options,
                                    qkv_error *err)
{
    Err e = vision_begin();
    qkv_segment_options o = {0};
    if (!GIVEN(m) || !GIVEN(s) || !VERSIONED_TAKE(qkv_segment_options, batch, &o, options, &e))
        return vision_null(&e, err);
    qkv_segmenter *g = mem_zeroed(1, sizeof *g);
    if (g) {
        g->o = o;
        g->model = m;
        g->session = s;
    }
    bool ok = g || oom(&e);
    if (ok && g->o.tile && (g->o.tile < 16 || g->o.overlap < 0 || g->o.overlap > g->o.tile / 2))
        ok = fail(&e, E_USAGE,
                  "tiles of %d pixels with an overlap of %d: expected at least 16, and an overlap of at most half",
                  g->o.tile, g->o.overlap);
    ok = ok && find_inputs(g, &e) && read_attached(g, &e) && settle_sizes(g, &e) && check_vocabulary(g, &e);
    if (ok && g->o.threshold > 0) g->p.threshold = g->o.threshold;
    if (ok) g->own_threshold = g->p.threshold;
    if (ok) find_batch(g);
    qkv_error kept;
    int keep = ok && g->o.features ? g->pixels : ok ? g->ids : 0;
    if (ok && qkv_session_keep(s, qkv_model_input_name(m, keep), &kept)) ok = vision_fail(&e, &kept);
    if (ok) return g;
    qkv_segmenter_free(g);
    return vision_null(&e, err);
}

static void features_drop(qkv_segmenter *g, int i)
{
    Features *f = &g->features[i];
    g->held -= f->bytes;
    mem_free(f->input);
    qkv_kept_free(f->results);
    *f = g->features[--g->nfeatures];
    g->current = 0;
}

void qkv_segmenter_free(qkv_segmenter *g)
{
    if (!g) return;
    bpe_free(g->bpe);
    mem_free(g->id);
    mem_free(g->no_label);
    mem_free(g->no_box);
    mem_free(g->input);
    for (int i = 0; i < 4; i++) mem_free(g->copy[i]);
    while (g->nfeatures) features_drop(g, g->nfeatures - 1);
    mem_free(g);
}

void qkv_segmenter_features(const qkv_segmenter *g, int64_t *looked, int64_t *had)
{
    if (looked) *looked = g ? g->looked : 0;
    if (had) *had = g ? g->had : 0;
}

double qkv_segmenter_threshold(const qkv_segmenter *g) { return g ? g->p.threshold : 0; }

qkv_status qkv_segmenter_set_threshold(qkv_segmenter *g, double x, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(g)) return vision_give(&e, err);
    if (!(x >= 0 && x < 1)) {
        fail(&e, E_USAGE, "a threshold of %g, expected 0 or a number between 0 and 1", x);
        return vision_give(&e, err);
    }
    g->p.threshold = x > 0 ? x : g->own_threshold;
    return QKV_OK;
}

int qkv_segmenter_context(const qkv_segmenter *g) { return g ? g->context : 0; }

qkv_status qkv_segmenter_prompts(qkv_segmenter *g, const char *const *texts, int n, int *tokens, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(g) || !GIVEN_TEXTS(texts, n)) return vision_give(&e, err);
    size_t count, rows = n > 0 ? (size_t)n : 0;
    bool ok = rows || fail(&e, E_USAGE, "no text to look for");
    int64_t *id = ok && mul_size(rows, (size_t)g->context, &count) ? mem_zeroed(count, sizeof *id) : NULL;
    if (ok && !id) ok = oom(&e);
    for (int i = 0; ok && i < n; i++) {
        int need = bpe_encode(g->bpe, texts[i], id + (size_t)i * (size_t)g->context, g->context, &e);
        if (need == 2) ok = fail(&e, E_USAGE, "text %d has no tokens: it names nothing to look for", i + 1);
        else ok = need > 2 || within(&e, "text %d", i + 1);
        if (ok && tokens) tokens[i] = need;
    }
    if (!ok) {
        mem_free(id);
        return vision_give(&e, err);
    }
    mem_free(g->id);
    g->id = id;
    g->prompts = n;
    g->fresh = true;
    g->room = g->fits = 0;
    return QKV_OK;
}

int qkv_segmenter_batch(const qkv_segmenter *g)
{
    if (!g) return 0;
    if (g->o.features) return g->least;
    int n = g->o.batch ? g->o.batch : g->fits ? g->fits : 1;
    return n < g->least ? g->least : n > g->most ? g->most : n;
}

/* ------------------------------------------------------------------ one run */

/* What the model looks at: (x, y, w, h) of a picture, whose instances go to `list`. */
typedef struct Part {
    const Image *im;
    int x, y, w, h;
    Instances *list;
} Part;

/* Output i as contiguous f32 with `rank` axes of the sizes `want` (0: any); a copy where it lies otherwise. */
static bool output(qkv_segmenter *g, int i, int rank, const int64_t *want, qkv_tensor *t, Err *err)
{
    static const char *const what[] = {"logits (N, queries) or (N, queries, 1)", "boxes (N, queries, 4)",
                                       "masks (N, queries, h, w)", "presence (N, 1)"};
    qkv_error e;
    if (qkv_session_output(g->session, i, t, &e)) return vision_fail(err, &e);
    bool ok = t->dtype == QKV_F32 && t->rank == rank, contiguous = true;
    int64_t step = 1;
    for (int k = rank - 1; ok && k >= 0; k--) {
        ok = (!want[k] || t->shape[k] == want[k]) && t->shape[k] > 0;
        contiguous &= t->strides[k] == step || t->shape[k] == 1;
        step *= t->shape[k];
    }
    if (!ok)
        return fail(err, E_USAGE, "output %d is %s of rank %d, expected %s of f32", i, qkv_dtype_name(t->dtype),
                    t->rank, what[i]);
    if (contiguous) return true;
    float *copy = mem_grow(g->copy[i], (size_t)step * sizeof *copy);
    if (!copy) return oom(err);
    g->copy[i] = copy;
    for (int64_t at = 0; at < step; at++) {
        int64_t rest = at, from = 0;
        for (int k = rank - 1; k >= 0; rest /= t->shape[k--]) from += rest % t->shape[k] * t->strides[k];
        copy[at] = ((const float *)t->data)[from];
    }
    t->data = copy;
    return true;
}

/* Of `fed` pictures the first n; row b * prompts + p is picture b with prompt p. */
static bool read_outputs(qkv_segmenter *g, const Part *part, int n, int fed, Err *err)
{
    qkv_tensor logits, boxes, masks, presence;
    int64_t rows = (int64_t)fed * g->prompts;
    TRY(output(g, 2, 4, (int64_t[]){rows, 0, 0, 0}, &masks, err));
    int64_t queries = masks.shape[1], mh = masks.shape[2], mw = masks.shape[3];
    if (mh > PROCESSOR_MAX_SIDE || mw > PROCESSOR_MAX_SIDE)
        return fail(err, E_USAGE, "masks of %lld x %lld, at most %d are supported", (long long)mw, (long long)mh,
                    PROCESSOR_MAX_SIDE);
    Err other = {0};
    TRY(output(g, 0, 2, (int64_t[]){rows, queries}, &logits, &other) ||
        output(g, 0, 3, (int64_t[]){rows, queries, 1}, &logits, err));
    TRY(output(g, 1, 3, (int64_t[]){rows, queries, 4}, &boxes, err));
    bool has_presence = qkv_model_output_count(g->model) == 4;
    TRY(!has_presence || output(g, 3, 2, (int64_t[]){rows, 1}, &presence, err));
    for (int64_t r = 0; r < (int64_t)n * g->prompts; r++) {
        const Part *of = &part[r / g->prompts];
        InstanceRule rule = {.width = of->w,
                             .height = of->h,
                             .x = of->x,
                             .y = of->y,
                             .full_width = of->im->width,
                             .full_height = of->im->height,
                             .threshold = g->p.threshold,
                             .mask_threshold = g->p.mask_threshold,
                             .corners = g->p.corners,
                             .sigmoid_first = g->p.sigmoid_first};
        GroundingOutputs out = {(float *)logits.data + r * queries,
                                (float *)boxes.data + r * queries * 4,
                                (float *)masks.data + r * queries * mh * mw,
                                has_presence ? ((float *)presence.data)[r] : INFINITY,
                                queries,
                                (int)mh,
                                (int)mw};
        TRY(instances_add(of->list, &rule, &out, (int)(r % g->prompts), err));
    }
    return true;
}

static qkv_status set(qkv_segmenter *g, int input, const qkv_tensor *t, qkv_error *e)
{
    return input < 0 ? QKV_OK : qkv_session_set_input(g->session, qkv_model_input_name(g->model, input), t, e);
}

static bool make_room(qkv_segmenter *g, int n, Err *err)
{
    size_t pixels, rows;
    if (n <= g->room) return true;
    mem_free(g->input);
    mem_free(g->no_box);
    mem_free(g->no_label);
    bool ok = mul_size(3 * (size_t)g->height * (size_t)g->width, (size_t)n, &pixels) &&
              mul_size((size_t)g->prompts, (size_t)n, &rows);
    g->input = ok ? mem_alloc(pixels * sizeof *g->input) : NULL;
    g->no_box = ok ? mem_zeroed(rows, 4 * sizeof *g->no_box) : NULL;
    g->no_label = ok ? mem_zeroed(rows, sizeof *g->no_label) : NULL;
    g->room = g->input && g->no_box && g->no_label ? n : 0;
    for (size_t i = 0; g->room && i < rows; i++) g->no_label[i] = NO_BOX;
    return g->room || oom(err);
}

static int features_find(const qkv_segmenter *g, uint64_t digest, size_t bytes)
{
    for (int i = 0; i < g->nfeatures; i++)
        if (g->features[i].digest == digest && !memcmp(g->features[i].input, g->input, bytes)) return i;
    return -1;
}

/* Those of the picture that the session saw last; without an effect where there is no room for them. */
static void features_add(qkv_segmenter *g, uint64_t digest, size_t bytes)
{
    qkv_error e;
    Features f = {.digest = digest, .results = qkv_session_kept(g->session, &e), .used = g->looked};
    f.bytes = bytes + qkv_kept_bytes(f.results);
    if (f.results && f.bytes <= g->o.features) f.input = mem_alloc(bytes);
    if (!f.input) {
        qkv_kept_free(f.results);
        return;
    }
    memcpy(f.input, g->input, bytes);
    while (g->nfeatures && (g->nfeatures == MOST_FEATURES || g->held > g->o.features - f.bytes)) {
        int oldest = 0;
        for (int i = 1; i < g->nfeatures; i++)
            if (g->features[i].used < g->features[oldest].used) oldest = i;
        features_drop(g, oldest);
    }
    g->features[g->nfeatures++] = f;
    g->held += f.bytes;
    g->current = g->nfeatures;
}

/* One run, in which the picture's features are computed only where they are not known. */
static bool run_session(qkv_segmenter *g, const qkv_tensor *pixels, size_t bytes, qkv_error *e)
{
    uint64_t digest = g->o.features ? digest_xxh64(g->input, bytes, 0) : 0;
    int at = g->o.features ? features_find(g, digest, bytes) : -1, current = g->current;
    g->current = 0; /* until the run has ended well */
    g->looked++;
    bool stays = at >= 0 && current == at + 1;
    if (!stays && set(g, g->pixels, pixels, e)) return false;
    if (at >= 0 && !stays && qkv_session_use_kept(g->session, g->features[at].results, e)) return false;
    if (qkv_session_run(g->session, e)) return false;
    if (at >= 0) {
        g->features[at].used = g->looked;
        g->current = at + 1;
        g->had++;
    } else if (g->o.features) features_add(g, digest, bytes);
    return true;
}

/* n parts in one run of the model; where that takes no fewer than `fed`, it sees the first part again. */
static bool run_parts(qkv_segmenter *g, const Part *part, int n, int fed, Err *err)
{
    size_t each = 3 * (size_t)g->height * (size_t)g->width;
    TRY(make_room(g, fed, err));
    for (int i = 0; i < n; i++)
        TRY(picture_to_input(part[i].im, part[i].x, part[i].y, part[i].w, part[i].h, g->height, g->width, g->p.mean,
                             g->p.std, g->p.hf, g->input + (size_t)i * each, err));
    for (int i = n; i < fed; i++) memcpy(g->input + (size_t)i * each, g->input, each * sizeof *g->input);
    int64_t pixel_shape[] = {fed, 3, g->height, g->width}, id_shape[] = {g->prompts, g->context},
            box_shape[] = {fed, g->prompts, 1, 4};
    qkv_tensor pixels = {QKV_F32, 4, pixel_shape, NULL, g->input}, ids = {QKV_I64, 2, id_shape, NULL, g->id};
    qkv_tensor boxes = {QKV_F32, 4, box_shape, NULL, g->no_box}, labels = {QKV_I64, 3, box_shape, NULL, g->no_label};
    qkv_error e;
    if ((g->fresh && set(g, g->ids, &ids, &e)) || set(g, g->boxes, &boxes, &e) || set(g, g->labels, &labels, &e) ||
        !run_session(g, &pixels, each * sizeof *g->input, &e))
        return vision_fail(err, &e);
    g->fresh = false;
    qkv_stats stats = {.struct_size = sizeof stats};
    if (qkv_session_stats(g->session, &stats, &e)) return fail(err, E_USAGE, "%s", e.message);
    size_t one = (stats.activation_bytes + stats.scratch_bytes) / (size_t)fed + 1;
    if (!g->fits)
        g->fits = one > BATCH_BYTES ? 1 : BATCH_BYTES / one < MAX_BATCH ? (int)(BATCH_BYTES / one) : MAX_BATCH;
    return true;
}

/* All parts, as many at once as the batch has; one that was chosen here and is too large after all is halved. */
static bool run_batches(qkv_segmenter *g, const Part *part, int n, Err *err)
{
    if (g->o.progress) g->o.progress(g->o.progress_user, 0, n);
    for (int done = 0, now; done < n;) {
        now = qkv_segmenter_batch(g) < n - done ? qkv_segmenter_batch(g) : n - done;
        int fed = now > g->least ? now : g->least;
        if (!run_parts(g, part + done, now, fed, err)) {
            if (err->code != E_LIMIT || g->o.batch || now <= g->least) return false;
            *err = (Err){0};
            g->fits = now / 2;
            continue;
        }
        TRY(read_outputs(g, part + done, now, fed, err));
        done += now;
        if (g->o.progress) g->o.progress(g->o.progress_user, done, n);
    }
    return true;
}

/* How many tiles cover a side, and where tile i begins: evenly spread, neighbours share at least `overlap`. */
static int tiles_along(int side, int tile, int overlap)
{
    return side <= tile ? 1 : (side - overlap + tile - overlap - 1) / (tile - overlap);
}
static int tile_at(int i, int n, int side, int tile)
{
    return n == 1 ? 0 : (int)((int64_t)(side - tile) * i / (n - 1));
}

static int by_prompt(const void *a, const void *b)
{
    const Instance *x = a, *y = b;
    if (x->prompt != y->prompt) return x->prompt < y->prompt ? -1 : 1;
    return x->score < y->score ? 1 : -(x->score > y->score);
}

/* The parts of a picture into part (NULL: only counted); their number. */
static size_t cut(const qkv_segmenter *g, const Image *im, Instances *list, Part *part)
{
    int tile = g->o.tile ? g->o.tile : INT_MAX, across = tiles_along(im->width, tile, g->o.overlap),
        down = tiles_along(im->height, tile, g->o.overlap);
    int w = across > 1 ? tile : im->width, h = down > 1 ? tile : im->height;
    for (int i = 0; part && i < across * down; i++)
        part[i] = (Part){im,  tile_at(i % across, across, im->width, w), tile_at(i / across, down, im->height, h), w, h,
                         list};
    return (size_t)across * (size_t)down;
}

static bool finish(qkv_instances *out, bool tiles, Err *err)
{
    if (tiles) {
        TRY(instances_merge(&out->list, 0.5, err));
        qsort(out->list.item, (size_t)out->list.n, sizeof *out->list.item, by_prompt);
    }
    out->shown = mem_zeroed((size_t)out->list.n + 1, sizeof *out->shown);
    out->counts = mem_zeroed((size_t)out->list.n + 1, sizeof *out->counts);
    if (!out->shown || !out->counts) return oom(err);
    for (int i = 0; i < out->list.n; i++) {
        const Instance *in = &out->list.item[i];
        if (!instance_counts(in, &out->counts[i])) return oom(err);
        out->shown[i] = (qkv_instance){
            in->prompt, in->score, {in->box[0], in->box[1], in->box[2], in->box[3]}, in->area, out->counts[i].data};
    }
    return true;
}

qkv_status qkv_segmenter_run_many(qkv_segmenter *g, const qkv_picture *const *p, int n, qkv_instances **found,
                                  qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(g) || !GIVEN_LIST(p, n) || !GIVEN_LIST(found, n)) return vision_give(&e, err);
    size_t parts = 0, at = 0;
    for (int i = 0; i < n; i++)
        if (!GIVEN(p[i])) return vision_give(&e, err);
    bool ok = g->prompts || fail(&e, E_USAGE, "no text to look for");
    for (int i = 0; i < n; i++) {
        parts += cut(g, &p[i]->im, NULL, NULL);
        found[i] = mem_zeroed(1, sizeof **found);
        ok = ok && (found[i] || oom(&e));
    }
    if (ok && parts > INT_MAX) ok = fail(&e, E_LIMIT, "%zu tiles are too many", parts);
    Part *part = ok ? mem_zeroed(parts + 1, sizeof *part) : NULL;
    ok = ok && (part || oom(&e));
    for (int i = 0; ok && i < n; i++) at += cut(g, &p[i]->im, &found[i]->list, part + at);
    ok = ok && run_batches(g, part, (int)parts, &e);
    for (int i = 0; ok && i < n; i++) ok = finish(found[i], cut(g, &p[i]->im, NULL, NULL) > 1, &e);
    mem_free(part);
    if (ok) return QKV_OK;
    for (int i = 0; i < n; i++) {
        qkv_instances_free(found[i]);
        found[i] = NULL;
    }
    return vision_give(&e, err);
}

qkv_instances *qkv_segmenter_run(qkv_segmenter *g, const qkv_picture *p, qkv_error *err)
{
    qkv_instances *found = NULL;
    qkv_segmenter_run_many(g, &p, 1, &found, err);
    return found;
}

void qkv_instances_free(qkv_instances *i)
{
    if (!i) return;
    for (int k = 0; i->counts && k < i->list.n; k++) buf_free(&i->counts[k]);
    instances_free(&i->list);
    mem_free(i->shown);
    mem_free(i->counts);
    mem_free(i);
}

int qkv_instances_count(const qkv_instances *i) { return i ? i->list.n : 0; }
const qkv_instance *qkv_instances_at(const qkv_instances *i, int k)
{
    return i && k >= 0 && k < i->list.n ? &i->shown[k] : NULL;
}
void qkv_instances_mask(const qkv_instances *i, int k, uint8_t *out)
{
    if (i && out && k >= 0 && k < i->list.n) instance_mask(&i->list.item[k], out);
}

qkv_status qkv_instances_write_mask(const qkv_instances *i, int k, const char *path, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(i) || !GIVEN(path)) return vision_give(&e, err);
    if (k < 0 || k >= i->list.n) {
        fail(&e, E_USAGE, "instance %d: there are %d", k, i->list.n);
        return vision_give(&e, err);
    }
    const Instance *in = &i->list.item[k];
    size_t n = (size_t)in->width * (size_t)in->height;
    Image im = {in->width, in->height, 1, mem_alloc(n)};
    bool ok = im.pixels || oom(&e);
    if (ok) instance_mask(in, im.pixels);
    for (size_t at = 0; ok && at < n; at++) im.pixels[at] = im.pixels[at] ? 255 : 0;
    ok = ok && image_write_png(&im, path, &e);
    image_free(&im);
    return ok ? QKV_OK : vision_give(&e, err);
}

qkv_picture *qkv_instances_overlay(const qkv_instances *i, const qkv_picture *p, const char *const *texts, int n,
                                   qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(i) || !GIVEN(p) || !GIVEN_TEXTS(texts, n)) return vision_null(&e, err);
    qkv_picture *out = mem_zeroed(1, sizeof *out);
    bool ok = out || oom(&e);
    for (int k = 0; ok && k < i->list.n; k++)
        if (i->list.item[k].width != p->im.width || i->list.item[k].height != p->im.height ||
            i->list.item[k].prompt >= n)
            ok = fail(&e, E_USAGE, "the instances are not of this picture and these texts");
    if (ok && picture_overlay(&p->im, &i->list, texts, n, &out->im, &e)) return out;
    mem_free(out);
    return vision_null(&e, err);
}
