/* Writing files with certificates (docs/PROOF.md), for what saves models.
 *
 *     certified_write(source, NULL, "m.onnx", true, write, user, &certificate, err)
 */
#ifndef QKV_API_CERTIFIED_H
#define QKV_API_CERTIFIED_H
#include "base/buf.h"
#include "model/source.h"
#include "qkv.h"

/* Writes the file to path, with the certificate in it where there is one. */
typedef bool CertifiedFn(void *user, const char *path, const Buf *certificate, Err *err);
/* Writes twice: beside path, to see what the file as it is read again is to the source, and to path; the file beside it
 * is there until then. */
bool certified_write(const qkv_model *source, const char *rewriting, const char *path, bool onnx, CertifiedFn *write,
                     void *user, Buf *certificate, Err *err);
void certified_drop(Extras *x); /* a certificate among them: it is about another file */
#endif
