/* What the files that read ONNX share. */
#ifndef QKV_ONNX_WIRE_ONNX_IMPL_H
#define QKV_ONNX_WIRE_ONNX_IMPL_H
#include "base/map.h"
#include "onnx/wire/onnx.h"
#include "format/proto.h"

enum { ONNX_FIELDS = 32 }; /* all field numbers of onnx.proto are below */

typedef struct OnnxReader {
    Arena *a;    /* of what is read now: one of the next two */
    Arena *kept; /* the file's */
    Arena *passing;         /* nodes and what is said about values: an import alone reads them */
    OnnxFile *file;         /* where data files are kept; NULL: external data is refused */
    const char *folder;     /* NULL likewise */
    bool names_only;        /* data files are not opened: tensors in them have no data */
    Map opened;             /* location -> index into file->external, + 1 */
    int depth;              /* of graphs, of types */
    size_t records;         /* most bytes that both arenas may take */
    uint64_t planned, most; /* bytes that the graph will take */
} OnnxReader;

bool onnx_no_memory(const OnnxReader *r, Err *err);
/* Room for n records; false when there is none. */
#define ROOM_IN(arena, r, array, count, n, err)                                                                        \
    (*(array) = (n) ? arena_alloc(arena, (n), sizeof **(array)) : NULL, *(count) = 0,                                  \
     *(array) || !(n) || onnx_no_memory(r, err))
#define ROOM(r, array, count, n, err) ROOM_IN((r)->a, r, array, count, n, err)
/* A message field that may be there once: protobuf would merge two, which nothing writes. */
bool onnx_once(uint32_t times, uint32_t number, Err *err);
bool onnx_text(OnnxReader *r, const PbField *f, const char **out, Err *err);
bool onnx_pair(OnnxReader *r, const PbField *f, OnnxPair *out, Err *err);
bool onnx_tensor(OnnxReader *r, Pb m, OnnxTensor *t, Err *err);
bool onnx_sparse(OnnxReader *r, Pb m, OnnxSparse *s, Err *err);
/* Elements of 4 and 2 bits: how many bytes n of them take, and how many bits one has (8 for other types). */
int onnx_bits(int type);
/* Packs n elements of one byte each from `from` on into (n * bits + 7) / 8 bytes, low bits first; and back. */
void onnx_pack(const uint8_t *from, uint64_t n, int bits, uint8_t *to);
void onnx_unpack(const uint8_t *from, uint64_t n, int type, uint8_t *to);
#endif
