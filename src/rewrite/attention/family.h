/* Attention as it plugs into the engine: rules, guards, graft functions, its backward pass, what stays spelled out. */
#ifndef QKV_REWRITE_ATTENTION_FAMILY_H
#define QKV_REWRITE_ATTENTION_FAMILY_H
#include "rewrite/family.h"

extern const Family attention_family, safe_softmax_family;
#endif
