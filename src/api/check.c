/* Checking, as the public interface has it. Contracts in include/qkv_tools.h. */
#include <stdio.h>
#include <string.h>
#include "api/api_impl.h"
#include "program/check_file.h"
#include "verify/check.h"

const char *qkv_check_explain(const char *id) { return id ? finding_explained(id) : NULL; }
const char *qkv_check_id(int i) { return finding_name(i); }

qkv_status qkv_check(const char *path, const qkv_check_options *options, char **report, qkv_error *err)
{
    qkv_check_options given = {0};
    Err e = api_begin();
    Buf text = {0};
    CheckOptions o = {0};
    CheckCounts n = {0};
    if (report) *report = NULL;
    if (!GIVEN(path) || !VERSIONED_TAKE(qkv_check_options, strict, &given, options, &e)) return api_give(&e, err);
    o.security = given.security;
    o.full = given.full;
    o.targets = given.targets;
    bool ok = (!(o.targets & ~(unsigned)TARGETS) || fail(&e, E_USAGE, "%u is not a sum of qkv_target", o.targets)) &&
              model_check(path, &o, &text, &n, &e);
    ok = api_whole(ok, &e) && (!text.failed || oom(&e));
    int bad = n.errors + (given.strict ? n.warnings : 0);
    if (ok && bad)
        ok = fail(&e, E_MISMATCH, "%s: %d error%s, %d warning%s", path, n.errors, n.errors == 1 ? "" : "s", n.warnings,
                  n.warnings == 1 ? "" : "s");
    if (report && text.data && !text.failed && !mem_ran_out()) *report = text.data;
    else buf_free(&text);
    return ok ? QKV_OK : api_give(&e, err);
}
