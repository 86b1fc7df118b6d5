/* rlx_dense_mve.h: matrix product on MVE (Cortex-M55, M85), one row times eight columns of weights at a time.
 *
 * The stream, for each eight output channels, the even ones first (0, 2, 4, 6, 1, 3, 5, 7):
 *
 *     int8 weights[blocks][8 channels][16]           or with 4 or 2 in the place of 8: rlx_weights_mve.h
 *     int32 bias[8], multiplier[8], -shift[8]        shift: to the right
 *
 * blocks: in_c / 16, rounded up, weights beyond in_c being zero. Channels that do not exist are in the stream, but
 * their results are not stored. Rescaling is exact as in rlx_gemm_mve.h.
 *
 * Proved by the generator: weights without a zero point; accumulators fit in int32; right shifts are 1 to 31, or 0 with
 * weights of 4 bits or where the lowest code is the zero point, which hides that a negative h becomes h - 1.
 * scratch: none where in_c is a multiple of 16, else blocks * 16 bytes, for a row with room to read on.
 * A row of x is read again for each eight results (or, copied to scratch, before the first). x and y must not overlap
 * but as the planner finds from the kernel's order.
 *
 * Registers: r1 row, r5 stream, r3 output, r7 passes left through the unrolled blocks, r9 where to enter them, r11
 * channels left; sums of even channels in r0, r2, r4, r6, of odd ones in r8, r10, r12, lr; q0 row, q1, q2 weights,
 * then q0, q1 results, q2, q3 constants, q4 signs; q5 zero point, q6, q7 bounds.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DENSE_MVE_H
#define RLX_DENSE_MVE_H

#include "rlx_kernels.h"
#include "rlx_mve.h"
#include "rlx_requant.h"
#include "rlx_weights_mve.h"

enum { CHANNELS = 8, UNROLLED = 4 };

/* A row. The assembly knows the fields by their offsets. */
typedef struct {
    const int8_t *x;      /*  0 */
    int32_t passes;       /*  4: rounds through the unrolled blocks after the first entry */
    int8_t *out;          /*  8 */
    const int8_t *stream; /* 12 */
    int32_t entered;      /* 16: unrolled blocks of the first entry, 0 to UNROLLED */
    int32_t channels;     /* 20 */
    int32_t zero_point;   /* 24 */
    int32_t low;          /* 28 */
    int32_t high;         /* 32 */
    int32_t blocks;       /* for the twin */
} row_t;

#if RLX_MVE

/* 16 bytes of the row times eight channels: 17 instructions of 4 bytes. MLA is vmladava, or vmladav to begin. */
#define FOUR(MLA, A, B, C, D)                                                                                          \
    RLX_LOAD_WEIGHTS("q1") MLA ".s8 " A ", q0, q1\n"                                                                   \
    RLX_SECOND("q2", "q1") MLA ".s8 " B ", q0, q2\n"                                                                   \
    RLX_THIRD("q1", "q2") MLA ".s8 " C ", q0, q1\n"                                                                    \
    RLX_SECOND("q2", "q1") MLA ".s8 " D ", q0, q2\n"
#define BLOCK(MLA)                                                                                                     \
    "vldrb.u8 q0, [r1], #16\n"                                                                                         \
    FOUR(MLA, "r0", "r2", "r4", "r6") FOUR(MLA, "r8", "r10", "r12", "lr")

RLX_NAKED static void run_row(const row_t *r __attribute__((unused)))
{
    __asm volatile("push {r4-r11, lr}\n"
                   "vpush {d8-d15}\n"
                   "sub sp, sp, #12\n"
                   "mov r12, r0\n"
                   "ldm r12, {r1, r2, r3, r5, r6, r11}\n"
                   "strd r1, r2, [sp]\n"
                   "mov r7, r2\n"
                   "movs r4, #68\n"
                   "adr.w r9, 3f\n"
                   "mls r9, r6, r4, r9\n"
                   "add r9, r9, #1\n"
                   "ldr r4, [r12, #24]\n"
                   "vdup.16 q5, r4\n"
                   "ldr r4, [r12, #28]\n"
                   "vdup.16 q6, r4\n"
                   "ldr r4, [r12, #32]\n"
                   "vdup.16 q7, r4\n"
                   "1:\n"
                   BLOCK("vmladav")
                   "bx r9\n"
                   ".p2align 2\n"
                   "2:\n"
                   BLOCK("vmladava")
                   BLOCK("vmladava")
                   BLOCK("vmladava")
                   BLOCK("vmladava")
                   "3:\n"
                   "cbz r7, 4f\n"
                   "subs r7, #1\n"
                   "b 2b\n"
                   "4:\n"
                   RLX_SEPARATE("r0", "r2", "r4", "r6")
                   RLX_SEPARATE("r8", "r10", "r12", "lr")
                   "vldrw.u32 q2, [r5], #16\n"
                   "vldrw.u32 q3, [r5], #16\n"
                   "vmov q0[2], q0[0], r0, r4\n"
                   "vmov q1[2], q1[0], r8, r12\n"
                   "vmov q0[3], q0[1], r2, r6\n"
                   "vmov q1[3], q1[1], r10, lr\n"
                   "vadd.i32 q0, q0, q2\n"
                   "vadd.i32 q1, q1, q3\n"
                   "vldrw.u32 q2, [r5], #16\n"
                   "vldrw.u32 q3, [r5], #16\n"
                   "vqrdmulh.s32 q0, q0, q2\n"
                   "vqrdmulh.s32 q1, q1, q3\n"
                   "vldrw.u32 q2, [r5], #16\n"
                   "vldrw.u32 q3, [r5], #16\n"
                   RLX_ADD_SIGN("q0", "q4", "q2")
                   RLX_ADD_SIGN("q1", "q4", "q3")
                   "vrshl.s32 q0, q0, q2\n"
                   "vrshl.s32 q1, q1, q3\n"
                   "ldrd r1, r7, [sp]\n"
                   "vqmovnb.s32 q0, q0\n"
                   "vqmovnt.s32 q0, q1\n"
                   "vqadd.s16 q0, q0, q5\n"
                   "vmax.s16 q0, q0, q6\n"
                   "vmin.s16 q0, q0, q7\n"
                   "vctp.16 r11\n"
                   "vpst\n"
                   "vstrbt.16 q0, [r3], #8\n"
                   "subs r11, r11, #8\n"
                   "bgt 1b\n"
                   "add sp, sp, #12\n"
                   "vpop {d8-d15}\n"
                   "pop {r4-r11, pc}\n");
}

#else

static void run_row(const row_t *r)
{
    const int8_t *w = r->stream;
    for (int32_t c = 0; c < r->channels; c += CHANNELS) {
        int32_t sums[CHANNELS] = {0};
        for (int32_t b = 0; b < r->blocks; b++) {
            for (int32_t j = 0; j < CHANNELS; j += RLX_SHARING, w += RLX_MVE_BYTES) {
                rlx_multiply(&sums[j], r->x + b * RLX_MVE_BYTES, w);
            }
        }
        rlx_separate(sums, CHANNELS);
        const int32_t *constants = (const int32_t *)(const void *)w;
        for (int32_t j = 0; j < CHANNELS; j++) {
            const int32_t place = c + 2 * (j % 4) + j / 4;
            if (place < r->channels) {
                const int32_t acc = sums[j] + constants[j];
                const int32_t shift = -constants[2 * CHANNELS + j];
                const int32_t h = rlx_add_sign(rlx_high_mul(acc, constants[CHANNELS + j]), shift);
                const int32_t q = (int32_t)(((int64_t)h * 2 + (INT64_C(1) << shift)) >> (shift + 1));
                r->out[place] = (int8_t)rlx_bound(rlx_bound(q, INT16_MIN, INT16_MAX) + r->zero_point, r->low, r->high);
            }
        }
        w += 3 * CHANNELS * sizeof(int32_t);
    }
}

#endif

static inline void rlx_dense_mve(
    const rlx_dense_mve_t *p, const rlx_view_t *x, const rlx_view_t *y, void *scratch, int32_t y0, int32_t y1)
{
    const int32_t more = p->blocks - 1; /* the first block is not one of the unrolled ones */
    row_t row = {
        .passes = more > 0 ? (more - 1) / UNROLLED : 0,
        .channels = p->out_c,
        .stream = (const int8_t *)p->stream,
        .zero_point = p->out_zp,
        .low = p->low,
        .high = p->high,
        .blocks = p->blocks,
    };
    row.entered = more - row.passes * UNROLLED;
    for (int32_t i = y0; i < y1; i++) {
        row.x = rlx_row(*x, i);
        row.out = rlx_row(*y, i);
        if (p->in_c % RLX_MVE_BYTES != 0) {
            rlx_mve_copy(scratch, row.x, p->in_c);
            row.x = scratch;
        }
        run_row(&row);
    }
}

#endif
