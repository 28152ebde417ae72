/* The loss curve of a training run as an SVG: losses of steps as a thin line, of epochs and of validation as lines
 * with points, against steps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "train.h"

enum { WIDTH = 760, HEIGHT = 420, LEFT = 64, RIGHT = 18, TOP = 34, BOTTOM = 46, TICKS = 6, MOST_POINTS = 2000 };

typedef struct Axis {
    double lo, hi, step;
} Axis;

/* Ticks at 1, 2 or 5 times a power of ten. */
static Axis axis_of(double lo, double hi)
{
    if (!(hi > lo)) hi = lo + (lo != 0 ? fabs(lo) : 1);
    double rough = (hi - lo) / TICKS, power = pow(10, floor(log10(rough))), m = rough / power;
    double step = power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
    return (Axis){floor(lo / step) * step, ceil(hi / step) * step, step};
}

static double x_of(const Axis *a, double v) { return LEFT + (v - a->lo) / (a->hi - a->lo) * (WIDTH - LEFT - RIGHT); }
static double y_of(const Axis *a, double v)
{
    return HEIGHT - BOTTOM - (v - a->lo) / (a->hi - a->lo) * (HEIGHT - TOP - BOTTOM);
}

static void put_axes(FILE *f, const Axis *x, const Axis *y)
{
    for (double v = y->lo; v <= y->hi + y->step / 2; v += y->step) {
        fprintf(f, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e3e3e3\"/>\n", LEFT, WIDTH - RIGHT,
                y_of(y, v), y_of(y, v));
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 8, y_of(y, v) + 4,
                fabs(v) < y->step / 2 ? 0 : v);
    }
    for (double v = x->lo; v <= x->hi + x->step / 2; v += x->step)
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n", x_of(x, v), HEIGHT - BOTTOM + 18,
                v);
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
}

/* column: of the losses of a row. More points than pixels are averaged. */
static void put_line(FILE *f, const Curve *c, int n, int column, const char *color, const char *name, int place,
                     const Axis *x, const Axis *y)
{
    int each = n > MOST_POINTS ? (n + MOST_POINTS - 1) / MOST_POINTS : 1, drawn = 0;
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" points=\"", color, place ? "2" : "1");
    for (int i = 0; i < n; i += each) {
        double sum = 0, counted = 0;
        for (int k = i; k < n && k < i + each; k++)
            if (isfinite(c[k].loss[column])) {
                sum += c[k].loss[column];
                counted++;
            }
        if (!(counted > 0)) continue;
        fprintf(f, "%s%.1f,%.1f", drawn++ ? " " : "", x_of(x, (double)c[i].step), y_of(y, sum / counted));
    }
    fprintf(f, "\"/>\n");
    for (int i = 0; place && i < n && n <= 60; i++)
        if (isfinite(c[i].loss[column]))
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", x_of(x, (double)c[i].step),
                    y_of(y, c[i].loss[column]), color);
    if (!drawn) return;
    fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"3\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
            LEFT + 8 + place * 110, TOP - 16, color, LEFT + 28 + place * 110, TOP - 11, name);
}

static void take(const Curve *c, int n, Axis *x, Axis *y)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            if (!isfinite(c[i].loss[k])) continue;
            x->hi = fmax(x->hi, (double)c[i].step);
            y->lo = fmin(y->lo, c[i].loss[k]);
            y->hi = fmax(y->hi, c[i].loss[k]);
        }
}

int plot_write(const char *path, const Curve *steps, int nsteps, const Curve *epochs, int nepochs)
{
    char *text = NULL;
    size_t size = 0;
    qkv_error e;
    FILE *f = must(open_memstream(&text, &size));
    Axis x = {0, 1, 1}, y = {0, 0, 1};
    take(steps, nsteps, &x, &y);
    take(epochs, nepochs, &x, &y);
    x = axis_of(x.lo, x.hi);
    y = axis_of(y.lo, y.hi);
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\" "
        "fill=\"#333\">\n<title>Loss of training</title>\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_axes(f, &x, &y);
    put_line(f, steps, nsteps, 0, "#9bbfe0", "loss of steps", 0, &x, &y);
    put_line(f, epochs, nepochs, 0, "#1f5f9e", "of epochs", 1, &x, &y);
    put_line(f, epochs, nepochs, 1, "#d1691e", "validation", 2, &x, &y);
    fprintf(f, "</svg>\n");
    fclose(f);
    int code = qkv_file_write(path, must(text), size, &e) ? problem_of(&e) : 0;
    free(text);
    return code;
}
