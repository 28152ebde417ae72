/* JSON out of an archive. Contract in zip_json.h. */
#include "format/zip_json.h"
#include "base/arena.h"

json_t *zip_json(const Zip *z, const void *bytes, uint64_t size, const char *what, Err *err)
{
    uint64_t whole;
    const unsigned char *file = zip_bytes(z, &whole), *from = bytes;
    bool stored = from >= file && from < file + whole;
    size_t most;
    if (!mul_size(whole, 4, &most) || !add_size(most, (size_t)64 << 20, &most)) most = SIZE_MAX;
    if (!stored) most = most > size ? most - size : 0; /* what was inflated stays beside the copy */
    return (stored ? json_read_file : json_read_within)(bytes, size, most, what, err);
}
