/* Pointers that must not be NULL. Contract in given.h. */
#include "base/given.h"

bool was_given(const void *p, const char *function, const char *what, Err *err)
{
    return p || fail(err, E_USAGE, "%s: %s is NULL", function, what);
}

bool list_was_given(const void *p, int n, const char *function, const char *what, Err *err)
{
    if (n < 0) return fail(err, E_USAGE, "%s: the number of %s is %d, expected 0 or more", function, what, n);
    return !n || was_given(p, function, what, err);
}

bool texts_were_given(const char *const *p, int n, const char *function, const char *what, Err *err)
{
    TRY(list_was_given(p, n, function, what, err));
    for (int i = 0; i < n; i++)
        if (!p[i]) return fail(err, E_USAGE, "%s: %s[%d] is NULL", function, what, i);
    return true;
}
