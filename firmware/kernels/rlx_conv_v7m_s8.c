/* rlx_conv_v7m_s8: int8 convolution for Armv7-M, 4 positions at a time, two in a multiplication (rlx_gemm_v7m.h).
 *
 * x [in_h][in_w][in_c], y [out_h][out_w][out_c]; one group, no dilation, any kernel, stride and padding. Positions run
 * through the rows [y0, y1) as one line, so that a tile of 4 may span rows. Padded taps count as x_zp, which is folded
 * into the bias. Narrower bounds than int8's are a second pass over a tile.
 *
 * p->stream: rlx_gemm_v7m.h; a channel's weights are [k_h][k_w][in_c] and zeros up to a multiple of 4.
 * Proved by the generator: rlx_v7m.h's conditions, and rlx_gemm_v7m.h's bound for groups of p->group steps.
 *
 * scratch: words of the windows of a tile, 8 bytes per step; then 5 lines of k_w * in_c bytes: one of zero points for
 * kernel rows outside the image, one for each position whose kernel row is cut by the image's left or right border.
 * x and y must not overlap but as the order says that the generator knows: all of a tile's windows are read before any
 * of its outputs is written.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_gemm_v7m.h"
#include "rlx_kernels.h"

/* One call. Where all rows of a 1x1 kernel follow each other in memory they are one row, so sizes are not p's. */
typedef struct {
    const rlx_conv_v7m_t *p;
    rlx_view_t x, y;
    int32_t in_h, in_w, out_w;
    int32_t bytes; /* of a kernel row */
    int32_t *words;
    int8_t *lines;
} conv_t;

/* The next position. */
typedef struct {
    int32_t oy, ox;
} cursor_t;

/* n bytes of each position as words: a, b and c, e to the two fields of a word each. */
RLX_V7M_SMALL static int32_t *widen(
    int32_t *d, const int8_t *a, const int8_t *b, const int8_t *c, const int8_t *e, int32_t n)
{
#if RLX_V7M && defined(__OPTIMIZE__)
    int32_t s, t, u;
    __asm__ volatile(
        "b 2f\n"
        "1:\n\t"
        ".rept 4\n\t"
        "ldrsb %[s], [%[a]], #1\n\t"
        "ldrsb %[t], [%[b]], #1\n\t"
        "add %[s], %[s], %[t], lsl #16\n\t"
        "ldrsb %[t], [%[c]], #1\n\t"
        "ldrsb %[u], [%[e]], #1\n\t"
        "add %[t], %[t], %[u], lsl #16\n\t"
        "strd %[s], %[t], [%[d]], #8\n\t"
        ".endr\n"
        "2:\n\t"
        "subs %[n], %[n], #4\n\t"
        "bpl 1b"
        : [d] "+r"(d), [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [e] "+r"(e), [n] "+r"(n), [s] "=&r"(s), [t] "=&r"(t),
          [u] "=&r"(u)
        :
        : "cc", "memory");
    n += 4;
#endif
    RLX_V7M_ROLLED
    for (; n > 0; n--) {
        *d++ = (int32_t)((uint32_t)*a++ + ((uint32_t)*b++ << 16));
        *d++ = (int32_t)((uint32_t)*c++ + ((uint32_t)*e++ << 16));
    }
    return d;
}

static inline void move(const conv_t *c, cursor_t *at, int32_t positions)
{
    at->ox += positions;
    if (at->ox == c->out_w) {
        at->ox = 0;
        at->oy++;
    }
}

RLX_V7M_SMALL static void copy(int8_t *to, const int8_t *from, int32_t first, int32_t end)
{
    RLX_V7M_ROLLED
    for (int32_t i = first; i < end; i++) {
        to[i] = from[i];
    }
}

/* What all kernel rows of a position share: its first row and column, and which bytes of a row lie in the image. Where
 * some do not, `line` holds zero points, and the others are copied into it. */
typedef struct {
    int32_t y, x, left, right;
    int8_t *line; /* NULL when all do */
} place_t;

static void locate(const conv_t *c, const cursor_t *at, int8_t *line, place_t *place)
{
    const rlx_conv_v7m_t *p = c->p;
    place->y = at->oy * p->stride_h - p->pad_top;
    place->x = at->ox * p->stride_w - p->pad_left;
    place->left = place->x < 0 ? -place->x * p->in_c : 0;
    place->right = (c->in_w - place->x) * p->in_c;
    place->line = NULL;
    if (place->left > 0 || place->right < c->bytes) {
        place->right = place->right < c->bytes ? place->right : c->bytes;
        place->line = line;
        copy(line, c->lines, 0, c->bytes);
    }
}

RLX_V7M_SMALL static const int8_t *kernel_row(const conv_t *c, const place_t *place, int32_t ky)
{
    const int32_t y = place->y + ky;
    if (y < 0 || y >= c->in_h) {
        return c->lines;
    }
    const int8_t *row = rlx_row(c->x, y) + place->x * c->p->in_c;
    if (place->line == NULL) {
        return row;
    }
    copy(place->line, row, place->left, place->right);
    return place->line;
}

/* The windows of the next `count` positions, wherever they lie; the others of the tile are the first once more. */
RLX_V7M_SMALL static void gather_any(const conv_t *c, cursor_t *at, int32_t count, rlx_gemm_v7m_t *g)
{
    place_t places[RLX_GEMM_V7M_POSITIONS];
    int32_t *d = c->words;
    RLX_V7M_ROLLED
    for (int32_t i = 0; i < RLX_GEMM_V7M_POSITIONS; i++) {
        if (i >= count) {
            places[i] = places[0];
            g->offsets[i - 1] = 0;
            continue;
        }
        if (i > 0) {
            g->offsets[i - 1] = (int32_t)(rlx_row(c->y, at->oy) + at->ox * c->p->out_c - g->out);
        }
        locate(c, at, c->lines + (i + 1) * c->bytes, &places[i]);
        move(c, at, 1);
    }
    for (int32_t ky = 0; ky < c->p->k_h; ky++) {
        const int8_t *rows[RLX_GEMM_V7M_POSITIONS];
        RLX_V7M_ROLLED
        for (int32_t i = 0; i < RLX_GEMM_V7M_POSITIONS; i++) {
            rows[i] = kernel_row(c, &places[i], ky);
        }
        d = widen(d, rows[0], rows[1], rows[2], rows[3], c->bytes);
    }
}

/* The windows of 4 neighbors in a row that are not cut by its left or right border; x0, y0: the first one's. */
static void gather_inside(const conv_t *c, int32_t y0, int32_t x0)
{
    int32_t *d = c->words;
    for (int32_t y = y0; y < y0 + c->p->k_h; y++) {
        const bool inside = y >= 0 && y < c->in_h;
        const int8_t *row = inside ? rlx_row(c->x, y) + x0 * c->p->in_c : c->lines;
        const int32_t step = inside ? c->p->stride_w * c->p->in_c : 0;
        d = widen(d, row, row + step, row + 2 * step, row + 3 * step, c->bytes);
    }
}

/* The windows of the next 4 positions, or of the `left` that there are, and where their outputs lie. */
static void gather(const conv_t *c, cursor_t *at, int32_t left, rlx_gemm_v7m_t *g)
{
    const rlx_conv_v7m_t *p = c->p;
    const int32_t x0 = at->ox * p->stride_w - p->pad_left;
    const int32_t x1 = x0 + (RLX_GEMM_V7M_POSITIONS - 1) * p->stride_w + p->k_w;
    g->out = rlx_row(c->y, at->oy) + at->ox * p->out_c;
    g->out_end = g->out + p->out_c;
    if (at->ox + RLX_GEMM_V7M_POSITIONS > c->out_w || x0 < 0 || x1 > c->in_w) {
        gather_any(c, at, left, g);
        return;
    }
    g->offsets[0] = p->out_c;
    g->offsets[1] = 2 * p->out_c;
    g->offsets[2] = 3 * p->out_c;
    gather_inside(c, at->oy * p->stride_h - p->pad_top, x0);
    move(c, at, RLX_GEMM_V7M_POSITIONS);
}

RLX_V7M_SMALL static void clamp(const rlx_conv_v7m_t *p, const rlx_gemm_v7m_t *g)
{
    RLX_V7M_ROLLED
    for (int32_t i = 0; i < RLX_GEMM_V7M_POSITIONS; i++) {
        rlx_v7m_clamp(g->out + (i == 0 ? 0 : g->offsets[i - 1]), p->out_c, p->low, p->high);
    }
}

void rlx_conv_v7m_s8(const rlx_conv_v7m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    const int32_t bytes = p->k_w * p->in_c;
    const int32_t taps = p->k_h * bytes;
    const int32_t steps = (taps + 3) / 4 * 4;
    int32_t *words = scratch;
    conv_t c = {p, x, y, p->in_h, p->in_w, p->out_w, bytes, words, (int8_t *)(words + 2 * steps)};
    cursor_t at = {.oy = y0};
    int32_t left = (y1 - y0) * p->out_w;
    const bool dense = x.pitch == p->in_w * p->in_c && y.pitch == p->out_w * p->out_c;
    if (p->pointwise != 0 && dense && (x.ring | y.ring) == 0) {
        at = (cursor_t){.ox = y0 * p->out_w};
        c.in_h = 1;
        c.in_w = y1 * p->in_w;
        c.out_w = y1 * p->out_w;
    }
    RLX_V7M_ROLLED
    for (int32_t i = 2 * taps; i < 2 * steps; i++) {
        words[i] = 0;
    }
    RLX_V7M_ROLLED
    for (int32_t i = 0; i < bytes; i++) {
        c.lines[i] = (int8_t)p->x_zp;
    }
    rlx_gemm_v7m_t g = {
        .x = words,
        .x_end = words + 2 * steps,
        .low = -0x8000 * (steps / p->group),
        .first = rlx_gemm_v7m_first(steps, p->group),
        .c = -(2 * p->out_zp + 1),
        .stream = p->stream,
        .group = p->group,
    };
    for (; left > 0; left -= RLX_GEMM_V7M_POSITIONS) {
        gather(&c, &at, left, &g);
        rlx_gemm_v7m(&g);
        if (p->low > -128 || p->high < 127) {
            clamp(p, &g);
        }
    }
}
