/* A model as a decoder: tokens in, logits of the next token out, whatever form its cache has. Contract in generate.h.
 *
 *     past      keys and values are inputs and outputs: fed from run to run (qkv_session_feed)
 *     buffers   the model writes them (StaticCache), at positions that it is given
 *     none      it keeps nothing: every run is on all tokens
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "generate.h"

const char *const cache_names[] = {"past", "buffers", "none"};

static const char *const ids_names[] = {"input_ids", "ids", "tokens", "decoder_input_ids", NULL};
static const char *const position_names[] = {"cache_position", "position_ids", "positions", "position", NULL};
static const char *const mask_names[] = {"attention_mask", "mask", "input_mask", NULL};

static bool one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(name, *names)) return true;
    return false;
}

/* ------------------------------------------------------------------ what is what */

static int find_inputs(Decoder *d)
{
    const qkv_model *m = d->m->model;
    d->ids = d->position = d->mask = -1;
    for (int i = 0; i < qkv_model_input_count(m); i++) {
        const char *name = qkv_model_input_name(m, i);
        if (one_of(name, ids_names)) d->ids = i;
        else if (one_of(name, position_names)) d->position = i;
        else if (one_of(name, mask_names)) d->mask = i;
    }
    if (d->ids < 0 && qkv_model_input_count(m) == 1) d->ids = 0;
    if (d->ids < 0) return problem(QKV_USAGE, "the model has no input 'input_ids' (or ids, tokens)");
    if (qkv_model_input_rank(m, d->ids) != 2)
        return problem(QKV_USAGE, "input '%s' has rank %d, expected (batch, tokens)", qkv_model_input_name(m, d->ids),
                       qkv_model_input_rank(m, d->ids));
    if (qkv_model_input_dtype(m, d->ids) != QKV_I64 && qkv_model_input_dtype(m, d->ids) != QKV_I32)
        return problem(QKV_USAGE, "input '%s' is %s, expected ids (i64 or i32): is it a causal language model?",
                       qkv_model_input_name(m, d->ids), qkv_dtype_name(qkv_model_input_dtype(m, d->ids)));
    int64_t least;
    input_dim_range(m, d->ids, 0, &d->rows, &least);
    input_dim_range(m, d->ids, 1, &least, &d->most);
    if (d->rows < 1) d->rows = 1;
    return 0;
}

static int find_logits(Decoder *d)
{
    const qkv_model *m = d->m->model;
    d->logits = 0;
    for (int i = 0; i < qkv_model_output_count(m); i++)
        if (!strcmp(qkv_model_output_label(m, i), "logits")) d->logits = i;
    return qkv_model_output_count(m) ? 0 : problem(QKV_USAGE, "the model has no output");
}

/* The output that input `name` is by its name: "past_key_0" and "present_key_0", "past_key_values.0.key" and
 * "present.0.key" or "present_key_values.0.key". -1: none. */
static int present_of(const qkv_model *m, const char *name)
{
    static const char *const words[][2] = {{"past_key_values", "present"},
                                           {"past_key_values", "present_key_values"},
                                           {"past", "present"},
                                           {"past", "new"}};
    char want[256];
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        const char *at = strstr(name, words[w][0]);
        if (!at) continue;
        snprintf(want, sizeof want, "%.*s%s%s", (int)(at - name), name, words[w][1], at + strlen(words[w][0]));
        for (int i = 0; i < qkv_model_output_count(m); i++)
            if (!strcmp(qkv_model_output_label(m, i), want) || !strcmp(qkv_model_output_name(m, i), want)) return i;
    }
    return -1;
}

/* The output of --feed INPUT=OUTPUT for an input; NULL: there is none. */
static const char *pair_of(const List *pairs, const char *input)
{
    for (int i = 0; i < pairs->n; i++) {
        const char *gap = strchr(pairs->item[i], '=');
        if (strlen(input) == (size_t)(gap - pairs->item[i]) && !strncmp(pairs->item[i], input, strlen(input)))
            return gap + 1;
    }
    return NULL;
}

static int check_pairs(const qkv_model *m, const List *pairs)
{
    for (int i = 0; i < pairs->n; i++) {
        const char *gap = strchr(pairs->item[i], '=');
        if (!gap || gap == pairs->item[i] || !gap[1])
            return problem(QKV_USAGE, "option '--feed': found '%s', expected INPUT=OUTPUT", pairs->item[i]);
        bool found = false;
        for (int k = 0; k < qkv_model_input_count(m); k++) {
            const char *name = qkv_model_input_name(m, k);
            found |= strlen(name) == (size_t)(gap - pairs->item[i]) && !strncmp(pairs->item[i], name, strlen(name));
        }
        if (!found)
            return problem(QKV_USAGE, "option '--feed': no input is called '%.*s'", (int)(gap - pairs->item[i]),
                           pairs->item[i]);
    }
    return 0;
}

/* What an input is in the first run: zeros of its fixed sizes, for the sequences of a run, and of size 0 on other axes.
 */
static int set_first(Decoder *d, int input, struct Fed *f)
{
    qkv_error e;
    const qkv_model *m = d->m->model;
    const char *batch = qkv_model_input_dim(m, d->ids, 0);
    int64_t shape[QKV_MAX_RANK], n = 1;
    qkv_tensor t = {qkv_model_input_dtype(m, input), qkv_model_input_rank(m, input), shape, NULL, NULL};
    for (int i = 0; i < t.rank; i++) {
        int64_t fixed = input_fixed_dim(m, input, i);
        shape[i] = fixed >= 0 ? fixed : !strcmp(qkv_model_input_dim(m, input, i), batch) ? d->rows : 0;
        n *= shape[i];
    }
    t.data = f->first = must(calloc((size_t)n + 1, qkv_dtype_size(t.dtype)));
    return qkv_session_set_input(d->m->session, f->input, &t, &e) ? problem_of(&e) : 0;
}

static int add_feed(Decoder *d, int i, const char *output)
{
    qkv_error e;
    struct Fed *f = &d->fed[d->nfed++];
    const char *input = f->input = qkv_model_input_name(d->m->model, i);
    f->output = output;
    if (qkv_session_feed(d->m->session, input, output, &e))
        return problem((int)e.code, "%s; --feed %s=OUTPUT names another output", e.message, input);
    detail("input '%s' is fed from output '%s'", input, output);
    return set_first(d, i, f);
}

/* Inputs that are none of those above. Where names say nothing, as many outputs besides the logits are taken in their
 * order. */
static int find_feeds(Decoder *d, const List *pairs)
{
    const qkv_model *m = d->m->model;
    int inputs = qkv_model_input_count(m), outputs = qkv_model_output_count(m), next = 0, rest = 0, code = 0;
    d->fed = must(calloc((size_t)inputs + 1, sizeof *d->fed));
    bool *taken = must(calloc((size_t)outputs + 1, sizeof *taken));
    for (int i = 0; i < inputs; i++) rest += i != d->ids && i != d->position && i != d->mask;
    for (int i = 0; !code && i < inputs; i++) {
        const char *name = qkv_model_input_name(m, i), *output = pair_of(pairs, name);
        if (!output && (i == d->ids || i == d->position || i == d->mask)) continue;
        int by_name = output ? -1 : present_of(m, name);
        if (!output && by_name < 0 && rest == outputs - 1) {
            while (next == d->logits || taken[next]) next++;
            by_name = next;
        }
        if (by_name >= 0) taken[by_name] = true;
        if (!output && by_name >= 0) output = qkv_model_output_label(m, by_name);
        if (!output)
            code = problem(QKV_USAGE,
                           "input '%s': it is not known which output it is in the next run; say so with "
                           "--feed %s=OUTPUT",
                           name, name);
        else code = add_feed(d, i, output);
    }
    free(taken);
    return code;
}

int decoder_open(Decoder *d, Loaded *m, const List *pairs)
{
    *d = (Decoder){.m = m};
    int code = find_inputs(d);
    if (!code) code = find_logits(d);
    if (!code) code = check_pairs(m->model, pairs);
    if (!code) code = find_feeds(d, pairs);
    d->cache = d->nfed                                                    ? CACHE_PAST
               : qkv_model_state(m->model) & (unsigned)QKV_WRITES_BUFFERS ? CACHE_BUFFERS
                                                                          : CACHE_NONE;
    if (!code && d->cache == CACHE_NONE)
        note("the model keeps no keys and values: every token runs on all tokens before it");
    return code;
}

void decoder_close(Decoder *d)
{
    for (int i = 0; i < d->nfed; i++) free(d->fed[i].first);
    free(d->fed);
    free(d->seen);
}

/* ------------------------------------------------------------------ runs */

/* An input of integers, rows x n or n, value(i) = first + step * i, or ids. */
static bool set_numbers(Decoder *d, int input, int64_t n, const int64_t *ids, int64_t first, int64_t step,
                        void **memory, qkv_error *e)
{
    if (input < 0) return true;
    const qkv_model *m = d->m->model;
    int rank = qkv_model_input_rank(m, input);
    int64_t rows = rank == 2 ? input_fixed_dim(m, input, 0) : 1, shape[2];
    if (rows < 0) rows = d->rows;
    shape[0] = rank == 2 ? rows : n;
    shape[1] = n;
    qkv_tensor t = {qkv_model_input_dtype(m, input), rank == 2 ? 2 : 1, shape, NULL, NULL};
    t.data = *memory = must(malloc((size_t)(rows * n + 1) * 8));
    for (int64_t i = 0; i < rows * n; i++) tensor_put(&t, i, ids ? ids[i % n] : first + step * (i % n));
    return qkv_session_set_input(d->m->session, qkv_model_input_name(m, input), &t, e) == QKV_OK;
}

static bool last_logits(Decoder *d, const float **logits, int64_t *size, qkv_error *e)
{
    qkv_tensor t;
    if (qkv_session_output(d->m->session, d->logits, &t, e)) return false;
    if (t.dtype != QKV_F32 || t.rank < 2 || t.rank > 3 || t.shape[t.rank - 1] < 1 || (t.rank == 3 && t.shape[1] < 1) ||
        t.shape[0] < 1) {
        e->code = QKV_USAGE;
        snprintf(e->message, sizeof e->message,
                 "output '%s' is %s of rank %d, expected f32 logits (batch, tokens, ids)",
                 qkv_model_output_label(d->m->model, d->logits), qkv_dtype_name(t.dtype), t.rank);
        return false;
    }
    int64_t row = t.rank == 3 ? t.shape[1] - 1 : 0;
    *size = t.shape[t.rank - 1];
    *logits = (const float *)t.data + row * *size;
    return true;
}

static bool run_part(Decoder *d, const int64_t *ids, int64_t n, int64_t before, qkv_error *e)
{
    void *memory[3] = {0};
    bool ok = set_numbers(d, d->ids, n, ids, 0, 0, &memory[0], e) &&
              set_numbers(d, d->position, n, NULL, before, 1, &memory[1], e) &&
              set_numbers(d, d->mask, before + n, NULL, 1, 0, &memory[2], e) &&
              qkv_session_run(d->m->session, e) == QKV_OK;
    for (int i = 0; i < 3; i++) free(memory[i]);
    return ok;
}

int decoder_run(Decoder *d, const int64_t *ids, int64_t n, const float **logits, int64_t *size, qkv_error *e)
{
    if (d->nseen + n > d->cap) {
        d->cap = 2 * (d->nseen + n);
        d->seen = must(realloc(d->seen, (size_t)d->cap * sizeof *d->seen));
    }
    memcpy(d->seen + d->nseen, ids, (size_t)n * sizeof *ids);
    int64_t at = d->cache == CACHE_NONE ? 0 : d->nseen;
    d->nseen += n;
    while (at < d->nseen) {
        int64_t part = d->cache == CACHE_NONE || d->nseen - at < d->most ? d->nseen - at : d->most;
        if (!run_part(d, d->seen + at, part, at, e)) return (int)e->code;
        at += part;
    }
    return last_logits(d, logits, size, e) ? 0 : (int)e->code;
}
