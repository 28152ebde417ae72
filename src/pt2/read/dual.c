/* Forward derivatives, as torch.export writes torch.func.jvp and torch.autograd.forward_ad before dispatch:
 *
 *     _enter_dual_level()
 *     d = _make_dual(x, t, level=0)            x, with the tangent t
 *     y = sin(d)
 *     p, s = _unpack_dual(y, level=0)          y, and its derivative along t
 *     _exit_dual_level(level=0)
 *
 * PyTorch has one level: what a level ends, no later one sees. They are numbered here, and qkv.make_dual and
 * qkv.tangent of a number belong together (src/grad/tangent.c). The same two calls stand there once more as ops of ATen
 * that nothing reads.
 */
#include <string.h>
#include "pt2/read/values.h"

typedef enum Call { NOTHING, ENTER, EXIT, MAKE, UNPACK, UNWRAP } Call;

static const struct {
    const char *target;
    Call call;
} calls[] = {
    {"torch._functorch.predispatch._jvp_increment_nesting", NOTHING},
    {"torch._functorch.predispatch._jvp_decrement_nesting", NOTHING},
    {"torch._functorch.predispatch._exit_dual_level", EXIT},
    {"torch._functorch.predispatch._enter_dual_level", ENTER},
    {"torch._functorch.predispatch._make_dual", MAKE},
    {"torch._functorch.predispatch._unpack_dual", UNPACK},
    {"torch._functorch.predispatch._unwrap_for_grad", UNWRAP},
    {"torch.ops.aten._make_dual.default", MAKE},
    {"torch.ops.aten._unpack_dual.default", UNPACK},
};

int dual_find(const char *target)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i].target, target)) return (int)i;
    return -1;
}

static bool operand(Import *im, Scope *s, const json_t *node, size_t i, Arg *x, Ref **ref)
{
    const json_t *arg = json_object_get(json_array_get(json_object_get(node, "inputs"), i), "arg");
    TRY(read_arg(im, s, arg, x, ref));
    return x->kind == ARG_VALUE || fail(im->err, E_FORMAT, "argument %zu: expected a tensor", i);
}

/* A result of the node, which nothing may have named. */
static bool put(Import *im, Scope *s, const json_t *node, int which, Ref *ref)
{
    const char *names[2];
    int n = result_names(json_object_get(node, "outputs"), names, 2);
    if (!ref) return im->err->code == E_OK ? oom(im->err) : false;
    return which >= n || !names[which] || scope_put(im, s, names[which], (Slot){.kind = SLOT_TENSOR, .ref = ref});
}

/* The value of a node with these arguments, and of which the file knows another name. */
static Ref *made(Import *im, OpId op, int n, const Arg *arg)
{
    Node *node = graph_add(im->g, op, n, arg, NULL, im->err);
    return node ? ref_root(im->g, node->out[0], NULL) : NULL;
}

bool dual_node(Import *im, Scope *s, const json_t *node, int which)
{
    Arg x, t;
    Ref *ref, *other;
    Call call = calls[which].call;
    if (call == ENTER) im->regions++;
    if (call == ENTER || call == EXIT) im->in_region = call == ENTER;
    if (call <= EXIT) return true;
    TRY(operand(im, s, node, 0, &x, &ref));
    if (call == UNWRAP) return put(im, s, node, 0, ref);
    Arg region = arg_int(im->g, im->regions);
    if (call == UNPACK)
        return put(im, s, node, 0, ref) && put(im, s, node, 1, made(im, OP_tangent, 2, (Arg[]){x, region}));
    TRY(operand(im, s, node, 1, &t, &other));
    return put(im, s, node, 0, made(im, OP_make_dual, 3, (Arg[]){x, t, region}));
}
