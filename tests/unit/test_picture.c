/* Pictures and instances: resizing, run lengths as pycocotools writes them, what is kept, what tiles join, overlays.
 * tests/python/test_segment.py compares the same with PyTorch.
 */
#include "unit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "vision/exif.h"
#include "vision/draw.h"
#include "vision/instances.h"
#include "vision/processor.h"
#include "vision/resize.h"

/* One query with a mask as text, rows apart by '/', 1 where it is; `at` places it as a tile. */
static void add(Instances *list, const char *text, int x, int y, int full_w, int full_h, float logit, int prompt)
{
    Err err = {0};
    float mask[4096], box[4] = {0.5f, 0.5f, 1, 1};
    int w = (int)strcspn(text, "/"), h = 0, n = 0;
    for (const char *p = text; *p; p++)
        if (*p != '/') mask[n++] = *p == '1' ? 5.0f : -5.0f;
    h = n / w;
    InstanceRule rule = {.width = w,
                         .height = h,
                         .x = x,
                         .y = y,
                         .full_width = full_w,
                         .full_height = full_h,
                         .threshold = 0.5,
                         .mask_threshold = 0.5};
    GroundingOutputs out = {&logit, box, mask, 20, 1, h, w};
    OK(instances_add(list, &rule, &out, prompt, &err));
}

static void test_runs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"000/000", "6"}, {"111/111", "06"}, {"100/000", "015"}, {"010/111/010", "11120N0"}, {"1", "01"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Instances list = {0};
        Buf counts = {0};
        add(&list, cases[i][0], 0, 0, 0, 0, 2, 0);
        assert_int_equal(list.n, 1);
        assert_true(instance_counts(&list.item[0], &counts));
        assert_string_equal(counts.data, cases[i][1]);
        uint8_t mask[16];
        instance_mask(&list.item[0], mask);
        int64_t area = 0, at = 0;
        for (const char *p = cases[i][0]; *p; p++)
            if (*p != '/') {
                assert_int_equal(mask[at++], *p - '0');
                area += *p - '0';
            }
        assert_int_equal(list.item[0].area, area);
        buf_free(&counts);
        instances_free(&list);
    }
}

static void test_kept(void **state)
{
    (void)state;
    Err err = {0};
    const float logits[] = {0, 1, NAN, 3, -1, INFINITY}, boxes[24] = {0}, masks[6] = {0};
    GroundingOutputs out = {logits, boxes, masks, INFINITY, 6, 1, 1};
    InstanceRule rule = {.width = 2, .height = 2, .threshold = 0.5, .mask_threshold = 0.5};
    Instances list = {0};
    OK(instances_add(&list, &rule, &out, 4, &err));
    assert_int_equal(list.n, 3); /* a score of exactly the threshold is not above it */
    assert_true(list.item[0].score == 1 && list.item[1].score > list.item[2].score && list.item[2].prompt == 4);
    assert_int_equal(list.item[0].area, 0); /* nor is a mask of exactly 0.5 */
    instances_free(&list);
    out.presence = 0; /* half of every score */
    OK(instances_add(&list, &rule, &out, 0, &err));
    assert_int_equal(list.n, 0);
    instances_free(&list);
}

static void test_tiles(void **state)
{
    (void)state;
    Err err = {0};
    Instances list = {0};
    add(&list, "0011/0011", 0, 0, 6, 2, 2, 0); /* columns 0 to 3, and 2 to 5 */
    add(&list, "1110/1100", 2, 0, 6, 2, 3, 0);
    add(&list, "0011/0011", 0, 0, 6, 2, 2, 1); /* another prompt */
    add(&list, "0001/0001", 2, 0, 6, 2, 2, 0); /* another thing: nothing of it where both tiles lie */
    OK(instances_merge(&list, 0.5, &err));
    assert_int_equal(list.n, 3);
    uint8_t mask[12];
    instance_mask(&list.item[0], mask);
    static const uint8_t joined[] = {0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0};
    assert_memory_equal(mask, joined, 12);
    assert_int_equal(list.item[0].area, 5);
    assert_true(fabs(list.item[0].score - 1 / (1 + exp(-3))) < 1e-6);
    assert_true(list.item[0].box[0] == 0 && list.item[0].box[2] == 6);
    instances_free(&list);
    add(&list, "11/11", 0, 0, 2, 2, 2, 0); /* in one tile nothing is joined */
    add(&list, "11/11", 0, 0, 2, 2, 2, 0);
    OK(instances_merge(&list, 0.5, &err));
    assert_int_equal(list.n, 2);
    instances_free(&list);
}

static void test_resize(void **state)
{
    (void)state;
    Err err = {0};
    uint8_t pixels[5 * 4 * 3], out[7 * 9 * 3];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 37);
    Image im = {5, 4, 3, pixels};
    OK(picture_resize(&im, 0, 0, 5, 4, 4, 5, out, &err)); /* its own size: itself */
    assert_memory_equal(out, pixels, sizeof pixels);
    OK(picture_resize(&im, 2, 1, 1, 1, 7, 9, out, &err)); /* one pixel fills all */
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(out[i], pixels[(5 + 2) * 3 + i % 3]);
    float f[3], mean[] = {0.5f, 0.25f, 0}, std[] = {0.5f, 1, 2};
    OK(picture_to_input(&im, 2, 1, 1, 1, 1, 1, mean, std, false, f, &err));
    for (int c = 0; c < 3; c++) assert_true(f[c] == ((float)out[c] / 255 - mean[c]) / std[c]);
}

static void test_overlay(void **state)
{
    (void)state;
    Err err = {0};
    static const char *const prompts[] = {"red car \xe2\x98\x83",
                                          "a very long text that goes beyond the picture's right border"};
    for (int side = 1; side < 80; side += 13) {
        Image im = {side, side, 3, calloc((size_t)side * (size_t)side, 3)}, over = {0};
        Instances list = {0};
        char text[80 * 81] = "";
        for (int y = 0; y < 5 && y < side; y++)
            for (int x = 0; x < side && x < 60; x++)
                strcat(text, x + 1 == side || x == 59 ? y + 1 < side && y < 4 ? "1/" : "1" : "1");
        add(&list, text, 0, 0, side, side, 4, 1);
        list.item[0].box[0] = -1e30;
        list.item[0].box[3] = NAN;
        OK(picture_overlay(&im, &list, prompts, 2, &over, &err));
        assert_true(over.width == side && over.height == side + 24 && over.channels == 3);
        assert_memory_equal(over.pixels + 3 * (size_t)side * (size_t)side, "\xff\xff\xff", 3); /* the legend's paper */
        assert_memory_equal(over.pixels, "\x56\xb4\xe9", 3);                                   /* the mask's border */
        image_free(&over);
        image_free(&im);
        instances_free(&list);
    }
}

/* Ink in the legend of a prompt: its picture as rows of dots, to the right of the swatch. */
static void legend(const char *text, char *out)
{
    Err err = {0};
    Image im = {120, 4, 3, calloc(120 * 4, 3)}, over = {0};
    Instances none = {0};
    OK(picture_overlay(&im, &none, &text, 1, &over, &err));
    for (int y = 5; y < over.height; y++) {
        for (int x = 11; x < 120; x++) *out++ = over.pixels[3 * (y * 120 + x)] ? '.' : '#';
        *out++ = '\n';
    }
    *out = '\0';
    image_free(&over);
    image_free(&im);
}

static void test_letters(void **state)
{
    (void)state;
    char a[4096], b[4096];
    static const char *const same[][2] = {
        {"A", "\xce\x91"},        {"A", "\xd0\x90"}, {"e\xcc\x81", "e"},    {"\xe2\x98\x83", "\xf0\x9f\x9a\x97"},
        {"\xff", "\xef\xbf\xbd"}, {"\xc3", "\xc0"},  {"a\xc2\xa0z", "a z"}, {"\xe4\xb8", "\xff"}};
    static const char *const other[][2] = {
        {"\xc3\xa9", "e"}, {"\xc5\xbe", "z"}, {"\xd0\x96", "\xff"}, {"\xce\xa9", "\xff"}, {"\xc8\x99", "s"},
        {"?", "\xff"},     {"a", " "}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        legend(same[i][0], a);
        legend(same[i][1], b);
        assert_string_equal(a, b);
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        legend(other[i][0], a);
        legend(other[i][1], b);
        assert_string_not_equal(a, b);
    }
    static const char *const umlaut[] = {".#.#..", "......", ".###..", "#...#.",
                                         "#...#.", "#####.", "#...#.", "#...#."}; /* A with two dots */
    legend("\xc3\x84", a);
    for (int y = 0; y < 8; y++) assert_memory_equal(a + 110 * y, umlaut[y], 6);
}

/* A JPEG's markers with EXIF's orientation in them: what is damaged in any way is 1,
 * and nothing outside is read (each copy has its own length). */
static void test_orientation(void **state)
{
    (void)state;
    static const uint8_t little[] = {0xFF, 0xD8, 0xFF, 0xE0, 0,   4,   1,   2, 0xFF, 0xFF, 0xE1, 0,    46,   'E', 'x',
                                     'i',  'f',  0,    0,    'I', 'I', '*', 0, 8,    0,    0,    0,    2,    0,   0,
                                     1,    4,    0,    1,    0,   0,   0,   5, 0,    0,    0,    0x12, 1,    3,   0,
                                     1,    0,    0,    0,    6,   0,   0,   0, 0,    0,    0,    0,    0xFF, 0xDA};
    static const uint8_t big[] = {0xFF, 0xD8, 0xFF, 0x01, 0xFF, 0xD0, 0xFF, 0xD7, /* TEM and restarts: no length */
                                  0xFF, 0xE1, 0, 34, 'E', 'x',  'i', 'f', 0, 0, 'M', 'M', 0, '*', 0, 0, 0, 8,    0,   1,
                                  1,    0x12, 0, 3,  0,   0,    0,   1,   0, 8, 0,   0,   0, 0,   0, 0, 0xFF, 0xDA};
    static const struct {
        const uint8_t *jpeg;
        size_t size;
        int is;
    } cases[] = {{little, sizeof little, 6}, {big, sizeof big, 8}};
    for (size_t i = 0; i < 2; i++)
        for (size_t n = 1; n <= cases[i].size; n++) { /* cut off: the segment is whole or nothing */
            uint8_t *copy = malloc(n);
            memcpy(copy, cases[i].jpeg, n);
            assert_int_equal(exif_orientation(copy, n), n < cases[i].size - 2 ? 1 : cases[i].is);
            for (size_t at = 0; at < n; at++) { /* and any byte wrong */
                for (int v = 0; v < 256; v += n == cases[i].size ? 1 : 51) {
                    copy[at] = (uint8_t)v;
                    int o = exif_orientation(copy, n);
                    assert_true(o >= 1 && o <= 8);
                }
                copy[at] = cases[i].jpeg[at];
            }
            free(copy);
        }
}

/* A part that is of another kind is not a part that is missing. */
static void test_processor(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"contract\": \"hf\"}", NULL},
        {"{\"contract\": \"hf\", \"image\": {\"height\": 32}, \"text\": {}}", NULL},
        {"[]", "'contract': found nothing, expected 'meta' or 'hf'"},
        {"{\"contract\": \"hf\", \"image\": [32]}", "'image': found array, expected an object"},
        {"{\"contract\": \"hf\", \"text\": null}", "'text': found null, expected an object"},
        {"{\"contract\": \"hf\", \"image\": {\"height\": 0}}", "'height': expected a number from 1 to 16384"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Err err = {0};
        Processor p;
        bool ok = processor_read(&p, cases[i].text, strlen(cases[i].text), &err);
        assert_int_equal(ok, cases[i].message == NULL);
        if (!ok) assert_string_equal(err.msg, cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),        cmocka_unit_test(test_kept),    cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_resize),      cmocka_unit_test(test_overlay), cmocka_unit_test(test_letters),
        cmocka_unit_test(test_orientation), cmocka_unit_test(test_processor),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
