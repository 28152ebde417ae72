/* Contract in forks.h. */
#include "base/forks.h"

static atomic_uint forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* The child has one thread. */
static void in_child(void)
{
    making = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_fetch_add(&forks, 1);
}
static void watch(void) { pthread_atfork(NULL, NULL, in_child); }

void fork_lock_init(ForkLock *l)
{
    pthread_once(&once, watch);
    pthread_mutex_init(&l->mutex, NULL);
    atomic_init(&l->forks, atomic_load(&forks));
}

void fork_lock_take(ForkLock *l)
{
    unsigned now = atomic_load(&forks);
    if (atomic_load(&l->forks) != now) {
        pthread_mutex_lock(&making); /* threads of the child may come here at once */
        if (atomic_load(&l->forks) != now) {
            l->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
            atomic_store(&l->forks, now);
        }
        pthread_mutex_unlock(&making);
    }
    pthread_mutex_lock(&l->mutex);
}

void fork_lock_leave(ForkLock *l) { pthread_mutex_unlock(&l->mutex); }
