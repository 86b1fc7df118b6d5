/* rlx_channels_v6m.h: depthwise convolution on Armv6-M, channel after channel and band by band.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_CHANNELS_V6M_H
#define RLX_CHANNELS_V6M_H

#include "rlx_rows_v6m.h"

/* Bounds other than [-128, 127]. */
static RLX_V6M_NOINLINE void clamp(const rlx_depthwise_v6m_t *p, const lines_t *lines, const rows_t *r)
{
    int8_t *out = r->out + r->odd * r->out_step;
    for (int32_t i = 0; i < r->rows; i++, out += r->out_pitch) {
        for (int32_t k = 0; k < lines->along.outputs; k++) {
            const int32_t q = out[k * r->out_step];
            out[k * r->out_step] = (int8_t)(q < p->low ? p->low : q > p->high ? p->high : q);
        }
    }
}

static void set_rows(rows_t *r, const lines_t *s, int32_t *table, int32_t *plane, int32_t taps)
{
    const int32_t line = 4 * s->words;
    r->plane = plane + (s->along.stride == 1 ? 1 : 0);
    r->table = table;
    r->out_step = s->along.out_step;
    r->out_pitch = s->across.out_step;
    r->row_bytes = 2 * s->pairs * s->along.out_step;
    r->line_rest = line - 4 * STEP;
    r->plane_step = s->across.stride * line;
    r->odd = s->odd;
    r->column_bytes = 4 * STEP * s->across.kernel;
    r->to_column = 4 * STEP - s->across.kernel * line;
    r->weights_end = table + 2 + taps;
}

/* One output channel, whose table is loaded, from r->out on, band by band. `there`: the lines of the only band are. */
static void run_channel(source_t *source, const lines_t *s, rows_t *r, int32_t *plane, bool there)
{
    const rlx_depthwise_v6m_t *p = source->p;
    int32_t line = s->across.first;
    int32_t kept = 0; /* lines that the band before has left */
    for (int32_t left = s->across.outputs;;) {
        r->rows = smaller(left, p->band);
        const int32_t step = r->rows * s->across.stride; /* to the next band's first line */
        const int32_t count = step - s->across.stride + s->across.kernel;
        if (!there) {
            fill_plane(source, s, line + kept, count - kept, plane + kept * s->words);
        }
        run_rows(r);
        if (p->low > -128 || p->high < 127) {
            clamp(p, s, r);
        }
        left -= r->rows;
        if (left == 0) {
            return;
        }
        r->out += r->rows * r->out_pitch;
        line += step;
        kept = count > step ? count - step : 0;
        move_words(plane, plane + step * s->words, kept * s->words);
    }
}

/* All channels of output rows [y0, y1), which follow each other in y's memory; `out` is the first one's place. */
static void run_channels(
    source_t *source, int32_t *scratch, int8_t *out, int32_t y_pitch, int32_t y0, int32_t y1)
{
    const rlx_depthwise_v6m_t *p = source->p;
    /* Structs are filled field by field: whole ones would call memset and memcpy. */
    lines_t s;
    rows_t r;
    set_lines(&s, p, y_pitch, y0, y1);
    const int32_t taps = s.columns * s.across.kernel * STEP;
    const int32_t most = (smaller(p->band, s.across.outputs) - 1) * s.across.stride + s.across.kernel;
    int32_t *const plane = scratch + 2 + ((taps + 3) & ~3) + 4;
    set_rows(&r, &s, scratch, plane, taps);
    const int32_t *next = p->stream;
    prepare(source, &s);
    source->values = (int8_t *)(plane + most * s.words);
    out -= s.odd * s.along.out_step;
    for (source->channel = 0; source->channel < p->in_c; source->channel++) {
        for (int32_t again = 0; again < p->multiplier; again++) {
            next = load_channel(next, &r, scratch, taps);
            r.to_next = 4 * s.pair - (r.mode == 0 ? 4 * STEP * s.columns : 8 * s.words + 4 * STEP);
            r.out = out++;
            run_channel(source, &s, &r, plane, again > 0);
        }
    }
}

static inline void run_depthwise(
    const rlx_depthwise_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    source_t source;
    source.p = p;
    source.x = &x;
    while (y0 < y1) {
        /* several outputs of a channel need its lines at once; rows of outputs follow each other */
        const int32_t rows = p->multiplier > 1 ? smaller(p->band, y1 - y0) : y1 - y0;
        const int32_t end = y0 + straight(&y, y0, rows);
        run_channels(&source, (int32_t *)scratch, rlx_row(y, y0), y.pitch, y0, end);
        y0 = end;
    }
}

#endif
