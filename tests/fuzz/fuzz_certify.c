/* Certificates: the first byte chooses a pair of graphs, a small model and what it was rewritten to, as it is or
 * spoilt; the rest is the certificate. Whatever it says, the checker ends with a verdict; no certificate holds for a
 * spoilt pair.
 *
 *     fuzz_certify tests/models/small
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "certify/certify.h"
#include "fuzz.h"
#include "program/certify.h"
#include "pt2/read/read.h"
#include "qkv_tools.h"

enum { RIGHT, WEIGHT, OPERANDS, OUTPUT, VARIANTS, MOST_PAIRS = 2, MOST_FILE = 1 << 20 };

typedef struct Pair {
    Source *source, *result[VARIANTS];
} Pair;
static Pair pairs[MOST_PAIRS];
static size_t npairs;

static const char *const tokens[] = {"claims",
                                     "source",
                                     "result",
                                     "rules",
                                     "from",
                                     "laws",
                                     "left",
                                     "right",
                                     "weights",
                                     "cut",
                                     "whole",
                                     "single",
                                     "at0",
                                     "at1",
                                     "16*at2 + at3",
                                     "at0 // 4",
                                     "at0 % 4",
                                     "view_3",
                                     "linear",
                                     "permute",
                                     "reshape",
                                     "unflatten",
                                     "transpose",
                                     "null",
                                     "[]",
                                     "qkv certificate 2",
                                     "9223372036854775807",
                                     "((((((((",
                                     NULL};

static size_t read_whole(const char *path, uint8_t *to)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(to, 1, MOST_FILE, f) : 0;
    if (f) fclose(f);
    return n;
}

static Source *opened(const uint8_t *bytes, size_t n)
{
    Err e = {0};
    fuzz_set_file(bytes, n);
    Source *s = pt2_open(FUZZ_PATH, DT_NONE, &e);
    fuzz_check(s != NULL, "the model of a pair opens");
    return s;
}

/* Other values, other operands, another output: the function is not the source's. */
static void spoil(Graph *g, int how)
{
    if (how == WEIGHT)
        for (int i = 0; i < g->nweight; i++)
            if (g->weight[i]->dtype == DT_F32) ((float *)g->weight[i]->data->data)[0] += 1;
    for (Node *n = g->first; how == OPERANDS && n; n = n->next)
        if (n->op->id == OP_scaled_dot_product_attention) {
            Value *key = n->arg[1].v;
            n->arg[1].v = n->arg[2].v;
            n->arg[2].v = key;
        }
    if (how == OUTPUT) g->output[0].value = g->last->arg[0].v;
}

/* The certificate, as every pair's input; what is done here maps no file but FUZZ_PATH. */
static void expand(const char *path, FuzzAdd *add)
{
    static uint8_t bytes[MOST_FILE];
    if (npairs == MOST_PAIRS || (!strstr(path, "/mha_self.pt2") && !strstr(path, "/encoder_prenorm_gelu.pt2"))) return;
    char temporary[] = "/tmp/qkv-fuzz-XXXXXX.pt2";
    int fd = mkstemps(temporary, 4);
    qkv_error e = {0};
    size_t n = read_whole(path, bytes);
    Pair *p = &pairs[npairs++];
    p->source = opened(bytes, n);
    qkv_model *source = qkv_model_load(FUZZ_PATH, NULL, &e);
    qkv_model *result = source ? qkv_model_rewrite(source, NULL, NULL, &e) : NULL;
    fuzz_check(fd >= 0 && result && qkv_model_save(result, temporary, &e) == QKV_OK, "the model is rewritten");
    n = read_whole(temporary, bytes);
    close(fd);
    unlink(temporary);
    qkv_model_free(result);
    qkv_model_free(source);
    for (int i = 0; i < VARIANTS; i++) p->result[i] = opened(bytes, n);
    Buf input = {0};
    Certified found;
    Err err = {0};
    buf_puts(&input, " ");
    fuzz_check(certify_graphs(p->source->graph, p->result[RIGHT]->graph, false, NULL, 0, &found, &input, &err) &&
                   found.whole && found.claims,
               "the pair is certified");
    for (int i = 0; i < VARIANTS; i++) {
        spoil(p->result[i]->graph, i);
        input.data[0] = (char)(VARIANTS * (int)(npairs - 1) + i);
        add(input.data, input.len);
    }
    buf_free(&input);
}

static void seeds(FuzzAdd *add)
{
    static const char empty[] =
        "\0{\"format\": \"qkv certificate 2\", \"single\": false, \"whole\": true, \"why\": null, "
        "\"weights\": [], \"claims\": []}";
    add(empty, sizeof empty - 1);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    (void)seed;
    if (size < 2) return LLVMFuzzerMutate(data, size, max);
    if (!fuzz_random(4)) data[0] = (uint8_t)fuzz_random(VARIANTS * MOST_PAIRS);
    return 1 + json_mutate(data + 1, size - 1, max - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Err e = {0};
    Checker c;
    if (!size || !npairs) return 0;
    int variant = data[0] % VARIANTS;
    const Pair *p = &pairs[data[0] / VARIANTS % npairs];
    json_t *certificate = json_read(data + 1, size - 1, "certificate", &e);
    if (!certificate) {
        fuzz_said(&e);
        return 0;
    }
    bool holds = checker_open(&c, p->source->graph, p->result[variant]->graph, false, &e) &&
                 checker_replay(&c, certificate, &e);
    if (!holds) fuzz_said(&e);
    fuzz_check(!holds || variant == RIGHT, "no certificate holds for another function");
    checker_close(&c);
    json_free(certificate);
    return 0;
}

const FuzzTarget fuzz_target = {
    .name = "certify", .tokens = tokens, .seeds = seeds, .ending = ".pt2", .expand = expand, .memory_ratio = 64};
