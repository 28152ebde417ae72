/* What src/run/random.c needs of a session beside its public face. */
#ifndef QKV_RUN_SESSION_IMPL_H
#define QKV_RUN_SESSION_IMPL_H
#include "run/session.h"

const Graph *session_graph(const Session *s);
/* Memory for input i, kept by the session; NULL when out of memory. */
void *session_own_input(Session *s, int i, size_t bytes);
#endif
