/* qkv-certify SOURCE RESULT CERTIFICATE: replays a certificate on two .pt2 files. It links the reader of graphs, and
 * nothing that rewrites them.
 *
 *     qkv-certify model.pt2 fused.pt2 cert.json      exit 0: equal over the reals for all sizes in range; 1: refused
 */
#include <stdio.h>
#include <string.h>
#include "certify/certify.h"
#include "pt2/read/read.h"

static int say(const char *file, const Err *e)
{
    fprintf(stderr, "qkv-certify: error: %s%s%s\n", file, *file ? ": " : "", e->msg);
    return err_exit_code(e->code);
}

/* Laws that hold for numbers that are rounded or masked only as docs/PROOF.md says. */
static void print_assumed(unsigned used)
{
    static const Law assumed[] = {LAW_FILL, LAW_ROOT, LAW_FRACTION, LAW_MASK};
    for (size_t i = 0; i < sizeof assumed / sizeof *assumed; i++)
        if (used & 1u << assumed[i]) printf("assuming: %s\n", law_says(assumed[i]));
}

static void print_sizes(const ExprPool *p)
{
    for (int i = 0; i < expr_symbol_count(p); i++) {
        const Symbol *s = expr_symbol(p, i);
        if (s->source == SYM_GONE) continue;
        if (s->hi == INT64_MAX) printf("size %s: %lld or more\n", s->name, (long long)s->lo);
        else printf("size %s: %lld to %lld\n", s->name, (long long)s->lo, (long long)s->hi);
    }
}

static int replay(const Graph *source, const Graph *result, const char *path)
{
    Err e = {0};
    MappedFile f;
    if (!file_map(&f, path, &e)) return say(path, &e);
    json_t *cert = json_read(f.data, f.size, path, &e);
    Checker c;
    int code = 0;
    if (!cert) code = say("", &e);
    else if (!checker_open(&c, source, result, &e) || !checker_replay(&c, cert, &e)) code = say(path, &e);
    if (cert && !code) {
        print_sizes(source->ex);
        print_assumed(c.laws);
        printf("%d claims hold, all other nodes are the same: equal over the reals for all sizes in range\n",
               c.nclaims);
    }
    if (cert) checker_close(&c);
    json_free(cert);
    file_unmap(&f);
    return code;
}

int main(int argc, char **argv)
{
    Err e = {0};
    if (argc != 4 || !strcmp(argv[1], "--help")) {
        bool asked = argc > 1 && !strcmp(argv[1], "--help");
        fprintf(asked ? stdout : stderr, "usage: qkv-certify SOURCE.pt2 RESULT.pt2 CERTIFICATE.json\n");
        return asked ? 0 : 2;
    }
    Source *a = pt2_open(argv[1], DT_NONE, &e);
    if (!a) return say("", &e);
    Source *b = pt2_open(argv[2], DT_NONE, &e);
    int code = b ? replay(a->graph, b->graph, argv[3]) : say("", &e);
    source_close(b);
    source_close(a);
    return code;
}
