/* rlx_dense_v7m_s8: int8 matrix product for Armv7-M, a row of x with 8 output channels at a time.
 *
 * x [rows][in_c], y [rows][out_c]. x's zero point is folded into the bias; narrower bounds than int8's are a second
 * pass. No scratch. x and y must not overlap.
 *
 * p->stream, for groups of n channels, n = 8 and then 1 each for what is left of out_c, each group aligned to 4:
 * int32 [n] the negated biases; int8 weights [in_c][n]; zeros up to a multiple of 4; per channel int32 -m, int32 e
 * (rlx_v7m.h, whose conditions the generator proved).
 *
 * Registers of the assembly: r0 to r7 negated sums; r8, r11 weights; r9 input; r12 reads x up to r10; lr reads the
 * stream. Then r8 = -m, r9 = e, r10 = c << e, r11 is lost, r12 output. On the stack: see eights_t. The loop over in_c
 * is unrolled 8 times and entered in its middle when in_c is not a multiple of 8: 17 instructions per 8 products.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_v7m.h"

#define CHANNELS 8
#define UNROLL 8

/* One row of x and all whole groups of channels. */
typedef struct {
    const int8_t *x;
    const int8_t *x_end;
    int8_t *out;
    const int8_t *out_end;
    int32_t first; /* inputs in the loop's first turn */
    int32_t c;     /* -(2 out_zp + 1) */
    const int32_t *stream;
} eights_t;

#if RLX_V7M
#define REQUANTIZE(n) \
    "ldrd r8, r9, [lr], #8\n\t" \
    "ldr r10, [sp, #20]\n\t" \
    "lsl.w r10, r10, r9\n\t" \
    RLX_V7M_REQUANTIZE(n, "r8", "r9", "r10", "r11", "[r12], #1")

RLX_V7M_NAKED static void eights(__attribute__((unused)) const eights_t *g)
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "ldm r0, {r1-r7}\n\t"
        "mov lr, r7\n\t"
        "adr.w r0, 3f\n\t"
        "adr.w r7, 2f\n\t"
        "sub r7, r0, r7\n\t"
        "lsr r7, r7, #3\n\t" /* bytes of code for an input */
        "mls r5, r5, r7, r0\n\t"
        "orr.w r5, r5, #1\n\t"
        "push {r1-r6}\n"
        "1:\n\t" /* a group of channels */
        "ldm.w lr!, {r0-r7}\n\t"
        "ldrd r12, r10, [sp]\n\t"
        "ldr.w pc, [sp, #16]\n\t"
        ".balign 4\n"
        "2:\n\t"
        ".rept 8\n\t"
        "ldrsb r9, [r12], #1\n\t"
        "ldrsb r8, [lr], #1\n\t"
        "ldrsb r11, [lr], #1\n\t"
        "mls r0, r9, r8, r0\n\t"
        "ldrsb r8, [lr], #1\n\t"
        "mls r1, r9, r11, r1\n\t"
        "ldrsb r11, [lr], #1\n\t"
        "mls r2, r9, r8, r2\n\t"
        "ldrsb r8, [lr], #1\n\t"
        "mls r3, r9, r11, r3\n\t"
        "ldrsb r11, [lr], #1\n\t"
        "mls r4, r9, r8, r4\n\t"
        "ldrsb r8, [lr], #1\n\t"
        "mls r5, r9, r11, r5\n\t"
        "ldrsb r11, [lr], #1\n\t"
        "mls r6, r9, r8, r6\n\t"
        "mls r7, r9, r11, r7\n\t"
        ".endr\n"
        "3:\n\t"
        "cmp r12, r10\n\t"
        "bne.w 2b\n\t"
        "ldr.w r12, [sp, #8]\n\t"
        REQUANTIZE("r0") REQUANTIZE("r1") REQUANTIZE("r2") REQUANTIZE("r3")
        REQUANTIZE("r4") REQUANTIZE("r5") REQUANTIZE("r6") REQUANTIZE("r7")
        "str.w r12, [sp, #8]\n\t"
        "ldr r0, [sp, #12]\n\t"
        "cmp r12, r0\n\t"
        "bne.w 1b\n\t"
        "add sp, #24\n\t"
        "pop {r4-r11, pc}\n\t");
}
#endif

static int32_t group_words(int32_t in_c, int32_t n)
{
    return 3 * n + (in_c * n + 3) / 4;
}

/* The same for groups of n channels, from `out` to `end`. */
static void groups(const eights_t *g, const int32_t *stream, int32_t n, int8_t *out, const int8_t *end)
{
    const int32_t in_c = (int32_t)(g->x_end - g->x);
    for (; out < end; out += n, stream += group_words(in_c, n)) {
        const int8_t *w = (const int8_t *)(stream + n);
        const int32_t *scales = stream + group_words(in_c, n) - 2 * n;
        for (int32_t j = 0; j < n; j++) {
            int32_t sum = stream[j];
            for (int32_t i = 0; i < in_c; i++) {
                sum -= g->x[i] * w[i * n + j];
            }
            out[j] = rlx_v7m_requantize(sum, scales[2 * j], scales[2 * j + 1], g->c);
        }
    }
}

void rlx_dense_v7m_s8(const rlx_dense_v7m_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    const int32_t whole = p->out_c / CHANNELS * CHANNELS;
    const int32_t rest = p->in_c % UNROLL;
    eights_t g = {.first = rest == 0 ? UNROLL : rest, .c = -(2 * p->out_zp + 1), .stream = p->stream};
    for (int32_t row = y0; row < y1; row++) {
        g.x = rlx_row(x, row);
        g.x_end = g.x + p->in_c;
        g.out = rlx_row(y, row);
        g.out_end = g.out + whole;
#if RLX_V7M
        if (whole > 0) {
            eights(&g);
        }
#else
        groups(&g, p->stream, CHANNELS, g.out, g.out_end);
#endif
        const int32_t *left = p->stream + whole / CHANNELS * group_words(p->in_c, CHANNELS);
        groups(&g, left, 1, g.out + whole, g.out + p->out_c);
        if (p->low > -128 || p->high < 127) {
            rlx_v7m_clamp(g.out, p->out_c, p->low, p->high);
        }
    }
}
