/* What plots share: the SVG around them, texts, axes. Contract in plot.h. */
#include "plot.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Names of a model come from its file: what a page would obey or hide is written out. */
static void put_text(Plot *p, const char *s)
{
    int n;
    for (; *s; s += n) {
        const unsigned c = hidden_character(s, &n);
        if (c) fprintf(p->file, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        else if (*s == '<') fputs("&lt;", p->file);
        else if (*s == '>') fputs("&gt;", p->file);
        else if (*s == '&') fputs("&amp;", p->file);
        else fwrite(s, 1, (size_t)n, p->file);
    }
}

void plot_begin(Plot *p, int width, int height, const char *title)
{
    *p = (Plot){0};
    p->file = must(open_memstream(&p->text, &p->size));
    plot_shape(p,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
               "font-size=\"12\" fill=\"#333\">\n<title>%s</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
               width, height, title, width, height);
}

void plot_shape(Plot *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(p->file, fmt, ap);
    va_end(ap);
}

void plot_label(Plot *p, double x, double y, const char *anchor, const char *class, const char *fmt, ...)
{
    char *text;
    va_list ap;
    va_start(ap, fmt);
    const int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) text = must(NULL);
    plot_shape(p, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"", x, y, anchor);
    if (class) plot_shape(p, " class=\"%s\"", class);
    plot_shape(p, ">");
    put_text(p, text);
    plot_shape(p, "</text>\n");
    free(text);
}

int plot_end(Plot *p, const char *path)
{
    qkv_error e;
    plot_shape(p, "</svg>\n");
    const bool full = fclose(p->file) != 0; /* of memory */
    int code = qkv_file_write(path, must(full ? NULL : p->text), p->size, &e) ? problem_of(&e) : 0;
    free(p->text);
    return code;
}

Axis axis_of(double lo, double hi, int ticks)
{
    if (!(hi > lo)) hi = lo + (lo != 0 ? fabs(lo) : 1);
    double rough = (hi - lo) / ticks, power = pow(10, floor(log10(rough))), m = rough / power;
    double step = power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
    return (Axis){floor(lo / step) * step, ceil(hi / step) * step, step};
}

double axis_at(const Axis *a, double v, double from, double to)
{
    return from + (v - a->lo) / (a->hi - a->lo) * (to - from);
}
