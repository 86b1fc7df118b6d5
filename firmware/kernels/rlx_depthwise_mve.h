/* rlx_depthwise_mve.h: the inner loops of depthwise convolution on MVE, in assembly and in C, for weights of 8, 4 or 2
 * bits (RLX_WEIGHT_BITS). rlx_depthwise_strips_mve.h says what strips, patches, pairs and lines are.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEPTHWISE_MVE_H
#define RLX_DEPTHWISE_MVE_H

#include "rlx.h"
#include "rlx_mve.h"
#include "rlx_requant.h"

/* STREAM_BYTES: of a channel, constants and the weights of a patch. */
enum { LANES = 4, WORD = 4, STREAM_BYTES = 3 * 4 + 2 * RLX_WEIGHT_BITS };

/* Lines of outputs of some channels. The assembly knows the fields by their offsets. */
typedef struct {
    const int8_t *x;      /*  0: the strip's first position */
    int8_t *out;          /*  4: the first channel's first output */
    int32_t blocks;       /*  8: full blocks: of two positions (pairs) or four (lines) */
    int32_t channels;     /* 12 */
    uint32_t tail;        /* 16: bits of P0 for the 32-bit lanes of a last block that is not full, or 0 */
    const int8_t *stream; /* 20 */
    int32_t x_step;       /* 24: bytes of the strip from a block to the next */
    int32_t out_step;     /* 28: bytes of the output from a block to the next */
    int32_t zero_point;   /* 32 */
    int32_t position;     /* 36: bytes of a position of the strip */
    int32_t x_stride;     /* 40: lines: bytes of the strip from an output to the next */
    int32_t along;        /* 44: bytes of the output to the next position */
    int32_t across;       /* 48: pairs: bytes of the output to the other line */
} lines_t;

/* 16 bytes of four lanes, `count` times: byte i of lane k goes to to[4 * i + k]. Only `bytes` of the 16 are read. */
typedef struct {
    const int8_t *from[LANES];
    int32_t steps[LANES];
    int8_t *to;
    int32_t to_step, bytes, count;
} weave_t;

#if RLX_MVE

/* r1-r4 lanes, r5-r8 their steps, r9 to, r10 its step. */
RLX_NAKED static void weave(const weave_t *w __attribute__((unused)))
{
    __asm volatile("push {r4-r11, lr}\n"
                   "ldm r0!, {r1-r8}\n"
                   "ldm r0, {r9-r12}\n"
                   "vctp.8 r11\n"
                   "wls lr, r12, 2f\n"
                   "1:\n"
                   "vpstttt\n"
                   "vldrbt.u8 q0, [r1]\n"
                   "vldrbt.u8 q1, [r2]\n"
                   "vldrbt.u8 q2, [r3]\n"
                   "vldrbt.u8 q3, [r4]\n"
                   "add r1, r1, r5\n"
                   "add r2, r2, r6\n"
                   "add r3, r3, r7\n"
                   "add r4, r4, r8\n"
                   "vst40.8 {q0, q1, q2, q3}, [r9]\n"
                   "vst41.8 {q0, q1, q2, q3}, [r9]\n"
                   "vst42.8 {q0, q1, q2, q3}, [r9]\n"
                   "vst43.8 {q0, q1, q2, q3}, [r9]\n"
                   "add r9, r9, r10\n"
                   "le lr, 1b\n"
                   "2:\n"
                   "pop {r4-r11, pc}\n");
}

/* The weights of a patch, at r5, to bytes of q2. Fewer bits: as many lanes as bytes are loaded, each byte in a lane of
 * its own; the fields of a lane are moved to the top of bytes, and down again with their signs. */
#if RLX_WEIGHT_BITS == 8
#define LOAD_PATCH "vldrb.u8 q2, [r5], #16\n"
#elif RLX_WEIGHT_BITS == 4
#define LOAD_PATCH                                                                                                     \
    "vldrb.u16 q2, [r5], #8\n" /* two fields: bits 0 to 7 */                                                           \
    "vsli.16 q2, q2, #4\n"     /* the second at bit 8 */                                                               \
    "vshl.i8 q2, q2, #4\n"                                                                                             \
    "vshr.s8 q2, q2, #4\n"
#else
#define LOAD_PATCH                                                                                                     \
    "vldrb.u32 q2, [r5], #4\n" /* four fields: bits 0 to 7 */                                                          \
    "vsli.32 q2, q2, #12\n"    /* the third and fourth at bit 16 */                                                    \
    "vsli.16 q2, q2, #6\n"     /* the second at bit 8, the fourth at bit 24 */                                         \
    "vshl.i8 q2, q2, #6\n"                                                                                             \
    "vshr.s8 q2, q2, #6\n"
#endif

/* Registers of both: r0, r2, r4, r6 sums of four outputs, r1 strip, r3 output, r5 stream, r7 bias, r8 multiplier,
 * r9 zero point, r10, r12 steps, r11 -shift, lr the loop's count; q7 (pairs) or q3 (lines) places of outputs; on the
 * stack strip, output, blocks, channels left, tail. */
#define ENTER                                                                                                          \
    "push {r4-r11, lr}\n"                                                                                              \
    "vpush {d8-d15}\n"                                                                                                 \
    "sub sp, sp, #24\n"                                                                                                \
    "mov r12, r0\n"                                                                                                    \
    "ldm r12!, {r0-r5, r10}\n"                                                                                     \
    "stm sp, {r0-r4}\n"                                                                                                \
    "ldrd r4, r9, [r12]\n"
#define LEAVE                                                                                                          \
    "add sp, sp, #24\n"                                                                                                \
    "vpop {d8-d15}\n"                                                                                                  \
    "pop {r4-r11, pc}\n"
#define RESCALE                                                                                                        \
    "vmov q0[2], q0[0], r0, r4\n"                                                                                      \
    "vmov q0[3], q0[1], r2, r6\n"                                                                                      \
    "vadd.i32 q0, q0, r7\n"                                                                                            \
    "vshr.s32 q1, q0, #31\n"                                                                                           \
    "vqrdmlah.s32 q1, q0, r8\n"                                                                                        \
    "vrshl.s32 q1, r11\n"                                                                                              \
    "vadd.i32 q1, q1, r9\n"                                                                                            \
    "vqmovnb.s16 q1, q1\n"
/* The strip of the next channel begins 4 bytes on, its output a byte on. */
#define CHANNEL                                                                                                        \
    "ldm sp, {r1, r3, r4}\n"                                                                                           \
    "add r0, r1, #4\n"                                                                                                 \
    "add r2, r3, #1\n"                                                                                                 \
    "strd r0, r2, [sp]\n"                                                                                              \
    "wls lr, r4, 3f\n"
#define NEXT_CHANNEL                                                                                                   \
    "ldr r4, [sp, #12]\n"                                                                                              \
    "subs r4, #1\n"                                                                                                    \
    "str r4, [sp, #12]\n"                                                                                              \
    "bne 1b\n"
#define IF_TAIL                                                                                                        \
    "ldr r4, [sp, #16]\n"                                                                                              \
    "cmp r4, #0\n"                                                                                                     \
    "beq 4f\n"                                                                                                         \
    "vmsr p0, r4\n"

/* q2-q5 weights, q6 places of a patch's positions. */
#define PAIR                                                                                                           \
    "vldrw.u32 q0, [r1, q6]\n"                                                                                         \
    "vmladav.s8 r0, q0, q2\n"                                                                                          \
    "vmladav.s8 r2, q0, q3\n"                                                                                          \
    "vmladav.s8 r4, q0, q4\n"                                                                                          \
    "vmladav.s8 r6, q0, q5\n"                                                                                          \
    RESCALE

RLX_NAKED static void run_pairs(const lines_t *l __attribute__((unused)))
{
    __asm volatile(ENTER
                   "movs r0, #0\n"
                   "vidup.u32 q6, r0, #1\n" /* 0, 1, 2, 3 */
                   "ldr r2, [r12, #8]\n"
                   "vmul.i32 q6, q6, r2\n"
                   "ldrd r2, r3, [r12, #16]\n"
                   "movs r0, #0\n"
                   "vmov q7[2], q7[0], r0, r3\n" /* 0, along, across, both */
                   "add r3, r3, r2\n"
                   "vmov q7[3], q7[1], r2, r3\n"
                   "mov r12, r4\n"
                   "1:\n"
                   "ldm r5!, {r7, r8, r11}\n"
                   LOAD_PATCH
                   "movs r0, #0\n"
                   "vmov q3, q2\n"
                   "vshlc q3, r0, #32\n"
                   "vshl.i32 q4, q2, #8\n"
                   "vshl.i32 q5, q3, #8\n"
                   CHANNEL
                   "2:\n"
                   PAIR
                   "add r1, r1, r10\n"
                   "vstrb.32 q1, [r3, q7]\n"
                   "add r3, r3, r12\n"
                   "le lr, 2b\n"
                   "3:\n"
                   IF_TAIL
                   PAIR
                   "vpst\n"
                   "vstrbt.32 q1, [r3, q7]\n"
                   "4:\n"
                   NEXT_CHANNEL
                   LEAVE);
}

/* q2 weights, q4-q7 places of the four patches' positions. */
#define LINE                                                                                                           \
    "vldrw.u32 q0, [r1, q4]\n"                                                                                         \
    "vldrw.u32 q1, [r1, q5]\n"                                                                                         \
    "vmladav.s8 r0, q0, q2\n"                                                                                          \
    "vldrw.u32 q0, [r1, q6]\n"                                                                                         \
    "vmladav.s8 r2, q1, q2\n"                                                                                          \
    "vldrw.u32 q1, [r1, q7]\n"                                                                                         \
    "vmladav.s8 r4, q0, q2\n"                                                                                          \
    "vmladav.s8 r6, q1, q2\n"                                                                                          \
    RESCALE

RLX_NAKED static void run_lines(const lines_t *l __attribute__((unused)))
{
    __asm volatile(ENTER
                   "movs r0, #0\n"
                   "vidup.u32 q3, r0, #1\n"
                   "ldrd r2, r3, [r12, #8]\n"
                   "vmul.i32 q4, q3, r2\n"
                   "vadd.i32 q5, q4, r3\n"
                   "vadd.i32 q6, q5, r3\n"
                   "vadd.i32 q7, q6, r3\n"
                   "ldr r2, [r12, #16]\n"
                   "vmul.i32 q3, q3, r2\n"
                   "mov r12, r4\n"
                   "1:\n"
                   "ldm r5!, {r7, r8, r11}\n"
                   LOAD_PATCH
                   CHANNEL
                   "2:\n"
                   LINE
                   "add r1, r1, r10\n"
                   "vstrb.32 q1, [r3, q3]\n"
                   "add r3, r3, r12\n"
                   "le lr, 2b\n"
                   "3:\n"
                   IF_TAIL
                   LINE
                   "vpst\n"
                   "vstrbt.32 q1, [r3, q3]\n"
                   "4:\n"
                   NEXT_CHANNEL
                   LEAVE);
}

#else

static void weave(const weave_t *w)
{
    for (int32_t n = 0; n < w->count; n++) {
        for (int32_t i = 0; i < RLX_MVE_BYTES; i++) {
            for (int32_t k = 0; k < LANES; k++) {
                w->to[n * w->to_step + LANES * i + k] = i < w->bytes ? w->from[k][n * w->steps[k] + i] : 0;
            }
        }
    }
}

/* Weight i of a patch. */
static int32_t weight(const uint8_t *weights, int32_t i)
{
    const int32_t field = weights[i * RLX_WEIGHT_BITS / 8] >> (i * RLX_WEIGHT_BITS % 8);
    const int32_t sign = 1 << (RLX_WEIGHT_BITS - 1);
    return ((field & (2 * sign - 1)) ^ sign) - sign;
}

/* Output `o` of four: the sum over a patch at `x`, with the weights moved by some bytes of a patch. */
static void store_output(const lines_t *l, const int8_t *stream, const int8_t *x, int32_t moved, int8_t *out)
{
    const int32_t *constants = (const int32_t *)(const void *)stream;
    const uint8_t *w = (const uint8_t *)stream + 3 * sizeof(int32_t);
    int32_t acc = 0;
    for (int32_t i = moved; i < RLX_MVE_BYTES; i++) {
        acc += x[i / WORD * l->position + i % WORD] * weight(w, i - moved);
    }
    acc += constants[0];
    const int32_t shift = -constants[2];
    const int32_t h = rlx_high_mul(acc, constants[1]) + (acc < 0 ? -1 : 0);
    const int32_t q = (int32_t)(((int64_t)h * 2 + (INT64_C(1) << shift)) >> (shift + 1)) + l->zero_point;
    *out = (int8_t)rlx_bound(q, INT8_MIN, INT8_MAX);
}

static void run_blocks(const lines_t *l, bool pairs)
{
    const int32_t count = l->blocks + (l->tail != 0 ? 1 : 0);
    for (int32_t c = 0; c < l->channels; c++) {
        for (int32_t b = 0; b < count; b++) {
            const int8_t *x = l->x + c * WORD + b * l->x_step;
            int8_t *out = l->out + c + b * l->out_step;
            for (int32_t o = 0; o < 4; o++) {
                if (b < l->blocks || ((l->tail >> (4 * o)) & 1u) != 0u) {
                    const int32_t moved = pairs ? (o & 1) * WORD + (o >> 1) : 0;
                    const int32_t place = pairs ? (o & 1) * l->along + (o >> 1) * l->across : o * l->along;
                    const int8_t *patch = x + (pairs ? 0 : o * l->x_stride);
                    store_output(l, l->stream + c * STREAM_BYTES, patch, moved, out + place);
                }
            }
        }
    }
}

static void run_pairs(const lines_t *l)
{
    run_blocks(l, true);
}

static void run_lines(const lines_t *l)
{
    run_blocks(l, false);
}

#endif

#endif
