/* What the sandbox leaves a process and what it takes: each check is a child, because nothing gives it back. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../cli/cli.h"

const CommandGroup command_groups[] = {{0}}; /* options.c and term.c want nothing of the others */

typedef struct Named {
    Common common;
    const char *output, *log, *folder;
    List image;
} Named;
static const Option own[] = {
    {"output", TEXT, offsetof(Named, output), .arg = "FILE", .writes = true},
    {"log", TEXT, offsetof(Named, log), .arg = "FILE", .writes = true, .in_place = true},
    {"folder", TEXT, offsetof(Named, folder), .arg = "DIR", .writes = true},
    {"image", MANY, offsetof(Named, image), .arg = "[NAME=]FILE"},
    {0},
};
static const Command command = {.name = "try", .max_args = 1, .size = sizeof(Named), .options = {{own}}};

static char *folder;

static const char *in_folder(const char *name)
{
    static char path[4][256];
    static int next;
    char *at = path[next++ % 4];
    snprintf(at, sizeof path[0], "%s/%s", folder, name);
    return at;
}

static void put_bytes(const char *name, const char *bytes, size_t n)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void put_file(const char *name) { put_bytes(name, "x", 1); }

/* A model whose tensors of one byte are in these files. */
static void put_onnx(const char *name, int n, const char *const *data)
{
    char graph[1000], model[1010] = {0x08, 8, 0x3a};
    size_t size = 0;
    for (int i = 0; i < n; i++) {
        size_t k = strlen(data[i]);
        const char head[] = {0x2a, (char)(k + 23), 0x08, 1, 0x10, 3, 0x42, 1, (char)('a' + i), 0x70, 1, 0x6a,
                             (char)(k + 12), 0x0a, 8, 'l', 'o', 'c', 'a', 't', 'i', 'o', 'n', 0x12, (char)k};
        memcpy(graph + size, head, sizeof head);
        memcpy(graph + size + sizeof head, data[i], k);
        size += sizeof head + k;
    }
    model[3] = (char)(size % 128 + 128), model[4] = (char)(size / 128);
    memcpy(model + 5, graph, size);
    put_bytes(name, model, size + 5);
}

static int set_up(void **state)
{
    static char name[] = "/tmp/qkv-sandbox-XXXXXX";
    static const char *const file[] = {"in/m.pt2", "in/weights.bin", "in/sub/more.bin",
                                       "in/sub/other.bin", "in/cat.png", "in/secret", "out/old"};
    (void)state;
    folder = mkdtemp(name);
    mkdir(in_folder("in"), 0700);
    mkdir(in_folder("out"), 0700);
    static const char *const data[] = {"weights.bin", "sub//./more.bin", "../out/old", "link.bin", "way/more.bin",
                                       "hard.bin", "sub", "none", "/etc/passwd"};
    mkdir(in_folder("in/sub"), 0700);
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) put_file(file[i]);
    put_onnx("in/m.onnx", sizeof data / sizeof *data, data);
    if (symlink("secret", in_folder("in/link.bin")) || symlink("sub", in_folder("in/way")) ||
        link(in_folder("in/secret"), in_folder("in/hard.bin")))
        return 1;
    return symlink(in_folder("in/secret"), in_folder("out/link"));
}

static int tear_down(void **state)
{
    char line[300];
    (void)state;
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

/* 0, or the errno of opening. */
static int tried(const char *name, int how)
{
    int fd = open(in_folder(name), how, 0600), why = fd < 0 ? errno : 0;
    if (fd >= 0) close(fd);
    return why;
}

static void *open_secret(void *user)
{
    *(int *)user = tried("in/secret", O_RDONLY);
    return NULL;
}

static int files_of_pt2(void)
{
    pthread_t thread;
    int elsewhere = 0;
    if (tried("in/m.pt2", O_RDONLY) || tried("in/cat.png", O_RDONLY)) return 1;
    if (tried("in/secret", O_RDONLY) != EACCES || tried("out/link", O_RDONLY) != EACCES) return 2;
    if (tried("in/m.pt2", O_WRONLY) != EACCES || tried("in/new", O_WRONLY | O_CREAT) != EACCES) return 3;
    if (tried("out/new", O_WRONLY | O_CREAT) != EACCES || tried("out/old", O_WRONLY) != EACCES) return 4;
    if (tried("out/old", O_RDONLY) != EACCES || !unlink(in_folder("out/old"))) return 5;
    if (pthread_create(&thread, NULL, open_secret, &elsewhere) || pthread_join(thread, NULL)) return 6;
    return elsewhere == EACCES ? 0 : 7;
}

/* What the folder of an output holds, but for two files that tests put there. */
static int files_in_out(void)
{
    char line[400];
    snprintf(line, sizeof line, "test -z \"$(ls -A '%s' | grep -vx -e old -e link)\"", in_folder("out"));
    return system(line);
}

static bool is_written(const char *name) { return qkv_file_write(in_folder(name), "made", 4, NULL) == QKV_OK; }

/* The output, data beside it, and nothing else; what was not finished goes with the process. */
static int output(void)
{
    qkv_files files = {.struct_size = sizeof files};
    if (!is_written("out/o.npz") || !is_written("out/o.npz") || !is_written("out/o.npz.data")) return 1;
    if (is_written("out/old") || is_written("out/o.npz.dat") || is_written("in/m.pt2") || is_written("out/link"))
        return 2;
    if (is_written("out/../out/o.npz") || is_written("nowhere/o.npz")) return 3;
    if (tried("out/o.npz", O_WRONLY) != EACCES || tried("out/o.npz", O_RDONLY) != EACCES) return 4;
    if (!rename(in_folder("out/o.npz"), in_folder("out/old")) || errno != EACCES) return 5;
    return qkv_set_files(&files, NULL) == QKV_USAGE ? 0 : 6;
}

/* Asks whoever makes files as the library does, and more than that. */
static int hooks(void)
{
    char temporary[300], other[300], target[300];
    snprintf(temporary, sizeof temporary, "%s/out/.qkv-%ld-77.tmp", folder, (long)getpid());
    snprintf(other, sizeof other, "%s/in/.qkv-%ld-77.tmp", folder, (long)getpid());
    snprintf(target, sizeof target, "%s/out/o.npz", folder);
    const qkv_files *f = broker_files();
    int fd = f->open(NULL, temporary, 1);
    if (fd < 0 || write(fd, "x", 1) != 1) return 1;
    if (f->open(NULL, temporary, 1) >= 0 || errno != EEXIST) return 2;
    if (f->open(NULL, other, 1) >= 0 || errno != EACCES) return 3;
    if (f->open(NULL, in_folder("out/new"), 1) >= 0 || f->open(NULL, in_folder("in/secret"), 0) >= 0) return 4;
    if (!f->rename(NULL, temporary, in_folder("out/old")) || errno != EACCES) return 5;
    if (!f->rename(NULL, in_folder("in/secret"), target) || errno != EACCES) return 6;
    if (!f->remove(NULL, in_folder("out/old")) || errno != EACCES) return 7;
    if (f->rename(NULL, temporary, target) || !f->rename(NULL, temporary, target)) return 8;
    if (f->open(NULL, temporary, 1) < 0) return 9; /* stays unfinished */
    fd = f->open(NULL, temporary, 0);
    return fd < 0 || write(fd, "x", 1) >= 0 ? 10 : 0;
}

static int in_place(void)
{
    if (tried("out/log", O_WRONLY | O_TRUNC) || tried("out/log", O_RDONLY) != EACCES) return 1;
    if (tried("out/more", O_WRONLY | O_CREAT) != EACCES) return 2;
    if (tried("made/m.png", O_WRONLY | O_CREAT) || rename(in_folder("made/m.png"), in_folder("made/n.png"))) return 3;
    return tried("made/n.png", O_RDONLY) == EACCES && is_written("made/o.png") ? 0 : 4;
}

/* Those that it names, in its folder, by no link and under no other name. */
static int files_of_onnx(void)
{
    static const char *const not[] = {"in/secret", "in/m.pt2", "in/sub/other.bin", "in/link.bin", "in/hard.bin",
                                      "out/old", "in", "in/sub"};
    if (tried("in/m.onnx", O_RDONLY) || tried("in/weights.bin", O_RDONLY) || tried("in/sub/more.bin", O_RDONLY))
        return 1;
    for (size_t i = 0; i < sizeof not / sizeof *not; i++)
        if (tried(not[i], O_RDONLY) != EACCES) return (int)i + 2;
    return tried("in/weights.bin", O_WRONLY) == EACCES ? 0 : 20;
}

static int calls(void)
{
    char *const word[] = {"true", NULL};
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EPERM) return 1;
    if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || errno != EPERM) return 2;
    if (execv("/bin/true", word) >= 0 || errno != EPERM) return 3;
    if (!kill(getppid(), 0) || errno != EPERM) return 4;
    if (!chmod(in_folder("in/m.pt2"), 0777) || errno != EPERM) return 5;
    if (!symlink("/etc/passwd", in_folder("out/to")) || errno != EPERM) return 6;
    return 0;
}

/* What reaches beyond the process without opening a file: a shell would run what is typed into its terminal. */
static int beyond(void)
{
    struct rlimit limit;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY), end = open(in_folder("in/m.pt2"), O_RDONLY);
    unsigned long typing = TIOCSTI;
    if (ioctl(terminal, typing, "x") >= 0 || errno != EPERM) return 1;
    if (ioctl(terminal, typing | 1UL << 32, "x") >= 0 || errno != EPERM) return 2;
    if (syscall(SYS_tgkill, getppid(), getppid(), 0) >= 0 || errno != EPERM) return 3;
    if (syscall(SYS_tkill, getppid(), 0) >= 0 || errno != EPERM) return 4;
    if (syscall(SYS_tgkill, getpid(), getpid(), 0)) return 5;
    if (prlimit(getppid(), RLIMIT_CPU, NULL, &limit) >= 0 || errno != EPERM) return 6;
    if (prlimit(0, RLIMIT_CPU, NULL, &limit)) return 7;
    if (!truncate(in_folder("out/old"), 0) || errno != EPERM) return 8;
    if (!utimensat(AT_FDCWD, in_folder("out/old"), NULL, 0) || errno != EPERM) return 9;
    if (!fsetxattr(end, "user.x", "x", 1, 0) || errno != EPERM) return 10;
    if (!setpriority(PRIO_PROCESS, (id_t)getppid(), 19) || errno != EPERM) return 13;
    if (!fcntl(end, F_SETOWN, getppid()) || errno != EPERM) return 14;
    if (inotify_init1(0) >= 0 || errno != EPERM) return 15;
    if (shmat(0, NULL, SHM_RDONLY) != (void *)-1 || errno != EPERM) return 16; /* of another process */
    if (syscall(SYS_landlock_restrict_self + 6, -1, "", 0, 0) >= 0 || errno != ENOSYS) return 11; /* fchmodat2 */
#if !defined(__SANITIZE_ADDRESS__)
    pid_t child = fork();
    if (!child) _exit(0);
    if (child > 0 || errno != EPERM) return 12;
#endif
    return 0;
}

/* What f returns in a child that entered with these words; 100 when the system has no sandbox. */
static int inside(int f(void), const char *more, int n, const char *const *word)
{
    pid_t child = fork();
    if (!child) {
        Common *o;
        char *argv[4];
        for (int i = 0; i < n; i++) argv[i] = strdup(word[i]);
        if (options_parse(&command, n, argv, &o)) _exit(99);
        term_init(0, true);
        _exit(sandbox_enter(&command, o, more, true) ? 100 : f());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static int with_pt2(int f(void), const char *more)
{
    char output[300], image[300];
    snprintf(output, sizeof output, "--output=%s", in_folder("out/o.npz"));
    snprintf(image, sizeof image, "--image=x=%s", in_folder("in/cat.png"));
    const char *const word[] = {in_folder("in/m.pt2"), output, image};
    return inside(f, more, 3, word);
}

static bool supported(void)
{
    if (with_pt2(calls, NULL) != 100) return true;
    print_message("this system has no Landlock or no seccomp\n");
    return false;
}

static void test_only_named_files(void **state)
{
    (void)state;
    if (!supported()) skip();
    assert_int_equal(with_pt2(files_of_pt2, NULL), 0);
}

static int secret_too(void) { return tried("in/secret", O_RDONLY) || tried("in/weights.bin", O_RDONLY) != EACCES; }

static void test_more_files(void **state)
{
    (void)state;
    if (!supported()) skip();
    assert_int_equal(with_pt2(secret_too, in_folder("in/secret")), 0);
}

/* A process that has ended leaves what the broker removes a moment after it. */
static bool only_output_is_left(void)
{
    bool clean = false;
    assert_int_equal(unlink(in_folder("out/o.npz")), 0);
    unlink(in_folder("out/o.npz.data"));
    for (int tries = 0; !clean && tries < 500; tries++) {
        clean = files_in_out() == 0;
        if (!clean) usleep(10000);
    }
    return clean;
}

static void test_output(void **state)
{
    (void)state;
    if (!supported()) skip();
    assert_int_equal(with_pt2(output, NULL), 0);
    assert_true(only_output_is_left());
    assert_int_equal(with_pt2(hooks, NULL), 0);
    assert_true(only_output_is_left());
}

static void test_in_place(void **state)
{
    char log[300], made[300];
    (void)state;
    if (!supported()) skip();
    snprintf(log, sizeof log, "--log=%s", in_folder("out/log"));
    snprintf(made, sizeof made, "--folder=%s", in_folder("made"));
    const char *const word[] = {in_folder("in/m.pt2"), log, made};
    assert_int_equal(inside(in_place, NULL, 3, word), 0);
    assert_int_equal(unlink(in_folder("out/log")), 0);
}

static void test_data_of_onnx(void **state)
{
    (void)state;
    if (!supported()) skip();
    const char *const word[] = {in_folder("in/m.onnx")};
    assert_int_equal(inside(files_of_onnx, NULL, 1, word), 0);
}

static void test_calls(void **state)
{
    (void)state;
    if (!supported()) skip();
    assert_int_equal(with_pt2(calls, NULL), 0);
}

static void test_beyond_the_process(void **state)
{
    (void)state;
    if (!supported()) skip();
    assert_int_equal(with_pt2(beyond, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_named_files),
        cmocka_unit_test(test_more_files),
        cmocka_unit_test(test_output),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_data_of_onnx),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_beyond_the_process),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
