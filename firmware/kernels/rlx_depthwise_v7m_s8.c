/* rlx_depthwise_v7m_s8: int8 depthwise convolution for Armv7-M, 6 neighbors of a row at a time.
 *
 * x [in_h][in_w][in_c], y [out_h][out_w][in_c]; an output channel per input channel, no dilation, any kernel, stride
 * and padding. Bands of p->band_h rows and p->band_w columns of y are computed for up to 4 channels at a time: their
 * part of x is copied to scratch, 4 bytes a pixel, with zero points where it lies outside the image. (The zero point is
 * folded into the bias.) Narrower bounds than int8's are a second pass over a block.
 *
 * 3x3 kernels with a horizontal stride of 1 or 2 run in assembly; all others, and all on other cores, in C.
 *
 * p->stream, per channel, aligned to 4: int32 the negated bias; int8 weights [k_h][k_w]; int8 e; zeros up to a
 * multiple of 4; int32 -m (rlx_v7m.h, whose conditions the generator proved).
 *
 * scratch: [(band_h - 1) stride_h + k_h][columns][4], columns = (max(band_w, 6) - 1) stride_w + k_w.
 * x and y must not overlap but as the order says that the generator knows: a band's rows of x are read for each block
 * of channels, just before the outputs of these channels are written. So a single band may be computed in place.
 *
 * Registers of the assembly: r0 to r5 negated sums of 6 positions; r6, r7, r8 weights of a kernel row; r9 input; r10
 * reads scratch; r11 its pitch; r12 output; lr reads the stream. Then r6 = -m, r7 = e, r8 = c << e, r9 is lost, r10
 * steps between positions in y, r11 = r12 + r10. On the stack: see run_t. Stride 1 takes 3 x 29 instructions per 54
 * products, stride 2 takes 3 x 34.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_v7m.h"

#define POSITIONS 6
#define BLOCK 4 /* channels */

/* `rows` tiles of up to POSITIONS neighbors, one below the other, for `channels` channels. */
typedef struct {
    const int8_t *in;      /* scratch, where the first tile's windows begin */
    int32_t pitch;         /* of a row of scratch */
    int32_t c;             /* -(2 out_zp + 1) */
    int32_t step;          /* from a position's output to the next one's */
    const int8_t *out_end; /* of the first tile's first position: out + channels */
    const int32_t *stream;
    int32_t next_in;       /* to the next tile, after the last channel */
    int32_t next_out;
    int32_t rows;
    int32_t y_pitch;
    int32_t positions;     /* that are written, 1 to POSITIONS */
    int8_t *out;
    int32_t stride;
} run_t;

#if RLX_V7M
/* Input at byte `at` of the row, and the positions that it serves. */
#define IN(at) "ldrsb.w r9, [r10, #" #at "]\n\t"
#define AT(position, weight) "mls r" #position ", r9, " weight ", r" #position "\n\t"
#define A(position) AT(position, "r6")
#define B(position) AT(position, "r7")
#define C(position) AT(position, "r8")
#define WEIGHTS "ldrsb r6, [lr], #1\n\tldrsb r7, [lr], #1\n\tldrsb r8, [lr], #1\n\t"
#define ROW_1 \
    WEIGHTS IN(0) A(0) IN(4) B(0) A(1) IN(8) C(0) B(1) A(2) IN(12) C(1) B(2) A(3) IN(16) C(2) B(3) A(4) \
    IN(20) C(3) B(4) A(5) IN(24) C(4) B(5) IN(28) C(5)
#define ROW_2 \
    WEIGHTS IN(0) A(0) IN(4) B(0) IN(8) C(0) A(1) IN(12) B(1) IN(16) C(1) A(2) IN(20) B(2) IN(24) C(2) A(3) \
    IN(28) B(3) IN(32) C(3) A(4) IN(36) B(4) IN(40) C(4) A(5) IN(44) B(5) IN(48) C(5)
#define NEXT_ROW "add r10, r11\n\t"
#define OUT(position, at) RLX_V7M_REQUANTIZE("r" #position, "r6", "r7", "r8", "r9", at)

RLX_V7M_NAKED static void run_3x3(__attribute__((unused)) const run_t *run)
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "ldm r0!, {r1-r11}\n\t"
        "push {r1-r11}\n\t"
        "mov lr, r6\n\t"
        "ldr r12, [r0]\n\t"
        "ldr r0, [r0, #4]\n\t"
        "adr.w r1, 5f\n\t"
        "adr.w r2, 6f\n\t"
        "sub r2, r2, r1\n\t" /* bytes of code for a position */
        "rsb r11, r11, #6\n\t" /* positions to leave out: the last ones, whose code comes first */
        "mla r1, r11, r2, r1\n\t"
        "orr.w r1, r1, #1\n\t"
        "str r1, [sp, #40]\n\t"
        "cmp r0, #1\n\t"
        "ite eq\n\t"
        "adreq.w r1, 2f\n\t"
        "adrne.w r1, 3f\n\t"
        "orr.w r1, r1, #1\n\t"
        "push {r0, r1}\n" /* what was at [sp, #n] is at [sp, #n + 8] */
        "1:\n\t" /* a channel */
        "ldrd r10, r11, [sp, #8]\n\t"
        "ldr r0, [lr], #4\n\t"
        "add.w r1, r10, #1\n\t"
        "str r1, [sp, #8]\n\t"
        "mov r1, r0\n\t"
        "mov r2, r0\n\t"
        "mov r3, r0\n\t"
        "mov r4, r0\n\t"
        "mov r5, r0\n\t"
        "ldr.w pc, [sp, #4]\n\t"
        ".balign 4\n"
        "2:\n\t"
        ROW_1 NEXT_ROW ROW_1 NEXT_ROW ROW_1
        "b.w 4f\n\t"
        ".balign 4\n"
        "3:\n\t"
        ROW_2 NEXT_ROW ROW_2 NEXT_ROW ROW_2
        "4:\n\t"
        "ldrsb r7, [lr], #3\n\t"
        "ldr r6, [lr], #4\n\t"
        "ldrd r8, r10, [sp, #16]\n\t"
        "lsl.w r8, r8, r7\n\t"
        "add.w r11, r12, r10\n\t"
        "ldr.w pc, [sp, #48]\n\t"
        ".balign 4\n"
        "5:\n\t"
        OUT(5, "[r11, r10, lsl #2]")
        "6:\n\t"
        OUT(4, "[r12, r10, lsl #2]")
        OUT(3, "[r11, r10, lsl #1]")
        OUT(2, "[r12, r10, lsl #1]")
        OUT(1, "[r12, r10]")
        OUT(0, "[r12], #1")
        "ldr r6, [sp, #24]\n\t"
        "cmp r12, r6\n\t"
        "bne 1b\n\t"
        "ldrd r1, r2, [sp, #32]\n\t" /* to the next tile */
        "ldr r0, [sp, #8]\n\t"
        "add r0, r1\n\t"
        "str r0, [sp, #8]\n\t"
        "add r12, r2\n\t"
        "ldrd r3, r4, [sp, #40]\n\t"
        "add r6, r4\n\t"
        "str r6, [sp, #24]\n\t"
        "ldr.w lr, [sp, #28]\n\t"
        "subs r3, #1\n\t"
        "str r3, [sp, #40]\n\t"
        "bne 1b\n\t"
        "add sp, #52\n\t"
        "pop {r4-r11, pc}\n\t");
}
#endif

/* The same for any kernel. */
RLX_V7M_SMALL static void run_any(const rlx_depthwise_v7m_t *p, const run_t *run, int32_t channels)
{
    const int8_t *in = run->in;
    int8_t *out = run->out;
    for (int32_t row = 0; row < run->rows; row++) {
        const int8_t *w = (const int8_t *)run->stream;
        for (int32_t c = 0; c < channels; c++, in++, out++) {
            const int32_t bias = *(const int32_t *)(const void *)w;
            const int32_t taps = p->k_h * p->k_w;
            const int8_t *scale = w + 4 + taps;
            const int32_t minus_m = *(const int32_t *)(const void *)(w + 4 + taps / 4 * 4 + 4);
            RLX_V7M_ROLLED
            for (int32_t i = 0; i < run->positions; i++) {
                const int8_t *line = in + i * run->stride * BLOCK;
                const int8_t *weight = w + 4;
                int32_t sum = bias;
                RLX_V7M_ROLLED
                for (int32_t ky = 0; ky < p->k_h; ky++, line += run->pitch) {
                    RLX_V7M_ROLLED
                    for (int32_t kx = 0; kx < p->k_w; kx++) {
                        sum -= line[kx * BLOCK] * *weight++;
                    }
                }
                out[i * run->step] = rlx_v7m_requantize(sum, minus_m, *scale, run->c);
            }
            w += 4 + taps / 4 * 4 + 8;
        }
        in += run->next_in;
        out += run->next_out;
    }
}

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
    const int32_t channel_words = (p->k_h * p->k_w) / 4 + 3;
    const int32_t zero = (int32_t)(0x01010101u * (uint8_t)p->x_zp);
    RLX_V7M_ROLLED
    for (int32_t i = 0; i < part->rows * (run.pitch / BLOCK); i++) {
        d[i] = zero; /* outside of x it stays so, for all channels */
    }
    for (int32_t c = 0; c < p->in_c; c += BLOCK) {
        const int32_t channels = clip(p->in_c - c, 1, BLOCK);
        copy_part(p, x, part, channels, d, run.pitch / BLOCK);
        run.next_in = p->stride_h * run.pitch - channels;
        run.next_out = run.y_pitch - channels;
        tiles(p, &run, columns, channels);
        if (p->low > -128 || p->high < 127) {
            clamp_band(p, &run, columns, channels);
        }
        x.base += channels;
        run.out += channels;
        run.stream += channels * channel_words;
    }
}

void rlx_depthwise_v7m_s8(
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
                .stream = p->stream,
                .rows = rows,
                .y_pitch = y.pitch,
                .out = rlx_row(y, oy) + ox * p->in_c,
                .stride = p->stride_w,
            };
            band(p, x, run, &part, columns, scratch);
        }
    }
}
