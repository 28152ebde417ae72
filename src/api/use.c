/* One thread at a time in a session: found out, not left to chance. Contract in api_impl.h. */
#include "api/api_impl.h"

/* A thread's name, which no other has: also none that a child of fork() makes, whose stack may lie where that of a
 * thread lay that was in a call when the child was made. */
static uintptr_t name_of_thread(void)
{
    static atomic_uintptr_t last;
    static _Thread_local uintptr_t name;
    if (!name) name = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    return name;
}

static qkv_session *own(const qkv_session *s) { return (qkv_session *)(uintptr_t)s; }

static bool take(const qkv_session *s)
{
    uintptr_t me = name_of_thread(), nobody = 0;
    atomic_uintptr_t *user = &own(s)->user;
    if (atomic_compare_exchange_strong_explicit(user, &nobody, me, memory_order_acquire, memory_order_relaxed))
        return true;
    if (nobody != me) return false;
    own(s)->depth++; /* a callback of the call that this thread is in */
    return true;
}

bool api_enter(const qkv_session *s, Err *err)
{
    TRY(was_given(s, "a call on a session", "the session", err));
    return take(s) || fail(err, E_USAGE,
                           "another thread is in a call on this session: give each thread a session of its own "
                           "(they share the model), or let one wait for the other");
}

bool api_enter_silent(const qkv_session *s)
{
    if (!s) return false;
    bool ok = take(s);
    if (!ok) atomic_store_explicit(&own(s)->disturbed, true, memory_order_relaxed);
    return ok;
}

void api_leave(const qkv_session *s)
{
    if (s->depth) own(s)->depth--;
    else atomic_store_explicit(&own(s)->user, 0, memory_order_release);
}

qkv_status api_done(const qkv_session *s, bool ok, Err *e, qkv_error *err)
{
    atomic_bool *flag = &own(s)->disturbed;
    bool disturbed = atomic_load_explicit(flag, memory_order_relaxed) && atomic_exchange(flag, false);
    api_leave(s);
    if (ok && disturbed)
        ok = fail(e, E_USAGE,
                  "another thread changed, read or freed this session during the call, which was not done: "
                  "give each thread a session of its own");
    return ok ? QKV_OK : api_give(e, err);
}
