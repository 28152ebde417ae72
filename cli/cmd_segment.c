/* qkv segment MODEL --image street.jpg --text "red car": every instance of a text in a picture, or in a folder of them.
 *
 *     qkv segment sam3.pt2 --image street.jpg --text "red car" --text person -o overlay.png --coco street.json
 *     qkv segment sam3.pt2 --images photos --text person --output-dir found
 *
 * A folder's results are in --output-dir, per picture NAME: NAME.overlay.png and NAME.json, which is written last, so
 * that a picture with it is done; in the end coco.json holds them all.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli.h"
#include "serve/coco.h"

typedef struct SegmentOptions {
    Common common;
    ModelOptions model;
    List image, text;
    const char *images, *output, *output_dir, *masks, *coco, *tokenizer, *processor;
    double threshold;
    int64_t tile, overlap, batch;
} SegmentOptions;

enum {
    TILE_OVERLAP = 5 /* a fifth of the tile */,
    BATCH_PIXELS = 1 << 26 /* of pictures in memory at once, unless one has more */
};

typedef struct Segmenter {
    const SegmentOptions *o;
    Loaded m;
    qkv_segmenter *g;
    Progress bar;                 /* over pictures, or the tiles of the one picture */
    int finished, now;            /* pictures of the folder that are done, and those that are being looked at */
    int parts_done, parts, batch; /* of these: tiles, and how many the model sees at once */
    double run_ms;
} Segmenter;

/* ------------------------------------------------------------------ COCO */

/* p NULL: of no picture yet. */
static json_t *coco_of(const Segmenter *s, const char *name, const qkv_picture *p, const qkv_instances *found)
{
    Buf text = {0};
    Coco c = {.model = s->o->common.arg[0],
              .threshold = qkv_segmenter_threshold(s->g),
              .tile = s->o->tile,
              .text = s->o->text.item,
              .n = s->o->text.n};
    coco_write(&c, name, p, found, &text);
    json_t *coco = text.failed ? NULL : json_loadb(text.data, text.len, 0, NULL);
    buf_free(&text);
    return must(coco);
}

static int write_coco(const json_t *coco, const char *path)
{
    qkv_error e;
    char *text = must(json_dumps(coco, JSON_COMPACT | JSON_REAL_PRECISION(10)));
    int code = qkv_file_write(path, text, strlen(text), &e) ? problem_of(&e) : 0;
    free(text);
    return code;
}

/* ------------------------------------------------------------------ one picture */

static int make_folder(const char *path)
{
    struct stat st;
    if (!mkdir(path, 0777) || (errno == EEXIST && !stat(path, &st) && S_ISDIR(st.st_mode))) return 0;
    return problem(QKV_UNREADABLE, "cannot make the folder '%s': %s", path, strerror(errno));
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* DIR/street.jpg-001-red_car.png */
static int write_masks(const Segmenter *s, const char *name, const qkv_instances *found)
{
    qkv_error e;
    int code = make_folder(s->o->masks);
    for (int k = 0; !code && k < qkv_instances_count(found); k++) {
        char word[41] = "", *path;
        const char *text = s->o->text.item[qkv_instances_at(found, k)->prompt];
        for (size_t i = 0; text[i] && i < sizeof word - 1; i++) {
            char c = text[i];
            bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
            word[i] = plain ? c : '_';
        }
        if (asprintf(&path, "%s/%s-%03d-%s.png", s->o->masks, base_name(name), k + 1, word) < 0) must(NULL);
        if (qkv_instances_write_mask(found, k, path, &e)) code = problem_of(&e);
        free(path);
    }
    return code;
}

static int write_overlay(const Segmenter *s, const char *path, const qkv_picture *p, const qkv_instances *found)
{
    qkv_error e;
    qkv_picture *over = qkv_instances_overlay(found, p, s->o->text.item, s->o->text.n, &e);
    int code = over && !qkv_picture_write(over, path, &e) ? 0 : problem_of(&e);
    qkv_picture_free(over);
    return code;
}

static int find(Segmenter *s, const qkv_picture *const *p, int n, qkv_instances **found)
{
    qkv_error e;
    double start = now_ms();
    s->now = n;
    qkv_status code = qkv_segmenter_run_many(s->g, p, n, found, &e);
    s->finished += n;
    s->now = 0;
    s->run_ms += now_ms() - start;
    return code ? problem_of(&e) : 0;
}

static void print_table(const Segmenter *s, const qkv_instances *found)
{
    static const char *const head[] = {"text", "score", "x0", "y0", "x1", "y1", "pixels"};
    char number[32];
    Table *t = table_new("lrrrrrr");
    for (int i = 0; i < 7; i++) table_cell(t, "%s", head[i]);
    for (int k = 0; k < qkv_instances_count(found); k++) {
        const qkv_instance *in = qkv_instances_at(found, k);
        table_cell(t, "%s", s->o->text.item[in->prompt]);
        table_cell(t, "%.3f", in->score);
        for (int i = 0; i < 4; i++) table_cell(t, "%.1f", in->box[i]);
        table_cell(t, "%s", count_text(in->area, number, sizeof number));
    }
    table_print(t);
}

static int segment_one(Segmenter *s, const char *path)
{
    qkv_error e;
    qkv_instances *found = NULL;
    qkv_picture *p = qkv_picture_read(path, &e);
    progress_start(&s->bar, "segment", 1);
    int code = p ? find(s, (const qkv_picture *const[]){p}, 1, &found) : problem_of(&e);
    progress_end(&s->bar);
    json_t *coco = coco_of(s, path, code ? NULL : p, found);
    if (!code && s->o->output) code = write_overlay(s, s->o->output, p, found);
    if (!code && s->o->masks) code = write_masks(s, path, found);
    if (!code && s->o->coco) code = write_coco(coco, s->o->coco);
    if (!code && s->o->common.json) json_print(json_incref(coco));
    else if (!code) print_table(s, found);
    if (!code && !qkv_instances_count(found)) note("no instance scores above %g", qkv_segmenter_threshold(s->g));
    detail("found in %.0f ms", s->run_ms);
    json_decref(coco);
    qkv_instances_free(found);
    qkv_picture_free(p);
    return code;
}

/* ------------------------------------------------------------------ a folder */

static char *result_path(const Segmenter *s, const char *name, const char *ending)
{
    char *path;
    if (asprintf(&path, "%s/%s%s", s->o->output_dir, name, ending) < 0) must(NULL);
    return path;
}

/* What an earlier run, with the same model, texts and settings, has written of the picture; NULL. */
static json_t *done_before(const Segmenter *s, const char *name)
{
    char *path = result_path(s, name, ".json");
    json_t *was = json_load_file(path, 0, NULL), *now = coco_of(s, NULL, NULL, NULL);
    bool same = was && json_array_size(json_object_get(was, "images")) == 1 &&
                json_equal(json_object_get(was, "info"), json_object_get(now, "info")) &&
                json_equal(json_object_get(was, "categories"), json_object_get(now, "categories"));
    free(path);
    json_decref(now);
    if (same) return was;
    json_decref(was);
    return NULL;
}

static void append(json_t *all, const json_t *one)
{
    json_t *images = json_object_get(all, "images"), *list = json_object_get(all, "annotations"), *v;
    size_t i;
    int id = (int)json_array_size(images) + 1;
    json_t *image = json_deep_copy(json_array_get(json_object_get(one, "images"), 0));
    json_object_set_new(image, "id", json_integer(id));
    json_array_append_new(images, image);
    json_array_foreach(json_object_get(one, "annotations"), i, v)
    {
        json_t *copy = json_deep_copy(v);
        json_object_set_new(copy, "id", json_integer((json_int_t)json_array_size(list) + 1));
        json_object_set_new(copy, "image_id", json_integer(id));
        json_array_append_new(list, copy);
    }
}

/* Pictures of the folder that were read and go through the model together. */
typedef struct Batch {
    qkv_picture **picture;
    int *name; /* which of the names */
    int n;
    int64_t pixels;
} Batch;

/* What was found in one of them: overlay, masks, and in the end NAME.json. */
static int write_results(Segmenter *s, const char *name, const qkv_picture *p, const qkv_instances *found, json_t **one)
{
    char *overlay = result_path(s, name, ".overlay.png"), *json = result_path(s, name, ".json");
    *one = coco_of(s, name, p, found);
    int code = write_overlay(s, overlay, p, found);
    if (!code && s->o->masks) code = write_masks(s, name, found);
    if (!code) code = write_coco(*one, json);
    free(overlay);
    free(json);
    return code;
}

static int run_batch(Segmenter *s, Batch *b, const Names *names, json_t **result)
{
    qkv_instances **found = must(calloc((size_t)b->n + 1, sizeof *found));
    int code = b->n ? find(s, (const qkv_picture *const *)b->picture, b->n, found) : 0;
    s->bar.stage = "writing";
    for (int i = 0; i < b->n; i++) {
        progress_at(&s->bar, s->finished);
        if (!code) code = write_results(s, names->item[b->name[i]], b->picture[i], found[i], &result[b->name[i]]);
        qkv_instances_free(found[i]);
        qkv_picture_free(b->picture[i]);
    }
    free(found);
    b->n = 0;
    b->pixels = 0;
    return code;
}

/* Results of all pictures that can be read, result[i] of names->item[i]; those that are there stay. */
static int segment_all(Segmenter *s, const Names *names, json_t **result, int todo)
{
    qkv_error e;
    Batch b = {must(calloc((size_t)names->n + 1, sizeof *b.picture)),
               must(calloc((size_t)names->n + 1, sizeof *b.name)), 0, 0};
    int code = 0;
    progress_start(&s->bar, "segment", todo);
    for (int i = 0; !code && i < names->n; i++) {
        if (result[i]) continue;
        char *path;
        if (asprintf(&path, "%s/%s", s->o->images, names->item[i]) < 0) must(NULL);
        qkv_picture *p = qkv_picture_read(path, &e);
        free(path);
        if (!p) {
            progress_hide(&s->bar);
            warning("%s", e.message);
            s->finished++;
            continue;
        }
        b.name[b.n] = i;
        b.picture[b.n++] = p;
        b.pixels += (int64_t)qkv_picture_width(p) * qkv_picture_height(p);
        if (b.n < qkv_segmenter_batch(s->g) && b.pixels < BATCH_PIXELS) continue;
        code = run_batch(s, &b, names, result);
    }
    if (!code) code = run_batch(s, &b, names, result);
    progress_end(&s->bar);
    free(b.picture);
    free(b.name);
    return code;
}

static int segment_folder(Segmenter *s)
{
    static const char *const head[] = {"image", "instances", ""};
    Names names = {0};
    int code = images_in(s->o->images, &names), before = 0, unreadable = 0;
    if (!code) code = make_folder(s->o->output_dir);
    json_t *all = coco_of(s, NULL, NULL, NULL), **result = must(calloc((size_t)names.n + 1, sizeof *result));
    bool *was = must(calloc((size_t)names.n + 1, sizeof *was));
    for (int i = 0; !code && i < names.n; i++) before += was[i] = (result[i] = done_before(s, names.item[i])) != NULL;
    if (!code) code = segment_all(s, &names, result, names.n - before);
    Table *t = table_new("lrl");
    for (int i = 0; i < 3; i++) table_cell(t, "%s", head[i]);
    for (int i = 0; !code && i < names.n; i++) {
        table_cell(t, "%s", names.item[i]);
        if (!result[i]) table_cell(t, "%s", "");
        else table_cell(t, "%zu", json_array_size(json_object_get(result[i], "annotations")));
        table_cell(t, "%s", !result[i] ? "not readable" : was[i] ? "from before" : "");
        unreadable += !result[i];
        if (result[i]) append(all, result[i]);
    }
    char *path = result_path(s, "coco", ".json");
    if (!code) code = write_coco(all, path);
    if (!code && s->o->coco) code = write_coco(all, s->o->coco);
    if (!code && s->o->common.json) json_print(json_incref(all));
    if (!code && !s->o->common.json) table_print(t);
    else table_free(t);
    if (!code && unreadable) {
        code = problem(QKV_MISMATCH, "%d of %d images could not be read:", unreadable, names.n);
        for (int i = 0; i < names.n; i++)
            if (!result[i]) fprintf(stderr, "  %s/%s\n", s->o->images, names.item[i]);
    }
    for (int i = 0; i < names.n; i++) json_decref(result[i]);
    free(path);
    names_free(&names);
    free(was);
    free(result);
    json_decref(all);
    return code;
}

/* ------------------------------------------------------------------ the command */

static int check_options(const SegmentOptions *o)
{
    if (!o->text.n) return problem(QKV_USAGE, "--text TEXT is missing: what to look for");
    if (o->image.n == 0 && !o->images) return problem(QKV_USAGE, "--image FILE is missing, or --images DIR");
    if (o->image.n && o->images)
        return problem(QKV_USAGE, "--image is for one image, --images for a folder: use one of them");
    if (o->image.n > 1)
        return problem(QKV_USAGE, "--image was given %d times; --images DIR takes a folder of images", o->image.n);
    if (o->images && !o->output_dir)
        return problem(QKV_USAGE, "--images needs --output-dir DIR, the folder for the results");
    if (o->image.n && o->output_dir)
        return problem(QKV_USAGE, "--output-dir is for --images; -o FILE.png writes the overlay of one image");
    if (o->images && o->output) return problem(QKV_USAGE, "-o is for --image; overlays of a folder go to --output-dir");
    if (o->threshold >= 1)
        return problem(QKV_USAGE, "option '--threshold': found '%g', expected a number below 1", o->threshold);
    if (o->overlap && !o->tile) return problem(QKV_USAGE, "--overlap needs --tile");
    return 0;
}

/* Of one picture the bar is over its tiles; of a folder over pictures, those that are being looked at by the share of
 * their tiles. */
static void on_run(void *user, const char *module, double done)
{
    Segmenter *s = user;
    double parts = s->parts_done + done * (s->batch < s->parts - s->parts_done ? s->batch : s->parts - s->parts_done);
    s->bar.stage = module;
    progress_at(&s->bar, s->o->images ? s->finished + s->now * parts / s->parts : parts);
}

static void on_parts(void *user, int done, int total)
{
    Segmenter *s = user;
    s->parts_done = done;
    s->parts = total;
    s->batch = qkv_segmenter_batch(s->g);
    if (!s->o->images) s->bar.total = total;
}

static int set_prompts(Segmenter *s)
{
    qkv_error e;
    const List *text = &s->o->text;
    int *tokens = must(calloc((size_t)text->n, sizeof *tokens)), context = qkv_segmenter_context(s->g), code = 0;
    if (qkv_segmenter_prompts(s->g, text->item, text->n, tokens, &e)) code = problem_of(&e);
    for (int i = 0; !code && i < text->n; i++)
        if (tokens[i] > context)
            warning("text %d is %d tokens long; the model reads %d, the rest is cut off", i + 1, tokens[i], context);
    free(tokens);
    return code;
}

static int cmd_segment(const void *options)
{
    const SegmentOptions *o = options;
    qkv_error e;
    Segmenter s = {.o = o};
    bool bf16;
    int code = check_options(o);
    if (code || (code = model_bf16(&o->model, &bf16)) ||
        (code = model_open(&o->model, o->common.arg[0], bf16, false, &s.m)))
        return code;
    int overlap = o->overlap ? (int)o->overlap : (int)o->tile / TILE_OVERLAP;
    qkv_segment_options call = {sizeof call, o->tokenizer, o->processor, o->threshold,  (int)o->tile,
                                overlap,     on_parts,     &s,           (int)o->batch, 0};
    qkv_session_on_progress(s.m.session, on_run, &s);
    s.g = qkv_segmenter_create(s.m.model, s.m.session, &call, &e);
    code = s.g ? set_prompts(&s) : problem_of(&e);
    if (!code) code = !o->images ? segment_one(&s, o->image.item[0]) : segment_folder(&s);
    qkv_segmenter_free(s.g);
    model_close(&s.m);
    return code;
}

#define AT(field) offsetof(SegmentOptions, field)
static const Option own[] = {
    {"image", MANY, AT(image), .arg = "FILE", .help = "The image, PNG or JPEG."},
    {"images", TEXT, AT(images), .arg = "DIR",
     .help = "Segment all PNG and JPEG images of a folder; needs --output-dir. Images that cannot be read are skipped, "
             "listed at the end, and make the exit code 1. Images that an earlier run finished with the same model, "
             "texts and settings are not processed again."},
    {"text", MANY, AT(text), .arg = "TEXT", .help = "What to look for; may be given many times."},
    {"output", TEXT, AT(output), .letter = 'o', .arg = "FILE.png", .writes = true,
     .help = "Write the image with masks, boxes, scores and a legend."},
    {"output-dir", TEXT, AT(output_dir), .arg = "DIR", .writes = true, .keeps = true,
     .help =
         "Folder for the results of --images: NAME.overlay.png and NAME.json for each image, and coco.json for all."},
    {"out", TEXT, AT(output_dir), .arg = "DIR", .writes = true, .keeps = true},
    {"masks", TEXT, AT(masks), .arg = "DIR", .writes = true,
     .help = "Write the mask of every instance as IMAGE-NUMBER-TEXT.png."},
    {"coco", TEXT, AT(coco), .arg = "FILE.json", .writes = true,
     .help = "Write the instances in COCO's format, with masks as compressed run lengths."},
    {"threshold", REAL, AT(threshold), .arg = "X",
     .help = "Keep instances that score above X (default: as in the model's processor)."},
    {"tile", INTEGER, AT(tile), .arg = "N", .min = 16, .max = 1 << 14,
     .help = "Split larger images into tiles of N x N pixels and run the model on each tile. Instances that extend "
             "over "
             "several tiles are merged."},
    {"overlap", INTEGER, AT(overlap), .arg = "N", .min = 1, .max = 1 << 13,
     .help = "Minimum overlap of neighbouring tiles in pixels (default: a fifth of the tile)."},
    {"batch-size", INTEGER, AT(batch), .arg = "N", .min = 1, .max = 1024,
     .help = "Number of images, or tiles, per run of the model (default: the model's own where that is fixed, else as "
             "many as fit into 1 GiB of activations, up to 16)."},
    {"batch", INTEGER, AT(batch), .arg = "N", .min = 1, .max = 1024},
    {"tokenizer", TEXT, AT(tokenizer), .arg = "FILE",
     .help = "CLIP's merges as text, for a model file that does not contain them."},
    {"processor", TEXT, AT(processor), .arg = "FILE",
     .help = "The processor as JSON, for a model file that does not contain it; at least {\"contract\": \"meta\"} or "
             "\"hf\"."},
    {0},
};

const Command command_segment = {
    .name = "segment",
    .args = "MODEL --image FILE --text TEXT",
    .summary = "Find every instance of a text in an image",
    .text =
        "Runs a grounding model (SAM 3, exported by python -m qkv.recipes.sam3) on an image with all texts at once, "
        "prints text, score, box and area in pixels of every instance, and writes masks, an overlay or COCO's JSON "
        "where asked to. --json prints the same JSON.\n\n"
        "Texts are split by CLIP's tokenizer; images are resized and normalised, and boxes and masks scaled back to "
        "the size of the image, as the model's own processor does: \"meta\" (facebookresearch/sam3) or \"hf\" "
        "(transformers). The model file contains tokenizer and processor; --tokenizer and --processor supply them "
        "for one that does not.",
    .examples =
        "qkv segment sam3.pt2 --image street.jpg --text \"red car\" --text person -o overlay.png\ttwo texts\n"
        "qkv segment sam3.pt2 --image street.jpg --text person --masks masks --coco street.json\tmasks as files\n"
        "qkv segment sam3.pt2 --images photos --text person --output-dir found\ta folder; repeat to resume\n"
        "qkv segment sam3.pt2 --image map.png --text house --tile 1008\ta large image",
    .min_args = 1,
    .max_args = 1,
    .many_runs = true,
    .size = sizeof(SegmentOptions),
    .options = {{own},
                {load_options, AT(model)},
                {dtype_option, AT(model)},
                {skip_padding_option, AT(model)},
                {run_options, AT(model)},
                {json_option},
                {common_options}},
    .run = cmd_segment,
};
