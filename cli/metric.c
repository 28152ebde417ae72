/* --metric COMMAND: a figure of a model, which the user's own program finds.
 *
 *     Metric metric = {"python3 accuracy.py --model {}", &write};
 *     call.metric = metric_ask, call.metric_user = &metric;            python3 accuracy.py --model /tmp/qkv-.../m.onnx
 *
 * The model is written to a folder of its own, in the format of -o. The shell runs the command, with the file's path
 * where {} stands, or after it. The last line of what it prints holds one number, and that is the figure.
 */
#include "metric.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The line for the shell, whose first argument is the path: every {}, or the end, is "$1". */
static char *line_of(const char *command)
{
    char *line = NULL;
    size_t size = 0;
    const char *at = command, *here;
    FILE *f = must(open_memstream(&line, &size));
    for (; (here = strstr(at, "{}")); at = here + 2) fprintf(f, "%.*s\"$1\"", (int)(here - at), at);
    fprintf(f, "%s%s", at, at == command ? " \"$1\"" : "");
    fclose(f);
    return must(line);
}

static char *read_all(int fd)
{
    char *text = NULL, part[4096];
    size_t size = 0;
    ssize_t n;
    FILE *f = must(open_memstream(&text, &size));
    while ((n = read(fd, part, sizeof part)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0) fwrite(part, 1, (size_t)n, f);
    fclose(f);
    return must(text);
}

/* What the command prints; NULL: *code, and the user has been told. */
static char *output_of(const char *command, const char *path, int *code)
{
    int end[2], status = 0;
    pid_t child;
    posix_spawn_file_actions_t files;
    char *line = line_of(command), *const argv[] = {"sh", "-c", line, "sh", (char *)(uintptr_t)path, NULL};
    if (pipe2(end, O_CLOEXEC)) must(NULL);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, end[1], 1);
    int failed = posix_spawn(&child, "/bin/sh", &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(end[1]);
    char *text = failed ? NULL : read_all(end[0]);
    close(end[0]);
    free(line);
    if (failed) {
        *code = problem(QKV_USAGE, "--metric: no command can be started: %s%s", strerror(failed),
                        failed == EPERM || failed == EACCES ? " (with --sandbox none is)" : "");
        return NULL;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && !WEXITSTATUS(status)) return text;
    *code = problem(QKV_USAGE, "--metric: the command '%s' %s %d", command,
                    WIFEXITED(status) ? "failed, with exit code" : "was ended by signal",
                    WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    free(text);
    return NULL;
}

/* How many numbers stand in a line, between blanks, ':' and '='; the last of them. NaN and infinities are not meant. */
static int numbers_in(char *line, double *x)
{
    int n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line, " \t:=,;()", &rest); word; word = strtok_r(NULL, " \t:=,;()", &rest)) {
        char *end;
        double found = strtod(word, &end);
        if (end == word || (*end && strcmp(end, "%")) || !isfinite(found)) continue;
        *x = found;
        n++;
    }
    return n;
}

static int figure_of(char *text, const char *command, double *x)
{
    size_t n = strlen(text);
    while (n && strchr(" \t\r\n", text[n - 1])) text[--n] = 0;
    char *last = strrchr(text, '\n');
    char *line = last ? last + 1 : text, *kept = must(strdup(line));
    int found = *line ? numbers_in(line, x) : 0;
    int code = found == 1 ? 0
               : *kept
                   ? problem(QKV_USAGE,
                             "--metric: the last line that '%s' prints is '%.80s', with %d numbers; expected one",
                             command, kept, found)
                   : problem(QKV_USAGE, "--metric: '%s' prints nothing; expected a number in its last line", command);
    free(kept);
    return code;
}

static int write_candidate(const WriteOptions *w, const qkv_model *m, const char *path)
{
    qkv_error e;
    qkv_onnx_options options = {.struct_size = sizeof options, .opset = (int)w->opset, .external_data = w->external};
    if (w->target) profile_of_target(w->target, &options.profile);
    qkv_status s = ends_in(path, ".onnx")  ? qkv_model_save_onnx(m, path, &options, NULL, &e)
                   : ends_in(path, ".qkv") ? qkv_model_pack(m, path, NULL, &e)
                                           : qkv_model_save(m, path, &e);
    return s == QKV_OK ? 0 : problem_of(&e);
}

/* The folder of the call that runs, for a signal handler, too: NULL outside of calls. */
static struct {
    char *path, *data;
    _Atomic(const char *) folder;
} room;

void metric_clear(void)
{
    const char *folder = atomic_exchange(&room.folder, NULL);
    if (!folder) return;
    unlink(room.path);
    unlink(room.data);
    rmdir(folder);
}

/* Making the folder and remembering it is one step for signals. */
static bool make_folder(char *folder)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const bool made = mkdtemp(folder);
    const int failed = errno, length = (int)strlen(folder);
    memcpy(room.path, folder, (size_t)length);
    memcpy(room.data, folder, (size_t)length);
    if (made) atomic_store(&room.folder, folder);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failed;
    return made;
}

int metric_ask(void *user, const qkv_model *m, double *figure)
{
    Metric *a = user;
    const char *temporary = getenv("TMPDIR"), *ending = strrchr(a->write->output, '.');
    char *folder = NULL, *text = NULL;
    if (asprintf(&folder, "%s/qkv-metric-XXXXXX", temporary && *temporary ? temporary : "/tmp") < 0 ||
        asprintf(&room.path, "%s/model%s", folder, ending) < 0 || asprintf(&room.data, "%s.data", room.path) < 0)
        must(NULL);
    if (!make_folder(folder)) {
        a->code = problem(QKV_UNREADABLE, "--metric: no folder for the model can be made: %s: %s", folder,
                          strerror(errno));
    } else {
        progress_hide(a->progress);
        a->code = write_candidate(a->write, m, room.path);
        if (!a->code) text = output_of(a->command, room.path, &a->code);
        if (text) a->code = figure_of(text, a->command, figure);
        if (!a->code) detail("metric: %.9g", *figure);
        metric_clear();
    }
    free(text);
    free(room.data);
    free(room.path);
    free(folder);
    return a->code;
}
