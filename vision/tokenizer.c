/* The tokenizers of the public interface: BERT's WordPiece, CLIP's BPE, the BPE of a tokenizer.json.
 * Contracts in include/qkv_vision.h. */
#include "base/file.h"
#include "base/mem.h"
#include "qkv_vision.h"
#include "vision/bpe.h"
#include "vision/json_bpe.h"
#include "vision/vision.h"
#include "vision/wordpiece.h"

struct qkv_tokenizer { /* one of them */
    Tokenizer *t;
    Bpe *bpe;
    JsonBpe *json;
};

qkv_tokenizer *qkv_tokenizer_wordpiece(const char *vocab_path, int lowercase, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(vocab_path)) return vision_null(&e, err);
    qkv_tokenizer *t = mem_zeroed(1, sizeof *t);
    if (!t) {
        oom(&e);
        return vision_null(&e, err);
    }
    t->t = wordpiece_open(vocab_path, lowercase != 0, &e);
    if (t->t) return t;
    mem_free(t);
    return vision_null(&e, err);
}

qkv_tokenizer *qkv_tokenizer_clip(const char *merges_path, int hf, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(merges_path)) return vision_null(&e, err);
    MappedFile f = {0};
    qkv_tokenizer *t = mem_zeroed(1, sizeof *t);
    if (!t) {
        oom(&e);
        return vision_null(&e, err);
    }
    if (file_map(&f, merges_path, &e)) {
        t->bpe = bpe_open((const char *)f.data, f.size, hf ? CLIP_HF : CLIP_META, &e);
        if (!t->bpe) within(&e, "%s", merges_path);
    }
    file_unmap(&f);
    if (t->bpe) return t;
    mem_free(t);
    return vision_null(&e, err);
}

qkv_tokenizer *qkv_tokenizer_json(const char *path, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(path)) return vision_null(&e, err);
    MappedFile f = {0};
    qkv_tokenizer *t = mem_zeroed(1, sizeof *t);
    if (!t) {
        oom(&e);
        return vision_null(&e, err);
    }
    if (file_map(&f, path, &e))
        t->json = json_bpe_open(json_read_file(f.data, f.size, SIZE_MAX, path, &e), path, &e);
    file_unmap(&f);
    if (t->json) return t;
    mem_free(t);
    return vision_null(&e, err);
}

void qkv_tokenizer_free(qkv_tokenizer *t)
{
    if (!t) return;
    wordpiece_free(t->t);
    bpe_free(t->bpe);
    json_bpe_free(t->json);
    mem_free(t);
}

int qkv_tokenizer_encode(const qkv_tokenizer *t, const char *text, int64_t *ids, int capacity, qkv_error *err)
{
    Err e = vision_begin();
    if (!GIVEN(t) || !GIVEN(text) || !GIVEN_LIST(ids, capacity)) {
        vision_give(&e, err);
        return -1;
    }
    int n = t->json  ? json_bpe_encode(t->json, text, ids, capacity, &e)
            : t->bpe ? bpe_encode(t->bpe, text, ids, capacity, &e)
                     : wordpiece_encode(t->t, text, ids, capacity, &e);
    if (n < 0) vision_give(&e, err);
    return n;
}

int64_t qkv_tokenizer_size(const qkv_tokenizer *t) { return t && t->json ? json_bpe_size(t->json) : 0; }

const char *qkv_tokenizer_bytes(const qkv_tokenizer *t, int64_t id, size_t *n)
{
    return t && t->json && n ? json_bpe_bytes(t->json, id, n) : NULL;
}

int qkv_tokenizer_is_special(const qkv_tokenizer *t, int64_t id)
{
    return t && t->json && json_bpe_is_special(t->json, id);
}

int64_t qkv_tokenizer_find(const qkv_tokenizer *t, const char *token)
{
    return t && t->json && token ? json_bpe_find(t->json, token) : -1;
}
