/* What every public function looks at first: pointers that must not be NULL.
 *
 *     Err e = api_begin();
 *     if (!GIVEN(m) || !GIVEN(path)) return api_give(&e, err);      "qkv_model_save: path is NULL"
 */
#ifndef QKV_BASE_GIVEN_H
#define QKV_BASE_GIVEN_H
#include "base/err.h"

/* False, with E_USAGE, where a pointer is NULL that must not be: one; one to n things;
 * one to n strings, none of them NULL. */
bool was_given(const void *p, const char *function, const char *what, Err *err);
bool list_was_given(const void *p, int n, const char *function, const char *what, Err *err);
bool texts_were_given(const char *const *p, int n, const char *function, const char *what, Err *err);
/* In a public function whose error is `e`. */
#define GIVEN(p) was_given((p), __func__, #p, &e)
#define GIVEN_LIST(p, n) list_was_given((p), (n), __func__, #p, &e)
#define GIVEN_TEXTS(p, n) texts_were_given((p), (n), __func__, #p, &e)
#endif
