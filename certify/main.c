/* qkv-certify SOURCE RESULT [CERTIFICATE]: replays a certificate on two files, .pt2 or ONNX, by default the one inside
 * of RESULT. It links the reader of graphs, and nothing that rewrites them.
 *
 *     qkv-certify model.pt2 fused.pt2 cert.json      exit 0: equal over the reals for all sizes in range; 1: refused
 */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "certify/certify.h"
#include "ir/bodies.h"
#include "onnx/read/read.h"
#include "pt2/read/read.h"

static int say(const char *file, const Err *e)
{
    fprintf(stderr, "qkv-certify: error: %s%s%s\n", file, *file ? ": " : "", e->msg);
    return err_exit_code(e->code);
}

static int print_sizes(const Graph *source)
{
    int64_t *all = checker_least(source);
    Err e = {0};
    if (!all) return oom(&e), say("", &e);
    for (int i = 0; i < expr_symbol_count(source->ex); i++) {
        const Symbol *s = expr_symbol(source->ex, i);
        if (s->source == SYM_GONE) continue;
        long long least = all[i];
        if (s->hi == INT64_MAX) printf("size %s: %lld or more\n", s->name, least);
        else printf("size %s: %lld to %lld\n", s->name, least, (long long)s->hi);
    }
    mem_free(all);
    return 0;
}

/* cert: is freed; NULL: unread says why. */
static int replay(const Source *a, const Source *b, const char *name, json_t *cert, const Err *unread)
{
    Err e = {0};
    Checker c;
    if (!cert) return say("", unread);
    bool holds = checker_open(&c, a->graph, b->graph, a->opset || b->opset, &e) && checker_replay(&c, cert, &e);
    int code = holds ? 0 : say(name, &e);
    if (!code) code = print_sizes(a->graph);
    if (!code) {
        for (int i = 0; checker_assumes(&c, i); i++) printf("assuming: %s\n", checker_assumes(&c, i));
        printf("%d claims hold, all other nodes are the same: equal over the reals for all sizes in range\n",
               c.nclaims);
    }
    checker_close(&c);
    json_free(cert);
    return code;
}

/* The certificate is a file, or inside of the result. */
static int find_and_replay(const Source *a, const Source *b, const char *path)
{
    Err e = {0};
    MappedFile f;
    Extras x = {0};
    int code = -1;
    if (path) {
        if (!file_map(&f, path, &e)) return say(path, &e);
        code = replay(a, b, path, json_read_file(f.data, f.size, SIZE_MAX, path, &e), &e);
        file_unmap(&f);
        return code;
    }
    if (!extras_open(&x, b, &e)) code = say("", &e);
    for (int i = 0; code < 0 && i < x.n; i++)
        if (!strcmp(x.file[i].name, CERTIFICATE_NAME))
            code = replay(a, b, CERTIFICATE_NAME, json_read(x.file[i].bytes, x.file[i].size, x.file[i].name, &e), &e);
    if (code < 0) {
        fail(&e, E_FORMAT, "the second file holds no '" CERTIFICATE_NAME "': name the certificate");
        code = say("", &e);
    }
    extras_close(&x);
    return code;
}

static Source *open_file(const char *path, Err *err)
{
    MappedFile f;
    if (!file_map(&f, path, err)) return NULL;
    bool onnx = onnx_looks_like(f.data, f.size);
    file_unmap(&f);
    Source *s = onnx ? onnx_import(path, NULL, err) : pt2_open(path, DT_NONE, err);
    if (!s || !graph_asks_derivatives(s->graph)) return s;
    source_close(s);
    fail(err, E_UNSUPPORTED, "%s: asks for a forward derivative: 'qkv convert' writes it out", path);
    return NULL;
}

int main(int argc, char **argv)
{
    Err e = {0};
    if (argc < 3 || argc > 4) {
        bool asked = argc > 1 && !strcmp(argv[1], "--help");
        fprintf(asked ? stdout : stderr, "usage: qkv-certify SOURCE RESULT [CERTIFICATE.json]\n");
        return asked ? 0 : 2;
    }
    Source *a = open_file(argv[1], &e);
    if (!a) return say("", &e);
    Source *b = open_file(argv[2], &e);
    int code = b ? find_and_replay(a, b, argv[3]) : say("", &e);
    source_close(b);
    source_close(a);
    return code;
}
