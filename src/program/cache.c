/* Models kept packed in a folder. Contract in cache.h.
 *
 * A file's name is the digest of all that its contents follow from but for the version of qkv: the model's bytes and
 * the options of loading. Digest, version and ISA level are in the file, too, and held against what is wanted: a file
 * that was copied there, cut short or written by another version is replaced. One process at a time writes, under a
 * lock of the folder; those who wait for it map what it wrote.
 */
#include "program/cache.h"
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/version.h"
#include "packed/read.h"
#include "program/pack.h"

typedef struct Kept {
    Buf folder, path;
    char key[DIGEST_TEXT];
    const char *source;
    const OpenOptions *options;
    Cached *c;
} Kept;

void cached_free(Cached *c) { buf_free(&c->note); }

/* ------------------------------------------------------------------ the name */

static bool add_fixed(Digest *d, const Fixed *f, Err *err)
{
    for (int i = 0; i < f->n; i++) {
        digest_text(d, f->name[i]);
        TRY(tensor_digest(&f->value[i], d, err));
    }
    return true;
}

/* The bytes of the model's file and, of an ONNX model, of its data files. packed: it is a .qkv; nothing was added. */
static bool add_model(Digest *d, const char *path, bool *packed, Err *err)
{
    MappedFile f;
    TRY(file_map(&f, path, err));
    *packed = packed_looks_like(f.data, f.size);
    bool onnx = onnx_looks_like(f.data, f.size < 64 ? f.size : 64), ok = true;
    if (!*packed) digest_add(d, f.data, f.size);
    if (onnx && !*packed) {
        OnnxFile *with = onnx_open(path, err);
        ok = with != NULL;
        for (int i = 0; ok && i < with->nexternal; i++) digest_add(d, with->external[i].data, with->external[i].size);
        onnx_close(with);
    }
    file_unmap(&f);
    return ok;
}

static bool key_of(Kept *k, bool *packed, Err *err)
{
    Digest d = {0};
    TRY(add_model(&d, k->source, packed, err));
    digest_text(&d, k->options->compute == DT_NONE ? "" : dtype_name(k->options->compute));
    digest_text(&d, k->options->skip_padding ? "skip_padding" : "");
    TRY(add_fixed(&d, &k->options->fixed, err));
    digest_print(&d, k->key);
    return true;
}

static bool folder_of(Kept *k, Err *err)
{
    const char *given = k->c->folder, *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (*given) buf_puts(&k->folder, given);
    else if (cache && *cache == '/') buf_printf(&k->folder, "%s/qkv/packed", cache);
    else if (home && *home) buf_printf(&k->folder, "%s/.cache/qkv/packed", home);
    else return fail(err, E_USAGE, "neither XDG_CACHE_HOME nor HOME says where the user's cache is");
    buf_printf(&k->path, "%s/%s-%s.qkv", k->folder.data, k->key, cpu_level_name(cpu_level()));
    return !(k->folder.failed || k->path.failed) || oom(err);
}

/* ------------------------------------------------------------------ using and writing */

/* Is it what would be written now? */
static bool is_ours(const Source *s, const char *key, Err *err)
{
    const char *cpu = cpu_level_name(cpu_level());
    if (!s->kept_key) return fail(err, E_UNSUPPORTED, "it does not say which model it was packed from");
    if (strcmp(s->kept_by, QKV_VERSION))
        return fail(err, E_UNSUPPORTED, "qkv %s wrote it, this is %s", s->kept_by, QKV_VERSION);
    if (strcmp(s->kept_key, key)) return fail(err, E_UNSUPPORTED, "it is of another model");
    if (strcmp(s->cpu, cpu)) return fail(err, E_UNSUPPORTED, "it is packed for %s, this CPU runs %s", s->cpu, cpu);
    return true;
}

static bool open_kept(Program *p, const Kept *k, Err *err)
{
    TRY(program_open(p, k->path.data, &(OpenOptions){.copy = k->options->copy}, err));
    if (is_ours(p->source, k->key, err)) return true;
    program_close(p);
    return within(err, "%s", k->path.data);
}

static bool write_kept(Program *p, const Kept *k, Err *why)
{
    PackInfo info;
    TRY(program_pack(p, k->source, k->path.data, k->key, &info, why));
    if (info.message[0]) buf_printf(&k->c->note, "; its weights are not packed, for it refused random inputs");
    return true;
}

/* Under the folder's lock, where there is one. */
static bool make_kept(Program *p, const Kept *k, Err *err)
{
    Err why = {0};
    Buf *note = &k->c->note;
    if ((k->c->used = open_kept(p, k, &why))) { /* another process was faster */
        buf_printf(note, "%s: mapped", k->path.data);
        return true;
    }
    if (why.code == E_IO) buf_printf(note, "%s: written", k->path.data);
    else buf_printf(note, "not used: %s; written again", why.msg);
    TRY(program_open(p, k->source, k->options, err));
    if (!write_kept(p, k, &why)) {
        buf_free(note);
        buf_printf(note, "not kept: %s", why.msg);
        return true;
    }
    Program again;
    if (open_kept(&again, k, &why)) {
        program_close(p);
        *p = again;
        k->c->used = true;
    } else buf_printf(note, ", but it cannot be used: %s", why.msg);
    return true;
}

static bool keep(Program *p, Kept *k, Err *err)
{
    Err why = {0};
    bool packed = false, ready = key_of(k, &packed, &why) && !packed && folder_of(k, &why);
    if (ready && (k->c->used = open_kept(p, k, &why))) {
        buf_printf(&k->c->note, "%s: mapped", k->path.data);
        return true;
    }
    why = (Err){0};
    ready = ready && folder_make(k->folder.data, &why);
    if (!ready) {
        buf_printf(&k->c->note, "not kept: %s", packed ? "it is a packed model itself" : why.msg);
        return program_open(p, k->source, k->options, err);
    }
    int lock = folder_lock(k->folder.data);
    bool ok = make_kept(p, k, err);
    folder_unlock(lock);
    return ok;
}

bool program_open_kept(Program *p, const char *path, const OpenOptions *options, Cached *c, Err *err)
{
    Kept k = {.source = path, .options = options, .c = c};
    if (options->no_fuse)
        return fail(err, E_USAGE, "a packed copy runs fused: it cannot be kept of a model that is to run node by node");
    bool ok = keep(p, &k, err);
    buf_free(&k.folder);
    buf_free(&k.path);
    return ok;
}
