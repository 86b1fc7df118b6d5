/* rlx_depthwise_v7m.h: depthwise convolution for Armv7-M by bands, 6 neighbors of a row at a time.
 *
 * x [in_h][in_w][in_c], y [out_h][out_w][in_c]; an output channel per input channel, no dilation, any kernel, stride
 * and padding. Bands of p->band_h rows and p->band_w columns of y are computed for up to 4 channels at a time: their
 * part of x is copied to scratch, 4 bytes a pixel, with zero points where it lies outside the image. (The zero point is
 * folded into the bias.) Narrower bounds than int8's are a second pass over a block.
 *
 * 3x3 kernels with a horizontal stride of 1 or 2 run in assembly; all others, and all on other cores, in C
 * (rlx_depthwise_run_v7m.h).
 *
 * p->stream, per channel, aligned to 4. With weights of int8: int32 the negated bias; int8 weights [k_h][k_w]; int8 e;
 * zeros up to a multiple of 4; int32 -m (rlx_v7m.h, whose conditions the generator proved).
 * With weights of RLX_BITS = 4 or 2: int32 the negated bias; words of weights, the first one in the lowest bits, and in
 * the last word's highest byte e, or 128 + (e & 255) if the scale is large; int32 -m. They are unpacked to tables in
 * scratch once for each band and up to 4 channels.
 *
 * scratch: [(band_h - 1) stride_h + k_h][columns][4], columns = (max(band_w, 6) - 1) stride_w + k_w; and with packed
 * weights 4 tables of k_h k_w + 3 words before that.
 * x and y must not overlap but as the order says that the generator knows: a band's rows of x are read for each block
 * of channels, just before the outputs of these channels are written. So a single band may be computed in place.
 *
 * A kernel's file defines RLX_BITS, includes this and calls run_bands.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEPTHWISE_V7M_H
#define RLX_DEPTHWISE_V7M_H

#include "rlx_depthwise_run_v7m.h"

#if RLX_BITS < 8
/* `channels` channels of the stream to tables. Returns where the next one lies. */
RLX_V7M_SMALL static const int32_t *unpack(const int32_t *stream, int32_t taps, int32_t channels, int32_t *table)
{
    const int32_t words = (taps * RLX_BITS + 8 + 31) / 32;
    for (; channels > 0; channels--, stream += words + 2) {
        *table++ = stream[0];
        uint32_t word = 0;
        RLX_V7M_ROLLED
        for (int32_t i = 0; i < taps; i++, word >>= RLX_BITS) {
            if (i % (32 / RLX_BITS) == 0) {
                word = (uint32_t)stream[1 + i / (32 / RLX_BITS)];
            }
            *table++ = (int32_t)(word << (32 - RLX_BITS)) >> (32 - RLX_BITS);
        }
        const int32_t e = (int32_t)((uint32_t)stream[words] >> 24);
        *table++ = e + (e & RLX_V7M_LARGE / 2);
        *table++ = stream[words + 1];
    }
    return stream;
}
#endif

static inline int32_t clip(int32_t v, int32_t low, int32_t high)
{
    return v < low ? low : v > high ? high : v;
}

static inline int32_t word_at(const int8_t *x)
{
    int32_t word;
    __builtin_memcpy(&word, x, 4);
    return word;
}

/* `channels` bytes of `n` pixels, from x (a pixel each `step` bytes) to d (each BLOCK bytes). */
RLX_V7M_SMALL static void copy_pixels(int32_t *d, const int8_t *x, int32_t step, int32_t n, int32_t channels)
{
    if (channels < BLOCK) {
        for (int8_t *to = (int8_t *)d; n > 0; n--, to += BLOCK, x += step) {
            RLX_V7M_ROLLED
            for (int32_t c = 0; c < channels; c++) {
                to[c] = x[c];
            }
        }
        return;
    }
    for (; n >= 4; n -= 4, d += 4, x += 4 * step) {
        const int32_t a = word_at(x), b = word_at(x + step), c = word_at(x + 2 * step), e = word_at(x + 3 * step);
        d[0] = a;
        d[1] = b;
        d[2] = c;
        d[3] = e;
    }
    RLX_V7M_ROLLED
    for (; n > 0; n--, x += step) {
        *d++ = word_at(x);
    }
}

/* A band's part of x. Its first row and column in x may be negative; what lies outside stays as it is. */
typedef struct {
    int32_t y, x, rows, columns;
} part_t;

RLX_V7M_SMALL static void copy_part(const rlx_depthwise_v7m_t *p, rlx_view_t x, const part_t *part, int32_t channels,
                            int32_t *d, int32_t pitch)
{
    const int32_t top = clip(-part->y, 0, part->rows);
    const int32_t bottom = clip(p->in_h - part->y, top, part->rows);
    const int32_t left = clip(-part->x, 0, part->columns);
    const int32_t right = clip(p->in_w - part->x, left, part->columns);
    d += top * pitch + left;
    for (int32_t row = top; row < bottom; row++, d += pitch) {
        const int8_t *from = rlx_row(x, part->y + row) + (part->x + left) * p->in_c;
        copy_pixels(d, from, p->in_c, right - left, channels);
    }
}

/* Tiles of a band, one column of them after the other. The last one is moved left so as to be full: its first positions
 * are computed again. */
RLX_V7M_SMALL static void tiles(const rlx_depthwise_v7m_t *p, run_t *run, int32_t columns, int32_t channels)
{
    const int8_t *in = run->in;
    int8_t *out = run->out;
    run->positions = clip(columns, 1, POSITIONS);
    for (int32_t first = 0; first < columns; first += POSITIONS) {
        const int32_t left = clip(first, 0, columns - run->positions);
        run->in = in + left * p->stride_w * BLOCK;
        run->out = out + left * p->in_c;
        run->out_end = run->out + channels;
#if RLX_V7M
        if (p->k_h == 3 && p->k_w == 3 && p->stride_w <= 2) {
            run_3x3(run);
            continue;
        }
#endif
        run_any(p, run, channels);
    }
    run->in = in;
    run->out = out;
}

RLX_V7M_SMALL static void clamp_band(const rlx_depthwise_v7m_t *p, const run_t *run, int32_t columns, int32_t channels)
{
    for (int32_t row = 0; row < run->rows; row++) {
        RLX_V7M_ROLLED
        for (int32_t i = 0; i < columns; i++) {
            rlx_v7m_clamp(run->out + row * run->y_pitch + i * p->in_c, channels, p->low, p->high);
        }
    }
}

static void band(const rlx_depthwise_v7m_t *p, rlx_view_t x, run_t run, const part_t *part, int32_t columns, int32_t *d)
{
    const int32_t taps = p->k_h * p->k_w;
#if RLX_BITS < 8
    const int32_t *stream = p->stream;
    int32_t *table = d;
    d += BLOCK * table_words(taps);
    run.in = (const int8_t *)d;
#endif
    const int32_t zero = (int32_t)(0x01010101u * (uint8_t)p->x_zp);
    RLX_V7M_ROLLED
    for (int32_t i = 0; i < part->rows * (run.pitch / BLOCK); i++) {
        d[i] = zero; /* outside of x it stays so, for all channels */
    }
    for (int32_t c = 0; c < p->in_c; c += BLOCK) {
        const int32_t channels = clip(p->in_c - c, 1, BLOCK);
#if RLX_BITS < 8
        stream = unpack(stream, taps, channels, table);
        run.table = table;
#endif
        copy_part(p, x, part, channels, d, run.pitch / BLOCK);
        run.next_in = p->stride_h * run.pitch - channels;
        run.next_out = run.y_pitch - channels;
        tiles(p, &run, columns, channels);
        if (p->low > -128 || p->high < 127) {
            clamp_band(p, &run, columns, channels);
        }
        x.base += channels;
        run.out += channels;
#if RLX_BITS == 8
        run.table += channels * table_words(taps);
#endif
    }
}

static inline void run_bands(
    const rlx_depthwise_v7m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    int32_t rows;
    for (int32_t oy = y0; oy < y1; oy += rows) {
        rows = clip(y1 - oy, 1, p->band_h);
        if (y.ring != 0) {
            rows = clip(y.ring - oy % y.ring, 1, rows);
        }
        for (int32_t ox = 0; ox < p->out_w; ox += p->band_w) {
            const int32_t columns = clip(p->out_w - ox, 1, p->band_w);
            const part_t part = {
                .y = oy * p->stride_h - p->pad_top,
                .x = ox * p->stride_w - p->pad_left,
                .rows = (rows - 1) * p->stride_h + p->k_h,
                .columns = (columns - 1) * p->stride_w + p->k_w,
            };
            const run_t run = {
                .in = scratch,
                .pitch = ((columns < POSITIONS ? POSITIONS : columns) - 1) * p->stride_w * BLOCK + p->k_w * BLOCK,
                .c = -(2 * p->out_zp + 1),
                .step = p->in_c,
                .table = p->stream,
                .rows = rows,
                .y_pitch = y.pitch,
                .out = rlx_row(y, oy) + ox * p->in_c,
                .stride = p->stride_w,
            };
            band(p, x, run, &part, columns, scratch);
        }
    }
}

#endif
