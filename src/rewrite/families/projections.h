/* Graft functions of the module rules (rules/modules.rules): views that fold, parallel projections that become one. */
#ifndef QKV_REWRITE_FAMILIES_PROJECTIONS_H
#define QKV_REWRITE_FAMILIES_PROJECTIONS_H
#include "rewrite/build.h"

GraftFn make_views;        /* a view of views: the same elements by fewer of them */
GraftFn make_linear_first; /* a linear of a permuted value: the permute comes after it */
GraftFn make_packed;       /* which, the results of parallel linears: that one as a slice of one linear */
#endif
