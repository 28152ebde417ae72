/* What src/op/own.c needs of the table in schema.c: rows are filled, and found, by one thread at a time. */
#ifndef QKV_OP_SCHEMA_H
#define QKV_OP_SCHEMA_H
#include "op/op.h"

void op_table_lock(void);
void op_table_unlock(void);
const Op *op_find_locked(const char *name);
/* Gives the row a name and a schema, which the caller keeps, and has checked. */
void op_table_fill(OpId id, const char *name, const char *schema);
#endif
