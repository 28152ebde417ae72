/* The records of a .pt2, checked without the importer. */
#ifndef QKV_PT2_CHECK_CHECK_PT2_H
#define QKV_PT2_CHECK_CHECK_PT2_H
#include "format/zip.h"
#include "verify/check.h"

/* false with err: the archive holds no program that can be read. Findings go to c. */
bool check_pt2(Check *c, Zip *z, Err *err);
#endif
