/* Help and man pages. Both are written from the tables of commands and options, so they say the same:
 *
 *     qkv help run          text
 *     qkv help run --man    the source of man/qkv-run.1
 *     qkv help --json       all commands
 */
#include <stdio.h>
#include <string.h>
#include "cli.h"

enum { WIDTH = 100, HELP_COLUMN = 4 };

static const struct {
    int code;
    const char *meaning;
} exit_codes[] = {
    {0, "success"},
    {1, "mismatch: outputs differ, a check found errors, or one of several images could not be read"},
    {2, "usage error: a wrong option, or an input with a wrong name, dtype, rank or size"},
    {3, "unreadable: a file is missing, damaged or of the wrong kind"},
    {4, "unsupported: the model uses something that qkv does not implement"},
    {5, "out of memory, or --memory-limit exceeded"},
    {70, "internal error"},
    {130, "interrupted (SIGINT); 143: terminated (SIGTERM)"},
};
enum { EXIT_CODES = sizeof exit_codes / sizeof *exit_codes };

static const struct {
    const char *name, *meaning;
} environment[] = {
    {"QKV_NUM_THREADS", "Number of threads when --threads is not given; overrides OMP_NUM_THREADS."},
    {"QKV_CPU", "Limit the CPU features that are used: ref, gen, avx2, avxvnni, avx512, avx512vnni, avx512bf16, amx."},
    {"NO_COLOR", "Disables colours when set and not empty."},
};
enum { ENVIRONMENT = sizeof environment / sizeof *environment };

static const char sandbox_help[] =
    "Run the command so that it opens only files that its command line names, for an ONNX model those that it "
    "names for its data, and FILE, ...; no network, no other program (Linux: Landlock and seccomp). qkv check "
    "--security does so by itself.";

/* ------------------------------------------------------------------ text */

/* Words of text, wrapped, each line indented. */
static void wrap(const char *text, int indent)
{
    int column = 0;
    while (*text) {
        int n = (int)strcspn(text, " \n");
        if (column && column + 1 + n > WIDTH) {
            putchar('\n');
            column = 0;
        }
        column += column ? printf(" %.*s", n, text) : printf("%*s%.*s", indent, "", n, text);
        text += n;
        bool paragraph = text[0] == '\n' && text[1] == '\n';
        text += strspn(text, " \n");
        if (paragraph) {
            fputs("\n\n", stdout);
            column = 0;
        }
    }
    putchar('\n');
}

static void title(const char *s) { printf("\n%s%s%s\n", color_on(BOLD), s, color_off(BOLD)); }

static const char *help_of(const Option *t)
{
    static char text[1024];
    if (!t->more) return t->help;
    snprintf(text, sizeof text, "%s %s", t->help, t->more());
    return text;
}

static void print_option(const Option *t)
{
    fputs("  ", stdout);
    if (t->letter) printf("%s-%c%s, ", color_on(BOLD), t->letter, color_off(BOLD));
    const char *before = !t->arg ? "" : t->kind == TEXT_OR_NONE ? "[=" : " ";
    printf("%s--%s%s%s%s%s\n", color_on(BOLD), t->name, color_off(BOLD), before, t->arg ? t->arg : "",
           t->kind == TEXT_OR_NONE ? "]" : "");
    wrap(help_of(t), HELP_COLUMN + 2);
}

static void print_examples(const char *examples)
{
    for (const char *p = examples; *p;) {
        int n = (int)strcspn(p, "\t"), m = (int)strcspn(p + n, "\n");
        printf("  %.*s\n      %.*s\n", n, p, m - 1, p + n + 1);
        p += n + m;
        p += *p == '\n';
    }
}

static void print_exit_codes(void)
{
    title("Exit codes");
    for (int i = 0; i < EXIT_CODES; i++) printf("  %3d  %s\n", exit_codes[i].code, exit_codes[i].meaning);
}

static void print_overview(void)
{
    printf("qkv %s: runs PyTorch attention models (torch.export's .pt2) without Python\n\n", qkv_version());
    printf("usage: qkv [--sandbox[=FILE,...]] COMMAND ... | qkv --version\n");
    for (const CommandGroup *g = command_groups; g->title; g++) {
        title(g->title);
        for (int i = 0; g->command[i]; i++)
            printf("  %s%-12s%s%s\n", color_on(BOLD), g->command[i]->name, color_off(BOLD), g->command[i]->summary);
    }
    title("Options");
    printf("  --sandbox\n");
    wrap(sandbox_help, HELP_COLUMN + 2);
    title("Environment");
    for (int i = 0; i < ENVIRONMENT; i++) printf("  %-17s %s\n", environment[i].name, environment[i].meaning);
    print_exit_codes();
    printf("\nResults go to standard output, messages to standard error. 'qkv help COMMAND' says more.\n");
}

void print_help(const Command *c)
{
    const Option *op;
    if (!c) {
        print_overview();
        return;
    }
    printf("usage: qkv %s %s [options]\n\n", c->name, c->args);
    wrap(c->text, 0);
    title("Options");
    for (int i = 0; (op = option_shown(c, i)); i++) print_option(op);
    title("Examples");
    print_examples(c->examples);
    print_exit_codes();
}

/* ------------------------------------------------------------------ man pages */

/* Text as roff: no backslash, dash or leading dot is taken as markup; filled to `width` columns, 0: never broken. */
static void roff(const char *s, int n, int width)
{
    bool start = true;
    for (int i = 0, column = 0; i < n; i++) {
        if (start && (s[i] == '.' || s[i] == '\'')) fputs("\\&", stdout);
        bool full = width && s[i] == ' ' && column + (int)strcspn(s + i + 1, " \n") >= width;
        start = full || s[i] == '\n';
        column = start ? 0 : column + 1;
        if (full) putchar('\n');
        else if (start && i + 1 < n && s[i + 1] == '\n') {
            fputs("\n.PP\n", stdout);
            i++;
        } else if (s[i] == '\\') fputs("\\e", stdout);
        else if (s[i] == '-') fputs("\\-", stdout);
        else putchar(s[i]);
    }
}

static void roff_all(const char *s) { roff(s, (int)strlen(s), 100); }

static void man_head(const char *page, const char *summary)
{
    printf(".TH %s 1 \"\" \"qkv %s\" \"qkv\"\n.SH NAME\n", page, qkv_version());
    roff_all(page);
    printf(" \\- ");
    roff_all(summary);
    printf("\n.SH SYNOPSIS\n");
}

static void man_exit_codes(void)
{
    printf(".SH EXIT STATUS\n");
    for (int i = 0; i < EXIT_CODES; i++) {
        printf(".TP\n%d\n", exit_codes[i].code);
        roff_all(exit_codes[i].meaning);
        putchar('\n');
    }
}

static void man_overview(void)
{
    man_head("qkv", "run PyTorch attention models without Python");
    printf(".B qkv\n.I COMMAND\n\\&...\n.br\n.B qkv \\-\\-version\n.SH DESCRIPTION\n");
    roff_all("qkv loads the .pt2 archives of torch.export and runs them with no Python and no libtorch.\n"
             "Results go to standard output, messages to standard error.");
    printf("\n.SH COMMANDS\n");
    for (const CommandGroup *g = command_groups; g->title; g++) {
        printf(".SS %s\n", g->title);
        for (int i = 0; g->command[i]; i++) {
            printf(".TP\n.BR qkv\\-%s (1)\n", g->command[i]->name);
            roff_all(g->command[i]->summary);
            putchar('\n');
        }
    }
    printf(".SH OPTIONS\n.TP\n.B \\-\\-sandbox\n");
    roff_all(sandbox_help);
    printf("\n.SH ENVIRONMENT\n");
    for (int i = 0; i < ENVIRONMENT; i++) {
        printf(".TP\n.B %s\n", environment[i].name);
        roff_all(environment[i].meaning);
        putchar('\n');
    }
    man_exit_codes();
}

static void man_page(const Command *c)
{
    const Option *op;
    char page[32];
    snprintf(page, sizeof page, "qkv-%s", c->name);
    man_head(page, c->summary);
    printf(".B qkv %s\n", c->name);
    roff_all(c->args);
    printf(" [options]\n.SH DESCRIPTION\n");
    roff_all(c->text);
    printf("\n.SH OPTIONS\n");
    for (int i = 0; (op = option_shown(c, i)); i++) {
        printf(".TP\n");
        if (op->letter) printf("\\fB\\-%c\\fR, ", op->letter);
        printf("\\fB\\-\\-");
        roff_all(op->name);
        printf("\\fR");
        if (op->kind == TEXT_OR_NONE) printf("[=\\fI%s\\fR]", op->arg);
        else if (op->arg) printf(" \\fI%s\\fR", op->arg);
        putchar('\n');
        roff_all(help_of(op));
        putchar('\n');
    }
    printf(".SH EXAMPLES\n");
    for (const char *p = c->examples; *p;) {
        int n = (int)strcspn(p, "\t"), m = (int)strcspn(p + n, "\n");
        printf(".TP\n");
        roff(p, n, 0);
        putchar('\n');
        roff(p + n + 1, m - 1, 0);
        putchar('\n');
        p += n + m;
        p += *p == '\n';
    }
    man_exit_codes();
    printf(".SH SEE ALSO\n.BR qkv (1)\n");
}

/* ------------------------------------------------------------------ JSON */

static json_t *about(const char *group, const Command *c)
{
    json_t *options = json_array();
    const Option *op;
    for (int i = 0; (op = option_shown(c, i)); i++)
        json_array_append_new(
            options, json_pack("{s:s, s:s*, s:s}", "name", op->name, "argument", op->arg, "help", help_of(op)));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "name", c->name, "group", group, "summary", c->summary,
                     "arguments", c->args, "text", c->text, "options", options);
}

/* c alone, or with NULL all commands */
static void print_json(const Command *c)
{
    json_t *commands = json_array();
    for (const CommandGroup *g = command_groups; g->title; g++)
        for (int i = 0; g->command[i]; i++)
            if (!c || c == g->command[i]) json_array_append_new(commands, about(g->title, g->command[i]));
    json_print(json_pack("{s:i, s:s, s:o}", "schema", JSON_SCHEMA, "version", qkv_version(), "commands", commands));
}

/* ------------------------------------------------------------------ the command */

typedef struct HelpOptions {
    Common common;
    bool man;
} HelpOptions;

static int cmd_help(const void *options)
{
    const HelpOptions *o = options;
    const Command *c = NULL;
    if (o->common.narg && !(c = command_find(o->common.arg[0]))) return QKV_USAGE;
    if (o->common.json) print_json(c);
    else if (!o->man) print_help(c);
    else if (!c) man_overview();
    else man_page(c);
    return 0;
}

static const Option own[] = {
    {"man", FLAG, offsetof(HelpOptions, man), .help = "Print the source of the man page."},
    {0},
};

const Command command_help = {
    .name = "help",
    .args = "[COMMAND]",
    .summary = "Print help",
    .text = "Prints the help of a command, or the list of commands.",
    .examples = "qkv help run\tthe help of qkv run\nqkv help run --man | man -l -\tas a man page\n"
                "qkv help --json\tall commands and their options, for programs",
    .min_args = 0,
    .max_args = 1,
    .size = sizeof(HelpOptions),
    .options = {{own}, {json_option}, {common_options}},
    .run = cmd_help,
};
