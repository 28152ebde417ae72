/* One call of any op, as the golden cases are written, with the tensors it is given: read, lowered, planned and run.
 *
 *     f32[2,3] i64[2]: aten.gather.default(%0, 1, %1)
 *
 * Elements are small numbers that follow from the call's text; integers are often no valid index.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "format/tensors.h"
#include "fuzz.h"
#include "lower/lower.h"
#include "ir/text.h"
#include "run/session.h"
#include "shape/shape.h"

enum { MAX_INPUTS = 8, MAX_ELEMENTS = 4096, MAX_CALL = 4096 };

static const char *const tokens[] = {"-1",
                                     "0",
                                     "1",
                                     "2",
                                     "none",
                                     "true",
                                     "false",
                                     "[",
                                     "]",
                                     "[]",
                                     ", ",
                                     "%0",
                                     "%1",
                                     "f32",
                                     "i64",
                                     "bool",
                                     "bf16",
                                     "f16",
                                     "c64",
                                     "i8",
                                     "u8",
                                     "nan",
                                     "-inf",
                                     "inf",
                                     "1e-30",
                                     "\"mean\"",
                                     "=",
                                     "dim=",
                                     "keepdim=true",
                                     "dtype=f64",
                                     "(3*s0 + 1)",
                                     "[2,3]",
                                     "[0]",
                                     "[]",
                                     "[1,1,4,4]",
                                     "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     NULL};

/* Past findings. */
#define ONES_14 "1,1,1,1,1,1,1,1,1,1,1,1,1,1"
static const char *const found[] = {
    ": aten.kaiser_window.default(1048577)",
    "f32[12,4] f32[12]: torchvision.nms.default(%0, 1, 62.1)",
    "i32[11]: aten.square.default(2)",
    "f32[3,4,5] f32[4,3,2]: aten.tensordot.default(%0, %1, [1, 0], [255, 1])",
    "i8[3]: aten.tril.default(%0)",
    "f32[2,3,4] f32[4]: aten.huber_loss.default(3, 1, delta=0.7)",
    "bf16[2,3,5]: aten.prelu.default(%0, -1)",
    "f32[2,3,5] f32[2]: aten.prelu.default(%0, %1)",
    "i8[3,65]: aten.any.dims(%0, [-3])",
    "f32[2,5] f32[5,3]: aten.searchsorted.Tensor(%0, %1)",
    "f32[1,2,3,9]: aten.upsample_trilinear3d.vec(%0, none, false, [-46116175, 80])",
    "f32[2,0,5] f32[6,5]: aten.linear.default(%0, %1)",
    "f32[4,5] f32[4,2]: aten.slice_scatter.default(%0, %1, 1, -22, 92, 9223372036854775807)",
    "i64[4,55] i64[5]: aten.select_scatter.default(%0, %1, 0, 2)",
    "f32[2,3,6]: aten.pad.default(%0, [32767, 1], \"circular\")",
    "f32[5,7]: aten.slice.Tensor(%0, 0, 1, 922, 9223372036854775807)",
    "f32[2,3,6]: aten.dsplit.int(%0, 32766)",
    "i64[4,6]: aten.diff.default(%0, n=1099511627776, dim=-2)",
    "f32[]: aten.expand_copy.default(%0, [4611686018427387904, 3])",
    "f32[2,6,5,5] f32[9,2,3,2,3,3]: aten.conv2d.default(%0, %1, none, [1, 1], [2, 2], [2, 4096], 3)",
    "bf16[2,3,8,7]: aten.max_pool2d.default(%0, [3, 3], [4, 2], [0, 0], [0, 1])",
    "u32[5,7]: aten.narrow.default(%0, -2, -70368744177665, 2)",
    "f32[8]: aten.histc.default(%0, 0, 1e-302)",
    "f16[8]: aten.histc.default(%0, 100, -60000, 60000)",
    "f32[18,20]: aten.col2im.default(%0, [5, 4], [3, 3], [-4611686018427387904, 1], [1, 1], [1, 1])",
    "f32[2,3,6,7]: aten.im2col.default(%0, [3, 3], [9223372036854775807, 1], [1, 1], [2, 2])",
    "f32[1,2,6,6,6] f32[3,2,3,3,3]: aten.conv3d.padding(%0, %1, none, [1, 1, 1], \"same\", [4611686018427387904, 2, "
    "2])",
    /* results above the highest rank, and a list longer than it */
    "f32[" ONES_14 ",5,3]: aten.stack.default([%0], 0)",
    "f32[" ONES_14 ",5,3]: aten._chunk_cat.default([%0], -1, 2)",
    "f32[3," ONES_14 "] f32[4," ONES_14 "]: aten.tensordot.default(%0, %1, [1], [1])",
    "f32[" ONES_14 ",3]: aten.flip.default(%0, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0])",
    "f32[" ONES_14 ",6,3] f32[" ONES_14 ",2,3]: aten.linalg_tensorsolve.default(%0, %1, [1, 1, 1, 1, 1, 1, "
    "1, 1])",
    "f32[2,3] f32[2,3] f32[2,1] f32[2,1]: aten.native_layer_norm_backward.default(%0, %1, [1, 1, 1, 1, 1, 1, 1, "
    "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3], %2, %3, none, none, [true, true, true])",
    "f32[4," ONES_14 ",5] i64[2," ONES_14 "]: aten.index.Tensor(%0, [%1])",
    "f32[4," ONES_14 ",5] i64[2," ONES_14 ",1] f32[2," ONES_14 ",5]: aten.index_put.default(%0, [%1], %2)",
    /* None in a list that has no room for it */
    "f32[2]: aten.meshgrid.default([none, %0])",
    "f32[2]: aten.broadcast_tensors.default([none, %0])",
    "c64[2]: aten.cat.default([none, %0], 0)",
    "f32[4]: aten.gradient.tensorarray(%0, spacing=[none], dim=[0])",
    /* an axis from the end, of a row that import gives others */
    "f32[2,3,4,2]: qkv.logcumsumexp_pairs.default(%0, -1)",
    /* a complex condition, complex pivots */
    "c64[3,3]: aten.lu_unpack.default(%0, %0)",
    "c64[2,3]: aten.masked_fill.Scalar(%0, %0, 64)",
    "c64[2,3] f32[2,3]: aten.where.self(%0, %0, %1)",
    /* statistics that are not given, and not computed either */
    "f32[] f32[] f32[]: aten.concat.default([%0, %1, %2])",
    "f32[8,4,2]: aten.native_batch_norm.default(%0, none, none, none, none, false, 0.1, 1e-5)",
    /* a vector where batches of matrices are made alike */
    "f32[2,2] i32[2] f32[2]: aten.linalg_ldl_solve.default(%0, %1, %2)",
    /* more frequencies than there are rows */
    "c64[2,9,7] f32[16]: aten.istft.default(%0, 6553)",
    /* two numbers for three axes, and a gradient of fewer axes than what was pooled */
    "f32[2,3,4,3] f32[2,3,8,7]: aten.avg_pool3d_backward.default(%0, %1, [3, 2], [256, 2], [1, 1], false, true, 3)",
    "f32[3] f32[2,3,8,7]: aten.avg_pool2d_backward.default(%0, %1, [2], [2], [0], false, true, none)",
};

static void seeds(FuzzAdd *add)
{
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) add(found[i], strlen(found[i]));
}

static TensorFile *open_tensors(const char *path)
{
    enum { MOST = 16 << 20 };
    uint8_t *bytes = malloc(MOST);
    Err ignored;
    FILE *f = bytes ? fopen(path, "rb") : NULL;
    fuzz_set_file(bytes, f ? fread(bytes, 1, MOST, f) : 0);
    TensorFile *t = f ? tensorfile_open(FUZZ_PATH, &ignored) : NULL;
    if (f) fclose(f);
    free(bytes);
    return t;
}

/* FAMILY.cases and the shapes in FAMILY.safetensors. */
static void expand(const char *path, FuzzAdd *add)
{
    char tensors[4096], *line = NULL, key[256];
    size_t room = 0;
    snprintf(tensors, sizeof tensors, "%.*s.safetensors", (int)(strlen(path) - strlen(".cases")), path);
    TensorFile *file = open_tensors(tensors);
    FILE *cases = fopen(path, "r");
    while (file && cases && getline(&line, &room, cases) > 0) {
        char *call = strstr(line, ": "), text[MAX_CALL];
        int n = 0;
        line[strcspn(line, "\n#")] = 0;
        if (!call) continue;
        *call = 0;
        for (int i = 0; i < MAX_INPUTS && n < MAX_CALL / 2; i++) {
            snprintf(key, sizeof key, "%s.in%d", line, i);
            const Tensor *t = tensorfile_find(file, key);
            if (!t) break;
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%s[", n ? " " : "", dtype_name(t->dtype));
            for (int k = 0; k < t->rank; k++)
                n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld", k ? "," : "", (long long)t->shape[k]);
            n += snprintf(text + n, sizeof text - (size_t)n, "]");
        }
        n += snprintf(text + n, sizeof text - (size_t)n, ": %s", call + 2);
        if (n < MAX_CALL) add(text, (size_t)n);
    }
    free(line);
    if (cases) fclose(cases);
    tensorfile_close(file);
}

/* "f32[2,3]" at *text; false when it is none, or large. */
static bool read_type(char **text, Tensor *t)
{
    char *bracket = strchr(*text, '['), name[16] = "";
    int64_t shape[MAX_RANK];
    int rank = 0;
    size_t bytes;
    Err ignored;
    if (!bracket || bracket - *text >= (int)sizeof name) return false;
    memcpy(name, *text, (size_t)(bracket - *text));
    DType type = dtype_from_name(name);
    char *at = bracket + 1;
    for (; *at && *at != ']'; at += *at == ',') {
        char *end;
        if (rank == MAX_RANK) return false;
        shape[rank++] = strtoll(at, &end, 10);
        if (end == at || shape[rank - 1] > MAX_ELEMENTS) return false;
        at = end;
    }
    *text = at + (*at == ']') + (*at == ']' && at[1] == ' ');
    if (type == DT_NONE || !shape_bytes(type, rank, shape, &bytes, &ignored) || bytes > MAX_ELEMENTS * 16) return false;
    *t = tensor_of(type, rank, shape, NULL);
    return true;
}

static void fill(Tensor *t, uint32_t seed)
{
    int64_t n = tensor_numel(t);
    t->data = malloc(tensor_bytes(t) + 1);
    if (!t->data) abort();
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        void *p = (char *)t->data + (size_t)i * dtype_size(t->dtype);
        if (dtype_is_float(t->dtype)) store_f64(t->dtype, p, (int)(seed >> 16) % 100 / 16.0);
        else store_i64(t->dtype, p, seed >> 31 ? 0 : (int64_t)(seed >> 24) % 12 - 3);
    }
}

/* The graph of one call; symbolic: sizes of 2 and more are symbols, the same for the same size. */
static Graph *build(const char *call, const Tensor *in, int nin, bool symbolic, Err *err)
{
    Graph *g = graph_create();
    const Op *op;
    Arg *args;
    if (!g) abort();
    for (int i = 0; i < nin; i++) {
        Expr *dim[MAX_RANK];
        char name[32];
        for (int k = 0; k < in[i].rank; k++) {
            snprintf(name, sizeof name, "n%lld", (long long)in[i].shape[k]);
            dim[k] = symbolic && in[i].shape[k] > 1 ? ex_symbol(g->ex, name) : ex_int(g->ex, in[i].shape[k]);
            if (!dim[k]) abort();
            if (dim[k]->kind != EX_SYM) continue;
            expr_set_range(g->ex, (int)dim[k]->i, 2, INT64_MAX);
            expr_symbol(g->ex, (int)dim[k]->i)->source = SYM_INPUT;
        }
        snprintf(name, sizeof name, "%d", i);
        if (!graph_add_input(g, name, in[i].dtype, in[i].rank, dim)) abort();
    }
    bool ok = text_parse_call(g, call, &op, &args, err);
    Lower L = {.g = g, .ex = g->ex, .op = ok ? op : NULL, .arg = ok ? args : NULL, .name = "y", .err = err};
    ok = ok && lower_op(&L);
    Value **v = L.result.kind == ARG_VALUES ? L.result.vs : &L.result.v;
    int n = !ok ? 0 : L.result.kind == ARG_VALUES ? L.result.n : L.result.kind == ARG_VALUE;
    for (int k = 0; ok && k < n; k++) {
        char name[32];
        snprintf(name, sizeof name, "output_%d", k);
        ok = !v[k] || graph_add_output(g, name, v[k], err);
    }
    if (ok && graph_check(g, err)) return g;
    fuzz_said(err);
    graph_free(g);
    return NULL;
}

static void run(const char *call, const Tensor *in, int nin, bool symbolic)
{
    Err err = {0};
    volatile double last;
    Graph *g = build(call, in, nin, symbolic, &err);
    Session *s = g ? session_create(g, NULL, 1, (size_t)16 << 20, &err) : NULL;
    bool ok = s != NULL;
    for (int i = 0; ok && i < nin; i++) ok = session_set_input(s, i, &in[i], &err);
    ok = ok && session_run(s, &err);
    for (int k = 0; ok && k < g->noutput; k++) {
        const Tensor *t = session_output(s, k);
        for (int64_t i = 0; i < tensor_numel(t); i++) last = tensor_get(t, i);
        (void)last;
    }
    if (!ok) fuzz_said(&err);
    session_free(s);
    graph_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[MAX_CALL + 1], *at = text;
    Tensor in[MAX_INPUTS];
    int n = 0;
    if (size > MAX_CALL) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    while (n < MAX_INPUTS && *at && *at != ':' && read_type(&at, &in[n])) n++;
    for (int i = 0; i < n; i++) fill(&in[i], (uint32_t)(size + 17 * (size_t)i));
    if (*at == ':')
        for (int symbolic = 0; symbolic < 2; symbolic++) run(at + 1 + (at[1] == ' '), in, n, symbolic);
    for (int i = 0; i < n; i++) free(in[i].data);
    return 0;
}

const FuzzTarget fuzz_target = {
    .name = "op", .tokens = tokens, .seeds = seeds, .ending = ".cases", .expand = expand, .memory_ratio = 1024};
