/* From the four outputs of a grounding model to instances in pixels: SAM 3's post-processing.
 *
 *     InstanceRule rule = {.width = im.width, .height = im.height, .threshold = 0.5, .mask_threshold = 0.5};
 *     instances_add(&list, &rule, &outputs, prompt, err);      keeps score > threshold, appends, best first
 *     instance_mask(&list.item[0], out);                       0 or 1, (height, width)
 *
 * score = sigmoid(logit) * sigmoid(presence). Masks are resized bilinearly (align_corners false) to the picture: logits
 * before the sigmoid (facebookresearch/sam3), or probabilities (sigmoid_first, transformers). Boxes are relative: cx cy
 * w h, or x0 y0 x1 y1 with corners.
 */
#ifndef QKV_VISION_INSTANCES_H
#define QKV_VISION_INSTANCES_H
#include <stdint.h>
#include "base/buf.h"

typedef struct Instance {
    int prompt;
    double score, box[4]; /* x0 y0 x1 y1 in pixels, as the model says: parts may lie outside */
    int width, height;    /* of the mask */
    int seen[4];          /* x0 y0 x1 y1 of what the model looked at when it found it */
    int64_t area;         /* pixels in the mask */
    uint32_t *run;        /* lengths of 0s and 1s in turn, column by column, first the 0s (COCO's RLE); owned */
    int runs;
} Instance;

typedef struct Instances {
    Instance *item;
    int n;
} Instances;

typedef struct InstanceRule {
    int width, height;           /* of the mask made: the picture, or the tile that the model saw */
    int x, y;                    /* where that tile lies in a picture ... */
    int full_width, full_height; /* ... of this size; 0: the tile is the picture */
    double threshold, mask_threshold;
    bool corners, sigmoid_first;
} InstanceRule;

typedef struct GroundingOutputs {        /* of one picture and one prompt */
    const float *logits, *boxes, *masks; /* (queries), (queries, 4), (queries, mask_height, mask_width), contiguous */
    float presence;
    int64_t queries;
    int mask_height, mask_width;
} GroundingOutputs;

bool instances_add(Instances *list, const InstanceRule *rule, const GroundingOutputs *out, int prompt, Err *err);
void instances_free(Instances *list);
/* Joins instances of one prompt that were found in different tiles and are the same where both tiles lie:
 * there the intersection is above `share` of the smaller area. The mask is their union, the score the larger. */
bool instances_merge(Instances *list, double share, Err *err);
void instance_mask(const Instance *in, uint8_t *out); /* (height, width), 0 or 1 */
bool instance_counts(const Instance *in, Buf *out);   /* COCO's compressed text of the runs, as pycocotools writes it */
#endif
