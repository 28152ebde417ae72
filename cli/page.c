/* The page of qkv report and qkv compare: report/page.html with its style, scripts and data put in, so that one file
 * is all of it.
 *
 *     page_write("report.html", data);     report.json: the data alone; report.csv: the steps of its runs
 */
#include "page.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

extern const char *const page_files[]; /* report/: page.html, page.css, then scripts (cli/meson.build) */

typedef struct Text {
    char *at;
    size_t len, cap;
} Text;

static void add(Text *t, const char *s, size_t n)
{
    if (t->len + n > t->cap) {
        t->cap = 2 * (t->len + n);
        t->at = must(realloc(t->at, t->cap));
    }
    memcpy(t->at + t->len, s, n);
    t->len += n;
}

static void add_text(Text *t, const char *s) { add(t, s, strlen(s)); }

/* JSON of ASCII in a script element: no name in it can end the element or begin another one. */
static void add_data(Text *t, const json_t *data)
{
    char *json = must(json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)));
    for (const char *s = json; *s;) {
        size_t n = strcspn(s, "<>&");
        add(t, s, n);
        s += n;
        if (!*s) break;
        add_text(t, *s == '<' ? "\\u003c" : *s == '>' ? "\\u003e" : "\\u0026");
        s++;
    }
    free(json);
}

static void add_page(Text *t, const json_t *data)
{
    for (const char *s = page_files[0]; *s;) {
        const char *mark = strstr(s, "<!--qkv:");
        add(t, s, mark ? (size_t)(mark - s) : strlen(s));
        if (!mark) return;
        if (!strncmp(mark + 8, "style", 5)) add_text(t, page_files[1]);
        else if (!strncmp(mark + 8, "data", 4)) add_data(t, data);
        else
            for (int i = 2; page_files[i]; i++) add_text(t, page_files[i]);
        s = strstr(mark, "-->") + 3;
    }
}

/* ------------------------------------------------------------------ the steps as a table */

static void add_field(Text *t, const char *s)
{
    add_text(t, "\"");
    for (; *s; s++) add(t, *s == '"' ? "\"\"" : s, *s == '"' ? 2 : 1);
    add_text(t, "\"");
}

static void add_steps(Text *t, const json_t *data)
{
    static const char *const texts[] = {"node", "op", "shape", "operands"};
    static const char *const values[] = {"calls", "total_ms", "min_ms", "flops", "bytes"};
    size_t i, k;
    json_t *run, *step;
    add_text(t, "file,node,op,result,operands,calls,total_ms,min_ms,flops,bytes\n");
    json_array_foreach(json_object_get(data, "time"), i, run)
    {
        json_array_foreach(json_object_get(run, "steps"), k, step)
        {
            add_field(t, text_at(run, "file"));
            for (int c = 0; c < 4; c++) {
                add_text(t, ",");
                add_field(t, text_at(step, texts[c]));
            }
            for (int c = 0; c < 5; c++) {
                const json_t *v = json_object_get(step, values[c]);
                char *text = json_is_number(v) ? json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
                add_text(t, ",");
                if (text) add_text(t, text);
                free(text);
            }
            add_text(t, "\n");
        }
    }
}

int page_can_write(const char *path)
{
    if (!path) return problem(QKV_USAGE, "where to write is missing: -o FILE.html");
    if (ends_in(path, ".html") || ends_in(path, ".json") || ends_in(path, ".csv")) return 0;
    return problem(QKV_USAGE, "option '--output': found '%s', expected a name that ends in .html, .json or .csv", path);
}

int page_write(const char *path, json_t *data)
{
    Text t = {0};
    qkv_error e;
    if (ends_in(path, ".html")) add_page(&t, data);
    else if (ends_in(path, ".csv")) add_steps(&t, data);
    else {
        char *json = must(json_dumps(data, JSON_INDENT(1) | JSON_REAL_PRECISION(9)));
        add_text(&t, json);
        add_text(&t, "\n");
        free(json);
    }
    json_decref(data);
    int code = qkv_file_write(path, t.at, t.len, &e) ? problem_of(&e) : 0;
    free(t.at);
    return code;
}

/* ------------------------------------------------------------------ parts of the data */

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

json_t *page_of(const char *kind)
{
    struct utsname u = {0};
    struct sysinfo memory = {0};
    uname(&u);
    sysinfo(&memory);
    return json_pack("{s:i, s:s, s:{s:s, s:s, s:o, s:i, s:f, s:o, s:o}}", "schema", JSON_SCHEMA, "kind", kind,
                     "machine", "qkv", qkv_version(), "isa", qkv_cpu(), "cpu", cpu_model(), "cpus", get_nprocs(),
                     "memory_bytes", (double)memory.totalram * memory.mem_unit, "system", json_text(u.sysname),
                     "architecture", json_text(u.machine));
}

json_t *parsed(char *text)
{
    json_t *j = text ? json_loads(text, 0, NULL) : NULL;
    qkv_free(text);
    return j;
}

/* "bytes" and "sha256" of a file. */
static int file_facts(const char *path, json_t *into)
{
    static char piece[1 << 16];
    char hex[65];
    Sha256 s;
    FILE *f = fopen(path, "rb");
    if (!f) return problem(QKV_UNREADABLE, "%s: cannot be opened", path);
    sha256_init(&s);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f));) sha256_add(&s, piece, n);
    bool lost = ferror(f);
    json_object_set_new(into, "bytes", json_integer((json_int_t)s.bytes));
    fclose(f);
    if (lost) return problem(QKV_UNREADABLE, "%s: cannot be read", path);
    sha256_end(&s, hex);
    json_object_set_new(into, "sha256", json_string(hex));
    return 0;
}

int model_facts(const char *path, const qkv_model *m, json_t **out)
{
    qkv_error e;
    json_t *j = parsed(qkv_model_describe(m, &e)), *graph = j ? parsed(qkv_model_graph_json(m, "import", &e)) : NULL;
    int code = graph ? file_facts(path, j) : problem_of(&e);
    if (graph) json_object_set_new(j, "graph", graph);
    if (code) json_decref(j);
    else *out = j;
    return code;
}
