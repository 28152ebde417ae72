/* The command qkv: its groups of commands, signals, and exit codes (help.c says what they mean).
 *
 *     qkv inspect vit.pt2
 *     qkv run vit.pt2 -i in.npz -o out.npz
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "cli.h"
#include "metric.h"

const CommandGroup command_groups[] = {
    {"Look at a model",
     {&command_inspect, &command_graph, &command_check, &command_backends, &command_report, &command_compare}},
    {"Run a model", {&command_run, &command_bench, &command_verify, &command_prove}},
    {"Change a model",
     {&command_rewrite, &command_convert, &command_extract, &command_generalize, &command_joint, &command_quantize,
      &command_pack}},
    {"Train a model", {&command_train}},
    {"Text and vision", {&command_generate, &command_embed, &command_classify, &command_segment}},
    {"Serve models", {&command_serve}},
    {"Help", {&command_help}},
    {0},
};

const Command *command_find(const char *name)
{
    enum { MOST_COMMANDS = 64 };
    const char *names[MOST_COMMANDS];
    int n = 0;
    for (const CommandGroup *g = command_groups; g->title; g++)
        for (int i = 0; g->command[i] && n < MOST_COMMANDS; i++) {
            names[n++] = g->command[i]->name;
            if (!strcmp(name, g->command[i]->name)) return g->command[i];
        }
    const char *close = nearest(name, names, n);
    if (close) problem(QKV_USAGE, "no command is called '%s'; did you mean '%s'?", name, close);
    else problem(QKV_USAGE, "no command is called '%s'; 'qkv help' lists them", name);
    return NULL;
}

/* ------------------------------------------------------------------ signals */

/* Half-written files go; then the code that a shell gives a program that the signal killed. */
static void on_end(int signal)
{
    qkv_interrupted();
    metric_clear();
    broker_end();
    _exit(128 + signal);
}

static void on_bug(int signal)
{
    static const char text[] = "qkv: internal error; please report it with the command and the model\n";
    (void)signal;
    qkv_interrupted();
    broker_end();
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(EXIT_INTERNAL);
    _exit(EXIT_INTERNAL);
}

enum { MAPS_LINE = 4352 }; /* of /proc/self/maps: a path and what stands before it */

/* A line, with ? for control characters; false after the last one. */
static bool next_line(int fd, char line[MAPS_LINE])
{
    size_t n = 0;
    char c;
    while (read(fd, &c, 1) == 1 && c != '\n')
        if (n < MAPS_LINE - 1) line[n++] = ((unsigned char)c < ' ' || c == '\x7f') ? '?' : c;
    line[n] = 0;
    return n > 0;
}

static uintptr_t hex(const char **at)
{
    static const char digits[] = "0123456789abcdef";
    uintptr_t x = 0;
    for (const char *d; **at && (d = strchr(digits, **at)); ++*at) x = 16 * x + (uintptr_t)(d - digits);
    return x;
}

/* The file that is mapped at an address, by /proc/self/maps ("7f00-7fff r--p ... /a/m.pt2"), with nothing but what a
 * handler of signals may call; "a file" where that is not known. */
static const char *mapped_at(uintptr_t address, char line[MAPS_LINE])
{
    int fd = open("/proc/self/maps", O_RDONLY);
    while (fd >= 0 && next_line(fd, line)) {
        const char *at = line, *path = strchr(line, '/');
        uintptr_t from = hex(&at), to = *at == '-' ? (at++, hex(&at)) : 0;
        if (path && address >= from && address < to) return path;
    }
    return "a file";
}

/* A mapped file that shrinks while it is read ends in SIGBUS. */
static void on_shrunk_file(int signal, siginfo_t *info, void *context)
{
    char line[MAPS_LINE];
    const char *const part[] = {"qkv: error: ", mapped_at((uintptr_t)info->si_addr, line),
                                " changed while it was being read\n"};
    (void)signal, (void)context;
    qkv_interrupted();
    broker_end();
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (write(STDERR_FILENO, part[i], strlen(part[i])) < 0) break;
    _exit(QKV_UNREADABLE);
}

static void handle(int number, void (*f)(int))
{
    struct sigaction a = {.sa_handler = f};
    sigemptyset(&a.sa_mask);
    sigaction(number, &a, NULL);
}

static void handle_shrunk_files(void)
{
    struct sigaction a = {.sa_sigaction = on_shrunk_file, .sa_flags = SA_SIGINFO};
    sigemptyset(&a.sa_mask);
    sigaction(SIGBUS, &a, NULL);
}

static void set_signals(void)
{
    handle(SIGINT, on_end);
    handle(SIGTERM, on_end);
    handle(SIGHUP, on_end);
    handle(SIGXCPU, on_end);
    handle(SIGPIPE, SIG_DFL); /* `qkv ... | head` ends quietly */
    handle(SIGXFSZ, SIG_IGN); /* a file above the limit is a write that fails, with its sentence */
    handle(SIGABRT, on_bug);
    handle_shrunk_files();
#if !defined(__SANITIZE_ADDRESS__)
    handle(SIGSEGV, on_bug);
#endif
}

/* ------------------------------------------------------------------ main */

/* With too little stack, what goes down into a model ends in a segmentation fault. */
static int stack_enter(void)
{
    const rlim_t least = 256 << 10, usual = 8 << 20;
    struct rlimit r;
    if (getrlimit(RLIMIT_STACK, &r) || r.rlim_cur >= usual) return 0;
    r.rlim_cur = r.rlim_max < usual ? r.rlim_max : usual;
    setrlimit(RLIMIT_STACK, &r); /* which a sandbox may refuse: then it stays as it was */
    if (getrlimit(RLIMIT_STACK, &r) || r.rlim_cur >= least) return 0;
    return problem(QKV_LIMIT, "the stack is limited to %llu KiB and must have 256; 'ulimit -s' sets it",
                   (unsigned long long)r.rlim_cur >> 10);
}

/* --sandbox, --sandbox=FILE,...: before the command. */
typedef struct Asked {
    bool sandbox;
    const char *more; /* NULL: no other files */
} Asked;

static bool take_sandbox(const char *word, Asked *asked)
{
    static const char name[] = "--sandbox";
    size_t n = sizeof name - 1;
    if (strncmp(word, name, n) || (word[n] && word[n] != '=')) return false;
    *asked = (Asked){true, word[n] ? word + n + 1 : NULL};
    return true;
}

static int run_command(const Command *command, const Common *o, const Asked *asked)
{
    bool wanted = asked->sandbox || (command->wants_sandbox && command->wants_sandbox(o));
    int code = options_outputs_differ(command, o);
    if (!code && wanted) code = sandbox_enter(command, o, asked->more, asked->sandbox);
    if (!code) code = memory_enter(command, o);
    if (code) return code;
    code = command->run(o);
    if (asked->sandbox && code == QKV_UNREADABLE)
        note("the sandbox opens only files that the command line names, no network and no other program; "
             "qkv --sandbox=FILE,... %s ... adds files",
             command->name);
    return code;
}

static int run(int argc, char **argv)
{
    Asked asked = {0};
    if (argc > 1 && take_sandbox(argv[1], &asked)) argv++, argc--;
    const char *name = argc > 1 ? argv[1] : "";
    term_init(0, false);
    if (!*name) {
        print_help(NULL);
        return QKV_USAGE;
    }
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        printf("qkv %s (%s)\n", qkv_version(), qkv_cpu());
        return 0;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (*name == '-') return problem(QKV_USAGE, "qkv takes a command first: 'qkv help' lists them");
    const Command *command = command_find(name);
    if (!command) return QKV_USAGE;
    Common *o;
    int code = options_parse(command, argc - 2, argv + 2, &o);
    if (!code) {
        term_init(o->verbose, o->quiet);
        if (o->help) print_help(command);
        else code = run_command(command, o, &asked);
    }
    options_free(command, o);
    return code;
}

/* A report that could not be built, or be read, for want of memory would otherwise be one that is damaged or empty. */
static void *json_room(size_t n) { return must(malloc(n ? n : 1)); }

int main(int argc, char **argv)
{
    set_signals();
    json_set_alloc_funcs(json_room, free);
    int code = stack_enter();
    if (!code) code = run(argc, argv);
    bool lost = ferror(stdout) != 0; /* a full disk must not look like success */
    if ((fflush(stdout) || lost) && !code)
        code = problem(QKV_UNREADABLE, "standard output cannot be written: %s", strerror(errno));
    return code;
}
