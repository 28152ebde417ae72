/* Shape inference: dtypes and symbolic sizes of results, what is required of the sizes, what is refused;
 * type promotion as PyTorch's. */
#include "unit_graph.h"
#include "ir/text.h"
#include "shape/shape.h"
#include "facts/strides.h"

static const char *const inputs = "symbol s0 in [1, inf]\n"
                                  "symbol s1 in [1, inf]\n"
                                  "symbol h in [8, 64]\n"
                                  "symbol e in [0, 9]\n"
                                  "input %x: f32[s0, 3]\n"
                                  "input %first: f32[Min(e, 1), 3]\n"
                                  "input %y: f32[s1, 3]\n"
                                  "input %z: f32[2, 3]\n"
                                  "input %m: f32[3, 4]\n"
                                  "input %i: i64[5]\n"
                                  "input %u: u8[2, 3]\n"
                                  "input %b: bool[s0, 1]\n"
                                  "input %t: f64[]\n"
                                  "input %n: i64[]\n"
                                  "input %half: f16[2, 3]\n"
                                  "input %q: f32[s0, 8, s1, 4]\n"
                                  "input %k: f32[s0, 2, 7, 4]\n"
                                  "input %one: f32[1, 1, 5, 4]\n"
                                  "input %im: f32[s0, 4, h, 2*h]\n"
                                  "weight %w: f32[6, 4, 3, 3] = parameter \"f32[6, 4, 3, 3]\"\n"
                                  "weight %wt: f32[4, 6, 3, 3] = parameter \"f32[4, 6, 3, 3]\"\n"
                                  "weight %w3: f32[3] = parameter \"f32[3]\"\n"
                                  "weight %mask: f32[2, 1, 5, 5] = buffer \"f32[2, 1, 5, 5]\"\n";

/* "f32[s0, 3]; require s0 == 2" of one call; or NULL and err. */
static char *inferred(const char *call, Err *err)
{
    Graph *g = unit_graph(inputs);
    Buf out = {0};
    const Op *op;
    Arg *args;
    if (!text_parse_call(g, call, &op, &args, err)) STOP("%s: %s", call, err->msg);
    Node *n = graph_add(g, op->id, op->schema->nparams, args, "r", err);
    for (int k = 0; n && k < n->nout; k++) {
        buf_printf(&out, "%s%s[", k ? "; " : "", dtype_name(n->out[k]->dtype));
        for (int d = 0; d < n->out[k]->rank; d++) {
            if (d) buf_puts(&out, ", ");
            ex_print(g->ex, n->out[k]->dim[d], &out);
        }
        buf_puts(&out, "]");
    }
    for (int i = 0; n && i < g->nrequire; i++) {
        buf_puts(&out, "; require ");
        ex_print(g->ex, g->require[i].cond, &out);
    }
    graph_free(g);
    return n ? out.data : NULL;
}

static void test_results(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"relu.default(%x)", "f32[s0, 3]"},
        {"add.Tensor(%x, %x)", "f32[s0, 3]"},
        {"add.Tensor(%x, %y)", "f32[s0, 3]; require s0 == s1"},
        {"add.Tensor(%x, %z)", "f32[2, 3]; require s0 == 2"},
        {"add.Tensor(%first, %x)", "f32[s0, 3]; require Min(e, 1) == 1"},
        {"add.Tensor(%z, %first)", "f32[2, 3]; require Min(e, 1) == 1"},
        {"add.Tensor(%first, %w3)", "f32[Min(e, 1), 3]"},
        {"expand.default(%first, [s0, 3])", "f32[s0, 3]; require Min(e, 1) == 1"},
        {"add.Tensor(%z, %x)", "f32[2, 3]; require 2 == s0"},
        {"add.Tensor(%x, %w3)", "f32[s0, 3]"},
        {"add.Tensor(%b, %x)", "f32[s0, 3]"},
        {"add.Tensor(%x, %b)", "f32[s0, 3]"},
        {"add.Tensor(%x, %t)", "f32[s0, 3]"},
        {"add.Tensor(%n, %t)", "f64[]"},
        {"add.Tensor(%u, 2)", "u8[2, 3]"},
        {"add.Tensor(%u, 2.5)", "f32[2, 3]"},
        {"add.Tensor(%half, 2.5)", "f16[2, 3]"},
        {"lt.Tensor(%u, 2.5)", "bool[2, 3]"},
        {"where.self(%b, %x, 0)", "f32[s0, 3]"},
        {"_to_copy.default(%x, dtype=i64)", "i64[s0, 3]"},
        {"full.default([s0, (s1 + 1)], 0, dtype=bool)", "bool[s0, s1 + 1]"},
        {"arange.start_step(0, 10, 3, dtype=i64)", "i64[4]"},
        {"arange.start_step(0, s0, dtype=i64)", "i64[s0]"},
        {"arange.start_step(10, 0, -3, dtype=i64)", "i64[4]"},
        {"arange.start_step(3, 1, 1, dtype=i64)", "i64[0]"},
        {"sum.dim_IntList(%x, [0])", "f32[3]"},
        {"sum.dim_IntList(%x, [-1], true)", "f32[s0, 1]"},
        {"sum.dim_IntList(%u, none)", "i64[]"},
        {"mean.dim(%q, [1, -1])", "f32[s0, s1]"},
        {"amax.default(%q, [])", "f32[]"},
        {"argmax.default(%q, 1)", "i64[s0, s1, 4]"},
        {"argmax.default(%q)", "i64[]"},
        {"max.dim(%x, 1, true)", "f32[s0, 1]; i64[s0, 1]"},
        {"any.dim(%u, 0)", "u8[3]"},
        {"any.dim(%x, 0)", "bool[3]"},
        {"cumsum.default(%u, 0)", "i64[2, 3]"},
        {"softmax.int(%q, -1)", "f32[s0, 8, s1, 4]"},
        {"topk.default(%x, 2)", "f32[s0, 2]; i64[s0, 2]"},
        {"topk.default(%x, 2, 0)", "f32[2, 3]; i64[2, 3]; require 2 <= s0"},
        {"layer_norm.default(%x, [3], %w3)", "f32[s0, 3]"},
        {"permute.default(%q, [0, 2, -3, 3])", "f32[s0, s1, 8, 4]"},
        {"reshape.default(%q, [s0, (32*s1)])", "f32[s0, 32*s1]"},
        {"reshape.default(%x, [(3*s0)])", "f32[3*s0]"},
        {"reshape.default(%x, [6])", "f32[6]; require 3*s0 == 6"},
        {"expand.default(%b, [s0, 9])", "bool[s0, 9]"},
        {"expand.default(%t, [2, 2])", "f64[2, 2]"},
        {"select.int(%q, 1, 7)", "f32[s0, s1, 4]"},
        {"select.int(%q, 2, 1)", "f32[s0, 8, 4]; require 1 < s1"},
        {"slice.Tensor(%q, 1, 1, 8, 2)", "f32[s0, 4, s1, 4]"},
        {"slice.Tensor(%x, 0, 0, (s0//2))", "f32[s0//2, 3]"},
        {"diagonal.default(%z, 1)", "f32[2]"},
        {"diagonal.default(%z, -1)", "f32[1]"},
        {"diagonal.default(%z, 5)", "f32[0]"},
        {"unfold.default(%q, 1, 3, 2)", "f32[s0, 3, s1, 4, 3]"},
        {"cat.default([%x, %y, %z])", "f32[s0 + s1 + 2, 3]"},
        {"cat.default([%x, %x], 1)", "f32[s0, 6]"},
        {"cat.default([%x, %y], -1)", "f32[s0, 6]; require s0 == s1"},
        {"embedding.default(%m, %i)", "f32[5, 4]"},
        {"index_select.default(%x, 0, %i)", "f32[5, 3]"},
        {"gather.default(%i, 0, %i)", "i64[5]"},
        {"index.Tensor(%q, [none, %i])", "f32[s0, 5, s1, 4]"},
        {"index.Tensor(%q, [%i, none, %i])", "f32[5, 8, 4]"},
        {"linear.default(%x, %m)", NULL},
        {"matmul.default(%x, %m)", "f32[s0, 4]"},
        {"linear.default(%q, %m)", "f32[s0, 8, s1, 3]"},
        {"convolution.default(%im, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)", "f32[s0, 6, h, 2*h]"},
        {"convolution.default(%im, %w, none, [2, 2], [1, 1], [1, 1], false, [0, 0], 1)", "f32[s0, 6, (h + 1)//2, h]"},
        {"convolution.default(%im, %w, none, [4, 4], [0, 0], [2, 1], false, [0, 0], 1)",
         "f32[s0, 6, (h + 3)//4 - 1, h//2]"},
        {"convolution.default(%im, %wt, none, [2, 2], [1, 1], [1, 1], true, [1, 1], 1)", "f32[s0, 6, 2*h, 4*h]"},
        {"scaled_dot_product_attention.default(%q, %k, %k, enable_gqa=true)", "f32[s0, 8, s1, 4]"},
        {"nonzero.default(%x)", "i64[n4, 2]"},
    };
    int done = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Err err = {0};
        char call[256];
        snprintf(call, sizeof call, "aten.%s", rows[i][0]);
        char *have = inferred(call, &err);
        if (!have) {
            if (rows[i][1]) STOP("%s: %s", call, err.msg);
            continue;
        }
        if (!rows[i][1] || strcmp(have, rows[i][1]))
            STOP("%s: %s, expected %s", call, have, rows[i][1] ? rows[i][1] : "an error");
        free(have);
        done++;
    }
    assert_true(done > 60);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"add.Tensor(%z, %m)", "broadcast sizes: sizes 2 and 3 differ"},
        {"cat.default([%z, %m])", "sizes of joined tensors: sizes 3 and 4 differ"},
        {"cat.default([%z, %u])", "argument 'tensors': element 1 has another rank or dtype"},
        {"cat.default([])", "argument 'tensors': an empty list"},
        {"cat.default([%z], 2)", "argument 'dim': dim 2 is out of range for rank 2 (allowed -2 to 1)"},
        {"softmax.int(%x, -3)", "dim -3 is out of range"},
        {"softmax.int(%x, s0)", "argument 'dim': must be a constant integer"},
        {"sum.dim_IntList(%x, [0, -2])", "argument 'dim': dim 0 appears twice"},
        {"sum.dim_IntList(%x, [s0])", "must be constant integers"},
        {"permute.default(%q, [0, 1])", "found 2 dims for a tensor of rank 4"},
        {"permute.default(%x, [1, 1])", "dim 1 appears twice"},
        {"reshape.default(%z, [4])", "number of elements before and after reshape: sizes 6 and 4 differ"},
        {"expand.default(%z, [2, 4])", "size that expand keeps: sizes 3 and 4 differ"},
        {"expand.default(%z, [3])", "found 1 sizes for a tensor of rank 2"},
        {"slice.Tensor(%z, 0, 0, 2, 0)", "must be an integer of at least 1"},
        {"slice.Tensor(%z, 0, 0, 2, 0.5>3)", "must be an integer of at least 1"},
        {"select.int(%z, 0, 2)", "can never hold"},
        {"select.int(%z, 0, -1)", "can never hold"},
        {"select.int(%t, 0, 0)", "rank 0"},
        {"diagonal.default(%z, 0, 1, -1)", "the two dims are the same (1)"},
        {"unfold.default(%z, 0, 3, 1)", "can never hold"},
        {"unfold.default(%z, 0, 1, 0)", "expected size >= 0 and step >= 1"},
        {"topk.default(%z, 4)", "can never hold"},
        {"layer_norm.default(%x, [4])", "normalized size: sizes 3 and 4 differ"},
        {"linear.default(%z, %m)", "features of input and weight: sizes 3 and 4 differ"},
        {"linear.default(%half, %m)", "operands are f16 and f32, expected one dtype"},
        {"matmul.default(%z, %z)", "inner sizes of the product: sizes 3 and 2 differ"},
        {"embedding.default(%m, %z)", "dtype f32, expected i64 or i32"},
        {"index.Tensor(%i, [none, %i])", "2 indices for a tensor of rank 1"},
        {"convolution.default(%one, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)",
         "channels of input and weight: sizes 1 and 4 differ"},
        {"convolution.default(%im, %w, %i, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)",
         "channels of bias and weight: sizes 5 and 6 differ"},
        {"convolution.default(%im, %w, %m, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)", "rank 2, expected 1"},
        {"convolution.default(%im, %w, none, [1], [1, 1], [1, 1], false, [0, 0], 1)", "found 1 values, expected 2"},
        {"convolution.default(%im, %w, none, [0, 0], [1, 1], [1, 1], false, [0, 0], 1)", "must be at least 1"},
        {"convolution.default(%im, %w, none, [1, 1], [0, 0], [99, 1], false, [0, 0], 1)", "can never hold"},
        {"scaled_dot_product_attention.default(%q, %k, %k)", "heads of query and key: sizes 8 and 2 differ"},
        {"scaled_dot_product_attention.default(%one, %one, %one, %mask)", "mask"},
        {"where.self(%half, %z, %z)", "found f16, expected bool"},
        {"full.default([-1], 0)", "size 0 of result 0 evaluates to -1"},
        {"view.default(%x, [3])", "not in plain form"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Err err = {0};
        char call[256];
        snprintf(call, sizeof call, "aten.%s", rows[i][0]);
        char *have = inferred(call, &err);
        if (have) STOP("%s: accepted: %s", call, have);
        if (!strstr(err.msg, rows[i][1]) || strncmp(err.msg, "node 'r' (aten.", 15)) STOP("%s: %s", call, err.msg);
    }
}

/* torch.result_type, in the order ? B b s i l h H f d x c C (bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 c32 c64 c128):
 *     for b in D: torch.result_type(torch.ones(2, dtype=a), torch.ones(2, dtype=b))       both with dims,
 *       or both without
 *                 torch.result_type(torch.ones(2, dtype=a), torch.ones((), dtype=b))      the second without
 *     for n in (True, 2, 2.5): torch.result_type(torch.ones(2, dtype=a), n)               the same without dims */
static const char letters[] = "?BbsilhHfdxcC";
static const DType dtypes[] = {DT_BOOL, DT_U8,  DT_I8,  DT_I16, DT_I32, DT_I64, DT_F16,
                               DT_BF16, DT_F32, DT_F64, DT_C32, DT_C64, DT_C128};
enum { N = sizeof dtypes / sizeof *dtypes };
static const char *const same_kind[N] = {"?BbsilhHfdxcC", "BBssilhHfdxcC", "bsbsilhHfdxcC", "ssssilhHfdxcC",
                                         "iiiiilhHfdxcC", "llllllhHfdxcC", "hhhhhhhffdxcC", "HHHHHHfHfdccC",
                                         "fffffffffdccC", "ddddddddddCCC", "xxxxxxxccCxcC", "cccccccccCccC",
                                         "CCCCCCCCCCCCC"};
static const char *const with_zero[N] = {"?BbsilhHfdxcC", "BBBBBBhHfdxcC", "bbbbbbhHfdxcC", "sssssshHfdxcC",
                                         "iiiiiihHfdxcC", "llllllhHfdxcC", "hhhhhhhhhhxxx", "HHHHHHHHHHccc",
                                         "ffffffffffccc", "ddddddddddCCC", "xxxxxxxxxxxxx", "ccccccccccccc",
                                         "CCCCCCCCCCCCC"};
static const char *const with_number[N] = {"?lf", "BBf", "bbf", "ssf", "iif", "llf", "hhh",
                                           "HHH", "fff", "ddd", "xxx", "ccc", "CCC"};

static char letter(DType t)
{
    for (int i = 0; i < N; i++)
        if (dtypes[i] == t) return letters[i];
    return '!';
}

static void test_promotion(void **state)
{
    (void)state;
    Graph *g = unit_graph("");
    const Expr *number[3] = {ex_bool(g->ex, true), ex_int(g->ex, 2), ex_float(g->ex, 2.5)};
    for (int a = 0; a < N; a++)
        for (int how = 0; how < 6;
             how++) /* dims with dims, none with none, dims with none (both orders), numbers (with and without dims) */
            for (int b = 0; b < (how < 4 ? N : 3); b++) {
                Promote p = {DT_NONE, DT_NONE, DT_NONE};
                Value x = {.dtype = dtypes[a], .rank = how == 0 || how == 2 || how == 3 || how == 4},
                      y = {.dtype = dtypes[b], .rank = how == 0};
                if (how == 3) promote_value(&p, &y);
                promote_value(&p, &x);
                if (how < 3) promote_value(&p, &y);
                if (how > 3) promote_expr(&p, number[b]);
                char have = letter(promote_result(&p)), want = how < 2   ? same_kind[a][b]
                                                               : how < 4 ? with_zero[a][b]
                                                                         : with_number[a][b];
                if (have != want) STOP("%c with %d, way %d: %c, expected %c", letters[a], b, how, have, want);
            }
    Promote p = {DT_NONE, DT_NONE, DT_NONE};
    assert_int_equal(promote_result(&p), DT_NONE);
    promote_expr(&p, number[1]);
    assert_int_equal(promote_result(&p), DT_I64);
    graph_free(g);
}

/* The file's name for a size that comes out of data takes the place of inference's own. */
static void test_declare(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph("input %x: f32[4, 3]\ninput %y: f32[s1]\n%nz: i64[n9, 2] = aten.nonzero.default(%x)\n");
    Node *n = g->first;
    Expr *u0 = ex_symbol(g->ex, "u0"), *s1 = ex_symbol(g->ex, "s1"), *two = ex_int(g->ex, 2);
    REFUSED(shape_declare(g, n, 1, &u0, &err), E_FORMAT);
    expr_symbol(g->ex, (int)n->out[0]->dim[0]->i)->source = SYM_SIZE;
    expr_symbol(g->ex, (int)n->out[0]->dim[0]->i)->value = n->out[0];
    Expr *before = n->out[0]->dim[0];
    OK(shape_declare(g, n, 2, (Expr *[]){s1, two}, &err)); /* bound by an input already */
    assert_ptr_equal(n->out[0]->dim[0], before);
    OK(shape_declare(g, n, 2, (Expr *[]){u0, two}, &err));
    assert_ptr_equal(n->out[0]->dim[0], u0);
    const Symbol *s = expr_find_symbol(g->ex, "u0");
    assert_true(s->source == SYM_SIZE && s->value == n->out[0] && s->dim == 0 &&
                expr_symbol(g->ex, (int)before->i)->source == SYM_GONE);
    graph_free(g);
}

/* PyTorch's strides go through every pointwise op, and end at what is not one. */
static void test_strides(void **state)
{
    (void)state;
    for (OpId id = OP_NONE + 1; id < OP_COUNT; id++) {
        const Op *op = op_get(id);
        if (!(op->flags & OPF_POINTWISE) && id != OP_flip) continue;
        Err err = {0};
        Graph *g = unit_graph("input %f: f32[2, 3, 4]\ninput %i: i64[2, 3, 4]\ninput %b: bool[2, 3, 4]\n"
                              "%ft: f32[4, 2, 3] = aten.permute.default(%f, [2, 0, 1])\n"
                              "%it: i64[4, 2, 3] = aten.permute.default(%i, [2, 0, 1])\n"
                              "%bt: bool[4, 2, 3] = aten.permute.default(%b, [2, 0, 1])\n");
        Value *turned[] = {g->first->out[0], g->first->next->out[0], g->first->next->next->out[0]};
        Arg given[16] = {{0}}, args[16];
        int of = !strncmp(op->name, "aten.bitwise_", 13), n = op->schema->nparams;
        for (int k = 0; k < n; k++) {
            ParamType type = op->schema->params[k].type;
            if (type == PT_TENSOR) given[k] = arg_value(turned[id == OP_where_self && k == 0 ? 2 : of]);
            else if (id == OP_flip) given[k] = arg_ints(g, 1, (int64_t[]){0});
            else if (!op->schema->params[k].def) given[k] = type == PT_STR ? arg_str(g, "floor") : arg_int(g, 1);
        }
        OK(op_fit_args(g, op, n, given, args, &err));
        Node *made = graph_add(g, id, n, args, "y", &err);
        if (!made) STOP("%s: %s", op->name, err.msg);
        Expr *want[MAX_RANK], *stride[MAX_RANK];
        assert_true(value_strides(g->ex, turned[of], want) && value_strides(g->ex, made->out[0], stride));
        for (int d = 0; d < 3; d++)
            if ((stride[d] == want[d]) != (id != OP_flip))
                STOP("%s: not the strides of its operand along axis %d", op->name, d);
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results), cmocka_unit_test(test_refused), cmocka_unit_test(test_promotion),
        cmocka_unit_test(test_declare), cmocka_unit_test(test_strides),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
