/* qkv embed MODEL --vocab vocab.txt SENTENCE...: sentence embeddings and how similar they are.
 *
 * Sentences -> WordPiece tokens -> one padded batch with its attention mask -> the model -> mean over each sentence's
 * tokens ->
 * length 1. The similarity of two sentences is the dot product. A first output (batch, tokens, E) is pooled; (batch,
 * E) is taken as it is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"
#include "serve/text.h"

typedef struct EmbedOptions {
    Common common;
    ModelOptions model;
    const char *output, *vocab, *pool;
    int64_t max_tokens;
    bool cased;
} EmbedOptions;

enum { BATCH = 32 };

typedef struct Embedder {
    const EmbedOptions *o;
    Loaded m;
    qkv_tokenizer *tokenizer;
    int role[ROLES]; /* which input; -1 when the model has none */
    int64_t min_batch, max_batch, min_tokens, max_tokens;
    int n; /* sentences */
    const char **sentence;
    int64_t *ids; /* n x capacity */
    int *length, capacity;
    int64_t width; /* E */
    float *out;    /* n x E */
    double run_ms;
} Embedder;

/* ------------------------------------------------------------------ the model */

static int find_roles(Embedder *x)
{
    Err err = {0};
    return text_roles(x->m.model, x->role, &err) ? 0 : problem(QKV_USAGE, "%s", err.msg);
}

static int find_sizes(Embedder *x)
{
    int ids = x->role[ROLE_IDS];
    input_dim_range(x->m.model, ids, 0, &x->min_batch, &x->max_batch);
    input_dim_range(x->m.model, ids, 1, &x->min_tokens, &x->max_tokens);
    int64_t limit = x->o->max_tokens ? x->o->max_tokens : TEXT_TOKENS;
    x->capacity = (int)(x->max_tokens < limit ? x->max_tokens : limit);
    if (x->min_batch > BATCH)
        return problem(QKV_USAGE, "the model needs at least %lld sentences at a time; %d is the most",
                       (long long)x->min_batch, BATCH);
    if (x->capacity < 2 || x->min_tokens > TEXT_TOKENS * 64)
        return problem(QKV_USAGE, "the model takes %lld to %lld tokens", (long long)x->min_tokens,
                       (long long)x->max_tokens);
    return 0;
}

static int tokenize(Embedder *x)
{
    qkv_error e;
    x->n = x->o->common.narg - 1;
    x->sentence = x->o->common.arg + 1;
    x->ids = must(calloc((size_t)x->n * (size_t)x->capacity, sizeof *x->ids));
    x->length = must(calloc((size_t)x->n, sizeof *x->length));
    x->tokenizer = qkv_tokenizer_wordpiece(x->o->vocab, !x->o->cased, &e);
    if (!x->tokenizer) return problem_of(&e);
    for (int i = 0; i < x->n; i++) {
        x->length[i] = qkv_tokenizer_encode(x->tokenizer, x->sentence[i], x->ids + (size_t)i * (size_t)x->capacity,
                                            x->capacity, &e);
        if (x->length[i] < 0) return problem_of(&e);
        if (x->length[i] == x->capacity && x->max_tokens > x->capacity)
            detail("sentence %d is truncated to %d tokens", i + 1, x->capacity);
    }
    return 0;
}

/* ------------------------------------------------------------------ one batch */

/* Row b is sentence first + b; rows beyond the last sentence, which fill up the least batch that the model takes,
 * repeat it. */
static int64_t value_at(const Embedder *x, Role r, int first, int64_t b, int64_t k)
{
    int s = first + (int)b < x->n ? first + (int)b : x->n - 1;
    return text_value(r, x->ids + (size_t)s * (size_t)x->capacity, x->length[s], k);
}

static int set_batch(Embedder *x, int first, int64_t rows, int64_t tokens, void **memory)
{
    qkv_error e;
    int64_t shape[] = {rows, tokens};
    for (int r = 0; r < ROLES; r++) {
        if (x->role[r] < 0) continue;
        const char *name = qkv_model_input_name(x->m.model, x->role[r]);
        qkv_tensor t = {qkv_model_input_dtype(x->m.model, x->role[r]), 2, shape, NULL, NULL};
        t.data = memory[r] = must(malloc((size_t)(rows * tokens) * qkv_dtype_size(t.dtype) + 1));
        for (int64_t i = 0; i < rows * tokens; i++)
            if (!tensor_put(&t, i, value_at(x, (Role)r, first, i / tokens, i % tokens)))
                return problem(QKV_USAGE, "input '%s' is %s, expected integers", name, qkv_dtype_name(t.dtype));
        if (qkv_session_set_input(x->m.session, name, &t, &e)) return problem_of(&e);
    }
    return 0;
}

/* The output that is an embedding. */
static int find_output(Embedder *x, int64_t rows, int64_t tokens, qkv_tensor *y)
{
    enum { MOST = 64 };
    qkv_error e;
    int rank[MOST], n = qkv_model_output_count(x->m.model);
    for (int i = 0; i < n && i < MOST; i++) {
        if (qkv_session_output(x->m.session, i, y, &e)) return problem_of(&e);
        bool fits = y->rank > 1 && y->shape[0] == rows && (y->rank == 2 || y->shape[1] == tokens);
        rank[i] = fits ? y->rank : 0;
    }
    int found = text_output(rank, n < MOST ? n : MOST);
    if (found < 0) return problem(QKV_USAGE, "no output of the model is (batch, tokens, E) or (batch, E)");
    return qkv_session_output(x->m.session, found, y, &e) ? problem_of(&e) : 0;
}

static int run_batch(Embedder *x, int first, int count)
{
    qkv_error e;
    qkv_tensor y;
    void *memory[ROLES] = {0};
    int64_t tokens = x->min_tokens, rows = count > x->min_batch ? count : x->min_batch;
    for (int i = first; i < first + count; i++)
        if (x->length[i] > tokens) tokens = x->length[i];
    int code = set_batch(x, first, rows, tokens, memory);
    double start = now_ms();
    if (!code && qkv_session_run(x->m.session, &e)) code = problem_of(&e);
    x->run_ms += now_ms() - start;
    if (!code) code = find_output(x, rows, tokens, &y);
    if (!code) {
        x->width = y.shape[y.rank - 1];
        if (!x->out) x->out = must(calloc((size_t)x->n * (size_t)x->width + 1, sizeof *x->out));
        Tensor t = tensor_from(&y);
        bool cls = x->o->pool && !strcmp(x->o->pool, "cls");
        for (int b = 0; b < count; b++)
            text_pool(&t, b, x->length[first + b], cls, x->out + (int64_t)(first + b) * x->width);
    }
    for (int r = 0; r < ROLES; r++) free(memory[r]);
    return code;
}

static int run_all(Embedder *x)
{
    int step = x->max_batch < BATCH ? (int)x->max_batch : BATCH, code = 0;
    Progress bar;
    progress_start(&bar, "embed", x->n);
    for (int i = 0; !code && i < x->n; i += step) {
        code = run_batch(x, i, x->n - i < step ? x->n - i : step);
        progress_at(&bar, i + step < x->n ? i + step : x->n);
    }
    progress_end(&bar);
    return code;
}

/* ------------------------------------------------------------------ what the user sees */

static double similarity(const Embedder *x, int i, int k)
{
    double dot = 0;
    for (int64_t c = 0; c < x->width; c++) dot += (double)x->out[i * x->width + c] * (double)x->out[k * x->width + c];
    return dot;
}

static void print_matrix(const Embedder *x)
{
    char *align = must(malloc((size_t)x->n + 3));
    memset(align, 'r', (size_t)x->n + 1);
    strcpy(align + x->n + 1, "l");
    Table *t = table_new(align);
    table_cell(t, "%s", "");
    for (int i = 0; i < x->n; i++) table_cell(t, "%d", i + 1);
    table_cell(t, "sentence");
    for (int i = 0; i < x->n; i++) {
        table_cell(t, "%d", i + 1);
        for (int k = 0; k < x->n; k++) table_cell(t, "%.4f", similarity(x, i, k));
        table_cell(t, "%s", x->sentence[i]);
    }
    table_print(t);
    free(align);
}

static void print_json(const Embedder *x)
{
    json_t *sentences = json_array(), *tokens = json_array(), *sim = json_array(), *embeddings = json_array();
    for (int i = 0; i < x->n; i++) {
        json_t *row = json_array(), *e = json_array();
        for (int k = 0; k < x->n; k++) json_array_append_new(row, json_number(similarity(x, i, k)));
        for (int64_t c = 0; c < x->width; c++) json_array_append_new(e, json_number((double)x->out[i * x->width + c]));
        json_array_append_new(sentences, json_text(x->sentence[i]));
        json_array_append_new(tokens, json_integer(x->length[i]));
        json_array_append_new(sim, row);
        json_array_append_new(embeddings, e);
    }
    json_print(json_pack("{s:i, s:o, s:I, s:f, s:o, s:o, s:o, s:o}", "schema", JSON_SCHEMA, "model",
                         json_text(x->o->common.arg[0]), "width", (json_int_t)x->width, "run_ms", x->run_ms,
                         "sentences", sentences, "tokens", tokens, "similarity", sim, "embeddings", embeddings));
}

static int write_embeddings(const Embedder *x)
{
    qkv_error e;
    int64_t shape[] = {x->n, x->width};
    const char *name = "embeddings";
    qkv_tensor t = {QKV_F32, 2, shape, NULL, x->out};
    return qkv_tensors_write(x->o->output, &name, &t, 1, &e) ? problem_of(&e) : 0;
}

static int cmd_embed(const void *options)
{
    const EmbedOptions *o = options;
    Embedder x = {.o = o};
    bool bf16;
    int code = model_bf16(&o->model, &bf16);
    if (code) return code;
    if (!o->vocab) return problem(QKV_USAGE, "--vocab FILE is missing: the vocab.txt of the model's tokenizer");
    if (o->pool && strcmp(o->pool, "mean") && strcmp(o->pool, "cls"))
        return problem(QKV_USAGE, "option '--pool': found '%s', expected mean or cls", o->pool);
    code = model_open(&o->model, o->common.arg[0], bf16, false, &x.m);
    if (!code) code = find_roles(&x);
    if (!code) code = find_sizes(&x);
    if (!code) code = tokenize(&x);
    if (!code) code = run_all(&x);
    if (!code) detail("%d sentences in %.1f ms", x.n, x.run_ms);
    if (!code && o->output) code = write_embeddings(&x);
    if (!code && o->common.json) print_json(&x);
    else if (!code) print_matrix(&x);
    qkv_tokenizer_free(x.tokenizer);
    free(x.ids);
    free(x.length);
    free(x.out);
    model_close(&x.m);
    return code;
}

#define AT(field) offsetof(EmbedOptions, field)
static const Option own[] = {
    {"vocab", TEXT, AT(vocab), .arg = "FILE", .help = "BERT's vocab.txt, one token per line."},
    {"cased", FLAG, AT(cased), .help = "Keep case and accents."},
    {"pool", TEXT, AT(pool), .arg = "HOW",
     .help = "mean: the mean over the tokens of the sentence (default); cls: the first token."},
    {"max-tokens", INTEGER, AT(max_tokens), .arg = "N", .min = 2, .max = 1 << 20,
     .help = "Truncate sentences to N tokens (default: what the model allows, at most 512)."},
    {"output", TEXT, AT(output), .letter = 'o', .arg = "FILE", .writes = true,
     .help = "Write the embeddings to a .safetensors or .npz file. The file is written completely or not at all."},
    {0},
};

const Command command_embed = {
    .name = "embed",
    .args = "MODEL --vocab FILE SENTENCE...",
    .summary = "Embed sentences and print how similar they are",
    .text =
        "Splits the sentences into WordPiece tokens, runs the model on a padded batch with its attention mask, "
        "averages the tokens of each sentence, scales the result to length 1 and prints the cosine of every pair. The "
        "model's inputs are input_ids and, where it has them, attention_mask, token_type_ids and position_ids. Its "
        "first output is pooled when it is (batch, tokens, E), and taken as it is when it is (batch, E).",
    .examples = "qkv embed minilm.pt2 --vocab vocab.txt \"A cat sits.\" \"A kitten rests.\" \"Rain falls.\"\ta "
                "similarity matrix\n"
                "qkv embed minilm.pt2 --vocab vocab.txt -o e.npz \"A cat sits.\"\tthe embedding itself",
    .min_args = 2,
    .max_args = -1,
    .size = sizeof(EmbedOptions),
    .options = {{own},
                {load_options, AT(model)},
                {dtype_option, AT(model)},
                {skip_padding_option, AT(model)},
                {run_options, AT(model)},
                {cache_option, AT(model)},
                {json_option},
                {common_options}},
    .run = cmd_embed,
};
