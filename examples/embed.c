/* Runs a model with random inputs of its smallest sizes and prints the first values of each output.
 *
 *   cc embed.c $(pkg-config --cflags --libs qkv) -o embed && ./embed model.pt2
 */
#include <inttypes.h>
#include <qkv.h>
#include <qkv_tools.h>
#include <stdio.h>

static int failed(const qkv_error *e)
{
    fprintf(stderr, "%s\n", e->message);
    return e->code;
}

int main(int argc, char **argv)
{
    qkv_error e = {0};
    qkv_tensor y;
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL.pt2\n", argv[0]);
        return QKV_USAGE;
    }
    qkv_model *model = qkv_model_load(argv[1], NULL, &e);
    qkv_session *session = model ? qkv_session_create(model, NULL, &e) : NULL;
    if (!session) return failed(&e);
    if (qkv_session_random_inputs(session, NULL, NULL, 0, 1, &e) || qkv_session_run(session, &e)) return failed(&e);
    for (int i = 0; i < qkv_model_output_count(model); i++) {
        if (qkv_session_output(session, i, &y, &e)) return failed(&e);
        printf("%s %s", qkv_model_output_name(model, i), qkv_dtype_name(y.dtype));
        for (int k = 0; k < y.rank; k++) printf(" %" PRId64, y.shape[k]);
        if (y.dtype == QKV_F32) printf(": %g", (double)((const float *)y.data)[0]);
        printf("\n");
    }
    qkv_session_free(session);
    qkv_model_free(model);
    return 0;
}
