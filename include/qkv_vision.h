/* libqkv_vision: pictures, tokenizers, choosing tokens, and finding what a text names in a picture. A separate library,
 * built on libqkv. */
#ifndef QKV_VISION_H
#define QKV_VISION_H
#include "qkv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- pictures as inputs */

/* A PNG or JPEG (upright as its EXIF says) as float32 (channels, height, width): converted to 1 or 3 channels, resized
 * with an antialiased triangle filter, x/255, then (x - mean[c]) / std[c]; mean and std may be NULL (0 and 1). out has
 * channels*height*width floats. */
QKV_API qkv_status qkv_image_read(const char *path, int channels, int height, int width, const float *mean,
                                  const float *std, float *out, qkv_error *err);

/* ---------------------------------------------------------------- text */

typedef struct qkv_tokenizer qkv_tokenizer;
/* BERT's WordPiece from a vocab.txt (one token per line). lowercase also strips accents, as BertTokenizer with
 * do_lower_case. */
QKV_API qkv_tokenizer *qkv_tokenizer_wordpiece(const char *vocab_path, int lowercase, qkv_error *err);
/* CLIP's byte-level BPE from its merges as text (bpe_simple_vocab_16e6.txt, merges.txt: one pair per line). hf 0:
 * cleans texts as OpenAI's tokenizer and SAM 3's do (entities, quotes, ligatures, widths) and pads with 0; 1: as
 * transformers' CLIPTokenizer (NFC) and pads with <end>. */
QKV_API qkv_tokenizer *qkv_tokenizer_clip(const char *merges_path, int hf, qkv_error *err);
/* The byte-level BPE of a tokenizer.json (GPT-2, Llama 3, Qwen ...). Another kind of tokenizer is QKV_UNSUPPORTED. */
QKV_API qkv_tokenizer *qkv_tokenizer_json(const char *path, qkv_error *err);
QKV_API void qkv_tokenizer_free(qkv_tokenizer *t);
/* WordPiece: [CLS] text [SEP], at most `capacity` ids (the text is cut, [SEP] stays); returns how many ids were
 * written, or -1 on error. CLIP: <start> text <end> and padding, always `capacity` ids; returns how many ids the whole
 * text needs: more than `capacity` when it was cut, 2 when it has no tokens. tokenizer.json: the ids of `tokenizers`,
 * with the special tokens that the file adds; returns how many there are, of which at most `capacity` are written. */
QKV_API int qkv_tokenizer_encode(const qkv_tokenizer *t, const char *text, int64_t *ids, int capacity, qkv_error *err);
/* Of a tokenizer.json: the largest id + 1 (0 for the other kinds); the bytes that an id stands for, which may be part
 * of a UTF-8 character (NULL for an id that there is not); whether it is a special token; a token's id (-1: there is
 * none). */
QKV_API int64_t qkv_tokenizer_size(const qkv_tokenizer *t);
QKV_API const char *qkv_tokenizer_bytes(const qkv_tokenizer *t, int64_t id, size_t *n);
QKV_API int qkv_tokenizer_is_special(const qkv_tokenizer *t, int64_t id);
QKV_API int64_t qkv_tokenizer_find(const qkv_tokenizer *t, const char *token);

/* ---------------------------------------------------------------- choosing the next token */

typedef struct qkv_sample_options {
    size_t struct_size; /* sizeof(qkv_sample_options) */
    double temperature; /* 0: the largest logit, the lowest id of equal ones */
    int64_t top_k;      /* only the k largest; 0: all */
    double top_p;       /* of those, the fewest whose shares reach it; 0 or 1: all */
} qkv_sample_options;
/* A position in n logits, drawn with splitmix64, whose state goes on: set *state to a seed before the first call. NaN
 * is never chosen. options NULL: the largest. -1 on error. */
QKV_API int64_t qkv_sample(const float *logits, int64_t n, const qkv_sample_options *options, uint64_t *state,
                           qkv_error *err);

/* ---------------------------------------------------------------- what a text names in a picture */

typedef struct qkv_picture qkv_picture; /* 8-bit RGB */
/* A PNG or JPEG; alpha is dropped, 16 bits are reduced to 8, gray becomes RGB, and a JPEG is turned upright as its EXIF
 * data says. */
QKV_API qkv_picture *qkv_picture_read(const char *path, qkv_error *err);
/* The same from the bytes of a file; one of more than `pixels` (0: 2^28) is QKV_LIMIT and not decoded. */
QKV_API qkv_picture *qkv_picture_read_memory(const void *bytes, size_t n, int64_t pixels, qkv_error *err);
/* A copy of pixels (height, width, channels) of 1 (gray) or 3 channels, row by row. */
QKV_API qkv_picture *qkv_picture_create(const uint8_t *pixels, int height, int width, int channels, qkv_error *err);
QKV_API void qkv_picture_free(qkv_picture *p);
QKV_API int qkv_picture_width(const qkv_picture *p);
QKV_API int qkv_picture_height(const qkv_picture *p);
QKV_API const uint8_t *qkv_picture_rgb(const qkv_picture *p); /* (height, width, 3) */
QKV_API qkv_status qkv_picture_write(const qkv_picture *p, const char *path,
                                     qkv_error *err); /* a PNG, written completely or not at all */
/* out (3, height, width): resized in 8 bits, bilinear with antialias, as torchvision does on uint8 tensors; then (x /
 * 255 - mean[c]) / std[c]. */
QKV_API qkv_status qkv_picture_input(const qkv_picture *p, int height, int width, const float *mean, const float *std,
                                     float *out, qkv_error *err);

typedef struct qkv_segment_options {
    size_t struct_size;    /* sizeof(qkv_segment_options) */
    const char *tokenizer; /* CLIP's merges as text; NULL: the file's own, its extra file "qkv/tokenizer.bpe" */
    /* JSON {"contract": "meta" | "hf", "image": {"height", "width", "mean", "std"}, "text": {"length"},
     * "score_threshold", "mask_threshold", "box_format", "mask_resize"}, all but contract optional (docs/SAM3.md);
     * NULL: the file's own, its extra file "qkv/processor.json" */
    const char *processor;
    double threshold; /* keep scores above this; 0: the processor's */
    /* pictures with a side above `tile` pixels are cut into tiles of that side, which overlap by `overlap` pixels; 0:
     * never */
    int tile, overlap;
    /* called at the start and after every run of the model: how many of the call's pictures or tiles are done */
    void (*progress)(void *user, int done, int total);
    void *progress_user;
    /* pictures or tiles per run of the model, as far as the model allows; 0: as many as need at most 1 GiB of
     * activations, up to 16 */
    int batch;
    /* Bytes of what the model computes from a picture alone that are kept of the pictures looked at last, for further
     * texts (0: none). Pictures are told apart by what the model sees of them, byte by byte. Each picture or tile is
     * then a run of its own, and texts are encoded again for each. */
    size_t features;
} qkv_segment_options;

/* A grounding model as qkv.recipes.sam3 exports it: pictures (B, 3, H, W) and token ids (P, context) in; logits, boxes,
 * masks and presence out. Uses m and s, which must outlive it; one thread at a time. The session keeps the ids
 * (qkv_session_keep), so texts are encoded once for all pictures. */
typedef struct qkv_segmenter qkv_segmenter;
QKV_API qkv_segmenter *qkv_segmenter_create(const qkv_model *m, qkv_session *s, const qkv_segment_options *options,
                                            qkv_error *err);
QKV_API void qkv_segmenter_free(qkv_segmenter *g);
QKV_API double qkv_segmenter_threshold(const qkv_segmenter *g);
/* Keep scores above x from now on; 0: those that the segmenter was made with. */
QKV_API qkv_status qkv_segmenter_set_threshold(qkv_segmenter *g, double x, qkv_error *err);
QKV_API int qkv_segmenter_context(const qkv_segmenter *g); /* ids of a prompt */
/* What to look for from now on. tokens (may be NULL) receives how many ids each text needs; a text that needs more than
 * the context was cut. */
QKV_API qkv_status qkv_segmenter_prompts(qkv_segmenter *g, const char *const *texts, int n, int *tokens,
                                         qkv_error *err);

typedef struct qkv_instance {
    int prompt;         /* which text */
    double score;       /* sigmoid(logit) * sigmoid(presence) */
    double box[4];      /* x0, y0, x1, y1 in the picture's pixels, not clipped */
    int64_t area;       /* pixels of the mask */
    const char *counts; /* the mask: COCO's compressed run lengths, as pycocotools */
} qkv_instance;
typedef struct qkv_instances qkv_instances;
/* Every instance of every prompt, ordered by prompt, then by score. */
QKV_API qkv_instances *qkv_segmenter_run(qkv_segmenter *g, const qkv_picture *p, qkv_error *err);
/* The same for n pictures, whose parts go through the model in batches; found[i] belongs to p[i]; all are NULL on
 * failure. */
QKV_API qkv_status qkv_segmenter_run_many(qkv_segmenter *g, const qkv_picture *const *p, int n, qkv_instances **found,
                                          qkv_error *err);
/* How many pictures or tiles go through the model at once at present; where the options leave it open, 1 until a first
 * run has shown how much memory one needs. */
QKV_API int qkv_segmenter_batch(const qkv_segmenter *g);
/* How many pictures or tiles the model looked at until now, and of how many it had the features. */
QKV_API void qkv_segmenter_features(const qkv_segmenter *g, int64_t *looked, int64_t *had);
QKV_API void qkv_instances_free(qkv_instances *i);
QKV_API int qkv_instances_count(const qkv_instances *i);
QKV_API const qkv_instance *qkv_instances_at(const qkv_instances *i, int k);
QKV_API void qkv_instances_mask(const qkv_instances *i, int k,
                                uint8_t *out); /* (height, width) of the picture, 0 or 1 */
/* A PNG of mask k, 0 and 255. */
QKV_API qkv_status qkv_instances_write_mask(const qkv_instances *i, int k, const char *path, qkv_error *err);
/* The picture with masks, boxes and scores in a colour per prompt, and a legend below. */
QKV_API qkv_picture *qkv_instances_overlay(const qkv_instances *i, const qkv_picture *p, const char *const *texts,
                                           int n, qkv_error *err);

#ifdef __cplusplus
}
#endif
#endif
