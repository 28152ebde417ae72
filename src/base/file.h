/* Files: mapped in, written out whole or not at all.
 *
 *     MappedFile f;
 *     if (!file_map(&f, path, err)) ...      read-only, private; f.data lives until file_unmap
 *
 *     OutFile *o = outfile_open("out.bin", err);   writes to a temporary file in the same folder; a symbolic link is
 *                                                  followed, an existing target that is not a regular
 *                                                  file is refused (E_IO)
 *     outfile_write(o, bytes, n, err);
 *     outfile_commit(o, err);                      fsync, rename, fsync of the folder; frees o
 *     outfile_abort(o);                            or: unlinks the temporary file; frees o
 *
 * A temporary file that a killed process of the same user left in the folder is removed when it is an hour old.
 */
#ifndef QKV_BASE_FILE_H
#define QKV_BASE_FILE_H
#include <stdint.h>
#include "base/err.h"

typedef struct MappedFile {
    const unsigned char *data; /* NULL when size is 0 */
    uint64_t size;
} MappedFile;

bool file_map(MappedFile *f, const char *path, Err *err); /* regular files only (not FIFOs, devices, folders): E_IO */
/* A file that another one names: `relative` is in `folder` or below it. Absolute names, "..", symbolic links in any
 * part and files with more than one hard link are refused (E_FORMAT for what the name says, else E_IO), so that a model
 * cannot make us read what is not its own. */
bool file_map_inside(MappedFile *f, const char *folder, const char *relative, Err *err);
void file_unmap(MappedFile *f);
/* From now on this thread reads whole files into memory instead of mapping them, or maps them again;
 * gives what was before. A mapped file that another process cuts short ends this one by SIGBUS. */
bool file_copies(bool on);

/* Makes a folder and those above it that are missing, for this user alone; one that is there is fine. */
bool folder_make(const char *path, Err *err);
/* Waits until no other process has the folder's lock; below 0 where the file system has none. */
int folder_lock(const char *path);
void folder_unlock(int lock);

/* From now on this thread's file_map reads what is called `name` from these bytes, which it copies, and data files
 * beside it are refused; NULL: no longer. */
void file_give(const char *name, const void *bytes, size_t size);

typedef struct NamedBytes {
    const char *name;
    const void *bytes;
    uint64_t size;
} NamedBytes;

/* Who makes files instead of the system: as qkv_files (qkv_tools.h). */
typedef struct FileHooks {
    int (*open)(void *user, const char *path, int writes);
    int (*rename)(void *user, const char *from, const char *to);
    int (*remove)(void *user, const char *path);
    void *user;
} FileHooks;
void file_hook(const FileHooks *h);

typedef struct OutFile OutFile;
OutFile *outfile_open(const char *path, Err *err);
bool outfile_write(OutFile *o, const void *bytes, size_t n, Err *err);
bool outfile_commit(OutFile *o, Err *err);
void outfile_abort(OutFile *o);                                            /* NULL is fine */
bool outfile_all(const char *path, const void *bytes, size_t n, Err *err); /* a file of these bytes */
/* A name beside a path for a file, and for its external data (NAME.data), that is only written to be read again. Both
 * files go at the end, and like temporary files when the process is ended. */
typedef struct Interim {
    char *name, *data;
    int slot[2];
} Interim;
bool interim_begin(Interim *n, const char *path, Err *err);
void interim_end(Interim *n); /* also where begin failed */

/* Unlinks every temporary file still open; async-signal-safe, for a handler of SIGINT or SIGTERM. */
void outfile_abort_all(void);
#endif
