/* Mapped input and atomic output. Contract in file.h. */
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/number.h"

static _Thread_local bool copying;
static _Thread_local NamedBytes given;
static FileHooks hooks; /* open NULL: the system's */

void file_hook(const FileHooks *h) { hooks = *h; }

static void remove_made(const char *path)
{
    if (hooks.open) hooks.remove(hooks.user, path);
    else unlink(path);
}

static int rename_made(const char *from, const char *to)
{
    return hooks.open ? hooks.rename(hooks.user, from, to) : rename(from, to);
}

/* What was made by hooks may only they read. */
static int reopened(int fd, const char *path)
{
    return fd < 0 && errno == EACCES && hooks.open ? hooks.open(hooks.user, path, 0) : fd;
}

void file_give(const char *name, const void *bytes, size_t size) { given = (NamedBytes){name, bytes, size}; }

/* Memory for a copy of a file. It is shared, so that pages_done, which takes it for the file's own pages, loses nothing
 * of it: of private memory nothing but zeros would be left. */
static void *room_for_copy(size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static bool map_given(MappedFile *f, Err *err)
{
    if (!given.size) return true;
    void *p = room_for_copy(given.size);
    if (p == MAP_FAILED) return oom(err);
    *f = (MappedFile){memcpy(p, given.bytes, given.size), given.size};
    return true;
}

bool file_copies(bool on)
{
    bool before = copying;
    copying = on;
    return before;
}

/* All bytes of a file of this size; NULL with what is wrong. */
static void *read_whole(int fd, size_t size, const char **wrong)
{
    char *p = room_for_copy(size);
    size_t have = 0;
    ssize_t k = 1;
    while (p != MAP_FAILED && have < size && k) {
        size_t left = size - have;
        k = read(fd, p + have, left > 1u << 30 ? 1u << 30 : left);
        if (k < 0 && errno != EINTR) break;
        if (k > 0) have += (size_t)k;
    }
    if (p != MAP_FAILED && have == size) return p;
    *wrong = p == MAP_FAILED || k < 0 ? strerror(errno) : "it became shorter while it was read";
    if (p != MAP_FAILED) munmap(p, size);
    return NULL;
}

static const char has_names[] =
    "it has more than one name (a hard link), which could be a file that is not the model's own";

/* Maps what fd is, or reads it where copies are wanted, and closes it. */
static bool map_fd(MappedFile *f, int fd, const char *path, bool alone, Err *err)
{
    struct stat st;
    const char *wrong = NULL;
    if (fstat(fd, &st) != 0) wrong = strerror(errno);
    else if (S_ISDIR(st.st_mode)) wrong = "it is a folder";
    else if (!S_ISREG(st.st_mode)) wrong = "it is not a regular file";
    else if (alone && st.st_nlink > 1) wrong = has_names;
    errno = 0;
    if (!wrong && st.st_size > 0) {
        void *p = copying ? read_whole(fd, (size_t)st.st_size, &wrong)
                          : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) wrong = strerror(errno);
        else if (!wrong) *f = (MappedFile){p, (uint64_t)st.st_size};
    }
    ErrCode code = errno == ENOMEM ? E_LIMIT : E_IO;
    if (code == E_LIMIT) mem_refused();
    close(fd);
    return !wrong || fail(err, code, "cannot read '%s': %s", path, wrong);
}

bool file_map(MappedFile *f, const char *path, Err *err)
{
    *f = (MappedFile){0};
    if (given.name && !strcmp(path, given.name)) return map_given(f, err);
    int fd = reopened(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), path);
    if (fd < 0) return fail(err, E_IO, "cannot open '%s': %s", path, strerror(errno));
    return map_fd(f, fd, path, false, err);
}

/* The next part of a path, of at most NAME_MAX bytes. */
static bool next_part(const char **path, char *part, size_t cap)
{
    *path += strspn(*path, "/");
    size_t n = strcspn(*path, "/");
    if (n >= cap) return false;
    memcpy(part, *path, n);
    part[n] = 0;
    *path += n;
    *path += strspn(*path, "/");
    return true;
}

/* The data of a file that is only written to be read again (Interim), where hooks made both. */
static int made_beside(const char *folder, const char *relative)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", relative);
    return n < PATH_MAX && !strchr(relative, '/') ? reopened(-1, path) : -1;
}

bool file_map_inside(MappedFile *f, const char *folder, const char *relative, Err *err)
{
    char part[256];
    const char *rest = relative;
    *f = (MappedFile){0};
    if (!*relative) return fail(err, E_FORMAT, "the name of a data file is empty");
    if (given.name)
        return fail(err, E_IO, "cannot read '%s': a model in memory has no folder with data files; load it by its path",
                    relative);
    if (*relative == '/')
        return fail(err, E_FORMAT, "'%s' is an absolute name; data files must be in the model's folder", relative);
    int at = open(*folder ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) return fail(err, E_IO, "cannot open the folder '%s': %s", folder, strerror(errno));
    while (*rest) {
        bool fits = next_part(&rest, part, sizeof part), up = fits && !strcmp(part, "..");
        int flags = O_CLOEXEC | O_NOFOLLOW | (*rest ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK),
            next = fits && !up ? openat(at, part, flags) : -1;
        int failed = !fits ? ENAMETOOLONG : up ? 0 : errno;
        if (next < 0 && failed == EACCES) next = made_beside(folder, relative);
        struct stat st;
        bool there = fits && !up && next < 0 && fstatat(at, part, &st, AT_SYMLINK_NOFOLLOW) == 0;
        bool link = there && S_ISLNK(st.st_mode), names = there && S_ISREG(st.st_mode) && st.st_nlink > 1;
        close(at);
        if (up) return fail(err, E_FORMAT, "'%s' leaves the model's folder ('..')", relative);
        if (link)
            return fail(err, E_IO,
                        "cannot open '%s': '%s' is a symbolic link, and data files are not read through links",
                        relative, part);
        if (names && failed == EACCES) return fail(err, E_IO, "cannot read '%s': %s", relative, has_names);
        if (next < 0)
            return fail(err, E_IO, "cannot open '%s' in '%s': %s", relative, *folder ? folder : ".", strerror(failed));
        at = next;
    }
    return map_fd(f, at, relative, true, err);
}

void file_unmap(MappedFile *f)
{
    if (f->data) munmap((void *)(uintptr_t)f->data, (size_t)f->size);
    *f = (MappedFile){0};
}

/* ------------------------------------------------------------------ folders */

bool folder_make(const char *path, Err *err)
{
    char *part = mem_strdup(path);
    struct stat st;
    if (!part) return oom(err);
    for (char *s = part; *s;) {
        s += strspn(s, "/");
        s += strcspn(s, "/");
        char after = *s;
        *s = 0;
        mkdir(part, 0700); /* whether it is there is seen below */
        *s = after;
    }
    mem_free(part);
    if (stat(path, &st)) return fail(err, E_IO, "cannot make the folder '%s': %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) || fail(err, E_IO, "cannot make the folder '%s': a file has that name", path);
}

int folder_lock(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fd;
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR) {
            close(fd);
            return -1;
        }
    return fd;
}

void folder_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

/* ------------------------------------------------------------------ output */

struct OutFile {
    int fd, slot;
    char *path, *temporary;
};

/* Names of temporary files that exist, for a signal handler. */
enum { MAX_OPEN = 64 };
static _Atomic(const char *) open_files[MAX_OPEN];

static int remember(const char *name)
{
    for (int i = 0; i < MAX_OPEN; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&open_files[i], &none, name)) return i;
    }
    return -1;
}

void outfile_abort_all(void)
{
    for (int i = 0; i < MAX_OPEN; i++) {
        const char *name = atomic_load(&open_files[i]);
        if (name) unlink(name);
    }
}

static void release(OutFile *o)
{
    if (o->slot >= 0) atomic_store(&open_files[o->slot], NULL);
    if (o->fd >= 0) close(o->fd);
    mem_free(o->path);
    mem_free(o->temporary);
    mem_free(o);
}

/* The file to replace: through a symbolic link its target, so that the link stays. NULL when out of memory. */
static char *target_of(const char *path)
{
    struct stat st;
    char real[PATH_MAX];
    bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && realpath(path, real);
    return mem_strdup(link ? real : path);
}

/* A name beside the target that no other process uses: "dir/.qkv-<process>-<serial>.tmp". */
static char *temporary_name(const char *target)
{
    static unsigned serial;
    const char *slash = strrchr(target, '/');
    size_t folder = slash ? (size_t)(slash - target) + 1 : 0, n = folder + 64;
    char *name = mem_alloc(n);
    if (name)
        snprintf(name, n, "%.*s.qkv-%ld-%u.tmp", (int)folder, target, (long)getpid(),
                 __atomic_add_fetch(&serial, 1, __ATOMIC_SEQ_CST));
    return name;
}

enum { STALE_S = 3600 };

/* ".qkv-PID-SERIAL.tmp", or an interim file's data */
static bool is_temporary(const char *name, pid_t *pid)
{
    static const char begin[] = ".qkv-";
    const char *at = name + sizeof begin - 1;
    if (strncmp(name, begin, sizeof begin - 1) || !is_digit(*at)) return false;
    *pid = (pid_t)parse_int(at, &at);
    if (*at != '-' || !is_digit(at[1])) return false;
    parse_int(at + 1, &at);
    return !strcmp(at, ".tmp") || !strcmp(at, ".tmp.data");
}

/* Is it a temporary file that a process of this user left when it was killed? Its process is gone, or has our number
 * but wrote it before we wrote anything (in containers every process has the same number); and its age excludes a
 * process of another machine on a shared disk. */
static bool stale(int folder, const char *name, time_t began)
{
    struct stat st;
    pid_t pid;
    if (!is_temporary(name, &pid)) return false;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) return false;
    bool gone = pid == getpid() ? st.st_mtime < began : kill(pid, 0) && errno == ESRCH;
    return gone && time(NULL) - st.st_mtime > STALE_S;
}

/* One look at a folder in a while is enough, and keeps many files in one folder from being read for each of them. */
static bool looked_at(int folder)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static dev_t device;
    static ino_t node;
    static time_t when;
    struct stat st;
    if (fstat(folder, &st)) return false;
    time_t now = time(NULL);
    if (pthread_mutex_trylock(&lock)) return true; /* another thread looks; or did when this process was forked */
    bool seen = when && now >= when && now - when < STALE_S && st.st_dev == device && st.st_ino == node;
    if (!seen) device = st.st_dev, node = st.st_ino, when = now;
    pthread_mutex_unlock(&lock);
    return seen;
}

static void remove_stale(const char *temporary)
{
    static time_t first;
    time_t none = 0, began = time(NULL);
    if (!__atomic_compare_exchange_n(&first, &none, began, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) began = none;
    const char *slash = strrchr(temporary, '/');
    char *folder = mem_strndup(temporary, slash ? (size_t)(slash - temporary) + 1 : 0);
    DIR *d = folder ? opendir(*folder ? folder : ".") : NULL;
    if (d && !looked_at(dirfd(d)))
        for (struct dirent *e; (e = readdir(d));)
            if (stale(dirfd(d), e->d_name, began)) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    mem_free(folder);
}

bool interim_begin(Interim *n, const char *path, Err *err)
{
    char *target = target_of(path);
    *n = (Interim){.name = target ? temporary_name(target) : NULL, .slot = {-1, -1}};
    size_t size = n->name ? strlen(n->name) + sizeof ".data" : 0;
    mem_free(target);
    if (!size || !(n->data = mem_alloc(size))) return oom(err);
    snprintf(n->data, size, "%s.data", n->name);
    n->slot[0] = remember(n->name);
    n->slot[1] = remember(n->data);
    return true;
}

void interim_end(Interim *n)
{
    if (n->data) remove_made(n->name), remove_made(n->data);
    for (int i = 0; i < 2; i++)
        if (n->slot[i] >= 0) atomic_store(&open_files[n->slot[i]], NULL);
    mem_free(n->name);
    mem_free(n->data);
}

/* Creating and remembering the file is one step for signals: a handler finds it in the list or it does not exist. */
static void create(OutFile *o)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    o->fd = hooks.open ? hooks.open(hooks.user, o->temporary, 1)
                       : open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int failed = errno;
    if (o->fd >= 0 && !hooks.open) o->slot = remember(o->temporary);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failed;
}

OutFile *outfile_open(const char *path, Err *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        fail(err, E_IO, "cannot write '%s': %s", path,
             S_ISDIR(st.st_mode) ? "it is a folder" : "it is not a regular file, and only such are replaced");
        return NULL;
    }
    OutFile *o = mem_zeroed(1, sizeof *o);
    if (o) {
        o->fd = o->slot = -1;
        o->path = target_of(path);
    }
    bool memory = o && o->path;
    for (int tries = 0; memory && o->fd < 0 && tries < 100; tries++) {
        mem_free(o->temporary);
        o->temporary = temporary_name(o->path);
        if (!(memory = o->temporary != NULL)) break;
        create(o);
        if (o->fd < 0 && errno != EEXIST) break;
    }
    if (memory && o->fd >= 0) {
        remove_stale(o->temporary);
        return o;
    }
    if (!memory) oom(err), within(err, "cannot write '%s'", path);
    else fail(err, E_IO, "cannot write '%s': %s", path, strerror(errno));
    if (o) release(o);
    return NULL;
}

bool outfile_write(OutFile *o, const void *bytes, size_t n, Err *err)
{
    const char *p = bytes;
    while (n) {
        ssize_t k = write(o->fd, p, n > (1u << 30) ? 1u << 30 : n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return fail(err, E_IO, "cannot write '%s': %s", o->path, strerror(errno));
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static void sync_folder(const char *path)
{
    char *folder = mem_strdup(path);
    if (!folder) return;
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    mem_free(folder);
}

bool outfile_commit(OutFile *o, Err *err)
{
    bool ok = fsync(o->fd) == 0 || errno == EINVAL;
    ok = close(o->fd) == 0 && ok;
    o->fd = -1;
    ok = ok && rename_made(o->temporary, o->path) == 0;
    if (!ok) {
        fail(err, E_IO, "cannot write '%s': %s", o->path, strerror(errno));
        remove_made(o->temporary);
    } else {
        sync_folder(o->path);
    }
    release(o);
    return ok;
}

void outfile_abort(OutFile *o)
{
    if (!o) return;
    remove_made(o->temporary);
    release(o);
}

bool outfile_all(const char *path, const void *bytes, size_t n, Err *err)
{
    OutFile *o = outfile_open(path, err);
    if (o && outfile_write(o, bytes, n, err)) return outfile_commit(o, err);
    outfile_abort(o);
    return false;
}
