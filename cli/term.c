/* What a person sees: tables and colours on stdout; messages and progress on stderr.
 *
 *     Table *t = table_new("lr");
 *     table_cell(t, "op"); table_cell(t, "ms");
 *     table_cell(t, "%s", name); table_cell(t, "%.2f", ms);
 *     table_print(t);
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/hidden.h"
#include "cli.h"

static int level; /* -1 quiet, 0, 1 verbose */
static bool colors_out, colors_err, bar;

void term_init(int verbose, bool quiet)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    bool able = !(no && *no) && term && strcmp(term, "dumb");
    level = quiet ? -1 : verbose;
    colors_out = able && isatty(STDOUT_FILENO);
    colors_err = able && isatty(STDERR_FILENO);
    bar = !quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb");
}

static const char *const escape[] = {"", "\033[1m", "\033[31m", "\033[32m"};
const char *color_on(Color c) { return colors_out ? escape[c] : ""; }
const char *color_off(Color c) { return colors_out && c ? "\033[0m" : ""; }

void *must(void *p)
{
    if (p) return p;
    qkv_interrupted();
    exit(problem(QKV_LIMIT, "out of memory"));
}

double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ------------------------------------------------------------------ messages */

unsigned hidden_character(const char *s, int *length)
{
    int n = utf8_bytes((const unsigned char *)s);
    *length = n ? n : 1;
    return hidden_at(s, n);
}

/* Text whose hidden characters, which a model's names may have, are written out: \n, \x1b, \u202e. A terminal shows it
 * and does not obey it. kept: those that stay. NULL: out of memory. */
static char *shown(const char *kept, const char *fmt, va_list ap)
{
    char *raw, *out;
    if (vasprintf(&raw, fmt, ap) < 0) return NULL;
    char *to = out = malloc(4 * strlen(raw) + 1);
    int n;
    for (const char *p = out ? raw : ""; *p; p += n) {
        unsigned c = hidden_character(p, &n);
        if (!c || strchr(kept, *p)) to = (char *)memcpy(to, p, (size_t)n) + n;
        else if (c == '\n') to += sprintf(to, "\\n");
        else to += sprintf(to, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
    if (out) *to = 0;
    free(raw);
    return out;
}

static void show_but(const char *kept, const char *fmt, va_list ap)
{
    char *text = must(shown(kept, fmt, ap));
    fputs(text, stdout);
    free(text);
}

void show(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    show_but("\n", fmt, ap);
    va_end(ap);
}

void show_speech(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (isatty(STDOUT_FILENO)) show_but("\n\t\xd8\xe2\xef\xf3", fmt, ap); /* marks of scripts begin with these bytes */
    else vprintf(fmt, ap);
    va_end(ap);
}

static void say(const char *what, Color c, const char *fmt, va_list ap)
{
    fflush(stdout);
    fprintf(stderr, "qkv: %s%s%s", colors_err ? escape[c] : "", what, colors_err && c ? "\033[0m" : "");
    char *text = shown("", fmt, ap);
    fprintf(stderr, "%s\n", text ? text : "out of memory");
    free(text);
}

int problem(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("error: ", RED, fmt, ap);
    va_end(ap);
    return code;
}

/* The library names no options of the command: what gives what it asks for, by a part of its sentence. */
static void hint(const char *message)
{
    static const struct {
        const char *part, *option;
    } hints[] = {
        {"when loading", "--fix NAME=VALUE gives an input its value"},
        {"leave out the last batch", "--drop-last leaves it out"},
        {"before padding is skipped", "--skip-padding skips it"},
        {"decompose the model into math", "this is --decompose math"},
        {"give the processor as", "this is --processor FILE"},
        {"give the tokenizer as", "this is --tokenizer FILE"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (strstr(message, hints[i].part)) note("%s", hints[i].option);
}

static const char *model_file; /* NULL: none, or several */

void problems_are_of(const char *path)
{
    static bool any;
    model_file = any ? NULL : path;
    any = true;
}

/* A sentence about a node of a model that was read names its file as one about what could not be read does. */
int problem_of(const qkv_error *e)
{
    char why[256];
    bool limited = e->code == QKV_LIMIT && memory_refused(why, sizeof why),
         of_node = model_file && strstr(e->message, "node '") && !strstr(e->message, model_file);
    int code = problem(e->code ? (int)e->code : EXIT_INTERNAL, "%s%s%s%s%s", of_node ? model_file : "",
                       of_node ? ": " : "", e->message, limited ? ": " : "", limited ? why : "");
    hint(e->message);
    return code;
}

void warning(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (level >= 0) say("warning: ", BOLD, fmt, ap);
    va_end(ap);
}

void note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (level >= 0) say("", PLAIN, fmt, ap);
    va_end(ap);
}

void detail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (level >= 1) say("", PLAIN, fmt, ap);
    va_end(ap);
}

/* ------------------------------------------------------------------ tables */

/* Cells are one after the other, each with its NUL: a model may have a million rows. */
struct Table {
    const char *align;
    char *text;
    unsigned char *color;
    size_t len, room;
    int n, cap;
};

Table *table_new(const char *align)
{
    Table *t = must(calloc(1, sizeof *t));
    t->align = align;
    return t;
}

void table_cell(Table *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *cell = must(shown("", fmt, ap));
    va_end(ap);
    size_t size = strlen(cell) + 1;
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 64;
        t->color = must(realloc(t->color, (size_t)t->cap));
    }
    if (size > t->room - t->len) {
        t->room = 2 * t->room + size;
        t->text = must(realloc(t->text, t->room));
    }
    memcpy(t->text + t->len, cell, size);
    t->len += size;
    t->color[t->n++] = PLAIN;
    free(cell);
}

void table_color(Table *t, Color c) { t->color[t->n - 1] = (unsigned char)c; }

/* Code points, which is columns for all but wide scripts. */
static int width(const char *s)
{
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

void table_print(Table *t)
{
    int cols = (int)strlen(t->align);
    int *wide = must(calloc((size_t)cols + 1, sizeof *wide));
    const char *cell = t->text;
    for (int i = 0; i < t->n; i++, cell += strlen(cell) + 1)
        if (width(cell) > wide[i % cols]) wide[i % cols] = width(cell);
    cell = t->text;
    for (int i = 0; i < t->n; i++, cell += strlen(cell) + 1) {
        int c = i % cols, pad = wide[c] - width(cell);
        Color color = i < cols ? BOLD : (Color)t->color[i];
        bool last = c == cols - 1, left = t->align[c] == 'l';
        printf("%*s%s%s%s%*s%s", left ? 0 : pad, "", color_on(color), cell, color_off(color), left && !last ? pad : 0,
               "", last ? "\n" : "  ");
    }
    free(wide);
    table_free(t);
}

void table_free(Table *t)
{
    free(t->text);
    free(t->color);
    free(t);
}

/* ------------------------------------------------------------------ progress */

enum { BAR_AFTER_MS = 500, BAR_EVERY_MS = 100, LEFT_AFTER_MS = 2000, BAR_WIDTH = 24 };

void progress_start(Progress *p, const char *what, int64_t total)
{
    *p = (Progress){.what = what, .total = total, .start = now_ms(), .on = bar && total > 0};
}

void progress_at(Progress *p, double done)
{
    double t = now_ms(), spent = t - p->start, total = (double)p->total;
    if (!p->on || spent < BAR_AFTER_MS || t - p->shown < BAR_EVERY_MS) return;
    int full = (int)(done * BAR_WIDTH / total);
    fprintf(stderr, "\r%s [%.*s%*s] ", p->what, full, "########################", BAR_WIDTH - full, "");
    if (p->total > 1) fprintf(stderr, "%.0f/%lld", floor(done), (long long)p->total);
    else fprintf(stderr, "%.0f%%", floor(100 * done));
    if (spent > LEFT_AFTER_MS && done > 0) fprintf(stderr, "  %.0f s left", spent / done * (total - done) * 1e-3);
    if (p->stage && *p->stage) {
        fputs("  ", stderr);
        for (const char *c = p->stage; *c; c++) fputc(*c == '_' ? ' ' : *c, stderr);
    }
    fputs("\033[K", stderr);
    p->shown = t;
    p->drawn = true;
}

void progress_hide(Progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}

void progress_end(Progress *p)
{
    progress_hide(p);
    p->on = false;
}
