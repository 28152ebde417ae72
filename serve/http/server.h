/* The HTTP front of qkv serve, on libmicrohttpd: sockets, limits, routes, the access log. The engine knows none of it.
 *
 *     Server *s = server_open(&options, engine, &metrics, err);      listens and answers, in threads of its own
 *     while (!stop) server_tick(s);                                  every few hundredths of a second
 *     server_drain(s);                                               accepts nothing; ends when all is answered
 *     server_close(s);
 */
#ifndef QKV_SERVE_HTTP_SERVER_H
#define QKV_SERVE_HTTP_SERVER_H
#include "serve/engine.h"
#include "serve/metrics.h"

typedef struct ServerOptions {
    const char *http;      /* "127.0.0.1:8000", "[::1]:0", "localhost:8000"; NULL: no TCP */
    const char *unix_path; /* NULL: no unix socket */
    const char *token;     /* NULL: whoever connects may ask */
    size_t max_body;       /* of a request; of all that are being read and wait, eight times that */
    int max_connections;
    double timeout;                 /* of a request, in seconds, from its last byte */
    double idle_timeout;            /* of a connection between requests, and of the reading of one */
    int threads;                    /* that read and write */
    bool log;                       /* each answer, to stderr */
    void (*note)(const char *line); /* what else there is to say; NULL: nothing */
} ServerOptions;

typedef struct Server Server;
Server *server_open(const ServerOptions *o, Engine *e, Metrics *m, Err *err);
const char *server_address(const Server *s); /* "http://127.0.0.1:8000 and unix:/run/qkv.sock" */
void server_tick(Server *s);                 /* notices clients that went away, slow ones, and time limits */
void server_reload(Server *s);               /* all models, beside what runs */
void server_drain(Server *s);
void server_close(Server *s); /* NULL is fine; after server_drain */
#endif
