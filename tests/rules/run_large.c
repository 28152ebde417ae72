/* Large graphs: hundreds of transformer layers with norm, attention and activation spelled out, and windows of a
 * picture whose views can be written in very many ways, rewritten by the built-in rules. TAP.
 *
 *     run_large              330 layers, 10,000 nodes; prints the time
 *     run_large 1000 3       so many layers, so many times
 */
#include <stdlib.h>
#include <time.h>
#include "base/buf.h"
#include "rewrite/families/all.h"
#include "tap.h"

enum { LAYERS = 330, WINDOWED = 12, WIDTH = 16 };

/* %x# becomes %x@; # is the layer, @ the next one. */
static const char layer[] = "%mean#: f32[s0, s1, 1] = aten.mean.dim(%x#, [-1], true)\n"
                            "%d#: f32[s0, s1, 16] = aten.sub.Tensor(%x#, %mean#)\n"
                            "%sq#: f32[s0, s1, 16] = aten.mul.Tensor(%d#, %d#)\n"
                            "%var#: f32[s0, s1, 1] = aten.mean.dim(%sq#, [-1], true)\n"
                            "%eps#: f32[s0, s1, 1] = aten.add.Tensor(%var#, 1e-05)\n"
                            "%r#: f32[s0, s1, 1] = aten.rsqrt.default(%eps#)\n"
                            "%n#: f32[s0, s1, 16] = aten.mul.Tensor(%d#, %r#)\n"
                            "%q#: f32[s0, s1, 16] = aten.linear.default(%n#, %w, %b)\n"
                            "%qs#: f32[s0, s1, 2, 8] = aten.reshape.default(%q#, [s0, s1, 2, 8])\n"
                            "%qh#: f32[s0, 2, s1, 8] = aten.permute.default(%qs#, [0, 2, 1, 3])\n"
                            "%k#: f32[s0, s1, 16] = aten.linear.default(%n#, %w2, %b)\n"
                            "%ks#: f32[s0, s1, 2, 8] = aten.reshape.default(%k#, [s0, s1, 2, 8])\n"
                            "%kh#: f32[s0, 2, 8, s1] = aten.permute.default(%ks#, [0, 2, 3, 1])\n"
                            "%v#: f32[s0, s1, 16] = aten.linear.default(%n#, %w3, %b)\n"
                            "%vs#: f32[s0, s1, 2, 8] = aten.reshape.default(%v#, [s0, s1, 2, 8])\n"
                            "%vh#: f32[s0, 2, s1, 8] = aten.permute.default(%vs#, [0, 2, 1, 3])\n"
                            "%s#: f32[s0, 2, s1, s1] = aten.matmul.default(%qh#, %kh#)\n"
                            "%t#: f32[s0, 2, s1, s1] = aten.div.Tensor(%s#, 2.8284271247461903)\n"
                            "%u#: f32[s0, 2, s1, s1] = aten.where.self(%mask, -inf, %t#)\n"
                            "%p#: f32[s0, 2, s1, s1] = aten.softmax.int(%u#, -1)\n"
                            "%o#: f32[s0, 2, s1, 8] = aten.matmul.default(%p#, %vh#)\n"
                            "%oh#: f32[s0, s1, 2, 8] = aten.permute.default(%o#, [0, 2, 1, 3])\n"
                            "%os#: f32[s0, s1, 16] = aten.reshape.default(%oh#, [s0, s1, 16])\n"
                            "%y#: f32[s0, s1, 16] = aten.linear.default(%os#, %w, %b)\n"
                            "%z#: f32[s0, s1, 16] = aten.add.Tensor(%x#, %y#)\n"
                            "%f#: f32[s0, s1, 16] = aten.linear.default(%z#, %w2, %b)\n"
                            "%g#: f32[s0, s1, 16] = aten.sigmoid.default(%f#)\n"
                            "%h#: f32[s0, s1, 16] = aten.mul.Tensor(%f#, %g#)\n"
                            "%i#: f32[s0, s1, 16] = aten.linear.default(%h#, %w3, %b)\n"
                            "%x@: f32[s0, s1, 16] = aten.add.Tensor(%z#, %i#)\n";

/* A batch of one, two windows by two, products with weights written out: Swin's blocks as torch.onnx writes them. */
static const char windowed[] = "%in#: f32[1, 14, 14, 16] = aten.reshape.default(%x#, [1, 14, 14, 16])\n"
                               "%cut#: f32[1, 2, 7, 2, 7, 16] = aten.reshape.default(%in#, [1, 2, 7, 2, 7, 16])\n"
                               "%turn#: f32[1, 2, 2, 7, 7, 16] = aten.permute.default(%cut#, [0, 1, 3, 2, 4, 5])\n"
                               "%n#: f32[4, 49, 16] = aten.reshape.default(%turn#, [4, 49, 16])\n"
                               "%qm#: f32[4, 49, 16] = aten.matmul.default(%n#, %w)\n"
                               "%q#: f32[4, 49, 16] = aten.add.Tensor(%qm#, %b)\n"
                               "%qs#: f32[4, 49, 2, 8] = aten.reshape.default(%q#, [4, 49, 2, 8])\n"
                               "%qh#: f32[4, 2, 49, 8] = aten.permute.default(%qs#, [0, 2, 1, 3])\n"
                               "%km#: f32[4, 49, 16] = aten.matmul.default(%n#, %w2)\n"
                               "%k#: f32[4, 49, 16] = aten.add.Tensor(%km#, %b)\n"
                               "%ks#: f32[4, 49, 2, 8] = aten.reshape.default(%k#, [4, 49, 2, 8])\n"
                               "%kh#: f32[4, 2, 8, 49] = aten.permute.default(%ks#, [0, 2, 3, 1])\n"
                               "%vm#: f32[4, 49, 16] = aten.matmul.default(%n#, %w3)\n"
                               "%v#: f32[4, 49, 16] = aten.add.Tensor(%vm#, %b)\n"
                               "%vs#: f32[4, 49, 2, 8] = aten.reshape.default(%v#, [4, 49, 2, 8])\n"
                               "%vh#: f32[4, 2, 49, 8] = aten.permute.default(%vs#, [0, 2, 1, 3])\n"
                               "%s#: f32[4, 2, 49, 49] = aten.matmul.default(%qh#, %kh#)\n"
                               "%p#: f32[4, 2, 49, 49] = aten.softmax.int(%s#, -1)\n"
                               "%o#: f32[4, 2, 49, 8] = aten.matmul.default(%p#, %vh#)\n"
                               "%oh#: f32[4, 49, 2, 8] = aten.permute.default(%o#, [0, 2, 1, 3])\n"
                               "%os#: f32[4, 49, 16] = aten.reshape.default(%oh#, [4, 49, 16])\n"
                               "%ym#: f32[4, 49, 16] = aten.matmul.default(%os#, %w)\n"
                               "%y#: f32[4, 49, 16] = aten.add.Tensor(%ym#, %b)\n"
                               "%yw#: f32[1, 2, 2, 7, 7, 16] = aten.reshape.default(%y#, [1, 2, 2, 7, 7, 16])\n"
                               "%yt#: f32[1, 2, 7, 2, 7, 16] = aten.permute.default(%yw#, [0, 1, 3, 2, 4, 5])\n"
                               "%yp#: f32[1, 14, 14, 16] = aten.reshape.default(%yt#, [1, 14, 14, 16])\n"
                               "%yr#: f32[1, 196, 16] = aten.reshape.default(%yp#, [1, 196, 16])\n"
                               "%z#: f32[1, 196, 16] = aten.add.Tensor(%x#, %yr#)\n"
                               "%fm#: f32[1, 196, 16] = aten.matmul.default(%z#, %w2)\n"
                               "%f#: f32[1, 196, 16] = aten.add.Tensor(%fm#, %b)\n"
                               "%im#: f32[1, 196, 16] = aten.matmul.default(%f#, %w3)\n"
                               "%i#: f32[1, 196, 16] = aten.add.Tensor(%im#, %b)\n"
                               "%x@: f32[1, 196, 16] = aten.add.Tensor(%i#, %z#)\n";

static void put(Buf *b, const char *layer_text, int i)
{
    for (const char *s = layer_text; *s; s++) {
        if (*s == '#' || *s == '@') buf_printf(b, "%d", i + (*s == '@'));
        else buf_add(b, s, 1);
    }
}

static const Tensor *find_weight(void *user, const char *fqn)
{
    Tensor *t = user;
    return &t[fqn[0] == 'b'];
}

static Graph *make(const char *input, const char *layer_text, int layers, Tensor *weights, Err *err)
{
    Buf b = {0};
    buf_puts(&b, input);
    buf_puts(&b, "weight %w: f32[16, 16] = parameter \"w\"\nweight %w2: f32[16, 16] = parameter \"w2\"\n"
                 "weight %w3: f32[16, 16] = parameter \"w3\"\n"
                 "weight %b: f32[16] = parameter \"b\"\n");
    for (int i = 0; i < layers; i++) put(&b, layer_text, i);
    buf_printf(&b, "output y = %%x%d\n", layers);
    Graph *g = b.failed ? NULL : graph_parse(b.data, find_weight, weights, err);
    buf_free(&b);
    return g;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int count(const Graph *g, OpId id)
{
    int n = 0;
    for (const Node *p = g->first; p; p = p->next) n += p->op->id == id;
    return n;
}

int main(int argc, char **argv)
{
    int layers = argc > 1 ? atoi(argv[1]) : LAYERS, times = argc > 2 ? atoi(argv[2]) : 1;
    Err err = {0};
    float numbers[WIDTH * WIDTH] = {0};
    Tensor weights[2] = {tensor_of(DT_F32, 2, (int64_t[]){WIDTH, WIDTH}, numbers),
                         tensor_of(DT_F32, 1, (int64_t[]){WIDTH}, numbers)};
    RuleSet *rules = rules_create(families_all);
    if (!rules || !rules_builtin(rules, &err)) {
        printf("Bail out! %s\n", err.msg);
        return 1;
    }
    for (int i = 0; i < times; i++) {
        Graph *g = make(
            "symbol s0 in [1, 64]\nsymbol s1 in [1, 64]\ninput %x0: f32[s0, s1, 16]\ninput %mask: bool[s1, s1]\n",
            layer, layers, weights, &err);
        RewriteOptions o = {.rules = rules};
        RewriteLog log = {0};
        if (!tap_ok(g != NULL, "a graph of %d layers %s", layers, err.msg)) break;
        double start = now_ms();
        bool ok = rewrite_graph(g, &o, &log, &err);
        double ms = now_ms() - start;
        tap_ok(ok, "%d nodes rewritten to %d by %d firings in %.0f ms %s", log.nodes_before, log.nodes_after,
               log.nfirings, ms, err.msg);
        tap_ok(log.fused == layers && log.nleft == 0, "%d attentions of %d", log.fused, layers);
        tap_ok(count(g, OP_layer_norm) == layers && count(g, OP_silu) == layers, "%d norms and %d activations of %d",
               count(g, OP_layer_norm), count(g, OP_silu), layers);
        rewrite_log_free(&log);
        graph_free(g);
    }
    Graph *g = make("input %x0: f32[1, 196, 16]\n", windowed, WINDOWED, weights, &err);
    RewriteOptions o = {.rules = rules};
    RewriteLog log = {0};
    if (tap_ok(g != NULL, "a graph of %d windowed layers %s", WINDOWED, err.msg)) {
        tap_ok(rewrite_graph(g, &o, &log, &err), "its views are not written in every way %s", err.msg);
        tap_ok(log.fused == WINDOWED && log.nleft == 0, "%d attentions of %d", log.fused, WINDOWED);
        rewrite_log_free(&log);
        graph_free(g);
    }
    rules_free(rules);
    return tap_done();
}
