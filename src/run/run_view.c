/* The two things views need at run time: the copy when strides cannot express a result,
 * and as_strided of a strided input. */
#include "run/pointwise.h"
#include "run/run_table.h"

/* Same elements in the same order, other shape. */
bool run_copy(Call *c, Err *err)
{
    Tensor as_input = *call_out(c, 0);
    const Tensor *x = call_in(c, 0);
    as_input.rank = x->rank;
    for (int i = 0; i < x->rank; i++) as_input.shape[i] = x->shape[i];
    strides_contiguous(as_input.rank, as_input.shape, as_input.stride);
    as_input.dtype = x->dtype;
    return run_copy_tensor(&as_input, x, c->env->threads) ||
           call_fail(c, E_UNSUPPORTED, err, "a copy of %s", dtype_name(x->dtype));
}

bool run_as_strided(Call *c, Err *err)
{
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err);
    TRY(x);
    Tensor *out = call_out(c, 0), from = *out;
    from.data = x->data;
    call_ints(c, 2, from.stride, MAX_RANK);
    int64_t offset = call_i64_or(c, 3, 0);
    if (!view_in_storage(&from, offset, tensor_bytes(x)))
        return call_fail(c, E_USAGE, err, "sizes and strides reach beyond the %zu bytes of the tensor",
                         tensor_bytes(x));
    from.data = (char *)x->data + offset * (int64_t)dtype_size(x->dtype);
    return run_copy_tensor(out, &from, c->env->threads) ||
           call_fail(c, E_UNSUPPORTED, err, "a copy of %s", dtype_name(x->dtype));
}
