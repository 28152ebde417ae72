#include "base/versioned.h"
#include <string.h>

enum { LARGEST = 4096 }; /* a struct_size above it was never set */

static size_t size_of(const void *p)
{
    size_t n;
    memcpy(&n, p, sizeof n);
    return n;
}

bool versioned_wanted(const void *to, size_t first, const char *type, Err *err)
{
    size_t n = size_of(to);
    return (n >= first && n <= LARGEST) ||
           fail(err, E_USAGE, "struct_size of %s is %zu, expected at least %zu: set it to sizeof(%s)", type, n, first,
                type);
}

bool versioned_take(void *to, size_t size, size_t first, const void *from, const char *type, Err *err)
{
    if (!from) return true;
    TRY(versioned_wanted(from, first, type, err));
    size_t n = size_of(from);
    for (size_t i = size; i < n; i++)
        if (((const unsigned char *)from)[i])
            return fail(err, E_USAGE,
                        "%s of %zu bytes sets a field that this library does not know, which takes %zu bytes: "
                        "leave it 0, or use the library that the header is of",
                        type, n, size);
    memcpy(to, from, n < size ? n : size);
    return true;
}

void versioned_give(void *to, const void *from, size_t size)
{
    size_t n = size_of(to), skip = sizeof n, known = n < size ? n : size;
    memcpy((char *)to + skip, (const char *)from + skip, known - skip);
    memset((char *)to + known, 0, n - known);
}
