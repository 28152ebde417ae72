/* The page of qkv report and qkv compare: report/page.html with its style, scripts and data put in, so that one file
 * is all of it. What is said of the data is JSON in any layout, read once and written in the one of the file.
 */
#include "page.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

extern const char *const page_files[]; /* report/: page.html, page.css, then scripts (cli/meson.build) */

typedef enum Form { PAGE, DATA, STEPS } Form;

enum { ROOM = 1 << 16 };

struct Page {
    qkv_file *file;
    Form form;
    const char *rest; /* of page.html, after the data */
    int depth;
    bool fresh; /* a bracket or a name came last */
    bool wrong; /* the file cannot be written: e says why */
    qkv_error e;
    size_t n;
    char room[ROOM];
};

/* ------------------------------------------------------------------ the file */

static void flush(Page *p)
{
    if (!p->wrong) p->wrong = qkv_file_add(p->file, p->room, p->n, &p->e) != QKV_OK;
    p->n = 0;
}

static void add(Page *p, const char *s, size_t n)
{
    for (size_t k; n; n -= k, s += k) {
        if (p->n == ROOM) flush(p);
        k = n < ROOM - p->n ? n : ROOM - p->n;
        memcpy(p->room + p->n, s, k);
        p->n += k;
    }
}

static void add_text(Page *p, const char *s) { add(p, s, strlen(s)); }

/* page.html up to where the data are, or from there to its end. */
static void add_page(Page *p)
{
    const char *s = p->rest;
    for (const char *mark; (mark = strstr(s, "<!--qkv:")); s = strstr(mark, "-->") + 3) {
        add(p, s, (size_t)(mark - s));
        if (!strncmp(mark + 8, "data", 4)) {
            p->rest = strstr(mark, "-->") + 3;
            return;
        }
        if (!strncmp(mark + 8, "style", 5)) add_text(p, page_files[1]);
        else
            for (int i = 2; page_files[i]; i++) add_text(p, page_files[i]);
    }
    add_text(p, s);
}

/* ------------------------------------------------------------------ the data */

static size_t flags_of(const Page *p)
{
    return JSON_ENCODE_ANY | JSON_REAL_PRECISION(9) | (p->form == PAGE ? JSON_COMPACT | JSON_ENSURE_ASCII : 0);
}

/* A string, a number or a word. In a script element no name can end the element or begin another one. */
static void add_token(Page *p, const char *s, size_t n)
{
    char *text = NULL;
    bool number = *s == '-' || (*s >= '0' && *s <= '9'), plain = !number || strcspn(s, ".eE") >= n;
    for (size_t i = 0; i < n && plain; i++) plain = s[i] >= ' ' && s[i] < 127 && s[i] != '\\';
    if (!plain) {
        json_t *v = must(json_loadb(s, n, JSON_DECODE_ANY, NULL));
        s = text = must(json_dumps(v, flags_of(p)));
        n = strlen(text);
        json_decref(v);
    }
    for (size_t k, i = 0; i < n; i += k) {
        for (k = 0; i + k < n && !(p->form == PAGE && strchr("<>&", s[i + k])); k++) {
        }
        add(p, s + i, k);
        if (i + k == n) break;
        add_text(p, s[i + k] == '<' ? "\\u003c" : s[i + k] == '>' ? "\\u003e" : "\\u0026");
        k++;
    }
    free(text);
}

static void add_line(Page *p)
{
    if (p->form != DATA) return;
    add_text(p, "\n");
    for (int i = 0; i < p->depth; i++) add_text(p, " ");
}

/* Before a value or the name of one. */
static void begin(Page *p)
{
    if (p->fresh && p->depth) add_line(p);
    p->fresh = false;
}

static size_t length_of_token(const char *s, const char *end)
{
    const char *at = s + 1;
    if (*s != '"') return 1 + strcspn(at, ",:]} \n");
    while (at < end && *at != '"') at += 1 + (*at == '\\');
    return (size_t)(at + 1 - s);
}

/* JSON up to end, which is between two tokens. */
static void put(Page *p, const char *s, const char *end)
{
    if (p->form == STEPS) return;
    for (size_t n; s < end; s += n) {
        n = 1;
        if (*s == ' ' || *s == '\n') continue;
        if (*s == ':') add(p, ": ", p->form == DATA ? 2 : 1);
        else if (*s == ',') {
            add(p, s, 1);
            add_line(p);
        } else if (*s == '{' || *s == '[') {
            begin(p);
            add(p, s, 1);
            p->depth++;
            p->fresh = true;
        } else if (*s == '}' || *s == ']') {
            p->depth--;
            if (!p->fresh) add_line(p);
            add(p, s, 1);
            p->fresh = false;
        } else {
            n = length_of_token(s, end);
            begin(p);
            add_token(p, s, n);
        }
    }
}

static void put_text(Page *p, const char *s) { put(p, s, s + strlen(s)); }

static void put_key(Page *p, const char *key)
{
    char text[64];
    if (!p->fresh) put_text(p, ",");
    if (key) snprintf(text, sizeof text, "\"%s\":", key), put_text(p, text);
}

void page_text(Page *p, const char *key, const char *json)
{
    put_key(p, key);
    put_text(p, json);
}

void page_value(Page *p, const char *key, json_t *v)
{
    char *text = must(json_dumps(must(v), JSON_ENCODE_ANY));
    page_text(p, key, text);
    free(text);
    json_decref(v);
}

void page_open(Page *p, const char *key, char bracket) { page_text(p, key, (const char[]){bracket, 0}); }

void page_open_text(Page *p, const char *key, const char *json)
{
    put_key(p, key);
    put(p, json, strrchr(json, '}'));
}

void page_close(Page *p, const char *brackets) { put_text(p, brackets); }

/* ------------------------------------------------------------------ the steps as a table */

static void add_field(Page *p, const char *s)
{
    add_text(p, "\"");
    for (; *s; s++) add(p, *s == '"' ? "\"\"" : s, *s == '"' ? 2 : 1);
    add_text(p, "\"");
}

static void add_step(Page *p, const char *file, const json_t *step)
{
    static const char *const texts[] = {"node", "op", "shape", "operands"};
    static const char *const values[] = {"calls", "total_ms", "min_ms", "flops", "bytes"};
    add_field(p, file);
    for (int c = 0; c < 4; c++) {
        add_text(p, ",");
        add_field(p, text_at(step, texts[c]));
    }
    for (int c = 0; c < 5; c++) {
        const json_t *v = json_object_get(step, values[c]);
        char *text = json_is_number(v) ? json_dumps(v, flags_of(p)) : NULL;
        add_text(p, ",");
        if (text) add_text(p, text);
        free(text);
    }
    add_text(p, "\n");
}

void page_steps(Page *p, const char *file, const char *profile)
{
    const char *at, *first;
    size_t left = report_list(profile, "steps", &first);
    at = first;
    for (; p->form == STEPS && left; left--) {
        json_t *step = report_next(&at);
        add_step(p, file, step);
        json_decref(step);
    }
    page_open(p, "steps", '[');
    put(p, first, report_list_end(first));
    page_close(p, "]");
}

/* ------------------------------------------------------------------ the whole */

int page_can_write(const char *path)
{
    if (!path) return problem(QKV_USAGE, "where to write is missing: -o FILE.html");
    if (ends_in(path, ".html") || ends_in(path, ".json") || ends_in(path, ".csv")) return 0;
    return problem(QKV_USAGE, "option '--output': found '%s', expected a name that ends in .html, .json or .csv", path);
}

static json_t *cpu_model(void)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    json_t *name = NULL;
    while (f && !name && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        colon[strcspn(colon, "\n")] = 0;
        name = json_text(colon + 2);
    }
    if (f) fclose(f);
    return name ? name : json_null();
}

int page_begin(const char *path, const char *kind, Page **out)
{
    struct utsname u = {0};
    struct sysinfo memory = {0};
    qkv_error e;
    Page *p = must(calloc(1, sizeof *p));
    if (!(p->file = qkv_file_open(path, &e))) {
        free(p);
        return problem_of(&e);
    }
    p->form = ends_in(path, ".html") ? PAGE : ends_in(path, ".csv") ? STEPS : DATA;
    p->rest = page_files[0];
    p->fresh = true;
    if (p->form == PAGE) add_page(p);
    if (p->form == STEPS) add_text(p, "file,node,op,result,operands,calls,total_ms,min_ms,flops,bytes\n");
    uname(&u);
    sysinfo(&memory);
    json_t *head = json_pack("{s:i, s:s, s:{s:s, s:s, s:o, s:i, s:f, s:o, s:o}}", "schema", JSON_SCHEMA, "kind", kind,
                             "machine", "qkv", qkv_version(), "isa", qkv_cpu(), "cpu", cpu_model(), "cpus",
                             get_nprocs(), "memory_bytes", (double)memory.totalram * memory.mem_unit, "system",
                             json_text(u.sysname), "architecture", json_text(u.machine));
    char *text = must(json_dumps(must(head), 0));
    page_open_text(p, NULL, text);
    free(text);
    json_decref(head);
    *out = p;
    return 0;
}

int page_end(Page *p, int code)
{
    qkv_error e;
    if (!code) {
        page_close(p, "}");
        if (p->form == PAGE) add_page(p);
        if (p->form == DATA) add_text(p, "\n");
        flush(p);
        if (p->wrong) code = problem_of(&p->e);
    }
    if (code) qkv_file_free(p->file);
    else if (qkv_file_finish(p->file, &e)) code = problem_of(&e);
    free(p);
    return code;
}

/* ------------------------------------------------------------------ parts of the data */

int page_report(Page *p, const char *key, char *text, const qkv_error *e)
{
    if (!text) return problem_of(e);
    page_text(p, key, text);
    qkv_free(text);
    return 0;
}

/* "bytes" and "sha256" of a file. */
static int put_file_facts(Page *p, const char *path)
{
    static char piece[1 << 16];
    char hex[65];
    Sha256 s;
    FILE *f = fopen(path, "rb");
    if (!f) return problem(QKV_UNREADABLE, "%s: cannot be opened", path);
    sha256_init(&s);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f));) sha256_add(&s, piece, n);
    bool lost = ferror(f);
    fclose(f);
    if (lost) return problem(QKV_UNREADABLE, "%s: cannot be read", path);
    page_value(p, "bytes", json_integer((json_int_t)s.bytes));
    sha256_end(&s, hex);
    page_value(p, "sha256", json_string(hex));
    return 0;
}

int page_open_model(Page *p, const char *path, const qkv_model *m)
{
    qkv_error e;
    char *text = qkv_model_describe(m, &e);
    if (!text) return problem_of(&e);
    page_open_text(p, NULL, text);
    qkv_free(text);
    int code = put_file_facts(p, path);
    return code ? code : page_report(p, "graph", qkv_model_graph_json(m, "import", &e), &e);
}
