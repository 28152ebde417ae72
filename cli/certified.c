/* Certificates that commands write beside the files that they are about. */
#include <stdio.h>
#include <string.h>
#include "cli.h"

json_t *certificate_write(const char *path, char *text, int *code)
{
    qkv_error e;
    *code = qkv_file_write(path, text, strlen(text), &e) ? problem_of(&e) : 0;
    json_t *claims = json_loads(text, 0, NULL);
    qkv_free(text);
    return claims;
}

/* How many claims there are, those about bodies of loops and branches among them. */
static size_t claims_in(const json_t *part)
{
    const json_t *claim, *body, *claims = json_object_get(part, "claims");
    size_t i, k, n = json_array_size(claims);
    json_array_foreach(claims, i, claim) json_array_foreach(json_object_get(claim, "bodies"), k, body)
        n += claims_in(body);
    return n;
}

json_t *certificate_summary(const json_t *claims)
{
    return claims ? json_pack("{s: O, s: O, s: I}", "whole", json_object_get(claims, "whole"), "why",
                              json_object_get(claims, "why"), "claims",
                              (json_int_t)claims_in(claims))
                  : json_null();
}

void certificate_print(const char *path, const json_t *claims)
{
    size_t n = claims_in(claims);
    if (json_is_true(json_object_get(claims, "whole")))
        printf("%zu claim%s in %s: equal over the reals for all sizes in range, as qkv-certify replays\n", n,
               n == 1 ? "" : "s", path);
    else
        printf("%zu claim%s in %s, which do not cover all results: %s\n", n, n == 1 ? "" : "s", path,
               text_at(claims, "why"));
}

json_t *save_certified(const char *path, const char *certificate, const qkv_model *made, const qkv_model *source,
                       const char *rewriting, int *code)
{
    qkv_error e;
    char *text = NULL;
    if (qkv_model_save_certified(made, source, rewriting, path, &text, &e)) {
        *code = problem_of(&e);
        return NULL;
    }
    return certificate_write(certificate, text, code);
}
