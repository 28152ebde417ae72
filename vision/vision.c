/* Errors and memory between libqkv and this library. Contract in vision.h. */
#include "vision/vision.h"
#include <pthread.h>
#include <stdio.h>
#include "base/mem.h"

/* Where both libraries are linked from the same objects the hooks are in place already, and this changes nothing. */
static void take_allocator(void)
{
    qkv_allocator a = {.struct_size = sizeof a};
    qkv_get_allocator(&a);
    if (a.alloc) mem_set(&(MemHooks){a.alloc, a.grow, a.release, a.user});
}

Err vision_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, take_allocator);
    mem_begin();
    return (Err){0};
}

qkv_status vision_give(const Err *from, qkv_error *to)
{
    qkv_status s = (qkv_status)err_exit_code(from->code);
    if (to) {
        to->code = s;
        snprintf(to->message, sizeof to->message, "%s", from->msg);
    }
    return s;
}

void *vision_null(const Err *from, qkv_error *to)
{
    vision_give(from, to);
    return NULL;
}

bool vision_fail(Err *err, const qkv_error *from)
{
    static const ErrCode codes[] = {[QKV_OK] = E_OK,
                                    [QKV_MISMATCH] = E_MISMATCH,
                                    [QKV_USAGE] = E_USAGE,
                                    [QKV_UNREADABLE] = E_FORMAT,
                                    [QKV_UNSUPPORTED] = E_UNSUPPORTED,
                                    [QKV_LIMIT] = E_LIMIT};
    return fail(err, codes[from->code], "%s", from->message);
}
