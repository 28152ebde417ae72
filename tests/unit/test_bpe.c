/* CLIP's BPE: ids equal to transformers' CLIPTokenizer and to OpenAI's SimpleTokenizer (bpe_cases.h),
 * merges that are none, texts that are not UTF-8. */
#include "unit.h"
#include "vision/bpe.h"
#include "bpe_cases.h"

static Bpe *open_text(const char *text, ClipStyle style)
{
    Err err = {0};
    Bpe *b = bpe_open(text, strlen(text), style, &err);
    OK(b);
    return b;
}

static void expect_ids(const Bpe *b, const char *text, int room, int n, const int *want, int pad)
{
    Err err = {0};
    int64_t id[161];
    for (int i = 0; i < 161; i++) id[i] = -7;
    int have = bpe_encode(b, text, id, room, &err), at = 0;
    while (have == n && at < room && id[at] == (at < n ? want[at] : pad)) at++;
    if (have != n || at < room || id[room] != -7)
        STOP("'%s', room %d: %d ids, expected %d; at %d %lld, expected %d; %s", text, room, have, n, at,
             (long long)id[at], at < n ? want[at] : pad, err.msg);
}

static void test_styles(void **state)
{
    (void)state;
    Bpe *meta = open_text(merges, CLIP_META), *hf = open_text(merges, CLIP_HF);
    int end = bpe_vocabulary(hf) - 1;
    assert_int_equal(end, 512 + 500 + 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_ids(meta, cases[i].text, cases[i].room, cases[i].n_meta, cases[i].meta, 0);
        expect_ids(hf, cases[i].text, cases[i].room, cases[i].n_hf, cases[i].hf, end);
    }
    bpe_free(meta);
    bpe_free(hf);
}

static void test_merges(void **state)
{
    (void)state;
    Err err = {0};
    static const char *const same[] = {"a b\nab c</w>\n", "#version: 0.2\na b\nab c</w>", "a b\r\nab c</w>\r\n",
                                       "\"x#version: 0.2\n\na b\n\nab c</w>\n\n"};
    for (int i = 0; i < 4; i++) {
        Bpe *b = open_text(same[i], CLIP_META);
        assert_int_equal(bpe_vocabulary(b), 516);
        expect_ids(b, "abc", 4, 3, (int[]){514, 513, 515}, 0);
        expect_ids(b, "ab", 5, 4, (int[]){514, 64, 65 + 256, 515}, 0);
        bpe_free(b);
    }
    static const char *const refused[] = {"",   "\n",   "#version\n", "ab",         "a b c",        "a ",
                                          " b", "a  b", "ab c",       "a b\na b\n", "a b\nabc d\n", "\xff \xfe\n"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        REFUSED(bpe_open(refused[i], strlen(refused[i]), CLIP_HF, &err), E_FORMAT);
    bpe_free(NULL);
}

static void test_bytes(void **state)
{
    (void)state;
    Err err = {0};
    int64_t id[33];
    for (int style = 0; style < 2; style++) {
        Bpe *b = open_text(merges, (ClipStyle)style);
        uint64_t r = 7;
        for (int round = 0; round < 20000; round++) {
            size_t n = unit_random(&r) % 60;
            char *text = malloc(n + 1); /* so that the sanitizer sees its end */
            for (size_t i = 0; i < n; i++) {
                text[i] = unit_random(&r) % 3 ? (char)unit_random(&r) : "<>&#x;|'s"[unit_random(&r) % 9];
                if (!text[i]) text[i] = ' ';
            }
            text[n] = 0;
            int have = bpe_encode(b, text, id, 32, &err);
            assert_in_range(have, 2, 1000);
            assert_int_equal(id[0], 1012);
            assert_int_equal(id[have < 32 ? have - 1 : 31], 1013);
            for (int i = 0; i < 32; i++) assert_in_range(id[i], 0, 1013);
            free(text);
        }
        char *long_text = malloc((1 << 16) + 2);
        memset(long_text, 'i', (1 << 16) + 1);
        long_text[(1 << 16) + 1] = 0;
        assert_int_equal(bpe_encode(b, long_text, id, 32, &err), -1);
        assert_int_equal(err.code, E_LIMIT);
        assert_true(bpe_encode(b, long_text + 1, id, 32, &err) > 32); /* one word of 64 KiB */
        assert_int_equal(bpe_encode(b, "a", id, 1, &err), -1);
        assert_int_equal(err.code, E_USAGE);
        free(long_text);
        bpe_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_styles), cmocka_unit_test(test_merges),
                                       cmocka_unit_test(test_bytes)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
