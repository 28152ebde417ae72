/* Which answer belongs to which path. Contract in impl.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/number.h"
#include "serve/http/impl.h"

/* ------------------------------------------------------------------ paths */

static const struct {
    const char *method, *pattern; /* '*': a model's name */
    Path path;
} routes[] = {
    {"GET", "health", PATH_HEALTH},
    {"GET", "metrics", PATH_METRICS},
    {"GET", "v2", PATH_SERVER},
    {"GET", "v2/health/live", PATH_LIVE},
    {"GET", "v2/health/ready", PATH_READY},
    {"GET", "v2/models/*", PATH_MODEL},
    {"GET", "v2/models/*/versions/1", PATH_MODEL},
    {"GET", "v2/models/*/ready", PATH_MODEL_READY},
    {"GET", "v2/models/*/versions/1/ready", PATH_MODEL_READY},
    {"POST", "v2/models/*/infer", PATH_INFER},
    {"POST", "v2/models/*/versions/1/infer", PATH_INFER},
    {"POST", "v2/repository/index", PATH_INDEX},
    {"POST", "v2/repository/models/*/load", PATH_LOAD},
    {"GET", "v1/models", PATH_OPENAI_MODELS},
    {"GET", "v1/models/*", PATH_OPENAI_MODEL},
    {"POST", "v1/embeddings", PATH_EMBEDDINGS},
    {"POST", "v1/segment", PATH_SEGMENT},
};

static bool matches(const char *pattern, const char *url, char *name, size_t size)
{
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*url++ != *pattern) return false;
            continue;
        }
        size_t n = strcspn(url, "/");
        if (!n || n >= size) return false;
        memcpy(name, url, n);
        name[n] = 0;
        url += n;
    }
    return !*url || (*url == '/' && !url[1]);
}

Path route(const char *method, const char *url, char *name, size_t size, int *wrong_method)
{
    *name = 0;
    *wrong_method = 0;
    if (*url == '/') url++;
    const char *asked = strcmp(method, "HEAD") ? method : "GET";
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!matches(routes[i].pattern, url, name, size)) continue;
        if (!strcmp(routes[i].method, asked)) return routes[i].path;
        *wrong_method = 1;
    }
    return PATH_NONE;
}

bool route_is_open(Path p) { return p == PATH_HEALTH || p == PATH_LIVE || p == PATH_READY; }
bool route_takes_body(Path p)
{
    return p == PATH_INFER || p == PATH_EMBEDDINGS || p == PATH_SEGMENT || p == PATH_LOAD || p == PATH_INDEX;
}
Endpoint route_endpoint(Path p)
{
    return p == PATH_INFER        ? ENDPOINT_INFER
           : p == PATH_EMBEDDINGS ? ENDPOINT_EMBEDDINGS
           : p == PATH_SEGMENT    ? ENDPOINT_SEGMENT
                                  : ENDPOINT_OTHER;
}
bool route_is_openai(const char *url) { return !strncmp(url, "/v1/", 4); }

/* ------------------------------------------------------------------ refusals */

static const char *kind_of(int status)
{
    return status == 401   ? "authentication_error"
           : status == 404 ? "not_found_error"
           : status == 429 ? "rate_limit_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
}

void exchange_refuse(Exchange *x, int status, const char *fmt, ...)
{
    va_list v;
    va_start(v, fmt);
    text_vprintf(x->error, sizeof x->error, fmt, v);
    va_end(v);
    x->status = status;
    x->type = "application/json";
    x->json = 0;
    x->answer.len = 0;
    if (x->url && route_is_openai(x->url))
        jw_put(&x->answer, "{'error': {'message': %s, 'type': %s, 'param': null, 'code': null}}", x->error,
               kind_of(status));
    else jw_put(&x->answer, "{'error': %s}", x->error);
}

void exchange_fail(Exchange *x, const Err *err)
{
    static const int status[] = {[E_OK] = 500, [E_MISMATCH] = 500,    [E_USAGE] = 400, [E_FORMAT] = 400,
                                 [E_IO] = 500, [E_UNSUPPORTED] = 501, [E_LIMIT] = 503};
    exchange_refuse(x, status[err->code], "%s", err->msg);
}

/* ------------------------------------------------------------------ what is answered at once */

static void put_index(const Server *s, Buf *out)
{
    jw_open(out, NULL, '[');
    for (int i = 0; i < engine_count(s->engine); i++)
        jw_put(out, "{'name': %s, 'version': '1', 'state': 'READY'}", engine_source(s->engine, i)->name);
    jw_close(out, "]");
}

static void put_models(const Server *s, Buf *out)
{
    jw_put(out, "{'object': 'list', 'data': [");
    for (int i = 0; i < engine_count(s->engine); i++) {
        jw_key(out, NULL);
        openai_model(engine_source(s->engine, i)->name, s->started, out);
    }
    jw_close(out, "]}");
}

static double resident_bytes(void)
{
    char text[128] = "";
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *second = strchr(text, ' ');
    return second ? (double)parse_int(second + 1, NULL) * (double)sysconf(_SC_PAGESIZE) : 0;
}

static void put_metrics(Server *s, Buf *out)
{
    metrics_text(s->metrics, out);
    pthread_mutex_lock(&s->lock);
    int links = s->nlink;
    size_t bodies = s->bodies;
    pthread_mutex_unlock(&s->lock);
    buf_puts(out, "# HELP qkv_queue_length Items that wait for a run.\n# TYPE qkv_queue_length gauge\n");
    for (int i = 0; i < engine_count(s->engine); i++)
        metrics_gauge(out, "qkv_queue_length", "model", engine_source(s->engine, i)->name,
                      (double)engine_waiting(s->engine, i));
    buf_puts(out, "# HELP qkv_connections Connections that are open.\n# TYPE qkv_connections gauge\n");
    metrics_gauge(out, "qkv_connections", NULL, NULL, links);
    buf_puts(out, "# HELP qkv_body_bytes Bytes of requests in memory.\n# TYPE qkv_body_bytes gauge\n");
    metrics_gauge(out, "qkv_body_bytes", NULL, NULL, (double)bodies);
    buf_puts(out, "# HELP process_resident_memory_bytes Memory of the process.\n"
                  "# TYPE process_resident_memory_bytes gauge\n");
    metrics_gauge(out, "process_resident_memory_bytes", NULL, NULL, resident_bytes());
    buf_puts(out, "# HELP qkv_info The version that runs.\n# TYPE qkv_info gauge\n");
    metrics_gauge(out, "qkv_info", "version", qkv_version(), 1);
}

static void put_health(Exchange *x)
{
    bool ready = !x->server->draining;
    if (x->path == PATH_READY && !ready) {
        exchange_refuse(x, 503, "the server is stopping");
        return;
    }
    if (x->path == PATH_HEALTH) jw_put(&x->answer, "{'status': %s}", ready ? "ok" : "stopping");
    else jw_put(&x->answer, x->path == PATH_LIVE ? "{'live': true}" : "{'ready': true}");
}

/* ------------------------------------------------------------------ what the engine answers */

static void on_done(Call *c) { exchange_resume(c->owner); }

static const char *header(const Exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

/* Qkv-Priority: 1 to 3; Qkv-Timeout-Ms. */
static bool read_wishes(Exchange *x, Call *c, double own_timeout)
{
    const char *priority = header(x, "Qkv-Priority"), *ms = header(x, "Qkv-Timeout-Ms"), *end = "";
    int64_t p = priority ? parse_int(priority, &end) : LEVEL_DEFAULT + 1;
    if (p < 1 || p > LEVELS || *end) exchange_refuse(x, 400, "Qkv-Priority is '%s', expected 1, 2 or 3", priority);
    else if (priority) c->level = (int)p - 1;
    int64_t t = ms ? parse_int(ms, &end) : 0;
    if (!x->status && ms && (t < 1 || *end))
        exchange_refuse(x, 400, "Qkv-Timeout-Ms is '%s', expected milliseconds", ms);
    c->timeout = x->server->o.timeout;
    if (own_timeout > 0 && own_timeout < c->timeout) c->timeout = own_timeout;
    if (t > 0 && (double)t * 1e-3 < c->timeout) c->timeout = (double)t * 1e-3;
    return !x->status;
}

/* True: the engine has it. The exchange may have been resumed already. */
static bool submit(Exchange *x, Call *c, double own_timeout)
{
    Err err = {0};
    int retry = 0;
    if (!read_wishes(x, c, own_timeout)) return false;
    c->model = served_take(x->model);
    c->done = on_done;
    c->owner = x;
    x->call = c;
    exchange_state(x, LINK_WAITING);
    MHD_suspend_connection(x->connection);
    Submitted s = engine_submit(x->server->engine, x->index, c, &retry, &err);
    if (s == SUBMIT_OK) return true;
    served_drop(c->model);
    x->call = NULL;
    if (s == SUBMIT_FULL) {
        exchange_refuse(x, 429, "%s", err.msg);
        x->retry = retry;
    } else if (s == SUBMIT_STOPPED) exchange_refuse(x, 503, "the server is stopping");
    else exchange_fail(x, &err);
    exchange_resume(x);
    return true;
}

/* Bytes of JSON before binary data, as Inference-Header-Content-Length says. */
static bool read_header_length(Exchange *x, size_t *out)
{
    const char *text = header(x, "Inference-Header-Content-Length"), *end = "";
    int64_t n = text ? parse_int(text, &end) : 0;
    *out = text ? (size_t)n : INFER_JSON;
    if (n >= 0 && !*end && (!text || *text)) return true;
    exchange_refuse(x, 400, "Inference-Header-Content-Length is '%s', expected a number of bytes", text);
    return false;
}

static bool begin_infer(Exchange *x)
{
    Err err = {0};
    size_t json;
    if (!read_header_length(x, &json)) return false;
    x->infer = infer_read(x->model, x->body.data ? x->body.data : "", x->body.len, json, &err);
    if (!x->infer) {
        exchange_fail(x, &err);
        return false;
    }
    buf_free(&x->body); /* everything was copied */
    return submit(x, &x->infer->call, x->infer->timeout);
}

bool exchange_find_model(Exchange *x, const char *name)
{
    x->index = engine_find(x->server->engine, name);
    if (x->index < 0) exchange_refuse(x, 404, "no model is called '%s'", name);
    else x->model = engine_model(x->server->engine, x->index);
    return x->index >= 0;
}

static bool begin_embeddings(Exchange *x)
{
    Err err = {0};
    x->embeddings = embeddings_read(x->body.data ? x->body.data : "", x->body.len, &err);
    bool ok = x->embeddings || (exchange_fail(x, &err), false);
    if (!ok || !exchange_find_model(x, x->embeddings->model)) return false;
    if (!embeddings_bind(x->embeddings, x->model, &err)) {
        exchange_fail(x, &err);
        return false;
    }
    return submit(x, &x->embeddings->call, 0);
}

/* The model that is asked for; where none is, the one that segments. */
static bool find_segmenting(Exchange *x, const char *name)
{
    Engine *e = x->server->engine;
    int found = 0;
    for (int i = 0; !name && i < engine_count(e); i++) {
        Model *m = engine_model(e, i);
        if (m->segments && !found++) x->index = i;
        served_drop(m);
    }
    if (name || found == 1) return exchange_find_model(x, name ? name : engine_source(e, x->index)->name);
    x->index = -1;
    exchange_refuse(x, 400, found ? "field 'model' is missing, and several models segment"
                                  : "no model here segments pictures; v2/models/NAME says what one takes");
    return false;
}

static bool begin_segment(Exchange *x)
{
    Err err = {0};
    x->segmenting = segment_read(header(x, "Content-Type"), x->body.data ? x->body.data : "", x->body.len, &err);
    bool ok = x->segmenting || (exchange_fail(x, &err), false);
    if (!ok || !find_segmenting(x, x->segmenting->model)) return false;
    if (!segment_bind(x->segmenting, engine_source(x->server->engine, x->index)->name, x->model, &err)) {
        exchange_fail(x, &err);
        return false;
    }
    return submit(x, &x->segmenting->call, 0);
}

static bool begin_load(Exchange *x)
{
    exchange_state(x, LINK_WAITING);
    MHD_suspend_connection(x->connection);
    server_load(x->server, x);
    return true;
}

bool exchange_begin(Exchange *x)
{
    x->type = "application/json";
    x->status = 0;
    switch (x->path) {
    case PATH_INFER: return begin_infer(x);
    case PATH_EMBEDDINGS: return begin_embeddings(x);
    case PATH_SEGMENT: return begin_segment(x);
    case PATH_LOAD: return begin_load(x);
    case PATH_HEALTH:
    case PATH_LIVE:
    case PATH_READY: put_health(x); break;
    case PATH_METRICS:
        x->type = "text/plain; version=0.0.4";
        put_metrics(x->server, &x->answer);
        break;
    case PATH_SERVER: oip_server(&x->answer); break;
    case PATH_INDEX: put_index(x->server, &x->answer); break;
    case PATH_MODEL: oip_model(x->model, engine_source(x->server->engine, x->index)->name, &x->answer); break;
    case PATH_MODEL_READY: jw_put(&x->answer, "{'ready': true}"); break;
    case PATH_OPENAI_MODELS: put_models(x->server, &x->answer); break;
    case PATH_OPENAI_MODEL:
        openai_model(engine_source(x->server->engine, x->index)->name, x->server->started, &x->answer);
        break;
    case PATH_NONE: exchange_refuse(x, 404, "there is nothing at '%s'", x->url); break;
    }
    if (!x->status) x->status = 200;
    return false;
}

static void write_answer(Exchange *x)
{
    Err err = {0};
    bool ok = x->infer
                  ? infer_write(x->infer, engine_source(x->server->engine, x->index)->name, &x->answer, &x->json, &err)
              : x->segmenting ? segment_write(x->segmenting, &x->answer, &err)
                              : embeddings_write(x->embeddings, &x->answer, &err);
    x->status = 200;
    if (!ok) exchange_fail(x, &err);
}

void exchange_finish(Exchange *x)
{
    if (x->status) return;
    switch (x->call->state) {
    case CALL_OK: write_answer(x); break;
    case CALL_FAILED: exchange_fail(x, &x->call->err); break;
    case CALL_EXPIRED:
        exchange_refuse(x, 504, "the request waited longer than its time limit, %.3g s", x->call->timeout);
        break;
    case CALL_CANCELLED: exchange_refuse(x, 499, "the client went away"); break;
    }
}
