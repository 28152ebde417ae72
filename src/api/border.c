/* What every public function looks at first: pointers that must not be NULL. Contracts in api_impl.h. */
#include "api/api_impl.h"

bool api_given(const void *p, const char *function, const char *what, Err *err)
{
    return p || fail(err, E_USAGE, "%s: %s is NULL", function, what);
}

bool api_given_list(const void *p, int n, const char *function, const char *what, Err *err)
{
    if (n < 0) return fail(err, E_USAGE, "%s: the number of %s is %d, expected 0 or more", function, what, n);
    return !n || api_given(p, function, what, err);
}

bool api_given_texts(const char *const *p, int n, const char *function, const char *what, Err *err)
{
    TRY(api_given_list(p, n, function, what, err));
    for (int i = 0; i < n; i++)
        if (!p[i]) return fail(err, E_USAGE, "%s: %s[%d] is NULL", function, what, i);
    return true;
}
