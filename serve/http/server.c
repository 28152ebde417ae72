/* Connections and exchanges between libmicrohttpd's threads, the engine's and the one that ticks.
 *
 * A request is read into memory, given to the engine, and its connection suspended; the engine's answer resumes it, and
 * libmicrohttpd calls on_request once more, which answers. What is open stands in a list under the server's lock. The
 * thread that ticks looks there for clients that went away and for those that are too slow. It only shuts sockets down;
 * libmicrohttpd then closes them.
 */
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/number.h"
#include "serve/http/impl.h"

enum { CONNECTION_MEMORY = 16 << 10, BODIES = 8, SPARE_FILES = 64, MOST_POLLED = 1024, LONG_BODY = 64 << 20 };
static const double grace = 0.3; /* seconds that a quiet connection is left open where it will be closed */

/* ------------------------------------------------------------------ links */

void exchange_state(Exchange *x, LinkState state)
{
    pthread_mutex_lock(&x->server->lock);
    x->link->state = state;
    x->link->since = seconds_now();
    pthread_mutex_unlock(&x->server->lock);
}

static void on_link(void *user, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what)
{
    Server *s = user;
    Link *l = *context;
    pthread_mutex_lock(&s->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = l = mem_zeroed(1, sizeof *l);
        if (l) {
            *l = (Link){.fd = info ? info->connect_fd : -1, .since = seconds_now(), .next = s->link};
            if (s->link) s->link->prev = l;
            s->link = l;
            s->nlink++;
        }
    } else if (l) {
        if (l->prev) l->prev->next = l->next;
        else s->link = l->next;
        if (l->next) l->next->prev = l->prev;
        s->nlink--;
        mem_free(l);
        *context = NULL;
    }
    pthread_mutex_unlock(&s->lock);
}

static Link *link_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* libmicrohttpd ends the path of a request line with a 0 in place of the space after it, so that the version follows;
 * where a 0 was in the path, something else does (look_at_head). */
static void *on_path(void *user, const char *path, struct MHD_Connection *c)
{
    Link *l = link_of(c);
    (void)user;
    if (l) l->after_path = path ? path + strlen(path) + 1 : NULL;
    return NULL;
}

/* ------------------------------------------------------------------ exchanges */

static Exchange *exchange_new(Server *s, struct MHD_Connection *c, const char *url, const char *method)
{
    Link *l = link_of(c);
    Exchange *x = l ? mem_zeroed(1, sizeof *x) : NULL;
    if (!x) return NULL;
    *x = (Exchange){.server = s, .connection = c, .link = l, .index = -1, .url = mem_strdup(url)};
    text_printf(x->method, sizeof x->method, "%s", method);
    l->exchange = x;
    exchange_state(x, LINK_READING);
    return x;
}

static void count_body(Exchange *x, size_t now)
{
    pthread_mutex_lock(&x->server->lock);
    x->server->bodies += now;
    x->server->bodies -= x->counted;
    x->counted = now;
    pthread_mutex_unlock(&x->server->lock);
}

static void exchange_free(Exchange *x)
{
    count_body(x, 0);
    infer_free(x->infer);
    embeddings_free(x->embeddings);
    segment_free(x->segmenting);
    served_drop(x->model);
    buf_free(&x->body);
    buf_free(&x->answer);
    mem_free(x->url);
    mem_free(x);
}

static void on_completed(void *user, struct MHD_Connection *c, void **context, enum MHD_RequestTerminationCode why)
{
    Server *s = user;
    Exchange *x = *context;
    (void)c, (void)why;
    if (!x) return;
    double now = seconds_now();
    if (!x->status) x->status = 499; /* the request was never complete */
    metrics_request(s->metrics, x->index, route_endpoint(x->path), x->status, x->received > 0 ? now - x->received : 0);
    if (s->o.log) log_exchange(x, now);
    pthread_mutex_lock(&s->lock);
    x->link->state = LINK_IDLE;
    x->link->since = now;
    x->link->exchange = NULL;
    pthread_mutex_unlock(&s->lock);
    exchange_free(x);
    *context = NULL;
}

void exchange_resume(Exchange *x)
{
    Server *s = x->server;
    struct MHD_Connection *c = x->connection;
    pthread_mutex_lock(&s->lock);
    x->link->state = LINK_WRITING;
    x->link->since = seconds_now();
    bool pinned = x->resumes = x->pinned;
    pthread_mutex_unlock(&s->lock);
    if (!pinned) MHD_resume_connection(c); /* from here on x may be gone */
}

/* ------------------------------------------------------------------ what a request must be */

/* Takes as long for a wrong token as for a right one. */
static bool same_secret(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned differ = n != m;
    for (size_t i = 0; i < n; i++) differ |= (unsigned char)a[i] ^ (unsigned char)b[m ? i % m : 0];
    return !differ;
}

static bool is_allowed(const Exchange *x)
{
    static const char scheme[] = "Bearer ";
    const char *token = x->server->o.token;
    if (!token || route_is_open(x->path)) return true;
    const char *given = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Authorization");
    char word[sizeof scheme] = "";
    if (given) text_printf(word, sizeof word, "%s", given);
    return same_word(word, scheme) && same_secret(given + sizeof scheme - 1, token);
}

/* A client hears why it is refused after it has sent its body; at once, which ends the connection, where that would be
 * long, or where nothing says where it ends. */
static bool not_to_be_read(const Exchange *x)
{
    const char *length = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Length");
    return x->status == 400 || (length && parse_int(length, NULL) > LONG_BODY);
}

typedef struct Framing { /* headers that say where a body ends */
    int lengths, codings;
    const char *coding;
} Framing;

static enum MHD_Result look_at_framing(void *user, enum MHD_ValueKind kind, const char *name, const char *value)
{
    Framing *f = user;
    (void)kind;
    f->lengths += same_word(name, "Content-Length");
    if (!same_word(name, "Transfer-Encoding")) return MHD_YES;
    f->codings++;
    f->coding = value ? value : "";
    return MHD_YES;
}

/* What libmicrohttpd would read in another way than a proxy before it, or until the client closes its end, is refused.
 */
static void check_length(Exchange *x)
{
    Framing f = {0};
    const char *length = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Length");
    const char *encoding = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Encoding");
    const char *end = "";
    int64_t n = length ? parse_int(length, &end) : 0;
    size_t most = route_takes_body(x->path) ? x->server->o.max_body : 0;
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, look_at_framing, &f);
    if (f.lengths > 1) exchange_refuse(x, 400, "Content-Length is given %d times", f.lengths);
    else if (length && f.coding) exchange_refuse(x, 400, "both Content-Length and Transfer-Encoding are given");
    else if (f.coding && (f.codings > 1 || !same_word(f.coding, "chunked")))
        exchange_refuse(x, 400, "Transfer-Encoding is '%s', and only 'chunked' is supported, once", f.coding);
    else if (n < 0 || *end) exchange_refuse(x, 400, "Content-Length is '%s', expected a number of bytes", length);
    else if ((uint64_t)n > most)
        exchange_refuse(x, 413, "the body has %lld bytes; at most %zu are taken", (long long)n, most);
    else if (encoding && !same_word(encoding, "identity"))
        exchange_refuse(x, 415, "Content-Encoding '%s' is not supported", encoding);
}

/* When the head of a request is there: may its body follow? */
static void look_at_head(Exchange *x, const char *version)
{
    char name[256];
    int wrong_method;
    if (!x->url) {
        exchange_refuse(x, 503, "out of memory");
        return;
    }
    if (x->link->after_path != version) {
        exchange_refuse(x, 400, "the request line is not METHOD PATH VERSION, with one space between them");
        return;
    }
    x->path = route(x->method, x->url, name, sizeof name, &wrong_method);
    if (!is_allowed(x)) exchange_refuse(x, 401, "this server wants its token: Authorization: Bearer TOKEN");
    else if (wrong_method && x->path == PATH_NONE)
        exchange_refuse(x, 405, "%s is not what '%s' takes", x->method, x->url);
    else if (x->path == PATH_NONE) exchange_refuse(x, 404, "there is nothing at '%s'", x->url);
    else if (!*name || exchange_find_model(x, name)) check_length(x);
}

/* A body that is too large is read and not kept, so that its sender hears why. */
static void take_body(Exchange *x, const char *data, size_t n)
{
    Server *s = x->server;
    if (x->status || x->too_large || x->too_many) return;
    if (x->body.len + n > s->o.max_body) x->too_large = true;
    else {
        pthread_mutex_lock(&s->lock);
        x->too_many = s->bodies + n > BODIES * s->o.max_body;
        pthread_mutex_unlock(&s->lock);
        if (!x->too_many) buf_add(&x->body, data, n);
    }
    if (x->too_large || x->too_many || x->body.failed) buf_free(&x->body);
    count_body(x, x->body.cap);
}

static void look_at_body(Exchange *x)
{
    if (x->too_large) exchange_refuse(x, 413, "the body has more than %zu bytes", x->server->o.max_body);
    else if (x->too_many || x->body.failed) {
        exchange_refuse(x, 503, "too many large requests are waiting; try again");
        x->retry = 1;
    }
}

/* ------------------------------------------------------------------ answers */

static enum MHD_Result send_answer(Exchange *x)
{
    char number[32];
    if (x->answer.failed) {
        buf_free(&x->answer);
        x->status = 503;
    }
    struct MHD_Response *r = MHD_create_response_from_buffer(x->answer.len, x->answer.data, MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", x->json ? "application/octet-stream" : x->type);
    if (x->json) {
        text_printf(number, sizeof number, "%zu", x->json);
        MHD_add_response_header(r, "Inference-Header-Content-Length", number);
    }
    if (x->retry) {
        text_printf(number, sizeof number, "%d", x->retry);
        MHD_add_response_header(r, "Retry-After", number);
    }
    if (x->status == 401) MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (x->server->draining) MHD_add_response_header(r, "Connection", "close");
    exchange_state(x, LINK_WRITING);
    enum MHD_Result result = MHD_queue_response(x->connection, (unsigned)x->status, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **context)
{
    Exchange *x = *context;
    if (!x) {
        *context = x = exchange_new(user, c, url, method);
        if (!x) return MHD_NO;
        look_at_head(x, version);
        return x->status && not_to_be_read(x) ? send_answer(x) : MHD_YES;
    }
    if (*size) {
        take_body(x, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (x->received > 0) {
        exchange_finish(x);
        return send_answer(x);
    }
    x->received = seconds_now();
    x->taken = x->body.len;
    if (!x->status) look_at_body(x);
    if (!x->status && exchange_begin(x)) return MHD_YES; /* suspended; it may be another thread's already */
    return send_answer(x);
}

static void on_text(void *user, const char *fmt, va_list v) QKV_PRINTF(2, 0);
static void on_text(void *user, const char *fmt, va_list v)
{
    const Server *s = user;
    char line[512];
    text_vprintf(line, sizeof line, fmt, v);
    line[strcspn(line, "\n")] = 0;
    if (s->o.note) s->o.note(line);
}

/* ------------------------------------------------------------------ loading again */

typedef struct Load {
    Server *server;
    Exchange *exchange; /* NULL: all models */
} Load;

static void load_one(Server *s, int model, Exchange *x)
{
    Err err = {0};
    char line[1200];
    bool ok = engine_load(s->engine, model, &err);
    const char *name = engine_source(s->engine, model)->name;
    text_printf(line, sizeof line, ok ? "model '%s' was loaded again" : "model '%s' stays as it is: %s", name, err.msg);
    if (s->o.note) s->o.note(line);
    if (x && !ok) exchange_refuse(x, 500, "%s", line);
    else if (x) x->status = 200;
}

static void *load(void *user)
{
    Load l = *(Load *)user;
    mem_free(user);
    if (l.exchange) load_one(l.server, l.exchange->index, l.exchange);
    for (int i = 0; !l.exchange && i < engine_count(l.server->engine); i++) load_one(l.server, i, NULL);
    pthread_mutex_lock(&l.server->lock);
    l.server->loads--;
    pthread_mutex_unlock(&l.server->lock);
    if (l.exchange) exchange_resume(l.exchange);
    return NULL;
}

/* One at a time. */
static bool start_load(Server *s, Exchange *x)
{
    pthread_t thread;
    Load *l = mem_zeroed(1, sizeof *l);
    pthread_mutex_lock(&s->lock);
    bool ok = l && !s->loads;
    s->loads += ok;
    pthread_mutex_unlock(&s->lock);
    if (ok) *l = (Load){s, x};
    if (ok && !pthread_create(&thread, NULL, load, l)) {
        pthread_detach(thread);
        return true;
    }
    pthread_mutex_lock(&s->lock);
    s->loads -= ok;
    pthread_mutex_unlock(&s->lock);
    mem_free(l);
    return false;
}

void server_load(Server *s, Exchange *x)
{
    if (start_load(s, x)) return;
    exchange_refuse(x, 409, "a model is being loaded already");
    x->retry = 1;
    exchange_resume(x);
}

void server_reload(Server *s)
{
    if (!start_load(s, NULL) && s->o.note) s->o.note("a model is being loaded already");
}

/* ------------------------------------------------------------------ ticking */

static void shut(Link *l)
{
    if (!l->shut) shutdown(l->fd, SHUT_RDWR);
    l->shut = true;
}

/* Bytes that nothing has read yet: 1; none: 0; none, and none will come: -1. */
static int unread(const Link *l)
{
    char c;
    ssize_t n = recv(l->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 ? 1 : n == 0 ? -1 : 0;
}

/* Nothing came for too long, or not all of a request; an answer that its client does not read; a client that closed its
 * end in the middle of a request, which libmicrohttpd may leave open. */
static void shut_slow(Server *s, double now)
{
    bool look = now - s->looked > 0.5;
    if (look) s->looked = now;
    for (Link *l = s->link; l; l = l->next) {
        double quiet = now - l->since;
        if (l->state == LINK_WAITING) continue;
        bool cut = look && l->state != LINK_WRITING && quiet > grace && unread(l) < 0;
        if (cut || quiet > s->o.idle_timeout) shut(l);
    }
}

/* Requests whose clients have closed their end. Pinned, they are not resumed, and so not freed, while they are
 * cancelled without the lock. */
static int pin_gone(Server *s, Exchange **gone)
{
    static struct pollfd list[MOST_POLLED];
    static Exchange *of[MOST_POLLED];
    int n = 0, found = 0;
    for (Link *l = s->link; l && n < MOST_POLLED; l = l->next) {
        if (l->state != LINK_WAITING || !l->exchange || !l->exchange->call || l->shut) continue;
        of[n] = l->exchange;
        list[n++] = (struct pollfd){.fd = l->fd, .events = POLLRDHUP};
    }
    if (!n || poll(list, (nfds_t)n, 0) <= 0) return 0;
    for (int i = 0; i < n; i++) {
        if (!(list[i].revents & (POLLRDHUP | POLLHUP | POLLERR))) continue;
        of[i]->link->shut = of[i]->pinned = true;
        gone[found++] = of[i];
    }
    return found;
}

static void cancel_pinned(Exchange *x)
{
    Server *s = x->server;
    engine_cancel(s->engine, x->call);
    pthread_mutex_lock(&s->lock);
    x->pinned = false;
    bool resumes = x->resumes;
    pthread_mutex_unlock(&s->lock);
    if (resumes) MHD_resume_connection(x->connection);
}

void server_tick(Server *s)
{
    static Exchange *gone[MOST_POLLED];
    pthread_mutex_lock(&s->lock);
    shut_slow(s, seconds_now());
    int n = pin_gone(s, gone);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < n; i++) cancel_pinned(gone[i]);
    engine_tick(s->engine);
}

/* ------------------------------------------------------------------ stopping */

/* Clients whose connection stands in the socket's queue count as accepted. */
static void take_rest(const Front *f)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    MHD_quiesce_daemon(f->daemon);
    for (int fd; (fd = accept4(f->fd, (struct sockaddr *)&a, &n, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0; n = sizeof a)
        MHD_add_connection(f->daemon, fd, (struct sockaddr *)&a, n);
    close(f->fd);
}

static bool anything_open(Server *s, bool all)
{
    double now = seconds_now();
    pthread_mutex_lock(&s->lock);
    for (Link *l = s->link; l; l = l->next)
        if (all || (l->state == LINK_IDLE && now - l->since > grace && now - s->stopped > grace && unread(l) < 1))
            shut(l);
    bool open = s->nlink || s->loads;
    pthread_mutex_unlock(&s->lock);
    return open;
}

void server_drain(Server *s)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    s->stopped = seconds_now();
    s->draining = true;
    for (int i = 0; i < s->nfront; i++) take_rest(&s->front[i]);
    if (s->o.unix_path) unlink(s->o.unix_path);
    double last = s->stopped + s->o.timeout + s->o.idle_timeout;
    while (anything_open(s, seconds_now() > last)) {
        server_tick(s);
        nanosleep(&pause, NULL);
    }
}

void server_close(Server *s)
{
    if (!s) return;
    for (int i = 0; i < s->nfront; i++) MHD_stop_daemon(s->front[i].daemon);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* ------------------------------------------------------------------ opening */

/* As many connections as files may be open. */
static unsigned connections(const Server *s)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files)) return (unsigned)s->o.max_connections;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
    rlim_t most = files.rlim_cur > 2 * SPARE_FILES ? files.rlim_cur - SPARE_FILES : SPARE_FILES;
    return most < (rlim_t)s->o.max_connections ? (unsigned)most : (unsigned)s->o.max_connections;
}

/* %00 would end a path before its end: it becomes a character that no name has. */
static size_t unescape(void *user, struct MHD_Connection *c, char *text)
{
    (void)user, (void)c;
    size_t n = MHD_http_unescape(text);
    for (size_t i = 0; i < n; i++)
        if (!text[i]) text[i] = '\x1a';
    return n;
}

static bool start(Server *s, int fd, Err *err)
{
    if (fd < 0) return false;
    unsigned pool = s->o.threads > 1 ? (unsigned)s->o.threads : 0;
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)on_text, s},
        {MHD_OPTION_LISTEN_SOCKET, fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, connections(s), NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY, NULL},
        {MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)unescape, s},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)on_path, s},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, s},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_link, s},
        {pool ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, pool, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    Front *f = &s->front[s->nfront];
    f->fd = fd;
    f->daemon = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
                                     MHD_USE_ERROR_LOG,
                                 0, NULL, NULL, on_request, s, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (f->daemon) {
        s->nfront++;
        return true;
    }
    close(fd);
    return fail(err, E_LIMIT, "the HTTP library does not start");
}

static bool open_fronts(Server *s, Err *err)
{
    if (s->o.http) TRY(start(s, listen_tcp(s->o.http, s->address, sizeof s->address, err), err));
    if (!s->o.unix_path) return true;
    size_t n = strlen(s->address);
    text_printf(s->address + n, sizeof s->address - n, "%sunix:%s", n ? " and " : "", s->o.unix_path);
    return start(s, listen_unix(s->o.unix_path, err), err);
}

Server *server_open(const ServerOptions *o, Engine *e, Metrics *m, Err *err)
{
    Server *s = mem_zeroed(1, sizeof *s);
    if (!s) {
        oom(err);
        return NULL;
    }
    *s = (Server){.o = *o, .engine = e, .metrics = m, .started = (int64_t)time(NULL)};
    pthread_mutex_init(&s->lock, NULL);
    if (open_fronts(s, err)) return s;
    server_close(s);
    return NULL;
}

const char *server_address(const Server *s) { return s->address; }
