/* What the files of src/picture share: the boxes and edges of a picture. */
#ifndef QKV_PICTURE_PICTURE_IMPL_H
#define QKV_PICTURE_PICTURE_IMPL_H
#include "picture/picture.h"

typedef enum BoxKind {
    BOX_NODE,    /* one that was asked for */
    BOX_OUTSIDE, /* a node beside those */
    BOX_INPUT,
    BOX_OUTPUT
} BoxKind;

typedef struct Box {
    BoxKind kind;
    const Node *node;   /* NULL of inputs and outputs */
    const Value *value; /* the input, or the first result */
    const char *name;   /* of an output: "output_0" or its label */
} Box;

typedef struct Edge {
    int from, to; /* boxes */
    const Value *value;
} Edge;

typedef struct Picture {
    const Graph *g;
    Arena *a;
    Box *box;
    int nbox;
    Edge *edge;
    int nedge;
    Err *err;
} Picture;

/* s with its hidden characters written out (base/hidden.h) but for those of `kept`. */
void picture_plain(const char *s, const char *kept, Buf *out);

/* Where layout.c puts things, in pixels: boxes by their middle, edges as points. */
typedef struct Placed {
    int x, y, w;
} Placed;
typedef struct Route {
    int first, n; /* of Layout.point */
} Route;
typedef struct Layout {
    Placed *box;
    Route *route;
    Placed *point;
    int npoint, width, height;
} Layout;
enum { BOX_HEIGHT = 46, LAYER_GAP = 30 };
bool picture_layout(Picture *p, const int *width, Layout *out); /* width: by box */

bool picture_shown(const Graph *g, const PictureOptions *o, unsigned char *shown, Err *err); /* by id of first result */
bool picture_open(Picture *p, const Graph *g, const PictureOptions *o, Err *err); /* boxes in the graph's order */
void picture_close(Picture *p);
const char *picture_op(const Node *n, char *buf, size_t size); /* "linear" of aten.linear.default */
void picture_type(const Graph *g, const Value *v, Buf *out);   /* "f32[s0, 4]" */
#endif
