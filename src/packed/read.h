/* Reading a packed model (.qkv): the graph from its text, weights where they are in the file. docs/PACK.md says what
 * the JSON holds.
 *
 *     Source *s = packed_open("model.qkv", err);
 *     ... s->graph, s->packed[i] ...
 */
#ifndef QKV_PACKED_READ_H
#define QKV_PACKED_READ_H
#include "model/source.h"

bool packed_looks_like(const unsigned char *bytes, uint64_t size);
Source *packed_open(const char *path, Err *err);
#endif
