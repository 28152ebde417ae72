/* Results of kept inputs as objects of the caller. Contract in qkv_tools.h. */
#include "api/api_impl.h"
#include "base/given.h"
#include "base/mem.h"
#include "qkv_tools.h"
#include "run/session.h"

struct qkv_kept {
    KeptResults *results;
};

qkv_kept *qkv_session_kept(qkv_session *s, qkv_error *err)
{
    Err e = api_begin();
    if (!api_enter(s, &e)) return api_null(&e, err);
    qkv_kept *k = mem_zeroed(1, sizeof *k);
    bool ok = k || oom(&e);
    ok = ok && (k->results = session_kept_results(s->session, &e));
    if (!ok) mem_free(k);
    api_done(s, ok, &e, err);
    return ok ? k : NULL;
}

size_t qkv_kept_bytes(const qkv_kept *k) { return k ? kept_results_bytes(k->results) : 0; }

qkv_status qkv_session_use_kept(qkv_session *s, const qkv_kept *k, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(k) || !api_enter(s, &e)) return api_give(&e, err);
    session_use_kept(s->session, k->results);
    return api_done(s, true, &e, err);
}

void qkv_kept_free(qkv_kept *k)
{
    if (!k) return;
    kept_results_free(k->results);
    mem_free(k);
}
