/* Contract in metrics.h. */
#include "serve/metrics.h"
#include <string.h>
#include "base/mem.h"
#include "base/number.h"

static const double seconds_bound[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 0};
static const double rows_bound[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 0};
static const double tokens_bound[] = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 0};
/* Status codes of HTTP that a server answers; the last row is any other. */
static const int code_of[CODES] = {200, 400, 401, 404, 405, 408, 409, 411, 413, 415, 417,
                                   422, 429, 431, 499, 500, 501, 503, 504, 505, 0};
static const char *const endpoint_name[ENDPOINTS] = {"infer", "embeddings", "segment", "other"};

bool metrics_open(Metrics *m, const char *const *name, int n, Err *err)
{
    *m = (Metrics){.n = n, .model = mem_zeroed((size_t)n + 1, sizeof *m->model)};
    if (!m->model) return oom(err);
    pthread_mutex_init(&m->lock, NULL);
    for (int i = 0; i <= n; i++) {
        ModelMetrics *one = &m->model[i];
        one->name = i < n ? name[i] : "";
        one->request.bound = one->queue.bound = one->compute.bound = seconds_bound;
        one->rows.bound = rows_bound;
        one->tokens.bound = tokens_bound;
    }
    return true;
}

void metrics_close(Metrics *m)
{
    if (!m->model) return;
    pthread_mutex_destroy(&m->lock);
    mem_free(m->model);
    m->model = NULL;
}

static void observe(Histogram *h, double v)
{
    int i = 0;
    while (h->bound[i] > 0 && v > h->bound[i]) i++;
    h->count[i]++;
    h->n++;
    h->sum += v;
}

static ModelMetrics *of(Metrics *m, int model) { return &m->model[model < 0 ? m->n : model]; }

void metrics_request(Metrics *m, int model, Endpoint e, int code, double seconds)
{
    int k = 0;
    while (code_of[k] && code_of[k] != code) k++;
    pthread_mutex_lock(&m->lock);
    of(m, model)->answered[e][k]++;
    observe(&of(m, model)->request, seconds);
    pthread_mutex_unlock(&m->lock);
}

void metrics_batch(Metrics *m, int model, int64_t rows, int64_t real, int64_t padded, double seconds)
{
    pthread_mutex_lock(&m->lock);
    ModelMetrics *one = of(m, model);
    one->real += (uint64_t)real;
    one->padded += (uint64_t)padded;
    observe(&one->rows, (double)rows);
    observe(&one->tokens, (double)real);
    observe(&one->compute, seconds);
    pthread_mutex_unlock(&m->lock);
}

void metrics_pictures(Metrics *m, int model, int64_t looked, int64_t had)
{
    pthread_mutex_lock(&m->lock);
    of(m, model)->pictures += (uint64_t)looked;
    of(m, model)->had += (uint64_t)had;
    pthread_mutex_unlock(&m->lock);
}

void metrics_waited(Metrics *m, int model, double seconds)
{
    pthread_mutex_lock(&m->lock);
    observe(&of(m, model)->queue, seconds);
    pthread_mutex_unlock(&m->lock);
}

void metrics_event(Metrics *m, int model, Event what)
{
    pthread_mutex_lock(&m->lock);
    ModelMetrics *one = of(m, model);
    uint64_t *counter[] = {
        [EVENT_REFUSED] = &one->refused, [EVENT_CANCELLED] = &one->cancelled, [EVENT_EXPIRED] = &one->expired,
        [EVENT_FAILED] = &one->failed,   [EVENT_LOAD] = &one->loads,          [EVENT_FAILED_LOAD] = &one->failed_loads};
    ++*counter[what];
    pthread_mutex_unlock(&m->lock);
}

/* ------------------------------------------------------------------ text */

/* Within quotes: a backslash, a quote and the end of a line are written out. */
static void put_label(Buf *out, const char *s)
{
    for (; *s; s++)
        if (*s == '\\' || *s == '"') buf_printf(out, "\\%c", *s);
        else if (*s == '\n') buf_puts(out, "\\n");
        else buf_add(out, s, 1);
}

static void put_value(Buf *out, double v)
{
    char text[DOUBLE_TEXT];
    if (v >= 0 && v < 1e15 && v == (double)(int64_t)v) text_printf(text, sizeof text, "%lld", (long long)v);
    else print_double(text, v);
    buf_printf(out, " %s\n", text);
}

static void head(Buf *out, const char *name, const char *kind, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

void metrics_gauge(Buf *out, const char *name, const char *label, const char *value, double v)
{
    buf_puts(out, name);
    if (label) {
        buf_printf(out, "{%s=\"", label);
        put_label(out, value);
        buf_puts(out, "\"}");
    }
    put_value(out, v);
}

static void put_answered(const Metrics *m, Buf *out)
{
    head(out, "qkv_requests_total", "counter", "Answers by model, endpoint and status code.");
    for (int i = 0; i <= m->n; i++)
        for (int e = 0; e < ENDPOINTS; e++)
            for (int k = 0; k < CODES; k++) {
                uint64_t n = m->model[i].answered[e][k];
                if (!n) continue;
                buf_puts(out, "qkv_requests_total{model=\"");
                put_label(out, m->model[i].name);
                buf_printf(out, "\",endpoint=\"%s\",code=\"%d\"}", endpoint_name[e], code_of[k]);
                put_value(out, (double)n);
            }
}

static void put_counter(const Metrics *m, Buf *out, const char *name, const char *help, size_t field)
{
    head(out, name, "counter", help);
    for (int i = 0; i < m->n; i++)
        metrics_gauge(out, name, "model", m->model[i].name,
                      (double)*(const uint64_t *)(const void *)((const char *)&m->model[i] + field));
}

static void put_bucket(Buf *out, const char *name, const char *model, const char *bound, uint64_t n)
{
    buf_printf(out, "%s_bucket{model=\"", name);
    put_label(out, model);
    buf_printf(out, "\",le=\"%s\"}", bound);
    put_value(out, (double)n);
}

static void put_histogram(const Metrics *m, Buf *out, const char *name, const char *help, size_t field)
{
    head(out, name, "histogram", help);
    for (int i = 0; i < m->n; i++) {
        const Histogram *h = (const void *)((const char *)&m->model[i] + field);
        const char *model = m->model[i].name;
        uint64_t below = 0;
        char bound[DOUBLE_TEXT], line[128];
        for (int k = 0; h->bound[k] > 0; k++) {
            below += h->count[k];
            print_double(bound, h->bound[k]);
            put_bucket(out, name, model, bound, below);
        }
        put_bucket(out, name, model, "+Inf", h->n);
        text_printf(line, sizeof line, "%s_sum", name);
        metrics_gauge(out, line, "model", model, h->sum);
        text_printf(line, sizeof line, "%s_count", name);
        metrics_gauge(out, line, "model", model, (double)h->n);
    }
}

void metrics_text(Metrics *m, Buf *out)
{
#define AT(field) offsetof(ModelMetrics, field)
    pthread_mutex_lock(&m->lock);
    put_answered(m, out);
    put_counter(m, out, "qkv_tokens_total", "Real tokens (rows, where a model has no mask) that ran.", AT(real));
    put_counter(m, out, "qkv_padded_tokens_total", "What padding each batch to its longest would have made of them.",
                AT(padded));
    put_counter(m, out, "qkv_pictures_total", "Pictures that the model looked at.", AT(pictures));
    put_counter(m, out, "qkv_kept_pictures_total", "Of these, how many had their features kept from an earlier text.",
                AT(had));
    put_counter(m, out, "qkv_refused_total", "Requests that found their queue full.", AT(refused));
    put_counter(m, out, "qkv_cancelled_total", "Requests whose client went away.", AT(cancelled));
    put_counter(m, out, "qkv_expired_total", "Requests that waited longer than their time limit.", AT(expired));
    put_counter(m, out, "qkv_failed_total", "Requests that the model refused or failed.", AT(failed));
    put_counter(m, out, "qkv_loads_total", "Times that the model was loaded.", AT(loads));
    put_counter(m, out, "qkv_failed_loads_total", "Times that it could not be, and the one before stayed.",
                AT(failed_loads));
    head(out, "qkv_padding_avoided_ratio", "gauge", "Share of tokens that were padding and did not run.");
    for (int i = 0; i < m->n; i++) {
        const ModelMetrics *one = &m->model[i];
        metrics_gauge(out, "qkv_padding_avoided_ratio", "model", one->name,
                      one->padded ? 1 - (double)one->real / (double)one->padded : 0);
    }
    put_histogram(m, out, "qkv_request_seconds", "From the request's last byte to its answer.", AT(request));
    put_histogram(m, out, "qkv_queue_seconds", "Time that a request waited for its run.", AT(queue));
    put_histogram(m, out, "qkv_compute_seconds", "Time of a run.", AT(compute));
    put_histogram(m, out, "qkv_batch_rows", "Rows of a run.", AT(rows));
    put_histogram(m, out, "qkv_batch_tokens", "Real tokens of a run.", AT(tokens));
    pthread_mutex_unlock(&m->lock);
#undef AT
}
