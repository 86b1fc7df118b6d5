/* rlx_gemm_mve.h: pairs of windows times groups of four output channels, on MVE. What convolution kernels share.
 *
 * A window is a run of `blocks` * 16 bytes in memory (bytes beyond the real window meet zero weights). Two windows and
 * four channels are computed at a time, one VMLADAV (16 products, summed into a core register) a window, channel and
 * block. The stream holds, group after group:
 *
 *     int8 weights[blocks][4 channels][16]           or with 2 or 1 in the place of 4: rlx_weights_mve.h
 *     int32 bias[4], multiplier[4], -shift[4]        shift: to the right
 *
 * The last group may have channels that do not exist: their bytes are there, their results are not stored.
 *
 * Rescaling, with h = (acc * multiplier + 2^30) >> 31, which is what VQRDMULH gives (it saturates only for two operands
 * of -2^31), and then h / 2^shift to nearest, ties away from zero:
 * - VRSHL rounds half up, (h + 2^(shift - 1)) >> shift, with as many bits as that needs. For h >= 0 that is right.
 * - For h < 0 ties go down: (h - 1 + 2^(shift - 1)) >> shift, for shift >= 1. So the sign, -1 or 0, is added first;
 *   with a shift of 0 it is not, or does not matter (rlx_weights_mve.h).
 * - h - 1 does not wrap, as |h| < 2^31 - 1: |acc| < 2^31 is proved, and multiplier < 2^31.
 * - RLX_GEMM_RELU 1: the output's lowest code is its zero point. h < 0 gives 0 or less either way, so that bound hides
 *   the difference: the sign is left out, shift may be 0, and VQMOVUN does the lower bound.
 * int32 to int16 saturates, which no later sum with a zero point or bound of int8 range can show.
 *
 * Registers: r1, r3 windows; r5 stream; r7 passes left through the unrolled blocks; r9 where to enter them; r11 output
 * of the first window; sums of the first window in r0, r2, r4, r6, of the second in r8, r10, r12, lr (VMLADAV takes
 * even registers only); q0, q1 windows, later results, q2 weights, q2, q3 constants; q4 places of results, q5 zero
 * point, q6, q7 bounds.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_GEMM_MVE_H
#define RLX_GEMM_MVE_H

#include "rlx_mve.h"
#include "rlx_requant.h"
#include "rlx_weights_mve.h"

enum { RLX_GEMM_CHANNELS = 4, RLX_GEMM_UNROLLED = 8, RLX_GEMM_MAX_SPREAD = 65532 };

/* A run of pairs. The assembly knows these fields by their offsets. */
typedef struct {
    int8_t *last;         /*  0: where the last group of the first pair's first window goes */
    const int8_t *x0;     /*  4: the first pair's windows */
    const int8_t *x1;     /*  8 */
    int32_t passes;       /* 12: rounds through the unrolled blocks after the first entry */
    int8_t *out;          /* 16: the first pair's first output */
    int32_t pairs;        /* 20 */
    const int8_t *stream; /* 24 */
    int32_t x_step;       /* 28: bytes from a pair to the next */
    int32_t out_step;     /* 32 */
    int32_t entered;      /* 36: unrolled blocks of the first entry, 0 to RLX_GEMM_UNROLLED */
    int32_t spread;       /* 40: bytes from a window's output to the other window's */
    uint32_t last_lanes;  /* 44: bits of P0: bytes of 16-bit lanes of the last group, two windows a channel */
    int32_t zero_point;   /* 48 */
    int32_t low;          /* 52: with RLX_GEMM_RELU it is the zero point */
    int32_t high;         /* 56: with RLX_GEMM_RELU less the zero point */
    int32_t blocks, channels; /* for the twin */
} rlx_gemm_t;

#if RLX_MVE

/* 16 bytes of both windows times four channels: 14 instructions of 4 bytes. MLA is vmladava, or vmladav to begin. */
#define RLX_GEMM_BLOCK(MLA)                                                                                            \
    RLX_LOAD_WEIGHTS("q2")                                                                                             \
    "vldrb.u8 q0, [r1], #16\n" MLA ".s8 r0, q0, q2\n"                                                                  \
    "vldrb.u8 q1, [r3], #16\n" MLA ".s8 r8, q1, q2\n"                                                                  \
    RLX_SECOND("q2", "q2") MLA ".s8 r2, q0, q2\n" MLA ".s8 r10, q1, q2\n"                                              \
    RLX_THIRD("q2", "q2") MLA ".s8 r4, q0, q2\n" MLA ".s8 r12, q1, q2\n"                                               \
    RLX_SECOND("q2", "q2") MLA ".s8 r6, q0, q2\n" MLA ".s8 lr, q1, q2\n"

#if RLX_GEMM_RELU
#define RLX_GEMM_ADD_SIGN
#define RLX_GEMM_NARROW                                                                                                \
    "vqmovunb.s32 q0, q0\n"                                                                                            \
    "vqmovunt.s32 q0, q1\n"                                                                                            \
    "vmin.u16 q0, q0, q7\n"                                                                                            \
    "vadd.i16 q0, q0, q5\n"
#else
#define RLX_GEMM_ADD_SIGN RLX_ADD_SIGN("q0", "q3", "q2") RLX_ADD_SIGN("q1", "q3", "q2")
#define RLX_GEMM_NARROW                                                                                                \
    "vqmovnb.s32 q0, q0\n"                                                                                             \
    "vqmovnt.s32 q0, q1\n"                                                                                             \
    "vqadd.s16 q0, q0, q5\n"                                                                                           \
    "vmax.s16 q0, q0, q6\n"                                                                                            \
    "vmin.s16 q0, q0, q7\n"
#endif

/* Naked, so that no compiler needs to find nine core registers and eight vectors for it. On the stack, below the
 * 100 bytes of saved registers: the first four fields, as LDM takes them for each group, and the struct's address. */
RLX_NAKED static void rlx_gemm_pairs(rlx_gemm_t *g __attribute__((unused)))
{
    __asm volatile(
        "push {r4-r11, lr}\n"
        "vpush {d8-d15}\n"
        "sub sp, sp, #20\n"
        "str r0, [sp, #16]\n"
        /* q4: 0, spread, 1, spread + 1, ... in 16-bit lanes */
        "movs r2, #0\n"
        "vidup.u32 q4, r2, #1\n"
        "ldr r2, [r0, #40]\n"
        "lsls r2, r2, #16\n"
        "vdup.32 q5, r2\n"
        "movs r2, #1\n"
        "movt r2, #1\n"
        "vmul.i32 q4, q4, r2\n"
        "vadd.i32 q4, q4, q5\n"
        "ldr r2, [r0, #48]\n"
        "vdup.16 q5, r2\n"
        "ldr r2, [r0, #52]\n"
        "vdup.16 q6, r2\n"
        "ldr r2, [r0, #56]\n"
        "vdup.16 q7, r2\n"
        "ldr r2, [r0, #44]\n"
        "vmsr p0, r2\n" /* for the last group's store only */
        /* r9: the end of the unrolled blocks less those entered */
        "ldr r2, [r0, #36]\n"
        "movs r4, #56\n"
        "adr.w r9, 3f\n"
        "mls r9, r2, r4, r9\n"
        "add r9, r9, #1\n"
        "mov r12, r0\n"
        "ldm r12, {r0, r1, r3, r7, r11}\n"
        "stm sp, {r0, r1, r3, r7}\n"
        "0:\n" /* a pair */
        "ldr r5, [r12, #24]\n"
        "1:\n" /* a group */
        RLX_GEMM_BLOCK("vmladav")
        "bx r9\n"
        ".p2align 2\n"
        "2:\n"
        RLX_GEMM_BLOCK("vmladava")
        RLX_GEMM_BLOCK("vmladava")
        RLX_GEMM_BLOCK("vmladava")
        RLX_GEMM_BLOCK("vmladava")
        RLX_GEMM_BLOCK("vmladava")
        RLX_GEMM_BLOCK("vmladava")
        RLX_GEMM_BLOCK("vmladava")
        RLX_GEMM_BLOCK("vmladava")
        "3:\n"
        "cbz r7, 4f\n"
        "subs r7, #1\n"
        "b 2b\n"
        "4:\n"
        RLX_SEPARATE("r0", "r2", "r4", "r6")
        RLX_SEPARATE("r8", "r10", "r12", "lr")
        "vldrw.u32 q2, [r5], #16\n"
        "vmov q0[2], q0[0], r0, r4\n"
        "vmov q1[2], q1[0], r8, r12\n"
        "vmov q0[3], q0[1], r2, r6\n"
        "vmov q1[3], q1[1], r10, lr\n"
        "vadd.i32 q0, q0, q2\n"
        "vadd.i32 q1, q1, q2\n"
        "vldrw.u32 q2, [r5], #16\n"
        "vqrdmulh.s32 q0, q0, q2\n"
        "vqrdmulh.s32 q1, q1, q2\n"
        "vldrw.u32 q2, [r5], #16\n"
        RLX_GEMM_ADD_SIGN
        "ldm sp, {r0, r1, r3, r7}\n"
        "vrshl.s32 q0, q0, q2\n"
        "vrshl.s32 q1, q1, q2\n"
        RLX_GEMM_NARROW
        "cmp r11, r0\n"
        "beq 5f\n"
        "vstrb.16 q0, [r11, q4]\n"
        "add r11, r11, #4\n"
        "b 1b\n"
        "5:\n" /* the last group */
        "ldr r12, [sp, #16]\n"
        "vpst\n"
        "vstrbt.16 q0, [r11, q4]\n"
        "ldrd r2, r4, [r12, #16]\n"
        "subs r4, #1\n"
        "beq 6f\n"
        "ldrd r6, r8, [r12, #28]\n"
        "add r0, r0, r8\n"
        "add r1, r1, r6\n"
        "add r3, r3, r6\n"
        "add r11, r2, r8\n"
        "stm sp, {r0, r1, r3}\n"
        "strd r11, r4, [r12, #16]\n"
        "b 0b\n"
        "6:\n"
        "add sp, sp, #20\n"
        "vpop {d8-d15}\n"
        "pop {r4-r11, pc}\n");
}

#else

/* One result, in the steps of the assembly. */
static int8_t rlx_gemm_finish(const rlx_gemm_t *g, int32_t acc, int32_t multiplier, int32_t minus_shift)
{
    const int32_t shift = -minus_shift;
    const int32_t high = rlx_high_mul(acc, multiplier);
    const int32_t h = RLX_GEMM_RELU ? high : rlx_add_sign(high, shift);
    const int32_t q = (int32_t)(((int64_t)h * 2 + (INT64_C(1) << shift)) >> (shift + 1));
#if RLX_GEMM_RELU
    return (int8_t)(rlx_bound(q, 0, g->high) + g->zero_point);
#else
    return (int8_t)rlx_bound(rlx_bound(q, INT16_MIN, INT16_MAX) + g->zero_point, g->low, g->high);
#endif
}

static void rlx_gemm_group(
    const rlx_gemm_t *g, const int8_t *x0, const int8_t *x1, const int8_t *stream, int8_t *out, int32_t channels)
{
    const int8_t *w = stream;
    int32_t sums[2][RLX_GEMM_CHANNELS] = {{0}};
    for (int32_t b = 0; b < g->blocks; b++) {
        for (int32_t j = 0; j < RLX_GEMM_CHANNELS; j += RLX_SHARING, w += RLX_MVE_BYTES) {
            rlx_multiply(&sums[0][j], x0 + b * RLX_MVE_BYTES, w);
            rlx_multiply(&sums[1][j], x1 + b * RLX_MVE_BYTES, w);
        }
    }
    rlx_separate(sums[0], RLX_GEMM_CHANNELS);
    rlx_separate(sums[1], RLX_GEMM_CHANNELS);
    const int32_t *constants = (const int32_t *)(const void *)w;
    for (int32_t j = 0; j < channels; j++) {
        const int32_t bias = constants[j];
        const int32_t multiplier = constants[RLX_GEMM_CHANNELS + j];
        const int32_t minus_shift = constants[2 * RLX_GEMM_CHANNELS + j];
        out[j] = rlx_gemm_finish(g, sums[0][j] + bias, multiplier, minus_shift);
        out[g->spread + j] = rlx_gemm_finish(g, sums[1][j] + bias, multiplier, minus_shift);
    }
}

static void rlx_gemm_pairs(rlx_gemm_t *g)
{
    const int32_t group_bytes = g->blocks * RLX_GEMM_CHANNELS / RLX_SHARING * RLX_MVE_BYTES + 3 * RLX_GEMM_CHANNELS * 4;
    for (int32_t pair = 0; pair < g->pairs; pair++) {
        const int8_t *stream = g->stream;
        for (int32_t c = 0; c < g->channels; c += RLX_GEMM_CHANNELS, stream += group_bytes) {
            const int32_t left = g->channels - c;
            rlx_gemm_group(g, g->x0 + pair * g->x_step, g->x1 + pair * g->x_step, stream,
                           g->out + pair * g->out_step + c, left < RLX_GEMM_CHANNELS ? left : RLX_GEMM_CHANNELS);
        }
    }
}

#endif

/* Sets what all runs of a call share. blocks: 16-byte blocks of a window. */
static inline rlx_gemm_t rlx_gemm_begin(
    const int8_t *stream, int32_t blocks, int32_t channels, int32_t zero_point, int32_t low, int32_t high)
{
    const int32_t more = blocks - 1; /* the first block is not one of the unrolled ones */
    const int32_t left = (channels - 1) % RLX_GEMM_CHANNELS + 1;
    rlx_gemm_t g = {0};
    g.stream = stream;
    g.passes = more > 0 ? (more - 1) / RLX_GEMM_UNROLLED : 0;
    g.entered = more - g.passes * RLX_GEMM_UNROLLED;
    g.last_lanes = (UINT32_C(1) << (RLX_GEMM_CHANNELS * left)) - 1u;
    g.zero_point = zero_point;
    g.low = low;
    g.high = RLX_GEMM_RELU ? high - zero_point : high;
    g.blocks = blocks;
    g.channels = channels;
    return g;
}

/* `pairs` pairs of windows; x0, x1, out, spread, x_step and out_step are set. Changes `out`. */
static inline void rlx_gemm_run(rlx_gemm_t *g, int32_t pairs)
{
    g->pairs = pairs;
    g->last = g->out + ((g->channels - 1) & -RLX_GEMM_CHANNELS);
    if (pairs > 0) {
        rlx_gemm_pairs(g);
    }
}

/* Windows at `x`, `x_step` bytes apart, their outputs beside each other from `out` on. An odd last window is computed
 * as both of a pair: the same bytes are written twice. */
RLX_ONCE static void rlx_gemm_windows(rlx_gemm_t *g, const int8_t *x, int32_t x_step, int8_t *out, int32_t count)
{
    const int32_t even = count & ~1;
    g->x0 = x;
    g->x1 = x + x_step;
    g->x_step = 2 * x_step;
    g->out = out;
    g->out_step = 2 * g->channels;
    g->spread = g->channels;
    rlx_gemm_run(g, even / 2);
    if (count != even) {
        g->x0 = g->x1 = x + even * x_step;
        g->out = out + even * g->channels;
        g->spread = 0;
        rlx_gemm_run(g, 1);
    }
}

#endif
