/* The loss curve of a training run as an SVG: losses of steps as a thin line, of epochs and of validation as lines
 * with points, against steps. */
#include <math.h>
#include "plot.h"
#include "train.h"

enum { WIDTH = 760, HEIGHT = 420, LEFT = 64, RIGHT = 18, TOP = 34, BOTTOM = 46, TICKS = 6, MOST_POINTS = 2000 };

static double x_of(const Axis *a, double v) { return axis_at(a, v, LEFT, WIDTH - RIGHT); }
static double y_of(const Axis *a, double v) { return axis_at(a, v, HEIGHT - BOTTOM, TOP); }

static void put_axes(Plot *p, const Axis *x, const Axis *y)
{
    for (double v = y->lo; v <= y->hi + y->step / 2; v += y->step) {
        plot_shape(p, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e3e3e3\"/>\n", LEFT, WIDTH - RIGHT,
                   y_of(y, v), y_of(y, v));
        plot_label(p, LEFT - 8, y_of(y, v) + 4, "end", NULL, "%.6g", fabs(v) < y->step / 2 ? 0 : v);
    }
    for (double v = x->lo; v <= x->hi + x->step / 2; v += x->step)
        plot_label(p, x_of(x, v), HEIGHT - BOTTOM + 18, "middle", NULL, "%.6g", v);
    plot_label(p, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "middle", NULL, "step");
}

/* column: of the losses of a row. More points than pixels are averaged. */
static void put_line(Plot *p, const Curve *c, int n, int column, const char *color, const char *name, int place,
                     const Axis *x, const Axis *y)
{
    int each = n > MOST_POINTS ? (n + MOST_POINTS - 1) / MOST_POINTS : 1, drawn = 0;
    plot_shape(p, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" points=\"", color, place ? "2" : "1");
    for (int i = 0; i < n; i += each) {
        double sum = 0, counted = 0;
        for (int k = i; k < n && k < i + each; k++)
            if (isfinite(c[k].loss[column])) {
                sum += c[k].loss[column];
                counted++;
            }
        if (!(counted > 0)) continue;
        plot_shape(p, "%s%.1f,%.1f", drawn++ ? " " : "", x_of(x, (double)c[i].step), y_of(y, sum / counted));
    }
    plot_shape(p, "\"/>\n");
    for (int i = 0; place && i < n && n <= 60; i++)
        if (isfinite(c[i].loss[column]))
            plot_shape(p, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", x_of(x, (double)c[i].step),
                       y_of(y, c[i].loss[column]), color);
    if (!drawn) return;
    plot_shape(p, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"3\" fill=\"%s\"/>", LEFT + 8 + place * 110, TOP - 16,
               color);
    plot_label(p, LEFT + 28 + place * 110, TOP - 11, "start", NULL, "%s", name);
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
    Plot p;
    Axis x = {0, 1, 1}, y = {0, 0, 1};
    take(steps, nsteps, &x, &y);
    take(epochs, nepochs, &x, &y);
    x = axis_of(x.lo, x.hi, TICKS);
    y = axis_of(y.lo, y.hi, TICKS);
    plot_begin(&p, WIDTH, HEIGHT, "Loss of training");
    put_axes(&p, &x, &y);
    put_line(&p, steps, nsteps, 0, "#9bbfe0", "loss of steps", 0, &x, &y);
    put_line(&p, epochs, nepochs, 0, "#1f5f9e", "of epochs", 1, &x, &y);
    put_line(&p, epochs, nepochs, 1, "#d1691e", "validation", 2, &x, &y);
    return plot_end(&p, path);
}
