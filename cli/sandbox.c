/* qkv --sandbox COMMAND: should a model file ever make the process do what its author wants, there is little to do.
 *
 *     qkv --sandbox run stranger.pt2 -i in.npz -o out.npz      opens these three files and no other
 *
 * Landlock leaves the files that the command line names to be read, and folders that it names as outputs to be written.
 * Of the folder of an ONNX model, what the model says that its data is in: a process with the model alone looks for it.
 * A file that is an output is made by a process outside (broker.c), so that its folder cannot be written. The kernel
 * checks every open by files and not by names, so that links and ".." lead nowhere. Seccomp lets pass the system calls
 * that the command needs and refuses all others (EPERM): sockets, other programs, new and other processes, typing into
 * the terminal, changes of owner, mode, times and attributes, shared memory of others. Both hold for all threads and
 * cannot be taken back. Reading /proc/self, what memory is left (/proc/meminfo) and what groups grant (/sys/fs/cgroup)
 * stays possible.
 */
#include "cli.h"

#if defined(__linux__) && __has_include(<linux/landlock.h>)
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------ files */

/* Rights and fields that older kernel headers lack; https://docs.kernel.org/userspace-api/landlock.html */
enum {
    FS_REFER = 1 << 13,     /* ABI 2 */
    FS_TRUNCATE = 1 << 14,  /* 3 */
    FS_IOCTL_DEV = 1 << 15, /* 5 */
    FS_OLDEST = (1 << 13) - 1,
    NET_TCP = 3,       /* 4: bind and connect */
    SCOPE_OUTSIDE = 3, /* 6: abstract sockets and signals */
    FS_READ = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
    FS_WRITE = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
               LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR | FS_TRUNCATE,
    FS_OF_FILES = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE,
};

struct ruleset { /* landlock_ruleset_attr of ABI 6; an older kernel takes it while what it does not know is 0 */
    uint64_t fs, net, scoped;
};

typedef struct Rules {
    int fd; /* negative without Landlock */
    uint64_t handled;
    bool failed;
} Rules;

static Rules rules_new(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    struct ruleset rules = {.fs = FS_OLDEST | (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0) |
                                  (abi >= 5 ? FS_IOCTL_DEV : 0),
                            .net = abi >= 4 ? NET_TCP : 0,
                            .scoped = abi >= 6 ? SCOPE_OUTSIDE : 0};
    int fd = abi < 1 ? -1 : (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    return (Rules){.fd = fd, .handled = rules.fs};
}

/* Ends the use of the rules. */
static bool restrict_files(Rules *r)
{
    bool ok = r->fd >= 0 && !r->failed && !syscall(SYS_landlock_restrict_self, r->fd, 0);
    if (r->fd >= 0) close(r->fd);
    return ok;
}

/* Rights on what fd, which it closes, is, or on all that is below a folder. What does not exist needs none. */
static void grant_opened(Rules *r, int fd, uint64_t rights)
{
    struct stat st;
    if (fd < 0) return;
    if (!fstat(fd, &st)) {
        struct landlock_path_beneath_attr a = {
            .allowed_access = rights & r->handled & (S_ISDIR(st.st_mode) ? ~UINT64_C(0) : FS_OF_FILES),
            .parent_fd = fd,
        };
        r->failed |= syscall(SYS_landlock_add_rule, r->fd, LANDLOCK_RULE_PATH_BENEATH, &a, 0) != 0;
    }
    close(fd);
}

static void grant(Rules *r, const char *path, uint64_t rights)
{
    grant_opened(r, open(path, O_PATH | O_CLOEXEC), rights);
}

static bool restrict_calls(void);

/* ------------------------------------------------------------------ files that an ONNX model names */

enum { MOST_NAMES = 1 << 20 }; /* bytes of all of them, each with its 0 */

static void tell_name(void *user, const char *name)
{
    const int *to = user;
    size_t n = strlen(name) + 1;
    while (n) {
        ssize_t k = write(*to, name, n);
        if (k <= 0) _exit(1);
        name += k;
        n -= (size_t)k;
    }
}

/* A process of its own reads the model, which may do nothing but that and say the names. */
static void scout(const char *model, int to)
{
    static const int plain[] = {SIGINT, SIGTERM, SIGHUP, SIGABRT, SIGBUS, SIGSEGV}; /* it says nothing when it ends */
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) signal(plain[i], SIG_DFL);
    Rules r = rules_new();
    grant(&r, model, FS_READ);
    if (restrict_files(&r) && restrict_calls()) qkv_onnx_data_files(model, tell_name, &to, NULL);
    _exit(0);
}

/* The names, and how many bytes they are; at most so many that the last one may be cut. */
static char *names_of_data(const char *model, size_t *n)
{
    char *names = must(calloc(MOST_NAMES + 1, 1));
    int ends[2];
    *n = 0;
    if (pipe2(ends, O_CLOEXEC)) return names;
    pid_t child = fork();
    if (!child) {
        close(ends[0]);
        scout(model, ends[1]);
    }
    close(ends[1]);
    for (ssize_t k = 1; child > 0 && *n < MOST_NAMES && k;) {
        k = read(ends[0], names + *n, MOST_NAMES - *n);
        if (k < 0 && errno != EINTR) break;
        if (k > 0) *n += (size_t)k;
    }
    close(ends[0]); /* what it still had to say ends it */
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    return names;
}

/* A file that is below a folder, has one name, and is reached by no link; -1: there is none. */
static int open_below(const char *folder, char *name)
{
    struct stat st;
    char *part = NULL;
    int at = *name == '/' ? -1 : open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (at >= 0 && (part = strsep(&name, "/"))) {
        int above = at;
        at = strcmp(part, "..") ? openat(above, *part ? part : ".", O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
        close(above);
    }
    if (at < 0 || (!fstat(at, &st) && S_ISREG(st.st_mode) && st.st_nlink == 1)) return at;
    close(at);
    return -1;
}

static void grant_data(Rules *r, const char *model)
{
    char *folder = must(strdup(model)), *slash = strrchr(folder, '/');
    size_t n = 0;
    char *names = r->fd < 0 ? NULL : names_of_data(model, &n);
    if (slash) slash[1] = 0;
    for (char *name = names, *next; name && name < names + n; name = next) {
        next = name + strlen(name) + 1;
        grant_opened(r, open_below(slash ? folder : ".", name), FS_READ);
    }
    free(names);
    free(folder);
}

/* ------------------------------------------------------------------ files that the command line names */

/* What is written in place, and folders, are made now, so that there is something to grant. */
static void grant_named(void *user, const char *path, PathUse use)
{
    int fd;
    switch (use) {
    case PATH_WRITTEN: return;
    case PATH_READ:
        grant(user, path, FS_READ);
        if (ends_in(path, ".onnx")) grant_data(user, path);
        return;
    case PATH_IN_PLACE:
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
        if (fd >= 0) close(fd);
        grant(user, path, LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE);
        return;
    case PATH_FOLDER:
    case PATH_KEPT:
        mkdir(path, 0777); /* where it fails, the command says so */
        grant(user, path, use == PATH_KEPT ? FS_READ | FS_WRITE : FS_WRITE);
        return;
    }
}

static void grant_more(Rules *r, const char *list)
{
    const List l = {&list, list != NULL};
    Words w;
    words_of(&l, &w);
    for (int i = 0; i < w.n; i++) grant(r, w.name[i], FS_READ);
    words_free(&w);
}

/* Before the broker, whose sockets no scout is to have. */
static Rules rules_of(const Command *command, const Common *o, const char *more)
{
    static const char *const always[] = {"/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/fs/cgroup", "/dev/null"};
    Rules r = rules_new();
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) grant(&r, always[i], FS_READ);
    grant_more(&r, more);
    options_each_path(command, o, grant_named, &r);
    return r;
}

/* ------------------------------------------------------------------ system calls */

#if defined(__x86_64__)
#define THIS_MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_MACHINE AUDIT_ARCH_AARCH64
#endif

#if defined(THIS_MACHINE)
/* A call that passes; with a mask, only where argument & mask is value. The kernel reads 32 bits of each of these
 * arguments, or has all of these bits in the lower 32, and so must we. */
typedef struct Pass {
    int call, argument;
    unsigned mask, value;
} Pass;
static const Pass passes[] = {
    {.call = SYS_futex},
    {.call = SYS_read},
    {.call = SYS_write},
    {.call = SYS_mmap},
    {.call = SYS_munmap},
    {.call = SYS_mprotect},
    {.call = SYS_mremap},
    {.call = SYS_madvise},
    {.call = SYS_brk},
    {.call = SYS_mincore},
    {.call = SYS_membarrier},
    {.call = SYS_get_mempolicy},
    /* files, which Landlock guards, and what is known of them */
    {.call = SYS_openat},
    {.call = SYS_openat2},
    {.call = SYS_close},
    {.call = SYS_close_range},
    {.call = SYS_readv},
    {.call = SYS_writev},
    {.call = SYS_pread64},
    {.call = SYS_pwrite64},
    {.call = SYS_lseek},
    {.call = SYS_fstat},
    {.call = SYS_newfstatat},
    {.call = SYS_statx},
    {.call = SYS_statfs},
    {.call = SYS_fstatfs},
    {.call = SYS_faccessat},
    {.call = SYS_faccessat2},
    {.call = SYS_readlinkat},
    {.call = SYS_getcwd},
    {.call = SYS_getdents64},
    {.call = SYS_flock},
    {.call = SYS_dup},
    {.call = SYS_dup3},
    {.call = SYS_pipe2},
    {.call = SYS_fsync},
    {.call = SYS_fdatasync},
    {.call = SYS_ftruncate},
    {.call = SYS_fadvise64},
    {.call = SYS_fallocate},
    {.call = SYS_mkdirat},
    {.call = SYS_unlinkat},
    {.call = SYS_renameat},
    {.call = SYS_renameat2},
    {.call = SYS_umask},
    {.call = SYS_recvmsg}, /* of the broker: no socket can be made */
    {SYS_fcntl, 1, ~0U, F_DUPFD},
    {SYS_fcntl, 1, ~0U, F_DUPFD_CLOEXEC},
    {SYS_fcntl, 1, ~0U, F_GETFD},
    {SYS_fcntl, 1, ~0U, F_SETFD},
    {SYS_fcntl, 1, ~0U, F_GETFL},
    {SYS_fcntl, 1, ~0U, F_SETFL}, /* but no owner, who would be sent signals */
    {SYS_ioctl, 1, ~0U, TCGETS},
    {SYS_ioctl, 1, ~0U, TIOCGWINSZ},
    /* threads of this process */
    {SYS_clone, 0, CLONE_THREAD, CLONE_THREAD}, /* not a process that outlives the command */
    {.call = SYS_set_robust_list},
    {.call = SYS_get_robust_list},
    {.call = SYS_rseq},
    {.call = SYS_set_tid_address},
    {.call = SYS_sched_yield},
    {.call = SYS_sched_getaffinity},
    {.call = SYS_sched_getparam},
    {.call = SYS_sched_getscheduler},
    {.call = SYS_sched_get_priority_max},
    {.call = SYS_sched_get_priority_min},
    {SYS_sched_setaffinity, 0, ~0U, 0},
    {.call = SYS_getcpu},
    {.call = SYS_gettid},
    {.call = SYS_exit},
    /* the process */
    {.call = SYS_exit_group},
    {.call = SYS_wait4},
    {.call = SYS_getpid},
    {.call = SYS_getppid},
    {.call = SYS_getuid},
    {.call = SYS_geteuid},
    {.call = SYS_getgid},
    {.call = SYS_getegid},
    {.call = SYS_getrusage},
    {.call = SYS_getrlimit},
    {.call = SYS_setrlimit},
    {SYS_prlimit64, 0, ~0U, 0}, /* its own limits */
    {.call = SYS_prctl},
    {.call = SYS_uname},
    {.call = SYS_sysinfo},
    {.call = SYS_getrandom},
    {.call = SYS_rt_sigaction},
    {.call = SYS_rt_sigprocmask},
    {.call = SYS_rt_sigreturn},
    {.call = SYS_rt_sigpending},
    {.call = SYS_rt_sigsuspend},
    {.call = SYS_rt_sigtimedwait},
    {.call = SYS_sigaltstack},
    {.call = SYS_restart_syscall},
    {.call = SYS_clock_gettime},
    {.call = SYS_clock_getres},
    {.call = SYS_clock_nanosleep},
    {.call = SYS_nanosleep},
    {.call = SYS_gettimeofday},
    {.call = SYS_times},
    {.call = SYS_ppoll},
    {.call = SYS_pselect6},
#if defined(__x86_64__)
    {.call = SYS_arch_prctl},
    {.call = SYS_open},
    {.call = SYS_stat},
    {.call = SYS_lstat},
    {.call = SYS_access},
    {.call = SYS_readlink},
    {.call = SYS_getdents},
    {.call = SYS_mkdir},
    {.call = SYS_rmdir},
    {.call = SYS_unlink},
    {.call = SYS_rename},
    {.call = SYS_dup2},
    {.call = SYS_pipe},
    {.call = SYS_poll},
    {.call = SYS_select},
    {.call = SYS_time},
#endif
#if defined(__SANITIZE_ADDRESS__) /* whose search for leaks is a process that stops this one and reads it */
    {.call = SYS_clone},
    {.call = SYS_ptrace},
    {.call = SYS_process_vm_readv},
#endif
};
enum {
    PASSES = sizeof passes / sizeof *passes,
    X32 = 0x40000000,
    NEWEST = 446, /* landlock_restrict_self, Linux 5.13 */
    LOW = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0,
    OF_PASS = 6,
    FILTER = 9 + OF_PASS * (PASSES + 1) + 1
};

typedef struct Filter {
    struct sock_filter f[FILTER];
    unsigned short n;
} Filter;

static void add(Filter *f, unsigned code, unsigned value, int equal, int other)
{
    f->f[f->n++] = (struct sock_filter)BPF_JUMP((unsigned short)code, value, (unsigned char)equal,
                                                (unsigned char)other);
}

static void add_load(Filter *f, size_t offset) { add(f, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0); }
static void add_end(Filter *f, unsigned how) { add(f, BPF_RET | BPF_K, how, 0, 0); }

static void add_pass(Filter *f, const Pass *p)
{
    add(f, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)p->call, 0, p->mask ? OF_PASS - 1 : 1);
    if (p->mask) {
        add_load(f, offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (size_t)p->argument + LOW);
        add(f, BPF_ALU | BPF_AND | BPF_K, p->mask, 0, 0);
        add(f, BPF_JMP | BPF_JEQ | BPF_K, p->value, 0, 1);
    }
    add_end(f, SECCOMP_RET_ALLOW);
    if (p->mask) add_load(f, offsetof(struct seccomp_data, nr));
}

/* A filter in the machine's own numbers of calls: another machine's, or those of x32, end the process. Calls newer than
 * Landlock, and clone3, whose flags a filter cannot see, are said not to exist: libraries then take older ones. */
static bool restrict_calls(void)
{
    Filter f = {.n = 0};
    add_load(&f, offsetof(struct seccomp_data, arch));
    add(&f, BPF_JMP | BPF_JEQ | BPF_K, THIS_MACHINE, 1, 0);
    add_end(&f, SECCOMP_RET_KILL_PROCESS);
    add_load(&f, offsetof(struct seccomp_data, nr));
    add(&f, BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1);
    add_end(&f, SECCOMP_RET_KILL_PROCESS);
    add(&f, BPF_JMP | BPF_JGT | BPF_K, NEWEST, 1, 0);
    add(&f, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
    add_end(&f, SECCOMP_RET_ERRNO | ENOSYS);
    for (int i = 0; i < PASSES; i++) add_pass(&f, &passes[i]);
    add_pass(&f, &(Pass){SYS_tgkill, 0, ~0U, (unsigned)getpid()});
    add_end(&f, SECCOMP_RET_ERRNO | EPERM);
    struct sock_fprog program = {.len = f.n, .filter = f.f};
    return !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
#else
static bool restrict_calls(void) { return false; }
#endif

int sandbox_enter(const Command *command, const Common *o, const char *more, bool asked)
{
    bool able = !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    Rules r = able ? rules_of(command, o, more) : (Rules){.fd = -1};
    int code = able ? broker_start(command, o) : 0;
    bool files = restrict_files(&r) && able;
    if (code) return code;
    bool calls = able && restrict_calls();
    if (asked && !files)
        return problem(QKV_UNSUPPORTED, "--sandbox: this system has no Landlock (Linux 5.13 or newer, with landlock "
                                        "among the kernel's security modules); a container is another way");
    if (asked && !calls) return problem(QKV_UNSUPPORTED, "--sandbox: this system does not take a seccomp filter");
    if (!files || !calls) detail("no sandbox: %s", files ? "no seccomp" : "no Landlock");
    return 0;
}
#else
int sandbox_enter(const Command *command, const Common *o, const char *more, bool asked)
{
    (void)command, (void)o, (void)more;
    return asked ? problem(QKV_UNSUPPORTED, "--sandbox: it needs Linux; a container is another way") : 0;
}
#endif
