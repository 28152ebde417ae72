/* SVG plots of the command: the loss curve of `qkv train --plot`, the layers of `qkv quantize --plot`.
 *
 *     Plot p;
 *     plot_begin(&p, 760, 420, "Loss of training");
 *     plot_shape(&p, "<rect x=\"%d\" .../>", x);          elements without texts of a model
 *     plot_label(&p, x, y, "end", "name", "%s", text);    a text, escaped; "name": its class
 *     return plot_end(&p, path);                          whole or not at all; an exit code
 */
#ifndef QKV_CLI_PLOT_H
#define QKV_CLI_PLOT_H
#include <stdio.h>
#include "cli.h"

typedef struct Plot {
    FILE *file;
    char *text;
    size_t size;
} Plot;

void plot_begin(Plot *p, int width, int height, const char *title);
__attribute__((format(printf, 2, 3))) void plot_shape(Plot *p, const char *fmt, ...);
/* anchor: start, middle, end. class NULL: none. */
__attribute__((format(printf, 6, 7))) void plot_label(Plot *p, double x, double y, const char *anchor,
                                                      const char *class, const char *fmt, ...);
int plot_end(Plot *p, const char *path);

typedef struct Axis {
    double lo, hi, step; /* of ticks, at 1, 2 or 5 times a power of ten */
} Axis;
Axis axis_of(double lo, double hi, int ticks);
/* The place of v, where lo is at `from` and hi at `to`. */
double axis_at(const Axis *a, double v, double from, double to);

/* quantize_plot.c: of a report whose budget was measured; an exit code. */
int quantize_plot(const char *path, const json_t *report);
#endif
