/* Outputs under --sandbox: a second process, which the sandbox does not hold, makes the files that the command line
 * names as outputs. Landlock knows no names of files that are yet to be, and so would leave their whole folder to be
 * written.
 *
 *     code = broker_start(command, o);      before the sandbox; from then on the library's files are made by it
 *
 * It is asked over a pair of sockets, a message for each file. It makes temporary files beside outputs, opens for
 * reading what it made, gives such a file the name of an output (or of the data beside it), and removes what it made;
 * whatever else it is asked for is refused (EACCES). When the command ends, in whatever way, the broker
 * ends, too, and removes the temporary files that are left.
 */
#include "cli.h"

#if defined(__linux__)
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum Wish { MAKE = 1, READ, RENAME, REMOVE } Wish;

enum { MOST_MADE = 64, REQUEST = 2 * PATH_MAX + 1 };

typedef struct Broker {
    char **output; /* of the command line, where links lead */
    int n;
    char *made[MOST_MADE]; /* without a final name; NULL: free */
    char own[32];          /* how names of temporary files begin: ".qkv-123-" */
} Broker;

static Broker broker;
static int line = -1; /* to the broker */
static pid_t child;

/* ------------------------------------------------------------------ the broker's side */

static void add_output(void *user, const char *path, PathUse use)
{
    Broker *b = user;
    struct stat st;
    char *real = use == PATH_WRITTEN && !lstat(path, &st) && S_ISLNK(st.st_mode) ? realpath(path, NULL) : NULL;
    if (use != PATH_WRITTEN) return;
    b->output = must(realloc(b->output, ((size_t)b->n + 1) * sizeof *b->output));
    b->output[b->n++] = real ? real : must(strdup(path));
}

static size_t folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* ".qkv-123-4.tmp" of the command, or such a file's data, in the folder of an output. */
static bool is_temporary(const Broker *b, const char *path)
{
    size_t n = folder_of(path);
    const char *name = path + n;
    if (strncmp(name, b->own, strlen(b->own)) || !(ends_in(name, ".tmp") || ends_in(name, ".tmp.data"))) return false;
    for (int i = 0; i < b->n; i++)
        if (folder_of(b->output[i]) == n && !strncmp(b->output[i], path, n)) return true;
    return false;
}

/* An output, or the data beside it; what is there is a file. */
static bool is_output(const Broker *b, const char *path)
{
    struct stat st;
    if (!lstat(path, &st) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) return false;
    for (int i = 0; i < b->n; i++) {
        size_t n = strlen(b->output[i]);
        if (!strncmp(path, b->output[i], n) && (!path[n] || !strcmp(path + n, ".data"))) return true;
    }
    return false;
}

static char **made(Broker *b, const char *path)
{
    for (int i = 0; i < MOST_MADE; i++)
        if (path ? b->made[i] && !strcmp(b->made[i], path) : !b->made[i]) return &b->made[i];
    return NULL;
}

static void forget(char **at)
{
    free(*at);
    *at = NULL;
}

static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    size_t n = folder_of(path);
    memcpy(folder, n ? path : ".", n ? n : 1);
    folder[n ? n : 1] = 0;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

/* 0 or an errno; *fd is what was opened. */
static int grant_wish(Broker *b, Wish wish, const char *path, const char *to, int *fd)
{
    char **at = made(b, path), **room = made(b, NULL);
    if (wish == MAKE) {
        if (!is_temporary(b, path) || !room) return EACCES;
        *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (*fd < 0) return errno;
        *room = strdup(path);
        return *room ? 0 : ENOMEM;
    }
    if (!at) return EACCES;
    if (wish == READ) {
        *fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        return *fd < 0 ? errno : 0;
    }
    if (wish == REMOVE) {
        int failed = unlink(path) ? errno : 0;
        forget(at);
        return failed;
    }
    bool between = is_temporary(b, to);
    if (wish != RENAME || (!between && !is_output(b, to))) return EACCES;
    if (rename(path, to)) return errno;
    forget(at);
    if (between && !made(b, to)) *at = strdup(to);
    sync_folder(to);
    return 0;
}

static bool answer(int to, int failed, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec bytes = {&failed, sizeof failed};
    struct msghdr m = {.msg_iov = &bytes, .msg_iovlen = 1};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    if (fd >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
    }
    return sendmsg(to, &m, MSG_NOSIGNAL) == sizeof failed;
}

/* A request: the wish in a byte, a path and the next one, each with its 0. */
static void serve(Broker *b, int from)
{
    static char request[REQUEST + 2];
    ssize_t n;
    while ((n = read(from, request, REQUEST)) > 0 || (n < 0 && errno == EINTR)) {
        if (n < 0) continue;
        request[n] = request[n + 1] = 0;
        int fd = -1, failed;
        const char *path = request + 1, *to = path + strlen(path) + 1;
        failed = to <= request + n + 1 && folder_of(path) < PATH_MAX - 1 && folder_of(to) < PATH_MAX - 1
                     ? grant_wish(b, (Wish)request[0], path, to, &fd)
                     : EACCES;
        bool heard = answer(from, failed, fd);
        if (fd >= 0) close(fd);
        if (!heard) break;
    }
    for (int i = 0; i < MOST_MADE; i++)
        if (b->made[i]) unlink(b->made[i]);
}

/* What the user's keys end is the command, and then this one; pipes that the command inherited are not held open. */
static void be_broker(int from)
{
    static const int left_alone[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU, SIGXFSZ};
    for (size_t i = 0; i < sizeof left_alone / sizeof *left_alone; i++) signal(left_alone[i], SIG_IGN);
    for (int fd = 0; fd < from; fd++) close(fd);
    syscall(SYS_close_range, (unsigned)from + 1, ~0U, 0);
    serve(&broker, from);
    _exit(0);
}

/* ------------------------------------------------------------------ the command's side */

static int ask(Wish wish, const char *path, const char *to, int *fd)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    char request[REQUEST];
    size_t a = strlen(path) + 1, b = strlen(to) + 1;
    int failed = EACCES;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } control;
    struct iovec bytes = {&failed, sizeof failed};
    struct msghdr m = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    if (line < 0 || a > PATH_MAX || b > PATH_MAX) return EACCES;
    request[0] = (char)wish;
    memcpy(request + 1, path, a);
    memcpy(request + 1 + a, to, b);
    pthread_mutex_lock(&one);
    ssize_t n = write(line, request, 1 + a + b);
    do n = n < 0 ? n : recvmsg(line, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    pthread_mutex_unlock(&one);
    struct cmsghdr *with = n == sizeof failed ? CMSG_FIRSTHDR(&m) : NULL;
    if (with && fd) memcpy(fd, CMSG_DATA(with), sizeof *fd);
    return n == sizeof failed ? failed : EACCES;
}

static int without_fd(Wish wish, const char *path, const char *to)
{
    int failed = ask(wish, path, to, NULL);
    errno = failed;
    return failed ? -1 : 0;
}

/* What the sandbox lets this process do itself, in folders that are outputs, it does. */
static int open_file(void *user, const char *path, int writes)
{
    int fd = writes ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1, failed;
    (void)user;
    if (fd >= 0 || (writes && errno != EACCES)) return fd;
    failed = ask(writes ? MAKE : READ, path, "", &fd);
    errno = failed;
    return failed ? -1 : fd;
}

static int rename_file(void *user, const char *from, const char *to)
{
    (void)user;
    return !rename(from, to) ? 0 : errno != EACCES && errno != EXDEV ? -1 : without_fd(RENAME, from, to);
}

static int remove_file(void *user, const char *path)
{
    (void)user;
    return !unlink(path) ? 0 : errno != EACCES ? -1 : without_fd(REMOVE, path, "");
}

void broker_end(void)
{
    if (line < 0) return;
    close(line);
    line = -1;
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
}

const qkv_files *broker_files(void)
{
    static const qkv_files files = {sizeof files, open_file, rename_file, remove_file, NULL};
    return &files;
}

int broker_start(const Command *command, const Common *o)
{
    qkv_error e;
    int pair[2];
    options_each_path(command, o, add_output, &broker);
    if (broker.n) {
        snprintf(broker.own, sizeof broker.own, ".qkv-%ld-", (long)getpid());
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
            return problem(QKV_LIMIT, "--sandbox: no socket to the process that makes outputs: %s", strerror(errno));
        child = fork();
        if (!child) {
            close(pair[0]);
            be_broker(pair[1]);
        }
        close(pair[1]);
        if (child < 0) {
            close(pair[0]);
            return problem(QKV_LIMIT, "--sandbox: no second process, which makes outputs: %s", strerror(errno));
        }
        line = pair[0];
        atexit(broker_end);
    }
    for (int i = 0; i < broker.n; i++) free(broker.output[i]);
    free(broker.output);
    broker = (Broker){0};
    return qkv_set_files(broker_files(), &e) == QKV_OK ? 0 : problem_of(&e);
}
#else
void broker_end(void) {}
#endif
