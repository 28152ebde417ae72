/* qkv generate MODEL --tokenizer tokenizer.json --prompt TEXT: text that a causal language model writes.
 *
 * The prompt's tokens run at once, then one token a run. The largest logit is taken, or one is drawn (--temperature,
 * --top-k, --top-p, --seed). Keys and values go from run to run as generate_model.c finds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "generate.h"

typedef struct GenerateOptions {
    Common common;
    ModelOptions model;
    List feed, stop, eos;
    const char *tokenizer, *prompt;
    int64_t max_tokens, top_k, seed;
    double temperature, top_p;
    bool stream;
} GenerateOptions;

static const char *const end_tokens[] = {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>",   "<|im_end|>",
                                         "</s>",          "<eos>",           "<end_of_turn>"};

enum { MOST_ENDS = 64 };

typedef struct Generation {
    const GenerateOptions *o;
    Loaded m;
    Decoder d;
    Shown shown;
    qkv_tokenizer *tokenizer;
    int64_t *id; /* prompt, then what was generated */
    int nprompt, n;
    int64_t end[MOST_ENDS];
    int nend;
    const char *finish;
    double prompt_ms, token_ms;
} Generation;

/* ------------------------------------------------------------------ before the first run */

/* tokenizer.json beside the model where none was named. */
static int open_tokenizer(Generation *g)
{
    qkv_error e;
    const char *model = g->o->common.arg[0], *slash = strrchr(model, '/');
    size_t folder = slash ? (size_t)(slash - model) + 1 : 0;
    char *beside = must(malloc(folder + sizeof "tokenizer.json"));
    memcpy(beside, model, folder);
    strcpy(beside + folder, "tokenizer.json");
    g->tokenizer = qkv_tokenizer_json(g->o->tokenizer ? g->o->tokenizer : beside, &e);
    free(beside);
    if (g->tokenizer) return 0;
    return g->o->tokenizer ? problem_of(&e) : problem((int)e.code, "%s; name it with --tokenizer FILE", e.message);
}

static int find_ends(Generation *g)
{
    for (int i = 0; i < g->o->eos.n && g->nend < MOST_ENDS; i++) {
        if (!strcmp(g->o->eos.item[i], "none")) continue;
        int64_t id = qkv_tokenizer_find(g->tokenizer, g->o->eos.item[i]);
        if (id < 0) return problem(QKV_USAGE, "option '--eos': the tokenizer has no token '%s'", g->o->eos.item[i]);
        g->end[g->nend++] = id;
    }
    for (size_t i = 0; !g->o->eos.n && i < sizeof end_tokens / sizeof *end_tokens; i++) {
        int64_t id = qkv_tokenizer_find(g->tokenizer, end_tokens[i]);
        if (id >= 0 && qkv_tokenizer_is_special(g->tokenizer, id)) g->end[g->nend++] = id;
    }
    return 0;
}

static int encode_prompt(Generation *g)
{
    qkv_error e;
    int capacity = (int)strlen(g->o->prompt) + 64;
    for (int n;; capacity = n) {
        g->id = must(realloc(g->id, (size_t)(capacity + g->o->max_tokens + 1) * sizeof *g->id));
        n = qkv_tokenizer_encode(g->tokenizer, g->o->prompt, g->id, capacity, &e);
        if (n < 0) return problem_of(&e);
        if (n > capacity) continue;
        g->n = g->nprompt = n;
        return n ? 0 : problem(QKV_USAGE, "the prompt has no tokens: a model needs one to begin with");
    }
}

/* ------------------------------------------------------------------ tokens */

static bool is_end(const Generation *g, int64_t id)
{
    for (int i = 0; i < g->nend; i++)
        if (g->end[i] == id) return true;
    return false;
}

static int show_token(Generation *g, int64_t id, int64_t size)
{
    size_t n;
    const char *bytes = qkv_tokenizer_bytes(g->tokenizer, id, &n);
    if (!bytes)
        return problem(QKV_USAGE,
                       "the model chose id %lld of %lld, but the tokenizer has no such token (its ids end at %lld): is "
                       "it this model's?",
                       (long long)id, (long long)size, (long long)qkv_tokenizer_size(g->tokenizer) - 1);
    if (!qkv_tokenizer_is_special(g->tokenizer, id)) shown_add(&g->shown, bytes, n);
    return 0;
}

/* A run that sizes stop (a cache that is full, positions that end) ends the text; the first run's errors are errors. */
static int run_refused(Generation *g, const qkv_error *e)
{
    if (g->n == g->nprompt || e->code != QKV_USAGE) return problem_of(e);
    warning("stopped after %d tokens, the model takes no more: %s", g->n - g->nprompt, e->message);
    g->finish = "length";
    return 0;
}

static int generate(Generation *g)
{
    qkv_error e;
    qkv_sample_options sample = {
        .struct_size = sizeof sample, .temperature = g->o->temperature, .top_k = g->o->top_k, .top_p = g->o->top_p};
    uint64_t state = (uint64_t)g->o->seed;
    const float *logits;
    int64_t size, from = 0;
    Progress bar;
    progress_start(&bar, "generate", g->o->max_tokens);
    if (g->shown.stream) progress_hide(&bar);
    int code = 0;
    g->finish = "max_tokens";
    while (!code && g->n - g->nprompt < g->o->max_tokens) {
        double start = now_ms();
        if (decoder_run(&g->d, g->id + from, g->n - from, &logits, &size, &e)) {
            code = run_refused(g, &e);
            break;
        }
        int64_t id = qkv_sample(logits, size, &sample, &state, &e);
        *(from ? &g->token_ms : &g->prompt_ms) += now_ms() - start;
        if (id < 0) code = problem_of(&e);
        if (code) break;
        from = g->n;
        g->id[g->n++] = id;
        if (is_end(g, id)) {
            g->finish = "eos";
            break;
        }
        code = show_token(g, id, size);
        if (!g->shown.stream) progress_at(&bar, g->n - g->nprompt);
        if (!g->shown.stopped) continue;
        g->finish = "stop";
        break;
    }
    progress_end(&bar);
    return code;
}

/* ------------------------------------------------------------------ what the user sees */

/* The first token comes with the prompt's run. */
static double tokens_per_second(const Generation *g)
{
    int n = g->n - g->nprompt - 1;
    return n > 0 && g->token_ms > 0 ? n / g->token_ms * 1e3 : 0;
}

static void print_json(const Generation *g)
{
    char *text = shown_text(&g->shown);
    json_t *prompt = json_array(), *tokens = json_array(), *feeds = json_array();
    for (int i = 0; i < g->n; i++) json_array_append_new(i < g->nprompt ? prompt : tokens, json_integer(g->id[i]));
    for (int i = 0; i < g->d.nfed; i++)
        json_array_append_new(feeds, json_pack("{s:s, s:s}", "input", g->d.fed[i].input, "output", g->d.fed[i].output));
    json_print(json_pack("{s:i, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:f, s:f, s:f}", "schema", JSON_SCHEMA, "model",
                         json_text(g->o->common.arg[0]), "text", json_text(text), "finish", g->finish, "cache",
                         cache_names[g->d.cache], "feeds", feeds, "prompt_tokens", prompt, "tokens", tokens,
                         "prompt_ms", g->prompt_ms, "token_ms", g->token_ms, "tokens_per_second",
                         tokens_per_second(g)));
    free(text);
}

static void print_all(Generation *g)
{
    if (g->o->common.json) print_json(g);
    else {
        shown_rest(&g->shown);
        printf("\n");
    }
    note("%d prompt tokens in %.1f ms, %d tokens, %.1f tokens/s (%s)", g->nprompt, g->prompt_ms, g->n - g->nprompt,
         tokens_per_second(g), g->finish);
}

static int cmd_generate(const void *options)
{
    const GenerateOptions *o = options;
    Generation g = {.o = o, .shown = {.stop = &o->stop, .stream = o->stream && !o->common.json}};
    bool bf16;
    int code = model_bf16(&o->model, &bf16);
    if (code) return code;
    if (!o->prompt) return problem(QKV_USAGE, "--prompt TEXT is missing");
    code = open_tokenizer(&g);
    if (!code) code = find_ends(&g);
    if (!code) code = encode_prompt(&g);
    if (!code) code = model_open(&o->model, o->common.arg[0], bf16, false, &g.m);
    if (!code) code = decoder_open(&g.d, &g.m, &o->feed);
    if (!code) code = generate(&g);
    if (!code) print_all(&g);
    qkv_tokenizer_free(g.tokenizer);
    decoder_close(&g.d);
    shown_free(&g.shown);
    free(g.id);
    model_close(&g.m);
    return code;
}

#define AT(field) offsetof(GenerateOptions, field)
static const Option own[] = {
    {"prompt", TEXT, AT(prompt), .arg = "TEXT", .help = "What the text begins with."},
    {"tokenizer", TEXT, AT(tokenizer), .arg = "FILE",
     .help = "tokenizer.json with a byte-level BPE (GPT-2, Llama 3, Qwen ...; default: the one beside the model)."},
    {"max-tokens", INTEGER, AT(max_tokens), .arg = "N", .min = 1, .max = 1 << 24,
     .help = "Generate at most N tokens (default: 128)."},
    {"temperature", REAL_OR_ZERO, AT(temperature), .arg = "T",
     .help = "Draw a token, logits divided by T; 0 takes the most likely one (default)."},
    {"top-k", INTEGER, AT(top_k), .arg = "K", .min = 0, .max = 1 << 24,
     .help = "Draw among the K most likely (0: all)."},
    {"top-p", REAL, AT(top_p), .arg = "P",
     .help = "Draw among the fewest tokens whose probabilities reach P (default: 1, all)."},
    {"seed", INTEGER, AT(seed), .arg = "N", .min = 0, .max = INT64_MAX,
     .help = "Draw with this seed (default: 0); the same seed gives the same text."},
    {"stop", MANY, AT(stop), .arg = "TEXT", .help = "End before this text; may be given many times."},
    {"eos", MANY, AT(eos), .arg = "TOKEN",
     .help = "End at this token, \"<|im_end|>\"; many times, or none (default: special tokens that are called as "
             "models usually call it: <|endoftext|>, <|end_of_text|>, <|eot_id|>, <|im_end|>, </s>, <eos>, "
             "<end_of_turn>)."},
    {"stream", FLAG, AT(stream), .help = "Print the text as it is generated."},
    {"feed", MANY, AT(feed), .arg = "INPUT=OUTPUT",
     .help = "This input is that output of the run before. Without it, by names (past and present), else in order."},
    {0},
};

const Command command_generate = {
    .name = "generate",
    .args = "MODEL --prompt TEXT",
    .summary = "Write text with a causal language model",
    .text =
        "Runs the prompt's tokens, then one token at a time, and prints the text that follows the prompt. The model's "
        "inputs are input_ids and, where it has them, position_ids or cache_position, attention_mask, and keys and "
        "values of the tokens before, which are outputs, too: those are fed from run to run without a copy. A model "
        "that writes its cache into buffers (StaticCache) keeps it in the session. One that has neither runs on all "
        "tokens each time. python -m qkv.recipes.causal_lm makes all three.\n\n"
        "Figures go to stderr. A cache or a range of positions that is used up ends the text with a warning.",
    .examples = "qkv generate model.pt2 --tokenizer tokenizer.json --prompt \"Once upon a time\" --stream\tthe most "
                "likely text\n"
                "qkv generate model.pt2 --prompt \"Q: 2+2? A:\" --temperature 0.8 --top-p 0.95 --stop \"Q:\"\tdrawn, "
                "up to the next question",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(GenerateOptions),
    .defaults = &(const GenerateOptions){.max_tokens = 128, .top_p = 1},
    .options = {{own},
                {load_options, AT(model)},
                {dtype_option, AT(model)},
                {run_options, AT(model)},
                {json_option},
                {common_options}},
    .run = cmd_generate,
};
