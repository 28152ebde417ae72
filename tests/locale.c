/* Linked into every test program: with QKV_TEST_LOCALE=NAME it begins in that locale, like an embedding program that
 * called setlocale.
 *
 *     LOCPATH=$(tests/locale.sh /tmp/locale) QKV_TEST_LOCALE=de_DE.UTF-8 build/tests/unit/test_base
 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((constructor)) static void enter(void)
{
    const char *name = getenv("QKV_TEST_LOCALE");
    if (!name) return;
    if (!setlocale(LC_ALL, name) || strcmp(localeconv()->decimal_point, ",")) {
        fprintf(stderr, "QKV_TEST_LOCALE: no locale '%s' with a decimal comma; tests/locale.sh makes one\n", name);
        exit(2);
    }
    setlocale(LC_MESSAGES, "C"); /* the system's own sentences, which tests compare */
}
