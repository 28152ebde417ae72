/* Sentences as inputs of a text encoder, and its outputs as embeddings: qkv embed and qkv serve.
 *
 *     int role[ROLES];
 *     if (!text_roles(model, role, err)) return false;          input_ids is input role[ROLE_IDS]
 *     text_pool(&hidden, row, length, false, out);              the mean of its tokens, of length 1
 */
#ifndef QKV_SERVE_TEXT_H
#define QKV_SERVE_TEXT_H
#include "qkv.h"
#include "tensor/tensor.h"

enum { TEXT_TOKENS = 512 }; /* of a text, unless more are asked for */

/* What an input of the model is for, by the names that BERT-like exports use. */
typedef enum Role { ROLE_IDS, ROLE_MASK, ROLE_TYPES, ROLE_POSITIONS, ROLES } Role;

/* role[r]: which input it is; -1: the model has none. E_USAGE for an input with another name, one whose rank is not 2,
 * and where there are no ids. */
bool text_roles(const qkv_model *m, int role[ROLES], Err *err);
/* What input r holds at token k of a text of `length` ids. */
int64_t text_value(Role r, const int64_t *ids, int length, int64_t k);
/* Which output embeds: the first that is (batch, tokens, E), else the first that is (batch, E). rank: of each of n
 * outputs, 0 where its first sizes are others. -1: none. */
int text_output(const int *rank, int n);
/* out (E): row `row` of y, (rows, tokens, E) or (rows, E), scaled to length 1. Of tokens: the mean of the first
 * `length`, or with cls the first one. */
void text_pool(const Tensor *y, int64_t row, int64_t length, bool cls, float *out);
void text_normalize(float *v, int64_t n);
/* A tensor of the interface, as the library's rooms have them. */
Tensor tensor_from(const qkv_tensor *t);
#endif
