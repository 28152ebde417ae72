/* Sockets that listen. Contract in impl.h. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/number.h"
#include "serve/http/impl.h"

enum { BACKLOG = 1024 };

/* "[::1]:8000" -> "::1", "8000" */
static bool split(const char *address, char *host, size_t size, const char **port, Err *err)
{
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    if (!n || n >= size || !colon[1]) return fail(err, E_USAGE, "'%s' is not HOST:PORT, as 127.0.0.1:8000", address);
    const char *end;
    int64_t number = parse_int(colon + 1, &end);
    if (*end || !is_digit(colon[1]) || number > 65535)
        return fail(err, E_USAGE, "'%s' is not a port: 0 to 65535", colon + 1);
    bool bracket = address[0] == '[' && colon[-1] == ']';
    text_printf(host, size, "%.*s", (int)n - 2 * bracket, address + bracket);
    *port = colon + 1;
    return true;
}

static int no_listening(int fd, const char *what, Err *err)
{
    fail(err, E_IO, "cannot listen on %s: %s", what, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

static void show(int fd, char *shown, size_t size)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(fd, (struct sockaddr *)&a, &n) ||
        getnameinfo((struct sockaddr *)&a, n, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV))
        return;
    text_printf(shown, size, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
}

int listen_tcp(const char *address, char *shown, size_t size, Err *err)
{
    char host[256];
    const char *port = NULL;
    if (!split(address, host, sizeof host, &port, err)) return -1;
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    int code = getaddrinfo(host, port, &want, &found);
    if (code) {
        fail(err, E_USAGE, "cannot listen on %s: %s", address, gai_strerror(code));
        return -1;
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    bool ok = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
              !bind(fd, found->ai_addr, found->ai_addrlen) && !listen(fd, BACKLOG);
    freeaddrinfo(found);
    if (!ok) return no_listening(fd, address, err);
    show(fd, shown, size);
    return fd;
}

/* A socket whose server is gone may be replaced; one that answers, and a file that is none, may not. */
static bool clear_path(const struct sockaddr_un *a, Err *err)
{
    struct stat st;
    if (lstat(a->sun_path, &st)) return true;
    if (!S_ISSOCK(st.st_mode)) return fail(err, E_USAGE, "'%s' is there and not a socket", a->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answers = fd >= 0 && !connect(fd, (const struct sockaddr *)a, sizeof *a);
    if (fd >= 0) close(fd);
    if (answers) return fail(err, E_USAGE, "another server listens on '%s'", a->sun_path);
    return !unlink(a->sun_path) || fail(err, E_IO, "cannot replace '%s': %s", a->sun_path, strerror(errno));
}

int listen_unix(const char *path, Err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) {
        fail(err, E_USAGE, "the path of a unix socket has at most %zu bytes: '%s'", sizeof a.sun_path - 1, path);
        return -1;
    }
    strcpy(a.sun_path, path);
    if (!clear_path(&a, err)) return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0117); /* its owner and group */
    bool ok = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, BACKLOG);
    umask(before);
    return ok ? fd : no_listening(fd, path, err);
}
