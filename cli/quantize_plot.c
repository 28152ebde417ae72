/* What a budget of `qkv quantize` measured, as an SVG: a row a layer by loss for its time, with what it loses alone,
 * its ratio of signal to noise and its time both ways. Those that went back to floats are above a line.
 *
 *     report: {"budget": {...}, "sites": [{"node", "weight", "rank", "loss", "kl", "sqnr_db", "float_ms", ...}]}
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plot.h"

enum { ROW = 18, TOP = 84, BOTTOM = 34, PANEL = 200, GAP = 36, LETTER = 7, LONGEST = 44, TICKS = 4, DECADES = 12 };
static const char KEPT[] = "#d1691e", QUANTIZED[] = "#1f5f9e", FLOATS[] = "#b9c4cf";

typedef struct Row {
    const char *name;
    double loss, kl, sqnr, floats, integers;
    int rank;
} Row;

typedef struct Sheet {
    Plot plot;
    Row *row;
    int n, kept, left, bottom; /* left: where the panels begin */
    bool kl;                   /* the budget limits it: there is no other loss */
} Sheet;

static int by_rank(const void *a, const void *b) { return ((const Row *)a)->rank - ((const Row *)b)->rank; }

static double number_at(const json_t *x, const char *key) { return json_number_value(json_object_get(x, key)); }

static void take_rows(Sheet *s, const json_t *report)
{
    size_t i;
    json_t *x;
    const json_t *sites = json_object_get(report, "sites");
    s->row = must(calloc(json_array_size(sites) + 1, sizeof *s->row));
    json_array_foreach(sites, i, x)
    {
        if (!json_object_get(x, "rank")) continue; /* nothing was measured */
        const char *weight = text_at(x, "weight");
        s->row[s->n++] = (Row){.name = *weight ? weight : text_at(x, "node"),
                               .loss = number_at(x, "loss"),
                               .kl = number_at(x, "kl"),
                               .sqnr = number_at(x, "sqnr_db"),
                               .floats = number_at(x, "float_ms"),
                               .integers = number_at(x, "integer_ms"),
                               .rank = (int)number_at(x, "rank")};
    }
    qsort(s->row, (size_t)s->n, sizeof *s->row, by_rank);
}

static int panel_at(const Sheet *s, int i) { return s->left + i * (PANEL + GAP); }
static double row_at(int i) { return TOP + (i + 0.5) * ROW; }
static const char *color_of(const Sheet *s, int i) { return i < s->kept ? KEPT : QUANTIZED; }

static void put_grid(Sheet *s, int panel, const Axis *a, bool powers)
{
    const int x0 = panel_at(s, panel);
    for (double v = a->lo; v <= a->hi + a->step / 2; v += a->step) {
        const double x = axis_at(a, v, x0, x0 + PANEL);
        plot_shape(&s->plot, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#e3e3e3\"/>\n", x, x, TOP,
                   s->bottom);
        plot_label(&s->plot, x, s->bottom + 16, "middle", NULL, powers ? "1e%.0f" : "%.6g",
                   fabs(v) < a->step / 2 ? 0 : v);
    }
}

/* Losses span decades. One of 0 stands at the left end. */
static double decade(double loss) { return log10(fmax(loss, 1e-300)); }

static void put_losses(Sheet *s)
{
    double lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < s->n; i++) {
        const double of[2] = {s->row[i].loss, s->row[i].kl};
        for (int k = 0; k < 2; k++) {
            hi = fmax(hi, ceil(decade(of[k])));
            if (of[k] > 0) lo = fmin(lo, floor(decade(of[k])));
        }
    }
    if (!isfinite(lo)) lo = hi = -DECADES;
    const double low = fmax(fmin(lo, hi - 1), hi - DECADES);
    Axis a = {low, hi, ceil((hi - low) / TICKS)};
    a.hi = low + a.step * ceil((hi - low) / a.step);
    put_grid(s, 0, &a, true);
    const int x0 = panel_at(s, 0);
    for (int i = 0; i < s->n; i++) {
        const double loss = fmax(decade(s->row[i].loss), low), kl = fmax(decade(s->row[i].kl), low);
        plot_shape(&s->plot, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
                   axis_at(&a, loss, x0, x0 + PANEL), row_at(i), color_of(s, i));
        if (!s->kl)
            plot_shape(&s->plot, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"none\" stroke=\"%s\"/>\n",
                       axis_at(&a, kl, x0, x0 + PANEL), row_at(i), color_of(s, i));
    }
    plot_label(&s->plot, x0, TOP - 10, "start", NULL, "%s",
               s->kl ? "alone it loses: KL" : "alone it loses: \u25cf 1 - cosine, \u25cb KL");
}

static void put_bar(Sheet *s, int panel, const Axis *a, double v, double y, int height, const char *color)
{
    const int x0 = panel_at(s, panel);
    const double zero = axis_at(a, fmin(fmax(0, a->lo), a->hi), x0, x0 + PANEL), x = axis_at(a, v, x0, x0 + PANEL);
    plot_shape(&s->plot, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", fmin(zero, x), y,
               fabs(x - zero), height, color);
}

static void put_noise(Sheet *s)
{
    double lo = 0, hi = 0;
    for (int i = 0; i < s->n; i++) {
        lo = fmin(lo, s->row[i].sqnr);
        hi = fmax(hi, s->row[i].sqnr);
    }
    const Axis a = axis_of(lo, hi, TICKS);
    put_grid(s, 1, &a, false);
    for (int i = 0; i < s->n; i++) put_bar(s, 1, &a, s->row[i].sqnr, row_at(i) - 5, 10, color_of(s, i));
    plot_label(&s->plot, panel_at(s, 1), TOP - 10, "start", NULL, "signal to noise, alone (dB)");
}

static void put_times(Sheet *s)
{
    double hi = 0;
    for (int i = 0; i < s->n; i++) hi = fmax(hi, fmax(s->row[i].floats, s->row[i].integers));
    const Axis a = axis_of(0, hi, TICKS);
    put_grid(s, 2, &a, false);
    for (int i = 0; i < s->n; i++) {
        put_bar(s, 2, &a, s->row[i].floats, row_at(i) - 7, 6, FLOATS);
        put_bar(s, 2, &a, s->row[i].integers, row_at(i) + 1, 6, color_of(s, i));
    }
    plot_label(&s->plot, panel_at(s, 2), TOP - 10, "start", NULL, "time of its product (ms)");
}

static void put_legend(Sheet *s, const char *instead)
{
    const char *const text[] = {instead, "quantized", "its time in floats"}, *const color[] = {KEPT, QUANTIZED, FLOATS};
    int x = s->left;
    for (int i = 0; i < 3; x += 34 + LETTER * (int)strlen(text[i++])) {
        plot_shape(&s->plot, "<rect x=\"%d\" y=\"42\" width=\"10\" height=\"10\" fill=\"%s\"/>", x, color[i]);
        plot_label(&s->plot, x + 16, 51, "start", NULL, "%s", text[i]);
    }
}

/* The end of a long name says more than its beginning. */
static const char *end_of(const char *name)
{
    const size_t n = strlen(name);
    name += n > LONGEST ? n - LONGEST : 0;
    while (((unsigned char)*name & 0xc0) == 0x80) name++;
    return name;
}

static void put_names(Sheet *s)
{
    for (int i = 0; i < s->n; i++)
        plot_label(&s->plot, s->left - 10, row_at(i) + 4, "end", "name", "%s", end_of(s->row[i].name));
    if (!s->kept || s->kept == s->n) return;
    plot_shape(&s->plot, "<line x1=\"8\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"#777\" stroke-dasharray=\"5 4\"/>\n",
               panel_at(s, 2) + PANEL, TOP + s->kept * ROW, TOP + s->kept * ROW);
}

int quantize_plot(const char *path, const json_t *report)
{
    const json_t *budget = json_object_get(report, "budget");
    const bool eight = number_at(report, "weight_bits") == 4;
    const char *metric = text_at(budget, "metric"), *instead = eight ? "in 8 bits" : "left in floats";
    Sheet s = {.kept = (int)number_at(budget, "kept"), .kl = !strcmp(metric, "kl")};
    size_t longest = 8;
    take_rows(&s, report);
    for (int i = 0; i < s.n; i++)
        longest = strlen(end_of(s.row[i].name)) > longest ? strlen(end_of(s.row[i].name)) : longest;
    s.left = 20 + LETTER * (int)longest;
    s.bottom = TOP + s.n * ROW;
    plot_begin(&s.plot, panel_at(&s, 2) + PANEL + 24, s.bottom + BOTTOM, "What each layer loses, and saves");
    plot_label(&s.plot, s.left, 24, "start", NULL,
               "%s: %.6g with all layers quantized, %.6g with %d of %d %s (limit %.6g)", metric,
               number_at(budget, "all"), number_at(budget, "reached"), s.kept, s.n, instead,
               number_at(budget, "limit"));
    put_legend(&s, instead);
    put_losses(&s);
    put_noise(&s);
    put_times(&s);
    put_names(&s);
    free(s.row);
    return plot_end(&s.plot, path);
}
