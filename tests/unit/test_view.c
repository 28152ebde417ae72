/* Views: strides against the meaning of each op, element by element, on tensors with random strides;
 * and the other way: where a view is refused, no strides exist. */
#include "unit_graph.h"
#include "plan/view_table.h"

enum { MOST = 4096 };

/* A tensor and, beside it, what its elements are in row-major order. */
typedef struct Pair {
    Tensor t;
    int64_t n, element[MOST];
} Pair;

static int32_t storage[MOST * 8];

static void fill(Pair *p)
{
    p->n = tensor_numel(&p->t);
    for (int64_t i = 0; i < p->n; i++) p->element[i] = tensor_get_i64(&p->t, i);
}

/* A random view of the storage, made without the library. */
static void random_tensor(Pair *p, uint64_t *r)
{
    p->t = (Tensor){.dtype = DT_I32, .rank = (int)(unit_random(r) % 5), .data = storage + 100};
    int order[5] = {0, 1, 2, 3, 4};
    for (int i = p->t.rank - 1; i > 0 && unit_random(r) % 3; i--) { /* some dims change places */
        int k = (int)(unit_random(r) % (uint32_t)(i + 1)), old = order[i];
        order[i] = order[k], order[k] = old;
    }
    int64_t step = unit_random(r) % 3 ? 1 : 2;
    for (int i = p->t.rank - 1; i >= 0; i--) {
        int64_t n = unit_random(r) % 20 ? 1 + (int64_t)(unit_random(r) % 4) : 0;
        p->t.shape[order[i]] = n;
        p->t.stride[order[i]] = unit_random(r) % 6 ? step : 0;
        step *= n + (unit_random(r) % 4 == 0); /* a gap */
        if (step == 0) step = 1;
    }
    fill(p);
}

static Call call_of(CallArg *arg, Tensor *t)
{
    arg[0] = (CallArg){.kind = ARG_VALUE, .t = t};
    return (Call){.arg = arg};
}

static CallArg number(int64_t v) { return (CallArg){.kind = ARG_EXPR, .s = {.kind = SC_INT, .i = v}}; }

static CallArg numbers(Scalar *room, int n, const int64_t *v)
{
    for (int i = 0; i < n; i++) room[i] = (Scalar){.kind = SC_INT, .i = v[i]};
    return (CallArg){.kind = ARG_EXPRS, .n = n, .ss = room};
}

/* The view has this shape and these elements. */
static void expect(const char *what, const Tensor *v, int rank, const int64_t *shape, const int64_t *element)
{
    char text[200];
    bool same = v->rank == rank && v->dtype == DT_I32;
    for (int i = 0; same && i < rank; i++) same = v->shape[i] == shape[i];
    if (!same) STOP("%s: shape %s", what, tensor_describe(v, text, sizeof text));
    for (int64_t i = 0; i < tensor_numel(v); i++)
        if (tensor_get_i64(v, i) != element[i])
            STOP("%s: element %d of %s", what, (int)i, tensor_describe(v, text, sizeof text));
}

/* element[] of p under coordinates in place of a row-major index */
static int64_t element_at(const Pair *p, const int64_t *at)
{
    int64_t k = 0;
    for (int i = 0; i < p->t.rank; i++) k = k * p->t.shape[i] + at[i];
    return p->element[k];
}

static bool next(int rank, const int64_t *shape, int64_t *at)
{
    for (int i = rank - 1; i >= 0; i--) {
        if (++at[i] < shape[i]) return true;
        at[i] = 0;
    }
    return false;
}

/* Calls f with the coordinates of every element of the result; f gives the coordinates in the operand. */
typedef void Source(const int64_t *to, int64_t *from, const int64_t *how);

static void check(const char *what, ViewFn *view, const Pair *p, CallArg *arg, int rank, const int64_t *shape,
                  Source *source, const int64_t *how)
{
    static int64_t want[MOST * 8];
    int64_t to[MAX_RANK] = {0}, from[MAX_RANK], n = 1;
    Tensor x = p->t, out = {0};
    Call c = call_of(arg, &x);
    for (int i = 0; i < rank; i++) n *= shape[i];
    for (int64_t k = 0; k < n; k++) {
        memset(from, 0, sizeof from);
        source(to, from, how);
        want[k] = element_at(p, from);
        next(rank, shape, to);
    }
    assert_true(view(&c, &out));
    expect(what, &out, rank, shape, want);
    x.data = NULL; /* without an address there is none */
    assert_true(view(&c, &out) && out.data == NULL);
}

/* how[0]: rank of the operand; then what the op needs. */
static void from_permute(const int64_t *to, int64_t *from, const int64_t *how)
{
    for (int i = 0; i < how[0]; i++) from[how[1 + i]] = to[i];
}

static void from_select(const int64_t *to, int64_t *from, const int64_t *how)
{
    for (int i = 0, k = 0; i < how[0]; i++) from[i] = i == how[1] ? how[2] : to[k++];
}

static void from_slice(const int64_t *to, int64_t *from, const int64_t *how)
{
    for (int i = 0; i < how[0]; i++) from[i] = i == how[1] ? how[2] + to[i] * how[3] : to[i];
}

static void from_expand(const int64_t *to, int64_t *from, const int64_t *how)
{
    for (int i = 0; i < how[0]; i++)
        from[i] = how[2 + i] == 1 ? 0 : to[how[1] + i]; /* how[1]: new dims in front; how[2..]: sizes before */
}

static void from_diagonal(const int64_t *to, int64_t *from, const int64_t *how)
{
    int64_t d = to[how[0] - 2];
    for (int i = 0, k = 0; i < how[0]; i++)
        from[i] = i == how[2] ? d + (how[1] < 0 ? -how[1] : 0) : i == how[3] ? d + (how[1] > 0 ? how[1] : 0) : to[k++];
}

static void from_unfold(const int64_t *to, int64_t *from, const int64_t *how)
{
    for (int i = 0; i < how[0]; i++) from[i] = i == how[1] ? to[i] * how[2] + to[how[0]] : to[i];
}

static void test_strides(void **state)
{
    (void)state;
    uint64_t r = 1;
    for (int i = 0; i < MOST * 8; i++) storage[i] = i;
    for (int round = 0; round < 4000; round++) {
        Pair p;
        random_tensor(&p, &r);
        int rank = p.t.rank;
        Scalar room[MAX_RANK];
        CallArg arg[5] = {{0}};
        int64_t shape[MAX_RANK], how[MAX_RANK] = {rank}, list[MAX_RANK];
        for (int i = 0; i < rank; i++) how[1 + i] = i;
        for (int i = rank - 1; i > 0; i--) {
            int k = (int)(unit_random(&r) % (uint32_t)(i + 1));
            int64_t old = how[1 + i];
            how[1 + i] = how[1 + k], how[1 + k] = old;
        }
        for (int i = 0; i < rank; i++)
            shape[i] = p.t.shape[how[1 + i]], list[i] = how[1 + i] - (unit_random(&r) % 2 ? rank : 0);
        arg[1] = numbers(room, rank, list);
        check("permute", view_permute, &p, arg, rank, shape, from_permute, how);

        int lead = (int)(unit_random(&r) % 3);
        how[1] = lead;
        for (int i = 0; i < lead; i++) shape[i] = 1 + (int64_t)(unit_random(&r) % 3);
        for (int i = 0; i < rank; i++)
            shape[lead + i] = (how[2 + i] = p.t.shape[i]) == 1 ? 1 + (int64_t)(unit_random(&r) % 3) : p.t.shape[i];
        arg[1] = numbers(room, lead + rank, shape);
        check("expand", view_expand, &p, arg, lead + rank, shape, from_expand, how);
        if (rank == 0) continue;

        int d = (int)(unit_random(&r) % (uint32_t)rank);
        int64_t n = p.t.shape[d];
        int64_t start = (int64_t)(unit_random(&r) % (uint32_t)(n + 1)),
                end = start + (int64_t)(unit_random(&r) % (uint32_t)(n - start + 1));
        int64_t step = 1 + (int64_t)(unit_random(&r) % 3);
        memcpy(shape, p.t.shape, sizeof shape);
        shape[d] = (end - start + step - 1) / step;
        how[1] = d, how[2] = start, how[3] = step;
        arg[1] = number(unit_random(&r) % 2 ? d : d - rank), arg[2] = number(start), arg[3] = number(end),
        arg[4] = number(step);
        check("slice", view_slice, &p, arg, rank, shape, from_slice, how);

        if (n > 0) {
            how[2] = (int64_t)(unit_random(&r) % (uint32_t)n);
            for (int i = 0, k = 0; i < rank; i++)
                if (i != d) shape[k++] = p.t.shape[i];
            arg[2] = number(how[2]);
            check("select", view_select, &p, arg, rank - 1, shape, from_select, how);
            int64_t size = (int64_t)(unit_random(&r) % (uint32_t)(n + 1));
            memcpy(shape, p.t.shape, sizeof shape);
            shape[d] = (n - size) / step + 1, shape[rank] = size, how[2] = step;
            arg[2] = number(size), arg[3] = number(step);
            check("unfold", view_unfold, &p, arg, rank + 1, shape, from_unfold, how);
        }
        if (rank < 2) continue;
        int d2 = (d + 1 + (int)(unit_random(&r) % (uint32_t)(rank - 1))) % rank, k = 0;
        int64_t offset = (int64_t)(unit_random(&r) % 9) - 4, rows = n + (offset < 0 ? offset : 0),
                cols = p.t.shape[d2] - (offset > 0 ? offset : 0);
        for (int i = 0; i < rank; i++)
            if (i != d && i != d2) shape[k++] = p.t.shape[i];
        shape[k] = rows < cols ? rows : cols;
        if (shape[k] < 0) shape[k] = 0;
        how[1] = offset, how[2] = d, how[3] = d2;
        arg[1] = number(offset), arg[2] = number(d), arg[3] = number(d2 - rank);
        check("diagonal", view_diagonal, &p, arg, rank - 1, shape, from_diagonal, how);
    }
}

/* Do any strides give these elements (which are addresses) in this shape? */
static bool strides_exist(int rank, const int64_t *shape, const int64_t *element, int64_t n)
{
    int64_t stride[MAX_RANK] = {0}, at[MAX_RANK] = {0}, inner = 1;
    for (int i = rank - 1; i >= 0; inner *= shape[i--])
        if (shape[i] > 1) stride[i] = element[inner] - element[0];
    for (int64_t k = 0; k < n; k++) {
        int64_t e = element[0];
        for (int i = 0; i < rank; i++) e += at[i] * stride[i];
        if (e != element[k]) return false;
        next(rank, shape, at);
    }
    return true;
}

static void test_reshape(void **state)
{
    (void)state;
    uint64_t r = 2;
    int views = 0, copies = 0;
    for (int i = 0; i < MOST * 8; i++) storage[i] = i;
    for (int round = 0; round < 60000; round++) {
        Pair p;
        random_tensor(&p, &r);
        int64_t shape[MAX_RANK], left = p.n;
        int rank = 0;
        if (p.n == 0) shape[rank++] = 0, shape[rank++] = 3;
        while (left > 1 && rank < 7) { /* a random factor at a time, and sizes of 1 between */
            int64_t f = 1 + (int64_t)(unit_random(&r) % (uint32_t)(left < 6 ? left : 6));
            if (left % f) continue;
            shape[rank++] = f;
            left /= f;
        }
        if (left > 1 || (p.n && rank < 8 && unit_random(&r) % 3 == 0)) shape[rank++] = left;
        Scalar room[MAX_RANK];
        CallArg arg[2];
        Tensor x = p.t, out = {0};
        Call c = call_of(arg, &x);
        arg[1] = numbers(room, rank, shape);
        bool view = view_reshape(&c, &out), exists = p.n == 0 || strides_exist(rank, shape, p.element, p.n);
        if (view) expect("reshape", &out, rank, shape, p.element);
        char text[200];
        if (view != exists)
            STOP("reshape of %s, rank %d: %s", tensor_describe(&p.t, text, sizeof text), rank,
                 view ? "a view" : "a copy");
        views += view;
        copies += !view;
    }
    assert_true(views > 10000 && copies > 5000);
}

static void test_as_strided(void **state)
{
    (void)state;
    for (int i = 0; i < MOST * 8; i++) storage[i] = i;
    Scalar a[4], b[4];
    CallArg arg[4];
    Tensor x = tensor_of(DT_I32, 2, (int64_t[]){3, 4}, storage), out;
    Call c = call_of(arg, &x);
    arg[1] = numbers(a, 2, (int64_t[]){2, 3}), arg[2] = numbers(b, 2, (int64_t[]){1, 4}), arg[3] = number(2);
    assert_true(view_as_strided(&c, &out));
    expect("as_strided", &out, 2, (int64_t[]){2, 3}, (int64_t[]){2, 6, 10, 3, 7, 11});
    arg[3] = number(3); /* one element too far */
    assert_false(view_as_strided(&c, &out));
    arg[3] = number(-1);
    assert_false(view_as_strided(&c, &out));
    arg[3] = (CallArg){.kind = ARG_NONE};
    assert_true(view_as_strided(&c, &out) && out.data == storage);
    x.stride[0] = 1, x.stride[1] = 3; /* PyTorch's strides count in contiguous memory */
    assert_false(view_as_strided(&c, &out));
}

static void test_dtype(void **state)
{
    (void)state;
    CallArg arg[2];
    Tensor x = tensor_of(DT_I32, 2, (int64_t[]){3, 4}, storage), out;
    Call c = call_of(arg, &x);
    arg[1] = (CallArg){.kind = ARG_DTYPE, .dtype = DT_F32};
    assert_true(view_view_dtype(&c, &out) && out.dtype == DT_F32 && out.data == storage && out.rank == 2 &&
                out.stride[0] == 4);
}

/* Padding is a view only where it pads by nothing. */
static void test_pad(void **state)
{
    (void)state;
    uint64_t r = 9;
    Pair p;
    Scalar room[6];
    for (int i = 0; i < 200; i++) {
        CallArg arg[3];
        int64_t pad[6] = {0};
        random_tensor(&p, &r);
        Call c = call_of(arg, &p.t);
        Tensor out;
        if (i % 2) pad[unit_random(&r) % 6] = unit_random(&r) % 2 ? 1 : -1;
        arg[1] = numbers(room, 6, pad);
        arg[2] = number(0);
        assert_int_equal(view_constant_pad_nd(&c, &out), !(i % 2));
        if (!(i % 2)) expect("pad", &out, p.t.rank, p.t.shape, p.element);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strides), cmocka_unit_test(test_reshape), cmocka_unit_test(test_as_strided),
        cmocka_unit_test(test_dtype),   cmocka_unit_test(test_pad),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
