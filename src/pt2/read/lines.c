/* The lines of Python that made the nodes of a .pt2, from the stack that torch.export keeps with each. The innermost
 * frame of '  File "/m.py", line 31, in forward\n    return x @ w\n' is
 *
 *     "/m.py:31 in forward: return x @ w"
 */
#include <string.h>
#include "pt2/read/read_impl.h"

/* NULL: the stack holds no frame. */
static const char *innermost_line(Arena *a, const char *stack)
{
    const char *frame = NULL, *at = stack;
    while ((at = strstr(at, "File \""))) frame = at += 6;
    if (!frame) return NULL;
    int file = (int)strcspn(frame, "\"");
    const char *number = strstr(frame, "\", line "), *in = number ? strstr(number, ", in ") : NULL;
    if (!in) return NULL;
    number += 8;
    in += 5;
    int function = (int)strcspn(in, "\n");
    const char *code = in + function;
    code += strspn(code, " \n");
    return arena_printf(a, "%.*s:%.*s in %.*s: %.*s", file, frame, (int)strcspn(number, ","), number, function, in,
                        (int)strcspn(code, "\n"), code);
}

bool note_line(Import *im, const json_t *node, int mark)
{
    const char *stack = json_string_value(json_object_get(json_object_get(node, "metadata"), "stack_trace"));
    const char *line = stack ? innermost_line(im->g->arena, stack) : NULL;
    if (!line) return true;
    for (const Node *n = im->g->last; n && (!n->nout || n->out[0]->id >= mark); n = n->prev) {
        if (!n->nout || map_has(&im->pt2->lines, n->name)) continue; /* of a body: noted by its own node */
        if (!map_put(&im->pt2->lines, n->name, (void *)(uintptr_t)line)) return oom(im->err);
    }
    return true;
}
