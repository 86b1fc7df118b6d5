/* rlx_conv_v6m_s8: int8 convolution for Armv6-M: four positions at a time, two per multiply.
 *
 * Any kernel, stride and padding; no dilation, one group, weights without a zero point.
 *
 * Tile. Four output positions in the order of memory (they may lie in several rows; the last tile repeats its last
 * position). Their windows are copied to scratch first, tap after tap, two words a tap: a0 + (a1 << 16) and
 * a2 + (a3 << 16) (rlx_v6m.h). Then channel after channel is summed over them, rescaled and stored.
 *
 * Stream, per output channel (int32 words):
 *     lo, hi        the first values of lo and hi
 *     run           32 * the number of long blocks that follow, which may be 0
 *     weights       one word a long block: four taps k to k + 3 as bytes k + 1, k + 2, k + 3, k; products are taken in
 *                   the order k, k + 1, k + 2, k + 3 and make one group
 *     short block   if taps are left: a word of four taps as above, but two groups, (k, k + 1) and (k + 2, k + 3);
 *                   then a run again, and so on
 *     four words    rescale (rlx_v6m_scale_t)
 * The taps are those of the window [k_h][k_w][in_c], with zero weights up to a multiple of four.
 *
 * The generator proves: in each group of each channel the sum over one position lies in [-2^15, 2^15); |acc| < 2^24;
 * the rescale is exact.
 *
 * Scratch: words [4 * blocks][2], then five lines of k_w * in_c bytes: a kernel row outside the image, and one of each
 * position where it crosses the image's left or right border.
 * y may overlap x as far as order() of cgen/variants/conv_v6m.py says: a tile reads its windows before it is written.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_v6m.h"

enum { POSITIONS = 4, TAPS = 4 };

typedef struct {
    int8_t *out[POSITIONS];
    const int32_t *acts;
    const int32_t *acts_end;
    const int32_t *stream;
    int32_t channels;
} tile_t;

#if RLX_V6M_ASM

/* Registers of a tile:
 *   r0 weight, r1 r2 products, r3 r4 sums of the group, r5 next activations, r6 next word of the stream, r7 weights;
 *   r8 2^15, r9 r10 lo and hi of positions 0 and 1, r11 r12 of 2 and 3, lr end of the run's activations.
 * While rescaling: as RLX_V6M_RESCALE says, r5 the channel.
 * Stack: 0 out[4], 16 acts, 20 acts_end, 24 channels, 28 channel, 32 stream. */
#define FIRST_TAP                                                                                                     \
    "    ldmia r5!, {r3, r4}\n"                                                                                       \
    "    muls r3, r0, r3\n"                                                                                           \
    "    muls r4, r0, r4\n"                                                                                           \
    "    add r3, r8\n"                                                                                                \
    "    add r4, r8\n"
#define NEXT_TAP                                                                                                      \
    "    ldmia r5!, {r1, r2}\n"                                                                                       \
    "    muls r1, r0, r1\n"                                                                                           \
    "    muls r2, r0, r2\n"                                                                                           \
    "    adds r3, r3, r1\n"                                                                                           \
    "    adds r4, r4, r2\n"
#define FLUSH                                                                                                         \
    "    add r9, r3\n"                                                                                                \
    "    asrs r3, r3, #16\n"                                                                                          \
    "    add r10, r3\n"                                                                                               \
    "    add r11, r4\n"                                                                                               \
    "    asrs r4, r4, #16\n"                                                                                          \
    "    add r12, r4\n"
/* 33 and 39 instructions for 16 products */
#define LONG_BLOCK                                                                                                    \
    "    ldmia r6!, {r7}\n"                                                                                           \
    "    asrs r0, r7, #24\n" FIRST_TAP                                                                                \
    "    sxtb r0, r7\n" NEXT_TAP                                                                                      \
    "    lsrs r7, r7, #8\n"                                                                                           \
    "    sxtb r0, r7\n" NEXT_TAP                                                                                      \
    "    lsrs r7, r7, #8\n"                                                                                           \
    "    sxtb r0, r7\n" NEXT_TAP FLUSH
#define SHORT_BLOCK                                                                                                   \
    "    ldmia r6!, {r7}\n"                                                                                           \
    "    asrs r0, r7, #24\n" FIRST_TAP                                                                                \
    "    sxtb r0, r7\n" NEXT_TAP FLUSH                                                                                \
    "    lsrs r7, r7, #8\n"                                                                                           \
    "    sxtb r0, r7\n" FIRST_TAP                                                                                     \
    "    lsrs r7, r7, #8\n"                                                                                           \
    "    sxtb r0, r7\n" NEXT_TAP FLUSH
/* the first position of a pair is lo - (hi << 16), the second one is hi */
#define STORE_FIRST(rescale, lo, hi, at)                                                                              \
    "    mov r1, " hi "\n"                                                                                            \
    "    lsls r1, r1, #16\n"                                                                                          \
    "    mov r0, " lo "\n"                                                                                            \
    "    subs r0, r0, r1\n" rescale("r7")                                                                             \
    "    ldr r1, [sp, #" at "]\n"                                                                                     \
    "    strb r0, [r1, r5]\n"
#define STORE_SECOND(rescale, hi, at)                                                                                 \
    "    mov r0, " hi "\n" rescale("r7")                                                                              \
    "    ldr r1, [sp, #" at "]\n"                                                                                     \
    "    strb r0, [r1, r5]\n"
#define STORE_ALL(rescale)                                                                                            \
    STORE_FIRST(rescale, "r9", "r10", "0")                                                                            \
    STORE_SECOND(rescale, "r10", "4")                                                                                 \
    STORE_FIRST(rescale, "r11", "r12", "8")                                                                           \
    STORE_SECOND(rescale, "r12", "12")

RLX_V6M_NAKED static void run_tile(RLX_V6M_UNUSED const tile_t *tile)
{
    __asm__ volatile(".syntax unified\n"
                     RLX_V6M_SAVE
                     "    ldmia r0!, {r1-r7}\n"
                     "    ldr r0, [r0]\n"
                     "    sub sp, #8\n"
                     "    push {r0}\n"
                     "    push {r1-r6}\n"
                     "    movs r6, r7\n"
                     "    movs r5, #0\n"
                     "    str r5, [sp, #28]\n"
                     "    movs r0, #128\n"
                     "    lsls r0, r0, #8\n"
                     "    mov r8, r0\n"
                     "1:\n" /* a channel */
                     "    ldmia r6!, {r0, r1}\n"
                     "    mov r9, r0\n"
                     "    mov r11, r0\n"
                     "    mov r10, r1\n"
                     "    mov r12, r1\n"
                     "    ldr r5, [sp, #16]\n"
                     "2:\n" /* a run of long blocks, two at a time; an odd number starts with the second one */
                     "    ldmia r6!, {r0}\n"
                     "    adds r1, r0, r5\n"
                     "    mov lr, r1\n"
                     "    lsls r0, r0, #27\n" /* carry: bit 5, one of the number */
                     "    bcs 4f\n"
                     "    cmp r5, lr\n"
                     "    beq 5f\n"
                     "3:\n" LONG_BLOCK
                     "4:\n" LONG_BLOCK
                     "    cmp r5, lr\n"
                     "    bne 3b\n"
                     "5:\n"
                     "    ldr r0, [sp, #20]\n"
                     "    cmp r5, r0\n"
                     "    beq 6f\n" SHORT_BLOCK
                     "    b 2b\n"
                     "6:\n" /* rescale and store */
                     "    ldmia r6!, {r0, r3, r4, r7}\n"
                     "    mov lr, r0\n"
                     "    str r6, [sp, #32]\n"
                     "    ldr r5, [sp, #28]\n"
                     "    cmp r7, #255\n"
                     "    bls 7f\n"
                     STORE_ALL(RLX_V6M_RESCALE_SHORT)
                     "    b 8f\n"
                     "7:\n"
                     "    ldr r6, 10f\n"
                     STORE_ALL(RLX_V6M_RESCALE_LONG)
                     "8:\n"
                     "    ldr r6, [sp, #32]\n"
                     "    adds r5, r5, #1\n"
                     "    str r5, [sp, #28]\n"
                     "    ldr r0, [sp, #24]\n"
                     "    cmp r5, r0\n"
                     "    beq 9f\n"
                     "    b 1b\n"
                     "    .balign 4\n"
                     "10: .word " RLX_V6M_INNER "\n"
                     "9:\n"
                     "    add sp, #36\n"
                     RLX_V6M_RETURN);
}

/* Words of `taps` taps from four lines; returns the next word's place. 12 instructions a tap. */
RLX_V6M_NAKED static int32_t *expand(
    RLX_V6M_UNUSED int32_t *words, RLX_V6M_UNUSED const int8_t *const *lines, RLX_V6M_UNUSED int32_t taps)
{
    __asm__ volatile(".syntax unified\n"
                     "    push {r4-r7, lr}\n"
                     "    ldmia r1!, {r3-r6}\n"
                     "    adds r3, r3, r2\n"
                     "    adds r4, r4, r2\n"
                     "    adds r5, r5, r2\n"
                     "    adds r6, r6, r2\n"
                     "    rsbs r2, r2, #0\n"
                     "1:\n"
                     "    ldrsb r1, [r3, r2]\n"
                     "    ldrsb r7, [r4, r2]\n"
                     "    lsls r7, r7, #16\n"
                     "    adds r1, r1, r7\n"
                     "    stmia r0!, {r1}\n"
                     "    ldrsb r1, [r5, r2]\n"
                     "    ldrsb r7, [r6, r2]\n"
                     "    lsls r7, r7, #16\n"
                     "    adds r1, r1, r7\n"
                     "    stmia r0!, {r1}\n"
                     "    adds r2, r2, #1\n"
                     "    bne 1b\n"
                     "    pop {r4-r7, pc}\n");
}

#else /* the same in C */

typedef struct {
    uint32_t lo[2];
    int32_t hi[2];
} sums_t;

/* The byte that holds the weight of tap `k` of a block. */
static int32_t weight(int32_t word, int32_t k)
{
    static const uint8_t byte[TAPS] = {3, 0, 1, 2};
    return (int8_t)((uint32_t)word >> 8 * byte[k] & 0xFFu);
}

/* One group: taps [first, end) of a block. */
static void group(sums_t *s, const int32_t *acts, int32_t word, int32_t first, int32_t end)
{
    for (int32_t pair = 0; pair < 2; pair++) {
        uint32_t f = 1u << 15;
        for (int32_t k = first; k < end; k++) {
            f += (uint32_t)weight(word, k) * (uint32_t)acts[2 * k + pair];
        }
        rlx_v6m_flush(f, &s->lo[pair], &s->hi[pair]);
    }
}

static void run_tile(const tile_t *tile)
{
    const int32_t *next = tile->stream;
    for (int32_t c = 0; c < tile->channels; c++) {
        sums_t s = {{(uint32_t)next[0], (uint32_t)next[0]}, {next[1], next[1]}};
        next += 2;
        const int32_t *acts = tile->acts;
        for (;;) {
            const int32_t run = *next++ / 32;
            for (int32_t i = 0; i < run; i++, acts += 2 * TAPS) {
                group(&s, acts, *next++, 0, 4);
            }
            if (acts == tile->acts_end) {
                break;
            }
            group(&s, acts, *next, 0, 2);
            group(&s, acts, *next++, 2, 4);
            acts += 2 * TAPS;
        }
        const rlx_v6m_scale_t scale = {next[0], next[1], next[2], next[3]};
        next += 4;
        for (int32_t pair = 0; pair < 2; pair++) {
            const int32_t first = (int32_t)(s.lo[pair] - ((uint32_t)s.hi[pair] << 16));
            tile->out[2 * pair][c] = rlx_v6m_rescale(first, &scale);
            tile->out[2 * pair + 1][c] = rlx_v6m_rescale(s.hi[pair], &scale);
        }
    }
}

static int32_t *expand(int32_t *words, const int8_t *const *lines, int32_t taps)
{
    for (int32_t i = 0; i < taps; i++) {
        *words++ = lines[0][i] + lines[1][i] * (1 << 16);
        *words++ = lines[2][i] + lines[3][i] * (1 << 16);
    }
    return words;
}

#endif

/* A position: its output, and the row and column of x where its window begins, which may be outside. */
typedef struct {
    int8_t *out;
    int32_t row, column, top, left;
} position_t;

typedef struct {
    const rlx_conv_v6m_t *p;
    rlx_view_t x, y;
    int32_t taps;  /* of a kernel row */
    int8_t *lines; /* [1 + POSITIONS][taps], the first one filled with x_zp */
} source_t;

/* The taps of one kernel row as bytes one after the other: in x where it is inside, else in scratch. */
static RLX_V6M_NOINLINE const int8_t *line_of(const source_t *s, const position_t *at, int32_t ky, int32_t index)
{
    const rlx_conv_v6m_t *p = s->p;
    const int32_t iy = at->top + ky;
    if (iy < 0 || iy >= p->in_h) {
        return s->lines;
    }
    const int8_t *row = rlx_row(s->x, iy);
    int32_t i = at->left * p->in_c;
    if (at->left >= 0 && at->left + p->k_w <= p->in_w) {
        return row + i;
    }
    int8_t *const line = s->lines + (1 + index) * s->taps;
    const int32_t width = p->in_w * p->in_c;
    for (int8_t *to = line; to != line + s->taps; to++, i++) {
        *to = i >= 0 && i < width ? row[i] : (int8_t)p->x_zp;
    }
    return line;
}

/* The windows of positions that follow each other in a row and cross neither side of the image. */
static RLX_V6M_NOINLINE void expand_interior(const source_t *s, const position_t *at, int32_t *words)
{
    const int32_t step = s->p->stride_w * s->p->in_c;
    for (int32_t ky = 0; ky < s->p->k_h; ky++) {
        const int8_t *line = line_of(s, at, ky, 0);
        const int32_t apart = line == s->lines ? 0 : step;
        const int8_t *const lines[POSITIONS] = {line, line + apart, line + 2 * apart, line + 3 * apart};
        words = expand(words, lines, s->taps);
    }
}

/* The windows of any positions. */
static RLX_V6M_NOINLINE void expand_any(const source_t *s, const position_t *at, int32_t *words)
{
    for (int32_t ky = 0; ky < s->p->k_h; ky++) {
        const int8_t *lines[POSITIONS];
        for (int32_t i = 0; i < POSITIONS; i++) {
            lines[i] = line_of(s, &at[i], ky, i);
        }
        words = expand(words, lines, s->taps);
    }
}

static RLX_V6M_NOINLINE void clamp_tile(const rlx_conv_v6m_t *p, int8_t *const *out, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        for (int8_t *q = out[i]; q != out[i] + p->out_c; q++) {
            *q = (int8_t)(*q < p->low ? p->low : *q > p->high ? p->high : *q);
        }
    }
}

/* Moves on by some positions of a row, at most to its end, from which it goes to the next row. */
static RLX_V6M_NOINLINE void advance(const source_t *s, position_t *at, int32_t positions)
{
    at->column += positions;
    at->left += positions * s->p->stride_w;
    at->out += positions * s->p->out_c;
    if (at->column == s->p->out_w) {
        at->column = 0;
        at->left = -s->p->pad_left;
        at->row++;
        at->top += s->p->stride_h;
        at->out = rlx_row(s->y, at->row);
    }
}

/* A tile from `at` on, of at most `left` positions that need not lie in one row. */
static RLX_V6M_NOINLINE void gather_tile(
    const source_t *s, position_t *at, int32_t left, int8_t **out, int32_t *words)
{
    position_t tiled[POSITIONS];
    for (int32_t i = 0; i < POSITIONS; i++) {
        tiled[i] = *at;
        out[i] = at->out;
        if (i + 1 < left) {
            advance(s, at, 1);
        }
    }
    expand_any(s, tiled, words);
}

void rlx_conv_v6m_s8(
    const rlx_conv_v6m_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    int32_t *words = (int32_t *)scratch;
    int32_t *const end = words + 2 * TAPS * p->blocks;
    const int32_t taps = p->k_w * p->in_c;
    const source_t s = {p, x, y, taps, (int8_t *)end};
    for (int32_t i = 0; i < taps; i++) {
        s.lines[i] = (int8_t)p->x_zp;
    }
    for (int32_t *pad = words + 2 * p->k_h * taps; pad != end; pad++) {
        *pad = 0;
    }
    tile_t tile = {.acts = words, .acts_end = end, .stream = p->stream, .channels = p->out_c};
    position_t at = {rlx_row(y, y0), y0, 0, y0 * p->stride_h - p->pad_top, -p->pad_left};
    const int32_t reach = (POSITIONS - 1) * p->stride_w + p->k_w; /* columns of four windows in a row */
    for (int32_t left = (y1 - y0) * p->out_w; left > 0; left -= POSITIONS) {
        if (at.left >= 0 && at.left + reach <= p->in_w && at.column + POSITIONS <= p->out_w) {
            for (int32_t i = 0; i < POSITIONS; i++) {
                tile.out[i] = at.out + i * p->out_c;
            }
            expand_interior(&s, &at, words);
            advance(&s, &at, POSITIONS);
        } else {
            gather_tile(&s, &at, left, tile.out, words);
        }
        run_tile(&tile);
        if (p->low > -128 || p->high < 127) {
            clamp_tile(p, tile.out, left < POSITIONS ? left : POSITIONS);
        }
    }
}
