/* What the files of the HTTP front share: a connection, an exchange on it, and its answer. */
#ifndef QKV_SERVE_HTTP_IMPL_H
#define QKV_SERVE_HTTP_IMPL_H
#include <microhttpd.h>
#include <pthread.h>
#include "base/buf.h"
#include "serve/http/server.h"
#include "serve/oip.h"
#include "serve/openai.h"
#include "serve/segment.h"

typedef enum LinkState { LINK_IDLE, LINK_READING, LINK_WAITING, LINK_WRITING } LinkState;

typedef struct Link { /* a connection */
    int fd;
    LinkState state;
    double since; /* of the state */
    bool shut;    /* it was given up */
    const char *after_path; /* of the request line: where its version is */
    struct Exchange *exchange;
    struct Link *next, *prev;
} Link;

typedef enum Path { /* what is asked for; routes.c has the table */
                    PATH_NONE,
                    PATH_HEALTH,
                    PATH_METRICS,
                    PATH_SERVER,
                    PATH_LIVE,
                    PATH_READY,
                    PATH_MODEL,
                    PATH_MODEL_READY,
                    PATH_INFER,
                    PATH_INDEX,
                    PATH_LOAD,
                    PATH_OPENAI_MODELS,
                    PATH_OPENAI_MODEL,
                    PATH_EMBEDDINGS,
                    PATH_SEGMENT,
} Path;

typedef struct Exchange { /* a request and its answer */
    Server *server;
    struct MHD_Connection *connection;
    Link *link;
    Path path;
    char method[8], *url;
    int index;    /* of its model; -1: none */
    Model *model; /* a reference, for the answer */
    Buf body;
    size_t taken;   /* bytes that the body had */
    size_t counted; /* of these, which the server counts until the answer, also for what was read from them */
    bool too_large, too_many;
    bool pinned, resumes; /* it is being cancelled; it was to be resumed meanwhile */
    Infer *infer;
    Embeddings *embeddings;
    Segmenting *segmenting;
    Call *call;      /* of one of these, while the engine has it or had it */
    double received; /* when the last byte was there */
    int status;      /* 0: not yet */
    int retry;       /* Retry-After; 0: none */
    const char *type;
    Buf answer;
    size_t json; /* Inference-Header-Content-Length; 0: none */
    char error[512];
} Exchange;

typedef struct Front { /* a socket that listens */
    struct MHD_Daemon *daemon;
    int fd;
} Front;

struct Server {
    ServerOptions o;
    Engine *engine;
    Metrics *metrics;
    Front front[2];
    int nfront;
    char address[512];
    int64_t started; /* Unix time */
    pthread_mutex_t lock;
    Link *link;       /* all connections */
    int nlink, loads; /* loads: that are under way */
    size_t bodies;    /* bytes of bodies in memory */
    atomic_bool draining;
    double stopped; /* when that began */
    double looked;  /* when all connections were last looked at */
};

/* listen.c: sockets that listen; -1 after an error. */
int listen_tcp(const char *address, char *shown, size_t size, Err *err);
int listen_unix(const char *path, Err *err);

/* routes.c */
Path route(const char *method, const char *url, char *name, size_t size, int *wrong_method);
bool route_is_open(Path p); /* without a token */
bool route_takes_body(Path p);
Endpoint route_endpoint(Path p);
bool route_is_openai(const char *url);
/* Answers, or gives it to the engine and returns true: the answer follows in exchange_finish. */
bool exchange_begin(Exchange *x);
void exchange_finish(Exchange *x);
bool exchange_find_model(Exchange *x, const char *name); /* false: refused */
/* An answer of one sentence, in the form that the path's clients read. */
void exchange_refuse(Exchange *x, int status, const char *fmt, ...) QKV_PRINTF(3, 4);
void exchange_fail(Exchange *x, const Err *err);

/* server.c: the exchange's answer is there; for other threads than its own. */
void exchange_resume(Exchange *x);
void exchange_state(Exchange *x, LinkState state);
void server_load(Server *s, Exchange *x); /* x's model, in a thread; x is resumed */

/* log.c */
void log_exchange(const Exchange *x, double now);
#endif
