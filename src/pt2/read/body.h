/* Graphs that loops and branches of a .pt2 run, in the making (control.c), and what vmap makes of them.
 *
 *     Body b;
 *     body_open(&b, im, scope);
 *     body_operand(&b, CAPTURED, "w", outer, NULL, &inner);      nodes are imported with &b.im
 *     body_close(&b, ok);                                        b.im.g is the graph, b.given its operands outside
 */
#ifndef QKV_PT2_READ_BODY_H
#define QKV_PT2_READ_BODY_H
#include "pt2/read/read_impl.h"

typedef enum How { CARRIED, SLICED, CAPTURED, HOWS } How;

typedef struct Body {
    Import im; /* of its graph */
    Import *outer;
    Scope *around;
    Value **given[HOWS]; /* operands outside, in the order of the body's inputs */
    int ngiven[HOWS];
    Map sizes; /* a size outside, by id, that is a symbol of its own inside */
} Body;

bool body_open(Body *b, Import *outer, Scope *around);
bool body_close(Body *b, bool ok); /* ok: checks the graph; otherwise frees it */
bool body_count_inputs(Body *b);   /* the first two of a loop's: its turn and its condition */
/* An operand as the body knows it. Numbers that are carried, or that the body cannot compute, are tensors of rank 0. */
bool body_operand(Body *b, How how, const char *name, const Slot *outer, const bool *varies, Slot *inner);
bool body_result(Body *b, const Slot *s);

/* batch.c: a map (the arguments of its qkv.loop) as its ops with one more axis, where all of them have such a form. */
bool map_batched(Graph *g, const Graph *body, const Arg *loop, Value **out, bool *done, Err *err);
#endif
