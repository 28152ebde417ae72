/* What surrounds a grounding model. Contract in processor.h. */
#include "vision/processor.h"
#include <string.h>
#include "format/json.h"

static bool number_in(const json_t *o, const char *key, double lo, double hi, double *out, Err *err)
{
    const json_t *v = json_object_get(o, key);
    if (!v) return true;
    *out = json_number_value(v);
    if (json_is_number(v) && *out >= lo && *out <= hi) return true;
    return fail(err, E_FORMAT, "'%s': expected a number from %g to %g", key, lo, hi);
}

static bool three(const json_t *o, const char *key, double least, float *out, Err *err)
{
    const json_t *v = json_object_get(o, key);
    for (size_t i = 0; v && i < 3; i++) {
        const json_t *x = json_array_get(v, i);
        if (!json_is_number(x) || json_array_size(v) != 3 || json_number_value(x) < least || json_number_value(x) > 1e6)
            return fail(err, E_FORMAT, "'%s': expected three numbers from %g to 1e6", key, least);
        out[i] = (float)json_number_value(x);
    }
    return true;
}

/* One of two words; `given` stays where the key is missing. */
static bool choice(const json_t *o, const char *key, const char *no, const char *yes, bool needed, bool *given,
                   Err *err)
{
    const json_t *v = json_object_get(o, key);
    const char *word = json_string_value(v);
    if (!v && !needed) return true;
    if (!word || (strcmp(word, no) && strcmp(word, yes)))
        return fail(err, E_FORMAT, "'%s': found %s%s%s, expected '%s' or '%s'", key, word ? "'" : "",
                    word ? word : json_kind(v), word ? "'" : "", no, yes);
    *given = !strcmp(word, yes);
    return true;
}

/* An object of the file; NULL where it has none. */
static bool part_of(const json_t *o, const char *key, const json_t **part, Err *err)
{
    *part = json_object_get(o, key);
    return !*part || json_is_object(*part) ||
           fail(err, E_FORMAT, "'%s': found %s, expected an object", key, json_kind(*part));
}

bool processor_read(Processor *p, const void *bytes, size_t size, Err *err)
{
    json_t *o = json_read(bytes, size, "processor", err);
    if (!o) return false;
    const json_t *image = NULL, *text = NULL;
    double height = 0, width = 0, context = 0, vocabulary = 0;
    *p = (Processor){.mean = {0.5f, 0.5f, 0.5f}, .std = {0.5f, 0.5f, 0.5f}, .mask_threshold = 0.5};
    bool ok = choice(o, "contract", "meta", "hf", true, &p->hf, err) && part_of(o, "image", &image, err) &&
              part_of(o, "text", &text, err);
    p->threshold = p->hf ? 0.3 : 0.5;
    p->corners = p->sigmoid_first = p->hf;
    ok = ok && choice(o, "box_format", "cxcywh", "xyxy", false, &p->corners, err) &&
         choice(o, "mask_resize", "logits", "probabilities", false, &p->sigmoid_first, err);
    ok = ok && number_in(image, "height", 1, PROCESSOR_MAX_SIDE, &height, err) &&
         number_in(image, "width", 1, PROCESSOR_MAX_SIDE, &width, err) &&
         number_in(text, "length", 2, 4096, &context, err) &&
         number_in(text, "vocabulary", 514, 1 << 20, &vocabulary, err) && three(image, "mean", -1e6, p->mean, err) &&
         three(image, "std", 1e-6, p->std, err) && number_in(o, "score_threshold", 0, 1, &p->threshold, err) &&
         number_in(o, "mask_threshold", 0.001, 0.999, &p->mask_threshold, err);
    p->height = (int64_t)height;
    p->width = (int64_t)width;
    p->context = (int64_t)context;
    p->vocabulary = (int64_t)vocabulary;
    json_free(o);
    return ok;
}
