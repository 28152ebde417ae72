/* Golden op cases as ONNX files, for tests/ops/onnx_ops.py, which runs them in ONNX Runtime: each with constant and
 * with variable sizes.
 *
 *     write_onnx tests/ops OUT PROFILE OPSET [WORD...]     OUT/FAMILY.NAME.c.onnx, .s.onnx; a line a case:
 *     pointwise.add_Tensor_0 <tab> aten.add.Tensor <tab> c <tab> call           written; or the sentence that refuses
 *                                                                               it in place of the call
 *     # row <tab> reason                                   a plain row that is never written
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "grad/grad.h"
#include "onnx/write/write.h"
#include "golden.h"

typedef struct Target {
    const char *folder;
    OnnxOptions options;
} Target;

static bool write_case(const Target *t, const GoldenCase *c, GoldenSizes how)
{
    char path[1024];
    Err err = {0};
    Graph *g = golden_graph(c, how, &err);
    if (!g) return false;
    snprintf(path, sizeof path, "%s/%s.%s.%c.onnx", t->folder, c->family, c->name, how == CONSTANT ? 'c' : 's');
    bool ok = written_as_loops(g, &err) && onnx_save(g, path, &t->options, NULL, &err);
    printf("%s.%s\t%s\t%c\t%s\t%s\n", c->family, c->name, c->op->name, how == CONSTANT ? 'c' : 's',
           ok ? "written" : "refused", ok ? c->call : err.msg);
    graph_free(g);
    return true;
}

static void on_case(void *user, const GoldenCase *c)
{
    const Target *t = user;
    write_case(t, c, CONSTANT);
    if (c->only_constant) return;
    if (!write_case(t, c, DISTINCT)) write_case(t, c, SHARED);
}

/* not "" of a row that import leaves in a graph */
static const char *const plain[OP_COUNT] = {
#define VIEW(f) #f
#define RUN(f) #f
#define OP(id, name, schema, ...) [OP_##id] = "" __VA_ARGS__,
#include "op/ops.def"
};

/* Every plain row has an emitter or a reason why not. */
static int check_rows(void)
{
    int bad = 0;
    for (OpId id = OP_NONE + 1; id < OP_COUNT; id++) {
        const char *why;
        bool run = *plain[id] != 0, out = onnx_emits(id, &why);
        if (run == (why != NULL)) {
            if (run && !out) printf("# %s\t%s\n", op_get(id)->name, why);
            continue;
        }
        fprintf(stderr, "%s: %s\n", op_get(id)->name,
                run ? "no ONNX word in its row" : "an ONNX word in its row, but it is never run");
        bad++;
    }
    return bad;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: write_onnx FOLDER OUT PROFILE OPSET [WORD...]\n");
        return 2;
    }
    Target t = {.folder = argv[2], .options = {.opset = atoi(argv[4])}};
    while (t.options.profile < ONNX_PROFILES && strcmp(onnx_profile_name(t.options.profile), argv[3]))
        t.options.profile++;
    for (int f = 0; f < golden_family_count; f++) {
        Err err = {0};
        if (!golden_each(argv[1], golden_families[f], argv + 5, argc - 5, on_case, &t, &err)) {
            fprintf(stderr, "%s\n", err.msg);
            return 3;
        }
    }
    return check_rows() ? 1 : 0;
}
