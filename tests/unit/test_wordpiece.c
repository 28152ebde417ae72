/* BERT's WordPiece: ids equal to BertTokenizer's (wordpiece_cases.h), vocabularies, and texts that are not UTF-8. */
#include "unit.h"
#include "vision/wordpiece.h"
#include "wordpiece_cases.h"

static Tokenizer *open_text(const char *vocab, bool lowercase)
{
    Err err = {0};
    Tokenizer *t = wordpiece_open(unit_file(vocab, strlen(vocab)), lowercase, &err);
    OK(t);
    return t;
}

static void expect_ids(const Tokenizer *t, const char *text, int room, int n, const int *want)
{
    Err err = {0};
    int64_t id[160];
    for (int i = 0; i < 160; i++) id[i] = -7;
    int have = wordpiece_encode(t, text, id, room, &err);
    bool same = have == n;
    for (int i = 0; same && i < n; i++) same = id[i] == want[i];
    if (same && id[room] == -7) return;
    for (int i = 0; i < (have > n ? have : n); i++)
        print_error("%d: %lld, expected %d\n", i, i < have ? (long long)id[i] : -1, i < n ? want[i] : -1);
    STOP("'%s', room %d: %d ids, expected %d %s", text, room, have, n, err.msg);
}

static void test_lower(void **state)
{
    (void)state;
    Tokenizer *t = open_text(vocabulary, true);
    for (size_t i = 0; i < sizeof lower_cases / sizeof *lower_cases; i++)
        expect_ids(t, lower_cases[i].text, lower_cases[i].room, lower_cases[i].n, lower_cases[i].id);
    wordpiece_free(t);
}

static void test_cased(void **state)
{
    (void)state;
    Tokenizer *t = open_text(vocabulary, false);
    for (size_t i = 0; i < sizeof cased_cases / sizeof *cased_cases; i++)
        expect_ids(t, cased_cases[i].text, cased_cases[i].room, cased_cases[i].n, cased_cases[i].id);
    wordpiece_free(t);
}

static void test_cut(void **state)
{
    (void)state;
    Err err = {0};
    int64_t id[2];
    Tokenizer *t = open_text(vocabulary, true);
    for (size_t i = 0; i < sizeof cut_cases / sizeof *cut_cases; i++)
        expect_ids(t, cut_cases[i].text, cut_cases[i].room, cut_cases[i].n, cut_cases[i].id);
    assert_int_equal(wordpiece_encode(t, "a", id, 1, &err), -1);
    assert_int_equal(err.code, E_USAGE);
    assert_int_equal(wordpiece_encode(t, "a", id, -1, &err), -1);
    wordpiece_free(t);
}

static void test_too_long(void **state)
{
    (void)state;
    enum { N = (4 << 20) + 1 };
    Err err = {0};
    char *lines = malloc(N);
    assert_non_null(lines);
    memset(lines, '\n', N);
    assert_null(wordpiece_open(unit_file(lines, N), true, &err));
    assert_int_equal(err.code, E_LIMIT);
    free(lines);
}

static void test_vocabulary(void **state)
{
    (void)state;
    Err err = {0};
    static const int a[] = {1, 3, 2}, b[] = {1, 4, 2}, u[] = {1, 0, 2};
    static const char *const files[] = {"[UNK]\n[CLS]\n[SEP]\na\nb\n", "[UNK]\n[CLS]\n[SEP]\na\nb",
                                        "[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\nb\r\n"};
    for (int i = 0; i < 3; i++) { /* with and without a last newline, and with carriage returns */
        Tokenizer *t = open_text(files[i], true);
        expect_ids(t, "a", 8, 3, a);
        expect_ids(t, "B", 8, 3, b);
        expect_ids(t, "c", 8, 3, u);
        expect_ids(t, "ab", 8, 3, u); /* no ##b */
        wordpiece_free(t);
    }
    Tokenizer *t = open_text("[UNK]\n[CLS]\n[SEP]\n\na\n", true); /* an empty line counts, and is not a token */
    expect_ids(t, "a", 8, 3, (int[]){1, 4, 2});
    expect_ids(t, "", 8, 2, (int[]){1, 2});
    wordpiece_free(t);
    static const char *const refused[] = {
        "", "\n", "[UNK]\n[CLS]\n", "[CLS]\n[SEP]\n", "[UNK]\n[SEP]\na\n", "[unk]\n[cls]\n[sep]\n"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        REFUSED(wordpiece_open(unit_file(refused[i], strlen(refused[i])), true, &err), E_FORMAT);
    REFUSED(wordpiece_open("/nonexistent/vocab.txt", true, &err), E_IO);
    wordpiece_free(NULL);
}

/* Bytes that are not UTF-8 vanish; nothing reads past the end of a text. */
static void test_bytes(void **state)
{
    (void)state;
    Tokenizer *t = open_text("[UNK]\n[CLS]\n[SEP]\na\nb\n##b\n", true);
    static const char *const texts[] = {"a\xff"
                                        "b",
                                        "a\xe4\xb8"
                                        "b",
                                        "a\xc0\x80"
                                        "b",
                                        "a\xed\xa0\x80"
                                        "b",
                                        "a\xf4\x90\x80\x80"
                                        "b",
                                        "ab\xe4",
                                        "ab\xf0\x9f\x98"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) expect_ids(t, texts[i], 8, 4, (int[]){1, 3, 5, 2});
    uint64_t r = 5;
    for (int round = 0; round < 20000; round++) {
        size_t n = unit_random(&r) % 40;
        char *text = malloc(n + 1); /* so that the sanitizer sees its end */
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)(unit_random(&r) % 4 ? unit_random(&r) : 'a' + unit_random(&r) % 2);
            if (!text[i]) text[i] = ' ';
        }
        text[n] = 0;
        Err err = {0};
        int64_t id[16];
        int have = wordpiece_encode(t, text, id, 16, &err);
        assert_in_range(have, 2, 16);
        assert_true(id[0] == 1 && id[have - 1] == 2);
        for (int i = 1; i < have - 1; i++) assert_true(id[i] == 0 || (id[i] >= 3 && id[i] <= 5));
        free(text);
    }
    Err err = {0};
    int64_t id[4];
    char *long_text = malloc((1 << 24) + 2);
    memset(long_text, ' ', (1 << 24) + 1);
    long_text[(1 << 24) + 1] = 0;
    assert_int_equal(wordpiece_encode(t, long_text, id, 4, &err), -1);
    assert_int_equal(err.code, E_LIMIT);
    assert_int_equal(wordpiece_encode(t, long_text + 1, id, 4, &err), 2);
    free(long_text);
    wordpiece_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lower),      cmocka_unit_test(test_cased), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_vocabulary), cmocka_unit_test(test_bytes),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
