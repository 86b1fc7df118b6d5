/* rlx_octets.h: convolutions with packed weights on Armv6-M and Armv7-M: eight output positions at a time.
 *
 * x [in_h][in_w][in_c], y [out_h][out_w][out_c]; one group, no dilation, any kernel, stride and padding. Positions run
 * through the rows [y0, y1) as one line, so that a tile of eight may span rows; positions of the last tile that do not
 * exist are its first one once more. Padded taps count as x_zp, which is folded into the bias. Narrower bounds than
 * int8's are a second pass over a tile.
 *
 * words: four a tap of the window [k_h][k_w][in_c]: a0 + (a1 << 16), a2 + (a3 << 16) and so on, sums and not bit fields,
 * so that a word times a weight is two products.
 *
 * Weights are taken a turn of RLX_TURN taps at a time, from words of 8 weights of 4 bits or 16 of 2, the first one in
 * the lowest bits. Where the taps are no multiple of a turn, the first turn is short: its weights are the last ones of
 * its words, and a word that would have none is left out.
 * p->turns turns, at the end of the taps, and as many before them and so on, are a run; the first run has the taps that
 * are left, p->first.
 * The generator proves of each run of each channel that its sum of products over one position lies between -2^15 and
 * 2^15, both excluded, whatever the inputs are.
 *
 * scratch: the words, 16 bytes a tap; p->inits words; where windows leave the image (p->framed), 9 lines of k_w * in_c bytes: one of
 * zero points for kernel rows outside the image, one for each position whose kernel row its left or right border cuts.
 * x and y must not overlap but as the order says that the generator knows: all of a tile's windows are read before any
 * of its outputs is written.
 *
 * A core's header defines rlx_octets_widen and rlx_octets_tile.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_OCTETS_H
#define RLX_OCTETS_H

#include "rlx_kernels.h"

#define RLX_OCTET 8 /* positions */
#define RLX_TURN 16 /* taps */

#if defined(__GNUC__)
#define RLX_OCTETS_SMALL __attribute__((noinline))
#else
#define RLX_OCTETS_SMALL
#endif

/* A tile. The assembly knows the places of the members. sums: of the runs before the last one, for each position. */
typedef struct {
    int32_t sums[RLX_OCTET];
    int32_t offsets[RLX_OCTET]; /* from position 0's output */
    int8_t *out;                /* position 0, channel 0 */
    const int8_t *out_end;      /* out + out_c */
    int32_t *x;                 /* words */
    const int32_t *x_end;
    const int32_t *stream;
    int32_t entry;          /* bytes of code of the first turn */
    int32_t c;              /* -(2 out_zp + 1) */
    const int32_t *run_end; /* of the first run */
    int32_t run;            /* bytes of words of the other runs */
    int32_t *inits;         /* [runs][4]: what fields begin with, on Armv6-M */
    int32_t taps;
} rlx_octet_t;

/* One call. Where all rows of a 1x1 kernel follow each other in memory they are one row, so sizes are not p's. */
typedef struct {
    const rlx_conv_octets_t *p;
    rlx_view_t x, y;
    int32_t in_h, in_w, out_w;
    int32_t bytes; /* of a kernel row */
    int8_t *lines;
} rlx_octets_t;

/* n bytes of each of four positions as two words, `to` and `to` + 1; those of the next byte lie 4 words on. */
static void rlx_octets_widen(int32_t *to, const int8_t *const *lines, int32_t n);

/* All channels of a tile whose words are in scratch. */
static void rlx_octets_tile(rlx_octet_t *tile);

/* The first weight's place in a channel's first word. */
static inline int32_t rlx_octets_first(int32_t taps)
{
    return (RLX_TURN - taps % RLX_TURN) % RLX_TURN;
}

/* The next position. */
typedef struct {
    int32_t oy, ox;
} rlx_octets_at_t;

/* What all kernel rows of a position share: the window's first row and column, and where the row's copy goes if the
 * left or right border cuts it. */
typedef struct {
    int32_t y, x;
    int8_t *line;
} rlx_octets_place_t;

RLX_OCTETS_SMALL static const int8_t *rlx_octets_row(const rlx_octets_t *c, const rlx_octets_place_t *place, int32_t ky)
{
    const rlx_conv_octets_t *p = c->p;
    const int32_t y = place->y + ky;
    if (y < 0 || y >= c->in_h) {
        return c->lines;
    }
    const int8_t *row = rlx_row(c->x, y) + place->x * p->in_c;
    if (place->x >= 0 && place->x + p->k_w <= c->in_w) {
        return row;
    }
    int32_t i = 0;
    for (int32_t x = place->x; x < place->x + p->k_w; x++) {
        const int8_t *from = x >= 0 && x < c->in_w ? row : c->lines;
        for (const int32_t end = i + p->in_c; i < end; i++) {
            place->line[i] = from[i];
        }
    }
    return place->line;
}

RLX_OCTETS_SMALL static int32_t *rlx_octets_words(const rlx_octets_t *c, int32_t *words, const int8_t *const *lines)
{
    rlx_octets_widen(words, lines, c->bytes);
    rlx_octets_widen(words + 2, lines + 4, c->bytes);
    return words + 4 * c->bytes;
}

/* The windows of the next `count` positions, wherever they lie. */
RLX_OCTETS_SMALL static void rlx_octets_gather_any(
    const rlx_octets_t *c, rlx_octets_at_t *at, int32_t count, rlx_octet_t *tile)
{
    const rlx_conv_octets_t *p = c->p;
    rlx_octets_place_t places[RLX_OCTET];
    int32_t *words = tile->x;
    for (int32_t i = 0; i < RLX_OCTET; i++) {
        if (i >= count) {
            places[i] = places[0];
            tile->offsets[i] = 0;
            continue;
        }
        tile->offsets[i] = (int32_t)(rlx_row(c->y, at->oy) + at->ox * p->out_c - tile->out);
        places[i].y = at->oy * p->stride_h - p->pad_top;
        places[i].x = at->ox * p->stride_w - p->pad_left;
        places[i].line = c->lines + (i + 1) * c->bytes;
        at->ox++;
        if (at->ox == c->out_w) {
            at->ox = 0;
            at->oy++;
        }
    }
    for (int32_t ky = 0; ky < p->k_h; ky++) {
        const int8_t *lines[RLX_OCTET];
        for (int32_t i = 0; i < RLX_OCTET; i++) {
            lines[i] = rlx_octets_row(c, &places[i], ky);
        }
        words = rlx_octets_words(c, words, lines);
    }
}

/* The windows of 8 neighbors in a row that its left and right borders do not cut. */
static void rlx_octets_gather_inside(const rlx_octets_t *c, const rlx_octets_place_t *place, int32_t *words)
{
    const rlx_conv_octets_t *p = c->p;
    for (int32_t ky = 0; ky < p->k_h; ky++) {
        const int8_t *line = rlx_octets_row(c, place, ky);
        const int32_t step = p->framed != 0 && line == c->lines ? 0 : p->stride_w * p->in_c;
        const int8_t *lines[RLX_OCTET];
        for (int32_t i = 0; i < RLX_OCTET; i++) {
            lines[i] = line;
            line += step;
        }
        words = rlx_octets_words(c, words, lines);
    }
}

/* The windows of the next 8 positions, or of the `left` that there are, and where their outputs lie. */
static void rlx_octets_gather(const rlx_octets_t *c, rlx_octets_at_t *at, int32_t left, rlx_octet_t *tile)
{
    const rlx_conv_octets_t *p = c->p;
    const rlx_octets_place_t first = {at->oy * p->stride_h - p->pad_top, at->ox * p->stride_w - p->pad_left, c->lines};
    const int32_t reach = (RLX_OCTET - 1) * p->stride_w + p->k_w;
    tile->out = rlx_row(c->y, at->oy) + at->ox * p->out_c;
    tile->out_end = tile->out + p->out_c;
    if (at->ox + RLX_OCTET > c->out_w || first.x < 0 || first.x + reach > c->in_w) {
        rlx_octets_gather_any(c, at, left, tile);
        return;
    }
    for (int32_t i = 0; i < RLX_OCTET; i++) {
        tile->offsets[i] = i * p->out_c;
    }
    rlx_octets_gather_inside(c, &first, tile->x);
    at->ox += RLX_OCTET;
    if (at->ox == c->out_w) {
        at->ox = 0;
        at->oy++;
    }
}

RLX_OCTETS_SMALL static void rlx_octets_clamp(const rlx_conv_octets_t *p, const rlx_octet_t *tile)
{
    for (int32_t i = 0; i < RLX_OCTET; i++) {
        int8_t *out = tile->out + tile->offsets[i];
        for (int32_t n = p->out_c; n > 0; n--, out++) {
            *out = (int8_t)(*out < p->low ? p->low : *out > p->high ? p->high : *out);
        }
    }
}

/* The kernel; entry: as in rlx_octet_t. */
static inline void rlx_octets_run(const rlx_conv_octets_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0,
                                  int32_t y1, int32_t entry)
{
    const int32_t bytes = p->k_w * p->in_c;
    const int32_t taps = p->k_h * bytes;
    int32_t *words = scratch;
    int32_t *const words_end = words + 4 * taps;
    rlx_octets_t c = {p, x, y, p->in_h, p->in_w, p->out_w, bytes, (int8_t *)(words_end + p->inits)};
    rlx_octets_at_t at = {.oy = y0};
    int32_t left = (y1 - y0) * p->out_w;
    const bool dense = x.pitch == p->in_w * p->in_c && y.pitch == p->out_w * p->out_c;
    if (p->pointwise != 0 && dense && (x.ring | y.ring) == 0) {
        at = (rlx_octets_at_t){.ox = y0 * p->out_w};
        c.in_h = 1;
        c.in_w = y1 * p->in_w;
        c.out_w = y1 * p->out_w;
    }
    for (int32_t i = 0; i < (p->framed != 0 ? bytes : 0); i++) {
        c.lines[i] = (int8_t)p->x_zp;
    }
    rlx_octet_t tile; /* filled member by member: as a whole it would call memset */
    tile.x = words;
    tile.x_end = words_end;
    tile.stream = p->stream;
    tile.entry = entry;
    tile.c = -(2 * p->out_zp + 1);
    tile.run_end = words + 4 * p->first;
    tile.run = 16 * RLX_TURN * p->turns;
    tile.inits = words_end;
    tile.taps = taps;
    for (; left > 0; left -= RLX_OCTET) {
        rlx_octets_gather(&c, &at, left, &tile);
        rlx_octets_tile(&tile);
        if (p->low > -128 || p->high < 127) {
            rlx_octets_clamp(p, &tile);
        }
    }
}

#endif
