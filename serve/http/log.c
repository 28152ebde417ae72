/* The access log: a JSON object a line, on stderr, when an exchange has ended. */
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/jsonw.h"
#include "base/number.h"
#include "serve/http/impl.h"

static void put_time(Buf *line)
{
    struct timespec now;
    struct tm t;
    char text[64];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &t);
    text_printf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                t.tm_hour, t.tm_min, t.tm_sec, now.tv_nsec / 1000000);
    jw_put(line, "{'time': %s", text);
}

static void put_peer(const Exchange *x, Buf *line)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char host[NI_MAXHOST] = "unix";
    const struct sockaddr *a = info ? info->client_addr : NULL;
    if (a && a->sa_family != AF_UNIX)
        getnameinfo(a, a->sa_family == AF_INET6 ? 28 : 16, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    jw_text(line, "peer", host);
}

/* brief: with the beginnings of texts that a client chooses. */
static void put_line(const Exchange *x, double now, bool brief, Buf *line)
{
    char begin[3][150];
    const char *text[] = {x->method, x->url ? x->url : "", x->error};
    const Call *c = x->call;
    for (int i = 0; brief && i < 3; i++) {
        snprintf(begin[i], sizeof begin[i], "%s", text[i]);
        text[i] = begin[i];
    }
    put_time(line);
    put_peer(x, line);
    jw_put(line, "'method': %s, 'path': %s, 'status': %d", text[0], text[1], x->status);
    if (x->index >= 0) jw_text(line, "model", engine_source(x->server->engine, x->index)->name);
    jw_put(line, "'bytes_in': %llu, 'bytes_out': %llu", (unsigned long long)x->taken,
           (unsigned long long)x->answer.len);
    if (c) jw_int(line, "items", c->n);
    if (c && c->started > 0)
        jw_put(line, "'queue_ms': %.3f, 'run_ms': %.3f", (c->started - c->submitted) * 1e3,
               (c->ended - c->started) * 1e3);
    if (x->received > 0) jw_put(line, "'total_ms': %.3f", (now - x->received) * 1e3);
    if (*text[2]) jw_text(line, "error", text[2]);
    jw_put(line, "}");
    buf_puts(line, "\n");
}

/* Whoever reads the log may have stopped: a full pipe must not stop the server. One that can be written takes PIPE_BUF
 * bytes at once. Lines that found no place are counted, and the next one that does says how many. */
static void put_out(Buf *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static long long lost;
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    pthread_mutex_lock(&lock);
    bool fits = !line->failed && line->len <= PIPE_BUF && poll(&p, 1, 0) > 0;
    if (fits && lost) {
        Buf told = {0};
        put_time(&told);
        jw_put(&told, "'lost': %lld}", lost);
        buf_puts(&told, "\n");
        if (!told.failed && write(STDERR_FILENO, told.data, told.len) > 0) lost = 0;
        buf_free(&told);
        fits = poll(&p, 1, 0) > 0;
    }
    if (!fits || write(STDERR_FILENO, line->data, line->len) < 0) lost++;
    pthread_mutex_unlock(&lock);
}

void log_exchange(const Exchange *x, double now)
{
    Buf line = {0};
    put_line(x, now, false, &line);
    if (line.len > PIPE_BUF) {
        line.len = 0;
        put_line(x, now, true, &line);
    }
    put_out(&line);
    buf_free(&line);
}
