/* Models kept packed in a folder, so that all processes of a machine map one copy (docs/PACK.md).
 *
 *     Cached c = {.folder = ""};                          the user's folder
 *     if (!program_open_kept(&p, "vit.pt2", &options, &c, err)) ...
 *     ... c.used, c.note ...
 *     cached_free(&c);
 */
#ifndef QKV_PROGRAM_CACHE_H
#define QKV_PROGRAM_CACHE_H
#include "base/buf.h"
#include "program/program.h"

typedef struct Cached {
    const char *folder; /* "": $XDG_CACHE_HOME/qkv/packed, else $HOME/.cache/qkv/packed */
    bool used;          /* the program is one of a file in the folder */
    Buf note;           /* what became of it, a sentence */
} Cached;

/* As program_open, but from the folder where it has the model, packed for this CPU by this version of qkv; else it is
 * put there first. What keeps the folder from being used is said in the note, and the file itself is opened. */
bool program_open_kept(Program *p, const char *path, const OpenOptions *options, Cached *c, Err *err);
void cached_free(Cached *c);
#endif
