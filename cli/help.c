/* Help and man pages. Both are written from the tables of commands and options, so they say the same:
 *
 *     qkv help run          text
 *     qkv help run --man    the source of man/qkv-run.1
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
    {1, "numbers differ; a check found errors; a picture of many could not be read"},
    {2, "usage: a wrong option, or an input of a wrong name, dtype, rank or size"},
    {3, "a file that is missing, damaged or not what it should be"},
    {4, "a model that uses what qkv has not built yet"},
    {5, "out of memory, or over --memory-limit"},
    {70, "an internal error"},
    {130, "interrupted (SIGINT); 143: ended (SIGTERM)"},
};
enum { EXIT_CODES = sizeof exit_codes / sizeof *exit_codes };

static const struct {
    const char *name, *meaning;
} environment[] = {
    {"QKV_NUM_THREADS", "Threads when --threads is not given; before OMP_NUM_THREADS."},
    {"QKV_CPU", "Use lower CPU features than the machine has: ref, gen, avx2, avx512, avx512bf16, amx."},
    {"NO_COLOR", "When set and not empty: no colours."},
};
enum { ENVIRONMENT = sizeof environment / sizeof *environment };

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

static void print_option(const OptionText *t)
{
    fputs("  ", stdout);
    if (t->letter) printf("%s-%c%s, ", color_on(BOLD), t->letter, color_off(BOLD));
    printf("%s--%s%s%s%s\n", color_on(BOLD), t->name, color_off(BOLD), t->arg ? " " : "", t->arg ? t->arg : "");
    wrap(t->help, HELP_COLUMN + 2);
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
    printf(
        "qkv %s: runs PyTorch attention models (torch.export's .pt2) without Python\n\nusage: qkv COMMAND ... | qkv --version\n",
        qkv_version());
    title("Commands");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %s%-12s%s%s\n", color_on(BOLD), commands[i].name, color_off(BOLD), commands[i].summary);
    title("Environment");
    for (int i = 0; i < ENVIRONMENT; i++) printf("  %-17s %s\n", environment[i].name, environment[i].meaning);
    print_exit_codes();
    printf("\nResults go to standard output, messages to standard error. 'qkv help COMMAND' says more.\n");
}

void print_help(int command)
{
    OptionText t;
    if (command < 0) {
        print_overview();
        return;
    }
    const Command *c = &commands[command];
    printf("usage: qkv %s %s [options]\n\n", c->name, c->args);
    wrap(c->text, 0);
    title("Options");
    for (int i = 0; option_text((CommandId)command, i, &t); i++) print_option(&t);
    title("Examples");
    print_examples(c->examples);
    print_exit_codes();
}

/* ------------------------------------------------------------------ man pages */

/* Text as roff: no backslash, dash or leading dot is taken as markup. */
static void roff(const char *s, int n)
{
    bool start = true;
    for (int i = 0; i < n; i++) {
        if (start && (s[i] == '.' || s[i] == '\'')) fputs("\\&", stdout);
        start = s[i] == '\n';
        if (start && i + 1 < n && s[i + 1] == '\n') {
            fputs("\n.PP\n", stdout);
            i++;
        } else if (s[i] == '\\') fputs("\\e", stdout);
        else if (s[i] == '-') fputs("\\-", stdout);
        else putchar(s[i]);
    }
}

static void roff_all(const char *s) { roff(s, (int)strlen(s)); }

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
    for (int i = 0; i < COMMANDS; i++) {
        printf(".TP\n.BR qkv\\-%s (1)\n", commands[i].name);
        roff_all(commands[i].summary);
        putchar('\n');
    }
    printf(".SH ENVIRONMENT\n");
    for (int i = 0; i < ENVIRONMENT; i++) {
        printf(".TP\n.B %s\n", environment[i].name);
        roff_all(environment[i].meaning);
        putchar('\n');
    }
    man_exit_codes();
}

static void man_page(CommandId command)
{
    const Command *c = &commands[command];
    OptionText t;
    char page[32];
    snprintf(page, sizeof page, "qkv-%s", c->name);
    man_head(page, c->summary);
    printf(".B qkv %s\n", c->name);
    roff_all(c->args);
    printf(" [options]\n.SH DESCRIPTION\n");
    roff_all(c->text);
    printf("\n.SH OPTIONS\n");
    for (int i = 0; option_text(command, i, &t); i++) {
        printf(".TP\n");
        if (t.letter) printf("\\fB\\-%c\\fR, ", t.letter);
        printf("\\fB\\-\\-");
        roff_all(t.name);
        printf("\\fR");
        if (t.arg) printf(" \\fI%s\\fR", t.arg);
        putchar('\n');
        roff_all(t.help);
        putchar('\n');
    }
    printf(".SH EXAMPLES\n");
    for (const char *p = c->examples; *p;) {
        int n = (int)strcspn(p, "\t"), m = (int)strcspn(p + n, "\n");
        printf(".TP\n");
        roff(p, n);
        putchar('\n');
        roff(p + n + 1, m - 1);
        putchar('\n');
        p += n + m;
        p += *p == '\n';
    }
    man_exit_codes();
    printf(".SH SEE ALSO\n.BR qkv (1)\n");
}

int cmd_help(const Options *o)
{
    int command = -1;
    if (o->narg && (command = command_find(o->arg[0])) < 0) return QKV_USAGE;
    if (!o->man) print_help(command);
    else if (command < 0) man_overview();
    else man_page((CommandId)command);
    return 0;
}
