/* Packing: a program as one file that opens by mapping alone (.qkv, docs/PACK.md), for qkv_model_pack. */
#ifndef QKV_PROGRAM_PACK_H
#define QKV_PROGRAM_PACK_H
#include "program/program.h"

struct Session;

typedef struct PackInfo {
    int weights, packed; /* tensors in the file; weights that it also holds as matrix products take them */
    uint64_t weight_bytes, packed_bytes;
    const char *cpu;
    char message[256]; /* why nothing is packed, "" otherwise */
} PackInfo;

/* The rules fire first, as for a session. name: the model's in messages. message, where it is not empty: the model did
 * not run with random inputs. key: NULL, or what the file was packed from (program/cache.c), which it then says. */
bool program_pack(const Program *p, const char *name, const char *path, const char *key, PackInfo *info, Err *err);
/* The pass fold: what depends on weights alone becomes weights, whose data *folder owns; weights that nothing reads
 * any more go. */
bool pack_fold(Graph *g, struct Session **folder, Err *err);
/* Gives a session's products the packed weights of the file that the program came from. */
bool program_give_packed(const Program *p, struct Session *s, Err *err);
/* Is the file for this CPU? E_UNSUPPORTED says for which it is. */
bool program_packed_fits(const Source *s, Err *err);
#endif
