/* What TensorRT asks for beside a file whose sizes vary: an optimisation profile, the least, usual and largest sizes of
 * each input.
 *
 *     "tensorrt": {"strongly_typed": false, "integers": false, "missing": [],
 *                  "profiles": [{"input": "ids", "min": [1, 1], "opt": [2, 64], "max": [8, 512]}]}
 *
 * The usual size is the example's of the file, else the largest. There are no profiles where a size has no upper bound;
 * missing names those sizes. strongly_typed: the file says itself what is half precision or float8. integers: it has
 * quantizers to integers, which engines of other types need to be allowed.
 */
#include <string.h>
#include "base/jsonw.h"
#include "onnx/write/write_impl.h"

enum { LEAST, USUAL, MOST, ENDS };

static int64_t end_of(const Symbol *s, int end)
{
    int64_t least = s->lo > 1 ? s->lo : s->hi < 1 ? s->hi : 1;
    if (end == LEAST) return least;
    if (end == USUAL && s->has_hint && s->hint >= least && s->hint <= s->hi) return s->hint;
    return s->hi == INT64_MAX ? least : s->hi; /* of one without a bound nothing is written */
}

static bool bind(const Onnx *o, int end, Binding *b)
{
    TRY(binding_init(b, o->p, o->err));
    for (int i = 0; i < expr_symbol_count(o->p); i++)
        if (expr_symbol(o->p, i)->source == SYM_INPUT) binding_set(b, i, end_of(expr_symbol(o->p, i), end));
    return true;
}

static bool varies(const Value *v)
{
    for (int i = 0; i < v->rank; i++)
        if (!ex_is_int(v->dim[i])) return true;
    return false;
}

static bool put_shape(const Onnx *o, const char *key, const Value *v, const Binding *b, Buf *out)
{
    jw_open(out, key, '[');
    for (int i = 0; i < v->rank; i++) {
        int64_t n;
        TRY(ex_eval_i64(o->p, v->dim[i], b, &n, o->err));
        jw_int(out, NULL, n);
    }
    jw_close(out, "]");
    return true;
}

static bool put_inputs(const Onnx *o, const Binding *b, Buf *out)
{
    static const char *const key[ENDS] = {"min", "opt", "max"};
    for (int i = 0; i < o->g->ninput; i++) {
        const Value *v = o->g->input[i];
        if (!varies(v)) continue;
        jw_put(out, "{'input': %s", o->value[v->id].name);
        for (int k = 0; k < ENDS; k++) TRY(put_shape(o, key[k], v, &b[k], out));
        jw_close(out, "}");
    }
    return true;
}

static int unbounded(const Onnx *o, Buf *out)
{
    int n = 0;
    for (int i = 0; i < expr_symbol_count(o->p); i++) {
        const Symbol *s = expr_symbol(o->p, i);
        if (s->source != SYM_INPUT || s->hi != INT64_MAX) continue;
        jw_text(out, NULL, s->name);
        n++;
    }
    return n;
}

static bool half_weights(const Onnx *o)
{
    for (int i = 0; i < o->ninit; i++)
        if (o->init[i].t.dtype == DT_F16 || o->init[i].t.dtype == DT_BF16) return true;
    return false;
}

/* Has it what is made floats again, of integers or of float8? */
static bool dequantizes(const Onnx *o, bool floats)
{
    for (const Node *n = o->g->first; n; n = n->next)
        if (n->op->id == OP_dequantize_linear && dtype_is_float(n->arg[0].v->dtype) == floats) return true;
    return false;
}

bool put_profiles(const Onnx *o, Buf *out)
{
    Binding b[ENDS] = {0};
    Buf profiles = {0}, missing = {0};
    bool ok = true;
    for (int k = 0; ok && k < ENDS; k++) ok = bind(o, k, &b[k]);
    ok = ok && (unbounded(o, &missing) || put_inputs(o, b, &profiles));
    jw_open(out, "tensorrt", '{');
    jw_bool(out, "strongly_typed", half_weights(o) || dequantizes(o, true));
    jw_bool(out, "integers", dequantizes(o, false));
    jw_list(out, "profiles", '[', &profiles);
    jw_list(out, "missing", '[', &missing);
    jw_close(out, "}");
    for (int k = 0; k < ENDS; k++) binding_free(&b[k]);
    buf_free(&profiles);
    buf_free(&missing);
    return ok;
}
