/* What surrounds a grounding model: sizes, normalisation, thresholds, and whose conventions its outputs follow.
 *
 *     Processor p;
 *     processor_read(&p, bytes, size, err);      JSON as qkv.recipes.sam3 writes it (docs/SAM3.md); all but
 *                                                "contract" is optional
 */
#ifndef QKV_VISION_PROCESSOR_H
#define QKV_VISION_PROCESSOR_H
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum { PROCESSOR_MAX_SIDE = 1 << 14 };

typedef struct Processor {
    int64_t height, width, context, vocabulary; /* of the picture; ids of a text; ids that there are. 0: not said */
    float mean[3], std[3];
    double threshold, mask_threshold;
    bool hf, corners, sigmoid_first;
} Processor;

bool processor_read(Processor *p, const void *bytes, size_t size, Err *err);
#endif
