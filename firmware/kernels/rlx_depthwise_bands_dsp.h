/* rlx_depthwise_bands_dsp.h: depthwise convolution of up to 3x3 taps for DSP, by bands of lines.
 *
 * x [in_h][in_w][channels], y [out_h][out_w][channels]. 4 channels at a time are copied to planes in scratch
 * (rlx_planes_dsp.h), with x_zp around the image; then each of the 4 channels is computed with its weights in registers.
 * Lines of a plane run along x, or along y (along_y) where the image is narrow. That axis is called inner here, the
 * other one outer; tile_w is of x and tile_h of y, whichever is which.
 * Along the inner axis the image is cut into tiles, each with its planes, where a line has no room for all of it. Along
 * the outer axis it is computed in bands: all tiles of a band are copied, then computed. The lines that two bands have
 * in common are moved from the end of the planes to their begin, so each line is copied once.
 * A smaller kernel has taps of weight 0 below and to the right; these meet whatever lies in the planes.
 *
 * Proved by the generator: rlx_dsp.h's conditions, or with weights of 4 or 2 bits those of rlx_digits_dsp.h for
 * requantization; outputs of a tile's line * inner stride <= 28, inner stride 1 or 2.
 * Scratch: 32 + tiles * 4 * 32 * ((outer outputs of a band - 1) * outer stride + 3) bytes, and 132 * tiles if there
 * are several.
 * A band of 4 channels is read, but for what the band before has read, before any of its outputs is written; and all
 * bands of 4 channels before those of the next 4. So y may be x, if as large. Bounds other than [-128, 127] are applied
 * at the end.
 *
 * A kernel's file defines RLX_DEPTHWISE_BITS (rlx_depthwise_dsp.h), includes this and calls run_rows.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEPTHWISE_BANDS_DSP_H
#define RLX_DEPTHWISE_BANDS_DSP_H

#include "rlx_depthwise_dsp.h"
#include "rlx_kernels.h"

enum { LANES = 4, TILE_BYTES = 132 };

#if defined(__GNUC__)
#define COLD __attribute__((noinline, cold)) /* small code rather than fast code */
#define NOINLINE __attribute__((noinline))
#else
#define COLD
#define NOINLINE
#endif

/* Outputs [0, outputs) read x from `first` on; at_once of them are in a tile or band. */
typedef struct {
    int32_t size, kernel, stride; /* of x */
    int32_t first, outputs, at_once;
    int32_t step, out_step;       /* bytes from value to value of x, from output to output of y */
} axis_t;

/* Values [begin, end) of x, of those that some outputs need from `origin` on. */
typedef struct {
    int32_t origin, begin, end;
} span_t;

/* Part of the lines of all bands, ready to be copied and computed. TILE_BYTES. */
typedef struct {
    rlx_planes_t copies;
    rlx_lines_t lines;
    int32_t line, to; /* in the planes: the first line, and where its first pixel goes */
    int32_t from;     /* in x: that pixel */
    span_t values;    /* along a line */
} tile_t;

_Static_assert(sizeof(tile_t) == TILE_BYTES, "the generator knows the size");

typedef struct {
    const rlx_depthwise_dsp_t *p;
    rlx_view_t x;
    axis_t inner, outer;
    span_t band; /* lines that are to be copied */
    int8_t *planes;
    int32_t plane_bytes, count;
    int32_t pieces; /* whether tiles are copied by copy_pieces */
    tile_t *tiles;  /* in scratch, or if there is only one: */
    tile_t only;
} work_t;

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* How many of `count` rows from `row` on follow each other. */
static int32_t straight(const rlx_view_t *view, int32_t row, int32_t count)
{
    return view->ring != 0 ? least(count, view->ring - row % view->ring) : count;
}

/* What n outputs from number `output` on need. */
static span_t span_of(const axis_t *axis, int32_t output, int32_t n)
{
    span_t span;
    span.origin = axis->first + output * axis->stride;
    span.begin = span.origin < 0 ? 0 : span.origin;
    span.end = least(axis->size, span.origin + (n - 1) * axis->stride + axis->kernel);
    return span;
}

static COLD void set_pixels(const work_t *w, rlx_planes_t *copies, int32_t pixels)
{
    copies->quads = pixels >> 2;
    copies->singles = pixels & 3;
    copies->line_advance = w->outer.step - pixels * w->inner.step;
    copies->plane_advance = RLX_PLANE_PITCH - pixels;
}

/* All of a tile that is the same in all bands. */
static COLD void set_tile(const work_t *w, tile_t *tile, int32_t number)
{
    const axis_t *inner = &w->inner;
    const int32_t x = number * inner->at_once;
    const int32_t outputs = least(inner->at_once, inner->outputs - x);
    const int32_t line_bytes = RLX_PLANE_PITCH * w->outer.stride;
    rlx_planes_t *copies = &tile->copies;
    rlx_lines_t *lines = &tile->lines;
    tile->values = span_of(inner, x, outputs);
    tile->line = LANES * w->plane_bytes * number + RLX_PLANE_PITCH - outputs * inner->stride;
    copies->pixel_step = inner->step;
    copies->plane_bytes = w->plane_bytes;
    copies->three_pixels = 3 * inner->step;
    copies->three_planes = 3 * w->plane_bytes;
    set_pixels(w, copies, tile->values.end - tile->values.begin);
    lines->outputs = outputs;
    lines->stride = inner->stride;
    lines->pixel_step = inner->out_step;
    lines->odd = outputs & 1;
    lines->skip = inner->stride == 1 ? 0 : outputs / 2 % RLX_UNROLL * RLX_PAIR_2_CODE;
    lines->plane_step = line_bytes - outputs * inner->stride;
    lines->line_step = w->outer.out_step;
    lines->out_step = lines->line_step - outputs * inner->out_step;
    lines->plane_bytes = w->plane_bytes;
    lines->two_zp = 2 * w->p->out_zp + 1;
    lines->double_odd = lines->odd;
    lines->double_skip = outputs / 2 % RLX_UNROLL * RLX_BLOCK_CODE;
    lines->double_plane_step = lines->plane_step + line_bytes;
    lines->double_out_step = lines->out_step + lines->line_step;
    lines->double_pixel_step = inner->out_step;
}

/* All that depends on the band, of n lines of outputs. */
static void set_band(const work_t *w, tile_t *tile, int32_t n)
{
    const int32_t line_bytes = RLX_PLANE_PITCH * w->outer.stride;
    const span_t *band = &w->band;
    const span_t *values = &tile->values;
    tile->copies.lines = values->begin < values->end ? band->end - band->begin : 0;
    tile->from = band->begin * w->outer.step + values->begin * w->inner.step;
    tile->to = tile->line + (band->begin - band->origin) * RLX_PLANE_PITCH + values->begin - values->origin;
    tile->lines.span = n * line_bytes;
    tile->lines.double_span = w->inner.stride == 1 && w->outer.stride == 1 ? (n & ~1) * line_bytes : 0;
}

/* A tile's part of x where rows are a ring, as many at a time as follow each other, or where there are few channels. */
static COLD void copy_pieces(const work_t *w, const tile_t *tile, int32_t c)
{
    const rlx_depthwise_dsp_t *p = w->p;
    const bool along_y = p->along_y != 0;
    const span_t *rows = along_y ? &tile->values : &w->band;
    const int32_t column = along_y ? w->band.begin : tile->values.begin;
    rlx_planes_t copies = tile->copies;
    if (copies.lines <= 0) {
        return;
    }
    int8_t *to = w->planes + tile->to;
    int32_t count = 0;
    for (int32_t row = rows->begin; row < rows->end; row += count) {
        count = straight(&w->x, row, rows->end - row);
        if (along_y) {
            set_pixels(w, &copies, count);
        } else {
            copies.lines = count;
        }
        const int8_t *x = rlx_row(w->x, row) + column * p->channels + c;
        if (p->channels < LANES) {
            rlx_planes_copy_bytes(to, x, &copies, p->channels);
        } else {
            rlx_planes_copy(to, x, &copies);
        }
        to += along_y ? count : count * RLX_PLANE_PITCH;
    }
}

/* Lines of all planes from line `kept` of the band on that lie outside of the image. */
static COLD void fill_lines(const work_t *w, int32_t kept, int32_t count)
{
    for (int32_t line = kept; line < count; line++) {
        if (w->band.origin + line < 0 || w->band.origin + line >= w->outer.size) {
            int8_t *to = w->planes + line * RLX_PLANE_PITCH + RLX_PLANE_SPARE;
            rlx_planes_fill(to, w->p->x_zp, LANES * w->count, w->plane_bytes);
        }
    }
}

/* A band of n lines of outputs: what is not there yet is copied from x. kept: lines that the band before has left. */
static NOINLINE void begin_band(work_t *w, int32_t output, int32_t n, int32_t kept)
{
    span_t *band = &w->band;
    *band = span_of(&w->outer, output, n);
    if (w->outer.at_once < w->outer.outputs) {
        fill_lines(w, kept, (n - 1) * w->outer.stride + w->outer.kernel);
    }
    band->begin = band->begin < band->origin + kept ? band->origin + kept : band->begin;
    for (int32_t i = 0; i < w->count; i++) {
        set_band(w, &w->tiles[i], n);
    }
}

/* Channels [c, c + LANES) of a band (or as many as are left) to `out`, the first output of channel c. */
static NOINLINE void run_band(work_t *w, int8_t *out, int32_t c)
{
    /* The last group is moved back so as to be full, but computes only the channels that are left. */
    const int32_t channels = w->p->channels;
    const int32_t first = channels < LANES ? 0 : least(c, channels - LANES);
    tile_t *tile = w->tiles;
    tile_t *const end = tile + w->count;
    do {
        if (w->pieces) {
            copy_pieces(w, tile, first);
        } else if (tile->copies.lines > 0) {
            rlx_planes_copy(w->planes + tile->to, w->x.base + tile->from + first, &tile->copies);
        }
    } while (++tile != end);
    tile = w->tiles;
    do {
        tile->lines.channels = least(LANES, channels - c);
        rlx_lines(w->planes + tile->line + (c - first) * w->plane_bytes, out,
                  w->p->stream + c * RLX_DEPTHWISE_RECORD, &tile->lines);
        out += w->inner.at_once * w->inner.out_step;
    } while (++tile != end);
}

/* Channels [c, c + LANES) in bands, of which there are several. */
static NOINLINE void run_bands(work_t *w, int8_t *out, int32_t c)
{
    int32_t kept = 0;
    int32_t n = 0;
    for (int32_t output = 0; output < w->outer.outputs; output += n) {
        n = least(w->outer.at_once, w->outer.outputs - output);
        begin_band(w, output, n, kept);
        run_band(w, out + output * w->outer.out_step, c);
        kept = w->outer.kernel - w->outer.stride;
        if (kept > 0) {
            rlx_planes_move(
                w->planes, n * w->outer.stride * RLX_PLANE_PITCH, kept, LANES * w->count, w->plane_bytes);
        } else {
            kept = 0;
        }
    }
}

static COLD void set_axes(work_t *w, int32_t y_pitch, int32_t y0, int32_t y1)
{
    const rlx_depthwise_dsp_t *p = w->p;
    axis_t *down = p->along_y != 0 ? &w->inner : &w->outer;
    axis_t *right = p->along_y != 0 ? &w->outer : &w->inner;
    down->size = p->in_h;
    down->kernel = p->k_h;
    down->stride = p->stride_h;
    down->first = y0 * p->stride_h - p->pad_top;
    down->outputs = y1 - y0;
    down->at_once = p->tile_h;
    down->step = w->x.pitch;
    down->out_step = y_pitch;
    right->size = p->in_w;
    right->kernel = p->k_w;
    right->stride = p->stride_w;
    right->first = -p->pad_left;
    right->outputs = p->out_w;
    right->at_once = p->tile_w;
    right->step = right->out_step = p->channels;
}

/* Output rows [y0, y1), which follow each other in y's memory. */
static void run_rows(work_t *w, void *scratch, rlx_view_t y, int32_t y0, int32_t y1)
{
    const rlx_depthwise_dsp_t *p = w->p;
    int8_t *out = rlx_row(y, y0);
    set_axes(w, y.pitch, y0, y1);
    w->pieces = w->x.ring != 0 || p->channels < LANES;
    w->count = (w->inner.outputs + w->inner.at_once - 1) / w->inner.at_once;
    w->tiles = w->count > 1 ? (tile_t *)scratch : &w->only;
    w->planes = w->count > 1 ? (int8_t *)(w->tiles + w->count) : (int8_t *)scratch;
    w->planes += -(uintptr_t)w->planes & (RLX_PLANE_PITCH - 1);
    const int32_t most = least(w->outer.at_once, w->outer.outputs);
    const int32_t lines = (most - 1) * w->outer.stride + 3;
    w->plane_bytes = RLX_PLANE_PITCH * lines;
    rlx_planes_fill(w->planes + RLX_PLANE_SPARE, p->x_zp, LANES * w->count * lines, RLX_PLANE_PITCH);
    for (int32_t i = 0; i < w->count; i++) {
        set_tile(w, &w->tiles[i], i);
    }
    begin_band(w, 0, most, 0);
    for (int32_t c = 0; c < p->channels; c += LANES) {
        if (most < w->outer.outputs) {
            run_bands(w, out + c, c);
        } else {
            run_band(w, out + c, c);
        }
    }
    if (p->low > -128 || p->high < 127) {
        for (int32_t row = y0; row < y1; row++) {
            rlx_dsp_clamp(rlx_row(y, row), p->out_w * p->channels, p->low, p->high);
        }
    }
}

#endif
