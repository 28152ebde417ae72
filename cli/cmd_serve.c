/* qkv serve [NAME=]MODEL...: models over HTTP, requests of different lengths in one run without padding.
 *
 *     qkv serve minilm.pt2 --http 127.0.0.1:8000
 *     qkv serve a=first.pt2 b=second.onnx --unix /run/qkv.sock --token @/etc/qkv.token
 *
 * This file is options and signals. serve/ has the engine, serve/http/ the front. SIGTERM and SIGINT stop it once all
 * that was accepted is answered (a second one at once), SIGHUP loads the models again.
 */
#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "cli.h"
#ifdef QKV_MICROHTTPD
#include "serve/http/server.h"
#endif

typedef struct ServeOptions {
    Common common;
    ModelOptions model;
    List tokenizer, processor;
    const char *http, *unix_path, *token, *pool;
    int64_t features, max_tokens, max_queue, max_body, max_connections, max_length, workers;
    double max_delay_ms, timeout, idle_timeout;
    bool cased, no_batch;
} ServeOptions;

#ifdef QKV_MICROHTTPD

enum { MOST_MODELS = 256, HTTP_THREADS = 2 };
static const struct timespec tick = {.tv_nsec = 20000000};

typedef struct Serving {
    const ServeOptions *o;
    Source *source;
    char **name; /* n of them */
    int n;
    char *token;
    sigset_t signals;
} Serving;

/* ------------------------------------------------------------------ what is asked for */

/* "NAME=MODEL", or a path, which is called by its stem. */
static char *name_of(const char *arg, const char **path)
{
    const char *equals = strchr(arg, '='), *slash = strchr(arg, '/');
    if (equals && equals > arg && (!slash || equals < slash)) {
        *path = equals + 1;
        return must(strndup(arg, (size_t)(equals - arg)));
    }
    *path = arg;
    slash = strrchr(arg, '/');
    const char *base = slash ? slash + 1 : arg, *dot = strrchr(base, '.');
    return must(strndup(base, dot && dot > base ? (size_t)(dot - base) : strlen(base)));
}

/* --tokenizer, --processor [NAME=]FILE: the file for a model; NULL: there is none. */
static const char *find_file(const List *list, const Source *of)
{
    const char *found = NULL, *path;
    for (int i = 0; i < list->n; i++) {
        char *name = name_of(list->item[i], &path);
        bool named = path != list->item[i], fits = !named || !strcmp(name, of->name);
        free(name);
        if (fits) found = path;
        if (fits && named) break;
    }
    return found;
}

static int check_names(const Serving *s, const List *list, const char *option)
{
    for (int i = 0; i < list->n; i++) {
        const char *path;
        bool known = false;
        char *name = name_of(list->item[i], &path);
        for (int k = 0; k < s->n; k++) known |= path == list->item[i] || !strcmp(name, s->name[k]);
        free(name);
        if (!known) return problem(QKV_USAGE, "option '%s': no model is called as in '%s'", option, list->item[i]);
    }
    return 0;
}

static int threads_of(const ServeOptions *o)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (o->workers == 1) return (int)o->model.threads;
    int64_t n = (o->model.threads ? o->model.threads : cpus) / o->workers;
    return n > 1 ? (int)n : 1;
}

static int take_models(Serving *s)
{
    const ServeOptions *o = s->o;
    bool bf16;
    int code = model_bf16(&o->model, &bf16);
    s->source = must(calloc((size_t)o->common.narg, sizeof *s->source));
    s->name = must(calloc((size_t)o->common.narg, sizeof *s->name));
    if (o->common.narg > MOST_MODELS) code = problem(QKV_USAGE, "at most %d models are served", MOST_MODELS);
    for (int i = 0; !code && i < o->common.narg; i++) {
        Source *of = &s->source[i];
        *of = (Source){.cache = o->model.cache,
                       .bf16 = bf16,
                       .no_mmap = o->model.no_mmap,
                       .no_optimize = o->model.no_optimize,
                       .portable_bits = o->model.portable_bits,
                       .cased = o->cased,
                       .no_batch = o->no_batch,
                       .cls = o->pool && !strcmp(o->pool, "cls"),
                       .threads = threads_of(o),
                       .memory_limit = memory_limit(),
                       .text_tokens = o->max_length};
        of->name = s->name[s->n++] = name_of(o->common.arg[i], &of->path);
        if (strchr(of->name, '/') || !*of->name)
            code = problem(QKV_USAGE, "'%s' cannot be the name of a model", of->name);
        for (int k = 0; !code && k < i; k++)
            if (!strcmp(s->name[k], of->name))
                code = problem(QKV_USAGE, "two models are called '%s': NAME=MODEL gives one another name", of->name);
        of->tokenizer = find_file(&o->tokenizer, of);
        of->processor = find_file(&o->processor, of);
    }
    if (!code) code = check_names(s, &o->tokenizer, "--tokenizer");
    return code ? code : check_names(s, &o->processor, "--processor");
}

/* The token, or the first line of @FILE, so that it does not stand among the processes. */
static int take_token(Serving *s)
{
    const char *text = s->o->token;
    if (!text) return 0;
    s->token = must(calloc(1, 4097));
    if (*text != '@') snprintf(s->token, 4097, "%s", text);
    else {
        FILE *f = fopen(text + 1, "r");
        bool ok = f && fgets(s->token, 4097, f);
        if (f) fclose(f);
        if (!ok) return problem(QKV_UNREADABLE, "option '--token': cannot read '%s'", text + 1);
        s->token[strcspn(s->token, "\r\n")] = 0;
    }
    return *s->token ? 0 : problem(QKV_USAGE, "option '--token': the token is empty");
}

/* ------------------------------------------------------------------ running */

static int problem_of_err(const Err *err) { return problem(err_exit_code(err->code), "%s", err->msg); }

static void tell_line(const char *line) { detail("%s", line); }

/* To systemd, where it waits for it (sd_notify). */
static void tell_manager(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!path || !*path || strlen(path) >= sizeof a.sun_path) return;
    strcpy(a.sun_path, path);
    if (*path == '@') a.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (fd >= 0 && sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&a, size) < 0)
        detail("the service manager does not listen: %s", strerror(errno));
    if (fd >= 0) close(fd);
}

static void tell_models(Engine *e)
{
    for (int i = 0; i < engine_count(e); i++) {
        Model *m = engine_model(e, i);
        const char *name = engine_source(e, i)->name;
        if (m->ragged) note("model '%s': requests share runs without padding", name);
        else if (m->together) note("model '%s': requests of equal sizes share runs: %s", name, m->why);
        else note("model '%s': each request runs alone: %s", name, m->why);
        if (m->segments) detail("model '%s' finds texts in pictures", name);
        else if (m->tokenizer) detail("model '%s' takes texts of up to %d tokens", name, m->capacity);
        else detail("model '%s' takes no texts: %s", name, m->no_texts);
        served_drop(m);
    }
}

static int serve_until_told(Serving *s, Engine *e, Metrics *m)
{
    const ServeOptions *o = s->o;
    Err err = {0};
    ServerOptions options = {.http = o->http || o->unix_path ? o->http : "127.0.0.1:8000",
                             .unix_path = o->unix_path,
                             .token = s->token,
                             .max_body = (size_t)o->max_body,
                             .max_connections = (int)o->max_connections,
                             .timeout = o->timeout,
                             .idle_timeout = o->idle_timeout,
                             .threads = HTTP_THREADS,
                             .log = !o->common.quiet,
                             .note = tell_line};
    Server *server = server_open(&options, e, m, &err);
    if (!server) return problem_of_err(&err);
    tell_models(e);
    note("listening on %s", server_address(server));
    tell_manager("READY=1");
    for (int signal = 0; signal != SIGTERM && signal != SIGINT;) {
        signal = sigtimedwait(&s->signals, NULL, &tick);
        if (signal == SIGHUP) server_reload(server);
        server_tick(server);
    }
    note("stopping: what was accepted is answered");
    tell_manager("STOPPING=1");
    sigprocmask(SIG_UNBLOCK, &s->signals, NULL);
    server_drain(server);
    engine_stop(e);
    server_close(server);
    return 0;
}

static int serve(Serving *s)
{
    const ServeOptions *o = s->o;
    Err err = {0};
    Metrics metrics = {0};
    EngineOptions options = {.workers = (int)o->workers,
                             .max_tokens = o->max_tokens,
                             .max_delay = o->max_delay_ms * 1e-3,
                             .features = (size_t)o->features,
                             .max_queue = o->max_queue};
    sigemptyset(&s->signals);
    sigaddset(&s->signals, SIGTERM);
    sigaddset(&s->signals, SIGINT);
    sigaddset(&s->signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &s->signals, NULL); /* the threads that are started from here on, too */
    signal(SIGPIPE, SIG_IGN);
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 20); /* large blocks go back to the system when they are freed */
#endif
    Engine *e = metrics_open(&metrics, (const char *const *)s->name, s->n, &err)
                    ? engine_open(&options, s->source, s->n, &metrics, &err)
                    : NULL;
    int code = e ? serve_until_told(s, e, &metrics) : problem_of_err(&err);
    engine_close(e);
    metrics_close(&metrics);
    return code;
}

static int cmd_serve(const void *options)
{
    Serving s = {.o = options};
    if (s.o->pool && strcmp(s.o->pool, "mean") && strcmp(s.o->pool, "cls"))
        return problem(QKV_USAGE, "option '--pool': found '%s', expected mean or cls", s.o->pool);
    int code = take_models(&s);
    if (!code) code = take_token(&s);
    if (!code) code = serve(&s);
    for (int i = 0; i < s.n; i++) free(s.name[i]);
    free(s.name);
    free(s.source);
    free(s.token);
    return code;
}

#else

static int cmd_serve(const void *options)
{
    (void)options;
    return problem(QKV_UNSUPPORTED,
                   "this qkv was built without libmicrohttpd, which qkv serve needs: install it (Debian: "
                   "libmicrohttpd-dev; Fedora, Arch: libmicrohttpd-devel, libmicrohttpd) and build qkv again");
}

#endif

#define AT(field) offsetof(ServeOptions, field)
static const Option own[] = {
    {"http", TEXT, AT(http), .arg = "HOST:PORT",
     .help = "Listen on TCP (default: 127.0.0.1:8000, unless --unix is given); port 0 is a free one."},
    {"unix", TEXT, AT(unix_path), .arg = "PATH", .help = "Listen on a unix socket, which its owner and group may use."},
    {"token", TEXT, AT(token), .arg = "TOKEN",
     .help = "Answer only requests with this token, Authorization: Bearer TOKEN; @FILE reads it from a file. Health "
             "is told without it."},
    {"max-tokens", INTEGER, AT(max_tokens), .arg = "N", .min = 1, .max = 1 << 24,
     .help = "Real tokens of a run at most (default: 2048); of models without a mask, rows. A larger request runs "
             "alone."},
    {"max-delay-ms", REAL_OR_ZERO, AT(max_delay_ms), .arg = "MS",
     .help = "How long a request may wait for others to share its run while nothing else runs (default: 0)."},
    {"max-queue", INTEGER, AT(max_queue), .arg = "N", .min = 1, .max = 1 << 20,
     .help = "Requests and texts that may wait for a model (default: 4096); further ones are answered 429."},
    {"timeout", REAL, AT(timeout), .arg = "SECONDS",
     .help = "How long a request may wait for its run (default: 60), then it is answered 504."},
    {"idle-timeout", REAL, AT(idle_timeout), .arg = "SECONDS",
     .help = "Close connections that send nothing, or a request slower than this (default: 60)."},
    {"max-body", BYTES, AT(max_body), .arg = "SIZE", .min = 1, .max = INT64_C(1) << 40,
     .help = "Bytes of a request at most (default: 64M)."},
    {"max-connections", INTEGER, AT(max_connections), .arg = "N", .min = 2, .max = 1 << 20,
     .help = "Connections at a time (default: 16384, or as many as the process may have files open)."},
    {"workers", INTEGER, AT(workers), .arg = "N", .min = 1, .max = 256,
     .help = "Runs at a time (default: 1), which share the threads. Each has activations of its own and, without "
             "--cache, packed weights."},
    {"no-batch", FLAG, AT(no_batch), .help = "Run each request alone."},
    {"tokenizer", MANY, AT(tokenizer), .arg = "[NAME=]FILE",
     .help = "vocab.txt or tokenizer.json of a model, of all without NAME (default: the one beside the model); CLIP's "
             "merges as text for a model that segments and does not contain them."},
    {"processor", MANY, AT(processor), .arg = "[NAME=]FILE",
     .help = "The processor as JSON, for a model that segments and does not contain it, as for qkv segment."},
    {"features", BYTES, AT(features), .arg = "SIZE", .min = 0, .max = INT64_C(1) << 40,
     .help = "Features of the pictures that were looked at last, which each worker keeps for further texts (default: "
             "512M; 0: none)."},
    {"cased", FLAG, AT(cased), .help = "Keep case and accents of texts for vocab.txt."},
    {"pool", TEXT, AT(pool), .arg = "HOW",
     .help = "mean: the mean over the tokens of a text (default); cls: the first token."},
    {"max-length", INTEGER, AT(max_length), .arg = "N", .min = 2, .max = 1 << 20,
     .help = "Truncate texts to N tokens (default: what the model allows, at most 512)."},
    {0},
};

const Command command_serve = {
    .name = "serve",
    .args = "[NAME=]MODEL...",
    .summary = "Serve models over HTTP, without computing padding",
    .text =
        "Answers requests for the models: the Open Inference Protocol (v2/models/NAME/infer, tensors as JSON or "
        "binary), OpenAI's /v1/embeddings for text encoders with a tokenizer, /v1/segment for grounding models (SAM 3: "
        "a picture and texts in, COCO's JSON out), /health, and /metrics for Prometheus. A model is called NAME, or "
        "like its file.\n\n"
        "Requests that wait for the same model share a run. Where the model has a key padding mask they may have "
        "different lengths, and no padding is computed between them. Whether requests may share a run is tried when a "
        "model is loaded.\n\n"
        "SIGTERM ends the server when all that was accepted is answered; SIGHUP, or a POST to "
        "v2/repository/models/NAME/load, loads models again while the old ones serve. There is no TLS: that is a "
        "proxy's matter. Each answer is logged to standard error as a line of JSON (not with -q). docs/SERVE.md says "
        "more.",
    .examples = "qkv serve minilm.pt2\thttp://127.0.0.1:8000/v1/embeddings and more\n"
                "qkv serve a=first.pt2 b=second.onnx --unix /run/qkv.sock --token @token.txt\ttwo models on a unix "
                "socket\n"
                "qkv serve minilm.pt2 --max-tokens 4096 --max-delay-ms 2 --cache\tlarger batches; weights that "
                "processes share",
    .min_args = 1,
    .max_args = -1,
    .many_runs = true,
    .size = sizeof(ServeOptions),
    .defaults = &(const ServeOptions){.max_tokens = 2048,
                                      .max_queue = 4096,
                                      .max_body = 64 << 20,
                                      .features = 512 << 20,
                                      .max_connections = 16384,
                                      .workers = 1,
                                      .timeout = 60,
                                      .idle_timeout = 60},
    .options = {{own},
                {dtype_option, AT(model)},
                {run_options, AT(model)},
                {cache_option, AT(model)},
                {common_options}},
    .run = cmd_serve,
};
