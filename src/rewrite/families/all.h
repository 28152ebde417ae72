/* Every family that the library has, in the order in which their rules are tried. */
#ifndef QKV_REWRITE_FAMILIES_ALL_H
#define QKV_REWRITE_FAMILIES_ALL_H
#include "rewrite/family.h"

extern const Family *const families_all[]; /* NULL after the last */
#endif
