/* Locks that a child of fork() finds free: there, the threads that held them are gone.
 *
 *     ForkLock lock;
 *     fork_lock_init(&lock);
 *     fork_lock_take(&lock);       what is changed under it must be whole at any moment: in a child, it may stop there
 *     fork_lock_leave(&lock);
 */
#ifndef QKV_BASE_FORKS_H
#define QKV_BASE_FORKS_H
#include <pthread.h>
#include <stdatomic.h>

typedef struct ForkLock {
    pthread_mutex_t mutex;
    atomic_uint forks; /* between the first process and the one that made the mutex */
} ForkLock;

void fork_lock_init(ForkLock *l);
void fork_lock_take(ForkLock *l);
void fork_lock_leave(ForkLock *l);
#endif
