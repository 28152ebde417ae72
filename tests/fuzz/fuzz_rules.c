/* Rule files: what is compiled is applied to small graphs, which stay valid whatever the rules say. */
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "rewrite/families/all.h"

static const char *const tokens[] = {"(rule a ",
                                     "(derive b ",
                                     "(phase fuse)",
                                     "?x",
                                     "?y",
                                     "_",
                                     "...",
                                     "(= ?x ",
                                     "(any ",
                                     "(opt ",
                                     "(shared ",
                                     "(out 1 ",
                                     "(fork ",
                                     "none",
                                     "true",
                                     "f32",
                                     "-1",
                                     "0",
                                     "0.5",
                                     "inf",
                                     "-inf",
                                     "1e308",
                                     "[0 1]",
                                     "[]",
                                     "[1 0]",
                                     "(@scores ?x ?y)",
                                     "(@softmax ?x ?y)",
                                     "(@attention ?x ?y)",
                                     "(@permute ?x ?y)",
                                     "(or ?x ",
                                     "(+ ?x 1)",
                                     "(sqrt 2)",
                                     "(scores ...)",
                                     "(softmax ?x ?d)",
                                     "(matmul ?x ?y)",
                                     "(reshape ?x ?d)",
                                     "(permute ?x ?d)",
                                     "(is ?x 0)",
                                     "(same_shape ?x ?y)",
                                     ":dim",
                                     ":alpha 2",
                                     "\"tanh\"",
                                     ")",
                                     "(",
                                     ";",
                                     NULL};

static const char *const graphs[] = {
    "symbol s0 in [1, 8]\nsymbol s1 in [1, 8]\ninput %q: f32[s0, 2, s1, 4]\ninput %k: f32[s0, 2, s1, 4]\n"
    "input %m: bool[s1, s1]\n"
    "%kt: f32[s0, 2, 4, s1] = aten.permute.default(%k, [0, 1, 3, 2])\n"
    "%s: f32[s0, 2, s1, s1] = aten.matmul.default(%q, %kt)\n"
    "%t: f32[s0, 2, s1, s1] = aten.mul.Tensor(%s, 0.5)\n"
    "%w: f32[s0, 2, s1, s1] = aten.where.self(%m, %t, -inf)\n"
    "%a: f32[s0, 2, s1, 1] = aten.amax.default(%w, [-1], true)\n"
    "%d: f32[s0, 2, s1, s1] = aten.sub.Tensor(%w, %a)\n"
    "%e: f32[s0, 2, s1, s1] = aten.exp.default(%d)\n"
    "%z: f32[s0, 2, s1, 1] = aten.sum.dim_IntList(%e, [-1], true)\n"
    "%p: f32[s0, 2, s1, s1] = aten.div.Tensor(%e, %z)\n"
    "%o: f32[s0, 2, s1, 4] = aten.matmul.default(%p, %k)\n"
    "%r: f32[s0, 2*s1, 4] = aten.reshape.default(%o, [s0, (2*s1), 4])\n"
    "output o = %r\n",
    "symbol s0 in [1, 8]\ninput %x: f32[s0, 4]\ninput %y: f32[4]\ninput %n: i64[s0]\n"
    "%a: f32[s0, 4] = aten.neg.default(%x)\n"
    "%b: f32[s0, 4] = aten.add.Tensor(%a, %y, alpha=2)\n"
    "%v: f32[s0, 2], %i: i64[s0, 2] = aten.topk.default(%b, 2)\n"
    "%c: f32[s0, 8] = aten.cat.default([%a, %b], 1)\n"
    "%d: f64[s0, 8] = aten._to_copy.default(%c, dtype=f64)\n"
    "%g: f64[s0, 8] = aten.gelu.default(%d, approximate=\"tanh\")\n"
    "%h: f64[8, s0] = aten.permute.default(%g, [1, 0])\n"
    "%l: f64[8, s0] = aten.softmax.int(%h, 0)\n"
    "%f: f32[s0] = aten.full.default([s0], 0.5, dtype=f32)\n"
    "%u: i64[s0] = aten.mul.Tensor(%n, s0)\n"
    "%s: f32[s0, 2] = aten.slice.Tensor(%v, 1, 0, 2)\n"
    "output l = %l\noutput f = %f\noutput u = %u\noutput i = %i\noutput s = %s\n",
};

/* The built-in rules one by one, and past findings. */
static void seeds(FuzzAdd *add)
{
    static const char *const found[] = {
        "(derive grow (add ?x ?y) (add (add ?x (neg ?y)) (add (abs ?x) ?y)))",
        "(rule second (out 1 (topk ?x 2 ...)) (argmax ?x))",
        "(derive same (mul ?x _) ?x)(rule deep (exp (neg ?x)) ?x)",
        "(rule bare (matmul ?q ?k) (scores ?q (permute ?k [1 0])))",
        "(rule cast (exp ?x) (@scores_where ?x ?x ?x ?x))",
        "(rule pair (fork (sub ?x ?y) (exp ?z)) (fork (neg ?x) (abs ?z)))",
    };
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) add(found[i], strlen(found[i]));
    for (const Family *const *f = families_all; *f; f++)
        for (int i = 0; (*f)->rules && (*f)->rules[i]; i++)
            for (const char *s = (*f)->rules[i], *end; *s; s = end) {
                for (end = s + 1; *end && !(end[-1] == '\n' && *end == '('); end++) {
                }
                if (*s == '(') add(s, (size_t)(end - s));
            }
}

/* Length of the list or atom at `at`; 0 when none begins there. */
static size_t form_at(const uint8_t *data, size_t size, size_t at)
{
    size_t n = at, depth = 0;
    if (strchr(" \n)];", data[at]) || !data[at]) return 0;
    do {
        depth += data[n] == '(' || data[n] == '[';
        depth -= depth && (data[n] == ')' || data[n] == ']');
        n++;
    } while (n < size && (depth || !strchr(" \n()[];", data[n])) && data[n]);
    return n - at;
}

static size_t pick_form(const uint8_t *data, size_t size, size_t *at)
{
    for (int i = 0; i < 100 && size; i++) {
        *at = fuzz_random(size);
        if (*at && !strchr(" \n([", data[*at - 1])) continue;
        size_t n = form_at(data, size, *at);
        if (n) return n;
    }
    return 0;
}

/* A list or atom in the place of another, from this input or some other; sometimes bytes. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size_t other_size, from, to;
    (void)seed;
    const uint8_t *other = driver_other(&other_size);
    if (fuzz_random(3) == 0) {
        other = data;
        other_size = size;
    }
    size_t n = pick_form(other, other_size, &from), m = pick_form(data, size, &to);
    if (fuzz_random(8) == 0 || !n || !m || size - m + n > max) return LLVMFuzzerMutate(data, size, max);
    uint8_t *copy = malloc(n);
    if (!copy) return size;
    memcpy(copy, other + from, n);
    memmove(data + to + n, data + to + m, size - to - m);
    memcpy(data + to, copy, n);
    free(copy);
    return size - m + n;
}

static void apply(const RuleSet *rules, const char *text)
{
    Err err = {0};
    RewriteLog log = {0};
    RewriteOptions o = {.rules = rules};
    Graph *g = graph_parse(text, NULL, NULL, &err);
    fuzz_check(g != NULL, err.msg);
    graph_drop_detach(g);
    if (!rewrite_graph(g, &o, &log, &err)) {
        fuzz_said(&err);
        fuzz_check(err.code == E_LIMIT, err.msg); /* nothing else can go wrong without proofs */
    }
    Buf b = {0};
    graph_print(g, &b);
    Graph *again = b.failed ? NULL : graph_parse(b.data, NULL, NULL, &err);
    fuzz_check(again != NULL, "the graph that rules made reads back");
    buf_free(&b);
    graph_free(again);
    rewrite_log_free(&log);
    graph_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Err err = {0};
    char *text = malloc(size + 1);
    for (int builtin = 0; builtin < 2 && text; builtin++) { /* alone, then after the built-in ones */
        RuleSet *rules = rules_create(families_all);
        memcpy(text, data, size);
        text[size] = 0;
        if (rules && builtin) fuzz_check(rules_builtin(rules, &err), err.msg);
        bool ok = rules && rules_parse(rules, text, &err);
        if (!ok) fuzz_said(&err);
        for (size_t i = 0; ok && i < sizeof graphs / sizeof *graphs; i++) apply(rules, graphs[i]);
        rules_free(rules);
        if (!ok) break;
    }
    free(text);
    return 0;
}

const FuzzTarget fuzz_target = {.name = "rules", .tokens = tokens, .seeds = seeds, .memory_ratio = 4096};
