/* Which part of a model a node belongs to, by the names of the weights that it uses.
 *
 *     const char **module = modules_of(g);      one block, mem_free() it; NULL without memory
 *     module[n->out[0]->id]                     "vision_encoder" of "model.vision_encoder.layers.3.fc1.weight"; ""
 *                                               when no name says anything
 *
 * A weight's module path is its name in the state dict without the last component. What all paths of a graph begin with
 * is left out, and so is what follows the next component; a number gets the component before it ("layers.3"). A node
 * that uses no weight is of the module of the node before it.
 */
#ifndef QKV_RUN_MODULE_NAMES_H
#define QKV_RUN_MODULE_NAMES_H
#include "ir/graph.h"

const char **modules_of(const Graph *g);
#endif
