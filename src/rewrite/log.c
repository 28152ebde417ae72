/* Logs of rewriting: firings, what was left and refused, of bodies and of one pass after another. See rewrite.h. */
#include <string.h>
#include "base/vec.h"
#include "rewrite/build.h"
#include "rewrite/rewrite.h"

bool rewrite_log_refused(RewriteLog *log, Refused r)
{
    Refused *grown = vec_room(log->arena, log->refused, log->nrefused, sizeof *grown);
    if (!grown || !r.rule || !r.node || !r.reason) return false;
    log->refused = grown;
    log->refused[log->nrefused++] = r;
    return true;
}

const Left *left_named(const Left *left, int n, const char *node)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(left[i].node, node)) return &left[i];
    return NULL;
}

static bool append_refused(RewriteLog *log, const RewriteLog *more)
{
    for (int i = 0; i < more->nrefused; i++)
        if (!rewrite_log_refused(log, more->refused[i])) return false;
    return true;
}

bool rewrite_log_add(RewriteLog *log, const RewriteLog *body)
{
    for (int i = 0; i < body->nfirings; i++) {
        Firing *x = rewrite_new_firing(log);
        if (!x) return false;
        *x = body->firing[i];
    }
    Left *left = arena_array(log->arena, Left, log->nleft + body->nleft + 1);
    if (!left) return false;
    for (int i = 0; i < log->nleft + body->nleft; i++)
        left[i] = i < log->nleft ? log->left[i] : body->left[i - log->nleft];
    log->left = left;
    log->nleft += body->nleft;
    if (!append_refused(log, body)) return false;
    log->fused += body->fused;
    log->nodes_before += body->nodes_before;
    log->nodes_after += body->nodes_after;
    return true;
}

bool rewrite_log_append(RewriteLog *log, const RewriteLog *then)
{
    for (int i = 0; i < then->nfirings; i++) {
        Firing *x = rewrite_new_firing(log);
        if (!x) return false;
        *x = then->firing[i];
    }
    Left *left = NULL;
    for (int i = 0; i < then->nleft; i++) { /* the earlier log knows why */
        const Left *said = left_named(log->left, log->nleft, then->left[i].node);
        if (!(left = vec_room(log->arena, left, i, sizeof *left))) return false;
        left[i] = said ? *said : then->left[i];
    }
    log->left = left;
    log->nleft = then->nleft;
    if (!append_refused(log, then)) return false;
    log->fused = then->fused;
    log->nodes_after = then->nodes_after;
    return true;
}

void rewrite_log_free(RewriteLog *log)
{
    arena_destroy(log->arena);
    *log = (RewriteLog){0};
}
