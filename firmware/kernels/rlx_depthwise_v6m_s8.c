/* rlx_depthwise_v6m_s8: int8 depthwise convolution for Armv6-M: one channel at a time, two positions per multiply.
 *
 * Any kernel, stride, padding and channel multiplier; no dilation, weights without a zero point.
 *
 * Bands of output rows; in a band channel after channel. The rows of the input that the band needs are copied to
 * scratch, of the one channel, padded, as lines of words a[x] + a[x + stride_w] * 2^16 (rlx_v6m.h): the same tap of two
 * neighboring outputs. A pair of outputs takes the words of its kernel rows, three at a time; k_w is rounded up to a
 * multiple of three by zero weights. Of an odd number of columns the first one is computed as the second of a pair.
 * With stride_w = 1 pairs share words, two apart; otherwise each pair has its own.
 * With `upright`, for images that are higher than wide, read rows for columns and columns for rows in all of this.
 *
 * Stream, per output channel (int32 words):
 *     mode     0: any kernel; products are summed in groups of two and one of each three
 *              1: 3x3, in groups of 2, 2, 2, 2, 1
 *              2: 3x3, in groups of three, a kernel row each
 *     lo, hi   the first values of lo and hi
 *     weights  bytes [k_w / 3][k_h][3], or [k_h / 3][k_w][3] if upright, padded to whole words
 *     four words  rescale (rlx_v6m_scale_t)
 *
 * The generator proves: in each group of each channel the sum over one position lies in [-2^15, 2^15); |acc| < 2^24;
 * the rescale is exact.
 *
 * Scratch: the table of one channel: lo, hi, weights as words, rescale; then the lines; then, for stride_w > 1, the
 * values of one pair. y may overlap x as far as order() of cgen/variants/depthwise_v6m.py says.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_depthwise_v6m.h"
#include "rlx_kernels.h"

/* A direction of the image: rows or columns. Outputs [0, outputs) read x from `first` on. */
typedef struct {
    int32_t size, kernel, stride; /* of x */
    int32_t first, outputs;
    int32_t out_step; /* bytes from an output to the next one */
} axis_t;

/* Lines in scratch: along one axis, side by side across the other one. A line has the values of x from `first` on. */
typedef struct {
    axis_t along, across;
    int32_t columns; /* of three taps */
    int32_t odd, pairs, first, values;
    int32_t words;   /* of a line; with stride 1 one that is not used, then those that the pairs share */
    int32_t pair;    /* words from a pair to the next one */
} lines_t;

static lines_t lines_of(const rlx_depthwise_v6m_t *p, int32_t y_pitch, int32_t y0, int32_t y1)
{
    const axis_t rows = {p->in_h, p->k_h, p->stride_h, y0 * p->stride_h - p->pad_top, y1 - y0, y_pitch};
    const axis_t columns = {p->in_w, p->k_w, p->stride_w, -p->pad_left, p->out_w, p->out_c};
    lines_t s;
    s.along = p->upright != 0 ? rows : columns;
    s.across = p->upright != 0 ? columns : rows;
    s.columns = (s.along.kernel + STEP - 1) / STEP;
    s.odd = s.along.outputs & 1;
    s.pairs = (s.along.outputs + 1) / 2;
    s.first = s.along.first - s.odd * s.along.stride;
    s.values = (2 * s.pairs - 1) * s.along.stride + STEP * s.columns;
    s.words = s.along.stride == 1 ? s.values : s.pairs * STEP * s.columns;
    s.pair = s.along.stride == 1 ? 2 : STEP * s.columns;
    return s;
}

static int32_t pair_of(int32_t first, int32_t second)
{
    return first + second * (1 << 16);
}

typedef struct {
    const rlx_depthwise_v6m_t *p;
    rlx_view_t x;
    int32_t channel;
} source_t;

/* Where x has value i of a line; both must be inside the image. */
static const int8_t *value_at(const source_t *s, int32_t line, int32_t i)
{
    const bool upright = s->p->upright != 0;
    return rlx_row(s->x, upright ? i : line) + (upright ? line : i) * s->p->in_c + s->channel;
}

/* Bytes between values of a line, and how many from value i on lie that far apart (less than all if rows are a ring). */
static int32_t step_of(const source_t *s)
{
    return s->p->upright != 0 ? s->x.pitch : s->p->in_c;
}
static int32_t straight(const source_t *s, const lines_t *lines, int32_t i)
{
    return s->p->upright != 0 && s->x.ring != 0 ? s->x.ring - i % s->x.ring : lines->along.size - i;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* A line inside the image, stride 1: each word has a value and the next one. */
static RLX_V6M_NOINLINE void fill_shared(const source_t *s, const lines_t *lines, int32_t line, int32_t *to)
{
    const int32_t blank = pair_of(s->p->x_zp, s->p->x_zp);
    const int32_t stop = smaller(lines->first + lines->values, lines->along.size);
    int32_t *const end = to + lines->values;
    int32_t before = s->p->x_zp;
    int32_t i = lines->first;
    for (; i < 0 && to < end; i++) {
        *to++ = blank;
    }
    while (i < stop) {
        const int32_t count = smaller(stop - i, straight(s, lines, i));
        *to = before;
        to = shared_words(to, value_at(s, line, i), step_of(s), count);
        before = (to[-1] + (1 << 15)) >> 16;
        i += count;
    }
    if (to < end) {
        *to++ = pair_of(before, s->p->x_zp);
    }
    while (to < end) {
        *to++ = blank;
    }
}

/* A line inside the image, any stride: the words of each pair. `values`: room for a pair's values. */
static RLX_V6M_NOINLINE void fill_pairs(
    const source_t *s, const lines_t *lines, int32_t line, int32_t *to, int32_t *values)
{
    const int32_t stride = lines->along.stride;
    const int32_t count = stride + lines->pair;
    const int32_t step = step_of(s);
    const bool quick = stride == 2 && lines->pair == STEP;
    int32_t i = lines->first;
    for (int32_t left = lines->pairs; left > 0;) {
        const int32_t last = smaller(lines->along.size, i < 0 ? 0 : i + straight(s, lines, i)) - count;
        int32_t pairs = 1;
        if (quick && i >= 0 && i <= last) {
            pairs = smaller(left, (last - i) / 4 + 1);
            to = pair_words(to, value_at(s, line, i), step, pairs);
        } else {
            const int8_t *x = value_at(s, line, i < 0 ? 0 : i);
            for (int32_t k = i; k < i + count; k++) {
                const bool inside = k >= 0 && k < lines->along.size;
                x = inside && s->x.ring != 0 ? value_at(s, line, k) : x;
                values[k - i] = inside ? *x : s->p->x_zp;
                x += inside ? step : 0;
            }
            for (int32_t k = 0; k < lines->pair; k++) {
                *to++ = pair_of(values[k], values[k + stride]);
            }
        }
        i += 2 * stride * pairs;
        left -= pairs;
    }
}

/* All lines of a channel, from `line` on. */
static RLX_V6M_NOINLINE void fill_plane(
    const source_t *s, const lines_t *lines, int32_t line, int32_t count, int32_t *plane)
{
    const int32_t blank = pair_of(s->p->x_zp, s->p->x_zp);
    int32_t *const values = plane + count * lines->words;
    for (; count > 0; count--, line++, plane += lines->words) {
        if (line < 0 || line >= lines->across.size) {
            for (int32_t i = 0; i < lines->words; i++) {
                plane[i] = blank;
            }
        } else if (lines->along.stride == 1) {
            fill_shared(s, lines, line, plane);
        } else {
            fill_pairs(s, lines, line, plane, values);
        }
    }
}

/* A channel of the stream into the table; returns the next one. */
static RLX_V6M_NOINLINE const int32_t *load_channel(const int32_t *next, rows_t *r, int32_t *table, int32_t taps)
{
    const int32_t words = (taps + 3) / 4;
    r->mode = next[0];
    table[0] = next[1];
    table[1] = next[2];
    widen(table + 2, next + 3, words);
    next += 3 + words;
    for (int32_t i = 0; i < 4; i++) {
        table[2 + taps + i] = *next++;
    }
    return next;
}

static RLX_V6M_NOINLINE void clamp(const rlx_depthwise_v6m_t *p, const lines_t *lines, int8_t *out)
{
    for (int32_t i = 0; i < lines->across.outputs; i++, out += lines->across.out_step) {
        for (int32_t k = 0; k < lines->along.outputs; k++) {
            const int32_t q = out[k * lines->along.out_step];
            out[k * lines->along.out_step] = (int8_t)(q < p->low ? p->low : q > p->high ? p->high : q);
        }
    }
}

/* All channels of output rows [y0, y1), which follow each other in y's memory; `out` is the first one's place. */
static RLX_V6M_NOINLINE void run_band(
    source_t *source, int32_t *scratch, int8_t *out, int32_t y_pitch, int32_t y0, int32_t y1)
{
    const rlx_depthwise_v6m_t *p = source->p;
    const lines_t s = lines_of(p, y_pitch, y0, y1);
    const int32_t count = (s.across.outputs - 1) * s.across.stride + s.across.kernel;
    const int32_t taps = s.columns * s.across.kernel * STEP;
    const int32_t line = 4 * s.words;
    int32_t *plane = scratch + 2 + (taps + 3) / 4 * 4 + 4;
    rows_t r = {
        .plane = plane + (s.along.stride == 1 ? 1 : 0),
        .table = scratch,
        .out_step = s.along.out_step,
        .out_pitch = s.across.out_step,
        .rows = s.across.outputs,
        .row_bytes = 2 * s.pairs * s.along.out_step,
        .line_rest = line - 4 * STEP,
        .plane_step = s.across.stride * line,
        .odd = s.odd,
        .column_bytes = 4 * STEP * s.across.kernel,
        .to_column = 4 * STEP - s.across.kernel * line,
        .weights_end = scratch + 2 + taps,
    };
    const int32_t *next = p->stream;
    int32_t again = 0; /* output channels that read the lines that are there */
    source->channel = -1;
    for (int32_t c = 0; c < p->out_c; c++, out++, again--) {
        if (again == 0) {
            again = p->multiplier;
            source->channel++;
            fill_plane(source, &s, s.across.first, count, plane);
        }
        next = load_channel(next, &r, scratch, taps);
        r.to_next = 4 * s.pair - (r.mode == 0 ? 4 * STEP * s.columns : 2 * line + 4 * STEP);
        r.out = out - s.odd * s.along.out_step;
        run_rows(&r);
        if (p->low > -128 || p->high < 127) {
            clamp(p, &s, out);
        }
    }
}

void rlx_depthwise_v6m_s8(
    const rlx_depthwise_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    source_t source = {p, x, 0};
    int32_t band = y0 + p->band;
    while (y0 < y1) {
        int32_t end = band < y1 ? band : y1;
        if (y.ring != 0 && end - y0 > y.ring - y0 % y.ring) {
            end = y0 + y.ring - y0 % y.ring; /* the ring's rows end here */
        }
        run_band(&source, (int32_t *)scratch, rlx_row(y, y0), y.pitch, y0, end);
        band += end == band ? p->band : 0;
        y0 = end;
    }
}
