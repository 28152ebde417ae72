/* The list of findings and its table. Contract in check.h. */
#include "base/vec.h"
#include "verify/check.h"
#include <stdio.h>
#include <string.h>
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/number.h"

static const FindingText table[] = {
#define ERROR SEVERITY_ERROR
#define WARNING SEVERITY_WARNING
#define NOTE SEVERITY_NOTE
#define FINDING(number, severity, title, text, remedy) {FINDING_##number, severity, title, text, remedy},
#include "verify/findings.def"
#undef FINDING
#undef ERROR
#undef WARNING
#undef NOTE
};
enum { NFINDINGS = sizeof table / sizeof *table };

static const char *const names[] = {
#define FINDING(number, severity, title, text, remedy) "Q" #number,
#include "verify/findings.def"
#undef FINDING
};

static const char *const explained[] = {
#define ERROR "error"
#define WARNING "warning"
#define NOTE "note"
#define FINDING(number, severity, title, text, remedy) title "\n" severity "\n" text "\n" remedy,
#include "verify/findings.def"
#undef FINDING
#undef ERROR
#undef WARNING
#undef NOTE
};

const char *finding_name(int i) { return i >= 0 && i < NFINDINGS ? names[i] : NULL; }

const char *finding_explained(const char *name)
{
    for (int i = 0; i < NFINDINGS; i++)
        if (same_word(names[i], name)) return explained[i];
    return NULL;
}

const FindingText *finding_at(int i) { return i >= 0 && i < NFINDINGS ? &table[i] : NULL; }

const FindingText *finding_text(int number)
{
    for (int i = 0; i < NFINDINGS; i++)
        if ((int)table[i].id == number) return &table[i];
    return NULL;
}

const char *severity_name(Severity s)
{
    return s == SEVERITY_ERROR ? "error" : s == SEVERITY_WARNING ? "warning" : "note";
}

static const struct {
    const char *name;
    unsigned bit;
} targets[] = {{"qkv", TARGET_QKV}, {"ort", TARGET_ORT}, {"openvino", TARGET_OPENVINO}, {"tensorrt", TARGET_TENSORRT}};

const char *target_name(unsigned bit)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (targets[i].bit == bit) return targets[i].name;
    return NULL;
}

bool check_begin(Check *c, Err *err)
{
    c->arena = arena_create(0);
    return c->arena || oom(err);
}

void check_end(Check *c)
{
    map_free(&c->wrong);
    mem_free(c->finding);
    arena_destroy(c->arena);
    *c = (Check){0};
}

static const char *text_of(Check *c, const char *fmt, va_list args)
{
    char text[2048]; /* a sentence; names of a megabyte are cut */
    text_vprintf(text, sizeof text, fmt, args);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ') *p = '?';
    const char *copy = arena_strdup(c->arena, text);
    c->failed |= !copy;
    return copy ? copy : "";
}

const char *check_place(Check *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *text = text_of(c, fmt, args);
    va_end(args);
    return text;
}

bool check_is_wrong(const Check *c, const char *place) { return map_has(&c->wrong, place); }

void check_add(Check *c, FindingId id, const char *place, const char *fmt, ...)
{
    const FindingText *what = finding_text((int)id);
    bool listed = c->n < MAX_FINDINGS, wrong = what->severity == SEVERITY_ERROR || id == Q(199);
    c->count[what->severity]++;
    if ((wrong && c->wrong.count < MAX_FINDINGS) || listed) {
        place = arena_strdup(c->arena, place);
        if (!place) {
            c->failed = true;
            return;
        }
    }
    if (wrong && c->wrong.count < MAX_FINDINGS) c->failed |= !map_put(&c->wrong, place, c);
    if (!listed) {
        c->dropped++;
        return;
    }
    Finding *all = vec_grow(c->finding, c->n, sizeof *all);
    if (!all) {
        c->failed = true;
        return;
    }
    c->finding = all;
    va_list args;
    va_start(args, fmt);
    c->finding[c->n++] = (Finding){what, place, text_of(c, fmt, args)};
    va_end(args);
}

/* ------------------------------------------------------------------ JSON */

/* Names of a file need not be UTF-8; JSON must: other bytes become '?'. */
static void put_clean(Buf *b, const char *key, const char *s)
{
    Buf clean = {0};
    for (; *s; s += utf8_length(s) ? utf8_length(s) : 1) {
        bool odd = !utf8_length(s) || (unsigned char)*s < ' ' || *s == 0x7f;
        buf_add(&clean, odd ? "?" : s, odd ? 1 : (size_t)utf8_length(s));
    }
    jw_take(b, key, &clean);
}

static void put_finding(Buf *b, bool first, const FindingText *what, const char *place, const char *text)
{
    char id[16];
    text_printf(id, sizeof id, "Q%d", (int)what->id);
    if (!first) jw_line(b);
    jw_put(b, "{'id': %s, 'severity': %s", id, severity_name(what->severity));
    put_clean(b, "place", place);
    put_clean(b, "message", text);
    jw_text(b, "remedy", what->remedy);
    jw_close(b, "}");
}

void check_json(const Check *c, const char *key, Buf *out)
{
    bool first = true;
    jw_open(out, key, '[');
    for (int s = SEVERITY_ERROR; s >= SEVERITY_NOTE; s--)
        for (int i = 0; i < c->n; i++) {
            const Finding *f = &c->finding[i];
            if ((int)f->what->severity != s) continue;
            put_finding(out, first, f->what, f->place, f->text);
            first = false;
        }
    if (c->dropped) {
        char text[64];
        snprintf(text, sizeof text, "%d more", c->dropped);
        put_finding(out, first, finding_text(FINDING_198), "model", text);
    }
    jw_close(out, "]");
}
