/* qkv --sandbox COMMAND: should a model file ever make the process do what its author wants, there is little to do.
 *
 *     qkv --sandbox run stranger.pt2 -i in.npz -o out.npz      opens these three files and no other
 *
 * Landlock leaves the files that the command line names to be read, and the folders of its outputs to be written,
 * where a temporary file becomes the output: Landlock knows no names of files that are yet to be, so that all in those
 * folders, and below them, can be written. The kernel checks every open by files and not by names, so that links
 * and ".." lead nowhere. Seccomp refuses (EPERM) what Landlock does not cover: sockets, other programs, new
 * and other processes, typing into the terminal, changes of owner, mode, times and attributes, and the kernel's larger
 * interfaces. Both hold for all threads and
 * cannot be taken back. Reading /proc/self and the CPU quota (/sys/fs/cgroup) stays possible.
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
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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
    int fd;
    uint64_t handled;
    bool failed;
} Rules;

/* Rights on a file, or on all that is below a folder. What does not exist needs none. */
static void grant(Rules *r, const char *path, uint64_t rights)
{
    struct stat st;
    int fd = open(path, O_PATH | O_CLOEXEC);
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

/* The folder that a path is in, of what it leads to if it is a link. */
static void grant_folder(Rules *r, const char *path, uint64_t rights)
{
    char *real = realpath(path, NULL), *at = must(strdup(real ? real : path)), *slash = strrchr(at, '/');
    if (slash) slash[slash == at] = 0;
    grant(r, slash ? at : ".", rights);
    free(at);
    free(real);
}

/* An ONNX model's weights may be in files next to it. A folder that does not exist yet is made in its parent;
 * one that is read, too, is made now, so that there is something to grant. */
static void grant_named(void *user, const char *path, PathUse use)
{
    struct stat st;
    bool exists = !stat(path, &st) || (use == PATH_KEPT && !mkdir(path, 0777) && !stat(path, &st));
    if (use != PATH_WRITTEN) grant(user, path, FS_READ);
    if (use == PATH_READ && ends_in(path, ".onnx")) grant_folder(user, path, FS_READ);
    if (use == PATH_READ) return;
    if (exists && S_ISDIR(st.st_mode)) grant(user, path, FS_WRITE);
    else grant_folder(user, path, FS_WRITE);
}

static void grant_more(Rules *r, const char *list)
{
    const List l = {&list, list != NULL};
    Words w;
    words_of(&l, &w);
    for (int i = 0; i < w.n; i++) grant(r, w.name[i], FS_READ);
    words_free(&w);
}

static bool restrict_files(const Command *command, const Common *o, const char *more)
{
    static const char *const always[] = {"/proc/self", "/sys/fs/cgroup", "/dev/null"};
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1) return false;
    struct ruleset rules = {.fs = FS_OLDEST | (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0) |
                                  (abi >= 5 ? FS_IOCTL_DEV : 0),
                            .net = abi >= 4 ? NET_TCP : 0,
                            .scoped = abi >= 6 ? SCOPE_OUTSIDE : 0};
    Rules r = {.fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0), .handled = rules.fs};
    if (r.fd < 0) return false;
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) grant(&r, always[i], FS_READ);
    grant_more(&r, more);
    options_each_path(command, o, grant_named, &r);
    bool ok = !r.failed && !syscall(SYS_landlock_restrict_self, r.fd, 0);
    close(r.fd);
    return ok;
}

/* ------------------------------------------------------------------ system calls */

#if defined(__x86_64__)
#define THIS_MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_MACHINE AUDIT_ARCH_AARCH64
#endif

#if defined(THIS_MACHINE)
static const int refused[] = {
    SYS_execve,
    SYS_execveat,
    SYS_socket,
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_sendto,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_mq_open,
    SYS_mq_unlink,
    SYS_shmget,
    SYS_msgget,
    SYS_semget,
    SYS_kill,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_move_pages,
    SYS_kcmp,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fspick,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_mount_setattr,
    SYS_open_tree,
    SYS_pivot_root,
    SYS_chroot,
    SYS_quotactl,
    SYS_acct,
    SYS_open_by_handle_at,
    SYS_io_uring_setup,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_syslog,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_swapon,
    SYS_swapoff,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_truncate, /* Landlock leaves it before ABI 3 */
    SYS_utimensat,
    SYS_fchmodat,
    SYS_fchownat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SYS_linkat,
    SYS_symlinkat,
#if !defined(__SANITIZE_ADDRESS__) /* whose search for leaks stops the process and reads it */
    SYS_ptrace,
#endif
#if defined(__x86_64__)
    SYS_fork,
    SYS_vfork,
    SYS_iopl,
    SYS_ioperm,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_link,
    SYS_symlink,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
#endif
};

/* Calls of which only some are refused: where argument & mask is value, or where it is not. The kernel reads 32 bits of
 * each of these arguments, and so must we. */
typedef struct Part {
    int call, argument;
    unsigned mask, value;
    bool differs;
} Part;
static const Part part[] = {
    {SYS_ioctl, 1, ~0U, TIOCSTI, false},   /* types into the terminal, for the shell that reads it next */
    {SYS_ioctl, 1, ~0U, TIOCLINUX, false}, /* pastes on the console */
    {SYS_prlimit64, 0, ~0U, 0, true},      /* another process's limits */
#if !defined(__SANITIZE_ADDRESS__)
    {SYS_clone, 0, CLONE_THREAD, 0, false}, /* a process that outlives the command */
#endif
};
enum {
    REFUSED = sizeof refused / sizeof *refused,
    PARTS = sizeof part / sizeof *part,
    X32 = 0x40000000,
    NEWEST = 446, /* landlock_restrict_self, Linux 5.13 */
    LOW = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0,
    OF_PART = 6,
    FILTER = 9 + 2 * REFUSED + OF_PART * (PARTS + 1) + 1
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

static void add_part(Filter *f, const Part *p)
{
    add(f, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)p->call, 0, OF_PART - 1);
    add_load(f, offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (size_t)p->argument + LOW);
    add(f, BPF_ALU | BPF_AND | BPF_K, p->mask, 0, 0);
    add(f, BPF_JMP | BPF_JEQ | BPF_K, p->value, p->differs, !p->differs);
    add_end(f, SECCOMP_RET_ERRNO | EPERM);
    add_load(f, offsetof(struct seccomp_data, nr));
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
    for (int i = 0; i < REFUSED; i++) {
        add(&f, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused[i], 0, 1);
        add_end(&f, SECCOMP_RET_ERRNO | EPERM);
    }
    for (int i = 0; i < PARTS; i++) add_part(&f, &part[i]);
    add_part(&f, &(Part){SYS_tgkill, 0, ~0U, (unsigned)getpid(), true});
    add_end(&f, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = f.n, .filter = f.f};
    return !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
#else
static bool restrict_calls(void) { return false; }
#endif

int sandbox_enter(const Command *command, const Common *o, const char *more, bool asked)
{
    bool able = !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    bool files = able && restrict_files(command, o, more), calls = able && restrict_calls();
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
