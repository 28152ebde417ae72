/* Parsing of options, "did you mean", and lists of words. Which options a command has is in its own file; those that
 * several share, in
 * options_shared.c.
 *
 *     qkv run m.pt2 -D batch=2 -Dseq=128 --seed=1 -o out.npz -- ...        options and other words in any order; --
 * ends options
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli.h"

enum { MOST_OPTIONS = 80 }; /* of one command */

typedef struct Cursor { /* walks over the options of a command, older spellings included */
    const OptionGroup *group;
    const Option *option;
} Cursor;

static const Option *next_option(Cursor *c)
{
    if (!c->group->option) return NULL;
    c->option = c->option ? c->option + 1 : c->group->option;
    while (!c->option->name) {
        if (!(++c->group)->option) return NULL;
        c->option = c->group->option;
    }
    return c->option;
}

const Option *option_shown(const Command *command, int i)
{
    Cursor c = {command->options, NULL};
    const Option *op;
    while ((op = next_option(&c)))
        if (op->help && !i--) return op;
    return NULL;
}

/* ------------------------------------------------------------------ nearest name */

static int min2(int a, int b) { return a < b ? a : b; }

/* Edits between two words; swapping neighbours is one. */
static int distance(const char *a, const char *b)
{
    enum { N = 100 }; /* paths of modules are long */
    int d[N + 1][N + 1], n = (int)strlen(a), m = (int)strlen(b);
    if (n > N || m > N) return N;
    for (int i = 0; i <= n; i++)
        for (int k = 0; k <= m; k++) {
            if (!i || !k) {
                d[i][k] = i + k;
                continue;
            }
            d[i][k] = min2(min2(d[i - 1][k], d[i][k - 1]) + 1, d[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                d[i][k] = min2(d[i][k], d[i - 2][k - 2] + 1);
        }
    return d[n][m];
}

const char *nearest(const char *given, const char *const *names, int n)
{
    const char *best = NULL;
    int best_distance = 1 + (int)strlen(given) / 3;
    for (int i = 0; i < n; i++) {
        bool begins = strlen(given) >= 2 && !strncmp(given, names[i], strlen(given));
        int d = begins ? 1 : distance(given, names[i]);
        if (d > best_distance || (best && d == best_distance)) continue;
        best = names[i];
        best_distance = d;
    }
    return best;
}

/* ------------------------------------------------------------------ parsing */

static int bad_value(const Option *op, const char *value, const char *expected)
{
    return problem(QKV_USAGE, "option '--%s': found '%s', expected %s", op->name, value, expected);
}

static int parse_integer(const Option *op, const char *value, int64_t *out)
{
    char *end, expected[96];
    errno = 0;
    long long v = strtoll(value, &end, 10);
    int shift = 0;
    if (op->kind == BYTES && *end && end != value && !end[1]) {
        static const char suffix[] = "KMG";
        const char *s = strchr(suffix, *end & ~0x20);
        shift = s ? 10 * (1 + (int)(s - suffix)) : 0;
        end += shift > 0;
    }
    if (end != value && !*end && !errno && v >= op->min && v <= op->max >> shift) {
        *out = v << shift;
        return 0;
    }
    if (op->kind == BYTES) return bad_value(op, value, "a number of bytes such as 64M");
    if (op->max == INT64_MAX) snprintf(expected, sizeof expected, "an integer, at least %lld", (long long)op->min);
    else snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)op->min, (long long)op->max);
    return bad_value(op, value, expected);
}

static int take(void *o, const Cursor *c, const char *value)
{
    const Option *op = c->option;
    void *at = (char *)o + c->group->at + op->at;
    switch (op->kind) {
    case FLAG: *(bool *)at = true; return 0;
    case COUNT: ++*(int *)at; return 0;
    case TEXT:
    case TEXT_OR_NONE: *(const char **)at = value; return 0;
    case MANY: {
        List *l = at;
        l->item = must(realloc(l->item, ((size_t)l->n + 1) * sizeof *l->item));
        l->item[l->n++] = value;
        return 0;
    }
    case REAL:
    case REAL_OR_ZERO: {
        char *end;
        double v = strtod(value, &end);
        if (end == value || *end || !isfinite(v) || v < 0 || (v == 0 && op->kind == REAL))
            return bad_value(op, value, op->kind == REAL ? "a number above 0" : "a number of at least 0");
        *(double *)at = v;
        return 0;
    }
    case INTEGER:
    case BYTES: break;
    }
    return parse_integer(op, value, at);
}

static int unknown_option(const Command *command, const char *given)
{
    const char *names[MOST_OPTIONS];
    int n = 0;
    for (const Option *op; n < MOST_OPTIONS && (op = option_shown(command, n)); n++) names[n] = op->name;
    const char *close = nearest(given, names, n);
    if (close)
        return problem(QKV_USAGE, "qkv %s has no option '--%s'; did you mean '--%s'?", command->name, given, close);
    return problem(QKV_USAGE, "qkv %s has no option '--%s'; 'qkv help %s' lists them", command->name, given,
                   command->name);
}

/* "--name", "--name=value", "--name value" (not of MAYBE). */
static int long_option(const Command *command, char **argv, int argc, int *i, void *o)
{
    const char *name = argv[*i] + 2, *eq = strchr(name, '=');
    size_t n = eq ? (size_t)(eq - name) : strlen(name);
    Cursor c = {command->options, NULL};
    for (const Option *op; (op = next_option(&c));) {
        if (strlen(op->name) != n || strncmp(op->name, name, n)) continue;
        if (!op->arg && eq) return problem(QKV_USAGE, "option '--%s' takes no value", op->name);
        if (op->kind == TEXT_OR_NONE) return take(o, &c, eq ? eq + 1 : "");
        if (op->arg && !eq && *i + 1 >= argc)
            return problem(QKV_USAGE, "option '--%s' needs a value: %s", op->name, op->arg);
        return take(o, &c, !op->arg ? NULL : eq ? eq + 1 : argv[++*i]);
    }
    char given[64];
    snprintf(given, sizeof given, "%.*s", (int)n, name);
    return unknown_option(command, given);
}

/* "-x", "-xy" for flags, "-xvalue", "-x value". */
static int short_options(const Command *command, char **argv, int argc, int *i, void *o)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        Cursor c = {command->options, NULL};
        const Option *op = next_option(&c);
        while (op && op->letter != *p) op = next_option(&c);
        if (!op)
            return problem(QKV_USAGE, "qkv %s has no option '-%c'; 'qkv help %s' lists them", command->name, *p,
                           command->name);
        if (!op->arg) {
            take(o, &c, NULL);
            continue;
        }
        if (!p[1] && *i + 1 >= argc) return problem(QKV_USAGE, "option '-%c' needs a value: %s", *p, op->arg);
        return take(o, &c, p[1] ? p + 1 : argv[++*i]);
    }
    return 0;
}

int options_parse(const Command *command, int argc, char **argv, Common **out)
{
    void *o = must(calloc(1, command->size));
    Common *common = *out = o;
    if (command->defaults) memcpy(o, command->defaults, command->size);
    common->arg = must(calloc((size_t)argc + 1, sizeof *common->arg));
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        int code = 0;
        if (!ended && !strcmp(argv[i], "--")) ended = true;
        else if (!ended && !strncmp(argv[i], "--", 2)) code = long_option(command, argv, argc, &i, o);
        else if (!ended && argv[i][0] == '-' && argv[i][1]) code = short_options(command, argv, argc, &i, o);
        else common->arg[common->narg++] = argv[i];
        if (code) return code;
    }
    if (common->help) return 0;
    if (common->narg < command->min_args)
        return problem(QKV_USAGE, "an argument is missing: qkv %s %s; 'qkv help %s' says more", command->name,
                       command->args, command->name);
    if (command->max_args >= 0 && common->narg > command->max_args)
        return problem(QKV_USAGE, "'%s' is one argument too many: qkv %s %s", common->arg[command->max_args],
                       command->name, command->args);
    return 0;
}

static bool is_path(const Option *op)
{
    static const char *const word[] = {"FILE", "DIR", "MODEL"};
    for (int i = 0; op->arg && (op->kind == TEXT || op->kind == TEXT_OR_NONE || op->kind == MANY) && i < 3; i++)
        if (strstr(op->arg, word[i])) return true;
    return false;
}

/* "NAME=FILE" has its path after the sign. */
static void path_of(const Option *op, const char *value, PathFn *f, void *user)
{
    const char *eq = value ? strchr(value, '=') : NULL;
    PathUse use = op->keeps                 ? PATH_KEPT
                  : !op->writes             ? PATH_READ
                  : op->in_place            ? PATH_IN_PLACE
                  : !strcmp(op->arg, "DIR") ? PATH_FOLDER
                                            : PATH_WRITTEN;
    if (value && *value) f(user, value, use);
    if (value && *value && op->reads) f(user, value, PATH_READ);
    if (eq && strchr(op->arg, '=')) f(user, eq + 1, use);
}

void options_each_path(const Command *command, const Common *o, PathFn *f, void *user)
{
    Cursor c = {command->options, NULL};
    for (int i = 0; i < o->narg; i++) f(user, o->arg[i], PATH_READ);
    for (const Option *op; (op = next_option(&c));) {
        const void *at = (const char *)o + c.group->at + op->at;
        const List *l = at;
        if (!is_path(op)) continue;
        const char *given = op->kind != MANY ? *(const char *const *)at : NULL;
        if (op->kind != MANY) path_of(op, given ? given : op->otherwise, f, user);
        for (int i = 0; op->kind == MANY && i < l->n; i++) path_of(op, l->item[i], f, user);
    }
}

typedef struct Outputs {
    const char **path;
    int n;
    const char *twice;
} Outputs;

/* Do both name one file, by a link perhaps? */
static bool same_file(const char *a, const char *b)
{
    struct stat one, other;
    return !strcmp(a, b) ||
           (!stat(a, &one) && !stat(b, &other) && one.st_dev == other.st_dev && one.st_ino == other.st_ino);
}

static void take_output(void *user, const char *path, PathUse use)
{
    Outputs *o = user;
    if (use != PATH_WRITTEN && use != PATH_IN_PLACE) return;
    for (int i = 0; i < o->n; i++)
        if (o->path[i] != path && same_file(o->path[i], path)) o->twice = path; /* not an older spelling's */
    o->path = must(realloc(o->path, ((size_t)o->n + 1) * sizeof *o->path));
    o->path[o->n++] = path;
}

int options_outputs_differ(const Command *command, const Common *o)
{
    Outputs all = {0};
    options_each_path(command, o, take_output, &all);
    free(all.path);
    return all.twice ? problem(QKV_USAGE, "'%s' is named for two outputs, of which one would be lost", all.twice) : 0;
}

void options_free(const Command *command, Common *o)
{
    Cursor c = {command->options, NULL};
    for (const Option *op; (op = next_option(&c));) {
        List *l = (List *)(void *)((char *)o + c.group->at + op->at);
        if (op->kind != MANY) continue;
        free(l->item);
        l->item = NULL; /* an older spelling has the same list */
    }
    free(o->arg);
    free(o);
}

void words_of(const List *l, Words *out)
{
    size_t bytes = 1, words = 1;
    *out = (Words){0};
    for (int i = 0; i < l->n; i++) {
        bytes += strlen(l->item[i]) + 1;
        for (const char *s = l->item[i]; s; s = strchr(s + 1, ',')) words++;
    }
    out->text = must(calloc(bytes, 1));
    out->name = must(calloc(words, sizeof *out->name));
    char *at = out->text;
    for (int i = 0; i < l->n; i++) {
        strcpy(at, l->item[i]);
        char *rest = at, *word;
        at += strlen(at) + 1;
        while ((word = strsep(&rest, ",")))
            if (*word) out->name[out->n++] = word;
    }
}

void words_free(Words *n)
{
    free(n->text);
    free(n->name);
}

bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n > k && !strcmp(path + n - k, end);
}

/* ------------------------------------------------------------------ values that have names */

int bad_choice(const char *option, const char *found, const char *const *names)
{
    char all[160] = "";
    for (size_t i = 0, at = 0; names[i]; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", !i ? "" : names[i + 1] ? ", " : " or ", names[i]);
    return problem(QKV_USAGE, "option '%s': found '%s', expected %s", option, found, all);
}

int sum_of_choices(const char *option, const char *text, const char *const *names, unsigned *out)
{
    for (const char *s = text; s && *s;) {
        char name[32];
        size_t n = strcspn(s, ","), i = 0;
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), s);
        while (names[i] && strcmp(names[i], name)) i++;
        if (!names[i]) return bad_choice(option, name, names);
        *out |= 1u << i;
        s += n + (s[n] == ',');
    }
    return 0;
}
