/* Cutting texts. Contract in split.h. What the steps do is Hugging Face tokenizers' (pre_tokenizers/, 0.23). */
#include "vision/split.h"
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "base/mem.h"
#include "base/vec.h"

/* What an expression may look at in a text: WORK items and bytes, and MORE_WORK for each byte of it. Those of known
 * tokenizers take 2 to 5 a byte. */
enum { MAX_STEPS = 16, WORK = 1 << 26, MORE_WORK = 64, HEAP_KIB = 1 << 14 };

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct Step { /* one of the two */
    pcre2_code *code;
    uint32_t item; /* work that PCRE2 does for an item without a word: all but nothing where repeats are few */
    bool removed, invert; /* what matches is dropped; what does not match counts as the match */
    bool prefix;          /* a piece gets a space before it, if it has none */
} Step;

struct Splitter {
    pcre2_general_context *memory;
    Step step[MAX_STEPS];
    int n;
    bool bytes;
};

static void *take(size_t n, void *user)
{
    (void)user;
    return mem_alloc(n);
}

static void give_back(void *p, void *user)
{
    (void)user;
    mem_free(p);
}

/* ------------------------------------------------------------------ reading */

static Step *new_step(Splitter *s, Err *err)
{
    if (s->n < MAX_STEPS) return &s->step[s->n++];
    fail(err, E_LIMIT, "more than %d steps", MAX_STEPS);
    return NULL;
}

/* Work of an item that fails after many repeats, or that goes back to where a lookbehind begins. */
static uint32_t work_of_item(const pcre2_code *code, const char *pattern)
{
    uint32_t back = 0, most = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &back);
    for (const char *p = pattern; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
            if (strchr("xopPNgk", *p) && p[1] == '{') p++; /* what is in there says which character, not how often */
            continue;
        }
        if (*p != '{') continue;
        uint32_t n = 0;
        for (const char *digit = p + 1; *digit >= '0' && *digit <= '9' && n < 1 << 16; digit++)
            n = n * 10 + (uint32_t)(*digit - '0');
        if (n > most) most = n;
    }
    return 1 + (back + most) / 16;
}

static bool add_pattern(Splitter *s, const char *pattern, bool literal, bool removed, bool invert, Err *err)
{
    Step *step = new_step(s, err);
    int code;
    PCRE2_SIZE at;
    TRY(step);
    *step = (Step){.removed = removed, .invert = invert};
    pcre2_compile_context *c = pcre2_compile_context_create(s->memory);
    if (!c) return oom(err);
    step->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT |
                                   (literal ? PCRE2_LITERAL : 0),
                               &code, &at, c);
    pcre2_compile_context_free(c);
    if (step->code) {
        step->item = literal ? 1 : work_of_item(step->code, pattern);
        return true;
    }
    if (code == PCRE2_ERROR_NOMEMORY || mem_ran_out()) return oom(err);
    char why[128];
    pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
    return fail(err, E_UNSUPPORTED, "the expression '%.80s' is not understood at %zu: %s", pattern, (size_t)at, why);
}

static bool add_byte_level(Splitter *s, const json_t *o, Err *err)
{
    bool prefix = true, regex = true;
    TRY(json_may_bool(o, "add_prefix_space", &prefix, err) && json_may_bool(o, "use_regex", &regex, err));
    s->bytes = true;
    if (prefix) {
        Step *step = new_step(s, err);
        TRY(step);
        *step = (Step){.prefix = true};
    }
    return !regex || add_pattern(s, gpt2, false, false, false, err);
}

static bool add_split(Splitter *s, const json_t *o, Err *err)
{
    const json_t *pattern = json_find(o, "pattern"), *regex = json_find(pattern, "Regex"),
                 *string = json_find(pattern, "String");
    const char *behavior;
    bool invert = false;
    TRY(json_want_string(o, "behavior", &behavior, err) && json_may_bool(o, "invert", &invert, err));
    bool removed = !strcmp(behavior, "Removed");
    if (!removed && strcmp(behavior, "Isolated"))
        return fail(err, E_UNSUPPORTED, "Split with behavior '%.40s': supported are Isolated and Removed", behavior);
    if (!json_is_string(regex) && !json_is_string(string))
        return fail(err, E_FORMAT, "Split without a pattern: expected a Regex or a String");
    return add_pattern(s, json_string_value(json_is_string(regex) ? regex : string), !json_is_string(regex), removed,
                       invert, err);
}

static bool add_step(Splitter *s, const json_t *o, int depth, Err *err);

static bool add_sequence(Splitter *s, const json_t *o, int depth, Err *err)
{
    json_t *list, *v;
    size_t i;
    TRY(json_want_array(o, "pretokenizers", &list, err));
    json_array_foreach(list, i, v) TRY(add_step(s, v, depth + 1, err));
    return true;
}

static bool add_step(Splitter *s, const json_t *o, int depth, Err *err)
{
    const char *type;
    if (!json_is_object(o) || depth > 4)
        return fail(err, E_FORMAT, "a step of it is %s, expected an object", depth > 4 ? "too deep" : json_kind(o));
    TRY(json_want_string(o, "type", &type, err));
    if (!strcmp(type, "Sequence")) return add_sequence(s, o, depth, err);
    if (!strcmp(type, "ByteLevel")) return add_byte_level(s, o, err);
    if (!strcmp(type, "Split")) return add_split(s, o, err);
    if (!strcmp(type, "Digits")) {
        bool each = false;
        TRY(json_may_bool(o, "individual_digits", &each, err));
        return add_pattern(s, each ? "\\p{N}" : "\\p{N}+", false, false, false, err);
    }
    if (!strcmp(type, "Punctuation")) {
        const char *behavior = json_string_value(json_find(o, "behavior"));
        if (!behavior || !strcmp(behavior, "Isolated"))
            return add_pattern(s, "[\\p{P}$+<=>^`|~]", false, false, false, err);
    }
    return fail(err, E_UNSUPPORTED,
                "'%.40s': supported are ByteLevel, Split, Digits, Punctuation (Isolated), and a Sequence of them",
                type);
}

Splitter *splitter_open(const json_t *pre_tokenizer, Err *err)
{
    Splitter *s = mem_zeroed(1, sizeof *s);
    if (s) s->memory = pcre2_general_context_create(take, give_back, NULL);
    bool ok = (s && s->memory) || oom(err);
    bool none = !pre_tokenizer || json_is_null(pre_tokenizer);
    ok = ok && (none || add_step(s, pre_tokenizer, 0, err) || within(err, "pre_tokenizer"));
    if (ok) return s;
    splitter_free(s);
    return NULL;
}

void splitter_free(Splitter *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) pcre2_code_free(s->step[i].code);
    pcre2_general_context_free(s->memory);
    mem_free(s);
}

bool splitter_has_bytes(const Splitter *s) { return s->bytes; }

/* ------------------------------------------------------------------ cutting */

void pieces_free(Pieces *p)
{
    mem_free(p->text);
    mem_free(p->end);
    *p = (Pieces){0};
}

typedef struct Cut { /* the pieces that a step makes */
    Buf text;
    size_t *end;
    int n;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    uint64_t work; /* that is left */
    uint32_t item; /* of the step */
    size_t at;     /* where in the text the last item was looked at */
    Err *err;
} Cut;

static bool add_piece(Cut *c, const char *text, size_t n)
{
    if (!n) return true;
    size_t *all = vec_grow(c->end, c->n, sizeof *all);
    if (!all) return oom(c->err);
    c->end = all;
    buf_add(&c->text, text, n);
    c->end[c->n++] = c->text.len;
    return true;
}

/* PCRE2 calls this before every item of an expression: what was looked at since the last call is taken from the work
 * that is left, and so is what a reference to a group would compare. */
static int take_work(pcre2_callout_block *b, void *user)
{
    Cut *c = user;
    uint64_t work = c->item;
    work += b->current_position > c->at ? b->current_position - c->at : c->at - b->current_position;
    for (uint32_t i = 1; i < b->capture_top; i++, work++) {
        size_t from = b->offset_vector[2 * i], end = b->offset_vector[2 * i + 1];
        if (from != PCRE2_UNSET && end != PCRE2_UNSET && end > from) work += end - from;
    }
    c->at = b->current_position;
    if (work > c->work) return PCRE2_ERROR_CALLOUT;
    c->work -= work;
    return 0;
}

/* One piece: what matches, and what lies between matches. */
static bool cut_piece(const Step *step, const char *p, size_t size, Cut *c)
{
    size_t done = 0;
    for (size_t at = 0; at <= size;) {
        c->at = at;
        int found = pcre2_match(step->code, (PCRE2_SPTR)p, size, at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, c->match,
                                c->limits);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found == PCRE2_ERROR_NOMEMORY) return oom(c->err);
        if (found < 0) return fail(c->err, E_LIMIT, "an expression of the pre_tokenizer tries too much on this text");
        const PCRE2_SIZE *o = pcre2_get_ovector_pointer(c->match);
        if (o[0] < done || o[1] <= o[0]) break; /* \K in a lookaround */
        TRY(((step->removed && step->invert) || add_piece(c, p + done, o[0] - done)) &&
            ((step->removed && !step->invert) || add_piece(c, p + o[0], o[1] - o[0])));
        done = at = o[1];
    }
    return (step->removed && step->invert) || add_piece(c, p + done, size - done);
}

static bool prefix_piece(const char *p, size_t size, Cut *c)
{
    if (size && *p != ' ') buf_add(&c->text, " ", 1);
    return add_piece(c, p, size);
}

static bool run_step(const Splitter *s, const Step *step, Pieces *p, Err *err)
{
    Cut c = {.work = WORK + MORE_WORK * (uint64_t)(p->n ? p->end[p->n - 1] : 0), .item = step->item, .err = err};
    if (step->code) {
        c.match = pcre2_match_data_create(1, s->memory);
        c.limits = pcre2_match_context_create(s->memory);
    }
    bool ok = step->prefix || (c.match && c.limits) || oom(err);
    if (c.limits) {
        pcre2_set_heap_limit(c.limits, HEAP_KIB);
        pcre2_set_match_limit(c.limits, UINT32_MAX);
        pcre2_set_callout(c.limits, take_work, &c);
    }
    for (int i = 0; ok && i < p->n; i++) {
        size_t from = i ? p->end[i - 1] : 0, size = p->end[i] - from;
        ok = step->prefix ? prefix_piece(p->text + from, size, &c) : cut_piece(step, p->text + from, size, &c);
    }
    pcre2_match_data_free(c.match);
    pcre2_match_context_free(c.limits);
    ok = ok && (!c.text.failed || oom(err));
    pieces_free(p);
    *p = (Pieces){c.text.data, c.end, c.n};
    return ok;
}

bool split_text(const Splitter *s, const char *text, size_t size, Pieces *p, Err *err)
{
    Cut whole = {.err = err};
    pieces_free(p);
    bool ok = add_piece(&whole, text, size) && (!whole.text.failed || oom(err));
    *p = (Pieces){whole.text.data, whole.end, whole.n};
    for (int i = 0; ok && i < s->n; i++) ok = run_step(s, &s->step[i], p, err);
    return ok;
}
